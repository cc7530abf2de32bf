from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import pytest
import yaml
from pydantic import Field, create_model

from engine.api.event_reasons import ON_PHASES, ON_PODS, ON_POLICY, ON_WORKLOADS
from engine.api.reasons import REASONS
from engine.history.record import ON_GANGS, ON_SERVICE
from engine.kinds.registry import RegistryError, registry_of
from engine.policy.model import PolicyError, default_policy, parse_policy
from hack.chart.release import stale_files
from hack.reference import pages
from hack.reference.policy_page import takes
from hack.reference.schemas import kind_entry_schema, policy_schema

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("path", list(pages()))
def test_generated_files_are_current(path: str) -> None:
    """Committed pages and schemas are what `python -m hack.reference` writes."""
    assert (ROOT / path).read_text(encoding="utf-8") == pages()[path], "run python -m hack.reference"


def test_the_chart_follows_the_manifests() -> None:
    """A change of manifests/base, of a component or of the policy's schema is in the chart too."""
    assert stale_files(ROOT) == [], "run python -m hack.reference"


def test_every_reason_has_a_line() -> None:
    """Codes are CamelCase, and each is documented once."""
    page = pages()["docs/reference/messages.md"]
    for code, reason in REASONS.items():
        assert re.fullmatch(r"(?:[A-Z]+[a-z]*)+", code)
        assert page.count(f"| `{code}` | {reason.description} |") == 1


def test_every_record_of_the_log_has_a_line() -> None:
    page = pages()["docs/reference/messages.md"].partition("## Records in the log")[2]
    for event, meaning in [*ON_GANGS.items(), *ON_SERVICE.items()]:
        assert page.count(f"| `{event}` | {meaning} |\n") == 1


def test_every_reason_of_an_event_has_a_line() -> None:
    """What mypy lets through as an Event's reason is a code, or documented on the page."""
    page = pages()["docs/reference/messages.md"].partition("## Records in the log")[0]
    described = {**ON_PHASES, **ON_WORKLOADS, **ON_PODS, **ON_POLICY}
    for reason, told in described.items():
        assert len(re.findall(rf"^\| `{reason}` \|.* {re.escape(told.description)} \|$", page, re.M)) == 1


def test_every_field_has_a_line() -> None:
    """The page of the policy names every field of the model."""
    page = pages()["docs/reference/policy.md"]

    def paths(value: object, prefix: str = "") -> list[str]:
        if not isinstance(value, dict) or not value:
            return [prefix]
        return [path for key, item in value.items() for path in paths(item, f"{prefix}.{key}".strip("."))]

    for path in paths(default_policy().model_dump(mode="json")):
        assert f"| `{path}` |" in page


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (bool, "`true` or `false`"),
        (bool | None, "`true` or `false`"),
        (tuple[bool, ...], "list of `true` or `false`"),
        (str, "text"),
        (Literal["pack", "spread"], "`pack`, `spread`"),
        (Annotated[int, Field(ge=1, le=2000)], "1 to 2,000"),
        (Annotated[float, Field(ge=1, le=2000)], "a number from 1 to 2,000"),
        (dict[str, str], "map"),
        (Annotated[tuple[str, ...], Field(max_length=2000)], "list of text, at most 2,000"),
        (Annotated[tuple[str, ...], Field(max_length=8)] | None, "list of text, at most 8"),
        (Annotated[tuple[Literal["get", "list"], ...], Field(max_length=2)], "list of `get`, `list`"),
        (Annotated[dict[str, str], Field(max_length=32)], "map, at most 32"),
    ],
)
def test_a_field_says_what_it_takes(field: Any, said: str) -> None:
    """The page calls a field by what may stand there, whatever its type."""
    schema = create_model("One", one=(field, ...)).model_json_schema()
    assert takes(schema["properties"]["one"], schema.get("$defs", {})) == said


