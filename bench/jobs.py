"""The Jobs that are measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def job_body(name: str, *, pods: int, annotations: Mapping[str, str]) -> dict[str, Any]:
    """An Indexed Job whose pods take a whole host each."""
    resources = {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"nvidia.com/gpu": "8"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": dict(annotations)},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "main", "image": "example.com/train:1", "resources": resources}],
                }
            },
        },
    }
