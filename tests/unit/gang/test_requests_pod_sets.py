"""Understanding what a workload of several pod sets asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.placement import GangRequest
from engine.api.workload import PodSet, Workload
from engine.gang.request import PlacementRequest, parse_request
from engine.policy.model import default_policy, parse_policy
from engine.topology.topology import topologies_of
from tests.support.admission import NODES
from tests.support.cluster_records import shape
from tests.support.families import leader_worker_set
from tests.support.pod_sets import pods_of, several

TWO_POOLS = "topologies:" + "".join(
    f"\n- {{name: {pool}, preset: demo, nodeSelector: {{pool: {pool}}}}}" for pool in ("a", "b")
)
FIRST, SECOND = (f"spec.replicatedJobs[{n}].template.spec.template.metadata.annotations" for n in (0, 1))


def read(workload: Workload, **policy: Any) -> PlacementRequest:
    rules = parse_policy(policy["policy"]) if policy else default_policy()
    return parse_request(workload, policy=rules, topologies=topologies_of(rules.topologies, list(NODES)))


def two(
    own: dict[str, str] | None = None,
    first: dict[str, str] | None = None,
    second: dict[str, str] | None = None,
    **more: Any,
) -> Workload:
    return several(pods_of("driver", 1, says=first), pods_of("workers", 4, says=second, **more), says=own)


def faults(workload: Workload) -> list[tuple[str, str]]:
    return [(error.field, error.reason) for error in read(workload).errors]


def test_the_workload_speaks_for_the_gang_and_a_template_for_its_pod_set() -> None:
    found = read(two({names.REQUIRE: "block"}, {}, {names.REQUIRE: "rack", names.PREFER: "host"}))
    assert found.errors == ()
    assert found.gang == GangRequest("block", None, None)
    assert [(one.name, one.count, one.require, one.prefer) for one in found.pod_sets] == [
        ("driver", 1, None, None),
        ("workers", 4, "rack", "host"),
    ]
    assert found.count == 5


def test_a_template_alone_asks_for_the_whole_workload() -> None:
    """One gang: the pod set that says nothing starts with the others, wherever there is room."""
    found = read(two(second={names.REQUIRE: "rack"}))
    assert (found.gang, [one.unconstrained for one in found.pod_sets]) == (None, [True, False])


@pytest.mark.parametrize("first", ["driver", "workers"])
def test_the_node_selectors_of_all_templates_choose_the_topology(first: str) -> None:
    """One without a nodeSelector fits each topology: it must not send the others to one without their nodes."""
    workers = replace(shape(gpu=8), node_selector=(("pool", "b"),))
    pod_sets = [pods_of("driver", 1), pods_of("workers", 4, shape=workers)]
    asked = several(*sorted(pod_sets, key=lambda one: one.name != first), says={names.REQUIRE: "rack"})
    assert read(asked, policy=TWO_POOLS).topology == "b"


def test_of_templates_that_no_topology_fits_together_the_first_chooses() -> None:
    shapes = [replace(shape(gpu=8), node_selector=(("pool", pool),)) for pool in ("b", "a")]
    asked = several(*(pods_of(f"set{n}", 1, shape=one) for n, one in enumerate(shapes)), says={names.REQUIRE: "rack"})
    assert read(asked, policy=TWO_POOLS).topology == "b"


def test_with_one_pod_set_everything_is_folded_into_it() -> None:
    found = read(several(pods_of("workers", 4, says={names.PREFER: "host"}), says={names.REQUIRE: "rack"}))
    assert found.gang is None
    assert [(one.name, one.require, one.prefer) for one in found.pod_sets] == [("workers", "rack", "host")]


def test_all_errors_of_all_pod_sets_are_told_at_their_own_paths() -> None:
    workload = two({names.REQUIRE: "rak"}, {names.SLICE_SIZE: "2"}, {names.REQUIRE: "blok", names.COLOCATE: "a b"})
    assert faults(workload) == [
        (f"metadata.annotations[{names.REQUIRE}]", "UnknownLevel"),
        (f"{FIRST}[{names.SLICE_SIZE}]", "SegmentNotDivisor"),
        (f"{FIRST}[{names.SLICE_TOPOLOGY}]", "MissingValue"),
        (f"{SECOND}[{names.COLOCATE}]", "InvalidValue"),
        (f"{SECOND}[{names.REQUIRE}]", "UnknownLevel"),
    ]


def test_pod_sets_that_share_a_template_tell_its_errors_once() -> None:
    """A leader without a template of its own has that of the workers."""
    first = pods_of("leader", 1, says={names.REQUIRE: "rak"})
    workload = several(first, pods_of("workers", 3, says={names.REQUIRE: "rak"}))
    path = workload.pod_sets[0].path
    workload = several_on(workload, path)
    assert faults(workload) == [(f"{FIRST}[{names.REQUIRE}]", "UnknownLevel")]


def several_on(workload: Workload, path: tuple[str | int, ...]) -> Workload:
    return replace(workload, pod_sets=tuple(replace(one, path=path) for one in workload.pod_sets))


def test_a_pod_set_does_not_require_a_coarser_level_than_its_gang() -> None:
    assert faults(two({names.REQUIRE: "rack"}, second={names.REQUIRE: "block"})) == [
        (f"{SECOND}[{names.REQUIRE}]", "ConflictingAnnotations")
    ]


def test_pod_sets_with_the_same_value_share_a_domain() -> None:
    both = {names.COLOCATE: "together"}
    found = read(two(first=both, second={**both, names.REQUIRE: "rack"}))
    assert found.errors == ()
    assert [one.colocate for one in found.pod_sets] == ["together", "together"]


def test_what_the_workload_says_of_sharing_holds_for_every_pod_set() -> None:
    found = read(two({names.COLOCATE: "all", names.REQUIRE: "rack"}))
    assert [one.colocate for one in found.pod_sets] == ["all", "all"]


def test_pod_sets_that_share_a_domain_require_the_same_level() -> None:
    first, second = ({names.COLOCATE: "c", names.REQUIRE: level} for level in ("block", "rack"))
    assert faults(two(first=first, second=second)) == [(f"{SECOND}[{names.REQUIRE}]", "ConflictingAnnotations")]


def test_sharing_needs_a_level() -> None:
    other = {names.REQUIRE: "rack"}
    assert faults(two(first={names.COLOCATE: "c"}, second=other)) == [(f"{FIRST}[{names.REQUIRE}]", "MissingValue")]


def test_a_slice_without_a_size_is_one_replica() -> None:
    found = read(two(second={names.SLICE_TOPOLOGY: "rack"}, replica=2))
    assert [one.slices for one in found.pod_sets] == [(), (("rack", 2),)]


def test_slices_of_the_workload_are_those_of_every_pod_set_that_is_as_large() -> None:
    found = read(two({names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "2"}))
    assert (found.errors, [one.slices for one in found.pod_sets]) == ((), [(), (("rack", 2),)])


def test_a_slice_of_the_workload_divides_every_pod_set_that_is_as_large() -> None:
    key = f"metadata.annotations[{names.SLICE_SIZE}]"
    assert faults(two({names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "3"})) == [(key, "SegmentNotDivisor")]


def test_of_layers_a_pod_set_has_those_that_are_not_larger() -> None:
    """The workers of four have both layers' inner one, the driver none; a template's own layers are instead of them."""
    found = read(two({names.SLICES: "block=8,rack=2"}))
    assert (found.errors, [one.slices for one in found.pod_sets]) == ((), [(), (("rack", 2),)])
    found = read(two({names.SLICES: "block=8,rack=2"}, second={names.SLICES: "rack=4,host=1"}))
    assert [one.slices for one in found.pod_sets] == [(), (("rack", 4), ("host", 1))]


def test_layers_of_the_workload_divide_every_pod_set_that_is_as_large() -> None:
    (error,) = read(two({names.SLICES: "rack=3"})).errors
    assert (error.reason, error.message) == ("SegmentNotDivisor", "3 must divide the 4 pods of workers; use 1, 2 or 4")


def test_a_slice_without_a_size_is_the_gang_where_every_replica_is_one() -> None:
    """A kind with a gang per replica: its leader and its workers share the domain."""
    workload = replace(two({names.SLICE_TOPOLOGY: "rack"}), groups=3, group_label="example.com/group")
    found = read(workload)
    assert (found.errors, found.gang) == ((), GangRequest("rack", None, None))


@pytest.mark.parametrize("own", [{}, {names.UNCONSTRAINED: "false"}])
def test_no_request_on_any_pod_set_is_none(own: dict[str, str]) -> None:
    assert read(two(own)).ignored == "NoTopologyRequested"


def test_one_template_of_another_scheduler_leaves_the_whole_workload_alone() -> None:
    """Half a gang is none."""
    workload = two({names.REQUIRE: "rack"})
    first, second = workload.pod_sets
    foreign: PodSet = replace(second, template=replace(second.template, scheduler_name="volcano"))
    assert read(replace(workload, pod_sets=(first, foreign))).ignored == "OtherScheduler"


def test_the_gang_limit_counts_all_pod_sets() -> None:
    policy = "queue: {maxGangPods: 4}"
    (error,) = read(two({names.REQUIRE: "rack"}), policy=policy).errors
    assert (error.reason, error.value) == ("GangLimitExceeded", "5")
    assert error.field == "spec.replicatedJobs[1].template.spec.template"
    first, second = two({names.REQUIRE: "rack"}).pod_sets
    counted = (first, replace(second, counted=("spec", "replicatedJobs", 1, "replicas")))
    (error,) = read(replace(two({names.REQUIRE: "rack"}), pod_sets=counted), policy=policy).errors
    assert error.field == "spec.replicatedJobs[1].replicas"


def test_replicas_that_are_too_many_gangs_are_refused_at_their_own_path() -> None:
    """A million replicas would be a million gangs: those beyond the bound could only be held."""
    most, more = (leader_worker_set(groups=groups) for groups in (10_000, 1_000_000))
    assert faults(most) == []
    (error,) = read(more).errors
    assert (error.field, error.reason) == ("spec.replicas", "GangLimitExceeded")
    assert "a LeaderWorkerSet may have at most 10,000" in error.message


def test_a_job_of_another_group_has_its_own_paths() -> None:
    """Volcano's kind is Job too, and has no parallelism."""
    volcano = replace(
        several(pods_of("main", 10**6), says={names.REQUIRE: "rack"}),
        api_version="batch.volcano.sh/v1alpha1",
        kind="Job",
    )
    assert [field for field, _ in faults(volcano)] == ["spec.replicatedJobs[0].template.spec.template"]


