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
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from deltacompact.base import compute as pc
from deltacompact.base.data_file import DataFile, FarValues
from deltacompact.base.errors import InputError
from deltacompact.base.model import OperationType, Partition
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.base.partitions import done_for_each, side_by_side
from deltacompact.base.tokens import Token
from deltacompact.change_events.events import Events, Origin, all_places
from deltacompact.change_events.operations import Operations
from deltacompact.change_events.partitions import by_partition
from deltacompact.delta_streams.appending.changes import of_partition
from deltacompact.delta_streams.appending.incoming import key_columns
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.index.sort_widths import longest_values
from deltacompact.spark import arrow_types
from deltacompact.spark.options import WriteTarget
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import far_values, formats, null_counts, partition_texts, writing
from deltacompact.tabular.null_counts import NullCounts
from deltacompact.tabular.row_groups import WriteOptions

_log = logging.getLogger(__name__)
OPEN_FILES_MAX = 64
"""Files that a task holds open at a time; beyond that the one longest unused is finished."""

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
    target: WriteTarget, batches: Iterable[pa.RecordBatch], open_files_max: int = OPEN_FILES_MAX
) -> WrittenFiles:
    """Write a task's rows. Raises InputError naming the operation or partition value that has no meaning."""
    begun_s = time.time()
    with _OpenFiles(target, open_files_max) as out:
        for batch in batches:
            if batch.num_rows:
                table = pa.Table.from_batches([batch])
                for kind, rows in _routed(target, table.cast(arrow_types.written_schema(table.schema))):
                    out.write(kind, rows)
        written = out.close()
    context = TaskContext.get()
    return WrittenFiles(tuple(written), begun_s, context.getLocalProperty(_QUERY_ID) if context else None)


def commit_written(target: WriteTarget, messages: Iterable[WrittenFiles | None], token: Token | None) -> None:
    """Put one log entry for each partition. With a known token, commit nothing and log a warning.

    Raises the first error of a partition, which says how many others are committed.
    """
    by_partition: dict[Partition, dict[OperationType, list[DataFile]]] = {}
    tasks = [message for message in messages if message is not None]
    for task in tasks:
        for partition, operation, file in task.files:
            by_partition.setdefault(partition, {}).setdefault(operation, []).append(file)

    def commit(partition: Partition) -> None:
        files = by_partition[partition]
        deltas = [(kind, files[kind]) for kind in (OperationType.DELETE, OperationType.UPSERT) if kind in files]
        committed = target.catalog.commit(
            target.table.table_id,
            partition,
            deltas,
            target.position,
            token,
            min(task.begun_s for task in tasks),
            force_position=target.force_position,
            schema_mode=target.schema_mode,
        )
        if new := [name for delta in committed for name in delta.new_columns]:
            _log.warning("table %r, partition %s: new columns: %s", target.table.table_id, partition, ", ".join(new))
        if skipped := committed[0].skipped:
            _log.warning("table %r, partition %s: skipped: %s", target.table.table_id, partition, skipped)

    done, errors = done_for_each(sorted(by_partition, key=str), commit, target.catalog.at_once)
    if errors:
        partition, error = errors[0]
        raise of_partition(partition, error, len(done), len(by_partition), token) from error


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


def _routed(target: WriteTarget, table: pa.Table) -> Iterator[tuple[Kind, pa.Table]]:
    for partition, rows in _by_partition(target, table):
        partition_texts.check_partition_values(rows, partition, "the written rows")
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
    return _OPERATIONS.deletes(operations, Origin("the written rows"))


def _by_partition(target: WriteTarget, table: pa.Table) -> Iterator[tuple[Partition, pa.Table]]:
    """Rows by partition; within one, in their order."""
    fixed, keys = dict(target.fixed), target.table.partition_keys
    rows = Events("the written rows", all_places(table), all_places(table.slice(0, 0)))
    for values, here in by_partition(rows, target.routed, target.routes):
        yield Partition.of(keys, fixed | values), here.upserts.rows


@dataclass(slots=True)
class _OpenSparkFile:
    path: str
    schema: pa.Schema
    out: writing.TableWriter
    closing: contextlib.ExitStack
    longest: dict[str, int]
    far: FarValues = ()
    nulls: NullCounts = ()


class _OpenFiles:
    """The task's files. Those that are open when the block ends by an exception never appear."""

    def __init__(self, target: WriteTarget, open_max: int) -> None:
        self._open_max = open_max
        self._table_id = target.table.table_id
        self._keys = target.table.keys
        self._store: ObjectStore = target.catalog.store
        self._open: dict[Kind, _OpenSparkFile] = {}
        self._done: list[tuple[Partition, OperationType, DataFile]] = []

    def __enter__(self) -> _OpenFiles:
        return self

    def __exit__(self, *raised: object) -> None:
        for file in self._open.values():
            file.closing.__exit__(RuntimeError, RuntimeError("abandoned"), None)

    def write(self, kind: Kind, rows: pa.Table) -> None:
        file = self._open.pop(kind, None) or self._begin(kind, rows.schema)
        self._open[kind] = file  # last used, last in line
        for name, size in longest_values(rows, self._keys, "the written rows"):
            file.longest[name] = max(size, file.longest.get(name, 0))
        file.far = far_values.merged([file.far, far_values.of_table(rows)])
        file.nulls = null_counts.merged([file.nulls, null_counts.of_table(rows, key_columns(self._keys, kind[0]))])
        file.out.write(rows)

    def close(self) -> list[tuple[Partition, OperationType, DataFile]]:
        for kind in list(self._open):
            self._finish(kind)
        return self._done

    def _begin(self, kind: Kind, schema: pa.Schema) -> _OpenSparkFile:
        if len(self._open) == self._open_max:
            self._finish(next(iter(self._open)))
        options = WriteOptions()
        stream = TablePaths.of(self._table_id).stream(kind[0])
        path = stream.fresh("data", formats.suffix_of(options.content_type))
        closing = contextlib.ExitStack()
        out = closing.enter_context(writing.writer(self._store, path, schema, options))
        return _OpenSparkFile(path, schema, out, closing, {})

    def _finish(self, kind: Kind) -> None:
        file = self._open.pop(kind)
        file.closing.close()
        size = self._store.stat(file.path).bytes
        content_type = WriteOptions().content_type
        described = DataFile(UNNUMBERED, file.path, content_type, file.out.rows, size, file.schema)
        measured = replace(
            described,
            longest=tuple(file.longest.items()),
            decoded_bytes=file.out.decoded_bytes,
            far=file.far,
            group_bytes=file.out.group_bytes,
            widest_row_bytes=file.out.widest_row_bytes,
        )
        self._done.append((*kind, replace(measured, nulls=file.nulls if self._keys else None, decodes=True)))
