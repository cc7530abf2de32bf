"""Default requests of namespaces (`namespaces.defaults`): validated, and written into new workloads.

A default applies to workloads without a request. A default that can never be met is refused with the policy,
where levels are known, and is not applied to workloads, so that it never blocks them.

Pod-group labels of the user (dialect `pod-group`) are a request too, for a gang without a level: our own labels will be
beside them, and their origins could not be distinguished later. Requests are written, not imputed: every reader of the
workload sees its request, and a later change of the policy does not affect existing objects. The rules:
docs/tasks/admin/policy.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from engine.api import names
from engine.api.field import FieldError, path_of, render
from engine.api.pod import PodSpec, Shape
from engine.api.schema import in_order, wrong
from engine.api.text import MAX_WARNING, quote, truncate_bytes
from engine.api.workload import PodSet, Workload
from engine.gang.annotations import NATIVE_DIALECT, AnnotationSource, own_source, read_annotations, unknown_keys
from engine.gang.exemption import exemption_reason
from engine.gang.request import parse_request
from engine.policy.model import Policy
from engine.policy.namespaces import level_errors, rule_of
from engine.policy.patterns import first_for_all, matches
from engine.topology.topology import Topology
from webhook.admission.reader import Reader
from webhook.admission.review import Review
from webhook.rules.gating import requests_of_labels
from webhook.rules.membership import parent_relation

_METADATA: Final = "metadata."


def requests_of(namespace: str, policy: Policy) -> Mapping[str, str]:
    """Return the annotations that workloads of a namespace get: those of the first default that matches it.

    None where the policy allows no requests, or does not read them.
    """
    if NATIVE_DIALECT not in policy.annotations.dialects:
        return {}
    rule = rule_of(namespace, policy)
    if rule is not None and not rule.rule.allow:
        return {}
    for default in policy.namespaces.defaults:
        if matches(namespace, default.namespaces):
            return default.annotations
    return {}


def by_default(workload: Workload, policy: Policy) -> bool:
    """Return True if the workload has exactly its namespace's default request, which its user may not know."""
    wanted = requests_of(workload.namespace, policy)
    asked = {key: value for key, value in workload.annotations.items() if key in names.REQUEST_KEYS}
    return bool(wanted) and asked == dict(wanted)


def default_errors(policy: Policy, topologies: Mapping[str, Topology]) -> Iterator[FieldError]:
    """Yield the errors of defaults that are invalid for every workload, given the topologies of the policy.

    Errors in the text alone are refused when the policy is parsed (`engine.policy.rules`).
    """
    selectors = [spec.node_selector for spec in policy.topologies if spec.name in topologies] or [{}]
    rules = [rule.namespaces for rule in policy.namespaces.rules]
    for index, default in enumerate(policy.namespaces.defaults if topologies else ()):
        for pattern in default.namespaces:
            # A rule with a pattern that covers this one matches it as it matches a name.
            namespace = pattern if first_for_all(pattern, rules) is not None else ""
            found = [_errors(namespace, default.annotations, one, policy, topologies) for one in selectors]
            for error in found[0] if all(found) else ():
                path = f"{path_of(('namespaces', 'defaults', index))}.{error.field.removeprefix(_METADATA)}"
                value = "" if error.value is None else f"{quote(error.value)}: "
                yield wrong(path, f"{value}{error.message}", kind=error.kind)


def policy_errors(policy: Policy, topologies: Mapping[str, Topology]) -> tuple[FieldError, ...]:
    """Return the errors of a policy that depend on its topologies, in path order."""
    return in_order([*default_errors(policy, topologies), *level_errors(policy, topologies)])


def _errors(
    namespace: str,
    annotations: Mapping[str, str],
    node_selector: Mapping[str, str],
    policy: Policy,
    topologies: Mapping[str, Topology],
) -> tuple[FieldError, ...]:
    """Return the errors of these annotations on a plain Job with pods on such nodes."""
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
        namespace=namespace,
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
        managed_elsewhere=None,
    )
    return parse_request(job, policy=policy, topologies=topologies).errors


@dataclass(frozen=True, slots=True)
class Added:
    """The request annotations to write into a new workload, and warnings about those that are left out."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def added_requests(review: Review, workload: Workload, view: Reader, policy: Policy) -> Added:
    """Return the request to add to a new workload: that of its user's pod-group labels, else its namespace's default.

    Empty if the workload has a request, or is not ours to place; a default that cannot be met is left out.
    """
    if review.operation != "CREATE":
        return Added()
    of_labels = requests_of_labels(workload, policy)
    wanted = of_labels or requests_of(review.namespace, policy)
    if not wanted or not _has_no_request(workload, view, policy):
        return Added()
    if not of_labels:
        asking = replace(workload, annotations={**workload.annotations, **wanted})
        found = parse_request(asking, policy=policy, topologies=view.topologies, own_namespace=view.own_namespace)
        if found.errors:
            error = found.errors[0]
            reason = f"{error.field.removeprefix('metadata.')}: {render(error)}"
            return Added(
                warnings=(truncate_bytes(f"topogate: the policy's default is not applied: {reason}", MAX_WARNING),)
            )
    return Added(wanted)


def _has_no_request(workload: Workload, view: Reader, policy: Policy) -> bool:
    """Return True for a workload that is ours to place and has no request itself, valid or not."""
    if workload.handling not in ("placed", "through") or workload.deleting:
        return False
    if workload.handling == "placed" and not workload.pod_sets:
        return False  # nothing of it could be placed
    sources = [own_source(workload)]
    sources += [
        AnnotationSource(path_of((*one.path, "metadata")), one.template.annotations, one.template.labels)
        for one in workload.pod_sets
    ]
    if read_annotations(sources, dialects=policy.annotations.dialects) or any(unknown_keys(sources)):
        return False
    exempt = exemption_reason(workload, policy=policy, own_namespace=view.own_namespace) is not None
    return not exempt and parent_relation(workload, view, policy) == "root"
