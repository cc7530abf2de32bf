"""Building the controllers of other kinds with a Go command that only pretends, and fitting their manifests."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from engine.kinds.registry import built_in
from local.controllers import building
from local.controllers.building import ensure_controllers, key, undescribed
from local.controllers.catalogue import (
    CONTROLLERS,
    IMITATED,
    Controller,
    Probe,
    how_tested,
    with_needed,
)
from local.controllers.manifests import fit
from local.modules import ProgramsError, Substitution
from tests.support.imitations.catalogue import IMITATIONS

SOURCE = "package main\nconst port = 8080\n"
# Answers `go mod download -json` with a module, `go env`, and "builds" the module's main.go.
FAKE_GO = """#!/bin/sh
case "$1 $2" in
"env "*) echo go1.99 ;;
"mod download") echo '{{"Dir": "{module}", "Sum": "{checksum}"}}' ;;
*)
  while [ "$1" != -o ]; do shift; done
  echo "$GOFLAGS $3" >>"{log}"
  {build}
  cat main.go >"$2" ;;
esac
"""
KUBECTL = """#!/bin/sh
cat "$2/objects.yaml"
"""
OBJECTS = """
kind: CustomResourceDefinition
spec: {description: text, properties: {description: {type: string, description: text}}}
---
kind: Namespace
"""


def controller(**changes: Any) -> Controller:
    fields: dict[str, Any] = {
        "name": "thing",
        "kinds": (),
        "module": "example.com/thing",
        "version": "v1.2.3",
        "checksum": "h1:good",
        "package": "./cmd",
        "manifests": "config",
        "seconds": 60,
        "arguments": (),
        "probe": Probe(path="/apis/x", body={}),
        **changes,
    }
    return Controller(**fields)


class Builder:
    """A module, a fake `go` and a fake kubectl; `ensure` builds `thing` with them."""

    def __init__(self, folder: Path, *, checksum: str = "h1:good", build: str = "") -> None:
        self.folder = folder
        self.said: list[str] = []
        self.log = folder / "log"
        module = folder / "module cache"
        (module / "config").mkdir(parents=True)
        (module / "config" / "objects.yaml").write_text(OBJECTS)
        (module / "main.go").write_text(SOURCE)
        for path in (*module.rglob("*"), module):
            path.chmod(0o555 if path.is_dir() else 0o444)  # as Go keeps it
        (folder / "bin").mkdir()
        self.script("go", FAKE_GO.format(module=module, checksum=checksum, log=self.log, build=build))
        self.script("kubectl", KUBECTL)

    def script(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def ensure(self, monkeypatch: pytest.MonkeyPatch, thing: Controller | None = None) -> building.Built:
        monkeypatch.setattr(building, "CONTROLLERS", {"thing": thing or controller()})
        environment = {"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "HOME": str(self.folder)}
        return ensure_controllers(
            ["thing"],
            kubectl=self.folder / "bin" / "kubectl",
            progress=self.said.append,
            environment=environment,
            cache=self.folder / "cache",
        )["thing"]

    @property
    def builds(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


def test_a_controller_is_built_once_from_a_copy_of_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told like the control plane's programs; the second call builds and says nothing."""
    builder = Builder(tmp_path)
    built = builder.ensure(monkeypatch)
    assert built.program.read_text() == SOURCE
    assert builder.log.read_text() == "-mod=readonly ./cmd\n"
    assert builder.said[0] == "building thing v1.2.3 (1 of 1); about 1 min to go with empty caches, less otherwise"
    builder.said.clear()
    assert builder.ensure(monkeypatch) == built
    assert (builder.said, builder.builds) == ([], 1)
    assert {path.name for path in built.program.parent.iterdir()} == {"thing", "manifests.json", ".lock"}


def test_its_manifests_are_kept_without_descriptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that is called description stays."""
    built = Builder(tmp_path).ensure(monkeypatch)
    assert json.loads(built.manifests.read_bytes()) == [
        {"kind": "CustomResourceDefinition", "spec": {"properties": {"description": {"type": "string"}}}},
        {"kind": "Namespace"},
    ]
    assert undescribed({"default": {"description": "kept"}}) == {"default": {"description": "kept"}}


def test_a_substitution_changes_the_source_that_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the key, so that another substitution is another build."""
    builder = Builder(tmp_path)
    changed = controller(substitutions=(Substitution("main.go", "port = 8080", "port = 0"),))
    built = builder.ensure(monkeypatch, changed)
    assert built.program.read_text() == SOURCE.replace("8080", "0")
    assert key(changed) != key(controller())


@pytest.mark.parametrize("old", ["port = 9090", "a"], ids=["absent", "many"])
def test_a_source_that_is_not_as_expected_is_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str
) -> None:
    """Nothing is guessed about another version."""
    builder = Builder(tmp_path)
    with pytest.raises(ProgramsError, match=r"example.com/thing v1.2.3: main.go is not as expected"):
        builder.ensure(monkeypatch, controller(substitutions=(Substitution("main.go", old, "x"),)))
    assert builder.builds == 0


def test_another_checksum_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a proxy answers under our version must be what was read."""
    builder = Builder(tmp_path, checksum="h1:bad")
    with pytest.raises(ProgramsError, match=r"thing@v1.2.3 has the checksum h1:bad, not h1:good"):
        builder.ensure(monkeypatch)
    assert builder.builds == 0


def test_a_download_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Go's words."""
    builder = Builder(tmp_path)
    builder.script("go", '#!/bin/sh\n[ "$1" = env ] || { echo \'{"Error": "no such version"}\'; exit 1; }\n')
    with pytest.raises(ProgramsError, match=r"thing@v1.2.3 cannot be downloaded: no such version"):
        builder.ensure(monkeypatch)


