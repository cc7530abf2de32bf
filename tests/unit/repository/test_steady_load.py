"""What counts as a failed call in the tests of faults."""

from __future__ import annotations

import threading
from unittest.mock import Mock

import pytest

from tests.support.eventually import eventually
from tests.support.steady_load import PARALLEL, Call, SteadyLoad

OURS = '500 InternalError: failed calling webhook "workloads.topogate.dev": connection refused'


def failed(*calls: Call) -> list[str]:
    load = SteadyLoad(None, None)  # type: ignore[arg-type]  # it makes no calls here
    load.calls += calls
    return [one.what for one in load.failed()]


def test_a_call_counts_when_one_of_our_webhooks_is_named() -> None:
    """Neither an outage of the API server nor what it refuses itself is ours; a plain object that fails with us is."""
    assert failed(
        Call("gang", 1.0, 0.1, ""),
        Call("asking job", 1.0, 0.1, OURS),
        Call("plain job", 1.0, 0.1, OURS),
        Call("asking pod", 1.0, 0.1, "429 TooManyRequests: slow down"),
        Call("gang", 1.0, 0.1, "no answer: ProtocolError"),
    ) == ["asking job", "plain job"]


@pytest.mark.parametrize(("plain", "counts"), [(0.5, True), (1.5, False)], ids=["quick", "slow"])
def test_a_call_does_not_count_while_nobody_is_answered(plain: float, counts: bool) -> None:
    """A pod that never comes to us took longer than a second at that moment; at another one it says nothing."""
    call = Call("asking job", 10.0, 2.0, OURS)
    assert failed(Call("plain pod", 9.0, plain, ""), call) == ["asking job"] * counts
    assert failed(Call("plain pod", 20.0, 5.0, ""), call) == ["asking job"]


def test_calls_do_not_pile_up() -> None:
    """An API server that answers nothing gets so many calls at a time; the others are left out, and counted."""
    answer = threading.Event()
    client = Mock(create=Mock(side_effect=lambda *_args, **_options: answer.wait()))
    with SteadyLoad(client, Mock(fleet=Mock(selector={})), rate=1000.0) as load:
        eventually(lambda: load.left_out > PARALLEL, message="calls are left out")
        assert client.create.call_count <= PARALLEL
        answer.set()
        load.goes_on(PARALLEL)
