"""What people read: where a gang went, what will happen to it, what is wrong with what they wrote.

Why a gang does not fit is told in `engine.shortfall`, the codes stand in `engine.api.reasons`; both are offered here
too.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.api.text import MAX_WARNING, fit, joined, plain, plural
from engine.outcomes import Never, Outcome, Placed, Waits


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
    text = f" in {' / '.join(plain(value) for value in first[:common])}" if common else ""
    if common < above:
        spread = len({tuple(path[: common + 1]) for path in paths})
        text += f" over {plural(spread, plain(levels[common]))}"
    return f"{text} ({hosts})"


def forecast(
    outcome: Outcome,
    *,
    instead: Placed | None = None,
    later: tuple[str, Outcome] | None = None,
    room: tuple[int, int] | None = None,
    groups: int = 1,
    suspended: bool = False,
) -> tuple[str, ...]:
    """Return the warnings that tell a user at submit time what will happen; each at most 120 characters.

    `instead`: where the gang would go if it preferred the level that it requires; `later`: when the level will be
    preferred, in words, and what would happen then; `room`: free hosts and hosts of the one domain that it goes to;
    `groups`: of how many equal gangs of its workload it is the first; `suspended`: by its user.
    """
    would = "resumed now it would" if suspended else "would"
    match outcome:
        case Placed():
            lines = [_would_place(outcome, room, would)]
        case Waits():
            lines = _clauses(f"{would} wait: {outcome.message}")
            if instead is not None:
                lines.append(f"topogate: with prefer-topology it would start now{_across(instead)}")
        case Never():
            lines = _clauses(f"{outcome.reason}: {outcome.message}")
            match later:
                case (when, Placed() as placed):
                    lines.append(f"topogate: {when}: it would start{_across(placed)}")
                case (when, Waits()):
                    lines.append(f"topogate: {when}: it waits for room then")
    if suspended:
        lines.insert(0, "topogate: stays suspended, and nothing is reserved for it, until you resume it")
    if groups > 1:
        lines.append(f"topogate: this is about the first of {groups:,} groups; each is a gang of its own")
    return tuple(fit(line, MAX_WARNING) for line in lines)


def _clauses(message: str) -> list[str]:
    """A message as one or two warnings, parted where a clause ends: a warning that is cut tells half a number."""
    lines = ["topogate: "]
    for clause in message.split("; "):
        longer = lines[-1] + ("" if lines[-1] == "topogate: " else "; ") + clause
        if len(longer) <= MAX_WARNING or lines[-1] == "topogate: ":
            lines[-1] = longer
        else:
            lines.append(f"topogate: {clause}")
    return lines[:2]


def _would_place(placed: Placed, room: tuple[int, int] | None, would: str) -> str:
    slots = [slot for pod_set in placed.pod_sets for slot in pod_set.slots]
    paths = [slot.domain for slot in slots]
    levels = tuple(placed.domains_used)
    pods = plural(sum(slot.count for slot in slots), "pod")
    of_sets = [
        f"{sum(slot.count for slot in one.slots):,} of {plain(one.name)}" for one in placed.pod_sets if one.slots
    ]
    where = _where(paths, levels)
    shared = {path[:-1] for path in paths}
    if room is not None and len(shared) == 1 and paths[0][:-1]:
        where = f" in {plain(paths[0][-2])} ({room[0]:,} of {plural(room[1], 'host')} free)"
    text = f"topogate: {would} place {pods}{where}"
    if len(of_sets) > 1:  # each has ranks of its own
        longer = f"topogate: {would} place {pods} ({joined(of_sets)}){where}"
        return fit(longer if len(longer) <= MAX_WARNING else text, MAX_WARNING)
    ranks = [bounds for slot in slots for bounds in slot.ranks or ()]
    last = max((last for _, last in ranks), default=0)
    if last and (longer := f"{text}, ranks 0-{last:,} in host order"):
        text = longer if len(longer) <= MAX_WARNING else text
    return fit(text, MAX_WARNING)


def _across(placed: Placed) -> str:
    paths = [slot.domain for pod_set in placed.pod_sets for slot in pod_set.slots]
    levels = tuple(placed.domains_used)
    for depth in range(len(levels)):
        domains = list(dict.fromkeys(path[: depth + 1] for path in paths))
        if len(domains) > 1:
            few = len(domains) <= 3  # noqa: PLR2004 - as many names as a line takes
            return " across " + (
                joined([domain[-1] for domain in domains]) if few else plural(len(domains), plain(levels[depth]))
            )
    return _where(paths, levels)
