"""`mode` and `namespaces.modes`: which one counts for a namespace, and how it is told."""

from __future__ import annotations

import pytest

from engine.policy.model import PolicyError, parse_policy
from engine.policy.namespaces import ModeInForce, mode_of, modes_text, policy_warnings

MODES = """
mode: observe
namespaces:
  modes:
  - {namespaces: [research-a], mode: off}
  - {namespaces: [research-*, ml], mode: enforce}
  - {namespaces: [research-b], mode: off}
"""


@pytest.mark.parametrize(
    ("namespace", "mode", "path"),
    [
        ("research-a", "off", "namespaces.modes[0]"),
        ("research-b", "enforce", "namespaces.modes[1]"),
        ("ml", "enforce", "namespaces.modes[1]"),
        ("web", "observe", "mode"),
    ],
)
def test_the_first_entry_counts_and_without_one_the_policys_mode(namespace: str, mode: str, path: str) -> None:
    """A later entry for the same namespace has no effect."""
    found = mode_of(namespace, parse_policy(MODES))
    assert (found.mode, found.path) == (mode, path)
    assert (found.manages, found.is_off) == (mode == "enforce", mode == "off")


def test_hold_manages_and_places_nothing() -> None:
    """Its gangs are held as under enforce."""
    assert (ModeInForce("hold").manages, ModeInForce("hold").holds, ModeInForce("enforce").holds) == (True, True, False)


def test_the_text_names_the_entry() -> None:
    """Whoever reads it knows where to change it."""
    assert ModeInForce("off").text == "the policy's mode is off"
    found = mode_of("research-a", parse_policy(MODES))
    assert found.text == "the policy's mode is off in this namespace (namespaces.modes[0])"


def test_all_modes_in_one_line() -> None:
    """Of many entries and names the first are shown."""
    assert modes_text(parse_policy("{}")) == "enforce"
    shown = "observe (off in research-a; enforce in research-*, ml; off in research-b)"
    assert modes_text(parse_policy(MODES)) == shown
    many = ", ".join(f"{{namespaces: [{', '.join(f'n{n}-{m}' for m in range(9))}], mode: off}}" for n in range(9))
    text = modes_text(parse_policy(f"namespaces: {{modes: [{many}]}}"))
    assert text.startswith("enforce (off in n0-0, n0-1, n0-2, n0-3, n0-4, 4 more; off in n1-0")
    assert text.endswith("; 4 more)")


def test_warnings_about_entries_that_surprise() -> None:
    """An entry that never counts, and namespaces that stay managed when everything seems to be switched off."""
    assert [*policy_warnings(parse_policy(MODES))] == [
        "namespaces.modes[2] has no effect: its namespaces match namespaces.modes[1] first",
        "mode: observe does not apply to the namespaces of namespaces.modes[1], which stay managed",
    ]
    assert [*policy_warnings(parse_policy("namespaces: {modes: [{namespaces: [a], mode: off}]}"))] == []


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        (
            'exempt: ["*"], modes: [{namespaces: [a], mode: off}]',
            ['namespaces.exempt: "*" exempts all namespaces: nothing is managed'],
        ),
        (
            "exempt: [infra-*], modes: [{namespaces: [infra-a, kube-system], mode: off}]",
            ["namespaces.modes[0] has no effect: namespaces.exempt has these namespaces"],
        ),
        ("exempt: [infra-*], modes: [{namespaces: [infra-a, ml], mode: off}]", []),
    ],
)
def test_exemptions_that_surprise_are_told(text: str, warnings: list[str]) -> None:
    """One of every namespace switches all off without a word, and an entry for exempt ones alone does nothing."""
    assert [*policy_warnings(parse_policy(f"namespaces: {{{text}}}"))] == warnings


def test_entries_are_bounded() -> None:
    """They become one condition of webhook entries."""
    entries = ", ".join(f"{{namespaces: [n{number}], mode: off}}" for number in range(33))
    with pytest.raises(PolicyError) as refused:
        parse_policy(f"namespaces: {{modes: [{entries}]}}")
    assert [error.field for error in refused.value.errors] == ["namespaces.modes"]


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("mode: act", True),
        ("mode: act, protect: {namespaces: [prod-*]}", True),
        ("mode: act, protect: {runningFor: 30m}", False),
        ("mode: propose", False),
    ],
)
def test_restarts_of_gangs_that_have_run_for_long_are_warned_of(text: str, warned: bool) -> None:
    """What they have done is lost."""
    told = "defragment.mode: act restarts gangs however long they have run; set defragment.protect.runningFor"
    assert [*policy_warnings(parse_policy(f"defragment: {{{text}}}"))] == [told] * warned


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        ("mode: lower-priority, victims: all, protect: {runningFor: 1h, namespaces: [prod-*]}", []),
        (
            "protect: {annotated: true}",
            ["preemption.protect has no effect with mode: never, but for topogate simulate --preempt"],
        ),
        (
            "victims: all, after: 1m",
            [
                "preemption.victims and preemption.after have no effect with mode: never, but for topogate simulate "
                "--preempt"
            ],
        ),
        (
            "mode: lower-priority, protect: {namespaces: [prod, kube-system, infra-b*]}",
            [
                f"preemption.protect.namespaces[{index}] has no effect: namespaces.exempt has these namespaces, where "
                "nothing is preempted"
                for index in (1, 2)
            ],
        ),
    ],
)
def test_settings_of_a_preemption_without_an_effect_are_told(text: str, warnings: list[str]) -> None:
    """Whoever writes the policy sees them, and `topogate policy check` prints them."""
    found = policy_warnings(parse_policy(f"namespaces: {{exempt: [infra-*]}}\npreemption: {{{text}}}"))
    assert [*found] == warnings
