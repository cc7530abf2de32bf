"""`/mutate` on pods."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.objects import Taint
from engine.gang.key import placement_name
from engine.policy.model import Policy, parse_policy
from engine.resources.names import CORE, GPU, MEMORY, RATIO, Reported
from tests.support.admission import (
    NODES,
    UID,
    US,
    FakeView,
    Json,
    apply,
    gang_view,
    gpu_container,
    live,
    placed,
    rack_job,
    raw_job,
    raw_pod,
    review,
    with_policy,
    workload,
)
from tests.support.cluster_records import changed
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
HOST = {"key": "kubernetes.io/hostname", "operator": "Exists"}
HOSTS = ("b0-r0-h0", "b0-r0-h1", "b0-r0-h2", "b0-r0-h3")
GANG = placement_name("Job", "train-7", UID)
JOB = live(rack_job())
DOMAIN_LABELS = {"cloud.provider.com/topology-block": "b0", "cloud.provider.com/topology-rack": "b0-r0"}


def created(pod: Json, view: FakeView, **more: Any) -> Json:
    return apply(pod, mutate(review(pod, name="", **more), view, 0.0))


def gates(pod: Json) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or []]


def terms(pod: Json) -> list[Json]:
    required = (pod["spec"].get("affinity") or {}).get("nodeAffinity", {})
    found: list[Json] = required.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return found


def pin(host: str) -> Json:
    return {"key": "metadata.name", "operator": "In", "values": [host]}


def required(*terms: Json) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def rules_of(pod: Json) -> Json:
    return {key: pod["spec"][key] for key in ("nodeSelector", "affinity") if key in pod["spec"]}


def grown(pod: Json) -> Json:
    """The pod with a container that another webhook has injected."""
    pod = copy.deepcopy(pod)
    pod["spec"]["containers"].append({"name": "proxy", "resources": {"requests": {"cpu": "100m"}}})
    return pod


def is_held(pod: Json) -> bool:
    annotations = pod["metadata"].get("annotations") or {}
    return names.GATE in gates(pod) and not annotations.keys() & {names.DOMAIN_PATH, names.RANK} and not terms(pod)


def placed_view(hosts: Sequence[str] = HOSTS, **more: Any) -> FakeView:
    return gang_view(JOB, hosts, **more)


def test_a_pod_of_a_placed_gang_is_pinned_to_the_slot_of_its_rank_and_released() -> None:
    pod = created(raw_pod(JOB, index=2), placed_view())
    assert gates(pod) == []
    assert terms(pod) == [{"matchFields": [pin("b0-r0-h2")]}]
    assert pod["spec"]["nodeSelector"] == DOMAIN_LABELS
    assert pod["metadata"]["annotations"] == {
        names.PLACEMENT: GANG,
        names.REVISION: "1",
        names.DOMAIN_PATH: "b0/b0-r0/b0-r0-h2",
        names.RANK: "2",
    }
    assert pod["metadata"]["labels"] == {
        names.MANAGED: "true",
        names.POD_SET: "main",
        names.GANG: GANG,
        names.POD_GROUP_NAME: GANG,
        names.POD_GROUP_MIN: "4",
        names.COMPLETION_INDEX: "2",
    }


def test_the_pin_goes_into_every_term_of_the_users_affinity() -> None:
    first = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    second = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}], "matchFields": []}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [first, second]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": first}],
        },
        "podAffinity": {},
    }
    pod = created(raw_pod(JOB, affinity=affinity), placed_view())
    assert terms(pod) == [first | {"matchFields": [pin("b0-r0-h0")]}, second | {"matchFields": [pin("b0-r0-h0")]}]
    assert pod["spec"]["affinity"]["podAffinity"] == {}
    assert "preferredDuringSchedulingIgnoredDuringExecution" in pod["spec"]["affinity"]["nodeAffinity"]


def test_a_node_selector_key_of_the_user_is_never_touched() -> None:
    mine = {"cloud.provider.com/topology-block": "b0", "disk": "ssd"}
    nodes = [replace(node, labels={**node.labels, "disk": "ssd"}) for node in NODES]
    job = live(rack_job(pod_spec={"nodeSelector": mine}))
    pod = raw_pod(job, nodeSelector=mine)
    answer = mutate(review(pod), gang_view(job, HOSTS, nodes=nodes), 0.0)
    assert apply(pod, answer)["spec"]["nodeSelector"] == mine | DOMAIN_LABELS
    assert not any(one["path"].endswith("topology-block") for one in answer.patch)


@pytest.mark.parametrize(("labelled", "held"), [(HOSTS, False), (HOSTS[:2], True), (HOSTS[1:], True)])
def test_a_pod_with_a_selector_of_admission_waits_if_that_excludes_any_host_of_the_gang(
    labelled: Sequence[str], held: bool
) -> None:
    """The other pods get it too: none starts before the leader has planned for it. Its own host may be a good one."""
    zone = {"zone": "a"}
    nodes = [replace(one, labels={**one.labels, **(zone if one.name in labelled else {})}) for one in NODES]
    pod = created(raw_pod(JOB, nodeSelector=zone), placed_view(nodes=nodes))
    assert is_held(pod) == held
    if not held:
        assert created(pod, placed_view(nodes=nodes)) == pod
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}]}}
    pod = created(raw_pod(JOB, affinity={"nodeAffinity": affinity}), placed_view(nodes=nodes))
    assert (names.GATE in gates(pod)) == held
    if not held:
        assert created(pod, placed_view(nodes=nodes)) == pod


def test_a_pinned_pod_again_gives_no_patch() -> None:
    pod = created(raw_pod(JOB), placed_view())
    assert mutate(review(pod), placed_view(), 0.0).patch == ()


def test_a_pod_of_a_waiting_gang_is_held_with_its_gang_named() -> None:
    pod = created(raw_pod(JOB), placed_view(()))
    assert is_held(pod)
    assert pod["metadata"]["labels"][names.GANG] == GANG


def test_a_held_pod_again_gives_no_patch() -> None:
    pod = created(raw_pod(JOB), placed_view(()))
    assert mutate(review(pod), placed_view(()), 0.0).patch == ()


def test_a_pod_without_a_placement_is_held_under_the_name_that_its_placement_will_have() -> None:
    pod = created(raw_pod(JOB), FakeView(workloads=[workload(JOB)]))
    assert is_held(pod)
    assert pod["metadata"]["labels"][names.GANG] == GANG


def test_a_pod_that_asks_but_has_no_gate_is_held() -> None:
    job = live(raw_job(template={names.REQUIRE: "rack"}))
    pod = raw_pod(job, labels={}, annotations={names.REQUIRE: "rack"}, gates=())
    pod = created(pod, gang_view(job))
    assert is_held(pod)
    assert pod["metadata"]["labels"][names.MANAGED] == "true"


@pytest.mark.parametrize("index", [None, 4, 100])
def test_a_pod_of_unknown_rank_is_held(index: int | None) -> None:
    assert is_held(created(raw_pod(JOB, index=index), placed_view()))


@pytest.mark.parametrize("label", ["-1", "1.0", "0x1", "", "9" * 30, "\u0661"])
def test_a_rank_that_is_no_number_is_unknown(label: str) -> None:
    pod = raw_pod(JOB)
    pod["metadata"]["labels"][names.COMPLETION_INDEX] = label
    assert is_held(created(pod, placed_view()))


def test_a_pod_of_a_nonindexed_job_is_held_for_the_leader() -> None:
    job = live(rack_job(completionMode="NonIndexed"))
    assert is_held(created(raw_pod(job), gang_view(job, HOSTS)))


def test_a_pod_of_a_job_with_more_completions_than_pods_at_a_time_is_held_for_the_leader() -> None:
    """Any free slot will do for an index: two who give slots away would give one twice."""
    view = placed_view()
    view.workloads = [changed(view.workloads[0], total=2 * view.workloads[0].slots)]
    assert is_held(created(raw_pod(JOB), view))


def test_a_pod_larger_than_planned_is_held() -> None:
    pod = raw_pod(JOB)
    pod["spec"]["initContainers"] = [
        {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    ]
    assert is_held(created(pod, placed_view()))


def test_a_pod_smaller_than_planned_is_pinned() -> None:
    pod = raw_pod(JOB)
    pod["spec"]["containers"] = [gpu_container(4)]
    assert gates(created(pod, placed_view())) == []


def test_a_pod_with_a_foreign_gate_is_held() -> None:
    pod = created(raw_pod(JOB, gates=("example.com/quota", names.GATE)), placed_view())
    assert gates(pod) == ["example.com/quota", names.GATE]
    assert is_held(pod)


@pytest.mark.parametrize(
    "trouble",
    [
        {"unschedulable": True},
        {"ready": False},
        {"taints": (Taint("maintenance", "", "NoSchedule"),)},
    ],
)
def test_a_pod_whose_host_takes_none_at_the_moment_is_held(trouble: dict[str, Any]) -> None:
    nodes = [replace(node, **trouble) if node.name == HOSTS[0] else node for node in NODES]
    assert is_held(created(raw_pod(JOB), placed_view(nodes=nodes)))


def test_a_pod_whose_host_is_gone_is_held() -> None:
    assert is_held(created(raw_pod(JOB), placed_view(nodes=[one for one in NODES if one.name != HOSTS[0]])))


@pytest.mark.parametrize(
    "state",
    [
        {"finished": True},
        {"deleting": True},
        {"suspended": True},
        {"finished_ranks": ((0, 1),)},
    ],
)
def test_a_pod_whose_slot_has_been_given_back_is_held(state: dict[str, Any]) -> None:
    view = placed_view()
    view.workloads = [changed(view.workloads[0], **state)]
    assert is_held(created(raw_pod(JOB), view))


def test_a_pod_that_comes_before_the_resume_is_seen_is_pinned() -> None:
    view = placed_view()
    held = {names.REQUIRE: "rack", names.HELD_BY: "suspend"}
    view.workloads = [replace(view.workloads[0], suspended=True, annotations=held)]
    assert gates(created(raw_pod(JOB), view)) == []


def test_a_second_claimant_of_a_rank_is_held() -> None:
    assert is_held(created(raw_pod(JOB), placed_view(claimed=frozenset({0}))))


def test_a_pod_whose_room_others_took_is_held() -> None:
    """The rest of its gang goes on."""
    view = placed_view(taken=frozenset({HOSTS[0]}))
    assert is_held(created(raw_pod(JOB), view))
    assert gates(created(raw_pod(JOB, index=1), view)) == []


def test_a_pod_of_a_newer_revision_waits_for_it_and_takes_it() -> None:
    owner = workload(JOB)
    view = placed_view(late=[placed(owner, ("b1-r0-h0",) * 1 + HOSTS[1:], revision=3)])
    pod = created(raw_pod(JOB, annotations={names.REVISION: "3", names.PLACEMENT: GANG}), view)
    assert terms(pod) == [{"matchFields": [pin("b1-r0-h0")]}]
    assert pod["metadata"]["annotations"][names.REVISION] == "3"


def test_a_pod_of_a_revision_that_does_not_come_is_held() -> None:
    pod = created(raw_pod(JOB, annotations={names.REVISION: "3"}), placed_view())
    assert is_held(pod)
    assert pod["metadata"]["annotations"] == {names.REVISION: "3"}


def test_a_pod_of_a_placed_gang_waits_for_an_owner_that_is_as_new_as_itself() -> None:
    """The Job in an AppWrapper is made when that is resumed, and its pods follow at once."""
    view = FakeView(newcomers=[workload(JOB)], placements=[placed(workload(JOB), HOSTS)])
    pod = created(raw_pod(JOB, annotations={names.REVISION: "1"}), view)
    assert (gates(pod), terms(pod)) == ([], [{"matchFields": [pin("b0-r0-h0")]}])


@pytest.mark.parametrize(("annotations", "comes"), [({}, True), ({names.REVISION: "1"}, False)])
def test_a_pod_does_not_wait_for_an_owner_in_vain(annotations: dict[str, str], comes: bool) -> None:
    """One whose template names no placement can only be held; and nobody waits for ever."""
    newcomers = [workload(JOB)] if comes else []
    view = FakeView(newcomers=newcomers, placements=[placed(workload(JOB), HOSTS)])
    assert is_held(created(raw_pod(JOB, annotations=annotations), view))
    assert list(view.workloads) == []


@pytest.mark.parametrize("revision", ["-1", "x", "9" * 40, "1.5"])
def test_a_revision_that_is_no_number_holds_the_pod(revision: str) -> None:
    assert is_held(created(raw_pod(JOB, annotations={names.REVISION: revision}), placed_view()))


def test_a_newer_placement_than_the_template_names_is_used() -> None:
    view = FakeView(workloads=[workload(JOB)], placements=[placed(workload(JOB), HOSTS, revision=7)])
    pod = created(raw_pod(JOB, annotations={names.REVISION: "5"}), view)
    assert pod["metadata"]["annotations"][names.REVISION] == "7"


@pytest.mark.parametrize(("revision", "held"), [(None, True), ("1", True), ("2", False)])
def test_a_pod_of_a_pod_group_is_pinned_only_if_its_template_names_the_revision_in_force(
    revision: str | None, held: bool
) -> None:
    """The template gets it after all Placements of the group are written; the leader releases any other pod."""
    job = live(raw_job({names.REQUIRE: "rack", names.POD_GROUP: "g", names.MIN_AVAILABLE: "8"}))
    owner = replace(workload(job), namespace="ml")
    view = FakeView(workloads=[owner], placements=[placed(owner, HOSTS, revision=2)])
    pod = created(raw_pod(job, annotations={names.REVISION: revision} if revision else None), view)
    assert is_held(pod) is held


def test_a_pod_that_grew_after_it_was_pinned_is_held_again_and_the_pin_is_gone() -> None:
    selector = {"disk": "ssd"}
    nodes = [replace(node, labels={**node.labels, **selector}) for node in NODES]
    job = live(rack_job(pod_spec={"nodeSelector": selector}))
    view = gang_view(job, HOSTS, nodes=nodes)
    pod = created(raw_pod(job, nodeSelector=selector), view)
    assert gates(pod) == []
    pod["spec"]["containers"].append({"name": "proxy", "resources": {"requests": {"cpu": "100m"}}})
    pod = created(pod, view)
    assert is_held(pod)
    assert pod["spec"]["nodeSelector"] == selector
    assert mutate(review(pod), view, 0.0).patch == ()


def test_unpinning_keeps_a_domain_that_the_user_chose_himself() -> None:
    selector = {"cloud.provider.com/topology-block": "b0"}
    job = live(rack_job(pod_spec={"nodeSelector": selector}))
    view = gang_view(job, HOSTS)
    pod = created(raw_pod(job, nodeSelector=selector), view)
    pod["spec"]["containers"].append({"name": "proxy", "resources": {"requests": {"cpu": "100m"}}})
    assert created(pod, view)["spec"]["nodeSelector"] == selector


OWN_RULES: dict[str, Json] = {
    "a label of a domain": {"nodeSelector": {"cloud.provider.com/topology-block": "b0"}},
    "all labels of the domains": {"nodeSelector": DOMAIN_LABELS},
    "the host": {"affinity": required({"matchFields": [pin(HOSTS[0])]})},
    "the host in one of two terms": {
        "affinity": required({"matchExpressions": [HOST], "matchFields": [pin(HOSTS[0])]}, {"matchExpressions": [HOST]})
    },
}


@pytest.mark.parametrize("rules", OWN_RULES.values(), ids=OWN_RULES)
def test_a_pod_with_rules_that_equal_its_pin_is_left_to_the_leader(rules: Json) -> None:
    """A namespace's node selector, or another webhook's affinity: nobody could tell them from our pin afterwards."""
    pod = created(raw_pod(JOB, **copy.deepcopy(rules)), placed_view())
    assert gates(pod) == [names.GATE]
    assert rules_of(pod) == rules
    pod = created(grown(pod), placed_view())
    assert rules_of(pod) == rules
    assert mutate(review(pod), placed_view(), 0.0).patch == ()


def test_a_selector_of_admission_that_the_gang_is_planned_with_holds_no_pod_and_outlives_the_pin() -> None:
    """The leader has seen it on a pod that is held."""
    selector = {"cloud.provider.com/topology-block": "b0"}
    planned = replace(workload(JOB).template.shape, node_selector=tuple(selector.items()))
    view = placed_view(planned=planned)
    pod = created(raw_pod(JOB, nodeSelector=selector), view)
    assert (gates(pod), pod["spec"]["nodeSelector"]) == ([], DOMAIN_LABELS)
    pod = created(grown(pod), view)
    assert is_held(pod)
    assert pod["spec"]["nodeSelector"] == selector


@pytest.mark.parametrize("rules", OWN_RULES.values(), ids=OWN_RULES)
def test_a_pod_without_a_workload_keeps_its_rules_whatever_marks_come_with_it(rules: Json) -> None:
    """The leader alone pins such pods: at their creation what looks like a pin is a rule of the user's."""
    marks = {names.REQUIRE: "rack", names.DOMAIN_PATH: f"b0/b0-r0/{HOSTS[0]}"}
    pod = created(raw_pod(annotations=marks, gates=(), **copy.deepcopy(rules)), FakeView())
    assert gates(pod) == [names.GATE]
    assert names.DOMAIN_PATH not in pod["metadata"]["annotations"]
    assert rules_of(pod) == rules
    assert mutate(review(pod), FakeView(), 0.0).patch == ()


