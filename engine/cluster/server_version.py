"""The version of the API server, and whether it is one that Topogate supports."""

from __future__ import annotations

import logging
import re
from typing import Final

import msgspec

from engine.api.text import sanitize
from engine.cluster.client import ApiFault, ApiUnavailable, KubeClient

OLDEST: Final = (1, 30)  # matchConditions and ValidatingAdmissionPolicies are stable since then
_MUTABLE_RESOURCES: Final = (1, 36)  # MutablePodResourcesForSuspendedJobs is beta, and on, since then
_TIMEOUT: Final = (5.0, 10.0)
_log = logging.getLogger(__name__)
_VERSION: Final = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})")


class _Answer(msgspec.Struct, rename="camel"):
    git_version: str = ""


_decode: Final = msgspec.json.Decoder(_Answer).decode


def server_version(api: KubeClient) -> str:
    """Return what the API server calls itself ("v1.36.3"); empty if it does not say it. Raises ApiFault.

    What is no JSON is the answer of no API server: ApiUnavailable.
    """
    try:
        return _decode(api.request("GET", "/version", timeout=_TIMEOUT)).git_version
    except msgspec.ValidationError:
        return ""
    except msgspec.DecodeError:
        raise ApiUnavailable("its answer about its version cannot be read") from None


def release_of(version: str) -> tuple[int, int] | None:
    """Return major and minor number of a version ("v1.36.3-gke.1" -> (1, 36)); None if it has none."""
    matched = _VERSION.match(version)
    return (int(matched[1]), int(matched[2])) if matched else None


def too_old(version: str) -> str:
    """Return why a server of this version is not supported; empty if it is, or if the version cannot be read."""
    release = release_of(version)
    if release is None or release >= OLDEST:
        return ""
    return f"{sanitize(version)} is older than {OLDEST[0]}.{OLDEST[1]}"


def keeps_resources(version: str) -> bool:
    """Return True if a server of this version refuses other container resources in the template of a suspended Job."""
    release = release_of(version)
    return release is not None and release < _MUTABLE_RESOURCES


def report_server(api: KubeClient) -> str:
    """Return the version of the API server, and log it, and that it is too old; empty if it is not known.

    What fails on a server that is too old looks like something else.
    """
    try:
        version = server_version(api)
    except ApiFault as fault:
        _log.warning("the version of the API server is not known: %s", fault)
        return ""
    if why := too_old(version):
        _log.error("the API server is not supported: %s. What it does not know of our webhooks is dropped", why)
    else:
        _log.info("the API server is %s", sanitize(version) or "of an unknown version")
    return version
