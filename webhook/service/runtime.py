"""The composition root of one replica: its components, their start order and its shutdown.

Everything here runs in gunicorn's worker process. Order: CA and leaf, caches, policy, the port, the Lease. The Lease
comes last, so that a replica leads only when it can serve; it goes first at the end, so that another takes over while
the last reviews are still answered.
"""

from __future__ import annotations

import gc
import logging
import ssl
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Literal

from engine import metrics as engine_metrics
from engine.api import names
from engine.cache.informers import ForeignInformers, Informers, follow_or_warn
from engine.cache.reports import Coverage, DeviceFaults
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.cluster.client import KubeClient, connect
from engine.cluster.events import Recorder
from engine.cluster.lease import LeaseCandidate
from engine.cluster.server_version import keeps_resources, report_server
from engine.controller.controller import Controller
from engine.controller.executor import ActionExecutor
from engine.history.decision_log import DecisionLog
from engine.policy.model import Policy
from engine.policy.source import PolicySource
from webhook.admission.concurrency import ReviewSlots
from webhook.admission.forecast_budget import ForecastBudget
from webhook.admission.live_reader import LiveReader
from webhook.admission.review import Review
from webhook.handlers.mutate_and_check import mutate_and_check
from webhook.handlers.validate import validate
from webhook.server.endpoint import Endpoint
from webhook.server.fault_log import FaultLog
from webhook.server.metrics import CONTENT_TYPE, Metrics
from webhook.server.ops import Check, pages, policy_check
from webhook.server.plain_http import PlainServer
from webhook.server.wsgi import Service
from webhook.service.ca_rotation import CurrentAuthority
from webhook.service.capacity_report import CapacityReport
from webhook.service.entry_faults import EntryFaults
from webhook.service.housekeeping import Housekeeping
from webhook.service.own_objects import OwnObjects
from webhook.service.policy_events import PolicyEvents
from webhook.service.port_certificate import PortCertificate
from webhook.service.settings import Settings

log = logging.getLogger("topogate.runtime")

REFRESH_TIMEOUT = 20.0
# Topology objects of others decide which levels there are; a replica that cannot list them becomes ready anyway.
TOPOLOGIES_WAIT = 5.0
# While a thread computes, another one gets the interpreter after this long (5 ms by default): p99 16 -> 5 ms.
SWITCH_INTERVAL = 0.001
# The caches hold no cycles: rarer collections and frozen old objects keep the collector from walking them.
GC_THRESHOLDS = (50_000, 20, 100)


