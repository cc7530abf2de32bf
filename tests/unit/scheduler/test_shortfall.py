from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api.reasons import REASONS
from engine.scheduler.explain import infeasible
from engine.scheduler.outcome import Never, Waits
from engine.scheduler.shortfall import Shortfall
from engine.topology.topology import OUTSIDE_SELECTOR
from tests.support.golden import golden

# 512 nodes in racks of at most 18; a pod takes a whole host of 8 GPUs.
WHOLE_HOSTS = Shortfall(
    count=16,
    level="rack",
    domains=40,
    best="rack-07",
    best_slots=14,
    total_slots=30,
    capacity_best=18,
    capacity_total=480,
    per_host=1,
    hosts=512,
    exclusions={"in use": 450, "cordoned": 20, "no label rack": 12},
    limiting="nvidia.com/gpu",
    gpus_per_pod=8,
    ceiling=18,
)
# The same with four pods of 2 GPUs on a host.
SHARED_HOSTS = replace(WHOLE_HOSTS, count=64, per_host=4, gpus_per_pod=2, capacity_best=72, ceiling=72, best_slots=50)
CPU_ONLY = replace(SHARED_HOSTS, gpus_per_pod=0, limiting="cpu", total_slots=120)
WITHOUT_LEVEL = replace(
    WHOLE_HOSTS, level=None, domains=1, best=None, total_slots=9, capacity_best=480, exclusions={"in use": 503}
)
NONE_ELIGIBLE = replace(
    WHOLE_HOSTS, best=None, best_slots=0, total_slots=0, capacity_best=0, capacity_total=0, ceiling=0
)
NOTHING_FREE = replace(
    WHOLE_HOSTS, best=None, best_slots=0, total_slots=0, exclusions={"in use": 480, "cordoned": 20, "no label rack": 12}
)
NOTHING_FREE_CPU = replace(NOTHING_FREE, per_host=4, gpus_per_pod=0, limiting="cpu")
ONE_HOST = replace(CPU_ONLY, level="host", count=4, capacity_best=4, best="host-028", best_slots=3)

SLICED = replace(
    WITHOUT_LEVEL, count=64, slices=(("rack", 32),), total_slots=0, capacity_best=0, capacity_total=0, ceiling=0
)

