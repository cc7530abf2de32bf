"""Resource quantities in whole planner units, a pod's resources, and claims that one pod per host can hold.

The grammar is `resource.Quantity`'s: sign, decimal digits, then a suffix (n u m k M G T P E, Ki..Ei) or a decimal
exponent. Amounts are exact down to one billionth, finer ones round away from zero, as in apimachinery; no float is
involved. Units are those of `engine.api.pod`.

A claim has a space in its name, so that it never equals a resource of a node.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

_HOST_PORT: Final = "host port "
_ANTI_AFFINITY: Final = "apart from "


def host_port(port: int, protocol: str) -> str:
    """Return the claim on a port of the host. The address is left out: one pod per port, for any address."""
    return f"{_HOST_PORT}{port}/{protocol}"


def anti_affinity(namespace: str, selector: str) -> str:
    """Return the claim of pods with required anti-affinity to each other per host; `selector` is canonical."""
    digest = hashlib.sha256(f"{namespace}\n{selector}".encode()).hexdigest()[:10]
    return f"{_ANTI_AFFINITY}pods {digest}"


def is_claim(resource: str) -> bool:
    """Return whether the name of a request is a claim."""
    return resource.startswith((_HOST_PORT, _ANTI_AFFINITY))


Quantity = str | int | float

# Longer text is an attack, not an amount: the largest canonical quantity has 20 characters.
MAX_LENGTH: Final = 64

# Amounts beyond this many units are capped, so that sums over 100,000 hosts stay inside int64. A request is capped one
# unit above what capacity is capped to: nothing absurd ever fits.
MAX_UNITS: Final = 2**45

_NANO: Final = 10**9
_MIB: Final = 2**20
# With at most MAX_LENGTH digits before it, an exponent beyond this only means "capped" or "rounded up".
_MAX_EXPONENT: Final = 200

_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_GRAMMAR: Final = re.compile(
    r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)


class QuantityError(ValueError):
    """The text is not a quantity, or the quantity is not possible for its resource."""


def nano(resource: str, quantity: Quantity) -> int:
    """Return `quantity` in billionths of `resource`'s own unit (core, byte, piece), so that sums are exact.

    Raises QuantityError for anything outside the grammar, and for fractions of resources that are counted in wholes.
    """
    amount = _parse(_text(quantity))
    if amount % _NANO and not _divisible(resource):
        raise QuantityError(f"{_shown(quantity)} must be a whole number")
    return amount


def nano_to_units(resource: str, amount: int, *, up: bool) -> int:
    """Return billionths of `resource` in planner units, rounded up or down; capped at `MAX_UNITS` (+1 when `up`)."""
    size = _unit_size(resource)
    units = -(-amount // size) if up else amount // size
    if -MAX_UNITS <= units <= MAX_UNITS:
        return units
    return -MAX_UNITS if units < 0 else MAX_UNITS + up


def format_units(resource: str, units: int) -> str:
    """Return an amount in planner units as a quantity: `8`, `500m`, `64Gi`."""
    if resource == "cpu":
        return str(units // 1000) if units % 1000 == 0 else f"{units}m"
    if _unit_size(resource) != _NANO * _MIB:
        return str(units)
    for suffix in ("Mi", "Gi", "Ti"):
        if units == 0 or units % 1024:
            return f"{units}{suffix}" if units else "0"
        units //= 1024
    return f"{units}Pi"


def format_bytes(amount: int) -> str:
    """Return bytes as a quantity in the largest exact binary unit: `80Gi`, `858993459`."""
    suffix = ""
    for one in ("Ki", "Mi", "Gi", "Ti", "Pi"):
        if not amount or amount % 1024:
            break
        amount, suffix = amount // 1024, one
    return f"{amount}{suffix}"


def _unit_size(resource: str) -> int:
    """Return how many billionths make one planner unit."""
    if resource == "cpu":
        return _NANO // 1000
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return _NANO * _MIB
    return _NANO


def _divisible(resource: str) -> bool:
    """Return whether the API server admits fractions; `kubernetes.io/` is native, as in its `IsIntegerResourceName`."""
    return _unit_size(resource) != _NANO or "kubernetes.io/" in resource


def _text(quantity: Quantity) -> str:
    if isinstance(quantity, str):
        if len(quantity) > MAX_LENGTH:
            raise QuantityError(f"{_shown(quantity)} is longer than {MAX_LENGTH} characters")
        return quantity
    if isinstance(quantity, bool) or not isinstance(quantity, int | float):
        raise QuantityError(f"expected a quantity, got {type(quantity).__name__}")
    if isinstance(quantity, int) and quantity.bit_length() > 8 * MAX_LENGTH // 3:
        raise QuantityError(f"a number of {quantity.bit_length()} bits is no quantity")
    # The shortest text that parses to the same float is the one in the user's YAML or JSON.
    return repr(quantity)


@lru_cache(maxsize=8192)
def _parse(text: str) -> int:
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise QuantityError(f"{_shown(text)} is not a quantity (examples: 8, 500m, 1.5, 64Gi, 1e3)")
    sign, whole, fraction, bare_fraction, exponent, suffix = match.groups()
    fraction = fraction or bare_fraction or ""
    digits = int((whole or "") + fraction)
    power = 9 - len(fraction)
    if exponent is not None:
        power += max(-_MAX_EXPONENT, min(int(exponent), _MAX_EXPONENT)) if digits else 0
    else:
        digits *= _BINARY.get(suffix or "", 1)
        power += _DECIMAL.get(suffix or "", 0)
    scale: int = 10 ** abs(power)
    amount = digits * scale if power >= 0 else -(-digits // scale)
    return -amount if sign == "-" else amount


def _shown(quantity: Quantity) -> str:
    """Return the user's text, shortened and without control characters."""
    text = ascii(quantity) if isinstance(quantity, str) else repr(quantity)
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 3]}..."


