"""The scenes in which commands of pages run: the files that they name, and what is on the cluster by then."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from engine.api import names
from engine.policy.model import parse_policy
from local import nodes
from local.client import Client
from local.controlplane import ControlPlane
from local.kubelets import WAITING, WAITING_ON
from local.nodes import RACK, Grid
from local.service import NAMESPACE, Service
from tests.support.definitions import Definition
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.gangs import Namespace, job_body, require
from tests.support.metric_pages import every_replica_tells
from tests.support.pages import ROOT
from tests.support.seen_fleet import SeenFleet
from tests.support.workloads import RESOURCES, collection

Json = dict[str, Any]
# Where the examples are placed, in this order, on 32 free hosts.
FIRST_HOST: Final = {"train": "host-000", "sweep": "host-004", "finetune": "host-012", "pretrain": "host-016"}
OWN: Final = "alice"  # the namespace of the reader
OTHER: Final = "bob"
POLICY: Final = {"name": "topogate-policy", "namespace": NAMESPACE}
DEMO: Final = "topologies: [{name: default, preset: demo}]\nnodes: {settle: 0s}\n"  # nodes count at once


@dataclass
class Stage:
    """The cluster of the pages: its hosts, what runs in the namespaces of two people, and the policy.

    `undo`: what the next scene does first.
    """

    plane: ControlPlane
    service: Service
    layout: str = ""
    names: list[str] = field(default_factory=list)
    undo: list[Callable[[], object]] = field(default_factory=list)

    @property
    def client(self) -> Client:
        return self.plane.client

    @property
    def fleet(self) -> SeenFleet:
        """Changes hosts, and waits until every replica has seen it."""
        return SeenFleet(self.client, "scene", self.service)

    def reset(self, layout: str = "2x4x4", policy: str = DEMO) -> None:
        """Two empty namespaces, a policy in force, and a grid of free hosts; an empty layout: no hosts."""
        self.service.start(2)
        while self.undo:
            self.undo.pop()()
        for namespace in (OWN, OTHER):
            empty(self.client, namespace)
        self.set_policy(policy)
        if layout != self.layout:
            self.clear()
            self.add(nodes.grid_nodes(Grid.parse(layout)) if layout else [])
            self.layout = layout
        if layout:
            eventually(lambda: self._counted(Grid.parse(layout).size), message="every replica counts the hosts")

    def _counted(self, hosts: int) -> bool:
        """True when every replica has these hosts in its topology."""
        lines = [replica.page("/metrics")[1].splitlines() for replica in self.service.running()]
        counts = [
            line.split()[-1] for one in lines for line in one if re.match(r'topogate_topology_nodes\{.*"in"', line)
        ]
        return counts == [f"{hosts}.0"] * len(lines)

    def set_policy(self, text: str) -> None:
        """Write a policy and wait until every replica has it, whatever stood there before."""
        self.plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=config_map(text))
        line = f'topogate_policy_info{{hash="{parse_policy(text).hash}"}} 1.0'
        every_replica_tells(self.service, line, f"every replica has taken the policy {text}")

    def add(self, bodies: list[Json]) -> None:
        """Add hosts that no other scene has, and wait until kwok has seen them and their Leases.

        On a busy machine kwok may see the end of a host and its return under the same name after pods were bound there,
        and never start these.
        """
        self.names += nodes.add(self.client, bodies)
        if self.names:
            nodes.await_seen(self.client, self.names[-1])
            self.fleet.nodes_seen()
        self.layout = "changed"

    def clear(self) -> None:
        """Take the hosts away."""
        nodes.remove(self.client, self.names)
        self.layout, self.names = "", []

    def submit(self, *files: str, namespace: str = OWN) -> None:
        """Submit examples one after the other, each when the pods of the one before are bound."""
        for file in files:
            tried = partial(self._tried, ROOT / "examples" / "demo" / f"{file}.yaml", namespace)
            eventually(tried, 120.0, f"{file} has its usual hosts")

    def _tried(self, path: Path, namespace: str) -> bool:
        """Submit an example; False, and it is deleted, if hosts that have just come free were not counted yet."""
        self.plane.kubectl(f"--namespace={namespace}", "apply", "-f", str(path))
        self.placed(path.stem, namespace=namespace)
        gangs = self.namespace(namespace)
        if min(gangs.bound(path.stem).values()) == FIRST_HOST[path.stem]:
            return True
        gone = f"{gangs.jobs_path}/{path.stem}"
        self.client.delete(gone)
        eventually(lambda: not gangs.pods(path.stem) and gangs.placement(path.stem) is None, message=f"{gone} is gone")
        gangs.pods_seen()
        return False

    def placed(self, name: str, *, namespace: str = OWN) -> None:
        """Wait until every pod of a Job is ready, as its Placement says too."""
        gangs = self.namespace(namespace)

        def ready() -> bool:
            return gangs.phase(name) == "Running" and gangs.job(name)["spec"]["parallelism"] == len(gangs.bound(name))

        eventually(ready, message=lambda: f"{name} runs\n{gangs.describe(name)}")

    def waiting(self, name: str, *, namespace: str = OWN) -> None:
        """Wait until the Placement of a Job says why it waits."""
        self.namespace(namespace).waits(name)

    def namespace(self, name: str) -> Namespace:
        """The Jobs of a namespace."""
        return Namespace(self.client, name, Fleet(self.client, ""))

    def occupy(self, name: str, *hosts: str, deadline: int | None = None) -> None:
        """Run a Job of somebody else, without a request, with a pod of eight GPUs on each of these hosts."""
        chosen = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(hosts)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [chosen]}]}
        limit = {} if deadline is None else {"activeDeadlineSeconds": deadline}
        affinity = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
        gangs = self.namespace(OTHER)
        self.client.create(gangs.jobs_path, job_body(name, pods=len(hosts), spec=limit, pod_spec=affinity))
        eventually(lambda: len(gangs.bound(name)) == len(hosts), message=f"the pods of {name} are bound")


def free(stage: Stage) -> None:
    """32 free hosts: 2 blocks of 4 racks of 4 hosts of 8 GPUs."""
    stage.reset()


def full(stage: Stage) -> None:
    """30 of the 32 hosts are in use, and the Job late waits."""
    stage.reset()
    stage.submit("train", "sweep", "pretrain", "finetune")
    path = ROOT / "examples" / "demo" / "late.yaml"
    stage.plane.kubectl(f"--namespace={OWN}", "apply", "-f", str(path))
    stage.waiting("late")


def two_queued(stage: Stage) -> None:
    """16 hosts in four racks: train runs, others' Jobs are in the way, two gangs wait."""
    stage.reset("2x2x4")
    stage.occupy("tune", "host-004", "host-005", "host-006", deadline=1800)
    stage.occupy("serve", "host-008", "host-009", "host-012")
    stage.namespace(OTHER).pods_seen()
    stage.fleet.cordon("host-014")
    stage.undo.append(lambda: nodes.uncordon(stage.client, "host-014"))
    for namespace, name in ((OWN, "train"), (OWN, "next"), (OTHER, "more")):
        body = job_body(name, pods=4, annotations=require("rack"))
        stage.client.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", body)
        (stage.placed if name == "train" else stage.waiting)(name, namespace=namespace)


