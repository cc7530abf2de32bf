"""The health of a gang's hosts: which are lost, and how the policy reacts to pods there. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from engine.api.placement import Assignment, Slot
from engine.api.pod import Pod
from engine.api.reasons import Code
from engine.api.text import join_and, plural, sanitize
from engine.capacity.capacity import Capacity
from engine.gang.gang import Gang, by_pod_set, can_suspend, rank_is_slot, rank_of
from engine.gang.slots import done_ranks, left_domain
from engine.lifecycle.actions import Decision, EvictPods, NoAction, Status, Unplace
from engine.lifecycle.gang_state import REMOVE_AGAIN, Timers
from engine.policy.model import Policy
from engine.policy.namespaces import mode_of
from engine.resources.shape import exclusion
from engine.scheduler.devices import reallocate_devices
from engine.topology.topology import Topology

GONE = float("inf")


class HostHealth:
    """The health of one gang's hosts in one reconcile; `now` is the time of day (seconds since the epoch)."""

    def __init__(self, gang: Gang, capacity: Capacity, topologies: Mapping[str, Topology], *, now: float) -> None:
        self._gang = gang
        self._capacity = capacity
        self._topologies = topologies
        self._now = now

    def down(self, host: str) -> float | None:
        """Return for how long a node is not ready (seconds); None if it is, `GONE` if the node does not exist."""
        node = self._capacity.node(host)
        if node is None:
            return GONE
        return None if node.ready else max(0.0, self._now - node.settled_at) if node.settled_at else 0.0

    def gone(self, host: str) -> bool:
        """Return True if the node does not exist."""
        return self.down(host) == GONE

    def lacks_any(self, host: str, labels: Iterable[tuple[str, str]]) -> bool:
        """Return True if the node exists and lacks one of these labels."""
        node = self._capacity.node(host)
        return node is not None and any(node.labels.get(key) != value for key, value in labels)

    def overcommitted(self, host: str) -> bool:
        """Return True if other pods use capacity or devices that are reserved on the host for the gang."""
        return self._capacity.lost_devices(self._gang.key, host) or any(
            self._capacity.overcommitted(host, self._gang.shapes[name].requests, gang=self._gang.key)
            for name, _ in self._slots.get(host, ())
        )

    def usable(self, host: str) -> bool:
        """Return True if future pods of the gang can still run there: the node exists, is ready, and accepts them."""
        node, placement = self._capacity.node(host), self._gang.placement
        if node is None or placement is None:
            return node is not None
        topology = self._topologies.get(placement.topology)
        return not any(
            exclusion(self._gang.shapes[name], node) is not None or left_domain(placement, slot, topology, pod_set=name)
            for name, slot in self._slots.get(host, ())
        )

    def other_devices(self) -> Assignment | None:
        """Return the assignment with other devices where those of future pods are lost; None to keep it."""
        return reallocate_devices(self._gang, self._capacity)

    @cached_property
    def _slots(self) -> dict[str, list[tuple[str, Slot]]]:
        """Return the gang's slots by host, with the names of their pod sets; computed once."""
        assignment = self._gang.placement.assignment if self._gang.placement is not None else None
        found: dict[str, list[tuple[str, Slot]]] = {}
        for plan in assignment.pod_sets if assignment is not None else ():
            for slot in plan.slots if plan.name in self._gang.shapes else ():
                found.setdefault(slot.host, []).append((plan.name, slot))
        return found


# Seconds. A deleted node may be registered again at once, with its pods still on it.
GONE_AFTER = 5.0
_SHOWN = 3  # hosts that a message lists


