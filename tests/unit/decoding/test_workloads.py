"""Objects of every registered kind as workloads, and the objects between them and their pods."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.api import names
from engine.api.workload import Workload
from engine.decoding.pods import KEPT_PREFIXES
from engine.decoding.wire import ProjectionError
from engine.decoding.workloads import owned, workload
from engine.kinds.read import UnreadableWorkload
from engine.kinds.registry import built_in
from engine.kinds.rules import label_keys
from engine.resources.hints import MAX_TEXT
from tests.support.kinds import FILES, example, merged, structure_of

KINDS = [path.stem for path in FILES]


def read(raw: Any, *, version: str = "") -> Workload:
    entry = built_in().entry_of(raw)
    assert entry is not None
    return workload(json.dumps(raw).encode(), entry=entry, registry=built_in(), version=version)


def jobset(**more: Any) -> Any:
    return merged(example("jobset")["object"], more)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_read(name: str) -> None:
    """The pod sets of the gang, with their counts, ranks and paths, are those of the kind's entry."""
    raw = example(name)["object"]
    structure, record = structure_of(raw), read(raw)
    assert (record.kind, record.namespace, record.name) == (raw["kind"], "team", raw["metadata"]["name"])
    assert record.api_version == raw["apiVersion"]
    entry = built_in().entry_of(raw)
    assert entry is not None
    assert record.resource == entry.match.resource
    gang = [one for one in structure.pod_sets if not one.beside]
    assert [one.name for one in record.pod_sets] == [one.name for one in gang]
    for found, wanted in zip(record.pod_sets, gang, strict=True):
        assert (found.slots, found.total, found.remaining) == (wanted.count, wanted.total, wanted.total)
        assert (found.ranked, found.path) == (wanted.ranked, wanted.steps)
        assert (found.minimum, found.templated) == (
            wanted.minimum if wanted.minimum < wanted.count else None,
            wanted.template is not None,
        )
    assert record.suspended == (structure.suspension is not None and structure.suspension.suspended)
    assert record.managed_elsewhere == structure.stand_aside
    assert (record.uid, record.finished, record.owner) == (raw["metadata"].get("uid", ""), structure.finished, None)


def test_caches_keep_the_labels_that_tell_pods_apart() -> None:
    """Of every built-in kind."""
    dropped = [key for key in label_keys(built_in()) if not key.startswith(KEPT_PREFIXES)]
    assert dropped == [], "add their prefixes to KEPT_PREFIXES of engine/decoding/pods.py"


def test_a_jobset_is_read_whole() -> None:
    """How it is held, and what its replicas are."""
    record = read(jobset(metadata={"resourceVersion": "7", "generation": 3}))
    assert record.key == ("jobset.x-k8s.io", "JobSet", "team", "pretrain")
    assert (record.suspend_path, record.suspended, record.suspendable) == (("spec", "suspend"), False, True)
    assert (record.unit, record.groups, record.group_label) == ("workload", 1, None)
    assert (record.resource_version, record.generation, record.handling) == ("7", 3, "placed")
    driver, workers = record.pod_sets
    assert (driver.slots, driver.replica, workers.slots, workers.replica) == (1, 1, 12, 4)
    assert workers.selector == (("jobset.sigs.k8s.io/replicatedjob-name", "workers"),)
    assert workers.path == ("spec", "replicatedJobs", 1, "template", "spec", "template")
    assert (workers.ordered, workers.replace, workers.minimum) == (False, "retry", None)


def test_a_kind_with_a_gang_per_replica_has_groups() -> None:
    """The pod sets are those of one of them."""
    raw = merged(example("leaderworkerset")["object"], {"spec": {"replicas": 3, "leaderWorkerTemplate": {"size": 4}}})
    record = read(raw)
    assert (record.unit, record.groups) == ("replica", 3)
    assert record.group_label == "leaderworkerset.sigs.k8s.io/group-index"
    assert record.slots == 4
    assert (record.suspend_path, record.suspendable) == (None, False)


def test_what_is_placed_through_another_has_no_pod_sets() -> None:
    """A TrainJob is known, and held by its own field."""
    record = read(example("trainjob")["object"])
    assert (record.handling, record.pod_sets, record.slots) == ("through", (), 0)
    assert record.suspend_path == ("spec", "suspend")


def test_pods_beside_a_gang_are_in_no_pod_set() -> None:
    """The submitter of a RayJob comes when the cluster runs."""
    template = {"spec": {"containers": [{"name": "submit"}]}}
    record = read(merged(example("rayjob")["object"], {"spec": {"submitterPodTemplate": template}}))
    assert "submitter" not in [one.name for one in record.pod_sets]


