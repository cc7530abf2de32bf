"""Explanations: waiting gangs with what is in the way and ways out, placed ones with their pods, what is left alone."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jsonschema
import pytest

from engine.api import names
from tests.support.golden import golden
from tests.support.simulation import BLOCK, Json, grid, job, objects, pod, policy_map, priority_class
from tests.support.snapshots import busy_cluster, placed, runs, snapshot, waiting_placement, waits
from tests.unit.queries.test_topologies import printed
from webhook.explanations.explain import Events, explain
from webhook.queries.gangs import gangs
from webhook.queries.model import ExplainAnswer, ExplainedGang, PastEvent
from webhook.queries.subject import SubjectProblem, subject_of
from webhook.simulate.unsubmitted import unsubmitted
from webhook.snapshot.connection import ConnectionProblem
from webhook.snapshot.files import FileProblem
from webhook.snapshot.snapshot import Snapshot, Unread
from webhook.terminal.explain_text import explain_text

SCHEMA = json.loads((Path(__file__).parents[3] / "schemas" / "explain.schema.json").read_text())


def about(found: Snapshot, name: str, *, namespace: str = "alice", events: Events | None = None) -> ExplainAnswer:
    answer = explain(found, [subject_of(found, name, namespace=namespace)], events=events)
    jsonschema.validate(json.loads(answer.model_dump_json(by_alias=True)), SCHEMA)
    return answer


def one(cluster: list[Json], name: str, *, namespace: str = "alice") -> ExplainedGang:
    (found,) = about(snapshot(cluster), name, namespace=namespace).gangs
    return found


def of_files(cluster: list[Json], *files: Json) -> ExplainAnswer:
    found = snapshot(cluster)
    answer = explain(found, unsubmitted(found, objects(files, name="train.yaml"), namespace="alice"))
    jsonschema.validate(json.loads(answer.model_dump_json(by_alias=True)), SCHEMA)
    return answer


def cron_job(name: str, pods: int, asks: dict[str, str]) -> Json:
    made = job("x", pods, asks)
    template = {"metadata": made["metadata"], "spec": made["spec"]}
    spec = {"schedule": "@daily", "jobTemplate": template}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec}


def job_set(asks: dict[str, str], of_workers: Mapping[str, str] = MappingProxyType({}), **pods: int) -> Json:
    """A JobSet of templates with so many pods each; `of_workers`: the annotations of the template of that name."""
    replicated = []
    for name, count in pods.items():
        spec = job(name, count)["spec"]
        del spec["completionMode"]
        if name == "workers":
            spec["template"]["metadata"] = {"annotations": dict(of_workers)}
        replicated.append({"name": name, "replicas": 1, "template": {"spec": spec}})
    metadata = {"name": "set", "namespace": "alice", "annotations": asks}
    spec = {"replicatedJobs": replicated}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def text(answer: ExplainAnswer, *, wide: bool = False) -> str:
    return printed(explain_text(answer, wide=wide))


def tainted() -> list[Json]:
    """One rack of two hosts, one of them tainted, the other one cordoned for nobody."""
    nodes = grid(1, 1, 2)
    nodes[0]["spec"]["taints"] = [{"key": "team", "effect": "NoSchedule"}]
    return nodes


def template(workload: Json, **fields: Any) -> Json:
    workload["spec"]["template"]["spec"] |= fields
    return workload


def broken() -> list[Json]:
    """A gang of five: ready, crashing, refused by the scheduler, held, and one that does not exist; with devices."""
    hosts = {f"b0-r0-h{number}": ("b0/b0-r0", 1) for number in range(5)}
    made = placed("train", hosts, bound=4, proven=False, readyAt="2026-01-01T00:02:00Z")
    slots = made[1]["spec"]["assignment"]["podSets"][0]["slots"]
    for slot in slots[:2]:
        slot["devices"] = [[{"type": "gpu", "minor": minor, "core": 100} for minor in range(8)]]
    crashing, refused, held = made[3], made[4], made[5]
    crashing["status"] |= {
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:10:00Z"}],
        "containerStatuses": [
            {
                "name": "main",
                "ready": False,
                "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
            }
        ],
    }
    for late in (refused, held):
        late["spec"].pop("nodeName")
        late["status"]["phase"] = "Pending"
    refused["spec"]["affinity"] = pinned("b0-r0-h2")
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "volume not bound"}
    refused["status"]["conditions"] = [why]
    held["spec"]["schedulingGates"] = [{"name": names.GATE}]
    return [*grid(1, 1, 6), *made]


def pinned(host: str) -> Json:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def preempting(*, after: str = "30s", **status: Any) -> list[Json]:
    """A gang of two fills a rack, pods of no gang the other one; an urgent gang waits for ten minutes, in bob."""
    urgent = template(waits("urgent", 2, {"require": "rack"}, minute=20, namespace="bob"), priorityClassName="urgent")
    return [
        *grid(1, 2, 2),
        priority_class("urgent", 1000),
        policy_map(f"preemption: {{mode: lower-priority, after: {after}}}\n"),
        *placed("train", {"b0-r0-h0": ("b0/b0-r0", 1), "b0-r0-h1": ("b0/b0-r0", 1)}, bound=2),
        *runs("fill", ["b0-r1-h0", "b0-r1-h1"]),
        urgent,
        waiting_placement("urgent", namespace="bob", **status),
    ]


def under_way(**more: Any) -> list[Json]:
    """The same: train ends for the urgent gang since 20 s, and so does a pod of no gang; one of three is gone."""
    intent = {
        "since": "2026-01-01T00:29:40Z",
        "victims": [{"uid": "p-train", "revision": 1, "pods": 2, "priority": 0}],
        "pods": [{"uid": "fill-0", "host": "b0-r1-h0"}],
        **more,
    }
    message = "1 gang and 1 other pod of lower priority end for it (3 pods): b0-r0 (2 hosts) kept free until it fits"
    found = preempting(
        reason="Preempting", message=message, kept=["b0-r0-h0", "b0-r0-h1"], preemption=intent, priority=1000
    )
    return [one for one in found if one["metadata"]["name"] != "train-1"]


def test_what_people_read() -> None:
    """One text for every kind of answer."""
    busy = busy_cluster()
    tenant = replace(snapshot(busy), unread=(Unread("pods", except_in="alice"),))
    kueue = job("queued", 2, {"require": "rack"})
    kueue["metadata"] |= {"namespace": "alice", "uid": "queued", "labels": {names.KUEUE_QUEUE: "main"}}
    other = template(waits("other", 2, {"require": "rack"}), schedulerName="default-schedular")
    wrong = waits("wrong", 2, {"require": "rak"})
    suspended = waits("mine", 2, {"require": "rack"})
    del suspended["metadata"]["annotations"][names.HELD_BY]
    orphan = pod("lost-0", "", ownerReferences=[{"apiVersion": "batch/v1", "kind": "Job", "name": "lost", "uid": "l"}])
    orphan["metadata"] |= {"namespace": "alice", "uid": "lost-0"}
    orphan["metadata"]["ownerReferences"][0]["controller"] = True
    orphan["spec"] = {"containers": [{"name": "main"}], "schedulingGates": [{"name": names.GATE}]}
    old = job("old", 2, {"require": "rack"})
    old["metadata"] |= {"namespace": "alice", "uid": "old"}
    more = [*busy, kueue, other, wrong, suspended, orphan, old, waiting_placement("gone")]
    observe = [*busy, policy_map("mode: observe\n")]
    kept = [
        *grid(1, 1, 3),
        *runs("fill", ["b0-r0-h0"]),
        waits("first", 3, {"require": "rack"}),
        waiting_placement("first", kept=["b0-r0-h1", "b0-r0-h2"]),
    ]
    golden(
        "explain",
        {
            "it waits, and other levels or fewer pods would do": text(about(snapshot(busy), "job/wide")),
            "the same with all hosts": text(about(snapshot(busy), "job/wide"), wide=True),
            "others go first": text(about(snapshot(busy), "job/later", namespace="bob")),
            "it fits now": text(about(snapshot(busy), "jobs.batch/small")),
            "it never fits": text(about(snapshot(busy), "job/huge")),
            "it runs, a pod is missing": text(about(snapshot(busy), "Job/train")),
            "pods that are late": text(about(snapshot(broken()), "job/train")),
            "one of its pods": text(about(snapshot(broken()), "pod/train-1")),
            "by its Placement": text(about(snapshot(busy), "placement/job-train")),
            "a taint is in the way": text(about(snapshot([*tainted(), waits("w", 2, {"require": "rack"})]), "job/w")),
            "hosts are kept for another gang": text(
                about(snapshot([*kept, waits("next", 2, {"require": "rack"}, minute=20)]), "job/next")
            ),
            "pods of other namespaces cannot be read": text(about(tenant, "job/wide")),
            "others would end for it": text(about(snapshot(preempting()), "job/urgent", namespace="bob")),
            "others would end for it later": text(
                about(snapshot(preempting(after="15m")), "job/urgent", namespace="bob")
            ),
            "others end for it": text(about(snapshot(under_way()), "job/urgent", namespace="bob")),
            "it ends for another gang": text(about(snapshot(under_way()), "job/train")),
            "no request": text(about(snapshot(busy), "job/fill", namespace="others")),
            "a pod without a request": text(about(snapshot(busy), "pod/fill-0", namespace="others")),
            "another scheduler": text(about(snapshot(more), "job/other")),
            "Kueue": text(about(snapshot(more), "job/queued")),
            "a request that the policy does not allow": text(about(snapshot(more), "job/wrong")),
            "suspended by its user": text(about(snapshot(more), "job/mine")),
            "a Placement without its workload": text(about(snapshot(more), "placement/job-gone")),
            "a held pod without its owner": text(about(snapshot(more), "pod/lost-0")),
            "older than its request": text(about(snapshot(more), "job/old")),
            "mode observe": text(about(snapshot(observe), "job/wide")),
            "a file": text(of_files(busy, job("fresh", 3, {"require": "rack"}))),
            "a file that would be refused": text(of_files(busy, job("fresh", 3, {"require": "rak"}))),
            "a file without a request": text(of_files(busy, job("fresh", 3))),
        },
    )


def test_every_level_has_needed_have_and_best() -> None:
    wide = one(busy_cluster(), "job/wide")
    assert (wide.verdict, wide.reason) == ("waits", "Fragmented")
    assert [(level.level, level.needed, level.have, level.most, level.domains) for level in wide.levels] == [
        (None, 4, 6, 15, 1),
        ("block", 4, 4, 8, 2),
        ("rack", 4, 2, 4, 4),
        ("host", 4, 1, 1, 16),
    ]
    assert [level.level for level in wide.levels if level.required] == ["rack"]
    assert next((best.path, best.pods) for best in wide.levels[2].best) == (("b1", "b1-r0"), 2)
    assert sum(wide.nodes.values()) == 17
    assert wide.near == ("b1", "b1-r1")  # b1-r0 has as much room, but with its cordoned host never enough
    assert [(found.kind, found.name, found.hosts) for found in wide.in_the_way] == [
        ("pods", "others/job/endless", ("b1-r1-h0", "b1-r1-h1"))
    ]


def test_the_required_level_is_that_which_auto_means_for_pods_that_keep_apart() -> None:
    """One pod for each host never fits on a host, whatever room that has: what would help is said of the rack."""
    cluster = grid(2, 2, 4)
    for node in cluster:
        node["metadata"]["labels"][names.HOSTNAME] = node["metadata"]["name"]
    selector = {"matchLabels": {"app": "train"}}
    spread = {"topologyKey": names.HOSTNAME, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    train = template(
        waits("train", 4, {"require": "auto"}, gpus=1),
        topologySpreadConstraints=[{**spread, "labelSelector": selector}],
    )
    train["spec"]["template"]["metadata"] = {"labels": selector["matchLabels"]}
    used = [pod(f"p{n}", node["metadata"]["name"]) for n, node in enumerate(cluster) if n % 4 > 1]
    found = one([*cluster, *used, train], "job/train")
    assert (found.verdict, found.reason) == ("waits", "PodConstraints")
    assert [level.level for level in found.levels if level.required] == ["rack"]
    assert [way.text for way in found.ways_out if way.change in ("level", "prefer")] == [
        "require block instead of rack",
        "prefer rack instead of requiring it",
    ]


def test_the_level_that_auto_means_for_all_templates_together_is_required_by_each() -> None:
    """Each of them alone would fit on a host of the three that a rack has."""
    said = {names.REQUIRE: "auto"}
    (found,) = of_files([*grid(1, 2, 3), *runs("fill", ["b0-r0-h0", "b0-r1-h0"])], job_set(said, ps=1, workers=2)).gangs
    assert [(level.pod_set, level.level) for level in found.levels if level.required] == [
        ("ps", "rack"),
        ("workers", "rack"),
    ]


def test_a_template_without_pods_has_no_part_in_the_level_that_auto_means() -> None:
    """There was no answer at all: no level is large enough for no pods."""
    (found,) = of_files(grid(1, 2, 2), job_set({names.REQUIRE: "auto"}, ps=0, workers=3)).gangs
    assert (found.verdict, {level.level for level in found.levels if level.required}) == ("fits", {"block"})


@pytest.mark.parametrize(("least", "needed"), [(2, 2), (3, 4), (4, 4), (5, 6), (8, 8)])
def test_a_minimum_between_two_slices_needs_the_whole_slice(least: int, needed: int) -> None:
    """It starts where as many fit as are said to be needed, and nowhere else."""
    slices = {names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "2"}
    train = waits("train", 8, {"require": "block", names.MIN_AVAILABLE: str(least), **slices})
    for room in range(1, 9):
        cluster = grid(1, 1, 8)
        found = one([*cluster, *runs("fill", [f"b0-r0-h{n}" for n in range(room, 8)]), train], "job/train")
        assert [ask.least for ask in found.asks] == [needed]
        assert {level.needed for level in found.levels} == {needed}
        assert (found.verdict == "fits") == (room >= needed)
        if needed < 8 and room < needed:
            assert found.message.startswith(f"needs {needed} of 8 hosts in one block")


def test_a_minimum_of_all_templates_counts_their_whole_slices() -> None:
    """Six of the launcher and of slices of four workers: one slice is too few, and nine pods start."""
    slices = {names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "4"}
    asks = {names.REQUIRE: "block", names.MIN_AVAILABLE: "6"}
    answer = of_files(grid(1, 2, 4), job_set(asks, slices, ps=1, workers=12))
    (found,) = answer.gangs
    assert [(ask.pod_set, ask.least) for ask in found.asks] == [("ps", 1), ("workers", 8)]
    assert {(level.pod_set, level.needed) for level in found.levels} == {("ps", 1), ("workers", 8)}
    assert "needs room for 9 of 13 pods" in found.message
    assert "all together: 9 of 13 pods are enough" in text(answer)


def test_what_is_in_the_way_ends_when_it_says() -> None:
    cluster = [*grid(1, 1, 2), *runs("fill", ["b0-r0-h0"], deadline=3600), waits("w", 2, {"require": "rack"})]
    found = one(cluster, "job/w")
    assert [(item.name, item.ends) for item in found.in_the_way] == [("others/job/fill", "2026-01-01T01:00:00Z")]
    assert [(way.change, way.by) for way in found.ways_out if way.change == "wait"] == [
        ("wait", "2026-01-01T01:00:00Z")
    ]


def test_a_gang_with_reserved_slots_is_in_the_way() -> None:
    cluster = [
        *grid(1, 1, 2),
        *placed("train", {"b0-r0-h0": ("b0/b0-r0", 1)}, bound=0),
        waits("w", 2, {"require": "rack"}),
    ]
    assert [(item.kind, item.name) for item in one(cluster, "job/w").in_the_way] == [("gang", "alice/job/train")]


def test_those_ahead_that_fit_take_their_room_first() -> None:
    """Levels, ways out and outcome agree: what goes to the gangs ahead is not there for this one."""
    cluster = [*grid(1, 2, 2), waits("a", 2, {"require": "rack"}), waits("b", 3, {"require": "block"}, minute=20)]
    found = one(cluster, "job/b")
    assert [(item.name, item.why, item.fits_now) for item in found.ahead] == [
        ("alice/job/a", "it has waited longer", True)
    ]
    assert next(level.have for level in found.levels if level.required) == 2
    assert [way.to for way in found.ways_out if way.change == "pods"] == ["2"]


@pytest.mark.parametrize("hosts", [3, 4])
def test_a_gang_that_is_half_done_needs_room_for_the_rest(hosts: int) -> None:
    """Four of eight indexes have completed: levels, outcome and plan are about the other four."""
    half = waits("half", 8, {"require": "rack"})
    half["status"] = {"completedIndexes": "0-2,5", "succeeded": 4}
    found = one([*grid(1, 1, hosts), half], "job/half")
    assert {level.needed for level in found.levels} == {4}
    assert "4 pods" in found.message
    assert not [way for way in found.ways_out if way.change == "pods"]


def test_a_pod_group_of_one_workload_is_not_told_to_have_fewer_pods() -> None:
    """With fewer than the group's minimum it would wait for other members."""
    asks = {"require": "rack", names.POD_GROUP: "g", names.MIN_AVAILABLE: "3"}
    found = one([*grid(1, 2, 2), waits("grouped", 3, asks)], "job/grouped")
    assert "block" in [way.to for way in found.ways_out]
    assert not [way for way in found.ways_out if way.change == "pods"]


