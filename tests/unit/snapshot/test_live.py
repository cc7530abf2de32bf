"""Reading a cluster once with the caller's rights: pages, missing rights, faults, and what is told about them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from engine.cluster.client import KubeClient, connect
from engine.policy.model import parse_policy
from tests.support.fake_api import Answer, FakeApi, Request
from tests.support.simulation import grid, job, pod
from webhook.checks.own_rights import needed_rights
from webhook.snapshot import live
from webhook.snapshot.connection import ConnectionProblem, connect_as_caller
from webhook.snapshot.live import read_cluster
from webhook.snapshot.snapshot import Snapshot

PLACEMENTS = "/apis/topogate.dev/v1alpha1/placements"
POLICY = "/api/v1/namespaces/topogate-system/configmaps/topogate-policy"
LAST_GOOD = "/api/v1/namespaces/topogate-system/configmaps/topogate-policy-last-good"


@pytest.fixture
def server() -> Iterator[FakeApi]:
    with FakeApi() as running:
        running.install("topogate.dev/v1alpha1", "placements", "Placement")
        for node in grid(1, 2, 2):
            running.put(f"/api/v1/nodes/{node['metadata']['name']}", **_body(node))
        yield running


@pytest.fixture
def kubeconfig(server: FakeApi, tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "mine",
                "clusters": [{"name": "fake", "cluster": {"server": server.url}}],
                "users": [{"name": "me", "user": {}}],
                "contexts": [
                    {"name": "mine", "context": {"cluster": "fake", "user": "me", "namespace": "alice"}},
                    {"name": "other", "context": {"cluster": "fake", "user": "me"}},
                ],
            }
        )
    )
    return path


@pytest.fixture
def api(kubeconfig: Path) -> KubeClient:
    return connect(kubeconfig=str(kubeconfig), user_agent="test")


def _body(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key not in ("apiVersion", "kind")}


def read(api: KubeClient, **options: Any) -> Snapshot:
    return read_cluster(api, **{"namespace": "alice", "wall": lambda: 1_000_000.0, **options})


def forbid(server: FakeApi, *plurals: str, except_in: str | None = None) -> None:
    """Answer 403 to lists of these collections; in one namespace they are allowed."""

    def hit(request: Request) -> bool:
        return (
            request.path.rpartition("/")[2] in plurals
            and request.method == "GET"
            and (except_in is None or f"/namespaces/{except_in}/" not in request.path)
        )

    server.fault(Answer(403, {"kind": "Status", "reason": "Forbidden", "message": "no"}), when=hit, times=1000)


def test_the_state_is_that_of_the_objects_and_nothing_is_missing(server: FakeApi, api: KubeClient) -> None:
    bound = pod("p", "b0-r0-h0", gpus=3, namespace="alice")
    server.put("/api/v1/namespaces/alice/pods/p", **_body(bound))
    snapshot = read(api)
    (topology,) = snapshot.view.topologies.values()
    assert [level.name for level in topology.levels] == ["block", "rack", "host"]
    assert snapshot.view.capacity.free("b0-r0-h0")["nvidia.com/gpu"] == 5
    assert (snapshot.unread, snapshot.notes, snapshot.taken) == ((), (), 1_000_000.0)
    assert snapshot.capacity_known
    assert snapshot.installed


def test_hyper_nodes_are_read_where_they_are_installed(server: FakeApi, api: KubeClient) -> None:
    """Once for the whole cluster, as they are in no namespace."""
    server.install("topology.volcano.sh/v1alpha1", "hypernodes", "HyperNode")
    members = [{"type": "Node", "selector": {"exactMatch": {"name": "b0-r0-h0"}}}]
    server.put("/apis/topology.volcano.sh/v1alpha1/hypernodes/s0", spec={"tier": 1, "members": members})
    topology = read(api).view.topologies["hypernodes"]
    assert list(topology.tree.paths) == [("s0", "b0-r0-h0")]


def test_finished_pods_are_not_asked_for_and_pages_are_followed(
    server: FakeApi, api: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PAGE", 3)
    counts: list[int] = []
    snapshot = read(api, progress=counts.append)
    assert len(snapshot.view.stores.nodes) == 4
    assert max(counts) >= 4
    lists = [one for one in server.requests if one.path == "/api/v1/nodes"]
    assert [("continue" in one.query, one.query.get("resourceVersion")) for one in lists] == [
        (False, "0"),
        (True, None),
    ]
    (pods,) = [one for one in server.requests if one.path == "/api/v1/pods"]
    assert pods.query["fieldSelector"] == "status.phase!=Succeeded,status.phase!=Failed"


def test_a_list_with_pages_that_have_expired_begins_again(
    server: FakeApi, api: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PAGE", 3)
    gone = Answer(410, {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    server.fault(gone, when=lambda one: one.path == "/api/v1/nodes" and "continue" in one.query)
    snapshot = read(api)
    assert (len(snapshot.view.stores.nodes), snapshot.unread) == (4, ())


def test_what_may_not_be_read_is_told_and_the_own_namespace_is_read_instead(server: FakeApi, api: KubeClient) -> None:
    server.put("/api/v1/namespaces/alice/pods/p", **_body(pod("p", "b0-r0-h0", namespace="alice")))
    forbid(server, "pods", "jobs", except_in="alice")
    snapshot = read(api)
    assert [one.text for one in snapshot.unread] == [
        "jobs of namespaces other than alice cannot be read: what depends on them is not counted",
        "pods of namespaces other than alice cannot be read: free capacity is not known",
    ]
    assert [one.name for one in snapshot.view.stores.pods.values()] == ["p"]
    assert not snapshot.capacity_known
    assert snapshot.nodes_known


def test_a_caller_without_any_right_gets_an_answer_that_says_so(server: FakeApi, api: KubeClient) -> None:
    server.fault(
        Answer(403, {"kind": "Status", "reason": "Forbidden", "message": "no"}),
        when=lambda one: not one.path.endswith("/apis"),
        times=1000,
    )
    snapshot = read(api)
    told = [one.text for one in snapshot.unread]
    assert "nodes cannot be read: topologies and free capacity are not known" in told
    assert "placements cannot be read: reserved capacity and the queue are not known" in told
    assert any(text.startswith("configmaps cannot be read (in namespace topogate-system)") for text in told)
    assert not snapshot.nodes_known
    assert len(told) == len(set(told))


def test_a_collection_that_is_broken_is_told_with_the_fault(server: FakeApi, api: KubeClient) -> None:
    server.fault(Answer(200, b"no list"), when=lambda one: one.path == "/api/v1/resourcequotas", times=9)
    (only,) = read(api).unread
    assert only.text == (
        "resourcequotas cannot be read (GET /api/v1/resourcequotas: not a list): quotas are not checked"
    )


def test_a_cluster_without_the_resource_definition_is_not_installed(server: FakeApi, api: KubeClient) -> None:
    server.uninstall("topogate.dev/v1alpha1", "placements")
    snapshot = read(api)
    assert (snapshot.installed, snapshot.unread) == (False, ())


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            Answer(401, {"kind": "Status", "reason": "Unauthorized", "message": "Unauthorized"}),
            "the API server {} does not know the caller (401): the credentials have expired, or are wrong",
        ),
        (
            Answer(503, {"kind": "Status", "reason": "ServiceUnavailable", "message": "apiserver is starting"}),
            "the API server {} cannot be asked: 503 ServiceUnavailable: apiserver is starting",
        ),
    ],
)
def test_a_server_that_gives_no_answer_is_one_line(server: FakeApi, api: KubeClient, answer: Answer, text: str) -> None:
    """It says which server, as who has several clusters asks first."""
    server.fault(answer, times=1000)
    with pytest.raises(ConnectionProblem) as caught:
        read(api)
    assert str(caught.value) == text.format(server.url)


@pytest.mark.parametrize(
    ("policy", "known"),
    [
        ("preemption: {mode: lower-priority}", ["sturdy"]),
        ("defragment: {mode: act}", ["sturdy"]),
        ("defragment: {mode: propose}", []),
    ],
)
def test_disruption_budgets_are_read_where_the_policy_makes_room(
    server: FakeApi, api: KubeClient, policy: str, known: list[str]
) -> None:
    """Else nobody asks for them; a caller who may not read them is told what that means."""
    server.put(POLICY, data={"policy.yaml": f"{policy}\n"})
    server.install("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget")
    path = "/apis/policy/v1/namespaces/alice/poddisruptionbudgets/sturdy"
    server.put(path, spec={"selector": {"matchLabels": {"app": "a"}}}, status={"disruptionsAllowed": 1})
    found = read(api)
    assert [one.name for one in found.view.stores.disruption_budgets.values()] == known
    forbid(server, "poddisruptionbudgets")
    told = ("poddisruptionbudgets cannot be read: gangs that they protect may seem preemptible",)
    assert read(api).remarks == (told if known else ())


def test_who_may_list_what_the_service_lists_gets_complete_answers(server: FakeApi, api: KubeClient) -> None:
    """So says docs/tasks/admin/see-the-cluster.md: nothing else is listed."""
    policy = "preemption: {mode: lower-priority}\n"
    server.put(POLICY, data={"policy.yaml": policy})
    rights = {
        (right.group, right.resource)
        for right in needed_rights(parse_policy(policy))
        if right.verb == "list" and not right.name
    }
    server.install("topology.volcano.sh/v1alpha1", "hypernodes", "HyperNode")
    read(api)
    parts = [one.path.strip("/").split("/") for one in server.requests if "limit" in one.query]
    listed = {("" if part[0] == "api" else part[1], part[-1]) for part in parts}
    assert listed <= rights
    assert {("", "nodes"), ("apps", "daemonsets"), ("topology.volcano.sh", "hypernodes")} <= listed


def test_the_policy_in_force_is_the_valid_one(server: FakeApi, api: KubeClient) -> None:
    """The ConfigMap's; the last good one if that is refused; the default one if there is none."""
    assert read(api).view.policy.hash == read(api).view.policy.hash
    server.put(POLICY, data={"policy.yaml": "mode: observe\n"})
    assert read(api).view.policy.mode == "observe"
    server.put(POLICY, data={"policy.yaml": "mode: enforcing\n"})
    server.put(LAST_GOOD, data={"policy.yaml": "mode: off\n"})
    snapshot = read(api)
    assert snapshot.view.policy.mode == "off"
    (note,) = snapshot.notes
    assert note.startswith("the policy in the ConfigMap is refused (1 error; mode: ")
    assert note.endswith("the last good one is taken (topogate policy check)")
    server.put(LAST_GOOD, data={"policy.yaml": "mode: enforcing\n"})
    snapshot = read(api)
    assert snapshot.view.policy.mode == "enforce"
    assert snapshot.notes[0].endswith("the default policy is taken (topogate policy check)")
    server.put(LAST_GOOD, data={"policy.yaml": "mode: off\n"})
    server.remove(POLICY)
    assert read(api).view.policy.mode == "enforce"


