"""Why a gang does not fit: one dominant reason and its sentence, out of numbers.

Numbers are needed / have / best candidate; the rest are counts that add up to the total. Source: the rules in
docs/reference/messages.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from engine.api import names
from engine.api.reasons import Code
from engine.api.resources import format_units
from engine.api.text import plain, plural
from engine.device_shortfall import DeviceShortfall, how_near, nobody_reports
from engine.devices.hosts import DISAGREEING, NOT_UNDERSTOOD, UNHEALTHY
from engine.devices.resources import KOORDINATOR
from engine.outcomes import Never, Waits
from engine.topology.topology import OUTSIDE_SELECTOR

WHOLE_TOPOLOGY: Final = "topology"  # what `fits_level` says when only the whole topology has room
_MAX_GROUPS: Final = 6
_UNHEALTHY: Final = frozenset({"cordoned", "not ready", UNHEALTHY, NOT_UNDERSTOOD, DISAGREEING})
_CHOSEN: Final = frozenset({"nodeSelector", "node affinity"})  # by the pods
_TAINT: Final = "taint "
_NO_LABEL: Final = "no label "
_IN_WORDS: Final = {
    "nodeSelector": "outside its nodeSelector",
    "node affinity": "outside its node affinity",
    OUTSIDE_SELECTOR: "outside the topology's nodeSelector",
    "outside topology": "outside the topology",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The numbers behind an answer of no.

    count           pods that need slots
    whole           all pods of the gang, where `count` of them are enough for it; None: `count` are all
    level           alias of the required level; None: the whole topology
    domains         domains of that level that were looked at
    best            last label value of the domain with the most free slots; None: there is none
    best_slots      its free slots
    total_slots     free slots of all eligible hosts
    capacity_best   slots of the largest domain, empty, counting healthy eligible hosts
    capacity_total  the same of the whole topology
    per_host        slots of the largest empty host; None: unknown
    hosts           nodes looked at
    exclusions      nodes by the reason why they have no room: of `engine.gang.shape.exclusion`, of `Topology.outside`,
                    "in use", "too small"; what is missing to `hosts` has room
    limiting        the resource that runs out first
    fits_level      nearest coarser level with a domain that has room now, "topology" for the whole; None: nowhere
    gpus_per_pod    whole GPUs that a pod asks for
    ceiling         as capacity_best, counting cordoned, not ready and tainted hosts too: what no repair can exceed.
                    None: estimated from the number of such hosts, which never says never too early
    largest         last label value and number of hosts of the domain with capacity_best
    roomier         nearest coarser level whose largest empty domain holds the gang, with its slots
    host_gpus       GPUs of the largest host
    slices          level and size: so many pods at a time have to share one domain of the level; None: no slices.
                    All numbers of slots are of whole slices then
    tolerate        key of a taint: a toleration for it would make room for the gang now
    devices         what its pods need of the hosts' devices; None: nothing
    too_big         a resource of which no host has as much as a pod asks for: its name, units of a pod, most of a host
    unreported      names that its pods ask for and no node reports
    reported        names of GPUs and devices that nodes do report, told when there are unreported ones
    """

    count: int
    level: str | None
    domains: int
    best: str | None
    best_slots: int
    total_slots: int
    capacity_best: int
    capacity_total: int
    per_host: int | None
    hosts: int
    exclusions: Mapping[str, int] = field(default_factory=dict)
    limiting: str | None = None
    fits_level: str | None = None
    gpus_per_pod: int = 0
    ceiling: int | None = None
    largest: tuple[str, int] | None = None
    roomier: tuple[str, int] | None = None
    host_gpus: int | None = None
    tolerate: str | None = None
    devices: DeviceShortfall | None = None
    unreported: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    slices: tuple[str, int] | None = None
    whole: int | None = None
    too_big: tuple[str, int, int] | None = None


def infeasible(short: Shortfall) -> Waits | Never:
    """Return the one dominant reason why a gang does not fit, with its numbers.

    Never: not even when every host of the topology were empty and healthy. Else the healthy empty cluster decides: when
    the gang would fit there, what others use is the reason; when not, the nodes that are missing from it.
    """
    if short.unreported and short.hosts > 0:
        return Never("UnknownResource", nobody_reports(short.unreported, short.reported))
    answer = _infeasible(short)
    if isinstance(answer, Waits) and short.devices is not None and short.total_slots == 0:
        near = how_near(short.devices) if answer.reason == "InsufficientFreeGPUs" else ""
        answer = Waits(answer.reason, f"{answer.message}; {near}") if near else answer
    if isinstance(answer, Waits) and short.tolerate is not None:
        would = f"with a toleration for {plain(short.tolerate)} it would fit now"
        answer = Waits(answer.reason, f"{answer.message}; {would}")
    return replace(answer, for_hosts=short.capacity_best < short.count) if isinstance(answer, Waits) else answer


