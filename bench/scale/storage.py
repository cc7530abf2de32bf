"""Writes objects into etcd itself, beside the API server, which reads JSON as well as its own encoding.

Through the API a cluster of 100,000 pods would take many minutes to make, and its controllers would look at each.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final

import urllib3

from local.controlplane import ControlPlane

OPERATIONS: Final = 100  # in one transaction; etcd takes 128
WRITERS: Final = 4
FLAG: Final = "--etcd-servers="


def etcd_url(cluster: ControlPlane) -> str:
    """Return where the etcd of a local control plane answers."""
    command = Path(f"/proc/{cluster.pids['kube-apiserver']}/cmdline").read_text(encoding="utf-8").split("\0")
    return next(one.removeprefix(FLAG) for one in command if one.startswith(FLAG))


class Storage:
    """An etcd by its URL; close it after use."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool = urllib3.PoolManager(maxsize=WRITERS)

    def put(self, items: Iterable[tuple[str, bytes]]) -> int:
        """Write values by key, many at a time; returns how many. Raises RuntimeError for a refusal."""
        with ThreadPoolExecutor(WRITERS) as writers:
            return sum(writers.map(self._put, _batches(items)))

    def write(self, items: Sequence[tuple[str, bytes | None]]) -> None:
        """Write values by key in one transaction; None deletes. Raises RuntimeError for a refusal."""
        answer = self._pool.request(
            "POST", f"{self._url}/v3/kv/txn", body=json.dumps({"success": list(map(_operation, items))}), timeout=60
        )
        if answer.status != 200:
            raise RuntimeError(f"etcd answers {answer.status}: {answer.data[:300]!r}")

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def _put(self, batch: list[tuple[str, bytes]]) -> int:
        self.write(batch)
        return len(batch)


def _operation(item: tuple[str, bytes | None]) -> dict[str, dict[str, str]]:
    key, value = _text(item[0].encode()), item[1]
    if value is None:
        return {"requestDeleteRange": {"key": key}}
    return {"requestPut": {"key": key, "value": _text(value)}}


def _batches(items: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    rest = iter(items)
    while batch := list(islice(rest, OPERATIONS)):
        yield batch


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")
