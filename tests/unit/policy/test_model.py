from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from engine.policy.model import Policy, PolicyError, default_policy, parse_policy
from engine.topology.levels import HOST, Level, presets

CONTRACT = """
apiVersion: topogate.dev/v1alpha1
kind: Policy
mode: enforce
topologies:
- name: default
  preset: demo
  nodeSelector: {}
  missingLabel: exclude
nodes: {settle: 15s}
namespaces:
  exempt: [kube-system]
  defaults: []
annotations: {dialects: [topogate, kueue, kai, pod-group], unknown: deny}
gpu: {translation: auto, scope: managed, vendors: [amd.com/gpu], deviceAnnotationWriters: []}
podGroup: {labels: coscheduling}
planner: {profile: pack, steps: 200000}
queue: {order: best-effort, patience: 10m, maxGangPods: 10000}
neverFits: warn
incomplete: keep
nodeLoss: wait
timeouts: {bind: 30s, hold: 10m, node: 60s, start: null, recover: 10m, relaxAfter: null}
schedulers: [default-scheduler]
kinds: []
admins: [system:masters]
"""


def test_the_values_shown_in_the_contract_are_the_defaults() -> None:
    """The policy with every field written out differs from the default only in the topology that it names."""
    policy = parse_policy(CONTRACT)
    assert policy.model_copy(update={"topologies": ()}) == default_policy()
    assert [topology.name for topology in policy.topologies] == ["default"]


def test_an_empty_mapping_is_the_default_policy() -> None:
    """Every field may be left out."""
    assert parse_policy("{}") == default_policy()


def test_null_counts_as_left_out() -> None:
    """A section whose lines are all commented out is the default section."""
    assert parse_policy("timeouts:\ngpu: null\nnodes: {settle: null}") == default_policy()


def test_off_needs_no_quotes() -> None:
    """The mode `off` is text, not a boolean."""
    assert parse_policy("mode: off").mode == "off"


def test_durations_are_seconds_inside_and_text_outside() -> None:
    """Durations are Go-style text in the document and seconds in the engine."""
    policy = parse_policy("timeouts: {bind: 1m30s, hold: 1.5h}\nnodes: {settle: 0s}")
    assert (policy.timeouts.bind, policy.timeouts.hold, policy.nodes.settle) == (90.0, 5400.0, 0.0)
    assert policy.model_dump(mode="json")["timeouts"]["hold"] == "1h30m"


def test_everything_that_is_built_can_be_set() -> None:
    """Settings with an effect are accepted."""
    policy = parse_policy(
        "mode: observe\n"
        "planner: {profile: spread, steps: 1000}\n"
        "queue: {order: strict, maxGangPods: 64}\n"
        "annotations: {dialects: [topogate], unknown: warn}\n"
        "podGroup: {labels: none}\n"
        "neverFits: deny\n"
        "namespaces: {exempt: [infra-*]}\n"
        "schedulers: [default-scheduler, gpu-scheduler]\n"
        "admins: []\n"
    )
    assert policy.planner.profile == "spread"
    assert policy.queue.order == "strict"
    assert policy.queue.max_gang_pods == 64
    assert policy.annotations.dialects == ("topogate",)
    assert policy.pod_group.labels == "none"
    assert policy.never_fits == "deny"


def test_kube_system_is_always_exempt() -> None:
    """An admin who adds a namespace does not open kube-system by it."""
    assert parse_policy("namespaces: {exempt: [infra-*]}").namespaces.exempt == ("kube-system", "infra-*")


def test_levels_of_a_preset() -> None:
    """A preset's levels come with the host level."""
    (topology,) = parse_policy("topologies: [{name: a, preset: demo}]").topologies
    assert topology.resolved_levels() == presets()["demo"]


@pytest.mark.parametrize("host", ["", ", {name: host}", ", {name: host, keys: [kubernetes.io/hostname]}"])
def test_the_host_level_is_always_there(host: str) -> None:
    """Written out or not, the host level is the last one."""
    (topology,) = parse_policy(f"topologies: [{{name: a, levels: [{{name: rack, keys: [x/rack]}}{host}]}}]").topologies
    assert topology.resolved_levels() == (Level("rack", ("x/rack",)), HOST)


