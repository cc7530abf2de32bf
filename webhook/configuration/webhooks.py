"""The webhook entries of the manifests as data: rules, conditions, path, failure policy and the reasons.

`manifests/base/webhooks.yaml` is generated from here (`python -m hack.reference`); what a policy adds to it is built of
the same parts (`webhook.configuration.policy_webhooks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from engine.api import names
from engine.kinds.registry import Registry
from engine.kinds.rules import rules
from engine.kinds.schema import KindEntry
from webhook.configuration import match_conditions, pod_conditions
from webhook.configuration.cel import all_of
from webhook.configuration.exemption_conditions import DEFAULT_SCHEDULERS

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

# The API takes a Binding at a path of its own too, without the pod's.
_BINDING_RULE: Final[Mapping[str, Any]] = {**POD_RULE, "resources": ["bindings", "pods/binding"]}

_FREE_NOTE: Final = "DaemonSet pods and pods with a nodeName (also mirror pods) are never sent."
_ASKING_NOTE: Final = (
    f"{_FREE_NOTE} Nor are pods that other systems place. Pod-group keys are requests only on pods without a "
    "controller, and only with a number; for any other pod its workload says them."
)


@dataclass(frozen=True, slots=True)
class MatchCondition:
    """A match condition; all conditions of an entry must hold. `note` gives the reason for it."""

    name: str
    expression: str
    note: str = ""


def _not_ours(username: str) -> MatchCondition:
    """Return the condition that the request is not from the service itself."""
    return MatchCondition("not-ours", match_conditions.not_ours(username))


def _of_others(username: str, condition: MatchCondition) -> tuple[MatchCondition]:
    """Return a condition, for requests of others than the service alone.

    It is one condition because the API server evaluates each of an entry: what is false at its first test costs less.
    """
    return (replace(condition, expression=all_of(condition.expression, match_conditions.not_ours(username))),)


@dataclass(frozen=True, slots=True)
class WebhookEntry:
    """An entry of a webhook configuration.

    `within`: only our own namespace, else all but it and the exempt ones. `selected`: only objects with this label
    (True) or without it (False); a selector tests that before any condition is evaluated, and nearly for free.
    """

    name: str
    failure: Literal["Fail", "Ignore"]
    timeout: int
    rules: tuple[Mapping[str, Any], ...]
    conditions: tuple[MatchCondition, ...]
    note: str = ""
    within: bool = False
    exempt: tuple[str, ...] = (EXEMPT,)
    selected: tuple[str, bool] | None = None

    def body(self, resource: Resource, *, namespace: str) -> dict[str, Any]:
        """Return the entry for a configuration, without `clientConfig`."""
        values = [namespace] if self.within else sorted({*self.exempt, namespace})
        selector = {"key": "kubernetes.io/metadata.name", "operator": "In" if self.within else "NotIn"}
        reinvoked = {"reinvocationPolicy": "IfNeeded"} if resource == MUTATING else {}
        label: dict[str, Any] = {}
        if self.selected is not None:
            key, there = self.selected
            label = {"matchExpressions": [{"key": key, "operator": "Exists" if there else "DoesNotExist"}]}
        return {
            "name": self.name,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "matchPolicy": "Equivalent",
            **reinvoked,
            "failurePolicy": self.failure,
            "timeoutSeconds": self.timeout,
            "namespaceSelector": {"matchExpressions": [{**selector, "values": values}]},
            **({"objectSelector": label} if label else {}),
            "rules": [dict(rule) for rule in self.rules],
            "matchConditions": [{"name": one.name, "expression": one.expression} for one in self.conditions],
        }


def manifest_entries(resource: Resource, registry: Registry, *, username: str) -> tuple[WebhookEntry, ...]:
    """Return the ordered entries of the manifests for the kinds of a registry and the service's user name."""
    ours = _not_ours(username)
    if resource == MUTATING:
        return (
            workloads(registry, resource=resource, username=username),
            other_workloads(registry, username=username),
            *children(registry, username=username),
            asking_pods(MatchCondition("asks", pod_conditions.asks(), _ASKING_NOTE), username=username),
            WebhookEntry(
                "pods.topogate.dev", "Ignore", PODS_TIMEOUT, (POD_RULE,), (ours,), selected=(names.MANAGED, True)
            ),
            _other_pods(username=username),
        )
    return (
        workloads(registry, resource=resource, username=username),
        _plain_pods(registry, username=username),
        WebhookEntry(
            "policy.topogate.dev",
            "Ignore",
            WORKLOADS_TIMEOUT,
            (_CONFIG_MAP_RULE,),
            (ours, MatchCondition("the-policy", match_conditions.named(names.POLICY_NAME))),
            within=True,
        ),
    )


