"""The commands that the runbooks show, one by one."""

from __future__ import annotations

import re
import shlex
from typing import Final

from tests.support.pages import Page, pages

FOLDER: Final = "docs/tasks/admin/runbooks/"


def runbooks() -> dict[str, Page]:
    """Return the page of every alert by the name of its file."""
    found = {name.removeprefix(FOLDER).removesuffix(".md"): page for name, page in pages().items()}
    return {name: page for name, page in found.items() if page.name.startswith(FOLDER) and name != "README"}


def command_lines(page: Page) -> list[str]:
    """Return the lines of a page's `sh` blocks; README's among them."""
    return [line for block in page.blocks if block.language == "sh" for line in block.text.splitlines()]


def kubectl_lines(page: Page) -> list[list[str]]:
    """Return the words of every kubectl command of a page, in blocks and in the text, up to a pipe or redirection."""
    lines = [*command_lines(page), *page.spans]
    words = [shlex.split(re.split(r" (?:\||>|&) ?", line)[0]) for line in lines if "kubectl " in line]
    return [one[one.index("kubectl") + 1 :] for one in words if "kubectl" in one]
