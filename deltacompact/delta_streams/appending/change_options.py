"""What the caller of an append says of its rows, and what it means for the table.

partition_keys day, region

partition={"region": "eu"}, operation_column="op"     each row says its operation and its day
partition_by=["day", "region"]                        each row says both, and null is a partition
partition={"day": "1", "region": "eu"}                all rows have one partition and one operation: no change events
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.model import OperationType, Partition, PartitionLike, Table
from deltacompact.base.shared_arguments import ChangeEventOptions
from deltacompact.change_events.formats import Envelope, format_of
from deltacompact.change_events.operations import Operations


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """How the operation and the partition of each row are found.

    operation         of all rows, without `says_operation`
    says_operation    the column or envelope with each row's operation
    fixed             partition values that the caller gives
    routed            partition columns whose values the rows have
    """

    operation: OperationType = OperationType.UPSERT
    says_operation: Operations | Envelope | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    routed: tuple[str, ...] = ()
    null_is_partition: bool = False
    """Whether a null in a routed column is a value, and not a mistake: `partition_by` names the column."""
    in_order: bool = True
    """Whether a later event of a key counts more. Else a key has one upsert at most, and deletes come before it."""


def change_options(
    table: Table, partition: PartitionLike, operation: str, said: ChangeEventOptions
) -> ChangeOptions | None:
    """The options. None: rows of one partition and one operation. Raises InputError naming options that clash."""
    says, partition_by = _says_operation(operation, said), said.get("partition_by")
    fixed = dict(partition.values) if isinstance(partition, Partition) else partition
    if fixed is not None and not isinstance(fixed, Mapping):
        return None  # Partition.of says what is wrong
    routed = tuple(name for name in table.partition_keys if name not in (fixed or {}))
    _check_partition_by(table, partition_by, fixed or {}, routed)
    if says is None and not routed:
        return None
    if says is not None and table.keys is None:
        raise InputError(
            f"table {table.table_id!r} has no keys yet, which tell the last event of a row: create another with "
            "primary keys (--primary-key)"
        )
    declared = {*table.partition_keys, *(table.keys.columns if table.keys else ())}
    if isinstance(says, Operations) and says.column in declared:
        raise InputError(f"operation column {says.column!r} is a key of table {table.table_id!r}")
    Partition.of(table.partition_keys, {**dict.fromkeys(routed), **(fixed or {})})
    return ChangeOptions(OperationType.of(operation), says, fixed or {}, routed, partition_by is not None)


def _says_operation(operation: str, said: ChangeEventOptions) -> Operations | Envelope | None:
    column, format_ = said.get("operation_column"), said.get("format")
    upsert_values, delete_values = said.get("upsert_values"), said.get("delete_values")
    if column is None and (upsert_values is not None or delete_values is not None):
        raise InputError("upsert_values and delete_values: name the operation_column that has them")
    if column is not None and format_ is not None:
        raise InputError(f"operation_column and format exclude each other: {format_} says where the operation is")
    if (column or format_) is not None and str(operation).lower() != OperationType.UPSERT:
        raise InputError(f"operation {operation!r}: each row says its own, by operation_column or format")
    if format_ is not None:
        return format_of(expect.text("format", format_))
    return None if column is None else Operations.of(column, upsert_values, delete_values)


def _check_partition_by(
    table: Table, partition_by: Sequence[str] | str | None, fixed: Mapping[str, Any], routed: Sequence[str]
) -> None:
    if partition_by is None:
        return
    named = expect.names("partition_by", partition_by)
    for name in named:
        if name not in table.partition_keys:
            known = ", ".join(table.partition_keys) or "none"
            raise InputError(f"partition_by: {name!r} is no partition key (the table's partition keys: {known})")
        if name in fixed:
            raise InputError(f"partition_by: partition key {name!r} has a value in partition, too")
    for name in routed:
        if name not in named:
            raise InputError(f"partition key {name!r} is neither in partition_by nor in partition")
