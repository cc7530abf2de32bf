"""Which changes of a workload have its gangs reconciled again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from tests.support.cluster_records import job


def test_a_version_without_news_has_nothing_reconciled() -> None:
    """How many pods of a Job are active or ready is not read, and changes with each of them."""
    one = replace(job("train"), resource_version="5")
    view = _seen(one)
    view.stores.workloads.apply("MODIFIED", replace(one, resource_version="6"))
    assert view.take_changes().gangs == set()
    known = view.gangs.workload_of(one.uid)
    assert known is not None
    assert known.resource_version == "6"


@pytest.mark.parametrize(
    "change",
    [
        {"suspended": True},
        {"started": True},
        {"finished": True},
        {"generation": 7},
        {"annotations": {names.HELD_BY: ""}},
    ],
)
def test_any_other_change_is_news(change: dict[str, Any]) -> None:
    """Whatever is read of a workload may change what its gang does next."""
    one = replace(job("train"), resource_version="5", suspended=False, started=False)
    view = _seen(one)
    view.stores.workloads.apply("MODIFIED", replace(one, resource_version="6", **change))
    assert view.take_changes().gangs == {one.uid}


def _seen(*workloads: Any) -> ClusterState:
    view = ClusterState(Stores())
    for one in workloads:
        view.stores.workloads.apply("ADDED", one)
    view.take_changes()
    return view
