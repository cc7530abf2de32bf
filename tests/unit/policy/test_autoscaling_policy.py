"""The policy's section `autoscaling`: which topology has which classes of provisioning."""

from __future__ import annotations

from engine.policy.autoscaling import BEST_EFFORT_ATOMIC
from engine.policy.model import default_policy, parse_policy

TWO = """
topologies: [{name: gpu-a, preset: demo}, {name: gpu-b, preset: demo}, {name: gpu-c, preset: demo}]
autoscaling:
  provisioningRequest: {className: common, after: 5s}
  topologies:
  - {name: gpu-a, provisioningRequest: {className: own, parameters: {ValidUntilSeconds: "90"},
     fallbacks: [{className: common}]}}
  - {name: gpu-b, provisioningRequest: ~}
"""


def test_no_nodes_are_requested_by_default() -> None:
    """The feature is off until a class is named."""
    assert not default_policy().autoscaling.on
    assert default_policy().autoscaling.of("default") is None


def test_a_topology_has_its_own_request_instead_of_the_common_one() -> None:
    """A topology that names none gets none; one that is not listed gets the common one."""
    section = parse_policy(TWO).autoscaling
    own, common = section.of("gpu-a"), section.of("gpu-c")
    assert own is not None and [one.class_name for one in own.classes] == ["own", "common"]
    assert [one.gives_up_after for one in own.classes] == [90.0, None]
    assert section.of("gpu-b") is None
    assert common is not None and (common.class_name, common.after) == ("common", 5.0)


def test_one_topology_with_a_class_switches_the_feature_on() -> None:
    """Without a common request only the listed topologies have one."""
    section = parse_policy(
        "autoscaling: {topologies: [{name: default, provisioningRequest: {className: a}}]}"
    ).autoscaling
    assert section.on and section.of("default") is not None and section.of("other") is None


def test_a_single_class_needs_no_time_limit() -> None:
    """Only a class with others behind it has to fail in a useful time."""
    text = f"autoscaling: {{provisioningRequest: {{className: {BEST_EFFORT_ATOMIC}}}}}"
    assert parse_policy(text).autoscaling.on
