"""Kinds of workloads in a lagging cluster: what their raw objects say, and what their controllers do.

A pod's place in its workload is its pod set and its index there.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
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
    sliced: ClassVar[bool] = False  # its users ask for slices
    # Its status counts a completed pod in the same moment, and never takes one back; else its controller does it later,
    # from the pods that there are.
    counts_at_once: ClassVar[bool] = False
    # It deletes the completed pods of a suspended workload, and the running ones of one that has ended.
    cleans: ClassVar[bool] = False
    # The successor of a pod has its name, so that it is made when that is gone.
    same_names: ClassVar[bool] = True

    def new(self, name: str, annotations: Mapping[str, str], pods: Json, *, count: int, more: int) -> Json:
        """A workload of `count` equal pods at a time; where the kind allows it `more` follow them."""
        template: Json = {"metadata": {}, "spec": pods}
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": name, "namespace": "default", "annotations": dict(annotations)},
            "spec": self._spec(name, template, count=count, more=more),
            "status": {},
        }

    @abstractmethod
    def _spec(self, name: str, template: Json, *, count: int, more: int) -> Json: ...

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

    @abstractmethod
    def labels(self, workload: Json, place: Place) -> dict[str, str]:
        """What its controller adds to the labels of a pod."""

    def pod_name(self, workload: Json, place: Place, number: Callable[[], int]) -> str:
        """The name of a new pod; `number` gives another one each time."""
        del number
        return f"{workload['metadata']['name']}-{place[0]}-{place[1]}"

    @abstractmethod
    def place(self, pod: Json) -> Place:
        """The place of one of its pods."""

    def suspended(self, workload: Json) -> bool:
        return bool(workload["spec"].get("suspend"))

    def suspending(self, suspend: bool) -> Json:
        """The fields of its spec that suspend or resume it."""
        return {"suspend": suspend}

    def completed(self, workload: Json, pods: Iterable[Json]) -> set[Place]:
        """The places of its completed pods; `pods`: all there are."""
        del workload, pods
        return set()

    def counted(self, workload: Json, ends: Collection[Place]) -> Json:
        """Its status when these pods have completed."""
        del workload, ends
        return {}

    def all_completed(self, workload: Json, ends: Collection[Place]) -> bool:
        """True when these completed pods end it."""
        del workload, ends
        return False

    def ending(self) -> Json:
        """The condition of one that has ended well."""
        return {"type": "Complete", "status": "True"}
