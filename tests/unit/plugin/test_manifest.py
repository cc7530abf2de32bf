"""Archives of the plugin, the manifest for krew, and the platforms that both are for."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

from hack.plugin.archive import Archive, pack
from hack.plugin.manifest import base_of, manifest
from hack.plugin.platforms import PLATFORMS, project
from hack.plugin.program import PROGRAM, PluginError

ROOT = Path(__file__).parents[3]
URL = "https://localhost/releases/v9"
VERSION = project()["version"]


@pytest.fixture
def archives(tmp_path: Path) -> list[Archive]:
    """An archive for every platform, each with a program of its own."""
    packed = []
    for platform in PLATFORMS.values():
        program = tmp_path / PROGRAM
        program.write_bytes(platform.name.encode())
        packed.append(pack(program, platform, version=VERSION, into=tmp_path, epoch=1700000000))
    return packed


def document(archives: list[Archive]) -> dict[str, Any]:
    read = yaml.safe_load(manifest(archives, url=URL))
    assert isinstance(read, dict)
    return read


def test_an_archive_holds_the_program_and_the_licence(archives: list[Archive]) -> None:
    """The program can be run by everybody; no name, time or number of who packed it is told."""
    for archive in archives:
        assert archive.path.name == f"{PROGRAM}_v{VERSION}_{archive.platform.os}_{archive.platform.arch}.tar.gz"
        with tarfile.open(archive.path) as packed:
            members = {member.name: member for member in packed}
            program, licence = packed.extractfile(PROGRAM), packed.extractfile("LICENSE")
            assert program is not None
            assert licence is not None
            assert program.read() == archive.platform.name.encode()
            assert licence.read() == (ROOT / "LICENSE").read_bytes()
        assert {name: member.mode for name, member in members.items()} == {"LICENSE": 0o644, PROGRAM: 0o755}
        assert {(one.mtime, one.uid, one.gid, one.uname, one.gname) for one in members.values()} == {
            (1700000000, 0, 0, "", "")
        }


def test_an_archive_packed_again_has_the_same_bytes(archives: list[Archive], tmp_path: Path) -> None:
    """Its checksum does not depend on when and where it is packed."""
    program = tmp_path / "elsewhere" / PROGRAM
    program.parent.mkdir()
    program.write_bytes(archives[0].platform.name.encode())
    again = pack(program, archives[0].platform, version=VERSION, into=program.parent, epoch=1700000000)
    assert again.path.read_bytes() == archives[0].path.read_bytes()
    assert again.sha256 == archives[0].sha256 == hashlib.sha256(again.path.read_bytes()).hexdigest()


def test_the_manifest_names_each_archive_with_its_checksum(archives: list[Archive]) -> None:
    """One entry for each platform, chosen by its operating system and architecture."""
    made = document(archives)
    assert (made["apiVersion"], made["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert made["metadata"] == {"name": "topogate"}
    assert made["spec"]["version"] == f"v{VERSION}"
    assert [
        (entry["selector"]["matchLabels"], entry["uri"], entry["sha256"]) for entry in made["spec"]["platforms"]
    ] == [
        (
            {"os": archive.platform.os, "arch": archive.platform.arch},
            f"{URL}/{archive.path.name}",
            hashlib.sha256(archive.path.read_bytes()).hexdigest(),
        )
        for archive in archives
    ]


def test_what_the_manifest_takes_out_of_an_archive_is_in_it(archives: list[Archive]) -> None:
    """The files to copy, and the program to link."""
    for entry, archive in zip(document(archives)["spec"]["platforms"], archives, strict=True):
        with tarfile.open(archive.path) as packed:
            assert {one["from"] for one in entry["files"]} == set(packed.getnames())
        assert entry["bin"] in {one["from"] for one in entry["files"]}
        assert {one["to"] for one in entry["files"]} == {"."}


def test_the_manifest_tells_what_the_program_needs(archives: list[Archive]) -> None:
    """Python in description and caveats, and what the operating systems of its archives must have."""
    spec = document(archives)["spec"]
    for text in (spec["description"], spec["caveats"]):
        needs = "Python 3.11, 3.12 or 3.13 on the PATH, and Linux with glibc 2.28 or newer, or macOS 14 or newer."
        assert needs in text
    assert "\n" not in spec["shortDescription"]
    assert len(spec["shortDescription"]) <= 50
    assert "glibc" not in manifest([one for one in archives if one.platform.os == "darwin"], url=URL)


@pytest.mark.parametrize("url", ["", "v0.1.0", "http://localhost/", "https://", "https://localhost/?a=b", "file:///a"])
def test_an_address_that_krew_could_not_download_from_is_refused(url: str) -> None:
    """There is no default: where a release will be is not known here."""
    with pytest.raises(PluginError, match="URL: must be the https address"):
        base_of(url)


def test_a_slash_at_the_end_of_the_address_changes_nothing() -> None:
    """Both ways to write a folder."""
    assert base_of("https://localhost/a/") == base_of("https://localhost/a") == "https://localhost/a"


@pytest.mark.parametrize(
    ("platform", "fits"),
    [
        ("linux/amd64", "manylinux_2_27_x86_64.manylinux_2_28_x86_64"),
        ("linux/amd64", "manylinux2014_x86_64"),
        ("linux/arm64", "manylinux_2_28_aarch64"),
        ("darwin/arm64", "macosx_11_0_arm64"),
        ("darwin/arm64", "macosx_10_9_universal2"),
    ],
)
def test_a_platform_takes_its_own_wheels(platform: str, fits: str) -> None:
    """Of its operating system, architecture and Python, not of any other."""

    def accepts(python: str, abi: str, where: str) -> bool:
        wheel = parse_wheel_filename(f"numpy-2.0-{python}-{abi}-{where}.whl")[3]
        return bool(wheel & tags)

    target = json.loads(PLATFORMS[platform].target((3, 12)))
    tags = {Tag(*tag.split("-")) for tag in target["compatible_tags"]}
    assert accepts("cp312", "cp312", fits)
    assert accepts("cp311", "abi3", fits)
    assert accepts("py3", "none", "any")
    assert not accepts("cp313", "cp313", fits)
    assert not accepts("cp311", "cp311", fits)
    for other in ("manylinux_2_34_x86_64", "musllinux_1_2_x86_64", "win_amd64", "macosx_10_9_x86_64"):
        assert not accepts("cp312", "cp312", other)
    assert target["marker_environment"]["python_full_version"] == "3.12.0"
    assert target["marker_environment"]["sys_platform"] == platform.partition("/")[0]
