"""The rights that the service needs, as in manifests/base/rbac.yaml, plus those that its policy asks for.

A test holds them against the manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from engine.api import names
from engine.kinds.rules import READ, rules
from engine.policy.model import Policy
from webhook.snapshot.granted_rights import NeededRight, rights_of

_ADMISSION: Final = "admissionregistration.k8s.io"
_CONFIGURATIONS: Final = "mutatingwebhookconfigurations,validatingwebhookconfigurations"


def _rights(
    groups: str, resources: str, verbs: Iterable[str], *, objects: Sequence[str] = ("",), namespaced: bool = False
) -> Iterator[NeededRight]:
    for group in groups.split(","):
        for resource in resources.split(","):
            for name in objects:
                yield from (NeededRight(group, resource, verb, name, namespaced) for verb in verbs)


OWN_RIGHTS: Final = frozenset(
    (
        *_rights("", "nodes,pods,resourcequotas,persistentvolumes,persistentvolumeclaims", READ),
        *_rights("apps", "daemonsets", READ),
        *_rights("storage.k8s.io", "storageclasses", READ),
        *_rights("scheduling.k8s.io", "priorityclasses", READ),
        *_rights("node.k8s.io", "runtimeclasses", READ),
        *_rights("scheduling.koordinator.sh", "devices", READ),
        *_rights("kueue.x-k8s.io,kai.scheduler", "topologies", READ),
        *_rights("topology.volcano.sh", "hypernodes", READ),
        *_rights("scheduling.x-k8s.io", "podgroups", READ),
        *_rights("autoscaling.x-k8s.io", "provisioningrequests", (*READ, "create", "delete")),
        *_rights("", "podtemplates", ("create", "delete")),
        *_rights("", "pods", ("patch", "delete")),
        *_rights("", "pods/eviction", ("create",)),
        *_rights(names.API_GROUP, names.PLACEMENTS, (*READ, "create", "patch", "delete")),
        *_rights(names.API_GROUP, f"{names.PLACEMENTS}/status", ("patch",)),
        *_rights("events.k8s.io", "events", ("create",)),
        *_rights(
            _ADMISSION,
            _CONFIGURATIONS,
            READ,
            objects=(names.MUTATING_CONFIGURATION, names.POLICY_CONFIGURATION),
        ),
        *_rights(_ADMISSION, _CONFIGURATIONS, ("patch",), objects=(names.POLICY_CONFIGURATION,)),
        *_rights(
            "coordination.k8s.io",
            "leases",
            ("get", "create", "update", "patch"),
            objects=(names.LEASE_NAME,),
            namespaced=True,
        ),
        *_rights("", "configmaps", READ, objects=(names.POLICY_NAME, names.LAST_GOOD_POLICY_NAME), namespaced=True),
        *_rights("", "configmaps", ("create", "patch"), objects=(names.LAST_GOOD_POLICY_NAME,), namespaced=True),
    )
)
# Only while the policy lets running gangs end or restart for others; an admin may remove the rule without it.
BUDGET_RIGHTS: Final = frozenset(_rights("policy", "poddisruptionbudgets", READ))
# Only a service with a CA of its own needs these: it keeps the CA in a Secret and writes the caBundle of its webhooks.
CA_RIGHTS: Final = frozenset(
    (
        *_rights(_ADMISSION, _CONFIGURATIONS, ("patch",), objects=(names.MUTATING_CONFIGURATION,)),
        *_rights("", "secrets", (*READ, "patch"), objects=(names.CA_SECRET_NAME,), namespaced=True),
        *_rights("", "secrets", ("create",), namespaced=True),
    )
)


def needed_rights(policy: Policy, *, own_ca: bool = True) -> list[NeededRight]:
    """Return the rights that the service needs with a policy, in a stable order.

    `own_ca` is False for a service that takes its certificate from a directory (`--certificates-from`).
    """
    needed = OWN_RIGHTS | {right for rule in rules(policy.registry).cluster_role for right in rights_of(rule)}
    if policy.heeds_budgets:
        needed |= BUDGET_RIGHTS
    return sorted(needed | CA_RIGHTS if own_ca else needed)
