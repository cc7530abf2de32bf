"""`python -m hack.reference [ROOT]` writes every generated file below ROOT (the current directory), the chart's too."""

from __future__ import annotations

from pathlib import Path

import click

from hack.chart.files import files
from hack.reference import pages


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("root", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(root: Path) -> None:
    """Write every generated file below ROOT, the root of the repository. Default: the current directory."""
    for made in (pages, files):  # the chart's files come from manifests that are among the pages
        for path, text in made().items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(prog_name="python -m hack.reference")
