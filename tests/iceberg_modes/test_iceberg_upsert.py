"""Upserts on real tables on disk. PyIceberg writes the data; a plain-Python oracle says which rows must be left."""

from __future__ import annotations

import datetime as dt
import json
import tempfile
import uuid
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from budgets import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from iceberg_lake import Lake
from plan_json import plan_to_json
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import BooleanType, DoubleType, IntegerType, LongType, NestedField, StringType, StructType
from table_t import files_below
from upsert_oracle import left, newest, prepared, upsert, visible

import deltacompact
from deltacompact import cli
from deltacompact.base.errors import ConflictError, InputError
from deltacompact.base.table_keys import Direction, SortKey
from deltacompact.base.wording import size
from deltacompact.iceberg.settled import COLUMNS, THROUGH
from deltacompact.iceberg.table import pyiceberg_door
from deltacompact.iceberg.table.content_files import Content, ContentFile
from deltacompact.iceberg.table.metadata import MAIN
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.upsert.options import DELETE_VALUES, Reach, UpsertOptions, upsert_options
from deltacompact.iceberg_modes.upsert.plan_document import plan_from_json

T = "ns.t"
EVENTS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "day", IntegerType(), required=True),
    NestedField(4, "updated", LongType()),
    NestedField(5, "op", StringType()),
    identifier_field_ids=[1],
)


def event(number, name="x", day=1, updated=None, op=None):
    return {"id": number, "name": name, "day": day, "updated": updated, "op": op}


def create(lake, schema=EVENTS, by=(), **others):
    fields = [
        PartitionField(schema.find_field(name).field_id, 1000 + number, transform, f"{name}_part")
        for number, (name, transform) in enumerate(by)
    ]
    lake.create(T, schema, partition_spec=PartitionSpec(*fields), **others)


def names(lake):
    return {row.values["id"]: row.values["name"] for row in visible(lake)}


def is_delete(values):
    return values["op"] in DELETE_VALUES


# Which row wins


def test_the_row_with_the_greater_sequence_number_wins(lake):
    create(lake)
    lake.append(T, [event(1, "old"), event(2, "only")])
    lake.append(T, [event(1, "new")])
    result = upsert(lake)
    assert names(lake) == {1: "new", 2: "only"}
    assert (result.rows_compared, result.keys, result.rows_superseded, result.rows_deleting) == (3, 2, 1, 0)
    assert (result.files, result.files_marked, result.delete_files_added) == (2, 1, 1)
    state = lake.state(T)
    assert state.snapshot.summary["operation"] == "overwrite"  # rule 23
    assert [entry.file.content for entry in state.deletes] == [Content.POSITION_DELETES]


def test_the_sequence_number_counts_before_sort_columns(lake):
    create(lake)
    lake.append(T, [event(1, "old", updated=9)])
    lake.append(T, [event(1, "new", updated=1)])
    upsert(lake, sort_columns="updated")
    assert names(lake) == {1: "new"}


@pytest.mark.parametrize(
    ("sort_columns", "winner"),
    [("updated", "b"), ("updated asc", "b"), ("updated desc", "a"), ("name desc", "a"), ("op,updated desc", "a")],
)
def test_sort_columns_decide_within_one_sequence_number(lake, sort_columns, winner):
    create(lake)
    lake.append(T, [event(1, "c"), event(1, "b", updated=5), event(1, "a", updated=3)])
    upsert(lake, sort_columns=sort_columns)
    assert names(lake) == {1: winner}


def test_without_sort_columns_the_later_row_of_the_file_wins(lake):
    create(lake)
    lake.append(T, [event(1, "a"), event(1, "b"), event(2, "z"), event(1, "c")])
    upsert(lake)
    assert names(lake) == {1: "c", 2: "z"}


def test_files_of_one_sequence_number_are_ordered_by_their_paths(lake):
    create(lake, by=[("day", IdentityTransform())])
    lake.append(T, [event(1, "a", day=1), event(1, "c", day=3), event(1, "b", day=2)])
    assert len(lake.state(T).data) == 3
    assert upsert(lake).compared_by == "key id; scope table"
    assert names(lake) == {1: "c"}  # day_part=3


