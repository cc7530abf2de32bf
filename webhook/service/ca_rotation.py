"""The CA of a replica: read from its Secret once it is trusted, and rotated by the leader.

`certs.rotation` decides the next state; this module reads and writes it.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable

from certs.authority import Authority
from certs.ca_bundle import ConfigurationMalformed, carries
from certs.rotation import Deleted, Found, StoredAuthority, Unusable, advanced, mended
from certs.secret import SecretUnusable, ensure_ca, new_ca, read_kept, write
from engine.api import names
from engine.cluster.client import ApiError, KubeClient
from webhook.service.own_objects import OwnObjects, own_object

log = logging.getLogger("topogate.authority")

_CONFLICTS = (404, 409)


class CurrentAuthority:
    """The current CA: every replica calls `follow`, the leader `advance`, repeatedly and from one thread."""

    def __init__(
        self,
        api: KubeClient,
        objects: OwnObjects,
        *,
        namespace: str,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._objects = objects
        self._namespace = namespace
        self._clock = clock
        self._wall = wall
        self._kept: StoredAuthority | None = None
        self._carried: tuple[bytes, float] | None = None  # a bundle, and since when all of it is trusted everywhere
        self._problem = ""

    def obtain(self, alone: Callable[[], bool]) -> None:
        """Read the CA, or make it. Raises SecretUnusable, also while it is not available, and errors of the API.

        `alone` returns True if there is no leader: restoring a deleted Secret is the leader's task, and so is replacing
        a CA that the webhook configurations do not trust.
        """
        kept = ensure_ca(
            self._api,
            namespace=self._namespace,
            name=names.CA_SECRET_NAME,
            now=self._wall(),
            may_make=alone,
        )
        if not self._trusted(kept.authority.signer) and not alone():
            raise SecretUnusable(
                f"the webhook configurations do not trust CA {mark(kept.authority.signer)}: the leader sees to it"
            )
        self._kept = kept

    @property
    def kept(self) -> StoredAuthority:
        """Return the CA state that this replica uses; set once `obtain` has returned."""
        assert self._kept is not None
        return self._kept

    def authority(self) -> Authority:
        """Return the CA that signs this replica's certificates."""
        return self.kept.authority

    def follow(self) -> None:
        """Adopt the state in the Secret, unless that would serve or publish an untrusted CA."""
        found = self._found()
        if isinstance(found, StoredAuthority) and self._mended(found) is None:
            self._kept = found

    def advance(self, fence: Callable[[], None]) -> None:
        """Write the next state to the Secret; `fence` is called first. Raises errors of the fence and the API."""
        record = self._objects.secret.get(names.CA_SECRET_NAME)
        found = self._found()
        wanted = self._mended(found)
        if wanted is None:
            assert isinstance(found, StoredAuthority)
            wanted = advanced(found, carried_for=self._carried_for(found.bundle), now=self._wall(), make=self._make)
        if wanted is None:
            return
        fence()
        version = "" if record is None else record.resource_version
        try:
            answer = write(self._api, wanted, namespace=self._namespace, name=names.CA_SECRET_NAME, version=version)
        except ApiError as error:
            if error.status in _CONFLICTS:
                return  # another writer was faster: the watch will show its write
            raise
        self._objects.secret.apply_own_write(own_object(answer))
        self._log_change(found, wanted)
        self._kept = wanted

    def _found(self) -> Found:
        record = self._objects.secret.get(names.CA_SECRET_NAME)
        if record is None:
            return Deleted()
        try:
            found = read_kept(record.body, namespace=self._namespace, name=names.CA_SECRET_NAME, now=self._wall())
        except SecretUnusable as error:
            if str(error) != self._problem:
                self._problem = str(error)
                log.warning("%s", error)
            return Unusable()
        self._problem = ""
        return found

    def _mended(self, found: Found) -> StoredAuthority | None:
        return mended(self.kept, found, carried=self._trusted, now=self._wall(), make=self._make)

    def _make(self) -> Authority:
        return new_ca(namespace=self._namespace, name=names.CA_SECRET_NAME, now=self._wall())

    def _trusted(self, certificate: bytes) -> bool:
        """Return True if every webhook of every configuration trusts the certificate."""
        try:
            return all(carries(body, certificate) for body in self._objects.configurations().values())
        except ConfigurationMalformed:
            return False

    def _carried_for(self, bundle: bytes) -> float | None:
        if not self._objects.synced or not self._trusted(bundle):
            self._carried = None
            return None
        now = self._clock()
        if self._carried is None or self._carried[0] != bundle:
            self._carried = (bundle, now)
        return now - self._carried[1]

    def _log_change(self, found: Found, now: StoredAuthority) -> None:
        before, signer = self.kept, mark(now.authority.signer)
        match found:
            case Deleted():
                log.warning("the Secret of the CA was deleted and is written again: CA %s signs", signer)
            case Unusable():
                log.warning("the Secret of the CA was unusable and is written again: CA %s signs", signer)
        if now.following is not None and now.following != before.following:
            log.info("the CA is renewed: %s is trusted beside %s and signs next", mark(now.following.signer), signer)
        if now.authority.signer != before.authority.signer:
            log.info("CA %s signs from now on; older ones that are trusted still: %d", signer, len(now.retired))
        elif len(now.retired) < len(before.retired):
            log.info("CA %s is the only one that is trusted", signer)


def mark(certificate: bytes) -> str:
    """Return a short fingerprint of a CA certificate (PEM)."""
    return hashlib.sha256(certificate).hexdigest()[:12]
