"""The commands that ask a cluster, from the words of the command line to output, remarks and exit status."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest
import yaml

from engine.api import names
from tests.support.cli import without_progress
from tests.support.fake_api import Answer, FakeApi, Request, Stall
from tests.support.simulation import job, pod
from tests.unit.commands.conftest import Topogate, forbid, put
from webhook.cli import INTERRUPTED, main
from webhook.commands.completion import VARIABLE
from webhook.operations import suspension
from webhook.snapshot.live import read_cluster
from webhook.terminal import asking

ROOT = Path(__file__).parents[3]


def test_topology_show_prints_the_racks(topogate: Topogate) -> None:
    done = topogate("topology", "show")
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("topology default (block, rack, host): 16 hosts, 128 GPUs: 64 used, 8 reserved, 8 out")
    assert lines[1].split() == [
        "BLOCK",
        "RACK",
        "HOSTS",
        "FREE",
        "GPUS",
        "GPUS",
        "FREE",
        "LARGEST",
        "GANG",
        "OUT",
        "OF",
        "USE",
    ]
    assert lines[-1] == "not in this topology: 1 node: stray (no label block)"


def test_topology_show_as_data(topogate: Topogate) -> None:
    found = json.loads(topogate("topology", "show", "--level", "host", "-o", "json").stdout)
    assert len(found["topologies"][0]["nodes"]) == 16
    again = yaml.safe_load(topogate("topology", "show", "--level", "host", "-o", "yaml").stdout)
    assert again["topologies"] == found["topologies"]


def test_the_map_is_written_into_a_pipe_or_device_and_never_in_its_place(topogate: Topogate, tmp_path: Path) -> None:
    """As root, `--output /dev/null` would otherwise make a file of the device, and break the machine."""
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    done = topogate("map", "--output", str(pipe))
    reader.join(10.0)
    assert (done.exit_code, done.stderr) == (0, "")
    assert pipe.is_fifo()
    assert read[0].startswith("<!")
    assert read[0].rstrip().endswith("</html>")


def test_gangs_are_those_of_the_contexts_namespace(topogate: Topogate) -> None:
    assert [line.split()[0] for line in topogate("gangs").stdout.splitlines()[1:]] == [
        "job/wide",
        "job/small",
        "job/huge",
        "job/train",
    ]
    assert "job/later" in topogate("gangs", "--context", "bobs").stdout
    assert "job/later" in topogate("gangs", "-n", "bob").stdout
    every = topogate("gangs", "-A", "-n", "bob")
    assert every.stdout.splitlines()[0].startswith("NAMESPACE")
    assert len(every.stdout.splitlines()) == 6
    none = topogate("gangs", "-n", "carol")
    assert (none.exit_code, none.stdout) == (0, "no gangs found in namespace carol; topogate gangs -A looks in all\n")


def test_gangs_are_chosen_by_names_and_labels(server: FakeApi, topogate: Topogate) -> None:
    """The labels are those of the workload, as the API server has them.

    A name of nothing, of another kind, or of a workload without the labels is a negative answer.
    """
    labelled = job("sorted", 1, {"require": "rack"})
    labelled["metadata"] |= {"namespace": "alice", "uid": "sorted", "labels": {"team": "a"}}
    labelled["metadata"]["annotations"][names.HELD_BY] = names.HELD_BY_SUSPEND
    labelled["spec"]["suspend"] = True
    put(server, labelled)
    assert [line.split()[0] for line in topogate("gangs", "-l", "team=a").stdout.splitlines()[1:]] == ["job/sorted"]
    assert topogate("gangs", "-l", "team=b").stdout.startswith("no such gangs found in namespace alice")
    assert [line.split()[0] for line in topogate("gangs", "train").stdout.splitlines()[1:]] == ["job/train"]
    missed = topogate("gangs", "train", "job/trains")
    assert (missed.exit_code, missed.stderr) == (1, 'topogate: no gang "job/trains"; did you mean "train"?\n')
    foreign = topogate("gangs", "job/train", "pytorchjob/train")
    assert (foreign.exit_code, foreign.stderr) == (1, 'topogate: no gang "pytorchjob/train"; did you mean "train"?\n')
    assert topogate("gangs", "pytorchjob/train", "-o", "json").exit_code == 1
    assert topogate("gangs", "train", "jobs/train", "job/train").exit_code == 0
    unlabelled = topogate("gangs", "sorted", "train", "-l", "team=a")
    assert (unlabelled.exit_code, unlabelled.stderr) == (1, 'topogate: no gang "train" with these labels\n')
    ages = topogate("gangs", "--sort", "age").stdout.splitlines()
    assert [line.split()[0] for line in ages[1:4]] == ["job/sorted", "job/train", "job/wide"]


def test_fits_ends_with_a_status_for_scripts(topogate: Topogate) -> None:
    assert topogate("fits", "-n", "2", "--require", "rack").exit_code == 0
    missed = topogate("fits", "-n", "4", "--require", "rack")
    assert (missed.exit_code, missed.stderr) == (1, "")
    assert missed.stdout.splitlines()[0] == "4 pods x 8 GPUs, require rack, topology default: does not fit now"
    assert json.loads(topogate("fits", "-n", "4", "--require", "rack", "-o", "json").stdout)["fits"] is False


def test_explain_ends_with_a_status_for_scripts(topogate: Topogate) -> None:
    waits = topogate("explain", "job/wide")
    assert (waits.exit_code, waits.stderr) == (1, "")
    assert waits.stdout.splitlines()[0] == "Job alice/wide: waits: Fragmented"
    assert "kubectl annotate -n alice job/wide topogate.dev/require-topology=block --overwrite" in waits.stdout
    for name in ("job/small", "job/train", "pod/train-1", "placement/job-train"):
        assert topogate("explain", name).exit_code == 0, name
    assert topogate("explain", "job/later", "-n", "bob").exit_code == 1
    assert topogate("explain", "job/fill", "-n", "others").exit_code == 0


def test_explain_as_data(topogate: Topogate, monkeypatch: pytest.MonkeyPatch) -> None:
    """At one time: the seconds that a gang waits are in it."""
    monkeypatch.setitem(read_cluster.__kwdefaults__, "wall", lambda: 1_800_000_000.0)
    found = json.loads(topogate("explain", "job/wide", "-o", "json").stdout)
    assert found["gangs"][0]["verdict"] == "waits"
    assert yaml.safe_load(topogate("explain", "job/wide", "-o", "yaml").stdout)["gangs"] == found["gangs"]


def test_explain_tells_the_events_or_that_they_cannot_be_read(server: FakeApi, topogate: Topogate) -> None:
    """Those about the workload and its Placement, by the server's own selector."""
    server.put(
        "/apis/events.k8s.io/v1/namespaces/alice/events/one",
        regarding={"kind": "Job", "name": "wide"},
        reason="Fragmented",
        note="needs 4 hosts",
        eventTime="2026-01-01T00:11:00.123456Z",
        series={"count": 7, "lastObservedTime": "2026-01-01T00:12:00.123456Z"},
    )
    done = topogate("explain", "job/wide")
    assert ["2026-01-01T00:12:00Z", "Fragmented", "needs", "4", "hosts", "7"] in [
        line.split() for line in done.stdout.splitlines()
    ]
    asked = [one.query for one in server.requests if one.path.endswith("/namespaces/alice/events")]
    assert [one["fieldSelector"] for one in asked] == ["regarding.name=wide", "regarding.name=job-wide"]
    forbid(server, "events")
    missed = topogate("explain", "job/wide")
    assert missed.exit_code == 1
    assert missed.stderr == (
        "topogate: events of namespace alice cannot be read: the history is that of the Placement\n"
    )


