"""Calls a function for many items, several at a time, in threads that never keep the program from ending."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final, TypeVar

AT_ONCE: Final = 8  # requests to an API server
Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(do: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return what `do` returns for each item, in their order; AT_ONCE items at a time. Raises what `do` raises first.

    In daemon threads, not in a pool: the exit of the program would wait for those of a pool, and with them Ctrl-C for a
    server that is silent.
    """
    left = deque(enumerate(items))
    done: SimpleQueue[tuple[int, Result] | BaseException] = SimpleQueue()

    def work() -> None:
        while left:
            try:
                place, one = left.popleft()
            except IndexError:
                return
            try:
                done.put((place, do(one)))
            except BaseException as error:  # raised again where the answer is awaited
                done.put(error)

    for number in range(min(AT_ONCE, len(items))):
        threading.Thread(target=work, name=f"request {number}", daemon=True).start()
    found: dict[int, Result] = {}
    for _ in items:
        answer = done.get()
        if isinstance(answer, BaseException):
            raise answer
        found[answer[0]] = answer[1]
    return [found[place] for place in range(len(items))]
