"""StatefulSets: they have no end and cannot be suspended; their pods are held by their gates."""

from __future__ import annotations

import random
from typing import Final

from tests.support.fake_api import Json
from tests.support.lagging_cluster.api import STATEFUL_SETS
from tests.support.lagging_cluster.kinds import MAIN, Kind, Place

_ORDINAL: Final = "apps.kubernetes.io/pod-index"


class StatefulSets(Kind):
    """StatefulSets whose pods are made all at once."""

    kind = "StatefulSet"
    api_version = "apps/v1"
    collection = STATEFUL_SETS
    can_suspend = False
    ends = False

    def _spec(self, name: str, template: Json, rng: random.Random, *, count: int, more: int) -> Json:
        template["metadata"] = {"labels": {"app": name}}
        template["spec"]["restartPolicy"] = "Always"
        return {
            "replicas": count,
            "podManagementPolicy": "Parallel",
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        }

    def counts(self, workload: Json) -> dict[str, int]:
        return {MAIN: int(workload["spec"]["replicas"])}

    def sized(self, workload: Json, count: int) -> Json:
        return {"replicas": count}

    def labels(self, workload: Json, place: Place) -> dict[str, str]:
        return {_ORDINAL: str(place[1])}

    def place(self, pod: Json) -> Place:
        return MAIN, int(pod["metadata"]["labels"][_ORDINAL])
