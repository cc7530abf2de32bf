"""The index of preemptions: by preemptor and by victim, through every change of a Placement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.api.placement import Placement, preemption_intent
from engine.cache.intents import IntentIndex
from engine.gang.key import placed_key
from tests.support.cluster_records import job, placement

SINCE = "2027-01-15T08:00:00Z"


def one(name: str, *victims: str, since: str | None = SINCE) -> Placement:
    raw: dict[str, Any] = {
        "since": since,
        "victims": [{"uid": f"uid-placement-{who}", "revision": 1} for who in victims],
    }
    return replace(placement(job(name), None), name=name, status={"preemption": raw} if victims else {})


def test_both_sides_are_found() -> None:
    """A preemptor by its key with its intent, a victim by the uid of its Placement; and who is affected."""
    index = IntentIndex()
    assert index.set_placement(None, one("low")) == set()
    assert index.set_placement(None, one("high", "low", "unknown")) == {"uid-low"}
    assert [(key, [victim.uid for victim in intent.victims]) for key, intent in index.active()] == [
        ("uid-high", ["uid-placement-low", "uid-placement-unknown"])
    ]
    assert index.naming("uid-placement-low") == ["uid-high"]
    assert index.set_placement(one("high", "low"), one("high")) == {"uid-low"}
    assert (len(index), index.naming("uid-placement-low")) == (0, [])


def test_a_record_without_a_time_names_nobody() -> None:
    """It is over, or half of a write."""
    index = IntentIndex()
    index.set_placement(None, one("high", "low", since=None))
    assert (len(index), index.naming("uid-placement-low")) == (0, [])


CHANGES = st.lists(
    st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.sets(st.sampled_from("abcd"), max_size=3))), max_size=25
)


@given(CHANGES)
def test_after_any_changes_it_is_that_of_the_last_placements(changes: list[tuple[str, set[str] | None]]) -> None:
    """Nothing is left of an earlier one."""
    index, known = IntentIndex(), dict[str, Placement]()
    for name, victims in changes:
        new = one(name, *sorted(victims)) if victims is not None else None
        index.set_placement(known.pop(name, None), new)
        if new is not None:
            known[name] = new
    expected = {
        placed_key(each): intent for each in known.values() if (intent := preemption_intent(each.status)).active
    }
    assert dict(index.active()) == expected
    assert len(index) == len(expected)
    for victim in "abcd":
        uid = f"uid-placement-{victim}"
        named = {key for key, intent in expected.items() if uid in {who.uid for who in intent.victims}}
        assert set(index.naming(uid)) == named
        found = index.placement_of(uid)
        assert (found is not None) == (victim in known)
