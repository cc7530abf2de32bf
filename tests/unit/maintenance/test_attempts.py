"""What a release that goes on tries again, what it gives up, and what it says twice."""

from __future__ import annotations

import pytest

from tests.support.snapshots import snapshot
from tests.unit.maintenance.conftest import gated_pod, held_job
from webhook.maintenance.attempts import TRIES, Attempts
from webhook.maintenance.release import ReleasePlan, release_plan
from webhook.maintenance.releaser import Outcome
from webhook.snapshot.connection import denied_right, reason_text

DENIED = Outcome(False, "job/held: not done: no right to patch jobs.batch", "held", refused=True)


def plan() -> ReleasePlan:
    return release_plan(snapshot([held_job(), gated_pod("a")]).view)


def test_what_is_refused_every_time_is_given_up_with_its_reason() -> None:
    """The first refusal is told, those between are not; the rest of the plan goes on."""
    attempts = Attempts()
    told = [attempts.news(DENIED) for _ in range(TRIES)]
    assert [one.text if one else None for one in told] == [
        DENIED.text,
        *[None] * (TRIES - 2),
        f"{DENIED.text}; given up after {TRIES} tries",
    ]
    left = attempts.left(plan())
    assert ([one.name for one in left.workloads], [one.name for one in left.pods]) == ([], ["a"])
    assert not attempts.over(plan())


def test_it_ends_if_all_is_refused_and_nothing_to_come_may_be_let_go() -> None:
    """While templates make more pods it goes on, if anything was let go before."""
    attempts = Attempts()
    for uid in ("held", "p-a"):
        for _ in range(TRIES):
            attempts.news(Outcome(False, "not done", uid, refused=True))
    running = held_job("running", held=False)
    more = release_plan(snapshot([held_job(), gated_pod("a"), running]).view)
    assert (attempts.over(plan()), attempts.over(more)) == (True, True)
    attempts.news(Outcome(True, "released", "p-b"))
    assert (attempts.over(plan()), attempts.over(more)) == (True, False)


def test_faults_are_tried_for_ever_and_told_once() -> None:
    """An API server that does not answer may answer again; a refusal after a success counts from one."""
    attempts = Attempts()
    fault = Outcome(False, "not done: no route", "held")
    assert [attempts.news(fault) is not None for _ in range(5)] == [True, False, False, False, False]
    assert attempts.left(plan()).held == 2
    for _ in range(TRIES - 1):
        attempts.news(DENIED)
    attempts.news(Outcome(True, "resumed", "held"))
    attempts.news(DENIED)
    assert attempts.left(plan()).held == 2


def test_what_is_gone_is_forgotten() -> None:
    """Nothing grows with the pods of days."""
    attempts = Attempts()
    for _ in range(TRIES):
        attempts.news(DENIED)
    attempts.left(release_plan(snapshot([]).view))
    assert attempts.left(plan()).held == 2


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (
            'jobs.batch "a" is forbidden: User "eve" cannot patch resource "jobs" in API group "batch" in the '
            'namespace "alice"',
            "no right to patch jobs.batch in namespace alice",
        ),
        (
            'pods "x" is forbidden: User "eve" cannot get resource "pods/log" in API group "" in the namespace "a": '
            "RBAC: role not found",
            "no right to get pods/log in namespace a",
        ),
        (
            'nodes is forbidden: User "e" cannot list resource "nodes" in API group "" at the cluster scope',
            "no right to list nodes",
        ),
        (
            'placements.topogate.dev "j" is forbidden: User "e" cannot patch resource "placements/status" in API group '
            '"topogate.dev" in the namespace "a"',
            "no right to patch placements.topogate.dev/status in namespace a",
        ),
        ('forbidden: User "eve" cannot get path "/metrics"', "no right to get /metrics"),
    ],
)
def test_a_missing_right_is_told_without_the_servers_sentence(words: str, right: str) -> None:
    assert denied_right(words) == reason_text(words) == right


@pytest.mark.parametrize("words", ["", "denied request: placements are written only by topogate", "cannot x" * 9000])
def test_other_refusals_keep_their_words(words: str) -> None:
    """Those of admission; cut, whatever they are."""
    assert denied_right(words) == ""
    assert len(reason_text(words)) <= 300
