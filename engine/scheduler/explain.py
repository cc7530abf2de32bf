"""Explains outcomes in sentences: the hosts of a gang, a forecast, or the main reason why it waits.

Numbers are needed / have / best candidate; the rest are counts that add up to the total. Source: the rules in
docs/reference/messages.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from engine.api import names
from engine.api.reasons import Code
from engine.api.resources import format_units
from engine.api.text import MAX_WARNING, join_and, plural, sanitize, truncate_bytes
from engine.devices.hosts import DISAGREEING, NOT_UNDERSTOOD, UNHEALTHY
from engine.resources.names import KOORDINATOR, RDMA
from engine.resources.shape import CORDONED, EXCLUDED_BY, NODE_AFFINITY, NODE_SELECTOR, NOT_READY, TAINT, VOLUMES
from engine.scheduler.outcome import Never, Outcome, Placed, Waits
from engine.scheduler.shortfall import TOO_SMALL, WHOLE_TOPOLOGY, DeviceShortfall, Shortfall
from engine.topology.hyper_nodes import NO_HYPER_NODE, TWO_HYPER_NODES
from engine.topology.topology import NO_LABEL, OUTSIDE_SELECTOR


def how_near(devices: DeviceShortfall) -> str:
    """Return how many of one pod's devices the best host has free; empty if that adds no information."""
    if devices.gpus:
        if not devices.in_part and devices.free_in_all < devices.gpus:
            return ""
        whole = f"{plural(devices.free, 'whole GPU')} free" if devices.free else "no whole GPU free"
        rest = f" and {devices.in_part:,} used in part" if devices.in_part else ""
        return f"each pod needs {devices.asked} on one host; the best host has {whole}{rest}"
    if devices.freest is None:
        return ""
    return f"each pod needs {devices.asked}; no GPU has more than {devices.freest}% free"


def nobody_reports(names: Sequence[str], reported: Sequence[str]) -> str:
    """Return why a pod can never be scheduled: the scheduler needs a node that reports exactly this name."""
    which = join_and([sanitize(name) for name in names], "or")
    instead = f"; nodes report {join_and(reported)}" if reported else ""
    return f"no node reports {which}, so no pod that asks for it is ever scheduled{instead}"


def placed_text(count: int, paths: Sequence[Sequence[str]], levels: Sequence[str]) -> str:
    """Return `placed 16 pods in block-0 / rack-07 (4 hosts)` or `placed 24 pods in block-0 over 2 racks (6 hosts)`.

    `paths` are the domains of the slots, label values coarse to fine with the host last; `levels` their aliases.
    """
    return f"placed {plural(count, 'pod')}{_where(paths, levels)}"


def _where(paths: Sequence[Sequence[str]], levels: Sequence[str]) -> str:
    if not paths:
        return ""
    hosts = plural(len({tuple(path) for path in paths}), "host")
    above = len(levels) - 1
    if above == 0:
        return f" on {hosts}"
    first = paths[0]
    common = 0
    while common < above and all(path[common] == first[common] for path in paths):
        common += 1
    text = f" in {' / '.join(sanitize(value) for value in first[:common])}" if common else ""
    if common < above:
        spread = len({tuple(path[: common + 1]) for path in paths})
        text += f" over {plural(spread, sanitize(levels[common]))}"
    return f"{text} ({hosts})"


