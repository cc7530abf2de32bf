"""What the replicas of the local service say in their metrics."""

from __future__ import annotations

from local.service import Service
from tests.support.eventually import eventually


def every_replica_tells(service: Service, words: str, message: str) -> None:
    """Wait until the metrics of every running replica contain these words; `message` says what that means."""
    eventually(lambda: all(words in replica.page("/metrics")[1] for replica in service.running()), message=message)
