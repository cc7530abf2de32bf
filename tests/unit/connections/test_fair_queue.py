"""The queue in which addresses take turns."""

from __future__ import annotations

import pytest

from webhook.connections.fair_queue import FairQueue


def test_of_one_address_the_first_is_the_first() -> None:
    """With one address it is a plain queue."""
    queue = FairQueue[int]()
    for number in range(5):
        queue.put("a", number)
    assert [queue.take() for _ in range(5)] == [0, 1, 2, 3, 4]


def test_addresses_take_turns() -> None:
    """A crowd of one address is passed by whoever comes from another, and keeps its own order."""
    queue = FairQueue[str]()
    for number in range(4):
        queue.put("crowd", f"c{number}")
    assert queue.take() == "c0"
    queue.put("one", "o0")
    queue.put("one", "o1")
    queue.put("two", "t0")
    assert [queue.take() for _ in range(6)] == ["c1", "o0", "t0", "c2", "o1", "c3"]


def test_nothing_stays_of_an_address_that_has_no_items() -> None:
    """However many addresses come and go, the queue remembers those with items alone."""
    queue = FairQueue[int]()
    for number in range(100):
        queue.put(f"10.0.0.{number}", number)
        assert queue.take() == number
    assert not queue._items
    with pytest.raises(StopIteration):
        queue.take()
