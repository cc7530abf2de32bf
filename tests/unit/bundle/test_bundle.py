"""What a support bundle has in it, what it never has, and what it says of both."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from engine.api import names
from tests.support.fake_api import Answer, FakeApi, Request
from tests.support.kubelet import shown
from tests.unit.commands.conftest import forbid, kubeconfig, put, server  # noqa: F401 - fixtures
from webhook.bundle import reading
from webhook.bundle.archive import write_archive
from webhook.bundle.excerpts import REMOVED, configuration_excerpt, own_pod_excerpt, pod_excerpt, scrubbed
from webhook.bundle.reading import BundleFile
from webhook.cli import main

SECRET = "p1ant3d-S3cr3t"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ0b3BvZ2F0ZSJ9.c2lnbmF0dXJl"
PODS = f"/api/v1/namespaces/{names.NAMESPACE}/pods"
Bundle = Callable[..., Result]


@pytest.fixture
def bundle(kubeconfig: Path, server: FakeApi, tmp_path: Path) -> Bundle:  # noqa: F811
    server.fault(Answer(200, {"gitVersion": "v1.36.0"}), when=lambda one: one.path == "/version", times=100)

    def run(*words: str) -> Result:
        command = ("support-bundle", "-o", str(tmp_path / "bundle.tar.gz"), *words)
        return CliRunner(env={"KUBECONFIG": str(kubeconfig)}).invoke(main, command, prog_name="topogate")

    return run


def contents(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        found = {}
        for entry in archive.getmembers():
            stream = archive.extractfile(entry)
            assert stream is not None
            found[entry.name.partition("/")[2]] = stream.read().decode()
            assert entry.mode == 0o600
        return found


def replica(server: FakeApi) -> None:  # noqa: F811
    """A pod of the service, with its log and its pages."""
    labels = {"app.kubernetes.io/name": "topogate", "app.kubernetes.io/component": "service"}
    container = {"name": "topogate", "image": "example.com/topogate:1", "env": [{"name": "A", "value": SECRET}]}
    server.put(
        f"{PODS}/topogate-0",
        metadata={"name": "topogate-0", "namespace": names.NAMESPACE, "labels": labels},
        spec={"containers": [container | {"args": [f"--x={SECRET}"]}]},
    )
    pages = {
        "/log": f"GET / Authorization: Bearer {TOKEN}\nit leads",
        "/metrics": "topogate_leader 1.0\n",
        "/readyz": "+",
    }
    for path, text in pages.items():
        server.fault(
            Answer(200, text.encode()),
            when=lambda one, path=path: one.path.endswith(path) and "previous" not in one.query,
        )
    server.fault(Answer(400, {"message": "no previous container"}), when=lambda one: "previous" in one.query)


def hostile(server: FakeApi) -> None:  # noqa: F811
    """Secrets wherever people put them."""
    server.put(f"/api/v1/namespaces/{names.NAMESPACE}/secrets/topogate-ca", data={"key": SECRET})
    server.put(f"/api/v1/namespaces/{names.NAMESPACE}/configmaps/other", data={"key": SECRET})
    container = {"name": "main", "image": f"example.com/{SECRET}", "env": [{"name": "TOKEN", "value": SECRET}]}
    container |= {"command": [SECRET], "args": [SECRET]}
    marks = {names.MANAGED: "true", "team": SECRET}
    annotations = {"example.com/token": SECRET, "kubectl.kubernetes.io/last-applied-configuration": SECRET}
    spec = {"containers": [container], "initContainers": [container], "volumes": [{"name": SECRET}]}
    metadata = {"name": "leaky", "namespace": "alice", "uid": "leaky", "labels": marks, "annotations": annotations}
    put(server, {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending", "message": SECRET}})
    asks = {**annotations, names.REQUIRE: "rack"}
    job = {"metadata": {**metadata, "annotations": asks}, "kind": "Job", "spec": {"template": {"spec": spec}}}
    put(server, job)
    server.put("/api/v1/nodes/stray", metadata={"annotations": {"a": SECRET}}, status={"images": [{"names": [SECRET]}]})


def test_everything_is_in_it_but_secrets(bundle: Bundle, server: FakeApi, tmp_path: Path) -> None:  # noqa: F811
    """Gangs, nodes, logs and metrics; planted secrets nowhere, and no Secret is asked for."""
    replica(server)
    hostile(server)
    done = bundle()
    found = contents(tmp_path / "bundle.tar.gz")
    everything = "".join(found.values())
    assert SECRET not in everything
    assert TOKEN not in everything
    assert SECRET.encode() not in (tmp_path / "bundle.tar.gz").read_bytes()
    assert not [one.path for one in server.requests if "/secrets" in one.path or one.path.endswith("/other")]
    assert {gang["name"] for gang in json.loads(found["gangs/gangs.json"])["gangs"]} >= {"train", "wide"}
    workloads = {one["name"]: one for one in json.loads(found["gangs/workloads.json"])}
    assert workloads["leaky"]["annotations"] == {names.REQUIRE: "rack"}
    assert workloads["wide"]["suspended"] is True
    assert json.loads(found["cluster/nodes.json"])[0]["status"]["allocatable"]
    assert found["service/topogate-0/log.txt"] == f"GET / Authorization: Bearer {REMOVED}\nit leads"
    assert {one.query.get("container") for one in server.requests if one.path.endswith("/log")} == {"topogate"}
    assert found["service/topogate-0/metrics.txt"] == "topogate_leader 1.0\n"
    (own,) = json.loads(found["service/pods.json"])
    assert own["spec"]["containers"] == [{"name": "topogate", "image": "example.com/topogate:1"}]
    assert "Secrets are never read" in found["README.md"]
    assert (done.exit_code, done.exception) == (0, None) or isinstance(done.exception, SystemExit), done.output


def test_what_cannot_be_read_is_listed(bundle: Bundle, server: FakeApi, tmp_path: Path) -> None:  # noqa: F811
    """In the archive and on standard error; objects that do not exist are no failure."""
    whole = bundle()
    assert (whole.exit_code, whole.stderr) == (0, "topogate: reading configurations, logs and metrics\n")
    assert "`policy/topogate-policy.json`: there is none" in contents(tmp_path / "bundle.tar.gz")["README.md"]
    (tmp_path / "bundle.tar.gz").unlink()
    forbid(server, "events", "pods")
    done = bundle()
    assert done.exit_code == 1
    page = contents(tmp_path / "bundle.tar.gz")["README.md"]
    for told in (page, done.stderr):
        assert re.search(r"gangs/events\.json`?: 403 Forbidden: no", told)
        assert "pods cannot be read" in told


def kubelet(server: FakeApi, log: bytes, *, fails_at: int = 0) -> None:  # noqa: F811
    """A pod of the service whose log a kubelet shows; a request for `fails_at` lines fails."""
    labels = {"app.kubernetes.io/name": "topogate", "app.kubernetes.io/component": "service"}
    server.put(f"{PODS}/topogate-0", metadata={"name": "topogate-0", "namespace": names.NAMESPACE, "labels": labels})
    server.fault(Answer(400, {"message": "no previous container"}), when=lambda one: "previous" in one.query)
    lines = reading.LOG_LINES
    while lines:
        query = {"tailLines": str(lines), "limitBytes": str(reading.LOG_BYTES), "timestamps": "true"}
        answer = Answer(500, {"message": "broken"}) if lines == fails_at else Answer(200, shown(log, query))
        server.fault(answer, when=lambda one, query=query: one.path.endswith("/log") and query == one.query)
        lines //= 2


def numbered(count: int, size: int) -> bytes:
    return b"".join(b"%06d %s\n" % (number, b"x" * (size - 8)) for number in range(count))


@dataclass(frozen=True)
class Log:
    """A log, the first and the last line of it in a bundle, what is said of it, and how often it is asked for."""

    content: bytes
    kept: tuple[int, int]
    said: str = ""
    requests: int = 1
    fails_at: int = 0  # that many lines


LOGS = {
    "all": Log(numbered(400, 100), (0, 399)),
    "many lines": Log(numbered(3_000, 60), (1_000, 2_999)),
    "long lines": Log(numbered(2_000, 200), (1_000, 1_999), requests=2),
    "one is huge": Log(b"y" * 400_000 + b"\n" + numbered(1_500, 60), (500, 1_499), requests=2),
    "the last is huge": Log(
        numbered(500, 60) + b"y" * 400_000,
        (1, 499),
        "without its newest lines: the last 500 are more than 256 KiB",
        requests=3,
    ),
    "the second request fails": Log(
        numbered(2_000, 200), (0, 1_134), "without its newest lines: 500: broken", requests=2, fails_at=1_000
    ),
}


@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)
def test_the_newest_lines_of_a_log_are_kept(
    bundle: Bundle,
    server: FakeApi,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    log: Log,
) -> None:
    """A kubelet leaves out the newest of lines that are too many bytes: fewer are asked for until they fit."""
    monkeypatch.setattr(reading, "LOG_BYTES", 256 * 1024)
    monkeypatch.setattr(reading, "LOG_LINES", 2_000)
    kubelet(server, log.content, fails_at=log.fails_at)
    done = bundle()
    found = contents(tmp_path / "bundle.tar.gz")
    numbers = re.findall(r"Z (\d{6}) ", found["service/topogate-0/log.txt"])
    assert (int(numbers[0]), int(numbers[-1])) == log.kept
    asked = [one for one in server.requests if one.path.endswith("/log") and "previous" not in one.query]
    assert len(asked) == log.requests
    told = re.findall(r"service/topogate-0/log\.txt: (.*)", done.stderr)
    assert told == ([log.said] if log.said else [])
    assert all(f"`service/topogate-0/log.txt`: {one}" in found["README.md"] for one in told)


def events(server: FakeApi, count: int) -> None:  # noqa: F811
    """Events about Placements, of which a page has a part."""
    for number in range(count):
        place = f"/apis/events.k8s.io/v1/namespaces/alice/events/e{number:03}"
        server.put(place, metadata={"name": f"e{number:03}"}, regarding={"kind": names.PLACEMENT_KIND}, reason="Placed")


def test_what_was_read_before_a_list_expired_is_kept(
    bundle: Bundle,
    server: FakeApi,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list of Events takes longer than the API server keeps its pages: the file says where it ends."""
    monkeypatch.setattr(reading, "PAGE", 2)
    events(server, 7)
    gone = Answer(410, {"kind": "Status", "code": 410, "reason": "Expired", "message": "the token is too old"})
    pages: list[str] = []

    def third(request: Request) -> bool:
        if request.path == "/apis/events.k8s.io/v1/events":
            pages.append(request.query.get("continue", ""))
        return len(pages) == 3 and request.query.get("continue", "") == pages[-1] != ""

    server.fault(gone, when=third)
    done = bundle()
    found = contents(tmp_path / "bundle.tar.gz")
    assert len(json.loads(found["gangs/events.json"])) == 4
    said = "only what is in the first 4: 410 Expired: the token is too old"
    assert f"`gangs/events.json`: {said}" in found["README.md"]
    assert (done.exit_code, f"gangs/events.json: {said}" in done.stderr) == (1, True)


