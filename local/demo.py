"""`make demo`: the service on a real control plane, shown as commands with their real output.

32 simulated GPU hosts (2 blocks x 4 racks x 4 hosts x 8 GPUs), two replicas of the service under their own
ServiceAccount. Nothing is touched outside temporary folders, of which the one with the map stays; KEEP=1 leaves all of
it running.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from local import nodes
from local.controllers.building import ensure_controllers
from local.controllers.running import ControllerError, Controllers
from local.controlplane import ControlPlane, ControlPlaneError
from local.kubelets import complete_pod
from local.modules import ProgramsError
from local.nodes import Grid, HostShape
from local.programs import ensure_programs
from local.service import Service, ServiceError

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = Path("examples") / "demo"
NAMESPACE = "default"
WAIT_SECONDS = 60.0
# A host whose GPUs are offered in parts, as Koordinator's agent reports them: eight GPUs, 100 percent each.
PARTS = HostShape(gpus=0, extended={"koordinator.sh/gpu-core": "800", "koordinator.sh/gpu-memory-ratio": "800"})
SETTLE = 16.0  # the default of the policy's nodes.settle, and a second for clocks in whole seconds


class DemoError(Exception):
    """Something did not happen that should have."""


FAULTS = (
    DemoError,
    ControlPlaneError,
    ControllerError,
    ServiceError,
    ProgramsError,
    subprocess.CalledProcessError,
)


@dataclass(slots=True)
class Demo:
    """The running demo; `submitted` remembers when each Job could start, `rows` what became of it."""

    cluster: ControlPlane
    service: Service
    console: Console
    submitted: dict[str, float] = field(default_factory=dict)
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def say(self, text: str) -> None:
        """A heading: what is shown next."""
        self.console.print(f"\n[bold cyan]# {text}[/]", highlight=False, soft_wrap=True)

    def run(self, *arguments: str, namespace: str = NAMESPACE, expect: int = 0) -> str:
        """Show a kubectl command with its output; DemoError when its exit status is not the expected one."""
        self.console.print(f"[bold]$ kubectl {' '.join(arguments)}[/]", highlight=False, soft_wrap=True)
        done = self.cluster.kubectl(f"--namespace={namespace}", *arguments, check=False)
        output = (done.stderr + done.stdout).rstrip()  # as in a terminal: warnings come first
        self.console.print(output, highlight=False, markup=False, soft_wrap=True)
        if done.returncode != expect:
            raise DemoError(f"kubectl {' '.join(arguments)}: exit status {done.returncode}, not {expect}")
        return output

    def apply(self, file: str, *, name: str | None = None) -> None:
        """Submit one of the examples; `name` where its workload is called otherwise than its file."""
        self.submitted[name or file] = time.monotonic()
        self.run("apply", "-f", str(EXAMPLES / f"{file}.yaml"))

    def until_bound(self, name: str, *, told_as: str | None = None) -> None:
        """Wait until every pod of a gang is bound; notes how long that took and which domains it uses."""
        self.wait(lambda: self.bound(name), f"the pods of {name} are bound")
        seconds = time.monotonic() - self.submitted[name]
        placement = self.placement(name)
        if placement is None:
            raise DemoError(f"{name} has no Placement")
        pod_sets = placement["spec"]["assignment"]["podSets"]
        domains = [tuple(slot["domain"]) for pod_set in pod_sets for slot in pod_set["slots"]]
        wanted = self.count(placement)
        used = [len({domain[: depth + 1] for domain in domains}) for depth in range(3)]
        words = ("block", "rack", "host")
        shown = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in zip(used, words, strict=True))
        self.rows.append((told_as or name, str(wanted), shown, f"{seconds:.2f}"))

    def until_waiting(self, name: str) -> None:
        """Wait until a gang's Placement says that it waits."""
        self.wait(lambda: (self.placement(name) or {}).get("status", {}).get("phase") == "Waiting", f"{name} waits")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; DemoError after a minute."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise DemoError(f"not within {WAIT_SECONDS:.0f} s: {what}")
            time.sleep(0.02)

    def bound(self, name: str) -> bool:
        """True when every pod of a placed gang has its node."""
        placement = self.placement(name)
        if placement is None or not placement["spec"].get("assignment"):
            return False
        return sum(1 for pod in self.pods(name) if pod["spec"].get("nodeName")) == self.count(placement)

    def count(self, placement: Any) -> int:
        """The pods of a gang."""
        return sum(pod_set["count"] for pod_set in placement["spec"]["podSets"])

    def pods(self, name: str) -> list[Any]:
        """The live pods of a gang, by pod set and rank."""
        placement = self.placement(name)
        if placement is None:
            return []
        path, gang = f"/api/v1/namespaces/{NAMESPACE}/pods", placement["metadata"]["name"]
        found = self.cluster.client.items(path, selector=f"topogate.dev/gang={gang}")
        live = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return sorted(live, key=lambda pod: (pod_set_of(pod), int(rank_of(pod) or 0), pod["metadata"]["name"]))

    def placement(self, name: str) -> Any | None:
        """The Placement of a Job."""
        path = f"/apis/topogate.dev/v1alpha1/namespaces/{NAMESPACE}/placements"
        return next((one for one in self.cluster.client.items(path) if one["spec"]["workload"]["name"] == name), None)

    def show_pods(self, name: str) -> None:
        """A table of a gang's pods by rank, with the rack and the host that they run on."""
        pods = self.pods(name)
        several = len({pod_set_of(pod) for pod in pods}) > 1
        table = Table(box=None, pad_edge=False)
        for column in ("POD", *(["POD SET"] if several else []), "RANK", "BLOCK", "RACK", "HOST"):
            table.add_column(column)
        for pod in pods:
            host = pod["spec"]["nodeName"]
            labels = self.cluster.client.get(f"/api/v1/nodes/{host}")["metadata"]["labels"]
            own = [pod_set_of(pod)] if several else []
            place = (labels[nodes.BLOCK], labels[nodes.RACK], host)
            table.add_row(pod["metadata"]["name"], *own, rank_of(pod) or "-", *place)
        self.console.print(table)

    def show_events(self, name: str) -> None:
        """What the service told about a Job."""
        about = f"--field-selector=involvedObject.name={name},reportingComponent=topogate.dev/engine"
        columns = "custom-columns=REASON:.reason,MESSAGE:.message"
        self.run("get", "events", about, "--sort-by=.metadata.creationTimestamp", "-o", columns)

    def finish(self, name: str) -> None:
        """Let every pod of a Job end well."""
        for pod in self.pods(name):
            complete_pod(self.cluster.client, NAMESPACE, pod["metadata"]["name"])

    def draw_map(self) -> None:
        """Write the map of the cluster into a file that outlives the demo, and tell its path."""
        file = Path(tempfile.mkdtemp(prefix="topogate-map-")) / "map.html"
        self.say("The racks and their gangs as a web page, in one file")
        self.console.print(f"[bold]$ topogate map --output {file}[/]", highlight=False, soft_wrap=True)
        done = subprocess.run(
            [sys.executable, "-m", "webhook.cli", "map", "--output", str(file)],
            env={**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)},
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        self.console.print((done.stderr + done.stdout).rstrip(), highlight=False, markup=False, soft_wrap=True)
        if done.returncode != 0:
            raise DemoError(f"topogate map: exit status {done.returncode}, not 0")

    def summary(self) -> None:
        """What ran where, and how fast."""
        table = Table(box=None, pad_edge=False)
        for column, side in (("GANG", "left"), ("PODS", "right"), ("DOMAINS", "left"), ("SECONDS", "right")):
            table.add_column(column, justify="right" if side == "right" else "left")
        for row in self.rows:
            table.add_row(*row)
        self.say("From kubectl apply (or from the moment that room appeared) to all pods bound")
        self.console.print(table)


