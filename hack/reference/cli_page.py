"""The reference page of the command line: the help of every command, and the keys of what commands print as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, get_origin

import click
from pydantic import BaseModel

from engine.api.schema import fields_of, section_of
from webhook.checks.model import DoctorAnswer, PolicyCheckAnswer, VerifyAnswer
from webhook.cli import main as topogate
from webhook.history.model import HistoryAnswer
from webhook.queries.model import (
    DefragmentAnswer,
    ExplainAnswer,
    Explained,
    FitsAnswer,
    GangsAnswer,
    TopologiesAnswer,
)
from webhook.simulate.model import Simulation, Verdict

HELP_COLUMNS: Final = 100
ANSWERS: Final[dict[str, type[BaseModel]]] = {
    "topology show": TopologiesAnswer,
    "topology doctor": DoctorAnswer,
    "gangs": GangsAnswer,
    "fits": FitsAnswer,
    "defragment": DefragmentAnswer,
    "explain": ExplainAnswer,
    "history": HistoryAnswer,
    "verify": VerifyAnswer,
    "policy check": PolicyCheckAnswer,
}
_VERDICTS: Final[dict[Verdict, str]] = {
    "placed": "It would start now; `podSets[].assignment` says where.",
    "waits": "Not now: `reason` and `message` say why.",
    "never": "Larger than the topology can ever hold (`rejected` if the policy says `neverFits: deny`).",
    "rejected": "The API server would refuse it; `errors` says why.",
    "ignored": "Not managed: Topogate would not change it.",
}
_EXPLAINED: Final[dict[Explained, str]] = {
    "placed": "It has slots; `pods` says where each pod is, and why one is late.",
    "fits": "It waits, and the planner would place it now: the leader does so in its next pass.",
    "waits": "Not now: `reason`, `message`, `inTheWay`, `ahead` and `waysOut` say why, and what would change it.",
    "never": "Larger than the topology can ever hold.",
    "refused": "Its request is wrong, or the policy does not allow it; `faults` has every error.",
    "ignored": "Not managed; `message` says why.",
    "finished": "It has ended.",
    "orphaned": "A Placement whose workload does not exist any more.",
}


def cli_page() -> str:
    """Return the reference of the command line: the help of every command, as the program prints it."""
    lines = [
        "# The command line",
        "",
        "<!-- Generated from webhook/cli.py by `python -m hack.reference`; do not edit. -->",
        "",
        "`topogate` is in the image; `make setup` installs it as `.venv/bin/topogate`. Exit status 0: done; 1: a "
        "negative answer; 2: wrong use, bad input, or output that cannot be written, with one line on stderr; 130: "
        "Ctrl-C before there is an answer; 141: the reader of its output has gone (`| head -1`). "
        "`kubectl-topogate` beside it is the same "
        "program: with both on the PATH, `kubectl topogate ...` works as a plugin.",
    ]
    settings = {**topogate.context_settings, "terminal_width": HELP_COLUMNS, "max_content_width": HELP_COLUMNS}
    for context in _contexts(click.Context(topogate, info_name="topogate", **settings)):
        lines += ["", f"## {context.command_path}", "", "```text", *context.get_help().splitlines(), "```"]
    lines += [
        "",
        "## What simulate prints with -o json",
        "",
        "A stable contract: every key is always present. `schemas/simulate.schema.json` has the same content as a JSON "
        "Schema.",
        "",
        "| key | meaning |",
        "|---|---|",
        *(f"| `{key}` | {meaning} |" for key, meaning in _keys(Simulation, "")),
        "",
        "| verdict | meaning |",
        "|---|---|",
        *(f"| `{verdict}` | {meaning} |" for verdict, meaning in _VERDICTS.items()),
    ]
    for command, model in ANSWERS.items():
        lines += [
            "",
            f"## What {command} prints with -o json",
            "",
            "Every key is always present; null stands for what is not known. "
            f"`schemas/{command.replace(' ', '-')}.schema.json` has the same content as a JSON Schema.",
            "",
            "| key | meaning |",
            "|---|---|",
            *(f"| `{key}` | {meaning} |" for key, meaning in _keys(model, "")),
        ]
        if command == "explain":
            lines += ["", "| verdict | meaning |", "|---|---|"]
            lines += [f"| `{verdict}` | {meaning} |" for verdict, meaning in _EXPLAINED.items()]
    return "\n".join(lines) + "\n"


def _keys(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in fields_of(model).items():
        inner = section_of(field.annotation)
        if inner is None or field.description:
            yield prefix + name, field.description or ""
        if inner is not None:
            many = get_origin(field.annotation) is tuple
            yield from _keys(inner, f"{prefix}{name}{'[]' if many else ''}.")


def _contexts(context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(context.command, click.Group):
        for name, command in sorted(context.command.commands.items()):
            yield from _contexts(click.Context(command, info_name=name, parent=context))
