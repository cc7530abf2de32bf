"""What people read about requested nodes."""

from __future__ import annotations

from dataclasses import replace

from engine.autoscaling.attempts import last_request
from engine.autoscaling.text import new_nodes_text, request_text
from engine.topology.levels import presets
from engine.topology.topology import build_topology
from tests.support.cluster_records import gpu_nodes
from tests.support.golden import golden
from tests.support.provisioning import DIGEST, START, answered, asked, rules

TWO = rules("{className: first, fallbacks: [{className: second}]}")
CASES: dict[str, dict[str, bool]] = {
    "asked": {},
    "accepted": {"Accepted": True},
    "accepted, nothing found yet": {"Accepted": True, "Provisioned": False},
    "provisioned": {"Accepted": True, "Provisioned": True},
    "failed": {"Accepted": True, "Failed": True},
    "no longer booked": {"Provisioned": True, "BookingExpired": True},
    "revoked": {"Provisioned": True, "CapacityRevoked": True},
}


def test_what_became_of_a_request() -> None:
    """One sentence for each state; times are of the clock, so that a text does not change all the time."""
    texts = {}
    for case, conditions in CASES.items():
        request = answered(asked(TWO.classes[0]), START + 40, **conditions)
        last = last_request([request], DIGEST, TWO, now=START + 50)
        later = last_request([request], DIGEST, TWO, now=START + 55)
        assert last is not None and later is not None
        texts[case] = request_text(last)
        assert texts[case] == request_text(later)
    hostile = answered(asked(TWO.classes[1]), START, Failed=True)
    evil = replace(hostile.conditions["Failed"], message="\x1b[31m" + "x" * 5000)
    last = last_request([replace(hostile, conditions={"Failed": evil})], DIGEST, TWO, now=START)
    assert last is not None
    texts["hostile"] = request_text(last)
    assert len(texts["hostile"]) < 500
    golden("requested-nodes", texts)


def test_where_new_nodes_have_come_up() -> None:
    """By the level that the gang requires; those that have no place in the topology are told too. A node that was there
    before, and has become ready again, is not new.
    """
    nodes = [replace(node, created=START, settled_at=START) for node in gpu_nodes(1, 6, 1)]
    old, bare = replace(nodes[0], created=START - 1), replace(nodes[1], labels={})

    def told(*found: object, level: str | None = "rack", selector: dict[str, str] | None = None) -> str:
        new = [one for one in nodes if one in found] + [one for one in (old, bare) if one in found]
        topology = build_topology("default", presets()["demo"], new, node_selector=selector)
        return new_nodes_text(new, topology, level, since=START)

    texts = {
        "none": told(old),
        "one rack": told(nodes[0]),
        "two racks": told(nodes[0], nodes[1]),
        "many racks": told(*nodes),
        "no level": told(nodes[0], nodes[1], level=None),
        "by host": told(nodes[0], nodes[1], level="host"),
        "without labels": told(bare, nodes[2]),
        "of another pool": told(nodes[0], selector={"pool": "gpu"}),
    }
    golden("new-nodes", texts)
