"""Requests for nodes in the life of a gang: when one is made, what is said of it, and when it is withdrawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from engine.api import names
from engine.api.objects import ProvisioningRequest, Quota, RequestCondition
from engine.api.pod import PodSpec
from engine.api.workload import Workload
from engine.controller import provisioner
from engine.controller.provisioner import FAILED_MOST, LOOK_EVERY, REFUSED_FIRST, UNWANTED_AFTER
from engine.policy.model import parse_policy
from tests.support.cluster_records import changed, gpu_nodes, job, placement, pod, pod_set, shape, spec
from tests.support.leader import POLICY, Leader, unavailable
from tests.support.preempting import PREEMPTS

TOPOLOGY = "topologies: [{name: default, preset: demo, nodeSelector: {}}]\n"
ASKS = (
    POLICY
    + TOPOLOGY
    + "autoscaling: {provisioningRequest: {className: first, after: 10s, fallbacks: [{className: second}]}}\n"
)


CPU_HOSTS = [
    replace(one, name=f"cpu-{one.name}", allocatable={"cpu": 96_000, "pods": 110}) for one in gpu_nodes(1, 2, 2)
]


def launched() -> Workload:
    """A launcher that needs CPUs anywhere, and three workers of whole hosts that need one rack."""

    def template(says: dict[str, str], **each: int) -> PodSpec:
        labels = {names.MANAGED: "true"}
        return spec(shape=shape(**each), gates=(names.GATE,), labels=labels, annotations=says)

    launcher = pod_set("launcher", count=1, template=template({names.UNCONSTRAINED: "true"}, cpu=1000))
    worker = pod_set("worker", count=3, template=template({names.REQUIRE: "rack"}, gpu=8))
    return replace(job("train", require=None, held=True), pod_sets=(launcher, worker))


def leader_of(nodes: int = 0, policy: str = ASKS) -> Leader:
    """A leader on one rack; the cluster serves ProvisioningRequests."""
    leader = Leader(nodes=gpu_nodes(1, 1, nodes) if nodes else (), policy=policy)
    leader.stores.provisioning_version = "v1"
    return leader


def requests(leader: Leader) -> list[ProvisioningRequest]:
    return sorted(leader.stores.provisioning_requests.values(), key=lambda one: one.name)


def answers(leader: Leader, **conditions: bool) -> None:
    """The autoscaler sets conditions of the one request."""
    (known,) = requests(leader)
    at = 1_800_000_000.0 + leader.now
    fresh = {kind: RequestCondition(status, at, kind, f"{kind}: so it is") for kind, status in conditions.items()}
    version = str(int(known.resource_version) + 1)
    both = replace(known, conditions={**known.conditions, **fresh}, resource_version=version)
    leader.stores.provisioning_requests.apply("MODIFIED", both)
    leader.settle()


def message(leader: Leader, name: str = "train") -> str:
    placed = leader.placed(name)
    return str(placed.status.get("message", "")) if placed is not None else ""


@pytest.fixture
def asked() -> Iterator[Leader]:
    """A gang of 4 pods on a cluster without nodes, for which nodes have been requested."""
    leader = leader_of()
    leader.has(job("train", count=4, held=True))
    leader.settle()
    leader.later(11)
    assert [(one.class_name, one.pods) for one in requests(leader)] == [("first", 4)]
    yield leader


def test_a_gang_asks_for_nodes_after_a_moment() -> None:
    """Not at once: room may become free. Once, however long it takes."""
    leader = leader_of()
    leader.has(job("train", count=4, held=True))
    leader.settle()
    leader.later(8)
    assert requests(leader) == []
    leader.later(3)
    (request,) = requests(leader)
    assert (request.class_name, request.pods) == ("first", 4)
    for _ in range(20):
        leader.later(LOOK_EVERY)
    assert requests(leader) == [request]
    assert len(leader.hands.of("ask")) == 1


def with_two_waiting(*, limit: int) -> Leader:
    """A leader with slots on two hosts, which are all; gangs of two and four pods ask for hosts under a limit."""
    rule = f"namespaces: {{rules: [{{namespaces: [default], maxReservedHosts: {limit}}}]}}\n"
    leader = leader_of(2, ASKS + rule)
    leader.has(job("first", count=2, held=True))
    leader.settle()
    leader.has(job("second", count=2, held=True, created=2000.0), job("third", count=4, held=True, created=3000.0))
    leader.settle()
    leader.later(11)
    return leader


def test_no_nodes_for_a_gang_whose_namespace_may_have_no_more_hosts() -> None:
    """It could not use them: the autoscaler would start them, and remove them, again and again."""
    leader = with_two_waiting(limit=2)
    assert requests(leader) == []
    assert [leader.status(name)[1] for name in ("second", "third")] == ["ReservedHostsLimit"] * 2
    leader.view.set_policy(parse_policy(ASKS))
    leader.settle()
    leader.later(11)
    assert sorted(one.pods for one in requests(leader)) == [2, 4]


def test_no_nodes_for_a_gang_that_needs_more_hosts_than_its_namespace_may_have() -> None:
    """Two more are allowed: enough for a gang of two pods, which asks, and not for one of four, of a host each."""
    leader = with_two_waiting(limit=4)
    assert [one.pods for one in requests(leader)] == [2]
    assert leader.status("third")[1] == "ReservedHostsLimit"
    assert message(leader, "third") == (
        "needs at least 4 more hosts; its namespace has slots on 2 hosts; the limit is 4 "
        "(policy namespaces.rules[0].maxReservedHosts)"
    )


def test_the_gang_says_what_it_asked_for(asked: Leader) -> None:
    """In its message with the time and the class, and in the status as fields."""
    asked.later(11)
    assert message(asked).endswith("(class first)")
    assert "asked the autoscaler for 4 pods at " in message(asked)
    placed = asked.placed()
    assert placed is not None
    told = placed.status["provisioning"]
    assert (told["className"], told["pods"], told["state"], told["attempt"]) == ("first", 4, "Pending", 1)
    assert asked.status() == ("Waiting", "InsufficientFreeHosts")


def test_with_new_nodes_the_gang_starts_and_its_request_ends_when_its_pods_are_bound(asked: Leader) -> None:
    """Until then the nodes stay booked: an autoscaler removes what nobody uses."""
    answers(asked, Accepted=True, Provisioned=True)
    asked.has(*gpu_nodes(1, 1, 4))
    asked.settle()
    placed = asked.placed()
    assert placed is not None and placed.assignment is not None
    (request,) = requests(asked)
    assert placed.assignment.consumes is not None
    assert (placed.assignment.consumes.name, placed.assignment.consumes.class_name) == (request.name, "first")
    asked.later(5)
    assert requests(asked) == [request]
    workload = asked.workload()
    hosts = [slot.host for slot in placed.assignment.pod_sets[0].slots]
    asked.has(*(pod(workload, rank, host=host) for rank, host in enumerate(hosts)))
    asked.settle()
    asked.later(2 * LOOK_EVERY)
    assert requests(asked) == []


def test_room_that_became_free_ends_a_request_that_provided_nothing(asked: Leader) -> None:
    """At once: no node is started for a gang that runs; and its pods use no request."""
    answers(asked, Accepted=True)
    asked.has(*gpu_nodes(1, 1, 4))
    asked.settle()
    asked.later(LOOK_EVERY)
    placed = asked.placed()
    assert placed is not None and placed.assignment is not None
    assert placed.assignment.consumes is None
    assert requests(asked) == []


def test_each_answer_is_an_event_once(asked: Leader) -> None:
    """Also across leaders: the status keeps what was told."""
    answers(asked, Accepted=True)
    answers(asked, Accepted=True, Provisioned=True)
    asked.later(30)
    events = [reason for _, reason in asked.hands.gang_events if reason.startswith("Provisioning")]
    assert events == ["ProvisioningRequestAccepted", "ProvisioningRequestProvisioned"]
    asked.leading = False
    asked.settle()
    asked.leading = True
    asked.later(30)
    assert [reason for _, reason in asked.hands.gang_events if reason.startswith("Provisioning")] == events


def test_after_a_failure_the_next_class_is_tried_and_the_gang_says_so(asked: Leader) -> None:
    answers(asked, Accepted=True, Failed=True)
    asked.later(2 * LOOK_EVERY)
    assert [one.class_name for one in requests(asked)] == ["second"]
    failed = [note for _, note in asked.hands.notes if "could not provide nodes for 4 pods (class first)" in note]
    assert failed and "Failed: so it is" in failed[0]
    answers(asked, Failed=True)
    asked.later(12)
    assert "the next request (first) follows at " in message(asked)
    assert len(asked.hands.of("ask")) == 2
    asked.later(60)
    assert [one.class_name for one in requests(asked)] == ["first"]


@pytest.mark.parametrize(("end", "words"), [("BookingExpired", "no longer keeps"), ("CapacityRevoked", "taken back")])
def test_nodes_that_did_not_serve_the_gang_are_told_and_asked_for_in_the_next_class(
    asked: Leader, end: str, words: str
) -> None:
    """After the last class there is a pause, and the first one follows."""
    answers(asked, Provisioned=True)
    answers(asked, **{end: True})
    asked.later(12)
    assert end in {reason for _, reason in asked.hands.gang_events}
    assert any(words in note for _, note in asked.hands.notes)
    assert [(one.class_name, one.name[-2:]) for one in requests(asked)] == [("second", "-2")]
    answers(asked, Provisioned=True)
    answers(asked, **{end: True})
    asked.later(12)
    assert words in message(asked)
    asked.later(60)
    assert [(one.class_name, one.name[-2:]) for one in requests(asked)] == [("first", "-3")]


def test_only_requests_without_an_answer_keep_others_waiting(asked: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    """An autoscaler may look for the nodes of a gang for days: it has said so, and goes on with the next one."""
    monkeypatch.setattr(provisioner, "MOST_OPEN", 1)
    asked.has(job("second", count=2, held=True))
    asked.settle()
    asked.later(30)
    assert [one.pods for one in requests(asked)] == [4]
    answers(asked, Accepted=True, Provisioned=False)
    asked.later(2 * LOOK_EVERY)
    assert sorted(one.pods for one in requests(asked)) == [2, 4]


def test_requests_that_are_just_being_made_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes take longer than passes: a crowd that waits is not asked for at once."""
    monkeypatch.setattr(provisioner, "MOST_OPEN", 20)
    leader = leader_of()
    leader.has(*(job(f"train-{number}", count=4, held=True, created=float(number)) for number in range(60)))
    leader.settle()
    for _ in range(30):
        leader.now += LOOK_EVERY
        leader.turn()
        if leader.pool.waiting:
            leader.pool.waiting.pop(0)()
    for _ in range(10):
        leader.later(LOOK_EVERY)
    assert len(requests(leader)) == 20


