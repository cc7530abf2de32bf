"""The objects of a request: what the autoscaler sees of the pods, and nothing else."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.api.objects import RuntimeClass
from engine.api.pod import Toleration
from engine.autoscaling.demand import NodeDemand, PodDemand
from engine.autoscaling.objects import pod_template, pod_template_object, request_object
from engine.decoding.provisioning import provisioning_request
from tests.support.cluster_records import job
from tests.support.provisioning import rules

TEMPLATE: dict[str, Any] = {
    "metadata": {
        "name": "train-0",
        "labels": {"app": "train", "topogate.dev/managed": "true", "topogate.dev/gang": "g"},
        "annotations": {"topogate.dev/require-topology": "rack", "example.com/secret": "s3cret"},
    },
    "spec": {
        "schedulingGates": [{"name": "topogate.dev/placement"}, {"name": "example.com/other"}],
        "nodeName": "",
        "restartPolicy": "Never",
        "serviceAccountName": "trainer",
        "priorityClassName": "high",
        "nodeSelector": {"pool": "own"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"podAffinity": {}},
        "topologySpreadConstraints": [{"maxSkew": 1}],
        "overhead": {"cpu": "1"},
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "keys", "secret": {"secretName": "s3cret"}},
        ],
        "initContainers": [{"name": "side", "image": "i", "restartPolicy": "Always", "env": [{"name": "s3cret"}]}],
        "containers": [
            {
                "name": "main",
                "image": "example.com/train:1",
                "command": ["s3cret"],
                "args": ["s3cret"],
                "env": [{"name": "TOKEN", "value": "s3cret"}],
                "volumeMounts": [{"name": "keys", "mountPath": "/s3cret"}],
                "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}],
                "resources": {"limits": {"nvidia.com/gpu": "8"}},
            }
        ],
    },
}


def test_a_template_has_what_decides_where_the_pod_may_run() -> None:
    """Without our gate and marks; the user's own nodeSelector counts before that of the topology."""
    found = pod_template(TEMPLATE, (("pool", "gpu"), ("zone", "a")))
    assert found["metadata"] == {"labels": {"app": "train"}}
    spec = found["spec"]
    assert spec["nodeSelector"] == {"pool": "own", "zone": "a"}
    assert {
        key: spec[key] for key in ("priorityClassName", "tolerations", "topologySpreadConstraints", "overhead")
    } == {
        key: TEMPLATE["spec"][key]
        for key in ("priorityClassName", "tolerations", "topologySpreadConstraints", "overhead")
    }
    assert spec["containers"] == [
        {
            "name": "main",
            "image": "example.com/train:1",
            "resources": {"limits": {"nvidia.com/gpu": "8"}},
            "ports": [{"containerPort": 81, "hostPort": 81}],
        }
    ]
    assert spec["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    assert "schedulingGates" not in spec and "nodeName" not in spec


def test_the_runtime_class_counts_as_in_a_pod() -> None:
    """Only admission applies it, to pods: without its toleration no pool of sandboxes would ever grow."""
    sandbox = RuntimeClass(
        "sandbox",
        overhead={"cpu": 250, "memory": 160, "example.com/slots": 1},
        node_selector={"sandbox": "yes", "pool": "sandboxes"},
        tolerations=(Toleration("sandbox", "Equal", "yes", "NoSchedule"), Toleration("any", "Exists", "", "")),
    )
    spec = {"runtimeClassName": "sandbox", "tolerations": [{"key": "gpu"}], "nodeSelector": {"sandbox": "yes"}}
    found = pod_template({"spec": spec}, (("pool", "gpu"), ("zone", "a")), runtime_class=sandbox)["spec"]
    assert found["overhead"] == {"cpu": "250m", "memory": "160Mi", "example.com/slots": "1"}
    assert found["nodeSelector"] == {"sandbox": "yes", "pool": "sandboxes", "zone": "a"}
    assert found["tolerations"] == [
        {"key": "gpu"},
        {"key": "sandbox", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "any", "operator": "Exists"},
    ]
    plain = RuntimeClass("plain", overhead={}, node_selector={}, tolerations=())
    assert pod_template({"spec": {"runtimeClassName": "plain"}}, (), runtime_class=plain)["spec"] == {
        "runtimeClassName": "plain",
        "containers": [],
    }


def test_nothing_secret_is_copied() -> None:
    """A PodTemplate may be read by people who may not read the workload."""
    assert "s3cret" not in json.dumps(pod_template(TEMPLATE, ()))


def test_hosts_with_room_that_is_of_no_use_are_excluded_in_every_term() -> None:
    """Beside what the pod itself requires of nodes; an empty term goes on allowing none."""
    other = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["h1", "h2"]}
    required = "requiredDuringSchedulingIgnoredDuringExecution"

    def terms(affinity: dict[str, Any]) -> Any:
        found = pod_template({"spec": {"affinity": affinity}}, (), ["h1", "h2"])["spec"]["affinity"]
        assert found.get("podAffinity") == affinity.get("podAffinity")
        return found["nodeAffinity"][required]["nodeSelectorTerms"]

    own = {"key": "zone", "operator": "In", "values": ["a"]}
    field = {"key": "metadata.name", "operator": "In", "values": ["n"]}
    assert terms({"podAffinity": {"x": 1}}) == [{"matchExpressions": [other]}]
    two = {
        "nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": [own]}, {"matchFields": [field]}, {}]}}
    }
    assert terms(two) == [
        {"matchExpressions": [own, other]},
        {"matchFields": [field], "matchExpressions": [other]},
    ]
    assert "affinity" not in pod_template({"spec": {}}, ())["spec"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["spec", "metadata", "x"]), JSON))
def test_no_template_is_too_odd(template: dict[str, Any]) -> None:
    """The API server refuses what is wrong; we do not fail before it."""
    assert isinstance(pod_template(template, (("pool", "gpu"),))["spec"]["containers"], list)


def test_a_request_reads_back_as_it_was_written() -> None:
    """Name, class, parameters and pods; and it names the template of each pod set."""
    of = rules('{className: some.class, parameters: {ValidUntilSeconds: "90"}}')
    workload = job("train", count=8)
    demand = NodeDemand((PodDemand(0, workload.pod_sets[0], 8),), (), "0a1b2c3d")
    name, owners = "job-train-1-0a1b2c3d-1", [{"kind": "Job", "name": "train", "uid": "u"}]
    where: dict[str, Any] = {"gang": "job-train-1", "namespace": "default", "owners": owners}
    body = request_object(name, demand, of.classes[0], version="v1beta1", **where)
    found = provisioning_request(json.dumps(body).encode())
    assert (found.name, found.gang, found.class_name, found.pods) == (name, "job-train-1", "some.class", 8)
    assert (found.api_version, dict(found.parameters)) == ("autoscaling.x-k8s.io/v1beta1", {"ValidUntilSeconds": "90"})
    template = pod_template_object(name, 0, pod_template(TEMPLATE, ()), **where)
    assert found.pod_sets == ((template["metadata"]["name"], 8),)
    assert body["metadata"]["ownerReferences"] == template["metadata"]["ownerReferences"] == owners
