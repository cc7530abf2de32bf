"""The requests that a policy makes for namespaces (`namespaces.defaults`): whose they are, and whether they can be met.

A default is written into what its users did not write themselves. One that nobody can meet is refused with the policy,
where levels are known, and is left out of workloads: it never stands against them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

from engine.api import names
from engine.api.field import FieldError, path_of
from engine.api.pod import PodSpec, Shape
from engine.api.schema import wrong
from engine.api.text import quote
from engine.api.workload import PodSet, Workload
from engine.gang.request import understand
from engine.policy.model import Policy
from engine.topology.topology import Topology

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
    return understand(job, policy=policy, topologies=topologies).errors
