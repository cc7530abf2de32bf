"""Keys, certificates, tokens and kubeconfigs of one control plane, all made at its start and thrown away with it."""

from __future__ import annotations

import base64
import csv
import datetime
import ipaddress
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

# Who speaks to the API server, with the groups of the real thing. RBAC is on, so the scheduler and the controller
# manager can do what their bootstrap roles allow and nothing more.
USERS = {
    "admin": ("admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kwok": ("kwok", "system:masters"),
}
LIFETIME = datetime.timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Where the files of one instance are; `tokens` maps a name of `USERS` to its bearer token."""

    directory: Path
    tokens: dict[str, str]

    @property
    def ca_certificate(self) -> Path:
        """The certificate that clients trust."""
        return self.directory / "ca.crt"

    @property
    def serving_certificate(self) -> Path:
        """The API server's certificate."""
        return self.directory / "apiserver.crt"

    @property
    def serving_key(self) -> Path:
        """The API server's private key."""
        return self.directory / "apiserver.key"

    @property
    def service_account_key(self) -> Path:
        """The private key that signs service account tokens."""
        return self.directory / "service-accounts.key"

    @property
    def service_account_public_key(self) -> Path:
        """The key that verifies service account tokens."""
        return self.directory / "service-accounts.pub"

    @property
    def token_file(self) -> Path:
        """The API server's list of tokens (CSV: token, user, uid, groups)."""
        return self.directory / "tokens.csv"


def make_credentials(directory: Path, *, now: datetime.datetime) -> Credentials:
    """Make everything in `directory` (created, readable by its owner alone)."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Credentials(directory, {name: secrets.token_hex(24) for name in USERS})

    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _authority(ca_key, now, name="topogate-local")
    serving_key = ec.generate_private_key(ec.SECP256R1())
    serving = _serving(serving_key, ca, ca_key, now, name="kubernetes.default.svc")
    service_accounts = ec.generate_private_key(ec.SECP256R1())

    write_private(made.ca_certificate, ca.public_bytes(serialization.Encoding.PEM))
    write_private(made.serving_certificate, serving.public_bytes(serialization.Encoding.PEM))
    write_private(made.serving_key, _pem(serving_key))
    write_private(made.service_account_key, _pem(service_accounts))
    write_private(
        made.service_account_public_key,
        service_accounts.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
    )
    rows = (f'{made.tokens[name]},{user},{name},"{groups}"\n' for name, (user, groups) in USERS.items())
    write_private(made.token_file, "".join(rows).encode())
    return made


def read_token(directory: Path, name: str) -> str:
    """Return the token of a name of `USERS` from the credentials in `directory`."""
    rows = csv.reader(Credentials(directory, {}).token_file.read_text().splitlines())
    return next(row[0] for row in rows if row[2] == name)


def make_webhook_certificates(directory: Path, *, authority: str, service: str, now: datetime.datetime) -> None:
    """Make ca.crt, ca.key, tls.crt and tls.key of one webhook server on the loopback in `directory`.

    `authority` is the CA's name and `service` a DNS name beside 127.0.0.1: what a controller looks for that keeps its
    certificates itself.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # RSA in the old format: the only one that OPA's cert-controller, inside some controllers, reads.
    ca_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    ca = _authority(ca_key, now, name=authority)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _serving(key, ca, ca_key, now, name=service)
    write_private(directory / "ca.crt", ca.public_bytes(serialization.Encoding.PEM))
    write_private(directory / "ca.key", _pem(ca_key, serialization.PrivateFormat.TraditionalOpenSSL))
    write_private(directory / "tls.crt", certificate.public_bytes(serialization.Encoding.PEM))
    write_private(directory / "tls.key", _pem(key))


def make_client_certificate(directory: Path, *, authority: str, name: str, now: datetime.datetime) -> None:
    """Make ca.crt, ca.key, tls.crt and tls.key of a TLS client called `name` in `directory`."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = _authority(ca_key, now, name=authority)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = _builder(subject, ca.subject, key.public_key(), now).add_extension(usage, critical=False)
    certificate = builder.sign(ca_key, hashes.SHA256())
    write_private(directory / "ca.crt", ca.public_bytes(serialization.Encoding.PEM))
    write_private(directory / "ca.key", _pem(ca_key))
    write_private(directory / "tls.crt", certificate.public_bytes(serialization.Encoding.PEM))
    write_private(directory / "tls.key", _pem(key))


def kubeconfig(url: str, *, ca_certificate: Path, user: str, token: str) -> bytes:
    """Return a kubeconfig (JSON is YAML) with the CA inside, so that the file can be copied elsewhere."""
    name = "topogate-local"
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(ca_certificate.read_bytes()).decode()}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    return json.dumps(config, indent=1).encode() + b"\n"


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, from its first byte on; a reader sees all of it or the one before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)


def _pem(key: Key, form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _authority(key: Key, now: datetime.datetime, *, name: str) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _builder(subject, subject, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _serving(
    key: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate,
    ca_key: Key,
    now: datetime.datetime,
    *,
    name: str,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = x509.SubjectAlternativeName(
        [
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            x509.DNSName("localhost"),
            x509.DNSName(name),
        ]
    )
    return (
        _builder(subject, ca.subject, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    now: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )
