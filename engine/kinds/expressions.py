"""Expressions over whole numbers: counts from an object, ranks from a pod's labels.

A tree of a few operators, bounded in depth and width, never evaluated as code. `bind` computes everything that depends
on the object; the rest of an expression over pod labels is a small `Term` that `value` computes for each pod. Results
are capped at 2^31-1 either way (a capped rank is never one of the gang's). A missing value is `Missing` with a reason:
`sum` and `mul` pass it on, `min` and `max` ignore it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from engine.api.rank import MAX_NUMBER, LabelTerm, Missing, Operator, Term, combine, index_of
from engine.api.schema import LabelKey, Section
from engine.api.text import shown
from engine.kinds.conditions import MAX_PARTS, ObjectCondition, holds, metadata
from engine.kinds.fields import OnePath, VariableName
from engine.kinds.paths import NodeError, PathScope, find, whole_number

MAX_DEPTH: Final = 8

Number = Annotated[int, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]
Count = Annotated[int, Field(ge=0, le=MAX_NUMBER)]


class IntExpression(Section):
    """A whole number: exactly one operator.

    `path` a count of the object, `annotation` one of the object's annotations (`default` where they are missing);
    `label` an index label of the pod, which has to be less than `below`; `const`; `var` a variable of the pod set;
    `min`, `max`, `sum`, `mul` of several; `when` a condition holds `then`, `else`.
    """

    path: OnePath | None = Field(default=None, description="A count of the object.")
    annotation: LabelKey | None = Field(default=None, description="A count in an annotation of the object.")
    default: Count | None = Field(default=None, description="With path or annotation: what counts where it is missing.")
    label: LabelKey | None = Field(default=None, description="An index in a label of the pod.")
    below: IntExpression | None = Field(default=None, description="With label: the index has to be less.")
    const: Number | None = Field(default=None, description="A constant.")
    var: VariableName | None = Field(default=None, description="A variable of the pod set.")
    min: tuple[IntExpression, ...] | None = Field(
        default=None, min_length=1, max_length=MAX_PARTS, description="The least of several."
    )
    max: tuple[IntExpression, ...] | None = Field(
        default=None, min_length=1, max_length=MAX_PARTS, description="The greatest of several."
    )
    sum: tuple[IntExpression, ...] | None = Field(
        default=None, min_length=1, max_length=MAX_PARTS, description="The sum of several."
    )
    mul: tuple[IntExpression, ...] | None = Field(
        default=None, min_length=1, max_length=MAX_PARTS, description="The product of several."
    )
    when: ObjectCondition | None = Field(
        default=None, description="A condition that chooses between `then` and `else`."
    )
    then: IntExpression | None = Field(default=None, description="With when: the number where the condition holds.")
    otherwise: IntExpression | None = Field(
        default=None, alias="else", description="With when: the number where it does not."
    )

    @model_validator(mode="after")
    def _one_operator(self) -> Self:
        leaves = (self.path, self.annotation, self.label, self.const, self.var, self.when)
        if sum(one is not None for one in (*leaves, self.min, self.max, self.sum, self.mul)) != 1:
            raise ValueError("needs exactly one of path, annotation, label, const, var, min, max, sum, mul and when")
        if self.default is not None and self.path is None and self.annotation is None:
            raise ValueError("default is allowed only with path or annotation")
        if self.below is not None and self.label is None:
            raise ValueError("below is allowed only with label")
        if (self.when is None) != (self.then is None) or (self.when is None) != (self.otherwise is None):
            raise ValueError("when, then and else must be given together")
        return self

    def parts(self) -> Iterator[tuple[tuple[str | int, ...], IntExpression]]:
        """Yield the expressions directly inside this one, with the steps to them."""
        for name, several in (("min", self.min), ("max", self.max), ("sum", self.sum), ("mul", self.mul)):
            yield from (((name, number), one) for number, one in enumerate(several or ()))
        for name, one in (("below", self.below), ("then", self.then), ("else", self.otherwise)):
            if one is not None:
                yield (name,), one


Variables = Mapping[str, int | Missing]


def bind(expression: IntExpression, scope: PathScope, variables: Variables) -> Term:
    """Return an expression with the object's values filled in: a number, `Missing`, or a term over pod labels.

    Raises NodeError where a node of the object is not a count.
    """
    if expression.path is not None:
        node = find(expression.path, scope)
        if node is not None:
            return whole_number(node)
        return Missing(f"{expression.path} is missing") if expression.default is None else expression.default
    match expression:
        case IntExpression(const=int(constant)):
            return constant
        case IntExpression(var=str(name)):
            return variables.get(name, Missing(f"the variable {name} is not set"))
        case IntExpression(label=str(key)):
            return _label(key, expression.below, scope, variables)
        case IntExpression(annotation=str(key)):
            return _annotation(key, scope, expression.default)
        case IntExpression(
            when=ObjectCondition() as condition, then=IntExpression() as then, otherwise=IntExpression() as otherwise
        ):
            return bind(then if holds(condition, scope) else otherwise, scope, variables)
    operator, several = _several(expression)
    return combine(operator, tuple(bind(one, scope, variables) for one in several))


def number(expression: IntExpression, scope: PathScope, variables: Variables) -> int | Missing:
    """Return the value of an expression over the object. Raises NodeError where a node is not a count."""
    found = bind(expression, scope, variables)
    return found if isinstance(found, int | Missing) else Missing("it depends on the labels of a pod")


def _several(expression: IntExpression) -> tuple[Operator, tuple[IntExpression, ...]]:
    if expression.min is not None:
        return "min", expression.min
    if expression.max is not None:
        return "max", expression.max
    if expression.sum is not None:
        return "sum", expression.sum
    return "mul", expression.mul or ()


def _label(key: str, below: IntExpression | None, scope: PathScope, variables: Variables) -> Term:
    if below is None:
        return LabelTerm(key, None)
    bound = number(below, scope, variables)
    return LabelTerm(key, bound) if isinstance(bound, int) else bound


def _annotation(key: str, scope: PathScope, default: int | None) -> int | Missing:
    text = metadata(scope.root, "annotations").get(key)
    if text is None:
        return Missing(f"the annotation {key} is missing") if default is None else default
    index = index_of(text)
    if index is None:
        wanted = f"must be a whole number from 0 to {MAX_NUMBER:,}, as text"
        raise NodeError(("metadata", "annotations", key), f"{wanted}; got {shown(text)}")
    return index
