"""The slots of a gang that runs: who uses them, who gets them back, and when the next gang has them."""

from __future__ import annotations

from collections import Counter

from local.kubelets import complete_pod, fail_pod
from tests.support.eventually import eventually
from tests.support.gang_steps import (
    assigned,
    complete,
    completed,
    conditions,
    delete_job,
    failures,
    live_hosts,
    pod_of_index,
    resume,
    suspend,
)
from tests.support.gangs import INDEX, Namespace, require


def test_a_replacement_pod_goes_back_to_the_slot_of_the_pod_that_failed(gangs: Namespace) -> None:
    """Index 1 fails and comes back after the Job's back-off: same host, though the next gang waits for exactly that."""
    gangs.fleet.grid("1x1x3")
    gangs.submit("train", pods=3, annotations=require("rack"), spec={"backoffLimit": 4})
    before = gangs.all_bound("train", 3)
    gangs.submit("greedy", pods=1, annotations=require("host"))
    gangs.waits("greedy")
    failed = pod_of_index(gangs, "train", 1)["metadata"]
    fail_pod(gangs.client, gangs.name, failed["name"])
    eventually(lambda: failures(gangs, "train") == 1, message="the Job has seen the failure")

    def back() -> bool:
        newest = pod_of_index(gangs, "train", 1)
        return bool(newest["metadata"]["uid"] != failed["uid"] and newest["spec"].get("nodeName") == before[1])

    eventually(back, message=lambda: f"the pod of index 1 is back\n{gangs.describe('train')}")
    assert gangs.pods("greedy") == []
    assert gangs.job("train")["status"]["failed"] == 1


def test_twelve_completions_run_on_four_slots(gangs: Namespace) -> None:
    """Index after index takes a free slot: never another host, never two pods on one; the Job ends Complete."""
    gangs.fleet.grid("1x2x4")
    gangs.submit("sweep", pods=4, completions=12, annotations=require("rack"))
    first = gangs.all_bound("sweep", 4)
    assert len(gangs.racks(first)) == 1
    allowed = Counter(first.values())
    ended: set[str] = set()
    astray: list[Counter[str]] = []

    def over() -> bool:
        live = Counter(live_hosts(gangs, "sweep"))
        if not live <= allowed:
            astray.append(live)
        for pod in gangs.pods("sweep"):
            if pod["status"]["phase"] == "Running" and pod["metadata"]["name"] not in ended:
                ended.add(pod["metadata"]["name"])
                complete_pod(gangs.client, gangs.name, pod["metadata"]["name"])
        return "Complete" in conditions(gangs, "sweep")

    eventually(over, message=lambda: f"the sweep ends\n{gangs.describe('sweep')}")
    assert astray == []
    assert gangs.job("sweep")["status"]["completedIndexes"] == "0-11"
    assert failures(gangs, "sweep") == 0


def test_the_slots_of_a_sweep_go_back_one_by_one_when_fewer_indexes_are_left_than_slots(gangs: Namespace) -> None:
    """Three of four slots are idle for the last index: the next gang starts there, while the sweep still runs."""
    gangs.fleet.grid("1x1x4")
    gangs.submit("sweep", pods=4, completions=5, annotations=require("rack"))
    first = gangs.all_bound("sweep", 4)
    gangs.submit("next", pods=3, annotations=require("rack"))
    gangs.waits("next")
    complete(gangs, "sweep")
    last = eventually(lambda: gangs.bound("sweep").get(4), message="index 4 is bound")
    assert last in first.values()
    rest = gangs.all_bound("next", 3)
    assert set(rest.values()) == set(first.values()) - {last}
    assert "Complete" not in conditions(gangs, "sweep")


def test_a_gang_without_ranks_is_released_into_its_slots(gangs: Namespace) -> None:
    """NonIndexed: the webhook holds every pod, the leader hands out slots and ranks; neighbours share a host."""
    hosts = gangs.fleet.grid("1x2x2")
    gangs.submit("workers", pods=4, gpus=4, indexed=False, annotations=require("rack"))
    bound = Counter(gangs.all_bound("workers", 4).values())
    assert sorted(bound.values()) == [2, 2]
    assert set(bound) in ({*hosts[:2]}, {*hosts[2:]})
    ranks: dict[str, set[int]] = {}
    for pod in gangs.pods("workers"):
        ranks.setdefault(pod["spec"]["nodeName"], set()).add(int(pod["metadata"]["annotations"]["topogate.dev/rank"]))
        assert pod["metadata"]["annotations"]["topogate.dev/domain"].endswith("/" + pod["spec"]["nodeName"])
    assert dict(bound) == assigned(gangs, "workers")
    assert sorted(map(sorted, ranks.values())) == [[0, 1], [2, 3]]


def test_a_work_queue_job_without_completions_is_a_gang(gangs: Namespace) -> None:
    """No completions given: parallelism is the gang; it ends when its pods do, and its slots are free."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("queue", pods=2, indexed=False, spec={"completions": None}, annotations=require("rack"))
    gangs.all_bound("queue", 2)
    gangs.submit("next", pods=2, annotations=require("rack"))
    gangs.waits("next")
    complete(gangs, "queue")
    completed(gangs, "queue")
    gangs.all_bound("next", 2)


def test_a_finished_job_frees_its_slots(gangs: Namespace) -> None:
    """The next gang gets them although the finished Job and its pods still stand there."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("first", pods=2, annotations=require("rack"))
    gangs.all_bound("first", 2)
    gangs.submit("next", pods=2, annotations=require("rack"))
    gangs.waits("next")
    complete(gangs, "first")
    completed(gangs, "first")
    gangs.all_bound("next", 2)
    assert len(gangs.pods("first")) == 2
    eventually(lambda: gangs.phase("first") == "Finished", message="the Placement says Finished")


