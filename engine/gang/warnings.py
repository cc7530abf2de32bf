"""Warnings about a request: settings without full effect, misspelt keys, unread keys of other tools. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from engine.api import names
from engine.api.placement import GangRequest, PodSetRequest
from engine.api.text import join_and, plural, quote, sanitize, suggest
from engine.api.workload import Workload
from engine.gang.annotations import NATIVE_DIALECT, POD_GROUP_DIALECT, AnnotationSource, RequestScope, pod_group_of
from engine.policy.making_room import DefragmentRules, PreemptionRules
from engine.resources.hints import read_hint
from engine.topology.choice import LevelNames

_PREFIX: Final = names.API_GROUP.partition(".")[0]
_MAX_WARNINGS: Final = 4  # users do not read more
_MAX_KEY: Final = 50  # with the longest key that may be meant, a warning has at most 120 characters
_MAX_VALUE: Final = 16  # of a label's value; the warning has 120 characters
_MAX_NAME: Final = 63  # of a key, after its prefix; templates of custom resources may have longer ones
_MOST_COMPARED: Final = 64  # keys of one object, each with all of ours
_OURS: Final = tuple(sorted(key.partition("/")[2] for key in names.REQUEST_KEYS))
_ALIASES: Final = {
    dialect: tuple(sorted(key.partition("/")[2] for key in keys)) for dialect, keys in names.ALIASES.items()
}
READ_ELSEWHERE: Final = frozenset(key for keys in (*names.ALIASES.values(), *names.UNREAD.values()) for key in keys)

_POD_GROUP: Final = frozenset({names.POD_GROUP_NAME, names.POD_GROUP_MIN})
# Keys of a pod group that its own system reads as labels, and as annotations.
GROUP_LABELS: Final = frozenset({*_POD_GROUP, names.SCHEDULER_PLUGINS_POD_GROUP})
GROUP_ANNOTATIONS: Final = frozenset(
    {names.KOORDINATOR_GANG_NAME, names.KOORDINATOR_GANG_MIN, names.KOORDINATOR_GANG_WAIT}
)
GANG_PREFIX: Final = "gang.scheduling.koordinator.sh/"
_GANG: Final = tuple(sorted(key.removeprefix(GANG_PREFIX) for key in GROUP_ANNOTATIONS))
# Keys that are compared with ours. `webhook.configuration.match_conditions` sends no review for others alone, and reads
# the patterns as RE2.
LIKE_A_LEVEL: Final = "(^|/)(pod-?[sS]et[-_]?)?(slice[-_]?)?(req|rqe|rqu|pref|perfe|unc)[a-zA-Z]*[-_.]?[tT]op[a-z]*$"
LIKE_OUR_PREFIX: Final = "^t[a-z-]{1,6}ga?te?[a-z0-9.-]*/"
LIKE_AN_ALIAS: Final = "^(kueue[.]x-k8s[.]io/pod-?[sS]et[-_]|kai[.]scheduler/(seg|.*top))"
_LEVEL: Final = re.compile(LIKE_A_LEVEL)
_MISSPELT_PREFIX: Final = re.compile(LIKE_OUR_PREFIX)
_ALIAS: Final = re.compile(LIKE_AN_ALIAS)
# Our names that are compared without any prefix; the others are words of everybody.
WITHOUT_PREFIX: Final = frozenset(_OURS) - {"pod-group", "profile", "replace", "replan", "slices", "topology"}

# The text after the key; with the key and our prefix a warning has at most 120 characters.
HELP: Final[Mapping[str, str]] = {
    "volcano.sh/network-topology-mode": "is ignored: use topology: hypernodes, with require- or prefer-topology",
    "volcano.sh/network-topology-highest-tier": "is ignored: use topology: hypernodes with require-topology",
    "gang.scheduling.koordinator.sh/network-topology-spec": "is ignored: use require- or prefer-topology",
    "scheduling.koordinator.sh/network-topology-selector": f"is ignored: use {names.GANG_NAME}",
    names.DEVICE_ALLOCATE_HINT: "is ignored without a request for a topology",
    names.DEVICE_JOINT_ALLOCATE: "is ignored without a request for a topology",
    "scheduling.koordinator.sh/gpu-partition-spec": "is ignored: use device-scope",
    "volcano.sh/numa-topology-policy": "is ignored: use device-scope",
    "volcano.sh/task-topology-affinity": "is ignored: use colocate",
    "volcano.sh/task-topology-anti-affinity": "is ignored: pods of one gang are not kept apart",
    "volcano.sh/task-topology-task-order": "is ignored: all pods of a gang are placed at once",
    "volcano.sh/sla-waiting-time": "is ignored: gangs wait by priority, then by age",
    "sla-waiting-time": "is ignored: gangs wait by priority, then by age",
    # Read in JobSet's `constructJob`: only beside its exclusive-topology, with which the JobSet is not ours.
    "alpha.jobset.sigs.k8s.io/node-selector": "is ignored, also by JobSet, without its exclusive-topology",
    "scheduling.volcano.sh/group-name": f"is ignored: use {names.POD_GROUP}",
    "scheduling.volcano.sh/group-min-member": f"is ignored: use {names.MIN_AVAILABLE}",
    "scheduling.k8s.io/group-name": f"is ignored: use {names.POD_GROUP}",
    "gang.scheduling.koordinator.sh/network-topology-index": "is ignored: ranks follow the index of the kind",
    "gang.scheduling.koordinator.sh/groups": f"is ignored: use one {names.POD_GROUP} for all of them",
    "gang.scheduling.koordinator.sh/mode": "is ignored: a gang starts together or not at all",
    "gang.scheduling.koordinator.sh/match-policy": "is ignored: pods that run or have ended count",
    "pod-group.scheduling.sigs.k8s.io/match-policy": "is ignored: pods that run or have ended count",
    "scheduling.koordinator.sh/numa-topology-spec": "is ignored: use device-scope",
    "scheduling.koordinator.sh/reservation-affinity": "is ignored: Koordinator's reservations are unknown here",
    "kueue.x-k8s.io/pod-index-offset": "is ignored: ranks follow the index of the kind",
    "kueue.x-k8s.io/pod-group-total-count": f"is ignored without a queue: use {names.GANG_NAME} and gang-size",
    "kueue.x-k8s.io/pod-group-pod-index-label": "is ignored: ranks follow the index of the kind",
    "kueue.x-k8s.io/job-min-parallelism": f"is ignored: use {names.MIN_AVAILABLE}",
    "pod-group-name": f"is ignored: use {names.POD_GROUP}",
    "gpu-fraction": "is ignored, so the pods request no GPU: use koordinator.sh/gpu",
    "gpu-fraction-num-devices": "is ignored: use koordinator.sh/gpu",
    "gpu-memory": "is ignored, so the pods request no GPU: use koordinator.sh/gpu-memory",
    "kueue.x-k8s.io/podset-topology-spreading": f"is ignored: use {names.SPREAD} and spread-group",
    "kai.scheduler/segment-size": "is ignored without segment-topology-required-placement",
    "kai.scheduler/segment-topology-preferred-placement": "is ignored: slices can only require a level",
    "kai.scheduler/pod-index-label": "is ignored: ranks follow the index of the kind",
    "kai.scheduler/batch-min-member": f"is ignored: use {names.MIN_AVAILABLE}",
}


def request_warnings(
    workload: Workload,
    scopes: Sequence[RequestScope],
    asks: Sequence[PodSetRequest],
    gang: GangRequest | None,
    *,
    gang_wide: Mapping[str, str],
    keeps_incomplete: bool,
    preemption: PreemptionRules,
    defragment: DefragmentRules,
    group: int | None,
    levels: LevelNames,
    dialects: Collection[str],
    longest_wait: float | None,
) -> Iterator[str]:
    """Yield the warnings about a request that has no errors.

    `asks` and `gang` were parsed from `scopes`; `gang_wide`: what was said of the gang as a whole, by key;
    `keeps_incomplete`: the policy never restarts an incomplete gang; `group`: the minimum of its pod group, if it is in
    one; `longest_wait`: how long its schedule-timeout lets it wait at a time (seconds).
    """
    yield from _slices(asks)
    if longest_wait is not None and longest_wait <= float(gang_wide.get(names.RELAX_AFTER, "-inf")):
        yield "relax-after has no effect: the schedule-timeout ends the wait before"
    if (
        names.RELAX_AFTER in gang_wide
        and not any(ask.require for ask in asks)
        and (gang is None or gang.require is None)
    ):
        yield "relax-after has no effect without require-topology: no level is required"
    if float(gang_wide.get(names.RELAX_AFTER, "inf")) < 1:
        yield "relax-after of less than a second relaxes at once: 1ms is a millisecond, 1m a minute"
    yield from _timeouts(workload, gang_wide, keeps_incomplete=keeps_incomplete)
    yield from _preemptible(gang_wide, preemption, defragment)
    yield from _separation(workload, gang_wide, levels)
    yield from _unshared_domains(asks, scopes)
    yield from _minimum(workload, scopes)
    if group is not None and group > workload.slots and workload.handling != "pods":
        pods = plural(workload.slots, "pod")
        yield f"its pod group starts with {group:,} pods and this {workload.kind} has {pods}: it waits for others"
    if POD_GROUP_DIALECT in dialects:
        yield from _pod_group_minimum(workload, asks, gang, group)
    yield from _not_planned_for(workload)


def _timeouts(workload: Workload, gang_wide: Mapping[str, str], *, keeps_incomplete: bool) -> Iterator[str]:
    """Warn of time-outs after which nothing can happen but a report."""
    if not workload.suspendable:
        for key in sorted({names.START_TIMEOUT, names.RECOVER_TIMEOUT} & gang_wide.keys()):
            yield f"{key} only reports: a {workload.kind} cannot be suspended, so it keeps its slots"
    elif names.RECOVER_TIMEOUT in gang_wide and keeps_incomplete:
        yield "recover-timeout has no effect: the policy keeps incomplete gangs (incomplete: keep)"


def _preemptible(gang_wide: Mapping[str, str], rules: PreemptionRules, moves: DefragmentRules) -> Iterator[str]:
    """Warn of a gang that is not to be preempted, where the policy preempts none or does not honour that."""
    if gang_wide.get(names.PREEMPTIBLE) != "false" or rules.protect.annotated or moves.protect.annotated:
        return
    if rules.mode == "never":
        yield "preemptible has no effect: the policy preempts no gangs (preemption.mode: never)"
    else:
        yield "preemptible has no effect: gangs cannot opt out (policy preemption.protect.annotated: false)"


def _separation(workload: Workload, gang_wide: Mapping[str, str], levels: LevelNames) -> Iterator[str]:
    """Warn of a spread-topology that keeps nothing apart, or nothing that exclusive-topology would not."""
    spread, exclusive = gang_wide.get(names.SPREAD), gang_wide.get(names.EXCLUSIVE)
    if spread is None:
        return
    if workload.group_label is None and workload.unit != "child" and names.SPREAD_GROUP not in gang_wide:
        yield f"spread-topology has no effect: the {workload.kind} is one gang; add {names.SPREAD_GROUP}"
    elif exclusive is not None and (exclusive == spread or levels.coarser(exclusive, spread)):
        yield f"spread-topology adds nothing: exclusive-topology {sanitize(exclusive)} keeps all other gangs out"


def _slices(asks: Iterable[PodSetRequest]) -> Iterator[str]:
    for ask in asks:
        if any(size == 1 for _, size in ask.slices):
            yield "slices of 1 pod have no effect: a pod is always in one domain"
        if ask.slices and not ask.ranked:
            layers = join_and([f"each {level} gets a multiple of {size}" for level, size in ask.slices])
            yield f"pods without an index have no order: {layers} of them"


def _unshared_domains(asks: Iterable[PodSetRequest], scopes: Iterable[RequestScope]) -> Iterator[str]:
    """Warn of a shared domain that only one pod set asks for."""
    written = {scope.meanings[names.COLOCATE] for scope in scopes if names.COLOCATE in scope.meanings}
    alone = [value for value, pod_sets in Counter(ask.colocate for ask in asks).items() if pod_sets == 1]
    for value in alone:
        if value is not None and value in written:
            yield f"colocate {quote(value)} has no effect: no other pod set has it"


def _minimum(workload: Workload, scopes: Iterable[RequestScope]) -> Iterator[str]:
    """Warn of a minimum that has no effect, or that is larger than the number of pods."""
    said = any(names.MIN_AVAILABLE in scope.meanings for scope in scopes)
    if said and workload.unit == "pod":
        yield f"min-available has no effect on a {workload.kind}: its pods start independently"
    elif not said and workload.minimum is not None and workload.minimum > workload.slots > 0:
        pods = plural(workload.slots, "pod")
        yield f"the {workload.kind} has a minimum of {workload.minimum:,} but only {pods}: all of them start together"


def _pod_group_minimum(
    workload: Workload, asks: Iterable[PodSetRequest], gang: GangRequest | None, group: int | None
) -> Iterator[str]:
    """Warn of a minimum in pod-group labels that differs from the gang's."""
    if workload.unit == "pod":
        return
    carriers = (workload.labels, *(pod_set.template.labels for pod_set in workload.pod_sets))
    said = {labels[names.POD_GROUP_MIN] for labels in carriers if labels.keys() >= _POD_GROUP}
    least = sum(ask.min_available for ask in asks)
    if gang is not None and gang.min_available is not None:
        least = gang.min_available
    least = least if group is None else group
    for value in sorted(said - {str(least)}):
        shown = quote(sanitize(value, _MAX_VALUE))
        pods = f"{plural(least, 'pod')} {'starts alone' if least == 1 else 'start together'}"
        yield f"the pod group's min-available {shown} is ignored: {pods}; use {names.MIN_AVAILABLE}"


