"""The image as it is shipped: what is in it, and that it serves a cluster as a container without any rights."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local import nodes
from local.controlplane import ControlPlane
from local.nodes import Grid
from local.ports import free_ports
from local.processes import spawn
from local.service import ACCOUNT, NAMESPACE, Replica, Service
from tests.support.contained import REVISION, USER, VERSION, Image, contained
from tests.support.fleet import Fleet
from tests.support.gangs import Namespace, require

ROOT = Path(__file__).parents[2]
PATH = {"PATH": "/opt/topogate/bin"}
MOST_BYTES = 150_000_000
SECRETS = "/var/run/secrets/kubernetes.io/serviceaccount"
# Every import of the packages that are shipped, also those inside functions: is the module there?
IMPORTS = """
import ast, importlib, importlib.util, pathlib, sys
import webhook
packages = pathlib.Path(webhook.__file__).parents[1]
wanted = set()
for name in ("webhook", "engine", "certs"):
    for path in (packages / name).rglob("*.py"):
        wanted.add(".".join(path.relative_to(packages).with_suffix("").parts).removesuffix(".__init__"))
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                wanted.add(node.module)
for name in sorted(wanted):
    importlib.import_module(name)
print(len(wanted))
"""


def members(image: Image) -> Iterator[tuple[str, os.stat_result]]:
    for path in image.root.rglob("*"):
        yield f"/{path.relative_to(image.root)}", path.lstat()


def run(image: Image, *program: str, files: dict[str, Path] | None = None, directory: str = "/tmp") -> str:
    command = contained(image.root, program, environment=PATH, files=files, directory=directory)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def configuration(image: Image) -> dict[str, Any]:
    """The configuration in the archive, found as a container runtime finds it."""
    with tarfile.open(image.archive) as archive:

        def blob(digest: str) -> dict[str, Any]:
            file = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert file is not None
            read: dict[str, Any] = json.loads(file.read())
            return read

        index = archive.extractfile("index.json")
        assert index is not None
        manifest = blob(json.loads(index.read())["manifests"][0]["digest"])
        return blob(manifest["config"]["digest"])


def test_it_is_small(image: Image) -> None:
    """Unpacked, with its base."""
    total = sum(status.st_size for _, status in members(image) if stat.S_ISREG(status.st_mode))
    assert total < MOST_BYTES


def test_nothing_is_in_it_that_nobody_needs(image: Image) -> None:
    """No shell, no package manager, no tests, and byte code once."""
    names = {name for name, _ in members(image)}
    programs = {name.rpartition("/")[2] for name in names if "/bin/" in name or "/sbin/" in name}
    assert not programs & {"sh", "bash", "dash", "busybox", "apt", "apt-get", "dpkg", "pip", "pip3", "perl", "openssl"}
    packages = "/opt/topogate/lib/python3.13/site-packages"
    assert f"{packages}/webhook/cli.py" in names
    assert not [name for name in names if name.startswith((f"{packages}/pip", f"{packages}/setuptools"))]
    assert not [name for name in names if "/tests/" in name or ".opt-" in name or name.startswith("/root/")]
    assert f"{packages}/webhook/__pycache__/cli.cpython-313.pyc" in names
    assert "/usr/lib/python3.13/__pycache__/threading.cpython-313.pyc" in names


def test_nobody_can_gain_or_change_anything(image: Image) -> None:
    """Files belong to root, none gives its owner's rights, and only folders for temporary files are open to all."""
    for name, status in members(image):
        assert (status.st_uid, status.st_gid) == (0, 0), name
        if stat.S_ISREG(status.st_mode):
            assert not status.st_mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH | stat.S_IWGRP), name
        elif stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IWOTH:
            assert status.st_mode & stat.S_ISVTX, name


def test_it_says_what_it_is_and_runs_as(image: Image) -> None:
    """As the manifests want it; and scanners find what Debian packages are in it."""
    found = configuration(image)["config"]
    assert (found["User"], found["Entrypoint"], found["Cmd"]) == ("65532:65532", ["topogate"], ["serve"])
    assert found["Labels"]["org.opencontainers.image.version"] == VERSION
    assert found["Labels"]["org.opencontainers.image.revision"] == REVISION
    noted = image.root / "var/lib/dpkg/status.d"
    assert {"libc6", "libssl3t64", "python3.13"} <= {path.name for path in noted.iterdir()}
    assert "VERSION_CODENAME=trixie" in (image.root / "usr/lib/os-release").read_text()


