"""The controllers of a test's kinds, real or imitated: `@pytest.mark.controllers("jobset", "volcano")`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from local.client import Client
from local.controllers.catalogue import CONTROLLERS
from local.controllers.running import Controllers
from local.controlplane import ControlPlane
from tests.cluster.gangs.conftest import PolicyInForce
from tests.support.fleet import Fleet
from tests.support.imitations.catalogue import IMITATIONS
from tests.support.imitations.controller import account
from tests.support.kind_gangs import Gangs


@pytest.fixture(scope="session")
def robot(control_plane: ControlPlane) -> Client:
    """The account of the imitations."""
    return account(control_plane)


@pytest.fixture
def gangs(request: pytest.FixtureRequest, namespace: str, nodes: Fleet, policy: PolicyInForce) -> Iterator[Gangs]:
    """This test's namespace, nodes and gangs, with the service and the marked controllers running."""
    asked = [name for marker in request.node.iter_markers("controllers") for name in marker.args]
    client: Client = request.getfixturevalue("client")
    real = [name for name in asked if name in CONTROLLERS]
    if real:
        controllers: Controllers = request.getfixturevalue("controllers")
        controllers.start(*real)
    with ExitStack() as stack:
        for name in asked:
            if name not in CONTROLLERS:
                IMITATIONS[name].definition().install(client)
                stack.enter_context(IMITATIONS[name](request.getfixturevalue("robot"), namespace))
        yield Gangs(client, namespace, nodes)
