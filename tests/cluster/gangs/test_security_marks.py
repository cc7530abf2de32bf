"""What only we write cannot be changed by anybody else, and a gate that was taken off by hand breaks nothing."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api import names
from local.client import Client, ClientError
from local.controlplane import ControlPlane
from tests.support.books import Books
from tests.support.eventually import eventually
from tests.support.gangs import INDEX, Namespace, require
from tests.support.users import ordinary_user

pytestmark = pytest.mark.core


@pytest.fixture
def user(control_plane: ControlPlane, namespace: str) -> Client:
    return ordinary_user(control_plane, namespace)


def template(**metadata: Any) -> dict[str, Any]:
    return {"spec": {"template": {"metadata": metadata}}}


# On a gang that waits: its template may change.
CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "held-by overwritten": (
        {"metadata": {"annotations": {names.HELD_BY: "me"}}},
        "metadata.annotations[topogate.dev/held-by]",
    ),
    "a placement on the workload": (
        {"metadata": {"annotations": {names.PLACEMENT: "job-other-1"}}},
        "metadata.annotations[topogate.dev/placement]",
    ),
    "a placement in the template": (
        template(annotations={names.PLACEMENT: "job-other-1"}),
        "spec.template.metadata.annotations[topogate.dev/placement]",
    ),
    "a revision in the template": (
        template(annotations={names.REVISION: "7"}),
        "spec.template.metadata.annotations[topogate.dev/revision]",
    ),
    "a rank in the template": (
        template(annotations={names.RANK: "0"}),
        "spec.template.metadata.annotations[topogate.dev/rank]",
    ),
    "a gang in the template": (
        template(labels={names.GANG: "job-other-1"}),
        "spec.template.metadata.labels[topogate.dev/gang]",
    ),
    "a gang on the workload": (
        {"metadata": {"labels": {names.GANG: "job-other-1"}}},
        "metadata.labels[topogate.dev/gang]",
    ),
}


def test_a_change_of_ours_is_refused_at_its_path(gangs: Namespace, user: Client) -> None:
    """Each is answered 422 with the field, and the Job stays as it is."""
    gangs.fleet.grid("1x1x1")
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.waits("train")
    for what, (change, field) in CHANGES.items():
        with pytest.raises(ClientError) as error:
            user.patch(f"{gangs.jobs_path}/train", change)
        assert error.value.status == 422, what
        assert field in [cause["field"] for cause in error.value.details["causes"]], what
    stored = gangs.job("train")
    assert stored["spec"]["suspend"] is True
    assert stored["metadata"]["annotations"][names.HELD_BY] == names.HELD_BY_SUSPEND


def test_a_waiting_gang_without_held_by_is_suspended_by_its_user(gangs: Namespace, user: Client) -> None:
    """As `kubectl replace` leaves it with `suspend: true` in its file: resumed, it is held and waits again."""
    gangs.fleet.grid("1x1x1")
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.waits("train")
    user.patch(f"{gangs.jobs_path}/train", {"metadata": {"annotations": {names.HELD_BY: None}}})
    gangs.waits("train", "Suspended")
    user.patch(f"{gangs.jobs_path}/train", {"spec": {"suspend": False}})
    gangs.waits("train", "GangTooLarge")
    assert gangs.job("train")["metadata"]["annotations"][names.HELD_BY] == names.HELD_BY_SUSPEND
    assert gangs.pods("train") == []


def test_marks_that_an_edit_loses_are_put_back(gangs: Namespace, user: Client) -> None:
    """Gate and labels taken out of the template of a gang that waits are in it again after the write."""
    gangs.fleet.grid("1x1x1")
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.waits("train")
    lost = {
        "metadata": {"labels": {names.MANAGED: None, names.POD_SET: None}},
        "spec": {"schedulingGates": None},
    }
    stored = user.patch(f"{gangs.jobs_path}/train", {"spec": {"template": lost}})["spec"]["template"]
    assert stored["spec"]["schedulingGates"] == [{"name": names.GATE}]
    assert stored["metadata"]["labels"][names.MANAGED] == "true"
    assert stored["metadata"]["labels"][names.POD_SET]


def test_the_mark_of_our_suspension_on_one_s_own_is_no_more_than_a_resume(gangs: Namespace, user: Client) -> None:
    """`/validate` cannot tell it from a resume that `/mutate` took back: the gang queues, and all or nothing holds."""
    gangs.fleet.grid("1x1x1")
    gangs.submit("train", pods=2, annotations=require("rack"), spec={"suspend": True})
    user.patch(f"{gangs.jobs_path}/train", {"metadata": {"annotations": {names.HELD_BY: names.HELD_BY_SUSPEND}}})
    gangs.waits("train", "GangTooLarge")
    assert gangs.pods("train") == []


def test_the_request_of_a_running_gang_stands(gangs: Namespace, user: Client) -> None:
    """Where it runs is decided: another level is refused with a word on how to get there."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.all_bound("train", 2)
    gangs.slots_seen("train")
    with pytest.raises(ClientError) as error:
        user.patch(f"{gangs.jobs_path}/train", {"metadata": {"annotations": require("block")}})
    assert error.value.status == 422
    (cause,) = error.value.details["causes"]
    assert cause["field"] == "metadata.annotations[topogate.dev/require-topology]"
    assert "suspend the Job, change it and resume it" in cause["message"]


def test_foreign_metadata_of_a_running_gang_may_change(gangs: Namespace, user: Client) -> None:
    """Labels and annotations of others go through, with our marks untouched."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.all_bound("train", 2)
    change = {"metadata": {"labels": {"team": "blue"}, "annotations": {"example.com/note": "mine"}}}
    assert user.patch(f"{gangs.jobs_path}/train", change)["metadata"]["labels"]["team"] == "blue"


def test_a_gate_taken_off_by_hand_overbooks_nothing(gangs: Namespace, user: Client, client: Client) -> None:
    """A pod of a gang that waits lands where the scheduler likes: it is counted there, and the gang goes on."""
    gangs.fleet.grid("1x2x2")
    books = Books(client, gangs.fleet)
    gangs.submit("first", pods=3, annotations={"topogate.dev/unconstrained-topology": "true"})
    gangs.all_bound("first", 3)
    gangs.submit("second", pods=2, annotations=require("rack"))
    gangs.waits("second")
    user.patch(f"{gangs.jobs_path}/second", {"spec": {"suspend": False}})
    pods = eventually(lambda: found if len(found := gangs.pods("second")) == 2 else None, message="two held pods")
    assert pods is not None
    eager = next(pod for pod in pods if pod["metadata"]["labels"][INDEX] == "1")
    path = f"/api/v1/namespaces/{gangs.name}/pods/{eager['metadata']['name']}"
    user.patch(path, {"spec": {"schedulingGates": None}})
    where = eventually(lambda: gangs.bound("second").get(1), message="the eager pod is bound")
    client.delete(f"{gangs.jobs_path}/first")
    hosts = gangs.all_bound("second", 2)
    assert hosts[1] == where
    assert books.overbooked() == {}