def train_runs(stage: Stage) -> None:
    """The Job train has a rack of the 32 hosts."""
    stage.reset()
    stage.submit("train")


def preempting(stage: Stage) -> None:
    """Train has the only rack, the policy preempts at once, and there are priority classes."""
    stage.reset("1x1x4", policy=f"{DEMO}preemption: {{mode: lower-priority, after: 0s}}\n")
    classes = str(ROOT / "examples" / "priority-classes.yaml")
    stage.plane.kubectl("apply", "-f", classes)
    stage.undo.append(lambda: stage.plane.kubectl("delete", "--ignore-not-found", "-f", classes))
    stage.submit("train")


def no_replica(stage: Stage) -> None:
    """The service is installed, and nobody answers."""
    stage.reset()
    stage.service.kill_all()


def observe(stage: Stage) -> None:
    """Other people's pods have all hosts but two of rack-02, and the policy only observes."""
    stage.reset(policy=f"{DEMO}mode: observe\n")
    stage.occupy("fill", *(f"host-{number:03}" for number in range(32) if number not in (10, 11)))


def observe_here(stage: Stage) -> None:
    """The Job train waits, and then the policy lets go what is in the reader's namespace."""
    stage.reset()
    stage.occupy("fill", *(f"host-{number:03}" for number in range(32)))
    stage.namespace(OTHER).pods_seen()
    stage.plane.kubectl(f"--namespace={OWN}", "apply", "-f", str(ROOT / "examples" / "demo" / "train.yaml"))
    stage.waiting("train")
    stage.set_policy(f"{DEMO}namespaces: {{modes: [{{namespaces: [{OWN}], mode: observe}}]}}\n")


