"""Amounts per device of many hosts in dense arrays: a line per device, a column per host, padded to the same height.

Lines, not columns, are long, so that sums over the devices of a host are sums of long vectors. Hosts with about as many
devices share a table, so that one host with very many does not make all of them high.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]
Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]


class Table:
    """Arrays of `height` x hosts, one per amount; 0 (False) where a host has no such device."""

    def __init__(self, height: int, amounts: Mapping[str, npt.DTypeLike]) -> None:
        self._arrays: dict[str, Array] = {name: np.zeros((height, 16), dtype=kind) for name, kind in amounts.items()}
        self._used = 0
        self._vacant: list[int] = []

    def __len__(self) -> int:
        return self._used

    def add(self) -> int:
        """Return the place of a host more."""
        if self._vacant:
            return self._vacant.pop()
        place = self._used
        self._used += 1
        for name, array in self._arrays.items():
            if place == array.shape[1]:
                self._arrays[name] = np.concatenate((array, np.zeros_like(array)), axis=1)
        return place

    def drop(self, place: int) -> None:
        """Give a host's place to the next one."""
        for array in self._arrays.values():
            array[:, place] = 0
        self._vacant.append(place)

    def write(self, place: int, amounts: Mapping[str, Sequence[int]]) -> None:
        """Set what a host has, one amount a device."""
        for name, values in amounts.items():
            column = self._arrays[name][:, place]
            column[: len(values)] = values
            if len(values) < len(column):
                column[len(values) :] = 0

    def read(self, place: int, names: Sequence[str]) -> list[list[int]]:
        """Return some amounts of one host, padding included."""
        return [self._arrays[name][:, place].tolist() for name in names]

    def arrays(self, places: Rows | None) -> dict[str, Array]:
        """Return devices x hosts of some hosts, of all of them (not copied) for None."""
        if places is None:
            return {name: array[:, : self._used] for name, array in self._arrays.items()}
        return {name: array[:, places] for name, array in self._arrays.items()}


class Bank:
    """Tables of doubling height for one kind of device; hosts are addressed by their row."""

    def __init__(self, amounts: Mapping[str, npt.DTypeLike]) -> None:
        self._amounts = amounts
        self._tables: list[Table] = []
        self._table: npt.NDArray[np.int16] = np.full(64, -1, dtype=np.int16)
        self._place: Rows = np.zeros(64, dtype=np.intp)

    def put(self, row: int, devices: int, amounts: Mapping[str, Sequence[int]]) -> None:
        """Set amounts of a host with so many devices, one a device; amounts that are not named stay."""
        before = int(self._table[row]) if row < len(self._table) else -1
        table = _table_for(devices)
        if before != table:
            self._move(row, before, table)
        if table >= 0:
            self._tables[table].write(int(self._place[row]), amounts)

    def read(self, row: int, *names: str) -> list[list[int]] | None:
        """Return some amounts of one host, padding included; None when it has no such device."""
        table = int(self._table[row]) if 0 <= row < len(self._table) else -1
        return self._tables[table].read(int(self._place[row]), names) if table >= 0 else None

    def count(self, rows: Rows, of: Callable[[Arrays], Ints]) -> Ints:
        """Return a number per host, 0 without such devices; `of` counts it for arrays of devices x hosts."""
        result = np.zeros(len(rows), dtype=np.int64)
        for table, positions, places in self._parts(rows):
            # Counting all hosts of a table and picking is cheaper than copying the arrays of most of them.
            if 2 * len(places) > len(table):
                result[positions] = of(table.arrays(None))[places]
            else:
                result[positions] = of(table.arrays(places))
        return result

    def _move(self, row: int, before: int, table: int) -> None:
        while row >= len(self._table):
            self._table = np.concatenate((self._table, np.full_like(self._table, -1)))
            self._place = np.concatenate((self._place, np.zeros_like(self._place)))
        if before >= 0:
            self._tables[before].drop(int(self._place[row]))
        self._table[row] = table
        if table >= 0:
            while table >= len(self._tables):
                self._tables.append(Table(_LOWEST << len(self._tables), self._amounts))
            self._place[row] = self._tables[table].add()

    def _parts(self, rows: Rows) -> Iterator[tuple[Table, Rows | slice, Rows]]:
        known = rows < len(self._table)
        within = rows if known.all() else np.where(known, rows, 0)
        tables = np.where(known, self._table[within], -1)
        places = self._place[within]
        for number, table in enumerate(self._tables):
            chosen = tables == number
            if chosen.all():
                yield table, slice(None), places
            elif chosen.any():
                positions = np.flatnonzero(chosen)
                yield table, positions, places[positions]


_LOWEST = 8


def _table_for(number: int) -> int:
    """Return the number of the table whose height is just enough, -1 for hosts without devices."""
    return -1 if number == 0 else max(0, (number - 1).bit_length() - (_LOWEST - 1).bit_length())
