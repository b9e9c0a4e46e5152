"""Every content type of compacted files gives back what was put in, or refuses the column by name before it publishes.

NaN, null, "NaN"     Parquet, Feather, ORC and CSV keep them apart
dictionaries         files with different categories become one column
year 9999            ORC would wrap it around: refused, the deltas stay
"""

from __future__ import annotations

import dataclasses
import gc
import math
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from columns import bag
from oracle import Row

from deltacompact import DeltaStreamCatalog, InputError, Settings, compact
from deltacompact.base.model import ContentType, Partition
from deltacompact.maintenance.check import check
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular.formats import _PARQUET_TYPES, surely_holds
from deltacompact.tabular.writing import _check_written, check_writable

LOCAL = Settings(executor="local", local_threads=1)
EVERY_FORMAT = ["parquet", "feather", "orc", "csv"]


@pytest.fixture
def catalog() -> DeltaStreamCatalog:
    catalog = DeltaStreamCatalog(MemoryStore())
    catalog.create_table("t", primary_keys=["k"])
    return catalog


def compacted(catalog: DeltaStreamCatalog, content_type: str = "parquet", settings: Settings = LOCAL) -> None:
    compact("t", delta_catalog_client=catalog, compacted_file_content_type=content_type, settings=settings)


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", EVERY_FORMAT)
def test_nan_is_a_number_and_null_is_none_in_every_format(catalog: DeltaStreamCatalog, content_type: str) -> None:
    table = pa.table({"k": [math.nan, 1.0, None], "v": [None, math.nan, math.inf], "n": ["NaN", "null", None]})
    catalog.append("t", table)
    compacted(catalog, content_type)
    assert bag(catalog.read("t").to_pylist()) == bag(table.to_pylist())
    assert [report.problems for report in check(catalog, "t")] == [()]


@pytest.mark.parametrize("content_type", EVERY_FORMAT)
@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "brotli", "none"])
def test_every_format_is_written_with_every_codec(catalog: DeltaStreamCatalog, content_type: str, codec: str) -> None:
    """Also with those that the format does not have: the rows may come from Parquet files, whose codec is taken."""
    catalog.append("t", pa.table({"k": [1, 2]}))
    compacted(catalog, content_type, dataclasses.replace(LOCAL, compression=codec))
    assert catalog.read("t")["k"].to_pylist() == [1, 2]


@pytest.mark.parametrize("content_type", EVERY_FORMAT)
def test_a_file_that_has_none_of_the_columns_has_nulls_in_them(catalog: DeltaStreamCatalog, content_type: str) -> None:
    catalog.append("t", pa.table({"k": [1, 2]}))
    compacted(catalog, content_type)
    catalog.append("t", pa.table({"k": [3], "v": [4]}))
    assert catalog.read("t", columns=["v"])["v"].to_pylist() == [None, None, 4]


def test_bytes_of_a_fixed_size_in_csv_are_not_called_damaged(catalog: DeltaStreamCatalog) -> None:
    """The advice would be to take out the rows."""
    catalog.append("t", pa.table({"k": [1, 2], "v": pa.array([b"a\n", None], pa.binary(2))}))
    compacted(catalog, "csv")
    assert catalog.read("t")["v"].to_pylist() == [b"a\n", None]
    assert [report.problems for report in check(catalog, "t")] == [()]


def test_a_null_in_the_only_column_is_refused_where_csv_would_lose_it(catalog: DeltaStreamCatalog) -> None:
    catalog.append("t", pa.table({"k": pa.array([None, 1])}))
    with pytest.raises(InputError, match="CSV cannot hold a null in a table of one column, 'k'"):
        compacted(catalog, "csv")
    assert catalog.read("t").num_rows == 2


