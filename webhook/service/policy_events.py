"""What became of the policy, told by Events on its ConfigMap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.api.event_reasons import EventReason, is_warning
from engine.api.objects import ConfigMap
from engine.cluster.events import Recorder
from engine.policy.source import PolicySource

_ACTION: Final = "TakePolicy"


class PolicyEvents:
    """Looks again and again; every replica notes what is so, the leader alone tells a change.

    So a new leader tells a refusal once more, as nobody has mended it, and no policy that was taken before its time.
    """

    def __init__(self, recorder: Recorder, policy: PolicySource, find: Callable[[], ConfigMap | None]) -> None:
        """`find` gives the policy's ConfigMap as the watch shows it."""
        self._recorder = recorder
        self._policy = policy
        self._find = find
        self._seen: tuple[str, tuple[str, ...]] | None = None
        self._led = False

    def look(self, *, leads: bool) -> None:
        """Take in which policy is in force and what is wrong with the one that is not; tell what is new."""
        policy, refused = self._policy.policy, self._policy.refused
        now, before = (policy.hash, refused), self._seen
        fresh = leads and not self._led
        self._seen, self._led = now, leads
        if not leads or not self._policy.loaded:
            return
        if refused and (fresh or now != before):
            self._tell("PolicyInvalid", f"policy {policy.hash} stays in force; refused: {'; '.join(refused)}")
        elif before is not None and now != before and not refused:
            self._tell("PolicyTaken", f"policy {policy.hash} is in force, mode {policy.mode}")

    def _tell(self, reason: EventReason, note: str) -> None:
        if (source := self._find()) is None:
            return  # deleted: the defaults are in force, and there is nothing to tell it on
        self._recorder.record(
            api_version="v1",
            kind="ConfigMap",
            namespace=source.namespace,
            name=source.name,
            uid=source.uid,
            reason=reason,
            note=note,
            action=_ACTION,
            warning=is_warning(reason),
        )
