"""Which workloads of every kind reach the service, on a real API server whose custom resources have no schema.

On a control plane of their own: the session's one belongs to tests that run the service behind the same names.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from engine.api import names
from engine.kinds.registry import built_in
from engine.kinds.schema import KindEntry
from engine.policy.model import parse_policy
from local.client import Client
from local.controlplane import ControlPlane
from tests.support.definitions import Definition
from tests.support.eventually import eventually
from tests.support.installed import HOOKS, OTHERS, install, is_of_others
from tests.support.kinds import TEMPLATE
from tests.support.plain_objects import (
    BY_NAME,
    CUSTOM,
    ENTRIES,
    NAMESPACE,
    at,
    collection,
    definitions,
    known_templates,
    plain,
)
from tests.support.recorder import Recorder
from webhook.configuration.policy_webhooks import RESOURCES, entries

ASKING = {names.REQUIRE: "rack"}
ALIAS = {"kueue.x-k8s.io/podset-required-topology": "rack"}
DEVICES = {"limits": {"koordinator.sh/gpu": "50"}}
Json = dict[str, Any]


@pytest.fixture(scope="module")
def admin(plane: ControlPlane, recorder: Recorder) -> Client:
    """The admin of a control plane with the manifests and every kind, the custom ones without a schema."""
    client = install(plane, recorder, namespace=NAMESPACE, probe=lambda client: create(client, asking_job()))
    for one in (made := definitions()):
        one.create(client)
    for one in made:
        one.install(client)
    return client


def asking_job() -> Json:
    return {
        "metadata": {"name": "probe", "annotations": ASKING},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}},
    }


def create(
    client: Client, body: Mapping[str, Any], *, path: str = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
) -> None:
    """Create an object as far as admission goes: nothing is stored."""
    client.create(path, body, dry_run=True)


def both(entry: KindEntry, operation: str = "CREATE") -> list[tuple[str, str, str]]:
    """Mutated and validated; an object that only makes workloads is looked at, not changed."""
    if entry.handling == "hint":
        return others(entry, operation)
    return [(path, operation, entry.match.kind) for path in ("/mutate", "/validate")]


def others(entry: KindEntry, operation: str = "CREATE") -> list[tuple[str, str, str]]:
    """Sent by the entry that stops nobody."""
    return [(OTHERS, operation, entry.match.kind)]


def asked(recorder: Recorder, client: Client, entry: KindEntry, body: Json) -> list[tuple[str, str, str]]:
    return recorder.during(partial(create, client, body, path=collection(entry)))


@pytest.mark.parametrize("name", BY_NAME)
def test_a_workload_that_asks_for_nothing_is_not_sent(admin: Client, recorder: Recorder, name: str) -> None:
    """Of no kind, with or without foreign keys everywhere."""
    entry, body = BY_NAME[name], plain(BY_NAME[name])
    assert asked(recorder, admin, entry, body) == []
    foreign = {"annotations": {"example.com/topogate.dev": "x"}, "labels": {"app": "x"}}
    body["metadata"] |= foreign
    if entry.handling == "placed":
        for field in known_templates(entry, body):
            at(body, field)["metadata"] = foreign
    assert asked(recorder, admin, entry, body) == []


@pytest.mark.parametrize("name", BY_NAME)
def test_a_workload_that_asks_itself_is_sent(admin: Client, recorder: Recorder, name: str) -> None:
    """By a key of ours or of another dialect, by a misspelt one too."""
    entry = BY_NAME[name]
    for request in (ASKING, {"topogate.dev/require": "rack"}, {"kai.scheduler/topology": "x"}):
        body = plain(entry)
        body["metadata"]["annotations"] = request
        if name == "volcano-job":
            body["spec"]["schedulerName"] = names.DEFAULT_SCHEDULER  # else it is Volcano's own
        assert asked(recorder, admin, entry, body) == both(entry), request


@pytest.mark.parametrize(
    ("owner", "sent"),
    [
        ({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "controller": True}, True),
        ({"apiVersion": "trainer.kubeflow.org/v9", "kind": "TrainJob", "controller": True}, True),
        ({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}, False),
        ({"apiVersion": "example.com/v1", "kind": "TrainJob", "controller": True}, False),
    ],
)
def test_the_jobset_of_a_trainjob_is_sent_to_be_marked(
    admin: Client, recorder: Recorder, owner: Json, sent: bool
) -> None:
    """It carries nothing of ours: the request stands on the TrainJob. Marked it is validated like any other."""
    entry = BY_NAME["jobset"]
    body = plain(entry)
    body["metadata"]["ownerReferences"] = [{**owner, "name": "train", "uid": "3c7f8a52-0000-4000-8000-000000000001"}]
    assert asked(recorder, admin, entry, body) == (both(entry) if sent else [])


MARKS: dict[str, Json] = {
    "our annotation": {"metadata": {"annotations": ASKING}},
    "an alias": {"metadata": {"annotations": ALIAS}},
    "a pod group": {"metadata": {"labels": {names.POD_GROUP_NAME: "g"}}},
    "our label": {"metadata": {"labels": {names.MANAGED: "true"}}},
    "our gate": {"spec": {"schedulingGates": [{"name": names.GATE}]}},
}


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES if entry.handling == "placed"])
def test_a_workload_of_which_any_template_asks_is_sent(admin: Client, recorder: Recorder, name: str, mark: str) -> None:
    """Each template of the kind by itself."""
    entry = BY_NAME[name]
    fields = known_templates(entry, plain(entry))
    assert fields
    for field in fields:
        body = plain(entry)
        template = at(body, field)
        for part, value in MARKS[mark].items():
            template[part] = merged_maps(template.get(part) or {}, value)
        assert asked(recorder, admin, entry, body) == both(entry), field


def merged_maps(one: Json, other: Json) -> Json:
    return {
        **one,
        **{key: {**one.get(key, {}), **value} if isinstance(value, dict) else value for key, value in other.items()},
    }


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES if entry.handling == "placed"])
def test_what_kueue_has_is_not_sent_for_an_alias(admin: Client, recorder: Recorder, name: str) -> None:
    """Its queue on the workload takes every template out; a request of ours does not go unseen."""
    entry = BY_NAME[name]
    body = plain(entry)
    body["metadata"]["labels"] = {names.KUEUE_QUEUE: "q"}
    for field in known_templates(entry, body):
        template = at(body, field)
        template["metadata"] = merged_maps(template.get("metadata") or {}, {"annotations": ALIAS})
    assert asked(recorder, admin, entry, body) == []
    body["metadata"]["annotations"] = ASKING
    assert asked(recorder, admin, entry, body) == others(entry)


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES if entry.handling == "placed"])
def test_a_workload_of_which_any_template_names_devices_is_sent(admin: Client, recorder: Recorder, name: str) -> None:
    """Without any other request, once, to the entry that stops nobody; a template that is marked keeps it out."""
    entry = BY_NAME[name]
    for field in known_templates(entry, plain(entry)):
        body = plain(entry)
        at(body, field)["spec"].setdefault("containers", [{"name": "main", "image": "none"}])
        at(body, field)["spec"]["containers"][0]["resources"] = DEVICES
        assert asked(recorder, admin, entry, body) == others(entry), field


# Custom resources that nobody has checked


WRONG: list[Any] = [None, "x", 7, 1.5, True, [], {}, [None], [7], ["x"], [[]], [{}], {"a": None}, {"a": 7}, {"a": [7]}]


def wrong_everywhere(body: Any) -> Iterator[tuple[list[str | int], Any]]:
    """Each node of an object below its spec, by its steps."""
    stack: list[tuple[list[str | int], Any]] = [(["spec"], body["spec"])]
    while stack:
        steps, node = stack.pop()
        yield steps, node
        inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        stack += [([*steps, key], value) for key, value in inner]


def replaced(body: Json, steps: list[str | int], value: Any) -> Json:
    body = copy.deepcopy(body)
    node: Any = body
    for step in steps[:-1]:
        node = node[step]
    node[steps[-1]] = value
    return body


@pytest.mark.parametrize("name", sorted({entry.name for entry in CUSTOM}))
def test_a_malformed_object_that_asks_for_nothing_is_not_sent_and_not_refused(
    admin: Client, recorder: Recorder, name: str
) -> None:
    """Whatever stands in whatever field of a custom resource without a schema."""
    entry = BY_NAME[name]
    body = plain(entry)
    if entry.handling == "placed":
        for field in known_templates(entry, body):
            template = at(body, field)
            template["metadata"] = {"annotations": {"a": "b"}, "labels": {"a": "b"}}
            template["spec"] |= {"schedulingGates": [{"name": "example.com/x"}]}
            template["spec"].setdefault("containers", [{"name": "main"}])
            template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    for number, (steps, _) in enumerate(list(wrong_everywhere(body))):
        # Every wrong value meets every depth; all of them everywhere would be thousands of requests.
        for value in WRONG[number % 5 :: 5]:
            assert asked(recorder, admin, entry, replaced(body, steps, value)) == [], (steps, value)
    for value in WRONG:
        assert asked(recorder, admin, entry, {**body, "spec": value}) == []
    del body["spec"]
    assert asked(recorder, admin, entry, body) == []


@pytest.mark.parametrize("value", WRONG, ids=str)
def test_a_wrong_part_hides_no_request_in_another(admin: Client, recorder: Recorder, value: Any) -> None:
    """A template that asks is seen, whatever stands beside it."""
    entry = BY_NAME["raycluster"]
    asking = {"metadata": {"annotations": ASKING}, **TEMPLATE}
    for spec in (
        {"headGroupSpec": value, "workerGroupSpecs": [{"template": asking}]},
        {"headGroupSpec": {"template": asking}, "workerGroupSpecs": value},
        {"headGroupSpec": {"template": asking}, "workerGroupSpecs": [value, {"template": value}]},
        {"headGroupSpec": {"template": value}, "workerGroupSpecs": [value, {"template": asking}]},
        {"headGroupSpec": {"template": {"metadata": value, "spec": value}}, "workerGroupSpecs": [{"template": asking}]},
    ):
        body = {**plain(entry), "spec": spec}
        assert asked(recorder, admin, entry, body) == both(entry), spec


def test_large_objects_cost_nobody_his_workload(admin: Client, recorder: Recorder) -> None:
    """The conditions stay within the API server's budget for CEL: over it, the object would be refused."""
    entry = BY_NAME["raycluster"]
    many = {f"example.com/k{number:03}": "" for number in range(300)}
    group = {"template": {"metadata": {"annotations": many, "labels": many}, **TEMPLATE}}
    body = {**plain(entry), "spec": {"headGroupSpec": group, "workerGroupSpecs": [group] * 60}}
    assert asked(recorder, admin, entry, body) == []
    body["metadata"] = {"name": "one", "annotations": ASKING}
    assert asked(recorder, admin, entry, body) == both(entry)
    body["metadata"]["labels"] = {names.KUEUE_QUEUE: "q"}
    assert asked(recorder, admin, entry, body) == others(entry)


