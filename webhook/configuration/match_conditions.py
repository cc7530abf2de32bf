"""CEL match conditions that decide which workloads are sent to the service, generated from the registry.

An object that asks for nothing must never be sent, an object that the code leaves alone must not depend on the service,
and a condition that fails refuses everybody's objects under failurePolicy Fail (`webhook.configuration.cel`).
Conditions of pods are in `webhook.configuration.pod_conditions`, paths of templates in
`webhook.configuration.cel_templates`, exemptions in `webhook.configuration.exemption_conditions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from engine.api import names
from engine.gang.warnings import (
    GANG_PREFIX,
    GROUP_ANNOTATIONS,
    GROUP_LABELS,
    LIKE_A_LEVEL,
    LIKE_AN_ALIAS,
    LIKE_OUR_PREFIX,
    READ_ELSEWHERE,
    WITHOUT_PREFIX,
)
from engine.kinds.registry import Registry
from engine.kinds.schema import KindEntry
from webhook.configuration import first_look
from webhook.configuration.cel import all_of, any_of, filled, indented, negated, nodes, text, texts
from webhook.configuration.cel_templates import fields_beside_spec, in_made_metadata, templates
from webhook.configuration.exemption_conditions import DEFAULT_SCHEDULERS, of_other_schedulers, workload_exempt

NOTES: Final = texts(names.NOTE_ANNOTATIONS)
ALIASES: Final = texts(key for dialect in names.ALIASES.values() for key in dialect)
MISPLACED: Final = texts([*(key for dialect in names.ALIASES.values() for key in dialect), *sorted(GROUP_ANNOTATIONS)])
UNREAD: Final = texts(sorted(key for dialect in names.UNREAD.values() for key in dialect))
OWNED_ANNOTATIONS: Final = texts(sorted(names.OWNED_ANNOTATIONS))
OWNED_LABELS: Final = texts(sorted(names.OWNED_LABELS))
_READ: Final = texts(sorted(key for key in READ_ELSEWHERE if re.search(f"{LIKE_A_LEVEL}|{LIKE_AN_ALIAS}", key)))
_ALIAS_PREFIXES: Final = (names.KUEUE_PREFIX, names.KAI_PREFIX)
_PREFIXES: Final = (names.PREFIX, names.KUEUE_PREFIX, names.KAI_PREFIX, names.POD_GROUP_PREFIX)
# Keys with other prefixes whose change concerns us: what they say counts, or (unread) gets a warning.
_COUNTED: Final = texts(
    sorted(
        {
            *names.EXCLUSIVE_TOPOLOGY,
            *(key for dialect in names.ALIASES.values() for key in dialect if not key.startswith(_PREFIXES)),
        }
    )
)
_GROUPS_ELSEWHERE: Final = (names.KOORDINATOR_GANG_NAME, names.SCHEDULER_PLUGINS_POD_GROUP)
_UNREAD_ELSEWHERE: Final = texts(
    sorted(
        {
            *_GROUPS_ELSEWHERE,  # read when the object is created, and never again
            *(key for dialect in names.UNREAD.values() for key in dialect if not key.startswith(_PREFIXES)),
        }
    )
)
# As in `engine.gang.annotations.requests_something`.
_FLAGS: Final = texts(names.FLAGS)


def requests(annotations: str) -> str:
    """Return the condition that the key `k` of these annotations is not one that requests nothing with its value."""
    return f"!(k in {_FLAGS} && {annotations}[k] == 'false')"


def taken_back(annotations: str) -> str:
    """Return the condition that one of these annotations takes back what pod-group labels request."""
    return f"{_FLAGS}.exists(k, k in {annotations} && {annotations}[k] == 'false')"


NOT_BEING_DELETED: Final = "!has(object.metadata.deletionTimestamp)"

_LABELLED: Final = f"""\
[?m.?labels].exists(l, type(l) == map && (
  '{names.REQUESTS_PLACEMENT}' in l || l.exists(k, k.startsWith('{names.PREFIX}'))))"""
# Any key of ours, so that a misspelt one is seen too; what translation wrote asks for nothing.
_OURS: Final = f"""\
[?m.?annotations].exists(a, type(a) == map && a.exists(k, k.startsWith('{names.PREFIX}') && !(k in {NOTES}))) ||
{_LABELLED}"""
_MARKS: Final = f"""\
[?m.?annotations].exists(a, type(a) == map && a.exists(k, k in {OWNED_ANNOTATIONS} && !(k in {NOTES}))) ||
[?m.?labels].exists(l, type(l) == map && {OWNED_LABELS}.exists(k, k in l))"""
_OURS_REQUESTING: Final = f"""\
[?m.?annotations].exists(a, type(a) == map && a.exists(k, k.startsWith('{names.PREFIX}') && !(k in {NOTES}) &&
  {requests("a")})) ||
{_LABELLED}"""
# Labels of a pod group ask when a workload is created, and never again; one without a name is none.
_GROUP: Final = f"""\
(request.operation == 'CREATE' && (
  [?m.?labels].exists(l, type(l) == map && (
    {filled(names.POD_GROUP_NAME, "l")} ||
    {filled(names.SCHEDULER_PLUGINS_POD_GROUP, "l")})) ||
  [?m.?annotations].exists(a, type(a) == map &&
    {filled(names.KOORDINATOR_GANG_NAME, "a")})))"""
_ALIAS: Final = f"""\
{_GROUP} ||
[?m.?annotations].exists(a, type(a) == map && {ALIASES}.exists(k, k in a))"""
_ALIAS_REQUESTING: Final = f"""\
[?m.?annotations].exists(a, type(a) == map && {ALIASES}.exists(k, k in a && {requests("a")}))"""
_TAKEN_BACK: Final = f"[?m.?annotations].exists(a, type(a) == map && {taken_back('a')})"
_GATED: Final = f"""\
[?t.?spec].exists(p, type(p) == map && [?p.?schedulingGates].exists(gs, type(gs) == list &&
  gs.exists(g, type(g) == map && has(g.name) && g.name == '{names.GATE}')))"""

# Our keys under another prefix or none (`topogate.io/require-topology`), and keys that Kueue and KAI do not have. The
# first comparison of each line is cheap and rarely true: an object may have thousands of keys.
FOREIGN: Final = f"""\
(k.startsWith('topogate') && !k.startsWith('{names.PREFIX}')) ||
k in {texts(sorted({*WITHOUT_PREFIX, *GROUP_LABELS}))} ||
(k.startsWith('{GANG_PREFIX}') && !(k in {texts(sorted(GROUP_ANNOTATIONS))})) ||
(k.startsWith('t') && k.matches({text(LIKE_OUR_PREFIX)}) && !k.startsWith('{names.PREFIX}')) ||
((k.contains('top') || k.contains('Top') || {texts(_ALIAS_PREFIXES)}.exists(p, k.startsWith(p))) &&
 (k.matches({text(LIKE_A_LEVEL)}) ||
  k.matches({text(LIKE_AN_ALIAS)})) &&
 !k.startsWith('{names.PREFIX}') && !(k in {_READ}))"""
_MEANT: Final = f"""\
[?m.?annotations].exists(a, type(a) == map && (
  {UNREAD}.exists(k, k in a) ||
  a.exists(k, (k.startsWith('{names.PREFIX}') && !(k in {OWNED_ANNOTATIONS})) ||
{indented(FOREIGN, 4)}))) ||
[?m.?labels].exists(l, type(l) == map && (
  {MISPLACED}.exists(k, k in l) || l.exists(k, k.startsWith('{names.POD_GROUP_PREFIX}')) ||
  l.exists(k, k.startsWith('{names.PREFIX}') && !(k in {OWNED_LABELS})))) ||
