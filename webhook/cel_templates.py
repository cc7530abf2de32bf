"""Where pod templates stand in an object, in CEL, generated from the registry of kinds.

No expression goes by kind: an object is looked through at the template paths of every registered kind, so that unknown
versions work, and a wrong or missing part hides none of the others. A suffix says how deep lists are nested: `tsss` is
a list of lists of lists of templates.
"""

from __future__ import annotations

from engine.kinds.registry import Registry
from webhook.cel import indented, nodes, plain, texts


def templates(registry: Registry) -> str:
    """Return, for each object that `o` is or contains, the templates at each path that are mappings (`tsss`).

    Objects of Kubernetes' own groups, which are many and have a schema, are looked at where their kinds have templates.
    """
    own = tuple(entry for entry in registry.entries if "." not in entry.match.group)
    groups = sorted({entry.match.group for entry in own if entry.handling != "pods"})
    if not groups or len(own) == len(registry.entries):
        return _every_template(registry)
    return f"""\
(request.kind.group in {texts(groups)} ?
{indented(_every_template(Registry(own)), 2)} :
{indented(_every_template(registry), 2)})"""


def template_paths(registry: Registry) -> tuple[tuple[str, ...], ...]:
    """Return the steps to every template of every kind that is placed, each once, in the order of the registry."""
    found = [
        (*(spec.for_each.steps if spec.for_each is not None and not spec.template.whole else ()), *spec.template.steps)
        for entry in registry.entries
        if entry.handling != "pods"
        for spec in entry.pod_sets
    ]
    return tuple(dict.fromkeys(found))


def _every_template(registry: Registry) -> str:
    flat: list[str] = []
    listed: list[str] = []
    for steps in template_paths(registry):
        # `[?s[?'in']]` would do for other names, if it did not crash the API server's type checker (cel-go 0.26).
        in_spec = len(steps) > 1 and steps[0] == "spec" and plain(steps[1])
        found, nested = nodes("s" if in_spec else "w", steps)
        (listed if nested else flat).append(found)
    parts = ["[" + ",\n ".join(flat) + "]"] if flat else []
    every = " +\n".join([*parts, *listed]) or "[[]]"
    return f"""\
{_objects(registry)}.map(w, [w.?spec.orValue({{}})].map(s, type(s) == map ? s : {{}}).map(s,
  {indented(every, 2).lstrip()}
  )[0].map(ts, ts.filter(t, type(t) == map)))"""


def _objects(registry: Registry) -> str:
    """The object and the objects that it contains, as far as they are mappings."""
    found = "[o]"
    for entry in registry.entries:
        if entry.contains is not None:
            steps = (*entry.contains.for_each.steps, *entry.contains.object.steps)
            inside, _ = nodes("o", steps, last=False)
            found += f" + {inside}.filter(w, type(w) == map)"
    return found if found == "[o]" else f"({found})"