def unusable_minimums(source: AnnotationSource, *, dialects: Collection[str]) -> Iterator[str]:
    """Yield warnings about pod-group keys of a pod that nobody made, if their minimum is no number.

    They request nothing then: the pod starts alone. A name without a minimum may be for another system.
    """
    found = pod_group_of((source,), dialects=dialects)
    if not found or names.MIN_AVAILABLE in found or source.labels.get(names.SCHEDULER_PLUGINS_POD_GROUP):
        return
    for group, least, carried in (
        (names.POD_GROUP_NAME, names.POD_GROUP_MIN, source.labels),
        (names.KOORDINATOR_GANG_NAME, names.KOORDINATOR_GANG_MIN, source.annotations),
    ):
        if carried.get(group) and least in carried:
            value = quote(sanitize(carried[least], _MAX_VALUE))
            yield f"{least} {value} is no number above 0: the pod starts alone"


def _not_planned_for(workload: Workload) -> Iterator[str]:
    templates = [pod_set.template for pod_set in workload.pod_sets]
    unseen = tuple(dict.fromkeys(name for template in templates for name in template.unmodelled))
    if unseen:
        yield f"not considered: {join_and(unseen)} of the pods; the scheduler may refuse a chosen host"
    preferred = tuple(dict.fromkeys(name for template in templates for name in template.preferences))
    if preferred:
        yield f"preferences not counted: {', '.join(preferred)}"


