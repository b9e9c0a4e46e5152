"""Reading tables: choose partitions, versions, columns and rows. reading/live_rows.py reads the rows.

scan("orders", {"day": "1995-04-03"}, columns=["id"], filter=[("total", ">", 9)])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltacompact.base import expect
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import InputError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.base.model import ContentType, Partition, PartitionLike, Table
from deltacompact.base.moments import moment_of
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.base.partitions import side_by_side
from deltacompact.delta_streams.appending.advice import advising
from deltacompact.delta_streams.retained import state_as_of
from deltacompact.delta_streams.snapshots import everything
from deltacompact.reading.live_rows import live_parts, schema_of
from deltacompact.reading.parts import TablePart, ahead_of_use, read_in_order
from deltacompact.reading.recorded import ReadRecord
from deltacompact.reading.selection import Selected, named_columns
from deltacompact.reading.skipping import Skipping
from deltacompact.tabular import schemas
from deltacompact.tabular.export import exported
from deltacompact.tabular.fingerprint import fingerprint_of

if TYPE_CHECKING:
    from deltacompact.delta_streams.log.state import StreamState
    from deltacompact.delta_streams.streams import Streams


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan of a table: a partition (None: all) and the fields of a Selection, where `version` is another word for
    `as_of`."""

    table_id: str
    partition: PartitionLike = None
    columns: Sequence[str] | None = None
    filter: Any = None
    version: InitVar[str | datetime | None] = None
    as_of: str | datetime | None = None

    def __post_init__(self, version: str | datetime | None) -> None:
        if self.as_of is not None and version is not None:
            raise InputError("as_of and version say the same: give one of them")
        object.__setattr__(self, "as_of", version if self.as_of is None else self.as_of)
        if not isinstance(self.as_of, datetime):
            expect.text_or_none("version", self.as_of)
        object.__setattr__(self, "columns", named_columns(self.columns))  # an iterator can be read only once


def read_table(catalog: Streams, scan: Scan) -> pa.Table:
    """The live rows: one snapshot for each partition, no snapshot across partitions."""
    schema, found = scanned(catalog, scan)
    tables = list(found)
    return pa.concat_tables(tables) if tables else schema.empty_table()


def scan_table(catalog: Streams, scan: Scan) -> pa.RecordBatchReader:
    """The live rows, batch by batch."""
    schema, tables = scanned(catalog, scan)
    return pa.RecordBatchReader.from_batches(schema, (batch for table in tables for batch in table.to_batches()))


def scanned(catalog: Streams, scan: Scan) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """The schema, and the live rows in fold order, partition by partition.

    Raises NotFoundError for an unknown table, partition or version, InputError for an unknown column.
    """
    table = catalog.described(scan.table_id)
    if scan.partition is None and scan.as_of is not None and table.partition_keys and moment_of(scan.as_of) is None:
        raise InputError(f"version {scan.as_of!r}: each partition has its own versions, name a partition")
    chosen = catalog.chosen(scan.table_id, scan.partition)
    opened = side_by_side(chosen, lambda partition: _state(catalog, scan, partition), catalog.at_once)
    states = list(zip(chosen, opened, strict=True))
    table = with_keys_of(catalog, table, opened)
    snapshots = [everything(scan.table_id, partition, state) for partition, state in states]
    described = []
    for (partition, state), snapshot in zip(states, snapshots, strict=True):
        with advising(catalog, scan.table_id, partition, state):
            described.append(
                DataFile(UNNUMBERED, f"{scan.table_id}/{partition}", ContentType.PARQUET, 1, 0, schema_of(snapshot))
            )
    whole = schemas.unmarked(schemas.union(described)) or table.columns or pa.schema([])
    selected = Selected.of(scan.table_id, whole, scan.columns, scan.filter, table.partition_keys)
    record, skipping = ReadRecord.begun(scan.table_id, selected), Skipping.of(selected)

    def parts(opened: tuple[Partition, StreamState]) -> list[TablePart]:
        partition, state = opened
        with advising(catalog, scan.table_id, partition, state):
            snapshot = everything(scan.table_id, partition, state)
            found = live_parts(catalog.store, snapshot, table, selected.needed, catalog.read_limits, skipping)
        return [TablePart(part.bytes, partial(kept, part, partition, state)) for part in record.parts(found)]

    def kept(part: TablePart, partition: Partition, state: StreamState) -> Iterator[pa.Table]:
        with advising(catalog, scan.table_id, partition, state):
            for rows in part.tables():
                yield selected.kept(rows)

    def tables() -> Iterator[pa.Table]:
        in_partitions = ahead_of_use(states, parts, catalog.at_once)
        yield from read_in_order(chain.from_iterable(in_partitions), catalog.at_once)

    return selected.wanted, record.until_the_end(tables())


def _state(catalog: Streams, scan: Scan, partition: Partition) -> StreamState:
    if scan.as_of is None:
        return catalog.state(scan.table_id, partition)
    return state_as_of(catalog, scan.table_id, partition, scan.as_of)


def live_fingerprint(catalog: Streams, scan: Scan) -> Fingerprint:
    """The fingerprint of the live rows: all columns, by their names."""
    schema, tables = scanned(catalog, scan)
    return fingerprint_of(tables, schema, scan.table_id)


def with_keys_of(catalog: Streams, table: Table, states: Sequence[StreamState]) -> Table:
    """A table with the keys of these states, which were read after it.

    The first compaction declares the keys before its seal, so a compacted state proves that the table has keys now.
    """
    if table.keys is None and any(state.compacted for state in states):
        return catalog.described(table.table_id)
    return table


def export_table(catalog: Streams, scan: Scan, target: str) -> int:
    """Write the live rows to one file (local path or URI), batch by batch. Returns the number of rows."""
    return exported(catalog.store, target, *scanned(catalog, scan))
