"""The file that `topogate map --output` writes, in a real Chromium."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By

from tests.browser.conftest import Shown
from tests.support.browser import Browser
from tests.support.eventually import eventually
from tests.support.simulation import grid
from tests.support.snapshots import busy_cluster, placed, runs, snapshot, waiting_placement, waits
from webhook.map.frame import map_frame
from webhook.map.page import static_page
from webhook.snapshot.snapshot import Unread

BLUE = "#0072b2"  # of the first gang, which has no pattern
HOSTILE = (
    "<img src=x onerror=globalThis.hacked=1>",
    "</script><script>globalThis.hacked=1</script>",
    "<!--<script>",
    "\"'`${globalThis.hacked=1}",
    "\u202egnp.\u2066x\u2069",
    "a\u0000b\u2028c\x1b[31m",
)


@pytest.fixture
def page(shown: Shown) -> Iterator[Browser]:
    """The map of the busy cluster; at the end the console has told nothing."""
    browser = shown(snapshot(busy_cluster()))
    yield browser
    assert browser.console() == []


def test_racks_hosts_and_gangs_are_shown(page: Browser) -> None:
    assert page.drawn() == 16
    assert "default (block, rack, host): 16 hosts, 48 of 128 GPUs free" in page.text("summary")
    waiting = ["alice/job/wide", "bob/job/later", "alice/job/small", "alice/job/huge"]
    assert page.gangs() == [*waiting, "alice/job/train"]
    assert page.text("waiting-title").lower() == "waiting (4)"
    assert "Fragmented" in page.gang("alice/job/wide").text
    assert "2/3" in page.gang("alice/job/train").text
    assert page.colours()[BLUE] > 1000
    fits = page.text("fits")
    assert re.search(r"8 GPUs\s+1\s+2\s+4\s+6", fits)
    assert "Fragmentation: 33% of the room for 8-GPU pods is outside of the best block" in fits
    assert "1 node not in the topology: no label block" in fits


def test_what_is_in_the_way_of_a_waiting_gang(page: Browser) -> None:
    before = page.colours()[BLUE]
    page.redrawn(page.gang("alice/job/wide").click)
    told = page.text("details")
    assert "needs 4 hosts in one rack" in told
    assert re.search(r"rack \(required\)\s+4\s+2\s+b1/b1-r0 \(2\)", told)
    assert "In the way in b1/b1-r1" in told
    assert re.search(r"others/job/endless\s+b1-r1-h0, b1-r1-h1\s+unknown", told)
    assert "require block instead of rack" in told
    assert page.colours().get(BLUE, 0) < before / 10  # the others are pale
    page.redrawn(page.find("#close").click)
    assert not page.find("#details").is_displayed()
    assert page.colours()[BLUE] == before


def test_where_the_pods_of_a_gang_are(page: Browser) -> None:
    page.gang("alice/job/train").click()
    told = page.text("details")
    assert re.search(r"0\s+train-0\s+b0/b0-r0/b0-r0-h0\s+ready", told)
    assert re.search(r"2\s+to come\s+b0/b0-r0/b0-r0-h2\s+missing", told)
    assert page.gang("alice/job/train").get_attribute("aria-pressed") == "true"


def test_search_finds_gangs_pods_and_hosts(page: Browser) -> None:
    search = page.find("#search")
    search.send_keys("LATER")
    assert page.gangs() == ["bob/job/later"]
    search.clear()
    search.send_keys("train-1")
    assert page.gangs() == ["alice/job/train"]
    search.clear()
    before = page.colours()[BLUE]
    search.send_keys("b1-r1-h3")
    assert page.gangs() == []
    eventually(lambda: page.colours().get(BLUE, 0) < before, message="the hosts of others are pale")


def test_the_pointer_tells_about_a_host(page: Browser) -> None:
    overlay = page.find("#overlay")
    width, height = overlay.size["width"], overlay.size["height"]
    told = set()
    for column in range(12):
        for row in range(8):
            ActionChains(page.driver, duration=0).move_to_element_with_offset(
                overlay, int(width * (column - 5.5) / 12), int(height * (row - 3.5) / 8)
            ).perform()
            if not page.of("tip", "hidden"):
                told.add(page.text("tip"))
    assert any("takes no pods: cordoned" in text for text in told)
    assert any("alice/job/train: 1 pod" in text for text in told)
    assert any("8 of 8 GPUs free" in text for text in told)


def test_everything_is_reached_by_keys(page: Browser) -> None:
    page.run("document.getElementById('overlay').focus()")
    page.press(Keys.ARROW_RIGHT)
    first = page.of("status", "textContent")
    assert first.startswith("b0, b0-r0, b0-r0-h0; 0 of 8 GPUs free; 1 alice/job/train: 1 pod")
    for there, back in ((Keys.ARROW_RIGHT, Keys.ARROW_LEFT), (Keys.ARROW_DOWN, Keys.ARROW_UP)):
        page.press(there)
        assert re.match("b[01], b[01]-r[01], b[01]-r[01]-h[0-3]; ", page.of("status", "textContent"))
        assert page.of("status", "textContent") != first
        page.press(back)
        assert page.of("status", "textContent") == first
    page.press(Keys.ENTER)
    assert "alice/job/train" in page.text("details")
    page.press(Keys.ESCAPE)
    assert not page.find("#details").is_displayed()
    assert page.redrawn(lambda: page.press(*"+" * 6)) < 16 or eventually(lambda: page.drawn() < 16)
    page.redrawn(lambda: page.press("0"))
    assert eventually(lambda: page.drawn() == 16)
    stops = set()
    page.run("document.activeElement.blur()")
    for _ in range(30):
        page.press(Keys.TAB)
        stops.add(page.run("return document.activeElement.id || document.activeElement.dataset.gang"))
    assert {"show-table", "theme", "overlay", "zoom-in", "search", "alice/job/wide", "alice/job/train"} <= stops


def test_the_same_as_tables(page: Browser) -> None:
    page.find("#show-table").click()
    told = page.text("table")
    assert re.search(r"b0/b0-r0/b0-r0-h2\s+8\s+0\s+8\s+0\s+alice/job/train \(0 pods, 1 to come\)", told)
    assert re.search(r"b1/b1-r0/b1-r0-h1\s+8\s+0\s+0\s+0\s+cordoned", told)
    assert re.search(r"rack\s+b1/b1-r0\s+4\s+32\s+8\s+0\s+0\s+8\s+16\s+2\s+1 cordoned", told)
    assert not page.find("#overlay").is_displayed()


def test_light_and_dark(page: Browser) -> None:
    body = "return getComputedStyle(document.body).backgroundColor"
    light, paper = page.run(body), page.colours()["#eef1f5"]
    assert paper > 10_000
    page.redrawn(lambda: page.prefer("dark"))
    dark = page.run(body)
    assert (dark != light, page.colours().get("#eef1f5", 0)) == (True, 0)
    page.redrawn(page.find("#theme").click)
    assert (page.run(body), page.find("#theme").text) == (light, "Theme: light")
    page.prefer("light")
    page.redrawn(page.find("#theme").click)
    assert (page.run(body), page.find("#theme").text) == (dark, "Theme: dark")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page: Browser, scheme: str) -> None:
    page.prefer(scheme)
    assert page.violations() == []
    page.gang("alice/job/wide").click()
    assert page.violations() == []
    page.gang("alice/job/train").click()
    page.find("#show-table").click()
    assert page.violations() == []


def test_a_hostile_name_is_text(shown: Shown) -> None:
    """Names that no API server would take: whatever a cluster holds, the page shows it and runs none of it."""
    nodes = grid(1, 2, 3)
    for one, name in zip(nodes, HOSTILE, strict=True):
        one["metadata"]["name"] = name
        one["metadata"]["labels"] = {key: value + name for key, value in one["metadata"]["labels"].items()}
    names = [name for name in HOSTILE if "/" not in name]  # a slash parts a namespace from a name
    waiting = [waits(name, 4, {"require": "rack"}, namespace=f"n{name}") for name in names]
    page = shown(snapshot([*nodes, *runs(HOSTILE[0], [HOSTILE[1]]), *waiting]))
    assert page.drawn() == 6
    shown_as = [_escaped(name) for name in HOSTILE]
    assert shown_as[4:] == [r"\u202egnp.\u2066x\u2069", r"a\u0000b\u2028c\u001b[31m"]
    rows = [one.text for one in page.driver.find_elements(By.CSS_SELECTOR, "[data-gang] .name")]
    assert sorted(rows) == sorted(f"n{_escaped(name)}/{_escaped(name)}" for name in names)
    page.run("for (const row of [...document.querySelectorAll('[data-gang]')]) row.click()")
    page.find("#show-table").click()
    table = page.text("table")
    assert [text for text in shown_as if text not in table] == []
    page.run("document.getElementById('show-table').click(); document.getElementById('overlay').focus()")
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ENTER)
    hacked = "return [globalThis.hacked === undefined, document.scripts.length, document.images.length]"
    assert page.run(hacked) == [True, 2, 0]
    assert page.console() == []


def _escaped(name: str) -> str:
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in name)


def test_the_file_asks_for_nothing_and_its_policy_forbids_everything_else(page: Browser) -> None:
    page.gang("alice/job/train").click()
    assert page.run("return performance.getEntriesByType('resource').length") == 0
    refused: Callable[[str], Any] = lambda script: page.run(  # noqa: E731
        f"try {{ {script}; return 'done' }} catch (error) {{ return error.name }}"
    )
    assert refused("document.body.innerHTML = '<b>x</b>'") == "TypeError"
    assert page.run("return fetch('http://127.0.0.1:1/').then(() => 'done', (error) => error.name)") == "TypeError"
    page.run(
        "const image = new Image(); image.src = 'http://127.0.0.1:1/x.png'; document.body.append(image);"
        "const script = document.createElement('style'); script.textContent = 'body { display: none }';"
        "document.head.append(script)"
    )
    stopped: list[str] = []  # the console tells each once, and of the image a moment later

    def told() -> bool:
        stopped.extend(page.console())
        said = "\n".join(stopped)
        return all(word in said for word in ("TrustedHTML", "connect-src", "style-src", "x.png"))

    eventually(told, message=lambda: f"everything that was stopped is told: {stopped}")
    assert all("Content Security Policy" in line or "TrustedHTML" in line for line in stopped)
    assert page.run("return getComputedStyle(document.body).display") == "flex"


def test_what_cannot_be_read_is_said(shown: Shown) -> None:
    found = snapshot(busy_cluster())
    page = shown(replace(found, unread=(Unread("pods", except_in="alice"),)))
    assert "free GPUs not known" in page.text("summary")
    assert "pods of namespaces other than alice cannot be read: free capacity is not known" in page.text("remarks")
    assert re.search(r"8 GPUs\s+\?\s+\?\s+\?\s+\?", page.text("fits"))
    assert page.console() == []


def test_hosts_that_are_kept_for_a_gang(shown: Shown) -> None:
    cluster = [
        *grid(1, 2, 2),
        waits("first", 2, {"require": "rack"}),
        waiting_placement("first", kept=["b0-r0-h0", "b0-r0-h1"], waitingSince="2026-01-01T00:00:00Z"),
    ]
    page = shown(snapshot(cluster))
    page.run("document.getElementById('overlay').focus()")
    page.press(Keys.ARROW_RIGHT)
    assert "kept for alice/job/first" in page.of("status", "textContent")
    page.gang("alice/job/first").click()
    assert "b0-r0-h0, b0-r0-h1" in page.text("details")


def test_ten_thousand_hosts(shown: Shown) -> None:
    """All are drawn, those that are not seen are left out, and every one is found."""
    blocks, racks, hosts = 10, 40, 25
    gangs = [
        one
        for number in range(60)
        for one in placed(
            f"train-{number:02}",
            {
                f"b{number % 10}-r{number // 10}-h{at}": (f"b{number % 10}/b{number % 10}-r{number // 10}", 1)
                for at in range(20)
            },
            bound=20,
        )
    ]
    page = shown(snapshot([*grid(blocks, racks, hosts), *gangs]))
    assert page.drawn() == 10_000
    assert page.text("placed-title").lower() == "placed (60)"
    assert len(page.gangs()) == 30
    assert page.colours()[BLUE] > 100
    eventually(lambda: page.redrawn(lambda: page.find("#zoom-in").click()) < 10_000)
    page.redrawn(page.find("#zoom-fit").click)
    page.find("#search").send_keys("b9-r39-h24")
    assert page.gangs() == []
    page.find("#show-table").click()
    assert "Hosts (10,000)" in page.text("table")
    more = page.find("#table > button:last-child")
    before = page.run("return document.querySelectorAll('#table tr').length")
    more.click()
    assert page.run("return document.querySelectorAll('#table tr').length") == before + 500
    assert page.console() == []


def test_a_cluster_without_hosts_or_gangs(shown: Shown) -> None:
    page = shown(snapshot([]))
    assert page.drawn() == 0
    assert page.text("waiting") == page.text("placed") == "none"
    assert page.console() == []


def test_the_text_of_the_file() -> None:
    """No address in it but the namespace of SVG, and no character of a name that could end its data."""
    text = static_page(
        map_frame(snapshot([*grid(1, 1, 1), *(waits(name, 1, {"require": "rack"}) for name in HOSTILE)]))
    )
    assert set(re.findall(r"\w+://[^\s\"'`]+", text)) == {"http://www.w3.org/2000/svg"}
    (data,) = re.findall(r'<script type="application/json" id="frame">(.*?)</script>', text, re.DOTALL)
    assert not set("<>&\u2028\u2029") & set(data)
    assert "\\u003cimg src=x" in data
