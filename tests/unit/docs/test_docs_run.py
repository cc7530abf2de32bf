"""Every command that a page shows is run by a test, or the page says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.page_scenes import SCENES
from tests.support.page_shell import Shell
from tests.support.pages import ROOT, Block, Page, pages
from tests.support.transcript import Step, same, steps_of
from tests.unit.docs.test_docs_commands import SHOWN

# Why a block is not run, for every page. A new reason is a new line here.
NOT_RUN = {
    "needs an image registry",
    "needs a kubelet",
    "needs a package index",
    "needs another program",
    "changes the checkout",
    "takes many minutes",
    "runs without end",
}
# Folders of which a test of their own runs every command.
RUN_BY = {"docs/tasks/admin/runbooks": "tests/cluster/gangs/test_monitoring.py"}
PAGES = [
    page
    for page in pages().values()
    if page.name != "docs/reference/cli.md" and str(Path(page.name).parent) not in RUN_BY
]


def shown_blocks(page: Page) -> list[Block]:
    """The blocks of commands of a page."""
    return [block for block in page.blocks if block.language in ("console", "sh")]


def run_in_memory(page: Page, block: Block) -> bool:
    """True for a command that test_docs_commands.py runs on a cluster in memory."""
    return any(
        (page.name, line) == (name, command) for name, command, _ in SHOWN for line in block.text[2:].split("\n")
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_how_it_is_run(page: Page) -> None:
    """A comment above the fence names a scene, a reason, or a test (docs/contributor/testing.md)."""
    for block in shown_blocks(page):
        where = f"{page.name}: {block.text.splitlines()[0]}"
        match block.mark.partition(": "):
            case ("run", _, scene):
                assert scene in SCENES, f"{where}: no scene {scene!r} in tests/support/page_scenes.py"
                assert steps_of(block), where
            case ("not run", _, reason):
                assert reason in NOT_RUN, f"{where}: no reason {reason!r}"
            case ("run by", _, test):
                assert Path(page.name).name in (ROOT / test).read_text(encoding="utf-8"), f"{where}: not in {test}"
            case _:
                assert run_in_memory(page, block), f"{where}: put `<!-- run: SCENE -->` on the line above the fence"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_needs_no_cluster_prints_what_the_page_shows(page: Page, tmp_path: Path) -> None:
    """In page order, in a folder with the examples and the files of the page."""
    shell: Shell | None = None
    for block in page.blocks:
        kind, _, value = block.mark.partition(": ")
        if kind == "run" and SCENES[value].cluster is None and not SCENES[value].new:
            shell = shell or Shell.make(tmp_path)
            shell.write({**page.files, **SCENES[value].files})
            for step in steps_of(block):
                shell.follow(step)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("job-a-0123abcd   Running   3h", "job-a-89abcdef  Running  2m10s"),
        ("train-0-gdzhj on host-017", "train-0-8xkzp on host-017"),
        ("good (hash ..., mode enforce)", "good (hash 0123456789ab, mode enforce)"),
        ("first\n...\nlast", "first\nsecond\nthird\nlast"),
        ("first\n...\nlast", "first\nlast\n"),
    ],
)
def test_what_differs_from_run_to_run_does_not_count(shown: str, printed: str) -> None:
    assert same(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("4 pods", "5 pods"),
        ("first\nlast", "first\nsecond\nlast"),
        ("first\n...\nlast", "first\nsecond"),
        ("job-late  Waiting", "job-late  Running"),
        ("hosts: host-001", "hosts: host-002"),
        ("", "something"),
    ],
)
def test_what_is_wrong_counts(shown: str, printed: str) -> None:
    assert not same(shown, printed)


def test_a_block_is_cut_at_its_prompts() -> None:
    text = "$ kubectl get pods \\\n  -o wide\nNAME\n\n$ topogate gangs"
    assert steps_of(Block("console", text)) == [
        Step("kubectl get pods \\\n  -o wide", "NAME"),
        Step("topogate gangs", ""),
    ]
    with pytest.raises(ValueError, match="begins with a command"):
        steps_of(Block("console", "Warning: topogate: ..."))


@pytest.mark.parametrize(("folder", "test"), RUN_BY.items())
def test_folders_with_a_test_of_their_own_are_run(folder: str, test: str) -> None:
    assert any(name.startswith(folder) for name in pages())
    assert f"test_every_command_of_the_{Path(folder).name}_runs" in (ROOT / test).read_text(encoding="utf-8")


def test_no_reason_is_left_over() -> None:
    marks = {block.mark for page in PAGES for block in shown_blocks(page)}
    assert {f"not run: {reason}" for reason in NOT_RUN} <= marks
    assert {scene for scene in SCENES} <= {re.sub(r"^run: ", "", mark) for mark in marks}


@pytest.mark.parametrize("suffix", ["9f77c79a", "4376699d", "43766995"])
def test_a_name_that_ends_like_an_age_is_a_name(suffix: str) -> None:
    """The suffixes are random: 4376699d is one of them, and no duration."""
    assert same("job-train-0f8a49d5   Running   12s", f"job-train-{suffix}   Running   2m1s")


@pytest.mark.parametrize("suffix", ["x7k2p", "2456d"])
def test_a_pod_s_name_that_ends_like_an_age_is_a_name(suffix: str) -> None:
    assert same("train-0-bcdfg   Running   12s", f"train-0-{suffix}   Running   2m1s")
