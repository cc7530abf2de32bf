"""The webhook entries of the manifests as data: what is sent, to which path, and what its absence means.

`manifests/base/webhooks.yaml` is generated from here (`python -m hack.reference`); what a policy adds to it is built
of the same parts (`webhook.policy_entries`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from engine import names
from engine.kinds import KindEntry, Registry, rules
from webhook import conditions

Resource = Literal["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
MUTATING: Final[Resource] = "mutatingwebhookconfigurations"
VALIDATING: Final[Resource] = "validatingwebhookconfigurations"
EXEMPT: Final = "kube-system"
WORKLOADS_TIMEOUT: Final = 3  # seconds
PODS_TIMEOUT: Final = 2

POD_RULE: Final[Mapping[str, Any]] = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["pods"],
    "operations": ["CREATE"],
    "scope": "Namespaced",
}
_CONFIG_MAP_RULE: Final[Mapping[str, Any]] = {
    **POD_RULE,
    "resources": ["configmaps"],
    "operations": ["CREATE", "UPDATE"],
}

_UNMARKED: Final[Mapping[str, Any]] = {"key": names.MANAGED, "operator": "DoesNotExist"}

_FREE_NOTE: Final = (
    "DaemonSet pods and pods that have their node already (mirror pods too) are left alone, service or no service."
)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of an entry; all of an entry's must hold. `note` says why it is there."""

    name: str
    expression: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a webhook configuration.

    `within`: only our own namespace, else all but it and the exempt ones. `unmarked`: only objects without the label of
    a gang's pods, which a selector tells before any condition is evaluated.
    """

    name: str
    failure: Literal["Fail", "Ignore"]
    timeout: int
    rules: tuple[Mapping[str, Any], ...]
    conditions: tuple[Condition, ...]
    note: str = ""
    within: bool = False
    exempt: tuple[str, ...] = (EXEMPT,)
    unmarked: bool = False

    def body(self, resource: Resource, *, namespace: str) -> dict[str, Any]:
        """Return the entry as it stands in a configuration, without `clientConfig`."""
        values = [namespace] if self.within else sorted({*self.exempt, namespace})
        selector = {"key": "kubernetes.io/metadata.name", "operator": "In" if self.within else "NotIn"}
        reinvoked = {"reinvocationPolicy": "IfNeeded"} if resource == MUTATING else {}
        return {
            "name": self.name,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "matchPolicy": "Equivalent",
            **reinvoked,
            "failurePolicy": self.failure,
            "timeoutSeconds": self.timeout,
            "namespaceSelector": {"matchExpressions": [{**selector, "values": values}]},
            **({"objectSelector": {"matchExpressions": [_UNMARKED]}} if self.unmarked else {}),
            "rules": [dict(rule) for rule in self.rules],
            "matchConditions": [{"name": one.name, "expression": one.expression} for one in self.conditions],
        }


def manifest_entries(resource: Resource, registry: Registry, *, username: str) -> tuple[Entry, ...]:
    """Return the entries of the manifests in their order, for the kinds of a registry and the service's user name."""
    ours = Condition("not-ours", conditions.not_ours(username))
    found = [
        workloads(registry, username=username),
        gpu_workloads(registry, username=username),
        *(children(registry, username=username) if resource == MUTATING else ()),
        Entry(
            "asking-pods.topogate.dev",
            "Fail",
            PODS_TIMEOUT,
            (POD_RULE,),
            (
                ours,
                *((Condition("not-held", conditions.POD_NOT_HELD),) if resource == MUTATING else ()),
                Condition("free-to-place", conditions.POD_FREE, _FREE_NOTE),
                Condition("asks", conditions.POD_ASKS),
            ),
            note="Stands before pods.topogate.dev: a held pod that gets its place there loses the gate, and would be "
            "sent once more."
            if resource == MUTATING
            else "",
            unmarked=resource == VALIDATING,
        ),
    ]
    if resource == MUTATING:
        held = Condition("managed-or-held", conditions.POD_MANAGED_OR_HELD)
        found.append(Entry("pods.topogate.dev", "Ignore", PODS_TIMEOUT, (POD_RULE,), (ours, held)))
        names_devices: tuple[Condition, ...] = (
            Condition("free-to-place", conditions.POD_FREE, _FREE_NOTE),
            Condition("names-devices", conditions.pod_names_devices()),
        )
    else:
        names_devices = (
            Condition(
                "names-devices",
                conditions.pod_writes_or_names_devices(),
                "Whoever writes down devices himself takes them from others, on whatever pod. Of the names, those of "
                "DaemonSet pods and of pods that have their node already (mirror pods too) are left alone.",
            ),
        )
    last = "Stands last: what the entries before have marked is theirs." if resource == MUTATING else ""
    found.append(gpu_pods(*names_devices, username=username, note=last))
    if resource == VALIDATING:
        the_policy = Condition("the-policy", conditions.named(names.POLICY_NAME))
        found.append(
            Entry(
                "policy.topogate.dev",
                "Ignore",
                WORKLOADS_TIMEOUT,
                (_CONFIG_MAP_RULE,),
                (ours, the_policy),
                within=True,
            )
        )
    return tuple(found)


