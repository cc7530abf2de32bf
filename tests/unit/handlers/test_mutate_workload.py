"""`/mutate` on Jobs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from engine.api import names
from engine.api.workload import Workload
from tests.support.admission import (
    US,
    FakeView,
    Json,
    apply,
    edited,
    gang_view,
    live,
    rack_job,
    raw_job,
    raw_pod,
    review,
    with_policy,
    workload,
)
from webhook.admission.review import BadReview, Response, Unavailable
from webhook.handlers.mutate import mutate
from webhook.handlers.mutate_workload import HELD_AGAIN, LET_GO, TO_KUEUE
from webhook.handlers.validate import validate

HELD = {names.HELD_BY: names.HELD_BY_SUSPEND}
LABEL = {names.REQUESTS_PLACEMENT: "true"}
OURS = {
    names.PLACEMENT: "job-x",
    names.REVISION: "9",
    names.DOMAIN_PATH: "b0/r0/h0",
    names.RANK: "3",
    names.HELD_BY: "suspend",
}


def create(job: Json, view: FakeView | None = None, **more: Any) -> Json:
    return apply(job, mutate(review(job, **more), view or FakeView(), 0.0))


def update(old: Json, new: Json, view: FakeView | None = None, **more: Any) -> tuple[Json, Response]:
    answer = mutate(review(new, old=old, **more), view or FakeView(), 0.0)
    return apply(new, answer), answer


def held_job(**more: Any) -> Json:
    """An annotated Job as it is stored after its CREATE."""
    return live(create(rack_job(**more)))


def template(job: Json) -> Json:
    found: Json = job["spec"]["template"]
    return found


def marks(job: Json) -> tuple[list[str], Json]:
    spec, metadata = template(job)["spec"], template(job)["metadata"]
    return [gate["name"] for gate in spec.get("schedulingGates") or []], metadata.get("labels") or {}


def is_marked(job: Json) -> bool:
    gates, labels = marks(job)
    return gates == [names.GATE] and labels == {names.MANAGED: "true", names.POD_SET: "main"}


def as_workload(job: Json) -> Workload:
    return workload(job)


def test_a_job_that_asks_is_suspended_by_us_and_its_template_is_marked() -> None:
    job = create(rack_job())
    assert job["spec"]["suspend"] is True
    assert job["metadata"]["annotations"] == {names.REQUIRE: "rack", **HELD}
    assert is_marked(job)


def test_the_patch_of_a_new_job_is_small_and_touches_nothing_else() -> None:
    job = rack_job(pod_spec={"containers": [{"name": "main", "image": "x"}]})
    operations = [(one["op"], one["path"]) for one in mutate(review(job), FakeView(), 0.0).patch]
    assert operations == [
        ("replace", "/spec/suspend"),
        ("add", "/metadata/annotations/topogate.dev~1held-by"),
        ("add", "/spec/template/metadata/labels"),
        ("add", "/spec/template/metadata/labels/topogate.dev~1managed"),
        ("add", "/spec/template/metadata/labels/topogate.dev~1pod-set"),
        ("add", "/spec/template/spec/schedulingGates"),
        ("add", "/metadata/labels"),
        ("add", "/metadata/labels/admission.topogate.dev~1requests-placement"),
    ]


def test_a_job_with_no_metadata_on_its_template_gets_it() -> None:
    job = rack_job()
    del job["spec"]["template"]["metadata"]
    assert is_marked(create(job))


def test_gates_and_labels_of_others_stay() -> None:
    job = rack_job(pod_spec={"schedulingGates": [{"name": "example.com/quota"}]})
    template(job)["metadata"]["labels"] = {"app": "train"}
    gates, labels = marks(create(job))
    assert gates == ["example.com/quota", names.GATE]
    assert labels == {"app": "train", names.MANAGED: "true", names.POD_SET: "main"}


def test_our_own_output_gives_no_second_patch() -> None:
    once = create(rack_job())
    assert mutate(review(once), FakeView(), 0.0).patch == ()


def test_a_job_that_its_user_suspended_is_marked_but_not_held() -> None:
    job = create(rack_job(suspend=True))
    assert job["spec"]["suspend"] is True
    assert names.HELD_BY not in job["metadata"]["annotations"]
    assert is_marked(job)


def test_a_held_by_that_its_user_sent_is_dropped() -> None:
    job = create(raw_job({names.REQUIRE: "rack", **HELD}, suspend=True))
    assert names.HELD_BY not in job["metadata"]["annotations"]


def test_what_an_old_manifest_carries_of_ours_is_dropped() -> None:
    job = raw_job({names.REQUIRE: "rack", **OURS}, template=OURS, labels={names.GANG: "g", names.MANAGED: "x"})
    template(job)["metadata"]["labels"] = {names.GANG: "forged", names.MANAGED: "false", names.POD_SET: "x"}
    job = create(job)
    assert job["metadata"]["annotations"] == {names.REQUIRE: "rack", **HELD}
    assert job["metadata"]["labels"] == LABEL
    assert template(job)["metadata"]["annotations"].keys() == {names.GPU_REQUEST}
    assert is_marked(job)


def test_a_job_that_asks_nothing_loses_what_is_ours_and_keeps_the_rest() -> None:
    job = raw_job({"team": "a", **OURS}, pod_spec={"schedulingGates": [{"name": names.GATE}, {"name": "other"}]})
    template(job)["metadata"]["labels"] = {names.MANAGED: "true", "app": "x"}
    job = create(job)
    assert job["spec"]["suspend"] is False
    assert job["metadata"]["annotations"] == {"team": "a"}
    assert marks(job) == (["other"], {"app": "x"})


def test_a_job_that_has_nothing_of_ours_is_not_touched() -> None:
    assert mutate(review(raw_job()), FakeView(), 0.0).patch == ()


def test_a_job_with_an_invalid_request_is_left_to_validation() -> None:
    job = raw_job({names.REQUIRE: "rak"}, pod_spec={"containers": [{"name": "main", "image": "x"}]})
    assert create(job) == {**job, "metadata": {**job["metadata"], "labels": LABEL}}


def test_a_job_that_kueue_manages_is_not_held() -> None:
    assert mutate(review(rack_job(labels={names.KUEUE_QUEUE: "q"})), FakeView(), 0.0).patch == ()


@pytest.mark.parametrize(("kind", "held"), [("CronJob", True), ("JobSet", False), ("Workflow", False)])
def test_of_owned_jobs_only_those_of_a_cronjob_are_suspended(kind: str, held: bool) -> None:
    job = rack_job()
    job["metadata"]["ownerReferences"] = [
        {"apiVersion": "x/v1", "kind": kind, "name": "o", "uid": "u", "controller": True}
    ]
    job = create(job)
    assert job["spec"]["suspend"] is held
    assert (names.HELD_BY in job["metadata"]["annotations"]) is held
    assert is_marked(job)


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_policy_that_does_not_enforce_patches_nothing(mode: str) -> None:
    assert mutate(review(rack_job()), FakeView(policy=with_policy(mode=mode)), 0.0).patch == ()


def test_without_a_policy_there_is_no_answer() -> None:
    with pytest.raises(Unavailable):
        mutate(review(rack_job()), FakeView(policy=None), 0.0)


def test_our_own_requests_are_left_alone() -> None:
    assert mutate(review(rack_job(), user=US), FakeView(), 0.0).patch == ()


def test_a_dry_run_is_answered_like_the_real_thing() -> None:
    assert create(rack_job(), dryRun=True) == create(rack_job())


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "CronJob"])
def test_other_kinds_pass(kind: str) -> None:
    assert mutate(review(rack_job() | {"kind": kind}), FakeView(), 0.0).patch == ()


def test_subresources_and_deletions_pass() -> None:
    assert mutate(review(rack_job(), subResource="status"), FakeView(), 0.0).patch == ()
    assert mutate(review(None, operation="DELETE"), FakeView(), 0.0).patch == ()


@pytest.mark.parametrize(
    "job",
    [
        None,
        [],
        "job",
        {"spec": "x"},
        {"metadata": {"annotations": []}, "spec": {}},
        {"metadata": {"annotations": {"a": 1}}},
        {"spec": {"parallelism": "four"}},
        {"spec": {"template": {"spec": {"schedulingGates": [1]}}}},
    ],
)
def test_a_malformed_job_is_a_bad_review(job: Any) -> None:
    with pytest.raises(BadReview) as fault:
        mutate(review(job), FakeView(), 0.0)
    assert fault.value.status == 400


@pytest.mark.parametrize("count", [-5, 2**40])
def test_an_absurd_count_is_left_to_the_api_server(count: int) -> None:
    assert mutate(review(rack_job(parallelism=count)), FakeView(), 0.0).patch == ()


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (
            raw_job({names.REQUIRE: "rack", **OURS}, template={names.RANK: "1"}, labels={names.GANG: "g"}),
            "domain, gang, held-by, placement, rank, revision",
        ),
        (
            raw_job(template_labels={names.MANAGED: "true"}, pod_spec={"schedulingGates": [{"name": names.GATE}]}),
            "managed, the gate",
        ),
    ],
    ids=["of a gang", "of what asks for nothing"],
)
def test_marks_of_ours_that_somebody_else_wrote_are_named_when_they_are_taken_off(job: Json, told: str) -> None:
    """Also an old manifest's: the second call for one CREATE, and what carries no mark, are told nothing."""
    answer = mutate(review(job), FakeView(), 0.0)
    assert answer.warnings == (f"topogate: removed, as only topogate sets them: {told}",)
    again = mutate(review(apply(job, answer)), FakeView(), 0.0)
    assert (again.patch, again.warnings) == ((), ())


