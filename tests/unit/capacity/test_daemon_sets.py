"""Pods of DaemonSets count on their hosts before they exist."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.objects import DaemonSet, Node, Quota, Taint
from engine.api.pod import OwnerRef, Pod, Toleration
from engine.api.resources import host_port
from engine.capacity.capacity import Capacity
from engine.capacity.daemon_sets import FEW, ExpectedDaemonPods
from tests.support.cluster_records import node, shape, spec

GPU = "nvidia.com/gpu"
FENCED = Taint("fenced", "", "NoSchedule")


def daemon_set(name: str, gpus: int = 1, *, deleting: bool = False, **of_shape: Any) -> DaemonSet:
    return DaemonSet("kube-system", name, spec(shape=replace(shape(gpu=gpus), **of_shape)), deleting, uid=f"uid-{name}")


def agent(of: DaemonSet, host: str, *, phase: str = "Running", serial: int = 0) -> Pod:
    """A pod of a DaemonSet on a host."""
    return Pod(
        namespace=of.namespace,
        name=f"{of.name}-{host}-{serial}",
        uid=f"uid-{of.name}-{host}-{serial}",
        resource_version="1",
        spec=replace(of.template, node_name=host),
        owner=OwnerRef("apps/v1", "DaemonSet", of.name, of.uid, True),
        phase=phase,
        nominated_node="",
        created=0.0,
        deleting=False,
        unschedulable="",
        mirror=False,
    )


class Site:
    """What is watched, applied to the capacity as the cluster state does it."""

    def __init__(self, *, without_pods: bool = True) -> None:
        self.without_pods = without_pods
        self.capacity = Capacity()
        self.quotas: list[Quota] = []
        self.expected = ExpectedDaemonPods(self.capacity, quotas=lambda _: self.quotas, without_pods=without_pods)
        self.nodes: dict[str, Node] = {}
        self.sets: dict[str, DaemonSet] = {}
        self.pods: dict[tuple[str, str], Pod] = {}

    def set_node(self, one: Node | None, name: str) -> None:
        self.capacity.set_node(name, one)
        self.expected.set_node(name)
        self._keep(self.nodes, name, one)

    def set_daemon_set(self, one: DaemonSet | None, name: str) -> None:
        self.expected.set_daemon_set(self.sets.get(name), one)
        self._keep(self.sets, name, one)

    def set_quota(self, gpus: int | None) -> None:
        """One quota for requests of GPUs, of which nothing is used; None: there is none."""
        hard = {} if gpus is None else {f"requests.{GPU}": gpus}
        self.quotas = [] if gpus is None else [Quota("kube-system", "gpus", hard, {}, ())]
        self.expected.set_quota("kube-system")

    def set_pod(self, one: Pod | None, key: tuple[str, str]) -> None:
        self.capacity.set_pod(key, one)
        self.expected.set_pod(self.pods.get(key), one)
        self._keep(self.pods, key, one)

    @staticmethod
    def _keep(store: dict[Any, Any], key: Any, one: Any) -> None:
        store.pop(key, None)
        if one is not None:
            store[key] = one

    def free(self) -> dict[str, int]:
        """GPUs that are free, by host."""
        self.expected.settle()
        return {name: self.capacity.free(name)[GPU] for name in self.nodes}

    def afresh(self) -> dict[str, int]:
        """The same, counted by a site that sees only what there is now."""
        site = Site(without_pods=self.without_pods)
        site.quotas = self.quotas
        for name, one in self.nodes.items():
            site.set_node(one, name)
        for key, pod in self.pods.items():
            site.set_pod(pod, key)
        for name, one_set in self.sets.items():
            site.set_daemon_set(one_set, name)
        return site.free()


def site(*sets: DaemonSet, hosts: int = 2, **of_node: Any) -> Site:
    """Hosts of 8 GPUs, and DaemonSets without a pod yet."""
    found = Site()
    for number in range(hosts):
        found.set_node(node(f"h{number}", **of_node), f"h{number}")
    for one in sets:
        found.set_daemon_set(one, one.name)
    return found


def test_a_pod_counts_before_it_exists() -> None:
    assert site(daemon_set("a"), daemon_set("b", 2)).free() == {"h0": 5, "h1": 5}


def test_who_keeps_a_host_from_a_pod_is_told_apart() -> None:
    """A pod that would fit but for the expected ones; not one that finds too little without them, or fits anyway."""
    found = site(daemon_set("a"), daemon_set("b", 2))
    assert found.free() == {"h0": 5, "h1": 5}
    told = {gpus: found.capacity.fits_but_for_expected(shape(gpu=gpus), "h0") for gpus in (6, 8, 9)}
    assert told == {6: True, 8: True, 9: False}
    other = replace(agent(daemon_set("other"), "h0"), owner=None)
    found.set_pod(other, other.key)
    assert not found.capacity.fits_but_for_expected(shape(gpu=8), "h0")
    assert found.capacity.fits_but_for_expected(shape(gpu=8), "h1")
    for name in ("a", "b"):
        found.set_daemon_set(None, name)
    assert found.free() == {"h0": 7, "h1": 8}
    assert not any(found.capacity.fits_but_for_expected(shape(gpu=8), host) for host in ("h0", "h1", "gone"))


def test_a_port_that_an_expected_pod_takes_is_kept_for_it() -> None:
    """Claims count as amounts do."""
    port = host_port(9100, "TCP")
    found = site(daemon_set("a", requests=((GPU, 1), (port, 1))))
    assert found.free()["h0"] == 7
    assert found.capacity.fits_but_for_expected(replace(shape(gpu=1), requests=((GPU, 1), (port, 1))), "h0")


def test_a_pod_that_exists_counts_once() -> None:
    one = daemon_set("a")
    found = site(one)
    pod = agent(one, "h0")
    found.set_pod(pod, pod.key)
    assert found.free() == {"h0": 7, "h1": 7}


def test_a_pod_that_is_gone_is_expected_again() -> None:
    """Also one that failed: the DaemonSet's controller replaces it."""
    one = daemon_set("a")
    found = site(one)
    pod = agent(one, "h0")
    found.set_pod(pod, pod.key)
    found.set_pod(replace(pod, phase="Failed"), pod.key)
    assert found.free() == {"h0": 7, "h1": 7}
    found.set_pod(None, pod.key)
    assert found.free() == {"h0": 7, "h1": 7}


