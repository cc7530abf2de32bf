"""`topogate defragment`, from the words of the command line to output and exit status, live and in files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.fake_api import FakeApi
from tests.unit.commands.conftest import Topogate, forbid
from tests.unit.explanations.test_defragment import in_pieces
from webhook.cli import main


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": in_pieces()}))
    return str(path)


def run(*words: str, stdin: str = "") -> Result:
    """Without any cluster to connect to."""
    runner = CliRunner(env={"KUBECONFIG": "/nowhere"})
    return runner.invoke(main, ["defragment", *words], prog_name="topogate", input=stdin)


def test_a_cluster_in_files_needs_no_server(cluster: str) -> None:
    done = run("--cluster", cluster)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "alice/job/big (4 pods) fits b0/b0-r1:" in done.stdout
    assert run("--cluster", "-", stdin=Path(cluster).read_text()).stdout == done.stdout
    found = json.loads(run("--cluster", cluster, "-o", "json").stdout)
    assert [one["restarts"][0]["name"] for one in found["proposals"]] == ["young"]


def test_a_policy_in_a_file_counts(cluster: str, tmp_path: Path) -> None:
    """It protects the namespace of all that runs."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("defragment: {protect: {namespaces: [bob]}}")
    done = run("--cluster", cluster, "--policy", str(policy))
    assert done.exit_code == 1
    assert done.stdout == "alice/job/big: no place for it was found by restarting up to 4 running gangs\n"


def test_a_gang_is_named(cluster: str) -> None:
    assert run("--cluster", cluster, "--gang", "job/big", "-n", "alice").exit_code == 0
    missed = run("--cluster", cluster, "--gang", "job/old", "-n", "bob")
    assert (missed.exit_code, missed.stdout) == (1, "bob/job/old: it has slots, and prefers no level\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--cluster", "{}", "--gang", "job/big"], 'no gang "job/big"'),
        (["--cluster", "{}", "--gang", "jbo/big"], 'no kind "jbo" among those that are placed; did you mean "job"?'),
        (["--cluster", "{}", "--watch"], "--watch needs a live cluster"),
        (["--cluster", "-", "--policy", "-"], "standard input (-) can be read only once"),
        (["--policy", "x.yaml"], "--policy is for a cluster in files (--cluster); a live one has its own"),
        (["--cluster", "/nowhere.json"], "/nowhere.json: No such file or directory"),
        (["--cluster", "{}", "--max-gangs", "17"], "Invalid value for '--max-gangs': 17 is not in the range 1<=x<=16."),
    ],
)
def test_wrong_use_is_told_in_one_line(cluster: str, words: list[str], says: str) -> None:
    done = run(*(word.replace("{}", cluster) for word in words))
    assert (done.exit_code, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_live_cluster_is_read_with_the_rights_of_the_caller(server: FakeApi, topogate: Topogate) -> None:
    """All of its namespaces, or there is no answer; no name of another namespace is in the refusal."""
    done = topogate("defragment")
    assert (done.exit_code, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "alice/job/wide: no place for it was found by restarting up to 4 running gangs",
        "bob/job/later: no place for it was found by restarting up to 4 running gangs",
    ]
    assert topogate("defragment", "--gang", "wide").stdout.splitlines() == done.stdout.splitlines()[:1]
    forbid(server, "pods", except_in="alice")
    missed = topogate("defragment", "--gang", "wide")
    assert (missed.exit_code, missed.stdout) == (2, "")
    assert "status.proposal in the Placement of a gang that waits" in missed.stderr
    assert "later" not in missed.stderr
