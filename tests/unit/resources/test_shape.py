from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from engine.api.device import DeviceRequest
from engine.api.objects import Node, RuntimeClass, Taint
from engine.api.pod import SelectorRequirement, SelectorTerm, Shape, Toleration
from engine.api.resources import effective, in_units, pod_limits, pod_requests
from engine.resources.shape import covers, exclusion, merge_runtime_class, resource_tolerations, shape_hash

_CORE = 10**9


def node(
    *,
    labels: Mapping[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    unschedulable: bool = False,
    ready: bool = True,
) -> Node:
    return Node(
        name="host-1",
        uid="",
        resource_version="",
        labels=labels or {},
        allocatable={},
        taints=taints,
        unschedulable=unschedulable,
        ready=ready,
        settled_at=0.0,
    )


def shape(
    *,
    selector: tuple[tuple[str, str], ...] = (),
    affinity: tuple[SelectorTerm, ...] | None = None,
    tolerations: tuple[Toleration, ...] = (),
    requests: tuple[tuple[str, int], ...] = (("pods", 1),),
) -> Shape:
    return Shape(requests=requests, node_selector=selector, affinity=affinity, tolerations=tolerations)


def labelled(*expressions: SelectorRequirement) -> tuple[SelectorTerm, ...]:
    return (SelectorTerm(expressions=expressions, fields=()),)


def test_containers_add_up() -> None:
    """Containers run side by side."""
    assert effective([{"cpu": 1}, {"cpu": 2, "memory": 5}]) == {"cpu": 3, "memory": 5}


def test_an_init_container_counts_alone() -> None:
    """Init containers run one after another, before the others: the largest one counts, when it is larger."""
    assert effective([{"cpu": 3}], [({"cpu": 5}, False), ({"cpu": 4, "memory": 1}, False)]) == {"cpu": 5, "memory": 1}
    assert effective([{"cpu": 9}], [({"cpu": 5}, False)]) == {"cpu": 9}


def test_a_sidecar_runs_beside_all_that_come_after_it() -> None:
    """A sidecar adds to the containers and to the init containers behind it, not to those before it."""
    assert effective([{"cpu": 1}], [({"cpu": 2}, True), ({"cpu": 5}, False)]) == {"cpu": 7}
    assert effective([{"cpu": 1}], [({"cpu": 5}, False), ({"cpu": 2}, True)]) == {"cpu": 5}
    assert effective([{"cpu": 4}], [({"cpu": 1}, True), ({"cpu": 2}, True)]) == {"cpu": 7}


def test_pod_level_requests_replace_the_sum_of_the_containers() -> None:
    """What the pod asks for itself counts for cpu, memory and hugepages; devices are the containers' alone."""
    assert pod_requests(
        {"cpu": 3, "nvidia.com/gpu": 8}, pod_requests={"cpu": 2, "nvidia.com/gpu": 1}, pod_limits={}, overhead={}
    ) == {"cpu": 2, "nvidia.com/gpu": 8}


def test_a_pod_level_limit_stands_in_where_nobody_asks() -> None:
    """Requests default from the pod's limit, but from the containers' requests first, except for hugepages."""
    assert pod_requests(
        {"cpu": 3, "hugepages-2Mi": 2},
        pod_requests={},
        pod_limits={"cpu": 9, "memory": 7, "hugepages-2Mi": 4},
        overhead={},
    ) == {"cpu": 3, "memory": 7, "hugepages-2Mi": 4}


def test_overhead_comes_on_top() -> None:
    """Overhead adds to requests, and to limits only where there is a limit."""
    assert pod_requests({"cpu": 3}, pod_requests={}, pod_limits={}, overhead={"cpu": 1, "memory": 2}) == {
        "cpu": 4,
        "memory": 2,
    }
    assert pod_limits({"cpu": 3}, pod_limits={}, overhead={"cpu": 1, "memory": 2}) == {"cpu": 4}


def test_sums_are_rounded_once() -> None:
    """Amounts are added exactly and rounded up at the end; zeros are left out; names are sorted."""
    third = 333_333_334  # a bit more than a third of a core
    total = effective([{"cpu": third}, {"cpu": third}, {"cpu": third}, {"nvidia.com/gpu": 0}])
    assert in_units({**total, "pods": _CORE}) == (("cpu", 1001), ("pods", 1))


def test_an_ordinary_node_takes_an_ordinary_pod() -> None:
    """Nothing set, nothing excluded."""
    assert exclusion(shape(), node()) is None


def test_tolerations_are_added_for_extended_resources_alone() -> None:
    """As the admission plugin ExtendedResourceToleration does; claims of ours have a slash too."""
    requests = (("apart from pods 0a", 1), ("cpu", 1), ("host port 80/TCP", 1), ("kubernetes.io/x", 1), ("pods", 1))
    assert resource_tolerations(requests) == ()
    gpu = Toleration("nvidia.com/gpu", "Exists", "", "NoSchedule")
    assert resource_tolerations((*requests, ("nvidia.com/gpu", 8))) == (gpu,)


def test_a_cordoned_node_takes_no_pod_unless_tolerated() -> None:
    """spec.unschedulable excludes, and so does its taint alone; a toleration of it admits."""
    taint = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
    assert exclusion(shape(), node(unschedulable=True)) == "cordoned"
    assert exclusion(shape(), node(taints=(taint,))) == "cordoned"
    tolerant = shape(tolerations=(Toleration(taint.key, "Exists", "", "NoSchedule"),))
    assert exclusion(tolerant, node(unschedulable=True, taints=(taint,))) is None


def test_a_node_that_is_not_ready_takes_no_pod_whatever_is_tolerated() -> None:
    """Every real pod tolerates NotReady for a while: that must not make a dead host eligible."""
    assert exclusion(shape(tolerations=(Toleration("", "Exists", "", ""),)), node(ready=False)) == "not ready"


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_that_tells_of_a_condition_is_not_ready(effect: str) -> None:
    """Taints of node.kubernetes.io/ exclude as `not ready` unless tolerated."""
    taint = Taint("node.kubernetes.io/disk-pressure", "", effect)
    assert exclusion(shape(), node(taints=(taint,))) == "not ready"
    assert exclusion(shape(tolerations=(Toleration(taint.key, "Exists", "", ""),)), node(taints=(taint,))) is None


def test_an_execute_toleration_does_not_cover_a_schedule_taint() -> None:
    """The default tolerations (NoExecute) leave node.kubernetes.io/not-ready:NoSchedule standing."""
    key = "node.kubernetes.io/not-ready"
    pod = shape(tolerations=(Toleration(key, "Exists", "", "NoExecute"),))
    assert exclusion(pod, node(taints=(Taint(key, "", "NoExecute"), Taint(key, "", "NoSchedule")))) == "not ready"


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("gpu", "Equal", "yes", "NoSchedule"), True),
        (Toleration("gpu", "Equal", "yes", ""), True),
        (Toleration("gpu", "", "yes", ""), True),
        (Toleration("gpu", "Equal", "no", ""), False),
        (Toleration("gpu", "Exists", "", ""), True),
        (Toleration("gpu", "Exists", "", "NoExecute"), False),
        (Toleration("other", "Exists", "", ""), False),
        (Toleration("", "Exists", "", ""), True),
        (Toleration("", "Exists", "", "NoExecute"), False),
        (Toleration("", "Equal", "yes", ""), False),
        (Toleration("gpu", "Unknown", "yes", ""), False),
    ],
)
def test_tolerations(toleration: Toleration, tolerated: bool) -> None:
    """Key, operator, value and effect must fit; an empty key needs Exists; an empty effect is every effect."""
    host = node(taints=(Taint("gpu", "yes", "NoSchedule"),))
    assert exclusion(shape(tolerations=(toleration,)), host) == (None if tolerated else "taint gpu")