def test_a_priority_that_would_go_first() -> None:
    cluster = [
        *grid(1, 1, 2),
        priority_class("low", 10),
        priority_class("high", 1000),
        template(waits("a", 2, {"require": "rack"}), priorityClassName="low"),
        waits("b", 2, {"require": "rack"}, minute=20),
    ]
    found = one(cluster, "job/b")
    assert [(item.name, item.why) for item in found.ahead] == [("alice/job/a", "priority 10 is higher than 0")]
    assert [(way.change, way.to) for way in found.ways_out][:1] == [("priority", "high")]
    assert one(cluster, "job/a").verdict == "fits"


def test_a_selector_that_shuts_it_out() -> None:
    found = one([*grid(1, 1, 2), template(waits("w", 2, {"require": "rack"}), nodeSelector={"disk": "ssd"})], "job/w")
    assert found.reason == "NodesExcluded"
    assert [way.change for way in found.ways_out] == ["selector", "wait"]


def test_no_way_out_that_the_policy_forbids() -> None:
    """A coarser level that its namespace may not name is not told."""
    rule = "namespaces:\n  rules:\n  - namespaces: [alice]\n    levels: [rack, host]\n"
    asks = waits("wide", 4, {"require": "rack"})
    cluster = [item for item in busy_cluster() if item["metadata"]["name"] not in ("wide", "job-wide")]
    found = one([*cluster, asks, policy_map(rule)], "job/wide")
    assert found.verdict == "waits"
    assert "level" not in {way.change for way in found.ways_out}


