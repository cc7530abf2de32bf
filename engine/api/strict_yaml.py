"""Parses YAML in one pass over the parser's events: nothing is silently lost, and the work is bounded.

PyYAML's own constructors keep the last of two equal keys, read `off` as a boolean, make dates of timestamps, expand
aliases without a limit and take about one and a half times as long (`python -m bench.reading`). Here a duplicate key is
an error, and size, depth and expansion have bounds. The caller chooses the meaning of unquoted scalars (`ScalarRules`):
configuration (`load`) has the scalars of YAML 1.2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from engine.api.text import quote, sanitize

MAX_BYTES: Final = 256 * 1024  # of configuration: a quarter of what a ConfigMap can hold at all
MAX_NUMBER: Final = 40  # characters; real numbers are shorter, and parsing a long one costs more than its length

_TAG: Final = "tag:yaml.org,2002:"
_TAGS: Final = {"mapping": (None, "!", _TAG + "map"), "sequence": (None, "!", _TAG + "seq")}
_TYPES: Final = {"null": (type(None),), "bool": (bool,), "int": (int,), "float": (float, int)}

_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", re.ASCII)

Value = None | bool | int | float | str | list["Value"] | dict[str, "Value"]


class YAMLTextError(ValueError):
    """The text is invalid; `problems` holds one line for each reason, with its line number where there is one.

    `document` counts from 1.
    """

    def __init__(self, problems: tuple[str, ...], document: int = 1) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.document = document


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarRules:
    """The parsing rules of a text.

    `scalar` converts an unquoted scalar to its value. `text_keys`: an unquoted key that is not text is an error, else
    it becomes text. `merges`: `<<` merges mappings, else it is a key. `max_aliased` bounds the values that aliases add
    in all documents.
    """

    scalar: Callable[[str], Any]
    text_keys: bool
    merges: bool
    max_depth: int
    max_documents: int
    max_aliased: int


def load(text: str) -> Value:
    """Return the one document of a configuration as plain values (None when it is empty); they may be shared.

    Raises YAMLTextError with every duplicate key, non-text key and tag, or with the one reason why the text cannot be
    parsed: too large, too deep, not YAML, several documents.
    """
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise YAMLTextError(("holds characters that are not valid Unicode",)) from None
    if size > MAX_BYTES:
        raise YAMLTextError((f"has {size:,} bytes; at most {MAX_BYTES:,} are allowed",))
    return next(iter([*documents(text, _CONFIGURATION)]), None)


def documents(text: str, rules: ScalarRules) -> Iterator[Any]:
    """Yield the value of every document, empty ones as None. Mappings and lists may be shared: do not change them.

    Raises YAMLTextError.
    """
    builder = _Builder(rules)
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if builder.take(event):
                yield builder.root
    except yaml.YAMLError as error:
        raise YAMLTextError((*builder.problems, _syntax(error)), max(builder.number, 1)) from None


def _core_scalar(text: str) -> Any:
    """Return the value of an unquoted scalar in YAML 1.2: its core schema, without octal and hexadecimal numbers."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if len(text) <= MAX_NUMBER and _FLOAT.fullmatch(text) and math.isfinite(real := float(text)):
        return real
    return text


_CONFIGURATION: Final = ScalarRules(
    scalar=_core_scalar, text_keys=True, merges=False, max_depth=32, max_documents=1, max_aliased=20_000
)


