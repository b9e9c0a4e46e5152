"""The other partitions of a table, as a writer of one partition asks for them.

    day=a    id int64, total double        the last partition with upserts: text of a new partition takes these types
    day=b    new: id int64, total string   refused: nobody could read the table as a whole

    day=a    gets code int64               day=b, too, later: code string is refused

Of a partition that has a stream, only new columns are compared with others: the types of older ones may have changed
in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from deltacompact.base.errors import SchemaError
from deltacompact.base.model import DataFile, Partition
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.tabular import schemas

if TYPE_CHECKING:
    from deltacompact.delta_streams.streams import Streams

_COMPARED_MAX = 2
"""With how many of the last partitions files are compared, before they are refused."""


@dataclass(frozen=True, slots=True)
class OtherPartitions:
    """The partitions of a table besides one. `columns_of` reads the columns of the upserts of one of them."""

    catalog: Streams
    table_id: str
    partition: Partition
    columns_of: Callable[[Partition], pa.Schema]

    def listed(self) -> list[Partition]:
        """The partitions, the last first, by one listing."""
        paths, keys = TablePaths.of(self.table_id), self.catalog.declared(self.table_id).partition_keys
        marks = (
            [paths.partition_of(stat.path, keys) for stat in self.catalog.store.list(paths.partitions)] if keys else []
        )
        return [partition for partition in reversed(marks) if partition not in (None, self.partition)]

    def with_columns(self, partitions: Sequence[Partition]) -> Iterator[tuple[Partition, pa.Schema]]:
        """Those of these partitions that have upserts, and their columns, lazily: each costs requests."""
        for partition in partitions:
            if self.catalog.log(self.table_id, partition).exists() and len(columns := self.columns_of(partition)):
                yield partition, columns

    @property
    def last_columns(self) -> pa.Schema:
        """The columns of the last partition with upserts. Empty: there is none."""
        return next((columns for _, columns in self.with_columns(self.listed())), pa.schema([]))

    def check_fit(self, files: Sequence[DataFile]) -> None:
        """Raise SchemaError if a read could not unite files with the last partition: first ones, or their new columns.

        Columns that this process knows to fit pass without a request, so not each of a thousand new partitions
        asks. Only the store can refuse them, because another process may have created the table anew. If files fit one
        of two partitions, these do not fit each other: then the table cannot be read as a whole anyway, and its writers
        go on.
        """
        known = self.catalog.fitting_columns(self.table_id)
        if all(_has(known, file.schema.names) for file in files) and _misfit(files, known) is None:
            return
        refusal: SchemaError | None = None
        for partition, columns in islice(self.with_columns(self.listed()), _COMPARED_MAX):
            if (misfit := _misfit(files, columns)) is None:
                self.catalog.remember_fitting(self.table_id, schemas.union(files, columns))
                return
            refusal = refusal or _refusal(*misfit, partition, columns)
        if refusal is not None:
            raise refusal
        self.catalog.remember_fitting(self.table_id, schemas.union(files))


def _refusal(file: DataFile, name: str, partition: Partition, columns: pa.Schema) -> SchemaError:
    types = f"{file.schema.field(name).type} here and {columns.field(name).type} in partition {partition}"
    return SchemaError(
        f"{file.path}: column {name!r} is {types}, so the table could not be read as a whole: write it with that type, "
        "or into another table"
    )


def _has(columns: pa.Schema, names: Sequence[str]) -> bool:
    return set(columns.names).issuperset(names)


def _misfit(files: Sequence[DataFile], columns: pa.Schema) -> tuple[DataFile, str] | None:
    """The first file with a column that has no common type with the column of this name."""
    known = {field.name: field.type for field in columns if not schemas.is_promised(field)}
    for file in files:
        for field in file.schema if file.rows else ():
            type_ = known.get(field.name, field.type)
            if schemas.widened(type_, schemas.stored_type(field.type)) is None:
                return file, field.name
    return None
