"""What the API server sends and what the code does agree: nothing that is only waved through waits for the service, and
whatever the code would change, refuse or tell is sent. On a real API server with the manifests; the endpoint answers
with the service's own handlers, under the default policy, with empty caches.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import jsonpatch
import pytest

from engine.api import names
from engine.decoding import pods as decoded_pods
from local.client import Client, ClientError
from local.controlplane import ControlPlane
from tests.support.admission import FakeView, review
from tests.support.eventually import eventually
from tests.support.installed import install
from tests.support.kinds import TEMPLATE, merged
from tests.support.plain_objects import BY_NAME, NAMESPACE, at, collection, definitions, known_templates, plain
from tests.support.recorder import Recorder
from webhook.admission.review import Response, decode_review, encode
from webhook.handlers.mutate import mutate
from webhook.handlers.mutate_and_check import mutate_and_check
from webhook.handlers.validate import validate

pytestmark = pytest.mark.core

Json = dict[str, Any]
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
KUEUE = "kueue.x-k8s.io/podset-required-topology"
ADMIN = {"user": "admin", "groups": ("system:masters", "system:authenticated")}

EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}


def gpus(amount: str) -> list[Json]:
    return [{"name": "main", "image": "none", "resources": {"limits": {"koordinator.sh/gpu": amount}}}]


# What somebody may write into the metadata of an object or of a template: annotations, labels.
REQUESTS: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "nothing": ({}, {}),
    "a request": ({names.REQUIRE: "rack"}, {}),
    "a request for a level that is not there": ({names.REQUIRE: "rak"}, {}),
    "a request taken back": ({names.UNCONSTRAINED: "false"}, {}),
    "an alias taken back": ({"kueue.x-k8s.io/podset-unconstrained-topology": "false"}, {}),
    "a request taken back that is misspelt": ({names.UNCONSTRAINED: "False"}, {}),
    "a request taken back beside a request": ({names.UNCONSTRAINED: "false", names.REQUIRE: "rack"}, {}),
    "a misspelt request": ({"topogate.dev/requiretopology": "rack"}, {}),
    "a request as a label": ({}, {names.REQUIRE: "rack"}),
    "a gang of pods": ({names.GANG_NAME: "g", names.GANG_SIZE: "2"}, {}),
    "a gang without its size": ({names.GANG_NAME: "g"}, {}),
    "a size without a gang": ({names.REQUIRE: "rack", names.GANG_SIZE: "2"}, {}),
    "slices": ({names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "1"}, {}),
    "an alias": ({KUEUE: "rack"}, {}),
    "an alias of KAI": ({"kai.scheduler/topology-required-placement": "rack"}, {}),
    "a pod group": ({}, {names.POD_GROUP_NAME: "g"}),
    "a pod group with its minimum": ({}, {names.POD_GROUP_NAME: "g", names.POD_GROUP_MIN: "2"}),
    "a minimum without a pod group": ({}, {names.POD_GROUP_MIN: "2"}),
    "a pod group whose minimum is no number": ({}, {names.POD_GROUP_NAME: "g", names.POD_GROUP_MIN: "all"}),
    "a gang of Koordinator's": ({names.KOORDINATOR_GANG_NAME: "g", names.KOORDINATOR_GANG_MIN: "2"}, {}),
    "a gang of Koordinator's without a minimum": ({names.KOORDINATOR_GANG_NAME: "g"}, {}),
    "a pod group of scheduler-plugins": ({}, {names.SCHEDULER_PLUGINS_POD_GROUP: "g"}),
    "a pod group without a name": ({}, {names.POD_GROUP_NAME: "", names.POD_GROUP_MIN: "2"}),
    "a gang of Koordinator's without a name": ({names.KOORDINATOR_GANG_NAME: "", names.KOORDINATOR_GANG_MIN: "2"}, {}),
    "a pod group of scheduler-plugins without a name": ({}, {names.SCHEDULER_PLUGINS_POD_GROUP: ""}),
    "two pod groups, one without a minimum": (
        {},
        {names.SCHEDULER_PLUGINS_POD_GROUP: "g", names.POD_GROUP_NAME: "g"},
    ),
    "a pod group, taken back": (
        {names.UNCONSTRAINED: "false"},
        {names.POD_GROUP_NAME: "g", names.POD_GROUP_MIN: "2"},
    ),
    "a PodGroup object, taken back in Kueue's words": (
        {"kueue.x-k8s.io/podset-unconstrained-topology": "false"},
        {names.SCHEDULER_PLUGINS_POD_GROUP: "g"},
    ),
    "a pod group in our words": ({names.POD_GROUP: "g", names.MIN_AVAILABLE: "2"}, {}),
    "a foreign key that is not read": ({"kai.scheduler/segment-size": "2"}, {}),
    "another prefix": ({"topogate.io/require-topology": "rack"}, {}),
    "a short prefix": ({"topogate/gang-name": "g"}, {}),
    "no prefix": ({"require-topology": "rack"}, {}),
    "a misspelt key of Kueue's": ({"kueue.x-k8s.io/podset-requierd-topology": "rack"}, {}),
    "a misspelt key of KAI's": ({"kai.scheduler/topology-required-placment": "rack"}, {}),
    "a misspelt key without a prefix": ({"perfer_topolgy": "rack"}, {}),
    "a misspelt prefix": ({"topgate.dev/relax-after": "1h"}, {}),
    "a pod group as annotations": ({names.POD_GROUP_NAME: "g", names.POD_GROUP_MIN: "2"}, {}),
    "a misspelt pod group": ({}, {f"{names.POD_GROUP_PREFIX}nmae": "g"}),
    "a gang of Koordinator's as labels": ({}, {names.KOORDINATOR_GANG_NAME: "g", names.KOORDINATOR_GANG_MIN: "2"}),
    "a misspelt gang of Koordinator's": ({"gang.scheduling.koordinator.sh/nmae": "g"}, {}),
    "an alias as a label": ({}, {"kai.scheduler/topology-preferred-placement": "rack"}),
    "an old mark": ({names.RANK: "3"}, {}),
    "an old label": ({}, {names.MANAGED: "true"}),
    "what translation wrote": ({names.ORIGINAL_REQUESTS: "{}"}, {}),
    "somebody else's key": ({"cloud.google.com/gke-tpu-slice-topology": "4x4"}, {"app": "topogate"}),
}
# Who else may have it: metadata (annotations, labels), then fields of the pods.
ASIDE: Mapping[str, tuple[Mapping[str, str], Mapping[str, str], Mapping[str, Any]]] = {
    "ours": ({}, {}, {}),
    "our scheduler by name": ({}, {}, {"schedulerName": "default-scheduler"}),
    "another scheduler": ({}, {}, {"schedulerName": "default-schedular"}),
    "a node": ({}, {}, {"nodeName": "host-000"}),
    "a queue of Kueue": ({}, {names.KUEUE_QUEUE: "q"}, {}),
    "a queue of Kueue as an annotation": ({names.KUEUE_QUEUE: "q"}, {}, {}),
    "admitted by Kueue": ({names.KUEUE_WORKLOAD: "w"}, {}, {}),
    "a gate of Kueue": ({}, {}, {"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]}),
    "our gate": ({}, {}, {"schedulingGates": [{"name": names.GATE}]}),
    "exclusive topology": (EXCLUSIVE, {}, {}),
    "GPUs in Koordinator's names": ({}, {}, {"containers": gpus("50")}),
    "GPUs that make no sense": ({}, {}, {"containers": gpus("0")}),
}
# A pod that makes other pods, as `spark-submit` does: of no workload.
DRIVER: Json = {"metadata": {"name": "driver", "namespace": NAMESPACE, "uid": "driver"}, "spec": {"containers": []}}
OF_DRIVER: Json = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": "driver", "controller": True}
ELSEWHERE = "elsewhere"
OTHERS: Mapping[str, Mapping[str, Any]] = {  # kind -> what of its own gives it to others, or to us
    "job": {"managedBy": "example.com/mine"},
    "jobset": {"managedBy": "kueue.x-k8s.io/multikueue"},
    "pytorchjob": {"runPolicy": {"managedBy": "example.com/mine"}},
    "mpijob": {"runPolicy": {"managedBy": "kubeflow.org/training-operator"}},
    "mpijob-v1": {"runPolicy": {"managedBy": "kubeflow.org/mpi-operator"}},
    "trainjob": {"managedBy": "example.com/mine"},
    "rayjob": {"managedBy": "example.com/mine"},
    "appwrapper": {"managedBy": "example.com/mine"},
    "volcano-job": {"schedulerName": "default-scheduler"},
}


@dataclass(frozen=True)
class Case:
    """An object that somebody creates."""

    title: str
    path: str
    body: Json


def known() -> FakeView:
    """What the service knows of the cluster."""
    return FakeView(pods=[decoded_pods.pod(DRIVER)])


class Service:
    """Answers as the service does, and keeps what it told."""

    def __init__(self) -> None:
        self.view = known()
        self.told: list[str] = []

    def review(self, path: str, body: bytes) -> bytes:
        found = decode_review(body)
        response = (validate if path == "/validate" else mutate_and_check)(found, self.view, 0.0)
        self.told += response.warnings
        return encode(response, found.uid)


@pytest.fixture(scope="module")
def admin(plane: ControlPlane, recorder: Recorder) -> Client:
    """The admin of a control plane with the manifests and every kind, the custom ones without a schema."""
    probe = {
        "metadata": {"name": "probe", "annotations": {names.REQUIRE: "rack"}},
        "spec": plain(BY_NAME["job"])["spec"],
    }
    client = install(
        plane,
        recorder,
        namespace=NAMESPACE,
        probe=lambda client: client.create(collection(BY_NAME["job"]), probe, dry_run=True),
    )
    for one in (made := definitions()):
        one.create(client)
    for one in made:
        one.install(client)
    return client


@pytest.fixture
def service(recorder: Recorder) -> Iterator[Service]:
    """The service's handlers behind the manifests' entries."""
    found = Service()
    recorder.review = found.review
    yield found
    recorder.review, recorder.down = None, False


FEW = (
    "nothing",
    "a request",
    "a request taken back",
    "a gang of pods",
    "a pod group with its minimum",
    "an alias",
    "another prefix",
    "an old label",
)


WRONG = ("a request for a level that is not there", "a gang without its size", "a size without a gang")


def pods() -> Iterator[Case]:
    """Each request by itself, some with everything that gives it to others, and wrong ones on a pod that a pod made."""
    made = [(one, "ours", (OF_DRIVER,)) for one in WRONG]
    for asked, aside, owners in [
        *made,
        *((one, "ours", ()) for one in REQUESTS),
        *((*one, ()) for one in product(FEW, ASIDE)),
    ]:
        body: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "ownerReferences": [*owners]}}
        _write(body, *REQUESTS[asked])
        of_metadata, labels, spec = ASIDE[aside]
        _write(body, of_metadata, labels)
        containers = [{"name": "main", "image": "none"}]
        body["spec"] = {"containers": containers, "automountServiceAccountToken": False, **copy.deepcopy(dict(spec))}
        yield Case(f"{asked}; {aside}{', of a pod' if owners else ''}", PODS, body)


def workloads(name: str, requests: Sequence[str], asides: Sequence[str]) -> Iterator[Case]:
    """Each request on the workload or on its last template, with each of what gives it to others."""
    entry = BY_NAME[name]
    fields = known_templates(entry, plain(entry)) if entry.handling == "placed" else []
    for asked, aside, on_template in product(requests, asides, (False, True) if fields else (False,)):
        body = plain(entry)
        _write(body, {}, {"app": "x"})  # else a Job takes over the labels of its template
        if "suspend" in body["spec"]:
            body["spec"]["suspend"] = False
        template = at(body, fields[-1]) if fields else {}
        place = template if on_template else body
        of_metadata, labels, spec = ASIDE.get(aside, ({}, {}, {}))
        _write(place, *REQUESTS[asked])
        _write(place, of_metadata, labels)
        template.setdefault("spec", {}).update(copy.deepcopy(dict(spec)))
        if aside == ELSEWHERE:
            _merge(body["spec"], OTHERS[name])
        where = "template" if on_template else "workload"
        yield Case(f"{asked} on the {where}; {aside}", collection(entry), body)


def _write(place: Json, annotations: Mapping[str, str], labels: Mapping[str, str]) -> None:
    metadata = place.setdefault("metadata", {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}


def _merge(into: Json, more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, Mapping):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


# Kind -> the paths of what its controller will make objects of.
MADE: Mapping[str, Sequence[str]] = {
    "cronjob": ("spec.jobTemplate", "spec.jobTemplate.spec.template"),
    "jobset": ("spec.replicatedJobs[0].template",),
    "appwrapper": ("spec.components[0].template",),
}
# Kind -> other parts that have annotations.
ANNOTATED: Mapping[str, Sequence[str]] = {
    "trainjob": ("spec",),
    "sparkapplication": ("spec.driver", "spec.executor"),
    "appwrapper": ("spec.components[0]",),
    "raycluster": ("spec.headGroupSpec", "spec.workerGroupSpecs[0]"),
    "rayjob": ("spec.rayClusterSpec.headGroupSpec", "spec.rayClusterSpec.workerGroupSpecs[0]"),
    "rayservice": ("spec.rayClusterConfig.headGroupSpec", "spec.rayClusterConfig.workerGroupSpecs[0]"),
}
# Kind -> where it has claims, or the metadata of a Service.
BESIDE: Mapping[str, Sequence[tuple[str, ...]]] = {
    "statefulset": (("volumeClaimTemplates", "[]", "metadata"),),
    "leaderworkerset": (("leaderWorkerTemplate", "volumeClaimTemplates", "[]", "metadata"),),
    "jobset": (("volumeClaimPolicies", "[]", "templates", "[]", "metadata"),),
    "raycluster": (("headGroupSpec", "headService", "metadata"),),
    "rayjob": (("rayClusterSpec", "headGroupSpec", "headService", "metadata"),),
    "rayservice": (("rayClusterConfig", "headGroupSpec", "headService", "metadata"), ("serveService", "metadata")),
}
# Kind -> the template of pods that belong to no gang of it.
OUTSIDE: Mapping[str, str] = {"rayjob": "submitterPodTemplate"}
CLAIM: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def makers(name: str, requests: Sequence[str]) -> Iterator[Case]:
    """Each request in the metadata of what is made of an object, which itself asks for nothing."""
    entry = BY_NAME[name]
    for asked, field in product(requests, MADE[name]):
        body = plain(entry)
        _write(at(body, field), *REQUESTS[asked])
        yield Case(f"{asked} at {field}", collection(entry), body)


def annotated(name: str, requests: Sequence[str]) -> Iterator[Case]:
    """Each request in a part of an object that has annotations and labels for somebody else."""
    entry = BY_NAME[name]
    for asked, field in product(requests, ANNOTATED[name]):
        body = plain(entry)
        annotations, labels = REQUESTS[asked]
        at(body, field).update({"annotations": dict(annotations), "labels": dict(labels)})
        yield Case(f"{asked} in {field}", collection(entry), body)


def beside(name: str, requests: Sequence[str]) -> Iterator[Case]:
    """Each request in the metadata of a claim or a Service that is made beside the pods."""
    entry = BY_NAME[name]
    for asked, steps in product(requests, BESIDE[name]):
        body = plain(entry)
        annotations, labels = REQUESTS[asked]
        made: Json = {"metadata": {"name": "data", "annotations": dict(annotations), "labels": dict(labels)}}
        if "[]" in steps:
            made["spec"] = copy.deepcopy(CLAIM)
        part: Any = made
        for step in reversed(steps[1:-1]):
            part = [part] if step == "[]" else {step: part}
        if isinstance(part, dict):
            _merge(body["spec"].setdefault(steps[0], {}), part)
        else:
            body["spec"][steps[0]] = part
        yield Case(f"{asked} in {'.'.join(steps)}", collection(entry), body)


def outside(name: str, requests: Sequence[str]) -> Iterator[Case]:
    """Each request on a workload whose pods outside its gang are given to others, by everything that does it."""
    entry = BY_NAME[name]
    for asked, aside in product(requests, ASIDE):
        body = plain(entry)
        _write(body, *REQUESTS[asked])
        of_metadata, labels, spec = ASIDE[aside]
        template: Json = copy.deepcopy(TEMPLATE)
        _write(template, of_metadata, labels)
        template["spec"].update(copy.deepcopy(dict(spec)))
        body["spec"][OUTSIDE[name]] = template
        yield Case(f"{asked}; {aside} in {OUTSIDE[name]}", collection(entry), body)


def wrapped(requests: Sequence[str]) -> Iterator[Case]:
    """Each request in the Jobs of a JobSet in an AppWrapper, and in the metadata of a Service there."""
    entry = BY_NAME["appwrapper"]
    for asked in requests:
        inner = plain(BY_NAME["jobset"])
        service: Json = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
        for title, component, part in (
            ("the Jobs of a JobSet", inner, inner["spec"]["replicatedJobs"][0]["template"]),
            ("a Service", service, service),
        ):
            body = plain(entry)
            _write(part, *REQUESTS[asked])
            body["spec"]["components"].append({"template": component})
            yield Case(f"{asked} in {title}", collection(entry), body)


def configured(requests: Sequence[str]) -> Iterator[Case]:
    """Each request in Spark's settings, which name annotations of its pods."""
    entry = BY_NAME["sparkapplication"]
    for asked, pod in product(requests, ("driver", "executor")):
        body = plain(entry)
        prefix = f"spark.kubernetes.{pod}.annotation."
        body["spec"]["sparkConf"] = {f"{prefix}{key}": value for key, value in REQUESTS[asked][0].items()}
        yield Case(f"{asked} in the settings of the {pod}", collection(entry), body)


