"""Gangs of plain pods: gang-name and gang-size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.pod import OwnerRef, Pod
from engine.gang.gang import pinned_host
from engine.gang.plain_pods import faults, plain_workload
from engine.resources.shape import with_requests
from tests.support.cluster_records import gpu_nodes, job
from tests.support.families import below, plain
from tests.support.leader import Leader

KEY = "pods/default/mesh"


def led(*pods: Pod, hosts: int = 4) -> Leader:
    leader = Leader(nodes=gpu_nodes(1, 1, hosts))
    leader.has(*pods)
    leader.settle()
    return leader


def reasons(leader: Leader) -> list[str]:
    leader.later(5)
    return [status.reason for name, status in leader.hands.told if name == "mesh"]


def test_a_gang_goes_when_all_of_its_pods_exist() -> None:
    leader = led(plain("a"))
    assert leader.hands.of("release") == []
    leader.has(plain("b"))
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["a", "b"]


def test_its_placement_is_named_after_the_gang() -> None:
    leader = led(plain("a"), plain("b"))
    (placed,) = leader.view.gangs.placements()
    assert placed.name.startswith("pods-mesh-")
    assert (placed.workload.kind, placed.workload.name, placed.workload.uid) == ("Pod", "mesh", "")
    assert sum(slot.count for plan in placed.assignment.pod_sets for slot in plan.slots) == 2  # type: ignore[union-attr]


def test_it_is_all_or_nothing() -> None:
    """Room for one of two: neither goes."""
    leader = led(plain("a"), plain("b"), hosts=1)
    assert leader.hands.of("release") == []
    assert reasons(leader) == ["GangTooLarge"]


def test_one_that_lacks_pods_says_how_many() -> None:
    """Not at once: the pods of one gang are made one after the other."""
    leader = led(plain("a", size="3"), plain("b", size="3"))
    assert leader.hands.told == []
    assert reasons(leader) == ["WaitingForMembers"]
    assert "2 of 3 pods of mesh exist" in leader.hands.told[-1][1].message


def test_one_whose_pods_come_soon_is_never_said_to_lack_them() -> None:
    leader = led(plain("a", size="2"))
    leader.later(1)
    leader.has(plain("b", size="2"))
    leader.settle()
    assert "WaitingForMembers" not in reasons(leader)
    assert leader.hands.of("release") == ["a", "b"]


def test_pods_that_give_different_sizes_stay_held() -> None:
    leader = led(plain("a", size="2"), plain("b", size="3"))
    assert leader.hands.of("release") == []
    assert reasons(leader) == ["GangSizeMismatch"]


def test_more_pods_than_the_size_stay_held() -> None:
    """Nobody knows which of them are meant."""
    leader = led(plain("a"), plain("b"), plain("c"))
    assert leader.hands.of("release") == []
    assert reasons(leader) == ["GangSizeMismatch"]


@pytest.mark.parametrize("size", [None, "0", "-1", "two", "", "99999999", "1e3", "²"])
def test_a_size_that_is_none_holds_the_gang(size: str | None) -> None:
    leader = led(plain("a", size=size), plain("b", size=size))
    assert leader.hands.of("release") == []
    assert reasons(leader)[0] in ("MissingValue", "InvalidValue")


def test_pods_that_ask_for_different_things_stay_held() -> None:
    leader = led(plain("a"), plain("b", says={names.REQUIRE: "block"}))
    assert leader.hands.of("release") == []
    assert reasons(leader) == ["ConflictingAnnotations"]


def test_a_gang_without_a_level_needs_no_more_than_room() -> None:
    leader = led(plain("a", says={}), plain("b", says={}))
    assert sorted(leader.hands.of("release")) == ["a", "b"]


def test_pods_of_another_namespace_are_another_gang() -> None:
    leader = led(plain("a"), plain("b", namespace="elsewhere"))
    assert leader.hands.of("release") == []
    assert sorted(leader.view.gangs.keys()) == [KEY, "pods/elsewhere/mesh"]


def test_a_pod_of_a_registered_workload_is_of_no_plain_gang() -> None:
    """Its Job decides."""
    one = job(require=None)
    leader = led(plain("a"), below(plain("b"), one))
    assert [each.name for each in leader.view.gangs.pods_of(KEY)] == ["a"]


def test_pods_of_an_owner_that_nobody_knows_may_be_a_gang() -> None:
    owner = OwnerRef("example.com/v1", "Thing", "t", "u", True)
    leader = led(plain("a", owner=owner), plain("b", owner=owner))
    assert sorted(leader.hands.of("release")) == ["a", "b"]


def test_the_largest_request_counts_for_every_slot() -> None:
    big = plain("b")
    requests = tuple(
        (name, amount + 1 if name == "nvidia.com/gpu" else amount) for name, amount in big.spec.shape.requests
    )
    big = replace(big, spec=replace(big.spec, shape=with_requests(big.spec.shape, requests)))
    leader = led(plain("a"), big)
    gang = leader.view.gangs.get(KEY)
    assert gang is not None
    assert dict(gang.shapes["main"].requests)["nvidia.com/gpu"] == dict(requests)["nvidia.com/gpu"]


def test_a_pod_that_has_ended_gives_its_slot_back() -> None:
    leader = led(plain("a"), plain("b"))
    freed = leader.stores.pods.get(("default", "a"))
    assert freed is not None
    assert leader.view.capacity.reserved(KEY)
    leader.has(replace(freed, phase="Succeeded", resource_version=leader.hands.version()))
    leader.settle()
    assert sum(leader.view.capacity.reserved(KEY).values()) == 1


def test_a_pod_that_is_deleted_gives_its_slot_back() -> None:
    """Nothing makes another one."""
    leader = led(plain("a"), plain("b"))
    gone = leader.stores.pods.get(("default", "a"))
    assert gone is not None
    leader.stores.pods.apply("DELETED", gone)
    leader.settle()
    assert sum(leader.view.capacity.reserved(KEY).values()) == 1


def test_a_gang_whose_pods_are_all_gone_is_forgotten() -> None:
    leader = led(plain("a"), plain("b"))
    for one in leader.stores.pods.values():
        leader.stores.pods.apply("DELETED", one)
    leader.settle()
    assert leader.view.gangs.get(KEY) is None
    assert leader.view.capacity.reserved(KEY) == {}
    leader.later(31)
    leader.later(31)
    assert leader.hands.of("forget") == [leader.hands.of("forget")[0]]


def test_switched_off_its_pods_are_freed() -> None:
    leader = led(plain("a"))
    leader.view.set_policy(leader.view.policy.model_copy(update={"mode": "off"}))
    leader.settle()
    assert leader.hands.of("let go") == ["mesh"]


def test_whose_a_pod_is_is_told_without_looking_at_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for every held pod: with ten thousand in one gang that would be done ten thousand times."""
    leader = led(plain("a"), plain("b"))
    monkeypatch.setattr("engine.gang.plain_pods.plain_workload", None)
    assert leader.view.gangs.gang_of(plain("a")) == KEY