(request.operation == 'UPDATE' &&
  [?m.?annotations, ?m.?labels].exists(a, type(a) == map && {texts(_GROUPS_ELSEWHERE)}.exists(k, k in a)))"""


def named(name: str) -> str:
    """Return the condition that the object has this name."""
    return f"has(object.metadata.name) && object.metadata.name == {text(name)}"


def not_ours(username: str) -> str:
    """Return the condition that excludes requests of the service itself."""
    return f"request.userInfo.username != {text(username)}"


def changed(registry: Registry, *, foreign: bool = False) -> str:
    """Return the condition that an update changes the spec or a key that we read; true for other operations.

    So does a change of another field of the object that has templates or suspends a kind of the registry. With
    `foreign` True a changed key that resembles one of ours, or that is known and ignored, counts too.
    """
    beside = "".join(
        f" ||\n{nodes('object', (field,), last=False)[0]} !=\n  {nodes('oldObject', (field,), last=False)[0]}"
        for field in fields_beside_spec(registry)
    )
    other = f" || k in {_UNREAD_ELSEWHERE} ||\n{indented(FOREIGN, 6)}" if foreign else ""
    return f"""\
request.operation != 'UPDATE' || object.?spec != oldObject.?spec{beside} ||
[[object, oldObject], [oldObject, object]].exists(p,
  [[p[0].metadata.?annotations.orValue({{}}), p[1].metadata.?annotations.orValue({{}})],
   [p[0].metadata.?labels.orValue({{}}), p[1].metadata.?labels.orValue({{}})]].exists(q,
    q[0].exists(k, !(k in q[1] && q[0][k] == q[1][k]) && (
      {texts(_PREFIXES)}.exists(prefix, k.startsWith(prefix)) || k in {_COUNTED}{other}))))"""


def controlled_by(entries: Iterable[KindEntry]) -> str:
    """Return the condition that the object's controller is of one of these kinds, in any version."""
    kinds = " ||\n  ".join(
        f"o.kind == {text(entry.match.kind)} && o.apiVersion.startsWith({text(entry.match.group + '/')})"
        for entry in entries
    )
    return f"""\
object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && (
  {kinds}))"""


