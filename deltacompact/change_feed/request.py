"""A user's request for changes, and the reader that answers it.

changes_of(range, ChangesRequest(columns=["id"], where="total > 9"))      a RecordBatchReader

Nothing is read before the first batch is asked for. Temporary files are deleted when the reader ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Protocol

import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError
from deltacompact.base.limits import ReadLimits
from deltacompact.base.settings import Settings
from deltacompact.base.wording import columns_shown
from deltacompact.change_feed.columns import feed_schema
from deltacompact.change_feed.feed import FEED_MEMORY_BYTES, Feed
from deltacompact.change_feed.row_digests import digestible
from deltacompact.change_feed.steps import ChangeStep
from deltacompact.planning.sizing.task_memory import TASK_BASE_BYTES
from deltacompact.planning.within_memory import within_memory
from deltacompact.reading.selection import Selected, expression_of, named_columns
from deltacompact.tabular import partition_texts


class ChangeRange(Protocol):
    """Two ends of a table's history: of a branch, or of a partition of streams."""

    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def partition_keys(self) -> tuple[str, ...]:
        """Columns that can be asked for although no file has them."""

    def lacking(self, name: str) -> str | None:
        """Which end has no such column; None: both have it."""

    def files(self) -> tuple[frozenset[str], frozenset[str]]:
        """The files of both ends."""

    def net(self) -> list[ChangeStep]: ...
    def commits(self) -> list[ChangeStep]: ...


@dataclass(frozen=True, slots=True)
class ChangesRequest:
    """Which changes.

    per_commit      those of each commit; else the net change: the first before, the last after
    before          updates come with what was before
    columns         (None: all), and `where`: the feed is that of `SELECT columns FROM table WHERE where`
    key             the columns that identify a row (None: the table's own; empty: none)
    memory_bytes    what this process may take in all (None: no bound)
    held_bytes      what the feed may hold of it. Tests make it small
    """

    per_commit: bool = False
    before: bool = False
    columns: Sequence[str] | None = None
    where: Any = None
    key: Sequence[str] | None = None
    memory_bytes: int | None = None
    held_bytes: int = FEED_MEMORY_BYTES

    def __post_init__(self) -> None:
        for name in ("columns", "key"):  # an iterator can be read only once
            object.__setattr__(self, name, named_columns(getattr(self, name)))

    def selected(self, table_id: str, whole: pa.Schema, partition_keys: Sequence[str]) -> Selected:
        """What the feed returns and reads of these columns. Raises InputError for an unknown column."""
        where = text_filter(self.where) if isinstance(self.where, str) else self.where
        return Selected.of(table_id, whole, self.columns, where, partition_keys)

    def bounded(self) -> Settings:
        """How the memory is divided. Raises InputError for too little."""
        return within_memory(Settings(executor="local", local_threads=1, memory_bytes=self.memory_bytes))

    def reading(self, usual: ReadLimits) -> ReadLimits:
        """How much is read at a time."""
        return usual if self.memory_bytes is None else self.bounded().limits.reading

    def held(self) -> int:
        """The bytes that the feed may hold: half of a reading task's memory."""
        settings = self.bounded()
        if self.memory_bytes is None or settings.memory_per_task_bytes is None:
            return self.held_bytes
        return (settings.memory_per_task_bytes - TASK_BASE_BYTES) // 2


def changes_of(
    table_id: str, ranges: Sequence[ChangeRange], whole: pa.Schema, asked: ChangesRequest
) -> pa.RecordBatchReader:
    """The changes of some ranges, one after the other. `whole` has the columns of all of them.

    Raises InputError for an unknown column, and for a key that an end does not have.
    """
    partition_keys = tuple(dict.fromkeys(name for range_ in ranges for name in range_.partition_keys))
    known = partition_texts.with_partition_keys(whole, partition_keys) if len(whole) else whole
    if not len(whole):  # where no row was ever there, nobody knows the columns
        asked = replace(asked, where=None, columns=None)
    selected = asked.selected(table_id, whole, partition_keys)
    schema = feed_schema(table_id, selected.wanted)
    feeds = [_feed(table_id, range_, known, selected, asked) for range_ in ranges]

    def batches() -> Iterator[pa.RecordBatch]:
        ordinals = count()
        for range_, feed in zip(ranges, feeds, strict=True):
            for step in range_.commits() if asked.per_commit else range_.net():
                commit = replace(step.commit, ordinal=next(ordinals)) if asked.per_commit else step.commit
                for table in feed.changes(step.candidates(), commit):
                    yield from table.to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _feed(table_id: str, range_: ChangeRange, whole: pa.Schema, selected: Selected, asked: ChangesRequest) -> Feed:
    wanted = range_.key if asked.key is None else asked.key
    key = wanted if len(whole) else ()
    for name in key:
        if name not in whole.names:
            raise InputError(f"table {table_id!r} has no column {name!r} for a key ({columns_shown(whole.names)})")
        if not digestible(whole.field(name).type):
            raise InputError(f"table {table_id!r}: column {name!r} is {whole.field(name).type}, which cannot be a key")
        if (end := range_.lacking(name)) is not None:
            raise InputError(
                f"table {table_id!r}: {end} of the feed has no column {name!r}, so it cannot be a key: name another one"
            )
    read = {*selected.needed.names, *key}
    needed = pa.schema([column for column in whole if column.name in read])
    return Feed(replace(selected, needed=needed), tuple(key), asked.before, asked.held())


def narrowed(where: Any, wanted: pc.Expression) -> Callable[[pa.Schema], pc.Expression]:
    """A filter, of any form, and this expression, too."""

    def both(columns: pa.Schema) -> pc.Expression:
        asked = text_filter(where) if isinstance(where, str) else where
        found = expression_of(asked(columns) if callable(asked) else asked)
        return wanted if found is None else found & wanted

    return both


def text_filter(where: str) -> Callable[[pa.Schema], pc.Expression]:
    """What a text like "day = '2026-11-22' and id > 7" means for some columns."""
    from deltacompact.iceberg.table.pyiceberg_door.row_filters import row_filter  # PyIceberg takes long to import

    return partial(row_filter, where)
