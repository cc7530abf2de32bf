"""Commands that change a cluster, where it changes meanwhile, refuses, or is not theirs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import Result

from engine.api import names
from tests.support.fake_api import Answer, FakeApi, Request
from tests.unit.commands.conftest import forbid, put
from webhook.maintenance.attempts import TRIES
from webhook.maintenance.installation import LABEL, PART_OF, WEBHOOKS, service_namespace_object
from webhook.operations import held, release

Topogate = Callable[..., Result]
NAMESPACE = names.NAMESPACE
REVIEWS = "/selfsubjectaccessreviews"
WORDS = 'pods "a" is forbidden: User "eve" cannot patch resource "pods" in API group "" in the namespace "alice"'
DENIED = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": WORDS}


def rights(server: FakeApi, *, allowed: bool) -> None:
    answer = Answer(201, {"status": {"allowed": allowed}})
    server.fault(answer, when=lambda one: one.path.endswith(REVIEWS), times=1000)


def gated(server: FakeApi, name: str = "held") -> str:
    """A pod with our gate; its path."""
    metadata = {"name": name, "namespace": "alice", "uid": name, "labels": {}}
    spec = {"containers": [{"name": "main"}], "schedulingGates": [{"name": names.GATE}]}
    put(server, {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
    return f"/api/v1/namespaces/alice/pods/{name}"


def test_a_release_that_is_refused_for_ever_ends(
    topogate: Topogate, server: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --follow: a write is tried three times, and the right that is missing is named."""
    monkeypatch.setattr(release, "_PAUSE", 0.01)
    path = gated(server)
    server.fault(Answer(403, DENIED), when=lambda one: one.method == "PATCH", times=1000)
    done = topogate("release", "--all", "--follow", "-n", "alice")
    assert done.exit_code == 1
    line = "pod/held in namespace alice: not done: no right to patch pods in namespace alice"
    assert [text for text in done.stderr.splitlines() if "pod/held" in text] == [
        f"topogate: {line}",
        f"topogate: {line}; given up after {TRIES} tries",
    ]
    assert "topogate: the API server refuses to let go what is held: ended\n" in done.stderr
    assert sum(one.path == path for one in server.requests if one.method == "PATCH") == TRIES
    assert "eve" not in done.output


def test_webhooks_of_others_are_not_deleted(topogate: Topogate, server: FakeApi) -> None:
    """A configuration with our name and without our label is somebody's: it is named, and what is ours goes."""
    ours, theirs = WEBHOOKS[0], WEBHOOKS[1]
    server.put(ours.path(NAMESPACE), metadata={"name": ours.name, "uid": "a", "labels": {LABEL: PART_OF}})
    server.put(theirs.path(NAMESPACE), metadata={"name": theirs.name, "uid": "b", "labels": {}})
    done = topogate("release", "--all", "--delete-webhooks", "-n", "nobody")
    assert (done.exit_code, server.get(ours.path(NAMESPACE))) == (0, None)
    assert server.get(theirs.path(NAMESPACE)) is not None
    assert f"{ours.called}: deleted\n" in done.stdout
    assert f"{theirs.called}: stays: it lacks the label {LABEL}={PART_OF}: add it if it is Topogate's\n" in done.stderr


def test_validating_webhooks_go_a_moment_before_the_mutating_ones(
    topogate: Topogate, server: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone they would refuse each pod that asks, as nothing marks it; API servers see a deletion a moment later."""
    pauses: list[list[str]] = []

    def deleted() -> list[str]:
        return [one.path.rpartition("/")[0].rpartition("/")[2] for one in server.requests if one.method == "DELETE"]

    monkeypatch.setattr(held.time, "sleep", lambda _seconds: pauses.append(deleted()))
    for one in WEBHOOKS:
        server.put(one.path(NAMESPACE), metadata={"name": one.name, "uid": one.called, "labels": {LABEL: PART_OF}})
    assert topogate("release", "--all", "--delete-webhooks", "-n", "nobody").exit_code == 0
    checks, marks = ["validatingwebhookconfigurations"] * 2, ["mutatingwebhookconfigurations"] * 2
    assert (pauses, deleted()) == ([checks], checks + marks)


def test_a_namespace_that_others_use_since_the_plan_stays(topogate: Topogate, server: FakeApi) -> None:
    """Minutes pass between the plan and the last step; what is in a namespace goes with it."""
    rights(server, allowed=True)
    path = service_namespace_object(NAMESPACE).path(NAMESPACE)
    server.put(path, metadata={"name": NAMESPACE, "uid": "n", "labels": {LABEL: PART_OF}})
    claims: list[Request] = []

    def second(request: Request) -> bool:
        if request.path.endswith("/persistentvolumeclaims") and NAMESPACE in request.path:
            claims.append(request)
        return len(claims) == 2 and request is claims[-1]

    server.fault(Answer(200, {"items": [{"metadata": {"name": "data"}}]}), when=second)
    done = topogate("uninstall", "--yes")
    assert "stays:" not in done.stdout.partition("6. namespace")[0]
    said = "stays: Namespace topogate-system: others use it: persistentvolumeclaims/data\n"
    assert said in done.stdout, done.output
    assert server.get(path) is not None


OF_OTHERS = (
    ("kueue.x-k8s.io/v1beta1", "topologies", "Topology"),
    ("kai.scheduler/v1alpha1", "topologies", "Topology"),
    ("topology.volcano.sh/v1alpha1", "hypernodes", "HyperNode"),
    ("scheduling.x-k8s.io/v1alpha1", "podgroups", "PodGroup"),
)


@pytest.mark.parametrize("other", OF_OTHERS)
@pytest.mark.parametrize("words", [("uninstall", "--leave-manifests", "--yes"), ("release", "--all")])
def test_what_is_held_is_known_without_the_objects_of_other_projects(
    topogate: Topogate, server: FakeApi, words: tuple[str, ...], other: tuple[str, str, str]
) -> None:
    """The account of Helm's Job has no right to list them, and they hold nothing of ours."""
    server.install(*other)
    forbid(server, other[1])
    rights(server, allowed=True)
    server.put(WEBHOOKS[0].path(NAMESPACE), metadata={"name": WEBHOOKS[0].name, "uid": "w", "labels": {LABEL: PART_OF}})
    path = gated(server)
    done = topogate(*words)
    assert done.exit_code == 0, done.output
    assert "cannot be read" not in done.output
    assert names.GATE not in str(server.get(path))


def test_an_uninstall_names_every_right_that_its_plan_needs(topogate: Topogate, server: FakeApi) -> None:
    """Of somebody who may see nothing of the installation; nothing is asked for without a right."""
    rights(server, allowed=False)
    done = topogate("uninstall", "--dry-run")
    assert (done.exit_code, done.stdout) == (1, "")
    for right in (
        "no right to get namespaces topogate-system\n",
        "no right to get clusterroles.rbac.authorization.k8s.io topogate, topogate-policy-kinds, topogate-view, ",
        "no right to list persistentvolumeclaims in namespace topogate-system\n",
        "the plan cannot be made; nothing was changed\n",
    ):
        assert f"topogate: {right}" in done.stderr
    assert all(one.path.endswith(REVIEWS) for one in server.requests)
