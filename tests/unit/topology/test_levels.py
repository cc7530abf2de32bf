from __future__ import annotations

import pytest

from engine.api.field import is_label_key
from engine.topology.levels import HOST, choose_default, default_preset, known_levels, parse_presets, presets


def test_presets_stand_in_the_order_of_precedence() -> None:
    """The order of the file is the order in which a cluster's nodes are tried."""
    assert list(presets()) == [
        *("gke", "eks", "eks-p6", "oke", "coreweave", "coreweave-nvl72", "nebius"),
        *("topograph", "aks-mnnvl", "acs", "generic", "demo"),
    ]


@pytest.mark.parametrize("name", list(presets()))
def test_every_preset_ends_with_the_host(name: str) -> None:
    """Levels are coarse to fine, the host last."""
    *above, last = presets()[name]
    assert last == HOST
    assert above


def test_candidate_keys_are_any_of() -> None:
    """Older label names of the same level stand behind the newer ones."""
    assert presets()["coreweave"][0].keys == ("backend.coreweave.cloud/fabric", "ib.coreweave.cloud/fabric")


BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"


def test_the_default_covers_the_nodes() -> None:
    """A preset covers when each of its levels is on at least one node, not necessarily the same one."""
    assert default_preset([{BLOCK: "b0"}, {RACK: "r0"}, {}]) == "demo"
    assert choose_default([{BLOCK: "b0", RACK: "r0"}]) == presets()["demo"]


def test_a_level_without_any_node_does_not_cover() -> None:
    """Half of a preset is none."""
    assert default_preset([{BLOCK: "b0"}]) is None


def test_a_level_with_empty_labels_alone_does_not_cover() -> None:
    """Its topology would have no node at all."""
    assert default_preset([{BLOCK: "b0", RACK: ""}]) is None
    assert default_preset([{BLOCK: "b0", RACK: ""}, {RACK: "r0"}]) == "demo"


def test_the_first_covering_preset_wins() -> None:
    """Of several that cover, the order of the file decides."""
    layers = {f"topology.k8s.aws/network-node-layer-{n}": "x" for n in (1, 2, 3)}
    assert default_preset([{BLOCK: "b", RACK: "r", "topology.kubernetes.io/zone": "z", **layers}]) == "eks"


@pytest.mark.parametrize("labels", [[], [{}], [{"kubernetes.io/hostname": "a"}]])
def test_without_labels_the_host_level_alone(labels: list[dict[str, str]]) -> None:
    """A cluster that no preset covers has the single level host."""
    assert choose_default(labels) == (HOST,)


def test_any_presets_alias_is_known() -> None:
    """What a request may name before any node is there: aliases and keys of every preset."""
    assert {"rack", "nvlink", "host", RACK, "kubernetes.io/hostname"} <= known_levels()
    assert "rak" not in known_levels()


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        "a: []",
        "a: [{name: rack}]",
        "a: [{name: rack, keys: []}]",
        "a: [{name: rack, keys: [x/y], extra: 1}]",
        "a: [{name: host, keys: [x/y]}]",
        "a: [{name: Rack, keys: [x/y]}]",
        "a: [{name: rack, keys: [kubernetes.io/hostname]}]",
        "a: [{name: rack, keys: ['not a key']}]",
        "a: [{name: rack, keys: [x/y]}, {name: row, keys: [x/y]}]",
        "a: [{name: rack, keys: [x/y]}, {name: rack, keys: [x/z]}]",
        "a: [" + ",".join(f"{{name: l{n}, keys: [x/l{n}]}}" for n in range(7)) + "]",
    ],
)
def test_a_bad_preset_file_is_refused(text: str) -> None:
    """The file is checked when it is read."""
    with pytest.raises(ValueError, match="preset"):
        parse_presets(text)


@pytest.mark.parametrize(
    ("key", "valid"),
    [
        ("example.com/rack", True),
        ("rack", True),
        ("Rack_1.x", True),
        ("", False),
        ("/rack", False),
        ("example.com/", False),
        ("a/b/c", False),
        ("EXAMPLE.com/rack", False),
        ("x" * 64, False),
        ("rack-", False),
        ("räck", False),
        ("rack\n", False),
        ("a" * 254 + "/x", False),
    ],
)
def test_label_keys(key: str, valid: bool) -> None:
    """A label key is an optional DNS prefix and a name of at most 63 characters."""
    assert is_label_key(key) is valid


@pytest.mark.parametrize(
    ("preset", "prefix", "keys"),
    [
        ("gke", "cloud.google.com/gce-topology-", ["block", "subblock", "host"]),
        ("eks", "topology.k8s.aws/network-node-layer-", ["1", "2", "3"]),
        ("eks-p6", "topology.k8s.aws/network-node-layer-", ["1", "2", "3", "4"]),
        ("oke", "oci.oraclecloud.com/rdma.", ["hpc_island_id", "network_block_id", "local_block_id"]),
        ("coreweave", "backend.coreweave.cloud/", ["fabric", "superpod", "leafgroup"]),
        ("coreweave", "ib.coreweave.cloud/", ["fabric", "superpod", "leafgroup"]),
        ("coreweave-nvl72", "backend.coreweave.cloud/", ["fabric", "superpod"]),
        ("coreweave-nvl72", "ds.coreweave.com/", ["nvlink.domain"]),
        ("nebius", "topology.nebius.com/", ["gpu-cluster-id", "tier-2", "tier-1", "nvl-instance-group-id", "tier-0"]),
        ("topograph", "fabric.topograph.run/", ["tier-2", "tier-1", "tier-0"]),
        ("topograph", "accelerator.topograph.run/", ["domain"]),
        (
            "topograph",
            "network.topology.nvidia.com/",
            ["core", "datacenter", "spine", "leaf", "block", "accelerator"],
        ),
        ("aks-mnnvl", "nvidia.com/", ["gpu.clique"]),
        ("acs", "alibabacloud.com/", ["hpn-zone"]),
        ("generic", "topology.kubernetes.io/", ["zone", "block", "rack"]),
        ("demo", "cloud.provider.com/topology-", ["block", "rack"]),
    ],
)
def test_levels_have_the_labels_that_the_platform_sets(preset: str, prefix: str, keys: list[str]) -> None:
    """Coarse to fine: EKS counts its layers from the top, Nebius and Topograph their tiers from the host."""
    found = [key for level in presets()[preset] for key in level.keys]
    assert [key.removeprefix(prefix) for key in found if key.startswith(prefix)] == keys
