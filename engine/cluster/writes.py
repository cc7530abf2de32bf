"""Every write of the engine: one request each, with its preconditions and a typed result.

An expected answer of the API server is a result, not an exception: `Done` (with the object as it is now), `Gone` (no
such object, or another one of that name), `Conflict` (another writer was faster: read again), `Refused` (a repeated
request would get the same answer). Any other outcome (no answer, 429, 5xx, 401) raises ApiFault. Each function calls
`fence` right before the request; when it raises (`NotLeader`), nothing was written. Source of the answers:
docs/contributor/kubernetes-facts.md.

Templates are changed by a JSON Patch: a merge patch would replace a list whole, and can bind to a version alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from engine import metrics
from engine.api.field import json_pointer, path_of
from engine.api.names import (
    API_VERSION,
    ASKING_KEYS,
    FIELD_MANAGER,
    GATE,
    HELD_BY,
    HELD_BY_SUSPEND,
    LAST_GOOD_POLICY_NAME,
    PLACEMENT,
    PLACEMENTS,
    POLICY_KEY,
    REVISION,
)
from engine.api.objects import PROVISIONING_PLURAL, ProvisioningRequest
from engine.api.placement import Placement
from engine.api.pod import Pod
from engine.api.workload import TO_ANNOTATIONS, PodSet, Workload
from engine.cluster.client import (
    APPLY_PATCH,
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    ApiError,
    ApiFault,
    KubeClient,
    object_path,
)

Body = dict[str, Any]
Operations = list[Body]

Fence = Callable[[], None]

# Connect and read, seconds: a write that hangs must not outlive the lease by much (8 s).
TIMEOUT: Final = (2.0, 6.0)
# A repeated request fails the same way: a malformed or oversized object, missing rights, a policy, a validation error.
_REFUSALS: Final = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
_EVICTION_REFUSALS: Final = (*_REFUSALS, HTTPStatus.TOO_MANY_REQUESTS)  # the last one is a disruption budget's
# Only the server's text distinguishes a failed JSON Patch from a webhook that denies without naming a field.
_PATCH_FAILS: Final = "the server rejected our request due to an error in our request"
_MOST_TESTED: Final = 1024  # characters of an annotation: of a value that is too long to be valid, a record has a part
_OPTIONAL_SPEC: Final[Mapping[str, None]] = dict.fromkeys(("assignment", "gang", "group", "profile", "separation"))


class WriteRefused(ApiFault):
    """Raised by callers that cannot continue after a `Refused`."""


@dataclass(frozen=True, slots=True)
class Done:
    """The write succeeded; `body` is the object as the server answered it."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Gone:
    """There is no such object, or another one has its name."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The object has changed or exists already; the next event of the watch shows its state."""

    message: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The API server (validation, admission, rights) refuses the write; `causes` are (field, message)."""

    status: int
    message: str
    causes: tuple[tuple[str, str], ...] = ()

    @property
    def patch_fails(self) -> bool:
        """True when a test or a path of a JSON Patch failed: the object differs from the one that we know."""
        return (self.status, self.message, self.causes) == (HTTPStatus.UNPROCESSABLE_ENTITY, _PATCH_FAILS, ())


Result = Done | Gone | Conflict | Refused


def create_placement(api: KubeClient, namespace: str, body: Mapping[str, Any], *, fence: Fence) -> Result:
    """Create a Placement; `Conflict` when one of that name exists. The server drops a status sent along."""
    return _send(api, "POST", object_path(API_VERSION, PLACEMENTS, namespace=namespace), body, JSON, fence=fence)


def replace_placement_spec(
    api: KubeClient,
    placement: Placement,
    spec: Mapping[str, Any],
    *,
    owners: Sequence[Mapping[str, Any]] = (),
    fence: Fence,
) -> Result:
    """Write a whole new spec (request and assignment in one write), if the Placement has the known version.

    `owners`: the owner references to have from now on; with none it keeps those that it has.
    """
    known = {"uid": placement.uid, "resourceVersion": placement.resource_version}
    metadata: Body = {**known, "labels": placement.workload.labels}
    if owners:
        metadata["ownerReferences"] = owners
    # A merge keeps fields that it does not name: fields that the new spec leaves out are removed by name.
    whole: dict[str, Any] = {**_OPTIONAL_SPEC, **spec}
    if whole["gang"] is not None:
        whole["gang"] = {"relaxed": None, **whole["gang"]}
    body = {"metadata": metadata, "spec": whole}
    return _send(api, "PATCH", _placement(placement), body, MERGE_PATCH, fence=fence)


def patch_placement_status(api: KubeClient, placement: Placement, status: Mapping[str, Any], *, fence: Fence) -> Result:
    """Merge into a Placement's status (None removes a field); at any version, as the status is for people."""
    body = {"metadata": {"uid": placement.uid}, "status": status}
    return _send(api, "PATCH", _placement(placement) + "/status", body, MERGE_PATCH, fence=fence)


