"""Primary key digests and sort keys: they identify and order rows across files of different types.

    id int32 5, name "a"        -> 01 01 01 0000000000000005 | 01 09 00000001 61     -> SHA-1, 20 bytes
    id int64 5, name "a"        -> the same bytes: the class counts, not the physical type
    id null,    name ""         -> 00 | 01 09 00000000                               -> null and "" are different values

A key column has the same class in the whole table: integers and strings never mix. Sort keys become bytes that compare
in sort order. Each column has a presence byte and the value (inverted for descending), so null always loses.

    version string, longest value "1.10.2"   width 8    "1.9" -> 01 312e390000000000 03

A string or binary is padded to the width of its column and followed by its length. The width depends on the longest
value in deltas and index, because the values of all sort columns must fit in 32 bytes.
"""

from __future__ import annotations

import contextlib
import enum
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import SchemaError
from deltacompact.base.model import OperationType
from deltacompact.base.table_keys import Direction, TableKeys
from deltacompact.base.wording import columns_shown, with_article
from deltacompact.tabular import column_types, schemas

ENCODING_VERSION = 2
"""The newest version that this release reads: 1 has only sort columns of fixed width, 2 also of variable width."""
SORT_KEY_BYTES_MAX = 32
"""Most bytes of all sort key values together, without presence and length bytes."""
WIDTH_STEP = 8
DIGEST_BYTES = 20
POINTER_BYTES = 12


class KeyClass(enum.IntEnum):
    """Type classes of key columns. The numbers are the class tags in the key bytes."""

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
    """A primary key column that is digested. `key_class` is None while the column has had only nulls."""

    name: str
    key_class: KeyClass | None = None
    scale: int | None = None


@dataclass(frozen=True, slots=True)
class SortColumn:
    """A sort column. Its values are cast to `type` before they are compared.

    A string or binary has room for `width` bytes. `longest`, the bytes of its longest value so far, decides the width.
    """

    name: str
    type: pa.DataType
    descending: bool = False
    width: int | None = None
    longest: int = field(default=0, compare=False)

    @property
    def encoded_bytes(self) -> int:
        """Bytes of presence, value and, for variable width, length."""
        return 1 + (value_bytes(self.type) if self.width is None else self.width + 1)


@dataclass(frozen=True, slots=True)
class Encoding:
    """How rows become entries. It is the same for all files of a session, and stored in the index manifest."""

    key_columns: tuple[KeyColumn, ...]
    sort_columns: tuple[SortColumn, ...] = ()
    version: int = ENCODING_VERSION

    @property
    def sort_key_bytes(self) -> int:
        """Presence and length bytes included."""
        return sum(column.encoded_bytes for column in self.sort_columns)

    @property
    def entry_bytes(self) -> int:
        return DIGEST_BYTES + self.sort_key_bytes + POINTER_BYTES

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read to make entries."""
        names = [column.name for column in self.key_columns]
        return (*names, *(column.name for column in self.sort_columns if column.name not in names))

    def digests(self, table: pa.Table, path: str) -> npt.NDArray[np.uint8]:
        """SHA-1 of the key bytes of each row: (rows, 20). Raises SchemaError naming file and column of a bad value."""
        arrays = [_key_values(table[column.name], column.key_class) for column in self.key_columns]
        tags = [int(column.key_class or KeyClass.INTEGER) for column in self.key_columns]
        with _refusing(path, "key column", [column.name for column in self.key_columns]):
            return _kernels.key_digests(arrays, tags, table.num_rows)

    def sort_keys(self, table: pa.Table, path: str) -> npt.NDArray[np.uint8]:
        """Sort keys of each row: (rows, sort_key_bytes). A column that the table lacks is null.

        Raises SchemaError naming file and column of a value that does not fit.
        """
        encoded = [self._sort_key(table, column, path) for column in self.sort_columns]
        return np.hstack(encoded) if encoded else np.empty((table.num_rows, 0), np.uint8)

    def _sort_key(self, table: pa.Table, column: SortColumn, path: str) -> npt.NDArray[np.uint8]:
        if pa.types.is_null(column.type):  # no file has had a value yet: the presence byte alone
            return np.zeros((table.num_rows, 1), np.uint8)
        values = _single(self._sort_values(table, column, path))
        with _refusing(path, "sort key", [column.name]):
            return _kernels.sort_keys([values], [column.descending], table.num_rows, [column.width])

    @staticmethod
    def _sort_values(table: pa.Table, column: SortColumn, path: str) -> pa.ChunkedArray:
        if column.name not in table.column_names:
            return pa.chunked_array([pa.nulls(table.num_rows, column.type)])
        return schemas.cast(table[column.name], column.type, path, column.name)


@contextlib.contextmanager
def _refusing(path: str, kind: str, names: Sequence[str]) -> Iterator[None]:
    """Turn a kernel's ValueError about a column into a SchemaError that names file and column."""
    try:
        yield
    except ValueError as error:
        named = re.match(r"column (\d+)(?:, row \d+)?: ", str(error))
        if named is None:
            raise
        name, why = names[int(named[1])], str(error)[named.end() :]
        raise SchemaError(f"{path}: {kind} {name!r}: {why}") from error


