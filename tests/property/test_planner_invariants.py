"""What every plan keeps to, whatever the tree."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.planner.plan import NoFit, Plan, PlanRequest, lowest_level, plan
from engine.planner.tree import build_tree

LEVELS = ("block", "rack", "host")


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[tuple[str, str, str], int], int]:
    """Free slots by path, in a random order of insertion, and the size of a gang."""
    places = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=24))
    rows = [((f"b{block}", f"r{rack}", f"n{i}"), draw(st.integers(-1, 8))) for i, (block, rack) in enumerate(places)]
    return dict(draw(st.permutations(rows))), draw(st.integers(1, 80))


@st.composite
def requests(draw: st.DrawFn, count: int) -> PlanRequest:
    level = st.none() | st.integers(0, 2)
    profile = draw(st.sampled_from(["pack", "spread", "balanced"]))
    return PlanRequest(count, require=draw(level), prefer=draw(level), profile=profile)


def _answer(rows: dict[tuple[str, str, str], int], request: PlanRequest) -> tuple[Plan | NoFit, tuple[str, ...]]:
    tree = build_tree(LEVELS, rows)
    slots = np.array([rows[path] for path in tree.paths], dtype=np.int64)  # type: ignore[index]
    return plan(tree, slots, request), tree.hosts


@given(clusters().flatmap(lambda c: st.tuples(st.just(c), requests(c[1]))))
@settings(max_examples=300, deadline=None)
def test_a_plan_places_every_pod_where_there_is_room(
    case: tuple[tuple[dict[tuple[str, str, str], int], int], PlanRequest],
) -> None:
    """The pods add up, no host gets more than its slots or none, hosts ascend, and the domains are counted right."""
    (rows, count), request = case
    tree = build_tree(LEVELS, rows)
    answer, _ = _answer(rows, request)
    if not isinstance(answer, Plan):
        return
    assert sum(pods for _, pods in answer.hosts) == count
    assert all(0 < pods <= rows[tree.paths[host]] for host, pods in answer.hosts)  # type: ignore[index]
    indices = [host for host, _ in answer.hosts]
    assert indices == sorted(set(indices))
    touched = tuple(len({tree.paths[host][: level + 1] for host in indices}) for level in range(3))
    assert answer.domains_used == touched
    assert request.require is None or touched[request.require] == 1


@given(clusters().flatmap(lambda c: st.tuples(st.just(c), requests(c[1]))), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_the_order_of_insertion_changes_nothing(
    case: tuple[tuple[dict[tuple[str, str, str], int], int], PlanRequest], chance: st.DataObject
) -> None:
    """The same hosts in another order give the same tree and the same plan."""
    (rows, _), request = case
    shuffled = list(rows.items())
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert _answer(dict(shuffled), request) == _answer(rows, request)


@given(clusters().flatmap(lambda c: st.tuples(st.just(c), requests(c[1]))), st.data())
@settings(max_examples=200, deadline=None)
def test_more_room_never_makes_it_worse(
    case: tuple[tuple[dict[tuple[str, str, str], int], int], PlanRequest], data: st.DataObject
) -> None:
    """Free slots that come back never make a gang infeasible, nor let a proven plan use more domains."""
    (rows, _), request = case
    before, _ = _answer(rows, request)
    freed = data.draw(st.sampled_from(sorted(rows)))
    after, _ = _answer({**rows, freed: rows[freed] + 2}, request)
    if not isinstance(before, Plan):
        return
    assert isinstance(after, Plan)
    unconstrained = request.require is None and request.prefer is None
    if unconstrained:
        assert after.domains_used[-1] <= before.domains_used[-1]
    elif after.proven and request.profile != "balanced":
        assert after.domains_used <= before.domains_used


@given(clusters())
@settings(max_examples=200, deadline=None)
def test_the_numbers_of_a_failure_are_true(case: tuple[dict[tuple[str, str, str], int], int]) -> None:
    """A gang that fits into no rack is told the racks, the best one, its slots, the total, and where it fits."""
    rows, count = case
    answer, _ = _answer(rows, PlanRequest(count, require=1))
    free = {path: max(slots, 0) for path, slots in rows.items()}
    racks: dict[tuple[str, ...], int] = {}
    blocks: dict[tuple[str, ...], int] = {}
    for path, slots in free.items():
        racks[path[:2]] = racks.get(path[:2], 0) + slots
        blocks[path[:1]] = blocks.get(path[:1], 0) + slots
    assert isinstance(answer, NoFit) == (max(racks.values()) < count)
    if not isinstance(answer, NoFit):
        return
    total = sum(free.values())
    assert (answer.level, answer.domains, answer.best_slots, answer.total_slots) == (
        1,
        len(racks),
        max(racks.values()),
        total,
    )
    tree = build_tree(LEVELS, rows)
    assert answer.best == -1 if total == 0 else racks[tree.path(1, answer.best)] == answer.best_slots
    fits = 0 if max(blocks.values()) >= count else -1 if total >= count else None
    assert answer.fits_level == fits


@given(clusters())
@settings(max_examples=200, deadline=None)
def test_the_lowest_level_is_the_finest_that_holds_the_gang(case: tuple[dict[tuple[str, str, str], int], int]) -> None:
    """Requiring the lowest level succeeds, requiring any finer one fails; without a lowest level every one fails."""
    rows, count = case
    tree = build_tree(LEVELS, rows)
    slots = np.array([rows[path] for path in tree.paths], dtype=np.int64)  # type: ignore[index]
    lowest = lowest_level(tree, slots, count)
    fits = [isinstance(plan(tree, slots, PlanRequest(count, require=level)), Plan) for level in range(3)]
    assert fits == [lowest is not None and level <= lowest for level in range(3)]
