"""What became of a policy: an Event on its ConfigMap, and a line of /readyz."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from engine.api import names
from engine.api.objects import ConfigMap
from engine.cluster.events import Recorder, Regarding
from engine.history.record import LOGGER
from engine.policy.source import PolicySource
from webhook.server.ops import policy_check
from webhook.service.policy_events import PolicyEvents

GOOD, OTHER = "mode: enforce\n", "mode: observe\n"
BAD = "mode: enforcing\n"


class Desk:
    """The policy of one replica, and the Events that it records."""

    def __init__(self, text: str | None = GOOD) -> None:
        self.events: list[dict[str, Any]] = []
        self.source: ConfigMap | None = None
        self.policy = PolicySource(lambda _policy: None)
        self.teller = PolicyEvents(cast(Recorder, self), self.policy, lambda: self.source)
        self.source = self._map(text) if text is not None else None
        self.policy.start(self.source, None)

    def record(self, regarding: Regarding, **event: Any) -> None:
        self.events.append({"regarding": regarding, **event})

    def applied(self, text: str | None) -> None:
        self.source = self._map(text) if text is not None else None
        self.policy.changed(names.POLICY_NAME, self.source)

    def told(self, *, leads: bool = True) -> list[tuple[str, bool]]:
        """Reasons of the Events of one look, and whether they are warnings."""
        self.events.clear()
        self.teller.observe(leads=leads)
        return [(event["reason"], event["warning"]) for event in self.events]

    def _map(self, text: str) -> ConfigMap:
        return ConfigMap("topogate-system", names.POLICY_NAME, "uid", "1", {names.POLICY_KEY: text})


def test_a_refused_policy_is_told_on_its_configmap_and_what_is_in_force_too() -> None:
    """Whoever wrote it looks there first."""
    desk = Desk()
    in_force = desk.policy.policy.hash
    assert desk.told() == []
    desk.applied(BAD)
    assert desk.told() == [("PolicyInvalid", True)]
    (event,) = desk.events
    assert event["regarding"] == Regarding("v1", "ConfigMap", "topogate-system", names.POLICY_NAME, "uid")
    assert event["note"].startswith(f"policy {in_force} stays in force; refused: mode: ")
    assert desk.told() == []


def test_the_log_has_a_record_of_each_policy_also_where_no_object_can_have_an_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With the hash of the one that is in force then."""
    caplog.set_level(logging.INFO, LOGGER)
    desk = Desk()
    before = desk.policy.policy.hash
    desk.told()
    desk.applied(BAD)
    desk.told()
    desk.applied(OTHER)
    desk.told()
    after = desk.policy.policy.hash
    desk.applied(None)
    desk.told()
    found = [vars(one)["decision"] for one in caplog.records if one.name == LOGGER]
    assert [(one["event"], one["reason"], one["policy"]) for one in found[:2]] == [
        ("PolicyRefused", "PolicyInvalid", before),
        ("PolicyTaken", "", after),
    ]
    assert found[0]["message"].startswith(f"policy {before} stays in force; refused: mode: ")
    assert [one["event"] for one in found[2:]] == ["PolicyTaken"]
    assert desk.events == []


def test_a_policy_that_is_taken_is_told_with_its_hash_and_mode() -> None:
    """Also when the one before was refused."""
    desk = Desk()
    desk.told()
    for text in (OTHER, BAD, GOOD):
        desk.applied(text)
        reasons = desk.told()
    assert reasons == [("PolicyTaken", False)]
    assert desk.events[0]["note"] == f"policy {desk.policy.policy.hash} is in force, mode enforce"


def test_one_replica_tells() -> None:
    """The leader; the next one repeats what is still wrong, and not what was taken long ago."""
    desk = Desk()
    assert desk.told(leads=False) == []
    desk.applied(OTHER)
    assert desk.told(leads=False) == []
    assert desk.told(leads=True) == []
    desk.applied(BAD)
    assert desk.told(leads=False) == []
    assert desk.told(leads=True) == [("PolicyInvalid", True)]


def test_a_deleted_policy_has_nothing_to_tell_it_on() -> None:
    """The defaults are in force."""
    desk = Desk(OTHER)
    desk.told()
    desk.applied(None)
    assert desk.told() == []


def test_readiness_shows_the_policy_in_force_and_what_is_wrong_with_another() -> None:
    """A plus would say that all is well."""
    desk = Desk()
    in_force = desk.policy.policy.hash
    assert policy_check(desk.policy).line == f"[+] policy: {in_force}, mode enforce\n"
    desk.applied(BAD)
    check = policy_check(desk.policy)
    assert check.ok
    assert check.line.startswith(f"[!] policy: {in_force} stays in force; refused: mode: ")
