"""Reads an installation with the caller's rights; what he may not read is part of the answer, never a failure.

Only a server that does not answer ends the reading. Nothing is written: the Jobs are created in a dry run.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol

import msgspec

from certs.ca_bundle import Configurations
from engine.api import names
from engine.api.duration import parse_time
from engine.api.objects import PROVISIONING_GROUP
from engine.cluster.client import ApiError, ApiFault, ApiUnavailable, KubeClient, object_path
from engine.cluster.election import Lease, LeaseWatch
from engine.cluster.lease import lease_of
from engine.cluster.server_version import server_version
from engine.decoding.wire import UNREADABLE
from engine.policy.model import Policy
from webhook.snapshot.connection import ConnectionProblem
from webhook.snapshot.granted_rights import NeededRight, granted_rights
from webhook.snapshot.installation import (
    ADMISSION_POLICIES,
    DEFINITION,
    SERVICE_PODS,
    DryRun,
    Installation,
    ReadObject,
    ReadyPage,
    certificates_are_mounted,
    installed_policy,
    ops_page,
)
from webhook.snapshot.live import no_answer
from webhook.snapshot.side_by_side import side_by_side

TIMEOUT: Final = (5.0, 10.0)
TRIAL_TIMEOUT: Final = (5.0, 30.0)  # several webhooks of others may take their time
_LATE: Final = "context deadline exceeded"  # what the API server says of a webhook with failurePolicy Fail
_ADMISSION: Final = "admissionregistration.k8s.io/v1"
_RESOURCES: Final[tuple[Configurations, ...]] = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_CONFIGURATIONS: Final = tuple(
    (resource, name) for name in (names.MUTATING_CONFIGURATION, names.POLICY_CONFIGURATION) for resource in _RESOURCES
)
_POLICY_RESOURCES: Final = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
_MOST_PAGES: Final = 10
_MOST_WAITED: Final = 15.0  # seconds for a renewal of the Lease


class NeededRights(Protocol):
    """Returns the rights that the service needs."""

    def __call__(self, policy: Policy, *, own_ca: bool) -> Sequence[NeededRight]:
        """Return them for the policy in force; `own_ca` tells whether the service has a CA of its own."""


def read_installation(
    api: KubeClient,
    *,
    namespace: str,
    try_in: str,
    needed: NeededRights,
    wall: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> Installation:
    """Return the installation in `namespace`; the dry runs are Jobs in `try_in`.

    Raises ConnectionProblem if the server does not answer, or does not know the caller.
    """
    try:
        version = server_version(api)
    except ApiFault as fault:
        if not isinstance(fault, ApiError) or fault.status == HTTPStatus.UNAUTHORIZED:
            raise ConnectionProblem(no_answer(api, fault)) from None
        version = ""

    def get(api_version: str, plural: str, name: str, *, within: str | None = None) -> ReadObject:
        return _object(api, object_path(api_version, plural, namespace=within, name=name))

    policy = get("v1", "configmaps", names.POLICY_NAME, within=namespace)
    last_good = get("v1", "configmaps", names.LAST_GOOD_POLICY_NAME, within=namespace)
    pods_path = object_path("v1", "pods", namespace=namespace)
    pods = _object(api, pods_path, query={"labelSelector": SERVICE_PODS, "limit": "50"})
    lease, renewed = _lease(api, namespace, wall=wall, pause=pause)
    deployment = get("apps/v1", "deployments", names.SERVICE_NAME, within=namespace)
    own_ca = not certificates_are_mounted(deployment)
    secret, bundle = _authority(api, namespace) if own_ca else (ReadObject(absent=True), b"")
    rights = needed(installed_policy(policy, last_good).policy, own_ca=own_ca)
    return Installation(
        namespace=namespace,
        taken=wall(),
        version=version,
        definition=get("apiextensions.k8s.io/v1", "customresourcedefinitions", DEFINITION),
        deployment=deployment,
        lease=lease,
        lease_renewed=renewed,
        secret=secret,
        bundle=bundle,
        configurations={(resource, name): get(_ADMISSION, resource, name) for resource, name in _CONFIGURATIONS},
        admission_policies={
            (plural, name): get(_ADMISSION, plural, name) for name in ADMISSION_POLICIES for plural in _POLICY_RESOURCES
        },
        policy=policy,
        last_good=last_good,
        rights=granted_rights(api, namespace, rights),
        pods=pods,
        pages=_pages(api, namespace, pods),
        provisioning=_object(api, f"/apis/{PROVISIONING_GROUP}"),
        tried_in=try_in,
        gang=_dry_run(api, try_in, level=names.AUTO),
        wrong=_dry_run(api, try_in, level=""),
    )


def _decoded(body: bytes) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except UNREADABLE:
        found = None
    if not isinstance(found, dict):
        raise ApiUnavailable("the answer is no object")
    return found


def _object(api: KubeClient, path: str, *, query: Mapping[str, str] | None = None) -> ReadObject:
    try:
        return ReadObject(_decoded(api.request("GET", path, query=query, timeout=TIMEOUT)))
    except ApiError as error:
        match error.status:
            case HTTPStatus.NOT_FOUND:
                return ReadObject(absent=True)
            case HTTPStatus.FORBIDDEN:
                return ReadObject()
        return ReadObject(why=str(error))
    except ApiFault as fault:
        return ReadObject(why=str(fault))


def _authority(api: KubeClient, namespace: str) -> tuple[ReadObject, bytes]:
    """Return the Secret of the CA without its data, and its certificates; its key is dropped here."""
    found = _object(api, object_path("v1", "secrets", namespace=namespace, name=names.CA_SECRET_NAME))
    if found.body is None:
        return found, b""
    data = found.body.get("data")
    text = data.get("ca.crt") if isinstance(data, dict) else None
    try:
        bundle = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except ValueError:
        bundle = b""
    return ReadObject({}), bundle


def _lease(
    api: KubeClient, namespace: str, *, wall: Callable[[], float], pause: Callable[[float], None]
) -> tuple[ReadObject, bool]:
    """Return the Lease and whether its holder renews it.

    The clocks of the holder and of this machine may differ: a Lease that looks too old is read again after its own
    duration, and is alive if it has changed.
    """
    path = object_path("coordination.k8s.io/v1", "leases", namespace=namespace, name=names.LEASE_NAME)
    found, watch = _object(api, path), LeaseWatch()
    lease = _readable_lease(found)
    left = watch.seconds_left(lease, 0.0)
    if lease is None or not left:
        return found, False
    if abs(wall() - (parse_time(lease.renewed) or 0.0)) < left:
        return found, True
    seconds = min(left, _MOST_WAITED)
    pause(seconds)
    again = _object(api, path)
    lease = _readable_lease(again)
    # Unchanged, it has lost just the seconds that have passed.
    return again, lease is not None and watch.seconds_left(lease, seconds) > left - seconds


def _readable_lease(found: ReadObject) -> Lease | None:
    try:
        return None if found.body is None else lease_of(found.body)
    except ValueError:
        return None


def _pages(api: KubeClient, namespace: str, pods: ReadObject) -> list[ReadyPage]:
    """Return what each replica says of itself, through the API server's proxy."""
    items = (pods.body or {}).get("items")
    listed = [one["metadata"]["name"] for one in items if _runs(one)] if isinstance(items, list) else []
    return side_by_side(partial(_page, api, namespace), sorted(listed)[:_MOST_PAGES])