def test_a_suspended_gang_that_is_made_anew_is_told_that_its_user_suspended_it() -> None:
    """A `held-by` beside a suspension of the user's own is no mark of ours."""
    job = raw_job({names.REQUIRE: "rack", names.HELD_BY: "suspend"}, suspend=True)
    assert mutate(review(job), FakeView(), 0.0).warnings == ("topogate: removed, as only topogate sets them: held-by",)


def test_a_user_who_resumes_a_waiting_gang_gets_held_pods_and_is_not_suspended_again() -> None:
    old = held_job()
    new, answer = update(old, edited(old, suspend=False))
    assert new["spec"]["suspend"] is False
    assert names.HELD_BY not in new["metadata"]["annotations"]
    assert is_marked(new)
    assert answer.warnings == (LET_GO,)


def test_a_user_who_resumes_a_held_gang_that_has_slots_already_is_told_nothing() -> None:
    """As the leader is about to: its pods start at once."""
    old = held_job()
    new, answer = update(old, edited(old, suspend=False), gang_view(old, ["b0-r0-h0"]))
    assert new["spec"]["suspend"] is False
    assert answer.warnings == ()


def test_a_user_who_resumes_his_own_suspension_is_held_until_there_are_slots() -> None:
    old = held_job(suspend=True)
    new, answer = update(old, edited(old, suspend=False), gang_view(old))
    assert new["spec"]["suspend"] is True
    assert new["metadata"]["annotations"][names.HELD_BY] == "suspend"
    assert answer.warnings == (HELD_AGAIN,)


