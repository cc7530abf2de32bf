"""Whether the webhook configurations trust what a replica serves: the caBundle and the name by which they call it."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

from certs.ca_bundle import ConfigurationMalformed, callers
from certs.trust import refusal
from webhook.configuration.webhooks import MUTATING
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
        tried: dict[tuple[str, bytes], str] = {}
        answer = ""
        for (resource, name), body in found.items():
            try:
                ways = sorted(callers(body))
            except ConfigurationMalformed:
                continue
            for host, bundle in ways:
                if (host, bundle) not in tried:
                    tried[host, bundle] = refusal(context, bundle=bundle, host=host)
                if not answer and (why := tried[host, bundle]):
                    kind = "MutatingWebhookConfiguration" if resource == MUTATING else "ValidatingWebhookConfiguration"
                    answer = f"{kind} {name} does not trust it as {host[:253]}: {why}"
        self._known[context] = (bodies, now, answer)
        return answer
