"""Which restarts would help: for gangs that wait for room that is there in pieces, and for gangs that are split."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.golden import golden
from tests.support.simulation import answer, grid, job, policy_map
from tests.support.snapshots import busy_cluster, placed, runs, snapshot, waits
from tests.unit.queries.test_topologies import printed
from webhook.explanations.defragment import defragment
from webhook.queries.model import DefragmentAnswer
from webhook.queries.subject import GangFilter
from webhook.snapshot.snapshot import AnswerProblem, Unread
from webhook.terminal.defragment_text import defragment_text

SCHEMA = json.loads((Path(__file__).parents[3] / "schemas" / "defragment.schema.json").read_text())
Json = dict[str, Any]


def on(rack: str, *hosts: int) -> dict[str, tuple[str, int]]:
    return {f"b0-{rack}-h{one}": (f"b0/b0-{rack}", 1) for one in hosts}


def since(minute: int) -> Json:
    """The status of a gang that got its slots at this minute."""
    at = f"2026-01-01T00:{minute:02}:00Z"
    return {"conditions": [{"type": "Placed", "status": "True", "lastTransitionTime": at}]}


def in_pieces(**options: Any) -> list[Json]:
    """Three racks of four hosts with a gang on each, and one that needs a rack."""
    return [
        *grid(1, 3, 4),
        *placed("old", on("r0", 0, 1), bound=2, namespace="bob", **since(0)),
        *placed("young", on("r1", 0), bound=1, namespace="bob", **since(20)),
        *placed("three", on("r2", 0, 1, 2), bound=3, namespace="bob", **since(25)),
        waits("big", 4, {"require": "rack"}, **options),
    ]


def split() -> list[Json]:
    """A gang that prefers a rack and has two, although a rack has room for it by now."""
    cluster = placed("apart", {**on("r0", 0), **on("r1", 0)}, bound=2, **since(5))
    for one in cluster:
        if one["kind"] == "Job":
            one["metadata"]["annotations"] = {"topogate.dev/prefer-topology": "rack"}
        if one["kind"] == "Placement":
            one["spec"]["podSets"][0] |= {"require": None, "prefer": "rack"}
    return [*grid(1, 2, 2), *cluster]


def ask(objects: list[Json], *words: str, **options: Any) -> DefragmentAnswer:
    seen = snapshot(objects)
    only = GangFilter.of(seen, words) if words else None
    return defragment(seen, only=only, **options)


def test_the_answers_as_text() -> None:
    full = [*grid(1, 1, 4), *placed("all", on("r0", 0, 1, 2), bound=3), waits("more", 4, {"require": "rack"})]
    two = [*in_pieces(), waits("also", 4, {"require": "rack"}, minute=11, namespace="bob")]
    golden(
        "defragment",
        {
            "one restart": printed(defragment_text(ask(in_pieces()))),
            "two gangs wait": printed(defragment_text(ask(two))),
            "a gang that is split": printed(defragment_text(ask(split()))),
            "a full cluster": printed(defragment_text(ask(full))),
            "nothing waits": printed(defragment_text(ask(grid(1, 1, 1)))),
            "only what cannot be moved": printed(defragment_text(ask(busy_cluster()))),
            "a gang that is named and waits for nothing": printed(defragment_text(ask(busy_cluster(), "job/train"))),
            "a gang that is too large": printed(defragment_text(ask(busy_cluster(), "huge"))),
        },
    )


def test_after_the_restart_both_gangs_are_where_the_answer_says() -> None:
    """As simulate would place them on a cluster without the moved gang: first the waiting one, then the moved."""
    (found,) = ask(in_pieces()).proposals
    assert [one.name for one in found.restarts] == ["young"]
    rest = [one for one in in_pieces() if "young" not in one["metadata"]["name"] and one["metadata"]["name"] != "big"]
    bodies = [job("big", 4, {"require": "rack"}), job("young", 1, {"require": "rack"})]
    first, second = answer(rest, bodies)["workloads"]
    assert {tuple(one["domain"][:2]) for one in first["podSets"][0]["assignment"]} == {found.assignment[0].path}
    assert {tuple(one["domain"][:2]) for one in second["podSets"][0]["assignment"]} == {found.restarts[0].after[0].path}


def test_the_price_is_pods_and_their_running_time() -> None:
    """Ten minutes of one pod: it got its slots at twenty past, and it is half past."""
    (found,) = ask(in_pieces()).proposals
    assert (found.restarted_pods, found.lost_seconds, found.proven) == (1, 600, True)


@pytest.mark.parametrize(
    ("policy", "moved"),
    [
        ("{}", ["young"]),
        ("defragment: {protect: {runningFor: 5m}}", None),
        ("defragment: {protect: {runningFor: 11m}}", ["young"]),
        ("defragment: {protect: {namespaces: [b*]}}", None),
        ("defragment: {mode: never}", ["young"]),
    ],
)
def test_the_policy_protects_gangs(policy: str, moved: list[str] | None) -> None:
    """Its mode is about what the service does by itself, and not about who asks."""
    found = ask([*in_pieces(), policy_map(policy)])
    names = [[one.name for one in proposal.restarts] for proposal in found.proposals]
    assert names == ([] if moved is None else [moved])
    assert [one.name for one in found.others] == (["big"] if moved is None else [])


def test_a_gang_whose_pods_have_no_hosts_yet_loses_no_time() -> None:
    """It has just got its slots: nothing has run."""
    cluster = [one for one in in_pieces() if not one["metadata"]["name"].startswith("young-")]
    (found,) = ask(cluster).proposals
    assert [(one.name, one.pods, one.running_seconds) for one in found.restarts] == [("young", 1, 0)]
    assert found.lost_seconds == 0


def test_a_gang_that_could_not_be_planned_again_stays() -> None:
    """The policy has lost its level: it would wait for ever, and the search for a place ended with an error."""
    cluster = in_pieces()
    for one in cluster:
        if one["kind"] == "Job" and one["metadata"]["name"] == "young":
            one["metadata"]["annotations"] = {"topogate.dev/require-topology": "island"}
    found = ask(cluster)
    assert "young" not in [moved.name for one in found.proposals for moved in one.restarts]


def test_a_namespace_and_a_name_choose_the_gang() -> None:
    cluster = [*in_pieces(), waits("also", 4, {"require": "rack"}, minute=11, namespace="bob")]
    assert [one.name for one in ask(cluster).proposals] == ["big", "also"]
    assert [one.name for one in ask(cluster, namespace="bob").proposals] == ["also"]
    assert [one.name for one in ask(cluster, "job/big").proposals] == ["big"]
    with pytest.raises(AnswerProblem, match=r'no gang "alsa"; did you mean "also"\?'):
        ask(cluster, "alsa")


def test_fewer_restarts_than_are_needed_may_be_allowed() -> None:
    """Each rack has two gangs of one pod."""
    gangs = [
        part
        for rack in ("r0", "r1")
        for host in (0, 1)
        for part in placed(f"{rack}-{host}", on(rack, host), bound=1, namespace="bob")
    ]
    cluster = [*grid(1, 2, 4), *gangs, waits("big", 4, {"require": "rack"})]
    assert [len(one.restarts) for one in ask(cluster).proposals] == [2]
    found = ask(cluster, most_gangs=1)
    assert [one.message for one in found.others] == ["no place for it was found by restarting up to 1 running gang"]


def test_without_the_rights_to_see_all_there_is_no_answer() -> None:
    """A plan on half of the pods would be wrong; nothing of other namespaces is named."""
    seen = snapshot(in_pieces())
    hidden = type(seen)(view=seen.view, taken=seen.taken, ends={}, unread=(Unread("pods", except_in="alice"),))
    with pytest.raises(AnswerProblem, match=r"status\.proposal") as problem:
        defragment(hidden)
    assert "bob" not in str(problem.value) + "".join(problem.value.causes)


def test_the_search_counts_its_plans_and_ends() -> None:
    """Progress for who waits, and a bound for all gangs together."""
    counts: list[int] = []
    ask(in_pieces(), progress=counts.append)
    assert counts == list(range(1, len(counts) + 1))


def test_unmanaged_pods_stay() -> None:
    """They are nobody's gang: nothing knows how to start them elsewhere."""
    cluster = [*grid(1, 2, 2), *runs("a", ["b0-r0-h0"]), *runs("b", ["b0-r1-h0"]), waits("big", 2, {"require": "rack"})]
    found = ask(cluster)
    assert not found.proposals
    assert [one.name for one in found.others] == ["big"]


@pytest.mark.parametrize("objects", [in_pieces(), split(), busy_cluster(), grid(1, 1, 1)])
def test_the_output_fits_its_schema(objects: list[Json]) -> None:
    found = ask(objects)
    document = json.loads(found.model_dump_json(by_alias=True))
    jsonschema.validate(document, SCHEMA)
    assert DefragmentAnswer.model_validate(document) == found
