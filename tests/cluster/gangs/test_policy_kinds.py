"""A kind of the admin's own on a running service: rights, webhooks, gangs, and what becomes of it without its entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner

from engine.api import names
from local.controlplane import ControlPlane
from local.service import Service
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.definitions import Definition
from tests.support.eventually import eventually
from tests.support.gangs import Json, Namespace, job_body, require
from tests.support.imitations.spark import SparkApplications
from tests.support.metric_pages import every_replica_tells
from tests.support.raw_pods import held
from webhook.cli import main

ADDED = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/topogate-policy"
GROUP = "benches.topogate.example.com"
BENCHES = Definition(GROUP, "Bench", "benches")
SPARK = SparkApplications.definition()
INDEX = f"{GROUP}/index"
KINDS = f"""
kinds:
- name: bench
  match: {{group: {GROUP}, versions: [v1], kind: Bench, resource: benches}}
  podSets:
  - name: {{text: main}}
    role: worker
    template: .spec.template
    count: {{path: .spec.replicas, default: 1}}
    rank: {{label: {INDEX}}}
  gang: {{unit: workload, creation: all-at-once}}
  suspend: {{path: .spec.suspend}}
  replace: {{cost: free}}
"""
POLICY = TEST_POLICY + KINDS


class Benches:
    """The kind's user, and its controller: pods of the template, each with its index."""

    def __init__(self, gangs: Namespace, kind: Definition = BENCHES) -> None:
        self.gangs = gangs
        version = f"{kind.group}/{kind.versions[0]}"
        self.head = {"apiVersion": version, "kind": kind.kind}
        self.collection = f"/apis/{version}/namespaces/{gangs.name}/{kind.plural}"
        self.pods_path = f"/api/v1/namespaces/{gangs.name}/pods"

    def submit(self, name: str, *, replicas: int, dry_run: bool = False) -> Json:
        template = job_body(name, pods=1, selector=self.gangs.fleet.selector)["spec"]["template"]
        body = {
            **self.head,
            "metadata": {"name": name, "annotations": require("rack")},
            "spec": {"replicas": replicas, "template": template},
        }
        stored: Json = self.gangs.client.create(self.collection, body, dry_run=dry_run)
        return stored

    def get(self, name: str) -> Json:
        found: Json = self.gangs.client.get(f"{self.collection}/{name}")
        return found

    def resumed(self, name: str) -> Json:
        """Wait until it is not suspended; the object."""
        eventually(lambda: not self.get(name)["spec"].get("suspend"), message=lambda: f"{name} runs: {self.get(name)}")
        return self.get(name)

    def run(self, bench: Json) -> None:
        """What its controller does with one that is not suspended."""
        metadata = bench["metadata"]
        owner = {**self.head, "name": metadata["name"], "uid": metadata["uid"]}
        template = bench["spec"]["template"]
        for index in range(bench["spec"]["replicas"]):
            told = template.get("metadata") or {}
            labels = {**(told.get("labels") or {}), INDEX: str(index)}
            body = {
                "metadata": {
                    "name": f"{metadata['name']}-{index}",
                    "labels": labels,
                    "annotations": told.get("annotations") or {},
                    "ownerReferences": [{**owner, "controller": True}],
                },
                "spec": template["spec"],
            }
            self.gangs.client.create(self.pods_path, body)

    def pods(self, name: str) -> list[Json]:
        return [
            pod
            for pod in self.gangs.client.items(self.pods_path)
            if [owner["name"] for owner in pod["metadata"].get("ownerReferences", [])] == [name]
        ]

    def all_bound(self, name: str, count: int) -> dict[int, str]:
        """Wait until `count` pods of one are bound; index -> host."""

        def look() -> dict[int, str] | None:
            pods = self.pods(name)
            hosts = {int(one["metadata"]["labels"][INDEX]): one["spec"].get("nodeName") for one in pods}
            return hosts if len(hosts) == count and all(hosts.values()) else None

        found = eventually(look, message=lambda: f"{count} pods of {name} bound: {self.pods(name)}")
        assert found is not None
        return found


@pytest.fixture
def grant(control_plane: ControlPlane) -> Iterator[Callable[[], object]]:
    """Gives the service the rights that the check prints."""
    checked = CliRunner().invoke(main, ["policy", "check", "-"], input=POLICY)
    assert checked.exit_code == 0
    yield lambda: control_plane.kubectl("apply", "-f", "-", input=checked.stdout)
    control_plane.kubectl("delete", "--ignore-not-found", "-f", "-", input=checked.stdout)


@pytest.fixture
def ungranted(gangs: Namespace, policy: PolicyInForce) -> Iterator[Benches]:
    """The kind is installed, and has its entry in the policy."""
    client = gangs.client
    BENCHES.install(client)
    policy.set(POLICY)
    made = Benches(gangs)
    eventually(
        lambda: made.submit("probe", replicas=1, dry_run=True)["spec"].get("suspend"), message="it is sent to us"
    )
    yield made
    policy.set(TEST_POLICY)
    BENCHES.remove(client)


