"""Gangs of several pod sets: known best answers, minimums, growth, repair, and what makes no sense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.planner.gang import GangPlan, GangPlanRequest, HostAssignment, PodSetPlanRequest, Undecided
from engine.planner.plan import NoFit
from engine.planner.plan_gang import plan_gang
from engine.planner.slices import Slices
from engine.planner.tree import Tree, build_tree
from tests.support.small_trees import grow

RACK, HOST = 1, 2


def room(nested: list[Any]) -> tuple[Tree, np.ndarray[Any, np.dtype[np.int64]]]:
    """[block][rack][host] -> the tree, and one resource: free pods."""
    tree, slots = grow(nested)
    return tree, slots[:, None]


def two(nested: list[Any], second: list[int]) -> tuple[Tree, np.ndarray[Any, np.dtype[np.int64]]]:
    """The same with a second resource per host."""
    tree, free = room(nested)
    return tree, np.column_stack((free, second))


def pods(count: int, *requests: int, **more: Any) -> PodSetPlanRequest:
    return PodSetPlanRequest(count, requests or (1,), **more)


def planned(place: tuple[Tree, np.ndarray[Any, np.dtype[np.int64]]], *sets: PodSetPlanRequest, **more: Any) -> GangPlan:
    answer = plan_gang(*place, GangPlanRequest(sets, **more))
    assert isinstance(answer, GangPlan), answer
    return answer


def hosts(seats: HostAssignment) -> dict[int, int]:
    return dict(seats.hosts)


def test_a_greedy_first_pod_set_does_not_make_the_second_infeasible() -> None:
    """The pod set that fits everywhere leaves the only host with GPUs to the one that needs it."""
    place = two([[[2], [1]]], [0, 2])
    answer = planned(place, pods(1, 1, 0, require=RACK), pods(1, 1, 1, require=RACK))
    assert [hosts(seats) for seats in answer.pod_sets] == [{0: 1}, {1: 1}]
    assert answer.proven


def test_a_leader_shares_the_host_of_its_workers() -> None:
    """Colocated pod sets are counted together: one host that holds both beats two that hold one each."""
    place = two([[[1, 2]], [[3]]], [0, 0, 1])
    answer = planned(place, pods(2, 1, 0, prefer=RACK, colocate="g"), pods(1, 1, 0, prefer=RACK, colocate="g"))
    assert answer.domains_used == (1, 1, 1)
    assert answer.proven


def test_colocated_pod_sets_of_different_shape_share_one_rack() -> None:
    """The rack must hold leader and workers, though another one holds the workers better."""
    place = two([[[4, 4], [4, 5]]], [0, 0, 0, 1])
    answer = planned(place, pods(8, 1, 0, require=RACK, colocate="g"), pods(1, 1, 1, require=RACK, colocate="g"))
    assert [sorted(hosts(seats)) for seats in answer.pod_sets] == [[2, 3], [3]]


def test_a_level_of_the_whole_gang_holds_all_pod_sets() -> None:
    """The gang requires one block, each pod set its own rack inside; the roomier racks are in different blocks."""
    place = room([[[4], [1]], [[4], [1]], [[3], [3]]])
    answer = planned(place, pods(3, require=RACK), pods(3, require=RACK, prefer=None), require=0)
    assert [hosts(seats) for seats in answer.pod_sets] in ([{4: 3}, {5: 3}], [{5: 3}, {4: 3}])
    assert answer.domains_used == (1, 2, 2)


def test_independent_pod_sets_may_use_different_blocks() -> None:
    """Without a level of the gang each pod set has its own tightest place."""
    answer = planned(room([[[2]], [[3]]]), pods(3, require=RACK), pods(2, require=RACK))
    assert [hosts(seats) for seats in answer.pod_sets] == [{1: 3}, {0: 2}]


def test_all_or_nothing() -> None:
    """When one pod set has no room, none is placed, and the answer names it and its numbers."""
    answer = plan_gang(*room([[[2], [3]]]), GangPlanRequest((pods(1), pods(4, require=RACK))))
    assert answer == NoFit(level=1, domains=2, best=1, best_slots=3, total_slots=5, fits_level=0, pod_set=1)


def test_pod_sets_that_fit_only_one_at_a_time() -> None:
    """Each has room alone, not both: a certain no that names no single pod set."""
    answer = plan_gang(*room([[[2, 2]]]), GangPlanRequest((pods(3), pods(2))))
    assert isinstance(answer, NoFit)
    assert answer.pod_set is None


def test_no_rack_for_both_colocated_pod_sets() -> None:
    """Each fits into a rack alone; no rack holds both, the block does."""
    gang = GangPlanRequest(
        (pods(2, require=RACK, colocate="g"), PodSetPlanRequest(2, (2,), require=RACK, colocate="g"))
    )
    answer = plan_gang(*room([[[4], [4]]]), gang)
    assert isinstance(answer, NoFit)
    assert (answer.level, answer.fits_level, answer.pod_set) == (1, 0, None)


def test_a_domain_too_small_for_what_shares_it_gets_no_part_of_it() -> None:
    """The worker leaves its block room for one of the two that share a block, and the exact search decides."""
    place = room([[[6]], [[2, 3]]])
    together = {"require": 0, "colocate": "g"}
    answer = planned(place, pods(1, 4), pods(1, 2, **together), pods(1, 1, **together), prefer=RACK)
    assert [hosts(seats) for seats in answer.pod_sets] == [{0: 1}, {2: 1}, {2: 1}]
    assert answer.proven


def test_one_pod_per_host() -> None:
    """Exclusive pods take as many hosts as there are pods, in one rack."""
    answer = planned(room([[[8, 8], [8, 8, 8]]]), pods(3, require=RACK, per_host=1))
    assert hosts(answer.pod_sets[0]) == {2: 1, 3: 1, 4: 1}


def test_hosts_left_out() -> None:
    """A host that is not eligible this time takes nothing."""
    answer = planned(room([[[4], [4]]]), pods(4, require=RACK, eligible=np.array([False, True])))
    assert hosts(answer.pod_sets[0]) == {1: 4}


def test_nested_slices_keep_consecutive_ranks_together() -> None:
    """Slices of four per rack, of two per host: ranks 0-3 share a rack, 0-1 a host."""
    answer = planned(room([[[3, 3], [3, 1], [2, 2]]]), pods(8, require=0, slices=(Slices(RACK, 4), Slices(HOST, 2))))
    assert answer.pod_sets[0].ranks == (0, 0, 1, 1, 4, 4, 5, 5)


def test_slices_inside_slices_inside_a_required_level() -> None:
    """Eight pods in one zone, four per block, two per rack, though no block holds all of them."""
    zone = [[[1, 1], [1, 1], [1]], [[1, 1], [1, 1], [1]]]
    slices = (Slices(1, 4), Slices(2, 2))
    answer = planned(room([zone]), pods(8, require=0, slices=slices))
    assert answer.pod_sets[0].ranks == (0, 1, 2, 3, 5, 6, 7, 8)


def test_lost_pods_return_to_the_domain_in_use() -> None:
    """A rack with more room elsewhere does not matter: the rest of the gang stays where it is."""
    answer = planned(room([[[0, 2], [9, 9]]]), pods(4, require=RACK, kept={0: 0, 1: 0}))
    assert answer.pod_sets[0].ranks == (0, 0, 1, 1)


def test_a_gang_whose_domain_has_no_room_left_waits() -> None:
    """Lost pods are never planned outside of the required domain in use."""
    answer = plan_gang(*room([[[0, 1], [9, 9]]]), GangPlanRequest((pods(4, require=RACK, kept={0: 0, 1: 0}),)))
    assert isinstance(answer, NoFit)
    assert answer.best_slots == 1


def test_lost_pods_of_a_slice_return_to_its_domain() -> None:
    """Rank 1 belongs to the slice in rack 0, ranks 2 and 3 are a slice that may go anywhere in the block."""
    answer = planned(room([[[1, 0], [2]]]), pods(4, require=0, slices=(Slices(RACK, 2),), kept={0: 1}))
    assert answer.pod_sets[0].ranks == (1, 0, 2, 2)


def test_a_slice_that_cannot_be_completed_keeps_no_pod_from_another_one() -> None:
    """Of two slices that lost a pod each, one has room in its rack; the two that stay are enough for the gang."""
    lost = pods(4, slices=(Slices(RACK, 2),), kept={0: 0, 2: 1}, min_count=2)
    assert planned(room([[[0], [1]]]), lost).pod_sets[0].ranks == (0, -1, 1, 1)
    assert isinstance(plan_gang(*room([[[0], [1]]]), GangPlanRequest((replace(lost, ranked=False),))), NoFit)
    assert planned(room([[[0], [1]], [[1]]]), pods(1, min_count=0), lost, min_count=2).pod_sets[0].ranks == (2,)


def test_of_slices_in_slices_those_without_pods_join_whole() -> None:
    """Four in a block, two in a rack: the half of which no pod stays needs a rack for both."""
    layers = (Slices(0, 4), Slices(RACK, 2))
    lost = pods(8, slices=layers, kept={0: 0, 1: 0, 4: 2, 5: 2, 6: 2}, min_count=5)
    assert planned(room([[[0], [1]], [[1], [2]]]), lost).pod_sets[0].ranks == (0, 0, -1, -1, 2, 2, 2, 2)


def test_a_gang_grows_next_to_its_pods() -> None:
    """New pods fill the hosts and racks in use first, though another rack has the tighter hole."""
    answer = planned(room([[[1, 3], [2]]]), pods(4, prefer=RACK, kept={0: 0, 1: 0}))
    assert answer.pod_sets[0].ranks == (0, 0, 0, 1)
    assert answer.domains_used == (1, 1, 2)


def test_growth_opens_the_fewest_new_domains() -> None:
    """What the used hosts cannot take goes to the one other host of the rack that takes it all."""
    answer = planned(room([[[1, 1, 1, 3], [3]]]), pods(4, prefer=RACK, kept={0: 0}))
    assert hosts(answer.pod_sets[0]) == {0: 2, 3: 2}
    assert answer.proven


@pytest.mark.parametrize(
    ("nested", "least", "placed"),
    [
        pytest.param([[[4], [6]]], 3, {1: 6}, id="room for all: all"),
        pytest.param([[[4], [5]]], 3, {1: 5}, id="as many as the roomiest rack holds"),
        pytest.param([[[3], [3]]], 3, {0: 3}, id="just the minimum"),
    ],
)
def test_more_than_the_minimum_where_there_is_room(nested: list[Any], least: int, placed: dict[int, int]) -> None:
    """A gang that may start with fewer takes as many as one rack holds; the ranks without a host are the last ones."""
    seats = planned(room(nested), pods(6, require=RACK, min_count=least)).pod_sets[0]
    assert hosts(seats) == placed
    assert seats.ranks == tuple([*placed] * sum(placed.values())) + (-1,) * (6 - sum(placed.values()))


def test_less_than_the_minimum_is_nothing() -> None:
    """The numbers of the answer are those of the whole gang."""
    answer = plan_gang(*room([[[2], [2]]]), GangPlanRequest((pods(6, require=RACK, min_count=3),)))
    assert isinstance(answer, NoFit)
    assert answer.best_slots == 2


def test_the_pod_set_whose_minimum_does_not_fit_is_named() -> None:
    """Where each pod set has its own minimum, one that does not fit whole but starts with fewer is not what lacks."""
    answer = plan_gang(
        *two([[[2, 3]]], [3, 0]), GangPlanRequest((pods(6, 1, 0, min_count=2), pods(5, 0, 1, min_count=4)))
    )
    assert isinstance(answer, NoFit)
    assert (answer.pod_set, answer.total_slots) == (1, 3)


def test_a_minimum_over_all_pod_sets() -> None:
    """Five of eight pods are enough, whichever pod sets they are of; more join where there is room."""
    answer = planned(two([[[6]]], [1]), pods(4, 1, 1), pods(4, 1, 0), min_count=5)
    assert [len([host for host in seats.ranks if host >= 0]) for seats in answer.pod_sets] == [1, 4]


def test_a_minimum_is_rounded_up_to_whole_slices() -> None:
    """Three of eight pods in slices of two are two slices."""
    answer = planned(room([[[2], [2], [1]]]), pods(8, slices=(Slices(RACK, 2),), min_count=3))
    assert answer.pod_sets[0].ranks == (0, 0, 1, 1, -1, -1, -1, -1)


def test_a_remnant_of_nested_slices_stays_together() -> None:
    """Seven ranks in slices of four by block and of two by rack: the last three in one block, two of them in a rack."""
    layers = (Slices(0, 4), Slices(RACK, 2))
    place = room([[[2], [2], [1]], [[2], [1]]])
    answer = planned(place, pods(7, slices=layers, remnant=True))
    tree, ranks = place[0], answer.pod_sets[0].ranks
    blocks, racks = ([tree.domain_of(level, host) for host in ranks] for level in (0, RACK))
    assert len(set(blocks[:4])) == len(set(blocks[4:])) == 1
    assert racks[0] == racks[1] and racks[2] == racks[3] and racks[4] == racks[5]


def test_a_search_that_runs_out_is_undecided() -> None:
    """Without steps a gang of unlike pods is neither refused nor placed."""
    answer = plan_gang(*two([[[4, 4]]], [1, 1]), GangPlanRequest((pods(4, 1, 0), pods(2, 1, 1)), steps=0))
    assert answer == Undecided(0)


def fragmented(racks: int) -> tuple[Tree, np.ndarray[Any, np.dtype[np.int64]]]:
    """Racks of 16 hosts in blocks of 8, with 0 to 8 free pods on a host, of no order that helps."""
    draw = np.random.default_rng(1)
    paths = [(f"b{host // 128}", f"r{host // 16}", f"h{host}") for host in range(16 * racks)]
    return build_tree(("block", "rack", "host"), paths), draw.integers(0, 9, (16 * racks, 1))


def test_few_pods_of_two_shapes_are_decided_in_a_large_fragmented_cluster() -> None:
    """The search stays in single racks: where all of the gang fits into one, only those are cheaper."""
    answer = planned(fragmented(640), pods(2, 4), pods(2, 8), prefer=RACK, steps=20_000)
    assert answer.domains_used == (1, 1, 3)
    assert answer.proven


def test_a_small_pod_beside_whole_hosts_needs_no_search() -> None:
    """Two bounds prove it together: whole hosts alone need eleven racks, and the sum of all pods 41 hosts."""
    answer = planned(fragmented(640), pods(1, 1), pods(40, 8), prefer=RACK, steps=6_400)
    assert answer.domains_used == (2, 11, 41)
    assert answer.proven


def test_a_rack_that_is_searched_alone_gets_all_steps() -> None:
    """Only one of the two racks can be cheaper than the first plan, so the other one is left no part of the steps."""
    place = room([[1, 4, 3, 4, 3], [2, 4, 0, 1, 1, 2, 5, 3, 2]])
    answer = planned(place, pods(3, 3), pods(3, 1), require=0, steps=5_000)
    assert answer.domains_used == (1, 3)
    assert answer.proven


def test_four_shapes_on_few_hosts_are_decided() -> None:
    """Comparing partial placements costs few of the steps, also where nearly all of them are of no use."""
    place = room([[2, 0, 1, 1, 0, 1, 1, 3, 0, 0, 1, 0], [1, 1, 0, 2, 2, 2, 3, 3, 0, 2]])
    sets = pods(6, per_host=1), pods(2, per_host=2), pods(3, per_host=2), pods(8, per_host=1)
    answer = planned(place, *sets, prefer=0)
    assert answer.domains_used == (2, 8)
    assert answer.proven


def test_parts_of_hosts_that_no_pod_can_use_are_no_room() -> None:
    """Each of the pod sets would fit alone, and the sum is enough, but not in twos: refused without a search."""
    answer = plan_gang(*room([[[5, 5, 4, 3]]]), GangPlanRequest((pods(3, 4), pods(2, 2)), steps=0))
    assert isinstance(answer, NoFit)


def test_any_number_of_pod_sets_is_decided() -> None:
    """Three that do not fit into two hosts, and forty each with a host of its own: more than arrays have dimensions."""
    tree, free = room([[[6] * 42]])
    own = [pods(1, eligible=np.arange(42) == host) for host in range(2, 42)]
    apart = [pods(1, size, eligible=np.arange(42) < 2) for size in (3, 4, 5)]
    assert isinstance(plan_gang(tree, free, GangPlanRequest((*apart, *own))), NoFit)


def test_alike_pod_sets_need_no_search() -> None:
    """Pod sets that differ in nothing but their names are planned as one, which takes no steps."""
    answer = planned(room([[[4, 4]]]), pods(4, prefer=RACK, colocate="g"), pods(4, prefer=RACK, colocate="g"), steps=0)
    assert [hosts(seats) for seats in answer.pod_sets] == [{0: 4}, {1: 4}]


def test_an_empty_topology_holds_nothing() -> None:
    """No hosts, no plan, and no fault."""
    answer = plan_gang(build_tree(("host",), []), np.zeros((0, 1), dtype=np.int64), GangPlanRequest((pods(1),)))
    assert answer == NoFit(-1, 0, -1, 0, 0, None, 0)


def test_overcommitted_hosts_take_nothing() -> None:
    """Less than nothing free is nothing free, also of the sum."""
    answer = plan_gang(*room([[[-5, 3]]]), GangPlanRequest((pods(3), PodSetPlanRequest(1, (2,)))))
    assert isinstance(answer, NoFit)
    assert isinstance(plan_gang(*room([[[-5, 3]]]), GangPlanRequest((pods(1), PodSetPlanRequest(1, (2,))))), GangPlan)


def test_pods_that_ask_for_nothing_fit_anywhere() -> None:
    """A request of 0 needs no room, not even on an overcommitted host."""
    assert planned(room([[[-1]]]), PodSetPlanRequest(7, (0,))).pod_sets[0].hosts == ((0, 7),)


def test_the_arguments_are_left_alone() -> None:
    """Planning changes neither what is free nor the gang."""
    tree, free = two([[[4, 4]]], [1, 1])
    before = free.copy()
    plan_gang(tree, free, GangPlanRequest((pods(4, 1, 0, min_count=2, per_host=2), pods(2, 1, 1))))
    assert (free == before).all()


ONE = pods(2)


@pytest.mark.parametrize(
    ("argument", "gang"),
    [
        ("pod_sets", lambda: GangPlanRequest(())),
        ("count", lambda: GangPlanRequest((pods(0),))),
        ("count", lambda: GangPlanRequest((pods(2**31),))),
        ("count", lambda: GangPlanRequest((pods(2**30), pods(2**30)))),
        ("requests", lambda: GangPlanRequest((pods(1, 1, 1),))),
        ("requests", lambda: GangPlanRequest((pods(1, -1),))),
        ("require", lambda: GangPlanRequest((pods(1, require=3),))),
        ("require", lambda: GangPlanRequest((ONE,), require=-1)),
        ("prefer", lambda: GangPlanRequest((pods(1, prefer=9),))),
        ("profile", lambda: GangPlanRequest((ONE,), profile="best")),
        ("steps", lambda: GangPlanRequest((ONE,), steps=-1)),
        ("min_count", lambda: GangPlanRequest((ONE,), min_count=3)),
        ("min_count", lambda: GangPlanRequest((pods(2, min_count=-1),))),
        ("per_host", lambda: GangPlanRequest((pods(2, per_host=0),))),
        ("eligible", lambda: GangPlanRequest((pods(2, eligible=np.array([True])),))),
        ("eligible", lambda: GangPlanRequest((pods(2, eligible=np.array([1, 1])),))),
        ("slices", lambda: GangPlanRequest((pods(3, slices=(Slices(1, 2),)),))),
        ("slices", lambda: GangPlanRequest((pods(4, slices=(Slices(1, 0),)),))),
        ("slices", lambda: GangPlanRequest((pods(4, slices=(Slices(2, 2), Slices(1, 4))),))),
        ("slices", lambda: GangPlanRequest((pods(6, slices=(Slices(1, 3), Slices(2, 2))),))),
        ("kept", lambda: GangPlanRequest((pods(2, kept={2: 0}),))),
        ("kept", lambda: GangPlanRequest((pods(2, kept={0: 2}),))),
        ("kept", lambda: GangPlanRequest((pods(3, require=HOST, kept={0: 0, 1: 1}),))),
        ("kept", lambda: GangPlanRequest((pods(4, slices=(Slices(HOST, 2),), kept={0: 0, 1: 1}),))),
        ("colocate", lambda: GangPlanRequest((pods(1, require=0, colocate="g"), pods(1, require=1, colocate="g")))),
    ],
)
def test_what_makes_no_sense_names_the_argument(argument: str, gang: Callable[[], GangPlanRequest]) -> None:
    """A gang that contradicts itself or the tree is a ValueError that starts with the argument's name."""
    with pytest.raises(ValueError, match=f"^{argument}: "):
        plan_gang(*room([[[2, 2]]]), gang())