def test_gangs_of_which_the_request_fails_take_no_place_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the attempts the others ask."""
    monkeypatch.setattr(provisioner, "MOST_OPEN", 1)
    leader = leader_of()
    for number in range(2):
        leader.has(job(f"train-{number}", count=4 + number, held=True, created=float(number)))
    leader.settle()
    leader.hands.broken["ask"] = lambda name: unavailable(name) if "train-0" in name else None
    leader.later(11)
    leader.later(LOOK_EVERY)
    assert [one.pods for one in requests(leader)] == [5]


def test_a_class_that_nobody_answers_keeps_no_other_class_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The autoscaler of one pool is down: the gangs of another pool, which wait behind, ask theirs."""
    monkeypatch.setattr(provisioner, "MOST_OPEN", 1)
    other = "{name: other, preset: demo, nodeSelector: {pool: other}}"
    own = "{name: other, provisioningRequest: {className: alive, after: 10s}}"
    leader = leader_of(
        policy=POLICY
        + TOPOLOGY.replace("]", f", {other}]")
        + f"autoscaling: {{provisioningRequest: {{className: dead, after: 10s}}, topologies: [{own}]}}\n"
    )
    for number in range(4):
        gang = job(f"train-{number}", count=4, held=True, created=float(number))
        topology = {names.TOPOLOGY: "other" if number >= 2 else "default"}
        leader.has(replace(gang, annotations={**gang.annotations, **topology}))
    leader.settle()
    for _ in range(3):
        leader.later(11)
    assert sorted(one.class_name for one in requests(leader)) == ["alive", "dead"]


