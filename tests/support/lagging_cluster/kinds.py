"""Kinds of workloads in a lagging cluster: what their raw objects say, and what their controllers do.

A pod's place in its workload is its pod set and its index there.
"""

from __future__ import annotations

import copy
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar, Final

from tests.support.fake_api import Json

Place = tuple[str, int]

MAIN: Final = "main"


class Kind(ABC):
    """One kind of workloads; the defaults are those of most kinds."""

    kind: ClassVar[str]
    api_version: ClassVar[str]
    collection: ClassVar[str]
    can_suspend: ClassVar[bool] = True
    ends: ClassVar[bool] = True  # its pods complete, and it does when they have
    makes_pods: ClassVar[bool] = True  # else it makes Jobs, which make its pods
    ranked: ClassVar[bool] = True  # its pods have indexes
    sliced: ClassVar[bool] = False  # its users ask for slices
    # Its status, or that of its Jobs, counts a completed pod in the same moment, whatever becomes of the pod; else its
    # controller does it later, from the pods that there are.
    counts_at_once: ClassVar[bool] = False
    # It deletes the completed pods of a suspended workload, and the running ones of one that has ended.
    cleans: ClassVar[bool] = False
    # The successor of a pod has its name, so that it is made when that is gone.
    same_names: ClassVar[bool] = True

    def new(
        self, name: str, annotations: Mapping[str, str], pods: Json, rng: random.Random, *, count: int, more: int
    ) -> Json:
        """A workload of `count` equal pods at a time; where the kind allows it `more` follow them."""
        template: Json = {"metadata": {}, "spec": pods}
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": name, "namespace": "default", "annotations": dict(annotations)},
            "spec": self._spec(name, template, rng, count=count, more=more),
            "status": {},
        }

    @abstractmethod
    def _spec(self, name: str, template: Json, rng: random.Random, *, count: int, more: int) -> Json: ...

    @abstractmethod
    def counts(self, workload: Json) -> dict[str, int]:
        """The pods that it has at a time, by pod set."""

    def places(self, workload: Json) -> list[Place]:
        """The places of all pods that have to complete."""
        return [(name, index) for name, count in self.counts(workload).items() for index in range(count)]

    @abstractmethod
    def sized(self, workload: Json, count: int) -> Json:
        """The fields of its spec with so many pods."""

    def template(self, workload: Json, pod_set: str) -> Json:
        """The template of a pod set; a copy."""
        del pod_set
        return copy.deepcopy(workload["spec"]["template"])  # type: ignore[no-any-return]

    def labels(self, workload: Json, place: Place) -> dict[str, str]:
        """What its controller adds to the labels of a pod."""
        raise NotImplementedError

    def pod_name(self, workload: Json, place: Place, number: Callable[[], int]) -> str:
        """The name of a new pod; `number` gives another one each time."""
        del number
        return f"{workload['metadata']['name']}-{place[0]}-{place[1]}"

    def place(self, pod: Json) -> Place:
        """The place of one of the pods that it makes."""
        raise NotImplementedError

    def unwanted(self, workload: Json, pods: Sequence[Json]) -> Sequence[Json]:
        """Those of its active pods that its controller deletes, because it has too many."""
        every = self.places(workload)
        return [pod for pod in pods if self.place(pod) not in every]

    def lacking(self, workload: Json, there: Collection[Place], ends: Collection[Place]) -> Iterable[Place]:
        """The places of pods that its controller may make, besides those that are `there` or have completed."""
        return [place for place in self.places(workload) if place not in there and place not in ends]

    def suspended(self, workload: Json) -> bool:
        return bool(workload["spec"].get("suspend"))

    def suspending(self, suspend: bool) -> Json:
        """The fields of its spec that suspend or resume it."""
        return {"suspend": suspend}

    def completed(self, workload: Json, made: Iterable[Json]) -> set[Place]:
        """The places of its completed pods; `made`: all pods and Jobs that there are."""
        del workload, made
        return set()

    def counted(self, workload: Json, ends: Collection[Place]) -> Json:
        """Its status when these pods have completed."""
        del workload, ends
        return {}

    def freed(self, workload: Json, ends: Collection[Place]) -> set[Place]:
        """The places whose slots are free for others when these pods have completed."""
        del workload
        return set(ends)

    def left(self, workload: Json, ends: Collection[Place]) -> int:
        """How many of its pods still have to complete."""
        return len(self.places(workload)) - len(ends)

    def with_completed(self, workload: Json, place: Place) -> Json:
        """Its status when one more pod has completed, of a kind that counts at once."""
        raise NotImplementedError

    def with_active(self, workload: Json, number: int) -> Json:
        """What is new in its status with so many active pods."""
        del workload, number
        return {}

    def all_completed(self, workload: Json, ends: Collection[Place], there: Collection[Place]) -> bool:
        """True when these completed pods end it; others are `there`."""
        del workload, ends, there
        return False

    def ending(self) -> Json:
        """The condition of one that has ended well."""
        return {"type": "Complete", "status": "True"}
