"""The sections of the policy as a tree: which fields a path may name, and raw documents cut to what they set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model inside an annotation such as `tuple[TopologySpec, ...] | None`, None when there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := section_of(one)) is not None), None)


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a section by the names that they have in text."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def fields_at(model: type[BaseModel], steps: Sequence[str | int]) -> tuple[str, ...]:
    """Return the field names of the section that the steps lead to; none when they lead out of the model."""
    current: type[BaseModel] | None = model
    for step in steps:
        if current is not None and isinstance(step, str):
            field = fields_of(current).get(step)
            current = section_of(field.annotation) if field is not None else None
    return () if current is None else tuple(fields_of(current))


def without_nulls(raw: Any, model: type[BaseModel] | None) -> Any:
    """Return the raw document without the known fields that are null; maps of the user's own keys stay as they are."""
    if model is None:
        return raw
    if isinstance(raw, list):
        return [without_nulls(item, model) for item in raw]
    if not isinstance(raw, dict):
        return raw
    fields = fields_of(model)
    return {
        key: without_nulls(value, section_of(fields[key].annotation) if key in fields else None)
        for key, value in raw.items()
        if value is not None or key not in fields
    }
