"""Options of all tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

# The same examples in every run, so that a change fails for what it changes. `make test-random` looks for new ones.
settings.register_profile("fixed", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("random", derandomize=False, deadline=None, print_blob=True)
# `make test-nightly`: the same with thousands of lives of gangs (tests/support/lives.py).
settings.register_profile("nightly", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("fixed")

pytest.register_assert_rewrite("tests.support")  # a failing assertion there shows both sides too


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many random schedules tests/cluster/gangs/test_faults_chaos.py goes through, and what takes minutes."""
    group = parser.getgroup("random schedules")
    group.addoption("--schedules", type=int, default=2, help="how many random schedules to go through (2)")
    group.addoption("--first-seed", type=int, default=1, help="the seed of the first; the next are counted up (1)")
    group.addoption("--seconds", type=float, default=8.0, help="how long things happen in each, roughly (8)")
    group = parser.getgroup("version of Kubernetes")
    group.addoption(
        "--kubernetes",
        metavar="MINOR",
        help="test on a control plane of this version, such as 1.30 (a folder of local/kubernetes)",
    )
    group = parser.getgroup("faults under load")
    group.addoption(
        "--scenarios",
        choices=("some", "all"),
        default="some",
        help="which faults happen under load (some)",
    )
    group = parser.getgroup("node autoscaling")
    group.addoption(
        "--cluster-autoscaler",
        type=Path,
        metavar="PROGRAM",
        help="test with this cluster-autoscaler instead of an imitation of it (it must have the provider kwok)",
    )
    group = parser.getgroup("kubectl plugin")
    group.addoption(
        "--build-plugin", action="store_true", help="build the plugin, and install it with krew (tests/plugin)"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """With `-n`: files side by side, as tests/support/workers.py says; with another `--dist` as pytest-xdist says."""
    if config.option.dist != "load":
        return None
    from tests.support import workers

    return workers.Scheduling(config, log)
