"""What a release is made of: one version everywhere, a changelog section with a date, and a commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hack.chart.release import ReleaseError
from hack.release.project import Source, changelog_section, check_source

CHANGELOG = """# Changelog

## 0.3.0 (unreleased)

- New things.

## 0.2.0 (2026-05-01)

Second.

- Better things.

## 0.1.0 (2026-01-01)

- Things.
"""
COMMIT_TIME = "2026-06-01T12:00:00+00:00"


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
    environment = {"PATH": "/usr/bin:/bin", "GIT_COMMITTER_DATE": COMMIT_TIME, "HOME": str(folder)}
    subprocess.run(["git", *identity, *arguments], cwd=folder, env=environment, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A commit of version 0.2.0."""
    (tmp_path / "manifests/base").mkdir(parents=True)
    (tmp_path / "manifests/base/deployment.yaml").write_text(
        "spec:\n  containers:\n  - image: x\n    image: topogate:0.2.0\n"
    )
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=all")
    return tmp_path


def refusal(root: Path, version: str, *, draft: bool = False, **environment: str) -> list[str]:
    with pytest.raises(ReleaseError) as error:
        check_source(version, draft=draft, root=root, environment=environment)
    return str(error.value).splitlines()


def test_a_clean_commit_is_taken(checkout: Path) -> None:
    """Its files have the time of the commit, or that of the environment."""
    source = check_source("0.2.0", root=checkout, environment={})
    assert source == Source(
        "0.2.0", source.commit, 1_780_315_200, "## 0.2.0 (2026-05-01)\n\nSecond.\n\n- Better things.\n"
    )
    assert len(source.commit) == 40
    assert check_source("0.2.0", root=checkout, environment={"SOURCE_DATE_EPOCH": "7"}).epoch == 7


@pytest.mark.parametrize("version", ["", "1", "1.2", "v1.2.3", "1.2.3-rc1", "01.2.3", "1.2.3\n", "../1.2.3", "1.2.3 "])
def test_a_version_is_three_numbers(checkout: Path, version: str) -> None:
    assert refusal(checkout, version) == [f"VERSION must be three numbers, like 1.4.0, not {version!r}"]


def test_everything_that_is_wrong_is_said_at_once(checkout: Path) -> None:
    """Another version in pyproject.toml and in the manifests, no section, and files that differ from the commit."""
    (checkout / "manifests/base/deployment.yaml").write_text("    image: topogate:0.1.9\n")
    (checkout / "new").write_text("")
    assert refusal(checkout, "0.4.0") == [
        "pyproject.toml says version 0.2.0, not 0.4.0: the version is changed there",
        "manifests/base/deployment.yaml names the image of 0.1.9",
        "CHANGELOG.md has no section `## 0.4.0 (YYYY-MM-DD)`",
        "the tree differs from its commit (manifests/base/deployment.yaml, new): commit it",
    ]


def test_a_date_that_is_none_is_refused(checkout: Path) -> None:
    told = ["SOURCE_DATE_EPOCH must be seconds since 1970, not 'yesterday'"]
    assert refusal(checkout, "0.2.0", SOURCE_DATE_EPOCH="yesterday") == told


def test_a_draft_may_be_unfinished(checkout: Path) -> None:
    """Changed files and a section without a date are for drafts; another version is not."""
    (checkout / "pyproject.toml").write_text('[project]\nversion = "0.3.0"\n')
    (checkout / "manifests/base/deployment.yaml").write_text("    image: topogate:0.3.0\n")
    assert refusal(checkout, "0.3.0") == [
        "CHANGELOG.md: the section of 0.3.0 has no date: write `## 0.3.0 (YYYY-MM-DD)`",
        "the tree differs from its commit (manifests/base/deployment.yaml, pyproject.toml): commit it",
    ]
    assert check_source("0.3.0", draft=True, root=checkout, environment={}).changes.endswith("- New things.\n")
    assert refusal(checkout, "0.2.0", draft=True)[0].startswith("pyproject.toml says version 0.3.0")


def test_a_section_ends_at_the_next_one() -> None:
    """Also the last one, at the end of the file."""
    assert changelog_section(CHANGELOG, "0.1.0") == "## 0.1.0 (2026-01-01)\n\n- Things.\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has no section"),
        ("## 0.1.0 (2026-01-01)\n\n- a\n\n## 0.1.0 (2026-02-01)\n\n- b\n", "has several sections"),
        ("## 0.1.0 (2026-01-01)\n\n## 0.0.9 (2025-01-01)\n", "is empty"),
        ("## 0.1.0\n\n- a\n", "has no date"),
        ("## 0.1.0 (soon)\n\n- a\n", "has no date"),
        ("## 0.1.00 (2026-01-01)\n\n- a\n", "has no section"),
    ],
)
def test_a_changelog_that_says_nothing_of_it_is_refused(text: str, told: str) -> None:
    with pytest.raises(ReleaseError, match=told):
        changelog_section(text, "0.1.0")
