"""The files of a release, without the image (tests/image has that): complete, usable, and the same every time."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.chart.release import MANIFEST_FILES, ReleaseError
from hack.plugin.platforms import project
from hack.release.project import Source, check_source
from hack.release.steps import CHECKSUMS, make_release

VERSION = project()["version"]


@pytest.fixture(scope="module")
def source() -> Source:
    return check_source(VERSION, draft=True)


@pytest.fixture(scope="module")
def release(programs: dict[str, Path], source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release."""
    told: list[str] = []
    folder = make(source, tmp_path_factory.mktemp("release"), told)
    assert [line[:3] for line in told if line[0] != " "] == [f"{number}/7" for number in range(1, 8)]
    return folder


@pytest.fixture
def elsewhere() -> Iterator[None]:
    """Another time zone, language and umask than usual."""
    before, zone = os.umask(0o077), os.environ.get("TZ")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Kathmandu")
        patch.setenv("LC_ALL", "C")
        patch.setenv("PYTHONHASHSEED", "7")
        time.tzset()
        yield
    os.umask(before)
    assert os.environ.get("TZ") == zone
    time.tzset()


def make(source: Source, into: Path, told: list[str]) -> Path:
    return make_release(
        source, repository="registry.example.com/topogate", into=into, with_image=False, progress=told.append
    )


def test_the_checksums_are_those_of_all_files(release: Path) -> None:
    """sha256sum reads them; no file is without one, and nothing else is left in the folder."""
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", CHECKSUMS], cwd=release, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    listed = {line.split("  ")[1] for line in (release / CHECKSUMS).read_text().splitlines()}
    assert listed | {CHECKSUMS} == {path.name for path in release.iterdir()}
    assert [path.name for path in release.parent.iterdir()] == [release.name]
    assert {
        "topogate.yaml",
        "images.txt",
        "CHANGES.md",
        f"topogate-{VERSION}.cdx.json",
        f"topogate-{VERSION}.tgz",
    } <= listed


def test_a_second_machine_makes_the_same_bytes(release: Path, source: Source, tmp_path: Path, elsewhere: None) -> None:
    """All of them: wheel, manifests, bill of materials, changelog section."""
    again = make(source, tmp_path, [])
    assert (again / CHECKSUMS).read_text() == (release / CHECKSUMS).read_text()
    assert hashlib.sha256((again / "topogate.yaml").read_bytes()).hexdigest() in (release / CHECKSUMS).read_text()


def test_chart_and_manifests_name_the_image_of_the_release(release: Path) -> None:
    """The list of images has what any of them runs, and nothing else."""
    listed = [line for line in (release / "images.txt").read_text().splitlines() if not line.startswith("#")]
    found = set()
    for name in MANIFEST_FILES:
        for document in yaml.safe_load_all((release / name).read_text()):
            if document["kind"] == "Deployment":
                found |= {one["image"] for one in document["spec"]["template"]["spec"]["containers"]}
    assert found == set(listed) == {f"registry.example.com/topogate:{VERSION}"}
    with tarfile.open(release / f"topogate-{VERSION}.tgz") as chart:
        values = chart.extractfile("topogate/values.yaml")
        assert values is not None
        image = yaml.safe_load(values.read())["image"]
    assert image["repository"] == "registry.example.com/topogate"


def test_the_wheel_is_what_it_says(release: Path) -> None:
    (wheel,) = release.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        metadata = files.read(f"topogate-{VERSION}.dist-info/METADATA").decode()
    assert f"\nVersion: {VERSION}\n" in metadata
    assert {"webhook/cli.py", "engine/planner/plan.py", "certs/authority.py"} <= set(names)


def test_a_release_is_never_made_over_another(release: Path, source: Source) -> None:
    with pytest.raises(ReleaseError, match="is there already"):
        make(source, release.parent, [])


def test_one_that_fails_leaves_nothing(programs: dict[str, Path], source: Source, tmp_path: Path) -> None:
    """A folder of that name is always complete."""
    with pytest.raises(ReleaseError, match="not the name of an image"):
        make_release(source, repository="no image", into=tmp_path, with_image=False, progress=print)
    assert list(tmp_path.iterdir()) == []
