"""Default requests of namespaces (`namespaces.defaults`): validated, and written into new workloads.

A default is written into what its users did not write themselves. One that nobody can meet is refused with the policy,
where levels are known, and is left out of workloads: it never stands against them.

Namespaces ask by the policy's `namespaces.defaults`. Pod-group labels of the user's own (dialect `pod-group`) ask for a
gang of no level; our own labels will stand beside them, and nobody could tell then who asked. Written, not imputed:
whoever reads the workload sees what is asked for it, and a later change of the policy moves nothing that exists. The
rules: docs/tasks/admin/policy.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final

from engine.api import names
from engine.api.field import FieldError, path_of, render
from engine.api.pod import PodSpec, Shape
from engine.api.schema import wrong
from engine.api.text import MAX_WARNING, quote, truncate_bytes
from engine.api.workload import PodSet, Workload
from engine.gang.annotations import AnnotationSource, own_source, read_annotations, unknown_keys
from engine.gang.exemption import exemption_reason
from engine.gang.request import parse_request
from engine.policy.model import Policy
from engine.topology.topology import Topology
from webhook.admission.reader import Reader
from webhook.admission.review import Review
from webhook.handlers.gating import requests_of_labels
from webhook.handlers.membership import parent_relation

_METADATA: Final = "metadata."


def requests_of(namespace: str, policy: Policy) -> Mapping[str, str]:
    """Return the annotations that workloads of a namespace get: of the first default that matches it."""
    for default in policy.namespaces.defaults:
        if any(fnmatchcase(namespace, pattern) for pattern in default.namespaces):
            return default.annotations
    return {}


def by_default(workload: Workload, policy: Policy) -> bool:
    """True for a workload that asks for what its namespace does, and for nothing else: its user need not know."""
    wanted = requests_of(workload.namespace, policy)
    asked = {key: value for key, value in workload.annotations.items() if key in names.REQUEST_KEYS}
    return bool(wanted) and asked == dict(wanted)


def default_errors(policy: Policy, topologies: Mapping[str, Topology]) -> Iterator[FieldError]:
    """Yield what is wrong with defaults that no workload could carry, given the topologies of the policy.

    What the text alone tells is refused when it is read (`engine.policy.rules`).
    """
    selectors = [spec.node_selector for spec in policy.topologies if spec.name in topologies] or [{}]
    for index, default in enumerate(policy.namespaces.defaults if topologies else ()):
        found = [_errors(default.annotations, selector, policy, topologies) for selector in selectors]
        for error in found[0] if all(found) else ():
            path = f"{path_of(('namespaces', 'defaults', index))}.{error.field.removeprefix(_METADATA)}"
            value = "" if error.value is None else f"{quote(error.value)}: "
            yield wrong(path, f"{value}{error.message}", kind=error.kind)


def _errors(
    annotations: Mapping[str, str], node_selector: Mapping[str, str], policy: Policy, topologies: Mapping[str, Topology]
) -> tuple[FieldError, ...]:
    """What is wrong with these annotations on a plain Job whose pods go to such nodes."""
    template = PodSpec(
        shape=Shape(requests=(("pods", 1),), node_selector=tuple(sorted(node_selector.items()))),
        limits=(),
        gates=(),
        labels={},
        annotations={},
        node_name="",
        scheduler_name=policy.schedulers[0],
        priority_class="",
        priority=None,
        runtime_class="",
        has_scheduling_group=False,
        deadline=False,
        unmodelled=(),
    )
    job = Workload(
        api_version="batch/v1",
        kind="Job",
        namespace="",
        name="",
        uid="",
        resource_version="",
        generation=0,
        labels={},
        annotations=annotations,
        pod_sets=(PodSet(names.MAIN, template, slots=1, total=1, remaining=1, ranked=True),),
        suspended=False,
        suspendable=True,
        started=False,
        finished=False,
        deleting=False,
        created=0.0,
        owner=None,
        aside=None,
    )
    return parse_request(job, policy=policy, topologies=topologies).errors


@dataclass(frozen=True, slots=True)
class Added:
    """The request annotations to write into a new workload, and warnings about those that are left out."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def added_requests(review: Review, workload: Workload, view: Reader, policy: Policy) -> Added:
    """Return what a new workload asks for besides: by labels of its user's own, else by the default of its namespace.

    None when it asks itself, or when it is not ours to place; a default that cannot be met is left out.
    """
    if review.operation != "CREATE":
        return Added()
    of_labels = requests_of_labels(workload, policy)
    wanted = of_labels or requests_of(review.namespace, policy)
    if not wanted or not _quiet(workload, view, policy):
        return Added()
    if not of_labels:
        asking = replace(workload, annotations={**workload.annotations, **wanted})
        found = parse_request(asking, policy=policy, topologies=view.topologies, own_namespace=view.own_namespace)
        if found.errors:
            error = found.errors[0]
            told = f"{error.field.removeprefix('metadata.')}: {render(error)}"
            return Added(
                warnings=(truncate_bytes(f"topogate: the policy's default is not applied: {told}", MAX_WARNING),)
            )
    return Added(wanted)


def _quiet(workload: Workload, view: Reader, policy: Policy) -> bool:
    """True for a workload that is ours to place and says nothing itself, right or wrong."""
    if workload.handling not in ("placed", "through") or workload.deleting:
        return False
    sources = [own_source(workload)]
    sources += [
        AnnotationSource(path_of((*one.path, "metadata")), one.template.annotations, one.template.labels)
        for one in workload.pod_sets
    ]
    marked = any(names.MANAGED in one.template.labels for one in workload.pod_sets)
    if marked or read_annotations(sources, dialects=policy.annotations.dialects) or any(unknown_keys(sources)):
        return False
    aside = exemption_reason(workload, policy=policy, own_namespace=view.own_namespace)
    return aside is None and parent_relation(workload, view, policy) == "alone"
