"""`/validate` on Jobs."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.objects import Taint
from engine.api.placement import PodSetPlan, Slot
from engine.api.text import MAX_WARNING
from engine.api.workload import ReservationKey
from engine.gang.request import PlacementRequest
from engine.policy.model import parse_policy
from engine.preemption.preempt import Preemption
from engine.preemption.victims import Victim
from engine.scheduler.outcome import Never, Outcome, Placed, Waits
from tests.support.admission import (
    NODES,
    US,
    FakeView,
    Json,
    apply,
    edited,
    gang_view,
    gpu_container,
    live,
    rack_job,
    raw_job,
    review,
    with_policy,
    workload,
)
from webhook.admission.review import BadReview, Response, Unavailable
from webhook.handlers.mutate import mutate
from webhook.handlers.mutate_workload import STAYS, TAKEN_OVER
from webhook.handlers.validate import validate

HOSTS = ("b0-r0-h0", "b0-r0-h1", "b0-r0-h2", "b0-r0-h3")
PLACED = Placed(
    pod_sets=(
        PodSetPlan("main", tuple(Slot(("b0", "b0-r0", host), 1, ((rank, rank),)) for rank, host in enumerate(HOSTS))),
    ),
    domains_used={"block": 1, "rack": 1, "host": 4},
    proven=True,
    message="placed 4 pods in b0 / b0-r0 (4 hosts)",
    require="rack",
    prefer=None,
)
WAITS = Waits("Fragmented", "needs 4 hosts in one rack; best is b0-r0 with 3 (4 racks looked at)")
NEVER = Never("GangTooLarge", "4 pods must share one rack, but the largest rack has 3")


def check(job: Any, view: FakeView | None = None, **more: Any) -> Response:
    return validate(review(job, **more), view or FakeView(), 0.0)


def admitted(old: Json, new: Json, view: FakeView, **more: Any) -> Response:
    """The answer to an UPDATE after `/mutate` has been there."""
    final = apply(new, mutate(review(new, old=old, **more), view, 0.0))
    return validate(review(final, old=old, **more), view, 0.0)


def stored(job: Json, view: FakeView | None = None) -> Json:
    return live(apply(job, mutate(review(job), view or FakeView(), 0.0)))


def running(job: Json) -> Json:
    """A gang that the leader has placed and resumed."""
    job = stored(job)
    job["spec"]["suspend"] = False
    del job["metadata"]["annotations"][names.HELD_BY]
    metadata = job["spec"]["template"]["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), names.PLACEMENT: "job-x", names.REVISION: "1"}
    job["status"]["startTime"] = "2026-11-21T08:00:00Z"
    return job


def annotated(job: Json, **changes: str | None) -> Json:
    """The Job with annotations set or, for None, taken off; keys without the prefix, `_` for `-`."""
    new = copy.deepcopy(job)
    annotations = new["metadata"].setdefault("annotations", {})
    for short, value in changes.items():
        key = f"{names.PREFIX}{short.replace('_', '-')}"
        if value is None:
            annotations.pop(key, None)
        else:
            annotations[key] = value
    return new


def reasons(answer: Response) -> list[str]:
    return [cause.field for cause in answer.causes]


def test_a_good_job_passes() -> None:
    assert check(stored(rack_job())) == Response(allowed=True)


def test_a_typo_is_refused_with_every_error_on_its_own_line() -> None:
    job = raw_job({names.REQUIRE: "rak", "topogate.dev/prefer-topolgy": "rack"}, template={names.RELAX_AFTER: "soon"})
    answer = check(job)
    assert (answer.allowed, answer.code, answer.reason) == (False, 422, "Invalid")
    assert [(cause.field, cause.message) for cause in answer.causes] == [
        (
            f"metadata.annotations[{'topogate.dev/prefer-topolgy'}]",
            "Forbidden: no such annotation; did you mean topogate.dev/prefer-topology?",
        ),
        (
            f"metadata.annotations[{names.REQUIRE}]",
            'Unsupported value: "rak": allowed: block, rack, host, auto; did you mean "rack"?',
        ),
        (
            f"spec.template.metadata.annotations[{names.RELAX_AFTER}]",
            'Invalid value: "soon": must be a duration such as 30s, 10m or 1h30m',
        ),
    ]


def test_hostile_values_are_escaped_in_the_answer() -> None:
    answer = check(raw_job({names.REQUIRE: 'ra"k\x1b[31m\n' + "x" * 1_000_000}))
    assert "\x1b" not in answer.message
    assert "\n" not in answer.message
    assert len(answer.message) < 500


def test_a_gang_above_the_limit_is_forbidden_by_policy() -> None:
    answer = check(rack_job(completionMode="NonIndexed", completions=None, parallelism=10**9))
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert "at most 10,000 pods" in answer.message
    assert answer.causes[0].reason == "GangLimitExceeded"


def test_a_request_that_is_added_later_is_bounded_as_at_creation() -> None:
    """Else a suspended Job would be created without its request first, and get it afterwards."""
    many = {"parallelism": 20_000, "completions": 20_000, "suspend": True}
    answer = admitted(live(raw_job(**many)), live(rack_job(**many)), FakeView())
    assert answer.causes[0].reason == "GangLimitExceeded"
    held = live(rack_job(**many))
    assert admitted(held, edited(held, parallelism=19_000), FakeView()).allowed


@pytest.mark.parametrize("count", [-5, 2**40])
def test_an_absurd_count_is_a_field_error(count: int) -> None:
    answer = check(rack_job(parallelism=count))
    assert answer.code == 422
    assert reasons(answer) == ["spec.parallelism"]


def test_a_negative_request_is_a_field_error() -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": "-1"}}}
    answer = check(rack_job(pod_spec={"containers": [container]}))
    assert answer.code == 422
    assert answer.causes[0].field.startswith("spec.template.spec.containers[0]")


def test_a_malformed_job_is_a_bad_review() -> None:
    with pytest.raises(BadReview):
        check({"spec": {"parallelism": "x"}})


def test_a_job_that_asks_nothing_passes_without_a_forecast() -> None:
    view = FakeView(outcome=WAITS)
    assert check(raw_job(), view) == Response(allowed=True)
    assert view.forecasts == 0


def test_what_another_system_has_passes_even_with_a_wrong_request() -> None:
    assert check(raw_job({names.REQUIRE: "rak"}, labels={names.KUEUE_QUEUE: "q"})).allowed


def test_a_policy_that_observes_warns_instead_of_refusing() -> None:
    """The mode is named in each line, and no line is cut before what helps."""
    answer = check(raw_job({names.REQUIRE: "rak"}), FakeView(policy=with_policy(mode="observe")))
    assert answer.allowed
    assert answer.warnings == (
        "topogate (observe): nothing is held or refused; with mode enforce:",
        "topogate (observe): would be refused: metadata.annotations[topogate.dev/require-topology]: Unsupported value: "
        '"rak"',
        'topogate (observe): allowed: block, rack, host, auto; did you mean "rack"?',
    )
    answer = check(raw_job({"topogate.dev/requiretopology": "rack"}), FakeView(policy=with_policy(mode="observe")))
    assert answer.warnings[2].endswith("did you mean topogate.dev/require-topology?")
    assert all(len(one) <= MAX_WARNING for one in answer.warnings)


def test_a_policy_that_observes_does_not_say_that_a_job_waits() -> None:
    """It starts: what it would do is told of the other mode."""
    view = FakeView(policy=with_policy(mode="observe"), outcome=Waits("Fragmented", "needs 4 hosts; best is r with 2"))
    answer = check(rack_job(), view)
    assert answer.warnings[:2] == (
        "topogate (observe): nothing is held or refused; with mode enforce:",
        "topogate (observe): would wait: needs 4 hosts; best is r with 2",
    )
    assert check(raw_job(), view).warnings == ()


def test_a_policy_that_is_off_lets_everything_through() -> None:
    assert check(raw_job({names.REQUIRE: "rak"}), FakeView(policy=with_policy(mode="off"))) == Response(allowed=True)


def test_without_a_policy_there_is_no_answer() -> None:
    with pytest.raises(Unavailable):
        check(rack_job(), FakeView(policy=None))


def test_our_own_writes_pass() -> None:
    assert check(raw_job({names.REQUIRE: "rak"}), user=US).allowed


@pytest.mark.parametrize("outcome", [PLACED, WAITS])
def test_a_claim_that_does_not_exist_is_told(outcome: Outcome) -> None:
    """Of several the first with the number of others; it is no error, as it may be created later."""
    volumes = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in ("data", "x" * 200, "more", "ok")]
    job = stored(rack_job(pod_spec={"containers": [gpu_container()], "volumes": volumes}))
    answer = check(job, FakeView(outcome=outcome, no_claims=frozenset({"data"})))
    told = 'topogate: PersistentVolumeClaim "data" not found: no pod starts before it exists'
    assert answer.allowed
    assert told in answer.warnings
    assert not any("PersistentVolumeClaim" in one for one in check(job, FakeView(outcome=outcome)).warnings)
    answer = check(job, FakeView(outcome=outcome, no_claims=frozenset({"x" * 200, "more"})))
    (told,) = [one for one in answer.warnings if "PersistentVolumeClaim" in one]
    assert len(told) <= MAX_WARNING
    assert "and 1 more not found" in told


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_job_that_fits_is_told_where_it_would_go(dry_run: bool) -> None:
    answer = check(stored(rack_job()), FakeView(outcome=PLACED), dryRun=dry_run)
    assert answer.warnings == ("topogate: would place 4 pods in b0 / b0-r0 (4 hosts), ranks 0-3 in host order",)


@pytest.mark.parametrize("tolerates", [False, True])
def test_a_host_that_prefers_no_pods_is_named_as_a_pin_overrides_that(tolerates: bool) -> None:
    """The scheduler would avoid it; pods that tolerate the taint are told nothing."""
    taint = Taint("dedicated", "infra", "PreferNoSchedule")
    nodes = [replace(one, taints=(taint,)) if one.name in HOSTS[:2] else one for one in NODES]
    more = {"pod_spec": {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}} if tolerates else {}
    answer = check(stored(rack_job(**more)), FakeView(nodes=nodes, outcome=PLACED))
    assert answer.warnings[1:] == (
        ()
        if tolerates
        else ("topogate: 2 of 4 hosts prefer no pods (taint dedicated=infra): pinned pods run there anyway",)
    )


def test_a_job_that_must_wait_is_told_why() -> None:
    answer = check(stored(rack_job()), FakeView(outcome=WAITS))
    assert answer.allowed
    assert answer.warnings[0].startswith("topogate: would wait: needs 4 hosts in one rack; best is b0-r0 with 3")


def test_a_job_that_must_wait_is_told_when_preferring_the_level_would_start_it() -> None:
    def outcome(request: PlacementRequest) -> Outcome:
        assert request.asked is not None
        return WAITS if request.asked.require else PLACED

    answer = check(stored(rack_job()), FakeView(outcome=outcome))
    assert "with prefer-topology it would start now" in answer.warnings[1]


def test_a_gang_that_never_fits_is_warned_of_by_default() -> None:
    answer = check(stored(rack_job()), FakeView(outcome=NEVER))
    assert answer.allowed
    assert "GangTooLarge" in answer.warnings[0]


def test_a_gang_that_never_fits_is_refused_where_the_policy_says_so() -> None:
    answer = check(stored(rack_job()), FakeView(outcome=NEVER, policy=with_policy(never_fits="deny")))
    assert answer.code == 422
    assert reasons(answer) == [f"metadata.annotations[{names.REQUIRE}]"]
    assert NEVER.message in answer.message


def never_unless_preferred(then: Outcome) -> Callable[[PlacementRequest], Outcome]:
    """A view's forecast: the required level never fits; preferred, `then`."""

    def outcome(request: PlacementRequest) -> Outcome:
        assert request.asked is not None
        return NEVER if request.asked.require else then

    return outcome