def test_two_pods_on_one_host_during_an_update_both_count() -> None:
    """None is expected beside them."""
    one = daemon_set("a")
    found = site(one, hosts=1)
    for serial in range(2):
        pod = agent(one, "h0", serial=serial)
        found.set_pod(pod, pod.key)
    assert found.free() == {"h0": 6}


def test_a_host_that_the_template_excludes_gets_none() -> None:
    assert site(daemon_set("a", node_selector=(("pool", "cpu"),))).free() == {"h0": 8, "h1": 8}
    assert site(daemon_set("a"), taints=(FENCED,)).free() == {"h0": 8, "h1": 8}
    tolerant = (Toleration("fenced", "Exists", "", ""),)
    assert site(daemon_set("a", tolerations=tolerant), taints=(FENCED,)).free() == {"h0": 7, "h1": 7}


def test_a_cordoned_host_gets_its_pods_all_the_same() -> None:
    assert site(daemon_set("a"), unschedulable=True).free() == {"h0": 7, "h1": 7}


def test_a_pod_that_no_empty_host_could_take_is_not_expected() -> None:
    """It will wait for ever; what is there stays usable."""
    assert site(daemon_set("a", 9)).free() == {"h0": 8, "h1": 8}


def test_no_more_pods_are_expected_than_a_daemon_set_has() -> None:
    """Its other pods may never come: whoever created it may have meant just that."""
    one = daemon_set("a")
    found = Site(without_pods=False)
    for number in range(3):
        found.set_node(node(f"h{number}"), f"h{number}")
    found.set_daemon_set(one, "a")
    assert set(found.free().values()) == {8}
    pods = [agent(one, f"h{number}") for number in range(2)]
    found.set_pod(pods[0], pods[0].key)
    assert found.free() == {"h0": 7, "h1": 8, "h2": 8}
    found.set_pod(pods[1], pods[1].key)
    assert set(found.free().values()) == {7}
    found.set_pod(None, pods[1].key)
    assert found.free() == {"h0": 7, "h1": 8, "h2": 8}


