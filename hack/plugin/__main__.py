"""`python -m hack.plugin --url URL`: build the plugin for every platform, and the manifest for krew."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from hack.plugin.archive import Archive, pack
from hack.plugin.manifest import MANIFEST, base_of, manifest
from hack.plugin.platforms import PLATFORMS, ROOT, project
from hack.plugin.program import PROGRAM, PluginError, build_program, source_date_epoch


def build_plugin(names: Sequence[str], *, url: str, into: Path) -> list[Archive]:
    """Write an archive for each platform and the manifest to the folder `into`. Raises PluginError."""
    url = base_of(url)
    into.mkdir(parents=True, exist_ok=True)
    archives = []
    with tempfile.TemporaryDirectory(prefix="topogate-plugin-") as folder:
        for name in names:
            click.echo(f"building the plugin for {name}; about 1 min", err=True)
            program = Path(folder) / PROGRAM
            build_program(program, platform=PLATFORMS[name])
            version = project()["version"]
            archives.append(pack(program, PLATFORMS[name], version=version, into=into, epoch=source_date_epoch()))
    (into / MANIFEST).write_text(manifest(archives, url=url), encoding="utf-8")
    return archives


@click.command()
@click.option("--url", required=True, help="Address of the folder that the archives will be downloaded from.")
@click.option("--platform", "names", multiple=True, type=click.Choice(list(PLATFORMS)), help="Default: all.")
@click.option("--into", default=ROOT / "dist/plugin", type=click.Path(file_okay=False, path_type=Path))
def main(url: str, names: tuple[str, ...], into: Path) -> None:
    """Build the archives of the plugin and the manifest by which krew installs them."""
    try:
        archives = build_plugin(names or list(PLATFORMS), url=url, into=into)
    except PluginError as error:
        raise click.ClickException(str(error)) from None
    for archive in archives:
        click.echo(f"{archive.sha256}  {archive.path}")
    click.echo(into / MANIFEST)


if __name__ == "__main__":
    main()
