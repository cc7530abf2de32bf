"""What pages show of commands: the commands of a block, and whether their output is the one that is shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tests.support.pages import Block

# What differs from run to run. Both sides are changed by the same rules, in this order; nothing else may differ.
RULES: Final = (
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"), "TIME"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "HASH"),  # of a policy
    (re.compile(r"(?<=-)[0-9a-f]{8}\b"), "HASH"),  # of a Placement's name
    (re.compile(r"(?<=-)[bcdfghjklmnpqrstvwxz2456789]{5}\b"), "XXXXX"),  # of a pod's name
    (re.compile(r"\b\d+(?:d|h|m|s|ms)(?:\d+(?:h|m|s))*\b"), "AGE"),  # after the names: job-4376699d is none
    (re.compile(r"(?<=:)\d{4,5}\b"), "PORT"),
    (re.compile(r" {2,}"), "  "),  # columns are as wide as the widest value
)
ANY: Final = "..."


@dataclass(frozen=True, slots=True)
class Step:
    """A command line, and the output that is shown for it; empty: none is compared, but it must succeed."""

    command: str
    output: str


def steps_of(block: Block) -> list[Step]:
    """The steps of a block: the prompts of a `console` block with what follows each, or a whole `sh` block.

    Raises ValueError for output that no command precedes.
    """
    if block.language == "sh":
        return [Step(block.text, "")]
    before, *parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    if before.strip():
        raise ValueError(f"a console block begins with a command after `$ `, not with {before.splitlines()[0]!r}")
    steps = []
    for part in parts:
        lines = part.rstrip("\n").split("\n")
        length = next(number for number, line in enumerate(lines, 1) if not line.endswith("\\"))
        steps.append(Step("\n".join(lines[:length]), "\n".join(lines[length:]).strip("\n")))
    return steps


def same(shown: str, printed: str) -> bool:
    """True when a command printed what a page shows.

    `...` stands for any text of a line, and alone on a line for any lines. Empty lines do not count.
    """
    pattern = ""
    for line in normal(shown):
        if line == ANY:
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[^\n]*".join(map(re.escape, line.split(ANY))) + r"\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in normal(printed))) is not None


def normal(text: str) -> list[str]:
    """The lines of an output without what differs from run to run."""
    for pattern, word in RULES:
        text = pattern.sub(word, text)
    return [line.rstrip() for line in text.splitlines() if line.strip()]
