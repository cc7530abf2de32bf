"""A real headless Chromium of the system, driven by its own chromedriver; tests are skipped where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium_axe_python import Axe

from tests.support.eventually import eventually

OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1500,900",
)
MISSING = (
    "no chromium and chromedriver on the PATH: on Debian, apt-get install chromium chromium-driver (make setup does)"
)
LOAD_SECONDS = 120.0


class Browser:
    """One window. Every wait is for something that the page says of itself."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        """Open a map and wait until it shows a frame."""
        self.driver.get("about:blank")
        self.console()
        self.driver.get(address)
        self.drawn()

    def drawn(self) -> int:
        """Wait until the map has been drawn; return the number of hosts that were."""
        return int(eventually(lambda: self.of("base", "dataset.drawn"), LOAD_SECONDS, "the map is drawn"))

    def redrawn(self, act: Callable[[], object]) -> int:
        """Do something that draws the map again; return the number of hosts that were drawn."""
        self._painted()
        self.run("delete document.getElementById('base').dataset.drawn")
        act()
        self.drawn()
        self._painted()
        return self.drawn()

    def _painted(self) -> None:
        """Wait for the next frame: the page paints in it what has changed before, some of it for the second time."""
        self.driver.execute_async_script("requestAnimationFrame(() => arguments[0]())")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def of(self, element: str, what: str) -> Any:
        return self.run(f"return document.getElementById(arguments[0]).{what}", element)

    def text(self, element: str) -> str:
        return str(self.of(element, "innerText"))

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def gang(self, name: str) -> WebElement:
        """The row of a gang, as `alice/job/train`, in one of the lists."""
        (found,) = [
            one
            for one in self.driver.find_elements(By.CSS_SELECTOR, "[data-gang]")
            if one.get_attribute("data-gang") == name
        ]
        return found

    def row(self, name: str) -> str:
        """The text of a gang's row at this moment; "" without one. For a page that changes by itself."""
        script = "return [...document.querySelectorAll('[data-gang]')].find((one) => one.dataset.gang === arguments[0])"
        return str(self.run(f"{script}?.textContent ?? ''", name))

    def gangs(self) -> list[str]:
        return list(self.run("return [...document.querySelectorAll('[data-gang]')].map((one) => one.dataset.gang)"))

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def colours(self) -> dict[str, int]:
        """How many pixels of the map have each colour, as `#rrggbb`."""
        found: dict[str, int] = self.run(
            """
            const canvas = document.getElementById("base");
            const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
            copy.drawImage(canvas, 0, 0);
            const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
            const counts = {};
            for (let at = 0; at < data.length; at += 4) {
              const key = "#" + [data[at], data[at + 1], data[at + 2]].map((one) => one.toString(16).padStart(2, "0")).join("");
              counts[key] = (counts[key] ?? 0) + 1;
            }
            return counts;
            """  # noqa: E501
        )
        return found

    def prefer(self, scheme: str) -> None:
        """Set what the system prefers: light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def console(self) -> list[str]:
        """What the console has told since the last question: errors of scripts, and what a policy has stopped."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]

    def violations(self) -> list[str]:
        """What axe finds against WCAG 2.1 A and AA and its best practices."""
        axe = Axe(self.driver)
        axe.inject()
        return [f"{one['id']}: {[node['html'][:200] for node in one['nodes']]}" for one in axe.run()["violations"]]


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start Chromium with an empty profile; skips the test where it is not installed."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip(MISSING)
    options = ChromeOptions()
    options.binary_location = browser
    for option in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = Chrome(options=options, service=Service(driver))
    try:
        window.set_page_load_timeout(LOAD_SECONDS)
        window.set_script_timeout(LOAD_SECONDS)
        yield Browser(window)
    finally:
        window.quit()
