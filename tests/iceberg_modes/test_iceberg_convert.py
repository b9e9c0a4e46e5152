"""Equality deletes become deletes by position: the rows stay as they are, whoever writes meanwhile."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from budgets import examples
from conversions import (
    COLUMNS,
    T,
    convert,
    delete_by_vector,
    ids,
    kinds,
    live_rows,
    local,
    once,
    prepared,
    rows,
    table_of,
)
from hand_made_tables import data, equality, state
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from iceberg_lake import CERTIFYING, SETTINGS, Lake
from live_writers import losing, writing
from plan_json import plan_to_json
from version_3 import add_column

import deltacompact
from deltacompact import cli
from deltacompact.base.errors import ConflictError, CorruptionError, InputError, NotFoundError, OutcomeUnknownError
from deltacompact.base.limits import Limits
from deltacompact.base.settings import Settings
from deltacompact.base.wording import size
from deltacompact.iceberg.table.metadata import MAIN
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.convert import plan_document
from deltacompact.iceberg_modes.convert.options import ConvertOptions, convert_options
from deltacompact.iceberg_modes.convert.plan import ConvertReason, plan_conversion
from deltacompact.iceberg_modes.convert.proposals import Converted, ProposeConversion
from deltacompact.iceberg_modes.driver import ModeRun
from deltacompact.iceberg_modes.modes import CONVERT

# The modes and their results


def test_version_2_marks_newly_dead_rows_only(lake):
    table_of(lake, [1, 2, 3], [4, 5])
    first = lake.state(T).data[-1].file.path
    lake.delete_by_position(T, {first: [0]})
    lake.delete_by_key(T, {"id": [1, 2, 5, 9]})
    before = lake.state(T)
    result = convert(lake)
    after = lake.state(T)
    assert [entry.file for entry in after.data] == [entry.file for entry in before.data]
    assert kinds(lake) == {"position_deletes": 3}
    assert (result.equality_deletes_removed, result.data_files_asked, result.rows_asked) == (1, 2, 5)
    assert (result.rows_marked, result.delete_files_written, result.snapshots) == (2, 2, [after.snapshot_id])
    assert ids(lake) == [3, 4]


def test_version_3_writes_vectors_with_all_dead_rows(lake):
    """Rule 18: position deletes of version 2 that name only that file go, those that name others, too, stay."""
    table_of(lake, [1, 2, 3, 4], [5, 6], [7])
    paths = {entry.file.rows: entry.file.path for entry in lake.state(T).data}
    lake.delete_by_position(T, {paths[4]: [0]})
    lake.delete_by_position(T, {paths[4]: [3], paths[2]: [0]})
    lake.upgrade(T)
    lake.delete_by_key(T, {"id": [2, 7]})
    result = convert(lake)
    assert kinds(lake) == {"vector": 2, "position_deletes": 1}
    assert (result.rows_marked, result.delete_files_written, result.delete_files_superseded) == (2, 2, 1)
    assert ids(lake) == [3, 6]
    lake.delete_by_key(T, {"id": [3]})
    again = convert(lake)
    assert kinds(lake) == {"vector": 2, "position_deletes": 1}
    assert (again.rows_marked, again.delete_files_written, again.delete_files_superseded) == (1, 1, 1)
    assert ids(lake) == [6]
    vectors = {entry.file.rows: entry.file for entry in lake.state(T).deletes if entry.file.is_deletion_vector}
    assert vectors.keys() == {4, 1}


def test_rule_11_a_vector_that_takes_up_older_deletes_has_a_sequence_number_above_all_of_theirs(lake):
    """With a lesser one, readers would not apply it to the data file that the newest of them deleted from."""
    table_of(lake, [1, 2, 3, 4])
    (data,) = lake.state(T).data
    for position in (0, 1):
        lake.delete_by_position(T, {data.file.path: [position]})
    lake.upgrade(T)
    lake.delete_by_key(T, {"id": [4]})
    taken_up = [entry.sequence for entry in lake.state(T).deletes]
    convert(lake)
    (vector,) = lake.state(T).deletes
    assert vector.sequence > max(taken_up) and ids(lake) == [3]


def test_a_second_run_finds_nothing_to_do_and_says_why(lake):
    table_of(lake, [1, 2])
    lake.delete_by_key(T, {"id": [1]})
    assert convert(lake).nothing_to_do is None
    before = lake.state(T)
    assert convert(lake).nothing_to_do == "the branch has no equality deletes"
    assert lake.state(T) == before
    lake.create("ns.empty", COLUMNS)
    assert lake.state("ns.empty").snapshot is None
    assert IcebergTable.load(lake.catalog, "ns.empty")
    empty = ModeRun(IcebergTable.load(lake.catalog, "ns.empty"), MAIN, ConvertOptions(), SETTINGS, mode=CONVERT).run()
    assert empty.nothing_to_do == "the branch has no equality deletes"


def test_data_files_to_which_no_delete_applies_are_not_opened(lake):
    table_of(lake, [1, 2], [10, 20], [11])
    lake.delete_by_key(T, {"id": [11]})
    lake.append(T, rows(11))
    by_least_id = {(entry.file.lower_bounds[1][0], entry.file.rows): entry.file.path for entry in lake.state(T).data}
    newest = next(entry for entry in lake.state(T).data if entry.sequence == lake.state(T).sequence_number)
    for path in (by_least_id[1, 2], newest.file.path):
        Path(local(path)).unlink()
    result = convert(lake)
    assert result.data_files_asked == 2
    assert [entry.file.rows for entry in lake.state(T).deletes] == [1]


def test_only_key_columns_need_to_be_readable(lake):
    """A file of an imported Hive table lacks its partition column. `convert` does not need it."""
    lake.create(T, COLUMNS)
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_identity("day")
    lake.append(T, rows(1, 2, day=3))
    path = local(lake.state(T).data[0].file.path)
    stored = pq.read_table(path, partitioning=None)
    whole = Path(path).read_bytes()
    pq.write_table(stored.drop_columns(["day"]), path)
    lake.delete_by_key(T, {"id": [1]}, (3,))
    assert convert(lake).rows_marked == 1
    Path(path).write_bytes(whole)
    assert ids(lake) == [2]


def test_deletes_that_apply_to_nothing_are_removed_without_reading(lake):
    table_of(lake, [1, 2])
    useless = lake.delete_by_key(T, {"id": [77]})
    Path(local(useless.path)).unlink()
    plan = prepared(lake).plan()
    assert [(conversion.reason, conversion.data_files) for conversion in plan.conversions] == [
        (ConvertReason.APPLIES_TO_NOTHING, 0)
    ]
    result = convert(lake)
    assert (result.equality_deletes_removed, result.data_files_asked, result.delete_files_written) == (1, 0, 0)
    assert ids(lake) == [1, 2]


def test_max_files_converts_the_oldest_first(lake):
    table_of(lake, [1, 2, 3, 4])
    for number in (1, 2, 3):
        lake.delete_by_key(T, {"id": [number]})
    plan = prepared(lake, max_files=2).plan()
    assert plan.stays == ((ConvertReason.BEYOND_MAX_FILES, 1),)
    result = convert(lake, max_files=2)
    assert (result.equality_deletes_removed, result.equality_deletes_left) == (2, 0)
    assert kinds(lake) == {"position_deletes": 1, "equality_deletes": 1}
    convert(lake)
    assert ids(lake) == [4]


@pytest.mark.slow
def test_partial_progress_removes_deletes_as_soon_as_their_data_files_are_done(lake):
    lake.create(T, COLUMNS)
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_identity("day")
    for day in (1, 2, 3):
        lake.append(T, rows(10 * day, 10 * day + 1, day=day))
        lake.append(T, rows(10 * day, day=day))
        lake.delete_by_key(T, {"id": [10 * day]}, (day,))
    left = []
    result = convert(lake, max_commits=3, before_commit=lambda: left.append(kinds(lake)["equality_deletes"]))
    assert left == [3, 2, 1]
    assert (len(result.snapshots), result.equality_deletes_removed) == (3, 3)
    assert ids(lake) == [11, 21, 31]


# The rules


def test_rules_01_and_16_a_delete_does_not_hit_rows_as_new_as_it_is(lake):
    table_of(lake, [1, 2])
    lake.delete_by_key(T, {"id": [1]})
    lake.append(T, rows(1))
    lake.add_data(T, rows(1, 3), lake.state(T).data[0].sequence - 1)
    assert convert(lake).rows_marked == 1
    assert ids(lake) == [1, 1, 2, 3]


def test_rules_02_and_21_partitions_and_global_deletes(lake):
    lake.create(T, COLUMNS)
    lake.append(T, rows(1, 2, day=3))
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_identity("day")
    lake.append(T, rows(1, 2, day=3) + rows(1, 2, day=None))
    lake.delete_by_key(T, {"id": [1]}, (3,), spec_id=1)
    lake.delete_by_key(T, {"id": [2]}, (), spec_id=0)
    convert(lake)
    now = lake.state(T)
    for entry in now.deletes:
        (of,) = [live.file for live in now.data if live.file.path == entry.file.referenced_data_file]
        assert (entry.file.spec_id, entry.file.partition) == (of.spec_id, of.partition)
    assert sorted((row["id"], row["day"] or 0) for row in live_rows(lake)) == [(1, 0), (1, 3)]


def test_rule_08_a_delete_stays_while_it_applies_to_a_file_that_was_not_asked():
    """Pure: b came with an old sequence number, and e may apply to it."""
    a, b, e = data("a", 3, ids=(1, 9)), data("b", 3, ids=(5, 6)), equality("e", 5, ids=(4, 5))
    f = equality("f", 5, ids=(1, 2))
    plan = plan_conversion(state(a, e, f), ConvertOptions())
    propose = ProposeConversion(plan.delete_paths, Converted(plan.inputs, ()))
    assert propose(state(a, e, f)).removed == (e, f)
    assert propose(state(a, b, e, f)).removed == (f,)
    assert propose(state(a, data("b", 5, ids=(5, 6)), e, f)).removed == (e, f)
    assert propose(state(a, data("b", 3, day=4, ids=(5, 6)), e, f)).removed == (f,), "e is global"


def test_rule_09_a_delete_is_kept_for_data_that_another_compactor_brought(lake):
    table_of(lake, [1, 2])
    old = lake.state(T).data[0].sequence
    lake.delete_by_key(T, {"id": [1]})
    result = convert(lake, before_commit=once(lambda: lake.add_data(T, rows(1, 3), old)))
    assert (result.equality_deletes_removed, result.equality_deletes_left, result.redone) == (0, 1, 0)
    assert result.rows_marked == 1
    assert convert(lake).equality_deletes_removed == 1
    assert ids(lake) == [2, 3]


def test_rule_10_only_what_names_the_marked_file_alone_is_superseded(lake):
    table_of(lake, [1, 2], [3, 4])
    both = {entry.file.path: [0] for entry in lake.state(T).data}
    lake.delete_by_position(T, both)
    lake.upgrade(T)
    lake.delete_by_key(T, {"id": [2]})
    assert convert(lake).delete_files_superseded == 0
    assert ids(lake) == [4]


def test_rule_12_equality_ids_differ_by_file_and_other_columns_do_not_count(lake):
    table_of(lake, [1, 2, 3, 4])
    lake.delete_by_key(T, {"id": [1]})
    lake.delete_by_key(T, {"name": ["n2"]})
    lake.delete_by_key(T, {"id": [3, 4], "name": ["n3", "other"]}, equality_ids=[1, 2])
    lake.delete_by_key(T, {"id": [1], "name": ["n4"]}, equality_ids=[1])
    convert(lake)
    assert ids(lake) == [4]


def test_rule_13_null_equals_null_and_nan_equals_nan(lake):
    table_of(lake)
    values = [None, math.nan, 0.0, -0.0, 1.5]
    lake.append(T, [{"id": number, "name": None, "day": None, "x": value} for number, value in enumerate(values)])
    lake.delete_by_key(T, {"x": [None, math.nan, -0.0]})
    convert(lake)
    assert ids(lake) == [2, 4]


def test_rule_14_renamed_widened_and_dropped_key_columns(lake):
    lake.create(T, pa.schema([("id", pa.int32()), ("name", pa.string()), ("old", pa.int64())]))
    lake.append(T, [{"id": number, "name": f"n{number}", "old": number} for number in range(4)])
    lake.delete_by_key(T, {"old": [0]})
    from pyiceberg.types import LongType

    with lake.catalog.load_table(T).update_schema() as update:
        update.update_column("id", LongType())
        update.rename_column("name", "label")
        update.delete_column("old")
        update.add_column("old", LongType())
    lake.append(T, [{"id": 9, "label": "n9", "old": None}])
    lake.delete_by_key(T, {"id": [1]})
    lake.delete_by_key(T, {"label": ["n2"]})
    lake.delete_by_key(T, {"old": [3]})
    assert convert(lake).rows_marked == 3
    assert sorted(row["id"] for row in lake.rows(T)) == [3, 9]


def test_rule_14_a_column_that_older_files_lack_is_read_through_its_default_value(lake):
    lake.create(T, pa.schema([("id", pa.int64()), ("name", pa.string())]), version=3)
    lake.append(T, [{"id": 1, "name": "x"}, {"id": 2, "name": "x"}])
    add_column(lake, "int", 5)
    lake.append(T, [{"id": 4, "name": "x", "added": None}, {"id": 5, "name": "x", "added": 6}])
    lake.delete_by_key(T, {"added": [5, 6], "id": [2, 4]})
    assert convert(lake).rows_marked == 1
    assert ids(lake) == [1, 4, 5]
    lake.delete_by_key(T, {"added": [None, 5]})
    assert convert(lake).rows_marked == 2
    assert ids(lake) == [5]


def test_a_delete_file_without_rows_deletes_nothing(lake):
    table_of(lake, [1, 2])
    lake.delete_by_key(T, {"id": []})
    assert convert(lake).equality_deletes_removed == 1
    assert ids(lake) == [1, 2]


@pytest.mark.parametrize("version", [2, 3])
def test_rule_23_the_snapshot_is_no_replace(lake, version):
    table_of(lake, [1, 2], version=version)
    lake.delete_by_key(T, {"id": [1]})
    convert(lake)
    assert lake.state(T).snapshot.summary["operation"] == "overwrite"
    assert lake.state(T).snapshot.summary["removed-equality-delete-files"] == "1"
    assert ids(lake) == [2]


def test_rule_23_a_rewrite_that_planned_before_us_does_not_resurrect_rows(lake):
    table_of(lake, [1, 2, 3, 4, 5, 6, 7])
    lake.delete_by_key(T, {"id": [1]})

    def others():
        lake.delete_by_key(T, {"id": [2]})
        convert(lake)

    result = lake.rewrite(T, rewrite_all=True, before_commit=once(others))
    assert (result.redone, result.dead_meanwhile) == (0, 1)
    assert ids(lake) == [3, 4, 5, 6, 7]


# Writers that commit while we work


@pytest.mark.parametrize("version", [2, 3])
def test_an_append_meanwhile_costs_no_work(lake, version):
    table_of(lake, [1, 2], version=version)
    lake.delete_by_key(T, {"id": [1]})
    result = convert(lake, before_commit=lambda: lake.append(T, rows(1, 5)))
    assert (result.redone, result.data_files_asked, len(result.snapshots)) == (0, 1, 1)
    assert ids(lake) == [1, 2, 5]


def test_a_writer_that_commits_all_the_time_does_not_starve_us(lake):
    table_of(lake, *([number, number + 100] for number in range(4)))
    for number in range(4):
        lake.delete_by_key(T, {"id": [number]})
    with writing(lake, T) as writer:
        result = convert(lake, max_commits=2, before_commit=once(writer.begin))
    assert (result.equality_deletes_removed, result.redone) == (4, 0)
    assert ids(lake) == [100, 101, 102, 103, *writer.appended]


def test_an_equality_delete_meanwhile_is_left_to_the_next_run(lake):
    table_of(lake, [1, 2, 3])
    lake.delete_by_key(T, {"id": [1]})
    result = convert(lake, before_commit=once(lambda: lake.delete_by_key(T, {"id": [2]})))
    assert (result.equality_deletes_removed, result.redone, kinds(lake)["equality_deletes"]) == (1, 0, 1)
    convert(lake)
    assert ids(lake) == [3]


def test_a_position_delete_meanwhile_adds_up_in_version_2(lake):
    table_of(lake, [1, 2, 3])
    path = lake.state(T).data[0].file.path
    lake.delete_by_key(T, {"id": [1]})
    result = convert(lake, before_commit=once(lambda: lake.delete_by_position(T, {path: [1]})))
    assert (result.equality_deletes_removed, result.redone) == (1, 0)
    assert ids(lake) == [3]


def test_a_file_that_was_removed_and_added_again_is_not_hit_by_a_mark_that_another_file_needs(lake):
    """One delete file names rows of both. The file that is added again has another age, and its rows live."""
    table_of(lake, [1, 2], [1, 3])
    with lake.catalog.load_table(T).transaction() as change:
        change.set_properties({"write.delete.granularity": "partition"})
    (again, _) = (entry.file for entry in lake.state(T).data)
    lake.delete_by_key(T, {"id": [1]})

    def others():
        lake.commit(IcebergTable.load(lake.catalog, T), [], MAIN, "delete", {again.path})
        lake.commit(IcebergTable.load(lake.catalog, T), [again], operation="append")

    result = convert(lake, before_commit=once(others))
    assert (result.rows_marked, result.redone, result.equality_deletes_removed) == (1, 0, 1)
    assert len(ids(lake)) == 3


def test_rule_18_the_rows_of_a_vector_meanwhile_go_into_ours_and_no_key_is_searched_again(lake):
    table_of(lake, [1, 2, 3], [4, 5, 6], version=3)
    path = next(entry.file.path for entry in lake.state(T).data if entry.file.lower_bounds[1][0] == 1)
    lake.delete_by_key(T, {"id": [1, 4]})
    result = convert(lake, before_commit=once(lambda: delete_by_vector(lake, path, [1])))
    assert (result.redone, result.data_files_asked, len(result.snapshots)) == (0, 2, 1)
    assert (result.equality_deletes_removed, result.delete_files_superseded) == (1, 1)
    assert {path.name for path in _puffin_files(lake)} == {path.name for path in _named_puffin_files(lake)}
    assert kinds(lake) == {"vector": 2}
    assert ids(lake) == [3, 5, 6]


def _puffin_files(lake):
    """Those of ours."""
    return [path for path in Path(lake.folder, "warehouse").rglob("*.puffin") if not path.name.startswith("other-")]


def _named_puffin_files(lake):
    return [Path(entry.file.path) for entry in lake.state(T).deletes]


def test_rule_18_an_upgrade_to_version_3_meanwhile_makes_us_write_vectors(lake):
    """The append moves the catalog's pointer, as an upgrade of other engines does: ours rewrites the metadata file."""

    def upgraded():
        lake.upgrade(T)
        lake.append(T, rows(4))

    table_of(lake, [1, 2, 3])
    lake.delete_by_position(T, {lake.state(T).data[0].file.path: [0]})
    lake.delete_by_key(T, {"id": [2]})
    result = convert(lake, before_commit=once(upgraded))
    assert (result.redone, result.equality_deletes_removed, kinds(lake)) == (0, 1, {"vector": 1})
    assert ids(lake) == [3, 4]


