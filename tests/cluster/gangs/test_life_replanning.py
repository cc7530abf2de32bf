"""When the room of a placed gang is taken by others: it is planned again where that is free, and no retry is used."""

from __future__ import annotations

import os
import signal

import pytest

from local.client import ClientError
from local.controlplane import ControlPlane
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.eventually import eventually
from tests.support.gang_steps import assigned, failures, occupy, status_of, vacate
from tests.support.gangs import Json, Namespace, require
from tests.support.raw_pods import held

pytestmark = pytest.mark.core

IMPATIENT = TEST_POLICY + "timeouts: {bind: 1s}\n"
FOREIGN_GATE = "example.com/quota"
NOISY = {"example.com/noise": "loud"}


def _quiet() -> Json:
    """Part of a pod spec: never beside a noisy pod on one host, by a namespaceSelector that the planner cannot read."""
    anywhere = {"matchExpressions": [{"key": "example.com/none", "operator": "DoesNotExist"}]}
    about = {"labelSelector": {"matchLabels": NOISY}, "namespaceSelector": anywhere}
    term = {"topologyKey": "kubernetes.io/hostname", **about}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _open_foreign_gates(gangs: Namespace, job: str, *, first: int = 0) -> None:
    """Somebody lets the pods of a Job go as far as he is concerned, beginning with one index."""
    pods = gangs.pods(job)
    pods.sort(key=lambda pod: pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] != str(first))
    for pod in pods:
        path = f"/api/v1/namespaces/{gangs.name}/pods/{pod['metadata']['name']}"
        gates = [gate for gate in pod["spec"].get("schedulingGates", []) if gate["name"] != FOREIGN_GATE]
        try:
            gangs.client.patch(path, {"spec": {"schedulingGates": gates}})
        except ClientError as error:
            if error.reason != "NotFound":  # the gang is suspended as soon as a pod is let go, or before
                raise


def _behind_both_gates(gangs: Namespace, job: str, *, outside: set[str]) -> None:
    """Wait until both pods of a Job are held by both gates and the gang has two hosts outside a set."""

    def look() -> bool:
        pods = [pod for pod in gangs.pods(job) if "deletionTimestamp" not in pod["metadata"]]
        hosts = set(assigned(gangs, job))
        return (
            len(pods) == 2
            and all(len(pod["spec"].get("schedulingGates", [])) == 2 for pod in pods)
            and len(hosts) == 2
            and not hosts & outside
        )

    eventually(look, message=lambda: f"{job} is placed outside {outside} and held\n{gangs.describe(job)}")


def test_room_taken_before_the_release_sends_the_whole_gang_elsewhere(gangs: Namespace) -> None:
    """A foreign gate holds the pods; meanwhile another pod sits down in a slot: suspended, planned anew, resumed."""
    gangs.fleet.grid("1x2x2")
    gangs.submit(
        "train",
        pods=2,
        annotations=require("rack"),
        pod_spec={"schedulingGates": [{"name": FOREIGN_GATE}]},
    )
    _behind_both_gates(gangs, "train", outside=set())
    first = set(assigned(gangs, "train"))
    slots = (gangs.placement("train") or {})["spec"]["assignment"]["podSets"][0]["slots"]
    occupy(gangs, slots[1]["domain"][-1], gpus=1)
    _open_foreign_gates(gangs, "train", first=1)
    _behind_both_gates(gangs, "train", outside=first)
    _open_foreign_gates(gangs, "train")
    assert not first & set(gangs.all_bound("train", 2).values())
    assert failures(gangs, "train") == 0
    assert "held-by" not in str(gangs.job("train")["metadata"]["annotations"])


def test_a_gang_that_the_scheduler_refuses_is_planned_on_other_hosts(gangs: Namespace, policy: PolicyInForce) -> None:
    """A noisy pod is on every pinned host, which no plan can see: after timeouts.bind the gang goes to hosts
    that the scheduler accepts, and the Job (backoffLimit 0) has lost nothing."""
    policy.set(IMPATIENT)
    hosts = gangs.fleet.grid("1x1x2")
    for host in hosts:
        occupy(gangs, host, gpus=0, labels=NOISY)
    others = [gangs.fleet.host(f"host-{number:03}", block="block-0", rack="rack-01") for number in (2, 3, 4)]
    gangs.submit("train", pods=2, annotations=require("rack"), pod_spec=_quiet())
    assert set(gangs.all_bound("train", 2).values()) <= set(others)
    eventually(
        lambda: _quoted(gangs, "train"),
        message=lambda: f"the tighter rack was tried first\n{gangs.describe('train')}",
    )
    assert failures(gangs, "train") == 0


def test_a_gang_whose_volume_claim_is_missing_gives_its_room_back(gangs: Namespace, policy: PolicyInForce) -> None:
    """No host would do: it waits with the scheduler's words, and the next gang gets the rack."""
    policy.set(IMPATIENT)
    gangs.fleet.grid("1x1x2")
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "no-such-claim"}}]
    gangs.submit("train", pods=2, annotations=require("rack"), pod_spec={"volumes": volumes})

    def waits() -> bool:
        status = status_of(gangs, "train")
        said = str(status.get("message"))
        return (status.get("phase"), status.get("reason")) == ("Waiting", "SchedulerRefused") and "no-such" in said

    eventually(waits, message=lambda: f"it waits and quotes the scheduler\n{gangs.describe('train')}")
    gangs.submit("other", pods=2, annotations=require("rack"))
    gangs.all_bound("other", 2)
    assert failures(gangs, "train") == 0


