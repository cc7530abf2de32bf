from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result
from rich.console import Console

from engine.api import names
from engine.decoding import objects
from local.__main__ import main as local
from tests.support.simulation import grid, job, policy_map, priority_class
from webhook.cli import main
from webhook.simulate import text as simulate_text
from webhook.simulate.model import Simulation
from webhook.snapshot.files import read_objects

URGENT = priority_class("urgent", 1000)
ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
SCHEMA = json.loads((ROOT / "schemas" / "simulate.schema.json").read_text(encoding="utf-8"))


def run(*words: str | Path, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], input=stdin, prog_name="topogate")


def simulate(*words: str | Path, stdin: str | bytes | None = None) -> Result:
    return run("simulate", "--cluster", EXAMPLES / "cluster.yaml", *words, stdin=stdin)


def one_line(result: Result) -> str:
    """The line on standard error of wrong use or bad input."""
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("topogate: ")
    return result.stderr.removeprefix("topogate: ").strip()


@pytest.fixture
def files(tmp_path: Path) -> Any:
    """Write objects (JSON) or text to a file and return its path."""

    def write(name: str, content: Any) -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("file", "verdict", "status"),
    [
        ("train-rack", "placed", 0),
        ("train-block", "placed", 0),
        ("sweep-prefer", "placed", 0),
        ("too-large", "never", 1),
        ("typo", "rejected", 1),
    ],
)
def test_the_examples_do_what_they_say(file: str, verdict: str, status: int) -> None:
    """0 when everything is placed, 1 when something is not; the output fits the committed schema."""
    result = simulate("--cluster", EXAMPLES / "pods.yaml", "-f", EXAMPLES / f"{file}.yaml", "-o", "json")
    found = json.loads(result.stdout)
    jsonschema.validate(found, SCHEMA)
    assert [one["verdict"] for one in found["workloads"]] == [verdict]
    assert (result.exit_code, result.stderr) == (status, "")


def test_ignored_workloads_are_no_failure(files: Any) -> None:
    """Exit status 0: a job without a request runs as ever."""
    assert simulate("-f", files("plain.json", job("plain", 2))).exit_code == 0


def test_the_example_cluster_is_that_of_the_demo() -> None:
    """2 blocks of 4 racks of 4 hosts of 8 GPUs."""
    nodes = [objects.node(one.source) for one in read_objects((EXAMPLES / "cluster.yaml").read_bytes(), name="c")]
    assert len({node.name for node in nodes}) == 32
    assert len({node.labels["cloud.provider.com/topology-block"] for node in nodes}) == 2
    assert len({node.labels["cloud.provider.com/topology-rack"] for node in nodes}) == 8
    assert {node.allocatable["nvidia.com/gpu"] for node in nodes} == {8}
    assert all(node.ready for node in nodes)


def test_yaml_says_the_same_as_json() -> None:
    """-o yaml is the same answer."""
    words = ("-f", EXAMPLES / "train-rack.yaml", "-o")
    as_json, as_yaml = (simulate(*words, form).stdout for form in ("json", "yaml"))
    first, second = json.loads(as_json), yaml.safe_load(as_yaml)
    for one in (first, second):
        one["workloads"][0]["planMicroseconds"] = 0
    assert first == second


def test_the_table_in_a_pipe() -> None:
    """Plain columns, the hosts with their ranks, errors one to a line, a summary."""
    result = simulate("-f", EXAMPLES / "train-rack.yaml", "-f", EXAMPLES / "typo.yaml")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["WORKLOAD", "VERDICT", "PODS", "MESSAGE"]
    assert lines[1] == "Job default/train-rack  placed       4  placed 4 pods in block-0 / rack-00 (4 hosts)"
    assert lines[2].strip() == "host-000: rank 0; host-001: rank 1; host-002: rank 2; host-003: rank 3"
    assert lines[3] == "Job default/typo        rejected     -  the Job is invalid: 2 errors"
    assert [line.strip()[:12] for line in lines[4:6]] == ["* metadata.a"] * 2
    assert lines[6] == "2 workloads: 1 placed, 1 rejected; 32 nodes, 32 in the topology (block, rack, host)"
    assert "\x1b" not in result.stdout


