"""`/validate` on pods that ask for a topology by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.placement import WorkloadRef
from engine.api.pod import OwnerRef
from engine.api.text import MAX_WARNING
from engine.api.workload import Workload
from engine.decoding import pods
from engine.gang.key import placed_key
from engine.gang.request import PlacementRequest
from engine.policy.model import default_policy
from engine.resources.names import Reported
from engine.scheduler.outcome import Never, Waits
from tests.support.admission import (
    UID,
    FakeView,
    Json,
    apply,
    gang_view,
    live,
    placed,
    raw_job,
    raw_pod,
    review,
    with_policy,
    workload,
)
from tests.support.kinds import example, merged, workload_of
from webhook.admission.review import Response
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate
from webhook.rules.membership import alone

ASKS = {names.REQUIRE: "rack"}
DRIVER = pods.pod({"metadata": {"name": "o", "namespace": "ml", "uid": "u"}, "spec": {"containers": []}})
OWNERS = pytest.mark.parametrize("owner", [None, ("Thing", "example.com/v1"), ("Pod", "v1")])


def admitted(pod: Json, view: FakeView | None = None, **more: Any) -> Response:
    """The answer after `/mutate` has been there."""
    view = view or FakeView()
    return validate(review(apply(pod, mutate(review(pod, **more), view, 0.0)), **more), view, 0.0)


def owned(kind: str, api_version: str = "apps/v1", **more: Any) -> Json:
    pod = raw_pod(annotations=ASKS, gates=(), **more)
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", "controller": True}
    ]
    return pod


def test_a_bare_pod_that_asks_is_held_with_a_warning() -> None:
    answer = admitted(raw_pod(annotations=ASKS, gates=()))
    assert answer.allowed
    (warning,) = answer.warnings
    assert warning == "topogate: the pod is placed alone; topogate.dev/gang-name and gang-size make a gang"
    refused = admitted(raw_pod(annotations={names.REQUIRE: "rak"}, labels={names.MANAGED: "true"}, owner=None))
    assert (refused.allowed, refused.warnings) == (False, ())


def test_a_pod_of_an_unregistered_owner_that_asks_is_held_with_a_warning() -> None:
    """It is no gang: a gang name and a size make one."""
    pod = owned("Thing", "example.com/v1")
    view = FakeView()
    assert {"name": names.GATE} in apply(pod, mutate(review(pod), view, 0.0))["spec"]["schedulingGates"]
    answer = admitted(pod, view)
    assert answer.allowed
    (warning,) = answer.warnings
    assert warning == (
        'topogate: pods of "Thing" are placed one by one, near each other; '
        "topogate.dev/gang-name and gang-size make a gang"
    )


@OWNERS
@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({names.REQUIRE: "rak"}, names.REQUIRE),
        ({names.REQUIRE: "rack", names.GANG_SIZE: "2"}, names.GANG_SIZE),
        ({names.REQUIRE: "rack", names.MIN_AVAILABLE: "2"}, names.MIN_AVAILABLE),
        ({names.REQUIRE: "rack", names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "2"}, names.SLICE_SIZE),
        ({names.REQUIRE: "rack", names.COLOCATE: "a"}, names.COLOCATE),
        ({names.RELAX_AFTER: "1m"}, names.REQUIRE),
        ({names.REQUIRE: "rack", names.START_TIMEOUT: "1m"}, names.START_TIMEOUT),
    ],
)
def test_what_a_pod_by_itself_asks_for_wrongly_is_refused(
    said: dict[str, str], field: str, owner: tuple[str, str] | None
) -> None:
    """Also one that another pod makes, as a driver of spark-submit its executors."""
    pod = raw_pod(gates=()) if owner is None else owned(*owner)
    pod["metadata"]["annotations"] = said
    answer = admitted(pod, FakeView(pods=[DRIVER]))
    assert answer.code == 422
    assert f"metadata.annotations[{field}]" in [cause.field for cause in answer.causes]


def test_a_pod_by_itself_that_lost_our_label_on_the_way_is_refused() -> None:
    """Nobody would hold it."""
    answer = validate(review(owned("Thing", "example.com/v1")), FakeView(), 0.0)
    assert (answer.code, answer.reason) == (403, "Forbidden")


@OWNERS
@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({names.GANG_NAME: "g"}, names.GANG_SIZE),
        ({names.GANG_NAME: "g", names.GANG_SIZE: "0"}, names.GANG_SIZE),
        ({names.GANG_NAME: "g", names.GANG_SIZE: "many"}, names.GANG_SIZE),
        ({names.GANG_NAME: "g", names.GANG_SIZE: "2", names.REQUIRE: "rak"}, names.REQUIRE),
    ],
)
def test_what_a_pod_of_a_plain_gang_asks_for_wrongly_is_refused(
    said: dict[str, str], field: str, owner: tuple[str, str] | None
) -> None:
    pod = raw_pod(gates=()) if owner is None else owned(*owner)
    pod["metadata"]["annotations"] = said
    answer = admitted(pod, FakeView(pods=[DRIVER]))
    assert answer.code == 422
    assert [cause.field for cause in answer.causes] == [f"metadata.annotations[{field}]"]


def test_a_pod_of_a_pod_whose_workload_was_reviewed_passes() -> None:
    """The executors of a SparkApplication are its driver's: nothing would help a controller that is refused them."""
    application = spark_application()
    driver = replace(DRIVER, owner=OwnerRef(application.api_version, application.kind, "sum", UID, True))
    executor = owned("Pod", "v1")
    executor["metadata"]["annotations"] = {names.REQUIRE: "rak"}
    assert admitted(executor, FakeView(pods=[driver], workloads=[application])).allowed