def workloads(
    registry: Registry, *, resource: Resource, username: str, schedulers: Iterable[str] = DEFAULT_SCHEDULERS
) -> WebhookEntry:
    """Return the entry for workloads that make a request; `schedulers` are those that are served."""
    note = (
        "A request: any key under topogate.dev/ (also a misspelt one) or of another dialect, on the object or one of "
        "its pod templates, unless another system places the workload. Also any object with our gate or labels, which "
        "are removed or protected. The old object counts too, so that the removal of a request is seen. The "
        "annotations of GPU translation and unconstrained-topology with value false are no requests. An UPDATE is sent "
        "only if it changes the spec or a key that we read; removing a key is a change, finalizers and owner "
        "references are not."
    )
    changed = match_conditions.changed(registry)
    asks = MatchCondition("asks", _live(match_conditions.asks(registry, schedulers, username=username), changed), note)
    return _workloads("workloads.topogate.dev", registry, asks, resource=resource)


def workloads_of_schedulers(
    registry: Registry, schedulers: Iterable[str], *, resource: Resource, username: str
) -> WebhookEntry:
    """Return the entry for requesting workloads with schedulers beyond the manifests; `schedulers`: all served."""
    unknown = match_conditions.asks_of_schedulers(registry, schedulers, username=username)
    asks = MatchCondition("asks", _live(unknown, match_conditions.changed(registry)))
    return _workloads("scheduler-workloads.topogate.dev", registry, asks, resource=resource)


def _workloads(name: str, registry: Registry, asks: MatchCondition, *, resource: Resource) -> WebhookEntry:
    validating = resource == VALIDATING
    return WebhookEntry(
        name,
        "Fail",
        WORKLOADS_TIMEOUT,
        rules(_without_hints(registry)).webhook,
        (asks,),
        note="/mutate has labelled them, and has checked those that it did not label." if validating else "",
        selected=(names.REQUESTS_PLACEMENT, True) if validating else None,
    )


def other_workloads(
    registry: Registry, *, username: str, schedulers: Iterable[str] = DEFAULT_SCHEDULERS
) -> WebhookEntry:
    """Return the entry for workloads that only get a warning, or name devices; `schedulers` are those that are served.

    These are workloads with a request without effect, and those that name Koordinator's resources without a topology
    request. `/mutate` checks them in the same call.
    """
    return WebhookEntry(
        "other-workloads.topogate.dev",
        "Ignore",
        WORKLOADS_TIMEOUT,
        rules(registry).webhook,
        (
            MatchCondition(
                "means-to-ask-or-names-devices",
                match_conditions.left_alone_or_names_devices(registry, schedulers, username=username),
                "A request without effect: on a workload that another system places, in a key that resembles ours or "
                "is known but ignored, on an object that only creates workloads, in the metadata of the objects that "
                "it creates, or in a part that is not read. An UPDATE is sent also if it changes only such a key. Or "
                "devices: Koordinator's GPU resources are read without a topology request too. Live templates do not "
                "change, but applying a file again brings its original resource names back. The entry before has "
                "labelled the templates of workloads with a topology request.",
            ),
        ),
        note="Users get a warning when their request has no effect. Requests for devices are translated, and errors in "
        "them refused, in the same call: a validating entry would cost the API server as much again for every object "
        "of others. While the service is down nothing is blocked: the names are translated later in the pods, or the "
        "pods do not fit.",
    )


def _live(*expressions: str) -> str:
    """Return a condition that holds for no object that is being deleted; the rarest expression comes first."""
    return all_of(expressions[0], match_conditions.NOT_BEING_DELETED, *expressions[1:])


def asking_pods(asks: MatchCondition, *, username: str, name: str = "asking-pods.topogate.dev") -> WebhookEntry:
    """Return the entry for pods that make a request themselves and are not held yet."""
    return WebhookEntry(
        name,
        "Fail",
        PODS_TIMEOUT,
        (POD_RULE,),
        _of_others(username, replace(asks, expression=all_of(asks.expression, pod_conditions.NOT_HELD))),
        note="Must be before pods.topogate.dev: a held pod that gets its node there loses the gate, and would be "
        "sent again.",
    )


def pods_of_schedulers(schedulers: Iterable[str], *, username: str) -> WebhookEntry:
    """Return the entry for requesting pods with schedulers that the manifests do not know; `schedulers`: all served."""
    asks = MatchCondition("asks", pod_conditions.asks_of_schedulers(schedulers))
    return asking_pods(asks, username=username, name="scheduler-pods.topogate.dev")


def _plain_pods(registry: Registry, *, username: str) -> WebhookEntry:
    return WebhookEntry(
        "plain-pods.topogate.dev",
        "Ignore",
        PODS_TIMEOUT,
        (POD_RULE,),
        _of_others(
            username,
            MatchCondition("of-no-workload", pod_conditions.of_no_workload(registry)),
        ),
        selected=(names.MANAGED, True),
        note="Pods with a request of their own, just labelled by `/mutate`: errors are refused, and a warning says "
        "what will happen. Pods of a workload are not sent, because the workload was. While the service is down the "
        "gate holds them.",
    )


