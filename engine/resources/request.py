"""A device request: which amounts may be combined, and the request in words.

The rules are Koordinator's (its list of 17 valid combinations, the 100 % rule, the rules of `gpu.shared`). Requests
that Koordinator admits and can never place are refused as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from engine.api.device import DeviceRequest
from engine.api.resources import format_bytes
from engine.api.text import join_and, plural, sanitize
from engine.resources.names import (
    CORE,
    DIMENSIONS,
    FPGA,
    GPU,
    KOORDINATOR,
    MAX_REQUESTED,
    MEMORY,
    RATIO,
    RDMA,
    SHARED,
    WHOLE,
    whole_names,
)
from engine.resources.selectors import format_selector

SCOPES_IN_WORDS: Final = {
    "nvlink": "in one NVLink partition",
    "pcie": "in one PCIe scope",
    "numa": "in one NUMA node",
    "socket": "on one CPU socket",
}


def asked_in_words(request: DeviceRequest) -> str:
    """Return the request as text: `4 GPUs`, `30Gi of the memory and 20% of the compute of a GPU`, with RDMA."""
    parts = []
    if request.gpus:
        within = f" {SCOPES_IN_WORDS[request.scope]}" if request.scope else ""
        which = f" with {join_and([f'{key}={value}' for key, value in request.selector])}" if request.selector else ""
        parts.append((plural(request.gpus, "GPU") if request.whole else _part(request)) + which + within)
    for noun, percent in (("RDMA device", request.rdma), ("FPGA", request.fpga)):
        if percent:
            article = "an" if noun[0] in "RF" else "a"
            share = percent < WHOLE
            asked = f"{percent}% of {article} {noun}" if share else plural(percent // WHOLE, noun)
            parts.append(asked + (_particulars(request) if noun != "FPGA" else ""))
    for kind, part in request.others:
        noun = f"{kind} device"
        parts.append(plural(part.gpus, noun) if part.whole else _part(part, noun))
    return " and ".join(parts) if len(parts) <= 2 else ", ".join(parts[:-1]) + f" and {parts[-1]}"  # noqa: PLR2004


def _particulars(request: DeviceRequest) -> str:
    """Return which RDMA devices a pod wants: ` (type=a) with a virtual function (pool=b) beside its GPUs`."""
    text = f" ({sanitize(format_selector(request.rdma_selector))})" if request.rdma_selector else ""
    if request.vf_selector is not None:
        text += " with a virtual function" + (" each" if request.cards[0] > 1 else "")
        text += f" ({sanitize(format_selector(request.vf_selector))})" if request.vf_selector else ""
    return text + (" in the PCIe scope of its GPUs" if request.joint else "")


def _part(request: DeviceRequest, noun: str = "GPU") -> str:
    article = "an" if noun[0] in "aeiou" else "a"
    of = f"{article} {noun}" if request.gpus == 1 else f"each of {plural(request.gpus, noun)}"
    if request.core and request.core == request.ratio:
        return f"{request.core}% of {of}"
    said = []
    if request.memory:
        said.append(f"{format_bytes(request.memory)} of the memory")
    elif request.ratio:
        said.append(f"{request.ratio}% of the memory")
    if request.core:
        said.append(f"{request.core}% of the compute")
    return f"{join_and(said)} of {of}"


# Device resource -> amount; None: it is requested with an invalid value.
Asked = Mapping[str, int | None]

_ADD_MEMORY: Final = f"add {RATIO} or {MEMORY}"


@dataclass(frozen=True, slots=True)
class Contradiction:
    """An invalid combination of amounts; `name` is the resource to report it at.

    `combination`: the names exclude each other, with any values.
    """

    name: str
    message: str
    combination: bool


def device_contradictions(asked: Asked, whole: Collection[str]) -> tuple[Contradiction, ...]:
    """Return all contradictions between the amounts; `whole` are the names that count whole GPUs.

    Amounts are positive; rules about a value that is None are left out.
    """
    names = tuple(_names(asked, whole))
    values = () if names else _values(asked, whole)
    return (*names, *values, *_others(asked))


def devices(asked: Mapping[str, int]) -> int:
    """Return the number of GPUs that valid amounts in Koordinator's dimensions request.

    It is `gpu.shared`, else the memory ratio, else (memory in bytes) the compute, divided by 100.
    """
    amount = asked.get(RATIO) or asked.get(GPU) or asked.get(CORE, 0)
    return asked.get(SHARED) or max(1, amount // WHOLE)


def _names(asked: Asked, whole: Collection[str]) -> Iterator[Contradiction]:
    vendors = sorted(name for name in asked if name in whole)
    dimensions = [name for name in DIMENSIONS if name in asked]
    percent = [GPU] if GPU in asked else []
    for name in vendors[1:]:
        yield _pair(name, f"cannot be combined with {vendors[0]}: a pod gets GPUs of one kind; remove one of them")
    if vendors and (percent or dimensions):
        ours = join_and([*percent, *dimensions])
        yield _pair(vendors[0], f"asks for whole GPUs and cannot be combined with {ours}; use only one of these forms")
    if percent and dimensions:
        yield _pair(
            GPU,
            f"means {CORE} and {RATIO} and cannot be combined with {join_and(dimensions)}; use only one of these forms",
        )
    if MEMORY in asked and RATIO in asked:
        yield _pair(
            MEMORY, f"cannot be combined with {RATIO}: give the memory in bytes or in percent, and remove the other"
        )
    if vendors or percent or MEMORY in asked or RATIO in asked:
        return
    if CORE in asked:
        yield _pair(CORE, f"asks for compute without memory; {_ADD_MEMORY}")
    elif SHARED in asked:
        yield _pair(SHARED, f"needs the share of each GPU; {_ADD_MEMORY}")


def _values(asked: Asked, whole: Collection[str]) -> Iterator[Contradiction]:
    for name, amount in asked.items():
        if (name in whole or name == SHARED) and amount is not None and amount > MAX_REQUESTED:
            yield _too_many(name, "GPU")
    if SHARED in asked:
        yield from _shares(asked)
        return
    percent = [name for name in (GPU, RATIO, CORE) if name in asked]
    refused = [_hundreds(name, asked[name], "GPU") for name in percent]
    yield from (one for one in refused if one is not None)
    core, ratio = asked.get(CORE), asked.get(RATIO)
    if not any(refused) and core is not None and ratio is not None:
        have = max(1, ratio // WHOLE)
        if core > have * WHOLE:
            yield Contradiction(
                CORE,
                f"is the compute of {plural(core // WHOLE, 'GPU')}, but {RATIO} asks for the memory of {have}; "
                f"use at most {have * WHOLE}, or add {SHARED}: {core // WHOLE}",
                combination=False,
            )


def _shares(asked: Asked) -> Iterator[Contradiction]:
    spans = asked[SHARED]
    for name in (CORE, RATIO):
        amount = asked.get(name)
        if amount is None or spans is None:
            continue
        if amount % spans:
            text = f"must be a multiple of {SHARED} ({spans}): each GPU gives the same share"
        elif amount > spans * WHOLE:
            text = f"is {amount // spans} on each of {plural(spans, 'GPU')} ({SHARED}); a GPU has {WHOLE}; use at most"
            text += f" {spans * WHOLE} or raise {SHARED}"
        else:
            continue
        yield Contradiction(name, text, combination=False)


def _others(asked: Asked) -> Iterator[Contradiction]:
    for name in (RDMA, FPGA):
        refused = _hundreds(name, asked.get(name), "device")
        if refused is not None:
            yield refused


def _hundreds(name: str, amount: int | None, noun: str) -> Contradiction | None:
    if amount is None or amount <= WHOLE:
        return None
    if amount > MAX_REQUESTED * WHOLE:
        return _too_many(name, noun)
    if amount % WHOLE == 0:
        return None
    below = amount - amount % WHOLE
    return Contradiction(
        name,
        f"must be a multiple of {WHOLE} when it is more than {WHOLE} (one {noun}); use {below} or {below + WHOLE}",
        combination=False,
    )


def _too_many(name: str, noun: str) -> Contradiction:
    return Contradiction(name, f"is more than {plural(MAX_REQUESTED, noun)}; no host has that many", combination=False)


def _pair(name: str, message: str) -> Contradiction:
    return Contradiction(name, message, combination=True)


def device_request(
    requests: Mapping[str, int], *, vendors: Collection[str] = (), translated: bool = False
) -> DeviceRequest | None:
    """Return the device request of a pod's effective requests (planner units); `vendors` are the policy's.

    None when they name no device, or a combination that admission refuses. Parts of several GPUs are rounded up.
    A memory ratio of 100 on each GPU needs the whole GPU; memory in bytes never does (Koordinator's rule).
    `translated`: admission replaced a name that means as much of the memory as of the compute, so bytes are that many
    percent too. Whoever claims it falsely takes more and hides nothing, as the bytes count besides.
    """
    whole = whole_names(vendors)
    asked = {name: amount for name, amount in requests.items() if amount > 0 and (name in whole or name in KOORDINATOR)}
    if not asked or device_contradictions(asked, whole):
        return None
    rdma, fpga = asked.pop(RDMA, 0), asked.pop(FPGA, 0)
    if not asked:
        return DeviceRequest(rdma=rdma, fpga=fpga)
    counted = next((amount for name, amount in asked.items() if name in whole), 0)
    if counted:
        return DeviceRequest(gpus=counted, core=WHOLE, ratio=WHOLE, whole=True, rdma=rdma, fpga=fpga)
    gpus = devices(asked)
    percent = asked.get(CORE, 0) if translated and MEMORY in asked else asked.get(RATIO, asked.get(GPU, 0))
    ratio = -(-percent // gpus)
    return DeviceRequest(
        gpus=gpus,
        core=-(-asked.get(CORE, asked.get(GPU, 0)) // gpus),
        ratio=ratio,
        memory=-(-asked.get(MEMORY, 0) // gpus),
        whole=ratio >= WHOLE,
        rdma=rdma,
        fpga=fpga,
    )


def dimensions(amounts: Mapping[str, int], whole: Collection[str]) -> dict[str, int]:
    """Return valid amounts converted to Koordinator's dimensions; `whole` are the names of whole GPUs."""
    named = {name: amount for name, amount in amounts.items() if name in KOORDINATOR and name != GPU and amount}
    percent = amounts.get(GPU, 0) or sum(amount for name, amount in amounts.items() if name in whole) * WHOLE
    return {CORE: percent, RATIO: percent, **named} if percent else named
