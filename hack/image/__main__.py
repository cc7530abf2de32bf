"""`python -m hack.image`: build the image and write it as an OCI archive."""

from __future__ import annotations

from pathlib import Path

import click

from hack.image.base import ImageError, ensure_bases
from hack.image.build import build_archive
from hack.plugin.platforms import ROOT, project
from hack.plugin.program import PluginError, source_date_epoch


@click.command()
@click.option("--into", default=ROOT / "dist/image", type=click.Path(file_okay=False, path_type=Path))
@click.option("--fresh", is_flag=True, help="Download the Debian packages of the bases again.")
@click.option("--bases-only", is_flag=True, help="Only download what is missing of these packages.")
def main(into: Path, fresh: bool, bases_only: bool) -> None:
    """Build the image on bases from Debian packages; needs root, buildah and mmdebstrap."""
    version = project()["version"]
    target = into / f"topogate-{version}-image.tar"
    try:
        bases = ensure_bases(progress=_tell, fresh=fresh)
        if bases_only:
            return
        into.mkdir(parents=True, exist_ok=True)
        digest = build_archive(bases, target, version=version, epoch=source_date_epoch(), progress=_tell)
    except (ImageError, PluginError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{digest}  {target}")


def _tell(line: str) -> None:
    click.echo(line, err=True)


if __name__ == "__main__":
    main()