@pytest.mark.parametrize("known", ["waits", "placed elsewhere", "unknown"])
@pytest.mark.parametrize("rules", OWN_RULES.values(), ids=OWN_RULES)
def test_a_forged_domain_takes_no_rule_from_a_pod_of_a_gang_without_a_slot_there(rules: Json, known: str) -> None:
    """Rules that other webhooks have added, for which the API server does not call them again."""
    views = {"waits": gang_view(JOB), "placed elsewhere": gang_view(JOB, HOSTS[1:]), "unknown": FakeView()}
    marks = {names.DOMAIN_PATH: f"b0/b0-r0/{HOSTS[0]}"}
    pod = created(raw_pod(JOB, index=9, annotations=marks, gates=(), **copy.deepcopy(rules)), views[known])
    assert gates(pod) == [names.GATE]
    assert rules_of(pod) == rules


def test_a_pin_that_is_none_takes_no_term_away() -> None:
    """Somebody writes our annotation himself: his own empty term matches nothing, and goes on doing so."""
    nothing = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}
    pod = raw_pod(annotations={names.DOMAIN_PATH: "", names.REQUIRE: "rack"}, affinity=nothing, gates=())
    held = created(pod, FakeView())
    assert held["spec"]["affinity"] == nothing
    assert gates(held) == [names.GATE]
    assert mutate(review(held), FakeView(), 0.0).patch == ()


