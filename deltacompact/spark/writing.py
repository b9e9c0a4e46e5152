"""A Spark task writes one data file for each partition and operation in its rows. Nobody sees the files yet.

    order_id  order_day   op        day=2024-01-01 upsert   data/5c….parquet  rows 1, 4
    1         2024-01-01  u    ->   day=2024-01-01 delete   data/9a….parquet  row 2
    2         2024-01-01  d         day=2024-01-02 upsert   data/e1….parquet  row 3
    3         2024-01-02  c
    4         2024-01-01  u

The driver commits all files of a partition in one log entry, deletes first, then upserts. In a CDC batch rows have no
order but their sort keys, so the fold finds a key's last operation by itself: a delete with a smaller sort key than an
upsert of the batch loses to it, one with a greater wins. With equal sort keys the upsert wins, and a delete without any
sort key clears what was there before the batch.

Rows wait in memory until the task ends. If too many wait, those of the partition and operation that has most go into a
file, which stays open while the same one has most again:

    waiting   day=1 60 MiB · day=2 40 MiB · day=3 30 MiB   ->   file of day=1 begins
              day=1 60 MiB · day=2 41 MiB · day=3 30 MiB   ->   file of day=1 grows
              day=1 20 MiB · day=2 70 MiB · day=3 40 MiB   ->   file of day=1 ends with its 20 MiB
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from deltacompact.base import compute as pc
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import InputError
from deltacompact.base.model import OperationType, Partition
from deltacompact.base.partitions import done_for_each, side_by_side
from deltacompact.base.tokens import Token
from deltacompact.change_events.events import Events, Origin, all_places
from deltacompact.change_events.operations import Operations
from deltacompact.change_events.partitions import by_partition
from deltacompact.delta_streams.appending import incoming
from deltacompact.delta_streams.appending.changes import of_partition
from deltacompact.delta_streams.appending.stream_writer import CommitTerms, StreamWriter
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.spark import arrow_types
from deltacompact.spark.options import WriteTarget
from deltacompact.tabular import formats, partition_texts
from deltacompact.tabular.loads import loads_of
from deltacompact.tabular.row_groups import WriteOptions

_log = logging.getLogger(__name__)
WAITING_BYTES_MAX = 128 << 20
"""Bytes of rows that a task holds before it writes some. The open file holds a row group more."""

_ARRAY_BYTES = 768
"""What an array takes besides its values: measured, 600 of numbers to 940 of strings."""

_ROUTED_AT_ONCE = 8
"""Parts of `WAITING_BYTES_MAX` that are divided by partition. Spark's own batches would leave a few rows in each."""

_NAME = "the written rows"
_OPERATIONS = Operations("the operation column", advice=": correct it")
_QUERY_ID = "sql.streaming.queryId"

Kind = tuple[Partition, OperationType]


@dataclass(frozen=True)
class WrittenFiles(WriterCommitMessage):
    """The message of one task to the driver. `begun_s`: when it began (seconds); `query_id`: of a streaming query."""

    files: tuple[tuple[Partition, OperationType, DataFile], ...]
    begun_s: float
    query_id: str | None = None


