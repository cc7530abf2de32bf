"""Reads Kubernetes objects from files: YAML or JSON, many documents, `List` kinds, output of `kubectl get -o json`.

Objects stay as close to the file as possible: each item of a JSON list keeps its bytes, which are decoded like those of
a watch. Unreadable input stops the command with one line that names the place.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from engine.api import names
from engine.api.strict_yaml import YAMLTextError
from engine.api.text import quote, sanitize
from engine.decoding.wire import Source, located, projection_error
from webhook.snapshot.yaml_documents import MAX_DEPTH, documents

MAX_BYTES: Final = 1024 * 1024 * 1024  # 100,000 pods as kubectl prints them are some 800 MB
MAX_OBJECTS: Final = 1_000_000
MAX_WHY: Final = 120  # characters of a decoder's words

_LIST: Final = "List"
_SPACE: Final = re.compile(r"[ \t\r\n]*")


class FileProblem(Exception):
    """An unusable file; the text is one line with the file's name and, where known, document and item."""


@dataclass(frozen=True, slots=True)
class FileObject:
    """One object of a file: its API version and kind, and the object itself, undecoded if it came from JSON.

    `where` names file, document and item for error messages (`nodes.yaml, document 3`).
    """

    group: str
    version: str
    kind: str
    where: str
    source: Source

    @property
    def what(self) -> tuple[str, str]:
        """Return API group and kind."""
        return (self.group, self.kind)

    def decoded(self) -> dict[str, Any]:
        """Return a fresh copy of the object as builtins. Raises FileProblem if it is no JSON or too deep."""
        try:
            source = msgspec.json.encode(self.source) if isinstance(self.source, Mapping) else self.source
            value = msgspec.json.decode(source)
        except (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError, ValueError):
            raise FileProblem(f"{self.where}: the object cannot be written as JSON") from None
        assert isinstance(value, dict)
        layer: list[Any] = [value]
        for _ in range(MAX_DEPTH):
            layer = [
                item
                for one in layer
                for item in (one.values() if isinstance(one, dict) else one)
                if isinstance(item, dict | list)
            ]
            if not layer:
                return value
        raise FileProblem(f"{self.where}: nested deeper than {MAX_DEPTH} levels")