@pytest.mark.parametrize(
    ("argument", "free", "scarce"),
    [
        ("free", np.zeros(2, dtype=np.int64), None),
        ("free", np.zeros((3, 1), dtype=np.int64), None),
        ("free", np.zeros((2, 1)), None),
        ("scarce", np.zeros((2, 1), dtype=np.int64), np.zeros(3, dtype=np.int64)),
        ("scarce", np.zeros((2, 1), dtype=np.int64), np.zeros(2)),
    ],
)
def test_arrays_of_another_form_are_refused(argument: str, free: Any, scarce: Any) -> None:
    """One row of integers per host, or a ValueError that names the array."""
    tree, _ = room([[[2, 2]]])
    with pytest.raises(ValueError, match=f"^{argument}: "):
        plan_gang(tree, free, GangPlanRequest((ONE,)), scarce)


def test_the_first_pod_set_gets_the_first_of_the_hosts() -> None:
    """A master that asks for more than its workers is placed after them, and changes places with the first."""
    place = two([[[1, 1], [1, 1]]], [9, 9, 9, 9])
    answer = planned(place, pods(1, 1, 2), pods(3, 1, 1), require=0)
    assert [seats.ranks for seats in answer.pod_sets] == [(0,), (1, 2, 3)]


def test_what_leads_goes_to_the_first_host_that_has_room_for_it() -> None:
    """The first host has room for a worker only, and the last one none for the second worker."""
    place = two([[[1, 1, 1, 1]]], [1, 9, 9, 9])
    answer = planned(place, pods(1, 1, 2), pods(3, 1, 1), require=RACK)
    assert [seats.ranks for seats in answer.pod_sets] == [(1,), (0, 2, 3)]