def test_kinds_have_the_short_names_of_their_definitions(server: FakeApi, topogate: Topogate) -> None:
    """As the API server tells them; an unknown one is answered with the closest."""
    server.install("batch.volcano.sh/v1alpha1", "jobs", "Job", "vcjob", "vj")
    pods = {"spec": {"containers": [{"name": "main"}]}}
    server.put(
        "/apis/batch.volcano.sh/v1alpha1/namespaces/alice/jobs/sim",
        metadata={"uid": "sim", "annotations": {names.REQUIRE: "rack"}},
        spec={"minAvailable": 1, "tasks": [{"name": "worker", "replicas": 1, "template": pods}]},
    )
    for kind in ("vcjob", "vj", "VCJob", "jobs.batch.volcano.sh", "job"):
        assert topogate("explain", f"{kind}/sim").stdout.startswith("Job alice/sim"), kind
    missed = topogate("explain", "vcjb/sim")
    assert (missed.exit_code, missed.stderr.endswith('; did you mean "vcjob"?\n')) == (2, True)
    assert topogate("suspend", "vcjb/sim").stderr == missed.stderr
    assert topogate("suspend", "vcjob/none").stderr.startswith('topogate: no vcjob "none" in namespace "alice"')


def test_explain_a_file_that_is_not_submitted(server: FakeApi, topogate: Topogate, tmp_path: Path) -> None:
    """Admitted and planned beside what is there; nothing is sent but reads."""
    path = tmp_path / "train.json"
    path.write_text(json.dumps(job("fresh", 2, {"require": "rack"})))
    done = topogate("explain", "-f", str(path))
    assert done.stdout.splitlines()[0] == "Job alice/fresh: waits, but fits now" or done.exit_code == 1
    assert {one.method for one in server.requests} == {"GET"}
    path.write_text(json.dumps(job("fresh", 2, {"require": "rak"})))
    refused = topogate("explain", "-f", str(path))
    assert refused.exit_code == 1
    assert refused.stdout.startswith("Job alice/fresh: refused: UnknownLevel\n")
    path.write_text("{")
    assert topogate("explain", "-f", str(path)).exit_code == 2
    path.write_text("")
    empty = topogate("explain", "-f", str(path))
    assert (empty.exit_code, empty.stderr) == (2, "topogate: no workload in the files (-f)\n")
    assert topogate("explain", "-f", str(tmp_path / "none.yaml")).exit_code == 2


