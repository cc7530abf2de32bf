"""What Kubeflow's real training operator makes of its jobs: labels, owners, ranks and suspension."""

from __future__ import annotations

import pytest

from local.client import ClientError
from tests.support.eventually import always, eventually
from tests.support.fleet import Fleet
from tests.support.workloads import GATE, Json, Workloads, held, labels

pytestmark = pytest.mark.usefixtures("training_operator")
KUBEFLOW = "training.kubeflow.org"
# Kind -> the field of its replica types, the name that its main container must have, two types that it has.
KINDS = {
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch", ("Master", "Worker")),
    "TFJob": ("tfReplicaSpecs", "tensorflow", ("PS", "Worker")),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost", ("Master", "Worker")),
    "PaddleJob": ("paddleReplicaSpecs", "paddle", ("Master", "Worker")),
    "JAXJob": ("jaxReplicaSpecs", "jax", ("Worker",)),
}


def replicas(workloads: Workloads, kind: str, *, gated: bool = False) -> Json:
    """One pod of the first type and two of the last."""
    field, container, types = KINDS[kind]
    template = workloads.template(gated=gated, container=container)
    return {field: {name: {"replicas": 2 if name == types[-1] else 1, "template": template} for name in types}}


@pytest.mark.parametrize("kind", KINDS)
def test_pods_say_which_type_and_index_they_are(workloads: Workloads, kind: str) -> None:
    """Labels name the job, the type in lower case and the index within it; the pod's owner is the job itself."""
    workloads.create(kind, "train", replicas(workloads, kind))
    types = [name.lower() for name in KINDS[kind][2]]
    wanted = [("train", types[-1], "0"), ("train", types[-1], "1")]
    wanted += [("train", types[0], "0")] if len(types) > 1 else []
    pods = workloads.wait(len(wanted))
    names = [f"{KUBEFLOW}/{name}" for name in ("job-name", "replica-type", "replica-index")]
    assert sorted(labels(pod, *names) for pod in pods) == sorted(wanted)
    assert {tuple(workloads.owners(pod)) for pod in pods} == {((kind, "train"),)}


@pytest.mark.parametrize("kind", ["PyTorchJob", "XGBoostJob"])
def test_the_master_is_rank_zero_and_worker_i_the_next_but_i(workloads: Workloads, kind: str) -> None:
    """The RANK that the operator gives: master 0, worker i -> i+1."""
    workloads.create(kind, "train", replicas(workloads, kind))
    names = (f"{KUBEFLOW}/replica-type", f"{KUBEFLOW}/replica-index")
    ranks = {labels(pod, *names): variables(pod)["RANK"] for pod in workloads.wait(3)}
    assert ranks == {("master", "0"): "0", ("worker", "0"): "1", ("worker", "1"): "2"}


def test_without_a_master_there_is_an_index_and_no_rank(workloads: Workloads) -> None:
    """A PyTorchJob of workers alone finds its ranks at run time."""
    template = workloads.template(container="pytorch")
    workloads.create("PyTorchJob", "train", {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}})
    pods = workloads.wait(2)
    assert sorted(labels(pod, f"{KUBEFLOW}/replica-index") for pod in pods) == [("0",), ("1",)]
    assert not any("RANK" in variables(pod) for pod in pods)


def variables(pod: Json) -> dict[str, str]:
    """The environment of the main container."""
    return {one["name"]: one.get("value", "") for one in pod["spec"]["containers"][0].get("env", [])}


@pytest.mark.parametrize("kind", KINDS)
def test_a_gate_in_the_templates_reaches_every_pod(workloads: Workloads, nodes: Fleet, kind: str) -> None:
    """All pods are there at once, held."""
    nodes.grid("1x1x1")
    workloads.create(kind, "train", replicas(workloads, kind, gated=True))
    assert held(workloads.wait(2 if kind == "JAXJob" else 3))


@pytest.mark.parametrize("kind", KINDS)
def test_a_suspended_one_makes_no_pods_until_it_resumes(workloads: Workloads, nodes: Fleet, kind: str) -> None:
    """What changed in the templates meanwhile reaches the pods."""
    nodes.grid("1x1x1")
    workloads.create(kind, "train", {"runPolicy": {"suspend": True}, **replicas(workloads, kind)})

    def suspended() -> bool:
        conditions = workloads.get(kind, "train").get("status", {}).get("conditions", [])
        return any(one["type"] == "Suspended" and one["status"] == "True" for one in conditions)

    eventually(suspended, message="the operator has seen it")
    always(lambda: not workloads.pods(), seconds=0.5)
    field, _, types = KINDS[kind]
    changes = {f"/spec/{field}/{name}/template/spec/schedulingGates": [GATE] for name in types}
    workloads.set(kind, "train", {**changes, "/spec/runPolicy/suspend": False})
    assert held(workloads.wait(2 if kind == "JAXJob" else 3))


def test_a_typo_is_refused_by_its_own_webhook(workloads: Workloads) -> None:
    """The main container of a PyTorchJob must be called pytorch."""
    template = workloads.template(container="main")
    with pytest.raises(ClientError, match=r"validator\.pytorchjob.*pytorch"):
        workloads.create("PyTorchJob", "train", {"pytorchReplicaSpecs": {"Worker": {"template": template}}})