def spark_application() -> Workload:
    """One that asks for a place."""
    raw = merged(example("sparkapplication")["object"], {"metadata": {"name": "sum", "annotations": ASKS, "uid": UID}})
    return replace(workload_of(raw), namespace="ml")


@pytest.mark.parametrize("asks", [{}, ASKS])
def test_an_executor_of_spark_submit_in_a_job_asks_for_itself(asks: dict[str, str]) -> None:
    """Its driver's pod made it, not the Job: it has no place in the gang of the Job, and would be held for ever."""
    driver = replace(DRIVER, owner=OwnerRef("batch/v1", "Job", "train-7", UID, True))
    seen = FakeView(pods=[driver], workloads=[workload(live(raw_job(asks)))])
    executor = owned("Pod", "v1")
    executor["metadata"]["annotations"] = {names.REQUIRE: "rak"}
    answer = admitted(executor, seen)
    assert [cause.field for cause in answer.causes] == [f"metadata.annotations[{names.REQUIRE}]"]
    executor["metadata"]["annotations"] = dict(ASKS)
    held = apply(executor, mutate(review(executor), seen, 0.0))
    assert held["metadata"]["labels"][names.POD_SET].startswith("single-")
    assert names.GANG not in held["metadata"]["labels"]
    shares = owned("Pod", "v1")
    shares["metadata"].pop("annotations", None)
    shares["spec"]["containers"] = [{"name": "m", "resources": {"limits": {"koordinator.sh/gpu-core": "50"}}}]
    free = apply(shares, mutate(review(shares), seen, 0.0))
    assert not free["spec"].get("schedulingGates")


def test_a_pod_of_a_pod_that_is_not_known_yet_is_held_not_refused() -> None:
    executor = owned("Pod", "v1")
    executor["metadata"]["annotations"] = {names.REQUIRE: "rak"}
    assert admitted(executor, FakeView()).allowed


def test_a_pod_of_a_plain_gang_is_held() -> None:
    """Until as many exist as its gang has."""
    said = {names.GANG_NAME: "g", names.GANG_SIZE: "2"}
    view = FakeView()
    changed = apply(raw_pod(annotations=said, gates=()), mutate(review(raw_pod(annotations=said, gates=())), view, 0.0))
    assert {"name": names.GATE} in changed["spec"]["schedulingGates"]
    assert changed["metadata"]["labels"][names.GANG].startswith("pods-g-")
    assert admitted(raw_pod(annotations=said, gates=())).allowed


def test_an_unknown_key_on_a_pod_is_refused() -> None:
    assert not admitted(raw_pod(annotations={"topogate.dev/require-topolgy": "rack"}, gates=())).allowed


def test_an_unknown_key_on_a_pod_is_a_warning_where_the_policy_says_so() -> None:
    annotations = with_policy().annotations.model_copy(update={"unknown": "warn"})
    view = FakeView(policy=with_policy(annotations=annotations))
    answer = admitted(raw_pod(annotations={"topogate.dev/x": "rack"}, gates=()), view)
    assert answer.allowed
    assert answer.warnings == ("topogate: metadata.annotations[topogate.dev/x]: no such annotation",)


