"""The rules across fields of the policy: duplicate names, and settings that exclude each other.

They read the raw document and skip values of the wrong type, so that structural errors and errors across fields are
reported at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from engine.api import names
from engine.api.field import FieldError, path_of
from engine.api.schema import wrong
from engine.api.text import join_and, join_comma, quote
from engine.kinds.registry import RegistryError, registry_of
from engine.policy.autoscaling import autoscaling_errors
from engine.policy.fields import GANG_PODS, NAMESPACE_GANGS
from engine.policy.patterns import first_for_all
from engine.resources.names import KOORDINATOR, NVIDIA, whole_names
from engine.topology.levels import MAX_LEVELS, RESERVED_NAMES, known_levels, presets

DEFAULT_REQUESTS: Final = frozenset(
    {
        names.REQUIRE,
        names.PREFER,
        names.UNCONSTRAINED,
        names.TOPOLOGY,
        names.RELAX_AFTER,
        names.START_TIMEOUT,
        names.RECOVER_TIMEOUT,
    }
)
_LEVELLED: Final = frozenset({names.REQUIRE, names.PREFER})


def rule_errors(raw: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors across the fields of a raw policy."""
    topologies = _list(raw.get("topologies"))
    yield from _duplicates((("topologies", index, "name"), _get(spec, "name")) for index, spec in topologies)
    for index, spec in topologies:
        if isinstance(spec, dict):
            yield from _topology(("topologies", index), spec)
    for index, vendor in _list(_value_at(raw, ["gpu", "vendors"])):
        if isinstance(vendor, str):
            yield from _vendor(path_of(("gpu", "vendors", index)), vendor)
    yield from _device_kinds(_list(_value_at(raw, ["devices", "kinds"])), _list(_value_at(raw, ["gpu", "vendors"])))
    for index, default in _list(_value_at(raw, ["namespaces", "defaults"])):
        annotations = _get(default, "annotations")
        for key, value in annotations.items() if isinstance(annotations, dict) else ():
            path = path_of(("namespaces", "defaults", index, "annotations", key))
            yield from _default_request(path, key, value, levels=_level_words(topologies))
    for index, rule in _list(_value_at(raw, ["namespaces", "rules"])):
        if isinstance(rule, dict):
            yield from _namespace_rule(("namespaces", "rules", index), rule, raw, levels=_level_words(topologies))
    yield from _forbidden_defaults(raw, topologies)
    yield from _protections(raw)
    yield from autoscaling_errors(raw.get("autoscaling"), [_get(spec, "name") for _, spec in topologies])
    yield from _kinds(raw.get("kinds"))


def _topology(at: tuple[str | int, ...], spec: Mapping[str, Any]) -> Iterator[FieldError]:
    sources = [one for one in ("preset", "levels", "fromObject") if spec.get(one) is not None]
    if not sources:
        yield wrong(path_of(at), "needs one of preset, levels and fromObject", kind="Required value")
    elif len(sources) > 1:
        yield wrong(path_of(at), f"has {join_and(sources)}; exactly one is allowed", kind="Forbidden")

    levels = _list(spec.get("levels"))
    yield from _duplicates(((*at, "levels", index, "name"), _get(level, "name")) for index, level in levels)
    yield from _duplicates(
        ((*at, "levels", index, "keys", number), key)
        for index, level in levels
        for number, key in _list(_get(level, "keys"))
    )
    aliases = {name for _, level in levels if isinstance(name := _get(level, "name"), str)}
    for index, level in levels:
        if isinstance(level, dict):
            yield from _level((*at, "levels", index), level, last=index == len(levels) - 1, aliases=aliases)
    above = sum(_get(level, "name") != names.HOST_LEVEL for _, level in levels)
    if above == MAX_LEVELS + 1:
        yield wrong(path_of((*at, "levels")), f"has {above} levels above the host; at most {MAX_LEVELS} are allowed")


def _level(
    at: tuple[str | int, ...], level: Mapping[str, Any], *, last: bool, aliases: set[str]
) -> Iterator[FieldError]:
    name, keys = level.get("name"), _list(level.get("keys"))
    if name == names.HOST_LEVEL:
        if not last:
            yield wrong(path_of((*at, "name")), f"{quote(name)} can only be the last level; it is always there")
        if any(key != names.HOSTNAME for _, key in keys):
            yield wrong(path_of((*at, "keys")), "the level host goes by node name; leave its keys out")
        return
    if isinstance(name, str) and name in RESERVED_NAMES:
        yield wrong(path_of((*at, "name")), f"{quote(name)} is a value of requests; use another name")
    if level.get("keys") in (None, []):
        yield wrong(path_of((*at, "keys")), "is required: the node label keys of the level", kind="Required value")
    for number, key in keys:
        where = path_of((*at, "keys", number))
        if key == names.HOSTNAME:
            yield wrong(where, f"{key} is the level host, which is always there; leave this one out")
        elif isinstance(key, str) and key != name and key in aliases:
            yield wrong(where, f"{quote(key)} is also the name of another level; a request could mean both")


