"""A translated template that is written again: the user's words are told from ours."""

from __future__ import annotations

from typing import Any

import pytest

from engine.resources.annotations import reapplied, recorded_requests
from engine.resources.containers import PodResources, pod_resources
from engine.resources.names import CORE, GPU, KOORDINATOR, NVIDIA, RATIO, Reported, whole_names
from engine.resources.translation import translate

DIMENSIONS = Reported(frozenset({"cpu", *KOORDINATOR}))
PLAIN = Reported(frozenset({"cpu", NVIDIA}))
Sides = dict[str, dict[str, Any]]


def pod(*containers: Sides, annotations: dict[str, str] | None = None, kind: str = "containers") -> PodResources:
    listed = [{"name": f"c{number}", "resources": one} for number, one in enumerate(containers)]
    return pod_resources({kind: listed}, annotations)


def stored(*containers: Sides, reported: Reported = DIMENSIONS, **options: Any) -> PodResources:
    """What becomes of a template at CREATE on nodes that report these names."""
    written = pod(*containers, **options)
    done = translate(written, mode="auto", reported=reported, path="spec")
    assert not done.errors
    sides = [{"requests": dict(one.requests), "limits": dict(one.limits)} for one in written]
    for edit in done.edits:
        _, position, _, side, name = edit.path
        if edit.value is None:
            del sides[int(position)][str(side)][str(name)]
        else:
            sides[int(position)][str(side)][str(name)] = edit.value
    notes = {key: value for key, value in done.annotations.items() if value is not None}
    return pod(*sides, annotations=notes, **options)


def merged(old: PodResources, *containers: Sides) -> PodResources:
    """What `kubectl apply` sends: the file's resources merged into those that stand there."""
    sides = [
        {"requests": {**was.requests, **one.get("requests", {})}, "limits": {**was.limits, **one.get("limits", {})}}
        for was, one in zip(old, containers, strict=True)
    ]
    return pod(*sides, annotations=dict(old.annotations))


def sides(of: PodResources) -> list[Sides]:
    return [{"requests": dict(one.requests), "limits": dict(one.limits)} for one in of]


FILES: dict[str, Sides] = {
    "percent in limits": {"limits": {GPU: "50", "cpu": "1"}},
    "percent in requests": {"requests": {GPU: "50", "cpu": "1"}},
    "percent in both": {"requests": {GPU: "50"}, "limits": {GPU: "50"}},
    "whole GPUs": {"limits": {NVIDIA: "2"}},
    "dimensions in requests": {"requests": {CORE: "50", RATIO: "60"}},
    "dimensions in both": {"requests": {CORE: "50", RATIO: "60"}, "limits": {CORE: "50", RATIO: "60"}},
    "nothing": {"requests": {"cpu": "1"}},
}


@pytest.mark.parametrize("title", FILES)
def test_the_same_file_again_changes_nothing(title: str) -> None:
    """Merged into what stands there (kubectl apply) or in its place (kubectl replace)."""
    old = stored(FILES[title])
    for new in (merged(old, FILES[title]), pod(FILES[title])):
        meant = reapplied(old, new)
        assert meant.same
        assert {name: value for name, value in sides(meant.pod)[0]["limits"].items() if name != "cpu"} == {
            name: value for name, value in sides(old)[0]["limits"].items() if name != "cpu"
        }


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_changed_amount_is_the_users(kind: str) -> None:
    """What we had made of the old amount goes; the new one stands as he wrote it."""
    old = stored({"limits": {GPU: "50"}}, kind=kind)
    new = merged(old, {"limits": {GPU: "100"}})
    meant = reapplied(old, new)
    assert not meant.same
    assert sides(meant.pod) == [{"requests": {}, "limits": {GPU: "100"}}]


@pytest.mark.parametrize("side", ["requests", "limits"])
def test_one_changed_side_is_what_is_meant(side: str) -> None:
    """The other side was completed by us, or is behind: it follows."""
    old = stored({side: {CORE: "50", RATIO: "60"}})
    meant = reapplied(old, merged(old, {side: {CORE: "70", RATIO: "60"}}))
    assert not meant.same
    follows: Sides = {"limits": {RATIO: "60"}} if side == "requests" else {"requests": {}}
    assert sides(meant.pod) == [{side: {CORE: "70", RATIO: "60"}, **follows}]


