"""The operation column: which rows are deletes.

op     I U D I                 upsert_values I U …, delete_values D …         no, no, yes, no
op     I X                     refused: row 2 says 'X', which is in neither list
code   1 2 3                   upsert_values 1 2, delete_values 3: read as the column's type
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.model import DELETE_VALUES, UPSERT_VALUES
from deltacompact.base.table_keys import TableKeys
from deltacompact.base.wording import columns_shown
from deltacompact.change_events.events import Events, Origin, Placed
from deltacompact.change_events.unavailable import check_available
from deltacompact.storage.identity import file_name
from deltacompact.tabular import schemas


@dataclass(frozen=True, slots=True)
class Operations:
    """The column in which each row says its operation, and the values that mean an upsert or a delete."""

    column: str
    upsert_values: tuple[Any, ...] = UPSERT_VALUES
    delete_values: tuple[Any, ...] = DELETE_VALUES
    advice: str = ": correct it, or name it in upsert_values or delete_values (--upsert-values, --delete-values)"
    full_load: str | None = None
    """How the names of files begin that hold the table as it was before all other files."""

    @classmethod
    def of(cls, column: str, upsert_values: Sequence[Any] | None, delete_values: Sequence[Any] | None) -> Operations:
        """Raises InputError for a value that is in both lists."""
        upserts = UPSERT_VALUES if upsert_values is None else _values("upsert_values", upsert_values)
        deletes = DELETE_VALUES if delete_values is None else _values("delete_values", delete_values)
        both = [value for value in upserts if value in deletes]
        if both and (upsert_values is None) != (delete_values is None):  # the user moves a value to the other list
            if upsert_values is None:
                upserts = tuple(value for value in upserts if value not in both)
            else:
                deletes = tuple(value for value in deletes if value not in both)
        elif both:
            raise InputError(f"operation {both[0]!r} is both in upsert_values and in delete_values")
        return cls(expect.text("operation_column", column), upserts, deletes)

    def in_order(self, files: Iterable[str]) -> list[str]:
        """The files as given, but those of a full load first."""
        load = self.full_load
        return sorted(files, key=lambda file: load is not None and not file_name(file).startswith(load))

    def events(self, table: pa.Table, origin: Origin, keys: TableKeys, partition_keys: Sequence[str]) -> Events:
        """The rows without the operation column. Deletes keep key, sort and partition columns.

        Raises InputError where the column is missing, naming value and row that have no meaning, or a value that is
        not available.
        """
        if self.column not in table.column_names:
            raise InputError(
                f"{origin.name}: operation column {self.column!r} is missing ({columns_shown(table.column_names)}): "
                "name the column that says what each row does, or append upserts and deletes apart"
            )
        deletes = self.deletes(table[self.column], origin)
        rows = table.drop_columns([self.column])
        needed = [name for name in rows.column_names if name in (*keys.columns, *partition_keys)]
        upserts = _placed(rows, ~deletes)
        check_available(upserts.rows, origin.of(upserts.places))
        return Events(origin.name, upserts, _placed(rows.select(needed), deletes))

    def deletes(self, column: pa.ChunkedArray, origin: Origin) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which rows are deletes. Raises InputError as above."""
        column = schemas.plain(column)
        upserts, deletes = (self._mask(column, values, origin) for values in (self.upsert_values, self.delete_values))
        if (both := upserts & deletes).any():  # they may differ as given: "1" and 1
            index = int(np.argmax(both))
            said = f"operation {column[index].as_py()!r}"
            raise InputError(f"{origin.row(index)}: {said} is both in upsert_values and in delete_values: name it once")
        if not (known := upserts | deletes).all():
            index = int(np.argmin(known))
            upserted, deleted = _shown(self.upsert_values), _shown(self.delete_values)
            raise InputError(
                f"{origin.row(index)}: operation {column[index].as_py()!r} is neither an upsert ({upserted}) nor a "
                f"delete ({deleted}){self.advice}"
            )
        return deletes

    def _mask(
        self, column: pa.ChunkedArray, values: Sequence[Any], origin: Origin
    ) -> np.ndarray[Any, np.dtype[np.bool_]]:
        if pa.types.is_null(column.type) or not values:
            return np.zeros(len(column), bool)
        try:
            known = pa.array(list(values)).cast(column.type)
        except (pa.ArrowException, TypeError):
            raise InputError(
                f"{origin.name}: operation column {self.column!r} is {column.type}, and {_shown(values)} are not: give "
                "upsert_values and delete_values (--upsert-values, --delete-values)"
            ) from None
        return np.asarray(pc.is_in(column, value_set=known))


def _values(argument: str, values: Sequence[Any]) -> tuple[Any, ...]:
    return (values,) if isinstance(values, str) else expect.several(argument, values)


def _placed(rows: pa.Table, mask: np.ndarray[Any, np.dtype[np.bool_]]) -> Placed:
    return Placed(rows if mask.all() else rows.filter(pa.array(mask)), np.flatnonzero(mask))


def _shown(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values))
