"""Kinds of devices that the policy declares, beside GPUs, RDMA and FPGA devices: their names, and what pods request.

A device of such a kind is counted like a GPU: percent of its compute, percent or bytes of its memory, or as a whole. A
dimension without a resource name cannot be requested, and every device has all of it.
The policy also names further resources that count whole GPUs. Pods are decoded without a policy, so what they request
by its names is added afterwards, and again when it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final

from engine.api.device import Device, DeviceRequest, DeviceUse
from engine.api.resources import Requests, format_bytes
from engine.api.text import join_and, plural
from engine.resources.names import MAX_BYTES, MAX_REQUESTED, WHOLE
from engine.resources.request import Asked, Contradiction, device_request


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """One kind of devices: the type in Device objects, and the names of its resources ("": there is none).

    `whole` counts devices, `core` and `ratio` are percent of one device's compute and memory, `memory` is bytes of it.
    """

    type: str
    whole: str = ""
    core: str = ""
    ratio: str = ""
    memory: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its resources."""
        return tuple(name for name in (self.whole, self.core, self.ratio, self.memory) if name)

    @property
    def share(self) -> str:
        """The name that says which part of a device is requested: of its memory, else of its compute."""
        return self.ratio or ("" if self.memory else self.core)


@dataclass(frozen=True)
class DeviceKinds:
    """The kinds of devices that the policy declares, and the names of whole GPUs that are not built in (`vendors`)."""

    kinds: tuple[DeviceKind, ...] = ()
    vendors: frozenset[str] = frozenset()

    @cached_property
    def names(self) -> frozenset[str]:
        """The resource names of all kinds."""
        return frozenset(name for kind in self.kinds for name in kind.names)

    @cached_property
    def whole(self) -> frozenset[str]:
        """The names that count whole devices."""
        return frozenset(kind.whole for kind in self.kinds if kind.whole)

    @cached_property
    def by_type(self) -> Mapping[str, DeviceKind]:
        """The kinds by their type."""
        return {kind.type: kind for kind in self.kinds}

    @cached_property
    def kind_of_name(self) -> Mapping[str, str]:
        """The type of the devices that a resource name requests."""
        return {name: kind.type for kind in self.kinds for name in kind.names}

    def contradictions(self, asked: Asked) -> tuple[Contradiction, ...]:
        """Return all contradictions between positive amounts; rules about a value that is None are left out."""
        return tuple(one for kind in self.kinds for one in _contradictions(kind, asked))

    def extended(self, devices: DeviceRequest | None, requests: Requests) -> DeviceRequest | None:
        """Return a pod's device request with what its effective requests (planner units) name of these kinds.

        Also with the whole GPUs that they request by one of `vendors`.
        """
        if self.vendors:
            devices = _with_gpus(self.vendors, devices, requests)
        if not self.kinds:
            return devices
        others = _others(self, requests)
        if not others:
            return devices
        return replace(devices or DeviceRequest(), others=others)

    def device(self, device: Device) -> Device:
        """Return a device of a Device object in the dimensions of its kind; unhealthy if its amounts are impossible."""
        kind, amounts = self.by_type[device.kind], dict(device.resources)
        core = amounts.get(kind.core, 0) if kind.core else WHOLE
        ratio = amounts.get(kind.share, 0) if kind.share else WHOLE
        memory = amounts.get(kind.memory, 0) if kind.memory else 0
        possible = 0 <= core <= WHOLE and 0 <= ratio <= WHOLE and 0 <= memory <= MAX_BYTES
        if not possible:
            core = ratio = memory = 0
        return replace(device, core=core, ratio=ratio, memory=memory, resources=(), healthy=device.healthy and possible)

    def resources(self, use: DeviceUse) -> dict[str, str]:
        """Return a pod's part of a device under the names of its kind, as quantities."""
        kind = self.by_type[use.kind]
        amounts = {kind.core: str(use.core), kind.ratio: str(use.ratio), kind.memory: format_bytes(use.memory)}
        have = {name: text for name, text in amounts.items() if name and text != "0"}
        return dict(sorted((have or {kind.whole: "1"}).items()))


NO_KINDS: Final = DeviceKinds()


