"""The pages for people name what the code has: wire names, metrics, reasons, failure policies."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import get_args

import pytest
import yaml
from prometheus_client import Counter
from prometheus_client.metrics import MetricWrapperBase

from certs import secret
from engine import metrics as engine_metrics
from engine.api import names
from engine.api.reasons import REASONS
from engine.lifecycle.gang_state import WaitOutcome
from engine.policy.rules import DEFAULT_REQUESTS
from tests.support.pages import ROOT, pages
from webhook.server.metrics import Metrics

NAMES = pages()["docs/reference/names.md"]
METRICS = pages()["docs/reference/metrics.md"]


def texts(value: object) -> Iterable[str]:
    """Every text in a constant of names.py, keys and values alike."""
    match value:
        case str():
            yield value
        case dict():
            for key, item in value.items():
                yield from (*texts(key), *texts(item))
        case frozenset() | tuple():
            for item in value:
                yield from texts(item)


WIRE = sorted(
    {text for key, value in vars(names).items() if key.isupper() for text in texts(value)}
    | {secret.SINCE, secret.RENEW, secret.DROP, secret.CERTIFICATES_KEY, secret.PRIVATE_KEY, secret.NEXT_KEY}
)


@pytest.mark.parametrize("name", WIRE)
def test_every_wire_name_is_on_the_page(name: str) -> None:
    """docs/reference/names.md has every constant of engine/api/names.py, and what the Secret of the CA has."""
    assert any(name in span for span in NAMES.spans)


@pytest.mark.parametrize("page", list(pages()))
def test_values_of_annotations_are_text(page: str) -> None:
    """kubectl refuses an annotation that YAML reads as a number or as true, before anybody could say what to write."""
    for span in pages()[page].spans:
        if found := re.fullmatch(r"(topogate\.dev/[a-z-]+): (\S+)", span):
            assert isinstance(yaml.safe_load(found[2]), str), span


@pytest.mark.parametrize("page", list(pages()))
def test_every_name_of_ours_that_a_page_tells_exists(page: str) -> None:
    """A page's `topogate.dev/...` is a wire name, the API version, or the source of Events."""
    known = {*WIRE, names.API_VERSION, "topogate.dev/engine", "topogate.dev/*"}
    for span in pages()[page].spans:
        for name in re.findall(r"(?<![\w.])topogate\.dev/[\w./*-]*\w|topogate\.dev/\*", span):
            assert name in known or name.endswith("/..."), f"{page}: {name}"


@pytest.mark.parametrize("page", ["docs/contributor/architecture.md", "docs/contributor/extending.md"])
def test_names_of_the_code_exist(page: str) -> None:
    """Classes, functions and constants that the contributors' pages name are in the code."""
    known: set[str] = set()
    parts = ("engine", "webhook", "certs", "local", "tests/support")
    for path in (path for part in parts for path in (ROOT / part).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                known.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                known.add(node.id)
    names_told = [span for span in pages()[page].spans if re.fullmatch(r"[A-Z]\w+(\.\w+)?|\w+_\w+", span)]
    assert names_told
    for name in names_told:
        assert known.issuperset(name.split(".")), f"{page}: {name}"


def test_metrics_are_documented_with_their_labels() -> None:
    """docs/reference/metrics.md has a row for every metric of ours, with its type and labels, and no others."""
    rows = dict(re.findall(r"^\| `(topogate_\w+)` \| (.+) \|$", METRICS.text, re.MULTILINE))
    expected = {}
    for metric in (*vars(engine_metrics).values(), *vars(Metrics()).values()):
        if isinstance(metric, MetricWrapperBase):
            described = next(iter(metric.describe()))
            name = f"{described.name}_total" if isinstance(metric, Counter) else described.name
            labels = ", ".join(f"`{label}`" for label in metric._labelnames)
            expected[name] = f"{described.type} | {labels}".rstrip(" ")
    assert expected
    assert set(rows) == set(expected)
    for name, told in expected.items():
        assert rows[name].startswith(told), name


def test_what_a_default_request_may_have_is_on_the_page() -> None:
    """Each key that the policy takes, and no other."""
    page = pages()["docs/tasks/admin/policy.md"].text
    [told] = [part for part in page.split("\n\n") if part.startswith("A default names a level")]
    assert set(re.findall(r"`(topogate\.dev/[a-z-]+)`", told)) == DEFAULT_REQUESTS


def test_every_end_of_a_wait_is_on_the_page() -> None:
    """The dashboard's time to place counts one of them; who writes a query of his own has to know the others."""
    [row] = [line for line in METRICS.text.splitlines() if line.startswith("| `topogate_gang_wait_seconds`")]
    assert all(f"`{outcome}`" in row for outcome in get_args(WaitOutcome))


def test_metrics_in_alerts_exist() -> None:
    """An alert on a name that nobody exports never fires."""
    known = set(re.findall(r"topogate_\w+", METRICS.text))
    for page in ("docs/tasks/admin/monitoring.md", "docs/tasks/admin/policy.md"):
        for name in re.findall(r"topogate_\w+", pages()[page].prose):
            assert name.removesuffix("_bucket") in known, f"{page}: {name}"


def test_reasons_in_tables_exist() -> None:
    """The help for people who wait speaks of codes that there are, and of every reason for which a gang waits."""
    page = pages()["docs/tasks/researcher/why-is-it-waiting.md"]
    rows = re.findall(r"^\| (`[A-Z].*?) \|", page.prose, re.MULTILINE)
    told = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    assert told <= set(REASONS)
    assert {code for code, reason in REASONS.items() if reason.kind == "not-now"} - told <= {"SearchLimit"}


def test_failure_policies_are_told_as_they_are() -> None:
    """What fails open and what fails closed is what the manifests say."""
    page = pages()["docs/tasks/admin/failure-and-emergency.md"]
    rows = dict(
        re.findall(r"^\| `([a-z.-]+)` \((?:mutating|validating|both)\) \| [^|]+ \| (\w+) \|", page.prose, re.MULTILINE)
    )
    shipped: dict[str, str] = {}
    for document in yaml.safe_load_all((ROOT / "manifests/base/webhooks.yaml").read_text()):
        for webhook in document.get("webhooks") or ():
            assert shipped.setdefault(webhook["name"], webhook["failurePolicy"]) == webhook["failurePolicy"]
    assert rows == shipped