@pytest.mark.parametrize(
    ("then", "told"),
    [
        (PLACED, "topogate: after 10m rack is preferred, not required: it would start across 4 hosts"),
        (WAITS, "topogate: after 10m rack is preferred, not required: it then waits for room"),
    ],
)
def test_a_gang_that_relax_after_would_place_is_not_refused(then: Outcome, told: str) -> None:
    """`neverFits: deny` is about the request as it will be read, not as it is read for the first ten minutes."""
    view = FakeView(outcome=never_unless_preferred(then), policy=with_policy(never_fits="deny"))
    answer = check(stored(raw_job({names.REQUIRE: "rack", names.RELAX_AFTER: "10m"})), view)
    assert answer.allowed
    assert answer.warnings[1] == told


def test_a_gang_that_the_policys_relax_after_would_place_is_not_refused() -> None:
    """The policy's own `timeouts.relaxAfter` counts as well."""
    policy = parse_policy("neverFits: deny\ntimeouts: {relaxAfter: 5m}")
    assert check(stored(rack_job()), FakeView(outcome=never_unless_preferred(PLACED), policy=policy)).allowed


@pytest.mark.parametrize(
    ("timeout", "relax", "on_timeout", "allowed"),
    [
        ("5m", "10m", "giveUp", False),
        ("10m", "10m", "giveUp", False),
        ("11m", "10m", "giveUp", True),
        ("5m", "10m", "requeue", True),  # it waits for ten minutes at a time in the end
        ("5m", "1h", "requeue", False),
        ("2h", "1h", "requeue", True),
        ("2h", "2h", "requeue", False),
    ],
)
def test_a_gang_that_is_given_up_before_it_is_relaxed_is_refused(
    timeout: str, relax: str, on_timeout: str, allowed: bool
) -> None:
    """`neverFits: deny`: its level would never become a preferred one; the warning says so also without `deny`."""
    asked = {names.REQUIRE: "rack", names.RELAX_AFTER: relax, names.SCHEDULE_TIMEOUT: timeout}
    policy = parse_policy(f"neverFits: deny\nqueue: {{onTimeout: {on_timeout}}}")
    view = FakeView(outcome=never_unless_preferred(PLACED), policy=policy)
    assert check(stored(raw_job(asked)), view).allowed is allowed
    lenient = FakeView(outcome=PLACED, policy=parse_policy(f"queue: {{onTimeout: {on_timeout}}}"))
    told = "topogate: relax-after has no effect: the schedule-timeout ends the wait before"
    assert (told in check(stored(raw_job(asked)), lenient).warnings) is not allowed


