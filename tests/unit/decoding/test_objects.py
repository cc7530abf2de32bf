from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from engine.api import names
from engine.api.device import DeviceRequest
from engine.api.objects import Taint
from engine.api.pod import OwnerRef, SelectorRequirement, SelectorTerm, Toleration
from engine.decoding.objects import config_map, node, priority_class, quota, runtime_class
from engine.decoding.pods import pod
from engine.decoding.wire import ProjectionError
from engine.decoding.workloads import job
from engine.kinds.read import read
from engine.kinds.registry import built_in
from engine.resources.hints import MAX_TEXT
from engine.resources.shape import merge_runtime_class

_NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC).timestamp()


def a_pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "team"}, "spec": {"containers": [{}], **spec}}


def asking(requests: Any = None, limits: Any = None, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": requests, "limits": limits}, **more}


def a_job(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "train", "namespace": "team"}, "spec": spec, "status": status}


def a_node(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "metadata": {"name": "host-1", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-11-21T11:00:00Z"},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "191500m", "memory": "1048577Ki", "pods": "110", "nvidia.com/gpu": "8"},
            "conditions": [
                {"type": "MemoryPressure", "status": "False", "lastTransitionTime": "2026-11-21T13:00:00Z"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T12:00:00Z"},
            ],
        },
    }
    for part, fields in changes.items():
        found[part].update(fields)
    return found


def requests_of(raw: dict[str, Any]) -> dict[str, int]:
    return dict(pod(raw).spec.shape.requests)


@pytest.mark.parametrize("source", [bytes, bytearray, memoryview, msgspec.Raw, dict])
def test_bytes_and_parsed_objects_read_the_same(source: Callable[[Any], Any]) -> None:
    """A watch's bytes and a file's parsed object give one and the same record."""
    raw = a_node()
    given = raw if source is dict else source(json.dumps(raw).encode())
    assert node(given) == node(raw)


def test_a_node() -> None:
    """Labels are kept, capacity is rounded down, the node settled when it was last made Ready."""
    raw = a_node(
        metadata={"labels": {"zone": "a"}},
        spec={"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
    )
    record = node(raw)
    assert (record.name, record.uid, record.resource_version) == ("host-1", "u", "7")
    assert record.labels == {"zone": "a"}
    assert record.allocatable == {"cpu": 191_500, "memory": 1024, "pods": 110, "nvidia.com/gpu": 8}
    assert record.taints == (Taint("gpu", "", "NoSchedule"),)
    assert record.unschedulable
    assert record.ready
    assert record.settled_at == _NOON


def test_a_node_settles_at_its_creation_when_that_is_later() -> None:
    """The later of creation and the last change to Ready counts."""
    assert node(a_node(metadata={"creationTimestamp": "2026-11-21T13:30:00+01:30"})).settled_at == _NOON
    assert node(a_node(metadata={"creationTimestamp": "2026-11-21T14:00:00Z"})).created == _NOON + 7200
    assert node(a_node(metadata={"creationTimestamp": "2026-11-21T14:00:00Z"})).settled_at == _NOON + 7200


@pytest.mark.parametrize("conditions", [None, [], [{"type": "Ready", "status": "Unknown"}], [{"type": "Ready"}]])
def test_only_ready_true_is_ready(conditions: Any) -> None:
    """Unknown, absent and null mean not ready."""
    assert not node(a_node(status={"conditions": conditions})).ready


def test_a_node_without_allocatable_offers_its_capacity() -> None:
    """As the API server defaults it; an empty allocatable stays empty."""
    status = {"capacity": {"cpu": "4"}}
    assert node({"metadata": {"name": "n"}, "status": status}).allocatable == {"cpu": 4000}
    assert node({"metadata": {"name": "n"}, "status": {**status, "allocatable": {}}}).allocatable == {}


@pytest.mark.parametrize("empty", [None, {}])
def test_null_and_empty_parts_read_as_absent(empty: Any) -> None:
    """Go writes null and {} where nothing was set."""
    meta = {"name": "x", "creationTimestamp": None, "labels": None, "annotations": None, "ownerReferences": None}
    assert node({"metadata": meta, "spec": empty, "status": empty}).allocatable == {}
    assert pod({"metadata": meta, "spec": empty, "status": empty}).phase == "Pending"
    assert pod({"metadata": empty}).name == ""
    assert job({"metadata": meta, "spec": empty, "status": empty}).slots == 1
    assert job({"metadata": meta, "spec": {"template": {"metadata": empty, "spec": empty}}}).template.labels == {}
    assert quota({"metadata": meta, "spec": empty, "status": empty}).hard == {}
    assert runtime_class({"metadata": meta, "overhead": empty, "scheduling": empty}).overhead == {}


def test_null_containers_and_amounts_ask_for_nothing() -> None:
    """A pod always asks for one pod; null amounts are zero, as Go reads them."""
    nothing = {"pods": 1}
    assert requests_of(a_pod(containers=None, initContainers=None)) == nothing
    assert requests_of(a_pod(containers=[{"resources": None}, asking()])) == nothing
    assert requests_of(a_pod(containers=[asking({"cpu": None, "nvidia.com/gpu": "0"})])) == nothing


def test_requests_default_from_limits() -> None:
    """A container with a limit and no request asks for its limit, resource by resource."""
    raw = a_pod(containers=[asking({"cpu": "1"}, {"cpu": "2", "nvidia.com/gpu": 4}), asking(None, {"memory": "1Gi"})])
    assert requests_of(raw) == {"cpu": 1000, "memory": 1024, "nvidia.com/gpu": 4, "pods": 1}
    assert dict(pod(raw).spec.limits) == {"cpu": 2000, "memory": 1024, "nvidia.com/gpu": 4}


def test_init_containers_sidecars_and_overhead() -> None:
    """Kubernetes' formula: a sidecar runs beside all that follow, init containers one by one, overhead on top."""
    raw = a_pod(
        containers=[asking({"cpu": "1"})],
        initContainers=[asking({"cpu": "2"}, restartPolicy="Always"), asking({"cpu": "5"})],
        overhead={"cpu": "250m"},
    )
    assert requests_of(raw)["cpu"] == 7250


def test_pod_level_resources() -> None:
    """`spec.resources` overrides the containers' sum of cpu and memory, and its limits the limits."""
    raw = a_pod(
        containers=[asking({"cpu": "1", "memory": "1Gi"})],
        resources={"requests": {"cpu": "3"}, "limits": {"memory": "4Gi"}},
    )
    assert requests_of(raw) == {"cpu": 3000, "memory": 1024, "pods": 1}
    assert dict(pod(raw).spec.limits) == {"memory": 4096}


def test_the_same_resources_elsewhere_are_reckoned_anew() -> None:
    """What was an init container's in one pod is a container's in the next."""
    assert requests_of(a_pod(containers=[asking({"cpu": 1})], initContainers=[asking({"cpu": 3})]))["cpu"] == 3000
    assert requests_of(a_pod(containers=[asking({"cpu": 1}), asking({"cpu": 3})]))["cpu"] == 4000
    assert requests_of(a_pod(containers=[asking(None, {"cpu": 3}), asking({"cpu": 1})]))["cpu"] == 4000


def test_a_pods_scheduling_constraints() -> None:
    """nodeSelector, required node affinity and tolerations make the shape; order of tolerations does not."""
    tolerations = [
        {"key": "z", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "a", "value": None},
    ]
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b", "a"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["host-1"]}]},
        {},
    ]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    raw = a_pod(nodeSelector={"b": "2", "a": None}, affinity=affinity, tolerations=tolerations)
    shape = pod(raw).spec.shape
    assert shape.node_selector == (("a", ""), ("b", "2"))
    assert shape.affinity == (
        SelectorTerm((SelectorRequirement("zone", "In", ("b", "a")),), ()),
        SelectorTerm((), (SelectorRequirement("metadata.name", "In", ("host-1",)),)),
        SelectorTerm((), ()),
    )
    assert shape.tolerations == (Toleration("a", "Equal", "", ""), Toleration("z", "Exists", "", "NoExecute"))
    raw["spec"]["tolerations"].reverse()
    assert pod(raw).spec.shape == shape


def test_preferred_affinity_constrains_nothing() -> None:
    """Only required terms make the shape and the warnings."""
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
    spec = pod(a_pod(affinity={"nodeAffinity": preferred, "podAffinity": preferred})).spec
    assert spec.shape.affinity is None
    assert spec.unmodelled == ()


def test_a_pod() -> None:
    """What else concerns us of a pod."""
    raw: dict[str, Any] = a_pod(
        nodeName="host-1",
        schedulerName="default-scheduler",
        priorityClassName="high",
        priority=-5,
        runtimeClassName="kata",
        activeDeadlineSeconds=9,
        schedulingGroup={"podGroupName": "g"},
        schedulingGates=[{"name": "topogate.dev/placement"}, {"name": "example.com/wait"}],
    )
    raw["metadata"] |= {
        "uid": "u",
        "resourceVersion": "9",
        "creationTimestamp": "2026-11-21T12:00:00.5Z",
        "deletionTimestamp": "2026-11-21T12:00:00Z",
    }
    raw["status"] = {
        "phase": "Failed",
        "nominatedNodeName": "host-2",
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: no room"}
        ],
    }
    record = pod(raw)
    assert (record.key, record.uid, record.resource_version) == (("team", "p"), "u", "9")
    assert (record.phase, record.finished, record.deleting, record.created) == ("Failed", True, True, _NOON + 0.5)
    assert (record.nominated_node, record.unschedulable) == ("host-2", "0/3 nodes: no room")
    assert record.spec.gates == ("topogate.dev/placement", "example.com/wait")
    assert (record.spec.node_name, record.spec.scheduler_name) == ("host-1", "default-scheduler")
    assert (record.spec.priority_class, record.spec.priority, record.spec.runtime_class) == ("high", -5, "kata")
    assert record.spec.has_scheduling_group
    assert record.spec.deadline


