"""`python -m hack.release VERSION`: write the files of a release to dist/release/VERSION."""

from __future__ import annotations

from pathlib import Path

import click

from hack.chart.release import ReleaseError
from hack.image.base import ImageError
from hack.plugin.platforms import ROOT
from hack.plugin.program import PluginError
from hack.release.project import check_source
from hack.release.steps import make_release
from local.modules import ProgramsError


@click.command()
@click.argument("version")
@click.option("--image", "repository", default="topogate", help="Repository of the image, as manifests name it.")
@click.option("--into", default=ROOT / "dist/release", type=click.Path(file_okay=False, path_type=Path))
@click.option("--draft", is_flag=True, help="Also from changed files, and with a changelog section that has no date.")
@click.option("--no-image", is_flag=True, help="Do not build the image.")
def main(version: str, repository: str, into: Path, draft: bool, no_image: bool) -> None:
    """Write the files of a release. Nothing is published, tagged or signed (docs/contributor/releasing.md)."""
    try:
        source = check_source(version, draft=draft)
        folder = make_release(source, repository=repository, into=into, with_image=not no_image, progress=_tell)
    except (ReleaseError, ImageError, PluginError, ProgramsError) as error:
        raise click.ClickException(str(error)) from None
    for path in sorted(folder.iterdir()):
        click.echo(path)


def _tell(line: str) -> None:
    click.echo(line, err=True)


if __name__ == "__main__":
    main()
