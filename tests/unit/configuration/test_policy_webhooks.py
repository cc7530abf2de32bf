"""What the policy adds to the webhook entries, and the pair of configurations that the leader owns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.api import names
from engine.cluster.client import ApiError
from engine.policy.model import Policy, parse_policy
from webhook.configuration.policy_webhooks import RESOURCES, Entry, PairMalformed, entries, keep, patch_for
from webhook.configuration.webhooks import MUTATING, VALIDATING, Resource

US = "system:serviceaccount:topogate-system:topogate"
WHOLE = ("nvidia.com/gpu", "amd.com/gpu")
GUARD = {"reservations": {"guard": True}}
CALL = {"url": "https://127.0.0.1:8443/mutate", "caBundle": "Y2E="}


def wanted(policy: Policy, resource: Resource = MUTATING) -> list[Entry]:
    return entries(resource, policy, whole=WHOLE, own_username=US, own_namespace="topogate-system")


def scope_all(**more: Any) -> Policy:
    return parse_policy(json.dumps({"gpu": {"scope": "all"}, **more}))


def configuration(webhooks: object = None, **more: Any) -> bytes:
    body = {"metadata": {"name": "x", "resourceVersion": "7"}, **more}
    return json.dumps(body if webhooks is None else {**body, "webhooks": webhooks}).encode()


def test_the_default_policy_adds_nothing() -> None:
    """Scope `managed` and mode `off` need no mutating entry of their own."""
    for resource in RESOURCES:
        assert wanted(parse_policy("{}"), resource) == []
    assert wanted(scope_all(mode="off")) == []


KIND: dict[str, Any] = {
    "match": {"group": "example.com", "versions": ["v1"], "kind": "Flow", "resource": "flows"},
    "podSets": [{"name": {"text": "main"}, "template": ".spec.template", "count": {"const": 1}}],
    "gang": {"unit": "workload", "creation": "all-at-once"},
    "replace": {"cost": "free"},
}


def conditions(**more: Any) -> str:
    """All conditions of a policy with these kinds, or the kind `KIND` with other fields."""
    kinds = more.pop("kinds", [{"name": "flow", **KIND, **more}])
    policy = parse_policy(json.dumps({"kinds": kinds}))
    found = [one for resource in RESOURCES for entry in wanted(policy, resource) for one in entry["matchConditions"]]
    return "\n".join(one["expression"] for one in found)


def test_a_kind_may_be_placed_in_one_version_and_a_hint_in_another() -> None:
    """The API server refuses an expression that negates nothing, and with it all entries of the policy."""
    match = {"group": "example.com", "versions": ["v0"], "kind": "Flow", "resource": "flows"}
    hint = {"name": "old", "match": match, "handling": "hint"}
    text = conditions(kinds=[{"name": "flow", **KIND}, hint])
    assert "flows" not in text
    assert "!()" not in text
    assert "request.resource.resource == 'flows'" in conditions(kinds=[hint])


def test_the_values_of_a_condition_may_have_different_types() -> None:
    """Each list of CEL has one type; true is not 1, as in what the service itself reads."""
    when: dict[str, Any] = {"path": ".spec.by", "in": [1, True, "them", 2]}
    text = conditions(standAside=[{"when": when, "reason": "OtherController"}])
    assert "x in [1, 2] || x in [true] || x in ['them']" in text
    missing = "!" + "[o].map(x, type(x) == map && has(x.spec), x.spec).map(x, type(x) == map && has(x.by), x.by)"
    for default, alike in ((1, True), (True, True), ("them", True), (0, False), (False, False)):
        when = {"path": ".spec.by", "in": [1, True, "them"], "default": default}
        text = conditions(standAside=[{"when": when, "reason": "OtherController"}])
        assert (missing in text) is alike, default
    when = {"path": ".spec.by", "equals": True, "default": 1}
    assert missing not in conditions(standAside=[{"when": when, "reason": "OtherController"}])


FORGED = "marked-pods-with-devices.topogate.dev"


@pytest.mark.parametrize(
    ("policy", "where"),
    [
        ({"mode": "off"}, "true"),
        ({"mode": "observe"}, "true"),
        (
            {"namespaces": {"exempt": ["kube-system", "ci-*"]}},
            "(request.namespace.matches('^(ci-[-a-z0-9]*|kube-system)$') ? true :\n false)",
        ),
        (
            {"namespaces": {"exempt": [], "modes": [{"namespaces": ["x"], "mode": "observe"}]}},
            "(request.namespace.matches('^(kube-system|x)$') ? true :\n false)",
        ),
        ({"mode": "hold"}, None),
    ],
)
def test_pods_with_devices_are_sent_where_gangs_are_not_managed(policy: dict[str, Any], where: str | None) -> None:
    """Those that look like a gang's: all others with devices are sent by the manifests. Nobody waits for the answer."""
    found = {entry["name"]: entry for entry in wanted(parse_policy(json.dumps(policy)), VALIDATING)}
    assert (FORGED in found) == (where is not None)
    if where is not None:
        entry = found[FORGED]
        conditions = {one["name"]: one["expression"] for one in entry["matchConditions"]}
        assert conditions["not-managed"] == where
        assert names.DEVICE_ALLOCATED in conditions["states-devices"]
        assert (entry["failurePolicy"], entry["rules"][0]["operations"]) == ("Ignore", ["CREATE"])
    assert wanted(parse_policy(json.dumps(policy)), MUTATING) == []


