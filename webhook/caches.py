"""The watch caches of one replica: which collections are watched, how they are read, and whether they are current."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from engine.api import names
from engine.api.objects import ConfigMap
from engine.api.pod import Pod
from engine.cluster import devices, objects, placements, pods
from engine.cluster.client import Api, object_path
from engine.cluster.reflector import Reflector
from engine.cluster.store import Store
from engine.policy.model import Policy, default_policy
from engine.stores import Stores
from webhook.kind_caches import KindCaches

# A finished pod uses nothing, and a Job's own status says which of its indexes are done.
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


class Caches:
    """Owns the reflectors of a replica; `start` once, `stop` once. `policy` gives the one in force."""

    def __init__(
        self, api: Api, stores: Stores, *, namespace: str, policy: Callable[[], Policy] = default_policy
    ) -> None:
        self.kinds = KindCaches(api, stores, policy=policy)
        self._policy = policy
        self._pod_labels = policy().pod_labels
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
        self, api: Api, name: str, path: str, project: object, store: object, *, optional: bool = False, **query: str
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
        """Read what a new policy makes us read otherwise: its kinds, and the labels of their pods."""
        labels = self._policy().pod_labels
        if labels != self._pod_labels:
            self._pod_labels = labels
            self._reflectors["pods"].read_anew(self._pod())
        self.kinds.poke()

    def stop(self) -> None:
        """End every watch; takes about a second at most."""
        reflectors = [*self._reflectors.values(), *self.kinds.stop()]
        with ThreadPoolExecutor(max_workers=len(reflectors)) as pool:
            list(pool.map(lambda reflector: reflector.stop(), reflectors))

    def refresh(self, timeout: float) -> bool:
        """Bring every cache to at least this moment of the cluster (quorum reads); False when that failed."""
        end = time.monotonic() + timeout
        if not self.kinds.look():
            return False
        reflectors = self.reflectors().values()
        with ThreadPoolExecutor(max_workers=len(reflectors)) as pool:
            return all(pool.map(lambda one: one.refresh(max(0.1, end - time.monotonic())), reflectors))

    def missing(self) -> list[str]:
        """Collections that were never listed whole, with the reason."""
        return [
            f"{name} ({reflector.problem})" if reflector.problem else name
            for name, reflector in self._reflectors.items()
            if not reflector.synced
        ] + self.kinds.missing()

    def wait_synced(self, timeout: float) -> bool:
        """Wait until every collection was listed whole."""
        end = time.monotonic() + timeout
        stores = [reflector.store for reflector in self._reflectors.values()]
        return all(store.wait_synced(max(0.0, end - time.monotonic())) for store in stores) and self.kinds.wait_synced(
            max(0.0, end - time.monotonic())
        )

    def reflectors(self) -> dict[str, Reflector[Any]]:
        """What feeds the caches, by the name of the collection."""
        return {**self._reflectors, **self.kinds.reflectors()}

    def _pod(self) -> Callable[[Any], Pod]:
        return partial(pods.pod, labels=self._pod_labels)
