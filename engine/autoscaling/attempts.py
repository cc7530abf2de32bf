"""The next step with the ProvisioningRequests of a gang: make one, wait, try the next class, or withdraw them.

The requests themselves are the memory: their names have the demand and the number of the attempt, their conditions how
each has ended. So every leader decides the same, and one that continues after a crash makes none twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.api.objects import ProvisioningRequest
from engine.autoscaling.state import RequestState, changes_at, state_of
from engine.policy.autoscaling import ProvisioningClass, ProvisioningRequests

# Seconds before the first class is tried again after the last one has failed, or a class that was not tried after all;
# doubles up to the second value.
PAUSE_FIRST: Final = 60.0
PAUSE_MOST: Final = 1800.0
_DOUBLINGS: Final = 10
_NAME: Final = re.compile("-([0-9a-f]{8})-([1-9][0-9]{0,8})")
_LAST_NUMBER: Final = 999_999_999
# The reason of the cluster autoscaler if it saw a request before the templates: it has not looked for nodes.
_NOT_TRIED: Final = "FailedToCreatePods"


@dataclass(frozen=True, slots=True)
class AskForNodes:
    """Make a request of this name and class, for the demand that was decided about."""

    name: str
    tried: ProvisioningClass
    attempt: int


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Delete requests, which are not wanted any more."""

    requests: tuple[ProvisioningRequest, ...]


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing to do now; `until`: when to decide again at the latest (seconds since the epoch)."""

    until: float | None = None


Step = AskForNodes | Withdraw | Keep


@dataclass(frozen=True, slots=True)
class LastRequest:
    """The current request of a gang: its attempt, class, state; `retry_at`: when the next follows one that has ended.

    `next_class`: the class of that.
    """

    request: ProvisioningRequest
    attempt: int
    state: RequestState
    next_class: ProvisioningClass
    retry_at: float | None = None


def request_name(placement: str, digest: str, attempt: int) -> str:
    """Return the name of a request: of the gang's Placement, the demand and the attempt, so that none is made twice."""
    return f"{placement}-{digest}-{attempt}"


def attempt_of(request: ProvisioningRequest, digest: str | None = None) -> int | None:
    """Return the number of a request's attempt; None if it is none of ours, or about another demand."""
    if not request.name.startswith(request.gang):
        return None
    found = _NAME.fullmatch(request.name.removeprefix(request.gang))
    if found is None or digest not in (None, found[1]):
        return None
    return int(found[2])


def last_request(
    requests: Iterable[ProvisioningRequest], digest: str, rules: ProvisioningRequests, *, now: float
) -> LastRequest | None:
    """Return the last request about a demand in a class of the policy; None if there is none."""
    classes = rules.classes
    found = [
        (attempt, one, place)
        for one in requests
        if not one.deleting
        and (attempt := attempt_of(one, digest)) is not None
        and (place := _place(one, classes)) is not None
    ]
    if not found:
        return None
    attempt, request, place = max(found, key=lambda one: one[0])
    state = state_of(request, classes[place], now=now)
    if not state.ended:
        return LastRequest(request, attempt, state, classes[place])
    # An ended booking, or nodes that were taken back, have not served the gang either: it still waits.
    end = request.conditions.get("Failed")
    tried = end is None or not end.status or end.reason != _NOT_TRIED
    following = (place + 1) % len(classes) if tried else place
    rounds = (attempt - 1) // len(classes)
    pause = 0.0 if following > place else min(PAUSE_FIRST * 2.0 ** min(rounds, _DOUBLINGS), PAUSE_MOST)
    return LastRequest(request, attempt, state, classes[following], state.since + pause)


def next_step(
    requests: Sequence[ProvisioningRequest],
    placement: str,
    digest: str,
    rules: ProvisioningRequests,
    *,
    asks_at: float,
    now: float,
) -> Step:
    """Return the next step for a gang that waits for nodes.

    `asks_at`: when it has waited long enough for a first request. `now` and all times in seconds since the epoch.
    A new request is made before the ended one is deleted: its end is known until then.
    """
    last = last_request(requests, digest, rules, now=now)
    outdated = tuple(one for one in requests if not one.deleting and (last is None or one is not last.request))
    if outdated:
        return Withdraw(outdated)
    if last is None:
        if asks_at > now:
            return Keep(asks_at)
        return AskForNodes(request_name(placement, digest, 1), rules.classes[0], 1)
    if last.retry_at is None:
        tried = rules.classes[_place(last.request, rules.classes) or 0]
        return Keep(changes_at(last.request, tried, now=now))
    if last.retry_at > now:
        return Keep(last.retry_at)
    attempt = last.attempt + 1
    if attempt > _LAST_NUMBER:  # made by somebody else: its successor would not be known as ours, and made for ever
        return Withdraw((last.request,))
    return AskForNodes(request_name(placement, digest, attempt), last.next_class, attempt)


def _place(request: ProvisioningRequest, classes: Sequence[ProvisioningClass]) -> int | None:
    """Return the place of a request's class in the policy's; None if the policy has it no more."""
    for place, one in enumerate(classes):
        if one.class_name == request.class_name and dict(one.parameters) == dict(request.parameters):
            return place
    return None
