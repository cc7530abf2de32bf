"""One fault after the other under a steady load: no call fails because of us, no gang is lost, torn apart or restarted.

`make test-faults` goes through all of them and prints what it counted; `make test` through those that are over in
seconds. On a control plane of its own: its API server is restarted, and definitions are deleted.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from local.controlplane import ControlPlane
from local.service import Service
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.eventually import eventually
from tests.support.fault_scenarios import (
    LEAF_AGE,
    SCENARIOS,
    SECRET,
    Scenario,
    Stage,
    clock_of_its_own,
    set_clock,
)
from tests.support.gangs import Namespace
from tests.support.seen_fleet import SeenFleet
from tests.support.standing_gangs import SETTLED, StandingGangs
from tests.support.steady_load import SteadyLoad


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each scenario that the command line asks for."""
    if "scenario" in metafunc.fixturenames:
        every = metafunc.config.getoption("--scenarios") == "all"
        chosen = [one for one in SCENARIOS if every or one.short]
        metafunc.parametrize("scenario", chosen, ids=[one.name for one in chosen])


@pytest.fixture(scope="module")
def control_plane(plane: ControlPlane) -> ControlPlane:
    """Of this module's own."""
    return plane


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane) -> Iterator[Service]:
    """Two replicas of it."""
    service = Service.install(control_plane)
    yield service
    service.stop()


@pytest.fixture(scope="module")
def standing(control_plane: ControlPlane, installed: Service) -> StandingGangs:
    """What stands while faults happen."""
    client = control_plane.client
    installed.start(2)
    PolicyInForce(client, installed).set(TEST_POLICY)
    found = StandingGangs(Namespace(client, "load", SeenFleet(client, "load", installed)))
    found.start()
    return found


@pytest.fixture
def service(scenario: Scenario, installed: Service, standing: StandingGangs) -> Iterator[Service]:
    """Two replicas that serve, with a clock of their own where that is what the fault is about."""
    if scenario.clock:
        installed.stop()
        if scenario.aged:  # a CA of that time too: none is used that is not valid yet
            standing.gangs.client.delete(SECRET)
        set_clock(installed, -LEAF_AGE if scenario.aged else 0)
        installed.environment = clock_of_its_own(installed)
    try:
        installed.start(2)
        eventually(installed.leader, SETTLED, "a replica leads")
        yield installed
    finally:  # whatever failed: the next fault finds two replicas with everything applied
        if scenario.clock:
            installed.environment = {}
            installed.stop()
        installed.start(2)


def test_a_fault_under_load(
    scenario: Scenario, service: Service, standing: StandingGangs, control_plane: ControlPlane
) -> None:
    """Every call is answered, what runs runs on untouched, what waits waits on, and new gangs are placed."""
    running = standing.running()
    load, witness = SteadyLoad(control_plane.client, standing.gangs), standing.witness()
    stage = Stage(control_plane, service, standing.gangs, load)
    try:
        with witness, load:
            load.goes_well()
            scenario.act(stage)
            load.goes_well()
        print(f"\n{scenario.name}: {load.summary()}")
        assert [one for one in load.failed() if not one.asks] == []
        assert len(stage.lost()) <= scenario.lost, stage.lost()[:10]
        assert witness.breaches == []
        assert witness.looks > 0
        if scenario.forgets:
            assert standing.running() == running
            standing.clear_load()
            load.live.clear()
            running = standing.renew()
        standing.await_rest(witness, load)
        assert standing.running() == running
    except BaseException:
        service.apply()  # the fault may have left something deleted
        raise
    finally:
        standing.clear_load()