def test_a_tenant_is_told_what_explain_does_not_know(server: FakeApi, topogate: Topogate) -> None:
    forbid(server, "nodes", "resourcequotas", "topogate-policy", "events")
    forbid(server, "pods", "jobs", "placements", except_in="alice")
    done = topogate("explain", "job/wide")
    assert done.exit_code == 1
    assert "as the leader last wrote: old" in done.stdout
    assert "topogate: pods of namespaces other than alice cannot be read: free capacity is not known" in done.stderr
    other = topogate("explain", "job/later", "-n", "carol")
    assert (other.exit_code, other.stdout) == (2, "")
    assert 'job "later" in namespace "carol" is not known: jobs' in other.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("explain",), "topogate: name one object as KIND/NAME, or files with -f\n"),
        (("explain", "job/wide", "-f", "x.yaml"), "topogate: name one object as KIND/NAME, or files with -f\n"),
        (("explain", "-f", "-", "-f", "-"), "topogate: standard input (-) can be read only once\n"),
        (("explain", "wide"), 'topogate: "wide" is not KIND/NAME, as job/train'),
        (("explain", "job/wyde"), 'topogate: no job "wyde" in namespace "alice"; did you mean "wide"?\n'),
        (("topology", "show", "--topology", "ib"), 'topogate: no topology "ib"; there are: default\n'),
        (("topology", "show", "--level", "rak"), 'topogate: no level "rak"; there are: block, rack, host\n'),
        (("topology", "show", "--gpus", "-1"), "topogate: Invalid value for '--gpus': -1 is not in the range"),
        (("fits", "--gpus", "8"), "topogate: Missing option '-n' / '--pods'."),
        (("fits", "-n", "0"), "topogate: Invalid value for '-n' / '--pods': 0 is not in the range"),
        (
            ("fits", "-n", "alice"),
            "topogate: Invalid value for '-n' / '--pods': \"alice\" is no number: -n is the number of pods here; the "
            "namespace is --namespace",
        ),
        (("gangs", "-l", "a b c"), "topogate: -l: must be * or a label selector"),
        (("gangs", "jobb/train"), 'topogate: no kind "jobb" among those that are placed'),
        (("fits", "-n", "4", "--require", "rak"), 'topogate: --require: Unsupported value: "rak": allowed: block'),
        (("gangs", "-o", "xml"), "topogate: Invalid value for '-o' / '--output': 'xml' is not one of"),
        (("gangs", "--context", "mins"), 'topogate: no context "mins" in '),
        (("gangs", "--kubeconfig", "/no/such\nfile"), "topogate: /no/such\\nfile: no such kubeconfig\n"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(topogate: Topogate, words: tuple[str, ...], text: str) -> None:
    done = topogate(*words)
    assert done.exit_code == 2
    assert done.stderr.startswith(text), done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_tenant_gets_his_gangs_and_is_told_what_is_not_known(server: FakeApi, topogate: Topogate) -> None:
    """The rights of a namespace alone: own rows, the stored reasons, every missing right in one line; no error."""
    forbid(server, "nodes", "resourcequotas", "topogate-policy")
    shown = topogate("topology", "show")
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert shown.stderr == "topogate: nodes cannot be read: topologies and free capacity are not known\n"
    forbid(server, "pods", "jobs", "placements", except_in="alice")
    done = topogate("gangs", "-A")
    assert done.exit_code == 0
    rows = [line.split()[:3] for line in done.stdout.splitlines()[1:]]
    assert ["alice", "job/train", "Running"] in rows
    assert ["alice", "job/wide", "Waiting"] in rows
    assert "Fragmented" in done.stdout  # as the leader has written it
    assert all(row[0] == "alice" for row in rows)
    told = done.stderr.splitlines()
    assert "topogate: pods of namespaces other than alice cannot be read: free capacity is not known" in told
    assert "topogate: nodes cannot be read: topologies and free capacity are not known" in told
    assert any(line.startswith("topogate: configmaps cannot be read (in namespace topogate-system)") for line in told)
    missed = topogate("fits", "-n", "4")
    assert (missed.exit_code, missed.stdout) == (2, "")
    assert "free capacity is not known" in missed.stderr


def test_gangs_that_may_not_be_listed_are_not_called_missing(server: FakeApi, topogate: Topogate) -> None:
    forbid(server, "nodes")
    forbid(server, "pods", "jobs", "placements", except_in="alice")
    other = topogate("gangs", "-n", "bob")
    assert (other.exit_code, other.stdout) == (2, "")
    assert other.stderr == "topogate: the gangs of namespace bob are not known: no right to list placements there\n"
    assert topogate("gangs", "-n", "alice").exit_code == 0
    forbid(server, "placements")
    every = topogate("gangs", "-A")
    assert (every.exit_code, every.stdout) == (2, "")
    assert every.stderr.startswith("topogate: the gangs of all namespaces are not known: ")


def test_collections_with_the_same_effect_are_told_in_one_line(server: FakeApi, topogate: Topogate) -> None:
    forbid(server, "persistentvolumes", "runtimeclasses", "storageclasses")
    told = topogate("gangs").stderr
    assert told == (
        "topogate: persistentvolumes, runtimeclasses and storageclasses cannot be read: "
        "what depends on them is not counted\n"
    )


def test_a_reader_that_has_enough_is_no_error(kubeconfig: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "webhook.cli", "explain", "job/train"],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=120,
        )
    assert "Broken pipe" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cluster_without_topogate_is_told_in_one_line(server: FakeApi, topogate: Topogate) -> None:
    server.uninstall("topogate.dev/v1alpha1", "placements")
    for words in (("gangs",), ("topology", "show"), ("fits", "-n", "4")):
        done = topogate(*words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr == (
            "topogate: this cluster has no placements.topogate.dev (CustomResourceDefinition): "
            "Topogate is not installed there\n"
        )


def test_a_server_that_does_not_answer_is_told_in_one_line(server: FakeApi, topogate: Topogate) -> None:
    server.fault(Answer(503, {"kind": "Status", "reason": "ServiceUnavailable", "message": "starting"}), times=1000)
    done = topogate("gangs")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"topogate: the API server {server.url} cannot be asked: 503 ServiceUnavailable: starting\n"


def test_nobody_listens(kubeconfig: Path, topogate: Topogate) -> None:
    config = json.loads(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:1"
    kubeconfig.write_text(json.dumps(config))
    done = topogate("topology", "show")
    assert (done.exit_code, done.stdout) == (2, "")
    assert re.fullmatch(r"topogate: the API server http://127.0.0.1:1 cannot be asked: .*refused\n", done.stderr), (
        done.stderr
    )


def test_a_long_reading_is_told_after_two_seconds(
    server: FakeApi, topogate: Topogate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "SILENT_FOR", 0.0)
    shown = threading.Event()
    show = asking.ReadingProgress._show

    def watched(self: asking.ReadingProgress) -> None:
        show(self)
        shown.set()

    monkeypatch.setattr(asking.ReadingProgress, "_show", watched)
    server.fault(Stall(shown, then_work=True), when=lambda one: one.path == "/api/v1/nodes")
    done = topogate("gangs")
    assert done.exit_code == 0
    assert done.stderr.startswith("topogate: reading the cluster, ")
    assert done.stderr.count("\n") == 1


def test_tests_leave_out_what_any_command_tells_of_a_long_reading(capsys: pytest.CaptureFixture[str]) -> None:
    """On a busy machine each of them may take longer than two seconds."""
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "webhook").rglob("*.py"))
    texts = re.findall(r'"([^"]* so far)"', sources)
    assert len(texts) > 3
    for text in texts:
        progress = asking.ReadingProgress(text)
        progress.add(1234)
        progress._show()
        assert without_progress(capsys.readouterr().err) == "", text