@lru_cache(maxsize=4096)
def _with_gpus(vendors: frozenset[str], devices: DeviceRequest | None, requests: Requests) -> DeviceRequest | None:
    name = next((name for name, amount in requests if amount > 0 and name in vendors), None)
    if name is None or (devices is not None and devices.gpus):
        return devices
    asked = device_request(dict(requests), vendors=vendors)
    if asked is None:
        return devices
    return replace(
        devices or DeviceRequest(), gpus=asked.gpus, core=asked.core, ratio=asked.ratio, whole=asked.whole, name=name
    )


@lru_cache(maxsize=4096)
def _others(kinds: DeviceKinds, requests: Requests) -> tuple[tuple[str, DeviceRequest], ...]:
    asked = {name: amount for name, amount in requests if amount > 0 and name in kinds.names}
    if not asked:
        return ()
    found = ((kind.type, _request(kind, asked)) for kind in kinds.kinds if not any(_contradictions(kind, asked)))
    return tuple(sorted(((type_, request) for type_, request in found if request is not None), key=lambda one: one[0]))


def _request(kind: DeviceKind, asked: Mapping[str, int]) -> DeviceRequest | None:
    name = next((name for name in kind.names if name in asked), None)
    if name is None:
        return None
    if name == kind.whole:
        return DeviceRequest(gpus=asked[name], core=WHOLE, ratio=WHOLE, whole=True, name=name)
    core, ratio, memory = (asked.get(one, 0) if one else 0 for one in (kind.core, kind.share, kind.memory))
    devices = max(1, (ratio or core) // WHOLE)
    ratio = -(-ratio // devices)
    return DeviceRequest(
        gpus=devices,
        core=-(-core // devices),
        ratio=ratio,
        memory=-(-memory // devices),
        whole=ratio >= WHOLE,
        name=name,
    )


def _contradictions(kind: DeviceKind, asked: Asked) -> Iterator[Contradiction]:
    named = [name for name in kind.names if name in asked]
    if kind.whole in named and len(named) > 1:
        message = f"asks for whole {kind.type} devices and cannot be combined with {join_and(named[1:])}"
        yield Contradiction(kind.whole, f"{message}; use only one of these forms", combination=True)
        return
    if kind.memory in named and kind.ratio in named:
        message = f"cannot be combined with {kind.ratio}: give the memory in bytes or in percent, and remove the other"
        yield Contradiction(kind.memory, message, combination=True)
        return
    memories = [name for name in (kind.ratio, kind.memory) if name]
    if named == [kind.core] and memories:
        message = f"asks for compute without memory; add {join_and(memories, 'or')}"
        yield Contradiction(kind.core, message, combination=True)
        return
    wrong = [one for name in named if (one := _wrong_amount(kind, name, asked[name])) is not None]
    yield from wrong
    core = asked.get(kind.core) if kind.core in named else None
    most = max(1, (asked.get(kind.ratio) or 0) // WHOLE) * WHOLE
    if not wrong and core is not None and core > most and memories:
        message = f"is more than {plural(most // WHOLE, f'{kind.type} device')} of which memory is requested have"
        yield Contradiction(kind.core, f"{message}; use at most {most}", combination=False)


def _wrong_amount(kind: DeviceKind, name: str, amount: int | None) -> Contradiction | None:
    if amount is None or name == kind.memory:
        return None
    noun = f"{kind.type} device"
    if amount > MAX_REQUESTED * (1 if name == kind.whole else WHOLE):
        message = f"is more than {plural(MAX_REQUESTED, noun)}; no host has that many"
        return Contradiction(name, message, combination=False)
    if name == kind.whole or amount <= WHOLE or amount % WHOLE == 0:
        return None
    below = amount - amount % WHOLE
    message = f"must be a multiple of {WHOLE} when it is more than {WHOLE} (one {noun}); use {below} or {below + WHOLE}"
    return Contradiction(name, message, combination=False)


def kinds_of(kinds: Iterable[DeviceKind], vendors: frozenset[str] = frozenset()) -> DeviceKinds:
    """Return the kinds of a policy; equal policies share one object, so that comparing them is fast."""
    return _shared(tuple(kinds), vendors)


_shared = lru_cache(maxsize=8)(DeviceKinds)
