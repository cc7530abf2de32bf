"""Preemption rules: which pods end so that a job of the highest class starts. One scheduler a module, in own words.

A rule is paired with its scheduler's placement rule. It sees the cluster, a job that fits nowhere, and the gangs that
run; it keeps no state.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from bench.placement.preemption.classes import HIGH, LOW
from bench.placement.preemption.rules import kai, kueue, moves, native, ours, volcano
from bench.placement.preemption.rules.running import PreemptionRule
from bench.placement.rules import OURS, RULES, Rule

AFTER = 30.0  # seconds that the policy's default lets a gang wait before it preempts (`preemption.after`)
YOUNG_FOR = 1_800.0  # seconds; `protect.runningFor` of the variant that preempts only young gangs
AT_ONCE, YOUNG, NEVER = f"{OURS}, at once", f"{OURS}, young only", f"{OURS}, never"
PEERS = ("kueue", "kai", "volcano", "native")


@dataclass(frozen=True, slots=True)
class Scheduler:
    """How one scheduler places, and makes room for a job that has waited `after` seconds; None: it never does.

    `least`: the lowest priority for which it does. `again`: seconds from a search without result to the next one for
    the same job, twice as long each time, at most 16 times; 0: it searches whenever something has ended.
    """

    place: Rule
    preempt: PreemptionRule | None
    after: float = 0.0
    least: int = HIGH
    again: float = 0.0


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

MOVES_AFTER = 60.0  # seconds that the policy's default lets a gang wait before others move for it (`defragment.after`)
STAY, MOVES, MOVES_YOUNG = f"{OURS}, no moves", f"{OURS}, moves", f"{OURS}, moves of young"
KAI_STAYS, CONSOLIDATES = "kai, no consolidation", "kai, consolidation"

MOVERS: Mapping[str, Scheduler] = MappingProxyType(
    {
        STAY: Scheduler(RULES[OURS], None),
        MOVES: Scheduler(RULES[OURS], moves.move, MOVES_AFTER, LOW, MOVES_AFTER),
        MOVES_YOUNG: Scheduler(RULES[OURS], partial(moves.move, young_for=YOUNG_FOR), MOVES_AFTER, LOW, MOVES_AFTER),
        KAI_STAYS: Scheduler(RULES["kai"], None),
        CONSOLIDATES: Scheduler(RULES["kai"], kai.consolidate, 0.0, LOW),
    }
)
"""Those that move running gangs for waiting ones, each with the same without; all jobs have one priority."""
