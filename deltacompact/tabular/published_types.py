"""The types that tables of Iceberg and of Delta Lake have for compacted rows. Pure.

rows here                        Iceberg                     Delta Lake
int8                             int32                       int8
dictionary<string>               string                      string
timestamp[ms, UTC]               timestamp[us, UTC]          timestamp[us, UTC]
time64[us]                       time64[us]                  refused: column 't' is a time64[us]
n uint64                         refused: no unsigned integers
"unit price" double              double                      refused: without column mapping, names have no spaces
partition day=""                 ""                          refused: it would be null
struct, list, map                the same for their elements; an error names the place

Compacted files stay as they are. So it is not enough that a type could be converted: readers of the format must accept
it in a Parquet file. Publications use these types, and so does an append that adds a column to a published table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from deltacompact.base.errors import SchemaError
from deltacompact.base.model import ICEBERG, Partition
from deltacompact.base.wording import with_article
from deltacompact.tabular import column_types, conversion

_UTC = ("UTC", "+00:00", "Etc/UTC", "Z")


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class PublishedTypes:
    """The types of a format.

    primitive       the format's type for a type without elements. None: it has none
    why_not         says why it has none
    check_struct    raises SchemaError for fields that cannot be in one struct
    check_name      raises SchemaError for a name that the format cannot have
    check_value     raises SchemaError for a value (key, text) that a partition cannot have
    """

    primitive: Callable[[pa.DataType], pa.DataType | None]
    why_not: Callable[[pa.DataType], str]
    check_struct: Callable[[Iterable[pa.Field], str], None] = _nothing
    check_name: Callable[[pa.Field, str], None] = _nothing
    check_value: Callable[[str, str | None], None] = _nothing

    def columns(self, schema: pa.Schema, where: str) -> pa.Schema:
        """The columns in the format's types. Raises SchemaError naming a column whose type or name it cannot have."""
        return pa.schema([self._field(field, f"{where}: column {field.name!r}") for field in schema])

    def check(self, schema: pa.Schema, where: str) -> None:
        """Raise SchemaError as `columns` does, but not for a type that is null: the next rows may give it another."""
        replace(self, primitive=lambda type_: type_ if pa.types.is_null(type_) else self.primitive(type_)).columns(
            schema, where
        )

    def check_partition(self, partition: Partition) -> None:
        """Raise SchemaError for a partition that the format cannot have."""
        for name, text in partition.values:
            self.check_value(name, text)

    def _field(self, field: pa.Field, what: str) -> pa.Field:
        self.check_name(field, what)
        return pa.field(field.name, self._type(field.type, what))

    def _type(self, type_: pa.DataType, what: str) -> pa.DataType:
        t = pa.types
        if t.is_dictionary(type_):
            return self._type(type_.value_type, what)
        if t.is_struct(type_) and type_.num_fields:
            self.check_struct(type_, what)
            return pa.struct([self._field(field, f"{what}, {field.name!r}") for field in type_])
        if t.is_map(type_):
            return pa.map_(self._type(type_.key_type, what), self._type(type_.item_type, what))
        if conversion.is_list(type_):
            return pa.list_(self._type(type_.value_type, what))
        shown = self.primitive(type_)
        if shown is None:
            raise SchemaError(f"{what} is {with_article(str(type_))}, {self.why_not(type_)}")
        return shown


def types_of(target: str) -> PublishedTypes:
    """The types of the table to which a publication's URI leads."""
    return ICEBERG_TYPES if target.startswith(ICEBERG) else DELTA_TYPES


def _without_values(format_: str) -> str:
    """Why a column of nulls alone cannot be shown, and what to do."""
    return (
        f"because no row has had a value in it yet: {format_} needs a type, which it gets with any appended Parquet "
        "row, even of null"
    )


def _primitive_of_both(type_: pa.DataType) -> pa.DataType | None:
    """The type that both formats have for this type. None: none has one, or each has its own."""
    t = pa.types
    if t.is_timestamp(type_):
        fits = type_.unit != "ns" and (type_.tz is None or type_.tz in _UTC)
        return pa.timestamp("us", None if type_.tz is None else "UTC") if fits else None
    if column_types.is_string(type_):
        return pa.string()
    if t.is_decimal(type_):
        return pa.decimal128(type_.precision, type_.scale) if type_.precision <= 38 and type_.scale >= 0 else None
    if column_types.is_binary(type_):
        return pa.binary()
    same = t.is_boolean(type_) or t.is_date32(type_) or t.is_float32(type_) or t.is_float64(type_)
    return type_ if same else None


def _iceberg_primitive(type_: pa.DataType) -> pa.DataType | None:
    t = pa.types
    if t.is_signed_integer(type_):
        return pa.int64() if type_.bit_width == 64 else pa.int32()
    same = t.is_fixed_size_binary(type_) or type_ == pa.time64("us")
    return type_ if same else _primitive_of_both(type_)


def _why_not_iceberg(type_: pa.DataType) -> str:
    t = pa.types
    if t.is_null(type_):
        return _without_values("Iceberg")
    if t.is_unsigned_integer(type_):
        return "and Iceberg has no unsigned integers"
    if t.is_timestamp(type_) or t.is_time(type_):
        return "and Iceberg has microseconds, in UTC or without a zone"
    return "which Iceberg does not have"


ICEBERG_TYPES = PublishedTypes(_iceberg_primitive, _why_not_iceberg)

_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")
"""Spark refuses these in the columns of Parquet files."""


def alike_names(names: Iterable[str]) -> tuple[str, str] | None:
    """The first two names that differ in case alone."""
    known: dict[str, str] = {}
    for name in names:
        if (other := known.setdefault(name.lower(), name)) is not name:
            return other, name
    return None


def refuse_alike(columns: Iterable[pa.Field], where: str) -> None:
    """Raise SchemaError for two columns whose names differ only in case: Delta readers take them for one column."""
    if (alike := alike_names(field.name for field in columns)) is not None:
        raise SchemaError(f"{where}: columns {alike[0]!r} and {alike[1]!r} are one column for Delta Lake: rename one")


def _check_delta_name(field: pa.Field, what: str) -> None:
    if not field.name or _NOT_IN_NAMES & set(field.name):
        raise SchemaError(f'{what}: Delta Lake allows none of " ,;{{}}()=", tab and line break in a name: rename it')


def _check_delta_value(name: str, text: str | None) -> None:
    """PROTOCOL.md, "Partition Value Serialization"."""
    if text == "":
        raise SchemaError(f"partition key {name!r} has an empty text, which Delta Lake cannot tell from null")


def _delta_primitive(type_: pa.DataType) -> pa.DataType | None:
    return type_ if pa.types.is_signed_integer(type_) else _primitive_of_both(type_)


def _why_not_delta(type_: pa.DataType) -> str:
    t = pa.types
    if t.is_null(type_):
        return _without_values("Delta Lake")
    if t.is_unsigned_integer(type_):
        return "and Delta Lake has no unsigned integers"
    if t.is_timestamp(type_):
        return "and Delta Lake has microseconds, in UTC or without a zone"
    return "which Delta Lake does not have"


DELTA_TYPES = PublishedTypes(_delta_primitive, _why_not_delta, refuse_alike, _check_delta_name, _check_delta_value)
