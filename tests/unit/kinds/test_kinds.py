"""Every built-in kind: pod sets, counts, ranks and the gang of an example object, and each thing that changes them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from engine.api.field import path_of
from engine.gang.gang import pod_set_of, rank_of
from engine.kinds.children import child_objects
from engine.kinds.registry import built_in
from tests.support.kinds import FILES, example, group_of, merged, pod_of, structure_of, workload_of

KINDS = [path.stem for path in FILES]


def variants() -> Iterator[Any]:
    for name in KINDS:
        for variant in example(name).get("variants", ()):
            yield pytest.param(name, variant, id=f"{name}: {variant['why']}")


def agrees(found: Any, wanted: Any) -> None:
    """What is wanted is there; of records and lists of records only the named fields are compared."""
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            agrees(getattr(found, "pod_sets" if key == "podSets" else key), value)
    elif isinstance(wanted, list) and all(isinstance(one, dict) for one in wanted):
        assert len(found) == len(wanted), [one.name for one in found]
        for one, value in zip(found, wanted, strict=True):
            agrees(one, value)
    elif isinstance(wanted, list):
        assert list(found) == wanted
    else:
        assert getattr(found, "name", found) == wanted


def check_pods(raw: Any, pods: list[dict[str, Any]]) -> None:
    workload = workload_of(raw)
    beside = {one.name for one in structure_of(raw).pod_sets if one.beside}  # these pods are of no gang
    for one in pods:
        labels, pod = one["labels"], pod_of(one["labels"])
        found = pod_set_of(pod, workload)
        wanted = None if one["podSet"] in beside else one["podSet"]
        assert (found.name if found is not None else None) == wanted, labels
        if found is None:
            continue
        assert rank_of(pod, found) == one["rank"], labels
        if "group" in one:
            assert group_of(pod, workload) == one["group"], labels


def test_every_kind_has_an_example() -> None:
    """The examples are of the built-in kinds, one each."""
    assert {entry.name for entry in built_in().entries} == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_an_example_is_read(name: str) -> None:
    """By its own entry: pod sets with template, count, rank; the gang; how it is held."""
    raw = example(name)["object"]
    entry = built_in().entry_of(raw)
    assert entry is not None
    assert entry.name == name
    structure = structure_of(raw)
    assert structure.name == raw["metadata"]["name"]
    agrees(structure, example(name)["structure"])


@pytest.mark.parametrize("name", KINDS)
def test_the_template_stands_where_its_path_says(name: str) -> None:
    """The steps of a pod set lead to its template."""
    raw = example(name)["object"]
    for pod_set in structure_of(raw).pod_sets:
        if pod_set.template is None:
            continue
        value: Any = raw
        for step in pod_set.steps:
            value = value[step]
        assert value is pod_set.template


@pytest.mark.parametrize("name", KINDS)
def test_pods_are_told_apart(name: str) -> None:
    """Labels as the controller writes them give pod set and rank; those that cannot be give none."""
    check_pods(example(name)["object"], example(name).get("pods", []))


@pytest.mark.parametrize(("name", "variant"), list(variants()))
def test_a_variant(name: str, variant: dict[str, Any]) -> None:
    """Each override and each field that changes what is read."""
    raw = merged(example(name)["object"], variant["merge"])
    agrees(structure_of(raw), variant["structure"])
    check_pods(raw, variant.get("pods", []))


@pytest.mark.parametrize(
    ("conditions", "succeeded"),
    [
        pytest.param([{"type": "Suspended", "status": "False"}], 2, id="resumed"),
        pytest.param(
            [{"type": "Suspended", "status": "True"}], 0, id="its controller has not seen that it was resumed"
        ),
        pytest.param(None, 2, id="no conditions"),
    ],
)
def test_what_had_succeeded_before_a_suspension_counts_no_more(conditions: Any, succeeded: int) -> None:
    """All pods run again, and the status keeps the old numbers until its controller has looked at it."""
    status = {"startTime": "2026-01-01T00:00:00Z", "replicaStatuses": {"Worker": {"succeeded": 2}}}
    raw = merged(example("pytorchjob")["object"], {"status": {**status, "conditions": conditions}})
    raw["spec"]["runPolicy"] = {"suspend": False}
    assert [one.succeeded for one in structure_of(raw).pod_sets if one.name == "worker"] == [succeeded]


def test_a_trainjob_is_placed_through_its_jobset() -> None:
    """The kind that has the pods is named, and is registered."""
    entry = built_in().find("trainer.kubeflow.org", "TrainJob")
    assert entry is not None
    assert entry.through is not None
    through = built_in().find(entry.through.group, entry.through.kind)
    assert through is not None
    assert through.handling == "placed"


def test_every_override_has_a_variant() -> None:
    """An override that no example sets off would be untested."""
    seen: dict[str, set[str]] = {name: set() for name in KINDS}
    for name in KINDS:
        for raw in (
            example(name)["object"],
            *(merged(example(name)["object"], one["merge"]) for one in example(name).get("variants", ())),
        ):
            structure = structure_of(raw)
            seen[name] |= {structure.gang.creation} if structure.gang is not None else set()
            seen[name] |= {pod_set.replace for pod_set in structure.pod_sets}
            seen[name] |= {structure.stand_aside} if structure.stand_aside is not None else set()
    for entry in built_in().entries:
        overrides = entry.gang.overrides if entry.gang is not None else ()
        costs = [one for one in (entry.replace, *(spec.replace for spec in entry.pod_sets)) if one is not None]
        assert {one.creation for one in overrides} <= seen[entry.name]
        assert {other.cost for one in costs for other in one.overrides} <= seen[entry.name]
        if entry.name in ("job", "jobset", "leaderworkerset", "trainjob"):
            assert seen[entry.name] & {"ManagedByKueue", "ExclusiveTopology"}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("job", ["spec.parallelism"]),
        ("statefulset", ["spec.replicas"]),
        ("leaderworkerset", [None, "spec.leaderWorkerTemplate.size"]),
        ("pytorchjob", [None, "spec.pytorchReplicaSpecs.Worker.replicas"]),
        ("volcano-job", ["spec.tasks[0].replicas", "spec.tasks[1].replicas"]),
        ("sparkapplication", [None, "spec.executor.instances"]),
    ],
)
def test_the_field_that_makes_a_count_is_known(name: str, fields: list[str | None]) -> None:
    """Where a gang is too large its user is led there."""
    found = structure_of(example(name)["object"]).pod_sets
    assert [None if one.counted is None else path_of(one.counted) for one in found] == fields


def test_of_several_fields_that_make_a_count_the_largest_is_named() -> None:
    raw = copy.deepcopy(example("jobset")["object"])
    first = raw["spec"]["replicatedJobs"][0]
    first["replicas"], first["template"]["spec"]["parallelism"] = 3, 70_000
    first["template"]["spec"]["completions"] = 70_000
    counted = structure_of(raw).pod_sets[0].counted
    assert counted is not None
    assert path_of(counted) == "spec.replicatedJobs[0].template.spec.parallelism"


def test_a_branch_that_a_count_does_not_take_may_hold_anything() -> None:
    allocation = {"dynamicAllocation": {"enabled": False, "initialExecutors": {}}}
    counted = structure_of(merged(example("sparkapplication")["object"], {"spec": allocation})).pod_sets[1].counted
    assert counted is not None
    assert path_of(counted) == "spec.executor.instances"


def test_the_count_inside_an_app_wrapper_is_named_from_its_root() -> None:
    counted = structure_of(example("appwrapper")["object"]).pod_sets[1].counted
    assert counted is not None
    assert path_of(counted) == "spec.components[0].template.spec.pytorchReplicaSpecs.Worker.replicas"


def test_a_component_that_cannot_be_read_hides_no_child_of_another() -> None:
    def job_set(replicated_jobs: Any) -> dict[str, Any]:
        spec = {"replicatedJobs": replicated_jobs}
        return {"template": {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": spec}}

    components = [job_set("none"), job_set([{"template": {"metadata": {"name": "of-the-second"}}}])]
    wrapper = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "spec": {"components": components}}
    entry = built_in().entry_of(wrapper)
    assert entry is not None
    found = child_objects(entry, wrapper, registry=built_in())
    assert [path_of(one.steps) for one in found] == [
        "spec.components[0].template",
        "spec.components[1].template",
        "spec.components[1].template.spec.replicatedJobs[0].template",
    ]
