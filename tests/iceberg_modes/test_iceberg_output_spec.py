"""Outputs that go to another partition spec (rule 17), whole files or row by row, with the values of that spec."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import math
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conversions import once
from plan_json import plan_to_json
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, MonthTransform, TruncateTransform, parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from deltacompact.base.errors import InputError
from deltacompact.iceberg.marks.finding import Sizes
from deltacompact.iceberg.table.content_files import Spec, SpecField
from deltacompact.iceberg.table.metadata import Column
from deltacompact.iceberg.table.pyiceberg_door.transforms import partition_columns, partitions_of
from deltacompact.iceberg_modes.rewrite.plan_document import plan_from_json
from deltacompact.tabular import writing

T = "ns.t"
TINY = Sizes(run_bytes=100)
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int32()), ("at", pa.timestamp("us")), ("name", pa.string())])


def row(number, day):
    at = datetime.datetime(2026, day, 5, number % 24)
    return {"id": number, "day": day, "at": at, "name": f"name {day}"}


def table_of(lake, change):
    """Four files of an unpartitioned spec, each of one day; then another spec."""
    lake.create(T, SCHEMA)
    for first, day in ((100, 1), (105, 1), (200, 2), (205, 2)):
        lake.append(T, [row(first + number, day) for number in range(5)])
    with lake.catalog.load_table(T).update_spec() as update:
        change(update)
    return lake.catalog.load_table(T).spec().spec_id


def by_day(update):
    update.add_identity("day")


def partitions(lake, spec_id):
    found = [entry.file.partition for entry in lake.state(T).data if entry.file.spec_id == spec_id]
    return sorted(found, key=lambda values: [(value is not None, value) for value in values])


@pytest.mark.parametrize(
    ("change", "values"),
    [
        (by_day, [(1,), (2,)]),
        (lambda update: update.add_field("at", MonthTransform()), [(672,), (673,)]),
        (lambda update: update.add_field("at", DayTransform()), [(20458,), (20489,)]),
        (lambda update: update.add_field("name", TruncateTransform(6)), [("name 1",), ("name 2",)]),
        (lambda update: update.add_field("name", TruncateTransform(4)), [("name",)]),
        (lambda update: update.add_field("day", BucketTransform(4)), None),
    ],
)
@pytest.mark.slow
def test_rule_17_outputs_have_the_partition_values_of_the_chosen_spec(lake, change, values):
    spec_id = table_of(lake, change)
    before = lake.rows(T)
    lake.delete_by_key(T, {"id": [101]}, spec_id=0)
    result = lake.rewrite(T, rewrite_all=True, output_spec_id=spec_id)
    assert result.dead_by_key == 1
    found = partitions(lake, spec_id)
    assert len(found) == len(lake.state(T).data) == result.groups
    assert values is None or found == values
    assert lake.rows(T) == [row for row in before if row["id"] != 101]
    for day in (1, 2):  # an independent reader prunes by the values that we wrote
        scan = lake.catalog.load_table(T).scan(f"day = {day} and name = 'name {day}'")
        assert scan.to_arrow().num_rows == (9 if day == 1 else 10)


def test_files_of_several_specs_are_merged_into_one_partition(lake):
    spec_id = table_of(lake, by_day)
    lake.append(T, [row(900, 1), row(901, 2)])
    before = lake.rows(T)
    lake.rewrite(T, rewrite_all=True, output_spec_id=spec_id)
    assert partitions(lake, spec_id) == [(1,), (2,)]
    assert lake.rows(T) == before
    lake.rewrite(T, rewrite_all=True, output_spec_id=0)  # and back
    assert partitions(lake, 0) == [()]
    assert lake.rows(T) == before


@pytest.mark.parametrize("mixed", [None, 2])
@pytest.mark.slow
def test_rows_of_a_file_go_to_several_partitions(lake, mixed):
    """Rows keep their old order in each, and those of files that lie in one partition are not divided."""
    spec_id = table_of(lake, by_day)
    with lake.catalog.load_table(T).update_spec() as update:
        update.remove_field("day")
    lake.append(T, [row(number, 1) | ({"day": mixed} if number % 3 == 0 else {}) for number in range(903, 898, -1)])
    lake.delete_by_key(T, {"id": [902]}, spec_id=0)
    result = lake.rewrite(T, rewrite_all=True, output_spec_id=spec_id, sizes=TINY)
    assert (result.files_in, result.groups, result.dead_by_key) == (5, 3, 1)
    assert partitions(lake, spec_id) == ([(None,), (1,), (1,), (2,)] if mixed is None else [(1,), (1,), (2,), (2,)])
    assert [row["id"] for row in lake.rows(T)] == [*range(100, 110), *range(200, 210), 899, 900, 901, 903]
    stored = [pq.read_table(entry.file.path.removeprefix("file://"), partitioning=None) for entry in lake.state(T).data]
    assert [901, 899] in [table["id"].to_pylist() for table in stored]


EVERY_TYPE = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "whole", IntegerType()),
    NestedField(3, "ratio", DoubleType()),
    NestedField(4, "price", DecimalType(20, 2)),
    NestedField(5, "day", DateType()),
    NestedField(6, "at", TimestampType()),
    NestedField(7, "atz", TimestamptzType()),
    NestedField(8, "name", StringType()),
    NestedField(9, "code", FixedType(3)),
    NestedField(10, "raw", BinaryType()),
    NestedField(11, "mark", UUIDType()),
    NestedField(12, "flag", BooleanType()),
    NestedField(13, "noon", TimeType()),
)
TRANSFORMS = {
    "identity": [field.name for field in EVERY_TYPE.fields if field.name != "id"],
    "bucket[3]": [field.name for field in EVERY_TYPE.fields if field.name not in ("ratio", "flag")],
    "truncate[2]": ["id", "whole", "price", "name", "raw"],
    "year": ["day", "at", "atz"],
    "month": ["day", "at", "atz"],
    "day": ["day", "at", "atz"],
    "hour": ["at", "atz"],
    "void": ["name"],
}


def rows_of_every_type():
    moments = [datetime.datetime(1969, 12, 31, 23, 59, 59, 999999) + datetime.timedelta(days=40 * n) for n in range(4)]
    values = [
        {
            "id": number - 2,
            "whole": 7 * (number - 1),
            "ratio": [0.0, -0.0, math.nan, 1.5][number],
            "price": decimal.Decimal(number - 2) / 4,
            "day": moments[number].date(),
            "at": moments[number],
            "atz": moments[number].replace(tzinfo=datetime.UTC),
            "name": ["", "ü😀x", "ab/c", "ab%d"][number],
            "code": bytes([number, 255, 0]),
            "raw": bytes([number % 2, 255, 0]),
            "mark": uuid.UUID(int=number << 100).bytes,
            "flag": number % 2 == 0,
            "noon": datetime.time(number, 0, 0, 5),
        }
        for number in range(4)
    ]
    return [*values, dict.fromkeys(values[0])]


def test_each_transform_of_each_type_gives_the_partition_that_pyiceberg_gives_single_values(lake):
    """Each value by PyIceberg's own function for one value; Spark judges in test_iceberg_foreign_spark.py."""
    rows = pa.Table.from_pylist(rows_of_every_type(), schema=EVERY_TYPE.as_arrow())
    for text, names in TRANSFORMS.items():
        transform = parse_transform(text)
        for name in names:
            type_ = EVERY_TYPE.find_field(name).field_type
            part = SpecField(1000, 1, name, text, {})
            columns = {1: Column(rows.schema.field(name), str(type_), True, False)}
            numbers, partitions = partitions_of(rows, partition_columns(Spec(7, (part,), ""), columns))
            single = transform.transform(type_)
            expected = [stored_value(single(value) if value is not None else None) for value in stored(rows[name])]
            found = [partitions[number][0] for number in numbers]
            assert [repr(value) for value in found] == [repr(value) for value in expected], (text, name)


