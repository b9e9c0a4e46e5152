"""What upserts have compared is remembered, whoever rewrites and expires: on tables in a folder."""

from __future__ import annotations

from dataclasses import replace

import hand_made_tables as hand
import pyarrow as pa
import pytest
from iceberg_lake import Lake
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from upsert_oracle import upsert
from upsert_oracle import visible_names as names

from deltacompact.base.errors import ConflictError, InputError
from deltacompact.iceberg.settled import (
    MERGED,
    RECORD,
    RECORDS_MAX,
    has_merged_commits,
    newest,
    outdated_records,
    settled,
)
from deltacompact.iceberg.table.metadata import Snapshot
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.maintain.maintain import Maintain

T = "ns.t"
KEY = "key 1; scope table"
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "day", IntegerType()),
    identifier_field_ids=[1],
)
BY_DAY = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "day"))


@pytest.fixture
def lake(tmp_path):
    lake = Lake(tmp_path / "lake")
    lake.create(T, SCHEMA)
    return lake


def append(lake, *rows, day=1):
    columns = pa.schema([("id", pa.int64(), False), ("name", pa.string()), ("day", pa.int32())])
    lake.append(T, pa.Table.from_pylist([{"id": id, "name": name, "day": day} for id, name in rows], schema=columns))


def expire_all_but_the_head(lake, *kept):
    """As other writers do it: they know nothing of ours."""
    state = lake.state(T)
    gone = [number for number in state.metadata.snapshots if number not in (state.snapshot_id, *kept)]
    lake.catalog.load_table(T).maintenance.expire_snapshots().by_ids(gone).commit()


def records(lake):
    return {name: value for name, value in lake.state(T).metadata.properties.items() if name.startswith(RECORD)}


def test_a_table_in_which_no_key_repeats_stays_upsertable_after_rewrites_and_expiries(lake):
    append(lake, (1, "a"))
    append(lake, (2, "b"))
    result = upsert(lake)
    assert (result.snapshots, result.nothing_to_do) == ([], "no two rows have the same key, and none deletes one")
    (note,) = result.notes
    assert note == f"snapshot {lake.state(T).snapshot_id} changes no file: it says what has been compared"
    lake.rewrite(T, rewrite_all=True)
    append(lake, (1, "newer"))
    expire_all_but_the_head(lake)
    assert upsert(lake).rows_superseded == 1
    assert names(lake) == [(1, "newer"), (2, "b")]


def test_rewritten_manifests_remember_what_was_compared_when_the_upsert_has_expired(lake):
    append(lake, (1, "a"))
    append(lake, (2, "b"))
    assert upsert(lake).snapshots == []  # no file says that it was there
    Maintain(IcebergTable.load(lake.catalog, T)).run(rewrite_manifests=True)
    rewritten = lake.state(T)
    assert (len(rewritten.manifests), len(records(lake))) == (1, 2)
    append(lake, (3, "c"))
    expire_all_but_the_head(lake, rewritten.snapshot_id)
    found = newest(lake.state(T))
    assert (found.columns, found.through, found.said_by) == (KEY, rewritten.sequence_number, rewritten.snapshot_id)


def test_the_snapshot_of_an_upsert_that_found_nothing_changes_nothing(lake):
    append(lake, (1, "a"))
    before = lake.state(T)
    upsert(lake)
    after = lake.state(T)
    assert after.snapshot.summary["operation"] == "replace"
    assert (after.data, after.deletes, after.manifests) == (before.data, before.deletes, before.manifests)
    assert len(lake.rows(T)) == 1
    assert "no rows came since" in upsert(lake).nothing_to_do
    assert lake.state(T).snapshot == after.snapshot


def test_a_rewrite_leaves_alone_what_no_upsert_has_compared(lake):
    append(lake, (1, "a"))
    append(lake, (1, "b"))
    upsert(lake)
    append(lake, (1, "c"))
    lake.rewrite(T, rewrite_all=True)
    assert lake.state(T).snapshot.summary[MERGED] == "1-2"
    assert sorted(entry.sequence for entry in lake.state(T).data) == [3, 4]  # not 4 and 4, as the planned snapshot has
    expire_all_but_the_head(lake)
    assert upsert(lake).rows_superseded == 1
    assert names(lake) == [(1, "c")]


def test_whoever_merges_what_was_not_compared_is_told_what_that_costs(lake):
    append(lake, (1, "a"))
    upsert(lake)
    append(lake, (1, "b"))
    append(lake, (1, "c"))
    assert lake.rewrite(T).nothing_to_do.endswith("2 files: not compared by an upsert yet: run it first")
    lake.rewrite(T, rewrite_all=True, merge_uncompared=True)
    (entry,) = lake.state(T).data
    with pytest.raises(InputError) as error:
        upsert(lake)
    assert str(error.value) == (
        f"{entry.file.path}, added by snapshot {entry.snapshot_id}, replaced other files before their rows were "
        "compared, so nothing says which of its rows are newer. Name sort-columns that say it; after that, upsert "
        "before other writers merge files"
    )


def test_between_the_outputs_of_several_groups_nothing_but_paths_would_decide(lake):
    """The oldest row would win by chance, although row order is right in each file."""
    lake.catalog.drop_table(T)
    lake.create(T, SCHEMA, partition_spec=BY_DAY)
    append(lake, (1, "old"), day=1)
    append(lake, (1, "new"), day=2)
    lake.rewrite(T, rewrite_all=True)
    assert len({entry.sequence for entry in lake.state(T).data}) == 1
    with pytest.raises(InputError, match=r"than those of .*, whatever the order of rows in each file\. Name sort-col"):
        upsert(lake, trust_row_order=True)


