"""Understanding what a workload asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from engine.api import names
from engine.api.field import FieldError
from engine.api.objects import Node
from engine.api.placement import Separation
from engine.api.pod import OwnerRef
from engine.gang.request import PlacementRequest, parse_request, request_path
from engine.policy.model import Policy, default_policy
from engine.topology.topology import topologies_of
from tests.support.admission import NODES, raw_job, with_policy, workload
from tests.support.cluster_records import node

KEY = f"metadata.annotations[{names.REQUIRE}]"
TEMPLATE = "spec.template.metadata.annotations"


def read(
    annotations: Mapping[str, str] | None = None,
    *,
    policy: Policy | None = None,
    nodes: Iterable[Node] = NODES,
    **job: Any,
) -> PlacementRequest:
    policy = policy or default_policy()
    return parse_request(
        workload(raw_job(annotations, **job)), policy=policy, topologies=topologies_of(policy.topologies, list(nodes))
    )


def only(found: PlacementRequest) -> FieldError:
    assert found.asked is None
    (error,) = found.errors
    return error


def two_topologies() -> Policy:
    from engine.policy.model import parse_policy

    return parse_policy(
        """
        topologies:
        - {name: gpu, preset: demo, nodeSelector: {pool: gpu}}
        - {name: cpu, levels: [{name: cabinet, keys: [example.com/cabinet]}], nodeSelector: {pool: cpu}}
        """
    )


def test_a_required_level_is_understood_for_the_whole_pod_set() -> None:
    found = read({names.REQUIRE: "rack"})
    assert found.asked is not None
    assert (found.asked.name, found.asked.count, found.asked.min_available) == ("main", 4, 4)
    assert (found.asked.require, found.asked.prefer, found.asked.ranked) == ("rack", None, True)
    assert (found.topology, found.errors, found.ignored) == ("default", (), None)


def test_a_full_label_key_means_its_level() -> None:
    found = read({names.REQUIRE: "cloud.provider.com/topology-rack"})
    assert found.asked is not None
    assert found.asked.require == "rack"


def test_the_hostname_label_means_the_host_level() -> None:
    found = read({names.REQUIRE: "kubernetes.io/hostname"})
    assert found.asked is not None
    assert found.asked.require == "host"


def test_auto_stays_open_for_require_and_is_the_host_level_for_prefer() -> None:
    found = read({names.REQUIRE: "auto", names.PREFER: "auto"})
    assert found.asked is not None
    assert (found.asked.require, found.asked.prefer) == ("auto", "host")


def test_require_and_a_finer_prefer_stand_together() -> None:
    found = read({names.REQUIRE: "block", names.PREFER: "rack"})
    assert found.asked is not None
    assert (found.asked.require, found.asked.prefer) == ("block", "rack")


@pytest.mark.parametrize("prefer", ["block", "cloud.provider.com/topology-block"])
def test_a_prefer_coarser_than_require_contradicts_it(prefer: str) -> None:
    error = only(read({names.REQUIRE: "rack", names.PREFER: prefer}))
    assert (error.reason, error.field) == ("ConflictingAnnotations", f"metadata.annotations[{names.PREFER}]")


@pytest.mark.parametrize(
    "prefer",
    [
        {names.PREFER: "rack"},
        {names.PREFER: "cloud.provider.com/topology-rack"},
        {"kai.scheduler/topology-preferred-placement": "rack"},
    ],
    ids=str,
)
def test_a_prefer_equal_to_require_adds_nothing(prefer: dict[str, str]) -> None:
    """KAI's users write both with one level."""
    found = read({names.REQUIRE: "rack", **prefer})
    assert found.asked is not None
    assert (found.asked.require, found.errors, found.warnings) == ("rack", (), ())


def test_unconstrained_asks_for_all_or_nothing_without_a_level() -> None:
    found = read({names.UNCONSTRAINED: "true"})
    assert found.asked is not None
    assert (found.asked.unconstrained, found.asked.require, found.asked.prefer) == (True, None, None)


def test_unconstrained_false_asks_for_nothing() -> None:
    assert read({names.UNCONSTRAINED: "false"}).ignored == "NoTopologyRequested"


@pytest.mark.parametrize("other", [names.REQUIRE, names.PREFER])
def test_unconstrained_contradicts_a_level(other: str) -> None:
    error = only(read({names.UNCONSTRAINED: "true", other: "rack"}))
    assert error.reason == "ConflictingAnnotations"
    assert other in error.message


def test_no_annotation_asks_for_nothing() -> None:
    found = read()
    assert (found.asked, found.ignored, found.warnings) == (None, "NoTopologyRequested", ())


def test_an_unknown_level_names_the_allowed_ones_and_the_nearest() -> None:
    error = only(read({names.REQUIRE: "rak"}))
    assert error == FieldError(
        field=KEY,
        kind="Unsupported value",
        value="rak",
        reason="UnknownLevel",
        message='allowed: block, rack, host, auto; did you mean "rack"?',
    )


