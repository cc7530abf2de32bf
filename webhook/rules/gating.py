"""Adds and removes our gate, labels, annotations and variables, and the pod-group labels of other schedulers.

Sources: the conventions of kubernetes-sigs/scheduler-plugins (both spellings) and of Koordinator's gang annotations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from engine.api import names
from engine.api.pod import Pod, PodSpec
from engine.api.workload import PodSet, Workload
from engine.gang.annotations import AnnotationSource, own_source, pod_group_of, read_own_annotations
from engine.gang.validation import can_be_in_group
from engine.policy.model import Policy
from engine.resources.names import GPU_NAMES
from webhook.admission.patch import Edits, Path
from webhook.rules.devices import limited_containers


def templates(workload: Workload) -> Mapping[Path, PodSet]:
    """Return the templates of a workload by their path; of pod sets that share one, the first."""
    found: dict[Path, PodSet] = {}
    for pod_set in workload.pod_sets:
        found.setdefault(pod_set.path, pod_set)
    return found


def template_labels(pod_set: str = names.MAIN) -> Mapping[str, str]:
    """Return the labels of a managed template or pod of the pod set with that name."""
    return {names.MANAGED: "true", names.POD_SET: pod_set}


def add_gate(edits: Edits, root: Path = ()) -> None:
    """Add our gate to the pod or template at `root`, after those of others; an existing one keeps its position."""
    if not any(map(_is_our_gate, edits.get(*root, "spec", "schedulingGates") or ())):
        edits.append((*root, "spec", "schedulingGates"), {"name": names.GATE})


def remove_gate(edits: Edits, root: Path = ()) -> None:
    """Remove our gate, and no other."""
    edits.drop_items((*root, "spec", "schedulingGates"), _is_our_gate)


def mark(edits: Edits, root: Path = (), *, pod_set: str = names.MAIN, keep: bool = False) -> None:
    """Mark the pod or template at `root` as held: add the gate and the labels of `label`."""
    label(edits, root, pod_set=pod_set, keep=keep)
    add_gate(edits, root)


def label(edits: Edits, root: Path = (), *, pod_set: str = names.MAIN, keep: bool = False) -> None:
    """Label the pod or template at `root` as managed; with `keep` an existing pod set name stays."""
    for key, value in template_labels(pod_set).items():
        where = (*root, "metadata", "labels", key)
        if not (keep and key == names.POD_SET and edits.get(*where) is not None):
            edits.put(where, value)


def drop_annotations(edits: Edits, root: Path = (), *, keep: tuple[str, ...] = ()) -> None:
    """Remove our annotations from the object at `root`."""
    for key in names.MARK_ANNOTATIONS:
        if key not in keep:
            edits.drop((*root, "metadata", "annotations", key))


def drop_labels(edits: Edits, root: Path = (), *, keep: tuple[str, ...] = ()) -> None:
    """Remove our labels from the object at `root`."""
    for key in names.MARK_LABELS:
        if key not in keep:
            edits.drop((*root, "metadata", "labels", key))


def show_devices(edits: Edits, root: Path = (), *, policy: Policy) -> None:
    """Give containers at `root` that request GPUs by Koordinator's names the variables with the pod's GPUs and limits.

    The values come from our annotations, so that pods get them whose containers are fixed before they are placed. A
    variable of the user stays as it is. Those of ours that the policy does not want any more are removed.
    """
    wanted = _wanted_variables(policy)
    if len(wanted) < len(_VARIABLES):
        _drop_variables(edits, root, _VARIABLES.keys() - set(wanted))
    if not wanted:
        return
    limited = limited_containers(edits.document, root, policy=policy) if policy.gpu.hami.limits else {}
    for path, container in _containers(edits, root):
        env = container.get("env")
        listed = [one for one in env if isinstance(one, Mapping)] if isinstance(env, list) else []
        named = {name for one in listed if isinstance(name := one.get("name"), str)}
        fitting = limited.get(path[-2:], frozenset())
        if stale := [one["name"] for one in listed if _is_our_variable(one) and one["name"] in _LIMITS - fitting]:
            _drop_from(edits, path, stale)
        if _requests_gpus(container):
            fitting |= {names.VISIBLE_DEVICES_VARIABLE}
        for variable in wanted:
            if variable in fitting and variable not in named:
                edits.append((*path, "env"), _reference(variable))


def leave_variables(edits: Edits, root: Path) -> None:
    """Leave a variable of ours to the user whose own value was merged into it, as `kubectl apply` does by its name.

    The API server would refuse one with two sources.
    """
    for path, container in _containers(edits, root):
        env = container.get("env")
        for index, one in enumerate(env if isinstance(env, list) else ()):
            if not _is_our_variable(one):
                continue
            source = (*path, "env", index, "valueFrom")
            if len(one["valueFrom"]) > 1:
                edits.drop((*source, "fieldRef"))
            elif "value" in one:
                edits.drop(source)


def _wanted_variables(policy: Policy) -> tuple[str, ...]:
    """Return the variables that the policy wants in containers with GPUs, in the order in which they are added."""
    wanted = set() if policy.gpu.env == "none" else {names.VISIBLE_DEVICES_VARIABLE}
    if policy.gpu.hami.limits:
        wanted |= _LIMITS
    return tuple(variable for variable in _VARIABLES if variable in wanted)


def _drop_variables(edits: Edits, root: Path, unwanted: Collection[str]) -> None:
    """Remove these variables of ours from the containers at `root`."""
    for path, container in _containers(edits, root):
        env = container.get("env")
        if isinstance(env, list) and any(_is_our_variable(one) and one["name"] in unwanted for one in env):
            _drop_from(edits, path, unwanted)


def _drop_from(edits: Edits, path: Path, unwanted: Collection[str]) -> None:
    edits.drop_items((*path, "env"), lambda one: _is_our_variable(one) and one["name"] in unwanted)


def _containers(edits: Edits, root: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    for kind in _CONTAINERS:
        for index, container in enumerate(edits.get(*root, "spec", kind) or ()):
            if isinstance(container, Mapping):
                yield (*root, "spec", kind, index), container


def _requests_gpus(container: Mapping[str, Any]) -> bool:
    resources = container.get("resources")
    sides = resources.values() if isinstance(resources, Mapping) else ()
    return any(isinstance(side, Mapping) and not GPU_NAMES.isdisjoint(side) for side in sides)


def _is_our_variable(one: object) -> bool:
    """Return True for a variable from an annotation of ours, as we write it or as the API server completes it."""
    if not isinstance(one, Mapping) or (annotation := _VARIABLES.get(str(one.get("name")))) is None:
        return False
    source = one.get("valueFrom")
    reference = source.get("fieldRef") if isinstance(source, Mapping) else None
    return isinstance(reference, Mapping) and reference.get("fieldPath") == f"metadata.annotations['{annotation}']"


def _reference(variable: str) -> dict[str, Any]:
    path = f"metadata.annotations['{_VARIABLES[variable]}']"
    return {"name": variable, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


_CONTAINERS: Final = ("initContainers", "containers")
# Variable -> the annotation that it comes from.
_VARIABLES: Final[Mapping[str, str]] = {
    names.VISIBLE_DEVICES_VARIABLE: names.VISIBLE_DEVICES,
    names.GPU_MEMORY_LIMIT_VARIABLE: names.GPU_MEMORY_LIMIT,
    names.GPU_CORE_LIMIT_VARIABLE: names.GPU_CORE_LIMIT,
}
_LIMITS: Final = frozenset({names.GPU_MEMORY_LIMIT_VARIABLE, names.GPU_CORE_LIMIT_VARIABLE})


def drop_copied_group(edits: Edits, root: Path = ()) -> None:
    """Remove pod-group labels from the object at `root` if they are copies like the marks beside them.

    Beside marks they are no request (docs/concepts/admission.md), and without the marks they would become one.
    """
    if any(edits.get(*root, "metadata", "labels", key) is not None for key in (names.MANAGED, names.GANG)):
        for key in (names.POD_GROUP_NAME, names.POD_GROUP_MIN):
            edits.drop((*root, "metadata", "labels", key))


def drop_all(edits: Edits, root: Path = ()) -> None:
    """Remove our gate, labels, annotations and variables from the pod or template at `root`."""
    drop_marks(edits, root)
    _drop_variables(edits, root, _VARIABLES.keys())


def drop_marks(edits: Edits, root: Path = ()) -> None:
    """Remove our gate, labels and annotations from the pod or template at `root`."""
    drop_annotations(edits, root)
    drop_labels(edits, root)
    remove_gate(edits, root)


def forged(workload: Workload, *, held: bool, managed: bool) -> tuple[str, ...]:
    """Return the short names of forged marks on a new workload and its templates, which the first call removes.

    `held`: our suspension applies; `managed`: its templates are to carry our gate and labels.
    """
    carriers = [(workload.annotations, workload.labels, True)]
    carriers += [(one.template.annotations, one.template.labels, False) for one in templates(workload).values()]
    found: set[str] = set()
    for carried, labels, own in carriers:
        found |= {
            key for key in names.MARK_ANNOTATIONS if key in carried and not (own and held and key == names.HELD_BY)
        }
        kept = () if not managed else (names.REQUESTS_PLACEMENT,) if own else template_labels()
        found |= {key for key in names.MARK_LABELS if key in labels and key not in kept}
    gated = any(names.GATE in one.template.gates for one in workload.pod_sets)
    return (*sorted(key.partition("/")[2] for key in found), *(("the gate",) if gated and not managed else ()))


def restore(edits: Edits, root: Path, before: Any) -> None:
    """Reset our marks on the template at `root` to those of the old template `before`."""
    was = Edits({"was": before})
    for kind, keys in (("annotations", names.MARK_ANNOTATIONS), ("labels", names.MARK_LABELS)):
        for key in keys:
            value = was.get("was", "metadata", kind, key)
            if value is None:
                edits.drop((*root, "metadata", kind, key))
            else:
                edits.put((*root, "metadata", kind, key), value)
    if any(map(_is_our_gate, was.get("was", "spec", "schedulingGates") or ())):
        add_gate(edits, root)
    else:
        remove_gate(edits, root)
    restore_variables(edits, root, before)


def restore_variables(edits: Edits, root: Path, before: Any) -> None:
    """Reset our variables in the containers of the template at `root` to those of the old template `before`."""
    was = Edits({"was": before})
    for path, container in _containers(edits, root):
        env = was.get("was", *path[len(root) :], "env")
        stood = {one["name"]: one for one in filter(_is_our_variable, env if isinstance(env, list) else ())}
        now = container.get("env")
        have = {one["name"] for one in filter(_is_our_variable, now if isinstance(now, list) else ())}
        if have - stood.keys():
            _drop_from(edits, path, have - stood.keys())
        for variable, value in stood.items():
            if variable not in have:
                edits.append((*path, "env"), value)


def without_marks(template: Any) -> Any:
    """Return the template without our labels, annotations, gate, variables and without empty fields, to compare it."""
    if not isinstance(template, Mapping):
        return template or {}
    result = {key: value for key, value in template.items() if value is not None}
    metadata, spec = result.get("metadata"), result.get("spec")
    if isinstance(metadata, Mapping):
        kept = {key: value for key, value in metadata.items() if key not in ("annotations", "labels")}
        for kind, ours in (("annotations", names.MARK_ANNOTATIONS), ("labels", names.MARK_LABELS)):
            carried = metadata.get(kind)
            carried = carried if isinstance(carried, Mapping) else {}
            kept[kind] = {key: value for key, value in carried.items() if key not in ours}
        result["metadata"] = {key: value for key, value in kept.items() if value not in (None, {})}
    if isinstance(spec, Mapping):
        gates = spec.get("schedulingGates")
        others = [gate for gate in gates if not _is_our_gate(gate)] if isinstance(gates, list) else gates
        result["spec"] = {**{key: value for key, value in spec.items() if value is not None}, "schedulingGates": others}
        if not others:
            del result["spec"]["schedulingGates"]
        for kind in _CONTAINERS:
            if isinstance(listed := spec.get(kind), list):
                result["spec"][kind] = [_without_variables(one) for one in listed]
    return {key: value for key, value in result.items() if value != {}}


def _without_variables(container: Any) -> Any:
    env = container.get("env") if isinstance(container, Mapping) else None
    if not isinstance(env, list) or not any(map(_is_our_variable, env)):
        return container
    others = [one for one in env if not _is_our_variable(one)]
    return {**{key: value for key, value in container.items() if key != "env"}, **({"env": others} if others else {})}


def marked(spec: PodSpec, pod_set: str = names.MAIN) -> bool:
    """Return True if a template or pod carries exactly the marks that `mark` adds."""
    labels = template_labels(pod_set)
    return names.GATE in spec.gates and all(spec.labels.get(key) == value for key, value in labels.items())


def _is_our_gate(gate: object) -> bool:
    return isinstance(gate, Mapping) and gate.get("name") == names.GATE


# Pod-group keys on a pod of a gang by style: the path, and True for the gang's name, False for the minimum of pods.
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
_EVERY: Final = tuple(dict.fromkeys(path for marks in _STYLES.values() for path, _ in marks))


def label_gang(edits: Edits, *, gang: str, minimum: int, policy: Policy) -> None:
    """Add the policy's style of pod group to a pod of a gang, unless the user has set a group, in any style.

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
    """Return the request in the user's pod-group labels, as our annotations: a gang without a level, or none.

    The minimum is about the whole group, on whatever template it is; without one the workload is a gang by itself, and
    so are the replicas and pods of kinds that cannot be in a group.
    """
    sources = [own_source(workload)]
    sources += [AnnotationSource("", one.template.annotations, one.template.labels) for one in workload.pod_sets]
    found = dict(pod_group_of(sources, dialects=policy.annotations.dialects))
    if not found:
        return {}
    said = names.MIN_AVAILABLE in found or any(one.labels.get(names.SCHEDULER_PLUGINS_POD_GROUP) for one in sources)
    if not said or not can_be_in_group(workload):
        del found[names.POD_GROUP]
        if int(found.get(names.MIN_AVAILABLE, workload.slots)) >= workload.slots:
            found.pop(names.MIN_AVAILABLE, None)
    return {names.UNCONSTRAINED: "true", **found}


def requests_of_pod_labels(pod: Pod, policy: Policy) -> Mapping[str, str]:
    """Return the request in the pod-group keys of a new pod without a controller, as our annotations.

    Without a minimum, and without a PodGroup object that may have it, the keys say nothing: nobody knows when the group
    is whole.
    """
    dialects = policy.annotations.dialects
    if (pod.owner is not None and pod.owner.controller) or read_own_annotations(pod, dialects=dialects):
        return {}
    found = pod_group_of((own_source(pod),), dialects=dialects)
    said = names.MIN_AVAILABLE in found or pod.spec.labels.get(names.SCHEDULER_PLUGINS_POD_GROUP)
    return found if said else {}


def _is_name(path: Path) -> bool:
    return path[-1] in (names.POD_GROUP_NAME, names.SCHEDULER_PLUGINS_POD_GROUP, names.KOORDINATOR_GANG_NAME)
