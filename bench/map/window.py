"""The page in headless Chromium: what people do with it, step by step, and the CPU time of the main thread for each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

OPTIONS: Final = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1500,900")
EMPTY: Final = "data:text/html,<body style='height:100vh'><input id=search autofocus>"
WORDS: Final = ("train-12", "b3-r1", "next")
# Two frames: a step's changes are in the first one.
SETTLE: Final = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"

# What is done, and how the map is zoomed: all of it in view, or hosts, or their GPUs.
ACTS: Final = {
    "pan": "racks",
    "point at hosts": "racks",
    "zoom": "racks",
    "search": "racks",
    "select a gang": "racks",
    "arrow keys": "racks",
    "pan, hosts": "hosts",
    "pan, GPUs": "gpus",
    "point at hosts, GPUs": "gpus",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """Milliseconds of each step; `empty`: the median of the same steps on an empty page; `detail`: as the map says."""

    cpu: list[float]
    empty: float
    detail: str


class _Window:
    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def cpu(self) -> float:
        """Milliseconds that the main thread has worked; not the time that it was kept waiting by other programs."""
        found = self.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return 1000.0 * next(float(one["value"]) for one in found if one["name"] == "TaskDuration")

    def open(self, address: str) -> None:
        self.driver.get(address)
        self.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        self.driver.execute_async_script(SETTLE)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def mouse(self, kind: str, x: int, y: int, **more: Any) -> None:
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})

    def key(self, key: str, code: int) -> None:
        event = {"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code}
        self.driver.execute_cdp_cmd("Input.dispatchKeyEvent", event)

    def steps(self, name: str) -> list[float]:
        """Do one of ACTS; the milliseconds of each step."""
        found = []
        steps = self._steps(name.partition(",")[0])
        before = self.cpu()
        for _ in steps:
            self.driver.execute_async_script(SETTLE)
            after = self.cpu()
            found.append(after - before)
            before = after
        return found

    def _steps(self, name: str) -> Iterator[None]:
        match name:
            case "pan":
                self.mouse("mousePressed", 600, 450, button="left", buttons=1, clickCount=1)
                for at in (*range(30), *range(30, 0, -1)):
                    self.mouse("mouseMoved", 600 + at * 5, 450 + at * 2, button="left", buttons=1)
                    yield
                self.mouse("mouseReleased", 600, 450, button="left", clickCount=1)
            case "point at hosts":
                for at in range(60):
                    self.mouse("mouseMoved", 150 + at * 13, 150 + at * 8)
                    yield
            case "zoom":
                for delta in (*(-60,) * 15, *(60,) * 15):
                    self.mouse("mouseWheel", 600, 450, deltaX=0, deltaY=delta)
                    yield
            case "search":
                self.run("document.getElementById('search').focus()")
                for word in WORDS:
                    for letter in word:
                        self.driver.execute_cdp_cmd("Input.insertText", {"text": letter})
                        yield
                    for _ in word:
                        self.key("Backspace", 8)
                        yield
            case "select a gang":
                for at in range(40):
                    self.run(
                        "const rows = document.querySelectorAll('[data-gang]');"
                        "rows[Math.floor((arguments[0] * rows.length) / 40)]?.click()",
                        at,
                    )
                    yield
                self.run("document.getElementById('close')?.click()")
            case "arrow keys":
                self.run("document.getElementById('overlay')?.focus()")
                for _ in range(30):
                    self.key("ArrowRight", 39)
                    yield

    def zoom_to(self, detail: str) -> str:
        """Zoom to a detail; the one that is reached, which in a small cluster may be a finer one."""
        self.run("document.getElementById('zoom-fit').click()")
        for _ in range(40):
            self.driver.execute_async_script(SETTLE)
            reached = str(self.run("return document.getElementById('base').dataset.detail"))
            if ["racks", "hosts", "gpus"].index(reached) >= ["racks", "hosts", "gpus"].index(detail):
                return reached
            self.mouse("mouseWheel", 300, 300, deltaX=0, deltaY=-60)
        raise AssertionError(f"never at {detail}")


def measure(path: Path, profile: Path) -> dict[str, Measured]:
    """Do everything on an empty page, then on the map."""
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for option in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver") or "chromedriver"))
    try:
        driver.set_script_timeout(120)
        window = _Window(driver)
        window.open(EMPTY)
        empty = {name: median(window.steps(name)) for name in ACTS}
        window.open(path.as_uri())
        found = {}
        for name, detail in ACTS.items():
            reached = window.zoom_to(detail)
            found[name] = Measured(window.steps(name), empty[name], reached)
        return found
    finally:
        driver.quit()
