"""The local control plane behaves like a cluster, and leaves nothing behind.

The commands of docs/contributor/local-control-plane.md, among others.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from local import controlplane, kubelets, supervisor
from local.client import Client, ClientError
from local.controlplane import ControlPlane, ControlPlaneError, KubectlError
from local.nodes import LEASES, NODES
from local.ports import free_ports
from local.processes import Child
from local.programs import PROGRAMS, build_key
from local.releases import DEFAULT, patch_version
from tests.support.eventually import always, eventually
from tests.support.fleet import Fleet

ROOT = Path(__file__).parents[2]


def job(name: str, *, pods: int, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return an Indexed Job whose pods take a whole host each."""
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    return {
        "metadata": {"name": name},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "template": {
                "metadata": {"annotations": annotations or {}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
            **spec,
        },
    }


class Jobs:
    """The Jobs of one namespace."""

    def __init__(self, client: Client, namespace: str, selector: dict[str, str]) -> None:
        self.client = client
        self.namespace = namespace
        self.selector = selector

    def create(self, name: str, **options: Any) -> None:
        body = job(name, **options)
        body["spec"]["template"]["spec"]["nodeSelector"] = self.selector
        self.client.create(f"/apis/batch/v1/namespaces/{self.namespace}/jobs", body)

    def pods(self, name: str) -> list[Any]:
        return self.client.items(f"/api/v1/namespaces/{self.namespace}/pods", selector=f"job-name={name}")

    def status(self, name: str) -> Any:
        return self.client.get(f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{name}")["status"]

    def running(self, name: str, count: int) -> list[Any]:
        """Wait for `count` running pods."""

        def all_running() -> list[Any]:
            listed = self.pods(name)
            assert [pod["status"]["phase"] for pod in listed] == ["Running"] * count
            return listed

        return eventually(all_running, message=f"{count} running pods of job {name}")


@pytest.fixture
def jobs(client: Client, namespace: str, nodes: Fleet) -> Jobs:
    return Jobs(client, namespace, nodes.selector)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that nobody has waited for yet is gone for our purpose.
    return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes() if Path("/proc").exists() else True


@pytest.mark.core
def test_pods_of_a_job_run_on_simulated_nodes(jobs: Jobs, nodes: Fleet) -> None:
    """The stock scheduler binds a Job's pods, and their kubelets report them running."""
    hosts = nodes.grid("1x2x2")
    jobs.create("train", pods=4)
    assert {pod["spec"]["nodeName"] for pod in jobs.running("train", 4)} == set(hosts)


def test_a_pod_runs_until_it_is_told_to_end(jobs: Jobs, nodes: Fleet, client: Client, namespace: str) -> None:
    """`complete-after` in the template ends all pods of a Job well; fail_pod ends one pod badly, with its exit code."""
    nodes.grid("1x1x2")
    jobs.create("short", pods=2, annotations={kubelets.COMPLETE_AFTER: "100ms"})
    eventually(lambda: jobs.status("short").get("succeeded") == 2, message="both pods completed")
    jobs.create("long", pods=2, backoffLimit=0)
    victim = jobs.running("long", 2)[0]["metadata"]["name"]
    kubelets.fail_pod(client, namespace, victim, exit_code=3)
    eventually(lambda: jobs.status("long").get("failed"), message="the Job has failed")
    failed = next(pod for pod in jobs.pods("long") if pod["metadata"]["name"] == victim)
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_a_pod_on_a_dead_host_terminates_when_the_host_is_back(jobs: Jobs, nodes: Fleet, client: Client) -> None:
    """A deleted pod keeps its place while nobody plays its kubelet."""
    nodes.grid("1x1x1")
    jobs.create("stuck", pods=1)
    pod = jobs.running("stuck", 1)[0]
    host = pod["spec"]["nodeName"]
    path = f"/api/v1/namespaces/{jobs.namespace}/pods/{pod['metadata']['name']}"
    nodes.fail(host)

    def tainted() -> bool:
        taints = client.get(f"/api/v1/nodes/{host}")["spec"].get("taints", [])
        return {"node.kubernetes.io/not-ready"} <= {taint["key"] for taint in taints}

    eventually(tainted, message="the node controller saw the node go")
    client.delete(path)
    always(lambda: client.find(path), seconds=1.0, message="the pod is still there; a live host lets it go in 0.1 s")
    nodes.recover(host)
    eventually(lambda: client.find(path) is None, message="the pod is gone")


def test_hosts_that_return_under_their_names_have_kubelets_at_once(client: Client, nodes: Fleet) -> None:
    """Their Leases are their own, not those of the hosts before, which the garbage collector would take away later."""
    for _ in range(4):
        hosts = nodes.grid("1x2x8")
        owners = {host: client.get(f"{LEASES}/{host}")["metadata"]["ownerReferences"][0]["uid"] for host in hosts}
        assert owners == {host: client.get(f"{NODES}/{host}")["metadata"]["uid"] for host in hosts}
        nodes.clear()


def test_a_pod_deleted_with_stop_after_keeps_terminating(jobs: Jobs, nodes: Fleet, client: Client) -> None:
    """`stop-after` makes a pod take that long to end, like a trainer that saves its state."""
    nodes.grid("1x1x1")
    jobs.create("slow", pods=1, annotations={kubelets.STOP_AFTER: "1h"})
    pod = jobs.running("slow", 1)[0]
    path = f"/api/v1/namespaces/{jobs.namespace}/pods/{pod['metadata']['name']}"
    client.delete(path)
    jobs.create("quick", pods=1)  # cannot start: the room is still taken
    seen = eventually(lambda: [p for p in jobs.pods("quick") if p["status"].get("conditions")])
    assert seen[0]["status"]["conditions"][0]["reason"] == "Unschedulable"
    assert client.get(path)["status"]["phase"] == "Running"


@pytest.mark.core
def test_the_control_plane_is_of_the_version_asked_for(client: Client, request: pytest.FixtureRequest) -> None:
    """`--kubernetes 1.30` is no other one; without it, the usual one."""
    wanted = patch_version(request.config.option.kubernetes or DEFAULT)
    assert client.get("/version")["gitVersion"] == wanted


@pytest.mark.core
def test_controllers_have_names_of_their_own(client: Client) -> None:
    """The Job controller writes as its service account, so that a webhook can tell it from a user."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    admin = client.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    assert admin["status"]["userInfo"]["username"] == "admin"
    accounts = client.items("/api/v1/namespaces/kube-system/serviceaccounts")
    assert "job-controller" in {account["metadata"]["name"] for account in accounts}


def test_the_api_server_says_no_in_its_own_words(client: Client, namespace: str) -> None:
    """A refused request raises ClientError with status, reason and causes."""
    with pytest.raises(ClientError) as refused:
        client.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "UPPER"}, "spec": {}})
    assert (refused.value.status, refused.value.reason) == (422, "Invalid")
    assert "metadata.name" in {cause["field"] for cause in refused.value.details["causes"]}


def test_kubectl_failures_carry_what_kubectl_said(control_plane: ControlPlane) -> None:
    """A kubectl that ends badly raises with its command and its stderr, unless the caller wants to look."""
    with pytest.raises(KubectlError, match=r"kubectl get pods/absent ended with status 1:\n.*NotFound"):
        control_plane.kubectl("get", "pods/absent")
    assert control_plane.kubectl("get", "pods/absent", check=False).returncode == 1


def test_instances_run_side_by_side_and_end_alone(
    control_plane: ControlPlane, programs: dict[str, Path], tmp_path: Path
) -> None:
    """A second control plane is another cluster; ending it ends its five programs and not the first one's.

    Its API server can be restarted: another process with the same objects, while the others go on.
    """
    with ControlPlane.start(tmp_path / "second", programs=programs) as second:
        second.client.create("/api/v1/namespaces", {"metadata": {"name": "only-here"}})
        assert control_plane.client.find("/api/v1/namespaces/only-here") is None
        pids = dict(second.pids)
        assert len(pids) == 5
        with pytest.raises(ControlPlaneError, match="already runs in"):
            ControlPlane.start(tmp_path / "second", programs=programs)
        with pytest.raises(ControlPlaneError, match="only the process that has started"):
            ControlPlane.find(tmp_path / "second").restart_api_server()
        second.restart_api_server()
        restarted = dict(second.pids)
        assert {name for name in pids if pids[name] != restarted[name]} == {"kube-apiserver"}
        assert second.client.find("/api/v1/namespaces/only-here") is not None
        second.check()
        pids |= {"restarted": restarted["kube-apiserver"]}
    assert not {name for name, pid in pids.items() if alive(pid)}
    control_plane.check()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT], ids=["kill-9", "ctrl-c"])
def test_programs_end_with_the_process_that_wanted_them(programs: dict[str, Path], tmp_path: Path, end: int) -> None:
    """However their parent dies, nothing of a control plane stays; a fork of the parent does not keep it alive."""
    script = textwrap.dedent(
        """
        import os, pathlib, signal, sys, time
        # A test run in the background of a shell inherits that Ctrl-C is ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from local.controlplane import ControlPlane
        from local.programs import PROGRAMS
        files = {program.name: pathlib.Path(sys.argv[2 + n]) for n, program in enumerate(PROGRAMS)}
        running = ControlPlane.start(pathlib.Path(sys.argv[1]), programs=files)
        fork = os.fork()
        if fork == 0:
            os.close(1)
            time.sleep(3600)
        print(running.pid, fork, *running.pids.values(), flush=True)
        while True:  # a signal between the check for signals and one long sleep would be seen after that sleep
            time.sleep(0.1)
        """
    )
    files = [str(programs[program.name]) for program in PROGRAMS]
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "cp"), *files],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
    assert parent.stdout
    with parent.stdout:
        said = parent.stdout.readline().split()
    if not said:
        raise AssertionError(f"the parent ended with status {parent.wait()} before its control plane ran")
    owner, fork, *pids = map(int, said)
    try:
        assert len(pids) == 5
        assert all(alive(pid) for pid in pids)
        parent.send_signal(end)
        parent.wait()
        eventually(lambda: not any(alive(pid) for pid in [owner, *pids]), message="all programs have ended")
        assert not (tmp_path / "cp" / "state.json").exists()
    finally:
        parent.kill()
        parent.wait()
        os.kill(fork, signal.SIGKILL)


def test_a_program_that_dies_ends_the_rest_and_is_quoted(programs: dict[str, Path], tmp_path: Path) -> None:
    """Half a control plane is none: the reason and the end of the log are kept for whoever asks."""
    with ControlPlane.start(tmp_path, programs=programs) as running:
        os.kill(running.pids["kube-scheduler"], signal.SIGKILL)
        eventually(lambda: not controlplane.is_running(tmp_path), message="the instance has ended")
        with pytest.raises(ControlPlaneError, match=r"kube-scheduler ended with status -9; its log .*ends:"):
            running.check()
        assert not {name for name, pid in running.pids.items() if alive(pid) and name != "kube-scheduler"}


@pytest.mark.parametrize("taken", [0, 1, 2], ids=["etcd", "etcd-peer", "api-server"])
def test_a_port_that_somebody_took_is_replaced(
    programs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    """Between the choice of a port and its use somebody may take it: the start is tried again with other ports."""
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", 0))
        somebody.listen()
        first = free_ports(3)
        first[taken] = somebody.getsockname()[1]
        choices = [free_ports(3), first]
        monkeypatch.setattr(supervisor, "free_ports", lambda _count: choices.pop())
        children: dict[str, Child] = {}
        files = {name: str(path) for name, path in programs.items()}
        order = supervisor.Order(directory=str(tmp_path), programs=files, api_server_flags=[], environment={}, parent=0)
        try:
            layout = supervisor.start(order, tmp_path, children)
            assert (choices, layout.api_port == first[2]) == ([], False)
            assert all(child.running for child in children.values())
        finally:
            for child in children.values():
                child.kill()


def test_a_program_that_does_not_start_is_quoted(programs: dict[str, Path], tmp_path: Path) -> None:
    """A bad flag is answered with the program's own words."""
    with pytest.raises(
        ControlPlaneError, match=r"(?s)kube-apiserver ended with status 1.*unknown flag: --no-such-flag"
    ):
        ControlPlane.start(tmp_path, programs=programs, api_server_flags=["--no-such-flag"])
    assert not controlplane.is_running(tmp_path)


def run_local(*arguments: str, cache: Path, programs: dict[str, Path]) -> subprocess.CompletedProcess[str]:
    """Run `python -m local` with a cache directory in which the programs are already."""
    kept = cache / "topogate" / "local" / build_key()
    kept.mkdir(parents=True, exist_ok=True)
    for path in programs.values():
        if not (kept / path.name).exists():
            (kept / path.name).symlink_to(path)
    return subprocess.run(
        [sys.executable, "-m", "local", *arguments],
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(cache), "KUBECONFIG": "/nonexistent/not-to-be-touched"},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


def test_the_command_line_runs_a_control_plane_in_the_background(programs: dict[str, Path], tmp_path: Path) -> None:
    """up leaves a cluster running and prints its KUBECONFIG line; status finds it; kubectl reaches it; down ends it.

    Also after `kubectl config` has written the kubeconfig in its own way.
    """
    run = functools.partial(run_local, cache=tmp_path, programs=programs)
    assert run("status").returncode == 1
    up = run("up", "--nodes", "1x2x2")
    try:
        line = f"export KUBECONFIG={tmp_path}/topogate/local/instance/kubeconfig\n"
        assert (up.returncode, up.stdout) == (0, line), up.stderr
        assert "building" not in up.stderr
        assert run("kubeconfig").stdout == line
        state = json.loads(run("status", "-o", "json").stdout)
        assert (state["running"], state["nodes"], state["nodesReady"], len(state["pids"])) == (True, 4, 4, 5)
        assert run("kubectl", "get", "nodes", "-o", "name").stdout.split()[-1] == "node/host-003"
        again = run("up")
        assert (again.returncode, again.stdout) == (0, line)
        assert "already running" in again.stderr
        # Whatever people do to the kubeconfig that they were given, it is theirs.
        assert run("kubectl", "config", "set-context", "--current", "--namespace=kube-system").returncode == 0
        assert run("kubectl", "get", "serviceaccount/job-controller").returncode == 0
        assert run("kubectl", "config", "delete-user", "admin").returncode == 0
        assert json.loads(run("status", "-o", "json").stdout) == state
    finally:
        assert run("down").returncode == 0
    assert not any(alive(pid) for pid in state["pids"].values())
    stopped = run("down")
    assert (stopped.returncode, stopped.stdout) == (1, "")
    assert stopped.stderr == f"Error: no control plane runs in {tmp_path}/topogate/local/instance\n"