@pytest.fixture
def stored(admin: Client) -> Iterator[Callable[[KindEntry, Json], str]]:
    """Stores an object and returns its path."""
    paths: list[str] = []

    def store(entry: KindEntry, body: Json) -> str:
        admin.create(collection(entry), body)
        paths.append(f"{collection(entry)}/{body['metadata']['name']}")
        return paths[-1]

    yield store
    for path in paths:
        admin.delete(path)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_request_that_comes_or_goes_is_sent(
    admin: Client, recorder: Recorder, stored: Callable[[KindEntry, Json], str], name: str
) -> None:
    """At UPDATE, of every kind; foreign annotations are nobody's business."""
    entry = BY_NAME[name]
    path = stored(entry, {**plain(entry), "metadata": {"name": "changing"}})
    come = {"metadata": {"annotations": ASKING}}
    foreign = {"metadata": {"annotations": {"example.com/x": "y"}}}
    gone = {"metadata": {"annotations": {names.REQUIRE: None}}}
    assert recorder.during(lambda: admin.patch(path, foreign)) == []
    assert set(recorder.during(lambda: admin.patch(path, come))) == set(both(entry, "UPDATE"))
    assert recorder.during(lambda: admin.patch(path, {"metadata": {"annotations": {"example.com/x": "z"}}})) == []
    taken_back = [] if entry.handling == "hint" else both(entry, "UPDATE")  # nothing was asked there
    assert set(recorder.during(lambda: admin.patch(path, gone))) == set(taken_back)
    assert recorder.during(lambda: admin.patch(path, foreign)) == []


