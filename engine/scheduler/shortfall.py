"""The numbers of a failed plan: needed, available and limiting resources, devices among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import numpy as np

from engine.api import names
from engine.api.device import DeviceRequest
from engine.api.placement import PodSetRequest
from engine.api.pod import Shape, Toleration
from engine.api.resources import is_claim
from engine.capacity.capacity import Capacity, SlotCounts
from engine.planner.plan import NoFit, domain_slots, most_slots
from engine.planner.slices import Slices
from engine.planner.tree import Bools, Ints64
from engine.resources.names import KOORDINATOR, RDMA, WHOLE, whole_names
from engine.resources.request import asked_in_words
from engine.resources.shape import TAINT, repairable
from engine.scheduler.outcome import BestDomain, Proposal, Shortage
from engine.topology.topology import Topology

# Why an eligible host has no slot now, or not even when it is empty; messages count the nodes by these words too.
IN_USE: Final = "in use"
EXPECTED: Final = "kept for DaemonSets"
IN_PART: Final = "with GPUs used in part"
APART: Final = "with too few free GPUs in one scope"
UNSUITABLE: Final = "with too few free GPUs of these labels"
NO_FUNCTIONS: Final = "with too few free virtual functions"
NO_CARDS: Final = "with too few free RDMA devices of this kind"
TOO_SMALL: Final = "too small"
DEVICES_SHORT: Final = "with too few free GPUs or devices"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShortfall:
    """The devices that a pod requests, and those of the best host.

    asked       in words (`4 GPUs`, `50% of a GPU`)
    gpus        whole GPUs of a pod; 0: parts of GPUs, or other devices only
    free        whole GPUs free on the eligible host with most of them
    free_in_all whole GPUs free on all eligible hosts
    in_part     GPUs used in part on that host
    freest      percent left of the freest GPU of an eligible host; None: not known of any
    most        whole GPUs of the largest host, in use or not
    scope       what the GPUs of a pod must share; "": nothing
    in_scope    most GPUs that share such a scope on any host, in use or not; 0: no host reports such scopes
    selected    pods that fit on all GPUs with the labels that they want, wherever these are, in use or not; None: any
                GPU will do
    cards       pods that fit on all RDMA devices and virtual functions that they want, in use or not, wherever their
                GPUs are; None: any RDMA device will do
    wanted      the annotations about those devices
    """

    asked: str
    gpus: int
    free: int
    free_in_all: int
    in_part: int
    freest: int | None
    most: int
    scope: str = ""
    in_scope: int = 0
    selected: int | None = None
    cards: int | None = None
    wanted: tuple[str, ...] = ()

    @property
    def reported_only(self) -> bool:
        """True if only devices of a Device object will do."""
        return bool(self.scope) or self.selected is not None or self.cards is not None


def device_shortfall(
    shape: Shape, topology: Topology, capacity: Capacity, reasons: Sequence[str]
) -> DeviceShortfall | None:
    """Return the device numbers of a shape; None if it requests none. `reasons` as of `Capacity`."""
    request, name = shape.devices, device_name(shape)
    if request is None or name is None:
        return None
    eligible = np.array([not reason for reason in reasons], dtype=np.bool_)
    whole = np.where(eligible, capacity.whole_gpus(name, topology), 0)
    best = int(whole.max(initial=0))
    hosts = topology.tree.hosts
    partly = [capacity.gpus_in_part(hosts[place]) for place in np.flatnonzero(eligible & (whole == best))[:16].tolist()]
    freest = None
    if capacity.devices_matter and (request.gpus or not request.others):
        freest = np.where(eligible, capacity.freest_gpu(request, topology), 0)
    return DeviceShortfall(
        asked=asked_in_words(request),
        gpus=request.gpus if request.whole else 0,
        free=best,
        free_in_all=int(whole.sum()),
        in_part=max(partly, default=0),
        freest=None if freest is None or not freest.any() else int(freest.max()),
        most=capacity.largest(name, topology) // (WHOLE if name in KOORDINATOR else 1),
        scope=request.scope,
        in_scope=_most_in_scope(shape, request, topology, capacity),
        selected=_selected(shape, request, topology, capacity),
        cards=_cards(shape, request, topology, capacity),
        wanted=tuple(
            name
            for name, is_wanted in (
                (names.RDMA_SELECTOR, request.rdma_selector),
                (names.VF_SELECTOR, request.vf_selector is not None),
                (names.RDMA_SCOPE, request.joint),
            )
            if is_wanted
        ),
    )


def _cards(shape: Shape, request: DeviceRequest, topology: Topology, capacity: Capacity) -> int | None:
    if not request.particular:
        return None
    alone = DeviceRequest(rdma=request.rdma, rdma_selector=request.rdma_selector, vf_selector=request.vf_selector)
    return int(capacity.count(replace(shape, devices=alone), topology).built.sum())


def with_any_cards(shape: Shape, topology: Topology, capacity: Capacity, counted: SlotCounts) -> SlotCounts:
    """Return the slots if any RDMA devices would do: the particular ones cause any lower count."""
    if shape.devices is None or not shape.devices.particular:
        return counted
    plain = replace(shape.devices, rdma_selector=(), vf_selector=None, rdma_scope="")
    return capacity.count(replace(shape, devices=plain), topology)


def _selected(shape: Shape, request: DeviceRequest, topology: Topology, capacity: Capacity) -> int | None:
    if not request.selector:
        return None
    anywhere = replace(shape, devices=replace(request, scope=""))
    return int(capacity.count(anywhere, topology).built.sum())


def _most_in_scope(shape: Shape, request: DeviceRequest, topology: Topology, capacity: Capacity) -> int:
    """Return the most GPUs, up to the request's number, that share its scope on a host of the topology."""
    if request.scope not in capacity.device_scopes:
        return 0
    for gpus in range(request.gpus, 1, -1):
        if capacity.count(replace(shape, devices=replace(request, gpus=gpus)), topology).empty.any():
            return gpus
    return 1


