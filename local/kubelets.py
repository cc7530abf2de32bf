"""What the simulated kubelets (kwok, by the stages in `stages/`) do with a pod, and the annotations that steer them.

A bound pod runs at once and for ever. The annotations stand on the pod (so in a Job's template for all of its pods)
and mostly hold Go durations ("30s"); put on a live pod, a time counts from then on.
"""

from __future__ import annotations

import time
from typing import Any, Final

from local.client import Client

Json = dict[str, Any]

READY_AFTER: Final = "local.topogate.dev/ready-after"
COMPLETE_AFTER: Final = "local.topogate.dev/complete-after"
FAIL_AFTER: Final = "local.topogate.dev/fail-after"
EXIT_CODE: Final = "local.topogate.dev/exit-code"
WAITING: Final = "local.topogate.dev/waiting"  # why its containers never start, a reason such as ImagePullBackOff
WAITING_ON: Final = "local.topogate.dev/waiting-on"  # on this node alone
STOP_AFTER: Final = "local.topogate.dev/stop-after"


def complete_pod(client: Client, namespace: str, name: str, *, after: str = "0s") -> None:
    """End a running pod well: phase Succeeded."""
    _annotate(client, namespace, name, {COMPLETE_AFTER: after})


def fail_pod(client: Client, namespace: str, name: str, *, after: str = "0s", exit_code: int = 1) -> None:
    """End a running pod badly: phase Failed with this exit code."""
    _annotate(client, namespace, name, {FAIL_AFTER: after, EXIT_CODE: str(exit_code)})


def crash_pod(client: Client, namespace: str, name: str, *, restarts: int = 1, exit_code: int = 1) -> None:
    """Let the containers of a running pod crash: it is not ready until `ready_pod`."""
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
    ended = {"terminated": {"exitCode": exit_code, "reason": "Error"}}
    _report(client, namespace, name, ready=False, restarts=restarts, state={"waiting": waiting}, last=ended)


def ready_pod(client: Client, namespace: str, name: str) -> None:
    """Let a pod of `crash_pod` be ready again."""
    _report(client, namespace, name, ready=True, restarts=0, state={"running": {"startedAt": _now()}}, last={})


def _report(client: Client, namespace: str, name: str, *, ready: bool, restarts: int, state: Json, last: Json) -> None:
    """Write the readiness of a pod into its status, as its kubelet does."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": _now()}
    statuses = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": ready,
            "restartCount": restarts,
            "state": state,
            "lastState": last,
        }
        for container in client.get(path)["spec"]["containers"]
    ]
    client.patch(f"{path}/status", {"status": {"conditions": [condition], "containerStatuses": statuses}})


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _annotate(client: Client, namespace: str, name: str, annotations: dict[str, str]) -> None:
    client.patch(f"/api/v1/namespaces/{namespace}/pods/{name}", {"metadata": {"annotations": annotations}})
