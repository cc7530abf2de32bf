"""What ends, or would end, so that a waiting gang starts, and for whom a gang has ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.api.duration import timestamp
from engine.api.placement import PreemptionIntent, preemption_intent
from engine.gang.gang import Gang, host_of
from engine.preemption.preempt import preemption_for, victims_may_help
from engine.preemption.victims import Victim
from engine.scheduler.outcome import Outcome
from webhook.queries import model as output
from webhook.queries.forecast import plan_now
from webhook.queries.gangs import gang_name
from webhook.queries.names import workload_label
from webhook.snapshot.snapshot import Snapshot

_MOST_NAMED: Final = 20


def preemption_of(
    snapshot: Snapshot, gang: Gang, outcome: Outcome | None, *, waited: float
) -> output.ExplainedPreemption | None:
    """Return what ends for a waiting gang, or would by the policy; None if nothing does.

    `outcome`: what the planner says of it now; `waited`: for how many seconds it has waited.
    """
    intent = preemption_intent(gang.status)
    if intent.active:
        return _under_way(snapshot, intent)
    rules = snapshot.view.policy.preemption
    if rules.mode == "never" or outcome is None or not victims_may_help(outcome):
        return None
    found = preemption_for(
        snapshot.view,
        gang,
        plan=lambda: plan_now(snapshot, gang),
        others=rules.victims == "all",
        protect=rules.protect,
        own_namespace=snapshot.view.own_namespace,
        now=snapshot.taken,
    )
    if found is None:
        return None
    begins = max(snapshot.taken + rules.after - waited, intent.retry_at)
    return output.ExplainedPreemption(
        since=None,
        begins=timestamp(begins) if begins > snapshot.taken else None,
        count=len(found.victims),
        pods=sum(one.count for one in found.victims),
        running=sum(one.count for one in found.victims),
        victims=tuple(_possible(one) for one in found.victims[:_MOST_NAMED]),
    )


def preemptor_of(snapshot: Snapshot, gang: Gang) -> str | None:
    """Return the waiting gang for which a gang ends or has ended; None if it is not a victim now."""
    placement = gang.placement
    if placement is None or not placement.uid:
        return None
    intents, assignment = snapshot.view.gangs.intents, placement.assignment
    for key in intents.naming(placement.uid):
        other = snapshot.view.gangs.get(key)
        if other is None:
            continue
        named = [one for one in preemption_intent(other.status).victims if one.uid == placement.uid]
        if named and (assignment is None or assignment.revision == named[0].revision):
            return gang_name(other)
    return None


def _possible(victim: Victim) -> output.PreemptedGang:
    group = "" if victim.group is None else f"[{victim.group}]"
    name = f"{victim.namespace}/{workload_label(victim.kind, victim.name)}{group}"
    return output.PreemptedGang(name=name, priority=victim.priority, pods=victim.count, running=victim.count)


def _under_way(snapshot: Snapshot, intent: PreemptionIntent) -> output.ExplainedPreemption:
    victims = list(_ending(snapshot, intent))
    others = {one.uid for one in intent.pods}
    left = sum(pod.uid in others and not pod.finished for pod in snapshot.view.stores.pods.values()) if others else 0
    if others:
        victims.append(output.PreemptedGang(name=None, priority=None, pods=len(others), running=left))
    return output.ExplainedPreemption(
        since=timestamp(intent.since) if intent.since is not None else None,
        begins=None,
        count=len(intent.victims),
        pods=sum(one.pods for one in intent.victims) + len(others),
        running=sum(one.running for one in victims if one.running is not None),
        victims=tuple(victims[:_MOST_NAMED]),
    )


def _ending(snapshot: Snapshot, intent: PreemptionIntent) -> Iterator[output.PreemptedGang]:
    """Yield the gangs that end, with how many of their pods still run; without a name those that cannot be read."""
    for victim in intent.victims:
        name, running, placement = None, None, snapshot.view.gangs.intents.placement_of(victim.uid)
        if placement is not None:
            group = "" if placement.group is None else f"[{placement.group}]"
            label = workload_label(placement.workload.kind, placement.workload.name)
            name = f"{placement.namespace}/{label}{group}"
            pods = snapshot.view.stores.pods.get_by(placement.key)
            running = sum(not pod.finished and host_of(pod) is not None for pod in pods)
        yield output.PreemptedGang(name=name, priority=victim.priority, pods=victim.pods, running=running)
