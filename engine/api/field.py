"""Field errors, the paths in them, and the syntax of labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.api.reasons import Code
from engine.api.text import did_you_mean, join_comma, quote, sanitize


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error in an object that a user wrote.

    `field` is a JSON path (`metadata.annotations[topogate.dev/require-topology]`), `kind` Kubernetes' own word
    (`Unsupported value`, `Invalid value`, `Required value`, `Forbidden`), `value` the given value (None: not shown),
    `reason` our stable code, `message` the allowed values and what to do. `entry` names the entry of the policy's kinds
    that may be wrong instead of the object (`kinds[0] (bench)`).
    """

    field: str
    kind: str
    value: str | None
    reason: Code
    message: str
    entry: str = ""


def render(error: FieldError) -> str:
    """Return the message of a cause: `Unsupported value: "rak": allowed: block, rack, host; did you mean "rack"?`."""
    value = "" if error.value is None else f"{quote(error.value)}: "
    return f"{error.kind}: {value}{error.message}"


def unsupported(path: str, value: str, allowed: Sequence[str], *, reason: Code) -> FieldError:
    """Return the error of a value that is not allowed, with the closest allowed one as a suggestion."""
    message = f"allowed: {join_comma(allowed)}{did_you_mean(value, allowed)}"
    return FieldError(field=path, kind="Unsupported value", value=value, reason=reason, message=message)


_FIELD: Final = re.compile(r"[A-Za-z][-_A-Za-z0-9]{0,62}", re.ASCII)
_DIGITS: Final = re.compile(r"([0-9]+)")


def path_of(steps: Sequence[str | int]) -> str:
    """Return `topologies[0].levels[1].keys`; keys that are not field names are in brackets, quoted if necessary."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif _FIELD.fullmatch(step):
            path += f".{step}" if path else step
        else:
            path += f"[{sanitize(step)}]"
    return path


def json_pointer(steps: Sequence[str | int]) -> str:
    """Return the JSON Pointer (RFC 6901) of steps into an object: `~` and `/` in keys escaped, in this order."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def natural_order(path: str) -> list[tuple[int, str]]:
    """Return a sort key that orders the numbers in a path by value."""
    return [(int(part), "") if part.isdecimal() and len(part) < 10 else (-1, part) for part in _DIGITS.split(path)]  # noqa: PLR2004


MAX_NAME: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_NAME_PART: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)


def is_dns_label(text: str) -> bool:
    """Return whether the text is an RFC 1123 label: lower-case letters, digits and dashes, at most 63."""
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None  # noqa: PLR2004 - RFC 1123


def is_dns_name(text: str) -> bool:
    """Return whether the text is the name of most objects: lower-case letters, digits, dashes and dots, at most 253.

    Source: apimachinery IsDNS1123Subdomain, which does not limit its parts.
    """
    return len(text) <= MAX_NAME and all(map(_LABEL.fullmatch, text.split(".")))


def is_label_key(text: str) -> bool:
    """Return whether the text is a label key: an optional DNS prefix, a slash, a name.

    Source: apimachinery IsQualifiedName.
    """
    prefix, slash, name = text.rpartition("/")
    if slash and not (len(prefix) <= MAX_NAME and all(is_dns_label(part) for part in prefix.split("."))):
        return False
    return is_label_value(name) and bool(name)


def is_label_value(text: str) -> bool:
    """Return whether the text is a label value; it may be empty. Source: apimachinery IsValidLabelValue."""
    return not text or (len(text) <= 63 and _NAME_PART.fullmatch(text) is not None)  # noqa: PLR2004
