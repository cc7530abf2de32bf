"""What users, admins and other admission plugins change about a gang, and what becomes of it then."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from engine.cluster.server_version import keeps_resources
from local.client import Client
from local.nodes import HostShape
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.eventually import eventually
from tests.support.gang_steps import assigned, failures, held_pods, occupy, vacate
from tests.support.gangs import Json, Namespace, job_body, prefer, require
from tests.support.raw_pods import held

pytestmark = pytest.mark.core

Kubectl = Callable[..., subprocess.CompletedProcess[str]]
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
POOL = "example.com/pool"


def _patch(gangs: Namespace, job: str, body: Json) -> None:
    gangs.client.patch(f"{gangs.jobs_path}/{job}", body)


def _only(resources: Json) -> Json:
    """A pod spec with one container of these resources."""
    return {"containers": [{"name": "main", "image": "example.com/train:1", "resources": resources}]}


@pytest.fixture
def runtime_class(client: Client, namespace: str) -> Iterator[str]:
    """A RuntimeClass whose pods cost a core more than they ask for."""
    overhead = {"podFixed": {"cpu": "1"}}
    client.create(RUNTIME_CLASSES, {"metadata": {"name": namespace}, "handler": "sandbox", "overhead": overhead})
    yield namespace
    client.delete(f"{RUNTIME_CLASSES}/{namespace}")


def test_a_waiting_gang_that_its_user_makes_smaller_starts(gangs: Namespace) -> None:
    """Four pods do not fit three hosts; three do."""
    gangs.fleet.grid("1x1x3")
    gangs.submit("train", pods=4, annotations=require("rack"))
    gangs.waits("train")
    _patch(gangs, "train", {"spec": {"parallelism": 3, "completions": 3}})
    gangs.all_bound("train", 3)


def test_a_waiting_gang_whose_user_prefers_what_he_required_starts(gangs: Namespace) -> None:
    """The annotations change, nothing else; no Job has to be deleted and made again."""
    gangs.fleet.grid("1x2x2")
    gangs.submit("train", pods=3, annotations=require("rack"))
    gangs.waits("train")
    change = {"topogate.dev/require-topology": None, "topogate.dev/prefer-topology": "rack"}
    _patch(gangs, "train", {"metadata": {"annotations": change}})
    assert len(gangs.racks(gangs.all_bound("train", 3))) == 2


def test_a_waiting_gang_with_another_node_selector_starts_there(gangs: Namespace) -> None:
    """While it is suspended the template may change; our marks on it stay."""
    hosts = gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=2, annotations=require("rack"), selector={**gangs.fleet.selector, POOL: "old"})
    gangs.waits("train")
    for host in hosts:
        gangs.fleet.patch(host, {"metadata": {"labels": {POOL: "new"}}})
    _patch(gangs, "train", {"spec": {"template": {"spec": {"nodeSelector": {POOL: "new"}}}}})
    gangs.all_bound("train", 2)
    assert held(gangs.job("train")["spec"]["template"])


def test_a_waiting_job_that_asks_for_nothing_any_more_runs_like_any_other(gangs: Namespace) -> None:
    """Its annotation goes: resumed, no gate, no Placement, as many pods as the scheduler finds room for."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=3, annotations=require("rack"))
    gangs.waits("train")
    _patch(gangs, "train", {"metadata": {"annotations": {"topogate.dev/require-topology": None}}})
    gangs.all_bound("train", 2)
    assert not any(map(held, gangs.pods("train")))
    eventually(lambda: gangs.placement("train") is None, message="nothing is left of its Placement")
    template = gangs.job("train")["spec"]["template"]
    assert not held(template)
    assert "topogate.dev/managed" not in json.dumps(template)


def test_a_resumed_job_that_asks_for_nothing_any_more_has_its_pods_let_go(gangs: Namespace) -> None:
    """Its template is fixed and carries the gate: the leader takes it off the pods."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=3, annotations=require("rack"))
    gangs.waits("train")
    _patch(gangs, "train", {"spec": {"suspend": False}})
    held_pods(gangs, "train", 3)
    _patch(gangs, "train", {"metadata": {"annotations": {"topogate.dev/require-topology": None}}})
    eventually(lambda: not any(map(held, gangs.pods("train"))), message="no pod is held any more")
    assert len(gangs.pods("train")) == 3
    gangs.all_bound("train", 2)


def test_a_running_gang_keeps_its_request_until_its_user_says_that_he_means_it(
    gangs: Namespace, kubectl: Kubectl
) -> None:
    """A manifest that has lost it is refused; said in so many words it goes, and put back it reaches new pods only."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.all_bound("train", 2)
    gangs.slots_seen("train")
    gone = "topogate.dev/require-topology-"
    refused = kubectl("annotate", "job", "train", gone, check=False)
    assert "would lose its slots" in refused.stderr
    assert gangs.placement("train") is not None
    meant = kubectl("annotate", "job", "train", gone, "topogate.dev/unconstrained-topology=false")
    assert "Warning: topogate: the request was removed" in meant.stderr
    eventually(lambda: gangs.placement("train") is None, message="its slots are given back")
    assert len(gangs.bound("train")) == 2
    back = kubectl(
        "annotate", "job", "train", "topogate.dev/require-topology=rack", "topogate.dev/unconstrained-topology-"
    )
    assert "Warning: topogate: the Job is already running" in back.stderr
    assert len(gangs.bound("train")) == 2


@pytest.mark.since("1.36", "container resources of a suspended Job may change")
def test_a_waiting_gang_may_ask_for_gpus_by_another_name(gangs: Namespace, kubectl: Kubectl) -> None:
    """Applied again with the name that the nodes report: what was completed of the old one is in nobody's manifest."""
    gangs.fleet.grid("1x1x2")
    body = job_body("train", pods=2, annotations=require("rack"), selector=gangs.fleet.selector)
    resources = body["spec"]["template"]["spec"]["containers"][0]["resources"]
    del resources["limits"]
    resources["requests"]["koordinator.sh/gpu"] = "50"
    kubectl("apply", "-f", "-", input=json.dumps(body))
    gangs.waits("train")
    del resources["requests"]["koordinator.sh/gpu"]
    resources["limits"] = {"nvidia.com/gpu": "1"}
    kubectl("apply", "-f", "-", input=json.dumps(body))
    gangs.all_bound("train", 2)


def test_other_resources_of_a_waiting_job_are_taken_or_named(gangs: Namespace, kubectl: Kubectl) -> None:
    """Before Kubernetes 1.36 the API server refuses them and prints the whole template: the warning names them."""
    gangs.fleet.grid("1x1x1")
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.waits("train")
    path = "/spec/template/spec/containers/0/resources"
    smaller = [{"op": "replace", "path": path, "value": {"limits": {"nvidia.com/gpu": "4"}}}]
    answer = kubectl("patch", "job", "train", "--type=json", f"--patch={json.dumps(smaller)}", check=False)
    told = "Warning: topogate: containers[0].resources of a Job is fixed: create it again"
    if keeps_resources(gangs.client.get("/version")["gitVersion"]):
        assert answer.returncode == 1
        assert answer.stderr.startswith(told)
        assert "field is immutable" in answer.stderr
    else:
        assert (answer.returncode, told in answer.stderr) == (0, False)
        gangs.all_bound("train", 2)


def test_whoever_resumes_a_waiting_gang_is_told_that_its_pods_are_held(gangs: Namespace, kubectl: Kubectl) -> None:
    """The resume goes through, and the pods wait with our gate."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=3, annotations=require("rack"))
    gangs.waits("train")
    answer = kubectl("patch", "job", "train", "-p", '{"spec":{"suspend":false}}')
    assert "Warning: topogate: the gang has no slots yet" in answer.stderr
    held_pods(gangs, "train", 3)


def test_fewer_completions_than_parallelism_are_the_gang(gangs: Namespace) -> None:
    """Only two pods will ever run: two hosts are enough."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=5, completions=2, annotations=require("rack"))
    gangs.all_bound("train", 2)


def test_a_new_node_counts_when_it_has_settled(gangs: Namespace, policy: PolicyInForce) -> None:
    """Its DaemonSet pods come first: until then the gang waits, and says for what."""
    policy.set(TEST_POLICY.replace("settle: 0s", "settle: 20s"))
    gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=2, annotations=require("rack"))
    message = gangs.waits("train")["status"]["message"]
    assert "2 just joined" in message
    gangs.all_bound("train", 2)


def test_a_job_of_a_cron_job_is_held_like_any_other(gangs: Namespace, kubectl: Kubectl) -> None:
    """Suspended while there is no room, resumed when there is."""
    hosts = gangs.fleet.grid("1x1x2")
    other = occupy(gangs, hosts[0])
    body = job_body("nightly", pods=2, annotations=require("rack"), selector=gangs.fleet.selector)
    template = {"metadata": {"annotations": require("rack")}, "spec": body["spec"]}
    kubectl(
        *("create", "-f", "-"),
        input=json.dumps(
            {
                "apiVersion": "batch/v1",
                "kind": "CronJob",
                "metadata": {"name": "nightly"},
                "spec": {"schedule": "0 0 31 2 *", "jobTemplate": template},
            }
        ),
    )
    kubectl("create", "job", "tonight", "--from=cronjob/nightly")
    gangs.waits("tonight")
    assert gangs.job("tonight")["spec"]["suspend"] is True
    vacate(gangs, other)
    gangs.all_bound("tonight", 2)


def test_a_job_of_another_controller_is_held_by_the_gate_alone(gangs: Namespace) -> None:
    """Its owner decides about suspension: we leave that alone, and hold the pods."""
    hosts = gangs.fleet.grid("1x1x2")
    other = occupy(gangs, hosts[0])
    owner = gangs.client.create(
        f"/api/v1/namespaces/{gangs.name}/configmaps", {"metadata": {"name": "operator"}, "data": {}}
    )
    body = job_body("train", pods=2, annotations=require("rack"), selector=gangs.fleet.selector)
    body["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "operator",
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
    ]
    stored = gangs.client.create(gangs.jobs_path, body)
    assert not stored["spec"].get("suspend")
    held_pods(gangs, "train", 2)
    gangs.waits("train")
    vacate(gangs, other)
    gangs.all_bound("train", 2)
    assert failures(gangs, "train") == 0