def _infeasible(short: Shortfall) -> Waits | Never:
    if short.capacity_best >= short.count:
        return _used_up(short)
    unhealthy = _counted(short, lambda reason: reason in _UNHEALTHY)
    tainted = _counted(short, lambda reason: reason.startswith(_TAINT))
    sliced = short.slices is not None and bool(short.per_host)  # there is room for pods, if not for a slice
    if short.capacity_total == 0 and not sliced and not short.exclusions.get("too small", 0):
        return _nothing_eligible(short, unhealthy=unhealthy, tainted=tainted)
    if _possible(short, unhealthy + tainted) < short.count:
        if short.capacity_total == 0 and not sliced:
            return Never("HostTooSmall", _host_too_small(short))
        return Never("GangTooLarge", _too_large(short, away=unhealthy + tainted))
    reason: Code = "NodesUnhealthy" if unhealthy >= tainted else "NodesExcluded"
    return Waits(reason, f"{_needed(short)}; {_nodes(short)}")


def _used_up(short: Shortfall) -> Waits:
    if short.level is not None and short.total_slots >= short.count:
        hint = ""
        if short.fits_level == WHOLE_TOPOLOGY:
            hint = "; without a required level it would fit now"
        elif short.fits_level is not None:
            hint = f"; one {plain(short.fits_level)} has room now"
        return Waits("Fragmented", _needed(short) + hint)
    gpus = short.limiting is not None and "gpu" in short.limiting
    reason: Code = "InsufficientFreeGPUs" if gpus else "InsufficientFreeHosts"
    return Waits(reason, f"{_needed(short, in_all=True)}; {_nodes(short)}")


def _nothing_eligible(short: Shortfall, *, unhealthy: int, tainted: int) -> Waits:
    unlabelled = _counted(short, lambda reason: reason.startswith(_NO_LABEL) or reason == "outside topology")
    chosen = _counted(short, lambda reason: reason in _CHOSEN)
    subject = f"needs {_amount(short)}{_together(short)}"
    if short.hosts <= 0:
        return Waits("LabelsMissing", f"{subject}; the topology has no nodes yet")
    if unlabelled and (short.domains == 0 or unlabelled > max(unhealthy, tainted + chosen)):
        return Waits("LabelsMissing", f"{subject}; {_nodes(short)}; the cluster's admin must label them")
    if short.exclusions.get(OUTSIDE_SELECTOR, 0) >= short.hosts:
        why = "the cluster's admin must label them or change the policy"
        return Waits("LabelsMissing", f"{subject}; no node is in the topology: {_nodes(short)}; {why}")
    reason: Code = "NodesUnhealthy" if unhealthy >= tainted + chosen and unhealthy else "NodesExcluded"
    return Waits(reason, f"{subject}; no node is left: {_nodes(short)}")


def _too_large(short: Shortfall, *, away: int) -> str:
    asked = _of_all(short, "pod")
    unit = short.gpus_per_pod or 1
    if short.gpus_per_pod:
        asked += f" x {plural(unit, 'GPU')} = {plural(short.count * unit, 'GPU')}"
    has = "has" if short.gpus_per_pod else "holds"
    possible = _possible(short, away)
    whole = possible if short.level is None else short.capacity_total + away * (short.per_host or 0)
    if short.level is None or whole < short.count:
        return f"{asked}{_sliced(short)}, but the whole topology {has} {whole * unit:,}; use fewer pods"
    level = plain(short.level)
    detail = ""
    if short.largest is not None:
        of_hosts = "" if short.level == names.HOST_LEVEL else f", {plural(short.largest[1], 'host')}"
        detail = f" ({plain(short.largest[0])}{of_hosts})"
    way_out = f"prefer {level}"
    if short.roomier is not None:
        way_out = f"require {plain(short.roomier[0])} (largest {short.roomier[1] * unit:,}) or {way_out}"
    largest = f"the largest {level} {has} {possible * unit:,}{detail}"
    return f"{asked} must share one {level}{_sliced(short)}, but {largest}; {way_out}"