def _runs(pod: Any) -> bool:
    match pod:
        case {"metadata": {"name": str()}, "status": {"phase": "Running", "podIP": str()}}:
            return True
    return False


def _page(api: KubeClient, namespace: str, pod: str) -> ReadyPage:
    path = ops_page(namespace, pod, "readyz")
    try:
        return ReadyPage(pod, ready=True, text=api.request("GET", path, timeout=TIMEOUT).decode(errors="replace"))
    except ApiError as error:
        if error.status == HTTPStatus.FORBIDDEN:
            return ReadyPage(pod, ready=False, forbidden=True)
        # Of a Status only the API server's own refusals have a reason; a page of the replica has none.
        return ReadyPage(pod, ready=False, why=error.message if error.reason else "")
    except ApiFault as fault:
        return ReadyPage(pod, ready=False, why=str(fault))


def _dry_run(api: KubeClient, namespace: str, *, level: str) -> DryRun:
    """Return the answer to a Job that requires a level, in a dry run: nothing is stored."""
    container = {"name": "main", "image": "topogate-verify", "resources": {"requests": {"cpu": "1m"}}}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "topogate-verify-", "annotations": {names.REQUIRE: level}},
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "completionMode": "Indexed",
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }
    path, began = object_path("batch/v1", "jobs", namespace=namespace), time.perf_counter()
    stored, refused, forbidden, late = None, "", False, False
    try:
        stored = _decoded(api.request("POST", path, query={"dryRun": "All"}, body=body, timeout=TRIAL_TIMEOUT))
    except ApiError as error:
        forbidden = error.status == HTTPStatus.FORBIDDEN and "cannot create resource" in error.message
        refused = error.message
        late = error.status == HTTPStatus.GATEWAY_TIMEOUT or _LATE in error.message
    except ApiFault as fault:
        refused, late = str(fault), True
    return DryRun(time.perf_counter() - began, stored=stored, refused=refused, forbidden=forbidden, late=late)
