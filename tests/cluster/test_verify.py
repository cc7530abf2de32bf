"""`topogate verify` on a control plane with an installation, broken in one way after the other.

On a control plane of its own: what is broken here would fail the tests of others.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from certs.authority import new_authority
from local.client import Client
from local.controlplane import ControlPlane
from local.service import CONFIGURATIONS, NAMESPACE, ROOT, Service
from tests.support.callers import RBAC, caller
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.lease import LEASE
from webhook.cli import main

DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
POLICIES = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/placements.topogate.dev"
# What docs/tasks/admin/install.md says that a caller needs so that nothing but the caches is skipped.
RIGHTS = ROOT / "docs" / "tasks" / "admin" / "install.md"


def topogate(kubeconfig: Path, *words: str) -> Result:
    return CliRunner(env={"KUBECONFIG": str(kubeconfig)}).invoke(main, words, prog_name="topogate")


def found(kubeconfig: Path, *words: str) -> dict[str, list[dict[str, Any]]]:
    """The findings that are not good, by check."""
    done = topogate(kubeconfig, "verify", "-o", "json", *words)
    answer = json.loads(done.stdout)
    bad = [one for one in answer["findings"] if one["result"] in ("warn", "fail")]
    assert (done.exit_code, answer["good"]) == (1 if any(one["result"] == "fail" for one in bad) else 0, not bad)
    by_check: dict[str, list[dict[str, Any]]] = {}
    for one in bad:
        by_check.setdefault(one["check"], []).append(one)
    return by_check


def rules_of_the_page() -> list[dict[str, Any]]:
    """The rules of the role on the page, as YAML."""
    text = RIGHTS.read_text(encoding="utf-8")
    block = next(part for part in text.split("```") if part.startswith("yaml\n") and "topogate-verify" in part)
    role = next(yaml.safe_load_all(block.removeprefix("yaml\n")))
    rules: list[dict[str, Any]] = role["rules"]
    return rules


def test_without_an_installation_every_object_is_missed(plane: ControlPlane) -> None:
    bad = found(plane.kubeconfig)
    assert set(bad) >= {"definition", "replicas", "leader", "webhooks", "admission policies"}
    assert "does not exist" in bad["definition"][0]["found"]
    told = topogate(plane.kubeconfig, "topology", "doctor")
    assert (told.exit_code, told.stdout.splitlines()[0]) == (1, "fail  topology default: the cluster has no nodes")


@pytest.fixture(scope="module")
def service(plane: ControlPlane) -> Iterator[Service]:
    """The manifests, two replicas that serve, and a Deployment whose pods are simulated."""
    installed = Service.install(plane)
    fleet = Fleet(plane.client, "verify")
    fleet.grid("1x2x2")
    (deployment, *_) = yaml.safe_load_all((ROOT / "manifests/base/deployment.yaml").read_text(encoding="utf-8"))
    del deployment["spec"]["template"]["spec"]["nodeSelector"]
    plane.client.create(DEPLOYMENTS, deployment)
    installed.start(2)
    eventually(installed.leader, message="a replica leads")
    yield installed
    installed.stop()


@pytest.fixture(scope="module")
def admin(plane: ControlPlane, service: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody with the rights of the page, to whom the installation is good."""
    path = caller(
        plane, tmp_path_factory.mktemp("verify"), namespace="default", name="verify", everywhere=rules_of_the_page()
    )
    eventually(lambda: not found(path), message="the installation is good")
    return path


@pytest.fixture
def restored(plane: ControlPlane, service: Service, admin: Path) -> Iterator[None]:
    """Bring everything back that a test broke."""
    yield
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=service.manifests())
    plane.client.delete(f"{POLICIES}/topogate-policy")
    service.start(2)
    done = topogate(admin, "verify", "--wait", "2m")
    assert done.exit_code == 0, done.output


def test_a_good_installation_is_told_line_by_line(admin: Path, plane: ControlPlane) -> None:
    done = topogate(admin, "verify", "--wait", "2m")  # a busy machine may leave a review without an answer
    assert done.exit_code == 0, done.output
    results = {line.split(":")[0][6:]: line[:4].strip() for line in done.stdout.splitlines() if ": " in line}
    assert results == {
        **dict.fromkeys(("API server", "definition", "replicas", "leader", "webhooks", "CA"), "ok"),
        **dict.fromkeys(("admission policies", "policy", "rights", "dry run"), "ok"),
        "caches": "skip",
    }
    assert "2 of 2 ready" in done.stdout
    assert "it would be held; a wrong request is refused" in done.stdout
    assert done.stdout.splitlines()[-1] == "nothing fails, 1 check skipped"
    assert not plane.client.items("/apis/batch/v1/namespaces/default/jobs")


def test_who_may_read_nothing_is_told_so(plane: ControlPlane, service: Service, tmp_path: Path) -> None:
    nobody = caller(plane, tmp_path, namespace="default", name="nobody")
    done = topogate(nobody, "verify")
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line[:4].strip() for line in lines[:-1]] == ["ok", *["skip"] * (len(lines) - 2)]
    assert "no right" in lines[1]
    assert "Traceback" not in done.output


