"""Requests that are written into new workloads: by their namespace, and for pod-group labels."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from engine.api import names
from engine.policy.model import parse_policy
from engine.policy.namespaces import policy_warnings
from engine.scheduler.outcome import Never, Placed
from tests.support.admission import UID, FakeView, Json, apply, edited, live, raw_job, review
from tests.support.kinds import example, merged
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate
from webhook.rules.defaults import requests_of

PREFERS = {names.PREFER: "rack"}


def view(*defaults: tuple[list[str], dict[str, str]], **more: Any) -> FakeView:
    rules = [{"namespaces": patterns, "annotations": said} for patterns, said in defaults]
    return FakeView(policy=parse_policy(json.dumps({"namespaces": {"defaults": rules}, **more})))


TEAM = view((["m*"], PREFERS))


def create(job: Json, at: FakeView = TEAM) -> Json:
    return apply(job, mutate(review(job), at, 0.0))


def test_a_quiet_workload_gets_the_requests_of_its_namespace() -> None:
    """Written into it, and held like one that asks itself."""
    job = create(raw_job())
    assert job["metadata"]["annotations"] == {**PREFERS, names.HELD_BY: names.HELD_BY_SUSPEND}
    assert job == create(raw_job(PREFERS), FakeView())


def test_a_second_call_changes_nothing() -> None:
    """Mutated again, the workload asks itself."""
    job = create(raw_job())
    assert mutate(review(job), TEAM, 0.0).patch == ()


@pytest.mark.parametrize("dialects", [["kueue"], ["pod-group"], []])
def test_nothing_is_written_that_the_policy_does_not_read(dialects: list[str]) -> None:
    """Neither a default nor what pod-group labels request: both are annotations of the dialect topogate."""
    at = view((["m*"], PREFERS), annotations={"dialects": dialects})
    grouped = raw_job(template_labels={names.POD_GROUP_NAME: "g", names.POD_GROUP_MIN: "4"})
    for job in (raw_job(), grouped):
        assert mutate(review(job), at, 0.0).patch == ()
        assert mutate(review(job), view((["m*"], PREFERS)), 0.0).patch != ()
    assert at.policy is not None
    told = [text for text in policy_warnings(at.policy) if "dialect topogate" in text]
    assert len(told) == 1 + ("pod-group" in dialects)
    assert [*policy_warnings(parse_policy(json.dumps({"annotations": {"dialects": ["topogate", "pod-group"]}})))] == []


def test_the_first_default_that_matches_counts() -> None:
    """They are not merged: two requests could contradict each other."""
    policy = view((["a", "b-*"], {names.REQUIRE: "rack"}), (["b-*"], PREFERS)).policy
    assert policy is not None
    assert requests_of("a", policy) == requests_of("b-x", policy) == {names.REQUIRE: "rack"}
    assert requests_of("b", policy) == {}


@pytest.mark.parametrize(
    "job",
    [
        raw_job({names.REQUIRE: "rack"}),
        raw_job({names.UNCONSTRAINED: "false"}),
        raw_job({"topogate.dev/misspelt": "x"}),
        raw_job({"kai.scheduler/topology-required-placement": "rack"}),
        raw_job(template={names.REQUIRE: "rack"}),
        raw_job(labels={names.KUEUE_QUEUE: "q"}),
    ],
    ids=["asks", "asks for nothing", "misspelt", "alias", "template", "Kueue's"],
)
def test_who_says_something_himself_gets_nothing_added(job: Json) -> None:
    """Explicit requests win, and so do those who stand aside."""
    assert mutate(review(job), TEAM, 0.0).patch == mutate(review(job), FakeView(), 0.0).patch


def test_other_namespaces_and_modes_get_nothing() -> None:
    """No match, exempt, observed."""
    for at in (
        view((["other-*"], PREFERS)),
        view((["m*"], PREFERS), mode="observe"),
        FakeView(
            policy=parse_policy(
                json.dumps(
                    {"namespaces": {"exempt": ["ml"], "defaults": [{"namespaces": ["ml"], "annotations": PREFERS}]}}
                )
            )
        ),
    ):
        assert mutate(review(raw_job()), at, 0.0).patch == ()


def test_what_exists_is_never_touched() -> None:
    """An UPDATE of a quiet workload adds nothing."""
    old = live(raw_job())
    new = copy.deepcopy(old)
    new["spec"]["parallelism"] = 3
    assert mutate(review(new, old=old), TEAM, 0.0).patch == ()


def test_a_forged_mark_is_no_request() -> None:
    """It is dropped, the default is written as for anybody else, and a second call changes nothing."""
    forged = raw_job(template_labels={names.MANAGED: "yes"})
    once = apply(forged, mutate(review(forged), TEAM, 0.0))
    assert once == apply(raw_job(), mutate(review(raw_job()), TEAM, 0.0)) | {"metadata": once["metadata"]}
    assert once["metadata"]["annotations"].items() >= PREFERS.items()
    assert mutate(review(once), TEAM, 0.0).patch == ()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("CronJob", {"jobTemplate": {"spec": {"template": {"spec": {"containers": []}}}}}),
        ("Job", {"parallelism": -1, "template": {"spec": {"containers": []}}}),
    ],
)
def test_what_is_not_placed_or_cannot_be_read_gets_nothing(kind: str, body: Json) -> None:
    """Hints and malformed objects are left to who judges them."""
    raw = {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "x", "namespace": "ml"}, "spec": body}
    assert mutate(review(raw), TEAM, 0.0).patch == ()


@pytest.mark.parametrize(
    ("said", "job", "told"),
    [
        ({names.PREFER: "zone"}, raw_job(), "annotations[topogate.dev/prefer-topology]: Unsupported value: "),
        ({names.REQUIRE: "rack", names.PREFER: "block"}, raw_job(), "annotations[topogate.dev/prefer-topology]: "),
        (PREFERS, raw_job(parallelism=20_000, completions=20_000), "spec.parallelism: Invalid value: "),
    ],
    ids=["a level that is not there", "a contradiction", "a gang above the limit"],
)
def test_a_default_that_cannot_be_met_is_left_out(said: dict[str, str], job: Json, told: str) -> None:
    """It never stands against somebody who asked for nothing: the workload is made as it is, and a warning says why."""
    at = view((["ml"], said))
    answer = mutate(review(job), at, 0.0)
    assert answer.patch == ()
    assert len(answer.warnings) == 1
    assert answer.warnings[0].startswith(f"topogate: the policy's default is not applied: {told}")
    assert validate(review(apply(job, answer)), at, 0.0).allowed


def test_a_default_that_never_fits_is_no_reason_to_refuse() -> None:
    """Not even where the policy refuses what fits nowhere: nobody asked for it."""
    never = Never("GangTooLarge", "4 pods must share one rack, but the largest rack has 3")
    at = view((["ml"], {names.REQUIRE: "rack"}), neverFits="deny")
    at.outcome = never
    job = create(raw_job(), at)
    answer = validate(review(job), at, 0.0)
    assert (answer.allowed, len(answer.warnings)) == (True, 1)
    assert not validate(review(raw_job({names.REQUIRE: "rack", names.UNCONSTRAINED: "false"})), at, 0.0).allowed


def test_a_refusal_for_a_default_says_who_asked() -> None:
    """A default that was met when the workload was made and is not any more at its change."""
    at = view((["ml"], PREFERS))
    old = live(create(raw_job(), at))
    answer = validate(review(edited(old, parallelism=20_000, completions=20_000), old=old), at, 0.0)
    assert not answer.allowed
    assert answer.message.endswith(
        "; the policy sets this for the whole namespace (namespaces.defaults): tell the cluster's admin"
    )


GROUP = {names.POD_GROUP_NAME: "g", names.POD_GROUP_MIN: "2"}


@pytest.mark.parametrize("labelled", [{"labels": GROUP}, {"template_labels": GROUP}], ids=["workload", "template"])
def test_pod_group_labels_ask_for_all_or_nothing(labelled: Json) -> None:
    """On no level; written down, so that our own labels on the template do not hide who asked. The user's stay."""
    job = create(raw_job(**labelled), FakeView())
    assert job["metadata"]["annotations"] == {
        names.UNCONSTRAINED: "true",
        names.POD_GROUP: "g",
        names.MIN_AVAILABLE: "2",
        names.HELD_BY: names.HELD_BY_SUSPEND,
    }
    told = {**job["metadata"].get("labels", {}), **job["spec"]["template"]["metadata"]["labels"]}
    assert told.items() >= GROUP.items()
    assert mutate(review(job), FakeView(), 0.0).patch == ()


