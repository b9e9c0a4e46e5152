"""Finds the lengths of the longest values of string and binary sort columns. A plan needs them.

    keys      sort by version
    f1        version string   "1.9", "1.10.2"     the append of f1 recorded it in the log: longest 6
    f2        version string                       appended before the table had keys: read the column, longest 3
    f3        version binary(4)                    the type tells: longest 4

Files never change, so every attempt at a session finds the same widths, whether it reads the log or the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import Delta
from deltacompact.base.table_keys import TableKeys
from deltacompact.index.keys import SORT_KEY_BYTES_MAX, too_long
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import column_types, schemas

READERS = 8
"""Files to read at a time."""


def longest_values(table: pa.Table, keys: TableKeys | None, path: str) -> tuple[tuple[str, int], ...]:
    """The bytes of the longest value of each sort column of variable width.

    Raises SchemaError naming file and column if a value is too long for a sort key.
    """
    found = {}
    for name in _variable_columns(table.schema, keys):
        found[name] = pc.max(pc.binary_length(schemas.plain(table[name]))).as_py() or 0
        if found[name] > SORT_KEY_BYTES_MAX:
            raise too_long(path, name, found[name])
    return tuple(found.items())


def measured(store: ObjectStore, deltas: Sequence[Delta], keys: TableKeys) -> tuple[Delta, ...]:
    """The deltas with the longest values of all their files. Reads the columns for which the log has no length."""
    unknown = {file.path: file for delta in deltas for file in delta.files if _unmeasured(file, keys)}
    if not unknown:
        return tuple(deltas)
    with ThreadPoolExecutor(READERS) as threads:
        done = threads.map(lambda file: measured_file(store, file, keys), unknown.values())
        known = dict(zip(unknown, done, strict=True))

    def with_longest(file: DataFile) -> DataFile:
        return replace(file, longest=known[file.path].longest) if file.path in known else file

    return tuple(replace(delta, files=tuple(map(with_longest, delta.files))) for delta in deltas)


def measured_file(store: ObjectStore, file: DataFile, keys: TableKeys | None) -> DataFile:
    """The file with the longest values of its sort columns. Reads the columns whose lengths are not known."""
    names = _unmeasured(file, keys)
    longest = dict.fromkeys(names, 0)
    if names and file.rows:
        from deltacompact.index.live_bitmaps import live_tables  # most plans read no column

        for _, table in live_tables(store, file, names):
            longest = {name: max(size, longest[name]) for name, size in longest_values(table, keys, file.path)}
    return replace(file, longest=tuple({**dict(file.longest), **longest}.items()))


def is_unmeasured(file: DataFile, keys: TableKeys | None) -> bool:
    """Whether the log lacks the longest value of a sort column: the file is older than the keys."""
    return bool(file.rows) and bool(_unmeasured(file, keys))


def _unmeasured(file: DataFile, keys: TableKeys | None) -> list[str]:
    known = dict(file.longest)
    return [name for name in _variable_columns(file.schema, keys) if name not in known]


def _variable_columns(schema: pa.Schema, keys: TableKeys | None) -> Iterator[str]:
    """The sort columns of variable width."""
    for key in keys.sort if keys else ():
        if key.name in schema.names and column_types.has_lengths(column_types.plain_type(schema.field(key.name).type)):
            yield key.name