def keyless(table: pa.Table, encoding: Encoding) -> npt.NDArray[np.bool_]:
    """True for each row whose sort columns are all null or missing.

    Such a row of a delete removes its key, whatever the sort key of the live row.
    """
    result = np.ones(table.num_rows, dtype=bool)
    for column in encoding.sort_columns:
        if column.name in table.column_names:
            result &= np.asarray(schemas.plain(table[column.name]).is_null())
    return result


_ENVELOPES = (frozenset(("before", "after", "op")), frozenset(("schema", "payload")))
"""Columns of Debezium's messages, in which the rows are inside: bare, and with their schema."""


def resolve_encoding(
    keys: TableKeys,
    partition_keys: Sequence[str],
    files: Sequence[tuple[OperationType, DataFile]],
    known: Encoding | None = None,
) -> Encoding:
    """The encoding that fits all files and the index (`known`).

    The digest leaves out partition columns, which are constant in a stream. Files without rows are ignored. The files
    must have the longest values of string and binary sort columns (see sort_widths.py). Key columns stay in the index's
    order, which is their order in the key bytes. Raises SchemaError naming file and column. A key column may be missing
    or have several classes; a sort column may be too wide or of a type that does not fit; a delete may have some sort
    columns, but not all.
    """
    names = [name for name in keys.primary if name not in partition_keys]
    if known is not None:
        names = [column.name for column in known.key_columns]
    key_columns = {c.name: c for c in known.key_columns} if known else {name: KeyColumn(name) for name in names}
    sort_columns = {c.name: c for c in known.sort_columns} if known else {}
    for key in keys.sort:
        descending = key.direction is Direction.DESCENDING
        sort_columns.setdefault(key.name, SortColumn(key.name, pa.null(), descending))
    seen: list[tuple[OperationType, pa.Schema, tuple[tuple[str, int], ...]]] = []
    for operation, file in files:
        alike = (
            (operation, file.longest) == (kind, longest) and file.schema is schema
            for kind, schema, longest in seen[-4:]
        )
        if not file.rows or any(alike):
            continue
        seen.append((operation, file.schema, file.longest))
        for name in names:
            if name not in file.schema.names:
                columns = file.schema.names
                envelope = any(envelope.issubset(columns) for envelope in _ENVELOPES)
                events = ": of change events, give the format (--format debezium)" if envelope else ""
                raise SchemaError(f"{file.path}: key column {name!r} is missing ({columns_shown(columns)}){events}")
            key_columns[name] = _joined(key_columns[name], file.schema.field(name).type, file.path)
        present = [name for name in sort_columns if name in file.schema.names]
        if operation is OperationType.DELETE and 0 < len(present) < len(sort_columns):
            missing = next(name for name in sort_columns if name not in present)
            raise SchemaError(f"{file.path}: a delete has all sort columns or none, {missing!r} is missing")
        for name in present:
            sort_columns[name] = _sorted_by(sort_columns[name], file)
        _check_width(sort_columns.values(), file.path)
    version = 2 if any(column_types.has_lengths(column.type) for column in sort_columns.values()) else 1
    widened = _with_widths([sort_columns[key.name] for key in keys.sort])
    return Encoding(tuple(key_columns[name] for name in names), widened, version)


def encoding_of(columns: pa.Schema, path: str) -> Encoding:
    """The encoding of keys with these columns, in this order. Raises SchemaError for a type that cannot be a key."""
    return Encoding(tuple(KeyColumn(column.name, *_class_of(column.type, column.name, path)) for column in columns))


def _joined(column: KeyColumn, type_: pa.DataType, path: str) -> KeyColumn:
    """The key column after one more file, whose column has this type. Raises SchemaError if the class differs."""
    key_class, scale = _class_of(type_, column.name, path)
    if key_class is None:
        return column
    if column.key_class is None:
        return replace(column, key_class=key_class, scale=scale)
    if key_class is not column.key_class:
        found, known = (with_article(class_.name.lower()) for class_ in (key_class, column.key_class))
        raise SchemaError(f"{path}: key column {column.name!r} is {type_}, {found}, but in the table it is {known}")
    if scale != column.scale:
        raise SchemaError(
            f"{path}: key column {column.name!r} is {type_}, but in the table it has scale {column.scale}"
        )
    return column


