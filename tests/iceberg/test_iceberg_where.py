"""Options that choose: `where` by partition and column bounds, dangling deletes in all partitions, groups at a time."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.types import LongType

from deltacompact.base.errors import InputError
from deltacompact.iceberg.marks.finding import Finder
from deltacompact.iceberg.table.pyiceberg_door import behaviour
from deltacompact.iceberg.table.pyiceberg_door.row_filters import row_filter
from deltacompact.iceberg.table.pyiceberg_door.where import files_that_may_match

T = "ns.t"
NO_SPEC = {"spec-id": 0, "fields": []}


def table_of(lake):
    """Two days with two files each: ids 0‥9, 10‥19 on day 1, 20‥29, 30‥39 on day 2."""
    schema = pa.schema(
        [("id", pa.int64()), ("day", pa.date32()), ("price", pa.decimal128(9, 2)), ("name", pa.string())]
    )
    lake.create(T, schema)
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_identity("day")
        update.add_identity("price")
    for first in (0, 10, 20, 30):
        day = datetime.date(2026, 1, 1 + first // 20)
        price = Decimal("1.50") if first < 20 else Decimal("-2.50")
        lake.append(T, [{"id": first + n, "day": day, "price": price, "name": f"name {first + n}"} for n in range(10)])


def firsts(result_or_plan):
    """The least id of each chosen file."""
    chosen = [source.entry.file for group in result_or_plan.groups for source in group.inputs]
    return sorted(int.from_bytes(file.lower_bounds[1], "little") for file in chosen)


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        ("day = '2026-01-01'", [0, 10]),
        ("day > '2026-01-01'", [20, 30]),
        ("price = 1.50", [0, 10]),
        ("price < 0", [20, 30]),
        ("id >= 35", [30]),
        ("id < 5 or id = 25", [0, 20]),
        ("day = '2026-01-01' and id > 12", [10]),
        ("name is null", []),
        ("name like 'name 3%'", [0, 30]),
        ("not id < 30", [30]),
        ("id in (1, 39)", [0, 30]),
    ],
)
@pytest.mark.slow
def test_where_chooses_files_by_partition_and_bounds(lake, where, chosen):
    table_of(lake)
    assert firsts(lake.prepared(T, rewrite_all=True, where=where).plan()) == chosen


def test_only_whole_files_are_rewritten_and_no_row_is_lost(lake):
    table_of(lake)
    before = lake.rows(T)
    result = lake.rewrite(T, rewrite_all=True, where="id = 3 or id = 15")
    assert (result.files_in, result.files_out, result.rows_out) == (2, 1, 20)
    assert lake.rows(T) == before
    result = lake.rewrite(T, rewrite_all=True, where="id = 1000")
    assert result.nothing_to_do == "3 files: no rows in them for which `where` is true"


def test_bounds_of_dates_that_became_timestamps_are_unknown(lake):
    """Old manifests have four bytes for them. PyIceberg's own evaluator ends in struct.error."""
    lake.create(T, pa.schema([("id", pa.int64()), ("day", pa.date32())]))
    lake.append(T, [{"id": 0, "day": datetime.date(2026, 1, 1)}])
    before = json.loads(lake.catalog.load_table(T).schema().model_dump_json())
    columns = [column | ({"type": "timestamp"} if column["name"] == "day" else {}) for column in before["fields"]]
    after = before | {"schema-id": 1, "fields": columns}
    lake.upgrade(T, schemas=[before, after], **{"current-schema-id": 1})
    lake.append(T, [{"id": 10, "day": datetime.datetime(2026, 1, 2)}])
    for where in ("day > '2026-02-01T00:00:00'", "day is null or day = '1999-01-01T00:00:00'"):
        assert firsts(lake.prepared(T, rewrite_all=True, where=where).plan()) == [0]
    assert firsts(lake.prepared(T, rewrite_all=True, where="day > '2026-01-01T00:00:00'").plan()) == [0, 10]


@pytest.mark.parametrize(
    ("type_", "value", "bound"),
    [
        ("boolean", "true", b""),
        ("int", "1", b"\0" * 8),
        ("long", "1", b"\0"),
        ("double", "1.5", b"\0" * 3),
        ("date", "'2026-01-01'", b"\0" * 8),
        ("time", "'10:00:00'", b"\0" * 4),
        ("timestamp", "'2026-01-01T00:00:00'", b"\0" * 4),
        ("string", "'a'", b"\xff"),
    ],
)
def test_a_bound_that_does_not_fit_its_column_is_unknown(type_, value, bound):
    fields = [{"id": number, "name": f"x{number}", "type": type_, "required": False} for number in (7, 8)]
    schema = {"type": "struct", "schema-id": 0, "fields": fields}
    may = files_that_may_match(f"x7 > {value}", behaviour._table(schemas=[schema], partition_specs=[NO_SPEC]))
    assert may(replace(behaviour._file(bound, bound), partition=()))


