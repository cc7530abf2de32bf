"""The existing volumes of a StatefulSet's pods against an enumeration of the hosts that each pod reaches."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from engine.api.objects import PersistentVolume, PersistentVolumeClaim
from engine.api.pod import SelectorRequirement, SelectorTerm
from engine.cache.pod_shapes import PodShapes
from engine.cache.stores import Stores
from engine.resources.shape import exclusion
from tests.support.cluster_records import job, node

NAMES = ["a", "b", "c", "d"]
NODES = [node(name) for name in NAMES]
# Of one claim: the hosts that reach its volume; empty: it has no volume, or there is no claim.
PLACES = st.frozensets(st.sampled_from(NAMES), max_size=4)


@given(st.lists(st.lists(PLACES, min_size=2, max_size=2), min_size=1, max_size=4), st.booleans())
def test_no_host_is_left_that_some_pod_cannot_use(places: list[list[frozenset[str]]], placed: bool) -> None:
    """Where nothing is left out, the hosts are those that every volume is in reach of; else there are none or one."""
    stores = Stores()
    stores.nodes.replace(NODES)
    claims = {f"{name}-web-{rank}": of for rank, pod in enumerate(places) for name, of in zip("xy", pod, strict=True)}
    stores.volume_claims.replace(
        PersistentVolumeClaim("default", name, f"v-{name}" if of else "", None) for name, of in claims.items()
    )
    stores.volumes.replace(PersistentVolume(f"v-{name}", _within(of)) for name, of in claims.items() if of)
    asked = job(count=len(places))
    pod_set = replace(asked.pod_sets[0], claim_series=("x-web", "y-web"))
    workload = replace(asked, pod_sets=(pod_set,))
    shapes = PodShapes(stores)
    shape = shapes.gang_shapes_of(workload, placed=placed)[pod_set.name]
    found = {one.name for one in NODES if exclusion(shape, one) is None}
    bound = [of for of in claims.values() if of]
    common = set(NAMES).intersection(*bound)
    whole = all(any(pod) for pod in places)
    if shapes.volumes_left_out(workload, placed=placed):
        assert not common or (not whole and len(common) == 1)
        assert found == set(NAMES)
    elif placed and not whole:
        assert found == set(NAMES)
    else:
        assert found == common


def _within(hosts: frozenset[str]) -> tuple[SelectorTerm, ...]:
    wanted = SelectorRequirement("kubernetes.io/hostname", "In", tuple(sorted(hosts)))
    return (SelectorTerm((wanted,), ()),)
