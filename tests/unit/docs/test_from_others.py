"""The pages for people who come from another scheduler tell what the code reads of it, and nothing else."""

from __future__ import annotations

import re

import pytest

from engine.api import names
from tests.support.pages import pages

FOLDER = "docs/tasks/researcher"
# Page -> what its tool's keys begin with.
PREFIXES = {
    "kueue": ("kueue.x-k8s.io/",),
    "kai": ("kai.scheduler/", "gpu-fraction", "gpu-memory", "pod-group-name"),
    "volcano": ("volcano.sh/", "scheduling.volcano.sh/", "scheduling.k8s.io/", "sla-waiting-time"),
    "koordinator": ("gang.scheduling.koordinator.sh/", "scheduling.koordinator.sh/"),
}
READ = [
    *((tool, key, about) for tool in ("kueue", "kai") for key, about in names.ALIASES[tool].items()),
    *(("kai", key, about) for key, (_, about) in names.ALIASES_BESIDE.items()),
    ("koordinator", names.KOORDINATOR_GANG_NAME, names.POD_GROUP),
    ("koordinator", names.KOORDINATOR_GANG_MIN, names.MIN_AVAILABLE),
    ("koordinator", names.KOORDINATOR_GANG_WAIT, names.SCHEDULE_TIMEOUT),
]
UNREAD = [
    (tool, key)
    for tool, prefixes in PREFIXES.items()
    for key in sorted(names.UNREAD_KEYS)
    if key.startswith(prefixes) and key not in ("kai.scheduler/segment-size", *names.DEVICE_HINTS)
]


def rows(tool: str, heading: str) -> list[list[str]]:
    """The rows of the tables below a heading, as cells."""
    text = pages()[f"{FOLDER}/from-{tool}.md"].text
    (part,) = [part for part in text.split("\n## ") if part.startswith(heading)]
    return [re.split(r" \| ", line.strip("| ")) for line in part.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize(("tool", "key", "about"), READ)
def test_a_key_that_is_read_is_told_with_its_meaning(tool: str, key: str, about: str) -> None:
    told = [meaning for key_told, meaning in rows(tool, "What is read as it is") if f"`{key}`" in key_told]
    assert len(told) == 1
    assert f"`{about}`" in told[0]


@pytest.mark.parametrize(("tool", "key"), UNREAD)
def test_a_key_that_is_not_read_is_told_with_what_to_do(tool: str, key: str) -> None:
    """Elsewhere than among those that are read."""
    text = pages()[f"{FOLDER}/from-{tool}.md"].text
    assert re.search(rf"`{re.escape(key)}(?:: [^`]*)?`", text), key
    if tool != "volcano":
        assert not any(f"`{key}`" in told for told, _ in rows(tool, "What is read as it is"))