def misspelt(keys: Iterable[str], *, dialects: Collection[str]) -> Iterator[str]:
    """Yield a warning with the right name for each annotation that was probably meant for us."""
    alike = ((key, like) for key in dict.fromkeys(keys) if (like := _like_ours(key, dialects)) is not None)
    compared = ((key, like.prefix, suggest(like.name, like.names)) for key, like in islice(alike, _MOST_COMPARED))
    for key, prefix, near in islice((one for one in compared if one[2] is not None), _MAX_WARNINGS):
        yield f"{sanitize(key, _MAX_KEY)} is ignored; did you mean {prefix}{near}?"


def misplaced(annotations: Iterable[str], labels: Iterable[str], *, dialects: Collection[str]) -> Iterator[str]:
    """Yield a warning for each key of another system that is a label instead of an annotation, or the reverse."""
    as_annotations = {key for dialect in dialects for key in names.ALIASES.get(dialect, ())}
    as_labels: frozenset[str] = frozenset()
    if POD_GROUP_DIALECT in dialects:
        as_annotations, as_labels = as_annotations | GROUP_ANNOTATIONS, GROUP_LABELS
    found = [
        *(f"label {key} is ignored: it must be an annotation" for key in sorted(as_annotations & set(labels))),
        *(f"annotation {key} is ignored: it must be a label" for key in sorted(as_labels & set(annotations))),
    ]
    yield from found[:_MAX_WARNINGS]