def test_the_level_that_is_found_automatically_is_among_the_allowed_ones() -> None:
    assert only(read({names.REQUIRE: "AUTO"})).message == 'allowed: block, rack, host, auto; did you mean "auto"?'
    slices = {names.SLICE_TOPOLOGY: "auto", names.SLICE_SIZE: "2"}
    assert only(read(slices)).message == "allowed: block, rack, host"


def test_who_writes_a_label_key_is_shown_label_keys() -> None:
    error = only(read({names.REQUIRE: "cloud.provider.com/topology-rak"}))
    assert error.message == (
        "allowed: cloud.provider.com/topology-block, cloud.provider.com/topology-rack, kubernetes.io/hostname; "
        'did you mean "cloud.provider.com/topology-rack"?'
    )


@pytest.mark.parametrize("value", ["rack,block", "rack, block", "block rack", "block|cloud.provider.com/topology-rack"])
def test_two_levels_in_one_value_are_told_that_one_is_allowed(value: str) -> None:
    assert only(read({names.REQUIRE: value})).message.startswith("one level only; allowed: ")


def test_a_level_of_another_topology_is_told_with_its_name() -> None:
    error = only(read({names.REQUIRE: "cabinet"}, policy=two_topologies()))
    assert error.message == (
        "is a level of topology cpu; add topogate.dev/topology: cpu, or use one of block, rack, host, auto"
    )


def test_an_unknown_topology_is_named_with_the_known_ones() -> None:
    error = only(read({names.REQUIRE: "rack", names.TOPOLOGY: "defalt"}))
    assert (error.reason, error.message) == ("UnknownTopology", 'allowed: default; did you mean "default"?')


def test_a_template_annotation_asks_for_its_one_pod_set() -> None:
    found = read(template={names.PREFER: "rack"})
    assert found.asked is not None
    assert found.asked.prefer == "rack"


def test_the_same_on_workload_and_template_is_one_request() -> None:
    found = read({names.REQUIRE: "rack"}, template={names.REQUIRE: "cloud.provider.com/topology-rack"})
    assert found.asked is not None
    assert found.errors == ()


def test_different_levels_on_workload_and_template_conflict() -> None:
    error = only(read({names.REQUIRE: "rack"}, template={names.REQUIRE: "block"}))
    assert (error.reason, error.field) == ("ConflictingAnnotations", f"{TEMPLATE}[{names.REQUIRE}]")
    assert KEY in error.message


@pytest.mark.parametrize(
    ("annotations", "asked"),
    [
        ({"kueue.x-k8s.io/podset-required-topology": "cloud.provider.com/topology-rack"}, ("rack", None, False)),
        ({"kueue.x-k8s.io/require-topology": "rack"}, ("rack", None, False)),
        ({"kueue.x-k8s.io/podset-preferred-topology": "rack"}, (None, "rack", False)),
        ({"kueue.x-k8s.io/podset-unconstrained-topology": "true"}, (None, None, True)),
        (
            {"kai.scheduler/topology": "default", "kai.scheduler/topology-required-placement": "rack"},
            ("rack", None, False),
        ),
        ({"kai.scheduler/topology-preferred-placement": "rack"}, (None, "rack", False)),
    ],
)
def test_aliases_mean_the_same_as_our_own_keys(
    annotations: dict[str, str], asked: tuple[str | None, str | None, bool]
) -> None:
    found = read(template=annotations)
    assert found.asked is not None
    assert (found.asked.require, found.asked.prefer, found.asked.unconstrained) == asked


def test_an_alias_beside_our_own_key_with_the_same_meaning_is_fine() -> None:
    found = read({names.REQUIRE: "rack", "kai.scheduler/topology-required-placement": "rack"})
    assert found.asked is not None


def test_an_alias_with_another_meaning_conflicts() -> None:
    error = only(read({names.REQUIRE: "rack", "kueue.x-k8s.io/podset-required-topology": "block"}))
    assert error.reason == "ConflictingAnnotations"


def test_an_alias_value_is_checked_like_ours() -> None:
    error = only(read({"kueue.x-k8s.io/podset-required-topology": "rak"}))
    assert error.field == "metadata.annotations[kueue.x-k8s.io/podset-required-topology]"


def test_an_alias_of_a_dialect_that_is_off_asks_for_nothing() -> None:
    annotations = default_policy().annotations.model_copy(update={"dialects": ("topogate",)})
    found = read({"kueue.x-k8s.io/podset-required-topology": "rack"}, policy=with_policy(annotations=annotations))
    assert found.ignored == "NoTopologyRequested"


