"""CEL conditions that decide which objects are sent to the service, generated from the registry of kinds.

An object that asks for nothing must never be sent, and a condition that fails refuses everybody's objects under
failurePolicy Fail. Custom resources need not have a schema, so every node is looked at only after its type: `has` and
`.?` fail on a list, `exists` on a text. No condition goes by kind: an object is looked through at the template paths of
every registered kind, so that unknown versions work, and a wrong or missing part hides none of the others.

In the expressions a suffix says how deep lists are nested: `tss` is a list of lists of templates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from engine import names
from engine.kinds.paths import ITEMS, VALUES
from engine.kinds.registry import Registry
from engine.kinds.schema import KindEntry

_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
# Words that are no field names in CEL: they go in brackets.
_RESERVED: Final = frozenset(
    (
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let"),
        *("loop", "null", "package", "namespace", "return", "true", "var", "void", "while"),
    )
)
_NOTES: Final = f"['{names.ORIGINAL_REQUESTS}', '{names.GPU_REQUEST}']"
_ALIASES: Final = ", ".join(f"'{key}'" for dialect in names.ALIASES.values() for key in dialect)
_PREFIXES: Final = ", ".join(
    f"'{prefix}'" for prefix in (f"{names.DOMAIN}/", names.KUEUE_PREFIX, names.KAI_PREFIX, names.POD_GROUP_PREFIX)
)

_LINE: Final = "\n"
NOT_BEING_DELETED: Final = "!has(object.metadata.deletionTimestamp)"

# Any key of ours, so that a misspelt one is seen too; what translation wrote asks for nothing.
_OURS: Final = f"""\
[?m.?annotations].exists(a, type(a) == map && a.exists(k, k.startsWith('{names.DOMAIN}/') &&
  !(k in {_NOTES}))) ||
[?m.?labels].exists(l, type(l) == map && l.exists(k, k.startsWith('{names.DOMAIN}/')))"""
_ALIAS: Final = f"""\
[?m.?labels].exists(l, type(l) == map && '{names.POD_GROUP_NAME}' in l) ||
[?m.?annotations].exists(a, type(a) == map && [{_ALIASES}].exists(k, k in a))"""
_QUEUED: Final = f"[?m.?labels, ?m.?annotations].exists(l, type(l) == map && '{names.KUEUE_QUEUE}' in l)"

CHANGED: Final = f"""\
request.operation != 'UPDATE' || object.?spec != oldObject.?spec ||
[[object, oldObject], [oldObject, object]].exists(p,
  [[p[0].metadata.?annotations.orValue({{}}), p[1].metadata.?annotations.orValue({{}})],
   [p[0].metadata.?labels.orValue({{}}), p[1].metadata.?labels.orValue({{}})]].exists(q,
    q[0].exists(k, [{_PREFIXES}].exists(prefix, k.startsWith(prefix)) &&
      !(k in q[1] && q[0][k] == q[1][k]))))"""


# Pods have a schema: their fields are of the right type where they are there.
_HELD: Final = f"object.spec.?schedulingGates.orValue([]).exists(g, g.name == '{names.GATE}')"
POD_NOT_HELD: Final = f"!{_HELD}"
POD_MANAGED_OR_HELD: Final = f"'{names.MANAGED}' in object.metadata.?labels.orValue({{}}) ||\n{_HELD}"
POD_FREE: Final = """\
!has(object.spec.nodeName) && !object.metadata.?ownerReferences.orValue([]).exists(o,
  o.kind == 'DaemonSet' && o.?controller.orValue(false))"""
POD_ASKS: Final = f"""\
object.metadata.?annotations.orValue({{}}).exists(k, k.startsWith('{names.DOMAIN}/') &&
  !(k in {_NOTES})) ||
(!('{names.KUEUE_QUEUE}' in object.metadata.?labels.orValue({{}})) &&
 !object.spec.?schedulingGates.orValue([]).exists(g, g.name.startsWith('{names.KUEUE_GATE_PREFIX}')) &&
 ('{names.POD_GROUP_NAME}' in object.metadata.?labels.orValue({{}}) ||
  [{_ALIASES}].exists(k, k in object.metadata.?annotations.orValue({{}}))))"""


def pod_names_devices(resources: Iterable[str] = ()) -> str:
    """The condition of pods with a container that names a resource of Koordinator, or one of `resources`."""
    return f"""\
[object.spec.containers, object.spec.?initContainers.orValue([])].exists(cs,
  cs.exists(c, [c.?resources.?requests.orValue({{}}), c.?resources.?limits.orValue({{}})].exists(r,
    {_counted(resources)})))"""


def named(name: str) -> str:
    """The condition of objects of one name."""
    return f"has(object.metadata.name) && object.metadata.name == {_text(name)}"


def not_ours(username: str) -> str:
    """The condition that keeps out what the service itself asks for."""
    return f"request.userInfo.username != {_text(username)}"


def pod_writes_or_names_devices() -> str:
    """The condition of pods that say which devices they have, or that name devices and are ours to place."""
    return f"""\
