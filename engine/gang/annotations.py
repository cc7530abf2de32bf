"""Reads request annotations of a workload and its templates: aliases folded, values checked, per gang or pod set."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, isqrt
from operator import attrgetter

import msgspec

from engine.api import names
from engine.api.device import RDMA_SCOPES, SCOPES, STRATEGIES
from engine.api.duration import DurationError, format_duration, parse_duration
from engine.api.field import FieldError, unsupported
from engine.api.pod import Pod
from engine.api.reasons import Code
from engine.api.text import join_and, join_comma, quote, sanitize, suggest
from engine.api.workload import PodSet, Workload
from engine.planner.plan import PROFILES
from engine.resources.hints import MAX_TEXT, read_hint
from engine.resources.selectors import SelectorError, format_selector, parse_selector
from engine.topology.choice import LevelNames
from engine.topology.levels import MAX_LEVELS
from engine.topology.topology import why_unusable

NATIVE_DIALECT = "topogate"
POD_GROUP_DIALECT = "pod-group"

_POSITIVE = re.compile(r"[1-9][0-9]{0,8}")
_LAYER = re.compile(r"\s*([^\s=,]+)\s*=\s*([1-9][0-9]{0,8})\s*")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,62}")
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
MAX_HOST_NAME = 253
MAX_HOST_NAMES = 32  # that one gang can be asked to leave at a time
_MAX_HINTS = 64  # users do not read more, and each is compared with every key
# Keys that users try under our prefix, and where that is set instead.
_ELSEWHERE: Mapping[str, str] = {
    "priority": "set priorityClassName on the pods",
    "priority-class": "set priorityClassName on the pods",
    "queue": "there are no queues: gangs wait by priority, then by age",
    "queue-name": "there are no queues: gangs wait by priority, then by age",
    "timeout": f"use {names.SCHEDULE_TIMEOUT}, or {names.RELAX_AFTER} to give up the level alone",
}
_KNOWN = names.REQUEST_KEYS | names.OWNED_ANNOTATIONS
_WORD = re.compile(r"[^\s,;|+]+")
_MIN_TIMEOUT = 10  # seconds: each time that it is over costs a write and an Event
_TIMEOUTS = (1.0, 168 * 3600.0)  # as in the policy, seconds
_MAX_READ = 256  # characters of a value: a list of levels is shorter
_SHORT_KEYS = tuple(sorted(key.partition("/")[2] for key in names.REQUEST_KEYS))
_LISTED_DIVISORS = 8
_MOST_PODS = 1_000_000_000

Layers = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RequestAnnotation:
    """One annotation of a request: its path, its key as written, the key that it means, and its value."""

    field: str  # JSON path of the annotation
    key: str  # as the user wrote it, possibly an alias
    about: str  # the topogate.dev key that it means
    value: str


@dataclass(frozen=True, slots=True)
class AnnotationSource:
    """The annotations and labels at one place of an object; `path` is the JSON path of its metadata."""

    path: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RequestScope:
    """The request annotations of one pod set, or (`pod_set` is None) of a whole gang of several pod sets.

    `said` as they are written, `meanings` by the key that they mean, `pods`: how many pods they apply to. With one pod
    set its scope is that of the gang too.
    """

    pod_set: PodSet | None
    pods: int
    said: tuple[RequestAnnotation, ...]
    meanings: Mapping[str, str]

    def annotation_for(self, about: str) -> RequestAnnotation | None:
        """Return the scope's annotation for a key; the first by path."""
        return next((one for one in self.said if one.about == about), None)


def requests_something(said: Iterable[RequestAnnotation]) -> bool:
    """Return whether the annotations request anything: `unconstrained-topology: "false"` alone does not.

    The match conditions decide the same (`webhook.configuration.match_conditions`).
    """
    return any(one.about != names.UNCONSTRAINED or one.value != "false" for one in said)


def own_source(about: Workload | Pod) -> AnnotationSource:
    """Return the annotations and labels of an object itself, without those of its templates."""
    carrier = about.spec if isinstance(about, Pod) else about
    return AnnotationSource("metadata", carrier.annotations, carrier.labels)


