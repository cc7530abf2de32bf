"""Commands act as the user that the kubeconfig impersonates, never with the rights of whoever impersonates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.support.fake_api import FakeApi
from tests.unit.commands.conftest import kubeconfig, server  # noqa: F401 - fixtures
from webhook.cli import main


def run(kubeconfig: Path, user: dict[str, Any], *words: str) -> Result:  # noqa: F811
    body = json.loads(kubeconfig.read_text())
    body["users"][0]["user"] = user
    kubeconfig.write_text(json.dumps(body))
    return CliRunner(env={"KUBECONFIG": str(kubeconfig)}).invoke(main, words, prog_name="topogate")


@pytest.mark.parametrize("words", [("gangs",), ("suspend", "job/train")], ids=" ".join)
def test_each_request_of_a_command_names_the_user(kubeconfig: Path, server: FakeApi, words: tuple[str, ...]) -> None:  # noqa: F811
    run(kubeconfig, {"token": "admin", "as": "alice", "as-groups": ["dev", "ops"]}, *words)
    named = [("Impersonate-User", "alice"), ("Impersonate-Group", "dev"), ("Impersonate-Group", "ops")]
    found = [[line for line in one.lines if line[0].startswith("Impersonate-")] for one in server.requests]
    assert found
    assert all(one == named for one in found)
    assert {"PATCH"} <= {one.method for one in server.requests} or words == ("gangs",)


def test_an_impersonation_that_cannot_be_followed_is_one_line(kubeconfig: Path, server: FakeApi) -> None:  # noqa: F811
    done = run(kubeconfig, {"token": "admin", "as-groups": ["dev"]}, "gangs")
    assert (done.exit_code, done.stdout, server.requests) == (2, "", [])
    said = f"topogate: the user in {kubeconfig}: as-uid, as-groups and as-user-extra need a user to impersonate (as)\n"
    assert done.stderr == said
