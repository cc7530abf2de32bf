"""What the Placement of a waiting gang says follows the gang and the hosts, on the real API server."""

from __future__ import annotations

import pytest

from tests.support.eventually import eventually
from tests.support.gang_steps import occupy, status_of, vacate
from tests.support.gangs import Namespace, require
from tests.support.raw_placements import placements_path

pytestmark = pytest.mark.timeout(120)


def test_a_waiting_placement_follows_edits_and_numbers_and_survives_its_deletion(gangs: Namespace) -> None:
    """The level of today at once, the hosts that are free ten seconds later, and all of it with a single Event."""
    hosts = gangs.fleet.grid("1x1x2")
    others = [occupy(gangs, host) for host in hosts]
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.waits("train", "InsufficientFreeGPUs")
    gangs.client.patch(f"{gangs.jobs_path}/train", {"metadata": {"annotations": require("block")}})

    def edited() -> bool:
        found = gangs.placement("train") or {"spec": {"podSets": [{}]}}
        said = str(status_of(gangs, "train").get("message"))
        return found["spec"]["podSets"][0].get("require") == "block" and said.startswith("needs 2 hosts in one block")

    eventually(edited, 5.0, lambda: f"spec and message say block\n{gangs.describe('train')}")
    vacate(gangs, others[0])
    eventually(
        lambda: "block-0 with 1 (1 block" in str(status_of(gangs, "train").get("message")),
        20.0,
        lambda: f"the message says what is free now\n{gangs.describe('train')}",
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