@pytest.mark.usefixtures("restored")
def test_a_configuration_that_is_gone_is_named(admin: Path, plane: ControlPlane) -> None:
    """And nobody holds a gang any more."""
    plane.client.delete(CONFIGURATIONS[0])

    def noticed() -> dict[str, list[dict[str, Any]]] | None:
        bad = found(admin)
        told = [one for one in bad.get("dry run", ()) if "no webhook holds a gang" in one["found"]]
        return bad if told else None  # the API server forgets a configuration within a moment

    bad = eventually(noticed, message="no webhook is called any more")
    assert bad["webhooks"][0]["found"] == "not found: MutatingWebhookConfiguration topogate"


@pytest.mark.usefixtures("restored")
def test_an_entry_that_was_changed_is_named(admin: Path, plane: ControlPlane) -> None:
    live = plane.client.get(CONFIGURATIONS[1])["webhooks"]
    changed = [one | {"timeoutSeconds": 30} if one["name"] == "workloads.topogate.dev" else one for one in live]
    plane.client.patch(
        CONFIGURATIONS[1], {"webhooks": [one for one in changed if one["name"] != "policy.topogate.dev"]}
    )
    bad = found(admin)["webhooks"]
    assert [(one["result"], one["found"].split()[2], one["found"].split()[-1]) for one in bad] == [
        ("fail", "lacks", "policy.topogate.dev"),
        ("warn", "differs", "workloads.topogate.dev"),
    ]


@pytest.mark.usefixtures("restored")
def test_a_right_that_is_missing_is_named(admin: Path, plane: ControlPlane, tmp_path: Path) -> None:
    """By asking the API server, and by the roles for somebody who may only read them."""
    role = plane.client.get(f"{RBAC}/clusterroles/topogate-workloads")
    less = [rule for rule in role["rules"] if rule["resources"] != ["jobs"] or rule["apiGroups"] != ["batch"]]
    assert len(less) == len(role["rules"]) - 1
    plane.client.patch(f"{RBAC}/clusterroles/topogate-workloads", {"rules": less})
    told = r"4 of \d+ rights missing: get jobs\.batch, list jobs\.batch, patch jobs\.batch, watch jobs\.batch"

    def missing(kubeconfig: Path) -> str | None:
        """What is said when all four are; while they are asked for one by one, the API server takes in the change."""
        said = str(found(kubeconfig).get("rights", [{"found": ""}])[0]["found"])
        return said if re.fullmatch(told, said) else None

    first = eventually(lambda: missing(admin), message="the API server has seen the change")
    rbac = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"]
    reads = [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": rbac, "verbs": ["get", "list"]}]
    reader = caller(plane, tmp_path, namespace="default", name="reads-roles", everywhere=reads)
    assert eventually(lambda: missing(reader), message="the reader has his rights") == first


@pytest.fixture
def down(service: Service, restored: None) -> None:
    """Nobody serves, and nobody has said good-bye."""
    service.kill_all()


@pytest.mark.usefixtures("down")
def test_without_the_service(admin: Path, plane: ControlPlane) -> None:
    """Nobody answers or leads; and what the leader would have mended stays broken."""

    def over() -> dict[str, list[dict[str, Any]]] | None:
        bad = found(admin)
        return bad if "leader" in bad else None

    bad = eventually(over, message="the Lease of the dead leader is over")
    assert set(bad) == {"leader", "dry run"}
    assert "does not renew its Lease any more" in bad["leader"][0]["found"]
    assert 'failed calling webhook "workloads.topogate.dev"' in bad["dry run"][0]["found"]
    plane.client.delete(LEASE)
    _break_the_ca(plane.client)
    body = {"metadata": {"name": "topogate-policy"}, "data": {"policy.yaml": "mode: enforcing"}}
    plane.client.create(POLICIES, body)
    plane.client.delete(DEFINITION)
    eventually(lambda: plane.client.find(DEFINITION) is None, message="the definition is gone")
    bad = found(admin)
    assert set(bad) == {"leader", "dry run", "CA", "policy", "definition"}
    assert bad["leader"][0]["found"] == "none leads; no gang is planned"
    assert bad["CA"][0]["found"].endswith("(MutatingWebhookConfiguration topogate/workloads.topogate.dev)")
    assert "refused (mode: " in bad["policy"][0]["found"]
    assert bad["policy"][0]["found"].endswith("in force: the default")
    assert "does not exist" in bad["definition"][0]["found"]


@pytest.mark.usefixtures("down")
def test_waiting_ends_when_all_is_good(admin: Path, service: Service) -> None:
    """Replicas start after the first round; on standard error is what is waited for."""
    command = [sys.executable, "-m", "webhook.cli", "verify", "--wait", "3m", "--kubeconfig", str(admin)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        first = waiting.stderr.readline()
        service.start(2)
        told, _ = waiting.communicate(timeout=200)
    assert "s left: " in first
    assert (waiting.returncode, told.splitlines()[-1]) == (0, "nothing fails, 1 check skipped")


def _break_the_ca(client: Client) -> None:
    """One entry trusts one more CA: another bundle, which the API server still takes."""
    live = client.get(CONFIGURATIONS[0])["webhooks"]
    config = next(entry for entry in live if entry["name"] == "workloads.topogate.dev")["clientConfig"]
    other = new_authority(now=time.time(), name="other").bundle
    config["caBundle"] = base64.b64encode(base64.b64decode(config["caBundle"]) + other).decode()
    client.patch(CONFIGURATIONS[0], {"webhooks": live})