def test_a_request_of_the_template_has_no_command() -> None:
    """A template is not annotated by a command, and another dialect keeps its own key."""
    asks = waits("w", 3, {})
    asks["spec"]["template"]["metadata"] = {
        "annotations": {"kueue.x-k8s.io/podset-required-topology": "cloud.provider.com/topology-rack"}
    }
    found = one([*grid(1, 2, 2), asks], "job/w")
    ways = {way.change: way for way in found.ways_out}
    assert ways["level"].to == "block"
    assert ways["level"].command is None


@pytest.mark.parametrize(("alone", "victims"), [(True, 1), (False, 0)])
def test_a_preemption_counts_what_a_gang_ahead_takes(alone: bool, victims: int) -> None:
    """Two hosts are free and two have a gang of lower priority: all four only as long as nobody goes first."""
    cluster = [
        *grid(1, 1, 4),
        priority_class("urgent", 1000),
        policy_map("preemption: {mode: lower-priority, after: 30s}\n"),
        *placed("train", {"b0-r0-h2": ("b0/b0-r0", 1), "b0-r0-h3": ("b0/b0-r0", 1)}, bound=2),
        template(waits("w", 4, {"require": "rack"}, minute=12), priorityClassName="urgent"),
    ]
    first = template(waits("first", 2, {"require": "rack"}), priorityClassName="urgent")
    found = one(cluster if alone else [*cluster, first], "job/w")
    assert found.verdict == "waits"
    assert (found.preempts.count if found.preempts is not None else 0) == victims