def test_pod_group_labels_go_before_the_namespace_and_after_requests() -> None:
    """Who asks by labels asked himself; who asks for a level beside them gets that."""
    assert names.PREFER not in create(raw_job(labels=GROUP))["metadata"]["annotations"]
    asking = create(raw_job({names.REQUIRE: "rack"}, labels=GROUP))
    assert names.UNCONSTRAINED not in asking["metadata"]["annotations"]


@pytest.mark.parametrize("flag", names.FLAGS)
@pytest.mark.parametrize("labelled", [{"labels": GROUP}, {"template_labels": GROUP}], ids=["workload", "template"])
def test_pod_group_labels_are_taken_back_by_a_flag_anywhere(labelled: Json, flag: str) -> None:
    """On the workload or its template, whatever dialects are read: the match conditions know no policy."""
    for off in ("{}", "annotations: {dialects: [topogate, pod-group]}"):
        view = FakeView(policy=parse_policy(off))
        for job in (raw_job({flag: "false"}, **labelled), raw_job(template={flag: "false"}, **labelled)):
            assert mutate(review(job), view, 0.0).patch == ()
        assert mutate(review(raw_job({flag: "x"}, **labelled)), view, 0.0).allowed


def test_pod_group_labels_say_nothing_where_they_are_no_dialect() -> None:
    """Turned off by the policy; and the labels that we put on beside our own are no request."""
    off = FakeView(policy=parse_policy("annotations: {dialects: [topogate]}"))
    assert mutate(review(raw_job(labels=GROUP)), off, 0.0).patch == ()
    job = create(raw_job(template_labels={**GROUP, names.MANAGED: "true"}), FakeView())
    assert names.UNCONSTRAINED not in job["metadata"].get("annotations", {})