def test_a_template_that_is_missing_has_an_empty_shape() -> None:
    """What a Spark pod needs is known when it exists."""
    spec = {"driver": {"template": None}, "executor": {"template": None, "instances": 3}}
    record = read(merged(example("sparkapplication")["object"], {"spec": spec}))
    assert [one.templated for one in record.pod_sets] == [False, False]
    assert [one.template.shape.requests for one in record.pod_sets] == [(("pods", 1),)] * 2


def test_the_scheduler_of_the_whole_object_is_that_of_its_pods() -> None:
    """Volcano's controller writes it into every pod."""
    raw = example("volcano-job")["object"]
    assert {one.template.scheduler_name for one in read(raw).pod_sets} == {"default-scheduler"}
    raw = merged(raw, {"spec": {"schedulerName": None}})
    assert {one.template.scheduler_name for one in read(raw).pod_sets} == {"volcano"}


@pytest.mark.parametrize(
    ("name", "status", "failed"),
    [
        ("jobset", {"conditions": [{"type": "Failed", "status": "True"}]}, True),
        ("jobset", {"conditions": [{"type": "Completed", "status": "True"}]}, False),
        ("jobset", {"conditions": [{"type": "Failed", "status": "False"}]}, False),
        ("sparkapplication", {"applicationState": {"state": "FAILED"}}, True),
        ("sparkapplication", {"applicationState": {"state": "COMPLETED"}}, False),
    ],
)
def test_a_workload_that_failed_is_told_from_one_that_ended_well(name: str, status: object, failed: bool) -> None:
    """By the condition, or the value of the field, that says that it is over."""
    assert read(merged(example(name)["object"], {"status": status})).failed is failed


def test_a_finished_workload_misses_no_completions() -> None:
    """Nothing more is to come."""
    record = read(jobset(status={"conditions": [{"type": "Completed", "status": "True"}]}))
    assert record.finished
    assert [one.remaining for one in record.pod_sets] == [0, 0]


def test_only_labels_and_annotations_that_are_read_are_kept() -> None:
    """The rest of an object's metadata may be large."""
    metadata = {
        "labels": {"kueue.x-k8s.io/queue-name": "q", "app": "x"},
        "annotations": {"topogate.dev/require-topology": "rack", "kubectl.kubernetes.io/last-applied": "{}"},
    }
    record = read(jobset(metadata=metadata))
    assert record.labels == {"kueue.x-k8s.io/queue-name": "q"}
    assert record.annotations == {"topogate.dev/require-topology": "rack"}


def test_no_more_is_kept_of_a_long_value_than_is_read() -> None:
    """Neither of the object nor of its templates."""
    annotations = {"gpu-memory": "x" * 200_000, names.DEVICE_ALLOCATE_HINT: "x" * 200_000}
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": []}}
    record = read(jobset(metadata={"annotations": annotations}, spec={"replicatedJobs": [one_job(template)]}))
    kept = {"gpu-memory": "", names.DEVICE_ALLOCATE_HINT: "x" * (MAX_TEXT + 1)}
    assert {key: record.annotations[key] for key in kept} == kept
    assert record.pod_sets[0].template.annotations.items() >= kept.items()


@pytest.mark.parametrize(
    ("metadata", "missing"),
    [(None, ("metadata", "annotations")), ({}, ("annotations",)), ({"annotations": {}}, ())],
)
def test_what_a_template_lacks_for_annotations(metadata: Any, missing: tuple[str, ...]) -> None:
    """A JSON Patch cannot add to a mapping that is not there."""
    template = {"metadata": metadata, "spec": {"containers": []}}
    assert read(jobset(spec={"replicatedJobs": [one_job(template)]})).pod_sets[0].missing == missing
    job = merged(example("job")["object"], {"spec": {"template": template}})
    assert read(job).pod_sets[0].missing == missing


def test_the_version_of_an_object_in_a_list() -> None:
    """Items of a list of built-in kinds say neither kind nor version: the collection does, else the entry."""
    raw = example("statefulset")["object"]
    entry = built_in().find("apps", "StatefulSet")
    assert entry is not None
    bare = {key: value for key, value in raw.items() if key not in ("apiVersion", "kind")}
    assert workload(bare, entry=entry, registry=built_in()).api_version == "apps/v1"
    assert workload(bare, entry=entry, registry=built_in(), version="v2").api_version == "apps/v2"


def test_a_fault_in_a_template_is_told_by_its_whole_path() -> None:
    """As in the user's object."""
    template = {"spec": {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}}
    with pytest.raises(ProjectionError, match=r"^\$\.spec\.replicatedJobs\[0\]\.template\.spec\.template\.spec\.cont"):
        read(jobset(spec={"replicatedJobs": [one_job(template)]}))
    with pytest.raises(ProjectionError, match=r"^\$\.spec\.replicatedJobs\[0\]\.template\.spec\.template\.spec\.tol"):
        read(jobset(spec={"replicatedJobs": [one_job({"spec": {"tolerations": 7}})]}))


