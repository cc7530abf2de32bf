"""Which gangs a PodDisruptionBudget protects: all pods of a victim end, so it has to allow that for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

from engine.api.objects import DisruptionBudget
from engine.api.placement import PreemptionIntent
from engine.api.pod import Pod
from engine.cache.state import ClusterState
from engine.capacity.nearby_pods import labels_of, selects
from engine.gang.key import placed_key

# Disruption budgets of one namespace; with more of them nothing of it is made to end.
MAX_BUDGETS: Final = 256


def within_budgets(view: ClusterState, pods: Iterable[Pod], *, beside: Iterable[Pod] = ()) -> bool:
    """Return True if the disruption budgets allow these pods to end; `beside` as in `jointly_within_budgets`."""
    return jointly_within_budgets(view, {"": pods}, beside=beside)([""])


def jointly_within_budgets(
    view: ClusterState, pods_of: Mapping[str, Iterable[Pod]], *, beside: Iterable[Pod] = ()
) -> Callable[[Iterable[str]], bool]:
    """Return the test whether the disruption budgets allow some of these gangs to end together, with all their pods.

    A budget that selects pods of them has to allow at least as many disruptions. `beside`: pods that end for others,
    and use the budgets too. Pods without a node and those that terminate anyway are not disrupted. The test knows the
    budgets and pods as they are now, and needs no lock.
    """
    others = {pod.uid: pod for pod in beside}
    own = {key: [pod for pod in pods if pod.uid not in others] for key, pods in pods_of.items()}
    allowances: list[tuple[int, Counter[str]]] = []  # of each budget: what is left of it, and what each gang takes
    for namespace in {pod.namespace for pods in own.values() for pod in pods}:
        budgets = list(islice(view.stores.disruption_budgets.get_by(namespace), MAX_BUDGETS + 1))
        known = {key: _by_labels(pods, namespace) for key, pods in own.items()} if budgets else {}
        beside_here = _by_labels(others.values(), namespace) if budgets else {}
        if len(budgets) > MAX_BUDGETS:  # each is compared with each pod: nothing of the namespace ends
            allowances.append((0, Counter({key: sum(here.values()) for key, here in known.items()})))
            continue
        for budget in budgets:
            taken = Counter({key: _disrupted(here, budget) for key, here in known.items()})
            allowances.append((budget.allowed - _disrupted(beside_here, budget), taken))

    def allowed(keys: Iterable[str]) -> bool:
        chosen = list(keys)
        used = ((left, sum(taken[key] for key in chosen)) for left, taken in allowances)
        return all(not count or count <= left for left, count in used)

    return allowed


def _by_labels(pods: Iterable[Pod], namespace: str) -> Counter[tuple[str, ...]]:
    """Return how many of some pods budgets of a namespace count when they end, by their labels."""
    here = (pod for pod in pods if pod.namespace == namespace and pod.live and pod.spec.node_name)
    return Counter(pod.spec.own_labels for pod in here)


def _disrupted(pods: Mapping[tuple[str, ...], int], budget: DisruptionBudget) -> int:
    """Return how many of some pods, by their labels, a budget counts when they end."""
    return sum(number for labels, number in pods.items() if selects(budget.selector, labels_of(labels)))


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