class Watching:
    """A command with --watch in a process of its own."""

    def __init__(self, kubeconfig: Path, *words: str) -> None:
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "webhook.cli", *words, "--watch", "--interval", "1"]
        # A shell starts what runs in its background with SIGINT ignored, and children inherit that.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        finally:
            signal.signal(signal.SIGINT, before)
        assert self.process.stdout is not None
        self._lines = iter(self.process.stdout)

    def until(self, text: str) -> None:
        """Read lines until one contains a text."""
        for line in self._lines:
            if text in line:
                return
        raise AssertionError(f"ended without {text!r}: {self.process.stderr.read() if self.process.stderr else ''}")

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal; return the exit status and what was printed on standard error."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


def test_watch_prints_what_changes_until_ctrl_c(server: FakeApi, kubeconfig: Path) -> None:
    """A failed reading in between is told and tried again; Ctrl-C is a clean end."""
    watching = Watching(kubeconfig, "topology", "show", "-o", "json")
    try:
        watching.until('"used":64')
        server.fault(
            Answer(503, {"kind": "Status", "reason": "ServiceUnavailable", "message": "restart"}),
            when=lambda one: "configmaps" in one.path,
        )
        put(server, pod("more", "b1-r1-h3", namespace="bob"))
        watching.until('"used":72')
        status, errors = watching.end(signal.SIGINT)
    finally:
        watching.process.kill()
    assert status == 0
    refused = f"the API server {server.url} cannot be asked: 503 ServiceUnavailable: restart"
    assert errors == f"topogate: {refused}; trying again\n"