def test_a_pool_that_grew_in_other_domains_is_told(asked: Leader) -> None:
    """The gang needs one rack, and the new nodes are in two."""
    answers(asked, Provisioned=True)
    at = 1_800_000_000.0 + asked.now
    asked.has(*(replace(node, created=at, settled_at=at) for node in gpu_nodes(1, 2, 2)))
    asked.later(12)
    assert "4 new nodes came up in b0-r0 and b0-r1, and it needs one rack" in message(asked)
    assert asked.status() == ("Waiting", "InsufficientFreeHosts")


def test_a_gang_that_never_fits_the_nodes_of_today_waits_for_others() -> None:
    """Too large for the only rack, or for the GPUs of any host: an autoscaler may have larger ones."""
    leader = leader_of(2)
    leader.has(job("train", count=8, held=True))
    leader.settle()
    assert leader.status() == ("Waiting", "InsufficientFreeHosts")
    assert "waits for new nodes" in message(leader)
    leader.later(11)
    assert [one.pods for one in requests(leader)] == [8]
    without = Leader(nodes=gpu_nodes(1, 1, 2), policy=POLICY + TOPOLOGY)
    without.has(job("train", count=8, held=True))
    without.settle()
    assert without.status() == ("Waiting", "GangTooLarge")


def test_free_hosts_that_are_of_no_use_are_not_counted_again() -> None:
    """Two racks with two free hosts each: an autoscaler would find room for four pods, and no rack has it."""
    asks = job("train", count=3, held=True)
    anywhere = replace(job("any", count=5, require=None, held=True))
    leader = Leader(nodes=gpu_nodes(1, 2, 2), policy=ASKS)
    leader.stores.provisioning_version = "v1"
    leader.has(asks)
    leader.settle()
    leader.later(11)
    assert [one.pods for one in requests(leader)] == [3]
    assert leader.hands.node_requests.elsewhere == ("b0-r0-h0", "b0-r0-h1", "b0-r1-h0", "b0-r1-h1")
    more = {**anywhere.annotations, names.UNCONSTRAINED: "true"}
    leader.has(replace(anywhere, annotations=more))
    leader.settle()
    leader.later(11)
    assert sorted(one.pods for one in requests(leader)) == [3, 5]
    assert leader.hands.node_requests.elsewhere == ()