def test_every_import_of_the_service_is_in_it(image: Image) -> None:
    """What hack/image/trim.py takes out is imported by nothing that is shipped."""
    assert int(run(image, "python", "-c", IMPORTS)) > 400


def test_its_program_places_without_a_cluster(image: Image, tmp_path: Path) -> None:
    """The planner and the readers of files work with stripped libraries."""
    files = {"/examples": ROOT / "examples"}
    answer = run(
        image,
        "topogate",
        "simulate",
        "--cluster",
        "cluster.yaml",
        "-f",
        "train-rack.yaml",
        files=files,
        directory="/examples",
    )
    assert "placed 4 pods in block-0 / rack-00" in answer


def start(image: Image, service: Service, folder: Path) -> Replica:
    """A container as the Deployment describes it, with the credentials of a pod."""
    plane = service.control_plane
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    secrets = folder / "serviceaccount"
    secrets.mkdir()
    (secrets / "token").write_text(plane.client.create(f"{ACCOUNT}/token", request)["status"]["token"])
    (secrets / "ca.crt").write_bytes(plane.ca_certificate.read_bytes())
    (secrets / "namespace").write_text(NAMESPACE)
    host, port = plane.url.removeprefix("https://").split(":")
    settings = dict(one.split("=", 1) for one in configuration(image)["config"]["Env"])
    pod = {"POD_NAME": "topogate-0", "TOPOGATE_NAMESPACE": NAMESPACE}
    there = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    ops_port = free_ports(1)[0]
    command = contained(
        image.root,
        [
            *("topogate", "serve", "--host", "127.0.0.1", "--port", str(service.port), "--address", "127.0.0.1"),
            *("--ops-host", "127.0.0.1", "--ops-port", str(ops_port)),
        ],
        environment=settings | pod | there,
        files={SECRETS: secrets},
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    child = spawn("topogate-0", command, log=folder / "container.log", environment=environment)
    replica = Replica(0, ops_port, child)
    service.replicas[0] = replica
    return replica


def processes(of: Replica) -> list[dict[str, str]]:
    """What the kernel says of the processes in the container, without those that made it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            status = dict(line.split(":\t", 1) for line in path.read_text().splitlines() if ":\t" in line)
            if os.getsid(int(path.parent.name)) == of.child.process.pid and len(status["NSpid"].split()) > 1:
                found.append(status | {"root": (path.parent / "mountinfo").read_text()})
        except (ProcessLookupError, FileNotFoundError):
            continue
    return found


def test_it_serves_a_cluster_read_only_and_without_rights(image: Image, plane: ControlPlane, tmp_path: Path) -> None:
    """From the API server's review of a Job to bound pods; the container ends when it is told to."""
    nodes.add(plane.client, nodes.grid_nodes(Grid.parse("1x2x2")))
    service = Service.install(plane)
    replica = start(image, service, tmp_path)
    try:
        service.await_ready()
        inside = processes(replica)
        assert len(inside) >= 2, "the arbiter and its worker"
        for one in inside:
            assert one["Uid"].split() == [str(USER)] * 4
            assert (one["CapEff"], one["CapBnd"], one["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")
            (at_root,) = [line.split() for line in one["root"].splitlines() if line.split()[4] == "/"]
            assert "ro" in at_root[5].split(",")
        gangs = Namespace(plane.client, "default", Fleet(plane.client, "image"))
        made = gangs.submit("train", pods=2, annotations=require("rack"), selector={})
        assert made["metadata"]["annotations"]["topogate.dev/held-by"] == "suspend"
        hosts = gangs.all_bound("train", 2)
        assert len(set(hosts.values())) == 2
        leader = next(one for one in inside if one["NSpid"].split()[-1] == "1")
        os.kill(int(leader["NSpid"].split()[0]), signal.SIGTERM)
        assert replica.child.process.wait(60) == 0, replica.log()
    finally:
        service.kill_all()
    with pytest.raises(ProcessLookupError):
        os.killpg(replica.child.process.pid, 0)