def test_others_events_are_looked_through_within_bounds(
    bundle: Bundle,
    server: FakeApi,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cluster may have any number of them, of which none is kept."""
    monkeypatch.setattr(reading, "PAGE", 2)
    monkeypatch.setattr(reading, "MOST_PAGES", 3)
    for number in range(20):
        place = f"/apis/events.k8s.io/v1/namespaces/bob/events/o{number:03}"
        server.put(place, metadata={"name": f"o{number:03}"}, regarding={"kind": "Pod"}, reason="Pulled")
    done = bundle()
    asked = [one for one in server.requests if one.path == "/apis/events.k8s.io/v1/events"]
    assert len(asked) == 3
    assert "gangs/events.json: only what is in the first 6\n" in done.stderr
    assert json.loads(contents(tmp_path / "bundle.tar.gz")["gangs/events.json"]) == []


def test_a_missing_right_is_named(bundle: Bundle, server: FakeApi) -> None:  # noqa: F811
    """Not the sentence of the API server with the caller's account."""
    words = 'nodes is forbidden: User "eve" cannot list resource "nodes" in API group "" at the cluster scope'
    denied = Answer(403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": words})
    server.fault(denied, when=lambda one: one.path == "/api/v1/nodes", times=100)
    done = bundle()
    assert "topogate: cluster/nodes.json: no right to list nodes\n" in done.stderr
    assert "eve" not in done.stderr


def test_an_existing_file_is_kept(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "bundle.tar.gz").write_text("mine")
    done = bundle()
    assert (done.exit_code, "exists already" in done.stderr) == (2, True)
    assert (tmp_path / "bundle.tar.gz").read_text() == "mine"
    with pytest.raises(FileExistsError):
        write_archive(tmp_path / "bundle.tar.gz", [BundleFile("a", "b")], folder="f", mtime=0)


def test_a_directory_that_is_missing_is_told_before_the_cluster_is_read(
    bundle: Bundle,
    server: FakeApi,  # noqa: F811
    tmp_path: Path,
) -> None:
    done = bundle("-o", str(tmp_path / "nowhere" / "bundle.tar.gz"))
    assert (done.exit_code, "there is no directory" in done.stderr) == (2, True)
    assert server.count("GET") == 0


def test_an_archive_is_its_owners_alone(tmp_path: Path) -> None:
    """And after a failure there is none."""
    file = tmp_path / "a.tar.gz"
    write_archive(file, [BundleFile("a", "text"), BundleFile("empty")], folder="f", mtime=0)
    assert (file.stat().st_mode & 0o777, contents(file)) == (0o600, {"a": "text"})


FIELDS = ("metadata", "annotations", "labels", "spec", "containers", "env", "command", "args", "volumes", "x")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(SECRET),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_any_object_is_cut_to_known_fields(found: Any) -> None:
    """Fields that nobody asked for never get in, whatever an object looks like."""
    body = found if isinstance(found, dict) else {"spec": found}
    for keep in (pod_excerpt, own_pod_excerpt):
        try:
            kept = keep(body)
        except (TypeError, AttributeError):
            continue  # told as not readable
        assert SECRET not in json.dumps(kept), kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"token {TOKEN} end", f"token {REMOVED} end"),
        ("Authorization: Bearer abcdefgh12345", f"Authorization: Bearer {REMOVED}"),
        ("https://user:pass@host/x", f"https://{REMOVED}@host/x"),
        ("-----BEGIN EC PRIVATE KEY-----\nabc\n-----END EC PRIVATE KEY-----\nrest", f"{REMOVED}\nrest"),
        ("-----BEGIN PRIVATE KEY-----\ncut off", REMOVED),
        ("-----BEGIN CERTIFICATE-----\nabc", "-----BEGIN CERTIFICATE-----\nabc"),
        ("rack-07 has 14 of 16 hosts", "rack-07 has 14 of 16 hosts"),
    ],
)
def test_what_looks_like_a_secret_is_removed_from_text(text: str, kept: str) -> None:
    assert scrubbed(text) == kept


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "part", ["-eyJ", "eyJabcdefgh.", "://a:", "-----BEGIN PRIVATE KEY-----", "-----BEGIN A", "Bearer Bearer "]
)
def test_no_text_of_a_user_keeps_the_search_for_secrets_busy(part: str) -> None:
    """An annotation has up to 256 KiB, and each of many pods may have it."""
    text = part * (2**20 // len(part))
    assert len(scrubbed(text)) <= 2 * len(text)


def test_a_users_text_removes_nothing_of_others(bundle: Bundle, server: FakeApi, tmp_path: Path) -> None:  # noqa: F811
    """A text that looks like the begin of a private key ends with itself, not with the file; the file stays JSON."""
    begin = "-----BEGIN PRIVATE KEY-----"
    template = {"spec": {"containers": [{"name": "main"}]}}
    for name, value in (("a-first", begin), ("a-second", f"rack-{TOKEN}")):
        metadata = {"name": name, "namespace": "alice", "uid": name, "annotations": {names.REQUIRE: value}}
        put(server, {"kind": "Job", "metadata": metadata, "spec": {"template": template}})
    bundle()
    found = contents(tmp_path / "bundle.tar.gz")
    workloads = {one["name"]: one for one in json.loads(found["gangs/workloads.json"])}
    assert workloads["a-first"]["annotations"] == {names.REQUIRE: REMOVED}
    assert "wide" in workloads
    for name in ("gangs/gangs.json", "gangs/topologies.json", "gangs/workloads.json"):
        assert json.loads(found[name])
        assert TOKEN not in found[name]
        assert begin not in found[name]


def test_a_ca_bundle_is_told_by_its_digest() -> None:
    kept = configuration_excerpt({"webhooks": [{"name": "a", "clientConfig": {"caBundle": "QUJD"}}]})
    (webhook,) = kept["webhooks"]
    assert re.fullmatch(r"sha256 [0-9a-f]{64}, 4 characters", webhook["clientConfig"]["caBundle"])