Resources = Mapping[str, int]
Requests = tuple[tuple[str, int], ...]  # (resource, planner units), sorted by name


Amounts = Mapping[str, int]  # resource -> billionths (engine.api.resources.nano)


def effective(containers: Iterable[Amounts], init_containers: Iterable[tuple[Amounts, bool]] = ()) -> dict[str, int]:
    """Return the total amounts of a pod's containers, in billionths.

    `init_containers` are (amounts, sidecar) in order; a sidecar (restartPolicy Always) keeps running beside all later
    ones. The result is the maximum of the running pod's amounts and those at any moment of its start.
    """
    total: dict[str, int] = {}
    for amounts in containers:
        add(total, amounts)
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for amounts, sidecar in init_containers:
        if sidecar:
            add(total, amounts)
            add(sidecars, amounts)
            moment = sidecars
        else:
            moment = dict(sidecars)
            add(moment, amounts)
        _raise_to(peak, moment)
    _raise_to(total, peak)
    return total


def pod_requests(
    containers: Amounts, *, pod_requests: Amounts, pod_limits: Amounts, overhead: Amounts
) -> dict[str, int]:
    """Return a pod's requests from its containers' `effective` ones, its pod-level resources and its overhead.

    A pod-level request replaces the sum of the containers; a pod-level limit is used where neither requests anything
    (for hugepages, which cannot be overcommitted, also where the containers do).
    """
    total = dict(containers)
    for resource, amount in pod_limits.items():
        if is_pod_level(resource) and (resource not in total or resource.startswith("hugepages-")):
            total[resource] = amount
    total.update((resource, amount) for resource, amount in pod_requests.items() if is_pod_level(resource))
    add(total, overhead)
    return total


def pod_limits(containers: Amounts, *, pod_limits: Amounts, overhead: Amounts) -> dict[str, int]:
    """Return a pod's limits; overhead is added only where there is a limit."""
    total = dict(containers)
    total.update((resource, amount) for resource, amount in pod_limits.items() if is_pod_level(resource))
    add(total, {resource: amount for resource, amount in overhead.items() if resource in total})
    return total


def is_pod_level(resource: str) -> bool:
    """Return whether `spec.resources` of a pod may name the resource."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def in_units(amounts: Amounts) -> Requests:
    """Return amounts as planner units, rounded up, sorted by name, without zeros."""
    return tuple(sorted((name, nano_to_units(name, amount, up=True)) for name, amount in amounts.items() if amount))


def largest(requests: Iterable[Requests]) -> Requests:
    """Return the largest amount of every resource."""
    amounts: dict[str, int] = {}
    for one in requests:
        for resource, amount in one:
            amounts[resource] = max(amount, amounts.get(resource, 0))
    return tuple(sorted(amounts.items()))


def at_most(requests: Requests, limit: Requests) -> Requests:
    """Return requests without what they are beyond a limit; claims have none."""
    most = dict(limit)
    amounts = ((name, amount if is_claim(name) else min(amount, most.get(name, 0))) for name, amount in requests)
    return tuple((name, amount) for name, amount in amounts if amount)


def less(requests: Requests, others: Requests) -> Requests:
    """Return what requests are beyond others."""
    known = dict(others)
    amounts = ((name, amount - known.get(name, 0)) for name, amount in requests)
    return tuple((name, amount) for name, amount in amounts if amount > 0)


def add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    """Add amounts to a total in place."""
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + amount


def _raise_to(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for resource, amount in amounts.items():
        if amount > total.get(resource, -1):
            total[resource] = amount
