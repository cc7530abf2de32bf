"""The annotation that tells a pod's devices: what is written is read back, and nothing that is read does harm."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from engine.api.device import DeviceUse
from engine.devices.allocation import format_allocated, parse_allocated

percent = st.integers(0, 100)
names = st.text(st.characters(categories=("L", "N", "P", "S")), max_size=40)
minors = st.integers(0, 2**31 - 1)
gpus = st.builds(DeviceUse, st.just("gpu"), minors, names, percent, percent, st.integers(0, 2**50))
cards = st.builds(DeviceUse, st.sampled_from(["rdma", "fpga"]), minors, names, share=percent)
ORDER = ("gpu", "rdma", "fpga")

quantity = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12), st.lists(st.none(), max_size=2)
)
entry = st.one_of(
    quantity,
    st.fixed_dictionaries(
        {},
        optional={
            "minor": quantity,
            "id": quantity,
            "resources": st.one_of(
                quantity,
                st.dictionaries(
                    st.sampled_from(
                        ["koordinator.sh/gpu-core", "koordinator.sh/gpu-memory", "koordinator.sh/rdma", "x"]
                    ),
                    quantity,
                ),
            ),
        },
    ),
)


@given(st.lists(st.one_of(gpus, cards), max_size=6, unique_by=lambda one: (one.kind, one.minor)))
def test_what_is_written_is_read_back(uses: list[DeviceUse]) -> None:
    """parse(format(x)) == x, kinds in their order; and what we read and write again stays as it is."""
    uses.sort(key=lambda one: ORDER.index(one.kind))
    text = format_allocated(uses)
    assert parse_allocated(text) == (tuple(uses), "")
    text.encode()


@given(
    st.one_of(
        st.text(max_size=40),
        st.dictionaries(st.sampled_from([*ORDER, "npu"]), st.one_of(entry, st.lists(entry))).map(json.dumps),
    )
)
def test_reading_never_raises(text: str) -> None:
    """Either sound devices, which can be written again, or a reason in one plain line."""
    uses, reason = parse_allocated(text)
    if uses is None:
        assert reason
        assert reason.isprintable()
        return
    assert reason == ""
    for one in uses:
        assert 0 <= one.core <= 100
        assert 0 <= one.ratio <= 100
        assert 0 <= one.share <= 100
        assert 0 <= one.memory <= 2**50
    assert parse_allocated(format_allocated(uses)) == (uses, "")
