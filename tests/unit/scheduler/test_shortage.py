"""The numbers of a gang that does not fit: they add up by hand, and each change that is proposed lets it fit."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from engine.api import names
from engine.api.objects import Node, Taint
from engine.api.pod import Toleration
from engine.api.workload import Workload
from engine.scheduler.outcome import Outcome, Placed, Shortage
from tests.support.cluster_records import gpu_nodes, job
from tests.unit.scheduler.test_plan import plan_on

HOSTS = [one.name for one in gpu_nodes(2, 2, 3)]


def shortage_of(outcome: Outcome) -> Shortage:
    assert not isinstance(outcome, Placed)
    assert outcome.shortage is not None
    return outcome.shortage


def tolerant(workload: Workload, key: str) -> Workload:
    (main,) = workload.pod_sets
    shape = replace(main.template.shape, tolerations=(Toleration(key, "Exists", "", ""),))
    return replace(workload, pod_sets=(replace(main, template=replace(main.template, shape=shape)),))


def nodes_with(tainted: frozenset[str]) -> list[Node]:
    return [
        replace(one, taints=(Taint("gpu", "", "NoSchedule"),)) if one.name in tainted else one
        for one in gpu_nodes(2, 2, 3)
    ]


@given(
    taken=st.frozensets(st.sampled_from(HOSTS)),
    tainted=st.frozensets(st.sampled_from(HOSTS), max_size=4),
    count=st.integers(1, 13),
    level=st.sampled_from(["block", "rack", "host", None]),
)
def test_the_numbers_are_true_and_every_proposal_lets_the_gang_fit(
    taken: frozenset[str], tainted: frozenset[str], count: int, level: str | None
) -> None:
    """Pods take a host each."""
    nodes, asks = nodes_with(tainted), {names.REQUIRE: level} if level else {names.UNCONSTRAINED: "true"}

    def plan(pods: int = count, asks: dict[str, str] = asks, tolerated: str | None = None) -> Outcome:
        wanted = replace(job(count=pods), annotations=asks)
        wanted = tolerant(wanted, tolerated) if tolerated is not None else wanted
        return plan_on(nodes, wanted, placed=dict.fromkeys(sorted(taken), 1))

    outcome = plan()
    if isinstance(outcome, Placed):
        return
    short = shortage_of(outcome)
    free = [host for host in HOSTS if host not in taken | tainted]

    def most(depth: int) -> int:
        domains = ["-".join(host.split("-")[:depth]) for host in free]
        return max(map(domains.count, domains), default=0)

    known = {one.level: one.pods for one in short.best}
    assert known == {one: most(depth) for depth, one in enumerate(("block", "rack", "host"), 1) if most(depth)}
    assert short.needed == count
    assert short.have == (len(free) if level is None else known.get(level, 0))
    assert all(one.path[-1].count("-") == len(one.path) - 1 for one in short.best)
    if (change := short.proposal) is None:
        return
    if change.level is not None:
        assert isinstance(plan(asks={names.REQUIRE: change.level}), Placed)
    if change.unconstrained:
        assert isinstance(plan(asks={names.UNCONSTRAINED: "true"}), Placed)
    if change.toleration is not None:
        assert isinstance(plan(tolerated=change.toleration), Placed)
    if change.pods is not None:
        assert isinstance(plan(pods=change.pods), Placed)


def test_fewer_pods_than_its_minimum_are_not_proposed() -> None:
    """A workload with fewer pods than its own minimum is refused."""
    wanted = replace(job(count=4), annotations={names.REQUIRE: "rack", names.MIN_AVAILABLE: "3"})
    short = shortage_of(plan_on(gpu_nodes(1, 1, 3), wanted, placed={"b0-r0-h0": 1}))
    assert (short.needed, short.have, short.proposal) == (3, 2, None)
