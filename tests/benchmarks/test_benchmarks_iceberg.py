"""What `benchmarks iceberg` says of the rows that a contender left: right, wrong, or not to be compared."""

from __future__ import annotations

from unittest.mock import Mock

import pyarrow as pa
import pytest

from benchmarks.iceberg.measuring import _looked_at


@pytest.mark.parametrize(
    ("equality_deletes", "live_rows", "error"),
    [
        (0, 3, None),
        (0, None, None),
        (0, 4, "3 rows live, not 4"),
        (17, 3, "17 keys of equality deletes are left: nobody could compare the rows"),
        (17, None, "17 keys of equality deletes are left: nobody could compare the rows"),
    ],
)
def test_rows_that_nobody_can_compare_are_no_success(equality_deletes: int, live_rows: int | None, error: str | None):
    totals = {
        "total-equality-deletes": str(equality_deletes),
        "total-data-files": "1",
        "total-delete-files": str(min(1, equality_deletes)),
    }
    table = Mock()
    table.current_snapshot.return_value.summary = totals
    table.scan.return_value.to_arrow_batch_reader.return_value = pa.table({"id": [1, 2, 3]}).to_batches()
    found = _looked_at(Mock(load_table=lambda _: table), live_rows)
    assert found["error"] == error and found["live"] == (None if equality_deletes else 3)
