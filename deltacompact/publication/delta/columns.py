"""The types that a Delta table has for compacted rows. Pure.

id int8, w dictionary<string>      id byte, w string
n uint64                           refused: Delta Lake has no unsigned integers: column 'n'
"unit price" double                refused: without column mapping, names have no spaces
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from deltacompact.base.errors import SchemaError
from deltacompact.base.wording import with_article
from deltacompact.tabular import conversion, schemas

_UTC = ("UTC", "+00:00", "Etc/UTC", "Z")
_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")
"""Spark refuses these in the columns of Parquet files."""


def shown_columns(schema: pa.Schema, where: str) -> pa.Schema:
    """The columns in Delta's types. Raises SchemaError naming the column that it has no type or no name for."""
    return pa.schema([_field(field, f"{where}: column {field.name!r}") for field in schema])


def refuse_alike(columns: Iterable[pa.Field], where: str) -> None:
    """Raise SchemaError for two columns whose names differ in case only: Delta readers take them for one."""
    names = [field.name for field in columns]
    lower = Counter(name.lower() for name in names)
    alike = [name for name in names if lower[name.lower()] > 1]
    if alike:
        raise SchemaError(f"{where}: columns {alike[0]!r} and {alike[1]!r} are one column for Delta Lake: rename one")


def _field(field: pa.Field, what: str) -> pa.Field:
    if not field.name or _NOT_IN_NAMES & set(field.name):
        raise SchemaError(f'{what}: Delta Lake allows none of " ,;{{}}()=", tab and line break in a name: rename it')
    return pa.field(field.name, _shown(field.type, what))


def _shown(type_: pa.DataType, what: str) -> pa.DataType:
    t = pa.types
    if t.is_dictionary(type_):
        return _shown(type_.value_type, what)
    if t.is_struct(type_) and type_.num_fields:
        refuse_alike(type_, what)
        return pa.struct([_field(field, f"{what}, {field.name!r}") for field in type_])
    if t.is_map(type_):
        return pa.map_(_shown(type_.key_type, what), _shown(type_.item_type, what))
    if conversion.is_list(type_):
        return pa.list_(_shown(type_.value_type, what))
    shown = _shown_primitive(type_)
    if shown is None:
        raise SchemaError(f"{what} is {with_article(str(type_))}, {_why_not(type_)}")
    return shown


def _shown_primitive(type_: pa.DataType) -> pa.DataType | None:
    t = pa.types
    if t.is_timestamp(type_):
        fits = type_.unit != "ns" and (type_.tz is None or type_.tz in _UTC)
        return pa.timestamp("us", None if type_.tz is None else "UTC") if fits else None
    if schemas.is_string(type_):
        return pa.string()
    if t.is_decimal(type_):
        return pa.decimal128(type_.precision, type_.scale) if type_.precision <= 38 and type_.scale >= 0 else None
    if schemas.is_binary(type_):
        return pa.binary()
    same = t.is_signed_integer(type_) or t.is_boolean(type_) or t.is_date32(type_)
    return type_ if same or t.is_float32(type_) or t.is_float64(type_) else None


def _why_not(type_: pa.DataType) -> str:
    t = pa.types
    if t.is_null(type_):
        return "because no row has had a value in it yet: Delta Lake needs a type"
    if t.is_unsigned_integer(type_):
        return "and Delta Lake has no unsigned integers"
    if t.is_timestamp(type_):
        return "and Delta Lake has microseconds, in UTC or without a zone"
    return "which Delta Lake does not have"