@pytest.mark.parametrize(
    "condition",
    [
        {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "gated"},
        {"type": "PodScheduled", "status": "True", "message": "x"},
        {"type": "Ready", "status": "False", "reason": "Unschedulable", "message": "x"},
    ],
)
def test_only_the_schedulers_refusal_is_unschedulable(condition: dict[str, Any]) -> None:
    """A gated pod has not been looked at by the scheduler."""
    assert pod({**a_pod(), "status": {"conditions": [condition]}}).unschedulable == ""


@pytest.mark.parametrize(
    ("condition", "words"),
    [({"reason": "SchedulerError", "message": "binding volumes: timed out"}, "binding volumes: timed out")]
    + [({"reason": reason}, reason) for reason in ("Unschedulable", "SchedulerError")],
)
def test_every_word_of_the_scheduler_on_why_it_did_not_bind_counts(condition: dict[str, Any], words: str) -> None:
    """Also a binding that failed, and a condition without a message."""
    conditions = [{"type": "PodScheduled", "status": "False", **condition}]
    assert pod({**a_pod(), "status": {"conditions": conditions}}).unschedulable == words


def test_the_owner_is_the_controller_reference() -> None:
    """Other owner references do not count, and none is none."""
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"},
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "2", "controller": True},
    ]
    raw = a_pod()
    raw["metadata"]["ownerReferences"] = references
    assert pod(raw).owner == OwnerRef("batch/v1", "Job", "train", "2", True)
    raw["metadata"]["ownerReferences"] = references[:1]
    assert pod(raw).owner is None


