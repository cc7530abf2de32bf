"""What a change of one host costs: the gangs there are reconciled, and nothing is built that stays the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.objects import Node
from engine.api.pod import Pod
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.policy.model import parse_policy
from tests.support.cluster_records import gpu_nodes, job, placement, pod
from tests.support.gpu_hosts import gpus

FIRST, SECOND, EMPTY = "b0-r0-h0", "b0-r0-h1", "b0-r1-h0"


@pytest.fixture
def view() -> ClusterState:
    """A gang with slots on the first host, and one with a pod on the second where it has no slot."""
    stores = Stores()
    view = ClusterState(stores)
    stores.nodes.replace(gpu_nodes(1, 2, 2))
    slotted, strayed = job("slotted", count=2), job("strayed", count=1)
    stores.workloads.replace([slotted, strayed])
    stores.placements.replace([placement(slotted, {FIRST: 2}), placement(strayed, {EMPTY: 1})])
    stores.pods.replace([pod(strayed, 0, host=SECOND)])
    view.take_changes()
    return view


def change(view: ClusterState, host: str, **fields: object) -> Node:
    old = view.stores.nodes.get(host)
    assert old is not None
    new = replace(old, resource_version=str(int(old.resource_version) + 10_000_000), **fields)  # type: ignore[arg-type]
    view.stores.nodes.apply("MODIFIED", new)
    return new


@pytest.mark.parametrize(
    ("host", "gangs"), [(FIRST, {"uid-slotted"}), (SECOND, {"uid-strayed"}), (EMPTY, {"uid-strayed"})]
)
def test_a_change_of_a_node_concerns_the_gangs_there(view: ClusterState, host: str, gangs: set[str]) -> None:
    change(view, host, ready=False)
    changes = view.take_changes()
    assert (changes.gangs, changes.everything, changes.hosts, changes.capacity_freed) == (gangs, False, True, True)


def test_a_change_of_reported_devices_concerns_the_gangs_there(view: ClusterState) -> None:
    view.stores.devices.apply("ADDED", gpus(FIRST, sick=(1,)))
    changes = view.take_changes()
    assert (changes.gangs, changes.everything, changes.hosts) == ({"uid-slotted"}, False, True)


def test_a_heartbeat_concerns_nobody(view: ClusterState) -> None:
    change(view, FIRST)
    changes = view.take_changes()
    assert (changes.gangs, changes.everything, changes.hosts) == (set(), False, False)


def test_topologies_are_built_anew_for_labels_that_they_read_alone(view: ClusterState) -> None:
    """A label of another purpose costs nothing; with ten thousand nodes a new tree takes a tenth of a second."""
    before = view.topologies
    labels = change(view, FIRST, labels={**gpu_nodes(1, 1, 1)[0].labels, "example.com/driver": "570"}).labels
    view.refresh()
    assert view.topologies is before
    change(view, FIRST, labels={**labels, "cloud.provider.com/topology-rack": "b0-r7"})
    view.refresh()
    assert view.topologies["default"].pins[FIRST]["cloud.provider.com/topology-rack"] == "b0-r7"


def labelled(one: Pod, gang: str) -> Pod:
    return replace(one, spec=replace(one.spec, labels={**one.spec.labels, names.GANG: gang}))


def test_a_host_is_refreshed_for_every_pod_but_those_of_the_gang_that_asks(view: ClusterState) -> None:
    """When a gang starts again its own pods are most of the changes, and take nothing from its slots."""
    before = view.capacity.free(SECOND)
    for one in (pod(job("strange"), 0, host=SECOND), labelled(pod(job("slotted", count=2), 0, host=FIRST), "slotted")):
        view.stores.pods.apply("ADDED", one)
        view.refresh_host(FIRST, gang="slotted")
        assert view.capacity.free(SECOND) == before
    view.refresh_host(FIRST, gang="another")
    assert view.capacity.free(SECOND) != before


def test_a_host_is_refreshed_for_pods_of_the_gang_that_are_smaller_than_those_of_its_template_now(
    view: ClusterState,
) -> None:
    """The slot of one that has gone is larger than it was: its replacement may have no room on that host."""
    before = view.capacity.free(SECOND)
    smaller = labelled(pod(job("slotted", count=2), 0, host=FIRST), "slotted")
    for one in (pod(job("strange"), 0, host=SECOND), smaller):
        view.stores.pods.apply("ADDED", one)
    view.refresh_host(FIRST, gang="slotted", requests=smaller.spec.shape.requests)
    assert view.capacity.free(SECOND) == before
    larger = tuple((resource, 2 * amount) for resource, amount in smaller.spec.shape.requests)
    view.refresh_host(FIRST, gang="slotted", requests=larger)
    assert view.capacity.free(SECOND) != before


def test_a_host_is_refreshed_for_its_node_and_its_devices(view: ClusterState) -> None:
    """Those of another host stay where they are."""
    change(view, FIRST, ready=False)
    view.refresh_host(SECOND, gang="")
    known = view.capacity.node(FIRST)
    assert known is not None and known.ready
    view.refresh_host(FIRST, gang="")
    known = view.capacity.node(FIRST)
    assert known is not None and not known.ready
    view.stores.devices.apply("ADDED", gpus(FIRST, sick=(1,)))
    view.refresh_host(SECOND, gang="")
    assert not view.capacity.device_notes(FIRST)
    view.refresh_host(FIRST, gang="")
    assert view.capacity.device_notes(FIRST)


@pytest.mark.parametrize("before", ["0s", "15s"])
def test_a_longer_time_to_settle_counts_for_the_nodes_that_are_there(before: str) -> None:
    """A leader that starts under the new policy would not plan on this node either."""
    stores = Stores()
    view = ClusterState(stores, parse_policy(f"nodes: {{settle: {before}}}"))
    stores.nodes.replace([replace(one, settled_at=970.0) for one in gpu_nodes(1, 1, 1)])
    view.refresh()
    assert view.unsettled(1_000.0) == []
    view.set_policy(parse_policy("nodes: {settle: 60s}"))
    assert view.unsettled(1_000.0) == [FIRST]
    assert view.unsettled(1_031.0) == []