def misspelt_labels(labels: Iterable[str], *, dialects: Collection[str]) -> Iterator[str]:
    """Yield a warning with the right name for each label that was probably meant as one of a pod group."""
    if POD_GROUP_DIALECT not in dialects:
        return
    known = sorted(key.partition("/")[2] for key in _POD_GROUP)
    alike = (key for key in dict.fromkeys(labels) if key.startswith(names.POD_GROUP_PREFIX) and key not in _POD_GROUP)
    compared = ((key, suggest(key.partition("/")[2], known)) for key in islice(alike, _MOST_COMPARED))
    for key, near in islice((one for one in compared if one[1] is not None), _MAX_WARNINGS):
        yield f"label {sanitize(key, _MAX_KEY)} is ignored; did you mean {near}?"


class _Like(NamedTuple):
    """A name to compare with `names`, and the prefix of the one that was meant; "" if its own is right."""

    name: str
    names: tuple[str, ...]
    prefix: str = ""


def _like_ours(key: str, dialects: Collection[str]) -> _Like | None:
    """Return with what an annotation is to be compared; None for one that nobody meant for us.

    Nothing here may take more than linear time: nobody has checked the keys in templates of custom resources.
    """
    prefix, _, name = key.rpartition("/")
    if len(name) > _MAX_NAME or prefix == names.API_GROUP or key in READ_ELSEWHERE or key in GROUP_ANNOTATIONS:
        return None
    for dialect, beginning in (("kueue", names.KUEUE_PREFIX), ("kai", names.KAI_PREFIX)):
        if f"{prefix}/" == beginning:
            like = (_ALIAS.search(key) or _LEVEL.match(name)) and dialect in dialects
            return _Like(name, _ALIASES[dialect]) if like else None
    if f"{prefix}/" == GANG_PREFIX:
        return _Like(name, _GANG) if POD_GROUP_DIALECT in dialects else None
    if NATIVE_DIALECT not in dialects:
        return None
    whole = not prefix and name in WITHOUT_PREFIX
    if whole or key.startswith(_PREFIX) or _LEVEL.match(name) or _MISSPELT_PREFIX.match(key):
        return _Like(name if prefix else name.removeprefix(_PREFIX).lstrip("-._"), _OURS, names.PREFIX)
    return None


