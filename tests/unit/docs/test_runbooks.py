"""Every alert has a page, every page an alert, and the pages name what exists: objects, metrics, log lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from engine.api import names
from engine.cache.informers import Informers
from engine.cache.stores import Stores
from engine.policy.model import default_policy
from tests.support.alerts import alerts
from tests.support.pages import ROOT, Page, pages
from tests.support.runbooks import FOLDER, command_lines, kubectl_lines, runbooks
from webhook.service.own_objects import OwnObjects

SECTIONS = ["What it means", "Impact", "Look", "Do", "Prevent"]
METRICS = set(re.findall(r"^\| `(topogate_\w+)`", pages()["docs/reference/metrics.md"].text, re.MULTILINE))
SOURCES = "\n".join(
    path.read_text(encoding="utf-8") for top in ("engine", "webhook", "certs") for path in (ROOT / top).rglob("*.py")
)
# Kinds that kubectl knows without us, as the pages write them.
BUILT_IN = {
    "clusterrolebindings",
    "clusterroles",
    "configmap",
    "crd",
    "deployment",
    "events",
    "flowschemas",
    "job",
    "lease",
    "leases",
    "mutatingwebhookconfigurations",
    "networkpolicy",
    "nodes",
    "pod",
    "pods",
    "secret",
    "validatingadmissionpolicies",
    "validatingwebhookconfigurations",
}
OURS = {"placement", "placements", "placements.topogate.dev", "podmonitors"}
ANY = {"CRD", "KIND", "NAME", "PLACEMENT", "POD"}
# Objects that the service makes itself, or that its users do.
MADE = {
    ("lease", names.LEASE_NAME),
    ("secret", names.CA_SECRET_NAME),
    ("configmap", names.POLICY_NAME),
    ("configmap", names.LAST_GOOD_POLICY_NAME),
}
VERBS = {"annotate", "auth", "describe", "events", "get", "logs", "patch", "port-forward", "rollout", "scale", "top"}
each_page = pytest.mark.parametrize("page", runbooks().values(), ids=runbooks())


def shipped() -> Iterator[tuple[str, str]]:
    for file in (*(ROOT / "manifests/base").glob("*.yaml"), *(ROOT / "manifests/monitoring").glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            found: dict[str, Any] = document or {}
            if "name" in found.get("metadata", {}):
                yield found["kind"].lower(), found["metadata"]["name"]


def test_alerts_and_pages_are_the_same() -> None:
    assert set(runbooks()) == set(alerts())
    index = pages()[f"{FOLDER}README.md"]
    for name, alert in alerts().items():
        assert alert.annotations["runbook_url"] == f"https://topogate.dev/{FOLDER}{name}.md"
        assert f"| [{name}]({name}.md) | {alert.severity} | {alert.annotations['summary']} |" in index.text


@each_page
def test_a_page_has_the_form_of_all(page: Page) -> None:
    """The name, what fires it, then the five sections, none of them empty; something to run in Look."""
    title, *sections = re.split(r"^#+ (.+)\n", page.text, flags=re.MULTILINE)[1:]
    alert = alerts()[title]
    assert sections[1::2] == SECTIONS
    assert all(text.strip() for text in sections[2::2])
    assert f"```text\n{alert.expression}\n```" in sections[0]
    assert f"{alert.annotations['summary']}. Severity: {alert.severity}." in " ".join(sections[0].split())
    look = sections[1::2].index("Look") * 2 + 2
    assert "```sh\n" in sections[look]
    assert all(text.strip().startswith("- ") for text in (sections[4], sections[8]))


@each_page
def test_kubectl_asks_for_what_there_is(page: Page) -> None:
    """Verbs, kinds, and the names of our own objects."""
    known = set(shipped()) | MADE
    assert "kubectl" not in page.text or kubectl_lines(page)
    for words in kubectl_lines(page):
        verb, *rest = _without_options(words)
        assert verb in VERBS, words
        if verb in ("auth", "rollout"):
            rest = rest[2:] if verb == "auth" else rest[1:]  # can-i VERB, undo
        if verb in ("logs", "top", "port-forward") or not rest:
            continue
        for kind in re.split(r"[,]", rest[0].partition("/")[0]):
            assert kind in BUILT_IN | OURS | ANY | {"jobs.batch", "secrets"}, words
        name = rest[0].partition("/")[2] or (rest[1] if len(rest) > 1 and verb != "auth" else "")
        if name and name not in ANY and "=" not in name:
            assert (rest[0].partition("/")[0].rstrip("s"), name) in known, words


def _without_options(words: list[str]) -> list[str]:
    """Return the words that are no options and no values of options."""
    found, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in ("-n", "-l", "-o", "--namespace", "--as", "--patch", "--raw")
        else:
            found.append(word)
    return found


@each_page
def test_metrics_and_log_lines_exist(page: Page) -> None:
    """A search that finds nothing says that all is well; so it has to search for what is written."""
    for line in command_lines(page):
        for pattern in re.findall(r"grep -E '([^']+)'", line):
            for one in re.findall(r"topogate_\w+", pattern):
                assert any(metric.startswith(one.rstrip("_")) for metric in METRICS), line
        for words in re.findall(r"grep -F '([^']+)'", line):
            module = words.startswith("engine.") and (ROOT / f"{words.replace('.', '/')}.py").exists()
            assert words in SOURCES or module or words == "Traceback", line


@each_page
def test_collections_are_called_as_in_the_metrics(page: Page) -> None:
    """The policy and the Secret of the CA are watched by name, and called by it."""
    unused: Any = None  # nothing is read
    known = {
        *Informers(unused, Stores(), namespace=names.NAMESPACE, policy=default_policy).reflectors(),
        *OwnObjects(unused, namespace=names.NAMESPACE, changed=lambda: None).reflectors(),
    }
    for line in command_lines(page):
        for collection in re.findall(r"topogate_cache_age_seconds\.\*\"?([\w-]+)", line):
            assert collection in known, line


def test_alert_names_in_the_docs_exist() -> None:
    for page in pages().values():
        told = set(re.findall(r"\bTopogate[A-Z]\w+", page.text)) - {"TopogateTopology"}
        assert told <= set(alerts()), page.name