def test_free_hosts_are_of_use_for_pods_that_need_no_domain() -> None:
    """A launcher on CPUs beside workers that need one rack: it may run on any host with room, today's included."""
    leader = Leader(nodes=[*gpu_nodes(1, 2, 2), *CPU_HOSTS], policy=ASKS)
    leader.stores.provisioning_version = "v1"
    leader.has(launched())
    leader.settle()
    leader.later(11)
    assert [one.pods for one in requests(leader)] == [4]
    assert leader.hands.node_requests.elsewhere == ("b0-r0-h0", "b0-r0-h1", "b0-r1-h0", "b0-r1-h1")


def test_gangs_that_wait_for_something_else_ask_for_nothing() -> None:
    """On hold, suspended by their user, or behind another gang in strict order."""
    held = leader_of(policy=ASKS + "mode: hold\n")
    held.has(job("train", count=4, held=True))
    held.settle()
    user = leader_of()
    user.has(job("train", count=4, suspended=True))
    user.settle()
    strict = leader_of(policy=ASKS + "queue: {order: strict}\n")
    strict.has(job("train", count=4, held=True, created=1.0), job("behind", count=2, held=True, created=2.0))
    strict.settle()
    for leader in (held, user, strict):
        leader.later(60)
    assert requests(held) == requests(user) == []
    assert [one.pods for one in requests(strict)] == [4]
    assert strict.status("behind")[1] == "QueuedBehind"