@pytest.mark.parametrize(
    ("operator", "value", "tolerated"),
    [("Gt", "90", True), ("Gt", "95", False), ("Lt", "96", True), ("Lt", "95", False), ("Gt", "x", False)],
)
def test_tolerations_by_number(operator: str, value: str, tolerated: bool) -> None:
    """Gt and Lt compare the taint's value with the toleration's as integers."""
    host = node(taints=(Taint("sla", "95", "NoSchedule"),))
    assert (exclusion(shape(tolerations=(Toleration("sla", operator, value, ""),)), host) is None) == tolerated


def test_a_preference_excludes_nothing() -> None:
    """PreferNoSchedule is the scheduler's preference only."""
    assert exclusion(shape(), node(taints=(Taint("spot", "", "PreferNoSchedule"),))) is None


def test_node_selector() -> None:
    """Every pair of the nodeSelector must stand on the node."""
    host = node(labels={"a": "1", "b": "2"})
    assert exclusion(shape(selector=(("a", "1"), ("b", "2"))), host) is None
    assert exclusion(shape(selector=(("a", "1"), ("b", "3"))), host) == "nodeSelector"
    assert exclusion(shape(selector=(("c", ""),)), host) == "nodeSelector"


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        (SelectorRequirement("zone", "In", ("a", "b")), True),
        (SelectorRequirement("zone", "In", ("c",)), False),
        (SelectorRequirement("absent", "In", ("a",)), False),
        (SelectorRequirement("zone", "NotIn", ("c",)), True),
        (SelectorRequirement("zone", "NotIn", ("a",)), False),
        (SelectorRequirement("absent", "NotIn", ("a",)), True),
        (SelectorRequirement("zone", "Exists", ()), True),
        (SelectorRequirement("absent", "Exists", ()), False),
        (SelectorRequirement("zone", "DoesNotExist", ()), False),
        (SelectorRequirement("absent", "DoesNotExist", ()), True),
        (SelectorRequirement("gen", "Gt", ("4",)), True),
        (SelectorRequirement("gen", "Gt", ("5",)), False),
        (SelectorRequirement("gen", "Lt", ("6",)), True),
        (SelectorRequirement("gen", "Lt", ("5",)), False),
        (SelectorRequirement("gen", "Gt", ("-1",)), True),
        (SelectorRequirement("zone", "Gt", ("1",)), False),
        (SelectorRequirement("gen", "Gt", ("1", "2")), False),
        (SelectorRequirement("gen", "Gt", ()), False),
        (SelectorRequirement("gen", "Gt", ("1_0",)), False),
        (SelectorRequirement("gen", "Lt", ("99999999999999999999",)), False),
        (SelectorRequirement("absent", "Lt", ("5",)), False),
        (SelectorRequirement("zone", "Like", ("a",)), False),
    ],
)
def test_node_affinity_operators(expression: SelectorRequirement, matches: bool) -> None:
    """All operators of node affinity, with what is absent, malformed and unknown."""
    host = node(labels={"zone": "a", "gen": "5"})
    assert exclusion(shape(affinity=labelled(expression)), host) == (None if matches else "node affinity")