def forecast(
    outcome: Outcome,
    *,
    instead: Placed | None = None,
    later: tuple[str, Outcome] | None = None,
    groups: int = 1,
    suspended: bool = False,
    names_hosts: bool = True,
) -> tuple[str, ...]:
    """Return the warnings that forecast a placement at submit time; each at most 120 characters.

    `instead`: the outcome if the gang preferred the level that it requires; `later`: when the level will be preferred,
    in words, and the outcome then; `groups`: the number of equal gangs of its workload, this one being the first;
    `suspended`: by its user; `names_hosts`: also by name.
    """
    would = "if resumed now it would" if suspended else "would"
    match outcome:
        case Placed():
            lines = [_would_place(outcome, would)]
        case Waits():
            lines = _clauses(f"{would} wait: {outcome.message}")
            if instead is not None:
                lines.append(f"topogate: with prefer-topology it would start now{_across(instead, names_hosts)}")
        case Never():
            lines = _clauses(f"{outcome.reason}: {outcome.message}")
            match later:
                case (when, Placed() as placed):
                    lines.append(f"topogate: {when}: it would start{_across(placed, names_hosts)}")
                case (when, Waits()):
                    lines.append(f"topogate: {when}: it then waits for room")
    if suspended:
        lines.insert(0, "topogate: stays suspended, and nothing is reserved for it, until you resume it")
    if groups > 1:
        lines.append(f"topogate: this is the first of {groups:,} groups; each is a separate gang")
    return tuple(truncate_bytes(line, MAX_WARNING) for line in lines)


def _clauses(message: str) -> list[str]:
    """Return a message as one or two warnings, split at a clause: a truncated warning would show half a number."""
    lines = ["topogate: "]
    for clause in message.split("; "):
        longer = lines[-1] + ("" if lines[-1] == "topogate: " else "; ") + clause
        if len(longer) <= MAX_WARNING or lines[-1] == "topogate: ":
            lines[-1] = longer
        else:
            lines.append(f"topogate: {clause}")
    return lines[:2]


def _would_place(placed: Placed, would: str) -> str:
    slots = [slot for pod_set in placed.pod_sets for slot in pod_set.slots]
    paths = [slot.domain for slot in slots]
    levels = tuple(placed.domains_used)
    pods = plural(sum(slot.count for slot in slots), "pod")
    of_sets = [f"{one.count:,} of {sanitize(one.name)}" for one in placed.pod_sets if one.slots]
    where = _where(paths, levels)
    text = f"topogate: {would} place {pods}{where}"
    if len(of_sets) > 1:  # each pod set has its own ranks
        longer = f"topogate: {would} place {pods} ({join_and(of_sets)}){where}"
        return truncate_bytes(longer if len(longer) <= MAX_WARNING else text, MAX_WARNING)
    ranks = [bounds for slot in slots for bounds in slot.ranks or ()]
    last = max((last for _, last in ranks), default=0)
    if last and (longer := f"{text}, ranks 0-{last:,} in host order"):
        text = longer if len(longer) <= MAX_WARNING else text
    return truncate_bytes(text, MAX_WARNING)


def _across(placed: Placed, names_hosts: bool) -> str:
    paths = [slot.domain for pod_set in placed.pod_sets for slot in pod_set.slots]
    levels = tuple(placed.domains_used)
    for depth in range(len(levels)):
        domains = list(dict.fromkeys(path[: depth + 1] for path in paths))
        if len(domains) > 1:
            few = len(domains) <= 3 and (names_hosts or depth < len(levels) - 1)  # noqa: PLR2004 - what fits into a line
            return " across " + (
                join_and([domain[-1] for domain in domains]) if few else plural(len(domains), sanitize(levels[depth]))
            )
    return _where(paths, levels)


_MAX_GROUPS: Final = 6
_UNHEALTHY: Final = frozenset({CORDONED, NOT_READY, UNHEALTHY, NOT_UNDERSTOOD, DISAGREEING})
_CHOSEN: Final = frozenset({NODE_SELECTOR, NODE_AFFINITY, VOLUMES})  # by the pods
_IN_WORDS: Final = {
    NODE_SELECTOR: "outside its nodeSelector",
    NODE_AFFINITY: "outside its node affinity",
    VOLUMES: "out of reach of its volumes",
    OUTSIDE_SELECTOR: "outside the topology's nodeSelector",
}


