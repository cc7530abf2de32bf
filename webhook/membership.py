"""Whose pod is it: the gang of a pod under creation, found by its controller reference and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from engine import names
from engine.aside import exempt, template_aside
from engine.members import pod_set_of
from engine.policy import Policy
from engine.records import OwnerRef, Pod, PodSet, PodSetRequest, Workload
from engine.requests import understand
from engine.view import belongs
from webhook.view import View


@dataclass(frozen=True, slots=True)
class Stranger:
    """No pod of ours: nothing asks for it to be held. `reason` is the reason code where its workload has one."""

    reason: str = "NoTopologyRequested"


@dataclass(frozen=True, slots=True)
class Unsure:
    """Perhaps ours: its workload is not in the cache yet, or its request cannot be read under the policy in force."""


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of `pod_set` of the gang of `workload`, which asks for `ask`."""

    workload: Workload
    pod_set: PodSet
    ask: PodSetRequest


Membership = Stranger | Unsure | Member


def membership(pod: Pod, view: View, policy: Policy) -> Membership:
    """Follow the controller reference (kind, name, uid, in the pod's own namespace); labels prove nothing."""
    if exempt(pod.namespace, policy=policy, own_namespace=view.own_namespace):
        return Stranger("ExemptNamespace")
    owner = pod.owner
    if owner is None or not registered(owner):
        return Stranger("DaemonSetOrStatic" if owner is not None and owner.kind == "DaemonSet" else "UnsupportedKind")
    workload = view.workload(owner.api_version.rpartition("/")[0], owner.kind, pod.namespace, owner.name)
    if workload is None or not belongs(pod, workload):
        return Stranger("ManagedByKueue") if _in_kueue(pod) else Unsure()
    understanding = understand(workload, policy=policy, topologies=view.topologies, own_namespace=view.own_namespace)
    if understanding.ignored is not None:
        return Stranger(understanding.ignored)
    pod_set = pod_set_of(pod, workload)
    if understanding.ask is None or pod_set is None:
        return Unsure()
    return Member(workload, pod_set, understanding.ask)


def pod_aside(pod: Pod, view: View, policy: Policy) -> bool:
    """True for pods that are left alone, whatever they ask for."""
    if pod.mirror or (pod.owner is not None and pod.owner.kind == "DaemonSet"):
        return True
    if exempt(pod.namespace, policy=policy, own_namespace=view.own_namespace):
        return True
    return template_aside(pod.spec, policy=policy) is not None


def registered(owner: OwnerRef) -> bool:
    """True when the owner is of a kind that can be placed, whatever version of its group the reference names."""
    return (owner.api_version.rpartition("/")[0], owner.kind) == ("batch", "Job")


def _in_kueue(pod: Pod) -> bool:
    """True when the pod itself shows that Kueue has it."""
    return names.KUEUE_QUEUE in pod.spec.labels or any(
        gate.startswith(names.KUEUE_GATE_PREFIX) for gate in pod.spec.gates
    )
