"""HAMi's resource names, which only its own scheduler reads, and what to request instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.resources.names import CORE, MEMORY, NVIDIA, RATIO, SHARED, WHOLE

CORES: Final = "nvidia.com/gpucores"  # percent of each GPU's compute
MEBIBYTES: Final = "nvidia.com/gpumem"  # MiB of each GPU's memory
PERCENTAGE: Final = "nvidia.com/gpumem-percentage"  # of each GPU's memory
PRIORITY: Final = "nvidia.com/priority"  # of its tasks on a GPU

HAMI: Final = frozenset({CORES, MEBIBYTES, PERCENTAGE, PRIORITY})


def without_hami(amounts: Mapping[str, int]) -> dict[str, str]:
    """Return the request in Koordinator's names that means the same as one container's positive amounts.

    HAMi's amounts are of each GPU, Koordinator's of all together. Without memory HAMi gives all of it; of an amount in
    MiB and one in percent it reads the first.
    """
    gpus = amounts.get(NVIDIA, 1)
    core = amounts.get(CORES, 0)
    wanted = {CORE: str(core * gpus)} if core else {}
    if memory := amounts.get(MEBIBYTES, 0):
        wanted[MEMORY] = f"{memory * gpus}Mi"
        part = True
    else:
        ratio = min(amounts.get(PERCENTAGE, WHOLE), WHOLE)
        wanted[RATIO] = str(ratio * gpus)
        part = ratio < WHOLE or 0 < core < WHOLE
    return {**wanted, SHARED: str(gpus)} if gpus > 1 and part else wanted
