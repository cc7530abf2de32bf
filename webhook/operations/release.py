"""`topogate release`: lets go what Topogate holds, with the caller's own rights, also while the service is down."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from webhook.operations.held import delete_and_print, print_outcome, read_held, release_held, remarks, verdict
from webhook.terminal.asking import caller_of
from webhook.terminal.options import ClusterOptions, cluster_options, fail, print_line, print_remarks

if TYPE_CHECKING:
    from webhook.maintenance.attempts import Attempts
    from webhook.maintenance.release import ReleasePlan, ReleaseScope
    from webhook.maintenance.releaser import Outcome
    from webhook.snapshot.connection import Caller
    from webhook.snapshot.snapshot import Snapshot

_NO_ANSWER: Final = "no replica of the service answers its webhooks: start it again, or add --delete-webhooks"
_PAUSE: Final = 2.0  # seconds between two passes with --follow


@click.command(short_help="Resume workloads and release pods that Topogate holds.")
@click.argument("name", metavar="[KIND/NAME]", required=False)
@click.option("--all", "everything", is_flag=True, help="Everything that is held, in all namespaces or that of -n.")
@click.option("-n", "--namespace", metavar="NAME", help="Default: that of the context; with --all: all namespaces.")
@click.option("--follow", is_flag=True, help="Go on until no unfinished workload creates pods with the gate.")
@click.option(
    "--templates", is_flag=True, help="Also take the gate out of templates; Deployments and StatefulSets roll out."
)
@click.option(
    "--delete-webhooks",
    is_flag=True,
    help="First delete Topogate's webhook configurations: they refuse changes of workloads while no replica answers.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be let go.")
@cluster_options
def release(
    *,
    name: str | None,
    everything: bool,
    namespace: str | None,
    follow: bool,
    templates: bool,
    delete_webhooks: bool,
    dry_run: bool,
    cluster: ClusterOptions,
) -> None:
    """Let go what Topogate holds: resume workloads that it has suspended, and take its gate off pods.

    Released pods may run on any node. The policy is not changed: while the service runs with mode: enforce, it holds
    new workloads. Nothing that runs is touched, and nothing is deleted but webhook configurations with
    --delete-webhooks. A second run changes nothing more. Exit status 0 if nothing is held any more, else 1.

    \b
    Example:
      topogate release --all --dry-run
      topogate release job/train -n alice
      topogate release --all --delete-webhooks --follow
    """  # noqa: D301 - click wants the backspace itself
    from webhook.maintenance.attempts import Attempts
    from webhook.maintenance.release import ReleaseScope, release_plan
    from webhook.maintenance.releaser import WEBHOOK_FAILED
    from webhook.snapshot.connection import ConnectionProblem

    if (name is None) != everything:
        fail("name one object as KIND/NAME, or use --all")
    if delete_webhooks and not everything:
        fail("--delete-webhooks is for all workloads: use it with --all")
    caller = caller_of(cluster)
    try:
        snapshot = read_held(cluster, caller, namespace=namespace)
        scope = ReleaseScope(namespace) if name is None else _named(snapshot, name, namespace or caller.namespace)
        plan = release_plan(snapshot.view, scope)
        if dry_run:
            _print_plan(plan, templates=templates)
            print_remarks(remarks(snapshot, scope.namespace))
            sys.exit(0 if not plan.held else 1)
        if delete_webhooks and not _webhooks_deleted(cluster, caller):
            sys.exit(1)
        told: list[str] = []
        attempts = Attempts()

        def report(outcome: Outcome) -> None:
            told.append(outcome.text)
            if news := attempts.news(outcome):
                print_outcome(news)

        snapshot, plan = release_held(
            cluster,
            caller,
            snapshot,
            scope,
            all_templates=templates,
            suspended_templates=delete_webhooks,
            report=report,
        )
        if follow:
            snapshot, plan = _follow(cluster, caller, snapshot, plan, scope, attempts=attempts, report=report)
    except ConnectionProblem as problem:
        fail(str(problem))
    for line in verdict(plan, policy=snapshot.view.policy, webhooks=not delete_webhooks):
        print_line(line)
    if any(WEBHOOK_FAILED in text for text in told):
        print_remarks([_NO_ANSWER])
    print_remarks(remarks(snapshot, scope.namespace))
    sys.exit(1 if plan.held else 0)


def _named(snapshot: Snapshot, name: str, namespace: str) -> ReleaseScope:
    from webhook.maintenance.release import ReleaseScope
    from webhook.queries.subject import SubjectProblem, subject_of

    try:
        found = subject_of(snapshot, name, namespace=namespace)
    except SubjectProblem as problem:
        fail(str(problem))
    gangs = snapshot.view.gangs
    uids = {one.uid for one in (found.workload, found.pod) if one is not None}
    for key in found.keys if found.pod is None else ():
        workload = gangs.workload_of(key)
        uids |= {*((workload.uid,) if workload is not None else ()), *(pod.uid for pod in gangs.pods_of(key))}
    if found.pod is not None:
        uids = {found.pod.uid}
    return ReleaseScope(namespace, frozenset(uids) - {""})


def _print_plan(plan: ReleasePlan, *, templates: bool) -> None:
    from webhook.maintenance.releaser import called

    for workload in plan.workloads:
        print_line(f"{called(workload)}: would be resumed")
    for pod in plan.pods:
        print_line(f"{called(pod)}: would be released")
    for workload in plan.templates:
        print_line(f"{called(workload)}: " + ("the gate would be taken out of its template" if templates else _KEEPS))
    if not plan.held:
        print_line("nothing is held")


_KEEPS: Final = "its template has the gate: pods that it creates are held"


def _follow(
    cluster: ClusterOptions,
    caller: Caller,
    snapshot: Snapshot,
    plan: ReleasePlan,
    scope: ReleaseScope,
    *,
    attempts: Attempts,
    report: Callable[[Outcome], None],
) -> tuple[Snapshot, ReleasePlan]:
    """Let go the pods that are created from templates with the gate, until there is no such template any more.

    What is refused again and again is given up; if that is everything, it ends.
    """
    from engine.api.text import plural
    from webhook.maintenance.release import release_plan
    from webhook.maintenance.releaser import Releaser
    from webhook.snapshot.connection import ConnectionProblem

    pause, told, problem_told = threading.Event(), -1, ""
    try:
        while plan.templates or plan.held:
            if attempts.over(plan):
                print_remarks(["the API server refuses to let go what is held: ended"])
                break
            if len(plan.templates) != told:
                told = len(plan.templates)
                click.echo(f"topogate: {plural(told, 'workload')} with the gate in a template; Ctrl-C ends", err=True)
            pause.wait(_PAUSE)
            try:
                snapshot = read_held(cluster, caller, namespace=scope.namespace, quiet=True)
            except ConnectionProblem as problem:
                if str(problem) != problem_told:
                    print_remarks([f"{problem}; trying again"])
                problem_told = str(problem)
                continue
            plan, problem_told = release_plan(snapshot.view, scope), ""
            Releaser(caller.api, snapshot.view.registry).release(attempts.left(plan), report=report)
    except KeyboardInterrupt:
        pass
    return snapshot, plan


def _webhooks_deleted(cluster: ClusterOptions, caller: Caller) -> bool:
    """Delete the webhook configurations of Topogate; return True if none is left. Others' stay, and are named."""
    from engine.cluster.client import ApiFault
    from webhook.maintenance.installation import LABEL, PART_OF, WEBHOOKS, find_objects
    from webhook.snapshot.connection import fault_text

    try:
        known = find_objects(caller.api, WEBHOOKS, namespace=cluster.service_namespace)
        for found in known:
            if found.foreign:
                why = f"it lacks the label {LABEL}={PART_OF}: add it if it is Topogate's"
                print_line(f"{found.object.called}: stays: {why}", failed=True)
        return delete_and_print(caller, known, namespace=cluster.service_namespace)
    except ApiFault as fault:
        print_line(f"the webhook configurations cannot be deleted: {fault_text(fault)}", failed=True)
        return False
