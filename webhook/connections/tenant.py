"""The tenant of a review, from a scan of its first bytes without parsing. Pure."""

from __future__ import annotations

import re
from typing import Final

# Bytes of a request. The API server writes the namespace and the user before the object, within its first 2 KiB; a
# credential in the head may take 8 KiB more.
_SCANNED: Final = 12 * 1024
# Inside a JSON string quotes are escaped, so that no value can look like these.
_NAMESPACE: Final = b'"namespace":"'
_USER: Final = b'"username":"'
_NAME: Final = re.compile(rb'([a-z0-9-]{1,63})"')
_USER_NAME: Final = re.compile(rb'((?:[^"\\]|\\.){1,256})"')


def tenant_of(request: bytes | bytearray) -> str:
    """Return the namespace of a review, its user if the object has no namespace, and "" if neither is found.

    Pods of all namespaces are created by the same few users: the controllers of Jobs, ReplicaSets and others. As one
    tenant they would all wait for the namespace with most pods. And if the users of one namespace were several tenants,
    whoever may make ServiceAccounts in it could be as many as he likes.
    """
    user = request.find(_USER, 0, _SCANNED)
    # Only before the user: an object without a namespace may have a field of that name.
    namespace = request.find(_NAMESPACE, 0, user if user >= 0 else _SCANNED)
    if namespace >= 0:
        found = _NAME.match(request, namespace + len(_NAMESPACE))
        return found[1].decode("ascii") if found else ""
    found = _USER_NAME.match(request, user + len(_USER)) if user >= 0 else None
    return f"user {found[1].decode('latin-1')}" if found else ""
