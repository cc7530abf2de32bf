"""The resources of a pod's containers as written in the object, and the pod's effective amounts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from engine.api.resources import MAX_UNITS, Quantity, QuantityError, effective, nano

Path = tuple[str | int, ...]

_PIECE: Final = 10**9  # billionths
_SIDECAR: Final = "Always"


class AmountError(ValueError):
    """The value is not an amount of a device; the text names the allowed ones."""


@dataclass(frozen=True, slots=True)
class Container:
    """One container's requests and limits, values as written; `path` leads to it from the pod's spec."""

    name: str
    path: Path
    requests: Mapping[str, object]
    limits: Mapping[str, object]
    sidecar: bool = False

    def of(self, names: Collection[str]) -> dict[str, object]:
        """Return the values of these resources: the limit, else the request."""
        return {name: value for name, value in {**self.requests, **self.limits}.items() if name in names}

    def field(self, path: str, side: str, name: str) -> str:
        """Return the JSON path of one value; `path` is that of the pod's spec."""
        kind, position = self.path
        return f"{path}.{kind}[{position}].resources.{side}[{name}]"

    def amounts(self, names: Collection[str]) -> dict[str, int]:
        """Return the requested amounts of these resources. Raises AmountError."""
        read = {name: amount(value) for name, value in self.of(names).items()}
        return {name: number for name, number in read.items() if number}


@dataclass(frozen=True, slots=True)
class PodResources:
    """The containers of a pod or of a template, and its annotations."""

    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Container]:
        yield from self.containers
        yield from self.init_containers

    def map(self, change: Callable[[Container], Container]) -> PodResources:
        """Return the pod with every container changed."""
        return replace(
            self,
            containers=tuple(map(change, self.containers)),
            init_containers=tuple(map(change, self.init_containers)),
        )

    def total(self, amounts: Mapping[Path, Mapping[str, int]]) -> dict[str, int]:
        """Return the pod's effective amounts (Kubernetes' formula) from those of its containers, by path."""
        return effective(
            [amounts.get(one.path, {}) for one in self.containers],
            [(amounts.get(one.path, {}), one.sidecar) for one in self.init_containers],
        )


def pod_resources(spec: object, annotations: object = None) -> PodResources:
    """Read the `spec` of a pod or a template and its annotations, decoded JSON; never raises.

    Values of the wrong type count as absent: the API server refuses them with its own message.
    """
    return PodResources(
        containers=tuple(_containers(spec, "containers")),
        init_containers=tuple(_containers(spec, "initContainers")),
        annotations={key: value for key, value in _map(annotations).items() if isinstance(value, str)},
    )


def amount(value: object) -> int:
    """Return a quantity in percent, bytes or pieces; null is zero, as in Go. Raises AmountError."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise AmountError("must be a quantity, such as 100")
    return _amount(value)


# The containers of a pod request the same few amounts, and each is parsed often.
@lru_cache(maxsize=1024, typed=True)
def _amount(value: Quantity) -> int:
    try:
        billionths = nano("cpu", value)  # cpu may be divided: so a fraction differs from text that is no quantity
    except QuantityError:
        raise AmountError("is not a quantity (examples: 1, 100, 8Gi)") from None
    if billionths % _PIECE:
        raise AmountError("must be a whole number")
    if billionths < 0:
        raise AmountError("must not be negative")
    if billionths > MAX_UNITS * _PIECE:
        raise AmountError("is more than any host has; ask for less")
    return billionths // _PIECE


def _containers(spec: object, kind: str) -> Iterator[Container]:
    listed = _map(spec).get(kind)
    for position, raw in enumerate(listed if isinstance(listed, Sequence) and not isinstance(listed, str) else ()):
        one = _map(raw)
        resources = _map(one.get("resources"))
        name = one.get("name")
        yield Container(
            name=name if isinstance(name, str) else "",
            path=(kind, position),
            requests=_map(resources.get("requests")),
            limits=_map(resources.get("limits")),
            sidecar=kind == "initContainers" and one.get("restartPolicy") == _SIDECAR,
        )


def _map(raw: object) -> Mapping[str, object]:
    return raw if isinstance(raw, Mapping) else {}
