"""GPU requests in the templates of every registered kind: translated, checked at their paths, and left as they were."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from engine.api import names
from engine.api.field import path_of
from engine.policy.model import parse_policy
from engine.resources.names import CORE, GPU, KOORDINATOR, NVIDIA, RATIO, Reported
from tests.support.admission import UID, FakeView, Json, apply, review
from tests.support.kinds import FILES, example, workload_of
from webhook.admission.patch import Edits, Path
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate
from webhook.rules.gating import templates

KINDS = [path.stem for path in FILES if path.stem not in ("cronjob", "trainjob", "pod")]


def view() -> FakeView:
    """Nodes report dimensions alone, and the policy rewrites whole GPUs."""
    policy = parse_policy(json.dumps({"gpu": {"translation": "rewrite"}}))
    return FakeView(policy=policy, reported=Reported(frozenset({"cpu", *KOORDINATOR})))


def with_gpus(value: Any, **limits: str) -> Any:
    if isinstance(value, list):
        return [with_gpus(one, **limits) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: with_gpus(one, **limits) for key, one in value.items()}
    for container in found.get("containers", ()):
        container["resources"] = {"limits": dict(limits)}
    return found


def asking(name: str, **limits: str) -> Json:
    raw: Json = with_gpus(copy.deepcopy(example(name)["object"]), **limits)
    raw["metadata"] = {"name": "w", "namespace": "ml", "annotations": {names.REQUIRE: "rack"}}
    return raw


def resumed(raw: Json, path: Path) -> Json:
    edits = Edits(raw)
    edits.put(path, False)
    return edits.document


def resources(raw: Json) -> list[Json]:
    found = [Edits(raw).get(*root, "spec", "containers", 0, "resources") for root in templates(workload_of(raw))]
    return [one for one in found if one is not None]


@pytest.mark.parametrize("name", KINDS)
def test_the_gpus_of_every_template_are_translated_once(name: str) -> None:
    raw = asking(name, **{NVIDIA: "2"})
    created = apply(raw, mutate(review(raw), view(), 0.0))
    wanted = {CORE: "200", RATIO: "200"}
    assert resources(created)
    assert all(one == {"requests": wanted, "limits": wanted} for one in resources(created))
    assert mutate(review(created), view(), 0.0).patch == ()


@pytest.mark.parametrize("name", KINDS)
def test_the_first_manifest_sent_again_leaves_a_live_workload_as_it_is(name: str) -> None:
    raw = asking(name, **{NVIDIA: "2"})
    raw["metadata"]["uid"] = UID
    old = apply(raw, mutate(review(raw), view(), 0.0))
    old["metadata"]["annotations"].pop(names.HELD_BY, None)
    path = workload_of(old).suspend_path
    sent = copy.deepcopy(raw)
    if path is not None:
        old, sent = resumed(old, path), resumed(sent, path)
    changed = apply(sent, mutate(review(sent, old=old), view(), 0.0))
    for root in templates(workload_of(old)):
        assert Edits(changed).get(*root) == Edits(old).get(*root)
    assert validate(review(changed, old=old), view(), 0.0).allowed


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("wrong", "amount"), [(GPU, "150"), (NVIDIA, "1.5")])
def test_what_is_wrong_is_told_at_the_path_of_every_template(name: str, wrong: str, amount: str) -> None:
    raw = asking(name, **{wrong: amount})
    created = apply(raw, mutate(review(raw), view(), 0.0))
    answer = validate(review(created), view(), 0.0)
    assert not answer.allowed
    roots = [root for root in templates(workload_of(asking(name))) if Edits(raw).get(*root, "spec", "containers")]
    limits = f"containers[0].resources.limits[{wrong}]"
    assert {cause.field for cause in answer.causes} == {f"{path_of((*root, 'spec'))}.{limits}" for root in roots}