class _Head(msgspec.Struct, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    items: msgspec.Raw = msgspec.Raw(b"null")


_HEAD: Final = msgspec.json.Decoder(_Head)
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class _Heading:
    api_version: str | None
    kind: str | None
    items: list[Any] | None


def read_objects(content: bytes, *, name: str) -> list[FileObject]:
    """Return the objects of a file in their order; lists are expanded, empty documents skipped.

    Raises FileProblem: no YAML or JSON, out of bounds, or an object without apiVersion and kind.
    """
    found: list[FileObject] = []
    for number, value in _values(content, name=name):
        where = f"{name}, document {number}" if number else name
        for item in _objects(value, where=where):
            found.append(item)
            if len(found) > MAX_OBJECTS:
                raise FileProblem(f"{name}: more than {MAX_OBJECTS:,} objects")
    return found


def policy_text(content: bytes, *, name: str) -> str:
    """Return the text of policy.yaml: the file itself, or the value in the ConfigMap that the file holds.

    Text that is no policy is returned unchanged, so that `parse_policy` reports the error. Raises FileProblem: no
    UTF-8, or a ConfigMap without the policy's key.
    """
    text = _text(content, name=name)
    try:
        candidates = [value for value in documents(text) if isinstance(value, dict)]
    except YAMLTextError:
        return text
    items = [item for value in candidates for item in (value, *_listed(value))]
    maps = [item for item in items if isinstance(item, dict) and item.get("kind") == "ConfigMap"]
    if not maps:
        return text
    ours = [one for one in maps if isinstance(meta := one.get("metadata"), dict) and _is_ours(meta)] or maps
    if len(ours) > 1:
        raise FileProblem(f"{name}: {len(ours)} ConfigMaps; expected one, named {names.POLICY_NAME}")
    data = ours[0].get("data")
    found = data.get(names.POLICY_KEY) if isinstance(data, dict) else None
    if not isinstance(found, str):
        raise FileProblem(f"{name}: the ConfigMap has no text under data[{names.POLICY_KEY}]")
    return found


def _is_ours(metadata: Mapping[str, Any]) -> bool:
    return metadata.get("name") == names.POLICY_NAME


def _listed(value: Mapping[str, Any]) -> list[Any]:
    items = value.get("items")
    return items if isinstance(items, list) else []


def _text(content: bytes, *, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileProblem(f"{name}: not UTF-8 text (byte {error.start + 1:,})") from None


def _values(content: bytes, *, name: str) -> Iterator[tuple[int, Any]]:
    """Return the documents with their numbers (0: the only one); JSON stays undecoded."""
    if len(content) > MAX_BYTES:
        raise FileProblem(f"{name}: larger than {MAX_BYTES:,} bytes")
    content = content.removeprefix(codecs.BOM_UTF8)
    if content.lstrip()[:1] in (b"{", b"["):
        whole = _as_json(content)
        if whole is not None:
            yield from whole
            return
    text = _text(content, name=name)
    try:
        for number, value in enumerate(documents(text), start=1):
            if value is not None:
                yield number, value
    except YAMLTextError as error:
        raise FileProblem(f"{name}, document {error.document}, {error.problems[0]}") from None


def _as_json(content: bytes) -> list[tuple[int, bytes]] | None:
    """Return one JSON value, or several in a row (as of `kubectl get --watch -o json`); None if it may be YAML."""
    try:
        msgspec.json.decode(content, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        pass
    else:
        return [(0, content)]
    decoder, found = json.JSONDecoder(), list[tuple[int, bytes]]()
    try:
        text = content.decode()
        at = _after_space(text, 0)
        while at < len(text):
            _, end = decoder.raw_decode(text, at)
            found.append((len(found) + 1, text[at:end].encode()))
            at = _after_space(text, end)
    except (ValueError, RecursionError):
        return None
    return found


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _objects(
    value: Any, *, where: str, listed: bool = False, kind: str = "", api_version: str = ""
) -> Iterator[FileObject]:
    """Return an object, or the items of a list.

    Items inherit missing `kind` and `api_version` from the list.
    """
    head = _head(value, where=where)
    version, what = head.api_version or api_version, head.kind or kind
    if not version or not what:
        raise FileProblem(f"{where}: not a Kubernetes object: it needs apiVersion and kind")
    if what.endswith(_LIST) and head.items is not None:
        if listed:
            raise FileProblem(f"{where}: a list in a list")
        # A plain List holds any kinds, so its items inherit nothing.
        inherited = ("", "") if what == _LIST else (what.removesuffix(_LIST), version)
        for number, item in enumerate(head.items, start=1):
            item_where = f"{where}, item {number}"
            yield from _objects(item, where=item_where, listed=True, kind=inherited[0], api_version=inherited[1])
        return
    group, _, short = version.rpartition("/")
    yield FileObject(group=group, version=short, kind=what, where=where, source=value)


def _head(value: Any, *, where: str) -> _Heading:
    try:
        if isinstance(value, Mapping):
            head = msgspec.convert({key: value.get(key) for key in ("apiVersion", "kind")}, _Head)
            items = value.get("items")
            return _Heading(head.api_version, head.kind, items if isinstance(items, list) else None)
        if isinstance(value, bytes | msgspec.Raw):
            head = _HEAD.decode(value)
            listed = bytes(memoryview(head.items)[:1]) == b"["
            return _Heading(head.api_version, head.kind, _ITEMS.decode(head.items) if listed else None)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = ": ".join(filter(None, located(projection_error(error))))
        raise FileProblem(f"{where}: not a Kubernetes object: {sanitize(why, MAX_WHY)}") from None
    shown = "null" if value is None else "a list" if isinstance(value, list) else quote(str(value))
    raise FileProblem(f"{where}: not a Kubernetes object but {shown}")
