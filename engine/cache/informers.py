"""The informers of one replica: which collections are watched, how they are decoded, and whether they are synced.

Topology objects and HyperNodes are watched where their kinds are installed, ProvisioningRequests also only while the
policy makes some.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from engine.api import names
from engine.api.objects import (
    PROVISIONING_GROUP,
    PROVISIONING_KIND,
    PROVISIONING_PLURAL,
    PROVISIONING_VERSIONS,
    ConfigMap,
)
from engine.api.pod import Pod
from engine.cache.stores import BUDGETS, Stores
from engine.cache.workload_informers import WorkloadInformers
from engine.cluster.client import ApiFault, KubeClient, object_path
from engine.cluster.discovery import Discovery, Wanted
from engine.cluster.reflector import Reflector
from engine.cluster.store import Store
from engine.decoding import devices, objects, placements, pods
from engine.decoding.objects import hyper_node, pod_group_object, topology_object
from engine.decoding.provisioning import provisioning_request
from engine.policy.model import Policy, default_policy
from engine.topology.hyper_nodes import GROUP as VOLCANO
from engine.topology.hyper_nodes import KIND as HYPER_NODE
from engine.topology.hyper_nodes import PLURAL as HYPER_NODES
from engine.topology.objects import GROUPS, PLURAL

# A finished pod uses nothing, and a Job's own status says which of its indexes are done.
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"

CHECK_EVERY: Final = 15.0  # seconds between checks whether the objects' kind has come or gone

POD_GROUPS: Final = "scheduling.x-k8s.io"  # the API group of scheduler-plugins' PodGroups
# The only versions of a group that are understood, the preferred one first; of others any version is.
VERSIONS: Final[Mapping[str, tuple[str, ...]]] = {PROVISIONING_GROUP: PROVISIONING_VERSIONS}
# Of ProvisioningRequests only our own are read.
QUERIES: Final[Mapping[str, Mapping[str, str]]] = {PROVISIONING_GROUP: {"labelSelector": names.GANG}}
log = logging.getLogger("topogate.topologies")


class Informers:
    """Owns the reflectors of a replica; `start` once, `stop` once. `policy` returns the policy in force."""

    def __init__(
        self, api: KubeClient, stores: Stores, *, namespace: str, policy: Callable[[], Policy] = default_policy
    ) -> None:
        self.kinds = WorkloadInformers(api, stores, policy=policy)
        self._policy = policy
        self._pod_labels = policy().pod_labels
        self._api, self._stores = api, stores
        self._budgets: Reflector[Any] | None = None  # watched only while the policy preempts or moves
        self.policy: Store[ConfigMap] = Store(key=lambda config: config.name)
        self.last_good: Store[ConfigMap] = Store(key=lambda config: config.name)
        config_maps = object_path("v1", "configmaps", namespace=namespace)
        self._reflectors: dict[str, Reflector[object]] = {}
        self._add(api, "nodes", object_path("v1", "nodes"), objects.node, stores.nodes)
        self._add(api, "pods", object_path("v1", "pods"), self._pod(), stores.pods, fieldSelector=UNFINISHED)
        self._add(
            api,
            "placements",
            object_path(names.API_VERSION, names.PLACEMENTS),
            placements.placement,
            stores.placements,
        )
        self._add(api, "resourcequotas", object_path("v1", "resourcequotas"), objects.quota, stores.quotas)
        self._add(api, "daemonsets", object_path("apps/v1", "daemonsets"), objects.daemon_set, stores.daemon_sets)
        volumes = object_path("v1", "persistentvolumes")
        self._add(api, "persistentvolumes", volumes, objects.persistent_volume, stores.volumes)
        claims = object_path("v1", "persistentvolumeclaims")
        self._add(api, "persistentvolumeclaims", claims, objects.persistent_volume_claim, stores.volume_claims)
        classes = object_path("storage.k8s.io/v1", "storageclasses")
        self._add(api, "storageclasses", classes, objects.storage_class, stores.storage_classes)
        self._add(
            api,
            "priorityclasses",
            object_path("scheduling.k8s.io/v1", "priorityclasses"),
            objects.priority_class,
            stores.priority_classes,
        )
        self._add(
            api,
            "runtimeclasses",
            object_path("node.k8s.io/v1", "runtimeclasses"),
            objects.runtime_class,
            stores.runtime_classes,
        )
        self._add(
            api,
            "devices",
            object_path(devices.API_VERSION, devices.PLURAL),
            devices.node_devices,
            stores.devices,
            optional=True,
        )
        for name, store in ((names.POLICY_NAME, self.policy), (names.LAST_GOOD_POLICY_NAME, self.last_good)):
            self._add(api, name, config_maps, objects.config_map, store, fieldSelector=f"metadata.name={name}")

    def _add(
        self,
        api: KubeClient,
        name: str,
        path: str,
        project: object,
        store: object,
        *,
        optional: bool = False,
        **query: str,
    ) -> None:
        self._reflectors[name] = Reflector(
            api,
            path,
            project,  # type: ignore[arg-type]
            store,  # type: ignore[arg-type]
            query=query,
            optional=optional,
        )

    def start(self) -> None:
        """Start every watch."""
        for reflector in self._reflectors.values():
            reflector.start()
        self.kinds.start()

    def follow(self) -> None:
        """Apply a new policy to the watches: its kinds, the labels of their pods, and whether budgets count."""
        policy = self._policy()
        self._follow_budgets(watched=policy.heeds_budgets)
        labels = self._policy().pod_labels
        if labels != self._pod_labels:
            self._pod_labels = labels
            self._reflectors["pods"].read_anew(self._pod())
        self.kinds.wake()

    def _follow_budgets(self, *, watched: bool) -> None:
        known = self._budgets
        if watched and known is None:
            path, store = object_path("policy/v1", BUDGETS), self._stores.disruption_budgets
            self._budgets = Reflector(self._api, path, objects.disruption_budget, store, optional=True)
            self._budgets.start()
        elif not watched and known is not None:
            self._budgets = None
            known.stop()
            self._stores.disruption_budgets.replace([])

    def stop(self) -> None:
        """End every watch; takes about a second at most."""
        budgets = self._budgets
        reflectors = [*self._reflectors.values(), *([] if budgets is None else [budgets]), *self.kinds.stop()]
        with ThreadPoolExecutor(max_workers=len(reflectors)) as pool:
            list(pool.map(lambda reflector: reflector.stop(), reflectors))

    def refresh(self, timeout: float) -> bool:
        """Update every cache to at least the cluster's current state (quorum reads); False when that failed."""
        end = time.monotonic() + timeout
        if not self.kinds.look():
            return False
        reflectors = self.reflectors().values()
        with ThreadPoolExecutor(max_workers=len(reflectors)) as pool:
            return all(pool.map(lambda one: one.refresh(max(0.1, end - time.monotonic())), reflectors))

    def missing(self) -> list[str]:
        """Return the collections that were never listed completely, with the reason."""
        return [
            f"{name} ({reflector.problem})" if reflector.problem else name
            for name, reflector in self._reflectors.items()
            if not reflector.synced
        ] + self.kinds.missing()

    def wait_synced(self, timeout: float) -> bool:
        """Wait until every collection was listed completely."""
        end = time.monotonic() + timeout
        stores = [reflector.store for reflector in self._reflectors.values()]
        return all(store.wait_synced(max(0.0, end - time.monotonic())) for store in stores) and self.kinds.wait_synced(
            max(0.0, end - time.monotonic())
        )

    def reflectors(self) -> dict[str, Reflector[Any]]:
        """Return the reflectors that fill the caches, by the name of the collection."""
        budgets = self._budgets
        more: dict[str, Reflector[Any]] = {} if budgets is None else {BUDGETS: budgets}
        return {**self._reflectors, **more, **self.kinds.reflectors()}

    def _pod(self) -> Callable[[Any], Pod]:
        return partial(pods.pod, labels=self._pod_labels)


