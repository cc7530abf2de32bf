"""A live reading of the cluster with the caller's own rights: the service's state, and what may not be read."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from local.controlplane import ControlPlane
from tests.support.callers import caller, rule
from tests.support.eventually import eventually
from tests.support.gangs import Namespace, require
from webhook.snapshot.connection import connect_as_caller
from webhook.snapshot.live import read_cluster
from webhook.snapshot.snapshot import Snapshot


def read(kubeconfig: Path) -> Snapshot:
    one = connect_as_caller(kubeconfig=str(kubeconfig))
    return read_cluster(one.api, namespace=one.namespace)


def test_an_admins_reading_is_the_state_that_the_leader_plans_on(gangs: Namespace, control_plane: ControlPlane) -> None:
    """Hosts, used GPUs, Placements, the policy in force, and the deadline of what runs."""
    gangs.fleet.grid("1x2x2")
    gangs.submit("runs", pods=2, annotations=require("rack"), spec={"activeDeadlineSeconds": 3600})
    hosts = gangs.all_bound("runs", 2)
    gangs.submit("waits", pods=3, annotations=require("rack"))
    gangs.waits("waits")

    def look() -> Snapshot | None:
        snapshot = read(control_plane.kubeconfig)
        free = [snapshot.view.capacity.free(host).get("nvidia.com/gpu") for host in hosts.values()]
        return snapshot if free == [0, 0] else None

    snapshot = eventually(look, message="the pods are in the reading")
    assert snapshot.unread == ()
    assert snapshot.capacity_known
    assert [level.name for level in snapshot.view.topologies["default"].levels] == ["block", "rack", "host"]
    every = snapshot.view.stores.placements.values()
    placements = {one.workload.name: one for one in every if one.namespace == gangs.name}
    assert placements.keys() == {"runs", "waits"}
    assert placements["waits"].assignment is None
    job = gangs.job("runs")
    started = datetime.fromisoformat(job["status"]["startTime"]).timestamp()
    assert snapshot.ends[job["metadata"]["uid"]] == started + 3600


def test_a_tenant_reads_its_own_namespace_and_is_told_the_rest(
    gangs: Namespace, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """With real RBAC: nothing of another namespace, no error, every missing right in words."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("mine", pods=2, annotations=require("rack"))
    gangs.all_bound("mine", 2)
    rights = [rule("pods"), rule("jobs", group="batch"), rule("placements", group="topogate.dev")]
    kubeconfig = caller(control_plane, tmp_path, namespace=gangs.name, in_namespace=rights)
    snapshot = read(kubeconfig)
    told = [one.text for one in snapshot.unread]
    assert f"pods of namespaces other than {gangs.name} cannot be read: free capacity is not known" in told
    assert "nodes cannot be read: topologies and free capacity are not known" in told
    assert not snapshot.capacity_known
    assert {pod.namespace for pod in snapshot.view.stores.pods.values()} == {gangs.name}
    assert [one.workload.name for one in snapshot.view.stores.placements.values()] == ["mine"]


def test_a_caller_without_rights_gets_no_objects_and_no_error(
    gangs: Namespace, control_plane: ControlPlane, tmp_path: Path
) -> None:
    gangs.fleet.grid("1x1x1")
    snapshot = read(caller(control_plane, tmp_path, namespace=gangs.name))
    assert {"nodes", "pods", "placements", "jobs"} <= {one.collection for one in snapshot.unread}
    assert all(one.except_in is None for one in snapshot.unread)
    assert not len(snapshot.view.stores.pods)