def test_the_table_names_pod_sets_and_topologies_where_there_are_several(files: Any) -> None:
    """Whose ranks a line tells, how many hosts it leaves out, and which nodes each topology has."""
    pods = {"spec": {"containers": [{"name": "m", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}
    crew = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "crew", "annotations": {"topogate.dev/require-topology": "block"}},
        "spec": {
            "replicatedJobs": [
                {
                    "name": name,
                    "template": {
                        "spec": {
                            "parallelism": count,
                            "completions": count,
                            "completionMode": "Indexed",
                            "template": pods,
                        }
                    },
                }
                for name, count in (("boss", 1), ("hand", 6))
            ]
        },
    }
    one = "{name: one, preset: demo, nodeSelector: {cloud.provider.com/topology-block: block-0}}"
    policy = f"topologies: [{{name: all, preset: demo}}, {one}]"
    words = ("-f", files("crew.json", json.dumps(crew)), "--policy", files("policy.yaml", policy))
    lines = [line.strip() for line in simulate(*words).stdout.splitlines()]
    slot = r"host-\d{3}: rank \d"
    assert re.fullmatch(f"boss: {slot}", lines[2])
    assert re.fullmatch(rf"hand: {slot}(; {slot}){{3}}; 2 hosts more \(-o json has all\)", lines[3])
    counts = "32 nodes, 32 in topology all (block, rack, host), 16 in topology one (block, rack, host)"
    assert lines[-1] == f"1 workload: 1 placed; {counts}"


def test_the_table_on_a_terminal() -> None:
    """The same cells, coloured; what looks like markup is text."""
    answer = json.loads(simulate("-f", EXAMPLES / "train-rack.yaml", "-o", "json").stdout)
    answer["workloads"][0]["name"] = "[red]x"
    console = Console(file=io.StringIO(), force_terminal=True, width=140, color_system="standard")
    console.print(simulate_text.as_table(Simulation.model_validate(answer)))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "Job default/[red]x" in shown
    assert "\x1b[32mplaced" in shown


def test_a_narrow_terminal_cuts_nothing() -> None:
    """A path is longer than a line, and is read whole."""
    answer = Simulation.model_validate(json.loads(simulate("-f", EXAMPLES / "typo.yaml", "-o", "json").stdout))
    console = Console(file=io.StringIO(), width=70)
    console.print(simulate_text.as_table(answer))
    assert isinstance(console.file, io.StringIO)
    shown = "".join(console.file.getvalue().split())
    assert "metadata.annotations[topogate.dev/prefer-topolgy]:" in shown


@pytest.mark.parametrize("command", [one for one in main.commands.values() if one.name not in ("topology", "policy")])
def test_the_usage_marks_every_argument_that_may_be_left_out(command: click.Command) -> None:
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    shown = {one.name: one.make_metavar(click.Context(command)).startswith("[") for one in arguments}
    assert shown == {one.name: not one.required for one in arguments}


def test_cluster_files_without_nodes_are_told(files: Any) -> None:
    """As where the files of both options are exchanged: the answer alone would blame missing labels."""
    done = run("simulate", "--cluster", EXAMPLES / "train-rack.yaml", "-f", EXAMPLES / "train-block.yaml")
    assert done.exit_code == 1
    assert done.stderr.startswith("topogate: no Node in the files of --cluster: nothing can be placed\n")


def test_control_characters_never_reach_the_terminal(files: Any) -> None:
    """Names and values out of files are escaped."""
    hostile = job("x\x1b[2J", 4, {"require": "ra\x1b[31mck\nWORKLOAD"})
    result = simulate("-f", files("hostile.json", hostile))
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout
    assert result.stdout.count("WORKLOAD ") == 1


def test_show_objects_prints_what_the_api_server_would_store(files: Any) -> None:
    """YAML that can be applied: the same objects again, in file order, the refused ones left out."""
    file = files(
        "jobs.json", {"apiVersion": "v1", "kind": "List", "items": [job("a", 4, {"require": "rack"}), job("b", 1)]}
    )
    result = simulate("-f", file, "-f", EXAMPLES / "typo.yaml", "--show", "objects")
    first, second = yaml.safe_load_all(result.stdout)
    assert (first["metadata"]["name"], second["metadata"]["name"]) == ("a", "b")
    assert first["spec"]["suspend"] is True
    assert first["spec"]["template"]["spec"]["schedulingGates"] == [{"name": names.GATE}]
    assert second["spec"] == job("b", 1)["spec"]
    assert result.exit_code == 1
    listed = json.loads(simulate("-f", file, "--show", "objects", "-o", "json").stdout)
    assert listed == {"apiVersion": "v1", "kind": "List", "items": [first, second]}


@pytest.mark.parametrize("metadata", [None, {}, {"name": None}, "x"], ids=["null", "empty", "no name", "text"])
@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_the_patch_of_an_object_without_a_name_is_shown(files: Any, kind: str, metadata: Any) -> None:
    """Whatever becomes of it, the answer is a document or one line."""
    version = "batch/v1" if kind == "Job" else "jobset.x-k8s.io/v1alpha2"
    nameless = files("a.json", {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {}})
    result = simulate("-f", nameless, "--show", "patches")
    assert isinstance(result.exception, SystemExit | None)
    assert "None" not in result.stdout


def test_shown_objects_are_read_back_as_they_are(files: Any) -> None:
    """Text that looks like a number or a boolean to kubectl is quoted."""
    words = ["off", "y", "0644", "1e3", "null", "8", "2026-11-21", "a: b", "- x", "", "ü", "multi\nline"]
    workload = job("a", 1)
    workload["metadata"]["labels"] = {f"l{number}": word for number, word in enumerate(words)}
    shown = simulate("-f", files("a.json", workload), "--show", "objects").stdout
    (back,) = read_objects(shown.encode(), name="shown")
    assert back.decoded()["metadata"]["labels"] == workload["metadata"]["labels"]
    again = simulate("-f", "-", "--show", "objects", stdin=shown)
    assert again.stdout == shown


def test_show_patches_prints_our_json_patch() -> None:
    """One entry for every workload; nothing is changed of a refused one."""
    result = simulate("-f", EXAMPLES / "train-rack.yaml", "-f", EXAMPLES / "typo.yaml", "--show", "patches")
    first, second = yaml.safe_load(result.stdout)
    assert (first["kind"], first["namespace"], first["name"]) == ("Job", "default", "train-rack")
    assert {"op": "add", "path": "/spec/suspend", "value": True} in first["patch"]
    assert second["patch"] == []
    as_json = simulate("-f", EXAMPLES / "train-rack.yaml", "--show", "patches", "-o", "json")
    assert json.loads(as_json.stdout) == [first]


def test_standard_input_can_be_any_one_file(files: Any) -> None:
    """`kubectl get nodes -o json | topogate simulate --cluster - ...`."""
    cluster = json.dumps({"apiVersion": "v1", "kind": "List", "items": grid(1, 1, 4)})
    words = ("simulate", "--cluster", "-", "-f", EXAMPLES / "train-rack.yaml")
    assert run(*words, stdin=cluster).exit_code == 0
    assert one_line(run(*words, "-f", "-", stdin=cluster)) == "standard input (-) can be read only once"


@pytest.mark.parametrize("as_config_map", [False, True])
def test_policy_files(files: Any, as_config_map: bool) -> None:
    """policy.yaml, or the ConfigMap."""
    text = "neverFits: deny\n"
    file = files("policy", policy_map(text) if as_config_map else text)
    result = simulate("--policy", file, "-f", EXAMPLES / "too-large.yaml", "-o", "json")
    assert json.loads(result.stdout)["workloads"][0]["verdict"] == "rejected"


def test_a_refused_policy_is_bad_input(files: Any) -> None:
    """One line, with the first error."""
    file = files("policy.yaml", "mode: maybe\n")
    assert f"{file}: the policy is refused: mode: " in one_line(
        simulate("--policy", file, "-f", EXAMPLES / "typo.yaml")
    )


@pytest.mark.parametrize(("mode", "notes"), [("never", 1), ("lower-priority", 0)])
def test_a_preemption_that_the_policy_does_not_do_is_said_to_be_none(files: Any, mode: str, notes: int) -> None:
    """On standard error, beside the answer; without the option there is no preemption then, and no note."""
    late = job("late", 4, {"require": "rack"})
    late["spec"]["template"]["spec"]["priorityClassName"] = "urgent"
    cluster = files("cluster.json", {"apiVersion": "v1", "kind": "List", "items": [*grid(1, 2, 4), URGENT]})
    policy = files("policy.yaml", f"preemption: {{mode: {mode}}}")
    jobs = [files("early.json", job("early", 8, {"unconstrained": "true"})), files("late.json", late)]
    words = ("--cluster", cluster, "--policy", policy, "-f", jobs[0], "-f", jobs[1], "-o", "json")
    result = run("simulate", *words, "--preempt")
    assert [one["name"] for one in json.loads(result.stdout)["workloads"][1]["preempts"]] == ["early"]
    note = "topogate: preemption.mode is never: this would happen with lower-priority\n"
    assert result.stderr == note * notes
    alone = run("simulate", *words)
    assert (alone.exit_code, alone.stderr) == (notes, "")


def test_levels_namespace_and_notes(files: Any) -> None:
    """Options reach the simulation; what has no effect is said on standard error, and is no failure."""
    file = files("a.json", job("a", 4, {"require": "topology-rack"}))
    keys = "cloud.provider.com/topology-block, cloud.provider.com/topology-rack"
    result = simulate("-f", file, "--levels", keys, "-n", "ml", "-o", "json")
    found = json.loads(result.stdout)
    assert found["cluster"]["levels"] == ["topology-block", "topology-rack", "host"]
    assert (found["workloads"][0]["verdict"], found["workloads"][0]["namespace"]) == ("placed", "ml")
    policy = files("policy.yaml", "topologies: [{name: default, preset: demo}]")
    noted = simulate("-f", EXAMPLES / "train-rack.yaml", "--levels", keys, "--policy", policy)
    assert (noted.exit_code, noted.stderr) == (0, "topogate: --levels has no effect: the policy names the topologies\n")


def test_queue_and_independent(files: Any) -> None:
    """The flags reach the simulation."""
    cluster = files("c.json", {"apiVersion": "v1", "kind": "List", "items": grid(1, 1, 4)})
    jobs = files(
        "j.json",
        {"apiVersion": "v1", "kind": "List", "items": [job(name, 4, {"require": "rack"}) for name in ("b", "a")]},
    )

    def verdicts(*flags: str) -> list[tuple[str, str]]:
        shown = run("simulate", "--cluster", cluster, "-f", jobs, "-o", "json", *flags).stdout
        return [(one["name"], one["verdict"]) for one in json.loads(shown)["workloads"]]

    assert verdicts() == [("b", "placed"), ("a", "waits")]
    assert verdicts("--queue") == [("a", "placed"), ("b", "waits")]
    assert verdicts("--independent") == [("b", "placed"), ("a", "placed")]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["simulate", "-f", "x"], "Missing option '--cluster'. (topogate simulate --help)"),
        (["simulate", "--cluster", "x"], "Missing option '-f' / '--filename'. (topogate simulate --help)"),
        (["simulate", "--cluster", "absent.json", "-f", "x"], "absent.json: No such file or directory"),
        (["simulate", "--cluster", str(EXAMPLES), "-f", "x"], f"{EXAMPLES}: Is a directory"),
        (["simulate", "--nope"], "No such option '--nope'. (topogate simulate --help)"),
        (["simulate", "--cluster", "x", "-f", "x", "-o", "xml"], "Invalid value for '-o' / '--output'"),
        (["simulate", "--cluster", "x", "-f", "x", "--show", "objects", "-o", "table"], "--show prints json or yaml"),
        (["policy", "check"], "Missing argument 'FILE'. (topogate policy check --help)"),
        (["policy", "check", "absent.yaml"], "absent.yaml: No such file or directory"),
        (["nope"], "No such command 'nope'. (topogate --help)"),
        (["serve", "--namespace", "No_DNS"], "TOPOGATE_NAMESPACE: 'No_DNS' is no namespace name"),
        (["serve", "--port", "70000"], "Invalid value for '--port'"),
    ],
)
def test_wrong_use_is_one_line(words: list[str], problem: str) -> None:
    """Exit status 2 and one clear line on standard error."""
    assert one_line(run(*words)).startswith(problem)


