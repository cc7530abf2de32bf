"""Properties of the translation of GPU requests, over pods of every kind."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.api.device import DeviceRequest
from engine.api.names import GPU_REQUEST, ORIGINAL_REQUESTS
from engine.api.resources import effective
from engine.resources.containers import Container, PodResources, pod_resources
from engine.resources.names import CORE, GPU, KOORDINATOR, MEMORY, NVIDIA, RATIO, RDMA, Reported, whole_names
from engine.resources.request import device_request, dimensions
from engine.resources.translation import Mode, Translation, translate
from tests.support.translations import applied

WHOLE = whole_names()
NAMES = WHOLE | KOORDINATOR
SIZE = 80 * 2**30
SETTINGS = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])

percent = st.one_of(st.integers(1, 100), st.integers(1, 8).map(lambda n: 100 * n))
# One way of asking a pod: the same for all of its containers, as the rules want it.
WAYS = (
    st.fixed_dictionaries({NVIDIA: st.integers(0, 8)}),
    st.fixed_dictionaries({GPU: percent}),
    st.fixed_dictionaries({CORE: percent, RATIO: percent}),
    st.fixed_dictionaries({CORE: st.integers(1, 100), MEMORY: st.integers(1, SIZE)}),
    st.fixed_dictionaries({"amd.com/gpu": st.integers(1, 4)}),
    st.fixed_dictionaries({RDMA: percent}),
    st.fixed_dictionaries({"cpu": st.integers(1, 8)}),
)
modes: st.SearchStrategy[Mode] = st.sampled_from(["auto", "rewrite", "annotate", "off"])
reports = st.builds(
    Reported,
    st.sets(st.sampled_from(["cpu", NVIDIA, GPU, CORE, RATIO, MEMORY, RDMA])).map(frozenset),
    st.sampled_from([None, SIZE]),
)


@st.composite
def pods(draw: st.DrawFn) -> PodResources:
    """Pods whose containers ask in one way, on either side or both."""
    way = draw(st.sampled_from(WAYS))

    def container(kind: str, position: int) -> Container:
        amounts = {name: str(number) for name, number in draw(way).items()}
        sides = draw(st.sampled_from(["requests", "limits", "both", "none"]))
        return Container(
            name=f"{kind}{position}",
            path=(kind, position),
            requests=amounts if sides in ("requests", "both") else {},
            limits=amounts if sides in ("limits", "both") else {},
            sidecar=kind == "initContainers" and draw(st.booleans()),
        )

    return PodResources(
        tuple(container("containers", at) for at in range(draw(st.integers(1, 3)))),
        tuple(container("initContainers", at) for at in range(draw(st.integers(0, 2)))),
    )


def run(pod: PodResources, mode: Mode, reported: Reported) -> Translation:
    return translate(pod, mode=mode, reported=reported, path="spec")


def without_bytes(done: Translation) -> DeviceRequest | None:
    """What the pod requests, without the bytes that were written for percents."""
    request = done.request
    return replace(request, memory=0) if request is not None and request.translated else request


def asked(pod: PodResources) -> set[str]:
    return {name for one in pod for name in (*one.requests, *one.limits)}


def sentences(done: Translation) -> list[str]:
    """The errors without the side at which they stand: a side that was missing has been completed."""
    return [error.message for error in done.errors]


@SETTINGS
@given(pods(), modes, reports)
def test_a_second_pass_changes_nothing(pod: PodResources, mode: Mode, reported: Reported) -> None:
    """Translating what was translated is nothing to do."""
    done = run(pod, mode, reported)
    again = run(applied(pod, done), mode, reported)
    assert again.edits == ()
    assert again.annotations == {}
    assert sentences(again) == sentences(done)


@SETTINGS
@given(pods(), modes, reports, modes, reports)
def test_later_passes_come_to_rest_whatever_changes(
    pod: PodResources, mode: Mode, reported: Reported, later: Mode, others: Reported
) -> None:
    """A pod means the same whatever the policy and the nodes become between its template and itself."""
    first = run(pod, mode, reported)
    template = applied(pod, first)
    second = run(template, later, others)
    done = applied(template, second)
    # In memory, which depends on what nodes report of it, the same is another number.
    assert without_bytes(second) == without_bytes(first)
    third = run(done, later, others)
    assert (third.edits, third.annotations) == ((), {})


@SETTINGS
@given(pods(), modes, reports)
def test_totals_are_those_of_kubernetes(pod: PodResources, mode: Mode, reported: Reported) -> None:
    """What the pod means is what the formula gives for its containers' dimensions, before and after."""
    done = run(pod, mode, reported)
    if done.errors:
        return

    def total(one: PodResources) -> dict[str, int]:
        found = effective(
            [dimensions(container.amounts(NAMES), WHOLE) for container in one.containers],
            [(dimensions(container.amounts(NAMES), WHOLE), container.sidecar) for container in one.init_containers],
        )
        return {name: number for name, number in found.items() if number}

    after = applied(pod, done)
    before_total, after_total = total(pod), total(after)
    in_bytes = MEMORY in after_total and MEMORY not in before_total
    if not in_bytes:
        assert after_total == before_total
        assert done.request == device_request(before_total)
    else:
        assert after_total[CORE] == before_total[CORE]
        assert after_total[MEMORY] <= before_total[RATIO] * SIZE // 100
        assert without_bytes(done) == device_request(before_total)
    literal = after.total({one.path: one.amounts(NAMES) for one in after})
    assert done.request == device_request(literal, translated=ORIGINAL_REQUESTS in after.annotations)


