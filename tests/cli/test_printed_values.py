"""Rows that are printed: as Python prints its own values, and as text where Python has none."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltacompact import open_catalog
from deltacompact.cli import printed_values
from deltacompact.cli import run as command_line
from deltacompact.cli.printed_values import printed_rows

UNITS = ["s", "ms", "us"]
ZONES = [None, "UTC", "Europe/Berlin", "+05:30", "America/St_Johns", "Africa/Monrovia"]


def printed(array: pa.Array) -> list[object]:
    return [row["c"] for row in printed_rows(pa.record_batch({"c": array}))]


@given(st.datetimes(datetime.datetime(2, 1, 1), datetime.datetime(9998, 1, 1)), st.sampled_from(ZONES))
def test_what_python_has_a_value_for_is_printed_alike_by_both_ways(
    instant: datetime.datetime, zone: str | None
) -> None:
    micros = (instant - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    scalar = pa.scalar(micros, pa.timestamp("us", zone))
    expected = scalar.as_py()
    assert printed_values._timestamp(micros, 10**6, scalar) == str(expected)
    day = instant.date()
    assert printed_values._date((day - datetime.date(1970, 1, 1)).days) == str(day)


@given(st.timedeltas(), st.times())
def test_durations_and_times_are_printed_as_python_prints_them(span: datetime.timedelta, time: datetime.time) -> None:
    assert printed_values._duration(span // datetime.timedelta(microseconds=1), 10**6) == str(span)
    micros = ((time.hour * 60 + time.minute) * 60 + time.second) * 10**6 + time.microsecond
    assert printed_values._clock(micros, 10**6) == str(time)


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (pa.timestamp("ns"), 1, "1970-01-01 00:00:00.000000001"),
        (pa.timestamp("ns"), -1, "1969-12-31 23:59:59.999999999"),
        (pa.timestamp("ns"), 1_000, "1970-01-01 00:00:00.000001"),
        (pa.timestamp("ns", "Europe/Berlin"), 1_700_000_000_000_000_123, "2023-11-14 23:13:20.000000123+01:00"),
        (pa.time64("ns"), 5, "00:00:00.000000005"),
        (pa.timestamp("ns", "Africa/Monrovia"), 1, "1969-12-31 23:15:30.000000001-00:44:30"),
        (pa.duration("ns"), 86_400_000_000_007, "1 day, 0:00:00.000000007"),
        (pa.timestamp("s"), 568_971_820_800, "+20000-01-01 00:00:00"),
        (pa.timestamp("us", "UTC"), -62_198_755_200_000_000, "-0001-01-01 00:00:00+00:00"),
        (pa.date32(), 6_585_322, "+20000-01-01"),
    ],
)
def test_what_python_has_no_value_for_is_text(type_: pa.DataType, value: int, text: str) -> None:
    array = pa.array([value, None], pa.int32() if type_ == pa.date32() else pa.int64()).view(type_)
    shown = printed(array)
    assert shown[1] is None
    assert shown[0] == text


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()])
def test_text_of_other_writers_that_is_no_utf8_is_printed(type_: pa.DataType) -> None:
    latin = pa.array(["é".encode("latin-1"), "é".encode(), None], pa.binary()).cast(pa.large_binary())
    text = pa.LargeStringArray.from_buffers(3, *latin.buffers()[1:], latin.buffers()[0]).cast(type_)
    assert printed(text) == ["\\xe9", "é", None]
    assert printed(pa.ListArray.from_arrays([0, 3], text)) == [["\\xe9", "é", None]]


def test_nested_values_and_dictionaries_keep_their_shape() -> None:
    moment = pa.array([1, 2], pa.timestamp("ns"))
    one, two = "1970-01-01 00:00:00.000000001", "1970-01-01 00:00:00.000000002"
    assert printed(pa.StructArray.from_arrays([moment, pa.array([3, None])], ["t", "n"])) == [
        {"t": one, "n": 3},
        {"t": two, "n": None},
    ]
    assert printed(pa.ListArray.from_arrays([0, 2, 2], moment)) == [[one, two], []]
    assert printed(pa.MapArray.from_arrays([0, 1, 2], ["a", "b"], moment)) == [[("a", one)], [("b", two)]]
    assert printed(pa.DictionaryArray.from_arrays([1, None], moment)) == [two, None]
    assert printed(pa.RunEndEncodedArray.from_arrays([2, 3], moment)) == [one, one, two]
    kinds, offsets = pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32())
    assert printed(pa.UnionArray.from_dense(kinds, offsets, [moment, pa.array(["x"])])) == [one, "x", two]
    sparse = [pa.array([1, 1, 2], pa.timestamp("ns")), pa.array(["x"] * 3)]
    assert printed(pa.UnionArray.from_sparse(kinds, sparse)) == [one, "x", two]


@pytest.mark.processes
def test_a_program_of_ours_reads_nanoseconds_and_imports_no_pandas(tmp_path: Path) -> None:
    catalog = open_catalog(str(tmp_path))
    catalog.create_table("t", [], ["id"])
    catalog.append("t", pa.table({"id": pa.array([1, 2], pa.timestamp("ns"))}))
    command = "import sys; from deltacompact.cli import main; sys.argv[1:] = ['read', sys.argv[1], 't']\n"
    command += "try:\n    main()\nfinally:\n    assert 'pandas' not in sys.modules and 'pyarrow' in sys.modules"
    done = subprocess.run([sys.executable, "-c", command, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f'{{"id": "1970-01-01 00:00:00.00000000{number}"}}' for number in (1, 2)]


def test_bytes_are_hexadecimal_wherever_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = open_catalog(tmp_path)
    value = pa.array([b"\x00\xff"])
    nested = pa.array([[{"inner": b"\x01"}]])
    catalog.create_table("t", primary_keys=["id"]).append(pa.table({"id": value, "nested": nested}))
    assert command_line(["read", str(tmp_path), "t"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": "00ff", "nested": [{"inner": "01"}]}
