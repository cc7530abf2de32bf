"""The answer of `topogate history`, from the records of several logs: merged, filtered, summed up."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.duration import timestamp
from engine.history.lines import MAX_LINE
from engine.history.record import LOGGER, ON_GANGS, ON_SERVICE
from tests.support.pages import ROOT
from webhook.history import parts as parts_module
from webhook.history.answer import HistoryFilter, answer_of
from webhook.history.model import HistoryAnswer
from webhook.history.parts import LogPart, lines_of, read_part
from webhook.terminal.history_text import history_text
from webhook.terminal.tables import as_text

NIGHT = 1795384800.0  # 2026-11-22T22:00:00Z
NOW = NIGHT + 8 * 3600


def line(minute: float, event: str, gang: str = "", **fields: Any) -> bytes:
    """A line of the log, this many minutes after the start of the night; `gang` is `namespace/name`."""
    namespace, _, name = gang.partition("/")
    about = {"namespace": namespace, "workload": f"Job/{name}", "placement": f"job-{name}-0a1b2c3d"} if gang else {}
    at = timestamp(NIGHT + minute * 60).replace("Z", ".000Z")
    told = {"reason": "", "message": f"about {event}", **fields}
    return json.dumps({"time": at, "logger": LOGGER, "event": event, **about, **told}).encode() + b"\n"


FIRST = [
    line(0, "LeadershipGained", replica="topogate-0", policy="11aa", message="topogate-0 leads from now on"),
    line(10, "Waiting", "alice/train", reason="Fragmented", message="needs 4 hosts in one rack, best is r1 with 3"),
    line(12, "Placed", "alice/train", pods=4, hosts=4, domain="b0/r1", revision=1, waitedSeconds=120.0),
    line(13, "Running", "alice/train", message="4 pods ready"),
    line(20, "Placed", "bob/eval", pods=1, hosts=1, domain="b0/r0", revision=1, waitedSeconds=0.5),
    line(30, "PolicyRefused", policy="11aa", message="policy 11aa stays in force; refused: mode"),
    line(40, "Incomplete", "alice/train", reason="NodeLost", message="b0-r1-h2 was lost"),
    line(41, "Repaired", "alice/train", pods=1, hosts=1, domain="b0/r1", revision=2, message="1 pod moves"),
    line(45, "Requeued", "bob/big", reason="ScheduleTimeout", requeues=1),
]
SECOND = [
    line(60, "LeadershipGained", replica="topogate-1", policy="11aa", message="topogate-1 leads from now on"),
    line(60.5, "PolicyRefused", policy="11aa", message="policy 11aa stays in force; refused: mode"),
    line(61, "PolicyTaken", policy="22bb", message="policy 22bb is in force, mode enforce"),
    line(70, "GivenUp", "bob/huge", reason="ScheduleTimeout", message="has waited for 1h"),
    line(80, "Finished", "alice/train", message="the Job has completed"),
    line(90, "Waiting", "alice/late", reason="Fragmented", message="needs 9 hosts"),
    line(95, "Unplaced", "bob/paused", reason="Suspended", message="suspended by its user"),
]


def answer(*logs: Sequence[bytes], wanted: HistoryFilter = HistoryFilter(), one_log: bool = False) -> HistoryAnswer:  # noqa: B008
    parts = [read_part(f"topogate-{place}", log, since=wanted.since) for place, log in enumerate(logs)]
    return answer_of(parts, wanted, now=NOW, one_log=one_log)


def test_the_records_are_summed_up() -> None:
    found = answer(FIRST, SECOND).summary
    assert (found.placed, found.median_wait_seconds, found.longest_wait_seconds) == (2, 60.25, 120.0)
    assert (found.requeued, found.given_up, found.repaired, found.finished, found.unplaced) == (1, 1, 1, 1, 1)
    assert (found.policy_changes, found.policies_refused, found.leader_changes) == (1, 1, 2)
    assert [(one.workload, one.reason) for one in found.waiting] == [
        ("job/big", "ScheduleTimeout"),
        ("job/late", "Fragmented"),
    ]


PREEMPTED = [
    line(1, "Preempts", "alice/urgent", reason="Preempting", pods=4, message="ends Job bob/train (4 pods)"),
    line(1, "Unplaced", "bob/train", reason="Preempted", message="ended for a gang of another namespace"),
    line(2, "Placed", "alice/urgent", pods=4, hosts=4, domain="b0/r1", revision=1, waitedSeconds=60.0),
    line(3, "Unplaced", "bob/other", reason="Suspended", message="suspended by its user"),
    line(4, "Preempts", "alice/next", reason="Preempting", pods=1, message="ends Job bob/eval (1 pod)"),
]


def test_preempted_gangs_are_counted_and_named_where_they_are_preempted() -> None:
    """A gang for which others end waits, until it is placed; its record has the names of its victims."""
    found = answer(PREEMPTED)
    assert (found.summary.unplaced, found.summary.preempted) == (2, 1)
    assert [one.workload for one in found.summary.waiting] == ["job/train", "job/next"]
    head, table = history_text(found, namespaces=False)
    assert "1 gang placed (waited 60s at the median, 60s at most), 2 unplaced (1 preempted)" in head.before[0]
    assert as_text(table.columns, table.rows).splitlines()[1].endswith("Preempting: ends Job bob/train (4 pods)")
    ended = line(5, "PreemptionEnded", "alice/next", message="its request has changed")
    assert [one.workload for one in answer([*PREEMPTED, ended]).summary.waiting] == ["job/train", "job/next"]


def test_the_eviction_of_pods_ends_no_wait_and_begins_none() -> None:
    """A preempted gang that cannot be suspended loses its slots first, then its pods; one that lost a node runs on."""
    preempted = [
        line(1, "Placed", "bob/serve", waitedSeconds=1.0),
        line(2, "Unplaced", "bob/serve", reason="Preempted"),
        line(3, "Evicted", "bob/serve", reason="Preempted", pods=4),
    ]
    lost = [line(1, "Running", "bob/train"), line(2, "Evicted", "bob/train", reason="NodeLost", pods=1)]
    found = answer([*preempted, *lost]).summary.waiting
    assert [(one.workload, one.reason) for one in found] == [("job/serve", "Preempted")]


def test_what_becomes_of_a_request_for_nodes_ends_no_wait() -> None:
    """The gang still waits, and one that has its slots does not wait again when its request is deleted."""
    told = ("NodesRequested", "NodesAccepted", "NodesProvisioned", "NodesNotProvisioned", "NodesLost", "NodesNotNeeded")
    waits = [line(1, "Waiting", f"alice/{event.lower()}", reason="InsufficientFreeHosts") for event in told]
    asked = [line(2, event, f"alice/{event.lower()}", pods=4) for event in told]
    placed = [line(1, "Placed", "bob/train", waitedSeconds=1.0), line(2, "NodesNotNeeded", "bob/train")]
    found = answer([*waits, *asked, *placed]).summary.waiting
    assert {(one.workload, one.reason) for one in found} == {
        (f"job/{event.lower()}", "InsufficientFreeHosts") for event in told
    }


def test_it_is_printed_with_numbers_and_a_row_for_each_record() -> None:
    head, table = history_text(answer(FIRST, SECOND, wanted=HistoryFilter(NIGHT - 3600)), namespaces=True)
    assert head.before == (
        "since 2026-11-22T21:00:00Z: 2 gangs placed (waited 60s at the median, 2m at most), 1 unplaced, 1 requeued, "
        "1 given up, 1 repaired, 1 finished",
        "2 gangs waiting at the end: bob/job/big, alice/job/late",
        "the policy was changed 1 time and refused 1 time, the leader changed 2 times",
        "records begin at 2026-11-22T23:00:00Z: the log of topogate-1 begins then",
    )
    rows = as_text(table.columns, table.rows).splitlines()
    assert rows[0].split() == ["TIME", "NAMESPACE", "GANG", "WHAT", "WHY"]
    assert " ".join(rows[1].split()) == "2026-11-22T22:00:00Z (leader) LeadershipGained topogate-0 leads from now on"
    assert rows[2].rsplit("  ", 1)[-1].strip() == "Fragmented: needs 4 hosts in one rack, best is r1 with 3"
    assert rows[3].rsplit("  ", 1)[-1].strip() == "about Placed, waited 2m"
    assert "(policy)" in rows[6]
    wide = history_text(answer(FIRST), namespaces=False, wide=True)[1]
    headings = ["TIME", "GANG", "WHAT", "PODS", "WAITED", "PLACE", "REVISION", "WHY", "PLACEMENT"]
    assert as_text(wide.columns, wide.rows).splitlines()[0].split() == headings


@given(st.randoms(use_true_random=False), st.integers(1, 6))
def test_any_order_of_logs_and_lines_gives_the_same_answer(chance: random.Random, logs: int) -> None:
    """Also when lines are in several logs: replicas, their previous containers, what was saved twice."""
    lines = [*FIRST, *SECOND, *chance.choices(FIRST + SECOND, k=5)]
    chance.shuffle(lines)
    found = answer(*(lines[place::logs] for place in range(logs)))
    whole = answer(FIRST, SECOND)
    assert (found.records, found.summary) == (whole.records, whole.summary)


@pytest.mark.parametrize(
    ("wanted", "events"),
    [
        (HistoryFilter(namespace="bob", gang=("job", "eval")), ["Placed"]),
        (HistoryFilter(gang=("jobs.batch", "late")), ["Waiting"]),
        (HistoryFilter(gang=("placement", "job-late-0a1b2c3d")), ["Waiting"]),
        (HistoryFilter(gang=("jobset", "late")), []),
        (HistoryFilter(since=NIGHT + 80 * 60), ["Finished", "Waiting", "Unplaced"]),
        (HistoryFilter(since=NIGHT + 61 * 60, namespace="alice"), ["PolicyTaken", "Finished", "Waiting"]),
    ],
)
def test_records_are_chosen_by_time_namespace_and_name(wanted: HistoryFilter, events: list[str]) -> None:
    """Those about the service belong to every namespace, but not to one gang."""
    assert [one.event for one in answer(FIRST, SECOND, wanted=wanted).records] == events


def test_a_gang_without_records_is_told_with_the_name_that_was_meant() -> None:
    found = answer(FIRST, wanted=HistoryFilter(namespace="alice", gang=("job", "trian")))
    assert found.remarks == ('no records of "job/trian" in namespace alice; did you mean "train"?',)


def test_pieces_of_one_log_begin_with_the_first_and_logs_of_replicas_with_the_last() -> None:
    """Nobody knows what a replica decided before its log begins; a file that follows another hides nothing."""
    assert answer(FIRST, SECOND).complete_since == "2026-11-22T23:00:00Z"
    assert answer(FIRST, SECOND, one_log=True).complete_since == "2026-11-22T22:00:00Z"
    late = HistoryFilter(since=NIGHT + 90 * 60)
    assert answer(FIRST, SECOND, wanted=late).complete_since is None


def test_a_gang_that_was_submitted_again_under_its_name_is_another_one() -> None:
    again = line(5, "Finished", "alice/train", placement="job-train-ffffffff")
    waits = line(4, "Waiting", "alice/train", reason="Fragmented")
    assert [one.workload for one in answer([waits, again]).summary.waiting] == ["job/train"]
    assert answer([waits, line(6, "Deleted", "alice/train")]).summary.waiting == ()


def test_memory_is_bounded_and_what_is_left_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest records are kept."""
    monkeypatch.setattr(parts_module, "MOST_RECORDS", 3)
    found = answer(FIRST)
    assert [one.event for one in found.records] == ["Incomplete", "Repaired", "Requeued"]
    assert found.complete_since == "2026-11-22T22:40:00Z"
    assert found.remarks == ("topogate-0: only its last 3 records are shown; a shorter --since has them all",)