def show(demo: Demo) -> None:
    """The story."""
    demo.say("A Job that requires a rack: four pods of eight GPUs, all in one rack, in rank order")
    demo.apply("train")
    demo.until_bound("train")
    demo.show_pods("train")

    demo.say("A Job that prefers a rack and needs more than one: as few racks as possible, in one block")
    demo.apply("sweep")
    demo.until_bound("sweep")
    demo.show_pods("sweep")

    demo.say("A Job with mistakes is refused at submit time, every error on its own line")
    demo.run("apply", "-f", str(EXAMPLES / "typo.yaml"), expect=1)

    demo.say("A dry run tells where a Job would go")
    demo.run("apply", "--dry-run=server", "-f", str(EXAMPLES / "finetune.yaml"))

    demo.say("The cluster fills up; a gang that does not fit now waits as a whole, and says why")
    for name in ("pretrain", "finetune"):
        demo.apply(name)
        demo.until_bound(name)
    demo.apply("late")
    demo.until_waiting("late")
    demo.run("get", "placements", "-o", "wide")
    demo.run("get", "pods", "-l", "batch.kubernetes.io/job-name=late")

    demo.say("It starts by itself when another gang ends")
    demo.submitted["late"] = time.monotonic()
    demo.finish("train")
    demo.until_bound("late")
    demo.show_pods("late")

    demo.say("A gang that no rack is large enough for starts when a host is added (counted 15 s after it is Ready)")
    for name in ("late", "sweep"):
        demo.run("delete", "job", name, "--wait=true")
    demo.apply("five")
    demo.until_waiting("five")
    demo.run("get", "placements", "-o", "wide")
    block, rack = free_rack(demo)
    demo.submitted["five"] = time.monotonic()
    place = {nodes.BLOCK: block, nodes.RACK: rack}
    nodes.add(
        demo.cluster.client,
        [nodes.node("host-new", labels=place), nodes.node("host-parts", labels=place, shape=PARTS)],
    )
    demo.console.print(
        f"[bold]# host-new joins {block} / {rack}, and host-parts, which reports its GPUs in percent[/]",
        highlight=False,
    )
    demo.until_bound("five")
    demo.show_pods("five")

    demo.say(
        "A Job whose pods take half of a GPU each: written in the names that nodes report, on two GPUs of one host"
    )
    demo.apply("halves")
    demo.until_bound("halves")
    demo.run("get", "job", "halves", "-o", "jsonpath={.spec.template.spec.containers[0].resources.limits}")
    demo.show_pods("halves")

    demo.say("A JobSet: a launcher and two Jobs of workers in one block, each Job in one rack; all of it or nothing")
    demo.apply("jobset", name="ring")
    demo.until_bound("ring")
    demo.show_pods("ring")

    demo.say("A host dies under a gang: its rank gets another host of the same rack, and the others stay")
    demo.run("apply", "-f", str(EXAMPLES / "policy.yaml"), namespace="topogate-system")
    demo.apply("sturdy")
    demo.until_bound("sturdy")
    demo.show_pods("sturdy")
    lost = demo.pods("sturdy")[1]["spec"]["nodeName"]
    demo.submitted["sturdy"] = time.monotonic()
    nodes.fail(demo.cluster.client, lost)
    demo.console.print(f"[bold]# the kubelet of {lost} is silent; after 5 s its pod is evicted[/]", highlight=False)
    demo.wait(lambda: lost not in {pod["spec"].get("nodeName") for pod in demo.pods("sturdy")}, "its pod is evicted")
    demo.until_bound("sturdy", told_as="sturdy, mended")
    demo.show_pods("sturdy")
    demo.show_events("sturdy")

    demo.say(
        "With a policy that preempts, an urgent gang need not wait: one of lower priority is suspended, as a whole"
    )
    demo.run("apply", "-f", str(EXAMPLES / "preempting-policy.yaml"), namespace="topogate-system")
    demo.apply("urgent")
    demo.until_bound("urgent")
    demo.run("get", "placements", "-o", "wide")
    demo.show_events("urgent")
    demo.show_events("pretrain")

    demo.say("The preempted gang starts again by itself when the urgent one has ended")
    demo.submitted["pretrain"] = time.monotonic()
    demo.finish("urgent")
    demo.until_bound("pretrain", told_as="pretrain, again")
    demo.draw_map()
    demo.summary()


