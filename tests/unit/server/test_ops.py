"""The pages of the plain port, as values."""

from __future__ import annotations

from webhook.server.ops import METRICS_SECONDS, pages


def test_metrics_are_made_for_many_askers_at_once() -> None:
    """Making the text takes a core's milliseconds: whoever asks again at once is given the one there is."""
    now, made = [100.0], [0]

    def metrics() -> tuple[str, bytes]:
        made[0] += 1
        return "text/plain", b"%d" % made[0]

    page = pages(ready=tuple, metrics=metrics, clock=lambda: now[0])["/metrics"]
    assert [page().body for _ in range(100)] == [b"1"] * 100
    now[0] += METRICS_SECONDS
    assert page().body == b"2"
