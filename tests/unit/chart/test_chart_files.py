"""The chart's files: written from the manifests and settings, and packed the same way every time."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import yaml

from engine.kinds.schema import Verb
from hack.chart import CHART, ROOT
from hack.chart.files import files
from hack.chart.release import Image, ReleaseError, package_chart, stale_files, write_images
from hack.chart.settings import SETTINGS
from hack.chart.templates import Change, Template, TemplateError
from hack.chart.values import values_schema

DIGEST = "sha256:" + "0123456789abcdef" * 4


def test_values_are_the_settings_and_fit_their_schema() -> None:
    """Every setting is in values.yaml with its default; the schema is valid, and knows nothing else."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.Draft202012Validator.check_schema(values_schema())
    jsonschema.validate(values, values_schema())
    for setting in SETTINGS:
        at = values
        for name in setting.path.split("."):
            at = at[name]
        assert at == setting.default
    closed = [one for one in sections(values_schema()) if one.get("properties")]
    assert len(closed) > 5
    assert all(one["additionalProperties"] is False for one in closed)


def test_the_schema_has_only_patterns_that_helm_can_read() -> None:
    """Go's regular expressions have no lookaround and no reference back; a length stays a length."""
    patterns = set(re.findall(r'"pattern": (".*")', (CHART / "values.schema.json").read_text()))
    assert len(patterns) > 10
    assert [one for one in patterns if re.search(r"\(\?[=!<]|\\\\[1-9]", one)] == []
    validator = jsonschema.Draft202012Validator(values_schema())
    group = "a" * 63 + ".b" * 95
    for name, good in ((group, True), (group + "c", False)):
        policy = {"kinds": [{"match": {"group": name}}]}
        places = [[*error.absolute_path] for error in validator.iter_errors({"policy": policy})]
        assert (["policy", "kinds", 0, "match", "group"] not in places) == good, places


def test_rights_of_a_kind_may_have_every_verb_that_its_entry_may() -> None:
    """What `topogate policy check` prints for an entry with `rbac` is a value of the chart."""
    rule = {"apiGroups": ["example.com"], "resources": ["trainings", "trainings/status"], "verbs": [*get_args(Verb)]}
    validator = jsonschema.Draft202012Validator(values_schema())
    refused = [error for error in validator.iter_errors({"extraKinds": [rule]}) if "extraKinds" in error.absolute_path]
    assert refused == []


@pytest.mark.parametrize("place", ["apiGroups", "resources", "verbs"])
def test_rights_of_a_kind_are_named(place: str) -> None:
    """No value of the chart grants by a wildcard."""
    rule = {"apiGroups": ["example.com"], "resources": ["trainings"], "verbs": ["get"], place: ["*"]}
    validator = jsonschema.Draft202012Validator(values_schema())
    places = [[*error.absolute_path] for error in validator.iter_errors({"extraKinds": [rule]})]
    assert ["extraKinds", 0, place, 0] in places


@pytest.mark.parametrize(
    ("argument", "good"),
    [
        ("--port=10250", False),
        ("--ops-port", False),
        ("--host=127.0.0.1", False),
        ("--ops-host=::1", False),
        ("--log-format=text", True),
        ("10250", True),
    ],
)
def test_the_options_of_the_service_leave_its_ports_as_service_and_probes_name_them(argument: str, good: bool) -> None:
    """With another port the pods would be ready, and every call of the API server refused."""
    validator = jsonschema.Draft202012Validator(values_schema())
    places = [[*error.absolute_path] for error in validator.iter_errors({"extraArgs": ["--review-cpu=1", argument]})]
    assert (["extraArgs", 1] not in places) == good


