"""The serving certificate that this replica signs itself: kept in memory, renewed in time.

A renewal makes a new TLS context and swaps the reference. Loading into a context that is in use works mostly, but
OpenSSL does not lock it against handshakes that start meanwhile: one can see the new certificate with the old key.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from certs.authority import Authority, Leaf, new_leaf


def serving_context(chain: bytes, key: bytes, *, clients: bytes = b"") -> ssl.SSLContext:
    """Return a server's TLS 1.3 context with a PEM chain and its key. Raises ssl.SSLError if they do not match.

    With `clients` (PEM) only clients with a certificate of these CAs are accepted.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # Go's client keeps no sessions: tickets would be signed in vain
    with _as_file(key + b"\n" + chain) as path:
        context.load_cert_chain(path)
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=clients.decode("ascii"))
    return context


class ServingCertificate:
    """The current leaf. `context` may be read from any thread while `renew` runs in another; one thread renews at a
    time.

    `authority` is called at each renewal, `clock` returns seconds since the epoch, `clients` the CA of clients as
    `serving_context` takes it. `problem` is always "": a leaf that cannot be renewed raises.
    """

    problem: Final = ""

    def __init__(
        self,
        authority: Callable[[], Authority],
        *,
        dns_names: Sequence[str],
        addresses: Sequence[str] = (),
        clock: Callable[[], float],
        clients: Callable[[], bytes] = lambda: b"",
    ) -> None:
        self._authority = authority
        self._dns_names = tuple(dns_names)
        self._addresses = tuple(addresses)
        self._clock = clock
        self._clients = clients
        self._clients_used = b""
        self._signer = b""
        self._leaf: Leaf
        self.context: ssl.SSLContext
        self.renew()

    @property
    def valid(self) -> bool:
        """Return True while clients accept the leaf."""
        return self._clock() < self._leaf.not_after

    @property
    def leaf(self) -> Leaf:
        """Return the current leaf."""
        return self._leaf

    @property
    def signer(self) -> bytes:
        """Return the certificate (PEM) of the CA that signed the current leaf."""
        return self._signer

    def renew(self) -> None:
        """Sign a new leaf and serve it from the next handshake on. A failure keeps the old one."""
        authority, clients = self._authority(), self._clients()
        leaf = new_leaf(authority, dns_names=self._dns_names, addresses=self._addresses, now=self._clock())
        context = serving_context(leaf.chain, leaf.key, clients=clients)
        self._leaf, self._signer, self._clients_used, self.context = leaf, authority.signer, clients, context

    def renew_if_due(self) -> bool:
        """Renew after two thirds of the leaf's life, or when our CA or that of clients changed; return True if it did.

        To be called repeatedly: a poll, unlike a timer, also catches up after the process was paused. A clock that was
        ahead and is set back before the leaf's begin makes it due too: nobody would accept it until then.
        """
        same = self._authority().signer == self._signer and self._clients() == self._clients_used
        if same and self._leaf.not_before <= self._clock() < self._leaf.renew_at:
            return False
        self.renew()
        return True


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Yield a path to `content` while OpenSSL reads it: in anonymous memory if the system has that (Linux)."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("leaf", os.MFD_CLOEXEC)
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    with tempfile.NamedTemporaryFile() as file:  # mode 0600
        file.write(content)
        file.flush()
        yield file.name