def test_what_cannot_be_read_is_counted_and_told() -> None:
    torn = FIRST[1][:-30] + b"\n"
    found = answer([torn, b"Traceback\n", *FIRST])
    assert (found.sources[0].lines, found.sources[0].records, found.sources[0].unreadable) == (11, 9, 1)
    assert found.remarks == ("topogate-0: 1 record could not be read",)
    assert answer([b"12:00:01 I topogate.runtime: serving\n"]).remarks == (
        "topogate-0: no records in it: not the log of `topogate serve`, or one with --log-format text",
    )


def test_a_replica_that_never_led_has_no_records_and_that_is_no_problem() -> None:
    waits = json.dumps({"time": "2026-11-22T22:00:00Z", "logger": "topogate.runtime", "message": "serving"})
    assert answer(FIRST, [waits.encode()]).remarks == ()


def test_the_json_is_as_its_schema_says() -> None:
    schema = json.loads((ROOT / "schemas" / "history.schema.json").read_text())
    for found in (answer(FIRST, SECOND, wanted=HistoryFilter(NIGHT)), answer([])):
        jsonschema.validate(json.loads(found.model_dump_json(by_alias=True)), schema)


def test_a_long_line_is_read_in_pieces_and_only_its_start_is_looked_at() -> None:
    stream = io.BytesIO(b"x" * (5 * MAX_LINE) + b"\n" + FIRST[0])
    found = read_part("file", lines_of(stream))
    assert (found.lines, found.unreadable, len(found.records)) == (2, 1, 1)


def test_an_event_of_a_newer_service_is_shown() -> None:
    assert [one.event for one in answer([line(1, "Teleported", "alice/train")]).records] == ["Teleported"]


def test_every_event_of_today_has_a_row() -> None:
    events = [*ON_GANGS, *ON_SERVICE]
    found = answer([line(place, event, "alice/train") for place, event in enumerate(events)])
    assert [row[2] for row in history_text(found, namespaces=False)[1].rows] == events


def test_no_logs_are_no_records() -> None:
    assert answer_of([LogPart("empty")], HistoryFilter(), now=NOW, one_log=True).records == ()
