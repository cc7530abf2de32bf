"""Annotations that ask for nothing and look as if they should: a key of ours under another prefix, or one of Kueue's
that it does not have. What the user may have meant. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from engine.annotations import NATIVE_DIALECT
from engine.api import names
from engine.api.text import plain, suggest

_PREFIX: Final = names.DOMAIN.partition(".")[0]
_TOLD: Final = 4  # nobody reads more
_SHOWN: Final = 50  # with the longest key that may be meant, a warning has at most 120 characters
_OURS: Final = tuple(sorted(key.partition("/")[2] for key in names.REQUEST_KEYS))
_KUEUE: Final = tuple(sorted(key.partition("/")[2] for key in names.ALIASES["kueue"]))
_READ: Final = frozenset(key for keys in (*names.ALIASES.values(), *names.UNREAD.values()) for key in keys)
# As the match conditions have it (`webhook.conditions`): other keys are never sent for their sake.
_LOOKS: Final = re.compile(r"(podset-)?(slice-)?(req|pref|unc)[a-z]*-topology")


def misspelt(keys: Iterable[str], *, dialects: Collection[str]) -> Iterator[str]:
    """Yield a warning for each annotation that was probably meant for us: what it should be called."""
    found = ((key, meant) for key in dict.fromkeys(keys) if (meant := _meant(key, dialects)) is not None)
    for key, meant in islice(found, _TOLD):
        yield f"{plain(key, _SHOWN)} is not read; did you mean {meant}?"


def _meant(key: str, dialects: Collection[str]) -> str | None:
    prefix, _, name = key.rpartition("/")
    if prefix == names.DOMAIN or key in _READ:
        return None
    if f"{prefix}/" == names.KUEUE_PREFIX:
        return suggest(name, _KUEUE) if _LOOKS.fullmatch(name) and "kueue" in dialects else None
    if not (key.startswith(_PREFIX) or _LOOKS.fullmatch(name)) or NATIVE_DIALECT not in dialects:
        return None
    near = suggest(name if prefix else name.removeprefix(_PREFIX).lstrip("-._"), _OURS)
    return f"{names.DOMAIN}/{near}" if near is not None else None
