"""Plans of gangs with pod (anti-)affinity and topology spread, beside the rules of the scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.api import names
from engine.api.pod import Pod, PodConstraints, PodTerm, SelectorRequirement, SpreadConstraint
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import schedule_gang
from tests.support.cluster_records import job, node, pod, pod_set, shape, spec
from tests.support.scheduler_oracle import OnNode, binds

BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
ZONE, ODD = "example.com/zone", "example.com/odd"  # a zone is one block or more; odd goes across all of them
NESTED = [names.HOSTNAME, RACK, BLOCK, ZONE]
NAMESPACE = "default"
APPS = ["a", "b"]


def requirement(app: str) -> SelectorRequirement:
    return SelectorRequirement("app", "In", (app,))


selectors = st.sampled_from(
    [
        (requirement("a"),),
        (requirement("a"),),
        (requirement("b"),),
        (),
        None,
        (SelectorRequirement("app", "NotIn", ("b",)),),
    ]
)
namespaces = st.sampled_from([(NAMESPACE,), (NAMESPACE,), ("other",), ("other", NAMESPACE)])


def terms(keys: list[str]) -> st.SearchStrategy[PodTerm]:
    return st.builds(
        PodTerm,
        st.sampled_from(keys),
        selectors,
        namespaces,
        st.sampled_from([None, None, ()]),
    )


def spreads(keys: list[str]) -> st.SearchStrategy[SpreadConstraint]:
    return st.builds(
        SpreadConstraint,
        st.sampled_from(keys),
        st.integers(1, 2),
        selectors,
        st.sampled_from([1, 1, 1, 2, 3]),
        st.booleans(),
    )


def constraints(keys: list[str]) -> st.SearchStrategy[PodConstraints]:
    return st.builds(
        PodConstraints,
        st.lists(terms(keys), max_size=1).map(tuple),
        st.lists(terms(keys), max_size=2).map(tuple),
        st.lists(spreads(keys), max_size=1).map(tuple),
    )


@st.composite
def clusters(draw: st.DrawFn, keys: list[str]) -> dict[str, Any]:
    hosts: dict[str, tuple[dict[str, str], int]] = {}
    for block in range(draw(st.integers(1, 3))):
        for rack in range(draw(st.integers(1, 2))):
            for number in range(draw(st.integers(1, 2))):
                name = f"b{block}-r{rack}-h{number}"
                labels = {names.HOSTNAME: name, BLOCK: f"b{block}", RACK: f"b{block}-r{rack}"}
                if draw(st.integers(0, 9)):
                    labels[ODD] = f"odd{draw(st.integers(0, 1))}"
                labels[ZONE] = f"z{block // 2}"
                hosts[name] = labels, draw(st.integers(0, 3))
    others = draw(
        st.lists(
            st.tuples(
                st.sampled_from(sorted(hosts)),
                st.sampled_from(APPS),
                st.sampled_from([NAMESPACE, "other"]),
                st.one_of(st.just(()), st.lists(terms(keys), max_size=1).map(tuple)),
                st.integers(0, 5).map(lambda n: n == 0),
            ),
            max_size=4,
        )
    )
    return {
        "hosts": hosts,
        "others": others,
        "require": draw(st.sampled_from([None, None, "block", "rack"])),
    }


def existing(others: list[tuple[Any, ...]]) -> tuple[list[Pod], list[OnNode]]:
    pods, seen = [], []
    for number, (host, app, namespace, away, deleting) in enumerate(others):
        limits = PodConstraints(anti_affinity=away)
        own = spec(shape=shape(), node_name=host, own_labels=("app", app), constraints=limits if away else None)
        pods.append(
            replace(
                pod(job("other"), None, host=host, name=f"other-{number}"),
                namespace=namespace,
                owner=None,
                spec=own,
                deleting=deleting,
            )
        )
        seen.append(OnNode(host, namespace, (("app", app),), limits, deleting))
    return pods, seen


def state_of(
    cluster: Mapping[str, Any], sets: Mapping[str, tuple[int, str, PodConstraints]], kept: tuple[str, ...] = ()
) -> ClusterState:
    pods, _ = existing(cluster["others"])
    busy = Counter(one.spec.node_name for one in pods)
    stores = Stores()
    view = ClusterState(stores)
    stores.nodes.replace(
        [
            node(name, labels=labels, allocatable={"cpu": 1000 * slots, "pods": slots + busy[name], "memory": 1000})
            for name, (labels, slots) in cluster["hosts"].items()
        ]
    )
    stores.pods.replace(pods)
    workload = job(require=cluster["require"], count=1)
    if cluster["require"] is None:
        asked = {names.SLICES: f"{cluster['slices']}=2"} if "slices" in cluster else {names.UNCONSTRAINED: "true"}
        workload = replace(workload, annotations=asked)
    if "least" in cluster:
        least = {names.MIN_AVAILABLE: str(cluster["least"])}
        workload = replace(workload, annotations={**workload.annotations, **least})
    workload = replace(
        workload,
        namespace=NAMESPACE,
        pod_sets=tuple(
            pod_set(
                name,
                count=count,
                template=spec(
                    shape=shape(cpu=1000),
                    gates=(names.GATE,),
                    labels={names.MANAGED: "true"},
                    own_labels=("app", app),
                    constraints=limits if limits != PodConstraints() else None,
                ),
            )
            for name, (count, app, limits) in sets.items()
        ),
    )
    stores.workloads.replace([workload])
    for rank, host in enumerate(kept):
        own = pod(workload, rank, host=host)
        template = workload.pod_sets[0].template
        same = {"own_labels": template.own_labels, "constraints": template.constraints}
        stores.pods.apply("ADDED", replace(own, spec=replace(own.spec, **same)))
    view.refresh()
    return view


def planned(view: ClusterState, cluster: Mapping[str, Any], sets: Mapping[str, tuple[int, str, PodConstraints]]) -> Any:
    (key,) = view.gangs.keys()
    gang = view.gangs.get(key)
    assert gang is not None
    outcome = schedule_gang(view, gang)
    if not isinstance(outcome, Placed):
        return None
    return [
        OnNode(slot.host, NAMESPACE, (("app", sets[one.name][1]),), sets[one.name][2])
        for one in outcome.pod_sets
        for slot in one.slots
        for _ in range(slot.count)
    ]


def ways(cluster: Mapping[str, Any], count: int, app: str, limits: PodConstraints) -> Iterator[list[OnNode]]:
    """All ways to place equal pods, by room and required level."""
    hosts = cluster["hosts"]
    level = {"block": BLOCK, "rack": RACK, None: None}[cluster["require"]]
    for chosen in combinations_with_replacement(sorted(hosts), count):
        if any(number > hosts[host][1] for host, number in Counter(chosen).items()):
            continue
        if level is not None and len({hosts[host][0][level] for host in chosen}) > 1:
            continue
        yield [OnNode(host, NAMESPACE, (("app", app),), limits) for host in chosen]


def accepted(cluster: Mapping[str, Any], pods: list[OnNode]) -> bool:
    """In some order, as the user wrote them and as they are pinned."""
    nodes = {name: labels for name, (labels, _) in cluster["hosts"].items()}
    _, there = existing(cluster["others"])
    return binds(nodes, there, pods, pinned=False) and binds(nodes, there, pods, pinned=True)


@given(clusters(NESTED), st.integers(1, 5), st.sampled_from(APPS), constraints(NESTED))
@settings(max_examples=400, deadline=None)
def test_equal_pods_are_placed_where_and_only_where_the_scheduler_binds_them(
    cluster: dict[str, Any], count: int, app: str, limits: PodConstraints
) -> None:
    """With labels that nest in the tree: a plan exactly when an enumeration of all of them finds one."""
    sets = {"main": (count, app, limits)}
    found = planned(state_of(cluster, sets), cluster, sets)
    if found is not None:
        assert len(found) == count
        assert accepted(cluster, found)
    else:
        assert not any(accepted(cluster, pods) for pods in ways(cluster, count, app, limits))


def hosts_of(*slots: int) -> dict[str, tuple[dict[str, str], int]]:
    """Hosts with so many slots, each in a rack of its own in one block."""
    labels = [{names.HOSTNAME: f"h{n}", BLOCK: "b", RACK: f"r{n}", ZONE: "z"} for n in range(len(slots))]
    return {f"h{n}": (labels[n], free) for n, free in enumerate(slots)}


ALONE = PodConstraints(anti_affinity=(PodTerm(names.HOSTNAME, (requirement("a"),), (NAMESPACE,), None),))


@given(
    clusters(NESTED),
    st.integers(1, 4).flatmap(lambda count: st.tuples(st.integers(1, count), st.just(count))),
    st.sampled_from(APPS),
    constraints(NESTED),
)
@example({"hosts": hosts_of(0, 2), "others": [], "require": "rack"}, (1, 2), "a", ALONE).via("each rack has one host")
@example({"hosts": hosts_of(2), "others": [], "require": "block"}, (1, 2), "a", ALONE).via("so has the cluster")
@settings(max_examples=200, deadline=None)
def test_a_minimum_starts_where_the_scheduler_binds_it(
    cluster: dict[str, Any], counts: tuple[int, int], app: str, limits: PodConstraints
) -> None:
    """A plan exactly when an enumeration finds one for the minimum of pods, or for more."""
    least, most = counts
    cluster = {**cluster, "least": least}
    sets = {"main": (most, app, limits)}
    found = planned(state_of(cluster, sets), cluster, sets)
    if found is not None:
        assert least <= len(found) <= most
        assert accepted(cluster, found)
    else:
        every = (pods for count in range(least, most + 1) for pods in ways(cluster, count, app, limits))
        assert not any(accepted(cluster, pods) for pods in every)


@given(clusters([*NESTED, ODD]), st.integers(1, 5), st.sampled_from(APPS), constraints([*NESTED, ODD]))
@settings(max_examples=200, deadline=None)
def test_a_label_across_the_tree_is_never_violated(
    cluster: dict[str, Any], count: int, app: str, limits: PodConstraints
) -> None:
    """A plan may be missed, but none is wrong."""
    sets = {"main": (count, app, limits)}
    found = planned(state_of(cluster, sets), cluster, sets)
    assert found is None or accepted(cluster, found)


@given(
    clusters([*NESTED, ODD]),
    st.tuples(st.integers(1, 3), st.sampled_from(APPS), constraints([*NESTED, ODD])),
    st.tuples(st.integers(1, 3), st.sampled_from(APPS), constraints([*NESTED, ODD])),
)
@settings(max_examples=200, deadline=None)
def test_pod_sets_that_require_something_of_each_other_can_be_bound(
    cluster: dict[str, Any], first: tuple[int, str, PodConstraints], second: tuple[int, str, PodConstraints]
) -> None:
    """Two templates with labels and rules of their own."""
    sets = {"first": first, "second": second}
    found = planned(state_of({**cluster, "require": None}, sets), cluster, sets)
    assert found is None or accepted(cluster, found)


@given(
    clusters([*NESTED, ODD]),
    st.integers(1, 4),
    st.lists(st.integers(0, 11), min_size=1, max_size=2),
    st.sampled_from(APPS),
    constraints([*NESTED, ODD]),
)
@settings(max_examples=200, deadline=None)
def test_pods_that_join_running_ones_keep_to_the_rules_with_them(
    cluster: dict[str, Any], more: int, places: list[int], app: str, limits: PodConstraints
) -> None:
    """Wherever the running ones are: the scheduler binds the new ones beside them."""
    hosts = sorted(cluster["hosts"])
    kept = tuple(hosts[place % len(hosts)] for place in places)
    roomy = {name: (labels, slots + kept.count(name)) for name, (labels, slots) in cluster["hosts"].items()}
    cluster = {**cluster, "hosts": roomy, "require": None}
    sets = {"main": (len(kept) + more, app, limits)}
    found = planned(state_of(cluster, sets, kept), cluster, sets)
    if found is None:
        return
    new = Counter(found)
    new.subtract(OnNode(host, NAMESPACE, (("app", app),), limits) for host in kept)
    assert min(new.values()) >= 0
    nodes = {name: labels for name, (labels, _) in cluster["hosts"].items()}
    _, there = existing(cluster["others"])
    there += [OnNode(host, NAMESPACE, (("app", app),), limits) for host in kept]
    joining = list(new.elements())
    assert len(joining) == more
    assert binds(nodes, there, joining, pinned=False)
    assert binds(nodes, there, joining, pinned=True)


@given(
    clusters(NESTED),
    st.sampled_from([BLOCK, RACK, names.HOSTNAME]),
    st.integers(1, 3),
    st.sampled_from(APPS),
    constraints(NESTED),
)
@example(
    {
        "hosts": {
            "b0-r0-h0": ({names.HOSTNAME: "b0-r0-h0", BLOCK: "b0", RACK: "b0-r0", ZONE: "z0"}, 1),
            "b1-r0-h0": ({names.HOSTNAME: "b1-r0-h0", BLOCK: "b1", RACK: "b1-r0", ZONE: "z0"}, 2),
            "b1-r0-h1": ({names.HOSTNAME: "b1-r0-h1", BLOCK: "b1", RACK: "b1-r0", ZONE: "z0"}, 2),
        },
        "others": [("b0-r0-h0", "a", NAMESPACE, (), False)],
    },
    BLOCK,
    2,
    "a",
    PodConstraints(spread=(SpreadConstraint(names.HOSTNAME, 1, (requirement("a"),), 1, honor_affinity=False),)),
).via("the free slot of b0 is no whole slice: nothing of the count may be dealt to it")
@settings(max_examples=200, deadline=None)
def test_caps_leave_whole_slices(
    cluster: dict[str, Any], key: str, pairs: int, app: str, limits: PodConstraints
) -> None:
    """Pairs of pods in one domain of a level: a plan exactly when an enumeration finds one."""
    level = {BLOCK: "block", RACK: "rack", names.HOSTNAME: "host"}[key]
    cluster = {**cluster, "require": None, "slices": level}
    sets = {"main": (2 * pairs, app, limits)}

    def whole(pods: list[OnNode]) -> bool:
        return all(number % 2 == 0 for number in Counter(cluster["hosts"][one.node][0][key] for one in pods).values())

    found = planned(state_of(cluster, sets), cluster, sets)
    if found is not None:
        assert whole(found)
        assert accepted(cluster, found)
    else:
        every = filter(whole, ways(cluster, 2 * pairs, app, limits))
        assert not any(accepted(cluster, pods) for pods in every)
