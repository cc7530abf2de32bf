"""The specification of a topology in the policy: levels, a preset, or a Topology object."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from engine.api import names
from engine.api.schema import DnsLabel, DnsName, LabelKey, LabelMap, Section
from engine.api.text import did_you_mean, join_comma, quote
from engine.planner.plan import Profile
from engine.topology.levels import HOST, MAX_KEYS, MAX_LEVELS, Level, presets


def _known_preset(text: str) -> str:
    if text not in presets():
        known = tuple(presets())
        raise ValueError(f"must be one of {join_comma(known)}; got {quote(text)}{did_you_mean(text, known)}")
    return text


PresetName = Annotated[str, AfterValidator(_known_preset), WithJsonSchema({"type": "string", "enum": list(presets())})]


class LevelSpec(Section):
    """One level of a topology, defined by the admin."""

    name: DnsLabel = Field(description="The name of the level in requests.")
    keys: tuple[LabelKey, ...] = Field(
        default=(),
        max_length=MAX_KEYS,
        description="Node label keys; the first that is present on a node is used. Only the level `host` has none.",
    )


class ObjectRef(Section):
    """A reference to a Topology object of Kueue or KAI, or to the HyperNodes of Volcano."""

    group: Literal["kueue.x-k8s.io", "kai.scheduler", "topology.volcano.sh"] = Field(
        description="The API group of the Topology object, or of the HyperNodes."
    )
    name: DnsName = Field(
        description="The name of the Topology object. Of HyperNodes: `hypernodes` for all, or the root of one tree."
    )


class TopologySpec(Section):
    """A named list of levels over a set of nodes, from exactly one of preset, levels and fromObject."""

    name: DnsLabel = Field(description="The name of the topology in the annotation `topogate.dev/topology`.")
    preset: PresetName | None = Field(default=None, description="The levels of a known platform.")
    levels: tuple[LevelSpec, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_LEVELS + 1,
        description=f"The levels, coarse to fine: at most {MAX_LEVELS} and the host level, which is always added last.",
    )
    from_object: ObjectRef | None = Field(
        default=None, description="The levels of a Topology object of Kueue or KAI, or of HyperNodes."
    )
    node_selector: LabelMap = Field(
        default={}, description="Labels of the nodes in this topology; recommended: the label of the GPU pool."
    )
    profile: Profile | None = Field(
        default=None,
        description="As `planner.profile`, for the gangs of this topology that name no profile themselves.",
    )
    missing_label: Literal["exclude", "own-domain"] = Field(
        default="exclude",
        description="What happens to a node without the label of a level. `exclude`: it is left out and counted in "
        "messages. `own-domain`: it is a domain of its own at that level.",
    )

    def resolved_levels(self) -> tuple[Level, ...]:
        """Return the levels coarse to fine, the host level last."""
        if self.preset is not None:
            return presets()[self.preset]
        above = (Level(level.name, level.keys) for level in self.levels or () if level.name != names.HOST_LEVEL)
        return (*above, HOST)
