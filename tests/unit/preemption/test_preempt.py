"""Which running gangs a waiting one would preempt, on a cluster of two racks with two hosts each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from engine.api import names
from engine.api.objects import Quota
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.gang.gang import Gang
from engine.gang.key import key_of
from engine.policy.making_room import Protect
from engine.policy.model import parse_policy
from engine.preemption.preempt import Preemption, preemption_for
from engine.preemption.preempt import in_group as in_one_group
from engine.preemption.victims import Victim, possible_victims
from engine.scheduler.outcome import Outcome, Placed, Waits
from engine.scheduler.schedule import schedule_gang
from tests.support.cluster_records import changed, gpu_nodes, job, placement, pod, shape, spec
from tests.support.pod_sets import pods_of, several

NOW = 10_000.0
HOSTS = ("b0-r0-h0", "b0-r0-h1", "b0-r1-h0", "b0-r1-h1")


def of_priority(workload: Workload, priority: int) -> Workload:
    return changed(workload, template=replace(workload.template, priority=priority))


SPARES_NOTHING = Protect()


def newer(one: Any) -> Any:
    """The same object, as written once more."""
    return replace(one, resource_version=job().resource_version)


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
        namespace: str = "default",
    ) -> Workload:
        """Add a running gang; host -> pods of 8 GPUs."""
        workload = of_priority(job(name, count=sum(hosts.values()), require=None, namespace=namespace), priority)
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
        return self.search(gang, others=others, protect=policy.preemption.protect)

    def search(
        self,
        gang: Gang,
        *,
        others: bool = False,
        protect: Protect = SPARES_NOTHING,
        before: Callable[[], None] = lambda: None,
    ) -> Preemption | None:
        """Search with a plan that does something before, as other threads do between two plans."""

        def plan() -> Outcome:
            before()
            return schedule_gang(self.view, gang)

        return preemption_for(
            self.view,
            gang,
            plan=plan,
            others=others,
            protect=protect,
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


@pytest.mark.parametrize(("template", "pods", "victims"), [(100, 1, ["left"]), (1, 100, None)])
def test_a_gang_with_pods_has_their_priority_whatever_its_template_says(
    cluster: Cluster, template: int, pods: int, victims: list[str] | None
) -> None:
    """A StatefulSet that replaces no pod by itself may name a class that no quota admits."""
    workload = cluster.runs("left", {HOSTS[0]: 1, HOSTS[1]: 1})
    cluster.runs("right", {HOSTS[2]: 1, HOSTS[3]: 1}, priority=50)
    cluster.stores.workloads.apply("MODIFIED", newer(of_priority(workload, template)))
    for made in cluster.stores.pods.values():
        if made.name.startswith("left"):
            cluster.stores.pods.apply("MODIFIED", newer(replace(made, spec=replace(made.spec, priority=pods))))
    assert cluster.victims(cluster.waiting(2, priority=10)) == victims


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


@pytest.mark.parametrize(
    ("modes", "victims"),
    [("mode: hold", None), ("namespaces: {modes: [{namespaces: [def*], mode: hold}]}", None),
     ("namespaces: {modes: [{namespaces: [other], mode: hold}]}", ["left"])],
)  # fmt: skip
def test_running_gangs_of_a_namespace_on_hold_go_on(cluster: Cluster, modes: str, victims: list[str] | None) -> None:
    """A gang that ends there could not start again before the hold ends."""
    cluster.runs("left", dict.fromkeys(HOSTS, 1))
    gang = cluster.waiting(2, priority=10)
    cluster.view.set_policy(parse_policy(f"preemption: {{mode: lower-priority}}\n{modes}"))
    with cluster.view.lock:
        found = preemption_for(
            cluster.view, gang, plan=partial(schedule_gang, cluster.view, gang, creatable=True), others=False,
            protect=SPARES_NOTHING, own_namespace=names.NAMESPACE, now=NOW,
        )  # fmt: skip
    assert (None if found is None else [one.name for one in found.victims]) == victims


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


def test_a_gang_that_has_not_started_is_the_cheapest(cluster: Cluster) -> None:
    """It loses no running time, however long ago it got its slots."""
    cluster.runs("young", {HOSTS[0]: 1, HOSTS[1]: 1}, created=NOW - 1)
    cluster.runs("placed", {HOSTS[2]: 1, HOSTS[3]: 1}, created=1000.0)
    for made in cluster.view.stores.pods.values():
        if "placed" in made.name:
            cluster.stores.pods.apply("DELETED", made)
    cluster.view.refresh()
    assert cluster.victims(cluster.waiting(2, priority=10)) == ["placed"]


def test_a_pod_of_a_gang_without_our_label_ends_with_its_gang_alone(cluster: Cluster) -> None:
    """It is no victim of its own: it would be taken away twice."""
    workload = cluster.runs("left", {HOSTS[0]: 1, HOSTS[1]: 1})
    for made in cluster.view.stores.pods.values():
        labels = {key: value for key, value in made.spec.labels.items() if key != names.MANAGED}
        cluster.stores.pods.apply("MODIFIED", newer(replace(made, spec=replace(made.spec, labels=labels))))
    cluster.view.refresh()
    assert len(cluster.view.gangs.pods_of(key_of(workload))) == 2
    assert [one.name for one in possible(cluster.view)] == ["left"]


def possible(view: ClusterState) -> list[Victim]:
    return list(possible_victims(view, others=True, protect=Protect(), own_namespace=names.NAMESPACE, now=NOW))


@pytest.mark.parametrize(("suspendable", "victims"), [(True, ["left"]), (False, None)])
def test_quota_that_victims_free_counts(cluster: Cluster, suspendable: bool, victims: list[str] | None) -> None:
    """A suspended Job has no pods; pods of what cannot be suspended are created again, and use the quota as before.

    The rack on the right is free: only the quota is missing.
    """
    workload = cluster.runs("left", {HOSTS[0]: 1, HOSTS[1]: 1})
    cluster.stores.workloads.apply("MODIFIED", newer(replace(workload, suspendable=suspendable)))
    hard, used = {"requests.nvidia.com/gpu": 24}, {"requests.nvidia.com/gpu": 16}
    cluster.stores.quotas.apply("ADDED", Quota("default", "gpus", hard, used, ()))
    gang = cluster.waiting(2, priority=10)
    outcome = schedule_gang(cluster.view, gang)
    assert isinstance(outcome, Waits)
    assert outcome.reason == "QuotaExceeded"
    assert cluster.victims(gang) == victims
    assert schedule_gang(cluster.view, gang) == outcome


def test_quota_of_another_namespace_is_of_no_use(cluster: Cluster) -> None:
    """Its gangs keep running."""
    workload = cluster.runs("left", {HOSTS[0]: 1, HOSTS[1]: 1})
    cluster.stores.workloads.apply("MODIFIED", newer(replace(workload, namespace="other")))
    for made in (*cluster.stores.pods.values(), *cluster.stores.placements.values()):
        store = cluster.stores.pods if isinstance(made, Pod) else cluster.stores.placements
        store.apply("DELETED", made)
        store.apply("ADDED", replace(made, namespace="other"))
    cluster.stores.quotas.apply(
        "ADDED", Quota("default", "gpus", {"requests.nvidia.com/gpu": 8}, {"requests.nvidia.com/gpu": 0}, ())
    )
    gang = cluster.waiting(2, priority=10)
    assert cluster.victims(gang) is None


def test_quota_that_only_another_start_of_a_gang_with_a_minimum_would_lack_needs_no_victim(cluster: Cluster) -> None:
    """Three of its four pods start: with one of the large ones they use 10 CPUs, with both of them 17."""
    for number, host in enumerate(HOSTS):
        cluster.runs(f"other-{number}", {host: 1}, namespace="other")
    large, small = (pods_of(name, 2, shape=shape(gpu=1, cpu=cpu)) for name, cpu in (("a", 8_000), ("b", 1_000)))
    sets = (replace(one, template=replace(one.template, priority=10)) for one in (large, small))
    workload = several(*sets, says={names.UNCONSTRAINED: "true", names.MIN_AVAILABLE: "3"}, held=True)
    cluster.stores.workloads.apply("ADDED", workload)
    hard, used = {"requests.cpu": 10_000}, {"requests.cpu": 0}
    cluster.stores.quotas.apply("ADDED", Quota("default", "cpus", hard, used, ()))
    cluster.view.refresh()
    gang = cluster.view.gangs.get(key_of(workload))
    assert gang is not None
    assert len(cluster.victims(gang) or ()) == 1


@pytest.mark.parametrize(("limit", "victims"), [(3, ["left"]), (4, None)])
def test_hosts_that_victims_free_count_for_the_limit_of_the_namespace(
    cluster: Cluster, limit: int, victims: list[str] | None
) -> None:
    """With a higher limit the gang fits beside them."""
    cluster.runs("left", {HOSTS[0]: 1, HOSTS[1]: 1})
    cluster.view.set_policy(
        parse_policy(f"namespaces: {{rules: [{{namespaces: [default], maxReservedHosts: {limit}}}]}}")
    )
    gang = cluster.waiting(2, priority=10)
    assert isinstance(schedule_gang(cluster.view, gang), Placed) == (victims is None)
    found = cluster.search(gang)
    assert ([one.name for one in found.victims] if victims and found is not None else None) == victims


def test_gangs_of_one_pod_group_end_together(cluster: Cluster) -> None:
    """They count as one gang; two gangs of fewer pods are none the better, but one is."""
    in_group(cluster, "a", {HOSTS[0]: 1})
    in_group(cluster, "b", {HOSTS[2]: 1})
    gang = cluster.waiting(1, priority=10)
    cluster.runs("small", {HOSTS[1]: 1})
    cluster.runs("other", {HOSTS[3]: 1}, created=2000.0)
    assert cluster.victims(gang) == ["other"]
    assert cluster.victims(cluster.waiting(4, priority=10, require="block")) == ["a", "b", "other", "small"]


def test_a_pod_group_with_a_workload_of_higher_priority_is_left_alone(cluster: Cluster) -> None:
    """No part of it ends."""
    in_group(cluster, "a", {HOSTS[0]: 1})
    in_group(cluster, "b", {HOSTS[2]: 1}, priority=20)
    cluster.runs("full", {HOSTS[1]: 1}, priority=20)
    cluster.runs("right", {HOSTS[3]: 1})
    assert cluster.victims(cluster.waiting(1, priority=10)) == ["right"]
    assert cluster.victims(cluster.waiting(4, priority=10, require="block")) is None


def test_a_pod_group_ends_without_its_workloads_that_have_finished(cluster: Cluster) -> None:
    """The Placement of a finished one keeps its slots on paper; nobody has to end it."""
    in_group(cluster, "a", {HOSTS[0]: 1})
    in_group(cluster, "b", {HOSTS[1]: 1})
    done = in_group(cluster, "done", {HOSTS[2]: 1})
    for one in cluster.stores.pods.get_by(done.uid):
        cluster.stores.pods.apply("MODIFIED", newer(replace(one, phase="Succeeded")))
    cluster.stores.workloads.apply("MODIFIED", newer(replace(done, finished=True)))
    cluster.runs("rest", {HOSTS[3]: 1}, priority=50)
    assert cluster.victims(cluster.waiting(2, priority=10)) == ["a", "b"]


def in_group(cluster: Cluster, name: str, hosts: Mapping[str, int], priority: int = 0) -> Workload:
    workload = cluster.runs(name, hosts, priority)
    asked = {**workload.annotations, names.POD_GROUP: "group", names.MIN_AVAILABLE: "2"}
    workload = newer(replace(workload, annotations=asked))
    cluster.stores.workloads.apply("MODIFIED", workload)
    cluster.view.refresh()
    return workload


def test_nothing_is_preempted_for_one_of_several_workloads_of_a_pod_group(cluster: Cluster) -> None:
    """It would not start without the others."""
    cluster.runs("left", dict.fromkeys(HOSTS, 1))
    for name in ("one", "two"):
        workload = of_priority(job(name, count=1, require="rack", held=True), 10)
        asked = {**workload.annotations, names.POD_GROUP: "group", names.MIN_AVAILABLE: "2"}
        cluster.stores.workloads.apply("ADDED", replace(workload, annotations=asked))
    cluster.view.refresh()
    gang = cluster.view.gangs.get(key_of(replace(job("one"), uid="uid-one")))
    assert gang is not None
    assert gang.pod_group is not None
    assert in_one_group(gang)
    assert cluster.victims(gang) is None


def test_nothing_is_preempted_for_a_workload_that_joins_a_pod_group_with_slots(cluster: Cluster) -> None:
    """Neither the workloads that it joins, nor others."""
    in_group(cluster, "one", dict.fromkeys(HOSTS[:2], 1))
    cluster.runs("right", dict.fromkeys(HOSTS[2:], 1))
    late = cluster.waiting(2, priority=10)
    asked = {**late.workload.annotations, names.POD_GROUP: "group", names.MIN_AVAILABLE: "2"}
    cluster.stores.workloads.apply("MODIFIED", newer(replace(late.workload, annotations=asked)))
    cluster.view.refresh()
    joins = cluster.view.gangs.get(late.key)
    assert joins is not None and joins.pod_group is not None and joins.pod_group.placed
    assert cluster.victims(late) == ["one"]
    assert cluster.victims(joins) is None


class Counted:
    """A lock that counts how often it was free in between."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.depth = self.holds = 0

    def __enter__(self) -> None:
        self.lock.acquire()
        self.holds += self.depth == 0
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        self.lock.release()


