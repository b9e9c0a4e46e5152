"""What footers say of columns is true, or is not used: by it reads skip row groups, and the log skips files."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltacompact.base.data_file import Clustered, DataFile
from deltacompact.base.limits import READ_LIMITS
from deltacompact.base.model import ContentType, Partition
from deltacompact.layout.value_ranges import ranges_to_skip_by
from deltacompact.steps.file_ranges import file_ranges
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular import inspecting
from deltacompact.tabular.key_ranges import keyed_groups

STORE = MemoryStore()


def stored(rows: pa.Table, **how: Any) -> DataFile:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **how)
    STORE.put("x.parquet", sink.getvalue())
    return inspecting.inspect(STORE, "x.parquet", ContentType.PARQUET)


NOON, MIDNIGHT = 12 * 3_600, 24 * 3_600
TIMES = {
    "s": pa.array([NOON, MIDNIGHT], pa.time32("s")),
    "ms": pa.array([NOON * 10**3, MIDNIGHT * 10**3], pa.time32("ms")),
    "us": pa.array([NOON * 10**6, MIDNIGHT * 10**6], pa.time64("us")),
    "ns": pa.array([NOON * 10**9 + 1, MIDNIGHT * 10**9 - 1], pa.time64("ns")),
}


def test_times_of_day_have_all_digits_in_one_unit_and_midnight_at_the_end():
    file = stored(pa.table(TIMES))
    (group,) = keyed_groups(STORE, file, list(TIMES))
    whole = (NOON * 10**9, MIDNIGHT * 10**9)
    assert group.ranges == {"s": whole, "ms": whole, "us": whole, "ns": (whole[0] + 1, whole[1] - 1)}
    (found,) = file_ranges(STORE, [file], file.schema, Partition(), READ_LIMITS)
    _, *others = ((name, tuple(scalar.value for scalar in values)) for name, values in TIMES.items())
    assert found == {"s": (NOON * 10**3, MIDNIGHT * 10**3), **dict(others)}, "Parquet has no seconds"


def test_a_column_that_footers_do_not_tell_of_leaves_the_others_known():
    far = pa.array([-(10**6), 4 * 10**6], pa.date32())
    rows = pa.table({"a.b": [7, 9], "a": [{"b": 1}, {"b": 2}], "id": [1, 2], "far": far})
    file = stored(rows)
    (group,) = keyed_groups(STORE, file, ["a.b", "id", "far"])
    assert group.ranges == {"id": (1, 2)}
    (found,) = file_ranges(STORE, [file], rows.select(["a.b", "far"]).schema, Partition(), READ_LIMITS)
    assert found == {"a.b": (7, 9), "far": (-(10**6), 4 * 10**6)}, "by the rows"


@pytest.mark.parametrize(("by", "trusted"), [("", {"id"}), ("t*2", {"t", "a.b", "id"})])
def test_readers_trust_ranges_of_footers_in_old_logs_where_these_could_be_right(by, trusted):
    schema = pa.schema([("t", pa.time64("us")), ("a.b", pa.int64()), ("id", pa.int64())])
    clustered = Clustered(by, 5, tuple((name, 0, 0) for name in schema.names))
    file = DataFile(0, "x", ContentType.PARQUET, 1, 1, schema, clustered=clustered)
    assert ranges_to_skip_by(file, schema).keys() == trusted
