"""The components of the manifests, rendered by kubectl: each does what it says, and nothing else. No control plane."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.chart import CHART
from hack.chart.release import MANIFEST_FILES, render_manifests
from tests.support.charts import Helm, Objects, kustomized, objects
from tests.support.pages import pages

SERVICE = ("Deployment", "topogate-system", "topogate")
DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def base(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Objects:
    """The base alone."""
    return kustomized(programs["kubectl"], tmp_path_factory.mktemp("base"))


def changed(base: Objects, other: Objects) -> set[tuple[str, str, str]]:
    return {key for key in base.keys() | other.keys() if base.get(key) != other.get(key)}


def test_high_availability_is_three_replicas_on_three_hosts(
    base: Objects, programs: dict[str, Path], tmp_path: Path
) -> None:
    """A rollout needs no fourth host: hosts differ within one version only."""
    found = kustomized(programs["kubectl"], tmp_path, "components/high-availability")
    assert changed(base, found) == {SERVICE}
    spec = found[SERVICE]["spec"]
    assert spec["replicas"] == 3
    affinity = spec["template"]["spec"]["affinity"]["podAntiAffinity"]
    [term] = affinity.pop("requiredDuringSchedulingIgnoredDuringExecution")
    assert affinity == {}
    assert (term["topologyKey"], term["matchLabelKeys"]) == ("kubernetes.io/hostname", ["pod-template-hash"])
    assert term["labelSelector"] == spec["selector"]


def test_one_replica_has_no_budget(base: Objects, programs: dict[str, Path], tmp_path: Path) -> None:
    """A budget for one replica would hold up no drain, and say nothing."""
    found = kustomized(programs["kubectl"], tmp_path, "components/one-replica")
    assert changed(base, found) == {SERVICE, ("PodDisruptionBudget", "topogate-system", "topogate")}
    assert found[SERVICE]["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    ("components", "said"),
    [
        (("high-availability", "one-replica"), "one-replica': test operation does not apply"),
        (("one-replica", "high-availability"), "no matches for Id PodDisruptionBudget"),
    ],
    ids=["many first", "one first"],
)
def test_many_replicas_and_one_are_refused_together(
    programs: dict[str, Path], tmp_path: Path, components: tuple[str, ...], said: str
) -> None:
    """Else the last one would say how many, and three replicas could stand without a budget."""
    with pytest.raises(AssertionError, match="accumulating components") as refused:
        kustomized(programs["kubectl"], tmp_path, *(f"components/{name}" for name in components))
    assert said in str(refused.value)


def test_cert_manager_takes_rights_away(base: Objects, programs: dict[str, Path], tmp_path: Path) -> None:
    """No right to Secrets, nor to change the configurations whose CA bundle is cert-manager's; the rest stays."""
    found = kustomized(programs["kubectl"], tmp_path, "components/cert-manager")
    kinds = {"Certificate", "Issuer", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
    assert {key[0] for key in changed(base, found)} == {*kinds, "ClusterRole", "Role", "Deployment"}
    for key, one in found.items():
        if key[0].endswith("WebhookConfiguration"):
            assert one["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "topogate-system/topogate"}
    for name in (("Role", "topogate-system", "topogate"), ("ClusterRole", "", "topogate")):
        assert granted(found[name]) < granted(base[name])
    lost = granted(base["Role", "topogate-system", "topogate"]) - granted(found["Role", "topogate-system", "topogate"])
    assert {resource for _, resource, _, _ in lost} == {"secrets"}
    lost = granted(base["ClusterRole", "", "topogate"]) - granted(found["ClusterRole", "", "topogate"])
    assert {(name, verb) for _, _, name, verb in lost} == {("topogate", "patch")}
    pod = found[SERVICE]["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"] == ["serve", "--certificates-from=/certificates"]
    mounted = {mount["name"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    assert mounted["certificates"] == {"name": "certificates", "mountPath": "/certificates", "readOnly": True}
    secrets = {one["name"]: one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    certificate = found["Certificate", "topogate-system", "topogate"]["spec"]
    assert secrets == {"certificates": certificate["secretName"]}
    assert certificate["dnsNames"] == ["topogate.topogate-system.svc"]


@pytest.mark.parametrize("kinds", ["Issuer|Certificate", "Deployment"])
def test_the_switch_to_cert_manager_applies_what_the_page_names(
    helm: Helm, programs: dict[str, Path], tmp_path: Path, kinds: str
) -> None:
    """`only` of the page lets these objects through, whole, whoever has rendered them."""
    found = re.search(r"only\(\) \{.*\}", pages()["docs/tasks/admin/certificates.md"].text)
    assert found is not None
    everything = kustomized(programs["kubectl"], tmp_path, "components/cert-manager")
    wanted = {key: one for key, one in everything.items() if key[0] in kinds.split("|")}
    kustomize = [str(programs["kubectl"]), "kustomize", str(tmp_path)]
    for text in (
        subprocess.run(kustomize, capture_output=True, text=True, check=True).stdout,
        helm.run("template", "topogate", str(CHART), values={"certificates": {"mode": "cert-manager"}}),
        "---\n".join(yaml.safe_dump(one) for one in everything.values()),
    ):
        command = ["bash", "-c", f"{found[0]}\nonly '{kinds}'"]
        shown = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
        assert objects(shown) == wanted


def granted(role: dict[str, Any]) -> set[tuple[str, str, str, str]]:
    """The rights of a role, one by one: group, resource, name, verb."""
    return {
        (group, resource, name, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def test_a_release_has_a_file_for_each_way(base: Objects, programs: dict[str, Path], tmp_path: Path) -> None:
    """With the image of the release, and otherwise the same objects."""
    image = f"example.com/t/topogate@{DIGEST}"
    written = render_manifests("1.2.3", tmp_path / "out", kubectl=programs["kubectl"], image=image)
    assert [path.name for path in written] == [*MANIFEST_FILES]
    for path in written:
        found = objects(path.read_text())
        [container] = found[SERVICE]["spec"]["template"]["spec"]["containers"]
        assert container["image"] == image
        container["image"] = "topogate:0.1.0"
        assert found == kustomized(programs["kubectl"], tmp_path, *MANIFEST_FILES[path.name])
