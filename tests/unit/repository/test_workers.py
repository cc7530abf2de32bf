"""Which worker runs what: the longest first, and no more control planes than need be."""

from __future__ import annotations

from tests.support.workers import BY_KIND, LONG, ROOT, choose, expected, folder, plane

GANG, OTHER_GANG = "tests/cluster/gangs/test_placing.py", "tests/cluster/gangs/test_capacity.py"
KIND = "tests/cluster/gangs/kinds/test_ray_gangs.py"
PLAIN = "tests/cluster/test_manifests.py"
UNIT = "tests/unit/planner/test_place.py"


def test_the_first_takes_the_longest_file_of_the_folder_with_most_to_do() -> None:
    assert choose({GANG: 20, OTHER_GANG: 30, PLAIN: 40}, [], []) == OTHER_GANG


def test_the_next_begins_where_most_is_left_for_each_worker() -> None:
    assert choose({GANG: 50, PLAIN: 40}, [], [OTHER_GANG]) == PLAIN
    assert choose({GANG: 90, PLAIN: 40}, [], [OTHER_GANG]) == GANG


def test_what_needs_no_control_plane_fills_up_the_end() -> None:
    assert choose({UNIT: 900, PLAIN: 40}, [], [OTHER_GANG]) == PLAIN
    assert choose({UNIT: 900, "tests/contract/test_ops.py": 40}, [], []) == UNIT


def test_a_worker_stays_in_its_folder_then_on_its_control_plane_then_takes_what_needs_none() -> None:
    waiting = {OTHER_GANG: 1.0, KIND: 2.0, UNIT: 3.0, PLAIN: 4.0}
    order = []
    while waiting:
        unit = choose(waiting, [GANG, *order], [])
        order.append(unit)
        del waiting[unit]
    assert order == [OTHER_GANG, KIND, UNIT, PLAIN]


def test_files_on_a_control_plane_are_told_from_the_rest() -> None:
    assert [plane(one) for one in (KIND, PLAIN, UNIT)] == ["tests/cluster/gangs/", "tests/cluster/", ""]
    assert folder(f"{BY_KIND}[job]") == folder(KIND) == "tests/cluster/gangs/kinds"
    assert folder(UNIT) == folder("tests/contract/test_ops.py") == "tests"


def test_a_long_file_counts_by_its_seconds_and_others_by_their_tests() -> None:
    long = next(iter(LONG))
    assert expected(long, 1) == LONG[long]
    assert expected(UNIT, 10) < expected(PLAIN, 10) < expected(GANG, 10)


def test_files_that_are_named_exist() -> None:
    assert [file for file in (*LONG, BY_KIND) if not (ROOT / file).is_file()] == []
