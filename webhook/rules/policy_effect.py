"""What a policy would do to the gangs that exist, in numbers: gangs that it lets go, and levels that it drops. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from engine.api.names import AUTO, HOST_LEVEL
from engine.api.placement import Placement, named_levels
from engine.api.text import plural, quote, sanitize
from engine.gang.exemption import manages
from engine.policy.model import Policy
from engine.policy.namespaces import mode_of
from engine.topology.topology import Topology


def lost_levels(placement: Placement, topologies: Mapping[str, Topology]) -> Iterator[str]:
    """Yield what a gang requests and these topologies do not have, in words; nothing while levels are not known."""
    topology = topologies.get(placement.topology)
    if topology is None:
        if placement.topology:
            yield f"topology {quote(placement.topology)}"
        return
    if topology.waits:
        return
    known = {*(level.name for level in topology.levels), AUTO, HOST_LEVEL}
    for level in named_levels(placement.pod_sets, placement.gang, placement.separation):
        if level not in known:
            yield f"level {quote(level)} of topology {sanitize(topology.name)}"


class _Count:
    """The gangs that one change concerns: those that wait, those with slots, and their namespaces."""

    def __init__(self) -> None:
        self.waiting = 0
        self.placed = 0
        self.namespaces: set[str] = set()

    def add(self, placement: Placement) -> None:
        """Count a gang."""
        self.waiting += placement.assignment is None
        self.placed += placement.assignment is not None
        self.namespaces.add(placement.namespace)


def policy_effects(
    placements: Iterable[Placement],
    *,
    before: Policy,
    after: Policy,
    topologies: tuple[Mapping[str, Topology], Mapping[str, Topology]],
    own_namespace: str,
) -> Iterator[str]:
    """Yield warnings about gangs that another policy lets go or puts on hold, and about levels that it drops.

    Numbers alone: who may write the policy need not be allowed to see the gangs of all namespaces. `topologies`: those
    under the policy in force, and under the new one; without nodes levels are not compared.
    """
    let_go, held, lost = _Count(), _Count(), dict[str, _Count]()
    states: dict[str, tuple[bool, bool, bool]] = {}
    for one in placements:
        if one.status.get("phase") == "Finished":
            continue
        if one.namespace not in states:
            managed = [manages(one.namespace, policy=policy, own_namespace=own_namespace) for policy in (before, after)]
            holds = mode_of(one.namespace, after).holds and not mode_of(one.namespace, before).holds
            states[one.namespace] = (managed[0], managed[1], holds)
        was, stays, holds = states[one.namespace]
        if was and not stays:
            let_go.add(one)
        elif was and holds and one.assignment is None:
            held.add(one)
        # What there was not can be gone for nobody: gangs name what their users like.
        had = topologies[0].get(one.topology)
        known = had is not None and (not had.waits or one.topology not in topologies[1])
        if was and stays and known and all(topologies):
            for what in set(lost_levels(one, topologies[1])) - set(lost_levels(one, topologies[0])):
                lost.setdefault(what, _Count()).add(one)
    if let_go.namespaces:
        where, waiting = plural(len(let_go.namespaces), "namespace"), plural(let_go.waiting, "waiting gang")
        yield f"it lets {waiting} go and takes the slots of {let_go.placed:,}, in {where}"
    if held.namespaces:
        where = plural(len(held.namespaces), "namespace")
        yield f"mode hold: {plural(held.waiting, 'waiting gang')} in {where} will not be placed"
    for what, count in sorted(lost.items()):
        waiting = plural(count.waiting, "waiting gang")
        yield f"{what} is gone: {waiting} stay held, {count.placed:,} with slots cannot be submitted again"
    if let_go.namespaces or held.namespaces or lost:
        yield "topogate policy check --cluster lists the gangs"
