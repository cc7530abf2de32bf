"""The picture of the rooms: the layers of the import contracts, top to bottom, one box each room."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

WIDTH: Final = 920
_LEFT, _RIGHT, _ROW, _BOX, _GAP = 124, 20, 56, 44, 12
_PRODUCT: Final = 'fill="#ddf4ff" stroke="#0969da"'
_ENGINE: Final = 'fill="#dafbe1" stroke="#1a7f37"'
_APART: Final = 'fill="#f6f8fa" stroke="#57606a"'
# What a box says beneath the name of its room.
_WORDS: Final = {
    "webhook.cli": "the command line",
    "webhook.service": "one replica, put together",
    "webhook.simulate": "the simulate command",
    "webhook.commands": "what asks a cluster",
    "webhook.operations": "what changes a cluster",
    "webhook.terminal": "options, watching, printing",
    "webhook.map": "the web page of the racks",
    "webhook.history": "records in the logs",
    "webhook.explanations": "why it waits, where it fits",
    "webhook.queries": "answers about a snapshot",
    "webhook.checks": "topologies, installation",
    "webhook.maintenance": "release, suspend, remove",
    "webhook.bundle": "the support bundle",
    "webhook.handlers": "what /mutate and /validate do",
    "webhook.rules": "marks, defaults, findings",
    "webhook.server": "HTTPS, health, metrics",
    "webhook.connections": "TLS, places, queues",
    "webhook.admission": "reviews, patches, reads",
    "webhook.configuration": "webhooks, CEL, RBAC",
    "webhook.snapshot": "the cluster at one moment",
    "engine.controller": "the leader's loop: reconcile, execute, report",
    "engine.lifecycle": "one gang: what is next",
    "engine.preemption": "what ends, or moves, for whom",
    "engine.autoscaling": "nodes asked for",
    "engine.scheduler": "which gang next, where, or why not",
    "engine.cache": "the current state of the cluster",
    "engine.capacity": "eligible hosts, free capacity, quota",
    "engine.gang": "one gang: owner, request, slots, repair",
    "engine.cluster": "all I/O with the API server",
    "engine.decoding": "objects to types",
    "engine.policy": "the admin's policy",
    "engine.kinds": "workload kinds as data",
    "engine.history": "decisions in the log",
    "engine.topology": "levels and domains",
    "engine.devices": "devices: free, chosen",
    "engine.resources": "what pods request",
    "engine.api": "types, names, reasons",
    "engine.planner": "the algorithm",
    "engine.metrics": "what the engine counts",
    "certs": "CA, leaves, bundle",
}


def layers(root: Path) -> dict[str, list[list[str]]]:
    """Return the layers of each package, top to bottom, as the import contracts say."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    contracts = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    found: dict[str, list[list[str]]] = {}
    for one in contracts:
        if one["type"] == "layers":
            rows = [[room.strip() for room in row.split("|")] for row in one["layers"]]
            found[rows[0][0].partition(".")[0]] = rows
    return found


def rooms_picture(root: Path) -> str:
    """Return the picture as SVG, on a ground of its own so that it can be read in dark mode."""
    service, engine = layers(root)["webhook"], layers(root)["engine"]
    top, middle = 40, 40 + len(service) * _ROW + 28
    height = middle + len(engine) * _ROW + 20
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'role="img" aria-labelledby="t d" font-family="Helvetica, Arial, sans-serif">',
        '  <title id="t">The rooms of the code</title>',
        '  <desc id="d">The rooms of webhook/ and engine/ in layers, top to bottom; a room imports only from layers '
        "below its own. certs/ stands beside the engine.</desc>",
        "  <!-- Generated from pyproject.toml by `python -m hack.reference`; do not edit. -->",
        "  <defs>",
        '    <marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 10 5 0 10z" fill="#57606a"/></marker>',
        "  </defs>",
        f'  <rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10" fill="#ffffff" stroke="#8c959f"/>',
        f'  <path d="M24 {top}V{height - 20}" stroke="#57606a" stroke-width="1.5" marker-end="url(#a)"/>',
        f'  <text x="{_LEFT}" y="26" font-size="13" fill="#57606a">imports go down: a room knows only the layers '
        "below it</text>",
    ]
    wide = WIDTH - _LEFT - _RIGHT
    for name, rows, at, style in (("webhook/", service, top, _PRODUCT), ("engine/", engine, middle, _ENGINE)):
        lines.append(_text(40, at + _BOX / 2 + 5, name, size=14, anchor="start", bold=True))
        for number, row in enumerate(rows):
            # the lowest layer of the engine leaves a place for certs, which knows nothing of the product either
            boxes = [*row, "certs"] if rows is engine and number == len(rows) - 1 else row
            lines += _boxes(boxes, at + number * _ROW, wide, style)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _boxes(rooms: list[str], y: int, wide: int, style: str) -> Iterator[str]:
    width = (wide - _GAP * (len(rooms) - 1)) / len(rooms)
    for number, room in enumerate(rooms):
        x = _LEFT + number * (width + _GAP)
        paint = _APART if room == "certs" else style
        yield f'  <rect x="{x:g}" y="{y}" width="{width:g}" height="{_BOX}" rx="8" stroke-width="1.5" {paint}/>'
        name = "certs/" if room == "certs" else room.rpartition(".")[2]
        yield _text(x + width / 2, y + 19, name, size=14, anchor="middle", bold=True)
        yield _text(x + width / 2, y + 36, _WORDS[room], size=12, anchor="middle")


def _text(x: float, y: float, text: str, *, size: int, anchor: str, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'  <text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{weight} fill="#1f2328">{text}</text>'
