"""Several changes of one workload are applied as one, and what they leave behind is the same."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from engine.cache.stores import Inbox


@dataclass(frozen=True)
class Seen:
    """A state of a workload: another uid is another object of the same name."""

    uid: str
    version: int


# A name's next object (None: it is deleted), or that one change is applied.
_STEPS = st.lists(st.none() | st.tuples(st.sampled_from("ab"), st.none() | st.sampled_from("12")), max_size=40)


@given(_STEPS)
def test_each_change_goes_from_what_was_applied_before_to_the_newest_state(
    steps: list[tuple[str, str | None] | None],
) -> None:
    """Whether changes are applied at once, late, or between others of the same workload."""
    inbox, stored, applied = Inbox(), dict[str, Seen | None](), dict[str, Seen | None]()

    def apply() -> bool:
        change = inbox.take()
        if change is None:
            return False
        name = (change.new or change.old).uid[0]
        assert (change.old, change.new) != (None, None)
        assert applied.get(name) == change.old
        applied[name] = change.new
        return True

    for version, step in enumerate(steps):
        if step is None:
            apply()
            continue
        name, uid = step
        old, new = stored.get(name), Seen(f"{name}{uid}", version) if uid is not None else None
        if old is not None or new is not None:
            stored[name] = new
            inbox.put("workloads", old, new)
    while apply():
        pass
    assert applied == stored


def test_many_changes_of_one_workload_are_one() -> None:
    """From the state before the first to the state after the last; those of other objects stay as they are."""
    inbox = Inbox()
    for version in range(100):
        inbox.put("workloads", Seen("a", version), Seen("a", version + 1))
        inbox.put("pods", Seen("p", version), Seen("p", version + 1))
    first, *others = inbox
    assert (first.what, first.old, first.new) == ("workloads", Seen("a", 0), Seen("a", 100))
    assert [one.what for one in others] == ["pods"] * 100
