"""`gpu.hami.limits` of the policy: containers get the limits of HAMi's library from annotations of their pod."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.policy.model import parse_policy
from engine.resources.names import CORE, GPU, MEMORY, NVIDIA, RATIO, SHARED, Reported
from tests.support.admission import FakeView, Json, apply, edited, gang_view, live, rack_job, raw_pod, review
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

SM, MEM = "CUDA_DEVICE_SM_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT"
SOURCES = {MEM: "topogate.dev/gpu-memory-limit", SM: "topogate.dev/gpu-core-limit"}
DIMENSIONS = Reported(frozenset({CORE, RATIO, MEMORY, SHARED, NVIDIA}))


def view(hami: str = "{limits: true}", env: str = "none") -> FakeView:
    return FakeView(policy=parse_policy(f"gpu: {{hami: {hami}, env: {env}}}"), reported=DIMENSIONS)


def ours(name: str) -> Json:
    path = f"metadata.annotations['{SOURCES[name]}']"
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def gang(*limits: Json, env: Any = None, **spec: Any) -> Json:
    own = {} if env is None else {"env": env}
    listed = [
        {"name": f"c{number}", "image": "x", "resources": {"limits": one}, **own} for number, one in enumerate(limits)
    ]
    return rack_job(pod_spec={"restartPolicy": "Never", "containers": listed, **spec})


def create(job: Json, seen: FakeView) -> Json:
    return apply(job, mutate(review(job), seen, 0.0))


def envs(job: Json, kind: str = "containers") -> list[list[str]]:
    return [[variable["name"] for variable in one.get("env", ())] for one in job["spec"]["template"]["spec"][kind]]


@pytest.mark.parametrize(
    ("limits", "variables"),
    [
        ({GPU: "50"}, [MEM, SM]),
        ({RATIO: "30"}, [MEM]),
        ({MEMORY: "8Gi"}, [MEM]),
        ({CORE: "40", MEMORY: "8Gi"}, [MEM, SM]),
        ({CORE: "50", RATIO: "100"}, [SM]),
        ({SHARED: "2", CORE: "80", RATIO: "60"}, [MEM, SM]),
        ({GPU: "100"}, []),
        ({GPU: "200"}, []),
        ({NVIDIA: "1"}, []),
        ({"cpu": "1"}, []),
    ],
    ids=str,
)
def test_a_container_with_a_part_gets_the_limits_that_it_has(limits: Json, variables: list[str]) -> None:
    """Whole GPUs have none, and a request without compute does not limit it."""
    stored = create(gang(limits), view())
    assert envs(stored) == [variables]
    assert stored["spec"]["template"]["spec"]["containers"][0].get("env", []) == [ours(name) for name in variables]


@pytest.mark.parametrize(("limits", "variables"), [({GPU: "50"}, [MEM, SM]), ({GPU: "200"}, []), ({NVIDIA: "2"}, [])])
def test_whole_gpus_that_are_written_in_bytes_have_no_limits(limits: Json, variables: list[str]) -> None:
    """Where nodes report memory in bytes alone."""
    bytes_only = replace(view(), reported=Reported(frozenset({CORE, MEMORY}), memory=80 * 2**30))
    assert envs(create(gang(limits), bytes_only)) == [variables]


def test_init_containers_get_them_too() -> None:
    init = [{"name": "i", "image": "x", "resources": {"limits": {GPU: "50"}}}]
    assert envs(create(gang({GPU: "50"}, initContainers=init), view()), "initContainers") == [[MEM, SM]]


def test_both_settings_go_together() -> None:
    assert envs(create(gang({GPU: "50"}, {"cpu": "1"}), view(env="uuid"))) == [
        [names.VISIBLE_DEVICES_VARIABLE, MEM, SM],
        [],
    ]


@pytest.mark.parametrize("hami", ["{}", "{limits: false}"])
def test_without_the_policy_nothing_is_added(hami: str) -> None:
    assert envs(create(gang({GPU: "50"}), view(hami))) == [[]]


def test_containers_that_divide_a_gpu_get_none_and_a_warning() -> None:
    """The limit of the pod would let each of them use the part of the others too."""
    job = gang({GPU: "30"}, {GPU: "20"}, {"cpu": "1"})
    stored = create(job, view())
    assert envs(stored) == [[], [], []]
    (warning,) = [text for text in validate(review(stored), view(), 0.0).warnings if "gpu.hami" in text]
    assert '"c0" and "c1" share the pod\'s GPUs' in warning
    assert not [text for text in validate(review(stored), view("{}"), 0.0).warnings if "gpu.hami" in text]


def test_a_variable_of_the_user_stays() -> None:
    own = [{"name": SM, "value": "10"}, {"name": "A", "value": "b"}]
    stored = create(gang({GPU: "50"}, env=own), view())
    assert stored["spec"]["template"]["spec"]["containers"][0]["env"] == [*own, ours(MEM)]


def test_a_second_pass_and_a_second_apply_change_nothing() -> None:
    """Of a held Job, and of a running one, whose template is immutable."""
    stored = create(gang({GPU: "50"}), view())
    assert mutate(review(stored), view(), 0.0).patch == ()
    for known in (live(stored), live(edited(stored, suspend=False), started=True)):
        again = copy.deepcopy(known)
        del again["spec"]["template"]["spec"]["containers"][0]["env"]
        assert apply(again, mutate(review(again, old=known), view(), 0.0)) == known


def test_limits_follow_a_changed_request() -> None:
    """Of a suspended Job only the resources of containers may change, so its pods lose the limits at their creation."""
    held = live(create(gang({GPU: "50"}, env=[{"name": "A", "value": "b"}]), view()))
    again = copy.deepcopy(held)
    whole = {CORE: "100", RATIO: "100"}
    again["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": whole, "requests": whole}
    again["spec"]["template"]["metadata"]["annotations"].pop(names.ORIGINAL_REQUESTS, None)
    stored = apply(again, mutate(review(again, old=held), view(), 0.0))
    assert envs(stored) == [["A", MEM, SM]]
    seen = gang_view(stored, policy=view().policy, reported=DIMENSIONS)
    pod = raw_pod(stored, index=1, containers=stored["spec"]["template"]["spec"]["containers"])
    pod = apply(pod, mutate(review(pod, name=""), seen, 0.0))
    assert [variable["name"] for variable in pod["spec"]["containers"][0]["env"]] == ["A"]


def test_a_change_of_the_policy_takes_them_from_new_objects() -> None:
    """A copy of a stored object would refer to annotations that nobody writes."""
    stored = create(gang({GPU: "50"}), view())
    assert envs(create(stored, view("{}"))) == [[]]


@pytest.mark.parametrize(
    ("hami", "field"),
    [("{limits: maybe}", "gpu.hami.limits"), ("{limit: true}", "gpu.hami.limit"), ("true", "gpu.hami")],
)
def test_other_values_are_refused_by_the_policy(hami: str, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        parse_policy(f"gpu: {{hami: {hami}}}")
