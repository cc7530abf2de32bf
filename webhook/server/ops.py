"""The pages of the plain-HTTP port: liveness, readiness, metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.policy.namespaces import modes_text
from engine.policy.source import PolicySource
from webhook.server.plain_http import Page, Pages

MAX_DETAIL: Final = 500  # characters of a line
METRICS_SECONDS: Final = 0.25  # making the text takes milliseconds, and anybody in the cluster may request it


@dataclass(frozen=True, slots=True)
class Check:
    """One condition of readiness with a short `detail`.

    `odd`: the condition holds, but needs an admin's attention.
    """

    name: str
    ok: bool
    detail: str = ""
    odd: bool = False

    @property
    def line(self) -> str:
        """Return `[+] policy: 3f2a`: a plus if it holds, a minus if not, an exclamation mark if it needs attention."""
        sign = "-" if not self.ok else "!" if self.odd else "+"
        return f"[{sign}] {self.name}{f': {self.detail}' if self.detail else ''}\n"


def policy_check(policy: PolicySource) -> Check:
    """Return the check of the policy: hash and modes of the one in force, or why a newer one was rejected."""
    detail = f"{policy.policy.hash}, mode {modes_text(policy.policy)}"
    if policy.refused:
        detail = f"{policy.policy.hash} stays in force; refused: {'; '.join(policy.refused)}"
    return Check("policy", policy.loaded, detail[:MAX_DETAIL], odd=bool(policy.refused))


def pages(
    *,
    ready: Callable[[], Sequence[Check]],
    metrics: Callable[[], tuple[str, bytes]],
    clock: Callable[[], float] = time.monotonic,
) -> Pages:
    """Return the pages of the three paths; `metrics` is called at most once in METRICS_SECONDS.

    It returns content type and text.
    """
    made: list[tuple[float, Page]] = []

    def healthz() -> Page:
        return Page(200, "text/plain; charset=utf-8", b"ok\n")

    def readyz() -> Page:
        checks = ready()
        lines = "".join(check.line for check in checks)
        return Page(200 if all(c.ok for c in checks) else 503, "text/plain; charset=utf-8", lines.encode())

    def exposition() -> Page:
        now = clock()
        if not made or now >= made[0][0] + METRICS_SECONDS:
            content_type, body = metrics()
            made[:] = [(now, Page(200, content_type, body))]
        return made[0][1]

    return {"/healthz": healthz, "/readyz": readyz, "/metrics": exposition}
