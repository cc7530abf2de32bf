"""The program file `kubectl-topogate`: our wheel, the wheels of the lock, and the launcher in front of them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hack.plugin.platforms import ROOT, Platform, python_versions

PROGRAM: Final = "kubectl-topogate"
LOCK: Final = ROOT / "requirements.lock"
# Of files without a time of their own: hatchling's.
DEFAULT_EPOCH: Final = 1580601600
_SHEBANG: Final = b"#!/bin/sh\n"


class PluginError(Exception):
    """The plugin could not be built; the text says what to do."""


def source_date_epoch() -> int:
    """Return the time that files in archives get: $SOURCE_DATE_EPOCH, or a fixed one."""
    value = os.environ.get("SOURCE_DATE_EPOCH", "") or str(DEFAULT_EPOCH)
    if not value.isdecimal():
        raise PluginError(f"SOURCE_DATE_EPOCH: must be seconds since 1970, not {value!r}")
    return int(value)


def build_program(target: Path, *, platform: Platform | None, lock: Path | None = LOCK) -> None:
    """Write the program for a platform (None: this Python) to `target`; equal sources make equal bytes.

    Without a lock it has our wheel only, and needs no package index. Raises PluginError.
    """
    with tempfile.TemporaryDirectory(prefix="topogate-plugin-") as folder:
        wheel = build_wheel(Path(folder), epoch=source_date_epoch())
        # By name and hash, not as a file: a path would be in the program, and pip takes no folder in its hash mode.
        name, version, *_ = wheel.name.split("-")
        lines = [f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"]
        options = ["--intransitive"]
        if lock is None:
            options.append("--no-index")
        else:
            lines.append(lock.read_text(encoding="utf-8"))
        requirements = Path(folder) / "requirements.txt"
        requirements.write_text("".join(lines), encoding="utf-8")
        for python in python_versions() if platform is not None else ():
            assert platform is not None
            options += ["--complete-platform", platform.target(python)]
        made = Path(folder) / PROGRAM
        _run(
            [
                *(sys.executable, "-m", "pex"),
                *("--requirement", str(requirements), "--find-links", str(wheel.parent), "--use-pip-config"),
                *options,
                "--no-build",  # wheels only: nothing of an sdist runs here
                *("--console-script", PROGRAM),
                # A venv at the first start, which later starts find from /bin/sh: 0.1 s each instead of 0.6 s.
                *("--venv", "--sh-boot"),
                # The launcher says where; else the place would be that of this machine.
                *("--runtime-pex-root", "~/.cache/topogate/plugin"),
                *("--output-file", str(made)),
            ],
        )
        _write_with_launcher(made, target)


def launcher(versions: Sequence[tuple[int, int]]) -> bytes:
    """Return the lines of the shell that look for one of these Python versions, and say so if there is none."""
    texts = [f"{major}.{minor}" for major, minor in versions]
    text = (Path(__file__).parent / "launcher.sh").read_text(encoding="utf-8")
    for name, value in {
        "NAMES": " ".join(f"python{one}" for one in texts),
        "LOWEST": str(versions[0]),
        "HIGHEST": str(versions[-1]),
        "VERSIONS": ", ".join(texts[:-1]) + f" or {texts[-1]}",
    }.items():
        text = text.replace(f"@{name}@", value)
    return text.encode()


def build_wheel(folder: Path, *, epoch: int) -> Path:
    """Build our wheel; hatchling is in the environment, and nothing is downloaded. Raises PluginError."""
    environment = {"SOURCE_DATE_EPOCH": str(epoch)}
    _run([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)], environment)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _write_with_launcher(made: Path, target: Path) -> None:
    """Put the launcher before the lines of the shell that pex begins a program with.

    What is before a zip archive shifts its offsets, which Python allows for.
    """
    content = made.read_bytes()
    if not content.startswith(_SHEBANG):
        raise PluginError("pex begins a program with something else than #!/bin/sh: see hack/plugin/program.py")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    temporary.write_bytes(launcher(python_versions()) + content.removeprefix(_SHEBANG))
    temporary.chmod(0o755)
    temporary.rename(target)


def _run(command: Sequence[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(  # noqa: S603
        command, cwd=ROOT, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
        raise PluginError(f"{' '.join(command[1:3])} failed:\n{last}")
