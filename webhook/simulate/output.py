"""Prints the results of `topogate simulate`, and with `--show` the objects as they would be stored."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import click

from engine.topology.topology import Topology
from webhook.admission.patch import Operation
from webhook.simulate import text
from webhook.simulate.model import Simulation
from webhook.simulate.run import Simulated
from webhook.snapshot.yaml_output import as_yaml
from webhook.terminal.options import print_model
from webhook.terminal.streams import print_data
from webhook.terminal.tables import console_of

Show = Literal["objects", "patches"]


def shown(simulated: Sequence[Simulated], what: Show) -> list[dict[str, Any]]:
    """Return the objects that would be stored (without refused ones), or the JSON Patch of every workload."""
    if what == "objects":
        return [dict(stored) for one in simulated for stored, _ in _objects(one) if stored is not None]
    return [
        {
            "kind": one.gang.kind,
            "namespace": one.gang.namespace,
            "name": _name(stored) or one.gang.name,
            "patch": [dict(operation) for operation in patch],
        }
        for one in simulated
        for stored, patch in _objects(one)
        if one.gang.group is None or stored is not None  # one object, one patch: with the first of its gangs
    ]


def _objects(one: Simulated) -> Sequence[tuple[Mapping[str, Any] | None, Sequence[Operation]]]:
    return ((one.stored, one.patch), *one.others)


def _name(stored: Mapping[str, Any] | None) -> str:
    """Return the object's name; "" if it is refused because it has none."""
    metadata = stored.get("metadata") if stored is not None else None
    return str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""


def print_answer(answer: Simulation, output: str, topologies: Collection[Topology]) -> None:
    """Print the answer as json, yaml or a table."""
    match output:
        case "json" | "yaml":
            print_model(answer, output)
        case _ if sys.stdout.isatty():
            console_of(text.least_width_of(answer)).print(text.as_table(answer))
            click.echo(text.summary(answer, topologies))
        case _:
            click.echo(text.as_text(answer, topologies))


def print_objects(simulated: Sequence[Simulated], show: Show, output: str) -> None:
    """Print what `--show` asks for; objects in yaml are documents, in json a List."""
    found = shown(simulated, show)
    if output == "yaml":
        if show == "objects":
            print_data("---\n".join(map(as_yaml, found)))
        else:
            print_data(as_yaml(found))
        return
    listed = {"apiVersion": "v1", "kind": "List", "items": found} if show == "objects" else found
    print_data(json.dumps(listed, indent=2) + "\n")
