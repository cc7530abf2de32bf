"""Pydantic field types, the base class of a configuration section, and validation errors as text for users."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from engine.api.duration import PATTERN, DurationError, format_duration, parse_duration
from engine.api.field import (
    MAX_NAME,
    FieldError,
    is_dns_label,
    is_dns_name,
    is_label_key,
    is_label_value,
    natural_order,
    path_of,
)
from engine.api.reasons import Code
from engine.api.text import did_you_mean, join_comma, quote, shown


class Section(BaseModel):
    """Base class of a section of a configuration: frozen, no unknown fields, camelCase on the wire."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        serialize_by_alias=True,
    )


class AnswerPart(BaseModel):
    """Base class of an answer in JSON and of its parts: frozen, no unknown fields, camelCase on the wire."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


def differs(known: BaseModel, fresh: BaseModel) -> bool:
    """Return True if an answer differs from an earlier one in more than the time of the reading (`taken_at`)."""
    return known.model_copy(update={"taken_at": None}) != fresh.model_copy(update={"taken_at": None})


def section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model inside an annotation such as `tuple[TopologySpec, ...] | None`, None when there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := section_of(one)) is not None), None)


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a section by their names in text."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def fields_at(model: type[BaseModel], steps: Sequence[str | int]) -> tuple[str, ...]:
    """Return the field names of the section at the steps; none when the steps leave the model."""
    current: type[BaseModel] | None = model
    for step in steps:
        if current is not None and isinstance(step, str):
            field = fields_of(current).get(step)
            current = section_of(field.annotation) if field is not None else None
    return () if current is None else tuple(fields_of(current))


def without_nulls(raw: Any, model: type[BaseModel] | None) -> Any:
    """Return the raw document without known fields that are null; maps with the user's own keys stay unchanged."""
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


INVALID: Final = "PolicyInvalid"
DOCUMENT: Final = "policy.yaml"  # the path of errors in the document as a whole
MAX_ERRORS: Final = 100


def wrong(path: str, message: str, *, kind: str = "Invalid value", reason: Code = INVALID) -> FieldError:
    """Return an error of the policy; its message includes the given value."""
    return FieldError(field=path, kind=kind, value=None, reason=reason, message=message)


def in_order(errors: Iterable[FieldError]) -> tuple[FieldError, ...]:
    """Return the errors once each, ordered by path (numbers as numbers).

    At most a hundred; the last one then gives the number of further errors.
    """
    ordered = sorted(dict.fromkeys(errors), key=lambda error: (natural_order(error.field), error.message))
    if len(ordered) <= MAX_ERRORS:
        return tuple(ordered)
    return (*ordered[: MAX_ERRORS - 1], wrong(DOCUMENT, f"{len(ordered) - MAX_ERRORS + 1} more errors"))


def without_known(known: Sequence[FieldError], more: Iterable[FieldError]) -> list[FieldError]:
    """Return the errors of `more` at fields without an error in `known`."""
    faulty = [error.field for error in known]
    return [
        error
        for error in more
        if not any(path == error.field or path.startswith((error.field + ".", error.field + "[")) for path in faulty)
    ]


def structural_errors(error: ValidationError, model: type[BaseModel]) -> list[FieldError]:
    """Return pydantic's errors about a document of the model as field errors with our messages."""
    details = error.errors(include_url=False)
    # Pydantic reports a list with wrong entries as too short as well: then only the entries are reported.
    return [_field_error(detail, model) for detail in details if detail["type"] != "too_short" or not detail["input"]]


