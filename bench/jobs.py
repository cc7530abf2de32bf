"""The Jobs that are measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def template(*, container: str = "main", **spec: Any) -> dict[str, Any]:
    """The template of a pod that takes a whole host; `spec` goes into its spec."""
    resources = {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"nvidia.com/gpu": "8"}}
    return {
        "spec": {
            **spec,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": container, "image": "example.com/train:1", "resources": resources}],
        }
    }


def job_spec(pods: int) -> dict[str, Any]:
    """The spec of an Indexed Job."""
    return {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": template(restartPolicy="Never"),
    }


def job_body(name: str, *, pods: int, annotations: Mapping[str, str]) -> dict[str, Any]:
    """An Indexed Job whose pods take a whole host each."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": dict(annotations)},
        "spec": job_spec(pods),
    }