def namespace_rules(stage: Stage) -> None:
    """The reader's namespace may ask for racks and hosts."""
    stage.reset(policy=f"{DEMO}namespaces: {{rules: [{{namespaces: [{OWN}], levels: [rack, host]}}]}}\n")


def no_policy(stage: Stage) -> None:
    """Nobody has written a policy."""
    stage.reset()
    stage.client.delete(f"/api/v1/namespaces/{NAMESPACE}/configmaps/topogate-policy")


def changed_hosts(stage: Stage) -> None:
    """32 hosts that commands of the page may change."""
    stage.reset()
    stage.layout = "changed"


def hosts_without_rack(stage: Stage) -> None:
    """32 hosts in two pools, and two that have lost the label of their rack."""
    stage.reset("")
    bodies = nodes.grid_nodes(Grid.parse("2x4x4"))
    for number, body in enumerate(bodies):
        body["metadata"]["labels"]["example.com/pool"] = "gpu" if number < 28 else "other"
    for body in bodies[26:28]:
        del body["metadata"]["labels"][RACK]
    stage.add(bodies)


def hosts_of_gke(stage: Stage) -> None:
    """32 hosts with the labels of GKE's blocks and subblocks, but not of its hosts."""
    stage.reset("")
    keys = [f"cloud.google.com/gce-topology-{level}" for level in ("block", "subblock")]
    places = [{keys[0]: f"b{number // 16}", keys[1]: f"s{number // 4}"} for number in range(32)]
    stage.add([nodes.node(f"gke-{number}", labels=place) for number, place in enumerate(places)])


def lost_host(stage: Stage) -> None:
    """A host of train is drained, and its rack has no other one."""
    stage.reset("2x2x4")
    gangs = stage.namespace(OWN)
    stage.client.create(
        gangs.jobs_path,
        job_body("train", pods=4, annotations=require("rack"), spec={"backoffLimit": 6}, selector={RACK: "rack-00"}),
    )
    stage.placed("train")
    stage.fleet.cordon("host-001")
    stage.undo.append(lambda: nodes.uncordon(stage.client, "host-001"))
    pod = next(pod for pod in gangs.pods("train") if pod["spec"]["nodeName"] == "host-001")
    stage.client.delete(f"/api/v1/namespaces/{OWN}/pods/{pod['metadata']['name']}")


def split_gang(stage: Stage) -> None:
    """The Job train had to take hosts of two racks; by now rack-01 has its host back, and rack-00 lacks one."""
    stage.reset("1x2x4")
    out = ("host-000", "host-001", "host-004")
    for host in out:
        stage.fleet.cordon(host)
    annotations = {names.PREFER: "rack"}
    stage.client.create(stage.namespace(OWN).jobs_path, job_body("train", pods=4, annotations=annotations))
    stage.placed("train")
    stage.undo.append(lambda: nodes.uncordon(stage.client, "host-000"))  # else either rack may be chosen
    for host in out[1:]:
        stage.fleet.uncordon(host)


def deployment_runs(stage: Stage) -> None:
    """The Deployment serve has two pods in a rack of four hosts."""
    stage.reset("1x1x4")
    template = job_body("serve", pods=2)["spec"]["template"]
    template["metadata"]["labels"] = {"app": "serve"}
    template["spec"]["restartPolicy"] = "Always"
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "serve", "annotations": require("rack")},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "serve"}}, "template": template},
    }
    stage.client.create(f"/apis/apps/v1/namespaces/{OWN}/deployments", body)
    listed = f"/apis/topogate.dev/v1alpha1/namespaces/{OWN}/placements"

    def running() -> bool:
        return [one.get("status", {}).get("phase") for one in stage.client.items(listed)] == ["Running"]

    eventually(running, message="the pods of serve are ready")


def missing_image(stage: Stage) -> None:
    """One of the hosts of train cannot pull its image."""
    stage.reset("2x2x4")
    waits = {WAITING: "ImagePullBackOff", WAITING_ON: "host-003"}
    body = job_body("train", pods=4, annotations=require("rack"), pod_annotations=waits, selector={RACK: "rack-00"})
    stage.client.create(stage.namespace(OWN).jobs_path, body)


def own_kind(stage: Stage) -> None:
    """A kind that only the policy of the page knows is installed."""
    stage.reset()
    definition = Definition("example.com", "Bench", "benches")
    definition.install(stage.client)
    roles = "clusterroles,clusterrolebindings"
    stage.undo.append(lambda: definition.remove(stage.client))
    stage.undo.append(lambda: stage.plane.kubectl("delete", roles, "topogate-policy-kinds", "--ignore-not-found"))


