"""Decoding from several threads at once, as the reflectors of a starting replica do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FIRST_USE = """
import json, sys, threading
from engine.decoding import pods, workloads
sys.setswitchinterval(1e-6)
metadata = {"name": "train", "namespace": "team", "uid": "u", "resourceVersion": "1"}
spec = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
pod = json.dumps({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}).encode()
job = json.dumps({"metadata": metadata, "spec": {"template": {"spec": spec}}, "status": {}}).encode()
start = threading.Barrier(8)
def decode(project, raw):
    start.wait()
    for _ in range(50):
        project(raw)
sorts = [(pods.pod, pod), (workloads.job, job)] * 4
threads = [threading.Thread(target=decode, args=sort) for sort in sorts]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_the_first_objects_may_come_to_several_threads_at_once() -> None:
    """In a fresh process, pods and Jobs (which share their structs) are decoded together, and nothing crashes."""
    for _ in range(4):  # before the decoders were made at import, two of three processes died of SIGSEGV
        ended = subprocess.run(
            [sys.executable, "-c", FIRST_USE],
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-2000:]
