"""What a replica keeps is what there is now: objects that come and go leave nothing behind."""

from __future__ import annotations

import gc
import types
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.api import names
from engine.api.objects import DaemonSet
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.cluster.store import TOMBSTONES
from engine.decoding import objects
from engine.gang.key import keys_of
from engine.policy.model import default_policy
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import new_placement, schedule_gang
from tests.support.cluster_records import changed, gpu_nodes, job, pod, shape, spec

WARM = 100  # cycles until the small caches are full
CYCLES = 100
TOLERANCE = 1.02  # entries of a full cache differ in size


def limited(site: Site) -> dict[str, tuple[Any, int]]:
    """What grows up to a limit that is too far to be reached here, and that limit."""
    stores = [part for store in site.stores.all().values() for part in getattr(store, "_parts", {"": store}).values()]
    return {
        "changed rows": (site.state.capacity._touched, 4096),
        **{f"tombstones {number}": (store._tombstones, TOMBSTONES) for number, store in enumerate(stores)},
    }


def size(site: Site) -> int:
    """How many objects can be reached, with the entries of containers and arrays.

    Code, the policy and what has a limit of its own do not count.
    """
    seen = {id(default_policy()), *(id(one) for one, _ in limited(site).values())}
    total, left = 0, deque[object]([site.state])
    while left:
        one = left.popleft()
        if id(one) in seen or isinstance(one, type | types.ModuleType | types.FunctionType | types.BuiltinFunctionType):
            continue
        seen.add(id(one))
        total += 1 + (len(one) if isinstance(one, dict | list | set | frozenset | tuple | deque) else 0)
        total += one.size if isinstance(one, np.ndarray) else 0
        left.extend(gc.get_referents(one))
    return total


class Site:
    """A cluster of eight hosts on which objects with names of their own come and go."""

    def __init__(self) -> None:
        self.stores = Stores()
        self.now = 0.0
        self.state = ClusterState(self.stores, clock=lambda: self.now)
        self.stores.nodes.replace(gpu_nodes(1, 2, 4))
        self.state.refresh()

    def put(self, collection: str, *items: Any) -> None:
        for item in items:
            self.stores.all()[collection].apply("ADDED", item)
        self.state.refresh()

    def take(self, collection: str, *items: Any) -> None:
        for item in items:
            self.stores.all()[collection].apply("DELETED", item)
        self.now += 1_000.0  # no grace is left
        self.state.take_changes()

    def live(self, *workloads: Workload) -> None:
        """They come, are planned, get a Placement and a pod, and go."""
        self.put("workloads", *workloads)
        made = []
        for one in workloads:
            gang = self.state.gangs.get(keys_of(one)[0])
            assert gang is not None
            outcome = schedule_gang(self.state, gang)
            assert isinstance(outcome, Placed), outcome
            placement = new_placement(gang, outcome, priority=0, now=0.0)
            self.state.assume(gang.key, placement)
            self.put("placements", placement)
            self.state.confirm(gang.key, failed=False)
            first = outcome.pod_sets[0].slots[0].host
            bound = pod(one, 0, host=first)
            self.put("pods", bound)
            made.append((one, placement, bound))
        for one, placement, bound in made:
            self.take("pods", bound)
            self.take("workloads", one)
            self.take("placements", placement)
        assert self.state.capacity.reserving() == []


def pod_groups(site: Site, serial: int) -> None:
    """Two Jobs of a group; one with a PodGroup object, whose Job is left out of the plan."""
    key = f"{names.SCHEDULER_PLUGINS_POD_GROUP.rpartition('/')[0]}/v1alpha1"
    body = {"apiVersion": key, "kind": "PodGroup", "metadata": {"name": f"p{serial}", "namespace": "default"}}
    group = objects.pod_group_object({**body, "spec": {"minMember": 2}})
    asked = {names.POD_GROUP: f"g{serial}", names.MIN_AVAILABLE: "2", names.REQUIRE: "rack"}
    site.put("podgroups", group)
    site.live(*(job(f"{part}{serial}", count=1, annotations=asked) for part in ("a", "b")))
    named = job(f"n{serial}", labels={names.SCHEDULER_PLUGINS_POD_GROUP: f"p{serial}"}, require=None)
    site.put("workloads", named)
    assert site.state.gangs.get(keys_of(named)[0]) is not None
    site.take("podgroups", group)
    site.take("workloads", named)


def daemon_sets(site: Site, serial: int) -> None:
    """A DaemonSet with a pod on one host, while a gang is planned."""
    one = DaemonSet("kube-system", f"d{serial}", spec(shape=shape(cpu=1000)), deleting=False, uid=f"uid-d{serial}")
    site.put("daemonsets", one)
    agent = pod(job(f"d{serial}"), None, name=f"d{serial}-x", host="b0-r0-h0", namespace="kube-system")
    site.put("pods", agent)
    site.live(job(f"j{serial}", count=2))
    site.take("daemonsets", one)
    site.take("pods", agent)


