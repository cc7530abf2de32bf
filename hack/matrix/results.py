"""What ran on which version: read from and written to results.json, and shown as a table."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from local.releases import number

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = Path(__file__).parent / "results.json"
README: Final = ROOT / "README.md"
_BEGIN: Final = "<!-- from hack/matrix/results.json, by make test-matrix -->\n"
_END: Final = "<!-- end of the table -->\n"


@dataclass(frozen=True, slots=True)
class Result:
    """One run of the core on one version; `failed` names the tests, `seconds` is the time that it took."""

    version: str
    date: str
    passed: int
    skipped: int
    failed: list[str]
    seconds: int


class NoTable(Exception):
    """A page does not have the two comments between which the table belongs."""


def load(path: Path = RESULTS) -> dict[str, Result]:
    """Return the last result of each minor version that ran, the oldest version first."""
    found: dict[str, dict[str, object]] = json.loads(path.read_text(encoding="utf-8"))
    return {minor: Result(**one) for minor, one in found.items()}  # type: ignore[arg-type]


def save(results: Mapping[str, Result], path: Path = RESULTS) -> None:
    """Write results, the oldest version first."""
    ordered = {minor: asdict(results[minor]) for minor in sorted(results, key=number)}
    path.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")


def table(results: Mapping[str, Result], versions: Mapping[str, str]) -> str:
    """Return results as a Markdown table, with a row for each of `versions` (minor -> whole), whether it ran or not."""
    rows = []
    for minor in sorted({*results, *versions}, key=number):
        one = results.get(minor)
        version = (one.version if one else versions[minor]).removeprefix("v")
        rows.append(f"| {minor} | {version} | {one.date if one else '-'} | {_said(one) if one else 'not yet'} |")
    return (
        "\n".join(["| Kubernetes | release | last run | core of the cluster tests |", "|---|---|---|---|", *rows])
        + "\n"
    )


def with_table(page: str, shown: str) -> str:
    """Return a page with this table between its two comments; raises NoTable."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise NoTable(f"there is no table between {_BEGIN.strip()} and {_END.strip()}")
    return f"{before}{begin}\n{shown}\n{end}{after}"


def table_in(page: str) -> str:
    """Return the table that stands in a page; raises NoTable."""
    found = re.search(re.escape(_BEGIN) + r"\n(.*)\n" + re.escape(_END), page, re.DOTALL)
    if found is None:
        raise NoTable(f"there is no table between {_BEGIN.strip()} and {_END.strip()}")
    return found.group(1)


def _said(one: Result) -> str:
    parts = [f"{one.passed} passed"]
    if one.failed:
        parts.append(f"{len(one.failed)} failed")
    if one.skipped:
        parts.append(f"{one.skipped} skipped")
    return ", ".join(parts)
