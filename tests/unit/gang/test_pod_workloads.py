"""Workloads that are made up from pods: gangs of plain pods, and pods that are placed one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.objects import RuntimeClass
from tests.support.cluster_records import gpu_nodes
from tests.support.families import plain
from tests.support.leader import Leader

KATA = RuntimeClass("kata", {"cpu": 500}, {}, ())


@pytest.mark.parametrize(("admitted", "more"), [(True, 0), (False, 500)])
@pytest.mark.parametrize("gang", [True, False])
def test_what_admission_added_for_a_runtime_class_counts_once(*, gang: bool, admitted: bool, more: int) -> None:
    """A pod of the cluster has its overhead already; one of a file, without a resolved priority, has it still to come.

    Source: the RuntimeClass and Priority admission plugins, which go before webhooks.
    """
    one = plain("a", size="1" if gang else None)
    said = one.spec.annotations if gang else {names.REQUIRE: "rack"}
    one = replace(one, spec=replace(one.spec, annotations=said, runtime_class="kata", priority=0 if admitted else None))
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.stores.runtime_classes.apply("ADDED", KATA)
    leader.has(one)
    leader.turn()
    (key,) = leader.view.gangs.keys()
    found = leader.view.gangs.get(key)
    assert found is not None
    asked = dict(one.spec.shape.requests)
    assert dict(found.shapes["main"].requests) == {**asked, **({"cpu": asked.get("cpu", 0) + more} if more else {})}
