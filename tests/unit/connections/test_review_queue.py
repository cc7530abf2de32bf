"""Whose turn it is among addresses and their tenants, and what is read to find out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from webhook.connections.review_queue import READ_AT_ONCE, ReviewQueue

Item = tuple[str, int]  # tenant, number


class Reader:
    """Reads items; those of nobody are dealt with. `read` is what it was asked for."""

    def __init__(self) -> None:
        self.read: list[Item] = []

    def __call__(self, item: Item) -> str | None:
        self.read.append(item)
        return item[0] or None


def names(items: list[Item | None]) -> list[str]:
    return [f"{item[0]}{item[1]}" if item else "-" for item in items]


def test_tenants_of_an_address_take_turns() -> None:
    """First in, first out within a tenant."""
    queue = ReviewQueue(Reader())
    for item in [("crowd", 0), ("crowd", 1), ("crowd", 2), ("ml", 0), ("other", 0), ("ml", 1)]:
        queue.put("api-server", item)
    assert names([queue.take() for _ in range(7)]) == ["crowd0", "ml0", "other0", "crowd1", "ml1", "crowd2", "-"]


def test_many_names_get_no_more_turns_than_one() -> None:
    """Whoever can name any tenant shares the turns of his address among them."""
    queue = ReviewQueue(Reader())
    for number in range(4):
        queue.put("pod", (f"forged{number}-", number))
    for number in range(3):
        queue.put("api-server", ("ml", number))
    assert names([queue.take() for _ in range(7)]) == [
        "forged0-0",
        "ml0",
        "forged1-1",
        "ml1",
        "forged2-2",
        "ml2",
        "forged3-3",
    ]


def test_what_waits_alone_is_not_read() -> None:
    """It has nobody to take turns with, whatever waits from other addresses."""
    read = Reader()
    queue = ReviewQueue(read)
    queue.put("a", ("ml", 0))
    queue.put("b", ("", 0))
    assert [queue.take(), queue.take(), queue.take()] == [("ml", 0), ("", 0), None]
    assert read.read == []


def test_a_crowd_is_read_in_its_own_turns_a_part_at_a_time() -> None:
    """Else an address with many connections that never finish a request would keep the others waiting for its bytes."""
    read = Reader()
    queue = ReviewQueue(read)
    for number in range(3 * READ_AT_ONCE):
        queue.put("crowd", ("", number))
    for number in range(2):
        queue.put("api-server", ("ml", number))
    seen = []
    for _ in range(4):
        before = len(read.read)
        seen.append((queue.take(), len(read.read) - before))
    assert seen == [(None, READ_AT_ONCE), (("ml", 0), 2), (None, READ_AT_ONCE), (("ml", 1), 0)]


def test_an_item_that_comes_while_others_are_read_is_kept() -> None:
    """The poller puts while a thread takes."""

    def read(item: Item) -> str:
        if item[1] == 0:
            queue.put("a", ("late", 9))
        return item[0]

    queue = ReviewQueue(read)
    queue.put("a", ("ml", 0))
    queue.put("a", ("ml", 1))
    assert names([queue.take() for _ in range(3)]) == ["ml0", "ml1", "late9"]


@given(st.lists(st.none() | st.tuples(st.sampled_from("ab"), st.sampled_from(["", "x", "y"])), max_size=60))
def test_as_many_calls_as_items_leave_none(steps: list[tuple[str, str] | None]) -> None:
    """Whatever the order of puts and takes: each item is taken or dealt with, once, and nothing stays behind."""
    read = Reader()
    queue = ReviewQueue(read)
    put: list[Item] = []
    taken: list[Item] = []
    calls = 0
    for number, step in enumerate([*steps, *[None] * len(steps)]):
        if step is not None:
            put.append((step[1], number))
            queue.put(step[0], put[-1])
        elif calls < len(put):
            calls += 1
            if (found := queue.take()) is not None:
                taken.append(found)
    dealt_with = [item for item in read.read if not item[0]]
    assert sorted(taken + dealt_with) == sorted(put)
    assert queue.take() is None
    assert not queue._lines
