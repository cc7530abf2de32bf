"""Whom the user of a kubeconfig acts as (`as`, `as-uid`, `as-groups`, `as-user-extra`), as headers of each request.

The official client ignores these fields: without the headers, commands act with all rights of whoever impersonates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from kubernetes.config.kube_config import ConfigNode

# What may be in a header's name beside letters, digits and _.-~ (RFC 9110), but for %: as client-go escapes it.
_SAFE: Final = "!#$&'*+^`|"

Headers = tuple[tuple[str, str], ...]


class ImpersonationProblem(ValueError):
    """The fields cannot be used; the message names the one."""


def headers_of_kubeconfig(merged: ConfigNode, context: str | None) -> Headers:
    """Return the headers for a context (None: the current one) of kubeconfigs as the official client merges them.

    Raises ImpersonationProblem.
    """
    chosen = merged["contexts"].get_with_name(context or merged["current-context"])["context"].safe_get("user")
    if not chosen or not merged.safe_get("users"):
        return ()
    entry = merged["users"].get_with_name(chosen, safe=True)
    user = entry.safe_get("user") if entry is not None else None
    return headers_of(user) if isinstance(user, Mapping) else ()


def headers_of(user: Mapping[str, Any]) -> Headers:
    """Return the headers for a user of a kubeconfig, in client-go's order; a name may be there several times.

    Raises ImpersonationProblem for what kubectl refuses too: other types, and fields without `as`.
    """
    name, uid = _text(user, "as"), _text(user, "as-uid")
    groups = _texts(user.get("as-groups"), "as-groups")
    extra = user.get("as-user-extra") or {}
    if not isinstance(extra, Mapping) or not all(isinstance(key, str) for key in extra):
        raise ImpersonationProblem("as-user-extra has to map names to lists of texts")
    if not name:
        if uid or groups or extra:
            raise ImpersonationProblem("as-uid, as-groups and as-user-extra need a user to impersonate (as)")
        return ()
    found = [("Impersonate-User", name), *((("Impersonate-Uid", uid),) if uid else ())]
    found += [("Impersonate-Group", group) for group in groups]
    found += _extra(extra)
    return tuple((header, _value(value)) for header, value in found)


def repeated(headers: Sequence[tuple[str, str]]) -> bool:
    """Return True if a name is there several times."""
    return len({name.lower() for name, _ in headers}) < len(headers)


def _extra(extra: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, values in extra.items():
        for value in _texts(values, "as-user-extra"):
            yield f"Impersonate-Extra-{quote(key, safe=_SAFE)}", value


def _text(user: Mapping[str, Any], field: str) -> str:
    value = user.get(field)
    if value is not None and not isinstance(value, str):
        raise ImpersonationProblem(f"{field} has to be a text")
    return value or ""


def _texts(values: Any, field: str) -> list[str]:
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise ImpersonationProblem(f"{field} has to be a list of texts")
    return values


def _value(text: str) -> str:
    """Return what is sent for a text: UTF-8, in the form that http.client sends as it is."""
    if any(char < " " or char == "\x7f" for char in text):
        raise ImpersonationProblem("a name to impersonate has a control character")
    return text.encode("utf-8", "surrogatepass").decode("latin-1")
