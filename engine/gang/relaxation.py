"""Turns a required level into a preferred one when a gang has waited for `relax-after`. Pure.

The Placement is the memory: it says which levels were relaxed and since when the gang waits, so that neither a
fail-over nor a re-plan starts the time anew or takes the relaxation back.
"""

from __future__ import annotations

from dataclasses import replace

from engine.api import names
from engine.api.duration import format_duration
from engine.api.placement import GangRequest, Placement, PodSetRequest, waiting_since
from engine.api.text import join_and, sanitize
from engine.gang.request import PlacementRequest
from engine.policy.model import Policy


def relaxed(understanding: PlacementRequest) -> PlacementRequest:
    """The request with what is required as what is preferred; slices stay as they are."""
    gang = understanding.gang
    if gang is not None and gang.require is not None:
        gang = replace(gang, require=None, prefer=gang.prefer or _preferred(gang.require), relaxed=gang.require)
    asks = tuple(
        replace(ask, require=None, prefer=ask.prefer or _preferred(ask.require), relaxed=ask.require)
        if ask.require is not None
        else ask
        for ask in understanding.asks
    )
    return replace(understanding, gang=gang, asks=asks)


def _preferred(required: str) -> str:
    """The level to prefer instead of one that was required; `auto` prefers the lowest one."""
    return names.HOST_LEVEL if required == names.AUTO else required


Relaxed = tuple[str | None, tuple[tuple[str, str | None], ...]]


def effective_request(understanding: PlacementRequest, placement: Placement | None, policy: Policy) -> PlacementRequest:
    """The request that counts: as the user wrote it, or relaxed if the Placement says that this very one was.

    A gang that has slots keeps them also when nothing is to be relaxed any more; one that waits is as its user says.
    """
    if placement is None or _relaxed_levels(placement.gang, placement.pod_sets) == _NOTHING or not understanding.asks:
        return understanding
    if placement.assignment is None and relax_after(understanding, policy) is None:
        return understanding
    softer = relaxed(understanding)
    same = _relaxed_levels(softer.gang, softer.asks) == _relaxed_levels(placement.gang, placement.pod_sets)
    return softer if same else understanding


def relaxes_at(understanding: PlacementRequest, placement: Placement | None, policy: Policy) -> float | None:
    """When what is required becomes preferred (seconds since the epoch); None: nothing is to be relaxed, or not yet."""
    after = relax_after(understanding, policy)
    since = waiting_since(placement.status) if placement is not None else None
    if after is None or since is None or relaxed(understanding) == understanding:
        return None
    return since + after


def relaxing_text(understanding: PlacementRequest, policy: Policy) -> str:
    """What people read when it happens; `understanding` is the one before."""
    waited = format_duration(relax_after(understanding, policy) or 0.0)
    return f"has waited for {waited}: {_named(_required(understanding))} is preferred from now on, not required"


def relaxing_forecast(understanding: PlacementRequest, policy: Policy) -> str:
    """What is told at submit time of when it will happen: `after 10m rack is preferred, not required`; "" if never."""
    levels = _required(understanding)
    after = relax_after(understanding, policy)
    if after is None or not any(levels):
        return ""
    return f"after {format_duration(after)} {_named(levels)} is preferred, not required"


def relaxed_text(understanding: PlacementRequest, policy: Policy) -> str:
    """The tail of a message about a gang whose request was relaxed, as long as it waits; "" about any other."""
    levels = [understanding.gang.relaxed] if understanding.gang is not None else []
    levels += [ask.relaxed for ask in understanding.asks]
    after = relax_after(understanding, policy)
    if after is None or not any(levels):
        return ""
    return f"; {_named(levels)} was required until it had waited for {format_duration(after)}"


def _required(understanding: PlacementRequest) -> list[str | None]:
    """What the gang and each of its pod sets require."""
    levels = [understanding.gang.require] if understanding.gang is not None else []
    return levels + [ask.require for ask in understanding.asks]


def _named(levels: list[str | None]) -> str:
    return join_and([sanitize(level) for level in dict.fromkeys(levels) if level is not None])


def relax_after(understanding: PlacementRequest, policy: Policy) -> float | None:
    """After how many seconds of waiting what is required becomes preferred; None: never."""
    return understanding.relax_after if understanding.relax_after is not None else policy.timeouts.relax_after


def _relaxed_levels(gang: GangRequest | None, pod_sets: tuple[PodSetRequest, ...]) -> Relaxed:
    named = tuple((one.name, one.relaxed) for one in pod_sets if one.relaxed is not None)
    return (gang.relaxed if gang is not None else None, named)


_NOTHING: Relaxed = (None, ())