def test_a_member_of_a_gang_passes() -> None:
    job = live(raw_job(template=ASKS))
    pod = raw_pod(job, labels={}, annotations=ASKS, gates=())
    assert admitted(pod, gang_view(job)).allowed


def test_a_pod_whose_job_is_not_known_yet_is_held_not_refused() -> None:
    job = live(raw_job(template=ASKS))
    assert admitted(raw_pod(job, labels={}, annotations=ASKS, gates=())).allowed


def test_a_member_that_lost_our_label_on_the_way_is_refused() -> None:
    job = live(raw_job(template=ASKS))
    pod = raw_pod(job, labels={}, annotations=ASKS, gates=())
    answer = validate(review(pod), gang_view(job), 0.0)
    assert (answer.code, answer.reason) == (403, "Forbidden")


def test_a_pod_of_a_job_that_another_system_has_passes() -> None:
    alias = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    job = live(raw_job(template=alias, labels={names.KUEUE_QUEUE: "q"}))
    pod = raw_pod(job, labels={}, annotations=alias, gates=())
    assert admitted(pod, gang_view(job)).allowed


def test_a_pod_that_asks_nothing_passes() -> None:
    assert admitted(raw_pod(labels={names.POD_GROUP_NAME: "g"}, gates=())) == Response(allowed=True)


@pytest.mark.parametrize(("value", "shown"), [("nine", "nine"), ("0", "0"), ("x" * 63, "x" * 13 + "...")])
def test_a_minimum_of_a_pod_group_that_is_no_number_is_told(value: str, shown: str) -> None:
    """The pod is not held for others: it would start alone without a word."""
    labels = {names.POD_GROUP_NAME: "g", names.POD_GROUP_MIN: value}
    answer = admitted(raw_pod(labels=labels, gates=()))
    told = f'topogate: {names.POD_GROUP_MIN} "{shown}" is no number above 0: the pod starts alone'
    assert (answer.allowed, answer.warnings) == (True, (told,))
    assert len(told) <= MAX_WARNING
    annotations = {names.KOORDINATOR_GANG_NAME: "g", names.KOORDINATOR_GANG_MIN: value}
    (said,) = admitted(raw_pod(annotations=annotations, gates=())).warnings
    assert said == told.replace(names.POD_GROUP_MIN, names.KOORDINATOR_GANG_MIN)
    assert admitted(raw_pod(labels=labels | {names.KUEUE_QUEUE: "q"}, gates=())).warnings == ()
    assert admitted(raw_pod(live(raw_job()), labels=labels, gates=())).warnings == ()


@pytest.mark.parametrize(
    "pod",
    [
        owned("DaemonSet"),
        owned("ReplicaSet", schedulerName="volcano"),
        owned("ReplicaSet", nodeName="n1"),
    ],
)
def test_what_we_stand_aside_for_passes(pod: Json) -> None:
    assert admitted(pod).allowed


def test_pods_in_exempt_namespaces_pass() -> None:
    assert admitted(raw_pod(annotations=ASKS, gates=()), namespace="kube-system").allowed


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_nothing_is_refused_where_the_policy_does_not_enforce(mode: str) -> None:
    assert admitted(raw_pod(annotations=ASKS, gates=()), FakeView(policy=with_policy(mode=mode))).allowed


def test_an_update_of_a_pod_is_nothing_to_judge() -> None:
    pod = raw_pod(annotations=ASKS)
    assert validate(review(pod, old=pod), FakeView(), 0.0).allowed


# What a plain pod is told at submit

CORES = FakeView(reported=Reported(frozenset({"koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"})))
GANG = {names.GANG_NAME: "g", names.GANG_SIZE: "4", names.REQUIRE: "rack"}


def koordinator(amount: str) -> list[Json]:
    resources = {"limits": {"koordinator.sh/gpu": amount}}
    return [{"name": "main", "image": "x", "resources": resources}]


def test_everything_wrong_with_a_plain_pod_is_told_at_once() -> None:
    """Its level, what only a gang can ask for, keys that are none, and its GPUs."""
    said = {names.REQUIRE: "rak", names.GANG_SIZE: "2", names.SLICE_SIZE: "2", "topogate.dev/gangname": "g"}
    answer = admitted(raw_pod(annotations=said, gates=(), containers=koordinator("0")))
    assert answer.code == 422
    assert [cause.field for cause in answer.causes] == [
        "metadata.annotations[topogate.dev/gang-size]",
        "metadata.annotations[topogate.dev/gangname]",
        "metadata.annotations[topogate.dev/require-topology]",
        "metadata.annotations[topogate.dev/slice-size]",
        "spec.containers[0].resources.limits[koordinator.sh/gpu]",
    ]


