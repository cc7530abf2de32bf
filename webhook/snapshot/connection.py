"""Connects to the API server with the caller's own rights, as kubectl does, and says which of them are missing."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.api.text import did_you_mean, join_comma, quote, sanitize
from engine.cluster.client import ApiFault, ApiUnavailable, KubeClient, connect, in_cluster
from engine.cluster.kubeconfig import current_context, merged_kubeconfigs, why_unusable

USER_AGENT: Final = "topogate-cli"
DEFAULT_NAMESPACE: Final = "default"
_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
MAX_REASON: Final = 300  # characters
# The client's own fault where a plug-in fails that has the terminal: it has said there why.
_TOLD_ITSELF: Final = "'NoneType' object has no attribute 'strip'"
# As its authorizers say it, whichever they are (endpoints/handlers/responsewriters/errors.go). A refusal by admission
# has the same status, and names no right.
_DENIED: Final = re.compile(
    r"cannot (?P<verb>[a-z]{1,40}) (?:"
    r'resource "(?P<resource>[^"]{1,253})" in API group "(?P<group>[^"]{0,253})"'
    r'(?: in the namespace "(?P<namespace>[^"]{1,253})")?'
    r'|path "(?P<path>[^"]{1,253})")'
)


class ConnectionProblem(Exception):
    """The cluster cannot be asked; the text is one line."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The API server with the rights of a kubeconfig, and the namespace that commands use if none is named."""

    api: KubeClient
    namespace: str


def connect_as_caller(*, kubeconfig: str | None = None, context: str | None = None) -> Caller:
    """Connect with a kubeconfig (a path; None: the usual ones) and one of its contexts (None: the current one).

    Sends nothing yet. Raises ConnectionProblem.
    """
    if kubeconfig is not None and not Path(kubeconfig).is_file():
        raise ConnectionProblem(f"{sanitize(kubeconfig, 200)}: no such kubeconfig")
    # The client's library reads the variable once, when it is imported.
    kubeconfig = kubeconfig or os.environ.get("KUBECONFIG") or None
    if kubeconfig is None and context is None and in_cluster():
        namespace = _own_namespace()
    else:
        context, namespace = _context_of(kubeconfig, context)
    try:
        with _errors_of_client() as errors:
            api = connect(kubeconfig=kubeconfig, context=context, user_agent=USER_AGENT)
    except ApiUnavailable as error:
        raise ConnectionProblem(str(error)) from None
    if errors:
        raise ConnectionProblem(f"no credentials: the plug-in of the kubeconfig fails{errors[0]}")
    return Caller(api, namespace)


@contextmanager
def _errors_of_client() -> Iterator[list[str]]:
    """Yield the list of what the client's library logs meanwhile, as `: exec: process returned 1. not logged in`.

    It goes on without credentials where a plug-in fails, and says so nowhere else: the API server would then refuse
    what nobody has asked for.
    """
    said: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            said.append("" if text == _TOLD_ITSELF else f": {sanitize(' '.join(text.split()), MAX_REASON)}")

    collector, root = Collector(logging.ERROR), logging.getLogger()
    collector.addFilter(lambda record: record.name == root.name)
    root.addHandler(collector)
    try:
        yield said
    finally:
        root.removeHandler(collector)


def _own_namespace() -> str:
    try:
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
    except (OSError, UnicodeDecodeError):
        return DEFAULT_NAMESPACE


def _context_of(kubeconfig: str | None, context: str | None) -> tuple[str, str]:
    """Return a context (None: the current one) and its namespace.

    Raises ConnectionProblem if there is no such kubeconfig or context.
    """
    where = kubeconfig or "~/.kube/config"
    try:
        merged = merged_kubeconfigs(kubeconfig)
        if merged.config is None:
            raise FileNotFoundError
        contexts = [one.value for one in merged.config.value["contexts"]]
        name = context or current_context(merged)
    except Exception as error:  # the loader raises whatever YAML and the file system raise
        raise ConnectionProblem(
            f"no API server configured: {sanitize(where, 200)} cannot be used ({why_unusable(error)}); "
            "set KUBECONFIG or --kubeconfig"
        ) from None
    found = {str(one.get("name")): one for one in contexts if isinstance(one, Mapping)}
    if name is None and not found:
        raise ConnectionProblem(
            f"no API server configured: {sanitize(where, 200)} has no contexts; set KUBECONFIG or --kubeconfig"
        )
    if name is None:
        known = join_comma(sorted(found))
        raise ConnectionProblem(
            f"no current context in {sanitize(where, 200)}: name one with --context; there are: {known}"
        )
    if name not in found:
        raise ConnectionProblem(
            f"no context {quote(name)} in {sanitize(where, 200)}{did_you_mean(name, sorted(found))}"
        )
    return name, _namespace_in(found[name])


def _namespace_in(context: Any) -> str:
    inner = context.get("context") if isinstance(context, Mapping) else None
    named = inner.get("namespace") if isinstance(inner, Mapping) else None
    return named if isinstance(named, str) and named else DEFAULT_NAMESPACE


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
