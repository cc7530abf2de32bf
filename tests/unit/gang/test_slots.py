"""Which slot belongs to which pod."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.placement import PodSetPlan, Slot
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.gang.gang import pinned_host
from engine.gang.reservation import reservation
from engine.gang.slots import assign_slots, left_domain, scaled_down, slot_by_rank, slot_of_rank, slots_of
from engine.topology.levels import Level
from engine.topology.topology import build_topology
from tests.support.cluster_records import changed, gpu_nodes, job, placement, pod, shape


def test_a_placed_gang_without_pods_reserves_every_slot() -> None:
    """Before any pod exists, every slot of the assignment is reserved."""
    gang = job(count=4)
    assert reservation(gang, placement(gang, {"h0": 3, "h1": 1}), ()) == {"h0": 3, "h1": 1}


def test_a_bound_pod_turns_its_reservation_into_usage() -> None:
    """The slot of a bound pod is not reserved any more; the others are."""
    gang = job(count=4)
    pods = [pod(gang, 1, host="h0"), pod(gang, 3, host="h1")]
    assert reservation(gang, placement(gang, {"h0": 3, "h1": 1}), pods) == {"h0": 2}


def test_a_pinned_pod_that_is_not_bound_keeps_its_reservation() -> None:
    """Until the scheduler has bound a pod, its slot stays reserved."""
    gang = job(count=2)
    pods = [pod(gang, 0, pin="h0"), pod(gang, 1, gated=True)]
    assert reservation(gang, placement(gang, {"h0": 2}), pods) == {"h0": 2}


@pytest.mark.parametrize("over", [{"finished": True}, {"deleting": True}], ids=["finished", "being deleted"])
def test_a_gang_that_is_over_reserves_nothing(over: dict[str, bool]) -> None:
    """A workload that has ended or is being deleted holds no room."""
    gang = replace(job(count=2), **over)
    assert reservation(gang, placement(gang, {"h0": 2}), ()) == {}


@pytest.mark.parametrize("held", [True, False], ids=["by us", "by its user"])
def test_a_suspended_gang_keeps_its_reservation(held: bool) -> None:
    """Between the plan and the resume, and from its user's suspension until its Placement has lost the slots."""
    gang = replace(job(count=2, held=held), suspended=True)
    assert reservation(gang, placement(gang, {"h0": 2}), ()) == {"h0": 2}


def test_finished_ranks_give_their_slots_back() -> None:
    """A completed index needs its slot no more, whether its pod is still there or not."""
    gang = job(count=4, finished_ranks=((0, 0),), remaining=3)
    pods = [pod(gang, 1, host="h0", phase="Succeeded")]
    assert reservation(gang, placement(gang, {"h0": 2, "h1": 2}), pods) == {"h1": 2}


def test_a_failed_rank_keeps_its_slot_for_the_replacement() -> None:
    """A failed pod uses nothing, and its rank comes back: the slot is reserved again."""
    gang = job(count=2)
    pods = [pod(gang, 0, host="h0", phase="Failed"), pod(gang, 1, host="h1")]
    assert reservation(gang, placement(gang, {"h0": 1, "h1": 1}), pods) == {"h0": 1}


def test_a_terminating_pod_and_its_replacement_share_a_slot() -> None:
    """A slot counts once while the old pod is still going away."""
    gang = job(count=1)
    pods = [pod(gang, 0, host="h0", deleting=True), pod(gang, 0, pin="h0", name="new")]
    assert reservation(gang, placement(gang, {"h0": 1}), pods) == {}


def test_a_pod_that_landed_elsewhere_fills_the_slot_of_its_rank() -> None:
    """Somebody took the gate off by hand: the pod counts where it is, its slot is free for others."""
    gang = job(count=2)
    pods = [pod(gang, 0, host="far-away")]
    assert reservation(gang, placement(gang, {"h0": 1, "h1": 1}), pods) == {"h1": 1}


def test_slots_are_kept_while_more_completions_are_to_come() -> None:
    """With more completions than slots, a finished pod's slot waits for the next index."""
    gang = job(count=2, total=6, remaining=5, finished_ranks=((0, 0),))
    pods = [pod(gang, 0, host="h0", phase="Succeeded"), pod(gang, 1, host="h0")]
    assert reservation(gang, placement(gang, {"h0": 2}), pods) == {"h0": 1}


def test_slots_go_back_when_fewer_indexes_are_left_than_slots() -> None:
    """Near the end of a Job with more completions than slots, as many slots are kept as completions are missing."""
    gang = job(count=4, total=12, remaining=2, finished_ranks=((0, 9),))
    pods = [pod(gang, 10, host="h1")]
    assert reservation(gang, placement(gang, {"h0": 2, "h1": 2}), pods) == {"h0": 1}


