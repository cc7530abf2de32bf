"""The plugin as people get it (get-the-program.md): built for this machine, installed by the real krew, run by kubectl.

`make test-plugin`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hack.plugin.__main__ import build_plugin
from hack.plugin.archive import Archive
from hack.plugin.manifest import MANIFEST
from hack.plugin.platforms import project, python_versions, this_platform
from local.programs import ensure_programs
from tests.support.krew import ensure_krew

ROOT = Path(__file__).parents[2]
URL = "https://localhost/v0"
pytestmark = pytest.mark.timeout(1200)


@dataclass(frozen=True)
class Person:
    """Somebody with kubectl, krew and Python, and nothing of this checkout."""

    home: Path
    path: str

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command in his home."""
        environment = {
            "HOME": str(self.home),
            "PATH": self.path,
            "KREW_ROOT": str(self.home / "krew"),
            "KREW_NO_UPGRADE_CHECK": "1",
            "KREW_DEFAULT_INDEX_URI": str(self.home / "index"),
        }
        return subprocess.run(
            command,
            cwd=self.home,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


def newcomer(home: Path, tools: Path) -> Person:
    """Somebody who has just installed krew: no plugin yet, and an index, which is empty here."""
    person = Person(home, os.pathsep.join((str(home / "krew/bin"), str(tools), "/usr/bin", "/bin")))
    (home / "index/plugins").mkdir(parents=True)
    (home / "index/plugins/.gitkeep").touch()
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
    for command in (("init", "--quiet"), ("add", "."), (*identity, "commit", "--quiet", "--message=empty")):
        assert person.run("git", "-C", home / "index", *command).returncode == 0
    updated = person.run("kubectl", "krew", "update")
    assert updated.returncode == 0, updated.stderr
    return person


@pytest.fixture(scope="module")
def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The archive for this machine, with its manifest beside it."""
    if not request.config.getoption("--build-plugin"):
        pytest.skip("builds the plugin from downloaded wheels, which takes minutes: make test-plugin")
    platform = this_platform()
    assert platform is not None, "there is no plugin for this platform"
    (built,) = build_plugin([platform.name], url=URL, into=tmp_path_factory.mktemp("plugin"))
    return built


@pytest.fixture(scope="module")
def manifest(archive: Archive) -> Path:
    return archive.path.parent / MANIFEST


@pytest.fixture(scope="module")
def tools(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the PATH with kubectl, krew, and a Python that fits."""
    folder = tmp_path_factory.mktemp("tools")
    (folder / "kubectl").symlink_to(ensure_programs(progress=print, only=["kubectl"])["kubectl"])
    (folder / "kubectl-krew").symlink_to(ensure_krew() / "krew")
    names = [f"python{major}.{minor}" for major, minor in python_versions()]
    if found := next((path for name in names if (path := shutil.which(name))), None):
        (folder / Path(found).name).symlink_to(found)
    return folder


@pytest.fixture(scope="module")
def person(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Person:
    return newcomer(tmp_path_factory.mktemp("home"), tools)


@pytest.fixture(scope="module")
def address(manifest: Path) -> Iterator[str]:
    """A server with the files of `make plugin`; without TLS, so the manifest there says http."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    folder = manifest.parent / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        for path in manifest.parent.glob("*.tar.gz"):
            (folder / path.name).symlink_to(path)
        (folder / MANIFEST).write_text(manifest.read_text().replace(URL, url))
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield url
        server.shutdown()
        serving.join()


@pytest.fixture(scope="module")
def installation(person: Person, address: str) -> subprocess.CompletedProcess[str]:
    """What krew said when it downloaded and installed the plugin."""
    return person.run("kubectl", "krew", "install", f"--manifest-url={address}/{MANIFEST}")


@pytest.fixture(scope="module")
def installed(person: Person, installation: subprocess.CompletedProcess[str]) -> Person:
    assert installation.returncode == 0, installation.stderr
    return person


def test_krew_finds_no_fault_in_the_manifest(person: Person, manifest: Path) -> None:
    """Its own check for the index: structure, platforms that exist, each chosen by one entry."""
    done = person.run(ensure_krew() / "validate-krew-manifest", "-manifest", manifest, "-skip-install")
    assert done.returncode == 0, done.stderr
    assert "structural validation OK" in done.stderr


def test_krew_installs_the_plugin_from_its_address(
    person: Person, installation: subprocess.CompletedProcess[str]
) -> None:
    """The program is on the PATH, the licence beside it, and the person has read what it needs."""
    assert installation.returncode == 0, installation.stderr
    told = installation.stdout + installation.stderr
    assert "Installed plugin: topogate" in told
    assert "It needs Python 3.11" in told
    program = (person.home / "krew/bin/kubectl-topogate").resolve()
    assert sorted(path.name for path in program.parent.iterdir()) == ["LICENSE", "kubectl-topogate"]


def test_krew_refuses_another_archive_than_that_of_the_manifest(
    tools: Path, manifest: Path, archive: Archive, tmp_path: Path
) -> None:
    """One byte more is another checksum."""
    other = tmp_path / archive.path.name
    other.write_bytes(archive.path.read_bytes() + b"\n")
    person = newcomer(tmp_path, tools)
    done = person.run("kubectl", "krew", "install", f"--manifest={manifest}", f"--archive={other}")
    assert done.returncode != 0
    assert "checksum does not match" in done.stderr


def test_krew_installs_two_files_and_removes_them_again(
    tools: Path, manifest: Path, archive: Archive, tmp_path: Path
) -> None:
    """The other way of the page; nothing of the plugin stays with krew."""
    person = newcomer(tmp_path, tools)
    done = person.run("kubectl", "krew", "install", f"--manifest={manifest}", f"--archive={archive.path}")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "krew/bin").iterdir()] == ["kubectl-topogate"]
    done = person.run("kubectl", "krew", "uninstall", "topogate")
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "krew/bin").iterdir()) == []
    assert not list((tmp_path / "krew/store").rglob("kubectl-topogate"))


def test_kubectl_runs_the_plugin(installed: Person) -> None:
    """Its help with the name that people type, and its version; it is unpacked where the page says."""
    shown = installed.run("kubectl", "topogate", "--help")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("Usage: kubectl topogate [OPTIONS] COMMAND")
    version = installed.run("kubectl", "topogate", "--version")
    assert version.stdout == f"topogate, version {project()['version']}\n"
    assert (installed.home / ".cache/topogate/plugin/venvs").is_dir()


def test_the_plugin_simulates_without_a_cluster(installed: Person) -> None:
    """Compiled libraries work: the planner, and the readers of YAML, policy and objects."""
    for name in ("cluster.yaml", "train-rack.yaml", "demo/policy.yaml"):
        shutil.copy(ROOT / "examples" / name, installed.home)
    done = installed.run("kubectl", "topogate", "simulate", "--cluster", "cluster.yaml", "-f", "train-rack.yaml")
    assert done.returncode == 0, done.stderr
    assert "placed 4 pods in block-0 / rack-00" in done.stdout
    checked = installed.run("kubectl", "topogate", "policy", "check", "policy.yaml")
    assert (checked.returncode, checked.stderr.partition(" (")[0]) == (0, "policy.yaml: good")


def test_the_plugin_asks_a_cluster(installed: Person) -> None:
    """The client of the API server is there: without a kubeconfig it says so in one line."""
    done = installed.run("kubectl", "topogate", "gangs")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_kubectl_completes_the_plugin(installed: Person) -> None:
    """As the caveats say: the script goes beside the program, which is all that krew puts on the PATH."""
    script = installed.run("kubectl", "topogate", "completion", "kubectl")
    path = installed.home / "krew/bin/kubectl_complete-topogate"
    path.write_text(script.stdout)
    path.chmod(0o755)
    assert installed.run("kubectl", "__complete", "topogate", "ga").stdout.splitlines()[0] == "gangs"
    assert installed.run("kubectl", "__complete", "topogate", "gangs", "--o").stdout.splitlines()[0] == "--output"
