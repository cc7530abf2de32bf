"""`topogate`: the command line. Exit status 0 for success, 1 for a negative answer, 2 for wrong use or no answer."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from engine.api.text import quote
from webhook.admission.budget import REVIEW_CPU
from webhook.commands.completion import VARIABLE, completion
from webhook.commands.defragment import defragment
from webhook.commands.explain import explain_command
from webhook.commands.fits import fits
from webhook.commands.gangs import gangs
from webhook.commands.history import history
from webhook.commands.map import map_command
from webhook.commands.policy import MAX_POLICY_FILE, policy
from webhook.commands.support_bundle import support_bundle
from webhook.commands.topology import topology
from webhook.commands.verify import verify
from webhook.connections.listener import EVERYWHERE
from webhook.operations.release import release
from webhook.operations.suspension import requeue, resume, suspend
from webhook.operations.uninstall import uninstall
from webhook.service.logs import FORMATS, start_logging
from webhook.service.settings import MOST_DOMAINS, Settings, SettingsError, own_identity, own_namespace
from webhook.terminal.inputs import content_of, objects_of, one_line
from webhook.terminal.options import NumberRange
from webhook.terminal.streams import discard_output, escape_unknown, print_last, replace_closed
from webhook.terminal.tables import clean

if TYPE_CHECKING:
    from webhook.queries.subject import Subject
    from webhook.simulate.run import PreemptScope
    from webhook.snapshot.snapshot import Snapshot


FORMATS_OF_DATA = ("table", "json", "yaml")
INTERRUPTED = 130  # as a shell reports it
UNHEARD = 141  # as it reports a program that SIGPIPE ends

log = logging.getLogger("topogate")


class OneLineErrors(click.Group):
    """A command group that reports usage errors as one line on standard error, for scripts and logs."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; where the reader of its output has gone (`| head -1`), end without a word."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            discard_output()
            sys.exit(UNHEARD)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command; in standalone mode (the default) exit with its status.

        An error of the operating system ends the program with one line: a file that cannot be read, a full disk. So
        does a name on the command line that is not UTF-8, where it cannot be sent or searched for.
        """
        called = prog_name or ("kubectl topogate" if Path(sys.argv[0]).name == "kubectl-topogate" else None)
        variable = complete_var or VARIABLE
        if not standalone_mode:
            return super().main(args, called, variable, standalone_mode=False, **extra)
        replace_closed()
        escape_unknown()
        try:
            status = super().main(args, called, variable, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            text, status = error.format_message(), error.exit_code
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            hint = f" ({context.command_path} --help)" if context is not None else ""
            text, status = f"topogate: {clean(' '.join(error.format_message().split()))}{hint}", error.exit_code
        except click.Abort:
            text, status = "topogate: interrupted", INTERRUPTED
        except OSError as error:
            text, status = f"topogate: {clean(one_line(error))}", 2
        except UnicodeEncodeError as error:  # what files and servers hold is UTF-8, and any output takes everything
            text, status = f"topogate: an argument is not UTF-8 text: {quote(error.object)}", 2
        else:
            sys.exit(status if isinstance(status, int) else 0)
        print_last(text)
        sys.exit(status)


@click.group(cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="topogate", prog_name="topogate")
def main() -> None:
    """Topology-aware gang placement for Kubernetes, beside the stock kube-scheduler."""


def _submit(snapshot: Snapshot, files: Sequence[str], namespace: str) -> list[Subject]:
    from webhook.simulate.unsubmitted import unsubmitted

    return unsubmitted(snapshot, objects_of(files), namespace=namespace)


for _command in (
    topology,
    gangs,
    fits,
    defragment,
    explain_command(_submit),
    history,
    map_command,
    suspend,
    resume,
    requeue,
    verify,
    policy,
    release,
    uninstall,
    support_bundle,
    completion,
):
    main.add_command(_command)


@main.command()
@click.option(
    "--host",
    default=EVERYWHERE,
    show_default=True,
    help="Address of the webhook port; :: is every one, of IPv6 and IPv4.",
)
@click.option("--port", default=8443, show_default=True, type=click.IntRange(0, 65535), help="Webhook port (HTTPS).")
@click.option("--ops-host", default=EVERYWHERE, show_default=True, help="Address of the plain port.")
@click.option(
    "--ops-port",
    default=8080,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of /healthz, /readyz and /metrics (plain HTTP).",
)
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="Default: in-cluster, or $KUBECONFIG.")
@click.option(
    "--namespace", help="Namespace of the service. Default: $TOPOGATE_NAMESPACE, the pod's own, or topogate-system."
)
@click.option("--address", "addresses", multiple=True, help="Additional IP address for the serving certificate.")
@click.option(
    "--certificates-from",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory with tls.crt, tls.key and ca.crt, as cert-manager keeps them, read again when they change. "
    "Default: a CA of the service's own.",
)
@click.option(
    "--client-ca",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Accept reviews only from clients with a certificate of a CA in this file (PEM), read again when it changes.",
)
@click.option(
    "--client-name",
    "client_names",
    multiple=True,
    help="With --client-ca: a common name or DNS name that the client's certificate must have; may be repeated.",
)
@click.option(
    "--threads", default=4, show_default=True, type=click.IntRange(1, 64), help="Threads that answer admission reviews."
)
@click.option(
    "--review-cpu",
    default=REVIEW_CPU,
    show_default=True,
    type=NumberRange(0.1, 10),
    help="CPU seconds that one review may use.",
)
@click.option(
    "--domain-metrics",
    default=MOST_DOMAINS,
    show_default=True,
    type=click.IntRange(0, 10_000),
    help="Domains with metrics of their own; a level with which there would be more has none.",
)
@click.option(
    "--log-format",
    default="json",
    show_default=True,
    type=click.Choice(FORMATS),
    help="text is for people: topogate history cannot read it.",
)
def serve(
    *,
    host: str,
    port: int,
    ops_host: str,
    ops_port: int,
    kubeconfig: str | None,
    namespace: str | None,
    addresses: tuple[str, ...],
    certificates_from: Path | None,
    client_ca: Path | None,
    client_names: tuple[str, ...],
    threads: int,
    review_cpu: float,
    domain_metrics: int,
    log_format: str,
) -> None:
    """Run the service: webhooks, watch caches and leader election. The container's entry point.

    \b
    Example:
      topogate serve --port 8443 --ops-port 8080
    """  # noqa: D301 - click wants the backspace itself
    from webhook.server.wsgi import Server
    from webhook.server.wsgi import serve as run
    from webhook.service.runtime import Runtime

    if client_names and client_ca is None:
        _fail("--client-name needs --client-ca")
    start_logging(log_format)
    environment = {"TOPOGATE_NAMESPACE": namespace} if namespace else None
    try:
        settings = Settings(
            namespace=own_namespace(environment) if environment else own_namespace(),
            identity=own_identity(),
            kubeconfig=kubeconfig,
            host=host,
            port=port,
            ops_host=ops_host,
            ops_port=ops_port,
            threads=threads,
            review_cpu=review_cpu,
            domain_metrics=domain_metrics,
            addresses=addresses,
            certificates_from=certificates_from,
            client_ca=client_ca,
            client_names=client_names,
        )
    except SettingsError as error:
        _fail(str(error))
    runtime = Runtime(settings)
    run(Server(runtime.service(), host=host, port=port))


@main.command(short_help="Show offline what would happen to workloads on a cluster.")
@click.option(
    "--cluster",
    "cluster_files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="State of the cluster: nodes, pods, Jobs, Placements, quotas, the policy, ...",
)
@click.option(
    "-f", "--filename", "workload_files", multiple=True, required=True, metavar="FILE", help="The workloads to submit."
)
@click.option("--policy", "policy_file", metavar="FILE", help="policy.yaml, or the ConfigMap that holds it.")
@click.option("--levels", metavar="KEY,KEY,...", help="Node label keys, coarse to fine, if no policy names levels.")
@click.option("--queue", is_flag=True, help="Process the workloads in the queue's order, not in file order.")
@click.option("--independent", is_flag=True, help="Simulate each workload alone, on the cluster as given.")
@click.option(
    "--preempt",
    type=click.Choice(("policy", "managed", "all")),
    is_flag=False,
    flag_value="policy",
    help="Preempt by the policy's rules, even if its mode is never; managed, all: with these victims instead of the "
    "policy's. Alone: policy. Without the option the policy's mode decides.",
)
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of objects without one.")
@click.option("-o", "--output", type=click.Choice(FORMATS_OF_DATA), help="Default: table; yaml with --show.")
@click.option(
    "--show", type=click.Choice(("objects", "patches")), help="Print the mutated objects, or the webhook's patches."
)
def simulate(
    *,
    cluster_files: tuple[str, ...],
    workload_files: tuple[str, ...],
    policy_file: str | None,
    levels: str | None,
    queue: bool,
    independent: bool,
    preempt: PreemptScope | None,
    namespace: str,
    output: str | None,
    show: str | None,
) -> None:
    """Show what would happen to workloads on a cluster: admission and planning, offline, with the service's own code.

    Files are YAML or JSON, also with several documents, lists, or output of kubectl; - reads standard input. --cluster
    and -f may be repeated. Exit status 0 if every workload is placed or ignored, else 1.

    \b
    Example:
      kubectl get nodes,pods,daemonsets -A -o json > cluster.json
      topogate simulate --cluster cluster.json -f train.yaml
    """  # noqa: D301 - click wants the backspace itself
    from webhook.simulate import run as simulation
    from webhook.simulate.model import Simulation
    from webhook.simulate.output import print_answer, print_objects
    from webhook.snapshot.cluster import offline_cluster, policy_of
    from webhook.snapshot.files import FileProblem, policy_text
    from webhook.terminal.asking import ReadingProgress

    namespace = namespace or "default"  # as of a variable of a script that is not set
    if (*cluster_files, *workload_files, policy_file).count("-") > 1:
        _fail("standard input (-) can be read only once")
    if show is not None and output == "table":
        _fail("--show prints json or yaml")
    try:
        policy = None
        if policy_file is not None:
            text = policy_text(content_of(policy_file, limit=MAX_POLICY_FILE), name=policy_file)
            policy = policy_of(text, where=policy_file)
        cluster = offline_cluster(
            objects_of(cluster_files),
            policy=policy,
            levels=[key.strip() for key in levels.split(",")] if levels is not None else (),
            namespace=namespace,
        )
        absent = () if cluster.nodes else ("no Node in the files of --cluster: nothing can be placed",)
        for note in (*absent, *cluster.notes):
            click.echo(f"topogate: {note}", err=True)
        with ReadingProgress("simulating, {:,} gangs so far") as progress:
            simulated = simulation.simulate(
                cluster,
                objects_of(workload_files),
                queue=queue,
                independent=independent,
                preempt=preempt,
                namespace=namespace,
                clock=time.perf_counter_ns,
                progress=progress,
                now=time.time(),
            )
    except FileProblem as problem:
        _fail(str(problem))
    answer = Simulation(workloads=tuple(one.gang for one in simulated), cluster=simulation.facts(cluster))
    if any(gang.preempts for gang in answer.workloads) and cluster.view.policy.preemption.mode == "never":
        click.echo("topogate: preemption.mode is never: this would happen with lower-priority", err=True)
    if show is not None:
        print_objects(simulated, "objects" if show == "objects" else "patches", output or "yaml")
    else:
        print_answer(answer, output or "table", cluster.view.topologies.values())
    sys.exit(0 if answer.good else 1)


def _fail(message: str) -> NoReturn:
    """Report wrong use or bad input in one line and exit with status 2."""
    click.echo("topogate: " + "".join(char if char.isprintable() else " " for char in message), err=True)
    sys.exit(2)


if __name__ == "__main__":
    main()
