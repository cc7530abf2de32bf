"""GPU requests in real reviews: what `/mutate` makes of them and what `/validate` says."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest

from engine.api import names
from engine.policy.model import Policy, parse_policy
from engine.resources.names import CORE, GPU, KOORDINATOR, MEMORY, NVIDIA, RATIO, Reported
from tests.support.admission import FakeView, Json, apply, gang_view, live, rack_job, raw_job, raw_pod, review
from tests.support.golden import golden
from webhook.admission.review import Response, decode_review
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

PLAIN = Reported(frozenset({"cpu", NVIDIA}))
DIMENSIONS = Reported(frozenset({"cpu", *KOORDINATOR}))
MIXED = Reported(PLAIN.names | DIMENSIONS.names)
BYTES_ONLY = Reported(frozenset({"cpu", CORE, MEMORY}), memory=80 * 2**30)
HALF = {CORE: "50", RATIO: "50"}
WRITER = "system:serviceaccount:koordinator-system:koord-scheduler"


def policy(**gpu: Any) -> Policy:
    return parse_policy(json.dumps({"gpu": gpu}))


def spec(*resources: Mapping[str, Any], kind: str = "containers") -> Json:
    containers = [{"name": f"c{number}", "image": "x", "resources": dict(one)} for number, one in enumerate(resources)]
    return {"containers": [{"name": "main", "image": "x"}], kind: containers}


def asked(document: Json) -> list[Json]:
    """The resources of every container of a pod or of a Job's template."""
    pod = document["spec"].get("template", document)["spec"]
    return [one.get("resources", {}) for one in [*pod["containers"], *pod.get("initContainers", [])]]


def notes(document: Json) -> Json:
    """Our annotations about GPU requests, parsed."""
    metadata = document["spec"].get("template", document)["metadata"]
    annotations = metadata.get("annotations") or {}
    return {
        key: json.loads(annotations[key]) for key in (names.ORIGINAL_REQUESTS, names.GPU_REQUEST) if key in annotations
    }


def created(document: Json, view: FakeView) -> Json:
    return apply(document, mutate(review(document), view, 0.0))


def updated(old: Json, new: Json, view: FakeView) -> Json:
    return apply(new, mutate(review(new, old=old), view, 0.0))


def said(document: Json, view: FakeView | None = None, **more: Any) -> Response:
    return validate(review(document, **more), view or FakeView(reported=DIMENSIONS), 0.0)


def fields(response: Response) -> dict[str, str]:
    return {cause.field: cause.message for cause in response.causes}


# Templates


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
@pytest.mark.parametrize("job", [rack_job, raw_job], ids=["asks for topology", "asks for none"])
def test_percent_of_a_gpu_is_written_in_dimensions(job: Any, kind: str) -> None:
    """In every container of a template, whoever's it is; what the user wrote is noted."""
    view = FakeView(reported=DIMENSIONS)
    stored = created(job(pod_spec=spec({"requests": {GPU: "50", "cpu": "1"}}, kind=kind)), view)
    [found] = [one for one in asked(stored) if one]
    assert found == {"requests": {**HALF, "cpu": "1"}, "limits": HALF}
    assert notes(stored) == {names.ORIGINAL_REQUESTS: {"c0": {"requests": {GPU: "50"}, "limits": {}}}}
    assert said(stored, view).allowed


@pytest.mark.parametrize(
    ("reported", "becomes"),
    [(PLAIN, {NVIDIA: "2"}), (MIXED, {NVIDIA: "2"}), (DIMENSIONS, {CORE: "200", RATIO: "200"})],
    ids=["plain", "mixed", "dimensions"],
)
def test_whole_gpus_of_a_gang_are_called_as_nodes_call_them(reported: Reported, becomes: Json) -> None:
    """They give way to dimensions only where no node reports them; else their meaning is noted."""
    stored = created(rack_job(pod_spec=spec({"limits": {NVIDIA: "2"}})), FakeView(reported=reported))
    meaning = {CORE: "200", RATIO: "200"}
    assert asked(stored) == [{"limits": becomes} | ({"requests": becomes} if becomes == meaning else {})]
    told = notes(stored).get(names.GPU_REQUEST)
    assert told == (None if becomes == meaning else {"c0": {"requests": meaning, "limits": meaning}})