def meanings(dialects: Collection[str]) -> Mapping[str, str]:
    """Return every request annotation key of these dialects, with the topogate.dev key that it means."""
    found = {key: key for key in names.REQUEST_KEYS} if NATIVE_DIALECT in dialects else {}
    for dialect, aliases in names.ALIASES.items():
        if dialect in dialects:
            found |= aliases
    return found


def read_annotations(
    sources: Iterable[AnnotationSource], *, dialects: Collection[str]
) -> tuple[RequestAnnotation, ...]:
    """Return all request annotations of the sources, ordered by path."""
    known, sources = meanings(dialects), tuple(sources)
    for key, (beside, about) in names.ALIASES_BESIDE.items():
        if beside in known and any(beside in source.annotations for source in sources):
            known = {**known, key: about}
    found = (
        RequestAnnotation(field=f"{source.path}.annotations[{key}]", key=key, about=known[key], value=value)
        for source in sources
        for key, value in source.annotations.items()
        if key in known
    )
    return tuple(sorted(found, key=lambda said: said.field))


def read_with_hints(sources: Iterable[AnnotationSource], *, dialects: Collection[str]) -> tuple[RequestAnnotation, ...]:
    """Return all request annotations of the sources, and what Koordinator's hints beside them mean; ordered by path.

    A hint that cannot be read stands for one annotation, in which the error is found.
    """
    sources = tuple(sources)
    found = list(read_annotations(sources, dialects=dialects))
    for source in sources if NATIVE_DIALECT in dialects else ():
        for key in names.DEVICE_HINTS:
            if (text := source.annotations.get(key)) is not None:
                hint = read_hint(key, text)
                for about in hint.meanings if hint.error is None else (names.VF_SELECTOR,):
                    found.append(RequestAnnotation(f"{source.path}.annotations[{key}]", key, about, text))
    return tuple(sorted(found, key=lambda said: said.field))


def read_own_annotations(about: Workload | Pod, *, dialects: Collection[str]) -> tuple[RequestAnnotation, ...]:
    """Return all request annotations of an object itself, without those of its templates."""
    return read_annotations((own_source(about),), dialects=dialects)


def slices_of(scope: RequestScope, whole: RequestScope) -> Layers:
    """Return the layers of slices (level, size) of a pod set, its own or the gang's; none while a size is not known.

    Slices of the workload apply to every pod set that is as large as a slice.
    """
    pod_set = scope.pod_set
    if pod_set is None:
        return ()
    said = scope if not {names.SLICES, names.SLICE_TOPOLOGY}.isdisjoint(scope.meanings) else whole
    layers = layers_in(said)
    level, size = said.meanings.get(names.SLICE_TOPOLOGY), said.meanings.get(names.SLICE_SIZE)
    pods = pod_set.replica if size is None else int(size)
    if not layers and level is not None and pods is not None:
        layers = ((level, pods),)
    return layers if said is scope else tuple((level, size) for level, size in layers if size <= pod_set.slots)


def layers_in(scope: RequestScope) -> Layers:
    """Return the layers of slices that one annotation of a scope lists, coarse to fine."""
    pairs = (layer.split("=") for layer in scope.meanings.get(names.SLICES, "").split(",") if layer)
    return tuple((level, int(size)) for level, size in pairs)