def test_held_pods_are_seated_by_rank() -> None:
    """Every held pod goes to the slot of its own rank."""
    gang = job(count=4)
    pods = [pod(gang, rank, gated=True) for rank in (3, 0, 2, 1)]
    seats = assign_slots(gang, placement(gang, {"h0": 2, "h1": 2}), pods).assignments
    assert {one.rank: one.slot.host for one in seats} == {0: "h0", 1: "h0", 2: "h1", 3: "h1"}


def test_a_rank_belongs_to_its_first_live_pod() -> None:
    """A second pod with the rank of a live one gets no slot, and is told why."""
    gang = job(count=2)
    pods = [pod(gang, 0, host="h0"), pod(gang, 0, gated=True, name="again")]
    seating = assign_slots(gang, placement(gang, {"h0": 2}), pods)
    assert seating.assignments == ()
    assert [one.pod.name for one in seating.refused] == ["again"]
    assert "belongs to another live pod" in seating.refused[0].why


@pytest.mark.parametrize("label", ["7", "-1", "abc", "", "99999999999"])
def test_an_index_without_a_slot_is_refused(label: str) -> None:
    """An index beyond the gang, or one that is no number, gets no slot."""
    gang = job(count=2)
    odd = pod(gang, 0, gated=True)
    odd = replace(odd, spec=replace(odd.spec, labels={**odd.spec.labels, names.COMPLETION_INDEX: label}))
    seating = assign_slots(gang, placement(gang, {"h0": 2}), [odd])
    assert seating.assignments == ()
    assert len(seating.refused) == 1


def test_a_pod_under_a_foreign_gate_is_not_ready() -> None:
    """Our gate goes last: a pod that somebody else holds too is left alone."""
    gang = job(count=1)
    held = pod(gang, 0, gated=True)
    held = replace(held, spec=replace(held.spec, gates=(names.GATE, "example.com/theirs")))
    seating = assign_slots(gang, placement(gang, {"h0": 1}), [held])
    assert seating.assignments == ()
    assert seating.foreign == (held,)


def test_unranked_pods_take_free_slots_in_order() -> None:
    """Pods without a rank fill what no bound or pinned pod of the gang has taken."""
    gang = job(count=4, ranked=False)
    pods = [
        pod(gang, None, host="h0"),
        pod(gang, None, pin="h1"),
        *(pod(gang, None, gated=True, name=f"p{i}") for i in range(2)),
    ]
    seats = assign_slots(gang, placement(gang, {"h0": 2, "h1": 2}, ranked=False), pods).assignments
    assert [(one.pod.name, one.slot.host, one.rank) for one in seats] == [("p0", "h0", 0), ("p1", "h1", 2)]


def ranks(gang: Workload, hosts: dict[str, int], pods: list[Pod]) -> dict[str, int | None]:
    """The ranks that held pods get."""
    placed = placement(gang, hosts, ranked=False)
    return {one.pod.name: one.rank for one in assign_slots(gang, placed, pods).assignments}


def given(one: Pod, rank: int) -> Pod:
    """The pod after its release with that rank."""
    return replace(one, spec=replace(one.spec, annotations={**one.spec.annotations, names.RANK: str(rank)}))


def test_pods_without_an_index_get_ranks_in_the_order_of_their_creation() -> None:
    """The ranks count through the slots: consecutive ranks share a host."""
    gang = job(count=4, ranked=False)
    pods = [replace(pod(gang, None, gated=True, name=name), created=float(at)) for at, name in enumerate("cbad")]
    assert ranks(gang, {"h0": 2, "h1": 2}, pods[::-1]) == {"c": 0, "b": 1, "a": 2, "d": 3}


def test_a_replacement_gets_the_rank_of_the_pod_that_is_gone() -> None:
    """The others keep theirs."""
    gang = job(count=4, ranked=False)
    live = [given(pod(gang, None, host=host), rank) for host, rank in (("h0", 1), ("h1", 3), ("h1", 2))]
    assert ranks(gang, {"h0": 2, "h1": 2}, [*live, pod(gang, None, gated=True, name="new")]) == {"new": 0}


def test_no_two_live_pods_have_one_rank_after_the_slots_have_moved() -> None:
    """A pod keeps the rank of a place where its gang was before; the newcomers share the others."""
    gang = job(count=4, ranked=False)
    live = [given(pod(gang, None, host="h1"), 0), given(pod(gang, None, host="h1"), 1)]
    pods = [*live, *(pod(gang, None, gated=True, name=f"p{i}") for i in range(2))]
    assert ranks(gang, {"h0": 2, "h1": 2}, pods) == {"p0": 2, "p1": 3}


