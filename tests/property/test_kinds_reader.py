"""The reader of workload kinds against every input, and ranks against whole sets of pods."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.decoding.wire import ProjectionError
from engine.decoding.workloads import workload
from engine.gang.gang import pod_set_of, rank_of
from engine.kinds.read import UnreadableWorkload, read
from engine.kinds.registry import built_in
from tests.support import kinds
from tests.support.kinds import FILES, Labels, example, group_of, merged, pod_of, workload_of

KINDS = [path.stem for path in FILES]
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**31), 10**31)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["Indexed", "Parallel", "a" * 300, "\x00", "worker", "batch/v1", "Job"])
)
junk = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)
few = st.integers(0, 6)
some = st.integers(1, 6)


def places(value: Any, steps: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every node of an object."""
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    return [steps] * bool(steps) + [found for key, item in inner for found in places(item, (*steps, key))]


@settings(max_examples=500, deadline=None)
@given(st.data(), st.sampled_from(KINDS))
def test_every_object_is_read_or_refused(data: st.DataObject, name: str) -> None:
    """Whatever stands at any node: records whose numbers are in bounds, or errors with a path and in one line."""
    raw = copy.deepcopy(example(name)["object"])
    variants = [one["merge"] for one in example(name).get("variants", ())]
    if variants:
        raw = merged(raw, data.draw(st.sampled_from(variants)))
    entry = built_in().entry_of(raw)
    assert entry is not None
    for _ in range(data.draw(st.integers(1, 3))):
        steps = data.draw(st.sampled_from(places(raw)))
        node = raw
        for step in steps[:-1]:
            node = node[step]
        node[steps[-1]] = data.draw(junk)
    try:
        structure = read(entry, raw, registry=built_in())
    except UnreadableWorkload as refused:
        assert refused.errors
        assert all(error.field and error.message.isprintable() for error in refused.errors)
    else:
        for one in structure.pod_sets:
            assert 0 <= one.minimum <= one.count < 2**31
            assert 0 <= one.total < 2**31
    labels = data.draw(st.dictionaries(st.sampled_from(KEYS), st.text(max_size=6) | st.integers().map(str), max_size=5))
    try:
        found = workload(raw, entry=entry, registry=built_in())
    except (ProjectionError, UnreadableWorkload):
        return
    pod = pod_of(labels)
    pod_set = pod_set_of(pod, found)
    rank = None if pod_set is None else rank_of(pod, pod_set)
    if rank is not None and pod_set is not None:
        # Of a Job more completions than we have read may run by now.
        assert 0 <= rank < (10**7 if pod_set.rank is None else max(pod_set.slots, pod_set.total))
    group_of(pod, found)


KEYS = sorted({key for name in KINDS for pod in example(name).get("pods", ()) for key in pod["labels"]} | {"app"})


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(KINDS), junk)
def test_any_value_at_all(name: str, raw: Any) -> None:
    """The object itself may be anything."""
    entry = next(entry for entry in built_in().entries if entry.name == name)
    try:
        read(entry, raw, registry=built_in())
    except UnreadableWorkload as refused:
        assert refused.errors


def ranks_are_whole(raw: dict[str, Any], pods: Iterable[Labels]) -> None:
    """Each pod set gets as many pods as it counts, with the ranks 0 to count - 1, once in each group."""
    known = workload_of(raw)
    found: dict[tuple[str, int | None], list[int | None]] = {}
    for labels in pods:
        pod = pod_of(labels)
        pod_set = pod_set_of(pod, known)
        assert pod_set is not None
        found.setdefault((pod_set.name, group_of(pod, known)), []).append(rank_of(pod, pod_set))
    wanted = {
        (pod_set.name, group): list(range(pod_set.slots))
        for pod_set in known.pod_sets
        for group in range(known.groups)
        if pod_set.slots
    }
    assert {key: sorted(rank for rank in ranks if rank is not None) for key, ranks in found.items()} == wanted


