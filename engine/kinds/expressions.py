"""Expressions over whole numbers: counts out of an object, ranks out of a pod's labels.

A tree of a few operators, bounded in depth and width, never evaluated as code. `bind` computes everything that the
object says; what is left of an expression over pod labels is a small `Term` that `value` computes for each pod.
Results are capped at 2^31-1 either way (a capped rank is never one of the gang's). What is missing is `Missing` with a
reason: `sum` and `mul` pass it on, `min` and `max` go by what is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from engine.kinds.conditions import MAX_PARTS, Condition, holds, metadata
from engine.kinds.fields import OnePath, Part, VariableName
from engine.kinds.paths import MAX_NUMBER, NodeError, Scope, find, shown, whole_number
from engine.policy_fields import LabelKey

MAX_DEPTH: Final = 8
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)  # as strconv.Itoa writes it, and nothing else

Operator = Literal["min", "max", "sum", "mul"]
Number = Annotated[int, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]
Count = Annotated[int, Field(ge=0, le=MAX_NUMBER)]


class Expression(Part):
    """A whole number: exactly one operator.

    `path` a count of the object, `annotation` one of the object's annotations (`default` where they are missing);
    `label` an index label of the pod, which has to be less than `below`; `const`; `var` a variable of the pod set;
    `min`, `max`, `sum`, `mul` of several; `when` a condition holds `then`, `else`.
    """

    path: OnePath | None = None
    annotation: LabelKey | None = None
    default: Count | None = None
    label: LabelKey | None = None
    below: Expression | None = None
    const: Number | None = None
    var: VariableName | None = None
    min: tuple[Expression, ...] | None = Field(default=None, min_length=1, max_length=MAX_PARTS)
    max: tuple[Expression, ...] | None = Field(default=None, min_length=1, max_length=MAX_PARTS)
    sum: tuple[Expression, ...] | None = Field(default=None, min_length=1, max_length=MAX_PARTS)
    mul: tuple[Expression, ...] | None = Field(default=None, min_length=1, max_length=MAX_PARTS)
    when: Condition | None = None
    then: Expression | None = None
    otherwise: Expression | None = Field(default=None, alias="else")

    @model_validator(mode="after")
    def _one_operator(self) -> Self:
        leaves = (self.path, self.annotation, self.label, self.const, self.var, self.when)
        if sum(one is not None for one in (*leaves, self.min, self.max, self.sum, self.mul)) != 1:
            raise ValueError("needs exactly one of path, annotation, label, const, var, min, max, sum, mul and when")
        if self.default is not None and self.path is None and self.annotation is None:
            raise ValueError("default stands beside path or annotation only")
        if self.below is not None and self.label is None:
            raise ValueError("below stands beside label only")
        if (self.when is None) != (self.then is None) or (self.when is None) != (self.otherwise is None):
            raise ValueError("when, then and else stand together")
        return self

    def parts(self) -> Iterator[tuple[tuple[str | int, ...], Expression]]:
        """The expressions right inside this one, with the steps that lead to them."""
        for name, several in (("min", self.min), ("max", self.max), ("sum", self.sum), ("mul", self.mul)):
            yield from (((name, number), one) for number, one in enumerate(several or ()))
        for name, one in (("below", self.below), ("then", self.then), ("else", self.otherwise)):
            if one is not None:
                yield (name,), one


@dataclass(frozen=True, slots=True)
class Missing:
    """No number, and why; `wrong` when something stands there that is none."""

    reason: str
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class LabelTerm:
    """The index in a label of the pod; `below` bounds it."""

    key: str
    below: int | None


@dataclass(frozen=True, slots=True)
class Combined:
    """Several terms under one operator."""

    operator: Operator
    parts: tuple[Term, ...]


Term = int | Missing | LabelTerm | Combined
Variables = Mapping[str, int | Missing]
_OPERATIONS: Final[Mapping[Operator, Callable[[Sequence[int]], int]]] = {
    "min": min,
    "max": max,
    "sum": sum,
    "mul": prod,
}


def bind(expression: Expression, scope: Scope, variables: Variables) -> Term:
    """Return what is left of an expression once the object is known: a number, `Missing`, or a term over labels.

    Raises NodeError where a node of the object is no count.
    """
    if expression.path is not None:
        node = find(expression.path, scope)
        if node is not None:
            return whole_number(node)
        return Missing(f"{expression.path} is missing") if expression.default is None else expression.default
    match expression:
        case Expression(const=int(constant)):
            return constant
        case Expression(var=str(name)):
            return variables.get(name, Missing(f"the variable {name} is not set"))
        case Expression(label=str(key)):
            return _label(key, expression.below, scope, variables)
        case Expression(annotation=str(key)):
            return _annotation(key, scope, expression.default)
        case Expression(when=Condition() as condition, then=Expression() as then, otherwise=Expression() as otherwise):
            return bind(then if holds(condition, scope) else otherwise, scope, variables)
    operator, several = _several(expression)
    return combine(operator, tuple(bind(one, scope, variables) for one in several))


def number(expression: Expression, scope: Scope, variables: Variables) -> int | Missing:
    """Return the number that the object alone gives. Raises NodeError where a node of the object is no count."""
    found = bind(expression, scope, variables)
    return found if isinstance(found, int | Missing) else Missing("it depends on the labels of a pod")


def value(term: Term, labels: Mapping[str, str]) -> int | Missing:
    """Return the number that a term gives for a pod with these labels."""
    match term:
        case LabelTerm(key, below):
            index = index_of(labels.get(key))
            if index is None:
                return Missing(f"the label {key} is {'missing' if key not in labels else 'no index'}", key in labels)
            if below is not None and index >= below:
                return Missing(f"the label {key} is {index}, and not below {below}", wrong=True)
            return index
        case Combined(operator, parts):
            found = combine(operator, tuple(value(part, labels) for part in parts))
            return found if isinstance(found, int | Missing) else Missing("it is not a number")
    return term


def index_of(text: object) -> int | None:
    """Return the index that a label says, None unless it is one as controllers write it.

    Decimal digits without sign, spaces or zeros in front, up to 2^31-1.
    """
    if not isinstance(text, str) or _INDEX.fullmatch(text) is None or int(text) > MAX_NUMBER:
        return None
    return int(text)


def combine(operator: Operator, parts: tuple[Term, ...]) -> Term:
    """Return several terms under one operator, as a number where all of them are known."""
    if any(isinstance(part, LabelTerm | Combined) for part in parts):
        return Combined(operator, parts)
    missing = [part for part in parts if isinstance(part, Missing)]
    known = [part for part in parts if isinstance(part, int)]
    wrong = next((part for part in missing if part.wrong), None)
    if wrong is not None:
        return wrong
    if missing and (operator in ("sum", "mul") or not known):
        return missing[0]
    return _capped(_OPERATIONS[operator](known))


def _several(expression: Expression) -> tuple[Operator, tuple[Expression, ...]]:
    if expression.min is not None:
        return "min", expression.min
    if expression.max is not None:
        return "max", expression.max
    if expression.sum is not None:
        return "sum", expression.sum
    return "mul", expression.mul or ()


def _label(key: str, below: Expression | None, scope: Scope, variables: Variables) -> Term:
    if below is None:
        return LabelTerm(key, None)
    bound = number(below, scope, variables)
    return LabelTerm(key, bound) if isinstance(bound, int) else bound


def _annotation(key: str, scope: Scope, default: int | None) -> int | Missing:
    text = metadata(scope.root, "annotations").get(key)
    if text is None:
        return Missing(f"the annotation {key} is missing") if default is None else default
    index = index_of(text)
    if index is None:
        wanted = f"must be a whole number from 0 to {MAX_NUMBER:,}, as text"
        raise NodeError(("metadata", "annotations", key), f"{wanted}; got {shown(text)}")
    return index


def _capped(found: int) -> int:
    return max(-MAX_NUMBER, min(found, MAX_NUMBER))
