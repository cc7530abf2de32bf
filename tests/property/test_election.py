from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cluster.election import Create, Lease, Renew, State, Take, Terms, Wait, observe, renewal, written

TERMS = Terms()
TIMEOUT = 5.0
Resume = Generator[float, None, None]


@dataclass
class Server:
    """One Lease with compare-and-swap, as the API server keeps it."""

    lease: Lease | None = None
    version: int = 0

    def write(self, expected: Lease | None, holder: str) -> Lease | None:
        """Create (expected None) or update; None when refused."""
        if (self.lease is None) != (expected is None):
            return None
        if self.lease is not None and expected is not None and self.lease != expected:
            return None
        self.version += 1
        uid = expected.uid if expected is not None else f"uid-{self.version}"
        self.lease = Lease(holder, TERMS.duration, 0, "", uid, str(self.version))
        return self.lease


class Candidate:
    """A replica on a clock of its own, over a network that delays, and loses answers after the time limit."""

    def __init__(self, world: World, name: str, *, offset: float, pace: float, delays: list[float]) -> None:
        self.world, self.name, self.offset, self.pace = world, name, offset, pace
        self.delays = itertools.cycle(delays)
        self.state = State()
        self.alive = True
        self.beliefs: list[tuple[float, float]] = []

    def clock(self) -> float:
        return self.offset + self.pace * self.world.now

    def set(self, state: State) -> None:
        if self.beliefs and self.beliefs[-1][1] > self.world.now:
            self.beliefs[-1] = (self.beliefs[-1][0], self.world.now)
        self.state = state
        if state.leads(self.clock()) and state.leads_until is not None:
            self.beliefs.append((self.world.now, (state.leads_until - self.offset) / self.pace))

    def call(self, operation: Callable[[], Lease | None], answer: list[Lease | None]) -> Resume:
        """Send; the operation happens at the server when it arrives, if need be after we gave up."""
        there, back = next(self.delays), next(self.delays)
        result: list[Lease | None] = []
        self.world.at(there, lambda: result.append(operation()))
        limit = TIMEOUT / self.pace
        yield min(there + back, limit)
        if there + back <= limit:
            answer.extend(result)

    def write(self, expected: Lease | None, got: list[Lease | None]) -> Resume:
        """Write our name, if the Lease is the expected one; `got` has the answer, if there is one."""
        sent_at = self.clock()
        yield from self.call(lambda: self.world.server.write(expected, self.name), got)
        if got and got[0] is not None and self.alive:
            self.set(written(self.state, got[0], sent_at=sent_at, now=self.clock(), terms=TERMS))

    def run(self) -> Resume:
        while self.alive:
            own = renewal(self.state, identity=self.name, now=self.clock())
            if own is not None:
                renewed = list[Lease | None]()
                yield from self.write(own.lease, renewed)
                if renewed and renewed[0] is not None:
                    yield TERMS.retry / self.pace + 0.001
                    continue
            answer: list[Lease | None] = []
            yield from self.call(lambda: self.world.server.lease, answer)
            pause = TERMS.retry
            if answer:
                state, action = observe(self.state, answer[0], identity=self.name, terms=TERMS, now=self.clock())
                self.set(state)
                expected: Lease | None = None
                match action:
                    case Wait(seconds):
                        pause = min(pause, seconds)
                    case Create() | Take() | Renew():
                        expected = None if isinstance(action, Create) else action.lease
                        yield from self.write(expected, [])
            yield pause / self.pace + 0.001


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.server = Server()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, delay: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay, next(self._order), action))

    def drive(self, process: Resume) -> None:
        def resume() -> None:
            wait = next(process, None)
            if wait is not None:
                self.at(wait, resume)

        resume()

    def run_until(self, end: float) -> None:
        while self._queue and self._queue[0][0] <= end:
            self.now, _, action = heapq.heappop(self._queue)
            action()
        self.now = end


# Quick, slow, just within the time limit, just beyond it, and long after it; bad times last for a while.
weather = st.lists(st.tuples(st.sampled_from([0.01, 1.0, 2.4, 4.8, 5.5, 20.0]), st.integers(1, 12)), min_size=1)
delays = weather.map(lambda spells: [delay for delay, times in spells for _ in range(times)] + [0.01])
# Clocks that differ in pace by up to 1.15 / 0.85 = 1.35; the terms allow 8 / 5.3 = 1.5.
paces = st.floats(0.85, 1.15)
offsets = st.floats(-1e6, 1e6)