def test_whole_gpus_of_others_are_left_alone() -> None:
    """A Job that asks for no topology keeps its `nvidia.com/gpu`, whatever nodes report and the scope is."""
    job = raw_job(pod_spec=spec({"limits": {NVIDIA: "2"}}))
    assert mutate(review(job), FakeView(reported=DIMENSIONS), 0.0).patch == ()


@pytest.mark.parametrize("mode", ["annotate", "off"])
def test_modes_that_leave_names_alone(mode: str) -> None:
    """`annotate` notes what is meant, `off` not even that."""
    view = FakeView(reported=DIMENSIONS, policy=policy(translation=mode))
    stored = created(rack_job(pod_spec=spec({"limits": {GPU: "50"}})), view)
    assert asked(stored)[0]["limits"] == {GPU: "50"}
    assert notes(stored).keys() == ({names.GPU_REQUEST} if mode == "annotate" else set())


@pytest.mark.parametrize("mode", ["auto", "rewrite", "annotate"])
@pytest.mark.parametrize("reported", [PLAIN, MIXED, DIMENSIONS], ids=["plain", "mixed", "dimensions"])
@pytest.mark.parametrize("name", [NVIDIA, GPU])
def test_a_second_pass_and_the_pods_change_nothing(mode: str, reported: Reported, name: str) -> None:
    """Called again for its own output, and for a pod that is made of the template, the webhook has nothing to do."""
    view = FakeView(reported=reported, policy=policy(translation=mode))
    stored = created(rack_job(pod_spec=spec({"requests": {name: "1"}}, {"limits": {name: "1"}})), view)
    assert mutate(review(stored), view, 0.0).patch == ()
    template = stored["spec"]["template"]
    pod = raw_pod(live(stored), annotations=template["metadata"]["annotations"], **copy.deepcopy(template["spec"]))
    held = created(pod, gang_view(live(stored), reported=reported, policy=policy(translation=mode)))
    assert asked(held) == asked(stored)
    assert notes(held) == notes(stored)


def test_the_planned_shape_is_that_of_the_translated_template() -> None:
    """A pod that a template makes after its translation is pinned; one that asks for more keeps the gate."""
    view = FakeView(reported=DIMENSIONS)
    job = live(created(rack_job(pod_spec=spec({"limits": {GPU: "50"}})), view))
    hosts = ["b0-r0-h0", "b0-r0-h1", "b0-r0-h2", "b0-r0-h3"]
    template = job["spec"]["template"]["spec"]
    gang = gang_view(job, hosts, reported=DIMENSIONS)
    pod = raw_pod(job, containers=copy.deepcopy(template["containers"]))
    assert "schedulingGates" not in created(pod, gang)["spec"] or created(pod, gang)["spec"]["schedulingGates"] == []
    pod["spec"]["containers"][0]["resources"]["requests"][CORE] = "60"
    assert created(pod, gang)["spec"]["schedulingGates"] == [{"name": names.GATE}]


def test_others_schedulers_and_kueue_keep_their_templates() -> None:
    """Where we stand aside nothing is translated and nothing is checked."""
    for more in (
        {"pod_spec": {**spec({"limits": {GPU: "150"}}), "schedulerName": "koord-scheduler"}},
        {"pod_spec": spec({"limits": {GPU: "150"}}), "labels": {names.KUEUE_QUEUE: "q"}},
        {"pod_spec": {**spec({"limits": {GPU: "150"}}), "nodeName": "x"}},
    ):
        job = raw_job(**more)
        view = FakeView(reported=DIMENSIONS)
        assert mutate(review(job), view, 0.0).patch == ()
        assert said(job, view).allowed
    exempt = FakeView(reported=DIMENSIONS, policy=parse_policy("namespaces: {exempt: [ml]}"))
    assert said(raw_job(pod_spec=spec({"limits": {GPU: "150"}})), exempt).allowed