def test_a_data_file_whose_deletes_by_key_are_undone_again_and_again_is_given_up(lake):
    """Each time a row lives again that we have marked."""
    table_of(lake, [1, 2, 3, 4, 5, 6, 7])
    undone = iter([lake.delete_by_key(T, {"id": [number]}).path for number in range(1, 6)])
    why = r"1 data file: other commits removed deletes by key .* \(done again 3 times, and no more\)"
    with pytest.raises(ConflictError, match=why) as caught:
        convert(
            lake,
            before_commit=lambda: lake.commit(IcebergTable.load(lake.catalog, T), [], gone=[next(undone)]),
        )
    assert "\n" not in str(caught.value)
    assert kinds(lake) == {"equality_deletes": 1}
    convert(lake)
    assert ids(lake) == [1, 2, 3, 4, 6, 7]


def test_a_vector_that_is_damaged_is_told(lake):
    table_of(lake, [1, 2, 3], version=3)
    lake.delete_by_key(T, {"id": [1]})

    def damaged():
        delete_by_vector(lake, lake.state(T).data[0].file.path, [1])
        (vector,) = (entry.file for entry in lake.state(T).deletes if entry.file.is_deletion_vector)
        Path(local(vector.path)).write_bytes(bytes(vector.file_bytes))

    with pytest.raises(CorruptionError):
        convert(lake, before_commit=once(damaged))
    assert kinds(lake) == {"vector": 1, "equality_deletes": 1}


