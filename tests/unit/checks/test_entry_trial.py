"""Entries of a policy tried on samples and on definitions of their kind, and whom a path that leads nowhere blames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from engine.kinds.read import UnreadableWorkload, read
from engine.kinds.registry import registry_of
from engine.policy.model import parse_policy
from tests.support.admission import FakeView, review
from webhook.cli import main
from webhook.handlers.validate import validate

Json = dict[str, Any]

ENTRY: Json = {
    "name": "bench",
    "match": {"group": "example.com", "versions": ["v1"], "kind": "Bench", "resource": "benches"},
    "podSets": [
        {
            "forEach": ".spec.parts[*]",
            "name": {"path": ".name"},
            "template": ".template",
            "count": {"path": ".replicas"},
        }
    ],
    "gang": {"unit": "workload", "creation": "all-at-once"},
    "suspend": {"path": ".spec.suspend"},
    "replace": {"cost": "free"},
}
SAMPLE: Json = {
    "apiVersion": "example.com/v1",
    "kind": "Bench",
    "metadata": {"name": "a", "namespace": "ml"},
    "spec": {"parts": [{"name": "x", "replicas": 2, "template": {"spec": {"containers": [{"name": "m"}]}}}]},
}


def definition(**more: Any) -> Json:
    part = {
        "type": "object",
        "properties": {"name": {}, "replicas": {"type": "integer"}, "template": {"type": "object"}},
    }
    spec = {"suspend": {"type": "boolean"}, "parts": {"type": "array", "items": part}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec, **more}}}
    version = {"name": "v1", "served": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "benches.example.com"},
        "spec": {"group": "example.com", "names": {"kind": "Bench"}, "versions": [version]},
    }


def entry(**pod_set: Any) -> Json:
    return {**ENTRY, "podSets": [{**ENTRY["podSets"][0], **pod_set}]}


def check(tmp_path: Path, kind: Json, *objects: Json, option: str = "--object") -> Result:
    policy, sample = tmp_path / "policy.yaml", tmp_path / "object.json"
    policy.write_text(json.dumps({"kinds": [kind]}))
    sample.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return CliRunner().invoke(main, ["policy", "check", str(policy), option, str(sample)])


def told(result: Result) -> list[str]:
    return [line.partition(": ")[2] for line in result.stderr.splitlines()[1:]]


def test_an_entry_that_fits_says_what_it_reads(tmp_path: Path) -> None:
    """Of a sample its pod sets with their counts and templates; of a definition that all is there."""
    result = check(tmp_path, ENTRY, {**SAMPLE, "spec": {**SAMPLE["spec"], "suspend": False}}, definition())
    assert result.exit_code == 0
    assert told(result) == [
        "Bench a: x (2 pods, spec.parts[0].template); held by spec.suspend",
        "Bench has every field that its entry names",
    ]


@pytest.mark.parametrize(
    ("suspend", "how"),
    [
        ({"path": ".spec.paused"}, "spec.paused, which this object does not set"),
        (None, "the scheduling gate"),
    ],
)
def test_a_sample_says_how_its_kind_is_held(tmp_path: Path, suspend: Json | None, how: str) -> None:
    """A misspelt path is seen here: on a sample it may as well be a field that is not set."""
    kind = {key: value for key, value in {**ENTRY, "suspend": suspend}.items() if value is not None}
    (line,) = told(check(tmp_path, kind, SAMPLE))
    assert line.endswith(f"; held by {how}")


@pytest.mark.parametrize(
    ("pod_set", "at", "path"),
    [
        ({"template": ".tempalte"}, "template", ".tempalte"),
        ({"forEach": ".spec.part[*]"}, "forEach", ".spec.part[*]"),
        ({"count": {"path": ".replica"}}, "count.path", ".replica"),
        ({"count": {"path": "$.replicas"}}, "count.path", "$.replicas"),
        ({"name": {"path": ".nmae"}}, "name.path", ".nmae"),
        ({"succeeded": {"entries": "$.status.parts[*]", "count": ".done"}}, "succeeded.entries", "$.status.parts[*]"),
        ({"succeeded": {"entries": "$.spec.parts[*]", "count": ".done"}}, "succeeded.count", ".done"),
        (
            {"succeeded": {"entries": "$.spec.parts[*]", "name": ".nmae", "count": ".replicas"}},
            "succeeded.name",
            ".nmae",
        ),
    ],
)
def test_a_path_that_the_definition_does_not_know_is_told(tmp_path: Path, pod_set: Json, at: str, path: str) -> None:
    """With its place in the policy; what starts at it is told too, and the exit status is 1."""
    result = check(tmp_path, entry(**pod_set), definition())
    assert result.exit_code == 1
    assert told(result)[0] == f"kinds[0] (bench): podSets[0].{at}: {path} matches no field of the kind"


def test_what_a_definition_leaves_open_is_not_blamed(tmp_path: Path) -> None:
    """Where any field may stand, every path leads on; so it does through maps with values of a schema."""
    anything: Json = definition(**{"x-kubernetes-preserve-unknown-fields": True})
    assert check(tmp_path, entry(forEach=".spec.any[*]"), anything).exit_code == 0
    maps = definition(additionalProperties={"type": "object", "properties": {"template": {}, "name": {}}})
    assert check(tmp_path, entry(forEach=".spec{*}", count={"const": 1}), maps).exit_code == 0


def test_the_definitions_of_a_cluster_are_tried_too(tmp_path: Path) -> None:
    """Beside its nodes; those that no entry of the policy is about say nothing, also of kinds that are built in."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {}}
    jobset, other = definition(), definition()
    jobset["spec"] |= {"group": "jobset.x-k8s.io", "names": {"kind": "JobSet"}}
    other["spec"] |= {"group": "other.example.com"}
    cluster = (node, jobset, definition(), other)
    wrong = check(tmp_path, entry(template=".tempalte"), *cluster, option="--cluster")
    about_kinds = [line for line in wrong.stderr.splitlines() if "object.json" in line]
    assert (wrong.exit_code, len(about_kinds)) == (1, 1)
    assert "kinds[0] (bench): podSets[0].template: .tempalte matches no field of the kind" in about_kinds[0]
    good = check(tmp_path, ENTRY, *cluster, option="--cluster")
    about_kinds = [line for line in good.stderr.splitlines() if "object.json" in line]
    assert (good.exit_code, len(about_kinds)) == (0, 1)
    assert about_kinds[0].endswith("Bench has every field that its entry names")


