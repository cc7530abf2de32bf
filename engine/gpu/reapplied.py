"""A template that was translated and is now written again: what of it is the user's, and what is ours.

`kubectl apply` of the same file merges the names that the user wrote into what we made of them. Taken as it stands that
would be a contradiction (or, on a live Job, a change that the API server refuses); it is neither.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from engine.gpu.containers import Container, PodResources
from engine.gpu.notes import written_at_first
from engine.gpu.resources import device_names, whole_names
from engine.gpu.rules import validate

Side = Mapping[str, object]
Sides = tuple[Side, Side]  # requests, limits


@dataclass(frozen=True, slots=True)
class Reapplied:
    """A template as its user means it: `pod` has the old devices where he asks for the same as before.

    `same`: so it is everywhere, and nothing about devices is changed.
    """

    pod: PodResources
    same: bool


def reapplied(old: PodResources, new: PodResources, *, vendors: Collection[str] = ()) -> Reapplied:
    """Return what `new` asks for, given what `old` was made of; containers are told apart by their names."""
    names = device_names(whole_names(vendors))
    first = written_at_first(old)
    before = {container.name: container for container in old}

    def meant(container: Container) -> Container:
        was, wrote = before.get(container.name), first.get(container.name)
        if was is None or _devices(was, names) == _devices(container, names):
            return container
        had, has = _devices(was, names), _devices(container, names)
        if wrote is None:
            asks = _exchanged(had, has, lambda asked: _refused(container, asked, names, vendors)) or _followed(had, has)
        else:
            asks = _without_ours(has[0], had[0], wrote["requests"]), _without_ours(has[1], had[1], wrote["limits"])
            asks = had if asks == _sides(wrote) else asks
        return replace(
            container,
            requests=_with(container.requests, asks[0], names),
            limits=_with(container.limits, asks[1], names),
        )

    pod = new.map(meant)
    there = {container.name: _devices(container, names) for container in pod}
    return Reapplied(pod, there == {name: _devices(container, names) for name, container in before.items()})


def _without_ours(side: Side, was: Side, wrote: Side) -> Side:
    """What remains of one side of a container without what we had added to it."""
    return {name: value for name, value in side.items() if name in wrote or name not in was or was[name] != value}


def _exchanged(had: Sides, has: Sides, refused: Callable[[Sides], bool]) -> Sides | None:
    """Both sides of a container of which we had completed one, when its user asks by another name now.

    Of the name that he took out our half is left: it goes where it stands in the way of the new name.
    """
    there = [name for name in had[0] if had[1].get(name) == had[0][name]]
    halves = {
        name for name in there if [side.get(name) for side in has] in ([had[0][name], None], [None, had[0][name]])
    }
    fresh = (has[0].keys() | has[1].keys()) - had[0].keys() - had[1].keys()
    asks = _less(has[0], halves), _less(has[1], halves)
    return asks if halves and fresh and refused(has) and not refused(asks) else None


def _refused(container: Container, asks: Sides, names: Collection[str], vendors: Collection[str]) -> bool:
    requests, limits = _with(container.requests, asks[0], names), _with(container.limits, asks[1], names)
    return bool(
        validate(PodResources((replace(container, requests=requests, limits=limits),)), path="", vendors=vendors)
    )


def _less(side: Side, names: Collection[str]) -> Side:
    return {name: value for name, value in side.items() if name not in names}


def _followed(had: Sides, has: Sides) -> Sides:
    """Both sides of a container of which we had completed one: what is missing or behind follows the other."""
    requests, limits = dict(has[0]), dict(has[1])
    for name in (*requests, *(name for name in limits if name not in requests)):
        was = (had[0].get(name), had[1].get(name))
        now = (requests.get(name), limits.get(name))
        if None in now and None not in was and was[0] == was[1] and was[0] in now:
            requests[name] = limits[name] = was[0]
        elif None not in now and now[0] != now[1]:
            if now[0] == was[0]:
                del requests[name]
            elif now[1] == was[1]:
                del limits[name]
    return requests, limits


def _with(side: Side, values: Side, names: Collection[str]) -> dict[str, object]:
    return {**{name: value for name, value in side.items() if name not in names}, **values}


def _sides(entry: Mapping[str, Side]) -> Sides:
    return entry["requests"], entry["limits"]


def _devices(container: Container, names: Collection[str]) -> Sides:
    requests, limits = container.requests, container.limits
    return (
        {name: value for name, value in requests.items() if name in names},
        {name: value for name, value in limits.items() if name in names},
    )
