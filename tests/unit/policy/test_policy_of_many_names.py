"""A policy that names its namespaces one by one, as one that is generated from a list of teams does."""

from __future__ import annotations

import yaml

from engine.policy import patterns
from engine.policy.model import parse_policy
from engine.policy.namespaces import policy_warnings
from tests.support.admission import FakeView
from webhook.rules.defaults import policy_errors

NAMES = [f"team-{number:05}" for number in range(300)]
POLICY = {
    "namespaces": {
        "rules": [{"namespaces": NAMES[at : at + 10], "maxGangPods": 100} for at in range(0, len(NAMES), 10)],
        "defaults": [{"namespaces": NAMES[:250], "annotations": {"topogate.dev/unconstrained-topology": "true"}}],
    }
}


def test_names_are_never_compared_letter_by_letter() -> None:
    """Each is compared with each: with the rules for `*` a thousand names took the review longer than its time-out."""
    patterns._overlap.cache_clear()
    policy = parse_policy(yaml.safe_dump(POLICY))
    assert not policy_errors(policy, FakeView().topologies)
    list(policy_warnings(policy))
    assert patterns._overlap.cache_info().misses == 0
