"""The reasons of Events: reason codes and phases of gangs, and further events of gangs and pods.

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
    "Moved",
    "NotMoved",
    "LevelRelaxed",
    "ResumeRefused",
    "SuspendRefused",
    "HeldWithoutSlot",
    "HeldWithoutGang",
    "GateRemoved",
    "EvictionRefused",
    "PolicyTaken",
    "ProvisioningRequestCreated",
    "ProvisioningRequestRefused",
    "ProvisioningRequestAccepted",
    "ProvisioningRequestProvisioned",
    "ProvisioningRequestFailed",
    "BookingExpired",
    "CapacityRevoked",
    "RestartsProposed",
]
# The type of every Event's reason: mypy refuses any other text.
EventReason = Code | Phase | Happening


@dataclass(frozen=True, slots=True)
class EventMeaning:
    """The meaning of an Event's reason; `settles`: seconds that the state must last before it is reported."""

    description: str
    warning: bool = False
    settles: float = 0.0


ON_PHASES: Final[Mapping[Phase, EventMeaning]] = {
    "Waiting": EventMeaning("The gang waits, and nothing is wrong with it."),
    # mostly it runs a moment later
    "Placed": EventMeaning(
        "The gang has its slots; its pods are not bound yet. The message says where they go.", settles=2.0
    ),
    # most pods are ready a moment later
    "Starting": EventMeaning("The pods of the gang are bound; not all of them are ready yet.", settles=5.0),
    "Running": EventMeaning("The pods of the gang are ready."),
    # a pod that has ended well leaves the cache before its Job counts its index as done
    "Incomplete": EventMeaning("Pods of a gang that has started are missing.", settles=5.0),
    "Finished": EventMeaning("The workload has ended; its slots are free."),
}
ON_WORKLOADS: Final[Mapping[Happening, EventMeaning]] = {
    "Grown": EventMeaning("Pods that joined the gang or were added to it have slots."),
    "Repaired": EventMeaning("Lost pods of the gang have new slots, or pods that stayed have theirs where they are."),
    "Moved": EventMeaning(
        "Pods of the gang, or all of them, have new slots because its user asks for it (`topogate.dev/replace`, "
        "`topogate.dev/replan`)."
    ),
    "NotMoved": EventMeaning(
        "The user asks that the gang is planned anew (`topogate.dev/replan`), and it stays where it is; the message "
        "says why."
    ),
    "LevelRelaxed": EventMeaning(
        "The gang has waited for `relax-after`: its required level is preferred from now on.", warning=True
    ),
    "ResumeRefused": EventMeaning(
        "The gang has slots, but the API server or another webhook refuses to resume its workload.", warning=True
    ),
    "SuspendRefused": EventMeaning(
        "The workload must be suspended to be planned again, but the API server or another webhook refuses that.",
        warning=True,
    ),
    "ProvisioningRequestCreated": EventMeaning("The node autoscaler was asked for nodes for the gang."),
    "ProvisioningRequestRefused": EventMeaning(
        "The API server refuses the request for nodes; it is tried again later.", warning=True
    ),
    "ProvisioningRequestAccepted": EventMeaning("The node autoscaler looks for nodes for the gang."),
    "ProvisioningRequestProvisioned": EventMeaning(
        "The node autoscaler has requested nodes for the gang, or has found them; it is placed when they are ready."
    ),
    "ProvisioningRequestFailed": EventMeaning(
        "The node autoscaler cannot provide nodes for the gang; the message says when the next request follows.",
        warning=True,
    ),
    "BookingExpired": EventMeaning(
        "The node autoscaler no longer keeps the nodes that it has provided, and the gang still waits.", warning=True
    ),
    "CapacityRevoked": EventMeaning("The node autoscaler has taken back the nodes that it has provided.", warning=True),
    "RestartsProposed": EventMeaning(
        "The gang would fit if a few running gangs restarted elsewhere; nothing restarts by itself."
    ),
}
ON_PODS: Final[Mapping[Happening, EventMeaning]] = {
    "HeldWithoutSlot": EventMeaning(
        "The pod is held: its gang has no slot for it. The message says why.", warning=True
    ),
    "HeldWithoutGang": EventMeaning("The pod is held: it belongs to no gang. The message says why.", warning=True),
    "GateRemoved": EventMeaning(
        "Someone else removed the scheduling gate; the pod counts on the node where it runs.", warning=True
    ),
    "EvictionRefused": EventMeaning(
        "The pod must be evicted (from a lost host or one to be left, or as its gang is preempted), but a disruption "
        "budget refuses it.",
        warning=True,
    ),
}
ON_POLICY: Final[Mapping[Happening, EventMeaning]] = {
    "PolicyTaken": EventMeaning(
        "The policy is in force. A refused one gets `PolicyInvalid`; the message names the one that stays in force."
    ),
}
_MEANINGS: Final[Mapping[str, EventMeaning]] = dict[str, EventMeaning](
    [*ON_PHASES.items(), *ON_WORKLOADS.items(), *ON_PODS.items(), *ON_POLICY.items()]
)


def is_warning(reason: EventReason) -> bool:
    """Return whether an Event with this reason is of type Warning; every reason code is a warning."""
    meaning = _MEANINGS.get(reason)
    return meaning is None or meaning.warning
