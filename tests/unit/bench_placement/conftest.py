"""Small clusters to play rules through by hand."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from bench.placement.cluster import Cluster
from engine.planner.tree import build_tree

Racks = Sequence[Sequence[Sequence[int]]]


@pytest.fixture
def cluster() -> Callable[..., Cluster]:
    """`cluster(free)`: free GPUs as nested blocks of racks of hosts; every host has `gpus`."""

    def build(free: Racks, gpus: int = 8) -> Cluster:
        paths = []
        flat = []
        for b, racks in enumerate(free):
            for r, hosts in enumerate(racks):
                for h, amount in enumerate(hosts):
                    paths.append((f"b{b}", f"b{b}-r{r}", f"b{b}-r{r}-h{h}"))
                    flat.append(amount)
        made = Cluster(build_tree(("block", "rack", "host"), paths), np.full(len(flat), gpus, dtype=np.int64))
        made.free[:] = flat
        return made

    return build
