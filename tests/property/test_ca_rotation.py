"""Whatever happens to the CA's Secret, replicas and configurations, nobody serves what an API server does not trust."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from certs.authority import LEAF_LIFETIME, Authority
from certs.rotation import MOST, RETIRE, SETTLE, Deleted, Found, StoredAuthority, Unusable, advanced, mended

DAY = 86_400.0
LIFE = 3650 * DAY
LEAF = LEAF_LIFETIME.total_seconds()
CONFIGURATIONS = 4
LAG = SETTLE / 2  # seconds that an API server, or a replica's watch, may be behind


@dataclass
class Replica:
    """What one process has in memory; `cut_off` sees nothing and serves what it signed last."""

    kept: StoredAuthority
    leaf: bytes
    leaf_ends: float
    seen: int = 0  # the version of the Secret that it knows
    trusted_since: tuple[bytes, float] | None = None
    cut_off: bool = False


@dataclass
class World:
    """One Secret with compare-and-swap, four caBundles, and API servers that learn of them later."""

    now: float = 0.0
    numbers: count[int] = field(default_factory=count)
    version: int = 0
    replicas: list[Replica] = field(default_factory=list)
    leader: int = 0

    def __post_init__(self) -> None:
        self.secret: Found = StoredAuthority(self.make())
        assert isinstance(self.secret, StoredAuthority)
        self.bundles = [self.secret.bundle] * CONFIGURATIONS
        self.api_servers = [[(self.now, bundle)] for bundle in self.bundles]
        self.replicas = [self.fresh(self.secret) for _ in range(3)]

    def make(self) -> Authority:
        name = b"<%d>" % next(self.numbers)
        return Authority((name,), name, name, renew_at=self.now + LIFE * 2 / 3, not_after=self.now + LIFE)

    def fresh(self, kept: StoredAuthority) -> Replica:
        return Replica(kept, kept.authority.signer, self.now + LEAF, self.version)

    def store(self, found: Found) -> None:
        self.secret, self.version = found, self.version + 1

    def carried(self, certificate: bytes) -> bool:
        return all(certificate in bundle for bundle in self.bundles)

    def publish(self, bundle: bytes) -> None:
        for number, old in enumerate(self.bundles):
            if old != bundle:
                self.bundles[number] = bundle
                self.api_servers[number].append((self.now, bundle))

    def look(self, replica: Replica, *, leads: bool, crash: int | None) -> None:
        """One look of a replica; a leader that crashes leaves after so many of its writes."""
        if replica.cut_off:
            return
        found = self.secret
        ought = mended(replica.kept, found, carried=self.carried, now=self.now, make=self.make)
        if ought is None:
            assert isinstance(found, StoredAuthority)
            replica.kept = found
        if leads and crash != 0:
            if ought is None:
                ought = advanced(replica.kept, carried_for=self.carried_for(replica), now=self.now, make=self.make)
            if ought is not None:
                self.store(ought)
                replica.kept = ought
            if crash != 1:
                self.publish(replica.kept.bundle)
        if replica.leaf != replica.kept.authority.signer or self.now >= replica.leaf_ends - LEAF / 3:
            replica.leaf, replica.leaf_ends = replica.kept.authority.signer, self.now + LEAF

    def carried_for(self, replica: Replica) -> float | None:
        bundle = replica.kept.bundle
        if not self.carried(bundle):
            replica.trusted_since = None
            return None
        if replica.trusted_since is None or replica.trusted_since[0] != bundle:
            replica.trusted_since = (bundle, self.now)
        return self.now - replica.trusted_since[1]

    def looks(self, crash: int | None = None) -> None:
        for number, replica in enumerate(self.replicas):
            leads = number == self.leader
            self.look(replica, leads=leads, crash=crash if leads else None)
        if crash is not None:
            self.replicas[self.leader] = self.started() or self.replicas[self.leader]
            self.leader = (self.leader + 1) % len(self.replicas)

    def started(self) -> Replica | None:
        """A process that starts now; where there is no CA that is trusted, it waits for the leader (None)."""
        found = self.secret
        return (
            self.fresh(found) if isinstance(found, StoredAuthority) and self.carried(found.authority.signer) else None
        )

    def distrusted(self) -> list[str]:
        """Replicas whose leaf some API server, with the bundle of now or of a moment ago, refuses."""
        found = []
        for number, replica in enumerate(self.replicas):
            if self.now >= replica.leaf_ends:
                continue  # a leaf that has run out is no matter of trust
            for history in self.api_servers:
                # The bundle of now, and those that were replaced less than LAG ago.
                replaced = [bundle for (_, bundle), (then, _) in pairwise(history) if self.now - then < LAG]
                for bundle in {history[-1][1], *replaced}:
                    if replica.leaf not in bundle:
                        found.append(f"replica {number} serves {replica.leaf!r}, {bundle!r} is trusted")
        return found


def renew(world: World) -> None:
    if isinstance(world.secret, StoredAuthority):
        world.store(replace(world.secret, renew_asked=True))


def drop(world: World) -> None:
    if isinstance(world.secret, StoredAuthority):
        world.store(replace(world.secret, drop_asked=True))


def delete(world: World) -> None:
    world.store(Deleted())


def garble(world: World) -> None:
    world.store(Unusable())


def foreign(world: World) -> None:
    """An admin, or a replica that found no Secret, stores a CA that nobody trusts yet."""
    world.store(StoredAuthority(world.make()))


def forget_key(world: World) -> None:
    if isinstance(world.secret, StoredAuthority):
        world.store(replace(world.secret, following=None))


def forget_since(world: World) -> None:
    if isinstance(world.secret, StoredAuthority):
        world.store(replace(world.secret, since=None))


def restart(world: World) -> None:
    number = (world.leader + 1) % len(world.replicas)
    world.replicas[number] = world.started() or world.replicas[number]


def crash_before_writing(world: World) -> None:
    world.looks(crash=0)


def crash_after_writing(world: World) -> None:
    world.looks(crash=1)


def new_leader(world: World) -> None:
    world.leader = (world.leader + 1) % len(world.replicas)


ACTS: tuple[Callable[[World], None], ...] = (
    renew, drop, delete, garble, foreign, forget_key, forget_since, restart,
    crash_before_writing, crash_after_writing, new_leader,
)  # fmt: skip
steps = st.lists(
    st.tuples(
        st.sampled_from(ACTS),
        st.lists(st.sampled_from([0.0, 1.0, SETTLE / 3, SETTLE, 3600.0, LEAF, RETIRE, LIFE / 5]), max_size=4),
    ),
    max_size=12,
)


def let_pass(world: World, seconds: float) -> None:
    """Time passes; everybody looks at least as often as a leaf has to be renewed."""
    end = world.now + seconds
    while True:
        world.looks()
        assert world.distrusted() == []
        if world.now >= end:
            return
        world.now = min(end, world.now + max(1.0, min(seconds / 20, LEAF / 4)))


@settings(max_examples=200, deadline=None)
@given(steps)
def test_no_replica_serves_what_an_api_server_does_not_trust(
    history: list[tuple[Callable[[World], None], list[float]]],
) -> None:
    """Renewals, deletions, garbage, foreign CAs, crashes between two writes: every leaf is of a CA in every bundle.

    Also in the bundles that an API server which lags behind still has.
    """
    world = World()
    for act, pauses in history:
        act(world)
        assert world.distrusted() == []
        for pause in pauses:
            let_pass(world, pause)


@settings(max_examples=40, deadline=None)
@given(steps)
def test_in_the_end_one_young_ca_is_left(history: list[tuple[Callable[[World], None], list[float]]]) -> None:
    """When nobody meddles any more, a renewal that was begun is finished, the old go, and nothing is written."""
    world = World()
    for act, pauses in history:
        act(world)
        for pause in pauses:
            let_pass(world, pause)
    for _ in range(2):
        let_pass(world, 3 * SETTLE)
        let_pass(world, RETIRE)
    kept = world.secret
    assert isinstance(kept, StoredAuthority)
    assert (kept.following, kept.retired, kept.renew_asked, kept.drop_asked) == (None, (), False, False)
    assert world.now < kept.authority.renew_at
    assert {replica.leaf for replica in world.replicas} == {kept.authority.signer}
    before = world.version
    let_pass(world, LEAF)
    assert world.version == before


@settings(max_examples=40, deadline=None)
@given(steps)
def test_however_often_it_is_asked_for_few_are_trusted(
    history: list[tuple[Callable[[World], None], list[float]]],
) -> None:
    """The bundle stays small: a renewal waits for the oldest ones to go."""
    world = World()
    for act, pauses in history:
        for _ in range(3):
            act(world)
            let_pass(world, SETTLE)
        for pause in pauses:
            let_pass(world, pause)
        assert isinstance(world.secret, StoredAuthority)
        assert len(world.secret.authority.certificates) <= MOST + 1


def test_a_cut_off_replica_is_trusted_until_its_leaf_ends() -> None:
    """It cannot hear of the renewal: the CA that signed its leaf stays trusted for as long as the leaf lives."""
    world = World()
    lone = world.replicas[2]
    lone.cut_off = True
    renew(world)
    let_pass(world, 3 * SETTLE)
    assert lone.leaf != world.replicas[0].leaf
    let_pass(world, LEAF)
    assert world.now >= lone.leaf_ends


def test_it_is_renewed_by_itself_for_ever() -> None:
    """Forty years pass: at no moment is the CA older than its life, and calls go on."""
    world = World()
    signers = set()
    for _ in range(160):
        let_pass(world, LIFE / 40)
        assert isinstance(world.secret, StoredAuthority)
        assert world.now < world.secret.authority.not_after
        signers.add(world.secret.authority.signer)
    assert len(signers) >= 5