def test_a_version_that_is_not_served_knows_nothing(tmp_path: Path) -> None:
    """The entry names versions that the cluster does not have."""
    result = check(tmp_path, {**ENTRY, "match": {**ENTRY["match"], "versions": ["v2"]}}, definition())
    assert (result.exit_code, told(result)) == (1, ["kinds[0] (bench): none of match.versions is served"])


def test_an_object_of_another_kind_is_told(tmp_path: Path) -> None:
    """Most often the group or the version of the entry is misspelt."""
    result = check(tmp_path, ENTRY, {**SAMPLE, "apiVersion": "exmaple.com/v1"})
    assert (result.exit_code, told(result)) == (1, ["no entry for exmaple.com/v1 Bench"])


@pytest.mark.parametrize(
    "pod_set",
    [{"template": ".tempalte"}, {"forEach": ".spec.part[*]"}, {"count": {"path": ".replica"}}],
    ids=["template", "forEach", "count"],
)
def test_a_user_is_not_blamed_for_an_entry(pod_set: Json) -> None:
    """A path of a policy's entry that leads nowhere is told with the entry's place; those of built-in kinds are not."""
    policy = parse_policy(json.dumps({"kinds": [entry(**pod_set)]}))
    asking = {**SAMPLE, "metadata": {**SAMPLE["metadata"], "annotations": {"topogate.dev/require-topology": "rack"}}}
    answer = validate(review(asking), FakeView(policy=policy), 10.0)
    assert not answer.allowed
    assert all(
        one.message.endswith("; kinds[0] (bench) of the policy names this field, and may be wrong: ask its admin")
        for one in answer.causes
    )


def wrapped(component: Json) -> Json:
    """An AppWrapper of one component, which asks."""
    asks = {"name": "a", "namespace": "ml", "annotations": {"topogate.dev/require-topology": "rack"}}
    wrapper = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": asks}
    return {**wrapper, "spec": {"components": [{"template": component}]}}


def test_an_entry_is_blamed_for_what_stands_inside_another_object(tmp_path: Path) -> None:
    """The entry of the component, as the wrapper is built in; a component of a built-in kind blames nobody's entry."""
    view = FakeView(policy=parse_policy(json.dumps({"kinds": [entry(template=".tempalte")]})))
    (cause,) = validate(review(wrapped(SAMPLE)), view, 10.0).causes
    assert cause.field == "spec.components[0].template.spec.parts[0].tempalte"
    assert "kinds[0] (bench) of the policy" in cause.message
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": [{"name": "x"}]}}
    answer = validate(review(wrapped(jobset)), view, 10.0)
    assert (answer.allowed, answer.blamed) == (False, ())


def test_what_a_user_wrote_wrongly_is_his_own(tmp_path: Path) -> None:
    """A value that is no count, or an object of a built-in kind without a template."""
    registry = registry_of([ENTRY])
    wrong = json.loads(json.dumps(SAMPLE))
    wrong["spec"]["parts"][0]["replicas"] = -1
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "a"}, "spec": {}}
    for raw in (wrong, jobset):
        found = registry.entry_of(raw)
        assert found is not None
        with pytest.raises(UnreadableWorkload) as caught:
            read(found, raw, registry=registry)
        assert not any("policy" in error.message for error in caught.value.errors)