@pytest.mark.parametrize("read", ["pod", "template", "job"])
@pytest.mark.parametrize(
    ("key", "most"),
    [
        *((key, 0) for key in sorted(names.UNREAD_KEYS - {*names.DEVICE_HINTS, "kai.scheduler/segment-size"})),
        *((key, MAX_TEXT + 1) for key in names.DEVICE_HINTS),
        ("kai.scheduler/segment-size", MAX_TEXT + 1),
        (names.REQUIRE, MAX_TEXT + 1),
        ("topogate.dev/no-such-key", MAX_TEXT + 1),
        ("volcano.sh/no-such-key", MAX_TEXT + 1),
        (names.DEVICE_ALLOCATED, 200_000),
    ],
)
def test_no_more_is_kept_of_a_value_than_is_read(key: str, most: int, read: str) -> None:
    """A user may write 256 KiB on each pod, and each replica keeps all pods."""
    written = {"annotations": {key: "x" * 200_000}}
    if read == "pod":
        kept = pod(a_pod() | {"metadata": written}).spec.annotations
    elif read == "template":
        kept = job(a_job(template={"metadata": written, "spec": {}})).template.annotations
    else:
        kept = job(a_job() | {"metadata": written}).annotations
    assert kept == {key: "x" * most}


def test_of_a_job_s_other_annotations_the_keys_are_kept() -> None:
    """A mistyped key is told; kubectl's copy of the whole object is not worth its bytes."""
    annotations = {"required-topology": "rack", "a": "x" * 200_000, "b": None}
    assert job(a_job() | {"metadata": {"annotations": annotations}}).annotations == {
        "required-topology": "",
        "a": "",
        "b": "",
    }


