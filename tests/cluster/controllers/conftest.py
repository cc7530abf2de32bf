"""Workloads for the real controllers of other kinds."""

from __future__ import annotations

import pytest

from local.client import Client
from tests.support.fleet import Fleet
from tests.support.workloads import Workloads


@pytest.fixture
def workloads(client: Client, namespace: str, nodes: Fleet) -> Workloads:
    """This test's workloads."""
    return Workloads(client, namespace, nodes)
