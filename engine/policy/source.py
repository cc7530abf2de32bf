"""The policy in force: the ConfigMap's when it is valid, else the last valid one, else the default.

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
from engine.api.objects import ConfigMap
from engine.policy.model import Policy, PolicyError, default_policy, parse_policy
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
            if policy is None or not self._try(policy):
                self._fall_back(self._last_good if policy is not None else "")
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
                self.refused = ()
                metrics.policy_refused.set(0)
                self._take("", default_policy())
            else:
                self._try(new)

    def to_keep(self) -> str | None:
        """Return the text to write to the last-good ConfigMap ("": no policy); None when it is up to date."""
        with self._lock:
            return self._good_text if self._good_text != self._last_good else None

    def _fall_back(self, last_good: str) -> None:
        if not last_good:
            self._take("", default_policy())
            return
        try:
            self._take(last_good, parse_policy(last_good))
        except PolicyError as error:
            log.error("the last good policy cannot be read either: %s", error)
            self._take(None, default_policy())
        else:
            log.warning("the last good policy stays in force")

    def _try(self, source: ConfigMap) -> bool:
        text = source.data.get(names.POLICY_KEY)
        if text is None:
            return self._refuse((f"data[{names.POLICY_KEY}]: is missing",))
        if text == self._good_text and not self.refused:
            return True
        try:
            policy = parse_policy(text)
        except PolicyError as error:
            return self._refuse(tuple(f"{item.field}: {item.message}" for item in error.errors))
        self.refused = ()
        metrics.policy_refused.set(0)
        self._take(text, policy)
        return True

    def _refuse(self, errors: tuple[str, ...]) -> bool:
        self.refused = errors
        metrics.policy_refused.set(1)
        for line in errors:
            log.error("policy refused: %s", line)
        return False

    def _take(self, text: str | None, policy: Policy) -> None:
        self._good_text = text
        self.policy = policy
        self._effective(policy)  # before it is told: who reads that it is in force relies on it
        metrics.policy_info.clear()
        metrics.policy_info.labels(policy.hash).set(1)
        log.info("policy %s in force (mode %s)", policy.hash, modes_text(policy))
