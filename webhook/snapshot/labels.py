"""All labels of workloads and pods, by which people select; the engine's records keep only those that it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from engine.api import names
from engine.decoding.wire import UNREADABLE
from webhook.snapshot.files import FileObject

_OTHERS: Final = frozenset({"Node", names.PLACEMENT_KIND})  # kinds whose labels are nobody's question


class _Meta(msgspec.Struct):
    uid: str = ""
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct):
    metadata: _Meta | None = None


_decode: Final = msgspec.json.Decoder(_Labelled).decode


def labels_of(objects: Iterable[FileObject]) -> dict[str, Mapping[str, str]]:
    """Return uid -> labels of the workloads and pods that have some; an object that cannot be read has none."""
    found: dict[str, Mapping[str, str]] = {}
    for one in objects:
        if one.kind in _OTHERS:
            continue
        try:
            source = one.source
            meta = (msgspec.convert(source, _Labelled) if isinstance(source, Mapping) else _decode(source)).metadata
        except (*UNREADABLE, TypeError):
            continue
        if meta is not None and meta.uid and meta.labels:
            found[meta.uid] = meta.labels
    return found
