from __future__ import annotations

import random

from engine.cluster.reflector import Backoff


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_delays_double_up_to_the_limit() -> None:
    """0.8 s doubling to 30 s, each jittered to between half and all of it."""
    clock = Clock()
    backoff = Backoff(clock=clock, rng=random.Random(7))
    for full in (0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0):
        delay = backoff.delay()
        assert full / 2 <= delay <= full
        clock.now += delay


def test_two_minutes_of_health_are_a_new_start() -> None:
    """Only health counts: two minutes of failures do not reset, two minutes without one do."""
    clock = Clock()
    backoff = Backoff(clock=clock, rng=random.Random(7))
    for _ in range(12):
        clock.now += backoff.delay()
    assert clock.now > 120
    clock.now += 119
    assert backoff.delay() >= 15.0
    clock.now += 30 + 120
    assert backoff.delay() <= 0.8


def test_the_server_is_never_asked_before_its_wish() -> None:
    """Retry-After is the least delay, with jitter on top, and at most an hour is believed."""
    backoff = Backoff(clock=Clock(), rng=random.Random(7))
    assert 9.0 <= backoff.delay(at_least=9.0) <= 9.8
    assert backoff.delay(at_least=1e9) <= 3602