def losses(gang: Gang, *, hosts: HostHealth, timers: Timers, policy: Policy, now: float) -> Decision | None:
    """Return the reaction to live pods on lost nodes; None if there are none.

    A node is lost if it is not ready for `timeouts.node`, or does not exist any more. With `wait` Kubernetes itself
    evicts the pods, or removes those without a node, and there is only a status to report; a NoAction decision may then
    be followed by others. `wake` is also set for nodes that are not lost yet.
    """
    bound = [pod for pod in gang.pods if pod.spec.node_name and pod.live]
    down = {host: since for host in {pod.spec.node_name for pod in bound} if (since := hosts.down(host)) is not None}
    for host in [host for host in timers.gone_since if down.get(host) != GONE]:
        del timers.gone_since[host]
    left: dict[str, float] = {}
    for host, seconds in down.items():
        if seconds == GONE:
            left[host] = timers.gone_since.setdefault(host, now) + GONE_AFTER - now
        else:
            left[host] = policy.timeouts.node - seconds
    lost = {host for host, seconds in left.items() if seconds <= 0}
    wake = min((now + seconds for seconds in left.values() if seconds > 0), default=None)
    if not lost:
        return Decision(NoAction(), wake=wake) if wake is not None else None
    pods = tuple(pod for pod in bound if pod.spec.node_name in lost)
    said = f"{named(lost)} {_why(lost, down, policy)}, with {plural(len(pods), 'pod')} of the gang"
    are, them, their = ("it is", "it", "its") if len(pods) == 1 else ("they are", "them", "their")
    restarts = policy.node_loss == "restart" and can_suspend(gang.workload)
    held = restarts and mode_of(gang.workload.namespace, policy).holds  # stopped now, it could not start again
    if restarts and not held:
        return Decision(Unplace(suspend=True, reason="NodeLost", message=f"{said}; the gang is restarted"))
    if held or policy.node_loss == "wait":
        message = f"{said}; Kubernetes evicts {them} when {their} toleration ends"
        return Decision(NoAction(), Status("Incomplete", "NodeLost", message), wake=wake)
    status = Status("Incomplete", "NodeLost", f"{said}; {are} evicted")
    orphans = [pod for pod in pods if down[pod.spec.node_name] == GONE]
    if due := timers.remove(orphans, now):
        return Decision(EvictPods(due, evict=False, reason="NodeLost", message=f"{said}; {are} deleted"), status)
    due = timers.remove([pod for pod in pods if pod not in orphans], now)
    if not due:
        return Decision(NoAction(), status, wake=now + REMOVE_AGAIN)
    return Decision(EvictPods(due, evict=True, reason="NodeLost", message=status.message), status)


def stuck(gang: Gang, hosts: HostHealth) -> list[Pod]:
    """Return the pods that terminate on a node that cannot end them, and that no live or completed pod has replaced.

    Controllers of pods with fixed names make no replacement while the old object exists. One that the workload does not
    need any more is missed by nobody.
    """
    if not any(_stranded(pod, hosts) for pod in gang.pods):
        return []
    found: list[Pod] = []
    for pod_set, pods in by_pod_set(gang.workload, gang.pods):
        stranded = [pod for pod in pods if _stranded(pod, hosts)]
        live = [pod for pod in pods if pod.live]
        if rank_is_slot(pod_set):
            missed = set(range(pod_set.slots)) - done_ranks(pod_set, pods) - {rank_of(pod, pod_set) for pod in live}
            stranded = [pod for pod in stranded if rank_of(pod, pod_set) in missed]
        found += stranded if len(live) < pod_set.needed else []
    return found


def _stranded(pod: Pod, hosts: HostHealth) -> bool:
    host = pod.spec.node_name
    return bool(pod.deleting and not pod.finished and host and hosts.down(host) is not None)


def on_gone_node(gang: Gang, hosts: HostHealth) -> bool:
    """Return True if a live pod is bound to a node that does not exist.

    The node may be registered again with the pod on it, and until then its place in the topology is unknown.
    """
    return any(pod.spec.node_name and pod.live and hosts.gone(pod.spec.node_name) for pod in gang.pods)


def in_the_way(host: str, hosts: HostHealth) -> tuple[Code, str]:
    """Return why no pod of the gang can use its slot on a host: the reason code and the message."""
    if hosts.usable(host):
        return "ReservedByOthers", f"capacity reserved on {host} was taken by other pods"
    return "NodeLost", f"{host} does not accept pods of the gang"


def named(hosts: Iterable[str]) -> str:
    """Return the first few of these hosts in words, and the number of the others."""
    ordered = sorted(hosts)
    shown = [sanitize(host) for host in ordered[:_SHOWN]]
    rest = len(ordered) - len(shown)
    return join_and([*shown, *([f"{rest} more"] if rest else [])])


def _why(lost: set[str], down: dict[str, float], policy: Policy) -> str:
    gone = sum(1 for host in lost if down[host] == GONE)
    if gone == len(lost):
        return "was not found" if gone == 1 else "were not found"
    late = f"{'is' if len(lost) == 1 else 'are'} not ready for {policy.timeouts.node:g} s"
    return f"{late} or gone" if gone else late
