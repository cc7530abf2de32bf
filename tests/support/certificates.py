"""Certificates for tests, and a directory with them as the kubelet mounts a Secret."""

from __future__ import annotations

import datetime
import ipaddress
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = 86_400.0
FILES = ("tls.crt", "tls.key", "ca.crt")


@dataclass(frozen=True)
class TestAuthority:
    """A CA of somebody else, such as cert-manager's."""

    __test__ = False
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, *, now: float, name: str = "somebody's CA", days: float = 90) -> TestAuthority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, subject, key, begin=now - 60, end=now + days * DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        # As Go's library does for every CA.
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key as cert-manager writes it into a Secret."""
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL)
        return self.key.private_bytes(*form, serialization.NoEncryption())

    def leaf(
        self,
        *names: str,
        begin: float,
        end: float,
        common_name: str = "leaf",
        usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
    ) -> dict[str, bytes]:
        """The files of a certificate for DNS names and IP addresses, as cert-manager's Secret has them."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        builder = _builder(subject, self.certificate.subject, key, begin=begin, end=end)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if names:
            found = x509.SubjectAlternativeName([_name(one) for one in names])
            builder = builder.add_extension(found, critical=False)
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        certificate = builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        return dict(zip(FILES, (certificate, key.private_bytes(*form), self.pem), strict=True))


def mount(directory: Path, files: dict[str, bytes]) -> None:
    """Put files into a directory as the kubelet does: new ones beside the old ones, then one link is replaced."""
    directory.mkdir(exist_ok=True)
    versions = sorted(int(one.name.partition("_")[2]) for one in directory.glob("..v_*"))
    new = directory / f"..v_{(versions or [0])[-1] + 1}"
    new.mkdir()
    for name, content in files.items():
        (new / name).write_bytes(content)
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"..data/{name}")
    link = directory / "..data_tmp"
    link.symlink_to(new.name)
    os.replace(link, directory / "..data")
    for old in versions:
        shutil.rmtree(directory / f"..v_{old}")


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, begin: float, end: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime.fromtimestamp(int(begin), datetime.UTC))
        .not_valid_after(datetime.datetime.fromtimestamp(int(end), datetime.UTC))
    )


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
