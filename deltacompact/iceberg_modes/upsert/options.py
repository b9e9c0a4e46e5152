"""The options of an upsert: what identifies a row, what makes it newer, and which rows are deletes.

    {"key-columns": "id", "sort-columns": "updated asc", "operation-column": "op", "delete-values": "D"}

Values are text, as on the command line. What a table must have for them is checked in the plan.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltacompact.base.errors import InputError
from deltacompact.base.model import Direction, SortKey
from deltacompact.base.wording import unknown_option

DELETE_VALUES = ("D", "d", "delete", "DELETE")
"""What Debezium, Kafka Connect and most others write where a row says that its key is deleted."""


class Reach(enum.StrEnum):
    """Within what a key is unique: in the whole table, or in each partition alone."""

    TABLE = "table"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class UpsertOptions:
    """Columns are named as the table names them today.

    key_columns         what identifies a row (empty: the table's identifier fields)
    sort_columns        which of two rows of one sequence number is newer: the one with the greater value
    operation_column    says whether a row is a delete (None: no row is)
    delete_values       by one of these values
    reach               see Reach; None: the table, or each partition where that is the same
    trusts_row_order    in files that replaced others, later rows are newer
    key_index           whether keys are kept in an index beside the table (None: as the table's property says)
    """

    key_columns: tuple[str, ...] = ()
    sort_columns: tuple[SortKey, ...] = ()
    operation_column: str | None = None
    delete_values: tuple[str, ...] = DELETE_VALUES
    reach: Reach | None = None
    trusts_row_order: bool = False
    key_index: bool | None = None


_NAMES = ("key-columns", "sort-columns", "operation-column", "delete-values", "scope", "trust-row-order", "key-index")
_DIRECTIONS = {"asc": Direction.ASCENDING, "desc": Direction.DESCENDING}


def upsert_options(chosen: Mapping[str, Any]) -> UpsertOptions:
    """The options by their names. Raises InputError naming the option."""
    for name in chosen:
        if name == "where":
            raise InputError("an upsert has no option where: the newest row of a key may lie in any file")
        if name not in _NAMES:
            raise InputError(unknown_option(name, _NAMES))
    operation = str(chosen["operation-column"]).strip() if "operation-column" in chosen else None
    if operation == "":
        raise InputError("option operation-column is empty: name a column")
    if "delete-values" in chosen and operation is None:
        raise InputError("option delete-values: name the operation-column that has them")
    sort_columns = tuple(_sort_key(text) for text in _listed(chosen, "sort-columns"))
    _refuse_repeated("sort-columns", tuple(key.name for key in sort_columns))
    return UpsertOptions(
        _refuse_repeated("key-columns", _listed(chosen, "key-columns")),
        sort_columns,
        operation,
        _refuse_repeated("delete-values", _listed(chosen, "delete-values")) or DELETE_VALUES,
        _reach(chosen["scope"]) if "scope" in chosen else None,
        _yes_or_no("trust-row-order", chosen.get("trust-row-order", False)),
        _yes_or_no("key-index", chosen["key-index"]) if "key-index" in chosen else None,
    )


def _listed(chosen: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A list, or its items in a text with commas."""
    if name not in chosen:
        return ()
    value = chosen[name]
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    found = tuple(str(item).strip() for item in items)
    if not found or "" in found:
        raise InputError(f"option {name}: {value!r} names nothing in one place: write a,b")
    return found


def _refuse_repeated(name: str, found: tuple[str, ...]) -> tuple[str, ...]:
    if repeated := next((item for number, item in enumerate(found) if item in found[:number]), None):
        raise InputError(f"option {name} has {repeated!r} twice")
    return found


def _sort_key(text: str) -> SortKey:
    name, _, direction = text.rpartition(" ")
    if not name:
        return SortKey(text)
    if direction.lower() not in _DIRECTIONS:
        raise InputError(f"option sort-columns: {text!r} ends neither in asc nor in desc")
    return SortKey(name.strip(), _DIRECTIONS[direction.lower()])


def _yes_or_no(name: str, value: Any) -> bool:
    said = str(value).strip().lower()
    if said not in ("true", "false"):
        raise InputError(f"option {name}: {value!r} is neither true nor false")
    return said == "true"


def _reach(value: Any) -> Reach:
    try:
        return Reach(str(value).strip().lower())
    except ValueError:
        raise InputError(f"option scope: {value!r} is none of {', '.join(Reach)}") from None
