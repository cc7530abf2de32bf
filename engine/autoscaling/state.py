"""The state of a ProvisioningRequest, read from its conditions, and since when it has it.

Every cluster autoscaler sets Accepted, then Provisioned or Failed. A provisioned request is booked for some minutes:
BookingExpired ends that, and so does CapacityRevoked. Provisioned is true when the nodes have been requested from the
cloud; they join the cluster later. It is false while nothing is found and the autoscaler goes on trying.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from engine.api.duration import format_duration
from engine.api.objects import ProvisioningRequest
from engine.api.placement import ConsumedRequest
from engine.api.text import sanitize
from engine.policy.autoscaling import ProvisioningClass

State = Literal["Pending", "Accepted", "Provisioned", "Failed", "BookingExpired", "CapacityRevoked"]
# What ends a request, the first that is true.
_ENDS: Final[tuple[State, ...]] = ("Failed", "CapacityRevoked", "BookingExpired")
ENDED: Final = frozenset(_ENDS)
_MAX_MESSAGE: Final = 200  # characters of an autoscaler's message that are quoted
# Seconds after which a provisioned request has been of no use to a gang that still waits. The cluster autoscaler ends
# its bookings after 10 minutes and gives up nodes that have not come after 15; others may say nothing for ever.
SERVES_WITHIN: Final = 1800.0
_CLOCKS_DIFFER: Final = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class RequestState:
    """The state of a request and since when (seconds since the epoch); `message`: what the autoscaler says about it."""

    state: State
    since: float
    message: str = ""

    @property
    def ended(self) -> bool:
        """True if nothing more is to be expected of the request."""
        return self.state in ENDED


def state_of(request: ProvisioningRequest, tried: ProvisioningClass | None, *, now: float) -> RequestState:
    """Return the state of a request.

    One that is not provisioned in the time of its class (`tried`) has failed, whether its autoscaler says so or not:
    the parameter is part of the API, but not every autoscaler reads it. So has one that was provisioned long ago, if
    its gang still waits, which the caller knows.
    """
    for end in _ENDS:
        if (since := _since(request, end, now)) is not None:
            return RequestState(end, since, _message(request, end))
    if (since := _since(request, "Provisioned", now)) is not None:
        if now < since + SERVES_WITHIN:
            return RequestState("Provisioned", since)
        why = f"reported as provisioned, but no node that the gang can use came in {format_duration(SERVES_WITHIN)}"
        return RequestState("Failed", since + SERVES_WITHIN, why)
    limit = tried.gives_up_after if tried is not None else None
    trying = _message(request, "Provisioned")
    if limit is not None and request.created + limit <= now:
        return RequestState("Failed", request.created + limit, trying or f"not provisioned in {limit:,.0f} s")
    if (since := _since(request, "Accepted", now)) is not None:
        return RequestState("Accepted", since, trying)
    return RequestState("Pending", request.created, trying)


def changes_at(request: ProvisioningRequest, tried: ProvisioningClass | None, *, now: float) -> float | None:
    """Return when a request fails by time alone; None if it does not."""
    state = state_of(request, tried, now=now)
    if state.state == "Provisioned":
        return state.since + SERVES_WITHIN
    limit = tried.gives_up_after if tried is not None else None
    return None if limit is None or state.ended else request.created + limit


def consumed(requests: list[ProvisioningRequest]) -> ConsumedRequest | None:
    """Return the request whose nodes the pods of a gang use from now on: a provisioned one, the last of several."""
    found = [one for one in requests if not one.deleting and state_of(one, None, now=0.0).state == "Provisioned"]
    last = max(found, key=lambda one: (one.created, one.name), default=None)
    return None if last is None else ConsumedRequest(last.name, last.class_name)


def _since(request: ProvisioningRequest, kind: str, now: float) -> float | None:
    """Return since when a condition is true; a time in the future would put off the next request for ever."""
    at = request.since(kind)
    return request.created if at is not None and at > now + _CLOCKS_DIFFER else at


def _message(request: ProvisioningRequest, kind: str) -> str:
    found = request.conditions.get(kind)
    return sanitize(found.message or found.reason, _MAX_MESSAGE) if found is not None else ""