def test_a_request_is_withdrawn_when_the_gang_waits_for_something_else_for_a_while(asked: Leader) -> None:
    """A moment does not count: the order of the queue changes all the time."""
    asked.view.set_policy(parse_policy(ASKS + "mode: hold\n"))
    asked.settle()
    asked.later(UNWANTED_AFTER / 2)
    assert len(requests(asked)) == 1
    asked.later(UNWANTED_AFTER)
    asked.later(LOOK_EVERY)
    assert requests(asked) == []


def test_a_gang_that_had_slots_since_keeps_its_nodes_for_as_long_again(asked: Leader) -> None:
    """How long it had waited for something else before its nodes came counts no more when it waits again."""
    answers(asked, Provisioned=True)
    quota = Quota("default", "q", hard={"pods": 0}, used={}, scopes=())
    asked.stores.quotas.apply("ADDED", quota)
    asked.later(UNWANTED_AFTER / 2)
    asked.stores.quotas.apply("DELETED", quota)
    asked.has(*gpu_nodes(1, 1, 4))
    asked.settle()
    placed = asked.placed()
    assert placed is not None
    assert placed.assignment is not None
    asked.later(UNWANTED_AFTER)
    asked.stores.quotas.apply("ADDED", quota)
    asked.hands.put(replace(placed, assignment=None))
    asked.has(job("train", count=4, held=True, resource_version=asked.hands.version()))
    asked.later(UNWANTED_AFTER / 2)
    assert asked.status() == ("Waiting", "QuotaExceeded")
    assert len(requests(asked)) == 1
    asked.later(UNWANTED_AFTER)
    assert requests(asked) == []


def test_a_gang_for_which_others_end_says_nothing_of_its_nodes() -> None:
    """Its status is read back as it was written: a note would be added to it again, and written, in each turn."""
    leader = leader_of(2, ASKS.replace("after: 10s", "after: 3s") + PREEMPTS)
    high = spec(shape=shape(gpu=8), gates=(names.GATE,), labels={names.MANAGED: "true"}, priority=10)
    low = job("low", count=2)
    leader.has(low, placement(low, {"b0-r0-h0": 1, "b0-r0-h1": 1}))
    leader.has(*(pod(low, rank, host=f"b0-r0-h{rank}") for rank in range(2)))
    leader.has(job("high", count=2, held=True, template=high))
    leader.settle()
    leader.later(5)
    assert len(requests(leader)) == 1
    for _ in range(8):
        leader.later(LOOK_EVERY)
    assert leader.status("high") == ("Waiting", "Preempting")
    assert "autoscaler" not in message(leader, "high")
    assert [status.reason for name, status in leader.hands.told if name == "high"][-2:] == [
        "InsufficientFreeGPUs",
        "Preempting",
    ]


def test_a_gang_for_which_hosts_are_kept_still_waits_for_its_nodes() -> None:
    """Pods that run there may take days; the one that has waited longest must not be the only one without a request."""
    leader = leader_of(2, ASKS + "queue: {patience: 60s}\n")
    leader.has(pod(job("somebody"), 0, host="b0-r0-h0"), job("train", count=2, held=True))
    leader.settle()
    leader.later(11)
    (request,) = requests(leader)
    for _ in range(20):
        leader.later(11)
    assert leader.status() == ("Waiting", "RoomKept")
    assert requests(leader) == [request]
    assert "asked the autoscaler for 2 pods" in message(leader)