def test_unpinning_keeps_the_users_own_terms() -> None:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    pod = created(raw_pod(JOB, affinity=affinity), placed_view())
    pod["spec"]["containers"].append({"name": "proxy", "resources": {"requests": {"cpu": "100m"}}})
    pod = created(pod, placed_view())
    assert names.GATE in gates(pod)
    assert terms(pod) == [term | {"matchFields": []}]


def test_the_users_own_pod_group_labels_stay() -> None:
    pod = raw_pod(JOB)
    pod["metadata"]["labels"][names.POD_GROUP_NAME] = "mine"
    labels = created(pod, placed_view())["metadata"]["labels"]
    assert labels[names.POD_GROUP_NAME] == "mine"
    assert names.POD_GROUP_MIN not in labels


def test_pod_group_labels_can_be_turned_off() -> None:
    policy = with_policy(pod_group=with_policy().pod_group.model_copy(update={"labels": "none"}))
    assert names.POD_GROUP_NAME not in created(raw_pod(JOB), placed_view(policy=policy))["metadata"]["labels"]


def styled(style: str) -> Policy:
    return with_policy(pod_group=with_policy().pod_group.model_copy(update={"labels": style}))


@pytest.mark.parametrize(
    ("style", "labels", "annotations"),
    [
        ("coscheduling", {names.POD_GROUP_NAME: GANG, names.POD_GROUP_MIN: "4"}, {}),
        ("scheduler-plugins", {names.SCHEDULER_PLUGINS_POD_GROUP: GANG}, {}),
        ("koordinator", {}, {names.KOORDINATOR_GANG_NAME: GANG, names.KOORDINATOR_GANG_MIN: "4"}),
        ("none", {}, {}),
    ],
)
def test_pods_get_the_pod_group_of_the_policy_s_style(
    style: str, labels: dict[str, str], annotations: dict[str, str]
) -> None:
    """Those marks and no others, each time the same."""
    view = placed_view(policy=styled(style))
    pod = created(raw_pod(JOB), view)
    marks = {names.POD_GROUP_NAME, names.POD_GROUP_MIN, names.SCHEDULER_PLUGINS_POD_GROUP}
    assert {key: value for key, value in pod["metadata"]["labels"].items() if key in marks} == labels
    gang = {names.KOORDINATOR_GANG_NAME, names.KOORDINATOR_GANG_MIN}
    assert {key: value for key, value in pod["metadata"]["annotations"].items() if key in gang} == annotations
    assert created(copy.deepcopy(pod), view) == pod


