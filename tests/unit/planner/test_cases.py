"""Small cases with a known best answer; most are where a greedy, tightest-domain-first planner goes wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.planner.plan import NoFit, Plan, PlanRequest, plan
from engine.planner.tree import build_tree
from tests.support.small_trees import grow

ZONE_LESS = {"block": 0, "rack": 1, "host": 2}


def _plan(tree: list[Any], count: int, **levels: Any) -> Plan:
    answer = plan(
        *grow(tree), PlanRequest(count, **{name: ZONE_LESS.get(level, level) for name, level in levels.items()})
    )
    assert isinstance(answer, Plan)
    return answer


@pytest.mark.parametrize(
    ("tree", "count", "levels", "used"),
    [
        pytest.param([[[2], [2]], [[4]]], 4, {"require": "block"}, (1, 1, 1), id="equal blocks, one needs two racks"),
        pytest.param(
            [[[2, 2], [2, 2], [2, 2]], [[8, 1], [0, 4]]],
            8,
            {"require": "block"},
            (1, 1, 1),
            id="the tighter block needs two racks and four hosts",
        ),
        pytest.param(
            [[[1], [1]], [[1, 1]]], 2, {"prefer": "block"}, (1, 1, 2), id="equal room, the later block has one rack"
        ),
        pytest.param([[[3], [3]], [[0, 2]], [[4]]], 7, {"prefer": "rack"}, (2, 2, 2), id="the other pair of blocks"),
        pytest.param([[[4, 4, 1], [8, 2]]], 8, {"require": "rack"}, (1, 1, 1), id="the tighter rack needs two hosts"),
        pytest.param([[[1, 1], [2]]], 2, {"require": "rack"}, (1, 1, 1), id="equal racks, one with a single host"),
        pytest.param([[[2], [3, 1]]], 4, {"prefer": "rack"}, (1, 1, 2), id="evenness is not worth a second rack"),
        pytest.param([[[1, 0], [4, 4]]], 8, {"prefer": "rack"}, (1, 1, 2), id="the fullest host is a bad seed"),
        pytest.param([[[1, 1, 1, 1, 4]]], 5, {}, (1, 1, 2), id="least free hosts first takes five hosts"),
        pytest.param([[[3, 1], [3, 2], [3, 3]]], 6, {}, (1, 1, 2), id="as few hosts, but in one rack"),
        pytest.param([[[4]], [[1, 3]], [[0, 4, 1]]], 6, {"prefer": "block"}, (2, 2, 2), id="two blocks, two hosts"),
        pytest.param([[[5, 1], [1, 5]]], 10, {"require": "block"}, (1, 2, 2), id="both racks, the large hosts"),
        pytest.param(
            [[[3] * 5, [3] * 5, [7, 7], [7, 7], [4, 4, 4, 1]]],
            27,
            {"require": "block"},
            (1, 2, 4),
            id="two equal racks that are neither the largest nor the tightest pair",
        ),
        pytest.param(
            [[[4, 1], [4, 1]], [[4, 1], [4, 2]], [[4, 1], [4, 3]], [[8], [5]]],
            9,
            {"require": "block"},
            (1, 2, 2),
            id="the emptiest of four blocks needs the fewest hosts",
        ),
        pytest.param([[[0, -3]], [[0, 7]]], 7, {"require": "host"}, (1, 1, 1), id="negative slots are no slots"),
    ],
)
def test_fewest_domains(tree: list[Any], count: int, levels: dict[str, str], used: tuple[int, ...]) -> None:
    """The plan uses as few blocks, then racks, then hosts as any does, and knows it."""
    answer = _plan(tree, count, **levels)
    assert answer.domains_used == used
    assert answer.proven


@pytest.mark.parametrize(
    ("tree", "count", "hosts"),
    [
        pytest.param([[[2, 3, 2]]], 4, (0, 2), id="hosts that fit exactly"),
        pytest.param([[[19], [10], [10]]], 20, (1, 2), id="racks that fit exactly"),
        pytest.param([[[3]], [[3]], [[5]], [[2]]], 6, (0, 1), id="blocks that fit exactly"),
    ],
)
def test_least_leftover(tree: list[Any], count: int, hosts: tuple[int, ...]) -> None:
    """Among plans with as few domains the one that leaves least in them is taken, so that large ones stay whole."""
    assert tuple(host for host, _ in _plan(tree, count, prefer="rack").hosts) == hosts


def test_single_host_gang_takes_the_best_fit() -> None:
    """A gang that fits on one host goes to the host with least room left, wherever that is."""
    assert _plan([[[8, 8]], [[3, 8]]], 2, prefer="host").hosts == ((2, 2),)


def test_equal_hosts_go_by_the_fullest_rack() -> None:
    """Of equally fitting hosts the one in the rack with least free room is taken, however empty its block."""
    assert _plan([[[4, 4]], [[4, 4, 4], [4]]], 4, prefer="host").hosts == ((5, 4),)


def test_racks_about_as_full_are_equal() -> None:
    """Between racks whose free room has as many binary digits the first wins, so that small gangs stay together."""
    assert _plan([[[4, 4, 4, 4], [4, 4, 4], [4, 4, 2]]], 4, prefer="host").hosts == ((4, 4),)


def test_equal_hosts_spread_to_the_emptiest_rack() -> None:
    """Profile spread turns the order of racks round for a gang of one host, too."""
    assert _plan([[[4, 1], [4, 4], [4, 0]]], 4, prefer="host", profile="spread").hosts == ((2, 4),)


def test_equal_hosts_go_by_the_scarce_resource_before_the_rack() -> None:
    """Of hosts with as many slots the one with fewest GPUs is taken, though its rack is emptier."""
    tree, slots = grow([[[4, 4, 4], [4]]])
    answer = plan(tree, slots, PlanRequest(4, prefer=2), np.array([8, 8, 2, 4], dtype=np.int64))
    assert isinstance(answer, Plan)
    assert answer.hosts == ((2, 4),)


def test_a_gang_takes_the_rack_with_fewest_slots() -> None:
    """Of racks that take as few hosts the one with fewest slots is chosen, whatever GPUs lie about there."""
    tree, slots = grow([[[4, 4, 4], [4, 4]]])
    answer = plan(tree, slots, PlanRequest(8, require=1), np.array([2, 2, 2, 9, 9], dtype=np.int64))
    assert isinstance(answer, Plan)
    assert [host for host, _ in answer.hosts] == [3, 4]


def test_racks_without_the_scarce_resource_come_first() -> None:
    """A gang that does without GPUs stays away from racks that have some, though it would fit them better."""
    tree, slots = grow([[[4, 4], [4, 4, 4]]])
    answer = plan(tree, slots, PlanRequest(8, require=1), np.array([1, 0, 0, 0, 0], dtype=np.int64))
    assert isinstance(answer, Plan)
    assert [host for host, _ in answer.hosts] == [2, 3]


def test_spread_takes_the_emptiest_rack_with_as_few_domains() -> None:
    """Profile spread uses as few domains as pack, but the emptiest ones."""
    tree = [[[4, 4, 0], [4, 4, 4], [4, 4, 1]]]
    packed, spread = (_plan(tree, 8, require="rack", profile=profile) for profile in ("pack", "spread"))
    assert packed.domains_used == spread.domains_used == (1, 1, 2)
    assert [host for host, _ in packed.hosts] == [0, 1]
    assert [host for host, _ in spread.hosts] == [3, 4]


def test_ranks_follow_the_tree() -> None:
    """Hosts ascend in tree order and fill up in turn, so consecutive ranks sit in the same or in neighbouring racks."""
    assert _plan([[[2, 3], [4, 1]], [[1]]], 9, require="block").hosts == ((0, 2), (1, 3), (2, 4))


def test_a_required_level_is_not_traded_for_a_plan() -> None:
    """Two racks with room for half the gang each do not satisfy a required rack; the numbers say what is missing."""
    assert plan(*grow([[[2, 1], [4]]]), PlanRequest(7, require=1)) == NoFit(
        level=1, domains=2, best=1, best_slots=4, total_slots=7, fits_level=0
    )


def test_a_gang_larger_than_the_topology() -> None:
    """Without a required level a gang that is too large is told about the whole topology."""
    assert plan(*grow([[[2, 1], [4]]]), PlanRequest(8, prefer=1)) == NoFit(
        level=-1, domains=1, best=-1, best_slots=7, total_slots=7, fits_level=None
    )


@pytest.mark.parametrize("require", [None, 0, 1])
def test_an_empty_topology_fits_nothing(require: int | None) -> None:
    """A topology without hosts has no domains and no slots."""
    answer = plan(build_tree(("rack", "host"), []), np.empty(0, dtype=np.int64), PlanRequest(1, require=require))
    assert answer == NoFit(
        level=-1 if require is None else require, domains=0, best=-1, best_slots=0, total_slots=0, fits_level=None
    )


def test_no_host_level_above_is_fine() -> None:
    """A topology of hosts only places a gang on the fewest of them."""
    answer = plan(*grow([1, 3, 2]), PlanRequest(5, prefer=0))
    assert answer == Plan(hosts=((1, 3), (2, 2)), domains_used=(2,), proven=True)


def test_the_exact_search_is_bounded() -> None:
    """A gang that needs the exact search is proven with steps for it; without, it is placed and not called proven."""
    tree = grow([[[6, 1, 1, 1], [5, 5], [5, 5], [9, 1]]])
    free, cut = plan(*tree, PlanRequest(19, require=0)), plan(*tree, PlanRequest(19, require=0, steps=0))
    assert isinstance(free, Plan)
    assert free.proven
    assert isinstance(cut, Plan)
    assert not cut.proven


def test_enormous_slots_do_not_overflow() -> None:
    """Slots and scarce amounts of 2**63 - 1 on every host still count as room."""
    tree, slots = grow([[[1, 1], [1, 1]]])
    slots[:] = np.iinfo(np.int64).max
    answer = plan(tree, slots, PlanRequest(2**31 - 1, require=2), slots)
    assert isinstance(answer, Plan)
    assert answer.hosts == ((0, 2**31 - 1),)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (PlanRequest(0), "count: 0"),
        (PlanRequest(-4), "count: -4"),
        (PlanRequest(2**31), "count: 2147483648"),
        (PlanRequest(1, require=3), "require: no level 3"),
        (PlanRequest(1, prefer=-1), "prefer: no level -1"),
        (PlanRequest(1, steps=-1), "steps: -1"),
        (PlanRequest(1, profile="stack"), "profile: 'stack'"),
    ],
)
def test_bad_requests_name_the_argument(request_: PlanRequest, message: str) -> None:
    """A request that makes no sense is refused with the argument's name and value."""
    with pytest.raises(ValueError, match=message):
        plan(*grow([[[1]]]), request_)


@pytest.mark.parametrize(
    ("slots", "scarce", "message"),
    [
        (np.ones(2, dtype=np.int64), None, "slots: shape"),
        (np.ones(1), None, "slots: float64"),
        (np.ones(1, dtype=np.int64), np.ones(3, dtype=np.int64), "scarce: shape"),
    ],
)
def test_bad_arrays_name_the_argument(slots: Any, scarce: Any, message: str) -> None:
    """An array of the wrong length or type is refused with the argument's name."""
    tree, _ = grow([[[1]]])
    with pytest.raises(ValueError, match=message):
        plan(tree, slots, PlanRequest(1), scarce)


def test_the_arguments_are_left_alone() -> None:
    """Planning changes neither the slots nor the scarce amounts."""
    tree, slots = grow([[[4, -1], [2, 2]], [[8, 8]]])
    scarce = slots * 3
    kept = slots.copy(), scarce.copy()
    plan(tree, slots, PlanRequest(9, prefer=1), scarce)
    assert (slots == kept[0]).all()
    assert (scarce == kept[1]).all()