def test_a_gang_that_fits_nowhere_preferred_either_is_refused() -> None:
    view = FakeView(outcome=NEVER, policy=with_policy(never_fits="deny"))
    assert check(stored(raw_job({names.REQUIRE: "rack", names.RELAX_AFTER: "10m"})), view).code == 422


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("{}", "after 10m without slots it goes to the end of its priority in the queue"),
        ("queue: {onTimeout: giveUp}", "after 10m without slots it is given up"),
    ],
)
def test_a_gang_that_would_wait_is_told_when_its_time_is_over(policy: str, told: str) -> None:
    job = stored(raw_job({names.REQUIRE: "rack", names.SCHEDULE_TIMEOUT: "10m"}))
    assert check(job, FakeView(outcome=WAITS, policy=parse_policy(policy))).warnings[-1] == f"topogate: {told}"
    assert told not in str(check(job, FakeView(outcome=PLACED, policy=parse_policy(policy))).warnings)


def test_a_gang_beyond_what_can_be_kept_track_of_is_refused_by_policy() -> None:
    """Whatever the policy says of gangs that never fit."""
    answer = check(stored(rack_job()), FakeView(outcome=Never("GangLimitExceeded", "too many slots")))
    assert (answer.code, answer.causes[0].reason) == (403, "GangLimitExceeded")


def test_a_job_that_its_user_suspends_is_told_that_it_stays_so() -> None:
    """Nothing is placed before it is resumed: the forecast is of that."""
    assert check(rack_job(suspend=True), FakeView(outcome=PLACED)).warnings == (
        "topogate: stays suspended, and nothing is reserved for it, until you resume it",
        "topogate: if resumed now it would place 4 pods in b0 / b0-r0 (4 hosts), ranks 0-3 in host order",
    )