class ForeignInformers:
    """Informers of other systems' objects: Topologies of Kueue and KAI, HyperNodes of Volcano, PodGroups of
    scheduler-plugins, and our own ProvisioningRequests, while the policy makes any or some are left.

    Owns at most one reflector per API group; `follow` again and again, from one thread; `stop` once.
    """

    def __init__(
        self,
        api: KubeClient,
        stores: Stores,
        *,
        policy: Callable[[], Policy] = default_policy,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._stores = stores
        self._policy = policy
        self._discovery = Discovery(api)
        self._clock = clock
        self._provisions = False  # at the last check
        self._warned = False  # that nodes cannot be requested
        self._check_at: float | None = None  # None: before the first check
        self._watched: dict[str, tuple[str, Reflector[Any]]] = {}  # by group, with the path
        # By group: the kind, its resource, the decoder and the store.
        self._kinds: dict[str, tuple[str, str, Callable[[Any], Any], Store[Any]]] = {
            **{group: ("Topology", PLURAL, topology_object, stores.topology_objects[group]) for group in GROUPS},
            VOLCANO: (HYPER_NODE, HYPER_NODES, hyper_node, stores.hyper_nodes),
            POD_GROUPS: ("PodGroup", "podgroups", pod_group_object, stores.pod_groups),
            PROVISIONING_GROUP: (
                PROVISIONING_KIND,
                PROVISIONING_PLURAL,
                provisioning_request,
                stores.provisioning_requests,
            ),
        }

    def follow(self) -> None:
        """Watch the objects of every served kind; check the kinds from time to time.

        Raises ApiFault when the served kinds cannot be read: everything stays as it is then.
        """
        provisions = self._policy().autoscaling.on
        if provisions == self._provisions and self._check_at is not None and self._clock() < self._check_at:
            return
        left = provisions or self._requests_left()
        wanted = [
            Wanted(group, kind, VERSIONS.get(group, ()), group not in VERSIONS, resource=resource, registered=False)
            for group, (kind, resource, _, _) in self._kinds.items()
            if left or group != PROVISIONING_GROUP
        ]
        found = self._discovery.look(wanted)
        served = {one.group: one.path for one in found}
        self._check_at, self._provisions = self._clock() + CHECK_EVERY, provisions
        self._note_version(next((one.version for one in found if one.group == PROVISIONING_GROUP), ""))
        for group, (path, known) in list(self._watched.items()):
            if served.get(group) != path:
                known.stop()
                kind, _, _, store = self._kinds[group]
                store.replace([])
                del self._watched[group]
                log.info("the %s objects of %s are no longer watched", kind, group)
        for group, path in served.items():
            if group not in self._watched:
                _, _, decode, store = self._kinds[group]
                query = QUERIES.get(group, {})
                reflector: Reflector[Any] = Reflector(self._api, path, decode, store, query=query, optional=True)
                self._watched[group] = (path, reflector)
                reflector.start()
                log.info("watching %s", path)

    def _requests_left(self) -> bool:
        """Return True if requests of an earlier policy may exist, to be withdrawn."""
        if len(self._stores.provisioning_requests):
            return True
        return any(one.status.get("provisioning") for one in self._stores.placements.values())

    def _note_version(self, version: str) -> None:
        """Store the version in which ProvisioningRequests are served; warn once if nodes cannot be requested."""
        self._stores.provisioning_version = version
        absent = self._provisions and not version
        if absent and not self._warned:
            versions = " or ".join(f"{PROVISIONING_GROUP}/{one}" for one in PROVISIONING_VERSIONS)
            log.warning(
                "the policy requests nodes, but the cluster does not serve ProvisioningRequests (%s): none are "
                "requested until it does; install the CRD of the cluster autoscaler",
                versions,
            )
        self._warned = absent

    def wait_synced(self, timeout: float) -> bool:
        """Wait until every watched object has been seen; False when the time is over."""
        end = self._clock() + timeout
        stores = [self._kinds[group][3] for group in self._watched]
        return all(store.wait_synced(max(0.0, end - self._clock())) for store in stores)

    def reflectors(self) -> dict[str, Reflector[Any]]:
        """Return the running reflectors, by the plural of the kind with its group."""
        return {f"{self._kinds[group][1]}.{group}": one for group, (_, one) in list(self._watched.items())}

    def stop(self) -> None:
        """End every watch."""
        for _, watch in self._watched.values():
            watch.stop()
        self._watched.clear()


def follow_or_warn(watch: ForeignInformers) -> None:
    """Have the informers follow the served kinds; an API fault is logged and left for the next time."""
    try:
        watch.follow()
    except ApiFault as error:
        log.warning("Topology, HyperNode, PodGroup and ProvisioningRequest objects could not be looked up: %s", error)