def test_a_user_who_resumes_his_own_suspension_is_held_while_the_gang_still_has_its_slots() -> None:
    """The leader takes them when it sees the suspension, perhaps at this moment: no pod may be pinned to them."""
    old = held_job(suspend=True)
    new, answer = update(old, edited(old, suspend=False), gang_view(old, ["b0-r0-h0"]))
    assert new["spec"]["suspend"] is True
    assert new["metadata"]["annotations"][names.HELD_BY] == "suspend"
    assert answer.warnings == (HELD_AGAIN,)


def test_a_user_who_resumes_a_gang_with_slots_for_another_request_is_held_until_it_is_planned_again() -> None:
    """Its slots go as soon as the leader sees the suspension; resumed before that, it would start on them."""
    old = held_job(suspend=True)
    new = edited(old, suspend=False)
    new["metadata"]["annotations"][names.REQUIRE] = "block"
    new, answer = update(old, new, gang_view(old, ["b0-r0-h0"]))
    assert new["spec"]["suspend"] is True
    assert new["metadata"]["annotations"][names.HELD_BY] == "suspend"
    assert answer.warnings == (HELD_AGAIN,)


def test_the_second_call_of_that_update_gives_no_patch() -> None:
    old = held_job(suspend=True)
    new, _ = update(old, edited(old, suspend=False), gang_view(old))
    assert update(old, new, gang_view(old))[1].patch == ()


def test_a_user_who_suspends_a_running_gang_owns_the_suspension() -> None:
    old = live(edited(create(rack_job()), suspend=False), started=True)
    new = edited(old, suspend=True)
    assert old["metadata"]["annotations"][names.HELD_BY] == "suspend"
    new, _ = update(old, new)
    assert names.HELD_BY not in new["metadata"]["annotations"]


def test_a_running_jobs_template_is_never_edited() -> None:
    old = live(rack_job(labels=LABEL), started=True)
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"a": "b", **LABEL}
    assert update(old, new)[1].patch == ()


def test_a_suspended_job_that_has_started_keeps_its_template() -> None:
    old = live(edited(rack_job(labels=LABEL), suspend=True), started=True)
    assert update(old, edited(old, parallelism=3))[1].patch == ()


def test_a_suspended_job_that_begins_to_ask_is_marked() -> None:
    old = live(raw_job(suspend=True))
    new = copy.deepcopy(old)
    new["metadata"]["annotations"] = {names.PREFER: "rack"}
    assert is_marked(update(old, new)[0])