@pytest.mark.parametrize("content", ["", "text", "a: [", "{", "\x00", "apiVersion: v1\nkind: Node\nmetadata: [5]\n"])
def test_bad_files_are_one_line(files: Any, content: str) -> None:
    """Unreadable input: exit status 2, the file named, never a trace."""
    file = files("bad.yaml", content)
    told = one_line(simulate("-f", file))
    assert str(file) in told or told == "no workload in the files (-f)"
    if content:
        assert str(file) in one_line(simulate("--cluster", file, "-f", EXAMPLES / "typo.yaml"))


def test_files_are_bounded(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that never ends, or the wrong file, costs no more than the limit."""
    monkeypatch.setattr("webhook.snapshot.files.MAX_BYTES", 1000)
    file = files("large.yaml", "#" * 1001)
    assert one_line(simulate("-f", file)).endswith("larger than 1,000 bytes")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("serve",),
        ("simulate",),
        ("policy",),
        ("policy", "check"),
    ],
)
def test_help_of_every_command(words: tuple[str, ...]) -> None:
    """--help exits with 0; every command that does something shows an example on a line of its own."""
    result = run(*words, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: {' '.join(('topogate', *words))}")
    if words and words != ("policy",):
        example = result.stdout.partition("  Example:\n")[2]
        assert f"    topogate {' '.join(words)}" in example


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"apiVersion": 5, "kind": "Pod"}', "apiVersion: expected text, got a whole number"),
        (
            r'{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "\ud800 and more text"}}',
            "JSON is malformed: ",
        ),
    ],
)
def test_what_is_wrong_with_an_object_is_told_in_words(files: Any, content: str, why: str) -> None:
    """With the path in front, as in every other error."""
    file = files("odd.json", content)
    assert f": not a Kubernetes object: {why}" in one_line(simulate("-f", file))


def test_a_quantity_of_another_type_is_told_in_words(files: Any) -> None:
    odd = job("odd", 1)
    odd["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"memory": {}}}
    assert "expected a number or text, got an object" in simulate("-f", files("odd.json", odd)).stdout


def test_an_empty_namespace_is_none() -> None:
    """As of a variable of a script that is not set; kubectl takes it for none, too."""
    answer = json.loads(simulate("-f", EXAMPLES / "train-rack.yaml", "-n", "", "-o", "json").stdout)
    assert answer["workloads"][0]["namespace"] == "default"


def test_wrong_use_is_one_line_without_tabs() -> None:
    """Where the library would print the choices in lines of their own."""
    assert one_line(run("completion")) == (
        "Missing argument '{bash|zsh|fish|kubectl}'. Choose from: bash, zsh, fish, kubectl (topogate completion --help)"
    )


@pytest.mark.parametrize("words", [("gangs", "--watch", "--interval"), ("serve", "--review-cpu")], ids=" ".join)
def test_what_is_no_number_is_in_no_range(words: tuple[str, ...]) -> None:
    """With it, watching would not pause at all."""
    assert "nan is no number" in one_line(run(*words, "nan"))


def test_without_a_command_there_is_help() -> None:
    """Wrong use, with all of the help."""
    result = run()
    assert result.exit_code == 2
    assert "Usage: topogate [OPTIONS] COMMAND [ARGS]..." in result.stderr


def test_the_version() -> None:
    """As a bug report needs it."""
    assert run("--version").stdout.startswith("topogate, version ")


def test_an_interrupt_is_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C: one line, and the shell's status."""

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("webhook.snapshot.files.read_objects", interrupted)
    result = simulate("-f", EXAMPLES / "typo.yaml")
    assert result.exit_code == 130
    assert result.stderr.strip() == "topogate: interrupted"


def commands(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    yield above
    for name, command in group.commands.items():
        yield from commands(command, *above, name) if isinstance(command, click.Group) else [(*above, name)]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        pytest.param(one, words, id=" ".join((name, *words)))
        for name, one in (("topogate", main), ("local", local))
        for words in commands(one)
    ],
)
def test_examples_of_the_help_keep_their_lines(program: click.Group, words: tuple[str, ...]) -> None:
    """Help shows examples line by line, and none of the marks that say so to the library."""
    shown = CliRunner().invoke(program, [*words, "--help"])
    assert shown.exit_code == 0
    assert "\\b" not in shown.output and "\b" not in shown.output
    lines = shown.output.splitlines()
    assert words in ((), ("policy",)) or "  Example:" in lines
    assert all(line == "  Example:" for line in lines if "Example:" in line)


