"""Reads what a bundle holds, with the caller's own rights; what cannot be read is told, and stops nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from engine.api import names
from engine.api.text import sanitize
from engine.cluster.client import TIMEOUT, ApiError, ApiFault, KubeClient, object_path
from webhook.bundle import excerpts
from webhook.bundle.excerpts import Json
from webhook.snapshot.connection import fault_text
from webhook.snapshot.installation import ADMISSION_POLICIES, DEFINITION, SERVICE_PODS, ops_page, service_container
from webhook.snapshot.side_by_side import side_by_side

PAGE: Final = 500
MOST_OBJECTS: Final = 20_000  # of one collection, in a file
MOST_PAGES: Final = 100  # of one collection that are looked through: a cluster may have any number of others' Events
MOST_REPLICAS: Final = 20
LOG_LINES: Final = 20_000  # of one pod, the newest
LOG_BYTES: Final = 8 * 1024 * 1024
FEWEST_LINES: Final = 300  # of which all fit in LOG_BYTES: container runtimes break a line at 16 KiB
_OWN: Final = {"labelSelector": SERVICE_PODS}
_ADMISSION: Final = "admissionregistration.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A file of a bundle; `problem`: why it, or a part of it, could not be read; `absent`: there is no such object."""

    name: str
    text: str = ""
    problem: str = ""
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """Where a file of a bundle comes from: a path of the API server, and what is kept of the object or of each item."""

    member: str
    path: str
    keep: Callable[[Json], Json] | None = None  # None: text as it is
    query: Mapping[str, str] | None = None
    log: bool = False  # of a container: its newest lines
    may_fail: bool = False  # the log of a container that was never restarted
    wanted: Callable[[Json], bool] = lambda _body: True


def sources(namespace: str) -> tuple[Source, ...]:
    """Return what is read of every cluster; `namespace` is that of the service."""
    configurations = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    policies = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    events = object_path("events.k8s.io/v1", "events")
    return (
        Source("cluster/version.json", "/version", dict),
        Source("cluster/nodes.json", object_path("v1", "nodes"), excerpts.of_shape(excerpts.NODE)),
        *(
            Source(
                f"policy/{name}.json", _named("v1", "configmaps", name, namespace), excerpts.of_shape(excerpts.POLICY)
            )
            for name in (names.POLICY_NAME, names.LAST_GOOD_POLICY_NAME)
        ),
        *(
            Source(
                f"admission/{resource}-{name}.json", _named(_ADMISSION, resource, name), excerpts.configuration_excerpt
            )
            for resource in configurations
            for name in (names.MUTATING_CONFIGURATION, names.POLICY_CONFIGURATION)
        ),
        *(
            Source(
                f"admission/{resource}-{name}.json",
                _named(_ADMISSION, resource, name),
                excerpts.of_shape(excerpts.ADMISSION),
            )
            for resource in policies
            for name in ADMISSION_POLICIES
        ),
        Source(
            "cluster/placements-definition.json",
            _named("apiextensions.k8s.io/v1", "customresourcedefinitions", DEFINITION),
            excerpts.of_shape(excerpts.DEFINITION),
        ),
        Source(
            "gangs/placements.json",
            object_path(names.API_VERSION, names.PLACEMENTS),
            excerpts.of_shape(excerpts.PLACEMENT),
        ),
        Source(
            "gangs/pods.json",
            object_path("v1", "pods"),
            excerpts.pod_excerpt,
            query={"labelSelector": names.MANAGED},
        ),
        Source("gangs/events.json", events, excerpts.of_shape(excerpts.EVENT), wanted=excerpts.ours),
        Source(
            "service/events.json",
            object_path("events.k8s.io/v1", "events", namespace=namespace),
            excerpts.of_shape(excerpts.EVENT),
        ),
        Source(
            "service/leases.json",
            object_path("coordination.k8s.io/v1", "leases", namespace=namespace),
            excerpts.of_shape(excerpts.LEASE),
        ),
        Source(
            "service/deployment.json",
            _named("apps/v1", "deployments", names.SERVICE_NAME, namespace),
            excerpts.of_shape(excerpts.DEPLOYMENT),
        ),
        Source("service/pods.json", _pods(namespace), excerpts.own_pod_excerpt, query=_OWN),
    )


def read_bundle(api: KubeClient, *, namespace: str) -> list[BundleFile]:
    """Return the files of a bundle that come from the API server, also those of which nothing could be read."""
    wanted = [*sources(namespace), *_of_replicas(api, namespace)]
    return side_by_side(lambda one: _member(api, one), wanted)


