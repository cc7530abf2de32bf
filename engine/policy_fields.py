"""The field types of the policy: text with a rule, durations with bounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from engine.durations import PATTERN, DurationError, format_duration, parse_duration
from engine.presets import RESERVED_NAMES, is_dns_label, is_label_key, is_label_value, presets
from engine.wording import did_you_mean, listed, quote

_Text = TypeVar("_Text", bound=str)
MAX_LIST: Final = 256
_MAX_IDENTITY: Final = 253
_PATTERN: Final = re.compile(r"[a-z0-9*](?:[-a-z0-9*]{0,61}[a-z0-9*])?", re.ASCII)
LABEL_REGEX: Final = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
PATTERN_REGEX: Final = "^[a-z0-9*]([-a-z0-9*]{0,61}[a-z0-9*])?$"


def _rule(holds: Callable[[str], bool], wanted: str) -> AfterValidator:
    def check(text: str) -> str:
        if not holds(text):
            raise ValueError(f"{wanted}; got {quote(text)}")
        return text

    return AfterValidator(check)


def _not_reserved(text: str) -> str:
    if text in RESERVED_NAMES:
        raise ValueError(f"{quote(text)} has a meaning of its own in requests; use another name")
    return text


def _known_preset(text: str) -> str:
    if text not in presets():
        known = tuple(presets())
        raise ValueError(f"must be one of {listed(known)}; got {quote(text)}{did_you_mean(text, known)}")
    return text


def _label_map(pairs: Mapping[str, str]) -> Mapping[str, str]:
    for key, value in pairs.items():
        if not is_label_key(key):
            raise ValueError(f"keys must be label keys such as example.com/pool; got {quote(key)}")
        if not is_label_value(value):
            raise ValueError(f"values must be label values (letters, digits, dashes, dots); got {quote(value)}")
    return pairs


def _plain_words(text: str) -> bool:
    return 0 < len(text) <= _MAX_IDENTITY and text.isprintable() and " " not in text


def _always_kube_system(exempt: tuple[str, ...]) -> tuple[str, ...]:
    return exempt if "kube-system" in exempt else ("kube-system", *exempt)


def distinct(items: tuple[_Text, ...]) -> tuple[_Text, ...]:
    """Return the items. Raises ValueError when one stands twice."""
    for index, item in enumerate(items):
        if item in items[:index]:
            raise ValueError(f"{quote(item)} stands twice")
    return items


@dataclass(frozen=True, slots=True)
class Duration:
    """The rule of a duration field: Go-style text outside, seconds inside, both bounds included."""

    shortest: str
    longest: str

    def read(self, value: object) -> float:
        """Return the seconds of the text. Raises ValueError that says what is allowed."""
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


LabelKey = Annotated[str, _rule(is_label_key, "must be a label key such as example.com/rack")]
DnsLabel = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": LABEL_REGEX}),
    _rule(is_dns_label, "must be lower-case letters, digits and dashes, at most 63"),
]
PresetName = Annotated[str, AfterValidator(_known_preset), WithJsonSchema({"type": "string", "enum": list(presets())})]
LabelMap = Annotated[Mapping[str, str], Field(max_length=32), AfterValidator(_label_map)]
Annotations = Annotated[Mapping[str, str], Field(max_length=32)]
NamespacePattern = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": PATTERN_REGEX}),
    _rule(lambda text: _PATTERN.fullmatch(text) is not None, "must be a namespace name, * stands for any part of it"),
]
Identity = Annotated[
    str,
    _rule(_plain_words, f"must be a name of 1 to {_MAX_IDENTITY} characters without spaces"),
]
Identities = Annotated[tuple[Identity, ...], Field(max_length=MAX_LIST), AfterValidator(distinct)]
Schedulers = Annotated[tuple[Identity, ...], Field(min_length=1, max_length=MAX_LIST), AfterValidator(distinct)]
ResourceNames = Annotated[tuple[LabelKey, ...], Field(max_length=MAX_LIST), AfterValidator(distinct)]
ExemptNamespaces = Annotated[
    tuple[NamespacePattern, ...],
    Field(max_length=MAX_LIST),
    AfterValidator(distinct),
    AfterValidator(_always_kube_system),
]
