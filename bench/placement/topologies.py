"""The simulated clusters and what runs on them: scenarios A, B, C and L."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.placement.mixes import Mix
from engine.planner.tree import Ints64, Tree, build_tree

LEVELS = ("block", "rack", "host")

# Hosts per rack -> racks, and racks per block, of the production cluster published with Crux (SIGCOMM 2024; Alibaba's
# lingjun dataset 2023, Apache-2.0). Which rack is in which block is shuffled here; `--topology` reads the real layout.
RAGGED_RACKS = {8: 68, 7: 23, 6: 15, 5: 7, 4: 2, 3: 1, 2: 3}
RAGGED_BLOCKS = (48, 42, 29)

_LLM = {1: 30.0, 2: 8, 4: 10, 8: 18, 16: 12, 32: 9, 64: 7, 128: 4, 256: 1.5, 512: 0.5}
_RACK_HEAVY = {1: 35.0, 2: 10, 4: 10, 8: 10, 16: 8, 32: 10, 64: 10, 128: 6, 256: 0.7}
_NVL72 = {1: 35.0, 2: 10, 4: 15, 8: 8, 16: 10, 32: 10, 64: 8, 72: 1, 144: 1, 288: 0.5}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A tree of equal hosts and the mix of jobs that runs on it."""

    name: str
    title: str
    tree: Tree
    host_gpus: int
    rack_gpus: int  # of a full rack
    block_gpus: int
    mix: Mix

    def gpus(self) -> Ints64:
        """GPUs per host of the tree."""
        return np.full(len(self.tree.hosts), self.host_gpus, dtype=np.int64)


def scenarios(ragged: Tree | None = None) -> dict[str, Scenario]:
    """All scenarios by name; `ragged` replaces the tree of L (levels: block, rack, host)."""
    uniform = regular(blocks=8, racks=8, hosts=16)
    lingjun = ragged_tree() if ragged is None else ragged
    made = (
        Scenario(
            "A", "64 racks of 16 hosts x 8 GPUs, half of the gangs required",
            uniform, 8, 128, 1024, Mix(_LLM, required=0.5, host_gpus=8, rack_gpus=128),
        ),
        Scenario(
            "B", "64 racks of 16 hosts x 8 GPUs, 90 % required, many gangs of 32 to 128 GPUs",
            uniform, 8, 128, 1024, Mix(_RACK_HEAVY, required=0.9, host_gpus=8, rack_gpus=128),
        ),
        Scenario(
            "C", "64 NVL72-like racks of 18 hosts x 4 GPUs, 90 % required",
            regular(blocks=8, racks=8, hosts=18), 4, 72, 576, Mix(_NVL72, required=0.9, host_gpus=4, rack_gpus=72),
        ),
        Scenario(
            "L", "119 ragged racks of 2 to 8 hosts x 8 GPUs, 70 % required",
            lingjun, 8, 8 * _largest(lingjun, 1), 8 * _largest(lingjun, 0),
            Mix(_LLM, required=0.7, host_gpus=8, rack_gpus=64),
        ),
    )  # fmt: skip
    return {scenario.name: scenario for scenario in made}


def regular(*, blocks: int, racks: int, hosts: int) -> Tree:
    """`blocks` of `racks` racks of `hosts` hosts each."""
    return _tree([[hosts] * racks] * blocks)


def ragged_tree(seed: int = 0) -> Tree:
    """119 racks of 2 to 8 hosts, 847 in all, in three blocks; the seed shuffles the racks."""
    sizes = [hosts for hosts, racks in RAGGED_RACKS.items() for _ in range(racks)]
    random.Random(seed).shuffle(sizes)
    rest = iter(sizes)
    return _tree([[next(rest) for _ in range(racks)] for racks in RAGGED_BLOCKS])


def _tree(blocks: Iterable[Sequence[int]]) -> Tree:
    paths = []
    for b, racks in enumerate(blocks):
        for r, hosts in enumerate(racks):
            paths += [(f"b{b}", f"b{b}-r{r}", f"b{b}-r{r}-h{h}") for h in range(hosts)]
    return build_tree(LEVELS, paths)


def _largest(tree: Tree, level: int) -> int:
    """Hosts of the largest domain."""
    return max(end - start for start, end in (tree.range(level, domain) for domain in range(tree.size(level))))