@pytest.mark.parametrize(
    ("content_type", "type_"),
    [
        ("csv", pa.decimal256(50, 2)),
        ("csv", pa.list_(pa.int64())),
        ("orc", pa.uint64()),
        ("orc", pa.time64("us")),
        ("orc", pa.duration("s")),
    ],
)
def test_a_type_that_a_format_does_not_give_back_is_refused_by_name(
    catalog: DeltaStreamCatalog, content_type: str, type_: pa.DataType
) -> None:
    catalog.append("t", pa.table({"k": [1], "v": pa.nulls(1, type_)}))
    with pytest.raises(InputError, match=r"column 'v' is .*, which .* files cannot hold"):
        compacted(catalog, content_type)
    assert catalog.read("t").num_rows == 1 and catalog.state("t", Partition()).compacted is None


@pytest.mark.parametrize("type_", [pa.timestamp("us"), pa.timestamp("s"), pa.date64(), pa.timestamp("ms", "UTC")])
def test_orc_refuses_the_year_9999_before_anything_is_published(
    catalog: DeltaStreamCatalog, type_: pa.DataType
) -> None:
    catalog.append("t", pa.table({"k": [1], "until": pa.array([datetime(9999, 12, 31)]).cast(type_)}))
    with pytest.raises(InputError, match="column 'until': ORC holds timestamps of the years"):
        compacted(catalog, "orc")
    assert catalog.read("t").num_rows == 1


MIDNIGHT = pa.array([86_400_000_000, None, 1]).view(pa.time64("us"))
"""24:00, which PostgreSQL has, too."""
NESTED = {
    "plain": MIDNIGHT,
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), MIDNIGHT.slice(0, 2)),
    "struct": pa.StructArray.from_arrays([MIDNIGHT], ["t"]),
    "list": pa.ListArray.from_arrays([0, 1, 1, 3], MIDNIGHT),
    "large list": pa.LargeListArray.from_arrays([0, 1, 1, 3], MIDNIGHT),
    "fixed size": pa.FixedSizeListArray.from_arrays(MIDNIGHT, 1),
    "map": pa.MapArray.from_arrays([0, 1, 1, 2], pa.array(["a", "b"]), MIDNIGHT.slice(0, 2)),
}


@pytest.mark.parametrize("form", NESTED)
def test_feather_gives_back_times_of_day_after_the_last_minute(catalog: DeltaStreamCatalog, form: str) -> None:
    catalog.append("t", pa.table({"k": [1, 2, 3], "v": NESTED[form]}))
    appended = catalog.read("t")["v"].combine_chunks()
    compacted(catalog, "feather")
    assert catalog.read("t")["v"].combine_chunks().equals(appended)
    assert [report.problems for report in check(catalog, "t")] == [()]


@pytest.mark.parametrize(
    "moment",
    [
        MIDNIGHT[0],
        pa.scalar(2_932_897, pa.date32()),
        pa.scalar(253_402_300_800, pa.timestamp("s")),
        pa.scalar(-5_364_662_400, pa.timestamp("s", "Europe/Berlin")),
    ],
)
def test_csv_refuses_moments_that_its_text_would_change(catalog: DeltaStreamCatalog, moment: pa.Scalar) -> None:
    """Nobody could read the rows of the first three any more, and that of Berlin in 1800 was 28 seconds off."""
    catalog.append("t", pa.table({"k": [1], "v": pa.array([moment])}))
    with pytest.raises(InputError, match="column 'v': CSV holds moments of the years 0 to 9999 only"):
        compacted(catalog, "csv")
    assert catalog.read("t").num_rows == 1 and catalog.state("t", Partition()).compacted is None


def test_an_orc_file_that_is_given_up_after_its_first_rows_does_not_end_the_process(tmp_path: Path) -> None:
    catalog = DeltaStreamCatalog(LocalStore(tmp_path))
    catalog.create_table("t", primary_keys=["k"])
    times = pa.array([0, 0, 253402300799], pa.timestamp("s"))
    catalog.append("t", pa.table({"k": [1, 2, 3], "until": times}))
    with pytest.raises(InputError, match="column 'until': ORC holds timestamps of the years"):
        compacted(catalog, "orc", dataclasses.replace(LOCAL, row_group_rows=2))
    gc.collect()  # Arrow's writer ends its file, whose sink is closed
    assert catalog.read("t").num_rows == 3