def test_pods_keep_only_labels_and_annotations_that_concern_us() -> None:
    """The rest is most of the bytes of 100,000 pods; a mirror pod is known by its annotation all the same."""
    raw = a_pod()
    raw["metadata"]["labels"] = {"app": "x", "topogate.dev/gang": "g", "batch.kubernetes.io/job-completion-index": "3"}
    raw["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "h", "topogate.dev/rank": None, "note": "long"}
    record = pod(raw)
    assert record.spec.labels == {"topogate.dev/gang": "g", "batch.kubernetes.io/job-completion-index": "3"}
    assert record.spec.annotations == {"topogate.dev/rank": ""}
    assert record.mirror
    assert not pod(a_pod()).mirror


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, ()),
        ({"volumes": [{"name": "v", "ephemeral": {}}]}, ()),
        ({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {}}]}, ()),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            ("pod affinity (no topologyKey)",),
        ),
        (
            {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            ("pod anti-affinity (no topologyKey)",),
        ),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            ("topology spread constraints (invalid)",),
        ),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, ()),
        ({"resourceClaims": [{"name": "gpu"}]}, ("resource claims",)),
        ({"containers": [{"restartPolicyRules": [{"action": "Restart"}]}]}, ()),
        (
            {"containers": [{}, {"restartPolicyRules": [{"action": "Restart"}, {"action": "RestartAllContainers"}]}]},
            ("the action RestartAllContainers",),
        ),
        (
            {"initContainers": [{"restartPolicyRules": [{"action": "RestartAllContainers"}]}]},
            ("the action RestartAllContainers",),
        ),
        ({"containers": [{"ports": [{"hostPort": 80}]}]}, ()),
    ],
)
def test_what_the_scheduler_looks_at_and_we_do_not_is_named(spec: dict[str, Any], names: tuple[str, ...]) -> None:
    """Only what can keep a pod off a host is named."""
    assert pod(a_pod(**spec)).spec.unmodelled == names


@pytest.mark.parametrize(
    ("spec", "slots", "total"),
    [
        ({}, 1, 1),
        ({"parallelism": None, "completions": None}, 1, 1),
        ({"parallelism": 4}, 4, 4),
        ({"parallelism": 0, "completions": 4}, 0, 4),
        ({"parallelism": 0}, 0, 0),
        ({"parallelism": 4, "completions": 12}, 4, 12),
        ({"parallelism": 8, "completions": 3}, 3, 3),
        ({"completions": 3}, 1, 3),
        ({"parallelism": 4, "completions": 0}, 0, 0),
    ],
)
def test_a_jobs_slots_and_total(spec: dict[str, Any], slots: int, total: int) -> None:
    """As many pods as parallelism run at a time, never more than completions."""
    record = job(a_job(**spec))
    assert (record.slots, record.pod_sets[0].total) == (slots, total)


@pytest.mark.parametrize(
    ("spec", "status", "remaining"),
    [
        ({"parallelism": 4, "completions": 12}, {"succeeded": 5}, 7),
        ({"parallelism": 4, "completions": 4}, {"succeeded": 9}, 0),
        ({"parallelism": 4, "completions": 12}, {"succeeded": 5, "failedIndexes": "1,3"}, 5),
        ({"parallelism": 4}, {"active": 3, "failed": 1}, 4),
        ({"parallelism": 4}, {"succeeded": 3, "active": 1}, 1),
        ({"parallelism": 4}, {"succeeded": 3}, 0),
        ({"parallelism": 1}, {"succeeded": 3, "active": 2}, 1),
        ({"parallelism": 4}, {"succeeded": 3, "conditions": [{"type": "Complete", "status": "True"}]}, 0),
    ],
)
def test_how_many_completions_are_missing(spec: dict[str, Any], status: dict[str, Any], remaining: int) -> None:
    """Completions less what succeeded or failed for good; a work queue replaces no pod after the first success."""
    assert job(a_job(status, **spec)).pod_sets[0].remaining == remaining


