"""The script by which kubectl completes the plugin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from webhook.cli import main


@pytest.mark.parametrize(
    ("words", "found"),
    [(("ga",), ["gangs"]), (("gangs", "--o"), ["--output"]), (("policy", ""), ["check"]), (("zzz",), [])],
    ids=" ".join,
)
def test_the_script_of_kubectl_needs_no_more_than_the_plugin(
    words: tuple[str, ...], found: list[str], tmp_path: Path
) -> None:
    """krew puts kubectl-topogate on the PATH, and no topogate; the last line tells kubectl to complete no files."""
    script = tmp_path / "kubectl_complete-topogate"
    script.write_text(CliRunner().invoke(main, ["completion", "kubectl"]).stdout)
    (tmp_path / "kubectl-topogate").symlink_to(Path(sys.executable).parent / "kubectl-topogate")
    done = subprocess.run(
        ["/bin/sh", script, *words],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert [line for line in done.stdout.splitlines() if line] == [*found, ":4"]
    assert done.stderr == ""
