"""`python -m hack.matrix 1.30 1.36`: the core of the cluster tests on each version, and a table of what ran."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from hack.matrix import results
from hack.matrix.results import ROOT, Result
from local.modules import ProgramsError
from local.programs import ensure_programs
from local.releases import RELEASES, patch_version


class RunError(Exception):
    """pytest ended without having counted anything; its output has been shown."""


def run(minor: str, *, workers: int, arguments: tuple[str, ...]) -> Result:
    """Run the core on one version. Raises RunError, and ProgramsError if the version cannot be built."""
    ensure_programs(progress=lambda line: click.echo(line, err=True), kubernetes=minor)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="topogate-matrix-") as folder:
        counts = Path(folder) / "counts.json"
        command = [
            *(sys.executable, "-m", "pytest", "tests/cluster", "-m", "core", f"--kubernetes={minor}"),
            *("-p", "hack.matrix.counts", f"--counts={counts}", f"--numprocesses={workers}", "--quiet"),
            *arguments,
        ]
        subprocess.run(command, cwd=ROOT, check=False)  # noqa: S603 - the options are the caller's own
        if not counts.exists():
            raise RunError(f"Kubernetes {minor}: pytest ended without a result")
        found = json.loads(counts.read_text(encoding="utf-8"))
    if not found["passed"] and not found["failed"]:
        raise RunError(f"Kubernetes {minor}: no test ran")
    return Result(
        version=patch_version(minor),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        seconds=round(time.monotonic() - started),
        **found,
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("versions", nargs=-1, type=click.Choice(list(RELEASES)))
@click.option("--workers", type=int, default=2, show_default=True, help="Workers of pytest, each with control planes.")
@click.option("--pytest", "arguments", multiple=True, metavar="ARGUMENT", help="For pytest; the run is not recorded.")
def main(versions: tuple[str, ...], workers: int, arguments: tuple[str, ...]) -> None:
    """Run the core of the cluster tests on versions of Kubernetes; on all that there are if none is named.

    The results are written to hack/matrix/results.json and into the README. The exit status is 1 if a test failed.

    \b
    Example:
      python -m hack.matrix 1.30 1.36
      python -m hack.matrix 1.30 --pytest=-kgates
    """  # noqa: D301 - click wants the backspace itself
    ran: dict[str, Result] = {}
    for minor in versions or RELEASES:
        click.echo(f"Kubernetes {patch_version(minor)}", err=True)
        try:
            ran[minor] = run(minor, workers=workers, arguments=arguments)
        except (RunError, ProgramsError) as error:
            raise click.ClickException(str(error)) from error
        if not arguments:  # after each: a later version that cannot be built loses nothing
            _record(results.load() | ran)
    click.echo(results.table(ran, {}), nl=False)
    failed = [f"{minor}: {name}" for minor, one in ran.items() for name in one.failed]
    for line in failed:
        click.echo(line, err=True)
    sys.exit(1 if failed else 0)


def _record(found: dict[str, Result]) -> None:
    results.save(found)
    shown = results.table(found, {minor: patch_version(minor) for minor in RELEASES})
    page = results.README.read_text(encoding="utf-8")
    results.README.write_text(results.with_table(page, shown), encoding="utf-8")


if __name__ == "__main__":
    main(prog_name="python -m hack.matrix")