def test_finished_ranks() -> None:
    """Completed indexes, and those that failed for good, get no pod any more."""
    assert job(a_job({"completedIndexes": "1,3-5", "failedIndexes": "2,9"})).pod_sets[0].finished_ranks == (
        (1, 5),
        (9, 9),
    )
    assert job(a_job({"completedIndexes": "", "failedIndexes": None})).pod_sets[0].finished_ranks == ()


@pytest.mark.parametrize("kind", ["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"])
def test_a_job_is_over_with_any_of_its_final_conditions(kind: str) -> None:
    """Complete, Failed and the conditions that announce them, when True."""
    assert job(
        a_job({"conditions": [{"type": "Suspended", "status": "False"}, {"type": kind, "status": "True"}]})
    ).finished
    assert not job(a_job({"conditions": [{"type": kind, "status": "False"}]})).finished
    assert not job(a_job({"conditions": [{"type": "Suspended", "status": "True"}]})).finished


@pytest.mark.parametrize(
    ("kinds", "failed"),
    [
        (["Complete"], False),
        (["SuccessCriteriaMet"], False),
        (["Failed"], True),
        (["FailureTarget"], True),
        ([], False),
    ],
)
def test_a_job_that_failed_is_told_from_one_that_is_complete(kinds: list[str], failed: bool) -> None:
    """Both are over."""
    conditions = [{"type": kind, "status": "True"} for kind in kinds]
    assert job(a_job({"conditions": conditions})).failed is failed


def test_a_job() -> None:
    """What else concerns us of a Job."""
    raw = a_job(
        {"startTime": "2026-11-21T12:00:00Z"},
        suspend=True,
        completionMode="Indexed",
        template={"metadata": {"labels": {"topogate.dev/managed": "true", "app": "x"}}, "spec": {"nodeName": "h"}},
    )
    raw["metadata"] |= {"uid": "u", "resourceVersion": "5", "generation": 4, "labels": {"app": "x"}}
    raw["metadata"] |= {"annotations": {"topogate.dev/require-topology": "rack", "note": "n"}}
    record = job(raw)
    assert (record.api_version, record.kind, record.namespace, record.name) == ("batch/v1", "Job", "team", "train")
    assert (record.uid, record.resource_version, record.generation) == ("u", "5", 4)
    assert record.labels == {"app": "x"}
    assert record.annotations == {"topogate.dev/require-topology": "rack", "note": ""}
    assert record.template.labels == {"topogate.dev/managed": "true"}
    assert record.template.node_name == "h"
    assert (record.suspended, record.suspendable, record.started, record.pod_sets[0].ranked) == (True, True, True, True)
    assert (record.managed_elsewhere, record.owner, record.deleting) == (None, None, False)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({}, None),
        ({"managedBy": None}, None),
        ({"managedBy": ""}, None),
        ({"managedBy": "kubernetes.io/job-controller"}, None),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "ManagedByKueue"),
        ({"managedBy": "example.com/other"}, "OtherController"),
        ({"scheduling": {}}, "CoreGang"),
    ],
)
def test_jobs_that_others_manage(spec: dict[str, Any], reason: str | None) -> None:
    """A foreign controller, or core gang scheduling; the entry of the kind says the same."""
    raw = a_job(**spec)
    assert job(raw).managed_elsewhere == reason
    entry = built_in().find("batch", "Job")
    assert entry is not None
    template = {"template": {"spec": {"containers": []}}}
    assert read(entry, raw | {"spec": template | raw["spec"]}, registry=built_in()).stand_aside == reason


def test_a_quota_prefers_its_status() -> None:
    """What the quota controller has reckoned counts; names mean the resource behind them."""
    hard = {"requests.cpu": "10500m", "limits.memory": "1G", "requests.nvidia.com/gpu": "8", "pods": "20", "cpu": "4"}
    raw = {
        "metadata": {"name": "q", "namespace": "team"},
        "spec": {"hard": {"pods": "1"}},
        "status": {"hard": hard, "used": {"limits.memory": "1G", "count/pods": "3"}},
    }
    record = quota(raw)
    assert (record.namespace, record.name) == ("team", "q")
    assert record.hard == {
        "requests.cpu": 10500,
        "limits.memory": 953,
        "requests.nvidia.com/gpu": 8,
        "pods": 20,
        "cpu": 4000,
    }
    assert record.used == {"limits.memory": 954, "count/pods": 3}
    assert quota({**raw, "status": None}).hard == {"pods": 1}


