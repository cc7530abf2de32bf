from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from engine.api import names
from engine.api.reasons import REASONS
from engine.decoding import workloads as cluster_workloads
from engine.policy.model import parse_policy
from tests.support.golden import golden
from tests.support.simulation import (
    Json,
    answer,
    grid,
    job,
    objects,
    pod,
    priority_class,
    simulated,
    verdicts,
)
from webhook.simulate.model import Simulation
from webhook.simulate.run import simulate
from webhook.simulate.text import as_text
from webhook.snapshot.cluster import offline_cluster
from webhook.snapshot.files import FileProblem

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "schemas" / "simulate.schema.json").read_text(encoding="utf-8"))
GRID = grid(2, 2, 4)
RACK = {"require": "rack"}


def gang(cluster: list[Json], workload: Json, **options: Any) -> Json:
    (found,) = answer(cluster, [workload], **options)["workloads"]
    return dict(found)


def hosts(found: Json) -> list[str]:
    return [slots["node"] for pod_set in found["podSets"] for slots in pod_set["assignment"]]


def test_the_whole_answer() -> None:
    """Golden: one placed, one waiting, one too large, one refused, one none of ours; every key there."""
    workloads = [
        job("train", 4, RACK),
        job("wide", 14, {"prefer": "rack"}),
        job("huge", 5, RACK),
        job("typo", 4, {"require": "rak"}),
        job("plain", 2),
    ]
    found = answer(GRID, workloads)
    jsonschema.validate(found, SCHEMA)
    golden("simulate", {"answer": json.dumps(found, indent=2)})


@pytest.mark.parametrize(
    ("workload", "verdict"),
    [
        (job("a", 4, RACK), "placed"),
        (job("a", 40, {"unconstrained": "true"}), "never"),
        (job("a", 4, RACK, suspend=True), "waits"),
        (job("a", 4, {"require": "nope"}), "rejected"),
        (job("a", 4), "ignored"),
    ],
)
def test_every_verdict_has_every_key(workload: Json, verdict: str) -> None:
    """The schema demands all keys and no others, whatever the verdict."""
    found = answer(GRID, [workload])
    assert found["workloads"][0]["verdict"] == verdict
    jsonschema.validate(found, SCHEMA)
    for key in SCHEMA["$defs"]["Gang"]["properties"]:
        broken = {**found, "workloads": [{k: v for k, v in found["workloads"][0].items() if k != key}]}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, SCHEMA)


def test_a_placed_gang() -> None:
    """Assignment in rank order, neighbours in rank on neighbouring hosts, counts adding up to the gang."""
    found = gang(GRID, job("train", 8, RACK, gpus=4))
    (pod_set,) = found["podSets"]
    assert (found["reason"], found["message"]) == (None, "placed 8 pods in b0 / b0-r0 (4 hosts)")
    assert (found["topology"], found["group"], found["require"], found["prefer"]) == ("default", None, None, None)
    assert (pod_set["name"], pod_set["require"], pod_set["proven"]) == ("main", "rack", True)
    assert [(one["node"], one["count"], one["ranks"]) for one in pod_set["assignment"]] == [
        ("b0-r0-h0", 2, "0-1"),
        ("b0-r0-h1", 2, "2-3"),
        ("b0-r0-h2", 2, "4-5"),
        ("b0-r0-h3", 2, "6-7"),
    ]
    assert pod_set["assignment"][0]["domain"] == ["b0", "b0-r0", "b0-r0-h0"]
    assert pod_set["domainsUsed"] == {"block": 1, "rack": 1, "host": 4}


def test_unranked_pods_have_no_ranks() -> None:
    """A NonIndexed Job: counts alone."""
    found = gang(GRID, job("train", 2, RACK, completionMode="NonIndexed"))
    assert [one["ranks"] for one in found["podSets"][0]["assignment"]] == [None, None]