def test_a_rewrite_meanwhile_takes_our_marks_with_it(lake):
    table_of(lake, [1, 2], [3])
    lake.delete_by_key(T, {"id": [1]})
    result = convert(lake, before_commit=once(lambda: lake.rewrite(T, rewrite_all=True)))
    assert (result.redone, result.snapshots, result.delete_files_written) == (0, [], 0)
    assert ids(lake) == [2, 3]
    assert not list(Path(lake.folder, "warehouse").rglob("*-deletes.parquet"))[1:]  # the writer's own


def test_position_deletes_that_are_undone_meanwhile_leave_no_row_that_is_deleted_by_key(lake):
    """Row 0 was dead by p, so we did not mark it. p goes, and its row is dead by key, still."""
    table_of(lake, [1, 2, 3])
    path = lake.state(T).data[0].file.path
    p = lake.delete_by_position(T, {path: [0]})
    lake.delete_by_key(T, {"id": [1, 2]})

    def undone():
        lake.commit(IcebergTable.load(lake.catalog, T), [], gone=[p.path])

    result = convert(lake, before_commit=once(undone))
    assert (result.redone, result.equality_deletes_removed, result.rows_marked) == (0, 1, 2)
    assert ids(lake) == [3]


def test_two_conversions_at_once_delete_each_row_once(lake):
    table_of(lake, [1, 2], [3])
    lake.delete_by_key(T, {"id": [1, 3]})
    result = convert(lake, before_commit=once(lambda: convert(lake)))
    assert (result.snapshots, result.equality_deletes_removed, result.equality_deletes_left) == ([], 0, 0)
    assert kinds(lake) == {"position_deletes": 2}
    assert ids(lake) == [2]


