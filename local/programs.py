"""The programs of the control plane: taken where they are, else built from the Go modules that go.mod names.

Built programs stay under the user's cache directory, keyed by go.mod, go.sum, the flags and patches, so that a second
clone starts without building. Nothing is downloaded but Go modules, by the Go toolchain and with its settings. Which
versions of Kubernetes there are stands in releases.py; etcd and kwok are the same beside each.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from local.modules import KWOK_QUEUE, Patch, ProgramsError, go_environment, patched, run_go
from local.processes import tail
from local.releases import DEFAULT, MODULE, module_of, versions

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Program:
    """One program: its Go package, the seconds that building it took with empty caches on 2 cores, and its patch."""

    name: str
    package: str
    seconds: int
    patch: Patch | None = None

    @property
    def file_name(self) -> str:
        """The name of its file in the cache: another one with each patch."""
        return self.name if self.patch is None else f"{self.name}-{self.patch.digest}"


# In this order: the first one compiles most of what the others share.
PROGRAMS: Final = (
    Program("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", 218),
    Program("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", 53),
    Program("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", 5),
    Program("etcd", "go.etcd.io/etcd/server/v3", 9),
    Program("kwok", "sigs.k8s.io/kwok/cmd/kwok", 13, patch=KWOK_QUEUE),
    Program("kubectl", "k8s.io/kubernetes/cmd/kubectl", 17),
)
BEAT_SECONDS = 15.0


def ensure_programs(
    *,
    progress: Progress,
    only: Sequence[str] = (),
    kubernetes: str = DEFAULT,
    environment: Mapping[str, str] = os.environ,
    cache: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Path]:
    """Return the file of every program by name, building what is missing; `kubernetes` is the minor version.

    With `only` it is these programs alone.
    Two processes that need them at once: one builds, the other waits for it. Raises ProgramsError, and UnknownRelease
    of releases.py.
    """
    module = module_of(kubernetes)
    assets = _assets(environment, module)
    found: dict[str, Path] = {}
    for source in dict.fromkeys((module, MODULE)):
        wanted = [
            program for program in PROGRAMS if _module(program, module) == source and (not only or program.name in only)
        ]
        directory = (cache or cache_directory(environment)) / build_key(source)
        files = {program.name: assets.get(program.name, directory / program.file_name) for program in wanted}
        if _missing(files):
            directory.mkdir(parents=True, exist_ok=True)
            with locked(directory / ".lock", progress):
                missing = [program for program in wanted if program.name in _missing(files)]
                go = find_go(environment) if missing else ""
                for number, program in enumerate(missing, start=1):
                    left = sum(other.seconds for other in missing[number - 1 :])
                    place = f"{program.name} ({number} of {len(missing)})"
                    with told(place, left, progress=progress, clock=clock) as beat:
                        build(
                            program,
                            go,
                            flags(source),
                            module=source,
                            into=directory,
                            environment=environment,
                            beat=beat,
                        )
        found |= files
    return found


def _module(program: Program, module: Path) -> Path:
    """Return the module that a program is built from: Kubernetes' own come from `module`, all others from ours."""
    return module if program.package.startswith("k8s.io/kubernetes/") else MODULE


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Where everything that this package keeps is: `topogate/local` under the user's cache directory."""
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".cache")
    return Path(base) / "topogate" / "local"


def flags(module: Path = MODULE) -> list[str]:
    """Return the flags of `go build`; without the version ones the API server calls itself v0.0.0-master."""
    version = versions(module)["k8s.io/kubernetes"]
    major, minor, _ = version.removeprefix("v").split(".", 2)
    package = "k8s.io/component-base/version"
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    linker = " ".join(["-s", "-w", *(f"-X {package}.{name}={value}" for name, value in stamps.items())])
    return ["-trimpath", "-buildvcs=false", "-ldflags", linker]


def build_key(module: Path = MODULE) -> str:
    """Return what the programs that were built from one module are filed under."""
    digest = hashlib.sha256()
    for part in ((module / "go.mod").read_bytes(), (module / "go.sum").read_bytes(), *map(str.encode, flags(module))):
        digest.update(part + b"\0")
    digest.update(f"{platform.system()}/{platform.machine()}".encode())
    return digest.hexdigest()[:16]


