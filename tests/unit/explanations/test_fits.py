"""Whether a gang of some size fits: the leader's own answer, what would fit instead, and when it fits later."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.golden import golden
from tests.support.simulation import answer, grid, job, policy_map, priority_class
from tests.support.snapshots import busy_cluster, runs, snapshot, waiting_placement, waits
from tests.unit.queries.test_topologies import printed
from webhook.explanations.fits import fits
from webhook.queries.model import FitsAnswer
from webhook.snapshot.snapshot import AnswerProblem, Unread
from webhook.terminal.text import fits_text

SCHEMA = json.loads((Path(__file__).parents[3] / "schemas" / "fits.schema.json").read_text())


def ask(objects: list[dict[str, Any]], **options: Any) -> FitsAnswer:
    return fits(snapshot(objects), **{"pods": 4, "gpus": 8, **options})


def test_the_answers_as_text() -> None:
    busy = busy_cluster()
    alone = [*grid(1, 1, 4), *runs("fill", [f"b0-r0-h{one}" for one in range(4)], deadline=3600)]
    golden(
        "fits",
        {
            "fits in a rack": printed(fits_text(ask(busy, pods=2, require="rack"))),
            "not in a rack": printed(fits_text(ask(busy, require="rack"))),
            "prefers a rack": printed(fits_text(ask(busy, prefer="rack"))),
            "without a level": printed(fits_text(ask(busy, pods=6))),
            "small pods": printed(fits_text(ask(busy, pods=3, gpus=2, require="host"))),
            "too large for ever": printed(fits_text(ask(busy, pods=40, require="rack"))),
            "in a block, by racks": printed(fits_text(ask(busy, require="block", prefer="rack"))),
            "when something has ended": printed(fits_text(ask(alone, require="rack"))),
            "pods without GPUs": printed(fits_text(ask(grid(1, 1, 1), pods=200, gpus=0))),
            "a resource that no node has": printed(fits_text(ask(grid(1, 1, 1), pods=1, gpus=9))),
        },
    )


@pytest.mark.parametrize("pods", [1, 2, 3, 4, 6, 7, 16])
@pytest.mark.parametrize(("require", "prefer"), [("rack", None), ("block", "rack"), (None, "rack"), (None, None)])
def test_the_answer_is_that_of_simulate(pods: int, require: str | None, prefer: str | None) -> None:
    """The same cluster, a Job of the same size: the same verdict, reason and sentence."""
    cluster = [one for one in busy_cluster() if one["metadata"]["name"] not in ("wide", "later", "small", "huge")]
    cluster = [one for one in cluster if one["metadata"]["name"] != "job-wide"]
    asks = {"require": require, "prefer": prefer} if require or prefer else {"unconstrained": "true"}
    body = job("probe", pods, {key: value for key, value in asks.items() if value is not None})
    (expected,) = answer(cluster, [body])["workloads"]
    found = ask(cluster, pods=pods, require=require, prefer=prefer)
    assert found.fits == (expected["verdict"] == "placed")
    assert found.reason == expected["reason"]
    assert found.message.replace("would place", "placed") == expected["message"]
    if found.fits:
        assert sum(one.pods for one in found.assignment) == pods


def test_the_largest_gang_of_a_level_fits_and_one_more_does_not() -> None:
    found = ask(busy_cluster(), require="rack")
    for level in found.levels:
        options = {"require": level.level} if level.level is not None else {}
        assert ask(busy_cluster(), pods=level.largest_gang, **options).fits
        assert not ask(busy_cluster(), pods=level.largest_gang + 1, **options).fits
    assert [(one.level, one.fits) for one in found.levels] == [
        ("host", False),
        ("rack", False),
        ("block", True),
        (None, True),
    ]
    assert [one.pods for one in found.best] == [2, 2, 1, 1]


def test_a_later_start_goes_behind_the_queue() -> None:
    """`wide` waits for the same rack and goes first, so the asked gang gets nothing; alone it would."""
    assert ask(busy_cluster(), require="rack").start == ask(busy_cluster(), require="rack", prefer=None).start
    behind = ask(busy_cluster(), require="rack").start
    assert behind is not None
    assert behind.by is None
    alone = [*grid(1, 1, 4), *runs("fill", ["b0-r0-h0"], deadline=3600)]
    start = ask(alone, require="rack").start
    assert start is not None
    assert (start.by, start.after) == ("2026-01-01T01:00:00Z", ("others/job/fill",))
    start = ask([*alone, waits("wide", 4, {"require": "rack"})], require="rack").start
    assert start is not None
    assert start.by is None


def test_in_a_fair_order_a_later_start_goes_before_the_second_gang_of_another_namespace() -> None:
    """Both namespaces use nothing until the older gang of one is placed; then the other one uses less."""
    objects = [
        *grid(1, 1, 2),
        policy_map("queue: {fairness: {mode: namespaces}}\n"),
        *runs("fill", ["b0-r0-h0", "b0-r0-h1"], deadline=3600),
        *(waits(f"a{number}", 1, {"require": "rack"}, minute=number) for number in (1, 2)),
    ]
    found = ask(objects, pods=1, require="rack", namespace="carol").start
    assert found is not None
    assert found.by == "2026-01-01T01:00:00Z"


def test_a_gang_that_was_given_up_or_is_younger_does_not_go_first() -> None:
    """Neither takes the room of a rack that is free in half an hour, and nor does one of a lower priority."""
    alone = [*grid(1, 1, 4), *runs("fill", ["b0-r0-h0"], deadline=3600)]
    ended = [waits("ended", 4, {"require": "rack"}), waiting_placement("ended", reason="ScheduleTimeout")]
    urgent = priority_class("high", 1000) | {"globalDefault": True}
    low = waits("low", 4, {"require": "rack"})
    low["spec"]["template"]["spec"]["priorityClassName"] = "low"
    for others in (ended, [waits("young", 4, {"require": "rack"}, minute=31)], [urgent, priority_class("low", 0), low]):
        start = ask([*alone, *others], require="rack").start
        assert start is not None
        assert (start.by, start.after) == ("2026-01-01T01:00:00Z", ("others/job/fill",))


def test_in_strict_order_no_level_helps_behind_a_gang_that_waits() -> None:
    """It would wait for the same gang at any level, and does not start before that one either."""
    cluster = [
        *grid(1, 2, 4),
        *runs("fill", ["b0-r0-h0", "b0-r1-h0"]),
        waits("big", 4, {"require": "rack"}),
        waiting_placement("big"),
        policy_map("queue: {order: strict}"),
    ]
    for options in ({"pods": 4, "require": "rack"}, {"pods": 2}):
        found = ask(cluster, **options)
        assert found.reason == "QueuedBehind"
        assert not any(level.fits for level in found.levels)
        assert found.start is not None
        assert found.start.by is None
        assert "it would fit with" not in printed(fits_text(found))


def test_a_level_that_its_namespace_may_not_use_is_not_suggested() -> None:
    rules = policy_map("namespaces: {rules: [{namespaces: [alice], levels: [rack]}]}")
    cluster = [*grid(1, 2, 4), *runs("fill", ["b0-r0-h0", "b0-r1-h0"]), rules]
    allowed = {one.level: one.fits for one in ask(cluster, require="rack", namespace="alice").levels}
    assert allowed == {"host": False, "rack": False, "block": False, None: True}
    assert {one.level: one.fits for one in ask(cluster, require="rack").levels} == {**allowed, "block": True}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"require": "rak"},
            '--require: Unsupported value: "rak": allowed: block, rack, host, auto; did you mean "rack"?',
        ),
        ({"require": "rack", "prefer": "block"}, '--prefer: Invalid value: "block": must not be a coarser level'),
        ({"prefer": "pod\x1b[2J"}, "allowed: block, rack, host, auto"),
        ({"topology": "ib"}, 'no topology "ib"; there are: default'),
        ({"namespace": "kube-system"}, 'namespace "kube-system" is not managed (ExemptNamespace)'),
    ],
)
def test_a_wrong_request_is_refused_as_at_submit(options: dict[str, Any], text: str) -> None:
    with pytest.raises(AnswerProblem) as caught:
        ask(grid(1, 1, 1), **options)
    assert text in str(caught.value)
    assert str(caught.value).isprintable()


def test_without_the_pods_of_all_namespaces_there_is_no_answer() -> None:
    """What could not be seen is a short list of what decides, and the service can be asked instead."""
    unread = (Unread("pods", except_in="alice"), Unread("nodes"), Unread("resourcequotas"))
    partly = replace(snapshot(grid(1, 1, 1)), unread=unread)
    with pytest.raises(AnswerProblem) as caught:
        fits(partly, pods=1, gpus=8)
    assert caught.value.causes == (
        "pods of namespaces other than alice cannot be read: free capacity is not known",
        "nodes cannot be read: topologies and free capacity are not known",
    )
    assert "--dry-run=server" in str(caught.value)


def quota(gpus: int, *, used: int = 0) -> dict[str, Any]:
    hard = {"requests.nvidia.com/gpu": str(gpus)}
    status = {"hard": hard, "used": {"requests.nvidia.com/gpu": str(used)}}
    meta = {"name": "q", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}, "status": status}


@pytest.mark.parametrize(
    ("gpus", "used", "message"),
    [
        (32, 24, "quota q leaves 8 of requests.nvidia.com/gpu, 2 pods need 16"),
        (8, 0, "quota q allows 8 of requests.nvidia.com/gpu in all, 2 pods need 16: it never has room"),
        (8, 8, "quota q allows 8 of requests.nvidia.com/gpu in all, 2 pods need 16: it never has room"),
    ],
)
def test_a_full_quota_is_the_cause_and_not_the_room(gpus: int, used: int, message: str) -> None:
    """No level would help, and no deadline of what runs; a quota that can never take the gang says so."""
    found = ask([*busy_cluster(), quota(gpus, used=used)], pods=2, require="rack")
    assert (found.fits, found.reason, found.message) == (False, "QuotaExceeded", message)
    assert not any(level.fits for level in found.levels)
    assert (found.start, found.until) == (None, "the quota has room or is raised")
    assert "activeDeadlineSeconds" not in printed(fits_text(found))


@pytest.mark.parametrize("policy", ["{}", "mode: hold"])
def test_a_gang_that_never_fits_is_told_so_before_its_quota(policy: str) -> None:
    found = ask([*busy_cluster(), quota(8), policy_map(policy)], pods=40, require="rack")
    assert (found.reason, found.until) == ("GangTooLarge", None)


def test_on_hold_neither_a_level_nor_a_deadline_helps() -> None:
    found = ask([*busy_cluster(), policy_map("mode: hold")], pods=2)
    assert (found.reason, found.start, found.until) == ("PolicyHold", None, "the admin changes the policy's mode")
    assert not any(level.fits for level in found.levels)


def test_a_namespaces_quota_counts() -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "alice"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "8"}},
        "status": {"hard": {"requests.nvidia.com/gpu": "8"}, "used": {"requests.nvidia.com/gpu": "0"}},
    }
    assert ask([*grid(1, 1, 4), quota]).fits
    assert ask([*grid(1, 1, 4), quota], namespace="alice").reason == "QuotaExceeded"


def test_the_output_fits_its_schema() -> None:
    for options in ({"require": "rack"}, {"prefer": "rack"}, {"pods": 1000}):
        found = ask(busy_cluster(), **options)
        document = json.loads(found.model_dump_json(by_alias=True))
        jsonschema.validate(document, SCHEMA)
        assert FitsAnswer.model_validate(document) == found
