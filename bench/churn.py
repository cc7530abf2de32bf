"""Mixed gangs that come and go at a steady load: which there are, and when the next one may come.

The stream is closed: the next Job is sent as soon as the pods of those that have not ended, and its own, are at most
the load. So both sides of a comparison meet the same load, and whoever is slower gets fewer pods through.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.jobs import job_body
from engine.api import names
from local.client import Client
from local.kubelets import COMPLETE_AFTER

# Pods of a gang and how often: mostly small ones, as in published traces of GPU clusters, and some that fill a block.
SIZES = {1: 6, 2: 6, 4: 8, 8: 8, 16: 8, 32: 6, 64: 4, 128: 2}
LEVELS = {"rack": 8, "block": 128}  # hosts of a domain of the benchmark's grid
CHECK_EVERY = 0.25
STUCK = 120.0  # seconds in which nothing ends


@dataclass(frozen=True, slots=True)
class Churn:
    """So many gangs, drawn from a seed; `load` is of all hosts, `run` the seconds that pods run (from, to)."""

    gangs: int = 96
    load: float = 0.9
    run: tuple[int, int] = (8, 20)
    seed: int = 6
    drawn: tuple[tuple[int, Mapping[str, str], int], ...] = field(init=False)  # pods, annotations, seconds

    def __post_init__(self) -> None:
        """Draw the gangs, once: every run has the same."""
        rng = random.Random(self.seed)
        sizes = rng.choices(list(SIZES), list(SIZES.values()), k=self.gangs)
        drawn = tuple((pods, _request(pods, rng), rng.randint(*self.run)) for pods in sizes)
        object.__setattr__(self, "drawn", drawn)

    @property
    def title(self) -> str:
        """What it is, for people."""
        return f"churn: {self.gangs} gangs of {min(SIZES)} to {max(SIZES)} pods, load {self.load:.0%}"

    @property
    def total(self) -> int:
        """The pods of all gangs."""
        return sum(pods for pods, _, _ in self.drawn)

    def bodies(self, *, gang: bool) -> list[dict[str, Any]]:
        """The Jobs in the order in which they come; without any annotation for the floor."""
        found = []
        for number, (pods, request, seconds) in enumerate(self.drawn):
            body = job_body(f"train{number}", pods=pods, annotations=request if gang else {})
            body["spec"]["template"]["metadata"] = {"annotations": {COMPLETE_AFTER: f"{seconds}s"}}
            found.append(body)
        return found

    def submit(self, client: Client, jobs: str, bodies: list[dict[str, Any]], *, hosts: int) -> dict[str, float]:
        """Create each Job when the load allows; name -> when it was sent (monotonic)."""
        sent: dict[str, float] = {}
        waiting = {body["metadata"]["name"]: int(body["spec"]["parallelism"]) for body in bodies}
        running: dict[str, int] = {}
        for body in bodies:
            name = body["metadata"]["name"]
            if waiting[name] > self.load * hosts:
                raise TimeoutError(
                    f"{waiting[name]} pods are never {self.load:.0%} of {hosts} hosts: take a larger grid"
                )
            deadline = time.monotonic() + STUCK
            while sum(running.values()) + waiting[name] > self.load * hosts:
                time.sleep(CHECK_EVERY)
                for job in client.items(jobs):
                    if running.get(job["metadata"]["name"]) and _over(job):
                        del running[job["metadata"]["name"]]
                        deadline = time.monotonic() + STUCK
                if time.monotonic() > deadline:
                    left = ", ".join(sorted(running)[:10])
                    raise TimeoutError(f"nothing ended in {STUCK:.0f} s; {len(running)} Jobs are there: {left}")
            sent[name] = time.monotonic()
            client.create(jobs, body)
            running[name] = waiting[name]
        return sent


def _over(job: dict[str, Any]) -> bool:
    if any(one["type"] == "Failed" and one["status"] == "True" for one in job.get("status", {}).get("conditions", ())):
        raise TimeoutError(f"{job['metadata']['name']} failed: {job['status']}")
    return bool(job.get("status", {}).get("succeeded", 0) >= job["spec"]["completions"])


def _request(pods: int, rng: random.Random) -> dict[str, str]:
    """What a gang of this size asks for: half require the smallest domain that holds it, a third prefer one."""
    level = next(level for level, hosts in LEVELS.items() if pods <= hosts)
    ask = rng.choices(("require", "prefer", "unconstrained"), (5, 3, 2))[0]
    if ask == "unconstrained":
        return {names.UNCONSTRAINED: "true"}
    # A whole free block is a rarity at this load: a gang that fills one would wait for the rest to end.
    if ask == "prefer" or pods == LEVELS["block"]:
        return {names.PREFER: level}
    return {names.REQUIRE: level}