def test_a_rollback_meanwhile_brings_rows_back_and_we_do_not_delete_them(lake):
    table_of(lake, [1, 2])
    before = lake.state(T).snapshot_id
    lake.delete_by_key(T, {"id": [1]})

    def rollback():
        lake.catalog.load_table(T).manage_snapshots().rollback_to_snapshot(before).commit()

    convert(lake, before_commit=once(rollback))
    assert ids(lake) == [1, 2]


def test_a_rollback_between_our_own_commits_leaves_the_delete_that_it_brings_back(lake):
    table_of(lake, [1, 2], [3, 1])
    lake.delete_by_key(T, {"id": [1]})
    before = lake.state(T).snapshot_id
    calls = []

    def rollback():
        calls.append(True)
        if len(calls) == 2:
            lake.catalog.load_table(T).manage_snapshots().rollback_to_snapshot(before).commit()

    result = convert(lake, max_commits=2, before_commit=rollback)
    assert result.equality_deletes_left == 1
    convert(lake)
    assert ids(lake) == [2, 3]


def test_a_branch_is_converted_alone(lake):
    table_of(lake, [1, 2])
    table = lake.catalog.load_table(T)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    lake.delete_by_key(T, {"id": [1]}, branch="audit")
    lake.delete_by_key(T, {"id": [2]})
    convert(lake, branch="audit")
    assert ids(lake, "audit") == [2]
    assert kinds(lake) == {"equality_deletes": 1}