MINUTE = datetime.timedelta(minutes=1)
HOUR = datetime.datetime(2026, 10, 26, 1)
NANOSECONDS = 1_792_976_400_000_000_000
TIMES = pa.table({"x7": pa.array([HOUR - MINUTE, HOUR, HOUR + MINUTE], pa.timestamp("us"))})


def _with_times(where, type_):
    """The rows of three times, and whether a file with the middle one may match."""
    fields = [{"id": 7, "name": "x7", "type": type_, "required": False}]
    schema = {"type": "struct", "schema-id": 0, "fields": fields}
    may = files_that_may_match(where, behaviour._table(schemas=[schema], partition_specs=[NO_SPEC]))
    unit = "ns" if type_.endswith("_ns") else "us"
    times = TIMES.cast(pa.schema([("x7", pa.timestamp(unit, "UTC" if type_.startswith("timestamptz") else None))]))
    bound = to_bytes(LongType(), times["x7"][1].value)
    return times.filter(row_filter(where, times.schema)).num_rows, may(
        replace(behaviour._file(bound, bound), partition=())
    )


@given(
    moment=st.datetimes(HOUR - 2 * MINUTE, HOUR + 2 * MINUTE).map(lambda moment: moment.replace(microsecond=0)),
    separator=st.sampled_from(" T"),
    zone=st.sampled_from(["", "Z", "+00:00", "+02:00", "-0530", "+01"]),
    fraction=st.sampled_from(["", ".5", ".000001", ".500000000"]),
    unit=st.sampled_from(["", "_ns"]),
)
def test_files_and_rows_are_chosen_by_one_reading_of_a_time(moment, separator, zone, fraction, unit):
    """Files took only a T and an offset, rows took a space, too, and neither took a time without an offset."""
    offset = datetime.datetime.fromisoformat(f"2026-01-01T00:00:00{zone}").utcoffset() or datetime.timedelta()
    second = (moment + offset).isoformat(separator)
    least = moment + datetime.timedelta(seconds=float(fraction or 0))
    expected = sum(value > least for value in TIMES["x7"].to_pylist()), least < HOUR
    assert _with_times(f"x7 > '{second}{fraction}{zone}'", f"timestamptz{unit}") == expected
    without_zone = f"{moment.isoformat(separator)}{fraction}"
    assert _with_times(f"not (x7 is null or not x7 > '{without_zone}')", f"timestamp{unit}") == expected


@pytest.mark.parametrize("day", ["2026-10-26", "2026-10-26 01", "2026-10-26T01:00"])
def test_a_time_may_lack_its_last_parts(day):
    assert _with_times(f"x7 >= '{day}' and x7 in ('2026-10-26 01:00')", "timestamptz") == (1, True)


@pytest.mark.parametrize("type_", ["timestamp_ns", "timestamptz_ns"])
@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("x7 < '2026-10-26 01:00:00.000000001'", (2, True)),
        ("not x7 < '2026-10-26 01:00:00.000000001'", (1, False)),
        ("x7 <= '2026-10-26 00:59:59.999999999'", (1, False)),
        ("x7 in ('2026-10-26 01:00', '2026-10-27')", (1, True)),
        ("x7 in ('2026-10-25', '2026-10-26 01:00:00.000000001')", (0, False)),
        (f"x7 = {NANOSECONDS}", (1, True)),
        (f"x7 > {NANOSECONDS}", (1, False)),
    ],
)
def test_nanoseconds_choose_files_and_rows(where, found, type_):
    assert _with_times(where, type_) == found


@pytest.mark.parametrize("transform", ["identity", "year", "month", "day", "hour", "bucket[8]"])
@pytest.mark.parametrize("type_", ["timestamp_ns", "timestamptz_ns"])
def test_nanoseconds_choose_partitions(transform, type_):
    """The file's column has no bounds: its partition alone tells."""
    schema = {
        "type": "struct",
        "schema-id": 0,
        "fields": [{"id": 7, "name": "x7", "type": type_, "required": False}],
    }
    field = {"source-id": 7, "field-id": 1000, "name": "p", "transform": transform}
    table = behaviour._table(schemas=[schema], partition_specs=[{"spec-id": 0, "fields": [field]}])
    of_value = table.specs()[0].fields[0].transform.transform(table.schema().find_type("x7"))
    file = replace(behaviour._file(b"", b""), partition=(of_value(NANOSECONDS),))
    later = of_value(NANOSECONDS + 400 * 24 * 3600 * 10**9)
    assert files_that_may_match("x7 = '2026-10-26 01:00'", table)(file)
    assert files_that_may_match("not x7 != '2026-10-26 01:00'", table)(file)
    assert files_that_may_match("x7 < '2026-10-26 01:00:00.000000001'", table)(file)
    assert files_that_may_match("x7 in ('2026-10-26 01:00', '2026-01-01')", table)(file)
    if later != of_value(NANOSECONDS):
        assert not files_that_may_match("x7 = '2026-10-26 01:00'", table)(replace(file, partition=(later,)))