@pytest.mark.parametrize("source", [b"", b"{", b"[]", b"7", b'{"metadata": 7}', b'{"metadata": {"uid": 7}}', b"\xff"])
def test_what_is_no_object_of_the_api_server(source: bytes) -> None:
    """ProjectionError, whatever it is."""
    entry = built_in().find("jobset.x-k8s.io", "JobSet")
    assert entry is not None
    with pytest.raises(ProjectionError, match=r"^\$"):
        workload(source, entry=entry, registry=built_in())


@pytest.mark.parametrize("depth", [100, 100_000])
def test_nesting_without_end(depth: int) -> None:
    """Is refused or read past, and harms nobody."""
    entry = built_in().find("jobset.x-k8s.io", "JobSet")
    assert entry is not None
    source = b'{"spec": ' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"
    with pytest.raises((ProjectionError, UnreadableWorkload)):
        workload(source, entry=entry, registry=built_in())


@pytest.mark.parametrize(
    "spec",
    [
        None,
        7,
        {},
        {"replicatedJobs": []},
        {"replicatedJobs": {}},
        {"replicatedJobs": [7]},
        {"replicatedJobs": [{"name": "a"}]},
        {"replicatedJobs": [{"name": "a", "replicas": "1"}]},
    ],
)
def test_an_object_without_what_its_entry_needs(spec: Any) -> None:
    """UnreadableWorkload, with what is wrong."""
    raw = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "x"}, "spec": spec}
    entry = built_in().find("jobset.x-k8s.io", "JobSet")
    assert entry is not None
    with pytest.raises(UnreadableWorkload) as caught:
        workload(raw, entry=entry, registry=built_in())
    assert caught.value.errors


def test_a_million_replicas_are_a_number() -> None:
    """Nothing grows with what an object says."""
    one = one_job({"spec": {"containers": []}}) | {"replicas": 10**6}
    assert read(jobset(spec={"replicatedJobs": [one]})).slots == 10**6


def test_two_pod_sets_of_one_name() -> None:
    """Their pods could not be told apart."""
    one = one_job({"spec": {"containers": []}})
    entry = built_in().find("jobset.x-k8s.io", "JobSet")
    assert entry is not None
    with pytest.raises(UnreadableWorkload, match="two pod sets have the name"):
        workload(jobset(spec={"replicatedJobs": [one, one]}), entry=entry, registry=built_in())


def test_a_link_between_pods_and_workload() -> None:
    """Name, uid and controller reference; the collection says what it is."""
    raw = {
        "metadata": {
            "name": "web-1",
            "namespace": "team",
            "uid": "u",
            "resourceVersion": "3",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "z"},
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True},
            ],
        },
        "spec": {"replicas": 7},
    }
    record = owned(json.dumps(raw).encode(), api_version="apps/v1", kind="ReplicaSet")
    assert record.key == ("apps", "ReplicaSet", "team", "web-1")
    assert record.owner is not None
    assert (record.uid, record.resource_version, record.owner.kind, record.owner.uid) == ("u", "3", "Deployment", "d")
    with pytest.raises(ProjectionError):
        owned(b'{"metadata": []}', api_version="apps/v1", kind="ReplicaSet")


def one_job(template: Any) -> Any:
    return {"name": "workers", "template": {"spec": {"template": template}}}


SIGNALLED = {"operator": "In", "values": [42, 143]}
DISRUPTED = [{"type": "DisruptionTarget", "status": "True"}]


@pytest.mark.parametrize(
    ("rules", "free"),
    [
        ([{"action": "Ignore", "onPodConditions": DISRUPTED}], True),
        ([{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}], True),
        (
            [
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
                {"action": "Ignore", "onPodConditions": DISRUPTED},
            ],
            True,
        ),
        # the first rule that a pod meets counts, and an evicted one mostly ends by a signal
        (
            [
                {"action": "FailJob", "onExitCodes": SIGNALLED},
                {"action": "Ignore", "onPodConditions": DISRUPTED},
            ],
            False,
        ),
        (
            [
                {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [42]}},
                {"action": "Ignore", "onPodConditions": DISRUPTED},
            ],
            False,
        ),
        (
            [
                {"action": "Count", "onPodConditions": DISRUPTED},
                {"action": "Ignore", "onPodConditions": DISRUPTED},
            ],
            False,
        ),
        ([{"action": "Ignore", "onPodConditions": [{"type": "ConfigIssue"}]}], False),
        ([{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]}], False),
        ([], False),
        (None, False),
    ],
)
def test_an_evicted_pod_is_free_where_its_job_ignores_that_first(rules: object, free: bool) -> None:
    """Else it counts as a failure of the Job."""
    raw = merged(example("job")["object"], {"spec": {"podFailurePolicy": {"rules": rules}}})
    assert read(raw).pod_sets[0].evictable is free