def test_no_more_is_expected_of_a_daemon_set_than_its_pods_request() -> None:
    """Anybody may create a tiny pod on a host that names it as its owner, and a template that asks for all GPUs."""
    one, tiny = daemon_set("a", 4), daemon_set("a", 1).template
    found = Site(without_pods=False)
    for number in range(3):
        found.set_node(node(f"h{number}"), f"h{number}")
    found.set_daemon_set(one, "a")
    pods = [agent(one, f"h{number}") for number in range(2)]
    forged = [replace(pod, spec=replace(tiny, node_name=pod.spec.node_name)) for pod in pods]
    for pod in forged:
        found.set_pod(pod, pod.key)
    assert found.free() == {"h0": 7, "h1": 7, "h2": 8}
    found.set_pod(pods[0], pods[0].key)
    assert found.free() == {"h0": 4, "h1": 7, "h2": 4}
    found.set_pod(forged[0], pods[0].key)
    assert found.free() == {"h0": 7, "h1": 7, "h2": 8}


def test_a_template_that_names_a_node_gets_its_pod_there_alone() -> None:
    one = daemon_set("a")
    assert site(replace(one, template=replace(one.template, node_name="h1"))).free() == {"h0": 8, "h1": 7}
    assert site(replace(one, template=replace(one.template, node_name="gone"))).free() == {"h0": 8, "h1": 8}


def test_only_what_frees_a_host_is_reported() -> None:
    """A DaemonSet that changes without an effect makes nobody plan again."""
    found = site(daemon_set("a"))
    assert not found.expected.settle()
    found.set_daemon_set(None, "a")
    assert found.expected.settle()
    assert not found.expected.settle()


def test_pods_that_a_quota_does_not_admit_are_not_expected() -> None:
    """They will not be created, so nobody makes a cluster look full beyond what he may use."""
    found = site(daemon_set("a"), hosts=3)
    found.set_quota(2)
    assert set(found.free().values()) == {8}
    found.set_quota(3)
    assert set(found.free().values()) == {7}
    found.set_quota(0)
    assert set(found.free().values()) == {8}
    found.set_quota(None)
    assert set(found.free().values()) == {7}


def test_a_daemon_set_that_goes_leaves_nothing() -> None:
    found = site(daemon_set("a"))
    found.set_daemon_set(daemon_set("a", deleting=True), "a")
    assert found.free() == {"h0": 8, "h1": 8}
    found.set_daemon_set(None, "a")
    assert found.free() == {"h0": 8, "h1": 8}


def test_a_changed_template_counts_as_it_is_now() -> None:
    found = site(daemon_set("a", 1))
    assert found.free() == {"h0": 7, "h1": 7}
    found.set_daemon_set(daemon_set("a", 3), "a")
    assert found.free() == {"h0": 5, "h1": 5}


@pytest.mark.parametrize("hosts", [1, FEW + 1])
def test_hosts_that_join_get_theirs(hosts: int) -> None:
    """Few are looked at one by one, many all at once."""
    found = site(daemon_set("a"), hosts=0)
    assert found.free() == {}
    for number in range(hosts):
        found.set_node(node(f"n{number}"), f"n{number}")
    assert set(found.free().values()) == {7}


SETS = [
    daemon_set("a"),
    daemon_set("b", 2, node_selector=(("pool", "gpu"),)),
    daemon_set("c", 9),
    daemon_set("a", 3),
    replace(daemon_set("a"), template=replace(daemon_set("a").template, node_name="h1")),
    daemon_set("b", 2, deleting=True),
]
NODES = [node(f"h{number}", labels={"pool": pool}) for number in range(3) for pool in ("gpu", "cpu")]
PODS = [
    agent(one, f"h{number}", phase=phase)
    for one in (*SETS[:2], SETS[3])
    for number in range(3)
    for phase in ("Running", "Failed")
]
STEP = st.one_of(
    st.tuples(st.sampled_from(NODES), st.booleans()),
    st.tuples(st.sampled_from(SETS), st.booleans()),
    st.tuples(st.sampled_from(PODS), st.booleans()),
    st.sampled_from([0, 2, 5]),
    st.none(),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=25), st.booleans())
def test_any_history_counts_like_counting_afresh(
    history: list[tuple[Node | DaemonSet | Pod, bool] | int | None], without_pods: bool
) -> None:
    """Hosts, DaemonSets and pods come, change and go, in any order; in between what was set is applied, or not."""
    found = Site(without_pods=without_pods)
    for step in history:
        match step:
            case None:
                found.free()
            case int():
                found.set_quota(step)
            case (Node() as one, there):
                found.set_node(one if there else None, one.name)
            case (DaemonSet() as one, there):
                found.set_daemon_set(one if there else None, one.name)
            case (Pod() as one, there):
                found.set_pod(one if there else None, one.key)
    assert found.free() == found.afresh()