def test_a_table_of_dead_rows_has_nothing_to_sort(lake):
    create(lake)
    lake.append("ns.t", [event(1), event(2)])
    lake.delete_by_key("ns.t", {"id": [1, 2]})
    assert upsert(lake, sort_columns="name").nothing_to_do == "no two rows have the same key, and none deletes one"


def test_a_delete_takes_all_rows_of_its_key_and_itself(lake):
    create(lake)
    lake.append(T, [event(1, op="c"), event(2, op="c")])
    lake.append(T, [event(1, op="u"), event(1, op="d"), event(3, op="delete"), event(2, op=None)])
    result = upsert(lake, operation_column="op")
    assert names(lake) == {2: "x"}
    assert (result.keys, result.rows_superseded, result.rows_deleting) == (1, 3, 2)


def test_a_row_after_a_delete_brings_the_key_back(lake):
    create(lake)
    lake.append(T, [event(1, "old"), event(1, op="D"), event(1, "again")])
    upsert(lake, operation_column="op")
    assert names(lake) == {1: "again"}


def test_a_delete_that_is_not_the_newest_by_sort_columns_deletes_nothing(lake):
    create(lake)
    lake.append(T, [event(1, "kept", updated=5), event(1, op="D", updated=4)])
    result = upsert(lake, operation_column="op", sort_columns="updated")
    assert names(lake) == {1: "kept"}
    assert (result.rows_superseded, result.rows_deleting) == (0, 1)


@pytest.mark.parametrize(
    ("type_", "values", "deletes"), [(BooleanType(), [False, True], "true"), (IntegerType(), [0, 7], "3,7")]
)
def test_operation_columns_of_other_types(lake, type_, values, deletes):
    columns = [NestedField(1, "id", LongType(), required=True), NestedField(2, "gone", type_)]
    create(lake, Schema(*columns, identifier_field_ids=[1]))
    for value in values:
        lake.append(T, [{"id": 1, "gone": value}, {"id": 2, "gone": None}])
    upsert(lake, operation_column="gone", delete_values=deletes)
    assert [row.values["id"] for row in visible(lake)] == [2]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.slow
def test_rows_that_are_dead_already_take_no_part(lake, version):
    create(lake, version=version)
    lake.append(T, [event(1, "a"), event(2, "a"), event(3, "a")])
    first = lake.state(T).data[0].file.path
    lake.append(T, [event(1, "b"), event(2, "b"), event(3, "b")])
    second = next(entry.file.path for entry in lake.state(T).data if entry.file.path != first)
    if version == 2:
        lake.delete_by_position(T, {second: [0]})
    lake.delete_by_key(T, {"id": [2]})
    lake.append(T, [event(4, "c")])
    before = newest(visible(lake), ["id"])
    result = upsert(lake)
    assert left(visible(lake), ["id"]) == before
    assert names(lake) == ({1: "a"} if version == 2 else {1: "b"}) | {3: "b", 4: "c"}
    assert result.rows_compared == (4 if version == 2 else 5)


def test_rule_18_a_second_vector_takes_the_place_of_the_first(lake):
    create(lake, version=3)
    lake.append(T, [event(1, "a"), event(2, "a"), event(3, "a")])
    lake.append(T, [event(1, "b")])
    assert upsert(lake).delete_files_removed == 0
    lake.append(T, [event(2, "b")])
    result = upsert(lake)
    assert (result.delete_files_added, result.delete_files_removed) == (1, 1)
    assert names(lake) == {1: "b", 2: "b", 3: "a"}
    vectors = [entry.file for entry in lake.state(T).deletes]
    assert [file.is_deletion_vector for file in vectors] == [True]
    assert vectors[0].rows == 2


def test_rule_22_rows_of_version_3_keep_their_own_sequence_numbers_when_files_are_merged(lake):
    """A rewrite has put the newer row first. Its file has one sequence number, the rows say which is newer."""
    create(lake, version=3)
    lineage = [("_row_id", 2147483540), ("_last_updated_sequence_number", 2147483539)]
    schema = lake.state(T).metadata.schema
    for name, number in lineage:
        schema = schema.append(pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(number)}))
    rows = [event(1, "new") | {"_row_id": 1, "_last_updated_sequence_number": 2}]
    rows += [event(1, "old") | {"_row_id": 0, "_last_updated_sequence_number": 1}]
    rows += [event(2, "old") | {"_row_id": 2, "_last_updated_sequence_number": 1}, event(2, "new")]
    table = IcebergTable.load(lake.catalog, T)
    path = Path(lake.folder, "merged.parquet")
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    lake.commit(table, [ContentFile(Content.DATA, str(path), "PARQUET", 0, (), 4, path.stat().st_size)], MAIN, "append")
    upsert(lake)
    assert names(lake) == {1: "new", 2: "new"}


