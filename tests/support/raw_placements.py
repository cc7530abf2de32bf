"""Placements as the API server shows them: where they stand, their slots, what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.support.eventually import eventually

Json = dict[str, Any]


def placements_path(namespace: str) -> str:
    """The path of a namespace's Placements."""
    return f"/apis/topogate.dev/v1alpha1/namespaces/{namespace}/placements"


def slots(placement: Json | None) -> Counter[str]:
    """Host -> number of slots of a Placement; empty without an assignment."""
    found: Counter[str] = Counter()
    assignment = ((placement or {}).get("spec") or {}).get("assignment") or {}
    for pod_set in assignment.get("podSets", []):
        for slot in pod_set.get("slots") or ():
            found[slot["domain"][-1]] += slot["count"]
    return found


def ranks(text: str | None) -> list[int]:
    """The ranks of "0-3,8"."""
    found: list[int] = []
    for part in (text or "").split(",") if text else ():
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def await_waiting(
    find: Callable[[], Json | None], reason: str | None, *, timeout: float, message: Callable[[], str]
) -> Json:
    """Wait until the Placement that is found says Waiting (with that reason); the Placement."""

    def look() -> Json | None:
        placement = find()
        status = (placement or {}).get("status", {})
        right = status.get("phase") == "Waiting" and reason in (None, status.get("reason"))
        return placement if right else None

    found = eventually(look, timeout, message)
    assert found is not None
    return found