def unread(sources: Iterable[AnnotationSource], *, dialects: Collection[str], asks: bool = False) -> Iterator[str]:
    """Yield a warning for each key of these dialects on the sources that we do not read, each key once.

    `asks`: there is a request, beside which the hints about devices are read; only parts of them are not.
    """
    known = {key for dialect, keys in names.UNREAD.items() if dialect in dialects for key in keys}
    sources = tuple(sources)
    for key in sorted({key for source in sources for key in source.annotations.keys() & known}):
        if asks and key in names.DEVICE_HINTS:
            texts = dict.fromkeys(source.annotations[key] for source in sources if key in source.annotations)
            yield from islice(
                (f"{key}: {part}" for text in texts for part in read_hint(key, text).ignored), _MAX_WARNINGS
            )
            continue
        beside = names.ALIASES_BESIDE.get(key)
        if beside is None or not any(beside[0] in source.annotations for source in sources):
            yield f"{key} {HELP[key]}"
    in_kai_group = asks or any(names.KAI_GROUP in source.annotations for source in sources)
    if "kai" in dialects and in_kai_group and any(names.KAI_SUBGROUP in source.labels for source in sources):
        yield f"label {names.KAI_SUBGROUP} is ignored: set the request on each template, or use {names.COLOCATE}"