def _default_request(path: str, key: Any, value: Any, *, levels: frozenset[str] | None) -> Iterator[FieldError]:
    if key not in DEFAULT_REQUESTS:
        yield wrong(
            path, f"is not a request that a namespace can make; use one of {join_comma(sorted(DEFAULT_REQUESTS))}"
        )
    elif key in _LEVELLED and levels is not None and isinstance(value, str) and value not in levels:
        yield wrong(path, f"{quote(value)} is not a level of this policy's topologies")
    elif key == names.UNCONSTRAINED and value != "true":
        yield wrong(path, 'can only be "true"')


_LIMITS: Final = (
    ("maxGangPods", "maxGangPods", GANG_PODS),
    ("maxWaitingGangs", "maxNamespaceGangs", NAMESPACE_GANGS),
)


def _namespace_rule(
    at: tuple[str | int, ...], rule: Mapping[str, Any], raw: Mapping[str, Any], *, levels: frozenset[str] | None
) -> Iterator[FieldError]:
    if rule.get("allow") is False:
        for key in ("levels", "maxGangPods", "maxWaitingGangs", "maxReservedHosts"):
            if rule.get(key) is not None:
                yield wrong(path_of((*at, key)), "has no effect with allow: false; remove it", kind="Forbidden")
        return
    for number, word in _list(rule.get("levels")):
        path = path_of((*at, "levels", number))
        if word == names.AUTO:
            yield wrong(
                path, f"{quote(word)} is not a level; requests may always use it for the lowest allowed level that fits"
            )
        elif isinstance(word, str) and levels is not None and word not in levels:
            yield wrong(path, f"{quote(word)} is not a level of this policy's topologies")
    for key, whole, default in _LIMITS:
        limit, of_all = rule.get(key), _value_at(raw, ["queue", whole])
        bound = default if of_all is None else of_all
        if isinstance(limit, int) and isinstance(bound, int) and limit > bound:
            yield wrong(path_of((*at, key)), f"must be at most queue.{whole} ({bound:,}); got {limit:,}")


def _forbidden_defaults(raw: Mapping[str, Any], topologies: list[tuple[int, Any]]) -> Iterator[FieldError]:
    """Yield errors for default requests that the rule of all their namespaces forbids."""
    rules = [rule for _, rule in _list(_value_at(raw, ["namespaces", "rules"]))]
    patterns = [[one for _, one in _list(_get(rule, "namespaces")) if isinstance(one, str)] for rule in rules]
    same = _level_synonyms(topologies)
    for index, default in _list(_value_at(raw, ["namespaces", "defaults"])):
        annotations = _get(default, "annotations")
        for number, pattern in _list(_get(default, "namespaces")):
            place = first_for_all(pattern, patterns) if isinstance(pattern, str) else None
            if place is None:
                continue
            where = path_of(("namespaces", "defaults", index, "namespaces", number))
            if _get(rules[place], "allow") is False:
                yield wrong(where, f"namespaces.rules[{place}] allows no requests there, so no default either")
                continue
            allowed = {
                word for _, name in _list(_get(rules[place], "levels")) for word in same.get(str(name), {str(name)})
            }
            for key in sorted(_LEVELLED) if allowed and isinstance(annotations, dict) else ():
                value = annotations.get(key)
                if isinstance(value, str) and value != names.AUTO and value in same and value not in allowed:
                    path = path_of(("namespaces", "defaults", index, "annotations", key))
                    yield wrong(path, f"{quote(value)} is not among the levels of namespaces.rules[{place}]")


def _level_synonyms(topologies: list[tuple[int, Any]]) -> dict[str, set[str]]:
    """Return every known word for a level with all words that may mean the same one."""
    levels = [{names.HOST_LEVEL, names.HOSTNAME}]
    used = {str(_get(spec, "preset")) for _, spec in topologies} if topologies else set(presets())
    levels += [{level.name, *level.keys} for name, preset in presets().items() if name in used for level in preset]
    for _, spec in topologies:
        for _, one in _list(_get(spec, "levels")):
            levels.append({str(_get(one, "name")), *(str(key) for _, key in _list(_get(one, "keys")))})
    found: dict[str, set[str]] = {}
    for words in levels:
        for word in words:
            found.setdefault(word, set()).update(words)
    return found