def test_a_replaced_template_gets_our_marks_and_revision_back() -> None:
    old = held_job()
    template(old)["metadata"]["annotations"] = {names.PLACEMENT: "job-x", names.REVISION: "2"}
    new = copy.deepcopy(old)
    new["spec"]["template"] = copy.deepcopy(rack_job()["spec"]["template"])
    new = update(old, new)[0]
    assert is_marked(new)
    assert template(new)["metadata"]["annotations"] == {names.PLACEMENT: "job-x", names.REVISION: "2"}


def test_a_held_job_that_asks_no_more_is_freed_at_once() -> None:
    old = held_job()
    new = copy.deepcopy(old)
    del new["metadata"]["annotations"][names.REQUIRE]
    new = update(old, new)[0]
    assert new["spec"]["suspend"] is False
    assert new["metadata"]["annotations"] == {}
    assert marks(new) == ([], {})


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_a_held_job_that_gets_a_queue_of_kueues_stays_suspended_for_kueue(part: str, asks: bool) -> None:
    """It would start anywhere, without Kueue's quota; Kueue lets nobody queue what runs. Its request may go, too."""
    old = held_job()
    new = copy.deepcopy(old)
    new["metadata"].setdefault(part, {})[names.KUEUE_QUEUE] = "q"
    if not asks:
        del new["metadata"]["annotations"][names.REQUIRE]
    new, answer = update(old, new)
    assert new["spec"]["suspend"] is True
    assert (names.HELD_BY in new["metadata"]["annotations"], marks(new)) == (False, ([], {}))
    assert answer.warnings == (TO_KUEUE,)
    assert validate(review(new, old=old), gang_view(old), 0.0).allowed


def test_a_held_job_whose_pods_alone_get_a_queue_of_kueues_is_resumed() -> None:
    """Kueue resumes what has the queue itself, never a Job for its template's sake."""
    old = held_job()
    new = copy.deepcopy(old)
    template(new)["metadata"]["labels"][names.KUEUE_QUEUE] = "q"
    new, answer = update(old, new)
    assert new["spec"]["suspend"] is False
    assert names.HELD_BY not in new["metadata"]["annotations"]
    assert answer.warnings == ()


def test_a_held_job_that_is_resumed_and_asks_no_more_keeps_nothing_of_ours() -> None:
    old = held_job()
    new = edited(old, suspend=False)
    del new["metadata"]["annotations"][names.REQUIRE]
    new = update(old, new)[0]
    assert new["metadata"]["annotations"] == {}
    assert marks(new) == ([], {})


def test_a_held_job_is_given_up_even_when_its_request_is_invalid_by_now() -> None:
    old = live(raw_job({names.REQUIRE: "gone", **HELD}, suspend=True))
    new, _ = update(old, edited(old, suspend=False))
    assert new["metadata"]["annotations"] == {names.REQUIRE: "gone"}


def test_a_job_that_its_user_suspended_stays_so_when_it_asks_no_more() -> None:
    old = held_job(suspend=True)
    new = copy.deepcopy(old)
    del new["metadata"]["annotations"][names.REQUIRE]
    new = update(old, new)[0]
    assert new["spec"]["suspend"] is True
    assert marks(new) == ([], {})


def test_an_update_of_a_job_under_deletion_is_left_alone() -> None:
    old = held_job()
    new = edited(old, suspend=False)
    new["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    assert update(old, new)[1].patch == ()


def test_a_held_job_applied_again_is_not_patched() -> None:
    old = held_job()
    new = copy.deepcopy(old)
    new["metadata"]["labels"]["team"] = "a"
    assert update(old, new)[1].patch == ()


def test_the_leaders_resume_is_left_alone() -> None:
    old = held_job()
    assert update(old, edited(old, suspend=False), user=US)[1].patch == ()


def test_a_pod_update_is_nothing_to_change() -> None:
    pod = raw_pod()
    assert mutate(review(pod, old=pod), FakeView(), 0.0).patch == ()


def test_a_request_that_a_later_policy_made_invalid_keeps_its_gate() -> None:
    """`kubectl replace` of the file: `/validate` lets the known error pass, so the marks must come back."""
    sent = raw_job({names.REQUIRE: "gone"}, suspend=None)
    stored = live(apply(rack_job(), mutate(review(rack_job()), FakeView(), 0.0)))
    stored["metadata"]["annotations"][names.REQUIRE] = "gone"
    asked = review(sent, old=stored)
    response = mutate(asked, FakeView(), 0.0)
    again = apply(sent, response)
    assert again["spec"]["template"] == stored["spec"]["template"]
    assert validate(review(again, old=stored), FakeView(), 0.0).allowed
