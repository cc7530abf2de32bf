"""What is fuzzed: each target makes an input as bytes out of chance, and checks one.

An input stands for itself: its bytes, written to a file, are checked again by `python -m tests.fuzz --replay FILE`.
"""

from __future__ import annotations

import contextlib
import json
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, cast

import yaml
from click.testing import CliRunner

from bench.gang import PlacedGang
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.cluster.client import ApiFault, KubeClient
from engine.cluster.reflector import Reflector, _ListAgain
from engine.cluster.store import Store
from engine.decoding import devices, objects, workloads
from engine.decoding.wire import ProjectionError
from engine.kinds.registry import built_in
from engine.policy.model import PolicyError, parse_policy
from tests.fuzz.mutation import Mutator
from tests.fuzz.schemas import ROOT
from tests.fuzz.service import LoggedFaults, Service, Violation, both_webhooks, fault_of, state_under, timed
from tests.fuzz.specimens import GRID, RACK, Json, Specimens
from tests.support.leader import Leader
from webhook.cli import main
from webhook.snapshot.cluster import STORES

USERS: Final[list[tuple[str, list[str]]]] = [
    ("alice", ["system:authenticated"]),
    ("system:serviceaccount:kube-system:job-controller", ["system:serviceaccounts"]),
    ("system:serviceaccount:topogate-system:topogate", []),
    ("root", ["system:masters"]),
]
OPERATIONS: Final = (*["CREATE"] * 7, *["UPDATE"] * 4, "DELETE", "CONNECT")
POLICIES: Final = {
    "plain": "topologies: [{name: default, preset: demo}]\nnodes: {settle: 0s}\n",
    "rules": """
topologies: [{name: default, preset: demo}]
nodes: {settle: 0s}
namespaces:
  defaults: [{namespaces: [m*], annotations: {topogate.dev/prefer-topology: auto}}]
  rules: [{namespaces: [m*], levels: [rack, host], maxGangPods: 64, maxWaitingGangs: 2, maxReservedHosts: 8}]
gpu: {scope: all, env: uuid, hami: {limits: true}}
podGroup: {labels: koordinator}
preemption: {mode: lower-priority, victims: all}
neverFits: deny
annotations: {unknown: warn}
""",
    "observe": "mode: observe\ntopologies: [{name: default, preset: demo}]\nnodes: {settle: 0s}\n",
}
SIMULATE: Final = [
    ["-o", "json"],
    ["-o", "table"],
    ["--show", "objects"],
    ["--show", "patches"],
    ["--queue"],
    ["--preempt", "all"],
]
SIMULATE_SECONDS: Final = 1.0  # a command that a person runs, not an answer to the API server
LINES: Final = 8  # events that are checked together; each is counted


class Target(Protocol):
    """One way in."""

    def draw(self, mutator: Mutator) -> bytes:
        """An input."""

    def check(self, body: bytes) -> None:
        """Raises Violation."""


def review(obj: Any, *, rng: random.Random | None = None, old: Any = None, namespace: str = "ml") -> Json:
    """An AdmissionReview of an object: the user's CREATE without `rng`, else any operation of anybody."""
    known = obj if isinstance(obj, dict) else {}
    version, kind = known.get("apiVersion"), known.get("kind")
    group, _, version = version.rpartition("/") if isinstance(version, str) else ("", "", "v1")
    metadata = known.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else ""
    username, groups = rng.choice(USERS) if rng is not None and rng.random() < 0.2 else USERS[0]
    operation = rng.choice(OPERATIONS) if rng is not None else "CREATE"
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": group, "version": version, "kind": kind if isinstance(kind, str) else ""},
        "resource": {"group": group, "version": version, "resource": "things"},
        "namespace": namespace,
        "name": name if isinstance(name, str) else "",
        "operation": operation,
        "userInfo": {"username": username, "groups": groups},
        "object": obj if operation != "DELETE" else None,
        "oldObject": old if operation in ("UPDATE", "DELETE") else None,
        "dryRun": rng is not None and rng.random() < 0.2,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def encoded(value: Any, mutator: Mutator, *, spoilt: float = 0.12) -> bytes:
    """JSON, and now and then what is none any more."""
    text = json.dumps(value).encode()
    chance = mutator.rng.random()
    if chance < spoilt:
        return mutator.garbled(text)
    return mutator.noise() if chance < spoilt * 1.1 else text


class Reviews:
    """Reviews of every kind, under several policies; the first line names the policy."""

    def __init__(self, known: Specimens, faults: LoggedFaults) -> None:
        self._objects = known.workloads
        gang = PlacedGang.make(GRID, pods=4, annotations=RACK)
        stores = gang.view.stores
        stores.devices.replace([devices.node_devices(json.dumps(one).encode()) for one in known.devices])
        self._services = {name: Service(state_under(gang.view, text), faults) for name, text in POLICIES.items()}

    def draw(self, mutator: Mutator) -> bytes:
        rng = mutator.rng
        source = rng.choice(self._objects)
        obj = mutator.changed(source)
        old = source if rng.random() < 0.5 else mutator.changed(source)
        found = review(obj, rng=rng, old=old)
        if rng.random() < 0.05:
            found = mutator.changed(found)
        return rng.choice(sorted(self._services)).encode() + b"\n" + encoded(found, mutator)

    def check(self, body: bytes) -> None:
        scene, _, sent = body.partition(b"\n")
        if (service := self._services.get(scene.decode(errors="replace"))) is not None:
            both_webhooks(service, sent)


