"""What a replica remembers after any history is what it would read afresh: requests, topologies, groups and slots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.api import names
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.cache.grace import GRACE_SECONDS
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.decoding import objects
from engine.gang.key import key_of
from engine.policy.model import parse_policy
from tests.property.test_topology_rebuilt import parts
from tests.support.cluster_records import gpu_nodes, job, placement, pod
from tests.support.families import owner_of

BLOCK, RACK = (f"cloud.provider.com/topology-{level}" for level in ("block", "rack"))
NODES = {one.name: one for one in gpu_nodes(2, 1, 2)}
HOSTS = tuple(NODES)
LABELS = [{}, {BLOCK: "b0"}, {BLOCK: "b0", RACK: "b0-r0"}, {BLOCK: "b1", RACK: "b9"}]
POLICIES = [
    parse_policy(f"apiVersion: topogate.dev/v1alpha1\nkind: Policy\nnodes: {{settle: 0s}}\n{more}")
    for more in (
        "",
        "topologies: [{name: default, preset: demo}]\n",
        f"topologies: [{{name: mine, levels: [{{name: rack, keys: [{RACK}]}}]}}]\n",
        "topologies: [{name: own, fromObject: {group: kueue.x-k8s.io, name: mine}}]\n",
        "namespaces: {rules: [{namespaces: [default], allow: false}]}\n",
        "preemption: {mode: never}\n",
    )
]
OBJECTS = {"none": None, "rack": [RACK], "both": [BLOCK, RACK], "wrong": ["no key!"]}
SAID = [
    {},
    {names.REQUIRE: "rack"},
    {names.REQUIRE: "block", names.TOPOLOGY: "mine"},
    {names.REQUIRE: RACK, names.TOPOLOGY: "mine", names.REPLACE: HOSTS[0]},
    {names.REQUIRE: "rack", names.REPLACE: f"{HOSTS[0]},{HOSTS[1]}"},
    {names.REQUIRE: "auto", names.POD_GROUP: "g", names.MIN_AVAILABLE: "2"},
    {names.REQUIRE: "nonsense"},
]
JOBS = ("a", "b")


def job_of(name: str, said: int, life: int, version: int) -> Workload:
    made = job(name, count=2, annotations=SAID[said], uid=f"uid-{name}-{life}", resource_version=str(version))
    return replace(made, pod_sets=tuple(replace(one, replace="free") for one in made.pod_sets))


def service(said: int, version: int) -> Workload:
    kind: dict[str, Any] = {"api_version": "ray.io/v1", "kind": "RayService", "resource": "rayservices"}
    made = job("serve", count=2, annotations=SAID[said], uid="uid-serve", resource_version=str(version))
    return replace(made, suspend_path=None, suspendable=False, unit="child", **kind)


def cluster() -> Workload:
    kind: dict[str, Any] = {"api_version": "ray.io/v1", "kind": "RayCluster", "resource": "rayclusters"}
    return replace(job("made", count=2, require=None), owner=owner_of(service(0, 1)), **kind)


def helper() -> Workload:
    """A Job below the cluster."""
    return replace(job("helper", count=1, require=None), owner=owner_of(cluster()))


event = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(HOSTS), st.sampled_from([None, *range(len(LABELS))])),
    st.tuples(st.just("object"), st.sampled_from(sorted(OBJECTS))),
    st.tuples(st.just("policy"), st.integers(0, len(POLICIES) - 1)),
    st.tuples(st.just("job"), st.sampled_from(JOBS), st.integers(0, 1), st.sampled_from([None, *range(len(SAID))])),
    st.tuples(st.just("placed"), st.sampled_from(JOBS), st.lists(st.sampled_from(HOSTS), min_size=2, max_size=2)),
    st.tuples(st.just("pod"), st.sampled_from(JOBS), st.integers(0, 1), st.sampled_from([None, *HOSTS])),
    st.tuples(st.just("service"), st.sampled_from([None, 0, 1, 3])),
    st.tuples(st.just("below"), st.sampled_from([cluster, helper]), st.booleans()),
)
# There at first, in any order.
START = (
    *(("node", name, 2) for name in HOSTS),
    ("job", "a", 0, 3),
    ("placed", "a", [HOSTS[2], HOSTS[3]]),
    ("pod", "a", 0, HOSTS[0]),
    ("object", "both"),
    ("service", 1),
    ("below", cluster, True),
    ("below", helper, True),
)


class History:
    """Stores to which events are applied, and what is in them."""

    def __init__(self) -> None:
        self.stores, self.policy, self.now = Stores(), POLICIES[0], 0.0
        self.view = ClusterState(self.stores, self.policy, clock=lambda: self.now)
        self.version = 10_000_000
        self.lives = dict.fromkeys(JOBS, 0)

    def put(self, store: str, key: Any, item: Any) -> None:
        """An object appears, changes or (None) goes."""
        known = self.stores.all()[store].get(key)
        if item is not None:
            self.stores.all()[store].apply("MODIFIED", item)
        elif known is not None:
            self.stores.all()[store].apply("DELETED", replace(known, resource_version=str(self.version)))

    def apply(self, step: tuple[Any, ...]) -> None:
        self.version += 1
        version = str(self.version)
        match step:
            case ("node", name, labels):
                changed = None if labels is None else replace(NODES[name], labels=LABELS[labels])
                self.put("nodes", name, changed and replace(changed, resource_version=version))
            case ("object", levels):
                keys = OBJECTS[levels]
                body = {"spec": {"levels": [{"nodeLabel": key} for key in keys or ()]}}
                meta = {"metadata": {"name": "mine", "resourceVersion": version}}
                self.put("topologies.kueue.x-k8s.io", "mine", keys and objects.topology_object({**meta, **body}))
            case ("policy", number):
                self.policy = POLICIES[number]
                self.view.set_policy(self.policy)
            case ("job", name, life, said):
                self.lives[name] = life
                made = None if said is None else job_of(name, said, life, self.version)
                self.put("workloads", job_of(name, 0, 0, 0).key, made)
            case ("placed", name, hosts):
                counts = {host: hosts.count(host) for host in hosts}
                found = placement(job_of(name, 1, self.lives[name], 0), counts, resource_version=version)
                self.put("placements", found.key, found)
            case ("pod", name, rank, host):
                bound: Pod | None = None
                if host is not None:
                    of = job_of(name, 1, self.lives[name], 0)
                    bound = pod(of, rank, host=host, uid=f"{of.uid}-{rank}", resource_version=version)
                self.put("pods", ("default", f"{name}-{rank}"), bound)
            case ("service", said):
                self.put("workloads", service(0, 0).key, None if said is None else service(said, self.version))
            case ("below", make, there):
                self.put("workloads", make().key, replace(make(), resource_version=version) if there else None)

    def look(self, view: ClusterState) -> dict[str, Any]:
        """All that others ask the state."""
        view.refresh()
        workloads = {one.uid: one for one in view.stores.workloads.values()}
        return {
            "topologies": {name: parts(one) for name, one in view.topologies.items()},
            "requests": {uid: view.request_of(one) for uid, one in workloads.items()},
            "gangs": {
                uid: gang
                and (
                    gang.request,
                    gang.pod_group,
                    gang.shapes,
                    gang.placement,
                    sorted(gang.pods, key=lambda one: one.name),
                )
                for uid, one in workloads.items()
                for gang in [view.gangs.get(key_of(one))]
            },
            "free": {host: {k: v for k, v in view.capacity.free(host).items() if v} for host in HOSTS},
            "hosts": (view.gangs.in_namespace("default"), view.gangs.hosts_in("default")),
            "usage": {name: one for name, one in view.usage().items() if one.pods},
        }

    def afresh(self) -> ClusterState:
        stores = Stores()
        view = ClusterState(stores, self.policy)
        for name, store in self.stores.all().items():
            if hasattr(store, "values"):
                stores.all()[name].replace(list(store.values()))
        view.refresh()
        return view


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.permutations(START), st.lists(event, max_size=10), st.integers(0, 2 ** len(START) - 1), st.booleans())
def test_any_history_leaves_what_is_read_afresh(
    start: list[tuple[Any, ...]], more: list[tuple[Any, ...]], looks: int, often: bool
) -> None:
    """Nodes, topologies, policies, workloads with the same name, their owners: whatever a memory depends on."""
    lived = History()
    for place, step in enumerate((*start, *more)):
        lived.apply(step)
        if often or looks >> place & 1:
            lived.look(lived.view)
    lived.view.refresh()
    lived.now += GRACE_SECONDS
    assert lived.look(lived.view) == lived.look(lived.afresh())