def test_a_version_that_no_entry_names_is_sent(admin: Client, recorder: Recorder) -> None:
    """The rules know no versions."""
    entry = BY_NAME["mpijob"]
    body = {**plain(entry), "apiVersion": "kubeflow.org/v1"}
    body["metadata"]["annotations"] = ASKING
    path = collection(entry, version="v1")
    assert recorder.during(partial(create, admin, body, path=path)) == both(entry)


# What the policy adds


POLICY = """
schedulers: [default-scheduler, gang-scheduler]
namespaces: {defaults: [{namespaces: [research-*], annotations: {topogate.dev/prefer-topology: auto}}]}
kinds:
- name: bench
  match: {group: example.com, versions: [v1], kind: Bench, resource: benches}
  podSets:
  - {name: {text: main}, role: worker, template: '.spec["in"].void', count: {const: 2}}
  - {forEach: '.spec.parts[*].rows{*}', name: {key: lower}, role: part, template: .cell, count: {const: 1}}
  - {name: {text: outer}, role: outer, template: .outer, count: {const: 1}}
  gang: {unit: workload, creation: all-at-once}
  replace: {cost: free}
  standAside:
  - {when: {path: .spec.by, in: [1, true, them]}, reason: OtherController}
- name: flow
  match: {group: example.com, versions: [v1], kind: Flow, resource: flows}
  handling: hint
- name: placed-flow
  match: {group: example.com, versions: [v2], kind: Flow, resource: flows}
  podSets: [{name: {text: main}, template: .spec.template, count: {const: 1}}]
  gang: {unit: workload, creation: all-at-once}
  replace: {cost: free}
"""