def test_position_deletes_by_partition(lake):
    create(lake, properties={"write.delete.granularity": "partition"})
    for name in "abc":
        lake.append(T, [event(1, name), event(2, name)])
    assert upsert(lake).delete_files_added == 1
    assert names(lake) == {1: "c", 2: "c"}


def test_rule_21_marks_have_the_spec_and_the_partition_of_their_file(lake):
    create(lake, by=[("day", IdentityTransform())])
    lake.append(T, [event(1, "a", day=1), event(2, "a", day=2)])
    lake.append(T, [event(1, "b", day=3)])
    upsert(lake)
    (mark,) = lake.state(T).deletes
    assert (mark.file.spec_id, mark.file.partition) == (0, (1,))
    assert names(lake) == {1: "b", 2: "a"}


def test_a_branch_of_its_own(lake):
    create(lake)
    lake.append(T, [event(1, "a")])
    lake.catalog.load_table(T).manage_snapshots().create_branch(lake.state(T).snapshot_id, "audit").commit()
    lake.append(T, [event(1, "b")], branch="audit")
    upsert(lake, branch="audit")
    assert [row.values["name"] for row in visible(lake, branch="audit")] == ["b"]
    assert names(lake) == {1: "a"}


# Key spaces


def test_a_key_is_unique_in_the_table_unless_its_partition_follows_from_it(lake):
    create(lake, by=[("day", IdentityTransform())])
    lake.append(T, [event(1, "a", day=1), event(1, "b", day=2)])
    assert prepared(lake).plan().reach is Reach.TABLE
    assert prepared(lake, key_columns="day,id").plan().reach is Reach.PARTITION
    assert prepared(lake, scope="partition").plan().reach is Reach.PARTITION
    upsert(lake, scope="partition")
    assert sorted(row.values["name"] for row in visible(lake)) == ["a", "b"]
    upsert(lake)
    assert names(lake) == {1: "b"}


def test_partitions_by_a_transform_of_the_key_are_key_spaces(lake):
    create(lake, by=[("id", BucketTransform(3))])
    lake.append(T, [event(number, "a") for number in range(20)])
    lake.append(T, [event(number, "b") for number in range(0, 20, 3)])
    before = newest(visible(lake), ["id"])
    plan = prepared(lake).plan()
    assert (plan.reach, len(plan.key_spaces)) == (Reach.PARTITION, 3)
    upsert(lake)
    assert left(visible(lake), ["id"]) == before


def test_rule_17_after_a_change_of_the_spec_rows_of_a_key_may_lie_in_several_partitions(lake):
    create(lake, by=[("id", BucketTransform(3))])
    lake.append(T, [event(number, "a") for number in range(6)])
    table = lake.catalog.load_table(T)
    with table.update_spec() as update:
        update.remove_field("id_part")
        update.add_field("day", IdentityTransform(), "by_day")
    lake.append(T, [event(number, "b", day=number) for number in range(3)])
    assert prepared(lake).plan().reach is Reach.TABLE
    upsert(lake)
    assert names(lake) == {0: "b", 1: "b", 2: "b", 3: "a", 4: "a", 5: "a"}


# Columns


def test_keys_and_sort_columns_of_widened_and_renamed_types(lake):
    columns = [
        NestedField(1, "id", IntegerType(), required=True),
        NestedField(2, "rank", IntegerType()),
        NestedField(3, "name", StringType()),
    ]
    create(lake, Schema(*columns, identifier_field_ids=[1]))
    lake.append(T, [{"id": -1, "rank": 5, "name": "a"}, {"id": -1, "rank": 4, "name": "b"}])
    lake.append(T, [{"id": 2, "rank": 1, "name": "c"}])
    with lake.catalog.load_table(T).update_schema() as update:
        update.update_column("id", LongType())
        update.update_column("rank", LongType())
    with lake.catalog.load_table(T).update_schema() as update:
        update.rename_column("rank", "place")
    lake.append(T, [{"id": 2, "place": -(2**40), "name": "d"}, {"id": 2, "place": -(2**41), "name": "e"}])
    lake.append(T, [{"id": 2**40, "place": None, "name": "f"}])
    upsert(lake, sort_columns="place")
    assert names(lake) == {-1: "a", 2: "d", 2**40: "f"}