@pytest.mark.parametrize("where", ["labels", "template_labels"])
@pytest.mark.parametrize("mark", [names.MANAGED, names.GANG])
def test_copied_marks_go_with_the_pod_group_beside_them(where: str, mark: str) -> None:
    """A label that is no request beside a mark becomes none when the mark goes: a second call finds nothing to do."""
    job = create(raw_job(**{where: {**GROUP, mark: "x", "app": "a"}}), FakeView())
    place = job["metadata"] if where == "labels" else job["spec"]["template"]["metadata"]
    assert place["labels"] == {"app": "a"}
    assert not job["spec"].get("suspend")
    assert mutate(review(job), FakeView(), 0.0).patch == ()


@pytest.mark.parametrize(
    ("ps", "worker", "least"), [("3", "3", "3"), (None, "3", "3"), ("2", "3", "3"), ("x", "3", "3"), ("3", "9", "9")]
)
def test_the_minimum_on_several_templates_is_that_of_the_whole_group(
    ps: str | None, worker: str, least: str | None
) -> None:
    """Of different numbers the largest counts, as each pod of the group waits for its own."""

    def replicas(count: int, said: str | None) -> Json:
        group = {names.POD_GROUP_NAME: "g"} | ({names.POD_GROUP_MIN: said} if said is not None else {})
        return {"replicas": count, "template": {"metadata": {"labels": group}, "spec": {"containers": []}}}

    raw = merged(
        copy.deepcopy(example("tfjob")["object"]),
        {"spec": {"tfReplicaSpecs": {"Chief": None, "PS": replicas(1, ps), "Worker": replicas(4, worker)}}},
    )
    raw["metadata"] = {"name": "tf", "namespace": "ml", "uid": UID}
    assert create(raw, FakeView())["metadata"]["annotations"].get(names.MIN_AVAILABLE) == least


