"""Jobs: their status tells which pods have completed."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from engine.api import names
from tests.support.fake_api import Json
from tests.support.lagging_cluster.api import JOBS
from tests.support.lagging_cluster.kinds import MAIN, Kind, Place
from tests.support.lagging_cluster.objects import bound
from tests.support.raw_placements import ranks

_WITHOUT_COMPLETIONS: Final = 0.3  # the part of Jobs without indexes that do not say how many pods have to complete


class Jobs(Kind):
    """Jobs with indexes; some have more completions than pods at a time."""

    kind = "Job"
    api_version = "batch/v1"
    collection = JOBS
    sliced = True
    counts_at_once = True
    same_names = False

    def _spec(self, name: str, template: Json, rng: random.Random, *, count: int, more: int) -> Json:
        sizes = {"parallelism": count, "completions": count + more, "completionMode": "Indexed"}
        return {**sizes, "suspend": False, "template": template}

    def counts(self, workload: Json) -> dict[str, int]:
        return {MAIN: int(workload["spec"]["parallelism"])}

    def places(self, workload: Json) -> list[Place]:
        return [(MAIN, index) for index in range(workload["spec"]["completions"])]

    def sized(self, workload: Json, count: int) -> Json:
        return {"parallelism": count, "completions": count}

    def labels(self, workload: Json, place: Place) -> dict[str, str]:
        return {names.COMPLETION_INDEX: str(place[1])}

    def pod_name(self, workload: Json, place: Place, number: Callable[[], int]) -> str:
        return f"{workload['metadata']['name']}-{place[1]}-{number()}"

    def place(self, pod: Json) -> Place:
        return MAIN, int(pod["metadata"]["labels"][names.COMPLETION_INDEX])

    def completed(self, workload: Json, made: Iterable[Json]) -> set[Place]:
        return {(MAIN, index) for index in ranks(workload["status"].get("completedIndexes"))}

    def counted(self, workload: Json, ends: Collection[Place]) -> Json:
        indexes = sorted(index for _, index in ends)
        return {"completedIndexes": ",".join(map(str, indexes)), "succeeded": len(indexes)}

    def with_completed(self, workload: Json, place: Place) -> Json:
        return self.counted(workload, (self.completed(workload, ()) | {place}) & set(self.places(workload)))

    def all_completed(self, workload: Json, ends: Collection[Place], there: Collection[Place]) -> bool:
        return set(self.places(workload)) <= set(ends)


class NonIndexedJobs(Jobs):
    """Jobs whose pods are all alike; some say how many have to complete, the others end after the first one.

    Its places are only counted: they are below zero, and those of pods are the numbers in their names.
    """

    sliced = False
    ranked = False

    def _spec(self, name: str, template: Json, rng: random.Random, *, count: int, more: int) -> Json:
        spec = super()._spec(name, template, rng, count=count, more=more)
        spec["completionMode"] = "NonIndexed"
        if rng.random() < _WITHOUT_COMPLETIONS:
            del spec["completions"]
        return spec

    def counts(self, workload: Json) -> dict[str, int]:
        return {MAIN: min(int(workload["spec"]["parallelism"]), len(self.places(workload)))}

    def places(self, workload: Json) -> list[Place]:
        spec = workload["spec"]
        return [(MAIN, -1 - index) for index in range(spec.get("completions", spec["parallelism"]))]

    def sized(self, workload: Json, count: int) -> Json:
        return {"parallelism": count}

    def labels(self, workload: Json, place: Place) -> dict[str, str]:
        return {}

    def pod_name(self, workload: Json, place: Place, number: Callable[[], int]) -> str:
        return f"{workload['metadata']['name']}-{number()}"

    def place(self, pod: Json) -> Place:
        return MAIN, int(pod["metadata"]["name"].rpartition("-")[2])

    def unwanted(self, workload: Json, pods: Sequence[Json]) -> Sequence[Json]:
        """Those beyond the number that still have to run: pods that are not bound first."""
        wanted = self._wanted(workload, len(pods))
        return sorted(pods, key=bound)[: max(0, len(pods) - wanted)]

    def lacking(self, workload: Json, there: Collection[Place], ends: Collection[Place]) -> Iterable[Place]:
        return [(MAIN, -1 - index) for index in range(self._wanted(workload, len(there)) - len(there))]

    def completed(self, workload: Json, made: Iterable[Json]) -> set[Place]:
        return set(self.places(workload)[: workload["status"].get("succeeded", 0)])

    def with_completed(self, workload: Json, place: Place) -> Json:
        status = workload["status"]
        return {"succeeded": status.get("succeeded", 0) + 1, "active": max(0, status.get("active", 0) - 1)}

    def counted(self, workload: Json, ends: Collection[Place]) -> Json:
        return {}

    def with_active(self, workload: Json, number: int) -> Json:
        return {"active": number} if workload["status"].get("active", 0) != number else {}

    def left(self, workload: Json, ends: Collection[Place]) -> int:
        if "completions" in workload["spec"] or not ends:
            return super().left(workload, ends)
        return int(workload["status"].get("active", 0))

    def all_completed(self, workload: Json, ends: Collection[Place], there: Collection[Place]) -> bool:
        if "completions" in workload["spec"]:
            return super().all_completed(workload, ends, there)
        return bool(ends) and not there

    def _wanted(self, workload: Json, active: int) -> int:
        """How many pods its controller wants at a time; none is made any more once one has completed."""
        spec, succeeded = workload["spec"], workload["status"].get("succeeded", 0)
        if "completions" in spec:
            return min(int(spec["parallelism"]), int(spec["completions"]) - succeeded)
        return min(int(spec["parallelism"]), active) if succeeded else int(spec["parallelism"])
