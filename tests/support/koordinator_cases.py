"""Koordinator's cases of device requests in our words, and our answers to them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.api.device import Device, DeviceRequest
from engine.devices.fit import slots
from engine.devices.free import gpu_use, unused
from engine.resources.containers import Container, PodResources, amount
from engine.resources.names import CORE, KOORDINATOR, MEMORY, RATIO, Reported, whole_names
from engine.resources.request import dimensions
from engine.resources.translation import translate
from tests.support.translations import applied

_FILE = Path(__file__).parent.parent / "data" / "koordinator_cases.json"

Answer = dict[str, Any]


@dataclass(frozen=True)
class KoordinatorCase:
    """`kind`: request (what a pod means), admission, rewriting, memory (bytes and percent of one GPU of `size`,
    which is None where none is healthy).

    An answer is `refused`, `accepted`, or the amounts. `ours` stands where we decide differently, and why; `silent`
    says why a request for no device is accepted without a word.
    """

    id: str
    kind: str
    containers: list[dict[str, Any]]
    koordinator: Answer
    init: tuple[dict[str, Any], ...] = ()
    size: int | None = None
    ours: Answer | None = None
    differs: str | None = None
    outside: str | None = None
    silent: str | None = None

    @property
    def expected(self) -> Answer:
        return self.ours or self.koordinator

    def pod(self) -> PodResources:
        return PodResources(
            tuple(_container("containers", position, one) for position, one in enumerate(self.containers)),
            tuple(_container("initContainers", position, one) for position, one in enumerate(self.init)),
        )

    def answer(self) -> Answer:
        """Our answer, in the words of the expected one."""
        if self.kind == "memory":
            return self._use()
        pod = self.pod()
        done = translate(pod, mode="auto", reported=Reported(KOORDINATOR), path="spec")
        if done.errors:
            return {"refused": True}
        if "accepted" in self.expected:
            return {"accepted": True}
        if "containers" in self.expected:
            after = applied(pod, done)
            assert all(one.requests in ({}, one.limits) for one in after)
            return {"containers": [dict(one.limits) for one in after]}
        if "dimensions" in self.expected:
            whole = whole_names()
            total = pod.total({one.path: one.amounts(whole | KOORDINATOR) for one in pod})
            return {"dimensions": dimensions(total, whole)}
        told = asdict(done.request or DeviceRequest())
        return {key: told[key] for key in self.expected}

    def _use(self) -> Answer:
        asked = {name: amount(value) for name, value in self.containers[0]["limits"].items()}
        request = DeviceRequest(gpus=1, core=asked.get(CORE, 0), ratio=asked.get(RATIO, 0), memory=asked.get(MEMORY, 0))
        gpu = Device("gpu", 0, "", self.size is not None, core=100, ratio=100, memory=self.size or 0)
        if not slots([unused(gpu)], request, partitions={}):
            return {"refused": True}
        use = gpu_use(request, gpu)
        return {"use": {"core": use.core, "ratio": use.ratio, "memory": use.memory}}


def koordinator_cases() -> list[KoordinatorCase]:
    """All cases; in the order of the file."""
    return [KoordinatorCase(**row) for row in json.loads(_FILE.read_text())]


def _container(kind: str, position: int, one: dict[str, Any]) -> Container:
    return Container(
        name=f"{kind}-{position}",
        path=(kind, position),
        requests=one.get("requests", {}),
        limits=one.get("limits", {}),
    )
