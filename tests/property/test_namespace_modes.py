"""The mode of a namespace under random entries: one resolution, and webhook conditions that agree with it."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given, reject
from hypothesis import strategies as st

from engine.api.names import PREFER
from engine.gang.exemption import manages
from engine.policy.model import PolicyError, parse_policy
from engine.policy.namespaces import mode_of, modes_of
from engine.policy.patterns import matches
from webhook.configuration.match_conditions import first_match
from webhook.configuration.policy_webhooks import entries as policy_entries
from webhook.configuration.webhooks import MUTATING
from webhook.rules.defaults import requests_of

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
        expression = first_match([*zip(named_patterns, named, strict=True)], others=others)
        assert holds(expression, namespace) == getattr(found, asked)


lists = st.lists(patterns, min_size=1, max_size=3, unique=True)
policies = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(MODES),
        "annotations": st.sampled_from(({"dialects": ["topogate"]}, {"dialects": ["kueue"]})),
        "namespaces": st.fixed_dictionaries(
            {
                "modes": st.lists(
                    st.fixed_dictionaries({"namespaces": lists, "mode": st.sampled_from(MODES)}), max_size=3
                ),
                "rules": st.lists(st.fixed_dictionaries({"namespaces": lists, "allow": st.booleans()}), max_size=3),
                "exempt": st.lists(patterns, max_size=2, unique=True),
                "defaults": st.lists(
                    st.fixed_dictionaries({"namespaces": lists, "annotations": st.just({PREFER: "host"})}),
                    min_size=1,
                    max_size=2,
                ),
            }
        ),
    }
)


@given(body=policies, namespace=st.sampled_from(NAMES))
def test_a_new_workload_is_sent_for_its_default_exactly_where_it_gets_one(body: dict[str, Any], namespace: str) -> None:
    """While no replica answers it is refused: nothing else may be sent."""
    try:
        policy = parse_policy(json.dumps(body))
    except PolicyError:
        reject()  # a default that a rule forbids everywhere
    sent = False
    for entry in policy_entries(MUTATING, policy, whole=(), own_username="us", own_namespace="us"):
        conditions = {one["name"]: one["expression"] for one in entry["matchConditions"]}
        where = [conditions.get(name, "true") for name in ("allowed-namespace", "managed-namespace", "not-exempt")]
        named = f"({conditions['in-these-namespaces']} ? true :\n false)"
        [selector] = entry["namespaceSelector"]["matchExpressions"]
        sent = namespace not in selector["values"] and all(holds(one, namespace) for one in (named, *where))
    managed = manages(namespace, policy=policy, own_namespace="us")
    assert sent == (managed and bool(requests_of(namespace, policy)))
