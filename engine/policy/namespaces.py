"""The policy's mode and rule for a namespace, and entries that can never apply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.api.field import FieldError, path_of
from engine.api.schema import wrong
from engine.api.text import join_and, join_comma, quote
from engine.policy.making_room import PreemptionRules
from engine.policy.model import Mode, NamespaceRule, Policy
from engine.policy.patterns import covers, matches
from engine.topology.choice import level_names
from engine.topology.topology import Topology

_SHOWN: Final = 5  # entries of `namespaces.modes` in one line


@dataclass(frozen=True, slots=True)
class ModeInForce:
    """The mode that counts for a namespace, and its path in the policy."""

    mode: Mode
    path: str = "mode"

    @property
    def manages(self) -> bool:
        """True if the gangs of the namespace are held, and placed in their turn."""
        return self.mode in ("enforce", "hold")

    @property
    def holds(self) -> bool:
        """True if no gang of the namespace is placed now."""
        return self.mode == "hold"

    @property
    def is_off(self) -> bool:
        """True if nothing of the namespace is looked at."""
        return self.mode == "off"

    @property
    def text(self) -> str:
        """`the policy's mode is off`, with the entry if it is that of single namespaces."""
        here = "" if self.path == "mode" else f" in this namespace ({self.path})"
        return f"the policy's mode is {self.mode}{here}"

    @property
    def left_alone(self) -> str:
        """The message for a workload that is not managed because of the mode."""
        return f"{self.text}: nothing is changed or held"


def mode_of(namespace: str, policy: Policy) -> ModeInForce:
    """Return the mode of a namespace: that of the first matching entry of `namespaces.modes`, else the policy's."""
    for index, entry in enumerate(policy.namespaces.modes):
        if matches(namespace, entry.namespaces):
            return ModeInForce(entry.mode, f"namespaces.modes[{index}]")
    return ModeInForce(policy.mode)


def modes_of(policy: Policy) -> tuple[ModeInForce, ...]:
    """Return every mode that some namespace may have: the policy's, and those of `namespaces.modes`."""
    named = (ModeInForce(one.mode, f"namespaces.modes[{index}]") for index, one in enumerate(policy.namespaces.modes))
    return (ModeInForce(policy.mode), *named)


def modes_text(policy: Policy) -> str:
    """Return the modes in one line: `enforce (observe in research-*, ml; off in ci-*)`."""
    named = [f"{one.mode} in {join_comma(_first(one.namespaces))}" for one in policy.namespaces.modes]
    return f"{policy.mode} ({'; '.join(_first(named))})" if named else policy.mode


def _first(words: Sequence[str]) -> list[str]:
    more = len(words) - _SHOWN
    return [*words[:_SHOWN], *([f"{more} more"] if more > 0 else [])]


@dataclass(frozen=True, slots=True)
class RuleInForce:
    """The rule of `namespaces.rules` that counts for a namespace, and its path in the policy."""

    rule: NamespaceRule
    path: str

    def field(self, name: str) -> str:
        """Return the reference to a field of the rule in messages: `policy namespaces.rules[0].levels`."""
        return f"policy {self.path}.{name}"


def rule_of(namespace: str, policy: Policy) -> RuleInForce | None:
    """Return the first rule that matches a namespace; None: everything is allowed there."""
    for index, rule in enumerate(policy.namespaces.rules):
        if matches(namespace, rule.namespaces):
            return RuleInForce(rule, f"namespaces.rules[{index}]")
    return None


def limits_hosts(namespace: str, policy: Policy) -> bool:
    """Return whether the hosts of a namespace's gangs are limited (`maxReservedHosts`)."""
    rule = rule_of(namespace, policy)
    return rule is not None and rule.rule.max_reserved_hosts is not None


def weight_of(namespace: str, policy: Policy) -> int:
    """Return the weight of a namespace in the fair order of the queue."""
    weights = policy.queue.fairness.weights
    return next((one.weight for one in weights if matches(namespace, one.namespaces)), 1)


def level_errors(policy: Policy, topologies: Mapping[str, Topology]) -> Iterator[FieldError]:
    """Yield the errors of levels in `namespaces.rules` that no topology has, given the topologies of the policy."""
    levels = level_names(policy.topologies, topologies, None)
    for index, rule in enumerate(policy.namespaces.rules if topologies else ()):
        for number, word in enumerate(rule.levels or ()):
            if levels.resolve(word) is None:
                path = path_of(("namespaces", "rules", index, "levels", number))
                yield wrong(path, f"{quote(word)} is not a level; the levels are {join_comma(levels.aliases)}")


