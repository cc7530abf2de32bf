"""CEL paths of pod templates and of other metadata in an object, generated from the registry of kinds.

No expression depends on the object's kind: every object is searched at the template paths of all registered kinds, so
that unknown versions work, and a wrong or missing part hides none of the others. The suffix of a variable shows how
deep lists are nested: `tsss` is a list of lists of lists of templates.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.kinds.paths import ITEMS, VALUES
from engine.kinds.registry import Registry
from engine.kinds.schema import KindEntry
from webhook.configuration.cel import indented, is_identifier, nodes, text, texts


def templates(registry: Registry) -> str:
    """Return the CEL list of pod templates in `o` and the objects that it contains (`tsss`).

    It holds the mappings at each template path; of templates of pods that belong to no gang only the metadata, so that
    their scheduler or node says nothing of the gang. Objects of Kubernetes' own groups, which are many and have a
    schema, are searched only at the template paths of their kinds.
    """
    own = tuple(entry for entry in registry.entries if "." not in entry.match.group)
    groups = sorted({entry.match.group for entry in own if entry.handling != "pods"})
    if not groups or len(own) == len(registry.entries):
        return _every_template(registry)
    return f"""\
(request.kind.group in {texts(groups)} ?
{indented(_every_template(Registry(own)), 2)} :
{indented(_every_template(registry), 2)})"""


def template_paths(registry: Registry) -> Mapping[tuple[str, ...], bool]:
    """Return the distinct template paths of all placed kinds, in the order of the registry.

    True for those of pods in gangs, False where no kind has a template of such pods.
    """
    found: dict[tuple[str, ...], bool] = {}
    for spec in (spec for entry in registry.entries if entry.handling != "pods" for spec in entry.pod_sets):
        outer = spec.for_each.steps if spec.for_each is not None and not spec.template.whole else ()
        steps = (*outer, *spec.template.steps)
        found[steps] = found.get(steps, False) or spec.member == "gang"
    return found


def fields_beside_spec(registry: Registry) -> tuple[str, ...]:
    """Return the fields of objects, besides `spec`, that have pod templates or suspend the object."""
    paths = [
        *template_paths(registry),
        *(one.suspend.path.steps for one in registry.entries if one.suspend is not None),
    ]
    fields = {steps[0] for steps in paths if len(steps) > 0}
    return tuple(sorted(fields - {"metadata", "spec", ITEMS, VALUES}))


def _every_template(registry: Registry) -> str:
    flat: list[str] = []
    listed: list[str] = []
    for steps, of_gang in template_paths(registry).items():
        found, nested = nodes("s" if _in_spec(steps) else "w", steps, last=of_gang)
        if not of_gang:
            found += ".map(x, type(x) == map && has(x.metadata), dyn({'metadata': x.metadata}))"
        (listed if nested else flat).append(found)
    parts = ["[" + ",\n ".join(flat) + "]"] if flat else []
    every = " +\n".join([*parts, *listed]) or "[[]]"
    return f"""\
{_objects(registry)}.map(w, [w.?spec.orValue({{}})].map(s, type(s) == map ? s : {{}}).map(s,
  {indented(every, 2).lstrip()}
  )[0].map(ts, ts.filter(t, type(t) == map)))"""


def _objects(registry: Registry) -> str:
    """Return the CEL list of the object and the objects that it contains, as far as they are mappings."""
    found = "[o]"
    for entry in registry.entries:
        if entry.contains is not None:
            steps = (*entry.contains.for_each.steps, *entry.contains.object.steps)
            inside, _ = nodes("o", steps, last=False)
            found += f" + {inside}.filter(w, type(w) == map)"
    return found if found == "[o]" else f"({found})"


def in_made_metadata(registry: Registry, test: str) -> str | None:
    """Return the expression that `test` holds for metadata `m` of an object that is made of `o`.

    Parts of `o` that have annotations of their own count too, and for an object that is itself a workload (the Jobs of
    a CronJob) the metadata of its pod templates. Returns None if the registry has no such kinds.
    """
    makers = {
        one.match.kind: one
        for one in registry.entries
        if one.makes or one.annotated or one.configured or one.contains is not None
    }
    if not makers:
        return None
    places = "[]"
    for kind, entry in reversed(makers.items()):
        places = f"request.kind.kind == {text(kind)} ?\n{indented(_metadata(entry, registry), 2)} :\n{places}"
    return f"""\
[o.?spec.orValue({{}})].map(s, type(s) == map ? s : {{}}).exists(s,
 ({indented(places, 2).lstrip()}).exists(m, type(m) == map && (
{indented(test, 2)})))"""


def _metadata(entry: KindEntry, registry: Registry) -> str:
    paths = [spec.object.steps for spec in entry.makes]
    others = [path.steps for path in entry.annotated]
    if entry.contains is not None:
        inner = (*entry.contains.for_each.steps, *entry.contains.object.steps)
        placed = [one for one in registry.entries if one.handling == "placed" and one.contains is None]
        paths += [inner, *((*inner, *spec.object.steps) for one in placed for spec in one.makes)]
    for spec in entry.makes if entry.handling == "hint" else ():
        for made in registry.of_kind(spec.kind.group, spec.kind.kind):
            paths += [(*spec.object.steps, *one.template.steps) for one in made.pod_sets if one.for_each is None]
    found = dict.fromkeys((*((*steps, "metadata") for steps in paths), *others))
    metadata = [_nodes(steps) for steps in found]
    # Settings with keys that end with the name of an annotation: only the end of a key is tested.
    settings = [_nodes(spec.path.steps) for spec in entry.configured]
    return " +\n".join([*metadata, *(f"{one}.map(x, {{'annotations': x}})" for one in settings)])


def _nodes(steps: tuple[str, ...]) -> str:
    """Return the nodes at a path of `o`, whose spec is `s`."""
    return nodes("s" if _in_spec(steps) else "o", steps, last=False)[0]


def _in_spec(steps: tuple[str, ...]) -> bool:
    # `[?s[?'in']]` would do for other names, if it did not crash the API server's type checker (cel-go 0.26).
    return len(steps) > 1 and steps[0] == "spec" and is_identifier(steps[1])