def test_six_levels_above_the_host_are_enough() -> None:
    """The deepest topology that is allowed."""
    levels = ",".join(f"{{name: l{n}, keys: [x/l{n}]}}" for n in range(6))
    (topology,) = parse_policy(f"topologies: [{{name: a, levels: [{levels}, {{name: host}}]}}]").topologies
    assert len(topology.resolved_levels()) == 7


def test_the_hash_tells_settings_apart() -> None:
    """Equal settings in other words have one hash, other settings another."""
    assert parse_policy("timeouts: {hold: 600s}").hash == default_policy().hash
    assert parse_policy("timeouts: {hold: 601s}").hash != default_policy().hash
    assert len(default_policy().hash) == 12


def test_a_policy_does_not_change() -> None:
    """Threads share it."""
    with pytest.raises(ValidationError):
        default_policy().mode = "off"


def test_a_written_policy_reads_back() -> None:
    """What we store as the last good policy is the same policy when it is read again."""
    policy = parse_policy(CONTRACT)
    assert parse_policy(policy.model_dump_json(by_alias=True)) == policy


@pytest.mark.parametrize(
    ("vendor", "said"),
    [
        ("cpu", '"cpu" is not a resource of a device plugin'),
        ("kubernetes.io/gpu", '"kubernetes.io/gpu" is not a resource'),
        ("node.kubernetes.io/x", "is not a resource of a device plugin"),
        ("nvidia.com/gpu", "nvidia.com/gpu is always counted; leave it out"),
        ("koordinator.sh/gpu-core", "does not count whole GPUs"),
    ],
)
def test_a_vendor_is_a_name_that_counts_whole_gpus(vendor: str, said: str) -> None:
    """What could never be one is refused by its place in the list."""
    with pytest.raises(PolicyError) as caught:
        parse_policy(f"gpu: {{vendors: [amd.com/gpu, {vendor}]}}")
    (error,) = caught.value.errors
    assert error.field == "gpu.vendors[1]"
    assert said in error.message


def test_the_section_on_gpus_is_in_force() -> None:
    """Every value of it is accepted."""
    for translation in ("auto", "rewrite", "annotate", "off"):
        for scope in ("managed", "all"):
            gpu = parse_policy(f"gpu: {{translation: {translation}, scope: {scope}, vendors: []}}").gpu
            assert (gpu.translation, gpu.scope, gpu.vendors) == (translation, scope, ())
    writer = "system:serviceaccount:a:b"
    policy = parse_policy(f"gpu: {{vendors: [example.com/npu], deviceAnnotationWriters: ['{writer}']}}")
    assert policy.gpu.vendors == ("example.com/npu",)
    assert policy.gpu.device_annotation_writers == (writer,)


def test_the_default_in_other_words_is_no_setting() -> None:
    """600s is 10m: what is the same as the default is accepted."""
    assert parse_policy("queue: {patience: 600s}\ntimeouts: {node: 1m}\ngpu: {vendors: [amd.com/gpu]}") == Policy()


def test_snake_case_is_not_a_second_spelling() -> None:
    """Field names are the contract: one spelling each."""
    with pytest.raises(PolicyError, match='never_fits: unknown field; did you mean "neverFits"'):
        parse_policy("never_fits: deny")


def test_the_default_is_json() -> None:
    """The default policy can be written out."""
    assert json.loads(default_policy().model_dump_json())["apiVersion"] == "topogate.dev/v1alpha1"


KIND = """
kinds:
- name: bench
  match: {group: example.com, versions: [v1], kind: Bench, resource: benches}
  podSets:
  - {name: {text: main}, template: .spec.template, count: {path: .spec.replicas, default: 1}}
  gang: {unit: workload, creation: all-at-once}
  suspend: {path: .spec.suspend}
  replace: {cost: free}
"""


def test_kinds_of_the_policy_join_the_registry() -> None:
    """They are found like the built-in ones, which stay."""
    registry = parse_policy(KIND).registry
    assert registry.find("example.com", "Bench") is None
    assert registry.find("example.com", "Bench", "v1") is not None
    assert registry.find("batch", "Job") is not None


