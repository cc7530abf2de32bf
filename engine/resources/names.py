"""Resource names of GPUs and other devices, their units, and which of them the nodes report.

Every review of a GPU request reads the reported names, so nothing is counted then: a change of a node costs the names
of that node, and the result is built again only when it differs.

Source: Koordinator's fine-grained device scheduling (apis/extension/device_share.go); the vendors' device plugins.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from engine.api.device import NodeDevices
from engine.api.objects import Node
from engine.api.resources import Quantity, nano

NVIDIA: Final = "nvidia.com/gpu"
GPU: Final = "koordinator.sh/gpu"  # percent of compute and of memory alike
CORE: Final = "koordinator.sh/gpu-core"  # percent of one GPU's compute
RATIO: Final = "koordinator.sh/gpu-memory-ratio"  # percent of one GPU's memory
MEMORY: Final = "koordinator.sh/gpu-memory"  # bytes
SHARED: Final = "koordinator.sh/gpu.shared"  # GPUs that a share spans
RDMA: Final = "koordinator.sh/rdma"  # percent of one device
FPGA: Final = "koordinator.sh/fpga"  # percent of one device

DIMENSIONS: Final = (CORE, RATIO, MEMORY, SHARED)
GPU_NAMES: Final = frozenset({GPU, *DIMENSIONS})
KOORDINATOR: Final = GPU_NAMES | {RDMA, FPGA}

# Whole GPUs of other vendors by their device plugins: counted, and never rewritten. The policy adds further ones.
# Intel's plugin also reports names that are no devices (monitoring, tiles, millicores): these count nothing.
VENDORS: Final = frozenset({"amd.com/gpu", "dcu.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"})

WHOLE: Final = 100  # of a percentage: one device
_NANO: Final = 10**9
MAX_BYTES: Final = 2**50  # of one device (1 PiB), beyond that it is a mistake: a hundred times that stays inside int64

_KIND: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
KINDS: Final = ("gpu", "rdma", "fpga")  # of devices, in the order of their lists
SHARES: Final = {"rdma": RDMA, "fpga": FPGA}  # amounts are percent of a device

# More than any host has; it bounds every loop over a pod's devices.
MAX_REQUESTED: Final = 4096
# Devices of one kind on one host, and in one Device object. The densest hosts have 16 GPUs, which time slicing
# multiplies; beyond it is a mistake.
MAX_DEVICES: Final = 256
MAX_FUNCTIONS: Final = 256  # virtual functions of a device, the most that PCI's numbers of one bus allow
MAX_BUS: Final = 63  # characters of a PCI address, which has 12


def amount(name: str, quantity: Quantity) -> int:
    """Return a quantity in whole units (percent, bytes), rounded down. Raises QuantityError."""
    return nano(name, quantity) // _NANO


def whole_names(vendors: Collection[str] = ()) -> frozenset[str]:
    """Return the names that count whole GPUs; `vendors` are the policy's.

    Native resources (`cpu`) and Koordinator's are never a vendor's, even if the policy lists them.
    """
    return _whole(frozenset(vendors))


@lru_cache(maxsize=16)
def device_names(whole: frozenset[str]) -> frozenset[str]:
    """Return every name that requests a device: those that count whole GPUs, and Koordinator's."""
    return whole | KOORDINATOR


@lru_cache(maxsize=16)
def _whole(vendors: frozenset[str]) -> frozenset[str]:
    return frozenset({NVIDIA}) | VENDORS | {name for name in vendors if "/" in name and name not in KOORDINATOR}


def is_gpu(name: str) -> bool:
    """Return whether a resource name counts whole GPUs: a known one, or one of a vendor that ends with /gpu."""
    return name in _whole(frozenset()) or (name.endswith("/gpu") and name not in KOORDINATOR)


def is_kind(text: str) -> bool:
    """Return whether a text can be the kind of devices that the policy declares: a DNS label."""
    return _KIND.fullmatch(text) is not None and text not in KINDS


def device_kind(name: str) -> str:
    """Return the kind of a device resource: gpu, rdma or fpga."""
    return {RDMA: "rdma", FPGA: "fpga"}.get(name, "gpu")


@dataclass(frozen=True, slots=True)
class Reported:
    """The device names with an amount on at least one node, and the bytes of one GPU's memory.

    `memory` is None where GPUs differ or their size is unknown. No names: nothing is known about the nodes.
    """

    names: frozenset[str] = frozenset()
    memory: int | None = None


Key = TypeVar("Key", int, str)


class ReportedNodes:
    """Follows the stores of nodes and of Device objects: subscribe both methods, read `now` from any thread.

    Cordoned and unready nodes count too: resource names in pods must not change when a node is away for a moment.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # each store has a thread of its own
        self._names: Counter[str] = Counter()
        self._memories: Counter[int] = Counter()
        # Sizes of the GPUs of each node with dimensions, and of each Device object.
        self._of_nodes: dict[Hashable, frozenset[int]] = {}
        self._of_objects: dict[Hashable, frozenset[int]] = {}
        self.now = Reported()

    def changed(self, key: Hashable, old: Node | None, new: Node | None) -> None:
        """Apply one change of a node; the store calls it for one change at a time."""
        before = old.allocatable if old is not None else {}
        after = new.allocatable if new is not None else {}
        if before == after:
            return
        with self._lock:
            for allocatable, sign in ((before, -1), (after, 1)):
                for name, amount in allocatable.items():
                    if amount > 0:
                        _count(self._names, name, sign)
            memory = gpu_memory(after)
            self._set_sizes(self._of_nodes, key, frozenset((memory,) if memory else ()))

    def devices_changed(self, key: Hashable, _old: NodeDevices | None, new: NodeDevices | None) -> None:
        """Apply one change of a Device object, like `changed`."""
        gpus = (one for one in (new.devices if new is not None else ()) if one.kind == "gpu" and one.healthy)
        sizes = frozenset(one.memory for one in gpus if one.memory)
        with self._lock:
            self._set_sizes(self._of_objects, key, sizes)

    def _set_sizes(self, sizes: dict[Hashable, frozenset[int]], node: Hashable, fresh: frozenset[int]) -> None:
        """Set the sizes of a node's GPUs in one of the two mappings, and build `now` again if it differs."""
        for size in self._sizes(node):
            _count(self._memories, size, -1)
        if fresh:
            sizes[node] = fresh
        else:
            sizes.pop(node, None)
        for size in self._sizes(node):
            _count(self._memories, size, 1)
        known = tuple(self._memories)
        now = Reported(frozenset(self._names), known[0] if len(known) == 1 else None)
        if now != self.now:
            self.now = now

    def _sizes(self, node: Hashable) -> frozenset[int]:
        """Return the sizes of a node's GPUs: by its Device object, as a node may report more than its GPUs have."""
        counted = self._of_nodes.get(node, frozenset())
        return counted and self._of_objects.get(node, counted)


def gpu_memory(allocatable: Mapping[str, int]) -> int:
    """Return the bytes of one GPU of a node, rounded down; 0 where the node does not report it.

    Whole GPUs are counted too, as a node may report more compute than its GPUs have.
    """
    whole = sum(max(0, allocatable.get(name, 0)) for name in whole_names())
    gpus = allocatable.get(CORE, 0) // WHOLE
    gpus = min(gpus, whole or gpus)
    return allocatable.get(MEMORY, 0) // gpus if gpus else 0


def _count(counter: Counter[Key], key: Key, sign: int) -> None:
    counter[key] += sign
    if not counter[key]:
        del counter[key]
