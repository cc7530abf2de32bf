"""What the pages for people show is what the code takes and says."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
import yaml

from engine.api import names
from engine.api.field import render
from engine.api.schema import fields_of
from engine.decoding.objects import quota
from engine.gang.request import PlacementRequest, parse_request
from engine.kinds.registry import built_in
from engine.policy.model import Policy, PolicyError, default_policy, parse_policy
from engine.topology.levels import presets
from engine.topology.topology import Topology, build_topology
from hack.chart.values import values_schema, values_text
from local import webhook_client
from tests.support.cluster_records import gpu_nodes
from tests.support.kinds import merged, workload_of
from tests.support.pages import ROOT, pages
from webhook.cli import main

EXAMPLES = [
    (page.name, number, block.text)
    for page in pages().values()
    for number, block in enumerate(page.blocks)
    if block.language == "yaml"
]
FILES = sorted([*(ROOT / "examples").rglob("*.yaml"), *(ROOT / "manifests" / "samples").glob("*.yaml")])


def topology() -> Topology:
    """The demo's cluster."""
    return build_topology("default", presets()["demo"], gpu_nodes(2, 4, 4))


def understood(raw: dict[str, Any]) -> PlacementRequest:
    raw["metadata"].setdefault("namespace", "default")
    return parse_request(workload_of(raw), policy=default_policy(), topologies={"default": topology()})


def check(document: dict[str, Any]) -> None:
    """Accept one document as our own code would, or fail."""
    match document:
        case {"apiVersion": "batch/v1", "kind": "Job"}:
            assert understood(document).asked is not None, understood(document)
            for container in document["spec"]["template"]["spec"]["containers"]:
                for amounts in container["resources"].values():
                    # A number would be stored as text: the same file applied again would not print "unchanged".
                    assert all(isinstance(amount, str) for amount in amounts.values())
        case {"kind": "CronJob", "spec": {"jobTemplate": dict(template)}}:
            made = {"name": document["metadata"]["name"], **template["metadata"]}
            check({"apiVersion": "batch/v1", "kind": "Job", **template, "metadata": made})
        case {"kind": "Pod", "metadata": {"annotations": dict(annotations)}}:
            assert annotations.keys() <= names.REQUEST_KEYS
        case {"kind": str(), "spec": dict()} if built_in().entry_of(document) is not None:
            found = understood(document)
            assert found.asking and not found.errors, found
        case {"kind": "ConfigMap", "metadata": {"name": "topogate-policy"}, "data": {"policy.yaml": str(text)}}:
            parse_policy(text)
        case {"kind": "ClusterRole", "rules": list(rules)}:
            known = {"apiGroups", "resources", "resourceNames", "verbs"}
            assert all(known >= rule.keys() >= known - {"resourceNames"} for rule in rules)
        case {"kind": "PriorityClass", "metadata": {"name": str()}, "value": int()}:
            assert document["apiVersion"] == "scheduling.k8s.io/v1"
        case {"kind": "ResourceQuota", "metadata": {"name": str()}, "spec": {"hard": {**hard}}}:
            assert quota(document).hard.keys() == hard.keys()
        case {"kind": "Certificate", "spec": {"dnsNames": list(hosts), "secretName": str()}}:
            assert {f"topogate.{names.NAMESPACE}.svc"} <= set(hosts)
        case {"kind": "ValidatingAdmissionPolicy", "spec": {"validations": [{"expression": str(expression)}]}}:
            assert f"'{names.REQUESTS_PLACEMENT}' in object" in expression  # tests/cluster/test_manifests.py tries it
        case {"kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": str(name)}, "spec": {**binding}}:
            assert binding["policyName"] == name
        case {"kind": "AdmissionConfiguration", "plugins": list(plugins)}:
            assert tuple(one["name"] for one in plugins) == webhook_client.PLUGINS
        case {"kind": "Config", "users": [{"name": str(host), "user": {"client-certificate": str()}}]}:
            assert host == f"topogate.{names.NAMESPACE}.svc"
        case {"kind": "ClusterConfiguration", "apiServer": {"extraArgs": [{"name": str(flag)}]}}:
            assert f"--{flag}=" in webhook_client.WebhookClient(ROOT).flag
        case {"args": ["serve", *options], "volumeMounts": [{"mountPath": str(path)}], "volumes": [{"secret": {}}]}:
            context = main.commands["serve"].make_context("serve", options)
            assert str(context.params["certificates_from"]) == path
        case {"kind": "Kustomization", "resources": list(resources)}:
            for resource in resources:
                assert (ROOT / str(resource).removeprefix("topogate/") / "kustomization.yaml").is_file()
        case {"image": dict()}:  # values of the chart
            jsonschema.validate(merged(yaml.safe_load(values_text()), document), values_schema())  # as Helm does
        case {**fields} if fields.keys() <= fields_of(Policy).keys():
            parse_policy(yaml.safe_dump(document))
        case _:
            raise AssertionError("an example of a kind that no test knows")