def test_a_job_that_we_suspend_is_told_where_it_goes() -> None:
    """Our own suspension is how a gang is held."""
    assert check(stored(rack_job()), FakeView(outcome=PLACED)).warnings[0].startswith("topogate: would place 4 pods")


def test_warnings_of_the_request_are_passed_on() -> None:
    answer = check(stored(rack_job(pod_spec={"resourceClaims": [{"name": "gpu"}]})))
    assert answer.warnings[0].startswith("topogate: not considered: resource claims of the pods")


PREEMPTS = "preemption: {mode: lower-priority}"


def victim(name: str, namespace: str = "ml", *, pods: int = 8, priority: int = 0) -> Victim:
    return Victim("Job", namespace, name, None, priority, (), (ReservationKey("x"),), pods, 0.0)


@pytest.mark.parametrize(
    ("victims", "policy", "warning"),
    [
        ((victim("x"),), PREEMPTS, "would start after 30s by preempting job/x (8 pods, priority 0)"),
        (
            (victim("x"),),
            "preemption: {mode: lower-priority, after: 0s}",
            "would start now by preempting job/x (8 pods, priority 0)",
        ),
        (
            (victim("x"), victim("secret", "team-b", pods=1, priority=-5)),
            PREEMPTS,
            "would start after 30s by preempting job/x and a gang of another namespace (9 pods, priorities -5 to 0)",
        ),
        (
            (victim("secret", "team-b"), victim("hidden", "team-c", priority=-5)),
            PREEMPTS,
            "would start after 30s by preempting 2 gangs of other namespaces (16 pods, priorities -5 to 0)",
        ),
        (
            tuple(victim(name, pods=1) for name in "abcd"),
            PREEMPTS,
            "would start after 30s by preempting job/a, job/b and 2 more gangs (4 pods, priority 0)",
        ),
    ],
)
def test_a_gang_that_others_would_end_for_is_told_so(victims: tuple[Victim, ...], policy: str, warning: str) -> None:
    """Beside why it would wait; victims of other namespaces are counted, never named."""
    view = FakeView(outcome=WAITS, policy=parse_policy(policy), preempts=Preemption(PLACED, victims, proven=True))
    warnings = check(stored(rack_job()), view).warnings
    assert warnings[0].startswith("topogate: would wait: ")
    assert warnings[-1] == f"topogate: {warning}"
    assert len(warnings[-1].encode()) <= MAX_WARNING
    suspended = check(rack_job(suspend=True), view).warnings[-1]
    assert suspended.startswith("topogate: if resumed it would start ")


@pytest.mark.parametrize(
    ("outcome", "policy"),
    [(WAITS, "{}"), (PLACED, PREEMPTS), (NEVER, PREEMPTS), (Waits("PriorityClassMissing", "no class"), PREEMPTS)],
)
def test_nothing_is_said_of_a_preemption_that_would_not_happen(outcome: Outcome, policy: str) -> None:
    """The policy does not preempt, or the gang needs no room of others."""
    found = Preemption(PLACED, (victim("x"),), proven=True)
    view = FakeView(outcome=outcome, policy=parse_policy(policy), preempts=found)
    assert "preempting" not in str(check(stored(rack_job()), view).warnings)


def test_no_time_for_a_forecast_is_no_warning() -> None:
    assert check(stored(rack_job()), FakeView(outcome=None)).warnings == ()


MARKS = {
    "held_by": "suspend",
    "placement": "job-y",
    "revision": "7",
    "domain": "b0/b0-r0/h",
    "rank": "1",
}


@pytest.mark.parametrize("key", MARKS)
def test_our_annotations_may_not_be_written_by_users(key: str) -> None:
    old = running(rack_job())
    answer = admitted(old, annotated(old, **{key: MARKS[key]}), gang_view(old, HOSTS))
    assert answer.code == 422
    assert reasons(answer) == [f"metadata.annotations[topogate.dev/{key.replace('_', '-')}]"]
    assert "written only by topogate" in answer.causes[0].message


@pytest.mark.parametrize("label", (names.MANAGED, names.POD_SET, names.GANG))
def test_our_labels_may_not_be_written_by_users(label: str) -> None:
    old = running(rack_job())
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {label: "x"}
    assert reasons(admitted(old, new, gang_view(old, HOSTS))) == [f"metadata.labels[{label}]"]


@pytest.mark.parametrize(("user", "groups"), [("root", ["system:masters"]), ("ops", []), (US, [])])
def test_admins_and_we_may_write_them(user: str, groups: list[str]) -> None:
    old = running(rack_job())
    view = gang_view(old, HOSTS, policy=with_policy(admins=("system:masters", "ops")))
    assert admitted(old, annotated(old, **MARKS), view, user=user, groups=groups).allowed


def test_a_suspension_without_our_mark_is_its_users() -> None:
    """As at CREATE of the same manifest, which `kubectl replace` sends: the gang waits until it is resumed."""
    old = stored(rack_job())
    replaced = stored(edited(rack_job(), suspend=True))
    for new in (annotated(old, held_by=None), replaced):
        changed = mutate(review(new, old=old), gang_view(old), 0.0)
        assert changed.warnings == (TAKEN_OVER,)
        suspended = workload(apply(new, changed))
        assert (suspended.suspended, names.HELD_BY in suspended.annotations) == (True, False)
        assert names.GATE in suspended.template.gates
        assert admitted(old, new, gang_view(old)).allowed