def test_objects_that_cannot_be_read_are_left_out_and_counted(server: FakeApi, api: KubeClient) -> None:
    for number in range(7):
        body = _body(job(f"bad{number}", 2)) | {"spec": {"parallelism": "many\x1b[31m"}}
        server.put(f"/apis/batch/v1/namespaces/alice/jobs/bad{number}", **body)
    server.put("/apis/batch/v1/namespaces/alice/jobs/good", **_body(job("good", 2)))
    snapshot = read(api)
    assert [one.name for one in snapshot.view.stores.workloads.values()] == ["good"]
    assert len(snapshot.notes) == 6
    assert snapshot.notes[-1] == "2 more objects cannot be read"
    assert all(note.startswith("Job alice/bad") for note in snapshot.notes[:-1])
    assert "spec.parallelism: expected a whole number, got text" in snapshot.notes[0]
    assert all(note.isprintable() for note in snapshot.notes)


def test_declared_ends_are_read(server: FakeApi, api: KubeClient) -> None:
    body = _body(job("timed", 2, activeDeadlineSeconds=600)) | {"status": {"startTime": "1970-01-12T13:46:40Z"}}
    stored = server.put("/apis/batch/v1/namespaces/alice/jobs/timed", **body)
    assert read(api).ends == {stored["metadata"]["uid"]: 1_000_600.0}