class Policies:
    """Texts of policy.yaml: reviewed, and a valid one is put in force for the review of a Job."""

    def __init__(self, known: Specimens, faults: LoggedFaults) -> None:
        self._policies = known.policies
        self._gang = PlacedGang.make(GRID, pods=4, annotations=RACK)
        self._faults = faults
        self._service = Service(state_under(self._gang.view, POLICIES["plain"]), faults)
        new = {**self._gang.job, "metadata": {"name": "new", "namespace": "ml", "annotations": dict(RACK)}}
        self._job = json.dumps(review(new)).encode()

    def draw(self, mutator: Mutator) -> bytes:
        rng = mutator.rng
        value = rng.choice(self._policies)
        if rng.random() < 0.8:
            value = mutator.changed(value)
        if rng.random() < 0.3:
            with contextlib.suppress(yaml.YAMLError, ValueError, RecursionError):
                text = yaml.safe_dump(value, default_flow_style=rng.choice((True, False, None))).encode()
                return mutator.garbled(text) if rng.random() < 0.5 else text
        return encoded(value, mutator)

    def check(self, body: bytes) -> None:
        text = body.decode(errors="replace")
        metadata = {"name": "topogate-policy", "namespace": "topogate-system"}
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"policy.yaml": text}}
        sent = review(config, namespace="topogate-system")
        answer = self._service.ask("validate", json.dumps(sent).encode())
        try:
            policy = parse_policy(text)
        except PolicyError:
            if answer is not None and answer["allowed"]:
                raise Violation("an invalid policy is let through") from None
            return
        if answer is not None and answer["allowed"]:
            both_webhooks(Service(state_under(self._gang.view, policy), self._faults), self._job)


class Nodes:
    """Nodes with odd labels and amounts, and Device objects: read, counted, and a gang planned on them."""

    def __init__(self, known: Specimens, faults: LoggedFaults) -> None:
        self._nodes, self._devices, self._faults = known.nodes[:6], known.devices, faults
        asking = [one for one in known.workloads if one["kind"] in ("Job", "Pod")]
        self._objects = [one for one in asking if (one["metadata"].get("annotations") or {}).get(next(iter(RACK)))]

    def draw(self, mutator: Mutator) -> bytes:
        rng = mutator.rng
        found = [*self._nodes, *self._devices]
        for at in rng.sample(range(len(found)), k=rng.choice((1, 1, 3))):
            found[at] = mutator.changed(found[at])
        asked = review(rng.choice(self._objects))
        return json.dumps([asked, *found]).encode()

    def check(self, body: bytes) -> None:
        asked, *found = json.loads(body)
        view = ClusterState(Stores(), parse_policy("nodes: {settle: 0s}"))
        timed("nodes", partial(_take_nodes, view, found))
        both_webhooks(Service(view, self._faults), json.dumps(asked).encode())


def _take_nodes(view: ClusterState, found: Sequence[Any]) -> None:
    nodes, reported = {}, {}
    for one in found:
        with contextlib.suppress(ProjectionError):
            data = json.dumps(one).encode()
            if isinstance(one, dict) and one.get("kind") == "Device":
                device = devices.node_devices(data)
                reported[device.name] = device
            else:
                node = objects.node(data)
                nodes[node.name] = node
    view.stores.nodes.replace(nodes.values())
    view.stores.devices.replace(reported.values())
    view.refresh()


