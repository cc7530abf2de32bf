"""Objects that Topogate holds, a fake API server, and what releases them there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.api import names
from engine.cluster.client import connect
from engine.kinds.registry import built_in
from tests.support.fake_api import FakeApi
from tests.support.simulation import job, pod
from webhook.maintenance.releaser import Releaser

GATES = [{"name": names.GATE}]


def held_job(name: str = "held", *, namespace: str = "alice", held: bool = True, **spec: Any) -> dict[str, Any]:
    """A suspended Job with our gate in its template; `held`: by us."""
    found = job(name, 2, suspend=True, **spec)
    found["metadata"] |= {"uid": name, "namespace": namespace, "annotations": {}}
    if held:
        found["metadata"]["annotations"][names.HELD_BY] = names.HELD_BY_SUSPEND
    found["spec"]["template"]["spec"]["schedulingGates"] = GATES
    return found


def gated_pod(name: str, *, owner: str = "", **status: Any) -> dict[str, Any]:
    found = pod(name, "")
    found["metadata"] |= {"uid": f"p-{name}", "namespace": "alice"}
    if owner:
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": True}
        found["metadata"]["ownerReferences"] = [reference]
    found["spec"] |= {"schedulingGates": GATES, "nodeName": ""}
    found["status"] = {"phase": "Pending", **status}
    return found


@pytest.fixture
def server() -> Iterator[FakeApi]:
    with FakeApi() as running:
        yield running


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def releaser(server: FakeApi, pauses: list[float], tmp_path: Path) -> Releaser:
    config = tmp_path / "config"
    config.write_text(
        '{"apiVersion": "v1", "kind": "Config", "current-context": "x", "clusters": [{"name": "x", "cluster": '
        f'{{"server": "{server.url}"}}}}], "users": [{{"name": "x", "user": {{}}}}], '
        '"contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}]}'
    )
    return Releaser(connect(kubeconfig=str(config), user_agent="test"), built_in(), pause=pauses.append)