def label_placement(api: KubeClient, placement: Placement, *, fence: Fence) -> Result:
    """Write the labels of its workload to a Placement, at any version: earlier versions wrote none."""
    body = {"metadata": {"uid": placement.uid, "labels": placement.workload.labels}}
    return _send(api, "PATCH", _placement(placement), body, MERGE_PATCH, fence=fence)


def own_placement(
    api: KubeClient, placement: Placement, owners: Sequence[Mapping[str, Any]], *, fence: Fence
) -> Result:
    """Write the owner references of a Placement, at any version."""
    body = {"metadata": {"uid": placement.uid, "ownerReferences": owners}}
    return _send(api, "PATCH", _placement(placement), body, MERGE_PATCH, fence=fence)


def delete_placement(api: KubeClient, placement: Placement, *, fence: Fence) -> Result:
    """Delete a Placement, by its uid."""
    return _delete(api, _placement(placement), placement.uid, fence)


def resume_workload(
    api: KubeClient, workload: Workload, *, fence: Fence, placement: str | None = None, revision: int | None = None
) -> Result:
    """Resume a workload that we hold, and annotate its templates with its Placement.

    Without `placement` the templates are left alone. When the server keeps them fixed (a Job's on older ones, while
    startTime is set; a kind's own webhook) the request is repeated without them: the revision is only a lower bound.
    """
    if placement is not None:
        annotations = {PLACEMENT: placement} | ({} if revision is None else {REVISION: str(revision)})
        body = annotate_patch(workload, annotations)
        result = _send(api, "PATCH", _workload(workload), body, JSON_PATCH, fence=fence)
        if not isinstance(result, Refused):
            return result
        if result.patch_fails:
            return Conflict(result.message)
        if not concerns_templates(workload, tuple(field for field, _ in result.causes)):
            return result
    return _send(api, "PATCH", _workload(workload), resume_patch(workload), MERGE_PATCH, fence=fence)


def let_go_workload(api: KubeClient, workload: Workload, *, resume: bool, fence: Fence) -> Result:
    """Take our gate out of a workload's templates, and with `resume` resume it.

    When the server keeps the templates as they are, it is only resumed.
    """
    result = _send(api, "PATCH", _workload(workload), let_go_patch(workload, resume=resume), JSON_PATCH, fence=fence)
    if isinstance(result, Refused) and result.patch_fails:
        return Conflict(result.message)
    fields = tuple(field for field, _ in result.causes) if isinstance(result, Refused) else ()
    if not isinstance(result, Refused) or not resume or not concerns_templates(workload, fields):
        return result
    return resume_workload(api, workload, fence=fence)


def suspend_workload(api: KubeClient, workload: Workload, *, fence: Fence) -> Result:
    """Suspend a workload and record that we did; its controller removes the pods without counting failures."""
    return _send(api, "PATCH", _workload(workload), suspend_patch(workload), MERGE_PATCH, fence=fence)


def suspend_for_user(api: KubeClient, workload: Workload, *, fence: Fence) -> Result:
    """Suspend a workload as its user does: without our mark, so that it is not planned until it is resumed."""
    metadata = {**_version_known(workload), "annotations": {HELD_BY: None}}
    body = _merged(_set(workload, True), {"metadata": metadata})
    return _send(api, "PATCH", _workload(workload), body, MERGE_PATCH, fence=fence)


def release_pod(api: KubeClient, pod: Pod, body: Mapping[str, Any], *, fence: Fence) -> Result:
    """Send a release (`engine.gang.pin.release_patch`) to the pod with this uid; sent twice, it is `Done` twice."""
    pinned = {**body, "metadata": {**body.get("metadata", {}), "uid": pod.uid}}
    return _send(api, "PATCH", _pod(pod), pinned, STRATEGIC_MERGE_PATCH, fence=fence)


