"""The resource names of GPUs and other devices, and what one unit of each is.

Source: Koordinator's fine-grained device scheduling (apis/extension/device_share.go); the vendors' device plugins.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Final

NVIDIA: Final = "nvidia.com/gpu"
GPU: Final = "koordinator.sh/gpu"  # percent of compute and of memory alike
CORE: Final = "koordinator.sh/gpu-core"  # percent of one GPU's compute
RATIO: Final = "koordinator.sh/gpu-memory-ratio"  # percent of one GPU's memory
MEMORY: Final = "koordinator.sh/gpu-memory"  # bytes
SHARED: Final = "koordinator.sh/gpu.shared"  # GPUs that a share spans
RDMA: Final = "koordinator.sh/rdma"  # percent of one device
FPGA: Final = "koordinator.sh/fpga"  # percent of one device

DIMENSIONS: Final = (CORE, RATIO, MEMORY, SHARED)
KOORDINATOR: Final = frozenset({GPU, *DIMENSIONS, RDMA, FPGA})

# Whole GPUs of other vendors by their device plugins: counted, and never rewritten. The policy adds further ones.
# Intel's plugin also reports names that are no devices (monitoring, tiles, millicores): these count nothing.
VENDORS: Final = frozenset({"amd.com/gpu", "dcu.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"})
_KNOWN: Final = VENDORS | {NVIDIA}

WHOLE: Final = 100  # of a percentage: one device

# No host comes near it, and nothing that loops over a pod's devices may be made to loop for ever.
MAX_DEVICES: Final = 4096


def whole_names(vendors: Collection[str] = ()) -> frozenset[str]:
    """Return the names that count whole GPUs; `vendors` are the policy's.

    A native resource (`cpu`) or one of Koordinator's is never a vendor's, whatever the policy says.
    """
    return _whole(frozenset(vendors))


@lru_cache(maxsize=16)
def device_names(whole: frozenset[str]) -> frozenset[str]:
    """Return every name that asks for a device: those that count whole GPUs, and Koordinator's."""
    return whole | KOORDINATOR


@lru_cache(maxsize=16)
def _whole(vendors: frozenset[str]) -> frozenset[str]:
    return frozenset({NVIDIA}) | VENDORS | {name for name in vendors if "/" in name and name not in KOORDINATOR}


def family(name: str) -> str:
    """Return which devices a device resource is about: gpu, rdma or fpga."""
    return {RDMA: "rdma", FPGA: "fpga"}.get(name, "gpu")
