"""Koordinator's cases of choosing devices in our words, and our answers to them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from engine.api.device import DeviceRequest, DeviceUse, VirtualFunction
from engine.devices.inventory import Inventory
from tests.support.devices import NOTHING_ASKED, HeldDevices, card, gpu, minors

_FILE = Path(__file__).parent.parent / "data" / "koordinator_alloc_cases.json"

Answer = dict[str, Any]


@dataclass(frozen=True)
class DeviceCase:
    """What is used of a host (percent by kind and minor), what one pod asks for, and which devices it gets.

    `functions`: addresses of virtual functions in use, by RDMA device; asked for: the types that a pod takes; in an
    answer: those that it gets. An answer is `refused`, or minors by kind. `ours` stands where we decide differently,
    and why.
    """

    id: str
    host: str
    used: dict[str, dict[str, Any]]
    asked: dict[str, Any]
    koordinator: Answer
    ours: Answer | None = None
    differs: str | None = None
    outside: str | None = None

    @property
    def expected(self) -> Answer:
        return self.ours or self.koordinator

    def answer(self) -> Answer:
        """Our answer, in the words of the expected one."""
        ledger = HeldDevices(_host(self.host))
        functions = self.used.get("functions", {})
        for kind, amounts in self.used.items():
            for minor, percent in amounts.items() if kind != "functions" else ():
                known = tuple(VirtualFunction(0, bus) for bus in functions.get(minor, ()) if kind == "rdma")
                held = DeviceUse(kind, int(minor), "", percent, percent, share=percent, functions=known)
                ledger.hold(0, (kind, minor), NOTHING_ASKED, ((held,),))
        percent = self.asked["percent"] if self.asked["gpus"] else 0
        request = DeviceRequest(
            gpus=self.asked["gpus"],
            core=percent,
            ratio=percent,
            whole=percent == 100,
            rdma=self.asked["rdma"],
            vf_selector=(("type", "In", tuple(self.asked["functions"])),) if "functions" in self.asked else None,
            rdma_scope="pcie-preferred" if self.asked.get("joint") else "",
        ).within(self.asked.get("scope", ""))
        chosen = ledger.choose(0, request, 1)
        assert len(chosen) == min(1, ledger.slots_of(0, request))
        if not chosen:
            return {"refused": True}
        got = [function.bus for use in chosen[0] for function in use.functions]
        return {kind: got if kind == "functions" else minors(chosen, kind)[0] for kind in self.expected}


def device_cases() -> list[DeviceCase]:
    """All cases, in the order of the file."""
    return [DeviceCase(**row) for row in _data()["cases"]]


@cache
def _data() -> Any:
    return json.loads(_FILE.read_text())


def _host(name: str) -> Inventory:
    told = _data()["hosts"][name]
    gpus = (gpu(minor, numa=numa, pcie=pcie) for minor, numa, pcie in told["gpus"])
    functions = {
        int(minor): tuple(VirtualFunction(number, bus, (("type", kind),)) for kind, number, bus in listed)
        for minor, listed in told.get("functions", {}).items()
    }
    cards = (
        replace(card(minor, numa=numa, pcie=pcie), functions=functions.get(minor, ()))
        for minor, numa, pcie in told["rdma"]
    )
    partitions = {int(size): tuple(map(tuple, sets)) for size, sets in told.get("partitions", {}).items()}
    return Inventory((*gpus, *cards), partitions)
