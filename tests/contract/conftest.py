from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.cluster.client import KubeClient, connect
from tests.support.fake_api import FakeApi
from tests.support.replica import write_authority


@pytest.fixture
def fake() -> Iterator[FakeApi]:
    with FakeApi() as server:
        yield server


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Callable[..., str]:
    """Write a kubeconfig for a server and return its path."""

    def write(url: str, *, token: str | None = None, ca: str | None = None, **user: Any) -> str:
        cluster = {"server": url} | ({"certificate-authority": ca} if ca else {})
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user | ({"token": token} if token else {})}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return str(path)

    return write


@pytest.fixture
def api(fake: FakeApi, kubeconfig: Callable[..., str]) -> KubeClient:
    return connect(kubeconfig=kubeconfig(fake.url), user_agent="topogate-test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the CA of replicas."""
    path = tmp_path_factory.mktemp("ca")
    write_authority(path, now=time.time())
    return path