@pytest.fixture(scope="module")
def with_policy(admin: Client, recorder: Recorder) -> Client:
    """The admin once the pair has the entries of a policy, kept as the leader keeps them."""
    policy = parse_policy(POLICY)
    registry = policy.registry
    bench = registry.entries[len(built_in().entries)]
    Definition(bench.match.group, bench.match.kind, bench.match.resource).install(admin)
    admin.create("/api/v1/namespaces", {"metadata": {"name": "research-x"}})
    for resource in RESOURCES:
        manifest = admin.get(f"{HOOKS}/{resource}/topogate")["webhooks"][0]["clientConfig"]
        wanted = entries(resource, policy, whole=(), own_username="us", own_namespace=names.NAMESPACE)
        url = manifest["url"].rpartition("/")[0]
        paths = {entry["name"]: OTHERS if is_of_others(entry["name"]) else "" for entry in wanted}
        called = {
            name: {**manifest, "url": f"{url}{path}" if path else manifest["url"]} for name, path in paths.items()
        }
        body = {"webhooks": [{**entry, "clientConfig": called[entry["name"]]} for entry in wanted]}
        admin.patch(f"{HOOKS}/{resource}/topogate-policy", body)
    asking = {**BENCH, "metadata": {"name": "one", "annotations": ASKING}}
    eventually(
        lambda: len(recorder.during(partial(create, admin, asking, path=collection(bench)))) == 2,
        message="the pair is in force",
    )
    return admin


BENCH = {"apiVersion": "example.com/v1", "kind": "Bench"}
BENCHES = f"/apis/example.com/v1/namespaces/{NAMESPACE}/benches"
SENT = [("/mutate", "CREATE", "Bench"), ("/validate", "CREATE", "Bench")]
TOLD = [(OTHERS, "CREATE", "Bench")]


@pytest.mark.parametrize(
    "place",
    [
        lambda asking: {"spec": {"in": {"void": asking}}},
        lambda asking: {"spec": {"parts": [{"rows": {"a": {"cell": {}}}}, {"rows": {"b": {}, "c": {"cell": asking}}}]}},
        lambda asking: {"outer": asking},
    ],
    ids=["reserved words", "two stars", "outside the spec"],
)
def test_kinds_of_the_policy_are_sent_by_their_own_paths(
    with_policy: Client, recorder: Recorder, place: Callable[[Json], Json]
) -> None:
    """Whatever the entry calls its fields; without a request nothing is sent."""
    for template, calls in (
        ({"metadata": {"annotations": ASKING}}, SENT),
        ({"metadata": {"annotations": {"a": "b"}}}, []),
        ({"spec": {"containers": [{"name": "main", "resources": DEVICES}]}}, TOLD),
    ):
        body = {**BENCH, "metadata": {"name": "one"}, **place(template)}
        assert recorder.during(partial(create, with_policy, body, path=BENCHES)) == calls


def test_a_template_outside_the_spec_is_sent_when_it_changes(with_policy: Client, recorder: Recorder) -> None:
    """It has our gate and labels, like one in the spec; other fields are nobody's business."""
    body = {
        **BENCH,
        "metadata": {"name": "outer", "annotations": ASKING},
        "outer": {"metadata": {"labels": {"a": "b"}}},
    }
    with_policy.create(BENCHES, body)
    path = f"{BENCHES}/outer"
    try:
        updates = [(path, "UPDATE", kind) for path, _, kind in SENT]
        outer = {"outer": {"metadata": {"labels": {"a": "c"}}}}
        assert recorder.during(lambda: with_policy.patch(path, outer)) == updates
        assert recorder.during(lambda: with_policy.patch(path, {"other": {"a": "b"}})) == []
    finally:
        with_policy.delete(path)


