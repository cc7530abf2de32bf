"""What the page of the map shows of one moment, as JSON: the answers of the commands, and what fits for pods of a size.

The page reads the keys of `webhook.queries.model`; it is written and read by one version, so this is no contract.
"""

from __future__ import annotations

from engine.api.schema import AnswerPart
from webhook.queries.model import ExplainedGang, GangAnswer, LevelAnswer, TopologyAnswer


class PodSize(AnswerPart):
    """What fits now for pods of one size: in one domain of each level, and anywhere (`largest_gang`)."""

    topology: str
    pod_gpus: int
    levels: tuple[LevelAnswer, ...]
    largest_gang: int | None


class MapFrame(AnswerPart):
    """The cluster at one moment. `explained`: gangs with what is in their way, or with their pods; not of all."""

    taken_at: str
    mode: str
    policy: str
    topologies: tuple[TopologyAnswer, ...]
    gangs: tuple[GangAnswer, ...]
    sizes: tuple[PodSize, ...]
    explained: tuple[ExplainedGang, ...]
    remarks: tuple[str, ...]

    @property
    def json_text(self) -> str:
        """The frame as JSON with the keys that the page reads."""
        return self.model_dump_json(by_alias=True)
