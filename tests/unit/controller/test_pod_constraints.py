"""Lives of gangs whose pods require something of pods near them: groups, changed templates, lost pods."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.pod import PodConstraints, PodSpec, PodTerm, SelectorRequirement
from engine.api.workload import Workload
from tests.support.cluster_records import changed, gpu_nodes, job, pod, shape, spec
from tests.support.leader import Leader

RACK = "cloud.provider.com/topology-rack"


def term(app: str) -> PodTerm:
    return PodTerm(RACK, (SelectorRequirement("app", "In", (app,)),), ("default",))


def template(app: str, constraints: PodConstraints | None) -> PodSpec:
    return spec(
        shape=shape(gpu=1),
        gates=(names.GATE,),
        labels={names.MANAGED: "true"},
        own_labels=("app", app),
        constraints=constraints,
    )


def gang(
    name: str, app: str, constraints: PodConstraints | None, *, count: int = 2, least: int = 0, **more: object
) -> Workload:
    """A held Job; with `least` of a pod group."""
    found = job(name, count=count, require=None, held=True, template=template(app, constraints), **more)
    said = {names.POD_GROUP: "g", names.MIN_AVAILABLE: str(least)} if least else {names.UNCONSTRAINED: "true"}
    return replace(found, annotations={**found.annotations, **said})


def led(*workloads: Workload, racks: int = 4) -> Leader:
    leader = Leader(nodes=gpu_nodes(1, racks, 2))
    leader.has(*workloads)
    leader.settle()
    return leader


def hosts(leader: Leader, name: str) -> list[str]:
    found = leader.placed(name)
    assert found is not None and found.assignment is not None, leader.status(name)
    return [slot.host for plan in found.assignment.pod_sets for slot in plan.slots for _ in range(slot.count)]


def racks(leader: Leader, *jobs: str) -> list[str]:
    return sorted(host.rpartition("-")[0] for name in jobs for host in hosts(leader, name))


def run(leader: Leader, name: str) -> None:
    """Its pods are bound, with the labels and constraints of the template."""
    workload = leader.workload(name)
    own = workload.pod_sets[0].template
    for rank, host in enumerate(hosts(leader, name)):
        bound = pod(workload, rank, host=host)
        leader.has(replace(bound, spec=replace(bound.spec, own_labels=own.own_labels, constraints=own.constraints)))
    leader.settle()


def test_members_of_a_group_keep_apart_from_each_other() -> None:
    """Two Jobs of two pods, one pod a rack: four racks are needed, and with three none of them starts."""
    apart = PodConstraints(anti_affinity=(term("web"),))
    members = [gang(name, "web", apart, least=4) for name in "ab"]
    assert len(set(racks(led(*members), "a", "b"))) == 4
    short = led(*members, racks=3)
    for name in "ab":
        assert short.status(name)[0] == "Waiting"
        assert "4 pods of pod group g start together; there is room for 3 of them" in str(
            short.placed(name).status["message"]  # type: ignore[union-attr]
        )
    short.has(*gpu_nodes(1, 4, 2))
    short.settle()
    assert len(set(racks(short, "a", "b"))) == 4


@pytest.mark.parametrize("follower", ["a", "b"])
def test_a_member_goes_where_another_one_goes(follower: str) -> None:
    """Whichever of them comes first by name."""
    leading = "b" if follower == "a" else "a"
    leader = led(
        gang(leading, "lead", None, least=4),
        gang(follower, "work", PodConstraints(affinity=(term("lead"),)), least=4),
    )
    assert leader.status("a") != ("Waiting", "PodConstraints"), leader.placed("a")
    assert set(racks(leader, follower)) <= set(racks(leader, leading))


def test_a_waiting_gang_with_other_constraints_is_planned_anew() -> None:
    """An UPDATE of the template before it starts, in either direction."""
    apart = PodConstraints(anti_affinity=(term("web"),))
    leader = led(gang("train", "web", apart, count=5))
    assert leader.status() == ("Waiting", "PodConstraints")
    stricter = replace(leader.workload(), resource_version=leader.hands.version())
    far = PodConstraints(affinity=(term("db"),))
    leader.has(changed(stricter, template=template("web", far)))
    leader.settle()
    leader.later(90)  # a message with the same reason is written now and then only
    assert leader.status() == ("Waiting", "PodConstraints")
    found = leader.placed()
    assert found is not None and "podAffinity" in str(found.status["message"])
    leader.has(changed(leader.workload(), template=template("web", None), resource_version=leader.hands.version()))
    leader.settle()
    assert len(hosts(leader, "train")) == 5


def test_a_running_gang_stays_when_its_constraints_change() -> None:
    """They are required during scheduling, and ignored during execution: only pods that come later keep to them."""
    leader = led(gang("train", "web", None, count=3))
    run(leader, "train")
    before = hosts(leader, "train")
    assert len(set(racks(leader, "train"))) < 3
    apart = PodConstraints(anti_affinity=(term("web"),))
    leader.has(changed(leader.workload(), template=template("web", apart), resource_version=leader.hands.version()))
    leader.settle()
    leader.later(30)
    assert hosts(leader, "train") == before
    assert not [call for call, _ in leader.hands.calls if call in ("unplace", "remove", "rewrite", "extend")]
