"""The devices of a slot's pods: whose they are, which nobody has yet. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from engine.api.placement import PodSetPlan, Slot
from engine.api.pod import Pod
from engine.pod_devices import Uses, devices_of


def devices_by_rank(plan: PodSetPlan) -> dict[int, Uses]:
    """Rank -> devices of its pod; without the ranks of which they are not known."""
    found: dict[int, Uses] = {}
    for slot in plan.slots:
        if slot.devices is not None:
            ranks = [rank for first, last in slot.ranks or () for rank in range(first, last + 1)]
            found.update(pair for pair in zip(ranks, slot.devices, strict=False) if pair[1])
    return found


def spare_devices(slot: Slot, pods: Iterable[Pod]) -> list[Uses]:
    """The devices of a slot that none of these pods has, in order; what is not known of its pods comes as ()."""
    held = Counter(_which(uses) for pod in pods if (uses := devices_of(pod)) is not None)
    spare: list[Uses] = []
    for uses in slot.devices or ():
        if uses and held[_which(uses)] > 0:
            held[_which(uses)] -= 1
        else:
            spare.append(uses)
    return spare


def fewer(slot: Slot, count: int, there: Iterable[Pod]) -> Slot:
    """The slot with the lowest `count` ranks, and with the devices of the pods that are there."""
    devices = slot.devices
    if devices is not None and count < slot.count:
        spare = spare_devices(slot, there)
        given = list(devices)
        for uses in spare:
            given.remove(uses)
        devices = (*given, *spare)[:count]
    return replace(slot, count=count, ranks=_lowest(slot.ranks, count), devices=devices)


def below(slot: Slot, limit: int) -> Slot | None:
    """The slot without its ranks from `limit` on; None when none is left. A slot without ranks stays whole."""
    if slot.ranks is None or slot.ranks[-1][1] < limit:
        return slot
    count = sum(max(0, min(last, limit - 1) - first + 1) for first, last in slot.ranks)
    devices = None if slot.devices is None else slot.devices[:count]  # in the order of the ranks
    return replace(slot, count=count, ranks=_lowest(slot.ranks, count), devices=devices) if count else None


def _which(uses: Uses) -> frozenset[tuple[str, int]]:
    return frozenset((use.kind, use.minor) for use in uses)


def _lowest(ranks: tuple[tuple[int, int], ...] | None, count: int) -> tuple[tuple[int, int], ...] | None:
    """The lowest `count` ranks of a list of inclusive ranges."""
    if ranks is None:
        return None
    kept: list[tuple[int, int]] = []
    for first, last in ranks:
        if count <= 0:
            break
        take = min(count, last - first + 1)
        kept.append((first, first + take - 1))
        count -= take
    return tuple(kept)
