"""The state of a request, from its conditions."""

from __future__ import annotations

import pytest

from engine.api.placement import ConsumedRequest
from engine.autoscaling.state import consumed, state_of
from tests.support.provisioning import START, answered, asked, rules

CLASS = rules("{className: only}").classes[0]
LATER = START + 100


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ({}, "Pending"),
        ({"Accepted": True}, "Accepted"),
        ({"Accepted": True, "Provisioned": False}, "Accepted"),
        ({"Provisioned": False}, "Pending"),
        ({"Accepted": True, "Provisioned": True}, "Provisioned"),
        ({"Accepted": True, "Provisioned": True, "Failed": False}, "Provisioned"),
        ({"Accepted": True, "Failed": True}, "Failed"),
        ({"Provisioned": True, "BookingExpired": True}, "BookingExpired"),
        ({"Provisioned": True, "CapacityRevoked": True}, "CapacityRevoked"),
        ({"SomethingNew": True}, "Pending"),
    ],
)
def test_the_worst_condition_is_the_state(conditions: dict[str, bool], state: str) -> None:
    """What has ended it comes before what went well."""
    found = state_of(answered(asked(CLASS), LATER, **conditions), CLASS, now=LATER)
    assert (found.state, found.ended) == (state, state in ("Failed", "BookingExpired", "CapacityRevoked"))
    assert found.since == (START if state == "Pending" else LATER)


def test_what_the_autoscaler_says_while_it_tries_is_kept() -> None:
    """It found nothing, and goes on: a user reads why."""
    tried = answered(asked(CLASS), LATER, Accepted=True, Provisioned=False)
    assert state_of(tried, CLASS, now=LATER).message == "Provisioned it is"


def test_pods_use_the_nodes_of_the_last_provisioned_request() -> None:
    """Not of one that has ended, or that has provided nothing yet."""
    first = answered(asked(CLASS, 1), LATER, Provisioned=True)
    second = answered(asked(CLASS, 2, created=LATER), LATER, Provisioned=True)
    failed = answered(asked(CLASS, 3, created=LATER), LATER, Failed=True)
    assert consumed([second, failed, first]) == ConsumedRequest(second.name, "only")
    assert consumed([failed, asked(CLASS)]) is None
    assert consumed([answered(first, LATER, BookingExpired=True)]) is None
