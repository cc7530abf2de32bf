"""What msgspec says about wrong types, in words for people who write YAML."""

from __future__ import annotations

import re
from typing import Final

from engine.cluster.wire import ProjectionError

_WORDS: Final = {
    "int": "a whole number",
    "str": "text",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "datetime": "a time",
}
_TYPE: Final = re.compile(r"`(\w+)(?: \| null)?`")


def in_words(text: str) -> str:
    """`Expected `int | null`, got `str`` as `expected a whole number, got text`."""
    said = _TYPE.sub(lambda match: _WORDS.get(match[1], match[1]), text).replace("`", "")
    return said[:1].lower() + said[1:]


def located(error: ProjectionError) -> tuple[str, str]:
    """The path (empty for the object itself) and the words of a projection's error."""
    path, _, text = str(error).partition(": ")
    return path.removeprefix("$").removeprefix("."), in_words(text)
