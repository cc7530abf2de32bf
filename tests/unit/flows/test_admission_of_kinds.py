"""Both webhooks on every registered kind, by the objects of `tests/data/kinds`: a new kind is covered by itself."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from engine.api import names
from engine.api.field import path_of
from engine.policy.model import parse_policy
from tests.support.admission import FakeView, Json, apply, live, review, with_policy
from tests.support.kinds import FILES, example, workload_of
from webhook.admission.patch import Edits, Path
from webhook.admission.review import Response
from webhook.handlers.mutate import mutate
from webhook.handlers.mutate_workload import HELD_AGAIN, LET_GO, TO_KUEUE
from webhook.handlers.validate import validate
from webhook.rules.gating import templates, without_marks

ASKS = {names.REQUIRE: "rack"}
HELD = {names.HELD_BY: names.HELD_BY_SUSPEND}
DEFAULTS = "namespaces: {defaults: [{namespaces: [ml], annotations: {topogate.dev/prefer-topology: auto}}]}"
FORGED = {names.PLACEMENT: "x", names.REVISION: "9", names.DOMAIN_PATH: "b0/r0/h0", names.RANK: "3", **HELD}


def new(name: str) -> Json:
    """The example object of a kind as its user sends it."""
    raw: Json = copy.deepcopy(example(name)["object"])
    raw.pop("status", None)
    raw["metadata"] = {"name": raw["metadata"]["name"], "namespace": "ml"}
    if (path := workload_of(raw).suspend_path) is not None:
        put(raw, path, False)
    return raw


def put(raw: Json, path: Path, value: Any) -> None:
    """Set a value; null takes the key away."""
    node: Any = raw
    for step in path[:-1]:
        node = node[step] if isinstance(step, int) else node.setdefault(step, {})
    if value is None:
        node.pop(path[-1], None)
    else:
        node[path[-1]] = value


def asking(name: str, **annotations: str) -> Json:
    raw = new(name)
    raw["metadata"]["annotations"] = {**ASKS, **annotations}
    return raw


def with_suspend(raw: Json, value: bool) -> Json:
    path = workload_of(raw).suspend_path
    assert path is not None
    changed = copy.deepcopy(raw)
    put(changed, path, value)
    return changed


def create(raw: Json, view: FakeView | None = None) -> Json:
    return apply(raw, mutate(review(raw), view or FakeView(), 0.0))


def update(old: Json, changed: Json, view: FakeView | None = None) -> tuple[Json, Response]:
    answer = mutate(review(changed, old=old), view or FakeView(), 0.0)
    return apply(changed, answer), answer


def check(raw: Json, old: Json | None = None, view: FakeView | None = None) -> Response:
    return validate(review(raw, old=old), view or FakeView(), 0.0)


def roots(raw: Json) -> list[Path]:
    return list(templates(workload_of(raw)))


def at(raw: Json, path: Path) -> Any:
    return Edits(raw).get(*path)


def is_marked(raw: Json) -> bool:
    """Every template carries the gate and the name of its own pod set."""
    return all(
        (at(raw, (*root, "spec", "schedulingGates")) or []) == [{"name": names.GATE}]
        and (at(raw, (*root, "metadata", "labels")) or {}) == {names.MANAGED: "true", names.POD_SET: pod_set.name}
        for root, pod_set in templates(workload_of(raw)).items()
    )


def is_bare(raw: Json) -> bool:
    """No template carries anything of ours."""
    return all(without_empty(without_marks(at(raw, root))) == without_empty(at(raw, root) or {}) for root in roots(raw))


def without_empty(value: Any) -> Any:
    """What is left of empty mappings and lists when our marks are off again says nothing."""
    if isinstance(value, dict):
        kept = {key: without_empty(one) for key, one in value.items()}
        return {key: one for key, one in kept.items() if one not in ({}, [], None)}
    return [without_empty(one) for one in value] if isinstance(value, list) else value


def running(raw: Json) -> Json:
    """As it is stored when the leader has placed and resumed it."""
    stored = live(create(raw))
    stored["metadata"]["annotations"].pop(names.HELD_BY, None)
    if workload_of(stored).suspend_path is not None:
        stored = with_suspend(stored, False)
    if stored["kind"] in ("Job", "PyTorchJob"):
        stored.setdefault("status", {})["startTime"] = "2026-11-21T08:00:00Z"
    return stored


def _kinds(**wanted: Any) -> Iterator[str]:
    for path in FILES:
        found = workload_of(new(path.stem)) if path.stem != "pod" else None
        if found is not None and all(getattr(found, key) == value for key, value in wanted.items()):
            yield path.stem


GANGS = [*_kinds(handling="placed"), *_kinds(handling="through")]
PLACED = list(_kinds(handling="placed"))
SUSPENDABLE = [name for name in GANGS if workload_of(new(name)).suspendable]
NEVER_SUSPENDED = [name for name in PLACED if workload_of(new(name)).suspend_path is None]


@pytest.mark.parametrize("name", GANGS)
def test_a_workload_that_asks_is_held_and_each_template_names_its_pod_set(name: str) -> None:
    created = create(asking(name))
    found = workload_of(created)
    assert is_marked(created)
    assert found.suspended is (name in SUSPENDABLE)
    assert created["metadata"]["annotations"] == {**ASKS, **(HELD if name in SUSPENDABLE else {})}


@pytest.mark.parametrize("name", GANGS)
def test_nothing_else_of_it_is_touched(name: str) -> None:
    raw = asking(name)
    created = create(raw)
    for root in roots(raw):
        put(created, root, without_marks(at(created, root)))
    created["metadata"]["annotations"].pop(names.HELD_BY, None)
    assert created["metadata"]["labels"].pop(names.REQUESTS_PLACEMENT) == "true"
    if name in SUSPENDABLE:
        created = with_suspend(created, False)
    assert without_empty(created) == without_empty(raw)


@pytest.mark.parametrize("name", GANGS)
def test_our_own_output_gives_no_second_patch(name: str) -> None:
    created = create(asking(name))
    assert mutate(review(created), FakeView(), 0.0).patch == ()


@pytest.mark.parametrize("name", SUSPENDABLE)
def test_one_that_another_webhook_takes_from_us_in_its_create_is_not_left_suspended(name: str) -> None:
    """We are called again, and undo what we did; Kueue resumes what it has in a queue."""
    taken = create(asking(name))
    del taken["metadata"]["annotations"][names.REQUIRE]
    freed = create(taken)
    assert not workload_of(freed).suspended
    assert names.HELD_BY not in freed["metadata"]["annotations"]
    assert is_bare(freed)
    assert mutate(review(freed), FakeView(), 0.0).patch == ()
    queued = create(asking(name))
    queued["metadata"]["labels"][names.KUEUE_QUEUE] = "q"
    answer = mutate(review(queued), FakeView(), 0.0)
    assert workload_of(apply(queued, answer)).suspended
    assert answer.warnings == (TO_KUEUE,)


def test_one_whose_scheduler_another_webhook_sets_is_not_left_suspended() -> None:
    taken = create(asking("jobset"))
    for root in roots(taken):
        put(taken, (*root, "spec", "schedulerName"), "volcano")
    freed = create(taken)
    assert not workload_of(freed).suspended
    assert is_bare(freed)


@pytest.mark.parametrize("name", SUSPENDABLE)
def test_a_workload_that_its_user_suspended_is_marked_and_not_held(name: str) -> None:
    created = create(with_suspend(asking(name), True))
    assert is_marked(created)
    assert workload_of(created).suspended
    assert names.HELD_BY not in created["metadata"]["annotations"]
    assert mutate(review(created), FakeView(), 0.0).patch == ()


@pytest.mark.parametrize("name", PLACED)
def test_what_an_old_manifest_carries_of_ours_is_dropped(name: str) -> None:
    raw = asking(name, **FORGED)
    raw["metadata"]["labels"] = {names.GANG: "g"}
    for root in roots(raw):
        put(raw, (*root, "metadata", "annotations"), dict(FORGED))
        put(raw, (*root, "metadata", "labels"), {names.GANG: "g", names.POD_SET: "forged"})
    created = create(raw)
    assert is_marked(created)
    assert created["metadata"]["labels"] == {names.REQUESTS_PLACEMENT: "true"}
    assert not FORGED.keys() & {key for root in roots(raw) for key in at(created, (*root, "metadata", "annotations"))}


@pytest.mark.parametrize("name", PLACED)
def test_a_workload_that_asks_nothing_loses_what_is_ours(name: str) -> None:
    raw = new(name)
    assert mutate(review(raw), FakeView(), 0.0).patch == ()
    stale = create(asking(name))
    del stale["metadata"]["annotations"][names.REQUIRE]
    created = create(stale)
    assert is_bare(created)
    assert not created["metadata"]["annotations"]


@pytest.mark.parametrize("name", PLACED)
def test_a_request_on_one_template_marks_all_pod_sets_of_the_gang(name: str) -> None:
    raw = new(name)
    put(raw, (*roots(raw)[-1], "metadata", "annotations"), dict(ASKS))
    assert is_marked(create(raw))


@pytest.mark.parametrize("name", SUSPENDABLE)
def test_a_user_who_resumes_a_waiting_gang_gets_held_pods(name: str) -> None:
    old = live(create(asking(name)))
    changed, answer = update(old, with_suspend(old, False))
    assert not workload_of(changed).suspended
    assert names.HELD_BY not in changed["metadata"]["annotations"]
    assert is_marked(changed)
    assert answer.warnings == (LET_GO,)
    assert check(changed, old).allowed


@pytest.mark.parametrize("name", SUSPENDABLE)
def test_a_user_who_resumes_his_own_suspension_is_held_until_there_are_slots(name: str) -> None:
    old = live(create(with_suspend(asking(name), True)))
    changed, answer = update(old, with_suspend(old, False))
    assert workload_of(changed).suspended
    assert changed["metadata"]["annotations"][names.HELD_BY] == "suspend"
    assert answer.warnings == (HELD_AGAIN,)
    assert check(changed, old).allowed


@pytest.mark.parametrize("name", SUSPENDABLE)
def test_one_from_before_the_policy_enforced_is_held_when_its_user_resumes_it(name: str) -> None:
    """It was created under `observe`, without a mark; the templates of an AppWrapper never get one."""
    asks = with_suspend(asking(name), True)
    old = live(create(asks, FakeView(policy=with_policy(mode="observe"))))
    assert old == live(asks)
    changed, _ = update(old, with_suspend(old, False))
    assert workload_of(changed).suspended
    assert check(changed, old).allowed == is_marked(changed) == (name != "appwrapper")


@pytest.mark.parametrize("name", GANGS)
def test_the_same_file_applied_again_changes_nothing(name: str) -> None:
    old = live(create(asking(name)))
    changed = copy.deepcopy(old)
    changed["metadata"]["labels"]["team"] = "a"
    assert update(old, changed)[1].patch == ()
    assert check(changed, old).allowed


@pytest.mark.parametrize("name", GANGS)
def test_a_held_workload_that_asks_no_more_is_freed_at_once(name: str) -> None:
    old = live(create(asking(name)))
    changed = copy.deepcopy(old)
    del changed["metadata"]["annotations"][names.REQUIRE]
    changed, _ = update(old, changed)
    assert not workload_of(changed).suspended
    assert not changed["metadata"]["annotations"]
    # Where no suspension holds it, taking the marks off would roll all of its pods; AppWrapper's webhook refuses it.
    assert is_bare(changed) if name in SUSPENDABLE and name != "appwrapper" else is_marked(changed)
    assert check(changed, old).allowed


@pytest.mark.parametrize("name", PLACED)
def test_a_live_template_that_lost_our_marks_gets_them_back_and_nothing_rolls_out(name: str) -> None:
    old = running(asking(name))
    replaced = copy.deepcopy(old)
    for root in roots(old):
        put(replaced, root, without_marks(at(old, root)))
    changed, _ = update(old, replaced)
    for root in roots(old):
        assert at(changed, root) == at(old, root)
    assert check(changed, old).allowed


@pytest.mark.parametrize("name", NEVER_SUSPENDED)
def test_a_template_that_its_user_changes_anyway_is_marked(name: str) -> None:
    old = live(new(name))
    changed = copy.deepcopy(old)
    changed["metadata"]["annotations"] = dict(ASKS)
    labelled, _ = update(old, changed)
    assert labelled["metadata"].pop("labels") == {names.REQUESTS_PLACEMENT: "true"}
    assert labelled == changed  # its templates are marked in new workloads only
    assert any("its pods are not held" in text for text in check(changed, old).warnings)
    for root in roots(changed):
        put(changed, (*root, "spec", "priorityClassName"), "high")
    changed, _ = update(old, changed)
    assert is_marked(changed)
    answer = check(changed, old)
    assert answer.allowed
    assert not any("its pods are not held" in text for text in answer.warnings)


@pytest.mark.parametrize("name", NEVER_SUSPENDED)
def test_a_template_that_changes_with_the_request_gone_loses_our_marks(name: str) -> None:
    old = live(create(asking(name)))
    changed = copy.deepcopy(old)
    del changed["metadata"]["annotations"][names.REQUIRE]
    for root in roots(changed):
        put(changed, (*root, "spec", "priorityClassName"), "high")
    assert is_bare(update(old, changed)[0])


@pytest.mark.parametrize("name", PLACED)
def test_every_error_stands_at_the_users_own_path_all_at_once(name: str) -> None:
    raw = asking(name)
    raw["metadata"]["annotations"][names.REQUIRE] = "rak"
    where = [path_of((*root, "metadata")) for root in roots(raw)]
    for root in roots(raw):
        put(raw, (*root, "metadata", "annotations"), {names.PREFER: "hots"})
    answer = check(raw)
    assert answer.code == 422
    assert {cause.field for cause in answer.causes} == {
        f"metadata.annotations[{names.REQUIRE}]",
        *(f"{path}.annotations[{names.PREFER}]" for path in where),
    }


@pytest.mark.parametrize("name", PLACED)
def test_our_marks_on_templates_may_not_be_forged_at_update(name: str) -> None:
    old = running(asking(name))
    for root in roots(old):
        changed = copy.deepcopy(old)
        put(changed, (*root, "metadata", "annotations"), {names.REVISION: "7"})
        put(changed, (*root, "spec", "schedulingGates"), None)
        put(changed, (*root, "metadata", "labels", names.GANG), "g")
        answer = check(changed, old)
        where = path_of((*root, "metadata"))
        assert {cause.field for cause in answer.causes} == {
            f"{where}.annotations[{names.REVISION}]",
            f"{where}.labels[{names.GANG}]",
            path_of((*root, "spec", "schedulingGates")),
        }


@pytest.mark.parametrize("name", PLACED)
@pytest.mark.parametrize(
    "hostile", [[], "x", 7, {"spec": 1}, {"metadata": {"labels": [1]}}, {"spec": {"tolerations": 3}}]
)
def test_a_hostile_template_is_refused_only_when_it_asks(name: str, hostile: Any) -> None:
    raw = new(name)
    root = roots(raw)[0]
    put(raw, root, hostile)
    if raw["apiVersion"] in ("batch/v1", "apps/v1"):
        return  # the API server itself refuses those
    assert mutate(review(raw), FakeView(), 0.0).patch == ()
    assert check(raw).allowed
    raw["metadata"]["annotations"] = dict(ASKS)
    assert mutate(review(raw), FakeView(), 0.0).patch == ()
    answer = check(raw)
    assert answer.code == 422
    assert all(cause.field.startswith(path_of(root)) for cause in answer.causes)


def test_a_request_above_a_hundred_thousand_values_is_seen() -> None:
    """An object that nobody can read, with more in it than is searched: what it asks stands in its metadata."""
    raw = asking("jobset")
    raw["spec"] = {"replicatedJobs": "none", "extra": [[1] * 1000 for _ in range(200)]}
    assert not check(raw).allowed


def with_the_cluster_of_another(**annotations: str) -> Json:
    """A RayJob that uses a running RayCluster: its only pod is the submitter, which is in no gang."""
    raw = new("rayjob")
    raw["metadata"]["annotations"] = annotations
    raw["spec"] |= {
        "rayClusterSpec": None,
        "clusterSelector": {"ray.io/cluster": "other"},
        "submitterPodTemplate": {"spec": {"containers": [{"name": "main", "image": "x"}]}},
    }
    return raw


def test_a_request_on_an_object_without_pods_to_place_is_refused() -> None:
    raw = with_the_cluster_of_another(**ASKS)
    assert mutate(review(raw), FakeView(), 0.0).document == raw | {
        "metadata": {**raw["metadata"], "labels": {names.REQUESTS_PLACEMENT: "true"}}
    }
    assert [(cause.field, cause.message) for cause in check(raw).causes] == [
        (
            f"metadata.annotations[{names.REQUIRE}]",
            "Forbidden: this RayJob has no pods to place; remove it, or set it on the object that has the pods",
        )
    ]


def test_a_default_is_not_written_where_there_are_no_pods_to_place() -> None:
    policy = with_policy(namespaces=parse_policy(DEFAULTS).namespaces)
    raw = with_the_cluster_of_another()
    answer = mutate(review(raw), FakeView(policy=policy), 0.0)
    assert (answer.patch, answer.warnings) == ((), ())
