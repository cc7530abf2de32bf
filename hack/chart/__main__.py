"""`python -m hack.chart`: write the generated files of the chart; `release` writes what a release has of manifests."""

from __future__ import annotations

from pathlib import Path

import click

from hack.chart import ROOT
from hack.chart.files import files
from hack.chart.release import ReleaseError, package_chart, render_manifests, stale_files, write_images
from hack.plugin.platforms import project
from hack.plugin.program import PluginError, source_date_epoch
from local.modules import ProgramsError
from local.programs import ensure_programs


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def main(context: click.Context) -> None:
    """Write the generated files of manifests/charts/topogate."""
    if context.invoked_subcommand is None:
        for path, text in files().items():
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(text, encoding="utf-8")


@main.command()
@click.option("--version", "version", default=lambda: project()["version"], help="Default: that of the project.")
@click.option("--image", default="topogate", show_default=True, help="Where the image is, with a digest if it has one.")
@click.option("--into", default=ROOT / "dist/manifests", type=click.Path(file_okay=False, path_type=Path))
def release(version: str, image: str, into: Path) -> None:
    """Write the packed chart, the manifests of each way to install, and the list of images.

    \b
    Example:
      python -m hack.chart release --image example.com/topogate:0.1.0 --into dist
    """  # noqa: D301 - click wants the backspace itself
    try:
        if stale := stale_files(ROOT):
            raise ReleaseError(f"run python -m hack.chart: {', '.join(stale)}")
        kubectl = ensure_programs(progress=lambda line: click.echo(line, err=True), only=["kubectl"])["kubectl"]
        click.echo(package_chart(version, into, epoch=source_date_epoch(), image=image))
        for path in render_manifests(version, into, kubectl=kubectl, image=image):
            click.echo(path)
        click.echo(write_images(version, into, image=image))
    except (ReleaseError, PluginError, ProgramsError) as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main(prog_name="python -m hack.chart")