def test_a_quota_leaves_out_what_no_pod_uses() -> None:
    """Claims' storage and counts of other objects are nobody's concern here, whatever stands there."""
    hard = {
        "requests.storage": "0.3Gi",
        "count/jobs.batch": "1",
        "gold.storageclass.storage.k8s.io/requests.storage": "1",
    }
    assert quota({"metadata": {"name": "q"}, "spec": {"hard": hard}}).hard == {}


def test_a_quotas_scopes() -> None:
    """Scopes and the scope selector are one list."""
    spec = {
        "scopes": ["NotTerminating"],
        "scopeSelector": {
            "matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]},
                {"scopeName": "BestEffort", "operator": "Exists"},
            ]
        },
    }
    assert quota({"metadata": {"name": "q"}, "spec": spec}).scopes == (
        ("NotTerminating", "Exists", ()),
        ("PriorityClass", "In", ("high",)),
        ("BestEffort", "Exists", ()),
    )


def test_priority_and_runtime_classes_and_config_maps() -> None:
    """The small kinds."""
    high = priority_class({"metadata": {"name": "high"}, "value": -1, "globalDefault": True})
    assert (high.name, high.value, high.default) == ("high", -1, True)
    assert priority_class({"metadata": {"name": "high"}}).value == 0
    kata = runtime_class(
        {
            "metadata": {"name": "kata"},
            "overhead": {"podFixed": {"cpu": "250m", "memory": "1"}},
            "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "k", "operator": "Exists"}]},
        }
    )
    assert (kata.name, kata.overhead, kata.node_selector) == ("kata", {"cpu": 250, "memory": 1}, {"kata": "yes"})
    assert kata.tolerations == (Toleration("k", "Exists", "", ""),)
    policy = config_map({"metadata": {"name": "c", "namespace": "n", "uid": "u"}, "data": {"a": "1", "b": None}})
    assert (policy.namespace, policy.name, policy.uid, policy.data) == ("n", "c", "u", {"a": "1", "b": ""})
    assert config_map({"metadata": {"name": "c"}, "data": None}).data == {}


def test_times_from_yaml() -> None:
    """A YAML parser makes dates of timestamps; one without a zone is UTC."""
    raw = a_pod()
    raw["metadata"]["creationTimestamp"] = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
    assert pod(raw).created == _NOON
    raw["metadata"]["creationTimestamp"] = datetime(2026, 11, 21, 12, 0)
    assert pod(raw).created == _NOON


