"""Topology objects of others are watched while their kind is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.api import names
from engine.cache.informers import CHECK_EVERY, ForeignInformers
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.cluster.client import ApiFault, KubeClient
from engine.policy.model import default_policy, parse_policy
from tests.support.eventually import eventually
from tests.support.fake_api import Answer, FakeApi

KUEUE = "kueue.x-k8s.io"


class Watched:
    def __init__(self, api: KubeClient) -> None:
        self.now = 0.0
        self.stores = Stores()
        self.watch = ForeignInformers(api, self.stores, clock=lambda: self.now)

    def follow(self) -> None:
        """Once more, when it is time for a look."""
        self.now += CHECK_EVERY
        self.watch.follow()

    def levels(self) -> list[str]:
        return [key for one in self.stores.topology_objects[KUEUE].values() for key, _ in one.levels]


@pytest.fixture
def watched(api: KubeClient) -> Iterator[Watched]:
    one = Watched(api)
    yield one
    one.watch.stop()


def install(fake: FakeApi, version: str, key: str) -> None:
    fake.install(f"{KUEUE}/{version}", "topologies", "Topology")
    fake.put(f"/apis/{KUEUE}/{version}/topologies/default", spec={"levels": [{"nodeLabel": key}]})


def shows(watched: Watched, *keys: str) -> Callable[[], bool]:
    return lambda: watched.levels() == list(keys)


def test_between_two_looks_nothing_is_asked(fake: FakeApi, watched: Watched) -> None:
    """Where the kind is not installed, a look every now and then is all that it costs."""
    watched.follow()
    asked = fake.count("GET")
    watched.now += CHECK_EVERY / 2
    watched.watch.follow()
    assert fake.count("GET") == asked


def test_a_replica_that_starts_waits_for_all_of_them(fake: FakeApi, watched: Watched) -> None:
    install(fake, "v1beta1", "x/rack")
    watched.follow()
    assert watched.watch.wait_synced(60)
    assert watched.levels() == ["x/rack"]


def test_changes_of_an_object_come_in(fake: FakeApi, watched: Watched) -> None:
    install(fake, "v1beta1", "x/rack")
    watched.follow()
    eventually(shows(watched, "x/rack"))
    fake.put(f"/apis/{KUEUE}/v1beta1/topologies/default", spec={"levels": [{"nodeLabel": "x/row"}]})
    eventually(shows(watched, "x/row"))


def test_a_kind_that_comes_later_is_found_and_one_that_goes_is_let_go(fake: FakeApi, watched: Watched) -> None:
    """Looked for from time to time."""
    watched.follow()
    assert watched.levels() == []
    install(fake, "v1beta2", "x/rack")
    watched.watch.follow()
    assert watched.levels() == []
    watched.follow()
    eventually(shows(watched, "x/rack"))
    fake.uninstall(f"{KUEUE}/v1beta2", "topologies")
    watched.follow()
    assert watched.levels() == []


def test_an_api_server_that_cannot_tell_changes_nothing(fake: FakeApi, watched: Watched) -> None:
    """What is watched goes on."""
    install(fake, "v1beta1", "x/rack")
    watched.follow()
    eventually(shows(watched, "x/rack"))
    fake.fault(Answer(503, {"reason": "ServiceUnavailable"}), when=lambda request: request.path == "/apis", times=9)
    with pytest.raises(ApiFault):
        watched.follow()
    assert watched.levels() == ["x/rack"]


def test_pod_groups_are_watched_the_same_way(fake: FakeApi, watched: Watched) -> None:
    """Garbage among them is a record with a problem; what goes with its kind is forgotten."""
    group = "scheduling.x-k8s.io/v1alpha1"

    def known() -> dict[str, int]:
        return {one.name: one.minimum for one in watched.stores.pod_groups.values()}

    watched.follow()
    fake.install(group, "podgroups", "PodGroup")
    fake.put(f"/apis/{group}/namespaces/ml/podgroups/mesh", spec={"minMember": 4})
    fake.put(f"/apis/{group}/namespaces/ml/podgroups/garbage", spec={"minMember": "all"})
    watched.follow()
    eventually(lambda: known() == {"mesh": 4, "garbage": 0})
    fake.put(f"/apis/{group}/namespaces/ml/podgroups/mesh", spec={"minMember": 5})
    eventually(lambda: known() == {"mesh": 5, "garbage": 0})
    fake.uninstall(group, "podgroups")
    watched.follow()
    assert known() == {}


def test_hyper_nodes_are_watched_the_same_way(fake: FakeApi, watched: Watched) -> None:
    """Garbage among them is a record with a problem; what goes with its kind is forgotten."""
    group = "topology.volcano.sh/v1alpha1"
    members = [{"type": "Node", "selector": {"exactMatch": {"name": "n1"}}}]

    def known() -> dict[str, tuple[int, tuple[str, ...], bool]]:
        return {one.name: (one.tier, one.nodes, bool(one.problem)) for one in watched.stores.hyper_nodes.values()}

    watched.follow()
    assert known() == {}
    fake.install(group, "hypernodes", "HyperNode")
    fake.put(f"/apis/{group}/hypernodes/s0", spec={"tier": 1, "members": members})
    fake.put(f"/apis/{group}/hypernodes/garbage", spec={"tier": "low"})
    watched.follow()
    eventually(lambda: known() == {"s0": (1, ("n1",), False), "garbage": (0, (), True)})
    fake.put(f"/apis/{group}/hypernodes/s0", spec={"tier": 2, "members": members})
    eventually(lambda: known() == {"s0": (2, ("n1",), False), "garbage": (0, (), True)})
    fake.uninstall(group, "hypernodes")
    watched.follow()
    assert known() == {}


# No API server stores the first two; the others pass a CRD that keeps unknown fields.
HOSTILE: list[dict[str, Any]] = [
    {"metadata": None},
    {"metadata": {"name": ["default"]}},
    {"spec": "garbage"},
    {"spec": {"levels": {"nodeLabel": "x/rack"}, "minMember": {"all": True}, "scheduleTimeoutSeconds": "soon"}},
    {"spec": {"levels": [7, None, {"nodeLabel": 5}, {"nodeLabel": "x" * 5_000}], "minMember": -(10**30)}},
    {"spec": {"levels": [{"nodeLabel": f"x/{number}"} for number in range(1_000)], "minMember": 10**30}},
    {"status": "garbage", "spec": None},
]


@pytest.mark.parametrize("garbage", HOSTILE)
@pytest.mark.parametrize(
    "served",
    [(f"{KUEUE}/v1beta1", "topologies", "Topology"), ("scheduling.x-k8s.io/v1alpha1", "podgroups", "PodGroup")],
)
def test_garbage_harms_no_other_object(
    fake: FakeApi, watched: Watched, served: tuple[str, str, str], garbage: dict[str, Any]
) -> None:
    """Listed and watched; the state of the cluster takes what there is, and the kind may go and come again."""
    group, plural, kind = served
    state = ClusterState(watched.stores)
    store = watched.stores.pod_groups if plural == "podgroups" else watched.stores.topology_objects[KUEUE]
    there = f"/apis/{group}/namespaces/ml/{plural}" if plural == "podgroups" else f"/apis/{group}/{plural}"
    spec = {"levels": [{"nodeLabel": "x/rack"}], "minMember": 2}

    def names() -> set[str]:
        return {one.name for one in store.values()}

    for _ in range(2):
        fake.install(group, plural, kind)
        fake.put(f"{there}/first", spec=spec)
        fake.put(f"{there}/listed", **garbage)
        watched.follow()
        eventually(lambda: "first" in names())
        fake.put(f"{there}/watched", **garbage)
        fake.put(f"{there}/last", spec=spec)
        eventually(lambda: {"first", "last"} <= names())
        state.refresh()
        assert names() <= {"first", "listed", "watched", "last"}
        fake.uninstall(group, plural)
        watched.follow()
        assert names() == set()
        state.refresh()


PROVISIONING = "autoscaling.x-k8s.io"
REQUESTS = f"/apis/{PROVISIONING}/v1/namespaces/ml/provisioningrequests"


class Provisioning(Watched):
    """A watch under a policy that tests change."""

    def __init__(self, api: KubeClient) -> None:
        super().__init__(api)
        self.policy = default_policy()
        self.watch = ForeignInformers(api, self.stores, policy=lambda: self.policy, clock=lambda: self.now)

    def switch(self, *, on: bool) -> None:
        text = "autoscaling: {provisioningRequest: {className: a}}" if on else "{}"
        self.policy = parse_policy(text)
        self.watch.follow()


@pytest.fixture
def provisioning(api: KubeClient) -> Iterator[Provisioning]:
    one = Provisioning(api)
    yield one
    one.watch.stop()


def ask(fake: FakeApi, name: str) -> None:
    fake.put(f"{REQUESTS}/{name}", spec={"provisioningClassName": "a", "podSets": []})


def test_requests_for_nodes_are_watched_only_while_some_are_made(fake: FakeApi, provisioning: Provisioning) -> None:
    """From the moment on that the policy names a class; afterwards until the last one is withdrawn."""
    fake.install(f"{PROVISIONING}/v1", "provisioningrequests", "ProvisioningRequest")
    ask(fake, "one")
    provisioning.follow()
    assert not any(PROVISIONING in one.path for one in fake.requests)
    provisioning.switch(on=True)
    store = provisioning.stores.provisioning_requests
    eventually(lambda: [one.name for one in store.values()] == ["one"])
    assert provisioning.stores.provisioning_version == "v1"
    assert any(one.query.get("labelSelector") == names.GANG for one in fake.requests if PROVISIONING in one.path)
    provisioning.switch(on=False)
    provisioning.follow()
    assert len(store) == 1
    fake.remove(f"{REQUESTS}/one")
    eventually(lambda: len(store) == 0)
    provisioning.follow()
    seen = len([one for one in fake.requests if one.path.startswith(REQUESTS.partition("/namespaces")[0])])
    ask(fake, "two")
    provisioning.follow()
    assert len([one for one in fake.requests if one.path.startswith(REQUESTS.partition("/namespaces")[0])]) == seen
    assert len(store) == 0


def test_a_cluster_without_the_api_for_nodes_is_told_once(
    fake: FakeApi, provisioning: Provisioning, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is looked for; the older version will do when it comes, one that nobody knows will not."""
    provisioning.switch(on=True)
    for _ in range(5):
        provisioning.follow()
    fake.install(f"{PROVISIONING}/v9", "provisioningrequests", "ProvisioningRequest")
    provisioning.follow()
    assert provisioning.stores.provisioning_version == ""
    told = [one for one in caplog.records if "does not serve ProvisioningRequests" in one.getMessage()]
    assert len(told) == 1
    fake.install(f"{PROVISIONING}/v1beta1", "provisioningrequests", "ProvisioningRequest")
    provisioning.follow()
    assert provisioning.stores.provisioning_version == "v1beta1"