def test_an_unknown_key_of_a_foreign_prefix_is_nobodys_business() -> None:
    found = read({names.REQUIRE: "rack", "kueue.x-k8s.io/whatever": "x", "kai.scheduler/x": "y"})
    assert found.asked is not None


def test_an_unknown_key_of_ours_is_refused_with_the_nearest_one() -> None:
    error = only(read({"topogate.dev/require-topolgy": "rack"}))
    assert (error.reason, error.kind) == ("UnknownAnnotation", "Forbidden")
    assert error.message == "no such annotation; did you mean topogate.dev/require-topology?"


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("priority", "no such annotation; set priorityClassName on the pods"),
        ("Queue", "no such annotation; there are no queues: gangs wait by priority, then by age"),
        (
            "rack",
            "no such annotation; the keys are colocate, device-scope, device-selector, exclusive-topology, gang-name, "
            "gang-size, gpu-strategy, min-available, pod-group, preemptible, prefer-topology, profile, rdma-scope, "
            "rdma-selector, recover-timeout, relax-after, replace, replan, require-topology, schedule-timeout, "
            "slice-size, slice-topology, slices, spread-group, spread-topology, start-timeout, topology, "
            "unconstrained-topology, vf-selector",
        ),
    ],
)
def test_an_unknown_key_of_ours_without_a_near_one_is_told_where_it_is_said(key: str, told: str) -> None:
    assert only(read({f"topogate.dev/{key}": "x"})).message == told


def test_an_unknown_key_of_ours_that_is_near_none_is_told_with_all_keys() -> None:
    assert only(read({"topogate.dev/rack": "x"})).message.startswith("no such annotation; the keys are colocate, ")


def test_an_unknown_key_of_ours_on_the_template_is_refused_too() -> None:
    error = only(read({names.REQUIRE: "rack"}, template={"topogate.dev/nonsense": "x"}))
    assert error.field == f"{TEMPLATE}[topogate.dev/nonsense]"
    assert "did you mean" not in error.message


def test_an_unknown_key_is_a_warning_where_the_policy_says_so() -> None:
    annotations = default_policy().annotations.model_copy(update={"unknown": "warn"})
    found = read({names.REQUIRE: "rack", "topogate.dev/nonsense": "x"}, policy=with_policy(annotations=annotations))
    assert found.asked is not None
    assert found.warnings == ("metadata.annotations[topogate.dev/nonsense]: no such annotation",)


def test_a_request_written_as_a_label_is_refused() -> None:
    error = only(read(labels={names.REQUIRE: "rack"}))
    assert error.field == f"metadata.labels[{names.REQUIRE}]"
    assert "an annotation, not a label" in error.message


def test_hostile_keys_are_escaped_and_cut() -> None:
    error = only(read({"topogate.dev/\x1b[31m" + "x" * 500: "rack"}))
    assert "\x1b" not in error.field
    assert len(error.field) < 120


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (names.GANG_NAME, "g"),
        (names.GANG_SIZE, "4"),
    ],
)
def test_what_makes_gangs_of_plain_pods_is_refused_on_workloads(key: str, value: str) -> None:
    error = only(read({names.REQUIRE: "rack", key: value}))
    assert (error.reason, error.field) == ("ConflictingAnnotations", f"metadata.annotations[{key}]")


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (names.GANG_SIZE, "", "InvalidValue"),
        (names.MIN_AVAILABLE, "two", "InvalidValue"),
        (names.RELAX_AFTER, "10 minutes", "InvalidValue"),
        (names.RELAX_AFTER, "0s", "InvalidValue"),
        (names.SCHEDULE_TIMEOUT, "10 minutes", "InvalidValue"),
        (names.SCHEDULE_TIMEOUT, "-5m", "InvalidValue"),
        (names.SCHEDULE_TIMEOUT, "9s", "InvalidValue"),
        (names.START_TIMEOUT, "soon", "InvalidValue"),
        (names.START_TIMEOUT, "0s", "InvalidValue"),
        (names.START_TIMEOUT, "999ms", "InvalidValue"),
        (names.RECOVER_TIMEOUT, "168h1s", "InvalidValue"),
        (names.RECOVER_TIMEOUT, "None", "InvalidValue"),
        (names.COLOCATE, "two words", "InvalidValue"),
        (names.GANG_NAME, "x" * 64, "InvalidValue"),
        (names.UNCONSTRAINED, "yes", "InvalidValue"),
    ],
)
def test_a_bad_value_is_named_even_where_the_key_has_no_place(key: str, value: str, reason: str) -> None:
    error = only(read({names.REQUIRE: "rack", key: value}))
    assert (error.reason, error.value) == (reason, value)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("soon", "must be a duration such as 30s, 10m or 1h30m, or none"),
        ("0", "must be more than 0s; none is for no time-out"),
        ("200h", "must be from 1s to 168h, or none"),
    ],
)
def test_a_wrong_time_out_is_told_what_is_allowed(value: str, told: str) -> None:
    """The bounds of the policy's own, and the word for none."""
    assert only(read({names.REQUIRE: "rack", names.START_TIMEOUT: value})).message == told


