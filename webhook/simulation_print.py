"""Puts what `topogate simulate` found on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Sequence

import click

from engine.topology.topology import Topology
from webhook import simulation_text
from webhook.simulate import Simulated
from webhook.simulation_objects import Show, as_yaml, shown
from webhook.simulation_output import Simulation


def print_answer(answer: Simulation, output: str, topologies: Collection[Topology]) -> None:
    """Print the answer as json, yaml or a table."""
    match output:
        case "json":
            click.echo(answer.model_dump_json(by_alias=True, indent=2))
        case "yaml":
            click.echo(as_yaml(answer.model_dump(mode="json", by_alias=True)), nl=False)
        case _ if sys.stdout.isatty():
            from rich.console import Console

            console = Console(highlight=False)
            console.print(simulation_text.as_table(answer))
            console.print(simulation_text.summary(answer, topologies), markup=False)
        case _:
            click.echo(simulation_text.as_text(answer, topologies))


def print_objects(simulated: Sequence[Simulated], show: Show, output: str) -> None:
    """Print what `--show` asks for; objects in yaml are documents, in json a List."""
    found = shown(simulated, show)
    if output == "yaml":
        if show == "objects":
            click.echo("---\n".join(map(as_yaml, found)), nl=False)
        else:
            click.echo(as_yaml(found), nl=False)
        return
    listed = {"apiVersion": "v1", "kind": "List", "items": found} if show == "objects" else found
    click.echo(json.dumps(listed, indent=2))