def test_scope_all_adds_one_mutating_entry() -> None:
    """Pods that ask for whole GPUs are changed and checked in one call; its absence stops nobody."""
    [entry] = wanted(scope_all(), MUTATING)
    assert (entry["name"], entry["failurePolicy"]) == ("gpu-pods.topogate.dev", "Ignore")
    assert entry["reinvocationPolicy"] == "IfNeeded"
    assert entry["rules"][0]["resources"] == ["pods"]
    assert entry["rules"][0]["operations"] == ["CREATE"]
    conditions = {one["name"]: one["expression"] for one in entry["matchConditions"]}
    assert f"request.userInfo.username != '{US}'" in conditions["names-devices"]
    assert "['amd.com/gpu', 'nvidia.com/gpu']" in conditions["names-devices"]
    assert names.GATE in conditions["names-devices"]
    assert entry["objectSelector"]["matchExpressions"] == [{"key": names.MANAGED, "operator": "DoesNotExist"}]
    assert wanted(scope_all(), VALIDATING) == []


def test_a_guard_of_reservations_adds_an_entry_that_validates_bindings() -> None:
    """Its absence of an answer stops no pod; nothing is sent where nothing would be refused."""
    guarded = GUARD
    [entry] = wanted(parse_policy(json.dumps(guarded)), VALIDATING)
    assert (entry["name"], entry["failurePolicy"]) == ("bindings.topogate.dev", "Ignore")
    [rule] = entry["rules"]
    assert (rule["resources"], rule["operations"]) == (["bindings", "pods/binding"], ["CREATE"])
    assert wanted(parse_policy(json.dumps(guarded)), MUTATING) == []
    observed = wanted(parse_policy(json.dumps({**guarded, "mode": "observe"})), VALIDATING)
    assert [one["name"] for one in observed] == [FORGED]


BENCH = {
    "name": "bench",
    "match": {"group": "example.com", "versions": ["v1"], "kind": "Bench", "resource": "benches"},
    "podSets": [{"name": {"text": "main"}, "template": ".spec.pods", "count": {"const": 2}}],
    "gang": {"unit": "workload", "creation": "all-at-once"},
    "replace": {"cost": "free"},
}


def wave(group: str, kind: str) -> dict[str, Any]:
    """A kind that is placed through what its controller makes of it."""
    return {
        "name": "wave",
        "match": {"group": "example.com", "versions": ["v1"], "kind": "Wave", "resource": "waves"},
        "handling": "through",
        "through": {"group": group, "kind": kind},
    }


@pytest.mark.parametrize(
    ("kinds", "resources"),
    [
        ([wave("jobset.x-k8s.io", "JobSet")], ["jobsets"]),
        ([wave("example.com", "Bench"), BENCH], ["benches"]),
        ([wave("example.com", "Nothing")], None),
        ([BENCH], None),
    ],
)
def test_what_is_made_of_a_kind_of_the_policy_is_sent_to_be_marked(
    kinds: list[dict[str, Any]], resources: list[str] | None
) -> None:
    """Its children carry nothing of ours; those of built-in kinds have the entry of the manifests."""
    policy = parse_policy(json.dumps({"kinds": kinds}))
    for resource in RESOURCES:
        found = [entry for entry in wanted(policy, resource) if entry["name"] == "child-workloads.topogate.dev"]
        if resource != MUTATING or resources is None:
            assert found == []
            continue
        (entry,) = found
        assert [rule["resources"] for rule in entry["rules"]] == [resources]
        assert entry["failurePolicy"] == "Ignore"
        (made,) = [one["expression"] for one in entry["matchConditions"] if one["name"] == "made-for-another"]
        assert "o.kind == 'Wave' && o.apiVersion.startsWith('example.com/')" in made
        assert "TrainJob" not in made


def test_kinds_of_the_policy_have_entries_of_their_own() -> None:
    """Like those of the manifests, for their resources alone and with their own template paths."""
    policy = parse_policy(json.dumps({"kinds": [BENCH]}))
    for resource in RESOURCES:
        found = wanted(policy, resource)
        others = [("other-workloads.topogate.dev", "Ignore")] if resource == MUTATING else []
        assert [(entry["name"], entry["failurePolicy"]) for entry in found] == [
            ("workloads.topogate.dev", "Fail"),
            *others,
        ]
        asking = found[0]
        label = [{"key": names.REQUESTS_PLACEMENT, "operator": "Exists"}]
        assert asking.get("objectSelector") == ({"matchExpressions": label} if resource == VALIDATING else None)
        for entry in found:
            [rule] = entry["rules"]
            assert (rule["apiGroups"], rule["resources"]) == (["example.com"], ["benches"])
        [asks] = [one["expression"] for one in asking["matchConditions"] if one["name"] == "asks"]
        assert "s.?pods" in asks
        assert "replicatedJobs" not in asks


def test_defaults_of_namespaces_have_new_workloads_sent() -> None:
    """Those of the kinds that are placed, in the namespaces that match, when they ask for nothing themselves."""
    defaults = [{"namespaces": ["research-*", "x"], "annotations": {names.PREFER: "auto"}}]
    policy = parse_policy(json.dumps({"namespaces": {"defaults": defaults}, "kinds": [BENCH]}))
    assert [entry["name"] for entry in wanted(policy)][2:] == ["defaulted-workloads.topogate.dev"]
    entry = wanted(policy)[2]
    assert entry["failurePolicy"] == "Fail"  # while nobody answers, what asks by its namespace starts nowhere
    conditions = {one["name"]: one["expression"] for one in entry["matchConditions"]}
    assert conditions["in-these-namespaces"] == "request.namespace.matches('^(research-[-a-z0-9]*|x)$')"
    resources = {resource for rule in entry["rules"] for resource in rule["resources"]}
    assert {"jobs", "trainjobs", "benches"} <= resources
    assert not {"cronjobs", "pods"} & resources
    assert all(rule["operations"] == ["CREATE"] for rule in entry["rules"])
    validating = [entry["name"] for entry in wanted(policy, "validatingwebhookconfigurations")]
    assert "defaulted-workloads.topogate.dev" not in validating