def free_pod(api: KubeClient, pod: Pod, *, fence: Fence) -> Result:
    """Take our gate off the pod with this uid, without placing it; sent twice, it is `Done` twice."""
    return release_pod(api, pod, {"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}, fence=fence)


def evict_pod(api: KubeClient, pod: Pod, *, fence: Fence) -> Result:
    """Evict the pod with this uid; `Refused` with status 429 when a disruption budget does not allow it now.

    It then terminates within its grace period; on a node that does not answer only when the node does.
    """
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    result = _send(api, "POST", _pod(pod) + "/eviction", body, JSON, fence=fence, refusals=_EVICTION_REFUSALS)
    # The uid is the only precondition: a conflict means that another pod has the name.
    return Gone() if isinstance(result, Conflict) else result


def delete_pod(api: KubeClient, pod: Pod, *, fence: Fence) -> Result:
    """Delete the pod with this uid without a grace period: its node is deleted."""
    return _delete(api, _pod(pod), pod.uid, fence, at_once=True)


def create_pod_template(api: KubeClient, namespace: str, body: Mapping[str, Any], *, fence: Fence) -> Result:
    """Create a PodTemplate; `Conflict` when one of that name exists."""
    return _send(api, "POST", object_path("v1", "podtemplates", namespace=namespace), body, JSON, fence=fence)


def delete_pod_template(api: KubeClient, namespace: str, name: str, *, fence: Fence) -> Result:
    """Delete the PodTemplate of a name that only we give."""
    return _delete(api, object_path("v1", "podtemplates", namespace=namespace, name=name), "", fence)


def create_provisioning_request(api: KubeClient, namespace: str, body: Mapping[str, Any], *, fence: Fence) -> Result:
    """Create a ProvisioningRequest, in the version that its body names; `Conflict` when one of that name exists."""
    path = object_path(body["apiVersion"], PROVISIONING_PLURAL, namespace=namespace)
    return _send(api, "POST", path, body, JSON, fence=fence)


def delete_provisioning_request(api: KubeClient, request: ProvisioningRequest, *, fence: Fence) -> Result:
    """Delete a ProvisioningRequest, by its uid."""
    path = object_path(request.api_version, PROVISIONING_PLURAL, namespace=request.namespace, name=request.name)
    return _delete(api, path, request.uid, fence)


def keep_policy(api: KubeClient, namespace: str, text: str, *, fence: Fence) -> Result:
    """Write the policy in force to the leader's own ConfigMap, created when it is missing."""
    path = object_path("v1", "configmaps", namespace=namespace, name=LAST_GOOD_POLICY_NAME)
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": LAST_GOOD_POLICY_NAME, "namespace": namespace},
        "data": {POLICY_KEY: text},
    }
    # Server-side apply creates by a name that RBAC can be bound to; forced, because it has no other owner.
    return _send(api, "PATCH", path, body, APPLY_PATCH, fence=fence, force=True)


def suspend_patch(workload: Workload) -> Body:
    """Return the merge patch that suspends a workload and records that we did; binds to the known version."""
    return _merged(
        _set(workload, True), {"metadata": {**_version_known(workload), "annotations": {HELD_BY: HELD_BY_SUSPEND}}}
    )


def resume_patch(workload: Workload) -> Body:
    """Return the merge patch that resumes a workload, and nothing else; binds to the known version."""
    return _merged(_set(workload, False), {"metadata": {**_version_known(workload), "annotations": {HELD_BY: None}}})


def annotate_patch(workload: Workload, annotations: Mapping[str, str]) -> Operations:
    """Return the JSON Patch that resumes a workload and annotates all its templates.

    Binds to the generation and the annotations of the request, not to the version: the workload's controller may note
    the suspension in the status at that very moment, which changes nothing that was decided on. To the version where no
    generations are counted. A test that fails is answered as invalid (422), in words.
    """
    operations = [*_tests(workload), *_resuming(workload)]
    for one in own_templates(workload):
        where = (*one.path, *(step for step in TO_ANNOTATIONS if step not in one.missing))
        added: Mapping[str, object] = annotations
        for step in reversed(one.missing):
            added = {step: added}
        operations += [
            {"op": "add", "path": json_pointer((*where, key)), "value": value} for key, value in added.items()
        ]
    return operations


def let_go_patch(workload: Workload, *, resume: bool) -> Operations:
    """Return the JSON Patch that takes our gate out of all templates, and with `resume` resumes the workload.

    Binds as `annotate_patch` does.
    """
    operations = [*_tests(workload), *(_resuming(workload) if resume else ())]
    for one in own_templates(workload):
        if GATE not in one.template.gates:
            continue
        where = json_pointer((*one.path, "spec", "schedulingGates"))
        if others := [{"name": name} for name in one.template.gates if name != GATE]:
            operations.append({"op": "replace", "path": where, "value": others})
        else:
            operations.append({"op": "remove", "path": where})
    return operations


def _tests(workload: Workload) -> Operations:
    counted = {"generation": workload.generation} if workload.generation else _version_known(workload)
    known = {"uid": workload.uid} | counted
    tested: list[tuple[tuple[str, ...], object]] = [(("metadata", field), value) for field, value in known.items()]
    # A change of annotations is no new generation.
    asked = {key: workload.annotations[key] for key in sorted(ASKING_KEYS.intersection(workload.annotations))}
    tested += [(("metadata", "annotations", key), text) for key, text in asked.items() if len(text) <= _MOST_TESTED]
    return [{"op": "test", "path": json_pointer(path), "value": value} for path, value in tested]


def _resuming(workload: Workload) -> Operations:
    assert workload.suspend_path is not None
    operations: Operations = [{"op": "add", "path": json_pointer(workload.suspend_path), "value": False}]
    if HELD_BY in workload.annotations:
        operations.append({"op": "remove", "path": json_pointer(("metadata", "annotations", HELD_BY))})
    return operations


def own_templates(workload: Workload) -> tuple[PodSet, ...]:
    """Return the pod sets with a template in the object itself that may be changed, one for each template."""
    if workload.handling == "through" or workload.templates_fixed:
        return ()  # they belong to another object, or cannot be changed
    return tuple({one.path: one for one in workload.pod_sets if one.templated}.values())


def concerns_templates(workload: Workload, fields: tuple[str, ...]) -> bool:
    """True when a refusal that names these fields may concern the templates: it names one of them, or no field."""
    paths = tuple(path_of(one.path) for one in own_templates(workload))
    return not fields or any(field.startswith(paths) for field in fields)


def _set(workload: Workload, suspended: bool) -> Body:
    assert workload.suspend_path is not None  # a kind without the field is held by its pods' gates alone
    return _nested(workload.suspend_path, suspended)


def _version_known(workload: Workload) -> Body:
    return {"uid": workload.uid, "resourceVersion": workload.resource_version}


def _nested(steps: tuple[str | int, ...], value: object) -> Body:
    *before, last = steps
    body: Body = {str(last): value}
    for step in reversed(before):
        body = {str(step): body}
    return body


def _merged(one: Body, other: Body) -> Body:
    result = dict(one)
    for key, value in other.items():
        held = result.get(key)
        result[key] = _merged(held, value) if isinstance(held, dict) and isinstance(value, dict) else value
    return result


def _delete(api: KubeClient, path: str, uid: str, fence: Fence, *, at_once: bool = False) -> Result:
    options: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
    }
    if uid:
        options["preconditions"] = {"uid": uid}
    if at_once:
        options["gracePeriodSeconds"] = 0
    result = _send(api, "DELETE", path, options, JSON, fence=fence)
    # The uid is the only precondition: a conflict means that another object has the name.
    return Gone() if isinstance(result, Conflict) else result


