"""The index of preemptions that are written in Placements: by preemptor, and by the gangs that end for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from engine.api.placement import Placement, PreemptionIntent, preemption_intent
from engine.api.workload import GangKey
from engine.gang.key import placed_key


class IntentIndex:
    """The active intents of Placements as applied; whether one is still valid is for its reader to judge."""

    def __init__(self) -> None:
        self._intents: dict[tuple[str, str], tuple[GangKey, PreemptionIntent]] = {}  # by name of the Placement
        self._naming: defaultdict[str, dict[GangKey, None]] = defaultdict(dict)  # by uid of the victim's Placement
        self._placements: dict[str, Placement] = {}  # all of them, by uid

    def __len__(self) -> int:
        return len(self._intents)

    def set_placement(self, old: Placement | None, new: Placement | None) -> set[GangKey]:
        """Apply a change of a Placement; return the gangs that one of its intents names, or has named."""
        affected: set[GangKey] = set()
        if old is not None:
            if (known := self._intents.pop(old.key, None)) is not None:
                affected |= self._name(*known, named=False)
            if new is None or new.uid != old.uid:
                self._placements.pop(old.uid, None)
        if new is not None:
            self._placements[new.uid] = new
            key = placed_key(new)
            if new.status.get("preemption") and (intent := preemption_intent(new.status)).active:
                self._intents[new.key] = (key, intent)
                affected |= self._name(key, intent, named=True)
        return affected

    def active(self) -> Iterator[tuple[GangKey, PreemptionIntent]]:
        """Yield the preemptors with their intents."""
        yield from self._intents.values()

    def naming(self, uid: str) -> list[GangKey]:
        """Return the preemptors for which the gang with this Placement is to end."""
        return list(self._naming.get(uid, ()))

    def placement_of(self, uid: str) -> Placement | None:
        """Return the Placement with this uid, as it was applied."""
        return self._placements.get(uid)

    def _name(self, key: GangKey, intent: PreemptionIntent, *, named: bool) -> set[GangKey]:
        for victim in intent.victims:
            if named:
                self._naming[victim.uid][key] = None
            elif victim.uid in self._naming:
                self._naming[victim.uid].pop(key, None)
                if not self._naming[victim.uid]:
                    del self._naming[victim.uid]
        found = (self._placements.get(victim.uid) for victim in intent.victims)
        return {placed_key(one) for one in found if one is not None}
