"""Reads the cluster once, with the rights of the caller: lists of the kinds that the planner looks at, side by side.

A collection that may not be read in the whole cluster is read in the caller's namespace; what stays unread is part of
the answer (`Unread`), never a failure. Only a server that does not answer ends the reading.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import msgspec

from engine.api import names
from engine.api.objects import PROVISIONING_GROUP, PROVISIONING_KIND, PROVISIONING_PLURAL, PROVISIONING_VERSIONS
from engine.api.text import plural
from engine.cache.informers import POD_GROUPS, UNFINISHED
from engine.cache.stores import BUDGETS
from engine.cluster.client import ApiError, ApiFault, ApiUnavailable, KubeClient, get_or_none, object_path
from engine.cluster.discovery import Discovery, Wanted, wanted_kinds
from engine.decoding import devices
from engine.decoding.objects import config_map
from engine.decoding.wire import UNREADABLE, ProjectionError
from engine.policy.in_force import policy_in_force
from engine.policy.model import Policy, default_policy
from engine.topology.hyper_nodes import GROUP as VOLCANO
from engine.topology.hyper_nodes import KIND as HYPER_NODE
from engine.topology.hyper_nodes import PLURAL as HYPER_NODES
from engine.topology.objects import GROUPS, PLURAL
from webhook.snapshot.connection import ConnectionProblem
from webhook.snapshot.files import FileObject
from webhook.snapshot.labels import labels_of
from webhook.snapshot.live_cluster import live_cluster
from webhook.snapshot.side_by_side import side_by_side
from webhook.snapshot.snapshot import Snapshot, Unread, ends_of

PAGE: Final = 500  # objects, as kubectl's
TIMEOUT: Final = (5.0, 60.0)
FIRST_TIMEOUT: Final = (5.0, 10.0)
_EXPIRED_PAGES: Final = 3  # times that a list is begun again because its pages have expired

Progress = Callable[[int], None]
"""Called with the number of objects read so far."""


@dataclass(frozen=True, slots=True)
class _Listed:
    """A collection to list, as the API server serves it; `namespaced`: it may be read in one namespace alone."""

    api_version: str
    plural: str
    kind: str
    namespaced: bool = True
    name: str = ""  # in sentences, if not the plural
    query: dict[str, str] = field(default_factory=dict)
    short_names: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def called(self) -> str:
        return self.name or self.plural


_NODES: Final = _Listed("v1", "nodes", "Node", namespaced=False)
_PLACEMENTS: Final = _Listed(names.API_VERSION, names.PLACEMENTS, names.PLACEMENT_KIND)
_BASE: Final = (
    _NODES,
    _Listed("v1", "pods", "Pod", query={"fieldSelector": UNFINISHED}),
    _PLACEMENTS,
    _Listed(devices.API_VERSION, devices.PLURAL, "Device", namespaced=False),
    _Listed("apps/v1", "daemonsets", "DaemonSet"),
    _Listed("v1", "resourcequotas", "ResourceQuota"),
    _Listed("v1", "persistentvolumes", "PersistentVolume", namespaced=False),
    _Listed("v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    _Listed("storage.k8s.io/v1", "storageclasses", "StorageClass", namespaced=False),
    _Listed("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", namespaced=False),
    _Listed("node.k8s.io/v1", "runtimeclasses", "RuntimeClass", namespaced=False),
)
# The kinds of other projects that give levels, group pods or tell of nodes to come.
_OF_OTHERS: Final = (
    *(Wanted(group, "Topology", (), True, PLURAL, registered=False) for group in GROUPS),
    Wanted(VOLCANO, HYPER_NODE, (), True, HYPER_NODES, registered=False),
    Wanted(POD_GROUPS, "PodGroup", (), True, "podgroups", registered=False),
    Wanted(PROVISIONING_GROUP, PROVISIONING_KIND, PROVISIONING_VERSIONS, False, PROVISIONING_PLURAL, registered=False),
)
# Which gangs end or restart for others; read where the policy has such.
_BUDGETS: Final = _Listed("policy/v1", BUDGETS, "PodDisruptionBudget")


class _ListMeta(msgspec.Struct):
    next_page: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _ListMeta | None = None
    items: list[msgspec.Raw] | None = None


_decode_page: Final = msgspec.json.Decoder(_Page).decode


class _Absent(Exception):
    """The collection is not served."""


class _Forbidden(Exception):
    """The caller has no right to list the collection there."""


def read_cluster(
    api: KubeClient,
    *,
    namespace: str,
    service_namespace: str = names.NAMESPACE,
    topologies_alone: bool = False,
    only: Collection[str] | None = None,
    consistent: bool = False,
    labels: bool = False,
    progress: Progress = lambda _count: None,
    wall: Callable[[], float] = time.time,
) -> Snapshot:
    """Return a snapshot of the cluster; `namespace` is the one to fall back to without rights in the whole cluster.

    `service_namespace` is that of the service, where the policy is. `topologies_alone`: read only the policy, the
    nodes, what else gives levels, and the Placements, which name them. `only`: read these collections, by their plural,
    and the workloads of all kinds with their owners; None: everything that the planner looks at. `consistent`: nothing
    older than the moment of the call, which costs the server more. `labels`: keep those of workloads and pods. Raises
    ConnectionProblem if the server does not answer, or does not know the caller.
    """
    taken = wall()
    unread: list[Unread] = []
    notes: list[str] = []
    try:
        policy = _policy(api, service_namespace, unread, notes)
    except ApiFault as fault:
        raise ConnectionProblem(no_answer(api, fault)) from None
    if topologies_alone:
        found, provisioning = _discovered(api, _OF_OTHERS, unread)
        wanted = [_NODES, _PLACEMENTS, *found]
    else:
        every = (*_BASE, _BUDGETS) if policy.heeds_budgets else _BASE
        base = [one for one in every if only is None or one.plural in only]
        kinds = wanted_kinds(policy.registry)
        found, provisioning = _discovered(api, kinds if only is not None else [*kinds, *_OF_OTHERS], unread)
        wanted = [*base, *found]
    reader = _Reader(api, namespace, progress, consistent=consistent)
    objects = [one for listed in side_by_side(reader.read, wanted) for one in listed]
    unread += reader.unread
    view, more = live_cluster(objects, policy=policy, own_namespace=service_namespace)
    return Snapshot(
        view=view,
        taken=taken,
        ends=ends_of(one for one in objects if one.kind != "Node"),
        unread=tuple(sorted(unread, key=lambda one: (one.collection, one.except_in or ""))),
        notes=(*notes, *more),
        installed=names.PLACEMENTS not in reader.absent,
        provisioning=provisioning,
        short_names={(one.group, one.kind): one.short_names for one in wanted if one.short_names},
        labels=labels_of(objects) if labels else {},
    )


def no_answer(api: KubeClient, fault: ApiFault) -> str:
    """Return which API server cannot be asked and why, in one line."""
    match fault:
        case ApiError(status=HTTPStatus.UNAUTHORIZED):
            why = "the credentials have expired, or are wrong"
            return f"the API server {api.server} does not know the caller (401): {why}"
        case _:
            return f"the API server {api.server} cannot be asked: {fault}"


class _Reader:
    """Lists collections; methods may run in several threads."""

    def __init__(self, api: KubeClient, namespace: str, progress: Progress, *, consistent: bool) -> None:
        self._api = api
        self._consistent = consistent
        self._namespace = namespace
        self._progress = progress
        self._count = 0
        self.unread: list[Unread] = []
        self.absent: list[str] = []

    def read(self, one: _Listed) -> list[FileObject]:
        """Return the objects of a collection that the caller may read; notes what he may not."""
        places = (None, self._namespace) if one.namespaced else (None,)
        for namespace in places:
            try:
                found = self._objects(one, namespace)
            except _Absent:
                self.absent.append(one.plural)
                return []
            except _Forbidden:
                continue
            except ApiFault as fault:
                self.unread.append(Unread(one.called, why=str(fault)))
                return []
            if namespace is not None:
                self.unread.append(Unread(one.called, except_in=namespace))
            return found
        self.unread.append(Unread(one.called))
        return []

    def _objects(self, one: _Listed, namespace: str | None) -> list[FileObject]:
        group, _, version = one.api_version.rpartition("/")
        path = object_path(one.api_version, one.plural, namespace=namespace)
        return [
            FileObject(group=group, version=version, kind=one.kind, where=one.called, source=raw)
            for raw in self._pages(path, one.query)
        ]

    def _pages(self, path: str, query: dict[str, str]) -> list[msgspec.Raw]:
        """Return all items of a collection: from the server's cache, or where that is too much at once by pages."""
        if self._consistent:
            return self._list(path, query)
        try:
            return self._list(path, query | {"resourceVersion": "0"})
        except ApiUnavailable:
            # Servers that answer from their cache may ignore the limit, and the whole of it be too long.
            return self._list(path, query)

    def _list(self, path: str, query: dict[str, str]) -> list[msgspec.Raw]:
        for again in range(_EXPIRED_PAGES):
            found: list[msgspec.Raw] = []
            page_query = query | {"limit": str(PAGE)}
            try:
                while True:
                    page = self._page(path, page_query)
                    found += page.items or ()
                    self._read_more(len(page.items or ()))
                    following = page.metadata.next_page if page.metadata is not None else ""
                    if not following:
                        return found
                    if following == page_query.get("continue"):
                        raise ApiUnavailable(f"GET {path}: the same page over and over")
                    page_query = {key: value for key, value in query.items() if key != "resourceVersion"}
                    page_query |= {"limit": str(PAGE), "continue": following}
            except ApiError as error:
                if error.status != HTTPStatus.GONE or again == _EXPIRED_PAGES - 1:
                    raise
                self._read_more(-len(found))
        raise AssertionError("unreachable")

    def _page(self, path: str, query: dict[str, str]) -> _Page:
        try:
            return _decode_page(self._api.request("GET", path, query=query, timeout=TIMEOUT))
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise _Absent from None
            if error.status == HTTPStatus.FORBIDDEN:
                raise _Forbidden from None
            raise
        except UNREADABLE:
            raise ApiUnavailable(f"GET {path}: not a list") from None

    def _read_more(self, count: int) -> None:
        self._count += count  # not exact where threads meet: it is shown to people who wait
        self._progress(self._count)


