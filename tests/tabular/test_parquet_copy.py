"""Row groups in which every row lives are copied as they are encoded, and every engine reads what comes out."""

from __future__ import annotations

import contextlib
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from copied_rows import GROUP, KEYS, LOCAL, catalog, of_every_kind, run  # noqa: F401
from spark_fixtures import spark  # noqa: F401  (fixture)
from tables import compacted_files

from deltacompact import DeltaStreamCatalog, Settings
from deltacompact import _kernels as kernels
from deltacompact.base.model import Partition


def footer(catalog: DeltaStreamCatalog, place: int = 0) -> pq.FileMetaData:
    return pq.read_metadata(catalog.store.open(compacted_files(catalog)[place].path))


def commit(catalog: DeltaStreamCatalog, table: pa.Table, tmp_path: Path, **how: Any) -> None:
    path = tmp_path / "written-by-somebody.parquet"
    pq.write_table(table, path, **{"row_group_size": GROUP, **how})
    catalog.append_files("t", [path])


def test_only_the_row_group_that_lost_a_row_is_encoded_anew(catalog: DeltaStreamCatalog, tmp_path: Path) -> None:
    commit(catalog, of_every_kind(KEYS), tmp_path)
    assert run(catalog).rows_copied == 64
    catalog.append("t", pa.table({"k": [KEYS[GROUP + 1]]}), operation="delete")
    session = run(catalog)
    assert (session.rows_copied, session.live) == (56, 63)
    found = footer(catalog)
    assert [found.row_group(group).num_rows for group in range(found.num_row_groups)] == [8, 7, 8, 8, 8, 8, 8, 8]


def test_the_decoded_bytes_of_a_file_count_what_was_copied_and_what_was_encoded(
    catalog: DeltaStreamCatalog, tmp_path: Path
) -> None:
    """Plans take memory by them: too few would plan a task that does not fit."""
    commit(catalog, of_every_kind(KEYS), tmp_path)
    run(catalog)
    copied = compacted_files(catalog)[0].decoded_bytes
    catalog.append("t", pa.table({"k": [KEYS[GROUP + 1]]}), operation="delete")
    run(catalog)
    mixed = compacted_files(catalog)[0].decoded_bytes
    decoded = catalog.read("t").nbytes
    assert copied is not None and mixed is not None
    assert decoded / 2 <= mixed <= 3 * decoded and decoded / 2 <= copied <= 3 * decoded


def test_statistics_go_with_their_chunks_and_readers_may_trust_them(
    catalog: DeltaStreamCatalog, tmp_path: Path
) -> None:
    commit(catalog, of_every_kind(KEYS), tmp_path, write_page_index=True)
    run(catalog)
    found, table, first = footer(catalog), catalog.read("t"), 0
    assert found.created_by.startswith("deltacompact version ")
    for group in range(found.num_row_groups):
        described = found.row_group(group)
        rows = table.slice(first, described.num_rows)
        keys = rows["k"].to_pylist()
        statistics = [described.column(place).statistics for place in (0, 1)]
        assert (statistics[0].min, statistics[0].max) == (min(keys), max(keys))
        assert statistics[1].null_count == rows["text"].null_count
        assert described.column(0).has_offset_index and described.column(0).has_column_index
        first += described.num_rows
    assert first == 64


def test_every_engine_reads_copied_and_encoded_row_groups(catalog: DeltaStreamCatalog, tmp_path: Path, spark) -> None:
    commit(catalog, of_every_kind(KEYS), tmp_path, write_page_index=True)
    catalog.append("t", of_every_kind([KEYS[3], 100, 101]))
    session = run(catalog)
    assert 0 < session.rows_copied < session.live == 66
    path = str(tmp_path / compacted_files(catalog)[0].path)
    expected = of_every_kind([key for key in KEYS if key != KEYS[3]] + [KEYS[3], 100, 101]).to_pylist()
    whole = pq.read_table(path)
    whole.validate(full=True)
    assert str(whole.to_pylist()) == str(expected)  # NaN is not NaN, but "nan" is "nan"
    small = "k < 10 and price > 0.02"
    keys = sorted(row["k"] for row in expected if row["k"] < 10 and row["price"] > Decimal("0.02"))
    assert sorted(k for (k,) in duckdb.sql(f"select k from '{path}' where {small}").fetchall()) == keys
    texts = duckdb.sql(f"select count(text), sum(pair.a), sum(len(list)) from '{path}'").fetchall()[0]
    counted = (
        sum(row["text"] is not None for row in expected),
        sum(row["pair"]["a"] for row in expected),
        sum(len(row["list"] or ()) for row in expected),
    )
    assert texts == counted
    lazy = polars.scan_parquet(path).filter((polars.col("k") < 10) & (polars.col("price") > 0.02))
    assert sorted(lazy.select("k").collect()["k"].to_list()) == keys
    assert polars.read_parquet(path, columns=["text", "flag"]).height == 66
    frame = spark.read.parquet(path)
    assert sorted(row.k for row in frame.where(small).select("k").collect()) == keys
    seen = frame.selectExpr("count(text)", "sum(pair.a)", "sum(greatest(size(list), 0))").first()
    assert tuple(seen) == counted