def _host_too_small(short: Shortfall) -> str:
    if short.gpus_per_pod and short.host_gpus is not None and short.host_gpus < short.gpus_per_pod:
        asks = f"one pod asks for {plural(short.gpus_per_pod, 'GPU')}"
        if short.host_gpus == 0:
            return f"{asks} and no host has any"
        return f"{asks} and no host has more than {short.host_gpus}; use {short.host_gpus} per pod and more pods"
    if short.devices is not None and not short.gpus_per_pod and (short.limiting or "") in KOORDINATOR:
        return f"one pod asks for {short.devices.asked}, more than any host has; ask for less per pod"
    if short.too_big is not None:
        name, asked, most = short.too_big
        has = f"no host has more than {format_units(name, most)}" if most else "no host has any"
        return f"one pod asks for {plain(name)} {format_units(name, asked)} and {has}; ask for less per pod"
    return "no host has all that one pod asks for; ask for less per pod"


def _possible(short: Shortfall, away: int) -> int:
    if short.ceiling is not None:
        return max(short.ceiling, short.capacity_best)
    return short.capacity_best + away * (short.per_host or 0)


def _counted(short: Shortfall, belongs: Callable[[str], bool]) -> int:
    return sum(count for reason, count in short.exclusions.items() if belongs(reason))


def _by_host(short: Shortfall) -> bool:
    """One pod takes a whole host, so that people think in hosts."""
    return short.per_host == 1 and short.level != names.HOST_LEVEL


def _amount(short: Shortfall) -> str:
    if _by_host(short):
        return _of_all(short, "host")
    gpus = f" x {plural(short.gpus_per_pod, 'GPU')}" if short.gpus_per_pod else ""
    if short.devices is not None:
        gpus = f" x {short.devices.asked}"
    return f"room for {_of_all(short, 'pod')}{gpus}"


def _of_all(short: Shortfall, noun: str) -> str:
    """`4 hosts`, or `2 of 4 hosts` where so many are enough."""
    return plural(short.count, noun) if short.whole is None else f"{short.count:,} of {plural(short.whole, noun)}"


def _together(short: Shortfall) -> str:
    return (f" {_in_one(short.level)}" if short.level is not None else "") + _sliced(short)


def _sliced(short: Shortfall) -> str:
    return f", {short.slices[1]:,} at a time {_in_one(short.slices[0])}" if short.slices is not None else ""


def _in_one(level: str) -> str:
    return f"{'on' if level == names.HOST_LEVEL else 'in'} one {plain(level)}"


def _needed(short: Shortfall, *, in_all: bool = False) -> str:
    needs = f"needs {_amount(short)}{_together(short)}"
    room = "" if _by_host(short) else "room for "
    if short.level is None:
        have = f"{short.total_slots:,}" if short.total_slots else ("none" if _by_host(short) else "no pod")
        return f"{needs}; " + (f"{have} free" if _by_host(short) else f"there is room for {have}")
    total = f", {short.total_slots:,} in all" if in_all and short.best_slots < short.total_slots else ""
    looked = f"({plural(short.domains, plain(short.level))} looked at{total})"
    if short.best is None or short.best_slots <= 0:
        return f"{needs}; no {plain(short.level)} has {'a free host' if _by_host(short) else 'room for one'} {looked}"
    return f"{needs}; best is {plain(short.best)} with {room}{short.best_slots:,} {looked}"


def _nodes(short: Shortfall) -> str:
    """The nodes by what became of them; the counts add up."""
    groups = sorted(((count, reason) for reason, count in short.exclusions.items() if count > 0), key=_by_size)
    shown = [f"{count:,} {_in_words(reason)}" for count, reason in groups[:_MAX_GROUPS]]
    rest = sum(count for count, _ in groups[_MAX_GROUPS:])
    total = sum(count for count, _ in groups)
    if rest:
        shown.append(f"{rest:,} for other reasons")
    if short.hosts > total:
        shown.append(f"{short.hosts - total:,} with room")
    return f"{plural(max(short.hosts, total), 'node')} = {' + '.join(shown)}"


def _by_size(group: tuple[int, str]) -> tuple[int, str]:
    return (-group[0], group[1])


def _in_words(reason: str) -> str:
    if reason.startswith(_TAINT):
        return plain(f"with {reason}")
    if reason.startswith(_NO_LABEL):
        return plain(f"without label {reason.removeprefix(_NO_LABEL)}")
    return _IN_WORDS.get(reason) or plain(reason)
