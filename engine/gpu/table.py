"""Amounts per device of many hosts in dense arrays: rows of hosts, padded to the width of the widest in the table.

Hosts with about as many devices share a table, so that one host with very many does not make all of them wide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]
Array = npt.NDArray[Any]
Columns = Mapping[str, Array]


class Table:
    """Arrays of hosts x `width`, one per column; 0 (False) where a host has no such device."""

    def __init__(self, width: int, columns: Mapping[str, npt.DTypeLike]) -> None:
        self._width = width
        self._arrays: dict[str, Array] = {name: np.zeros((16, width), dtype=kind) for name, kind in columns.items()}
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
            if place == len(array):
                self._arrays[name] = np.concatenate((array, np.zeros_like(array)))
        return place

    def drop(self, place: int) -> None:
        """Give a host's place to the next one."""
        for array in self._arrays.values():
            array[place] = 0
        self._vacant.append(place)

    def write(self, place: int, amounts: Mapping[str, Sequence[int]]) -> None:
        """Set the columns of a host, one amount a device."""
        for name, values in amounts.items():
            row = self._arrays[name][place]
            row[: len(values)] = values
            row[len(values) :] = 0

    def read(self, place: int) -> dict[str, list[int]]:
        """Return the columns of one host, padding included."""
        return {name: array[place].tolist() for name, array in self._arrays.items()}

    def columns(self, places: Rows | None) -> dict[str, Array]:
        """Return the columns of some hosts, of all of them (not copied) for None."""
        if places is None:
            return {name: array[: self._used] for name, array in self._arrays.items()}
        return {name: array[places] for name, array in self._arrays.items()}


class Bank:
    """Tables of doubling width for one kind of device; hosts are addressed by their row."""

    def __init__(self, columns: Mapping[str, npt.DTypeLike]) -> None:
        self._columns = columns
        self._tables: list[Table] = []
        self._table: npt.NDArray[np.int16] = np.full(64, -1, dtype=np.int16)
        self._place: Rows = np.zeros(64, dtype=np.intp)

    def put(self, row: int, amounts: Mapping[str, Sequence[int]]) -> None:
        """Set the amounts of a host's devices; empty ones: it has none."""
        while row >= len(self._table):
            self._table = np.concatenate((self._table, np.full_like(self._table, -1)))
            self._place = np.concatenate((self._place, np.zeros_like(self._place)))
        number = max((len(values) for values in amounts.values()), default=0)
        before, table = int(self._table[row]), _table_for(number)
        if before != table:
            if before >= 0:
                self._tables[before].drop(int(self._place[row]))
            self._table[row] = table
            if table >= 0:
                while table >= len(self._tables):
                    self._tables.append(Table(_NARROWEST << len(self._tables), self._columns))
                self._place[row] = self._tables[table].add()
        if table >= 0:
            self._tables[table].write(int(self._place[row]), amounts)

    def read(self, row: int) -> dict[str, list[int]] | None:
        """Return the columns of one host, padding included; None when it has no such device."""
        table = int(self._table[row]) if 0 <= row < len(self._table) else -1
        return self._tables[table].read(int(self._place[row])) if table >= 0 else None

    def count(self, rows: Rows, of: Callable[[Columns], Ints]) -> Ints:
        """Return a number per host, 0 without such devices; `of` counts it for arrays of hosts x devices."""
        result = np.zeros(len(rows), dtype=np.int64)
        for table, positions, places in self._parts(rows):
            # Counting all hosts of a table and picking is cheaper than copying the arrays of most of them.
            if 2 * len(places) > len(table):
                result[positions] = of(table.columns(None))[places]
            else:
                result[positions] = of(table.columns(places))
        return result

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


_NARROWEST = 8


def _table_for(number: int) -> int:
    """Return the number of the table whose width is just enough, -1 for hosts without devices."""
    return -1 if number == 0 else max(0, (number - 1).bit_length() - (_NARROWEST - 1).bit_length())
