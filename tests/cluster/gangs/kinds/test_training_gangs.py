"""Kubeflow's jobs, MPIJobs and TrainJobs as gangs: pod sets with different needs, roles, success."""

from __future__ import annotations

import pytest

from engine.api import names
from local.kubelets import complete_pod, fail_pod
from tests.support.eventually import always, eventually
from tests.support.gangs import require
from tests.support.kind_cases import CASES, job, mpi, runtime, train_job
from tests.support.kind_gangs import Gangs, at
from tests.support.workloads import Json

OPERATOR = pytest.mark.controllers("training-operator")
MPI = pytest.mark.controllers("mpi-operator")
TRAINER = pytest.mark.controllers("trainer")


def replicas(gangs: Gangs, count: int, container: str, *, gpus: int = 8, **fields: object) -> Json:
    """One replica type; `asked` are the annotations of its template."""
    asked = fields.pop("asked", None)
    return {"replicas": count, "template": gangs.template(container=container, gpus=gpus, annotations=asked), **fields}


def only(hosts: dict[tuple[str, str], str], pod_set: str) -> dict[tuple[str, str], str]:
    return {key: host for key, host in hosts.items() if key[0] == pod_set}


@OPERATOR
def test_parameter_servers_and_workers_share_a_rack(gangs: Gangs) -> None:
    """Servers without GPUs beside workers that fill the hosts: all in the rack that has room for the workers."""
    gangs.fleet.grid("1x2x3")
    types = {"PS": replicas(gangs, 2, "tensorflow", gpus=0), "Worker": replicas(gangs, 3, "tensorflow")}
    gangs.create("TFJob", "train", {"tfReplicaSpecs": types}, annotations=require("rack"))
    hosts = gangs.all_run(5)
    assert len(gangs.racks(hosts)) == 1
    assert len(set(only(hosts, "worker").values())) == 3


@OPERATOR
def test_workers_alone_may_ask(gangs: Gangs) -> None:
    """Only the workers' template asks for a rack; the master, which needs a host as well, is beside it."""
    gangs.fleet.grid("1x2x3")
    types = {"Master": replicas(gangs, 1, "pytorch"), "Worker": replicas(gangs, 3, "pytorch", asked=require("rack"))}
    gangs.create("PyTorchJob", "train", {"pytorchReplicaSpecs": types})
    eventually(
        lambda: [pod["status"].get("phase") for pod in gangs.pods().values()] == ["Running"] * 4, message=gangs.describe
    )
    assert len(gangs.racks(only(gangs.hosts(), "worker"))) == 1


@OPERATOR
def test_an_elastic_job_starts_with_its_least_and_grows(gangs: Gangs) -> None:
    """minReplicas 2 of 4 workers: two run in front of two hosts, the others join when there is room."""
    gangs.fleet.grid("1x1x2")
    types = {"Worker": replicas(gangs, 4, "pytorch")}
    spec = {"pytorchReplicaSpecs": types, "elasticPolicy": {"minReplicas": 2, "maxReplicas": 4, "rdzvBackend": "c10d"}}
    gangs.create("PyTorchJob", "train", spec, annotations=require("rack"))
    eventually(lambda: len(gangs.hosts()) == 2, message=gangs.describe)
    gangs.fleet.host("host-002", block="block-0", rack="rack-00")
    gangs.fleet.host("host-003", block="block-0", rack="rack-00")
    gangs.all_run(4)


@OPERATOR
def test_a_job_with_a_minimum_starts_with_its_parameter_server(gangs: Gangs) -> None:
    """A pod group's minimum of 3 on both templates: of five pods four start where four have room, and then the last."""
    gangs.fleet.grid("1x1x4")
    types = {"PS": replicas(gangs, 1, "tensorflow"), "Worker": replicas(gangs, 4, "tensorflow")}
    for each in types.values():
        each["template"].setdefault("metadata", {})["labels"] = {names.POD_GROUP_NAME: "tf", names.POD_GROUP_MIN: "3"}
    gangs.create("TFJob", "train", {"tfReplicaSpecs": types})
    eventually(lambda: len(gangs.hosts()) == 4, message=gangs.describe)
    assert len(only(gangs.hosts(), "ps")) == 1
    gangs.fleet.host("host-004", block="block-0", rack="rack-00")
    gangs.all_run(5)