def test_the_connection_takes_namespace_and_context_from_the_kubeconfig(kubeconfig: Path) -> None:
    assert connect_as_caller(kubeconfig=str(kubeconfig)).namespace == "alice"
    assert connect_as_caller(kubeconfig=str(kubeconfig), context="other").namespace == "default"


@pytest.mark.parametrize(
    ("currents", "used"),
    [
        (("one", "two"), "one"),
        ((None, "two"), "two"),
        (("", "two"), "two"),
        (("two", ""), "two"),
        (("one", None), "one"),
    ],
)
def test_of_several_kubeconfigs_the_first_that_names_a_context_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, currents: tuple[str | None, str | None], used: str
) -> None:
    """As for kubectl: which cluster is asked, as whom, and the namespace."""
    files = []
    for name, current in zip(("one", "two"), currents, strict=True):
        config = {
            "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example"}}],
            "users": [{"name": name, "user": {"as": name}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"of-{name}"}}],
        }
        files.append(tmp_path / name)
        files[-1].write_text(yaml.safe_dump(config if current is None else config | {"current-context": current}))
    monkeypatch.setenv("KUBECONFIG", f"{files[0]}:{tmp_path / 'missing'}:{files[1]}")
    caller = connect_as_caller()
    assert caller.namespace == f"of-{used}"
    assert caller.api._host == f"https://{used}.example"
    assert dict(caller.api._impersonation) == {"Impersonate-User": used}


