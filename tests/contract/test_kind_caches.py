"""Workloads of the kinds that are there: a CustomResourceDefinition comes, changes its version, and goes."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from engine.api.workload import Workload
from engine.cache.informers import Informers
from engine.cache.stores import Stores
from engine.cache.workload_informers import WorkloadInformers
from engine.cluster.client import ApiFault, KubeClient
from engine.cluster.discovery import Discovery, wanted_kinds
from engine.kinds.registry import built_in, registry_of
from engine.policy.model import default_policy
from tests.support.eventually import eventually
from tests.support.fake_api import Answer, FakeApi, Request
from tests.support.kinds import example, merged

JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2"
FIXED = {"jobs", "statefulsets", "deployments", "replicasets"}
FLEET: dict[str, Any] = {
    "name": "fleet",
    "match": {"group": "example.com", "versions": ["*"], "kind": "Fleet", "resource": "fleets"},
    "podSets": [{"name": {"text": "main"}, "template": ".spec.template", "count": {"path": ".spec.size"}}],
    "gang": {"unit": "workload", "creation": "all-at-once"},
    "replace": {"cost": "retry"},
}


class Caught:
    """The caches of workloads over a fake server, which look often."""

    def __init__(self, api: KubeClient) -> None:
        self.stores = Stores()
        self.policy = default_policy()
        self.told: list[tuple[str, str]] = []
        self.stores.workloads.subscribe(self._told)
        self.caches = WorkloadInformers(
            api, self.stores, policy=lambda: self.policy, rng=random.Random(1), every=(0.05, 0.1), soon=0.02
        )

    def _told(self, key: Any, old: Any, new: Any) -> None:
        self.told.append(("gone" if new is None else "new" if old is None else "changed", key[3]))

    def names(self) -> set[str]:
        """The collections that are watched."""
        return set(self.caches.reflectors())


@pytest.fixture
def caught(api: KubeClient) -> Iterator[Caught]:
    made = Caught(api)
    yield made
    for reflector in made.caches.stop():
        reflector.stop()


def put_jobset(fake: FakeApi, name: str = "train", *, version: str = "v1alpha2", **more: Any) -> None:
    raw = merged(example("jobset")["object"], {"metadata": {"name": name, "uid": f"uid-{name}"}, **more})
    fake.put(
        f"/apis/jobset.x-k8s.io/{version}/namespaces/team/jobsets/{name}",
        **raw | {"apiVersion": f"jobset.x-k8s.io/{version}"},
    )


def key(name: str = "train") -> tuple[str, str, str, str]:
    return ("jobset.x-k8s.io", "JobSet", "team", name)


def threads() -> set[str]:
    return {one.name for one in threading.enumerate() if one.name.startswith("reflector /apis/")}


def test_kinds_that_are_not_there_cost_nothing(fake: FakeApi, caught: Caught) -> None:
    """Kubernetes' own kinds are watched; for the others no thread runs and nothing is asked of their collections."""
    caught.caches.start()
    assert caught.caches.wait_synced(60)
    assert caught.names() == FIXED
    assert caught.caches.missing() == []
    asked = {request.path.rpartition("/")[2] for request in list(fake.requests)}
    assert asked == FIXED | {"apis"}


def test_a_kind_that_is_there_is_read_before_we_are_ready(fake: FakeApi, caught: Caught) -> None:
    """Its objects are in the store once the caches count as synced."""
    fake.install("jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet")
    put_jobset(fake)
    caught.caches.start()
    assert caught.caches.wait_synced(60)
    known = caught.stores.workloads.get(key())
    assert known is not None
    assert (known.api_version, known.resource, known.slots) == ("jobset.x-k8s.io/v1alpha2", "jobsets", 13)
    assert caught.names() == FIXED | {"jobsets.jobset.x-k8s.io"}


def test_a_kind_comes_and_goes(fake: FakeApi, caught: Caught) -> None:
    """Watched from the next look on; when its definition goes, so do its objects and the watch."""
    caught.caches.start()
    assert caught.caches.wait_synced(60)
    fake.install("jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet")
    put_jobset(fake)
    eventually(lambda: caught.stores.workloads.get(key()) is not None)
    fake.uninstall("jobset.x-k8s.io/v1alpha2", "jobsets")
    eventually(lambda: caught.names() == FIXED)
    assert caught.stores.workloads.values() == []
    eventually(lambda: not any("jobsets" in name for name in threads()))
    assert caught.told == [("new", "train"), ("gone", "train")]
    fake.install("jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet")
    put_jobset(fake, "again")
    eventually(lambda: caught.stores.workloads.get(key("again")) is not None)
    assert caught.caches.missing() == []


