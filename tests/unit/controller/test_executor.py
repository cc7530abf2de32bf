"""What the leader's actions make of the API server's answers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import pytest

from engine.api import names
from engine.api.placement import Assignment, FailedStarts, Placement
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.cluster.client import ApiError, ApiFault, ApiUnavailable, KubeClient
from engine.cluster.events import Recorder, Regarding
from engine.cluster.lease import NotLeader
from engine.cluster.writes import WriteRefused
from engine.controller import writer
from engine.controller.executor import MOST_FAILED, ActionExecutor
from engine.controller.writer import StaleObject
from engine.decoding.placements import placement_body
from engine.decoding.workloads import workload
from engine.gang.gang import Gang
from engine.gang.plain_pods import gang_key
from engine.gang.repair import ExtensionRequest
from engine.gang.slots import SlotAssignment, slots_of
from engine.kinds.registry import built_in
from engine.lifecycle.actions import Status, Unmanage
from engine.lifecycle.moves import kept_record
from tests.support.cluster_records import gpu_nodes, job, placement, pod
from tests.support.families import plain

Answer = Callable[[str, str], bytes]


class Script:
    """An API server that answers as the test says, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.answer: Answer = lambda method, path: b"{}"

    def request(self, method: str, path: str, *, body: Any = None, **_more: Any) -> bytes:
        self.asked.append((method, path.rpartition("/")[2]))
        self.bodies.append(body)
        return self.answer(method, path)


class Desk:
    """Errands over a view of one rack, and the server that they talk to."""

    def __init__(self) -> None:
        self.stores = Stores()
        self.view = ClusterState(self.stores)
        self.stores.nodes.replace(gpu_nodes(1, 1, 4))
        self.server = Script()
        self.events: list[str] = []
        self.copies: list[tuple[str, str]] = []  # of Events, on what
        self.leads = True
        self.executor = ActionExecutor(
            self.view,
            cast(KubeClient, self.server),
            cast(Recorder, self),
            fence=self.fence,
            wall=lambda: 0.0,
            patchers=2,
        )

    def record(self, regarding: Regarding, *, reason: str, spare: bool = False, **_more: Any) -> None:
        if spare:
            self.copies.append((regarding.kind, reason))
        else:
            self.events.append(reason)

    def fence(self) -> None:
        if not self.leads:
            raise NotLeader("does not lead")


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.executor.close()


def job_json(workload: Workload, **spec: Any) -> bytes:
    return json.dumps(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": workload.name,
                "namespace": workload.namespace,
                "uid": workload.uid,
                "resourceVersion": "99999999",
                "generation": workload.generation,
                "annotations": dict(workload.annotations),
            },
            "spec": {
                "parallelism": workload.slots,
                "completions": workload.pod_sets[0].total,
                "completionMode": "Indexed",
                "suspend": workload.suspended,
                "template": {"metadata": {}, "spec": {"containers": []}},
                **spec,
            },
        }
    ).encode()


def pod_json(one: Pod) -> bytes:
    metadata = {"name": one.name, "namespace": one.namespace, "uid": one.uid, "resourceVersion": "99999999"}
    return json.dumps({"metadata": metadata, "spec": {"containers": []}}).encode()


WAITS = Status("Waiting", "NodeLost", "a host is gone")


def going(*pods: Pod, resume: bool = False, forget: bool = False) -> Unmanage:
    return Unmanage(
        pods, resume=resume, forget=forget, reason="NoTopologyRequested", message="asks no more", loses=False
    )


def missing(_method: str, _path: str) -> bytes:
    raise ApiError(404, "NotFound", "not found")


def seats(gang: Workload, pods: list[Pod]) -> tuple[SlotAssignment, ...]:
    slot = slots_of(cast(Assignment, placement(gang, {"b0-r0-h0": len(pods)}).assignment))[0]
    return tuple(SlotAssignment(one, slot, rank) for rank, one in enumerate(pods))


