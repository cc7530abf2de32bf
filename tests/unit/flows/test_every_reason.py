"""One text for every reason code, as the person reads it who meets it: made by what says it, not written here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from engine.api import names
from engine.api.reasons import REASONS, Code
from engine.policy.model import Policy, parse_policy
from tests.support.admission import FakeView, Json, apply, gang_view, live, rack_job, raw_job, review
from tests.support.cluster_records import REFUSAL, gpu_nodes, job, pod
from tests.support.families import plain
from tests.support.gang_oracles import ranks_of
from tests.support.golden import golden
from tests.support.leader import Leader
from tests.support.preempting import PreemptingCluster
from tests.support.simulation import RACK, answer, grid, policy_map
from tests.support.simulation import job as submitted
from tests.support.simulation import pod as running
from tests.support.snapshots import snapshot, waits
from tests.unit.admission.test_budget import answered, ray
from tests.unit.controller.test_schedule_timeout import GIVE_UP, full, impatient
from tests.unit.flows import test_life_growth as growth
from tests.unit.flows import test_life_losses as losses
from tests.unit.flows import test_life_readiness as readiness
from tests.unit.flows import test_life_replans as replans
from tests.unit.handlers.test_validate_binding import GUARDED, bound, web
from tests.unit.scheduler.test_starvation import leader_on, submit
from tests.unit.service.test_policy_events import BAD, Desk
from webhook.admission.review import Response
from webhook.explanations.explain import explain
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate
from webhook.queries.subject import subject_of

ASKS = {"require": "rack"}
HOSTS = ("b0-r0-h0", "b0-r0-h1", "b0-r0-h2", "b0-r0-h3")
Told = tuple[str, str]  # code and text


def refused(response: Response) -> Told:
    """The first error of a refusal, as kubectl prints it."""
    error = response.errors[0]
    return error.reason, response.causes[0].field + ": " * bool(response.causes[0].field) + response.causes[0].message


def at_submit(annotations: Mapping[str, str], *, policy: str = "{}", **more: Any) -> Told:
    return refused(validate(review(raw_job(annotations, **more)), FakeView(policy=parse_policy(policy)), 0.0))


def at_update() -> Told:
    """A running gang is asked to change its level."""
    old = live(apply(rack_job(), mutate(review(rack_job()), FakeView(), 0.0)))
    old["spec"]["suspend"] = False
    del old["metadata"]["annotations"][names.HELD_BY]
    new = {**old, "metadata": {**old["metadata"], "annotations": {names.REQUIRE: "block"}}}
    return refused(validate(review(new, old=old), gang_view(old, HOSTS), 0.0))


def simulated(nodes: Sequence[Json], *workloads: Json, policy: Policy | None = None) -> Told:
    """What `topogate simulate` says of the last workload."""
    last = answer(nodes, workloads, policy=policy)["workloads"][-1]
    if not last["errors"]:
        return last["reason"], last["message"]
    error = last["errors"][0]
    return error["reason"], f"{error['field']}: {error['message']}"


def explained(cluster: Sequence[Json], name: str, *, namespace: str = "alice") -> Told:
    """What `topogate explain` says."""
    found = snapshot(cluster)
    (one,) = explain(found, [subject_of(found, name, namespace=namespace)]).gangs
    return one.reason, one.message


def left_alone(
    metadata: Mapping[str, Any] | None = None, *, pods: Mapping[str, Any] | None = None, **spec: Any
) -> Told:
    one = waits("train", 2, ASKS, **spec)
    one["metadata"] |= metadata or {}
    one["spec"]["template"]["spec"] |= pods or {}
    return explained([*grid(1, 1, 2), one], "job/train")


def reported(leader: Leader, name: str = "train") -> Told:
    """What the leader wrote about a gang last."""
    found = leader.placed(name)
    assert found is not None
    return str(found.status["reason"]), str(found.status["message"])


def limited(rule: str) -> Policy:
    return parse_policy(
        f"topologies: [{{name: default, preset: demo}}]\nnamespaces: {{rules: [{{namespaces: [ml], {rule}}}]}}"
    )


def used(*hosts: str) -> list[Json]:
    return [running(f"on-{host}", host) for host in hosts]


def in_ml(one: Json) -> Json:
    one["metadata"]["namespace"] = "ml"
    return one


def apart() -> Json:
    """A gang whose pods keep to a rack each, and require one rack."""
    one = submitted("train", 2, ASKS)
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "train"}}}
    one["spec"]["template"]["metadata"] = {"labels": {"app": "train"}}
    one["spec"]["template"]["spec"]["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    }
    return one


def serving(**asked: str) -> Json:
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve", "annotations": {names.REQUIRE: "rack", names.SPREAD: "rack"}},
        "spec": {
            "replicas": 3,
            "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": {"containers": [container]}}},
        },
    }


def of_quota() -> list[Json]:
    hard = {"requests.nvidia.com/gpu": "16"}
    return [
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "team", "namespace": "default"},
            "spec": {"hard": hard},
            "status": {"hard": hard, "used": {"requests.nvidia.com/gpu": "8"}},
        }
    ]


def with_class(name: str) -> tuple[list[Json], Json]:
    one = submitted("train", 2, ASKS)
    one["spec"]["template"]["spec"]["priorityClassName"] = name
    known = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1}
    return [*grid(1, 1, 2), known], one


def late(*, unschedulable: str = "") -> Told:
    """A pod of a running gang that the scheduler does not bind."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(job(count=2, held=True))
    leader.settle()
    gang, hosts = leader.workload(), ranks_of(leader.placed())
    leader.has(pod(gang, 0, host=hosts[0]), pod(gang, 1, pin=hosts[1], unschedulable=unschedulable))
    leader.settle()
    leader.later(31.0)
    leader.later(10.0)
    return reported(leader)


