"""Resolves the columns that an upsert reads in the table's schema, before any work. Pure.

the table        1: id long (identifier), 2: name, 3: day date, 4: updated timestamp, 5: op string
the options      sort-columns=updated desc, operation-column=op, delete-values=D
key 1            sort 4 desc            operation 5, "D"
recorded as      key 1; sort 4 desc; operation 5 D          by field id, which stays when a column is renamed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.base.table_keys import Direction, SortKey
from deltacompact.base.wording import with_article
from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.iceberg_modes.upsert.options import UpsertOptions
from deltacompact.index.keys import encoding_of, value_bytes
from deltacompact.tabular import column_types
from deltacompact.tabular.field_ids import id_of


@dataclass(frozen=True, slots=True)
class UpsertColumns:
    """The columns by their current names. `key` is in the order of the table's schema.

    deletes     the values of the operation column that mean a delete
    words       all of this for people, by name
    recorded    the same by field id: it does not change when a column is renamed
    """

    key: tuple[str, ...]
    key_ids: frozenset[int]
    sort: tuple[SortKey, ...]
    operation: str | None
    deletes: pa.Array | None = field(hash=False, compare=False)
    words: str
    recorded: str


def upsert_columns(metadata: TableMetadata, options: UpsertOptions) -> UpsertColumns:
    """The columns that the options name. Raises InputError if the table lacks one, or if its type cannot be
    compared."""
    fields = {column.name: column for column in metadata.schema}
    name = metadata.table_id
    for what, wanted in (
        ("key", options.key_columns),
        ("sort", [key.name for key in options.sort_columns]),
        ("operation", [options.operation_column] if options.operation_column else []),
    ):
        if unknown := next((column for column in wanted if column not in fields), None):
            raise InputError(f"table {name!r} has no column {unknown!r} for its {what} (columns: {', '.join(fields)})")
    chosen = set(options.key_columns) or _identifier_fields(metadata)
    key = [column for column in metadata.schema if column.name in chosen]
    for column in key:
        if metadata.columns[id_of(column)].type in ("float", "double"):
            raise InputError(f"table {name!r}: key column {column.name!r} is {column.type}, which cannot be a key")
    encoding_of(pa.schema(key), f"table {name!r}")
    for sort in options.sort_columns:
        type_ = column_types.plain_type(fields[sort.name].type)
        if not column_types.has_lengths(type_) and not value_bytes(type_):
            raise InputError(f"table {name!r}: sort column {sort.name!r} is {type_}, which has no order")
    deletes = _deletes(fields[options.operation_column], options, name) if options.operation_column else None
    names = [column.name for column in key]
    return UpsertColumns(
        tuple(names),
        frozenset(id_of(column) for column in key),
        options.sort_columns,
        options.operation_column,
        deletes,
        _words(options, names),
        _words(options, names, {column.name: str(id_of(column)) for column in metadata.schema}),
    )


def _identifier_fields(metadata: TableMetadata) -> set[str]:
    """The names of the table's identifier fields (spec, "Identifier Field IDs")."""
    names = {id_of(column): column.name for column in metadata.schema}
    ids = metadata.identifier_ids
    if not ids:
        raise InputError(f"table {metadata.table_id!r} has no identifier fields: name its key in option key-columns")
    if nested := next((number for number in ids if number not in names), None):
        raise InputError(f"table {metadata.table_id!r}: identifier field {nested} lies inside of a struct")
    return {names[number] for number in ids}


def _deletes(column: pa.Field, options: UpsertOptions, table_id: str) -> pa.Array:
    """The values that mean a delete, in the type of the operation column."""
    type_ = column_types.plain_type(column.type)
    texts = pa.array(options.delete_values, pa.string())
    try:
        return texts if column_types.is_string(type_) else texts.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(
            f"table {table_id!r}: operation column {column.name!r} is {type_}, but option delete-values has a value "
            f"that is not {with_article(str(type_))}: {', '.join(options.delete_values)}"
        ) from None


def _words(options: UpsertOptions, key: Sequence[str], ids: Mapping[str, str] | None = None) -> str:
    """The columns in words, by name. `ids`: the field id of each name, to write instead."""
    called = ids or {}
    words = ["key " + ", ".join(called.get(name, name) for name in key)]
    if options.sort_columns:
        directions = {Direction.ASCENDING: "asc", Direction.DESCENDING: "desc"}
        sort = [f"{called.get(sort.name, sort.name)} {directions[sort.direction]}" for sort in options.sort_columns]
        words.append("sort " + ", ".join(sort))
    if (operation := options.operation_column) is not None:
        words.append(f"operation {called.get(operation, operation)} {', '.join(sorted(options.delete_values))}")
    return "; ".join(words)
