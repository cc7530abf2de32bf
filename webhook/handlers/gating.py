"""Adds and removes scheduling gate, labels and annotations, those of other schedulers' pod groups included.

Sources: the conventions of kubernetes-sigs/scheduler-plugins (both spellings) and of Koordinator's gang annotations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from engine.api import names
from engine.api.pod import PodSpec
from engine.api.workload import PodSet, Workload
from engine.gang.annotations import AnnotationSource, asks_in_pod_group_labels, own_source
from engine.policy.model import Policy
from webhook.admission.patch import Edits, Path

ANNOTATIONS: Final = (names.HELD_BY, names.PLACEMENT, names.REVISION, names.DOMAIN_PATH, names.RANK)
LABELS: Final = (names.MANAGED, names.POD_SET, names.GANG)


def templates(workload: Workload) -> Mapping[Path, PodSet]:
    """The templates of a workload by their path; of pod sets that share one the first stands for all."""
    found: dict[Path, PodSet] = {}
    for pod_set in workload.pod_sets:
        found.setdefault(pod_set.path, pod_set)
    return found


def template_labels(pod_set: str = names.MAIN) -> Mapping[str, str]:
    """The labels of a managed template or pod of the pod set of that name."""
    return {names.MANAGED: "true", names.POD_SET: pod_set}


def add_gate(edits: Edits, root: Path = ()) -> None:
    """Put our gate on the pod or template at `root`, beside those of others; one that is there stays where it is."""
    if not any(map(_ours, edits.get(*root, "spec", "schedulingGates") or ())):
        edits.append((*root, "spec", "schedulingGates"), {"name": names.GATE})


def remove_gate(edits: Edits, root: Path = ()) -> None:
    """Take our gate off, and nobody else's."""
    edits.drop_items((*root, "spec", "schedulingGates"), _ours)


def mark(edits: Edits, root: Path = (), *, pod_set: str = names.MAIN, keep: bool = False) -> None:
    """Mark the pod or template at `root` as one that we hold: gate and labels, as `label` does."""
    label(edits, root, pod_set=pod_set, keep=keep)
    add_gate(edits, root)


def label(edits: Edits, root: Path = (), *, pod_set: str = names.MAIN, keep: bool = False) -> None:
    """Label the pod or template at `root` as a managed one; with `keep` the name of a pod set that is there stays."""
    for key, value in template_labels(pod_set).items():
        where = (*root, "metadata", "labels", key)
        if not (keep and key == names.POD_SET and edits.get(*where) is not None):
            edits.put(where, value)


def drop_annotations(edits: Edits, root: Path = (), *, keep: tuple[str, ...] = ()) -> None:
    """Take our annotations off the object at `root`."""
    for key in ANNOTATIONS:
        if key not in keep:
            edits.drop((*root, "metadata", "annotations", key))


def drop_labels(edits: Edits, root: Path = (), *, keep: tuple[str, ...] = ()) -> None:
    """Take our labels off the object at `root`."""
    for key in LABELS:
        if key not in keep:
            edits.drop((*root, "metadata", "labels", key))


def drop_copied_group(edits: Edits, root: Path = ()) -> None:
    """Take the labels of a pod group off the object at `root` where they stand beside our marks: copies as those are.

    They are no request there (docs/concepts/admission.md), and without the marks they would become one.
    """
    if any(edits.get(*root, "metadata", "labels", key) is not None for key in (names.MANAGED, names.GANG)):
        for key in (names.POD_GROUP_NAME, names.POD_GROUP_MIN):
            edits.drop((*root, "metadata", "labels", key))


def drop_all(edits: Edits, root: Path = ()) -> None:
    """Take everything of ours off the pod or template at `root`."""
    drop_annotations(edits, root)
    drop_labels(edits, root)
    remove_gate(edits, root)


def forged(workload: Workload, *, held: bool, managed: bool) -> tuple[str, ...]:
    """The names, short, of our marks on a new workload and its templates that come off again; a first call finds them.

    `held`: our suspension stands; `managed`: its templates are to carry our gate and labels.
    """
    carriers = [(workload.annotations, workload.labels, True)]
    carriers += [(one.template.annotations, one.template.labels, False) for one in templates(workload).values()]
    found: set[str] = set()
    for said, labels, own in carriers:
        found |= {key for key in ANNOTATIONS if key in said and not (own and held and key == names.HELD_BY)}
        found |= {key for key in LABELS if key in labels and (own or not managed or key == names.GANG)}
    gated = any(names.GATE in one.template.gates for one in workload.pod_sets)
    return (*sorted(key.partition("/")[2] for key in found), *(("the gate",) if gated and not managed else ()))


def restore(edits: Edits, root: Path, before: Any) -> None:
    """Put our marks on the template at `root` back as `before`, the template as it was, has them."""
    was = Edits({"was": before})
    for kind, keys in (("annotations", ANNOTATIONS), ("labels", LABELS)):
        for key in keys:
            value = was.get("was", "metadata", kind, key)
            if value is None:
                edits.drop((*root, "metadata", kind, key))
            else:
                edits.put((*root, "metadata", kind, key), value)
    if any(map(_ours, was.get("was", "spec", "schedulingGates") or ())):
        add_gate(edits, root)
    else:
        remove_gate(edits, root)


def without_marks(template: Any) -> Any:
    """A template without our marks, and without what says nothing: two that are equal differ in marks alone."""
    if not isinstance(template, Mapping):
        return template or {}
    result = {key: value for key, value in template.items() if value is not None}
    metadata, spec = result.get("metadata"), result.get("spec")
    if isinstance(metadata, Mapping):
        kept = {key: value for key, value in metadata.items() if key not in ("annotations", "labels")}
        for kind, ours in (("annotations", ANNOTATIONS), ("labels", LABELS)):
            said = metadata.get(kind)
            said = said if isinstance(said, Mapping) else {}
            kept[kind] = {key: value for key, value in said.items() if key not in ours}
        result["metadata"] = {key: value for key, value in kept.items() if value not in (None, {})}
    if isinstance(spec, Mapping):
        gates = spec.get("schedulingGates")
        others = [gate for gate in gates if not _ours(gate)] if isinstance(gates, list) else gates
        result["spec"] = {**{key: value for key, value in spec.items() if value is not None}, "schedulingGates": others}
        if not others:
            del result["spec"]["schedulingGates"]
    return {key: value for key, value in result.items() if value != {}}


def marked(spec: PodSpec, pod_set: str = names.MAIN) -> bool:
    """True when a template or pod carries exactly the marks that `mark` puts on."""
    labels = template_labels(pod_set)
    return names.GATE in spec.gates and all(spec.labels.get(key) == value for key, value in labels.items())


def _ours(gate: object) -> bool:
    return isinstance(gate, Mapping) and gate.get("name") == names.GATE


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
    sources += [AnnotationSource("", one.template.annotations, one.template.labels) for one in workload.pod_sets]
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