def test_no_new_workload_waits_for_the_service_where_it_gets_no_default() -> None:
    """Where a rule allows no requests, in exempt namespaces, and without our dialect no default is written."""
    defaults = [{"namespaces": ["*"], "annotations": {names.PREFER: "auto"}}]
    rules = [{"namespaces": ["ci-gpu"]}, {"namespaces": ["ci-*"], "allow": False}]
    namespaces = {"defaults": defaults, "rules": rules, "exempt": ["infra-*"]}
    [entry] = wanted(parse_policy(json.dumps({"namespaces": namespaces})))
    conditions = {one["name"]: one["expression"] for one in entry["matchConditions"]}
    assert conditions["allowed-namespace"] == (
        "(request.namespace.matches('^(ci-gpu)$') ? true :\n"
        " (request.namespace.matches('^(ci-[-a-z0-9]*)$') ? false :\n"
        "  true))"
    )
    assert conditions["not-exempt"] == "(request.namespace.matches('^(infra-[-a-z0-9]*)$') ? false :\n true)"
    unread = {"namespaces": {"defaults": defaults}, "annotations": {"dialects": ["kueue"]}}
    assert wanted(parse_policy(json.dumps(unread))) == []


def test_defaults_are_written_in_mode_enforce_alone() -> None:
    """While we only observe nothing is written, and nobody waits for it."""
    defaults = [{"namespaces": ["x"], "annotations": {names.PREFER: "auto"}}]
    policy = parse_policy(json.dumps({"mode": "observe", "namespaces": {"defaults": defaults}}))
    assert wanted(policy) == []


def test_nothing_is_sent_from_namespaces_that_are_off() -> None:
    """While the service is down nothing waits for it there; defaults are written where the mode is enforce alone."""
    defaults = [{"namespaces": ["x*"], "annotations": {names.PREFER: "auto"}}]
    modes = [{"namespaces": ["x-a"], "mode": "observe"}, {"namespaces": ["x-b", "y*"], "mode": "off"}]
    policy = parse_policy(
        json.dumps({"namespaces": {"defaults": defaults, "modes": modes}, "kinds": [BENCH], **GUARD}),
    )
    for resource in RESOURCES:
        found = {entry["name"]: entry for entry in wanted(policy, resource) if entry["name"] != FORGED}
        assert found
        for entry in found.values():
            off = [one["expression"] for one in entry["matchConditions"] if one["name"] == "mode-not-off"]
            assert off == [
                "(request.namespace.matches('^(x-a)$') ? true :\n"
                " (request.namespace.matches('^(x-b|y[-a-z0-9]*)$') ? false :\n"
                "  true))"
            ]
        written = "defaulted-workloads.topogate.dev" if resource == MUTATING else "bindings.topogate.dev"
        managed = {one["name"]: one["expression"] for one in found[written]["matchConditions"]}["managed-namespace"]
        assert managed == "(request.namespace.matches('^(x-a|x-b|y[-a-z0-9]*)$') ? false :\n true)"


def test_one_managed_namespace_is_enough_for_the_entries() -> None:
    """Mode `off` for the others does not take them away."""
    modes = [{"namespaces": ["x"], "mode": "enforce"}]
    policy = parse_policy(json.dumps({"mode": "off", "namespaces": {"modes": modes}, "kinds": [BENCH]}))
    names_of = [entry["name"] for entry in wanted(policy)]
    assert names_of == ["workloads.topogate.dev", "other-workloads.topogate.dev"]
    everywhere = [{"namespaces": ["x"], "mode": "off"}]
    assert (
        wanted(parse_policy(json.dumps({"mode": "off", "namespaces": {"modes": everywhere}, "kinds": [BENCH]}))) == []
    )


