"""Which gangs a PodDisruptionBudget protects: all pods of a victim end, so it has to allow that for all of them."""

from __future__ import annotations

from collections.abc import Iterable

from engine.api.placement import PreemptionIntent
from engine.api.pod import Pod
from engine.cache.state import ClusterState
from engine.capacity.nearby_pods import labels_of, selects
from engine.gang.key import placed_key


def within_budgets(view: ClusterState, namespace: str, pods: Iterable[Pod], *, beside: Iterable[Pod] = ()) -> bool:
    """Return True if no budget of a namespace allows fewer disruptions than it selects of these pods of it.

    `beside`: pods that end for others, and use the budgets too. Pods without a node and those that terminate anyway are
    not disrupted.
    """
    budgets = view.stores.disruption_budgets.get_by(namespace)
    if not budgets:
        return True
    ending = {pod.uid: pod for pod in (*beside, *pods) if pod.namespace == namespace}
    labels = [labels_of(pod.spec.own_labels) for pod in ending.values() if pod.live and pod.spec.node_name]
    return all(sum(selects(budget.selector, one) for one in labels) <= budget.allowed for budget in budgets)


def ending_pods(view: ClusterState, intents: Iterable[PreemptionIntent], others: Iterable[Pod] = ()) -> list[Pod]:
    """Return the pods that intents name, and of `others` those that exist: budgets do not show yet that they end.

    A gang that has other slots since then has ended already. The caller holds the state's lock.
    """
    pods, alone = list(others), set[str]()
    for intent in intents:
        alone.update(one.uid for one in intent.pods)
        for victim in intent.victims:
            placement = view.gangs.intents.placement_of(victim.uid)
            if placement is None or (placement.assignment and placement.assignment.revision != victim.revision):
                continue
            pods += view.gangs.pods_of(placed_key(placement))
    if alone:
        pods += [pod for pod in view.stores.pods.values() if pod.uid in alone]
    return [now for pod in pods if (now := view.pod_now(pod)) is not None]
