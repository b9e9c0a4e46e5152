"""The options of an upsert: which columns identify a row, which make it newer, and which rows are deletes.

    {"key-columns": "id", "sort-columns": "updated asc", "operation-column": "op", "delete-values": "D"}

`columns.py` checks them against the table.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltacompact.base.errors import InputError
from deltacompact.base.model import DELETE_VALUES
from deltacompact.base.options import option
from deltacompact.base.table_keys import SortKey
from deltacompact.iceberg_modes.options import (
    FLAG,
    ColumnName,
    Listed,
    OneOf,
    SortKeys,
    chosen_values,
    key_index_option,
    marks_readable_by_option,
)

NAME = "upsert"


class Reach(enum.StrEnum):
    """Where a key is unique: in the whole table, or only in each partition."""

    TABLE = "table"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class UpsertOptions:
    """The options. Columns have their current names."""

    key_columns: tuple[str, ...] = option(
        "key-columns",
        Listed(),
        (),
        "the columns that identify a row, `a,b`; of any primitive type but float and double",
        says="the table's identifier fields",
    )
    sort_columns: tuple[SortKey, ...] = option(
        "sort-columns",
        SortKeys(),
        (),
        "the columns that say which of two rows with one sequence number is newer: by the greater value, or the "
        "smaller after `desc`: `updated,version desc`; null is the oldest; at most 32 bytes",
        says="none",
    )
    operation_column: str | None = option(
        "operation-column",
        ColumnName(),
        None,
        "the column that says whether a row deletes its key",
        says="no row deletes",
    )
    delete_values: tuple[str, ...] = option(
        "delete-values",
        Listed(),
        DELETE_VALUES,
        "the values in it that mean a delete, `D,d`, read as the column's type",
        says=",".join(DELETE_VALUES),
    )
    reach: Reach | None = option(
        "scope",
        OneOf(Reach),
        None,
        "whether a key is unique in the `table` or only in its `partition`",
        says="the table, or the partition where that is the same",
    )
    trusts_row_order: bool = option(
        "trust-row-order",
        FLAG,
        False,
        "you know that later rows are newer in a file that replaced others; it orders no two files",
    )
    key_index: bool | None = key_index_option()
    readable_by: str | None = marks_readable_by_option()


def upsert_options(chosen: Mapping[str, Any], properties: Mapping[str, str] | None = None) -> UpsertOptions:
    """The options by their names. Raises InputError naming the option."""
    if "where" in chosen:
        raise InputError("an upsert has no option where: the newest row of a key may lie in any file")
    values = chosen_values(UpsertOptions, chosen)
    if "delete_values" in values and "operation_column" not in values:
        raise InputError("option delete-values: name the operation-column that has them")
    return UpsertOptions(**values)