def test_a_kind_that_comes_later_does_not_make_us_unready(fake: FakeApi, caught: Caught) -> None:
    """Only what was there at the start is waited for."""
    caught.caches.start()
    assert caught.caches.wait_synced(60)
    broken = Answer(500, {"reason": "InternalError"})
    fake.fault(broken, when=lambda request: request.path.startswith(f"{JOBSETS}/jobsets"), times=10_000)
    fake.install("jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet")
    eventually(lambda: "jobsets.jobset.x-k8s.io" in caught.names())
    assert caught.caches.missing() == []


def test_another_version_is_the_same_objects(fake: FakeApi, caught: Caught) -> None:
    """They are read anew at the new path, and none of them goes meanwhile."""
    fake.install("jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet")
    put_jobset(fake)
    caught.caches.start()
    assert caught.caches.wait_synced(60)
    fake.install("jobset.x-k8s.io/v1", "jobsets", "JobSet")
    put_jobset(fake, version="v1")
    del fake.kinds["jobset.x-k8s.io/v1alpha2"]

    def moved() -> bool:
        known = caught.stores.workloads.get(key())
        return known is not None and known.api_version == "jobset.x-k8s.io/v1"

    eventually(moved)
    assert ("gone", "train") not in caught.told


def test_the_version_that_an_entry_names_goes_first(fake: FakeApi, api: KubeClient) -> None:
    """Else the group's preferred one; a kind may be served in one version of its group and not in the other."""
    wanted = wanted_kinds(built_in())
    fake.install("kubeflow.org/v2", "pytorchjobs", "PyTorchJob")
    fake.install("kubeflow.org/v1", "pytorchjobs", "PyTorchJob")
    fake.install("kubeflow.org/v2beta1", "mpijobs", "MPIJob")
    fake.install("ray.io/v3", "rayclusters", "RayCluster")
    fake.install("ray.io/v2", "rayclusters", "RayCluster")
    found = {one.kind: one.api_version for one in Discovery(api).look(wanted) if one.group not in ("apps", "batch")}
    assert found == {"PyTorchJob": "kubeflow.org/v1", "MPIJob": "kubeflow.org/v2beta1", "RayCluster": "ray.io/v3"}


def test_what_is_no_registered_kind_is_not_watched(fake: FakeApi, api: KubeClient) -> None:
    """Neither another kind of the group, nor the same kind under another plural, nor a CronJob."""
    fake.install("jobset.x-k8s.io/v1alpha2", "others", "Other")
    fake.install("jobset.x-k8s.io/v1alpha2", "sets", "JobSet")
    found = {one.name for one in Discovery(api).look(wanted_kinds(built_in()))}
    assert found == FIXED


@pytest.mark.parametrize("path", ["/apis", JOBSETS])
@pytest.mark.parametrize("answer", [Answer(500), Answer(503), Answer(403), Answer(200, b"no json")])
def test_a_server_that_cannot_be_asked_takes_nothing_away(
    fake: FakeApi, caught: Caught, path: str, answer: Answer
) -> None:
    """What is known stays watched until the server says otherwise."""
    fake.install("jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet")
    put_jobset(fake)
    caught.caches.start()
    assert caught.caches.wait_synced(60)
    asked: list[Request] = []

    def matches(request: Request) -> bool:
        if request.path == path:
            asked.append(request)
        return request.path == path

    fake.fault(answer, when=matches, times=10_000)
    eventually(lambda: len(asked) >= 3)
    assert "jobsets.jobset.x-k8s.io" in caught.names()
    assert caught.stores.workloads.get(key()) is not None
    put_jobset(fake, "more")
    eventually(lambda: caught.stores.workloads.get(key("more")) is not None)


