"""The checksum of the benchmarks: what differs is found out."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.checksum import fingerprint, row_hashes

PRICE = pa.decimal128(15, 2)


def checksum(table: pa.Table) -> int:
    return int(row_hashes(table, table.column_names).sum(dtype=np.uint64))


@pytest.mark.parametrize(
    ("values", "changed", "kind"),
    [
        (["", "a", "abcdefgh"], ["a", "", "abcdefgh"], pa.string()),
        (["R", "N", "A"], ["R", "A", "A"], pa.string()),
        (["", "", ""], ["", "", "\0"], pa.string()),
        (["a" * 7, "b" * 8, "c" * 30], ["a" * 7, "b" * 8, "c" * 29 + "d"], pa.string_view()),
        (
            [Decimal("0.04"), Decimal("-1.00"), Decimal("9.99")],
            [Decimal("0.04"), Decimal("1.00"), Decimal("9.99")],
            PRICE,
        ),
        (
            [datetime.date(1998, 8, day) for day in (1, 2, 3)],
            [datetime.date(1998, 8, day) for day in (1, 2, 4)],
            pa.date32(),
        ),
        ([1, 2, 3], [1, 2, -3], pa.int32()),
    ],
)
def test_a_changed_value_changes_the_checksum(values: list[Any], changed: list[Any], kind: pa.DataType) -> None:
    def of(column: Iterable[Any], key: Iterable[int] = range(3)) -> int:
        return checksum(pa.table({"key": list(key), "value": pa.array(column, kind)}))

    assert of(values) != of(changed)
    assert of(values) == of(reversed(values), reversed(range(3)))
    assert of(values) != of(values, [0, 1, 4])


def test_types_that_engines_write_otherwise_have_the_same_checksum(tmp_path: Path) -> None:
    one = pa.table(
        {"price": pa.array([Decimal("1.50")], PRICE), "flag": pa.array(["R"]), "line": pa.array([1], pa.int32())}
    )
    other = one.cast(pa.schema({"price": pa.decimal128(38, 2), "flag": pa.string_view(), "line": pa.int64()}))
    assert checksum(one) == checksum(other)
    sliced = pa.concat_tables([one, one]).combine_chunks().slice(1)
    assert checksum(sliced) == checksum(one)
    pq.write_table(one.drop_columns(["flag"]), tmp_path / "lacks.parquet")
    assert fingerprint([tmp_path / "lacks.parquet"], one.column_names).checksum != checksum(one)
