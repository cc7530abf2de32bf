"""Whatever stands in annotations and labels: the request is understood, refused or ignored, and nothing is raised."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import names
from engine.gang.request import parse_request
from engine.policy.model import default_policy
from engine.topology.topology import topologies_of
from tests.support.admission import NODES, raw_job, workload

ALIAS_KEYS = [key for aliases in names.ALIASES.values() for key in aliases]
KEYS = sorted({*names.REQUEST_KEYS, *names.OWNED_ANNOTATIONS, *ALIAS_KEYS, "topogate.dev/", "topogate.dev/x", "app"})
TOPOLOGIES = topologies_of(default_policy().topologies, NODES)

values = st.sampled_from(
    [
        "rack",
        "block",
        "host",
        "auto",
        "true",
        "false",
        "4",
        "2",
        "0",
        "10m",
        "balanced",
        "rack=4,host=2",
        "pcie",
        "spread",
        "default",
        "cloud.provider.com/topology-rack",
    ]
) | st.text(max_size=80)
annotations = st.dictionaries(st.sampled_from(KEYS), values, max_size=5)


@settings(max_examples=400, deadline=None)
@given(annotations, annotations, annotations, st.integers(0, 2**31 - 1))
def test_a_request_is_understood_refused_or_ignored(
    own: dict[str, str], template: dict[str, str], labels: dict[str, str], parallelism: int
) -> None:
    job = workload(raw_job(own, template=template, labels=labels, parallelism=parallelism, completions=None))
    found = parse_request(job, policy=default_policy(), topologies=TOPOLOGIES)
    assert sum((found.asked is not None, bool(found.errors), found.ignored is not None)) == 1
    fields = [error.field for error in found.errors]
    assert fields == sorted(fields)
    assert all(text.isprintable() for error in found.errors for text in (error.field, error.message))