def test_a_gang_that_the_scheduler_refuses_everywhere_waits_and_quotes_it(
    gangs: Namespace, policy: PolicyInForce
) -> None:
    """With no other rack it waits with the scheduler's own words, its Job suspended again and without a failure."""
    policy.set(IMPATIENT)
    hosts = gangs.fleet.grid("1x1x2")
    for host in hosts:
        occupy(gangs, host, gpus=0, labels=NOISY)
    gangs.submit("train", pods=2, annotations=require("rack"), pod_spec=_quiet())
    eventually(
        lambda: _quoted(gangs, "train"), message=lambda: f"an Event quotes the scheduler\n{gangs.describe('train')}"
    )
    gangs.waits("train")
    # It is tried again when the hosts are back, a minute later: on a slow machine at any moment.
    eventually(lambda: gangs.pods("train") == [] and gangs.job("train")["spec"]["suspend"], message="the pods are gone")
    assert failures(gangs, "train") == 0


def test_a_scheduler_that_is_away_is_waited_for(
    gangs: Namespace, policy: PolicyInForce, control_plane: ControlPlane
) -> None:
    """While it says nothing the gang keeps its hosts, though others are free, and tells so; then it starts there."""
    policy.set(IMPATIENT)
    gangs.fleet.grid("1x2x2")
    scheduler = control_plane.pids["kube-scheduler"]
    os.kill(scheduler, signal.SIGSTOP)
    try:
        gangs.submit("train", pods=2, annotations=require("rack"), pod_spec=_quiet())
        _says(gangs, "train", "Placed", "SchedulerSilent")
        before, since = assigned(gangs, "train"), gangs.job("train")["metadata"]["generation"]
    finally:
        os.kill(scheduler, signal.SIGCONT)
    assert set(gangs.all_bound("train", 2).values()) == set(before)
    assert gangs.job("train")["metadata"]["generation"] == since


def test_a_gang_of_which_a_part_has_started_stays_and_says_what_it_lacks(
    gangs: Namespace, policy: PolicyInForce
) -> None:
    """One pod of two cannot be bound: nobody is killed for it; Incomplete, until its place is free."""
    policy.set(IMPATIENT)
    hosts = gangs.fleet.grid("1x1x2")
    other = occupy(gangs, hosts[1], gpus=0, labels=NOISY)
    gangs.submit("train", pods=2, annotations=require("rack"), pod_spec=_quiet())
    _says(gangs, "train", "Incomplete", "SchedulerRefused")
    assert "anti-affinity" in status_of(gangs, "train")["message"]
    (started,) = (pod["metadata"]["uid"] for pod in gangs.pods("train") if pod["spec"].get("nodeName"))
    vacate(gangs, other)
    bound = gangs.all_bound("train", 2)
    assert [bound[0], bound[1]] == hosts
    assert started in [pod["metadata"]["uid"] for pod in gangs.pods("train")]
    assert not any(map(held, gangs.pods("train")))
    eventually(lambda: gangs.phase("train") == "Running", message="the gang is whole")
    assert failures(gangs, "train") == 0


def test_a_refused_pod_of_a_job_that_ignores_disruptions_is_replaced_without_a_failure(
    gangs: Namespace, policy: PolicyInForce
) -> None:
    """A part has started; the pod that cannot be bound comes again elsewhere, and one failure would end the Job."""
    policy.set(IMPATIENT)
    hosts = gangs.fleet.grid("1x1x2")
    occupy(gangs, hosts[1], gpus=0, labels=NOISY)
    ignored = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    spec = {"podFailurePolicy": ignored}
    gangs.submit("train", pods=2, annotations=require("rack"), pod_spec=_quiet(), spec=spec)

    def lacks_a_pod() -> bool:
        """Not before one has started: both are moved where the scheduler is so slow that it refuses one first."""
        status = status_of(gangs, "train")
        return status.get("phase") == "Incomplete" and "not bound after 1 s" in str(status)

    eventually(lacks_a_pod, message=lambda: f"it says what it lacks\n{gangs.describe('train')}")
    started, late = (
        pod["metadata"]["uid"] for pod in sorted(gangs.pods("train"), key=lambda pod: "nodeName" not in pod["spec"])
    )
    free = gangs.fleet.host("host-002", block="block-0", rack="rack-00")
    # Pods that were never bound are marked as failed, and then replaced, in rounds of 20 s.
    bound = gangs.all_bound("train", 2, 90.0)
    assert [bound[0], bound[1]] == [hosts[0], free]
    left = {pod["metadata"]["uid"]: pod["status"]["phase"] for pod in gangs.pods("train")}
    assert started in left
    assert left.get(late, "Failed") == "Failed"
    assert failures(gangs, "train") == 0


def _says(gangs: Namespace, job: str, phase: str, reason: str) -> None:
    """Wait until a gang's status says this."""

    def look() -> bool:
        status = status_of(gangs, job)
        return (status.get("phase"), status.get("reason")) == (phase, reason)

    eventually(look, message=lambda: f"{job} is {phase} for {reason}\n{gangs.describe(job)}")


def _quoted(gangs: Namespace, job: str) -> bool:
    events = gangs.client.items(f"/apis/events.k8s.io/v1/namespaces/{gangs.name}/events")
    return any(
        event["regarding"]["name"] == job
        and event.get("reason") == "SchedulerRefused"
        and "anti-affinity" in event.get("note", "")
        for event in events
    )
