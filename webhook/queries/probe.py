"""A gang that nobody has submitted: so many pods with so many GPUs, as a Job that asks for a level.

It is decoded, parsed and planned as a real one, so that an answer about it is the service's own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from engine.api import names
from engine.api.field import FieldError, render
from engine.api.text import quote
from engine.cache.state import ClusterState
from engine.decoding.workloads import job
from engine.gang.gang import Gang
from engine.resources.names import CORE, GPU, NVIDIA, WHOLE, is_gpu
from webhook.snapshot.snapshot import AnswerProblem

DEFAULT_GPUS: Final = 8
UID: Final = "probe"


def probe(
    view: ClusterState,
    *,
    pods: int,
    gpus: int,
    topology: str | None = None,
    require: str | None = None,
    prefer: str | None = None,
    namespace: str = "default",
    created: float = 0.0,
) -> Gang:
    """Return a gang of `pods` pods with `gpus` GPUs each, with the request as it is parsed; errors stay in it.

    `created`: when it begins to wait, which decides its place in the queue.
    """
    annotations = {
        names.TOPOLOGY: topology,
        names.REQUIRE: require,
        names.PREFER: prefer,
        names.UNCONSTRAINED: "true" if require is None and prefer is None else None,
    }
    workload = replace(job(_body(pods, _requests(view, gpus), annotations, namespace)), created=created)
    return view.gangs.as_reviewed(workload, view.request_of(workload))


def checked(gang: Gang) -> Gang:
    """Return the gang. Raises AnswerProblem if its request is wrong, or not managed in its namespace."""
    if gang.request.errors:
        raise AnswerProblem(_in_words(gang.request.errors[0]))
    if gang.request.ignored is not None:
        raise AnswerProblem(f"namespace {quote(gang.workload.namespace)} is not managed ({gang.request.ignored})")
    return gang


def _in_words(error: FieldError) -> str:
    """Return an error with the option that it is about, in place of the path of an object that nobody wrote."""
    options = {names.REQUIRE: "--require: ", names.PREFER: "--prefer: ", names.TOPOLOGY: "--topology: "}
    option = next((option for key, option in options.items() if f"[{key}]" in error.field), "")
    return option + render(error)


def _requests(view: ClusterState, gpus: int) -> dict[str, str]:
    """Return the requests of one pod, under the name that most hosts report their GPUs by."""
    if gpus <= 0:
        return {}
    vendors = view.policy.gpu.vendors
    found = view.capacity.hosts_by_resource()
    counts = {name: hosts for name, hosts in found.items() if is_gpu(name) or name in vendors}
    if not counts and view.capacity.reports(CORE):
        return {GPU: str(gpus * WHOLE)}
    name = max(counts, key=lambda one: (counts[one], one == NVIDIA, one)) if counts else NVIDIA
    return {name: str(gpus)}


def _body(pods: int, requests: dict[str, str], annotations: dict[str, str | None], namespace: str) -> dict[str, Any]:
    tolerations = [{"key": name, "operator": "Exists"} for name in requests]  # as ExtendedResourceToleration adds them
    container = {"name": "main", "resources": {"requests": requests, "limits": requests}}
    return {
        "metadata": {
            "name": UID,
            "namespace": namespace,
            "uid": UID,
            "annotations": {key: value for key, value in annotations.items() if value is not None},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "template": {"spec": {"tolerations": tolerations, "containers": [container]}},
        },
    }
