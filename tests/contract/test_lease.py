from __future__ import annotations

import random
import threading
import time

import pytest

from engine.cluster.client import ApiUnavailable, KubeClient
from engine.cluster.election import Terms
from engine.cluster.lease import LeaseCandidate, NotLeader, boottime, get_lease, read_lease
from tests.support.eventually import PROMPT, eventually
from tests.support.fake_api import Answer, FakeApi, Hang, Request, Stall

TERMS = Terms()
LEASE = "/apis/coordination.k8s.io/v1/namespaces/topogate-system/leases/topogate"


class Clock:
    """Time that moves when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Player(LeaseCandidate):
    """A candidate on a test's clock that notes when its terms begin and end."""

    def __init__(self, api: KubeClient, identity: str, clock: Clock, **options: object) -> None:
        self.told: list[str] = []
        super().__init__(
            api,
            "topogate-system",
            "topogate",
            identity,
            clock=clock,
            rng=random.Random(1),
            on_started=lambda: self.told.append("started"),
            on_stopped=lambda: self.told.append("stopped"),
            **options,  # type: ignore[arg-type]
        )


@pytest.fixture
def clock() -> Clock:
    return Clock()


def writes(request: Request) -> bool:
    return request.method in ("PUT", "PATCH")


def leads(candidate: LeaseCandidate) -> bool:
    return candidate.is_leader


def spec(fake: FakeApi) -> dict[str, object]:
    lease = fake.get(LEASE)
    assert lease is not None
    return dict(lease["spec"])


def test_a_crash_of_the_leader_costs_nine_and_a_half_seconds() -> None:
    """Until another leads: the whole duration, and one retry."""
    assert TERMS.duration + TERMS.retry == 9.5


def test_the_first_candidate_creates_the_lease_and_leads(fake: FakeApi, api: KubeClient, clock: Clock) -> None:
    """Without a Lease the first to come creates it (by server-side apply, so that RBAC can name it) and leads."""
    a = Player(api, "a", clock)
    with pytest.raises(NotLeader):
        a.check()
    assert TERMS.retry / 2 <= a.step() <= TERMS.retry
    a.check()
    assert leads(a)
    assert a.told == ["started"]
    held = spec(fake)
    assert (held["holderIdentity"], held["leaseDurationSeconds"], held["leaseTransitions"]) == ("a", TERMS.duration, 0)
    assert str(held["renewTime"]).endswith("Z")
    assert [request.method for request in fake.requests] == ["GET", "PATCH"]


def test_renewals_keep_one_term(fake: FakeApi, api: KubeClient, clock: Clock) -> None:
    """A leader that renews in time leads on in the same term: callbacks are not repeated, acquireTime stays."""
    a = Player(api, "a", clock)
    a.step()
    acquired = spec(fake)["acquireTime"]
    for _ in range(20):
        clock.now += TERMS.retry
        a.step()
        assert leads(a)
    assert a.told == ["started"]
    assert a.term == 1
    assert spec(fake)["acquireTime"] == acquired


def test_a_leader_renews_by_one_write(fake: FakeApi, api: KubeClient, clock: Clock) -> None:
    """It knows the version of what it wrote last: no look before the write, as long as nobody else wrote."""
    a = Player(api, "a", clock)
    a.step()
    before = len(fake.requests)
    for _ in range(3):
        clock.now += TERMS.retry
        a.step()
    assert [request.method for request in fake.requests[before:]] == ["PUT"] * 3
    fake.put(LEASE, metadata={"labels": {"somebody": "wrote"}})
    a.step()
    assert [request.method for request in fake.requests[before + 3 :]] == ["PUT", "GET", "PUT"]
    assert (leads(a), a.told) == (True, ["started"])


def test_who_was_out_of_time_looks_before_it_writes(fake: FakeApi, api: KubeClient, clock: Clock) -> None:
    """A process that stood still: its first request is a look, and what another one took is left to that one."""
    a, b = Player(api, "a", clock), Player(api, "b", clock)
    a.step()
    b.step()
    clock.now += TERMS.duration
    b.step()
    before = len(fake.requests)
    a.step()
    assert [request.method for request in fake.requests[before:]] == ["GET"]
    assert (leads(a), leads(b)) == (False, True)


