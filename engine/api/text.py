"""Text for people: quoting, plurals, suggestions, lists, limits."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

MAX_QUOTED: Final = 63  # the longest label value
MAX_WARNING: Final = 120  # the API server's own advice for Warning headers
_MAX_LISTED: Final = 12
_READABLE: Final = 10**18  # Python refuses to print integers of thousands of digits
_CUTOFF: Final = 0.6
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NOT_IN_LABEL: Final = re.compile(r"[^-A-Za-z0-9_.]")
_LABEL_HASH: Final = 8  # hexadecimal digits
_COMPARED: Final = 256  # closest-match work grows with the length; no intended name is this long


def sanitize(text: str, limit: int = MAX_QUOTED) -> str:
    r"""Return text that is safe in one line: control and invisible characters escaped, cut at `limit` characters."""
    cut = text if len(text) <= limit else text[: limit - 3] + "..."
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def quote(text: str) -> str:
    r"""Return user input in double quotes, escaped and cut at 63 characters."""
    return '"' + sanitize(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def shown(value: object) -> str:
    """Return a value as shown in error messages; lists and mappings without their content."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return quote(value)
        case int() if not -_READABLE < value < _READABLE:
            return "a number out of range"
        case int() | float():
            return sanitize(str(value))
        case list() | tuple():
            return "a list"
        case Mapping():
            return "a mapping"
    return "a value of another type"


def suggest(text: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed value that the user probably meant; None rather than a bad suggestion."""
    if len(text) > _COMPARED:
        return None
    choices = sorted(set(allowed))
    folded = {choice.lower(): choice for choice in reversed(choices)}
    close = difflib.get_close_matches(text.lower(), sorted(folded), n=1, cutoff=_CUTOFF)
    return folded[close[0]] if close else None


def did_you_mean(text: str, allowed: Iterable[str]) -> str:
    """Return `; did you mean "rack"?` or "", to end a sentence about a wrong value."""
    meant = suggest(text, allowed)
    return f"; did you mean {quote(meant)}?" if meant is not None else ""


def plural(count: int, noun: str) -> str:
    """Return `1 pod`, `16 pods`, `2 switches`: the count with thousands separators and the noun in its right number."""
    return f"{count:,} {noun if count == 1 else plural_noun(noun)}"


def plural_noun(noun: str) -> str:
    """Return the English plural of a noun or a level alias."""
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2:-1] not in ("", "a", "e", "i", "o", "u"):
        return noun[:-1] + "ies"
    return noun + "s"


def join_comma(names: Sequence[str]) -> str:
    """Return `a, b, c`, cut after twelve names: `a, b, ... and 30 more`."""
    if len(names) <= _MAX_LISTED:
        return ", ".join(sanitize(name) for name in names)
    return ", ".join(sanitize(name) for name in names[:_MAX_LISTED]) + f" and {len(names) - _MAX_LISTED:,} more"


def join_and(names: Sequence[str], last: str = "and") -> str:
    """Return names in words: `a`, `a and b`, `a, b and c`."""
    return join_phrases([sanitize(name) for name in names], last)


def join_phrases(phrases: Sequence[str], last: str = "and") -> str:
    """Return phrases that are safe already in words, none of them cut; no phrases are ""."""
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} {last} {phrases[-1]}" if phrases else ""


def truncate_bytes(text: str, limit: int) -> str:
    """Return text of at most `limit` UTF-8 bytes, cut at a word, with dots where it was cut."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text
    cut = raw[: limit - 3].decode("utf-8", "ignore")
    at_word = cut.rsplit(" ", 1)[0] if " " in cut else cut
    return (at_word if len(at_word) * 2 > len(cut) else cut).rstrip(" ,;:") + "..."


def label_value(text: str) -> str:
    """Return text as a label value: itself if it is a valid one, else cut to 54 characters with a hash of the whole.

    Names of objects have up to 253 characters, label values at most 63.
    """
    if _LABEL_VALUE.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_LABEL_HASH]
    head = _NOT_IN_LABEL.sub("-", text)[: MAX_QUOTED - _LABEL_HASH - 1].strip("-_.")
    return f"{head}-{digest}" if head else digest
