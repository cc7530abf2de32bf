"""`topogate map` on a real control plane: the file, and the live page in a real Chromium."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from local.controlplane import ControlPlane
from local.service import ROOT
from tests.cluster.gangs.test_commands import topogate
from tests.support.browser import Browser, chromium
from tests.support.callers import caller, rule
from tests.support.eventually import eventually
from tests.support.gangs import Namespace, require


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@contextmanager
def live(kubeconfig: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `topogate map` and return its address; at the end Ctrl-C, if it still runs."""
    # A shell starts what runs in its background with SIGINT ignored, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "webhook.cli", "map", "--interval", "1"],
            env={**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=300)
        finally:
            process.kill()


def test_the_live_page_follows_the_cluster(gangs: Namespace, control_plane: ControlPlane, window: Browser) -> None:
    """A gang starts, another one waits behind it; the slider goes back to the moment before; Ctrl-C ends it."""
    hosts = gangs.fleet.grid("1x1x2")
    with live(control_plane.kubeconfig) as (address, process):
        window.open(address)
        first = f"{gangs.name}/job/first"
        assert first not in window.gangs()
        gangs.submit("first", pods=2, annotations=require("rack"))
        gangs.all_bound("first", 2)
        eventually(lambda: "2/2" in window.row(first), message="the gang is shown")
        gangs.submit("second", pods=2, annotations=require("rack"))
        gangs.waits("second")
        second = f"{gangs.name}/job/second"
        eventually(lambda: second in window.gangs(), message="the waiting gang is shown")
        window.run("document.querySelector(`[data-gang='${arguments[0]}']`).click()", second)
        assert f"{first}" in window.text("details")
        assert all(host in window.text("details") for host in hosts)
        go_back = "const at = document.getElementById('moment'); at.value = 0; at.dispatchEvent(new Event('input'))"
        window.run(go_back)
        eventually(
            lambda: first not in window.gangs() and second not in window.gangs(), message="the moment before is shown"
        )
        assert window.of("live", "ariaPressed") == "false"
        window.find("#live").click()
        eventually(lambda: second in window.gangs(), message="the newest moment is shown")
        assert window.violations() == []
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=300) == 0
        assert process.stderr is not None
        assert process.stderr.read().splitlines()[-1] == "topogate: ended"
        eventually(lambda: "no answer of topogate map" in window.text("problem"), message="the page says so")
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", urlsplit(address).port or 0), 5)


def test_a_file_of_the_cluster(gangs: Namespace, control_plane: ControlPlane, window: Browser, tmp_path: Path) -> None:
    gangs.fleet.grid("1x1x2")
    gangs.submit("first", pods=2, annotations=require("rack"))
    gangs.all_bound("first", 2)
    file = tmp_path / "map.html"
    done = topogate(control_plane.kubeconfig, "map", "--output", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{file}: ")
    assert file.stat().st_mode & 0o077 == 0
    window.open(file.as_uri())
    assert "2/2" in window.gang(f"{gangs.name}/job/first").text
    assert window.console() == []


def test_what_a_tenant_may_not_read_is_said(gangs: Namespace, control_plane: ControlPlane, tmp_path: Path) -> None:
    """Without the right to list nodes there is no map; without that to list all pods one without free capacity."""
    gangs.fleet.grid("1x1x2")
    file = tmp_path / "map.html"
    own = [rule("pods"), rule("jobs", group="batch"), rule("placements", group="topogate.dev")]
    tenant = caller(control_plane, tmp_path, namespace=gangs.name, name="tenant", in_namespace=own)
    done = topogate(tenant, "map", "--output", str(file))
    assert (done.returncode, done.stdout, file.exists()) == (2, "", False)
    assert done.stderr.startswith("topogate: nodes cannot be read: ")
    reader = caller(
        control_plane, tmp_path, namespace=gangs.name, name="reader", in_namespace=own, everywhere=[rule("nodes")]
    )
    done = topogate(reader, "map", "--output", str(file))
    assert done.returncode == 0
    assert f"pods of namespaces other than {gangs.name} cannot be read: free capacity is not known" in done.stderr


def test_a_file_that_cannot_be_written(gangs: Namespace, control_plane: ControlPlane, tmp_path: Path) -> None:
    gangs.fleet.grid("1x1x1")
    done = topogate(control_plane.kubeconfig, "map", "--output", str(tmp_path / "nowhere" / "map.html"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"topogate: {tmp_path}/nowhere/map.html: No such file or directory\n"