@dataclass(frozen=True, slots=True)
class Scene:
    """What a page's commands find: files beside examples/ and manifests/, and a cluster.

    `new`: a cluster without Topogate, on which the pages install and remove it. Neither: commands that need no cluster.
    """

    cluster: Callable[[Stage], None] | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    new: bool = False


def text_of(document: Json) -> str:
    """A manifest as somebody would write it."""
    return str(yaml.safe_dump(document, sort_keys=False))


def config_map(policy: str) -> str:
    """The ConfigMap with a policy."""
    return text_of({"apiVersion": "v1", "kind": "ConfigMap", "metadata": POLICY, "data": {"policy.yaml": policy}})


def parts_of_gpus() -> str:
    """A Job with two mistakes in its GPU requests."""
    body = job_body("sweep", pods=2, annotations=require("rack"))
    wrong: list[Json] = [{"limits": {"koordinator.sh/gpu": "150"}}, {"requests": {"koordinator.sh/gpu-core": "50"}}]
    body["spec"]["template"]["spec"]["containers"] = [
        {"name": f"trial-{number}", "image": "example.com/trial:1", "resources": resources}
        for number, resources in enumerate(wrong)
    ]
    return text_of(body)


def notebook() -> str:
    """A pod that asks for a rack, and is in no gang."""
    spec = job_body("notebook", pods=1, gpus=4)["spec"]["template"]["spec"]
    metadata = {"name": "notebook", "annotations": require("rack")}
    return text_of({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def bench() -> str:
    """An object of the kind on the page of the policy."""
    spec = {"replicas": 2, "suspend": False, "template": job_body("bench", pods=1)["spec"]["template"]}
    return text_of({"apiVersion": "example.com/v1", "kind": "Bench", "metadata": {"name": "bench"}, "spec": spec})


SCENES: Final = {
    "files": Scene(),
    "good policy": Scene(files={"policy.yaml": DEMO}),
    "wrong policy": Scene(
        files={
            "policy.yaml": "mode: enforcing\nqueue: {maxGangPods: 0}\n"
            "topologies: [{name: default, levels: [{name: rack, keys: [example.com/rack]}, {name: rack}]}]\n"
        }
    ),
    "a saved log": Scene(files={"topogate.log": (ROOT / "tests/data/history/topogate.log").read_text()}),
    "new cluster": Scene(new=True),
    "free hosts": Scene(free),
    "train runs": Scene(train_runs),
    "a policy that preempts": Scene(preempting),
    "full hosts": Scene(full),
    "two gangs wait": Scene(two_queued),
    "no replica": Scene(no_replica),
    "observe": Scene(observe),
    "observe in your namespace": Scene(observe_here),
    "namespace rules": Scene(namespace_rules),
    "a wrong ConfigMap": Scene(no_policy, {"policy.yaml": config_map("mode: enforcing\n")}),
    "hosts to change": Scene(changed_hosts),
    "hosts without a rack": Scene(
        hosts_without_rack,
        {"policy.yaml": "topologies: [{name: default, preset: demo, nodeSelector: {example.com/pool: gpu}}]\n"},
    ),
    "hosts of GKE": Scene(hosts_of_gke, {"policy.yaml": "mode: enforce\n"}),
    "a host is lost": Scene(lost_host),
    "an image is missing": Scene(missing_image),
    "a gang is split": Scene(split_gang),
    "a Deployment runs": Scene(deployment_runs),
    "wrong parts of GPUs": Scene(free, {"job.yaml": parts_of_gpus()}),
    "a single pod": Scene(free, {"notebook.yaml": notebook()}),
    "a kind of your own": Scene(own_kind, {"sample.yaml": bench()}),
}


def empty(client: Client, namespace: str) -> None:
    """Delete workloads, then pods by force, and wait until the Placements have gone too."""
    for kind in reversed(RESOURCES):
        path = collection(kind, namespace)
        if client.find(path) is not None:
            client.delete(path)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    placements = f"/apis/topogate.dev/v1alpha1/namespaces/{namespace}/placements"

    def gone() -> bool:
        if client.items(pods):
            client.delete(pods, grace=0)
            return False
        return not client.items(placements)

    eventually(gone, message=f"pods and Placements of namespace {namespace} are gone")
    # `topogate explain` tells the Events of earlier workloads with the same name.
    client.delete(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
