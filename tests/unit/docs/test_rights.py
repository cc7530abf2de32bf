"""Every right of the service has a reason, in the table that admins read."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.reference.rights_page import REASONS, WORKLOADS, reasons, rights_page, rules

ROOT = Path(__file__).parents[3]


def test_every_rule_has_a_line_of_its_own() -> None:
    """As many lines as there are rules, in their order."""
    found = rules(ROOT)
    rows = [line for line in rights_page(ROOT).splitlines() if line.startswith("| topogate")]
    assert len(rows) == len(found) > len(REASONS)
    for (role, rule), row in zip(found, rows, strict=True):
        assert row.startswith(f"| {role} |")
        assert all(f"`{one}`" in row for one in [*rule["resources"], *rule.get("resourceNames", ())])


@pytest.mark.parametrize(
    "change",
    [{"verbs": ["get", "list", "watch", "update"]}, {"resources": ["secrets"]}, {"apiGroups": ["example.com"]}],
    ids=["another verb", "another resource", "another group"],
)
def test_a_rule_without_a_reason_is_refused(change: dict[str, list[str]]) -> None:
    """Whoever grants more says why."""
    found = rules(ROOT)
    at = next(place for place, (role, _) in enumerate(found) if role == "topogate")
    found[at] = ("topogate", {**found[at][1], **change})
    with pytest.raises(LookupError, match="has no reason for the rule"):
        reasons(found)


def test_a_reason_without_a_rule_is_refused() -> None:
    """What is granted no more is not explained any more."""
    found = rules(ROOT)
    with pytest.raises(LookupError, match="rules that are gone"):
        reasons([one for one in found if "daemonsets" not in one[1]["resources"]])


def test_nothing_is_granted_by_a_wildcard() -> None:
    """Every group, resource and verb is named; so is what may not be in any role."""
    for role, rule in rules(ROOT):
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        assert not {"impersonate", "bind", "escalate", "deletecollection"} & set(rule["verbs"])
        assert set(rule["verbs"]) <= {"get", "list", "watch", "patch"} or role != WORKLOADS
