"""The policy's sections about making room for gangs that wait: what may end for them, and what is protected."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from engine.api.schema import MAX_LIST, Duration, Section, distinct
from engine.policy.fields import NamespacePattern


class Protect(Section):
    """Which running gangs are left alone."""

    running_for: Annotated[float, Duration("1s", "8760h")] | None = Field(
        default=None,
        description="Gangs that have had their slots for this long or longer: only young ones are cheap to restart; "
        "null: however long they run.",
    )
    namespaces: Annotated[tuple[NamespacePattern, ...], Field(max_length=MAX_LIST), AfterValidator(distinct)] = Field(
        default=(), description="The gangs and pods of these namespaces; `*` matches any part of a name."
    )
    annotated: bool = Field(
        default=False,
        description='Gangs with the annotation `topogate.dev/preemptible: "false"`. With `false` the annotation has no '
        "effect, and its user gets a warning.",
    )


class PreemptionRules(Section):
    """Whether running gangs end so that a waiting one of higher priority starts."""

    mode: Literal["never", "lower-priority"] = Field(
        default="never",
        description="`never`: a gang waits until others end. `lower-priority`: running gangs of lower priority are "
        "suspended, or evicted, if that makes room for all of a waiting one; they wait again at their old age.",
    )
    victims: Literal["managed", "all"] = Field(
        default="managed",
        description="`managed`: gangs alone. `all`: also the pods that Topogate does not manage, all pods of an owner "
        "by eviction, but those of DaemonSets and of exempt namespaces.",
    )
    after: Annotated[float, Duration("0s", "168h")] = Field(
        default=30.0, description="How long a gang waits before others are preempted for it."
    )
    protect: Protect = Field(default=Protect(), description="Which running gangs are never preempted.")


class DefragmentRules(Section):
    """Whether running gangs restart elsewhere so that a waiting one fits."""

    mode: Literal["never", "propose", "act"] = Field(
        default="propose",
        description="`never`: no restart is looked for. `propose`: the Placement of a waiting gang shows how few "
        "restarts would let it fit (`status.proposal.restarts`); nothing restarts by itself. `act`: these gangs are "
        "suspended, for one waiting gang at a time, and start again elsewhere.",
    )
    after: Annotated[float, Duration("0s", "168h")] = Field(
        default=60.0, description="How long a gang waits before restarts are looked for."
    )
    max_gangs: int = Field(default=4, ge=1, le=16, description="Maximum number of gangs that restart for one.")
    protect: Protect = Field(
        default=Protect(), description="Which running gangs are never restarted; `topogate defragment` obeys it too."
    )
