"""The versions of Kubernetes that control planes are built of: one Go module each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from local.programs import PROGRAMS, build_key, flags
from local.releases import DEFAULT, MODULE, RELEASES, UnknownRelease, module_of, patch_version, versions

# The go.mod of the usual version names etcd and kwok as well.
KUBERNETES = {program.package for program in PROGRAMS if program.package.startswith("k8s.io/kubernetes/")}


def tools(module: Path) -> set[str]:
    block = re.search(r"^tool \((.*?)^\)", (module / "go.mod").read_text(), re.MULTILINE | re.DOTALL)
    assert block is not None
    return set(block.group(1).split())


def test_the_oldest_supported_version_is_there() -> None:
    """The oldest first; the usual one is among them."""
    assert next(iter(RELEASES)) == "1.30"
    assert list(RELEASES) == sorted(RELEASES, key=lambda minor: [int(part) for part in minor.split(".")])
    assert module_of(DEFAULT) == MODULE


@pytest.mark.parametrize("minor", RELEASES)
def test_a_folder_is_named_after_its_version(minor: str) -> None:
    """Its go.mod asks for that version of Kubernetes, and for the programs."""
    assert patch_version(minor).startswith(f"v{minor}.")
    assert tools(module_of(minor)) >= KUBERNETES
    if minor != DEFAULT:
        assert module_of(minor).name == minor
        assert tools(module_of(minor)) == KUBERNETES


@pytest.mark.parametrize("minor", RELEASES)
def test_the_parts_of_kubernetes_are_of_one_version(minor: str) -> None:
    """k8s.io/kubernetes asks for its parts at v0.0.0: each is replaced, by the same version."""
    text = (module_of(minor) / "go.mod").read_text()
    replaced = dict(re.findall(r"^\t(\S+) => \S+ (v\S+)$", text, re.MULTILINE))
    assert set(replaced.values()) == {patch_version(minor).replace("v1.", "v0.", 1)}
    at_zero = {name for name, version in versions(module_of(minor)).items() if version == "v0.0.0"}
    assert at_zero <= replaced.keys()
    assert "k8s.io/api" in replaced


def test_each_version_is_kept_apart_and_calls_itself_so() -> None:
    """No two share a folder of built programs."""
    assert len({build_key(module_of(minor)) for minor in RELEASES}) == len(RELEASES)
    for minor in RELEASES:
        assert f"gitMinor={minor.split('.')[1]}" in flags(module_of(minor))[-1]


def test_a_version_that_is_not_there_is_said_with_those_that_are() -> None:
    """Not a traceback about a dictionary."""
    with pytest.raises(UnknownRelease, match=r"no Kubernetes 1\.12 here; there are 1\.30, .*1\.36"):
        module_of("1.12")
