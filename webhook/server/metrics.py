"""Prometheus metrics of the web layer, and the registry that the engine's metrics join."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, GCCollector, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from engine.api.reasons import REASONS, Code
from engine.kinds.registry import built_in

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

# Kinds with a label value of their own; a client can send any other, and each would be a new series.
KINDS: Final = frozenset({"ConfigMap", "Placement", *(entry.match.kind for entry in built_in().entries)})

# Statuses of requests to the two paths that get no admission answer.
ERRORS: Final = (400, 411, 413, 415, 500, 503)

# Seconds. Dense around the targets (p99 10 ms, 200 ms of waiting for a revision) and at the webhooks' time limits.
BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)


class Ended(enum.Enum):
    """Why the server closed a connection."""

    ROOM = "room"  # too many connections, and others had precedence
    MEMORY = "memory"  # unfinished requests, or answers not read, used too much memory
    LATE = "late"  # the handshake, a request, the rest of a refused one or the reading of an answer took too long
    IDLE = "idle"  # no request for longer than clients keep connections
    FAULT = "fault"  # an error of the server


class Refusal(enum.Enum):
    """Why the server refused a client in the handshake."""

    NO_CERTIFICATE = "no-certificate"
    UNTRUSTED = "untrusted"  # of another CA, or expired
    NAME = "name"  # of the right CA, with none of the names that may call


class Metrics:
    """The web layer's metrics of one process, in the engine's registry or in one of their own."""

    def __init__(self, registry: CollectorRegistry | None = None, *, kinds: frozenset[str] = KINDS) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
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
            "Requests that got an HTTP error instead of an admission answer; failurePolicy decides then.",
            ("path", "status"),
            registry=self.registry,
        )
        self._over_budget = Counter(
            "topogate_reviews_over_budget",
            "Reviews that were stopped because they took too much CPU time.",
            ("path",),
            registry=self.registry,
        )
        for path in ("mutate", "validate"):
            self._over_budget.labels(path)
            for status in ERRORS:  # a series that begins at 1 shows no increase
                self._refused.labels(path, str(status))
        self._seconds = Histogram(
            "topogate_review_duration_seconds",
            "Time from the first byte of a request to its answer.",
            ("path", "outcome"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.in_flight = Gauge("topogate_reviews_in_flight", "Reviews in progress.", registry=self.registry)
        self.connections = Gauge("topogate_connections", "Open connections to the webhook.", registry=self.registry)
        self.handshakes = Counter(
            "topogate_handshakes",
            "TLS handshakes completed; many for each review mean that reviews come in bursts.",
            registry=self.registry,
        )
        self._ended = Counter(
            "topogate_connections_ended",
            "Connections to the webhook that the server closed.",
            ("reason",),
            registry=self.registry,
        )
        self._faults = Counter(
            "topogate_server_faults",
            "Unexpected errors in a server's event loop; each ends one connection at most.",
            ("port",),
            registry=self.registry,
        )
        self._entry_faults = Counter(
            "topogate_kind_entry_faults",
            "Reviewed objects without a field that an entry of the policy's kinds names; the entry may be wrong.",
            ("entry",),
            registry=self.registry,
        )
        self._aside = Counter(
            "topogate_aside",
            "New workloads and pods with a request that were left alone, by the reason code.",
            ("reason",),
            registry=self.registry,
        )
        for code, reason in REASONS.items():
            if reason.kind in ("exempt", "ignored") and reason.asks:
                self._aside.labels(code)
        self._entries: frozenset[str] = frozenset()
        for why in Ended:
            self._ended.labels(why.value)
        self._clients_refused = Counter(
            "topogate_clients_refused",
            "Clients of the webhook port that were refused for their certificate, or for having none.",
            ("reason",),
            registry=self.registry,
        )
        for refusal in Refusal:
            self._clients_refused.labels(refusal.value)
        for port in ("webhook", "ops"):
            self._faults.labels(port)

        self._ends = Gauge(
            "topogate_certificate_end_timestamp_seconds",
            "When the signing CA and the leaf that this replica serves expire.",
            ("certificate",),
            registry=self.registry,
        )
        self._signer = Gauge(
            "topogate_ca_info",
            "1 for the CA of the leaf that this replica serves.",
            ("signer",),
            registry=self.registry,
        )
        self._cas = Gauge(
            "topogate_cas_trusted",
            "CAs in the bundle of our own CA: more than one during a renewal.",
            registry=self.registry,
        )
        self._overdue = Gauge(
            "topogate_certificate_overdue_timestamp_seconds",
            "When a seventh of the life of the CA and of the leaf is left: a renewal that has not come is a fault.",
            ("certificate",),
            registry=self.registry,
        )
        self._trusted = Gauge(
            "topogate_certificate_trusted",
            "1 if the webhook configurations trust the leaf that this replica serves.",
            registry=self.registry,
        )

    def set_certificate(self, certificate: Literal["ca", "leaf"], *, ends: float, overdue: float) -> None:
        """Set when a certificate ends and when its renewal is overdue, in seconds since the epoch."""
        self._ends.labels(certificate).set(ends)
        self._overdue.labels(certificate).set(overdue)

    def set_signer(self, signer: str, *, cas: int) -> None:
        """Set the CA of the leaf, and how many CAs our own bundle has; 0 if it is not ours."""
        self._signer.clear()
        self._signer.labels(signer).set(1)
        self._cas.set(cas)

    def set_trusted(self, trusted: bool) -> None:
        """Set whether the webhook configurations trust the leaf."""
        self._trusted.set(trusted)

    def answered(self, path: str, *, operation: str, kind: str, outcome: str, seconds: float) -> None:
        """Count one answered review."""
        known = kind if kind in self._kinds else "other"
        self._reviews.labels(path, operation, known, outcome).inc()
        self._seconds.labels(path, outcome).observe(seconds)

    def refused(self, path: str, status: int) -> None:
        """Count one request that got an HTTP error."""
        self._refused.labels(path, str(status)).inc()

    def over_budget(self, path: str) -> None:
        """Count one review that was stopped for its processor time."""
        self._over_budget.labels(path).inc()

    def left_alone(self, reason: Code) -> None:
        """Count one new object with a request that is left alone."""
        self._aside.labels(reason).inc()

    def ended(self, why: Ended) -> None:
        """Count one connection that the server ended."""
        self._ended.labels(why.value).inc()

    def client_refused(self, why: Refusal) -> None:
        """Count one client that was refused in the handshake."""
        self._clients_refused.labels(why.value).inc()

    def fault(self, port: str) -> None:
        """Count one unexpected error in the event loop of a port: `webhook` or `ops`."""
        self._faults.labels(port).inc()

    def follow_entries(self, entries: Iterable[str]) -> None:
        """Keep the counts of exactly these entries of the policy's kinds; new ones begin at 0."""
        found = frozenset(entries)
        for gone in self._entries - found:
            self._entry_faults.remove(gone)
        for entry in found:
            self._entry_faults.labels(entry)
        self._entries = found

    def entry_fault(self, entry: str) -> None:
        """Count one object that lacks a field that an entry names; entries that are not followed are ignored."""
        if entry in self._entries:
            self._entry_faults.labels(entry).inc()

    def exposition(self) -> bytes:
        """Return everything in the Prometheus text format (CONTENT_TYPE)."""
        return generate_latest(self.registry)