def test_a_user_who_takes_request_and_held_by_away_is_told_that_it_stays_suspended() -> None:
    """As a patch that sets all annotations to null: nobody else resumes it."""
    old = stored(rack_job())
    new = copy.deepcopy(old)
    del new["metadata"]["annotations"]
    answer = mutate(review(new, old=old), FakeView(), 0.0)
    assert answer.warnings == (STAYS,)
    assert apply(new, answer)["spec"]["suspend"] is True


def test_a_held_by_may_not_be_changed() -> None:
    old = stored(rack_job())
    assert not admitted(old, annotated(old, held_by="me"), gang_view(old)).allowed


def test_a_waiting_job_may_be_resumed_by_its_user() -> None:
    old = stored(rack_job())
    assert admitted(old, edited(old, suspend=False), gang_view(old)).allowed


def test_a_resumed_job_may_not_keep_our_mark_under_another_value() -> None:
    old = stored(rack_job())
    new = annotated(edited(old, suspend=False), held_by="me")
    assert reasons(validate(review(new, old=old), gang_view(old), 0.0)) == [f"metadata.annotations[{names.HELD_BY}]"]


def test_a_user_may_resume_his_own_suspension() -> None:
    old = stored(rack_job(suspend=True))
    assert admitted(old, edited(old, suspend=False), gang_view(old)).allowed


def test_a_running_gang_may_be_suspended() -> None:
    old = running(rack_job())
    assert admitted(old, edited(old, suspend=True), gang_view(old, HOSTS)).allowed


def test_a_replaced_manifest_of_a_waiting_job_is_accepted() -> None:
    old = stored(rack_job())
    old["spec"]["template"]["metadata"]["annotations"] = {names.PLACEMENT: "job-x", names.REVISION: "2"}
    assert admitted(old, live(rack_job()), gang_view(old)).allowed


@pytest.mark.parametrize("key", [names.PLACEMENT, names.REVISION, names.RANK])
def test_a_template_may_not_name_another_placement(key: str) -> None:
    old = stored(rack_job())
    new = copy.deepcopy(old)
    new["spec"]["template"]["metadata"]["annotations"] = {key: "9"}
    assert reasons(admitted(old, new, gang_view(old))) == [f"spec.template.metadata.annotations[{key}]"]


def test_a_templates_gate_and_labels_taken_off_come_back_by_themselves() -> None:
    old = stored(rack_job())
    new = copy.deepcopy(old)
    del new["spec"]["template"]["spec"]["schedulingGates"]
    del new["spec"]["template"]["metadata"]["labels"]
    assert admitted(old, new, gang_view(old)).allowed


def test_a_gate_taken_off_behind_the_mutating_webhook_is_refused() -> None:
    old = stored(rack_job())
    new = copy.deepcopy(old)
    del new["spec"]["template"]["spec"]["schedulingGates"]
    answer = validate(review(new, old=old), gang_view(old), 0.0)
    assert reasons(answer) == ["spec.template.spec.schedulingGates"]


GONE = "topogate: the request was removed: the gang's slots are released, and new pods may run anywhere"


def test_a_job_that_waits_may_stop_asking() -> None:
    """No pod is there, and nothing is lost."""
    old = stored(rack_job())
    answer = admitted(old, annotated(old, require_topology=None), gang_view(old))
    assert (answer.allowed, answer.warnings) == (True, ())


def test_a_request_that_vanishes_from_a_running_gang_is_refused_like_a_change() -> None:
    """A manifest rendered without it would scatter the gang's next pods; the ways out are named."""
    old = running(raw_job({names.REQUIRE: "block", names.PREFER: "rack", names.RELAX_AFTER: "1h"}))
    answer = admitted(
        old, annotated(old, require_topology=None, prefer_topology=None, relax_after=None), gang_view(old, HOSTS)
    )
    assert reasons(answer) == [f"metadata.annotations[{key}]" for key in (names.PREFER, names.REQUIRE)]
    assert answer.causes[0].message == (
        "Forbidden: the gang is placed and running, and would lose its slots; suspend the Job, change it and "
        'resume it, or set topogate.dev/unconstrained-topology: "false"'
    )
    assert GONE not in answer.warnings  # nothing of that happens


def test_a_changed_request_of_a_running_gang_is_refused_at_the_key_that_its_user_wrote() -> None:
    """In the new object, or, if it was removed, in the old one: an alias is not called by our name."""
    alias = "kueue.x-k8s.io/podset-required-topology"
    old = running(raw_job({alias: "cloud.provider.com/topology-rack"}))
    new = copy.deepcopy(old)
    new["metadata"]["annotations"][alias] = "cloud.provider.com/topology-block"
    assert reasons(admitted(old, new, gang_view(old, HOSTS))) == [f"metadata.annotations[{alias}]"]
    del new["metadata"]["annotations"][alias]
    new["metadata"]["annotations"][names.PREFER] = "rack"
    answer = admitted(old, new, gang_view(old, HOSTS))
    assert set(reasons(answer)) == {f"metadata.annotations[{key}]" for key in (alias, names.PREFER)}


