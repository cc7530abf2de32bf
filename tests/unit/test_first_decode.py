"""Objects of one kind that are met for the first time by many threads at once."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys, threading
from engine.cluster import placements, projections
sys.setswitchinterval(1e-6)
start = threading.Barrier(8)
body = b'{"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": {"containers": []}}'
def read():
    start.wait()
    for project in (projections.pod, projections.node, projections.config_map, projections.runtime_class):
        project(body)
threads = [threading.Thread(target=read) for _ in range(8)]
for one in threads: one.start()
for one in threads: one.join()
"""


def test_a_first_read_by_many_threads_does_not_crash_the_process() -> None:
    """The reflectors of a replica start together, and patches are answered in parallel."""
    for _ in range(4):
        ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, ended.stderr