def test_a_second_candidate_waits_for_the_whole_duration(fake: FakeApi, api: KubeClient, clock: Clock) -> None:
    """A crashed leader's lease is taken when nothing has changed for its duration, and the transition is counted."""
    a, b = Player(api, "a", clock), Player(api, "b", clock)
    a.step()
    b.step()
    clock.now += TERMS.duration - 0.1
    assert b.step() == pytest.approx(0.1)
    assert not leads(b)
    assert spec(fake)["holderIdentity"] == "a"
    clock.now += 0.2
    b.step()
    assert leads(b)
    assert not leads(a)
    assert spec(fake)["leaseTransitions"] == 1
    a.step()
    assert a.told == ["started", "stopped"]
    assert spec(fake)["holderIdentity"] == "b"


def test_a_renewal_that_was_seen_starts_the_wait_again(api: KubeClient, clock: Clock) -> None:
    """As long as the holder renews, nobody takes the Lease."""
    a, b = Player(api, "a", clock), Player(api, "b", clock)
    for _ in range(10):
        a.step()
        b.step()
        clock.now += TERMS.renew_deadline - 0.1
    assert leads(a)
    assert b.told == []


def test_creation_is_won_by_one(fake: FakeApi, api: KubeClient, clock: Clock) -> None:
    """Two candidates that both saw no Lease: one creates it, the other meets a conflict."""
    a, b = Player(api, "a" * 300, clock), Player(api, "a" * 299 + "b", clock)
    gate = threading.Event()
    fake.fault(Stall(gate, then_work=True), when=lambda request: request.method == "PATCH")
    thread = threading.Thread(target=a.step)
    thread.start()
    fake.wait_for(lambda server: server.count("PATCH") == 1)
    b.step()
    gate.set()
    thread.join(60)
    assert leads(b)
    assert not leads(a)
    assert a.told == []


def test_a_take_over_is_won_by_one(fake: FakeApi, api: KubeClient, clock: Clock) -> None:
    """Two candidates that both see the lease run out: compare-and-swap lets one through."""
    fake.put(LEASE, spec={"holderIdentity": "gone", "leaseDurationSeconds": 15, "leaseTransitions": 4})
    a, b = Player(api, "a", clock), Player(api, "b", clock)
    a.step()
    b.step()
    clock.now += 15
    gate = threading.Event()
    fake.fault(Stall(gate, then_work=True), when=lambda request: request.method == "PUT")
    thread = threading.Thread(target=a.step)
    thread.start()
    fake.wait_for(lambda server: server.count("PUT") == 1)
    b.step()
    gate.set()
    thread.join(60)
    assert (a.is_leader, b.is_leader) == (False, True)
    assert spec(fake)["leaseTransitions"] == 5


@pytest.mark.parametrize("fault", [Answer(500), Answer(409), Answer(403), Answer(401), Answer(200, b"{"), Hang()])
def test_every_fault_is_a_failed_renewal(fake: FakeApi, api: KubeClient, clock: Clock, fault: Answer | Hang) -> None:
    """Whatever goes wrong while renewing: the leader leads until its deadline and not a moment longer."""
    a = Player(api, "a", clock)
    a.step()
    fake.fault(fault, times=100)
    clock.now += TERMS.renew_deadline - 0.1
    a.step()
    assert leads(a)
    assert a.told == ["started"]
    clock.now += 0.1
    with pytest.raises(NotLeader):
        a.check()
    a.step()
    assert a.told == ["started", "stopped"]


def test_a_leader_tries_again_soon_after_a_renewal_that_failed(fake: FakeApi, api: KubeClient, clock: Clock) -> None:
    """It has a deadline; who does not lead has none, and comes back at the pace that he has anyway."""
    a, b = Player(api, "a", clock), Player(api, "b", clock)
    a.step()
    fake.fault(Answer(500), when=writes)
    assert a.step() <= TERMS.retry / 4
    fake.fault(Answer(500))
    assert b.step() > TERMS.retry / 4


