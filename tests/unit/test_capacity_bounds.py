"""The ledger's size: what is in the cluster now, not all that ever was."""

from __future__ import annotations

from engine.capacity import Capacity
from engine.topology import Level, build_topology
from tests.support.cluster_records import job, node, pod, shape


def test_rows_of_nodes_that_are_gone_are_used_again() -> None:
    """An autoscaler never repeats a name: after months there are as many rows as nodes at a time."""
    ledger = Capacity()
    gang = job(count=1)
    for serial in range(200):
        name = f"node-{serial}"
        ledger.set_node(name, node(name))
        ledger.set_pod(("default", f"p{serial}"), pod(gang, 0, host=name))
        ledger.reserve(f"gang-{serial}", {name: 1}, (("cpu", 1), ("pods", 1)))
        ledger.set_node(name, None)
        assert ledger.free(name)["pods"] == -2
        ledger.set_pod(("default", f"p{serial}"), None)
        ledger.reserve(f"gang-{serial}", {}, ())
        assert ledger.free(name) == {}
    assert len(ledger._nodes) == 1
    assert len(ledger._eligibility._changed) <= 4 * 64
    assert not ledger._fresh


def test_a_used_row_belongs_to_its_new_node_alone() -> None:
    """Nothing of the old node is left in it: neither amounts nor verdicts."""
    ledger = Capacity()
    ledger.set_node("old", node("old", labels={"rack": "r0"}, unschedulable=True))
    small = shape(gpu=1)
    levels = (Level("rack", ("rack",)),)
    before = build_topology("t", levels, [node("old", labels={"rack": "r0"})])
    assert ledger.count(small, before).free.tolist() == [0]
    ledger.set_node("old", None)
    ledger.set_node("new", node("new", labels={"rack": "r0"}))
    after = build_topology("t", levels, [node("new", labels={"rack": "r0"})])
    assert ledger.count(small, after).free.tolist() == [8]
    assert ledger.count(small, before).free.tolist() == [0]


def test_questions_about_unknown_resources_leave_no_trace() -> None:
    """Whoever asks for a thousand invented devices gets none, and costs nothing."""
    ledger = Capacity()
    ledger.set_node("a", node("a", labels={"rack": "r0"}))
    topology = build_topology("t", (Level("rack", ("rack",)),), [node("a", labels={"rack": "r0"})])
    known = len(ledger._amounts.columns)
    for serial in range(100):
        asked = shape(**{f"example.com/device-{serial}": 1})
        assert ledger.count(asked, topology).free.tolist() == [0]
        assert ledger.largest(f"example.com/device-{serial}", topology) == 0
        assert not ledger.overbooked("a", asked.requests)
        assert not ledger.overbooked(f"unknown-{serial}", asked.requests)
    assert len(ledger._amounts.columns) == known
    assert len(ledger._nodes) == 1
