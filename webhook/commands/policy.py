"""`topogate policy`: check a policy, and tell what it changes for what exists."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from webhook.terminal.asking import caller_of, reading
from webhook.terminal.inputs import content_of, objects_of
from webhook.terminal.options import ClusterOptions, cluster_options, fail, format_option, print_model, print_remarks
from webhook.terminal.streams import print_data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.policy.model import Policy, PolicyError
    from engine.topology.topology import Topology
    from webhook.checks.model import PolicyCheckAnswer
    from webhook.snapshot.files import FileObject
    from webhook.snapshot.snapshot import Snapshot

MAX_POLICY_FILE: Final = 2 * 1024 * 1024
LIVE: Final = "live"
_UNKNOWN: Final = "the policy in force cannot be read, so nothing is compared with it"


@click.group()
def policy() -> None:
    """Work with the policy (the ConfigMap topogate-policy)."""


@policy.command("check")
@click.argument("file")
@click.option(
    "--cluster",
    "cluster_files",
    multiple=True,
    is_flag=False,
    flag_value=LIVE,
    metavar="[FILE]",
    help="Compare with what exists. Without FILE, or with live: the cluster of the kubeconfig. Else files: nodes, to "
    "count those of each topology; CustomResourceDefinitions, to check the paths of kinds; the policy in force and "
    "what exists, to compare with; - reads standard input.",
)
@click.option(
    "--object",
    "samples",
    multiple=True,
    metavar="FILE",
    help="Samples of the policy's kinds, or their CustomResourceDefinitions, to show how the entries read them.",
)
@format_option
@cluster_options
def check(
    *, file: str, cluster_files: tuple[str, ...], samples: tuple[str, ...], output: str, cluster: ClusterOptions
) -> None:
    """Check a policy with the webhook's own code, and tell what it changes for what exists.

    FILE is policy.yaml or the ConfigMap that holds it; - reads standard input. Every error is printed with its path.
    With --cluster: the nodes of each topology before and after, the namespaces whose mode or rule changes, every gang
    that is let go, stays held with an error, or is not managed any more, and for a change of the queue every waiting
    gang with another turn, or that gains or loses kept room. Nothing is changed.

    Exit status 1 if the policy would be refused, one of its topologies matches no node, or an entry of its kinds does
    not fit an object. Levels in namespaces.defaults are checked in full only with nodes, paths of kinds only with
    objects or definitions. Rights that added kinds need beyond the manifests are printed on standard output, as YAML to
    apply; everything else goes to standard error. With -o json or yaml all of it is on standard output.

    \b
    Example:
      topogate policy check policy.yaml
      topogate policy check policy.yaml --cluster
      kubectl get nodes,crds -o json | topogate policy check policy.yaml --cluster -
      kubectl get crd benches.example.com -o json | topogate policy check policy.yaml --object -
    """  # noqa: D301 - click wants the backspace itself
    from engine.policy.model import PolicyError, parse_policy
    from webhook.snapshot.connection import ConnectionProblem
    from webhook.snapshot.files import FileProblem, policy_text

    if (file, *cluster_files, *samples).count("-") > 1:
        fail("standard input (-) can be read only once")
    if LIVE in cluster_files and len(cluster_files) > 1:
        fail("--cluster reads either the cluster of the kubeconfig or files")
    try:
        parsed = parse_policy(policy_text(content_of(file, limit=MAX_POLICY_FILE), name=file))
        found = _compared(parsed, cluster_files, cluster)
        answer = _answer(parsed, found, objects_of(samples))
    except (FileProblem, ConnectionProblem) as problem:
        fail(str(problem))
    except PolicyError as error:
        answer = _refused(error)
    if output != "table":
        print_model(answer, output)
    else:
        _print(file, answer)
    sys.exit(0 if answer.good else 1)


@dataclass(frozen=True, slots=True)
class _Compared:
    """What a policy is compared with: the topologies that it has there, and the cluster, as far as they are known.

    `objects`: those of files.
    """

    topologies: Mapping[str, Topology]
    snapshot: Snapshot | None = None
    objects: Sequence[FileObject] = ()


def _compared(parsed: Policy, files: tuple[str, ...], cluster: ClusterOptions) -> _Compared:
    """Return the cluster of the kubeconfig or of files. Raises ConnectionProblem, FileProblem and OSError."""
    from engine.api import names
    from webhook.checks.policy_change import under
    from webhook.snapshot.cluster import offline_cluster
    from webhook.snapshot.snapshot import snapshot_of_files

    if not files:
        return _Compared({})
    if files == (LIVE,):
        snapshot = reading(cluster, caller_of(cluster))
        with under(snapshot.view, parsed) as view:
            return _Compared(dict(view.topologies) if snapshot.nodes_known else {}, snapshot)
    objects = objects_of(files)
    topologies = dict(offline_cluster(objects, policy=parsed).view.topologies)
    maps = (one.decoded() for one in objects if one.kind == "ConfigMap")
    known = any(isinstance(meta := one.get("metadata"), dict) and meta.get("name") == names.POLICY_NAME for one in maps)
    return _Compared(topologies, snapshot_of_files(objects, taken=time.time()) if known else None, objects)


def _answer(parsed: Policy, found: _Compared, samples: Sequence[FileObject]) -> PolicyCheckAnswer:
    """Return the answer for a policy that can be read. Raises PolicyError and FileProblem."""
    from engine.policy.model import PolicyError
    from engine.policy.namespaces import modes_text, policy_warnings
    from webhook.checks.entry_trial import definition_trials, trials
    from webhook.checks.model import PolicyCheckAnswer
    from webhook.checks.policy_change import policy_change, topology_nodes
    from webhook.configuration.extra_rights import extra_rights_page
    from webhook.rules.defaults import policy_errors

    if errors := policy_errors(parsed, found.topologies):
        raise PolicyError(errors)
    tried = (*definition_trials(found.objects, parsed.registry), *trials(samples, parsed.registry))
    topologies = topology_nodes(found.topologies.values())
    snapshot = found.snapshot
    known = snapshot is not None and all(one.collection != "configmaps" for one in snapshot.unread)
    return PolicyCheckAnswer(
        good=all(one.empty is None or parsed.autoscaling.of(one.name) for one in topologies)
        and all(trial.good for trial in tried),
        hash=parsed.hash,
        mode=modes_text(parsed),
        errors=(),
        warnings=tuple(policy_warnings(parsed)),
        topologies=topologies,
        trials=tuple(line for trial in tried for line in trial.lines),
        rights=extra_rights_page(parsed) or None,
        change=policy_change(snapshot, parsed) if snapshot is not None and known else None,
        remarks=() if snapshot is None or known else (*snapshot.remarks, _UNKNOWN),
    )


def _refused(error: PolicyError) -> PolicyCheckAnswer:
    from webhook.checks.model import PolicyCheckAnswer, PolicyFault

    return PolicyCheckAnswer(
        good=False,
        hash=None,
        mode=None,
        errors=tuple(PolicyFault(field=one.field, message=one.message) for one in error.errors),
        warnings=(),
        topologies=(),
        trials=(),
        rights=None,
        change=None,
        remarks=(),
    )


def _print(file: str, answer: PolicyCheckAnswer) -> None:
    """Print an answer: the rights on standard output, everything else on standard error."""
    from engine.api.text import plural
    from webhook.checks.policy_text import change_lines

    def say(line: str) -> None:
        click.echo(line, err=True)

    for fault in answer.errors:
        say(f"{fault.field}: {fault.message}" if fault.field else fault.message)
    if answer.errors:
        say(f"{file}: refused, {plural(len(answer.errors), 'error')}")
        return
    say(f"{file}: good (hash {answer.hash}, mode {answer.mode})")
    for warning in answer.warnings:
        say(f"warning: {warning}")
    for one in answer.topologies:
        say(f"topology {one.name} ({', '.join(one.levels)}): {one.found}")
    for line in change_lines(answer.change) if answer.change is not None else ():
        say(line)
    print_remarks((*answer.remarks, *(answer.change.remarks if answer.change is not None else ())))
    if answer.rights is not None:
        print_data(answer.rights)
    for one in answer.topologies:
        if one.empty is not None:
            say(f"topology {one.name} matches no node: {one.empty}")
    for line in answer.trials:
        say(line)