# Templates that are updated


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("job", [rack_job, raw_job], ids=["asks for topology", "asks for none"])
def test_a_file_that_is_applied_again_gets_what_it_got(job: Any, started: bool) -> None:
    """The merge of what the user wrote into what we made of it is what stood there, on a live Job too."""
    view = FakeView(reported=DIMENSIONS)
    old = live(created(job(pod_spec=spec({"limits": {GPU: "50"}})), view), started=started)
    old["spec"]["suspend"] = not started
    new = copy.deepcopy(old)
    asked(new)[0]["limits"][GPU] = "50"
    assert updated(old, new, view) == old


def test_what_nodes_report_later_changes_no_template_that_stands() -> None:
    """Older servers refuse changed resources even of a suspended Job: only who changes them gets others."""
    old = live(created(rack_job(pod_spec=spec({"limits": {NVIDIA: "2"}})), FakeView(reported=PLAIN)))
    later = FakeView(reported=DIMENSIONS)
    new = copy.deepcopy(old)
    new["spec"]["parallelism"] = 2
    assert asked(updated(old, new, later)) == asked(old)
    asked(new)[0]["limits"][NVIDIA] = "4"
    assert asked(updated(old, new, later)) == [{"limits": (four := {CORE: "400", RATIO: "400"}), "requests": four}]


def test_a_suspended_job_that_begins_to_ask_is_translated_like_a_new_one() -> None:
    """Its names would fit nowhere; a second call and a second apply of the file change nothing."""
    view = FakeView(reported=DIMENSIONS)
    file = raw_job(suspend=True)
    stored = live(created(file, view))
    file["metadata"]["annotations"] = {names.REQUIRE: "rack"}
    found = updated(stored, live(file), view)
    assert asked(found) == [{"limits": {CORE: "800", RATIO: "800"}, "requests": {CORE: "800", RATIO: "800"}}]
    assert notes(found) == notes(created(file, view))
    assert mutate(review(found, old=stored), view, 0.0).patch == ()
    assert asked(updated(found, live(file), view)) == asked(found)


def test_a_suspended_job_that_begins_to_ask_keeps_resources_that_are_fixed() -> None:
    """Before Kubernetes 1.36 the API server would refuse the update, whatever it is about."""
    view = FakeView(reported=DIMENSIONS, resources_fixed=True)
    stored = live(created(raw_job(suspend=True), view))
    asking = live(raw_job({names.REQUIRE: "rack"}, suspend=True))
    assert asked(updated(stored, asking, view)) == asked(stored)


@pytest.mark.parametrize("reported", [PLAIN, DIMENSIONS], ids=["completed", "renamed"])
def test_a_file_without_the_request_rolls_nothing_out(reported: Reported) -> None:
    """`kubectl replace` with the user's own file, where the request came from a default of the namespace."""
    default = [{"namespaces": ["ml"], "annotations": {names.PREFER: "auto"}}]
    rules = parse_policy(json.dumps({"namespaces": {"defaults": default}}))
    view = FakeView(policy=rules, reported=reported)
    template = {"metadata": {}, "spec": spec({"limits": {NVIDIA: "4"}})}
    metadata = {"name": "s", "namespace": "ml", "uid": "u-1"}
    file = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": {"template": template}}
    stored = created(file, view)
    assert names.PREFER in stored["metadata"]["annotations"]
    assert updated(stored, file, view)["spec"] == stored["spec"]
    other = copy.deepcopy(file)
    other["spec"]["template"]["spec"] = spec({"limits": {NVIDIA: "2"}})
    assert asked(updated(stored, other, view)) == [{"limits": {NVIDIA: "2"}}]