def test_slices_are_shown_by_pod_and_by_domain() -> None:
    """The number of each pod's slices as on the pod, and for each slice of every layer its domain and ranks."""
    found = gang(GRID, job("train", 8, {"require": "block", names.SLICES: "rack=4,host=2"}, gpus=4))
    jsonschema.validate({"workloads": [found], "cluster": {"nodes": 0, "nodesInTopology": 0, "levels": []}}, SCHEMA)
    (pod_set,) = found["podSets"]
    assert [(one["node"], one["ranks"], one["slices"]) for one in pod_set["assignment"]] == [
        ("b0-r0-h0", "0-1", ["0/0", "0/0"]),
        ("b0-r0-h1", "2-3", ["0/1", "0/1"]),
        ("b0-r0-h2", "4-5", ["1/2", "1/2"]),
        ("b0-r0-h3", "6-7", ["1/3", "1/3"]),
    ]
    assert pod_set["slices"] == [
        {"level": level, "index": index, "domain": domain, "ranks": ranks}
        for level, index, domain, ranks in (
            ("rack", 0, ["b0", "b0-r0"], "0-3"),
            ("rack", 1, ["b0", "b0-r0"], "4-7"),
            ("host", 0, ["b0", "b0-r0", "b0-r0-h0"], "0-1"),
            ("host", 1, ["b0", "b0-r0", "b0-r0-h1"], "2-3"),
            ("host", 2, ["b0", "b0-r0", "b0-r0-h2"], "4-5"),
            ("host", 3, ["b0", "b0-r0", "b0-r0-h3"], "6-7"),
        )
    ]