@pytest.mark.parametrize("text", ["", "-1", "01", "x", "9" * 40, "\u0663"])
def test_a_rank_that_is_no_number_takes_none_from_others(text: str) -> None:
    """What users write into the annotation of a running pod."""
    gang = job(count=2, ranked=False)
    one = pod(gang, None, host="h0")
    forged = replace(one, spec=replace(one.spec, annotations={names.RANK: text}))
    assert ranks(gang, {"h0": 2}, [forged, pod(gang, None, gated=True, name="new")]) == {"new": 0}


def test_an_index_beyond_the_slots_takes_a_free_one() -> None:
    """With more completions than slots, the leader gives a later index the slot that became free."""
    gang = job(count=2, total=4, remaining=3, finished_ranks=((0, 0),))
    pods = [pod(gang, 1, host="h1"), pod(gang, 2, gated=True)]
    seats = assign_slots(gang, placement(gang, {"h0": 1, "h1": 1}), pods).assignments
    assert [(one.rank, one.slot.host) for one in seats] == [(2, "h0")]


def test_no_more_pods_are_seated_than_there_are_slots() -> None:
    """A pod too many stays held."""
    gang = job(count=2, ranked=False)
    pods = [pod(gang, None, gated=True) for _ in range(3)]
    seating = assign_slots(gang, placement(gang, {"h0": 2}, ranked=False), pods)
    assert (len(seating.assignments), len(seating.refused)) == (2, 1)


@pytest.mark.parametrize(("there", "released"), [("", 1), ("elsewhere", 0)])
def test_a_pod_that_is_bound_elsewhere_has_a_slot_until_it_ends(there: str, released: int) -> None:
    """A gang whose minimum has slots: a pod too many does not get the one for which a pod is about to leave."""
    gang = job(count=4, ranked=False)
    old = pod(gang, None, host=there) if there else pod(gang, None, host="elsewhere", deleting=True)
    pods = [pod(gang, None, host="h0"), old, *(pod(gang, None, gated=True) for _ in range(2))]
    seating = assign_slots(gang, placement(gang, {"h0": 1, "h1": 1}, ranked=False), pods)
    assert [one.slot.host for one in seating.assignments] == ["h1"] * released
    assert len(seating.refused) == 2 - released


def test_scaling_down_drops_the_highest_ranks() -> None:
    """A smaller Job keeps the slots of its lowest ranks, as the Job controller removes the highest indexes."""
    gang = job(count=3)
    before = placement(job(count=5), {"h0": 2, "h1": 3})
    after = scaled_down(gang, before, ())
    assert after is not None
    assert {rank: slot.host for rank, slot in slot_by_rank(after.plan_of("main")).items()} == {
        0: "h0",
        1: "h0",
        2: "h1",
    }


def test_a_gang_of_the_right_size_is_not_trimmed() -> None:
    """Nothing is rewritten while the assignment fits the workload."""
    gang = job(count=2)
    assert scaled_down(gang, placement(gang, {"h0": 2}), ()) is None


def test_a_pin_is_recognised_only_when_every_term_names_the_same_host() -> None:
    """Terms are ORed: one that leaves the host open means that the pod is not pinned."""
    gang = job(count=1)
    one = pod(gang, 0, pin="h0").spec.shape
    other = pod(gang, 0, pin="h1").spec.shape
    assert one.affinity is not None and other.affinity is not None
    assert pinned_host(one) == "h0"
    assert pinned_host(replace(one, affinity=(*one.affinity, *other.affinity))) is None
    assert pinned_host(shape(gpu=1)) is None


def test_a_terminating_pod_elsewhere_does_not_fill_the_new_slot_of_its_rank() -> None:
    """Suspended and planned anew while the old pods still terminate: all new slots are reserved beside them."""
    gang = job(count=2)
    old = [pod(gang, rank, host=f"old{rank}", deleting=True) for rank in range(2)]
    assert reservation(gang, placement(gang, {"h0": 1, "h1": 1}), old) == {"h0": 1, "h1": 1}


def test_a_terminating_pod_elsewhere_does_not_fill_a_slot_that_any_pod_may_take() -> None:
    """The same where ranks are no slots."""
    gang = job(count=2, ranked=False)
    old = [pod(gang, None, host=f"old{number}", deleting=True) for number in range(2)]
    assert reservation(gang, placement(gang, {"h0": 2}, ranked=False), old) == {"h0": 2}


def test_a_terminating_pod_shares_its_slot_with_its_replacement() -> None:
    """One slot, counted once: as the usage of the pod that still fills it."""
    for ranked in (True, False):
        gang = job(count=2, ranked=ranked)
        leaving = pod(gang, 0 if ranked else None, host="h0", deleting=True)
        coming = pod(gang, 0 if ranked else None, pin="h0")
        assert reservation(gang, placement(gang, {"h0": 1, "h1": 1}, ranked=ranked), [leaving, coming]) == {"h1": 1}


