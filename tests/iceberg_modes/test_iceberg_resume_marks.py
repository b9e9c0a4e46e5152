"""A conversion or an upsert that died is resumed: marks that it wrote are committed if they are still true, and deleted
if they are not. No row is lost, none comes back, and no file stays that no metadata names."""

from __future__ import annotations

import contextlib
import itertools
import json
from pathlib import Path

import conversions
import pyarrow as pa
import pytest
from budgets import examples
from conversions import convert, delete_by_vector, kinds
from dead_sessions import Death, Died, Unheard, dying, journals, live_rows_of_another_table
from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule, run_state_machine_as_test
from live_writers import busy, losing
from plan_json import plan_to_json
from table_t import Storage
from upsert_oracle import prepared, refusing_lost_order, upsert, visible
from upsert_oracle import visible_ids as ids
from upsert_writers import Writers, WritersOfVersion3, rows, table, view

from deltacompact.base.errors import ConflictError, InputError, Interrupted, OutcomeUnknownError
from deltacompact.iceberg.marks.finding import Finder
from deltacompact.iceberg.settled import THROUGH
from deltacompact.iceberg.table.content_files import Content
from deltacompact.iceberg_modes.convert.options import ConvertOptions, convert_options
from deltacompact.iceberg_modes.convert.plan import ConvertReason
from deltacompact.iceberg_modes.journal import journal, signs_of_life
from deltacompact.iceberg_modes.upsert.comparing import KeyComparison

T = "ns.t"
ID = pa.schema([("id", pa.int64())])


@pytest.fixture
def work(monkeypatch):
    """How often rows were asked for their keys, or compared."""
    calls = []

    def counted(owner, name):
        method = getattr(owner, name)

        def call(self, *inputs, **others):
            calls.append(name)
            return method(self, *inputs, **others)

        monkeypatch.setattr(owner, name, call)

    counted(Finder, "find")
    counted(KeyComparison, "compared")
    return calls


def stop():
    raise KeyboardInterrupt


def stopped_conversion(lake, **others):
    """A conversion that is stopped when all of its marks are written."""
    with pytest.raises(Interrupted, match=r"1 of 1 group written and not committed; compact again: it commits them"):
        convert(lake, before_commit=stop, **others)


def stopped_upsert(lake, **others):
    with pytest.raises(Interrupted, match="written and not committed"):
        upsert(lake, before_commit=stop, **{"key_columns": "id"} | others)


def dead_by_key(lake, version=2):
    """Two files of which a delete hits one row each."""
    conversions.table_of(lake, [1, 2], [3, 4], version=version)
    lake.delete_by_key(T, {"id": [1, 3]})


def path_of(lake, sequence):
    return next(entry.file.path for entry in lake.state(T).data if entry.sequence == sequence)


# A kill at every step


@pytest.mark.slow
def test_a_conversion_that_is_killed_before_any_change_loses_nothing_and_leaves_nothing(lake, work):
    conversions.table_of(lake, range(60))
    storage, places = Storage(lake), []
    for at in itertools.count():
        lake.delete_by_key(T, {"id": [at]})
        death = Death(at)
        with contextlib.suppress(Died), dying(lake, death):
            convert(lake)
        places.append(death.where)
        has_landed = not kinds(lake)["equality_deletes"]
        was_written = any(path.name == "written-0.json" for path in journals(lake))
        work.clear()
        result = convert(lake)
        assert result.resumed == (was_written and not has_landed), death.where
        assert work == ([] if was_written or has_landed else ["find"]), death.where
        assert ids(lake) == list(range(at + 1, 60)), death.where
        assert storage.orphans() == [], death.where
        if death.where is None:
            break
    assert {"commit", "commit answered"} < set(places)
    assert len(places) > 15


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_resumes_a_conversion_leaves_it_to_the_next(lake, work):
    conversions.table_of(lake, range(60), version=3)
    storage, places = Storage(lake), []
    for at in itertools.count():
        lake.delete_by_key(T, {"id": [at]})
        stopped_conversion(lake)
        work.clear()
        death = Death(at)
        with contextlib.suppress(Died), dying(lake, death):
            convert(lake)
        places.append(death.where)
        convert(lake)
        assert work == [], death.where
        assert ids(lake) == list(range(at + 1, 60)), death.where
        assert storage.orphans() == [], death.where
        if death.where is None:
            break
    assert {"commit", "commit answered"} < set(places)
    assert len(places) > 8


