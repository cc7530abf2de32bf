"""Kubernetes timestamps as seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime


def epoch(moment: datetime | None) -> float:
    """Return seconds since the epoch; a moment without a zone is UTC, none at all is 0.0."""
    if moment is None:
        return 0.0
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