def test_a_nominated_pod_fills_its_slot() -> None:
    """The ledger counts it as usage where it is nominated: not a second time as a reservation."""
    gang = job(count=2)
    coming = pod(gang, 0, pin="h0", nominated_node="h0")
    assert reservation(gang, placement(gang, {"h0": 1, "h1": 1}), [coming]) == {"h1": 1}


def test_the_slot_of_a_released_pod_is_the_last_to_go_back() -> None:
    """Fewer completions left than slots: what stays reserved is where the pod that is on its way will land."""
    gang = job(count=3, total=9, remaining=1)
    coming = pod(gang, 8, pin="h2")
    assert reservation(gang, placement(gang, {"h0": 1, "h1": 1, "h2": 1}), [coming]) == {"h2": 1}


def test_a_released_pod_keeps_the_room_where_it_is_pinned() -> None:
    """Pinned from an older plan to another host of the gang: it can land there, and its successor wants its slot."""
    gang = job(count=2)
    coming = pod(gang, 0, pin="h1")
    assert reservation(gang, placement(gang, {"h0": 1, "h1": 1}), [coming]) == {"h0": 1, "h1": 2}


def test_a_host_that_left_the_required_domain_has_moved() -> None:
    """By its labels of today; for a gang that only prefers a level it does not matter."""
    gang = job(count=1)
    placed = placement(gang, {"b0-r0-h0": 1})
    slot = slots_of(placed.assignment)[0] if placed.assignment else None
    assert slot is not None
    here, there = gpu_nodes(1, 1, 1)[0], gpu_nodes(1, 2, 1)[1]
    levels = (
        Level("block", ("cloud.provider.com/topology-block",)),
        Level("rack", ("cloud.provider.com/topology-rack",)),
    )
    assert not left_domain(placed, slot, build_topology("default", levels, [here]), pod_set="main")
    elsewhere = build_topology("default", levels, [replace(there, name=here.name)])
    assert left_domain(placed, slot, elsewhere, pod_set="main")
    assert left_domain(placed, slot, build_topology("default", levels, [there]), pod_set="main")
    assert not left_domain(
        placed, slot, build_topology("default", levels[1:], [replace(there, name=here.name)]), pod_set="main"
    )
    wide = replace(placed, pod_sets=(replace(placed.pod_sets[0], require="block"),))
    assert not left_domain(wide, slot, elsewhere, pod_set="main")
    soft = replace(placed, pod_sets=(replace(placed.pod_sets[0], require=None, prefer="rack"),))
    assert not left_domain(soft, slot, elsewhere, pod_set="main")
    auto = replace(placed, pod_sets=(replace(placed.pod_sets[0], require="auto"),))
    assert left_domain(auto, slot, elsewhere, pod_set="main")


def test_no_host_has_left_a_domain_of_a_level_that_the_policy_has_no_more() -> None:
    """Its other labels tell nothing about the domain that the gang was placed in."""
    gang = job(count=1)
    placed = placement(gang, {"b0-r0-h0": 1})
    slot = slots_of(placed.assignment)[0] if placed.assignment else None
    assert slot is not None
    levels = (Level("zone", ("kubernetes.io/hostname",)), Level("row", ("cloud.provider.com/topology-block",)))
    assert not left_domain(placed, slot, build_topology("default", levels, gpu_nodes(1, 1, 1)), pod_set="main")


def test_slots_in_which_pods_are_go_last_when_a_gang_without_ranks_shrinks() -> None:
    """From the end, those that nobody uses: the pod on the last host keeps its slot."""
    gang = job(count=2, ranked=False)
    before = placement(gang, {"h0": 1, "h1": 1}, ranked=False)
    smaller = changed(gang, slots=1, total=1)
    after = scaled_down(smaller, before, [pod(gang, None, host="h1")])
    assert after is not None
    assert [(slot.host, slot.count) for slot in after.pod_sets[0].slots] == [("h1", 1)]


@pytest.mark.parametrize("turned", [False, True], ids=["in order", "in any order"])
def test_a_rank_is_found_in_whichever_range_of_a_slot_it_is(turned: bool) -> None:
    """After repairs a slot has ranges far from its first, and they need not be in order in what others wrote."""
    ranks = {"a": ((0, 1), (8, 9)), "b": ((2, 2), (5, 5)), "c": ((3, 4), (7, 7)), "d": None}
    slots = [Slot(("rack", host), 1, ranges) for host, ranges in ranks.items()]
    plan = PodSetPlan("main", tuple(reversed(slots) if turned else slots))
    found = {rank: slot.host for rank in range(-1, 11) if (slot := slot_of_rank(plan, rank)) is not None}
    assert found == {0: "a", 1: "a", 2: "b", 3: "c", 4: "c", 5: "b", 7: "c", 8: "a", 9: "a"}