CASES: dict[str, tuple[str, Shortfall]] = {
    "fragmented": ("Fragmented", WHOLE_HOSTS),
    "fragmented, one level up has room": ("Fragmented", replace(WHOLE_HOSTS, fits_level="block")),
    "fragmented, only the whole topology has room": ("Fragmented", replace(WHOLE_HOSTS, fits_level="topology")),
    "fragmented, pods share hosts": ("Fragmented", replace(SHARED_HOSTS, total_slots=120)),
    "fragmented, pods without GPUs": ("Fragmented", CPU_ONLY),
    "fragmented over hosts": (
        "Fragmented",
        replace(CPU_ONLY, level="host", count=4, capacity_best=4, best="h-1", best_slots=3),
    ),
    "fragmented over hosts that are not named": (
        "Fragmented",
        replace(CPU_ONLY, level="host", count=4, capacity_best=4, best="h-1", best_slots=3, names_hosts=False),
    ),
    "a single domain": ("Fragmented", replace(CPU_ONLY, domains=1)),
    "too few GPUs, whole hosts": ("InsufficientFreeGPUs", replace(WHOLE_HOSTS, best_slots=3, total_slots=15)),
    "too few GPUs, shared hosts": ("InsufficientFreeGPUs", replace(SHARED_HOSTS, total_slots=63)),
    "too few hosts": ("InsufficientFreeHosts", replace(CPU_ONLY, total_slots=63)),
    "nothing free": ("InsufficientFreeGPUs", NOTHING_FREE),
    "nothing free, shared hosts": (
        "InsufficientFreeHosts",
        NOTHING_FREE_CPU,
    ),
    "no level, whole hosts": ("InsufficientFreeGPUs", WITHOUT_LEVEL),
    "no level, shared hosts": ("InsufficientFreeGPUs", replace(WITHOUT_LEVEL, per_host=4)),
    "no level, nothing free": ("InsufficientFreeGPUs", replace(NOTHING_FREE, level=None)),
    "one of each": (
        "InsufficientFreeGPUs",
        replace(
            WHOLE_HOSTS, count=1, domains=1, best=None, best_slots=0, total_slots=0, hosts=1, exclusions={"in use": 1}
        ),
    ),
    "nodes are cordoned": ("NodesUnhealthy", replace(WHOLE_HOSTS, capacity_best=14)),
    "nodes are cordoned, ceiling unknown": ("NodesUnhealthy", replace(WHOLE_HOSTS, capacity_best=14, ceiling=None)),
    "nodes are tainted": (
        "NodesExcluded",
        replace(WHOLE_HOSTS, capacity_best=14, exclusions={"taint gpu": 300, "not ready": 1, "node affinity": 4}),
    ),
    "more reasons than a line takes": (
        "NodesUnhealthy",
        replace(WHOLE_HOSTS, capacity_best=14, exclusions={"cordoned": 50} | {f"taint t{n}": n for n in range(1, 9)}),
    ),
    "all nodes are not ready": ("NodesUnhealthy", replace(NONE_ELIGIBLE, exclusions={"not ready": 510, "cordoned": 2})),
    "the node selector fits no node": ("NodesExcluded", replace(NONE_ELIGIBLE, exclusions={"nodeSelector": 512})),
    "the node selector fits no node of the topology": (
        "NodesExcluded",
        replace(NONE_ELIGIBLE, exclusions={"nodeSelector": 12, OUTSIDE_SELECTOR: 500}),
    ),
    "the topology's node selector fits no node": (
        "LabelsMissing",
        replace(NONE_ELIGIBLE, domains=0, exclusions={OUTSIDE_SELECTOR: 512}),
    ),
    "all nodes of the topology are cordoned": (
        "NodesUnhealthy",
        replace(NONE_ELIGIBLE, exclusions={OUTSIDE_SELECTOR: 500, "cordoned": 12}),
    ),
    "no node is labelled": (
        "LabelsMissing",
        replace(NONE_ELIGIBLE, domains=0, exclusions={OUTSIDE_SELECTOR: 500, "no label rack": 12}),
    ),
    "so many are enough": ("Fragmented", replace(WHOLE_HOSTS, count=16, whole=20)),
    "so many are enough, pods share hosts": ("Fragmented", replace(SHARED_HOSTS, total_slots=120, whole=96)),
    "most nodes are not labelled": (
        "LabelsMissing",
        replace(NONE_ELIGIBLE, exclusions={"cordoned": 12, "no label rack": 500}),
    ),
    "no nodes": ("LabelsMissing", replace(NONE_ELIGIBLE, domains=0, hosts=0, exclusions={})),
    "hostile names": (
        "InsufficientFreeGPUs",
        replace(
            WHOLE_HOSTS, level="r\x1b[31m", best="\n" * 99, total_slots=15, exclusions={"taint \u202e" + "x" * 999: 5}
        ),
    ),
}

