"""Which gangs a PodDisruptionBudget protects: all pods of a victim end, so it has to allow that for all of them."""

from __future__ import annotations

from collections.abc import Collection

from engine.api.pod import Pod
from engine.cache.state import ClusterState
from engine.capacity.nearby_pods import labels_of, selects


def within_budgets(view: ClusterState, namespace: str, pods: Collection[Pod]) -> bool:
    """Return True if no budget of a namespace allows fewer disruptions than it selects of these pods of it.

    Pods without a node and those that terminate anyway are not disrupted.
    """
    budgets = view.stores.disruption_budgets.get_by(namespace)
    if not budgets:
        return True
    labels = [labels_of(pod.spec.own_labels) for pod in pods if pod.live and pod.spec.node_name]
    return all(sum(selects(budget.selector, one) for one in labels) <= budget.allowed for budget in budgets)