def find_go(environment: Mapping[str, str]) -> str:
    """Return the Go command; raises ProgramsError where it is absent or too old for go.mod."""
    found = re.search(r"^go (\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    needed = found.group(1) if found else "?"
    wish = f"Go {needed} or newer builds the local control plane once"
    go = shutil.which("go", path=environment.get("PATH"))
    if go is None:
        raise ProgramsError(
            f"{wish}, and no `go` is on the PATH. Install it from https://go.dev/dl/ and run this again."
        )
    # Run inside the module: a Go command that is older than go.mod wants gets itself a newer toolchain, or says no.
    asked = run_go(go, "env", "GOVERSION", folder=MODULE, environment=environment)
    if asked.returncode != 0:
        last = (asked.stderr.strip().splitlines() or ["no message"])[-1]
        raise ProgramsError(f"{wish}, and {go} cannot: {last}")
    return go


def _missing(found: Mapping[str, Path]) -> set[str]:
    return {name for name, path in found.items() if not path.exists()}


def build(
    program: Program,
    go: str,
    flags: Sequence[str],
    *,
    module: Path,
    into: Path,
    environment: Mapping[str, str],
    beat: Callable[[], None],
) -> None:
    """Build one program of the Go module in the folder `module`: its file in `into` appears when it is whole.

    `beat` is called every 15 s. Raises ProgramsError with the compiler's last lines.
    """
    temporary = into / f".{program.name}.{os.getpid()}"
    log = into / f".{program.name}.log"
    settings = go_environment(environment)
    try:
        with _patched(program, go, folder=module, environment=environment) as replaced, log.open("wb") as output:
            command = [go, "build", *flags, *replaced, "-o", str(temporary), program.package]
            process = subprocess.Popen(command, cwd=module, env=settings, stdout=output, stderr=subprocess.STDOUT)
            _wait(process, beat)
        if process.returncode != 0:
            raise ProgramsError(f"building {program.name} failed (go build {program.package}):\n{tail(log, lines=15)}")
        temporary.rename(into / program.file_name)
    finally:
        temporary.unlink(missing_ok=True)
        log.unlink(missing_ok=True)


def _patched(
    program: Program, go: str, *, folder: Path, environment: Mapping[str, str]
) -> AbstractContextManager[list[str]]:
    if program.patch is None:
        return nullcontext([])
    return patched(program.patch, go, folder=folder, environment=environment)


@contextmanager
def told(place: str, left: int, *, progress: Progress, clock: Callable[[], float]) -> Iterator[Callable[[], None]]:
    """Tell of one build's begin (with the seconds `left` of all) and end; yields what tells that it still goes on."""
    progress(f"building {place}; about {_minutes(left)} to go with empty caches, less otherwise")
    started = clock()
    yield lambda: progress(f"  still building {place}: {clock() - started:.0f} s so far")
    progress(f"  built {place} in {clock() - started:.0f} s")


def _wait(process: subprocess.Popen[bytes], beat: Callable[[], None]) -> None:
    try:
        while True:
            try:
                process.wait(timeout=BEAT_SECONDS)
                return
            except subprocess.TimeoutExpired:
                beat()
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _minutes(seconds: int) -> str:
    return f"{seconds} s" if seconds < 60 else f"{round(seconds / 60)} min"  # noqa: PLR2004


@contextmanager
def locked(path: Path, progress: Progress) -> Iterator[None]:
    """Let one process at a time build into a folder; says so when that means waiting."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is building the programs; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _assets(environment: Mapping[str, str], module: Path) -> dict[str, Path]:
    """Return what KUBEBUILDER_ASSETS offers in exactly our versions: another version would be another test."""
    folder = environment.get("KUBEBUILDER_ASSETS")
    if not folder:
        return {}
    kubernetes = versions(module)["k8s.io/kubernetes"]
    etcd = versions(MODULE)["go.etcd.io/etcd/server/v3"].removeprefix("v")
    answers = {
        "etcd": (["--version"], f"etcd Version: {etcd}"),
        "kube-apiserver": (["--version"], f"Kubernetes {kubernetes}"),
        "kubectl": (["version", "--client"], f"Client Version: {kubernetes}"),
    }
    found = {}
    for name, (arguments, answer) in answers.items():
        path = Path(folder) / name
        if path.is_file() and os.access(path, os.X_OK) and answer in _says(path, arguments):
            found[name] = path
    return found


def _says(path: Path, arguments: list[str]) -> list[str]:
    try:
        asked = subprocess.run([path, *arguments], capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return asked.stdout.splitlines()
