"""The mode of a namespace under random entries: one resolution, and webhook conditions that agree with it."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from engine.policy.model import parse_policy
from engine.policy.namespaces import mode_of, modes_of
from engine.policy.patterns import matches
from webhook.configuration.match_conditions import in_modes

MODES = ("enforce", "hold", "observe", "off")
NAMES = ("a", "b", "ab", "ba", "a-b", "abab")
patterns = st.sampled_from(("a", "b", "ab", "a*", "*b", "a*b", "*", "*-*"))
entries = st.lists(
    st.tuples(st.lists(patterns, min_size=1, max_size=3, unique=True), st.sampled_from(MODES)), max_size=6
)
_CHOICE = re.compile(r"\(request\.namespace\.matches\('([^']*)'\) \? (true|false) :\s*(.*)\)", re.DOTALL)


def holds(expression: str, namespace: str) -> bool:
    """What the API server finds for a condition of this form."""
    while (found := _CHOICE.fullmatch(expression)) is not None:
        pattern, value, expression = found.groups()
        if re.search(pattern, namespace):
            return value == "true"
    assert expression in ("true", "false")
    return expression == "true"


@given(mode=st.sampled_from(MODES), listed=entries, namespace=st.sampled_from(NAMES))
def test_the_first_match_counts_in_the_service_and_in_the_webhook_conditions(
    mode: str, listed: list[tuple[list[str], str]], namespace: str
) -> None:
    """An entry may repeat, hide or contradict others."""
    modes = [{"namespaces": names, "mode": one} for names, one in listed]
    policy = parse_policy(json.dumps({"mode": mode, "namespaces": {"modes": modes}}))
    first = next((one for names, one in listed if matches(namespace, names)), mode)
    found = mode_of(namespace, policy)
    assert found.mode == first
    assert found in modes_of(policy)
    for asked in ("is_off", "manages", "holds"):
        others, *named = [getattr(one, asked) for one in modes_of(policy)]
        named_patterns = [names for names, _ in listed]
        expression = in_modes([*zip(named_patterns, named, strict=True)], others=others)
        assert holds(expression, namespace) == getattr(found, asked)
