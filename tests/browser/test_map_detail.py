"""How much the map draws of a host from afar and from near, in a real Chromium."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.conftest import Shown
from tests.support.browser import Browser
from tests.support.eventually import eventually
from tests.support.simulation import Json, grid
from tests.support.snapshots import placed, snapshot, waits

pytestmark = pytest.mark.timeout(300)

BLUE, ORANGE = "#0072b2", "#e69f00"  # of the first two gangs
MOST_HOSTS = 2_000  # in view, drawn one by one
HOSTILE = "<img src=x onerror=globalThis.hacked=1>\u202e"


def gang(name: str, rack: str) -> list[Json]:
    """A gang on all hosts of a rack of 32."""
    return placed(name, {f"{rack}-h{at}": (f"{rack.partition('-')[0]}/{rack}", 1) for at in range(32)}, bound=32)


def large() -> list[Json]:
    """2,560 hosts, more than are drawn one by one: two gangs with slots, and many that wait."""
    waiting = (waits(f"later-{number:03}", 40, {"require": "rack"}, minute=number % 60) for number in range(150))
    return [*grid(4, 20, 32), *gang("a", "b0-r0"), *gang("b", "b0-r1"), *waiting]


def detail(page: Browser) -> str:
    return str(page.of("base", "dataset.detail"))


def zoomed_in(page: Browser, reached: Callable[[], bool]) -> None:
    """Zoom in on the first rack, with the wheel as people do, until something holds."""
    script = """
    const area = document.getElementById("overlay");
    const { left, top } = area.getBoundingClientRect();
    const at = { clientX: left + arguments[0], clientY: top + arguments[1], deltaY: -100, bubbles: true, cancelable: true };
    area.dispatchEvent(new WheelEvent("wheel", at));
    """  # noqa: E501

    def closer() -> bool:
        page.redrawn(lambda: page.run(script, *first_host(page)))
        return reached()

    eventually(closer, message="the map is near")


def first_host(page: Browser) -> list[float]:
    """The middle of the first host, which the arrow keys have reached, within the map."""
    page.run("document.getElementById('overlay').focus()")
    if page.of("focused", "hidden"):
        page.press("\ue014")
    return list(
        page.run(
            """
            const boundsOf = (id) => document.getElementById(id).getBoundingClientRect();
            const [area, cell] = [boundsOf("overlay"), boundsOf("focused")];
            return [cell.left + cell.width / 2 - area.left, cell.top + cell.height / 2 - area.top];
            """
        )
    )


def pointed(page: Browser) -> str:
    """What is told about the first host when the pointer is on it."""
    page.run(
        """
        const area = document.getElementById("overlay");
        const { left, top } = area.getBoundingClientRect();
        area.dispatchEvent(new PointerEvent("pointermove", { clientX: left + arguments[0], clientY: top + arguments[1] }));
        """,  # noqa: E501
        *first_host(page),
    )
    return page.text("tip")


def test_from_afar_all_hosts_are_one_picture_and_from_near_they_are_drawn(shown: Shown) -> None:
    """The same hosts, in the same places, say the same."""
    page = shown(snapshot(large()))
    assert (detail(page), page.drawn()) == ("racks", 2560)
    assert min(page.colours()[colour] for colour in (BLUE, ORANGE)) > 1000
    afar = pointed(page)
    assert afar.startswith("b0/b0-r0/b0-r0-h0")
    assert "1 alice/job/a: 1 pod" in afar
    zoomed_in(page, lambda: detail(page) == "hosts")
    assert page.drawn() <= MOST_HOSTS
    assert pointed(page) == afar
    zoomed_in(page, lambda: detail(page) == "gpus")
    assert pointed(page) == afar
    page.redrawn(page.find("#zoom-fit").click)
    assert (detail(page), page.drawn()) == ("racks", 2560)
    assert page.console() == []


def test_the_picture_from_afar_follows_selection_search_and_theme(shown: Shown) -> None:
    page = shown(snapshot(large()))
    before = page.colours()
    page.redrawn(page.gang("alice/job/b").click)
    chosen = page.colours()
    assert (chosen.get(BLUE, 0), chosen[ORANGE]) == (0, before[ORANGE])
    page.redrawn(page.find("#close").click)
    assert page.colours()[BLUE] == before[BLUE]
    page.find("#search").send_keys("b0-r1-h")
    eventually(lambda: BLUE not in page.colours(), message="the hosts that are not sought are pale")
    assert page.colours()[ORANGE] > before[ORANGE] / 2  # beside the outlines of the sought ones
    page.redrawn(
        lambda: page.run(
            "const at = document.getElementById('search'); at.value = ''; at.dispatchEvent(new Event('input'))"
        )
    )
    page.redrawn(lambda: page.prefer("dark"))
    assert detail(page) == "racks"
    assert page.colours()[BLUE] == before[BLUE]
    assert "#dbe2eb" in before  # free, in the light theme
    assert "#dbe2eb" not in page.colours()


def test_the_page_has_few_elements_whatever_the_size(shown: Shown) -> None:
    """Not one for each host, and of long lists the first rows."""
    page = shown(snapshot(large()))
    count = "return [document.getElementsByTagName('*').length, document.getElementsByTagName('canvas').length]"
    elements, canvases = page.run(count)
    assert elements < 1200
    assert canvases < 10
    assert len(page.gangs()) == 32
    page.find("#waiting [data-more]").click()
    assert len(page.gangs()) == 132
    assert page.run("return document.activeElement.dataset.gang") == page.gangs()[30]
    page.gang("alice/job/a").click()
    page.find("#search").send_keys("later-149")
    assert page.gangs() == ["alice/job/later-149"]
    assert page.run(count)[0] < 1200


def test_a_row_of_the_lists_stays_the_same_element(shown: Shown) -> None:
    """A selection changes its mark, not the list; the focus stays where it is."""
    page = shown(snapshot(large()))
    row = page.gang("alice/job/a")
    row.click()
    assert row.get_attribute("aria-pressed") == "true"
    assert page.run("return document.activeElement.dataset.gang") == "alice/job/a"
    row.click()
    assert row.get_attribute("aria-pressed") == "false"
    assert not page.find("#details").is_displayed()


def test_a_hostile_name_is_text_from_afar_and_from_near(shown: Shown) -> None:
    nodes = grid(2, 40, 32)
    for one in nodes:
        one["metadata"]["name"] += HOSTILE
        one["metadata"]["labels"] = {key: value + HOSTILE for key, value in one["metadata"]["labels"].items()}
    page = shown(snapshot(nodes))
    written = HOSTILE.replace("\u202e", "\\u202e")
    assert detail(page) == "racks"
    assert f"b0-r0-h0{written}" in pointed(page)
    zoomed_in(page, lambda: detail(page) == "gpus")
    assert f"b0-r0-h0{written}" in pointed(page)
    assert page.of("status", "textContent").startswith(f"b0{written}, b0-r0{written}, b0-r0-h0{written}; ")
    hacked = "return [globalThis.hacked === undefined, document.scripts.length, document.images.length]"
    assert page.run(hacked) == [True, 2, 0]
    assert page.console() == []
