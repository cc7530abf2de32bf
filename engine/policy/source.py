"""Follows the ConfigMaps of the policy: a valid change takes effect at once, a refused one leaves what is in force.

Every replica reads both ConfigMaps. The leader keeps the text of the last valid policy in the second one, so that an
invalid policy that slipped in while no webhook answered has no effect after the next restart either. When the policy
is deleted, that text becomes empty: a replica that restarts later must not bring back a policy that the others dropped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from engine import metrics
from engine.api import names
from engine.api.field import FieldError
from engine.api.objects import ConfigMap
from engine.policy.in_force import policy_in_force, policy_of_data
from engine.policy.model import Policy, PolicyError, default_policy
from engine.policy.namespaces import modes_text

log = logging.getLogger("topogate.policy")


class PolicySource:
    """Turns ConfigMap events into the policy in force; calls `effective(policy)` on every change.

    `refused` holds the errors of an invalid policy as "path: message" lines; it is empty when the policy is valid.
    Thread-safe.
    """

    def __init__(self, effective: Callable[[Policy], None]) -> None:
        self._effective = effective
        self._lock = threading.Lock()
        self._good_text: str | None = ""  # "": no policy, the default is in force; None: do not write the last good one
        self._last_good = ""
        self._ready = False
        # A change that came before the start: newer than the ConfigMap that start() gets.
        self._early: tuple[ConfigMap | None] | None = None
        self.policy = default_policy()
        self.refused: tuple[str, ...] = ()

    @property
    def loaded(self) -> bool:
        """True once `start` has read the ConfigMaps."""
        return self._ready

    def start(self, policy: ConfigMap | None, last_good: ConfigMap | None) -> None:
        """Choose the first policy from both ConfigMaps as listed."""
        with self._lock:
            if self._early is not None:
                (policy,) = self._early
            self._last_good = last_good.data.get(names.POLICY_KEY, "") if last_good else ""
            found = policy_in_force(policy.data if policy is not None else None, self._last_good)
            self._accept_or_refuse(found.refused)
            for error in found.last_good_errors:
                log.error("the last good policy cannot be read either: %s: %s", error.field, error.message)
            self._take(found.text if not found.last_good_errors else None, found.policy)
            if found.origin == "last good":
                log.warning("the last good policy stays in force")
            self._ready = True

    def changed(self, name: str, new: ConfigMap | None) -> None:
        """Apply one change of either ConfigMap; None when it was deleted."""
        with self._lock:
            if name == names.LAST_GOOD_POLICY_NAME:
                self._last_good = new.data.get(names.POLICY_KEY, "") if new else ""
                return
            if not self._ready:
                self._early = (new,)
                return
            if new is None:
                self._accept_or_refuse(())
                self._take("", default_policy())
            else:
                self._replace(new)

    def to_keep(self) -> str | None:
        """Return the text to write to the last-good ConfigMap ("": no policy); None when it is up to date."""
        with self._lock:
            return self._good_text if self._good_text != self._last_good else None

    def _replace(self, source: ConfigMap) -> None:
        """Take the policy of a changed ConfigMap; a refused one leaves the policy in force as it is."""
        try:
            policy, text = policy_of_data(source.data)
        except PolicyError as error:
            self._accept_or_refuse(error.errors)
            return
        unchanged = text == self._good_text and not self.refused
        self._accept_or_refuse(())
        if not unchanged:
            self._take(text, policy)

    def _accept_or_refuse(self, errors: tuple[FieldError, ...]) -> None:
        self.refused = tuple(f"{error.field}: {error.message}" for error in errors)
        metrics.policy_refused.set(1 if errors else 0)
        for line in self.refused:
            log.error("policy refused: %s", line)

    def _take(self, text: str | None, policy: Policy) -> None:
        self._good_text = text
        self.policy = policy
        self._effective(policy)  # before it is told: who reads that it is in force relies on it
        metrics.policy_info.clear()
        metrics.policy_info.labels(policy.hash).set(1)
        log.info("policy %s in force (mode %s)", policy.hash, modes_text(policy))
