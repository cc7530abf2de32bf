"""Draws inputs and checks them, in one process or several; every input follows from the seed and its number."""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import queue
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.fuzz.mutation import Mutator
from tests.fuzz.service import LoggedFaults, Violation, fault_of, quiet_logs
from tests.fuzz.shrinking import SECONDS, shrunk
from tests.fuzz.specimens import specimens
from tests.fuzz.targets import TARGETS, Target

EVERY: Final = 5.0  # seconds between two reports


@dataclass(frozen=True)
class Finding:
    """The first input of its sort, made small; `number` is that of the input in the run of `seed`."""

    target: str
    signature: str
    detail: str
    seed: int
    number: int
    body: bytes

    @property
    def file(self) -> str:
        """A name for the input's file; the target is read from it when it is checked again."""
        return f"{self.target}-{hashlib.sha256(self.signature.encode()).hexdigest()[:8]}.input"


@dataclass(frozen=True)
class Report:
    """What a process has done since its last report."""

    inputs: Mapping[str, int]
    findings: Sequence[Finding]
    repeats: Mapping[str, int]  # by signature


class Hunter:
    """The targets of one process. `drawn_each`: examples from each schema; `patience`: to make one input small."""

    def __init__(
        self,
        seed: int,
        faults: LoggedFaults,
        *,
        only: Sequence[str] = (),
        drawn_each: int = 150,
        patience: float = SECONDS,
    ) -> None:
        self.seed = seed
        self._patience = patience
        known = specimens(seed, drawn_each=drawn_each)
        self._donors = known.workloads
        self._names = list(only or TARGETS)
        self._weights = [TARGETS[name].share for name in self._names]
        self.targets: dict[str, Target] = {name: TARGETS[name].make(known, faults) for name in self._names}

    def input(self, number: int) -> tuple[str, bytes]:
        """The target and the bytes of one input."""
        rng = random.Random(f"{self.seed}/{number}")
        (name,) = rng.choices(self._names, self._weights)
        return name, self.targets[name].draw(Mutator(rng, self._donors))

    def violation(self, name: str, body: bytes) -> Violation | None:
        """What is wrong with an input; None if nothing is."""
        try:
            self.targets[name].check(body)
        except Violation as found:
            return found
        except Exception as error:
            return fault_of(error)
        return None

    def smallest(self, name: str, body: bytes, signature: str) -> bytes:
        """The input, made small."""

        def fails(smaller: bytes) -> bool:
            found = self.violation(name, smaller)
            return found is not None and found.signature == signature

        return shrunk(body, fails, seconds=self._patience) if fails(body) else body

    def hunt(
        self,
        count: int,
        *,
        first: int = 0,
        step: int = 1,
        tell: Callable[[Report], None],
        known: set[str] | None = None,
    ) -> None:
        """Check `count` inputs, every `step`th number from `first` on."""
        known = set() if known is None else known
        number, done, told = first, 0, time.monotonic()
        inputs: Counter[str] = Counter()
        repeats: Counter[str] = Counter()
        findings: list[Finding] = []
        while done < count:
            name, body = self.input(number)
            found = self.violation(name, body)
            if found is not None and found.signature in known:
                repeats[found.signature] += 1
            elif found is not None:
                known.add(found.signature)
                small = self.smallest(name, body, found.signature)
                detail = str(self.violation(name, small) or found)
                findings.append(Finding(name, found.signature, detail, self.seed, number, small))
            inputs[name] += TARGETS[name].inputs
            done += TARGETS[name].inputs
            number += step
            if findings or time.monotonic() - told > EVERY or done >= count:
                tell(Report(dict(inputs), findings, dict(repeats)))
                told, findings = time.monotonic(), []
                inputs.clear()
                repeats.clear()


def hunt_side_by_side(
    count: int, *, seed: int, processes: int, only: Sequence[str], tell: Callable[[Report], None]
) -> None:
    """Divide the inputs among processes. Raises RuntimeError if one dies."""
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    shares = [count // processes + (at < count % processes) for at in range(processes)]
    workers = [
        context.Process(target=_work, args=(told, seed, share, (at, processes), tuple(only)), daemon=True)
        for at, share in enumerate(shares)
        if share
    ]
    for worker in workers:
        worker.start()
    try:
        while True:
            alive = any(worker.is_alive() for worker in workers)
            try:
                tell(told.get(timeout=0.2))
            except queue.Empty:
                if not alive:
                    break
    finally:
        for worker in workers:
            worker.kill()
    if bad := [worker.exitcode for worker in workers if worker.exitcode not in (0, None)]:
        raise RuntimeError(f"a process ended with status {bad[0]}")


def _work(told: Any, seed: int, count: int, numbers: tuple[int, int], only: Sequence[str]) -> None:
    first, step = numbers
    with quiet_logs() as faults:
        hunter = Hunter(seed, faults, only=only)
        gc.freeze()  # as the service does: what stays is not looked at again
        hunter.hunt(count, first=first, step=step, tell=told.put)
