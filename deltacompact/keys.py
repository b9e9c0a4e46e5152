"""Primary key digests and sort keys: how rows of many files meet.

    id int32 5, name "a"        -> 01 01 01 0000000000000005 | 01 09 00000001 61     -> SHA-1, 20 bytes
    id int64 5, name "a"        -> the same bytes: the physical type does not count, the class does
    id null,    name ""         -> 00 | 01 09 00000000                               -> null is a value, unlike ""

The class of a key column is the table's: integers and strings never mix in one column. Sort keys become bytes whose
plain comparison orders them, per column a presence byte and the value (inverted for descending): null always loses.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact import _kernels, schemas
from deltacompact.errors import SchemaError
from deltacompact.model import DataFile, Direction, OperationType, TableKeys
from deltacompact.wording import with_article

ENCODING_VERSION = 1
SORT_KEY_BYTES_MAX = 32
DIGEST_BYTES = 20
POINTER_BYTES = 12


class KeyClass(enum.IntEnum):
    """Type classes of key columns; the numbers are the class tags in the key bytes."""

    INTEGER = 1
    FLOAT = 2
    DECIMAL = 3
    TIMESTAMP = 4
    INSTANT = 5
    DATE = 6
    TIME = 7
    DURATION = 8
    STRING = 9
    BINARY = 10
    BOOLEAN = 11


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A primary key column that is digested. `key_class` is None as long as only nulls were seen."""

    name: str
    key_class: KeyClass | None = None
    scale: int | None = None


@dataclass(frozen=True, slots=True)
class SortColumn:
    """A sort column in the type that all its values are brought to before they are compared."""

    name: str
    type: pa.DataType
    descending: bool = False

    @property
    def value_bytes(self) -> int:
        return value_bytes(self.type)