# Conditions of workloads test who sends the request right after the first look: the leader's own PATCH of every gang
# passes the look, and the rest of a condition costs the API server as much as the review that it spares.


def asks(registry: Registry, schedulers: Iterable[str] = DEFAULT_SCHEDULERS, *, username: str) -> str:
    """Return the condition that a workload makes a request or carries our marks, and that we do not send it ourselves.

    A request is a key of ours or of another dialect on a workload that is not exempt. Marks are removed or guarded. At
    an UPDATE the old object counts too, because taking back a request concerns us. `schedulers` are those that are
    served.
    """
    served = negated(workload_exempt(registry, tuple(schedulers)))
    whole = _of_any(registry, all_of(_REQUESTED, any_of(_MARKED, served)))
    return all_of(*first_look.of_workload(registry), not_ours(username), whole)


def asks_of_schedulers(registry: Registry, schedulers: Iterable[str], *, username: str) -> str:
    """Return the condition that a requesting workload uses a scheduler that the manifests do not know.

    `schedulers` are all that are served.
    """
    unknown = of_other_schedulers(registry, DEFAULT_SCHEDULERS)
    served = negated(workload_exempt(registry, tuple(schedulers)))
    whole = _of_any(registry, all_of(_REQUESTED, unknown, negated(_MARKED), served))
    return all_of(*first_look.of_workload(registry), not_ours(username), whole)


def requests_nothing(registry: Registry, schedulers: Iterable[str]) -> str:
    """Return the condition that a new workload makes no request in any dialect and is not exempt."""
    requested_or_exempt = any_of(_MENTIONED, workload_exempt(registry, tuple(schedulers)))
    return negated(_of_any(registry, requested_or_exempt, of="[object]"))


def left_alone_or_names_devices(
    registry: Registry, schedulers: Iterable[str] = DEFAULT_SCHEDULERS, *, username: str
) -> str:
    """Return the condition that a workload seems to make a request but does not meet `asks`, or names devices.

    Devices: a container names a resource of Koordinator, on a workload without a request for a topology; an update
    counts if it changes a template. A new workload that the entry of `asks` has just labelled is left out at once.

    For hint kinds every request counts, and no devices. So does a request in the metadata of an object that its
    controller will make, or in a part that is not read. An update counts if it changes what this is about.

    The templates are searched once, `pairs` has each object with its own: the API server's time for compiling grows
    with the square of the number of paths.
    """
    made = in_made_metadata(registry, any_of(_MEANT, _ALIAS))
    meant = [_in_metadata(_MEANT), *((made,) if made is not None else ())]
    served = negated(workload_exempt(registry, tuple(schedulers)))
    # A workload that meets `asks` is sent by the entry of that condition, if the change concerns it.
    not_asking = negated(all_of(changed(registry), _of_pairs("pairs", all_of(_REQUESTED, any_of(_MARKED, served)))))
    hints = [entry for entry in registry.entries if entry.handling == "hint"]
    not_labelled = negated(
        f"request.operation == 'CREATE' && has(object.metadata.labels) && "
        f"'{names.REQUESTS_PLACEMENT}' in object.metadata.labels"
    )
    named = [_DEVICES, negated(_MANAGED), "(request.operation != 'UPDATE' || pairs[0][1] != pairs[1][1])"]
    if hints:
        only_hint = f"request.kind.kind in {texts(sorted({one.match.kind for one in hints}))}"
        meant.append(all_of(only_hint, _in_metadata(_ALIAS)))
        not_asking, not_labelled = any_of(only_hint, not_asking), any_of(only_hint, not_labelled)
        if only := _of_resources(registry, hints):  # one version of a kind may be placed, and another a hint
            named.append(negated(only))
    test = any_of(all_of(*named), all_of(any_of(*meant), not_asking, changed(registry, foreign=True)))
    return all_of(
        *first_look.of_workload_or_devices(registry),
        not_ours(username),
        not_labelled,
        NOT_BEING_DELETED,
        f"""\
[[object, oldObject].filter(o, o != null).map(o, [dyn(o), dyn(
{indented(templates(registry), 2)})])].exists(pairs,
{indented(_of_pairs("[pairs[0]]", test), 2)})""",
    )


