"""The health of a gang's hosts: which are lost, and how the policy reacts to pods there. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from engine.api.placement import Assignment, Slot
from engine.api.pod import Pod
from engine.api.reasons import Code
from engine.api.text import join_and, plural, sanitize
from engine.cache.capacity import Capacity
from engine.controller.actions import Decision, EvictPods, NoAction, Status, Unplace
from engine.controller.gang_state import REMOVE_AGAIN, Timers
from engine.gang.gang import Gang, by_pod_set, can_suspend, rank_of
from engine.gang.shape import exclusion
from engine.gang.slots import left_domain
from engine.policy.model import Policy
from engine.scheduler.devices import reallocate_devices
from engine.topology.topology import Topology

GONE = float("inf")


class HostHealth:
    """The hosts of one gang as one reconcile sees them; `now` is the time of day (seconds since the epoch)."""

    def __init__(self, gang: Gang, capacity: Capacity, topologies: Mapping[str, Topology], *, now: float) -> None:
        self._gang = gang
        self._capacity = capacity
        self._topologies = topologies
        self._now = now

    def down(self, host: str) -> float | None:
        """For how long a node is not ready (seconds); None when it is, `GONE` when there is no such node."""
        node = self._capacity.node(host)
        if node is None:
            return GONE
        return None if node.ready else max(0.0, self._now - node.settled_at) if node.settled_at else 0.0

    def overcommitted(self, host: str) -> bool:
        """True when others took room that is reserved there for pods of the gang, or devices of theirs."""
        return self._capacity.lost_devices(self._gang.key, host) or any(
            self._capacity.overcommitted(host, self._gang.shapes[name].requests)
            for name, _ in self._slots.get(host, ())
        )

    def usable(self, host: str) -> bool:
        """True when the pods of the gang that were to go there still can: the node is there, ready, and takes them."""
        node, placement = self._capacity.node(host), self._gang.placement
        if node is None or placement is None:
            return node is not None
        topology = self._topologies.get(placement.topology)
        return not any(
            exclusion(self._gang.shapes[name], node) is not None or left_domain(placement, slot, topology, pod_set=name)
            for name, slot in self._slots.get(host, ())
        )

    def other_devices(self) -> Assignment | None:
        """The assignment with other devices where those of pods to come are lost; None: keep it."""
        return reallocate_devices(self._gang, self._capacity)

    @cached_property
    def _slots(self) -> dict[str, list[tuple[str, Slot]]]:
        """The gang's slots by host, with the names of their pod sets; read once, when it is first asked."""
        assignment = self._gang.placement.assignment if self._gang.placement is not None else None
        found: dict[str, list[tuple[str, Slot]]] = {}
        for plan in assignment.pod_sets if assignment is not None else ():
            for slot in plan.slots if plan.name in self._gang.shapes else ():
                found.setdefault(slot.host, []).append((plan.name, slot))
        return found


# A node that is deleted may be registered again at once, with its pods still on it (seconds).
GONE_AFTER = 5.0
_SHOWN = 3  # hosts that a message names


def losses(gang: Gang, *, hosts: HostHealth, timers: Timers, policy: Policy, now: float) -> Decision | None:
    """What to do about live pods on nodes that are lost; None while none is.

    Lost is a node that is not ready for `timeouts.node`, and one that is not there any more. With `wait` Kubernetes
    itself evicts the pods, or removes those without a node, and there is only something to tell; a decision to rest
    may then be followed by others. `wake` is set also for nodes that are not lost yet.
    """
    bound = [pod for pod in gang.pods if pod.spec.node_name and not (pod.finished or pod.deleting)]
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
    said = f"{plural(len(pods), 'pod')} on {named(lost)}: {_why(lost, down, policy)}"
    if policy.node_loss == "restart" and can_suspend(gang.workload):
        return Decision(Unplace(suspend=True, reason="NodeLost", message=f"{said}; the gang is restarted"))
    if policy.node_loss == "wait":
        message = f"{said}; Kubernetes evicts them when their toleration ends"
        return Decision(NoAction(), Status("Incomplete", "NodeLost", message), wake=wake)
    status = Status("Incomplete", "NodeLost", f"{said}; they are evicted")
    orphans = [pod for pod in pods if down[pod.spec.node_name] == GONE]
    if due := timers.remove(orphans, now):
        return Decision(EvictPods(due, evict=False, reason="NodeLost", message=f"{said}; they are deleted"), status)
    due = timers.remove([pod for pod in pods if pod not in orphans], now)
    if not due:
        return Decision(NoAction(), status, wake=now + REMOVE_AGAIN)
    return Decision(EvictPods(due, evict=True, reason="NodeLost", message=status.message), status)


def stuck(gang: Gang, hosts: HostHealth) -> list[Pod]:
    """Pods that terminate on a node that is not there to end them, and that nothing has replaced.

    Controllers whose pods have fixed names make no other one while the old object exists.
    """
    if not any(_stranded(pod, hosts) for pod in gang.pods):
        return []
    found: list[Pod] = []
    for pod_set, pods in by_pod_set(gang.workload, gang.pods):
        live = [pod for pod in pods if not (pod.finished or pod.deleting)]
        ranks = {rank_of(pod, pod_set) for pod in live}
        found += [
            pod
            for pod in pods
            if _stranded(pod, hosts)
            and (rank_of(pod, pod_set) not in ranks if pod_set.ranked else len(live) < pod_set.slots)
        ]
    return found


def _stranded(pod: Pod, hosts: HostHealth) -> bool:
    host = pod.spec.node_name
    return bool(pod.deleting and not pod.finished and host and hosts.down(host) is not None)


def on_gone_node(gang: Gang, hosts: HostHealth) -> bool:
    """True when a live pod is bound to a node that does not exist: it may be registered again with the pod on it, and
    no topology tells meanwhile where that was.
    """
    return any(
        pod.spec.node_name and not (pod.finished or pod.deleting) and hosts.down(pod.spec.node_name) == GONE
        for pod in gang.pods
    )


def in_the_way(host: str, hosts: HostHealth) -> tuple[Code, str]:
    """Why no pod of the gang can go to its slot on a host: the reason code, and the same for people."""
    if hosts.usable(host):
        return "ReservedByOthers", f"room reserved on {host} was taken by other pods"
    return "NodeLost", f"{host} no longer accepts pods"


def named(hosts: Iterable[str]) -> str:
    """The first few of these hosts, and how many more."""
    ordered = sorted(hosts)
    shown = [sanitize(host) for host in ordered[:_SHOWN]]
    rest = len(ordered) - len(shown)
    return join_and([*shown, *([f"{rest} more"] if rest else [])])


def _why(lost: set[str], down: dict[str, float], policy: Policy) -> str:
    gone = sum(1 for host in lost if down[host] == GONE)
    if gone == len(lost):
        return "node not found"
    late = f"not ready for {policy.timeouts.node:g} s"
    return f"{late} or gone" if gone else late