@pytest.mark.slow
def test_an_upsert_that_is_killed_before_any_change_loses_nothing_and_leaves_nothing(tmp_path, work):
    lake = table(tmp_path, partitioned=True)
    lake.append(T, rows((1, "first", 1), (1, "first", 2)))
    storage, places = Storage(lake), []
    for at in itertools.count():
        if at % 5 == 4:
            lake.rewrite(T, rewrite_all=True)  # so that there are few files
        lake.append(T, rows((1, f"name {at}", 1), (1, f"name {at}", 2)))
        death = Death(at)
        with contextlib.suppress(Died), dying(lake, death):
            upsert(lake, key_columns="id,day")
        places.append(death.where)
        has_landed = len(visible(lake)) == 2
        was_written = any(path.name == "written-0.json" for path in journals(lake))
        work.clear()
        result = upsert(lake, key_columns="id,day")
        assert result.resumed == 2 * (was_written and not has_landed), death.where
        assert ("compared" in work) == (not was_written and not has_landed), death.where
        assert {row.values["name"] for row in visible(lake)} == {f"name {at}"}, death.where
        assert len(visible(lake)) == 2, death.where
        assert storage.orphans() == [], death.where
        if death.where is None:
            break
    assert {"commit", "commit answered"} < set(places)
    assert len(places) > 15


# What a resumed conversion validates


def test_an_append_and_a_newer_delete_since_do_not_matter(lake, work):
    dead_by_key(lake)
    stopped_conversion(lake)
    lake.append(T, conversions.rows(1))
    lake.delete_by_key(T, {"id": [4]})
    work.clear()
    result = convert(lake)
    assert (result.resumed, work, result.data_files_asked) == (1, ["find"], 1)
    assert ids(lake) == [1, 2]
    assert Storage(lake).orphans() == []


def test_position_deletes_that_were_undone_since_are_not_counted_on(lake):
    """Our mark lacks the rows that p named. p is gone, so the rows that were found dead by key are marked once more."""
    conversions.table_of(lake, [1, 2, 3], version=2)
    path = path_of(lake, 1)
    lake.delete_by_position(T, {path: [0]})
    lake.delete_by_key(T, {"id": [1, 2]})
    stopped_conversion(lake)
    first = next(entry.file for entry in lake.state(T).deletes if entry.file.content is Content.POSITION_DELETES)
    table = lake.prepared(T).table
    lake.commit(table, [], gone=[first.path])
    result = convert(lake)
    assert (result.resumed, result.rows_marked, result.equality_deletes_removed) == (1, 2, 1)
    assert ids(lake) == [3]
    assert Storage(lake).orphans() == []


def test_rule_18_the_rows_of_a_vector_that_came_since_go_into_ours(lake):
    dead_by_key(lake, version=3)
    stopped_conversion(lake)
    delete_by_vector(lake, path_of(lake, 1), [1])
    result = convert(lake)
    assert (result.resumed, result.data_files_asked, result.rows_marked) == (1, 0, 2)
    assert (ids(lake), kinds(lake), result.notes) == ([4], {"vector": 2}, [])


def test_a_journal_of_the_version_before_does_not_say_which_rows_were_found(lake):
    dead_by_key(lake, version=3)
    stopped_conversion(lake)
    (record,) = (path for path in journals(lake) if path.name == "written-0.json")
    body = json.loads(record.read_text())["body"]
    assert body["groups"][0]["details"].pop("dead")
    record.write_bytes(journal._sealed(body))
    delete_by_vector(lake, path_of(lake, 1), [1])
    result = convert(lake)
    assert (result.resumed, result.data_files_asked, result.rows_marked) == (1, 2, 2)
    assert ids(lake) == [4]
    assert kinds(lake) == {"vector": 2}


def test_a_journal_of_the_version_before_has_no_checksums_of_the_rows_that_were_found(lake, work):
    dead_by_key(lake, version=3)
    stopped_conversion(lake)
    (record,) = (path for path in journals(lake) if path.name == "written-0.json")
    body = json.loads(record.read_text())["body"]
    assert len(body["groups"][0]["details"].pop("crc32s")) == 2
    record.write_bytes(journal._sealed(body))
    delete_by_vector(lake, path_of(lake, 1), [1])
    work.clear()
    assert convert(lake).resumed == 1
    assert (ids(lake), work) == ([4], [])