def test_a_pod_that_is_gone_is_left_to_the_watch(desk: Desk) -> None:
    """Looking again at once would find it still in the cache, and send the same PATCH over and over."""
    gang = job(count=1)
    desk.stores.workloads.replace([gang])
    desk.stores.placements.replace([placement(gang, {"b0-r0-h0": 1})])
    desk.view.refresh()
    known = desk.view.gangs.get(gang.uid)
    assert known is not None
    desk.server.answer = missing
    with pytest.raises(StaleObject):
        desk.executor.release(known, seats(gang, [pod(gang, 0, gated=True)]))
    with pytest.raises(StaleObject):
        desk.executor.resume(replace(known, workload=job(count=1, held=True)))
    with pytest.raises(StaleObject):
        desk.executor.unplace(known, WAITS, suspend=True, event=True)


def test_pods_that_are_released_own_the_placement_of_their_gang_first(desk: Desk) -> None:
    """One PATCH before theirs, and none when they own it; without it no pod is released."""
    pods = [plain("a"), plain("b")]
    desk.stores.pods.replace(pods)
    desk.view.refresh()
    waiting = desk.view.gangs.get(gang_key("default", "mesh"))
    assert waiting is not None
    known = replace(placement(waiting.workload, {"b0-r0-h0": 2}), owners=frozenset({pods[0].uid}))
    by_name = {one.name: one for one in pods}
    desk.server.answer = lambda _method, path: (
        pod_json(by_name[name]) if (name := path.rpartition("/")[2]) in by_name else created(known)
    )
    gang = replace(waiting, placement=known)
    desk.executor.release(gang, seats(gang.workload, pods[:1]))
    assert desk.server.asked == [("PATCH", "a")]
    desk.server.asked.clear()
    desk.executor.release(gang, seats(gang.workload, pods))
    assert desk.server.asked[0] == ("PATCH", known.name)
    assert sorted(desk.server.asked[1:]) == [("PATCH", "a"), ("PATCH", "b")]
    desk.server.asked.clear()
    desk.server.answer = missing
    with pytest.raises(WriteRefused):
        desk.executor.release(gang, seats(gang.workload, pods))
    assert desk.server.asked == [("PATCH", known.name)]


def test_a_pod_that_is_not_bound_is_evicted_and_one_whose_node_is_gone_is_deleted(desk: Desk) -> None:
    """An eviction is no failure for a Job that ignores disruptions, a deletion is; on a lost node no pod ends."""
    known = known_gang(desk)
    pods = (pod(known.workload, 0), pod(known.workload, 1, host="b0-r0-h0"))
    desk.executor.remove(known, pods, evict=False, reason="NodeLost", message="gone")
    assert sorted(desk.server.asked) == [("DELETE", pods[1].name), ("POST", "eviction")]


def test_one_pod_that_is_refused_keeps_no_other_held(desk: Desk) -> None:
    """All are tried; then the fault is told, so that the one is tried again. The Job runs all the same."""
    gang = job(count=3)
    pods = [pod(gang, rank, gated=True) for rank in range(3)]
    by_name = {one.name: one for one in pods}
    freed: list[str] = []

    def answer(_method: str, path: str) -> bytes:
        name = path.rpartition("/")[2]
        if name == "train-0":
            raise ApiError(422, "Invalid", "no", (("spec.x", "no"),))
        freed.append(name)
        return pod_json(by_name[name])

    desk.server.answer = answer
    desk.stores.workloads.replace([gang])
    desk.view.refresh()
    known = desk.view.gangs.get(gang.uid)
    assert known is not None
    with pytest.raises(WriteRefused):
        desk.executor.unmanage(known, going(*pods))
    assert sorted(freed) == ["train-1", "train-2"]


@pytest.mark.parametrize(
    ("faults", "worst"),
    [
        ((StaleObject("changed"), NotLeader("lost"), ApiUnavailable("away")), NotLeader),
        ((StaleObject("changed"), ApiUnavailable("away"), StaleObject("changed")), ApiUnavailable),
        ((StaleObject("changed"), StaleObject("changed")), StaleObject),
    ],
)
def test_of_several_faults_the_worst_is_told(desk: Desk, faults: tuple[Exception, ...], worst: type[Exception]) -> None:
    """The lost Lease ends the term, whichever pod's PATCH meets it; what a second look mends comes last."""
    gang = job(count=len(faults))
    pods = [pod(gang, rank, gated=True, name=f"train-{rank}") for rank in range(len(faults))]

    def answer(_method: str, path: str) -> bytes:
        raise faults[int(path.rpartition("-")[2])]

    desk.server.answer = answer
    desk.stores.workloads.replace([gang])
    desk.view.refresh()
    known = desk.view.gangs.get(gang.uid)
    assert known is not None
    with pytest.raises(worst):
        desk.executor.unmanage(known, going(*pods))


