"""What a RuntimeClass adds to the pods of a template."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api.resources import Requests
from engine.cache.pod_shapes import PodShapes
from engine.cache.stores import Stores
from engine.decoding import objects
from engine.decoding.workloads import job

OWN = {"cpu": "250m", "memory": "160Mi"}


def requests(**of_pod: Any) -> Requests:
    """What a pod of a Job requests when its RuntimeClass `kata` has an overhead."""
    stores = Stores()
    stores.runtime_classes.replace(
        [objects.runtime_class({"metadata": {"name": "kata"}, "overhead": {"podFixed": OWN}})]
    )
    spec = {"containers": [{"resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}], **of_pod}
    metadata = {"name": "train", "namespace": "team", "uid": "u", "resourceVersion": "1"}
    read = job({"metadata": metadata, "spec": {"template": {"metadata": {}, "spec": spec}}})
    return PodShapes(stores).shape_of(read, read.pod_sets[0]).requests


@pytest.mark.parametrize("own", [{}, {"overhead": {}}, {"overhead": OWN}])
def test_the_overhead_counts_once_also_when_the_template_names_it(own: dict[str, Any]) -> None:
    """Source: the RuntimeClass admission plugin, which refuses a pod that names another overhead than its class."""
    assert dict(requests(runtimeClassName="kata", **own)) == {"cpu": 2250, "memory": 1024 + 160, "pods": 1}


def test_a_class_that_is_not_known_adds_nothing() -> None:
    """Its pods are refused until it exists."""
    assert dict(requests(runtimeClassName="gvisor")) == {"cpu": 2000, "memory": 1024, "pods": 1}