def patched(requests: Sequence[str]) -> Iterator[Case]:
    """Each request in what a TrainJob changes of the Jobs that are made for it."""
    entry = BY_NAME["trainjob"]
    for asked in requests:
        body = plain(entry)
        job: Json = {"name": "node", "template": {}}
        _write(job["template"], *REQUESTS[asked])
        runtime = {"template": {"spec": {"replicatedJobs": [job]}}}
        body["spec"]["runtimePatches"] = [{"manager": "me", "trainingRuntimeSpec": runtime}]
        yield Case(f"{asked} in a patch of the Jobs", collection(entry), body)


ASKS = ("a request", "a request taken back", "an alias")
OF_OTHERS = "job of another controller"
KINDS: Mapping[str, list[Case]] = {
    "pod": [*pods()],
    "job": [*workloads("job", tuple(REQUESTS), ("ours",)), *workloads("job", FEW[1:], tuple(ASIDE))],
    OF_OTHERS: [*workloads("job", FEW[1:], (ELSEWHERE,))],
    **{
        name: [
            *workloads(name, ASKS, ("ours", "another scheduler", "a queue of Kueue")),
            *(workloads(name, ASKS, (ELSEWHERE,)) if name in OTHERS else ()),
            *(makers(name, tuple(REQUESTS)) if name in MADE else ()),
            *(annotated(name, tuple(REQUESTS)) if name in ANNOTATED else ()),
            *(beside(name, tuple(REQUESTS)) if name in BESIDE else ()),
            *(outside(name, ("nothing", *ASKS)) if name in OUTSIDE else ()),
            *(wrapped(tuple(REQUESTS)) if name == "appwrapper" else ()),
            *(configured(("nothing", *ASKS)) if name == "sparkapplication" else ()),
            *(patched(tuple(REQUESTS)) if name == "trainjob" else ()),
        ]
        for name in BY_NAME
        if name != "job"
    },
}


