"""`topogate uninstall`: shows what goes and what stays, then removes Topogate so that nothing is held at any moment."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import click

from webhook.operations.held import delete_and_print, read_held, release_held, remarks, verdict
from webhook.terminal.asking import caller_of
from webhook.terminal.options import ClusterOptions, cluster_options, fail, print_line, print_remarks

if TYPE_CHECKING:
    from webhook.maintenance.installation import InstalledObject
    from webhook.maintenance.release import ReleasePlan
    from webhook.maintenance.removal import RemovalPlan
    from webhook.snapshot.connection import Caller
    from webhook.snapshot.snapshot import Snapshot

_GONE_WITHIN: Final = 60.0  # seconds, for the CustomResourceDefinition with its Placements
_AGAIN: Final = "nothing more was changed; run topogate uninstall again when that is solved"


@click.command(short_help="Remove Topogate from the cluster; nothing stays held.")
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--leave-manifests",
    is_flag=True,
    help="Leave what was applied to the tool that did it (Helm, Argo CD, Flux): release, and delete only the webhook "
    "configurations, the Deployment and what the service itself has made.",
)
@cluster_options
def uninstall(*, dry_run: bool, yes: bool, leave_manifests: bool, cluster: ClusterOptions) -> None:
    """Remove Topogate from the cluster, in an order in which nothing stays held and no pod is deleted.

    Shows the plan and asks. First the webhook configurations are deleted and the service ends; then all that is held is
    released, of all installed kinds; then definitions, roles and the namespace of the service are deleted. Only objects
    with the names and the label of the manifests are deleted, and those that the service has made. Interrupted or
    failed, it is continued by running it again. What runs goes on.

    Nothing is changed if a right is missing, if the service is in another namespace than --service-namespace, or if its
    webhook configurations or its Deployment lack the label of the manifests. Exit status 0 if Topogate is removed and
    nothing is held, else 1.

    \b
    Example:
      topogate uninstall --dry-run
      topogate uninstall --yes
    """  # noqa: D301 - click wants the backspace itself
    from engine.cluster.client import ApiFault
    from webhook.maintenance.removal import steps_text, warnings_text
    from webhook.snapshot.connection import ConnectionProblem, reason_text

    caller = caller_of(cluster)
    try:
        if lacks := _unreadable(cluster, caller, leave_manifests=leave_manifests):
            print_remarks([*lacks, "the plan cannot be made; nothing was changed"])
            sys.exit(1)
        snapshot, plan = _planned(cluster, caller, leave_manifests=leave_manifests)
        if plan.empty:
            print_line("Topogate is not installed, and nothing is held")
            for line in warnings_text(plan):
                print_line(line)
            sys.exit(0)
        for line in (*steps_text(plan), *warnings_text(plan)):
            print_line(line)
        if lacks := _lacking(caller, snapshot, plan):
            print_remarks([*lacks, "nothing was changed"])
            sys.exit(1)
        if dry_run:
            sys.exit(0)
        if not yes:
            if sys.stdin is None or not sys.stdin.isatty():
                fail("add --yes to go on without a terminal")
            click.confirm("Remove Topogate?", abort=True, err=True)
        sys.exit(0 if _Uninstaller(cluster, caller).run(plan) else 1)
    except (ConnectionProblem, ApiFault) as problem:
        print_remarks([reason_text(str(problem)), _AGAIN])
        sys.exit(1)


def _planned(cluster: ClusterOptions, caller: Caller, *, leave_manifests: bool) -> tuple[Snapshot, RemovalPlan]:
    """Return the state of the cluster and what is to be done. Raises ConnectionProblem and ApiFault."""
    from webhook.maintenance.installation import find_objects
    from webhook.maintenance.others import others_in
    from webhook.maintenance.release import release_plan
    from webhook.maintenance.removal import RemovalPlan, everything

    namespace = cluster.service_namespace
    snapshot = read_held(cluster, caller, namespace=None)
    placements = list(snapshot.view.stores.placements.values())
    return snapshot, RemovalPlan(
        namespace=namespace,
        objects=find_objects(caller.api, everything(namespace, leave_manifests=leave_manifests), namespace=namespace),
        release=release_plan(snapshot.view),
        placements=len(placements),
        placed=sum(one.assignment is not None for one in placements),
        others=() if leave_manifests else others_in(caller.api, namespace),
        leaves_manifests=leave_manifests,
    )


def _unreadable(cluster: ClusterOptions, caller: Caller, *, leave_manifests: bool) -> list[str]:
    """Return the rights that the caller lacks to see what is installed. Raises ApiFault."""
    from webhook.maintenance.removal import reading_rights
    from webhook.maintenance.rights import lacking_text, missing_rights

    return lacking_text(
        missing_rights(caller.api, reading_rights(cluster.service_namespace, leave_manifests=leave_manifests))
    )


def _lacking(caller: Caller, snapshot: Snapshot, plan: RemovalPlan) -> list[str]:
    """Return what is in the way, and what the caller may not read or change. Raises ApiFault."""
    from webhook.maintenance.removal import rights
    from webhook.maintenance.rights import lacking_text, missing_rights

    missing = lacking_text(missing_rights(caller.api, rights(plan)))
    return [*plan.obstacles, *(remarks(snapshot, None) if snapshot.unread else ()), *missing]


@dataclass(frozen=True, slots=True)
class _Uninstaller:
    """Does the steps of a plan; each is harmless when it is done already."""

    cluster: ClusterOptions
    caller: Caller

    def run(self, plan: RemovalPlan) -> bool:
        """Do all steps and print the verdict; return True if Topogate is removed and nothing is held."""
        from webhook.maintenance import installation as parts
        from webhook.maintenance.others import others_in

        namespace = parts.service_namespace_object(plan.namespace)
        if not (self._delete(parts.WEBHOOKS) and self._end_service() and self._delete(parts.WEBHOOKS)):
            return self._stopped()
        snapshot, held = self._release()
        if held.held or snapshot.unread:
            print_remarks([f"{held.held:,} still held", *remarks(snapshot, None)])
            return self._stopped()
        if plan.leaves_manifests:
            return self._ended(plan) if self._delete(parts.MADE_BY_SERVICE) else self._stopped()
        good = self._delete((*parts.ADMISSION_POLICIES, *parts.DEFINITION)) and self._await_gone(parts.DEFINITION)
        good = good and self._delete(parts.ROLES) and self._delete(parts.IN_NAMESPACE)
        if good:
            # Looked at again: minutes may have passed since the plan, and what is in it then goes with it.
            plan = replace(plan, others=others_in(self.caller.api, plan.namespace))
            good = bool(plan.others) or self._delete((namespace,))
        if not good:
            return self._stopped()
        return self._ended(plan)

    def _ended(self, plan: RemovalPlan) -> bool:
        """Print the last lines; return True if nothing is held."""
        snapshot, held = self._release()  # pods that were made from templates meanwhile
        for line in verdict(held, policy=snapshot.view.policy, webhooks=False):
            print_line(line)
        for line in plan.left:
            print_line(f"stays: {line}")
        if plan.leaves_manifests:
            print_line("Topogate has ended; delete what was applied with the tool that applied it")
            return not held.held
        print_line("Topogate is removed; labels and annotations of it stay on workloads and pods, without effect")
        return not held.held

    def _release(self) -> tuple[Snapshot, ReleasePlan]:
        from webhook.maintenance.release import ReleaseScope

        snapshot = read_held(self.cluster, self.caller, namespace=None, quiet=True)
        return release_held(self.cluster, self.caller, snapshot, ReleaseScope(), suspended_templates=True)

    def _delete(self, objects: Iterable[InstalledObject]) -> bool:
        """Delete those of the objects that exist and are ours; return True if none of these is left."""
        from webhook.maintenance.installation import find_objects

        namespace = self.cluster.service_namespace
        return delete_and_print(
            self.caller, find_objects(self.caller.api, objects, namespace=namespace), namespace=namespace
        )

    def _end_service(self) -> bool:
        from webhook.maintenance.installation import SERVICE
        from webhook.maintenance.shutdown import await_end

        if not self._delete(SERVICE):
            return False
        click.echo("topogate: waiting until no replica of the service runs", err=True)
        if why := await_end(self.caller.api, self.cluster.service_namespace):
            print_remarks([why])
        return not why

    def _await_gone(self, objects: tuple[InstalledObject, ...]) -> bool:
        from webhook.maintenance.installation import find_objects

        end = time.monotonic() + _GONE_WITHIN
        while left := find_objects(self.caller.api, objects, namespace=self.cluster.service_namespace):
            if all(one.foreign for one in left):
                break
            if time.monotonic() > end:
                print_remarks([f"{one.object.called} is not gone yet" for one in left])
                return False
            time.sleep(0.5)
        return True

    @staticmethod
    def _stopped() -> bool:
        print_remarks([_AGAIN])
        return False