def test_callers_in_the_same_process_get_exceptions() -> None:
    """Outside standalone mode nothing is printed and nobody exits."""
    with pytest.raises(click.UsageError):
        main(["simulate"], standalone_mode=False)


def test_a_good_policy(files: Any) -> None:
    """Its hash is that of the log and of the metric."""
    for content in ("neverFits: deny\n", policy_map("neverFits: deny\n")):
        result = run("policy", "check", files("policy.yaml", content))
        assert (result.exit_code, result.stdout) == (0, "")  # nothing to be applied
        assert "policy.yaml: good (hash " in result.stderr
    assert run("policy", "check", "-", stdin="{}").exit_code == 0
    assert run("policy", "check", ROOT / "manifests" / "samples" / "policy.yaml").exit_code == 0


def test_policy_check_warns_of_rules_without_an_effect() -> None:
    """The policy is good: the exit status is 0."""
    result = run("policy", "check", "-", stdin='namespaces: {rules: [{namespaces: ["*"]}, {namespaces: [a]}]}')
    assert result.exit_code == 0
    assert "warning: namespaces.rules[1] has no effect: its namespaces match namespaces.rules[0] first" in result.stderr


def test_policy_check_accepts_an_entry_for_a_kind_that_is_built_in_now() -> None:
    """After an upgrade the entry stays in force, and a warning says how to use the other one."""
    mine = BENCH.replace("group: example.com", "group: kubeflow.org").replace(
        "kind: Bench, resource: benches", "kind: JAXJob, resource: jaxjobs"
    )
    result = run("policy", "check", "-", stdin=mine)
    assert result.exit_code == 0
    assert "warning: kinds[0] replaces the built-in entry jaxjob; remove it to use that" in result.stderr


