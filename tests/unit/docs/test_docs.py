"""The pages for people lead somewhere: links, paths and commands that they show exist."""

from __future__ import annotations

import importlib.util
import re
import shlex
import xml.dom.minidom
from collections.abc import Iterator

import click
import pytest

from local.__main__ import main as local_command
from tests.support.pages import ROOT, Page, pages
from webhook.cli import main as topogate

PAGES = list(pages().values())
TOP = ("engine", "webhook", "certs", "local", "manifests", "tests", "schemas", "examples", "hack", "bench", "docs")
SOURCES = [
    path for top in ("engine", "webhook", "certs", "local", "hack", "bench") for path in (ROOT / top).rglob("*.py")
]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def command_lines(page: Page) -> Iterator[list[str]]:
    """The words of every command of a page: lines of `sh` blocks, prompts of `console` blocks, and spans."""
    for block in page.blocks:
        if block.language == "sh":
            lines = block.text.replace("\\\n", " ").splitlines()
        elif block.language == "console":
            lines = [line.removeprefix("$ ") for line in block.text.splitlines() if line.startswith("$ ")]
        else:
            continue
        for line in lines:
            for part in re.split(r"[|;]|&&|\$\(", line):
                yield words(part.removesuffix(')"'))
    for span in page.spans:
        yield words(span)


def words(text: str) -> list[str]:
    try:
        found = shlex.split(text, comments=True)
    except ValueError:
        return text.split()
    while found and re.fullmatch(r"[A-Z_]+=\S*", found[0]):
        found = found[1:]
    return found


def resolve(command: click.Command, arguments: list[str]) -> None:
    """Follow sub-commands by name and look every long option up; fails on what is not there."""
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        assert name in command.commands, f"there is no command {name}"
        command = command.commands[name]
    if command.context_settings.get("ignore_unknown_options"):
        return
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    for word in arguments:
        if word.startswith("--"):
            assert word.partition("=")[0] in known, f"{command.name} has no option {word}"


@each_page
def test_every_link_resolves(page: Page) -> None:
    """A link leads to a file of this repository and, with an anchor, to one of its headings."""
    for link in page.links:
        if link.startswith(("https://", "http://")):
            continue
        target, _, anchor = link.partition("#")
        path = (ROOT / page.name).parent / target if target else ROOT / page.name
        assert path.exists(), f"{page.name}: {link}"
        if anchor:
            name = str(path.resolve().relative_to(ROOT.resolve()))
            assert anchor in pages()[name].anchors, f"{page.name}: {link}"


@each_page
def test_every_path_exists(page: Page) -> None:
    """What looks like a path of this repository is one; a pattern matches something."""
    for span in page.spans:
        path = span.partition(":")[0].rstrip("/")
        if path.split("/")[0] in TOP and "/" in path and " " not in path:
            assert any(ROOT.glob(path)), f"{page.name}: {span}"


@each_page
def test_every_command_exists(page: Page) -> None:
    """Make targets, sub-commands with their options, modules and files that commands name are there."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in command_lines(page):
        match line:
            case ["make", *rest]:
                for word in rest:
                    assert word in targets or "=" in word, f"{page.name}: make {word}"
            case ["topogate" | ".venv/bin/topogate", *rest]:
                resolve(topogate, rest)
            case [("python" | ".venv/bin/python"), "-m", "local", *rest]:
                resolve(local_command, rest)
            case [("python" | ".venv/bin/python"), "-m", module, *_]:
                assert importlib.util.find_spec(module), f"{page.name}: python -m {module}"
        for word in line:
            if word.split("/")[0] in TOP and "/" in word and "*" not in word and word.count(" ") == 0:
                assert (ROOT / word.partition(":")[0]).exists(), f"{page.name}: {word}"


@each_page
def test_no_page_shows_the_hash_of_a_policy(page: Page) -> None:
    """It changes with every new field of the policy: a page would show one that nobody can get."""
    assert re.findall(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{12}\b", page.text) == []


def test_every_page_is_reachable() -> None:
    """From the README, over links, a reader comes to every page."""
    seen, todo = set(), ["README.md"]
    while todo:
        name = todo.pop()
        if name in seen or name not in pages():
            continue
        seen.add(name)
        for link in pages()[name].links:
            target = ((ROOT / name).parent / link.partition("#")[0]).resolve()
            if target.is_relative_to(ROOT.resolve()):
                todo.append(str(target.relative_to(ROOT.resolve())))
    assert set(pages()) - seen == set()


def test_pages_that_docstrings_name_exist() -> None:
    """A docstring that leans on a page names one that is there."""
    for source in SOURCES:
        for page in re.findall(r"docs/[\w/-]+\.(?:md|svg)", source.read_text(encoding="utf-8")):
            assert (ROOT / page).is_file(), f"{source.relative_to(ROOT)}: {page}"


def test_pictures_are_well_formed() -> None:
    """A browser shows an SVG only when it is XML."""
    pictures = list((ROOT / "docs" / "images").glob("*.svg"))
    assert pictures
    for picture in pictures:
        root = xml.dom.minidom.parse(str(picture)).documentElement
        assert root is not None and root.tagName == "svg"


def test_the_readme_is_short() -> None:
    """What does not fit belongs into a page of its own."""
    assert len(pages()["README.md"].text.splitlines()) <= 250