@pytest.mark.parametrize(("value", "code"), [("20m", 200), ("none", 200), (None, 200), ("soon", 422)])
def test_the_time_outs_of_a_running_gang_may_be_changed(value: str | None, code: int) -> None:
    """They decide nothing about where it is; a wrong value is refused here too."""
    asked = {names.REQUIRE: "rack", names.START_TIMEOUT: "10m", names.RECOVER_TIMEOUT: "10m"}
    old = running(raw_job(asked))
    answer = admitted(old, annotated(old, start_timeout=value, recover_timeout=value), gang_view(old, HOSTS))
    assert (answer.code if not answer.allowed else 200) == code


def test_a_running_gang_may_say_that_it_asks_for_nothing() -> None:
    """Said in so many words it is no slip; the warning tells what it costs."""
    old = running(rack_job())
    new = annotated(old, require_topology=None, unconstrained_topology="false")
    answer = admitted(old, new, gang_view(old, HOSTS))
    assert (answer.allowed, answer.warnings) == (True, (GONE,))


def test_a_running_gang_that_somebody_else_gets_is_warned() -> None:
    """A queue of Kueue's takes it out of our hands: the slots go all the same."""
    old = running(rack_job())
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {names.KUEUE_QUEUE: "q"}
    answer = admitted(old, new, gang_view(old, HOSTS))
    assert answer.allowed
    assert answer.warnings[0] == GONE


def test_what_the_policy_asked_for_may_go() -> None:
    """A default of the namespace is not in its user's manifest: `kubectl replace` takes it out, with a warning."""
    said = {"namespaces": {"defaults": [{"namespaces": ["ml"], "annotations": {names.REQUIRE: "rack"}}]}}
    old = running(rack_job())
    view = gang_view(old, HOSTS, policy=parse_policy(json.dumps(said)))
    answer = admitted(old, annotated(old, require_topology=None), view)
    assert (answer.allowed, answer.warnings) == (True, (GONE,))


def test_a_finished_job_may_stop_asking() -> None:
    old = running(rack_job())
    old["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    assert admitted(old, annotated(old, require_topology=None), gang_view(old, HOSTS)).warnings == ()


def test_a_request_that_comes_back_to_a_running_job_is_told_what_it_reaches() -> None:
    """The template still carries the gate: new pods are held, those that run stay where they are."""
    asking = running(rack_job())
    old = annotated(asking, require_topology=None)
    answer = admitted(old, asking, gang_view(old))
    assert answer.warnings[0] == (
        "topogate: the Job is already running: its pods stay where they are, only new pods are held"
    )


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"require_topology": "block"}, names.REQUIRE),
        ({"prefer_topology": "host"}, names.PREFER),
        ({"require_topology": None, "unconstrained_topology": "true"}, names.REQUIRE),
    ],
)
def test_the_request_of_a_running_gang_may_not_change(changes: dict[str, str | None], field: str) -> None:
    old = running(rack_job())
    answer = admitted(old, annotated(old, **changes), gang_view(old, HOSTS))
    assert answer.code == 422
    assert f"metadata.annotations[{field}]" in reasons(answer)
    assert "suspend the Job, change it and resume it" in answer.message


@pytest.mark.parametrize("layers", ["rack=2,host=1", None], ids=str)
def test_layers_of_slices_of_a_running_gang_may_not_change(layers: str | None) -> None:
    """They are refused at their own key; the same in another spelling is no change."""
    old = running(raw_job({names.REQUIRE: "block", names.SLICES: "rack=4,host=2"}))
    view = gang_view(old, HOSTS)
    assert reasons(admitted(old, annotated(old, slices=layers), view)) == [f"metadata.annotations[{names.SLICES}]"]
    assert admitted(old, annotated(old, slices="rack=4, kubernetes.io/hostname=2"), view).allowed


def test_the_scope_of_a_running_gang_s_devices_may_not_change() -> None:
    """Its pods have devices already."""
    old = running(raw_job({names.REQUIRE: "rack", names.DEVICE_SCOPE: "pcie"}))
    old["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "4"}}
    answer = admitted(old, annotated(old, device_scope="numa"), gang_view(old, HOSTS))
    assert reasons(answer) == [f"metadata.annotations[{names.DEVICE_SCOPE}]"]


def test_the_gpu_strategy_of_a_running_gang_may_not_change() -> None:
    old = running(raw_job({names.REQUIRE: "rack", names.GPU_STRATEGY: "binpack"}))
    answer = admitted(old, annotated(old, gpu_strategy="spread"), gang_view(old, HOSTS))
    assert reasons(answer) == [f"metadata.annotations[{names.GPU_STRATEGY}]"]


def test_the_device_selector_of_a_running_gang_may_not_change() -> None:
    old = running(raw_job({names.REQUIRE: "rack", names.DEVICE_SELECTOR: "model=A"}))
    answer = admitted(old, annotated(old, device_selector="model=B"), gang_view(old, HOSTS))
    assert reasons(answer) == [f"metadata.annotations[{names.DEVICE_SELECTOR}]"]


@pytest.mark.parametrize(
    ("key", "was", "now"),
    [
        (names.VF_SELECTOR, "type=a", "type=b"),
        (names.RDMA_SELECTOR, "pool=a", "pool=b"),
        (names.RDMA_SCOPE, "pcie", "pcie-preferred"),
    ],
)
def test_the_rdma_devices_of_a_running_gang_may_not_change(key: str, was: str, now: str) -> None:
    """Its pods have virtual functions that were chosen by it; the same selector in other words is no change."""
    body = raw_job({names.REQUIRE: "rack", key: was})
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {
        "limits": {"koordinator.sh/rdma": "1", "koordinator.sh/gpu": "100"}
    }
    old = running(body)
    word = key.partition("/")[2].replace("-", "_")
    answer = admitted(old, annotated(old, **{word: now}), gang_view(old, HOSTS))
    assert reasons(answer) == [f"metadata.annotations[{key}]"]
    if was != "pcie":
        label, _, value = was.partition("=")
        same = annotated(old, **{word: f"{label} in ({value})"})
        assert reasons(admitted(old, same, gang_view(old, HOSTS))) == []


def test_the_profile_of_a_running_gang_may_not_change() -> None:
    """Its slots were chosen by it."""
    old = running(raw_job({names.REQUIRE: "rack", names.PROFILE: "spread"}))
    answer = admitted(old, annotated(old, profile="pack"), gang_view(old, HOSTS))
    assert reasons(answer) == [f"metadata.annotations[{names.PROFILE}]"]


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ({names.EXCLUSIVE: "rack"}, {"exclusive_topology": "host"}, names.EXCLUSIVE),
        ({}, {"exclusive_topology": "rack"}, names.EXCLUSIVE),
        ({names.SPREAD: "rack", names.SPREAD_GROUP: "web"}, {"spread_topology": "host"}, names.SPREAD),
        ({names.SPREAD: "rack", names.SPREAD_GROUP: "web"}, {"spread_group": "other"}, names.SPREAD_GROUP),
    ],
)
def test_a_running_gang_stays_apart_from_the_same_gangs(
    before: dict[str, str], after: dict[str, str], key: str
) -> None:
    """Others were placed, or kept out, by it."""
    old = running(raw_job({names.REQUIRE: "rack", **before}))
    answer = admitted(old, annotated(old, **after), gang_view(old, HOSTS))
    assert reasons(answer) == [f"metadata.annotations[{key}]"]


