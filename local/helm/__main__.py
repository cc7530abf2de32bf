"""`python -m local.helm`: build Helm, if it is missing, and print its path."""

from __future__ import annotations

import click

from local.helm.building import ensure_helm
from local.modules import ProgramsError


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Build Helm, if it is missing, and print its path.

    \b
    Example:
      $(python -m local.helm) version
    """  # noqa: D301 - click wants the backspace itself
    try:
        click.echo(ensure_helm(progress=lambda line: click.echo(line, err=True)))
    except ProgramsError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main(prog_name="python -m local.helm")