@pytest.mark.parametrize(
    ("by", "calls"), [(1, TOLD), (True, TOLD), ("them", TOLD), (2, SENT), ("true", SENT), (None, SENT)]
)
def test_what_another_controller_has_by_the_policy_is_only_told(
    with_policy: Client, recorder: Recorder, by: Any, calls: list[tuple[str, str, str]]
) -> None:
    """By values of any type; the entry for requests leaves it alone, that for warnings does not."""
    body = {**BENCH, "metadata": {"name": "one", "annotations": ASKING}, "spec": {"by": by}}
    assert recorder.during(partial(create, with_policy, body, path=BENCHES)) == calls


@pytest.mark.parametrize("value", WRONG, ids=str)
def test_malformed_objects_of_the_policy_s_kinds_pass(with_policy: Client, recorder: Recorder, value: Any) -> None:
    """An error in a condition would refuse them."""
    for part in (
        {"spec": value},
        {"outer": value},
        {"spec": {"in": value, "parts": value}},
        {"spec": {"in": {"void": value}, "parts": [{"rows": value}, value]}},
    ):
        body = {**BENCH, "metadata": {"name": "one"}, **part}
        assert recorder.during(partial(create, with_policy, body, path=BENCHES)) == []


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES if entry.handling in ("placed", "through")])
def test_workloads_of_namespaces_with_defaults_are_sent(with_policy: Client, recorder: Recorder, name: str) -> None:
    """At CREATE, when they ask for nothing; who asks himself is sent by the manifests' entries, once, and both are
    validated.
    """
    entry = BY_NAME[name]
    path = collection(entry).replace(f"/{NAMESPACE}/", "/research-x/")
    quiet, asking = plain(entry), plain(entry)
    asking["metadata"]["annotations"] = ASKING
    assert recorder.during(partial(create, with_policy, quiet, path=path)) == both(entry)
    assert recorder.during(partial(create, with_policy, asking, path=path)) == both(entry)


@pytest.mark.parametrize("aside", [{"labels": {names.KUEUE_QUEUE: "q"}}, {}], ids=["Kueue's", "another scheduler's"])
def test_workloads_of_others_are_not_sent_for_a_default(
    with_policy: Client, recorder: Recorder, aside: dict[str, Any]
) -> None:
    """They would get none: nobody waits for us."""
    entry = BY_NAME["job"]
    body = plain(entry)
    body["metadata"] |= aside
    if not aside:
        body["spec"]["template"]["spec"]["schedulerName"] = "kai-scheduler"
    path = collection(entry).replace(f"/{NAMESPACE}/", "/research-x/")
    assert recorder.during(partial(create, with_policy, body, path=path)) == []


@pytest.mark.parametrize("name", ["job", "jobset", "volcano-job"])
@pytest.mark.parametrize("scheduler", ["gang-scheduler", "kai-scheduler"])
def test_workloads_of_a_scheduler_that_the_policy_serves_are_sent(
    with_policy: Client, recorder: Recorder, name: str, scheduler: str
) -> None:
    """By entries of the policy's; those of one that nobody serves are only told."""
    entry = BY_NAME[name]
    body = plain(entry)
    body["metadata"]["annotations"] = ASKING
    if name == "volcano-job":
        body["spec"]["schedulerName"] = scheduler
    else:
        for field in known_templates(entry, body):
            at(body, field)["spec"]["schedulerName"] = scheduler
    served = both(entry) if scheduler == "gang-scheduler" else []
    assert {*asked(recorder, with_policy, entry, body)} == {*served, *others(entry)}


@pytest.mark.parametrize("scheduler", ["gang-scheduler", "kai-scheduler"])
def test_pods_of_a_scheduler_that_the_policy_serves_are_sent(
    with_policy: Client, recorder: Recorder, scheduler: str
) -> None:
    body = {
        "metadata": {"name": "one", "annotations": ASKING},
        "spec": {"schedulerName": scheduler, **TEMPLATE["spec"], "automountServiceAccountToken": False},
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    found = {path for path, _, _ in recorder.during(partial(create, with_policy, body, path=path))}
    assert found == {OTHERS, *(["/mutate"] if scheduler == "gang-scheduler" else [])}
