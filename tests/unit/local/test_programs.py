"""Finding and building the control plane's programs, with a Go command that only pretends."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from local import programs
from local.modules import KWOK_QUEUE, ProgramsError
from local.programs import PROGRAMS, build_key, ensure_programs, flags
from local.releases import DEFAULT, MODULE, RELEASES, module_of, versions

# Answers `go env GOVERSION` and `go mod download`, and "builds" by writing the package's name into the file after -o.
FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then {env}; fi
if [ "$1" = mod ]; then echo "{{\\"Dir\\": \\"$HOME/$4\\"}}"; exit 0; fi
while [ "$1" != -o ]; do
  if [ "$1" = -modfile ]; then tail -n 1 "$2" >"$FAKE_GO_LOG.replaced"; cp -r "$(dirname "$2")" "$FAKE_GO_LOG.copy"; fi
  shift
done
echo "$CGO_ENABLED $GOFLAGS $GOWORK $3" >>"$FAKE_GO_LOG"
echo "$3 $(pwd)" >>"$FAKE_GO_LOG.folders"
{build}
echo "$3" >"$2"
"""


class Go:
    """A folder with a fake `go`, and the environment that finds it."""

    def __init__(self, folder: Path, *, env: str = "echo go1.99; exit 0", build: str = "") -> None:
        folder.mkdir()
        command = folder / "go"
        command.write_text(FAKE_GO.format(env=env, build=build))
        command.chmod(0o755)
        self.log = folder / "log"
        self.patched = folder / KWOK_QUEUE.module / KWOK_QUEUE.change.file
        self.patched.parent.mkdir(parents=True)
        self.patched.write_text(f"package heap\n{KWOK_QUEUE.change.old}")
        self.environment = {
            "PATH": f"{folder}:/usr/bin:/bin",
            "HOME": str(folder),
            "FAKE_GO_LOG": str(self.log),
            "GOFLAGS": "-mod=vendor",
        }

    @property
    def folders(self) -> dict[str, Path]:
        """Package -> the folder that it was built in."""
        lines = Path(f"{self.log}.folders").read_text().splitlines()
        return {package: Path(at) for package, at in map(str.split, lines)}

    @property
    def builds(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


def test_missing_programs_are_built_once_and_then_found(tmp_path: Path) -> None:
    """Every program is built, with progress a reader can follow; a second call builds and says nothing."""
    go = Go(tmp_path / "go")
    said: list[str] = []
    found = ensure_programs(progress=said.append, environment=go.environment, cache=tmp_path / "cache")
    assert {name: path.read_text().strip() for name, path in found.items()} == {p.name: p.package for p in PROGRAMS}
    assert said[0] == "building kube-apiserver (1 of 6); about 5 min to go with empty caches, less otherwise"
    assert said[-1].startswith("  built kubectl (6 of 6) in ")
    said.clear()
    assert ensure_programs(progress=said.append, environment=go.environment, cache=tmp_path / "cache") == found
    assert not said
    assert len(go.builds) == 6


def test_builds_do_not_depend_on_the_users_go_settings(tmp_path: Path) -> None:
    """cgo, flags and workspaces of the user do not reach the build."""
    go = Go(tmp_path / "go")
    ensure_programs(progress=print, environment=go.environment, cache=tmp_path / "cache")
    assert go.builds[0] == "0 -mod=readonly off k8s.io/kubernetes/cmd/kube-apiserver"


def test_only_what_is_missing_is_built(tmp_path: Path) -> None:
    """A build that was interrupted goes on where it was."""
    go = Go(tmp_path / "go")
    found = ensure_programs(progress=print, environment=go.environment, cache=tmp_path / "cache")
    found["kwok"].unlink()
    said: list[str] = []
    ensure_programs(progress=said.append, environment=go.environment, cache=tmp_path / "cache")
    assert said[0].split(";")[0] == "building kwok (1 of 1)"


def test_a_patched_program_is_built_with_its_patch(tmp_path: Path) -> None:
    """In a copy of the module; the source stays as it is, and a program of another patch is not taken for it."""
    go = Go(tmp_path / "go")
    found = ensure_programs(progress=print, only=["kwok"], environment=go.environment, cache=tmp_path / "cache")
    assert found["kwok"].name == f"kwok-{KWOK_QUEUE.digest}"
    module, copy = Path(f"{go.log}.replaced").read_text().removeprefix("replace ").split(" => ")
    assert (module, Path(copy.strip()).exists()) == (KWOK_QUEUE.module, False)
    assert (
        Path(f"{go.log}.copy") / "module" / KWOK_QUEUE.change.file
    ).read_text() == f"package heap\n{KWOK_QUEUE.change.new}"
    assert go.patched.read_text() == f"package heap\n{KWOK_QUEUE.change.old}"


def test_a_patch_that_does_not_fit_its_source_any_more_stops_the_build(tmp_path: Path) -> None:
    go = Go(tmp_path / "go")
    go.patched.write_text("package heap\n")
    with pytest.raises(ProgramsError, match=r"sigs\.k8s\.io/kwok: .*heap\.go is not as expected"):
        ensure_programs(progress=print, only=["kwok"], environment=go.environment, cache=tmp_path / "cache")
    assert not go.builds


def test_a_program_that_is_wanted_alone_is_built_alone(tmp_path: Path) -> None:
    go = Go(tmp_path / "go")
    found = ensure_programs(progress=print, only=["kubectl"], environment=go.environment, cache=tmp_path / "cache")
    assert list(found) == ["kubectl"]
    assert len(go.builds) == 1


def test_a_long_build_says_that_it_is_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the compiler is silent, the elapsed time is told from time to time."""
    monkeypatch.setattr(programs, "BEAT_SECONDS", 0.01)
    go = Go(tmp_path / "go", build="sleep 0.1")
    said: list[str] = []
    ensure_programs(progress=said.append, environment=go.environment, cache=tmp_path / "cache")
    assert "  still building kube-apiserver (1 of 6): 0 s so far" in said


def test_a_failed_build_quotes_the_compiler_and_leaves_nothing(tmp_path: Path) -> None:
    """The last lines of the compiler are in the error; no half-written program stays."""
    go = Go(tmp_path / "go", build='echo "x.go:1:1: undefined: y" >&2; echo half >"$2"; exit 1')
    with pytest.raises(ProgramsError, match=r"(?s)building kube-apiserver failed .*undefined: y"):
        ensure_programs(progress=print, environment=go.environment, cache=tmp_path / "cache")
    left = {path.name for path in (tmp_path / "cache" / build_key()).iterdir()}
    assert left == {".lock"}


def test_without_go_the_error_says_which_version_to_install(tmp_path: Path) -> None:
    """No `go` on the PATH."""
    with pytest.raises(ProgramsError, match=r"Go 1\.\d+\.\d+ or newer .* no `go` is on the PATH"):
        ensure_programs(progress=print, environment={"PATH": str(tmp_path), "HOME": "/"}, cache=tmp_path / "cache")


def test_a_go_that_is_too_old_is_quoted(tmp_path: Path) -> None:
    """Go itself says what it lacks; we say what is needed."""
    go = Go(tmp_path / "go", env='echo "go: go.mod requires go >= 9 (running go 1.2)" >&2; exit 1')
    with pytest.raises(ProgramsError, match=r"Go 1\.\d+\.\d+ or newer .* cannot: go: go.mod requires go >= 9"):
        ensure_programs(progress=print, environment=go.environment, cache=tmp_path / "cache")


def test_two_at_once_build_once(tmp_path: Path) -> None:
    """The second one waits for the first one's programs instead of building its own."""
    go = Go(tmp_path / "go", build="sleep 0.05")
    waits: list[str] = []

    def run() -> None:
        ensure_programs(progress=waits.append, environment=go.environment, cache=tmp_path / "cache")

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(go.builds) == 6


def asset(folder: Path, name: str, answer: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)
    return path


def test_kubebuilder_assets_are_taken_in_exactly_our_version(tmp_path: Path) -> None:
    """An etcd of our version is used; an API server of another one is built instead."""
    version = versions()["go.etcd.io/etcd/server/v3"].removeprefix("v")
    etcd = asset(tmp_path / "assets", "etcd", f"etcd Version: {version}")
    server = asset(tmp_path / "assets", "kube-apiserver", "Kubernetes v1.36.30")
    go = Go(tmp_path / "go")
    environment = {**go.environment, "KUBEBUILDER_ASSETS": str(tmp_path / "assets")}
    found = ensure_programs(progress=print, environment=environment, cache=tmp_path / "cache")
    assert found["etcd"] == etcd
    assert found["kube-apiserver"] != server
    assert len(go.builds) == 5


def test_an_asset_that_cannot_run_is_not_taken(tmp_path: Path) -> None:
    """A file of another machine's architecture, or no program at all, counts as absent."""
    folder = tmp_path / "assets"
    folder.mkdir()
    (folder / "etcd").write_bytes(b"\x7fELF nonsense")
    (folder / "etcd").chmod(0o755)
    (folder / "kubectl").mkdir()
    go = Go(tmp_path / "go")
    environment = {**go.environment, "KUBEBUILDER_ASSETS": str(folder)}
    found = ensure_programs(progress=print, environment=environment, cache=tmp_path / "cache")
    assert not {name for name, path in found.items() if path.parent == folder}


def test_the_api_server_is_built_under_its_real_version() -> None:
    """The version in go.mod is the one that the programs report."""
    version = versions()["k8s.io/kubernetes"]
    assert f"-X k8s.io/component-base/version.gitVersion={version}" in flags()[-1]
    assert f"gitMinor={version.split('.')[1]}" in flags()[-1]


def test_another_version_is_built_from_its_own_module(tmp_path: Path) -> None:
    """Its programs of Kubernetes come from its folder and lie apart; etcd and kwok are those of the usual version."""
    go = Go(tmp_path / "go")
    usual = ensure_programs(progress=print, environment=go.environment, cache=tmp_path / "cache")
    said: list[str] = []
    other = next(minor for minor in RELEASES if minor != DEFAULT)
    found = ensure_programs(
        progress=said.append, kubernetes=other, environment=go.environment, cache=tmp_path / "cache"
    )
    assert said[-1].startswith("  built kubectl (4 of 4) in ")
    assert {name for name in found if found[name] == usual[name]} == {"etcd", "kwok"}
    assert go.folders["k8s.io/kubernetes/cmd/kube-apiserver"] == module_of(other)
    assert go.folders["go.etcd.io/etcd/server/v3"] == MODULE


def test_kubebuilder_assets_of_the_usual_version_do_not_serve_another_one(tmp_path: Path) -> None:
    """An API server of the usual version is no API server of 1.30."""
    server = asset(tmp_path / "assets", "kube-apiserver", f"Kubernetes {versions()['k8s.io/kubernetes']}")
    go = Go(tmp_path / "go")
    environment = {**go.environment, "KUBEBUILDER_ASSETS": str(tmp_path / "assets")}
    usual = ensure_programs(progress=print, environment=environment, cache=tmp_path / "cache")
    other = ensure_programs(progress=print, kubernetes="1.30", environment=environment, cache=tmp_path / "cache")
    assert usual["kube-apiserver"] == server
    assert other["kube-apiserver"] != server


def test_the_cache_follows_xdg(tmp_path: Path) -> None:
    """XDG_CACHE_HOME first, else ~/.cache."""
    assert programs.cache_directory({"XDG_CACHE_HOME": "/x", "HOME": "/h"}) == Path("/x/topogate/local")
    assert programs.cache_directory({"HOME": "/h"}) == Path("/h/.cache/topogate/local")
    assert os.environ.get("HOME") is None or programs.cache_directory().is_absolute()
