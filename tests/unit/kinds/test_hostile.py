"""Objects that no API server should have let in: every fault is told at its path, and nothing else is raised."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api.rank import index_of
from engine.gang.gang import pod_set_of, rank_of
from engine.kinds.read import UnreadableWorkload, read
from engine.kinds.registry import built_in
from tests.support.kinds import TEMPLATE, example, group_of, merged, pod_of, structure_of, workload_of

JOBS = "spec.replicatedJobs"
WHOLE = "must be a whole number from 0 to 2,147,483,647"
LYING = [
    "-1",
    "1e3",
    " 5",
    "5 ",
    "+5",
    "05",
    "",
    "0x1",
    "1.0",
    "99999999999999999999",
    "2147483648",
    "\N{ARABIC-INDIC DIGIT THREE}",
    "\N{FULLWIDTH DIGIT ONE}",
    "None",
]


def faults(name: str, patch: Any) -> list[tuple[str, str]]:
    with pytest.raises(UnreadableWorkload) as caught:
        structure_of(merged(example(name)["object"], patch))
    return [(error.field, error.message) for error in caught.value.errors]


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (-1, "-1"),
        (2**31, "2147483648"),
        (10**30, "a number out of range"),
        pytest.param(10**5000, "a number out of range", id="more digits than Python prints"),
        ("4", '"4"'),
        (4.0, "4.0"),
        (float("nan"), "nan"),
        (True, "true"),
        ([], "a list"),
        ({}, "a mapping"),
    ],
)
def test_a_count_that_is_none(value: Any, got: str) -> None:
    """A count is a whole number of 32 bits; the error says where and what was seen."""
    assert faults("deployment", {"spec": {"replicas": value}}) == [("spec.replicas", f"{WHOLE}; got {got}")]


def test_large_counts_are_numbers() -> None:
    """A million pods are read; whether so many may be asked for is somebody else's question."""
    structure = structure_of(merged(example("deployment")["object"], {"spec": {"replicas": 10**6}}))
    assert [one.count for one in structure.pod_sets] == [10**6]


def test_counts_that_multiply_are_capped() -> None:
    """A product beyond 32 bits stays there: more than any limit, and less than what would hang."""
    jobs = [{"name": "a", "replicas": 2**31 - 1, "template": {"spec": {"parallelism": 2**31 - 1, "template": {}}}}]
    structure = structure_of(merged(example("jobset")["object"], {"spec": {"replicatedJobs": jobs}}))
    assert structure.pod_sets[0].count == 2**31 - 1


@pytest.mark.parametrize("value", ["text", 5, True, []])
def test_a_spec_that_is_no_mapping(value: Any) -> None:
    """Every part that looks into it says the same, once."""
    found = faults("job", {"spec": value})
    assert {field for field, _ in found} == {"spec"}
    assert len(found) == 1


@pytest.mark.parametrize("raw", [None, [], "text", 5])
def test_an_object_that_is_no_mapping(raw: Any) -> None:
    """There is always a field to point at."""
    entry = built_in().find("batch", "Job")
    assert entry is not None
    with pytest.raises(UnreadableWorkload) as caught:
        read(entry, raw, registry=built_in())
    assert [error.field for error in caught.value.errors] == ["metadata"]


def test_a_template_that_is_missing() -> None:
    """A pod set without a template is a fault where the template should be."""
    assert faults("job", {"spec": {"template": None}}) == [("spec.template", "the template of the pods is missing")]
    assert faults("jobset", {"spec": {"replicatedJobs": [{"name": "a"}]}}) == [
        (f"{JOBS}[0].template.spec.template", "the template of the pods is missing")
    ]


def test_a_template_that_is_no_mapping() -> None:
    """The type is told."""
    assert faults("job", {"spec": {"template": ["a"]}}) == [("spec.template", "must be a mapping; got a list")]


def test_two_pod_sets_of_one_name() -> None:
    """Both are named: the fault stands at the second, the text tells the first."""
    jobs = [{"name": "a", "template": {"spec": {"template": TEMPLATE}}} for _ in range(2)]
    (found,) = faults("jobset", {"spec": {"replicatedJobs": jobs}})
    assert found[0] == f"{JOBS}[1].template.spec.template"
    assert f'name "a" (the first is at {JOBS}[0].template.spec.template)' in found[1]


