"""Preemption rules: which pods end so that a job of the highest class starts. One scheduler a module, in own words.

A rule is paired with its scheduler's placement rule. It sees the cluster, a job that fits nowhere, and the gangs that
run; it keeps no state.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from bench.placement.preemption.rules import kai, kueue, native, ours, volcano
from bench.placement.preemption.rules.running import PreemptionRule
from bench.placement.rules import OURS, RULES, Rule

AFTER = 30.0  # seconds that the policy's default lets a gang wait before it preempts (`preemption.after`)
YOUNG_FOR = 1_800.0  # seconds; `protect.runningFor` of the variant that preempts only young gangs
AT_ONCE, YOUNG, NEVER = f"{OURS}, at once", f"{OURS}, young only", f"{OURS}, never"
PEERS = ("kueue", "kai", "volcano", "native")


@dataclass(frozen=True, slots=True)
class Scheduler:
    """How one scheduler places, and preempts for a job that has waited `after` seconds; None: it never does."""

    place: Rule
    preempt: PreemptionRule | None
    after: float = 0.0


SCHEDULERS: Mapping[str, Scheduler] = MappingProxyType(
    {
        OURS: Scheduler(RULES[OURS], ours.preempt, AFTER),
        AT_ONCE: Scheduler(RULES[OURS], ours.preempt),
        YOUNG: Scheduler(RULES[OURS], partial(ours.preempt, young_for=YOUNG_FOR)),
        "kueue": Scheduler(RULES["kueue"], kueue.preempt),
        "kai": Scheduler(RULES["kai"], kai.preempt),
        "volcano": Scheduler(RULES["volcano"], volcano.preempt),
        "native": Scheduler(RULES["native"], native.preempt),
        NEVER: Scheduler(RULES[OURS], None),
    }
)
"""By name: ours as the policy's default is, without a delay as the peers are, and with young victims only; the peers;
and ours without preemption, as the base."""