EACH = [
    pytest.param(kind, marks=pytest.mark.since("1.32", "a Job can name another controller"))
    if kind == OF_OTHERS
    else kind
    for kind in KINDS
]


def answers(case: Case) -> tuple[Response, Response]:
    """What the handlers say of the object: to /mutate, and of the result to /validate."""
    view = known()
    sent = {**copy.deepcopy(case.body)}
    sent["metadata"]["namespace"] = NAMESPACE
    mutated = mutate(review(sent, namespace=NAMESPACE, **ADMIN), view, 0.0)
    stored = jsonpatch.apply_patch(copy.deepcopy(sent), [dict(one) for one in mutated.patch])
    return mutated, validate(review(stored, namespace=NAMESPACE, **ADMIN), view, 0.0)


def at_update(stored: Json, new: Json) -> tuple[Response, Response, Json]:
    """The same of an object that is changed, and the object then."""
    view = known()
    mutated = mutate(review(new, old=stored, namespace=NAMESPACE, **ADMIN), view, 0.0)
    after = jsonpatch.apply_patch(copy.deepcopy(new), [dict(one) for one in mutated.patch])
    return mutated, validate(review(after, old=stored, namespace=NAMESPACE, **ADMIN), view, 0.0), after


@pytest.mark.parametrize("kind", EACH)
def test_nothing_that_is_only_waved_through_waits_for_the_service(
    admin: Client, recorder: Recorder, service: Service, kind: str
) -> None:
    """With nobody there, what the code would neither change nor refuse is created as if we were not installed."""
    recorder.down = True
    refused = []
    for case in KINDS[kind]:
        mutated, validated = answers(case)
        if validated.allowed and not mutated.patch:
            try:
                admin.create(case.path, case.body, dry_run=True)
            except ClientError as error:
                refused.append(f"{case.title}: {error}")
    assert not refused, "\n".join(refused[:5])