def _send(
    api: KubeClient,
    method: str,
    path: str,
    body: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    content_type: str,
    *,
    fence: Fence,
    force: bool = False,
    refusals: Collection[int] = _REFUSALS,
) -> Result:
    query = {} if method == "DELETE" else {"fieldManager": FIELD_MANAGER} | ({"force": "true"} if force else {})
    fence()
    result: Result | None = None
    try:
        result = Done(api.request(method, path, query=query, body=body, content_type=content_type, timeout=TIMEOUT))
    except ApiError as error:
        result = _result(error, refusals)
    finally:
        _count(_what(method, path), "Fault" if result is None else type(result).__name__)
    return result


def _count(what: str, result: str) -> None:
    """Count a write; the other results begin at 0 with it, as a series that begins at 1 shows no increase."""
    for one in ("Done", "Gone", "Conflict", "Refused", "Fault"):
        metrics.writes.labels(what, one).inc(1 if one == result else 0)


def _what(method: str, path: str) -> str:
    """Return method and resource, such as `PATCH pods` or `PATCH placements/status`: a closed set for any names."""
    resource, _, rest = path.partition("/namespaces/")[2].partition("/")[2].partition("/")
    subresource = rest.partition("/")[2]
    return f"{method} {resource}/{subresource}" if subresource else f"{method} {resource}"


def _result(error: ApiError, refusals: Collection[int]) -> Result:
    if error.status == HTTPStatus.NOT_FOUND:
        return Gone()
    if error.status == HTTPStatus.UNPROCESSABLE_ENTITY and any(field == "metadata.uid" for field, _ in error.causes):
        return Gone()
    if error.status == HTTPStatus.CONFLICT:
        return Conflict(error.message)
    if error.status in refusals:
        return Refused(error.status, error.message, error.causes)
    raise error


def _placement(placement: Placement) -> str:
    return object_path(API_VERSION, PLACEMENTS, namespace=placement.namespace, name=placement.name)


def _workload(workload: Workload) -> str:
    return object_path(workload.api_version, workload.resource, namespace=workload.namespace, name=workload.name)


def _pod(pod: Pod) -> str:
    return object_path("v1", "pods", namespace=pod.namespace, name=pod.name)
