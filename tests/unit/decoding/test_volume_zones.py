"""Which nodes reach a volume by its zone labels and its node affinity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.decoding import objects
from engine.resources.shape import exclusion
from tests.support.cluster_records import job, node

Json = dict[str, Any]

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
OLD_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
OLD_REGION: Final = "failure-domain.beta.kubernetes.io/region"
SUCCESSOR: Final = {OLD_ZONE: ZONE, OLD_REGION: REGION}


def reaches(labels: Json, of_node: dict[str, str], *terms: Json) -> bool:
    """Whether a node is in reach of a volume with these labels; `terms`: those of its node affinity, if any."""
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}}} if terms else {}
    volume = objects.persistent_volume({"metadata": {"name": "v", "labels": labels}, "spec": affinity})
    if volume.terms is None:
        return True
    shape = replace(job().template.shape, volumes=(volume.terms,))
    return exclusion(shape, node("h", labels=of_node)) is None


def scheduler_lets_pass(labels: Json, of_node: dict[str, str]) -> bool:
    """The rule of kube-scheduler's VolumeZone, node by node."""
    if not any(key in of_node for key in (ZONE, REGION, OLD_ZONE, OLD_REGION)):
        return True
    for key, value in labels.items():
        if key not in (ZONE, REGION, OLD_ZONE, OLD_REGION):
            continue
        zones = value.split("__")
        if "" in zones:
            continue
        if of_node.get(key, of_node.get(SUCCESSOR.get(key, key))) not in zones:
            return False
    return True


_KEYS: Final = st.sampled_from([ZONE, REGION, OLD_ZONE, OLD_REGION, "rack"])
_OF_VOLUMES: Final = st.dictionaries(_KEYS, st.sampled_from(["", "a", "b", "a__b", "a__", "b__b"]))
_OF_NODES: Final = st.dictionaries(_KEYS, st.sampled_from(["a", "b", "c"]))


@given(labels=_OF_VOLUMES, of_node=_OF_NODES)
def test_zone_labels_count_as_for_the_scheduler(labels: Json, of_node: dict[str, str]) -> None:
    assert reaches(labels, of_node) == scheduler_lets_pass(labels, of_node)


@given(labels=_OF_VOLUMES, of_node=_OF_NODES, racks=st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=3))
def test_a_node_must_match_the_affinity_as_well(labels: Json, of_node: dict[str, str], racks: list[str | None]) -> None:
    """`None` is a term without expressions, which matches no node."""
    terms = [
        {} if rack is None else {"matchExpressions": [{"key": "rack", "operator": "In", "values": [rack]}]}
        for rack in racks
    ]
    wanted = of_node.get("rack", "none") in racks and scheduler_lets_pass(labels, of_node)
    assert reaches(labels, of_node, *terms) == wanted


def test_fields_of_a_volume_are_not_compared() -> None:
    """The scheduler shows the volume's terms a node without a name: those of fields match it, an empty one does not."""
    other = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}
    in_rack = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["a"]}]}
    assert reaches({}, {}, other)
    assert reaches({}, {}, in_rack, other)
    assert reaches({ZONE: "a"}, {ZONE: "a"}, other)
    assert not reaches({ZONE: "a"}, {ZONE: "b"}, other)
    assert reaches({}, {"rack": "a"}, {**in_rack, **other})
    assert not reaches({}, {"rack": "b"}, {**in_rack, **other})
    assert not reaches({}, {"rack": "a"}, {})


@pytest.mark.parametrize("labels", [{}, {"rack": "a"}, {ZONE: ""}, {ZONE: None}, None])
def test_a_volume_without_a_zone_keeps_its_terms_as_they_are(labels: Any) -> None:
    bare = objects.persistent_volume({"metadata": {"name": "v", "labels": labels}})
    assert bare.terms is None