@pytest.mark.parametrize("style", ["coscheduling", "scheduler-plugins", "koordinator"])
@pytest.mark.parametrize(
    ("where", "key"),
    [
        ("labels", names.POD_GROUP_NAME),
        ("labels", names.POD_GROUP_MIN),
        ("labels", names.SCHEDULER_PLUGINS_POD_GROUP),
        ("annotations", names.KOORDINATOR_GANG_NAME),
    ],
)
def test_a_pod_group_of_the_user_s_own_stays_alone(style: str, where: str, key: str) -> None:
    """In whatever style it is and whatever the policy's: two groups would contradict each other."""
    pod = raw_pod(JOB)
    pod["metadata"].setdefault(where, {})[key] = "7"
    made = created(pod, placed_view(policy=styled(style)))
    said = {**made["metadata"]["labels"], **made["metadata"]["annotations"]}
    groups = ("pod-group.", "scheduling.x-k8s.io/", "gang.scheduling.")
    assert [one for one in said if one.startswith(groups)] == [key]
    assert said[key] == "7"


FORGED = {names.DOMAIN_PATH: "b0/b0-r0/b0-r0-h0", names.RANK: "0", names.PLACEMENT: GANG, names.REVISION: "1"}


def test_a_bare_pod_with_forged_labels_is_freed_of_them_and_gains_nothing() -> None:
    pod = raw_pod(labels={names.MANAGED: "true", names.POD_SET: "main", names.GANG: GANG, "app": "x"})
    pod["metadata"]["annotations"] = dict(FORGED)
    pod = created(pod, placed_view())
    assert (gates(pod), terms(pod)) == ([], [])
    assert pod["metadata"]["labels"] == {"app": "x"}
    assert pod["metadata"]["annotations"] == {}