@pytest.mark.parametrize(
    ("type_", "time", "message"),
    [
        ("timestamp", "2026-10-26T01:00:00.1234567", "have 6 digits after the second, and .* has 7: a time is written"),
        ("timestamptz", "2026-10-26 01:00:00.123456789Z", "have 6 digits .* has 9: a time is written"),
        ("timestamptz", "noon", "'noon' is no time: a time is written like 2026-11-22 or '2026-11-22 09:10:03'"),
        ("timestamptz", "2026-13-01", "month must be in"),
        ("timestamptz", "2026-10-26+02:00", "is no time"),
        ("timestamptz", "0001-01-01 00:00:00+02:00", "out of range"),
        (
            "timestamp",
            "2026-10-26 01:00:00Z",
            "have no zone, and '2026-10-26 01:00:00Z' has one: a time is written like",
        ),
    ],
)
def test_a_time_that_does_not_fit_its_column_is_answered_with_the_form(type_, time, message):
    where, column = f"x7 > '{time}'", pa.timestamp("us", "UTC" if type_ == "timestamptz" else None)
    with pytest.raises(InputError, match=f"^where .*{message}"):
        _with_times(where, type_)
    with pytest.raises(InputError, match=f"^where .*{message}"):
        row_filter(where, pa.schema([("x7", column)]))


def test_files_of_older_specs_are_chosen_by_their_own_partition(lake):
    table_of(lake)
    with lake.catalog.load_table(T).update_spec() as update:
        update.remove_field("day")
    lake.append(T, [{"id": 40, "day": datetime.date(2026, 1, 2), "price": Decimal("9.00"), "name": None}])
    assert firsts(lake.prepared(T, rewrite_all=True, where="day = '2026-01-02'").plan()) == [20, 30, 40]
    assert firsts(lake.prepared(T, rewrite_all=True, where="price = 9").plan()) == [40]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("id >", "where 'id >' cannot be parsed"),
        ("größe = 1", "cannot be parsed: .* in double quotes"),
        ("id = " + "9" * 5000, "where .* cannot be parsed"),
        ("nobody = 1", r"there is no column 'nobody' \(columns: id, day, price, name\)"),
        ("day = 'today'", "is not an expression about this table"),
        ("", "option where is empty"),
    ],
)
@pytest.mark.slow
def test_a_bad_expression_is_refused_in_one_line_before_any_work(lake, where, message):
    table_of(lake)
    before = lake.state(T)
    with pytest.raises(InputError, match=message) as caught:
        lake.rewrite(T, rewrite_all=True, where=where)
    assert "\n" not in str(caught.value)
    assert lake.state(T) == before


# Dangling deletes


def test_rule_08_dangling_deletes_of_all_partitions_are_removed_when_asked_for(lake):
    """No file is chosen, but a delete lies in a partition that has no older data any more."""
    table_of(lake)
    lake.delete_by_key(T, {"id": [3]}, partition=_partition(lake, 0))
    lake.delete_by_key(T, {"id": [1000]}, partition=(0, 0))
    assert lake.rewrite(T, min_input_files=9).nothing_to_do
    result = lake.rewrite(T, min_input_files=9, remove_dangling_deletes=True)
    assert (result.delete_files_removed, len(result.snapshots), result.nothing_to_do) == (1, 1, None)
    (left,) = lake.state(T).deletes
    assert left.file.partition == _partition(lake, 0)
    again = lake.rewrite(T, min_input_files=9, remove_dangling_deletes=True)
    assert again.snapshots == [] and again.nothing_to_do


def test_rule_09_a_dangling_delete_stays_if_older_data_comes_meanwhile(lake):
    lake.create(T, pa.schema([("id", pa.int64())]))
    lake.delete_by_key(T, {"id": [2]})
    lake.append(T, [{"id": 1}])
    lake.append(T, [{"id": 5}])
    added = []

    def add_older():
        if not added:
            added.append(lake.add_data(T, [{"id": 2}, {"id": 3}], sequence_number=0))

    result = lake.rewrite(T, rewrite_all=True, remove_dangling_deletes=True, before_commit=add_older)
    assert result.delete_files_removed == 0
    assert len(lake.state(T).deletes) == 1
    lake.rewrite(T, rewrite_all=True)
    assert sorted(row["id"] for row in lake.rows(T)) == [1, 3, 5]


def _partition(lake, first):
    return next(
        entry.file.partition
        for entry in lake.state(T).data
        if int.from_bytes(entry.file.lower_bounds[1], "little") == first
    )


def test_so_many_groups_are_rewritten_at_a_time(lake, monkeypatch):
    table_of(lake)
    waves = []
    find = Finder.find

    def counted(self, asked):
        waves.append(len(asked))
        return find(self, asked)

    monkeypatch.setattr(Finder, "find", counted)
    before = lake.rows(T)
    result = lake.rewrite(T, rewrite_all=True, max_file_group_input_files=1, max_concurrent_file_group_rewrites=3)
    assert (waves, result.groups, len(result.snapshots)) == ([3, 1], 4, 1)
    assert lake.rows(T) == before