def test_a_search_holds_the_lock_for_one_plan_at_a_time(cluster: Cluster) -> None:
    """Other threads may have it between two plans."""
    for name, host in zip("abcd", HOSTS, strict=True):
        cluster.runs(name, {host: 1})
    gang = cluster.waiting(2, priority=10)
    lock = cluster.view.lock = Counted()  # type: ignore[assignment]
    plans = list[int]()
    assert cluster.search(gang, before=lambda: plans.append(lock.holds)) is not None
    assert len(plans) == len(set(plans)) > 1


@pytest.mark.parametrize("change", ["ended", "moved", "raised"])
def test_a_victim_that_changes_during_the_search_is_none(cluster: Cluster, change: str) -> None:
    """Nothing is preempted then: the next search sees it as it is."""
    workload = cluster.runs("left", {HOSTS[0]: 1, HOSTS[1]: 1})
    cluster.runs("right", {HOSTS[2]: 1, HOSTS[3]: 1}, priority=5)
    gang = cluster.waiting(2, priority=10)

    def before() -> None:
        first, *_ = cluster.view.gangs.pods_of(key_of(workload))
        match change:
            case "ended":
                cluster.stores.pods.apply("MODIFIED", newer(replace(first, phase="Succeeded")))
            case "moved":
                cluster.stores.pods.apply("DELETED", first)
            case _:
                cluster.stores.workloads.apply("MODIFIED", newer(of_priority(workload, 7)))

    found = cluster.search(gang, before=before)
    assert found is None
    cluster.view.refresh()
    again = cluster.search(gang)
    assert again is not None
    assert [one.name for one in again.victims] == (["right"] if change == "raised" else ["left"])


def test_a_pod_that_is_gone_during_a_question_is_not_counted_again(cluster: Cluster) -> None:
    """The state stays as the stores have it."""
    workload = cluster.runs("left", {HOSTS[0]: 1, HOSTS[1]: 1})
    pods = cluster.view.gangs.pods_of(key_of(workload))
    cluster.stores.pods.apply("DELETED", pods[0])
    cluster.view.refresh()
    before = {host: cluster.view.capacity.free(host) for host in HOSTS}
    with cluster.view.lock, cluster.view.without([key_of(workload)], pods):
        assert cluster.view.capacity.free(HOSTS[1])["nvidia.com/gpu"] == 8
    assert before == {host: cluster.view.capacity.free(host) for host in HOSTS}
