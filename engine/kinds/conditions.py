"""Conditions on an object, for overrides, suspension and other rules of an entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, model_validator

from engine.api.schema import LabelKey, Section
from engine.kinds.fields import ManyPath
from engine.kinds.paths import Path, PathNode, PathScope, each, find, mapping_at

MAX_PARTS: Final = 8
_MAX_TEXT: Final = 63


def _scalar(value: object) -> object:
    """Validate a scalar with one error: a union would report one for each of its members."""
    if isinstance(value, str):
        if len(value) > _MAX_TEXT:
            raise ValueError(f"must have at most {_MAX_TEXT} characters; got {len(value):,}")
    elif not isinstance(value, bool | int):
        raise ValueError("must be text, a whole number, true or false")
    return value


Value = Annotated[Annotated[str, Field(max_length=_MAX_TEXT)] | bool | int, BeforeValidator(_scalar)]


class ObjectCondition(Section):
    """A statement about the object; when a path leads to several nodes, one match is enough.

    With `path`: `equals`, `in`, `exists` or `where` (a condition on each node as the element); `default` stands for a
    missing value. `label` and `annotation` ask whether the object's metadata has that key.
    """

    path: ManyPath | None = Field(default=None, description="Fields of the object; one that fits is enough.")
    equals: Value | None = Field(default=None, description="With path: the value.")
    among: tuple[Value, ...] | None = Field(
        default=None, alias="in", min_length=1, max_length=16, description="With path: one of these values."
    )
    exists: bool | None = Field(default=None, description="With path: whether there is a value.")
    where: ObjectCondition | None = Field(
        default=None, description="With path: a condition on each node; paths that begin with `.` start there."
    )
    default: Value | None = Field(default=None, description="With path: the value where it is missing.")
    label: LabelKey | None = Field(default=None, description="The object has this label.")
    annotation: LabelKey | None = Field(default=None, description="The object has this annotation.")
    every: tuple[ObjectCondition, ...] | None = Field(
        default=None, alias="all", min_length=1, max_length=MAX_PARTS, description="All of these hold."
    )
    some: tuple[ObjectCondition, ...] | None = Field(
        default=None, alias="any", min_length=1, max_length=MAX_PARTS, description="One of these holds."
    )
    negated: ObjectCondition | None = Field(default=None, alias="not", description="This does not hold.")

    @model_validator(mode="after")
    def _one_statement(self) -> Self:
        subjects = (self.path, self.label, self.annotation, self.every, self.some, self.negated)
        if sum(one is not None for one in subjects) != 1:
            raise ValueError("needs exactly one of path, label, annotation, all, any and not")
        tests = sum(one is not None for one in (self.equals, self.among, self.exists, self.where))
        if self.path is not None and tests != 1:
            raise ValueError("needs exactly one of equals, in, exists and where beside path")
        if self.path is None and (tests or self.default is not None):
            raise ValueError("equals, in, exists, where and default are allowed only with path")
        return self


def holds(condition: ObjectCondition, scope: PathScope) -> bool:
    """Return whether the object fulfils the condition. Raises NodeError when a node has the wrong form."""
    if condition.every is not None:
        return all(holds(one, scope) for one in condition.every)
    if condition.some is not None:
        return any(holds(one, scope) for one in condition.some)
    if condition.negated is not None:
        return not holds(condition.negated, scope)
    if condition.label is not None:
        return condition.label in metadata(scope.root, "labels")
    if condition.annotation is not None:
        return condition.annotation in metadata(scope.root, "annotations")
    assert condition.path is not None  # the model has exactly one subject
    nodes = list(each(condition.path, scope))
    if condition.exists is not None:
        return bool(nodes) == condition.exists
    if condition.where is not None:
        return any(holds(condition.where, PathScope(scope.root, node)) for node in nodes)
    wanted = (condition.equals,) if condition.among is None else condition.among
    if not nodes and condition.default is not None:
        return _among(condition.default, wanted)
    return any(_among(node.value, wanted) for node in nodes)


def metadata(root: PathNode, part: str) -> Mapping[str, Any]:
    """Return the labels or annotations of an object, empty where it has none. Raises NodeError."""
    node = find(Path(f".metadata.{part}", ("metadata", part), whole=True), PathScope(root, root))
    return {} if node is None else mapping_at(node)


def _among(value: object, wanted: tuple[object, ...]) -> bool:
    """Return whether a value is among others; unlike in Python, true and 1 differ."""
    return any(type(value) is type(one) and value == one for one in wanted)