def _of_resources(registry: Registry, entries: Iterable[KindEntry]) -> str:
    """Return the condition that the object's resource is that of these entries, and of no other entry that is sent."""
    found = {(one.match.group, one.match.resource) for one in entries}
    found -= {(one.match.group, one.match.resource) for one in registry.entries if one.handling not in ("hint", "pods")}
    return " ||\n".join(
        f"(request.resource.group == {text(group)} && request.resource.resource == {text(resource)})"
        for group, resource in sorted(found)
    )


def in_namespaces(patterns: Iterable[str]) -> str:
    """Return the condition that the namespace matches one of these names or patterns (`*`: any part of a name)."""
    words = "|".join(pattern.replace("*", "[-a-z0-9]*") for pattern in sorted(set(patterns)))
    return f"request.namespace.matches('^({words})$')"


def first_match(entries: Sequence[tuple[Iterable[str], bool]], *, others: bool) -> str:
    """Return the condition of a namespace by the first entry that matches it; `others`: of those without an entry."""
    groups: list[tuple[list[str], bool]] = []
    for patterns, holds in entries:
        if groups and groups[-1][1] == holds:
            groups[-1][0].extend(patterns)
        else:
            groups.append(([*patterns], holds))
    while groups and groups[-1][1] == others:
        groups.pop()
    found = _boolean(others)
    for patterns, holds in reversed(groups):
        found = f"({in_namespaces(patterns)} ? {_boolean(holds)} :\n{indented(found, 1)})"
    return found


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _in_metadata(test: str) -> str:
    return f"msss.exists(mss, mss.exists(ms, ms.exists(m,\n{indented(test, 2)})))"


def _in_templates(test: str) -> str:
    return f"tsss.exists(tss, tss.exists(ts, ts.exists(t,\n{indented(test, 2)})))"


_MANAGED: Final = _in_templates(f"""\
[?t.?metadata].exists(m, type(m) == map && [?m.?labels].exists(l, type(l) == map && '{names.MANAGED}' in l))""")
_DEVICES: Final = _in_templates(f"""\
[?t.?spec].exists(p, type(p) == map && [?p.?containers, ?p.?initContainers].exists(cs, type(cs) == list &&
  cs.exists(c, type(c) == map && [?c.?resources].exists(r, type(r) == map &&
    [?r.?requests, ?r.?limits].exists(r, type(r) == map && {first_look.counted(())})))))""")
_MARKED: Final = any_of(_in_metadata(_MARKS), _in_templates(_GATED))
_MENTIONED: Final = any_of(_in_metadata(_OURS), _in_templates(_GATED), _in_metadata(_ALIAS))
_REQUESTED: Final = any_of(
    _in_metadata(_OURS_REQUESTING),
    _in_templates(_GATED),
    _in_metadata(_ALIAS_REQUESTING),
    all_of(_in_metadata(_GROUP), negated(_in_metadata(_TAKEN_BACK))),
)


def _of_any(registry: Registry, test: str, *, of: str = "[object, oldObject]") -> str:
    """Return the condition that `test` holds for any of these objects, with templates `tsss`, metadata `msss`."""
    return f"""\
{of}.exists(o, o != null &&
  [
{indented(templates(registry), 4)}
  ].exists(tsss,
{indented(_with_metadata(test), 4)}))"""


def _of_pairs(pairs: str, test: str) -> str:
    """Return the condition that `test` holds for the object of any of these pairs, like `_of_any`."""
    return f"""\
{pairs}.exists(pair, [pair[0]].exists(o, [pair[1]].exists(tsss,
{indented(_with_metadata(test), 2)})))"""


def _with_metadata(test: str) -> str:
    return f"""\
[[[[o.metadata]]] + tsss.map(tss, tss.map(ts,
  ts.map(t, has(t.metadata) && type(t.metadata) == map, t.metadata)))].exists(msss,
{indented(test, 2)})"""