def policy_warnings(policy: Policy) -> Iterator[str]:
    """Yield warnings about entries of the policy without an effect, or a costly one; each begins with its path."""
    rules = [rule.namespaces for rule in policy.namespaces.rules]
    yield from _unreachable("namespaces.modes", [one.namespaces for one in policy.namespaces.modes])
    if not ModeInForce(policy.mode).manages and (still := [one.path for one in modes_of(policy) if one.manages]):
        yield f"mode: {policy.mode} does not apply to the namespaces of {join_comma(still)}, which stay managed"
    yield from _unreachable("namespaces.rules", rules)
    yield from _unreachable("namespaces.defaults", [one.namespaces for one in policy.namespaces.defaults])
    yield from _exempt(policy)
    yield from _unread(policy)
    fairness = policy.queue.fairness
    yield from _unreachable("queue.fairness.weights", [one.namespaces for one in fairness.weights])
    for index, built in policy.registry.replaced:
        yield f"kinds[{index}] replaces the built-in entry {built.name}; remove it to use that"
    yield from _preemption(policy)
    if policy.defragment.mode == "act" and policy.defragment.protect.running_for is None:
        yield "defragment.mode: act restarts gangs however long they have run; set defragment.protect.runningFor"
    if fairness.weights and fairness.mode == "none":
        yield "queue.fairness.weights has no effect with mode: none; set queue.fairness.mode: namespaces"


def _is_exempt(pattern: str, policy: Policy) -> bool:
    """Return True if all namespaces of a pattern are exempt."""
    return any(covers(one, pattern) for one in policy.namespaces.exempt)


def _exempt(policy: Policy) -> Iterator[str]:
    """Yield warnings about an exemption of all namespaces, and about entries for exempt ones alone."""
    if _is_exempt("*", policy):
        yield 'namespaces.exempt: "*" exempts all namespaces: nothing is managed'
        return
    of = policy.namespaces
    named = {
        "modes": [one.namespaces for one in of.modes],
        "rules": [one.namespaces for one in of.rules],
        "defaults": [one.namespaces for one in of.defaults],
    }
    for name, entries in named.items():
        for index, patterns in enumerate(entries):
            if patterns and all(_is_exempt(pattern, policy) for pattern in patterns):
                yield f"namespaces.{name}[{index}] has no effect: namespaces.exempt has these namespaces"


def _unread(policy: Policy) -> Iterator[str]:
    """Yield warnings about requests that become annotations of ours, where the policy does not read these."""
    dialects = policy.annotations.dialects
    if "topogate" in dialects:
        return
    instead = "without the dialect topogate; add it to annotations.dialects"
    if policy.namespaces.defaults:
        yield f"namespaces.defaults has no effect {instead}"
    if "pod-group" in dialects:
        yield f"annotations.dialects: pod-group has no effect {instead}"


def _preemption(policy: Policy) -> Iterator[str]:
    rules, default = policy.preemption, PreemptionRules()
    changed = [field for field in ("victims", "after", "protect") if getattr(rules, field) != getattr(default, field)]
    if rules.mode == "never" and changed:
        have = "has" if len(changed) == 1 else "have"
        paths = join_and([f"preemption.{field}" for field in changed])
        yield f"{paths} {have} no effect with mode: never, but for topogate simulate --preempt"
    for index, pattern in enumerate(rules.protect.namespaces):
        if _is_exempt(pattern, policy):
            where = f"preemption.protect.namespaces[{index}]"
            yield f"{where} has no effect: namespaces.exempt has these namespaces, where nothing is preempted"


def _unreachable(path: str, entries: Sequence[Sequence[str]]) -> Iterator[str]:
    for index, patterns in enumerate(entries):
        first = [
            next((earlier for earlier in range(index) if any(covers(one, pattern) for one in entries[earlier])), None)
            for pattern in patterns
        ]
        if None not in first:
            there = " and ".join(f"{path}[{number}]" for number in sorted({one for one in first if one is not None}))
            yield f"{path}[{index}] has no effect: its namespaces match {there} first"
