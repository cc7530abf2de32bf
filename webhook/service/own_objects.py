"""Watches the service's own objects by name: the CA's Secret and the webhook configurations.

A watch, because an overwritten object fails calls until it is corrected, and polling would be four requests a second
for ever. Every replica watches them, so that a new leader knows at once what the last one knew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from engine.api import names
from engine.cluster.client import KubeClient, object_path
from engine.cluster.reflector import Reflector
from engine.cluster.store import Store
from webhook.configuration.webhooks import MUTATING, VALIDATING, Resource

CONFIGURATIONS: Final[tuple[tuple[Resource, str], ...]] = tuple(
    (resource, name)
    for name in (names.MUTATING_CONFIGURATION, names.POLICY_CONFIGURATION)
    for resource in (MUTATING, VALIDATING)
)


@dataclass(frozen=True, slots=True)
class OwnObject:
    """An object as the API server stores it; `body` is its JSON, including the key of the Secret."""

    name: str
    namespace: str
    uid: str
    resource_version: str
    body: bytes = field(repr=False)


class _Meta(msgspec.Struct):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Object(msgspec.Struct):
    metadata: _Meta


_decode = msgspec.json.Decoder(_Object).decode


def own_object(raw: bytes | msgspec.Raw) -> OwnObject:
    """Return the record of an object's JSON. Raises ValueError if it is not an object."""
    meta = _decode(raw).metadata
    return OwnObject(meta.name, meta.namespace, meta.uid, meta.resource_version, bytes(raw))


class OwnObjects:
    """Owns one reflector for each object; call `start` and `stop` once. `changed` is called after every change.

    Without `secret` (the certificate comes from elsewhere) the CA's Secret is not read, and no right for it is needed.
    """

    def __init__(self, api: KubeClient, *, namespace: str, changed: Callable[[], None], secret: bool = True) -> None:
        self._reflectors: dict[str, Reflector[OwnObject]] = {}
        if secret:
            path = object_path("v1", "secrets", namespace=namespace)
            self._reflectors[names.CA_SECRET_NAME] = _reflector(api, path, names.CA_SECRET_NAME, changed)
        for resource, name in CONFIGURATIONS:
            path = object_path("admissionregistration.k8s.io/v1", resource)
            self._reflectors[f"{resource}/{name}"] = _reflector(api, path, name, changed)

    @property
    def secret(self) -> Store[OwnObject]:
        """The store with the Secret of the CA, if it exists."""
        return self._reflectors[names.CA_SECRET_NAME].store

    def configurations(self) -> Mapping[tuple[Resource, str], bytes]:
        """Return the existing webhook configurations, as JSON."""
        found = {
            (resource, name): self._reflectors[f"{resource}/{name}"].store.get(name)
            for resource, name in CONFIGURATIONS
        }
        return {key: one.body for key, one in found.items() if one is not None}

    @property
    def synced(self) -> bool:
        """Return True once every object is known or known to be absent."""
        return all(one.synced for one in self._reflectors.values())

    def missing(self) -> list[str]:
        """Return the objects that have not synced yet, with the reason."""
        return [
            f"{name} ({reflector.problem})" if reflector.problem else name
            for name, reflector in self._reflectors.items()
            if not reflector.synced
        ]

    def wait_synced(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until all are synced; return False if they are not."""
        end = time.monotonic() + timeout
        return all(one.store.wait_synced(max(0.0, end - time.monotonic())) for one in self._reflectors.values())

    def reflectors(self) -> Mapping[str, Reflector[Any]]:
        """Return the reflectors by the names that logs and metrics use."""
        return self._reflectors

    def start(self) -> None:
        """Start every watch."""
        for reflector in self._reflectors.values():
            reflector.start()

    def stop(self) -> None:
        """End every watch; takes about a second at most."""
        with ThreadPoolExecutor(max_workers=len(self._reflectors)) as pool:
            list(pool.map(lambda reflector: reflector.stop(), self._reflectors.values()))


def _reflector(api: KubeClient, path: str, name: str, changed: Callable[[], None]) -> Reflector[OwnObject]:
    store: Store[OwnObject] = Store(key=lambda found: found.name)
    store.subscribe(lambda _key, _old, _new: changed())
    # Without the selector, RBAC that names the object would refuse the list and the watch.
    return Reflector(api, path, own_object, store, query={"fieldSelector": f"metadata.name={name}"})
