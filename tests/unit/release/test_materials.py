"""The bill of materials: valid, complete, and the same for the same sources."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from hack.image.base import LEFT_OUT, packages_of
from hack.release.materials import IMAGE, Locked, bill_of_materials, locked_packages
from hack.release.project import Source

LOCK = (Path(__file__).parents[3] / "requirements.lock").read_text()
SOURCE = Source("0.1.0", "c" * 40, 1_780_315_200, "")
DIGEST = f"sha256:{'d' * 64}"


def document(**options: Any) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(bill_of_materials(SOURCE, lock=LOCK, **options))
    return read


def test_the_lock_is_read_as_it_is_for_the_image() -> None:
    """Hashes, comments, and packages for other Pythons or systems."""
    a, b = "a" * 64, "b" * 64
    lock = (
        f"# comment\nnumpy==2.4.6 ; python_full_version < '3.12' \\\n    --hash=sha256:{a}\n"
        f"numpy==2.5.5 ; python_full_version >= '3.12' \\\n    --hash=sha256:{a} \\\n    --hash=sha256:{b}\n"
        f"Py_Thing==1.0 \\\n    --hash=sha256:{b}\ncolorama==1 ; sys_platform == 'win32' \\\n    --hash=sha256:{a}\n"
    )
    assert list(locked_packages(lock)) == [Locked("numpy", "2.5.5", (a, b)), Locked("py-thing", "1.0", (b,))]
    assert IMAGE["python_version"] == "3.13"


def test_it_is_valid_by_the_schema() -> None:
    """CycloneDX 1.6, strictly; with and without an image."""
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    for options in ({}, {"debian": (("libc6", "2.41-12+deb13u5"),), "image": DIGEST}):
        assert validator.validate_str(bill_of_materials(SOURCE, lock=LOCK, **options)) is None
    broken = document() | {"bomFormat": "other"}
    assert validator.validate_str(json.dumps(broken)) is not None


def test_it_has_every_package_with_its_hashes() -> None:
    """And says which ones the image leaves out again."""
    found = {one["name"]: one for one in document()["components"]}
    assert found.keys() == {package.name for package in locked_packages(LOCK)}
    for package in locked_packages(LOCK):
        (files,) = found[package.name]["externalReferences"]
        assert {one["content"] for one in files["hashes"]} == set(package.hashes)
        assert package.hashes
    assert found["flask"]["purl"] == f"pkg:pypi/flask@{found['flask']['version']}"
    assert (found["flask"]["scope"], found["aiohttp"]["scope"]) == ("required", "excluded")


def test_it_tells_what_it_is_of() -> None:
    """The version, the commit, the image's digest and the Debian packages in it."""
    read = document(debian=(("libc6", "1:2.41-12+deb13u5"),), image=DIGEST)
    about = read["metadata"]["component"]
    assert (about["name"], about["version"], about["hashes"][0]["content"]) == ("topogate", "0.1.0", "d" * 64)
    assert about["properties"] == [{"name": "topogate:commit", "value": "c" * 40}]
    (libc,) = [one for one in read["components"] if one["name"] == "libc6"]
    assert libc["purl"] == "pkg:deb/debian/libc6@1:2.41-12%2Bdeb13u5"
    (all_of_it,) = [one for one in read["dependencies"] if one["ref"] == "topogate"]
    assert len(all_of_it["dependsOn"]) == len(read["components"])


def test_equal_sources_make_equal_text() -> None:
    """And others another serial number."""
    assert bill_of_materials(SOURCE, lock=LOCK) == bill_of_materials(SOURCE, lock=LOCK)
    other = Source("0.1.0", "e" * 40, SOURCE.epoch, "")
    assert json.loads(bill_of_materials(other, lock=LOCK))["serialNumber"] != document()["serialNumber"]


def test_a_lock_without_exact_versions_is_refused() -> None:
    with pytest.raises(ValueError, match="unpack"):
        list(locked_packages("flask>=3,<4 --hash=sha256:" + "a" * 64))


def test_the_packages_of_a_base_are_those_that_the_image_notes(tmp_path: Path) -> None:
    """The archive's names begin with `./`, and notes that the image leaves out do not count."""
    with tarfile.open(tmp_path / "base.tar", "w") as archive:
        for package in ("netbase", "mawk"):
            text = f"Package: {package}\nVersion: 6.5\nDescription: x\n".encode()
            note = tarfile.TarInfo(f"./var/lib/dpkg/status.d/{package}")
            note.size = len(text)
            archive.addfile(note, io.BytesIO(text))
    assert packages_of(tmp_path / "base.tar", left_out=LEFT_OUT) == (("netbase", "6.5"),)