def test_a_gang_for_which_hosts_are_kept_asks_for_nodes() -> None:
    """Also if none were asked for before; not if it waits for gangs that keep apart, which a node does not end."""
    leader = leader_of(2, POLICY + TOPOLOGY + "queue: {patience: 60s}\n")
    leader.has(pod(job("somebody"), 0, host="b0-r0-h0"), job("train", count=2, held=True))
    apart = leader_of(2, POLICY + TOPOLOGY + "queue: {patience: 60s}\n")
    other = job("other", count=1, held=True)
    apart.has(replace(other, annotations={**other.annotations, names.EXCLUSIVE: "rack"}))
    apart.settle()
    apart.has(job("train", count=1, held=True))
    for one in (leader, apart):
        one.settle()
        one.later(100)
        assert one.status() == ("Waiting", "RoomKept")
        one.view.set_policy(parse_policy(ASKS + "queue: {patience: 60s}\n"))
        one.settle()
        one.later(2 * LOOK_EVERY)
    assert [one.pods for one in requests(leader)] == [2]
    assert requests(apart) == []


def test_a_changed_gang_gets_a_new_request(asked: Leader) -> None:
    """For the pods that it has now."""
    workload = changed(asked.workload(), slots=2, total=2, remaining=2)
    asked.has(replace(workload, generation=workload.generation + 1, resource_version="20000000"))
    asked.settle()
    asked.later(LOOK_EVERY)
    asked.later(11)
    assert [one.pods for one in requests(asked)] == [2]


def test_a_gang_whose_level_is_only_preferred_from_now_on_asks_anew() -> None:
    """Hosts of today are of use for it now: with them a pool may be large enough that was too small before."""
    gang = job("train", count=4, held=True)
    leader = leader_of(2)
    leader.has(replace(gang, annotations={**gang.annotations, names.RELAX_AFTER: "1m"}))
    leader.settle()
    leader.later(11)
    (first,) = requests(leader)
    assert leader.hands.node_requests.elsewhere == ("b0-r0-h0", "b0-r0-h1")
    answers(leader, Accepted=True, Provisioned=False)
    for _ in range(12):
        leader.later(11)
    (second,) = requests(leader)
    assert (second.pods, second.name != first.name) == (4, True)
    assert leader.hands.node_requests.elsewhere == ()


def test_without_a_class_requests_that_are_left_are_withdrawn(asked: Leader) -> None:
    """Also by a leader that never made one."""
    asked.leading = False
    asked.settle()
    asked.view.set_policy(parse_policy(POLICY + TOPOLOGY))
    asked.leading = True
    asked.later(LOOK_EVERY)
    asked.later(12)
    assert requests(asked) == []
    assert "autoscaler" not in message(asked)


def test_requests_of_a_gang_that_is_gone_are_withdrawn(asked: Leader) -> None:
    """Its Placement has been removed, and the garbage collector has not come by."""
    placed = asked.placed()
    assert placed is not None
    asked.stores.workloads.apply("DELETED", asked.workload())
    asked.stores.placements.apply("DELETED", placed)
    asked.settle()
    asked.later(LOOK_EVERY)
    asked.later(UNWANTED_AFTER + 1)
    assert requests(asked) == []


def test_a_foreign_request_with_our_label_is_left_alone(asked: Leader) -> None:
    """By its name it is none of ours."""
    (ours,) = requests(asked)
    theirs = replace(ours, name="mine", uid="other", resource_version="20000001")
    asked.stores.provisioning_requests.apply("ADDED", theirs)
    asked.settle()
    asked.later(30)
    assert theirs in requests(asked)
    assert asked.hands.of("withdraw") == []