BENCH = """
kinds:
- name: bench
  match: {group: example.com, versions: [v1], kind: Bench, resource: benches}
  podSets:
  - {name: {text: main}, template: .spec.template, count: {const: 2}}
  gang: {unit: workload, creation: all-at-once}
  owners: [{group: apps, kind: StatefulSet}]
  suspend: {path: .spec.suspend}
  replace: {cost: free}
  rbac:
  - {group: apps, resources: [statefulsets], verbs: [get, list, watch]}
  - {group: example.com, resources: [parts], verbs: [get, list, watch]}
"""


def test_rights_for_the_kinds_of_a_policy_are_printed(files: Any) -> None:
    """As manifests that can be applied: what the service's own do not grant yet, to its account, and nothing else."""
    result = run("policy", "check", files("policy.yaml", BENCH))
    assert result.exit_code == 0
    role, binding = yaml.safe_load_all(result.stdout)
    assert role["rules"] == [
        {"apiGroups": ["example.com"], "resources": ["benches"], "verbs": ["get", "list", "patch", "watch"]},
        {"apiGroups": ["example.com"], "resources": ["parts"], "verbs": ["get", "list", "watch"]},
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": names.SERVICE_ACCOUNT, "namespace": names.NAMESPACE}
    ]
    assert "good (hash" in result.stderr