def no_pods() -> Told:
    return reported(growth.without_pods())


def unready(seconds: float) -> Told:
    leader = readiness.racks(readiness.LIMITED)
    readiness.start(leader, 1)
    leader.later(seconds)
    return reported(leader)


def dead_node() -> Told:
    leader = losses.two_racks()
    losses.running(leader)
    leader.has(losses.dead(leader, ranks_of(leader.placed())[0]))
    leader.later(61.0)
    leader.later(10.0)
    return reported(leader)


def kept_room() -> Told:
    leader = leader_on(gpu_nodes(1, 1, 2), "b0-r0-h0", "b0-r0-h1")
    submit(leader, "big", 2)
    leader.later(601.0)
    leader.later(10.0)
    return reported(leader, "big")


def given_up() -> Told:
    leader = full(GIVE_UP)
    leader.has(impatient())
    leader.settle()
    leader.later(60)
    return reported(leader)


def preempting() -> Leader:
    """A leader that ends `low` for `high`, while the pods of `low` still terminate."""
    cluster = PreemptingCluster(racks=1)
    cluster.submit("low", 2)
    cluster.go_on()
    cluster.lingering = True
    cluster.submit("high", 2, priority=100)
    cluster.go_on(11)
    return cluster.leader


def members() -> Told:
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(plain("a", size="3"), plain("b", size="3"))
    leader.settle()
    leader.later(10.0)
    name, status = leader.hands.told[-1]
    assert name == "mesh"
    return status.reason, status.message


def sizes() -> Told:
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(plain("a", size="3"), plain("b", size="2"))
    leader.settle()
    leader.later(10.0)
    return leader.hands.told[-1][1].reason, leader.hands.told[-1][1].message


def bad_policy() -> Told:
    desk = Desk()
    desk.applied(BAD)
    desk.told()
    return desk.events[0]["reason"], desk.events[0]["note"].replace(desk.policy.policy.hash, "(hash)")


def reserved_elsewhere() -> Told:
    answer = bound(web(), parse_policy(GUARDED))
    return answer.causes[0].reason, answer.message


def stopped_search() -> Told:
    """Three templates that fill hosts unevenly, and the shortest search that a policy allows."""

    def part(gpus: int, cpu: int, pods: int) -> Json:
        limits = {"nvidia.com/gpu": str(gpus), "cpu": str(cpu)}
        spec = submitted("", pods)["spec"]
        spec["template"]["spec"]["containers"][0]["resources"] = {"limits": limits}
        return {"name": f"cpu-{cpu}", "replicas": 1, "template": {"spec": spec}}

    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "annotations": {names.REQUIRE: "rack"}},
        "spec": {"replicatedJobs": [part(3, 47, 13), part(3, 10, 6), part(2, 23, 19)]},
    }
    policy = parse_policy("topologies: [{name: default, preset: demo}]\nplanner: {steps: 1000}")
    return simulated(grid(1, 2, 12), job_set, policy=policy)