def test_a_gang_that_was_given_up_is_not_said_to_fit() -> None:
    status = {"reason": "StartLimitExceeded", "message": "5 starts in a row have failed"}
    cluster = [*grid(1, 1, 2), waits("w", 2, {"require": "rack"}), waiting_placement("w", **status)]
    found = one(cluster, "job/w")
    assert (found.verdict, found.reason, found.message) == ("waits", "StartLimitExceeded", status["message"])
    assert found.until == "the user changes its request, or resumes it"


def test_a_gang_that_failed_to_start_is_explained_by_that_during_its_pause() -> None:
    """No change of its level would start it sooner, and nothing is in its way."""
    said = "pod w-0 is not bound: volume not found; the slots are released, and it is tried again later"
    status = {"reason": "SchedulerRefused", "message": said}
    cluster = [*grid(1, 1, 2), waits("w", 2, {"require": "rack"}), waiting_placement("w", **status)]
    found = one(cluster, "job/w")
    assert (found.verdict, found.reason, found.message) == ("waits", "SchedulerRefused", said)
    assert (found.ways_out, found.in_the_way) == ((), ())
    assert found.until == "another host accepts its pods"


def test_a_suspended_gang_would_start_when_it_is_resumed() -> None:
    asks = waits("w", 2, {"require": "rack"})
    del asks["metadata"]["annotations"][names.HELD_BY]
    found = one([*grid(1, 1, 2), asks], "job/w")
    (way,) = found.ways_out
    assert (found.reason, way.change) == ("Suspended", "resume")
    assert way.result.startswith("starts now: 2 pods")
    assert way.command == 'kubectl patch -n alice job/w --type=merge -p \'{"spec":{"suspend":false}}\''


def test_pods_with_rank_devices_and_why() -> None:
    found = one(broken(), "job/train")
    assert (found.verdict, found.revision, found.proven) == ("placed", 1, False)
    assert [(item.rank, item.pod, item.state) for item in found.pods] == [
        (0, "train-0", "ready"),
        (1, "train-1", "not ready"),
        (2, "train-2", "not bound"),
        (3, "train-3", "held"),
        (4, None, "missing"),
    ]
    assert [item.devices for item in found.pods[:2]] == [("gpu 0-7",), ("gpu 0-7",)]
    assert "CrashLoopBackOff" in found.pods[1].why
    assert found.pods[2].why == "volume not bound"
    assert [past.reason for past in found.history] == ["Created", "Ready"]


def test_a_workload_without_replicas_waits_for_nothing() -> None:
    empty = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve", "namespace": "alice", "uid": "serve", "annotations": {names.REQUIRE: "rack"}},
        "spec": {
            "replicas": 0,
            "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": {"containers": [{"name": "c"}]}}},
        },
    }
    submitted = one([*grid(1, 1, 2), empty], "leaderworkerset/serve")
    (file,) = of_files(grid(1, 1, 2), empty).gangs
    for found in (submitted, file):
        assert (found.verdict, found.reason, found.message) == ("ignored", "", "left alone: it has no replicas")


def test_a_rank_that_has_completed_is_not_missing() -> None:
    """Its slot stays in the Placement, but no pod will come, and the gang lacks none."""
    made = placed("train", {f"b0-r0-h{number}": ("b0/b0-r0", 1) for number in range(4)}, bound=4)
    made[0]["status"] |= {"active": 2, "succeeded": 2, "completedIndexes": "0-1"}
    for ended in made[2:4]:
        ended["status"]["phase"] = "Succeeded"
    for cluster in (made, [*made[:2], *made[4:]]):  # pods that have finished are not read from a live cluster
        found = one([*grid(1, 1, 4), *cluster], "job/train")
        assert found.message == "2 of 2 pods ready in b0/b0-r0; 2 ranks have completed"
        assert [(item.rank, item.state, item.why) for item in found.pods] == [
            (0, "completed", ""),
            (1, "completed", ""),
            (2, "ready", ""),
            (3, "ready", ""),
        ]


def test_a_rank_that_its_job_of_a_jobset_says_has_completed_is_not_missing() -> None:
    """The JobSet itself tells only which Jobs have completed."""
    job_raw, placement, *_ = placed("set", {f"b0-r0-h{number}": ("b0/b0-r0", 1) for number in range(2)}, bound=0)
    version, container = "jobset.x-k8s.io/v1alpha2", job_raw["spec"]["template"]["spec"]
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "main", "jobset.sigs.k8s.io/job-index": "0"}
    job_set = {
        "apiVersion": version,
        "kind": "JobSet",
        "metadata": job_raw["metadata"],
        "spec": {"replicatedJobs": [{"name": "main", "replicas": 1, "template": {"spec": job_raw["spec"]}}]},
    }
    placement["spec"]["workload"] |= {"apiVersion": version, "kind": "JobSet"}
    placement["metadata"]["name"] = "jobset-set"
    owner = {"apiVersion": version, "kind": "JobSet", "name": "set", "uid": "set", "controller": True}
    child = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "set-main-0", "namespace": "alice", "uid": "child", "ownerReferences": [owner]},
        "spec": {**job_raw["spec"], "template": {"metadata": {"labels": labels}, "spec": container}},
        "status": {"active": 1, "succeeded": 1, "completedIndexes": "1"},
    }
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "set-main-0", "uid": "child", "controller": True}
    runs_on = pod("set-main-0-0", "b0-r0-h0", ownerReferences=[reference])
    runs_on["metadata"] |= {
        "namespace": "alice",
        "uid": "set-main-0-0",
        "labels": {names.MANAGED: "true", names.COMPLETION_INDEX: "0", **labels},
    }
    found = one([*grid(1, 1, 2), job_set, child, placement, runs_on], "jobset/set")
    assert [(item.rank, item.state) for item in found.pods] == [(0, "ready"), (1, "completed")]
    assert found.message == "1 of 1 pod ready in b0/b0-r0; 1 rank has completed"