def test_a_job_that_fails_frees_its_slots(gangs: Namespace) -> None:
    """backoffLimit 0: one failed pod ends the Job; the next gang gets all hosts."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("first", pods=2, annotations=require("rack"))
    gangs.all_bound("first", 2)
    gangs.submit("next", pods=2, annotations=require("rack"))
    gangs.waits("next")
    fail_pod(gangs.client, gangs.name, pod_of_index(gangs, "first", 0)["metadata"]["name"])
    gangs.all_bound("next", 2)
    eventually(lambda: "Failed" in conditions(gangs, "first"), message="the Job has failed")


def test_a_deleted_job_frees_its_slots(gangs: Namespace) -> None:
    """Its pods go, its Placement goes with it, and the next gang runs."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("first", pods=2, annotations=require("rack"))
    gangs.all_bound("first", 2)
    gangs.submit("next", pods=2, annotations=require("rack"))
    gangs.waits("next")
    delete_job(gangs, "first")
    gangs.all_bound("next", 2)
    eventually(lambda: gangs.placement("first") is None, message="the Placement is gone")


def test_a_deleted_waiting_job_leaves_the_queue(gangs: Namespace) -> None:
    """Under way to nothing: its Placement goes, and the room that appears later is another gang's."""
    hosts = gangs.fleet.grid("1x1x2")
    gangs.submit("first", pods=2, annotations=require("rack"))
    gangs.all_bound("first", 2)
    gangs.submit("waiting", pods=2, annotations=require("rack"))
    gangs.waits("waiting")
    gangs.submit("next", pods=2, annotations=require("rack"))
    gangs.waits("next")
    delete_job(gangs, "waiting")
    eventually(lambda: gangs.placement("waiting") is None, message="the Placement is gone")
    delete_job(gangs, "first")
    assert set(gangs.all_bound("next", 2).values()) == set(hosts)


def test_a_job_that_is_scaled_down_frees_the_slots_of_its_highest_ranks(gangs: Namespace) -> None:
    """Four pods become two: ranks 0 and 1 stay where they are, the next gang gets the other two hosts."""
    gangs.fleet.grid("1x1x4")
    gangs.submit("elastic", pods=4, annotations=require("rack"))
    before = gangs.all_bound("elastic", 4)
    gangs.submit("next", pods=2, annotations=require("rack"))
    gangs.waits("next")
    gangs.client.patch(f"{gangs.jobs_path}/elastic", {"spec": {"parallelism": 2, "completions": 2}})
    after = gangs.all_bound("next", 2)
    assert set(after.values()) == {before[2], before[3]}
    assert gangs.all_bound("elastic", 2) == {0: before[0], 1: before[1]}
    assert set(assigned(gangs, "elastic")) == {before[0], before[1]}


def test_a_job_suspended_by_its_user_is_planned_when_he_resumes_it(gangs: Namespace) -> None:
    """Created suspended: no Placement and nothing reserved, another gang takes the rack; resumed: it waits its turn."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("later", pods=2, annotations=require("rack"), spec={"suspend": True})
    gangs.submit("now", pods=2, annotations=require("rack"))
    gangs.all_bound("now", 2)
    assert gangs.placement("later") is None
    assert "topogate.dev/held-by" not in gangs.job("later")["metadata"]["annotations"]
    resume(gangs, "later")
    gangs.waits("later")
    assert gangs.pods("later") == []
    complete(gangs, "now")
    gangs.all_bound("later", 2)


def test_a_running_gang_that_its_user_suspends_gives_its_slots_back(gangs: Namespace) -> None:
    """The next gang runs on them; resumed, the first one waits for room again and then runs, without a retry used."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("first", pods=2, annotations=require("rack"))
    gangs.all_bound("first", 2)
    gangs.submit("next", pods=2, annotations=require("rack"))
    gangs.waits("next")
    suspend(gangs, "first")
    gangs.all_bound("next", 2)
    gangs.waits("first", "Suspended")
    assert assigned(gangs, "first") == {}
    resume(gangs, "first")
    gangs.waits("first", "InsufficientFreeGPUs")
    assert gangs.pods("first") == []
    complete(gangs, "next")
    gangs.all_bound("first", 2)
    assert failures(gangs, "first") == 0


def test_finished_ranks_do_not_run_again_after_a_suspension(gangs: Namespace) -> None:
    """Rank 0 is done; suspended and resumed, the Job runs only rank 1, which gets a slot."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.all_bound("train", 2)
    complete_pod(gangs.client, gangs.name, pod_of_index(gangs, "train", 0)["metadata"]["name"])
    eventually(lambda: gangs.job("train")["status"].get("completedIndexes") == "0", message="rank 0 is done")
    suspend(gangs, "train")
    gangs.waits("train", "Suspended")
    eventually(lambda: live_hosts(gangs, "train") == [], message="its pods are gone")
    resume(gangs, "train")
    eventually(lambda: len(live_hosts(gangs, "train")) == 1, message=lambda: gangs.describe("train"))
    running = [pod for pod in gangs.pods("train") if pod["status"]["phase"] in ("Pending", "Running")]
    assert [pod["metadata"]["labels"][INDEX] for pod in running] == ["1"]
    complete(gangs, "train")
    completed(gangs, "train")
