"""The other partitions of a table, as a writer of one partition asks for them.

    day=a    id int64, total double        the last partition with upserts: text of a new partition takes these types
    day=b    new: id int64, total string   refused: nobody could read the table as a whole

    day=a    gets code int64               day=b, too, later: code string is refused
    day=a    has at timestamp[us], 9999    day=b: at timestamp[ns], which ends in 2262, is refused

Of a partition that has a stream, only what is new is compared with others (new_columns.adding_to): columns, fields of
structs, types that become wider, far values. The types of other columns may have changed in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from deltacompact.base.errors import SchemaError
from deltacompact.base.model import DataFile, FarValues, Partition
from deltacompact.delta_streams.appending.shape import StreamShape
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.tabular import column_types, far_values, schemas

if TYPE_CHECKING:
    from deltacompact.delta_streams.streams import Streams

_REFUSING_MAX = 2
"""How many of the last partitions refuse files, before the table does."""
_COMPARED_MAX = 8
"""With how many of the last partitions files are compared, if these lack a part of what is new: each costs requests."""
_LISTED_AGAIN_AFTER_S = 60.0
"""After this time the partitions are listed again for a new one. A process may begin thousands."""


@dataclass(frozen=True, slots=True)
class OtherPartitions:
    """The partitions of a table besides one. `shape_of` reads the shape of one of them."""

    catalog: Streams
    table_id: str
    partition: Partition
    shape_of: Callable[[Partition], StreamShape]

    def listed(self) -> list[Partition]:
        """The partitions, the last first, by one listing."""
        paths, keys = TablePaths.of(self.table_id), self.catalog.known_table(self.table_id).partition_keys
        stats = self.catalog.store.list(paths.partitions) if keys else ()
        found = [mark for stat in stats if (mark := paths.partition_of(stat.path, keys)) is not None]
        self.catalog.remember_partitions(self.table_id, found)
        return [partition for partition in reversed(found) if partition != self.partition]

    def with_columns(self, partitions: Sequence[Partition]) -> Iterator[tuple[Partition, StreamShape]]:
        """Those of these partitions that have upserts, and their shapes, lazily: each costs requests."""
        for partition in partitions:
            if self.catalog.log(self.table_id, partition).exists() and len((shape := self.shape_of(partition)).rows):
                yield partition, shape

    @property
    def last_columns(self) -> pa.Schema:
        """The columns of the last partition with upserts. Empty: there is none."""
        return next((shape.rows for _, shape in self.with_columns(self.listed())), pa.schema([]))

    def check_fit(self, files: Sequence[DataFile]) -> None:
        """Raise SchemaError if a read could not unite files with the last partitions: first ones, or what they add.

        Columns that this process knows to fit pass without a request, so not each of a thousand new partitions
        asks. Only the store can refuse them, because another process may have created the table anew. A partition that
        lacks a part of them does not decide. If files fit one of two partitions, these do not fit each other: then the
        table cannot be read as a whole anyway, and its writers go on.
        """
        known = self.catalog.fitting_columns(self.table_id)
        if _has(known, files) and _misfit(files, known, ()) is None:
            return
        refusals, columns = list[SchemaError](), pa.schema([])
        for partition, shape in islice(self.with_columns(self.listed()), _COMPARED_MAX):
            if (misfit := _misfit(files, shape.rows, shape.far.known)) is not None:
                refusals.append(_refusal(*misfit, partition, shape.rows))
                if len(refusals) == _REFUSING_MAX:
                    break
                continue
            columns = shape.rows
            if _has(columns, files):
                refusals.clear()
                break
        if refusals:
            raise refusals[0]
        self.catalog.remember_fitting(self.table_id, schemas.union(files, columns))

    def check_spelling(self) -> None:
        """Raise SchemaError if this partition, a new one, has the value of another one in another text: a key could
        live in both. The type of the column is that of the last partition, or of the first files."""
        columns = schemas.decided_types(self.catalog.fitting_columns(self.table_id))
        types = {name: column_types.plain_type(columns[name]) for name in self.partition.names if name in columns}
        types = {name: type_ for name, type_ in types.items() if not column_types.is_string(type_)}
        if not types:
            return
        known = self.catalog.spellings(self.table_id)
        if known is None or self.catalog.clock() > known.listed_s + _LISTED_AGAIN_AFTER_S:
            self.listed()
            known = self.catalog.spellings(self.table_id)
        other = known.other(self.partition, types) if known else None
        if other is not None and self.catalog.log(self.table_id, other).exists():
            raise SchemaError(
                f"partition {self.partition} has the value of partition {other}, in another text: append to that one, "
                "or a key could live in both"
            )


def _refusal(file: DataFile, name: str, far: str, partition: Partition, columns: pa.Schema) -> SchemaError:
    types = f"{file.schema.field(name).type} here and {columns.field(name).type} in partition {partition}"
    return SchemaError(
        f"{file.path}: column {name!r} is {types}{far}, so the table could not be read as a whole: write it with that "
        "type, or into another table"
    )


def _has(columns: pa.Schema, files: Sequence[DataFile]) -> bool:
    """Whether the columns have all that the files have, in types that need not become wider."""
    known = schemas.decided_types(columns)
    return all(schemas.holds(known.get(field.name), field.type) for file in files if file.rows for field in file.schema)


def _misfit(files: Sequence[DataFile], columns: pa.Schema, far: FarValues) -> tuple[DataFile, str, str] | None:
    """The first file with a column that has no common type with the column of this name, or whose common type does not
    hold a value of one of the two, and which one."""
    known = schemas.decided_types(columns)
    for file in files:
        for field in file.schema if file.rows else ():
            stored = column_types.stored_type(field.type)
            wider = column_types.widened(known.get(field.name, stored), stored)
            if wider is None:
                return file, field.name, ""
            for leaf in far_values.leaves(pa.schema([(field.name, wider)])) if far or file.far else ():
                if (range_ := far_values.misfit(leaf, (*far, *(file.far or ())))) is not None:
                    value = next(value for value in range_ if not far_values.fits(leaf[1], value, value))
                    return file, field.name, f", and no type holds both and {far_values.far_value_text(leaf[1], value)}"
    return None