def test_ray_marks_the_same_rows(lake, ray_cluster):
    table_of(lake, *(range(part * 10, part * 10 + 10) for part in range(3)))
    lake.delete_by_key(T, {"id": [3, 13, 23]})
    lake.delete_by_position(T, {lake.state(T).data[0].file.path: [0]})
    lake.upgrade(T)
    lake.delete_by_key(T, {"id": [4, 24]})
    result = convert(lake, run=Settings(executor="ray", ray_address=ray_cluster, limits=Limits(task_rows_min=1)))
    assert (result.executor, result.rows_marked) == ("ray", 5)
    assert ids(lake) == sorted(set(range(30)) - {3, 13, 23, 4, 24, 20})


# At random, beside an oracle

KEYS = st.one_of(st.none(), st.integers(0, 4))
FLOATS = st.sampled_from([None, math.nan, 0.0, -0.0, 1.5])
DAYS = st.sampled_from([None, 1, 2])
BY = st.sampled_from([("id",), ("id", "name"), ("x",), ("day", "id"), ("name", "x")])


@st.composite
def rows_of_a_commit(draw):
    row = st.fixed_dictionaries({"id": KEYS, "name": st.sampled_from([None, "a", "b"]), "day": DAYS, "x": FLOATS})
    return draw(st.lists(row, min_size=1, max_size=5))


