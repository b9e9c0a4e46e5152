"""The other partitions of a table, as a writer of one partition asks for them.

    day=a    id int64, total double        the last partition with upserts: text of a new partition takes these types
    day=b    new: id int64, total string   refused: nobody could read the table as a whole

    day=a    gets code int64               day=b, too, later: code string is refused
    day=a    has at timestamp[us], 9999    day=b: at timestamp[ns], which ends in 2262, is refused
    day=1    has day int64                 day=x is refused: rows without the column would get its value

Of a partition that has a stream, only what is new is compared with others (new_columns.adding_to): columns, fields of
structs, types that become wider, far values. The types of other columns may have changed in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from deltacompact.base.data_file import DataFile, FarValues
from deltacompact.base.errors import SchemaError
from deltacompact.base.model import Partition
from deltacompact.delta_streams.appending.shape import StreamShape
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.tabular import column_types, far_values, partition_texts, schemas

if TYPE_CHECKING:
    from deltacompact.delta_streams.streams import Streams

_REFUSING_MAX = 2
"""How many of the last partitions refuse files, before the table does."""
_COMPARED_MAX = 8
"""With how many of the last partitions files are compared, if these lack a part of what is new: each costs requests."""
_AS_A_WHOLE = "so the table could not be read as a whole"
_OTHER_VALUE = "give the partition another value, or write into another table"
_LIKELY = (pa.null(), pa.int64(), pa.date32(), pa.timestamp("us"), pa.float64(), pa.bool_(), pa.string())
_AS_TEXT = "write the column as text, leave it out, or write into another table"


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
        self.catalog.spellings(self.table_id).remember(found, self.catalog.clock())
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

    def check_fit(self, files: Sequence[DataFile], begins: bool) -> None:
        """Raise SchemaError if a read could not unite files with the last partitions: first ones, or what they add.

        Columns that this process knows to fit pass without a request, so not each of a thousand new partitions
        asks. Only the store can refuse them, because another process may have created the table anew. A partition that
        lacks a part of them does not decide. If files fit one of two partitions, these do not fit each other: then the
        table cannot be read as a whole anyway, and its writers go on.

        `begins`: these are the first rows, so the partition's value must fit the columns that others have for it. If
        another one has no such column, and a value of the same kind, this fits too.
        """
        known, begins = self.catalog.fitting_columns(self.table_id), begins and bool(files)
        if _has(known, files) and _misfit(files, known, ()) is None and not (begins and _unfit(self.partition, known)):
            return
        refusals, columns, seen, listed = list[SchemaError](), pa.schema([]), set[str](), self.listed()
        for partition, shape in islice(self.with_columns(listed), _COMPARED_MAX):
            refusal = None
            if (misfit := _misfit(files, shape.rows, shape.far.known)) is not None:
                refusal = _refusal(*misfit, partition, shape.rows)
            elif begins and (unfit := _unfit(self.partition, shape.rows)) and not self._unfit_rows(listed, shape.rows):
                refusal = SchemaError(f"{unfit} in partition {partition}, {_AS_A_WHOLE}: {_OTHER_VALUE}")
            if refusal is not None:
                refusals.append(refusal)
                if len(refusals) == _REFUSING_MAX:
                    break
                continue
            columns = shape.rows
            seen.update(columns.names)
            if _has(columns, files) and not (begins and _unfit(self.partition, _likely(partition, seen))):
                refusals.clear()
                break
        if refusals:
            raise refusals[0]
        self._check_values([file for file in files if file.rows], seen, listed)
        fitting = schemas.union(files, columns)
        likely = _likely(self.partition, fitting.names)
        self.catalog.remember_fitting(self.table_id, pa.schema([*fitting, *likely]))

    def check_spelling(self) -> None:
        """Raise SchemaError if this partition, a new one, has the value of another one in another text: a key could
        live in both. The type of the column is that of the last partition, or of the first files."""
        columns = schemas.decided_types(self.catalog.fitting_columns(self.table_id))
        types = {name: column_types.plain_type(columns[name]) for name in self.partition.names if name in columns}
        types = {name: type_ for name, type_ in types.items() if not column_types.is_string(type_)}
        if not types:
            return
        catalog, table_id = self.catalog, self.table_id
        spellings, now_s = catalog.spellings(table_id), catalog.clock()
        exists = lambda partition: catalog.log(table_id, partition).exists()  # noqa: E731
        other = spellings.other(self.partition, types, now_s, self.listed, exists)
        if other is not None:
            raise SchemaError(
                f"partition {self.partition} has the value of partition {other}, in another text: append to that one, "
                "or a key could live in both"
            )

    def _check_values(self, files: Sequence[DataFile], seen: Collection[str], listed: Sequence[Partition]) -> None:
        """Raise SchemaError if files bring a partition column, which is none of the `seen` ones, and its type does not
        fit the value of another partition with rows."""
        for schema, file in {file.schema: file for file in files}.items():
            brought = pa.schema([field for field in schema if field.name not in seen])
            if unfit := self._unfit_rows(listed, brought):
                raise SchemaError(f"{file.path}: {unfit} here, {_AS_A_WHOLE}: {_AS_TEXT}")

    def _unfit_rows(self, partitions: Sequence[Partition], columns: pa.Schema) -> str:
        """Why the value of one of these partitions, which has rows, does not fit the column of its name. Empty: all
        fit."""
        if not any(name in columns.names for name in self.partition.names):
            return ""
        unfit = [partition for partition in partitions if _unfit(partition, columns)]
        return next((_unfit(partition, columns) for partition, _ in self.with_columns(unfit)), "")


def _unfit(partition: Partition, columns: pa.Schema) -> str:
    """Why a value of the partition does not fit the column of its name. Empty: all fit."""
    try:
        partition_texts.check_fit(partition, columns)
    except SchemaError as error:
        return str(error)
    return ""


def _likely(partition: Partition, seen: Collection[str]) -> pa.Schema:
    """The likely types of the partition columns that no file has been `seen` to have: the first that the value fits."""
    return pa.schema(
        schemas.promised_field(name, next(type_ for type_ in _LIKELY if _is_of(text, type_)))
        for name, text in partition.values
        if name not in seen
    )


def _is_of(text: str | None, type_: pa.DataType) -> bool:
    return not _unfit(Partition((("", text),)), pa.schema([("", type_)]))


def _refusal(file: DataFile, name: str, far: str, partition: Partition, columns: pa.Schema) -> SchemaError:
    types = f"{file.schema.field(name).type} here and {columns.field(name).type} in partition {partition}"
    return SchemaError(
        f"{file.path}: column {name!r} is {types}{far}, {_AS_A_WHOLE}: write it with that type, or into another table"
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