@pytest.mark.parametrize(("value", "seconds"), [("90s", 90.0), ("1h30m", 5400.0), ("none", inf)])
def test_time_outs_are_about_the_whole_gang_wherever_they_are_set(value: str, seconds: float) -> None:
    """On the workload or on its template; two that differ contradict each other."""
    for own, template in (({names.START_TIMEOUT: value}, {}), ({}, {names.START_TIMEOUT: value})):
        assert read({names.REQUIRE: "rack", **own}, template=template).start_timeout == seconds
    assert read({names.REQUIRE: "rack", names.RECOVER_TIMEOUT: value}).recover_timeout == seconds
    error = only(read({names.REQUIRE: "rack", names.START_TIMEOUT: value}, template={names.START_TIMEOUT: "7s"}))
    assert error.reason == "ConflictingAnnotations"


def test_a_time_out_without_a_level_asks_for_nothing() -> None:
    """As other keys that only add to a request."""
    error = only(read({names.START_TIMEOUT: "10m"}))
    assert (error.reason, error.field) == ("MissingValue", f"metadata.annotations[{names.REQUIRE}]")


def test_slices_are_a_request_of_their_own() -> None:
    """A slice's level and size need no other level beside them."""
    found = read({names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "2"})
    assert found.asked is not None
    assert (found.asked.slices, found.asked.require, found.asked.unconstrained) == ((("rack", 2),), None, True)


def test_kueue_s_slices_mean_the_same() -> None:
    """The alias keys are read as ours."""
    keys = {"kueue.x-k8s.io/podset-slice-required-topology": "rack", "kueue.x-k8s.io/podset-slice-size": "2"}
    found = read({names.REQUIRE: "block"}, template=keys)
    assert found.asked is not None
    assert found.asked.slices == (("rack", 2),)


@pytest.mark.parametrize(
    ("level", "size", "about", "reason"),
    [
        ("rack", "0", names.SLICE_SIZE, "InvalidValue"),
        ("rack", "-1", names.SLICE_SIZE, "InvalidValue"),
        ("rack", "1e3", names.SLICE_SIZE, "InvalidValue"),
        ("rack", "99999999999999999999", names.SLICE_SIZE, "InvalidValue"),
        ("rack", "\u0663", names.SLICE_SIZE, "InvalidValue"),
        ("rack", "3", names.SLICE_SIZE, "SegmentNotDivisor"),
        ("rack", "8", names.SLICE_SIZE, "SegmentNotDivisor"),
        ("rack", None, names.SLICE_SIZE, "MissingValue"),
        (None, "2", names.SLICE_TOPOLOGY, "MissingValue"),
        ("rak", "2", names.SLICE_TOPOLOGY, "UnknownLevel"),
        ("auto", "2", names.SLICE_TOPOLOGY, "UnknownLevel"),
        ("block", "2", names.SLICE_TOPOLOGY, "ConflictingAnnotations"),
    ],
)
def test_what_is_wrong_with_slices_is_named(level: str | None, size: str | None, about: str, reason: str) -> None:
    """Level and size go together, the size divides the gang, the level is not coarser than the required one."""
    keys = {names.REQUIRE: "rack", names.SLICE_TOPOLOGY: level, names.SLICE_SIZE: size}
    error = only(read({key: value for key, value in keys.items() if value is not None}))
    assert (error.field, error.reason) == (f"metadata.annotations[{about}]", reason)


CONSTRAINTS = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
KUEUE_LAYERS = '[{"topology": "cloud.provider.com/topology-rack", "size": 4}, {"topology": "host", "size": 2}]'
SEGMENT = {"kai.scheduler/segment-topology-required-placement": "rack", "kai.scheduler/segment-size": "2"}


@pytest.mark.parametrize(
    "said",
    [
        {names.SLICES: "rack=4,host=2"},
        {names.SLICES: " cloud.provider.com/topology-rack = 4 , kubernetes.io/hostname=2"},
        {CONSTRAINTS: KUEUE_LAYERS},
        {CONSTRAINTS: KUEUE_LAYERS, names.SLICES: "rack=4,host=2"},
    ],
    ids=str,
)
def test_slices_are_listed_in_layers(said: dict[str, str]) -> None:
    """Coarse to fine, by alias or label key, as our own key or Kueue's, or as both with one meaning."""
    found = read(said)
    assert found.asked is not None, found.errors
    assert (found.asked.slices, found.warnings) == ((("rack", 4), ("host", 2)), ())


