"""The resources of every host, total and free, in dense arrays: one row per host, one column per resource.

Claims (`engine.api.resources`) are too many and too rarely held for columns: their holders are kept separately. So are
amounts of resources that no host has ever had: anybody may bind a pod to a host by its name, and may invent tens of
thousands of resources in it.
"""

from __future__ import annotations

import numpy as np

from engine.api.resources import Requests, Resources, is_claim
from engine.capacity.counts import add_in
from engine.devices.ledger import Rows
from engine.planner.tree import Ints64


class ResourceTable:
    """Amounts by row and column; `columns` are those of the resources that a host has named."""

    def __init__(self) -> None:
        self.columns: dict[str, int] = {}
        self.free: Ints64 = np.zeros((64, 8), dtype=np.int64)
        self._alloc: Ints64 = np.zeros((64, 8), dtype=np.int64)
        self._claimed: dict[str, dict[int, int]] = {}  # claim -> row -> pods that hold it there
        self._unnamed: dict[int, dict[str, int]] = {}  # row -> resource without a column -> its free amount, below 0

    def make_row(self, row: int) -> None:
        """Grow the arrays for the next row; rows are added one after the other."""
        if row == self.free.shape[0]:
            self.free = _grown(self.free, axis=0)
            self._alloc = _grown(self._alloc, axis=0)

    def set_allocatable(self, row: int, allocatable: Resources) -> None:
        """Set the allocatable amounts of a host."""
        for resource in allocatable:
            self._column(resource)
        fresh = np.zeros(self._alloc.shape[1], dtype=np.int64)
        for resource, amount in allocatable.items():
            fresh[self.columns[resource]] = amount
        self.free[row] += fresh - self._alloc[row]
        self._alloc[row] = fresh

    def add(self, row: int, requests: Requests, times: int) -> None:
        """Add the requests of `times` pods to the free amounts; a negative number subtracts them."""
        for resource, amount in requests:
            if is_claim(resource):
                add_in(self._claimed, resource, row, -amount * times)
                continue
            column = self.columns.get(resource)
            if column is None:
                add_in(self._unnamed, row, resource, amount * times)
            else:
                self.free[row, column] += amount * times

    def untouched(self, row: int) -> bool:
        """True when a row is unused: its host is deleted, and no pod was on it."""
        return row not in self._unnamed and not self.free[row].any()

    def of(self, rows: Rows, resource: str, *, empty: bool = False) -> Ints64:
        """Return the free amount of one resource on some rows; with `empty`, the amount without any pods.

        Reading never adds a column, for any resource name; what no host has ever had is 0.
        """
        if is_claim(resource):
            left = np.ones(len(self.free), dtype=np.int64)
            for row, holders in {} if empty else self._claimed.get(resource, {}).items():
                left[row] -= holders
            return left[rows]
        column = self.columns.get(resource)
        amounts = self._alloc if empty else self.free
        return np.zeros(len(rows), dtype=np.int64) if column is None else amounts[rows, column]

    def left(self, row: int, resource: str) -> int:
        """Return the free amount of one resource on one row."""
        if is_claim(resource):
            return 1 - self._claimed.get(resource, {}).get(row, 0)
        column = self.columns.get(resource)
        return self._unnamed.get(row, {}).get(resource, 0) if column is None else int(self.free[row, column])

    def all_left(self, row: int) -> dict[str, int]:
        """Return the free amount of every resource on one row."""
        named = {resource: int(self.free[row, column]) for resource, column in self.columns.items()}
        return {**named, **self._unnamed.get(row, {})}

    def exists(self, resource: str) -> bool:
        """True when some host has some of the resource."""
        column = self.columns.get(resource)
        return column is not None and bool((self._alloc[:, column] > 0).any())

    def hosts_with(self, resource: str) -> int:
        """Return how many hosts have some of the resource."""
        column = self.columns.get(resource)
        return 0 if column is None else int((self._alloc[:, column] > 0).sum())

    def _column(self, resource: str) -> int:
        column = self.columns.get(resource)
        if column is None:
            column = self.columns[resource] = len(self.columns)
            if column == self.free.shape[1]:
                self.free = _grown(self.free, axis=1)
                self._alloc = _grown(self._alloc, axis=1)
            for row in [row for row, amounts in self._unnamed.items() if resource in amounts]:
                self.free[row, column] = self._unnamed[row][resource]
                add_in(self._unnamed, row, resource, -self._unnamed[row][resource])
        return column


def _grown(array: Ints64, *, axis: int) -> Ints64:
    """Return the array doubled along one axis, the new part zero."""
    return np.concatenate([array, np.zeros_like(array)], axis=axis)