def test_a_renewal_may_take_what_is_left_of_the_deadline(fake: FakeApi, api: KubeClient, clock: Clock) -> None:
    """An API server that answers slowly, but in time, costs no term."""
    terms = Terms(duration=9.0, renew_deadline=6.0, retry=0.4)
    a = Player(api, "a", clock, terms=terms)
    a.step()
    clock.now += terms.retry
    gate = threading.Event()
    fake.fault(Stall(gate, then_work=True), when=writes)
    threading.Timer(3.2, gate.set).start()  # later than half of the deadline
    a.step()
    clock.now += terms.renew_deadline - 0.1
    assert (leads(a), a.term, fake.count("PUT")) == (True, 1, 1)


def test_the_fence_needs_no_thread(fake: FakeApi, api: KubeClient, clock: Clock) -> None:
    """While the API server hangs and the candidate's thread with it, the fence falls by the clock alone."""
    a = Player(api, "a", clock)
    a.step()
    gate = threading.Event()
    fake.fault(Stall(gate), when=writes)
    thread = threading.Thread(target=a.step)
    thread.start()
    fake.wait_for(lambda server: server.count("PUT") == 1)
    a.check()
    clock.now += 10
    assert not leads(a)
    gate.set()
    thread.join(60)
    assert a.told == ["started", "stopped"]


def test_a_late_answer_begins_a_new_term(fake: FakeApi, api: KubeClient, clock: Clock) -> None:
    """A renewal answered after the deadline: what was begun in the old term is fenced off for good."""
    a = Player(api, "a", clock)
    a.step()
    fence = a.fence()
    fence()
    clock.now += 9
    gate = threading.Event()
    fake.fault(Stall(gate, then_work=True), when=lambda request: request.method == "PUT")
    thread = threading.Thread(target=a.step)
    thread.start()
    fake.wait_for(lambda server: server.count("PUT") == 1)
    clock.now += 4
    assert not leads(a)
    gate.set()
    thread.join(60)
    assert leads(a)
    assert a.told == ["started", "stopped", "started"]
    with pytest.raises(NotLeader, match="term 1"):
        fence()
    a.fence()()


def test_an_answer_that_comes_too_late_makes_no_leader(fake: FakeApi, api: KubeClient, clock: Clock) -> None:
    """A take-over that is answered after its own deadline is none."""
    fake.put(LEASE, spec={"holderIdentity": ""})
    a = Player(api, "a", clock)
    gate = threading.Event()
    fake.fault(Stall(gate, then_work=True), when=writes)
    thread = threading.Thread(target=a.step)
    thread.start()
    fake.wait_for(lambda server: server.count("PUT") == 1)
    clock.now += 11
    gate.set()
    thread.join(60)
    assert not leads(a)
    assert a.told == []


def test_a_deleted_lease_is_made_again_by_its_holder(fake: FakeApi, api: KubeClient, clock: Clock) -> None:
    """Somebody deletes the Lease: the holder creates it anew in a new term; others wait out his old one."""
    a, b = Player(api, "a", clock), Player(api, "b", clock)
    a.step()
    b.step()
    fake.remove(LEASE)
    b.step()
    assert not leads(b)
    assert fake.get(LEASE) is None
    clock.now += 2
    a.step()
    assert leads(a)
    assert a.told == ["started", "stopped", "started"]
    b.step()
    assert not leads(b)


def test_a_deleted_lease_of_a_dead_holder_is_made_by_another(fake: FakeApi, api: KubeClient, clock: Clock) -> None:
    """When the holder does not come back, another creates the Lease after its duration."""
    a, b = Player(api, "a", clock), Player(api, "b", clock)
    a.step()
    b.step()
    fake.remove(LEASE)
    b.step()
    clock.now += 15
    b.step()
    assert leads(b)


@pytest.mark.parametrize(
    "held",
    [{}, {"holderIdentity": None}, {"holderIdentity": "", "leaseTransitions": -4}, {"leaseDurationSeconds": None}],
)
def test_an_empty_lease_is_taken(fake: FakeApi, api: KubeClient, clock: Clock, held: dict[str, object]) -> None:
    """A Lease that names nobody is free."""
    fake.put(LEASE, spec={"x": 1})
    fake.put(LEASE, spec=held)
    a = Player(api, "a", clock)
    a.step()
    assert leads(a)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"spec":{}}', b'{"metadata":{},"spec":{"holderIdentity":7}}'])