def test_a_failed_build_quotes_the_compiler_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call tries again."""
    builder = Builder(tmp_path, build="echo undefined: y >&2; exit 1")
    with pytest.raises(ProgramsError, match=r"(?s)building thing failed .*undefined: y"):
        builder.ensure(monkeypatch)
    left = {path.name for path in (tmp_path / "cache" / "controllers" / key(controller())).iterdir()}
    assert left == {".lock"}


def test_manifests_that_cannot_be_rendered_are_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is built."""
    builder = Builder(tmp_path)
    builder.script("kubectl", "#!/bin/sh\necho no kustomization >&2; exit 1\n")
    with pytest.raises(ProgramsError, match=r"(?s)example.com/thing cannot be rendered:.no kustomization"):
        builder.ensure(monkeypatch)
    assert builder.builds == 0


def test_every_controller_has_an_exact_version_and_a_checksum() -> None:
    """No branch, no range, no tag that moves."""
    for name, one in CONTROLLERS.items():
        assert name == one.name
        assert one.version.count(".") == 2
        assert one.version.startswith("v")
        assert len(base64.b64decode(one.checksum.removeprefix("h1:"), validate=True)) == 32


def test_what_a_controller_needs_comes_before_it() -> None:
    """And once, whoever else is asked for."""
    assert with_needed(["trainer", "jobset"]) == ("jobset", "trainer")
    assert with_needed(["lws"]) == ("lws",)


def test_every_kind_of_the_registry_says_with_what_it_is_tested() -> None:
    """Only the older MPIJob is not: its custom resource has the name of the newer one's."""
    kinds = {entry.name for entry in built_in().entries}
    assert kinds - how_tested().keys() == {"mpijob-v1"}
    assert how_tested().keys() <= kinds
    imitated = {entry.name for one in IMITATIONS.values() if (entry := built_in().entry_of(one.header()))}
    assert IMITATED.keys() == imitated


def manifests() -> list[dict[str, Any]]:
    service = {"name": "s", "namespace": "n", "path": "/mutate"}
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "s", "path": "/convert"}}}}
    selector = {"matchExpressions": [{"key": "k", "operator": "Exists"}]}
    webhook = {"name": "a.b.c", "clientConfig": {"service": service}, "objectSelector": selector}
    account = {"spec": {"template": {"spec": {"serviceAccountName": "robot"}}}}
    return [
        {"kind": "Namespace", "metadata": {"name": "n"}},
        {
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "xs.example.com"},
            "spec": {"conversion": conversion},
        },
        {"kind": "CustomResourceDefinition", "metadata": {"name": "ys.example.com"}, "spec": {}},
        {"kind": "ClusterRole", "metadata": {"name": "r"}},
        {"kind": "Secret", "metadata": {"name": "theirs", "namespace": "n"}},
        {"kind": "Service", "metadata": {"name": "s", "namespace": "n"}},
        {"kind": "Deployment", "metadata": {"name": "d", "namespace": "n"}, **account},
        {"kind": "MutatingWebhookConfiguration", "metadata": {"name": "early"}, "webhooks": [webhook]},
    ]


CERTIFICATES = {"ca.crt": b"CA", "tls.key": b"KEY"}
BUNDLE = base64.b64encode(b"CA").decode()


def test_webhooks_and_conversions_are_called_at_the_url() -> None:
    """Their names and selectors stay."""
    fitted = fit(manifests(), controller(), url="https://127.0.0.1:1", certificates=CERTIFICATES)
    by_name = {one["metadata"]["name"]: one for one in fitted.objects}
    (webhook,) = by_name["early"]["webhooks"]
    assert webhook["clientConfig"] == {"url": "https://127.0.0.1:1/mutate", "caBundle": BUNDLE}
    assert webhook["objectSelector"]["matchExpressions"][0]["key"] == "k"
    conversion = by_name["xs.example.com"]["spec"]["conversion"]["webhook"]
    assert conversion["clientConfig"] == {"url": "https://127.0.0.1:1/convert", "caBundle": BUNDLE}
    assert [path.rpartition("/")[2] for path in fitted.webhooks] == ["early"]
    assert [path.rpartition("/")[2] for path in fitted.definitions] == ["xs.example.com", "ys.example.com"]


def test_what_runs_in_containers_goes_and_the_account_stays() -> None:
    """No Deployment, Service or Secret; the account that the Deployment names is the controller's."""
    fitted = fit(manifests(), controller(), url="https://x", certificates=CERTIFICATES)
    kinds = [one["kind"] for one in fitted.objects]
    assert not {"Deployment", "Service", "Secret"} & set(kinds)
    assert "ClusterRole" in kinds
    assert fitted.account == ("n", "robot")


def test_objects_can_be_left_out() -> None:
    """By name: two controllers may each bring a definition of the same name."""
    fitted = fit(manifests(), controller(without=frozenset({"ys.example.com"})), url="u", certificates=CERTIFICATES)
    assert [path.rpartition("/")[2] for path in fitted.definitions] == ["xs.example.com"]


def test_a_controller_that_keeps_its_certificates_gets_ours_in_its_secret() -> None:
    """In the namespace of its account."""
    fitted = fit(manifests(), controller(secret="certificates"), url="u", certificates=CERTIFICATES)
    secret = fitted.objects[-1]
    assert (secret["kind"], secret["metadata"]) == ("Secret", {"name": "certificates", "namespace": "n"})
    assert {name: base64.b64decode(text) for name, text in secret["data"].items()} == CERTIFICATES


def test_manifests_without_a_deployment_are_refused() -> None:
    """Nobody could say as whom to run."""
    with pytest.raises(ValueError, match="the manifests of thing have no Deployment"):
        fit([], controller(), url="u", certificates=CERTIFICATES)
