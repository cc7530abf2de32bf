"""Waiting for a condition, with a failure that says what was seen instead."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.25
# Seconds until a test gives up. What it waits for takes seconds at most on an idle machine; a CI machine is not idle.
PATIENCE = 90.0
# Seconds. What a test calls prompt takes milliseconds, more on a busy machine; what sits out a limit or a hanging
# server takes longer than this.
PROMPT = 8.0


def eventually(
    condition: Callable[[], T | None],
    timeout: float = PATIENCE,
    message: str | Callable[[], str] = "",
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Call `condition` until it returns something true, and return that.

    A condition may also assert: an AssertionError counts as "not yet", any other exception is a fault and goes through.
    After `timeout` seconds: AssertionError with `message` (called then, so that it can look) and the last answer.
    """
    started = clock()
    pause = FIRST_PAUSE
    while True:
        try:
            answer = condition()
            if answer:
                return answer
            seen = f"last answer: {answer!r}"
        except AssertionError as error:
            seen = f"last assertion: {error}"
        waited = clock() - started
        if waited >= timeout:
            wish = message() if callable(message) else message
            raise AssertionError(f"{wish or 'the condition'}: not within {waited:.1f} s; {seen[:4000]}")
        sleep(min(pause, max(0.0, timeout - waited)))
        pause = min(pause * 1.5, LONGEST_PAUSE)


def always(condition: Callable[[], T], seconds: float, message: str = "") -> None:
    """Assert that `condition` holds at every look during `seconds`: for "it stays so", never for "it becomes so"."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        assert answer, f"{message or 'the condition'}: no longer true, it says {answer!r}"
        if time.monotonic() >= deadline:
            return
        time.sleep(0.05)
