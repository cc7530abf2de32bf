"""Runs a program in a file system as a kubelet runs a container: read-only, a user without rights, /tmp in memory.

`contained(...)` returns the command, for root. It begins `python -m tests.support.contained ORDER` in mount and process
namespaces of its own; that makes the mounts, gives every right away, and becomes the program. The network is this
machine's. A runtime of containers would want control groups of its own, which not every machine gives.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

USER = 65532
VERSION, REVISION = "9.9.9", "0123abc"  # of the image that is built for tests
TMP = "size=16m,mode=1777,nosuid,nodev"  # as in manifests/base/deployment.yaml
DEVICES = ("null", "zero", "full", "random", "urandom")
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 38, 24


@dataclass(frozen=True)
class Image:
    """A built image: its archive, and its file system as a folder."""

    archive: Path
    root: Path


def contained(
    root: Path,
    program: Sequence[str],
    *,
    environment: Mapping[str, str],
    files: Mapping[str, Path] | None = None,
    directory: str = "/tmp",
) -> list[str]:
    """The command that runs a program in `root`; `files` are folders of this machine, by where it sees them."""
    order = {
        "root": str(root),
        "program": list(program),
        "environment": dict(environment),
        "files": {inside: str(path) for inside, path in (files or {}).items()},
        "directory": directory,
    }
    namespaces = ("unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--propagation", "private")
    return [*namespaces, sys.executable, "-m", "tests.support.contained", json.dumps(order)]


def main(order: Mapping[str, object]) -> None:
    """Become the program of the order."""
    root = Path(str(order["root"]))
    files, program, environment = order["files"], order["program"], order["environment"]
    assert isinstance(files, dict)
    assert isinstance(program, list)
    assert isinstance(environment, dict)
    for inside in files:
        at = root / inside.lstrip("/")
        assert at.parent.resolve().is_relative_to(root), f"{at} would lead out of the image"
        at.mkdir(parents=True, exist_ok=True)
    mount("--bind", str(root), str(root))
    mount("--options", "remount,bind,ro", str(root))
    mount("--types", "proc", "--options", "nosuid,nodev,noexec", "proc", str(root / "proc"))
    mount("--types", "tmpfs", "--options", TMP, "tmpfs", str(root / "tmp"))
    mount("--types", "tmpfs", "--options", "size=64k,mode=755,nosuid", "tmpfs", str(root / "dev"))
    for device in DEVICES:
        (root / "dev" / device).touch()
        mount("--bind", f"/dev/{device}", str(root / "dev" / device))
    for inside, path in files.items():
        mount("--bind", "--options", "ro", str(path), str(root / inside.lstrip("/")))
    libc = ctypes.CDLL(None, use_errno=True)
    os.chroot(root)
    os.chdir(str(order["directory"]))
    for capability in range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1):
        must(libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0))
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    must(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    os.execvpe(program[0], program, environment)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def must(status: int) -> None:
    if status != 0:
        raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
