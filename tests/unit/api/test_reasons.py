"""Reason codes: each is described and emitted, and what follows from one is asked of the registry alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import yaml

from engine.api.event_reasons import ON_PHASES, ON_PODS, ON_POLICY, ON_WORKLOADS, Happening, is_warning
from engine.api.reasons import REASONS, Code, Phase, Until, asks_nothing, known_code, reason_of

ROOT = Path(__file__).parents[3]
REGISTRIES = {"engine/api/reasons.py", "engine/api/event_reasons.py"}
SOURCES = [
    path
    for room in ("engine", "webhook")
    for path in sorted((ROOT / room).rglob("*.py"))
    if path.relative_to(ROOT).as_posix() not in REGISTRIES
]


def emitted(tree: ast.Module) -> set[str]:
    """Every text of a module but those that a value is only matched with."""
    matched = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.MatchValue)}
    return {
        one.value
        for one in ast.walk(tree)
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in matched
    }


def compared(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every code that something is compared with, or that a set, or the keys of a mapping, name."""
    for node in ast.walk(tree):
        asked: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Set):
            asked = [node]
        elif isinstance(node, ast.Dict):
            asked = [key for key in node.keys if key is not None]
        for one in asked:
            direct = [one, *ast.iter_child_nodes(one)] if isinstance(one, ast.Set | ast.Tuple | ast.List) else [one]
            for leaf in direct:
                if isinstance(leaf, ast.Constant) and leaf.value in REASONS:
                    yield leaf.lineno, str(leaf.value)


def test_every_code_is_described() -> None:
    """What mypy lets through as a reason is a key of the registry, and the other way round."""
    assert set(get_args(Code)) == set(REASONS)
    assert {*ON_PHASES, *ON_WORKLOADS, *ON_PODS, *ON_POLICY} == {*get_args(Phase), *get_args(Happening)}


def test_every_code_is_emitted() -> None:
    """A code that nothing emits is a promise that nobody keeps."""
    found = {text for path in SOURCES for text in emitted(ast.parse(path.read_text(encoding="utf-8")))}
    entries = yaml.safe_load((ROOT / "engine/kinds/kinds.yaml").read_text(encoding="utf-8"))["kinds"]
    found |= {aside["reason"] for entry in entries for aside in entry.get("standAside", ())}
    assert {*REASONS, *get_args(Happening)} <= found


def test_no_code_is_compared_with() -> None:
    """What follows from a reason is a property of it: a list of codes elsewhere misses the next one."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {code}"
        for path in SOURCES
        for line, code in compared(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, "ask REASONS[code] for a property instead"


@pytest.mark.parametrize(
    "code",
    [
        'known == "HoldExpired"',
        'reason in ("HostTooSmall", "UnknownResource")',
        'frozenset({"QuotaExceeded"})',
        '{"WaitingForMembers": 5.0}',
        '"RoomKept" != told',
    ],
)
def test_a_comparison_is_found(code: str) -> None:
    """The check above sees the ways in which codes were compared with."""
    assert list(compared(ast.parse(code)))


def test_what_ends_a_wait() -> None:
    """A wait says what ends it, and nothing else does."""
    assert all((reason.until is not None) == (reason.kind == "not-now") for reason in REASONS.values())
    assert {reason.until for reason in REASONS.values()} - {None} == set(get_args(Until))


def such(name: str) -> set[str]:
    return {code for code, reason in REASONS.items() if getattr(reason, name)}


def test_who_holds_up_others() -> None:
    """Gangs that wait for their own people, for pods or for their user hold up nobody."""
    waits = such("waits")
    assert waits - such("queued") == {
        "QuotaExceeded",
        "PriorityClassMissing",
        "WaitingGangsLimit",
        "ReservedHostsLimit",
        "SpreadDomains",
        "PodConstraints",
        "ScheduleTimeout",
        "StartLimitExceeded",
        "Suspended",
        "HoldExpired",
        "Moving",
        "PodsNotReady",
        "WaitingForMembers",
        "PolicyHold",
    }
    own = {"QuotaExceeded", "PriorityClassMissing", "WaitingGangsLimit", "ReservedHostsLimit", "SpreadDomains"}
    own |= {"PodConstraints", "PolicyHold"}
    assert such("unschedulable_alone") == own
    assert waits - such("shared") == own | {"SearchLimit", "Preempting", "Preempted"}
    assert such("of_order") == {"QueuedBehind", "RoomKept"}
    assert set(REASONS) - such("patient") == {"Suspended", "PolicyHold"}
    assert such("by_user") == {"Suspended"}
    assert such("gives_up") == {"ScheduleTimeout", "StartLimitExceeded"}


def test_where_all_is_well_nothing_follows() -> None:
    assert reason_of("") is None
    assert reason_of(known_code("OfAnotherVersion")) is None
    assert not asks_nothing(None)


def test_a_code_is_a_warning() -> None:
    """The type of an Event follows from its reason: codes are warnings, good news is none."""
    assert all(is_warning(code) for code in get_args(Code))
    assert not any(is_warning(phase) for phase in get_args(Phase))
    nodes = {f"ProvisioningRequest{what}" for what in ("Created", "Accepted", "Provisioned")}
    good = {"Grown", "Repaired", "Moved", "NotMoved", "PolicyTaken"}
    assert {one for one in get_args(Happening) if not is_warning(one)} == good | nodes | {"RestartsProposed"}