@pytest.mark.parametrize(
    ("value", "reason", "message"),
    [
        ("", "InvalidValue", "must be pairs level=pods, coarse to fine, such as rack=16,host=4"),
        ("rack", "InvalidValue", "must be pairs level=pods, coarse to fine, such as rack=16,host=4"),
        ("rack=4,", "InvalidValue", "must be pairs level=pods, coarse to fine, such as rack=16,host=4"),
        ("rack=0", "InvalidValue", "must be pairs level=pods, coarse to fine, such as rack=16,host=4"),
        ("rack:4", "InvalidValue", "must be pairs level=pods, coarse to fine, such as rack=16,host=4"),
        ("rack=\u0664", "InvalidValue", "must be pairs level=pods, coarse to fine, such as rack=16,host=4"),
        ("rak=4", "UnknownLevel", 'allowed: block, rack, host; did you mean "rack"?'),
        ("auto=4", "UnknownLevel", "allowed: block, rack, host"),
        ("rack=4,rack=2", "InvalidValue", "names level rack twice; keep one of them"),
        (",".join(["rack=4"] * 8), "InvalidValue", "names 8 layers; there are at most 7 levels"),
        ("host=4,rack=2", "InvalidValue", "rack is not a finer level than host; name them coarse to fine"),
        ("rack=4,host=3", "SegmentNotDivisor", "host=3 must divide rack=4; for host use 1, 2 or 4"),
        (
            "rack=3",
            "SegmentNotDivisor",
            "3 must divide the 4 pods of the gang (spec.parallelism); use 1, 2 or 4",
        ),
        (
            "rack=6,host=2",
            "SegmentNotDivisor",
            "6 must divide the 4 pods of the gang (spec.parallelism); use 2 or 4",
        ),
        ("rack=8,host=8", "SegmentNotDivisor", "8 must divide the 4 pods of the gang (spec.parallelism)"),
    ],
)
def test_what_is_wrong_with_layers_of_slices_is_named(value: str, reason: str, message: str) -> None:
    """The spelling, a level, their order, or the sizes, with the numbers that would do."""
    error = only(read({names.SLICES: value}))
    assert (error.field, error.reason, error.message) == (f"metadata.annotations[{names.SLICES}]", reason, message)


@pytest.mark.parametrize(
    "value", ["", "{}", "[]", "x", "[" * 9999, '[{"topology": "rack", "size": "4"}]', '[{"topology": "", "size": 4}]']
)
def test_kueue_s_layers_are_its_json(value: str) -> None:
    error = only(read({CONSTRAINTS: value}))
    assert (error.reason, error.message) == (
        "InvalidValue",
        'must be a JSON list such as [{"topology":"rack","size":16},{"topology":"host","size":4}]',
    )


@pytest.mark.parametrize(
    "beside",
    [
        {names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "4"},
        {names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "2"},
        SEGMENT,
        {CONSTRAINTS: '[{"topology": "rack", "size": 2}]'},
    ],
    ids=str,
)
def test_slices_are_written_in_one_form(beside: dict[str, str]) -> None:
    """Two native forms, or two meanings, contradict each other."""
    reasons = {error.reason for error in read({names.SLICES: "rack=4", **beside}).errors}
    assert reasons == {"ConflictingAnnotations"}


def test_layers_beside_an_alias_of_the_same_meaning_are_fine() -> None:
    assert read({names.SLICES: "rack=2", **SEGMENT}).errors == ()


def test_layers_are_within_the_required_level() -> None:
    error = only(read({names.REQUIRE: "rack", names.SLICES: "block=4"}))
    assert (error.reason, error.message) == (
        "ConflictingAnnotations",
        "block must not be a coarser level than the required one (rack)",
    )


def test_kai_s_segments_are_slices() -> None:
    """On the template, as KAI has them."""
    found = read({names.REQUIRE: "block"}, template=SEGMENT)
    assert found.asked is not None
    assert (found.asked.slices, found.warnings) == ((("rack", 2),), ())


def test_of_very_many_divisors_the_nearest_are_told() -> None:
    error = only(read({names.SLICES: "rack=5040,host=11"}))
    assert error.message == "host=11 must divide rack=5040; for host use 7, 8, 9, 10, 12, 14, 15 or 16"


def test_slices_of_pods_without_an_index_are_told_what_they_get() -> None:
    """Without ranks there are no consecutive ones; each domain still gets whole slices."""
    keys = {names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "2"}
    found = read(keys, completionMode="NonIndexed")
    assert found.warnings == ("pods without an index have no order: each rack gets a multiple of 2 of them",)


@pytest.mark.parametrize("least", [1, 3, 4])
def test_a_minimum_up_to_the_count_is_the_size_of_the_gang(least: int) -> None:
    """On the Job or on its template: with one pod set they are the same."""
    for own, template in (({names.MIN_AVAILABLE: str(least)}, {}), ({}, {names.MIN_AVAILABLE: str(least)})):
        found = read({names.REQUIRE: "rack", **own}, template=template)
        assert found.asked is not None
        assert (found.asked.count, found.asked.min_available) == (4, least)


