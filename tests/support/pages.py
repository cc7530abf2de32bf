"""The pages for people, cut into what a test can hold against the code: prose, code blocks, headings, links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

_FENCE = re.compile(r"(?:^ *<!-- ([^\n]*) -->\n)?^( *)```([a-z]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SPAN = re.compile(r"`([^`\n]+)`")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the language after the fence, its text without the indent of the fence, and its mark.

    The mark is the comment on the line above the fence: how a test runs the block (docs/contributor/testing.md).
    """

    language: str
    text: str
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file; `name` is its path in the repository."""

    name: str
    text: str

    @property
    def prose(self) -> str:
        """The text outside fenced blocks."""
        return _FENCE.sub("", self.text)

    @property
    def blocks(self) -> list[Block]:
        """The fenced blocks in order."""
        return [
            Block(language, "\n".join(line.removeprefix(indent) for line in text.splitlines()), mark)
            for mark, indent, language, text in _FENCE.findall(self.text)
        ]

    @property
    def files(self) -> dict[str, str]:
        """The files that the page tells its reader to write: the blocks with the mark `file: NAME`, by name."""
        marks = [(block.mark.partition(": "), block.text) for block in self.blocks]
        return {name: f"{text}\n" for (kind, _, name), text in marks if kind == "file"}

    @property
    def spans(self) -> list[str]:
        """What stands in single backticks in the prose."""
        return _SPAN.findall(self.prose)

    @property
    def links(self) -> list[str]:
        """Targets of links and images."""
        return _LINK.findall(self.prose)

    @property
    def anchors(self) -> set[str]:
        """The anchors of its headings, as code hosts make them."""
        return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in _HEADING.findall(self.prose)}


@cache
def pages() -> dict[str, Page]:
    """Every page of the repository by its path."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    names = sorted(str(file.relative_to(ROOT)) for file in files)
    return {name: Page(name, (ROOT / name).read_text(encoding="utf-8")) for name in names}
