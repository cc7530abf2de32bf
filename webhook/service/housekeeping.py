"""The periodic duties of a replica, and those that only the leader does for all replicas.

These concern the CA, its bundle and the policy's entries in the webhook configurations, the last good policy, the
watched topologies and the serving certificate.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from certs.ca_bundle import ConfigurationMalformed, inject
from engine import metrics as engine_metrics
from engine.api import names
from engine.cache.informers import ForeignInformers, follow_or_warn
from engine.cluster import writes
from engine.cluster.client import ApiFault, KubeClient
from engine.cluster.lease import LeaseCandidate, NotLeader
from engine.cluster.writes import Refused
from engine.policy.source import PolicySource
from engine.resources.names import whole_names
from webhook.configuration.policy_webhooks import RESOURCES, PairMalformed, entries, keep
from webhook.service.ca_rotation import CurrentAuthority
from webhook.service.own_objects import OwnObjects
from webhook.service.policy_events import PolicyEvents
from webhook.service.port_certificate import PortCertificate
from webhook.service.settings import Settings

log = logging.getLogger("topogate.housekeeping")

EVERY = 2.0
# Minimum time between two runs: a client that overwrites our objects at once is answered four times a second.
REST = 0.25


class Housekeeping:
    """Runs the duties after a change (`wake`) and every two seconds for time limits, without reads from the API server.

    `keep` runs in a thread of its own. `authority` is None if our certificates come from elsewhere, and so does the CA
    bundle.
    """

    def __init__(
        self,
        api: KubeClient,
        candidate: LeaseCandidate,
        policy: PolicySource,
        topologies: ForeignInformers,
        *,
        settings: Settings,
        objects: OwnObjects,
        authority: CurrentAuthority | None,
        certificate: PortCertificate,
        wake: threading.Event,
        events: PolicyEvents,
    ) -> None:
        self._api = api
        self._candidate = candidate
        self._policy = policy
        self._topologies = topologies
        self._settings = settings
        self._objects = objects
        self._authority = authority
        self._certificate = certificate
        self._wake = wake
        self._events = events

    def keep(self, stop: threading.Event) -> None:
        """Run the duties until `stop`."""
        while not stop.is_set():
            self._wake.clear()
            self._run_duties()
            stop.wait(REST)
            self._wake.wait(EVERY)

    def _run_duties(self) -> None:
        leads = self._candidate.is_leader
        engine_metrics.leading.set(1 if leads else 0)
        duties: list[Callable[[], None]] = [
            partial(follow_or_warn, self._topologies),
            partial(self._events.observe, leads=leads),
            partial(self._keep_authority, leads=leads),
            *([self._keep_entries, self._keep_policy] if leads else []),
            self._certificate.follow,
        ]
        for duty in duties:
            try:
                duty()
            except Exception:
                # A certificate that is not renewed is discovered months later: no fault of another duty may keep it
                # from that, and none ends this loop.
                log.exception("housekeeping failed")

    def _keep_authority(self, *, leads: bool) -> None:
        """Follow the CA, and as the leader renew it and inject its bundle."""
        if self._authority is None:
            return
        self._authority.follow()
        if leads:
            self._renew_authority(self._authority)
            self._inject(self._authority.kept.bundle)

    def _renew_authority(self, authority: CurrentAuthority) -> None:
        """Rotate the CA, and restore a deleted Secret."""
        try:
            authority.advance(self._candidate.check)
        except NotLeader:
            return
        except ApiFault as error:
            log.warning("the Secret of the CA could not be written: %s", error)

    def _inject(self, bundle: bytes) -> None:
        """Write the CA bundle into the webhook configurations, also after it was overwritten."""
        for (resource, name), body in self._objects.configurations().items():
            try:
                if inject(
                    self._api, resource=resource, name=name, bundle=bundle, known=body, fence=self._candidate.check
                ):
                    log.info("CA bundle written into %s %s", resource, name)
            except NotLeader:
                return
            except (ApiFault, ConfigurationMalformed) as error:
                if getattr(error, "status", None) != 404:  # noqa: PLR2004 - deleted a moment ago: nothing to do
                    log.warning("the CA bundle could not be written into %s %s: %s", resource, name, error)

    def _keep_entries(self) -> None:
        """Set the policy's webhook entries to those that the current policy adds."""
        policy, settings = self._policy.policy, self._settings
        bundle = self._authority.kept.bundle if self._authority is not None else None
        known = self._objects.configurations()
        try:
            for resource in RESOURCES:
                wanted = entries(
                    resource,
                    policy,
                    whole=tuple(whole_names(policy.gpu.vendors)),
                    own_username=settings.username,
                    own_namespace=settings.namespace,
                )
                manifests = known.get((resource, names.MUTATING_CONFIGURATION))
                ours = known.get((resource, names.POLICY_CONFIGURATION))
                if manifests is None or ours is None:
                    continue  # not installed (yet)
                if keep(
                    self._api,
                    resource,
                    wanted,
                    manifests=manifests,
                    known=ours,
                    bundle=bundle,
                    fence=self._candidate.check,
                ):
                    log.info("entries of the policy in %s: %d", resource, len(wanted))
        except NotLeader:
            return
        except (ApiFault, PairMalformed) as error:
            if getattr(error, "status", None) != 404:  # noqa: PLR2004 - deleted a moment ago: nothing to do
                log.warning("the entries of the policy could not be written: %s", error)

    def _keep_policy(self) -> None:
        text = self._policy.to_keep()
        if text is None:
            return
        try:
            result = writes.keep_policy(self._api, self._settings.namespace, text, fence=self._candidate.check)
        except (ApiFault, NotLeader) as error:
            log.warning("the policy in force could not be written: %s", error)
            return
        if isinstance(result, Refused):
            log.warning("the policy in force could not be written: %s", result.message)
