"""Which policy is in force, given the ConfigMap of the policy and the text of the last valid one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from engine.api import names
from engine.api.field import FieldError
from engine.api.schema import wrong
from engine.policy.model import Policy, PolicyError, default_policy, parse_policy


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """A policy and where it is from; `refused`: the errors of the ConfigMap's policy.

    `text`: what it was read from, "" for the default. `last_good_errors`: why the last good policy cannot be read.
    """

    policy: Policy
    origin: Literal["config map", "last good", "default"]
    text: str = ""
    refused: tuple[FieldError, ...] = ()
    last_good_errors: tuple[FieldError, ...] = ()


def policy_of_data(data: Mapping[str, object]) -> tuple[Policy, str]:
    """Return the policy in the data of a ConfigMap, and its text. Raises PolicyError."""
    text = data.get(names.POLICY_KEY)
    if not isinstance(text, str):
        raise PolicyError((wrong(f"data[{names.POLICY_KEY}]", "is missing"),))
    return parse_policy(text), text


def policy_in_force(data: Mapping[str, object] | None, last_good: str) -> PolicyInForce:
    """Return the policy that a replica takes at its start.

    `data` is that of the ConfigMap, None if there is none; `last_good` the text of the last valid policy, "" for none.
    Without a ConfigMap the default is in force even if there is a last good one: deleting a policy is an explicit act.
    """
    if data is None:
        return PolicyInForce(default_policy(), "default")
    try:
        policy, text = policy_of_data(data)
    except PolicyError as error:
        refused = error.errors
    else:
        return PolicyInForce(policy, "config map", text)
    if not last_good:
        return PolicyInForce(default_policy(), "default", refused=refused)
    try:
        return PolicyInForce(parse_policy(last_good), "last good", last_good, refused)
    except PolicyError as error:
        return PolicyInForce(default_policy(), "default", refused=refused, last_good_errors=error.errors)
