"""What one reconcile asks about the hosts of a gang."""

from __future__ import annotations

from dataclasses import replace

from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.gang.gang import Gang
from engine.lifecycle.host_health import GONE, HostHealth, in_the_way, on_gone_node
from tests.support.cluster_records import gpu_nodes, job, placement, pod

GANG = job("train", count=2)
NOW = 1_800_000_000.0
FIRST, SECOND = "b0-r0-h0", "b0-r0-h1"


def health(view: ClusterState) -> HostHealth:
    return HostHealth(gang(view), view.capacity, view.topologies, now=NOW)


def gang(view: ClusterState) -> Gang:
    view.refresh()
    found = view.gangs.get(GANG.uid)
    assert found is not None
    return found


def placed() -> ClusterState:
    """A gang on two hosts of three; its first pod is bound."""
    stores = Stores()
    view = ClusterState(stores)
    stores.nodes.replace(gpu_nodes(1, 1, 3))
    stores.workloads.replace([GANG])
    stores.placements.replace([placement(GANG, {FIRST: 1, SECOND: 1})])
    stores.pods.replace([pod(GANG, 0, host=FIRST)])
    view.refresh()
    return view


def test_a_node_that_is_not_ready_is_down_since_it_was() -> None:
    """A node that does not exist is gone, which no time-out ends."""
    view = placed()
    node = view.stores.nodes.get(FIRST)
    assert node is not None
    view.stores.nodes.apply("MODIFIED", replace(node, ready=False, settled_at=NOW - 40.0, resource_version="9999999"))
    assert health(view).down(FIRST) == 40.0
    assert health(view).down(SECOND) is None
    assert health(view).down("no-such-node") == GONE


def test_a_live_pod_on_a_node_that_is_gone_is_found() -> None:
    """Not one that is being deleted."""
    view = placed()
    assert not on_gone_node(gang(view), health(view))
    node = view.stores.nodes.get(FIRST)
    assert node is not None
    view.stores.nodes.apply("DELETED", node)
    assert on_gone_node(gang(view), health(view))
    view.stores.pods.replace([replace(pod(GANG, 0, host=FIRST), deleting=True)])
    assert not on_gone_node(gang(view), health(view))


def test_what_is_in_the_way_on_a_host_is_named() -> None:
    """Others took its room, or it takes no pods."""
    view = placed()
    somebody = pod(job("somebody"), 0, host=SECOND, name="somebody-0")
    view.stores.pods.apply("ADDED", somebody)
    assert health(view).overcommitted(SECOND)
    assert in_the_way(SECOND, health(view)) == (
        "ReservedByOthers",
        f"capacity reserved on {SECOND} was taken by other pods",
    )
    node = view.stores.nodes.get(SECOND)
    assert node is not None
    view.stores.nodes.apply("MODIFIED", replace(node, unschedulable=True, resource_version="9999999"))
    assert in_the_way(SECOND, health(view)) == ("NodeLost", f"{SECOND} does not accept pods of the gang")


def test_without_devices_there_are_no_others_to_give() -> None:
    """Nothing is to be changed in the assignment."""
    assert health(placed()).other_devices() is None
