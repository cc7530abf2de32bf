"""Every line of the threat model names what holds it, and that exists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/concepts/threat-model.md").read_text(encoding="utf-8")
ROWS = [
    (cells[0].strip(), cells[-1].strip())
    for line in PAGE.splitlines()
    if line.startswith("| ") and len(cells := line.strip("|").split("|")) == 3 and cells[0].strip() != "attack"
]
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
}


def is_field(path: str) -> bool:
    """Whether the policy has this field, by its schema."""
    schema: dict[str, Any] = json.loads((ROOT / "schemas/policy.schema.json").read_text(encoding="utf-8"))
    node: dict[str, Any] = schema
    for step in path.split("."):
        name = step.removesuffix("[]")
        if name not in node.get("properties", {}):
            return False
        node = node["properties"][name]
        node = node["items"] if step.endswith("[]") else node
        while "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    return True


def exists(what: str) -> bool:
    """Whether there is such a test, file, target of make, option, or field of the policy."""
    if what.startswith("test_"):
        return what in TESTS
    if what.startswith("--"):
        return f"  {what} " in (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    if what.startswith("make "):
        return f"\n{what.removeprefix('make ')}:" in (ROOT / "Makefile").read_text(encoding="utf-8")
    return (ROOT / what).is_file() if "/" in what else is_field(what)


@pytest.mark.parametrize(("attack", "by"), ROWS, ids=[attack for attack, _ in ROWS])
def test_every_attack_names_what_holds_it(attack: str, by: str) -> None:
    """A test, a setting of the policy, a target of make or a manifest; none of them is gone."""
    named = re.findall(r"`([^`]+)`", by)
    assert named, f"{attack}: name a test or a setting"
    assert [one for one in named if not exists(one)] == []


def test_what_remains_is_told_of_every_attacker() -> None:
    """No section promises everything."""
    sections = PAGE.split("\n## ")[2:]
    assert len(sections) == 5 and len(ROWS) > 20
    assert [one.splitlines()[0] for one in sections if "**What remains.**" not in one] == []


def test_what_does_not_exist_is_noticed() -> None:
    """Of each sort one that is not there."""
    for what in (
        "test_of_nothing_at_all",
        "make nothing",
        "--client",
        "manifests/base/none.yaml",
        "messages.hosts",
        "kinds[].hosts",
    ):
        assert not exists(what)