def test_a_minimum_above_the_count_is_an_error() -> None:
    error = only(read({names.REQUIRE: "rack", names.MIN_AVAILABLE: "5"}))
    assert (error.reason, error.field) == ("InvalidValue", f"metadata.annotations[{names.MIN_AVAILABLE}]")
    assert "at most 4" in error.message


def test_a_good_and_a_bad_spelling_of_one_key_are_judged_apart() -> None:
    found = read({names.REQUIRE: "rack", names.MIN_AVAILABLE: "4"}, template={names.MIN_AVAILABLE: "two"})
    assert only(found).field == f"{TEMPLATE}[{names.MIN_AVAILABLE}]"


def test_a_key_that_needs_a_level_beside_it_says_so() -> None:
    error = only(read({names.TOPOLOGY: "default"}))
    assert (error.reason, error.kind, error.field) == ("MissingValue", "Required value", KEY)


def test_a_profile_is_read_for_the_whole_gang() -> None:
    assert read({names.REQUIRE: "rack", names.PROFILE: "spread"}).profile == "spread"
    assert read({names.REQUIRE: "rack"}, template={names.PROFILE: "pack"}).profile == "pack"
    assert read({names.REQUIRE: "rack"}).profile is None


def test_a_profile_is_one_of_those_that_exist() -> None:
    error = only(read({names.REQUIRE: "rack", names.PROFILE: "spred"}))
    assert (error.field, error.kind, error.reason) == (
        f"metadata.annotations[{names.PROFILE}]",
        "Unsupported value",
        "InvalidValue",
    )
    assert error.message.endswith('did you mean "spread"?')


NO_GPU = {"containers": [{"name": "c"}]}
GPUS = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]}
SHARE = {"containers": [{"name": "c", "resources": {"limits": {"koordinator.sh/gpu": "50"}}}]}
IN_BYTES = {"koordinator.sh/gpu-core": "200", "koordinator.sh/gpu-memory": "160Gi"}
PARTS = {"containers": [{"name": "c", "resources": {"limits": IN_BYTES}}]}
PARTS_TOLD = (
    "is for pods with whole GPUs, and the pods request 80Gi of the memory and 100% of the compute of each of 2 GPUs; "
    "request koordinator.sh/gpu: 200, or remove it"
)


def test_a_scope_of_devices_alone_asks_for_no_level() -> None:
    """It says which GPUs a pod gets, not which hosts the gang."""
    error = only(read({names.DEVICE_SCOPE: "pcie"}, pod_spec=GPUS))
    assert error.reason == "MissingValue"
    assert names.DEVICE_SCOPE in error.message


@pytest.mark.parametrize(
    ("pod", "why"), [(NO_GPU, "the pods request no GPU"), (SHARE, "always in one scope"), (PARTS, PARTS_TOLD)]
)
def test_a_scope_of_devices_needs_whole_gpus(pod: Any, why: str) -> None:
    error = only(read({names.REQUIRE: "rack", names.DEVICE_SCOPE: "pcie"}, pod_spec=pod))
    assert (error.field, error.reason) == (f"metadata.annotations[{names.DEVICE_SCOPE}]", "ConflictingAnnotations")
    assert why in error.message


def test_two_scopes_of_devices_contradict_each_other() -> None:
    error = only(
        read({names.REQUIRE: "rack", names.DEVICE_SCOPE: "pcie"}, template={names.DEVICE_SCOPE: "numa"}, pod_spec=GPUS)
    )
    assert error.reason == "ConflictingAnnotations"


def test_a_profile_alone_asks_for_no_level() -> None:
    error = only(read({names.PROFILE: "spread"}))
    assert (error.field, error.reason) == (KEY, "MissingValue")
    assert names.PROFILE in error.message


def test_two_profiles_contradict_each_other() -> None:
    error = only(read({names.REQUIRE: "rack", names.PROFILE: "pack"}, template={names.PROFILE: "spread"}))
    assert error.reason == "ConflictingAnnotations"


def test_what_keeps_gangs_apart_is_read_for_the_whole_gang() -> None:
    """Levels become aliases, on the workload and on its template."""
    assert read({names.REQUIRE: "rack", names.EXCLUSIVE: "cloud.provider.com/topology-rack"}).separation == Separation(
        "rack"
    )
    asked = read({names.REQUIRE: "host", names.SPREAD_GROUP: "web"}, template={names.SPREAD: "block"})
    assert asked.separation == Separation(None, "block", "web")
    assert read({names.REQUIRE: "rack"}).separation is None