def test_a_replaced_pod_is_listed_behind_the_one_in_its_slot() -> None:
    """A pod on a dead host is being deleted until the host is back: its rank is that of the new pod, which is ready."""
    made = placed("train", {"b0-r0-h0": ("b0/b0-r0", 1), "b0-r0-h2": ("b0/b0-r0", 1)}, bound=2)
    old = copy.deepcopy(made[-1])
    old["metadata"] |= {"name": "train-1-old", "uid": "old", "deletionTimestamp": "2026-01-01T00:20:00Z"}
    old["metadata"]["creationTimestamp"] = "2025-12-31T00:00:00Z"
    old["spec"] |= {"nodeName": "b0-r0-h1", "affinity": pinned("b0-r0-h1")}
    cluster = [*grid(1, 1, 3), *made, old]
    found = one(cluster, "job/train")
    assert found.message.startswith("2 of 2 pods ready")
    assert [(item.pod, item.state, item.why) for item in found.pods] == [
        ("train-0", "ready", ""),
        ("train-1", "ready", ""),
        ("train-1-old", "ending", "it is being deleted"),
    ]
    (row,) = gangs(snapshot(cluster)).gangs
    assert (row.pods.bound, row.pods.wanted) == (2, 2)


def test_a_gang_with_a_minimum_of_its_own_says_how_many_pods_of_each_template_start() -> None:
    """One of `ps` and six of `workers` are the seven pods that are enough; a rack of four hosts is too narrow."""
    said = {names.REQUIRE: "rack", names.MIN_AVAILABLE: "7"}
    answer = of_files(grid(1, 2, 4), job_set(said, ps=1, workers=8))
    (found,) = answer.gangs
    assert [(ask.pod_set, ask.pods, ask.least) for ask in found.asks] == [("ps", 1, 1), ("workers", 8, 6)]
    assert {(level.pod_set, level.needed) for level in found.levels} == {("ps", 1), ("workers", 6)}
    assert "workers: 8 pods x 8 GPUs, 6 are enough, require rack" in text(answer)
    assert "all together: 7 of 9 pods are enough" in text(answer)


def test_members_of_a_pod_group_are_explained_together() -> None:
    asks = {"require": "rack", names.POD_GROUP: "g", names.MIN_AVAILABLE: "4"}
    first, second = waits("first", 2, asks), waits("second", 2, asks, minute=11)
    alone = one([*grid(1, 1, 2), first], "job/first")
    assert (alone.reason, alone.message) == ("WaitingForMembers", "2 of 4 pods of pod group g exist")
    narrow = one([*grid(1, 1, 2), first, second], "job/second")
    assert narrow.verdict == "waits"
    assert narrow.message.startswith("4 pods of pod group g start together")
    assert narrow.ahead == ()
    assert one([*grid(1, 1, 4), first, second], "job/second").verdict == "fits"


@pytest.mark.parametrize(("minute", "verdict"), [(11, "fits"), (9, "waits")])
def test_a_member_of_a_pod_group_has_the_place_of_its_group(minute: int, verdict: str) -> None:
    """A gang that came between the two members goes behind both in strict order, one that came before them first."""
    asks = {"require": "rack", names.POD_GROUP: "g", names.MIN_AVAILABLE: "4"}
    other = [waits("big", 6, {"require": "rack"}, minute=minute), waiting_placement("big")]
    members = [waits("first", 2, asks), waits("second", 2, asks, minute=12)]
    fill = runs("fill", [f"b0-r0-h{number}" for number in range(4, 8)])
    cluster = [*grid(1, 1, 8), policy_map("queue: {order: strict}\n"), *fill, *other, *members]
    for name in ("first", "second"):
        found = one(cluster, f"job/{name}")
        assert found.verdict == verdict, found.message
        assert found.reason == ("" if verdict == "fits" else "QueuedBehind")


def test_a_member_that_joins_is_promised_no_start_with_fewer_pods_than_it_would_join_with() -> None:
    """One pod of each template: the minimum of the group, which runs, is not its own."""
    asks = {"require": "rack", names.POD_GROUP: "g", names.MIN_AVAILABLE: "1"}
    first, *rest = placed("first", {"b0-r0-h0": ("b0/b0-r0", 1)}, bound=1)
    first["metadata"]["annotations"] |= {names.POD_GROUP: "g", names.MIN_AVAILABLE: "1"}
    second = waits("second", 1, asks)
    jobs = [
        {"name": name, "template": {"spec": {key: second["spec"][key] for key in second["spec"] if key != "suspend"}}}
        for name in ("ps", "worker")
    ]
    second |= {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "spec": {"suspend": True, "replicatedJobs": jobs},
    }
    cluster = [*grid(1, 2, 2), *runs("fill", ["b0-r0-h1", "b0-r1-h0"]), first, *rest, second]
    found = one(cluster, "jobset/second")
    assert found.verdict == "waits"
    assert [way.change for way in found.ways_out] == ["wait"]


def test_plain_pods_that_are_too_few_wait_for_the_others() -> None:
    """That is no invalid value, and the leader need not have written it."""
    pods = []
    for number in range(2):
        held = pod(
            f"part-{number}", "", annotations={names.REQUIRE: "rack", names.GANG_NAME: "p", names.GANG_SIZE: "3"}
        )
        held["metadata"] |= {"namespace": "alice", "uid": f"part-{number}", "labels": {names.MANAGED: "true"}}
        held["spec"] = {**held["spec"], "nodeName": "", "schedulingGates": [{"name": names.GATE}]}
        pods.append(held)
    cluster, said = [*grid(1, 1, 4), *pods], "2 of 3 pods of p exist; it starts when all of them do"
    found = one(cluster, "pod/part-0")
    assert (found.verdict, found.reason, found.message) == ("waits", "WaitingForMembers", said)
    (row,) = gangs(snapshot(cluster)).gangs
    assert (row.reason, row.message) == ("WaitingForMembers", said)


def test_one_pod_of_a_group_does_not_start_together() -> None:
    """A group that one pod is enough for, without room for any."""
    asks = {"require": "rack", names.POD_GROUP: "g", names.MIN_AVAILABLE: "1"}
    cluster = [*grid(1, 1, 1), *runs("fill", ["b0-r0-h0"])]
    found = one([*cluster, waits("first", 1, asks), waits("second", 1, asks, minute=11)], "job/second")
    assert found.message.startswith("1 pod of pod group g is enough to start; there is no room for it")


