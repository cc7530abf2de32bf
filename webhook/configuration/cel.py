"""CEL building blocks: literals, boolean operators, and safe access to paths of objects without a schema.

Custom resources need not have a schema, so the type of every node is tested first: `has` and `.?` fail on a list,
`exists` on a text, and a condition that fails refuses everybody's objects under failurePolicy Fail.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from engine.kinds.paths import ITEMS, VALUES

_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
# Reserved words of CEL: fields of these names are accessed with brackets.
_RESERVED: Final = frozenset(
    (
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let"),
        *("loop", "null", "package", "namespace", "return", "true", "var", "void", "while"),
    )
)


def text(value: str) -> str:
    """Return a CEL string; JSON escapes are CEL escapes."""
    return f"'{value}'" if re.fullmatch(r"[-_.:/a-zA-Z0-9]*", value) else json.dumps(value, ensure_ascii=False)


def texts(values: Iterable[str]) -> str:
    """Return a CEL list of strings."""
    return f"[{', '.join(map(text, values))}]"


def filled(key: str, values: str) -> str:
    """Return the condition that the mapping `values` has this key, with a value that is not the empty text."""
    return f"{values}[?{text(key)}].orValue('') != ''"


def indented(expression: str, by: int) -> str:
    """Return an expression with every line indented by this number of spaces."""
    return "\n".join(" " * by + line for line in expression.split("\n"))


def all_of(*expressions: str) -> str:
    """Return the conjunction of expressions; the API server stops at the first that is false.

    It evaluates all conditions of an entry, even after one is false. So an expensive expression belongs in the same
    condition, behind one that is mostly false.
    """
    return _joined(" &&\n", expressions)


def any_of(*expressions: str) -> str:
    """Return the disjunction of expressions; the API server stops at the first that is true."""
    return _joined(" ||\n", expressions)


def negated(expression: str) -> str:
    """Return the negation of an expression."""
    return f"!({indented(expression, 2).lstrip()})"


def nodes(start: str, steps: tuple[str, ...], *, last: bool = True) -> tuple[str, bool]:
    """Return the nodes at a path as a CEL list, and True if it is a list of lists.

    A list of lists has one list for each node that the last star expands. With `last` False every star is flattened.
    Before its first star a path leads to at most one node. `start` is the variable that the path begins at; `s` is the
    object's spec, which is a mapping.
    """
    stars = sum(step in (ITEMS, VALUES) for step in steps)
    found, closing, nested, seen = f"[{start}]", "", False, 0
    if start == "s":
        found, steps = f"[?s.?{steps[1]}]", steps[2:]
    for step in steps:
        if step in (ITEMS, VALUES):
            seen += 1
            kind, items = ("list", "x") if step == ITEMS else ("map", "x.map(k, x[k])")
            if last and seen == stars:
                found += f".filter(x, type(x) == {kind}).map(x, {items}"
                closing, nested = ")", True
            else:
                found = f"({found}.filter(x, type(x) == {kind}).map(x, {items}) + [[]])[0]"
        else:
            found += f".map(x, type(x) == map && {_has_field('x', step)}, {_field('x', step)})"
    return found + closing, nested


def is_identifier(step: str) -> bool:
    """Return True for a step that CEL accepts after a dot."""
    return _NAME.fullmatch(step) is not None and step not in _RESERVED


def _joined(between: str, expressions: tuple[str, ...]) -> str:
    if len(expressions) == 1:
        return expressions[0]
    return between.join(f"({indented(one, 1).lstrip()})" for one in expressions)


def _has_field(of: str, step: str) -> str:
    return f"has({of}.{step})" if is_identifier(step) else f"{text(step)} in {of}"


def _field(of: str, step: str) -> str:
    return f"{of}.{step}" if is_identifier(step) else f"{of}[{text(step)}]"