def test_a_bare_pod_with_only_our_gate_is_not_stuck() -> None:
    assert gates(created(raw_pod(gates=("other", names.GATE)), FakeView())) == ["other"]


def test_a_pod_of_an_unregistered_owner_is_freed() -> None:
    pod = raw_pod(JOB)
    pod["metadata"]["ownerReferences"][0] |= {"apiVersion": "example.com/v1", "kind": "Thing"}
    assert gates(created(pod, placed_view())) == []


@pytest.mark.parametrize(
    "owner",
    [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet"},
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"},
        {"apiVersion": "v1", "kind": "Pod"},
    ],
)
def test_a_managed_pod_of_an_owner_that_is_not_known_yet_is_held(owner: dict[str, str]) -> None:
    """Its owner was made before it, and the cache may show it later."""
    pod = raw_pod(JOB)
    pod["metadata"]["ownerReferences"][0] |= owner
    assert is_held(created(pod, placed_view()))


def test_an_unmarked_pod_of_an_owner_that_is_not_known_yet_is_left_alone() -> None:
    pod = raw_pod(JOB, gates=(), labels={})
    pod["metadata"]["ownerReferences"][0] |= {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    assert gates(created(pod, placed_view())) == []


def test_a_job_of_another_api_group_is_no_job() -> None:
    pod = raw_pod(JOB)
    pod["metadata"]["ownerReferences"][0]["apiVersion"] = "batch.volcano.sh/v1alpha1"
    pod = created(pod, placed_view())
    assert (is_held(pod), terms(pod)) == (True, [])


@pytest.mark.parametrize("change", [{"uid": "another"}, {"name": "another"}])
def test_an_owner_reference_that_does_not_fit_gets_no_slot(change: dict[str, str]) -> None:
    pod = raw_pod(JOB, annotations=FORGED)
    pod["metadata"]["ownerReferences"][0] |= change
    pod["metadata"]["labels"][names.GANG] = GANG
    pod = created(pod, placed_view())
    assert is_held(pod)
    assert names.GANG not in pod["metadata"]["labels"]


def test_an_owner_reference_that_is_no_controllers_gets_no_slot() -> None:
    pod = raw_pod(JOB)
    pod["metadata"]["ownerReferences"][0]["controller"] = False
    assert names.GANG not in (created(pod, placed_view())["metadata"].get("labels") or {})


def test_the_workload_of_another_namespace_gives_no_slot() -> None:
    pod = raw_pod(JOB)
    pod["metadata"]["namespace"] = "other"
    pod = created(pod, placed_view(), namespace="other")
    assert is_held(pod)
    assert names.GANG not in pod["metadata"]["labels"]


def test_a_placement_of_another_namespace_gives_no_slot() -> None:
    view = placed_view()
    view.placements = [replace(view.placements[0], namespace="other")]
    assert is_held(created(raw_pod(JOB), view))


def test_a_pod_of_a_job_that_asks_no_more_is_released() -> None:
    job = live(raw_job())
    pod = created(raw_pod(job), gang_view(job))
    assert gates(pod) == []
    assert pod["metadata"]["labels"] == {names.COMPLETION_INDEX: "0"}


def test_a_pod_of_a_job_whose_request_became_invalid_is_held() -> None:
    job = live(raw_job({names.REQUIRE: "gone"}))
    assert is_held(created(raw_pod(job), gang_view(job, HOSTS)))


def test_a_pod_that_kueue_has_is_left_to_it_while_its_job_is_unknown() -> None:
    pod = raw_pod(JOB, labels={}, annotations={"kueue.x-k8s.io/podset-required-topology": "rack"})
    pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]
    assert mutate(review(pod), FakeView(), 0.0).patch == ()