@SETTINGS
@given(pods(), reports)
def test_auto_adds_no_name_that_no_node_reports(pod: PodResources, reported: Reported) -> None:
    """Whatever is in the pod afterwards was there before, or some node reports it."""
    after = applied(pod, run(pod, "auto", reported))
    assert asked(after) - asked(pod) <= reported.names


@SETTINGS
@given(pods(), modes, reports)
def test_every_device_ends_up_with_limits(pod: PodResources, mode: Mode, reported: Reported) -> None:
    """Requests have equal limits for every device name; nothing else is touched."""
    after = applied(pod, run(pod, mode, reported))
    for old, new in zip(pod, after, strict=True):
        if mode != "off":
            assert {(k, v) for k, v in new.requests.items() if k in NAMES} <= set(new.limits.items())
        for had, has in ((old.requests, new.requests), (old.limits, new.limits)):
            assert {k: v for k, v in had.items() if k not in NAMES} == {k: v for k, v in has.items() if k not in NAMES}


@SETTINGS
@given(pods(), modes, reports)
def test_the_original_is_kept_where_a_name_gives_way(pod: PodResources, mode: Mode, reported: Reported) -> None:
    """Every container that lost a name has what its user wrote in the annotation, word for word."""
    done = run(pod, mode, reported)
    after = applied(pod, done)
    told = json.loads(done.annotations.get(ORIGINAL_REQUESTS) or "{}")
    for old, new in zip(pod, after, strict=True):
        lost = {*old.requests, *old.limits} - {*new.requests, *new.limits}
        assert bool(lost) == (old.name in told)
        if lost:
            assert told[old.name] == {"requests": old.requests, "limits": old.limits}


values: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["1e3", "0.5", "-1", "500m", "1Gi", "", "1e999", "100", "50", "9" * 80, "1\x00", "٣", "+5", "0x10"]
    ),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=1),
)
sides: st.SearchStrategy[Any] = st.one_of(
    values, st.dictionaries(st.one_of(st.sampled_from(sorted(NAMES)), st.text(max_size=5)), values, max_size=5)
)
containers: st.SearchStrategy[Any] = st.one_of(
    values,
    st.fixed_dictionaries(
        {},
        optional={
            "name": values,
            "restartPolicy": st.one_of(values, st.just("Always")),
            "resources": st.fixed_dictionaries({}, optional={"requests": sides, "limits": sides}),
        },
    ),
)
lists: st.SearchStrategy[Any] = st.one_of(values, st.lists(containers, max_size=3))
notes: st.SearchStrategy[Any] = st.one_of(
    values,
    st.dictionaries(
        st.sampled_from([ORIGINAL_REQUESTS, GPU_REQUEST]),
        st.one_of(
            values,
            st.dictionaries(
                st.text(max_size=2), st.fixed_dictionaries({"requests": sides, "limits": sides}), max_size=2
            ).map(json.dumps),
        ),
        max_size=2,
    ),
)


@SETTINGS
@given(st.fixed_dictionaries({}, optional={"containers": lists, "initContainers": lists}), notes, modes, reports)
def test_never_raises(spec: object, annotations: object, mode: Mode, reported: Reported) -> None:
    """Whatever a pod consists of, the answer is a translation; what is wrong is refused in one line."""
    done = run(pod_resources(spec, annotations), mode, reported)
    for error in done.errors:
        assert f"{error.value}{error.message}".isprintable()
    pod = pod_resources(spec, annotations)
    after = applied(pod, done)
    again = run(after, mode, reported)
    assert again.edits == ()
    assert sentences(again) == sentences(done)
    assert replace(after, annotations={}) == replace(applied(after, again), annotations={})