def test_a_file_that_asks_no_more_keeps_the_stored_names_however_often_it_comes() -> None:
    """Also when nothing but the note of the template tells that they were replaced."""
    view = FakeView(reported=DIMENSIONS)
    template = {"metadata": {}, "spec": spec({"limits": {NVIDIA: "4"}})}
    metadata = {"name": "s", "namespace": "ml", "uid": "u-1"}
    file = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": {"template": template}}
    asking = {**file, "metadata": {**metadata, "annotations": {names.REQUIRE: "rack"}}}
    stored = first = created(asking, view)
    file = copy.deepcopy(file)
    file["spec"]["template"]["spec"]["containers"][0]["image"] = "y"
    for _ in range(3):
        stored = updated(stored, file, view)
        assert asked(stored) == asked(first)


def test_a_changed_amount_is_translated_while_the_job_is_suspended() -> None:
    """The user raises his share in the file: ours of before goes, the new one is written in dimensions."""
    view = FakeView(reported=DIMENSIONS)
    old = live(created(raw_job(pod_spec=spec({"limits": {GPU: "50"}}), suspend=True), view))
    new = copy.deepcopy(old)
    asked(new)[0]["limits"][GPU] = "100"
    stored = updated(old, new, view)
    assert asked(stored) == [{"limits": (whole := {CORE: "100", RATIO: "100"}), "requests": whole}]
    assert notes(stored)[names.ORIGINAL_REQUESTS]["c0"]["limits"] == {GPU: "100"}


def test_a_changed_amount_of_a_live_job_is_the_api_servers_to_refuse() -> None:
    """We touch nothing of it: the server's own words are about what the user sent."""
    view = FakeView(reported=DIMENSIONS)
    old = live(created(raw_job(pod_spec=spec({"limits": {GPU: "50"}})), view), started=True)
    new = copy.deepcopy(old)
    asked(new)[0]["limits"][GPU] = "100"
    assert updated(old, new, view) == new


# Pods


def test_a_pod_of_nobody_is_translated() -> None:
    """Its own requests, where they are Koordinator's; a controller of another kind makes no difference."""
    view = FakeView(reported=DIMENSIONS)
    pod = raw_pod(gates=(), **spec({"requests": {GPU: "50"}}))
    stored = created(pod, view)
    assert asked(stored) == [{"requests": HALF, "limits": HALF}]
    assert mutate(review(stored), view, 0.0).patch == ()
    assert said(stored, view).allowed


def test_unmanaged_whole_gpus_are_untouched_unless_the_scope_says_so() -> None:
    """With `scope: all` theirs are translated like anybody's."""
    pod = raw_pod(gates=(), **spec({"limits": {NVIDIA: "1"}}))
    assert mutate(review(pod), FakeView(reported=DIMENSIONS), 0.0).patch == ()
    stored = created(pod, FakeView(reported=DIMENSIONS, policy=policy(scope="all")))
    assert asked(stored) == [{"limits": (one := {CORE: "100", RATIO: "100"}), "requests": one}]


@pytest.mark.parametrize(
    "more", [{"nodeName": "x"}, {"schedulerName": "koord-scheduler"}], ids=["has its node", "other scheduler"]
)
def test_pods_that_are_none_of_ours_are_untouched(more: Json) -> None:
    """Neither translated nor checked."""
    pod = raw_pod(gates=(), **spec({"limits": {GPU: "150"}}), **more)
    view = FakeView(reported=DIMENSIONS)
    assert mutate(review(pod), view, 0.0).patch == ()
    assert said(pod, view).allowed