def test_a_device_that_its_user_removes_from_the_file_is_gone() -> None:
    """`kubectl apply` removes what the file had and has no more; nothing of ours brings it back."""
    old = stored({"limits": {NVIDIA: "1", "cpu": "4"}}, reported=PLAIN)
    sent = sides(old)[0]
    del sent["limits"][NVIDIA]
    meant = reapplied(old, pod(sent, annotations=dict(old.annotations)))
    assert not meant.same
    assert sides(meant.pod) == [{"requests": {}, "limits": {"cpu": "4"}}]


def test_a_renamed_device_that_its_user_removes_is_gone_once_the_file_stands_alone() -> None:
    """`kubectl replace` sends the file alone; `kubectl apply` does not know the names that we wrote."""
    old = stored({"limits": {NVIDIA: "1", "cpu": "4"}})
    meant = reapplied(old, pod({"limits": {"cpu": "4"}}))
    assert not meant.same
    assert sides(meant.pod) == [{"requests": {}, "limits": {"cpu": "4"}}]


def test_two_changed_sides_are_left_to_be_refused() -> None:
    """Unequal values that are both new mean nothing that could be guessed."""
    old = stored({"limits": {CORE: "50", RATIO: "60"}})
    new = merged(old, {"requests": {CORE: "70"}, "limits": {CORE: "80"}})
    assert reapplied(old, new).pod == new


def test_another_way_of_asking_is_the_users() -> None:
    """The file names dimensions now: ours are told from his by their values."""
    old = stored({"limits": {GPU: "50"}})
    meant = reapplied(old, merged(old, {"limits": {CORE: "30", RATIO: "80"}}))
    assert not meant.same
    assert sides(meant.pod)[0]["limits"] == {CORE: "30", RATIO: "80"}


@pytest.mark.parametrize(("core", "ratio"), [("50", "50"), ("50", "60"), ("60", "50"), ("30", "80")])
@pytest.mark.parametrize("alone", [True, False], ids=["replace", "apply"])
def test_a_file_in_the_names_of_the_nodes_is_as_its_user_wrote_it(alone: bool, core: str, ratio: str) -> None:
    """Also where an amount is the one that stands there already."""
    old, file = stored({"limits": {GPU: "50"}}), {"limits": {CORE: core, RATIO: ratio}}
    meant = reapplied(old, pod(file) if alone else merged(old, file))
    assert sides(meant.pod)[0]["limits"] == file["limits"]


def test_one_amount_that_is_edited_leaves_the_other() -> None:
    """`kubectl edit` of the stored object."""
    old = stored({"limits": {GPU: "50"}})
    edited = sides(old)[0]
    edited["limits"][RATIO] = edited["requests"][RATIO] = "60"
    meant = reapplied(old, pod(edited, annotations=dict(old.annotations)))
    assert sides(meant.pod) == [{"requests": {CORE: "50", RATIO: "60"}, "limits": {CORE: "50", RATIO: "60"}}]


def test_a_container_that_stays_keeps_its_note_beside_one_that_changes() -> None:
    """The file stands alone, as `kubectl replace` sends it; the note of the changed one goes."""
    old = stored({"limits": {NVIDIA: "1"}}, {"limits": {NVIDIA: "1"}})
    meant = reapplied(old, pod({"limits": {NVIDIA: "1"}}, {"limits": {"cpu": "1"}}))
    assert not meant.same
    assert sides(meant.pod)[0] == sides(old)[0]
    assert recorded_requests(meant.pod) == {"c0": {"requests": {}, "limits": {NVIDIA: "1"}}}


def test_the_note_of_a_container_with_another_name_for_its_gpus_goes() -> None:
    """Else a return to the first name would be taken for no change."""
    old = stored({"limits": {NVIDIA: "1"}})
    meant = reapplied(old, merged(old, {"limits": {"amd.com/gpu": "1"}}), vendors=("amd.com/gpu",))
    assert recorded_requests(meant.pod) == {}


