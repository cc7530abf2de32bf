"""Standard streams that cannot be used: the disk is full, or the caller has closed them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.api import names
from tests.support.fake_api import Answer, FakeApi
from tests.unit.commands.conftest import kubeconfig, server  # noqa: F401 - fixtures
from webhook.maintenance.installation import LABEL, PART_OF, WEBHOOKS

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
SIMULATE = ("simulate", "--cluster", str(EXAMPLES / "cluster.yaml"), "-f")
TYPO = str(EXAMPLES / "typo.yaml")


def run(kubeconfig: Path, redirection: str, *words: str) -> subprocess.CompletedProcess[str]:  # noqa: F811
    """Run the command line as a shell does, with a redirection."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "webhook.cli", *words],
        cwd=ROOT,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(
    "words",
    [
        ("gangs", "-o", "json"),
        ("explain", "job/train"),
        (*SIMULATE, TYPO, "-o", "json"),
        ("completion", "bash"),
        ("--help",),
    ],
    ids=lambda words: words[0],
)
def test_a_full_disk_is_one_line(kubeconfig: Path, words: tuple[str, ...]) -> None:  # noqa: F811
    """Wherever the output fails, and with a status that no answer has: it is not whole."""
    done = run(kubeconfig, ">/dev/full", *words)
    assert (done.returncode, done.stderr) == (2, "topogate: No space left on device\n")


@pytest.mark.parametrize("words", [("gangs", "none"), ("nope",)], ids=" ".join)
def test_what_cannot_be_said_changes_the_status_alone(kubeconfig: Path, words: tuple[str, ...]) -> None:  # noqa: F811
    """Not even the reason can be printed where standard error is full."""
    done = run(kubeconfig, "2>/dev/full", *words)
    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.parametrize(
    ("redirection", "words", "status"),
    [
        (">&-", ("gangs",), 0),
        ("2>&-", ("gangs", "none"), 1),
        ("2>&-", ("nope",), 2),
        (">&- 2>&- <&-", ("--help",), 0),
    ],
)
def test_output_that_is_closed_is_discarded(
    kubeconfig: Path,  # noqa: F811
    redirection: str,
    words: tuple[str, ...],
    status: int,
) -> None:
    """The status is that of the answer: a script may ask for nothing else."""
    done = run(kubeconfig, redirection, *words)
    assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.parametrize(
    "words",
    [
        (*SIMULATE, "-"),
        ("history", "-f", "-"),
        ("explain", "-f", "-"),
    ],
    ids=lambda words: words[0],
)
def test_an_input_that_is_closed_is_one_line(kubeconfig: Path, words: tuple[str, ...]) -> None:  # noqa: F811
    """`-` reads nothing then, which is no empty file."""
    done = run(kubeconfig, "<&-", *words)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "topogate: standard input (-): it is closed\n")


@pytest.mark.parametrize("redirection", ["<&-", "</dev/null"])
def test_nothing_is_uninstalled_where_nobody_can_be_asked(kubeconfig: Path, server: FakeApi, redirection: str) -> None:  # noqa: F811
    allowed = Answer(201, {"status": {"allowed": True}})
    server.fault(allowed, when=lambda one: one.path.endswith("/selfsubjectaccessreviews"), times=1000)
    ours = WEBHOOKS[0]
    server.put(ours.path(names.NAMESPACE), metadata={"name": ours.name, "uid": "w", "labels": {LABEL: PART_OF}})
    done = run(kubeconfig, redirection, "uninstall")
    assert (done.returncode, done.stderr) == (2, "topogate: add --yes to go on without a terminal\n")
    assert not [one for one in server.requests if one.method not in ("GET", "POST")]
