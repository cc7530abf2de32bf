"""`simulate` on workloads of every registered kind, and on gangs of plain pods."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from engine.api import names
from engine.policy.model import parse_policy
from tests.support.golden import golden
from tests.support.kinds import FILES, example
from tests.support.simulation import answer, grid, job, simulated
from webhook.simulate.model import Gang
from webhook.simulate.output import shown

Json = dict[str, Any]
GRID = grid(2, 2, 4)  # hosts of 8 GPUs, racks of 4 hosts
NOT_PLACED = ("cronjob", "trainjob", "pod")


def with_gpus(value: Any, gpus: int) -> Any:
    """Every container of an object asks for that many GPUs."""
    if isinstance(value, list):
        return [with_gpus(one, gpus) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: with_gpus(one, gpus) for key, one in value.items()}
    for container in found.get("containers", ()):
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return found


def asking(name: str, *, gpus: int = 1) -> Json:
    raw: Json = with_gpus(copy.deepcopy(example(name)["object"]), gpus)
    raw.pop("status", None)
    raw["metadata"] = {"name": name, "annotations": {names.REQUIRE: "rack"}}
    return raw


def plain_pod(name: str, *, gang: str = "g", size: int = 3, **annotations: str) -> Json:
    said = {names.GANG_NAME: gang, names.GANG_SIZE: str(size), names.REQUIRE: "rack", **annotations}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": said}}
    return {**pod, "spec": with_gpus({"containers": [{"name": "c", "image": "x"}]}, 8)}


def seated(gang: Gang) -> dict[str, int]:
    """Pods with a slot by pod set."""
    return {one.name: sum(slots.count for slots in one.assignment) for one in gang.pod_sets}


@pytest.mark.parametrize("name", [path.stem for path in FILES if path.stem not in NOT_PLACED])
def test_every_kind_is_placed_whole_in_one_rack(name: str) -> None:
    for one in simulated(GRID, [asking(name)]):
        assert one.gang.verdict == "placed"
        assert seated(one.gang) == {pod_set.name: pod_set.count for pod_set in one.gang.pod_sets}
        racks = {slots.domain[:2] for pod_set in one.gang.pod_sets for slots in pod_set.assignment}
        assert len(racks) == 1
        assert one.gang.warnings == ()


def test_each_replica_of_a_leaderworkerset_is_a_gang_with_an_answer_of_its_own() -> None:
    found = simulated(GRID, [asking("leaderworkerset", gpus=8), job("after", 8, {"prefer": "rack"})])
    assert [(one.gang.name, one.gang.group, one.gang.verdict) for one in found] == [
        ("leaderworkerset", "0", "placed"),
        ("leaderworkerset", "1", "placed"),
        ("leaderworkerset", "2", "placed"),
        ("after", None, "waits"),
    ]
    assert [one["kind"] for one in shown(found, "objects")] == ["LeaderWorkerSet", "Job"]
    assert [one["name"] for one in shown(found, "patches")] == ["leaderworkerset", "after"]


def cronjob(name: str = "nightly", *, pods: int = 4, own: Any = None, **job: Any) -> Json:
    """A CronJob with Jobs that require a rack, or with these annotations."""
    raw = with_gpus(copy.deepcopy(example("cronjob")["object"]), 8)
    raw["metadata"] = {"name": name, "annotations": dict(own or {})}
    template = raw["spec"]["jobTemplate"]
    template["metadata"] = {"annotations": job.pop("annotations", {names.REQUIRE: "rack"})}
    template["spec"] |= {"parallelism": pods, "completions": pods, **job}
    return raw


def test_a_cronjob_is_answered_for_the_job_that_it_makes() -> None:
    """In its own name; what the Job takes is gone for those after it."""
    found = simulated(GRID, [cronjob(), cronjob("second", pods=16)])
    first, second = (one.gang for one in found)
    assert (first.kind, first.namespace, first.name, first.verdict) == ("CronJob", "default", "nightly", "placed")
    assert seated(first) == {"main": 4}
    assert (second.name, second.verdict, second.reason) == ("second", "never", "GangTooLarge")
    assert [(one["kind"], one["metadata"]["name"]) for one in shown(found, "objects")] == [
        ("CronJob", "nightly"),
        ("CronJob", "second"),
    ]
    later = simulated(GRID, [cronjob(), *(cronjob(f"n{number}") for number in range(4))])
    assert [one.gang.verdict for one in later] == ["placed"] * 4 + ["waits"]


def test_a_gang_that_waits_behind_a_cronjob_is_told_the_name_in_the_file() -> None:
    strict = parse_policy("queue: {order: strict}\ntopologies: [{name: default, preset: demo}]\n")
    many = [cronjob(f"n{number}") for number in range(5)]
    *_, last, behind = simulated(GRID, [*many, job("behind", 1, {"require": "rack"})], policy=strict)
    assert (last.gang.verdict, behind.gang.reason) == ("waits", "QueuedBehind")
    assert behind.gang.message.startswith(f"{last.gang.name} goes first")


def test_each_object_that_an_own_kind_makes_is_a_gang_of_its_own() -> None:
    own = """