def test_sort_and_operation_columns_that_came_later(lake):
    create(lake, Schema(NestedField(1, "id", LongType(), required=True), identifier_field_ids=[1]))
    lake.append(T, [{"id": 1}, {"id": 2}])
    with lake.catalog.load_table(T).update_schema() as update:
        update.add_column("version", StringType())
        update.add_column("op", StringType())
    lake.append(T, [{"id": 1, "version": "1.10", "op": "u"}, {"id": 1, "version": "1.1", "op": "D"}])
    lake.append(T, [{"id": 2, "version": None, "op": "D"}])
    upsert(lake, sort_columns="version", operation_column="op")
    assert [row.values["version"] for row in visible(lake)] == ["1.10"]


def test_a_null_key_is_refused_and_nothing_changes(lake):
    columns = [NestedField(1, "id", LongType()), NestedField(2, "name", StringType())]
    create(lake, Schema(*columns))
    lake.append(T, [{"id": 1, "name": "a"}, {"id": None, "name": "b"}, {"id": None, "name": "c"}])
    before = files_below(lake)
    with pytest.raises(InputError, match=r"\.parquet: key column 'id' is null in 2 rows$"):
        upsert(lake, key_columns="id")
    assert files_below(lake) == before
    lake.delete_by_key(T, {"id": [None]})
    lake.append(T, [{"id": 1, "name": "d"}])
    upsert(lake, key_columns="id")  # the rows without a key are dead
    assert names(lake) == {1: "d"}


def test_a_file_without_the_key_column_is_refused(lake):
    create(lake, Schema(NestedField(1, "name", StringType())))
    lake.append(T, [{"name": "a"}])
    with lake.catalog.load_table(T).update_schema() as update:
        update.add_column("id", LongType())
    with pytest.raises(InputError, match=r"\.parquet: key column 'id' is missing \(columns: name\)$"):
        upsert(lake, key_columns="id")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key_columns": "nix"}, "table 'ns.t' has no column 'nix' for its key (columns: id, name, price, place)"),
        ({"key_columns": "id", "sort_columns": "nix desc"}, "table 'ns.t' has no column 'nix' for its sort (columns:"),
        ({"key_columns": "id", "operation_column": "nix"}, "table 'ns.t' has no column 'nix' for its operation"),
        ({"key_columns": "price"}, "table 'ns.t': key column 'price' is double, which cannot be a key"),
        ({"key_columns": "id,place"}, "table 'ns.t': key column 'place' is struct<"),
        ({"key_columns": "id", "sort_columns": "place"}, "table 'ns.t': sort column 'place' is struct<"),
        ({}, "table 'ns.t' has no identifier fields: name its key in option key-columns"),
        (
            {"key_columns": "id", "operation_column": "price"},
            "table 'ns.t': operation column 'price' is double, but option delete-values has a value that is not a "
            "double: D, d, delete, DELETE",
        ),
    ],
)
def test_bad_columns_are_refused_in_one_line_before_any_work(lake, options, words):
    columns = [
        NestedField(1, "id", LongType()),
        NestedField(2, "name", StringType()),
        NestedField(3, "price", DoubleType()),
        NestedField(4, "place", StructType(NestedField(5, "zip", StringType()))),
    ]
    create(lake, Schema(*columns))
    lake.append(T, [{"id": 1, "name": "a", "price": 1.0, "place": None}])
    next(Path(lake.folder, "warehouse").rglob("data/*.parquet")).unlink()  # it must not be read
    with pytest.raises(InputError) as error:
        upsert(lake, **options)
    assert str(error.value).startswith(words)
    assert "\n" not in str(error.value)


# Rows that were merged before


def merged(lake, *appends):
    """A table whose files were rewritten into one, and the path of that."""
    create(lake)
    for events in appends:
        lake.append(T, events)
    lake.rewrite(T, rewrite_all=True)
    (entry,) = lake.state(T).data
    return entry.file.path


