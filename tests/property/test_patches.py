"""Our patches on arbitrary objects: they apply, a second pass gives none, and nobody else's fields change."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jsonpatch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import names
from engine.policy.model import default_policy
from engine.resources.names import CORE, GPU, KOORDINATOR, NVIDIA, RATIO, Reported
from tests.support.admission import (
    NODES,
    UID,
    FakeView,
    Json,
    apply,
    gang_view,
    live,
    placed,
    rack_job,
    raw_pod,
    review,
    workload,
)
from webhook.admission.objects import decoded_pod
from webhook.admission.patch import Edits, Path
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate
from webhook.rules.gating import restore, without_marks

HOSTS = ("b0-r0-h0", "b0-r0-h1", "b0-r0-h2", "b0-r0-h3")
JOB = live(rack_job())

OUR_KEYS = (*names.MARK_LABELS, *names.MARK_ANNOTATIONS, *names.NOTE_ANNOTATIONS)
DEVICES = (NVIDIA, GPU, CORE, RATIO)
DIMENSIONS = Reported(frozenset({"cpu", *KOORDINATOR}))
REQUESTS = (names.REQUIRE, names.PREFER, names.UNCONSTRAINED, "kueue.x-k8s.io/podset-required-topology")
FOREIGN = ("app", "a~b/c", "example.com/x~1y", names.KUEUE_QUEUE, names.POD_GROUP_NAME, "", "ключ")

values = st.sampled_from(
    ["", "true", "main", "suspend", "1", "2", "rack", "block", "auto", 'q"\\', "b0/b0-r0/b0-r0-h0"]
)


def maps(*keys: str) -> st.SearchStrategy[Json | None]:
    return st.none() | st.dictionaries(st.sampled_from(keys), values, max_size=5)


def pruned(value: Json) -> Json:
    """Half of the time a null field is left out altogether."""
    return {key: item for key, item in value.items() if item is not None}


gates = st.none() | st.lists(
    st.sampled_from([names.GATE, "example.com/quota", "kueue.x-k8s.io/topology"]).map(lambda name: {"name": name}),
    max_size=3,
    unique_by=lambda gate: gate["name"],
)
expressions = st.lists(
    st.fixed_dictionaries({"key": st.sampled_from(["zone", "disk"]), "operator": st.just("Exists")}), max_size=2
)
fields = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.just("metadata.name"),
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(st.sampled_from(HOSTS), min_size=1, max_size=1),
        }
    ),
    max_size=2,
)
node_terms = st.lists(
    st.fixed_dictionaries({}, optional={"matchExpressions": expressions, "matchFields": fields}), min_size=1, max_size=3
)
node_affinity = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.none()
        | st.fixed_dictionaries({"nodeSelectorTerms": node_terms}),
        "preferredDuringSchedulingIgnoredDuringExecution": st.just([]),
    },
)
affinity = st.none() | st.fixed_dictionaries({}, optional={"nodeAffinity": node_affinity, "podAffinity": st.just({})})
amounts = st.none() | st.dictionaries(  # no null among them: the API server sends such an amount as "0"
    st.sampled_from((*DEVICES, "cpu")),
    st.sampled_from(["0", "1", "50", "150", "200", "0.5", "x", 100]),
    max_size=3,
)
containers = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["c", "d", "e"])},
        optional={
            "resources": st.sampled_from([None, {}, {"limits": {NVIDIA: "8"}}, {"requests": {"cpu": "200"}}])
            | st.fixed_dictionaries({}, optional={"limits": amounts, "requests": amounts})
        },
    ),
    max_size=3,
    unique_by=lambda container: container["name"],
)
pod_specs = st.fixed_dictionaries(
    {"containers": containers, "x-unknown": st.just({"kept": [1, None]})},
    optional={
        "initContainers": containers.map(lambda found: [{**one, "name": f"i{one['name']}"} for one in found]),
        "schedulingGates": gates,
        "affinity": affinity,
        "nodeSelector": maps("disk", "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"),
        "nodeName": st.sampled_from(["", "n1"]),
    },
)
metadata = st.fixed_dictionaries(
    {},
    optional={"annotations": maps(*OUR_KEYS, *REQUESTS, *FOREIGN), "labels": maps(*OUR_KEYS, *FOREIGN)},
)
templates = st.fixed_dictionaries({"spec": pod_specs}, optional={"metadata": st.none() | metadata})
CONTROLLED = [{"apiVersion": "batch/v1", "kind": "Job", "name": "train-7", "uid": UID, "controller": True}]
owners = st.sampled_from(
    [
        None,
        [],
        [{"apiVersion": "batch/v1", "kind": "Job", "name": "train-7", "uid": "other", "controller": True}],
        [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}],
        [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "c", "controller": True}],
    ]
)


@st.composite
def pods(draw: st.DrawFn) -> Json:
    meta = draw(metadata)
    member = draw(st.booleans())
    meta["ownerReferences"] = draw(st.just(CONTROLLED) if member else owners)
    if member or draw(st.booleans()):
        labels = meta.get("labels") or {}
        meta["labels"] = {**labels, names.COMPLETION_INDEX: draw(st.sampled_from(["0", "1", "9", "x"]))}
    spec = draw(pod_specs)
    if member and draw(st.booleans()):  # as the Job controller makes them
        spec = {key: value for key, value in spec.items() if key in ("containers", "x-unknown", "schedulingGates")}
        spec["containers"] = []
    meta = draw(st.sampled_from([meta, pruned(meta)]))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


@st.composite
def jobs(draw: st.DrawFn) -> Json:
    meta = draw(metadata)
    if draw(st.booleans()):
        meta["annotations"] = {**(meta.get("annotations") or {}), names.REQUIRE: "rack"}
    meta |= {"name": "train-7", "uid": UID, "ownerReferences": draw(owners)}
    spec: Json = {"template": draw(templates), "parallelism": 4, "completions": 4, "completionMode": "Indexed"}
    if draw(st.booleans()):
        spec["suspend"] = draw(st.sampled_from([None, True, False]))
    status = draw(st.sampled_from([{}, None, {"startTime": "2026-11-21T08:00:00Z"}]))
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec, "status": status}


views: st.SearchStrategy[Callable[[], FakeView]] = st.sampled_from(
    [
        FakeView,
        lambda: FakeView(reported=DIMENSIONS),
        lambda: gang_view(JOB),
        lambda: gang_view(JOB, HOSTS),
        lambda: FakeView(workloads=[workload(JOB)], placements=[placed(workload(JOB), HOSTS, revision=2)]),
    ]
)


def foreign(obj: Any) -> Any:
    """The object without what is ours to write, and without maps that are empty."""
    if isinstance(obj, dict):
        ours = {*OUR_KEYS, *DEVICES, names.POD_GROUP_NAME, names.POD_GROUP_MIN, "nodeSelector", "affinity", "suspend"}
        kept = {key: foreign(value) for key, value in obj.items() if key not in ours}
        return {key: value for key, value in kept.items() if value not in (None, {}, [])}
    if isinstance(obj, list):
        return [foreign(one) for one in obj if one != {"name": names.GATE}]
    return obj


def in_pod_group(job: Json) -> bool:
    """True for a Job that, or whose template, carries the label of a pod group."""
    places = (job.get("metadata"), job["spec"]["template"].get("metadata"))
    return any(names.POD_GROUP_NAME in ((place or {}).get("labels") or {}) for place in places)


def apart_from_devices(template: Any) -> Any:
    """The template without requests for devices: who asks for the same as before gets those of before."""
    if isinstance(template, dict):
        notes = names.NOTE_ANNOTATIONS
        kept = {key: apart_from_devices(value) for key, value in template.items() if key not in (*DEVICES, *notes)}
        return {key: value for key, value in kept.items() if value not in (None, {}, [])}
    return [apart_from_devices(one) for one in template] if isinstance(template, list) else template


@settings(max_examples=150, deadline=None)
@given(pods(), views)
def test_a_pods_patch_applies_and_the_second_pass_gives_none(pod: Json, view: Callable[[], FakeView]) -> None:
    once = apply(pod, mutate(review(pod), view(), 0.0))
    assert mutate(review(once), view(), 0.0).patch == ()
    assert foreign(once) == foreign(pod)


@settings(max_examples=150, deadline=None)
@given(pods(), views, st.sampled_from(["grow", "label", "affinity", "gate"]))
def test_a_hostile_mutator_between_two_passes_never_frees_a_pod_that_does_not_fit(
    pod: Json, view: Callable[[], FakeView], meddling: str
) -> None:
    once = apply(pod, mutate(review(pod), view(), 0.0))
    match meddling:
        case "grow":
            once["spec"]["containers"].append({"name": "huge", "resources": {"requests": {"cpu": "500"}}})
        case "label":
            once["metadata"].pop("labels", None)
        case "affinity":
            once["spec"]["affinity"] = None
        case "gate":
            once["spec"]["schedulingGates"] = [{"name": "example.com/late"}]
    twice = apply(once, mutate(review(once), view(), 0.0))
    assert mutate(review(twice), view(), 0.0).patch == ()
    ours = names.RANK in (once["metadata"].get("annotations") or {}).keys() - (pod["metadata"].get("annotations") or {})
    if meddling == "grow" and ours and names.RANK in twice["metadata"]["annotations"]:
        assert twice["spec"].get("nodeName")


ON_EVERY_HOST = {"zone": "a", "disk": "ssd"}
RULES = {**ON_EVERY_HOST, "cloud.provider.com/topology-block": "b0", "cloud.provider.com/topology-rack": "b0-r0"}
selectors = st.sets(st.sampled_from(sorted(RULES))).map(lambda keys: {key: RULES[key] for key in keys})


def rules_of(pod: Json) -> tuple[object, object]:
    shape = decoded_pod(pod, default_policy()).spec.shape
    return shape.node_selector, shape.affinity


@settings(max_examples=200, deadline=None)
@given(selectors, selectors, affinity)
def test_a_pod_that_grows_after_its_first_pass_is_held_with_its_own_rules(
    of_template: Json, added: Json, terms: Json | None
) -> None:
    """Whether it was pinned in between or not, and whoever set them: its user, or admission before us."""
    job = live(rack_job(pod_spec={"nodeSelector": of_template}))
    nodes = [replace(one, labels={**one.labels, **ON_EVERY_HOST}) for one in NODES]
    view = gang_view(job, HOSTS, nodes=nodes)
    pod = raw_pod(job, nodeSelector={**of_template, **added}, affinity=terms)
    grown = apply(pod, mutate(review(pod), view, 0.0))
    grown["spec"]["containers"].append({"name": "huge", "resources": {"requests": {"cpu": "500"}}})
    held = apply(grown, mutate(review(grown), view, 0.0))
    assert {"name": names.GATE} in held["spec"]["schedulingGates"]
    assert rules_of(held) == rules_of(pod)
    assert mutate(review(held), view, 0.0).patch == ()


@settings(max_examples=150, deadline=None)
@given(jobs(), views)
def test_a_new_jobs_patch_applies_and_the_second_pass_gives_none(job: Json, view: Callable[[], FakeView]) -> None:
    once = apply(job, mutate(review(job), view(), 0.0))
    assert mutate(review(once), view(), 0.0).patch == ()
    if names.UNCONSTRAINED not in (job["metadata"].get("annotations") or {}) and in_pod_group(job):
        (once["metadata"].get("annotations") or {}).pop(names.UNCONSTRAINED, None)  # asked by the label
    assert foreign(once) == foreign(job)


def restored(new: Json, old: Json) -> Json:
    """The new template, with our marks as the old one has them where nothing else differs."""
    template = new["spec"]["template"]
    if without_marks(template) != without_marks(old["spec"]["template"]):
        return dict(template)
    edits = Edits(new)
    restore(edits, ("spec", "template"), old["spec"]["template"])
    return dict(edits.document["spec"]["template"])


@settings(max_examples=150, deadline=None)
@given(jobs(), jobs(), views)
def test_an_updated_jobs_patch_applies_and_the_second_pass_gives_none(
    old: Json, new: Json, view: Callable[[], FakeView]
) -> None:
    once = apply(new, mutate(review(new, old=old), view(), 0.0))
    again = mutate(review(once, old=old), view(), 0.0).patch
    assert again == () or not validate(review(once, old=old), view(), 0.0).allowed  # what is refused is never stored
    if not (old["spec"].get("suspend") and not (old["status"] or {}).get("startTime")):
        stands = (apart_from_devices(new["spec"]["template"]), apart_from_devices(restored(new, old)))
        assert apart_from_devices(once["spec"]["template"]) in stands


leaves = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x", "~/"])
documents = st.dictionaries(
    st.sampled_from(["a", "b", "~1", "x/y"]),
    st.recursive(
        leaves,
        lambda inner: st.dictionaries(st.sampled_from(["a", "b", "~1", "x/y"]), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=3,
)
keys = st.sampled_from(["a", "b", "~1", "x/y"])
steps = st.lists(
    st.tuples(st.sampled_from(["put", "drop", "append", "drop_items"]), st.lists(keys, min_size=1, max_size=3), leaves),
    max_size=6,
)


def through_maps(edits: Edits, path: Path) -> bool:
    """True when the path leads through objects (or nothing) only, as it does where an object was projected."""
    return all(isinstance(edits.get(*path[:depth]), dict | None) for depth in range(1, len(path)))


@settings(max_examples=200, deadline=None)
@given(documents, steps)
def test_edits_and_the_patch_that_they_make_agree(document: Json, chosen: list[tuple[str, list[str], Any]]) -> None:
    before = copy.deepcopy(document)
    edits = Edits(document)
    for what, path, value in chosen:
        where: Path = tuple(path)
        if not through_maps(edits, where):
            continue
        match what:
            case "put" if value is not None:
                edits.put(where, value)
            case "drop":
                edits.drop(where)
            case "append" if isinstance(edits.get(*where), list | None):
                edits.append(where, value)
            case "drop_items":
                edits.drop_items(where, lambda item, value=value: item == value)
    assert document == before
    assert jsonpatch.apply_patch(before, [dict(one) for one in edits.operations]) == edits.document