@pytest.mark.parametrize(
    ("written", "settings", "copied"),
    [
        ({"compression": "snappy"}, LOCAL, 64),
        ({"compression": "snappy"}, Settings(executor="local", row_group_rows=GROUP, compression="zstd"), 0),
        ({"compression": "zstd"}, Settings(executor="local", row_group_rows=GROUP, compression="zstd"), 64),
        ({"compression": "none"}, Settings(executor="local", row_group_rows=GROUP, compression="none"), 64),
        ({"row_group_size": 1}, LOCAL, 0),
        ({"use_deprecated_int96_timestamps": True}, LOCAL, 0),
        ({"data_page_version": "2.0", "use_dictionary": False}, LOCAL, 64),
    ],
)
@pytest.mark.slow
def test_what_is_copied_and_in_which_codec(
    catalog: DeltaStreamCatalog, tmp_path: Path, written: dict[str, Any], settings: Settings, copied: int
) -> None:
    commit(catalog, of_every_kind(KEYS), tmp_path, **written)
    before = catalog.read("t")
    assert run(catalog, settings).rows_copied == copied
    assert str(catalog.read("t").to_pylist()) == str(before.to_pylist())
    codec = settings.compression or written.get("compression", "snappy")
    found = footer(catalog).row_group(0).column(0).compression.lower()
    assert found == {"none": "uncompressed"}.get(codec, codec)


def test_files_of_other_columns_are_not_copied(catalog: DeltaStreamCatalog) -> None:
    catalog.append("t", pa.table({"k": pa.array(range(16), pa.int32())}))
    catalog.append("t", pa.table({"k": pa.array(range(16, 32), pa.int64()), "more": ["x"] * 16}))
    run(catalog)
    assert catalog.read("t")["k"].to_pylist() == list(range(32))


@pytest.mark.slow
def test_a_large_delta_file_of_which_every_row_lives_is_kept(catalog: DeltaStreamCatalog) -> None:
    noise = np.random.default_rng(2).bytes(40 << 20)
    large = pa.table({"k": [1, 2], "v": [noise[: 20 << 20], noise[20 << 20 :]]})
    catalog.append("t", large)
    catalog.append("t", pa.table({"k": [3], "v": [b"small"]}))
    delta = catalog.state("t", Partition()).deltas[0].files[0]
    session = run(catalog, rows_per_compacted_file=4)
    assert (session.files_kept, session.files_rewritten, session.files_new) == (1, 0, 1)
    assert [file.path == delta.path for file in compacted_files(catalog)] == [True, False]
    catalog.append("t", pa.table({"k": [2]}), operation="delete")
    session = run(catalog, rows_per_compacted_file=4)
    assert (session.files_kept, session.live) == (0, 2)
    assert sorted(catalog.read("t")["k"].to_pylist()) == [1, 3]


def assembled(data: bytes, groups: list[int], template: bytes, size: int | None = None) -> bytes:
    sink = io.BytesIO()
    size = len(data) if size is None else size

    def read(at: int, length: int) -> bytes:
        return data[at : at + length]

    assembler = kernels.ParquetAssembler(template, sink.write, "test version 1")
    assembler.append(kernels.ParquetFooter(size, read), size, read, groups)
    assembler.close()
    return sink.getvalue()


def test_what_an_assembler_refuses(tmp_path: Path) -> None:
    path, empty = tmp_path / "a.parquet", io.BytesIO()
    table = of_every_kind(KEYS)
    pq.write_table(table, path, row_group_size=GROUP)
    pq.write_table(table.slice(0, 0), empty)
    data, template = path.read_bytes(), empty.getvalue()
    assert pq.read_table(io.BytesIO(assembled(data, [7, 0], template))).num_rows == 2 * GROUP
    for wrong in (
        lambda: assembled(data, [8], template),
        lambda: assembled(data[:-20], [0], template),
        lambda: assembled(data[: len(data) // 2], [0], template),
        lambda: assembled(data, [0], template, len(data) + 9),
        lambda: assembled(b"", [0], template),
        lambda: assembled(data, [0], b"no parquet"),
        lambda: assembled(data, [0], _empty(table.select(["k"]))),
        lambda: assembled(data, [0], _empty(table.rename_columns([f"{name}x" for name in table.column_names]))),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            wrong()
    with pytest.raises(ZeroDivisionError):
        kernels.ParquetFooter(99, lambda at, length: 1 // 0)


def _empty(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table.slice(0, 0), sink)
    return sink.getvalue()


def test_a_damaged_source_never_crashes_the_assembler(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = of_every_kind(KEYS)
    pq.write_table(table, path, row_group_size=GROUP, write_page_index=True)
    whole, template = path.read_bytes(), _empty(table)
    dice = np.random.default_rng(3)
    for _ in range(300):
        damaged = bytearray(whole)
        for place in dice.integers(len(whole) - 6_000, len(whole), 3):  # mostly in the footer
            damaged[place] = dice.integers(256)
        with contextlib.suppress(ValueError, MemoryError):
            assembled(bytes(damaged), [0, 3], template)


def test_dictionaries_are_made_of_values_that_repeat_however_wide(catalog: DeltaStreamCatalog) -> None:
    rows, random = 2_000, np.random.default_rng(3)
    table = pa.table(
        {
            "k": pa.array(range(rows)),
            "noise": [random.bytes(10_000) for _ in range(rows)],
            "same": [f"{place % 3}" * 10_000 for place in range(rows)],
            "nothing": pa.nulls(rows),
        }
    )
    catalog.append("t", table)
    run(catalog)
    found = footer(catalog).row_group(0)
    having = {found.column(place).path_in_schema: found.column(place).has_dictionary_page for place in range(4)}
    assert (having["k"], having["noise"], having["same"]) == (False, False, True)
    assert catalog.read("t").equals(table)
