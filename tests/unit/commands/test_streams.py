"""Standard streams that cannot be used: the disk is full, or the caller has closed them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.api import names
from engine.history.record import LOGGER
from tests.support.fake_api import Answer, FakeApi
from tests.support.simulation import job
from tests.unit.commands.conftest import kubeconfig, server  # noqa: F401 - fixtures
from webhook.cli import UNHEARD
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


@pytest.mark.parametrize("form", ["table", "yaml", "json"])
def test_output_of_few_characters_is_no_trace(tmp_path: Path, form: str) -> None:
    """In Latin-1, say: text has escapes for what that lacks, and data is UTF-8, as its readers expect."""
    named = tmp_path / "named.json"
    named.write_text(json.dumps(job("zug-ü-\N{SNOWMAN}", 2, {"require": "rack"})), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "webhook.cli", *SIMULATE, str(named), "-o", form],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    encoded = r"zug-ü-\u2603".encode("latin-1") if form == "table" else "zug-ü-\N{SNOWMAN}".encode()
    assert encoded in done.stdout


@pytest.mark.parametrize("words", [("gangs", "--service-namespace"), (*SIMULATE, TYPO, "-n")], ids=lambda one: one[0])
def test_an_argument_that_is_no_text_is_one_line(kubeconfig: Path, words: tuple[str, ...]) -> None:  # noqa: F811
    """Bytes that are not UTF-8, as from a file of another encoding: no name in a cluster has them."""
    done = run(kubeconfig, "", *words, "x\udcff")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'topogate: an argument is not UTF-8 text: "x\\udcff"\n'


@pytest.mark.parametrize("form", ["table", "yaml", "json"])
def test_a_file_may_have_any_name(kubeconfig: Path, tmp_path: Path, form: str) -> None:  # noqa: F811
    """A log whose name is not UTF-8 is named with escapes."""
    log = tmp_path / "log\udcff"
    log.write_text(json.dumps({"time": "2026-01-01T00:00:00Z", "logger": LOGGER, "event": "PolicyTaken"}))
    done = run(kubeconfig, "", "history", "-f", str(log), "-o", form)
    assert (done.returncode, done.stderr) == (0, "")
    assert "log\\udcff" in done.stdout.replace("\\\\", "\\")


@pytest.mark.parametrize(
    "words", [(*SIMULATE, ""), ("policy", "check", ""), ("history", "-f", "")], ids=lambda one: one[0]
)
def test_a_file_without_a_name_is_told_so(kubeconfig: Path, words: tuple[str, ...]) -> None:  # noqa: F811
    """As of a variable of a script that is not set."""
    done = run(kubeconfig, "", *words)
    assert (done.returncode, done.stderr) == (2, "topogate: a file without a name: No such file or directory\n")


def test_a_reader_that_goes_is_no_negative_answer(tmp_path: Path) -> None:
    """The status is that of a program that SIGPIPE ends, and nothing is said; it was 1."""
    log = tmp_path / "log"
    line = json.dumps({"time": "2026-01-01T00:00:00Z", "logger": LOGGER, "event": "PolicyTaken", "message": "m" * 1000})
    log.write_text("".join(line.replace("00Z", f"{one:02}Z") + "\n" for one in range(60)) * 2)
    command = [sys.executable, "-m", "webhook.cli", "history", "-f", str(log), "-o", "json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=120) == UNHEARD