def without_devices(shape: Shape, topology: Topology, capacity: Capacity, counted: SlotCounts) -> SlotCounts:
    """Return the slots by the resources of nodes alone: the devices cause any lower count."""
    if shape.devices is None or not capacity.devices_matter:
        return counted
    return capacity.count(replace(shape, devices=None), topology)


def full_hosts(
    shape: Shape,
    topology: Topology,
    capacity: Capacity,
    *,
    eligible: Bools,
    counted: SlotCounts,
    by_numbers: SlotCounts,
) -> Iterator[tuple[str, Ints64]]:
    """Yield why eligible hosts without a free slot have none, each reason with the places of its hosts.

    `by_numbers`: the slots by the resources of nodes alone. DEVICES_SHORT: these have room, the devices have not.
    """
    no_slot = eligible & (counted.free == 0)
    used = no_slot & (counted.empty > 0)
    yield DEVICES_SHORT, np.flatnonzero(used & (by_numbers.free > 0))
    used &= by_numbers.free <= 0
    # Few hosts wait for pods of DaemonSets, and fewer have faulty devices: these alone are looked at one by one.
    hosts = topology.tree.hosts
    late = (topology.tree.index.get(host) for host in capacity.hosts_expecting())
    expecting = [place for place in late if place is not None and used[place]]
    kept = [place for place in expecting if capacity.fits_but_for_expected(shape, hosts[place])]
    used[kept] = False
    yield EXPECTED, np.array(sorted(kept), dtype=np.int64)
    yield IN_USE, np.flatnonzero(used)
    small = no_slot & (counted.empty <= 0)
    for place in np.flatnonzero(small & (by_numbers.empty > 0)).tolist():
        if problem := capacity.device_problem(hosts[place]):
            small[place] = False
            yield problem, np.array([place], dtype=np.int64)
    yield TOO_SMALL, np.flatnonzero(small)


def device_name(shape: Shape) -> str | None:
    """Return the name by which a shape requests GPUs, a vendor's first; without GPUs that of another device."""
    names = {name for name, amount in shape.requests if amount > 0}
    vendors = sorted(names & whole_names())
    ours = sorted(names & KOORDINATOR)
    request = shape.devices or DeviceRequest()
    others = [part.name for _, part in request.others]
    return next(filter(None, [*vendors, request.name, *ours, *others]), None)


def unreported(shape: Shape, capacity: Capacity) -> tuple[str, ...]:
    """Return the extended resources that the shape requests and no node has."""
    return tuple(
        name
        for name, amount in shape.requests
        if amount > 0 and "/" in name and not is_claim(name) and not capacity.reports(name)
    )


_MOST_NAMES: Final = 12  # of resources in a message; a node may report one for each profile of MIG


def _reported_instead(missing: Sequence[str], capacity: Capacity) -> tuple[str, ...]:
    """Return the names of devices, and those of the same vendors, that nodes report beside names that none reports."""
    vendors = tuple(f"{name.partition('/')[0]}/" for name in missing)
    reported = sorted(capacity.hosts_by_resource()) if missing else []
    return tuple(name for name in reported if capacity.counts_devices(name) or name.startswith(vendors))[:_MOST_NAMES]