def stored(column):
    """Values as PyIceberg's transforms take them."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    return column.to_pylist()


def stored_value(value):
    """A value as partitions have it."""
    if isinstance(value, decimal.Decimal):
        return int(value.scaleb(2))
    return value.bytes if isinstance(value, uuid.UUID) else value


def test_nanoseconds_before_1970_have_the_partition_of_their_microsecond():
    """The library's own transforms of nanoseconds round towards zero."""
    at = pa.array([-1, 0, 1, None], pa.timestamp("ns"))
    for transform, expected in (("bucket[16]", [8, 12, 12, None]), ("hour", [-1, 0, 0, None])):
        columns = {1: Column(pa.field("at", at.type), "timestamp_ns", True, False)}
        part = SpecField(1000, 1, "at", transform, {"type": "int"})
        numbers, partitions = partitions_of(pa.table({"at": at}), partition_columns(Spec(7, (part,), ""), columns))
        assert [partitions[number][0] for number in numbers] == expected


def test_a_spec_whose_column_was_dropped_divides_no_rows(lake):
    spec_id = table_of(lake, by_day)
    with lake.catalog.load_table(T).update_spec() as update:
        update.remove_field("day")
    with lake.catalog.load_table(T).update_schema() as update:
        update.delete_column("day")
    before = lake.state(T)
    with pytest.raises(InputError, match=f"rows cannot be divided by 'day' of partition spec {spec_id}: its column"):
        lake.rewrite(T, rewrite_all=True, output_spec_id=spec_id)
    assert lake.state(T) == before


