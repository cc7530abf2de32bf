"""The service comes back after an outage: what happened meanwhile is taken in, what was held is released."""

from __future__ import annotations

from local.client import Client
from local.service import Service
from tests.support.books import Books
from tests.support.eventually import eventually
from tests.support.gangs import INDEX, Namespace, require
from tests.support.raw_pods import held


def test_pods_made_during_an_outage_are_held_and_released_later(
    gangs: Namespace, service: Service, client: Client
) -> None:
    """An index that follows a finished one gets its pod while nobody answers: the template's gate holds it."""
    gangs.fleet.grid("1x2x2")
    books = Books(client, gangs.fleet)
    gangs.submit("series", pods=2, completions=3, annotations=require("rack"))
    hosts = gangs.all_bound("series", 2)
    service.stop()
    finished = next(pod for pod in gangs.pods("series") if pod["metadata"]["labels"][INDEX] == "1")
    path = f"/api/v1/namespaces/{gangs.name}/pods/{finished['metadata']['name']}"
    client.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})

    def third() -> list[dict[str, object]]:
        return [pod for pod in gangs.pods("series") if pod["metadata"]["labels"][INDEX] == "2"]

    eventually(third, message="the pod of index 2 is made")
    assert held(third()[0])
    service.start(2)
    after = eventually(lambda: found if 2 in (found := gangs.bound("series")) else None, message="index 2 is bound")
    assert after is not None
    assert after[2] == hosts[1]  # the free slot
    assert books.overbooked() == {}


def test_room_that_came_free_during_an_outage_is_given_out(gangs: Namespace, service: Service, client: Client) -> None:
    """A gang was deleted while nobody watched: its slots go to the one that waits, and its Placement is gone."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("first", pods=2, annotations=require("rack"))
    gangs.all_bound("first", 2)
    gangs.submit("second", pods=2, annotations=require("rack"))
    gangs.waits("second")
    service.stop()
    client.delete(f"{gangs.jobs_path}/first")
    eventually(lambda: gangs.pods("first") == [], message="the first gang's pods are gone")
    service.start(2)
    gangs.all_bound("second", 2)
    eventually(lambda: gangs.placement("first") is None, message="the first gang's Placement is gone")
