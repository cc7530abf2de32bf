"""Objects of every registered kind for a real API server, asking for nothing, and where their pod templates stand."""

from __future__ import annotations

import copy
from typing import Any

from engine.kinds.read import read
from engine.kinds.registry import built_in
from engine.kinds.schema import KindEntry
from tests.support.definitions import Definition
from tests.support.kinds import TEMPLATE, example

NAMESPACE = "team"
CORE = ("", "apps", "batch")
ENTRIES = [entry for entry in built_in().entries if entry.handling != "pods"]
CUSTOM = [entry for entry in ENTRIES if entry.match.group not in CORE]
BY_NAME = {entry.name: entry for entry in ENTRIES}
Json = dict[str, Any]


def versions_of(entry: KindEntry) -> list[str]:
    return [version for version in entry.match.versions if version != "*"]


def definitions() -> list[Definition]:
    """Each custom kind once, in every version that any of its entries names."""
    versions: dict[tuple[str, str, str], set[str]] = {}
    for entry in CUSTOM:
        match = entry.match
        versions.setdefault((match.group, match.kind, match.resource), set()).update(versions_of(entry))
    return [Definition(*kind, tuple(sorted(found))) for kind, found in versions.items()]


def collection(entry: KindEntry, *, version: str = "") -> str:
    version = version or versions_of(entry)[0]
    return f"/apis/{entry.match.group}/{version}/namespaces/{NAMESPACE}/{entry.match.resource}"


def plain(entry: KindEntry) -> Json:
    """The example of a kind, asking for nothing."""
    body: Json = copy.deepcopy(example(entry.name)["object"])
    body["metadata"] = {"name": "one"}
    if entry.name == "sparkapplication":  # it may do without
        for role in ("driver", "executor"):
            body["spec"][role] = {**body["spec"].get(role, {}), "template": copy.deepcopy(TEMPLATE)}
    if entry.match.group in CORE:
        body.pop("status", None)
        complete(body)
    return body


def complete(body: Json) -> None:
    """What the API server asks of its own kinds."""
    kind, spec = body["kind"], body["spec"]
    if kind == "CronJob":
        spec |= {"schedule": "0 0 * * *"}
        spec["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
        return
    if kind == "Job":
        spec["template"]["spec"]["restartPolicy"] = "Never"
        return
    spec["selector"] = {"matchLabels": {"app": "x"}}
    spec["template"]["metadata"] = {"labels": {"app": "x"}}


def template_fields(entry: KindEntry, body: Json) -> list[str]:
    """The JSON paths of the templates of an object that the registry reads."""
    raw = {**body, "metadata": {**body["metadata"], "namespace": NAMESPACE, "uid": "u"}}
    return [found.field for found in read(entry, raw, registry=built_in()).pod_sets]


def at(body: Any, field: str) -> Any:
    """The node of an object at a JSON path such as `spec.tasks[0].template`."""
    for step in field.replace("[", ".").replace("]", "").split("."):
        body = body[int(step)] if isinstance(body, list) else body[step]
    return body


def known_templates(entry: KindEntry, body: Json) -> list[str]:
    """Those at the paths of kinds: what an AppWrapper declares of kinds without an entry is in its own annotations."""
    return [field for field in template_fields(entry, body) if ".parts[" not in field]
