"""The CPU of other processes."""

from __future__ import annotations

import subprocess

from bench import processes
from tests.support.eventually import eventually


def test_the_cpu_of_a_process_is_counted_finely_and_ends_with_it() -> None:
    """The few milliseconds of a program that only sleeps; one that has ended counts nothing."""
    with subprocess.Popen(["sleep", "60"]) as child:
        groups = {"child": [child.pid]}
        eventually(lambda: processes.cpu_seconds(groups)["child"] > 0)
        assert processes.cpu_seconds(groups)["child"] < 0.1
        child.kill()
    assert processes.cpu_seconds(groups) == {"child": 0.0}