@pytest.mark.parametrize(
    "of_others",
    [
        {"schedulerName": "koord-scheduler"},
        {"schedulingGroup": {"podGroupName": "g"}},
        {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}},
    ],
)
def test_a_pod_that_others_place_is_left_to_them_while_its_job_is_unknown(of_others: Json) -> None:
    """It is sent for its GPUs alone: whatever its Job requests, it is not placed here."""
    shared = {"name": "m", "resources": {"limits": {"koordinator.sh/gpu-core": "50"}}}
    pod = raw_pod(JOB, labels={}, gates=(), containers=[shared], **of_others)
    assert mutate(review(pod), FakeView(), 0.0).patch == ()
    asking = raw_pod(JOB, labels={}, gates=(), **of_others)
    asking["metadata"].setdefault("annotations", {})[names.REQUIRE] = "rack"
    assert mutate(review(asking), FakeView(), 0.0).patch == ()


def test_a_marked_pod_of_another_scheduler_is_held_while_its_job_is_unknown() -> None:
    """Its Job may be ours: a mutating webhook can have changed the pod alone."""
    assert is_held(created(raw_pod(JOB, schedulerName="koord-scheduler"), FakeView()))


def test_static_pods_and_pods_that_have_their_node_are_left_alone() -> None:
    mirror = raw_pod(JOB, annotations={"kubernetes.io/config.mirror": "x"}, nodeName="n1")
    assert mutate(review(mirror), placed_view(), 0.0).patch == ()
    assert mutate(review(raw_pod(JOB, labels={}, gates=(), nodeName="n1")), placed_view(), 0.0).patch == ()


