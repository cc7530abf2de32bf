"""Reports the acceptance or rejection of the policy: Events on its ConfigMap, and records in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from engine.api.event_reasons import is_warning
from engine.api.objects import ConfigMap
from engine.cluster.events import Recorder, Regarding
from engine.history.decision_log import DecisionLog
from engine.policy.namespaces import modes_text
from engine.policy.source import PolicySource

_ACTION: Final = "TakePolicy"


class PolicyEvents:
    """Observes the policy source repeatedly on every replica; only the leader records an Event for a change.

    So a new leader reports a rejection again, because it still applies, but not a policy that was accepted before its
    term.
    """

    def __init__(
        self,
        recorder: Recorder,
        policy: PolicySource,
        find: Callable[[], ConfigMap | None],
        decisions: DecisionLog | None = None,
    ) -> None:
        """Take `find`, which returns the policy's ConfigMap as the watch shows it."""
        self._decisions = decisions or DecisionLog()
        self._recorder = recorder
        self._policy = policy
        self._find = find
        self._seen: tuple[str, tuple[str, ...]] | None = None
        self._led = False

    def observe(self, *, leads: bool) -> None:
        """Observe the current policy and the error of a rejected one; the leader records what is new."""
        policy, refused = self._policy.policy, self._policy.refused
        now, before = (policy.hash, refused), self._seen
        fresh = leads and not self._led
        self._seen, self._led = now, leads
        if not leads or not self._policy.loaded:
            return
        if refused and (fresh or now != before):
            self._record("PolicyInvalid", f"policy {policy.hash} stays in force; refused: {'; '.join(refused)}")
        elif before is not None and now != before and not refused:
            self._record("PolicyTaken", f"policy {policy.hash} is in force, mode {modes_text(policy)}")

    def _record(self, reason: Literal["PolicyTaken", "PolicyInvalid"], note: str) -> None:
        in_force = self._policy.policy.hash
        if reason == "PolicyTaken":
            self._decisions.service("PolicyTaken", message=note, policy=in_force)
        else:
            self._decisions.service("PolicyRefused", reason=reason, message=note, policy=in_force)
        if (source := self._find()) is None:
            return  # deleted: the defaults are in force, and there is no object for an Event
        regarding = Regarding("v1", "ConfigMap", source.namespace, source.name, source.uid)
        self._recorder.record(regarding, reason=reason, note=note, action=_ACTION, warning=is_warning(reason))