@pytest.mark.parametrize("new", ["requests", "limits"])
@pytest.mark.parametrize("old", ["requests", "limits"])
def test_a_name_that_its_user_exchanged_takes_our_half_of_the_old_one_with_it(old: str, new: str) -> None:
    """On nodes that report other names nothing is rewritten, only completed: no manifest knows of that half."""
    completed = pod({"requests": {GPU: "50"}, "limits": {GPU: "50"}})
    other = "limits" if old == "requests" else "requests"
    applied: Sides = {old: {}, other: {GPU: "50"}}
    applied[new] = {**applied[new], NVIDIA: "1"}
    meant = reapplied(completed, pod(applied))
    assert not meant.same
    assert sides(meant.pod)[0] == {"requests": {}, "limits": {}} | {new: {NVIDIA: "1"}}


def test_a_half_that_stands_in_nobodys_way_stays() -> None:
    """A user who asks for a card besides, and for the GPU on one side only, keeps the GPU."""
    old = pod({"requests": {GPU: "50"}, "limits": {GPU: "50"}})
    meant = reapplied(old, pod({"limits": {GPU: "50", "koordinator.sh/rdma": "100"}}))
    assert sides(meant.pod)[0]["limits"] == {GPU: "50", "koordinator.sh/rdma": "100"}


def test_two_names_that_its_user_wrote_himself_are_left_to_be_refused() -> None:
    """Both sides of both: nothing there is ours."""
    old = pod({"requests": {GPU: "50"}, "limits": {GPU: "50"}})
    both = {GPU: "50", NVIDIA: "1"}
    new = pod({"requests": dict(both), "limits": dict(both)})
    assert reapplied(old, new).pod == new


def test_what_is_not_about_devices_is_left_alone() -> None:
    """A container's cpu, and a container that was never translated."""
    old = stored({"limits": {GPU: "50", "cpu": "1"}}, {"limits": {"cpu": "1"}})
    meant = reapplied(old, merged(old, {"limits": {GPU: "50", "cpu": "2"}}, {"limits": {"cpu": "3"}}))
    assert meant.same
    assert sides(meant.pod)[0]["limits"] == {CORE: "50", RATIO: "50", "cpu": "2"}
    assert sides(meant.pod)[1]["limits"] == {"cpu": "3"}


def test_a_container_more_is_a_change() -> None:
    """Also one that asks for no device: the old one keeps what it has."""
    old = stored({"limits": {GPU: "50"}})
    new = pod(sides(old)[0], {"limits": {GPU: "50"}}, annotations=dict(old.annotations))
    meant = reapplied(old, new)
    assert not meant.same
    assert sides(meant.pod)[0] == sides(old)[0]
    assert sides(meant.pod)[1]["limits"] == {GPU: "50"}


@pytest.mark.parametrize(
    "note", ["", "{", "[]", '{"c0":1}', '{"c0":{"requests":{},"limits":7}}', "[" * 100_000, '{"c0":{}}', "\x00"]
)
def test_a_note_that_cannot_be_read_tells_nothing(note: str) -> None:
    """Then what is sent is what is meant."""
    old = pod({"limits": {CORE: "50", RATIO: "50"}}, annotations={"topogate.dev/original-requests": note})
    new = pod({"limits": {CORE: "50", RATIO: "50", GPU: "50"}})
    assert reapplied(old, new).pod == new
    assert not reapplied(old, new).same


def test_odd_templates_are_taken_as_they_are() -> None:
    """No containers, no names, strange values: nothing raised, nothing invented."""
    odd = pod_resources({"containers": [{}, {"name": 7, "resources": {"limits": {GPU: [1]}}}, "x"]})
    assert reapplied(odd, odd).same
    assert reapplied(PodResources(()), PodResources(())).same
    assert not reapplied(PodResources(()), odd).same
    assert whole_names(("example.com/npu",)) >= {"example.com/npu"}