_MOST_SIZES: Final = 16  # of smaller slices that are tried
WHOLE_TOPOLOGY: Final = "topology"  # value of `fits_level` if only the whole topology has enough slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The numbers of a plan that did not fit.

    count           pods that need slots
    whole           all pods of the gang, where `count` of them are enough for it; None: `count` are all
    level           alias of the required level; None: the whole topology
    domains         domains of that level that were examined
    best            last label value of the domain with the most free slots; None: there is none
    best_slots      its free slots
    best_domains    the domain with the most free slots at each level, coarse to fine
    total_slots     free slots of all eligible hosts
    capacity_best   slots of the largest domain, empty, counting healthy eligible hosts
    capacity_total  the same of the whole topology
    per_host        slots of the largest empty host; None: unknown
    hosts           nodes examined
    exclusions      nodes by the reason why they have no room: the words of `engine.resources.shape`, `Topology.outside`
                    and this module; the rest of `hosts` has room
    limiting        the resource that runs out first
    fits_level      nearest coarser level with a domain that has room now, "topology" for the whole; None: nowhere
    gpus_per_pod    whole GPUs that a pod asks for
    ceiling         as capacity_best, counting cordoned, not ready and tainted hosts too: what no repair can exceed.
                    None: estimated from the number of such hosts, which never gives Never too early
    ceiling_total   the same of the whole topology
    fewer_fit       whether as many pods as the best domain has room for would be placed
    names_hosts     whether a host may be named: it is not the gang's own
    largest         last label value and number of hosts of the domain with capacity_best
    roomier         nearest coarser level with an empty domain that holds the gang, with its slots
    host_gpus       GPUs of the largest host
    slices          level and size, coarse to fine: so many pods at a time have to share one domain of the level.
                    If there are any, all numbers of slots are of whole slices
    smaller_slice   the largest smaller slice with which the gang would fit on the empty, repaired hosts; None: there is
                    no such size, or several layers of slices
    tolerate        key of a taint: a toleration for it would make room for the gang now
    devices         what its pods need of the hosts' devices; None: nothing
    too_big         a resource of a pod that exceeds every host: its name, units of a pod, most of a host
    unreported      names that its pods ask for and no node reports
    reported        names of devices, and of the same vendors, that nodes do report, set if there are unreported ones
    """

    count: int
    level: str | None
    domains: int
    best: str | None
    best_slots: int
    total_slots: int
    capacity_best: int
    capacity_total: int
    per_host: int | None
    hosts: int
    exclusions: Mapping[str, int] = field(default_factory=dict)
    limiting: str | None = None
    fits_level: str | None = None
    gpus_per_pod: int = 0
    ceiling: int | None = None
    ceiling_total: int | None = None
    largest: tuple[str, int] | None = None
    roomier: tuple[str, int] | None = None
    host_gpus: int | None = None
    smaller_slice: int | None = None
    tolerate: str | None = None
    devices: DeviceShortfall | None = None
    unreported: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    slices: tuple[tuple[str, int], ...] = ()
    whole: int | None = None
    too_big: tuple[str, int, int] | None = None
    best_domains: tuple[BestDomain, ...] = ()
    names_hosts: bool = True
    fewer_fit: bool = True

    @property
    def shortage(self) -> Shortage:
        """Return the numbers that a Placement shows."""
        have = self.total_slots if self.level is None else self.best_slots
        fits_anywhere = self.fits_level == WHOLE_TOPOLOGY
        proposal = Proposal(
            level=None if fits_anywhere else self.fits_level,
            unconstrained=fits_anywhere or None,
            toleration=self.tolerate,
            pods=have if self.fewer_fit and 0 < have < self.count else None,
        )
        return Shortage(self.count, have, self.best_domains, None if proposal == Proposal() else proposal)


def shortfall_of(
    answer: NoFit,
    ask: PodSetRequest,
    shape: Shape,
    topology: Topology,
    *,
    capacity: Capacity,
    counted: SlotCounts,
    reasons: list[str],
    names_hosts: bool = True,
    hints: bool = True,
) -> Shortfall:
    """Return the numbers of a plan that did not fit. `names_hosts`: also by name the hosts on which others run.

    `hints`: also the changes that would make room; rules among the gang's own pods could be in their way.
    """
    tree = topology.tree
    level = answer.level
    least = max(1, ask.in_whole_slices(ask.min_available))
    empty = counted.empty
    usable = np.array([not reason for reason in reasons], dtype=np.bool_)
    sound = np.array([not reason or repairable(reason) for reason in reasons], dtype=np.bool_)
    built = np.where(sound, counted.built, 0)
    slices = topology.slices(ask.slices)
    by_numbers = without_devices(shape, topology, capacity, counted)
    ceiling = int(domain_slots(topology.tree, built, level, slices).max(initial=0))
    sums_empty = domain_slots(topology.tree, empty, level, slices)
    largest = int(sums_empty.argmax()) if level >= 0 and len(empty) else -1
    any_cards = with_any_cards(shape, topology, capacity, counted)
    full = full_hosts(shape, topology, capacity, eligible=usable, counted=counted, by_numbers=by_numbers)
    per_host = int(empty.max()) if len(empty) else 0
    # What is free on hosts that are too small in another way helps no pod.
    unfit = [why if why or fits else TOO_SMALL for why, fits in zip(reasons, counted.built > 0, strict=True)]
    devices = device_shortfall(shape, topology, capacity, unfit)
    level_stays = ask.require != names.AUTO  # for fewer pods, or with more hosts, `auto` may mean a finer level
    gpus_per_pod, host_gpus = _gpus(shape, devices, capacity, topology)
    missing = unreported(shape, capacity)
    return Shortfall(
        count=least,
        whole=ask.count if least < ask.count else None,
        level=topology.levels[level].name if level >= 0 else None,
        domains=answer.domains,
        best=tree.path(level, answer.best)[-1] if answer.best >= 0 and level >= 0 else None,
        best_slots=answer.best_slots,
        total_slots=answer.total_slots,
        capacity_best=int(sums_empty.max()) if len(sums_empty) else 0,
        capacity_total=int(domain_slots(topology.tree, empty, -1, slices).max(initial=0)),
        per_host=per_host or None,
        hosts=len(tree.hosts) + len(topology.outside),
        exclusions=_exclusions(reasons, full, shape.devices, topology, any_cards=any_cards.free > 0),
        slices=ask.slices,
        best_domains=_best_domains(
            answer, topology, np.where(usable, counted.free, 0), slices, names_hosts=names_hosts
        ),
        names_hosts=names_hosts,
        fewer_fit=hints and level_stays and least >= ask.count,  # its minimum stays, and fewer pods are refused
        limiting=RDMA
        if any_cards.free.sum() > counted.free.sum()
        else _limiting(shape, capacity, topology, counted=counted, by_numbers=by_numbers),
        fits_level=_fits(answer.fits_level, topology) if hints else None,
        gpus_per_pod=gpus_per_pod,
        ceiling=ceiling,
        ceiling_total=int(domain_slots(tree, built, -1, slices).max(initial=0)),
        largest=(tree.path(level, largest)[-1], _hosts_in(topology, level, largest)) if largest >= 0 else None,
        roomier=_coarser_level(topology, level, empty, least, slices),
        smaller_slice=_smaller_slice(topology, built, level, ask) if ceiling < least else None,
        tolerate=_blocking_taint(answer, ask, shape, topology, capacity=capacity, reasons=reasons)
        if hints and level_stays
        else None,
        host_gpus=host_gpus,
        devices=devices,
        too_big=_too_big(shape, capacity, topology),
        unreported=missing,
        reported=_reported_instead(missing, capacity),
    )


def _exclusions(
    reasons: Sequence[str],
    full: Iterable[tuple[str, Ints64]],
    request: DeviceRequest | None,
    topology: Topology,
    *,
    any_cards: Bools,
) -> dict[str, int]:
    """Return the number of hosts for each reason why they cannot take a pod, or no further one.

    `reasons`: of each host, empty where it can; `full`: reasons why others have no room, with the hosts. `any_cards`:
    hosts with room, if any network card were enough.
    """
    first = {why: reasons.index(why) for why in dict.fromkeys(reasons) if why}
    counts = Counter(filter(None, reasons))
    for why, places in full:
        for words, among in _by_device(places, request, any_cards) if why == DEVICES_SHORT else ((why, places),):
            if len(among):
                first[words] = min(int(among[0]), first.get(words, len(reasons)))
                counts[words] += len(among)
    # In the order of the first host of each, by which messages decide between equal numbers.
    exclusions = Counter({why: counts[why] for why in sorted(counts, key=lambda one: first[one])})
    for reason in topology.outside.values():
        exclusions[reason] += 1
    return dict(exclusions)


def _by_device(
    places: Ints64, request: DeviceRequest | None, any_cards: Bools
) -> tuple[tuple[str, Ints64], tuple[str, Ints64]]:
    """Return the hosts that are short of network cards, and those that are short of GPUs, with their reasons."""
    gpus_short = UNSUITABLE if request and request.selector else APART if request and request.scope else IN_PART
    cards_short = NO_FUNCTIONS if request and request.vf_selector is not None else NO_CARDS
    cards = any_cards[places]
    return (cards_short, places[cards]), (gpus_short, places[~cards])


def _gpus(
    shape: Shape, devices: DeviceShortfall | None, capacity: Capacity, topology: Topology
) -> tuple[int, int | None]:
    """Return the whole GPUs that a pod asks for, and those of the largest host."""
    if devices is not None:
        return devices.gpus, devices.most
    amounts = {name: amount for name, amount in shape.requests if name.endswith("/gpu")}
    largest = capacity.largest(next(iter(amounts)), topology) if amounts else None
    return sum(amounts.values()), largest


def _best_domains(
    answer: NoFit, topology: Topology, free: Ints64, slices: tuple[Slices, ...], *, names_hosts: bool
) -> tuple[BestDomain, ...]:
    """Return the best domain of each level with any room; at the required level that of the planner's answer.

    Without `names_hosts` the path of the best host ends with the domain in which it is.
    Rules between the gang's own pods may leave less of it than its free slots.
    """
    tree = topology.tree
    found = list(most_slots(tree, free, slices))
    if 0 <= answer.level < len(found):
        found[answer.level] = (answer.best, answer.best_slots)
    last = len(topology.levels) - 1
    return tuple(
        BestDomain(
            topology.levels[level].name,
            tree.path(level, domain)[: None if names_hosts or level < last else -1],
            pods,
        )
        for level, (domain, pods) in enumerate(found)
        if pods > 0 and domain >= 0
    )


def _smaller_slice(topology: Topology, built: Ints64, level: int, ask: PodSetRequest) -> int | None:
    """Return the largest divisor of the pods below the size of the slices with which all of them would fit."""
    if len(ask.slices) != 1:
        return None
    ((alias, size),) = ask.slices
    smaller = (one for one in range(min(size, ask.count) - 1, 1, -1) if ask.count % one == 0)
    for one in islice(smaller, _MOST_SIZES):
        slots = domain_slots(topology.tree, built, level, topology.slices(((alias, one),)))
        if slots.max(initial=0) >= min(ask.count, ask.min_available):
            return one
    return None


def _too_big(shape: Shape, capacity: Capacity, topology: Topology) -> tuple[str, int, int] | None:
    """Return the first resource that exceeds every host: its name, a pod's request, the maximum of a host."""
    for name, amount in shape.requests:
        if amount > (most := capacity.largest(name, topology)):
            return name, amount, most
    return None