def infeasible(short: Shortfall) -> Waits | Never:
    """Return the main reason why a gang does not fit, with its numbers.

    Never means that it would not fit even if every host of the topology were empty and healthy. Otherwise the empty
    cluster of healthy hosts decides: if the gang would fit there, the reason is what others use; if not, the missing
    nodes.
    """
    if short.unreported and short.hosts > 0:
        return Never("UnknownResource", nobody_reports(short.unreported, short.reported))
    answer = _infeasible(short)
    if isinstance(answer, Waits) and short.tolerate is not None:
        would = f"with a toleration for {sanitize(short.tolerate)} it would fit now"
        answer = replace(answer, message=f"{answer.message}; {would}")
    answer = replace(answer, shortage=short.shortage)
    return replace(answer, for_hosts=short.capacity_best < short.count) if isinstance(answer, Waits) else answer


def _infeasible(short: Shortfall) -> Waits | Never:
    if short.capacity_best >= short.count:
        return _used_up(short)
    unhealthy = _counted(short, lambda reason: reason in _UNHEALTHY)
    tainted = _counted(short, lambda reason: reason.startswith(TAINT))
    sliced = bool(short.slices and short.per_host)  # pods fit, but no whole slice does
    if short.capacity_total == 0 and not sliced and not short.exclusions.get(TOO_SMALL, 0):
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
            hint = f"; one {sanitize(short.fits_level)} has room now"
        return Waits("Fragmented", _needed(short) + hint)
    gpus = short.limiting is not None and "gpu" in short.limiting
    reason: Code = "InsufficientFreeGPUs" if gpus else "InsufficientFreeHosts"
    full = short.total_slots == 0 and short.hosts <= sum(short.exclusions.values())  # else slices alone find no room
    near = how_near(short.devices) if gpus and short.devices is not None and full else ""
    return Waits(reason, f"{_needed(short, in_all=True)}; {_nodes(short)}{f'; {near}' if near else ''}")


def _nothing_eligible(short: Shortfall, *, unhealthy: int, tainted: int) -> Waits:
    unlabelled = _counted(short, lambda reason: reason.startswith((NO_LABEL, NO_HYPER_NODE, TWO_HYPER_NODES)))
    chosen = _counted(short, lambda reason: reason in _CHOSEN)
    subject = f"needs {_amount(short)}{_constraints(short)}"
    if short.hosts <= 0:
        return Waits("LabelsMissing", f"{subject}; the topology has no nodes yet")
    if unlabelled and (short.domains == 0 or unlabelled > max(unhealthy, tainted + chosen)):
        by_labels = _counted(short, lambda reason: reason.startswith(NO_LABEL))
        mend = "label them" if by_labels else "change the HyperNodes"
        return Waits("LabelsMissing", f"{subject}; {_nodes(short)}; the cluster's admin must {mend}")
    if short.exclusions.get(OUTSIDE_SELECTOR, 0) >= short.hosts:
        why = "the cluster's admin must label them or change the policy"
        return Waits("LabelsMissing", f"{subject}; no node is in the topology: {_nodes(short)}; {why}")
    reason: Code = "NodesUnhealthy" if unhealthy >= tainted + chosen and unhealthy else "NodesExcluded"
    return Waits(reason, f"{subject}; no node is left: {_nodes(short)}")


