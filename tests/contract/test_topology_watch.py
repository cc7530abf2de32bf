"""Topology objects of others are watched while the policy names one, and while their kind is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from engine.cache.informers import CHECK_EVERY, TopologyInformers
from engine.cache.stores import Stores
from engine.cluster.client import ApiFault, KubeClient
from engine.policy.model import Policy, parse_policy
from tests.support.eventually import eventually
from tests.support.fake_api import Answer, FakeApi

KUEUE = "kueue.x-k8s.io"
NAMED = parse_policy(f"topologies: [{{name: main, fromObject: {{group: {KUEUE}, name: default}}}}]")
QUIET = parse_policy("topologies: [{name: main, levels: [{name: rack, keys: [x/rack]}]}]")
OPEN = parse_policy("{}")


class Watched:
    def __init__(self, api: KubeClient) -> None:
        self.now = 0.0
        self.stores = Stores()
        self.watch = TopologyInformers(api, self.stores, clock=lambda: self.now)

    def follow(self, policy: Policy = NAMED) -> None:
        """Once more, when it is time for a look."""
        self.now += CHECK_EVERY
        self.watch.follow(policy)

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


def test_nothing_is_asked_while_no_policy_names_one(fake: FakeApi, watched: Watched) -> None:
    """Not even whether the kind is there, where it names other topologies."""
    install(fake, "v1beta1", "x/rack")
    watched.follow(QUIET)
    assert fake.count("GET") == 0


def test_without_topologies_in_the_policy_all_are_watched(fake: FakeApi, watched: Watched) -> None:
    """They give the topologies then; a replica that starts waits for them."""
    install(fake, "v1beta1", "x/rack")
    watched.follow(OPEN)
    assert watched.watch.wait_synced(5)
    assert watched.levels() == ["x/rack"]


def test_what_the_policy_names_is_watched_until_it_does_not(fake: FakeApi, watched: Watched) -> None:
    """Changes come in; with another policy the objects leave the store."""
    install(fake, "v1beta1", "x/rack")
    watched.follow()
    eventually(shows(watched, "x/rack"))
    fake.put(f"/apis/{KUEUE}/v1beta1/topologies/default", spec={"levels": [{"nodeLabel": "x/row"}]})
    eventually(shows(watched, "x/row"))
    watched.follow(QUIET)
    assert watched.levels() == []


def test_a_kind_that_comes_later_is_found_and_one_that_goes_is_let_go(fake: FakeApi, watched: Watched) -> None:
    """Looked for from time to time."""
    watched.follow()
    assert watched.levels() == []
    install(fake, "v1beta2", "x/rack")
    watched.watch.follow(NAMED)
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
