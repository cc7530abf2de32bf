"""The stores of watched records that the cluster state reads, one for each kind of object."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.api import names
from engine.api.device import NodeDevices
from engine.api.objects import (
    PROVISIONING_PLURAL,
    DaemonSet,
    DisruptionBudget,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    PodGroupObject,
    PriorityClass,
    ProvisioningRequest,
    Quota,
    RuntimeClass,
    StorageClass,
)
from engine.api.placement import Placement
from engine.api.pod import Pod
from engine.api.workload import Owned, Workload
from engine.cluster.store import KindStores, Store
from engine.gang.gang import completion_index
from engine.gang.key import placed_key
from engine.resources.names import ReportedNodes
from engine.topology.hyper_nodes import PLURAL as HYPER_NODES
from engine.topology.hyper_nodes import HyperNode
from engine.topology.objects import GROUPS, PLURAL, TopologyObject

BUDGETS: Final = "poddisruptionbudgets"
_MAX_DIGITS: Final = 10  # of an ordinal, which is an int32


class Stores:
    """The stores that the cluster state reads; filled by reflectors or `Store.replace`. `reported`: by the nodes."""

    def __init__(self) -> None:
        self.reported = ReportedNodes()
        self.nodes: Store[Node] = Store(key=lambda node: node.name)
        self.nodes.subscribe(self.reported.changed)
        self.pods: Store[Pod] = Store(key=lambda pod: pod.key, index=_gang_label, finer=_gang_index)
        self.workloads: KindStores[Workload] = KindStores()
        self.owned: KindStores[Owned] = KindStores()
        self.placements: Store[Placement] = Store(key=lambda placement: placement.key, index=placed_key)
        self.quotas: Store[Quota] = Store(
            key=lambda quota: (quota.namespace, quota.name), index=lambda quota: quota.namespace
        )
        self.disruption_budgets: Store[DisruptionBudget] = Store(
            key=lambda item: (item.namespace, item.name), index=lambda item: item.namespace
        )
        self.daemon_sets: Store[DaemonSet] = Store(key=lambda item: (item.namespace, item.name))
        self.volumes: Store[PersistentVolume] = Store(key=lambda item: item.name)
        self.volume_claims: Store[PersistentVolumeClaim] = Store(
            key=lambda item: (item.namespace, item.name), index=_claim_series
        )
        self.storage_classes: Store[StorageClass] = Store(key=lambda item: item.name)
        self.priority_classes: Store[PriorityClass] = Store(key=lambda item: item.name)
        self.runtime_classes: Store[RuntimeClass] = Store(key=lambda item: item.name)
        self.devices: Store[NodeDevices] = Store(key=lambda devices: devices.name)
        self.devices.subscribe(self.reported.devices_changed)
        self.pod_groups: Store[PodGroupObject] = Store(key=lambda item: (item.namespace, item.name))
        self.provisioning_requests: Store[ProvisioningRequest] = Store(
            key=lambda item: item.key, index=lambda item: (item.namespace, item.gang)
        )
        self.provisioning_version = ""  # of ProvisioningRequests, as the cluster serves them; "" if it does not
        self.hyper_nodes: Store[HyperNode] = Store(key=lambda item: item.name)
        self.topology_objects: Mapping[str, Store[TopologyObject]] = {
            group: Store(key=lambda item: item.name) for group in GROUPS
        }

    def all(self) -> Mapping[str, Store[Any] | KindStores[Any]]:
        """Return every store by the name of its collection."""
        return {
            "nodes": self.nodes,
            "pods": self.pods,
            "workloads": self.workloads,
            "owned": self.owned,
            "placements": self.placements,
            "quotas": self.quotas,
            BUDGETS: self.disruption_budgets,
            "daemonsets": self.daemon_sets,
            "persistentvolumes": self.volumes,
            "persistentvolumeclaims": self.volume_claims,
            "storageclasses": self.storage_classes,
            "priorityclasses": self.priority_classes,
            "runtimeclasses": self.runtime_classes,
            "devices": self.devices,
            "podgroups": self.pod_groups,
            PROVISIONING_PLURAL: self.provisioning_requests,
            HYPER_NODES: self.hyper_nodes,
            **{f"{PLURAL}.{group}": store for group, store in self.topology_objects.items()},
        }


@dataclass(slots=True)
class Change:
    """A change of a store: the collection's name, and the record before and after; None where there is none."""

    what: str
    old: Any
    new: Any


class Inbox:
    """The changes of the stores that are not applied yet, in order; safe for several threads.

    Those of one workload after its creation are one: its user may make many, and each may concern all pods of a gang.
    """

    def __init__(self) -> None:
        self._changes: deque[Change] = deque()
        self._of_workloads: dict[str, Change] = {}  # by uid
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Change]:
        """Return the changes at this moment."""
        with self._lock:
            return iter(list(self._changes))

    def put(self, what: str, old: Any, new: Any) -> None:
        """Add a change."""
        uids = {one.uid for one in (old, new) if one is not None} if what == "workloads" else set[str]()
        with self._lock:
            if len(uids) == 1 and (uid := uids.pop()):
                waiting = self._of_workloads.get(uid)
                if waiting is not None and waiting.old is not None:
                    waiting.new = new
                    return
                self._of_workloads[uid] = change = Change(what, old, new)
            else:
                change = Change(what, old, new)
            self._changes.append(change)

    def take(self) -> Change | None:
        """Remove and return the first change; None if there is none."""
        with self._lock:
            if not self._changes:
                return None
            change = self._changes.popleft()
            if change.what == "workloads":
                for one in filter(None, (change.old, change.new)):
                    self._of_workloads.pop(one.uid, None)
            return change


def _gang_label(pod: Pod) -> tuple[str, str] | None:
    """Return the Placement that a pod's label names; it proves nothing, but finds candidates quickly."""
    name = pod.spec.labels.get(names.GANG)
    return None if name is None else (pod.namespace, name)


def _gang_index(pod: Pod) -> tuple[str, str, str] | None:
    """Return that Placement and the pod's index in its Job: a review looks for other pods with the same one."""
    name, index = pod.spec.labels.get(names.GANG), completion_index(pod)
    return None if name is None or not index else (pod.namespace, name, index)


def _claim_series(claim: PersistentVolumeClaim) -> tuple[str, str] | None:
    """Return the namespace and the series of a claim `<series>-<ordinal>`; None for any other name."""
    series, _, ordinal = claim.name.rpartition("-")
    if not series or len(ordinal) > _MAX_DIGITS or not (ordinal.isascii() and ordinal.isdigit()):
        return None
    return None if ordinal[0] == "0" and ordinal != "0" else (claim.namespace, series)