@pytest.mark.parametrize(
    ("read", "raw", "message"),
    [
        (job, a_job(parallelism="4"), "$.spec.parallelism: Expected `int | null`, got `str`"),
        (job, a_job(parallelism=-1), "$.spec.parallelism: Expected `int` >= 0"),
        (job, a_job(completions=10**10), "$.spec.completions: Expected `int` <= 2147483647"),
        (job, a_job(parallelism=True), "$.spec.parallelism: Expected `int | null`, got `bool`"),
        (job, a_job(template=[]), "$.spec.template: Expected `object | null`, got `array`"),
        (job, a_job({"completedIndexes": "3-1"}), "$.status.completedIndexes: '3-1': ranks must ascend"),
        (job, a_job({"startTime": "yesterday"}), "$.status.startTime: "),
        (job, {"metadata": {"annotations": {"a": 1}}}, "$.metadata.annotations[...]: Expected `str | null`, got `int`"),
        (job, {"metadata": {"labels": {1: "a"}}}, "$.metadata.labels: Expected `str`, got `int`"),
        (job, None, "$: "),
        (job, [], "$: "),
        (job, b"", "$: "),
        (job, b"{", "$: "),
        (job, b"null", "$: Expected `object`, got `null`"),
        (job, b"\xff\xfe", "$: "),
        (job, b'{"metadata":{"name":"\xff"}}', "$: "),
        (job, b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "$: "),
        (
            pod,
            a_pod(containers=[asking({"cpu": "much"})]),
            "$.spec.containers[0].resources.requests[cpu]: 'much' is not",
        ),
        (
            pod,
            a_pod(containers=[{}, asking(None, {"cpu": "-1"})]),
            "$.spec.containers[1].resources.limits[cpu]: must not",
        ),
        (
            pod,
            a_pod(initContainers=[asking({"nvidia.com/gpu": "500m"})]),
            "$.spec.initContainers[0].resources.requests[nvidia.com/gpu]: '500m' must be a whole number",
        ),
        (pod, a_pod(overhead={"cpu": ""}), "$.spec.overhead[cpu]: '' is not a quantity"),
        (pod, a_pod(resources={"limits": {"cpu": "x"}}), "$.spec.resources.limits[cpu]: 'x' is not a quantity"),
        (pod, a_pod(containers=[asking({"a" * 999: "1"})]), "$.spec.containers[0].resources.requests['aaa"),
        (pod, a_pod(containers=[asking({"a\n": "x"})]), "$.spec.containers[0].resources.requests[a\\n]: "),
        (pod, a_pod(containers="main"), "$.spec.containers: Expected `array | null`, got `str`"),
        (pod, a_pod(priority=2**31), "$.spec.priority: Expected `int` <= 2147483647"),
        (
            job,
            a_job(template={"spec": {"containers": [asking({"cpu": []})]}}),
            "$.spec.template.spec.containers[0].resources.requests[...]: ",
        ),
        (node, {"metadata": {}}, "$.metadata.name: is required"),
        (node, a_node(status={"allocatable": {"pods": "1.5"}}), "$.status.allocatable[pods]: '1.5' must be a whole"),
        (quota, {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "x"}}}, "$.spec.hard[requests.cpu]: 'x'"),
        (quota, {"metadata": {"name": "q"}, "status": {"used": {"pods": ".5"}}}, "$.status.used[pods]: '.5' must be"),
        (
            runtime_class,
            {"metadata": {"name": "r"}, "overhead": {"podFixed": {"cpu": "x"}}},
            "$.overhead.podFixed[cpu]",
        ),
        (priority_class, {"metadata": {"name": "p"}, "value": 1.5}, "$.value: Expected `int | null`, got `float`"),
        (
            config_map,
            {"metadata": {"name": "c"}, "data": {"a": {}}},
            "$.data[...]: Expected `str | null`, got `object`",
        ),
    ],
)
def test_what_cannot_be_read_is_named_by_its_path(read: Callable[[Any], object], raw: Any, message: str) -> None:
    """Wrong types, wrong amounts and broken JSON raise ProjectionError with the JSON path, and nothing else."""
    with pytest.raises(ProjectionError) as caught:
        read(raw)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 300


def test_reading_leaves_the_parsed_object_alone() -> None:
    """The object that was handed in is still the caller's."""
    raw = a_pod(containers=[asking({"cpu": "1"}, {"cpu": "2"})], tolerations=[{"key": "a"}])
    before = copy.deepcopy(raw)
    pod(raw)
    assert raw == before


def test_what_a_pod_asks_means_devices() -> None:
    """Of the pod's total: two containers that ask for half a GPU each share the devices of one pod."""
    gpu = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
    assert pod(a_pod(containers=[asking(gpu, gpu)])).spec.shape.devices == DeviceRequest(gpus=1, core=50, ratio=50)
    whole = pod(a_pod(containers=[asking(gpu, gpu)] * 2)).spec.shape.devices
    assert whole == DeviceRequest(gpus=1, core=100, ratio=100, whole=True)
    assert pod(a_pod(containers=[asking({"cpu": "1"})])).spec.shape.devices is None


def test_a_runtime_class_leaves_the_devices_as_they_are() -> None:
    """Its overhead is added to the requests; what the requests mean in devices goes with them."""
    shape = pod(a_pod(containers=[asking({"nvidia.com/gpu": "2"})])).spec.shape
    merged = merge_runtime_class(
        shape, runtime_class({"metadata": {"name": "r"}, "overhead": {"podFixed": {"cpu": 1}}})
    )
    assert merged.devices == shape.devices == DeviceRequest(gpus=2, core=100, ratio=100, whole=True)
    odd = runtime_class({"metadata": {"name": "r"}, "overhead": {"podFixed": {"nvidia.com/gpu": 1}}})
    assert merge_runtime_class(shape, odd).devices == DeviceRequest(gpus=3, core=100, ratio=100, whole=True)