def test_everything_wrong_with_a_pod_of_a_plain_gang_is_told_at_once() -> None:
    said = {names.GANG_NAME: "g", names.GANG_SIZE: "two", names.REQUIRE: "rak"}
    answer = admitted(raw_pod(annotations=said, gates=(), containers=koordinator("0")))
    assert [cause.field for cause in answer.causes] == [
        "metadata.annotations[topogate.dev/gang-size]",
        "metadata.annotations[topogate.dev/require-topology]",
        "spec.containers[0].resources.limits[koordinator.sh/gpu]",
    ]


@pytest.mark.parametrize("said", [ASKS, GANG], ids=["by itself", "of a gang"])
def test_a_plain_pod_that_asks_has_its_gpus_in_the_names_of_the_nodes(said: dict[str, str]) -> None:
    """As one that asks for GPUs alone; called again there is nothing to do."""
    pod = raw_pod(annotations=said, gates=(), containers=koordinator("50"))
    changed = apply(pod, mutate(review(pod), CORES, 0.0))
    wanted = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
    assert changed["spec"]["containers"][0]["resources"] == {"limits": wanted, "requests": wanted}
    assert mutate(review(changed), CORES, 0.0).patch == ()
    assert validate(review(changed), CORES, 0.0).allowed


WAITS = Waits("Fragmented", "needs 4 hosts in one rack; best is rack-07 with 2")


@pytest.mark.parametrize(("said", "count"), [(ASKS, 1), (GANG, 4)], ids=["by itself", "of a gang"])
def test_a_plain_pod_that_asks_is_told_what_will_happen(said: dict[str, str], count: int) -> None:
    """About itself, or about all pods of its gang."""
    asked: list[int] = []

    def outcome(request: PlacementRequest) -> Waits:
        asked.append(request.count)
        return WAITS

    answer = admitted(raw_pod(annotations=said, gates=()), FakeView(outcome=outcome))
    assert answer.warnings[-1] == f"topogate: would wait: {WAITS.message}"
    assert set(asked) == {count}


def test_a_plain_gang_that_is_known_already_is_not_planned_for_each_of_its_pods() -> None:
    """The first pods are told; its Placement says the rest."""
    pod = raw_pod(annotations=GANG, gates=())
    owner = WorkloadRef("v1", "Pod", "g", "")
    known = replace(placed(workload(raw_job(GANG)), []), workload=owner)
    view = FakeView(outcome=WAITS, placements=[known])
    found = alone(pods.pod(pod), view, default_policy())
    assert found is not None
    assert found.key == placed_key(known)
    assert admitted(pod, view).warnings == ()
    assert view.forecasts == 0


def test_nobody_reads_what_a_pod_of_a_controller_would_be_told() -> None:
    """It is planned when it is there."""
    view = FakeView(outcome=WAITS)
    admitted(owned("Thing", "example.com/v1"), view)
    assert view.forecasts == 0


@pytest.mark.parametrize("said", [ASKS, GANG], ids=["by itself", "of a gang"])
def test_a_plain_pod_that_never_fits_is_refused_where_the_policy_says_so(said: dict[str, str]) -> None:
    never = Never("HostTooSmall", "a pod asks for more GPUs than any host has (16; the most is 8)")
    pod = raw_pod(annotations=said, gates=())
    assert admitted(pod, FakeView(outcome=never)).warnings[-1].startswith("topogate: HostTooSmall: ")
    answer = admitted(pod, FakeView(outcome=never, policy=with_policy(never_fits="deny")))
    assert [cause.field for cause in answer.causes] == ["spec.containers"]


def test_while_only_observing_a_plain_pod_is_told_the_same() -> None:
    """Nobody marked it, and nobody refuses it."""
    view = FakeView(policy=with_policy(mode="observe"))
    pod = raw_pod(annotations={names.REQUIRE: "rak"}, gates=())
    assert mutate(review(pod), view, 0.0).patch == ()
    answer = admitted(pod, view)
    assert answer.allowed
    assert any("topogate.dev/require-topology" in one for one in answer.warnings)
    assert any("placed alone" in one for one in answer.warnings)
