"""Checks requests in the metadata of objects that a workload's controller will create: errors and warnings.

Requests in other parts with annotations get a warning that they are not read. A controller that is refused its children
retries for ever, and its warnings have no reader; so the user is warned when submitting the workload.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from engine.api import names
from engine.api.field import FieldError, path_of
from engine.api.text import MAX_WARNING
from engine.api.workload import Workload
from engine.decoding.wire import ProjectionError
from engine.decoding.workloads import workload
from engine.gang.annotations import AnnotationSource, own_source, pod_group_of, read_annotations, unknown_keys
from engine.gang.request import parse_request
from engine.gang.warnings import misspelt, unread
from engine.kinds.children import (
    ChildObject,
    annotated_parts,
    beside_templates,
    child_objects,
    configured_annotations,
    unread_objects,
)
from engine.kinds.paths import Steps
from engine.kinds.read import UnreadableWorkload
from engine.kinds.schema import KindEntry
from engine.policy.model import Policy
from webhook.admission.objects import entry_of
from webhook.admission.reader import Reader
from webhook.admission.review import Review
from webhook.rules.devices import device_findings
from webhook.rules.gating import templates
from webhook.rules.warnings import workload_warnings

_LONGEST_PATH: Final = 60  # characters, of the 120 of a warning
_LONGEST: Final = MAX_WARNING - len("topogate: ")
_PREFIXES: Final = (names.PREFIX, names.KUEUE_PREFIX, names.KAI_PREFIX)


@dataclass(slots=True)
class Findings:
    """Errors and warnings about such requests; the warnings have no prefix."""

    errors: list[FieldError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def child_requests(
    review: Review, document: Mapping[str, Any], view: Reader, policy: Policy, *, asks: bool
) -> Findings:
    """Return the findings about the children of a review's object; `asks`: the object itself makes the only request."""
    findings, entry = Findings(), entry_of(review, view)
    asking: list[Steps] = [()] if asks else []
    if entry is None:
        return findings
    for made in child_objects(entry, document, registry=view.registry):
        review.budget.check()
        if entry.handling != "hint" and not _has_our_key(made.raw):
            continue
        try:
            found = workload(made.raw, entry=made.entry, registry=view.registry)
        except (ProjectionError, UnreadableWorkload):
            continue  # reported when the object itself is read
        found = replace(found, namespace=review.namespace)
        if entry.handling == "hint":
            _check_own_workload(findings, made, found, document, view=view, policy=policy)
            continue
        source, dialects = own_source(found), policy.annotations.dialects
        findings.warnings += unread((source,), dialects=dialects)
        if read_annotations((source,), dialects=dialects) or any(unknown_keys((source,))):
            above = any(made.steps[: len(steps)] == steps for steps in asking)
            if _check_part_of_gang(findings, made, found, asks=above, maker=entry.match.kind, view=view, policy=policy):
                asking.append(made.steps)
    for steps, template in beside_templates(entry, document):
        if _mentions_placement(template.get("metadata"), policy):
            where = f"{path_of(steps)}.metadata"
            findings.warnings.append(
                f"{where} belongs to no pod of the gang: set it on the {entry.match.kind} or other templates"
            )
    unknown = unread_objects(entry, document, registry=view.registry)
    findings.warnings += _not_read(entry, document, (*annotated_parts(entry, document), *unknown), policy)
    return findings


def _not_read(
    entry: KindEntry,
    document: Mapping[str, Any],
    parts: Iterable[tuple[Steps, Mapping[str, Any]]],
    policy: Policy,
) -> Iterator[str]:
    """Yield warnings about requests in parts of the object with annotations and labels for another reader."""
    dialects = policy.annotations.dialects
    for steps, part in parts:
        annotations, labels = texts_in(part, "annotations"), texts_in(part, "labels")
        at, none = path_of(steps), dict[str, str]()
        yield from unread((AnnotationSource(at, annotations, none),), dialects=dialects)
        for name, source in (
            ("annotations", AnnotationSource(at, annotations, none)),
            ("labels", AnnotationSource(at, none, labels)),
        ):
            if _asks(source, dialects):
                yield _ignored(steps, name, entry)
    for prefix, settings in configured_annotations(entry, document):
        for key, value in settings.items():
            source = AnnotationSource(prefix, {key: value}, {})
            if read_annotations((source,), dialects=dialects) or any(unknown_keys((source,))):
                yield f"{prefix}{key} is ignored: set it in metadata"  # the longest key leaves no space for more


