"""Units of GPUs: what pods with different requests take from each other, as numbers that add up.

A unit of a request is its part of one GPU. A host has so many units free, and a pod of another request takes at least
so many of them: a whole GPU all that an unused one has, a larger share as many as it is a multiple of. No host holds
pods that take more units than it has, of any request; where its GPUs are alike, and one request is for whole GPUs and
the other for shares, every number of pods within these limits fits.
"""

from __future__ import annotations

from engine.api.device import DeviceRequest


def unit_of(request: DeviceRequest) -> DeviceRequest:
    """Return the request for the same part of one GPU, whichever, and nothing else."""
    return DeviceRequest(gpus=1, core=request.core, ratio=request.ratio, memory=request.memory, whole=request.whole)


def units_taken(request: DeviceRequest, unit: DeviceRequest, *, whole: int) -> int:
    """Return how many units one pod of a request takes at least; `whole`: those that an unused GPU has at least."""
    own = unit_of(request)
    if own == unit:
        return request.gpus
    if request.whole:
        return request.gpus * whole
    if unit.whole or unit.memory > 0:  # bytes round up to percents: so many small ones may be more than a large one
        return 0
    times = max(request.ratio, 1) // max(unit.ratio, 1)
    if unit.core > 0:
        times = min(times, request.core // unit.core)
    return request.gpus * times