def sections(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for one in schema.get("properties", {}).values():
        yield from sections(one)


@pytest.mark.parametrize(
    ("mode", "issuer", "wrong"),
    [
        ("self-signed", None, []),
        ("cert-manager", None, []),
        ("cert-manager", {"name": "corporate", "kind": "ClusterIssuer"}, []),
        ("cert-manager", {"name": "pca", "kind": "AWSPCAClusterIssuer", "group": "awspca.cert-manager.io"}, []),
        ("self-signed", {"name": "corporate"}, ["mode"]),
        ("cert-manager", {"kind": "ClusterIssuer"}, ["issuerRef"]),
    ],
)
def test_an_issuer_of_any_kind_signs_where_cert_manager_makes_the_certificates(
    mode: str, issuer: dict[str, str] | None, wrong: list[str]
) -> None:
    """An issuer beside certificates of the service's own would be ignored without a word."""
    validator = jsonschema.Draft202012Validator(values_schema()["properties"]["certificates"])
    assert [error.absolute_path[0] for error in validator.iter_errors({"mode": mode, "issuerRef": issuer})] == wrong


@pytest.mark.parametrize(("missing", "good"), [(0, True), ("0%", True), ("50%", True), ("100%", True), ("150%", False)])
def test_at_most_all_replicas_may_be_missing(missing: int | str, good: bool) -> None:
    """The API server refuses more: better before the upgrade than in the middle of it."""
    values = {"podDisruptionBudget": {"maxUnavailable": missing}}
    places = [[*error.absolute_path] for error in jsonschema.Draft202012Validator(values_schema()).iter_errors(values)]
    assert (["podDisruptionBudget", "maxUnavailable"] in places) is not good


def test_a_change_of_the_base_that_the_chart_does_not_know_is_told() -> None:
    """By the place that is not there any more."""
    with pytest.raises(TemplateError, match=r"pdb.yaml has this 0 times, not 1:\nreplicas: 7"):
        Template("base/pdb.yaml", (Change("replicas: 7", "x"),)).text()


def test_a_packed_chart_is_the_same_bytes_and_has_the_version(tmp_path: Path) -> None:
    """Version and image of the release are in it; everything else is the folder's."""
    packed = package_chart("1.2.3", tmp_path / "a", epoch=1577836800, image=f"example.com/t/topogate@{DIGEST}")
    again = package_chart("1.2.3", tmp_path / "b", epoch=1577836800, image=f"example.com/t/topogate@{DIGEST}")
    assert packed.name == "topogate-1.2.3.tgz"
    assert packed.read_bytes() == again.read_bytes()
    with tarfile.open(packed) as archive:
        assert {member.mtime for member in archive} == {1577836800}
        archive.extractall(tmp_path, filter="data")
    found = tmp_path / "topogate"
    chart = yaml.safe_load((found / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == ("1.2.3", "1.2.3")
    image = yaml.safe_load((found / "values.yaml").read_text())["image"]
    assert (image["repository"], image["tag"], image["digest"]) == ("example.com/t/topogate", "", DIGEST)
    there = {path.relative_to(found) for path in found.rglob("*") if path.is_file()}
    assert there == {path.relative_to(CHART) for path in CHART.rglob("*") if path.is_file()}
    changed = {str(one) for one in there if (found / one).read_bytes() != (CHART / one).read_bytes()}
    assert changed == {"Chart.yaml", "values.yaml"}


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("topogate", "topogate:1.2.3"),
        ("localhost:5000/topogate", "localhost:5000/topogate:1.2.3"),
        ("localhost:5000/topogate:9", "localhost:5000/topogate:9"),
        (f"example.com/topogate@{DIGEST}", f"example.com/topogate:1.2.3@{DIGEST}"),
    ],
)
def test_an_image_is_told_apart_from_its_registry(text: str, image: str) -> None:
    """A port is no tag."""
    assert str(Image.parse(text, version="1.2.3")) == image


@pytest.mark.parametrize("text", ["", "a b", "x@sha256:12", ":1"])
def test_what_is_no_image_is_refused(text: str) -> None:
    """Before it is written into manifests."""
    with pytest.raises(ReleaseError, match="not the name of an image"):
        Image.parse(text, version="1.2.3")


def test_every_image_is_in_the_list(tmp_path: Path) -> None:
    """What runs in the manifests; the release's list names the release's image."""
    listed = [line for line in (ROOT / "manifests/images.txt").read_text().splitlines() if not line.startswith("#")]
    used = set()
    for path in (ROOT / "manifests").rglob("*.yaml"):
        if not path.is_relative_to(CHART) and "samples" not in path.parts:
            used |= {word for line in path.read_text().splitlines() if (word := line.partition(" image: ")[2])}
    assert used == set(listed)
    written = write_images("1.2.3", tmp_path, image="example.com/topogate").read_text().splitlines()
    assert written[1:] == ["example.com/topogate:1.2.3"]


def test_stale_files_are_found(tmp_path: Path) -> None:
    """A release of a chart that is not generated anew is refused."""
    assert stale_files(ROOT) == []
    assert set(stale_files(tmp_path)) == set(files())
    assert json.loads((CHART / "values.schema.json").read_text()) == values_schema()