def test_the_history_has_events() -> None:
    asked: list[object] = []

    def events(namespace: str, about: Any) -> tuple[list[PastEvent], str | None]:
        asked.append((namespace, list(about)))
        return [PastEvent(at="2026-01-01T00:12:00Z", reason="Fragmented", message="waits", count=3)], "not all"

    answer = about(snapshot(busy_cluster()), "job/wide", events=events)
    assert asked == [("alice", [("wide", "wide"), ("job-wide", "p-wide")])]
    assert [(past.reason, past.count) for past in answer.gangs[0].history] == [
        ("Created", 1),
        ("WaitingSince", 1),
        ("Fragmented", 3),
    ]
    assert answer.remarks[-1] == "not all"


def test_what_happened_within_one_second_stays_in_its_order() -> None:
    """Created, then what Events tell in their order, and ready in the end."""
    at = "2026-01-01T00:00:00Z"
    slots = {"b0-r0-h0": ("b0/b0-r0", 1)}
    cluster = [*grid(1, 1, 1), *placed("train", slots, bound=1, readyAt=at)]

    def events(_namespace: str, _about: Any) -> tuple[list[PastEvent], None]:
        return [
            PastEvent(at=at, reason=reason, message="", count=1) for reason in ("Suspended", "Placed", "Again")
        ], None

    history = about(snapshot(cluster), "job/train", events=events).gangs[0].history
    assert [past.reason for past in history] == ["Created", "Suspended", "Placed", "Again", "Ready"]


@pytest.mark.parametrize(
    "name", ["job/train", "jobs/train", "Job/train", "job.batch/train", "deploy/web", "sts/web", "deployments.apps/web"]
)
def test_a_kind_is_called_as_by_kubectl(name: str) -> None:
    cluster = busy_cluster()
    for kind in ("Deployment", "StatefulSet"):
        spec = {"replicas": 1, "selector": {}, "template": {"metadata": {}, "spec": {"containers": []}}}
        meta = {"name": "web", "namespace": "alice", "uid": kind}
        cluster.append({"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec})
    found = subject_of(snapshot(cluster), name, namespace="alice")
    assert found.workload is not None
    expected = {"deploy": "Deployment", "deployments": "Deployment", "sts": "StatefulSet"}
    assert found.workload.kind == expected.get(name.partition("/")[0].partition(".")[0], "Job")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("train", '"train" is not KIND/NAME, as job/train'),
        ("job/", '"job/" is not KIND/NAME'),
        ("job/a/b", '"job/a/b" is not KIND/NAME'),
        ("job/trains", 'no job "trains" in namespace "alice"; did you mean "train"?'),
        ("pod/train-7", 'no pod "train-7" in namespace "alice"; did you mean "train-1"?'),
        ("placement/x", 'no placement "x" in namespace "alice"'),
        ("jobb/train", 'no kind "jobb" among those that are placed'),
        (
            "deplo/train",
            'no kind "deplo" among those that are placed, and no pod of such an owner in namespace "alice"; ',
        ),
        ("sts/nothing", 'no sts "nothing" in namespace "alice"'),
        ("cronjob/nightly", "a CronJob is placed through the objects that it creates"),
        ("job/\x1b[2J", 'no job "\\x1b[2J" in namespace "alice"'),
    ],
)
def test_a_name_of_nothing(name: str, message: str) -> None:
    with pytest.raises(SubjectProblem) as caught:
        about(snapshot(busy_cluster()), name)
    assert str(caught.value).startswith(message)


def test_a_gang_on_hold_keeps_its_turn() -> None:
    """Nothing is placed in mode hold; the order in which it goes on is told."""
    cluster = [*busy_cluster(), policy_map("mode: hold\n")]
    later = one(cluster, "job/later", namespace="bob")
    assert (later.verdict, later.reason) == ("waits", "PolicyHold")
    assert later.gang is not None
    assert (later.gang.position, later.gang.queued, later.gang.start) == (2, 3, None)
    assert [(first.name, first.why) for first in later.ahead] == [("alice/job/wide", "it has waited longer")]
    huge = one(cluster, "job/huge")
    assert (huge.verdict, huge.gang.position if huge.gang is not None else 0) == ("never", None)


def test_those_on_hold_are_not_ahead_of_others() -> None:
    held = policy_map("namespaces: {modes: [{namespaces: [alice], mode: hold}]}\n")
    later = one([*busy_cluster(), held], "job/later", namespace="bob")
    assert (later.reason, later.ahead) == ("Fragmented", ())


def test_a_level_that_the_policy_has_lost_is_told_with_the_remedy() -> None:
    """Of a gang that waits, and of one with slots; what was never taken is only wrong."""
    blocks = f"topologies: [{{name: default, levels: [{{name: block, keys: [{BLOCK}]}}]}}]\n"
    cluster = [*busy_cluster(), policy_map(blocks)]
    wide, train, small = (one(cluster, f"job/{name}") for name in ("wide", "train", "small"))
    lost = '"rack" was in the policy when it was submitted, and is not any more: an admin can put it back, '
    assert (wide.verdict, wide.reason, lost in wide.message) == ("refused", "UnknownLevel", True)
    assert (train.verdict, f"could not be submitted again: UnknownLevel: {lost}" in train.message) == ("placed", True)
    assert "any more" not in small.message


def test_without_rights_the_numbers_are_those_of_the_placement() -> None:
    cluster = busy_cluster()
    best = [
        {"level": "block", "domain": "b1", "pods": 4},
        {"level": "rack", "domain": "b1/b1-r0", "pods": 3},
        {"level": 7},
        "rubbish",
    ]
    status = next(one for one in cluster if one["metadata"]["name"] == "job-wide")["status"]
    status |= {"needed": 4, "have": 3, "best": best}
    tenant = replace(snapshot(cluster), unread=(Unread("nodes"), Unread("pods", except_in="alice")))
    (wide,) = about(tenant, "job/wide").gangs
    assert [(level.level, level.required, level.needed, level.have, level.most) for level in wide.levels] == [
        ("block", False, 4, 4, None),
        ("rack", True, 4, 3, None),
    ]
    assert [path.path for level in wide.levels for path in level.best] == [("b1",), ("b1", "b1-r0")]
    del status["best"]
    tenant = replace(snapshot(cluster), unread=(Unread("pods", except_in="alice"),))
    assert [(level.level, level.have) for level in about(tenant, "job/wide").gangs[0].levels] == [("rack", 3)]


def test_what_may_not_be_read_is_said_and_not_called_missing() -> None:
    found = replace(snapshot(busy_cluster()), unread=(Unread("jobs"),))
    with pytest.raises(SubjectProblem, match="is not known: jobs cannot be read"):
        about(found, "job/nothing")


