"""The right that a refusal of the API server is about, in the words of commands instead of the server's."""

from __future__ import annotations

import re
from typing import Final

from engine.api.text import sanitize
from engine.cluster.client import ApiFault

MAX_REASON: Final = 300  # characters
# As its authorizers say it, whichever they are (endpoints/handlers/responsewriters/errors.go). A refusal by admission
# has the same status, and names no right.
_DENIED: Final = re.compile(
    r"cannot (?P<verb>[a-z]{1,40}) (?:"
    r'resource "(?P<resource>[^"]{1,253})" in API group "(?P<group>[^"]{0,253})"'
    r'(?: in the namespace "(?P<namespace>[^"]{1,253})")?'
    r'|path "(?P<path>[^"]{1,253})")'
)


def right_text(verb: str, group: str, resource: str, *, name: str = "", namespace: str = "") -> str:
    """Return a right in words: `delete clusterroles.rbac.authorization.k8s.io topogate`, `get pods/log`."""
    plural, _, subresource = resource.partition("/")
    what = f"{plural}.{group}" if group else plural
    what += f"/{subresource}" if subresource else ""
    where = f" in namespace {sanitize(namespace)}" if namespace else ""
    return f"{verb} {sanitize(what, MAX_REASON)}{f' {sanitize(name, MAX_REASON)}' if name else ''}{where}"


def denied_right(message: str) -> str:
    """Return the right that a refusal says is missing, as `no right to list pods`; "" if it is about something else."""
    found = _DENIED.search(message)
    if found is None:
        return ""
    if found["path"]:
        return f"no right to {found['verb']} {sanitize(found['path'], MAX_REASON)}"
    where = found["namespace"] or ""
    return f"no right to {right_text(found['verb'], found['group'], found['resource'], namespace=where)}"


def reason_text(message: str) -> str:
    """Return why the API server refused: the missing right, else its own words."""
    return denied_right(message) or sanitize(message, MAX_REASON)


def fault_text(fault: ApiFault) -> str:
    """Return why a request failed: the missing right, else the fault."""
    return reason_text(str(fault))