@pytest.mark.parametrize(
    ("kind", "version", "translated"),
    [("DaemonSet", "apps/v1", False), ("ReplicaSet", "apps/v1", True), ("ReplicationController", "v1", True)],
)
def test_pods_of_kinds_that_are_not_placed_are_translated_but_for_those_of_daemonsets(
    kind: str, version: str, translated: bool
) -> None:
    """These have their nodes: docs/tasks/researcher/gpus.md."""
    pod = raw_pod(gates=(), **spec({"requests": {GPU: "50"}, "limits": {GPU: "50"}}))
    owner = {"apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    stored = created(pod, FakeView(reported=DIMENSIONS))
    assert asked(stored) == [{"requests": HALF, "limits": HALF} if translated else asked(pod)[0]]


def test_a_pod_that_goes_on_to_more_keeps_its_original() -> None:
    """Another webhook adds a container after us: called again, we translate it and keep the first note."""
    view = FakeView(reported=DIMENSIONS)
    once = created(raw_pod(gates=(), **spec({"limits": {GPU: "50"}})), view)
    once["spec"]["containers"].append({"name": "late", "resources": {"limits": {GPU: "30"}}})
    again = created(once, view)
    assert asked(again)[1]["limits"] == {CORE: "30", RATIO: "30"}
    assert notes(again)[names.ORIGINAL_REQUESTS]["c0"]["limits"] == {GPU: "50"}
    assert notes(again)[names.ORIGINAL_REQUESTS]["late"]["limits"] == {GPU: "30"}


# What is refused

WRONG = [
    {"limits": {GPU: "150"}},
    {"requests": {CORE: "50"}},
    {"limits": {GPU: "50", NVIDIA: "1"}},
]


@pytest.mark.parametrize("job", [rack_job, raw_job], ids=["asks for topology", "asks for none"])
def test_every_error_of_a_template_is_told_at_once(job: Any) -> None:
    """At the user's own path, with our reason, whether or not the Job asks for a topology."""
    view = FakeView(reported=DIMENSIONS)
    stored = created(job(pod_spec=spec(*WRONG)), view)
    answer = said(stored, view)
    assert answer.code == 422
    at = "spec.template.spec.containers"
    assert list(fields(answer)) == [
        f"{at}[0].resources.limits[{GPU}]",
        f"{at}[1].resources.requests[{CORE}]",  # where the user wrote it; we completed the other side
        f"{at}[2].resources.limits[{NVIDIA}]",
    ]
    assert {error.reason for error in answer.errors} == {"GPURequestInvalid"}


def test_a_wrong_request_is_completed_once() -> None:
    """So that the user hears our words before the API server's; called again there is nothing left to do."""
    view = FakeView(reported=DIMENSIONS)
    once = created(raw_job(pod_spec=spec({"requests": {GPU: "150"}})), view)
    assert asked(once) == [{"requests": {GPU: "150"}, "limits": {GPU: "150"}}]
    assert mutate(review(once), view, 0.0).patch == ()
    assert fields(said(once, view)).keys() == {f"spec.template.spec.containers[0].resources.requests[{GPU}]"}


def test_errors_of_a_request_for_topology_and_for_devices_come_together() -> None:
    """One round trip for both."""
    job = raw_job({names.REQUIRE: "rak"}, pod_spec=spec({"limits": {GPU: "150"}}))
    assert {error.reason for error in said(job).errors} == {"UnknownLevel", "GPURequestInvalid"}


def test_a_wrong_pod_is_refused() -> None:
    """A pod of its own: all errors, at its own path."""
    answer = said(raw_pod(gates=(), **spec(*WRONG)))
    assert answer.code == 422
    assert [path.partition(".resources")[0] for path in fields(answer)] == [f"spec.containers[{n}]" for n in range(3)]


def test_a_fault_that_stood_there_blocks_no_other_change() -> None:
    """A Job that came by while nobody checked may be scaled and labelled."""
    old = live(raw_job(pod_spec=spec({"limits": {GPU: "150"}})))
    new = copy.deepcopy(old)
    new["spec"]["parallelism"] = 1
    assert said(new, old=old).allowed
    asked(new)[0]["limits"][GPU] = "250"
    assert said(new, old=old).code == 422


def test_a_policy_that_observes_warns_of_what_it_would_refuse() -> None:
    """Nothing is refused, and the warning names the path."""
    view = FakeView(reported=DIMENSIONS, policy=parse_policy("mode: observe"))
    answer = said(raw_job(pod_spec=spec({"limits": {GPU: "150"}})), view)
    assert answer.allowed
    assert GPU in answer.warnings[1]


def test_names_that_no_node_reports_are_warned_of() -> None:
    """A Job that nothing else would tell about: at submit time."""
    job = raw_job(pod_spec=spec({"limits": {CORE: "50", RATIO: "50"}}))
    assert any("no node reports" in text for text in said(job, FakeView(reported=PLAIN)).warnings)
    assert said(job, FakeView(reported=DIMENSIONS)).warnings == ()


@pytest.mark.parametrize("value", ["0.5", "-1", "500m", "1e999", "", "\x00", "9" * 40, True, [], {}, 1.5, "1 "])
def test_odd_amounts_are_refused_with_words(value: object) -> None:
    """Wrong types are a malformed object; everything else is its user's fault, at its path."""
    job = raw_job(pod_spec=spec({"limits": {GPU: value}}))
    view = FakeView(reported=DIMENSIONS)
    try:
        stored = created(job, view)
        answer = said(stored, view)
    except Exception as fault:
        assert type(fault).__name__ == "BadReview"
        assert not isinstance(value, str | float)
    else:
        assert answer.code == 422
        assert all(GPU in field for field in fields(answer))


def test_the_texts_of_refusals() -> None:
    """As kubectl prints them, for a Job and a pod that are wrong in several ways, and for devices of one's choice."""
    wrong = [*WRONG, {"limits": {GPU: "0.5"}}, {"limits": {GPU: "50"}, "requests": {GPU: "60"}}]
    documents = {
        "a Job": raw_job(pod_spec=spec(*wrong)),
        "a Job that asks for topology": raw_job({names.REQUIRE: "rak"}, pod_spec=spec({"requests": {GPU: "150"}})),
        "a pod": raw_pod(gates=(), **spec({"limits": {CORE: "250", RATIO: "250"}}, kind="initContainers")),
        "a pod with devices": raw_pod(gates=(), annotations=DEVICES),
    }
    view = FakeView(reported=DIMENSIONS)
    told = {}
    for title, document in documents.items():
        answer = said(created(document, view), view)
        told[title] = "\n".join(f"* {cause.field}: {cause.message}" for cause in answer.causes)
    golden("refusals-of-devices", told)


def test_a_number_that_nobody_can_read_is_its_users_fault() -> None:
    """Beside a wrong request for GPUs: an answer about the number, no fault of ours."""
    body = json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u",
                "kind": {"group": "batch", "version": "v1", "kind": "Job"},
                "namespace": "ml",
                "operation": "CREATE",
                "object": raw_job(pod_spec=spec({"limits": {GPU: "150"}}), parallelism=4),
            },
        }
    ).replace('"parallelism": 4', '"parallelism": ' + "9" * 100_000)
    answer = validate(decode_review(body.encode()), FakeView(reported=DIMENSIONS), 0.0)
    assert fields(answer).keys() == {"spec.parallelism"}


