"""Jobs: their status tells which pods have completed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from engine.api import names
from tests.support.fake_api import Json
from tests.support.lagging_cluster.api import JOBS
from tests.support.lagging_cluster.kinds import MAIN, Kind, Place
from tests.support.raw_placements import ranks


class Jobs(Kind):
    """Jobs with indexes; some have more completions than pods at a time."""

    kind = "Job"
    api_version = "batch/v1"
    collection = JOBS
    sliced = True
    counts_at_once = True
    same_names = False

    def _spec(self, name: str, template: Json, *, count: int, more: int) -> Json:
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

    def completed(self, workload: Json, pods: Iterable[Json]) -> set[Place]:
        return {(MAIN, index) for index in ranks(workload["status"].get("completedIndexes"))}

    def counted(self, workload: Json, ends: Collection[Place]) -> Json:
        indexes = sorted(index for _, index in ends)
        return {"completedIndexes": ",".join(map(str, indexes)), "succeeded": len(indexes)}

    def all_completed(self, workload: Json, ends: Collection[Place]) -> bool:
        return set(self.places(workload)) <= set(ends)