def test_ctrl_c_does_not_wait_for_a_silent_server(server: FakeApi, kubeconfig: Path) -> None:
    silent = threading.Event()
    server.fault(Stall(silent), when=lambda one: one.path == "/api/v1/nodes", times=100)
    watching = Watching(kubeconfig, "gangs")
    try:
        server.wait_for(lambda one: any(request.path == "/api/v1/nodes" for request in one.requests), timeout=60)
        status, errors = watching.end(signal.SIGINT)
    finally:
        silent.set()
        watching.process.kill()
    assert status == INTERRUPTED
    assert errors.splitlines()[-1] == "topogate: interrupted"
    assert "Traceback" not in errors


def on_a_terminal(*words: str, columns: int = 60, **environment: str) -> tuple[str, int]:
    """What a command prints on a terminal, and its exit status."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
    command = [sys.executable, "-m", "webhook.cli", *words]
    process = subprocess.Popen(command, cwd=ROOT, env=inherited | environment, stdout=theirs)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the other side is closed
        while chunk := os.read(ours, 65536):
            shown += chunk
    os.close(ours)
    return shown.decode(), process.wait(timeout=60)


@pytest.mark.parametrize(("kind", "coloured"), [("xterm-256color", True), ("dumb", False)])
def test_on_a_terminal_nothing_is_cut(kubeconfig: Path, kind: str, coloured: bool) -> None:
    """With colours if it has them, and lines that are longer than the terminal, as kubectl's are."""
    shown, status = on_a_terminal("gangs", "-A", "-o", "wide", KUBECONFIG=str(kubeconfig), TERM=kind)
    assert status == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert ("\x1b[33m" in shown) is coloured  # a gang that waits
    assert "\N{HORIZONTAL ELLIPSIS}" not in plain
    lines = plain.splitlines()
    assert lines[0].split()[:4] == ["NAMESPACE", "GANG", "PHASE", "PODS"]
    assert any("alice" in line and "job/train" in line and "b0/b0-r0" in line for line in lines)