# The device annotation


DEVICES = {names.DEVICE_ALLOCATED: '{"gpu":[{"minor":0}]}'}


def test_nobody_creates_a_pod_with_devices_of_his_choice() -> None:
    """Refused at its own key, with what to do; also where the pod names its node."""
    at = f"metadata.annotations[{names.DEVICE_ALLOCATED}]"
    for more in ({}, {"nodeName": "x"}, {"schedulerName": "koord-scheduler"}):
        answer = said(raw_pod(gates=(), annotations=DEVICES, **more))
        assert answer.code == 422
        assert fields(answer).keys() == {at}
    assert [error.reason for error in answer.errors] == ["ReservedName"]


@pytest.mark.parametrize(
    "text",
    [
        "mode: off",
        "mode: observe",
        "namespaces: {exempt: [ml]}",
        "namespaces: {modes: [{namespaces: [ml], mode: off}]}",
    ],
)
@pytest.mark.parametrize("marked", [False, True])
def test_no_mode_lets_a_user_choose_devices(text: str, marked: bool) -> None:
    """Also of a pod that looks like one of a gang: nobody has removed there what it was created with."""
    marks: dict[str, Any] = {"labels": {names.MANAGED: "true"}, "owner": live(rack_job())} if marked else {"gates": ()}
    view = FakeView(policy=parse_policy(text))
    answer = said(raw_pod(annotations=DEVICES, **marks), view)
    assert (answer.code, [error.reason for error in answer.errors]) == (422, ["ReservedName"])
    assert said(raw_pod(annotations=DEVICES, **marks), view, groups=("system:masters",)).allowed
    assert said(raw_pod(**marks), view).allowed
    mirror = raw_pod(annotations={**DEVICES, "kubernetes.io/config.mirror": "x"}, nodeName="x", **marks)
    assert said(mirror, view).allowed