@dataclass(frozen=True, slots=True)
class Encoding:
    """How rows become entries, the same for every file of a session. Written down in the index's manifest."""

    key_columns: tuple[KeyColumn, ...]
    sort_columns: tuple[SortColumn, ...] = ()
    version: int = ENCODING_VERSION

    @property
    def sort_key_bytes(self) -> int:
        """Presence bytes included."""
        return sum(1 + column.value_bytes for column in self.sort_columns)

    @property
    def entry_bytes(self) -> int:
        return DIGEST_BYTES + self.sort_key_bytes + POINTER_BYTES

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a file that are read to make its entries."""
        names = [column.name for column in self.key_columns]
        return (*names, *(column.name for column in self.sort_columns if column.name not in names))

    def digests(self, table: pa.Table) -> npt.NDArray[np.uint8]:
        """SHA-1 of the key bytes of each row: (rows, 20)."""
        arrays = [_single(plain(table[column.name])) for column in self.key_columns]
        tags = [column.key_class or KeyClass.INTEGER for column in self.key_columns]
        return _kernels.key_digests(arrays, [int(tag) for tag in tags], table.num_rows)

    def sort_keys(self, table: pa.Table, path: str) -> npt.NDArray[np.uint8]:
        """Sort keys of each row: (rows, sort_key_bytes). A column that the table lacks is null."""
        encoded = [self._sort_key(table, column, path) for column in self.sort_columns]
        return np.hstack(encoded) if encoded else np.empty((table.num_rows, 0), np.uint8)

    def _sort_key(self, table: pa.Table, column: SortColumn, path: str) -> npt.NDArray[np.uint8]:
        if pa.types.is_null(column.type):  # no file has had a value yet: a presence byte, nothing to be present
            return np.zeros((table.num_rows, 1), np.uint8)
        values = _single(self._sort_values(table, column, path))
        return _kernels.sort_keys([values], [column.descending], table.num_rows)

    @staticmethod
    def _sort_values(table: pa.Table, column: SortColumn, path: str) -> pa.ChunkedArray:
        if column.name not in table.column_names:
            return pa.chunked_array([pa.nulls(table.num_rows, column.type)])
        return schemas.cast(plain(table[column.name]), column.type, path, column.name)


def keyless(table: pa.Table, encoding: Encoding) -> npt.NDArray[np.bool_]:
    """Of the rows of a delete: which clear their key whatever its sort key. Decided before any union of schemas."""
    result = np.ones(table.num_rows, dtype=bool)
    for column in encoding.sort_columns:
        if column.name in table.column_names:
            result &= np.asarray(plain(table[column.name]).is_null())
    return result


def resolve_encoding(
    keys: TableKeys,
    partition_keys: Sequence[str],
    files: Sequence[tuple[OperationType, DataFile]],
    known: Encoding | None = None,
) -> Encoding:
    """The encoding that fits all files and what the index holds already (`known`).

    Partition columns are constant in a stream and left out of the digest. Raises SchemaError naming file and column
    for a missing or mixed key column, or a sort column that is missing in part, of variable width or too wide.
    """
    names = [name for name in keys.primary if name not in partition_keys]
    key_columns = {c.name: c for c in known.key_columns} if known else {name: KeyColumn(name) for name in names}
    types: dict[str, pa.DataType] = {c.name: c.type for c in known.sort_columns} if known else {}
    sort_names = [key.name for key in keys.sort]
    seen: list[tuple[OperationType, pa.Schema]] = []
    for operation, file in files:
        if any(operation is kind and file.schema is schema for kind, schema in seen[-4:]):
            continue
        seen.append((operation, file.schema))
        for name in names:
            if name not in file.schema.names:
                raise SchemaError(f"{file.path}: key column {name!r} is missing")
            key_columns[name] = _joined(key_columns[name], file.schema.field(name).type, file.path)
        present = [name for name in sort_names if name in file.schema.names]
        if operation is OperationType.DELETE and 0 < len(present) < len(sort_names):
            missing = next(name for name in sort_names if name not in present)
            raise SchemaError(f"{file.path}: a delete has all sort columns or none, {missing!r} is missing")
        for name in present:
            types[name] = _sort_type(types.get(name), file.schema.field(name).type, file.path, name)
    sort_columns = tuple(
        SortColumn(key.name, types.get(key.name, pa.null()), key.direction is Direction.DESCENDING) for key in keys.sort
    )
    width = sum(column.value_bytes for column in sort_columns)
    if width > SORT_KEY_BYTES_MAX:
        shown = ", ".join(f"{column.name} {column.type}" for column in sort_columns)
        raise SchemaError(f"sort keys take {width} bytes, {SORT_KEY_BYTES_MAX} at most: {shown}")
    return Encoding(tuple(key_columns[name] for name in names), sort_columns)


def _joined(column: KeyColumn, type_: pa.DataType, path: str) -> KeyColumn:
    """The key column after one more file."""
    key_class, scale = _class_of(type_, column.name, path)
    if key_class is None:
        return column
    if column.key_class is None:
        return replace(column, key_class=key_class, scale=scale)
    if key_class is not column.key_class:
        found, known = (with_article(each.name.lower()) for each in (key_class, column.key_class))
        raise SchemaError(f"{path}: key column {column.name!r} is {type_}, {found}, where the table has {known}")
    if scale != column.scale:
        raise SchemaError(f"{path}: key column {column.name!r} is {type_}, where the table has scale {column.scale}")
    return column


def _class_of(type_: pa.DataType, name: str, path: str) -> tuple[KeyClass | None, int | None]:
    """Class and, for decimals, scale; None for the null type."""
    t = pa.types
    type_ = _storage(type_)
    if t.is_null(type_):
        return None, None
    if t.is_decimal(type_):
        return KeyClass.DECIMAL, type_.scale
    if t.is_timestamp(type_):
        return (KeyClass.TIMESTAMP if type_.tz is None else KeyClass.INSTANT), None
    tests = (
        (t.is_boolean, KeyClass.BOOLEAN),
        (t.is_integer, KeyClass.INTEGER),
        (t.is_floating, KeyClass.FLOAT),
        (t.is_date, KeyClass.DATE),
        (t.is_time, KeyClass.TIME),
        (t.is_duration, KeyClass.DURATION),
        (schemas.is_string, KeyClass.STRING),
        (schemas.is_binary, KeyClass.BINARY),
    )
    for test, key_class in tests:
        if test(type_):
            return key_class, None
    raise SchemaError(f"{path}: key column {name!r} is {type_}, which cannot be a key")


def _storage(type_: pa.DataType) -> pa.DataType:
    """What a dictionary or an extension type holds."""
    while True:
        if pa.types.is_dictionary(type_):
            type_ = type_.value_type
        elif isinstance(type_, pa.BaseExtensionType):
            type_ = type_.storage_type
        else:
            return type_


def _sort_type(known: pa.DataType | None, type_: pa.DataType, path: str, name: str) -> pa.DataType:
    type_ = _storage(type_)
    if not pa.types.is_null(type_) and value_bytes(type_) == 0:
        raise SchemaError(f"{path}: sort key {name!r} is {type_}, which has no fixed width")
    wider = type_ if known is None else schemas.widened(known, type_)
    if wider is None or (not pa.types.is_null(wider) and value_bytes(wider) == 0):
        raise SchemaError(f"{path}: sort key {name!r} is {type_}, which does not fit {known} in other files")
    return wider


def value_bytes(type_: pa.DataType) -> int:
    """Bytes of a sort key value; 0 where the type is not of fixed width (and for the null type)."""
    t = pa.types
    if t.is_boolean(type_):
        return 1
    if t.is_fixed_size_binary(type_) and not t.is_decimal(type_):
        return int(type_.byte_width)
    temporal = t.is_timestamp(type_) or t.is_date(type_) or t.is_time(type_) or t.is_duration(type_)
    if t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_) or temporal:
        return int(type_.bit_width) // 8
    return 0


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Extension types as their storage, dictionaries as their values."""
    while True:
        if isinstance(column.type, pa.BaseExtensionType):
            column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
        elif pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        else:
            return column


def _single(column: pa.ChunkedArray) -> pa.Array:
    """One array; kernels see slices of at most a read's size, so that joining is cheap and cannot overflow."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_string(column.type):
        column = column.cast(pa.large_string())
    elif pa.types.is_binary(column.type):
        column = column.cast(pa.large_binary())
    return column.combine_chunks() if column.num_chunks else pa.array([], column.type)
