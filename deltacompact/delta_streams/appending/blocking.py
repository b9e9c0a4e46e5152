"""Finds the deltas that block a stream: as long as they wait, no compaction can fold it, and no reader can read it.

    position 80   a.parquet   id int64                 fits
    position 90   b.parquet   no column id             does not fit what came before: blocks
    position 95   c.parquet   id int64, damaged page   fits, but a fold of it fails: blocks

An error during a fold may name an innocent file: for example, a compacted file that does not fit the type of a later
delta. So the deltas are checked in stream order, as an append would check them, and a named file is folded alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import Delta
from deltacompact.base.errors import InputError
from deltacompact.base.model import OperationType, Partition, Table
from deltacompact.base.numbers import Ordinal
from deltacompact.base.table_keys import TableKeys
from deltacompact.delta_streams.appending.far import Measure
from deltacompact.delta_streams.appending.shape import StreamShape, compacted_shape, lengths_of
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.index.keys import Encoding
from deltacompact.index.live_bitmaps import live_tables
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.index.sort_widths import measured_file
from deltacompact.steps.hash_bucket import check_values, pack
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import schemas
from deltacompact.tabular.far_files import with_far_values

if TYPE_CHECKING:
    from deltacompact.delta_streams.streams import Streams


@dataclass(frozen=True, slots=True)
class Misfit:
    """A file that does not fit the files before it, and why."""

    delta: Delta
    file: DataFile
    why: InputError


@dataclass(frozen=True, slots=True)
class Examined:
    """The files that fit each other, each with its delta; the shape of these; and the files that do not fit."""

    shape: StreamShape
    fitting: Sequence[tuple[Delta, DataFile]]
    misfits: Sequence[Misfit]


def measuring(store: ObjectStore, keys: TableKeys | None) -> Measure:
    """A function that measures what the log may lack about a file: lengths of sort values, and far values."""
    return lambda file: with_far_values(store, measured_file(store, file, keys))


def examined(catalog: Streams, table: Table, state: StreamState) -> Examined:
    """Check all waiting deltas, in stream order. Reads a file only if the log lacks facts about its values."""

    def indexed() -> Encoding:
        assert state.index is not None
        return read_manifest(catalog.store, state.index).encoding

    measure = measuring(catalog.store, table.keys)
    shape, fitting, misfits = compacted_shape(table, state, indexed), list[tuple[Delta, DataFile]](), list[Misfit]()
    for delta, file in [(waiting, file) for waiting in state.deltas for file in waiting.files]:
        try:
            shape = shape.with_file(delta.operation, lengths_of(file, table.keys, measure), measure)
            fitting.append((delta, file))
        except InputError as error:
            misfits.append(Misfit(delta, file, error))
    return Examined(shape, fitting, misfits)


def culprit(
    catalog: Streams,
    table_id: str,
    partition: Partition,
    state: StreamState,
    named: str,
    keys: TableKeys | None = None,
) -> tuple[Delta, DataFile, str] | None:
    """(delta to take out, its file, what is wrong) after an error that names files. None: no delta is proved to block.

    `keys`: those of a first compaction. If no file fits them, the keys are wrong, and not the files.
    """
    table = catalog.described(table_id)
    found = examined(catalog, table if table.keys else table.with_keys(keys), state)
    if found.misfits:
        if table.keys is None and not found.fitting:
            return None
        first = next((misfit for misfit in found.misfits if misfit.file.path in named), found.misfits[0])
        return first.delta, first.file, str(first.why)
    for delta, file in found.fitting:
        if file.path in named:
            try:
                fold(catalog.store, found.shape, partition, delta.operation, file)
            except InputError as error:
                return delta, file, str(error)
    return None


def fold(
    store: ObjectStore, shape: StreamShape, partition: Partition, operation: OperationType, file: DataFile
) -> None:
    """Hash and align a delta's rows as a compaction and a reader do. Raises their errors."""
    for rows, table in live_tables(store, file):
        check_values(table, shape.encoding, partition, file)
        if shape.encoding is not None:
            pack(table, shape.encoding, file.path, Ordinal(0), operation, rows)
        if operation is OperationType.UPSERT:
            schemas.align(table, shape.rows, partition, file.path)