def test_a_group_that_is_left_out_of_the_list_is_not_gone(fake: FakeApi, caught: Caught) -> None:
    """As by a server that has just started: its objects are asked for, and stay while they are there."""
    fake.install("jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet")
    put_jobset(fake)
    caught.caches.start()
    assert caught.caches.wait_synced(60)
    kinds = fake.kinds.pop("jobset.x-k8s.io/v1alpha2")
    looks = fake.count("GET", watch=False)
    fake.wait_for(lambda server: server.count("GET", watch=False) > looks + 10)
    assert "jobsets.jobset.x-k8s.io" in caught.names()
    fake.kinds["jobset.x-k8s.io/v1alpha2"] = kinds
    put_jobset(fake, "more")
    eventually(lambda: caught.stores.workloads.get(key("more")) is not None)
    assert caught.told == [("new", "train"), ("new", "more")]


def test_a_right_that_is_lost_deletes_nothing(fake: FakeApi, caught: Caught) -> None:
    """Gangs whose workloads seemed to be gone would lose their Placements; the reason is told."""
    fake.install("jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet")
    put_jobset(fake)
    caught.caches.start()
    assert caught.caches.wait_synced(60)
    path = f"{JOBSETS}/jobsets"
    fake.fault(Answer(403, {"reason": "Forbidden"}), when=lambda request: request.path == path, times=10_000)
    fake.drop_watches()
    reflector = caught.caches.reflectors()["jobsets.jobset.x-k8s.io"]
    eventually(lambda: "403" in (reflector.problem or ""))
    assert caught.stores.workloads.get(key()) is not None
    assert ("gone", "train") not in caught.told


def test_before_the_first_answer_nobody_is_ready(fake: FakeApi, caught: Caught) -> None:
    """Which kinds there are is not known: readiness says why."""
    fake.fault(Answer(500, {"reason": "InternalError"}), when=lambda request: request.path == "/apis", times=10_000)
    caught.caches.start()
    eventually(lambda: "500" in " ".join(caught.caches.missing()))
    assert not caught.caches.wait_synced(0.1)


def test_a_kind_that_may_not_be_read_keeps_nobody_unready(fake: FakeApi, caught: Caught) -> None:
    """Its rights may come later than its definition, as when ours are upgraded; until then it is an empty one."""
    fake.install("jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet")
    closed = {f"{JOBSETS}/jobsets"}
    fake.fault(Answer(403, {"reason": "Forbidden"}), when=lambda request: request.path in closed, times=10_000)
    put_jobset(fake)
    caught.caches.start()
    assert caught.caches.wait_synced(60)
    assert caught.caches.missing() == []
    assert caught.caches.hidden() == {("jobset.x-k8s.io", "JobSet")}
    closed.clear()
    assert caught.caches.reflectors()["jobsets.jobset.x-k8s.io"].refresh(60)
    eventually(lambda: caught.stores.workloads.get(key()) is not None)
    assert caught.caches.hidden() == set()


def test_somebody_who_hears_of_a_kind_has_it_looked_for(fake: FakeApi, api: KubeClient) -> None:
    """A review of a JobSet comes before the next look: a kind that is not registered changes nothing."""
    stores = Stores()
    caches = WorkloadInformers(api, stores, policy=default_policy, every=(600.0, 600.0), soon=0.01)
    caches.start()
    try:
        assert caches.wait_synced(60)
        fake.install("jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet")
        put_jobset(fake)
        looks = fake.count("GET", watch=False)
        caches.wait_for_kind("example.com", "Nothing")
        caches.wait_for_kind("batch", "Job")
        assert fake.count("GET", watch=False) == looks
        caches.wait_for_kind("jobset.x-k8s.io", "JobSet")
        eventually(lambda: stores.workloads.get(key()) is not None)
    finally:
        for reflector in caches.stop():
            reflector.stop()


def test_kinds_of_the_policy_are_watched_too(fake: FakeApi, caught: Caught) -> None:
    """From the look on that follows the policy; what it names no more is not watched any more."""
    entry = FLEET
    fake.install("example.com/v1", "fleets", "Fleet")
    fake.put(
        "/apis/example.com/v1/namespaces/team/fleets/f",
        apiVersion="example.com/v1",
        kind="Fleet",
        metadata={"annotations": {"topogate.dev/prefer-topology": "rack"}},
        spec={"size": 3, "other": 5, "template": {"spec": {"containers": []}}},
    )
    caught.caches.start()
    assert caught.caches.wait_synced(60)
    assert caught.names() == FIXED
    registry_of([entry])
    known = ("example.com", "Fleet", "team", "f")

    def slots() -> int:
        record = caught.stores.workloads.get(known)
        return record.slots if record is not None else 0

    caught.policy = default_policy().model_copy(update={"kinds": (entry,)})
    caught.caches.wake()
    eventually(lambda: slots() == 3)
    other = entry | {"podSets": [{**entry["podSets"][0], "count": {"path": ".spec.other"}}]}
    caught.policy = default_policy().model_copy(update={"kinds": (other,)})
    caught.caches.wake()
    eventually(lambda: slots() == 5)
    assert caught.told == [("new", "f"), ("changed", "f")]
    caught.policy = default_policy()
    eventually(lambda: caught.names() == FIXED)
    assert caught.stores.workloads.get(known) is None


