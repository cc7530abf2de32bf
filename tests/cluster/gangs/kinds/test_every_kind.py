"""What holds for every workload kind: one rack or nothing, the slots that its pods keep, and what gives them back."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from engine.api import names
from engine.kinds.registry import built_in
from tests.support.eventually import always, eventually
from tests.support.kind_cases import ALL, CASES, KindCase
from tests.support.kind_gangs import Gangs, neighbours, suspend_path, told_right

EVERY = pytest.mark.parametrize("case", [case.param for case in ALL])
SUSPENDABLE = [case for case in ALL if suspend_path(case.kind)]
GATED = [case for case in ALL if not suspend_path(case.kind)]
# Those that are over when all their pods have ended well: Ray's need a dashboard for that, the others serve for ever.
ENDING = [case for case in ALL if case.entry not in ("leaderworkerset", "statefulset") and "ray" not in case.entry]


def test_every_kind_of_the_registry_is_here() -> None:
    """But CronJobs (their Jobs are gangs), Deployments and plain pods, which have tests of their own, and the older
    MPIJob: a custom resource of the same name as the other.
    """
    left = {entry.name for entry in built_in().entries} - CASES.keys()
    assert left == {"cronjob", "deployment", "mpijob-v1", "pod"}


@EVERY
def test_a_required_rack_gets_all_pods(gangs: Gangs, case: KindCase) -> None:
    """All pods of all pod sets in one rack, neighbours in rank on neighbouring hosts; the pods say where they are."""
    order = gangs.fleet.grid("1x2x4")
    case.submit(gangs)
    hosts = gangs.all_run(4)
    assert len(gangs.racks(hosts)) == 1
    assert Counter(pod_set for pod_set, _ in hosts) == case.sets
    assert told_right(gangs) == []
    if case.ranked:
        ranks = {pod_set: sorted(rank for other, rank in hosts if other == pod_set) for pod_set in case.sets}
        assert ranks == {pod_set: [str(rank) for rank in range(count)] for pod_set, count in case.sets.items()}
        assert neighbours(gangs, hosts, order)
    gang = (gangs.placement(case.kind, "train") or {})["metadata"]["name"]
    assert {pod["metadata"]["labels"][names.GANG] for pod in gangs.members()} == {gang}
    assert len(gangs.placements()) == 1


@pytest.mark.parametrize("case", [case.param for case in SUSPENDABLE])
def test_a_suspended_gang_has_no_pods_until_all_of_it_fits(gangs: Gangs, case: KindCase) -> None:
    """Three hosts a rack: it waits suspended, and its Placement and an Event say why; a fourth host lets it run."""
    gangs.fleet.grid("1x2x3")
    case.submit(gangs)
    placement = gangs.waits(case.kind, "train")
    assert "rack" in placement["status"]["message"]
    assert gangs.suspended(case.kind, "train")
    assert gangs.get(case.kind, "train")["metadata"]["annotations"][names.HELD_BY] == "suspend"
    always(lambda: not gangs.pods(), seconds=0.5)
    eventually(lambda: gangs.events("train"), message="an Event on the workload")
    gangs.fleet.host("host-006", block="block-0", rack="rack-00")
    hosts = gangs.all_run(4)
    assert len(gangs.racks(hosts)) == 1
    assert names.HELD_BY not in gangs.get(case.kind, "train")["metadata"].get("annotations", {})


@pytest.mark.parametrize("case", [case.param for case in GATED])
def test_a_gated_gang_binds_nothing_until_all_of_it_fits(gangs: Gangs, case: KindCase) -> None:
    """A kind that cannot be suspended has its pods, all of them held by the gate."""
    gangs.fleet.grid("1x2x3")
    case.submit(gangs)
    gangs.waits(case.kind, "train")
    eventually(lambda: len(gangs.members()) == 4, message="its pods exist")
    always(lambda: not any(pod["spec"].get("nodeName") for pod in gangs.pods().values()), seconds=0.5)
    gangs.fleet.host("host-006", block="block-0", rack="rack-00")
    assert len(gangs.racks(gangs.all_run(4))) == 1


@pytest.mark.parametrize("case", [case.param for case in SUSPENDABLE])
def test_its_user_suspends_and_resumes_it(gangs: Gangs, case: KindCase) -> None:
    """Suspended, its pods go and another gang gets their room; resumed, it waits for its own, and runs again."""
    gangs.fleet.grid("1x1x4")
    case.submit(gangs)
    gangs.all_run(4)
    gangs.suspend(case.kind, "train")
    eventually(lambda: not gangs.members(), message=lambda: f"its pods go\n{gangs.describe()}")
    CASES["job"].submit(gangs, "other")
    gangs.all_run(4)
    gangs.suspend(case.kind, "train", wanted=False)
    gangs.waits(case.kind, "train")
    gangs.client.delete(gangs.path("Job", "other"))
    eventually(lambda: gangs.phase(case.kind, "train") == "Running", message=lambda: f"it runs\n{gangs.describe()}")
    gangs.all_run(4)


@EVERY
def test_a_deleted_workload_gives_its_room_back(gangs: Gangs, case: KindCase) -> None:
    """Its pods and its Placement go; the gang that waited runs."""
    gangs.fleet.grid("1x1x4")
    case.submit(gangs)
    gangs.all_run(4)
    CASES["job"].submit(gangs, "other")
    gangs.waits("Job", "other")
    gangs.client.delete(gangs.path(case.kind, "train"))
    eventually(lambda: gangs.phase("Job", "other") == "Running", message=lambda: f"the other runs\n{gangs.describe()}")
    eventually(lambda: gangs.placement(case.kind, "train") is None, message="its Placement goes")


@pytest.mark.parametrize("case", [case.param for case in ENDING])
def test_success_gives_the_room_back(gangs: Gangs, case: KindCase) -> None:
    """All its pods have ended well: the gang that waited runs, though the workload still stands there."""
    gangs.fleet.grid("1x1x4")
    case.submit(gangs)
    gangs.all_run(4)
    CASES["job"].submit(gangs, "other")
    gangs.waits("Job", "other")
    gangs.complete()
    eventually(lambda: gangs.phase("Job", "other") == "Running", message=lambda: f"the other runs\n{gangs.describe()}")
    eventually(lambda: gangs.phase(case.kind, "train") == "Finished", message=lambda: f"it is over\n{gangs.describe()}")


@pytest.mark.parametrize("case", [case.param for case in SUSPENDABLE if case.ranked])
def test_its_pods_cost_no_request(gangs: Gangs, case: KindCase) -> None:
    """Held by suspension and ranked: every pod is placed at its creation, and none is patched by our service.

    A replica whose watch is late by more than its reviews wait holds a pod, which is released later; on a machine that
    is full that happens to a gang now and then, so that one of three has to be without.
    """
    gangs.fleet.grid("1x1x4")
    late: list[list[str]] = []
    for again in range(3):
        (replace(case, prepare=None) if again else case).submit(gangs)
        gangs.all_run(4)
        if not (patched := gangs.patched()):
            return
        late.append(patched)
        gangs.client.delete(path := gangs.path(case.kind, "train"))
        # A finalizer of its controller may keep the workload for longer than its pods.
        eventually(
            lambda: not gangs.members() and gangs.client.find(path) is None,
            message=lambda: f"it goes with its pods\n{gangs.describe()}",
        )
    pytest.fail(f"pods of every gang were patched: {late}")
