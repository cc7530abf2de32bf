"""The reads of the cluster that admission handlers may make, all answered from the watch caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from engine.api.objects import Node
from engine.api.placement import Placement
from engine.api.pod import OwnerRef, Pod, Shape
from engine.api.resources import Requests
from engine.api.workload import GangKey, PodSet, Workload
from engine.devices.allocation import Uses
from engine.gang.ownership import Key, Link, OwnerResolver
from engine.gang.request import PlacementRequest
from engine.kinds.registry import Registry
from engine.policy.model import Policy
from engine.preemption.preempt import Preemption
from engine.resources.names import Reported
from engine.scheduler.outcome import Outcome
from engine.topology.topology import Topology


class Reader(Protocol):
    """A replica's view of the cluster during one review. No method calls the API server or changes anything.

    `deadline` is an absolute time on the implementation's own clock; the handlers only pass it on.
    """

    @property
    def policy(self) -> Policy | None:
        """Return the current policy; None while none is loaded."""

    @property
    def registry(self) -> Registry:
        """Return the workload kinds of the current policy; the built-in ones while none is loaded."""

    @property
    def topologies(self) -> Mapping[str, Topology]:
        """Return the topologies by name, in the order of the policy."""

    def topologies_under(self, policy: Policy) -> Mapping[str, Topology]:
        """Return the topologies that a policy would build from the current nodes; empty while they are unknown."""

    @property
    def reported(self) -> Reported:
        """Return the devices that nodes report; kept, not counted at the call."""

    @property
    def resources_fixed(self) -> bool:
        """Return True if the API server refuses other container resources in a Job that waits (before 1.36)."""

    @property
    def own_username(self) -> str:
        """Return the user name of our ServiceAccount."""

    @property
    def own_namespace(self) -> str:
        """Return the namespace that we run in."""

    def find(self, key: Key) -> Link | None:
        """Return a workload, pod or other owner by group, kind, namespace and name, as a link of an owner chain."""

    def owners(self, policy: Policy) -> OwnerResolver:
        """Return the owner resolver over `find` under a policy."""

    def placement_of(self, key: GangKey) -> Placement | None:
        """Return the Placement of a gang."""

    def all_placements(self) -> Sequence[Placement]:
        """Return all Placements."""

    def await_revision(self, namespace: str, key: GangKey, revision: int, deadline: float) -> Placement | None:
        """Return the gang's Placement once its assignment has that revision or a newer one; waits 200 ms at most.

        None if it has not arrived. Returns at once if too many reviews of a namespace wait already.
        """

    def await_owner(self, namespace: str, owner: OwnerRef, deadline: float) -> bool:
        """Return True once the owner of a reference in a namespace is known; waits 200 ms at most."""

    def await_pod(self, namespace: str, name: str, deadline: float) -> Pod | None:
        """Return the pod of that name once it is known; waits 200 ms at most."""

    def live_claimants(self, placement: Placement, pod_set: PodSet, rank: int) -> int:
        """Return how many pods of the pod set have that rank and are neither finished nor being deleted."""

    def node(self, name: str) -> Node | None:
        """Return the node of that name."""

    def gangs_in(self, namespace: str) -> int:
        """Return how many gangs of a namespace have a Placement and have not ended."""

    def topology_of(self, placement: Placement) -> Topology | None:
        """Return the topology that a Placement was planned on."""

    def planned_shape(self, placement: Placement, pod_set: PodSet) -> Shape | None:
        """Return the shape that the pods of a pod set were planned with; None if it is not known."""

    def slot_lost(self, placement: Placement, host: str, requests: Requests) -> bool:
        """Return True if no further pod may go to a slot: others use its capacity, or the gang gets other slots.

        `requests`: those of its pods.
        """

    def reserved_resource(self, pod: Pod, host: str) -> str | None:
        """Return a resource of which a pod would take capacity that is reserved on a host; None if there is none.

        None also for pods of gangs and of DaemonSets, by their owners: labels prove nothing.
        """

    def allocation(self, placement: Placement, host: str, uses: Uses) -> str | None:
        """Return the device annotation for a pod of the gang; None if its devices are no longer available."""

    def forecast(self, workload: Workload, request: PlacementRequest, deadline: float) -> Outcome | None:
        """Return the leader's current outcome for the workload; None if there is no time or the caches lag."""

    def preemption(self, workload: Workload, request: PlacementRequest, deadline: float) -> Preemption | None:
        """Return what the policy would preempt for a workload that does not fit now, and where it starts then.

        None if it preempts nothing, if that does not help, or if there is no time to find out.
        """

    def missing_claims(self, workload: Workload) -> tuple[str, ...]:
        """Return the PersistentVolumeClaims that the workload's pods mount and that are not known."""

    def volumes_left_out(self, workload: Workload) -> tuple[str, ...]:
        """Return, in words, the volumes of the workload's pods that are not planned for, because they contradict."""
