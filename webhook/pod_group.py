"""Pod groups of other schedulers: the labels that tell them of a gang, and the labels by which a user asks for one.

Sources: the conventions of kubernetes-sigs/scheduler-plugins (both spellings) and of Koordinator's gang annotations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from engine.api import names
from engine.api.workload import Workload
from engine.gang.annotations import Source, asks_in_pod_group_labels, own_source
from engine.policy.model import Policy
from webhook.patch import Edits, Path

# What stands on a pod of a gang by style: the path, and True for the gang's name, False for how many pods make it.
_LABELS: Final[Path] = ("metadata", "labels")
_ANNOTATIONS: Final[Path] = ("metadata", "annotations")
_STYLES: Final[Mapping[str, tuple[tuple[Path, bool], ...]]] = {
    "coscheduling": (((*_LABELS, names.POD_GROUP_NAME), True), ((*_LABELS, names.POD_GROUP_MIN), False)),
    "scheduler-plugins": (((*_LABELS, names.SCHEDULER_PLUGINS_POD_GROUP), True),),
    "koordinator": (
        ((*_ANNOTATIONS, names.KOORDINATOR_GANG_NAME), True),
        ((*_ANNOTATIONS, names.KOORDINATOR_GANG_MIN), False),
    ),
    "none": (),
}
_COUNT: Final = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_EVERY: Final = tuple(dict.fromkeys(path for marks in _STYLES.values() for path, _ in marks))


def label_gang(edits: Edits, *, gang: str, minimum: int, policy: Policy) -> None:
    """Put the policy's style of pod group on a pod of a gang; a group of the user's own, in any style, stays alone.

    `minimum`: how many pods a scheduler may wait for.
    """
    style = _STYLES[policy.pod_group.labels]
    if not style:
        return
    named = {path: edits.get(*path) for path in _EVERY}
    own = all(value in (None, gang) for path, value in named.items() if _is_name(path))
    if not own or (not any(named[path] for path in named if _is_name(path)) and any(named.values())):
        return
    for path, is_name in style:
        edits.put(path, gang if is_name else str(minimum))


def requests_of_labels(workload: Workload, policy: Policy) -> Mapping[str, str]:
    """Return what pod-group labels of the user's ask for, in our words: a gang of no level; empty without any.

    The minimum counts where all pods are of one template: of several, each label speaks of the whole group.
    """
    sources = [own_source(workload)]
    sources += [Source("", one.template.annotations, one.template.labels) for one in workload.pod_sets]
    if not asks_in_pod_group_labels(sources, dialects=policy.annotations.dialects):
        return {}
    wanted = {names.UNCONSTRAINED: "true"}
    if len(workload.pod_sets) == 1:
        found = [source.labels[names.POD_GROUP_MIN] for source in sources if names.POD_GROUP_MIN in source.labels]
        if found and _COUNT.fullmatch(found[-1]) and int(found[-1]) < workload.slots:
            wanted[names.MIN_AVAILABLE] = found[-1]
    return wanted


def _is_name(path: Path) -> bool:
    return path[-1] in (names.POD_GROUP_NAME, names.SCHEDULER_PLUGINS_POD_GROUP, names.KOORDINATOR_GANG_NAME)