'{names.DEVICE_ALLOCATED}' in object.metadata.?annotations.orValue({{}}) ||
({POD_FREE.replace(_LINE, _LINE + " ")} &&
 {pod_names_devices().replace(_LINE, _LINE + " ")})"""


def all_of(*expressions: str) -> str:
    """The condition that all of these hold; the API server stops at the first that does not.

    Of the conditions of one entry it evaluates every one, whatever the others say: what is dear goes after what mostly
    does not hold, in one expression.
    """
    return " &&\n".join(f"({_indented(text, 1).lstrip()})" for text in expressions)


def controlled_by(entries: Iterable[KindEntry]) -> str:
    """The condition of objects whose controller reference names an object of one of these kinds, in any version."""
    kinds = " ||\n  ".join(
        f"o.kind == {_text(entry.match.kind)} && o.apiVersion.startsWith({_text(entry.match.group + '/')})"
        for entry in entries
    )
    return f"""\
object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && (
  {kinds}))"""


def asks(registry: Registry) -> str:
    """The condition of workloads that ask: by a key of ours or our gate, or, unless Kueue has them, by an alias.

    Looked at are the object and, at an UPDATE, what it was before: a request that is taken back concerns us too.
    """
    return f"""\
[object, oldObject].exists(o, o != null &&
{_indented(_bound(registry), 2)}
    msss.exists(mss, mss.exists(ms, ms.exists(m,
{_indented(_OURS, 6)}))) ||
    tsss.exists(tss, tss.exists(ts, ts.exists(t,
{_indented(_gate(f"g.name == '{names.GATE}'"), 6)}))) ||
    (!msss.exists(mss, mss.exists(ms, ms.exists(m,
{_indented(_QUEUED, 6)}))) &&
     !tsss.exists(tss, tss.exists(ts, ts.exists(t,
{_indented(_gate(f"type(g.name) == string && g.name.startsWith('{names.KUEUE_GATE_PREFIX}')"), 6)}))) &&
     msss.exists(mss, mss.exists(ms, ms.exists(m,
{_indented(_ALIAS, 6)})))))))"""


def asks_nothing(registry: Registry) -> str:
    """The opposite of `asks`."""
    return f"!({asks(registry)})"


def in_namespaces(patterns: Iterable[str]) -> str:
    """The condition of objects in namespaces of these names or patterns (`*` stands for any part of a name)."""
    words = "|".join(pattern.replace("*", "[-a-z0-9]*") for pattern in sorted(set(patterns)))
    return f"request.namespace.matches('^({words})$')"


def not_managed(registry: Registry) -> str:
    """The condition of workloads of which no template is marked as the gang's."""
    return f"""\
![object].exists(o,
{_indented(_templates(registry), 2)}.exists(tss, tss.exists(ts, ts.exists(t,
    [?t.?metadata].exists(m, type(m) == map && [?m.?labels].exists(l, type(l) == map && '{names.MANAGED}' in l))))))"""


def templates_changed(registry: Registry) -> str:
    """The condition of updates that change a template, and of everything that is no update."""
    return f"""\
request.operation != 'UPDATE' || [[object, oldObject].map(o,
{_indented(_templates(registry), 2)}
)].exists(p, p[0] != p[1])"""


def names_devices(registry: Registry, *, resources: Iterable[str] = ()) -> str:
    """The condition of workloads with a container that names a resource of Koordinator, or one of `resources`."""
    return f"""\
[object].exists(o,
{_indented(_templates(registry), 2)}.exists(tss, tss.exists(ts, ts.exists(t,
    [?t.?spec].exists(p, type(p) == map && [?p.?containers, ?p.?initContainers].exists(cs, type(cs) == list &&
      cs.exists(c, type(c) == map && [?c.?resources].exists(r, type(r) == map &&
        [?r.?requests, ?r.?limits].exists(r, type(r) == map && {_counted(resources)})))))))))"""


def _counted(resources: Iterable[str]) -> str:
    listed = sorted(set(resources))
    if listed:
        return f"[{', '.join(map(_text, listed))}].exists(k, k in r)"
    return "r.exists(k, k.startsWith('koordinator.sh/'))"


def _gate(test: str) -> str:
    return f"""\
[?t.?spec].exists(p, type(p) == map && [?p.?schedulingGates].exists(gs, type(gs) == list &&
  gs.exists(g, type(g) == map && has(g.name) && {test})))"""


