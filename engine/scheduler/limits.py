"""What the policy sets for a namespace and its gangs wait for: its mode, and limits of waiting gangs and of hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.api.text import plural
from engine.cache.state import ClusterState
from engine.gang.gang import Gang
from engine.policy.model import Policy
from engine.policy.namespaces import mode_of, rule_of
from engine.scheduler.outcome import Outcome, Placed, Waits
from engine.scheduler.separation import exclusive_hosts, kept_hosts
from engine.topology.topology import Topology


def on_hold(namespace: str, policy: Policy) -> Waits | None:
    """Return the outcome of a gang that may not be placed now because of the mode; None if it may."""
    mode = mode_of(namespace, policy)
    return Waits("PolicyHold", f"{mode.text}; nothing new is placed until that changes") if mode.holds else None


def waiting_limit(namespace: str, policy: Policy) -> int | None:
    """Return how many gangs of a namespace may wait for capacity at a time; None: any number."""
    rule = rule_of(namespace, policy)
    return rule.rule.max_waiting_gangs if rule is not None else None


def too_many_waiting(namespace: str, policy: Policy) -> Waits:
    """Return the outcome of a gang above its namespace's limit of waiting gangs."""
    rule = rule_of(namespace, policy)
    assert rule is not None and rule.rule.max_waiting_gangs is not None
    limit = rule.rule.max_waiting_gangs
    gangs = f"{plural(limit, 'gang')} of its namespace {'waits' if limit == 1 else 'wait'}"
    return Waits(
        "WaitingGangsLimit",
        f"{gangs} ahead of it, which is the limit ({rule.field('maxWaitingGangs')})",
    )


def within_host_limit(
    view: ClusterState,
    gang: Gang,
    outcome: Outcome,
    *,
    topology: Topology | None,
    plan: Callable[[frozenset[str]], Outcome],
) -> Outcome:
    """Return a plan within `maxReservedHosts` of the gang's namespace, or why it waits.

    A plan on too many hosts is made once more (`plan`, with the hosts to leave out) on those that the namespace has and
    on as many of the new ones as it may have.
    """
    rule = rule_of(gang.workload.namespace, view.policy)
    limit = rule.rule.max_reserved_hosts if rule is not None else None
    if rule is None or limit is None or not isinstance(outcome, Placed):
        return outcome
    known = view.gangs.hosts_in(gang.workload.namespace, besides=gang.key)
    kept = kept_hosts(view, gang.workload.namespace, besides=gang.key)
    has = "has slots on" if kept <= known else "has slots on, or keeps,"
    known |= kept
    assigned = gang.placement.assignment if gang.placement is not None else None

    def with_domains(hosts: Iterable[str]) -> list[str]:
        """Return hosts with the others of their domains, if the gang keeps those: such a domain counts whole."""
        found = [*hosts]
        known_here = frozenset(found if topology is None else (one for one in found if one in topology.tree.index))
        if topology is not None:
            found += sorted(exclusive_hosts(known_here, gang.request.separation, topology).difference(found))
        return found

    if assigned is not None:
        known.update(with_domains(assigned.hosts))

    def new_hosts(placed: Placed) -> list[str]:
        return [host for host in with_domains(_hosts_of(placed)) if host not in known]

    new = new_hosts(outcome)
    if not new or len(known) + len(new) <= limit:
        return outcome
    allowed = known.union(new[: max(0, limit - len(known))])
    if allowed and topology is not None:
        again = plan(frozenset(topology.tree.hosts) - allowed)
        if isinstance(again, Placed) and len(known) + len(new_hosts(again)) <= limit:
            return again
    there = f"; its namespace {has} {plural(len(known), 'host')}" if known else ""
    return Waits(
        "ReservedHostsLimit",
        f"needs {plural(len(new), 'more host' if known else 'host')}{there}; the limit is {limit:,} "
        f"({rule.field('maxReservedHosts')})",
    )


def _hosts_of(placed: Placed) -> Iterable[str]:
    """Return the hosts of a plan, in its order."""
    return dict.fromkeys(slot.host for pods in placed.pod_sets for slot in pods.slots)
