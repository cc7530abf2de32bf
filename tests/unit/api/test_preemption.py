"""What a Placement's status says of a preemption, and what becomes of garbage there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api.placement import (
    NO_INTENT,
    IntendedPod,
    IntendedVictim,
    PreemptionIntent,
    preemption_body,
    preemption_intent,
)

TWO = (IntendedVictim("uid-1", 3, 8, -5), IntendedVictim("uid-2", 1, 4, 0))
INTENT = PreemptionIntent(1_800_000_000.0, TWO, (IntendedPod("pod-1", "h1"),), "3-abc", 2, 1_800_000_060.0, "late")


@pytest.mark.parametrize(
    "intent",
    [INTENT, replace(INTENT, moves=True), PreemptionIntent(attempts=1, retry_at=1_800_000_060.0)],
    ids=["one", "moves", "rest"],
)
def test_what_is_written_reads_back(intent: PreemptionIntent) -> None:
    """A new leader continues what the last one has decided."""
    body = preemption_body(intent)
    assert body is not None
    assert preemption_intent({"preemption": {key: one for key, one in body.items() if one is not None}}) == intent


def test_nothing_is_written_of_nothing() -> None:
    """An earlier record is removed."""
    assert preemption_body(NO_INTENT) is None
    assert preemption_intent({}) == NO_INTENT


@pytest.mark.parametrize(
    "raw",
    [
        None,
        "two",
        7,
        [],
        {"since": 5, "victims": "uid", "pods": {}, "attempts": "x", "retryAt": []},
        {"since": "soon", "victims": [None, 3, {}, {"uid": "u"}, {"revision": 1}, {"uid": 1, "revision": True}]},
        {"moves": "true", "victims": {}},
        {"pods": [{"uid": "p"}, {"host": "h"}, {"uid": "", "host": "h"}], "attempts": -4, "retryAt": "never", "why": 3},
    ],
    ids=str,
)
def test_garbage_ends_nobody(raw: Any) -> None:
    """An admin may have edited the status, or an older CRD dropped a part of it: nothing ends, and no leader fails."""
    assert preemption_intent({"preemption": raw}) == NO_INTENT


def test_the_readable_part_of_a_record_counts() -> None:
    """A victim that cannot be identified is left out, the others are known."""
    raw = {"since": "2027-01-15T08:00:00Z", "victims": [{"uid": "a", "revision": 2}, {"uid": "b"}], "pods": [None]}
    found = preemption_intent({"preemption": raw})
    assert (found.victims, found.pods, found.active) == ((IntendedVictim("a", 2),), (), True)


def test_a_record_without_a_time_is_not_active() -> None:
    """Half of a write says nothing."""
    assert not preemption_intent({"preemption": {"victims": [{"uid": "a", "revision": 2}]}}).active
