"""Controllers built from their Go modules, each in a copy of its own, kept beside the control plane's programs.

A module is a main module of its own here, so that its go.mod and go.sum, and no other's, say what it is built from.
Besides the program its manifests are kept, rendered once by `kubectl kustomize`.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from local.controllers.catalogue import CONTROLLERS, Controller
from local.modules import ProgramsError, copied, downloaded, substitute
from local.programs import Program, Progress, build, cache_directory, find_go, locked, told

FLAGS: Final = ["-trimpath", "-buildvcs=false", "-ldflags", "-s -w"]
MANIFESTS = "manifests.json"


@dataclass(frozen=True, slots=True)
class Built:
    """The files of one controller: its program, and its own manifests, a JSON list of objects."""

    controller: Controller
    program: Path
    manifests: Path


def ensure_controllers(
    names: Iterable[str],
    *,
    kubectl: Path,
    progress: Progress,
    environment: Mapping[str, str] = os.environ,
    cache: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Built]:
    """Return the files of these controllers by name, building what is missing; a minute or two each, once.

    Two processes that need them at once: one builds, the other waits for it. Raises ProgramsError.
    """
    found = {name: _files(CONTROLLERS[name], cache or cache_directory(environment)) for name in dict.fromkeys(names)}
    missing = [built for built in found.values() if not _complete(built)]
    for number, built in enumerate(missing, start=1):
        directory = built.program.parent
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory / ".lock", progress):
            if _complete(built):
                continue
            left = sum(other.controller.seconds for other in missing[number - 1 :])
            place = f"{built.controller.name} {built.controller.version} ({number} of {len(missing)})"
            with told(place, left, progress=progress, clock=clock) as beat:
                _build(built, kubectl, find_go(environment), environment=environment, beat=beat)
    return found


def key(controller: Controller) -> str:
    """Return what a built controller is filed under: its version, and a hash of all that makes a difference."""
    made_of = [asdict(controller)[name] for name in ("module", "version", "checksum", "package", "manifests")]
    substitutions = [asdict(substitution) for substitution in controller.substitutions]
    return filed_under(controller.name, controller.version, made_of, substitutions, FLAGS)


def filed_under(name: str, version: str, *made_of: Any) -> str:
    """Return the folder of a built program: its version, and a hash of what it is made of and of this platform."""
    text = json.dumps([*made_of, platform.system(), platform.machine()])
    return f"{name}-{version}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _files(controller: Controller, cache: Path) -> Built:
    directory = cache / "controllers" / key(controller)
    return Built(controller, directory / controller.name, directory / MANIFESTS)


def _complete(built: Built) -> bool:
    return built.program.exists() and built.manifests.exists()


def _build(built: Built, kubectl: Path, go: str, *, environment: Mapping[str, str], beat: Callable[[], None]) -> None:
    controller = built.controller
    directory = built.program.parent
    with tempfile.TemporaryDirectory(prefix=".source-", dir=directory) as folder:
        module = unpacked(
            controller.module,
            controller.version,
            checksum=controller.checksum,
            go=go,
            folder=Path(folder),
            environment=environment,
        )
        for substitution in controller.substitutions:
            substitute(substitution, module, module=f"{controller.module} {controller.version}")
        rendered = subprocess.run(
            [kubectl, "kustomize", str(module / controller.manifests)], capture_output=True, text=True, check=False
        )
        if rendered.returncode != 0:
            raise ProgramsError(f"the manifests of {controller.module} cannot be rendered:\n{rendered.stderr}")
        program = Program(controller.name, controller.package, controller.seconds)
        build(program, go, FLAGS, module=module, into=directory, environment=environment, beat=beat)
        written = Path(folder) / MANIFESTS
        # Once here, because YAML of a megabyte takes seconds to read.
        written.write_text(json.dumps([undescribed(one) for one in yaml.safe_load_all(rendered.stdout) if one]))
        written.rename(built.manifests)


def undescribed(value: Any) -> Any:
    """Return an object without the descriptions of its schemas: two thirds of them, and of what applying them takes."""
    match value:
        case dict():
            # A string: a field that is called description has a schema.
            kept = {name: one for name, one in value.items() if name != "description" or not isinstance(one, str)}
            return {name: one if name in ("default", "example") else undescribed(one) for name, one in kept.items()}
        case list():
            return [undescribed(one) for one in value]
        case _:
            return value


def unpacked(
    module: str, version: str, *, checksum: str, go: str, folder: Path, environment: Mapping[str, str]
) -> Path:
    """Return a copy of a module in `folder`, a main module of its own that may be changed; `folder` is in no module.

    Raises ProgramsError, for another checksum too.
    """
    named = f"{module}@{version}"
    answer = downloaded(named, go=go, folder=folder, environment=environment)
    if answer.get("Sum") != checksum:
        raise ProgramsError(f"{named} has the checksum {answer.get('Sum')}, not {checksum}")
    return copied(Path(answer["Dir"]), folder)