class Runtime:
    """One replica; `service` returns what the server runs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._metrics = Metrics(engine_metrics.registry)
        self._entry_faults = EntryFaults(self._metrics)
        self._turns = ReviewSlots(settings.threads)
        self._stop = threading.Event()
        self._changed = threading.Event()  # wakes housekeeping
        self._started = False
        self._topologies_until = 0.0
        self._settled = False
        self._open = False  # the port
        self._ops: PlainServer | None = None
        self._decisions = DecisionLog()
        self._resources_fixed = False  # by the API server's version at our start: a warning rests on it, no decision

    def service(self) -> Service:
        """Return the hooks that the server calls, in their order."""
        return Service(
            start=self._start,
            ready=self._ready,
            context=self._context,
            client_names=frozenset(self._settings.client_names),
            listening=self._listening,
            drain=self._drain,
            stop=self._end,
            metrics=self._metrics,
            turns=self._turns,
        )

    # -- start -------------------------------------------------------------------------------------------------------

    def _start(self) -> Endpoint:
        settings = self._settings
        sys.setswitchinterval(SWITCH_INTERVAL)
        engine_metrics.build_info.labels(version("topogate")).set(1)
        self._api: KubeClient = connect(kubeconfig=settings.kubeconfig, user_agent="topogate")
        self._stores = Stores()
        self._view = ClusterState(
            self._stores,
            own_namespace=settings.namespace,
            device_faults=DeviceFaults().found,
            covered=Coverage().changed,
        )
        self._policy = PolicySource(self._set_policy)
        self._caches = Informers(
            self._api, self._stores, namespace=settings.namespace, policy=lambda: self._view.policy
        )
        self._topologies = ForeignInformers(self._api, self._stores, policy=lambda: self._view.policy)
        self._caches.policy.subscribe(lambda key, _old, new: self._policy.changed(str(key), new))
        self._caches.last_good.subscribe(lambda key, _old, new: self._policy.changed(str(key), new))
        self._candidate = LeaseCandidate(
            self._api,
            settings.namespace,
            names.LEASE_NAME,
            settings.identity,
            on_started=self._lead,
            on_stopped=self._follow,
        )
        own_authority = settings.certificates_from is None
        self._objects = OwnObjects(
            self._api, namespace=settings.namespace, changed=self._changed.set, secret=own_authority
        )
        self._authority = (
            CurrentAuthority(self._api, self._objects, namespace=settings.namespace) if own_authority else None
        )
        self._certificate = PortCertificate(self._api, self._objects, settings=settings, authority=self._authority)
        self._recorder = Recorder(self._api, instance=settings.identity)
        self._fence: Callable[[], None] = self._candidate.check
        self._executor = ActionExecutor(
            self._view,
            self._api,
            self._recorder,
            fence=self._check_fence,
            wall=time.time,
            decisions=self._decisions,
        )
        self._controller = Controller(
            self._view,
            self._executor,
            leads=lambda: self._candidate.is_leader,
            begin_term=self._begin_term,
            hidden=self._caches.kinds.hidden,
        )
        self._capacity = CapacityReport(
            self._view, leads=lambda: self._candidate.is_leader, most_domains=settings.domain_metrics
        )
        live = LiveReader(
            self._view,
            own_username=settings.username,
            own_namespace=settings.namespace,
            policy_loaded=lambda: self._policy.loaded,
            turns=self._turns,
            allowance=ForecastBudget(),
            resources_fixed=lambda: self._resources_fixed,
        )
        self._ops = PlainServer(
            pages(ready=self.checks, metrics=self._exposition),
            host=settings.ops_host,
            port=settings.ops_port,
            fault=FaultLog(self._metrics, "ops").report,
        )
        self._ops.start()
        self._caches.start()
        self._objects.start()
        self._recorder.start()
        self._certificate_thread = threading.Thread(
            target=self._certificate.obtain, args=(self._stop,), name="certificate", daemon=True
        )
        self._certificate_thread.start()
        self._started = True
        noted = self._entry_faults.noted
        return Endpoint(
            mutate=lambda review, deadline: noted(review, mutate_and_check(self._watch_kind(review), live, deadline)),
            validate=lambda review, deadline: noted(review, validate(review, live, deadline)),
            metrics=self._metrics,
            review_cpu=settings.review_cpu,
        )

    def _watch_kind(self, review: Review) -> Review:
        self._caches.kinds.wait_for_kind(review.group, review.kind)
        return review

    def _set_policy(self, policy: Policy) -> None:
        self._view.set_policy(policy)
        self._entry_faults.follow(policy.registry)
        self._caches.follow()
        self._changed.set()

    def _ready(self, seconds: float) -> bool:
        """Wait for caches, certificate and policy; then, once, settle the garbage collector and allow leading."""
        end = time.monotonic() + seconds
        if not self._caches.wait_synced(seconds):
            return False
        self._certificate_thread.join(max(0.0, end - time.monotonic()))
        if not self._certificate.obtained:
            return False
        if not self._policy.loaded:
            threading.Thread(target=self._ask_version, name="server-version", daemon=True).start()
            self._policy.start(
                self._caches.policy.get(names.POLICY_NAME), self._caches.last_good.get(names.LAST_GOOD_POLICY_NAME)
            )
            follow_or_warn(self._topologies)
            self._topologies_until = time.monotonic() + TOPOLOGIES_WAIT
        if not self._settled:
            now = time.monotonic()
            if now < self._topologies_until and not self._topologies.wait_synced(max(0.0, end - now)):
                return False
            self._view.refresh()
            gc.collect()
            gc.freeze()
            gc.set_threshold(*GC_THRESHOLDS)
            self._settled = True
        return True

    def _ask_version(self) -> None:
        """Ask the API server for its version; in a thread of its own, as a slow answer must not delay the start."""
        self._resources_fixed = keeps_resources(report_server(self._api))

    def _context(self) -> ssl.SSLContext:
        return self._certificate.context

    def _listening(self, port: int) -> None:
        self._open = True
        log.info("serving on port %d as %s", port, self._settings.identity)
        self._candidate.start()
        threading.Thread(target=self._controller.run, name="controller", daemon=True).start()
        house = Housekeeping(
            self._api,
            self._candidate,
            self._policy,
            self._topologies,
            settings=self._settings,
            objects=self._objects,
            authority=self._authority,
            certificate=self._certificate,
            wake=self._changed,
            events=PolicyEvents(
                self._recorder,
                self._policy,
                lambda: self._caches.policy.get(names.POLICY_NAME),
                decisions=self._decisions,
            ),
        )
        threading.Thread(target=house.keep, args=(self._stop,), name="housekeeping", daemon=True).start()

    # -- leading -----------------------------------------------------------------------------------------------------

    def _lead(self) -> None:
        """Wake the threads that start work with a new term."""
        self._record_leadership("LeadershipGained", "leads from now on")
        self._changed.set()
        self._view.changed.set()

    def _follow(self) -> None:
        self._record_leadership("LeadershipLost", "does not lead any more")
        self._changed.set()

    def _record_leadership(self, event: Literal["LeadershipGained", "LeadershipLost"], text: str) -> None:
        replica, policy = self._settings.identity, self._policy.policy.hash
        self._decisions.service(event, message=f"{replica} {text}, policy {policy}", replica=replica, policy=policy)

    def _begin_term(self) -> bool:
        """Refresh the caches and bind writes to this term, before its first write."""
        self._fence = self._candidate.fence()
        log.info("leading, term %d: reading the cluster afresh", self._candidate.term)
        began = time.monotonic()
        done = self._caches.refresh(REFRESH_TIMEOUT)
        log.info("the cluster was%s read afresh in %.2f s", "" if done else " not", time.monotonic() - began)
        return done

    def _check_fence(self) -> None:
        """Raise NotLeader unless we still lead in the term in which the write was decided."""
        self._fence()

    # -- health ------------------------------------------------------------------------------------------------------

    def checks(self) -> Sequence[Check]:
        """Return the conditions of readiness."""
        missing = self._caches.missing()
        # Not before the port is open: the API server would be told to call it, and be refused.
        opens = "" if self._open else "read; the port opens in a moment"
        return (
            Check("caches", not missing and self._open, ", ".join(missing) or opens),
            *self._certificate.checks(),
            policy_check(self._policy),
        )

    def _exposition(self) -> tuple[str, bytes]:
        self._capacity.refresh()
        engine_metrics.cache_age.clear()  # a kind that is gone has no age
        engine_metrics.unreadable_objects.clear()
        engine_metrics.forbidden_collections.clear()
        watches = {**self._caches.reflectors(), **self._topologies.reflectors(), **self._objects.reflectors()}
        for name, reflector in watches.items():
            engine_metrics.cache_age.labels(name).set(min(reflector.store.age, 1e9))
            engine_metrics.unreadable_objects.labels(name).set(reflector.left_out)
            if reflector.forbidden:
                engine_metrics.forbidden_collections.labels(name).set(1)
        self._certificate.export(self._metrics)
        return CONTENT_TYPE, self._metrics.exposition()

    # -- end ---------------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Release the Lease while the last reviews are answered."""
        if self._started:
            self._controller.stop()
            self._candidate.stop()

    def _end(self) -> None:
        self._stop.set()
        self._changed.set()
        if self._started:
            self._recorder.stop()
            self._caches.stop()
            self._objects.stop()
            self._topologies.stop()
            self._executor.close()
        if self._ops is not None:
            self._ops.close()