def _blocking_taint(
    answer: NoFit, ask: PodSetRequest, shape: Shape, topology: Topology, *, capacity: Capacity, reasons: list[str]
) -> str | None:
    """Return the taint that excludes most hosts, if the gang would fit now with the tainted hosts."""
    taints = Counter({why: hosts for why, hosts in Counter(reasons).items() if why.startswith(TAINT)})
    for taint, _ in taints.most_common(1):
        key = taint.removeprefix(TAINT)
        tolerant = replace(shape, tolerations=(*shape.tolerations, Toleration(key, "Exists", "", "")))
        usable = np.array([reason in ("", taint) for reason in reasons], dtype=np.bool_)
        free = np.where(usable, capacity.count(tolerant, topology).free, 0)
        most = int(domain_slots(topology.tree, free, answer.level, topology.slices(ask.slices)).max(initial=0))
        if most >= min(ask.count, ask.min_available):
            return key
    return None


def _hosts_in(topology: Topology, level: int, domain: int) -> int:
    first, end = topology.tree.range(level, domain)
    return end - first


def _coarser_level(
    topology: Topology, level: int, empty: Ints64, count: int, slices: tuple[Slices, ...]
) -> tuple[str, int] | None:
    """Return the nearest coarser level with an empty domain that holds the gang."""
    for coarser in range(level - 1, -1, -1):
        most = int(domain_slots(topology.tree, empty, coarser, slices).max(initial=0))
        if most >= count:
            return topology.levels[coarser].name, most
    return None


def _fits(level: int | None, topology: Topology) -> str | None:
    if level is None:
        return None
    return topology.levels[level].name if level >= 0 else WHOLE_TOPOLOGY


def _limiting(
    shape: Shape, capacity: Capacity, topology: Topology, *, counted: SlotCounts, by_numbers: SlotCounts
) -> str | None:
    """Return the requested resource that is free for the fewest pods."""
    if (name := device_name(shape)) is not None and counted.free.sum() < by_numbers.free.sum():
        return name  # the resources suffice, the devices do not
    worth = [
        (int((capacity.free_of(resource, topology) // amount).sum()), resource)
        for resource, amount in shape.requests
        if amount > 0 and resource != "pods"
    ]
    return min(worth)[1] if worth else None
