"""The reasons of Events: the reason code or phase of a gang's status, and what else happens to gangs and pods.

A stable API; `docs/reference/messages.md` is generated from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from engine.api.reasons import Code, Phase

Happening = Literal[
    "Grown",
    "Repaired",
    "LevelRelaxed",
    "ResumeRefused",
    "SuspendRefused",
    "HeldWithoutSlot",
    "HeldWithoutGang",
    "GateRemoved",
    "EvictionRefused",
    "PolicyTaken",
]
# The type of every Event's reason: mypy refuses any other text.
EventReason = Code | Phase | Happening


@dataclass(frozen=True, slots=True)
class Told:
    """What an Event's reason means, whether its type is Warning, and seconds that it must last until it is told."""

    description: str
    warning: bool = False
    settles: float = 0.0


PHASES_TOLD: Final[Mapping[Phase, Told]] = {
    "Waiting": Told("The gang waits, and nothing is wrong with it."),
    # mostly it runs a moment later
    "Placed": Told("The gang has its slots; its pods are not bound yet. The message says where they go.", settles=2.0),
    "Running": Told("The pods of the gang are bound."),
    # a pod that has ended well leaves the cache before its Job counts its index as done
    "Incomplete": Told("Pods of a gang that has started are missing.", settles=5.0),
    "Finished": Told("The workload has ended; its slots are free."),
}
ON_WORKLOADS: Final[Mapping[Happening, Told]] = {
    "Grown": Told("Pods that joined the gang, or more pods that it asks for, have got slots."),
    "Repaired": Told("Pods of the gang that were lost have got new slots."),
    "LevelRelaxed": Told(
        "The gang has waited for `relax-after`: the level that it required is preferred from now on.", warning=True
    ),
    "ResumeRefused": Told(
        "The gang has slots, and the API server or another webhook refuses to resume its workload.", warning=True
    ),
    "SuspendRefused": Told(
        "The workload was to be suspended and planned again, and the API server or another webhook refuses that.",
        warning=True,
    ),
}
ON_PODS: Final[Mapping[Happening, Told]] = {
    "HeldWithoutSlot": Told("The pod is held: its gang has no slot for it. The message says why.", warning=True),
    "HeldWithoutGang": Told("The pod is held: it belongs to no gang. The message says why.", warning=True),
    "GateRemoved": Told("Somebody else took the gate off; the pod counts where it lands.", warning=True),
    "EvictionRefused": Told(
        "The pod was to be evicted from a lost host, and a disruption budget does not allow it.", warning=True
    ),
}
ON_POLICY: Final[Mapping[Happening, Told]] = {
    "PolicyTaken": Told(
        "The policy is in force. One that is refused says `PolicyInvalid`, and which one stays in force."
    ),
}
_TOLD: Final[Mapping[str, Told]] = dict[str, Told](
    [*PHASES_TOLD.items(), *ON_WORKLOADS.items(), *ON_PODS.items(), *ON_POLICY.items()]
)


def is_warning(reason: EventReason) -> bool:
    """True when an Event with this reason is of type Warning; every reason code is a warning."""
    told = _TOLD.get(reason)
    return told is None or told.warning