def pod_set_of(pod: Any) -> str:
    """The pod set of a pod."""
    return str(pod["metadata"]["labels"].get("topogate.dev/pod-set", ""))


def rank_of(pod: Any) -> str | None:
    """The rank of a pod, None without one."""
    rank = pod["metadata"].get("annotations", {}).get("topogate.dev/rank")
    return None if rank is None else str(rank)


def free_rack(demo: Demo) -> tuple[str, str]:
    """Block and rack of a rack in which nothing runs."""
    busy = {
        pod["spec"]["nodeName"]
        for pod in demo.cluster.client.items("/api/v1/pods")
        if pod["spec"].get("nodeName") and pod["status"]["phase"] in ("Pending", "Running")
    }
    by_rack: dict[tuple[str, str], list[str]] = {}
    for node in demo.cluster.client.items(nodes.NODES):
        labels = node["metadata"]["labels"]
        by_rack.setdefault((labels[nodes.BLOCK], labels[nodes.RACK]), []).append(node["metadata"]["name"])
    for place, hosts in sorted(by_rack.items()):
        if busy.isdisjoint(hosts):
            return place
    raise DemoError("no rack is free")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Show gangs on a real control plane with 32 simulated GPU hosts.

    With KEEP=1 in the environment all of it is left running. Exit status 0 when everything happened that the demo
    promises.
    """
    sys.exit(run_demo())


def run_demo() -> int:
    """Run the demo and return its exit status."""
    console = Console(highlight=False)
    keep = os.environ.get("KEEP", "") not in ("", "0")
    started = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="topogate-demo-"))
    cluster: ControlPlane | None = None
    service: Service | None = None
    try:

        def progress(line: str) -> None:
            console.print(line, markup=False)

        programs = ensure_programs(progress=progress)
        built = ensure_controllers(["jobset"], kubectl=programs["kubectl"], progress=progress)
        console.print(
            "starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok and the JobSet controller"
        )
        cluster = ControlPlane.start(directory, programs=programs, detached=keep)
        nodes.add(cluster.client, nodes.grid_nodes(Grid.parse("2x4x4")))
        joined = time.monotonic()
        console.print("32 simulated GPU hosts: 2 blocks x 4 racks x 4 hosts x 8 GPUs")
        Controllers(cluster, built).start("jobset")
        service = Service.install(cluster)
        service.start(2, outlive=keep)
        console.print(f"two replicas of the service are ready ({time.monotonic() - started:.1f} s since the start)")
        console.print("a new node counts 15 s after it became Ready (policy nodes.settle): waiting for that")
        time.sleep(max(0.0, joined + SETTLE - time.monotonic()))
        os.chdir(ROOT)
        show(Demo(cluster, service, console))
        console.print(f"\n[bold green]done[/] in {time.monotonic() - started:.0f} s")
    except FAULTS as error:
        console.print(f"[bold red]the demo failed:[/] {error}", markup=True)
        if service is not None:
            for replica in service.replicas.values():
                console.print(replica.log()[-4000:], markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("\ninterrupted")
        return 130
    finally:
        if keep and cluster is not None:
            console.print(
                f"\nleft running:\n  export KUBECONFIG={cluster.kubeconfig}\n"
                f"end it with:\n  .venv/bin/python -m local down --dir {directory}",
                markup=False,
            )
        else:
            if service is not None:
                service.stop()
            if cluster is not None:
                cluster.stop()
            shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    main(prog_name="python -m local.demo")