def test_structs_come_back_from_orc_as_they_were(catalog: DeltaStreamCatalog) -> None:
    structs = [None if n % 3 == 0 else {"a": n} for n in range(10)]
    table = pa.table({"k": list(range(10)), "v": structs, "l": [[struct] for struct in structs]})
    catalog.append("t", table)
    small = dataclasses.replace(LOCAL, row_group_rows=4)
    compacted(catalog, "orc", small)
    assert catalog.read("t").to_pylist() == table.to_pylist()


# --- dictionaries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", EVERY_FORMAT)
def test_dictionaries_of_several_files_go_into_one(catalog: DeltaStreamCatalog, content_type: str) -> None:
    tables = [pa.table({"k": [n, n + 10], "v": pa.array([f"v{n}", None]).dictionary_encode()}) for n in range(3)]
    expected = bag(row for table in tables for row in table.to_pylist())
    for table in tables:
        catalog.append("t", table)
    small = dataclasses.replace(LOCAL, row_group_rows=1)
    compacted(catalog, content_type, small)
    assert bag(catalog.read("t").to_pylist()) == expected
    assert catalog.read("t").schema.field("v").type == pa.dictionary(pa.int32(), pa.string())
    catalog.append("t", pa.table({"k": [10]}), operation="delete")
    compacted(catalog, content_type)
    assert catalog.read("t").num_rows == 5


def test_files_of_dictionaries_and_files_of_texts_have_one_type_for_other_readers(tmp_path: Path) -> None:
    """Polars refuses two types, and PyIceberg does, too."""
    catalog = DeltaStreamCatalog(LocalStore(tmp_path))
    table = catalog.create_table("t", primary_keys=["k"])
    few_rows = dataclasses.replace(LOCAL, row_group_rows=2)
    texts = pa.array(["a", "b", "a", "b"])
    for first, values in ((0, texts.dictionary_encode()), (4, texts.dictionary_encode()), (8, texts)):
        table.append(pa.table({"k": range(first, first + 4), "v": values}))
        table.compact(settings=few_rows, rows_per_compacted_file=4)
        expected = {4: "dictionary", 8: "dictionary", 12: "string"}[first + 4]
        assert str(table.read().schema.field("v").type).startswith(expected)
        if first == 4:  # of the first file, one row group is copied
            table.append(pa.table({"k": [0]}), operation="delete")
            table.compact(settings=few_rows, rows_per_compacted_file=4)
    types = [pq.read_schema(name.removeprefix("file://")).field("v").type for name in table.compacted_files()]
    assert len(types) > 2 and set(types) == {pa.string()}
    assert table.read().sort_by("k")["v"].to_pylist() == [*"bab", *"abab", *"abab"]


def test_files_of_both_types_of_dates_have_one_type_for_other_readers(tmp_path: Path) -> None:
    """Parquet has one type of dates. Polars reads what Arrow calls date64 as a time, and refuses a date beside it."""
    catalog = DeltaStreamCatalog(LocalStore(tmp_path))
    table = catalog.create_table("t", ["p"], primary_keys=["k"])
    days, milliseconds = pa.array([3, None], pa.date32()), pa.array([3 * 86_400_000, None], pa.date64())
    for partition, dates in enumerate((days, milliseconds)):
        nested = [
            pa.ListArray.from_arrays([0, 1, 2], dates),
            pa.FixedSizeListArray.from_arrays(dates, 1),
            pa.MapArray.from_arrays([0, 1, 2], ["a", "b"], dates),
            pa.StructArray.from_arrays([dates], ["d"]),
        ]
        names = ["k", "d", *"lfms"]
        table.append(pa.table([pa.array([0, 1]), dates, *nested], names), {"p": str(partition)})
    table.compact(settings=LOCAL)
    rows = pl.scan_parquet([name.removeprefix("file://") for name in table.compacted_files()]).collect()
    day = date(1970, 1, 4)
    one = {"k": 0, "d": day, "l": [day], "f": [day], "m": {"a": day}, "s": {"d": day}}
    assert [row for row in rows.to_dicts() if row["k"] == 0] == [one, one]