def workloads(registry: Registry, *, username: str) -> Entry:
    """Return the entry of workloads that ask."""
    return Entry(
        "workloads.topogate.dev",
        "Fail",
        WORKLOADS_TIMEOUT,
        rules(registry).webhook,
        (
            Condition("not-ours", conditions.not_ours(username)),
            Condition("not-being-deleted", conditions.NOT_BEING_DELETED),
            Condition(
                "asks",
                conditions.asks(registry),
                "Any key of ours, so that a misspelt one is seen too, or our gate; or a key of another dialect, unless "
                "Kueue has the workload: on the object or on any of its pod templates. The old object too: a request "
                "that is taken back concerns us. What translation wrote asks for nothing.",
            ),
            Condition(
                "changed",
                conditions.CHANGED,
                "Both ways round: a key that is gone is a change. Finalizers, owner references and foreign keys are "
                "none.",
            ),
        ),
    )


def gpu_workloads(registry: Registry, *, username: str) -> Entry:
    """Return the entry of workloads that ask for no topology and name Koordinator's resources."""
    return Entry(
        "gpu-workloads.topogate.dev",
        "Ignore",
        WORKLOADS_TIMEOUT,
        rules(registry).webhook,
        (
            Condition("not-ours", conditions.not_ours(username)),
            Condition("not-being-deleted", conditions.NOT_BEING_DELETED),
            Condition(
                "names-devices",
                conditions.all_of(
                    conditions.names_devices(registry),
                    conditions.not_managed(registry),
                    conditions.templates_changed(registry),
                ),
                "A workload that asks for topology was marked by the entry before. A live template does not change; "
                "but a file that is applied again names what it named at first.",
            ),
        ),
        note="GPU names of Koordinator are read whoever uses them. Down, the service stops nobody: what is not "
        "translated here is translated in the pods, or does not fit.",
    )


def gpu_pods(*names_devices: Condition, username: str, note: str = "") -> Entry:
    """Return the entry of pods of no gang that `names_devices` holds for."""
    ours = Condition("not-ours", conditions.not_ours(username))
    held = Condition("not-held", conditions.POD_NOT_HELD)
    return Entry(
        "gpu-pods.topogate.dev",
        "Ignore",
        PODS_TIMEOUT,
        (POD_RULE,),
        (ours, held, *names_devices),
        unmarked=True,
        note=note,
    )


def defaulted_workloads(registry: Registry, *, username: str, namespaces: Iterable[str]) -> Entry:
    """Return the entry of new workloads that ask for nothing themselves, where their namespace does it for them."""
    placed = Registry(tuple(entry for entry in registry.entries if entry.handling in ("placed", "through")))
    return Entry(
        "defaulted-workloads.topogate.dev",
        "Fail",
        WORKLOADS_TIMEOUT,
        tuple({**rule, "operations": ["CREATE"]} for rule in rules(placed).webhook),
        (
            Condition("not-ours", conditions.not_ours(username)),
            Condition("in-these-namespaces", conditions.in_namespaces(namespaces)),
            Condition("asks-nothing", conditions.asks_nothing(registry)),
        ),
    )


def children(registry: Registry, *, username: str, parents: Iterable[KindEntry] | None = None) -> tuple[Entry, ...]:
    """Return the entry of what controllers make of workloads that are placed through it; none without such kinds.

    `parents`: only of these kinds, whose children any entry of the registry may describe; None: of all.
    """
    through = [entry for entry in (registry.entries if parents is None else parents) if entry.through is not None]
    made = {(entry.through.group, entry.through.kind) for entry in through if entry.through is not None}
    kinds = tuple(one for one in registry.entries if (one.match.group, one.match.kind) in made)
    if not kinds:
        return ()
    entry = Entry(
        "child-workloads.topogate.dev",
        "Ignore",
        WORKLOADS_TIMEOUT,
        rules(Registry(kinds)).webhook,
        (
            Condition("not-ours", conditions.not_ours(username)),
            Condition("not-being-deleted", conditions.NOT_BEING_DELETED),
            Condition("made-for-another", conditions.controlled_by(through)),
            Condition("changed", conditions.CHANGED),
        ),
        note="A TrainJob has no pod templates: the request stands on it, and the marks go into the JobSet that is made "
        "of it, which carries nothing of ours. Down, the service stops nobody: the JobSet is marked at its next "
        "change, the latest when it is resumed.",
    )
    return (entry,)
