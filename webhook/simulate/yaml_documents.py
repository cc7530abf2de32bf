"""YAML documents as kubectl reads them, in one pass over the parser's events; data loss is an error, work is bounded.

PyYAML's own constructors keep the last of two equal keys, make dates of timestamps, expand aliases without a limit and
take about twice the time (`python -m bench.reading`). Scalars have the meaning that kubectl gives them
(sigs.k8s.io/yaml): `off` is false, `0644` is octal, a timestamp stays text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from engine.api.text import quote, sanitize

MAX_DEPTH: Final = 64  # the deepest object of Kubernetes nests some twenty levels
MAX_ALIASED: Final = 1_000_000  # values that all aliases may expand to: a bomb has more by the ninth line
MAX_DOCUMENTS: Final = 1_000_000

_TRUE: Final = ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")
_FALSE: Final = ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(_TRUE, True),
    **dict.fromkeys(_FALSE, False),
}
_NUMERIC: Final = frozenset("+-.0123456789")
_MAX_NUMBER: Final = 40  # characters; real numbers are shorter, and parsing a long one costs more than its length
_INTEGER: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]*|[1-9][0-9]*)", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_INT64: Final = 2**63

_TAG: Final = "tag:yaml.org,2002:"
_TAGS: Final = {"mapping": (None, "!", _TAG + "map"), "sequence": (None, "!", _TAG + "seq")}


class DocumentError(ValueError):
    """A document that cannot be used; `document` and `line` count from 1 (line 0: unknown)."""

    def __init__(self, document: int, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}" if line else problem)
        self.document = document
        self.line = line
        self.problem = problem


@dataclass(slots=True)
class _Open:
    """A container under construction; `height` is the depth of the deepest container in it."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    started: int  # value count when it was opened
    line: int
    key: str | None = None
    merging: bool = False
    height: int = 0
    merged: list[dict[str, Any]] = field(default_factory=list)


def documents(text: str) -> Iterator[Any]:
    """Yield the value of every document, empty ones as None. Mappings and lists may be shared: do not change them.

    Raises DocumentError: no YAML, too deep, too many aliases, a tag that is not plain data, a duplicate key.
    """
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if builder.take(event):
                yield builder.root
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
        line = mark.line + 1 if mark is not None else 0
        raise DocumentError(max(builder.number, 1), line, f"not valid YAML: {sanitize(str(problem))}") from None


def scalar(text: str) -> Any:
    """Return the value of an unquoted scalar: null, a boolean, a number or text."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC or len(text) > _MAX_NUMBER:
        return text
    digits = text.replace("_", "")
    if _INTEGER.fullmatch(digits):
        whole = _integer(digits)
        if -_INT64 <= whole < 2 * _INT64:
            return whole
    if _FLOAT.fullmatch(digits) and math.isfinite(number := float(digits)):
        return number
    return text


def _integer(digits: str) -> int:
    unsigned = digits.lstrip("+-")
    if len(unsigned) > 1 and unsigned[0] == "0" and unsigned[1].isdigit():
        return int(digits, 8)  # C's octal, as in defaultMode: 0644
    return int(digits, 0)


class _Builder:
    """Builds documents from events, one after the other; `root` is the last complete one."""

    def __init__(self) -> None:
        self.root: Any = None
        self.number = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int, int]] = {}
        self._values = 0
        self._aliased = 0

    def take(self, event: Any) -> bool:
        """Process one event; return True if a document is complete."""
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._scalar(event)
        elif kind is yaml.MappingStartEvent:
            self._start(event, {}, "mapping")
        elif kind is yaml.SequenceStartEvent:
            self._start(event, [], "sequence")
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._end(event)
        elif kind is yaml.AliasEvent:
            self._alias(event)
        elif kind is yaml.DocumentStartEvent:
            self.root = None
            self.number += 1
            self._anchors.clear()
            if self.number > MAX_DOCUMENTS:
                raise self._error(event, f"more than {MAX_DOCUMENTS:,} documents")
        return kind is yaml.DocumentEndEvent

    def _scalar(self, event: Any) -> None:
        text: str = event.value
        here = self._open[-1] if self._open else None
        if here is not None and type(here.value) is dict and here.key is None and not here.merging:
            if text == "<<" and event.implicit[0]:
                here.merging = True
            elif text in here.value:
                raise self._error(event, f"{quote(text)} stands twice")
            else:
                here.key = text
            return
        value: Any = text
        if event.implicit[0]:
            value = scalar(text)
        elif not event.implicit[1] and event.tag not in ("!", _TAG + "str"):
            raise self._error(event, f"the tag {quote(str(event.tag))} is not allowed")
        self._values += 1
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1, 0)
        self._put(event, value, 0)

    def _start(self, event: Any, value: dict[str, Any] | list[Any], kind: str) -> None:
        if event.tag not in _TAGS[kind]:
            raise self._error(event, f"the tag {quote(str(event.tag))} is not allowed")
        if len(self._open) >= MAX_DEPTH:
            raise self._error(event, f"nested deeper than {MAX_DEPTH} levels")
        self._expect_value(event)
        self._values += 1
        self._open.append(_Open(value, event.anchor, self._values, event.start_mark.line + 1))

    def _end(self, event: Any) -> None:
        done = self._open.pop()
        for source in done.merged:
            assert isinstance(done.value, dict)
            for key, value in source.items():
                done.value.setdefault(key, value)
        height = done.height + 1
        if done.anchor is not None:
            self._anchors[done.anchor] = (done.value, self._values - done.started + 1, height)
        self._put(event, done.value, height)

    def _alias(self, event: Any) -> None:
        self._expect_value(event)
        known = self._anchors.get(event.anchor)
        if known is None:
            raise self._error(event, f"the alias {quote(event.anchor)} has no complete anchor before it")
        value, size, height = known
        self._values += size
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            raise self._error(event, f"aliases stand for more than {MAX_ALIASED:,} values")
        if len(self._open) + height > MAX_DEPTH:
            raise self._error(event, f"nested deeper than {MAX_DEPTH} levels")
        self._put(event, value, height)

    def _expect_value(self, event: Any) -> None:
        here = self._open[-1] if self._open else None
        if here is not None and type(here.value) is dict and here.key is None and not here.merging:
            raise self._error(event, "keys must be text")

    def _put(self, event: Any, value: Any, height: int) -> None:
        if not self._open:
            self.root = value
            return
        here = self._open[-1]
        here.height = max(here.height, height)
        if type(here.value) is list:
            here.value.append(value)
        elif here.merging:
            here.merging = False
            sources = value if isinstance(value, list) else [value]
            if not all(isinstance(source, dict) for source in sources):
                raise self._error(event, "only mappings can be merged (<<)")
            self._values += sum(len(source) for source in sources)
            here.merged += sources
        else:
            assert isinstance(here.value, dict) and here.key is not None
            here.value[here.key] = value
            here.key = None

    def _error(self, event: Any, problem: str) -> DocumentError:
        return DocumentError(self.number, event.start_mark.line + 1, problem)
