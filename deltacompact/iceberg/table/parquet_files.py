"""Content files as the engine's readers know them: matched with the table's columns by field id.

the manifest     a.parquet, 3 rows, spec 0
its footer       1: id int, 4: nm string
read as          id (int), name (string)        the table's names today, the file's own types

In a file without field ids, columns are found by the table's name mapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from deltacompact.base.data_file import DataFile, Fill
from deltacompact.base.errors import InputError
from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.base.model import ContentType, Partition
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.iceberg.table.locations import readable
from deltacompact.iceberg.table.name_mapping import Names, identified
from deltacompact.storage.fetched_file import ReadAhead, begun_ahead
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import field_ids, files, parquet_read, schemas
from deltacompact.tabular.damage import naming
from deltacompact.tabular.units import Slices

_ANY_PARTITION = Partition()


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A Parquet file as its manifest entry describes it. The file itself is checked against that."""

    path: str
    rows: int
    bytes: int
    sequence_number: int


@dataclass(frozen=True, slots=True)
class WantedFile:
    """A file to read.

    fills         values for columns that the file lacks; a fill `with nulls` also replaces the file's nulls
    constants     values that the file's partition tells; they win over fills
    names         find columns in a file without field ids
    unfillable    columns (id and reason) that the file must have
    """

    stored: StoredFile
    columns: pa.Schema
    unfillable: Mapping[int, str] = field(default_factory=dict)
    fills: Sequence[Fill] = ()
    names: Names | None = None
    constants: Sequence[Fill] = ()

    @property
    def part(self) -> files.Part:
        """All of it, as the manifest describes it."""
        stored = self.stored
        path = readable(stored.path)
        file = DataFile(UNNUMBERED, path, ContentType.PARQUET, stored.rows, stored.bytes, pa.schema([]))
        return files.Part(file)

    def described(self, reader: files.FileReader) -> DataFile:
        """The file as its footer says."""
        footer, path = reader.parquet, self.stored.path
        with naming(reader.file.path):
            schema = parquet_read.stored_schema(reader.source, footer)
        schemas.check_columns(schema, path)
        in_partition = {number for fill in self.constants if (number := field_ids.field_id(fill.column)) is not None}
        schema = identified(schema, self.names, in_partition, path)
        name_of = {field_ids.field_id(column): column.name for column in schema}
        needed = tuple(
            fill
            for fill in (*self.constants, *self.fills)
            if _is_needed(fill, name_of.get(field_ids.field_id(fill.column)), footer.metadata)
        )
        found = field_ids.matched(replace(reader.file, schema=schema, fills=needed), self.columns)
        has = {field_ids.field_id(column) for column in found.schema}
        for number, why in self.unfillable.items():
            if number not in has:
                raise InputError(f"{path} lacks the column with field id {number}, {why}")
        return found


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A described file that is still open: reading it fetches no footer again."""

    file: DataFile
    _reader: files.FileReader

    @property
    def footer(self) -> pq.FileMetaData:
        return self._reader.parquet.metadata

    def tables(self, columns: pa.Schema, rows: tuple[int, int] | None = None) -> Slices:
        """As the function `tables`, of the open file."""
        file = field_ids.matched(self.file, columns)
        self._reader.reads(files.Part(file, columns.names, rows))
        return aligned(file, self._reader.slices(), columns)

    def wanted(
        self, columns: pa.Schema, wanted: npt.NDArray[np.bool_]
    ) -> Iterator[tuple[npt.NDArray[np.int64], pa.Table]]:
        """The wanted rows, with their numbers in the file. Row groups without a wanted row are not read."""
        file = field_ids.matched(self.file, columns)
        self._reader.reads(files.Part(file, columns.names))
        for numbers, table in self._reader.wanted(wanted):
            yield numbers, schemas.align(table, columns, _ANY_PARTITION, file.path)


def opened_each(
    store: ObjectStore, wanted: Iterable[WantedFile], limits: ReadLimits = READ_LIMITS
) -> Iterator[OpenFile]:
    """Each file, described, and open until the next is taken. The first requests of later files are sent ahead.

    Raises InputError or NotFoundError naming a file that is missing, damaged, or has neither field ids nor names.
    """
    ahead = ReadAhead(limits)
    for file, reader in begun_ahead(wanted, lambda file: (file, files.FileReader(store, file.part, ahead))):
        with reader:
            yield OpenFile(file.described(reader), reader)


def described_each(
    store: ObjectStore, wanted: Iterable[WantedFile], limits: ReadLimits = READ_LIMITS
) -> Iterator[DataFile]:
    """Each file as its footer describes it. Only footers are fetched, also of small files."""
    footers = replace(limits, whole_bytes=limits.tail_bytes)
    return (opened.file for opened in opened_each(store, wanted, footers))


def _is_needed(fill: Fill, name: str | None, metadata: pq.FileMetaData) -> bool:
    """Whether the file needs the fill. `name`: of the column in the file; None: the file lacks the column."""
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
) -> Slices:
    """Slices (first row, table) with exactly these columns, in their types. Columns that the file lacks are null."""
    return aligned(file, files.read(store, file, columns.names, rows, limits), columns)


FileSlice = tuple[DataFile, pa.Schema, tuple[int, int]]
"""A file, the columns that its slices are to have, and a half-open range of its rows."""


def tables_each(store: ObjectStore, asked: Sequence[FileSlice], limits: ReadLimits) -> Iterator[Slices]:
    """As `tables`, for many files in order, opened ahead. Take all slices of a file before the next file's."""
    parts = (files.Part(file, columns.names, rows) for file, columns, rows in asked)
    for (file, columns, _), slices in zip(asked, files.read_each(store, parts, limits), strict=True):
        yield aligned(file, slices, columns)


def aligned(file: DataFile, slices: Slices, columns: pa.Schema) -> Slices:
    for first, table in slices:
        yield first, schemas.align(table, columns, _ANY_PARTITION, file.path)


def by_field_id(columns: Iterable[pa.Field]) -> pa.Schema:
    """The columns, named by their field ids, because a dropped column may have the name of one of today's."""
    return pa.schema([column.with_name(str(field_ids.field_id(column))).with_nullable(True) for column in columns])
