"""Translations carried out on values, and pods to translate."""

from __future__ import annotations

from dataclasses import replace

from engine.resources.containers import Container, PodResources
from engine.resources.translation import Translation


def applied(pod: PodResources, done: Translation) -> PodResources:
    """The pod after the edits and with the annotations."""
    annotations = dict(pod.annotations)
    for key, text in done.annotations.items():
        if text is None:
            del annotations[key]
        else:
            annotations[key] = text

    def edited(one: Container) -> Container:
        sides = {"requests": dict(one.requests), "limits": dict(one.limits)}
        for edit in done.edits:
            if edit.path[:2] == one.path:
                assert edit.path[2] == "resources"
                side = sides[str(edit.path[3])]
                if edit.value is None:
                    del side[str(edit.path[4])]
                else:
                    side[str(edit.path[4])] = edit.value
        return replace(one, requests=sides["requests"], limits=sides["limits"])

    return replace(pod.map(edited), annotations=annotations)


def pod_of(
    *containers: dict[str, object], init: tuple[dict[str, object], ...] = (), **annotations: str
) -> PodResources:
    """A pod of containers that give limits only; those of `init` run first."""
    return PodResources(
        tuple(Container(f"c{at}", ("containers", at), {}, limits) for at, limits in enumerate(containers)),
        tuple(Container(f"i{at}", ("initContainers", at), {}, limits) for at, limits in enumerate(init)),
        annotations,
    )
