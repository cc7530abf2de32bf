"""Lists how a number of pods can be divided among pod sets, so that none of them could do with fewer.

What the last pod sets can still add is known before the first is chosen, so no choice is a dead end, however many
pods and pod sets there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def divisions(ranges: Sequence[range], needed: int) -> Iterator[tuple[int, ...]]:
    """Yield in ascending order one number of each range (steps are positive), together at least `needed`.

    No number could be one step lower: it would be below its range, or the sum below `needed`.
    """
    reachable = [1]
    for numbers in reversed(ranges):
        reachable.append(_sums(reachable[-1], numbers))
    reachable.reverse()
    missing = needed - sum(numbers.start for numbers in ranges)
    most = reachable[0].bit_length() - 1
    if missing > most:
        return
    chosen: list[int] = []
    open_choices = [_choices(ranges[0], reachable[1], missing, most - missing + 1)]
    while open_choices:
        del chosen[len(open_choices) - 1 :]
        choice = next(open_choices[-1], None)
        if choice is None:
            open_choices.pop()
            continue
        number, missing, spare = choice
        chosen.append(number)
        at = len(chosen)
        if at == len(ranges):
            yield tuple(chosen)
        else:
            open_choices.append(_choices(ranges[at], reachable[at + 1], missing, spare))


def _sums(sums: int, numbers: range) -> int:
    """Return what a range and the later ones add to their starts: bit n is set where they can add n together."""
    covered = 1
    while covered < len(numbers):
        more = min(covered, len(numbers) - covered)
        sums |= sums << more * numbers.step
        covered += more
    return sums


def _choices(numbers: range, later: int, missing: int, spare: int) -> Iterator[tuple[int, int, int]]:
    """Yield the numbers with which the later ranges can complete the division, with `missing` and `spare` after them.

    `missing`: pods that are needed beyond the starts of this and the later ranges. The sum of all numbers is to be less
    than `spare` beyond what is needed, or one of the numbers so far could be lower.
    """
    step = numbers.step
    first = max(0, -(-(missing - later.bit_length() + 1) // step))
    last = max(0, (missing + step - 1) // step)
    for number in numbers[first : last + 1]:
        left = missing - (number - numbers.start)
        most = min(spare, step) if number > numbers.start else spare
        if _can_add(later, left, left + most):
            yield number, left, most


def _can_add(sums: int, least: int, below: int) -> bool:
    """Return whether one of `sums` is in range(least, below)."""
    return below > 0 and bool(sums >> max(0, least) & (1 << below - max(0, least)) - 1)
