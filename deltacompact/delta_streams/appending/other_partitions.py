"""The other partitions of a table, as a writer of one partition asks for them.

    day=a    id int64, total double        the last partition with upserts: text of a new partition takes these types
    day=b    new: id int64, total string   refused: nobody could read the table as a whole

    day=a    gets code int64               day=b, too, later: code string is refused
    day=a    has at timestamp[us], 9999    day=b: at timestamp[ns], which ends in 2262, is refused
    day=1    has day int64                 day=x is refused: rows without the column would get its value
                                           day=01 is refused: a key could live in both
    day=1, day=01 without a column day     day=2: day int64 is refused for the same reason

Of a partition that has a stream, only what is new is compared with others (new_columns.adding_to): columns, fields of
structs, types that become wider, far values. The types of other columns may have changed in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, tee
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from deltacompact.base.data_file import DataFile, FarValues
from deltacompact.base.errors import SchemaError
from deltacompact.base.model import Partition
from deltacompact.delta_streams.appending.shape import StreamShape
from deltacompact.delta_streams.paths import TablePaths
from deltacompact.delta_streams.spellings import Spellings, Types
from deltacompact.tabular import column_types, far_values, partition_texts, schemas

if TYPE_CHECKING:
    from deltacompact.delta_streams.streams import Streams

_REFUSING_MAX = 2
"""How many of the last partitions refuse files, before the table does."""
_COMPARED_MAX = 8
"""With how many of the last partitions files are compared, if these lack a part of what is new: each costs requests."""
_AS_A_WHOLE = "so the table could not be read as a whole"
_OTHER_VALUE = "give the partition another value, or write into another table"
_LIKELY = (
    *(pa.null(), pa.int32(), pa.int64(), pa.date32(), pa.timestamp("s"), pa.timestamp("us")),
    *(pa.float64(), pa.bool_(), pa.string()),
)
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
        paths, keys = TablePaths.of(self.table_id), self.catalog.remembered_table(self.table_id).partition_keys
        stats = self.catalog.store.list(paths.partitions) if keys else ()
        found = [mark for stat in stats if (mark := paths.partition_of(stat.path, keys)) is not None]
        self._spellings.remember(found, self.catalog.clock())
        return [partition for partition in reversed(found) if partition != self.partition]

    def with_columns(self, partitions: Sequence[Partition]) -> Iterator[tuple[Partition, StreamShape]]:
        """Those of these partitions that have upserts, and their shapes, lazily: each costs requests."""
        for partition in partitions:
            if self._exists(partition) and len((shape := self.shape_of(partition)).of_files):
                yield partition, shape

    @property
    def last_columns(self) -> pa.Schema:
        """The columns of the last partition with upserts. Empty: there is none."""
        return next((shape.rows for _, shape in self.with_columns(self.listed())), pa.schema([]))

    def check_fit(self, files: Sequence[DataFile], begins: bool) -> None:
        """Raise SchemaError if a read could not unite upserts with the last partitions: first ones, or what they add.

        Columns and values that this process knows to fit pass without a request, so not each of a thousand new
        partitions asks. Only the store can refuse them, because another process may have created the table anew.

        `begins`: the partition, or its rows, begin here. So its value must fit the columns that others have for it, and
        must be none of another partition in another text: a key could live in both.
        """
        if self._is_known_to_fit(files, begins):
            return
        listed = self.listed()
        compared, asked = tee(islice(self.with_columns(listed), _COMPARED_MAX))
        columns = self._joining(files, compared)
        said = self._key_types_of(files)
        known, lacked = self._known_key_types(asked, said, begins)
        brought = {name: (type_, file) for name, (type_, file) in said.items() if name not in known}
        self._check_values(bool(files) and begins, known, brought, listed)
        types = {name: type_ for name, (type_, _) in said.items()} | known
        self._check_spellings(begins, types, brought)
        fitting = [field for field in schemas.union(files, columns) if field.name not in self.partition.names]
        likely = _likely(self.partition, types)
        self.catalog.remember_fitting(self.table_id, pa.schema([*fitting, *types.items(), *likely]))
        lookalike = {field.name: field.type for field in likely} | self._declared()
        supposed = self._spellings.supposed | {name: lookalike[name] for name in lacked - said.keys()}
        self._spellings.supposed = {name: type_ for name, type_ in supposed.items() if name not in types}

    def _is_known_to_fit(self, files: Sequence[DataFile], begins: bool) -> bool:
        known, supposed = self.catalog.fitting_columns(self.table_id), self._spellings.supposed
        if not _has(known, files) or _misfit(files, known, ()) is not None:
            return False
        declared = {name: type_ for name, type_ in self._declared().items() if name in supposed}
        return not begins or not (
            set(self.partition.names).difference(known.names)
            or _unfit(self.partition, known)
            or self._spelled_otherwise(declared | key_types(known, self.partition.names), supposed)
        )

    def _joining(self, files: Sequence[DataFile], compared: Iterable[tuple[Partition, StreamShape]]) -> pa.Schema:
        """The columns of the last partition that files fit. Raises SchemaError if they do not fit the last ones.

        A partition that lacks a part of them does not decide. If files fit one of two partitions, these do not fit each
        other: then the table cannot be read as a whole anyway, and its writers go on.
        """
        refusals, columns = list[SchemaError](), pa.schema([])
        for partition, shape in compared:
            if (misfit := _misfit(files, shape.rows, shape.far.known)) is not None:
                refusals.append(_refusal(*misfit, partition, shape.rows))
                if len(refusals) == _REFUSING_MAX:
                    break
                continue
            columns = shape.rows
            if _has(columns, files):
                return columns
        if refusals:
            raise refusals[0]
        return columns

    def _key_types_of(self, files: Sequence[DataFile]) -> dict[str, tuple[pa.DataType, DataFile]]:
        """The types of the partition columns that files with rows have, and which file has each."""
        found: dict[str, tuple[pa.DataType, DataFile]] = {}
        for file in [file for file in files if file.rows]:
            found = {
                name: (type_, file) for name, type_ in key_types(file.schema, self.partition.names).items()
            } | found
        return found

    def _known_key_types(
        self,
        asked: Iterable[tuple[Partition, StreamShape]],
        said: Mapping[str, tuple[pa.DataType, DataFile]],
        begins: bool,
    ) -> tuple[dict[str, pa.DataType], set[str]]:
        """The types that the files of the last partitions have for the partition columns; wider, where files `said` so.
        And the columns for which all of these partitions were asked in vain.

        A column that these files lack, too, may stay unknown if it decides nothing: the value is of each kind of which
        that of another partition without the column is, and no partition may have it in another text.
        """
        wanted = [name for name in self.partition.names if begins or name in said]
        known: dict[str, pa.DataType] = {}
        lacked = set[str]()
        for partition, shape in asked if wanted else ():
            known = key_types(shape.of_files, wanted) | known
            unknown = set(wanted).difference(known)
            if not unknown or (
                unknown.isdisjoint(said)
                and _is_like(self.partition, partition, known)
                and not self._spelled_otherwise(known)
            ):
                break
        else:
            lacked = set(wanted).difference(known)
        for name in known.keys() & said.keys():
            known[name] = column_types.widened(known[name], said[name][0]) or known[name]
        return known, lacked

    def _check_values(
        self,
        begins: bool,
        known: Mapping[str, pa.DataType],
        brought: Mapping[str, tuple[pa.DataType, DataFile]],
        listed: Sequence[Partition],
    ) -> None:
        """Raise SchemaError if the value of a partition with rows is none of the type of its column: of this one, or of
        another one, whose files lack the column."""
        columns = pa.schema(list(known.items()))
        if begins and (unfit := _unfit(self.partition, columns)) and not self._unfit_rows(listed, columns):
            is_nan = not _unfit(self.partition, columns, begins=False)
            where = "" if is_nan else f" in other partitions, {_AS_A_WHOLE}"
            raise SchemaError(f"{unfit}{where}: {_OTHER_VALUE}")
        for name, (type_, file) in brought.items():
            if unfit := self._unfit_rows(listed, pa.schema([(name, type_)])):
                raise SchemaError(f"{file.path}: {unfit} here, {_AS_A_WHOLE}: {_AS_TEXT}")

    def _check_spellings(
        self, begins: bool, types: Mapping[str, pa.DataType], brought: Mapping[str, tuple[pa.DataType, DataFile]]
    ) -> None:
        """Raise SchemaError if this partition has the value of another one in another text; or two others have, if
        files bring the column.

        A column that no file has is of the declared type, or else text.
        """
        types = {**dict.fromkeys(self.partition.names, pa.string()), **self._declared(), **types}
        if begins and (other := self._spelled_otherwise(types)) is not None:
            raise SchemaError(
                f"partition {self.partition} has the value of partition {other}, in another text: append to that one, "
                "or a key could live in both"
            )
        for partitions in self._spellings.alike(types) if brought else ():
            if len(found := list(islice(filter(self._exists, partitions), 2))) == 2:
                name, (type_, file) = next(iter(brought.items()))
                raise SchemaError(
                    f"{file.path}: column {name!r} is {type_} here, and partitions {found[0]} and {found[1]} have one "
                    f"value of it, so a key could live in both: {_AS_TEXT}"
                )

    def _declared(self) -> dict[str, pa.DataType]:
        return key_types(self.catalog.remembered_table(self.table_id).columns or (), self.partition.names)

    def _spelled_otherwise(self, types: Types, supposed: Types = MappingProxyType({})) -> Partition | None:
        """The partition that has the value of this one in another text; of unknown types: that may have it."""
        others = self._spellings.others(self.partition, types, supposed, self.catalog.clock(), self.listed)
        return next(filter(self._exists, others), None)

    @property
    def _spellings(self) -> Spellings:
        return self.catalog.spellings(self.table_id)

    def _exists(self, partition: Partition) -> bool:
        return self.catalog.log(self.table_id, partition).exists()

    def _unfit_rows(self, partitions: Sequence[Partition], columns: pa.Schema) -> str:
        """Why the value of one of these partitions, which has rows, does not fit the column of its name. Empty: all
        fit."""
        reasons = {partition: _unfit(partition, columns, begins=False) for partition in partitions}
        unfit = [partition for partition, reason in reasons.items() if reason]
        return next((reasons[partition] for partition, _ in self.with_columns(unfit)), "")


def _unfit(partition: Partition, columns: pa.Schema, begins: bool = True) -> str:
    """Why a value of the partition does not fit the column of its name. Empty: all fit."""
    try:
        partition_texts.check_fit(partition, columns, begins)
    except SchemaError as error:
        return str(error)
    return ""


def key_types(columns: pa.Schema, names: Collection[str]) -> dict[str, pa.DataType]:
    """The types that these columns give to partition keys."""
    types = schemas.decided_types(columns).items()
    return {
        name: column_types.plain_type(type_) for name, type_ in types if name in names and not pa.types.is_null(type_)
    }


def _likely(partition: Partition, known: Collection[str]) -> pa.Schema:
    """The likely types of the partition columns whose types are not `known`: the first that the value fits."""
    return pa.schema(
        schemas.promised_field(name, next(type_ for type_ in _LIKELY if _is_of(text, type_)))
        for name, text in partition.values
        if name not in known
    )


def _is_like(partition: Partition, other: Partition, known: Collection[str]) -> bool:
    """Whether each value of the partition is of all likely types that the other one's is of. `known` columns do not
    count."""
    columns = [pa.schema([(name, type_)]) for name in partition.names if name not in known for type_ in _LIKELY]
    return all(_unfit(other, column, begins=False) or not _unfit(partition, column) for column in columns)


def _is_of(text: str | None, type_: pa.DataType) -> bool:
    return partition_texts.value_of(text, pa.field("", type_)) is not None


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
