"""Paths into an object: `.spec.replicatedJobs[*].template`, a few steps, no filters, no functions.

A path that begins with `.` starts at the current element (the whole object where nothing is iterated), one that begins
with `$` always at the whole object. Steps are `.name`, `["any.key"]` and, where entries are iterated, `[*]` (the items
of a list in order) and `{*}` (the values of a mapping by sorted key). A field that is null counts as left out, as in
Go. A node of the wrong type is a `NodeError` with its path; a missing node is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.api.field import FieldError, path_of
from engine.api.rank import MAX_NUMBER
from engine.api.text import quote, shown

MAX_STEPS: Final = 16  # the deepest template of a known kind is ten steps down
MAX_TEXT: Final = 256
MAX_STARS: Final = 2
ITEMS: Final = "[*]"
VALUES: Final = "{*}"
MAX_ENTRIES: Final = 256  # that a condition looks through, all lists of one path together
_STEP: Final = re.compile(r'\.([A-Za-z_][-_A-Za-z0-9]*)|\["([^"\[\]{}\\]{1,253})"\]|(\[\*\]|\{\*\})', re.ASCII)

Steps = tuple[str | int, ...]


class NodeError(Exception):
    """A node of an object cannot be read: its steps, the message, and Kubernetes' kind of error.

    `absent`: the node that the entry of the kind requires is missing; object or entry is wrong. `entry` names that
    entry where it is not the one of the object itself.
    """

    def __init__(
        self, steps: Steps, message: str, *, kind: str = "Invalid value", absent: bool = False, entry: str = ""
    ) -> None:
        super().__init__(f"{path_of(steps)}: {message}")
        self.steps = steps
        self.message = message
        self.kind = kind
        self.absent = absent
        self.entry = entry

    def inside(self, steps: Steps, *, entry: str) -> NodeError:
        """Return the fault with the steps to the inner object, and its entry if that is of a policy."""
        absent = self.absent and bool(entry)
        return NodeError((*steps, *self.steps), self.message, kind=self.kind, absent=absent, entry=entry)

    def field_error(self, *, entry: str = "") -> FieldError:
        """Return the fault as an error of the user's object; `entry`: a policy's entry that may be wrong instead."""
        suspect = (self.entry or entry) if self.absent else ""
        asks = f"; {suspect} of the policy names this field, and may be wrong: ask its admin" if suspect else ""
        return FieldError(
            field=path_of(self.steps) or "metadata",
            kind=self.kind,
            value=None,
            reason="MissingValue" if self.kind == "Required value" else "InvalidValue",
            message=f"{self.message}{asks}",
            entry=suspect,
        )


@dataclass(frozen=True, slots=True)
class Path:
    """A parsed path: keys of mappings, `ITEMS` and `VALUES`; `whole` when it starts at the whole object."""

    text: str
    steps: tuple[str, ...]
    whole: bool

    @property
    def stars(self) -> int:
        """The number of times the path iterates."""
        return self.steps.count(ITEMS) + self.steps.count(VALUES)

    @property
    def start(self) -> tuple[str, ...]:
        """The steps before the first iteration."""
        return next((self.steps[:at] for at, step in enumerate(self.steps) if step in (ITEMS, VALUES)), self.steps)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class PathNode:
    """A value of an object and the steps that lead to it."""

    value: Any
    steps: Steps = ()

    @property
    def field(self) -> str:
        """The JSON path of the node, as in field errors."""
        return path_of(self.steps)


@dataclass(frozen=True, slots=True)
class PathScope:
    """The starting points of paths: the whole object, and the current element."""

    root: PathNode
    here: PathNode


def parse_path(text: str) -> Path:
    """Parse a path. Raises ValueError with the allowed form."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"a path has at most {MAX_TEXT} characters")
    whole = text.startswith("$")
    rest = text[1:] if whole else text
    if rest in ("", "."):
        if not text:
            raise ValueError("a path begins with . or $")
        return Path(text, (), whole)
    steps: list[str] = []
    at = 0
    while at < len(rest):
        step = _STEP.match(rest, at)
        if step is None:
            raise ValueError(
                f"{quote(text)} is not a path such as .spec.template; wrong from {quote(rest[at : at + 20])}"
            )
        steps.append(step[1] or step[2] or step[3])
        at = step.end()
    if len(steps) > MAX_STEPS:
        raise ValueError(f"a path has at most {MAX_STEPS} steps; {quote(text)} has {len(steps)}")
    path = Path(text, tuple(steps), whole)
    if path.stars > MAX_STARS:
        raise ValueError(f"a path iterates at most {MAX_STARS} times; {quote(text)} does {path.stars} times")
    return path