@pytest.mark.parametrize("except_in", [None, "bob", "alice"])
def test_what_runs_is_not_said_to_be_left_alone_where_no_placement_may_be_read(except_in: str | None) -> None:
    """Its slots would be in its Placement; who may read that of his own namespace has an answer."""
    cluster = busy_cluster()
    if except_in != "alice":
        cluster = [one for one in cluster if one["kind"] != "Placement"]
    found = replace(snapshot(cluster), unread=(Unread(names.PLACEMENTS, except_in=except_in),))
    if except_in == "alice":
        assert about(found, "job/train").gangs[0].verdict == "placed"
        return
    with pytest.raises(SubjectProblem, match='whether job "train" has slots is not known: placements'):
        about(found, "job/train")
    assert about(found, "job/wide").gangs[0].verdict == "waits"
    with pytest.raises(ConnectionProblem, match="500"):  # which watching tries again
        about(replace(found, unread=(Unread(names.PLACEMENTS, why="500: slow"),)), "job/train")


def test_a_cluster_without_nodes_has_no_room_for_fewer_pods_either() -> None:
    """As where all nodes are scaled away."""
    cluster = [one for one in busy_cluster() if one["kind"] != "Node"]
    wide = one(cluster, "job/wide")
    assert (wide.verdict, wide.reason, wide.nodes) == ("waits", "LabelsMissing", {})
    assert "pods" not in [way.change for way in wide.ways_out]


def test_files_queue_in_their_order_and_change_nothing_else() -> None:
    answer = of_files(grid(1, 1, 3), job("b", 2, {"require": "rack"}), job("a", 2, {"require": "rack"}))
    assert [(found.name, found.verdict) for found in answer.gangs] == [("b", "fits"), ("a", "waits")]
    assert [item.name for item in answer.gangs[1].ahead] == ["alice/job/b"]
    assert {way.command for way in answer.gangs[1].ways_out} == {None}
    assert answer.gangs[1].history == ()


def test_files_of_every_sort() -> None:
    """Plain pods make one gang, a CronJob is explained for its Job, an unknown kind with a request would be refused."""
    asks = {names.GANG_NAME: "pair", names.GANG_SIZE: "2", names.REQUIRE: "rack"}
    pair = [pod(f"pair-{number}", "", annotations=asks) for number in range(2)]
    for item in pair:
        item["spec"].pop("nodeName")
        item.pop("status")
        item["metadata"].pop("namespace")
    bench = {
        "apiVersion": "example.com/v1",
        "kind": "Bench",
        "metadata": {"name": "b", "annotations": {names.REQUIRE: "rack"}},
        "spec": {"template": {"spec": {"containers": [{"name": "m"}]}}},
    }
    answer = of_files(grid(1, 1, 4), *pair, cron_job("nightly", 2, {"require": "rack"}), bench)
    assert [(found.kind, found.verdict) for found in answer.gangs] == [
        ("Pod", "fits"),
        ("CronJob", "fits"),
        ("Bench", "refused"),
    ]


def test_a_cronjob_of_a_file_is_explained_in_its_own_name() -> None:
    """Wherever it is named, also in the answers of others, and with the paths of errors in its file."""
    answer = of_files(
        grid(1, 1, 3),
        cron_job("nightly", 2, {"require": "rack"}),
        cron_job("weekly", 2, {"require": "rack"}),
        cron_job("wrong", 2, {"require": "rak"}),
        cron_job("plain", 2, {}),
    )
    assert [(found.kind, found.namespace, found.name, found.verdict) for found in answer.gangs] == [
        ("CronJob", "alice", "nightly", "fits"),
        ("CronJob", "alice", "weekly", "waits"),
        ("CronJob", "alice", "wrong", "refused"),
        ("CronJob", "alice", "plain", "ignored"),
    ]
    _, second, wrong, _ = answer.gangs
    assert second.gang is not None
    assert (second.gang.kind, second.gang.name) == ("CronJob", "weekly")
    assert [item.name for item in second.ahead] == ["alice/cronjob/nightly"]
    assert wrong.faults[0].startswith("spec.jobTemplate.metadata.annotations[topogate.dev/require-topology]: ")
    assert "00000000" not in answer.model_dump_json()


def test_a_file_whose_objects_make_nothing_is_left_alone() -> None:
    """A CronJob without a template of Jobs, which the API server refuses."""
    empty = cron_job("empty", 2, {})
    del empty["spec"]["jobTemplate"]
    assert [(found.name, found.verdict) for found in of_files(grid(1, 1, 1), empty).gangs] == [("empty", "ignored")]


def test_a_file_of_an_object_that_exists() -> None:
    again = job("train", 3, {"require": "rack"})
    with pytest.raises(FileProblem, match="job/train is in the cluster already: explain job/train -n alice"):
        of_files(busy_cluster(), again)


def test_text_of_people_moves_no_cursor() -> None:
    evil = waits("w", 2, {"require": "rack"})
    evil["metadata"]["annotations"][names.REQUIRE] = "ra\x1b[2Jck"
    found = one([*grid(1, 1, 2), evil], "job/w")
    assert found.verdict == "refused"
    assert "\x1b" not in found.message


def test_what_would_end_for_a_gang() -> None:
    """By the policy, from its `after` on; the planner chooses, and nothing has changed afterwards."""
    found = one(preempting(), "job/urgent", namespace="bob").preempts
    assert found is not None
    assert (found.since, found.begins, found.count, found.pods, found.running) == (None, None, 1, 2, 2)
    assert [(victim.name, victim.priority, victim.pods) for victim in found.victims] == [("alice/job/train", 0, 2)]
    later = one(preempting(after="15m"), "job/urgent", namespace="bob").preempts
    assert later is not None
    assert later.begins == "2026-01-01T00:35:00Z"


def test_a_preemption_that_failed_is_tried_again_when_the_placement_says() -> None:
    """The leader waits longer after each."""
    cluster = preempting(preemption={"attempts": 1, "retryAt": "2026-01-01T00:31:00Z"})
    found = one(cluster, "job/urgent", namespace="bob").preempts
    assert found is not None
    assert (found.since, found.begins) == (None, "2026-01-01T00:31:00Z")


@pytest.mark.parametrize("policy", ["mode: never", "mode: lower-priority, protect: {namespaces: [ali*]}"])
def test_nothing_would_end_where_the_policy_says_so(policy: str) -> None:
    """It preempts nothing, or not what is in the way."""
    cluster = [one for one in preempting() if one["kind"] != "ConfigMap"]
    assert one([*cluster, policy_map(f"preemption: {{{policy}}}\n")], "job/urgent", namespace="bob").preempts is None


