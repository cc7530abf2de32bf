"""The frames of a live map: only changes are kept, and only so many."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

from tests.support.simulation import grid
from tests.support.snapshots import TAKEN, snapshot, waits
from webhook.map.frame import map_frame
from webhook.map.history import History
from webhook.map.model import MapFrame


def frame(gangs: int, *, at: float = TAKEN) -> MapFrame:
    cluster = [*grid(1, 1, 2), *(waits(f"w{number}", 9, {"require": "rack"}) for number in range(gangs))]
    return map_frame(replace(snapshot(cluster), taken=at))


def test_a_frame_is_kept_if_it_differs() -> None:
    history = History()
    idle = map_frame(snapshot(grid(1, 1, 2)))
    assert history.add(idle)
    assert not history.add(idle.model_copy(update={"taken_at": "2026-01-01T00:31:00Z"}))
    assert history.add(frame(1))
    assert [one.id for one in history.frames()] == [1, 2]
    found = history.frame(2)
    assert found is not None
    assert [gang["name"] for gang in json.loads(gzip.decompress(found.content))["gangs"]] == ["w0"]
    assert history.frame(3) is None


def test_the_oldest_frames_go() -> None:
    history = History(most_frames=3)
    for number in range(5):
        history.add(frame(number))
    assert [one.id for one in history.frames()] == [3, 4, 5]
    assert history.frame(2) is None
    narrow = History(most_bytes=1)
    for number in range(2):
        narrow.add(frame(number))
    assert [one.id for one in narrow.frames()] == [2]


def test_a_reading_that_succeeds_ends_the_problem() -> None:
    history = History()
    history.problem = "no answer"
    history.add(frame(0))
    history.problem = "no answer"
    history.add(frame(0))
    assert history.problem == ""