@OPERATOR
def test_a_worker_that_failed_goes_back_to_its_slot(gangs: Gangs) -> None:
    """restartPolicy ExitCode with a retryable code: the operator makes the pod again."""
    gangs.fleet.grid("1x1x4")
    worker = replicas(gangs, 3, "pytorch", restartPolicy="ExitCode")
    types = {"Master": replicas(gangs, 1, "pytorch"), "Worker": worker}
    gangs.create("PyTorchJob", "train", {"pytorchReplicaSpecs": types}, annotations=require("rack"))
    before = gangs.all_run(4)
    failed = gangs.member(("worker", "1"))["metadata"]
    fail_pod(gangs.client, gangs.namespace, failed["name"], exit_code=130)

    def back() -> bool:
        found = [pod for pod in gangs.members() if pod["metadata"]["name"] == failed["name"]]
        return bool(found) and found[0]["metadata"]["uid"] != failed["uid"]

    eventually(back, message=gangs.describe)
    assert gangs.all_run(4) == before


@OPERATOR
def test_the_end_of_the_master_gives_the_room_back(gangs: Gangs) -> None:
    """The job has succeeded, its other pods go, and the next gang runs."""
    gangs.fleet.grid("1x1x4")
    CASES["pytorchjob"].submit(gangs, runPolicy={"cleanPodPolicy": "All"})
    gangs.all_run(4)
    CASES["job"].submit(gangs, "other")
    gangs.waits("Job", "other")
    complete_pod(gangs.client, gangs.namespace, gangs.member(("master", "0"))["metadata"]["name"])
    eventually(lambda: gangs.phase("Job", "other") == "Running", message=gangs.describe)
    eventually(lambda: gangs.phase("PyTorchJob", "train") == "Finished", message=gangs.describe)


@OPERATOR
def test_a_worker_that_has_succeeded_gives_its_slot_back(gangs: Gangs) -> None:
    """The master runs on, nothing of the gang is missing, and another gang takes the host that is free."""
    gangs.fleet.grid("1x1x3")
    types = {"Master": replicas(gangs, 1, "pytorch"), "Worker": replicas(gangs, 2, "pytorch")}
    gangs.create("PyTorchJob", "train", {"pytorchReplicaSpecs": types}, annotations=require("rack"))
    hosts = gangs.all_run(3)
    gangs.create("Job", "other", job(gangs, pods=1), annotations=require("rack"))
    gangs.waits("Job", "other")
    complete_pod(gangs.client, gangs.namespace, gangs.member(("worker", "1"))["metadata"]["name"])
    eventually(lambda: gangs.phase("Job", "other") == "Running", message=gangs.describe)
    assert hosts["worker", "1"] in gangs.hosts().values()
    always(lambda: gangs.phase("PyTorchJob", "train") == "Running", seconds=1.0)


@OPERATOR
def test_its_deadline_does_not_run_while_it_waits(gangs: Gangs) -> None:
    """activeDeadlineSeconds is the user's and begins when the job is resumed."""
    gangs.fleet.grid("1x1x3")
    CASES["pytorchjob"].submit(gangs, runPolicy={"activeDeadlineSeconds": 3})
    gangs.waits("PyTorchJob", "train")
    always(lambda: gangs.phase("PyTorchJob", "train") == "Waiting", seconds=4)
    found = gangs.get("PyTorchJob", "train")
    assert at(found, ".spec.runPolicy.activeDeadlineSeconds") == 3
    assert not any(one["type"] == "Failed" for one in found.get("status", {}).get("conditions", []))