def test_a_kind_that_left_the_policy_is_watched_until_nothing_of_it_is_held(fake: FakeApi, caught: Caught) -> None:
    """Whoever is suspended by us is resumed by us alone."""
    entry = FLEET | {"suspend": {"path": ".spec.suspend"}}
    fake.install("example.com/v1", "fleets", "Fleet")
    path = "/apis/example.com/v1/namespaces/team/fleets/f"
    held = {"topogate.dev/held-by": "suspend"}
    spec = {"size": 3, "suspend": True, "template": {"spec": {"containers": []}}}
    fake.put(path, apiVersion="example.com/v1", kind="Fleet", metadata={"annotations": held}, spec=spec)
    caught.policy = default_policy().model_copy(update={"kinds": (entry,)})
    caught.caches.start()
    assert caught.caches.wait_synced(60)
    caught.policy = default_policy()
    assert caught.caches.look()
    assert caught.names() == FIXED | {"fleets.example.com"}
    fake.put(path, apiVersion="example.com/v1", kind="Fleet", metadata={}, spec=spec | {"suspend": False})
    eventually(lambda: caught.names() == FIXED)
    assert caught.stores.workloads.get(("example.com", "Fleet", "team", "f")) is None


def test_a_kind_that_becomes_a_link_is_no_workload_any_more(fake: FakeApi, caught: Caught) -> None:
    """And the other way round: its objects are in one of the two stores, whichever the policy says."""
    convoy = FLEET | {"name": "convoy", "match": {**FLEET["match"], "kind": "Convoy", "resource": "convoys"}}
    convoy |= {"owners": [{"group": "example.com", "kind": "Fleet"}]}
    fake.install("example.com/v1", "fleets", "Fleet")
    metadata = {"uid": "uid-f", "annotations": {"topogate.dev/prefer-topology": "rack"}}
    spec = {"size": 3, "template": {"spec": {"containers": []}}}
    path = "/apis/example.com/v1/namespaces/team/fleets/f"
    fake.put(path, apiVersion="example.com/v1", kind="Fleet", metadata=metadata, spec=spec)
    stores, known = caught.stores, ("example.com", "Fleet", "team", "f")
    caught.policy = default_policy().model_copy(update={"kinds": (FLEET, convoy)})
    caught.caches.start()
    eventually(lambda: stores.workloads.get(known) is not None)
    caught.policy = default_policy().model_copy(update={"kinds": (convoy,)})
    caught.caches.wake()
    eventually(lambda: stores.owned.get(known) is not None)
    assert stores.workloads.get(known) is None
    caught.policy = default_policy().model_copy(update={"kinds": (FLEET, convoy)})
    caught.caches.wake()
    eventually(lambda: stores.workloads.get(known) is not None)
    assert stores.owned.get(known) is None


class HeldFleet:
    """A workload that we hold, of a kind that the policy comes to know as a mere link to workloads."""

    key = ("example.com", "Fleet", "team", "f")
    path = "/apis/example.com/v1/namespaces/team/fleets/f"
    placed = FLEET | {"suspend": {"path": ".spec.suspend"}}
    convoy = FLEET | {
        "name": "convoy",
        "match": {**FLEET["match"], "kind": "Convoy", "resource": "convoys"},
        "owners": [{"group": "example.com", "kind": "Fleet"}],
    }

    def __init__(self, fake: FakeApi, caught: Caught) -> None:
        self.fake, self.caught = fake, caught
        fake.install("example.com/v1", "fleets", "Fleet")
        self.put(suspend=True, annotations={"topogate.dev/held-by": "suspend"})
        caught.policy = default_policy().model_copy(update={"kinds": (self.placed,)})
        caught.caches.start()
        assert caught.caches.wait_synced(60)

    def put(self, *, suspend: bool, **metadata: Any) -> None:
        spec = {"size": 3, "suspend": suspend, "template": {"spec": {"containers": []}}}
        self.fake.put(
            self.path, apiVersion="example.com/v1", kind="Fleet", metadata={"uid": "uid-f", **metadata}, spec=spec
        )

    def becomes_a_link(self) -> None:
        self.caught.policy = default_policy().model_copy(update={"kinds": (self.convoy,)})

    def is_let_go(self) -> None:
        """Once it is released, it is a link."""
        self.put(suspend=False)
        eventually(lambda: self.caught.stores.owned.get(self.key) is not None)
        assert self.caught.stores.workloads.get(self.key) is None


