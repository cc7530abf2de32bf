"""How many random lives of gangs the tests of tests/property draw: some in every run, thousands by night."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

NIGHTLY: Final = "nightly"  # the profile of `make test-nightly`
LIVES: Final = 1_430  # of each kind by night: 10,000 of all seven


def lives(examples: int, *, steps: int) -> settings:
    """Return the settings of a state machine that draws `examples` lives of up to `steps` steps."""
    if settings.get_current_profile_name() == NIGHTLY:
        examples = LIVES
    return settings(max_examples=examples, stateful_step_count=steps, deadline=None)
