"""What a workload asks for: one pod set with its levels, or everything that is wrong with the request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine import names
from engine.annotations import (
    AUTO,
    Said,
    Source,
    asks_in_pod_group_labels,
    check,
    invalid,
    read,
    unknown_keys,
)
from engine.aside import standing_aside
from engine.levels import LevelNames, choose_topology, level_names
from engine.outcomes import FieldError
from engine.policy import Policy
from engine.records import PodSetRequest, Workload
from engine.shapes import shape_hash
from engine.topology import Topology
from engine.wording import joined, plural

MAIN = "main"
"""The pod set of a kind that has only one."""

_POD_GROUP_ONLY = "pod-group labels alone ask for nothing yet; add topogate.dev/unconstrained-topology: true"
_ASKING = frozenset({names.REQUIRE, names.PREFER, names.UNCONSTRAINED, names.SLICE_TOPOLOGY})
_UNBUILT = {
    names.COLOCATE: "colocation is not available in this version; remove it",
    names.RELAX_AFTER: "relaxing a required level is not available in this version; use prefer-topology instead",
    names.GANG_NAME: "gangs of plain pods are not available in this version; use one Job for the gang",
    names.GANG_SIZE: "gangs of plain pods are not available in this version; use one Job for the gang",
}


@dataclass(frozen=True, slots=True)
class Understanding:
    """A workload's request: `ask` (with `topology`), or `errors` (ordered by path), or `ignored` (a reason code).

    `warnings` are sentences for the user, without a prefix.
    """

    ask: PodSetRequest | None = None
    topology: str | None = None
    errors: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()
    ignored: str | None = None


def understand(
    workload: Workload,
    *,
    policy: Policy,
    topologies: Mapping[str, Topology],
    own_namespace: str = names.NAMESPACE,
) -> Understanding:
    """Read the request of a workload under a policy; all errors at once, nothing raised.

    Annotations of the workload (the whole gang) and of its template (the pod set) are folded, as there is one pod set.
    The rules: docs/concepts/admission.md.
    """
    sources = _sources(workload)
    said = read(sources, dialects=policy.annotations.dialects)
    strange = tuple(unknown_keys(sources))
    warnings: tuple[str, ...] = ()
    if not said and not strange:
        if asks_in_pod_group_labels(sources, dialects=policy.annotations.dialects) and not standing_aside(
            workload, policy=policy, own_namespace=own_namespace
        ):
            warnings = (_POD_GROUP_ONLY,)
        return Understanding(ignored="NoTopologyRequested", warnings=warnings)
    aside = standing_aside(workload, policy=policy, own_namespace=own_namespace)
    if aside is not None:
        return Understanding(ignored=aside)

    errors: list[FieldError] = []
    if policy.annotations.unknown == "deny":
        errors.extend(strange)
    else:
        warnings = tuple(f"{error.field}: {error.message}" for error in strange)
    if not errors and all(one.about == names.UNCONSTRAINED and one.value == "false" for one in said):
        return Understanding(ignored="NoTopologyRequested", warnings=warnings)

    chosen = _topology(said, workload, policy=policy, topologies=topologies)
    levels = level_names(policy, topologies, chosen)
    meanings, value_errors = _fold(said, levels=levels, topologies=topologies)
    errors += [*value_errors, *_bounds(workload, policy)]
    errors += _not_built(said, meanings, workload)
    errors += [*_contradictions(said, meanings, levels), *_slice_errors(said, meanings, levels, workload)]
    if said and not any(one.about in _ASKING for one in said):
        errors.append(_asks_for_no_level(said[0]))
    if errors:
        return Understanding(errors=tuple(sorted(set(errors), key=_order)), warnings=warnings)
    ask = PodSetRequest(
        name=MAIN,
        count=workload.slots,
        min_available=workload.slots,
        require=meanings.get(names.REQUIRE),
        prefer=meanings.get(names.PREFER),
        ranked=workload.pod_sets[0].ranked,
        shape_hash=shape_hash(workload.template.shape),
        unconstrained=names.REQUIRE not in meanings and names.PREFER not in meanings,
        slices=_slices(meanings),
    )
    if ask.slices and not workload.pod_sets[0].ranked:
        level, size = ask.slices[0]
        warnings = (*warnings, f"pods without an index have no order: each {level} gets a multiple of {size} of them")
    if workload.template.unmodelled:
        unseen = joined(workload.template.unmodelled)
        warnings = (*warnings, f"{unseen} of the pods are not planned for: the scheduler may refuse a chosen host")
    return Understanding(ask=ask, topology=chosen, warnings=warnings)


def path_of(workload: Workload, about: str, *, policy: Policy) -> str:
    """The JSON path of the annotation by which the workload says something about a key, an alias perhaps."""
    said = read(_sources(workload), dialects=policy.annotations.dialects)
    return next((one.field for one in said if one.about == about), f"metadata.annotations[{about}]")


def _sources(workload: Workload) -> tuple[Source, ...]:
    return (
        Source("metadata", workload.annotations, workload.labels),
        Source("spec.template.metadata", workload.template.annotations, workload.template.labels),
    )


def _topology(
    said: Iterable[Said], workload: Workload, *, policy: Policy, topologies: Mapping[str, Topology]
) -> str | None:
    named = [one.value for one in said if one.about == names.TOPOLOGY]
    if named:
        return next((name for name in named if name in topologies), None)
    return choose_topology(policy, topologies, workload.template.shape.node_selector)


def _fold(
    said: Iterable[Said], *, levels: LevelNames, topologies: Mapping[str, Topology]
) -> tuple[dict[str, str], list[FieldError]]:
    """One meaning per key; a second, different meaning of the same key is a conflict."""
    first: dict[str, Said] = {}
    meanings: dict[str, str] = {}
    errors: list[FieldError] = []
    for one in sorted(said, key=lambda one: one.key != one.about):  # of two that differ the alias is to blame
        meaning = check(one, levels=levels, topologies=tuple(topologies))
        if isinstance(meaning, FieldError):
            errors.append(meaning)
        elif meanings.setdefault(one.about, meaning) != meaning:
            errors.append(_conflict(one, f"says something else than {first[one.about].field}; keep one of them"))
        else:
            first.setdefault(one.about, one)
    return meanings, errors


def _not_built(said: Iterable[Said], meanings: Mapping[str, str], workload: Workload) -> Iterable[FieldError]:
    for one in said:
        if one.about not in meanings:
            continue
        if one.about in _UNBUILT:
            yield _unavailable(one.field, _UNBUILT[one.about])
        elif one.about == names.MIN_AVAILABLE and one.value == meanings[one.about] != str(workload.slots):
            yield _unavailable(
                one.field,
                f"a gang smaller than its Job is not available in this version; use {workload.slots} or remove it",
            )


def _contradictions(said: Iterable[Said], meanings: Mapping[str, str], levels: LevelNames) -> Iterable[FieldError]:
    by_key = {one.about: one for one in reversed(tuple(said))}
    require, prefer = meanings.get(names.REQUIRE), meanings.get(names.PREFER)
    if meanings.get(names.UNCONSTRAINED) == "true" and (require or prefer):
        other = names.REQUIRE if require else names.PREFER
        yield _conflict(by_key[names.UNCONSTRAINED], f"asks for no level, but {by_key[other].field} asks for one")
    if require and prefer and require != AUTO and not levels.coarser(require, prefer):
        yield _conflict(
            by_key[names.PREFER],
            f"must be a finer level than the required one ({require}); remove it or prefer a finer level",
        )


def _slices(meanings: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    level = meanings.get(names.SLICE_TOPOLOGY)
    return () if level is None else ((level, int(meanings[names.SLICE_SIZE])),)


def _slice_errors(
    said: Iterable[Said], meanings: Mapping[str, str], levels: LevelNames, workload: Workload
) -> Iterable[FieldError]:
    by_key = {one.about: one for one in reversed(tuple(said))}
    of_level, of_size = by_key.get(names.SLICE_TOPOLOGY), by_key.get(names.SLICE_SIZE)
    if of_level is not None and of_size is None:
        yield _missing(of_level, names.SLICE_SIZE, "needs the number of pods of a slice beside it")
    if of_size is not None and of_level is None:
        yield _missing(of_size, names.SLICE_TOPOLOGY, "needs the level of a slice beside it")
    level, size = meanings.get(names.SLICE_TOPOLOGY), meanings.get(names.SLICE_SIZE)
    require = meanings.get(names.REQUIRE)
    if of_level is not None and level and require and require != AUTO and levels.coarser(level, require):
        yield _conflict(of_level, f"must not be a coarser level than the required one ({require})")
    if of_size is not None and size and workload.slots % int(size):
        yield invalid(
            of_size,
            f"must divide the {plural(workload.slots, 'pod')} of the gang (spec.parallelism)",
            reason="SegmentNotDivisor",
        )


def _missing(one: Said, key: str, message: str) -> FieldError:
    return FieldError(
        field=one.field.replace(one.key, key),
        kind="Required value",
        value=None,
        reason="MissingValue",
        message=f"{one.key} {message}",
    )


def _bounds(workload: Workload, policy: Policy) -> Iterable[FieldError]:
    if workload.slots > policy.queue.max_gang_pods:
        yield FieldError(
            field="spec.parallelism",
            kind="Invalid value",
            value=str(workload.slots),
            reason="GangLimitExceeded",
            message=f"a gang has at most {policy.queue.max_gang_pods:,} pods (policy queue.maxGangPods)",
        )


def _asks_for_no_level(one: Said) -> FieldError:
    return FieldError(
        field=f"metadata.annotations[{names.REQUIRE}]",
        kind="Required value",
        value=None,
        reason="MissingValue",
        message=f"{one.key} needs a level beside it: require-topology, prefer-topology or unconstrained-topology",
    )


def _conflict(one: Said, message: str) -> FieldError:
    return invalid(one, message, reason="ConflictingAnnotations")


def _unavailable(field: str, message: str) -> FieldError:
    return FieldError(field=field, kind="Forbidden", value=None, reason="FeatureNotAvailable", message=message)


def _order(error: FieldError) -> tuple[str, str, str]:
    return (error.field, error.reason, error.message)