def test_its_writers_and_the_admins_may() -> None:
    """Those that the policy names, exactly."""
    view = FakeView(policy=policy(deviceAnnotationWriters=[WRITER]))
    pod = raw_pod(gates=(), annotations=DEVICES)
    assert said(pod, view, user=WRITER).allowed
    assert said(pod, view, groups=("system:masters",)).allowed
    assert not said(pod, view, user=f"{WRITER}-x").allowed
    assert not said(pod, FakeView(), user=WRITER).allowed


def test_a_template_gives_no_devices_either() -> None:
    """Every pod of it would have the same."""
    job = raw_job(template=DEVICES)
    answer = said(job)
    assert fields(answer).keys() == {f"spec.template.metadata.annotations[{names.DEVICE_ALLOCATED}]"}
    old = live(job)
    new = copy.deepcopy(old)
    new["spec"]["parallelism"] = 1
    assert said(new, old=old).allowed
    new["spec"]["template"]["metadata"]["annotations"] = {names.DEVICE_ALLOCATED: "{}"}
    assert not said(new, old=old).allowed


@pytest.mark.parametrize("reported", [MIXED, BYTES_ONLY], ids=["percent", "bytes alone"])
@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({GPU: "1"}, "asks for 1% of one GPU; for 1 GPU write 100"),
        ({GPU: "8"}, "asks for 8% of one GPU; for 8 GPUs write 800"),
        ({RATIO: "4"}, "asks for 4% of one GPU; for 4 GPUs write 400"),
        ({MEMORY: "40"}, "asks for 40 bytes of GPU memory; for GiB write 40Gi"),
        ({MEMORY: "80000m"}, "asks for 80 bytes of GPU memory; for GiB write 80Gi"),
        ({GPU: "9"}, None),
        ({CORE: "50", RATIO: "5"}, None),  # somebody has thought about both
        ({GPU: "800"}, None),
        ({MEMORY: "1Mi"}, None),
        ({NVIDIA: "8"}, None),
    ],
)
def test_an_amount_in_the_wrong_unit_is_told(limits: Mapping[str, str], said: str | None, reported: Reported) -> None:
    """`koordinator.sh/gpu` counts percent and `gpu-memory` bytes; on a workload and on a pod, also once translated."""
    annotations = {names.REQUIRE: "rack"}
    view = FakeView(reported=reported)
    containers = [{"name": "main", "image": "x", "resources": {"limits": dict(limits)}}]
    for one in (
        raw_job(annotations, pod_spec={"containers": containers}),
        raw_pod(annotations=annotations, owner=None, gates=(), containers=containers),
    ):
        stored = apply(one, mutate(review(one), view, 0.0))
        told = [text for text in validate(review(stored), view, 0.0).warnings if 'container "main"' in text]
        assert told == ([f'topogate: container "main" {said}'] if said is not None else [])