def _of_replicas(api: KubeClient, namespace: str) -> Iterator[Source]:
    """Yield logs, metrics and status of each replica: through the API server, as the caller may read them."""
    try:
        query = _OWN | {"limit": str(MOST_REPLICAS)}
        body = json.loads(api.request("GET", _pods(namespace), query=query, timeout=TIMEOUT))
    except (ApiFault, ValueError):
        return  # told by the file of these pods
    for item in body.get("items") or ():
        name = str(item.get("metadata", {}).get("name", ""))
        logs = object_path("v1", "pods", namespace=namespace, name=name, subresource="log")
        own = service_container(item)
        log = {"timestamps": "true", **({"container": own} if own is not None else {})}
        folder = f"service/{sanitize(name, 253)}"
        yield Source(f"{folder}/log.txt", logs, query=log, log=True)
        yield Source(f"{folder}/log-previous.txt", logs, query={**log, "previous": "true"}, log=True, may_fail=True)
        yield Source(f"{folder}/metrics.txt", ops_page(namespace, name, "metrics"))
        yield Source(f"{folder}/readyz.txt", ops_page(namespace, name, "readyz"))


def _member(api: KubeClient, source: Source) -> BundleFile:
    try:
        if source.log:
            raw, problem = _newest_lines(api, source)
            return BundleFile(source.member, excerpts.scrubbed(raw.decode("utf-8", "replace")), problem)
        if source.keep is None:
            raw = api.request("GET", source.path, query=source.query, timeout=TIMEOUT)
            return BundleFile(source.member, excerpts.scrubbed(raw[-LOG_BYTES:].decode("utf-8", "replace")))
        found, problem = _objects(api, source, source.keep)
    except ApiError as error:
        absent = error.status == HTTPStatus.NOT_FOUND or (source.may_fail and error.status == HTTPStatus.BAD_REQUEST)
        problem = "there is none" if absent else fault_text(error)
        return BundleFile(source.member, problem=problem, absent=absent)
    except ApiFault as fault:
        return BundleFile(source.member, problem=fault_text(fault))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return BundleFile(source.member, problem=f"not readable ({type(error).__name__})")
    return BundleFile(source.member, as_json(found), problem)


def _newest_lines(api: KubeClient, source: Source) -> tuple[bytes, str]:
    """Return the newest lines of a container's log, LOG_LINES within LOG_BYTES, and why some of them are missing.

    A kubelet counts the bytes from the oldest of the lines that are asked for, so that the newest are missing where all
    are too many bytes. So fewer lines are asked for, until they fit.
    """
    lines, raw = LOG_LINES, b""
    while True:
        query = {**(source.query or {}), "tailLines": str(lines), "limitBytes": str(LOG_BYTES)}
        try:
            raw = api.request("GET", source.path, query=query, timeout=TIMEOUT)
        except ApiFault as fault:
            if not raw:
                raise
            return raw, f"without its newest lines: {fault_text(fault)}"
        if len(raw) < LOG_BYTES:
            return raw, ""
        if lines // 2 < FEWEST_LINES:
            return raw, f"without its newest lines: the last {lines:,} are more than {LOG_BYTES // 1024:,} KiB"
        lines //= 2


def as_json(value: object) -> str:
    """Return a value as JSON for people, without what looks like a secret."""
    return json.dumps(excerpts.scrubbed_value(value), indent=1, ensure_ascii=False) + "\n"


def _objects(api: KubeClient, source: Source, keep: Callable[[Json], Json]) -> tuple[Any, str]:
    """Return what is kept of the object at a path, or of the items of a collection; and what is missing.

    A collection has bounds, and its pages may expire while they are read: what was read till then is kept.
    """
    query = dict(source.query or {}) | {"limit": str(PAGE)}
    items: list[Json] = []
    read = 0
    for number in range(MOST_PAGES):
        try:
            body = json.loads(api.request("GET", source.path, query=query, timeout=TIMEOUT))
        except ApiFault as fault:
            if not number:
                raise
            return items, f"only what is in the first {read:,}: {fault_text(fault)}"
        if "items" not in body:
            return keep(body), ""
        read += len(body["items"] or ())
        items += [keep(one) for one in body["items"] or () if source.wanted(one)]
        following = (body.get("metadata") or {}).get("continue")
        if not following:
            return items, ""
        if len(items) >= MOST_OBJECTS:
            break
        query["continue"] = following
    return items, f"only what is in the first {read:,}"


def _named(api_version: str, resource: str, name: str, namespace: str | None = None) -> str:
    return object_path(api_version, resource, namespace=namespace, name=name)


def _pods(namespace: str) -> str:
    return object_path("v1", "pods", namespace=namespace)
