"""The fold in plain Python, by the words of the design: which rows a table holds after some deltas, and how many died.

    oracle = Oracle(["k"], [("t", "ascending")])
    oracle.apply(1, "upsert", [[{"k": "a", "t": 10}]])
    oracle.apply(2, "delete", [[{"k": "a", "t": 20}]])     keyed: leaves a tombstone with t = 20
    oracle.apply(3, "upsert", [[{"k": "a", "t": 15}]])     stays dead
    oracle.rows()                                          []

Rows are dicts, files are lists of rows; a column that a row lacks is null. NaN is one value, above every number.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass
class Current:
    """What a key holds: a live row, or a tombstone (row None), left at a stream position."""

    row: Row | None
    sort_key: tuple[Any, ...]
    position: int


class Oracle:
    """Sort keys are (column, "ascending" | "descending"); without any, the later row wins."""

    def __init__(
        self,
        keys: Iterable[str],
        sort_keys: Sequence[tuple[str, str]] = (),
        tombstone_retention: int | None = None,
    ) -> None:
        self.keys = sorted(keys)
        self.sort_keys = list(sort_keys)
        self.retention = tombstone_retention
        self.upserts = self.delete_rows = self.superseded = self.deleted = 0
        self._current: dict[tuple[Any, ...], Current] = {}

    def apply(self, position: int, operation: str, files: Sequence[Sequence[Row]]) -> None:
        for rows in files:
            for row in rows:
                if operation == "upsert":
                    self._upsert(position, row)
                else:
                    self._delete(position, row)

    def rows(self) -> list[Row]:
        return [current.row for current in self._current.values() if current.row is not None]

    def _upsert(self, position: int, row: Row) -> None:
        self.upserts += 1
        key, sort_key = self._key(row), self._sort_key(row)
        current = self._blocking(key, position)
        if current is None or sort_key >= current.sort_key:
            self._current[key] = Current(row, sort_key, position)
            self.superseded += current is not None and current.row is not None
        elif current.row is not None:
            self.superseded += 1
        else:
            self.deleted += 1

    def _delete(self, position: int, row: Row) -> None:
        self.delete_rows += 1
        key, sort_key = self._key(row), self._sort_key(row)
        current = self._blocking(key, position)
        keyless = all(row.get(name) is None for name, _ in self.sort_keys)
        if not keyless and current is not None and sort_key < current.sort_key:
            return
        self.deleted += current is not None and current.row is not None
        self._current.pop(key, None)
        if not keyless:
            self._current[key] = Current(None, sort_key, position)

    def _blocking(self, key: tuple[Any, ...], position: int) -> Current | None:
        """The row or the retained tombstone of the key that an event at this position must beat."""
        current = self._current.get(key)
        if current is None or current.row is not None or self.retention is None:
            return current
        return current if position - current.position <= self.retention else None

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(_same(row.get(name)) for name in self.keys)

    def _sort_key(self, row: Row) -> tuple[Any, ...]:
        return tuple(_ranked(row.get(name), direction) for name, direction in self.sort_keys)


def _same(value: Any) -> Any:
    """The value, with every NaN replaced by the same one. Python takes both zeros for equal already."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def _ranked(value: Any, direction: str) -> tuple[Any, ...]:
    """Compares as the sort order says: null lowest in both directions, NaN above every number."""
    if value is None:
        return (0,)
    is_nan = isinstance(value, float) and math.isnan(value)
    ranked = (is_nan, 0.0 if is_nan else value)
    return (1, _Reversed(ranked) if direction == "descending" else ranked)


@functools.total_ordering
class _Reversed:
    """Compares the other way round."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.value == other.value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)