def test_another_spelling_of_the_same_request_is_no_change() -> None:
    old = running(rack_job())
    new = annotated(old, require_topology="cloud.provider.com/topology-rack")
    assert admitted(old, new, gang_view(old, HOSTS)).allowed


def test_the_request_of_a_suspended_gang_may_change() -> None:
    old = stored(rack_job())
    view = gang_view(old, outcome=PLACED)
    answer = admitted(old, annotated(old, require_topology="block"), view)
    assert answer.allowed
    assert answer.warnings


def test_a_running_gang_may_grow_and_shrink_as_may_a_suspended_one() -> None:
    old = running(rack_job())
    assert admitted(old, edited(old, parallelism=6, completions=6), gang_view(old, HOSTS)).allowed
    assert admitted(old, edited(old, parallelism=2), gang_view(old, HOSTS)).allowed
    held = stored(rack_job())
    assert admitted(held, edited(held, parallelism=8, completions=8), gang_view(held)).allowed


def test_a_placed_gang_that_is_being_suspended_may_change_and_grow() -> None:
    old = running(rack_job())
    new = annotated(edited(old, suspend=True, parallelism=8, completions=8), require_topology="block")
    assert admitted(old, new, gang_view(old, HOSTS)).allowed


def test_an_update_that_asks_for_nothing_new_costs_no_forecast() -> None:
    old = stored(rack_job())
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"team": "a"}
    view = gang_view(old, outcome=PLACED)
    assert admitted(old, new, view).warnings == ()
    assert view.forecasts == 0


@pytest.mark.parametrize("changes", [{"topology": "other"}, {"exclusive_topology": "rack"}, {"relax_after": "5m"}])
def test_a_waiting_gang_is_forecast_anew_whatever_part_of_its_request_changes(changes: dict[str, str]) -> None:
    """And refused where it can never fit any more, if the policy refuses those."""
    levels = "[{name: rack, keys: [cloud.provider.com/topology-rack]}]"
    both = f"[{{name: one, levels: {levels}}}, {{name: other, levels: {levels}}}]"
    policy = parse_policy(f"topologies: {both}\nneverFits: deny")
    old = stored(raw_job({names.TOPOLOGY: "one", names.REQUIRE: "rack"}), FakeView(policy=policy))
    new = annotated(old, **changes)
    told = admitted(old, new, gang_view(old, outcome=WAITS, policy=policy)).warnings
    assert told[0].startswith("topogate: would wait: ")
    assert not admitted(old, new, gang_view(old, outcome=NEVER, policy=policy)).allowed


def test_an_old_fault_does_not_block_other_changes() -> None:
    old = live(raw_job({names.REQUIRE: "gone"}))
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"team": "a"}
    assert admitted(old, new, FakeView()).allowed


def test_a_new_fault_at_update_is_refused() -> None:
    old = stored(rack_job())
    assert reasons(admitted(old, annotated(old, require_topology="rak"), FakeView())) == [
        f"metadata.annotations[{names.REQUIRE}]"
    ]


