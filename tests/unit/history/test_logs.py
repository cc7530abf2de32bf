"""Reading the logs of the service's pods: what is asked for, what may be missing, and since when they are complete."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.api import names
from engine.api.duration import timestamp
from engine.cluster.client import KubeClient, connect
from engine.history.lines import MAX_LINE
from tests.support.fake_api import Answer, FakeApi, Request
from tests.unit.commands.conftest import Topogate, kubeconfig, server, topogate  # noqa: F401 - fixtures
from tests.unit.history.test_answer import FIRST, NIGHT, NOW, SECOND, line
from webhook.history import logs as logs_module
from webhook.history.answer import HistoryFilter, answer_of
from webhook.history.logs import LogsProblem, ServiceLogs, service_logs
from webhook.snapshot.installation import SERVICE_PODS

PODS = f"/api/v1/namespaces/{names.NAMESPACE}/pods"
Read = Callable[..., ServiceLogs]


@pytest.fixture
def api(server: FakeApi, kubeconfig: Path) -> KubeClient:  # noqa: F811
    return connect(kubeconfig=str(kubeconfig), user_agent="test")


@pytest.fixture
def read(api: KubeClient) -> Read:
    def run(*, since: float = NIGHT - 3600, now: float = NOW) -> ServiceLogs:
        return service_logs(api, namespace=names.NAMESPACE, since=since, now=now)

    return run


def replica(
    server: FakeApi,  # noqa: F811
    name: str,
    *,
    restarts: int = 0,
    containers: tuple[str, ...] = ("topogate",),
    started: float | None = None,
) -> None:
    labels = dict(one.split("=") for one in SERVICE_PODS.split(","))
    state = {} if started is None else {"state": {"running": {"startedAt": timestamp(started)}}}
    server.put(
        f"{PODS}/{name}",
        metadata={"name": name, "namespace": names.NAMESPACE, "labels": labels},
        spec={"containers": [{"name": one} for one in containers]},
        status={"containerStatuses": [{"name": one, "restartCount": restarts, **state} for one in containers]},
    )


def log(server: FakeApi, name: str, *lines: bytes, previous: bool = False, status: int = 200) -> None:  # noqa: F811
    """The log of a pod; `status`: it cannot be read."""

    def hit(one: Request) -> bool:
        return one.path == f"{PODS}/{name}/log" and ("previous" in one.query) == previous

    body: bytes | dict[str, Any] = b"".join(lines)
    if status != 200:
        body = {"kind": "Status", "reason": "x", "message": f"no log of {name}", "code": status}
    server.fault(Answer(status, body), when=hit, times=100)


def test_the_logs_of_all_replicas_are_read(server: FakeApi, read: Read) -> None:  # noqa: F811
    """Of each only what is asked for, from our container beside a sidecar, within bounds."""
    replica(server, "topogate-a", containers=("mesh", "topogate"))
    replica(server, "topogate-b", containers=("main",))
    log(server, "topogate-a", *FIRST)
    log(server, "topogate-b", *SECOND)
    found = read()
    assert [(part.name, len(part.records)) for part in found.parts] == [("topogate-a", 9), ("topogate-b", 7)]
    assert found.problems == ()
    assert [part.begins for part in found.parts] == [NIGHT, NIGHT + 3600]
    asked = [one.query for one in server.requests if one.path.endswith("/topogate-a/log")]
    assert [(one["container"], one.get("sinceSeconds")) for one in asked] == [("topogate", None), ("topogate", "32400")]
    assert all(int(one["limitBytes"]) <= 256 * 1024 * 1024 for one in asked)
    assert {one.query["container"] for one in server.requests if one.path.endswith("/topogate-b/log")} == {"main"}
    (listed,) = [one.query for one in server.requests if one.path == PODS]
    assert listed == {"labelSelector": SERVICE_PODS}


def test_the_log_of_the_container_before_a_restart_is_read_too(server: FakeApi, read: Read) -> None:  # noqa: F811
    replica(server, "topogate-a", restarts=2)
    log(server, "topogate-a", *FIRST, previous=True)
    log(server, "topogate-a", *SECOND)
    (part,) = read().parts
    assert (len(part.records), part.begins) == (16, NIGHT)


@pytest.mark.parametrize(("started", "begins"), [(NIGHT + 3590, NIGHT), (NIGHT + 1800, NIGHT + 3600)])
def test_a_log_that_was_rotated_after_a_restart_is_not_complete_since_the_log_before(
    server: FakeApi,  # noqa: F811
    read: Read,
    started: float,
    begins: float,
) -> None:
    """The first lines of the container that runs are gone, and nobody can read them."""
    replica(server, "topogate-a", restarts=1, started=started)
    log(server, "topogate-a", *FIRST, previous=True)
    log(server, "topogate-a", *SECOND)
    (part,) = read().parts
    assert (len(part.records), part.begins) == (16, begins)


def test_a_log_that_is_gone_or_not_there_yet_is_no_problem(server: FakeApi, read: Read) -> None:  # noqa: F811
    """The kubelet removes old containers; a pod that starts has said nothing."""
    replica(server, "topogate-a", restarts=1)
    log(server, "topogate-a", previous=True, status=400)
    log(server, "topogate-a", *FIRST)
    replica(server, "topogate-b")
    log(server, "topogate-b", status=400)
    found = read()
    assert ([len(part.records) for part in found.parts], found.problems) == ([9, 0], ())
    assert found.parts[1].begins == NOW


def test_a_log_that_is_larger_than_is_read_says_so(
    server: FakeApi,  # noqa: F811
    read: Read,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The API server ends its answer at the limit, with the oldest part of the log."""
    replica(server, "topogate-a")
    log(server, "topogate-a", *FIRST)
    assert not read().parts[0].end_unread
    monkeypatch.setattr(logs_module, "MOST_BYTES", MAX_LINE + 500)
    found = read()
    assert found.parts[0].end_unread
    told = answer_of(found.parts, HistoryFilter(), now=NOW, one_log=False).remarks
    assert told == ("topogate-a: its log is so large that its end was not read; a shorter --since has it",)


