"""What is done for each batch or file takes time in proportion to the columns, not to their square: it is counted."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from deltacompact.base.data_file import DataFile, Fill
from deltacompact.base.model import ContentType, Partition
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.tabular import field_ids, fills, schemas

COLUMNS = 3_000
NAMES = [f"c{number}" for number in range(COLUMNS)]


class Counted:
    """A table that counts how often all its names are asked for: each time, pyarrow builds them anew."""

    def __init__(self, table: pa.Table) -> None:
        self.inner = table
        self.asked = 0

    @property
    def column_names(self) -> list[str]:
        self.asked += 1
        return list(self.inner.column_names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __getitem__(self, name: str) -> Any:
        return self.inner[name]


def wide() -> pa.Table:
    return pa.table({name: pa.array([1, None], pa.int32()) for name in NAMES})


def with_ids(table: pa.Table) -> pa.Schema:
    return pa.schema([f.with_metadata({field_ids.FIELD_ID: str(n)}) for n, f in enumerate(table.schema, 1)])


def test_a_batch_of_3000_columns_is_aligned_without_asking_for_its_names_again_and_again() -> None:
    table, schema = Counted(wide()), pa.schema([(name, pa.int64()) for name in [*NAMES, "new"]])
    aligned = schemas.align(table, schema, Partition(), "wide.parquet")  # type: ignore[arg-type]
    assert aligned.schema == schema and aligned["c2999"].to_pylist() == [1, None]
    assert table.asked == 1


def test_the_fills_of_3000_columns_are_looked_up_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    table = wide()
    schema = with_ids(table)
    made = tuple(Fill(field, pa.scalar(7, pa.int32()), of_nulls=True) for field in schema)
    file = DataFile(UNNUMBERED, "wide.parquet", ContentType.PARQUET, 2, 0, schema, stored=schema, fills=made)
    calls, real = [0], field_ids.field_id

    def counting(field: pa.Field) -> int | None:
        calls[0] += 1
        return real(field)

    monkeypatch.setattr(field_ids, "field_id", counting)
    monkeypatch.setattr(fills, "field_id", counting)
    counted = Counted(table)
    filled = fills.filled(counted, file, NAMES, 0)  # type: ignore[arg-type]
    assert filled["c2999"].to_pylist() == [1, 7]
    assert not field_ids.agree(file, schema)
    assert counted.asked == 1
    assert calls[0] <= 4 * COLUMNS


def test_a_table_of_3000_views_is_made_plain_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, real = [0], pa.Table.from_arrays

    class Counting:
        """pyarrow's Table, of which it is counted how many were made; it has no `set_column`."""

        @staticmethod
        def from_arrays(*arguments: Any, **named: Any) -> pa.Table:
            made[0] += 1
            return real(*arguments, **named)

    table = pa.table({name: pa.array(["a", None], pa.string_view()) for name in NAMES})
    monkeypatch.setattr(schemas.pa, "Table", Counting)
    plain = schemas.computable(table, "wide.arrow")
    assert plain.schema.types == [pa.string()] * COLUMNS and plain["c2999"].to_pylist() == ["a", None]
    assert made[0] == 1
