"""A serving certificate that others make and renew (cert-manager): `tls.crt`, `tls.key` and `ca.crt` of a directory.

The kubelet replaces the files of a mounted Secret at once, by pointing the link `..data` to another directory. Tools
that write one file after the other are endured: what does not fit together is not served.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from certs.authority import MAX_PEM, Leaf, life_of, overdue_at, pem_of, whole_certificates
from certs.serving import serving_context
from certs.trust import refusal

CHAIN_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"
AUTHORITY_FILE: Final = "ca.crt"
_SWAPPED: Final = "..data"  # of the kubelet: a link to the directory with the files in force
_TRIES: Final = 3


class CertificateUnusable(Exception):
    """The directory holds no certificate that can be served; the message says why. No key material."""


@dataclass(frozen=True, slots=True)
class MountedFiles:
    """The content of the files; `authority` is empty if there is no `ca.crt`."""

    chain: bytes
    key: bytes = field(repr=False)
    authority: bytes


@dataclass(frozen=True, slots=True)
class Served:
    """A certificate that was found usable: its `context` for handshakes, and the CA in `ca.crt` that signed it.

    `signer` is that CA's certificate (PEM), b"" if there is no `ca.crt`; it ends at `signer_end`, and its renewal is
    overdue from `signer_overdue` on. Times are seconds since the epoch.
    """

    files: MountedFiles
    leaf: Leaf
    signer: bytes
    signer_end: float
    signer_overdue: float
    context: ssl.SSLContext


def read_files(directory: Path) -> MountedFiles:
    """Read the files, all of the same moment if the kubelet put them there. Raises CertificateUnusable."""
    for _ in range(_TRIES):
        folder = os.path.realpath(directory / _SWAPPED) if (directory / _SWAPPED).is_symlink() else str(directory)
        try:
            found = MountedFiles(_read(folder, CHAIN_FILE), _read(folder, KEY_FILE), _read(folder, AUTHORITY_FILE))
        except OSError as error:
            raise CertificateUnusable(f"{directory} cannot be read: {error.strerror}") from None
        if not (directory / _SWAPPED).is_symlink() or os.path.realpath(directory / _SWAPPED) == folder:
            return found
    raise CertificateUnusable(f"{directory} changes all the time")


def usable(files: MountedFiles, *, hosts: Sequence[str], now: float, clients: bytes = b"") -> Served:
    """Return what can be served of these files. Raises CertificateUnusable.

    The certificate must be valid at `now` and name all `hosts` (DNS names or IP addresses), the key must be its own,
    and `ca.crt`, if there is one, must be its CA. `clients` is as in `serving_context`.
    """
    for name, content in ((CHAIN_FILE, files.chain), (KEY_FILE, files.key), (AUTHORITY_FILE, files.authority)):
        if len(content) > MAX_PEM:
            raise CertificateUnusable(f"{name} is too large")
        if not content and name != AUTHORITY_FILE:
            raise CertificateUnusable(f"{name} is missing or empty")
    chain = _certificates(files.chain, CHAIN_FILE)
    leaf = _leaf(files, chain[0])
    if now < chain[0].not_valid_before_utc.timestamp():
        raise CertificateUnusable(
            f"the certificate is not valid before {chain[0].not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        )
    if now >= leaf.not_after:
        raise CertificateUnusable(f"the certificate expired on {chain[0].not_valid_after_utc:%Y-%m-%d %H:%M} UTC")
    try:
        context = serving_context(files.chain, files.key, clients=clients)
    except ssl.SSLError as error:
        raise CertificateUnusable(f"TLS refuses the certificate: {error.reason}") from None
    # A client that trusts the certificate itself looks at name and purpose alone.
    itself = pem_of(chain[0])
    for host in hosts:
        if why := refusal(context, bundle=itself, host=host):
            raise CertificateUnusable(f"clients that call {host} refuse the certificate: {why}")
    signer = _signer(files, chain, context, host=hosts[0]) if files.authority else None
    if signer is None:
        return Served(files, leaf, b"", 0.0, 0.0, context)
    renew_at, end = life_of(signer)
    overdue = overdue_at(renew_at=renew_at, not_after=end)
    return Served(files, leaf, pem_of(signer), end, overdue, context)


class MountedCertificate:
    """The certificate of a directory, in force while it is usable. Same use as `ServingCertificate`.

    `clients` returns the CA of clients, as `serving_context` takes it. `trusted` returns whether the callers trust what
    a context serves: a new certificate that they do not trust yet is kept back while they trust the one in force.
    """

    def __init__(
        self,
        directory: Path,
        *,
        hosts: Sequence[str],
        clock: Callable[[], float],
        trusted: Callable[[ssl.SSLContext], bool] = lambda context: True,
        clients: Callable[[], bytes] = lambda: b"",
    ) -> None:
        """Raises CertificateUnusable if there is no usable one."""
        self._directory = directory
        self._hosts = tuple(hosts)
        self._clock = clock
        self._trusted = trusted
        self._clients = clients
        self._clients_used = clients()
        self._served = usable(read_files(directory), hosts=self._hosts, now=clock(), clients=self._clients_used)
        self._next = self._served  # newer than what is served, while callers do not trust it
        self.problem = ""

    @property
    def context(self) -> ssl.SSLContext:
        """Return the context for the next handshake."""
        return self._served.context

    @property
    def served(self) -> Served:
        """Return the certificate in force."""
        return self._served

    @property
    def signer(self) -> bytes:
        """Return the certificate (PEM) of the CA of the one in force; b"" if there is no `ca.crt`."""
        return self._served.signer

    @property
    def valid(self) -> bool:
        """Return True while clients accept the certificate."""
        return self._clock() < self._served.leaf.not_after

    @property
    def leaf(self) -> Leaf:
        """Return the certificate in force."""
        return self._served.leaf

    def renew_if_due(self) -> bool:
        """Read the directory and serve what is new in it; return True if another certificate is served now.

        A fault keeps the last good one and stands in `problem`, "" if there is none.
        """
        clients, now = self._clients(), self._clock()
        if clients != self._clients_used:
            self._served = _with_clients(self._served, clients)
            self._next = self._served if self._next.files == self._served.files else _with_clients(self._next, clients)
            self._clients_used = clients
        try:
            files = read_files(self._directory)
            if files != self._next.files:
                self._next = usable(files, hosts=self._hosts, now=now, clients=clients)
        except CertificateUnusable as error:
            self.problem = f"{self._directory}: {error}"
            return False
        self.problem = ""
        if self._next.files == self._served.files:
            return False
        if self.valid and not self._trusted(self._next.context) and self._trusted(self._served.context):
            self.problem = "a newer certificate is there; the webhook configurations do not trust it yet"
            return False
        self._served = self._next
        return True


def _with_clients(served: Served, clients: bytes) -> Served:
    return replace(served, context=serving_context(served.files.chain, served.files.key, clients=clients))


def _read(folder: str, name: str) -> bytes:
    """Return the content of a file, b"" if there is none; more than MAX_PEM is not read."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            return file.read(MAX_PEM + 1)
    except FileNotFoundError:
        return b""


