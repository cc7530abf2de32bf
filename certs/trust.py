"""Whether a client that trusts a bundle accepts what we serve: tried by a handshake in memory, as the API server does.

OpenSSL verifies chain, name, purpose and time; like Go's verifier it also takes a bundle that ends at an intermediate.
"""

from __future__ import annotations

import ssl
from typing import Final

from certs.authority import MAX_PEM

_ROUNDS: Final = 4  # TLS 1.3 needs two


def refusal(server: ssl.SSLContext, *, bundle: bytes, host: str) -> str:
    """Return why a client that trusts `bundle` (PEM) refuses what `server` serves as `host`; "" if it accepts that.

    `host` is a DNS name or an IP address. The time is that of the system.
    """
    if not 0 < len(bundle) <= MAX_PEM:
        return "there is no CA bundle" if not bundle else "the CA bundle is too large"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=bundle.decode("ascii"))
    except (ssl.SSLError, ValueError):
        return "the CA bundle is not PEM"
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        client = context.wrap_bio(to_client, to_server, server_hostname=host)
    except ValueError:
        return "the name is malformed"
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for _ in range(_ROUNDS):
            if _done(client):
                return ""
            _done(ours)
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except ssl.SSLError as error:
        return str(error.reason)
    return "the handshake does not end"


def _done(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