def test_pods_that_a_limit_range_makes_larger_than_planned_are_planned_again(gangs: Namespace) -> None:
    """The template asks for GPUs alone, so four pods seem to fit a host; each becomes 2 cores, so one does."""
    gangs.fleet.grid("1x1x4", shape=HostShape(cpu="3"))
    limits = [{"type": "Container", "defaultRequest": {"cpu": "2"}}]
    gangs.client.create(
        f"/api/v1/namespaces/{gangs.name}/limitranges", {"metadata": {"name": "team"}, "spec": {"limits": limits}}
    )
    gangs.submit("train", pods=4, annotations=require("rack"), pod_spec=_only({"limits": {"nvidia.com/gpu": "2"}}))
    bound = gangs.all_bound("train", 4)
    assert sorted(Counter(bound.values()).values()) == [1, 1, 1, 1]
    assert failures(gangs, "train") == 0
    assert assigned(gangs, "train") == Counter(bound.values())


def test_the_overhead_of_a_runtime_class_is_part_of_the_shape(gangs: Namespace, runtime_class: str) -> None:
    """One core asked, two used: a host of three takes one pod; the Placement tells what the slots are for."""
    gangs.fleet.grid("1x1x2", shape=HostShape(cpu="3", gpus=0))
    pod = {**_only({"requests": {"cpu": "1"}}), "runtimeClassName": runtime_class}
    gangs.submit("large", pods=3, annotations=require("rack"), pod_spec=pod)
    gangs.waits("large")
    gangs.submit("train", pods=2, annotations=require("rack"), pod_spec=pod)
    assert len(set(gangs.all_bound("train", 2).values())) == 2
    placed = gangs.placement("train")
    assert placed is not None
    assert placed["spec"]["assignment"]["podSets"][0]["requests"] == {"cpu": "2", "pods": "1"}


def test_a_job_with_a_generated_name_as_long_as_allowed_is_placed(gangs: Namespace) -> None:
    """No name at mutate, as long as Jobs may be at the end: the Placement and the gang label have room for it."""
    gangs.fleet.grid("1x1x2")
    body = job_body("", pods=2, annotations=require("rack"), selector=gangs.fleet.selector)
    del body["metadata"]["name"]
    body["metadata"]["generateName"] = "x" * 55 + "-"
    name = gangs.client.create(gangs.jobs_path, body)["metadata"]["name"]
    assert len(name) == 61  # with "-1" of the pods 63
    gangs.all_bound(name, 2)
    placement = gangs.placement(name)
    assert placement is not None
    gang = placement["metadata"]["name"]
    assert len(gang) <= 63
    assert {pod["metadata"]["labels"]["topogate.dev/gang"] for pod in gangs.pods(name)} == {gang}


def test_a_host_that_is_cordoned_or_dies_under_a_running_gang_moves_nobody(gangs: Namespace) -> None:
    """A short flap: the same pods, the same assignment, no failure; new gangs stay away."""
    hosts = gangs.fleet.grid("1x1x3")
    gangs.submit("train", pods=2, annotations=require("rack"))
    bound = gangs.all_bound("train", 2)
    pods = {pod["metadata"]["uid"] for pod in gangs.pods("train")}
    before = assigned(gangs, "train")
    gangs.fleet.cordon(bound[0])
    gangs.fleet.fail(bound[1])
    gangs.submit("probe", pods=2, gpus=0, annotations=prefer("rack"))
    assert set(gangs.all_bound("probe", 2).values()) == set(hosts) - set(bound.values())
    gangs.fleet.recover(bound[1])
    assert gangs.bound("train") == bound
    assert {pod["metadata"]["uid"] for pod in gangs.pods("train")} == pods
    assert assigned(gangs, "train") == before
    assert failures(gangs, "train") == 0


def test_under_strict_order_what_only_its_own_namespace_can_mend_blocks_nobody_else(
    gangs: Namespace, policy: PolicyInForce
) -> None:
    """A gang that never fits and one beyond its quota stand at the head: the ones behind them go."""
    policy.set(TEST_POLICY + "queue: {order: strict}\n")
    quotas = f"/api/v1/namespaces/{gangs.name}/resourcequotas"
    gangs.client.create(quotas, {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "3"}}})
    eventually(lambda: gangs.client.get(f"{quotas}/team").get("status", {}).get("hard"), message="the quota counts")
    gangs.fleet.grid("1x1x2")  # the leader knows the quota by now
    gangs.submit("huge", pods=3, annotations=require("rack"))
    gangs.waits("huge", "GangTooLarge")
    gangs.submit("beyond", pods=4, gpus=1, annotations=require("rack"))
    gangs.waits("beyond", "QuotaExceeded")
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.all_bound("train", 2)