def find(path: Path, scope: PathScope) -> PathNode | None:
    """Return the node at a path that does not iterate, None when it is missing. Raises NodeError."""
    node = scope.root if path.whole else scope.here
    for step in path.steps:
        found = _child(node, step)
        if found is None:
            return None
        node = found
    return node if node.value is not None else None


def each(path: Path, scope: PathScope, *, limit: int = MAX_ENTRIES) -> Iterator[PathNode]:
    """Yield the nodes at a path; nulls in a mapping are skipped.

    Raises NodeError: a wrong type, or more than `limit` entries, in one list or mapping or in several together.
    """
    nodes = [scope.root if path.whole else scope.here]
    for step in path.steps:
        if step in (ITEMS, VALUES):
            nodes = _entries(nodes, step, limit)
        else:
            nodes = [found for node in nodes if (found := _child(node, step)) is not None]
    yield from (node for node in nodes if node.value is not None)


def whole_number(node: PathNode) -> int:
    """Return the value of a count. Raises NodeError unless it is a whole number from 0 to 2^31-1."""
    value = node.value
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_NUMBER:
        raise NodeError(node.steps, f"must be a whole number from 0 to {MAX_NUMBER:,}; got {shown(value)}")
    return value


def text_at(node: PathNode) -> str:
    """Return the value of a text field. Raises NodeError for another type."""
    if not isinstance(node.value, str):
        raise NodeError(node.steps, f"must be text; got {shown(node.value)}")
    return node.value


def mapping_at(node: PathNode) -> Mapping[str, Any]:
    """Return the value of a mapping. Raises NodeError for another type."""
    if not isinstance(node.value, Mapping):
        raise NodeError(node.steps, f"must be a mapping; got {shown(node.value)}")
    return node.value


def _entries(nodes: Iterable[PathNode], step: str, limit: int) -> list[PathNode]:
    found: list[PathNode] = []
    for node in nodes:
        found += (_items if step == ITEMS else _values)(node, limit)
        if len(found) > limit:
            raise NodeError(found[limit].steps, f"is one entry too many; at most {limit:,} are read")
    return found


def _child(node: PathNode, key: str) -> PathNode | None:
    """Return the field of a mapping; None where the mapping is null or has no such field."""
    value = node.value
    if value is None:
        return None
    # Parsers return dicts; testing for dict first avoids the slow test for Mapping.
    inner = value.get(key) if type(value) is dict else mapping_at(node).get(key)
    return None if inner is None else PathNode(inner, (*node.steps, key))


def _items(node: PathNode, limit: int) -> list[PathNode]:
    value = node.value
    if not isinstance(value, list | tuple):
        raise NodeError(node.steps, f"must be a list; got {shown(value)}")
    _bounded(node, limit)
    for number, item in enumerate(value):
        if item is None:
            raise NodeError((*node.steps, number), "must not be null")
    return [PathNode(item, (*node.steps, number)) for number, item in enumerate(value)]


def _values(node: PathNode, limit: int) -> list[PathNode]:
    value = mapping_at(node)
    _bounded(node, limit)
    for key in value:
        if not isinstance(key, str):
            raise NodeError(node.steps, f"keys must be text; got {shown(key)}")
    return [PathNode(value[key], (*node.steps, key)) for key in sorted(value) if value[key] is not None]


def _bounded(node: PathNode, limit: int) -> None:
    if len(node.value) > limit:
        raise NodeError(node.steps, f"has {len(node.value):,} entries; at most {limit:,} are read")