def test_a_refused_request_is_tried_again_later_and_later_and_the_gang_says_why() -> None:
    """It is planned meanwhile as ever."""
    leader = leader_of()
    leader.hands.node_requests.refuses = "the ProvisioningRequest for its nodes was refused: no rights"
    leader.has(job("train", count=4, held=True))
    leader.settle()
    for _ in range(int(REFUSED_FIRST)):
        leader.later(1)
    assert len(leader.hands.of("ask")) == 1
    leader.later(12)
    assert message(leader).endswith("was refused: no rights")
    for _ in range(int(4 * REFUSED_FIRST)):
        leader.later(1)
    assert len(leader.hands.of("ask")) == 3
    leader.has(*gpu_nodes(1, 1, 4))
    leader.settle()
    placed = leader.placed()
    assert placed is not None and placed.assignment is not None


@pytest.mark.parametrize("write", ["ask", "withdraw"])
def test_a_write_that_fails_is_tried_again_with_growing_pauses_and_the_gang_is_placed_meanwhile(write: str) -> None:
    """An API server in trouble gets no request each second, and the gang does not wait for it."""
    leader = leader_of()
    leader.has(job("train", count=4, held=True))
    leader.settle()
    if write == "withdraw":
        leader.later(11)
        fewer = changed(leader.workload(), slots=2, total=2, remaining=2)
        version = leader.hands.version()
        leader.has(replace(fewer, generation=fewer.generation + 1, resource_version=version))
    leader.hands.broken = {write: unavailable}
    for _ in range(90):
        leader.later(1)
    assert 5 <= len(leader.hands.of(write)) <= 7  # after 2, 4, 8, 16, 32 s
    leader.has(*gpu_nodes(1, 1, 4))
    leader.later(LOOK_EVERY)
    placed = leader.placed()
    assert placed is not None and placed.assignment is not None
    leader.hands.broken = {}
    leader.later(FAILED_MOST)
    leader.later(LOOK_EVERY)
    assert requests(leader) == []


@pytest.mark.parametrize("nodes", [0, 2])
def test_a_cluster_without_the_api_says_so(nodes: int) -> None:
    """The gang waits, and nothing claims that nodes are requested; when the API comes, they are."""
    leader = leader_of(nodes)
    leader.stores.provisioning_version = ""
    leader.has(job("train", count=4, held=True))
    leader.settle()
    leader.later(11)
    leader.later(11)
    said = message(leader)
    assert said.endswith("; no nodes are requested: the cluster serves no ProvisioningRequests")
    assert said.count("are requested") == 1
    assert leader.hands.of("ask") == []
    leader.stores.provisioning_version = "v1beta1"
    leader.later(LOOK_EVERY)
    assert [one.api_version for one in requests(leader)] == ["autoscaling.x-k8s.io/v1beta1"]


def test_a_gang_with_a_request_of_its_own_gets_none() -> None:
    """Its user has asked the autoscaler himself."""
    leader = leader_of()
    workload = job("train", count=4, held=True)
    template = workload.pod_sets[0].template
    own = {**template.annotations, names.CONSUME: "mine"}
    leader.has(changed(workload, template=replace(template, annotations=own)))
    leader.settle()
    leader.later(11)
    leader.later(11)
    assert requests(leader) == []
    assert message(leader).endswith("its pods use a ProvisioningRequest of their own")


def test_gangs_held_by_their_gates_ask_for_the_same() -> None:
    """Their pods exist, and an autoscaler does not see gated ones."""
    leader = leader_of()
    workload = job("train", count=4, suspendable=False)
    leader.has(workload, *(pod(workload, rank, gated=True) for rank in range(4)))
    leader.settle()
    leader.later(11)
    assert [one.pods for one in requests(leader)] == [4]


def test_without_the_feature_nothing_is_looked_at() -> None:
    """No request, no time of the loop."""
    leader = leader_of(policy=POLICY + TOPOLOGY)
    leader.has(job("train", count=4, held=True))
    leader.settle()
    leader.later(30)
    assert leader.controller._provisioner.due is None
    assert requests(leader) == []