def _other_pods(*, username: str) -> WebhookEntry:
    """Return the entry for pods without the label of a gang's pods that have a mark, name devices or get a warning."""
    return WebhookEntry(
        "other-pods.topogate.dev",
        "Ignore",
        PODS_TIMEOUT,
        (POD_RULE,),
        _of_others(
            username,
            MatchCondition(
                "marked-or-means-to-ask-or-names-devices",
                pod_conditions.others(),
                "Our gate or another mark of ours; a request without effect, on a pod without a controller; or "
                "devices: any pod with an allocation of devices is sent, because it takes them from other pods. "
                "Resource names alone are not checked on DaemonSet pods and pods with a nodeName (also mirror pods).",
            ),
        ),
        selected=(names.MANAGED, False),
        note="Like other-workloads, for pods. Must be last: pods that the entries before have labelled are excluded.",
    )


def gpu_pods(names_devices: MatchCondition, *, username: str) -> WebhookEntry:
    """Return the entry for pods without a gang that meet the condition `names_devices`, beyond the manifests."""
    names_devices = replace(names_devices, expression=all_of(names_devices.expression, pod_conditions.NOT_HELD))
    return WebhookEntry(
        "gpu-pods.topogate.dev",
        "Ignore",
        PODS_TIMEOUT,
        (POD_RULE,),
        _of_others(username, names_devices),
        selected=(names.MANAGED, False),
    )


def marked_pods_with_devices(*, username: str) -> WebhookEntry:
    """Return the entry for pods that state their devices and look like those of a gang, where none is managed.

    Elsewhere `/mutate` has removed or written what they state.
    """
    return WebhookEntry(
        "marked-pods-with-devices.topogate.dev",
        "Ignore",
        PODS_TIMEOUT,
        (POD_RULE,),
        (
            _not_ours(username),
            MatchCondition("states-devices", pod_conditions.WRITES_DEVICES),
            MatchCondition("like-of-a-gang", pod_conditions.LIKE_OF_A_GANG),
        ),
    )


def bindings(*, username: str) -> WebhookEntry:
    """Return the entry for bindings of pods, which a policy may guard."""
    ours = _not_ours(username)
    return WebhookEntry("bindings.topogate.dev", "Ignore", PODS_TIMEOUT, (_BINDING_RULE,), (ours,))


def defaulted_workloads(
    registry: Registry, *, username: str, namespaces: Iterable[str], schedulers: Iterable[str]
) -> WebhookEntry:
    """Return the entry for new workloads that get their request from the defaults of their namespace."""
    placed = Registry(tuple(entry for entry in registry.entries if entry.handling in ("placed", "through")))
    return WebhookEntry(
        "defaulted-workloads.topogate.dev",
        "Fail",
        WORKLOADS_TIMEOUT,
        tuple({**rule, "operations": ["CREATE"]} for rule in rules(placed).webhook),
        (
            _not_ours(username),
            MatchCondition("in-these-namespaces", match_conditions.in_namespaces(namespaces)),
            MatchCondition("says-nothing", match_conditions.requests_nothing(registry, schedulers)),
        ),
    )


def children(
    registry: Registry, *, username: str, parents: Iterable[KindEntry] | None = None
) -> tuple[WebhookEntry, ...]:
    """Return the entry for objects that controllers create from workloads, such as the JobSet of a TrainJob.

    Empty if there are none.

    Only kinds with `through` have such children. `parents` limits them to these kinds, with children that any entry of
    the registry may describe; None means all.
    """
    through = [entry for entry in (registry.entries if parents is None else parents) if entry.through is not None]
    made = {(entry.through.group, entry.through.kind) for entry in through if entry.through is not None}
    kinds = tuple(one for one in registry.entries if (one.match.group, one.match.kind) in made)
    if not kinds:
        return ()
    entry = WebhookEntry(
        "child-workloads.topogate.dev",
        "Ignore",
        WORKLOADS_TIMEOUT,
        rules(Registry(kinds)).webhook,
        _of_others(
            username,
            MatchCondition(
                "made-for-another",
                _live(match_conditions.controlled_by(through), match_conditions.changed(Registry(kinds))),
            ),
        ),
        note="A TrainJob has the request but no pod templates: the gate and labels go into the JobSet that its "
        "controller creates. While the service is down nothing is blocked: the JobSet gets them at its next change, at "
        "the latest when it is resumed.",
    )
    return (entry,)


def _without_hints(registry: Registry) -> Registry:
    """Return the registry without hint kinds: their objects are neither changed nor refused."""
    return Registry(tuple(entry for entry in registry.entries if entry.handling != "hint"))
