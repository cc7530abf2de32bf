"""YAML for configuration: one document, YAML 1.2 scalars, nothing silently lost, bounded work.

PyYAML's own loader keeps the last of two equal keys, reads `off` as a boolean and expands aliases without a limit.
Here `off` is text, a key that stands twice is an error, and size, depth and expansion have bounds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import yaml

from engine.api.text import quote, sanitize

MAX_BYTES: Final = 256 * 1024  # a quarter of what a ConfigMap can hold at all
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 20_000  # after the expansion of aliases
_MAX_DIGITS: Final = 18

_TAG: Final = "tag:yaml.org,2002:"

Value = None | bool | int | float | str | list["Value"] | dict[str, "Value"]


class YAMLTextError(ValueError):
    """The text cannot be used; `problems` holds one line for each reason, with its line number where there is one."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class _Loader(yaml.CSafeLoader):
    """The C parser with the scalars of the YAML 1.2 core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own protocol


for _name, _regexp, _first in (
    ("null", r"(?:~|null|Null|NULL|)", [*"~nN", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]{0,17})", list("-+0123456789")),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"^{_regexp}$", re.ASCII), _first)


def load(text: str) -> Value:
    """Return the one document of the text as plain values (None when it holds nothing).

    Raises YAMLTextError: too large, too deep, not YAML, several documents, tags, keys that are not text or stand twice.
    """
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise YAMLTextError(("holds characters that are not valid Unicode",)) from None
    if size > MAX_BYTES:
        raise YAMLTextError((f"has {size:,} bytes; at most {MAX_BYTES:,} are allowed",))
    try:
        _check_depth(text)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise YAMLTextError((_syntax(error),)) from None
    if node is None:
        return None
    walk = _Walk()
    value = walk.value(node, 0)
    if walk.problems:
        raise YAMLTextError(tuple(dict.fromkeys(walk.problems)))
    return value


def _check_depth(text: str) -> None:
    """Refuse deep nesting before the composer recurses into it."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise YAMLTextError((f"line {_line(event)}: nested deeper than {MAX_DEPTH} levels",))
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise YAMLTextError((f"line {_line(event)}: a second document starts; one is allowed",))


def _syntax(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    return f"{where}not valid YAML: {sanitize(str(problem))}"


class _Walk:
    """Turns nodes into values; every visit counts, so that aliases cannot multiply the work."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._visits = 0

    def value(self, node: yaml.Node, depth: int) -> Value:
        self._visits += 1
        if self._visits > MAX_VALUES:
            raise YAMLTextError((f"holds more than {MAX_VALUES:,} values once its aliases are expanded",))
        if depth > MAX_DEPTH:
            raise YAMLTextError((f"line {_line(node)}: nested deeper than {MAX_DEPTH} levels",))
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return dict(self._items(node, depth))
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.value(item, depth + 1) for item in node.value]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        self.problems.append(f"line {_line(node)}: the tag {quote(str(node.tag))} is not allowed")
        return None

    def _items(self, node: yaml.MappingNode, depth: int) -> Iterator[tuple[str, Value]]:
        seen: dict[str, int] = {}
        for key, item in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != _TAG + "str":
                shown = f", not {sanitize(key.value) or 'empty'}" if isinstance(key, yaml.ScalarNode) else ""
                self.problems.append(f"line {_line(key)}: keys must be text{shown}")
            elif key.value in seen:
                first = seen[key.value]
                self.problems.append(f"line {_line(key)}: {quote(key.value)} stands twice (first in line {first})")
            else:
                seen[key.value] = _line(key)
                yield key.value, self.value(item, depth + 1)

    def _scalar(self, node: yaml.ScalarNode) -> Value:
        text: str = node.value
        match node.tag.removeprefix(_TAG):
            case "str":
                return text
            case "null":
                return None
            case "bool" if text.lower() in ("true", "false"):
                return text.lower() == "true"
            case "int" if re.fullmatch(rf"[-+]?[0-9]{{1,{_MAX_DIGITS}}}", text, re.ASCII):
                return int(text)
            case "float" if re.fullmatch(r"[-+.0-9eE]{1,40}", text, re.ASCII):
                return _float(text)
        self.problems.append(f"line {_line(node)}: the tag {quote(node.tag)} is not allowed here")
        return None


def _float(text: str) -> Value:
    try:
        return float(text)
    except ValueError:
        return text


def _line(place: yaml.Node | yaml.Event) -> int:
    mark = place.start_mark
    return mark.line + 1 if mark is not None else 1