def test_the_end_does_not_wait_for_patches_that_were_never_sent(desk: Desk) -> None:
    """Closing cancels what is queued: the action ends with NotLeader instead of hanging the process."""
    gang = job(count=6)
    pods = [pod(gang, rank, gated=True) for rank in range(6)]
    by_name = {one.name: one for one in pods}
    begun, go_on = threading.Event(), threading.Event()

    def answer(_method: str, path: str) -> bytes:
        begun.set()
        go_on.wait(10.0)
        return pod_json(by_name[path.rpartition("/")[2]])

    desk.server.answer = answer
    desk.stores.workloads.replace([gang])
    desk.stores.placements.replace([placement(gang, {"b0-r0-h0": 6})])
    desk.view.refresh()
    known = desk.view.gangs.get(gang.uid)
    assert known is not None
    ended: list[type[BaseException]] = []

    def action() -> None:
        try:
            desk.executor.release(known, seats(gang, pods))
        except Exception as error:
            ended.append(type(error))

    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    begun.wait(10.0)
    closing = threading.Thread(target=desk.executor.close)
    closing.start()
    while not desk.executor._patchers._shutdown:
        time.sleep(0.001)
    while desk.executor._patchers._work_queue.qsize() > 1:
        time.sleep(0.001)
    go_on.set()
    closing.join(10.0)
    thread.join(10.0)
    assert not thread.is_alive()
    assert ended == [NotLeader]


def planned_gang(desk: Desk) -> tuple[Gang, Placement]:
    """A waiting gang of two, and its plan, which is not written."""
    gang = job(count=2, held=True)
    desk.stores.workloads.replace([gang])
    desk.view.refresh()
    known = desk.view.gangs.get(gang.uid)
    assert known is not None
    return known, replace(placement(gang, {"b0-r0-h0": 2}), uid="", resource_version="")


def created(wanted: Placement) -> bytes:
    """What the API server says of a Placement that it has created."""
    body = placement_body(wanted)
    body["metadata"] |= {"uid": "uid-p", "resourceVersion": "99999999", "generation": 1}
    return json.dumps(body).encode()


def test_a_plan_whose_answer_was_lost_is_read_back(desk: Desk) -> None:
    """It may stand there: then its slots are its own, and nobody else is planned into them."""
    known, wanted = planned_gang(desk)

    def answer(method: str, _path: str) -> bytes:
        if method == "POST":
            raise ApiUnavailable("timed out")
        return created(wanted)

    desk.server.answer = answer
    with pytest.raises(ApiFault):
        desk.executor.place(known, wanted)
    desk.view.refresh()
    assert desk.view.capacity.reserved(known.key) == {"b0-r0-h0": 2}
    assert ("PATCH", known.workload.name) not in desk.server.asked


def overloaded(path: str) -> ApiFault:
    return ApiError(503, "ServiceUnavailable", f"{path}: too many requests")


def unreachable(path: str) -> ApiFault:
    return ApiUnavailable(f"{path}: timed out")


@pytest.mark.parametrize("again", [overloaded, unreachable])
@pytest.mark.parametrize("written", [True, False])
def test_slots_of_which_nobody_knows_whether_they_are_written_are_not_free(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, again: Callable[[str], ApiFault], *, written: bool
) -> None:
    """What made the write fail lets the first reads fail too: they are repeated until one says it."""
    monkeypatch.setattr(writer, "READ_BACK_EVERY", 0.001)
    known, wanted = planned_gang(desk)
    desk.view.assume(known.key, wanted)

    def answer(method: str, path: str) -> bytes:
        if method == "POST" or len(desk.server.asked) < 4:
            raise again(path)
        if not written:
            return missing(method, path)
        return created(wanted)

    desk.server.answer = answer
    with pytest.raises(ApiFault):
        desk.executor.place(known, wanted)
    desk.view.confirm(known.key, failed=True)
    assert desk.view.capacity.reserved(known.key) == ({"b0-r0-h0": 2} if written else {})
    assert len(desk.server.asked) == 4