topologies: [{name: default, preset: demo}]
kinds:
- name: jobs
  match: {group: example.com, versions: [v1], kind: Jobs, resource: jobses}
  handling: hint
  makes: [{object: ".spec.jobs[*]", kind: {group: batch, kind: Job}}]
"""
    made = {key: value for key, value in job("x", 4, {"require": "rack"}).items() if key in ("metadata", "spec")}
    of_two = {"apiVersion": "example.com/v1", "kind": "Jobs", "metadata": {"name": "two"}, "spec": {"jobs": [made] * 2}}
    found = [one.gang for one in simulated(GRID, [of_two], policy=parse_policy(own))]
    assert [(one.kind, one.name, one.verdict) for one in found] == [("Jobs", "two", "placed")] * 2
    racks = [{slots.domain[:2] for slots in one.pod_sets[0].assignment} for one in found]
    assert racks[0].isdisjoint(racks[1])


def test_what_the_objects_that_an_own_kind_makes_create_are_gangs_of_their_own() -> None:
    own = """
topologies: [{name: default, preset: demo}]
kinds:
- name: schedules
  match: {group: example.com, versions: [v1], kind: Schedule, resource: schedules}
  handling: hint
  makes: [{object: ".spec.crons[*]", kind: {group: batch, kind: CronJob}}]
