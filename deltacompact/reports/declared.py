"""What a table declares: keys, columns, how long deletes are remembered, who reads it. In words and as a document."""

from __future__ import annotations

from typing import Any

from deltacompact.base.model import Readers, Table


def declared(table: Table) -> str:
    """The declared keys of a table, in words."""
    primary = ", ".join(table.keys.primary) if table.keys else "not declared"
    sort = ", ".join(f"{key.name}:{key.direction.value}" for key in table.keys.sort) if table.keys else ""
    partitioned = ", ".join(table.partition_keys)
    retention = table.tombstone_retention
    return (
        f"primary keys {primary}; sort keys {sort or 'none'}; partition keys {partitioned or 'none'}; "
        f"tombstone retention {'for ever' if retention is None else retention}; schema mode {table.schema_mode}; "
        f"columns {_columns_in_words(table) or 'not declared'}"
    )


def _columns_in_words(table: Table) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in table.columns or ())


def keys_document(table: Table) -> dict[str, Any]:
    """What the table declares, as JSON values."""
    return {
        "table": table.table_id,
        "partition_keys": table.partition_keys,
        "primary_keys": table.keys.primary if table.keys else None,
        "sort_keys": [f"{k.name}:{k.direction.value}" for k in table.keys.sort] if table.keys else None,
        "destination_of": table.source_table_id,
        "publication": table.publication,
        "schema_mode": table.schema_mode,
        "readers": table.readers or Readers.FILES,
        "cluster_by": table.cluster_by,
        "declared_columns": {field.name: str(field.type) for field in table.columns} if table.columns else None,
    }