def _level_words(topologies: list[tuple[int, Any]]) -> frozenset[str] | None:
    """Return the words that may name a level; None when a topology's levels are known only in the cluster."""
    words = {names.AUTO, names.HOST_LEVEL, names.HOSTNAME}
    for _, spec in topologies:
        if _get(spec, "fromObject") is not None:
            return None
        for level in presets().get(str(_get(spec, "preset")), ()):
            words |= {level.name, *level.keys}
        for _, one in _list(_get(spec, "levels")):
            words |= {str(_get(one, "name")), *(str(key) for _, key in _list(_get(one, "keys")))}
    return frozenset(words) if topologies else known_levels() | words


def _protections(raw: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield errors for a preemption that can preempt nothing, and for moves that can move nothing."""
    for section, done in (("preemption", "preempted"), ("defragment", "restarted")):
        if _value_at(raw, [section, "mode"]) in (None, "never"):
            continue
        for number, pattern in _list(_value_at(raw, [section, "protect", "namespaces"])):
            if isinstance(pattern, str) and pattern and not pattern.strip("*"):
                path = path_of((section, "protect", "namespaces", number))
                yield wrong(path, f"protects every namespace, so nothing can be {done}; use {section}.mode: never")


def _kinds(entries: Any) -> Iterator[FieldError]:
    if isinstance(entries, list):
        try:
            registry_of(entries)
        except RegistryError as refused:
            yield from refused.errors


def _vendor(path: str, name: str) -> Iterator[FieldError]:
    if name == NVIDIA:
        yield wrong(path, f"{name} is always counted; leave it out")
    elif name in KOORDINATOR:
        yield wrong(path, f"{name} does not count whole GPUs; leave it out")
    elif "/" not in name or name.partition("/")[0].endswith("kubernetes.io"):
        yield wrong(path, f"{quote(name)} is not a resource of a device plugin, such as amd.com/gpu")


def _device_kinds(kinds: list[tuple[int, Any]], vendors: list[tuple[int, Any]]) -> Iterator[FieldError]:
    yield from _duplicates((("devices", "kinds", index, "type"), _get(kind, "type")) for index, kind in kinds)
    listed: list[tuple[tuple[str | int, ...], Any]] = []
    for index, kind in kinds:
        at = ("devices", "kinds", index, "resources")
        resources = _get(kind, "resources")
        if not isinstance(resources, dict):
            continue
        named = [((*at, key), resources.get(key)) for key in ("whole", "core", "memoryRatio", "memory")]
        named = [(steps, name) for steps, name in named if name is not None]
        if not named:
            yield wrong(path_of(at), "needs one of whole, core, memoryRatio and memory", kind="Required value")
        for steps, name in named:
            if isinstance(name, str):
                yield from _device_resource(path_of(steps), name, vendors)
        listed += named
    yield from _duplicates(listed)


def _device_resource(path: str, name: str, vendors: list[tuple[int, Any]]) -> Iterator[FieldError]:
    if name in KOORDINATOR or name in whole_names():
        yield wrong(path, f"{name} is a resource of GPUs, RDMA or FPGA devices already; use another name")
    elif any(name == vendor for _, vendor in vendors):
        yield wrong(path, f"{name} counts whole GPUs (gpu.vendors); remove it here or there")
    elif "/" not in name or name.partition("/")[0].endswith("kubernetes.io"):
        yield wrong(path, f"{quote(name)} is not an extended resource, such as example.com/npu")


def _duplicates(values: Iterable[tuple[tuple[str | int, ...], Any]]) -> Iterator[FieldError]:
    first: dict[str, str] = {}
    for steps, value in values:
        path = path_of(steps)
        if not isinstance(value, str):
            continue
        if value in first:
            yield wrong(path, f"{quote(value)} is a duplicate (first at {first[value]})", kind="Duplicate value")
        else:
            first[value] = path


def _value_at(tree: Any, steps: list[str]) -> Any:
    for step in steps:
        tree = _get(tree, step)
    return tree


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _list(value: Any) -> list[tuple[int, Any]]:
    return list(enumerate(value)) if isinstance(value, list) else []