def _policy(api: KubeClient, namespace: str, unread: list[Unread], notes: list[str]) -> Policy:
    """Return the policy in force, the default if the caller may not read it; notes what is refused."""
    found: list[Mapping[str, str] | None] = []
    for name in (names.POLICY_NAME, names.LAST_GOOD_POLICY_NAME):
        try:
            found.append(_policy_data(api, namespace, name))
        except _Forbidden:
            unread.append(Unread("configmaps", why=f"in namespace {namespace}"))
            return default_policy()
    now, last_good = found
    given = policy_in_force(now, (last_good or {}).get(names.POLICY_KEY, ""))
    if given.refused:
        first, count = given.refused[0], len(given.refused)
        refused = f"the policy in the ConfigMap is refused ({plural(count, 'error')}; {first.field}: {first.message})"
        kept = "the last good one" if given.origin == "last good" else "the default policy"
        notes.append(f"{refused}; {kept} is taken (topogate policy check)")
    return given.policy


def _policy_data(api: KubeClient, namespace: str, name: str) -> Mapping[str, str] | None:
    path = object_path("v1", "configmaps", namespace=namespace, name=name)
    try:
        body = get_or_none(api, path, timeout=FIRST_TIMEOUT)
        return None if body is None else config_map(body).data
    except ApiError as error:
        if error.status == HTTPStatus.FORBIDDEN:
            raise _Forbidden from None
        raise
    except ProjectionError:
        raise ApiUnavailable(f"GET {path}: not a ConfigMap") from None


def _discovered(api: KubeClient, kinds: Iterable[Wanted], unread: list[Unread]) -> tuple[Sequence[_Listed], str | None]:
    """Return the collections of `kinds` that the server serves.

    Also the version in which it serves ProvisioningRequests, "" if it does not or they are not among the kinds; None:
    not known.
    """
    try:
        served = Discovery(api).look([*kinds])
    except ApiFault as fault:
        unread.append(Unread("the kinds of the cluster", why=str(fault)))
        return [_Listed("batch/v1", "jobs", "Job")], None
    cluster_wide = {*((group, "Topology") for group in GROUPS), (VOLCANO, HYPER_NODE)}
    listed = [
        _Listed(
            one.api_version,
            one.resource,
            one.kind,
            namespaced=(one.group, one.kind) not in cluster_wide,
            name=one.name,
            short_names=one.short_names,
        )
        for one in served
        if one.group != PROVISIONING_GROUP  # what was requested for a gang is in its Placement
    ]
    return listed, next((one.version for one in served if one.group == PROVISIONING_GROUP), "")
