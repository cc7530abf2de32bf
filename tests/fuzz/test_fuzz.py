"""A short run of `make fuzz`; and that it notices what it is there to notice."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.gang import UID
from engine.api import names
from engine.decoding import objects, placements, workloads
from engine.decoding.wire import ProjectionError
from tests.fuzz import service
from tests.fuzz.hunt import Finding, Hunter, Report
from tests.fuzz.service import LoggedFaults, quiet_logs
from tests.fuzz.shrinking import shrunk
from tests.fuzz.specimens import specimens
from tests.fuzz.targets import TARGETS
from tests.support.eventually import PATIENCE, eventually
from tests.support.leader import Leader
from tests.support.pages import ROOT
from webhook.admission.review import Response, Review, forbidden
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

COUNT = 1_500
FEW = 12  # examples from each schema: drawing them takes longer than checking them


@pytest.fixture
def faults() -> Iterator[LoggedFaults]:
    with quiet_logs() as found:
        yield found


def findings(hunter: Hunter, count: int, *, first: int = 0) -> list[Finding]:
    found: list[Finding] = []
    hunter.hunt(count, first=first, tell=lambda report: found.extend(report.findings))
    return found


def test_nothing_is_found_in_a_short_run(faults: LoggedFaults) -> None:
    """Every target takes part; the same inputs in every run."""
    reports: list[Report] = []
    Hunter(17, faults, drawn_each=FEW).hunt(COUNT, tell=reports.append)
    assert [(one.detail, one.body) for report in reports for one in report.findings] == []
    assert {name for report in reports for name in report.inputs} == set(TARGETS)


def test_a_run_that_is_ended_leaves_no_process_running() -> None:
    """Those side by side end with the one that started them."""
    command = [sys.executable, "-m", "tests.fuzz", "--count=100000000", "--processes=2", "--seed=1"]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        there = eventually(lambda: len(found := children(run.pid)) >= 2 and found, message="two processes work")
    finally:
        run.terminate()
    assert run.wait(PATIENCE) == 128 + signal.SIGTERM
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in there), message="they have ended")


def children(pid: int) -> list[int]:
    """The processes that one has started."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_specimens_meet_each_other() -> None:
    """Devices and HyperNodes are of nodes that are there, and Placements of the gang that is there."""
    known = specimens(1, drawn_each=2)
    hosts = {one["metadata"]["name"] for one in known.nodes}
    assert {one["metadata"]["name"] for one in known.devices} <= hosts
    (hyper_node,) = [one for one in known.others if one["kind"] == "HyperNode"]
    exact, pattern = (one["selector"] for one in hyper_node["spec"]["members"])
    assert exact["exactMatch"]["name"] in hosts
    assert sum(re.fullmatch(pattern["regexMatch"]["pattern"], host) is not None for host in hosts) > 1
    leader = Leader(nodes=[objects.node(json.dumps(one).encode()) for one in known.nodes])
    (job,) = [one for one in known.workloads if one["metadata"].get("uid") == UID]
    leader.stores.workloads.replace([workloads.job(json.dumps(job).encode())])
    for one in known.placements:
        with contextlib.suppress(ProjectionError):
            leader.stores.placements.replace([placements.placement(json.dumps(one).encode())])
    leader.view.refresh()
    gang = leader.view.gangs.get(UID)
    assert gang is not None
    assert gang.placement is not None


def broken(change: Callable[[Review, Response], Response]) -> Callable[..., Response]:
    """The mutating webhook with a fault."""
    return lambda review, view, deadline: change(review, mutate(review, view, deadline))


def raising(review: Review, response: Response) -> Response:
    if any(one["path"].endswith("schedulingGates") for one in response.patch):
        raise KeyError("oops")
    return response


def slow(review: Review, response: Response) -> Response:
    end = time.thread_time() + 1.5 * service.SLOW
    while response.patch and time.thread_time() < end:
        pass
    return response


def not_applying(review: Review, response: Response) -> Response:
    return replace(response, patch=(*response.patch, {"op": "remove", "path": "/a/b"})) if response.patch else response


FAULTS = {
    "KeyError in": raising,
    "slow mutate": slow,
    "a patch that does not apply": not_applying,
}


@pytest.mark.parametrize("signature", list(FAULTS))
def test_a_fault_of_mutate_is_found(signature: str, faults: LoggedFaults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "mutate_and_check", broken(FAULTS[signature]))
    hunter = Hunter(1, faults, only=["reviews"], drawn_each=1)
    found = (hunter.violation(*hunter.input(number)) for number in range(60))
    first = next(one for one in found if one is not None)
    assert first.signature.startswith(signature)


def test_a_finding_is_told_once_and_made_small(faults: LoggedFaults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "mutate_and_check", broken(not_applying))
    hunter = Hunter(1, faults, only=["reviews"], drawn_each=1, patience=0.5)
    (one,) = findings(hunter, 40)
    assert len(one.body) < len(hunter.input(one.number)[1])
    found = hunter.violation(one.target, one.body)
    assert found is not None and found.signature == one.signature


def test_what_validate_refuses_of_mutates_own_is_found(faults: LoggedFaults, monkeypatch: pytest.MonkeyPatch) -> None:
    def strict(review: Review, view: Any, deadline: float) -> Response:
        held = review.object is not None and names.HELD_BY.encode() in bytes(review.object)
        return forbidden("no", "PolicyOff") if held else validate(review, view, deadline)

    monkeypatch.setattr(service, "validate", strict)
    hunter = Hunter(1, faults, only=["reviews"], drawn_each=1, patience=0.2)
    assert "validate refuses what mutate wrote" in {one.signature for one in findings(hunter, 60)}


def test_a_second_pass_that_changes_something_is_found(faults: LoggedFaults, monkeypatch: pytest.MonkeyPatch) -> None:
    def restless(review: Review, view: Any, deadline: float) -> Response:
        response = mutate(review, view, deadline)
        return replace(response, patch=(*response.patch, {"op": "add", "path": "/x", "value": 1}))

    monkeypatch.setattr(service, "mutate_and_check", restless)
    hunter = Hunter(1, faults, only=["reviews"], drawn_each=1, patience=0.2)
    assert "the second pass gives a patch" in {one.signature for one in findings(hunter, 60)}


def test_an_input_follows_from_the_seed_and_its_number(faults: LoggedFaults) -> None:
    """So several processes draw what one would, and a finding can be drawn again."""
    one, other = (Hunter(5, faults, drawn_each=2) for _ in range(2))
    drawn = [one.input(number) for number in range(40)]
    assert drawn == [other.input(number) for number in reversed(range(40))][::-1]
    assert one.input(3) != Hunter(6, faults, drawn_each=2).input(3)


def test_a_failing_input_is_made_as_small_as_it_can_be() -> None:
    """JSON loses keys, items and parts of texts; what is no JSON loses bytes; lines go first."""
    sent = json.dumps({"a": [{"b": "xx7yy", "c": 1}, {}], "d": {"e": None}}).encode()
    assert json.loads(shrunk(sent, lambda body: b"7" in body)) == {"a": [{"b": "7"}]}
    assert shrunk(b"plain\n" + sent + b"\n{bad 7", lambda body: b"{" in body and b"bad" in body) == b"{bad"