NEVER: dict[str, tuple[str, Shortfall]] = {
    "slices that no rack holds, smaller ones would do": (
        "GangTooLarge",
        replace(SLICED, smaller_slice=16),
    ),
    "slices of which some racks hold one, smaller ones would do": (
        "GangTooLarge",
        replace(SLICED, smaller_slice=16, capacity_best=32, capacity_total=32, ceiling=32),
    ),
    "slices that no rack holds, and no smaller ones would do": ("GangTooLarge", SLICED),
    "slices in a required block, smaller ones would do": (
        "GangTooLarge",
        replace(SLICED, level="block", smaller_slice=16, capacity_total=480),
    ),
    "larger than every rack": (
        "GangTooLarge",
        replace(WHOLE_HOSTS, count=80, capacity_best=72, ceiling=72, largest=("rack-07", 72), roomier=("block", 576)),
    ),
    "larger than every rack, nothing more known": ("GangTooLarge", replace(WHOLE_HOSTS, count=80)),
    "larger than every rack, without GPUs": ("GangTooLarge", replace(CPU_ONLY, count=80)),
    "larger than every host": (
        "GangTooLarge",
        replace(SHARED_HOSTS, level="host", count=5, capacity_best=4, ceiling=4, largest=("host-001", 1)),
    ),
    "larger than every host, which is not named": (
        "GangTooLarge",
        replace(
            SHARED_HOSTS,
            level="host",
            count=5,
            capacity_best=4,
            ceiling=4,
            largest=("host-001", 1),
            names_hosts=False,
        ),
    ),
    "larger than every rack, also with the cordoned hosts": (
        "GangTooLarge",
        replace(WHOLE_HOSTS, count=20, capacity_best=16, ceiling=18),
    ),
    "larger than everything": ("GangTooLarge", replace(WHOLE_HOSTS, count=1000)),
    "larger than everything, no level": ("GangTooLarge", replace(WITHOUT_LEVEL, count=1000, ceiling=480)),
    "larger than everything, ceiling unknown": ("GangTooLarge", replace(WITHOUT_LEVEL, count=1000, ceiling=None)),
    "a pod larger than every host": (
        "HostTooSmall",
        replace(NONE_ELIGIBLE, per_host=None, gpus_per_pod=16, host_gpus=8, exclusions={"too small": 512}),
    ),
    "a pod with GPUs, hosts without": (
        "HostTooSmall",
        replace(NONE_ELIGIBLE, per_host=None, gpus_per_pod=1, host_gpus=0, exclusions={"too small": 512}),
    ),
    "a pod with more CPU than every host": (
        "HostTooSmall",
        replace(
            NONE_ELIGIBLE,
            per_host=None,
            gpus_per_pod=0,
            too_big=("cpu", 200_000, 96_000),
            exclusions={"too small": 512},
        ),
    ),
    "a pod with more memory than every host": (
        "HostTooSmall",
        replace(
            NONE_ELIGIBLE,
            per_host=None,
            gpus_per_pod=0,
            too_big=("memory", 2 * 1024 * 1024, 512 * 1024),
            exclusions={"too small": 512},
        ),
    ),
    "a pod that no host has all for": (
        "HostTooSmall",
        replace(NONE_ELIGIBLE, per_host=None, gpus_per_pod=0, exclusions={"too small": 512}),
    ),
    "so many are enough, and still too many": ("GangTooLarge", replace(WHOLE_HOSTS, count=80, whole=100)),
}


@pytest.mark.parametrize("case", list(CASES))
def test_waits_for_the_dominant_reason(case: str) -> None:
    """What could fit on the healthy empty cluster or a repaired one is not now."""
    reason, short = CASES[case]
    outcome = infeasible(short)
    assert isinstance(outcome, Waits)
    assert outcome.reason == reason
    assert REASONS[reason].kind == "not-now"


@pytest.mark.parametrize("case", list(NEVER))
def test_never(case: str) -> None:
    """What no empty cluster could hold is never."""
    reason, short = NEVER[case]
    outcome = infeasible(short)
    assert isinstance(outcome, Never)
    assert outcome.reason == reason
    assert reason in REASONS


def test_every_message_reads_as_written() -> None:
    """Needed / have / best candidate, then counts."""
    golden("shortfall", {case: infeasible(short).message for case, (_, short) in (CASES | NEVER).items()})


@pytest.mark.parametrize("case", list(CASES | NEVER))
def test_messages_fit_an_event(case: str) -> None:
    """An Event's note has at most 1024 bytes and one line of printable text."""
    message = infeasible((CASES | NEVER)[case][1]).message
    assert len(message.encode()) <= 1024
    assert message.isprintable()
    assert "None" not in message


@pytest.mark.parametrize(
    "case", [case for case, (_, short) in CASES.items() if " nodes = " in infeasible(short).message]
)
def test_counts_add_up(case: str) -> None:
    """The counts of a message sum to its number of nodes."""
    message = infeasible(CASES[case][1]).message
    head, _, tail = message.partition(" nodes = ")
    parts = tail.split(";")[0].split(" + ")
    assert sum(int(part.split()[0].replace(",", "")) for part in parts) == int(head.split()[-1].replace(",", ""))