@pytest.mark.parametrize("owner", [None, JOB])
def test_a_pod_that_has_its_node_keeps_no_mark_of_ours(owner: Json | None) -> None:
    """With our label the API server would not send it to `/validate`, which refuses devices of the user's choice."""
    chosen = {names.DEVICE_ALLOCATED: '{"gpu":[{"minor":0}]}'}
    pod = raw_pod(owner, labels={names.MANAGED: "true", "app": "x"}, annotations=chosen, gates=(), nodeName="n1")
    after = created(pod, placed_view())
    assert names.MANAGED not in after["metadata"]["labels"]
    assert after["metadata"]["labels"]["app"] == "x"
    assert validate(review(after), placed_view(), 0.0).code == 422


def test_pods_in_exempt_namespaces_are_never_held() -> None:
    pod = raw_pod(JOB)
    assert gates(created(pod, placed_view(), namespace="kube-system")) == []


def test_a_pod_that_is_not_ours_is_not_touched() -> None:
    assert mutate(review(raw_pod(labels={"app": "x"}, gates=())), FakeView(), 0.0).patch == ()


@pytest.mark.parametrize("asks", [False, True])
def test_a_pod_without_a_mark_waits_a_moment_for_its_job_instead_of_being_held(asks: bool) -> None:
    """It is sent for its GPUs alone, and created before its Job is in the cache; the Job says whether it is ours."""
    job = live(rack_job() if asks else raw_job())
    half = {"name": "main", "image": "x", "resources": {"limits": {GPU: "50"}}}
    pod = raw_pod(job, labels={}, gates=(), containers=[half])
    reported = Reported(frozenset({CORE, RATIO}))
    seen = created(copy.deepcopy(pod), FakeView(newcomers=[workload(job)], reported=reported))
    assert is_held(seen) is asks
    if not asks:
        assert seen["spec"]["containers"][0]["resources"]["limits"] == {CORE: "50", RATIO: "50"}
    assert is_held(created(pod, FakeView(reported=reported)))


def test_a_single_pod_keeps_its_mark_when_it_is_sent_again() -> None:
    """The API server calls again when another webhook has changed the pod; its GPUs have other names by then."""
    view = FakeView(reported=Reported(frozenset({CORE, MEMORY}), memory=80 * 2**30))
    once = created(raw_pod(annotations={names.REQUIRE: "rack"}, gates=()), view)
    assert CORE in once["spec"]["containers"][0]["resources"]["limits"]
    assert once["metadata"]["labels"][names.POD_SET].startswith("single-")
    assert mutate(review(once), view, 0.0).patch == ()


def test_our_own_pods_are_left_alone() -> None:
    assert mutate(review(raw_pod(JOB), user=US), placed_view(), 0.0).patch == ()


def test_the_review_is_not_changed_by_answering_it() -> None:
    pod = raw_pod(JOB)
    before = copy.deepcopy(pod)
    view = placed_view()
    request = review(pod)
    assert mutate(request, view, 0.0) == mutate(request, view, 0.0)
    assert pod == before


def test_a_pod_does_not_follow_its_host_into_another_rack() -> None:
    """The host's labels were changed under the gang: the required level holds, so the pod is held."""
    moved = replace(NODES[2], labels={**NODES[2].labels, "cloud.provider.com/topology-rack": "b0-r9"})
    view = placed_view(nodes=[*NODES[:2], moved, *NODES[3:]])
    assert is_held(created(raw_pod(JOB, index=2), view))
    assert not is_held(created(raw_pod(JOB, index=1), view))


GROUP = {names.POD_GROUP_NAME: "g", names.POD_GROUP_MIN: "2"}
KOORDINATOR_GANG = {names.KOORDINATOR_GANG_NAME: "g", names.KOORDINATOR_GANG_MIN: "2"}


