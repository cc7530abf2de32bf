"""Which running gangs a waiting one would preempt, on a cluster of two racks with two hosts each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from engine.api import names
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.gang.gang import Gang
from engine.gang.key import key_of
from engine.policy.model import parse_policy
from engine.preemption.preempt import Preemption, preemption_for
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import schedule_gang
from tests.support.cluster_records import changed, gpu_nodes, job, placement, pod, spec

NOW = 10_000.0
HOSTS = ("b0-r0-h0", "b0-r0-h1", "b0-r1-h0", "b0-r1-h1")


def of_priority(workload: Workload, priority: int) -> Workload:
    return changed(workload, template=replace(workload.template, priority=priority))


class Cluster:
    """Running gangs by name, and one that waits."""

    def __init__(self) -> None:
        self.stores = Stores()
        self.view = ClusterState(self.stores)
        self.stores.nodes.replace(gpu_nodes(1, 2, 2))

    def runs(
        self,
        name: str,
        hosts: Mapping[str, int],
        priority: int = 0,
        *,
        created: float = 1000.0,
        annotations: Mapping[str, str] | None = None,
    ) -> Workload:
        """Add a running gang; host -> pods of 8 GPUs."""
        workload = of_priority(job(name, count=sum(hosts.values()), require=None), priority)
        workload = replace(workload, annotations={names.UNCONSTRAINED: "true", **(annotations or {})})
        self.stores.workloads.apply("ADDED", workload)
        plan = placement(workload, dict(hosts), created=created, priority=priority)
        self.stores.placements.apply("ADDED", plan)
        rank = 0
        for host, count in hosts.items():
            for _ in range(count):
                self.stores.pods.apply("ADDED", pod(workload, rank, host=host, created=created))
                rank += 1
        self.view.refresh()
        return workload

    def waiting(self, count: int, priority: int, require: str | None = "rack") -> Gang:
        workload = of_priority(job("urgent", count=count, require=require, held=True), priority)
        self.stores.workloads.apply("ADDED", workload)
        self.view.refresh()
        gang = self.view.gangs.get(key_of(workload))
        assert gang is not None
        return gang

    def preemption(self, gang: Gang, *, others: bool = False, protect: str = "{}") -> Preemption | None:
        policy = parse_policy(f"preemption: {{mode: lower-priority, protect: {protect}}}")
        self.view.set_policy(policy)
        with self.view.lock:
            return preemption_for(
                self.view,
                gang,
                plan=lambda: schedule_gang(self.view, gang),
                others=others,
                protect=policy.preemption.protect,
                own_namespace=names.NAMESPACE,
                now=NOW,
            )

    def victims(self, gang: Gang, *, others: bool = False, protect: str = "{}") -> list[str] | None:
        found = self.preemption(gang, others=others, protect=protect)
        return None if found is None else [one.name for one in found.victims]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_the_one_gang_that_frees_the_rack_is_the_victim(cluster: Cluster) -> None:
    """Another one of its priority stays, because without it alone the waiting gang does not fit."""
    cluster.runs("left", {HOSTS[0]: 1, HOSTS[1]: 1})
    cluster.runs("right-1", {HOSTS[2]: 1})
    cluster.runs("right-2", {HOSTS[3]: 1})
    gang = cluster.waiting(2, priority=10)
    assert not isinstance(schedule_gang(cluster.view, gang), Placed)
    found = cluster.preemption(gang)
    assert found is not None
    assert [one.name for one in found.victims] == ["left"]
    assert found.proven
    assert sorted(slot.host for slot in found.placed.pod_sets[0].slots) == [HOSTS[0], HOSTS[1]]


def test_gangs_of_a_lower_priority_are_preempted_even_if_they_are_more(cluster: Cluster) -> None:
    """The highest priority of the victims counts before their number."""
    cluster.runs("left", {HOSTS[0]: 1, HOSTS[1]: 1}, priority=5)
    cluster.runs("right-1", {HOSTS[2]: 1})
    cluster.runs("right-2", {HOSTS[3]: 1})
    assert cluster.victims(cluster.waiting(2, priority=10)) == ["right-1", "right-2"]


def test_the_gang_that_has_run_for_a_shorter_time_is_the_victim(cluster: Cluster) -> None:
    """Among equally many pods of one priority the least running time is lost."""
    cluster.runs("left", {HOSTS[0]: 1, HOSTS[1]: 1}, created=1000.0)
    cluster.runs("right", {HOSTS[2]: 1, HOSTS[3]: 1}, created=2000.0)
    assert cluster.victims(cluster.waiting(2, priority=10)) == ["right"]


@pytest.mark.parametrize("priority", [0, -1])
def test_gangs_of_the_same_or_a_higher_priority_are_never_preempted(cluster: Cluster, priority: int) -> None:
    """Nor is one of them together with those below it."""
    cluster.runs("left", {HOSTS[0]: 1, HOSTS[1]: 1})
    cluster.runs("right-1", {HOSTS[2]: 1}, priority=-2)
    cluster.runs("right-2", {HOSTS[3]: 1})
    assert cluster.victims(cluster.waiting(2, priority=priority)) is None


def test_a_free_host_spares_a_gang(cluster: Cluster) -> None:
    """Only as many end as are needed beside what is free."""
    cluster.runs("left-1", {HOSTS[0]: 1})
    cluster.runs("left-2", {HOSTS[1]: 1})
    cluster.runs("right", {HOSTS[2]: 1})
    assert cluster.victims(cluster.waiting(2, priority=10)) == ["right"]


def test_slots_of_pods_to_come_are_freed_too(cluster: Cluster) -> None:
    """A gang that is placed, and has no pod yet, is preempted as a whole."""
    workload = job("left", count=4, require=None)
    workload = replace(workload, annotations={names.UNCONSTRAINED: "true"})
    cluster.stores.workloads.apply("ADDED", workload)
    cluster.stores.placements.apply("ADDED", placement(workload, dict.fromkeys(HOSTS, 1)))
    cluster.view.refresh()
    assert cluster.victims(cluster.waiting(2, priority=10)) == ["left"]


def test_a_gang_that_is_known_by_its_placement_and_pods_alone_is_preempted(cluster: Cluster) -> None:
    """As in a file that has no workloads: its priority is that of the Placement."""
    for place, name in enumerate(("left", "right")):
        workload = of_priority(job(name, count=2, require=None), 3)
        hosts = HOSTS[2 * place : 2 * place + 2]
        plan = placement(workload, dict.fromkeys(hosts, 1), priority=place)
        cluster.stores.placements.apply("ADDED", plan)
        for rank, host in enumerate(hosts):
            made = pod(workload, rank, host=host)
            labels = {**made.spec.labels, names.GANG: plan.name}
            cluster.stores.pods.apply("ADDED", replace(made, spec=replace(made.spec, labels=labels)))
    assert cluster.victims(cluster.waiting(2, priority=2)) == ["left"]


def unmanaged(name: str, host: str, **more: object) -> Pod:
    made = pod(job(name), None, name=f"{name}-{host}", host=host, created=1000.0)
    return replace(made, spec=spec(shape=made.spec.shape, node_name=host, **more), owner=replace(made.owner, uid=name))  # type: ignore[type-var, arg-type]


def test_unmanaged_pods_are_preempted_only_where_that_is_allowed(cluster: Cluster) -> None:
    """All pods of an owner together, by their priority; those that are created again on the host never."""
    for host in HOSTS[:2]:
        cluster.stores.pods.apply("ADDED", unmanaged("service", host))
    for host in HOSTS[2:]:
        cluster.stores.pods.apply("ADDED", unmanaged("urgent-service", host, priority=20))
    cluster.view.refresh()
    gang = cluster.waiting(2, priority=10)
    assert cluster.victims(gang) is None
    assert cluster.victims(gang, others=True) == ["service"]


@pytest.mark.parametrize(("running_for", "victims"), [("2h", ["old"]), ("9000s", ["young"]), ("1000s", None)])
def test_a_gang_that_has_run_for_as_long_as_the_policy_protects_is_spared(
    cluster: Cluster, running_for: str, victims: list[str] | None
) -> None:
    """The old one, with fewer pods, is the better victim until it has run for 9,000 s, to the second."""
    cluster.runs("old", {HOSTS[0]: 1}, created=NOW - 9000 + (running_for == "2h") * 5000)
    cluster.runs("young", {HOSTS[2]: 1, HOSTS[3]: 1}, created=NOW - 1000)
    cluster.runs("other", {HOSTS[1]: 1}, priority=20)
    assert cluster.victims(cluster.waiting(1, priority=10), protect=f"{{runningFor: {running_for}}}") == victims


@pytest.mark.parametrize(("patterns", "victims"), [("[prod-*]", ["left"]), ("[de*t]", None), ("[other]", ["left"])])
def test_gangs_of_protected_namespaces_are_spared(cluster: Cluster, patterns: str, victims: list[str] | None) -> None:
    """By the patterns of the policy; the gangs are in `default`."""
    cluster.runs("left", dict.fromkeys(HOSTS, 1))
    assert cluster.victims(cluster.waiting(2, priority=10), protect=f"{{namespaces: {patterns}}}") == victims


def test_unmanaged_pods_of_protected_namespaces_are_spared(cluster: Cluster) -> None:
    """As gangs are; so are those that have run for long."""
    for host in HOSTS:
        cluster.stores.pods.apply("ADDED", unmanaged("service", host))
    cluster.view.refresh()
    gang = cluster.waiting(2, priority=10)
    assert cluster.victims(gang, others=True) == ["service"]
    assert cluster.victims(gang, others=True, protect="{namespaces: [default]}") is None
    assert cluster.victims(gang, others=True, protect="{runningFor: 1m}") is None


@pytest.mark.parametrize("value", ["true", "false"])
@pytest.mark.parametrize("annotated", ["true", "false"])
def test_a_gang_opts_out_only_where_the_policy_lets_it(cluster: Cluster, value: str, annotated: str) -> None:
    """`topogate.dev/preemptible: "false"` spares the better victim with `annotated: true` alone."""
    cluster.runs("left", {HOSTS[0]: 1, HOSTS[1]: 1})
    cluster.runs("right", {HOSTS[2]: 1}, annotations={names.PREEMPTIBLE: value})
    cluster.runs("other", {HOSTS[3]: 1}, priority=20)
    spared = (value, annotated) == ("false", "true")
    victims = cluster.victims(cluster.waiting(1, priority=10), protect=f"{{annotated: {annotated}}}")
    assert victims == (["left"] if spared else ["right"])


def test_nothing_has_changed_after_the_question(cluster: Cluster) -> None:
    """Free capacity, slots and reservations are those of before; a second answer is the same."""
    cluster.runs("left", {HOSTS[0]: 1, HOSTS[1]: 1})
    cluster.runs("right", {HOSTS[2]: 1})
    gang = cluster.waiting(2, priority=10)
    before = {host: cluster.view.capacity.free(host) for host in HOSTS}, list(cluster.view.capacity.reservations())
    first = cluster.preemption(gang)
    assert before == (
        {host: cluster.view.capacity.free(host) for host in HOSTS},
        list(cluster.view.capacity.reservations()),
    )
    assert cluster.preemption(gang) == first
    assert not isinstance(schedule_gang(cluster.view, gang), Placed)
