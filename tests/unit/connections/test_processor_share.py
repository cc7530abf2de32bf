"""The share of the processor for work that may take long."""

from __future__ import annotations

from webhook.connections.processor_share import MAX_REST, ProcessorShare


class Time:
    """A clock that sleeping moves on; `used` is the processor time of the thread."""

    def __init__(self) -> None:
        self.now, self.used, self.slept = 100.0, 0.0, 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds

    def share(self, rest: float) -> ProcessorShare:
        return ProcessorShare(rest=rest, clock=lambda: self.now, used=lambda: self.used, sleep=self.sleep)

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.used += seconds


def test_work_rests_before_the_next_piece() -> None:
    """As long as it worked, times `rest`; the first piece waits for nothing."""
    time = Time()
    share = time.share(2.0)
    with share.piece():
        assert time.slept == 0.0
        time.work(0.05)
    assert time.slept == 0.0
    with share.piece():
        assert round(time.slept, 6) == 0.1
        time.work(0.01)
    with share.piece():
        assert round(time.slept, 6) == 0.12


def test_a_rest_that_is_over_costs_nothing() -> None:
    """A piece that comes later than the rest lasted starts at once."""
    time = Time()
    share = time.share(1.0)
    with share.piece():
        time.work(0.05)
    time.now += 0.05
    with share.piece():
        assert time.slept == 0.0


def test_waiting_is_no_work() -> None:
    """What counts is the processor's time, not the clock's."""
    time = Time()
    share = time.share(1.0)
    with share.piece():
        time.now += 5.0
    with share.piece():
        assert time.slept == 0.0


def test_one_long_piece_does_not_rest_for_long() -> None:
    """The rest has a bound; also after an exception there is one."""
    time = Time()
    share = time.share(1.0)
    try:
        with share.piece():
            time.work(3.0)
            raise RuntimeError
    except RuntimeError:
        pass
    with share.piece():
        assert round(time.slept, 6) == MAX_REST