def test_what_ends_for_a_gang_is_listed_with_the_pods_that_still_run() -> None:
    """Of gangs, and of pods that no gang has; the reason is that of the leader."""
    answer = one(under_way(), "job/urgent", namespace="bob")
    assert (answer.verdict, answer.reason) == ("waits", "Preempting")
    found = answer.preempts
    assert found is not None
    assert (found.since, found.begins, found.count) == ("2026-01-01T00:29:40Z", None, 1)
    assert (found.pods, found.running) == (3, 2)
    assert [(victim.name, victim.pods, victim.running) for victim in found.victims] == [
        ("alice/job/train", 2, 1),
        (None, 1, 1),
    ]
    assert one(under_way(), "job/train").preempted_by == "bob/job/urgent"


def test_a_gang_with_other_slots_than_those_that_are_needed_is_no_victim() -> None:
    """It got new ones since."""
    victim = {"uid": "p-train", "revision": 7, "pods": 2, "priority": 0}
    assert one(under_way(victims=[victim]), "job/train").preempted_by is None


def test_victims_that_may_not_be_read_have_no_name() -> None:
    """Their Placement is in a namespace of others; how many of their pods run is not known then."""
    cluster = [one for one in under_way() if one["metadata"]["name"] != "job-train"]
    found = one(cluster, "job/urgent", namespace="bob").preempts
    assert found is not None
    assert [(victim.name, victim.running) for victim in found.victims] == [(None, None), (None, 1)]
    assert "a gang that you may not read: ? of 2 pods" in text(about(snapshot(cluster), "job/urgent", namespace="bob"))


RACK_OF_TWO = {"b0-r0-h0": ("b0/b0-r0", 1), "b0-r0-h1": ("b0/b0-r0", 1)}
ANSWER = {
    "value": "true",
    "outcome": "Kept",
    "revision": 1,
    "generation": 1,
    "at": "2026-01-01T00:20:00Z",
    "message": "stays in its place (topogate.dev/replan): no place is better now: it uses 1 block, 1 rack, 2 hosts",
}


@pytest.mark.parametrize(
    ("asked", "answer", "told"),
    [
        ({names.REPLAN: "true"}, ANSWER, f"; {ANSWER['message']}"),
        ({names.REPLAN: "again"}, ANSWER, "; to be planned anew (topogate.dev/replan)"),
        ({}, ANSWER, "in b0/b0-r0"),
        ({names.REPLACE: "b0-r0-h1"}, None, "; rank 1 leaves b0-r0-h1 (topogate.dev/replace)"),
        (
            {names.REPLACE: "b0-r0-h7"},
            None,
            "; none of its pods that can move is on b0-r0-h7 (topogate.dev/replace), which it does not use",
        ),
    ],
)
def test_a_move_on_request_is_explained(asked: dict[str, str], answer: dict[str, Any] | None, told: str) -> None:
    """What was asked for, and what became of it; of an annotation that was taken away nothing."""
    made = placed("train", RACK_OF_TWO, bound=2, **({"replan": answer} if answer is not None else {}))
    made[0]["metadata"]["annotations"] |= asked
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    made[0]["spec"]["podFailurePolicy"] = {"rules": [ignored]}
    assert one([*grid(1, 1, 3), *made], "job/train").message.endswith(told)


def test_a_file_is_told_what_would_end_for_it() -> None:
    """Before it is submitted, from the policy's `after` on, as no time of it has passed yet."""
    fresh = template(job("fresh", 2, {"require": "rack"}), priorityClassName="urgent")
    cluster = [one for one in preempting() if one["metadata"]["name"] not in ("urgent", "job-urgent")]
    (found,) = of_files([*cluster, priority_class("urgent", 1000)], fresh).gangs
    assert found.preempts is not None
    assert [victim.name for victim in found.preempts.victims] == ["alice/job/train"]
    assert found.preempts.begins == "2026-01-01T00:30:30Z"


@pytest.mark.parametrize("garbage", [5, {"victims": 5}, {"since": [], "victims": [{"uid": 5}, 7]}, {"retryAt": "soon"}])
def test_garbage_in_the_status_of_a_preemption_is_no_failure(garbage: Any) -> None:
    """Somebody with the right may write anything; it is as if nothing was written."""
    found = one(preempting(preemption=garbage), "job/urgent", namespace="bob").preempts
    assert found is not None
    assert (found.since, found.count) == (None, 1)


def test_what_was_asked_of_the_autoscaler_is_in_one_line() -> None:
    """From the Placement, so that it needs no right to read ProvisioningRequests; garbage in it is left out."""
    asked = {
        "name": "job-next-1",
        "className": "atomic.example.com",
        "pods": 4,
        "attempt": 2,
        "state": "Accepted",
        "requestedAt": "2026-01-01T00:29:00Z",
        "since": "2026-01-01T00:29:20Z",
        "message": "Capacity is not found",
    }
    texts = {}
    for case, more in {
        "accepted": {},
        "not answered": {"state": "Pending", "message": None},
        "failed": {"state": "Failed", "retryAt": "2026-01-01T00:31:00Z"},
        "of another version": {"state": "Odd\x1b", "pods": "4", "since": 7, "requestedAt": "yesterday"},
        "garbage": {"name": 5},
    }.items():
        cluster = [*grid(1, 1, 1), waits("next", 4, {"require": "rack"}, minute=20)]
        cluster.append(waiting_placement("next", provisioning={**asked, **more}))
        lines = text(about(snapshot(cluster), "job/next")).splitlines()
        texts[case] = "\n".join(line for line in lines if line.startswith("  asked "))
    golden("explain-nodes", texts)


def test_restarts_that_the_leader_has_found_are_a_way_out() -> None:
    """As its Placement has them, for whoever asks: without names, and with what an admin may call."""
    status = {"proposal": {"restarts": [{"uid": "u1", "pods": 4}, {"uid": "u2", "pods": 2}]}}
    others = [one for one in busy_cluster() if one["metadata"]["name"] != "job-wide"]
    cluster = [*others, waiting_placement("wide", **status)]
    (way,) = [way for way in one(cluster, "job/wide").ways_out if way.change == "restarts"]
    assert way.text == "2 running gangs (6 pods) restarted elsewhere"
    assert way.command == "topogate defragment --gang job/wide -n alice"
    assert way.text in text(about(snapshot(cluster), "job/wide"))
    assert not [way for way in one(others, "job/wide").ways_out if way.change == "restarts"]


@pytest.mark.parametrize("proposal", [None, [], "x", {"restarts": "x"}, {"restarts": [1, {}]}, {"restarts": []}])
def test_a_proposal_that_is_none_is_no_way_out(proposal: object) -> None:
    """Whatever somebody with the right to has written there."""
    others = [one for one in busy_cluster() if one["metadata"]["name"] != "job-wide"]
    cluster = [*others, waiting_placement("wide", proposal=proposal)]
    assert not [way for way in one(cluster, "job/wide").ways_out if way.change == "restarts"]
