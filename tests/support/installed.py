"""The manifests on a control plane of a test's own, with a recorder where the service would be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml

from local.client import Client, ClientError
from local.controlplane import ControlPlane
from tests.support.eventually import eventually
from tests.support.recorder import Recorder

MANIFESTS = Path(__file__).parents[2] / "manifests"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
OTHERS = "/others"  # in place of /mutate, so that a test sees which entry sent an object
CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


def render(plane: ControlPlane, overlay: str) -> str:
    return plane.kubectl("kustomize", str(MANIFESTS / overlay)).stdout


def local_overlay(plane: ControlPlane, recorder: Recorder) -> str:
    """The local overlay with the recorder's port in it, and a path of their own for entries of others' objects."""
    documents = list(yaml.safe_load_all(render(plane, "overlays/local")))
    for hook in (hook for one in documents for hook in one.get("webhooks", ())):
        path = OTHERS if is_of_others(hook["name"]) else f"/{hook['clientConfig']['url'].rpartition('/')[2]}"
        hook["clientConfig"]["url"] = f"https://127.0.0.1:{recorder.port}{path}"
    return yaml.safe_dump_all(documents)


def is_of_others(entry: str) -> bool:
    """Whether a mutating entry is for objects that request no placement, or one without effect."""
    return entry.startswith(("other-", "gpu-"))


def install(plane: ControlPlane, recorder: Recorder, *, namespace: str, probe: Callable[[Client], object]) -> Client:
    """Apply the overlay, trust the recorder, and return the admin's client once `probe` reaches both webhooks."""
    plane.kubectl("apply", "-f", "-", input=local_overlay(plane, recorder))
    client = plane.client
    client.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    for resource in CONFIGURATIONS:
        hooks = client.get(f"{HOOKS}/{resource}/topogate")["webhooks"]
        bundle = [{"name": hook["name"], "clientConfig": {"caBundle": recorder.ca_bundle}} for hook in hooks]
        client.patch(f"{HOOKS}/{resource}/topogate", {"webhooks": bundle}, kind="strategic")

    def called() -> bool:
        try:
            return {path for path, _, _ in recorder.during(lambda: probe(client))} == {"/mutate", "/validate"}
        except ClientError:
            return False  # the bundle has not reached the API server's caches yet

    eventually(called, message="both webhooks are called")
    return client
