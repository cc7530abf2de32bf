"""The next step with the requests of a gang: the requests themselves are all the memory that there is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.objects import ProvisioningRequest, RequestCondition
from engine.autoscaling.attempts import (
    PAUSE_FIRST,
    PAUSE_MOST,
    AskForNodes,
    Keep,
    Step,
    Withdraw,
    attempt_of,
    next_step,
    request_name,
)
from engine.autoscaling.state import SERVES_WITHIN
from engine.policy.autoscaling import ProvisioningRequests
from tests.support.provisioning import DIGEST, GANG, START, answered, asked, rules

ONE = rules("{className: only}")
TWO = rules("{className: first, fallbacks: [{className: second}]}")


def step(requests: list[ProvisioningRequest], of: ProvisioningRequests, now: float, *, asks_at: float = START) -> Step:
    return next_step(requests, GANG, DIGEST, of, asks_at=asks_at, now=now)


def test_a_gang_waits_for_a_moment_before_it_asks() -> None:
    """Room may become free meanwhile; then the first class is asked."""
    assert step([], TWO, START - 1) == Keep(START)
    assert step([], TWO, START) == AskForNodes(f"{GANG}-{DIGEST}-1", TWO.classes[0], 1)


@pytest.mark.parametrize("conditions", [{}, {"Accepted": True}, {"Provisioned": False}])
def test_a_request_that_has_not_ended_stays(conditions: dict[str, bool]) -> None:
    """However long the autoscaler takes."""
    request = answered(asked(TWO.classes[0]), START, **conditions)
    assert step([request], TWO, START + 1e6) == Keep(None)


def test_after_a_failure_the_next_class_is_asked_at_once() -> None:
    """It has not failed yet; the failed request stays until the new one is there."""
    failed = answered(asked(TWO.classes[0]), START + 60, Failed=True)
    second = AskForNodes(f"{GANG}-{DIGEST}-2", TWO.classes[1], 2)
    assert step([failed], TWO, START + 60) == second
    fresh = asked(TWO.classes[1], 2, created=START + 60)
    assert step([failed, fresh], TWO, START + 61) == Withdraw((failed,))


def test_after_the_last_class_the_first_is_asked_again_after_a_pause() -> None:
    failed = answered(asked(TWO.classes[1], 2), START, Failed=True)
    assert step([failed], TWO, START + 1) == Keep(START + PAUSE_FIRST)
    assert step([failed], TWO, START + PAUSE_FIRST) == AskForNodes(f"{GANG}-{DIGEST}-3", TWO.classes[0], 3)


@given(st.integers(1, 10_000), st.sampled_from(["Failed", "BookingExpired", "CapacityRevoked"]))
def test_pauses_grow_and_are_bounded(attempt: int, end: str) -> None:
    """An autoscaler that cannot help is asked twice an hour in the end."""
    answer = [
        step([answered(asked(ONE.classes[0], one), START, **{end: True})], ONE, START) for one in (attempt, attempt + 1)
    ]
    pauses = [one.until - START for one in answer if isinstance(one, Keep) and one.until is not None]
    assert len(pauses) == 2
    assert PAUSE_FIRST <= pauses[0] <= pauses[1] <= PAUSE_MOST
    assert pauses[1] in (2 * pauses[0], PAUSE_MOST)


@pytest.mark.parametrize("end", ["BookingExpired", "CapacityRevoked"])
def test_nodes_that_did_not_serve_the_gang_are_asked_for_in_the_next_class(end: str) -> None:
    """Ordered nodes may never come: the cluster autoscaler reports that as an expired booking alone."""
    lost = answered(asked(TWO.classes[0]), START, Provisioned=True, **{end: True})
    assert step([lost], TWO, START) == AskForNodes(f"{GANG}-{DIGEST}-2", TWO.classes[1], 2)


def test_a_provisioned_request_serves_its_gang_in_half_an_hour_or_has_failed() -> None:
    """Some autoscalers never take back what they said."""
    said = answered(asked(TWO.classes[0]), START + 5, Accepted=True, Provisioned=True)
    until = START + 5 + SERVES_WITHIN
    assert step([said], TWO, until - 1) == Keep(until)
    assert step([said], TWO, until) == AskForNodes(f"{GANG}-{DIGEST}-2", TWO.classes[1], 2)


def test_a_class_that_was_not_tried_after_all_is_asked_again() -> None:
    """The autoscaler saw the request before its templates."""
    failed = answered(asked(TWO.classes[0]), START, Failed=True)
    early = RequestCondition(True, START, "FailedToCreatePods", "missing pod templates")
    missed = replace(failed, conditions={"Failed": early})
    assert step([missed], TWO, START) == Keep(START + PAUSE_FIRST)
    assert step([missed], TWO, START + PAUSE_FIRST) == AskForNodes(f"{GANG}-{DIGEST}-2", TWO.classes[0], 2)


def test_a_time_in_the_future_does_not_put_off_the_next_request() -> None:
    """An autoscaler's clock, or somebody's hand, may write any time."""
    failed = answered(asked(ONE.classes[0]), START + 1e9, Failed=True)
    assert step([failed], ONE, START + PAUSE_FIRST) == AskForNodes(f"{GANG}-{DIGEST}-2", ONE.classes[0], 2)


def test_numbers_begin_again_after_the_last_one() -> None:
    """Only somebody else's request has it. The next number would be none of ours, and made again and again."""
    forged = answered(asked(ONE.classes[0], 999_999_999), START, Failed=True)
    assert step([forged], ONE, START + PAUSE_MOST) == Withdraw((forged,))