def test_one_role_in_two_spellings() -> None:
    """Keys that mean the same pod set collide like names do."""
    patch = {"spec": {"jaxReplicaSpecs": {"worker": {"template": TEMPLATE}}}}
    (found,) = faults("jaxjob", patch)
    assert found[0] == "spec.jaxReplicaSpecs.worker.template"
    assert "spec.jaxReplicaSpecs.Worker.template" in found[1]


@pytest.mark.parametrize("name", ["", "a" * 64, "a b", "-a", "ä", 5, ["a"], {"a": 1}])
def test_a_name_that_cannot_be_a_label(name: Any) -> None:
    """The name of a pod set becomes a label value."""
    jobs = [{"name": name, "template": {"spec": {"template": TEMPLATE}}}]
    fields = {field for field, _ in faults("jobset", {"spec": {"replicatedJobs": jobs}})}
    assert fields == {f"{JOBS}[0].name"}


def test_a_name_that_is_missing() -> None:
    """Where the kind has no name of its own for it, it is required."""
    jobs = [{"template": {"spec": {"template": TEMPLATE}}}]
    assert (f"{JOBS}[0].name", "the name is missing") in faults("jobset", {"spec": {"replicatedJobs": jobs}})


@pytest.mark.parametrize(
    ("jobs", "field"),
    [
        ({"a": {}}, JOBS),
        ("text", JOBS),
        ([None], f"{JOBS}[0]"),
        (["text"], f"{JOBS}[0]"),
        ([[]], f"{JOBS}[0]"),
        ([{"name": "a", "template": "text"}], f"{JOBS}[0].template"),
        ([{"name": "a", "template": {"spec": []}}], f"{JOBS}[0].template.spec"),
    ],
)
def test_a_list_of_the_wrong_form(jobs: Any, field: str) -> None:
    """The fault stands at the node that is wrong, not at the one that was wanted."""
    assert field in {found for found, _ in faults("jobset", {"spec": {"replicatedJobs": jobs}})}


def test_more_pod_sets_than_anybody_means() -> None:
    """Sixty-four pod sets are read, and one more is refused without reading on."""
    jobs = [{"name": f"a{n}", "template": {"spec": {"template": TEMPLATE}}} for n in range(64)]
    raw = merged(example("jobset")["object"], {"spec": {"replicatedJobs": jobs}})
    assert len(structure_of(raw).pod_sets) == 64
    (found,) = faults("jobset", {"spec": {"replicatedJobs": [*jobs, *jobs]}})
    assert found == (JOBS, "has 128 entries; at most 64 are read")


def test_every_fault_is_told_at_once() -> None:
    """A user mends all of it in one go."""
    jobs = [
        {"name": "a", "replicas": -1, "template": {"spec": {"parallelism": "2", "template": TEMPLATE}}},
        {"name": "b", "template": {}},
    ]
    patch = {"spec": {"replicatedJobs": jobs, "suspend": "yes"}}
    assert {field for field, _ in faults("jobset", patch)} == {
        f"{JOBS}[0].replicas",
        f"{JOBS}[0].template.spec.parallelism",
        f"{JOBS}[1].template.spec.template",
        "spec.suspend",
    }


@pytest.mark.parametrize("value", ["4x", "-1", " 4", "1e3", "99999999999999999999", 4, None])
def test_a_gang_size_that_is_no_number(value: Any) -> None:
    """An annotation that the user wrote is told with its key."""
    patch = {"metadata": {"annotations": {"topogate.dev/gang-size": value}}}
    if value is None:
        assert [one.count for one in structure_of(merged(example("pod")["object"], patch)).pod_sets] == [1]
        return
    (found,) = faults("pod", patch)
    assert found[0] == "metadata.annotations[topogate.dev/gang-size]"


@pytest.mark.parametrize("value", [[], "text", 5])
def test_annotations_that_are_no_mapping(value: Any) -> None:
    """Metadata is read like everything else."""
    assert "metadata.annotations" in {field for field, _ in faults("pod", {"metadata": {"annotations": value}})}


