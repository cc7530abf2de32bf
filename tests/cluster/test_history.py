"""`topogate history` over a night of a real service: a gang placed, one that waits, a host and a leader lost.

On a control plane of its own: its log is that of two replicas that nobody else uses. The API server reads it from a
kubelet that is imitated, as there are no containers here.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.api import names
from local.controlplane import ControlPlane
from local.service import NAMESPACE, Service
from tests.cluster.gangs.conftest import CONFIG_MAPS, TEST_POLICY, PolicyInForce
from tests.support.callers import caller, rule
from tests.support.cli import topogate
from tests.support.eventually import eventually
from tests.support.gangs import Namespace, require
from tests.support.kubelet import Kubelet
from tests.support.seen_fleet import SeenFleet
from webhook.snapshot.installation import SERVICE_PODS

pytestmark = pytest.mark.timeout(300)

Json = dict[str, Any]
POLICY = f"{TEST_POLICY}nodeLoss: evict\ntimeouts: {{node: 2s}}\n"
LABELS = dict(one.split("=") for one in SERVICE_PODS.split(","))


@dataclass(frozen=True, slots=True)
class Night:
    """What has happened: the host that was lost, the logs of the replicas, and who led first."""

    kubeconfig: Path
    lost: str
    logs: tuple[Path, Path]
    first: int
    kubelet: Kubelet


@pytest.fixture(scope="module")
def night(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    """Live through it once."""
    service = Service.install(plane)
    service.log_format = "json"
    client = plane.client
    client.create(CONFIG_MAPS, {"metadata": {"name": "topogate-policy"}, "data": {"policy.yaml": TEST_POLICY}})
    service.start(2)
    try:
        with Kubelet(client, "logs", tmp_path_factory.mktemp("kubelet")) as kubelet:
            logs = (service.directory / "replica-0.log", service.directory / "replica-1.log")
            for number, log in enumerate(logs):
                kubelet.runs(NAMESPACE, f"topogate-{number}", log, labels=LABELS)
            lost, first = _live(plane, service, kubelet)
            yield Night(plane.kubeconfig, lost, logs, first, kubelet)
    finally:
        service.stop()


def _live(plane: ControlPlane, service: Service, kubelet: Kubelet) -> tuple[str, int]:
    client = plane.client
    leader = eventually(service.leader, message="a replica leads")
    fleet = SeenFleet(client, "night", service)
    fleet.grid("1x2x3")
    for name in ("alice", "bob"):
        client.create("/api/v1/namespaces", {"metadata": {"name": name}})
        eventually(lambda name=name: client.find(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
    gangs = Namespace(client, "alice", fleet)
    gangs.submit("train", pods=2, annotations=require("rack"), spec={"backoffLimit": 6})
    before = gangs.all_bound("train", 2)
    gangs.submit("fill", pods=2, annotations=require("rack"))
    gangs.all_bound("fill", 2)
    gangs.submit("late", pods=2, annotations=require("rack"))
    gangs.waits("late")

    PolicyInForce(client, service).set(POLICY)
    fleet.fail(before[1])
    eventually(lambda: gangs.bound("train").get(1) not in (None, before[1]), message=lambda: gangs.describe("train"))
    eventually(lambda: gangs.phase("train") == "Running", message=lambda: gangs.describe("train"))

    number = leader.number
    leader.kill()
    eventually(service.leader, message="the other replica leads")
    kubelet.restarted(NAMESPACE, f"topogate-{number}")
    service.start(2)
    client.delete(f"{gangs.jobs_path}/fill")
    gangs.all_bound("late", 2)
    eventually(lambda: gangs.phase("late") == "Running", message=lambda: gangs.describe("late"))
    return before[1], number


def records(answer: Json, workload: str) -> list[tuple[str, str | None]]:
    return [(one["event"], one["reason"]) for one in answer["records"] if one["workload"] == workload]


def one_record(answer: Json, event: str, workload: str | None = None) -> Json:
    (found,) = [one for one in answer["records"] if (one["event"], one["workload"]) == (event, workload)]
    assert isinstance(found, dict)
    return found


def check(answer: Json, night: Night) -> None:
    """Each thing that has happened is told once, by whoever led then."""
    train = [event for event, _ in records(answer, "job/train")]
    assert train[:2] == ["Placed", "Running"]
    assert "Repaired" in train
    repaired = one_record(answer, "Repaired", "job/train")
    assert night.lost in repaired["message"]
    assert (repaired["pods"], repaired["hosts"], repaired["revision"]) == (1, 1, 2)
    late = records(answer, "job/late")
    assert late[0] == ("Waiting", "Fragmented")
    assert [event for event, _ in late if event != "Waiting"] == ["Placed", "Running"]
    assert late[-1][0] == "Running"
    placed = one_record(answer, "Placed", "job/late")
    assert placed["waitedSeconds"] > 0
    assert (placed["pods"], placed["hosts"]) == (2, 2)
    assert records(answer, "job/fill")[-1][0] == "Deleted"
    assert one_record(answer, "PolicyTaken")["policy"]
    leaders = [one["replica"] for one in answer["records"] if one["event"] == "LeadershipGained"]
    assert [leader.partition("_")[0] for leader in leaders][:2] == [
        f"topogate-{night.first}",
        f"topogate-{1 - night.first}",
    ]
    summary = answer["summary"]
    assert (summary["placed"], summary["repaired"], summary["deleted"], summary["waiting"]) == (3, 1, 1, [])
    assert summary["policyChanges"] == 1
    assert summary["leaderChanges"] == len(leaders) >= 2
    assert summary["longestWaitSeconds"] == placed["waitedSeconds"]


def test_saved_logs_tell_the_night(night: Night) -> None:
    """In any order of the files."""
    files = [str(one) for one in night.logs]
    answers = []
    for ordered in (files, files[::-1]):
        words = [word for file in ordered for word in ("-f", file)]
        done = topogate(night.kubeconfig, "history", *words, "-o", "json")
        assert (done.returncode, done.stderr) == (0, "")
        answers.append(json.loads(done.stdout))
    check(answers[0], night)
    assert answers[0]["records"] == answers[1]["records"]
    assert all(source["unreadable"] == 0 for source in answers[0]["sources"])


def test_the_logs_are_read_through_the_api_server(night: Night) -> None:
    """Those of the container before the restart too: what the first leader decided is in it."""
    asked = len(night.kubelet.asked)
    done = topogate(night.kubeconfig, "history", "-A", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    check(answer, night)
    requests = night.kubelet.asked[asked:]
    assert {one["path"].rpartition("/")[2] for one in requests} == {"topogate"}
    assert [one["path"].split("/")[3] for one in requests if one.get("previous") == "true"] == [
        f"topogate-{night.first}"
    ] * 2
    assert all("limitBytes" in one for one in requests)
    assert answer["completeSince"] is not None
    saved = [word for file in night.logs for word in ("-f", str(file))]
    again = json.loads(topogate(night.kubeconfig, "history", *saved, "-o", "json").stdout)
    assert answer["records"] == again["records"]


def test_one_gang_of_a_namespace_is_told_as_a_table(night: Night) -> None:
    done = topogate(night.kubeconfig, "history", "job/train", "-n", "alice")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "1 gang placed" in lines[0]
    assert any(line.startswith("records begin at ") and "the log of topogate-" in line for line in lines)
    rows = [line.split() for line in lines if line.split()[1:2] == ["job/train"]]
    assert [row[2] for row in rows][:2] == ["Placed", "Running"]
    none = topogate(night.kubeconfig, "history", "job/trian", "-n", "alice")
    assert (none.returncode, 'did you mean "train"?' in none.stderr) == (1, True)


@pytest.mark.parametrize(
    ("rights", "missing"),
    [((), "list pods"), ((rule("pods"),), "get pods/log"), ((rule("pods"), rule("pods/log")), None)],
)
def test_rights_that_are_missing_are_named_with_what_helps_without_them(
    plane: ControlPlane, night: Night, tmp_path: Path, rights: tuple[Json, ...], missing: str | None
) -> None:
    """With both, in the service's namespace alone, the whole answer is there."""
    who = caller(plane, tmp_path, namespace=NAMESPACE, name=f"reader-{len(rights)}", in_namespace=rights)
    done = topogate(who, "history", "-A")
    if missing is None:
        assert (done.returncode, done.stderr) == (0, "")
        assert "3 gangs placed" in done.stdout
        return
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"topogate: no right to {missing} in namespace {NAMESPACE}")
    assert "kubectl get events" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_kubelet_that_does_not_answer_is_told(night: Night) -> None:
    night.kubelet.silent = True
    try:
        done = topogate(night.kubeconfig, "history", "-A")
    finally:
        night.kubelet.silent = False
    assert done.returncode == 2
    assert done.stderr.startswith("topogate: the log of pod topogate-0 cannot be read (")


def test_a_support_bundle_has_the_logs_of_the_service(night: Night, tmp_path: Path) -> None:
    """And `history` reads them out of it."""
    archive = tmp_path / "bundle.tar.gz"
    topogate(night.kubeconfig, "support-bundle", "-o", str(archive))
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.glob("topogate-support-*")
    saved = sorted(folder.glob("service/topogate-*/log*.txt"))
    assert [str(one.relative_to(folder / "service")) for one in saved] == sorted(
        ["topogate-0/log.txt", "topogate-1/log.txt", f"topogate-{night.first}/log-previous.txt"]
    )
    words = [word for file in saved for word in ("-f", str(file))]
    check(json.loads(topogate(night.kubeconfig, "history", *words, "-o", "json").stdout), night)
    assert names.SERVICE_NAME in saved[0].read_text()
