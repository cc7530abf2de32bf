"""Entries of the registry: what an admin may write, every fault at its path, and how kinds are found."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from engine.api.reasons import REASONS
from engine.kinds.read import read
from engine.kinds.registry import RegistryError, built_in, registry_of
from engine.kinds.rules import rules
from engine.kinds.schema import KindEntry
from tests.support.kinds import TEMPLATE, merged

ENTRY: dict[str, Any] = {
    "name": "fleet",
    "match": {"group": "example.com", "versions": ["v1", "*"], "kind": "Fleet", "resource": "fleets"},
    "podSets": [
        {
            "forEach": ".spec.crews[*]",
            "name": {"path": ".name"},
            "template": ".pod",
            "vars": {"seats": {"path": ".seats", "default": 2}},
            "count": {"mul": [{"path": ".boats", "default": 1}, {"var": "seats"}]},
            "rank": {"label": "example.com/seat"},
            "selector": {"example.com/crew": {"path": ".name"}},
        }
    ],
    "gang": {"unit": "workload", "creation": "all-at-once"},
    "suspend": {"path": ".spec.paused"},
    "replace": {"cost": "free"},
}


def changed(*changes: tuple[str, Any]) -> dict[str, Any]:
    """The entry with the value at a dotted path replaced; None removes."""
    entry = copy.deepcopy(ENTRY)
    for path, value in changes:
        node: Any = entry
        *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        for step in steps:
            node = node[step]
        if value is None:
            del node[last]
        else:
            node[last] = value
    return entry


def faults(*entries: Any) -> list[tuple[str, str]]:
    with pytest.raises(RegistryError) as caught:
        registry_of(entries)
    return [(error.field, error.message) for error in caught.value.errors]


def test_an_entry_of_a_policy_is_read_like_a_built_in_one() -> None:
    """A kind that nobody foresaw needs an entry and no code."""
    found = registry_of([ENTRY])
    raw = {
        "apiVersion": "example.com/v7",
        "kind": "Fleet",
        "metadata": {"name": "f"},
        "spec": {"paused": True, "crews": [{"name": "a", "boats": 3, "pod": TEMPLATE}]},
    }
    entry = found.entry_of(raw)
    assert entry is not None
    structure = read(entry, raw, registry=found)
    assert [(one.name, one.count, one.field) for one in structure.pod_sets] == [("a", 6, "spec.crews[0].pod")]
    assert structure.suspension is not None
    assert structure.suspension.suspended


def test_a_role_is_accepted_and_says_nothing() -> None:
    """Entries written when `role` was required still load."""
    assert [one.name for one in registry_of([changed(("podSets.0.role", "worker"))]).entries][-1] == "fleet"


def test_no_more_pods_are_needed_than_there_are() -> None:
    """A minimum beyond the count would be a gang that is never whole."""
    found = registry_of([changed(("podSets.0.minimum", {"const": 100}))])
    raw = {"apiVersion": "example.com/v1", "kind": "Fleet", "spec": {"crews": [{"name": "a", "pod": TEMPLATE}]}}
    entry = found.entry_of(raw)
    assert entry is not None
    assert [(one.minimum, one.count) for one in read(entry, raw, registry=found).pod_sets] == [(2, 2)]


def test_without_entries_the_registry_is_the_built_in_one() -> None:
    """Nothing is read again for a policy that adds nothing."""
    assert registry_of(()) is built_in()


DEEP: dict[str, Any] = {"const": 1}
for _ in range(8):
    DEEP = {"sum": [DEEP]}


@pytest.mark.parametrize(
    ("path", "value", "field", "message"),
    [
        ("name", "Fleet", "name", "must be lower-case"),
        ("name", None, "name", "is required"),
        ("names", "x", "names", 'unknown field; did you mean "name"?'),
        ("match.kind", "fleet", "match.kind", 'must be a kind such as JobSet; got "fleet"'),
        ("match.group", "Example", "match.group", "must be an API group such as batch"),
        ("match.resource", "fleets/status", "match.resource", "must be a plural in lower case"),
        ("podSets.0.vars", {"A": {"const": 1}}, "podSets[0].vars.A", "must be a name in camelCase"),
        ("match.versions", [], "match.versions", "must have at least 1 entry"),
        ("match.versions.0", "one", "match.versions[0]", "must be a version such as v1, or *"),
        ("match.resource", None, "match.resource", "is required"),
        ("handling", "held", "handling", 'must be one of placed, through, hint, pods; got "held"'),
        ("podSets.0.forEach", "spec.crews", "podSets[0].forEach", "is not a path such as .spec.template"),
        ("podSets.0.forEach", ".a[*].b[*].c[*]", "podSets[0].forEach", "a path iterates at most 2 times"),
        ("podSets.0.template", ".pods[*]", "podSets[0].template", "exactly one node is needed"),
        ("podSets.0.template", ".a.b | .c", "podSets[0].template", "is not a path"),
        ("podSets.0.template", ".a[0]", "podSets[0].template", "is not a path"),
        ("podSets.0.template", "." + ".".join("a" * 17), "podSets[0].template", "a path has at most 16 steps"),
        ("podSets.0.template", "." + "a" * 300, "podSets[0].template", "a path has at most 256 characters"),
        ("podSets.0.template", 5, "podSets[0].template", "must be a path such as .spec.template"),
        ("podSets.0.name", {}, "podSets[0].name", "needs exactly one of text, path, key and present"),
        ("podSets.0.name", {"present": True}, "podSets[0].name.present", "a name is a text of its own"),
        ("podSets.0.count", {}, "podSets[0].count", "needs exactly one of path, annotation, label, const"),
        ("podSets.0.count", {"const": 1, "path": ".a"}, "podSets[0].count", "needs exactly one of"),
        ("podSets.0.count", {"const": True}, "podSets[0].count.const", "must be a whole number"),
        ("podSets.0.count", {"const": 2**40}, "podSets[0].count.const", "must be at most"),
        ("podSets.0.count", {"add": []}, "podSets[0].count.add", "unknown field"),
        ("podSets.0.count.mul.1", {"var": "sails"}, "podSets[0].count.mul[1].var", "none of the variables"),
        ("podSets.0.count", {"label": "a"}, "podSets[0].count.label", "labels of pods are allowed only in rank"),
        ("podSets.0.count", {"const": 1, "default": 2}, "podSets[0].count", "default is allowed only with path"),
        (
            "podSets.0.count",
            {"const": 1, "below": {"const": 1}},
            "podSets[0].count",
            "below is allowed only with label",
        ),
        ("podSets.0.count", {"const": 1, "then": {"const": 1}}, "podSets[0].count", "must be given together"),
        ("podSets.0.count", {"min": []}, "podSets[0].count.min", "must have at least 1 entry"),
        ("podSets.0.count", {"min": [{"const": 1}] * 9}, "podSets[0].count.min", "must have at most 8 entries"),
        ("podSets.0.count", DEEP, "podSets[0].count" + ".sum[0]" * 8, "is nested deeper than 8 levels"),
        ("podSets.0.vars", {"a": {"var": "b"}, "b": {"const": 1}}, "podSets[0].vars.a.var", "none of the variables"),
        ("podSets.0.succeeded", {"entries": ".a[*]"}, "podSets[0].succeeded.count", "is required"),
        ("podSets.0.succeeded", {"entries": ".a[*]", "count": ".b[*]"}, "podSets[0].succeeded.count", "one node"),
        (
            "podSets.0.succeeded",
            {"entries": ".a[*]", "count": ".b", "pods": {"var": "sails"}},
            "podSets[0].succeeded.pods.var",
            "none of the variables",
        ),
        ("podSets.0.rank", {"label": "a b"}, "podSets[0].rank.label", "must be a label key"),
        (
            "podSets.0.rank",
            {"label": "a", "below": {"label": "b"}},
            "podSets[0].rank.below.label",
            "labels of pods are allowed only in rank",
        ),
        ("podSets.0.rank", None, "", ""),
        ("podSets.0.when", {"path": ".a"}, "podSets[0].when", "needs exactly one of equals, in, exists and where"),
        ("podSets.0.when", {"label": "a", "exists": True}, "podSets[0].when", "are allowed only with path"),
        ("podSets.0.when", {"path": ".a", "exists": "yes"}, "podSets[0].when.exists", 'true or false; got "yes"'),
        ("podSets.0.when", {"path": ".a", "exists": 1}, "podSets[0].when.exists", "must be true or false; got 1"),
        ("podSets.0.when", {"path": ".a", "equals": [1]}, "podSets[0].when.equals", "must be text, a whole number,"),
        ("podSets.0.when", {"path": ".a", "in": [1.5]}, "podSets[0].when.in[0]", "must be text, a whole number,"),
        ("podSets.0.when", {"path": ".a", "equals": "x" * 64}, "podSets[0].when.equals", "at most 63 characters"),
        ("podSets.0.when", {"not": {}}, "podSets[0].when.not", "needs exactly one of path, label"),
        ("podSets.0.claimTemplates", ".claims", "", ""),
        ("podSets.0.claimTemplates", ".claims[*]", "podSets[0].claimTemplates", "[*] and {*} have no meaning here"),
        ("podSets.0.claimTemplates", 7, "podSets[0].claimTemplates", "must be a path such as .spec.template"),
        ("podSets.0.firstOrdinal", {"const": 0}, "podSets[0].firstOrdinal", "is allowed only with claimTemplates"),
        ("podSets.0.firstOrdinal", {"label": "a"}, "podSets[0].firstOrdinal.label", "are allowed only in rank"),
        ("podSets.0.selector", {"a b": {"text": "x"}}, "podSets[0].selector[a b]", "must be a label key"),
        ("podSets.0.creation", "later", "podSets[0].creation", "must be one of all-at-once, ordered, on-demand"),
        ("podSets", [], "podSets", "is required: a kind that is placed has pods"),
        ("gang", None, "gang", "is required"),
        ("gang.unit", "replica", "gang", "replicas and replicaLabel are required with unit: replica"),
        ("gang.minimum", {"var": "seats"}, "gang.minimum.var", "none of the variables"),
        ("replace", None, "replace", "the cost of deleting an unbound pod"),
        ("replace.cost", "cheap", "replace.cost", "must be one of free, retry, group, workload, lost"),
        ("through", {"group": "a", "kind": "B"}, "through", "is required with handling: through"),
        ("handling", "hint", "podSets", "has no pods of its own"),
        ("finished", {"path": ".status.phase"}, "finished", "path and values must be given together"),
        ("standAside", [{"when": {"label": "a"}, "reason": "Whim"}], "standAside[0].reason", "must be one of"),
        ("rbac", [{"group": "", "resources": ["pods"], "verbs": ["own"]}], "rbac[0].verbs[0]", "must be one of"),
    ],
)
def test_a_fault_is_told_at_its_path(path: str, value: Any, field: str, message: str) -> None:
    """What is wrong with an entry, where, in plain words."""
    entry = changed((path, value))
    if not field:
        assert registry_of([entry])
        return
    found = faults(entry)
    assert any(at == f"kinds[0].{field}" and message in text for at, text in found), found
    assert len(found) <= 2


def test_ranked_and_keys_and_key_need_their_counterparts() -> None:
    """Fields that mean nothing alone are refused alone."""
    entry = changed(("podSets.0.rank", None), ("podSets.0.ranked", {"label": "a"}), ("podSets.0.forEach", None))
    entry["podSets"][0] |= {"keys": ["A"], "name": {"key": "lower"}}
    assert {field for field, _ in faults(entry)} == {
        "kinds[0].podSets[0].ranked",
        "kinds[0].podSets[0].keys",
        "kinds[0].podSets[0].name.key",
    }


@pytest.mark.parametrize("entry", [None, "fleet", 5, [], [ENTRY]])
def test_an_entry_that_is_no_mapping(entry: Any) -> None:
    """The entry itself may be anything."""
    assert faults(entry) == [("kinds[0]", "must be a mapping of fields to values")]


def test_an_entry_that_is_nested_without_end() -> None:
    """Depth is refused, not followed."""
    deep: dict[str, Any] = {"const": 1}
    for _ in range(100_000):
        deep = {"sum": [deep]}
    entry = changed()
    entry["podSets"][0]["count"] = deep
    ((field, _),) = faults(entry)
    assert field.startswith("kinds[0]")
    while "sum" in deep:  # so that its end does not recurse either
        deep = deep.pop("sum").pop()


def test_all_faults_of_all_entries_at_once() -> None:
    """In the order of their paths."""
    second = changed(("name", "other"), ("match.kind", "Other"), ("replace.cost", "cheap"))
    assert [field for field, _ in faults(changed(("name", "A")), second)] == ["kinds[0].name", "kinds[1].replace.cost"]


@pytest.mark.parametrize(
    ("match", "field", "first"),
    [
        ({"group": "batch", "versions": ["v1"], "kind": "Job", "resource": "jobs"}, "match.versions[0]", "built in"),
        ({"group": "batch", "versions": ["v2"], "kind": "Job", "resource": "job"}, "match.resource", "built in"),
        ({"group": "", "versions": ["*"], "kind": "Pod", "resource": "pods"}, "match.versions[0]", "built in"),
    ],
)
def test_a_kind_of_kubernetes_is_not_replaced(match: dict[str, Any], field: str, first: str) -> None:
    """Its own groups have always been built in, and the code relies on them."""
    ((at, text),) = faults(changed(("match", match)))
    assert at == f"kinds[0].{field}"
    assert first in text


CUSTOM = [one for one in built_in().entries if "." in one.match.group]


@pytest.mark.parametrize("built", CUSTOM, ids=[one.name for one in CUSTOM])
@pytest.mark.parametrize("renamed", [False, True])
def test_an_entry_of_a_policy_stays_when_its_kind_is_built_in_later(built: KindEntry, renamed: bool) -> None:
    """Under the name of the built-in one and under another; all other kinds are read as before."""
    match = {**built.match.model_dump(by_alias=True), "versions": [built.match.versions[0]]}
    registry = registry_of([changed(("match", match), *((("name", built.name),) if not renamed else ()))])
    own = registry.find(built.match.group, built.match.kind, built.match.versions[0])
    assert own is not None
    assert own.pod_sets[0].template.steps == ("pod",)
    assert registry.replaced == ((0, built),)
    assert registry.own == (own,)
    assert registry.added(own) == f"kinds[0] ({own.name})"
    assert registry.added(built) == ""
    assert [*registry.entries] == [*(one for one in built_in().entries if one != built), own]


def test_the_entry_of_another_version_of_a_kind_stays_built_in() -> None:
    """Two versions of one kind may differ: the MPIJob of the training operator and that of the MPI operator."""
    match = {"group": "kubeflow.org", "versions": ["v1"], "kind": "MPIJob", "resource": "mpijobs"}
    registry = registry_of([changed(("match", match))])
    assert [one.name for _, one in registry.replaced] == ["mpijob-v1"]
    found = [registry.find("kubeflow.org", "MPIJob", version) for version in ("v1", "v2beta1", "v3")]
    assert [one.name for one in found if one is not None] == ["fleet", "mpijob", "mpijob"]


def test_a_copy_of_a_built_in_entry_is_the_policys() -> None:
    """Word for word: still found at its place in the policy, and once."""
    raw = next(one for one in built_in().entries if one.name == "jaxjob").model_dump(
        mode="json", by_alias=True, exclude_defaults=True
    )
    registry = registry_of([ENTRY, raw])
    assert len(registry.entries) == len(built_in().entries) + 1
    assert [registry.added(one) for one in registry.own] == ["kinds[0] (fleet)", "kinds[1] (jaxjob)"]


def test_the_name_of_a_built_in_entry_for_another_kind_is_no_fault() -> None:
    """A later version may take the name; it stands only in messages."""
    registry = registry_of([changed(("name", "jaxjob"))])
    assert registry.replaced == ()
    assert registry.find("kubeflow.org", "JAXJob", "v1") is not None


def test_two_entries_of_a_policy_for_one_built_in_kind_are_refused() -> None:
    """Which of them would count?"""
    match = {"group": "kubeflow.org", "versions": ["v1"], "kind": "JAXJob", "resource": "jaxjobs"}
    found = faults(changed(("match", match)), changed(("match", match), ("name", "other")))
    assert [field for field, _ in found] == ["kinds[1].match.versions[0]"]


def test_a_kind_that_stands_twice() -> None:
    """The second is refused, and the first is named."""
    assert [field for field, _ in faults(ENTRY, ENTRY)] == [
        "kinds[1].match.versions[0]",
        "kinds[1].match.versions[1]",
        "kinds[1].name",
    ]
    assert "first at kinds[0]" in faults(ENTRY, ENTRY)[0][1]


def test_too_many_entries() -> None:
    """Their number is bounded like that of the policy."""
    assert faults(*[ENTRY] * 65) == [("kinds", "has 65 entries; at most 64 are allowed")]


def test_a_version_with_an_entry_of_its_own() -> None:
    """A version may look different; every other one is read by the entry for all."""
    found = built_in()
    assert found.find("kubeflow.org", "MPIJob", "v1") is not found.find("kubeflow.org", "MPIJob", "v2beta1")
    assert found.find("kubeflow.org", "MPIJob", "v9") is found.find("kubeflow.org", "MPIJob", "v2beta1")
    assert found.find("kubeflow.org", "MPIJob") is found.find("kubeflow.org", "MPIJob", "v2beta1")
    own = changed(("name", "jobset-v9"))
    own["match"] = {"group": "jobset.x-k8s.io", "versions": ["v9"], "kind": "JobSet", "resource": "jobsets"}
    extended = registry_of([own])
    assert [
        entry.name
        for version in ("v1alpha2", "v9", "v10")
        if (entry := extended.find("jobset.x-k8s.io", "JobSet", version)) is not None
    ] == ["jobset", "jobset-v9", "jobset"]


def test_watched_kinds_hold_gangs_or_stand_between_them_and_their_pods() -> None:
    """A missing owner of such a kind is waited for; one of any other kind never comes into the caches."""
    found = registry_of([{**ENTRY, "owners": [{"group": "example.com", "kind": "Crew"}]}])
    held = {(entry.match.group, entry.match.kind) for entry in found.entries if entry.handling in ("placed", "through")}
    between = {(link.group, link.kind) for entry in found.entries for link in entry.owners}
    assert {("example.com", "Fleet"), ("batch", "Job")} <= held
    assert {("example.com", "Crew"), ("batch", "Job")} <= between
    assert all(found.watched(*kind) for kind in held | between)
    assert not any(found.watched(*kind) for kind in (("", "Node"), ("example.com", "Job"), ("batch", "Crew")))


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"kind": "Job"},
        {"apiVersion": "v1", "kind": "Job"},
        {"apiVersion": "batch/v1", "kind": "job"},
        {"apiVersion": 5, "kind": "Job"},
        {"apiVersion": "batch/v1", "kind": ["Job"]},
        {"apiVersion": "other/batch/v1", "kind": "Job"},
    ],
)
def test_objects_of_no_registered_kind(raw: dict[str, Any]) -> None:
    """Group and kind decide, both as they are."""
    assert built_in().entry_of(raw) is None


def test_reasons_of_standing_aside_are_reasons() -> None:
    """Codes that entries name are documented ones."""
    told = {aside.reason for entry in built_in().entries for aside in entry.stand_aside}
    assert told <= {code for code, reason in REASONS.items() if reason.kind == "exempt"}


def test_rules_cover_every_kind_in_every_version() -> None:
    """What the webhook is sent: all registered kinds but pods, which have entries of their own."""
    sent = {
        (group, resource)
        for rule in rules(built_in()).webhook
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if rule["apiVersions"] == ["*"] and rule["operations"] == ["CREATE", "UPDATE"]
    }
    wanted = {(entry.match.group, entry.match.resource) for entry in built_in().entries}
    assert sent == wanted - {("", "pods")}


def test_the_role_reads_kinds_and_patches_what_it_suspends() -> None:
    """No right that no entry needs."""
    granted = {
        (rule["apiGroups"][0], resource): set(rule["verbs"])
        for rule in rules(built_in()).cluster_role
        for resource in rule["resources"]
    }
    assert granted["batch", "jobs"] == {"get", "list", "watch", "patch"}
    assert granted["apps", "deployments"] == {"get", "list", "watch"}
    assert granted["apps", "replicasets"] == {"get", "list", "watch"}
    assert granted["batch", "cronjobs"] == {"get", "list", "watch"}
    assert granted["trainer.kubeflow.org", "trainjobs"] == {"get", "list", "watch", "patch"}
    assert ("", "pods") not in granted
    assert {verb for verbs in granted.values() for verb in verbs} == {"get", "list", "watch", "patch"}


def test_rules_of_a_policy_entry() -> None:
    """A kind that a policy adds is sent and read like the others, with what it asks for besides."""
    asking = changed(("rbac", [{"group": "example.com", "resources": ["boats"], "verbs": ["get"]}]))
    found = rules(registry_of([asking]))
    assert {"apiGroups": ["example.com"], "resources": ["boats"], "verbs": ["get"]} in found.cluster_role
    assert any(rule["apiGroups"] == ["example.com"] and rule["resources"] == ["fleets"] for rule in found.webhook)


def test_rules_do_not_depend_on_the_order_of_entries() -> None:
    """The same kinds give the same manifests."""
    other = merged(ENTRY, {"name": "raft", "match": {"kind": "Raft", "resource": "rafts"}})
    assert rules(registry_of([ENTRY, other])) == rules(registry_of([other, ENTRY]))


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap", "Node", "ServiceAccount"])
def test_core_objects_without_pods_are_no_workloads(kind: str) -> None:
    """An entry for Secrets would have every replica read all of them."""
    match = {"group": "", "versions": ["v1"], "kind": kind, "resource": f"{kind.lower()}s"}
    entry = changed(("match", match), ("owners", [{"group": "", "kind": kind}]))
    told = f'"{kind}" of the core group has no pods'
    assert faults(entry) == [("kinds[0].match.kind", told), ("kinds[0].owners[0].kind", told)]


def test_the_core_group_has_workloads_too() -> None:
    match = {"group": "", "versions": ["v1"], "kind": "ReplicationController", "resource": "replicationcontrollers"}
    assert registry_of([changed(("match", match))]).of_kind("", "ReplicationController")