@pytest.mark.parametrize("ranked", [True, False])
def test_a_host_with_several_slices_names_that_of_each_pod(ranked: bool) -> None:
    """Slices of three on hosts of eight: the second host begins inside a slice; without ranks there are none."""
    mode = {} if ranked else {"completionMode": "NonIndexed"}
    sliced = {"require": "block", names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "3"}
    (pod_set,) = gang(grid(1, 1, 2), job("train", 12, sliced, gpus=1, **mode))["podSets"]
    told = [index for one in pod_set["assignment"] for index in one["slices"] or ()]
    assert told == ([str(rank // 3) for rank in range(12)] if ranked else [])
    assert all((one["slices"] is not None) is ranked for one in pod_set["assignment"])
    expected = ["0-2", "3-5", "6-8", "9-11"] if ranked else []
    assert [(one["index"], one["ranks"]) for one in pod_set["slices"]] == list(enumerate(expected))


def test_a_gang_of_no_pods_has_no_slices() -> None:
    """Nothing is planned for it, so that no level is known to the answer."""
    found = gang(GRID, job("train", 0, {"require": "block", names.SLICES: "rack=4"}))
    assert (found["verdict"], found["podSets"][0]["slices"]) == ("placed", [])


def test_the_text_has_a_line_for_each_layer_of_slices() -> None:
    """Four slices of a layer, and how many more there are."""
    sliced = {"require": "block", names.SLICES: "rack=6,host=2"}
    found = answer(GRID, [job("train", 12, sliced, gpus=4)])
    lines = [line.strip() for line in as_text(Simulation.model_validate(found)).splitlines()]
    assert "slices by rack: 0 (ranks 0-5) in b0 / b0-r0; 1 (ranks 6-11) in b0 / b0-r1" in lines
    host = "slices by host: 0 (ranks 0-1) in b0 / b0-r0 / b0-r0-h0; "
    assert [line.endswith("; 2 more (-o json has all)") for line in lines if line.startswith(host)] == [True]


def test_a_gang_that_waits() -> None:
    """Not now: reason code, needed / have / best; nothing assigned, nothing proven."""
    cluster = [*GRID, *(pod(f"p{n}", f"b{n // 2}-r{n % 2}-h0") for n in range(4))]
    found = gang(cluster, job("train", 4, RACK))
    assert (found["verdict"], found["reason"]) == ("waits", "Fragmented")
    assert found["message"].startswith("needs 4 hosts in one rack; best is b0-r0 with 3 (4 racks looked at)")
    assert found["warnings"] == [
        "topogate: with prefer-topology it would start now across b0-r0 and b0-r1",
    ]
    assert found["podSets"] == [
        {
            "name": "main",
            "count": 4,
            "require": "rack",
            "prefer": None,
            "assignment": [],
            "slices": [],
            "domainsUsed": {},
            "proven": None,
        }
    ]


def test_a_gang_that_never_fits() -> None:
    """Bigger than any domain could ever hold: a verdict of its own where the policy warns."""
    found = gang(GRID, job("train", 5, RACK))
    assert (found["verdict"], found["reason"], found["errors"]) == ("never", "GangTooLarge", [])
    assert "5 pods x 8 GPUs = 40 GPUs must share one rack" in found["message"]


def test_a_gang_that_never_fits_is_rejected_where_the_policy_says_so() -> None:
    """`neverFits: deny` makes it a denial, at the annotation that asks for too much."""
    found = gang(GRID, job("train", 5, RACK), policy=parse_policy("neverFits: deny"))
    (error,) = found["errors"]
    assert (found["verdict"], found["reason"], found["podSets"]) == ("rejected", "GangTooLarge", [])
    assert (error["field"], error["reason"]) == (f"metadata.annotations[{names.REQUIRE}]", "GangTooLarge")


def test_a_rejected_workload_tells_all_errors() -> None:
    """Field and message as in details.causes, our own codes, ordered by path."""
    found = gang(GRID, job("train", 4, {"require": "rak", "topogate.dev/prefer-topolgy": "host"}))
    assert found["verdict"] == "rejected"
    assert found["podSets"] == []
    assert [(one["field"], one["reason"], one["message"]) for one in found["errors"]] == [
        (
            "metadata.annotations[topogate.dev/prefer-topolgy]",
            "UnknownAnnotation",
            "Forbidden: no such annotation; did you mean topogate.dev/prefer-topology?",
        ),
        (
            "metadata.annotations[topogate.dev/require-topology]",
            "UnknownLevel",
            'Unsupported value: "rak": allowed: block, rack, host, auto; did you mean "rack"?',
        ),
    ]


def test_a_refusal_by_policy_keeps_its_field() -> None:
    """403 for the admin's limits, with the same shape of errors."""
    found = gang(GRID, job("train", 9, RACK), policy=parse_policy("queue: {maxGangPods: 8}"))
    assert [(one["field"], one["reason"]) for one in found["errors"]] == [("spec.parallelism", "GangLimitExceeded")]


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (job("a", 4), "NoTopologyRequested"),
        (job("a", 4, {**RACK, "kueue.x-k8s.io/queue-name": "q"}), "ManagedByKueue"),
        (
            {**job("a", 4, RACK), "metadata": {**job("a", 4, RACK)["metadata"], "namespace": "kube-system"}},
            "ExemptNamespace",
        ),
    ],
)
def test_what_is_ignored(workload: Json, reason: str) -> None:
    """None of ours: the reason says why, the pod set is counted, nothing is assigned."""
    found = gang(GRID, workload)
    assert (found["verdict"], found["reason"], found["topology"]) == ("ignored", reason, None)
    assert found["message"] == REASONS[reason].description
    assert [(one["count"], one["assignment"]) for one in found["podSets"]] == [(4, [])]


def test_levels_are_aliases() -> None:
    """Keys and `auto` are resolved, in what is placed and in what waits."""
    by_key = gang(GRID, job("a", 4, {"require": "cloud.provider.com/topology-rack", "prefer": "auto"}))
    assert (by_key["podSets"][0]["require"], by_key["podSets"][0]["prefer"]) == ("rack", "host")
    tight = gang(GRID, job("a", 6, {"require": "auto"}))
    assert (tight["verdict"], tight["podSets"][0]["require"]) == ("placed", "block")
    full = [*GRID, *(pod(f"p{n}", one["metadata"]["name"]) for n, one in enumerate(GRID))]
    waiting = gang(full, job("a", 6, {"require": "auto"}))
    assert (waiting["verdict"], waiting["podSets"][0]["require"]) == ("waits", "block")


@pytest.mark.parametrize(("taken", "verdict"), [(0, "placed"), (3, "waits")])
def test_auto_is_shown_as_it_is_planned_in_slices(taken: int, verdict: str) -> None:
    """A rack has 24 slots, on three hosts of eight, and room for three slices of six: the block holds all four."""
    racks = grid(1, 2, 3)
    full = [*racks, *(pod(f"p{n}", racks[n]["metadata"]["name"]) for n in range(taken))]
    sliced = {"require": "auto", names.SLICE_TOPOLOGY: "host", names.SLICE_SIZE: "6"}
    found = gang(full, job("a", 24, sliced, gpus=1))
    assert (found["verdict"], found["podSets"][0]["require"]) == (verdict, "block")


def test_each_workload_takes_its_room_before_the_next() -> None:
    """File order; what is placed counts as reserved, as with the leader."""
    found = answer(grid(1, 2, 4), [job("a", 4, RACK), job("b", 4, RACK), job("c", 4, RACK)])["workloads"]
    assert [one["verdict"] for one in found] == ["placed", "placed", "waits"]
    assert not set(hosts(found[0])) & set(hosts(found[1]))


def test_independent_workloads_start_from_the_same_cluster() -> None:
    """`--independent`: each is asked about alone."""
    found = answer(grid(1, 1, 4), [job("a", 4, RACK), job("b", 4, RACK)], independent=True)["workloads"]
    assert hosts(found[0]) == hosts(found[1]) == [f"b0-r0-h{n}" for n in range(4)]


def aged(workload: Json, created: str) -> Json:
    return {**workload, "metadata": {**workload["metadata"], "creationTimestamp": created}}


def classed(workload: Json, name: str) -> Json:
    spec = workload["spec"]
    template = {**spec["template"], "spec": {**spec["template"]["spec"], "priorityClassName": name}}
    return {**workload, "spec": {**spec, "template": template}}


def test_the_queue_goes_by_priority_then_age_then_name() -> None:
    """`--queue`: the order of the leader's queue; a workload without a date is the youngest."""
    cluster = [*grid(1, 1, 4), priority_class("high", 1000)]
    workloads = [
        job("z-new", 4, RACK),
        job("a-new", 4, RACK),
        aged(job("old", 4, RACK), "2026-01-01T00:00:00Z"),
        classed(job("urgent", 4, RACK), "high"),
    ]
    assert [name for name, _, _ in verdicts(cluster, workloads)] == ["z-new", "a-new", "old", "urgent"]
    queued = verdicts(cluster, workloads, queue=True)
    assert [(name, verdict) for name, verdict, _ in queued] == [
        ("urgent", "placed"),
        ("old", "waits"),
        ("a-new", "waits"),
        ("z-new", "waits"),
    ]


def test_a_strict_queue_lets_nobody_pass() -> None:
    """`queue.order: strict`: what stands behind a waiting gang waits for it, what stands before it does not."""
    cluster = [*grid(1, 1, 4), priority_class("high", 1000)]
    workloads = [
        job("first", 2, RACK),
        job("big", 3, RACK),
        job("small", 1, RACK),
        classed(job("urgent", 1, RACK), "high"),
    ]
    strict = parse_policy("queue: {order: strict}")
    assert verdicts(cluster, workloads, policy=strict) == [
        ("first", "placed", None),
        ("big", "waits", "InsufficientFreeGPUs"),
        ("small", "waits", "QueuedBehind"),
        ("urgent", "placed", None),
    ]
    best = verdicts(cluster, workloads)
    assert [verdict for _, verdict, _ in best] == ["placed", "waits", "placed", "placed"]
    alone = verdicts(cluster, workloads, policy=strict, independent=True)
    assert [verdict for _, verdict, _ in alone] == ["placed"] * 4


def test_a_gang_that_fits_nowhere_ever_holds_up_nobody() -> None:
    """As with the leader: in strict order too the next one goes."""
    found = verdicts(GRID, [job("big", 5, RACK), job("small", 1, RACK)], policy=parse_policy("queue: {order: strict}"))
    assert found == [("big", "never", "GangTooLarge"), ("small", "placed", None)]


def test_time_is_that_of_planning() -> None:
    """In microseconds; 0 where nothing was planned."""
    found = answer(GRID, [job("a", 4, RACK), job("b", 4)])["workloads"]
    assert [one["planMicroseconds"] for one in found] == [180, 0]


def test_what_admission_warns_of_is_told_but_not_twice() -> None:
    """The forecast of submit time is the verdict; other warnings stay."""
    claim = {"resourceClaims": [{"name": "gpu"}]}
    workload = job("a", 4, RACK)
    workload["spec"]["template"]["spec"] |= claim
    found = gang(GRID, workload)
    assert found["verdict"] == "placed"
    (warning,) = found["warnings"]
    assert "not considered: resource claims of the pods" in warning


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_policy_that_does_not_enforce(mode: str) -> None:
    """Nothing is held or refused; observing, the warnings say what would have happened."""
    policy = parse_policy(f"mode: {mode}")
    found = answer(GRID, [job("a", 4, RACK), job("b", 4, {"require": "rak"})], policy=policy)["workloads"]
    assert [(one["verdict"], one["reason"]) for one in found] == [("ignored", "PolicyOff")] * 2
    told = [
        any(word in text for text in one["warnings"]) for one, word in zip(found, ("would place", "rak"), strict=True)
    ]
    assert told == [mode == "observe"] * 2
    assert [one.patch for one in simulated(GRID, [job("a", 4, RACK)], policy=policy)] == [()]


def test_a_job_that_its_user_suspended_waits_for_him() -> None:
    """It is planned when he resumes it, so it takes no room."""
    found = answer(grid(1, 1, 4), [job("a", 4, RACK, suspend=True), job("b", 4, RACK)])["workloads"]
    assert [(one["verdict"], one["reason"]) for one in found] == [("waits", "Suspended"), ("placed", None)]


def test_the_namespaces_quota_must_take_the_whole_gang() -> None:
    """As with the leader, the gangs before it counted in."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": "default"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "40"}},
        "status": {"hard": {"requests.nvidia.com/gpu": "40"}, "used": {"requests.nvidia.com/gpu": "0"}},
    }
    found = answer([*GRID, quota], [job("a", 4, RACK), job("b", 4, RACK)])["workloads"]
    assert [(one["verdict"], one["reason"]) for one in found] == [("placed", None), ("waits", "QuotaExceeded")]
    assert "quota gpus leaves 8 of requests.nvidia.com/gpu" in found[1]["message"]


def with_class(raw: Json, name: str) -> Json:
    raw["spec"]["template"]["spec"]["priorityClassName"] = name
    return raw


def test_pods_of_a_priority_class_that_is_not_there_are_never_made() -> None:
    """It holds no room for pods that nobody can create, and says so at submit time and afterwards."""
    found = answer([*GRID, priority_class("high", 1000)], [with_class(job("a", 4, RACK), "hihg")])["workloads"][0]
    assert (found["verdict"], found["reason"]) == ("waits", "PriorityClassMissing")
    assert found["message"] == 'PriorityClass "hihg" not found: no pod can be created; did you mean "high"?'


@pytest.mark.parametrize("classes", [(), ("high",)])
def test_a_priority_class_is_missing_only_where_others_are_known(classes: tuple[str, ...]) -> None:
    """A cluster always has some: files without any are files that leave them out."""
    found = answer([*GRID, *(priority_class(name, 1000) for name in classes)], [with_class(job("a", 4, RACK), "high")])[
        "workloads"
    ]
    assert [one["verdict"] for one in found] == ["placed"]


def test_the_stored_object_is_what_the_webhook_makes_of_it() -> None:
    """Suspended by us, template gated and labelled; free of what only the server sets; the input is left alone."""
    sent = aged(job("a", 4, RACK), "2026-01-01T00:00:00Z")
    sent["metadata"] |= {"uid": "x", "resourceVersion": "5", "managedFields": []}
    sent["status"] = {"active": 3}
    before = json.dumps(sent)
    (one,) = simulated(GRID, [sent])
    assert one.stored is not None
    stored = cluster_workloads.job(dict(one.stored))
    assert (stored.suspended, stored.annotations[names.HELD_BY]) == (True, names.HELD_BY_SUSPEND)
    assert (stored.template.gates, stored.template.labels[names.MANAGED]) == ((names.GATE,), "true")
    assert set(one.stored["metadata"]) == {"name", "namespace", "annotations", "labels"}
    assert "status" not in one.stored
    assert json.dumps(sent) == before
    assert one.patch


def test_marks_of_ours_in_a_manifest_do_no_harm() -> None:
    """What `kubectl get -o yaml` printed of a placed Job is a new Job when it is sent again."""
    sent = job("a", 4, {**RACK, names.HELD_BY: "suspend", names.PLACEMENT: "job-a", names.REVISION: "7"}, suspend=True)
    found = gang(GRID, sent)
    assert (found["verdict"], found["reason"]) == ("waits", "Suspended")


def test_a_generated_name_is_always_the_same() -> None:
    """Two runs print the same; two Jobs of one manifest get two names."""
    workload = job("", 4, RACK)
    workload["metadata"] = {"generateName": "train-", "annotations": workload["metadata"]["annotations"]}
    first, second = (name for name, _, _ in verdicts(GRID, [workload, workload]))
    assert first.startswith("train-")
    assert first != second
    assert [name for name, _, _ in verdicts(GRID, [workload, workload])] == [first, second]


LIMITS = "spec.template.spec.containers[0].resources.limits"


def broken(**changes: Any) -> Json:
    return {**job("a", 4, RACK), **changes}


def with_limits(**limits: Any) -> Json:
    body = job("a", 4, RACK)
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": limits}
    return body


@pytest.mark.parametrize(
    ("workload", "field", "message"),
    [
        (broken(spec={"parallelism": "4"}), "spec.parallelism", "Invalid value: expected a whole number, got text"),
        (broken(spec=[]), "spec", "Invalid value: expected an object, got a list"),
        (broken(metadata=[]), "metadata", "Invalid value: expected an object, got a list"),
        (broken(metadata={"name": 5}), "metadata.name", "Invalid value: expected text, got a whole number"),
        (
            job("a", 4, {"require": True}),  # type: ignore[dict-item]
            f"metadata.annotations[{names.REQUIRE}]",
            "Invalid value: expected text, got true or false",
        ),
        (with_limits(cpu="1", memory=["1Gi"]), f"{LIMITS}[memory]", "Invalid value: expected"),
        (with_limits(cpu=1, memory={"a": 1}), f"{LIMITS}[memory]", "Invalid value: expected"),
        (broken(metadata=None), "metadata.name", "Required value: name or generateName is required"),
        (broken(metadata={"name": ""}), "metadata.name", "Required value: name or generateName is required"),
        (broken(spec=None), "spec.template.spec.containers", "Required value: a pod has at least one container"),
        (job("a", 4, RACK, parallelism=-1), "spec.parallelism", "Invalid value: expected a whole number >= 0"),
        (job("a", 4, RACK, parallelism=10**30), "spec.parallelism", "Invalid value: expected a whole number"),
        (job("a", 10**9, RACK), "spec.parallelism", 'Invalid value: "1000000000": a gang has at most 10,000 pods'),
        (
            job("a", 4, {"require": "x" * 1_000_000}),
            f"metadata.annotations[{names.REQUIRE}]",
            f'Unsupported value: "{"x" * 60}..."',
        ),
        (
            job("a", 4, {"require": 'ra"\n\x1b[31mck'}),
            f"metadata.annotations[{names.REQUIRE}]",
            'Unsupported value: "ra\\"\\n\\x1b[31mck"',
        ),
    ],
)
def test_malformed_workloads_are_rejected(workload: Json, field: str, message: str) -> None:
    """As the API server or our webhook would: a verdict with the path, never a trace, and the others go on."""
    found = answer(GRID, [workload, job("good", 4, RACK)])["workloads"]
    assert [one["verdict"] for one in found] == ["rejected", "placed"]
    assert (found[0]["errors"][0]["field"], found[0]["podSets"]) == (field, [])
    assert found[0]["errors"][0]["message"].startswith(message)


def test_a_quantity_that_is_none_is_rejected_at_its_place() -> None:
    """The path leads to the container."""
    workload = job("a", 4, RACK)
    workload["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "lots"}}
    (error,) = gang(GRID, workload)["errors"]
    assert error["field"] == "spec.template.spec.containers[0].resources.limits[cpu]"


@pytest.mark.parametrize(
    ("metadata", "verdict", "reason"),
    [
        ({}, "ignored", "NoTopologyRequested"),
        ({"annotations": {names.REQUIRE: "rack"}}, "placed", None),
        ({"annotations": {names.REQUIRE: "rack", names.GANG_SIZE: "2"}}, "rejected", "ConflictingAnnotations"),
        ({"annotations": {names.REQUIRE: "rack"}, "namespace": "kube-system"}, "ignored", "ExemptNamespace"),
        ({"annotations": {names.GANG_NAME: "g", names.GANG_SIZE: "2"}}, "waits", "WaitingForMembers"),
    ],
)
def test_plain_pods(metadata: Json, verdict: str, reason: str | None) -> None:
    """They go the way of the pod webhooks."""
    plain = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", **metadata},
        "spec": {"containers": [{"name": "c"}]},
    }
    assert [one[1:] for one in verdicts(GRID, [plain])] == [(verdict, reason)]


def test_pods_of_a_controller_that_nobody_knows_are_placed_near_each_other() -> None:
    """Each by itself: the third finds no room in the rack of the others."""
    reference = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "u", "controller": True}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": {names.REQUIRE: "rack"}, "ownerReferences": [reference]},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]},
        }
        for name in "abcde"
    ]
    assert [one[1] for one in verdicts(GRID, pods)] == ["placed"] * 4 + ["waits"]


def test_a_bound_pod_is_none_of_ours() -> None:
    """`spec.nodeName` says where it goes."""
    bound = {**pod("p", "b0-r0-h0", annotations={names.REQUIRE: "rack"}), "status": {}}
    assert verdicts(GRID, [bound]) == [("p", "ignored", "NodeNameSet")]


def test_other_kinds() -> None:
    """A kind that nobody registered is refused when it asks; what does not ask is ignored; no pods: not even listed."""
    template = {"metadata": {"annotations": {names.REQUIRE: "rack"}}, "spec": {"containers": [{"name": "c"}]}}
    asking = {
        "apiVersion": "example.com/v1",
        "kind": "Fleet",
        "metadata": {"name": "d"},
        "spec": {"template": template},
    }
    plain = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}}
    plain |= {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "svc"}, "spec": {"ports": []}}
    assert verdicts(GRID, [asking, service, plain]) == [
        ("d", "rejected", "UnsupportedKind"),
        ("s", "ignored", "NoTopologyRequested"),
    ]


def test_the_same_workload_twice_is_wrong_use() -> None:
    """The API server would refuse the second create."""
    with pytest.raises(
        FileProblem, match=r"jobs.json, item 2: Job default/a is a duplicate of the one in jobs.json, item 1"
    ):
        verdicts(GRID, [job("a", 1), job("a", 2)])


def test_the_same_file_twice_is_wrong_use_too() -> None:
    """Of two copies with the same place in the same file the second one was called unmanaged."""
    twice = [*objects([job("a", 1, RACK)], name="jobs.json"), *objects([job("a", 1, RACK)], name="jobs.json")]
    offline = offline_cluster(objects(GRID, name="cluster.json"))
    with pytest.raises(FileProblem, match=r"jobs.json, item 1: Job default/a is a duplicate"):
        simulate(offline, twice, clock=lambda: 0, now=0.0)


def test_files_without_a_workload_are_wrong_use() -> None:
    """Most often -f and --cluster were mixed up."""
    with pytest.raises(FileProblem, match="no workload in the files"):
        verdicts(GRID, [GRID[0]])


def test_nothing_is_random() -> None:
    """The same files give the same answer, order of the nodes aside."""
    workloads = [job("a", 3, RACK), job("b", 7, {"prefer": "rack"}), job("c", 2, {"unconstrained": "true"})]
    assert answer(GRID, workloads) == answer(list(reversed(GRID)), workloads)


def test_no_nodes_at_all() -> None:
    """A gang may come before its nodes: it waits for them."""
    found = answer([], [job("a", 4, RACK)])
    assert (found["workloads"][0]["verdict"], found["workloads"][0]["reason"]) == ("waits", "LabelsMissing")
    assert found["cluster"] == {"nodes": 0, "nodesInTopology": 0, "levels": ["host"]}


@pytest.mark.parametrize(
    ("pods", "size", "advice"),
    [
        (8, 8, "use slices of 4 pods"),  # racks of four hosts
        (16, 8, "use slices of 4 pods"),
        (12, 6, "use slices of 4 pods"),
        (64, 8, "use smaller slices and fewer pods"),
        (64, 4, "use fewer pods"),
    ],
)
def test_smaller_slices_are_advised_where_they_help(pods: int, size: int, advice: str) -> None:
    """Fewer pods would not: no rack holds one slice. With the advice the gang is placed."""
    cluster = grid(2, 2, 4)
    (found,) = answer(cluster, [job("sliced", pods, {names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: str(size)})])[
        "workloads"
    ]
    assert (found["verdict"], found["reason"]) == ("never", "GangTooLarge")
    assert found["message"].endswith(advice), found["message"]
    if "slices of" in advice:
        (found,) = answer(cluster, [job("sliced", pods, {names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "4"})])[
            "workloads"
        ]
        assert found["verdict"] == "placed"


# -- numbers ---------------------------------------------------------------------------------------------------------


def with_cpu(body: Json, cores: int) -> Json:
    body["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = str(cores)
    return body


def message(cluster: list[Json], body: Json) -> str:
    (found,) = answer(cluster, [body])["workloads"]
    return f"{found['verdict']} {found['reason']} {found['message']}"


def test_the_whole_topology_has_what_its_hosts_could_take_and_no_more() -> None:
    """A host that is out and too small in another way holds no pod when it is back; one rack alone holds no slice."""
    hosts = grid(1, 1, 3)
    hosts[0]["status"]["allocatable"]["cpu"] = "16"
    hosts[0]["spec"]["taints"] = [{"key": "lab", "effect": "NoSchedule"}]
    large = with_cpu(job("train", 4, {"require": "host"}), 20)
    assert "but the whole topology has 16; use fewer pods" in message(hosts, large)
    hosts = grid(1, 2, 1)
    hosts[0]["status"]["conditions"][0]["status"] = "False"
    sliced = job("train", 4, {"require": "block", names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "2"})
    assert "but no rack holds 2;" in message(hosts, sliced)


@pytest.mark.parametrize("state", [{}, {"unschedulable": True}, {"taints": [{"key": "lab", "effect": "NoSchedule"}]}])
def test_no_repair_of_hosts_that_a_gang_never_uses_makes_room_for_it(state: Json) -> None:
    """Those outside its nodeSelector count as such, whatever their state is."""
    hosts = grid(1, 1, 5)
    for one in hosts[:2]:
        one["metadata"]["labels"]["pool"] = "a"
    for one in hosts[2:]:
        one["spec"] |= state
    body = job("train", 3, {"require": "rack"})
    body["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "a"}
    assert message(hosts, body) == (
        "never GangTooLarge 3 pods x 8 GPUs = 24 GPUs, but the whole topology has 16; use fewer pods"
    )


def test_gpus_that_are_free_on_hosts_without_enough_cpu_are_none_of_the_best_host() -> None:
    hosts = grid(1, 1, 3)
    for one in hosts[:2]:
        one["status"]["allocatable"]["cpu"] = "16"
    body = with_cpu(job("train", 1, {"require": "rack"}), 20)
    assert message([*hosts, pod("p", "b0-r0-h2", gpus=3)], body) == (
        "waits InsufficientFreeGPUs needs 1 host in one rack; no rack has a free host (1 rack looked at); "
        "3 nodes = 2 too small + 1 in use"
    )
