"""What the Placement of a waiting gang says follows the gang and the hosts, on the real API server."""

from __future__ import annotations

import json

from local.controlplane import ControlPlane
from local.kubelets import fail_pod
from tests.support.eventually import eventually
from tests.support.gang_steps import occupy, pod_of_index, replaced, status_of, vacate
from tests.support.gangs import Namespace, require
from tests.support.raw_placements import placements_path


def test_a_waiting_placement_follows_edits_and_numbers_and_survives_its_deletion(gangs: Namespace) -> None:
    """The level of today at once, the hosts that are free ten seconds later, and all of it with a single Event."""
    hosts = gangs.fleet.grid("1x1x2")
    others = [occupy(gangs, host) for host in hosts]
    gangs.submit("train", pods=2, annotations=require("rack"))
    waits = gangs.waits("train", "InsufficientFreeGPUs")["status"]
    assert 1 <= waits["queuePosition"] <= waits["queueLength"]
    assert waits["columns"]["queue"] == f"{waits['queuePosition']} of {waits['queueLength']}"
    assert (waits["needed"], waits["have"], "best" in waits) == (2, 0, True)
    gangs.client.patch(f"{gangs.jobs_path}/train", {"metadata": {"annotations": require("block")}})

    def edited() -> bool:
        found = gangs.placement("train") or {"spec": {"podSets": [{}]}}
        said = str(status_of(gangs, "train").get("message"))
        return found["spec"]["podSets"][0].get("require") == "block" and said.startswith("needs 2 hosts in one block")

    eventually(edited, 9.0, lambda: f"spec and message say block\n{gangs.describe('train')}")
    vacate(gangs, others[0])
    eventually(
        lambda: "block-0 with 1 (1 block" in str(status_of(gangs, "train").get("message")),
        message=lambda: f"the message says what is free now\n{gangs.describe('train')}",
    )
    before = gangs.waits("train")
    gangs.client.delete(f"{placements_path(gangs.name)}/{before['metadata']['name']}")
    eventually(
        lambda: (gangs.placement("train") or before)["metadata"]["uid"] != before["metadata"]["uid"],
        message="a new Placement is there",
    )
    after = gangs.waits("train", "InsufficientFreeGPUs")
    assert after["status"]["waitingSince"] == before["status"]["waitingSince"]
    events = gangs.client.items(f"/apis/events.k8s.io/v1/namespaces/{gangs.name}/events")
    told = [
        one["reason"] for one in events if one["regarding"]["kind"] == "Job" and one["regarding"]["name"] == "train"
    ]
    assert told.count("InsufficientFreeGPUs") == 1
    about = [(one["regarding"]["kind"], one["regarding"].get("uid")) for one in events]
    assert ("Placement", before["metadata"]["uid"]) in about


def test_a_running_placement_tells_its_place_to_kubectl(gangs: Namespace, control_plane: ControlPlane) -> None:
    """Pods, GPUs and domains as columns; found by the workload's name; `kubectl wait` sees it ready after a shrink."""
    hosts = gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.all_bound("train", 2)
    eventually(
        lambda: status_of(gangs, "train").get("phase") == "Running",
        message=lambda: f"it is told as running\n{gangs.describe('train')}",
    )
    status = status_of(gangs, "train")
    place = "/".join(gangs.fleet.rack_of(hosts[0]))
    assert status["columns"] == {"pods": "2/2", "place": place, "level": "rack"}
    assert (status["pods"], status["gpus"]) == ({"bound": 2, "wanted": 2}, 16)
    chosen = ("-n", gangs.name, "-l", "topogate.dev/workload-name=train,topogate.dev/workload-kind=Job")
    row = control_plane.kubectl("get", "tgp", *chosen, "--no-headers").stdout.split()
    assert row[1:6] == ["train", "Running", "2/2", "16", place]
    gangs.client.patch(f"{gangs.jobs_path}/train", {"spec": {"parallelism": 1, "completions": 1}})
    eventually(
        lambda: (gangs.placement("train") or {})["metadata"]["generation"] > status["observedGeneration"],
        message=lambda: f"the slot of the second pod is released\n{gangs.describe('train')}",
    )
    control_plane.kubectl("wait", "--for=condition=Ready", "tgp", *chosen, "--timeout=60s")


def test_a_gang_and_its_failed_job_say_which_rank_failed_where_and_how(gangs: Namespace) -> None:
    """Exit codes are in no watch of ours; the Event on the Job has them too, and the end of the Job keeps them."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=2, annotations=require("rack"), spec={"backoffLimit": 1})
    hosts = gangs.all_bound("train", 2)
    eventually(lambda: gangs.phase("train") == "Running", message=lambda: gangs.describe("train"))
    first = pod_of_index(gangs, "train", 1)["metadata"]
    fail_pod(gangs.client, gangs.name, first["name"], exit_code=137)
    failed = f"rank 1 failed on {hosts[1]} (container main: exit code 137); "
    expected = f"{failed}waits for 1 pod of the gang to be created and bound again"
    eventually(
        lambda: status_of(gangs, "train").get("message") == expected,
        message=lambda: f"the failed pod is named\n{gangs.describe('train')}",
    )
    events = f"/apis/events.k8s.io/v1/namespaces/{gangs.name}/events"
    eventually(
        lambda: (
            expected in [one.get("note") for one in gangs.client.items(events) if one["regarding"]["kind"] == "Job"]
        ),
        message="the Event on the Job names it too",
    )
    eventually(lambda: replaced(gangs, "train", 1, first["uid"]), message="the Job has created it again")
    eventually(lambda: gangs.phase("train") == "Running", message=lambda: gangs.describe("train"))
    fail_pod(gangs.client, gangs.name, pod_of_index(gangs, "train", 0)["metadata"]["name"], exit_code=3)
    ends = f"rank 0 failed on {hosts[0]} (container main: exit code 3); the Job has failed; its slots are free"
    eventually(
        lambda: status_of(gangs, "train").get("message") == ends,
        message=lambda: f"the end names the last failure\n{gangs.describe('train')}",
    )


def test_an_edit_that_a_job_does_not_allow_is_told_with_its_field(
    gangs: Namespace, control_plane: ControlPlane
) -> None:
    """The API server prints the whole pod spec; the warning above it names the field and the way."""
    gangs.fleet.grid("1x1x1")
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.waits("train")
    edit = ("set", "image", "job/train", "main=example.com/other:2", "-n", gangs.name)
    refused = control_plane.kubectl(*edit, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("Warning: topogate: containers[0].image of a Job is fixed: create it again")
    assert "field is immutable" in refused.stderr
    smaller = [
        {"op": "replace", "path": "/spec/template/spec/containers/0/resources/limits/nvidia.com~1gpu", "value": "4"}
    ]
    smaller += [{**smaller[0], "path": smaller[0]["path"].replace("limits", "requests")}]
    done = control_plane.kubectl(
        "patch", "job/train", "-n", gangs.name, "--type=json", f"--patch={json.dumps(smaller)}", check=False
    )
    assert (done.returncode, "is fixed" in done.stderr) == (0, False)