def test_a_policy_tells_what_its_topologies_take_of_a_cluster(files: Any) -> None:
    """How many nodes each takes and leaves out, and why; simulate says what is left out as well."""
    rack = "cloud.provider.com/topology-rack"
    labels = [{rack: "a", "pool": "gpu"}, {"pool": "gpu"}, {}]
    metadata = [{"name": f"n{n}", "labels": one} for n, one in enumerate(labels)]
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": one} for one in metadata]
    cluster = files("nodes.json", json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
    text = f"topologies: [{{name: gpus, levels: [{{name: rack, keys: [{rack}]}}], nodeSelector: {{pool: gpu}}}}]"
    policy = files("policy.yaml", text)
    result = run("policy", "check", policy, "--cluster", cluster)
    assert result.exit_code == 0
    told = "topology gpus (rack, host): 1 node; left out: 1 node with no label rack; 1 not selected"
    assert (result.stdout, result.stderr.splitlines()[1:]) == ("", [told])
    assert one_line(run("policy", "check", "-", "--cluster", "-")) == "standard input (-) can be read only once"
    simulated = run("simulate", "--cluster", cluster, "--policy", policy, "-f", EXAMPLES / "train-rack.yaml")
    assert simulated.stderr == "topogate: topology gpus: left out: 1 node with no label rack\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("topologies: [{name: a, preset: oke}]", "no node of 1 has a label of level island (oci.oraclecloud.com/rdma"),
        ("topologies: [{name: a, preset: demo, nodeSelector: {pool: y}}]", "no node of 1 has the labels of its node"),
        ("topologies: [{name: a, preset: demo}]", ""),
    ],
)
def test_a_policy_that_takes_no_node_is_a_negative_answer(files: Any, text: str, why: str) -> None:
    """Exit status 1, and a last line that says why; of kinds the rights are printed all the same."""
    labels = {"cloud.provider.com/topology-block": "a", "cloud.provider.com/topology-rack": "b"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": labels}}
    result = run("policy", "check", files("p.yaml", text + BENCH), "--cluster", files("nodes.json", json.dumps(node)))
    assert result.exit_code == bool(why)
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"topology a matches no node: {why}" if why else "topology a (block, rack, host): 1 node")
    assert "kind: ClusterRole" in result.stdout