def test_rows_that_were_found_in_another_table_are_not_believed(lake):
    """A row that was deleted by key came back."""
    dead_by_key(lake, version=3)
    stopped_conversion(lake)
    (path,) = Path(lake.folder, "warehouse").rglob("live-*.arrow")
    live_rows_of_another_table(path, 2)
    delete_by_vector(lake, path_of(lake, 1), [1])
    result = convert(lake)
    assert ids(lake) == [4]
    assert "live-0.arrow has another live bitmap than was written" in result.notes[0]


def test_rows_that_were_found_and_cannot_be_read_any_more_are_searched_again(lake):
    dead_by_key(lake, version=3)

    def others():
        for path in Path(lake.folder, "warehouse").rglob("live-*.arrow"):
            path.write_bytes(path.read_bytes()[:-60])
        delete_by_vector(lake, path_of(lake, 1), [1])

    result = convert(lake, before_commit=conversions.once(others))
    assert (result.redone, ids(lake)) == (1, [4])
    assert result.notes[0].startswith("deletes of others could not be followed, so files are asked again: ")


def test_rule_18_marks_of_version_2_are_vectors_in_a_table_that_was_upgraded(lake):
    dead_by_key(lake)
    stopped_conversion(lake)
    lake.upgrade(T)
    assert convert(lake).resumed == 1
    assert ids(lake) == [2, 4]
    assert kinds(lake) == {"vector": 2}
    assert Storage(lake).orphans() == []


def test_the_mark_of_a_file_that_is_gone_is_deleted_and_the_other_one_committed(lake, work):
    dead_by_key(lake)
    stopped_conversion(lake)
    lake.commit(lake.prepared(T).table, [], gone=[path_of(lake, 1)])
    work.clear()
    result = convert(lake)
    assert (result.resumed, result.rows_marked, work) == (1, 1, [])
    assert ids(lake) == [4]
    assert Storage(lake).orphans() == []


def test_a_rewrite_commits_what_a_conversion_had_written(lake):
    dead_by_key(lake)
    stopped_conversion(lake)
    (note,) = lake.rewrite(T).notes
    snapshot = lake.state(T).snapshot
    assert note.endswith(f"had written a convert: it is snapshot {snapshot.parent_id} now")
    assert (snapshot.summary["operation"], lake.state(T).deletes) == ("replace", ())
    assert ids(lake) == [2, 4]
    assert Storage(lake).orphans() == []


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_marks_of_which_a_file_is_missing_or_cut_short_are_written_again(lake, work, damage):
    dead_by_key(lake)
    stopped_conversion(lake)
    session = journals(lake)[0].parent.name
    mark = next(Path(lake.folder, "warehouse").rglob(f"{session}-*"))
    if damage == "missing":
        mark.unlink()
    else:
        mark.write_bytes(mark.read_bytes()[:-1])
    work.clear()
    result = convert(lake)
    assert (result.resumed, result.data_files_asked) == (0, 2)
    assert result.notes[0].endswith("cannot be committed any more")
    assert ids(lake) == [2, 4]
    assert Storage(lake).orphans() == []


@pytest.mark.parametrize("carried_out", [True, False])
@pytest.mark.parametrize("mode", ["convert", "upsert"])
@pytest.mark.slow
def test_rule_20_an_unknown_commit_is_resolved_by_the_next_run(tmp_path, work, carried_out, mode):
    lake = table(tmp_path)
    lake.append(T, rows((1, "a"), (2, "a")))
    lake.append(T, rows((1, "b")))
    lake.delete_by_key(T, {"id": [2]})
    run = (lambda: upsert(lake, key_columns="id")) if mode == "upsert" else lambda: convert(lake)
    named, lake.catalog = lake.catalog, losing(lake, carried_out, answers_again=False)
    with pytest.raises(OutcomeUnknownError, match="did not say whether snapshot"):
        run()
    lake.catalog = named
    work.clear()
    result = run()
    assert (work, result.resumed) == ([], 0 if carried_out else 1)
    assert any("had been committed" in note for note in result.notes) == carried_out
    assert sorted(row.values["id"] for row in visible(lake)) == ([1] if mode == "upsert" else [1, 1])
    assert len([entry for entry in lake.state(T).deletes if entry.file.content is Content.POSITION_DELETES]) == 1
    assert Storage(lake).orphans() == []


