"""Objects inside an object (the components of an AppWrapper): their pod sets are its pod sets.

A component of a registered kind is read by the entry of that kind, and that kind's name label identifies its pods. A
component of any other kind has the pod sets that are declared beside it, by the path to their template.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from engine.api.field import is_label_value
from engine.api.rank import MAX_NUMBER, Missing
from engine.api.text import shown
from engine.kinds.conditions import holds
from engine.kinds.expressions import number
from engine.kinds.paths import NodeError, Path, PathNode, PathScope, Steps, each, find, mapping_at, text_at
from engine.kinds.pod_sets import Found, cost, pod_sets_of
from engine.kinds.registry import Registry
from engine.kinds.schema import MAX_POD_SETS, Contained, KindEntry
from engine.kinds.structure import ParsedPodSet

_STEP: Final = re.compile(r"(?:^|\.)([A-Za-z_][-_A-Za-z0-9]{0,62})|\[([0-9]{1,4})\]", re.ASCII)
_MAX_STEPS: Final = 16
_MAX_NAME: Final = 63


def contained_pod_sets(entry: KindEntry, scope: PathScope, *, registry: Registry) -> Found:
    """Return the pod sets of the objects inside an object, and the faults."""
    assert entry.contains is not None
    pod_sets: list[ParsedPodSet] = []
    faults: list[NodeError] = []
    try:
        components = list(each(entry.contains.for_each, scope, limit=MAX_POD_SETS))
    except NodeError as fault:
        return (), [fault]
    for index, node in enumerate(components):
        try:
            found, wrong = _component(entry, entry.contains, PathScope(scope.root, node), index, registry=registry)
        except NodeError as fault:
            found, wrong = (), [fault]
        pod_sets += found
        faults += wrong
    if len(pod_sets) > MAX_POD_SETS:
        faults.append(NodeError(pod_sets[MAX_POD_SETS].steps, f"is one pod set too many; at most {MAX_POD_SETS}"))
    return tuple(pod_sets[:MAX_POD_SETS]), faults


def _component(entry: KindEntry, spec: Contained, scope: PathScope, index: int, *, registry: Registry) -> Found:
    inner = find(spec.object, scope)
    if inner is None:
        raise NodeError(scope.here.steps, "holds no object", kind="Required value")
    kind = registry.entry_of(mapping_at(inner))
    if kind is None or not kind.pod_sets:
        return _declared(entry, spec, scope, index), []
    root = PathNode(inner.value)
    inside = PathScope(root, root)
    creation = kind.gang.creation if kind.gang is not None else "all-at-once"
    overrides = kind.gang.overrides if kind.gang is not None else ()
    creation = next((one.creation for one in overrides if holds(one.when, inside)), creation)
    found, faults = pod_sets_of(kind, inside, creation=creation)
    groups = number(kind.gang.replicas, inside, {}) if kind.gang is not None and kind.gang.replicas else 1
    replicas = 1 if isinstance(groups, Missing) else groups
    label = kind.owner_labels.name
    name = find(Path(".metadata.name", ("metadata", "name"), whole=True), inside)
    owner = ((label, text_at(name)),) if label is not None and name is not None else ()
    return tuple(
        replace(
            one,
            name=_named(index, one.name, scope.here.steps),
            steps=(*inner.steps, *one.steps),
            selector=(*owner, *one.selector),
            count=min(one.count * replicas, MAX_NUMBER),
            minimum=min(one.minimum * replicas, MAX_NUMBER),
            total=min(one.total * replicas, MAX_NUMBER),
            counted=None if one.counted is None else (*inner.steps, *one.counted),
            # A rank within one of several replicas is no rank in the pod set.
            rank=one.rank if replicas == 1 else None,
        )
        for one in found
    ), [fault.inside(inner.steps, entry=registry.added(kind)) for fault in faults]


def _declared(entry: KindEntry, spec: Contained, scope: PathScope, index: int) -> tuple[ParsedPodSet, ...]:
    pod_sets = []
    for number_, node in enumerate(each(spec.declared, scope, limit=MAX_POD_SETS)):
        here = PathScope(scope.root, node)
        path = find(spec.path, here)
        if path is None:
            raise NodeError(node.steps, "needs the path of a pod template", kind="Required value")
        template = _template(text_at(path), path, scope.here)
        count = number(spec.count, here, {})
        pods = count if isinstance(count, int) else 0
        pod_sets.append(
            ParsedPodSet(
                name=_named(index, f"pods-{number_}", node.steps),
                steps=template.steps,
                template=mapping_at(template),
                count=pods,
                minimum=pods,
                total=pods,
                rank=None,
                selector=(),
                creation="all-at-once",
                replace=cost(entry, None, scope),
                beside=False,
            )
        )
    return tuple(pod_sets)


def _template(text: str, path: PathNode, component: PathNode) -> PathNode:
    """Return the node at a path that the object itself declares (`template.spec.template`)."""
    node, at, steps = component, 0, 0
    while at < len(text):
        step = _STEP.match(text, at)
        steps += 1
        if step is None or steps > _MAX_STEPS:
            raise NodeError(path.steps, f"must be a path such as template.spec.template; got {shown(text)}")
        at = step.end()
        node = _down(node, step[1], step[2], path, text)
    if node is component:
        raise NodeError(path.steps, "the path of a pod template is missing", kind="Required value")
    return node


def _down(node: PathNode, key: str | None, index: str | None, path: PathNode, text: str) -> PathNode:
    value = node.value
    if key is not None and isinstance(value, dict) and value.get(key) is not None:
        return PathNode(value[key], (*node.steps, key))
    if index is not None and isinstance(value, list) and int(index) < len(value) and value[int(index)] is not None:
        return PathNode(value[int(index)], (*node.steps, int(index)))
    raise NodeError(path.steps, f"not found in the object; got {shown(text)}")


def _named(index: int, name: str, steps: Steps) -> str:
    whole = f"{index}-{name}"
    if len(whole) > _MAX_NAME or not is_label_value(whole):
        raise NodeError(steps, f"the name of its pod set is longer than {_MAX_NAME} characters: {shown(whole)}")
    return whole
