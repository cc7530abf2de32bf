"""Custom resources that nobody checked but us, and pods that lie about whose they are, on a real API server.

The custom resource has no schema here and no controller, so that everything gets through that a user may write.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from local.client import Client, ClientError
from local.controlplane import ControlPlane
from local.service import Service
from tests.support.books import Books
from tests.support.eventually import eventually
from tests.support.gangs import Json, Namespace, job_body, require
from tests.support.imitations.volcano import VolcanoJobs
from tests.support.raw_placements import placements_path, slots
from tests.support.raw_pods import held, host
from tests.support.users import ordinary_user

RULES = [{"apiGroups": ["batch.volcano.sh"], "resources": ["jobs"], "verbs": ["*"]}]
ASKS = require("rack")


@pytest.fixture
def user(gangs: Namespace, client: Client, control_plane: ControlPlane) -> Client:
    """Somebody with edit rights who may write the custom resource too."""
    VolcanoJobs.definition().install(client)
    return ordinary_user(control_plane, gangs.name, rules=RULES)


def collection(namespace: str) -> str:
    return f"/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs"


def pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def task(gangs: Namespace, name: Any, replicas: Any, **metadata: Any) -> Json:
    template = copy.deepcopy(job_body("x", pods=1, selector=gangs.fleet.selector)["spec"]["template"])
    template["metadata"] = metadata
    return {"name": name, "replicas": replicas, "template": template}


def resource(gangs: Namespace, name: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> Json:
    """A Job of Volcano's for the default scheduler."""
    tasks = [task(gangs, "main", 2)]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"schedulerName": "default-scheduler", "tasks": tasks, **spec},
    }


Change = Callable[[Namespace, Json], None]


def _tasks(*tasks: Any) -> Change:
    return lambda _, body: body["spec"].update(tasks=list(tasks))


def _replicas(value: Any) -> Change:
    return lambda _, body: body["spec"]["tasks"][0].update(replicas=value)


def _template(**fields: Any) -> Change:
    return lambda _, body: body["spec"]["tasks"][0].update(template=fields)


def _deep(levels: int) -> Json:
    found: Json = {}
    for _ in range(levels):
        found = {"a": found}
    return found


# What is wrong, and the beginning of the path that the answer must name; None: it may be stored, held and told later.
HOSTILE: dict[str, tuple[Change, str | None]] = {
    "a million replicas": (_replicas(10**6), "spec.tasks[0].replicas"),
    "more than 32 bits": (_replicas(10**18), "spec.tasks[0].replicas"),
    "less than none": (_replicas(-1), "spec.tasks[0].replicas"),
    "replicas as text": (_replicas("4"), "spec.tasks[0].replicas"),
    "replicas with a fraction": (_replicas(2.5), "spec.tasks[0].replicas"),
    "replicas that are no number": (_replicas("NaN"), "spec.tasks[0].replicas"),
    "replicas as a list": (_replicas([2]), "spec.tasks[0].replicas"),
    "true replicas": (_replicas(True), "spec.tasks[0].replicas"),
    "no replicas at all": (_replicas(0), None),
    "two pod sets of one name": (
        lambda gangs, body: body["spec"].update(tasks=[task(gangs, "a", 1), task(gangs, "a", 2)]),
        "spec.tasks[1].template",
    ),
    "a hundred pod sets": (
        lambda gangs, body: body["spec"].update(tasks=[task(gangs, f"t{number}", 1) for number in range(100)]),
        "spec.tasks",
    ),
    "a name that is no label": (
        lambda gangs, body: body["spec"].update(tasks=[task(gangs, "../../etc", 1)]),
        "spec.tasks[0].name",
    ),
    "a name that is a number": (
        lambda gangs, body: body["spec"].update(tasks=[task(gangs, 7, 1)]),
        "spec.tasks[0].name",
    ),
    "tasks as a mapping": (lambda _, body: body["spec"].update(tasks={"a": 1}), "spec.tasks"),
    "no tasks": (_tasks(), "spec.tasks"),
    "tasks that are null": (_tasks(None, None), "spec.tasks"),
    "no template": (lambda _, body: body["spec"]["tasks"][0].pop("template"), "spec.tasks[0].template"),
    "a template as text": (lambda _, body: body["spec"]["tasks"][0].update(template="x"), "spec.tasks[0].template"),
    "containers as a mapping": (_template(spec={"containers": {"a": 1}}), "spec.tasks[0].template.spec.containers"),
    "requests as text": (
        _template(spec={"containers": [{"name": "a", "resources": {"requests": "all"}}]}),
        "spec.tasks[0].template.spec.containers[0].resources.requests",
    ),
    "annotations as numbers": (
        _template(metadata={"annotations": {"topogate.dev/require-topology": 5}}, spec={"containers": []}),
        "spec.tasks[0].template.metadata.annotations",
    ),
    "a spec as text": (lambda _, body: body.update(spec="all of it"), "spec"),
    "a minimum of nothing sensible": (lambda _, body: body["spec"].update(minAvailable="most"), "spec.minAvailable"),
    "a deep thing": (lambda _, body: body["spec"].update(extra=_deep(300)), None),
    "a wide thing": (lambda _, body: body["spec"].update(extra={f"k{n}": "v" * 20 for n in range(20_000)}), None),
}