@pytest.mark.parametrize("appended", [False, True])
def test_a_commit_that_followed_others_and_was_not_heard_is_told_as_committed(lake, appended):
    """Others mark a row of both files before the commit, which has other vectors then than the group has written."""
    dead_by_key(lake, version=3)

    def others():
        death.others = True
        for sequence in (1, 2):
            delete_by_vector(lake, path_of(lake, sequence), [1])
        if appended:
            lake.append(T, conversions.rows(5))
        death.others = False

    with contextlib.suppress(Died), dying(lake, death := Unheard(-1)):
        convert(lake, before_commit=conversions.once(others))
    state = lake.state(T)
    result = convert(lake)
    assert any("1 group of session" in note and "had been committed" in note for note in result.notes), result.notes
    assert not any("cannot be committed" in note for note in result.notes)
    assert lake.state(T).snapshot_id == state.snapshot_id, "nothing is committed twice"
    assert ids(lake) == ([5] if appended else [])
    assert Storage(lake).orphans() == []


@pytest.mark.parametrize("max_commits", [None, 2])
@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_positions_that_were_written_again_and_landed_unheard_are_told_as_committed(
    lake, work, granularity, max_commits
):
    """Our marks count on a delete by position, which is undone before the commit. One file may name rows of both."""
    conversions.table_of(lake, [1, 2, 3], [4, 5, 6])
    with lake.catalog.load_table(T).transaction() as change:
        change.set_properties({"write.delete.granularity": granularity})
    lake.delete_by_position(T, {path_of(lake, sequence): [1] for sequence in (1, 2)})
    lake.delete_by_key(T, {"id": [1, 2, 4, 5]})

    def others():
        death.others = True
        gone = [entry.file.path for entry in lake.state(T).deletes if not entry.file.equality_ids]
        lake.commit(lake.prepared(T).table, [], gone=gone)
        death.others = False

    chosen = {"max_commits": max_commits} if max_commits else {}
    with dying(lake, death := Unheard(-1)), pytest.raises(Died):
        convert(lake, before_commit=conversions.once(others), **chosen)
    work.clear()
    result = convert(lake)
    (note,) = (note for note in result.notes if "session" in note)
    assert note.startswith("1 group of session") and note.endswith("had been committed")
    assert (result.resumed, work) == (0, [] if max_commits is None else ["find"])
    assert ids(lake) == [3, 6]
    assert journals(lake) == []


def test_marks_that_landed_are_not_committed_twice_though_their_snapshot_is_gone(lake):
    """The process dies after its commit. Others commit, and its snapshot expires: its id says nothing any more."""
    dead_by_key(lake)
    with contextlib.suppress(Died), dying(lake, Unheard(-1)):
        convert(lake)
    landed = lake.state(T).snapshot_id
    lake.append(T, conversions.rows(5))
    lake.catalog.load_table(T).maintenance.expire_snapshots().by_id(landed).commit()
    convert(lake)
    assert kinds(lake) == {"position_deletes": 2}
    assert ids(lake) == [2, 4, 5]


# What a resumed upsert validates


def two_of_a_key(folder, version=2):
    lake = table(folder, version)
    lake.append(T, rows((1, "a"), (2, "a")))
    lake.append(T, rows((1, "b"), (3, "b")))
    return lake


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.slow
def test_rows_that_came_since_do_not_matter_to_a_resumed_upsert(tmp_path, work, version):
    lake = two_of_a_key(tmp_path, version)
    stopped_upsert(lake)
    lake.append(T, rows((1, "c")))
    lake.delete_by_key(T, {"id": [3]})
    result = upsert(lake, key_columns="id")
    assert (result.resumed, len(result.snapshots)) == (1, 2)
    assert [(row.values["id"], row.values["name"]) for row in visible(lake) if row.values["id"] == 1] == [(1, "c")]
    assert ids(lake) == [1, 2]


def test_a_resumed_upsert_says_up_to_where_all_rows_were_compared(tmp_path, work):
    lake = two_of_a_key(tmp_path)
    stopped_upsert(lake)
    work.clear()
    result = upsert(lake, key_columns="id")
    assert (result.resumed, result.rows_superseded, work) == (1, 1, [])
    assert lake.state(T).snapshot.summary[THROUGH] == "2"


