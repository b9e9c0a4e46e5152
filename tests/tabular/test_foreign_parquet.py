"""Parquet files of other writers, and footers in the styles of old ones: appended, compacted twice, read by everybody.

Row groups of such files are copied or decoded, whatever is right: never wrong, and never in the way of a compaction.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import old_readers
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest
from copied_rows import GROUP, KEYS, catalog, of_every_kind, run  # noqa: F401  (fixture)
from parquet_footers import (
    BINARY,
    COLUMN_FILE_OFFSET,
    COLUMN_INDEX_LENGTH,
    COLUMN_INDEX_OFFSET,
    COLUMN_ORDERS,
    CONVERTED_TYPE,
    CREATED_BY,
    DATA_PAGE_OFFSET,
    DICTIONARY_PAGE_OFFSET,
    FIELD_ID,
    I32,
    I64,
    LOGICAL_TYPE,
    MAX,
    MAX_VALUE,
    META_DATA,
    MIN,
    MIN_VALUE,
    NAME,
    NULL_COUNT,
    OFFSET_INDEX_OFFSET,
    ROW_GROUPS,
    STATISTICS,
    TOTAL_COMPRESSED,
    Struct,
    chunks,
    footer,
    schema,
    with_footer,
)
from spark_fixtures import spark  # noqa: F401  (fixture)
from tables import compacted_files

from deltacompact import DeltaStreamCatalog, InputError
from deltacompact import _kernels as kernels
from deltacompact.tabular.parquet_read import described

NAN = float("nan")


def floats(keys: list[int]) -> pa.Table:
    """Row groups with NaN alone, with zeros of both signs, with infinities."""
    special = [NAN] * GROUP + [-0.0, 0.0] * (GROUP // 2) + [math.inf, -math.inf, NAN, 1.5] * (GROUP // 4)
    values = [special[key] if key < len(special) else key / 7 for key in keys]
    columns = {"k": keys, "f": pa.array(values, pa.float64()), "g": pa.array(values, pa.float32())}
    return pa.table({**columns, "h": pa.array(values, pa.float64()).cast(pa.float16())})


def plain(keys: list[int]) -> pa.Table:
    """Types that every writer has."""
    table = of_every_kind(keys).drop_columns(["kind", "map"])
    return table.append_column("f", floats(keys)["f"])


def append(catalog: DeltaStreamCatalog, path: Path) -> None:
    catalog.append_files("t", [path])


def check_all_readers(path: str, expected: pa.Table, old: bool = True) -> None:
    """Every engine finds the same rows of a file, with a condition that statistics and page indexes can answer."""
    by_key = expected.sort_by("k")
    found = pq.read_table(path)
    found.validate(full=True)
    assert str(found.sort_by("k").to_pylist()) == str(by_key.to_pylist())
    for condition, holds in (("f < 3", lambda f: f < 3), ("k = 20", None), ("k > 60", None)):
        rows = zip(by_key["k"].to_pylist(), by_key["f"].to_pylist(), strict=True)
        keys = [k for k, f in rows if (holds(f) if holds else k == 20 if "=" in condition else k > 60)]
        assert pq.read_table(path, filters=_filter(condition))["k"].sort().to_pylist() == keys
        assert [k for (k,) in duckdb.sql(f"select k from '{path}' where {condition} order by k").fetchall()] == keys
        lazy = polars.scan_parquet(path).filter(polars.sql_expr(condition)).select("k").sort("k")
        assert lazy.collect()["k"].to_list() == keys
        if old:
            seen = old_readers.read(path, condition, "k")
            assert (seen["datafusion"], seen["polars"], seen["rows"]) == (keys, keys, expected.num_rows)


def _filter(condition: str) -> list[tuple[str, str, float]]:
    column, operator, value = condition.split()
    return [(column, operator.replace("=", "=="), float(value))]


def compacted_twice(catalog: DeltaStreamCatalog, table: pa.Table) -> tuple[pa.Table, list[int]]:
    """What the table holds after two compactions, with a key deleted in between, and how many rows each copied."""
    gone = table["k"][0].as_py()
    copied = [run(catalog).rows_copied]
    catalog.append("t", pa.table({"k": [gone]}), operation="delete")
    copied.append(run(catalog).rows_copied)
    rest = table.filter(pa.array([key != gone for key in table["k"].to_pylist()]))
    assert str(catalog.read("t").sort_by("k").to_pylist()) == str(rest.sort_by("k").to_pylist())
    return rest, copied


def path_of(catalog: DeltaStreamCatalog) -> str:
    (file,) = compacted_files(catalog)
    return str(Path(catalog.store.root) / file.path)


@pytest.mark.processes
def test_floats_of_copied_files_are_read_by_old_and_new_engines(
    catalog: DeltaStreamCatalog,
    tmp_path: Path,
) -> None:
    table = floats(list(range(64)))
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=GROUP, write_page_index=True)
    append(catalog, tmp_path / "f.parquet")
    rest, copied = compacted_twice(catalog, table)
    assert copied == [64, 56]
    path = path_of(catalog)
    with open(path, "rb") as file:
        orders = footer(file.read())[COLUMN_ORDERS][1][1]
    assert [set(order) for order in orders] == [{1}] * 4  # TYPE_DEFINED_ORDER
    check_all_readers(path, rest, old=False)
    seen = old_readers.read(path, "f < 3", "k")
    keys = sorted(k for k, f in zip(rest["k"].to_pylist(), rest["f"].to_pylist(), strict=True) if f < 3)
    assert (seen["datafusion"], seen["polars"], seen["rows"]) == (keys, keys, 63)
    # keys 8 to 16 are 0.0 and -0.0, 16 to 24 have NaN and infinities beside them; the group of NaN has no bounds
    bounds = [(group["f"].min, group["f"].max) if group["f"].has_min_max else None for group in statistics_of(path)]
    assert bounds[0] is None and (-0.0, 0.0) in bounds and (-math.inf, math.inf) in bounds
    assert [bound and bound[0] for bound in old_readers.read(path, "k < 3", "k")["bounds"]] == [
        group["k"].min for group in statistics_of(path)
    ]


def test_floats_of_copied_files_are_read_by_spark(catalog: DeltaStreamCatalog, tmp_path: Path, spark) -> None:
    table = floats(list(range(64))).drop_columns(["h"])  # Spark knows no half floats
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=GROUP, write_page_index=True)
    append(catalog, tmp_path / "f.parquet")
    assert compacted_twice(catalog, table)[1] == [64, 56]
    frame = spark.read.parquet(path_of(catalog))
    keys = [k for k, f in zip(table["k"].to_pylist(), table["f"].to_pylist(), strict=True) if k and f < 3]
    assert sorted(row.k for row in frame.where("f < 3").collect()) == keys
    assert sorted(row.k for row in frame.where("f = 0").collect()) == list(range(8, 16))
    assert frame.where("k = 20").count() == 1 and frame.count() == 63


def statistics_of(path: str) -> list[dict[str, Any]]:
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    return [
        {group.column(n).path_in_schema: group.column(n).statistics for n in range(group.num_columns)}
        for group in groups
    ]


def duckdb_file(table: pa.Table, path: Path) -> Path:
    duckdb.from_arrow(table).query("theirs", f"copy theirs to '{path}' (format parquet, row_group_size {GROUP})")
    return path


def polars_file(table: pa.Table, path: Path) -> Path:
    polars.from_arrow(table).write_parquet(path, row_group_size=GROUP)
    return path


def old_file(writer: str) -> Callable[[pa.Table, Path], Path]:
    def write(table: pa.Table, path: Path) -> Path:
        pq.write_table(table, path.with_name("source.parquet"))
        return old_readers.write(path.with_name("source.parquet"), path, writer)

    return write


@pytest.mark.processes
@pytest.mark.parametrize(
    "write",
    [duckdb_file, polars_file, old_file("polars"), old_file("pyarrow"), old_file("datafusion")],
    ids=["DuckDB", "Polars", "Polars 1.12", "pyarrow 15", "DataFusion 43 (arrow-rs)"],
)
def test_files_of_other_writers_go_round(
    catalog: DeltaStreamCatalog,
    tmp_path: Path,
    write: Callable[[pa.Table, Path], Path],
) -> None:
    path = write(plain(KEYS), tmp_path / "theirs.parquet")
    table = pq.read_table(path)
    append(catalog, path)
    rest, copied = compacted_twice(catalog, table)
    assert copied[1] > 0
    check_all_readers(path_of(catalog), rest)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("timestamps", "legacy", "first"),
    [("TIMESTAMP_MICROS", "false", 0), ("TIMESTAMP_MICROS", "true", 64), ("INT96", "false", 0)],
)
def test_files_of_spark_go_round(
    catalog: DeltaStreamCatalog,
    tmp_path: Path,
    spark,
    timestamps: str,
    legacy: str,
    first: int,
) -> None:
    pq.write_table(plain(KEYS), tmp_path / "source.parquet")
    frame = spark.read.parquet(str(tmp_path / "source.parquet")).coalesce(1)
    options = {
        "spark.sql.parquet.outputTimestampType": timestamps,
        "spark.sql.parquet.writeLegacyFormat": legacy,
    }
    before = {key: spark.conf.get(key) for key in options}
    for key, value in options.items():
        spark.conf.set(key, value)
    frame.write.parquet(str(tmp_path / "theirs"))
    for key, value in before.items():
        spark.conf.set(key, value)
    (path,) = (tmp_path / "theirs").glob("*.parquet")
    append(catalog, path)
    rest, copied = compacted_twice(catalog, pq.read_table(path, coerce_int96_timestamp_unit="us"))
    assert copied[0] == first  # decimals of 12 digits are bytes to pyarrow, as they are in the legacy format
    check_all_readers(path_of(catalog), rest)
    keys = [row.k for row in spark.read.parquet(path_of(catalog)).where("k >= 60").collect()]
    assert sorted(keys) == [key for key in range(60, 64) if key != KEYS[0]]


def converted_types_only(of: Struct) -> None:
    for element in schema(of):
        element.pop(LOGICAL_TYPE, None)
    of.pop(COLUMN_ORDERS, None)


def field_ids(of: Struct) -> None:
    for number, element in enumerate(schema(of)[1:]):
        element[FIELD_ID] = (I32, number + 100)


def no_field_ids(of: Struct) -> None:
    for element in schema(of):
        element.pop(FIELD_ID, None)


def legacy_names(of: Struct) -> None:
    """As Hive and parquet-mr before 1.11 named what is in a list or a map."""
    logical_list, logical_map = 3, 2
    elements, renamed = schema(of), {}
    for group, repeated, *inner in zip(elements, elements[1:], elements[2:], [*elements[3:], {}], strict=False):
        kind = next(iter(group.get(LOGICAL_TYPE, (0, {}))[1]), None)
        if kind not in (logical_list, logical_map):
            continue
        del group[LOGICAL_TYPE]
        names = ("bag", "array_element", None) if kind == logical_list else ("map", "key", "value")
        for element, name in zip((repeated, *inner), names, strict=True):
            if name:
                renamed[element[NAME][1]] = name.encode()
                element[NAME] = (BINARY, name.encode())
        if kind == logical_map:
            repeated[CONVERTED_TYPE] = (I32, 2)  # MAP_KEY_VALUE
    for chunk in chunks(of):
        parts = chunk[META_DATA][1][3][1][1]
        parts[1:] = [renamed.get(part, part) for part in parts[1:]]


def negative_null_counts(of: Struct) -> None:
    for chunk in chunks(of):
        if STATISTICS in chunk[META_DATA][1]:
            chunk[META_DATA][1][STATISTICS][1][NULL_COUNT] = (I64, -1)


def zero_dictionary_offsets(of: Struct) -> None:
    for chunk in chunks(of):
        meta = chunk[META_DATA][1]
        if DICTIONARY_PAGE_OFFSET in meta:  # a reader that believes it begins at the first of the two offsets
            meta[DATA_PAGE_OFFSET] = meta[DICTIONARY_PAGE_OFFSET]
        meta[DICTIONARY_PAGE_OFFSET] = (I64, 0)


def odd_file_offsets(of: Struct) -> None:
    for chunk in chunks(of):
        chunk[COLUMN_FILE_OFFSET] = (I64, chunk[META_DATA][1][DATA_PAGE_OFFSET][1])
    for group in of[ROW_GROUPS][1][1]:
        group.pop(5, None)
        group.pop(7, None)


def nobody(of: Struct) -> None:
    of.pop(CREATED_BY, None)


def shifted_page_indexes(of: Struct) -> None:
    """Those of another column each."""
    of_chunks = chunks(of)
    for name in (OFFSET_INDEX_OFFSET, COLUMN_INDEX_OFFSET, COLUMN_INDEX_LENGTH, OFFSET_INDEX_OFFSET + 1):
        values = [chunk[name] for chunk in of_chunks]
        for chunk, value in zip(of_chunks, [*values[1:], values[0]], strict=True):
            chunk[name] = value


def page_indexes_elsewhere(of: Struct) -> None:
    for chunk in chunks(of):
        chunk[OFFSET_INDEX_OFFSET], chunk[COLUMN_INDEX_OFFSET] = (I64, 40), (I64, 4)


def total_order(of: Struct) -> None:
    """What our releases before this one said of the floats of copied row groups, and arrow-rs 60 of its own."""
    for order, chunk in zip(of[COLUMN_ORDERS][1][1], chunks(of), strict=False):
        if chunk[META_DATA][1][1][1] in (4, 5):  # FLOAT, DOUBLE
            order[2] = order.pop(1)


def old_bounds(of: Struct) -> None:
    """Least and greatest as parquet-mr 1.8 had them: in the old fields, strings compared as signed bytes."""
    of[CREATED_BY] = (BINARY, b"parquet-mr version 1.8.1 (build 4aba4dae7bb0d4edbcf7923ae1339f28fd3f7fcf)")
    of.pop(COLUMN_ORDERS, None)
    for chunk in chunks(of):
        bounds = chunk[META_DATA][1].get(STATISTICS, (0, {}))[1]
        for new, old in ((MAX_VALUE, MAX), (MIN_VALUE, MIN)):
            if new in bounds:
                bounds[old] = bounds.pop(new)
        if chunk[META_DATA][1][1][1] == 6 and MIN in bounds:  # byte arrays: wrong on purpose
            bounds[MIN], bounds[MAX] = (BINARY, b"\xff"), (BINARY, b"\x01")


STYLES: dict[Callable[[Struct], None], int] = {  # style -> rows that the first compaction copies
    converted_types_only: 64,
    field_ids: 64,
    no_field_ids: 64,
    legacy_names: 64,
    negative_null_counts: 0,
    zero_dictionary_offsets: 64,
    odd_file_offsets: 64,
    nobody: 64,
    shifted_page_indexes: 64,
    page_indexes_elsewhere: 56,  # nobody knows where the last chunk ends
    total_order: 64,
    old_bounds: 64,
}


@pytest.mark.processes
@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
def test_footers_of_every_style_go_round(
    catalog: DeltaStreamCatalog,
    tmp_path: Path,
    style: Callable[[Struct], None],
) -> None:
    table, sink = plain(KEYS).append_column("map", of_every_kind(KEYS)["map"]), io.BytesIO()
    pq.write_table(table, sink, row_group_size=GROUP, write_page_index=True, store_schema=False)
    changed = footer(sink.getvalue())
    assert with_footer(sink.getvalue(), changed) == sink.getvalue()
    style(changed)
    path = tmp_path / "theirs.parquet"
    path.write_bytes(with_footer(sink.getvalue(), changed))
    table = pq.read_table(path)
    append(catalog, path)
    rest, copied = compacted_twice(catalog, table)
    assert copied == [STYLES[style], 56]
    check_all_readers(path_of(catalog), rest)
    if style is old_bounds:
        assert statistics_of(path_of(catalog))[0]["text"].has_min_max  # this group was encoded by us
        assert not any(group["text"].has_min_max for group in statistics_of(path_of(catalog))[1:])
        assert all(group["k"].has_min_max for group in statistics_of(path_of(catalog)))


@pytest.mark.processes
def test_column_indexes_of_new_writers_are_made_readable_for_old_readers(
    catalog: DeltaStreamCatalog,
    tmp_path: Path,
) -> None:
    """arrow-rs since 57, and so our releases before this one, give lists of booleans a type that older ones refuse."""
    table, sink = plain(KEYS), io.BytesIO()
    pq.write_table(table, sink, row_group_size=GROUP, write_page_index=True)
    data = bytearray(sink.getvalue())
    for chunk in chunks(footer(sink.getvalue())):
        head = chunk[COLUMN_INDEX_OFFSET][1] + 1
        assert data[head] == 0x11
        data[head] = 0x12
    path = tmp_path / "theirs.parquet"
    path.write_bytes(data)
    append(catalog, path)
    rest, copied = compacted_twice(catalog, table)
    assert copied == [64, 56]
    metadata = pq.read_metadata(path_of(catalog))
    assert metadata.row_group(1).column(0).has_column_index
    check_all_readers(path_of(catalog), rest)


def refusals(data: bytes, wanted: pa.Schema) -> list[str | None]:
    sink = io.BytesIO()
    pq.ParquetWriter(sink, wanted).close()
    found = kernels.ParquetFooter(len(data), lambda at, length: data[at : at + length])
    return found.refusals(sink.getvalue())


def test_a_chunk_of_which_the_footer_counts_too_few_bytes_is_decoded() -> None:
    """Old parquet-mr left the dictionary page out; others count what follows."""
    table, sink = of_every_kind(KEYS), io.BytesIO()
    pq.write_table(table, sink, row_group_size=GROUP)
    data = sink.getvalue()
    assert refusals(data, table.schema) == [None] * 8
    for change in (-5, 7):
        wrong = footer(data)
        meta = chunks(wrong)[1][META_DATA][1]
        meta[TOTAL_COMPRESSED] = (I64, meta[TOTAL_COMPRESSED][1] + change)
        first, *others = refusals(with_footer(data, wrong), table.schema)
        assert first == 'row group 0: column "text": its pages do not end where the footer says'
        assert others == [None] * 7


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (pa.int32(), pa.uint32()),
        (pa.int64(), pa.uint64()),
        (pa.int8(), pa.int32()),
        (pa.int64(), pa.timestamp("us")),
        (pa.timestamp("ms"), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.string(), pa.binary()),
        (pa.decimal128(9, 2), pa.decimal128(9, 3)),
        (pa.binary(4), pa.binary(5)),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
        (pa.list_(pa.int32()), pa.int32()),
        (pa.list_(pa.int32()), pa.list_(pa.field("item", pa.int32(), nullable=False))),
        (pa.struct([("a", pa.int32())]), pa.struct([("b", pa.int32())])),
        (pa.struct([("a", pa.int32())]), pa.list_(pa.int32())),
        (pa.date32(), pa.int32()),
        (pa.float32(), pa.int32()),
        (pa.float16(), pa.binary(2)),
    ],
    ids=str,
)
def test_columns_that_are_stored_in_another_way_are_decoded(theirs: pa.DataType, ours: pa.DataType) -> None:
    for stored, other in ((theirs, ours), (ours, theirs)):
        sink = io.BytesIO()
        pq.write_table(pa.table({"c": pa.nulls(3).cast(stored)}), sink)
        (why,) = refusals(sink.getvalue(), pa.schema([("c", other)]))
        assert why == 'its column "c" is stored in another way'


def test_units_that_only_arrow_knows_are_not_mixed(catalog: DeltaStreamCatalog, tmp_path: Path) -> None:
    """A duration is an int64 to Parquet: seconds are no milliseconds for all that."""
    for unit, keys in (("s", range(16)), ("ms", range(16, 32))):
        table = pa.table({"k": keys, "d": pa.array([1] * 16, pa.duration(unit))})
        pq.write_table(table, tmp_path / f"{unit}.parquet", row_group_size=GROUP)
        append(catalog, tmp_path / f"{unit}.parquet")
    run(catalog)
    found = catalog.read("t").sort_by("k")["d"].cast(pa.duration("ms")).cast(pa.int64()).to_pylist()
    assert found == [1000] * 16 + [1] * 16


class _Keys(encryption.KmsClient):
    def __init__(self, _: Any) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, master: str) -> bytes:
        return master.encode() + key

    def unwrap_key(self, wrapped: bytes, master: str) -> bytes:
        return wrapped[len(master) :]


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_an_encrypted_file_is_refused_by_name(
    catalog: DeltaStreamCatalog,
    tmp_path: Path,
    plaintext_footer: bool,
) -> None:
    """pyarrow ends the process when it is asked for the codec of an encrypted column under a plaintext footer."""
    how = encryption.EncryptionConfiguration(
        footer_key="f" * 16, column_keys={"c" * 16: ["v"]}, plaintext_footer=plaintext_footer
    )
    factory = encryption.CryptoFactory(_Keys)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), how)
    path = tmp_path / "secret.parquet"
    pq.write_table(pa.table({"k": [1], "v": ["x"]}), path, encryption_properties=properties)
    with pytest.raises(InputError, match=r"secret\.parquet.*encrypted"):
        append(catalog, path)


class Remote(io.BytesIO):
    """A file that counts how often it is asked for bytes."""

    reads = 0

    def read(self, size: int | None = -1) -> bytes:
        self.reads += 1
        return super().read(size)


@pytest.mark.parametrize(
    ("columns", "to_copy", "requests"), [(3, True, 1), (3, False, 1), (900, False, 2), (900, True, 3)]
)
def test_a_remote_footer_is_read_with_one_request_or_two(columns: int, to_copy: bool, requests: int) -> None:
    """It is read once for pyarrow and for the kernel; page indexes only to copy."""
    sink = io.BytesIO()
    table = pa.table({f"c{place}": range(100) for place in range(columns)})
    pq.write_table(table, sink, row_group_size=GROUP, write_page_index=True)
    remote = Remote(sink.getvalue())
    found = described(pa.PythonFile(remote, "r"), to_copy)
    assert (found.metadata.num_row_groups, remote.reads) == (13, requests)
    assert found.footer is not None and found.footer.decoded(["c1"])[:12] == [(8, 64)] * 12