def begin(world: World, count: int, draws: list[tuple[float, float, list[float]]]) -> list[Candidate]:
    candidates = [
        Candidate(world, f"c{number}", offset=offset, pace=pace, delays=delay)
        for number, (offset, pace, delay) in enumerate(draws[:count])
    ]
    for candidate in candidates:
        world.drive(candidate.run())
    return candidates


def overlap(candidates: list[Candidate]) -> list[tuple[str, str, float, float]]:
    found = []
    for one, two in itertools.combinations(candidates, 2):
        for (a, b), (c, d) in itertools.product(one.beliefs, two.beliefs):
            if max(a, c) < min(b, d) - 1e-6:
                found.append((one.name, two.name, max(a, c), min(b, d)))
    return found


draws = st.lists(st.tuples(offsets, paces, delays), min_size=3, max_size=3)


@settings(max_examples=2000, deadline=None)
@given(draws, st.lists(st.floats(1, 100), max_size=3))
def test_two_candidates_never_both_believe_that_they_lead(
    draws: list[tuple[float, float, list[float]]], crashes: list[float]
) -> None:
    """Whatever is delayed, lost or crashes, at no moment do two candidates believe that they lead."""
    world = World()
    candidates = begin(world, 3, draws)
    for number, at in enumerate(crashes):

        def crash(number: int = number) -> None:
            leader = next((c for c in candidates if c.beliefs and c.beliefs[-1][1] > world.now), None)
            if leader is not None:
                leader.alive = False
                offset, pace, delay = draws[number % 3]
                fresh = Candidate(world, f"fresh{number}", offset=offset, pace=pace, delays=delay)
                candidates.append(fresh)
                world.drive(fresh.run())

        world.at(at, crash)
    world.run_until(200)
    assert overlap(candidates) == []


@settings(max_examples=100, deadline=None)
@given(draws, st.floats(20, 150))
def test_a_deleted_lease_makes_no_second_leader(
    draws: list[tuple[float, float, list[float]]], deleted_at: float
) -> None:
    """Somebody deletes the Lease while it is held: those who have seen it wait its time out before they create it."""
    world = World()
    candidates = begin(world, 2, draws)

    def delete() -> None:
        if all(candidate.state.observed is not None for candidate in candidates):
            world.server.lease = None

    world.at(deleted_at, delete)
    world.run_until(200)
    assert overlap(candidates) == []


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(offsets, st.just(1.0), st.lists(st.floats(0.001, 0.2), min_size=3)), min_size=3, max_size=3))
def test_somebody_leads_again_soon_after_a_crash(draws: list[tuple[float, float, list[float]]]) -> None:
    """With a healthy network there is a leader at once, and after a crash another within duration and one retry."""
    world = World()
    candidates = begin(world, 3, draws)
    world.run_until(30)
    leader = next(c for c in candidates if c.beliefs and c.beliefs[-1][1] > world.now)
    leader.alive = False
    crashed = world.now
    # A renewal may be on its way when the leader goes; reading it, reading it once more and writing take 0.4 s each.
    world.run_until(crashed + TERMS.duration + TERMS.retry + 2.0)
    assert any(c.beliefs and c.beliefs[-1][1] > world.now for c in candidates if c is not leader)


def test_belief_counts_from_the_sending_of_a_renewal() -> None:
    """The others' clocks may run since the moment the renewal was sent, so ours does too."""
    state = written(State(), Lease("me", 15, 0, "", "u", "1"), sent_at=0.0, now=4.9, terms=TERMS)
    assert state.leads(TERMS.renew_deadline - 0.01)
    assert not state.leads(TERMS.renew_deadline)


def test_a_release_is_taken_at_once() -> None:
    """A Lease without a holder is free: nobody waits for its duration."""
    lease = Lease("other", 15, 3, "", "u", "1")
    state, action = observe(State(), lease, identity="me", terms=TERMS, now=0.0)
    assert action == Wait(15.0)
    state, action = observe(state, replace(lease, holder="", resource_version="2"), identity="me", terms=TERMS, now=1.0)
    assert isinstance(action, Take)
    assert action.transitions == 4


def test_a_foreign_duration_is_believed_up_to_a_bound() -> None:
    """A holder configured with a longer lease is waited for; a Lease that names an absurd time is not."""
    _, action = observe(State(), Lease("o", 60, 0, "", "u", "1"), identity="me", terms=TERMS, now=0.0)
    assert action == Wait(60.0)
    _, action = observe(State(), Lease("o", 1e9, 0, "", "u", "1"), identity="me", terms=TERMS, now=0.0)
    assert action == Wait(300.0)
