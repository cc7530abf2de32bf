"""What pods prefer decides between equally good places, as the stock scheduler decides for a pod alone."""

from __future__ import annotations

from typing import Any

import pytest

from local.nodes import RACK
from tests.cluster.gangs.test_pod_constraints import run_beside, term
from tests.support.eventually import eventually
from tests.support.gang_steps import delete_job
from tests.support.gangs import Json, Namespace, prefer, require

GENERATION = "example.com/generation"
KEY = "example.com/leave-free"


def preferring(*values: tuple[str, int]) -> dict[str, Any]:
    """A pod spec that prefers nodes of these generations, with weights."""
    terms = [
        {
            "weight": weight,
            "preference": {"matchExpressions": [{"key": GENERATION, "operator": "In", "values": [value]}]},
        }
        for value, weight in values
    ]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}


def lands(gangs: Namespace, name: str, pods: int, **options: Any) -> set[str]:
    """The hosts of a Job, which is deleted again; one without annotations is placed by the stock scheduler alone."""
    gangs.submit(name, pods=pods, **options)
    found = set(gangs.all_bound(name, pods).values())
    delete_job(gangs, name)
    eventually(lambda: not gangs.pods(name), message=f"the pods of {name} are gone")
    gangs.pods_seen()
    return found


def test_of_equal_racks_and_hosts_the_preferred_are_taken(gangs: Namespace) -> None:
    """By weight; the plain pod goes there by the stock scheduler, the gang by us."""
    hosts = gangs.fleet.grid("1x3x2")
    for host, value in zip(hosts, ("old", "old", "new", "new", "newest", "newest"), strict=True):
        gangs.fleet.patch(host, {"metadata": {"labels": {GENERATION: value}}})
    wish = preferring(("new", 80), ("newest", 20))
    assert lands(gangs, "plain", 1, pod_spec=wish) <= set(hosts[2:4])
    assert lands(gangs, "gang", 2, annotations=require("rack"), pod_spec=wish) == set(hosts[2:4])
    assert lands(gangs, "one", 1, annotations=require("host"), pod_spec=wish) <= set(hosts[2:4])
    assert lands(gangs, "newest", 2, annotations=require("rack"), pod_spec=preferring(("newest", 1))) == set(hosts[4:])
    assert lands(gangs, "no-wish", 2, annotations=require("rack")) == set(hosts[:2])


def test_a_preferred_host_costs_no_domain(gangs: Namespace) -> None:
    """One preferred host in each rack: the gang stays in one rack."""
    hosts = gangs.fleet.grid("1x2x2")
    for host in (hosts[1], hosts[3]):
        gangs.fleet.patch(host, {"metadata": {"labels": {GENERATION: "new"}}})
    found = lands(gangs, "gang", 2, annotations=prefer("rack"), pod_spec=preferring(("new", 100)))
    assert len({gangs.fleet.rack_of(host) for host in found}) == 1


def test_a_host_that_is_better_left_free_is_taken_last(gangs: Namespace) -> None:
    """PreferNoSchedule on a rack: the plain pod and the gang avoid it, one that tolerates it does not mind."""
    hosts = gangs.fleet.grid("1x2x2")
    for host in hosts[:2]:
        gangs.fleet.patch(host, {"spec": {"taints": [{"key": KEY, "value": "", "effect": "PreferNoSchedule"}]}})
    assert lands(gangs, "plain", 1) <= set(hosts[2:])
    assert lands(gangs, "gang", 2, annotations=require("rack")) == set(hosts[2:])
    tolerant = {"tolerations": [{"key": KEY, "operator": "Exists", "effect": "PreferNoSchedule"}]}
    assert lands(gangs, "tolerant", 2, annotations=require("rack"), pod_spec=tolerant) == set(hosts[:2])
    gangs.submit("first", pods=2, annotations=require("rack"))
    gangs.submit("second", pods=2, annotations=require("rack"))
    assert {*gangs.all_bound("first", 2).values(), *gangs.all_bound("second", 2).values()} == set(hosts)


CACHE, WEB = {"app": "cache"}, {"app": "web"}


def weighted(kind: str, labels: dict[str, str], **more: Any) -> Json:
    one = {"weight": 10, "podAffinityTerm": term(RACK, labels, **more)}
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [one]}}}


def anyway(labels: dict[str, str]) -> Json:
    return {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", **term(RACK, labels)}]}


@pytest.mark.parametrize(
    "wish",
    [
        weighted("podAffinity", CACHE),
        weighted("podAffinity", CACHE, namespaceSelector={}),
        weighted("podAntiAffinity", WEB),
        anyway(WEB),
    ],
    ids=["affinity", "affinity in all namespaces", "anti-affinity", "spread"],
)
def test_of_equal_racks_the_one_with_the_preferred_neighbours(gangs: Namespace, wish: Json) -> None:
    """A pod in each rack, as large as the other; the plain pod goes there by the stock scheduler, the gang by us."""
    hosts = gangs.fleet.grid("1x2x2")
    run_beside(gangs, "web", hosts[0], WEB, {})
    run_beside(gangs, "cache", hosts[2], CACHE, {})
    assert lands(gangs, "plain", 1, pod_spec=wish) <= set(hosts[2:])
    assert lands(gangs, "gang", 2, annotations=require("rack"), pod_spec=wish) == set(hosts[2:])
    assert lands(gangs, "no-wish", 2, annotations=require("rack")) == set(hosts[:2])


def test_a_preferred_neighbour_costs_no_domain(gangs: Namespace) -> None:
    """One on a host of each rack: the gang stays in one rack, and a full rack is no reason to wait."""
    hosts = gangs.fleet.grid("1x2x2")
    for name, host in (("one", hosts[1]), ("other", hosts[3])):
        run_beside(gangs, name, host, CACHE, {})
    term_of_hosts = {"weight": 100, "podAffinityTerm": term("kubernetes.io/hostname", CACHE)}
    wish = {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term_of_hosts]}}}
    found = lands(gangs, "gang", 2, annotations=prefer("rack"), pod_spec=wish)
    assert len({gangs.fleet.rack_of(host) for host in found}) == 1
    both = [lands(gangs, f"single-{at}", 1, annotations=require("host"), pod_spec=wish) for at in range(2)]
    assert all(one <= {hosts[1], hosts[3]} for one in both)