def test_a_scheduler_that_the_manifests_do_not_know_has_entries_of_its_own() -> None:
    """The manifests leave alone whatever goes to another one than the default; these send what the policy serves."""
    policy = parse_policy(json.dumps({"schedulers": ["default-scheduler", "gang-scheduler"], "kinds": [BENCH]}))
    for resource in RESOURCES:
        found = {entry["name"]: entry for entry in wanted(policy, resource)}
        pods = ("scheduler-pods.topogate.dev",) if resource == MUTATING else ()
        assert ("scheduler-pods.topogate.dev" in found) == (resource == MUTATING)
        for name in ("scheduler-workloads.topogate.dev", *pods):
            assert found[name]["failurePolicy"] == "Fail"
            [asks] = [one["expression"] for one in found[name]["matchConditions"] if one["name"] == "asks"]
            assert "['', 'default-scheduler']" in asks
            assert "['', 'default-scheduler', 'gang-scheduler']" in asks
        own = found["workloads.topogate.dev"]  # of the policy's kinds: nobody else sends them
        [asks] = [one["expression"] for one in own["matchConditions"] if one["name"] == "asks"]
        assert "['', 'default-scheduler', 'gang-scheduler']" in asks
        assert "['', 'default-scheduler']" not in asks


def test_exempt_namespaces_are_not_even_sent() -> None:
    """A selector leaves out those that the policy names whole, a condition those of a pattern."""
    [entry] = wanted(scope_all(namespaces={"exempt": ["ci", "test-*"]}))
    [selector] = entry["namespaceSelector"]["matchExpressions"]
    assert selector["values"] == ["ci", "kube-system", "topogate-system"]
    [exempt] = [one["expression"] for one in entry["matchConditions"] if one["name"] == "not-exempt"]
    assert exempt == "(request.namespace.matches('^(test-[-a-z0-9]*)$') ? false :\n true)"


def test_what_stands_there_already_is_left_alone() -> None:
    """Fields that the API server adds make no difference; a changed one does."""
    [entry] = wanted(scope_all())
    live = {**entry, "clientConfig": CALL, "addedByANewerServer": 1}
    assert patch_for(configuration([live]), [entry], client_config=CALL) is None
    live["timeoutSeconds"] = 30
    patch = patch_for(configuration([live]), [entry], client_config=CALL)
    assert patch == {"metadata": {"resourceVersion": "7"}, "webhooks": [{**entry, "clientConfig": CALL}]}


def test_entries_of_others_go() -> None:
    """The pair is the leader's alone: what the policy does not ask for is taken out."""
    [entry] = wanted(scope_all())
    foreign = {"name": "extra.example.com", "clientConfig": {}}
    live = {**entry, "clientConfig": CALL}
    assert patch_for(configuration([foreign]), [], client_config=CALL) == {
        "metadata": {"resourceVersion": "7"},
        "webhooks": None,
    }
    patch = patch_for(configuration([foreign, live]), [entry], client_config=CALL)
    assert patch is not None
    assert [one["name"] for one in patch["webhooks"]] == ["gpu-pods.topogate.dev"]
    assert patch_for(configuration(), [], client_config=CALL) is None
    assert patch_for(configuration([]), [], client_config=CALL) is None


def test_a_new_ca_bundle_is_taken_over() -> None:
    """The entries follow the bundle and the address of the manifests' pair."""
    [entry] = wanted(scope_all())
    live = {**entry, "clientConfig": CALL}
    patch = patch_for(configuration([live]), [entry], client_config={**CALL, "caBundle": "bmV3"})
    assert patch is not None
    assert patch["webhooks"][0]["clientConfig"]["caBundle"] == "bmV3"


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, configuration(7), b'{"metadata":{"resourceVersion":7}}'],
    ids=["empty", "list", "no metadata", "no UTF-8", "deep", "webhooks", "version"],
)
def test_what_is_no_configuration_is_refused(body: bytes) -> None:
    """A malformed answer raises PairMalformed and nothing else."""
    with pytest.raises(PairMalformed):
        patch_for(body, [], client_config=CALL)