@pytest.mark.parametrize("key", [names.EXCLUSIVE, names.SPREAD])
@pytest.mark.parametrize(("value", "told"), [("rak", 'did you mean "rack"?'), ("auto", "allowed: block, rack, host")])
def test_gangs_are_kept_apart_at_a_level_that_exists(key: str, value: str, told: str) -> None:
    error = only(read({names.REQUIRE: "rack", key: value}))
    assert (error.field, error.reason) == (f"metadata.annotations[{key}]", "UnknownLevel")
    assert error.message.endswith(told)


@pytest.mark.parametrize("key", [names.EXCLUSIVE, names.SPREAD])
def test_to_be_kept_apart_alone_asks_for_no_level(key: str) -> None:
    error = only(read({key: "rack"}))
    assert (error.field, error.reason) == (KEY, "MissingValue")
    assert key in error.message


def test_a_spread_group_needs_the_level_of_its_domains() -> None:
    error = only(read({names.REQUIRE: "rack", names.SPREAD_GROUP: "web"}))
    assert (error.field, error.reason) == (f"metadata.annotations[{names.SPREAD}]", "MissingValue")


def test_a_spread_group_is_a_name() -> None:
    error = only(read({names.REQUIRE: "rack", names.SPREAD: "rack", names.SPREAD_GROUP: "a b"}))
    assert (error.field, error.reason) == (f"metadata.annotations[{names.SPREAD_GROUP}]", "InvalidValue")


@pytest.mark.parametrize("key", [names.EXCLUSIVE, names.SPREAD])
def test_two_levels_to_be_kept_apart_at_contradict_each_other(key: str) -> None:
    error = only(read({names.REQUIRE: "rack", key: "rack"}, template={key: "host"}))
    assert error.reason == "ConflictingAnnotations"


def test_spreading_a_workload_of_one_gang_is_warned_about() -> None:
    """Without a group there is nothing to be spread from."""
    (warning,) = read({names.REQUIRE: "rack", names.SPREAD: "rack"}).warnings
    assert warning == "spread-topology has no effect: the Job is one gang; add topogate.dev/spread-group"
    assert not read({names.REQUIRE: "rack", names.SPREAD: "rack", names.SPREAD_GROUP: "web"}).warnings


def test_spreading_what_is_exclusive_is_warned_about() -> None:
    """At the exclusive level or a finer one there is no other gang anyway; at a coarser one it says something."""
    group = {names.REQUIRE: "rack", names.SPREAD_GROUP: "web", names.EXCLUSIVE: "rack"}
    told = ("spread-topology adds nothing: exclusive-topology rack keeps all other gangs out",)
    assert read({**group, names.SPREAD: "rack"}).warnings == told
    assert read({**group, names.SPREAD: "host"}).warnings == told
    assert read({**group, names.SPREAD: "block"}).warnings == ()


def test_a_time_to_give_up_a_level_needs_a_required_one() -> None:
    error = only(read({names.RELAX_AFTER: "10m"}))
    assert error.message == ("topogate.dev/relax-after also needs a level: require-topology, the level to relax")


@pytest.mark.parametrize(
    "annotations", [{names.GANG_NAME: "g", names.GANG_SIZE: "4"}, {names.SLICE_SIZE: "2"}, {names.COLOCATE: "a"}]
)
def test_what_is_told_already_is_not_told_as_a_missing_level_again(annotations: dict[str, str]) -> None:
    assert len(read(annotations).errors) == len(annotations)


def test_every_error_is_reported_at_once_ordered_by_path() -> None:
    found = read(
        {names.REQUIRE: "rak", names.MIN_AVAILABLE: "x", "topogate.dev/zzz": ""},
        template={names.PREFER: "bloc"},
        parallelism=20_000,
        completions=20_000,
    )
    assert [error.reason for error in found.errors] == [
        "InvalidValue",
        "UnknownLevel",
        "UnknownAnnotation",
        "GangLimitExceeded",
        "UnknownLevel",
    ]
    assert [error.field for error in found.errors] == sorted(error.field for error in found.errors)


def test_a_gang_above_the_limit_of_the_policy_is_refused() -> None:
    found = read({names.REQUIRE: "rack"}, completionMode="NonIndexed", completions=None, parallelism=10**9)
    error = only(found)
    assert (error.reason, error.field, error.value) == ("GangLimitExceeded", "spec.parallelism", "1000000000")


def test_no_pods_are_a_request_of_zero() -> None:
    found = read({names.REQUIRE: "rack"}, parallelism=0)
    assert found.asked is not None
    assert found.asked.count == 0