def test_every_key_of_an_answer_has_a_meaning_and_verdicts_stand_beside_theirs() -> None:
    """Whoever writes a script against `-o json` finds in one section what each key and each verdict means."""
    page = pages()["docs/reference/cli.md"]
    assert re.findall(r"^\| `[\w.\[\]]+` \| +\|$", page, re.MULTILINE) == []
    sections = {section.partition("\n")[0]: section for section in page.split("\n## ")}
    with_verdicts = [title for title, section in sections.items() if "\n| verdict |" in section]
    assert with_verdicts == ["What simulate prints with -o json", "What explain prints with -o json"]


def entries() -> list[dict[str, Any]]:
    return list(yaml.safe_load((ROOT / "engine/kinds/kinds.yaml").read_text(encoding="utf-8"))["kinds"])


def test_every_field_of_an_entry_is_described() -> None:
    """The page and the schema of kind entries say what each field means."""
    page, schema = pages()["docs/reference/kind-entries.md"], kind_entry_schema()
    for model in (schema, *schema["$defs"].values()):
        assert model["description"]
        for name, rule in model["properties"].items():
            assert rule["description"], name
            assert f"| `{name}` |" in page


def test_built_in_entries_fit_the_schemas() -> None:
    """The schema of an entry takes every entry that the registry takes; so does the policy's, under `kinds`."""
    jsonschema.Draft202012Validator.check_schema(kind_entry_schema())
    for entry in entries():
        jsonschema.validate(entry, kind_entry_schema())
    jsonschema.validate({"kinds": entries()}, policy_schema())


@pytest.mark.parametrize(
    "fault",
    [
        {"handling": "place"},
        {"podSet": []},
        {"name": "A"},
        {"suspend": {"path": "spec.suspend"}},
        {"replace": {"cost": "little"}},
        {"standAside": [{"when": {"path": ".spec.x", "exists": True}, "reason": "KueueHasIt"}]},
        {"podSets": [{"name": {"text": "main"}, "template": ".spec.template"}]},
    ],
)
def test_the_schema_of_an_entry_refuses_what_the_registry_refuses(fault: dict[str, Any]) -> None:
    """An editor with the schema shows the fault of an entry before the cluster does."""
    match = {"group": "example.com", "versions": ["v1"], "kind": "Bench", "resource": "benches"}
    bench = {**entries()[0], "name": "bench", "match": match}
    registry_of((bench,))
    jsonschema.validate(bench, kind_entry_schema())
    entry = {**bench, **fault}
    with pytest.raises(RegistryError):
        registry_of((entry,))
    for schema, document in ((kind_entry_schema(), entry), (policy_schema(), {"kinds": [entry]})):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document, schema)


def test_an_empty_section_is_a_policy_and_not_one_of_the_schema() -> None:
    """As the page says: what is null counts as left out, but editors and Helm refuse it."""
    empty = "queue:\n  # patience: 30m\nmode: observe\n"
    assert parse_policy(empty).mode == "observe"
    with pytest.raises(jsonschema.ValidationError, match="None is not of type 'object'"):
        jsonschema.validate(yaml.safe_load(empty), policy_schema())


def test_the_default_policy_fits_the_schema() -> None:
    """What the service writes is what the schema allows."""
    schema = policy_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(default_policy().model_dump_json()), schema)


@pytest.mark.parametrize(
    "text",
    [
        "mode: enforcing",
        "modes: off",
        "timeouts: {bind: 30}",
        "timeouts: {bind: 5x}",
        "queue: {maxGangPods: 0}",
        "topologies: [{preset: demo}]",
        "topologies: [{name: a, preset: nope}]",
        "topologies: [{name: A, preset: demo}]",
        "topologies: [{name: a, levels: []}]",
        "schedulers: []",
        "namespaces: {exempt: [A]}",
    ],
)
def test_the_schema_refuses_what_the_parser_refuses(text: str) -> None:
    """An editor with the schema shows the fault before the cluster does."""
    with pytest.raises(PolicyError):
        parse_policy(text)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), policy_schema())
