"""Files that are too large are divided where their row groups end, so nothing of them is decoded."""

from __future__ import annotations

import secrets

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltacompact.base.settings import Settings
from deltacompact.iceberg_modes.rewrite import cutting, writing
from deltacompact.iceberg_modes.rewrite.cutting import cuts, ends_of
from deltacompact.steps.materialize import materialize

T = "ns.t"
FEW_ROWS = Settings(executor="local", local_threads=1, row_group_rows=1000)


@given(st.integers(1, 5000), st.integers(1, 40), st.sets(st.integers(1, 5000)), st.floats(0, 1), st.floats(1, 3))
def test_cuts_cover_all_rows_and_stay_within_the_bounds(rows, outputs, ends, least, most):
    even = rows / outputs
    ends = sorted(end for end in ends if end <= rows)
    found = cuts(rows, outputs, ends, least * even, most * even)
    assert len(found) == min(rows, outputs)
    assert [start for start, _ in found] == [0, *(stop for _, stop in found[:-1])]
    assert found[-1][1] == rows
    assert all(start < stop for start, stop in found)
    for _, stop in found[:-1]:
        if stop in ends:
            return
    if rows >= outputs:  # no end of a row group was near: the cuts are even
        sizes = [stop - start for start, stop in found]
        assert max(sizes) - min(sizes) <= 1


def test_a_cut_goes_to_the_nearest_end_that_leaves_no_small_file():
    assert cuts(1000, 3, [300, 600, 900, 1000], 200, 600) == [(0, 300), (300, 600), (600, 1000)]
    assert cuts(1000, 2, [400, 600], 450, 900) == [(0, 500), (500, 1000)]
    assert cuts(1000, 2, [10, 990], 0, 1000) == [(0, 500), (500, 1000)]


def test_row_groups_end_where_files_end_and_inside_of_those_that_are_known():
    assert list(ends_of([(10, (4, 8, 10)), (5, ()), (6, (3, 6))])) == [4, 8, 10, 15, 18, 21]


@pytest.fixture
def large(lake, tmp_path):
    """A table with a file of 7 row groups that is six times the target, and a neighbour of the right size."""
    lake.create(T, pa.schema([("id", pa.int64()), ("name", pa.string())]))
    schema = lake.catalog.load_table(T).schema().as_arrow()
    for name, first, rows in (("large", 0, 6300), ("right", 6300, 1000)):
        names = pa.array([secrets.token_hex(20) for _ in range(rows)])
        table = pa.Table.from_arrays([pa.array(range(first, first + rows)), names], schema=schema)
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=900, compression="zstd")
        lake.adopt(T, tmp_path / f"{name}.parquet")
    return lake, max(entry.file.file_bytes for entry in lake.state(T).data)


@pytest.fixture
def decoded(monkeypatch):
    """The rows of each output that were decoded."""
    found = []

    def counted(*arguments):
        done = materialize(*arguments)
        found.append(done.file.rows - done.rows_copied)
        return done

    monkeypatch.setattr(writing, "materialize", counted)
    return found


def rewrite(lake, target):
    return lake.rewrite(T, settings=FEW_ROWS, target_file_size_bytes=target)


def test_a_large_file_is_divided_without_decoding(large, decoded):
    lake, size = large
    before = lake.rows(T)
    result = rewrite(lake, size // 6)
    assert (result.files_in, result.files_out) == (1, len(decoded))
    assert result.files_out in (5, 6, 7)
    assert decoded == [0] * len(decoded)
    assert sorted(lake.rows(T), key=str) == sorted(before, key=str)
    assert rewrite(lake, size // 6).nothing_to_do


def test_even_cuts_would_decode(large, decoded, monkeypatch):
    """What the test above would find without the ends of row groups."""
    monkeypatch.setattr(cutting, "MOVED_MAX", 0)
    lake, size = large
    rewrite(lake, size // 6)
    assert sum(decoded) > 3000


def test_a_file_with_dead_rows_is_decoded_where_they_are(large, decoded):
    lake, size = large
    path = max(lake.state(T).data, key=lambda entry: entry.file.file_bytes).file.path
    lake.delete_by_position(T, {path: [5, 6]})
    result = rewrite(lake, size // 6)
    assert result.rows_out == 6298
    assert 0 < sum(decoded) < 6298
    assert len(lake.rows(T)) == 7298