@pytest.mark.parametrize("how", ["position", "other column", "rewritten"])
@pytest.mark.slow
def test_a_newest_row_that_is_gone_since_keeps_nobody_dead(tmp_path, how):
    lake = two_of_a_key(tmp_path)
    stopped_upsert(lake)
    match how:
        case "position":
            lake.delete_by_position(T, {path_of(lake, 2): [0]})
        case "other column":
            lake.delete_by_key(T, {"name": ["b"]})
        case "rewritten":
            lake.rewrite(T, rewrite_all=True)
    before = view(lake)
    result = upsert(lake, key_columns="id", trust_row_order=True)
    assert result.resumed == 0
    assert view(lake) == before
    assert Storage(lake).orphans() == []


@pytest.mark.parametrize("mode", ["rewrite", "convert", "upsert by other columns"])
@pytest.mark.slow
def test_only_an_upsert_by_the_same_columns_commits_what_another_one_had_written(tmp_path, mode):
    """Its keys may have been the reason to stop it."""
    lake = two_of_a_key(tmp_path)
    stopped_upsert(lake)
    before = ids(lake)
    match mode:
        case "rewrite":
            result = lake.rewrite(T)
        case "convert":
            result = convert(lake)
        case _:
            result = upsert(lake, key_columns="id,name")
    assert result.resumed == 0
    assert result.notes[0].endswith("of another upsert: deleted")
    assert ids(lake) == before
    assert Storage(lake).orphans() == []


def test_columns_are_the_same_by_field_id(tmp_path):
    lake = two_of_a_key(tmp_path)
    stopped_upsert(lake)
    with lake.catalog.load_table(T).update_schema() as update:
        update.rename_column("id", "number")
    assert upsert(lake, key_columns="number").resumed == 1
    lake.append(T, [{"number": 1, "name": "c", "day": None, "op": None}])
    stopped_upsert(lake, key_columns="number")
    with lake.catalog.load_table(T).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("number")
    with lake.catalog.load_table(T).update_schema() as update:
        update.add_column("number", lake.catalog.load_table(T).schema().find_type("day"))
    lake.append(T, [{"number": 1, "name": "d", "day": None, "op": None}])
    with pytest.raises(InputError, match="key column 'number' is missing"):
        upsert(lake, key_columns="number")
    assert len(visible(lake)) == 5


def test_what_another_upsert_has_marked_since_is_not_marked_twice(tmp_path, monkeypatch):
    lake = two_of_a_key(tmp_path)
    stopped_upsert(lake)
    hidden = Path(journals(lake)[0]).parent
    aside = hidden.rename(tmp_path / "aside")
    upsert(lake, key_columns="id")
    aside.rename(hidden)
    result = upsert(lake, key_columns="id")
    assert (result.resumed, result.snapshots) == (0, [])
    assert len(lake.state(T).deletes) == 1
    assert Storage(lake).orphans() == []


def test_after_a_rollback_a_resumed_upsert_does_not_say_that_all_was_compared(tmp_path):
    lake = table(tmp_path, partitioned=True)
    lake.append(T, rows((1, "a", 1), (1, "a", 2)))
    lake.append(T, rows((1, "b", 1), (1, "b", 2)))
    first = lake.state(T).snapshot_id
    lake.append(T, rows((5, "x", 2)))
    stopped_upsert(lake, key_columns="id,day")
    lake.catalog.load_table(T).manage_snapshots().set_current_snapshot(first).commit()
    result = upsert(lake, key_columns="id,day")
    assert result.resumed >= 1
    snapshots = lake.state(T).metadata.snapshots
    assert THROUGH not in snapshots[result.snapshots[0]].summary
    assert sorted(row.values["name"] for row in visible(lake)) == ["b", "b"]


class Dying(Writers):
    """Upserts and conversions die before their commits, others write, and the next run never changes the view."""

    @rule()
    def die_in_an_upsert(self):
        with contextlib.suppress(Interrupted, ConflictError), refusing_lost_order():
            prepared(self.lake, before_commit=stop, key_columns="id", operation_column="op", trust_row_order=True).run()

    @rule()
    def die_in_a_conversion(self):
        with contextlib.suppress(Interrupted, ConflictError):
            conversions.prepared(self.lake, before_commit=stop).run()

    @rule()
    def upsert(self):
        before = view(self.lake)
        with contextlib.suppress(ConflictError), refusing_lost_order():
            prepared(self.lake, key_columns="id", operation_column="op", trust_row_order=True).run()
        assert view(self.lake) == before


class DyingInVersion3(Dying, WritersOfVersion3):
    pass


