"""What the annotations of a workload and of its template say: aliases folded, values checked, nothing decided yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from engine import names
from engine.durations import DurationError, parse_duration
from engine.explain import unsupported
from engine.levels import LevelNames
from engine.outcomes import FieldError
from engine.records import Pod, Workload
from engine.wording import plain, suggest

NATIVE_DIALECT = "topogate"
POD_GROUP_DIALECT = "pod-group"

_POSITIVE = re.compile(r"[1-9][0-9]{0,8}")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_HINTS = 64  # nobody reads more, and each is compared with every key
_KNOWN = names.REQUEST_KEYS | names.OWNED_ANNOTATIONS
_SHORT = tuple(sorted(key.partition("/")[2] for key in names.REQUEST_KEYS))


@dataclass(frozen=True, slots=True)
class Said:
    """One annotation that asks for something: where it stands, its key as written, what it is about, its value."""

    field: str  # JSON path of the annotation
    key: str  # as the user wrote it, possibly an alias
    about: str  # the topogate.dev key that it means
    value: str


@dataclass(frozen=True, slots=True)
class Source:
    """The annotations and labels at one place of an object; `path` is the JSON path of its metadata."""

    path: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str]


def own_source(about: Workload | Pod) -> Source:
    """What an object itself carries, beside what its templates do."""
    carrier = about.spec if isinstance(about, Pod) else about
    return Source("metadata", carrier.annotations, carrier.labels)


def meanings(dialects: Collection[str]) -> Mapping[str, str]:
    """Every annotation key that asks for something under these dialects, with the topogate.dev key that it means."""
    found = {key: key for key in names.REQUEST_KEYS} if NATIVE_DIALECT in dialects else {}
    for dialect, aliases in names.ALIASES.items():
        if dialect in dialects:
            found |= aliases
    return found


def read(sources: Iterable[Source], *, dialects: Collection[str]) -> tuple[Said, ...]:
    """All requests that the sources carry, ordered by path."""
    known = meanings(dialects)
    found = (
        Said(field=f"{source.path}.annotations[{key}]", key=key, about=known[key], value=value)
        for source in sources
        for key, value in source.annotations.items()
        if key in known
    )
    return tuple(sorted(found, key=lambda said: said.field))


def read_own(about: Workload | Pod, *, dialects: Collection[str]) -> tuple[Said, ...]:
    """All requests that an object itself carries."""
    return read((own_source(about),), dialects=dialects)


def asks_in_pod_group_labels(sources: Iterable[Source], *, dialects: Collection[str]) -> bool:
    """True when pod-group labels of the user (not the ones that we add beside our own) stand on one of the sources."""
    return POD_GROUP_DIALECT in dialects and any(
        names.POD_GROUP_NAME in source.labels and not {names.MANAGED, names.GANG} & source.labels.keys()
        for source in sources
    )


def unknown_keys(sources: Iterable[Source]) -> Iterator[FieldError]:
    """Keys under topogate.dev/ that mean nothing, and requests that were written as labels by mistake."""
    prefix = names.DOMAIN + "/"
    hints = iter(range(_HINTS))
    for source in sources:
        for key in source.annotations:
            if key.startswith(prefix) and key not in _KNOWN:
                yield _unknown(
                    f"{source.path}.annotations", key, "no such annotation", hint=next(hints, None) is not None
                )
        for key in source.labels:
            if key.startswith(prefix) and key not in names.OWNED_LABELS:
                said = "this is read as an annotation, not as a label" if key in _KNOWN else "no such label"
                yield _unknown(f"{source.path}.labels", key, said, hint=next(hints, None) is not None)


def _unknown(path: str, key: str, said: str, *, hint: bool) -> FieldError:
    # Without the common prefix, or every key would look like every other one.
    near = suggest(key.partition("/")[2], _SHORT) if hint and key not in _KNOWN else None
    meant = f"; did you mean {names.DOMAIN}/{near}?" if near else ""
    return FieldError(
        field=f"{path}[{plain(key)}]",
        kind="Forbidden",
        value=None,
        reason="UnknownAnnotation",
        message=f"{said}{meant}",
    )


def check(said: Said, *, levels: LevelNames, topologies: Collection[str]) -> str | FieldError:
    """What the value means (a level alias, a name, a number, "true"), in one spelling, or what is wrong with it."""
    return _CHECKS[said.about](said, levels, topologies)


def invalid(said: Said, message: str, *, reason: str = "InvalidValue", kind: str = "Invalid value") -> FieldError:
    """The error that this annotation's value is wrong."""
    return FieldError(field=said.field, kind=kind, value=said.value, reason=reason, message=message)


def _level(said: Said, levels: LevelNames, _: Collection[str]) -> str | FieldError:
    if said.value == names.AUTO and said.about != names.SLICE_TOPOLOGY:
        return names.HOST_LEVEL if said.about == names.PREFER else names.AUTO
    alias = levels.resolve(said.value)
    return alias if alias is not None else unsupported(said.field, said.value, levels.aliases, reason="UnknownLevel")


def _topology(said: Said, _: LevelNames, topologies: Collection[str]) -> str | FieldError:
    if said.value in topologies:
        return said.value
    return unsupported(said.field, said.value, tuple(topologies), reason="UnknownTopology")


def _flag(said: Said, _: LevelNames, __: Collection[str]) -> str | FieldError:
    return said.value if said.value in ("true", "false") else invalid(said, 'must be "true" or "false"')


def _number(said: Said, _: LevelNames, __: Collection[str]) -> str | FieldError:
    if _POSITIVE.fullmatch(said.value):
        return said.value
    return invalid(said, "must be a whole number from 1 to 999999999")


def _duration(said: Said, _: LevelNames, __: Collection[str]) -> str | FieldError:
    try:
        seconds = parse_duration(said.value)
    except DurationError as error:
        return invalid(said, str(error))
    return repr(seconds) if seconds > 0 else invalid(said, "must be more than 0s")


def _name(said: Said, _: LevelNames, __: Collection[str]) -> str | FieldError:
    if _LABEL_VALUE.fullmatch(said.value):
        return said.value
    return invalid(said, 'must be 1 to 63 letters, digits, "-", "_" or ".", starting and ending with a letter or digit')


_CHECKS: Mapping[str, Callable[[Said, LevelNames, Collection[str]], str | FieldError]] = {
    names.REQUIRE: _level,
    names.PREFER: _level,
    names.SLICE_TOPOLOGY: _level,
    names.TOPOLOGY: _topology,
    names.UNCONSTRAINED: _flag,
    names.SLICE_SIZE: _number,
    names.MIN_AVAILABLE: _number,
    names.GANG_SIZE: _number,
    names.RELAX_AFTER: _duration,
    names.COLOCATE: _name,
    names.GANG_NAME: _name,
}
