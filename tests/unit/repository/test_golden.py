from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import golden as module
from tests.support.golden import golden
from tests.support.kinds import structure_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "GOLDEN", tmp_path)
    monkeypatch.delenv("UPDATE_GOLDEN", raising=False)
    (tmp_path / "greetings.txt").write_text("# morning\ngood morning\n\n# night\ngood night\n")
    return tmp_path


def test_texts_as_kept_pass() -> None:
    """Nothing is said of texts that stand in the file."""
    golden("greetings", {"morning": "good morning", "night": "good night"})


@pytest.mark.parametrize(("name", "taken_back"), [("greetings", ["-good night"]), ("new", [])])
def test_a_text_that_differs_is_shown_with_the_command(name: str, taken_back: list[str]) -> None:
    """A failure shows the lines that differ and the command that rewrites the file, even one that is not there."""
    with pytest.raises(AssertionError) as failure:
        golden(name, {"morning": "good morning", "night": "sleep well"})
    lines = str(failure.value).splitlines()
    assert [line for line in lines if line.startswith("-") and not line.startswith("---")] == taken_back
    assert "+sleep well" in lines
    assert lines[-1].endswith("UPDATE_GOLDEN=1 .venv/bin/pytest tests/unit/repository/test_golden.py")


def test_the_command_rewrites_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With UPDATE_GOLDEN the file becomes what is told."""
    monkeypatch.setenv("UPDATE_GOLDEN", "1")
    golden("greetings", {"night": "sleep well"})
    assert (folder / "greetings.txt").read_text() == "# night\nsleep well\n"


def test_assertions_of_shared_code_show_what_they_compared() -> None:
    """A failing assertion in tests/support shows what it compared, as one in a test does."""
    with pytest.raises(AssertionError) as failure:
        structure_of({"apiVersion": "v1", "kind": "Nothing"})
    assert "None is not None" in str(failure.value)