@pytest.mark.parametrize("machine", [Dying, DyingInVersion3])
@pytest.mark.slow
def test_whatever_others_write_between_a_death_and_the_next_run_the_view_stays(machine):
    quick = settings(
        max_examples=examples(6), stateful_step_count=5, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine, settings=quick)


# Live sessions


def test_a_live_conversion_is_left_alone(lake):
    dead_by_key(lake)
    told = []
    result = convert(lake, before_commit=conversions.once(lambda: told.extend(convert(lake).notes)))
    assert [note.endswith("is converting deletes of 2 files of this branch") for note in told] == [True]
    assert result.redone == 0, "nothing of it was left to do"
    assert ids(lake) == [2, 4]
    assert Storage(lake).orphans() == []


def test_a_conversion_that_was_taken_for_dead_commits_and_deletes_nothing(lake):
    dead_by_key(lake)
    others = []

    def take_over():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(signs_of_life.Holder, "is_at_work", lambda holder, session: False)
            others.append(convert(lake))

    result = convert(lake, before_commit=conversions.once(take_over))
    assert (others[0].resumed, result.rows_marked) == (1, 0)
    assert result.notes[0].endswith("another process took its work over")
    assert ids(lake) == [2, 4]
    assert Storage(lake).orphans() == []


# Partial progress, plans and `where`


def test_commits_that_fail_leave_their_marks_for_the_next_run(lake, work):
    dead_by_key(lake)
    result = convert(lake, catalog=busy(lake, T, 1), max_commits=2)
    assert (len(result.snapshots), len(result.refused)) == (1, 1)
    assert result.notes == ["1 of 2 groups written and not committed; compact again: it commits them"]
    assert kinds(lake)["equality_deletes"] == 1
    again = convert(lake)
    assert (again.resumed, again.equality_deletes_removed) == (1, 1)
    assert ids(lake) == [2, 4]
    lake.delete_by_key(T, {"id": [2, 4]})
    with pytest.raises(ConflictError, match="other commits came first"):
        convert(lake, catalog=busy(lake, T, 1), max_commits=2, max_failed_commits=0)
    assert convert(lake).resumed == 1
    assert ids(lake) == []
    assert Storage(lake).orphans() == []


def test_a_plan_is_carried_out_again_after_a_stop_between_two_commits(lake):
    conversions.table_of(lake, [1, 2], [30, 40])
    lake.delete_by_key(T, {"id": [1]})
    lake.delete_by_key(T, {"id": [30]})
    document = plan_to_json(conversions.prepared(lake, max_commits=2).plan())
    commits = itertools.count()

    def stop_at_the_second():
        if next(commits):
            stop()

    with pytest.raises(Interrupted, match="1 of 2 groups written"):
        conversions.prepared(lake, before_commit=stop_at_the_second).run(document)
    result = conversions.prepared(lake).run(document)
    assert (result.resumed, result.nothing_to_do) == (1, None)
    assert ids(lake) == [2, 40]
    assert Storage(lake).orphans() == []


def test_where_converts_the_deletes_that_reach_no_other_files(lake):
    conversions.table_of(lake, [1, 2], [3, 4], [30, 40])
    lake.delete_by_key(T, {"id": [2, 3]})
    lake.delete_by_key(T, {"id": [30]})
    plan = conversions.prepared(lake, where="id < 3").plan()
    assert (plan.groups, plan.stays) == ((), ((ConvertReason.NOT_WANTED, 2),))
    nothing = convert(lake, where="id < 3").nothing_to_do
    assert nothing == "2 equality-delete files: may apply to data files without rows for which `where` is true"
    result = convert(lake, where="id < 10")
    assert (result.equality_deletes_removed, result.rows_marked, result.data_files_asked) == (1, 2, 2)
    assert convert(lake, where="id < 10").nothing_to_do.startswith("1 equality-delete file: may apply to data files")
    convert(lake)
    assert ids(lake) == [1, 4, 40]


def test_options_of_a_conversion():
    chosen = {"partial-progress.enabled": "true", "partial-progress.max-commits": "3", "where": "id > 7"}
    assert convert_options(chosen) == ConvertOptions(None, True, 3, 3, "id > 7")
    assert convert_options({"partial-progress.max-failed-commits": "0"}).max_failed_commits == 0
    for name, value in (("partial-progress.max-failed-commits", "-1"), ("where", "")):
        with pytest.raises(InputError, match=f"option {name}"):
            convert_options({name: value})
