"""The CPU of other processes."""

from __future__ import annotations

import subprocess
import sys

from bench import processes
from tests.support.eventually import eventually


def test_the_cpu_of_a_process_is_counted_finely_and_ends_with_it() -> None:
    """Less than a tick of 10 ms counts; a process that has ended counts nothing."""
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        groups = {"child": [child.pid]}
        eventually(lambda: 0 < processes.cpu_seconds(groups)["child"] % 0.01)
        child.communicate(b"\n")
    assert processes.cpu_seconds(groups) == {"child": 0.0}
