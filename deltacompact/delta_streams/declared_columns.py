"""The columns that a table declares: text takes their types, and rows of other types are refused.

"id long, amount double, price decimal(10,2)"      -> id int64, amount double, price decimal128(10, 2)
'"unit price" double'                              a name with blanks stands in quotes
"id long, ID long"                                 refused: Spark and Hive cannot tell them apart
"""

from __future__ import annotations

import re

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.base.wording import unknown_option
from deltacompact.layout.quoting import QUOTED, parts, unquoted
from deltacompact.tabular import column_types

_TYPES = {
    **{str(type_): type_ for type_ in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.string())},
    **{"boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64()},
    **{"binary": pa.binary(), "date": pa.date32(), "time": pa.time64("us")},
    **{"timestamp": pa.timestamp("us"), "timestamptz": pa.timestamp("us", "UTC")},
    **{"bool": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "integer": pa.int32(), "bigint": pa.int64()},
    **{"varchar": pa.string(), "text": pa.string()},
}
"""Iceberg's names, Arrow's of numbers, and SQL's of whole numbers and texts."""
_DECIMAL = re.compile(r"decimal\((\d+), *(\d+)\)")
_COLUMN = re.compile(rf"({QUOTED}|\S+)\s+(\S.*)", re.S)


def declared_columns(columns: str | pa.Schema) -> pa.Schema:
    """The columns as a schema. Raises InputError for text that names no columns, and for names that engines mix up."""
    if not isinstance(columns, (str, pa.Schema)):
        raise InputError(
            f'columns is {columns!r}, it must be text such as "id long, amount double", or a pyarrow Schema'
        )
    found = _parsed(columns) if isinstance(columns, str) else columns
    spelled: dict[str, str] = {}
    for name in found.names:
        if (other := spelled.setdefault(name.lower(), name)) is not name:
            twice = (
                "is there twice" if other == name else f"and {other!r} differ only in case: Spark and Hive mix them up"
            )
            raise InputError(f"columns: {name!r} {twice}")
    return pa.schema([(field.name, column_types.stored_type(field.type)) for field in found])


def _parsed(text: str) -> pa.Schema:
    columns = list[tuple[str, pa.DataType]]()
    for part in parts(text):
        if (column := _COLUMN.fullmatch(part)) is None:
            raise InputError(f'columns: {part!r} is no name with a type: write "id long, amount double"')
        columns.append((unquoted(column[1]), _type(column[2].strip().lower())))
    return pa.schema(columns)


def _type(text: str) -> pa.DataType:
    if (decimal := _DECIMAL.fullmatch(text)) is not None:
        try:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        except ValueError as error:
            raise InputError(f"columns: {text}: {error}") from error
    if text not in _TYPES:
        raise InputError(f"columns: {unknown_option(text, [*_TYPES, 'decimal(10,2)'], 'type')}")
    return _TYPES[text]