@pytest.mark.parametrize("text", LYING)
def test_an_index_label_that_lies(text: str) -> None:
    """An index is what a controller writes, digit for digit; everything else gives no rank and no group."""
    assert index_of(text) is None
    job = workload_of(example("job")["object"])
    assert rank_of(pod_of({"batch.kubernetes.io/job-completion-index": text}), job.pod_sets[0]) is None
    jobset = workload_of(example("jobset")["object"])
    for index, completion in ((text, "0"), ("0", text)):
        labels = {"jobset.sigs.k8s.io/job-index": index, "batch.kubernetes.io/job-completion-index": completion}
        assert rank_of(pod_of(labels), jobset.pod_sets[1]) is None
    lws = workload_of(example("leaderworkerset")["object"])
    assert group_of(pod_of({"leaderworkerset.sigs.k8s.io/group-index": text}), lws) is None


def test_a_lying_index_chooses_no_leader() -> None:
    """Only the label of a leader makes one; what looks like it is a worker without a rank."""
    pod = pod_of({"leaderworkerset.sigs.k8s.io/worker-index": "00"})
    found = pod_set_of(pod, workload_of(example("leaderworkerset")["object"]))
    assert found is not None
    assert found.name == "worker"
    assert rank_of(pod, found) is None


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "the path of a pod template is missing"),
        ("template.spec.parts[7].template", "not found in the object"),
        ("template.spec.parts[-1].template", "must be a path such as"),
        ("template.spec..parts", "must be a path such as"),
        (".".join(["template"] * 40), "not found in the object"),
        ("spec.components", "not found in the object"),
        ("template.kind", "must be a mapping"),
        (5, "must be text"),
    ],
)
def test_a_declared_path_that_leads_nowhere(path: Any, message: str) -> None:
    """A path in the user's own words is bounded, and never leaves its component."""
    component = {
        "podSets": [{"path": path}],
        "template": {"apiVersion": "x/v1", "kind": "X", "spec": {"parts": [{"template": TEMPLATE}]}},
    }
    (found,) = faults("appwrapper", {"spec": {"components": [component]}})
    assert found[0].startswith("spec.components[0]")
    assert message in found[1]


def test_faults_inside_a_component_have_their_whole_path() -> None:
    """The path starts at the object that the user wrote."""
    component = {"template": {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": -1, "template": {}}}}
    (found,) = faults("appwrapper", {"spec": {"components": [component]}})
    assert found[0] == "spec.components[0].template.spec.replicas"


def test_wrappers_in_wrappers_are_not_followed() -> None:
    """One level is read; what is deeper has no pods for us."""
    raw = example("appwrapper")["object"]
    component = {"template": raw}
    assert faults("appwrapper", {"spec": {"components": [component]}}) == [
        ("spec.components", "no pod template of this AppWrapper was found")
    ]


@pytest.mark.parametrize("name", ["jobset", "pytorchjob", "volcano-job", "appwrapper"])
def test_a_workload_without_pods(name: str) -> None:
    """A kind that is placed has at least one pod template."""
    raw = {key: value for key, value in example(name)["object"].items() if key != "spec"}
    entry = built_in().entry_of(raw)
    assert entry is not None
    with pytest.raises(UnreadableWorkload, match="no pod template"):
        read(entry, raw, registry=built_in())


def test_lists_in_lists_are_not_looked_through_without_end() -> None:
    """What a path leads to is bounded as a whole: a thousand lists of a thousand entries would be a million."""
    job = {"name": "a", "dependsOn": [1] * 200, "template": {"spec": {"template": TEMPLATE}}}
    jobs = [{**job, "name": f"j{number}"} for number in range(10)]
    found = faults("jobset", {"spec": {"replicatedJobs": jobs}})
    assert (f"{JOBS}[1].dependsOn[56]", "is one entry too many; at most 256 are read") in found


def test_what_concerns_all_pod_sets_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The policies of a Volcano Job say what a lost pod costs, whichever task it is of."""
    asked: list[object] = []
    monkeypatch.setattr("engine.kinds.pod_sets.cost", lambda _entry, spec, _scope: asked.append(spec) or "free")
    tasks = [{"name": f"t{number}", "template": TEMPLATE} for number in range(20)]
    structure = structure_of(merged(example("volcano-job")["object"], {"spec": {"tasks": tasks}}))
    assert [one.replace for one in structure.pod_sets] == ["free"] * 20
    assert asked == [None]