def test_expressions_are_anded_and_terms_ored() -> None:
    """One term suffices, but wholly."""
    host = node(labels={"zone": "a"})
    here, there = SelectorRequirement("zone", "In", ("a",)), SelectorRequirement("zone", "In", ("b",))
    assert exclusion(shape(affinity=labelled(here, there)), host) == "node affinity"
    assert exclusion(shape(affinity=(*labelled(there), *labelled(here))), host) is None


def test_a_term_that_says_nothing_matches_nothing() -> None:
    """An empty term, and no terms at all, match no node."""
    assert exclusion(shape(affinity=labelled()), node()) == "node affinity"
    assert exclusion(shape(affinity=()), node()) == "node affinity"


@pytest.mark.parametrize(
    ("field", "matches"),
    [
        (SelectorRequirement("metadata.name", "In", ("host-1",)), True),
        (SelectorRequirement("metadata.name", "In", ("host-2",)), False),
        (SelectorRequirement("metadata.name", "NotIn", ("host-2",)), True),
        (SelectorRequirement("metadata.uid", "NotIn", ("x",)), False),
    ],
)
def test_match_fields(field: SelectorRequirement, matches: bool) -> None:
    """Fields match the node's name; any other field matches nothing."""
    pod = shape(affinity=(SelectorTerm(expressions=(), fields=(field,)),))
    assert exclusion(pod, node()) == (None if matches else "node affinity")


