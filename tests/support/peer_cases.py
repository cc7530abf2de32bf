"""Placement cases of other schedulers in our words: hosts, what is free, the request, and the peer's answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.planner.gang import GangPlan, GangPlanRequest, PodSetPlanRequest, Undecided
from engine.planner.plan import NoFit
from engine.planner.plan_gang import plan_gang
from engine.planner.slices import Slices
from engine.planner.tree import Tree, build_tree

Cost = tuple[int, ...]
Path_ = tuple[str, ...]

_FILE = Path(__file__).parent.parent / "data" / "peer_cases.json"


@dataclass(frozen=True)
class PeerCase:
    """`fits` and `places` (per pod set: paths, which may end above the host) are the peer's answer."""

    name: str
    tree: Tree
    free: NDArray[np.int64]
    sets: tuple[dict[str, Any], ...]
    gang: dict[str, int]
    fits: bool
    places: tuple[tuple[Path_, ...], ...] | None
    best: Cost | None  # proven by brute force elsewhere, where the case says so
    differs: str | None  # why we do not decide as the peer does

    @property
    def peer(self) -> str:
        return self.name.split()[0]

    @property
    def levelled(self) -> bool:
        return bool(self.gang) or any({"require", "prefer", "slices", "kept"} & set(one) for one in self.sets)

    def request(self) -> GangPlanRequest:
        """The gang; raises ValueError where the planner has no such request."""
        return GangPlanRequest(tuple(self._pod_set(one) for one in self.sets), **self.gang)

    def answer(self) -> GangPlan | NoFit | Undecided:
        return plan_gang(self.tree, self.free, self.request())

    def costs(self, plan: GangPlan) -> tuple[Cost, Cost]:
        """Domains that our plan and the peer's open, at the levels that the peer's answer names."""
        assert self.places is not None
        depth = min(len(path) for places in self.places for path in places)
        ours = [[self.tree.paths[host] for host, _ in seats.hosts] for seats in plan.pod_sets]
        return self._opened(ours, depth), self._opened(self.places, depth)

    def _pod_set(self, one: dict[str, Any]) -> PodSetPlanRequest:
        more = dict(one)
        if "eligible" in more:
            mask = np.zeros(len(self.tree.hosts), dtype=np.bool_)
            mask[more["eligible"]] = True
            more["eligible"] = mask
        more["slices"] = tuple(Slices(*pair) for pair in more.get("slices", ()))
        more["kept"] = {int(rank): host for rank, host in more.get("kept", {}).items()}
        return PodSetPlanRequest(more.pop("count"), tuple(more.pop("requests")), **more)

    def _opened(self, places: Any, depth: int) -> Cost:
        gang = self.request()
        everyone = list(range(len(gang.pod_sets)))
        values = sorted({one.colocate for one in gang.pod_sets if one.colocate is not None})
        families = [[i for i in everyone if gang.pod_sets[i].colocate == value] for value in values]
        families += [[i] for i in everyone if gang.pod_sets[i].colocate is None]
        if gang.require is not None or gang.prefer is not None:
            families = [everyone]
        total = [0] * depth
        for members in families:
            sets = [gang.pod_sets[i] for i in members]
            kept = {self.tree.paths[host] for one in sets for host in one.kept.values()}
            asks = kept or gang.require is not None or gang.prefer is not None
            asks = asks or any(one.require is not None or one.prefer is not None or one.slices for one in sets)
            for level in range(0 if asks else len(self.tree.levels) - 1, depth):
                domains = {path[: level + 1] for i in members for path in places[i]}
                total[level] += len(domains - {path[: level + 1] for path in kept})
        return tuple(total)


def peer_cases() -> list[PeerCase]:
    """All cases; in the order of the file."""
    return [_case(row) for row in json.loads(_FILE.read_text())]


def _case(row: dict[str, Any]) -> PeerCase:
    paths = [tuple(path) for path in row["hosts"]]
    tree = build_tree(row["levels"], paths)
    at = [paths.index(path) for path in tree.paths]
    back = {old: new for new, old in enumerate(at)}
    free = np.array([row["free"][i] for i in at], dtype=np.int64).reshape(len(at), len(row["pod_sets"][0]["requests"]))
    sets = []
    for one in row["pod_sets"]:
        moved = dict(one)
        if "eligible" in one:
            moved["eligible"] = [back[i] for i in one["eligible"]]
        if "kept" in one:
            moved["kept"] = {rank: back[i] for rank, i in one["kept"].items()}
        sets.append(moved)
    peer = row["peer"]
    places = peer.get("places")
    return PeerCase(
        name=row["id"],
        tree=tree,
        free=free,
        sets=tuple(sets),
        gang=row.get("gang", {}),
        fits=peer["fits"],
        places=None if places is None else tuple(tuple(tuple(path) for path, _ in one) for one in places),
        best=tuple(row["best"]) if "best" in row else None,
        differs=row.get("differs"),
    )