"""
    crons = [{key: value for key, value in cronjob().items() if key in ("metadata", "spec")}] * 2
    both = {"apiVersion": "example.com/v1", "kind": "Schedule", "metadata": {"name": "both"}, "spec": {"crons": crons}}
    found = [one.gang for one in simulated(GRID, [both], policy=parse_policy(own))]
    assert [(one.kind, one.name, one.verdict) for one in found] == [("Schedule", "both", "placed")] * 2
    racks = [{slots.domain[:2] for slots in one.pod_sets[0].assignment} for one in found]
    assert racks[0].isdisjoint(racks[1])


def test_a_cronjob_and_a_job_of_its_name_are_two_gangs() -> None:
    found = simulated(GRID, [cronjob("train"), job("train", 4, {"require": "rack"})])
    assert [(one.gang.kind, one.gang.verdict) for one in found] == [("CronJob", "placed"), ("Job", "placed")]


def test_a_cronjob_whose_jobs_ask_for_nothing_is_left_alone_and_a_wrong_one_is_rejected() -> None:
    """A request on the CronJob itself is none of its Jobs; errors are at their paths in the CronJob."""
    found = simulated(
        GRID,
        [
            cronjob("nothing", annotations={}),
            cronjob("above", annotations={}, own={names.REQUIRE: "rack"}),
            cronjob("wrong", annotations={names.REQUIRE: "rak"}),
            cronjob("bare", template={"metadata": {}, "spec": {}}),
            cronjob("held", suspend=True),
        ],
    )
    assert [(one.gang.verdict, one.gang.reason) for one in found] == [
        ("ignored", "NoTopologyRequested"),
        ("ignored", "NoTopologyRequested"),
        ("rejected", "UnknownLevel"),
        ("rejected", "MissingValue"),
        ("waits", "Suspended"),
    ]
    assert "belongs in spec.jobTemplate.metadata.annotations" in found[1].gang.warnings[0]
    assert [error.field for error in found[2].gang.errors] == [
        "spec.jobTemplate.metadata.annotations[topogate.dev/require-topology]"
    ]
    assert [error.field for error in found[3].gang.errors] == ["spec.jobTemplate.spec.template.spec.containers"]


@pytest.mark.parametrize("garbage", [7, [], "x", {"metadata": 3}, {"spec": []}, {"metadata": {"annotations": [1]}}])
def test_a_cronjob_with_anything_as_its_template_is_answered(garbage: Any) -> None:
    """Never a traceback."""
    raw = cronjob()
    raw["spec"]["jobTemplate"] = garbage
    (found,) = simulated(GRID, [raw])
    assert found.gang.verdict in ("ignored", "rejected")


def test_each_cronjob_finds_the_whole_cluster_where_gangs_are_independent() -> None:
    found = simulated(GRID, [cronjob(f"n{number}") for number in range(6)], independent=True)
    assert {one.gang.verdict for one in found} == {"placed"}


def test_in_the_queue_a_cronjob_goes_by_the_priority_of_its_jobs() -> None:
    urgent = cronjob("urgent")
    urgent["spec"]["jobTemplate"]["spec"]["template"]["spec"]["priority"] = 1000
    found = simulated(GRID, [*(job(f"j{number}", 4, {"require": "rack"}) for number in range(4)), urgent], queue=True)
    assert found[0].gang.name == "urgent"


def test_plain_pods_of_one_gang_are_placed_together() -> None:
    pods = [plain_pod("a"), job("between", 4, {"require": "rack"}), plain_pod("b"), plain_pod("c")]
    first, second = simulated(GRID, pods)
    assert (first.gang.kind, first.gang.name, first.gang.verdict) == ("Pod", "g", "placed")
    assert seated(first.gang) == {"main": 3}
    assert second.gang.name == "between"
    assert [one["metadata"]["name"] for one in shown([first], "objects")] == ["a", "b", "c"]
    assert [one["name"] for one in shown([first], "patches")] == ["a", "b", "c"]


def test_a_plain_gang_that_is_not_whole_waits_and_one_that_contradicts_itself_is_rejected() -> None:
    waits, wrong = simulated(
        GRID, [plain_pod("a"), plain_pod("b"), plain_pod("x", gang="h", size=2), plain_pod("y", gang="h", size=3)]
    )
    assert (waits.gang.verdict, waits.gang.reason) == ("waits", "WaitingForMembers")
    assert "2 of 3 pods of g exist" in waits.gang.message
    assert (wrong.gang.verdict, wrong.gang.reason) == ("rejected", "GangSizeMismatch")


def test_from_the_same_cluster_each_gang_finds_all_of_it() -> None:
    found = simulated(GRID, [asking("leaderworkerset", gpus=8), plain_pod("a", size=1)] * 1, independent=True)
    assert [one.gang.verdict for one in found] == ["placed"] * 4


def test_what_cannot_be_read_is_rejected_only_when_it_asks() -> None:
    asks = asking("jobset")
    asks["spec"] = {"replicatedJobs": 7, "suspend": "no"}
    plain = {**copy.deepcopy(asks), "metadata": {"name": "plain"}}
    grouped = {**copy.deepcopy(asks), "metadata": {"name": "grouped", "labels": {names.POD_GROUP_NAME: "g"}}}
    rejected, ignored, of_group = simulated(GRID, [asks, plain, grouped])
    for one in (rejected, of_group):
        assert [error.field for error in one.gang.errors] == ["spec.replicatedJobs", "spec.suspend"]
    assert (ignored.gang.verdict, ignored.gang.reason) == ("ignored", "NoTopologyRequested")


def test_a_template_without_containers_is_rejected_at_its_own_path() -> None:
    asks = asking("mpijob")
    asks["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"] = {}
    (found,) = simulated(GRID, [asks])
    assert [error.field for error in found.gang.errors] == ["spec.mpiReplicaSpecs.Worker.template.spec.containers"]


def test_the_workloads_of_the_cluster_keep_their_room() -> None:
    """A StatefulSet of the cluster with its Placement, as the service would see it."""
    running = asking("statefulset", gpus=8)
    running["metadata"] |= {"namespace": "ml", "uid": "uid-1"}
    slots = [{"domain": ["b0", "b0-r0", f"b0-r0-h{n}"], "count": 1, "ranks": str(n), "devices": None} for n in range(3)]
    placement = {
        "apiVersion": names.API_VERSION,
        "kind": names.PLACEMENT_KIND,
        "metadata": {"name": "statefulset-x", "namespace": "ml"},
        "spec": {
            "workload": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "statefulset", "uid": "uid-1"},
            "topology": "default",
            "podSets": [{"name": "main", "count": 3, "require": "rack", "ranked": True}],
            "assignment": {"revision": 1, "podSets": [{"name": "main", "slots": slots}]},
        },
    }
    cluster = [*grid(1, 1, 4), running, placement]
    (found,) = simulated(cluster, [job("a", 2, {"require": "rack"})])
    assert found.gang.verdict == "waits"
    (found,) = simulated(cluster, [job("a", 1, {"require": "rack"})])
    assert found.gang.verdict == "placed"


def test_the_texts() -> None:
    texts = {}
    for name in [path.stem for path in FILES]:
        found = [*simulated(GRID, [asking(name)]), *simulated(GRID, [asking(name, gpus=8)])]
        lines = [f"{one.gang.group or '-'} {one.gang.verdict}: {one.gang.message}" for one in found]
        texts[name] = "\n".join([*lines, *dict.fromkeys(text for one in found for text in one.gang.warnings)])
    golden("simulate-kinds", texts)


LEADS = {  # kind -> the pod set of world rank 0
    "pytorchjob": "master",
    "tfjob": "chief",
    "xgboostjob": "master",
    "paddlejob": "master",
    "mpijob": "launcher",
    "mpijob-v1": "launcher",
    "raycluster": "headgroup",
    "rayjob": "headgroup",
    "rayservice": "headgroup",
    "leaderworkerset": "leader",
    "sparkapplication": "driver",
}


def with_larger_first(raw: Json, name: str) -> Json:
    """The pods of `name` (a key of the object, in whatever case) ask for one more CPU than the others."""

    def changed(value: Any, within: bool) -> Any:
        if isinstance(value, list):
            return [changed(one, within) for one in value]
        if not isinstance(value, dict):
            return value
        found = {key: changed(one, within or key.lower().startswith(name[:4])) for key, one in value.items()}
        for container in found.get("containers", ()) if within else ():
            container["resources"]["requests"] = {"cpu": "3"}
        return found

    return changed(raw, False)  # type: ignore[no-any-return]


@pytest.mark.parametrize("larger", [False, True])
@pytest.mark.parametrize("name", LEADS)
def test_the_pod_that_leads_comes_first_in_the_order_of_hosts(name: str, larger: bool) -> None:
    """World rank 0: a master, chief, launcher, head, leader or driver, as large as the others or larger."""
    leader = LEADS[name]
    raw = asking(name, gpus=8)
    raw["metadata"]["annotations"] = {names.REQUIRE: "block"}
    gang = simulated(grid(1, 2, 8), [with_larger_first(raw, leader) if larger else raw])[0].gang
    hosts = {one.name: [slots.node for slots in one.assignment] for one in gang.pod_sets}
    assert len(hosts) > 1 and hosts[leader] == [min(node for nodes in hosts.values() for node in nodes)]


def test_pod_sets_stand_in_the_order_of_the_kind_whatever_the_order_of_the_file() -> None:
    """A file that names the workers first is the same TFJob: the API server sorts the keys anyway."""
    raw = asking("tfjob", gpus=8)
    specs = raw["spec"]["tfReplicaSpecs"]
    raw["spec"]["tfReplicaSpecs"] = dict(sorted(specs.items(), reverse=True))
    assert [one.name for one in simulated(GRID, [raw])[0].gang.pod_sets] == ["chief", "ps", "worker", "evaluator"]


def grouped(raw: Json, *, group: str = "g", least: int, labels: bool = False) -> Json:
    """The object as a member of a pod group, in our words or by the labels of coscheduling."""
    if labels:
        raw["metadata"]["labels"] = {names.POD_GROUP_NAME: group, names.POD_GROUP_MIN: str(least)}
    else:
        raw["metadata"]["annotations"] = {names.POD_GROUP: group, names.MIN_AVAILABLE: str(least)}
    return raw


@pytest.mark.parametrize("labels", [False, True])
def test_the_workloads_of_a_pod_group_are_placed_together_or_not_at_all(labels: bool) -> None:
    """Jobs and pods are one group, wherever they stand among others."""
    members = [grouped(job("a", 2, {}), least=4, labels=labels), job("between", 1, {"require": "rack"})]
    members += [grouped(job("b", 1, {}), least=4, labels=labels)]
    pod = {**plain_pod("p"), "metadata": {"name": "p"}}
    members += [grouped(pod, least=4, labels=labels)]
    placed = {one.gang.name: one.gang for one in simulated(grid(1, 1, 5), copy.deepcopy(members))}
    assert {name: gang.verdict for name, gang in placed.items()} == dict.fromkeys(("a", "b", "g", "between"), "placed")
    assert [seated(placed[name])["main"] for name in ("a", "b", "g")] == [2, 1, 1]
    waits = {one.gang.name: one.gang for one in simulated(grid(1, 1, 3), copy.deepcopy(members))}
    assert {name: gang.verdict for name, gang in waits.items()} == {
        **dict.fromkeys(("a", "b", "g"), "waits"),
        "between": "placed",
    }
    assert "4 pods of pod group g start together; there is room for 3 of them" in waits["a"].message
    half = simulated(grid(1, 1, 5), copy.deepcopy(members[:3]))
    assert {one.gang.reason for one in half if one.gang.verdict == "waits"} == {"WaitingForMembers"}
    assert "3 of 4 pods of pod group g exist" in half[0].gang.message


@pytest.mark.parametrize(
    ("kind", "says", "field", "reason"),
    [
        ("job", {names.POD_GROUP: "g"}, f"metadata.annotations[{names.MIN_AVAILABLE}]", "MissingValue"),
        (
            "job",
            {names.POD_GROUP: "a b", names.MIN_AVAILABLE: "2"},
            f"metadata.annotations[{names.POD_GROUP}]",
            "InvalidValue",
        ),
        (
            "job",
            {names.POD_GROUP: "g", names.MIN_AVAILABLE: "0"},
            f"metadata.annotations[{names.MIN_AVAILABLE}]",
            "InvalidValue",
        ),
        (
            "leaderworkerset",
            {names.POD_GROUP: "g", names.MIN_AVAILABLE: "2"},
            f"metadata.annotations[{names.POD_GROUP}]",
            "ConflictingAnnotations",
        ),
        (
            "deployment",
            {names.POD_GROUP: "g", names.MIN_AVAILABLE: "2"},
            f"metadata.annotations[{names.POD_GROUP}]",
            "ConflictingAnnotations",
        ),
    ],
)
def test_a_wrong_pod_group_is_refused(kind: str, says: dict[str, str], field: str, reason: str) -> None:
    raw = asking(kind)
    raw["metadata"]["annotations"] = says
    (found,) = simulated(GRID, [raw])[:1]
    assert [(error.field, error.reason) for error in found.gang.errors] == [(field, reason)]


def test_a_minimum_on_a_template_is_none_of_the_groups() -> None:
    """The group's is about all of its pods, so it stands on the workload."""
    raw = grouped(asking("tfjob"), least=2)
    for one in raw["spec"]["tfReplicaSpecs"].values():
        one["template"].setdefault("metadata", {})["annotations"] = {names.MIN_AVAILABLE: "1"}
    (found,) = simulated(GRID, [raw])
    assert {error.reason for error in found.gang.errors} == {"ConflictingAnnotations"}


