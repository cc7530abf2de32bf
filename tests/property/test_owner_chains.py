"""Random families of objects whose references lie: a pod never joins what its chain does not prove."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.pod import OwnerRef, Pod
from engine.api.workload import Owned, Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.gang.ownership import MAX_DEPTH, Key, Link, chain_of, object_key
from tests.support.cluster_records import job, pod
from tests.support.families import link

NAMES = ("a", "b", "c")
NAMESPACES = ("default", "other")
KINDS = (
    ("batch/v1", "Job"),
    ("apps/v1", "ReplicaSet"),
    ("v1", "Pod"),
    ("x/v1", "Job"),
    ("jobset.x-k8s.io/v1", "JobSet"),
)
UIDS = ("", "u1", "u2", "u3", "u4")

uids = st.sampled_from(UIDS)


@st.composite
def references(draw: st.DrawFn) -> OwnerRef | None:
    if draw(st.integers(0, 4)) == 0:
        return None
    version, kind = draw(st.sampled_from(KINDS))
    return OwnerRef(version, kind, draw(st.sampled_from(NAMES)), draw(uids), draw(st.integers(0, 4)) > 0)


@st.composite
def objects(draw: st.DrawFn) -> Workload | Owned | Pod:
    name, namespace, uid = draw(st.sampled_from(NAMES)), draw(st.sampled_from(NAMESPACES)), draw(uids)
    more: dict[str, Any] = {"namespace": namespace, "uid": uid, "owner": draw(references())}
    match draw(st.sampled_from(["Job", "JobSet", "ReplicaSet", "Pod"])):
        case "Job":
            return replace(job(name, require=draw(st.sampled_from([None, "rack"]))), **more)
        case "JobSet":
            made = replace(job(name, require=draw(st.sampled_from([None, "rack"]))), **more)
            return replace(made, api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet")
        case "ReplicaSet":
            return replace(link("apps/v1", "ReplicaSet", name), **more)
        case _:
            return pod(job(), 0, name=name, **more)


families = st.lists(objects(), max_size=10).map(lambda made: {object_key(one): one for one in made})


def proven(below: Link, above: Link) -> bool:
    """One step, as the rule says it."""
    owner = below.owner
    if owner is None or not owner.controller or not owner.uid or owner.uid != above.uid:
        return False
    group = owner.api_version.rpartition("/")[0]
    return object_key(above) == (group, owner.kind, below.namespace, owner.name)


@given(families)
@settings(max_examples=150, deadline=None)
def test_every_link_of_a_chain_is_proven_and_its_end_is_told(family: Mapping[Key, Link]) -> None:
    """Whatever lies, and in a circle too."""
    for one in family.values():
        chain = chain_of(one.namespace, one.owner, find=family.get)
        assert len(chain.links) <= MAX_DEPTH
        assert len({link.uid for link in chain.links}) == len(chain.links)
        below = one
        for above in chain.links:
            assert proven(below, above)
            below = above
        if chain.missing is None:
            assert below.owner is None or not below.owner.controller
        else:
            assert chain.missing == below.owner


@given(families, st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_pods_are_filed_the_same_whatever_came_first(family: Mapping[Key, Link], random: Any) -> None:
    """Also when objects went away and came back in between."""
    settled = filed(ClusterState(Stores()), list(family.values()))
    view = ClusterState(Stores())
    order = list(family.values())
    random.shuffle(order)
    for one in order:
        show(view, one)
        if random.random() < 0.3:
            show(view, one, event="DELETED")
            show(view, one)
    assert filed(view, []) == settled


@given(families)
@settings(max_examples=80, deadline=None)
def test_a_pod_is_only_of_what_its_chain_leads_to(family: Mapping[Key, Link]) -> None:
    view = ClusterState(Stores())
    pod_index = filed(view, list(family.values()))
    for one in family.values():
        if isinstance(one, Pod) and (home := pod_index[one.key]) is not None and not home.startswith("pods/"):
            chain = chain_of(one.namespace, one.owner, find=family.get)
            assert home in {above.uid for above in chain.links if isinstance(above, Workload)}


def show(view: ClusterState, record: Link, *, event: str = "MODIFIED") -> None:
    stores = view.stores
    store: Any = (
        stores.pods if isinstance(record, Pod) else stores.workloads if isinstance(record, Workload) else stores.owned
    )
    store.apply(event, record)
    view.refresh()


def filed(view: ClusterState, records: list[Link]) -> dict[tuple[str, str], str | None]:
    """Where every pod is."""
    for record in records:
        show(view, record)
    return {one.key: view._pods.gang_key_of(one.key) for one in view.stores.pods.values()}
