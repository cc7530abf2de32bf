"""What the admission handlers may ask of the cluster: a closed list of reads, answered from the watch caches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from engine.api.objects import Node
from engine.api.placement import Placement
from engine.api.pod import OwnerRef, Shape
from engine.api.resources import Requests
from engine.api.workload import PodSet, Workload
from engine.devices.allocation import Uses
from engine.devices.resources import Reported
from engine.gang.ownership import Key, Link, OwnerResolver
from engine.gang.request import PlacementRequest
from engine.kinds.registry import Registry
from engine.policy.model import Policy
from engine.scheduler.outcome import Outcome
from engine.topology.topology import Topology


class Reader(Protocol):
    """A replica's view of the cluster at the time of one review. No method calls the API server or changes anything.

    `deadline` is an absolute time on the implementation's own clock; the handlers only pass it on.
    """

    @property
    def policy(self) -> Policy | None:
        """The policy in force; None while none is loaded."""

    @property
    def registry(self) -> Registry:
        """The workload kinds under the policy in force; the built-in ones while none is loaded."""

    @property
    def topologies(self) -> Mapping[str, Topology]:
        """The topologies by name, in the order of the policy."""

    def topologies_under(self, policy: Policy) -> Mapping[str, Topology]:
        """The topologies that a policy would have over the nodes there are; none while the nodes are not known."""

    @property
    def reported(self) -> Reported:
        """What nodes report of devices; kept, not counted at the call."""

    @property
    def own_username(self) -> str:
        """The user name of our ServiceAccount."""

    @property
    def own_namespace(self) -> str:
        """The namespace that we run in."""

    def find(self, key: Key) -> Link | None:
        """The workload, pod or other owner of a group, kind, namespace and name: what owner chains are made of."""

    def lineage(self, policy: Policy) -> OwnerResolver:
        """Owner chains as `find` tells them, under a policy."""

    def workload(self, group: str, kind: str, namespace: str, name: str) -> Workload | None:
        """The workload of that name."""

    def placement_of(self, key: str) -> Placement | None:
        """The Placement of a gang."""

    def await_revision(self, namespace: str, key: str, revision: int, deadline: float) -> Placement | None:
        """The gang's Placement once its assignment is of that revision or newer; waits 200 ms at most.

        None when it has not come. Too many of a namespace that wait already are not waited for.
        """

    def await_owner(self, namespace: str, owner: OwnerRef, deadline: float) -> bool:
        """True once the object that a reference in a namespace names is known; waits 200 ms at most."""

    def live_claimants(self, placement: Placement, pod_set: PodSet, rank: int) -> int:
        """How many pods of the pod set have that rank and are neither finished nor being deleted."""

    def node(self, name: str) -> Node | None:
        """The node of that name."""

    def gangs_in(self, namespace: str) -> int:
        """How many gangs of a namespace have a Placement and have not ended."""

    def topology_of(self, placement: Placement) -> Topology | None:
        """The topology that a Placement was planned on."""

    def planned_shape(self, placement: Placement, pod_set: PodSet) -> Shape | None:
        """The shape that the pods of a pod set were planned with; None when it is not known."""

    def room_taken(self, host: str, requests: Requests) -> bool:
        """True when others took room on a host that is reserved there, of a resource that `requests` names."""

    def allocation(self, placement: Placement, host: str, uses: Uses) -> str | None:
        """The annotation that tells a pod of the gang its devices; None when they are not there for it any more."""

    def forecast(self, workload: Workload, understanding: PlacementRequest, deadline: float) -> Outcome | None:
        """What the leader would answer for the workload now; None when there is no time for it or the caches lag."""