class _Server:
    """Answers GETs from `objects` by name and takes PATCHes, failing the first `conflicts` of them."""

    def __init__(self, *, called: object = CALL, conflicts: int = 0) -> None:
        self.objects = {
            names.MUTATING_CONFIGURATION: configuration([{"name": "workloads.topogate.dev", "clientConfig": called}]),
            names.POLICY_CONFIGURATION: configuration(),
        }
        self.conflicts = conflicts
        self.patches: list[Any] = []

    def request(self, method: str, path: str, *, body: Any = None, content_type: str = "") -> bytes:
        if method == "GET":
            return self.objects[path.rpartition("/")[2]]
        assert path.endswith(names.POLICY_CONFIGURATION)
        assert content_type == "application/merge-patch+json"
        if self.conflicts:
            self.conflicts -= 1
            raise ApiError(409, "Conflict", "")
        self.patches.append(body)
        self.objects[names.POLICY_CONFIGURATION] = configuration(body["webhooks"] or [])
        return b"{}"


def _keep(server: _Server, policy: Policy, fence: Any = lambda: None, *, bundle: bytes | None = b"ca") -> bool:
    manifests, known = server.objects[names.MUTATING_CONFIGURATION], server.objects[names.POLICY_CONFIGURATION]
    return keep(
        server,  # type: ignore[arg-type]
        MUTATING,
        wanted(policy),
        manifests=manifests,
        known=known,
        bundle=bundle,
        fence=fence,
    )


def test_the_leader_fills_and_empties_the_pair() -> None:
    """Written once when the policy changes, with the address and the bundle of the manifests' pair."""
    server = _Server()
    assert _keep(server, scope_all())
    assert server.patches[0]["webhooks"][0]["clientConfig"] == CALL
    assert not _keep(server, scope_all())
    assert _keep(server, parse_policy("{}"))
    assert not _keep(server, parse_policy("{}"))
    assert len(server.patches) == 2


def test_nothing_is_written_where_the_manifests_pair_calls_nobody() -> None:
    """How the service is called stands nowhere else."""
    for called in (None, {}):
        server = _Server(called=called)
        assert not _keep(server, scope_all())
        assert server.patches == []


def test_an_entry_trusts_our_ca_whatever_the_manifests_pair_trusts() -> None:
    """A foreign bundle there, which is about to be put right, is not copied."""
    server = _Server(called={**CALL, "caBundle": "Zm9yZWlnbg=="})
    assert _keep(server, scope_all())
    assert server.patches[0]["webhooks"][0]["clientConfig"] == CALL


def test_a_bundle_that_another_program_writes_is_left_to_it() -> None:
    """A new entry begins with that of the manifests' pair; what the program writes into it later stays, also beside
    another new entry.
    """
    server = _Server()
    assert _keep(server, scope_all(), bundle=None)
    (entry,) = server.patches[0]["webhooks"]
    assert entry["clientConfig"] == CALL
    injected = {**CALL, "caBundle": "bmV3"}
    server.objects[names.POLICY_CONFIGURATION] = configuration([entry | {"clientConfig": injected}])
    assert not _keep(server, scope_all(), bundle=None)
    both = parse_policy("gpu: {scope: all}\nschedulers: [default-scheduler, other]\n")
    assert _keep(server, both, bundle=None)
    found = {one["name"]: one["clientConfig"] for one in server.patches[1]["webhooks"]}
    assert found.pop(entry["name"]) == injected
    assert found and all(one == CALL for one in found.values())


def test_conflicts_are_tried_again_and_then_told() -> None:
    """Two in a row are taken; more is left for the next round."""
    assert _keep(_Server(conflicts=2), scope_all())
    with pytest.raises(ApiError):
        _keep(_Server(conflicts=3), scope_all())


def test_the_fence_is_asked_before_each_write() -> None:
    """Who does not lead writes nothing."""

    def fence() -> None:
        raise RuntimeError("not the leader")

    server = _Server()
    with pytest.raises(RuntimeError):
        _keep(server, scope_all(), fence)
    assert server.patches == []
    assert not _keep(server, parse_policy("{}"), fence)
