"""Reading tables: choose partitions, versions, columns and rows. reading/live_rows.py reads the rows.

scan("orders", {"day": "1995-04-03"}, columns=["id"], filter=[("total", ">", 9)])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType, DataFile, Partition, Table
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.base.partitions import side_by_side
from deltacompact.base.wording import columns_shown, text_of
from deltacompact.delta_streams.appending.advice import advising
from deltacompact.delta_streams.snapshots import everything
from deltacompact.delta_streams.versions import state_of_version
from deltacompact.reading.live_rows import live_parts, schema_of
from deltacompact.reading.parts import TablePart, ahead_of_use, read_in_order
from deltacompact.storage.opening import as_uri
from deltacompact.tabular import formats, schemas, writing
from deltacompact.tabular.row_groups import WriteOptions

if TYPE_CHECKING:
    from deltacompact.delta_streams.log.state import StreamState
    from deltacompact.delta_streams.streams import Streams


class Selection(TypedDict, total=False):
    """Which part of a table to read; every field is optional.

    columns   names; default: all columns
    filter    an expression of pyarrow.compute, or a list of (column, operator, value) as in pyarrow.parquet.read_table;
              a list lets the scan read only its columns
    version   name or number of a retained version of one partition; default: the active version
    """

    columns: Sequence[str] | None
    filter: Any
    version: str | None


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan of a table: a partition (None: all) and the fields of a Selection."""

    table_id: str
    partition: Mapping[str, Any] | Partition | None = None
    columns: Sequence[str] | None = None
    filter: Any = None
    version: str | None = None

    def __post_init__(self) -> None:
        expect.text_or_none("version", self.version)
        if self.columns is not None:
            columns = expect.several("columns", self.columns)
            for name in columns:
                expect.text("a name in columns", name)
            object.__setattr__(self, "columns", columns)  # an iterator can be read only once


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
    chosen = _chosen(catalog, scan, table)
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
    whole = schemas.unmarked(schemas.union(described))
    wanted = _selected(scan.table_id, whole, scan.columns)
    expression, filtered = _filter(scan.filter)
    needed = whole
    if filtered is not None:
        extra = _selected(scan.table_id, whole, filtered).names if filtered else []
        names = dict.fromkeys([*wanted.names, *extra])
        needed = pa.schema([field for field in whole if field.name in names])

    def parts(opened: tuple[Partition, StreamState]) -> list[TablePart]:
        partition, state = opened
        with advising(catalog, scan.table_id, partition, state):
            snapshot = everything(scan.table_id, partition, state)
            found = live_parts(catalog.store, snapshot, table, needed, catalog.read_limits)
        return [TablePart(part.bytes, partial(kept, part, partition, state)) for part in found]

    def kept(part: TablePart, partition: Partition, state: StreamState) -> Iterator[pa.Table]:
        with advising(catalog, scan.table_id, partition, state):
            for rows in part.tables():
                yield (rows if expression is None else _filtered(rows, expression)).select(wanted.names)

    def tables() -> Iterator[pa.Table]:
        in_partitions = ahead_of_use(states, parts, catalog.at_once)
        yield from read_in_order(chain.from_iterable(in_partitions), catalog.at_once)

    return wanted, tables()


def _chosen(catalog: Streams, scan: Scan, table: Table) -> list[Partition]:
    if scan.partition is not None:
        return [catalog.partition(scan.table_id, scan.partition)]
    if scan.version is not None and table.partition_keys:
        raise InputError(f"version {scan.version!r}: each partition has its own versions, name a partition")
    return catalog.partitions(scan.table_id)


def _state(catalog: Streams, scan: Scan, partition: Partition) -> StreamState:
    if scan.version is None:
        return catalog.state(scan.table_id, partition)
    return state_of_version(catalog, scan.table_id, partition, scan.version)


def with_keys_of(catalog: Streams, table: Table, states: Sequence[StreamState]) -> Table:
    """A table with the keys of these states, which were read after it.

    The first compaction declares the keys before its seal, so a compacted state proves that the table has keys now.
    """
    if table.keys is None and any(state.compacted for state in states):
        return catalog.described(table.table_id)
    return table


def _selected(table_id: str, schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    if not columns:
        raise InputError("columns: name at least one column (leave them out for all)")
    for name in columns:
        if name not in schema.names:
            raise InputError(f"table {table_id!r} has no column {name!r} ({columns_shown(schema.names)})")
    return pa.schema([schema.field(name) for name in columns])


def _filter(wanted: Any) -> tuple[pc.Expression | None, list[str] | None]:
    """The expression, and the columns that it needs (None: unknown)."""
    if wanted is None:
        return None, []
    if isinstance(wanted, pc.Expression):
        return wanted, None
    shape = f"filter {wanted!r} is neither an expression of pyarrow.compute nor a list of (column, operator, value)"
    try:
        flat = [term for terms in wanted for term in (terms if isinstance(terms, list) else [terms])]
        names = [name for name, _, _ in flat]
    except (TypeError, ValueError):
        raise InputError(shape) from None
    try:
        return pq.filters_to_expression(wanted), names
    except (TypeError, ValueError) as error:
        raise InputError(f"{shape}: {error}") from None


def _filtered(rows: pa.Table, expression: pc.Expression) -> pa.Table:
    try:
        return rows.filter(expression)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InputError(f"filter {expression}: {text_of(error)}") from None


def export_table(
    catalog: Streams,
    table_id: str,
    target: str,
    partition: Mapping[str, Any] | Partition | None = None,
    version: str | None = None,
) -> int:
    """Write the live rows to one file (local path or URI), batch by batch. Returns the number of rows."""
    target = expect.path("the file to export to", target)
    schema, tables = scanned(catalog, Scan(table_id, partition, version=version))
    options = WriteOptions(formats.written_type_of(target))
    with writing.writer(catalog.store, as_uri(target), schema, options) as out:
        for rows in tables:
            out.write(rows)
        return out.rows