def test_what_is_no_lease_is_refused(body: bytes) -> None:
    """Bytes that are no Lease raise ValueError."""
    with pytest.raises(ValueError, match=r"."):
        read_lease(body)


def test_a_lease_is_read_or_absent_or_a_fault(fake: FakeApi, api: KubeClient) -> None:
    """Bytes that are no Lease are a fault of the API server, as for any other object."""
    assert get_lease(api, "topogate-system", "topogate") is None
    fake.put(LEASE, spec={"holderIdentity": "a", "leaseDurationSeconds": 8})
    found = get_lease(api, "topogate-system", "topogate")
    assert found is not None
    assert (found.holder, found.duration) == ("a", 8.0)
    fake.fault(Answer(200, b"[]"))
    with pytest.raises(ApiUnavailable, match="not a Lease"):
        get_lease(api, "topogate-system", "topogate")


def test_stop_releases_so_that_another_takes_over_at_once(fake: FakeApi, api: KubeClient, clock: Clock) -> None:
    """On stop the fence falls first, then the Lease is released; the next round of another candidate takes it."""
    a, b = Player(api, "a", clock), Player(api, "b", clock)
    a.start()
    fake.wait_for(lambda server: server.count("PATCH") == 1)
    eventually(lambda: a.is_leader)
    b.step()
    a.stop()
    assert not leads(a)
    assert a.told == ["started", "stopped"]
    assert spec(fake)["holderIdentity"] == ""
    b.step()
    assert leads(b)
    assert spec(fake)["leaseTransitions"] == 1


def test_stop_of_one_that_does_not_lead_releases_nothing(fake: FakeApi, api: KubeClient, clock: Clock) -> None:
    """A follower that stops leaves the leader's Lease alone."""
    a, b = Player(api, "a", clock), Player(api, "b", clock)
    a.step()
    b.start()
    fake.wait_for(lambda server: server.count("GET") == 2)
    b.stop()
    assert spec(fake)["holderIdentity"] == "a"
    assert b.told == []


def test_stop_is_quick_while_the_server_hangs(fake: FakeApi, api: KubeClient, clock: Clock) -> None:
    """A server that does not answer holds nobody up: the fence is down at once, the rest is given up."""
    a = Player(api, "a", clock)
    gate = threading.Event()
    fake.fault(Stall(gate), times=10)
    a.start()
    fake.wait_for(lambda server: server.count("GET") == 1)
    started = time.monotonic()
    a.stop(timeout=0.5)
    assert time.monotonic() - started < PROMPT
    assert not leads(a)
    gate.set()


def test_real_threads_hand_over(fake: FakeApi, api: KubeClient) -> None:
    """Three candidates in threads: one leads; when it stops, another does within a retry."""
    terms = Terms(duration=90, renew_deadline=60, retry=0.2)  # that of the dead one would be waited out
    players = [LeaseCandidate(api, "topogate-system", "topogate", f"p{number}", terms=terms) for number in range(3)]
    for player in players:
        player.start()
    eventually(lambda: sum(player.is_leader for player in players) == 1)
    first = next(player for player in players if player.is_leader)
    first.stop()
    stopped = time.monotonic()
    eventually(lambda: any(player.is_leader for player in players))
    assert time.monotonic() - stopped < PROMPT
    for player in players:
        player.stop()


def test_a_callback_that_fails_ends_nothing(api: KubeClient, clock: Clock) -> None:
    """An exception in a callback is logged; the candidate goes on."""

    def fail() -> None:
        raise RuntimeError("boom")

    a = LeaseCandidate(api, "n", "l", "a", clock=clock, on_started=fail)
    a.step()
    assert leads(a)


@pytest.mark.parametrize("terms", [(15, 15, 2), (15, 10, 10), (10, 15, 2), (15, 10, 0)])
def test_times_that_are_not_safe_are_refused(terms: tuple[float, float, float]) -> None:
    """The deadline must end before the duration, and a retry before the deadline."""
    with pytest.raises(ValueError, match="wanted 0 < retry"):
        Terms(*terms)


def test_the_clock_never_goes_back() -> None:
    """The default clock is monotonic, whatever happens to the wall clock."""
    assert boottime() <= boottime()
