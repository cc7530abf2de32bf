"""The reasons of Events: the reason code or phase of a gang's status, and what else happens to gangs and pods.

A stable API; `docs/reference/messages.md` is generated from here.
"""

from __future__ import annotations

from collections.abc import Mapping
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

PHASES_TOLD: Final[Mapping[Phase, str]] = {
    "Waiting": "The gang waits, and nothing is wrong with it.",
    "Placed": "The gang has its slots; its pods are not bound yet. The message says where they go.",
    "Running": "The pods of the gang are bound.",
    "Incomplete": "Pods of a gang that has started are missing.",
    "Finished": "The workload has ended; its slots are free.",
}
ON_WORKLOADS: Final[Mapping[Happening, str]] = {
    "Grown": "Pods that joined the gang, or more pods that it asks for, have got slots.",
    "Repaired": "Pods of the gang that were lost have got new slots.",
    "LevelRelaxed": "The gang has waited for `relax-after`: the level that it required is preferred from now on.",
    "ResumeRefused": "The gang has slots, and the API server or another webhook refuses to resume its workload.",
    "SuspendRefused": "The workload was to be suspended and planned again, and the API server or another webhook "
    "refuses that.",
}
ON_PODS: Final[Mapping[Happening, str]] = {
    "HeldWithoutSlot": "The pod is held: its gang has no slot for it. The message says why.",
    "HeldWithoutGang": "The pod is held: it belongs to no gang. The message says why.",
    "GateRemoved": "Somebody else took the gate off; the pod counts where it lands.",
    "EvictionRefused": "The pod was to be evicted from a lost host, and a disruption budget does not allow it.",
}
ON_POLICY: Final[Mapping[Happening, str]] = {
    "PolicyTaken": "The policy is in force. One that is refused says `PolicyInvalid`, and which one stays in force.",
}
