"""Which policy is in force: the service, the commands and `verify` decide it by one function."""

from __future__ import annotations

import pytest

from engine.api import names
from engine.api.objects import ConfigMap
from engine.policy.in_force import policy_in_force
from engine.policy.source import PolicySource
from webhook.snapshot.installation import ReadObject, installed_policy

GOOD, KEPT, BAD = "mode: observe\n", "mode: off\n", "mode: enforcing\n"
# ConfigMap (None: absent; "-": without its key), last good -> mode, origin, refused
CASES = {
    "good": (GOOD, KEPT, "observe", "config map", False),
    "good without a last good one": (GOOD, None, "observe", "config map", False),
    "refused with a last good one": (BAD, KEPT, "off", "last good", True),
    "refused without a last good one": (BAD, None, "enforce", "default", True),
    "refused after the policy was deleted": (BAD, "", "enforce", "default", True),
    "refused with a last good one that is refused": (BAD, BAD, "enforce", "default", True),
    "without its key": ("-", KEPT, "off", "last good", True),
    "empty": ("", KEPT, "off", "last good", True),
    "empty without a last good one": ("", None, "enforce", "default", True),
    "absent": (None, None, "enforce", "default", False),
    "absent with a last good one": (None, KEPT, "enforce", "default", False),
}


def data_of(text: str | None) -> dict[str, str] | None:
    return None if text is None else {} if text == "-" else {names.POLICY_KEY: text}


def config_map(name: str, text: str | None) -> ConfigMap | None:
    data = data_of(text)
    return None if data is None else ConfigMap("topogate-system", name, "u", "1", data)


def read_object(text: str | None) -> ReadObject:
    data = data_of(text)
    return ReadObject(absent=True) if data is None else ReadObject({"data": data})


@pytest.mark.parametrize("case", CASES)
def test_the_policy_in_force(case: str) -> None:
    text, last_good, mode, origin, refused = CASES[case]
    found = policy_in_force(data_of(text), last_good or "")
    assert (found.policy.mode, found.origin, bool(found.refused)) == (mode, origin, refused)


@pytest.mark.parametrize("case", CASES)
def test_a_starting_replica_and_verify_agree(case: str) -> None:
    """What a command says to be in force is what the service follows after a restart."""
    text, last_good, mode, _origin, refused = CASES[case]
    source = PolicySource(lambda _policy: None)
    source.start(config_map(names.POLICY_NAME, text), config_map(names.LAST_GOOD_POLICY_NAME, last_good))
    told = installed_policy(read_object(text), read_object(last_good))
    assert source.policy.mode == mode
    assert told.policy == source.policy
    assert bool(source.refused) == bool(told.refused) == refused


def test_a_policy_that_becomes_empty_is_refused() -> None:
    """An empty text is no wish for the defaults, also where they are in force."""
    source = PolicySource(lambda _policy: None)
    source.start(None, None)
    source.changed(names.POLICY_NAME, config_map(names.POLICY_NAME, ""))
    assert source.refused == ("policy.yaml: is empty; write {} for the defaults",)


@pytest.mark.parametrize("body", [{}, {"data": None}, {"data": []}, {"data": {names.POLICY_KEY: 1}}])
def test_a_config_map_that_holds_no_text_is_refused(body: dict[str, object]) -> None:
    told = installed_policy(ReadObject(body), ReadObject({"data": {names.POLICY_KEY: KEPT}}))
    assert (told.policy.mode, told.refused[0].message) == ("off", "is missing")
