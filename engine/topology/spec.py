"""The specification of a topology: levels, a preset, or a Topology object to take them from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from engine.api import names
from engine.api.schema import DnsLabel, LabelKey, LabelMap, Section
from engine.api.text import did_you_mean, join_comma, quote
from engine.topology.levels import HOST, MAX_KEYS, MAX_LEVELS, Level, presets


def _known_preset(text: str) -> str:
    if text not in presets():
        known = tuple(presets())
        raise ValueError(f"must be one of {join_comma(known)}; got {quote(text)}{did_you_mean(text, known)}")
    return text


PresetName = Annotated[str, AfterValidator(_known_preset), WithJsonSchema({"type": "string", "enum": list(presets())})]


class LevelSpec(Section):
    """One level of a topology that the admin writes out."""

    name: DnsLabel = Field(description="The alias that requests use.")
    keys: tuple[LabelKey, ...] = Field(
        default=(),
        max_length=MAX_KEYS,
        description="Node label keys; of several the first that a node carries counts. Only the level `host` has none.",
    )


class ObjectRef(Section):
    """A topology object of another system."""

    group: Literal["kueue.x-k8s.io", "kai.scheduler"] = Field(description="The API group of the Topology object.")
    name: DnsLabel = Field(description="Its name.")


class TopologySpec(Section):
    """A named list of levels over a set of nodes; exactly one of preset, levels and fromObject says which levels."""

    name: DnsLabel = Field(description="What the annotation `topogate.dev/topology` names.")
    preset: PresetName | None = Field(default=None, description="The levels of a known platform.")
    levels: tuple[LevelSpec, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_LEVELS + 1,
        description=f"The levels, coarse to fine, at most {MAX_LEVELS}; the host level is always there, last.",
    )
    from_object: ObjectRef | None = Field(default=None, description="The levels of a Kueue or KAI Topology object.")
    node_selector: LabelMap = Field(
        default={}, description="Which nodes belong to it; recommended: the label of the GPU pool."
    )
    missing_label: Literal["exclude", "own-domain"] = Field(
        default="exclude",
        description="A node without a level's label is left out (and counted), or is a domain of its own there.",
    )

    def resolved_levels(self) -> tuple[Level, ...]:
        """The levels coarse to fine, the host level last."""
        if self.preset is not None:
            return presets()[self.preset]
        above = (Level(level.name, level.keys) for level in self.levels or () if level.name != names.HOST_LEVEL)
        return (*above, HOST)
