"""Random gangs of a chaos test: how each is made, and what its user may do to it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from local.client import ClientError
from local.kubelets import READY_AFTER, complete_pod, fail_pod
from tests.support.gangs import Json, Namespace, job_body, prefer, require
from tests.support.invariants import GANG_LABEL
from tests.support.raw_pods import ended
from tests.support.sights import replicated

PER_HOST = 8
SLOW = 0.2  # of the gangs need seconds to start
URGENT = 0.3
BALANCED = 0.2  # how many gangs want even shares
GROUPED = 0.12  # how often two Jobs of one pod group come
SPREAD_GROUP = "web"
# How often a gang that requires a rack, or prefers one, also wants something beside other gangs or of its hosts.
EXTRAS = {"": 8, "exclusive": 4, "spread": 4, "volume": 3, "scope": 3}
TIMED = 0.1  # of the gangs do not want to wait for ever
TIMEOUT = "10s"
SCOPES = {"pcie": 2, "numa": 4}  # how many GPUs of a host share one
KINDS = (4, 2, 4, 2)  # how often a gang with ranks is a Job, a StatefulSet, a JobSet, a LeaderWorkerSet


@dataclass(slots=True)
class Member:
    """One gang as its user knows it; `level` is what it requires, `slices` (level, pods) what its parts do."""

    name: str
    pods: int
    gpus: int
    level: str | None
    slices: tuple[tuple[str, int], ...] = ()
    least: int | None = None  # what it starts with when there is no room for all of it
    path: str = ""
    suspended: bool = False  # by its user
    exclusive: bool = False  # nobody else is in its racks
    spread: bool = False  # no other gang that is spread is in its racks
    volume: str | None = None  # the rack in which its volume is
    scope: str | None = None  # what the GPUs of each pod share
    timed: bool = False  # it may be given up
    group: str | None = None  # its pod group, which starts with so many pods:
    group_least: int = 0


@dataclass(slots=True)
class Crowd:
    """The gangs of one namespace; each fits the whole fleet of racks of `rack` and blocks of `block` hosts alone.

    `volumes`: a claim in the namespace -> the rack in which its volume is. `scopes`: the hosts report their devices.
    `urgent`: a PriorityClass that some of them name.
    """

    gangs: Namespace
    rack: int
    block: int
    jobsets: bool = False  # some of them are JobSets or LeaderWorkerSets
    volumes: Mapping[str, str] = field(default_factory=dict)
    scopes: bool = False
    urgent: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    left: dict[str, tuple[Member, float]] = field(default_factory=dict)  # who was deleted, and when
    made: int = 0
    drawn: Counter[str] = field(default_factory=Counter)  # how often each feature came

    @property
    def collections(self) -> tuple[str, ...]:
        """Where its workloads are."""
        name = self.gangs.name
        others = (
            f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{name}/jobsets",
            f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{name}/leaderworkersets",
        )
        return (
            self.gangs.jobs_path,
            f"/apis/apps/v1/namespaces/{name}/statefulsets",
            *(others if self.jobsets else ()),
        )

    def pods(self, name: str) -> list[Json]:
        """The pods of a gang."""
        path = f"/api/v1/namespaces/{self.gangs.name}/pods"
        return self.gangs.client.items(path, selector=f"{GANG_LABEL}={name}")

    def describe(self, name: str) -> str:
        """Everything about a gang, for a failed test."""
        workload = self.gangs.client.find(self.members[name].path) or {}
        lines = [f"{name}: {workload.get('spec')} {workload.get('status')}", f"{self.gangs.placement(name)}"]
        for pod in self.pods(name):
            spec, status = pod["spec"], pod["status"]
            lines.append(
                f"pod {pod['metadata']['name']}: {pod['metadata'].get('deletionTimestamp', '')} {spec.get('nodeName')} "
                f"{spec.get('schedulingGates')} {spec.get('affinity')} {status['phase']} {status.get('conditions')}"
            )
        return "\n".join(lines)

    def come(self, rng: random.Random) -> str:
        """Submit a random gang; while no replica answers it is refused, which is right. What was done."""
        if rng.random() < GROUPED:
            return self._come_in_group(rng)
        member, body = self._draw(rng, f"gang-{self.made}")
        collection = self.gangs.jobs_path
        if body["spec"]["completionMode"] == "Indexed":
            match rng.choices(("Job", "StatefulSet", "JobSet", "LeaderWorkerSet"), KINDS)[0]:
                case "StatefulSet":
                    body, collection = _statefulset(body, rng), self.collections[1]
                case "JobSet" if self.jobsets:
                    body, collection = _jobset(body, rng), self.collections[2]
                case "LeaderWorkerSet" if self.jobsets:
                    body, collection = _leader_worker_set(body, rng), self.collections[3]
        member.path = f"{collection}/{member.name}"
        self.made += 1
        self.gangs.client.create(collection, body)
        self.members[member.name] = member
        self.drawn.update(_features(member))
        return f"{member.name}: {member.pods} pods of {member.gpus} GPUs, requires {member.level}, {_asked(body)}"

    def _come_in_group(self, rng: random.Random) -> str:
        """Submit two Jobs of one pod group; a moment lies between them, in which the second may be refused."""
        group = f"group-{self.made}"
        parts = [rng.randint(1, self.rack) for _ in range(2)]
        least = sum(parts) - (rng.random() < 0.3 and sum(parts) > 2)
        for pods in parts:
            name = f"gang-{self.made}"
            self.made += 1
            level = rng.choice(("rack", None))
            asked = {} if level is None else require(level)
            each = rng.choice((8, 4))
            body = job_body(
                name,
                pods=pods,
                gpus=each,
                annotations={
                    **asked,
                    "topogate.dev/pod-group": group,
                    "topogate.dev/min-available": str(least),
                },
                selector=self.gangs.fleet.selector,
                indexed=rng.random() < 0.7,
                spec={"backoffLimit": 1000},
                pod_labels={GANG_LABEL: name},
            )
            self.gangs.client.create(self.gangs.jobs_path, body)
            self.members[name] = Member(
                name,
                pods,
                each,
                level,
                least=1 if least < sum(parts) else None,
                path=f"{self.gangs.jobs_path}/{name}",
                group=group,
                group_least=least,
            )
        self.drawn["pod group"] += 1
        return f"{group}: two Jobs of {parts} pods, {least} at the least"

    def _extra(self, rng: random.Random, member: Member) -> tuple[dict[str, str], Json]:
        """What a gang wants besides: annotations, and changes of its pods' spec."""
        kinds = [kind for kind in EXTRAS if kind != "volume" or (self.volumes and member.level == "rack")]
        match rng.choices(kinds, [EXTRAS[kind] for kind in kinds])[0]:
            case "exclusive":
                member.exclusive = True
                return {"topogate.dev/exclusive-topology": "rack"}, {}
            case "spread" if member.level == "rack":
                member.spread = True
                return {"topogate.dev/spread-topology": "rack", "topogate.dev/spread-group": SPREAD_GROUP}, {}
            case "volume":
                claim = rng.choice(sorted(self.volumes))
                member.volume = self.volumes[claim]
                return {}, {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}
            case "scope" if self.scopes and member.gpus < PER_HOST:
                member.scope = "pcie" if member.gpus == SCOPES["pcie"] else "numa"
                return {"topogate.dev/device-scope": member.scope}, {}
        return {}, {}

    def _draw(self, rng: random.Random, name: str) -> tuple[Member, Json]:
        each = rng.choice((8, 8, 8, 4, 2))
        kind = rng.choice(("rack", "rack", "rack", "block", "prefer", "unconstrained", "slices", "layers"))
        if kind == "layers":
            each = min(each, 4)  # two pods on one host
        room = {"rack": self.rack, "prefer": 2 * self.rack}.get(kind, self.block) * PER_HOST // each
        pods = rng.randint(1, min(room, 8))
        level: str | None = None
        slices: tuple[tuple[str, int], ...] = ()
        match kind:
            case "rack" | "block":
                level, annotations = kind, require(kind)
            case "prefer":
                annotations = prefer("rack")
            case "unconstrained":
                annotations = {"topogate.dev/unconstrained-topology": "true"}
            case "layers":
                pairs = self.rack * (PER_HOST // each // 2)
                pods, slices = 4 * rng.randint(1, min(pairs // 2, 2)), (("rack", 4), ("host", 2))
                level = "block"
                annotations = {**require("block"), "topogate.dev/slices": "rack=4,host=2"}
            case _:
                whole = (
                    self.rack * PER_HOST // each // 2 * (self.block // self.rack)
                )  # slices in a block, each in a rack
                pods, slices = 2 * rng.randint(1, min(whole, 4)), (("rack", 2),)
                level = "block"
                annotations = {
                    **require("block"),
                    "topogate.dev/slice-topology": "rack",
                    "topogate.dev/slice-size": "2",
                }
        if rng.random() < BALANCED:
            annotations = {**annotations, "topogate.dev/profile": "balanced"}
        least = rng.randint(1, pods - 1) if not slices and pods > 1 and rng.random() < 0.12 else None
        if least is not None:
            annotations = {**annotations, "topogate.dev/min-available": str(least)}
        member = Member(name, pods, each, level, slices, least)
        pod_spec: Json = {}
        if kind in ("rack", "prefer"):
            more, pod_spec = self._extra(rng, member)
            annotations = {**annotations, **more}
        if rng.random() < TIMED:
            member.timed = True
            annotations = {**annotations, "topogate.dev/schedule-timeout": TIMEOUT}
        indexed = bool(slices) or rng.random() < 0.7
        body = job_body(
            name,
            pods=pods,
            gpus=each,
            annotations=annotations,
            selector=self.gangs.fleet.selector,
            indexed=indexed,
            completions=pods * 2 if not slices and rng.random() < 0.1 else None,
            spec={
                "backoffLimit": rng.choice((0, 1000)),
                "podReplacementPolicy": rng.choice(("Failed", "TerminatingOrFailed")),
            },
            pod_spec=pod_spec,
            pod_labels={GANG_LABEL: name},
        )
        if self.urgent and rng.random() < URGENT:
            self.drawn["urgent"] += 1
            body["spec"]["template"]["spec"]["priorityClassName"] = self.urgent
        if rng.random() < SLOW:
            body["spec"]["template"]["metadata"]["annotations"][READY_AFTER] = f"{rng.uniform(0.5, 2.5):.1f}s"
        return member, body

    def go(self, name: str) -> str:
        """Its user deletes it."""
        self.left[name] = self.members[name], time.monotonic()
        self.gangs.client.delete(self.members.pop(name).path)
        return name

    def scale(self, name: str, *, grow: bool, rng: random.Random) -> str:
        """Its user wants fewer pods, or more of them again: never more than fit."""
        member = self.members[name]
        spec = self.gangs.client.get(member.path)["spec"]
        now = int(spec.get("replicas", spec.get("parallelism", 0)))  # none on a JobSet
        one_group = "/leaderworkersets/" in member.path
        if (
            one_group
            or member.slices
            or member.group is not None
            or member.least is not None
            or not now
            or not (now < member.pods if grow else now > 1)
        ):
            return f"{name}: left alone"
        pods = rng.randint(now + 1, member.pods) if grow else rng.randint(1, now - 1)
        elastic = spec.get("completionMode") == "Indexed" and spec["completions"] == now
        changes = {"parallelism": pods, **({"completions": pods} if elastic else {})}
        spec = {"replicas": pods} if "replicas" in spec else changes
        self.gangs.client.patch(member.path, {"spec": spec})
        return f"{name} to {pods} pods"

    def suspend(self, name: str, *, suspended: bool) -> str:
        """Its user suspends or resumes it, where that can be done."""
        if _serves(self.members[name]):
            return f"{name}: left alone"
        self.gangs.client.patch(self.members[name].path, {"spec": {"suspend": suspended}})
        self.members[name].suspended = suspended
        return f"{name} {'suspended' if suspended else 'resumed'}"

    def complete(self, name: str) -> str:
        """Its bound pods end well, where they can: those of servers are started again by their kubelets."""
        if _serves(self.members[name]):
            return f"{name}: left alone"
        done = 0
        for pod in self.pods(name):
            if pod["spec"].get("nodeName") and not ended(pod):
                complete_pod(self.gangs.client, self.gangs.name, pod["metadata"]["name"])
                done += 1
        return f"{done} pods of {name}"

    def pod_of(self, name: str, rng: random.Random, *, running: bool = False) -> str | None:
        """The name of one of its live pods, or of those that run."""
        pods = sorted(
            pod["metadata"]["name"]
            for pod in self.pods(name)
            if "deletionTimestamp" not in pod["metadata"]
            and not ended(pod)
            and (not running or pod["status"].get("phase") == "Running")
        )
        return rng.choice(pods) if pods else None

    def lose_pod(self, name: str, how: str, rng: random.Random) -> str:
        """One of its pods is deleted, evicted or fails."""
        pod = self.pod_of(name, rng)
        if pod is None:
            return f"{name} has none"
        path = f"/api/v1/namespaces/{self.gangs.name}/pods/{pod}"
        match how:
            case "pod deleted":
                self.gangs.client.delete(path, grace=rng.choice((None, 0)))
            case "pod evicted":
                eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
                self.gangs.client.create(f"{path}/eviction", eviction)
            case _:
                fail_pod(self.gangs.client, self.gangs.name, pod)
        return pod


def _serves(member: Member) -> bool:
    """True of kinds with pods that restart for ever, and that nobody can suspend."""
    return any(kind in member.path for kind in ("/statefulsets/", "/leaderworkersets/"))


def _features(member: Member) -> list[str]:
    """What is special about a gang."""
    features = {
        "slices": member.slices,
        "minimum": member.least,
        "exclusive": member.exclusive,
        "spread": member.spread,
        "volume": member.volume,
        "scope": member.scope,
        "time-out": member.timed,
    }
    return [name for name, there in features.items() if there]


def _statefulset(job: Json, rng: random.Random) -> Json:
    """The same pods as a StatefulSet, which nobody can suspend: one after the other, or all at once."""
    template = job["spec"]["template"]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": job["metadata"],
        "spec": {
            "replicas": job["spec"]["parallelism"],
            "serviceName": "gangs",
            "podManagementPolicy": rng.choice(("OrderedReady", "Parallel")),
            "selector": {"matchLabels": template["metadata"]["labels"]},
            "template": {**template, "spec": {**template["spec"], "restartPolicy": "Always"}},
        },
    }


def _jobset(job: Json, rng: random.Random) -> Json:
    """The same pods as a JobSet: one replicated Job of some replicas."""
    spec = dict(job["spec"])
    pods = int(spec["parallelism"])
    replicas = rng.choice([number for number in range(1, pods + 1) if pods % number == 0])
    spec["parallelism"] = spec["completions"] = pods // replicas
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": job["metadata"],
        "spec": {
            "replicatedJobs": [{"name": "workers", "replicas": replicas, "template": {"spec": spec}}],
            "failurePolicy": {"maxRestarts": rng.choice((0, 100))},
        },
    }


def _leader_worker_set(job: Json, rng: random.Random) -> Json:
    """The same pods as one group of a LeaderWorkerSet, which nobody can suspend."""
    template = job["spec"]["template"]
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": job["metadata"],
        "spec": {
            "replicas": 1,
            "leaderWorkerTemplate": {
                "size": job["spec"]["parallelism"],
                "restartPolicy": rng.choice(("RecreateGroupOnPodRestart", "None")),
                "workerTemplate": {**template, "spec": {**template["spec"], "restartPolicy": "Always"}},
            },
        },
    }


def _asked(body: Mapping[str, Any]) -> str:
    spec, jobs = body["spec"], replicated(body)
    if body["kind"] == "LeaderWorkerSet":
        return f"{body['metadata']['annotations']}, LeaderWorkerSet, {spec['leaderWorkerTemplate']['restartPolicy']}"
    if body["kind"] == "StatefulSet":
        return f"{body['metadata']['annotations']}, StatefulSet, {spec['podManagementPolicy']}"
    if jobs is not None:
        spec = {**jobs["template"]["spec"], "completionMode": f"JobSet of {jobs['replicas']} Jobs"}
    words = [key.partition("/")[2] + "=" + value for key, value in body["metadata"]["annotations"].items()]
    job = f"{spec['completionMode']}, completions {spec['completions']}, backoff {spec['backoffLimit']}"
    return f"{' '.join(words)}, {job}"


def refused_for_now(error: ClientError) -> bool:
    """True when a user's request met a moment at which it may be refused: no replica answers, or it came too late."""
    return error.status in (404, 409, 422, 429, 500, 504)
