"""The certificates of the webhook port: ours, and those that clients must have.

Ours is signed with our own CA, or read from a directory that others renew. With our own CA every replica signs its
leaf, and the leader publishes the CA. With a directory there is no CA of ours: nothing is written, and what is in the
directory is served while it is usable.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable, Sequence

from certs.authority import AuthorityError
from certs.clients import ClientAuthority, ClientAuthorityUnusable
from certs.mounted import CertificateUnusable, MountedCertificate
from certs.secret import SecretUnusable
from certs.serving import ServingCertificate
from engine.api import names
from engine.cluster.client import ApiFault, KubeClient
from engine.cluster.lease import get_lease
from webhook.server.metrics import Metrics
from webhook.server.ops import MAX_DETAIL, Check
from webhook.service.ca_rotation import CurrentAuthority, mark
from webhook.service.own_objects import OwnObjects
from webhook.service.settings import Settings
from webhook.service.trust import ConfigurationTrust

log = logging.getLogger("topogate.certificate")

RETRY = 1.0
# Seconds. If the Secret of the CA is gone, or holds a CA that no configuration trusts, the holder of the Lease has to
# correct it, because it knows the CA in use. After this long the holder is taken for dead.
CA_WAIT = 20.0


class PortCertificate:
    """What the port serves; `obtain` first, `follow` repeatedly from one thread, everything else from any thread.

    `authority` is our CA; None if the certificate comes from `settings.certificates_from`.
    """

    def __init__(
        self,
        api: KubeClient,
        objects: OwnObjects,
        *,
        settings: Settings,
        authority: CurrentAuthority | None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._objects = objects
        self._settings = settings
        self._authority = authority
        self._wall = wall
        self._trust = ConfigurationTrust(objects)
        self._clients: ClientAuthority | None = None
        self._certificate: ServingCertificate | MountedCertificate | None = None
        self._problem = ""  # as it was logged last

    @property
    def obtained(self) -> bool:
        """Return True once there is a certificate."""
        return self._certificate is not None

    @property
    def context(self) -> ssl.SSLContext:
        """Return the context for the next handshake; there is one once `obtained`."""
        assert self._certificate is not None
        return self._certificate.context

    @property
    def signer(self) -> bytes:
        """Return the CA certificate (PEM) that signed what is served; b"" if the directory has none."""
        assert self._certificate is not None
        return self._certificate.signer

    def obtain(self, stop: threading.Event) -> None:
        """Return when there is a certificate, or at `stop`; retried, as API server or directory may come later."""
        give_up = time.monotonic() + CA_WAIT

        def alone() -> bool:
            lease = get_lease(self._api, self._settings.namespace, names.LEASE_NAME)
            return lease is None or not lease.holder or time.monotonic() > give_up

        while not stop.is_set():
            try:
                if not self._objects.wait_synced(RETRY):
                    raise SecretUnusable(f"not read yet: {', '.join(self._objects.missing())}")
                self._certificate = self._first(alone)
                self._problem = ""
                return
            except (ApiFault, SecretUnusable, AuthorityError, CertificateUnusable, ClientAuthorityUnusable) as error:
                self._complain(str(error))
            except Exception as error:  # else the replica would never be ready, and nothing would say why
                self._complain(f"an unexpected {type(error).__name__}, which the log tells", fault=error)
            stop.wait(RETRY)

    def _complain(self, problem: str, *, fault: Exception | None = None) -> None:
        """Log why there is no certificate yet, once; readiness says it all the time."""
        if problem != self._problem:
            self._problem = problem
            log.error("the port stays closed: %s", problem, exc_info=fault)

    def _first(self, alone: Callable[[], bool]) -> ServingCertificate | MountedCertificate:
        settings = self._settings
        if settings.client_ca is not None:
            self._clients = ClientAuthority(settings.client_ca, clock=self._wall)
        if settings.certificates_from is not None:
            return MountedCertificate(
                settings.certificates_from,
                hosts=(settings.dns_names[0], *settings.addresses),
                clock=self._wall,
                trusted=self._trust.trusts,
                clients=self._client_bundle,
            )
        assert self._authority is not None
        self._authority.obtain(alone)
        return ServingCertificate(
            self._authority.authority,
            dns_names=settings.dns_names,
            addresses=settings.addresses,
            clock=self._wall,
            clients=self._client_bundle,
        )

    def follow(self) -> None:
        """Renew the certificate when that is due, or serve the new one in the directory; follow the CA of clients."""
        if self._certificate is None:
            return
        if self._clients is not None and self._clients.follow():
            log.info("clients must have a certificate of other CAs from now on: %s", self._accepted())
        try:
            if self._certificate.renew_if_due():
                log.info("a new serving certificate is in force until %d", self._certificate.leaf.not_after)
        except AuthorityError as error:
            log.error("the serving certificate could not be renewed: %s", error)
        of_clients = "" if self._clients is None else self._clients.problem
        problem = self._complaint() or self._trust.distrust(self.context) or of_clients
        if problem and problem != self._problem:
            log.warning("the certificates of the port: %s", problem)
        elif self._problem and not problem:
            log.info("the certificates of the port are in order again")
        self._problem = problem

    def checks(self) -> Sequence[Check]:
        """Return the conditions of readiness: there is a valid certificate; and which clients may call, if not all.

        Their details say what is wrong.
        """
        if self._clients is None:
            return (self._check(),)
        problem = self._clients.problem
        detail = f"{problem}; the CAs before stay in force" if problem else self._accepted()
        return self._check(), Check("clients", True, detail[:MAX_DETAIL], odd=bool(problem))

    def _accepted(self) -> str:
        """Return whose certificates clients must have, in words."""
        marks = ", ".join(mark(one) for one in self._clients.certificates) if self._clients is not None else ""
        named = f" named {' or '.join(self._settings.client_names)}" if self._settings.client_names else ""
        return f"certificates of CA {marks}{named}"

    def _client_bundle(self) -> bytes:
        return b"" if self._clients is None else b"".join(self._clients.certificates)

    def _check(self) -> Check:
        certificate = self._certificate
        if certificate is None:
            missing = ", ".join(self._objects.missing())
            return Check("certificate", False, (missing or self._problem)[:MAX_DETAIL])
        detail = "; ".join(filter(None, (self._complaint(), self._trust.distrust(certificate.context))))
        return Check("certificate", certificate.valid, detail[:MAX_DETAIL], odd=bool(detail))

    def export(self, metrics: Metrics) -> None:
        """Set the metrics of the certificate and its CA."""
        certificate = self._certificate
        if certificate is None:
            return
        metrics.set_certificate("leaf", ends=certificate.leaf.not_after, overdue=certificate.leaf.overdue_at)
        metrics.set_trusted(self._trust.trusts(certificate.context))
        if isinstance(certificate, MountedCertificate):
            served = certificate.served
            if served.signer:
                metrics.set_certificate("ca", ends=served.signer_end, overdue=served.signer_overdue)
                metrics.set_signer(mark(served.signer), cas=0)
            return
        assert self._authority is not None
        kept = self._authority.kept
        metrics.set_certificate("ca", ends=kept.authority.not_after, overdue=kept.authority.overdue_at)
        metrics.set_signer(mark(certificate.signer), cas=len(kept.authority.certificates))

    def _complaint(self) -> str:
        return self._certificate.problem if self._certificate is not None else ""
