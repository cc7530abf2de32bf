"""Where in an object annotations stand that are neither its own nor its templates', in CEL, out of the registry."""

from __future__ import annotations

from engine.kinds.registry import Registry
from engine.kinds.schema import KindEntry
from webhook.cel import indented, nodes, text


def made_says(registry: Registry, test: str) -> str | None:
    """Return the expression that `test` holds for some metadata `m` of what is made of `o`, or for another part of it
    that has annotations; None without such kinds.

    Of what is a workload by itself (the Jobs of a CronJob) the metadata of the pod templates counts too.
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
    return f"({indented(places, 1).lstrip()}).exists(m, type(m) == map && (\n{indented(test, 2)}))"


def _metadata(entry: KindEntry, registry: Registry) -> str:
    paths = [spec.object.steps for spec in entry.makes]
    others = [path.steps for path in entry.annotated]
    if entry.contains is not None:
        paths.append((*entry.contains.for_each.steps, *entry.contains.object.steps))
    for spec in entry.makes if entry.handling == "hint" else ():
        for made in registry.of_kind(spec.kind.group, spec.kind.kind):
            paths += [(*spec.object.steps, *one.template.steps) for one in made.pod_sets if one.for_each is None]
    found = dict.fromkeys((*((*steps, "metadata") for steps in paths), *others))
    metadata = [nodes("o", steps, last=False)[0] for steps in found]
    # Settings that name annotations, which their keys end with: as far as these are told by their end.
    settings = [nodes("o", spec.path.steps, last=False)[0] for spec in entry.configured]
    return " +\n".join([*metadata, *(f"{one}.map(x, {{'annotations': x}})" for one in settings)])
