"""What the commands that let go of held objects share: reading and releasing them, and the lines about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from webhook.terminal.asking import ReadingProgress
from webhook.terminal.options import ClusterOptions, print_line

if TYPE_CHECKING:
    from engine.policy.model import Policy
    from webhook.maintenance.installation import FoundObject
    from webhook.maintenance.release import ReleasePlan, ReleaseScope
    from webhook.maintenance.releaser import Outcome
    from webhook.snapshot.connection import Caller
    from webhook.snapshot.snapshot import Snapshot

_PASSES: Final = 5  # pods may appear while others are let go
# Seconds until every API server has seen that a webhook configuration is deleted.
SEEN_WITHIN: Final = 1.0


def read_held(cluster: ClusterOptions, caller: Caller, *, namespace: str | None, quiet: bool = False) -> Snapshot:
    """Return the pods, Placements and workloads of the cluster as they are now. Raises ConnectionProblem."""
    from engine.api import names
    from webhook.snapshot.live import read_cluster

    read = partial(
        read_cluster,
        caller.api,
        namespace=namespace or caller.namespace,
        service_namespace=cluster.service_namespace,
        only=("pods", names.PLACEMENTS),
        consistent=True,
    )
    if quiet:
        return read()
    with ReadingProgress() as progress:
        return read(progress=progress)


def remarks(snapshot: Snapshot, namespace: str | None) -> list[str]:
    """Return what could not be read of the namespace (None: of all), and may therefore stay held."""
    found = []
    for one in snapshot.unread:
        if one.collection == "configmaps":
            found.append("the policy cannot be read: kinds that it adds are not known")
        elif one.except_in is None:
            found.append(f"{one.collection} cannot be read{f' ({one.why})' if one.why else ''}: some may stay held")
        elif one.except_in != namespace:
            found.append(f"{one.collection} are read in namespace {one.except_in} alone: others may stay held")
    return [*found, *snapshot.notes]


def verdict(plan: ReleasePlan, *, policy: Policy, webhooks: bool) -> list[str]:
    """Return the last lines of a release: what is still held, and what is held again later."""
    from engine.api.text import plural
    from engine.policy.namespaces import modes_of, modes_text
    from webhook.maintenance.release import workloads_text

    held = plan.held
    lines = ["nothing is held any more" if not held else f"{plural(held, 'object')} still held"]
    if plan.templates:
        lines.append(
            f"{plural(len(plan.templates), 'workload')} with the gate in a template: {workloads_text(plan.templates)}. "
            "Pods that they create later are held: topogate release --all --follow releases these too"
        )
    if webhooks and any(mode.manages for mode in modes_of(policy)):
        lines.append(
            f"the policy's mode is {modes_text(policy)}: while the service runs, it holds new workloads; "
            "mode: off ends that"
        )
    return lines


def release_held(
    cluster: ClusterOptions,
    caller: Caller,
    snapshot: Snapshot,
    scope: ReleaseScope,
    *,
    all_templates: bool = False,
    suspended_templates: bool = False,
    report: Callable[[Outcome], None] | None = None,
) -> tuple[Snapshot, ReleasePlan]:
    """Release what is held, and what becomes held meanwhile; return what is held then. Raises ConnectionProblem.

    The gate is taken out of all templates, or out of those of suspended workloads, if that is asked for.
    """
    from webhook.maintenance.release import release_plan
    from webhook.maintenance.releaser import Releaser

    plan = release_plan(snapshot.view, scope)
    opened = plan.templates if all_templates else plan.changeable if suspended_templates else ()
    for _ in range(_PASSES):
        if not plan.held and not opened:
            break
        releaser = Releaser(caller.api, snapshot.view.registry)
        good = releaser.release(plan, templates=opened, report=report or print_outcome)
        snapshot, opened = read_held(cluster, caller, namespace=scope.namespace, quiet=True), ()
        plan = release_plan(snapshot.view, scope)
        if not good:
            break
    return snapshot, plan


def print_outcome(outcome: Outcome) -> None:
    """Print what became of one object: on standard error if it was not done."""
    print_line(outcome.text, failed=not outcome.done)


def delete_and_print(caller: Caller, objects: Iterable[FoundObject], *, namespace: str) -> bool:
    """Delete those objects that are ours, in order, and print what became of each; return True if all are gone.

    A pause follows the validating webhooks: they refuse a pod that asks for a topology without the marks of the
    mutating ones, and every API server sees on watches of its own which of them are gone.
    """
    from webhook.maintenance.installation import MUTATING, VALIDATING, delete_object

    good, checked = True, False
    for found in objects:
        if found.foreign or found.deleting:
            continue
        if checked and found.object in MUTATING:
            time.sleep(SEEN_WITHIN)
            checked = False
        why = delete_object(caller.api, found, namespace=namespace)
        print_line(f"{found.object.called}: {f'not deleted: {why}' if why else 'deleted'}", failed=bool(why))
        good, checked = good and not why, checked or found.object in VALIDATING
    return good