class Events:
    """Lines of watches: some events on a fresh leader, which then takes its turns."""

    def __init__(self, known: Specimens, faults: LoggedFaults) -> None:
        self._objects = [*known.workloads, *known.nodes[:3], *known.devices, *known.placements, *known.others]
        self._nodes = [objects.node(json.dumps(one).encode()) for one in known.nodes]
        self._faults = faults

    def draw(self, mutator: Mutator) -> bytes:
        rng = mutator.rng
        lines = []
        for number in range(LINES):
            obj = rng.choice(self._objects)
            kind = f"{obj['apiVersion']} {obj['kind']}"
            obj = mutator.changed(obj) if rng.random() < 0.7 else json.loads(json.dumps(obj))
            metadata = obj.get("metadata") if isinstance(obj, dict) else None
            if isinstance(metadata, dict):  # what the API server sees to: all else is the user's
                metadata.setdefault("namespace", "ml")
                metadata["resourceVersion"] = str(100 + number)
                if not isinstance(metadata.get("uid"), str) or not metadata["uid"] or rng.random() < 0.3:
                    metadata["uid"] = f"u{rng.randrange(4)}"
            types = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "OTHER")
            event = {"type": rng.choice(types) if rng.random() < 0.3 else "ADDED", "object": obj}
            lines.append(kind.encode() + b" " + encoded(event, mutator, spoilt=0.05).replace(b"\n", b" "))
        return b"\n".join(lines)

    def check(self, body: bytes) -> None:
        leader = Leader(nodes=self._nodes)
        reflectors: dict[tuple[str, str], Reflector[Any] | None] = {}
        self._faults.found.clear()
        for line in body.split(b"\n"):
            version, kind, event = (*line.split(b" ", 2), b"", b"")[:3]
            key = (version.decode(errors="replace"), kind.decode(errors="replace"))
            if key not in reflectors:
                reflectors[key] = _reflector(leader.stores, *key)
            if (reflector := reflectors[key]) is not None:
                with contextlib.suppress(ApiFault, _ListAgain):
                    timed("event", partial(reflector._apply_event, event))
        for seconds in (0.0, 1.0, 45.0, 700.0):
            leader.now += seconds
            leader.turn()
            leader.work()
        if self._faults.found:
            raise fault_of(self._faults.found[0])


def _reflector(stores: Stores, version: str, kind: str) -> Reflector[Any] | None:
    """What watches a kind; None for kinds that are not watched."""
    group, _, number = version.rpartition("/")
    registry = built_in()
    store: Store[Any]
    project: Any
    if (group, kind) in STORES:
        name, project = STORES[(group, kind)]
        store = cast(Store[Any], stores.all()[name])
    elif kind == "Device":
        store, project = stores.devices, devices.node_devices
    elif kind == "Topology" and group in stores.topology_objects:
        store, project = stores.topology_objects[group], objects.topology_object
    elif (group, kind) == ("batch", "Job"):
        store, project = stores.workloads.part(group, kind), workloads.job
    elif (entry := registry.find(group, kind, number)) is not None and entry.handling in ("placed", "through"):
        store = stores.workloads.part(group, kind)
        project = partial(workloads.workload_or_stub, entry=entry, registry=registry, version=number)
    else:
        return None
    return Reflector(cast(KubeClient, None), f"/{kind}", project, store)


class Files:
    """`topogate simulate` on two files and some options: its own command in this process."""

    def __init__(self, known: Specimens, faults: LoggedFaults) -> None:
        cluster = (ROOT / "examples/cluster.yaml").read_text()
        self._cluster = [*known.nodes, *known.devices, *known.others]
        self._text, self._files, self._faults = cluster, known.files, faults
        self._objects = known.workloads

    def draw(self, mutator: Mutator) -> bytes:
        rng = mutator.rng
        if rng.random() < 0.7:
            cluster = _file(self._cluster, mutator, changes=rng.choice((0, 1, 3)))
        else:
            cluster = mutator.garbled(self._text.encode()).decode(errors="replace")
        if rng.random() < 0.6:
            work = _file(rng.sample(self._objects, k=3), mutator, changes=1)
        else:
            work = mutator.garbled(rng.choice(self._files).encode()).decode(errors="replace")
        return json.dumps({"cluster": cluster, "work": work, "options": rng.choice(SIMULATE)}).encode()

    def check(self, body: bytes) -> None:
        found: Mapping[str, Any] = json.loads(body)
        if (
            not isinstance(found["cluster"], str)
            or not isinstance(found["work"], str)
            or found["options"] not in SIMULATE
        ):
            return
        with tempfile.TemporaryDirectory(prefix="topogate-fuzz-") as name:
            cluster, work = Path(name, "cluster"), Path(name, "work")
            cluster.write_bytes(found["cluster"].encode(errors="replace"))
            work.write_bytes(found["work"].encode(errors="replace"))
            words = ["simulate", "--cluster", str(cluster), "-f", str(work), *found["options"]]
            result = timed("simulate", lambda: CliRunner().invoke(main, words), limit=SIMULATE_SECONDS)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise fault_of(result.exception)
        if result.exit_code not in (0, 1, 2):
            raise Violation(f"exit status {result.exit_code}")
        if result.exit_code == 2 and not result.output.strip():
            raise Violation("refused without a word")


def _file(found: Sequence[Json], mutator: Mutator, *, changes: int) -> str:
    found = list(found)
    for _ in range(changes):
        at = mutator.rng.randrange(len(found))
        found[at] = mutator.changed(found[at])
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": found})


@dataclass(frozen=True)
class Sort:
    """A target, its share of the draws, and how many inputs one draw counts as."""

    make: Callable[[Specimens, LoggedFaults], Target]
    share: int
    inputs: int = 1


TARGETS: Final[Mapping[str, Sort]] = {
    "reviews": Sort(Reviews, 600),
    "policy": Sort(Policies, 100),
    "nodes": Sort(Nodes, 30),
    "events": Sort(Events, 32, inputs=LINES),
    "simulate": Sort(Files, 10),
}
