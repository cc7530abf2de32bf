"""Lists the names of objects, without decoding anything else of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from engine.cluster.client import ApiUnavailable, KubeClient
from engine.decoding.wire import UNREADABLE


class _Meta(msgspec.Struct):
    name: str = ""


class _Named(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _List(msgspec.Struct):
    items: list[_Named] | None = None


_decode: Final = msgspec.json.Decoder(_List).decode


def object_names(api: KubeClient, path: str, query: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the objects in the first page of a collection. Raises ApiFault."""
    try:
        return tuple(one.metadata.name for one in _decode(api.request("GET", path, query=query)).items or ())
    except UNREADABLE:
        raise ApiUnavailable(f"GET {path}: not a list") from None
