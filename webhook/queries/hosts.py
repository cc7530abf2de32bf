"""What every host of a topology has, and who holds it: GPUs by state, reasons why it takes no pods, gangs.

GPUs are counted whole: one that is used in part counts as used. Arrays are in the order of the topology's tree.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from engine.api.device import DeviceRequest
from engine.api.placement import kept_hosts
from engine.api.pod import Shape
from engine.api.resources import Requests
from engine.api.workload import GangKey
from engine.cache.state import ClusterState
from engine.gang.key import is_gang_key
from engine.gang.summary import gpus_of
from engine.planner.tree import Bools, Ints64
from engine.resources.names import CORE, NVIDIA, WHOLE, is_gpu, whole_names
from engine.scheduler.separation import barred_hosts
from engine.topology.topology import Topology
from webhook.queries.names import gang_label
from webhook.queries.probe import DEFAULT_GPUS, probe
from webhook.snapshot.snapshot import Snapshot

_ONE: Final = 1


@dataclass(frozen=True, slots=True)
class Holding:
    """The pods of one gang on one host: bound ones, and those still to come. `gpus`: of all of them, in whole ones."""

    key: GangKey
    pods: int
    reserved: int
    gpus: int


@dataclass(frozen=True, slots=True)
class HostTable:
    """The hosts of one topology. The arrays of GPUs add up: total = used + reserved + kept + out + free.

    `reasons`: why a host takes no pods now, "" where it does. `slots`: pods of the probe's shape that fit now, `empty`:
    on the host without pods. `kept_for`: the gang that a host is kept for. `holdings`: by host. `others`: bound pods of
    no gang.
    """

    topology: Topology
    total: Ints64
    used: Ints64
    reserved: Ints64
    kept: Ints64
    out: Ints64
    free: Ints64
    reasons: Sequence[str]
    slots: Ints64
    empty: Ints64
    free_hosts: Bools
    kept_for: Mapping[str, GangKey]
    holdings: Mapping[str, Sequence[Holding]]
    others: Mapping[str, int]
    pod_gpus: int

    def label(self, view: ClusterState, host: str) -> str | None:
        """Return the gang that a host is kept for, in words; None for no gang."""
        key = self.kept_for.get(host)
        return None if key is None else gang_label(view, key)


@dataclass(frozen=True, slots=True)
class Holders:
    """Who holds what, by host; the same for all topologies."""

    holdings: Mapping[str, Sequence[Holding]]
    others: Mapping[str, int]
    kept_for: Mapping[str, GangKey]
    reserved_gpus: Mapping[str, int]


def holders_of(view: ClusterState) -> Holders:
    """Return who holds what on each host, by the pods, the reservations and the nominations."""
    pods: defaultdict[str, Counter[GangKey]] = defaultdict(Counter)
    reserved: defaultdict[str, Counter[GangKey]] = defaultdict(Counter)
    others: Counter[str] = Counter()
    gpus: Counter[str] = Counter()
    of_gang: Counter[tuple[str, GangKey]] = Counter()
    kinds = view.policy.device_kinds

    @cache  # many pods request the same
    def of_one(requests: Requests, devices: DeviceRequest | None) -> int:
        return gpus_of(requests, kinds.extended(devices, requests))

    for pod in view.stores.pods.values():
        if pod.finished or not pod.spec.node_name:
            continue
        key = view.gangs.gang_of(pod)
        if key is not None and view.gangs.placed(key):
            pods[pod.spec.node_name][key] += 1
            of_gang[pod.spec.node_name, key] += of_one(pod.spec.shape.requests, pod.spec.shape.devices)
        else:
            others[pod.spec.node_name] += 1
    for of, host, found in view.capacity.reservations():
        of_all = found.count * gpus_of(found.requests, found.devices)
        gpus[host] += of_all
        if is_gang_key(of):
            reserved[host][of] += found.count
            of_gang[host, of] += of_all
    kept = {host: key for key, _, placement in view.gangs.keeping() for host in kept_hosts(placement.status)}
    holdings = {
        host: [
            Holding(key, pods[host][key], reserved[host][key], of_gang[host, key])
            for key in {**pods[host], **reserved[host]}
        ]
        for host in {**pods, **reserved}
    }
    return Holders(holdings, others, kept, gpus)


def host_table(snapshot: Snapshot, topology: Topology, holders: Holders, *, gpus: int | None = None) -> HostTable:
    """Return the hosts of a topology; slots are of pods with so many GPUs (None: eight, or all of the largest host)."""
    view, tree = snapshot.view, topology.tree
    resource, total = _gpu_counters(view, topology)
    largest = int(total.max()) if len(total) else 0
    pod_gpus = min(DEFAULT_GPUS, largest) if gpus is None else gpus
    one = _gang_shape(view, topology, gpus=min(_ONE, largest))
    whole = _whole_free(view, topology, resource)
    reasons = view.capacity.reasons(one, topology)
    counted = view.capacity.count(one, topology)
    eligible = np.fromiter((not why for why in reasons), dtype=np.bool_, count=len(reasons))
    faulty = np.minimum(np.where(eligible, np.maximum(counted.built - counted.empty, 0), 0), total)
    whole = np.minimum(whole, total - faulty)
    reserved = np.zeros(len(tree.hosts), dtype=np.int64)
    for host in holders.reserved_gpus.keys() & tree.index.keys():
        place, most = tree.index[host], holders.reserved_gpus[host]
        if most and (unused := view.capacity.gpus_free_of_pods(host)) is not None:
            most = min(most, max(0, unused - int(whole[place])))  # parts may share a GPU, also with a pod that is bound
        reserved[place] = most
    reserved = np.minimum(reserved, total - faulty - whole)
    kept_here = np.zeros(len(tree.hosts), dtype=np.bool_)
    kept_here[[tree.index[host] for host in holders.kept_for if host in tree.index]] = True
    out = np.where(eligible, 0, whole) + faulty
    kept = np.where(eligible & kept_here, whole, 0)
    free = np.where(eligible & ~kept_here, whole, 0)
    probed = _gang_shape(view, topology, gpus=pod_gpus)
    slots, empty = _slots(snapshot, topology, probed, kept=kept_here)
    return HostTable(
        topology=topology,
        total=total,
        used=total - reserved - kept - out - free,
        reserved=reserved,
        kept=kept,
        out=out,
        free=free,
        reasons=reasons,
        slots=slots,
        empty=empty,
        free_hosts=(slots > 0) & (slots == empty),
        kept_for=holders.kept_for,
        holdings=holders.holdings,
        others=holders.others,
        pod_gpus=pod_gpus,
    )


def _gpu_counters(view: ClusterState, topology: Topology) -> tuple[list[str], Ints64]:
    """Return for every host the resource that counts its GPUs ("": it has none), and how many it has."""
    vendors = whole_names(view.policy.gpu.vendors)
    reported = view.capacity.hosts_by_resource()
    wanted = sorted((one for one in reported if one in vendors or is_gpu(one)), key=lambda one: (one != NVIDIA, one))
    total = np.zeros(len(topology.tree.hosts), dtype=np.int64)
    chosen = np.full(len(total), -1)
    for number, name in enumerate([*wanted, CORE]):
        amounts = view.capacity.free_of(name, topology, empty=True) // (WHOLE if name == CORE else 1)
        fresh = (chosen < 0) & (amounts > 0)
        chosen[fresh] = number
        total[fresh] = amounts[fresh]
    names = [*wanted, CORE, ""]
    return [names[number] for number in chosen.tolist()], total


def _whole_free(view: ClusterState, topology: Topology, names: Sequence[str]) -> Ints64:
    """Return the unused whole GPUs of every host, reserved ones not included."""
    found = np.zeros(len(names), dtype=np.int64)
    for name in {*names} - {""}:
        mine = np.fromiter((one == name for one in names), np.bool_, len(names))
        np.copyto(found, np.maximum(view.capacity.whole_gpus(name, topology), 0), where=mine)
    return found


def _gang_shape(view: ClusterState, topology: Topology, *, gpus: int) -> Shape:
    gang = probe(view, pods=1, gpus=gpus, topology=topology.name)
    return gang.shapes[gang.workload.pod_sets[0].name]


def _slots(snapshot: Snapshot, topology: Topology, shape: Shape, *, kept: Bools) -> tuple[Ints64, Ints64]:
    """Return how many pods of a shape fit on each host, now and without any pods.

    Not on hosts that are kept for another gang, have just joined, or are in domains of exclusive gangs.
    """
    view = snapshot.view
    counted = view.capacity.count(shape, topology)
    closed = kept.copy()
    late = view.unsettled(snapshot.taken)
    closed[[topology.tree.index[host] for host in late if host in topology.tree.index]] = True
    for hosts in barred_hosts(view, probe(view, pods=1, gpus=0, topology=topology.name), None, topology).values():
        closed |= hosts
    return np.where(closed, 0, counted.free), counted.empty


def shares(values: Iterable[int], largest: int) -> float | None:
    """Return which share of all slots the largest domain has no room for; None without any."""
    total = sum(values)
    return None if total == 0 else round(1 - largest / total, 3)
