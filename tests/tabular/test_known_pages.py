"""The matrix behind the list of pages that are copied blindly: the real writers write them, and they must decode.

Values have every size, because encoders that pack bits go wrong with large ones only.
"""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_fixtures import spark  # noqa: F401  (fixture)

from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular import parquet_read, writing
from deltacompact.tabular.known_pages import WRITERS, known_groups
from deltacompact.tabular.row_groups import WriteOptions

ROWS = 10_000
CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]


def values() -> pa.Table:
    """Columns of every physical type: random over their whole range, small, ascending, repeated, with nulls."""
    rng = np.random.default_rng(5)
    int32 = rng.integers(-(2**31), 2**31, ROWS, dtype=np.int32)
    int64 = rng.integers(-(2**63), 2**63, ROWS, dtype=np.int64)
    nulls = rng.random(ROWS) < 0.3
    texts = [f"{number:x}" * (1 + number % 5) for number in int64.tolist()]
    moments = [
        datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=n) for n in rng.integers(0, 2**50, ROWS).tolist()
    ]
    columns: dict[str, Any] = {
        "id": pa.array(np.arange(ROWS, dtype=np.int64)),
        "int32": pa.array(int32),
        "int32_nulls": pa.array(int32, mask=nulls),
        "int32_small": pa.array(int32 % 7),
        "int64": pa.array(int64),
        "int64_nulls": pa.array(int64, mask=nulls),
        "float": pa.array(rng.random(ROWS, dtype=np.float32)),
        "double": pa.array(rng.normal(size=ROWS), mask=nulls),
        "bool": pa.array(nulls),
        "string": pa.array(texts, mask=nulls),
        "repeated": pa.array([text[:1] for text in texts]),
        "binary": pa.array([text.encode() for text in texts]),
        "decimal": pa.array([Decimal(number).scaleb(-2) for number in int64.tolist()], pa.decimal128(38, 2)),
        "moment": pa.array(moments, pa.timestamp("us", "UTC")),
        "day": pa.array([date(1995, 4, 3) + timedelta(days=number) for number in (int32 % 9999).tolist()]),
        "list": pa.array([[number, None] if number % 3 else [] for number in int32.tolist()], pa.list_(pa.int32())),
        "struct": pa.array([{"a": number, "b": text} for number, text in zip(int32.tolist(), texts, strict=True)]),
    }
    return pa.table(columns)


TABLE = values()


def judged(data: bytes, expected: pa.Table | None = None) -> list[bool]:
    """Which row groups are on the list. All of those must decode, to the values that were written."""
    source = pa.BufferReader(data)
    parquet = parquet_read.described(source)
    known = known_groups(parquet.footer, parquet.metadata.num_row_groups)
    for group in np.flatnonzero(known):
        pq.ParquetFile(source).read_row_group(int(group))
    if expected is not None and all(known):
        assert pq.read_table(source).equals(expected)
    return known


ENCODINGS = {
    "PLAIN": None,
    "DELTA_BINARY_PACKED": ("id", "int32", "int32_nulls", "int32_small", "int64", "int64_nulls", "day", "moment"),
    "DELTA_LENGTH_BYTE_ARRAY": ("string", "repeated", "binary"),
    "DELTA_BYTE_ARRAY": ("string", "repeated", "binary", "decimal"),
    "BYTE_STREAM_SPLIT": ("float", "double", "int32", "int64", "decimal"),
}


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("encoding", [*ENCODINGS, "dictionary"])
def test_what_pyarrow_writes(encoding: str, version: str) -> None:
    names = ENCODINGS.get(encoding)
    how: dict[str, Any] = {"use_dictionary": encoding == "dictionary"}
    if names is not None:
        how["column_encoding"] = dict.fromkeys(names, encoding)
    for codec in CODECS:
        sink = io.BytesIO()
        pq.write_table(TABLE, sink, data_page_version=version, compression=codec, row_group_size=ROWS // 2, **how)
        assert judged(sink.getvalue(), TABLE) == [True, True]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.slow
def test_what_we_write(codec: str) -> None:
    store = MemoryStore()
    writing.write_table(store, "a.parquet", TABLE, WriteOptions(codec=codec))
    assert all(judged(store.get("a.parquet")))


@pytest.mark.parametrize("dictionary", [True, False])
def test_what_polars_writes(dictionary: bool) -> None:
    frame = polars.from_arrow(TABLE.drop_columns(["decimal"]))
    assert isinstance(frame, polars.DataFrame)
    if dictionary:
        frame = frame.with_columns(polars.col("repeated").cast(polars.Categorical))
    for codec in ("uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4"):
        sink = io.BytesIO()
        frame.write_parquet(sink, compression=codec)  # type: ignore[arg-type]
        assert all(judged(sink.getvalue()))


@pytest.mark.slow
@pytest.mark.parametrize("version", ["V1", "V2"])
def test_what_duckdb_writes_is_known_but_for_packed_differences(tmp_path: Path, version: str) -> None:
    known = list[bool]()
    for name in TABLE.column_names:
        for codec in ("uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4_raw"):
            path, written = tmp_path / "a.parquet", TABLE.select([name])  # noqa: F841  (DuckDB reads `written`)
            duckdb.sql("select * from written").write_parquet(str(path), compression=codec) if version == "V1" else (
                duckdb.sql(f"copy (from written) to '{path}' (format parquet, codec '{codec}', parquet_version 'V2')")
            )
            known += judged(path.read_bytes())
    assert all(known) if version == "V1" else any(known) and not all(known)


def test_what_pyarrow_cannot_decode_is_not_on_the_list(tmp_path: Path) -> None:
    path, written = tmp_path / "a.parquet", TABLE.select(["int32"])  # noqa: F841
    duckdb.sql(f"copy (from written) to '{path}' (format parquet, parquet_version 'V2')")
    with pytest.raises(OSError, match="InitBlock EOF"):
        pq.read_table(path)
    assert judged(path.read_bytes()) == [False]


def test_what_spark_writes(spark: Any, tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    frame = spark.read.parquet(str(tmp_path / "a.parquet")).coalesce(1)
    for version in ("PARQUET_1_0", "PARQUET_2_0"):
        for codec in ("uncompressed", "snappy", "gzip", "zstd", "lz4_raw"):
            for dictionary in ("true", "false"):
                out = tmp_path / f"{version}-{codec}-{dictionary}"
                how = {"parquet.writer.version": version, "compression": codec, "parquet.enable.dictionary": dictionary}
                frame.write.options(**how).parquet(str(out))
                (written,) = out.glob("*.parquet")
                assert all(judged(written.read_bytes())), (how, pq.read_metadata(written).created_by)


def test_each_line_of_the_list_has_its_reason_and_a_writer_that_is_here() -> None:
    assert all(writer.reason for writer in WRITERS)
    assert {writer.family for writer in WRITERS} == {
        "deltacompact", "parquet-cpp-arrow", "parquet-mr", "DuckDB", "Polars"
    }  # fmt: skip


@pytest.mark.parametrize(
    "created_by",
    ["", "carbon-writer 3.1", "parquet-cpp-arrow version 99.0.0", "parquet-cpp-arrow", "parquet-mr version 1.8.0"],
)
def test_writers_and_versions_that_nobody_has_tried_are_not_known(created_by: str) -> None:
    data = io.BytesIO()
    pq.write_table(TABLE.select(["id"]), data)
    old = b"parquet-cpp-arrow version 26.0.1"
    whole = data.getvalue()
    assert old in whole
    changed = whole.replace(old, created_by.encode().ljust(len(old))[: len(old)])
    assert judged(changed) == [False]
