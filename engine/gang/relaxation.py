"""Effects of a gang's waiting time: the level is relaxed (`relax-after`) or the wait ends (`schedule-timeout`). Pure.

The Placement records which levels were relaxed and since when the gang waits, so that neither a fail-over nor a re-plan
restarts the time or undoes the relaxation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from engine.api import names
from engine.api.duration import format_duration
from engine.api.placement import GangRequest, Placement, PodSetRequest, requeues, waiting_since
from engine.api.reasons import known_code, reason_of
from engine.api.text import join_and, sanitize
from engine.gang.request import LONGEST_REQUEUE, PlacementRequest, longest_wait
from engine.policy.model import Policy

Relaxed = tuple[str | None, tuple[tuple[str, str | None], ...]]

_NOTHING: Relaxed = (None, ())

_MAX_DOUBLINGS: Final = 12  # of 10 s, the shortest one: far beyond the longest


def effective_request(request: PlacementRequest, placement: Placement | None, policy: Policy) -> PlacementRequest:
    """Return the request to plan: as the user wrote it, or relaxed if the Placement records that for this very request.

    A placed gang keeps its relaxed request even when nothing is to be relaxed any more; a waiting gang does not.
    """
    if placement is None or _relaxed_levels(placement.gang, placement.pod_sets) == _NOTHING or not request.pod_sets:
        return request
    if placement.assignment is None and relax_after(request, policy) is None:
        return request
    softened = relaxed(request)
    same = _relaxed_levels(softened.gang, softened.pod_sets) == _relaxed_levels(placement.gang, placement.pod_sets)
    return softened if same else request


def relaxed(request: PlacementRequest) -> PlacementRequest:
    """Return the request with every required level as a preferred one; slices stay as they are."""
    gang, levels = request.gang, request.levels
    if gang is not None and gang.require is not None:
        gang = replace(gang, require=None, prefer=gang.prefer or _preferred(gang.require, levels), relaxed=gang.require)
    asks = tuple(
        replace(ask, require=None, prefer=ask.prefer or _preferred(ask.require, levels), relaxed=ask.require)
        if ask.require is not None
        else ask
        for ask in request.pod_sets
    )
    return replace(request, gang=gang, pod_sets=asks)


def relaxes_at(request: PlacementRequest, placement: Placement | None, policy: Policy) -> float | None:
    """Return when required levels become preferred (seconds since the epoch); None when never, or while not waiting."""
    after = relax_after(request, policy)
    since = waiting_since(placement.status) if placement is not None else None
    if after is None or since is None or relaxed(request) == request:
        return None
    return since + after


def relax_after(request: PlacementRequest, policy: Policy) -> float | None:
    """Return the seconds of waiting after which required levels become preferred; None: never."""
    return request.relax_after if request.relax_after is not None else policy.timeouts.relax_after


def relaxing_text(request: PlacementRequest, policy: Policy) -> str:
    """Return the message for the moment when a request is relaxed; `request` is the one before."""
    waited = format_duration(relax_after(request, policy) or 0.0)
    return f"has waited for {waited}: {_named(_required(request))} is preferred from now on, not required"


def relaxing_forecast(request: PlacementRequest, policy: Policy) -> str:
    """Return the notice for submit time: `after 10m rack is preferred, not required`; "" if that never happens."""
    levels = _required(request)
    after, longest = relax_after(request, policy), longest_wait(request.schedule_timeout, policy)
    if after is None or not any(levels) or (longest is not None and longest <= after):
        return ""
    return f"after {format_duration(after)} {_named(levels)} is preferred, not required"


def relaxed_text(request: PlacementRequest, policy: Policy) -> str:
    """Return the end of the message about a waiting gang with a relaxed request; "" for any other."""
    levels = [request.gang.relaxed] if request.gang is not None else []
    levels += [ask.relaxed for ask in request.pod_sets]
    after = relax_after(request, policy)
    if after is None or not any(levels):
        return ""
    return f"; {_named(levels)} was required until it had waited for {format_duration(after)}"


def starts_anew(status: Mapping[str, Any]) -> bool:
    """True for the status of a gang that was given up: if it is planned again, its waiting time starts anew."""
    reason = reason_of(known_code(status.get("reason")))
    return reason is not None and reason.gives_up


def times_out_at(request: PlacementRequest, status: Mapping[str, Any]) -> float | None:
    """Return when a gang's `schedule-timeout` ends (seconds since the epoch); None: never, or not yet known.

    After each requeue it lasts twice as long, up to an hour: thousands of gangs with a short one would be written and
    told of for ever.
    """
    since = waiting_since(status)
    if since is None or request.schedule_timeout is None:
        return None
    return since + _lasts(request.schedule_timeout, requeues(status))


def timeout_text(request: PlacementRequest, policy: Policy, status: Mapping[str, Any]) -> str:
    """Return the message for the moment when a gang's time is over."""
    timeout, before = request.schedule_timeout or 0.0, requeues(status)
    waited = f"has waited for {format_duration(_lasts(timeout, before))} without a placement"
    if policy.queue.on_timeout == "giveUp":
        return f"{waited}: it is given up; change its request or resume it to try again"
    again = format_duration(_lasts(timeout, before + 1))
    return f"{waited}: it goes to the end of its priority in the queue, and again after {again}"


def _lasts(timeout: float, requeued: int) -> float:
    """Return how long a time-out lasts after so many requeues (seconds)."""
    return min(timeout * 2.0 ** min(requeued, _MAX_DOUBLINGS), max(timeout, LONGEST_REQUEUE))


def timeout_forecast(request: PlacementRequest, policy: Policy) -> str:
    """Return the notice for submit time: `after 10m without slots it is given up`; "" without a time-out."""
    if request.schedule_timeout is None:
        return ""
    then = "is given up" if policy.queue.on_timeout == "giveUp" else "goes to the end of its priority in the queue"
    return f"after {format_duration(request.schedule_timeout)} without slots it {then}"


def _preferred(required: str, levels: Sequence[str] | None) -> str:
    """Return the level to prefer instead of a required one; `auto` prefers the lowest one that may be named."""
    if required != names.AUTO:
        return required
    return levels[-1] if levels else names.HOST_LEVEL


def _required(request: PlacementRequest) -> list[str | None]:
    """Return the levels that the gang and each of its pod sets require."""
    levels = [request.gang.require] if request.gang is not None else []
    return levels + [ask.require for ask in request.pod_sets]


def _named(levels: list[str | None]) -> str:
    return join_and([sanitize(level) for level in dict.fromkeys(levels) if level is not None])


def _relaxed_levels(gang: GangRequest | None, pod_sets: tuple[PodSetRequest, ...]) -> Relaxed:
    named = tuple((one.name, one.relaxed) for one in pod_sets if one.relaxed is not None)
    return (gang.relaxed if gang is not None else None, named)
