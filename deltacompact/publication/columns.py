"""The columns of a table that shows compacted rows, whatever its format. Pure.

    day=1    id int32, v string               id int32, v string
    day=3    id int64, w dictionary<string>   id int64, v string, w string, day string

These are types of the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from deltacompact.base.errors import InputError, SchemaError
from deltacompact.base.model import Partition
from deltacompact.base.wording import with_article
from deltacompact.publication.port import Value
from deltacompact.tabular import column_types, partition_texts


def joined(parts: Iterable[pa.Schema], where: str) -> pa.Schema:
    """The union of shown columns by name. Raises SchemaError if two types do not fit."""
    types: dict[str, pa.DataType] = {}
    for part in parts:
        for field in part:
            known = types.get(field.name, field.type)
            wider = _wider(known, field.type)
            if wider is None:
                raise SchemaError(f"{where}: column {field.name!r} is {field.type}, which does not fit {known}")
            types[field.name] = wider
    return pa.schema(list(types.items()))


def _wider(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type that holds both. Files stay, and no reader takes binaries of a fixed size for others."""
    wider = column_types.widened(a, b)
    fixed = pa.types.is_fixed_size_binary(a) or pa.types.is_fixed_size_binary(b)
    return None if fixed and not a == b == wider else wider


def check_partition_keys(columns: pa.Schema, keys: Sequence[str]) -> None:
    """Raise SchemaError for a partition key of a type by which published tables are not partitioned."""
    for name in keys:
        if not _makes_partitions(columns.field(name).type):
            raise SchemaError(
                f"partition key {name!r} is {with_article(str(columns.field(name).type))} in the files: tables that "
                "are published are partitioned by texts, whole numbers, dates and booleans"
            )


def refuse_widened(before: pa.Schema, after: pa.Schema, keys: Sequence[str], kind: str) -> None:
    """Raise SchemaError for a partition key that would become wider: readers fail on its old partitions."""
    for name in keys:
        was, would_be = (with_article(str(columns.field(name).type)) for columns in (before, after))
        if was != would_be:
            raise SchemaError(f"partition key {name!r} is {was} in the {kind} table, and would become {would_be}")


def partition_values(partition: Partition, columns: pa.Schema) -> tuple[Value, ...]:
    """The partition's values in the types of their columns. Raises SchemaError for a value that does not fit."""
    return tuple(partition_texts.partition_scalar(text, columns.field(name)).as_py() for name, text in partition.values)


def _makes_partitions(type_: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_string(type_) or t.is_signed_integer(type_) or t.is_date32(type_) or t.is_boolean(type_))


def refuse_required(columns: pa.Schema, table: str) -> None:
    """Raise InputError for a table with a required column: rows here may have null in it."""
    for field in columns:
        if not field.nullable:
            raise InputError(f"{table}: column {field.name!r} is required, rows here may have no value")
