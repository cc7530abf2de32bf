"""What a pod needs of a host's devices."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from engine.api.device import DeviceRequest
from engine.gpu.combinations import contradictions, devices
from engine.gpu.resources import CORE, FPGA, GPU, KOORDINATOR, MEMORY, RATIO, RDMA, WHOLE, whole_names


def device_request(requests: Mapping[str, int], *, vendors: Collection[str] = ()) -> DeviceRequest | None:
    """Return what effective requests of a pod (planner units) mean in devices; `vendors` are the policy's.

    None when they name no device, or a combination that is refused at admission. Parts of several GPUs are rounded up.
    A memory ratio of 100 on each GPU needs the whole GPU; memory in bytes never does (Koordinator's rule).
    """
    whole = whole_names(vendors)
    asked = {name: amount for name, amount in requests.items() if amount > 0 and (name in whole or name in KOORDINATOR)}
    if not asked or contradictions(asked, whole):
        return None
    rdma, fpga = asked.pop(RDMA, 0), asked.pop(FPGA, 0)
    if not asked:
        return DeviceRequest(rdma=rdma, fpga=fpga)
    counted = next((amount for name, amount in asked.items() if name in whole), 0)
    if counted:
        return DeviceRequest(gpus=counted, core=WHOLE, ratio=WHOLE, whole=True, rdma=rdma, fpga=fpga)
    gpus = devices(asked)
    ratio = -(-asked.get(RATIO, asked.get(GPU, 0)) // gpus)
    return DeviceRequest(
        gpus=gpus,
        core=-(-asked.get(CORE, asked.get(GPU, 0)) // gpus),
        ratio=ratio,
        memory=-(-asked.get(MEMORY, 0) // gpus),
        whole=ratio >= WHOLE,
        rdma=rdma,
        fpga=fpga,
    )


def dimensions(amounts: Mapping[str, int], whole: Collection[str]) -> dict[str, int]:
    """Return amounts without contradiction in Koordinator's dimensions; `whole` are the names of whole GPUs."""
    named = {name: amount for name, amount in amounts.items() if name in KOORDINATOR and name != GPU and amount}
    percent = amounts.get(GPU, 0) or sum(amount for name, amount in amounts.items() if name in whole) * WHOLE
    return {CORE: percent, RATIO: percent, **named} if percent else named