def test_a_class_fails_when_its_time_is_over_whatever_its_autoscaler_says() -> None:
    """`ValidUntilSeconds` is part of the API, and not every autoscaler reads it."""
    timed = rules('{className: first, parameters: {ValidUntilSeconds: "90"}, fallbacks: [{className: second}]}')
    tried = answered(asked(timed.classes[0]), START + 5, Accepted=True, Provisioned=False)
    assert step([tried], timed, START + 89) == Keep(START + 90)
    assert step([tried], timed, START + 90) == AskForNodes(f"{GANG}-{DIGEST}-2", timed.classes[1], 2)
    provisioned = answered(tried, START + 80, Provisioned=True)
    assert step([provisioned], timed, START + 1000) == Keep(START + 80 + SERVES_WITHIN)


def test_a_request_about_other_pods_is_withdrawn_first() -> None:
    """The gang has changed; then a new request is made, from the first class on."""
    old = asked(TWO.classes[1], 5, digest="ffffffff")
    assert step([old], TWO, START) == Withdraw((old,))
    assert step([replace(old, deleting=True)], TWO, START) == AskForNodes(f"{GANG}-{DIGEST}-1", TWO.classes[0], 1)


def test_a_request_in_a_class_that_the_policy_has_no_more_is_withdrawn() -> None:
    """Or with other parameters than it names now."""
    for old in (asked(ONE.classes[0]), replace(asked(TWO.classes[0]), parameters={"a": "b"})):
        assert step([old], TWO, START) == Withdraw((old,))


@given(st.integers(1, 999_999_999))
def test_a_name_says_what_it_is_about(attempt: int) -> None:
    request = replace(asked(ONE.classes[0]), name=request_name(GANG, DIGEST, attempt))
    assert attempt_of(request) == attempt_of(request, DIGEST) == attempt
    assert attempt_of(request, "ffffffff") is None
    assert len(request.name) <= 253


@pytest.mark.parametrize(
    "name", ["other", f"{GANG}", f"{GANG}-x-1", f"{GANG}-{DIGEST}-0", f"{GANG}-{DIGEST}-1-0", f"x{GANG}-{DIGEST}-1"]
)
def test_a_request_with_another_name_is_none_of_ours(name: str) -> None:
    """Whoever has put our label on it: it is neither counted nor deleted."""
    assert attempt_of(replace(asked(ONE.classes[0]), name=name)) is None