def _certificates(pem: bytes, name: str) -> list[x509.Certificate]:
    try:
        return whole_certificates(pem)
    except ValueError:
        raise CertificateUnusable(f"{name} holds no certificates, or not all of them (PEM)") from None


def _leaf(files: MountedFiles, certificate: x509.Certificate) -> Leaf:
    try:
        key = serialization.load_pem_private_key(files.key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise CertificateUnusable(f"{KEY_FILE} is no unencrypted private key (PEM)") from None
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    try:
        fits = key.public_key().public_bytes(*form) == certificate.public_key().public_bytes(*form)
    except (ValueError, UnsupportedAlgorithm):
        fits = False
    if not fits:
        raise CertificateUnusable(f"{KEY_FILE} is not the key of {CHAIN_FILE}")
    renew_at, end = life_of(certificate)
    begin = certificate.not_valid_before_utc.timestamp()
    return Leaf(files.chain, files.key, not_before=begin, renew_at=renew_at, not_after=end)


def _signer(
    files: MountedFiles, chain: list[x509.Certificate], context: ssl.SSLContext, *, host: str
) -> x509.Certificate:
    """Return the CA in `ca.crt` that the chain ends at. Raises CertificateUnusable if there is none."""
    authorities = _certificates(files.authority, AUTHORITY_FILE)
    if why := refusal(context, bundle=files.authority, host=host):
        raise CertificateUnusable(f"{AUTHORITY_FILE} is not the CA of {CHAIN_FILE}: {why}")
    return next((one for one in authorities if any(_issued(part, one) for part in chain)), authorities[0])


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True