def amd() -> Json:
    one = submitted("train", 2, ASKS)
    one["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"amd.com/gpu": "8"}}
    return one


def half_a_gpu() -> Json:
    one = submitted("train", 2, ASKS)
    one["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"koordinator.sh/gpu": "150"}}
    return one


def cpu_only() -> tuple[list[Json], Json]:
    one = submitted("train", 4, ASKS)
    one["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "90"}}
    busy = [running(f"on-{host}", host) for host in HOSTS[:2]]
    for each in busy:
        each["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "50"}}
    return [*grid(1, 1, 4), *busy], one


def cordoned(count: int) -> list[Json]:
    nodes = grid(1, 1, 4)
    for node in nodes[:count]:
        node["spec"]["unschedulable"] = True
    return nodes


def unlabelled() -> list[Json]:
    nodes = grid(1, 1, 4)
    for node in nodes:
        node["metadata"]["labels"] = {}
    return nodes


def selecting(pool: str) -> Json:
    one = submitted("train", 2, ASKS)
    one["spec"]["template"]["spec"]["nodeSelector"] = {"pool": pool}
    return one


def restarting() -> Told:
    """A gang that its user has asked to plan anew, and that has a better place."""
    leader, _ = replans.split()
    replans.ask(leader, replan="true")
    leader.later(10.0)
    return reported(leader)


def unknown_kind() -> Json:
    template = {"metadata": {"annotations": {names.REQUIRE: "rack"}}, "spec": {"containers": [{"name": "main"}]}}
    return {
        "apiVersion": "example.com/v1",
        "kind": "Fleet",
        "metadata": {"name": "train"},
        "spec": {"template": template},
    }


def of_daemon_set() -> Json:
    reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "agent", "controller": True}
    one = running("agent-x", "b0-r0-h0", ownerReferences=[reference])
    one["metadata"] |= {"namespace": "alice", "uid": "agent-x", "annotations": {names.REQUIRE: "rack"}}
    return one


RULE = "namespaces: {{rules: [{{namespaces: [ml], {0}}}]}}"
READ: Mapping[Code, Callable[[], Told]] = {
    "UnknownLevel": lambda: at_submit({names.REQUIRE: "rak"}),
    "UnknownTopology": lambda: at_submit({names.REQUIRE: "rack", names.TOPOLOGY: "west"}),
    "ConflictingAnnotations": lambda: at_submit({names.REQUIRE: "rack", names.UNCONSTRAINED: "true"}),
    "InvalidValue": lambda: at_submit({names.REQUIRE: "rack", names.RELAX_AFTER: "10 minutes"}),
    "MissingValue": lambda: at_submit({names.REQUIRE: "rack", names.SLICE_TOPOLOGY: "host"}),
    "SegmentNotDivisor": lambda: at_submit({names.REQUIRE: "rack", names.SLICES: "host=3"}),
    "GangSizeMismatch": sizes,
    "GangTooLarge": lambda: simulated(grid(2, 2, 4), submitted("train", 5, ASKS)),
    "HostTooSmall": lambda: simulated(grid(1, 1, 4), submitted("train", 2, ASKS, gpus=16)),
    "UnknownResource": lambda: simulated(grid(1, 1, 4), amd()),
    "ImmutableField": at_update,
    "UnsupportedKind": lambda: simulated(grid(1, 1, 4), unknown_kind()),
    "UnknownAnnotation": lambda: at_submit({"topogate.dev/require-topolgy": "rack"}),
    "GPURequestInvalid": lambda: simulated(grid(1, 1, 4), half_a_gpu()),
    "ReservedName": lambda: at_submit({names.REQUIRE: "rack"}, template={names.DEVICE_ALLOCATED: "{}"}),
    "NamespaceNotAllowed": lambda: at_submit({names.REQUIRE: "rack"}, policy=RULE.format("allow: false")),
    "LevelNotAllowed": lambda: at_submit({names.REQUIRE: "block"}, policy=RULE.format("levels: [rack]")),
    "ExclusiveNotAllowed": lambda: at_submit(
        {names.REQUIRE: "rack", names.EXCLUSIVE: "rack"}, policy=RULE.format("exclusive: false")
    ),
    "GangLimitExceeded": lambda: at_submit(
        {names.REQUIRE: "rack"}, policy=RULE.format("maxGangPods: 2"), parallelism=4, completions=4
    ),
    "ReviewTooCostly": lambda: refused(answered(validate, ray(3), free=1)[0]),
    "InsufficientFreeGPUs": lambda: simulated(
        [*grid(1, 2, 4), *used(*HOSTS, "b0-r1-h0", "b0-r1-h1")], submitted("train", 4, ASKS)
    ),
    "InsufficientFreeHosts": lambda: simulated(*cpu_only()),
    "Fragmented": lambda: simulated([*grid(1, 2, 4), *used("b0-r0-h0", "b0-r1-h3")], submitted("train", 4, ASKS)),
    "WaitingForMembers": members,
    "ReservedByOthers": reserved_elsewhere,
    "NodesUnhealthy": lambda: simulated(cordoned(3), submitted("train", 4, ASKS)),
    "NodesExcluded": lambda: simulated(grid(1, 2, 4), selecting("h100")),
    "LabelsMissing": lambda: simulated(unlabelled(), submitted("train", 4, ASKS)),
    "ExclusiveDomains": lambda: simulated(
        grid(1, 1, 4), submitted("a", 1, ASKS), submitted("train", 1, {**ASKS, names.EXCLUSIVE: "rack"})
    ),
    "SpreadDomains": lambda: simulated(grid(1, 2, 4), serving()),
    "PodConstraints": lambda: simulated(grid(1, 2, 4), apart()),
    "QueuedBehind": lambda: simulated(
        [*grid(1, 1, 4), *used("b0-r0-h0")],
        submitted("big", 4, ASKS),
        submitted("train", 1, ASKS),
        policy=parse_policy("topologies: [{name: default, preset: demo}]\nqueue: {order: strict}"),
    ),
    "RoomKept": kept_room,
    "Preempting": lambda: reported(preempting(), "high"),
    "Preempted": lambda: reported(preempting(), "low"),
    "SearchLimit": stopped_search,
    "QuotaExceeded": lambda: simulated([*grid(1, 1, 4), *of_quota()], submitted("train", 3, ASKS)),
    "WaitingGangsLimit": lambda: simulated(
        [*grid(1, 1, 2), *used("b0-r0-h0", "b0-r0-h1")],
        in_ml(submitted("a", 1, ASKS)),
        in_ml(submitted("train", 1, ASKS)),
        policy=limited("maxWaitingGangs: 1"),
    ),
    "ReservedHostsLimit": lambda: simulated(
        grid(1, 2, 4),
        in_ml(submitted("a", 2, ASKS)),
        in_ml(submitted("train", 2, ASKS)),
        policy=limited("maxReservedHosts: 3"),
    ),
    "SchedulerRefused": lambda: late(unschedulable=REFUSAL),
    "SchedulerSilent": late,
    "HoldExpired": no_pods,
    "PodsNotReady": lambda: unready(readiness.SETTLED),
    "StartTimeout": lambda: unready(10 * readiness.MINUTES),
    "StartLimitExceeded": lambda: reported(readiness.exhausted()),
    "NodeLost": dead_node,
    "Moving": restarting,
    "PriorityClassMissing": lambda: simulated(*with_class("hihg")),
    "ScheduleTimeout": given_up,
    "Suspended": lambda: left_alone({"annotations": {names.REQUIRE: "rack"}}),
    "PolicyHold": lambda: simulated(
        grid(1, 1, 4),
        submitted("train", 2, ASKS),
        policy=parse_policy("topologies: [{name: default, preset: demo}]\nmode: hold"),
    ),
    "PolicyInvalid": bad_policy,
    "ManagedByKueue": lambda: left_alone({"labels": {names.KUEUE_QUEUE: "main"}}),
    "CoreGang": lambda: left_alone(pods={"schedulingGroup": {"podGroupName": "g"}}),
    "OtherScheduler": lambda: left_alone(pods={"schedulerName": "default-schedular"}),
    "OtherController": lambda: left_alone(managedBy="example.com/mine"),
    "ExclusiveTopology": lambda: left_alone(
        {"annotations": {names.REQUIRE: "rack", "alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}}
    ),
    "NoTopologyRequested": lambda: left_alone({"annotations": {}}),
    "ExemptNamespace": lambda: explained(
        [*grid(1, 1, 2), waits("train", 2, ASKS, namespace="kube-system")], "job/train", namespace="kube-system"
    ),
    "NodeNameSet": lambda: left_alone(pods={"nodeName": "b0-r0-h0"}),
    "DaemonSetOrStatic": lambda: explained([*grid(1, 1, 2), of_daemon_set()], "pod/agent-x"),
    "PolicyOff": lambda: explained(
        [*grid(1, 1, 2), waits("train", 2, ASKS), policy_map("mode: observe\n")], "job/train"
    ),
}


# Of an object that is part of a gang nothing is said but what its gang does.
UNSAID: frozenset[Code] = frozenset({"PartOfGang"})


@pytest.mark.parametrize("code", READ)
def test_a_code_is_said_by_what_has_it(code: Code) -> None:
    """One line, in which nothing is missing."""
    said, text = READ[code]()
    assert said == code
    assert text.isprintable()
    assert "None" not in text


def test_what_people_read_of_every_code() -> None:
    """A new code gets a line in `READ`; its text says where, why and what to do, with numbers."""
    assert READ.keys() == REASONS.keys() - UNSAID
    golden("reasons", {code: read()[1] for code, read in READ.items()})