def test_of_very_many_unknown_keys_the_first_get_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison with every key costs more than the rest of the review."""
    asked: list[str] = []
    monkeypatch.setattr("engine.gang.annotations.suggest", lambda key, _: asked.append(key))
    found = read(two({f"topogate.dev/x-{number}": "1" for number in range(1000)}))
    assert len(found.errors) >= 1000
    assert len(asked) == 64


@pytest.mark.parametrize(
    ("least", "own", "minimums"),
    [
        ("3", None, [1, 1]),  # any third pod
        ("1", None, [1, 0]),
        ("3", {names.MIN_AVAILABLE: "3"}, [0, 3]),
        ("4", {names.MIN_AVAILABLE: "3"}, [1, 3]),
    ],
)
def test_the_pods_that_lead_are_in_the_minimum_of_a_gang(
    least: str, own: dict[str, str] | None, minimums: list[int]
) -> None:
    """One pod of each pod set, in their order, as far as the minimum and those of the pod sets leave any."""
    found = read(two({names.UNCONSTRAINED: "true", names.MIN_AVAILABLE: least}, second=own))
    assert found.errors == ()
    assert found.gang == GangRequest(None, None, int(least))
    assert [one.min_available for one in found.pod_sets] == minimums


def test_a_pod_set_without_pods_has_no_part_in_the_minimum() -> None:
    workload = several(pods_of("driver", 0), pods_of("workers", 4), says={names.UNCONSTRAINED: "true"})
    found = read(replace(workload, annotations={**workload.annotations, names.MIN_AVAILABLE: "1"}))
    assert [one.min_available for one in found.pod_sets] == [0, 1]


@pytest.mark.parametrize(
    ("least", "counts", "slots"), [("3", [1, 2], [1, 4]), ("6", [4, 2], [2, 4]), ("7", [4, 3], [3, 4])]
)
def test_what_whole_slices_add_to_a_minimum_is_asked_of_no_other_pod_set(
    least: str, counts: list[int], slots: list[int]
) -> None:
    """Two trainers are a half of their slice; with its four slots the first of the feeders is enough."""
    own = {names.MIN_AVAILABLE: "2", names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "4"}
    pair = pods_of("feeders", 4), pods_of("trainers", 8, says=own)
    found = read(several(*pair, says={names.UNCONSTRAINED: "true", names.MIN_AVAILABLE: least}))
    assert found.errors == ()
    assert (list(found.first_counts.values()), list(found.first_slots.values())) == (counts, slots)
