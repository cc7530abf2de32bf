"""Everything about one gang, pod or workload: its state now, what is in the way, who goes first, what would change it.

Recomputed with the planner; stored messages are repeated only where the leader alone can know (a scheduler's refusal,
failed starts) and where the caller may not read what the planner needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from engine.api import names
from engine.api.duration import timestamp
from engine.api.field import render
from engine.api.pod import Pod
from engine.api.reasons import REASONS, Code, known_code
from engine.api.text import join_comma, quote, sanitize
from engine.api.workload import Workload
from engine.gang.exemption import exemption_text, template_exemption
from engine.gang.gang import Gang
from engine.policy.model import Policy
from engine.policy.namespaces import mode_of
from webhook.explanations.explain_placed import explain_placed
from webhook.explanations.explain_waiting import explain_waiting
from webhook.explanations.explanation import Asking, Events, about, asks, history, name_of
from webhook.explanations.preemptions import preemptor_of
from webhook.queries import model as output
from webhook.queries.gangs import GangTable, gang_table, let_go
from webhook.queries.names import group_of
from webhook.queries.room import Running
from webhook.queries.subject import Subject, SubjectProblem
from webhook.snapshot.connection import ConnectionProblem
from webhook.snapshot.snapshot import Snapshot

_THROUGH: Final = "it is placed through the object that its controller creates"
_OLDER: Final = (
    "left alone: it was created before Topogate was there or before it had a request: only new workloads are placed"
)


def explain(
    snapshot: Snapshot, subjects: Sequence[Subject], *, events: Events | None = None, table: GangTable | None = None
) -> output.ExplainAnswer:
    """Return the explanation of everything that was named; without `events` its history is that of the Placement.

    `table`: the gangs of the snapshot, where they are known already. Raises SubjectProblem for what runs where no
    Placement may be read, ConnectionProblem where none could be read this time.
    """
    asking = Asking(snapshot, table if table is not None else gang_table(snapshot), events, Running(snapshot))
    gangs = tuple(one for subject in subjects for one in _explained(asking, subject))
    return output.ExplainAnswer(
        taken_at=timestamp(snapshot.taken),
        gangs=gangs,
        remarks=(*snapshot.remarks, *dict.fromkeys(asking.remarks)),
    )


def _explained(asking: Asking, subject: Subject) -> Iterator[output.ExplainedGang]:
    if subject.sent is not None and subject.refused:
        first = subject.refused[0]
        message = f"it would be refused: {first.field}: {render(first)}" if first.field else render(first)
        yield about(subject.sent, "refused", first.reason, message, faults=subject.refused)
        return
    if subject.sent is not None and subject.ignored is not None:
        message = f"left alone: {subject.ignored}: {REASONS[subject.ignored].description}"
        yield about(subject.sent, "ignored", subject.ignored, message)
        return
    found = [gang for key in subject.keys if (gang := asking.snapshot.view.gangs.get(key)) is not None]
    if subject.placement is not None and not found:
        placement = subject.placement
        yield about(
            (placement.namespace, names.PLACEMENT_KIND, placement.name),
            "orphaned",
            "",
            f"its {sanitize(placement.workload.kind)} {quote(placement.workload.name)} does not exist any more: the "
            "leader removes the Placement, and its slots are free",
        )
    elif subject.pod is not None and not any(_managed(asking, gang) for gang in found):
        yield _alone(asking, subject.pod, subject.workload)
    elif not found and subject.workload is not None:
        yield _unmanaged(asking, subject.workload, None)
    for gang in found if subject.pod is None or any(_managed(asking, one) for one in found) else ():
        yield _gang(asking, gang, subject)


def _managed(asking: Asking, gang: Gang) -> bool:
    return gang.key in asking.table.rows or let_go(asking.snapshot.view, gang)


def _gang(asking: Asking, gang: Gang, subject: Subject) -> output.ExplainedGang:
    """Return the explanation of a gang; of a pod of it if one is named, as far as slots are concerned."""
    exists = subject.sent is None
    row = asking.table.rows.get(gang.key)
    common: dict[str, Any] = {
        "gang": row,
        "group": group_of(gang.workload, gang.key),
        "asks": tuple(asks(gang)),
        "history": history(asking, gang) if exists else (),
        "preempted_by": preemptor_of(asking.snapshot, gang) if exists else None,
    }
    if let_go(asking.snapshot.view, gang):
        mode = mode_of(gang.workload.namespace, asking.snapshot.view.policy)
        unread = asking.snapshot.unread_in(names.PLACEMENTS, gang.workload.namespace)
        if mode.manages and unread is not None:  # it runs, perhaps on slots
            what = f"{gang.workload.kind.lower()} {quote(gang.workload.name)}"
            problem = ConnectionProblem if unread.why else SubjectProblem
            raise problem(f"whether {what} has slots is not known: {unread.text}")
        reason, text = ("", _OLDER) if mode.manages else ("PolicyOff", f"left alone: PolicyOff: {mode.left_alone}")
        return about(name_of(gang.workload), "ignored", known_code(reason), text, **common)
    if row is None:
        return _unmanaged(asking, gang.workload, gang if exists else None)
    placement = gang.placement
    if gang.workload.finished:
        end = "failed" if gang.workload.failed else "ended"
        return about(name_of(gang.workload), "finished", "", f"it has {end}; its slots are free", **common)
    if placement is not None and placement.assignment is not None:
        return explain_placed(asking, gang, row, subject.pod, common)
    return explain_waiting(asking, gang, row, common, exists=exists)


def _unmanaged(asking: Asking, workload: Workload, gang: Gang | None) -> output.ExplainedGang:
    """Return why a workload is not managed, or waits for the object that it is placed through."""
    view = asking.snapshot.view
    request = gang.request if gang is not None else view.request_of(workload)
    more: dict[str, Any] = {"history": history(asking, gang)} if gang is not None else {}
    if request.errors:
        first = request.errors[0]
        verdict: output.Explained = "waits" if REASONS[first.reason].waits else "refused"
        message = f"{first.field}: {render(first)}" if first.value is not None else first.message
        return about(name_of(workload), verdict, first.reason, message, faults=request.errors, **more)
    if workload.finished:
        return about(name_of(workload), "finished", "", f"it has {'failed' if workload.failed else 'ended'}", **more)
    if request.ignored is None and not workload.groups:
        return about(name_of(workload), "ignored", "", "left alone: it has no replicas", **more)
    if request.ignored is None:
        return about(name_of(workload), "waits", "WaitingForMembers", _THROUGH, **more)
    text = f"left alone: {request.ignored}: {_in_words(asking, request.ignored, workload)}"
    return about(name_of(workload), "ignored", request.ignored, text, **more)


def _in_words(asking: Asking, reason: Code, workload: Workload) -> str:
    """Return why a workload is left alone, with the value that decides."""
    policy = asking.snapshot.view.policy
    match reason:
        case "OtherScheduler":
            named = [one.template.scheduler_name or names.DEFAULT_SCHEDULER for one in workload.pod_sets]
            return _unlisted(next((one for one in named if one not in policy.schedulers), named[0]), policy)
        case "ManagedByKueue":
            queue = workload.labels.get(names.KUEUE_QUEUE) or workload.annotations.get(names.KUEUE_QUEUE)
            return f"{names.KUEUE_QUEUE} {quote(queue)}: Kueue places it" if queue else REASONS[reason].description
        case "ExemptNamespace":
            return f"namespace {quote(workload.namespace)} is exempt"
        case "PolicyOff":
            return mode_of(workload.namespace, policy).left_alone
        case "NoTopologyRequested":
            return f"nothing asks for a topology or a gang, as the annotation {names.REQUIRE} would"
    pods = [one.template for one in workload.pod_sets]
    told = exemption_text(reason, sanitize(workload.kind), workload.namespace, pods, policy)
    return told or REASONS[reason].description


def _unlisted(scheduler: str, policy: Policy) -> str:
    return f"schedulerName {quote(scheduler)} is not in the policy's schedulers ({join_comma(policy.schedulers)})"


def _alone(asking: Asking, pod: Pod, workload: Workload | None) -> output.ExplainedGang:
    """Return why a pod is not placed as a part of a gang."""
    who = (pod.namespace, "Pod", pod.name)
    view = asking.snapshot.view
    mode = mode_of(pod.namespace, view.policy)
    if names.GATE in pod.spec.gates:
        owner = view.owners.owner_of(pod)
        missing = owner.missing or (pod.owner if owner.workload is None else None)
        if missing is not None:
            what = f"{sanitize(missing.kind)} {quote(missing.name)}"
            message = f"held: its owner {what} does not exist, or is another object of that name"
        elif owner.workload is not None:
            message = f"held: its labels match no group or template of its {sanitize(owner.workload.kind)}"
        else:
            message = "held: nothing tells which gang it belongs to; the leader releases it when that is certain"
        return about(who, "waits", "WaitingForMembers", message)
    if workload is not None:
        inner = _unmanaged(asking, workload, None)
        if inner.verdict == "ignored":
            return about(who, "ignored", known_code(inner.reason), inner.message)
    if pod.mirror or (pod.owner is not None and pod.owner.kind == "DaemonSet"):
        reason: Code = "DaemonSetOrStatic"
    elif not mode.manages and view.owners.owner_of(pod).key is not None:
        reason = "PolicyOff"
    else:
        reason = template_exemption(replace(pod.spec, node_name=""), policy=view.policy) or "NoTopologyRequested"
    match reason:
        case "OtherScheduler":
            text = _unlisted(pod.spec.scheduler_name or names.DEFAULT_SCHEDULER, view.policy)
        case "PolicyOff":
            text = mode.left_alone
        case "DaemonSetOrStatic":
            text = "its DaemonSet or its node decides where it runs"
        case _:
            told = exemption_text(reason, "pod", pod.namespace, [pod.spec], view.policy)
            text = told or REASONS[reason].description
    return about(who, "ignored", reason, f"left alone: {reason}: {text}")