@pytest.mark.parametrize(("gpus", "started"), [(2, None), (3, (1, 2)), (4, (1, 3)), (5, (1, 4))])
def test_a_tfjob_of_five_with_a_minimum_of_three_starts_with_its_parameter_server(
    gpus: int, started: tuple[int, int] | None
) -> None:
    """The label stands on both templates, and is about the group: as many as there is room for, from three on."""
    labels = {names.POD_GROUP_NAME: "tf", names.POD_GROUP_MIN: "3"}
    spec = with_gpus({"containers": [{"name": "tensorflow", "image": "x"}]}, 1)
    types = {
        name: {"replicas": count, "template": {"metadata": {"labels": labels}, "spec": spec}}
        for name, count in (("PS", 1), ("Worker", 4))
    }
    tfjob = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "tf"}}
    hosts = [{**node, "status": {**node["status"], "allocatable": with_count(node, gpus)}} for node in grid(1, 1, 1)]
    (found,) = simulated(hosts, [{**tfjob, "spec": {"tfReplicaSpecs": types}}])
    assert found.gang.verdict == ("never" if started is None else "placed")
    if started is not None:
        assert seated(found.gang) == {"ps": started[0], "worker": started[1]}


def with_count(node: Json, gpus: int) -> Json:
    return {**node["status"]["allocatable"], "nvidia.com/gpu": str(gpus)}


