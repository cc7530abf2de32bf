"""`topogate suspend`, `resume` and `requeue`: one workload gives its slots back, is replanned, or goes to the end."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

import click

from webhook.operations.held import print_outcome, read_held
from webhook.terminal.asking import caller_of
from webhook.terminal.options import ClusterOptions, cluster_options, fail, namespace_option, print_line, print_remarks

if TYPE_CHECKING:
    from engine.api.placement import Placement
    from engine.api.workload import Workload
    from webhook.maintenance.releaser import Outcome
    from webhook.maintenance.suspension import Suspender
    from webhook.snapshot.connection import Caller
    from webhook.snapshot.snapshot import Snapshot

_GIVEN_BACK_WITHIN: Final = 60.0  # seconds


@click.command(short_help="Suspend a gang, so that its slots are free for others.")
@click.argument("name", metavar="KIND/NAME")
@namespace_option
@cluster_options
def suspend(*, name: str, namespace: str | None, cluster: ClusterOptions) -> None:
    """Suspend a workload as its user: its pods end, its slots are free, and it is not planned until it is resumed.

    For kinds with a field for that (Job, JobSet, Kubeflow's, Ray's and others). A Job keeps its completed indexes. Exit
    status 0 if it is suspended, else 1.

    \b
    Example:
      topogate suspend job/train -n alice
    """  # noqa: D301 - click wants the backspace itself
    target = _Target.read(cluster, name, namespace)
    _end(target.suspender().suspend(target.workload))


@click.command(short_help="Resume a gang that its user has suspended.")
@click.argument("name", metavar="KIND/NAME")
@namespace_option
@cluster_options
def resume(*, name: str, namespace: str | None, cluster: ClusterOptions) -> None:
    """Resume a workload that its user has suspended: it is planned, and starts when it has slots.

    A workload that Topogate holds is not released: topogate release does that. Exit status 0 if it is resumed, else 1.

    \b
    Example:
      topogate resume job/train -n alice
    """  # noqa: D301 - click wants the backspace itself
    target = _Target.read(cluster, name, namespace)
    _end(target.suspender().resume(target.workload))


@click.command(short_help="Place a gang anew, or move a waiting one to the end of the queue.")
@click.argument("name", metavar="KIND/NAME")
@namespace_option
@cluster_options
def requeue(*, name: str, namespace: str | None, cluster: ClusterOptions) -> None:
    """Requeue a gang: one with slots is suspended, gives them back, and is resumed to be placed anew.

    Its pods end. While the policy's mode is hold, a gang with slots is not requeued: it would get no others. One that
    waits goes to the end of its priority; only admins of the policy may do that, for all others it keeps its turn. Exit
    status 0 if it is done, else 1.

    \b
    Example:
      topogate requeue job/train -n alice
    """  # noqa: D301 - click wants the backspace itself
    target = _Target.read(cluster, name, namespace)
    suspender, workload = target.suspender(), target.workload
    if unknown := target.unknown():
        fail(f"whether it has slots is not known: {unknown}")
    if target.has_slots():
        if held := target.on_hold():
            print_remarks([f"not requeued: {held}: it would give its slots back and get no others"])
            sys.exit(1)
        if target.is_suspended():
            again = f"topogate resume {name} -n {target.namespace} starts it again"
            print_remarks([f"not requeued: it is suspended by its user, and is giving its slots back: {again}"])
            sys.exit(1)
        first = suspender.suspend(workload)
        if not first.done:
            _end(first)
        print_outcome(first)
        try:
            target.await_given_back()
        except (KeyboardInterrupt, TimeoutError) as error:
            why = str(error) or "interrupted"
            print_remarks([f"{why}; the workload stays suspended: topogate resume {name} -n {target.namespace}"])
            sys.exit(1)
        _end(suspender.resume(target.workload))
    if target.is_held():
        _end(suspender.move_back(workload, target.placements()))
    print_line("it has no slots, and does not wait for any: nothing to requeue")
    sys.exit(1)


@dataclass(slots=True)
class _Target:
    """The workload that a person has named, in the cluster as it was read last."""

    cluster: ClusterOptions
    caller: Caller
    namespace: str
    snapshot: Snapshot
    workload: Workload

    @classmethod
    def read(cls, cluster: ClusterOptions, name: str, namespace: str | None) -> _Target:
        """Return what a person has named; ends the program where it can be neither suspended nor resumed."""
        from webhook.maintenance.suspension import why_not
        from webhook.queries.subject import SubjectProblem, subject_of
        from webhook.snapshot.connection import ConnectionProblem

        caller = caller_of(cluster)
        namespace = namespace or caller.namespace
        try:
            snapshot = read_held(cluster, caller, namespace=namespace)
            found = subject_of(snapshot, name, namespace=namespace)
        except (ConnectionProblem, SubjectProblem) as problem:
            fail(str(problem))
        workload = found.workload
        if workload is None and found.keys:
            workload = snapshot.view.gangs.workload_of(found.keys[0])
        if workload is None:
            fail(f"{name} is no workload, and belongs to none")
        if why := why_not(workload):
            print_remarks([why])
            sys.exit(1)
        return cls(cluster, caller, namespace, snapshot, workload)

    def suspender(self) -> Suspender:
        """Return what changes the workload."""
        from webhook.maintenance.releaser import Releaser
        from webhook.maintenance.suspension import Suspender

        return Suspender(Releaser(self.caller.api, self.snapshot.view.registry))

    def placements(self) -> list[Placement]:
        """Return the Placements of its gangs."""
        found = self.snapshot.view.stores.placements.values()
        return [one for one in found if one.workload.uid == self.workload.uid]

    def has_slots(self) -> bool:
        """Return True if one of its gangs has slots."""
        return any(one.assignment is not None for one in self.placements())

    def unknown(self) -> str:
        """Return why its Placements are not known; "" if they are."""
        from engine.api import names

        unread = self.snapshot.unread_in(names.PLACEMENTS, self.namespace)
        return unread.text if unread is not None else ""

    def on_hold(self) -> str:
        """Return why no gang of its namespace is placed now; "" if they are."""
        from engine.policy.namespaces import mode_of

        mode = mode_of(self.namespace, self.snapshot.view.policy)
        return mode.text if mode.holds else ""

    def is_held(self) -> bool:
        """Return True if the service has suspended it."""
        from engine.gang.gang import held_by_us

        return held_by_us(self.workload)

    def is_suspended(self) -> bool:
        """Return True if its user has suspended it."""
        from engine.gang.gang import suspended_by_user

        return suspended_by_user(self.workload)

    def await_given_back(self) -> None:
        """Wait until it has no slots any more. Raises TimeoutError."""
        from webhook.snapshot.connection import ConnectionProblem

        click.echo("topogate: waiting until the leader has taken its slots back", err=True)
        end = time.monotonic() + _GIVEN_BACK_WITHIN
        while True:
            try:
                self.snapshot = read_held(self.cluster, self.caller, namespace=self.namespace, quiet=True)
            except ConnectionProblem as problem:
                raise TimeoutError(str(problem)) from None
            self.workload = self.snapshot.view.stores.workloads.get(self.workload.key) or self.workload
            unknown = self.unknown()
            if not unknown and not self.has_slots():
                return
            if time.monotonic() > end:
                raise TimeoutError(unknown or "the leader has not taken its slots back: does the service run?")
            time.sleep(1.0)


def _end(outcome: Outcome) -> NoReturn:
    print_outcome(outcome)
    sys.exit(0 if outcome.done else 1)
