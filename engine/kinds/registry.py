"""The registry of workload kinds: built-in (`kinds.yaml`) and policy entries, looked up by group and kind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Final

from pydantic import ValidationError

from engine.api import strict_yaml
from engine.api.field import FieldError, path_of
from engine.api.schema import in_order, structural_errors, without_nulls, wrong
from engine.kinds.schema import ANY_VERSION, KindEntry
from engine.kinds.validation import problems

MAX_EXTRA: Final = 64
_BUILT_IN: Final = "built-in"


class RegistryError(ValueError):
    """Entries are invalid; `errors` holds every error, ordered by path."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__("\n".join(f"{error.field}: {error.message}" for error in errors))
        self.errors = errors


@dataclass(frozen=True, slots=True)
class Registry:
    """The entries of all kinds in order, the built-in ones first; the last `extra` are those of a policy.

    `replaced`: the built-in entries that entries of the policy stand for, with the positions of these in the policy.
    """

    entries: tuple[KindEntry, ...]
    extra: int = 0
    replaced: tuple[tuple[int, KindEntry], ...] = ()
    _of: Mapping[tuple[str, str], tuple[KindEntry, ...]] = field(init=False, repr=False, compare=False)
    _watched: frozenset[tuple[str, str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        of: dict[tuple[str, str], tuple[KindEntry, ...]] = {}
        for entry in self.entries:
            key = (entry.match.group, entry.match.kind)
            of[key] = (*of.get(key, ()), entry)
        object.__setattr__(self, "_of", of)
        held = {key for key, found in of.items() if any(one.handling in ("placed", "through") for one in found)}
        links = {(link.group, link.kind) for entry in self.entries for link in entry.owners}
        object.__setattr__(self, "_watched", frozenset(held | links))

    def find(self, group: str, kind: str, version: str = ANY_VERSION) -> KindEntry | None:
        """Return the entry of a kind: the one that names the version, else the one for every version, else None."""
        found = self.of_kind(group, kind)
        named = (entry for entry in found if version in entry.match.versions)
        return next(named, None) or next((entry for entry in found if ANY_VERSION in entry.match.versions), None)

    def of_kind(self, group: str, kind: str) -> tuple[KindEntry, ...]:
        """Return the entries of a kind, for all versions."""
        return self._of.get((group, kind), ())

    def watched(self, group: str, kind: str) -> bool:
        """Return True for a kind that holds gangs, or stands between these and their pods: its objects are read."""
        return (group, kind) in self._watched

    @property
    def own(self) -> tuple[KindEntry, ...]:
        """The entries of the policy, in its order."""
        return self.entries[len(self.entries) - self.extra :]

    def added(self, entry: KindEntry) -> str:
        """Return the path of the entry in the policy with its name: `kinds[0] (own)`; "" for a built-in one."""
        position = self.own.index(entry) if entry in self.own else -1
        return f"kinds[{position}] ({entry.name})" if position >= 0 else ""

    def entry_of(self, raw: Mapping[str, Any]) -> KindEntry | None:
        """Return the entry of an object by its apiVersion and kind; None for an unregistered kind."""
        api_version, kind = raw.get("apiVersion"), raw.get("kind")
        if not isinstance(api_version, str) or not isinstance(kind, str):
            return None
        group, _, version = api_version.rpartition("/")
        return self.find(group, kind, version)


@cache
def built_in() -> Registry:
    """Return the registry of the built-in kinds."""
    text = resources.files("engine.kinds").joinpath("kinds.yaml").read_text(encoding="utf-8")
    raw = strict_yaml.load(text)
    entries = raw.get("kinds") if isinstance(raw, dict) else None
    if not isinstance(entries, list):
        raise ValueError("kinds.yaml: must be a mapping with the list kinds")
    return _registry((), entries, at="kinds")


def registry_of(extra: Sequence[Mapping[str, Any]] = ()) -> Registry:
    """Return the built-in kinds and those of a policy.

    An entry of a policy replaces the built-in entry of its kind and version, so that a version of Topogate that brings
    an entry for a kind of the policy changes nothing; those of Kubernetes' own groups cannot be replaced. Raises
    RegistryError with every error by its path (`kinds[1].podSets[0].count`): invalid fields, rules across fields, and
    duplicate kinds or names.
    """
    return _registry(built_in().entries, extra, at="kinds") if extra else built_in()


def _registry(before: tuple[KindEntry, ...], raw: Sequence[object], *, at: str) -> Registry:
    errors: list[FieldError] = []
    if before and len(raw) > MAX_EXTRA:
        raise RegistryError((wrong(at, f"has {len(raw):,} entries; at most {MAX_EXTRA} are allowed"),))
    entries: list[tuple[str, KindEntry]] = [(_BUILT_IN, entry) for entry in before]
    for index, one in enumerate(raw):
        where = f"{at}[{index}]"
        entry, faults = _entry(one)
        found = [_at_entry(where, fault) for fault in faults]
        if entry is not None:
            found += [wrong(_join(where, path_of(steps)), message) for steps, message in problems(entry)]
            found += _duplicates(where, entry, entries)
            entries.append((where, entry))
        errors += found
    if errors:
        raise RegistryError(in_order(errors))
    own = [entry for place, entry in entries if place != _BUILT_IN]
    replaced = tuple((at, one) for at, entry in enumerate(own) for one in before if _replaces(entry, one))
    gone = [one for _, one in replaced]
    kept = [one for one in before if one not in gone]
    return Registry((*kept, *own), extra=len(own) if before else 0, replaced=replaced)


def _replaces(entry: KindEntry, built: KindEntry) -> bool:
    """Return True if the entry of a policy stands for a built-in one: of the same kind, with a version in common.

    Kubernetes' own kinds, whose groups have no dot, have always been built in, and the code relies on some of them.
    """
    mine, theirs = entry.match, built.match
    same = (mine.group, mine.kind) == (theirs.group, theirs.kind) and not set(mine.versions).isdisjoint(theirs.versions)
    return same and _replaceable(built)


def _replaceable(built: KindEntry) -> bool:
    return "." in built.match.group


def _entry(raw: object) -> tuple[KindEntry | None, list[FieldError]]:
    if not isinstance(raw, Mapping):
        return None, [wrong("", "must be a mapping of fields to values")]
    try:
        # As JSON: strict there still reads a list as a tuple.
        text = json.dumps(without_nulls(raw, KindEntry))
        return KindEntry.model_validate_json(text, by_alias=True, by_name=False), []
    except ValidationError as error:
        return None, structural_errors(error, KindEntry)
    except (TypeError, ValueError, RecursionError):
        return None, [wrong("", "is nested too deeply or is not JSON")]


def _duplicates(where: str, entry: KindEntry, before: Iterable[tuple[str, KindEntry]]) -> list[FieldError]:
    found: list[FieldError] = []
    for place, other in before:
        first = "it is built in" if place == _BUILT_IN else f"first at {place}"
        if place == _BUILT_IN and _replaces(entry, other):
            continue
        if other.name == entry.name and (place != _BUILT_IN or not _replaceable(other)):
            found.append(wrong(f"{where}.name", f"{entry.name} is a duplicate ({first})", kind="Duplicate value"))
        if (other.match.group, other.match.kind) != (entry.match.group, entry.match.kind):
            continue
        kind = f"{entry.match.kind} of {entry.match.group or 'the core group'}"
        for number, version in enumerate(entry.match.versions):
            if version in other.match.versions:
                path = f"{where}.match.versions[{number}]"
                found.append(wrong(path, f"{version} of {kind} is a duplicate ({first})", kind="Duplicate value"))
        if other.match.resource != entry.match.resource:
            path = f"{where}.match.resource"
            found.append(wrong(path, f"{kind} is {other.match.resource} elsewhere ({first})", kind="Duplicate value"))
    return found


def _at_entry(where: str, error: FieldError) -> FieldError:
    return FieldError(_join(where, error.field), error.kind, error.value, error.reason, error.message)


def _join(where: str, path: str) -> str:
    return f"{where}.{path}" if path else where