def test_a_cluster_without_nodes_is_a_negative_answer(files: Any) -> None:
    """Whoever gives files for nodes gave the wrong ones."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}
    result = run("policy", "check", "-", "--cluster", files("pods.json", json.dumps(pod)), stdin="{}")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, "topology default matches no node: there are none")


def test_a_default_that_the_nodes_cannot_meet_is_refused_with_them(files: Any) -> None:
    """Without nodes any level of a preset may be one; with them it is as at kubectl apply."""
    said = "namespaces: {defaults: [{namespaces: [a], annotations: {topogate.dev/prefer-topology: zone}}]}\n"
    policy = files("policy.yaml", said)
    labels = {"cloud.provider.com/topology-block": "b", "cloud.provider.com/topology-rack": "r"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": labels}}
    assert run("policy", "check", policy).exit_code == 0
    result = run("policy", "check", policy, "--cluster", files("nodes.json", json.dumps(node)))
    assert result.exit_code == 1
    assert result.stderr.startswith(
        'namespaces.defaults[0].annotations[topogate.dev/prefer-topology]: "zone": allowed: block, rack, host, auto'
    )


def test_a_bad_policy_tells_every_error(files: Any) -> None:
    """Exit status 1, a line for each error with its path, and how many there are."""
    result = run("policy", "check", files("policy.yaml", "mode: maybe\ntopologies: [{name: A, preset: nope}]\n"))
    assert (result.exit_code, result.stdout) == (1, "")
    lines = result.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines[:3]] == ["mode", "topologies[0].name", "topologies[0].preset"]
    assert lines[3].endswith("policy.yaml: refused, 3 errors")


def test_no_policy_at_all(files: Any) -> None:
    """A ConfigMap without the key is bad input, text that is none is a refused policy."""
    empty = policy_map("")
    del empty["data"]
    assert "the ConfigMap has no text under data[policy.yaml]" in one_line(run("policy", "check", files("e", empty)))
    assert run("policy", "check", files("t", "[")).exit_code == 1
