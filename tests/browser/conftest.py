"""One Chromium for all tests of a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.browser import Browser, chromium
from webhook.map.frame import map_frame
from webhook.map.page import static_page
from webhook.snapshot.snapshot import Snapshot

Shown = Callable[[Snapshot], Browser]


@pytest.fixture(scope="session")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def shown(window: Browser, tmp_path: Path) -> Shown:
    """Write the map of a snapshot into a file and open it."""

    def show(snapshot: Snapshot) -> Browser:
        path = tmp_path / "map.html"
        path.write_text(static_page(map_frame(snapshot)), encoding="utf-8")
        window.prefer("light")
        window.open(path.as_uri())
        return window

    return show
