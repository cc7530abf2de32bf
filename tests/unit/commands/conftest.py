"""A cluster behind a fake API server, its kubeconfig, and the command line over it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.support.fake_api import Answer, FakeApi, Request
from tests.support.snapshots import busy_cluster
from webhook.cli import main
from webhook.terminal import asking

Topogate = Callable[..., Result]
COLLECTIONS = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Placement": "/apis/topogate.dev/v1alpha1/namespaces/{}/placements",
}


def put(server: FakeApi, body: dict[str, Any]) -> None:
    """Store an object as the API server has it."""
    metadata = body["metadata"]
    path = COLLECTIONS[body["kind"]].format(metadata.get("namespace", "default"))
    server.put(f"{path}/{metadata['name']}", **{key: value for key, value in body.items() if key != "kind"})


def forbid(server: FakeApi, *plurals: str, except_in: str | None = None) -> None:
    """Answer 403 to lists of these collections; in one namespace they are allowed."""

    def hit(request: Request) -> bool:
        named = request.path.rpartition("/")[2] in plurals
        return named and (except_in is None or f"/namespaces/{except_in}/" not in request.path)

    server.fault(Answer(403, {"kind": "Status", "reason": "Forbidden", "message": "no"}), when=hit, times=1000)


@pytest.fixture
def server() -> Iterator[FakeApi]:
    with FakeApi() as running:
        running.install("topogate.dev/v1alpha1", "placements", "Placement")
        for body in busy_cluster():
            put(running, body)
        yield running


@pytest.fixture
def kubeconfig(server: FakeApi, tmp_path: Path) -> Path:
    path = tmp_path / "config"
    context = {"cluster": "fake", "user": "me"}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "mine",
                "clusters": [{"name": "fake", "cluster": {"server": server.url}}],
                "users": [{"name": "me", "user": {}}],
                "contexts": [
                    {"name": "mine", "context": context | {"namespace": "alice"}},
                    {"name": "bobs", "context": context | {"namespace": "bob"}},
                ],
            }
        )
    )
    return path


@pytest.fixture
def topogate(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> Topogate:
    """Run the command line with the kubeconfig in the environment, as people do.

    That a reading takes long is not told: on a busy machine any may.
    """
    monkeypatch.setattr(asking, "SILENT_FOR", 60.0)

    def run(*words: str) -> Result:
        return CliRunner(env={"KUBECONFIG": str(kubeconfig)}).invoke(main, words, prog_name="topogate")

    return run
