from __future__ import annotations

import pytest

from engine.api.field import FieldError, render, unsupported
from engine.api.placement import PodSetPlan, Slot
from engine.scheduler.explain import forecast, placed_text
from engine.scheduler.outcome import Never, Outcome, Placed, Waits
from tests.support.golden import golden

LEVELS = ("block", "rack", "host")


def hosts(*paths: str) -> list[tuple[str, ...]]:
    return [tuple(path.split("/")) for path in paths]


def placed(*paths: str, per_host: int = 4, ranked: bool = True, levels: tuple[str, ...] = LEVELS) -> Placed:
    slots = tuple(
        Slot(domain, per_host, ((i * per_host, (i + 1) * per_host - 1),) if ranked else None)
        for i, domain in enumerate(hosts(*paths))
    )
    return Placed((PodSetPlan("main", slots),), dict.fromkeys(levels, 1), True, "", "rack", None)


RACK = [f"block-0/rack-07/host-{n:03}" for n in range(28, 32)]
TWO_RACKS = [*RACK[:2], "block-0/rack-08/host-032"]
TWO_BLOCKS = [*RACK[:2], "block-1/rack-07/host-064"]

PLACED = {
    "one rack": placed_text(16, hosts(*RACK), LEVELS),
    "one pod": placed_text(1, hosts(RACK[0]), LEVELS),
    "two racks": placed_text(24, hosts(*TWO_RACKS), LEVELS),
    "two blocks": placed_text(24, hosts(*TWO_BLOCKS), LEVELS),
    "hosts alone": placed_text(8, hosts("a", "b"), ("host",)),
    "one host alone": placed_text(8, hosts("a"), ("host",)),
    "nothing": placed_text(0, [], LEVELS),
    "the same host twice": placed_text(8, hosts(RACK[0], RACK[0]), LEVELS),
    "hostile values": placed_text(8, [("\x1b[31m", "\n", "x" * 200)], LEVELS),
}

FORECASTS: dict[str, tuple[str, ...]] = {
    "would place": forecast(placed(*RACK)),
    "would place, unranked": forecast(placed(*RACK, ranked=False)),
    "would place on hosts alone": forecast(placed("a", "b", levels=("host",))),
    "would place, long names": forecast(placed(f"{'b' * 60}/{'r' * 60}/h")),
    "would wait": forecast(
        Waits("Fragmented", "needs 16 hosts in one rack; best is rack-12 with 14 (40 racks looked at)")
    ),
    "would wait, starts now when preferred": forecast(
        Waits("Fragmented", "needs 16 hosts in one rack; best is rack-12 with 14"), instead=placed(*TWO_RACKS)
    ),
    "would wait, starts now over many racks": forecast(
        Waits("Fragmented", "needs 16 hosts in one rack"), instead=placed(*(f"b/r{n}/h{n}" for n in range(9)))
    ),
    "would wait, starts now on two hosts": forecast(
        Waits("Fragmented", "needs room on one host"), instead=placed(*RACK[:2])
    ),
    "would wait, starts now on two hosts that are not named": forecast(
        Waits("Fragmented", "needs room on one host"), instead=placed(*RACK[:2]), names_hosts=False
    ),
    "would wait, starts now on one host": forecast(Waits("Fragmented", "needs room"), instead=placed(RACK[0])),
    "never": forecast(
        Never(
            "GangTooLarge",
            "80 pods x 8 GPUs = 640 GPUs must share one rack, but the largest rack has 576 (rack-07, 72 hosts)",
        )
    ),
}

CAUSES = {
    "unknown level": unsupported(
        "metadata.annotations[topogate.dev/require-topology]", "rak", LEVELS, reason="UnknownLevel"
    ),
    "nothing close": unsupported("a", "zone", LEVELS, reason="UnknownLevel"),
    "hostile value": unsupported("a", "\x1b[31m\n" * 99, LEVELS, reason="UnknownLevel"),
    "value and advice": FieldError("b", "Invalid value", "16", "HostTooSmall", "no host has more than 8 GPUs"),
    "no value": FieldError("c", "Required value", None, "MissingValue", "give the number of pods"),
    "an empty value": FieldError("c", "Invalid value", "", "InvalidValue", "give the number of pods"),
}


def test_where_a_gang_went_reads_as_written() -> None:
    """The domain that all pods share, then over how many of the next level, then hosts."""
    golden("placed", PLACED)


def test_forecasts_read_as_written() -> None:
    """What a dry run tells."""
    golden("forecast", {case: "\n".join(lines) for case, lines in FORECASTS.items()})


def test_causes_read_as_written() -> None:
    """What kubectl prints after the path: Kubernetes' own word, the value, what is allowed."""
    golden("causes", {case: render(error) for case, error in CAUSES.items()})


@pytest.mark.parametrize("case", list(FORECASTS))
def test_a_warning_is_short_and_printable(case: str) -> None:
    """kubectl cuts long warnings; a terminal must not be told anything."""
    assert all(len(line) <= 120 and line.isprintable() for line in FORECASTS[case])


@pytest.mark.parametrize("text", [*PLACED.values(), *(render(error) for error in CAUSES.values())])
def test_no_text_holds_control_characters(text: str) -> None:
    """Label values and annotations are anybody's text."""
    assert text.isprintable()


@pytest.mark.parametrize("outcome", [Waits("Fragmented", "x" * 5000), Never("GangTooLarge", "y " * 5000)])
def test_long_messages_are_cut(outcome: Outcome) -> None:
    """A warning never grows with its message."""
    (line,) = forecast(outcome)
    assert len(line) <= 120
    assert line.endswith("...")


def test_the_rank_of_a_single_pod_is_not_worth_a_word() -> None:
    """`ranks 0-0` tells nobody anything."""
    slots = (Slot(("b0", "r0", "h0"), 1, ((0, 0),)),)
    one = Placed((PodSetPlan("main", slots),), {"block": 1, "rack": 1, "host": 1}, True, "", None, None)
    assert forecast(one) == ("topogate: would place 1 pod in b0 / r0 (1 host)",)
