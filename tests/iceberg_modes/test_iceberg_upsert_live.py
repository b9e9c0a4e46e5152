"""Upserts beside live writers: when marks may still be committed, by hand and by random interleavings."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import replace

import pyarrow as pa
import pytest
from budgets import examples
from hand_made_tables import BY_DAY, UNPARTITIONED, data, equality, positions, state, vector
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from upsert_oracle import prepared, upsert
from upsert_oracle import visible_names as names
from upsert_writers import T, Writers, WritersOfVersion3, rows, table

from deltacompact.base.errors import ConflictError
from deltacompact.base.events import GroupsCommitted
from deltacompact.base.numbers import Ordinal
from deltacompact.iceberg_modes.upsert.comparing import ComparedFile
from deltacompact.iceberg_modes.upsert.options import UpsertOptions
from deltacompact.iceberg_modes.upsert.plan import plan_upsert
from deltacompact.iceberg_modes.upsert.validation import UpsertHead, UpsertProblem, compared_spaces

PURE = pa.schema(
    [
        pa.field(name, type_, metadata={"PARQUET:field_id": str(number)})
        for number, (name, type_) in enumerate([("id", pa.int64()), ("name", pa.string()), ("day", pa.int32())], 1)
    ]
)


def branch(*entries, version=2, **others):
    """A hand-made state of a table whose key is `id`."""
    made = state(*entries, version=version, **others)
    return replace(made, metadata=replace(made.metadata, schema=PURE, schema_json='{"identifier-field-ids": [1]}'))


def problem(planned, head, loser="a", guard="b", purges=False):
    """What the head says to marking a row of `loser`, which a row of `guard` keeps dead."""
    plan = plan_upsert(planned, UpsertOptions())
    files = [
        ComparedFile(
            Ordinal(number),
            5,
            int(source.entry.file.path == loser),
            int(purges and source.entry.file.path == guard),
            source.entry.file.path == guard,
            None,
        )
        for number, source in enumerate(plan.inputs)
    ]
    (space,) = compared_spaces(plan, files)
    return UpsertHead(head, plan).problem_of(space)


A, B, C = data("a", 3, ids=(1, 9)), data("b", 4, ids=(1, 9)), data("c", 2, ids=(1, 9))
OLD = equality("old", 4, ids=(1, 9), by=(2,))
PLANNED = branch(A, B, C, OLD, sequence=5)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ((A, B, C, OLD), None),
        ((A, B, C, OLD, data("new", 6, ids=(1, 9))), None),
        ((A, B, OLD), None),  # c has nothing to do with it
        ((A, B, C, OLD, equality("e", 6, ids=(1, 9))), None),
        ((A, B, C, OLD, equality("e", 6, ids=(1, 9), by=(2,))), UpsertProblem.ROWS_DELETED_BY_KEY),
        ((A, B, C, OLD, equality("e", 6, ids=(1, 9), by=(1, 2))), UpsertProblem.ROWS_DELETED_BY_KEY),
        ((A, B, C, OLD, equality("e", 5, ids=(1, 9))), UpsertProblem.ROWS_DELETED_BY_KEY),  # older than the plan
        ((A, B, C, OLD, equality("e", 6, ids=(50, 60))), None),
        ((A, B, C, OLD, positions("p", 6, of=["a"])), None),
        ((A, B, C, OLD, positions("p", 6, of=["c"])), None),
        ((A, B, C, OLD, positions("p", 6, of=["b"])), UpsertProblem.ROWS_DELETED_BY_POSITION),
        ((A, B, C, OLD, positions("p", 6, of=["a", "c"])), UpsertProblem.ROWS_DELETED_BY_POSITION),
        ((B, C, OLD), UpsertProblem.FILE_GONE),
        ((A, C, OLD), UpsertProblem.FILE_GONE),
        ((replace(A, sequence_number=5), B, C, OLD), UpsertProblem.FILE_GONE),
        ((A, B, C), None),  # rows that were dead may live again, but none is newer than b's unless it wins anyway
        ((A, B, C, OLD, data("back", 2, ids=(1, 9))), None),
    ],
)
def test_what_the_head_says_to_a_row_that_lost_to_another(entries, expected):
    assert problem(PLANNED, branch(*entries, sequence=6)) == expected


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ((A, B, C, OLD, data("new", 6, ids=(1, 9))), None),
        ((A, B, C, OLD, equality("e", 6, ids=(1, 9))), None),
        ((A, B, C), UpsertProblem.OLD_ROWS_CAME),
        ((A, B, C, OLD, data("back", 2, ids=(1, 9))), UpsertProblem.OLD_ROWS_CAME),
        ((A, B, C, OLD, positions("p", 6, of=["b"])), UpsertProblem.ROWS_DELETED_BY_POSITION),
    ],
)
def test_what_the_head_says_to_rows_of_a_key_that_is_deleted(entries, expected):
    assert problem(PLANNED, branch(*entries, sequence=6), purges=True) == expected


def test_rule_18_a_new_vector_of_a_file_with_dead_rows_changes_what_ours_must_hold():
    planned = branch(A, B, vector("v1", 4, "a"), version=3, sequence=5)
    assert problem(planned, planned) is None
    for vectors in ([vector("v2", 6, "a")], []):
        assert problem(planned, branch(A, B, *vectors, version=3)) is UpsertProblem.ROWS_DELETED_BY_POSITION


def test_a_table_that_was_upgraded_takes_no_position_deletes():
    assert problem(PLANNED, branch(A, B, C, OLD, version=3)) is UpsertProblem.FORMAT_CHANGED


def test_rule_02_an_equality_delete_of_one_partition_may_miss_the_older_row():
    first, second = data("a", 3, day=1, ids=(1, 9)), data("b", 4, day=2, ids=(1, 9))
    planned = branch(first, second, sequence=5)
    by_id = equality("e", 6, day=2, ids=(1, 9))
    assert problem(planned, branch(first, second, by_id)) is UpsertProblem.ROWS_DELETED_BY_KEY
    everywhere = replace(by_id, file=replace(by_id.file, spec_id=UNPARTITIONED, partition=()))
    assert problem(planned, branch(first, second, everywhere)) is None
    together = data("b", 4, day=1, ids=(1, 9))
    in_day_1 = equality("e", 6, day=1, ids=(1, 9))
    assert problem(branch(first, together, sequence=5), branch(first, together, in_day_1)) is None
    assert first.file.spec_id == BY_DAY


# Real tables


def oldest_and_newest(lake):
    entries = sorted(lake.state(T).data, key=lambda entry: entry.sequence)
    return entries[0].file.path, entries[-1].file.path


@pytest.mark.parametrize("version", [2, 3])
def test_rule_06_equality_deletes_by_the_key_every_moment_cost_no_work(tmp_path, version):
    lake = table(tmp_path, version)
    lake.append(T, rows((1, "a"), (2, "a"), (3, "a")))
    lake.append(T, rows((1, "b"), (2, "b"), (3, "b")))

    def stream():
        lake.delete_by_key(T, {"id": [1]})
        lake.append(T, rows((1, "c")))

    result = upsert(lake, key_columns="id", before_commit=stream)
    assert (result.redone, result.rows_superseded) == (0, 3)
    assert names(lake) == [(1, "c"), (2, "b"), (3, "b")]


def test_a_newest_row_that_is_deleted_meanwhile_is_not_missed(tmp_path):
    """By position, and by another column than the key: the older row is the newest now, and must not be marked."""
    for deletes in (
        lambda lake: lake.delete_by_position(T, {oldest_and_newest(lake)[1]: [0]}),
        lambda lake: lake.delete_by_key(T, {"name": ["b"]}),
    ):
        lake = table(tempfile.mkdtemp(dir=tmp_path))
        lake.append(T, rows((1, "a")))
        lake.append(T, rows((1, "b")))
        once = iter([lambda lake=lake, deletes=deletes: deletes(lake)])
        result = upsert(lake, key_columns="id", before_commit=lambda once=once: next(once, int)())
        assert (result.redone, result.snapshots) == (1, [])
        assert names(lake) == [(1, "a")]


def test_rule_23_a_replace_that_turned_equality_deletes_into_position_deletes_is_seen(tmp_path):
    lake = table(tmp_path)
    lake.append(T, rows((1, "a"), (2, "a")))
    lake.append(T, rows((1, "b"), (2, "b")))
    lake.delete_by_key(T, {"name": ["b"]})
    lake.append(T, rows((1, "c")))
    _, newest_path = oldest_and_newest(lake)
    guard = next(e.file.path for e in lake.state(T).data if e.sequence == 2)
    assert guard != newest_path
    once = iter([lambda: lake.convert(T, {guard: [0, 1]}, "replace")])
    upsert(lake, key_columns="id", before_commit=lambda: next(once, int)())
    assert names(lake) == [(1, "c"), (2, "a")]


def test_rule_10_a_file_that_was_rewritten_meanwhile_is_compared_again(tmp_path):
    lake = table(tmp_path)
    lake.append(T, rows((1, "a"), (2, "a")))
    lake.append(T, rows((1, "b", 1, "D")))
    once = iter([lambda: lake.rewrite(T, rewrite_all=True)])
    trusting = {"operation_column": "op", "trust_row_order": True}
    result = upsert(lake, key_columns="id", before_commit=lambda: next(once, int)(), **trusting)
    assert (result.redone, result.files, result.rows_deleting) == (1, 1, 1)
    (mark,) = lake.state(T).deletes
    assert mark.file.referenced_data_file == lake.state(T).data[0].file.path


def test_key_spaces_that_nobody_touched_are_committed_and_the_others_done_again(tmp_path):
    lake = table(tmp_path, partitioned=True)
    for name in "ab":
        lake.append(T, rows((1, name, 1), (1, name, 2)))
    guard = next(e.file.path for e in lake.state(T).data if e.sequence == 2 and e.file.partition == (2,))
    once = iter([lambda: lake.delete_by_position(T, {guard: [0]})])
    result = upsert(lake, key_columns="id,day", before_commit=lambda: next(once, int)())
    assert (result.redone, len(result.snapshots), result.rows_superseded) == (1, 1, 1)
    assert names(lake) == [(1, "a"), (1, "b")]
    assert "deltacompact.upserted" not in lake.state(T).snapshot.summary


def test_rows_whose_marks_were_rolled_back_are_compared_before_others_are_done_again(tmp_path):
    """The other partition is done again on a head that has lost the marks of this one."""
    lake = table(tmp_path, partitioned=True)
    for name in "ab":
        lake.append(T, rows((1, name, 1), (1, name, 2)))
    before = lake.state(T)
    guard = next(e.file.path for e in before.data if e.sequence == 2 and e.file.partition == (2,))
    touch = iter([lambda: lake.delete_by_position(T, {guard: [0]})])

    def roll_back(event):
        if isinstance(event, GroupsCommitted) and next(once, None):
            lake.catalog.load_table(T).manage_snapshots().set_current_snapshot(before.snapshot_id).commit()

    once = iter([True])
    session = prepared(lake, key_columns="id,day", before_commit=lambda: next(touch, int)())
    lake.append(T, rows((2, "a", 2), (2, "b", 2)))
    replace(session, table=session.table.reloaded(), emit=roll_back).run()
    assert "no rows came since" in upsert(lake, key_columns="id,day").nothing_to_do
    assert names(lake) == [(1, "b"), (1, "b")]


@pytest.mark.slow
def test_a_key_space_that_is_touched_again_and_again_is_refused_and_stays_as_it_was(tmp_path):
    lake = table(tmp_path)
    lake.append(T, rows((1, "a")))
    for number in range(6):
        lake.append(T, rows((1, f"b{number}")))

    def touch():
        entries = sorted(lake.state(T).data, key=lambda entry: entry.sequence)
        dead = {path for entry in lake.state(T).deletes if (path := entry.file.referenced_data_file)}
        dead |= {entry.file.lower_bounds[2147483546].decode() for entry in lake.state(T).deletes}
        lake.delete_by_position(T, {[e.file.path for e in entries if e.file.path not in dead][-1]: [0]})

    with pytest.raises(ConflictError, match=r"^ns\.t: the table: another commit deleted rows by position where rows"):
        upsert(lake, key_columns="id", before_commit=touch)
    assert names(lake) == [(1, "a"), (1, "b0"), (1, "b1")]


def test_rule_20_a_commit_without_an_answer_that_landed_counts_once(tmp_path, monkeypatch):
    from deltacompact.iceberg.table.pyiceberg_door import CommitUnansweredError, IcebergTable

    lake = table(tmp_path)
    lake.append(T, rows((1, "a")))
    lake.append(T, rows((1, "b")))
    commit = IcebergTable.commit
    answers = itertools.chain([False], itertools.repeat(True))

    def unanswered(*given, **named):
        after = commit(*given, **named)
        if next(answers):
            return after
        raise CommitUnansweredError("no answer")

    monkeypatch.setattr(IcebergTable, "commit", unanswered)
    lake.catalog.load_table(T).transaction().set_properties({"commit.retry.min-wait-ms": "0"}).commit_transaction()
    result = upsert(lake, key_columns="id")
    assert len(result.snapshots) == 1
    assert names(lake) == [(1, "b")]
    assert len(lake.state(T).deletes) == 1


@pytest.mark.parametrize("machine", [Writers, WritersOfVersion3])
@pytest.mark.slow
def test_beside_live_writers_no_key_is_lost_and_no_row_comes_back(machine):
    quick = settings(
        max_examples=examples(10),
        stateful_step_count=5,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=quick)