@pytest.mark.parametrize("kind", EACH)
def test_whatever_the_code_has_to_say_is_said_on_an_api_server(admin: Client, service: Service, kind: str) -> None:
    """What is refused, told and marked is what the handlers refuse, tell and mark, each branch of them."""
    differ = []
    for case in KINDS[kind]:
        mutated, validated = answers(case)
        service.told = []
        try:
            found = marks(admin.create(case.path, case.body, dry_run=True))
        except ClientError as error:
            if "denied the request" not in error.message and "is invalid: " not in error.message:
                raise AssertionError(case.title) from error
            found = None
        stored = jsonpatch.apply_patch(copy.deepcopy(case.body), [dict(one) for one in mutated.patch])
        expected = marks(stored) if validated.allowed else None
        told = {*mutated.warnings, *validated.warnings}
        if (found, {*service.told}) != (expected, told):
            differ.append(f"{case.title}: {found} {sorted(service.told)}, not {expected} {sorted(told)}")
    assert not differ, "\n".join(differ[:5])


# Jobs as they are stored, and what somebody may change of them.
ASKING = {names.REQUIRE: "rack"}
STORED: Mapping[str, Json] = {
    "plain": {},
    "suspended by its user": {"spec": {"suspend": True}},
    "held": {"metadata": {"annotations": ASKING}},
    "asking for nothing": {"metadata": {"annotations": {names.UNCONSTRAINED: "false"}}},
    "asking, suspended by its user": {"metadata": {"annotations": ASKING}, "spec": {"suspend": True}},
    "asking, of Kueue": {"metadata": {"annotations": ASKING, "labels": {names.KUEUE_QUEUE: "q"}}},
    "asking, exclusive": {"metadata": {"annotations": {**ASKING, **EXCLUSIVE}}},
    "with a pod group": {"metadata": {"labels": {names.POD_GROUP_NAME: "g"}}},
    "with a gang of Koordinator's": {
        "metadata": {"annotations": {names.KOORDINATOR_GANG_NAME: "g", names.KOORDINATOR_GANG_MIN: "2"}}
    },
    "with a key of Volcano's": {"metadata": {"annotations": {"volcano.sh/network-topology-mode": "hard"}}},
}
CHANGES: Mapping[str, Json] = {
    "a foreign annotation": {"metadata": {"annotations": {"example.com/x": "y"}}},
    "a request": {"metadata": {"annotations": {names.REQUIRE: "block"}}},
    "a request taken back": {"metadata": {"annotations": {names.REQUIRE: None, names.UNCONSTRAINED: "false"}}},
    "a wrong request": {"metadata": {"annotations": {names.REQUIRE: "rak"}}},
    "no request any more": {"metadata": {"annotations": {names.REQUIRE: None}}},
    "a misspelt request": {"metadata": {"annotations": {"topogate.dev/requiretopology": "rack"}}},
    "an alias": {"metadata": {"annotations": {KUEUE: "rack"}}},
    "another prefix": {"metadata": {"annotations": {"topogate.io/require-topology": "rack"}}},
    "a key that is not read": {"metadata": {"annotations": {"kai.scheduler/segment-size": "2"}}},
    "a key of Volcano's": {"metadata": {"annotations": {"volcano.sh/network-topology-mode": "hard"}}},
    "a tier of Volcano's": {"metadata": {"annotations": {"volcano.sh/network-topology-highest-tier": "2"}}},
    "a key of Koordinator's": {
        "metadata": {"annotations": {"gang.scheduling.koordinator.sh/network-topology-spec": "{}"}}
    },
    "a hint of Koordinator's": {"metadata": {"annotations": {"scheduling.koordinator.sh/device-allocate-hint": "{}"}}},
    "a gang of Koordinator's": {
        "metadata": {"annotations": {names.KOORDINATOR_GANG_NAME: "g", names.KOORDINATOR_GANG_MIN: "2"}}
    },
    "a minimum of Koordinator's": {"metadata": {"annotations": {names.KOORDINATOR_GANG_MIN: "3"}}},
    "a time of Koordinator's": {"metadata": {"annotations": {names.KOORDINATOR_GANG_WAIT: "3m"}}},
    "a pod group": {"metadata": {"labels": {names.POD_GROUP_NAME: "h", names.POD_GROUP_MIN: "2"}}},
    "a PodGroup object": {"metadata": {"labels": {names.SCHEDULER_PLUGINS_POD_GROUP: "g"}}},
    "our mark": {"metadata": {"annotations": {names.HELD_BY: "suspend"}}},
    "no mark of ours": {"metadata": {"annotations": {names.HELD_BY: None}}},
    "a queue of Kueue": {"metadata": {"labels": {names.KUEUE_QUEUE: "q"}}},
    "no queue of Kueue": {"metadata": {"labels": {names.KUEUE_QUEUE: None}}},
    "no exclusive topology": {"metadata": {"annotations": dict.fromkeys(EXCLUSIVE)}},
    "resumed": {"spec": {"suspend": False}},
    "suspended": {"spec": {"suspend": True}},
    "fewer pods": {"spec": {"parallelism": 2}},
    "no gate": {"spec": {"template": {"spec": {"schedulingGates": None}}}},
    "no label": {"spec": {"template": {"metadata": {"labels": {names.MANAGED: None}}}}},
    "a label of the pods": {"spec": {"template": {"metadata": {"labels": {"app": "y"}}}}},
}


