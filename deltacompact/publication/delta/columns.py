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
from deltacompact.publication.shown_types import ShownTypes, primitive_of_all, without_values

_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")
"""Spark refuses these in the columns of Parquet files."""


def shown_columns(schema: pa.Schema, where: str) -> pa.Schema:
    """The columns in Delta's types. Raises SchemaError naming a column whose type or name Delta cannot have."""
    return _TYPES.columns(schema, where)


def refuse_alike(columns: Iterable[pa.Field], where: str) -> None:
    """Raise SchemaError for two columns whose names differ only in case: Delta readers take them for one column."""
    names = [field.name for field in columns]
    lower = Counter(name.lower() for name in names)
    alike = [name for name in names if lower[name.lower()] > 1]
    if alike:
        raise SchemaError(f"{where}: columns {alike[0]!r} and {alike[1]!r} are one column for Delta Lake: rename one")


def _check_name(field: pa.Field, what: str) -> None:
    if not field.name or _NOT_IN_NAMES & set(field.name):
        raise SchemaError(f'{what}: Delta Lake allows none of " ,;{{}}()=", tab and line break in a name: rename it')


def _primitive(type_: pa.DataType) -> pa.DataType | None:
    return type_ if pa.types.is_signed_integer(type_) else primitive_of_all(type_)


def _why_not(type_: pa.DataType) -> str:
    t = pa.types
    if t.is_null(type_):
        return without_values("Delta Lake")
    if t.is_unsigned_integer(type_):
        return "and Delta Lake has no unsigned integers"
    if t.is_timestamp(type_):
        return "and Delta Lake has microseconds, in UTC or without a zone"
    return "which Delta Lake does not have"


_TYPES = ShownTypes(_primitive, _why_not, refuse_alike, _check_name)