def test_rows_whose_commits_were_merged_are_refused_unless_something_tells_their_order(lake):
    path = merged(lake, [event(1, "old", updated=1)], [event(1, "new", updated=2)])
    before = files_below(lake)
    with pytest.raises(
        InputError, match=r"replaced other files before .* are newer\. Name sort-columns that say it"
    ) as error:
        upsert(lake)
    assert str(error.value).startswith(path) and "\n" not in str(error.value)
    assert files_below(lake) == before
    upsert(lake, sort_columns="updated")
    assert names(lake) == {1: "new"}


def test_row_order_is_trusted_if_that_is_said_and_a_rewrite_of_ours_keeps_the_order_of_commits(lake):
    merged(lake, *([event(1, f"{number}")] for number in range(12)))
    upsert(lake, trust_row_order=True)
    assert names(lake) == {1: "11"}


def test_sort_columns_do_not_tell_whether_a_commit_lies_in_between_those_that_were_merged(lake):
    """A rewrite that leaves one file out gives the others, older ones too, a greater number."""
    create(lake)
    lake.append(T, [event(1, "oldest", updated=1)])
    lake.append(T, [event(number, "between", updated=1) for number in range(5000)])
    lake.append(T, [event(1, "newest", updated=1)])
    between = max(lake.state(T).data, key=lambda entry: entry.file.rows).file
    size = between.file_bytes
    sizes = {"target_file_size_bytes": size, "min_file_size_bytes": size // 2, "max_file_size_bytes": 2 * size}
    lake.rewrite(T, min_input_files=2, **sizes)
    assert between in [entry.file for entry in lake.state(T).data] and len(lake.state(T).data) == 2
    with pytest.raises(InputError, match=r"newer than those of .*\. Rewrite all files first .*\. Name sort-columns"):
        upsert(lake, sort_columns="updated")
    lake.rewrite(T, rewrite_all=True, merge_uncompared=True)
    assert upsert(lake, sort_columns="updated").keys == 5000, "as the message says"


def test_rows_that_were_compared_before_they_were_merged_have_different_keys(lake):
    create(lake)
    lake.append(T, [event(1, "old"), event(2, "x")])
    lake.append(T, [event(1, "new")])
    upsert(lake)
    lake.rewrite(T, rewrite_all=True)
    assert upsert(lake).nothing_to_do
    lake.append(T, [event(2, "y")])
    assert upsert(lake).rows_superseded == 1
    assert names(lake) == {1: "new", 2: "y"}
    lake.append(T, [event(2, "z")])
    lake.rewrite(T, rewrite_all=True, merge_uncompared=True)
    with pytest.raises(InputError, match="replaced other files"):
        upsert(lake)


def test_rows_that_a_writer_copied_on_write_are_refused_too(lake):
    """PyIceberg's delete by filter writes the rest of the files anew, with its own sequence number."""
    create(lake)
    lake.append(T, [event(1, "old"), event(3, "gone")])
    lake.append(T, [event(1, "new"), event(4, "x")])
    lake.catalog.load_table(T).delete("id = 3")
    with pytest.raises(InputError, match="replaced other files"):
        upsert(lake)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keys": "id"}, "unknown option 'keys': "),
        ({"key-columns": "id,"}, "option key-columns: 'id,' has an empty item: write a,b"),
        ({"key-columns": "id,id"}, "option key-columns has 'id' twice"),
        ({"sort-columns": "a up"}, "option sort-columns: 'a up' ends neither in asc nor in desc"),
        ({"sort-columns": "a,a desc"}, "option sort-columns has 'a' twice"),
        ({"operation-column": ""}, "option operation-column is empty: name a column"),
        ({"delete-values": "D"}, "option delete-values: name the operation-column that has them"),
        ({"scope": "all"}, "option scope: 'all' is none of table, partition"),
        ({"trust-row-order": "maybe"}, "option trust-row-order: 'maybe' is neither true nor false"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(InputError) as error:
        upsert_options(options)
    assert str(error.value).startswith(words)


def test_good_options():
    chosen = {"key-columns": " a , b ", "sort-columns": ["c", "d e DESC"], "operation-column": "op", "scope": "Table"}
    sort_columns = (SortKey("c"), SortKey("d e", Direction.DESCENDING))
    assert upsert_options(chosen) == UpsertOptions(("a", "b"), sort_columns, "op", DELETE_VALUES, Reach.TABLE)
    assert upsert_options({}) == UpsertOptions()


def test_tables_and_files_that_cannot_be_upserted(lake):
    create(lake, properties={"format-version": "1"})
    lake.append(T, [event(1)])
    with pytest.raises(InputError, match=r"'ns\.t' has format version 1, which cannot be upserted: upgrade it to 2"):
        upsert(lake)


# The next run


def test_a_second_run_finds_nothing_to_do_and_says_why(lake):
    create(lake)
    assert upsert(lake).nothing_to_do == "the branch has no data files"
    lake.append(T, [event(1, "a"), event(2)])
    assert upsert(lake).nothing_to_do == "no two rows have the same key, and none deletes one"
    lake.append(T, [event(1, "b")])
    (done,) = upsert(lake).snapshots
    before = lake.state(T).snapshot
    assert (before.summary[THROUGH], before.summary[COLUMNS]) == ("3", "key 1; scope table")
    for path in Path(lake.folder, "warehouse").rglob("data/*"):
        path.unlink()  # a second run reads no file
    result = upsert(lake)
    assert result.nothing_to_do == f"2 files: no rows came since snapshot {done} marked all that were superseded"
    assert lake.state(T).snapshot == before


def test_a_second_run_by_other_columns_compares_again(lake):
    create(lake)
    lake.append(T, [event(1, "a", op="c"), event(1, "b", day=2)])
    upsert(lake, key_columns="id,day")  # the rows have different keys: nothing is committed
    upsert(lake, key_columns="day")
    upsert(lake)
    assert names(lake) == {1: "b"}


@pytest.mark.parametrize("version", [2, 3])
def test_a_rewrite_takes_the_rows_out_and_adds_none(lake, version):
    create(lake, version=version)
    lake.append(T, [event(1, "a"), event(2, "a")])
    lake.append(T, [event(1, "b")])
    upsert(lake)
    lake.rewrite(T, rewrite_all=True)
    assert (len(lake.state(T).data), lake.state(T).deletes) == (1, ())
    assert names(lake) == {1: "b", 2: "a"}
    assert "no rows came since" in upsert(lake).nothing_to_do
    lake.append(T, [event(2, "c")])
    assert upsert(lake).rows_superseded == 1
    assert names(lake) == {1: "b", 2: "c"}


def test_rows_that_landed_while_we_worked_are_compared_by_the_next_run(lake):
    create(lake)
    lake.append(T, [event(1, "a")])
    lake.append(T, [event(1, "b")])
    result = upsert(lake, before_commit=lambda: lake.append(T, [event(1, "c")]))
    assert (result.rows_superseded, result.redone) == (1, 0)
    assert sorted(row.values["name"] for row in visible(lake)) == ["b", "c"]
    assert upsert(lake).rows_superseded == 1
    assert names(lake) == {1: "c"}
    assert "no rows came since" in upsert(lake).nothing_to_do


def test_only_key_spaces_with_new_rows_are_compared_again(lake):
    create(lake, by=[("day", IdentityTransform())])
    for name in "ab":
        lake.append(T, [event(1, name, day=1), event(1, name, day=2)])
    assert upsert(lake, key_columns="id,day").files == 4
    lake.append(T, [event(1, "c", day=2)])
    plan = prepared(lake, key_columns="id,day").plan()
    assert (len(plan.inputs), plan.settled_files) == (3, 2)
    assert upsert(lake, key_columns="id,day").rows_superseded == 1
    assert sorted((row.values["day"], row.values["name"]) for row in visible(lake)) == [(1, "b"), (2, "c")]


def test_after_a_rollback_behind_our_snapshot_everything_is_compared_again(lake):
    create(lake)
    lake.append(T, [event(1, "a")])
    lake.append(T, [event(1, "b")])
    behind = lake.state(T).snapshot_id
    upsert(lake)
    lake.catalog.load_table(T).manage_snapshots().set_current_snapshot(behind).commit()
    assert len(visible(lake)) == 2
    assert upsert(lake).rows_superseded == 1
    assert names(lake) == {1: "b"}


def test_rule_07_snapshots_that_have_been_expired_make_the_next_run_compare_again(lake):
    create(lake)
    lake.append(T, [event(1, "a")])
    lake.append(T, [event(1, "b")])
    upsert(lake, before_commit=lambda: lake.append(T, [event(2, "c")]))
    expired = [number for number in lake.state(T).metadata.snapshots if number != lake.state(T).snapshot_id]
    lake.catalog.load_table(T).maintenance.expire_snapshots().by_ids(expired).commit()
    result = upsert(lake)
    assert (result.files, result.nothing_to_do) == (3, "no two rows have the same key, and none deletes one")


def test_work_files_and_unused_marks_are_deleted(lake):
    create(lake)
    lake.append(T, [event(1, "a")])
    lake.append(T, [event(1, "b")])
    before = files_below(lake)

    def fails():
        raise InputError("stop")

    with pytest.raises(InputError, match="stop"):
        upsert(lake, before_commit=fails)
    assert files_below(lake) == before
    upsert(lake)
    new = {path.suffix for path in files_below(lake) - before}
    assert new == {".avro", ".parquet", ".json"}
    assert not [path for path in files_below(lake) if "deltacompact-" in str(path.parent)]


# The ways in


def test_compact_upserts(lake):
    create(lake)
    lake.append(T, [event(1, "a")])
    lake.append(T, [event(1, "b")])
    catalog = deltacompact.open_catalog(lake.catalog)
    result = deltacompact.compact(T, delta_catalog_client=catalog, mode="upsert", options={"scope": "table"})
    assert isinstance(result, deltacompact.UpsertResult)
    assert (result.keys, result.rows_superseded) == (1, 1)
    assert names(lake) == {1: "b"}


def test_the_command_line_plans_and_upserts(lake, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(pyiceberg_door, "open_named", lambda name: lake.catalog)
    create(lake, by=[("day", IdentityTransform())])
    for name in "ab":
        lake.append(T, [event(1, name), event(2, name, op="D", day=2)])
    options = ["--option", "key-columns=day,id", "--option", "operation-column=op"]
    path = tmp_path / "plan.json"
    words = ["iceberg://lake", T, "--mode", "upsert"]
    assert cli.run(["plan", *words, *options, "--out", str(path)]) == 0
    compared_by = "key id, day; operation op D, DELETE, d, delete; scope partition"
    *lines, expected = capsys.readouterr().out.splitlines()
    days = Counter()
    for entry in lake.state(T).data:
        days[entry.file.partition[0]] += entry.file.file_bytes
    assert lines == [
        f"compare 4 files with 4 rows by {compared_by}",
        "in 2 partitions, each by itself",
        *(f"partition day_part={day}: 2 files (2 never compared), {size(days[day])}, 2 rows" for day in (1, 2)),
        f"4 data files -> 4, {size(sum(days.values()))} -> about {size(sum(days.values()))}, 0 delete files -> about 4",
    ]
    assert expected.startswith("expected: 0.")
    lake.append(T, [event(1, "c")])
    assert cli.run(["compact", *words, "--from-plan", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "4 rows of 4 files = 1 key + 1 superseded + 2 deleting rows",
        f"marked in 3 files: 3 delete files, snapshot {lake.state(T).snapshot_id}",
    ]
    assert sorted(row.values["name"] for row in visible(lake)) == ["b", "c"]
    assert cli.run(["plan", *words, *options]) == 0
    compare, group, settled, *_ = capsys.readouterr().out.splitlines()
    assert compare == f"compare 3 files with 3 rows by {compared_by}"
    assert group.startswith("partition day_part=1: 3 files (2 may share keys, 1 came since), ")
    assert settled == "settled: 2 files, compared by an earlier upsert"
    assert cli.run(["compact", *words, *options, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["compared_by"], document["rows_superseded"]) == (compared_by, 1)
    assert cli.run(["compact", *words, *options]) == 0
    assert capsys.readouterr().out.startswith("nothing to do: 5 files: no rows came since snapshot ")
    assert cli.run(["compact", *words, "--option", "key-columns=nix"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert cli.run(["compact", *words, "--where", "id = 1"]) == 2
    assert "an upsert has no option where: the newest row" in capsys.readouterr().err


def test_a_plan_that_is_damaged_stale_or_of_another_mode_is_refused(lake):
    create(lake)
    lake.append(T, [event(1, "a")])
    lake.append(T, [event(1, "b")])
    text = plan_to_json(prepared(lake).plan())
    state = lake.state(T)
    assert plan_from_json(text, state) == prepared(lake).plan()
    for bad, words in [
        ("{", "this is not an Iceberg upsert plan: it is not JSON"),
        (text.replace("upsert plan", "rewrite plan"), "this is not an Iceberg upsert plan"),
        (text.replace('"format": 1', '"format": 2'), "the plan has format 2, not 1: update deltacompact"),
        (text.replace('"rows": 2', '"rows": 3'), "the plan is damaged: its SHA-256 differs"),
    ]:
        with pytest.raises(InputError) as error:
            plan_from_json(bad, state)
        assert str(error.value) == words
    lake.rewrite(T, rewrite_all=True)
    with pytest.raises(ConflictError, match="the plan is stale: another commit removed"):
        plan_from_json(text, lake.state(T))


# Any stream

KEYS = {
    "int": (pa.int32(), st.integers(-2, 2)),
    "long": (pa.int64(), st.sampled_from([-(2**63), -1, 0, 2**63 - 1])),
    "string": (pa.string(), st.sampled_from(["", "a", "ab", "ä", "\0"])),
    "binary": (pa.binary(), st.sampled_from([b"", b"\0", b"\0\0", b"a"])),
    "fixed": (pa.binary(2), st.sampled_from([b"ab", b"\0\0", b"zz"])),
    "boolean": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.sampled_from([dt.date(1, 1, 1), dt.date(2026, 11, 22), dt.date(9999, 12, 31)])),
    "time": (pa.time64("us"), st.sampled_from([dt.time(0), dt.time(23, 59, 59, 999999)])),
    "timestamp": (
        pa.timestamp("us"),
        st.sampled_from([dt.datetime(1969, 12, 31, 23), dt.datetime(2026, 1, 1, 0, 0, 1)]),
    ),
    "decimal": (pa.decimal128(9, 2), st.sampled_from([Decimal("-1.50"), Decimal("0.00"), Decimal("1.05")])),
}


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_of_any_stream_the_newest_row_of_each_key_is_left(data):
    chosen = data.draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2, unique=True), "key types")
    keys = [f"k{number}" for number in range(len(chosen))]
    row = st.tuples(
        *(KEYS[name][1] for name in chosen),
        st.one_of(st.none(), st.integers(0, 3)),
        st.one_of(st.none(), st.text("ab", max_size=9)),
        st.sampled_from([None, "c", "u", "D"]),
    )
    columns = [*zip(keys, (KEYS[name][0] for name in chosen), strict=True)]
    schema = pa.schema([*columns, ("rank", pa.int32()), ("tag", pa.string()), ("op", pa.string())])
    version = data.draw(st.sampled_from([2, 3]), "version")
    has_sort = data.draw(st.booleans(), "sort columns")
    has_operation = data.draw(st.booleans(), "operation column")
    options = {"key_columns": ",".join(keys)}
    options |= {"sort_columns": "rank desc,tag"} if has_sort else {}
    options |= {"operation_column": "op"} if has_operation else {}

    def order(values):
        rank, tag = values["rank"], values["tag"]
        by_rank = (rank is not None, -rank if rank is not None else 0)
        return (by_rank, (tag is not None, (tag or "").encode())) if has_sort else ()

    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder), f"lake{uuid.uuid4().hex[:8]}")
        lake.create(T, schema, version=version)
        for _ in range(data.draw(st.integers(1, 3), "commits")):
            rows = data.draw(st.lists(row, min_size=1, max_size=8), "rows")
            lake.append(T, [dict(zip(schema.names, values, strict=True)) for values in rows])
            if data.draw(st.booleans(), "upsert in between"):
                upsert(lake, **options)
        deletes = is_delete if has_operation else lambda values: False
        before = newest(visible(lake), keys, order, deletes)
        result = upsert(lake, **options)
        assert left(visible(lake), keys) == before
        assert result.nothing_to_do is not None or result.keys == len(before)
        again = upsert(lake, **options)
        assert (again.snapshots, again.redone) == ([], 0)
