"""The planner against the rules of other schedulers, as the placement benchmark re-states them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement
from bench.placement.rules import RULES
from engine.planner.gang import GangPlan, GangPlanRequest, PodSetPlanRequest
from engine.planner.plan import Plan, PlanRequest, plan
from engine.planner.plan_gang import plan_gang
from engine.planner.tree import Tree, build_tree

PEERS = sorted(set(RULES) - {"topogate"})


@st.composite
def states(draw: st.DrawFn) -> Cluster:
    """Ragged racks of hosts with 8 GPUs, partly in use."""
    racks = draw(st.lists(st.integers(1, 6), min_size=1, max_size=8))
    blocks = [draw(st.integers(0, 2)) for _ in racks]
    paths = [(f"b{blocks[r]}", f"r{r}", f"n{r}-{h}") for r, hosts in enumerate(racks) for h in range(hosts)]
    tree = build_tree(("block", "rack", "host"), paths)
    cluster = Cluster(tree, np.full(len(paths), 8, dtype=np.int64))
    cluster.free -= np.array([draw(st.sampled_from([0, 0, 1, 2, 3, 4, 5, 7, 8])) for _ in paths], dtype=np.int64)
    return cluster


def _used(tree: Tree, placement: Placement) -> tuple[int, ...]:
    return tuple(len({int(domains[host]) for host, _ in placement}) for domains in tree.domains)


@pytest.mark.parametrize("peer", PEERS)
@given(
    cluster=states(),
    pods=st.integers(1, 40),
    gpus=st.sampled_from([1, 2, 4, 8]),
    level=st.integers(0, 2),
    required=st.booleans(),
    steps=st.sampled_from([0, 200_000]),
)
@settings(max_examples=60, deadline=None)
def test_never_more_domains_than_a_peer(
    *, peer: str, cluster: Cluster, pods: int, gpus: int, level: int, required: bool, steps: int
) -> None:
    """Whatever a peer's rule places, the planner places in as few blocks, then racks, then hosts, searching or not."""
    job = Job(0, 0.0, 1.0, pods, gpus, level=level, required=required)
    theirs = RULES[peer](cluster, job) if cluster.fits(job) else None
    request = PlanRequest(pods, require=level if required else None, prefer=None if required else level, steps=steps)
    answer = plan(cluster.tree, cluster.slots(2, gpus), request, cluster.free)
    if theirs is not None:
        assert isinstance(answer, Plan)
        assert answer.domains_used <= _used(cluster.tree, theirs)


@given(
    cluster=states(),
    first=st.tuples(st.integers(1, 6), st.sampled_from([1, 2, 4, 8]), st.integers(0, 2)),
    second=st.tuples(st.integers(1, 6), st.sampled_from([1, 2, 4, 8]), st.integers(0, 2)),
)
@settings(max_examples=150, deadline=None)
def test_two_pod_sets_that_fit_one_after_the_other_fit_together(
    cluster: Cluster, first: tuple[int, int, int], second: tuple[int, int, int]
) -> None:
    """Where Kueue's rule finds room for one pod set and then for the other, the gang of both is placed."""
    gang = GangPlanRequest(
        tuple(PodSetPlanRequest(pods, (gpus,), require=level) for pods, gpus, level in (first, second))
    )
    answer = plan_gang(cluster.tree, cluster.free[:, None].copy(), gang)
    for pods, gpus, level in (first, second):
        job = Job(0, 0.0, 1.0, pods, gpus, level=level, required=True)
        placement = RULES["kueue"](cluster, job) if cluster.fits(job) else None
        if placement is None:
            return
        cluster.take(job, placement)
    assert isinstance(answer, GangPlan)
