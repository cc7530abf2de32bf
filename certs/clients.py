"""The CA of clients from a file: whoever calls the webhook port must have a certificate of it. Read again on change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from certs.authority import MAX_PEM, whole_certificates


class ClientAuthorityUnusable(Exception):
    """The file holds no CA that can be used; the message says why."""


class ClientAuthority:
    """The certificates of a file with the CAs of clients; `follow` reads it again and keeps the last good content."""

    def __init__(self, path: Path, *, clock: Callable[[], float]) -> None:
        """`clock` returns seconds since the epoch. Raises ClientAuthorityUnusable."""
        self._path = path
        self._clock = clock
        self._certificates = read_client_authority(path, now=clock())
        self.problem = ""

    @property
    def certificates(self) -> Sequence[bytes]:
        """Return the certificates in force, each as PEM."""
        return self._certificates

    def follow(self) -> bool:
        """Read the file; return True if other certificates are in force now. A fault stands in `problem`."""
        try:
            found = read_client_authority(self._path, now=self._clock())
        except ClientAuthorityUnusable as error:
            self.problem = str(error)
            return False
        self.problem = ""
        changed, self._certificates = found != self._certificates, found
        return changed


def read_client_authority(path: Path, *, now: float) -> tuple[bytes, ...]:
    """Return the certificates of a PEM file that have not expired. Raises ClientAuthorityUnusable if there is none."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_PEM + 1)
    except OSError as error:
        raise ClientAuthorityUnusable(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > MAX_PEM:
        raise ClientAuthorityUnusable(f"{path} is too large")
    try:
        certificates = whole_certificates(content)
    except ValueError:
        raise ClientAuthorityUnusable(f"{path} holds no certificates, or not all of them (PEM)") from None
    valid = [one for one in certificates if one.not_valid_after_utc.timestamp() > now]
    if not valid:
        raise ClientAuthorityUnusable(f"the certificates of {path} have expired")
    return tuple(one.public_bytes(serialization.Encoding.PEM) for one in valid)