def test_more_completions_than_parallelism_are_as_many_slots_as_run_at_a_time() -> None:
    found = read({names.REQUIRE: "rack"}, parallelism=4, completions=12)
    assert found.asked is not None
    assert found.asked.count == 4


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ({"namespace": "kube-system"}, "ExemptNamespace"),
        ({"namespace": "topogate-system"}, "ExemptNamespace"),
        ({"labels": {names.KUEUE_QUEUE: "q"}}, "ManagedByKueue"),
        ({"template_labels": {names.KUEUE_QUEUE: "q"}}, "ManagedByKueue"),
        ({"pod_spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]}}, "ManagedByKueue"),
        ({"pod_spec": {"schedulerName": "volcano"}}, "OtherScheduler"),
        ({"pod_spec": {"nodeName": "n1"}}, "NodeNameSet"),
        ({"pod_spec": {"schedulingGroup": {"podGroupName": "g"}}}, "CoreGang"),
        ({"pod_spec": {"workloadRef": {"name": "w", "podGroup": "g"}}}, "CoreGang"),  # the same in Kubernetes 1.35
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "ManagedByKueue"),
        ({"template": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}}, "ExclusiveTopology"),
    ],
)
def test_what_another_system_has_is_left_alone(job: dict[str, Any], reason: str) -> None:
    assert read({names.REQUIRE: "rak"}, **job) == PlacementRequest(ignored=reason)


def test_a_policy_that_is_off_ignores_every_request() -> None:
    assert read({names.REQUIRE: "rack"}, policy=with_policy(mode="off")).ignored == "PolicyOff"


def test_a_scheduler_that_the_policy_allows_is_served() -> None:
    policy = with_policy(schedulers=("default-scheduler", "volcano"))
    assert read({names.REQUIRE: "rack"}, policy=policy, pod_spec={"schedulerName": "volcano"}).asked is not None


def test_pod_group_labels_alone_ask_for_nothing_and_the_user_is_told() -> None:
    found = read(labels={names.POD_GROUP_NAME: "g", names.POD_GROUP_MIN: "4"})
    assert found.ignored == "NoTopologyRequested"
    assert found.warnings == (
        'pod-group labels are read only at creation; add topogate.dev/unconstrained-topology: "true"',
    )


def test_pod_group_labels_of_another_schedulers_gang_are_none_of_our_business() -> None:
    found = read(labels={names.POD_GROUP_NAME: "g"}, pod_spec={"schedulerName": "volcano"})
    assert found == PlacementRequest(ignored="NoTopologyRequested")


def test_pod_group_labels_beside_ours_are_ours() -> None:
    found = read(template_labels={names.POD_GROUP_NAME: "g", names.MANAGED: "true"})
    assert found.warnings == ()


def test_before_any_node_is_there_a_level_of_any_preset_may_be_named() -> None:
    found = read({names.REQUIRE: "nvlink-domain"}, nodes=[])
    other = read({names.REQUIRE: "rack", names.PREFER: "host"}, nodes=[node("plain")])
    assert found.errors[0].reason == "UnknownLevel"
    assert other.asked is not None
    assert (other.asked.require, other.asked.prefer) == ("rack", "host")


def test_without_nodes_a_coarser_prefer_is_still_a_contradiction() -> None:
    assert only(read({names.REQUIRE: "rack", names.PREFER: "block"}, nodes=[])).reason == "ConflictingAnnotations"


def test_the_node_selector_chooses_the_topology() -> None:
    found = read({names.REQUIRE: "cabinet"}, policy=two_topologies(), pod_spec={"nodeSelector": {"pool": "cpu"}})
    assert found.topology == "cpu"
    assert found.asked is not None


def test_without_a_hint_the_first_topology_is_taken() -> None:
    assert read({names.REQUIRE: "rack"}, policy=two_topologies()).topology == "gpu"


def test_a_named_topology_brings_its_levels() -> None:
    found = read({names.REQUIRE: "cabinet", names.TOPOLOGY: "cpu"}, policy=two_topologies())
    assert found.topology == "cpu"
    assert found.asked is not None


def test_what_the_planner_does_not_look_at_is_a_warning() -> None:
    found = read({names.REQUIRE: "rack"}, pod_spec={"resourceClaims": [{"name": "gpu"}]})
    assert found.warnings == ("not considered: resource claims of the pods; the scheduler may refuse a chosen host",)


def test_the_path_of_a_request_is_where_its_user_wrote_it() -> None:
    job = workload(raw_job(template={"kai.scheduler/topology-required-placement": "rack"}))
    assert (
        request_path(job, names.REQUIRE, policy=default_policy())
        == f"{TEMPLATE}[kai.scheduler/topology-required-placement]"
    )
    assert request_path(job, names.PREFER, policy=default_policy()) == f"metadata.annotations[{names.PREFER}]"


def test_an_owner_does_not_change_the_request() -> None:
    job = workload(raw_job({names.REQUIRE: "rack"}))
    owned = replace(job, owner=OwnerRef("jobset.x-k8s.io/v1alpha2", "JobSet", "s", "u", True))
    topologies = topologies_of(default_policy().topologies, NODES)
    assert parse_request(owned, policy=default_policy(), topologies=topologies) == parse_request(
        job, policy=default_policy(), topologies=topologies
    )
