"""`/validate` on the policy ConfigMap."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from engine.api import names
from engine.api.placement import Placement
from engine.policy.model import parse_policy
from tests.support.admission import FakeView, Json, review
from tests.support.cluster_records import job, placement
from tests.support.simulation import BLOCK
from webhook.admission.review import BadReview, Response
from webhook.handlers.validate import validate
from webhook.rules.policy_effect import policy_effects


def config(text: str | None, *, name: str = names.POLICY_NAME) -> Json:
    data = {} if text is None else {names.POLICY_KEY: text}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def check(obj: Json, view: FakeView | None = None, **more: Any) -> Response:
    request = {"namespace": "topogate-system", "name": obj["metadata"]["name"], **more}
    return validate(review(obj, **request), view or FakeView(), 0.0)


def test_a_good_policy_passes() -> None:
    assert check(config("mode: enforce\ntopologies: [{name: default, preset: demo}]")).allowed


def test_a_policy_for_other_nodes_is_warned_about() -> None:
    """A topology that takes none of the nodes says why, and what no node has; the policy is good all the same."""
    answer = check(
        config(
            "topologies: [{name: a, preset: demo}, {name: b, preset: gke},"
            " {name: c, preset: demo, nodeSelector: {pool: x}}]"
        )
    )
    assert answer.allowed
    assert answer.warnings == (
        "topology b matches no node: no node of 16 has a label of level block (cloud.google.com/gce-topology-block)",
        "topology c matches no node: no node of 16 has the labels of its nodeSelector",
    )


@pytest.mark.parametrize(
    ("said", "field", "message"),
    [
        ("topogate.dev/prefer-topology: zone", "prefer-topology", '"zone": allowed: block, rack, host, auto'),
        (
            "topogate.dev/require-topology: rack, topogate.dev/prefer-topology: block",
            "prefer-topology",
            '"block": must',
        ),
        ("topogate.dev/require-topology: rack, topogate.dev/topology: x", "topology", '"x": allowed: default'),
        ("topogate.dev/relax-after: 10m", "require-topology", "topogate.dev/relax-after also needs a level"),
    ],
)
def test_a_default_that_no_workload_can_carry_is_refused_with_the_policy(said: str, field: str, message: str) -> None:
    """Levels are known where the nodes are: a default that names none of them would stand against its namespaces."""
    answer = check(config(f"namespaces: {{defaults: [{{namespaces: [a], annotations: {{{said}}}}}]}}"))
    assert [cause.field for cause in answer.causes] == [
        f"data[policy.yaml].namespaces.defaults[0].annotations[topogate.dev/{field}]"
    ]
    assert answer.causes[0].message.partition(": ")[2].startswith(message)


def test_a_default_for_one_of_several_topologies_passes() -> None:
    """Workloads choose the topology by their nodeSelector: a level of any of them is one that can be met."""
    text = """
        topologies:
        - {name: a, preset: demo, nodeSelector: {pool: a}}
        - {name: b, levels: [{name: hall, keys: [example.com/hall]}], nodeSelector: {pool: b}}
        namespaces: {defaults: [{namespaces: [a], annotations: {topogate.dev/prefer-topology: hall}}]}
    """
    assert check(config(text)).allowed


def test_before_the_nodes_are_known_a_default_of_any_preset_passes() -> None:
    """What cannot be judged yet is left to when workloads come, where it is left out if need be."""
    text = "namespaces: {defaults: [{namespaces: [a], annotations: {topogate.dev/prefer-topology: zone}}]}"
    assert check(config(text), FakeView(nodes=())).allowed


def test_a_bad_policy_is_refused_with_every_error_by_its_path() -> None:
    answer = check(config("mode: maybe\nqueue: {maxGangPods: -1}\n"))
    assert answer.code == 422
    assert [cause.field for cause in answer.causes] == ["data[policy.yaml].mode", "data[policy.yaml].queue.maxGangPods"]


def test_text_that_is_no_policy_is_refused_as_a_whole() -> None:
    answer = check(config("- a\n- b\n"))
    assert [cause.field for cause in answer.causes] == ["data[policy.yaml]"]


def test_a_config_map_without_the_key_is_refused() -> None:
    answer = check(config(None))
    assert answer.causes[0].reason == "FieldValueRequired"


def test_a_bad_update_is_refused_too() -> None:
    assert not check(config("mode: maybe"), old=config("mode: off")).allowed


def test_a_policy_is_checked_before_any_is_loaded() -> None:
    assert not check(config("mode: maybe"), FakeView(policy=None)).allowed


@pytest.mark.parametrize("more", [{"namespace": "ml"}, {"operation": "DELETE"}])
def test_other_namespaces_and_deletion_pass(more: dict[str, str]) -> None:
    assert check(config("mode: maybe"), **more).allowed


def test_another_config_map_passes() -> None:
    assert check(config("mode: maybe", name="other")).allowed


def test_a_malformed_config_map_is_a_bad_review() -> None:
    with pytest.raises(BadReview):
        check({"kind": "ConfigMap", "metadata": {"name": names.POLICY_NAME}, "data": ["x"]})


def test_a_rule_without_an_effect_is_warned_about() -> None:
    """An earlier rule matches all of its namespaces; the policy is good all the same."""
    rules = "{namespaces: [a-*]}, {namespaces: [a-b, '*'], allow: false}, {namespaces: [c], levels: [rack]}"
    answer = check(config(f"namespaces: {{rules: [{rules}, {{namespaces: [a-b, c]}}]}}"))
    assert answer.allowed
    assert answer.warnings == (
        "namespaces.rules[2] has no effect: its namespaces match namespaces.rules[1] first",
        "namespaces.rules[3] has no effect: its namespaces match namespaces.rules[0] and namespaces.rules[1] first",
    )


def test_a_level_of_a_rule_that_no_topology_has_is_refused_with_the_policy() -> None:
    """Where no topology is named the nodes tell which levels there are; `zone` is one of other presets."""
    answer = check(config("namespaces: {rules: [{namespaces: [a], levels: [rack, zone]}]}"))
    assert [(cause.field, cause.message.partition(": ")[2]) for cause in answer.causes] == [
        ("data[policy.yaml].namespaces.rules[0].levels[1]", '"zone" is not a level; the levels are block, rack, host')
    ]


def test_a_default_is_checked_under_the_rule_of_its_namespaces() -> None:
    """With the nodes a label key is known to mean the level that the rule lists."""
    default = "defaults: [{namespaces: [a-*], annotations: {topogate.dev/require-topology: %s}}]"
    rules = "rules: [{namespaces: [a*], levels: [cloud.provider.com/topology-rack]}]"
    assert check(config(f"namespaces: {{{default % 'rack'}, {rules}}}")).allowed
    assert not check(config(f"namespaces: {{{default % 'block'}, {rules}}}")).allowed
    apart = "rules: [{namespaces: [a-b], levels: [rack]}]"
    assert check(config(f"namespaces: {{{default % 'block'}, {apart}}}")).allowed


def test_an_entry_that_replaces_a_built_in_one_is_warned_about() -> None:
    """A policy that is older than the built-in entry stays good, and its entry in force."""
    entry = (
        "{name: mine, match: {group: kubeflow.org, versions: [v1], kind: JAXJob, resource: jaxjobs}, "
        "podSets: [{name: {text: main}, template: .spec.template, count: {const: 1}}], "
        "gang: {unit: workload, creation: all-at-once}, replace: {cost: free}}"
    )
    answer = check(config(f"kinds: [{entry}]"))
    assert (answer.allowed, answer.warnings) == (
        True,
        ("kinds[0] replaces the built-in entry jaxjob; remove it to use that",),
    )


def test_weights_without_an_effect_are_warned_about() -> None:
    """They count in fair order only, and only the first that matches a namespace."""
    weights = "weights: [{namespaces: ['*'], weight: 2}, {namespaces: [a], weight: 3}]"
    assert check(config(f"queue: {{fairness: {{mode: namespaces, {weights}}}}}")).warnings == (
        "queue.fairness.weights[1] has no effect: its namespaces match queue.fairness.weights[0] first",
    )
    assert check(config("queue: {fairness: {weights: [{namespaces: [a], weight: 2}]}}")).warnings == (
        "queue.fairness.weights has no effect with mode: none; set queue.fairness.mode: namespaces",
    )


def gangs(require: str = "rack") -> list[Placement]:
    """Two gangs that wait and one with slots in alice, one that waits in bob, and one that has ended."""
    found = []
    for name, namespace, hosts in (
        ("a", "alice", None),
        ("b", "alice", None),
        ("c", "alice", {"h0": 1}),
        ("d", "bob", None),
        ("e", "alice", {"h0": 1}),
    ):
        one = placement(replace(job(name), namespace=namespace), hosts)
        asks = tuple(replace(ask, require=require) for ask in one.pod_sets)
        status = {"phase": "Finished"} if name == "e" else {}
        found.append(replace(one, pod_sets=asks, status=status))
    return found


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        (
            "mode: off",
            ["it lets 3 waiting gangs go and takes the slots of 1, in 2 namespaces"],
        ),
        (
            "namespaces: {modes: [{namespaces: [bob], mode: observe}]}",
            ["it lets 1 waiting gang go and takes the slots of 0, in 1 namespace"],
        ),
        (
            "namespaces: {exempt: [ali*]}",
            ["it lets 2 waiting gangs go and takes the slots of 1, in 1 namespace"],
        ),
        ("mode: hold", ["mode hold: 3 waiting gangs in 2 namespaces will not be placed"]),
        (
            f"topologies: [{{name: default, levels: [{{name: block, keys: [{BLOCK}]}}]}}]",
            [
                'level "rack" of topology default is gone: 3 waiting gangs stay held, 1 with slots cannot be '
                "submitted again"
            ],
        ),
        ("timeouts: {bind: 45s}", []),
    ],
)
def test_a_policy_that_lets_gangs_go_is_taken_with_a_warning(text: str, warnings: list[str]) -> None:
    """In numbers: who may write the policy need not be allowed to see the gangs of all namespaces."""
    answer = check(config(text), FakeView(placements=gangs()))
    listed = ["topogate policy check --cluster lists the gangs"] if warnings else []
    assert (answer.allowed, list(answer.warnings)) == (True, [*warnings, *listed])


def test_what_was_so_before_is_not_warned_about() -> None:
    before = FakeView(policy=parse_policy("mode: off"), placements=gangs())
    assert check(config("{mode: off, timeouts: {bind: 45s}}"), before).warnings == ()
    assert check(config("mode: enforce"), FakeView(placements=gangs(require="gone"))).warnings == ()
    assert check(config("mode: off"), FakeView(policy=None, placements=gangs())).warnings == ()


def test_a_topology_that_is_gone_is_warned_about() -> None:
    answer = check(config("topologies: [{name: other, preset: demo}]"), FakeView(placements=gangs()))
    assert answer.warnings[0].startswith('topology "default" is gone: 3 waiting gangs stay held')


def test_only_levels_that_there_were_are_gone() -> None:
    """Before the nodes have labels no level is known, and gangs ask for what their users like: no news for anybody."""
    view = FakeView()
    known = view.topologies
    waiting = {name: replace(one, waits="no node has its labels") for name, one in known.items()}
    asked = [one for number in range(20) for one in gangs(f"level-{number}")]
    assert view.policy is not None
    told = partial(
        policy_effects,
        asked,
        before=view.policy,
        after=parse_policy("mode: enforce"),
        own_namespace="topogate-system",
    )
    other = {"other": known["default"]}
    assert [*told(topologies=(waiting, known)), *told(topologies=(other, known))] == []
    for before in (waiting, known):
        (gone, _) = told(topologies=(before, other))
        assert gone.startswith('topology "default" is gone')
