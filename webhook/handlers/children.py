"""Requests in the metadata of what a workload's controller will make: refused where they are wrong, told what they do.
Those in other parts that have annotations are told that nobody reads them.

A controller that is refused what it makes tries for ever and tells nobody who reads warnings; so its user is told when
he submits the workload that it is made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from engine.api import names
from engine.api.field import FieldError, path_of
from engine.api.workload import Workload
from engine.cluster.wire import ProjectionError
from engine.cluster.workloads import workload
from engine.gang.annotations import AnnotationSource, own_source, read_annotations, unknown_keys
from engine.gang.request import parse_request
from engine.gang.warnings import misspelt, unread
from engine.kinds.children import ChildObject, annotated_parts, beside_templates, child_objects, configured_annotations
from engine.kinds.read import UnreadableWorkload
from engine.kinds.schema import KindEntry
from engine.policy.model import Policy
from webhook.admission.objects import entry_of
from webhook.admission.reader import Reader
from webhook.admission.review import Review
from webhook.handlers.devices import checked
from webhook.handlers.gating import templates
from webhook.handlers.warnings import told_of_workload

_LONGEST_PATH: Final = 60  # characters, of the 120 of a warning
_PREFIXES: Final = (f"{names.DOMAIN}/", names.KUEUE_PREFIX, names.KAI_PREFIX)


@dataclass(slots=True)
class Findings:
    """What is wrong with such requests, and warnings without a prefix."""

    errors: list[FieldError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def child_requests(
    review: Review, document: Mapping[str, Any], view: Reader, policy: Policy, *, asks: bool
) -> Findings:
    """Judge what is made of the object of a review; `asks`: the object itself does, and its request is the only one."""
    told, entry = Findings(), entry_of(review, view)
    if entry is None:
        return told
    for made in child_objects(entry, document, registry=view.registry):
        review.budget.check()
        if entry.handling != "hint" and not _speaks(made.raw):
            continue
        try:
            found = workload(made.raw, entry=made.entry, registry=view.registry)
        except (ProjectionError, UnreadableWorkload):
            continue  # whoever reads the object itself tells it
        found = replace(found, namespace=review.namespace)
        if entry.handling == "hint":
            _as_its_own(told, made, found, document, view=view, policy=policy)
            continue
        source, dialects = own_source(found), policy.annotations.dialects
        told.warnings += unread((source,), dialects=dialects)
        if read_annotations((source,), dialects=dialects) or any(unknown_keys((source,))):
            _beside_its_maker(told, made, found, asks=asks, maker=entry.match.kind, view=view, policy=policy)
    for steps, template in beside_templates(entry, document):
        if _speaks(template):
            where = f"{path_of(steps)}.metadata"
            told.warnings.append(f"{where} is of no pod of the gang: ask on the {entry.match.kind} or other templates")
    told.warnings += _not_read(entry, document, policy)
    return told


def _not_read(entry: KindEntry, document: Mapping[str, Any], policy: Policy) -> Iterator[str]:
    """Warnings about requests in parts of the object whose annotations and labels are for somebody else."""
    dialects = policy.annotations.dialects
    for steps, part in annotated_parts(entry, document):
        annotations, labels = _keys(part, "annotations"), _keys(part, "labels")
        at, none = path_of(steps), dict[str, str]()
        yield from unread((AnnotationSource(at, annotations, none),), dialects=dialects)
        for name, source in (
            ("annotations", AnnotationSource(at, annotations, none)),
            ("labels", AnnotationSource(at, none, labels)),
        ):
            meant = any(unknown_keys((source,))) or any(misspelt(source.annotations, dialects=dialects))
            if meant or read_annotations((source,), dialects=dialects):
                template = "" if entry.handling == "through" else " or on a pod template"
                yield f"{at}.{name} is not read: ask on the {entry.match.kind}{template}"
    for prefix, settings in configured_annotations(entry, document):
        for key, value in settings.items():
            source = AnnotationSource(prefix, {key: value}, {})
            if read_annotations((source,), dialects=dialects) or any(unknown_keys((source,))):
                yield f"{prefix}{key} is not read: ask in metadata"  # the longest key leaves no more room


def _keys(part: Mapping[str, Any], name: str) -> Mapping[str, str]:
    found = part.get(name)
    return found if isinstance(found, Mapping) else {}


def _speaks(raw: Mapping[str, Any]) -> bool:
    """True when a key of ours or of a dialect stands in the metadata: most objects say nothing, and are not read."""
    metadata = raw.get("metadata")
    carried = [metadata.get(part) for part in ("annotations", "labels")] if isinstance(metadata, Mapping) else []
    return any(str(key).startswith(_PREFIXES) for part in carried if isinstance(part, Mapping) for key in part)


def _as_its_own(
    told: Findings,
    made: ChildObject,
    found: Workload,
    document: Mapping[str, Any],
    *,
    view: Reader,
    policy: Policy,
) -> None:
    """What is made is a workload by itself, whatever its maker says."""
    understood = parse_request(found, policy=policy, topologies=view.topologies, own_namespace=view.own_namespace)
    at = path_of(made.steps)
    told.errors += _under(at, understood.errors)
    told.warnings += [f"{at}.{text}" if text.startswith("metadata.") else text for text in understood.warnings]
    told.warnings += told_of_workload(made.raw, found, understood.ignored, policy)
    if understood.ignored is None:
        for root in templates(found):
            errors, _ = checked(document, (*made.steps, *root), managed=True, view=view, policy=policy)
            told.errors += errors


def _beside_its_maker(
    told: Findings, made: ChildObject, found: Workload, *, asks: bool, maker: str, view: Reader, policy: Policy
) -> None:
    """The pods of what is made are the maker's, and so is a request; here it is of each made object alone, or none."""
    where = _where(made)
    if asks:
        told.warnings.append(f"{where} has no effect: ask on the {maker} or on a pod template")
        return
    understood = parse_request(found, policy=policy, topologies=view.topologies, own_namespace=view.own_namespace)
    told.errors += _under(path_of(made.steps), understood.errors)
    if understood.asking:
        told.warnings.append(f"{where} makes a gang of each {found.kind}; for one gang ask on the {maker}")


def _where(made: ChildObject) -> str:
    """Where the metadata of a made object stands; of one deep inside another, whose path no warning has room for, what
    it is and in which item of a list.
    """
    path = f"{path_of(made.steps)}.metadata"
    if len(path) <= _LONGEST_PATH:
        return path
    first = next(at for at, step in enumerate(made.steps) if isinstance(step, int))
    return f"metadata of a {made.entry.match.kind} in {path_of(made.steps[: first + 1])}"


def _under(at: str, errors: tuple[FieldError, ...]) -> Iterator[FieldError]:
    return (replace(error, field=f"{at}.{error.field}") for error in errors)
