"""What a policy would change for what exists: topologies, namespaces and gangs before and after. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from engine.api.field import FieldError, render
from engine.api.reasons import REASONS, Why, asks_nothing
from engine.api.text import join_comma, plural, sanitize
from engine.api.workload import GangKey
from engine.cache.state import ClusterState
from engine.gang.gang import Gang, ours
from engine.policy.model import Policy
from engine.policy.namespaces import RuleInForce, mode_of, modes_text, rule_of
from engine.topology.topology import Topology, covered, uncovered
from webhook.checks.model import (
    ChangedGang,
    ChangedNamespace,
    ChangedTopology,
    GangFate,
    NamedPolicy,
    PolicyChange,
    TopologyNodes,
)
from webhook.checks.queue_change import queue_change, queue_state
from webhook.snapshot.snapshot import Snapshot

NOT_SERVED: Final = (
    "the cluster serves no ProvisioningRequests (autoscaling.x-k8s.io/v1 or v1beta1); install the definition of the "
    "cluster autoscaler"
)
_MOST_TEXT: Final = 300  # characters of a reason


@dataclass(frozen=True, slots=True)
class _Seen:
    """A gang under one policy; `error`: the first error of its request."""

    gang: Gang
    managed: bool
    error: FieldError | None
    on_hold: bool

    @property
    def placed(self) -> bool:
        """True if it has slots."""
        return self.gang.placement is not None and self.gang.placement.assignment is not None


@dataclass(frozen=True, slots=True)
class _State:
    """What a policy makes of the cluster."""

    policy: Policy
    gangs: Mapping[GangKey, _Seen]
    topologies: Mapping[str, TopologyNodes]


@contextmanager
def under(view: ClusterState, policy: Policy) -> Iterator[ClusterState]:
    """Let a policy be in force in a state; afterwards it is as it was before."""
    in_force = view.policy
    view.set_policy(policy)
    try:
        yield view
    finally:
        view.set_policy(in_force)


def topology_nodes(topologies: Iterable[Topology]) -> tuple[TopologyNodes, ...]:
    """Return what topologies take of the nodes."""
    return tuple(
        TopologyNodes(
            name=one.name,
            levels=tuple(level.name for level in one.levels),
            nodes=len(one.tree.hosts),
            found=covered(one),
            empty=uncovered(one) or None,
        )
        for one in topologies
    )


def policy_change(snapshot: Snapshot, policy: Policy) -> PolicyChange:
    """Return what the policy would change, compared with the one under which the snapshot was read."""
    view, in_force = snapshot.view, snapshot.view.policy
    before = _state(view)
    queues = [queue_state(view, _in_line(before), taken=snapshot.taken)]
    with under(view, policy):
        after = _state(view)
        queues.append(queue_state(view, _in_line(after), taken=snapshot.taken))
    kinds = {entry.name for entry in policy.registry.own} - {entry.name for entry in in_force.registry.own}
    unknown = (f"objects of the new kinds ({join_comma(sorted(kinds))}) are not compared",) if kinds else ()
    return PolicyChange(
        in_force=NamedPolicy(hash=in_force.hash, mode=modes_text(in_force)),
        topologies=tuple(_changed_topologies(before, after)) if snapshot.nodes_known else (),
        namespaces=tuple(_changed_namespaces(view, before, after)),
        gangs=tuple(sorted(_changed_gangs(before, after), key=_order)),
        queue=queue_change(queues[0], queues[1], taken=snapshot.taken),
        remarks=(*snapshot.remarks, *unknown, *_without_api(snapshot, policy)),
    )


def _without_api(snapshot: Snapshot, policy: Policy) -> Iterator[str]:
    if policy.autoscaling.on and snapshot.provisioning == "":
        yield f"autoscaling has no effect yet: {NOT_SERVED}"


def _in_line(state: _State) -> list[Gang]:
    """Return the gangs that wait for room."""
    seen = state.gangs.values()
    return [one.gang for one in seen if one.managed and not one.placed and not one.on_hold and one.error is None]


def _state(view: ClusterState) -> _State:
    keys = view.gangs.keys()
    gangs = {key: seen for key in keys if (seen := _seen(view, key)) is not None}
    return _State(view.policy, gangs, {one.name: one for one in topology_nodes(view.topologies.values())})


def _seen(view: ClusterState, key: GangKey) -> _Seen | None:
    """Return a gang that is held or placed under the policy in force, or that an earlier one has left so."""
    gang = view.gangs.get(key)
    if gang is None or gang.workload.finished or gang.workload.deleting or gang.workload.handling == "through":
        return None
    if gang.placement is None and not ours(gang.workload) and not any(pod.held for pod in gang.pods):
        return None
    mode = mode_of(gang.workload.namespace, view.policy)
    error = next((one for one in gang.request.errors if not REASONS[one.reason].waits), None)
    return _Seen(gang, mode.manages and gang.request.ignored is None, error, mode.holds)


def _changed_topologies(before: _State, after: _State) -> Iterator[ChangedTopology]:
    """Yield the topologies of either policy: those that differ, and those without nodes."""
    for name in dict.fromkeys((*before.topologies, *after.topologies)):
        old, new = before.topologies.get(name), after.topologies.get(name)
        found = ChangedTopology(
            name=name,
            nodes_before=old.nodes if old is not None else None,
            nodes_after=new.nodes if new is not None else None,
            levels_before=old.levels if old is not None else (),
            levels_after=new.levels if new is not None else (),
            empty=new.empty if new is not None else None,
        )
        same = found.nodes_before == found.nodes_after and found.levels_before == found.levels_after
        if not same or found.empty:
            yield found


def _changed_gangs(before: _State, after: _State) -> Iterator[ChangedGang]:
    for key, old in before.gangs.items():
        if not old.managed or (found := _fate(old, after.gangs.get(key), after.policy)) is None:
            continue
        change, reason, why = found
        workload = old.gang.workload
        yield ChangedGang(
            namespace=workload.namespace,
            kind=workload.kind,
            name=workload.name,
            group=old.gang.group,
            placed=old.placed,
            change=change,
            reason=reason,
            message=sanitize(why, _MOST_TEXT),
        )


def _order(one: ChangedGang) -> tuple[str, str, str, str]:
    return (one.namespace, one.kind, one.name, one.group or "")


def _fate(old: _Seen, new: _Seen | None, policy: Policy) -> tuple[GangFate, Why, str] | None:
    """Return what becomes of a managed gang, with the reason code and the sentence; None if nothing does."""
    if new is None or not new.managed:
        mode = mode_of(old.gang.workload.namespace, policy)
        ignored = new.gang.request.ignored if new is not None else None
        fate: GangFate = "unmanaged" if old.placed else "released"
        if not mode.manages:
            return fate, "PolicyOff", mode.text
        if ignored is None or asks_nothing(ignored):
            return fate, "NoTopologyRequested", "its request is not read any more (kinds, annotations.dialects)"
        return fate, ignored, REASONS[ignored].description
    if new.error is not None and (old.error is None or old.error.reason != new.error.reason):
        text = f"{new.error.field}: {render(new.error)}"
        return ("exceeds" if old.placed else "blocked"), new.error.reason, text
    if old.placed:
        return None
    if new.on_hold and not old.on_hold:
        return "on-hold", "PolicyHold", mode_of(old.gang.workload.namespace, policy).text
    if old.error is not None and new.error is None:
        return "unblocked", "", f"no longer: {old.error.field}: {render(old.error)}"
    if old.on_hold and not new.on_hold:
        return "unblocked", "", "no longer on hold"
    return None


def _changed_namespaces(view: ClusterState, before: _State, after: _State) -> Iterator[ChangedNamespace]:
    """Yield the namespaces with gangs for which mode or rule differ, or that exceed a limit of the new policy."""
    waiting: dict[str, int] = {}
    placed: dict[str, int] = {}
    for seen in before.gangs.values():
        if seen.managed:
            counts = placed if seen.placed else waiting
            counts[seen.gang.workload.namespace] = counts.get(seen.gang.workload.namespace, 0) + 1
    for namespace in sorted({*waiting, *placed}):
        modes = [mode_of(namespace, one.policy).mode for one in (before, after)]
        rules = [rule_of(namespace, one.policy) for one in (before, after)]
        may = [rule is None or rule.rule.allow for rule in rules]
        hosts = len(view.gangs.hosts_in(namespace))
        over = tuple(_over(rules[1], waiting.get(namespace, 0), hosts))
        same_rule = [rule.rule.model_dump(exclude={"namespaces"}) if rule is not None else None for rule in rules]
        if modes[0] == modes[1] and same_rule[0] == same_rule[1]:
            continue
        yield ChangedNamespace(
            namespace=namespace,
            mode_before=modes[0],
            mode_after=modes[1],
            allowed_before=may[0],
            allowed_after=may[1],
            waiting=waiting.get(namespace, 0),
            placed=placed.get(namespace, 0),
            over=over,
        )


def _over(rule: RuleInForce | None, waiting: int, hosts: int) -> Iterator[str]:
    if rule is None:
        return
    most, most_hosts = rule.rule.max_waiting_gangs, rule.rule.max_reserved_hosts
    if most is not None and waiting > most:
        yield f"{plural(waiting, 'gang')} waiting; the limit is {most:,} ({rule.path}.maxWaitingGangs)"
    if most_hosts is not None and hosts > most_hosts:
        yield f"slots on {plural(hosts, 'host')}; the limit is {most_hosts:,} ({rule.path}.maxReservedHosts)"
