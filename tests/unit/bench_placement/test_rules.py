"""Every rule on cases that can be played through on paper. Hosts are numbered from 0 through all racks and blocks."""

from collections.abc import Callable

import pytest

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job
from bench.placement.rules import RULES, kai, kueue, native, ours, volcano

BLOCK, RACK = 0, 1
Build = Callable[..., Cluster]


def gang(pods: int, gpus: int = 1, *, require: int | None = None, prefer: int | None = None) -> Job:
    level = prefer if require is None else require
    return Job(0, 0.0, 60.0, pods, gpus, level=level, required=require is not None)


def test_kueue_takes_the_smallest_domain_that_holds_the_gang(cluster: Build) -> None:
    """Best fit at the requested level, by total slots."""
    assert kueue.place(cluster([[[8, 8], [5, 1], [4, 4]]]), gang(6, require=RACK)) == ((2, 5), (3, 1))


def test_kueue_does_not_see_that_a_larger_block_needs_fewer_racks(cluster: Build) -> None:
    """The tightest block (12 slots) takes the gang over 2 racks and 4 hosts, though the other has it on one host."""
    free = [[[2, 2], [2, 2], [2, 2]], [[8, 1], [0, 4]]]
    assert kueue.place(cluster(free), gang(8, require=BLOCK)) == ((0, 2), (1, 2), (2, 2), (3, 2))


def test_kueue_takes_the_largest_domains_and_the_best_fitting_one_last(cluster: Build) -> None:
    """Preferred racks: none holds 14, so 8, then of those that hold the other 6 the smallest."""
    placed = kueue.place(cluster([[[8], [7], [6], [2]]]), gang(14, prefer=RACK))
    assert placed == ((0, 8), (2, 6))


def test_kueue_waits_when_no_domain_of_a_required_level_fits(cluster: Build) -> None:
    """A required level is never climbed."""
    assert kueue.place(cluster([[[4], [4]]]), gang(5, require=RACK)) is None


def test_kueue_puts_a_single_pod_on_the_host_with_least_free(cluster: Build) -> None:
    """LeastFreeCapacity: the first by name among equals, whatever its rack."""
    assert kueue.place(cluster([[[8, 3], [3, 0]]]), gang(1, 2)) == ((1, 1),)


def test_kueue_without_a_level_eats_up_the_smallest_hosts(cluster: Build) -> None:
    """LeastFreeCapacity in ascending order where no host holds all: five hosts where two would do."""
    assert kueue.place(cluster([[[1, 1, 1, 1, 4]]]), gang(5)) == ((0, 1), (1, 1), (2, 1), (3, 1), (4, 1))


def test_kai_looks_into_the_tightest_block_first(cluster: Build) -> None:
    """Its tightest fitting rack wins, though another block has a tighter one."""
    free = [[[8, 8], [4, 2]], [[8, 2], [0, 0]]]
    assert kai.place(cluster(free), gang(6, require=RACK)) == ((4, 4), (5, 2))


def test_kai_fills_the_fullest_hosts_pod_by_pod(cluster: Build) -> None:
    """Bin-packing knows no gang: four hosts where one would do."""
    assert kai.place(cluster([[[1, 1, 1, 1, 4]]]), gang(4, require=RACK)) == ((0, 1), (1, 1), (2, 1), (3, 1))


def test_kai_starts_in_the_emptiest_of_the_preferred_domains_when_none_holds_the_gang(cluster: Build) -> None:
    """The topology score favours the last of the racks in the order, which is the emptiest."""
    assert kai.place(cluster([[[2, 2], [5, 2]]]), gang(8, prefer=RACK)) == ((0, 1), (2, 5), (3, 2))


def test_volcano_takes_the_fullest_of_the_hypernodes_that_hold_the_gang(cluster: Build) -> None:
    """Fullest by the share of its GPUs in use, not by what is left."""
    assert volcano.place(cluster([[[7, 0, 0], [6]]]), gang(5, require=RACK)) == ((0, 5),)


def test_volcano_takes_the_lowest_tier_that_has_room(cluster: Build) -> None:
    """A gang that requires a block goes into one rack if any holds it."""
    assert volcano.place(cluster([[[2, 2], [3, 3]], [[4, 0], [0, 0]]]), gang(6, require=BLOCK)) == ((2, 3), (3, 3))


def test_volcano_seeds_a_preferring_gang_on_the_fullest_host(cluster: Build) -> None:
    """Soft mode: the first pod knows no topology; the others stay near it and spill."""
    assert volcano.place(cluster([[[1, 0], [8, 0]]]), gang(4, prefer=RACK)) == ((0, 1), (2, 3))


def test_volcano_puts_a_single_pod_into_the_fuller_rack_among_equal_hosts(cluster: Build) -> None:
    """Bin-packing of HyperNodes for pods without a wish."""
    assert volcano.place(cluster([[[4, 8], [4, 2]]]), gang(1, 4)) == ((2, 1),)


def test_native_spreads(cluster: Build) -> None:
    """Every pod goes to the host with most free."""
    assert native.place(cluster([[[8, 6], [7, 1]]]), gang(3, 1, prefer=RACK)) == ((0, 2), (2, 1))


def test_native_spreads_inside_the_emptiest_required_domain(cluster: Build) -> None:
    """A required level holds for all rules."""
    assert native.place(cluster([[[4, 4], [5, 5], [5, 0]]]), gang(4, require=RACK)) == ((2, 2), (3, 2))


def test_ours_needs_the_fewest_racks_and_hosts(cluster: Build) -> None:
    """The case in which the tightest block is not the best."""
    free = [[[2, 2], [2, 2], [2, 2]], [[8, 1], [0, 4]]]
    assert ours.place(cluster(free), gang(8, require=BLOCK)) == ((6, 8),)


def test_ours_puts_a_single_pod_into_the_rack_with_least_free_among_equal_hosts(cluster: Build) -> None:
    """Whole racks stay whole."""
    assert ours.place(cluster([[[8, 8], [8, 0]]]), gang(1, 8)) == ((2, 1),)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_gang_that_takes_everything_is_placed_by_every_rule(rule: Callable[..., object], cluster: Build) -> None:
    """Nothing is overlooked when there is only one answer."""
    assert rule(cluster([[[1, 2], [3]], [[0, 2]]]), gang(8, prefer=RACK)) == ((0, 1), (1, 2), (2, 3), (4, 2))
