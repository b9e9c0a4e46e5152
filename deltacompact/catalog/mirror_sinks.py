"""Where a mirror's rows go: how each kind of table takes the changes of a batch.

insert 1, update 2, delete 3      a delta stream       one commit a partition: delete 3, upsert 1 2
                                  an Iceberg table     one snapshot: rows 1 2, equality deletes of 1 2 3
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.errors import InputError
from deltacompact.base.shared_arguments import ChangeEventTerms
from deltacompact.catalog.delta_stream_table import DeltaStreamTable
from deltacompact.change_feed.batch_keys import DELETES, UPSERTS
from deltacompact.change_feed.columns import CHANGE_COLUMNS

if TYPE_CHECKING:
    from deltacompact.catalog.iceberg_table import IcebergCatalogTable
    from deltacompact.iceberg.table.pyiceberg_door import IcebergTable

_CHANGE = CHANGE_COLUMNS.field(0).name


@dataclass(frozen=True, slots=True)
class StreamSink:
    """A delta stream: upserts and deletes are one commit of it for each partition."""

    table: DeltaStreamTable
    key: list[str]

    @classmethod
    def of(cls, table: DeltaStreamTable) -> StreamSink:
        if table.keys is None:
            raise InputError(f"table {table.table_id!r} declares no primary key: create another with --primary-key")
        return cls(table, list(dict.fromkeys([*table.keys.primary, *table.partition_keys])))

    @property
    def equal(self) -> Sequence[str]:
        return self.key

    def alike(self, rows: pa.Table) -> pa.Table:
        return rows.select(self.key)

    def has_renamed(self, was: str, name: str) -> bool:
        return False

    def append(self, changes: pa.RecordBatchReader, token: str, check: Callable[[], None]) -> int:
        rows, columns = 0, [name for name in changes.schema.names if name not in CHANGE_COLUMNS.names[1:]]
        keys = self.table.keys
        sorts = {sort.name for sort in keys.sort} & {*columns} - {*self.key} if keys else set[str]()

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in changes:
                rows += batch.num_rows
                changed = batch.select(columns)
                yield from (_cleared(changed, sorts), changed.filter(_is(UPSERTS))) if sorts else (changed,)
            check()  # an append that began before this ends long before a token is forgotten

        schema = pa.schema([changes.schema.field(name) for name in columns])
        batch = pa.RecordBatchReader.from_batches(schema, batches())
        said = ChangeEventTerms(
            operation_column=_CHANGE,
            upsert_values=UPSERTS,
            delete_values=DELETES,
            partition_by=self.table.partition_keys,
        )
        self.table._writer(token=token, said=said, in_order=False).append(batch)
        return rows


@dataclass(frozen=True, slots=True)
class BranchSink:
    """An Iceberg table: upserts and deletes are one snapshot of it, with equality deletes."""

    table: IcebergTable
    key: list[str]

    @classmethod
    def of(cls, table: IcebergTable) -> BranchSink:
        from deltacompact.iceberg.row_deltas import matched_columns

        return cls(table, list(matched_columns(table)))

    @property
    def equal(self) -> Sequence[str]:
        """The columns that are equal in rows of which the mirror has one."""
        from deltacompact.iceberg.row_deltas import equal_columns

        return equal_columns(self.table.metadata)

    def alike(self, rows: pa.Table) -> pa.Table:
        """They, and what else is equal in those rows."""
        from deltacompact.iceberg.row_deltas import alike

        return alike(self.table.metadata, rows)

    def has_renamed(self, was: str, name: str) -> bool:
        """Whether the mirror has this column under its new name alone."""
        names = self.table.metadata.schema.names
        return name in names and was not in names

    def append(self, changes: pa.RecordBatchReader, token: str, check: Callable[[], None]) -> int:
        from deltacompact.iceberg.row_deltas import KeyedRows, commit_row_delta

        columns, rows = [name for name in changes.schema.names if name not in CHANGE_COLUMNS.names], 0

        def batch() -> Iterator[KeyedRows]:
            nonlocal rows
            for batch in changes:
                rows += batch.num_rows
                table = pa.Table.from_batches([batch])
                upserts, deletes = (table.filter(_is(kinds)).select(columns) for kinds in (UPSERTS, DELETES))
                yield KeyedRows(upserts, deletes)

        commit_row_delta(self.table, batch(), columns, token, check)
        return rows


def _cleared(changes: pa.RecordBatch, sorts: set[str]) -> pa.RecordBatch:
    """Deletes of all keys without sort values: they clear whatever the mirror has."""
    columns = {field.name: changes[field.name] for field in changes.schema}
    columns[_CHANGE] = pa.array(DELETES * changes.num_rows, changes.schema.field(_CHANGE).type)
    columns |= {name: pa.nulls(changes.num_rows, columns[name].type) for name in sorts}
    return pa.RecordBatch.from_pydict(columns, schema=changes.schema)


def _is(kinds: Sequence[str]) -> pc.Expression:
    return pc.field(_CHANGE).isin(kinds)


Sink = StreamSink | BranchSink


def sink_of(into: DeltaStreamTable | IcebergCatalogTable) -> Sink:
    """Raises InputError for a table without a key."""
    return StreamSink.of(into) if isinstance(into, DeltaStreamTable) else BranchSink.of(into._compactable())