def _bound(registry: Registry) -> str:
    """Gives an object's templates as `tsss` and all metadata as `msss`; two brackets stay open."""
    inside = _objects(registry)
    own = inside if inside == "[o]" else f"{inside}.filter(w, has(w.metadata) && type(w.metadata) == map)"
    return f"""\
[
{_indented(_templates(registry), 2)}
].exists(tsss, [[[{own}.map(w, w.metadata)]] + tsss.map(tss, tss.map(ts,
  ts.map(t, has(t.metadata) && type(t.metadata) == map, t.metadata)))].exists(msss,"""


def _templates(registry: Registry) -> str:
    """For each object the templates at each path that are mappings.

    Objects of Kubernetes' own groups, which are many and have a schema, are looked at where their kinds have templates.
    """
    own = tuple(entry for entry in registry.entries if "." not in entry.match.group)
    groups = sorted({entry.match.group for entry in own if entry.handling != "pods"})
    if not groups or len(own) == len(registry.entries):
        return _every_template(registry)
    return f"""\
(request.kind.group in [{", ".join(map(_text, groups))}] ?
{_indented(_every_template(Registry(own)), 2)} :
{_indented(_every_template(registry), 2)})"""


def _every_template(registry: Registry) -> str:
    flat: list[str] = []
    listed: list[str] = []
    for steps in template_paths(registry):
        # `[?s[?'in']]` would do for other names, if it did not crash the API server's type checker (cel-go 0.26).
        in_spec = len(steps) > 1 and steps[0] == "spec" and _plain(steps[1])
        text, nested = _pipeline("s" if in_spec else "w", steps)
        (listed if nested else flat).append(text)
    parts = ["[" + ",\n ".join(flat) + "]"] if flat else []
    every = " +\n".join([*parts, *listed]) or "[[]]"
    return f"""\
{_objects(registry)}.map(w, [w.?spec.orValue({{}})].map(s, type(s) == map ? s : {{}}).map(s,
  {_indented(every, 2).lstrip()}
  )[0].map(ts, ts.filter(t, type(t) == map)))"""


def _objects(registry: Registry) -> str:
    """The object and the objects that it contains, as far as they are mappings."""
    found = "[o]"
    for entry in registry.entries:
        if entry.contains is not None:
            steps = (*entry.contains.for_each.steps, *entry.contains.object.steps)
            text, _ = _pipeline("o", steps, last=False)
            found += f" + {text}.filter(w, type(w) == map)"
    return found if found == "[o]" else f"({found})"


def template_paths(registry: Registry) -> tuple[tuple[str, ...], ...]:
    """The steps to every template of every kind that is placed, each once, in the order of the registry."""
    found = [
        (*(spec.for_each.steps if spec.for_each is not None and not spec.template.whole else ()), *spec.template.steps)
        for entry in registry.entries
        if entry.handling != "pods"
        for spec in entry.pod_sets
    ]
    return tuple(dict.fromkeys(found))


def _pipeline(start: str, steps: tuple[str, ...], *, last: bool = True) -> tuple[str, bool]:
    """The nodes at a path as a CEL list, and True when it is a list of lists: one for what the last star iterates.

    With `last` False every star is flattened. Before its first star a path leads to at most one node.
    """
    stars = sum(step in (ITEMS, VALUES) for step in steps)
    text, closing, nested, seen = f"[{start}]", "", False, 0
    if start == "s":
        text, steps = f"[?s.?{steps[1]}]", steps[2:]
    for step in steps:
        if step in (ITEMS, VALUES):
            seen += 1
            kind, items = ("list", "x") if step == ITEMS else ("map", "x.map(k, x[k])")
            if last and seen == stars:
                text += f".filter(x, type(x) == {kind}).map(x, {items}"
                closing, nested = ")", True
            else:
                text = f"({text}.filter(x, type(x) == {kind}).map(x, {items}) + [[]])[0]"
        else:
            text += f".map(x, type(x) == map && {_there('x', step)}, {_child('x', step)})"
    return text + closing, nested


def _plain(step: str) -> bool:
    return _NAME.fullmatch(step) is not None and step not in _RESERVED


def _there(of: str, step: str) -> str:
    return f"has({of}.{step})" if _plain(step) else f"{_text(step)} in {of}"


def _child(of: str, step: str) -> str:
    return f"{of}.{step}" if _plain(step) else f"{of}[{_text(step)}]"


def _text(value: str) -> str:
    """A CEL string; JSON escapes are CEL escapes."""
    return f"'{value}'" if re.fullmatch(r"[-_.:/a-zA-Z0-9]*", value) else json.dumps(value, ensure_ascii=False)


def _indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line for line in text.split("\n"))