def _asks(source: AnnotationSource, dialects: Sequence[str]) -> bool:
    """Return True if annotations or labels make a request, or were probably meant to."""
    return (
        any(unknown_keys((source,)))
        or any(misspelt(source.annotations, dialects=dialects))
        or any(pod_group_of((source,), dialects=dialects))
        or bool(read_annotations((source,), dialects=dialects))
    )


def _mentions_placement(metadata: object, policy: Policy) -> bool:
    """Return True if metadata makes a request, or has keys of another system for one that are not read."""
    if not isinstance(metadata, Mapping):
        return False
    dialects = policy.annotations.dialects
    source = AnnotationSource("", texts_in(metadata, "annotations"), texts_in(metadata, "labels"))
    return _asks(source, dialects) or any(unread((source,), dialects=dialects))


def _ignored(steps: Steps, name: str, entry: KindEntry) -> str:
    """Return the warning about a part that is not read; one that is too long says where by the first list alone."""
    advice = f"ignored: set it on the {entry.match.kind}"
    text = f"{path_of(steps)}.{name} is {advice}"
    if len(text) > _LONGEST:
        first = next((at for at, step in enumerate(steps) if isinstance(step, int)), 0)
        text = f"{name} in {path_of(steps[: first + 1])} are {advice}"
    longer = text if entry.handling == "through" else f"{text} or on a pod template"
    return longer if len(longer) <= _LONGEST else text


def texts_in(part: Mapping[str, Any], name: str) -> Mapping[str, str]:
    """Return the annotations or labels of a part of an object; a value that is no text counts as empty."""
    found = part.get(name)
    items = found.items() if isinstance(found, Mapping) else ()
    return {key: value if isinstance(value, str) else "" for key, value in items}


def _has_our_key(raw: Mapping[str, Any]) -> bool:
    """Return True if the metadata has a key of ours or of a dialect: most objects have none, and are not decoded."""
    metadata = raw.get("metadata")
    carried = [metadata.get(part) for part in ("annotations", "labels")] if isinstance(metadata, Mapping) else []
    keys = (key for part in carried if isinstance(part, Mapping) for key in part)
    return any(str(key).startswith(_PREFIXES) or key in names.UNREAD_KEYS for key in keys)


def _check_own_workload(
    findings: Findings,
    made: ChildObject,
    found: Workload,
    document: Mapping[str, Any],
    *,
    view: Reader,
    policy: Policy,
) -> None:
    """Add the findings about a child that is a workload of its own, independent of its parent's request."""
    understood = parse_request(found, policy=policy, topologies=view.topologies, own_namespace=view.own_namespace)
    at = path_of(made.steps)
    findings.errors += _under(at, understood.errors)
    findings.warnings += [f"{at}.{text}" if text.startswith("metadata.") else text for text in understood.warnings]
    findings.warnings += workload_warnings(made.raw, found, understood.ignored, policy)
    if understood.ignored is None:
        for root in templates(found):
            errors, _ = device_findings(document, (*made.steps, *root), managed=True, view=view, policy=policy)
            findings.errors += errors


def _check_part_of_gang(
    findings: Findings, made: ChildObject, found: Workload, *, asks: bool, maker: str, view: Reader, policy: Policy
) -> bool:
    """Add the findings about a child of a gang, where a request makes one gang per child or has no effect.

    The pods of the child, and their request, belong to the parent. `asks`: an object above it makes the request that
    counts. Returns True if the child's does.
    """
    where = _where(made)
    if asks:
        findings.warnings.append(f"{where} has no effect: set it on the {maker} or on a pod template")
        return False
    understood = parse_request(found, policy=policy, topologies=view.topologies, own_namespace=view.own_namespace)
    findings.errors += _under(path_of(made.steps), understood.errors)
    if understood.asking:
        findings.warnings.append(f"{where} makes a gang of each {found.kind}; for one gang set it on the {maker}")
    return understood.asked is not None


def _where(made: ChildObject) -> str:
    """Return the path of a child's metadata; if it is too long for a warning, the kind and the item of the list."""
    path = f"{path_of(made.steps)}.metadata"
    if len(path) <= _LONGEST_PATH:
        return path
    first = next(at for at, step in enumerate(made.steps) if isinstance(step, int))
    return f"metadata of a {made.entry.match.kind} in {path_of(made.steps[: first + 1])}"


def _under(at: str, errors: tuple[FieldError, ...]) -> Iterator[FieldError]:
    return (replace(error, field=f"{at}.{error.field}") for error in errors)
