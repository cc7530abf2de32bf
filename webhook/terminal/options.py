"""The options that commands have in common, named as kubectl's, and how an answer is printed."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from engine.api import names
from webhook.terminal.streams import print_data
from webhook.terminal.tables import clean

if TYPE_CHECKING:
    from pydantic import BaseModel

    from webhook.terminal.text import TextPart

FORMATS: Final = ("table", "wide", "json", "yaml")
CHECK_FORMATS: Final = ("table", "json", "yaml")
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Which cluster is asked, and where the service runs in it."""

    kubeconfig: str | None
    context: str | None
    service_namespace: str


def cluster_options(command: Command) -> Command:
    """Add the options of a command that asks a cluster; it gets them as `cluster`."""

    def collected(
        *args: Any, kubeconfig: str | None, context: str | None, service_namespace: str, **options: Any
    ) -> Any:
        return command(*args, cluster=ClusterOptions(kubeconfig, context, service_namespace), **options)

    collected.__doc__, collected.__name__ = command.__doc__, command.__name__
    found: Any = collected
    for option in (
        click.option(
            "--service-namespace",
            default=names.NAMESPACE,
            show_default=True,
            envvar="TOPOGATE_NAMESPACE",
            metavar="NAME",
            help="Namespace of the service, where its policy is.",
        ),
        click.option("--context", metavar="NAME", help="Context of the kubeconfig. Default: the current one."),
        click.option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, in-cluster, or ~/.kube/config."),
    ):
        found = option(found)
    result: Command = found
    return result


def namespace_option(command: Command) -> Command:
    """Add `-n`."""
    return click.option(
        "-n", "--namespace", metavar="NAME", help="Default: the namespace of the kubeconfig's context."
    )(command)


def namespace_options(command: Command) -> Command:
    """Add `-n` and `-A`."""
    return namespace_option(click.option("-A", "--all-namespaces", is_flag=True, help="Of all namespaces.")(command))


class NumberRange(click.FloatRange):
    """Numbers within bounds; `nan` is none of them, though it is neither below nor above a bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is no number", param, ctx)
        return number


def interval_option(text: str) -> Callable[[Command], Command]:
    """Return the decorator that adds `--interval`, with its help."""
    return click.option(
        "--interval",
        default=5.0,
        show_default=True,
        type=NumberRange(1, 3600),
        metavar="SECONDS",
        help=text,
    )


def output_options(command: Command) -> Command:
    """Add `-o`, `--watch` and `--interval`."""
    found = interval_option("Pause between two readings with --watch.")(command)
    found = click.option("-w", "--watch", is_flag=True, help="Read again and print what changes, until Ctrl-C.")(found)
    return click.option("-o", "--output", default="table", show_default=True, type=click.Choice(FORMATS))(found)


def format_option(command: Command) -> Command:
    """Add `-o`."""
    return click.option("-o", "--output", default="table", show_default=True, type=click.Choice(CHECK_FORMATS))(command)


def print_remarks(remarks: Iterable[str]) -> None:
    """Print on standard error what an answer does not know."""
    for remark in remarks:
        click.echo("topogate: " + clean(remark), err=True)


def print_model(answer: BaseModel, output: str, *, compact: bool = False) -> None:
    """Print an answer as JSON or YAML; `compact`: JSON in one line, as one of many."""
    if output == "json":
        print_data(answer.model_dump_json(by_alias=True, indent=None if compact else 2) + "\n")
        return
    from webhook.snapshot.yaml_output import as_yaml

    print_data(("---\n" if compact else "") + as_yaml(answer.model_dump(mode="json", by_alias=True)))


def print_sections(sections: Sequence[TextPart]) -> None:
    """Print tables with the lines around them: coloured on a terminal, plain columns in a pipe."""
    from webhook.terminal.tables import as_table, as_text, console_of, least_width

    terminal = sys.stdout.isatty()
    for place, section in enumerate(sections):
        if place:
            click.echo()
        for line in section.before:
            click.echo(clean(line))
        if section.rows and terminal:
            console = console_of(least_width(section.columns, section.rows))
            console.print(as_table(section.columns, section.rows, styles=section.styles))
        elif section.rows:
            click.echo(as_text(section.columns, section.rows))
        for line in section.after:
            click.echo(clean(line))


def print_line(text: str, *, failed: bool = False) -> None:
    """Print a line about one object; on standard error if something failed."""
    click.echo(("topogate: " if failed else "") + clean(text), err=failed)


def fail(message: str) -> NoReturn:
    """Report in one line that the command cannot answer, and exit with status 2."""
    click.echo("topogate: " + clean(message), err=True)
    sys.exit(2)
