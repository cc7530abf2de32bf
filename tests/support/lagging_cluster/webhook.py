"""The real `/mutate` of some replica between the truth and who creates or changes workloads and pods."""

from __future__ import annotations

import json
from typing import Any

from tests.support import admission
from tests.support.fake_api import Json, Request, merge
from tests.support.lagging_cluster.api import PODS
from tests.support.lagging_cluster.replica import Replica
from tests.support.lagging_cluster.workloads import path_of
from tests.support.lagging_cluster.world import World
from webhook.handlers.mutate import mutate


def create(world: World, replica: Replica, body: Json) -> Json:
    """Create a workload or a pod, as the replica admits it."""
    path = f"{PODS}/{body['metadata']['name']}" if body["kind"] == "Pod" else path_of(body)
    return world.api.put(path, **_admitted(world, replica, body, old=None))


def change(world: World, replica: Replica, path: str, **fields: Any) -> Json:
    """A user changes a workload, as the replica admits it."""
    old = world.api.get(path)
    assert old is not None
    body = json.dumps(_admitted(world, replica, merge(old, fields), old=old)).encode()
    return world.api.handle(Request("PUT", path, {}, {}, body, 0.0))


def _admitted(world: World, replica: Replica, body: Json, *, old: Json | None) -> Json:
    """The object after the webhook; what the replica does not know yet it does not wait for."""
    review = admission.review(body, old=old, namespace="default", name=body["metadata"]["name"])
    return admission.apply(body, mutate(review, replica.reader, world.now))
