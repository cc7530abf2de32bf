"""The field types of registry entries: paths, and validated text."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from engine.api.text import quote
from engine.kinds.paths import Path, parse_path

_PART: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
GROUP_REGEX: Final = rf"^(?!.{{254}})({_PART}([.]{_PART})*)?$"
VERSION_REGEX: Final = r"^([*]|v[0-9][a-z0-9]{0,30})$"
KIND_REGEX: Final = r"^[A-Z][A-Za-z0-9]{0,62}$"
RESOURCE_REGEX: Final = r"^[a-z][a-z0-9]{0,62}$"
SUBRESOURCE_REGEX: Final = r"^[a-z][a-z0-9]{0,62}(/[a-z]{1,30})?$"
VARIABLE_REGEX: Final = r"^[a-z][A-Za-z0-9]{0,30}$"


def _fitting(regex: str, wanted: str) -> AfterValidator:
    pattern = re.compile(regex, re.ASCII)

    def check(text: str) -> str:
        if len(text) > 253 or "\n" in text or pattern.fullmatch(text) is None:  # noqa: PLR2004 - the longest DNS name
            raise ValueError(f"must be {wanted}; got {quote(text)}")
        return text

    return AfterValidator(check)


Group = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": GROUP_REGEX}),
    _fitting(GROUP_REGEX, "an API group such as batch or jobset.x-k8s.io, empty for the core group"),
]
Version = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": VERSION_REGEX}),
    _fitting(VERSION_REGEX, "a version such as v1, or *"),
]
KindName = Annotated[
    str, WithJsonSchema({"type": "string", "pattern": KIND_REGEX}), _fitting(KIND_REGEX, "a kind such as JobSet")
]
Resource = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": RESOURCE_REGEX}),
    _fitting(RESOURCE_REGEX, "a plural in lower case such as jobsets"),
]
Subresource = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": SUBRESOURCE_REGEX}),
    _fitting(SUBRESOURCE_REGEX, "a plural in lower case such as jobsets or jobsets/status"),
]
VariableName = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": VARIABLE_REGEX}),
    _fitting(VARIABLE_REGEX, "a name in camelCase, at most 31 letters and digits"),
]


class PathRule:
    """The type of a path field: text outside, `Path` inside; `[*]` and `{*}` only where entries are iterated."""

    def __init__(self, *, stars: bool) -> None:
        self.stars = stars

    def read(self, value: object) -> Path:
        """Parse the path. Raises ValueError with the allowed form."""
        if not isinstance(value, str):
            raise ValueError("must be a path such as .spec.template")
        path = parse_path(value)
        if path.stars and not self.stars:
            raise ValueError("[*] and {*} have no meaning here: exactly one node is needed")
        return path

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        # a path of several nodes may lead to one; `$comment` is the text about the field in the reference
        return {"type": "string", "pattern": r"^[$.]", "$comment": "path of several" if self.stars else "path"}


OnePath = Annotated[Path, PathRule(stars=False)]
ManyPath = Annotated[Path, PathRule(stars=True)]
