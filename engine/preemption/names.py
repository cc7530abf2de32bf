"""Names of victims in sentences: in the reader's namespace by workload, elsewhere only how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from engine.api import names
from engine.api.text import join_and, plural, sanitize
from engine.preemption.victims import Victim

_MOST_NAMED: Final = 2
_MAX_NAME: Final = 40  # characters, as warnings have 120


def victims_text(victims: Sequence[Victim], *, namespace: str | None, limit: int = 1_000) -> str:
    """Return `job/x (8 pods, priority 0)` or `job/a and 2 gangs of other namespaces (24 pods, priorities -5 to 0)`.

    `namespace`: of the readers, who may not know what runs elsewhere; None: they may know everything. With more than
    `limit` characters fewer are named.
    """
    texts = [_text(victims, namespace, named) for named in range(_MOST_NAMED, -1, -1)]
    return next((text for text in texts if len(text) <= limit), texts[-1])


def _text(victims: Iterable[Victim], namespace: str | None, named: int) -> str:
    own, elsewhere = list[Victim](), list[Victim]()
    for one in victims:
        (own if namespace in (None, one.namespace) else elsewhere).append(one)
    parts = [victim_name(one, within=namespace) for one in own[:named]]
    if more := own[named:]:
        parts.append(plural(len(more), f"more {_noun(more)}" if named else _noun(more)))
    if elsewhere:
        noun, many = _noun(elsewhere), len(elsewhere) > 1
        where = "other namespaces" if many else "another namespace"
        parts.append(f"{f'{len(elsewhere):,} {noun}s' if many else f'a {noun}'} of {where}")
    return f"{join_and(parts)} ({_size([*own, *elsewhere])})"


def victim_name(victim: Victim, *, within: str | None) -> str:
    """Return a victim as `job/train`, with its replica group; with the namespace where that is not `within`."""
    group = "" if victim.group is None else f"[{sanitize(victim.group)}]"
    where = "" if victim.namespace == within else f"{sanitize(victim.namespace)}/"
    return f"{where}{sanitize(victim.kind.lower())}/{sanitize(victim.name, _MAX_NAME)}{group}"


def is_gang(victim: Victim) -> bool:
    """Return True for a gang, False for pods that Topogate does not manage."""
    return bool(victim.keys) or any(names.MANAGED in pod.spec.labels for pod in victim.pods)


def _noun(victims: Iterable[Victim]) -> str:
    return "gang" if all(map(is_gang, victims)) else "workload"


def _size(victims: Sequence[Victim]) -> str:
    low, high = min(one.priority for one in victims), max(one.priority for one in victims)
    priority = f"priority {low:,}" if low == high else f"priorities {low:,} to {high:,}"
    return f"{plural(sum(one.count for one in victims), 'pod')}, {priority}"