def volumes(site: Site, serial: int) -> None:
    """A claim with its volume and its class, and a gang that mounts it."""
    rack = {"key": "cloud.provider.com/topology-rack", "operator": "In", "values": ["b0-r1"]}
    named = {"name": f"v{serial}", "namespace": "default"}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [rack]}]}}
    claim = objects.persistent_volume_claim(
        {"metadata": named, "spec": {"volumeName": f"v{serial}", "storageClassName": f"v{serial}"}}
    )
    volume = objects.persistent_volume({"metadata": {"name": f"v{serial}"}, "spec": {"nodeAffinity": affinity}})
    made = objects.storage_class({"metadata": {"name": f"v{serial}"}})
    site.put("storageclasses", made)
    site.put("persistentvolumes", volume)
    site.put("persistentvolumeclaims", claim)
    template = spec(volume_claims=(f"v{serial}",), gates=(names.GATE,), labels={names.MANAGED: "true"})
    site.live(changed(job(f"j{serial}", count=2), template=template))
    site.take("persistentvolumeclaims", claim)
    site.take("persistentvolumes", volume)
    site.take("storageclasses", made)


def topologies(site: Site, serial: int) -> None:
    """Topology objects of Kueue and KAI, and a gang that names one of them."""
    levels = [{"nodeLabel": "cloud.provider.com/topology-rack"}]
    made = objects.topology_object({"metadata": {"name": f"t{serial}"}, "spec": {"levels": levels}})
    stores = [name for name in site.stores.all() if name.startswith("topologies.")]
    assert len(stores) > 1
    for store in stores:
        site.put(store, made)
    asked = {names.REQUIRE: "cloud.provider.com/topology-rack", names.TOPOLOGY: f"t{serial}"}
    site.live(job(f"j{serial}", count=2, annotations=asked))
    for store in stores:
        site.take(store, made)


def separation(site: Site, serial: int) -> None:
    """An exclusive gang, and one of a spread group of its own."""
    alone = {names.REQUIRE: "rack", names.EXCLUSIVE: "rack"}
    apart = {names.REQUIRE: "rack", names.SPREAD: "rack", names.SPREAD_GROUP: f"g{serial}"}
    site.live(job(f"a{serial}", count=1, annotations=alone), job(f"s{serial}", count=1, annotations=apart))


def single_pods(site: Site, serial: int) -> None:
    """A pod without an owner that asks for a place near others."""
    made = pod(job(f"j{serial}"), None, name=f"p{serial}", gated=True)
    asked = replace(made.spec, annotations={names.REQUIRE: "rack"}, labels={names.MANAGED: "true"})
    site.put("pods", single := replace(made, owner=None, spec=asked))
    [key] = site.state.gangs.keys()
    gang = site.state.gangs.get(key)
    assert gang is not None and gang.request.asking
    site.take("pods", single)


def namespaces(site: Site, serial: int) -> None:
    """A gang with a Placement, in a namespace of its own."""
    one = job(f"j{serial}", count=2, namespace=f"n{serial}")
    site.put("workloads", one)
    gang = site.state.gangs.get(keys_of(one)[0])
    assert gang is not None
    outcome = schedule_gang(site.state, gang)
    assert isinstance(outcome, Placed)
    placement = new_placement(gang, outcome, priority=0, now=0.0)
    site.put("placements", placement)
    assert site.state.gangs.in_namespace(f"n{serial}") == 1
    assert site.state.gangs.hosts_in(f"n{serial}") == outcome.hosts
    site.take("workloads", one)
    site.take("placements", placement)
    assert site.state.gangs.hosts_in(f"n{serial}") == set()


FEATURES = (pod_groups, daemon_sets, volumes, topologies, separation, single_pods, namespaces)


def growth(feature: Callable[[Site, int], None], cycles: int) -> tuple[int, int]:
    """The size of the state when its caches are full, and after so many cycles more."""
    site = Site()
    for serial in range(WARM):
        feature(site, serial)
    before = size(site)
    for serial in range(WARM, WARM + cycles):
        feature(site, serial)
    assert all(len(one) <= limit for one, limit in limited(site).values())
    return before, size(site)


@pytest.mark.parametrize("feature", FEATURES, ids=lambda one: one.__name__)
def test_what_comes_and_goes_leaves_nothing_behind(feature: Callable[[Site, int], None]) -> None:
    """As many cycles again, and the state is as large as before."""
    before, after = growth(feature, CYCLES)
    assert after <= before * TOLERANCE


def test_what_stays_is_counted() -> None:
    """The measure sees a leak: workloads that are never deleted."""
    site = Site()
    before = size(site)
    for serial in range(50):
        site.put("workloads", job(f"j{serial}"))
    assert size(site) > before * TOLERANCE