def test_one_log_that_cannot_be_read_is_told_beside_the_others(server: FakeApi, read: Read) -> None:  # noqa: F811
    replica(server, "topogate-a")
    replica(server, "topogate-b")
    log(server, "topogate-a", status=500)
    log(server, "topogate-b", *SECOND)
    found = read()
    assert [part.name for part in found.parts] == ["topogate-b"]
    assert found.problems == ("the log of pod topogate-a cannot be read (500 x: no log of topogate-a)",)


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (403, "no right to get pods/log in namespace topogate-system, where the service runs"),
        (500, "the log of pod topogate-a cannot be read (500"),
    ],
)
def test_without_any_log_there_is_no_answer(server: FakeApi, read: Read, status: int, told: str) -> None:  # noqa: F811
    replica(server, "topogate-a")
    log(server, "topogate-a", status=status)
    with pytest.raises(LogsProblem, match=told.replace("(", r"\(")):
        read()


def test_where_there_are_no_pods_the_namespace_is_asked_for(read: Read) -> None:
    with pytest.raises(LogsProblem, match="no pods of Topogate in namespace topogate-system: name its namespace with"):
        read()


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"items": 7}', b'{"items": [{}]}', b"\xff"])
def test_an_answer_that_is_no_list_of_pods_is_told(server: FakeApi, read: Read, body: bytes) -> None:  # noqa: F811
    server.fault(Answer(200, body), when=lambda one: one.path == PODS)
    with pytest.raises(LogsProblem, match="not a list of pods"):
        read()


def test_the_command_prints_what_the_replicas_say(server: FakeApi, topogate: Topogate) -> None:  # noqa: F811
    """In the namespace of the context, with what concerns the whole service."""
    replica(server, "topogate-a")
    log(server, "topogate-a", *FIRST)
    every = topogate("history", "-A", "--since", "100000h")
    assert (every.exit_code, every.stderr) == (0, "")
    rows = [one.split() for one in every.stdout.splitlines()]
    assert ["2", "gangs", "placed"] in [row[2:5] for row in rows]
    assert [row[1:3] for row in rows if "job/eval" in row] == [["bob", "job/eval"]]
    own = topogate("history", "--since", "100000h")
    assert "job/train" in own.stdout
    assert "LeadershipGained" in own.stdout
    assert "job/eval" not in own.stdout
    assert "job/eval" in topogate("history", "--since", "100000h", "-n", "bob").stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("history",), "topogate: no right to list pods in namespace topogate-system"),
        (("history", "train"), 'topogate: "train" is not KIND/NAME'),
        (("history", "--since", "yesterday"), "topogate: --since must be a duration such as 30s, 10m or 1h30m"),
        (("history", "-f", "nowhere.log"), "topogate: nowhere.log: No such file or directory"),
        (("history", "-f", "-", "-f", "-"), "topogate: standard input (-) can be read only once"),
    ],
)
def test_what_cannot_be_answered_is_told_in_one_line(
    server: FakeApi,  # noqa: F811
    topogate: Topogate,  # noqa: F811
    words: tuple[str, ...],
    told: str,
) -> None:
    forbidden = Answer(403, {"kind": "Status", "reason": "Forbidden", "message": "no"})
    server.fault(forbidden, when=lambda one: one.path == PODS, times=10)
    done = topogate(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(told)
    assert done.stderr.count("\n") == 1


def test_saved_logs_are_read_whole_and_need_no_cluster(topogate: Topogate, tmp_path: Path) -> None:  # noqa: F811
    """As files or on standard input, of all namespaces; with --since from then on."""
    saved = tmp_path / "night.log"
    saved.write_bytes(b"".join(FIRST + SECOND))
    found = json.loads(topogate("history", "-f", str(saved), "--kubeconfig", "nowhere", "-o", "json").stdout)
    assert (len(found["records"]), found["since"], found["sources"][0]["name"]) == (16, None, str(saved))
    assert topogate("history", "-f", str(saved), "--since", "1m", "-o", "yaml").stdout.count("event:") == 0
    assert "job/eval" not in topogate("history", "-f", str(saved), "-n", "alice", "-o", "wide").stdout
    assert topogate("history", "job/nobody", "-f", str(saved)).exit_code == 1
    longest = topogate("history", "-f", str(saved), "--since", "99999999999h")
    assert (longest.exit_code, longest.stdout.partition(":")[0]) == (0, "since 1970-01-01T00")


def test_nothing_in_a_log_moves_the_cursor(topogate: Topogate, tmp_path: Path) -> None:  # noqa: F811
    """A file can come from anybody."""
    hostile = "\x1b[2J\x9b31m\u202e"
    saved = tmp_path / f"{hostile}.log"
    saved.write_bytes(
        line(1, "Waiting", f"alice{hostile}/train{hostile}", reason=hostile, message=hostile, domain=hostile)
    )
    for output in ("table", "wide"):
        done = topogate("history", "-f", str(saved), "-o", output)
        assert done.exit_code == 0
        assert all(one.isprintable() for one in done.stdout.splitlines())