@pytest.mark.parametrize("content_type", EVERY_FORMAT)
@pytest.mark.parametrize("value_type", [pa.string(), pa.int64()])
def test_categories_of_two_files_are_more_than_a_byte_counts(
    catalog: DeltaStreamCatalog, content_type: str, value_type: pa.DataType
) -> None:
    codes = pa.array(range(100), pa.int8())
    for first in (0, 100):
        keys = pa.array(range(first, first + 100))
        values = keys.cast(pa.string()).cast(value_type)
        catalog.append("t", pa.table({"k": keys, "v": pa.DictionaryArray.from_arrays(codes, values)}))
    compacted(catalog, content_type)
    assert [(row["k"], int(row["v"])) for row in catalog.read("t").to_pylist()] == [(n, n) for n in range(200)]


@pytest.mark.parametrize(
    "nested",
    [
        lambda values: pa.ListArray.from_arrays(list(range(101)), values),
        lambda values: pa.FixedSizeListArray.from_arrays(values, 1),
        lambda values: pa.StructArray.from_arrays([values], ["s"]),
        lambda values: pa.MapArray.from_arrays(list(range(101)), pa.array(["key"] * 100), values),
    ],
)
def test_categories_inside_of_nested_columns_are_too(
    catalog: DeltaStreamCatalog, nested: Callable[[pa.Array], pa.Array]
) -> None:
    expected: list[Row] = []
    for first in (0, 100):
        categories = pa.array([str(first + n) for n in range(100)])
        values = nested(pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), categories))
        table = pa.table({"k": list(range(first, first + 100)), "v": values})
        expected += table.to_pylist()
        catalog.append("t", table)
    compacted(catalog)
    assert catalog.read("t").to_pylist() == expected


def test_a_table_of_several_dictionaries_is_appended(catalog: DeltaStreamCatalog) -> None:
    pieces = [
        pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), pa.array([f"{n}/{m}" for n in range(100)]))
        for m in range(2)
    ]
    catalog.append("t", pa.table({"k": list(range(200)), "v": pa.chunked_array(pieces)}))
    assert catalog.read("t")["v"].to_pylist()[-1] == "99/1"


def test_what_needs_no_trial_would_stand_it():
    """A plan of most tables imports nothing of Arrow's Parquet."""
    assert pa.int64() in _PARQUET_TYPES and pa.string() in _PARQUET_TYPES
    check_writable(pa.schema([(str(type_), type_) for type_ in _PARQUET_TYPES]), ContentType.PARQUET)
    wide = pa.schema([("k", pa.int64()), ("v", pa.list_(pa.int64()))])
    assert not surely_holds(ContentType.PARQUET, wide) and not surely_holds(ContentType.ORC, wide.remove(1))


def test_a_schema_is_tried_once_however_many_partitions_have_it():
    """`show` of 3,000 waiting partitions wrote and read 3,000 empty files, for a quarter of its time."""
    schema = pa.schema([pa.field("a", pa.int64(), metadata={"of": "this test"})])
    before = _check_written.cache_info()
    for _ in range(3):
        check_writable(schema, ContentType.PARQUET)
    after = _check_written.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (1, 2)
    for _ in range(2):  # what is refused is refused again
        with pytest.raises(InputError, match="column 'v' is"):
            check_writable(pa.schema([("v", pa.list_(pa.int64()))]), ContentType.CSV)


def test_a_column_that_is_nested_too_deeply_is_named(catalog: DeltaStreamCatalog, tmp_path: Path) -> None:
    deep = '{"a":' * 150 + "1" + "}" * 150
    (tmp_path / "deep.json").write_text(f'{{"k": 1, "v": {deep}}}')
    with pytest.raises(InputError, match="column 'v' is nested more deeply than files can hold"):
        catalog.append_files("t", tmp_path / "deep.json")
