"""A batch of change events: upserts and deletes, each row with its place in the batch.

    op  id  name                upserts   id 1 "Ann"   place 0        deletes   id 1   place 1
    c   1   Ann                           id 2 "Bob"   place 3
    d   1
    m   …       (ignored)
    c   2   Bob

The two have columns of their own: a delete needs the key and sort columns only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Indices = npt.NDArray[np.int64]
_NO_ROWS: tuple[pa.Schema | None, pa.Schema | None] = (None, None)
BATCH_BYTES = 256 << 20
"""Rows of about so many bytes are taken together: what they supersede among themselves is never written."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where rows come from, for messages. `numbers` has the row or line of each, if they are not simply 1, 2, 3."""

    name: str
    numbers: Indices | None = None
    unit: str = "row"

    def row(self, index: int) -> str:
        number = index + 1 if self.numbers is None else self.numbers[index]
        return f"{self.name}, {self.unit} {number:,}"

    def of(self, indices: Indices) -> Origin:
        """The origin of these rows alone."""
        return replace(self, numbers=indices + 1 if self.numbers is None else self.numbers[indices])


@dataclass(frozen=True, slots=True)
class Placed:
    """Rows of one operation, and the place of each in the batch. Places ascend."""

    rows: pa.Table
    places: Indices

    def take(self, indices: Indices) -> Placed:
        if len(indices) == self.rows.num_rows:  # indices ascend
            return self
        return Placed(self.rows.take(pa.array(indices)), self.places[indices])


@dataclass(frozen=True, slots=True)
class Events:
    """A batch. `name` is that of the table or file, for messages."""

    name: str
    upserts: Placed
    deletes: Placed

    @property
    def schemas(self) -> tuple[pa.Schema, pa.Schema]:
        return self.upserts.rows.schema, self.deletes.rows.schema

    @property
    def columns(self) -> tuple[pa.Schema | None, pa.Schema | None]:
        """The columns of upserts and of deletes; None: there are none, and a parser may have found any."""
        upserts, deletes = (side.rows.schema if side.rows.num_rows else None for side in (self.upserts, self.deletes))
        return upserts, deletes

    @property
    def count(self) -> int:
        return int(self.upserts.rows.num_rows + self.deletes.rows.num_rows)

    @property
    def bytes(self) -> int:
        return int(self.upserts.rows.nbytes + self.deletes.rows.nbytes)


def all_places(table: pa.Table) -> Placed:
    """Rows that are the whole batch."""
    return Placed(table, np.arange(table.num_rows, dtype=np.int64))


def joined(events: Iterable[Events]) -> Iterable[Events]:
    """The batches in order; neighbours whose rows have the same columns become one, up to a size."""
    alike, size, known = list[Events](), 0, _NO_ROWS
    for batch in events:
        own = batch.columns
        if any(None not in pair and pair[0] != pair[1] for pair in zip(known, own, strict=True)):
            yield _one(alike)
            alike, size, known = [], 0, _NO_ROWS
        alike.append(batch)
        size += batch.bytes
        known = known[0] or own[0], known[1] or own[1]
        if size >= BATCH_BYTES:
            yield _one(alike)
            alike, size, known = [], 0, _NO_ROWS
    if alike:
        yield _one(alike)


def _one(batch: Sequence[Events]) -> Events:
    if len(batch) == 1:
        return batch[0]
    ends = [max((int(p.places[-1]) + 1 for p in (b.upserts, b.deletes) if len(p.places)), default=0) for b in batch]
    starts = np.cumsum([0, *ends[:-1]])

    def together(of: Callable[[Events], Placed]) -> Placed:
        placed = [
            replace(of(events), places=of(events).places + start) for events, start in zip(batch, starts, strict=True)
        ]
        rows = [p.rows for p in placed if p.rows.num_rows] or [placed[0].rows]
        return Placed(pa.concat_tables(rows), np.concatenate([p.places for p in placed]))

    return Events(batch[0].name, together(lambda events: events.upserts), together(lambda events: events.deletes))


def first_null(column: pa.ChunkedArray) -> int | None:
    """The first row that has no value."""
    return int(np.argmax(np.asarray(column.is_null()))) if column.null_count else None
