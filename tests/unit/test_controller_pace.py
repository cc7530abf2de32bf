"""How often the controller's loop turns."""

from __future__ import annotations

import threading
import time
from typing import cast

from engine.controller import FOLLOW_EVERY, Controller
from engine.errands import Errands
from engine.stores import Stores
from engine.view import View


class CountingView(View):
    """Counts how often it was brought up to date."""

    refreshed = 0

    def refresh(self) -> None:
        self.refreshed += 1
        super().refresh()


def test_a_burst_of_changes_is_taken_in_together() -> None:
    view = CountingView(Stores())
    controller = Controller(view, cast(Errands, None), leads=lambda: False, begin_term=lambda: False)
    began = time.monotonic()
    loop = threading.Thread(target=controller.run)
    loop.start()
    while view.refreshed < 4:
        view.changed.set()
        time.sleep(0.0005)
    turns = view.refreshed
    controller.stop()
    loop.join(5.0)
    assert not loop.is_alive()
    assert (turns - 1) * FOLLOW_EVERY <= time.monotonic() - began
