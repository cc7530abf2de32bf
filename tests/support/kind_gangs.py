"""Gangs of any kind on a real control plane: what their users do, and where their pods are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from engine.api import names
from engine.kinds.registry import built_in
from engine.kinds.schema import KindEntry
from local import nodes
from local.client import ClientError
from tests.support.eventually import PATIENCE, eventually
from tests.support.raw_placements import await_waiting, placements_path
from tests.support.raw_pods import complete, ended
from tests.support.workloads import KINDS, RESOURCES, Json, Workloads

OURS = "topogate"
LEVELS = (nodes.BLOCK, nodes.RACK)
MADE = {"RayService": "RayCluster"}  # kinds whose children are gangs of their own
Seat = tuple[str, str]  # pod set, rank; without a rank the pod's name


class Gangs(Workloads):
    """The gangs of one test: pods of 8 GPUs, one to a host, unless said otherwise."""

    def template(self, *, gated: bool = False, container: str = "main", gpus: int = 8, **spec: Any) -> Json:
        """A pod template; `annotations` are its own."""
        annotations = spec.pop("annotations", None)
        body = super().template(gated=gated, container=container, terminationGracePeriodSeconds=1, **spec)
        limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        requests = {"cpu": "1", "memory": "1Gi"}
        body["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": limits}
        return {**body, **({"metadata": {"annotations": dict(annotations)}} if annotations else {})}

    def members(self) -> list[Json]:
        """The pods that take part in gangs and live; not those beside them, as a RayJob's submitter."""
        return [
            pod
            for pod in self.pods().values()
            if pod["metadata"].get("labels", {}).get(names.MANAGED) == "true" and not ended(pod)
        ]

    def hosts(self) -> dict[Seat, str]:
        """Pod set and rank -> host, of the members that are bound."""
        return {seat(pod): pod["spec"]["nodeName"] for pod in self.members() if pod["spec"].get("nodeName")}

    def all_run(self, count: int, timeout: float = PATIENCE) -> dict[Seat, str]:
        """Wait until exactly `count` members exist and all of them run; pod set and rank -> host."""

        def look() -> dict[Seat, str] | None:
            members = self.members()
            assert len(members) == count, f"{len(members)} members"
            assert all(pod["status"].get("phase") == "Running" for pod in members), "not all of them run"
            return {seat(pod): pod["spec"]["nodeName"] for pod in members}

        found = eventually(look, timeout, lambda: f"{count} pods run\n{self.describe()}")
        assert found is not None
        return found

    def racks(self, hosts: Mapping[Seat, str]) -> set[tuple[str, str]]:
        """The racks of these hosts."""
        return {self.fleet.rack_of(host) for host in set(hosts.values())}

    def placements(self) -> list[Json]:
        return self.client.items(placements_path(self.namespace))

    def placement(self, kind: str, name: str, group: str | None = None) -> Json | None:
        """The Placement of a workload, or of one of its groups."""
        for found in self.placements():
            workload = found["spec"]["workload"]
            right = (workload["kind"], workload["name"]) == (KINDS.get(kind, kind), name)
            if kind in MADE:
                right = workload["kind"] == MADE[kind] and workload["name"].startswith(f"{name}-")
            if right and group in (None, found["spec"].get("group")):
                placement: Json = found
                return placement
        return None

    def waits(self, kind: str, name: str, reason: str | None = None, timeout: float = PATIENCE) -> Json:
        """Wait until a gang's Placement says Waiting (with that reason); the Placement."""
        return await_waiting(
            lambda: self.placement(kind, name),
            reason,
            timeout=timeout,
            message=lambda: f"{name} waits ({reason})\n{self.describe()}",
        )

    def planned(self, kind: str, name: str) -> None:
        """Wait until a workload's gang has its slots: whoever is submitted now comes after it."""
        eventually(
            lambda: ((self.placement(kind, name) or {}).get("spec") or {}).get("assignment"),
            message=lambda: f"{name} has its slots\n{self.describe()}",
        )

    def phase(self, kind: str, name: str) -> str:
        return self._status(kind, name).get("phase", "")

    def message(self, kind: str, name: str) -> str:
        return self._status(kind, name).get("message", "")

    def _status(self, kind: str, name: str) -> dict[str, str]:
        """The status of a workload's Placement; empty before it is written, which is after the slots."""
        found: dict[str, str] = (self.placement(kind, name) or {}).get("status") or {}
        return found

    def suspended(self, kind: str, name: str) -> bool:
        """Whether a workload is suspended, at the place that its kind has for that."""
        path = suspend_path(kind)
        return bool(path) and bool(at(self.get(kind, name), path))

    def suspend(self, kind: str, name: str, wanted: bool = True) -> None:
        """The user suspends a workload, or resumes it."""
        body: Any = wanted
        for part in reversed(suspend_path(kind).strip(".").split(".")):
            body = {part: body}
        self.client.patch(self.path(kind, name), body)

    def events(self, name: str) -> list[Json]:
        """The Events about a workload."""
        listed = self.client.items(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [event for event in listed if event["regarding"].get("name") == name]

    def complete(self) -> None:
        """Let every running member end well."""
        complete(self.client, self.namespace, self.members())

    def remove(self, pod: Json) -> None:
        """A pod is deleted."""
        self.client.delete(f"{self.path('Pod')}/{pod['metadata']['name']}", grace=0)

    @contextmanager
    def going(self, pod: Json) -> Iterator[None]:
        """A pod is deleted, and goes when the block ends: until then its controller sees that it is being deleted."""
        path = f"{self.path('Pod')}/{pod['metadata']['name']}"
        self.client.patch(path, {"metadata": {"finalizers": ["example.com/going"]}})
        self.remove(pod)
        try:
            yield
        finally:
            self.client.patch(path, {"metadata": {"finalizers": None}})

    def member(self, wanted: Seat) -> Json:
        """The member at a seat; an AssertionError while there is none."""
        found = next((pod for pod in self.members() if seat(pod) == wanted), None)
        assert found is not None, wanted
        return found

    def patched(self) -> list[str]:
        """The members that our service has written to: each costs a request."""
        return [
            pod["metadata"]["name"]
            for pod in self.members()
            if any(str(entry.get("manager", "")).startswith(OURS) for entry in pod["metadata"].get("managedFields", []))
        ]

    def describe(self) -> str:
        """Everything about this test's gangs, for a failed test."""
        lines = [f"placement: {placement['spec']} {placement.get('status')}" for placement in self.placements()]
        for kind in RESOURCES:
            try:
                objects = [] if kind == "Pod" else self.items(kind)
            except ClientError:
                continue
            for one in objects:
                told = {key: one["metadata"].get(key) for key in ("annotations", "ownerReferences")}
                path = suspend_path(kind)
                lines.append(f"{kind} {one['metadata']['name']}: {told} {path}={at(one, path) if path else None}")
                lines.append(f"  status {one.get('status')}")
        for pod in self.pods().values():
            metadata, spec = pod["metadata"], pod["spec"]
            lines.append(
                f"pod {metadata['name']}: {metadata.get('labels')} {metadata.get('annotations')} "
                f"node={spec.get('nodeName')} gates={spec.get('schedulingGates')} phase={pod['status'].get('phase')} "
                f"conditions={pod['status'].get('conditions')}"
            )
        for event in self.client.items(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"):
            regarding = event["regarding"]
            lines.append(f"event {regarding['kind']} {regarding['name']}: {event.get('reason')} {event.get('note')}")
        return "\n".join(lines)


def seat(pod: Json) -> Seat:
    """Pod set and rank of a pod, as it says itself."""
    metadata = pod["metadata"]
    rank = metadata.get("annotations", {}).get(names.RANK, metadata["name"])
    return metadata["labels"].get(names.POD_SET, ""), rank


def entry_of(kind: str) -> KindEntry:
    """The registry's entry of a kind."""
    version = RESOURCES[kind].rpartition("/")[0]
    found = built_in().entry_of({"apiVersion": version, "kind": KINDS.get(kind, kind)})
    assert found is not None, kind
    return found


def suspend_path(kind: str) -> str:
    """Where a kind is suspended: ".spec.suspend"; empty when it cannot be, or is no workload."""
    version = RESOURCES[kind].rpartition("/")[0]
    found = built_in().entry_of({"apiVersion": version, "kind": KINDS.get(kind, kind)})
    return str(found.suspend.path) if found is not None and found.suspend is not None else ""


def at(raw: Any, path: str) -> Any:
    """The value at a path; None when there is none."""
    for part in path.strip(".").split("."):
        raw = raw.get(part) if isinstance(raw, dict) else None
    return raw


def neighbours(gangs: Gangs, hosts: Mapping[Seat, str], order: list[str]) -> bool:
    """Whether within every pod set ascending ranks have ascending hosts."""
    ranked: dict[str, dict[int, int]] = {}
    for (pod_set, rank), host in hosts.items():
        if rank.isdigit():
            ranked.setdefault(pod_set, {})[int(rank)] = order.index(host)
    return all(
        [position for _, position in sorted(places.items())] == sorted(places.values()) for places in ranked.values()
    )


def told_right(gangs: Gangs) -> list[str]:
    """The members whose annotation `domain` is not where they are, with what it says; none is right."""
    wrong = []
    for pod in gangs.members():
        host = pod["spec"].get("nodeName")
        labels = gangs.client.get(f"{nodes.NODES}/{host}")["metadata"]["labels"]
        wanted = "/".join([*(labels[level] for level in LEVELS), host])
        said = pod["metadata"].get("annotations", {}).get(names.DOMAIN_PATH)
        if said != wanted:
            wrong.append(f"{pod['metadata']['name']}: {said}, not {wanted}")
    return wrong
