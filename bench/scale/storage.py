"""Writes objects into etcd itself, beside the API server, which reads JSON as well as its own encoding.

Through the API a cluster of 100,000 pods would take many minutes to make, and its controllers would look at each.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final

import urllib3

from local.controlplane import ControlPlane

OPERATIONS: Final = 100  # in one transaction; etcd takes 128
WRITERS: Final = 4
FLAG: Final = "--etcd-servers="


class Storage:
    """The etcd of a local control plane; close it after use."""

    def __init__(self, cluster: ControlPlane) -> None:
        command = Path(f"/proc/{cluster.pids['kube-apiserver']}/cmdline").read_text(encoding="utf-8").split("\0")
        self._url = next(one.removeprefix(FLAG) for one in command if one.startswith(FLAG))
        self._pool = urllib3.PoolManager(maxsize=WRITERS)

    def put(self, items: Iterable[tuple[str, bytes]]) -> int:
        """Write values by key, many at a time; returns how many. Raises RuntimeError for a refusal."""
        with ThreadPoolExecutor(WRITERS) as writers:
            return sum(writers.map(self._put, _batches(items)))

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def _put(self, batch: list[tuple[str, bytes]]) -> int:
        puts = [{"requestPut": {"key": _text(key.encode()), "value": _text(value)}} for key, value in batch]
        answer = self._pool.request("POST", f"{self._url}/v3/kv/txn", body=json.dumps({"success": puts}), timeout=60)
        if answer.status != 200:
            raise RuntimeError(f"etcd answers {answer.status}: {answer.data[:300]!r}")
        return len(batch)


def _batches(items: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    rest = iter(items)
    while batch := list(islice(rest, OPERATIONS)):
        yield batch


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")