def write_rows(
    target: WriteTarget, batches: Iterable[pa.RecordBatch], waiting_bytes_max: int = WAITING_BYTES_MAX
) -> WrittenFiles:
    """Write a task's rows. Raises InputError naming the operation or partition value that has no meaning."""
    begun_s = time.time()
    portions = loads_of(_written_tables(batches), waiting_bytes_max // _ROUTED_AT_ONCE)
    waiting = _WaitingRows((_routed(target, rows) for rows in portions), waiting_bytes_max)
    written = list[tuple[Partition, OperationType, DataFile]]()
    while (kind := waiting.largest()) is not None:
        written.append(_written(target, kind, loads_of(waiting.taken(kind), waiting_bytes_max // _ROUTED_AT_ONCE)))
    context = TaskContext.get()
    return WrittenFiles(tuple(written), begun_s, context.getLocalProperty(_QUERY_ID) if context else None)


def commit_written(target: WriteTarget, messages: Iterable[WrittenFiles | None], token: Token | None) -> None:
    """Put one log entry for each partition. With a known token, commit nothing and log a warning.

    Raises TokenError, before anything is committed, if a partition knows the token for another batch; then the first
    error of a partition, which says how many others are committed.
    """
    by_partition: dict[Partition, dict[OperationType, list[DataFile]]] = {}
    tasks = [message for message in messages if message is not None]
    for task in tasks:
        for partition, operation, file in task.files:
            by_partition.setdefault(partition, {}).setdefault(operation, []).append(file)

    deltas = {
        partition: [(kind, files[kind]) for kind in (OperationType.DELETE, OperationType.UPSERT) if kind in files]
        for partition, files in by_partition.items()
    }
    one_operation = target.operation_column is None

    def look(partition: Partition) -> None:
        writer = StreamWriter(target.catalog, target.table.table_id, partition)
        terms = CommitTerms(token=token, one_operation=one_operation)
        writer.committed_by(terms, tuple(kind for kind, _ in deltas[partition]))

    def commit(partition: Partition) -> None:
        committed = target.catalog.commit(
            target.table.table_id,
            partition,
            deltas[partition],
            target.position,
            token,
            min(task.begun_s for task in tasks),
            force_position=target.force_position,
            schema_mode=target.schema_mode,
            one_operation=one_operation,
        )
        if new := [name for delta in committed for name in delta.new_columns]:
            _log.warning("table %r, partition %s: new columns: %s", target.table.table_id, partition, ", ".join(new))
        if skipped := committed[0].skipped:
            _log.warning("table %r, partition %s: skipped: %s", target.table.table_id, partition, skipped)

    partitions = sorted(deltas, key=str)
    side_by_side(partitions, look, target.catalog.at_once)
    done, errors = done_for_each(partitions, commit, target.catalog.at_once)
    if errors:
        partition, error = errors[0]
        raise of_partition(partition, error, len(done), len(partitions), token) from error


def refuse_older_batch(target: WriteTarget, messages: Iterable[WrittenFiles | None], token: Token) -> None:
    """Raise InputError if a partition knows a later batch of the stream: this one would count as known, and be dropped.

    Spark runs only its last batch again, so the numbers are those of two checkpoints.
    """
    assert token.sequence is not None
    later = replace(token, sequence=token.sequence + 1)
    places = {partition for message in messages if message for partition, _, _ in message.files}

    def look(partition: Partition) -> None:
        log = target.catalog.log(target.table.table_id, partition)
        known = log.recent().known(later) if log.exists() else None
        if known is not None:
            raise InputError(
                f"table {target.table.table_id!r}, partition {partition}: token {token} comes after sequence "
                f"{known.sequence}, of another checkpoint: give another token"
            )

    side_by_side(sorted(places, key=str), look, target.catalog.at_once)


def _written_tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    for batch in batches:
        if batch.num_rows:
            table = pa.Table.from_batches([batch])
            yield table.cast(arrow_types.written_schema(table.schema))


def _routed(target: WriteTarget, table: pa.Table) -> Iterator[tuple[Kind, pa.Table]]:
    for partition, rows in _by_partition(target, table):
        partition_texts.check_partition_values(rows, partition, _NAME)
        if target.operation_column is None:
            if target.operation is OperationType.DELETE:
                rows = rows.select(target.delete_columns(rows.column_names))
            yield (partition, target.operation), rows
            continue
        deletes = _deletes(rows[target.operation_column])
        rows = rows.drop_columns([target.operation_column])
        if deletes.any():
            dead = rows.select(target.delete_columns(rows.column_names))
            yield (partition, OperationType.DELETE), dead.filter(pa.array(deletes))
        if not deletes.all():
            yield (partition, OperationType.UPSERT), rows.filter(pa.array(~deletes))


def _deletes(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Which rows are deletes. Case and blanks around a value do not count."""
    operations = pc.utf8_lower(pc.utf8_trim_whitespace(column.cast(pa.string())))
    return _OPERATIONS.deletes(operations, Origin(_NAME))


def _by_partition(target: WriteTarget, table: pa.Table) -> Iterator[tuple[Partition, pa.Table]]:
    """Rows by partition; within one, in their order."""
    fixed, keys = dict(target.fixed), target.table.partition_keys
    rows = Events(_NAME, all_places(table), all_places(table.slice(0, 0)))
    for values, here in by_partition(rows, target.routed, target.routes):
        yield Partition.of(keys, fixed | values), here.upserts.rows


@dataclass
class _RowsOfKind:
    tables: list[pa.Table] = field(default_factory=list)
    value_bytes: int = 0
    array_bytes: int = 0

    @property
    def bytes(self) -> int:
        return self.value_bytes + self.array_bytes

    def add(self, rows: pa.Table) -> None:
        """Copy the rows: a part of a batch would keep the whole batch in memory."""
        table = rows.take(pa.array(np.arange(rows.num_rows)))
        one_table = _ARRAY_BYTES * sum(map(_arrays, table.schema.types))
        self.tables.append(table)
        self.value_bytes += table.nbytes
        self.array_bytes += one_table
        if self.array_bytes > max(self.value_bytes, one_table):  # a wide table with a few rows from each portion
            self.tables = [pa.concat_tables(self.tables).combine_chunks()]
            self.array_bytes = one_table


class _WaitingRows:
    """Rows in memory that are in no file yet. Reads `portions`, each divided by kind, until too many wait."""

    def __init__(self, portions: Iterator[Iterable[tuple[Kind, pa.Table]]], bytes_max: int) -> None:
        self._portions = portions
        self._bytes_max = bytes_max
        self._rows: dict[Kind, _RowsOfKind] = {}

    def largest(self) -> Kind | None:
        """The kind that has most bytes when too many wait or no more rows come. None: no rows are left."""
        while self.bytes <= self._bytes_max and (portion := next(self._portions, None)) is not None:
            for kind, rows in portion:
                self._rows.setdefault(kind, _RowsOfKind()).add(rows)
        return max(self._rows, key=lambda kind: self._rows[kind].bytes, default=None)

    @property
    def bytes(self) -> int:
        return sum(rows.bytes for rows in self._rows.values())

    def taken(self, kind: Kind) -> Iterator[pa.Table]:
        """Rows of the kind, in their order, for as long as it is the largest."""
        while self.largest() == kind:
            yield from self._rows.pop(kind).tables
        if kind in self._rows:
            yield from self._rows.pop(kind).tables


def _arrays(type_: pa.DataType) -> int:
    return 1 + sum(_arrays(type_.field(place).type) for place in range(type_.num_fields))


def _written(target: WriteTarget, kind: Kind, tables: Iterator[pa.Table]) -> tuple[Partition, OperationType, DataFile]:
    """Write the rows as one file."""
    options, first = WriteOptions(), next(tables)
    rows = incoming.Rows(_NAME, first.schema, chain((first,), tables), is_empty=False)
    stream = TablePaths.of(target.table.table_id).stream(kind[0])
    path = stream.fresh("data", formats.suffix_of(options.content_type))
    return *kind, incoming.write_rows(target.catalog.store, path, rows, kind[0], options, target.table.keys)