def divisors(number: int, *, multiple_of: int = 1, near: int = 1) -> str:
    """Return the divisors of a number that are multiples of another one, as text; of very many those around `near`."""
    small = [n for n in range(1, isqrt(number) + 1) if not number % n]
    found = sorted({n for low in small for n in (low, number // low) if not n % multiple_of})
    if len(found) > _LISTED_DIVISORS:
        closest = sorted(found, key=lambda n: max(n, near) / min(n, near))[:_LISTED_DIVISORS]
        found = sorted(closest)
    return join_and([f"{n:,}" for n in found], "or")


def pod_group_of(sources: Iterable[AnnotationSource], *, dialects: Collection[str]) -> Mapping[str, str]:
    """Return the request in the user's pod-group keys of other systems, as our annotations; empty without a group.

    Keys beside our own labels are none of the user's: we add them there. Of groups of several systems the first with a
    minimum counts, then the one with a PodGroup object. Of different minimums the largest counts, as
    each pod of the group waits for its own; a value that no system takes for a number or a duration is left out.
    A flag that is "false" on any source takes the request back, in every dialect: the match conditions know no policy.
    """
    sources = tuple(sources)
    if any(source.annotations.get(key) == "false" for source in sources for key in names.FLAGS):
        return {}
    own = [source for source in sources if not {names.MANAGED, names.GANG} & source.labels.keys()]
    found: list[dict[str, str]] = []
    # They are written as annotations of ours, so without our own dialect they request nothing.
    for group, least, carried in _GROUPS if {POD_GROUP_DIALECT, NATIVE_DIALECT}.issubset(dialects) else ():
        # An empty name is none for these systems too: a chart writes it where no group is set.
        members = [said for source in own if (said := carried(source)).get(group)]
        if not members:
            continue
        request = {names.POD_GROUP: members[0][group]}
        numbers = [int(text) for one in members if _POSITIVE.fullmatch(text := one.get(least, ""))]
        if numbers:
            request[names.MIN_AVAILABLE] = str(max(numbers))
        times = [text for one in members if _long_enough(text := one.get(names.KOORDINATOR_GANG_WAIT, ""))]
        if times and group == names.KOORDINATOR_GANG_NAME:
            request[names.SCHEDULE_TIMEOUT] = times[0]
        if numbers or group == names.SCHEDULER_PLUGINS_POD_GROUP:
            return request
        found.append(request)
    return found[0] if found else {}


# The keys of a group's name and minimum, and where a pod carries them.
_GROUPS: tuple[tuple[str, str, Callable[[AnnotationSource], Mapping[str, str]]], ...] = (
    (names.POD_GROUP_NAME, names.POD_GROUP_MIN, attrgetter("labels")),
    (names.KOORDINATOR_GANG_NAME, names.KOORDINATOR_GANG_MIN, attrgetter("annotations")),
    (names.SCHEDULER_PLUGINS_POD_GROUP, "", attrgetter("labels")),  # its PodGroup object has the minimum
)


def _long_enough(text: str) -> bool:
    try:
        return parse_duration(text) >= _MIN_TIMEOUT
    except DurationError:
        return False


def unknown_keys(sources: Iterable[AnnotationSource], *, short: bool = False) -> Iterator[FieldError]:
    """Yield errors for unknown keys under topogate.dev/, and for requests written as labels by mistake.

    `short`: without the list of all keys, for which a warning has no room.
    """
    prefix = names.PREFIX
    hints = iter(range(_MAX_HINTS))
    for source in sources:
        for key in source.annotations:
            if key.startswith(prefix) and key not in _KNOWN:
                hint = next(hints, None) is not None
                yield _unknown(f"{source.path}.annotations", key, "no such annotation", hint=hint, short=short)
        for key in source.labels:
            if key.startswith(prefix) and key not in names.OWNED_LABELS:
                said = "must be an annotation, not a label" if key in _KNOWN else "no such label"
                yield _unknown(f"{source.path}.labels", key, said, hint=next(hints, None) is not None, short=short)


def _unknown(path: str, key: str, said: str, *, hint: bool, short: bool) -> FieldError:
    meant = "" if key in _KNOWN else _hint(key.partition("/")[2], hint=hint, short=short)
    return FieldError(
        field=f"{path}[{sanitize(key)}]",
        kind="Forbidden",
        value=None,
        reason="UnknownAnnotation",
        message=f"{said}; {meant}" if meant else said,
    )


def _hint(name: str, *, hint: bool, short: bool) -> str:
    """Return a hint for an unknown key; `name` is without the common prefix: with it all look alike."""
    if (elsewhere := _ELSEWHERE.get(name.lower())) is not None:
        return elsewhere
    near = suggest(name, _SHORT_KEYS) if hint else None
    if near is not None:
        return f"did you mean {names.PREFIX}{near}?"
    return "" if short or not hint else f"the keys are {', '.join(_SHORT_KEYS)}"


def check_value(said: RequestAnnotation, *, levels: LevelNames, topologies: Collection[str]) -> str | FieldError:
    """Return the value in one spelling (a level alias, a name, a number, "true"), or the error in it."""
    # Records keep no more of a value; the others are refused at that length whatever they say.
    if len(said.value) > MAX_TEXT and said.about in (names.SLICES, names.DEVICE_SELECTOR):
        return invalid(said, f"must be at most {MAX_TEXT:,} characters long")
    return _CHECKS[said.about](said, levels, topologies)


def invalid(
    said: RequestAnnotation, message: str, *, reason: Code = "InvalidValue", kind: str = "Invalid value"
) -> FieldError:
    """Return the error for an annotation with a wrong value."""
    return FieldError(field=said.field, kind=kind, value=said.value, reason=reason, message=message)


def _level(said: RequestAnnotation, levels: LevelNames, _: Collection[str]) -> str | FieldError:
    auto = (names.AUTO,) if said.about in (names.REQUIRE, names.PREFER) else ()
    if said.value in auto:
        lowest = levels.lowest
        if lowest is None:
            return _not_allowed(said, levels)
        return lowest if said.about == names.PREFER else names.AUTO
    alias = levels.resolve(said.value)
    if alias is None:
        return _unknown_level(said, levels, auto)
    return alias if levels.permits(alias) else _not_allowed(said, levels)


def _unknown_level(said: RequestAnnotation, levels: LevelNames, auto: tuple[str, ...] = ()) -> FieldError:
    # A user who wrote a label key is shown label keys.
    allowed = levels.keys if "/" in said.value else (*filter(levels.permits, levels.aliases), *auto)
    error = unsupported(said.field, said.value, allowed, reason="UnknownLevel")
    several = [word for word in _WORD.findall(said.value[:_MAX_READ]) if levels.resolve(word) is not None]
    if len(several) > 1:
        return replace(error, message=f"one level only; allowed: {join_comma(allowed)}")
    if (other := levels.elsewhere(said.value)) is not None:
        there = f"is a level of topology {sanitize(other)}; add {names.TOPOLOGY}: {sanitize(other)}"
        return replace(error, message=f"{there}, or use one of {join_comma(allowed)}")
    return error


def _not_allowed(said: RequestAnnotation, levels: LevelNames) -> FieldError:
    """Return the error for a level that the policy's rule for the namespace does not list."""
    listed = f"allowed: {join_comma(levels.allowed)}" if levels.allowed else "none of this topology is allowed"
    message = f"{quote(said.value)} is a level that this namespace may not request; {listed} ({levels.allowed_by})"
    return FieldError(field=said.field, kind="Forbidden", value=None, reason="LevelNotAllowed", message=message)


class _Constraint(msgspec.Struct, frozen=True):
    """One layer of slices as Kueue writes it."""

    topology: str
    size: int


_CONSTRAINTS = msgspec.json.Decoder(list[_Constraint])


def _slices(said: RequestAnnotation, levels: LevelNames, _: Collection[str]) -> str | FieldError:
    """Check layers of slices, `rack=16,host=4` or Kueue's JSON; return them in the first spelling with aliases."""
    written = _written_layers(said)
    if isinstance(written, FieldError):
        return written
    if len(written) > MAX_LEVELS + 1:  # with the host
        return invalid(said, f"names {len(written):,} layers; there are at most {MAX_LEVELS + 1} levels")
    layers: list[tuple[str, int]] = []
    for word, size in written:
        alias = levels.resolve(word)
        if alias is None:
            return _unknown_level(replace(said, value=word), levels)
        if not levels.permits(alias):
            return _not_allowed(replace(said, value=word), levels)
        if alias in dict(layers):
            return invalid(said, f"names level {alias} twice; keep one of them")
        layers.append((alias, size))
    for (coarse, whole), (fine, size) in pairwise(layers):
        if levels.coarser(fine, coarse) or not (levels.open or levels.coarser(coarse, fine)):
            return invalid(said, f"{fine} is not a finer level than {coarse}; name them coarse to fine")
        if whole % size:
            message = f"{fine}={size} must divide {coarse}={whole}; for {fine} use {divisors(whole, near=size)}"
            return invalid(said, message, reason="SegmentNotDivisor")
    return ",".join(f"{level}={size}" for level, size in layers)


def _written_layers(said: RequestAnnotation) -> list[tuple[str, int]] | FieldError:
    """Return the layers of slices as written, at least one, or the error in their spelling."""
    if said.key != said.about:
        try:
            found = [(one.topology, one.size) for one in _CONSTRAINTS.decode(said.value)]
        except (msgspec.MsgspecError, RecursionError):
            found = []
        if found and all(level and 0 < size < _MOST_PODS for level, size in found):
            return found
        return invalid(said, 'must be a JSON list such as [{"topology":"rack","size":16},{"topology":"host","size":4}]')
    layers = [_LAYER.fullmatch(part) for part in said.value.split(",")]
    pairs = [(layer[1], int(layer[2])) for layer in layers if layer is not None]
    if len(pairs) == len(layers):
        return pairs
    return invalid(said, "must be pairs level=pods, coarse to fine, such as rack=16,host=4")


def _topology(said: RequestAnnotation, _: LevelNames, topologies: Collection[str]) -> str | FieldError:
    if said.value in topologies:
        return said.value
    error = unsupported(said.field, said.value, tuple(topologies), reason="UnknownTopology")
    why = why_unusable(topologies, said.value)
    return error if why is None else replace(error, message=f"{why}; allowed: {join_comma(tuple(topologies))}")


def _flag(said: RequestAnnotation, _: LevelNames, __: Collection[str]) -> str | FieldError:
    return said.value if said.value in ("true", "false") else invalid(said, 'must be "true" or "false"')


def _profile(said: RequestAnnotation, _: LevelNames, __: Collection[str]) -> str | FieldError:
    return (
        said.value if said.value in PROFILES else unsupported(said.field, said.value, PROFILES, reason="InvalidValue")
    )


def _device_scope(said: RequestAnnotation, _: LevelNames, __: Collection[str]) -> str | FieldError:
    if said.value in SCOPES:
        return said.value
    return unsupported(said.field, said.value, tuple(sorted(SCOPES)), reason="InvalidValue")


def _gpu_strategy(said: RequestAnnotation, _: LevelNames, __: Collection[str]) -> str | FieldError:
    if said.value in STRATEGIES:
        return said.value
    return unsupported(said.field, said.value, STRATEGIES, reason="InvalidValue")


def _device_selector(said: RequestAnnotation, _: LevelNames, __: Collection[str]) -> str | FieldError:
    """Check labels of devices, `model=A100,pool=a`; return them sorted."""
    pairs = [part.strip().partition("=") for part in said.value.split(",")]
    if not all(_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value) for key, _, value in pairs):
        return invalid(said, "must be labels of devices, key=value, separated by commas, such as model=A100")
    if len({key for key, _, _ in pairs}) < len(pairs):
        return invalid(said, "names a label twice; keep one of them")
    return ",".join(sorted(f"{key}={value}" for key, _, value in pairs))


def _label_selector(said: RequestAnnotation, _: LevelNames, __: Collection[str]) -> str | FieldError:
    if said.key in names.DEVICE_HINTS:
        return _hinted(said)
    try:
        return format_selector(parse_selector(said.value))
    except SelectorError as error:
        return invalid(said, str(error))


def _rdma_scope(said: RequestAnnotation, _: LevelNames, __: Collection[str]) -> str | FieldError:
    if said.key in names.DEVICE_HINTS:
        return _hinted(said)
    if said.value in RDMA_SCOPES:
        return said.value
    return unsupported(said.field, said.value, RDMA_SCOPES, reason="InvalidValue")


def _hinted(said: RequestAnnotation) -> str | FieldError:
    hint = read_hint(said.key, said.value)
    if hint.error is None:
        return hint.meanings[said.about]
    path = f"{hint.error.path}: " if hint.error.path else ""
    return invalid(said, f"{path}{hint.error.message}")


def _number(said: RequestAnnotation, _: LevelNames, __: Collection[str]) -> str | FieldError:
    if _POSITIVE.fullmatch(said.value):
        return said.value
    return invalid(said, "must be a whole number from 1 to 999999999")


def _duration(said: RequestAnnotation, _: LevelNames, __: Collection[str]) -> str | FieldError:
    try:
        seconds = parse_duration(said.value)
    except DurationError as error:
        return invalid(said, str(error))
    return repr(seconds) if seconds > 0 else invalid(said, "must be more than 0s")


def _timeout(said: RequestAnnotation, _: LevelNames, __: Collection[str]) -> str | FieldError:
    if said.value == names.NONE:
        return repr(inf)
    try:
        seconds = parse_duration(said.value)
    except DurationError as error:
        return invalid(said, f"{error}, or {names.NONE}")
    if seconds == 0:
        return invalid(said, f"must be more than 0s; {names.NONE} is for no time-out")
    least, most = _TIMEOUTS
    if least <= seconds <= most:
        return repr(seconds)
    return invalid(said, f"must be from {format_duration(least)} to {format_duration(most)}, or {names.NONE}")


def _schedule_timeout(said: RequestAnnotation, levels: LevelNames, known: Collection[str]) -> str | FieldError:
    found = _duration(said, levels, known)
    if isinstance(found, FieldError) or float(found) >= _MIN_TIMEOUT:
        return found
    return invalid(said, f"must be at least {_MIN_TIMEOUT}s")


def _name(said: RequestAnnotation, _: LevelNames, __: Collection[str]) -> str | FieldError:
    if _LABEL_VALUE.fullmatch(said.value):
        return said.value
    return invalid(said, 'must be 1 to 63 letters, digits, "-", "_" or ".", starting and ending with a letter or digit')


def _host_names(said: RequestAnnotation, _: LevelNames, __: Collection[str]) -> str | FieldError:
    """Check names of nodes, separated by commas; return them sorted, each once."""
    if len(said.value) > MAX_HOST_NAMES * (MAX_HOST_NAME + 2):
        return invalid(said, f"must be at most {MAX_HOST_NAMES} names of nodes")
    hosts = sorted({part.strip(" ") for part in said.value.split(",")})
    if not all(len(host) <= MAX_HOST_NAME and _HOST_NAME.fullmatch(host) for host in hosts):
        return invalid(said, "must be names of nodes, separated by commas, such as host-7 or host-7,host-8")
    if len(hosts) > MAX_HOST_NAMES:
        return invalid(said, f"must be at most {MAX_HOST_NAMES} names of nodes, not {len(hosts)}")
    return ",".join(hosts)


def _token(said: RequestAnnotation, _: LevelNames, __: Collection[str]) -> str | FieldError:
    if _TOKEN.fullmatch(said.value):
        return said.value
    return invalid(said, 'must be "true", or 1 to 63 letters, digits, "-", "_", ".", ":" or "+", such as a time')


_CHECKS: Mapping[str, Callable[[RequestAnnotation, LevelNames, Collection[str]], str | FieldError]] = {
    names.REQUIRE: _level,
    names.PREFER: _level,
    names.SLICE_TOPOLOGY: _level,
    names.EXCLUSIVE: _level,
    names.SPREAD: _level,
    names.TOPOLOGY: _topology,
    names.UNCONSTRAINED: _flag,
    names.SLICE_SIZE: _number,
    names.SLICES: _slices,
    names.PROFILE: _profile,
    names.MIN_AVAILABLE: _number,
    names.GANG_SIZE: _number,
    names.RELAX_AFTER: _duration,
    names.SCHEDULE_TIMEOUT: _schedule_timeout,
    names.START_TIMEOUT: _timeout,
    names.RECOVER_TIMEOUT: _timeout,
    names.PREEMPTIBLE: _flag,
    names.REPLACE: _host_names,
    names.REPLAN: _token,
    names.COLOCATE: _name,
    names.SPREAD_GROUP: _name,
    names.GANG_NAME: _name,
    names.POD_GROUP: _name,
    names.DEVICE_SCOPE: _device_scope,
    names.GPU_STRATEGY: _gpu_strategy,
    names.DEVICE_SELECTOR: _device_selector,
    names.RDMA_SELECTOR: _label_selector,
    names.VF_SELECTOR: _label_selector,
    names.RDMA_SCOPE: _rdma_scope,
}
