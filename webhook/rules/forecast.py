"""Forecasts a workload's placement at submit time: refuses a gang that can never fit, or warns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.api import names
from engine.api.duration import format_duration
from engine.api.field import FieldError
from engine.api.field import path_of as path_of_steps
from engine.api.objects import Node
from engine.api.reasons import REASONS
from engine.api.text import MAX_WARNING, plural, sanitize, truncate_bytes
from engine.api.workload import Workload
from engine.gang.gang import suspended_by_user
from engine.gang.relaxation import relaxed, relaxing_forecast, timeout_forecast
from engine.gang.request import PlacementRequest, request_path
from engine.policy.making_room import PreemptionRules
from engine.policy.model import Policy
from engine.preemption.names import victims_text
from engine.preemption.preempt import victims_may_help
from engine.resources.shape import tolerates
from engine.scheduler.explain import forecast
from engine.scheduler.limits import on_hold
from engine.scheduler.outcome import Never, Outcome, Placed, Waits
from webhook.admission.budget import Budget
from webhook.admission.reader import Reader
from webhook.rules.defaults import by_default

_MAX_CLAIM: Final = 40  # characters of a claim's name in a warning, which has 120


def soft_taints(placed: Placed, workload: Workload, node: Callable[[str], Node | None]) -> str | None:
    """Return a sentence about untolerated PreferNoSchedule taints on the hosts of a plan; None without any."""
    tolerations = {one.name: one.template.shape.tolerations for one in workload.pod_sets}
    hosts: set[str] = set()
    avoided: dict[str, str] = {}
    for plan in placed.pod_sets:
        for host in {slot.host for slot in plan.slots}:
            hosts.add(host)
            there = node(host)
            for taint in there.taints if there is not None else ():
                if taint.effect == "PreferNoSchedule" and not tolerates(tolerations.get(plan.name, ()), taint):
                    avoided.setdefault(host, f"{taint.key}={taint.value}" if taint.value else taint.key)
    if not avoided:
        return None
    of = f"{len(avoided):,} of {plural(len(hosts), 'host')}"
    return f"{of} prefer no pods (taint {sanitize(min(avoided.values()), 40)}): pinned pods run there anyway"


def missing_claims(workload: Workload, view: Reader) -> tuple[str, ...]:
    """Return the warning about PersistentVolumeClaims that do not exist; empty if there are none.

    They may be created later, so it is no error; until then the scheduler binds no pod.
    """
    found = view.missing_claims(workload)
    if not found:
        return ()
    others = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
    claim = sanitize(found[0], _MAX_CLAIM)
    return (f'topogate: PersistentVolumeClaim "{claim}"{others} not found: no pod starts before it exists',)


def forecast_warnings(
    workload: Workload,
    request: PlacementRequest,
    view: Reader,
    policy: Policy,
    deadline: float,
    *,
    budget: Budget,
) -> tuple[list[FieldError], tuple[str, ...]]:
    """Return an error for a gang that can never fit, if the policy refuses those; else warnings.

    A required level that becomes a preferred one in time is no reason to refuse a gang that would be placed then.
    Without remaining budget there is no forecast, but that the namespace is on hold is told in any case.
    """
    outcome = None if budget.spent else view.forecast(workload, request, deadline)
    outcome = on_hold(workload.namespace, policy) if outcome is None else outcome
    if outcome is None:
        return [], ()
    group = request.pod_group
    waits = group is not None and (group.minimum is None or group.minimum > workload.slots)
    if (waits or not workload.groups) and not isinstance(outcome, Never):
        return [], ()  # it waits for other members, which are not known here; or it has no replicas
    groups, suspended = workload.groups, suspended_by_user(workload)
    if isinstance(outcome, Placed):
        avoided = soft_taints(outcome, workload, view.node)
        taints = (f"topogate: {avoided}",) if avoided is not None else ()
        told = forecast(outcome, groups=groups, suspended=suspended)
        return [], (*told, *missing_claims(workload, view), *taints)
    named = policy.messages.nodes == "all"
    softer = None if budget.spent else _preferring(workload, request, view, deadline)
    if isinstance(outcome, Waits):
        instead = softer if isinstance(softer, Placed) else None
        until = timeout_forecast(request, policy)
        ends = (f"topogate: {until}",) if until else ()
        told = forecast(outcome, instead=instead, groups=groups, suspended=suspended, names_hosts=named)
        rules, preempts = policy.preemption, tuple[str, ...]()
        if rules.mode != "never" and victims_may_help(outcome) and not budget.spent:
            preempts = _preempting(workload, request, view, rules=rules, deadline=deadline)
        return [], (*told, *preempts, *missing_claims(workload, view), *ends)
    when = relaxing_forecast(request, policy)
    later = (when, softer) if when and softer is not None else None
    if _refused(outcome, workload, policy) and (not when or isinstance(softer, Never)):
        return [_never(outcome, workload, policy)], ()
    return [], forecast(outcome, later=later, groups=groups, suspended=suspended, names_hosts=named)


def _refused(outcome: Never, workload: Workload, policy: Policy) -> bool:
    """Return True if a gang that never fits is refused: always by a limit, never because of a default request."""
    unwanted = policy.never_fits == "deny" or REASONS[outcome.reason].by_policy
    return unwanted and not by_default(workload, policy)


def _preferring(workload: Workload, request: PlacementRequest, view: Reader, deadline: float) -> Outcome | None:
    """Return the outcome with the required level as a preferred one; None without one, or without a forecast."""
    softer = relaxed(request)
    return None if softer == request else view.forecast(workload, softer, deadline)


def _preempting(
    workload: Workload, request: PlacementRequest, view: Reader, *, rules: PreemptionRules, deadline: float
) -> tuple[str, ...]:
    """Return the warning about what would be preempted for a workload that would wait; empty if that does not help."""
    found = view.preemption(workload, request, deadline)
    if found is None:
        return ()
    when = f"after {format_duration(rules.after)}" if rules.after else "now"
    would = "if resumed it would" if suspended_by_user(workload) else "would"
    text = f"topogate: {would} start {when} by preempting "
    which = victims_text(found.victims, namespace=workload.namespace, limit=MAX_WARNING - len(text))
    return (truncate_bytes(text + which, MAX_WARNING),)


def _never(outcome: Never, workload: Workload, policy: Policy) -> FieldError:
    if REASONS[outcome.reason].of_one_pod:
        field = path_of_steps((*workload.pod_sets[0].path, "spec", "containers"))
    else:
        field = request_path(workload, names.REQUIRE, policy=policy)
    return FieldError(field=field, kind="Invalid value", value=None, reason=outcome.reason, message=outcome.message)
