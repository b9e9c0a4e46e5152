"""What is no date or no time of day is refused by name: cut or wrapped, one of two keys would be lost."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pytest
from tables import problems

from deltacompact import DeltaStreamCatalog, Settings, compact
from deltacompact.base.errors import InputError, SchemaError
from deltacompact.storage.local import LocalStore
from deltacompact.tabular.whole_days import DAY_MS, no_date

LOCAL = Settings(executor="local", local_threads=1)
ODD = [DAY_MS, DAY_MS + 1]


def dates(values: list[int | None]) -> pa.Array:
    return pa.array(values, pa.int64()).view(pa.date64())


@pytest.fixture
def catalog(tmp_path: Path) -> DeltaStreamCatalog:
    made = DeltaStreamCatalog(LocalStore(tmp_path / "lake"))
    made.create_table("t", (), ["day", "id"], sort_keys=["sorted"])
    return made


def rows(**columns: pa.Array) -> pa.Table:
    whole = dates([DAY_MS, DAY_MS])
    return pa.table({"id": [1, 1], "day": whole, "sorted": whole, "value": whole, **columns})


@pytest.mark.parametrize("name", ["day", "sorted", "value"])
def test_two_keys_or_values_within_a_day_are_refused_and_not_made_one(catalog: DeltaStreamCatalog, name: str) -> None:
    odd = rows(**{name: dates(ODD)})
    with pytest.raises(SchemaError, match=f"the appended table: column '{name}': date64 value {ODD[1]} ms is not a wh"):
        catalog.append("t", odd)
    with pytest.raises(SchemaError, match=f"appended table: column '{name}'"):
        catalog.restate("t", odd)
    assert not catalog.log("t", catalog.partition("t", None)).exists() or catalog.read("t").num_rows == 0


@pytest.mark.parametrize("name", ["sorted", "value"])
def test_values_within_a_day_in_a_file_are_refused_where_the_other_files_have_date32(
    catalog: DeltaStreamCatalog, tmp_path: Path, name: str
) -> None:
    catalog.append("t", pa.table({"id": [1], "day": pa.array([1], pa.date32()), name: pa.array([1], pa.date32())}))
    feather.write_feather(rows(**{name: dates(ODD)}), tmp_path / "odd.arrow")
    with pytest.raises(InputError, match=rf"odd\.arrow.*column '{name}': date64 value {ODD[1]} ms is not a whole day"):
        catalog.append_files("t", [tmp_path / "odd.arrow"])
        compact("t", delta_catalog_client=catalog, settings=LOCAL)


def test_whole_days_of_date64_stay_as_they_are(catalog: DeltaStreamCatalog, tmp_path: Path) -> None:
    whole = dates([0, -DAY_MS, None])
    catalog.append("t", pa.table({"id": [1, 2, 3], "day": whole, "sorted": whole, "value": whole}))
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    assert catalog.read("t").sort_by("id")["value"].combine_chunks().equals(whole)
    assert problems(catalog) == []


@pytest.mark.parametrize(
    "wrap",
    [
        lambda odd: pa.StructArray.from_arrays([odd], ["a"]),
        lambda odd: pa.ListArray.from_arrays(pa.array([0, 0, 2], pa.int32()), odd),
        lambda odd: pa.FixedSizeListArray.from_arrays(odd, 2),
        lambda odd: pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), pa.array(["a", "b"]), odd),
        lambda odd: pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), odd),
        lambda odd: pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), pa.StructArray.from_arrays([odd], ["deep"])),
    ],
)
def test_a_time_of_day_is_found_at_any_depth(wrap) -> None:  # type: ignore[no-untyped-def]
    assert no_date(pa.chunked_array([wrap(dates(ODD))])) == f"date64 value {ODD[1]} ms is not a whole day"
    assert no_date(pa.chunked_array([wrap(dates([0, DAY_MS]))])) is None


def test_what_lies_below_a_null_is_no_value() -> None:
    null = pa.Array.from_buffers(pa.date64(), 2, [pa.py_buffer(b"\x02"), dates([5, 0]).buffers()[1]])
    assert no_date(pa.chunked_array([null])) is None
    struct = pa.StructArray.from_arrays([dates([5, 0])], ["a"], mask=pa.array([True, False]))
    assert no_date(pa.chunked_array([struct])) is None


@pytest.mark.parametrize("moment", ["1995-04-03 10:30:00", "1995-04-03T10:30"])
def test_a_text_file_with_a_time_of_day_is_refused(catalog: DeltaStreamCatalog, tmp_path: Path, moment: str) -> None:
    catalog.append("t", pa.table({"id": [1], "day": dates([0])}))
    (tmp_path / "odd.json").write_text(f'{{"id": 1, "day": "{moment}"}}\n')
    with pytest.raises(InputError, match=r"odd\.json.*'day'"):
        catalog.append_files("t", [tmp_path / "odd.json"])
    (tmp_path / "odd.csv").write_text(f"id,day\n1,{moment}\n")
    with pytest.raises(InputError, match=r"odd\.csv"):
        catalog.append_files("t", [tmp_path / "odd.csv"])


@pytest.mark.parametrize("name", ["day", "sorted", "value"])
@pytest.mark.parametrize("days", [2**31, 2**32, -(2**31) - 1])
def test_a_date64_beyond_32_bits_of_days_is_refused_and_does_not_become_another_day(
    catalog: DeltaStreamCatalog, name: str, days: int
) -> None:
    """Its day wrapped: the rows of 1970-01-01 and of 2^32 days later became one row."""
    far = dates([0, days * DAY_MS])
    with pytest.raises(SchemaError, match=f"appended table: column '{name}': date64 value {days * DAY_MS} ms is a day"):
        catalog.append("t", rows(**{name: far}))


def test_the_first_and_the_last_day_of_32_bits_stay(catalog: DeltaStreamCatalog) -> None:
    whole = dates([-(2**31) * DAY_MS, (2**31 - 1) * DAY_MS])
    catalog.append("t", pa.table({"id": [1, 2], "day": whole, "sorted": whole, "value": whole}))
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    assert catalog.read("t").sort_by("id")["value"].combine_chunks().equals(whole)


TIMES = [
    pytest.param(pa.time64("us"), 2**60, id="as a key, nobody could fold it"),
    pytest.param(pa.time64("us"), 2**62, id="a later file of nanoseconds could not be read with it"),
    pytest.param(pa.time32("s"), 3_000_000, id="Parquet wrapped its milliseconds"),
    pytest.param(pa.time32("ms"), -1, id="before the day"),
    pytest.param(pa.time64("ns"), 86_400_000_000_001, id="after the day"),
]


@pytest.mark.parametrize("name", ["day", "sorted", "value"])
@pytest.mark.parametrize(("type_", "value"), TIMES)
def test_a_time_outside_the_day_is_refused(
    catalog: DeltaStreamCatalog, tmp_path: Path, type_: pa.DataType, value: int, name: str
) -> None:
    stored = pa.int32() if type_.bit_width == 32 else pa.int64()
    odd = rows(**{name: pa.array([0, value], stored).view(type_)})
    said = f"column '{name}': {re.escape(str(type_))} value {value} is no time of one day"
    with pytest.raises(SchemaError, match=f"the appended table: {said}"):
        catalog.append("t", odd)
    feather.write_feather(odd, tmp_path / "odd.arrow")
    with pytest.raises(InputError, match=rf"odd\.arrow.*{said}"):
        catalog.append_files("t", [tmp_path / "odd.arrow"])


def test_all_times_of_a_day_up_to_24_00_are_taken(catalog: DeltaStreamCatalog) -> None:
    times = pa.array([0, 86_400, None], pa.int32()).view(pa.time32("s"))
    catalog.append("t", pa.table({"id": [1, 2, 3], "day": times, "sorted": times, "value": times}))
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    assert catalog.read("t").sort_by("id")["value"].cast(pa.int32()).to_pylist() == [0, 86_400, None]