@pytest.mark.parametrize("gang", ["", "a b", "../../etc", "a/b", "ok\x00", "-a", "x" * 64, "x" * 250_000, "\u0661"])
def test_a_name_that_is_none_holds_the_gang(gang: str) -> None:
    """It would stand in the Placement, in labels and in Events."""
    leader = led(plain("a", gang=gang), plain("b", gang=gang))
    assert leader.hands.of("release") == []
    leader.later(5)
    ((_, status),) = leader.hands.told
    assert status.reason == "InvalidValue"
    assert status.message.startswith(f"metadata.annotations[{names.GANG_NAME}]: must be a name")
    assert len(status.message) < 300


def test_a_hostile_name_of_a_pod_is_escaped_in_messages() -> None:
    """A webhook sees it before the API server refuses the name."""
    named = replace(plain("a", size=None), name="a\x00\x1b[31m")
    dialects = led().view.policy.annotations.dialects
    workload = plain_workload(KEY, [named], dialects=dialects)
    (fault,) = faults(workload, [named], placed=False, dialects=dialects)
    assert "names a gang but not its size (pod a" in fault.message
    assert fault.message.isprintable()


def test_a_size_beyond_the_policy_is_told_where_it_stands() -> None:
    """A million pods are awaited by nobody."""
    leader = led(plain("a", size="1000000"))
    gang = leader.view.gangs.get(KEY)
    assert gang is not None
    ((field, reason),) = [(one.field, one.reason) for one in leader.view.request_of(gang.workload).errors]
    assert (field, reason) == (f"metadata.annotations[{names.GANG_SIZE}]", "GangLimitExceeded")


