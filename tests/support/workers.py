"""Which worker of pytest-xdist runs what: `pytest -n 4` runs files side by side, the longest first.

A worker starts a control plane for each of the two conftests that have one, and a controller of another kind for the
first test that asks for it: seconds of both cores each. So a worker goes on in the folder that it has begun, then with
files that need the same control plane, then with those that need none, and only then begins another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).parents[2]
PLANES = ("tests/cluster/gangs/", "tests/cluster/", "tests/image/")  # files below each share a control plane
# One file with every kind by turns: each kind for itself, so that a worker starts the controllers of few.
BY_KIND = "tests/cluster/gangs/kinds/test_every_kind.py"
# A test, roughly; and files that are much longer than their number of tests says. The order rests on it, nothing else.
SECONDS = {"tests/cluster/gangs/": 3.0, "tests/cluster/": 0.5, "tests/contract/": 1.0, "tests/property/": 1.0}
SHORT = 0.05
LONG = {
    "tests/image/test_image.py": 130,
    "tests/cluster/gangs/test_pages.py": 120,
    "tests/cluster/gangs/test_life_readiness.py": 110,
    "tests/cluster/gangs/kinds/test_page_examples.py": 80,
    "tests/cluster/test_control_plane.py": 70,
    "tests/cluster/test_pages_install.py": 60,
    "tests/cluster/test_verify.py": 50,
    "tests/cluster/test_uninstall.py": 50,
    "tests/cluster/test_history.py": 40,
    "tests/cluster/gangs/kinds/test_training_gangs.py": 50,
    "tests/cluster/gangs/kinds/test_ray_gangs.py": 40,
    "tests/cluster/gangs/test_monitoring.py": 30,
    "tests/cluster/gangs/test_life_node_loss.py": 40,
    "tests/cluster/gangs/test_faults_chaos.py": 35,
    "tests/cluster/gangs/test_faults_load.py": 60,
    "tests/cluster/gangs/test_security_rights.py": 35,
    "tests/contract/test_server.py": 35,
    "tests/cluster/gangs/test_capacity.py": 30,
    "tests/cluster/gangs/test_single_pods.py": 30,
    "tests/contract/test_server_crowds.py": 20,
    "tests/unit/plugin/test_program.py": 20,
    "tests/property/test_lagging_watches_life.py": 20,
    "tests/cluster/test_kinds_come_and_go.py": 15,
    "tests/property/test_election.py": 15,
    "tests/contract/test_server_frozen.py": 14,
    "tests/property/test_store_converges.py": 11,
    "tests/fuzz/test_fuzz.py": 10,
    "tests/property/test_disclosure.py": 10,
}


class Scheduling(LoadFileScheduling):
    """Whole files, one after another, each to the worker that pays least for it."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self.begun: dict[WorkerController, list[str]] = {}

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        return f"{file}[{test.partition('[')[2]}" if file == BY_KIND else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        waiting = {unit: expected(unit, len(tests)) for unit, tests in self.workqueue.items()}
        others = [units[0] for other, units in self.begun.items() if other is not node]
        unit = choose(waiting, self.begun.get(node, ()), others)
        self.begun.setdefault(node, []).append(unit)
        self.workqueue.move_to_end(unit, last=False)  # it takes the first
        super()._assign_work_unit(node)


def expected(unit: str, tests: int) -> float:
    """Seconds that a file will take, roughly."""
    each = next((seconds for place, seconds in SECONDS.items() if unit.startswith(place)), SHORT)
    return LONG.get(unit, tests * each)


def choose(waiting: Mapping[str, float], begun: Iterable[str], others: Iterable[str]) -> str:
    """What a worker takes next, of the units that wait and their seconds.

    `begun` is what it has taken before; `others` that with which each of the other workers began.
    """
    folders, planes = {folder(unit) for unit in begun}, {plane(unit) for unit in begun}
    if not folders:
        folders = {_crowdless(waiting, [folder(unit) for unit in others])}

    def price(unit: str) -> tuple[int, float, str]:
        if folder(unit) in folders:
            rank = 0
        elif plane(unit):
            rank = 1 if plane(unit) in planes else 3
        else:
            rank = 2
        return rank, -waiting[unit], unit

    return min(waiting, key=price)


def _crowdless(waiting: Mapping[str, float], others: list[str]) -> str:
    """The folder with most to do for each worker, one more counted; those without control plane fill up the end."""
    loads: dict[str, float] = {}
    for unit, seconds in waiting.items():
        if plane(unit) or not any(map(plane, waiting)):
            loads[folder(unit)] = loads.get(folder(unit), 0.0) + seconds
    return min(loads, key=lambda name: (-loads[name] / (1 + others.count(name)), name))


def folder(unit: str) -> str:
    """The folder of a file: of one on a control plane its own, else that of all tests without."""
    return unit.partition("[")[0].rpartition("/")[0] if plane(unit) else "tests"


def plane(unit: str) -> str:
    """The folder whose conftest has the control plane of a file; empty: it needs none."""
    return next((place for place in PLANES if unit.startswith(place)), "")