def test_a_job_under_deletion_may_lose_its_finalizers() -> None:
    old = live(raw_job({names.REQUIRE: "gone"}))
    new = annotated(old, rank="3")
    new["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    assert admitted(old, new, FakeView()).allowed


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize(("value", "allowed"), [("20m", True), (None, True), ("5s", False)])
def test_a_time_out_may_change_at_any_time(alive: bool, value: str | None, allowed: bool) -> None:
    """Of a waiting gang it counts at once, of a running one not; a wrong value is refused all the same."""
    asked = {names.REQUIRE: "rack", names.SCHEDULE_TIMEOUT: "10m"}
    old = running(raw_job(asked)) if alive else stored(raw_job(asked))
    new = copy.deepcopy(old)
    if value is None:
        del new["metadata"]["annotations"][names.SCHEDULE_TIMEOUT]
    else:
        new["metadata"]["annotations"][names.SCHEDULE_TIMEOUT] = value
    assert admitted(old, new, FakeView()).allowed is allowed


@pytest.mark.parametrize(("least", "allowed"), [("9", True), ("all", False), (None, False)])
def test_a_waiting_job_may_change_its_pod_group(least: str | None, allowed: bool) -> None:
    old = stored(raw_job({names.POD_GROUP: "g", names.MIN_AVAILABLE: "8"}))
    new = copy.deepcopy(old)
    new["metadata"]["annotations"][names.POD_GROUP] = "h"
    if least is None:
        del new["metadata"]["annotations"][names.MIN_AVAILABLE]
    else:
        new["metadata"]["annotations"][names.MIN_AVAILABLE] = least
    assert admitted(old, new, FakeView()).allowed is allowed


def app_wrapper(annotations: Json, *, suspend: bool) -> Json:
    """An AppWrapper with one Job; its own webhook refuses every change of its components."""
    job = {key: part for key, part in raw_job().items() if key != "status"}
    spec = {"suspend": suspend, "components": [{"template": job}]}
    metadata = {"name": "train-7", "namespace": "ml", "uid": "u-1", "annotations": annotations}
    return {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": metadata, "spec": spec}


def test_a_request_that_comes_too_late_for_an_appwrapper_is_refused() -> None:
    """Its templates stay as they are, and without the gate in them nothing would hold its pods."""
    stored, asking = app_wrapper({}, suspend=True), app_wrapper({names.REQUIRE: "rack"}, suspend=True)
    found = apply(asking, mutate(review(asking, old=stored), FakeView(), 0.0))
    assert found["spec"] == stored["spec"]
    answer = validate(review(found, old=stored), FakeView(), 0.0)
    (cause,) = answer.causes
    assert (cause.field, answer.errors[0].reason) == (f"metadata.annotations[{names.REQUIRE}]", "ImmutableField")
    assert cause.message.endswith("delete it and create it again")


def test_an_appwrapper_from_before_the_policy_enforced_is_not_resumed_with_its_request() -> None:
    """Created under `observe` its templates have no gate, and it never gets one; without the request it runs."""
    asking = app_wrapper({names.REQUIRE: "rack"}, suspend=True)
    observing = FakeView(policy=with_policy(mode="observe"))
    old = apply(asking, mutate(review(asking), observing, 0.0))
    answer = admitted(old, edited(old, suspend=False), FakeView())
    assert reasons(answer) == [f"metadata.annotations[{names.REQUIRE}]"]
    assert "was not in force at its creation" in answer.causes[0].message
    assert admitted(old, annotated(edited(old, suspend=False), require_topology=None), FakeView()).allowed
    assert admitted(old, annotated(old, relax_after="1h"), FakeView()).allowed
    runs = edited(old, suspend=False)
    assert admitted(runs, annotated(runs, relax_after="1h"), FakeView()).allowed


def suspended_again(job: Json) -> Json:
    """A Job without our gate that has run, as its user suspended it: the server keeps its template as it is."""
    return live(edited(job, suspend=True), started=True)


@pytest.mark.parametrize("suspend", (True, False))
def test_the_first_request_of_a_job_that_has_run_is_refused(*, suspend: bool) -> None:
    """Its pods would not be held, nor pinned to the slots of the gang: they would start anywhere."""
    old = suspended_again(raw_job())
    answer = admitted(old, annotated(edited(old, suspend=suspend), require_topology="rack"), FakeView())
    (cause,) = answer.causes
    assert (cause.field, answer.errors[0].reason) == (f"metadata.annotations[{names.REQUIRE}]", "ImmutableField")
    assert cause.message == (
        "Forbidden: comes too late: the templates of this Job do not change after a start, so its pods could not be "
        "held; delete it and create it again"
    )


def test_a_job_that_ran_before_the_policy_enforced_is_not_resumed_with_its_request() -> None:
    old = suspended_again(rack_job())
    answer = admitted(old, edited(old, suspend=False), FakeView())
    assert "was not in force at its creation" in answer.causes[0].message
    assert admitted(old, annotated(edited(old, suspend=False), require_topology=None), FakeView()).allowed
    assert admitted(old, annotated(old, relax_after="1h"), FakeView()).allowed


def test_a_job_with_our_gate_that_has_run_is_resumed() -> None:
    old = suspended_again(stored(rack_job()))
    assert admitted(old, edited(old, suspend=False), FakeView()).allowed


def test_an_appwrapper_whose_request_goes_runs_with_its_components_as_they_are() -> None:
    """The marks in them are taken off what its controller makes of them."""
    created = app_wrapper({names.REQUIRE: "rack"}, suspend=False)
    stored = apply(created, mutate(review(created), FakeView(), 0.0))
    asking_no_more = copy.deepcopy(stored)
    del asking_no_more["metadata"]["annotations"][names.REQUIRE]
    found = apply(asking_no_more, mutate(review(asking_no_more, old=stored), FakeView(), 0.0))
    assert found["spec"] == {**stored["spec"], "suspend": False}
    assert validate(review(found, old=stored), FakeView(), 0.0).allowed
    assert validate(review(stored, old=stored), FakeView(), 0.0).allowed