def test_commits_of_version_1_have_no_order_either(lake):
    lake.catalog.drop_table(T)
    lake.create(T, SCHEMA, version=1)
    append(lake, (1, "old"))
    append(lake, (1, "new"))
    with lake.catalog.load_table(T).transaction() as transaction:
        transaction.upgrade_table_version(2)
    assert {entry.sequence for entry in lake.state(T).data} == {0}
    with pytest.raises(InputError, match=r"are of version 1 of the table, .* newer\. Name sort-columns that say it"):
        upsert(lake)
    assert upsert(lake, sort_columns="name desc").rows_superseded == 1
    assert names(lake) == [(1, "new")]


def test_what_was_merged_before_an_upgrade_to_version_3_has_no_order_after_it():
    merged = hand.data("a", 3, first_row_id=0)
    merged = replace(merged, file_sequence_number=5)
    before, after = (Snapshot(7, None, 5, 5, "list", first_row_id=first) for first in (None, 0))
    metadata = hand.state(merged, version=3).metadata
    assert has_merged_commits(replace(metadata, snapshots={7: before}), merged)
    assert not has_merged_commits(replace(metadata, snapshots={7: after}), merged)


def test_a_file_of_which_neither_snapshot_nor_number_is_known_may_have_merged_commits():
    unknown = replace(hand.data("a", 3), file_sequence_number=None)
    metadata = hand.state(unknown).metadata
    assert has_merged_commits(metadata, unknown)
    appended = Snapshot(unknown.snapshot_id or 0, None, 3, 3, "list", summary={"added-data-files": "1"})
    assert not has_merged_commits(replace(metadata, snapshots={appended.snapshot_id: appended}), unknown)


def test_after_a_rollback_the_property_is_not_believed(lake):
    append(lake, (1, "a"))
    append(lake, (1, "b"))
    behind = lake.state(T).snapshot_id
    upsert(lake)
    lake.catalog.load_table(T).manage_snapshots().set_current_snapshot(behind).commit()
    append(lake, (2, "c"))
    expire_all_but_the_head(lake)
    assert records(lake) and newest(lake.state(T)) is None
    assert lake.rewrite(T, rewrite_all=True).nothing_to_do == "3 files: not compared by an upsert yet: run it first"
    assert upsert(lake).rows_superseded == 1
    assert names(lake) == [(1, "b"), (2, "c")]


def test_after_a_rewrite_of_another_writer_the_memory_covers_its_files(lake):
    append(lake, (1, "a"))
    append(lake, (2, "b"))
    upsert(lake)
    lake.add_data(T, [{"id": 3, "name": "c", "day": 1}], sequence_number=3)
    upsert(lake)
    known = settled(lake.state(T), KEY)
    assert known is not None and known.through >= max(entry.sequence for entry in lake.state(T).data)
    expire_all_but_the_head(lake)
    append(lake, (3, "newer"))
    assert upsert(lake).rows_superseded == 1


def test_a_record_is_not_believed_of_another_table_or_if_it_is_damaged(lake):
    append(lake, (1, "a"))
    append(lake, (1, "b"))
    upsert(lake)
    append(lake, (2, "c"))
    expire_all_but_the_head(lake)
    state = lake.state(T)
    assert newest(state) is not None  # the delete file says which snapshot is in the history
    copy = replace(state, metadata=replace(state.metadata, uuid="another"))
    assert newest(copy) is None
    (name,) = records(lake)
    damaged = replace(state, metadata=replace(state.metadata, properties={name: "{"}))
    assert newest(damaged) is None


def test_records_are_bounded(lake):
    append(lake, (1, "a"))
    upsert(lake)
    table = lake.catalog.load_table(T)
    with table.transaction() as transaction:
        body = next(iter(records(lake).values()))
        transaction.set_properties({f"{RECORD}{number}": body for number in range(1, RECORDS_MAX + 5)})
    append(lake, (1, "b"))
    upsert(lake)
    assert len(records(lake)) == RECORDS_MAX
    assert not outdated_records(replace(lake.state(T).metadata, properties={}))
    assert newest(lake.state(T)).through == 4


def test_compared_rows_that_move_are_not_hit_by_an_older_delete_of_their_new_partition(lake):
    append(lake, (1, "a"), (2, "b"))
    upsert(lake)
    append(lake, (3, "c"))
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_identity("day")
    spec_id = lake.catalog.load_table(T).spec().spec_id
    lake.delete_by_key(T, {"id": [1]}, partition=(1,), spec_id=spec_id)  # it applies to nothing: the file has no day
    assert names(lake) == [(1, "a"), (2, "b"), (3, "c")]
    with pytest.raises(ConflictError, match="deleted rows of the group by key"):
        lake.rewrite(T, rewrite_all="true", output_spec_id=str(spec_id))
    assert names(lake) == [(1, "a"), (2, "b"), (3, "c")]
    upsert(lake)
    assert lake.rewrite(T, rewrite_all="true", output_spec_id=str(spec_id)).rows_out == 3
    assert names(lake) == [(1, "a"), (2, "b"), (3, "c")]


def test_a_branch_that_nobody_upserts_is_rewritten_although_another_one_is_upserted(lake):
    for number in range(3):
        append(lake, (number, "a"))
    lake.catalog.load_table(T).manage_snapshots().create_branch(lake.state(T).snapshot_id, "audit").commit()
    upsert(lake)
    assert lake.rewrite(T, branch="audit", rewrite_all="true").rows_out == 3