def test_covers_compares_every_resource() -> None:
    """A pod fits its planned slot when it asks no more of anything, also of what was not planned at all."""
    planned = shape(requests=(("cpu", 1000), ("memory", 10), ("pods", 1)))
    assert covers(planned, planned)
    assert covers(planned, shape(requests=(("cpu", 900), ("pods", 1))))
    assert not covers(planned, shape(requests=(("cpu", 1001), ("pods", 1))))
    assert not covers(planned, shape(requests=(("cpu", 1), ("nvidia.com/gpu", 1), ("pods", 1))))


def test_the_hash_tells_shapes_apart() -> None:
    """Ten hex digits; every part of the shape counts."""
    shapes = [
        shape(),
        shape(requests=(("cpu", 1), ("pods", 1))),
        shape(selector=(("a", "1"),)),
        shape(affinity=()),
        shape(affinity=labelled()),
        shape(affinity=labelled(SelectorRequirement("a", "Exists", ()))),
        shape(affinity=(SelectorTerm((), (SelectorRequirement("a", "Exists", ()),)),)),
        shape(tolerations=(Toleration("a", "Exists", "", ""),)),
    ]
    assert len({shape_hash(one) for one in shapes}) == len(shapes)
    assert all(len(shape_hash(one)) == 10 and int(shape_hash(one), 16) >= 0 for one in shapes)


def test_the_hash_is_the_same_in_every_release() -> None:
    """The hash stands in Placements: were it to change, every waiting and running gang would look changed."""
    one = shape(requests=(("cpu", 500), ("pods", 1)), affinity=labelled(SelectorRequirement("a", "In", ("b",))))
    assert shape_hash(one) == "d5b04eb4fe"


def test_a_runtime_class_merges_into_a_template() -> None:
    """Overhead is added, nodeSelector and tolerations are joined; the template's own nodeSelector value is kept."""
    sandbox = Toleration("sandbox", "Exists", "", "")
    runtime = RuntimeClass(
        name="kata", overhead={"cpu": 250, "memory": 0}, node_selector={"a": "9", "kata": "yes"}, tolerations=(sandbox,)
    )
    merged = merge_runtime_class(shape(requests=(("cpu", 1000), ("pods", 1)), selector=(("a", "1"),)), runtime)
    assert merged == shape(
        requests=(("cpu", 1250), ("pods", 1)), selector=(("a", "1"), ("kata", "yes")), tolerations=(sandbox,)
    )
    assert merge_runtime_class(merged, runtime).tolerations == (sandbox,)


def test_whole_gpus_in_bytes_stay_whole_with_other_requests() -> None:
    """That admission wrote the bytes is no part of the requests, and holds for larger ones too."""
    whole = DeviceRequest(gpus=2, core=100, ratio=100, memory=10, whole=True)
    requests = (("cpu", 1000), ("koordinator.sh/gpu-core", 200), ("koordinator.sh/gpu-memory", 20), ("pods", 1))
    template = replace(shape(requests=requests), devices=whole)
    runtime = RuntimeClass(name="kata", overhead={"cpu": 250}, node_selector={}, tolerations=())
    assert merge_runtime_class(template, runtime).devices == whole