def _field_error(detail: ErrorDetails, model: type[BaseModel]) -> FieldError:
    steps = [step for step in detail["loc"] if step != "[key]"]
    path, seen, context = path_of(steps), detail["input"], detail.get("ctx", {})
    match detail["type"]:
        case "missing":
            return wrong(path, "is required", kind="Required value")
        case "extra_forbidden":
            fields = fields_at(model, steps[:-1])
            return wrong(path, f"unknown field{did_you_mean(str(steps[-1]), fields)}", kind="Forbidden")
        case "literal_error":
            allowed = re.findall(r"'([^']*)'", context["expected"])
            meant = did_you_mean(seen, allowed) if isinstance(seen, str) else ""
            choice = f"must be one of {join_comma(allowed)}" if len(allowed) > 1 else f"must be {allowed[0]}"
            return wrong(path, f"{choice}; got {shown(seen)}{meant}", kind="Unsupported value")
        case "value_error":
            return wrong(path, str(context["error"]))
        case "greater_than_equal":
            return wrong(path, f"must be at least {context['ge']:,}; got {shown(seen)}")
        case "less_than_equal":
            return wrong(path, f"must be at most {context['le']:,}; got {shown(seen)}")
        case "too_short":
            return wrong(path, f"must have at least {context['min_length']} entry; got none")
        case "too_long":
            return wrong(path, f"must have at most {context['max_length']:,} entries")
    return wrong(path, f"{_wanted(detail['type'])}; got {shown(seen)}")


def _wanted(error_type: str) -> str:
    for start, wanted in (
        ("bool", "must be true or false"),
        ("int", "must be a whole number"),
        ("float", "must be a number"),
        ("finite", "must be a number"),
        ("string", "must be text"),
        ("tuple", "must be a list"),
        ("list", "must be a list"),
        ("dict", "must be a mapping"),
        ("mapping", "must be a mapping"),
        ("model", "must be a mapping of fields to values"),
    ):
        if error_type.startswith(start):
            return wanted
    return "is not valid here"


_Text = TypeVar("_Text", bound=str)
MAX_LIST: Final = 256
LABEL_REGEX: Final = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
NAME_REGEX: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


def rule(holds: Callable[[str], bool], wanted: str) -> AfterValidator:
    """Return a validator of text; its error starts with `wanted`."""

    def check(text: str) -> str:
        if not holds(text):
            raise ValueError(f"{wanted}; got {quote(text)}")
        return text

    return AfterValidator(check)


def _label_map(pairs: Mapping[str, str]) -> Mapping[str, str]:
    for key, value in pairs.items():
        if not is_label_key(key):
            raise ValueError(f"keys must be label keys such as example.com/pool; got {quote(key)}")
        if not is_label_value(value):
            raise ValueError(f"values must be label values (letters, digits, dashes, dots); got {quote(value)}")
    return pairs


def distinct(items: tuple[_Text, ...]) -> tuple[_Text, ...]:
    """Return the items. Raises ValueError for a duplicate."""
    for index, item in enumerate(items):
        if item in items[:index]:
            raise ValueError(f"{quote(item)} is a duplicate")
    return items


@dataclass(frozen=True, slots=True)
class Duration:
    """The type of a duration field: Go-style text outside, seconds inside, both bounds included."""

    shortest: str
    longest: str

    def read(self, value: object) -> float:
        """Return the seconds of the text. Raises ValueError with the allowed range."""
        low, high = parse_duration(self.shortest), parse_duration(self.longest)
        if isinstance(value, str):
            try:
                seconds = parse_duration(value)
            except DurationError as error:
                raise ValueError(f"{error}; got {quote(value)}") from None
            if not low <= seconds <= high:
                raise ValueError(f"must be between {self.shortest} and {self.longest}; got {quote(value)}")
            return seconds
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            raise ValueError(f"must be a duration with its unit; write {value}s for {value} seconds")
        raise ValueError("must be a duration such as 30s, 10m or 1h30m")

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read,
            serialization=core_schema.plain_serializer_function_ser_schema(
                format_duration, return_schema=core_schema.str_schema()
            ),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": PATTERN, "$comment": f"{self.shortest} to {self.longest}"}


LabelKey = Annotated[str, rule(is_label_key, "must be a label key such as example.com/rack")]
DnsLabel = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": LABEL_REGEX}),
    rule(is_dns_label, "must be lower-case letters, digits and dashes, at most 63"),
]
DnsName = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": NAME_REGEX, "maxLength": MAX_NAME}),
    rule(is_dns_name, f"must be lower-case letters, digits, dashes and dots, at most {MAX_NAME}"),
]
LabelMap = Annotated[Mapping[str, str], Field(max_length=32), AfterValidator(_label_map)]
