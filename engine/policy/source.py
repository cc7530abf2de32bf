"""Which policy is in force: the ConfigMap's when it is good, else the last good one, else the default.

Every replica reads both ConfigMaps; the leader keeps the text of the last good policy in the second one, so that a bad
policy that slipped in while no webhook answered does not take effect at the next restart either. After the policy was
deleted the text there is empty: a replica that restarts later must not bring back what the others have given up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from engine import metrics
from engine.api import names
from engine.api.objects import ConfigMap
from engine.policy.model import Policy, PolicyError, default_policy, parse_policy

log = logging.getLogger("topogate.policy")


class PolicySource:
    """Turns ConfigMap events into the policy in force; `effective(policy)` is called on every change.

    `refused` holds the errors of a policy that was not taken, as "path: message" lines; empty when all is well.
    """

    def __init__(self, effective: Callable[[Policy], None]) -> None:
        self._effective = effective
        self._lock = threading.Lock()
        self._good_text: str | None = ""  # empty: no policy given, the default rules; None: leave what is kept
        self._last_good = ""
        self._ready = False
        self._early: tuple[ConfigMap | None] | None = (
            None  # what was told before the start, later than what it is given
        )
        self.policy = default_policy()
        self.refused: tuple[str, ...] = ()

    @property
    def loaded(self) -> bool:
        """True once the ConfigMaps have been looked at."""
        return self._ready

    def start(self, policy: ConfigMap | None, last_good: ConfigMap | None) -> None:
        """Decide on the first policy, from both ConfigMaps as listed."""
        with self._lock:
            if self._early is not None:
                (policy,) = self._early
            self._last_good = last_good.data.get(names.POLICY_KEY, "") if last_good else ""
            if policy is None or not self._try(policy):
                self._fall_back(self._last_good if policy is not None else "")
            self._ready = True

    def changed(self, name: str, new: ConfigMap | None) -> None:
        """Take one change of either ConfigMap."""
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
        """The text that the leader has to write to the last-good ConfigMap ("": none); None when it stands there."""
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
        metrics.policy_info.clear()
        metrics.policy_info.labels(policy.hash).set(1)
        log.info("policy %s in force (mode %s)", policy.hash, policy.mode)
        self._effective(policy)
