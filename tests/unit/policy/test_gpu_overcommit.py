"""`gpu.overcommit` of the policy: what it means, and every way to get it wrong."""

from __future__ import annotations

import pytest

from engine.policy.model import PolicyError, parse_policy
from engine.resources.overcommit import NO_OVERCOMMIT, Overcommit


@pytest.mark.parametrize(
    ("text", "ratios"),
    [
        ("{}", NO_OVERCOMMIT),
        ("gpu: {overcommit: {}}", NO_OVERCOMMIT),
        ("gpu: {overcommit: null}", NO_OVERCOMMIT),
        ("gpu: {overcommit: {core: 2}}", Overcommit(core=200)),
        ("gpu: {overcommit: {core: 1.25, memory: 1.1}}", Overcommit(125, 110)),
        (
            "gpu: {overcommit: {memory: 10, nodeSelector: {b: c, a: ''}}}",
            Overcommit(100, 1000, (("a", ""), ("b", "c"))),
        ),
    ],
)
def test_multiples_are_percents_of_a_gpu(text: str, ratios: Overcommit) -> None:
    assert parse_policy(text).gpu.overcommit.ratios == ratios


@pytest.mark.parametrize(
    ("value", "field", "told"),
    [
        ("{core: 0.5}", ".core", "1"),
        ("{core: 10.5}", ".core", "10"),
        ("{memory: -1}", ".memory", "1"),
        ("{memory: .nan}", ".memory", ""),
        ("{core: '2'}", ".core", "number"),
        ("{core: true}", ".core", "number"),
        ("{cores: 2}", ".cores", ""),
        ("{nodeSelector: [a]}", ".nodeSelector", ""),
        ("{nodeSelector: {'a b': c}}", ".nodeSelector", ""),
        ("2", "", ""),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(value: str, field: str, told: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(f"gpu: {{overcommit: {value}}}")
    (error,) = caught.value.errors
    assert error.field.startswith(f"gpu.overcommit{field}")
    assert told in error.message