def _too_large(short: Shortfall, *, away: int) -> str:
    asked = _of_all(short, "pod")
    scoped = short.devices is not None and short.devices.reported_only
    unit = 1 if scoped else short.gpus_per_pod or 1
    if scoped and short.devices is not None:
        asked += f" x {short.devices.asked}"
    elif short.gpus_per_pod:
        asked += f" x {plural(unit, 'GPU')} = {plural(short.count * unit, 'GPU')}"
    has = "has" if short.gpus_per_pod and not scoped else "holds"
    possible = _possible(short, away)
    whole = possible if short.level is None else short.capacity_total + away * (short.per_host or 0)
    if short.ceiling_total is not None:
        whole = max(short.ceiling_total, short.capacity_total)
    if short.level is None or whole < short.count:
        most = f"the whole topology {has} {whole * unit:,}"
        if short.slices and not whole:
            most = f"no {sanitize(short.slices[-1][0])} holds {short.slices[-1][1]:,}"
        return f"{asked}{_sliced(short)}, but {most}; {_fewer(short, whole)}"
    level = sanitize(short.level)
    detail = ""
    if short.largest is not None and _named(short):
        of_hosts = "" if short.level == names.HOST_LEVEL else f", {plural(short.largest[1], 'host')}"
        detail = f" ({sanitize(short.largest[0])}{of_hosts})"
    way_out = f"prefer {level}"
    if short.roomier is not None:
        way_out = f"require {sanitize(short.roomier[0])} (largest {short.roomier[1] * unit:,}) or {way_out}"
    if short.smaller_slice is not None:
        way_out = f"use slices of {short.smaller_slice:,} pods or {way_out}"
    largest = f"the largest {level} {has} {possible * unit:,}{detail}"
    return f"{asked} must share one {level}{_sliced(short)}, but {largest}; {way_out}"


def _fewer(short: Shortfall, whole: int) -> str:
    """Return what would make room in the whole topology, which holds `whole` pods, in whole slices if there are any."""
    if short.smaller_slice is not None:
        return f"use slices of {short.smaller_slice:,} pods{' or fewer pods' if whole else ''}"
    return "use smaller slices and fewer pods" if short.slices and not whole else "use fewer pods"


def _host_too_small(short: Shortfall) -> str:
    if short.gpus_per_pod and short.host_gpus is not None and short.host_gpus < short.gpus_per_pod:
        asks = f"one pod asks for {plural(short.gpus_per_pod, 'GPU')}"
        if short.host_gpus == 0:
            return f"{asks} and no host has any; ask the admin which nodes have some"
        return f"{asks} and no host has more than {short.host_gpus}; use {short.host_gpus} per pod and more pods"
    if short.devices is not None and short.devices.selected == 0:
        asks = f"one pod asks for {short.devices.asked} ({names.DEVICE_SELECTOR})"
        return f"{asks}, and no host's Device object reports so many with these labels; change or remove the annotation"
    if short.devices is not None and (short.devices.cards == 0 or (short.devices.cards and short.limiting == RDMA)):
        return _no_cards(short.devices)
    if short.devices is not None and short.devices.in_scope < short.devices.gpus and short.devices.scope:
        return _scope_too_small(short.devices)
    if short.devices is not None and not short.gpus_per_pod and (short.limiting or "") in KOORDINATOR:
        return f"one pod asks for {short.devices.asked}, more than any host has; ask for less per pod"
    if short.too_big is not None:
        name, asked, most = short.too_big
        has = f"no host has more than {format_units(name, most)}" if most else "no host has any"
        return f"one pod asks for {sanitize(name)} {format_units(name, asked)} and {has}; ask for less per pod"
    return "no host has all that one pod asks for; ask for less per pod"


def _no_cards(devices: DeviceShortfall) -> str:
    asks = f"one pod asks for {devices.asked} ({join_and(devices.wanted)})"
    if devices.cards:
        return f"{asks}, and no host has these devices together; ask for less per pod, or change the annotation"
    return f"{asks}, and no host's Device object reports such devices; change or remove the annotation"


def _scope_too_small(devices: DeviceShortfall) -> str:
    asks = f"one pod asks for {devices.asked} ({names.DEVICE_SCOPE})"
    if not devices.in_scope:
        return f"{asks}, and no host's Device object reports such scopes; remove the annotation"
    fewer = f"use {devices.in_scope} per pod and more pods, or " if devices.in_scope > 1 else ""
    return f"{asks}, and no host has more than {devices.in_scope} in one; {fewer}remove the annotation"


def _possible(short: Shortfall, away: int) -> int:
    if short.ceiling is not None:
        return max(short.ceiling, short.capacity_best)
    return short.capacity_best + away * (short.per_host or 0)