def test_fields_that_nobody_checked_are_told_at_their_path(gangs: Namespace, user: Client, service: Service) -> None:
    """Refused with the path for whoever asks, none of our business for whoever does not; the service goes on."""
    gangs.fleet.grid("1x1x8")  # two of those that are stored keep room for their pods
    for number, (what, (change, field)) in enumerate(HOSTILE.items()):
        silent = resource(gangs, f"silent-{number}")
        change(gangs, silent)
        if "annotations as numbers" not in what:
            user.create(collection(gangs.name), silent)
        asking = resource(gangs, f"asking-{number}", annotations=ASKS)
        change(gangs, asking)
        if field is None:
            user.create(collection(gangs.name), asking)
            continue
        with pytest.raises(ClientError) as error:
            user.create(collection(gangs.name), asking)
        # What the policy limits is its admin's decision: 403.
        assert error.value.status in (422, 403), (what, error.value)
        assert field in error.value.message, (what, error.value.message)
        assert not any(trace in error.value.message for trace in ("Traceback", "msgspec", "/engine/")), what
    gangs.submit("good", pods=2, annotations=ASKS)
    gangs.all_bound("good", 2)
    assert [replica.ready() for replica in service.running()] == [True, True]


def member(gangs: Namespace, name: str, owner: Json, *, index: str = "0", **lies: Any) -> Json:
    """A pod as the controller of the custom resource makes it; `lies` are other fields of its owner reference."""
    template = job_body("x", pods=1, selector=gangs.fleet.selector)["spec"]["template"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    labels = {"volcano.sh/task-spec": "main", "volcano.sh/task-index": index}
    metadata = {"name": name, "labels": labels, "ownerReferences": [{**reference, **lies}], "annotations": dict(ASKS)}
    return {"metadata": metadata, "spec": template["spec"]}


def placement(gangs: Namespace, owner: Json) -> Json | None:
    path = placements_path(gangs.name)
    found = (one for one in gangs.client.items(path) if one["spec"]["workload"]["uid"] == owner["metadata"]["uid"])
    return next(found, None)


def events(gangs: Namespace, name: str) -> list[str]:
    found = gangs.client.items(f"/apis/events.k8s.io/v1/namespaces/{gangs.name}/events")
    return [event["reason"] for event in found if event["regarding"]["name"] == name]


def test_pods_that_lie_join_nothing(gangs: Namespace, user: Client) -> None:
    """Wrong links and indexes beside the right ones: the gang has its two pods, everybody else stays held.

    The garbage collector takes the Job away whose owner there is not: its pod may then go alone, beside the gang.
    """
    hosts = gangs.fleet.grid("1x1x3")
    owner = user.create(collection(gangs.name), resource(gangs, "victim", annotations=ASKS))
    made = user.create(f"/apis/batch/v1/namespaces/{gangs.name}/jobs", _middle(gangs, owner, uid="0" * 8 + "-0-0-0-0"))
    liars: dict[str, Json] = {
        "an-index-beyond": member(gangs, "an-index-beyond", owner, index="2"),
        "an-index-out-of-all": member(gangs, "an-index-out-of-all", owner, index="9" * 30),
        "an-index-of-zeros": member(gangs, "an-index-of-zeros", owner, index="000"),
        "another-uid": member(gangs, "another-uid", owner, uid="11111111-2222-3333-4444-555555555555"),
        "another-group": member(gangs, "another-group", owner, apiVersion="batch/v1"),
        "below-a-job-that-lies": member(gangs, "below-a-job-that-lies", {**made, **_JOB}, index="1"),
    }
    for body in liars.values():
        stored = user.create(pods_path(gangs.name), body)
        assert held(stored), stored["metadata"]["name"]
        assert "affinity" not in stored["spec"]
    for index in range(2):
        user.create(pods_path(gangs.name), member(gangs, f"right-{index}", owner, index=str(index)))

    def seats() -> list[str]:
        found = (user.find(f"{pods_path(gangs.name)}/right-{index}") for index in range(2))
        return sorted(where for where in map(host, filter(None, found)) if where)

    eventually(
        lambda: len(set(seats()) & set(hosts)) == 2,
        message=lambda: f"both are bound: {seats()} {placement(gangs, owner)}",
    )
    placed = placement(gangs, owner)
    assert placed is not None
    assert slots(placed) == dict.fromkeys(seats(), 1)
    for name in liars:
        pod = user.find(f"{pods_path(gangs.name)}/{name}")
        alone = name == "below-a-job-that-lies" and pod is not None and host(pod) not in seats()
        assert pod is None or alone or (held(pod) and host(pod) is None), name
    for name in ("an-index-beyond", "an-index-of-zeros"):
        eventually(lambda name=name: "HeldWithoutSlot" in events(gangs, name), message=f"{name} is told why")  # type: ignore[misc]
    assert Books(gangs.client, gangs.fleet).overbooked() == {}


_JOB = {"apiVersion": "batch/v1", "kind": "Job"}


def _middle(gangs: Namespace, owner: Json, **lies: Any) -> Json:
    """A Job that says that another workload controls it."""
    body = job_body("middle", pods=1, selector=gangs.fleet.selector, spec={"parallelism": 0})
    body["metadata"]["ownerReferences"] = member(gangs, "x", owner, **lies)["metadata"]["ownerReferences"]
    return body


def test_what_cannot_be_read_stops_no_watch(gangs: Namespace, user: Client) -> None:
    """An object that asks for nothing, and that nobody can read, is left out; the next of its kind is placed."""
    gangs.fleet.grid("1x1x2")
    broken = resource(gangs, "broken")
    broken["spec"]["tasks"] = "none"
    user.create(collection(gangs.name), broken)
    owner = user.create(collection(gangs.name), resource(gangs, "whole", annotations=ASKS))
    for index in range(2):
        user.create(pods_path(gangs.name), member(gangs, f"whole-{index}", owner, index=str(index)))

    def all_bound() -> bool:
        return all(host(user.get(f"{pods_path(gangs.name)}/whole-{index}")) for index in range(2))

    eventually(all_bound, message=lambda: f"both are bound: {placement(gangs, owner)}")