@pytest.mark.parametrize("title", STORED)
def test_whatever_the_code_has_to_say_of_a_change_is_said_on_an_api_server(
    admin: Client, service: Service, title: str
) -> None:
    """As at CREATE: each change of each Job, by the same answers."""
    path, body = collection(BY_NAME["job"]), plain(BY_NAME["job"])
    _write(body, {}, {"app": "x"})
    _write(body["spec"]["template"], {}, {"app": "x"})
    stored = admin.create(path, merged(merged(body, {"metadata": {"name": "changing"}}), STORED[title]))
    known = {*at_update(stored, stored)[1].warnings}  # need not be told at a change of something else
    differ = []
    try:
        for change, patch in CHANGES.items():
            mutated, validated, after = at_update(stored, merged(stored, patch))
            service.told = []
            try:
                found = marks(admin.patch(f"{path}/changing", patch, query={"dryRun": "All"}))
            except ClientError as error:
                if "field is immutable" in error.message and validated.allowed:
                    continue  # the API server's own rule
                if "denied the request" not in error.message and "is invalid: " not in error.message:
                    raise AssertionError(change) from error
                found = None
            expected = marks(after) if validated.allowed else None
            told = {*mutated.warnings, *validated.warnings}
            if found != expected or not told - known <= {*service.told} <= told:
                differ.append(f"{change}: {found} {sorted(service.told)}, not {expected} {sorted(told)}")
    finally:
        admin.delete(f"{path}/changing", propagation="Background")
        eventually(lambda: admin.find(f"{path}/changing") is None, message="the Job is gone")
    assert not differ, "\n".join(differ[:5])


def marks(body: Any) -> list[str]:
    """What of ours stands where in an object."""
    found = []
    stack: list[tuple[str, Any]] = [("", body)]
    while stack:
        path, node = stack.pop()
        if isinstance(node, dict):
            found += [f"{path}.{key}" for key in node if key.startswith(names.PREFIX)]
            stack += [(f"{path}.{key}", value) for key, value in node.items() if key != "managedFields"]
        elif isinstance(node, list):
            stack += [(f"{path}[{number}]", value) for number, value in enumerate(node)]
        elif node == names.GATE:
            found.append(path)
    return sorted(found)