def _counted(short: Shortfall, belongs: Callable[[str], bool]) -> int:
    return sum(count for reason, count in short.exclusions.items() if belongs(reason))


def _by_host(short: Shortfall) -> bool:
    """Return True if one pod takes a whole host, so that messages count hosts."""
    return short.per_host == 1 and short.level != names.HOST_LEVEL


def _amount(short: Shortfall) -> str:
    if _by_host(short):
        return _of_all(short, "host")
    gpus = f" x {plural(short.gpus_per_pod, 'GPU')}" if short.gpus_per_pod else ""
    if short.devices is not None:
        gpus = f" x {short.devices.asked}"
    return f"room for {_of_all(short, 'pod')}{gpus}"


def _of_all(short: Shortfall, noun: str) -> str:
    """Return `4 hosts`, or `2 of 4 hosts` where so many are enough."""
    return plural(short.count, noun) if short.whole is None else f"{short.count:,} of {plural(short.whole, noun)}"


def _constraints(short: Shortfall) -> str:
    return (f" {_in_one(short.level)}" if short.level is not None else "") + _sliced(short)


def _sliced(short: Shortfall) -> str:
    layers = [f"{size:,} at a time {_in_one(level)}" for level, size in short.slices]
    return f", {join_and(layers)}" if layers else ""


def _named(short: Shortfall) -> bool:
    """Return True if the best domain may be named; a host that is not the gang's own only where the policy says so."""
    return short.names_hosts or short.level != names.HOST_LEVEL


def _in_one(level: str) -> str:
    return f"{'on' if level == names.HOST_LEVEL else 'in'} one {sanitize(level)}"


def _needed(short: Shortfall, *, in_all: bool = False) -> str:
    needs = f"needs {_amount(short)}{_constraints(short)}"
    before = "" if _by_host(short) else "room for "
    sliced = f"room for a slice of {plural(short.slices[0][1], 'pod')}" if short.slices else ""
    if short.level is None and sliced and not short.total_slots:
        return f"{needs}; there is no {sliced}"
    if short.level is None:
        have = f"{short.total_slots:,}" if short.total_slots else ("none" if _by_host(short) else "no pod")
        return f"{needs}; " + (f"{have} free" if _by_host(short) else f"there is room for {have}")
    total = f", {short.total_slots:,} in all" if in_all and short.best_slots < short.total_slots else ""
    searched = f"({plural(short.domains, sanitize(short.level))} looked at{total})"
    if short.best is None or short.best_slots <= 0:
        one = sliced or ("a free host" if _by_host(short) else "room for one")
        return f"{needs}; no {sanitize(short.level)} has {one} {searched}"
    best = f"best is {sanitize(short.best)} with" if _named(short) else f"the best {sanitize(short.level)} has"
    return f"{needs}; {best} {before}{short.best_slots:,} {searched}"


def _nodes(short: Shortfall) -> str:
    """Return the nodes grouped by their exclusion reason; the counts add up."""
    groups = sorted(((count, reason) for reason, count in short.exclusions.items() if count > 0), key=_by_size)
    shown = [f"{count:,} {_reason_text(reason)}" for count, reason in groups[:_MAX_GROUPS]]
    rest = sum(count for count, _ in groups[_MAX_GROUPS:])
    total = sum(count for count, _ in groups)
    if rest:
        shown.append(f"{rest:,} for other reasons")
    if short.hosts > total:
        shown.append(f"{short.hosts - total:,} with room")
    return f"{plural(max(short.hosts, total), 'node')} = {' + '.join(shown)}"


def _by_size(group: tuple[int, str]) -> tuple[int, str]:
    return (-group[0], group[1])


def _reason_text(reason: str) -> str:
    if reason.startswith(TAINT):
        return sanitize(f"with {reason}")
    if reason.startswith(NO_LABEL):
        return sanitize(f"without label {reason.removeprefix(NO_LABEL)}")
    if reason.startswith(EXCLUDED_BY):
        return reason
    return _IN_WORDS.get(reason) or sanitize(reason)
