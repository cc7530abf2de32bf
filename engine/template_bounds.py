"""How much a template may say: what a review, a forecast and a plan cost grows with it, and others wait meanwhile.

No real workload comes near these numbers; the API server itself bounds only the bytes of an object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.api.field import FieldError, path_of
from engine.api.pod import SelectorTerm, Shape
from engine.api.workload import Workload

MAX_CONTAINERS: Final = 256  # of one pod, init containers among them
MAX_ALL_CONTAINERS: Final = 1_024  # of all templates of an object
MAX_REQUIREMENTS: Final = 256  # of a nodeSelector, of a node affinity (its terms count too), tolerations
MAX_VALUES: Final = 4_096  # of a node affinity: lists of host names are long
_OURS: Final = 2  # matchFields of a term that are not counted: the pin of a placed pod is one


def template_errors(workload: Workload) -> Iterator[FieldError]:
    """Yield what there is too much of in the templates of a workload."""
    templates = {one.path: one.template for one in workload.pod_sets}
    for path, template in templates.items():
        spec, shape = path_of((*path, "spec")), template.shape
        terms = shape.affinity or ()
        affinity = f"{spec}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        for field, what, found, most in (
            (f"{spec}.containers", "containers and init containers", template.containers, MAX_CONTAINERS),
            (f"{spec}.nodeSelector", "labels", len(shape.node_selector), MAX_REQUIREMENTS),
            (f"{spec}.tolerations", "tolerations", len(shape.tolerations), MAX_REQUIREMENTS),
            (affinity, "terms and requirements", requirements(terms), MAX_REQUIREMENTS),
            (affinity, "values", _values(terms), MAX_VALUES),
        ):
            if found > most:
                yield _too_many(field, f"{found:,} {what}; a template may have {most:,}")
    found = sum(template.containers for template in templates.values())
    if len(templates) > 1 and found > MAX_ALL_CONTAINERS:
        yield _too_many("spec", f"{found:,} containers in all templates; a workload may have {MAX_ALL_CONTAINERS:,}")


def requirements(terms: tuple[SelectorTerm, ...]) -> int:
    """How much there is to be checked on each node for node affinity."""
    return sum(1 + len(term.expressions) + max(0, len(term.fields) - _OURS) for term in terms)


def checks(shape: Shape) -> int:
    """How much there is to be checked on each node to say whether it takes pods of a shape."""
    return 1 + len(shape.node_selector) + len(shape.tolerations) + requirements(shape.affinity or ())


def _values(terms: tuple[SelectorTerm, ...]) -> int:
    return sum(len(one.values) for term in terms for one in (*term.expressions, *term.fields))


def _too_many(field: str, message: str) -> FieldError:
    return FieldError(field=field, kind="Too many", value=None, reason="InvalidValue", message=message)