@st.composite
def commits(draw):
    kind = draw(st.sampled_from(["append", "append", "key", "key", "key", "position", "evolve", "convert"]))
    match kind:
        case "append":
            return kind, draw(rows_of_a_commit())
        case "key":
            return kind, draw(BY), draw(rows_of_a_commit()), draw(st.booleans()), draw(DAYS)
        case "position":
            return kind, draw(st.integers(0, 9)), draw(st.integers(0, 9))
        case "evolve":
            return (kind,)
        case _:
            return kind, draw(st.integers(1, 3))


class Oracle:
    """The rows of a table one by one. It knows where each row lies, and which of them are dead, by the rules."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.rows: list[tuple[dict[str, Any], str, int, int, tuple[int, tuple[Any, ...]]]] = []
        self.dead: set[tuple[str, int]] = set()

    def carry_out(self, kind: str, *what: Any) -> None:
        getattr(self, kind)(*what)

    def append(self, appended: list[dict[str, Any]]) -> None:
        if self.lake.catalog.load_table(T).format_version == 3:
            return
        known = {path for _, path, *_ in self.rows}
        self.lake.append(T, appended)
        for entry in self.lake.state(T).data:
            file = entry.file
            if file.path not in known:
                stored = pq.read_table(local(file.path), partitioning=None).to_pylist()
                scope = (file.spec_id, file.partition)
                self.rows += [(row, file.path, place, entry.sequence, scope) for place, row in enumerate(stored)]

    def key(self, by: tuple[str, ...], deleted: list[dict[str, Any]], of_partition: bool, day: int | None) -> None:
        spec_id = 1 if of_partition and 1 in self.lake.state(T).metadata.specs else 0
        partition = (day,) if spec_id else ()
        keys = {name: [row[name] for row in deleted] for name in by}
        self.lake.delete_by_key(T, keys, partition, spec_id)
        texts = {repr([row[name] for name in by]) for row in deleted}  # tells 0.0 from -0.0; NaN is NaN
        self.dead |= {
            (path, place)
            for row, path, place, _, scope in self.rows
            if (spec_id == 0 or scope == (spec_id, partition)) and repr([row[name] for name in by]) in texts
        }

    def position(self, number: int, place: int) -> None:
        now = self.lake.state(T)
        file = now.data[number % len(now.data)].file
        position = (file.path, place % file.rows)
        if position not in self.dead:  # a writer does not see rows that are dead
            if now.metadata.format_version == 2:
                self.lake.delete_by_position(T, {position[0]: [position[1]]})
            else:
                delete_by_vector(self.lake, position[0], [position[1]])
            self.dead.add(position)

    def evolve(self) -> None:
        table = self.lake.catalog.load_table(T)
        if table.format_version == 2 and not table.spec().fields:
            with table.update_spec() as update:
                update.add_identity("day")

    def convert(self, commits: int, before_commit: Any = lambda: None) -> None:
        before = [entry.file for entry in self.lake.state(T).data]
        result = convert(self.lake, max_commits=commits, before_commit=before_commit, run=CERTIFYING)
        assert not result.refused
        assert {file.path for file in before} <= {entry.file.path for entry in self.lake.state(T).data}

    def check(self) -> None:
        self.lake.check_fingerprint(T)
        found = sorted(repr(row) for row in live_rows(self.lake))
        assert found == sorted(repr(row) for row, path, place, *_ in self.rows if (path, place) not in self.dead)
        now = self.lake.state(T)
        scopes = {entry.file.path: (entry.file.spec_id, entry.file.partition) for entry in now.data}
        for entry in now.deletes:
            of = entry.file.referenced_data_file
            assert of is None or repr(scopes[of]) == repr((entry.file.spec_id, entry.file.partition))


@pytest.mark.slow
@settings(
    max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    rows_of_a_commit(),
    st.lists(commits(), min_size=2, max_size=7),
    st.lists(commits(), max_size=2),
    st.lists(commits(), max_size=3),
    st.booleans(),
    st.sampled_from(["file", "partition"]),
)
def test_random_histories_keep_the_rows_of_an_oracle(
    tmp_path_factory, first, history, meanwhile, later, upgrade, granularity
):
    """Commits, a conversion during which others commit, perhaps an upgrade to version 3, more commits, conversions."""
    lake = Lake(tmp_path_factory.mktemp("lake"))
    lake.create(T, COLUMNS, properties={"write.delete.granularity": granularity})
    oracle = Oracle(lake)
    oracle.append(first)
    for commit in history:
        oracle.carry_out(*commit)
    if upgrade:
        lake.upgrade(T)
    oracle.convert(2, once(lambda: [oracle.carry_out(*commit) for commit in meanwhile if commit[0] != "evolve"]))
    for commit in later:
        oracle.carry_out(*commit)
    oracle.convert(1)
    oracle.check()
    assert convert(lake).nothing_to_do == "the branch has no equality deletes"


# Unknown outcomes, and ends before the commit


@pytest.mark.parametrize("is_silent", [False, True])
def test_rule_20_an_unknown_commit_deletes_nothing(lake, is_silent):
    table_of(lake, [1, 2])
    lake.delete_by_key(T, {"id": [1]})
    catalog = losing(lake, carried_out=True, answers_again=not is_silent)
    if is_silent:
        with pytest.raises(OutcomeUnknownError, match="did not say whether snapshot"):
            convert(lake, catalog=catalog)
    else:
        assert convert(lake, catalog=catalog).equality_deletes_removed == 1
    assert catalog.asked == 1
    assert ids(lake) == [2]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_end_before_the_commit_leaves_the_table_as_it_was_and_the_marks_to_the_next_run(lake, error):
    table_of(lake, [1, 2])
    lake.delete_by_key(T, {"id": [1]})
    before = lake.state(T)

    def end():
        raise error

    with pytest.raises(error):
        convert(lake, before_commit=end)
    assert lake.state(T) == before
    result = convert(lake)
    assert (result.resumed, result.rows_marked, result.data_files_asked) == (1, 1, 0)
    assert ids(lake) == [2]


# Bad input


def refused(lake, error, message, **others):
    before = lake.state(T)
    with pytest.raises(error, match=message) as caught:
        convert(lake, **others)
    assert "\n" not in str(caught.value)
    assert lake.state(T) == before


def test_missing_and_damaged_files_are_named(lake):
    table_of(lake, [1, 2])
    path = Path(local(lake.state(T).data[0].file.path))
    deletes = Path(local(lake.delete_by_key(T, {"id": [1]}).path))
    whole = deletes.read_bytes()
    deletes.write_bytes(whole[:-9] + b"garbage!!")
    refused(lake, deltacompact.DeltaCompactError, deletes.name)
    deletes.unlink()
    refused(lake, NotFoundError, f"{deletes} does not exist")
    deletes.write_bytes(whole)
    path.unlink()
    refused(lake, NotFoundError, f"{path} does not exist")


def test_unknown_names_are_refused(lake):
    table_of(lake, [1])
    refused(lake, NotFoundError, "has no branch 'nobody'", branch="nobody")
    with pytest.raises(InputError, match="unknown option 'rewrite-all': known are max-files-to-convert, "):
        convert_options({"rewrite-all": "true"})
    for name, value in (("max-files-to-convert", "0"), ("partial-progress.enabled", "yes")):
        with pytest.raises(InputError, match=f"option {name}: '{value}' is "):
            convert_options({name: value})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (equality("e", 5, by=(77,)), "e deletes by field id 77, which no schema of 'ns.t' has"),
        (equality("e", 5, by=()), "e does not say by which columns it deletes"),
        (replace(equality("e", 5), file=replace(equality("e", 5).file, file_format="AVRO")), "e is AVRO: only"),
        (replace(equality("e", 5), file=replace(equality("e", 5).file, key_metadata=b"k")), "e is encrypted"),
    ],
)
def test_deletes_that_cannot_be_read_are_refused_before_any_work(entry, message):
    with pytest.raises(InputError, match=message):
        plan_conversion(state(data("a", 3), entry), ConvertOptions())


def test_unknown_format_versions_are_refused():
    with pytest.raises(InputError, match="has format version 4, which cannot be converted"):
        plan_conversion(state(data("a", 3), equality("e", 5), version=4), ConvertOptions())
    others = replace(data("b", 3, ids=(50, 60)), file=replace(data("b", 3).file, file_format="ORC"))
    with pytest.raises(InputError, match="b is ORC: only Parquet files can be read"):
        plan_conversion(state(others, equality("e", 5)), ConvertOptions())


# Plans


def test_a_plan_survives_json_and_names_what_it_opens(lake):
    table_of(lake, [1, 2], [30])
    lake.delete_by_key(T, {"id": [1]})
    lake.delete_by_key(T, {"id": [77]})
    plan = prepared(lake).plan()
    document = json.loads(plan_to_json(plan))
    body = document["plan"]
    assert [delete["reason"] for delete in body["equality_deletes"]] == ["applies", "applies_to_nothing"]
    assert [(task["rows"], task["equality"]) for group in body["groups"] for task in group["inputs"]] == [(2, [[0, 1]])]
    assert body["not_opened"] == 1
    assert plan_document.plan_from_json(json.dumps(document), lake.state(T)) == plan
    body["not_opened"] = 0
    with pytest.raises(InputError, match="the plan is damaged: its SHA-256 differs"):
        plan_document.plan_from_json(json.dumps(document), lake.state(T))


def test_a_plan_is_carried_out_as_it_was_approved(lake):
    table_of(lake, [1, 2], [3])
    lake.delete_by_key(T, {"id": [1]})
    text = plan_to_json(prepared(lake).plan())
    lake.append(T, rows(1))
    lake.delete_by_key(T, {"id": [3]})
    catalog = deltacompact.open_catalog(lake.catalog)
    result = catalog.convert(T, plan=text)
    assert (result.equality_deletes_removed, kinds(lake)["equality_deletes"]) == (1, 1)
    with pytest.raises(ConflictError, match="the plan is stale: another commit removed "):
        catalog.convert(T, plan=text)
    convert(lake)
    assert ids(lake) == [1, 2]


# The ways in


def test_compact_converts(lake):
    table_of(lake, [1, 2])
    lake.delete_by_key(T, {"id": [1]})
    catalog = deltacompact.open_catalog(lake.catalog)
    result = deltacompact.compact(T, delta_catalog_client=catalog, mode="convert", options={"max-files-to-convert": 5})
    assert isinstance(result, deltacompact.ConvertResult)
    assert (result.equality_deletes_removed, result.rows_marked) == (1, 1)
    assert ids(lake) == [2]


def test_the_command_line_plans_and_converts(lake, monkeypatch, capsys, tmp_path):
    from deltacompact.iceberg.table import pyiceberg_door

    monkeypatch.setattr(pyiceberg_door, "open_named", lambda name: lake.catalog)
    table_of(lake, [1, 2], [30])
    lake.delete_by_key(T, {"id": [1]})
    path = tmp_path / "plan.json"
    assert cli.run(["plan", "iceberg://lake", T, "--mode", "convert", "--out", str(path)]) == 0
    *lines, expected = capsys.readouterr().out.splitlines()
    stored = size(sum(entry.file.file_bytes for entry in lake.state(T).data))
    assert lines == [
        "1 equality-delete file with 1 row: may apply to 1 data file with 2 rows",
        "not opened: 1 data file",
        f"2 data files -> 2, {stored} -> about {stored}, 1 delete file -> about 1",
    ]
    assert expected.startswith("expected: 0.")
    assert cli.run(["compact", "iceberg://lake", T, "--from-plan", str(path)]) == 0
    out, err = capsys.readouterr()
    assert [line.partition(",")[0] for line in err.splitlines()] == [
        "ns.t: 1 group to convert",
        "ns.t: group 1 of 1 written",
        f"ns.t: 1 group committed as snapshot {lake.state(T).snapshot_id}",
    ]
    assert out.splitlines()[:-1] == [
        f"1 equality-delete file -> 1 delete file with 1 row, snapshot {lake.state(T).snapshot_id}",
        "keys of 1 data file with 2 rows were looked up",
    ]
    lake.delete_by_key(T, {"id": [2]})
    words = ["compact", "iceberg://lake", T, "--mode", "convert"]
    assert cli.run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows_marked"] == 1
    assert cli.run(words) == 0
    assert capsys.readouterr().out == "nothing to do: the branch has no equality deletes\n"
    assert cli.run([*words, "--option", "rewrite-all=true"]) == 2
    assert ids(lake) == [30]
