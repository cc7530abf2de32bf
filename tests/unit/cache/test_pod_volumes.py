"""Where pods may run because of their volumes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api.pod import PodSpec, SelectorTerm
from engine.cache.pod_shapes import PodShapes
from engine.cache.stores import Stores
from engine.decoding import objects
from engine.decoding.wire import ProjectionError
from engine.resources.shape import VOLUMES, exclusion
from tests.support.cluster_records import changed, job, node

Json = dict[str, Any]
NODES = {rack: node(f"h-{rack}", labels={"rack": rack}) for rack in ("r0", "r1")}


def within(rack: str) -> Json:
    terms = [{"matchExpressions": [{"key": "rack", "operator": "In", "values": [rack]}]}]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}


def volume(name: str, rack: str | None = None) -> Json:
    return {"metadata": {"name": name}, "spec": within(rack) if rack else {}}


def claim(name: str, **spec: Any) -> Json:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def storage_class(name: str, rack: str | None = None, *, default: bool = False) -> Json:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    allowed = [{"matchLabelExpressions": [{"key": "rack", "values": [rack]}]}] if rack else None
    return {"metadata": {"name": name, "annotations": annotations}, "allowedTopologies": allowed}


def racks(
    *claims: Json, volumes: tuple[Json, ...] = (), classes: tuple[Json, ...] = (), **template: tuple[str | None, ...]
) -> set[str]:
    """The racks that pods with these claims may be in; the template mounts `data`, unless it says otherwise."""
    stores = Stores()
    stores.volume_claims.replace([objects.persistent_volume_claim(one) for one in claims])
    stores.volumes.replace([objects.persistent_volume(one) for one in volumes])
    stores.storage_classes.replace([objects.storage_class(one) for one in classes])
    asked = job(count=2)
    fields: Any = template or {"volume_claims": ("data",)}
    spec: PodSpec = replace(asked.template, **fields)
    workload = changed(asked, template=spec)
    shape = PodShapes(stores).shape_of(workload, workload.pod_sets[0])
    verdicts = {rack: exclusion(shape, one) for rack, one in NODES.items()}
    assert set(verdicts.values()) <= {None, VOLUMES}
    return {rack for rack, reason in verdicts.items() if reason is None}


def test_a_claim_goes_where_its_volume_is() -> None:
    bound = claim("data", volumeName="v", storageClassName="fast")
    elsewhere = storage_class("fast", "r0")
    assert racks(bound, volumes=(volume("v", "r1"),), classes=(elsewhere,)) == {"r1"}


def test_claims_that_are_not_known_are_named() -> None:
    """In their namespace alone; where no claim is known at all, nobody can tell."""
    asked = job(count=2)
    workload = changed(asked, template=replace(asked.template, volume_claims=("data", "logs")))
    stores = Stores()
    assert PodShapes(stores).missing_claims(workload) == ()
    elsewhere = claim("logs")
    elsewhere["metadata"]["namespace"] = "other"
    stores.volume_claims.replace([objects.persistent_volume_claim(one) for one in (claim("data"), elsewhere)])
    assert PodShapes(stores).missing_claims(workload) == ("logs",)


def test_a_volume_for_all_nodes_excludes_none() -> None:
    assert racks(claim("data", volumeName="v"), volumes=(volume("v"),)) == {"r0", "r1"}


def test_an_unbound_claim_goes_where_its_class_makes_volumes() -> None:
    assert racks(claim("data", storageClassName="fast"), classes=(storage_class("fast", "r1"),)) == {"r1"}
    assert racks(claim("data", storageClassName="fast"), classes=(storage_class("fast"),)) == {"r0", "r1"}


def test_without_a_class_the_default_one_counts() -> None:
    """And none for a claim that names the empty class."""
    default = (storage_class("other", "r0"), storage_class("usual", "r1", default=True))
    assert racks(claim("data"), classes=default) == {"r1"}
    assert racks(claim("data", storageClassName=""), classes=default) == {"r0", "r1"}


def test_an_ephemeral_volume_goes_by_its_class() -> None:
    assert racks(classes=(storage_class("fast", "r1"),), volume_classes=("fast",)) == {"r1"}


def test_all_volumes_must_be_in_reach() -> None:
    bound = claim("data", volumeName="v"), claim("logs", volumeName="w")
    assert racks(*bound, volumes=(volume("v", "r1"), volume("w", "r0")), volume_claims=("data", "logs")) == set()


@pytest.mark.parametrize("known", [(), (claim("data", volumeName="gone"),), (claim("data", storageClassName="gone"),)])
def test_what_is_not_known_excludes_no_node(known: tuple[Json, ...]) -> None:
    """The scheduler quotes it, if it matters."""
    assert racks(*known) == {"r0", "r1"}


def test_a_claim_of_another_namespace_is_another_claim() -> None:
    bound = claim("data", volumeName="v")
    bound["metadata"]["namespace"] = "other"
    assert racks(bound, volumes=(volume("v", "r1"),)) == {"r0", "r1"}


def test_terms_are_read_as_they_are_written() -> None:
    found = objects.persistent_volume(volume("v", "r1")).terms
    assert found is not None
    (term,) = found
    assert isinstance(term, SelectorTerm)
    assert [(one.key, one.operator, one.values) for one in term.expressions] == [("rack", "In", ("r1",))]


@pytest.mark.parametrize(
    ("projection", "broken"),
    [
        (objects.persistent_volume, {"metadata": {}}),
        (objects.persistent_volume, {"metadata": {"name": "v"}, "spec": {"nodeAffinity": "here"}}),
        (objects.persistent_volume_claim, {"metadata": {"name": "c"}, "spec": {"volumeName": 7}}),
        (objects.storage_class, {"metadata": {"name": "s"}, "allowedTopologies": {"rack": "r1"}}),
    ],
)
def test_what_no_api_server_sends_is_one_error(projection: Any, broken: Json) -> None:
    with pytest.raises(ProjectionError):
        projection(broken)
