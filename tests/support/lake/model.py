"""The rows that a lake must hold: the oracle folds the events of each partition.

events     5 upsert (1, a) (2, b) · 6 delete (1)        compacted = 1: the first event is in compacted files
folded     (2, b)                                       one superseded or deleted row is counted
history    version "0-…" -> all events at its seal      what a read of that old version must show
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from columns import Kind, bag
from oracle import Oracle, Row

Content = tuple[list[Row], dict[str, Any]]
"""One file to write: its rows, and the type of each column."""


@dataclass(frozen=True)
class Event:
    """One delta in the model."""

    position: int
    operation: str
    files: tuple[tuple[Row, ...], ...]


@dataclass(frozen=True)
class Shape:
    """A table's declaration and the kinds of its columns. `plain`: every file format can store its values."""

    keys: dict[str, Kind]
    sorts: dict[str, Kind]
    directions: tuple[str, ...]
    payloads: dict[str, Kind]
    retention: int | None
    days: tuple[str | None, ...]
    declared: bool
    plain: bool

    @property
    def sort_keys(self) -> list[tuple[str, str]]:
        return list(zip(self.sorts, self.directions, strict=True))

    @property
    def columns(self) -> dict[str, Kind]:
        return {**self.keys, **self.sorts, **self.payloads}

    @property
    def partitioned(self) -> bool:
        return self.days != (None,)


@dataclass
class Stream:
    """One partition: its events, how many of them are compacted, and the events of every version at its seal.

    `said` has the events of every moment: a destination may have folded any of them.
    """

    events: list[Event] = field(default_factory=list)
    compacted: int = 0
    history: dict[str, tuple[list[Event], int]] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    begun: bool = False
    destination: list[Event] | None = None
    said: list[list[Event]] = field(default_factory=list)


def folded(shape: Shape, events: Sequence[Event]) -> Oracle:
    """Fold these events. If no tombstone expires, check the result by the design's one sentence (`_greatest`)."""
    oracle = Oracle(shape.keys, shape.sort_keys, shape.retention)
    for event in events:
        oracle.apply(event.position, event.operation, event.files)
    if shape.retention is None:
        assert bag(oracle.rows()) == bag(_greatest(oracle, events))
    return oracle


def unfolded(events: Sequence[Event]) -> list[Row]:
    """The rows of a table without keys: every upserted row."""
    return [row for event in events if event.operation == "upsert" for rows in event.files for row in rows]


def _greatest(oracle: Oracle, events: Sequence[Event]) -> list[Row]:
    """Per key the row of the greatest (sort key, order) after the last delete without sort key."""
    candidates: dict[Any, list[tuple[Any, int, Row | None]]] = {}
    flat = [(event.operation, row) for event in events for rows in event.files for row in rows]
    for order, (operation, row) in enumerate(flat):
        of_key = candidates.setdefault(oracle._key(row), [])
        if operation == "delete" and all(row.get(name) is None for name, _ in oracle.sort_keys):
            of_key.clear()
        else:
            of_key.append((oracle._sort_key(row), order, None if operation == "delete" else row))
    winners = [max(of_key, key=lambda candidate: candidate[:2])[2] for of_key in candidates.values() if of_key]
    return [row for row in winners if row is not None]
