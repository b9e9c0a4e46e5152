"""Content files as the engine's readers know them: matched with the table's columns by field id.

the manifest     a.parquet, 3 rows, spec 0
its footer       1: id int, 4: nm string
read as          id (int), name (string)        the table's names today, the file's own types

A file without field ids has those of the table's name mapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from deltacompact.base.errors import InputError
from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.base.model import ContentType, DataFile, Fill, Partition
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.catalog.iceberg.table.locations import readable
from deltacompact.catalog.iceberg.table.name_mapping import Names, identified
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import field_ids, files, parquet_read, schemas

_ANY_PARTITION = Partition()


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A Parquet file as its manifest entry describes it: it must be what the manifest says it is."""

    path: str
    rows: int
    bytes: int
    sequence_number: int


def described(
    store: ObjectStore,
    stored: StoredFile,
    columns: pa.Schema,
    unfillable: Mapping[int, str] | None = None,
    fills: Sequence[Fill] = (),
    names: Names | None = None,
    constants: Sequence[Fill] = (),
) -> DataFile:
    """The file with those of `columns` that it has or that are filled.

    A fill counts where the file lacks the column, and one with nulls counts where it has nulls there. `constants` are
    fills from the file's partition, which come first. `names` find columns without ids. `unfillable`: columns (by id)
    that the file must have, and why.

    Raises InputError or NotFoundError naming a file that is missing, damaged, or has neither field ids nor names.
    """
    known = DataFile(UNNUMBERED, readable(stored.path), ContentType.PARQUET, stored.rows, stored.bytes, pa.schema([]))
    with files.opened(store, known) as source:
        footer = files.described_parquet(source, known)
        schema = parquet_read.stored_schema(source, footer, parquet_read.INT96_UNIT)
    files.check_columns(schema, stored.path)
    in_partition = {number for fill in constants if (number := field_ids.field_id(fill.column)) is not None}
    schema = identified(schema, names, in_partition, stored.path)
    name_of = {field_ids.field_id(column): column.name for column in schema}
    needed = tuple(
        fill
        for fill in (*constants, *fills)
        if _is_needed(fill, name_of.get(field_ids.field_id(fill.column)), footer.metadata)
    )
    found = field_ids.matched(replace(known, schema=schema, fills=needed), columns)
    has = {field_ids.field_id(column) for column in found.schema}
    for number, why in (unfillable or {}).items():
        if number not in has:
            raise InputError(f"{stored.path} lacks the column with field id {number}, {why}")
    return found


def _is_needed(fill: Fill, name: str | None, metadata: pq.FileMetaData) -> bool:
    """Whether the file, which calls the column by this name (None: it lacks it), needs the fill."""
    return name is None or (fill.of_nulls and _may_have_nulls(name, metadata))


def _may_have_nulls(name: str, metadata: pq.FileMetaData) -> bool:
    """Whether a column at the top level may have nulls, by its statistics."""
    columns = metadata.schema
    place = next(place for place in range(metadata.num_columns) if columns.column(place).path == name)
    for number in range(metadata.num_row_groups):
        chunk = metadata.row_group(number).column(place)
        if not (chunk.is_stats_set and chunk.statistics.has_null_count and chunk.statistics.null_count == 0):
            return True
    return False


def tables(
    store: ObjectStore,
    file: DataFile,
    columns: pa.Schema,
    rows: tuple[int, int] | None = None,
    limits: ReadLimits = READ_LIMITS,
) -> Iterator[tuple[int, pa.Table]]:
    """Slices (first row, table) with exactly these columns, in their types. Columns that the file lacks are null."""
    for first, table in files.read(store, file, columns.names, rows, limits):
        yield first, schemas.align(table, columns, _ANY_PARTITION, file.path)


def by_field_id(columns: Iterable[pa.Field]) -> pa.Schema:
    """The columns under their field ids as names: a dropped column may have today's name of another one."""
    return pa.schema([column.with_name(str(field_ids.field_id(column))).with_nullable(True) for column in columns])
