"""The numbers of the web layer, and the registry that the engine's numbers join."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, GCCollector, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from engine.kinds import built_in

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

# Kinds that get a label value of their own; anybody who reaches the port can name others, and each would be a series.
KINDS: Final = frozenset({"ConfigMap", "Placement", *(entry.match.kind for entry in built_in().entries)})

# Seconds. Dense around the targets (p99 10 ms, 200 ms of waiting for a revision) and at the webhooks' time limits.
BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """One process's metrics in a registry of their own; `registry` takes further collectors."""

    def __init__(self, *, kinds: frozenset[str] = KINDS) -> None:
        self.registry = CollectorRegistry()
        self._kinds = kinds
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._reviews = Counter(
            "topogate_reviews",
            "Admission reviews answered.",
            ("path", "operation", "kind", "outcome"),
            registry=self.registry,
        )
        self._refused = Counter(
            "topogate_reviews_refused",
            "Requests that got an HTTP error instead of an admission answer (failurePolicy rules then).",
            ("path", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "topogate_review_duration_seconds",
            "From a request's first byte to its answer.",
            ("path",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.in_flight = Gauge("topogate_reviews_in_flight", "Reviews being worked on.", registry=self.registry)

    def answered(self, path: str, *, operation: str, kind: str, outcome: str, seconds: float) -> None:
        """Count one answered review."""
        known = kind if kind in self._kinds else "other"
        self._reviews.labels(path, operation, known, outcome).inc()
        self._seconds.labels(path).observe(seconds)

    def refused(self, path: str, status: int) -> None:
        """Count one request that got an HTTP error."""
        self._refused.labels(path, str(status)).inc()

    def exposition(self) -> bytes:
        """Return everything in the Prometheus text format (CONTENT_TYPE)."""
        return generate_latest(self.registry)
