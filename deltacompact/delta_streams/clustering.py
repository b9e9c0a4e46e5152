"""Checks, before any work, that a table's rows can be clustered by the chosen columns.

cluster_by "day*3,customer"    columns of orders: id, day, customer                      fine
           "dya"               no partition has such a column                            InputError, and what it has
           declared "dya"      rows may bring it later: it is null until then            fine
           "address.city"      lies in a struct                                          InputError
           "tags"              a list: its values have no order                          InputError
           "note"              some partitions lack the column: it counts as null there   fine
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from deltacompact.base.errors import InputError
from deltacompact.base.model import OperationType, Table
from deltacompact.base.wording import column_meant
from deltacompact.delta_streams.table_documents import clustering_of
from deltacompact.layout.cluster_by import cluster_columns
from deltacompact.layout.order import has_order
from deltacompact.table.ports import PartitionSnapshot
from deltacompact.tabular.column_types import stored_type


def check_clustering(table: Table, cluster_by: str, schemas: Iterable[pa.Schema], *, is_all: bool) -> None:
    """Raise InputError for a column whose values have no order.

    `schemas`: those of the partitions' rows. `is_all`: refuse a column, too, that none of them has and the table does
    not declare. Without schemas, nothing is checked.
    """
    columns = cluster_columns("cluster_by", clustering_of(cluster_by, table.partition_keys))
    found: dict[str, list[pa.DataType]] = {}
    for field in (field for schema in schemas for field in schema) if columns else ():
        found.setdefault(field.name, []).append(field.type)
    for name in (column.name for column in columns):
        if name not in found:
            in_struct = any(map(pa.types.is_struct, found.get(name.partition(".")[0], ())))
            may_come = not (is_all and found) or name in (table.columns or pa.schema([])).names
            if in_struct or not may_come:
                why = "name one at the top level" if in_struct else column_meant(name, sorted(found))
                raise InputError(f"cluster_by: table {table.table_id!r} has no column {name!r}: {why}")
        for type_ in found.get(name, ()):
            if not pa.types.is_null(type_) and not has_order(stored_type(type_)):
                where = f"column {name!r} of table {table.table_id!r}"
                raise InputError(f"cluster_by: {where} is {type_}, whose values have no order")


def schemas_of(snapshot: PartitionSnapshot) -> Iterator[pa.Schema]:
    """The schemas of the compacted rows, and of the upserts."""
    if snapshot.base is not None:
        yield snapshot.base.schema
    distinct = {
        id(file.schema): file.schema
        for delta in snapshot.deltas
        if delta.operation is OperationType.UPSERT
        for file in delta.files
    }
    yield from distinct.values()
