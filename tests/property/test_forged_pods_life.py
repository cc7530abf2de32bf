"""Pods without the GPUs of their template, put anywhere by a tenant: no host is ever given out twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import names
from engine.api.pod import Pod
from tests.support.cluster_records import changed, gpu_nodes, job, pod, shape
from tests.support.leader import Leader

HOSTS = [f"b0-r0-h{number}" for number in range(8)]
GANGS = ("a", "b", "c")
_GANG, _RANK, _HOST = st.sampled_from(GANGS), st.integers(0, 4), st.sampled_from(HOSTS)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("come"), _GANG, st.integers(2, 4), st.booleans()),
        st.tuples(st.just("put"), _GANG, _RANK, _HOST),
        st.tuples(st.just("put"), _GANG, _RANK, _HOST),
        st.tuples(st.just("pin"), _GANG, _RANK, _HOST),
        st.tuples(st.just("hold"), _GANG, _RANK, st.booleans()),
        st.tuples(st.just("make"), _GANG, _RANK, st.none()),
        st.tuples(st.just("remove"), st.none(), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("remove"), st.none(), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("scale"), _GANG, st.integers(2, 4), st.none()),
        st.tuples(st.just("cordon"), st.none(), st.none(), _HOST),
        st.tuples(st.just("leave"), _GANG, st.none(), st.none() | _HOST),
        st.tuples(st.just("time"), st.none(), st.sampled_from((6, 40, 700)), st.none()),
    ),
    min_size=20,
    max_size=40,
)


class Tenant:
    """Three gangs in one rack, and whatever their user does by hand."""

    def __init__(self) -> None:
        self.leader = Leader(nodes=gpu_nodes(1, 1, len(HOSTS)))
        self.count = 0

    def do(self, what: str, name: str | None, number: int | None, more: str | bool | None) -> None:
        """One step; nothing where there is no such gang or pod."""
        leader, known = self.leader, {one.name for one in self.leader.stores.workloads.values()}
        self.count += 1
        if what == "come" and name is not None and number is not None:
            if name not in known:
                asks = {names.UNCONSTRAINED: "true"} | ({names.MIN_AVAILABLE: "2"} if number == 3 else {})
                leader.has(
                    job(name, count=number, require=None, held=number > 2, ranked=more is True, annotations=asks)
                )
        elif what == "cordon":
            node = next(one for one in leader.stores.nodes.values() if one.name == more)
            version = leader.hands.version()
            leader.has(replace(node, unschedulable=not node.unschedulable, resource_version=version))
        elif what == "remove" and number is not None:
            pods = sorted(leader.stores.pods.values(), key=lambda one: one.name)
            if pods and more:
                leader.has(replace(pods[number % len(pods)], deleting=True, resource_version=leader.hands.version()))
            elif pods:
                leader.stores.pods.apply("DELETED", pods[number % len(pods)])
        elif what == "time" and number is not None:
            leader.now += number
        elif name in known:
            self.of_gang(what, name or "", number or 0, more)
        leader.settle()

    def of_gang(self, what: str, name: str, number: int, more: str | bool | None) -> None:
        leader, gang = self.leader, self.leader.workload(name)
        rank, called = (number if gang.pod_sets[0].ranked else None), f"{name}-{self.count:03}"
        version = leader.hands.version()
        small: dict[str, Callable[[], Pod]] = {
            "put": lambda: pod(gang, rank, host=str(more), name=called),
            "pin": lambda: pod(gang, rank, pin=str(more), name=called),
            "hold": lambda: pod(gang, rank, gated=True, name=called),
        }
        if what in small:
            one = small[what]()
            gates = ("example.com/mine", *one.spec.gates) if what == "hold" and more else one.spec.gates
            own = replace(one.spec.shape, requests=shape(cpu=10).requests)
            leader.has(replace(one, spec=replace(one.spec, shape=own, gates=gates)))
        elif what == "make" and not gang.suspended:
            leader.has(pod(gang, rank, gated=True, name=called))
        elif what == "scale":
            sized = changed(gang, slots=number, total=number, remaining=number)
            leader.has(replace(sized, generation=gang.generation + 1, resource_version=version))
        elif what == "leave":
            others = {key: value for key, value in gang.annotations.items() if key != names.REPLACE}
            says = others | ({names.REPLACE: more} if isinstance(more, str) else {})
            leader.has(replace(gang, annotations=says, resource_version=version))

    def free(self) -> list[int]:
        """The free GPUs of each host."""
        self.leader.view.refresh()
        return [self.leader.view.capacity.free(host).get("nvidia.com/gpu", 0) for host in HOSTS]


@settings(max_examples=100, deadline=None)
@given(history=steps)
def test_no_host_is_given_out_twice(history: list[tuple[str, str | None, int | None, str | bool | None]]) -> None:
    """Slots of a gang whose user scales it while its pods come may overlap until the leader has looked twice."""
    tenant = Tenant()
    for step in history:
        tenant.do(*step)
        if min(tenant.free()) < 0:
            for seconds in (6, 7, 40, 40):
                tenant.leader.later(seconds)
            assert min(tenant.free()) >= 0