def test_a_held_workload_of_a_kind_that_becomes_a_link_stays_one_until_it_is_released(
    fake: FakeApi, caught: Caught
) -> None:
    """As where its kind leaves the policy altogether."""
    held = HeldFleet(fake, caught)
    held.becomes_a_link()
    assert caught.caches.look()
    assert caught.stores.workloads.get(held.key) is not None
    held.is_let_go()


def test_a_policy_that_changes_during_a_discovery_counts_from_the_next_one(
    fake: FakeApi, caught: Caught, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else objects would be read by the new policy into the store of the old one."""
    held, look = HeldFleet(fake, caught), Discovery.look

    def changed_meanwhile(self: Discovery, asked: Any) -> Any:
        found = look(self, asked)
        held.becomes_a_link()
        return found

    monkeypatch.setattr(Discovery, "look", changed_meanwhile)
    assert caught.caches.look()
    assert caught.caches.look()
    assert isinstance(caught.stores.workloads.get(held.key), Workload)
    held.is_let_go()


def test_labels_that_the_policy_makes_count_are_kept(fake: FakeApi, api: KubeClient) -> None:
    """Pods that are known already are read anew, and none of them goes meanwhile."""
    entry = {
        "name": "fleet",
        "match": {"group": "example.com", "versions": ["*"], "kind": "Fleet", "resource": "fleets"},
        "podSets": [
            {
                "name": {"text": "main"},
                "template": ".spec.template",
                "count": {"path": ".spec.size"},
                "rank": {"label": "example.com/index"},
            }
        ],
        "gang": {"unit": "workload", "creation": "all-at-once"},
        "replace": {"cost": "retry"},
    }
    stores, policies = Stores(), [default_policy()]
    told: list[bool] = []
    stores.pods.subscribe(lambda _key, _old, new: told.append(new is None))
    caches = Informers(api, stores, namespace="topogate-system", policy=lambda: policies[-1])
    fake.put("/api/v1/namespaces/team/pods/f-0", metadata={"labels": {"example.com/index": "3", "other": "x"}})
    caches.start()
    try:
        assert caches.wait_synced(60)
        known = stores.pods.get(("team", "f-0"))
        assert known is not None and known.spec.labels == {}
        policies.append(default_policy().model_copy(update={"kinds": (entry,)}))
        caches.follow()

        def labels() -> Any:
            read = stores.pods.get(("team", "f-0"))
            return dict(read.spec.labels) if read is not None else None

        eventually(lambda: labels() == {"example.com/index": "3"})
        assert told == [False, False]
    finally:
        caches.stop()


def test_links_between_pods_and_workloads_are_kept_small(fake: FakeApi, caught: Caught) -> None:
    """A ReplicaSet by its owner; a Deployment that says nothing to us by its name, one that does with its template."""
    apps = "/apis/apps/v1/namespaces/team"
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}
    fake.put(f"{apps}/replicasets/web-1", metadata={"uid": "r", "ownerReferences": [owner]})
    spec = {"replicas": 3, "template": {"spec": {"containers": []}}}
    fake.put(f"{apps}/deployments/web", metadata={"uid": "d"}, spec=spec)
    asking = {"topogate.dev/prefer-topology": "rack"}
    fake.put(f"{apps}/deployments/near", metadata={"uid": "n", "annotations": asking}, spec=spec)
    caught.caches.start()
    assert caught.caches.wait_synced(60)
    link = caught.stores.owned.get(("apps", "ReplicaSet", "team", "web-1"))
    assert link is not None and link.owner is not None
    assert (link.owner.name, caught.stores.owned.get_by("r")) == ("web", [link])
    web = caught.stores.workloads.get(("apps", "Deployment", "team", "web"))
    near = caught.stores.workloads.get(("apps", "Deployment", "team", "near"))
    assert web is not None and near is not None
    assert [one.templated for one in (*web.pod_sets, *near.pod_sets)] == [False, True]
    assert (web.unit, near.slots) == ("pod", 3)
    fake.put(f"{apps}/deployments/web", metadata={"annotations": asking})

    def whole() -> bool:
        known = caught.stores.workloads.get(web.key)
        return known is not None and known.pod_sets[0].templated

    eventually(whole)


HOSTILE: list[Any] = [
    7,
    {"replicatedJobs": "none"},
    {"replicatedJobs": [{"name": "a", "replicas": -1, "template": {"spec": {"template": {"spec": {}}}}}]},
    {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": {"spec": {"containers": 7}}}}}]},
    {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": {"spec": {}}}}}] * 2},
    {"replicatedJobs": [{"name": f"j{at}", "template": {"spec": {"template": {}}}} for at in range(1000)]},
]


@pytest.mark.parametrize("spec", HOSTILE)
def test_an_object_that_cannot_be_read_harms_no_other(fake: FakeApi, caught: Caught, spec: Any) -> None:
    """It is left out and counted, the watch goes on; once it can be read it is there."""
    fake.install("jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet")
    put_jobset(fake, "good")
    fake.put(f"{JOBSETS}/namespaces/team/jobsets/bad", apiVersion="jobset.x-k8s.io/v1alpha2", kind="JobSet", spec=spec)
    caught.caches.start()
    assert caught.caches.wait_synced(60)
    reflector = caught.caches.reflectors()["jobsets.jobset.x-k8s.io"]
    assert reflector.left_out == 1
    assert [one.name for one in caught.stores.workloads.values()] == ["good"]
    fake.remove(f"{JOBSETS}/namespaces/team/jobsets/bad")
    eventually(lambda: reflector.left_out == 0)
    put_jobset(fake, "bad")
    eventually(lambda: caught.stores.workloads.get(key("bad")) is not None)
    fake.put(f"{JOBSETS}/namespaces/team/jobsets/bad", spec=spec)
    eventually(lambda: caught.stores.workloads.get(key("bad")) is None)
    assert reflector.left_out == 1


def test_a_new_leader_knows_the_kinds_of_this_moment(fake: FakeApi, api: KubeClient) -> None:
    """Its refresh looks for kinds before it reads them."""
    stores = Stores()
    caches = Informers(api, stores, namespace="topogate-system")
    caches.start()
    try:
        assert caches.wait_synced(60)
        fake.install("jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet")
        put_jobset(fake)
        assert caches.refresh(60)
        assert stores.workloads.get(key()) is not None
        assert {"jobsets.jobset.x-k8s.io", "jobs", "pods"} <= caches.reflectors().keys()
        assert caches.reflectors()["jobsets.jobset.x-k8s.io"].left_out == 0
        fake.fault(Answer(500), when=lambda request: request.path == "/apis")
        assert not caches.refresh(60)
    finally:
        caches.stop()


def test_a_right_that_is_lost_for_one_kind_stops_no_new_leader(fake: FakeApi, api: KubeClient) -> None:
    """A replica that knows objects of the kind leads as one that leads already: with what it has read of them."""
    fake.install("jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet")
    put_jobset(fake)
    stores = Stores()
    caches = Informers(api, stores, namespace="topogate-system")
    caches.start()
    try:
        assert caches.wait_synced(60)
        path = f"{JOBSETS}/jobsets"
        fake.fault(Answer(403, {"reason": "Forbidden"}), when=lambda request: request.path == path, times=10_000)
        fake.drop_watches()
        eventually(lambda: caches.kinds.hidden() == {("jobset.x-k8s.io", "JobSet")})
        assert caches.refresh(60)
        assert stores.workloads.get(key()) is not None
        pods = "/api/v1/pods"
        fake.fault(Answer(403, {"reason": "Forbidden"}), when=lambda request: request.path == pods, times=10_000)
        assert not caches.refresh(5)
    finally:
        caches.stop()


def test_nothing_to_ask_at_all_is_a_fault(fake: FakeApi, api: KubeClient) -> None:
    """The caller keeps what it has."""
    fake.fault(Answer(500), when=lambda request: request.path == "/apis")
    with pytest.raises(ApiFault):
        Discovery(api).look(wanted_kinds(built_in()))