def test_a_minimum_above_the_pods_of_a_job_waits_for_others_of_its_group() -> None:
    """As with coscheduling; its user is told, as there may be none."""
    job = create(raw_job(labels={**GROUP, names.POD_GROUP_MIN: "9"}), FakeView())
    assert job["metadata"]["annotations"][names.MIN_AVAILABLE] == "9"
    answer = validate(review(live(job)), FakeView(outcome=Placed((), {}, True, "placed", None, None)), 0.0)
    assert answer.warnings == (
        "topogate: its pod group starts with 9 pods and this Job has 4 pods: it waits for others",
    )


def test_the_label_of_a_pod_group_object_asks_for_its_group() -> None:
    """The object says the minimum, when it is there."""
    annotations = create(raw_job(labels={names.SCHEDULER_PLUGINS_POD_GROUP: "g"}), FakeView())["metadata"][
        "annotations"
    ]
    assert (annotations[names.POD_GROUP], names.MIN_AVAILABLE in annotations) == ("g", False)


def test_a_kind_whose_replicas_are_gangs_is_in_no_group() -> None:
    """Its labels ask for gangs, as they would without a minimum."""
    raw = copy.deepcopy(example("leaderworkerset")["object"])
    raw["metadata"] = {"name": "w", "namespace": "ml", "uid": UID, "labels": GROUP}
    annotations = create(raw, FakeView())["metadata"]["annotations"]
    assert (annotations[names.UNCONSTRAINED], names.POD_GROUP in annotations) == ("true", False)


@pytest.mark.parametrize("least", ["0", "-1", "x", ""])
def test_a_minimum_that_is_none_is_all_pods(least: str) -> None:
    """What a label cannot mean is passed over: it is another system's."""
    job = create(raw_job(labels={**GROUP, names.POD_GROUP_MIN: least}), FakeView())
    assert job["metadata"]["annotations"][names.UNCONSTRAINED] == "true"
    assert names.MIN_AVAILABLE not in job["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({names.POD_GROUP_NAME: "", names.POD_GROUP_MIN: "4"}, {}),
        ({names.SCHEDULER_PLUGINS_POD_GROUP: ""}, {}),
        ({}, {names.KOORDINATOR_GANG_NAME: "", names.KOORDINATOR_GANG_MIN: "4"}),
    ],
)
def test_a_pod_group_without_a_name_is_none(labels: dict[str, str], annotations: dict[str, str]) -> None:
    """So it is for the schedulers that these keys are for; a chart writes them where no group is set."""
    for job in (raw_job(annotations, labels=labels), raw_job({}, template=annotations, template_labels=labels)):
        assert mutate(review(job), FakeView(), 0.0).patch == ()
        assert validate(review(job), FakeView(), 0.0).warnings == ()
        assert create(job)["metadata"]["annotations"][names.PREFER] == "rack"  # its namespace's default


def test_an_empty_name_of_a_pod_group_object_says_nothing_beside_a_group_of_another_system() -> None:
    """Koordinator's group without a minimum is all of the workload's pods."""
    job = raw_job({names.KOORDINATOR_GANG_NAME: "g"}, labels={names.SCHEDULER_PLUGINS_POD_GROUP: ""})
    annotations = create(job, FakeView())["metadata"]["annotations"]
    assert (annotations[names.UNCONSTRAINED], names.POD_GROUP in annotations) == ("true", False)