def changed(leader: Leader, name: str, *, gang: str | None = None, size: str | None = None, **more: object) -> None:
    """Somebody writes another gang-name or gang-size on a pod; or the pod gets a host."""
    found = leader.stores.pods.get(("default", name))
    assert found is not None
    said = {key: value for key, value in ((names.GANG_NAME, gang), (names.GANG_SIZE, size)) if value is not None}
    spec = replace(found.spec, annotations={**found.spec.annotations, **said}, **more)  # type: ignore[arg-type]
    phase = "Running" if spec.node_name else found.phase
    leader.has(replace(found, spec=spec, phase=phase, resource_version=leader.hands.version()))


def running(*pods: Pod) -> Leader:
    """A gang whose pods are all bound."""
    leader = led(*pods)
    for one in list(leader.stores.pods.values()):
        assert not one.spec.gates
        changed(leader, one.name, node_name=pinned_host(one.spec.shape))
    leader.settle()
    return leader


def slots(leader: Leader, gang: str = "mesh") -> dict[str, int]:
    (placed,) = [one for one in leader.view.gangs.placements() if one.workload.name == gang]
    assert placed.assignment is not None
    return {slot.host: slot.count for plan in placed.assignment.pod_sets for slot in plan.slots}


def removed(leader: Leader) -> list[str]:
    return [*leader.hands.of("evict"), *leader.hands.of("delete")]


def test_a_held_pod_with_another_gang_name_is_of_that_gang() -> None:
    leader = led(plain("a"))
    changed(leader, "a", gang="other")
    leader.has(plain("b"))
    leader.settle()
    assert leader.hands.of("release") == []
    leader.has(plain("c", gang="other"))
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["a", "c"]


def test_another_size_counts_when_all_held_pods_give_it() -> None:
    """In between they contradict each other."""
    leader = led(plain("a", size="3"), plain("b", size="3"))
    changed(leader, "a", size="2")
    leader.settle()
    assert (leader.hands.of("release"), reasons(leader)) == ([], ["GangSizeMismatch"])
    changed(leader, "b", size="2")
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["a", "b"]


def test_a_running_pod_with_another_gang_name_leaves_its_slot_and_its_host_full() -> None:
    """It is not stopped; another pod of the gang gets a host that is free."""
    leader = running(plain("a"), plain("b"))
    before = slots(leader)
    changed(leader, "b", gang="other")
    leader.later(40)
    assert (removed(leader), slots(leader)) == ([], before)
    leader.has(plain("c"))
    leader.settle()
    c = leader.stores.pods.get(("default", "c"))
    assert c is not None
    assert c.spec.gates == ()
    assert pinned_host(c.spec.shape) not in before
    assert all(leader.view.capacity.free(host)["nvidia.com/gpu"] >= 0 for host in (*before, *slots(leader)))
    assert removed(leader) == []


def test_a_running_gang_with_a_larger_size_takes_more_pods_and_a_smaller_one_stops_none() -> None:
    leader = running(plain("a"), plain("b"))
    before = slots(leader)
    for name in ("a", "b"):
        changed(leader, name, size="3")
    leader.later(40)
    assert slots(leader) == before  # pods with a host say only that they stay there
    assert {status.reason for name, status in leader.hands.told if name == "mesh"} == {""}
    (placed,) = leader.view.gangs.placements()
    assert placed.status["message"] == "2 pods ready; 1 more pod to come: planned when it exists"
    leader.has(plain("c", size="3"))
    leader.settle()
    c = leader.stores.pods.get(("default", "c"))
    assert c is not None
    assert c.spec.gates == ()
    assert slots(leader).keys() == {*before, pinned_host(c.spec.shape)}
    for name in ("a", "b", "c"):
        changed(leader, name, size="1")
    leader.later(40)
    assert removed(leader) == []
