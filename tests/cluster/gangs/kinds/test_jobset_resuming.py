"""A JobSet that is held is resumed by the leader, and its child Jobs' pods are told where they belong."""

from __future__ import annotations

import pytest

from engine.api import names
from tests.support.kind_gangs import Gangs
from tests.support.workloads import Json

pytestmark = pytest.mark.controllers("jobset")


def submit(gangs: Gangs, name: str, *, jobs: int = 2, pods: int = 2) -> Json:
    """Two replicated jobs, of which the second has annotations of its own."""
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0}
    replicated = [
        {"name": "driver", "template": {"spec": {**spec, "template": gangs.template(gpus=4, restartPolicy="Never")}}},
        {
            "name": "workers",
            "replicas": jobs,
            "template": {
                "spec": {
                    **spec,
                    "template": gangs.template(gpus=4, restartPolicy="Never", annotations={"example.com/a": "b"}),
                }
            },
        },
    ]
    path, body = gangs.path("JobSet"), {"metadata": {"name": name, "annotations": {names.REQUIRE: "block"}}}
    stored: Json = gangs.client.create(
        path,
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", **body, "spec": {"replicatedJobs": replicated}},
    )
    return stored


def test_a_jobset_is_held_planned_and_resumed(gangs: Gangs) -> None:
    """Stored suspended and marked; resumed with Placement and revision on every template; all pods carry both."""
    gangs.fleet.grid("1x2x4")
    stored = submit(gangs, "train")
    assert stored["spec"]["suspend"] is True
    assert stored["metadata"]["annotations"][names.HELD_BY] == names.HELD_BY_SUSPEND
    gangs.all_run(6)
    placement = gangs.placement("JobSet", "train")
    assert placement is not None
    told = {
        names.PLACEMENT: placement["metadata"]["name"],
        names.REVISION: str(placement["spec"]["assignment"]["revision"]),
    }
    after = gangs.get("JobSet", "train")
    assert after["spec"]["suspend"] is False
    assert names.HELD_BY not in after["metadata"]["annotations"]
    for one in after["spec"]["replicatedJobs"]:
        annotations = one["template"]["spec"]["template"]["metadata"]["annotations"]
        assert told.items() <= annotations.items()
    workers = after["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["metadata"]
    assert workers["annotations"]["example.com/a"] == "b"
    for pod in gangs.members():
        annotations = pod["metadata"]["annotations"]
        assert annotations[names.PLACEMENT] == told[names.PLACEMENT]
        assert annotations[names.REVISION] == told[names.REVISION]


def test_only_the_gang_has_a_placement(gangs: Gangs) -> None:
    """The Jobs that the JobSet's controller makes are parts of it, and never held by themselves."""
    gangs.fleet.grid("1x2x4")
    submit(gangs, "train")
    gangs.all_run(6)
    assert [one["spec"]["workload"]["kind"] for one in gangs.placements()] == ["JobSet"]
    assert {job["spec"].get("suspend", False) for job in gangs.items("Job")} == {False}
