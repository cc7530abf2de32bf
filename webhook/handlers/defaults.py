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
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from engine.api import names
from engine.api.field import FieldError, path_of, render
from engine.api.pod import PodSpec, Shape
from engine.api.schema import wrong
from engine.api.text import MAX_WARNING, quote, truncate_bytes
from engine.api.workload import PodSet, Workload
from engine.gang.annotations import AnnotationSource, own_source, read_annotations, unknown_keys
from engine.gang.exemption import exemption_reason
from engine.gang.request import PlacementRequest, parse_request
from engine.policy.model import Policy
from engine.topology.topology import Topology
from webhook.admission.objects import decoded, workload_of
from webhook.admission.patch import Edits
from webhook.admission.reader import Reader
from webhook.admission.review import Response, Review
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
class Asking:
    """The review of a new workload with the requests that are written into it, the edits that put them there, and
    what to tell its user of those that are not.
    """

    review: Review
    edits: Edits | None = None
    warnings: tuple[str, ...] = ()

    def answer(self, response: Response) -> Response:
        """Return the answer to this review as one to the review that came."""
        response = replace(response, warnings=(*self.warnings, *response.warnings))
        if self.edits is None:
            return response
        document = self.edits.document if response.document is None else response.document
        return replace(response, patch=(*self.edits.operations, *response.patch), document=document)


def with_defaults(review: Review, view: Reader, policy: Policy) -> Asking:
    """Return the review of a new workload with such requests in it.

    As it is when there are none, when the workload asks itself, or when it is not ours to place; a default of its
    namespace that cannot be met is left out. Raises Unreadable and BadReview as `workload_of` does.
    """
    if review.operation != "CREATE":
        return Asking(review)
    workload = workload_of(review, review.object, view)
    of_labels = requests_of_labels(workload, policy)
    wanted = of_labels or requests_of(review.namespace, policy)
    if not wanted or not _quiet(workload, view, policy):
        return Asking(review)
    document = decoded(review.object)
    edits = Edits(document)
    for key, value in wanted.items():
        edits.put(("metadata", "annotations", key), value)
    asking = replace(review, object=msgspec.Raw(msgspec.json.encode(edits.document)))
    if not of_labels and (errors := _understood(asking, view, policy).errors):
        told = f"{errors[0].field.removeprefix('metadata.')}: {render(errors[0])}"
        return Asking(
            review, warnings=(truncate_bytes(f"topogate: the policy's default is not applied: {told}", MAX_WARNING),)
        )
    return Asking(asking, edits)


def _understood(review: Review, view: Reader, policy: Policy) -> PlacementRequest:
    workload = workload_of(review, review.object, view)
    return parse_request(workload, policy=policy, topologies=view.topologies, own_namespace=view.own_namespace)


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