def test_what_leads_does_not_tear_apart_what_shares_a_domain() -> None:
    """The workers share the first rack, which has no other host: the master stays behind them."""
    place = two([[[1, 1], [0, 1]]], [9, 9, 9, 9])
    answer = planned(place, pods(1, 1, 2), pods(2, 1, 1, require=RACK))
    assert [seats.ranks for seats in answer.pod_sets] == [(3,), (0, 1)]


def test_what_leads_does_not_tear_a_slice_apart() -> None:
    """Two slices of two, one in each rack, the second one with the room for the master."""
    place = two([[[1, 1], [1, 1, 1]]], [9] * 5)
    answer = planned(place, pods(1, 1, 2), pods(4, 1, 1, slices=(Slices(RACK, 2),)), require=0)
    assert [seats.ranks for seats in answer.pod_sets] == [(2,), (0, 1, 3, 4)]


def test_pods_that_stay_change_places_with_nobody() -> None:
    """A master that is planned again goes where there is room; the workers that run stay."""
    place = two([[[0, 0, 0, 1]]], [9, 9, 9, 9])
    workers = pods(3, 1, 1, kept={0: 0, 1: 1, 2: 2})
    answer = planned(place, pods(1, 1, 2), workers, require=RACK)
    assert [seats.ranks for seats in answer.pod_sets] == [(3,), (0, 1, 2)]