def test_rule_17_a_later_equality_delete_of_one_partition_that_rows_move_to_does_not_hit_them(lake):
    spec_id = table_of(lake, lambda update: update.add_field("id", BucketTransform(3)))
    delete = once(lambda: lake.delete_by_key(T, {"id": [101]}, partition=(1,), spec_id=spec_id))
    result = lake.rewrite(T, rewrite_all=True, output_spec_id=spec_id, before_commit=delete)
    assert (result.redone, result.groups) == (1, 1)
    lake.rewrite(T, rewrite_all=True)
    assert len(lake.rows(T)) == 20


def test_many_partitions_are_written_one_file_at_a_time(lake, monkeypatch):
    spec_id = table_of(lake, lambda update: update.add_identity("id"))
    open_now, most = [0], [0]

    @contextlib.contextmanager
    def counting(*arguments, opened=writing.writer_at):
        open_now[0] += 1
        most[0] = max(most[0], open_now[0])
        with opened(*arguments) as out:
            yield out
        open_now[0] -= 1

    monkeypatch.setattr(writing, "writer_at", counting)
    result = lake.rewrite(T, rewrite_all=True, output_spec_id=spec_id, sizes=TINY)
    assert (result.groups, result.files_out) == (1, 20)
    assert most == [1]
    assert len(lake.rows(T)) == 20


def test_a_spec_that_is_not_there_is_refused(lake):
    table_of(lake, by_day)
    with pytest.raises(InputError, match=r"table 'ns.t' has no partition spec 7 \(specs: 0, 1\)"):
        lake.rewrite(T, rewrite_all=True, output_spec_id=7)


def test_nulls_have_a_partition_of_their_own(lake):
    lake.create(T, SCHEMA)
    lake.append(T, [row(1, 1) | {"day": None}, row(2, 1) | {"day": None}])
    with lake.catalog.load_table(T).update_spec() as update:
        by_day(update)
    lake.rewrite(T, rewrite_all=True, output_spec_id=1)
    assert partitions(lake, 1) == [(None,)]
    assert sorted(row["id"] for row in lake.rows(T)) == [1, 2]


def test_rule_17_a_later_equality_delete_of_the_old_partition_does_not_miss_rows_that_move(lake):
    """A writer that knows only spec 1 (by day) deletes id 101 while its rows move to spec 2."""
    spec_id = table_of(lake, by_day)
    lake.rewrite(T, rewrite_all=True, output_spec_id=spec_id)
    with lake.catalog.load_table(T).update_spec() as update:
        update.remove_field("day")
        update.add_field("at", MonthTransform())
    delete = once(lambda: lake.delete_by_key(T, {"id": [101]}, partition=(1,), spec_id=spec_id))
    result = lake.rewrite(T, rewrite_all=True, output_spec_id=spec_id + 1, before_commit=delete)
    assert result.redone == 1
    assert len(lake.rows(T)) == 19
    assert partitions(lake, spec_id + 1) == [(672,), (673,)]


def test_rule_17_a_later_equality_delete_of_the_new_partition_does_not_hit_rows_that_move_there(lake):
    """It was not meant for files of other specs (rule 2). Rows that move there later are not hit."""
    spec_id = table_of(lake, by_day)
    lake.rewrite(T, rewrite_all=True, output_spec_id=spec_id)
    with lake.catalog.load_table(T).update_spec() as update:
        update.remove_field("day")
        update.add_field("at", MonthTransform())
    delete = once(lambda: lake.delete_by_key(T, {"id": [101]}, partition=(672,), spec_id=spec_id + 1))
    result = lake.rewrite(T, rewrite_all=True, output_spec_id=spec_id + 1, before_commit=delete)
    assert result.redone == 1
    lake.rewrite(T, rewrite_all=True)
    assert len(lake.rows(T)) == 20


def test_a_plan_that_moves_files_survives_json(lake):
    spec_id = table_of(lake, lambda update: update.add_field("name", TruncateTransform(6)))
    lake.append(T, [row(number, number) for number in (1, 2)])
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_field("id", BucketTransform(2))
    prepared = lake.prepared(T, rewrite_all=True, output_spec_id=spec_id + 1)
    planned = prepared.plan()
    assert (spec_id + 1, None) in {(group.spec_id, group.partition) for group in planned.groups}
    assert plan_from_json(plan_to_json(planned), prepared.state()) == planned
