"""Decides which requests for a topology are exempt: by policy, namespace, Kueue, or another scheduler."""

from __future__ import annotations

from collections.abc import Sequence

from engine.api import names
from engine.api.pod import PodSpec
from engine.api.reasons import Code
from engine.api.text import did_you_mean, join_and, quote
from engine.api.workload import Workload
from engine.policy.model import Policy
from engine.policy.namespaces import mode_of
from engine.policy.patterns import matches


def exemption_reason(workload: Workload, *, policy: Policy, own_namespace: str = names.NAMESPACE) -> Code | None:
    """Return the reason code why a workload with a request is exempt; None when we manage it."""
    if mode_of(workload.namespace, policy).is_off:
        return "PolicyOff"
    if is_exempt(workload.namespace, policy=policy, own_namespace=own_namespace):
        return "ExemptNamespace"
    if kueue_queues(workload):
        return "ManagedByKueue"
    if workload.managed_elsewhere is not None:
        return workload.managed_elsewhere
    if names.EXCLUSIVE_TOPOLOGY & workload.annotations.keys():
        return "ExclusiveTopology"
    found = (template_exemption(pod_set.template, policy=policy) for pod_set in workload.pod_sets)
    return next((reason for reason in found if reason is not None), None)


def template_exemption(spec: PodSpec, *, policy: Policy) -> Code | None:
    """Return the reason code why a template, or a pod itself, is exempt; None when it is not."""
    if kueue_has(spec):
        return "ManagedByKueue"
    if spec.has_scheduling_group:
        return "CoreGang"
    if names.EXCLUSIVE_TOPOLOGY & spec.annotations.keys():
        return "ExclusiveTopology"
    if (spec.scheduler_name or names.DEFAULT_SCHEDULER) not in policy.schedulers:
        return "OtherScheduler"
    if spec.node_name:
        return "NodeNameSet"
    return None


def kueue_queues(workload: Workload) -> bool:
    """True when the workload itself is in a queue of Kueue, which resumes it when it admits it."""
    return names.KUEUE_QUEUE in workload.labels or names.KUEUE_QUEUE in workload.annotations


def kueue_has(spec: PodSpec) -> bool:
    """True when Kueue manages a template or a pod: Kueue annotates what it admits before it starts."""
    return (
        names.KUEUE_QUEUE in spec.labels
        or names.KUEUE_WORKLOAD in spec.annotations
        or any(gate.startswith(names.KUEUE_GATE_PREFIX) for gate in spec.gates)
    )


def manages(namespace: str, *, policy: Policy, own_namespace: str) -> bool:
    """True for a namespace in which gangs are placed: by its mode, and not exempt."""
    return mode_of(namespace, policy).manages and not is_exempt(namespace, policy=policy, own_namespace=own_namespace)


def is_exempt(namespace: str, *, policy: Policy, own_namespace: str) -> bool:
    """True for our own namespace and those that the policy exempts (names or patterns)."""
    return namespace == own_namespace or matches(namespace, policy.namespaces.exempt)


def exemption_text(reason: Code, kind: str, namespace: str, pods: Sequence[PodSpec], policy: Policy) -> str | None:
    """Return why a workload or a pod of this kind is left alone, and what to do; None where there is nothing to do."""
    match reason:
        case "OtherScheduler":
            found = (one.scheduler_name or names.DEFAULT_SCHEDULER for one in pods)
            other = next((name for name in found if name not in policy.schedulers), "")
            served = did_you_mean(other, policy.schedulers) or f"; use {join_and(policy.schedulers, 'or')}"
            return f"schedulerName {quote(other)} is not served{served}"
        case "NodeNameSet":
            return "nodeName binds the pods without a scheduler; use a nodeSelector to be placed"
        case "OtherController":
            return f"managedBy gives this {kind} to another controller; remove it to be placed"
        case "ManagedByKueue":
            return f"Kueue manages this {kind} (queue-name, gate or managedBy); remove that to be placed here"
        case "CoreGang":
            return f"Kubernetes' gang scheduling manages this {kind}; remove its scheduling group to be placed here"
        case "ExclusiveTopology":
            return f"its exclusive-topology annotation places this {kind}; remove it to be placed here"
        case "ExemptNamespace":
            return f"the policy exempts the namespace {quote(namespace)}"
        case _:
            return None