@pytest.mark.parametrize(("labels", "annotations"), [(GROUP, {}), ({}, KOORDINATOR_GANG)])
def test_a_bare_pod_of_a_pod_group_is_held_with_its_group_written_down(
    labels: dict[str, str], annotations: dict[str, str]
) -> None:
    """So that the labels of its gang, which are put beside the user's, do not hide who asked."""
    pod = created(raw_pod(labels=labels, annotations=annotations, gates=()), FakeView())
    assert gates(pod) == [names.GATE]
    assert (
        pod["metadata"]["annotations"] | {names.POD_GROUP: "g", names.MIN_AVAILABLE: "2"}
        == (pod["metadata"]["annotations"])
    )
    assert pod["metadata"]["labels"].items() >= labels.items()
    assert pod["metadata"]["labels"][names.GANG].startswith("pods-g-")
    assert mutate(review(pod), FakeView(), 0.0).patch == ()


def test_a_bare_pod_that_names_a_pod_group_object_is_held_until_that_says_how_many() -> None:
    pod = created(raw_pod(labels={names.SCHEDULER_PLUGINS_POD_GROUP: "g"}, gates=()), FakeView())
    assert gates(pod) == [names.GATE]
    assert pod["metadata"]["annotations"][names.POD_GROUP] == "g"
    assert validate(review(pod), FakeView(), 0.0).allowed


@pytest.mark.parametrize(
    "pod",
    [
        raw_pod(labels={names.POD_GROUP_NAME: "g"}, gates=()),
        raw_pod(labels={**GROUP, names.POD_GROUP_MIN: "x"}, gates=()),
        raw_pod(labels={**GROUP, names.POD_GROUP_NAME: ""}, gates=()),
        raw_pod(labels={names.SCHEDULER_PLUGINS_POD_GROUP: ""}, gates=()),
        raw_pod(annotations={names.KOORDINATOR_GANG_NAME: "", names.KOORDINATOR_GANG_MIN: "4"}, gates=()),
        raw_pod(
            labels={names.SCHEDULER_PLUGINS_POD_GROUP: ""}, annotations={names.KOORDINATOR_GANG_NAME: "g"}, gates=()
        ),
        raw_pod(labels=GROUP, annotations={names.UNCONSTRAINED: "false"}, gates=()),
        raw_pod(labels=GROUP, annotations={"kueue.x-k8s.io/podset-unconstrained-topology": "false"}, gates=()),
        raw_pod(labels=GROUP, gates=(), schedulerName="volcano"),
        raw_pod(labels={**GROUP, names.KUEUE_QUEUE: "q"}, gates=()),
        raw_pod(labels=GROUP, gates=(), nodeName="host-000"),
    ],
    ids=[
        "no minimum",
        "no number",
        "no name",
        "no name of a PodGroup object",
        "no name of Koordinator's",
        "no minimum and no name of a PodGroup object",
        "taken back",
        "taken back in Kueue's words",
        "another scheduler",
        "Kueue",
        "a node",
    ],
)
def test_a_pod_group_that_says_nothing_to_us_leaves_the_pod_alone(pod: Json) -> None:
    assert mutate(review(pod), FakeView(), 0.0).patch == ()


def test_a_pod_group_beside_a_request_of_its_own_is_none() -> None:
    """Who asks in our words says all of it there."""
    pod = created(raw_pod(labels=GROUP, annotations={names.REQUIRE: "rack"}, gates=()), FakeView())
    assert names.POD_GROUP not in pod["metadata"]["annotations"]


def test_a_pod_group_is_taken_back_whatever_dialects_are_read() -> None:
    """The match conditions know no policy, and send no such pod."""
    taken_back = {"kueue.x-k8s.io/podset-unconstrained-topology": "false"}
    for dialects in ("[topogate, pod-group]", "[topogate, kueue, pod-group]"):
        view = FakeView(policy=parse_policy(f"annotations: {{dialects: {dialects}}}"))
        assert is_held(created(raw_pod(labels=GROUP, gates=()), view))
        assert mutate(review(raw_pod(labels=GROUP, annotations=taken_back, gates=())), view, 0.0).patch == ()


def test_pod_groups_are_no_request_where_they_are_no_dialect() -> None:
    """Nor without our own dialect: what would be written is not read."""
    for dialects in ("[topogate]", "[kueue, pod-group]"):
        off = FakeView(policy=parse_policy(f"annotations: {{dialects: {dialects}}}"))
        assert mutate(review(raw_pod(labels=GROUP, gates=())), off, 0.0).patch == ()
