"""The objects that describe a table: table.json, keys.json and source.json.

orders/table.json     {"format":1,"table_id":"orders","partition_keys":["day"],"keys":null,…}
                      …,"publication":"iceberg://prod/db.orders"}      the table is published
                      …,"schema_mode":"fixed"}                         no append may add columns
                      …,"readers":"vectors"}                           its readers honour deletion vectors
                      …,"creation":"5c…"}                              it was created since November 2026
                      …,"cluster_by":"day*3,customer"}                 its rows are laid out by columns
                      …,"columns":"/////3gA…"}                         the types of columns, as in the log
orders/keys.json      {"format":1,"primary_keys":["id"],"sort_keys":[["version","ascending"]]}
flat/source.json      {"format":1,"source_table_id":"orders"}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deltacompact.base.errors import InputError
from deltacompact.base.model import FORMAT_VERSION, Readers, SchemaMode, Table
from deltacompact.base.table_keys import Direction, SortKey, TableKeys
from deltacompact.delta_streams.log.entries import check_format
from deltacompact.delta_streams.log.objects import json_object
from deltacompact.layout.cluster_by import cluster_columns, text_of_columns
from deltacompact.table.documents import decoded_schema, encoded_schema


def document(data: bytes, path: str) -> dict[str, Any]:
    """The JSON object in a file. Raises CorruptionError if it is none, InputError for a newer format."""
    found = json_object(data, path)
    check_format(found, path)
    return found


def table_document(table: Table) -> dict[str, Any]:
    """table.json. Facts that may change are left out if they have their defaults. Release 0.1 ignores them."""
    may_change = {
        "publication": table.publication,
        "schema_mode": None if table.schema_mode is SchemaMode.MERGE else table.schema_mode,
        "readers": table.readers,
        "creation": table.creation,
        "cluster_by": table.cluster_by,
        "columns": encoded_schema(table.columns) if table.columns else None,
    }
    return {
        "format": FORMAT_VERSION,
        "table_id": table.table_id,
        "partition_keys": table.partition_keys,
        "keys": keys_document(table.keys) if table.keys else None,
        "tombstone_retention": table.tombstone_retention,
        **{name: fact for name, fact in may_change.items() if fact},
    }


def table_from(table_id: str, document: dict[str, Any]) -> Table:
    """The table that table.json describes."""
    return Table(
        table_id,
        tuple(document["partition_keys"]),
        keys_from(document["keys"]) if document["keys"] else None,
        document["tombstone_retention"],
        publication=document.get("publication"),
        schema_mode=SchemaMode(document.get("schema_mode", SchemaMode.MERGE)),
        readers=Readers(document["readers"]) if "readers" in document else None,
        creation=document.get("creation"),
        cluster_by=document.get("cluster_by"),
        columns=decoded_schema(document["columns"]) if "columns" in document else None,
    )


def keys_document(keys: TableKeys) -> dict[str, Any]:
    """keys.json without its format version."""
    return {"primary_keys": keys.primary, "sort_keys": [(key.name, key.direction.value) for key in keys.sort]}


def keys_from(document: dict[str, Any]) -> TableKeys:
    """The keys that keys.json describes."""
    sort = tuple(SortKey(name, Direction(direction)) for name, direction in document["sort_keys"])
    return TableKeys(tuple(document["primary_keys"]), sort)


def of_source(table: Table, source_table_id: str | None) -> Table:
    """The table with its source from source.json."""
    return replace(table, source_table_id=source_table_id, holds_streams=source_table_id is None)


def no_keys_yet(table: Table) -> InputError:
    """The error if keys are needed, and neither the table nor the caller has named them."""
    return InputError(f"table {table.table_id!r} has no primary keys yet: name them (--primary-key, primary_keys=[…])")


def clustering_of(cluster_by: str | Sequence[str], partition_keys: Sequence[str]) -> str:
    """The columns to lay rows out by, in one spelling. "": none. Raises InputError for unusable columns."""
    columns = cluster_columns("cluster_by", cluster_by)
    for name in (column.name for column in columns):
        if name in partition_keys:
            raise InputError(f"cluster_by names {name!r}, a partition key: it has one value in each partition")
    return text_of_columns(columns)


def check_sort_keys(keys: TableKeys, partition_keys: Sequence[str]) -> None:
    """Raise InputError for a partition key as sort key: a file may lack the column, and null loses to any value."""
    for name in (key.name for key in keys.sort):
        if name in partition_keys:
            raise InputError(f"sort key {name!r} is a partition key: it has one value in each partition")


def check_keys(table: Table, keys: TableKeys | None) -> None:
    """Raise InputError for keys other than the table's. A table without keys may get any."""
    if keys is None or table.keys is None or keys == table.keys:
        return
    if keys.primary != table.keys.primary:
        raise InputError(
            f"table {table.table_id!r} has the primary keys {list(table.keys.primary)}, not {list(keys.primary)}"
        )
    if keys.sort:  # without sort keys, the table's own apply
        has, asked = ([f"{key.name}:{key.direction.value}" for key in sort] for sort in (table.keys.sort, keys.sort))
        raise InputError(
            f"table {table.table_id!r} has {f'the sort keys {has}' if has else 'no sort keys'}, not {asked}"
        )


def is_destination(table_id: str, source_table_id: str) -> InputError:
    """The error for an append to a destination."""
    return InputError(f"table {table_id!r} is a destination of {source_table_id!r}: append there")
