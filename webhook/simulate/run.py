"""`topogate simulate`: admission and planning of workloads on a cluster from files, by the service's own functions.

Each workload is created (`webhook.simulate.submit`), read back, reconciled as by the leader, planned, and, if it is
placed, assumed in the cluster state, so that the next one sees less free capacity. Nothing is written anywhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

import msgspec

from engine.api import names
from engine.api.field import path_of
from engine.api.pod import Pod
from engine.api.reasons import REASONS
from engine.api.workload import GangKey, Workload
from engine.cache.state import ClusterState
from engine.decoding import pods as cluster_pods
from engine.gang.exemption import is_exempt, template_exemption
from engine.gang.gang import Gang, PodGroupState, suspended_by_user
from engine.gang.key import is_gang_key, keys_of
from engine.gang.plain_pods import is_single, place_of
from engine.gang.repair import growth_request
from engine.lifecycle.actions import Enqueue
from engine.lifecycle.gang_state import Timers
from engine.lifecycle.host_health import HostHealth
from engine.lifecycle.reconcile import reconcile
from engine.policy.making_room import PreemptionRules
from engine.policy.model import Policy
from engine.policy.namespaces import mode_of
from engine.preemption.preempt import preemption_for, victims_may_help
from engine.preemption.search import SearchLimits
from engine.preemption.victims import Victim
from engine.scheduler.explain import forecast
from engine.scheduler.fairness import Turn, in_turns, turn_of, weighted_usage
from engine.scheduler.outcome import Never, Outcome, Placed, Waits
from engine.scheduler.pod_group import PlacedGroup, group_answer_in_view
from engine.scheduler.schedule import (
    answer_in_view,
    extended_placement,
    new_placement,
    schedule_extension,
)
from webhook.admission.objects import POD
from webhook.admission.patch import Operation
from webhook.handlers.unreadable import asks_anywhere
from webhook.simulate import model as output
from webhook.simulate.answer import About, empty, held, ignored, planned, rejected
from webhook.simulate.entries import SubmittedWorkload, as_known, batches, entries, made_by, queued
from webhook.simulate.reader import OfflineReader
from webhook.simulate.submit import Submitted, decoder_of, left_alone, submit, unsupported
from webhook.snapshot.cluster import OfflineCluster
from webhook.snapshot.files import FileObject, FileProblem

_UIDS: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "simulate.topogate.dev")
_MAX_GROUPS: Final = 1_000  # gangs of one workload; each has an answer of its own

# What may be preempted: what the policy says, even if it preempts nothing; gangs alone; unmanaged pods too.
PreemptScope = Literal["policy", "managed", "all"]

_SEARCH_SECONDS: Final = 10.0  # for the victims of one gang: nobody waits for a lock here

_THROUGH: Final = "it is placed through the object that its controller creates"


@dataclass(frozen=True, slots=True)
class Simulated:
    """The result of one gang: the answer, the object as it would be stored (None: refused), and our patch.

    A workload of several gangs has one of these for each; all but the first are without object and patch. A gang of
    plain pods has one; `others` are the stored objects and patches of all its pods but the first.
    """

    gang: output.Gang
    stored: Mapping[str, Any] | None
    patch: tuple[Operation, ...]
    others: tuple[tuple[Mapping[str, Any], tuple[Operation, ...]], ...] = ()


def simulate(
    cluster: OfflineCluster,
    workloads: Iterable[FileObject],
    *,
    queue: bool = False,
    independent: bool = False,
    preempt: PreemptScope | None = None,
    namespace: str = "default",
    clock: Callable[[], int],
    progress: Callable[[int], None] = lambda _gangs: None,
    now: float,
) -> list[Simulated]:
    """Return the results of all workloads, in file order or (`queue`) by priority, age and name.

    With `queue` the fair order of the policy counts as for the leader, by what each namespace uses by then.
    With `independent` each workload starts from the original cluster. Running gangs of lower priority end where a gang
    does not fit otherwise, if the policy or `preempt` says so. Objects without a pod template are left out.
    `clock` counts nanoseconds; `now` is the time, in seconds since the epoch, up to which running gangs have run.
    `progress` is called with the number of gangs so far. Raises FileProblem without a workload, or for a duplicate one.
    """
    taken = entries(workloads, cluster.view, namespace=namespace)
    if queue:
        taken = queued(taken)
    rules = _preemption(cluster.view.policy, preempt)
    run = _Run(cluster.view, independent=independent, preemption=rules, clock=clock, now=now)
    turns = batches(taken)
    answers: list[Simulated] = []
    for turn in run.in_turns(turns) if queue else turns:
        answers += run.turn(turn)
        progress(len(answers))
    return answers


def _preemption(policy: Policy, scope: PreemptScope | None) -> PreemptionRules | None:
    """Return the rules by which running gangs end; None: none ends."""
    rules = policy.preemption
    if scope is None:
        return rules if rules.mode != "never" else None
    return rules if scope == "policy" else rules.model_copy(update={"victims": scope})


def facts(cluster: OfflineCluster) -> output.ClusterFacts:
    """Return the facts about the cluster for the answer."""
    topologies = list(cluster.view.topologies.values())
    return output.ClusterFacts(
        nodes=cluster.nodes,
        nodes_in_topology=len({host for topology in topologies for host in topology.tree.hosts}),
        levels=tuple(level.name for level in topologies[0].levels),
    )


class _Run:
    """One run over a cluster state; waiting gangs are recorded in it, because a strict queue lets no gang pass them."""

    def __init__(
        self,
        view: ClusterState,
        *,
        independent: bool,
        preemption: PreemptionRules | None,
        clock: Callable[[], int],
        now: float,
    ) -> None:
        self._view = view
        self._preemption = preemption
        self._independent = independent
        self._clock = clock
        self._now = now
        self._group_outcomes: dict[GangKey, Outcome] = {}  # of the members of pod groups, planned in one decision

    def turn(self, turn: Sequence[SubmittedWorkload]) -> list[Simulated]:
        """Return the answers for one workload, for the pods of one plain gang, or for the members of one pod group."""
        pods = [entry for entry in turn if entry.plain is not None]
        if len(pods) == len(turn):
            return self.pods(pods)
        if len(turn) == 1:
            return self.one(turn[0])
        answers = [self._submit(entry) for entry in turn if entry.plain is None]
        found = self.pods(pods) if pods else []
        return [*(simulated for answer in answers for simulated in answer()), *found]

    def in_turns(self, turns: Sequence[list[SubmittedWorkload]]) -> Iterator[list[SubmittedWorkload]]:
        """Yield workloads, the pods of a plain gang together, in the order of the queue; what is placed meanwhile
        counts.
        """
        usage = weighted_usage(self._view)
        if usage is None:
            yield from turns
            return

        def turn(of: list[SubmittedWorkload]) -> Turn:
            return turn_of(of[0].priority, of[0].made, "/".join(of[0].key[2:]), usage)

        for of in in_turns(sorted(turns, key=turn), turn, usage):
            yield of
            usage.update(self._view.usage())

    def one(self, entry: SubmittedWorkload) -> list[Simulated]:
        """Submit, reconcile, plan and assume one workload; return one answer for every gang."""
        return self._submit(entry)()

    def _submit(self, entry: SubmittedWorkload) -> Callable[[], list[Simulated]]:
        """Submit one workload; return the function that reconciles, plans and assumes it.

        Members of a pod group are all submitted before the first of them is planned.
        """
        one, about = entry.one, About(*entry.key[1:])
        decode = decoder_of(one, self._view)
        if decode is None:
            return lambda: [self._unregistered(entry, about)]
        offline = OfflineReader(self._view)
        if left_alone(entry.sent, decode, self._view):
            return lambda: [Simulated(ignored(about, 0, "NoTopologyRequested"), entry.sent, ())]
        submitted = submit(one, entry.sent, offline, decode=decode)
        warned = replace(about, warnings=submitted.warnings)
        if submitted.errors:
            return lambda: [Simulated(rejected(warned, submitted.errors), None, ())]
        of_workload = self._workload(entry, warned, submitted, offline) if one.what != POD else None

        def answered() -> list[Simulated]:
            if of_workload is not None:
                gangs = of_workload()
            else:
                gangs = [self._single(entry, warned, submitted, offline) or self._pod(warned, submitted, offline)]
            first, *others = gangs
            rest = (Simulated(gang, None, ()) for gang in others)
            return [Simulated(first, submitted.stored, submitted.patch), *rest]

        return answered

    def pods(self, turn: Sequence[SubmittedWorkload]) -> list[Simulated]:
        """Do the same for the pods of one plain gang: refused pods separately, then the gang of the others."""
        view, answers = self._view, list[Simulated]()
        made: list[tuple[Pod, Submitted]] = []
        offline = OfflineReader(view)
        for entry in turn:
            submitted = submit(entry.one, entry.sent, offline, decode=cluster_pods.pod)
            about = About(*entry.key[1:], warnings=submitted.warnings)
            if submitted.errors:
                answers.append(Simulated(rejected(about, submitted.errors), None, ()))
                continue
            pod = cluster_pods.pod(msgspec.json.encode(submitted.stored))
            if names.GATE not in pod.spec.gates:
                answers.append(Simulated(self._pod(about, submitted, offline), submitted.stored, submitted.patch))
                continue
            uid = str(uuid.uuid5(_UIDS, "/".join(entry.key)))
            made.append((replace(pod, uid=uid, created=turn[0].made), submitted))
        if not made:
            return answers
        key = turn[0].plain
        assert key is not None
        warnings = dict.fromkeys(text for _, submitted in made for text in submitted.warnings)
        about = About(turn[0].one.kind, *place_of(key), warnings=tuple(warnings))
        for pod, _ in made:
            view.stores.pods.apply("ADDED", pod)
        view.refresh()
        gang = view.gangs.get(key)
        assert gang is not None
        answer = self._gang(about, gang, offline)
        if self._independent:
            for pod, _ in made:
                view.stores.pods.apply("DELETED", pod)
            view.refresh()
        (_, first), *rest = made
        others = tuple((one.stored, one.patch) for _, one in rest)
        return [*answers, Simulated(answer, first.stored, first.patch, others)]

    def _workload(
        self, entry: SubmittedWorkload, about: About, submitted: Submitted, offline: OfflineReader
    ) -> Callable[[], list[output.Gang]]:
        """Add an admitted workload to the cluster; return the function that gives the answers for its gangs."""
        view = self._view
        decode = decoder_of(entry.one, self._view)
        assert decode is not None
        stored = decode(msgspec.json.encode(submitted.stored))
        assert isinstance(stored, Workload)
        if stored.handling == "hint":
            return partial(self._made, entry, about, submitted.stored)
        if stored.groups > _MAX_GROUPS:
            raise FileProblem(f"{entry.one.where}: {stored.groups:,} gangs; at most {_MAX_GROUPS:,} are simulated")
        uid = str(uuid.uuid5(_UIDS, "/".join(entry.key)))
        found = replace(as_known(entry, stored), uid=uid, created=entry.made)
        if found.handling == "through" and view.request_of(found).ignored is None and self._manages(found.namespace):
            return lambda: [held(about, "WaitingForMembers", _THROUGH)]
        view.stores.workloads.apply("ADDED", found)
        view.refresh()
        return partial(self._answers, about, found, offline)

    def _made(self, entry: SubmittedWorkload, about: About, stored: Mapping[str, Any]) -> list[output.Gang]:
        """Return the answers for the workloads that an object's controller will make, in the name of the object.

        The warnings are those of the object: its user sees no others.
        """
        answers = list[output.Gang]()
        own = {"kind": about.kind, "namespace": about.namespace, "name": about.name}
        for steps, made in made_by(entry, stored, self._view):
            for part in self.one(made):
                errors = tuple(
                    error.model_copy(update={"field": f"{path_of(steps)}.{error.field}"}) for error in part.gang.errors
                )
                warnings = about.warnings if not answers else ()
                answers.append(part.gang.model_copy(update={**own, "errors": errors, "warnings": warnings}))
        return answers or [ignored(about, 0, "NoTopologyRequested")]

    def _answers(self, about: About, found: Workload, offline: OfflineReader) -> list[output.Gang]:
        view, answers = self._view, list[output.Gang]()
        for number, key in enumerate(keys_of(found)):
            one = about if number == 0 else replace(about, warnings=())
            gang = view.gangs.get(key)
            assert gang is not None
            answers.append(self._gang(replace(one, group=gang.group), gang, offline))
            if gang.request.asked is None:
                break  # no request: none of its gangs is managed
        if self._independent or not answers:
            view.stores.workloads.apply("DELETED", found)
            view.refresh()
        return answers or [self._without_gangs(about, found)]

    def _without_gangs(self, about: About, found: Workload) -> output.Gang:
        request = self._view.request_of(found)
        if request.ignored is not None:
            return ignored(about, 0, request.ignored)
        if not (mode := mode_of(found.namespace, self._view.policy)).manages:
            return ignored(about, 0, "PolicyOff", mode.left_alone)
        return empty(about)

    def _gang(self, about: About, gang: Gang, offline: OfflineReader) -> output.Gang:
        view, found = self._view, gang.workload
        hosts = HostHealth(gang, view.capacity, view.topologies, now=0.0)
        decision = reconcile(gang, timers=Timers(), policy=view.policy, now=0.0, hosts=hosts)
        group = gang.pod_group if isinstance(decision.action, Enqueue) else None
        if group is not None and not group.placed and gang.key not in self._group_outcomes:
            self._plan_group(group)
        if (outcome := self._group_outcomes.pop(gang.key, None)) is not None:
            return planned(self._unpredicted(about, gang, offline), gang, outcome, view)
        if isinstance(decision.action, Enqueue):
            return self._plan(about, gang, offline)
        if gang.request.asked is not None and self._manages(found.namespace) and suspended_by_user(found):
            return planned(about, gang, Waits("Suspended", REASONS["Suspended"].description), view)
        if (errors := gang.request.errors) and self._manages(found.namespace):
            if REASONS[errors[0].reason].waits:
                return held(about, errors[0].reason, errors[0].message)
            return rejected(about, errors)
        if gang.request.ignored is not None:
            return ignored(replace(about, group=None), found.slots * found.groups, gang.request.ignored)
        return ignored(about, found.slots, "PolicyOff", mode_of(found.namespace, view.policy).left_alone)

    def _plan(self, about: About, gang: Gang, offline: OfflineReader) -> output.Gang:
        view = self._view
        about = self._unpredicted(about, gang, offline)
        begun = self._clock()
        outcome = answer_in_view(view, gang, created=gang.workload.created)
        victims: tuple[Victim, ...] = ()
        if self._preemption is not None and isinstance(outcome, Waits) and victims_may_help(outcome):
            outcome, victims = self._preempting(gang, outcome, self._preemption)
        microseconds = (self._clock() - begun) // 1000
        if isinstance(outcome, Placed):
            priority = view.pod_shapes.priority_of(gang.workload)
            view.assume(gang.key, new_placement(gang, outcome, priority=priority, now=self._now))
        elif not self._independent:
            self._record_waiting(gang, outcome)
        return planned(about, gang, outcome, view, microseconds=microseconds, victims=victims)

    def _preempting(
        self, gang: Gang, outcome: Waits, rules: PreemptionRules
    ) -> tuple[Placed | Waits, tuple[Victim, ...]]:
        """Return the outcome without running gangs of lower priority, and these; as it was if that does not help."""
        view = self._view
        found = preemption_for(
            view,
            gang,
            plan=partial(answer_in_view, view, gang, created=gang.workload.created),
            others=rules.victims == "all",
            protect=rules.protect,
            own_namespace=names.NAMESPACE,
            now=self._now,
            limits=SearchLimits(seconds=_SEARCH_SECONDS),
        )
        if found is None:
            return outcome, ()
        for victim in () if self._independent else found.victims:
            self._end(victim)
        return found.placed, found.victims

    def _end(self, victim: Victim) -> None:
        """Take a preempted gang out of the cluster, as if it waited again."""
        view = self._view
        for pod in victim.pods:
            view.stores.pods.apply("DELETED", pod)
        view.refresh()
        for key in filter(is_gang_key, victim.keys):
            if view.gangs.holds(key):
                view.retract(key)
            if (known := view.gangs.placement_of(key)) is not None:
                view.stores.placements.apply("MODIFIED", replace(known, assignment=None))
        view.refresh()

    @staticmethod
    def _unpredicted(about: About, gang: Gang, offline: OfflineReader) -> About:
        """Leave out the forecast's warnings at submit time, which repeat the verdict in other words."""
        first = offline.first_outcome
        predicted = set(forecast(first, groups=gang.workload.groups)) if first is not None else set()
        return replace(about, warnings=tuple(text for text in about.warnings if text not in predicted))

    def _plan_group(self, group: PodGroupState) -> None:
        """Plan the members of a pod group, and keep the outcome of each for its own answer."""
        view = self._view
        outcome: PlacedGroup | Waits | Never
        gangs = [gang for key in group.members if (gang := view.gangs.get(key)) is not None]
        waiting = [gang for gang in gangs if gang.placement is None or gang.placement.assignment is None]
        if group.complete:
            outcome = group_answer_in_view(view, waiting, group, now=0.0)
        else:
            outcome = Waits("WaitingForMembers", group.incomplete_text)
        for gang in waiting:
            if not isinstance(outcome, PlacedGroup):
                self._group_outcomes[gang.key] = outcome
                if not self._independent:
                    self._record_waiting(gang, outcome)
            elif gang.key in outcome.plans:
                self._group_outcomes[gang.key] = outcome.plans[gang.key][1]

    def _record_waiting(self, gang: Gang, outcome: Waits | Never) -> None:
        """Record in the gang's Placement that it waits, so that later gangs queue behind it."""
        view = self._view
        placement = new_placement(gang, None, priority=view.pod_shapes.priority_of(gang.workload), now=0.0)
        status = {"phase": "Waiting", "reason": outcome.reason}
        view.stores.placements.apply("ADDED", replace(placement, status=status))
        view.refresh()

    def _manages(self, namespace: str) -> bool:
        return mode_of(namespace, self._view.policy).manages

    def _single(
        self, entry: SubmittedWorkload, about: About, submitted: Submitted, offline: OfflineReader
    ) -> output.Gang | None:
        """Return the answer for a pod that is placed alone, near pods of its controller; None for any other pod."""
        view, pod = self._view, cluster_pods.pod(msgspec.json.encode(submitted.stored))
        pod = replace(pod, uid=str(uuid.uuid5(_UIDS, "/".join(entry.key))), created=entry.made)
        key = view.owners.owner_of(pod).key
        if key is None or not is_single(key) or names.GATE not in pod.spec.gates:
            return None
        view.stores.pods.apply("ADDED", pod)
        view.refresh()
        gang = view.gangs.get(key)
        assert gang is not None
        answer = self._gang(about, gang, offline) if gang.placement is None else self._joining(about, gang)
        if self._independent:
            view.stores.pods.apply("DELETED", pod)
            view.refresh()
        return answer

    def _joining(self, about: About, gang: Gang) -> output.Gang:
        view, asked = self._view, gang.request
        assert gang.placement is not None
        part = growth_request(gang.workload, gang.placement, gang.pods, asks=asked.pod_sets, gang=asked.gang)
        if part is None:
            return held(about, "WaitingForMembers")
        outcome = schedule_extension(view, gang, part)
        if isinstance(outcome, Placed):
            view.assume(gang.key, extended_placement(gang, part, outcome, topologies=view.topologies))
        return planned(about, gang, outcome, view)

    def _pod(self, about: About, submitted: Submitted, offline: OfflineReader) -> output.Gang:
        """Return the answer for an admitted pod that is not managed or is a member of a workload's gang."""
        policy = self._view.policy
        pod = cluster_pods.pod(msgspec.json.encode(submitted.stored))
        if names.GATE in pod.spec.gates:
            return held(about, "WaitingForMembers")
        if not asks_anywhere(submitted.stored, policy.annotations.dialects):
            return ignored(about, 1, "NoTopologyRequested")
        if not (mode := mode_of(pod.namespace, policy)).manages:
            return ignored(about, 1, "PolicyOff", mode.left_alone)
        if is_exempt(pod.namespace, policy=policy, own_namespace=offline.own_namespace):
            return ignored(about, 1, "ExemptNamespace")
        return ignored(about, 1, template_exemption(pod.spec, policy=policy) or "DaemonSetOrStatic")

    def _unregistered(self, entry: SubmittedWorkload, about: About) -> Simulated:
        """Return the result for an unregistered kind: allowed without a request, else refused, not ignored."""
        policy = self._view.policy
        if not asks_anywhere(entry.sent, policy.annotations.dialects):
            return Simulated(ignored(about, 0, "NoTopologyRequested"), entry.sent, ())
        if not (mode := mode_of(about.namespace, policy)).manages:
            return Simulated(ignored(about, 0, "PolicyOff", mode.left_alone), entry.sent, ())
        return Simulated(rejected(about, (unsupported(entry.one.kind),)), None, ())
