"""The image, built once for the tests of this folder; they are skipped where it cannot be built, with the reason."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hack.image.base import ImageError, ensure_bases, missing_tools
from hack.image.build import build, root_of, storage, write_archive
from local.controlplane import ControlPlane
from local.programs import ensure_programs
from tests.support.contained import REVISION, VERSION, Image

EPOCH = 1_700_000_000


def pytest_collection_finish(session: pytest.Session) -> None:
    """Download the bases before the first test: inside one, that would run into its time limit."""
    here = Path(__file__).parent
    wanted = any(item.path.is_relative_to(here) for item in session.items)
    if wanted and not session.config.option.collectonly and not missing_tools() and os.geteuid() == 0:
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        # What goes wrong is told by the tests, which try again: others run in this session as well.
        with suppress(ImageError):
            ensure_bases(progress=terminal.write_line if terminal else print)


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    if missing := missing_tools():
        pytest.skip(f"{' and '.join(missing)} not found: as root on Debian, `make setup` installs them")
    if os.geteuid() != 0:
        pytest.skip("building an image needs root")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("root may make no mounts here, as in an unprivileged container: nothing could be started read-only")
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    with storage() as where:
        name = build(
            where, ensure_bases(progress=print), version=VERSION, revision=REVISION, epoch=EPOCH, progress=print
        )
        write_archive(where, name, archive)
        with root_of(where, name) as root:
            yield Image(archive, root)


@pytest.fixture(scope="session")
def plane(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own: the service is installed on it, and no other test is there."""
    with ControlPlane.start(tmp_path_factory.mktemp("plane"), programs=ensure_programs(progress=print)) as running:
        yield running
