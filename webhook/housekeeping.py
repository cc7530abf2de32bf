"""What a replica looks after all the time, and the leader alone what all replicas share.

CA bundle and entries in the webhook configurations, the last good policy, the watched topologies, the certificate.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from certs.authority import Authority
from certs.injection import ConfigurationMalformed, inject
from certs.secret import SecretUnusable
from certs.serving import ServingCertificate
from engine import metrics as engine_metrics
from engine import names
from engine.cluster import writes
from engine.cluster.api import Api, ApiFault
from engine.cluster.lease import LeaseCandidate, NotLeader
from engine.gpu.resources import whole_names
from engine.policy_source import PolicySource
from webhook.policy_entries import RESOURCES, PairMalformed, entries, keep
from webhook.settings import Settings
from webhook.topology_watch import TopologyWatch, follow_quietly

log = logging.getLogger("topogate.housekeeping")

EVERY = 2.0
CERTIFICATE_EVERY = 60.0


class Housekeeping:
    """Looks again and again, as whatever was put right may be overwritten. `keep` runs in a thread of its own."""

    def __init__(
        self,
        api: Api,
        candidate: LeaseCandidate,
        policy: PolicySource,
        topologies: TopologyWatch,
        *,
        settings: Settings,
        authority: Callable[[], Authority],
        certificate: ServingCertificate,
    ) -> None:
        self._api = api
        self._candidate = candidate
        self._policy = policy
        self._topologies = topologies
        self._settings = settings
        self._authority = authority
        self._certificate = certificate

    def keep(self, stop: threading.Event) -> None:
        """Look after everything every two seconds, until `stop`."""
        certificate_at = time.monotonic() + CERTIFICATE_EVERY
        while not stop.is_set():
            leads = self._candidate.is_leader
            engine_metrics.leading.set(1 if leads else 0)
            follow_quietly(self._topologies, self._policy.policy)
            try:
                if leads:
                    self._inject()
                    self._keep_entries()
                    self._keep_policy()
                if time.monotonic() >= certificate_at:
                    certificate_at = time.monotonic() + CERTIFICATE_EVERY
                    self._renew_certificate()
            except Exception:
                # A certificate that nobody renews is found out months later: this loop never ends by a fault.
                log.exception("housekeeping failed")
            stop.wait(EVERY)

    def _inject(self) -> None:
        """Put the CA bundle into the webhook configurations, and back when somebody overwrote it."""
        try:
            bundle = self._authority().bundle
            for name in (names.MUTATING_CONFIGURATION, names.POLICY_CONFIGURATION):
                for resource in RESOURCES:
                    self._candidate.check()
                    try:
                        if inject(self._api, resource=resource, name=name, bundle=bundle):
                            log.info("CA bundle written into %s %s", resource, name)
                    except ApiFault as error:
                        if getattr(error, "status", None) != 404:  # noqa: PLR2004 - not installed (yet): nothing to do
                            raise
        except NotLeader:
            return
        except (ApiFault, SecretUnusable, ConfigurationMalformed) as error:
            log.warning("the CA bundle could not be checked: %s", error)

    def _keep_entries(self) -> None:
        """Have sent to us what the policy in force adds, and nothing else any more."""
        policy, settings = self._policy.policy, self._settings
        try:
            for resource in RESOURCES:
                wanted = entries(
                    resource,
                    policy,
                    whole=tuple(whole_names(policy.gpu.vendors)),
                    own_username=settings.username,
                    own_namespace=settings.namespace,
                )
                if keep(self._api, resource, wanted, fence=self._candidate.check):
                    log.info("entries of the policy in %s: %d", resource, len(wanted))
        except NotLeader:
            return
        except (ApiFault, PairMalformed) as error:
            if getattr(error, "status", None) != 404:  # noqa: PLR2004 - not installed (yet): nothing to do
                log.warning("the entries of the policy could not be kept: %s", error)

    def _keep_policy(self) -> None:
        text = self._policy.to_keep()
        if text is None:
            return
        try:
            writes.keep_policy(self._api, self._settings.namespace, text, fence=self._candidate.check)
        except (ApiFault, NotLeader) as error:
            log.warning("the policy in force could not be kept: %s", error)

    def _renew_certificate(self) -> None:
        try:
            if self._certificate.renew_if_due():
                log.info("a new serving certificate is in force until %d", self._certificate.not_after)
        except (ApiFault, SecretUnusable) as error:
            log.error("the serving certificate could not be renewed: %s", error)
