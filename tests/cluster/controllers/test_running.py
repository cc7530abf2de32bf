"""Real controllers run beside the control plane as they would in it, and end alone."""

from __future__ import annotations

import os
import re
import signal
import socket
from dataclasses import replace

import pytest

from local.client import Client
from local.controllers import running
from local.controllers.running import ControllerError, Controllers
from local.controlplane import ControlPlane
from tests.support.eventually import eventually

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/lws-mutating-webhook-configuration"


@pytest.mark.usefixtures("jobset")
def test_a_controller_speaks_as_its_own_account(control_plane: ControlPlane) -> None:
    """Reviews see the user that they would see in a cluster, with the rights of the controller's own roles."""
    kubeconfig = control_plane.directory / "controllers" / "jobset" / "kubeconfig"
    said = control_plane.kubectl(
        f"--kubeconfig={kubeconfig}", "auth", "whoami", "-o=jsonpath={.status.userInfo.username}"
    )
    assert said.stdout == "system:serviceaccount:jobset-system:jobset-controller-manager"
    asked = control_plane.kubectl(f"--kubeconfig={kubeconfig}", "auth", "can-i", "delete", "nodes", check=False)
    assert asked.stdout.strip() == "no"


def test_a_controller_that_dies_is_quoted_and_leaves_the_rest(
    controllers: Controllers, lws: None, control_plane: ControlPlane, client: Client
) -> None:
    """Whoever asks next is told with the end of its log; nothing else ends, and it can be started again."""
    pid = controllers.pid("lws")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    def told() -> str:
        try:
            controllers.check()
        except ControllerError as error:
            return str(error)
        return ""

    why = eventually(told, message="the supervisor has seen it")
    assert re.search(r"lws ended with status -9; its log .*/lws.log ends:\n(?s:.*)LeaderWorkerSet", why), why
    control_plane.check()
    controllers.stop("lws")
    assert client.find(CONFIGURATION) is None
    controllers.start("lws")
    assert controllers.pid("lws") not in (None, pid)


def test_a_controller_that_does_not_start_is_quoted_and_leaves_no_webhook(
    controllers: Controllers, lws: None, control_plane: ControlPlane, client: Client
) -> None:
    """What is wrong is told in the program's own words; nobody's requests wait for its webhooks."""
    controllers.stop("lws")
    built = controllers.built["lws"]
    broken = replace(built, controller=replace(built.controller, arguments=("--config=/nonexistent",)))
    try:
        with pytest.raises(ControllerError, match=r"(?s)lws ended with status 1; .*unable to load the config"):
            Controllers(control_plane, {"lws": broken}).start("lws")
        assert client.find(CONFIGURATION) is None
    finally:
        controllers.start("lws")


def test_a_port_that_somebody_took_is_replaced(
    controllers: Controllers, lws: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the choice of a port and its use somebody may take it: the start is tried again with others."""
    controllers.stop("lws")
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", 0))
        somebody.listen()
        choices = [running.free_ports(2), [somebody.getsockname()[1], running.free_ports(1)[0]]]
        monkeypatch.setattr(running, "free_ports", lambda _count: choices.pop())
        controllers.start("lws")
        assert choices == []