def test_slots_are_not_read_back_without_the_lease(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor without end: the next leader reads everything."""
    monkeypatch.setattr(writer, "READ_BACK_EVERY", 0.001)
    known, asked = known_gang(desk), desk.server.asked

    def answer(_method: str, path: str) -> bytes:
        desk.leads = len(asked) < 2
        raise unreachable(path)

    desk.server.answer = answer
    with pytest.raises(NotLeader):
        desk.executor.place(known, placement(known.workload, {"b0-r0-h0": 2}))
    assert [method for method, _ in asked] == ["PATCH", "GET"]


def test_a_request_that_was_changed_meanwhile_is_not_resumed(desk: Desk) -> None:
    """The generation does not count annotations: what the user asks for now is compared, not only the spec."""
    gang = job(count=1, held=True, require=None)
    gang = replace(gang, annotations={**gang.annotations, names.PREFER: "rack"})
    desk.stores.workloads.replace([gang])
    desk.stores.placements.replace([placement(gang, {"b0-r0-h0": 1})])
    desk.view.refresh()
    known = desk.view.gangs.get(gang.uid)
    assert known is not None
    changed = replace(gang, annotations={**gang.annotations, names.PREFER: "host"}, resource_version="99999998")
    desk.stores.workloads.apply("MODIFIED", changed)
    desk.server.asked.clear()

    def answer(method: str, _path: str) -> bytes:
        if method == "PATCH":
            raise ApiError(409, "Conflict", "the object has been modified")
        return job_json(changed)

    desk.server.answer = answer
    with pytest.raises(StaleObject):
        desk.executor.resume(known)
    assert [method for method, _ in desk.server.asked] == ["PATCH", "GET"]


def known_gang(desk: Desk) -> Gang:
    """A gang of two on one host."""
    gang = job(count=2)
    desk.stores.workloads.replace([gang])
    desk.stores.placements.replace([placement(gang, {"b0-r0-h0": 2})])
    desk.view.refresh()
    known = desk.view.gangs.get(gang.uid)
    assert known is not None
    return known


def test_new_slots_are_written_down_before_the_pods_go_that_they_replace(desk: Desk) -> None:
    """A pod that comes at once finds its new slot; whoever is told hears of it once."""
    known = known_gang(desk)
    late = pod(known.workload, 1, pin="b0-r0-h0")
    wanted = replace(placement(known.workload, {"b0-r0-h0": 1, "b0-r0-h1": 1}), generation=2)

    def answer(method: str, _path: str) -> bytes:
        if method == "DELETE":
            return b"{}"
        body = placement_body(wanted)
        body["metadata"] |= {"uid": wanted.uid, "resourceVersion": "99999999", "generation": 2}
        return json.dumps(body).encode()

    desk.server.answer = answer
    desk.executor.extend(
        known, wanted, ExtensionRequest((), None, {}, lost={"main": (1,)}, replaced=(late,)), "1 pod moves"
    )
    assert desk.server.asked == [("PATCH", wanted.name), ("POST", "eviction")]
    assert desk.events == ["Repaired"]
    desk.view.refresh()
    assert desk.view.capacity.reserved(known.key) == {"b0-r0-h0": 1, "b0-r0-h1": 1}


def test_a_pod_stays_when_its_new_slot_could_not_be_written_down(desk: Desk) -> None:
    """Somebody was faster: nothing is removed, nothing told."""
    known = known_gang(desk)
    assert known.placement is not None

    def answer(_method: str, _path: str) -> bytes:
        raise ApiError(409, "Conflict", "the object has been modified")

    desk.server.answer = answer
    part = ExtensionRequest((), None, {}, lost={"main": (1,)}, replaced=(pod(known.workload, 1, pin="b0-r0-h0"),))
    with pytest.raises(ApiFault):
        desk.executor.extend(known, known.placement, part, "1 pod moves")
    assert [method for method, _ in desk.server.asked] == ["PATCH"]
    assert desk.events == []


def test_a_failed_start_is_recorded_before_anything_else(desk: Desk) -> None:
    """Whatever ends this halfway, the next leader counts it once. Then: suspended, the slots released, the reason."""
    known = known_gang(desk)
    placed = known.placement
    assert placed is not None
    stored = placement_body(placed)
    stored["metadata"] |= {"uid": placed.uid, "resourceVersion": "99999999"}

    def answer(_method: str, path: str) -> bytes:
        return job_json(known.workload) if "/jobs/" in path else json.dumps(stored).encode()

    desk.server.answer = answer
    desk.executor.unplace(known, WAITS, suspend=True, event=True, failed=FailedStarts(1, ("h",), 0.0, 1, "2-x"))
    assert [name for _, name in desk.server.asked] == ["status", known.workload.name, placed.name, "status"]


def test_a_move_is_recorded_before_the_gang_is_suspended(desk: Desk) -> None:
    """Whatever ends this halfway, the next leader does not move it again."""
    known = known_gang(desk)
    placed = known.placement
    assert placed is not None
    stored = placement_body(placed)
    stored["metadata"] |= {"uid": placed.uid, "resourceVersion": "99999999"}

    def answer(method: str, path: str) -> bytes:
        if "/jobs/" in path:
            raise ApiUnavailable("no answer")
        return json.dumps(stored).encode()

    desk.server.answer = answer
    with pytest.raises(ApiFault):
        desk.executor.unplace(known, WAITS, suspend=True, event=True, moves=True)
    assert [name for _, name in desk.server.asked] == ["status", known.workload.name]


def test_an_eviction_that_a_disruption_budget_forbids_is_told_and_is_no_fault(desk: Desk) -> None:
    """The other pods are evicted all the same; the state machine asks again after a pause."""
    known = known_gang(desk)
    pods = (pod(known.workload, 0, host="b0-r0-h0"), pod(known.workload, 1, host="b0-r0-h0"))

    def answer(_method: str, path: str) -> bytes:
        if f"/{pods[0].name}/" in path:
            raise ApiError(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
        return b"{}"

    desk.server.answer = answer
    desk.executor.remove(known, pods, evict=True, reason="NodeLost", message="2 pods on b0-r0-h0")
    assert desk.server.asked == [("POST", "eviction")] * 2
    assert sorted(desk.events) == ["EvictionRefused", "NodeLost"]


def test_a_deleted_placement_is_gone_at_once(desk: Desk) -> None:
    """The next look must not ask for its deletion again."""
    gang = job(count=1)
    placed = placement(gang, {"b0-r0-h0": 1})
    desk.stores.placements.replace([placed])
    desk.executor.forget(placed)
    assert desk.stores.placements.values() == []


def test_slots_are_taken_from_a_placement_whose_gang_is_gone(desk: Desk) -> None:
    """Only the slots: the request stays, and the owner, which deletes it."""
    placed = placement(job(count=1), {"b0-r0-h0": 1})
    desk.stores.placements.replace([placed])
    taken = replace(placed, assignment=None, resource_version="99999999")
    desk.server.answer = lambda _method, _path: json.dumps(placement_body(taken)).encode()
    desk.executor.take_slots(placed)
    assert desk.server.asked == [("PATCH", placed.name)]
    (body,) = desk.server.bodies
    assert body["metadata"]["resourceVersion"] == placed.resource_version
    assert "ownerReferences" not in body["metadata"]
    assert body["spec"]["assignment"] is None
    assert body["spec"]["podSets"]
    (left,) = desk.stores.placements.values()
    assert left.assignment is None


def test_without_the_lease_nothing_is_sent(desk: Desk) -> None:
    """The fence comes before every single write."""
    gang = job(count=1, held=True)
    desk.stores.workloads.replace([gang])
    desk.view.refresh()
    known = desk.view.gangs.get(gang.uid)
    assert known is not None
    desk.leads = False
    placed = placement(gang, {"b0-r0-h0": 1})
    executor: tuple[Callable[[], None], ...] = (
        lambda: desk.executor.place(known, placed),
        lambda: desk.executor.resume(replace(known, placement=placed)),
        lambda: desk.executor.release(replace(known, placement=placed), seats(gang, [pod(gang, 0, gated=True)])),
        lambda: desk.executor.unplace(replace(known, placement=placed), WAITS, suspend=True, event=True),
        lambda: desk.executor.unmanage(known, going(pod(gang, 0, gated=True), resume=True, forget=True)),
        lambda: desk.executor.forget(placed),
        lambda: desk.executor.take_slots(placed),
        lambda: desk.executor.extend(replace(known, placement=placed), placed, ExtensionRequest((), None, {}), "moved"),
        lambda: desk.executor.remove(known, (pod(gang, 0, host="h"),), evict=True, reason="NodeLost", message="lost"),
        lambda: desk.executor.remove(known, (pod(gang, 0, host="h"),), evict=False, reason="NodeLost", message="lost"),
    )
    for action in executor:
        with pytest.raises(NotLeader):
            action()
    assert desk.server.asked == []


def a_jobset(*, version: str, **more: Any) -> dict[str, Any]:
    """A JobSet as the API server stores it."""
    template = {"metadata": {"labels": {names.MANAGED: "true"}}, "spec": {"containers": []}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": "train",
            "namespace": "default",
            "uid": "uid-train",
            "resourceVersion": version,
            "generation": 1,
            "annotations": {names.REQUIRE: "rack", names.HELD_BY: names.HELD_BY_SUSPEND},
        },
        "spec": {
            "suspend": True,
            "replicatedJobs": [{"name": "w", "template": {"spec": {"template": template}}}],
            **more,
        },
    }


def held_jobset(desk: Desk) -> Gang:
    entry = built_in().find("jobset.x-k8s.io", "JobSet")
    assert entry is not None
    gang = workload(a_jobset(version="7"), entry=entry, registry=built_in())
    desk.stores.workloads.replace([gang])
    desk.view.refresh()
    known = desk.view.gangs.get(gang.uid)
    assert known is not None
    return replace(known, placement=placement(gang, {"b0-r0-h0": 1}))


def test_any_kind_is_written_to_where_it_is_served(desk: Desk) -> None:
    """After a conflict it is read again by its own entry, and written to once more."""
    gang = held_jobset(desk)
    answers = [ApiError(409, "Conflict", "changed"), a_jobset(version="8"), a_jobset(version="9", suspend=False)]
    paths: list[str] = []

    def answer(_method: str, path: str) -> bytes:
        paths.append(path)
        said = answers.pop(0)
        if isinstance(said, ApiError):
            raise said
        return json.dumps(said).encode()

    desk.server.answer = answer
    desk.executor.resume(gang)
    assert desk.server.asked == [("PATCH", "train"), ("GET", "train"), ("PATCH", "train")]
    assert set(paths) == {"/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/train"}
    written = desk.stores.workloads.get(gang.workload.key)
    assert written is not None
    assert (written.resource_version, written.suspended) == ("9", False)


def test_an_object_that_cannot_be_read_any_more_is_left_to_the_watch(desk: Desk) -> None:
    """Whatever its user made of it meanwhile."""
    gang = held_jobset(desk)

    def answer(method: str, _path: str) -> bytes:
        if method == "PATCH":
            raise ApiError(409, "Conflict", "changed")
        return json.dumps(a_jobset(version="8", replicatedJobs=7)).encode()

    desk.server.answer = answer
    with pytest.raises(StaleObject):
        desk.executor.resume(gang)
    assert [method for method, _ in desk.server.asked] == ["PATCH", "GET"]


@pytest.mark.parametrize("event", [True, False])
def test_a_text_is_written_without_an_event(desk: Desk, event: bool) -> None:
    """Its numbers change all the time: that is no news."""
    gang = job(count=1, held=True)
    desk.stores.workloads.replace([gang])
    desk.stores.placements.replace([placement(gang, None)])
    desk.view.refresh()
    known = desk.view.gangs.get(gang.uid)
    assert known is not None
    written = placement_body(placement(gang, None))
    written["metadata"] |= {"uid": "uid", "resourceVersion": "99999999"}
    desk.server.answer = lambda _method, _path: json.dumps(written).encode()
    desk.executor.report(known, WAITS, None, event=event)
    assert ("PATCH", "status") in desk.server.asked
    assert desk.events == (["NodeLost"] if event else [])
    assert desk.copies == ([("Placement", "NodeLost")] if event else [])


@pytest.mark.parametrize("refused", [0, 1, None])
def test_no_workload_of_a_group_is_resumed_before_all_placements_are_written(desk: Desk, refused: int | None) -> None:
    """A refusal of any of them ends it; without one the Placements come first, then every workload is resumed."""
    jobs = [job(name, count=1, held=True) for name in ("a", "b")]
    plans = [(one, placement(one, {"b0-r0-h0": 1}, resource_version="", uid="")) for one in jobs]
    desk.stores.workloads.replace(jobs)
    desk.view.refresh()
    writes: list[tuple[str, str]] = []

    def answer(method: str, path: str) -> bytes:
        name = path.rpartition("/")[2]
        if method == "POST":
            number = sum(1 for how, _ in writes if how == "POST")
            writes.append((method, name))
            if number == refused:
                raise ApiError(422, "Invalid", "no", (("spec.x", "no"),))
            return json.dumps(placement_body(replace(plans[number][1], uid="u", resource_version="9"))).encode()
        writes.append((method, name))
        if name == "a":
            raise ApiUnavailable("no answer")
        return job_json(jobs[1])

    desk.server.answer = answer
    gangs = [desk.view.gangs.get(one.uid) for one in jobs]
    with pytest.raises(ApiFault):
        desk.executor.place_group([(cast(Gang, gang), plan) for gang, (_, plan) in zip(gangs, plans, strict=True)])
    patched = [name for how, name in writes if how == "PATCH"]
    assert patched == ([] if refused is not None else ["a", "b"])


def failed_list(padding: str) -> bytes:
    """The list of one failed pod of rank 3, as large as its user likes."""
    one = {
        "metadata": {"name": "train-3", "annotations": {names.RANK: "3", "x": padding}},
        "spec": {"nodeName": "host-000"},
        "status": {"phase": "Failed", "reason": "Evicted"},
    }
    return json.dumps({"kind": "PodList", "items": [one]}).encode()


@pytest.mark.parametrize(
    ("size", "told"), [(1000, "rank 3 failed on host-000 (Evicted)"), (MOST_FAILED, "")], ids=["small", "large"]
)
def test_failed_pods_are_read_within_a_bound(desk: Desk, size: int, told: str) -> None:
    """Users decide how many pods fail, and how large they are: the leader keeps its memory, and says nothing."""
    known = known_gang(desk)

    def request(method: str, path: str, *, most: int, **_more: Any) -> bytes:
        if len(body := failed_list("x" * size)) > most:
            raise ApiUnavailable(f"{method} {path}: an answer of more than {most} bytes")
        return body

    desk.server.request = request  # type: ignore[method-assign, assignment]
    assert desk.executor.failures(known) == told


def test_the_failed_pods_of_few_gangs_are_read_at_once(desk: Desk) -> None:
    """A rack that fails takes many gangs with it, and their lists are all in memory."""
    fifth = threading.Barrier(5)
    met: list[int] = []

    def answer(_method: str, _path: str) -> bytes:
        with suppress(threading.BrokenBarrierError):
            met.append(fifth.wait(0.5))
        return failed_list("")

    desk.server.answer, known = answer, known_gang(desk)
    with ThreadPoolExecutor(16) as pool:
        told = [*pool.map(desk.executor.failures, [known] * 16)]
    assert (met, set(told)) == ([], {"rank 3 failed on host-000 (Evicted)"})


def test_a_gang_of_which_the_suspension_is_refused_stays_where_it_is(desk: Desk) -> None:
    """The answer to its user is final: asked for at every look, nothing else would be done for the gang."""
    known = known_gang(desk)
    assert known.placement is not None
    known = replace(known, request=replace(known.request, replan="now"))
    statuses: list[Any] = []

    def request(_method: str, path: str, *, body: Any = None, **_more: Any) -> bytes:
        if not path.endswith("/status"):
            raise ApiError(403, "Forbidden", "not while it trains", ())
        statuses.append(body["status"]["replan"])
        return json.dumps(placement_body(replace(known.placement, uid="u", resource_version="9"))).encode()  # type: ignore[type-var]

    desk.server.request = request  # type: ignore[method-assign, assignment]
    record = replace(kept_record(known, "", wall=0.0), outcome="Restarting", message="restarts in b0 / b0-r0")
    desk.executor.restart(known, record)
    assert [one["outcome"] for one in statuses] == ["Restarting", "Kept"]
    assert statuses[-1]["message"].endswith("its suspension was refused: not while it trains")
    assert desk.events == ["SuspendRefused", "NotMoved"]