def test_a_pod_group_object_of_the_cluster_says_how_many_start_together() -> None:
    """By the label of scheduler-plugins; without the object the Jobs wait for it."""
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "spec": {"minMember": 3}}
    named = {**group, "metadata": {"name": "g", "namespace": "default"}}
    jobs = [job(name, 2, {}) for name in "ab"]
    for one in jobs:
        one["metadata"]["labels"] = {names.SCHEDULER_PLUGINS_POD_GROUP: "g"}
    found = simulated([*grid(1, 1, 3), named], copy.deepcopy(jobs))
    assert [one.gang.verdict for one in found] == ["placed", "placed"]
    assert sum(seated(one.gang)["main"] for one in found) == 3
    lost = simulated(grid(1, 1, 3), copy.deepcopy(jobs))
    assert {one.gang.reason for one in lost} == {"WaitingForMembers"}


@pytest.mark.parametrize(("hosts", "verdict"), [(4, "placed"), (3, "waits")])
def test_from_the_same_cluster_the_members_of_a_pod_group_are_still_together(hosts: int, verdict: str) -> None:
    """Each of them has the answer of the group; the next workload finds the cluster as it was."""
    members = [grouped(job(name, 2, {}), least=4) for name in "ab"]
    found = simulated(grid(1, 1, hosts), [*members, job("alone", hosts, {"require": "rack"})], independent=True)
    assert [one.gang.verdict for one in found] == [verdict, verdict, "placed"]
    if verdict == "waits":
        assert {one.gang.reason for one in found[:2]} == {"InsufficientFreeGPUs"}


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_workload_without_replicas_has_nothing_to_place(replicas: int) -> None:
    """It asks for a topology all the same, and has no group that could be warned of."""
    empty = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve", "annotations": {names.REQUIRE: "rack"}},
        "spec": {
            "replicas": replicas,
            "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": {"containers": [{"name": "c"}]}}},
        },
    }
    (found,) = answer(grid(1, 1, 2), [empty])["workloads"]
    message = "placed 2 pods in b0 / b0-r0 (1 host)" if replicas else "placed 0 pods"
    assert (found["verdict"], found["reason"], found["message"]) == ("placed", None, message)
    assert (found["warnings"], found["podSets"][0]["count"]) == ([], 2 * replicas)