def test_a_long_name_takes_no_room_from_the_message_of_simulate(tmp_path: Path) -> None:
    """The other columns are never broken: the message had no column any more on a terminal that they fill."""
    long = tmp_path / "long.json"
    long.write_text(json.dumps(job("n" * 63, 4, {"require": "rack"})))
    shown, status = on_a_terminal(
        "simulate", "--cluster", str(ROOT / "examples" / "cluster.yaml"), "-f", str(long), TERM="xterm"
    )
    assert status == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "\N{HORIZONTAL ELLIPSIS}" not in plain
    assert "placed 4 pods in block-0 /" in plain
    assert "1 workload: 1 placed; 32 nodes, 32 in the topology (block, rack, host)" in plain.splitlines()


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False)],
)
@pytest.mark.parametrize(
    "words", [("gangs", "-A"), ("topology", "doctor")], ids=["a table of rich", "lines of our own"]
)
def test_nobody_gets_colours_that_he_does_not_want(
    kubeconfig: Path, words: tuple[str, ...], environment: dict[str, str], coloured: bool
) -> None:
    shown, _ = on_a_terminal(*words, KUBECONFIG=str(kubeconfig), **environment)
    assert bool(re.search(r"\x1b\[3[0-9]m", shown)) is coloured


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_the_program(topogate: Topogate, shell: str) -> None:
    done = topogate("completion", shell)
    assert done.exit_code == 0
    assert f"{VARIABLE}={shell}_complete" in done.stdout
    assert "topogate" in done.stdout


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["top"], {"topology"}),
        (["topology", ""], {"show", "doctor"}),
        (["topology", "show", "--le"], {"--level"}),
        (["gangs", "-o", "w"], {"wide"}),
    ],
)
def test_words_are_completed_for_bash_and_for_kubectl(tmp_path: Path, typed: list[str], expected: set[str]) -> None:
    """The scripts run as kubectl and bash would: the program under its name on the PATH."""
    program = tmp_path / "kubectl-topogate"
    program.write_text(
        f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -c \'import sys; sys.argv[0] = "topogate"; '
        'from webhook.cli import main; main()\' "$@"\n'
    )
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = subprocess.run(
        [program, "completion", "kubectl"], env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    plugin = tmp_path / "kubectl_complete-topogate"
    plugin.write_text(script)
    plugin.chmod(0o755)
    done = subprocess.run([plugin, *typed], env=environment, capture_output=True, text=True, check=True, timeout=60)
    *words, directive = done.stdout.split()
    assert (set(words), directive) == (expected, ":4")


def test_the_program_is_a_kubectl_plugin_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:

    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/kubectl-topogate", "gangs", "--help"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("Usage: kubectl topogate gangs [OPTIONS]")


@pytest.mark.parametrize("mode", ["hold", "enforce"])
def test_a_gang_with_slots_is_not_requeued_on_hold(server: FakeApi, topogate: Topogate, mode: str) -> None:
    """It would give its slots back and get no others; otherwise it is suspended first."""
    text = (
        f"topologies: [{{name: default, preset: demo}}]\nnamespaces: {{modes: [{{namespaces: [a*], mode: {mode}}}]}}\n"
    )
    path = f"/api/v1/namespaces/{names.NAMESPACE}/configmaps/{names.POLICY_NAME}"
    server.put(path, metadata={"name": names.POLICY_NAME, "namespace": names.NAMESPACE}, data={names.POLICY_KEY: text})
    server.fault(
        Answer(403, {"kind": "Status", "reason": "Forbidden", "message": "no"}), when=lambda one: one.method == "PATCH"
    )
    done = topogate("requeue", "job/train", "-n", "alice")
    said = "not requeued: the policy's mode is hold in this namespace (namespaces.modes[0])"
    assert (done.exit_code, said in done.stderr) == (1, mode == "hold"), done.stderr
    assert bool([one for one in server.requests if one.method == "PATCH"]) == (mode == "enforce")


def test_a_gang_that_its_user_has_just_suspended_is_not_requeued(server: FakeApi, topogate: Topogate) -> None:
    """It has slots until its pods are gone, and would be resumed in the end."""
    server.put("/apis/batch/v1/namespaces/alice/jobs/train", spec={"suspend": True})
    done = topogate("requeue", "job/train", "-n", "alice")
    assert (done.exit_code, done.stdout) == (1, ""), done.stderr
    assert "not requeued: it is suspended by its user" in done.stderr
    assert "topogate resume job/train -n alice" in done.stderr
    assert not [one for one in server.requests if one.method == "PATCH"]


def test_a_gang_whose_placement_may_not_be_read_is_not_requeued(server: FakeApi, topogate: Topogate) -> None:
    """It may have slots."""
    forbid(server, "placements")
    done = topogate("requeue", "job/train", "-n", "alice")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("topogate: whether it has slots is not known: placements cannot be read")
    assert not [one for one in server.requests if one.method == "PATCH"]


def test_a_gang_is_not_resumed_while_its_placement_cannot_be_read(
    server: FakeApi, topogate: Topogate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that fails is no list without it: the gang would get the slots back that it was to give away."""
    monkeypatch.setattr(suspension, "_GIVEN_BACK_WITHIN", 0.0)

    def hit(request: Request) -> bool:
        suspended = any(one.method == "PATCH" for one in server.requests)
        return suspended and request.path.endswith("/placements")

    server.fault(Answer(500, {"kind": "Status", "message": "etcd is slow"}), when=hit, times=1000)
    done = topogate("requeue", "job/train", "-n", "alice")
    assert done.exit_code == 1
    assert "placements cannot be read (500: etcd is slow)" in done.stderr
    assert "the workload stays suspended: topogate resume job/train -n alice" in done.stderr
    assert len([one for one in server.requests if one.method == "PATCH"]) == 1


def test_watching_goes_on_where_a_placement_cannot_be_read_once(server: FakeApi, kubeconfig: Path) -> None:
    """Until then it said that the gang is left alone."""
    watching = Watching(kubeconfig, "explain", "job/train", "-o", "json")
    try:
        watching.until('"placed"')
        server.fault(
            Answer(500, {"kind": "Status", "message": "slow"}),
            when=lambda one: one.path.endswith("/placements"),
            times=2,
        )
        server.put("/apis/batch/v1/namespaces/alice/jobs/train", spec={"parallelism": 4, "completions": 4})
        watching.until('"wanted":4')
        status, errors = watching.end(signal.SIGINT)
    finally:
        watching.process.kill()
    assert status == 0
    assert "has slots is not known: placements cannot be read (500: slow)" in errors
    assert errors.rstrip().endswith("; trying again")
