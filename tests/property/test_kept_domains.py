"""Which domains gangs keep, and which hosts they use: brought up to date by changes, the same as counted anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.placement import Assignment, Placement, PodSetPlan, Separation, Slot
from engine.api.workload import GangKey, ReservationKey
from engine.cache.pods import GangHosts
from engine.cache.reservations import KeptDomains, ranges_of, spread_name_of
from engine.policy.model import default_policy
from engine.topology.topology import topologies_of
from tests.support.cluster_records import gpu_nodes, job, placement

NODES = gpu_nodes(2, 2, 2)
(TOPOLOGY,) = topologies_of(default_policy().topologies, NODES, objects={}).values()
TREE = TOPOLOGY.tree
KEYS = [GangKey(ReservationKey(f"uid-{number}")) for number in range(4)]
GROUP = ("default", "group", "web")

separations = st.sampled_from([Separation("rack"), Separation(None, "rack", "web"), Separation("rack", "host", "web")])


def plan(hosts: list[str], separation: Separation) -> Placement:
    slots = tuple(Slot(TREE.paths[TREE.index[host]], 1, None) for host in hosts)
    assignment = Assignment(1, (PodSetPlan("main", slots),))
    return replace(placement(job(), {}), separation=separation, assignment=assignment)


plans = st.lists(
    st.builds(plan, st.lists(st.sampled_from(TREE.hosts), min_size=1, max_size=3), separations), max_size=2
)
steps = st.tuples(st.sampled_from(KEYS), plans, st.frozensets(st.sampled_from(KEYS), max_size=2))


def kept(placement: Placement) -> tuple[tuple[int, int], ...]:
    return ranges_of(placement, TREE, 1)


@given(st.lists(steps, min_size=1, max_size=12))
@settings(max_examples=200, deadline=None)
def test_kept_domains_are_those_of_the_plans_that_there_are(
    history: list[tuple[GangKey, list[Placement], frozenset[GangKey]]],
) -> None:
    """After every change, for exclusive gangs and for a group, with and without some of them."""
    index, current = KeptDomains(), dict[GangKey, list[Placement]]()
    for key, found, besides in history:
        index.set_plans(key, tuple(found))
        current[key] = found
        for name in (None, GROUP):
            keepers = [
                one
                for other, known in current.items()
                for one in known
                if other not in besides
                and one.separation is not None
                and (one.separation.exclusive is not None if name is None else spread_name_of(one) == name)
            ]
            wanted = {place for one in keepers for first, end in kept(one) for place in range(first, end)}
            hosts = index.hosts(name, (1,), besides=besides, size=len(TREE.hosts), stamp=TREE, ranges=kept)
            assert {place for place, there in enumerate([] if hosts is None else hosts.tolist()) if there} == wanted


@given(
    st.lists(
        st.tuples(
            st.sampled_from(KEYS), st.sampled_from(TREE.hosts), st.booleans(), st.frozensets(st.sampled_from(KEYS))
        ),
        max_size=30,
    )
)
@settings(max_examples=200, deadline=None)
def test_the_gangs_on_a_host_are_those_with_a_pod_or_a_slot_there(
    history: list[tuple[GangKey, str, bool, frozenset[GangKey]]],
) -> None:
    """However they come and go; the own gangs do not count as others."""
    index, current = GangHosts(), list[tuple[GangKey, str]]()
    for key, host, comes, own in history:
        if comes:
            current.append((key, host))
            index.change(key, host, 1)
        elif (key, host) in current:
            current.remove((key, host))
            index.change(key, host, -1)
        for level in range(len(TREE.levels)):
            wanted = {TREE.domain_of(level, TREE.index[there]) for gang, there in current if gang not in own}
            assert set(np.flatnonzero(index.others(own, TOPOLOGY, level)).tolist()) == wanted
    for key, host in current:
        index.change(key, host, -1)
    assert len(index) == 0
