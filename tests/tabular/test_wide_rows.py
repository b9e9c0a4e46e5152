"""Rows of any width: row groups are closed by what they hold, batches are read by what they hold, memory is as planned.

rows of 20 MB, 1 B, 1 B, …      one row group of the first and many others, not one group for each row
rows of 1 B, …, 1 MB, 1 MB, …   the wide rows in groups of 32, not one group of them all
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltacompact import ContentType, DeltaStreamCatalog
from deltacompact.base.limits import READ_LIMITS
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular import files, formats, inspecting, row_bytes, writing
from deltacompact.tabular.row_group_copy import encoded
from deltacompact.tabular.row_groups import ROW_GROUP_BYTES, ROW_GROUP_ROWS, WriteOptions
from deltacompact.tabular.writing import TableWriter

MIB = 1 << 20
RANDOM = np.random.default_rng(5)


def table(start: int, values: list[bytes]) -> pa.Table:
    keys = pa.array(range(start, start + len(values)), pa.int64())
    return pa.table({"k": keys, "v": pa.array(values, pa.binary())})


def same(size: int, rows: int, start: int = 0) -> pa.Table:
    return table(start, [b"x" * size] * rows)


def noise(size: int, rows: int, start: int = 0) -> pa.Table:
    return table(start, [RANDOM.bytes(size) for _ in range(rows)])


def in_structs(rows: int) -> pa.Table:
    texts = [RANDOM.bytes(MIB // 2).hex() for _ in range(rows)]
    return pa.table({"k": range(rows), "v": [{"text": text, "list": [text[:9]]} for text in texts]})


def in_dictionaries(values: int, width: int, rows: int) -> pa.Table:
    dictionary = pa.array([RANDOM.bytes(width // 2).hex() for _ in range(values)])
    indices = pa.array(RANDOM.integers(0, values, rows), pa.int32())
    return pa.table({"k": range(rows), "v": pa.DictionaryArray.from_arrays(indices, dictionary)})


def groups_of(data: bytes) -> list[int]:
    metadata = pq.read_metadata(io.BytesIO(data))
    return [metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)]


def digests(whole: pa.Table) -> list[object]:
    """The values of each column, whatever dictionaries it has."""
    return [hash(tuple(column.slice(place, 100).to_pylist())) for column in whole.columns for place in (0, 60_000)]


def written(batches: list[pa.Table]) -> tuple[list[int], list[int]]:
    """Rows of the row groups that the writer of files makes, and those of the encoder of copies."""
    sink, options = io.BytesIO(), WriteOptions()
    out = TableWriter(sink, batches[0].schema, options)
    for batch in batches:
        out.write(batch)
    out.close()
    assert digests(pq.read_table(io.BytesIO(sink.getvalue()))) == digests(pa.concat_tables(batches))
    pieces = list(encoded(batches, batches[0].schema, options))
    assert [groups_of(piece.file.to_pybytes()) for piece in pieces] == [[piece.rows] for piece in pieces]
    return groups_of(sink.getvalue()), [piece.rows for piece in pieces]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.slow
def test_one_wide_row_first_does_not_make_a_group_of_each_row(at_once: bool) -> None:
    parts = [same(20 * MIB, 1), same(1, 200_000, start=1)]
    groups, encoded_groups = written([pa.concat_tables(parts)] if at_once else parts)
    assert groups == encoded_groups == [ROW_GROUP_ROWS, 200_001 - ROW_GROUP_ROWS]


@pytest.mark.parametrize("at_once", [True, False])
def test_wide_rows_after_small_ones_make_groups_of_their_own_size(at_once: bool) -> None:
    parts = [same(1, 1_000), same(MIB, 100, start=1_000)]
    groups, encoded_groups = written([pa.concat_tables(parts)] if at_once else parts)
    assert groups == encoded_groups
    assert groups == [1_031, 31, 31, 7]


def test_a_row_larger_than_a_group_is_one_itself() -> None:
    parts = [same(10, 5), same(40 * MIB, 2, start=5), same(10, 5, start=7)]
    assert written([pa.concat_tables(parts)])[0] == [5, 1, 1, 5]


def test_small_tables_are_collected_until_a_group_is_full() -> None:
    parts = [same(10, 50_000, start=place * 50_000) for place in range(5)]
    assert written(parts)[0] == [ROW_GROUP_ROWS, 250_000 - ROW_GROUP_ROWS]


@pytest.mark.slow
def test_a_dictionary_is_counted_by_what_its_rows_use() -> None:
    whole = in_dictionaries(100_000, 20, 200_000)
    parts = [whole.slice(place, 1_000) for place in range(0, whole.num_rows, 1_000)]
    assert row_bytes.of_table(parts[0]) < 40_000
    assert written(parts)[0] == [ROW_GROUP_ROWS, 200_000 - ROW_GROUP_ROWS]
    nested = pa.table({"s": pa.StructArray.from_arrays([whole["v"].chunk(0)], ["d"])}).slice(7, 10)
    mapped = pa.array([[("a", 1)], [("b", 2), ("c", 3)]], pa.map_(pa.dictionary(pa.int32(), pa.string()), pa.int64()))
    listed = pa.ListArray.from_arrays([0, 5, 9], whole["v"].chunk(0))
    assert row_bytes.of_table(nested) < 400
    assert row_bytes.of_table(pa.table({"l": listed}).slice(1)) < 200
    assert row_bytes.of_table(pa.table({"m": mapped}).slice(1)) < 100


class MeasuringSink(io.BytesIO):
    """Knows how much Arrow held when something was written."""

    peak = 0

    def write(self, data: object) -> int:
        self.peak = max(self.peak, pa.total_allocated_bytes())
        return super().write(data)  # type: ignore[arg-type]


def test_a_large_dictionary_is_written_without_decoding_all_rows() -> None:
    """Values of 100 KB, each used by many rows: decoded they would be 400 MB."""
    dictionary = pa.array(["a" * 100_000, "b" * 100_000] * 10 + ["c"])
    indices = pa.array(np.arange(4_000) % 21, pa.int32())
    whole = pa.table({"v": pa.DictionaryArray.from_arrays(indices, dictionary)})
    sink, before = MeasuringSink(), pa.total_allocated_bytes()
    out = TableWriter(sink, whole.schema, WriteOptions())
    out.write(whole.slice(0, 2_000))
    out.write(whole.slice(2_000))
    out.close()
    assert groups_of(sink.getvalue()) == [4_000]
    assert 0 < sink.peak < before + 100 * MIB


@pytest.mark.slow
@pytest.mark.parametrize(("content_type", "rows"), [(ContentType.FEATHER, 4_200), (ContentType.ORC, 4_000)])
def test_a_large_dictionary_is_written_to_other_formats(content_type: ContentType, rows: int) -> None:
    """Decoded at once the first are 2.2 GB, more than a column of strings can hold in one piece.

    pyarrow reads a stripe of ORC as one piece, so the others are as many as fit into it.
    """
    dictionary = pa.array(["a" * MIB, None, "b" * MIB, "c"])
    indices = pa.array([None, *(np.arange(rows) % 4)], pa.int32())
    whole = pa.table({"k": range(rows + 1), "v": pa.DictionaryArray.from_arrays(indices, dictionary)})
    store = MemoryStore()
    made = writing.write_table(store, f"x{formats.suffix_of(content_type)}", whole, WriteOptions(content_type))
    seen = 0
    for first, batch in files.read(store, made):
        assert first == seen
        for start in range(0, batch.num_rows, 500):
            part = batch["v"].slice(start, 500).cast(pa.string())
            assert part.equals(pa.chunked_array([dictionary.take(indices.slice(first + start, len(part)))]))
        seen += batch.num_rows
    assert seen == rows + 1


def batches_of(path: Path) -> list[pa.Table]:
    store = LocalStore(path.parent)
    file = inspecting.inspect(store, path.name, ContentType.PARQUET)
    found = list(files.read(store, file))
    assert [first for first, _ in found] == [sum(t.num_rows for _, t in found[:place]) for place in range(len(found))]
    return [batch for _, batch in found]


@pytest.mark.slow
@pytest.mark.parametrize("statistics", [True, False])
def test_batches_of_wide_rows_are_small(tmp_path: Path, statistics: bool) -> None:
    """A row group of others may be of any size; of repeated values the footer may not tell how large they are."""
    whole = pa.concat_tables([same(1, 2_000), same(MIB // 4, 2_000, start=2_000)])
    pq.write_table(whole, tmp_path / "wide.parquet", dictionary_pagesize_limit=MIB)
    if not statistics:
        import duckdb

        source = tmp_path / "wide.parquet"
        duckdb.sql(f"copy (from '{source}') to '{tmp_path / 'theirs.parquet'}' (format parquet)")
        source.unlink()
        (tmp_path / "theirs.parquet").rename(source)
    found = batches_of(tmp_path / "wide.parquet")
    assert pa.concat_tables(found).cast(whole.schema).equals(whole)
    large = [batch.nbytes for batch in found if batch.nbytes > 2 * READ_LIMITS.batch_bytes]
    assert len(large) <= 1 and sum(large) <= (257 if statistics else 512) * MIB


@pytest.mark.parametrize("last", ["the same", "wide", "wide and repeated"])
def test_row_groups_like_those_before_them_are_read_in_large_batches(tmp_path: Path, last: str) -> None:
    """Polars does not tell how large repeated texts are: files of small ones were read 1,024 rows at a time."""
    import polars as pl

    texts = [f"{number:0400}" for number in range(5_000)]
    values = {
        "the same": texts * 4,
        "wide": [text * 20 for text in texts[:3_000]],
        "wide and repeated": [text * 20 for text in texts[:200]] * 100,
    }[last]
    whole = pa.table({"v": [*(texts * 12), *values]})
    pl.from_arrow(whole).write_parquet(tmp_path / "theirs.parquet", row_group_size=20_000)
    found = batches_of(tmp_path / "theirs.parquet")
    assert pa.concat_tables(found).cast(whole.schema).equals(whole)
    large = [batch.nbytes for batch in found if batch.nbytes > 2 * READ_LIMITS.batch_bytes]
    assert len(large) <= 1, "the next ones are smaller"
    assert sum(large) <= (8 if last == "wide and repeated" else 0) * READ_LIMITS.batch_bytes
    assert len(found) < 50, "only the first of four groups is read in small batches"


@pytest.mark.slow
def test_strings_of_a_mebibyte_in_structs_are_read(tmp_path: Path) -> None:
    """More than 2 GiB of them in one batch are more than a nested column can hold."""
    rows = 2_200
    values = pa.array([{"text": "x" * MIB}]).take(pa.array([0] * 100))
    whole = pa.table({"k": range(rows), "s": pa.chunked_array([values] * (rows // 100))})
    pq.write_table(whole, tmp_path / "wide.parquet", row_group_size=rows)
    seen = 0
    for batch in batches_of_lazily(tmp_path / "wide.parquet"):
        assert batch.nbytes <= 2 * READ_LIMITS.batch_bytes
        seen += batch.num_rows
    assert seen == rows


def batches_of_lazily(path: Path):
    store = LocalStore(path.parent)
    for _, batch in files.read(store, inspecting.inspect(store, path.name, ContentType.PARQUET)):
        yield batch


def test_key_columns_are_read_in_large_batches_beside_wide_ones(tmp_path: Path) -> None:
    pq.write_table(same(MIB // 8, 1_000), tmp_path / "wide.parquet")
    store = LocalStore(tmp_path)
    file = inspecting.inspect(store, "wide.parquet", ContentType.PARQUET)
    assert [batch.num_rows for _, batch in files.read(store, file, ["k"])] == [1_000]


def test_many_tiny_row_groups_are_read_together() -> None:
    store = MemoryStore()
    sink = io.BytesIO()
    pq.write_table(same(10, 5_000), sink, row_group_size=1)
    store.put("tiny.parquet", sink.getvalue())
    file = inspecting.inspect(store, "tiny.parquet", ContentType.PARQUET)
    assert len(list(files.read(store, file))) < 10


CASES: dict[str, Callable[[], pa.Table]] = {
    "rows of 1 MiB": lambda: noise(MIB, 150),
    "rows of 1 MiB, all the same": lambda: same(MIB, 300),
    "rows of 64 MiB": lambda: noise(64 * MIB, 4),
    "rows of 64 MiB, all the same": lambda: same(64 * MIB, 5),
    "one wide row, then small ones": lambda: pa.concat_tables([noise(20 * MIB, 1), same(1, 100_000, start=1)]),
    "small rows, then wide ones": lambda: pa.concat_tables([same(1, 100_000), same(MIB, 300, start=100_000)]),
    "strings in structs": lambda: in_structs(100),
    "a dictionary of 100,000 values": lambda: in_dictionaries(100_000, 100, 500_000),
    "a dictionary of wide values": lambda: in_dictionaries(20_000, 2_000, 100_000),
}


@pytest.mark.processes
@pytest.mark.parametrize("case", CASES)
def test_memory_stays_within_the_plan(tmp_path: Path, case: str) -> None:
    """Appended as we write it; then with a row deleted, decoded because another codec is asked for, and copied."""
    catalog = DeltaStreamCatalog(LocalStore(tmp_path / "lake"))
    catalog.create_table("t", (), ["k"])
    whole = CASES[case]()
    rows = whole.num_rows
    catalog.append("t", whole)
    del whole
    catalog.append("t", pa.table({"k": [rows - 1]}), operation="delete")
    for delete, codec in ((0, "snappy"), (1, "zstd"), (2, "zstd")):
        catalog.append("t", pa.table({"k": [delete]}), operation="delete")
        planned, measured, live = compacted(tmp_path / "lake", codec)
        assert live == rows - 2 - delete
        assert measured <= planned, f"{measured >> 20} MiB where {planned >> 20} were planned"
    for file in (tmp_path / "lake").rglob("*.parquet"):
        metadata = pq.read_metadata(file)
        for group in (metadata.row_group(place) for place in range(metadata.num_row_groups)):
            assert group.num_rows == 1 or group.total_byte_size <= ROW_GROUP_BYTES * 1.1


@pytest.mark.processes
@pytest.mark.parametrize(("wide", "rows"), [(noise, (100_000, 150)), (noise, (0, 300)), (same, (200_000, 500))])
def test_memory_stays_within_the_plan_for_one_large_row_group_of_others(
    tmp_path: Path, wide: Callable[..., pa.Table], rows: tuple[int, int]
) -> None:
    """Also where it is much smaller at rest than in memory: append looks into the footer."""
    whole = pa.concat_tables([same(1, rows[0]), wide(MIB, rows[1], start=rows[0])])
    pq.write_table(whole, tmp_path / "theirs.parquet", row_group_size=whole.num_rows)
    catalog = DeltaStreamCatalog(LocalStore(tmp_path / "lake"))
    catalog.create_table("t", (), ["k"])
    catalog.append_files("t", [tmp_path / "theirs.parquet"])
    catalog.append("t", pa.table({"k": [0]}), operation="delete")
    planned, measured, live = compacted(tmp_path / "lake", "zstd")
    assert live == sum(rows) - 1
    assert measured <= planned


def compacted(lake: Path, codec: str) -> list[int]:
    driver = Path(__file__).with_name("wide_rows_driver.py")
    done = subprocess.run(
        [sys.executable, driver, lake, codec], capture_output=True, text=True, timeout=200, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None]),
        pa.array([True] * 9),
        pa.array(["a", None, "b" * 99]),
        pa.array(["a", "b" * 99]).dictionary_encode(),
        pa.array([[1], [2] * 30, []]),
        pa.array([["a" * 9], ["x", "y", "z"]]),
        pa.array([{"a": 1, "b": "x" * 50}, None]),
        pa.array([[("a", 1)], [("b", 2), ("c" * 40, 3)]], pa.map_(pa.string(), pa.int64())),
        pa.array([b"1234"], pa.binary(4)),
        pa.array([[1, 2]], pa.list_(pa.int64(), 2)),
        pa.array(["x" * 40, "y"], pa.string_view()),
    ],
    ids=lambda array: str(array.type),
)
def test_the_widest_row_has_at_least_the_bytes_of_each(array):
    rows = pa.table({"a": array, "b": pa.nulls(len(array))})
    each = [row_bytes.of_table(rows.slice(row, 1)) for row in range(len(array))]
    assert max(each) <= row_bytes.widest(rows) <= 30 + max(2 * max(each), rows.nbytes)
