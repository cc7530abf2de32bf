"""However small gangs come and go, a large one starts at last, and what that costs the others is bounded."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import names
from engine.api.objects import Node
from engine.scheduler.starvation import RENEW_EVERY
from tests.support.cluster_records import changed, gpu_nodes, job
from tests.support.leader import POLICY, Leader

PATIENCE = 10.0
STEP = 2.0
LIFE = 6  # a small gang runs for at most so many steps
# After its patience the pods on the hosts that are kept end, within one life; hosts may be chosen anew in between.
SOON = PATIENCE + STEP * LIFE + 3 * (RENEW_EVERY + STEP)
FIELD = 8

small = st.tuples(st.integers(1, 2), st.sampled_from([0, 0, 0, 5]), st.integers(1, LIFE))
stream = st.lists(st.lists(small, max_size=4), min_size=25, max_size=32)


def hosts() -> list[Node]:
    """Two racks of four hosts, each for one pod."""
    return gpu_nodes(1, 2, FIELD // 2)


class Field:
    """Small gangs that come, run for a while and end; one large gang among them."""

    def __init__(self, *, require: str) -> None:
        self.leader = Leader(nodes=hosts(), policy=f"{POLICY}queue: {{patience: {PATIENCE:g}s}}\n")
        self.require = require
        self.lives: dict[str, int] = {}
        self.began: dict[str, int] = {}
        self.step = 0

    def submit(self, name: str, count: int, *, priority: int, life: int, require: str = "rack") -> None:
        gang = job(name, count=count, held=True, created=self.leader.now, require=None)
        key = names.REQUIRE if require != "none" else names.UNCONSTRAINED
        asked = {key: require if require != "none" else "true", names.HELD_BY: names.HELD_BY_SUSPEND}
        gang = changed(replace(gang, annotations=asked), template=replace(gang.template, priority=priority))
        self.lives[name] = life
        self.leader.has(gang)

    def go_on(self) -> None:
        """Time passes, whoever has run long enough ends, and everything is looked at."""
        self.step += 1
        for name, began in list(self.began.items()):
            if self.step - began >= self.lives[name]:
                del self.began[name]
                running = self.leader.workload(name)
                self.leader.has(replace(running, finished=True, resource_version=self.leader.hands.version()))
        self.leader.later(STEP)
        for name in self.leader.hands.of("place"):
            if name in self.lives and name not in self.began and not self.leader.workload(name).finished:
                self.began[name] = self.step

    @property
    def large_runs(self) -> bool:
        return "large" in self.leader.hands.of("place")


def check(field: Field, wanted: int) -> None:
    rooms = field.leader.controller._term.nominator.kept()
    assert len(rooms) <= 1
    for room in rooms:
        gang = field.leader.workload(room.name.partition("/")[2])
        assert len(room.hosts) <= gang.slots
        assert gang.slots <= wanted
    for name, status in field.leader.hands.told:
        if status.reason == "QueuedBehind":
            assert field.leader.workload(name).template.priority == 0, "nobody of a higher priority is held back"


@given(stream, st.integers(3, 4), st.sampled_from(["rack", "block", "none"]))
@settings(max_examples=10, deadline=None)
def test_a_large_gang_starts_although_small_ones_never_stop_coming(
    arrivals: list[list[tuple[int, int, int]]], count: int, require: str
) -> None:
    """Small gangs of its own priority arrive all the time, also while room is kept; it starts soon after its time."""
    field = Field(require=require)
    wanted = count if require == "rack" else count + 2
    for number in range(FIELD):
        field.submit(f"first-{number}", 1, priority=0, life=1 + number % LIFE)
    field.go_on()
    field.submit("large", wanted, priority=0, life=1, require=require)
    since = field.leader.now
    for number, batch in enumerate(arrivals):
        for place, (pods, _, life) in enumerate(batch or [(1, 0, LIFE)]):
            field.submit(f"small-{number}-{place}", pods, priority=0, life=life)
        field.go_on()
        check(field, wanted)
        if field.large_runs:
            break
        assert field.leader.now - since < SOON
    assert field.large_runs


@given(stream)
@settings(max_examples=10, deadline=None)
def test_gangs_of_a_higher_priority_are_never_held_back(arrivals: list[list[tuple[int, int, int]]]) -> None:
    """They may take what is kept; when they have stopped coming, the large gang starts."""
    field = Field(require="rack")
    for number in range(FIELD):
        field.submit(f"first-{number}", 1, priority=0, life=1 + number % LIFE)
    field.go_on()
    field.submit("large", 4, priority=0, life=1)
    for number, batch in enumerate(arrivals):
        for place, (pods, priority, life) in enumerate(batch):
            field.submit(f"small-{number}-{place}", pods, priority=priority, life=life)
        field.go_on()
        check(field, 4)
    for _ in range(60):
        field.go_on()
        check(field, 4)
        if field.large_runs:
            break
    assert field.large_runs