@settings(deadline=None)
@given(few, few)
def test_job(parallelism: int, completions: int) -> None:
    """As many indexes as run at a time."""
    raw = merged(example("job")["object"], {"spec": {"parallelism": parallelism, "completions": completions}})
    ranks_are_whole(raw, kinds.job_pods(min(parallelism, completions)))


@settings(deadline=None)
@given(some, some)
def test_jobset(replicas: int, parallelism: int) -> None:
    """Jobs one after the other, their pods by index."""
    template = {"spec": {"parallelism": parallelism, "template": {}}}
    raw = merged(
        example("jobset")["object"],
        {"spec": {"replicatedJobs": [{"name": "w", "replicas": replicas, "template": template}]}},
    )
    ranks_are_whole(raw, kinds.jobset_pods("w", replicas, parallelism))


@settings(deadline=None)
@given(some, some, st.booleans())
def test_leader_worker_set(groups: int, size: int, leader: bool) -> None:
    """In each group by itself, with a leader's own template and without."""
    template = {"leaderTemplate": {} if leader else None, "size": size}
    raw = merged(example("leaderworkerset")["object"], {"spec": {"replicas": groups, "leaderWorkerTemplate": template}})
    if leader:
        raw["spec"]["leaderWorkerTemplate"]["leaderTemplate"] = {}
    ranks_are_whole(raw, kinds.lws_pods(groups, size))


@settings(deadline=None)
@given(some, few)
def test_stateful_set(replicas: int, start: int) -> None:
    """Ordinals begin where the set says."""
    raw = merged(example("statefulset")["object"], {"spec": {"replicas": replicas, "ordinals": {"start": start}}})
    ranks_are_whole(raw, ({"apps.kubernetes.io/pod-index": str(start + n)} for n in range(replicas)))


@settings(deadline=None)
@given(st.sampled_from(["pytorchjob", "xgboostjob", "paddlejob"]), few, st.booleans())
def test_master_and_workers(name: str, workers: int, master: bool) -> None:
    """Master 0, worker i is i + 1; without a master the workers begin at 0."""
    raw = copy.deepcopy(example(name)["object"])
    (roles,) = raw["spec"].values()
    roles["Worker"]["replicas"] = workers
    if not master:
        del roles["Master"]
    pods = list(kinds.training_pods({"master": int(master), "worker": workers}))
    ranks_are_whole(raw, pods)


@settings(deadline=None)
@given(few, few, few)
def test_tensorflow_roles(chiefs: int, servers: int, workers: int) -> None:
    """Each role has ranks of its own."""
    counts = {"Chief": chiefs, "PS": servers, "Worker": workers, "Evaluator": 1}
    raw = merged(
        example("tfjob")["object"],
        {"spec": {"tfReplicaSpecs": {role: {"replicas": count} for role, count in counts.items()}}},
    )
    ranks_are_whole(raw, kinds.training_pods(counts))


@settings(deadline=None)
@given(few, st.booleans())
def test_mpi(workers: int, launcher_works: bool) -> None:
    """Workers begin at 1 where the launcher is worker 0; in their pod set always at 0."""
    spec = {"runLauncherAsWorker": launcher_works, "mpiReplicaSpecs": {"Worker": {"replicas": workers}}}
    raw = merged(example("mpijob")["object"], {"spec": spec})
    pods = list(kinds.mpi_pods(workers, launcher_works=launcher_works))
    ranks_are_whole(raw, pods)


@settings(deadline=None)
@given(few, st.integers(2, 5))
def test_ray_groups_of_several_hosts(replicas: int, hosts: int) -> None:
    """Hosts of one replica are neighbours in rank."""
    groups = [{"groupName": "g", "replicas": replicas, "numOfHosts": hosts, "template": {}}]
    raw = merged(example("raycluster")["object"], {"spec": {"workerGroupSpecs": groups}})
    head = {"ray.io/node-type": "head", "ray.io/group": "headgroup"}
    ranks_are_whole(raw, [head, *kinds.ray_pods("g", replicas, hosts)])