@pytest.mark.parametrize(("page", "number", "text"), EXAMPLES, ids=[f"{page}-{number}" for page, number, _ in EXAMPLES])
def test_every_yaml_example_is_accepted(page: str, number: int, text: str) -> None:
    """Whoever copies an example gets what the page promises."""
    documents = list(yaml.safe_load_all(text))
    assert documents
    for document in documents:
        check(document)


@pytest.mark.parametrize("name", ["examples/demo/train.yaml", "README.md"])
def test_the_job_of_the_readme_is_the_job_of_the_demo(name: str) -> None:
    """Both ask for the same."""
    if name == "README.md":
        text = next(block.text for block in pages()[name].blocks if block.language == "yaml")
    else:
        text = (ROOT / name).read_text()
    ask = understood(yaml.safe_load(text)).asked
    assert ask is not None
    assert (ask.count, ask.require, ask.prefer, ask.ranked) == (4, "rack", None, True)


def test_the_rejection_of_the_readme_is_what_the_code_says() -> None:
    """The transcript of the typo is the real one, line by line, in the order of kubectl."""
    errors = understood(yaml.safe_load((ROOT / "examples/demo/typo.yaml").read_text())).errors
    said = [f"* {error.field}: {render(error)}" for error in errors]
    shown = [line for line in pages()["README.md"].text.splitlines() if line.startswith("* metadata")]
    assert shown == said


def test_the_refused_policy_of_the_page_is_what_the_code_says() -> None:
    """`topogate policy check` on the page prints what it prints."""
    text = (
        "mode: enforcing\nqueue: {maxGangPods: 0}\n"
        "topologies: [{name: default, levels: [{name: rack, keys: [example.com/rack]}, {name: rack}]}]\n"
    )
    with pytest.raises(PolicyError) as refused:
        parse_policy(text)
    said = [f"{error.field}: {error.message}" for error in refused.value.errors]
    page = pages()["docs/tasks/admin/policy.md"]
    shown = next(block.text for block in page.blocks if "refused, 4 errors" in block.text)
    assert shown.splitlines()[1:-1] == said


def test_the_rejection_of_the_presets_page_is_what_the_code_says() -> None:
    """The page quotes the error of the demo's typo."""
    page = pages()["docs/tasks/admin/topology-presets.md"]
    quoted = re.findall(r"^\* .+$", page.text, re.MULTILINE)
    assert quoted
    readme = pages()["README.md"].text.splitlines()
    assert all(line in readme for line in quoted)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_example_file_is_accepted(path: Any) -> None:
    """Committed examples are good; the typo is the one that shall be refused."""
    for document in yaml.safe_load_all(path.read_text()):
        if path.name == "typo.yaml":
            assert len(understood(document).errors) > 1
        elif document and document.get("kind") in ("Job", "ConfigMap"):
            check(document)