def _class_of(type_: pa.DataType, name: str, path: str) -> tuple[KeyClass | None, int | None]:
    """Class and, for decimals, scale. (None, None) for the null type."""
    t = pa.types
    type_ = column_types.plain_type(type_)
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
        (column_types.is_string, KeyClass.STRING),
        (column_types.is_binary, KeyClass.BINARY),
    )
    for test, key_class in tests:
        if test(type_):
            return key_class, None
    raise SchemaError(f"{path}: key column {name!r} is {type_}, which cannot be a key")


def _sorted_by(column: SortColumn, file: DataFile) -> SortColumn:
    """The sort column, widened to hold the values of one more file. Raises SchemaError if it cannot be."""
    name, type_ = column.name, column_types.plain_type(file.schema.field(column.name).type)
    if not pa.types.is_null(type_) and not column_types.has_lengths(type_) and value_bytes(type_) == 0:
        raise SchemaError(f"{file.path}: sort key {name!r} is {type_}, which cannot be a sort key")
    wider = column_types.widened(column.type, type_)
    if wider is None:
        raise SchemaError(f"{file.path}: sort key {name!r} is {type_}, which does not fit {column.type} in other files")
    if not column_types.has_lengths(wider):
        return replace(column, type=wider)
    longest = max(column.longest, _longest(column.type), _longest(type_), dict(file.longest).get(name, 0))
    return replace(column, type=pa.string() if column_types.is_string(wider) else pa.binary(), longest=longest)


def _longest(type_: pa.DataType) -> int:
    """The longest value of a fixed-size type; 0 for other types."""
    return value_bytes(type_) if pa.types.is_fixed_size_binary(type_) else 0


def _check_width(columns: Collection[SortColumn], path: str) -> None:
    for column in columns:
        if column_types.has_lengths(column.type) and column.longest > SORT_KEY_BYTES_MAX:
            raise too_long(path, column.name, column.longest)
    width = sum(
        column.longest if column_types.has_lengths(column.type) else value_bytes(column.type) for column in columns
    )
    if width > SORT_KEY_BYTES_MAX:
        shown = ", ".join(_shown(column) for column in columns)
        raise SchemaError(f"{path}: sort keys take {width} bytes, {SORT_KEY_BYTES_MAX} at most: {shown}")


def _shown(column: SortColumn) -> str:
    longest = f" of up to {column.longest} bytes" if column_types.has_lengths(column.type) else ""
    return f"{column.name} {column.type}{longest}"


def too_long(path: str, name: str, size: int) -> SchemaError:
    """The error for a sort key value that is too long."""
    return SchemaError(f"{path}: sort key {name!r} has a value of {size} bytes, {SORT_KEY_BYTES_MAX} at most")


def _with_widths(columns: Sequence[SortColumn]) -> tuple[SortColumn, ...]:
    """Give each string and binary column its width: its longest value, rounded up if there is room for that.

    Only the longest values decide, so it does not matter which session saw which value.
    """
    variable = [column for column in columns if column_types.has_lengths(column.type)]
    room = SORT_KEY_BYTES_MAX - sum(value_bytes(column.type) for column in columns)
    step = WIDTH_STEP if sum(_rounded(column.longest, WIDTH_STEP) for column in variable) <= room else 1
    widths = {column.name: _rounded(column.longest, step) for column in variable}
    return tuple(replace(column, width=widths.get(column.name)) for column in columns)


def _rounded(number: int, step: int) -> int:
    return -(-number // step) * step


def value_bytes(type_: pa.DataType) -> int:
    """Bytes of a sort key value; 0 for types without fixed width and for the null type."""
    t = pa.types
    if t.is_boolean(type_):
        return 1
    if t.is_fixed_size_binary(type_) and not t.is_decimal(type_):
        return int(type_.byte_width)
    temporal = t.is_timestamp(type_) or t.is_date(type_) or t.is_time(type_) or t.is_duration(type_)
    if t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_) or temporal:
        return int(type_.bit_width) // 8
    return 0


def _key_values(column: pa.ChunkedArray, key_class: KeyClass | None) -> pa.Array:
    """The values to digest. While the class is unknown, all values are null, whatever the column's type."""
    if key_class is None and column.null_count == len(column):
        return pa.nulls(len(column))
    return _single(schemas.plain(column))


def _single(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array. Callers pass slices of at most one read, so joining is cheap and cannot overflow."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_string(column.type):
        column = column.cast(pa.large_string())
    elif pa.types.is_binary(column.type):
        column = column.cast(pa.large_binary())
    return column.combine_chunks() if column.num_chunks else pa.array([], column.type)