@MPI
def test_a_launcher_that_needs_nothing_is_in_the_rack_of_its_workers(gangs: Gangs) -> None:
    """One launcher without GPUs, four workers that fill the rack's hosts."""
    gangs.fleet.grid("1x2x4")
    types = {"Launcher": replicas(gangs, 1, "main", gpus=0), "Worker": replicas(gangs, 4, "main")}
    gangs.create("MPIJob", "train", {"mpiReplicaSpecs": types}, annotations=require("rack"))
    hosts = gangs.all_run(5)
    assert len(gangs.racks(hosts)) == 1
    assert len(set(only(hosts, "worker").values())) == 4


@MPI
def test_a_launcher_that_comes_last_has_its_place(gangs: Gangs) -> None:
    """WaitForWorkersReady: the workers run before there is a launcher, whose slot is kept from another gang."""
    gangs.fleet.grid("1x1x4")
    spec = mpi(gangs, launcherCreationPolicy="WaitForWorkersReady")
    gangs.create("MPIJob", "train", spec, annotations=require("rack"))
    gangs.planned("MPIJob", "train")
    CASES["job"].submit(gangs, "other", require("host"), parallelism=1, completions=1)
    hosts = gangs.all_run(4)
    assert {name for name, _ in hosts} == {"launcher", "worker"}
    gangs.waits("Job", "other")


@MPI
def test_workers_are_ranked_after_a_launcher_that_works(gangs: Gangs) -> None:
    """runLauncherAsWorker: the operator numbers the workers from one, their ranks begin at zero all the same."""
    order = gangs.fleet.grid("1x1x4")
    gangs.create("MPIJob", "train", mpi(gangs, runLauncherAsWorker=True), annotations=require("rack"))
    hosts = gangs.all_run(4)
    workers = [hosts["worker", str(rank)] for rank in range(3)]
    assert workers == sorted(workers, key=order.index)


@MPI
def test_the_end_of_the_launcher_gives_the_room_back(gangs: Gangs) -> None:
    """Workers sleep for ever: the launcher's success is the job's."""
    gangs.fleet.grid("1x1x4")
    CASES["mpijob"].submit(gangs, runPolicy={"cleanPodPolicy": "Running"})
    gangs.all_run(4)
    CASES["job"].submit(gangs, "other")
    gangs.waits("Job", "other")
    complete_pod(gangs.client, gangs.namespace, gangs.member(("launcher", "0"))["metadata"]["name"])
    eventually(lambda: gangs.phase("Job", "other") == "Running", message=gangs.describe)


@TRAINER
def test_a_train_job_is_one_gang_with_its_jobset(gangs: Gangs) -> None:
    """One Placement, of the TrainJob; neither its JobSet nor its Job has one, and none of them is suspended by us."""
    gangs.fleet.grid("1x1x4")
    CASES["trainjob"].submit(gangs)
    gangs.all_run(4)
    assert {placement["spec"]["workload"]["kind"] for placement in gangs.placements()} == {"TrainJob"}
    for kind in ("JobSet", "Job"):
        assert not any(names.HELD_BY in one["metadata"].get("annotations", {}) for one in gangs.items(kind))


@TRAINER
def test_a_runtime_may_ask_for_its_train_jobs(gangs: Gangs) -> None:
    """The annotation on the pod template of the runtime: a TrainJob that says nothing itself is a gang by it."""
    gangs.fleet.grid("1x2x4")
    runtime(gangs)
    path = "/spec/template/spec/replicatedJobs/0/template/spec/template/metadata"
    gangs.set("TrainingRuntime", "torch", {path: {"annotations": require("rack")}})
    gangs.create("TrainJob", "train", train_job(gangs))
    assert len(gangs.racks(gangs.all_run(4))) == 1
    assert len(gangs.placements()) == 1
