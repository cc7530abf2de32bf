"""Whether the webhook configurations trust what a replica serves: the caBundle and the name by which they call it."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from typing import Final
from weakref import WeakKeyDictionary

from certs.ca_bundle import ConfigurationMalformed, callers
from certs.trust import refusal
from webhook.configuration.webhooks import MUTATING, Resource
from webhook.service.own_objects import OwnObjects

FRESH: Final = 60.0  # seconds for which an answer holds if nothing changes but the time


class ConfigurationTrust:
    """Tries what the API server will do with the configurations as the watch has shown them. Any thread may ask."""

    def __init__(self, objects: OwnObjects, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._objects = objects
        self._clock = clock
        self._known: WeakKeyDictionary[ssl.SSLContext, tuple[tuple[bytes, ...], float, str]] = WeakKeyDictionary()

    def trusts(self, context: ssl.SSLContext) -> bool:
        """Return True if every webhook of every configuration trusts what `context` serves."""
        return not self.distrust(context)

    def distrust(self, context: ssl.SSLContext) -> str:
        """Return which configuration does not trust what `context` serves, and why; "" if each does."""
        found = self._objects.configurations()
        bodies, now = tuple(found.values()), self._clock()
        known = self._known.get(context)
        if known is not None and known[0] == bodies and now < known[1] + FRESH:
            return known[2]
        answer = _first_refusal(context, found)
        self._known[context] = (bodies, now, answer)
        return answer


def _first_refusal(context: ssl.SSLContext, configurations: Mapping[tuple[Resource, str], bytes]) -> str:
    accepted: set[tuple[str, bytes]] = set()
    for (resource, name), body in configurations.items():
        try:
            ways = sorted(callers(body))
        except ConfigurationMalformed:
            continue
        for host, bundle in ways:
            if (host, bundle) in accepted:
                continue
            if why := refusal(context, bundle=bundle, host=host):
                kind = "MutatingWebhookConfiguration" if resource == MUTATING else "ValidatingWebhookConfiguration"
                return f"{kind} {name} does not trust it as {host[:253]}: {why}"
            accepted.add((host, bundle))
    return ""