CONTEXTS = yaml.safe_dump(
    {
        "clusters": [{"name": "mine", "cluster": {"server": "https://mine.example"}}],
        "users": [{"name": "me", "user": {"client-certificate": "/none/tls.crt", "client-key": "/none/tls.key"}}],
        "contexts": [
            {"name": "unsigned", "context": {"cluster": "mine", "user": "me"}},
            {"name": "lost", "context": {"cluster": "gone", "user": "me"}},
        ],
    }
)


@pytest.mark.parametrize(
    ("content", "context", "text"),
    [
        (None, None, "no such kubeconfig"),
        ("{", None, "cannot be used (not valid YAML)"),
        ("a: [1", None, "cannot be used (not valid YAML)"),
        ("", None, "bad file is empty)"),
        ("{}", None, "has no contexts; set KUBECONFIG or --kubeconfig"),
        (CONTEXTS, None, "no current context in "),
        (CONTEXTS, None, ": name one with --context; there are: lost, unsigned"),
        (CONTEXTS, "lost", "cannot be used (Expected object with name gone in "),
        (CONTEXTS, "unsigned", "cannot be used (File does not exist: /none/tls.crt)"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_one_line(
    tmp_path: Path, content: str | None, context: str | None, text: str
) -> None:
    path = tmp_path / "bad"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConnectionProblem) as caught:
        connect_as_caller(kubeconfig=str(path), context=context)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_context_is_told_with_the_one_that_was_meant(kubeconfig: Path) -> None:
    with pytest.raises(ConnectionProblem) as caught:
        connect_as_caller(kubeconfig=str(kubeconfig), context="mins")
    assert str(caught.value) == f'no context "mins" in {kubeconfig}; did you mean "mine"?'


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["/none/plugin"], "No such file or directory: '/none/plugin'"),
        (["sh", "-c", "printf 'not\\nlogged in\\033[31m' >&2; exit 3"], r"process returned 3. not logged in\x1b[31m"),
        (["echo", "no JSON"], "failed to decode process output"),
    ],
)
def test_credentials_that_a_plug_in_does_not_give_are_told(tmp_path: Path, command: list[str], text: str) -> None:
    """The client's library goes on without them, and the API server would refuse everything."""
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": command[0], "args": command[1:]}
    config = {
        "current-context": "mine",
        "clusters": [{"name": "mine", "cluster": {"server": "https://mine.example"}}],
        "users": [{"name": "me", "user": {"exec": plugin}}],
        "contexts": [{"name": "mine", "context": {"cluster": "mine", "user": "me"}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(ConnectionProblem) as caught:
        connect_as_caller(kubeconfig=str(path))
    assert str(caught.value).startswith("no credentials: the plug-in of the kubeconfig fails: ")
    assert text in str(caught.value)
    assert str(caught.value).isprintable()


def test_the_address_of_a_server_is_shown_without_a_password() -> None:
    client = SimpleNamespace(
        configuration=SimpleNamespace(host="https://me:secret@mine.example:6443/k8s/"),
        rest_client=SimpleNamespace(pool_manager=None),
    )
    assert KubeClient(client, "t").server == "https://mine.example:6443/k8s"