def test_the_registry_is_made_once_for_each_set_of_kinds() -> None:
    """Every event of a pod asks for it; a copy of the policy with other kinds has another one."""
    policy = parse_policy(KIND)
    assert policy.registry is policy.registry
    assert policy.model_copy(update={"mode": "off"}).registry is policy.registry
    assert policy.model_copy(update={"kinds": ()}).registry.find("example.com", "Bench", "v1") is None


def test_faults_of_kinds_are_told_by_path() -> None:
    """Each with the others of the policy, down to the field inside the entry."""
    with pytest.raises(PolicyError) as caught:
        parse_policy("mode: x\n" + KIND.replace("default: 1", "default: many").replace("name: bench", "name: job"))
    paths = [error.field for error in caught.value.errors]
    assert paths == ["kinds[0].podSets[0].count.default", "mode"]
    with pytest.raises(PolicyError, match=r"kinds\[0\].name: job is a duplicate \(it is built in\)"):
        parse_policy(KIND.replace("name: bench", "name: job"))


@pytest.mark.parametrize("kinds", ["{}", "x", "7", "[x]", "[[]]", "[{}]", "[null]", "[{match: 7}]", "[{podSets: {}}]"])
def test_what_is_no_kind_is_refused(kinds: str) -> None:
    """Whatever stands there."""
    with pytest.raises(PolicyError) as caught:
        parse_policy(f"kinds: {kinds}")
    assert all(error.field.startswith("kinds") for error in caught.value.errors)


DEFAULTS = "namespaces: {defaults: [{namespaces: [research-*], annotations: {%s}}]}"


@pytest.mark.parametrize(
    "said",
    [
        "topogate.dev/prefer-topology: auto",
        "topogate.dev/require-topology: rack",
        "topogate.dev/unconstrained-topology: 'true'",
        "topogate.dev/require-topology: rack, topogate.dev/relax-after: 1h",
        "topogate.dev/prefer-topology: rack, topogate.dev/start-timeout: 1h, topogate.dev/recover-timeout: none",
    ],
)
def test_namespaces_can_make_requests(said: str) -> None:
    """Those about a whole workload, in our own words."""
    [default] = parse_policy(DEFAULTS % said).namespaces.defaults
    assert len(default.annotations) == said.count(": ")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("x: y", "is not a request that a namespace can make"),
        ("topogate.dev/gang-size: '3'", "is not a request that a namespace can make"),
        ("kueue.x-k8s.io/podset-required-topology: rack", "is not a request that a namespace can make"),
        ("topogate.dev/prefer-topology: rakc", '"rakc" is not a level of this policy\'s topologies'),
        ("topogate.dev/unconstrained-topology: 'false'", 'can only be "true"'),
        ("topogate.dev/prefer-topology: 7", "must be text"),
    ],
)
def test_what_no_namespace_can_ask_is_refused(said: str, message: str) -> None:
    """It would refuse or silently miss every workload there."""
    with pytest.raises(PolicyError, match=message) as caught:
        parse_policy(DEFAULTS % said)
    assert caught.value.errors[0].field.startswith("namespaces.defaults[0].annotations")


def test_levels_of_defaults_are_those_of_the_policy_s_topologies() -> None:
    """By alias or by label key."""
    topologies = "topologies: [{name: a, levels: [{name: pod, keys: [example.com/pod]}]}]\n"
    for good in ("pod", "example.com/pod", "host", "auto"):
        assert parse_policy(topologies + DEFAULTS % f"topogate.dev/require-topology: {good}")
    with pytest.raises(PolicyError, match="is not a level"):
        parse_policy(topologies + DEFAULTS % "topogate.dev/require-topology: rack")


def test_a_topology_takes_its_levels_from_one_place() -> None:
    """From a preset, from levels, or from somebody else's Topology object."""
    [spec] = parse_policy("topologies: [{name: a, fromObject: {group: kai.scheduler, name: b}}]").topologies
    assert spec.from_object is not None
    with pytest.raises(PolicyError, match="exactly one is allowed"):
        parse_policy("topologies: [{name: a, preset: demo, fromObject: {group: kai.scheduler, name: b}}]")
    with pytest.raises(PolicyError, match=r"topologies\[0\].fromObject.group: must be one of"):
        parse_policy("topologies: [{name: a, fromObject: {group: example.com, name: b}}]")
