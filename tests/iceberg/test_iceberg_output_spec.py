"""Outputs that go to another partition spec (rule 17): whole files, with the partition values of that spec."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform, DayTransform, MonthTransform, TruncateTransform

from deltacompact.base.errors import InputError
from deltacompact.catalog.iceberg.rewrite.plan_document import plan_from_json, plan_to_json

T = "ns.t"
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
    return sorted(entry.file.partition for entry in lake.state(T).data if entry.file.spec_id == spec_id)


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


@pytest.mark.parametrize("mixed", [{"day": None}, {"day": 2}])
def test_a_file_of_several_partitions_is_refused_before_any_work(lake, mixed):
    spec_id = table_of(lake, by_day)
    with lake.catalog.load_table(T).update_spec() as update:
        update.remove_field("day")
    lake.append(T, [row(900, 1), row(901, 1) | mixed])
    before = lake.state(T)
    with pytest.raises(InputError, match=f"output-spec-id {spec_id}: the rows of .* may lie in several part") as caught:
        lake.rewrite(T, rewrite_all=True, output_spec_id=spec_id)
    assert "\n" not in str(caught.value)
    assert lake.state(T) == before
    result = lake.rewrite(T, rewrite_all=True, output_spec_id=spec_id, where="id < 900")
    assert (result.files_in, partitions(lake, spec_id)) == (4, [(1,), (2,)])


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


def once(act):
    calls = []
    return lambda: calls or calls.append(act())


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
    prepared = lake.prepared(T, rewrite_all=True, output_spec_id=spec_id)
    planned = prepared.plan()
    assert {group.spec_id for group in planned.groups} == {spec_id}
    assert plan_from_json(plan_to_json(planned), prepared.state()) == planned
