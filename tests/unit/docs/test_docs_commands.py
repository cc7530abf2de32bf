"""What the pages show of commands that ask a cluster is what these print."""

from __future__ import annotations

import re
import shlex
from types import ModuleType, SimpleNamespace

import pytest
from click.testing import CliRunner

from tests.support.installations import installation_of_the_page
from tests.support.pages import pages
from tests.support.snapshots import cluster_of_the_pages, snapshot
from webhook.cli import main
from webhook.commands import explain, fits, gangs, topology, verify
from webhook.snapshot import live_installation

COMMANDS = (
    "topogate topology show",
    "topogate topology doctor",
    "topogate gangs",
    "topogate fits",
    "topogate explain",
    "topogate verify",
)
SHOWN = [
    (page.name, block.text.splitlines()[0].removeprefix("$ "), "\n".join(block.text.splitlines()[1:]))
    for page in pages().values()
    for block in page.blocks
    if block.language == "console"
    and block.text.startswith(tuple(f"$ {command}" for command in COMMANDS))
    and not block.mark  # those with a mark run on a control plane
]


def test_every_command_is_shown() -> None:
    blocks = [block.text for page in pages().values() for block in page.blocks]
    assert {command for text in blocks for command in COMMANDS if text.startswith(f"$ {command}")} == set(COMMANDS)


@pytest.mark.parametrize(("page", "line", "output"), SHOWN, ids=lambda value: str(value)[:60])
def test_what_a_page_shows_is_printed(page: str, line: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the cluster of the pages, half past midnight, in the namespace alice."""
    modules: tuple[ModuleType, ...] = (explain, fits, gangs, topology)
    found = snapshot(cluster_of_the_pages())
    for module in modules:
        monkeypatch.setattr(module, "caller_of", lambda _cluster: SimpleNamespace(namespace="alice"))
        monkeypatch.setattr(module, "reading", lambda *_args, **_options: found)
    monkeypatch.setattr(verify, "caller_of", lambda _cluster: SimpleNamespace(api=None, namespace="alice"))
    monkeypatch.setattr(live_installation, "read_installation", lambda *_args, **_options: installation_of_the_page())
    monkeypatch.setattr(explain, "past_events", lambda *_args: ([], None))
    done = CliRunner().invoke(main, shlex.split(line)[1:], prog_name="topogate")
    assert done.exception is None or isinstance(done.exception, SystemExit), page
    shown = re.sub(r"(policy|hash) [0-9a-f]{12}", r"\1 HASH", done.stdout)  # any new field changes it
    assert shown.rstrip("\n") == output
