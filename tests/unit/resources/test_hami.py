"""HAMi's names: what to request instead means the same, and a warning says it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.resources import nano
from engine.resources.hami import CORES, MEBIBYTES, PERCENTAGE, PRIORITY, without_hami
from engine.resources.names import CORE, MEMORY, NVIDIA, RATIO, SHARED, Reported
from engine.resources.request import device_request
from tests.support.admission import FakeView, Json, apply, rack_job, review
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

GIB = 2**30


@pytest.mark.parametrize(
    ("amounts", "instead"),
    [
        ({NVIDIA: 1, MEBIBYTES: 3000}, {MEMORY: "3000Mi"}),
        ({NVIDIA: 1, MEBIBYTES: 3000, CORES: 30}, {CORE: "30", MEMORY: "3000Mi"}),
        ({NVIDIA: 2, PERCENTAGE: 50, CORES: 30}, {CORE: "60", RATIO: "100", SHARED: "2"}),
        ({MEBIBYTES: 1024}, {MEMORY: "1024Mi"}),
        ({NVIDIA: 2, CORES: 100}, {CORE: "200", RATIO: "200"}),
        ({NVIDIA: 2, CORES: 60}, {CORE: "120", RATIO: "200", SHARED: "2"}),
        ({NVIDIA: 1, PRIORITY: 1}, {RATIO: "100"}),
        ({NVIDIA: 1, MEBIBYTES: 1, PERCENTAGE: 50}, {MEMORY: "1Mi"}),
    ],
    ids=str,
)
def test_amounts_of_each_gpu_become_amounts_of_all(amounts: dict[str, int], instead: dict[str, str]) -> None:
    assert without_hami(amounts) == instead


@given(
    gpus=st.integers(1, 8),
    core=st.integers(0, 100),
    memory=st.integers(0, 80_000),
    percentage=st.integers(0, 100),
)
def test_it_is_valid_and_asks_for_the_same(gpus: int, core: int, memory: int, percentage: int) -> None:
    amounts = {NVIDIA: gpus, CORES: core, MEBIBYTES: memory, PERCENTAGE: percentage}
    instead = without_hami({name: amount for name, amount in amounts.items() if amount})
    request = device_request({name: nano(name, text) // 10**9 for name, text in instead.items()})
    assert request is not None
    assert (request.gpus, request.core, request.memory) == (gpus, core, memory * 2**20)
    assert request.ratio == (0 if memory else percentage or 100)


def told(limits: Json, *names: str) -> list[str]:
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x", "resources": {"limits": limits}}]}
    view = FakeView(reported=Reported(frozenset({NVIDIA, CORE, RATIO, MEMORY, *names})))
    job = rack_job(pod_spec=spec)
    stored = apply(job, mutate(review(job), view, 0.0))
    return [text for text in validate(review(stored), view, 0.0).warnings if "HAMi" in text]


def test_a_gang_with_such_names_gets_a_warning() -> None:
    (warning,) = told({NVIDIA: "2", PERCENTAGE: "50", CORES: "30"})
    named = "koordinator.sh/gpu-core: 60, gpu-memory-ratio: 100, gpu.shared: 2"
    assert warning == f'topogate: container "c": instead of HAMi\'s names use {named}'


def test_other_names_get_none() -> None:
    """Nor those that nodes report, such as those of another device plugin."""
    assert told({NVIDIA: "1"}) == []
    assert told({NVIDIA: "1", MEBIBYTES: "3000"}, MEBIBYTES) == []


@pytest.mark.parametrize("amount", ["x", "-1", "0.5", None, 7, 0.5])
def test_an_amount_that_cannot_be_read_breaks_nothing(amount: object) -> None:
    """The API server refuses it with its own message."""
    assert all(MEBIBYTES in text or "gpu-memory" in text for text in told({NVIDIA: "1", MEBIBYTES: amount}))