@pytest.fixture
def benches(grant: Callable[[], object], request: pytest.FixtureRequest) -> Benches:
    """The same, with the rights given before."""
    grant()
    made: Benches = request.getfixturevalue("ungranted")
    return made


def test_a_kind_of_the_policy_is_held_placed_and_pinned(gangs: Namespace, benches: Benches) -> None:
    """As the built-in kinds are: suspended when created, planned as a gang, each pod on the host of its rank."""
    hosts = gangs.fleet.grid("1x2x3")
    stored = benches.submit("train", replicas=3)
    assert stored["spec"]["suspend"] is True
    assert stored["metadata"]["annotations"][names.HELD_BY] == names.HELD_BY_SUSPEND
    benches.run(benches.resumed("train"))
    bound = benches.all_bound("train", 3)
    assert len(gangs.racks(bound)) == 1
    assert [bound[index] for index in range(3)] == [host for host in hosts if host in set(bound.values())]
    placement = gangs.placement("train")
    assert placement is not None
    assert placement["spec"]["workload"]["kind"] == "Bench"
    assert {pod["metadata"]["labels"][names.GANG] for pod in benches.pods("train")} == {placement["metadata"]["name"]}


@pytest.fixture
def own_spark(gangs: Namespace, policy: PolicyInForce) -> Iterator[Benches]:
    """A kind that is built in, read by an entry of the policy that is older than the built-in one.

    A kind whose controller is imitated: the definition has no schema, also where another test has installed it.
    """
    SPARK.install(gangs.client)
    match = f"group: {SPARK.group}, versions: {list(SPARK.versions)}, kind: {SPARK.kind}, resource: {SPARK.plural}"
    policy.set(POLICY.replace(f"group: {GROUP}, versions: [v1], kind: Bench, resource: benches", match))
    made = Benches(gangs, SPARK)
    eventually(
        lambda: made.submit("probe", replicas=1, dry_run=True)["spec"].get("suspend"), message="its entry is in force"
    )
    yield made
    policy.set(TEST_POLICY)


def test_an_entry_of_the_policy_stays_in_force_when_its_kind_is_built_in(gangs: Namespace, own_spark: Benches) -> None:
    """An upgrade that brings an entry for the kind changes nothing: other templates, other suspension, other ranks."""
    gangs.fleet.grid("1x2x3")
    stored = own_spark.submit("train", replicas=3)
    assert stored["spec"]["template"]["metadata"]["labels"][names.POD_SET] == "main"
    own_spark.run(own_spark.resumed("train"))
    assert len(gangs.racks(own_spark.all_bound("train", 3))) == 1
    placement = gangs.placement("train")
    assert placement is not None
    assert placement["spec"]["workload"]["kind"] == "SparkApplication"


def test_without_its_entry_what_waits_is_let_go_and_what_runs_is_left_alone(
    gangs: Namespace, benches: Benches, policy: PolicyInForce
) -> None:
    """Nobody else would resume what the service suspended; pods that are made then are not held."""
    gangs.fleet.grid("1x1x2")
    benches.submit("runs", replicas=2)
    benches.run(benches.resumed("runs"))
    bound = benches.all_bound("runs", 2)
    benches.submit("waits", replicas=2)
    gangs.waits("waits")
    policy.set(TEST_POLICY)
    freed = benches.resumed("waits")
    assert names.HELD_BY not in freed["metadata"]["annotations"]
    benches.run(freed)
    eventually(
        lambda: len(benches.pods("waits")) == 2 and not any(map(held, benches.pods("waits"))),
        message=lambda: f"its pods are not held: {benches.pods('waits')}",
    )
    eventually(lambda: gangs.placement("waits") is None, message="nothing is left of its Placement")
    eventually(lambda: not gangs.client.get(ADDED).get("webhooks"), message="the kind is sent to us no more")
    assert {int(one["metadata"]["labels"][INDEX]): one["spec"]["nodeName"] for one in benches.pods("runs")} == bound


def test_without_the_rights_it_is_held_and_told_and_goes_on_when_they_are_given(
    gangs: Namespace, ungranted: Benches, grant: Callable[[], object], service: Service
) -> None:
    """A missing right is seen in the metrics of every replica; nothing has to be restarted."""
    gangs.fleet.grid("1x1x2")
    ungranted.submit("train", replicas=2)
    told = f'topogate_forbidden_collections{{collection="benches.{GROUP}"}} 1.0'
    every_replica_tells(service, told, "every replica says that it may not read the kind")
    assert gangs.placement("train") is None
    grant()
    ungranted.run(ungranted.resumed("train"))
    ungranted.all_bound("train", 2)