def _syntax(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    return f"{where}not valid YAML: {sanitize(str(problem))}"


@dataclass(slots=True)
class _Open:
    """A container under construction; `height` is the depth of the deepest container in it."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    started: int  # value count when it was opened
    lines: dict[str, int] = field(default_factory=dict)  # of the keys, where they must be text
    key: str | None = None
    merging: bool = False
    height: int = 0
    merged: tuple[dict[str, Any], ...] = ()


class _Builder:
    """Builds one document after the other from events; `root` is the last complete one.

    Problems that do not prevent further parsing are collected until the end of their document.
    """

    def __init__(self, rules: ScalarRules) -> None:
        self.root: Any = None
        self.number = 0
        self._rules = rules
        self._meaning = rules.scalar
        self._text_keys = rules.text_keys
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int, int]] = {}
        self._values = 0
        self._aliased = 0
        self.problems: list[str] = []

    def take(self, event: Any) -> bool:
        """Process one event; return whether a document is complete."""
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
            self._begin(event)
        elif kind is yaml.DocumentEndEvent and self.problems:
            raise self._refusal()
        return kind is yaml.DocumentEndEvent

    def _begin(self, event: Any) -> None:
        self.root = None
        self.number += 1
        self._anchors.clear()
        if self.number > (most := self._rules.max_documents):
            second = "a second document starts; one is allowed"
            raise self._error(event, second if most == 1 else f"more than {most:,} documents")

    def _scalar(self, event: Any) -> None:
        text: str = event.value
        here = self._open[-1] if self._open else None
        if here is not None and type(here.value) is dict and here.key is None and not here.merging:
            if self._text_keys or text == "<<" or text in here.value:
                self._key(event, text, here)
            else:
                here.key = text
            return
        value = self._meaning(text) if event.implicit[0] else self._quoted(event)
        self._values += 1
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1, 0)
        self._put(event, value, 0)

    def _key(self, event: Any, text: str, here: _Open) -> None:
        if text == "<<" and event.implicit[0] and self._rules.merges:
            here.merging = True
            return
        if self._text_keys and not self._is_text(event):
            self._problem(event, f"keys must be text, not {sanitize(text) or 'empty'}")
        elif text in here.value:
            first = f" (first in line {here.lines[text]})" if text in here.lines else ""
            self._problem(event, f"duplicate key {quote(text)}{first}")
        elif self._text_keys:
            here.lines[text] = event.start_mark.line + 1
        here.key = text

    def _is_text(self, event: Any) -> bool:
        return isinstance(self._meaning(event.value) if event.implicit[0] else self._quoted(event), str)

    def _quoted(self, event: Any) -> Any:
        """Return the value of a scalar in quotes or with a tag; the tag must agree with the value."""
        if event.implicit[1] or event.tag in ("!", _TAG + "str"):
            return event.value
        value, name = self._meaning(event.value), event.tag.removeprefix(_TAG)
        if type(value) in _TYPES.get(name, ()):
            return float(value) if name == "float" else value
        self._problem(event, f"the tag {quote(str(event.tag))} is not allowed here")
        return None

    def _start(self, event: Any, value: dict[str, Any] | list[Any], kind: str) -> None:
        if event.tag not in _TAGS[kind]:
            self._problem(event, f"the tag {quote(str(event.tag))} is not allowed")
        if len(self._open) >= self._rules.max_depth:
            raise self._error(event, f"nested deeper than {self._rules.max_depth} levels")
        self._expect_value(event)
        self._values += 1
        self._open.append(_Open(value, event.anchor, self._values))

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
        if self._aliased > self._rules.max_aliased:
            raise self._error(event, f"aliases stand for more than {self._rules.max_aliased:,} values")
        if len(self._open) + height > self._rules.max_depth:
            raise self._error(event, f"nested deeper than {self._rules.max_depth} levels")
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
            here.merged += tuple(sources)
        else:
            assert isinstance(here.value, dict) and here.key is not None
            here.value[here.key] = value
            here.key = None

    def _problem(self, event: Any, problem: str) -> None:
        self.problems.append(f"line {event.start_mark.line + 1}: {problem}")

    def _error(self, event: Any, problem: str) -> YAMLTextError:
        """Return the error that ends the parsing, after the problems collected before."""
        self._problem(event, problem)
        return self._refusal()

    def _refusal(self) -> YAMLTextError:
        return YAMLTextError(tuple(self.problems), self.number)
