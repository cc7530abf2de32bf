"""YAML documents as kubectl reads them (sigs.k8s.io/yaml): `off` is false, `0644` is octal, a timestamp stays text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

from engine.api import strict_yaml
from engine.api.strict_yaml import MAX_NUMBER, ScalarRules

MAX_DEPTH: Final = 64  # the deepest object of Kubernetes nests some twenty levels

_TRUE: Final = ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")
_FALSE: Final = ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(_TRUE, True),
    **dict.fromkeys(_FALSE, False),
}
_NUMERIC: Final = frozenset("+-.0123456789")
_INTEGER: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|0[0-7]*|[1-9][0-9]*)", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_INT64: Final = 2**63


def documents(text: str) -> Iterator[Any]:
    """Yield the value of every document, empty ones as None. Mappings and lists may be shared: do not change them.

    Raises YAMLTextError: no YAML, too deep, too many aliases, a tag that is not plain data, a key twice.
    """
    return strict_yaml.documents(text, _RULES)


def scalar(text: str) -> Any:
    """Return the value of an unquoted scalar: null, a boolean, a number or text."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC or len(text) > MAX_NUMBER:
        return text
    digits = text.replace("_", "")
    if _INTEGER.fullmatch(digits):
        whole = _integer(digits)
        if -_INT64 <= whole < 2 * _INT64:
            return whole
    if _FLOAT.fullmatch(digits) and math.isfinite(number := float(digits)):
        return number
    return text


def _integer(digits: str) -> int:
    unsigned = digits.lstrip("+-")
    if len(unsigned) > 1 and unsigned[0] == "0" and unsigned[1].isdigit():
        return int(digits, 8)  # C's octal, as in defaultMode: 0644
    return int(digits, 0)


_RULES: Final = ScalarRules(
    scalar=scalar, text_keys=False, merges=True, max_depth=MAX_DEPTH, max_documents=1_000_000, max_aliased=1_000_000
)
