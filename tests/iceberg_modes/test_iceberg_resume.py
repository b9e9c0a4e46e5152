"""A rewrite that died is resumed: what it wrote is committed and not written again, no row is lost or doubled, and no
file stays that no metadata names."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from dead_sessions import LIVING, Death, Died, T, dying, journals, rewrite, table_of
from iceberg_lake import Lake
from live_writers import busy, losing, racing
from plan_json import plan_to_json
from table_t import Storage, ids
from upsert_oracle import upsert

from deltacompact.base.errors import (
    ClusterError,
    ConflictError,
    CredentialsError,
    Interrupted,
    OutcomeUnknownError,
    StoreError,
)
from deltacompact.iceberg.table import locations
from deltacompact.iceberg_modes import driver
from deltacompact.iceberg_modes.journal import signs_of_life
from deltacompact.iceberg_modes.journal.journal import Journal, TakenOverError, file_document, file_of, folder_of
from deltacompact.iceberg_modes.journal.signs_of_life import Signs
from deltacompact.iceberg_modes.rewrite import writing
from deltacompact.iceberg_modes.rewrite.plan_document import plan_document
from deltacompact.storage.checksummed import with_checksum
from deltacompact.storage.local import LocalStore


@pytest.mark.slow
@pytest.mark.parametrize("partial", [False, True])
def test_a_kill_before_every_change_loses_nothing_and_leaves_nothing(tmp_path, written, partial):
    places = []
    for at in itertools.count():
        lake = Lake(tmp_path / str(at), f"kill{partial}{at}")
        table_of(lake)
        options = {"partial_progress_enabled": partial}
        written.clear()
        death = Death(at)
        try:
            with dying(lake, death):
                rewrite(lake, **options)
        except Died:
            pass
        places.append(death.where)
        recorded = [path for path in journals(lake) if path.name.startswith("written-")]
        landed = len(lake.catalog.load_table(T).metadata.snapshots) > 3
        written_before = len(written)
        written.clear()
        result = lake.rewrite(T, min_input_files=2, delete_file_threshold=1, **options)
        assert ids(lake) == LIVING, death.where
        assert Storage(lake).orphans() == [], death.where
        assert lake.state(T).deletes == (), death.where
        if not landed:
            assert len(written) == 2 - len(recorded), death.where
            assert result.resumed == len(recorded), death.where
        elif not partial:
            assert (written, result.resumed) == ([], 0), death.where
        assert len(lake.state(T).data) == 2
        again = lake.rewrite(T, min_input_files=2)
        assert again.nothing_to_do and again.notes == []
        if death.where is None:
            break
    assert written_before == 2
    assert "commit" in places and "commit answered" in places
    assert len(places) > 20


@pytest.mark.processes
def test_a_killed_process_is_resumed_at_once(lake, written):
    table_of(lake)
    program = f"""
        import os, signal
        from iceberg_lake import Lake
        from pathlib import Path
        lake = Lake(Path({str(lake.folder)!r}), {lake.name!r})
        lake.rewrite({T!r}, rewrite_all=True, before_commit=lambda: os.kill(os.getpid(), signal.SIGKILL))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=_environment(), check=False)
    assert done.returncode == -signal.SIGKILL
    started = time.monotonic()
    result = rewrite(lake)
    assert time.monotonic() - started < 20
    assert result.resumed == 2
    assert ids(lake) == LIVING
    assert Storage(lake).orphans() == []


def _environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def killed_before_commit(lake, **options):
    """Leave the journal of a session that has written everything."""
    with dying(lake, death := Death(-1)), pytest.raises(Died):

        def die():
            death.at = death.seen
            death.change("here")

        rewrite(lake, before_commit=die, **options)
    (session,) = {path.parent.name for path in journals(lake) if path.name == "plan.json"}
    return session


@pytest.mark.parametrize("sort_columns", [{}, {"sort_columns": "name"}])
def test_an_upsert_commits_no_rewrite_after_which_nobody_knows_which_row_came_later(lake, sort_columns):
    """The rewrite that died put both rows into one file, where the old one is the greater by name."""
    lake.create(T, pa.schema([("id", pa.int64()), ("name", pa.string())]))
    for name in ("old", "new"):
        lake.append(T, [{"id": 1, "name": name}])
    killed_before_commit(lake)
    result = upsert(lake, key_columns="id", **sort_columns)
    assert any("1 group of session" in note for note in result.notes)
    assert lake.rows(T) == [{"id": 1, "name": "new"}]
    assert (journals(lake), Storage(lake).orphans()) == ([], [])
    assert rewrite(lake).rows_out == 1  # now it may


def test_an_append_and_a_newer_equality_delete_since_do_not_matter(lake, written):
    table_of(lake)
    killed_before_commit(lake)
    lake.append(T, [{"id": 100, "day": 0}])
    lake.delete_by_key(T, {"id": [5]}, partition=(1,))
    written.clear()
    result = lake.rewrite(T)
    assert (result.resumed, written) == (2, [])
    rewrite(lake)
    assert ids(lake) == [0, 1, 2, 4, 6, 7, 100]


def test_a_group_that_others_touched_since_is_written_again(lake, written):
    """Its map is gone, so its rows cannot be followed (test_iceberg_following.py)."""
    table_of(lake)
    killed_before_commit(lake)
    path = next(entry.file.path for entry in lake.state(T).data if entry.file.partition == (0,))
    lake.delete_by_position(T, {path: [0]})
    for bitmaps in Path(lake.folder, "warehouse").rglob("live-*.arrow"):
        bitmaps.unlink()
    before = {row["id"] for row in _rows_of(path)}
    written.clear()
    result = rewrite(lake, min_input_files=2)
    assert result.resumed == 1
    assert len(ids(lake)) == len(LIVING) - 1 and set(LIVING) - set(ids(lake)) <= before
    assert Storage(lake).orphans() == []


def _rows_of(path):
    import pyarrow.parquet as pq

    return pq.read_table(path.removeprefix("file://"), partitioning=None).to_pylist()


@pytest.mark.parametrize("damage", ["missing", "cut"])
@pytest.mark.slow
def test_a_group_whose_output_is_missing_or_cut_short_is_written_again(lake, written, damage):
    table_of(lake)
    killed_before_commit(lake)
    output = Path(written[0].removeprefix("file://"))
    if damage == "missing":
        output.unlink()
    else:
        output.write_bytes(output.read_bytes()[:-1])
    written.clear()
    result = lake.rewrite(T, min_input_files=2, delete_file_threshold=1)
    assert (result.resumed, len(written)) == (1, 1)
    assert result.notes[0].startswith("1 group of session ")
    assert ids(lake) == LIVING
    assert Storage(lake).orphans() == []


@pytest.mark.parametrize("change", ["damaged", "planner"])
def test_a_journal_that_cannot_be_trusted_is_told_and_left(lake, written, change, monkeypatch):
    table_of(lake)
    session = killed_before_commit(lake)
    if change == "planner":
        monkeypatch.setattr("deltacompact.iceberg_modes.journal.journal._KNOWN_PLANNERS", (98, 99))
        words = r"another version of deltacompact wrote it \(planner 5\)"
    else:
        record = next(path for path in journals(lake) if path.name == "written-0.json")
        record.write_text(record.read_text().replace('"dead_by_key": ', '"dead_by_key": 1'))
        words = r"written-0\.json is damaged: its SHA-256 differs"
    before = journals(lake)
    written.clear()
    result = rewrite(lake)
    assert (result.resumed, len(written)) == (0, 2)
    (note,) = result.notes
    assert re.search(words, note)
    assert session in note and "maintain removes it" in note
    assert journals(lake) == before
    assert ids(lake) == LIVING


def of_a_newer_version(lake, change):
    """Change the plan in the one journal, as another version would have written it."""
    (path,) = (path for path in journals(lake) if path.name == "plan.json")
    sealed = json.loads(path.read_text())
    change(sealed["body"]["document"]["plan"])
    path.write_text(json.dumps(with_checksum("body", sealed["body"], format=1)))


def test_why_files_stayed_does_not_matter_to_a_resumed_session(lake, written):
    table_of(lake)
    killed_before_commit(lake)
    of_a_newer_version(lake, lambda plan: plan["stays"].update(too_new=3))
    written.clear()
    assert (lake.rewrite(T).resumed, written) == (2, [])
    assert ids(lake) == LIVING


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda plan: plan["groups"][1]["inputs"][0].update(reason="too_new"),
            "'too_new' is not a valid RewriteReason",
        ),
        (lambda plan: plan["options"].update(shiny="x"), "the plan has the option 'shiny', which is newer"),
        (lambda plan: plan["groups"][0].pop("output_files"), "output_files"),
    ],
    ids=["reason", "option", "field"],
)
def test_what_a_newer_version_planned_is_told_and_left(lake, written, change, words):
    table_of(lake)
    session = killed_before_commit(lake)
    of_a_newer_version(lake, change)
    for _ in range(2):
        (note,) = rewrite(lake).notes
        assert re.search(rf"the journal of session {session} is not resumed, maintain removes it: .*{words}", note)
    assert ids(lake) == LIVING


@pytest.mark.parametrize("carried_out", [True, False])
def test_rule_20_an_unknown_commit_is_resolved_by_the_next_run(lake, written, carried_out):
    table_of(lake)
    named, lake.catalog = lake.catalog, losing(lake, carried_out, answers_again=False)
    with pytest.raises(OutcomeUnknownError, match="did not say whether snapshot"):
        rewrite(lake)
    lake.catalog = named
    written.clear()
    result = lake.rewrite(T, min_input_files=2)
    assert written == []
    assert (result.resumed, result.groups) == ((0, 0) if carried_out else (2, 2))
    assert any(note.endswith("had been committed") for note in result.notes) == carried_out
    assert ids(lake) == LIVING
    assert Storage(lake).orphans() == []


def test_ctrl_c_leaves_what_was_written_and_says_so(lake, written):
    table_of(lake)

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"2 of 2 groups written and not committed; compact again: it commits them"):
        rewrite(lake, before_commit=interrupt)
    written.clear()
    assert rewrite(lake, min_input_files=2).resumed == 2
    assert ids(lake) == LIVING
    assert Storage(lake).orphans() == []


# Live sessions


def test_the_files_of_a_live_session_are_left_to_it(lake):
    table_of(lake)
    told = []

    def other():
        result = rewrite(lake)
        told.append((result.nothing_to_do, *result.notes))

    result = rewrite(lake, before_commit=other)
    ((nothing_to_do, note),) = told
    assert nothing_to_do == "4 files: another session is rewriting them"
    assert note.endswith("is rewriting 4 files of this branch")
    assert result.redone == 0
    assert ids(lake) == LIVING


def test_a_session_on_another_machine_lives_as_long_as_it_gives_signs(lake, monkeypatch):
    table_of(lake)
    told = []

    def other():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(signs_of_life, "_machine", lambda: "elsewhere")
            told.append(rewrite(lake, signs=Signs(0.02, 5.0)).nothing_to_do)

    rewrite(lake, before_commit=other, signs=Signs(0.02, 5.0))
    assert told == ["4 files: another session is rewriting them"]
    assert ids(lake) == LIVING


def test_a_session_on_another_machine_that_gives_no_signs_is_resumed(lake, monkeypatch):
    table_of(lake)
    killed_before_commit(lake)
    monkeypatch.setattr(signs_of_life, "_machine", lambda: "elsewhere")
    assert rewrite(lake, signs=Signs(0.02, 0.2)).resumed == 2
    assert ids(lake) == LIVING
    assert Storage(lake).orphans() == []


def taken_for_dead(lake):
    """Another run that takes all sessions for dead."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signs_of_life.Holder, "is_at_work", lambda holder, session: False)
        return lake.rewrite(T, min_input_files=2)


def test_a_session_that_was_taken_for_dead_commits_and_deletes_nothing(lake):
    table_of(lake)
    others = []
    result = rewrite(lake, before_commit=lambda: others.append(taken_for_dead(lake)))
    assert (others[0].resumed, result.groups) == (2, 0)
    (note,) = result.notes
    assert note.endswith("gave no sign of life for a while, and another process took its work over")
    assert ids(lake) == LIVING
    assert Storage(lake).orphans() == []


class Suspended(Death):
    """Stands still before its `at`-th change, while `act` happens, and goes on."""

    def __init__(self, at, act):
        super().__init__(at)
        self.act = act

    def change(self, name):
        self.seen += 1
        if self.seen - 1 == self.at:
            self.where = name
            self.act()


@pytest.mark.parametrize("at", [3, 4])
def test_a_session_that_stood_still_while_others_took_over_is_told_so(lake, at):
    """Its work files are gone when it goes on: no fault of the table, or of what was asked for."""
    table_of(lake)
    with dying(lake, Suspended(at, lambda: taken_for_dead(lake))):
        try:
            notes = rewrite(lake).notes
        except ConflictError as error:
            notes = [str(error)]
    assert notes and all("another" in note for note in notes), notes
    assert lake.rewrite(T, min_input_files=2, delete_file_threshold=1).refused == []
    assert ids(lake) == LIVING


def overtaken(lake, act):
    """Another run takes the session over while its commit is under way."""
    own = Lake(lake.folder, lake.name)
    own.catalog = racing(lake, act)
    return own


def test_a_commit_that_is_under_way_fails_when_another_process_has_taken_over(lake):
    table_of(lake)
    others = []
    result = rewrite(overtaken(lake, lambda: others.append(taken_for_dead(lake))))
    assert (others[0].resumed, result.groups) == (2, 0)
    assert ids(lake) == LIVING
    assert [path for path in Storage(lake).orphans() if path.suffix == ".parquet"] == []


def test_outputs_of_a_commit_that_may_be_under_way_are_not_deleted(lake, written):
    """The other run cannot commit a group that was touched. The first one's commit is not answered yet."""
    table_of(lake)
    path = next(entry.file.path for entry in lake.state(T).data if entry.file.partition == (0,))

    def touch_and_take_over():
        lake.delete_by_position(T, {path: [0]})
        taken_for_dead(lake)

    result = rewrite(overtaken(lake, touch_and_take_over))
    assert (result.groups, result.redone) == (0, 0), "the other run had written one group and planned the other again"
    assert all(Path(output.removeprefix("file://")).exists() for output in written[:2])
    assert len(ids(lake)) == len(LIVING) - 1


def test_who_has_lost_a_journal_cannot_close_it(lake):
    table_of(lake)
    prepared = lake.prepared(T, rewrite_all=True)
    store = locations.store_of(prepared.table.metadata.location, {})
    first = Journal.new(store)
    first.begin(plan_document(prepared.plan()))
    second = Journal.take_over(store, first.session)
    with pytest.raises(TakenOverError):
        first.finish([])
    first.attempted(7, [0])
    with pytest.raises(TakenOverError):
        first.refuse_replaced()
    assert second.finish(["file:///nowhere/y.parquet"]) == ("file:///nowhere/y.parquet",)
    third = Journal.take_over(store, first.session)
    assert third.read().delete == ("file:///nowhere/y.parquet",)  # anybody may finish the deletions
    third.clear()
    with pytest.raises(TakenOverError):
        first.finish([])  # its mark is free again, but the plan is gone
    assert Journal.take_over(store, first.session) is None
    left = [stat.path for stat in store.list(folder_of(first.session))]
    assert all(Path(path).name.startswith("commit-") for path in left)


# Plans and partial progress


def test_a_plan_is_carried_out_again_after_a_kill_between_two_commits(lake, written):
    table_of(lake)
    options = {"rewrite_all": True, "partial_progress_enabled": True}
    document = plan_to_json(lake.prepared(T, **options).plan())
    commits = itertools.count()
    with dying(lake, death := Death(-1)), pytest.raises(Died):

        def die_at_the_second():
            if next(commits):
                death.at = death.seen
                death.change("here")

        lake.prepared(T, before_commit=die_at_the_second, **options).run(document)
    written.clear()
    result = lake.prepared(T).run(document)
    assert (written, result.resumed, result.nothing_to_do) == ([], 1, None)
    assert ids(lake) == LIVING
    assert Storage(lake).orphans() == []


def test_commits_that_fail_leave_their_groups_for_the_next_run(lake, written):
    table_of(lake)
    named, lake.catalog = lake.catalog, busy(lake, T, 1)
    result = rewrite(lake, partial_progress_enabled=True)
    assert (result.groups, len(result.refused)) == (1, 1)
    assert result.notes == ["1 of 2 groups written and not committed; compact again: it commits them"]
    lake.catalog.others = 1
    with pytest.raises(ConflictError, match="other commits came first"):
        rewrite(lake, partial_progress_enabled=True, partial_progress_max_failed_commits=0)
    lake.catalog = named
    written.clear()
    assert rewrite(lake, min_input_files=2).resumed == 1
    assert ids(lake) == LIVING
    assert Storage(lake).orphans() == []


@pytest.mark.parametrize("kind", [StoreError, CredentialsError, ClusterError])
def test_what_passes_before_a_commit_leaves_what_was_written(lake, written, kind):
    table_of(lake)

    def fail():
        raise kind("gone for now")

    with pytest.raises(kind, match="gone for now"):
        rewrite(lake, before_commit=fail)
    written.clear()
    assert rewrite(lake, min_input_files=2).resumed == 2
    assert ids(lake) == LIVING
    assert Storage(lake).orphans() == []


def test_credentials_that_expire_while_a_group_is_written_leave_the_groups_before_it(lake, written, monkeypatch):
    table_of(lake)

    def expired(*arguments):
        if written:
            raise CredentialsError("the credentials have expired")
        return step(*arguments)

    step = writing.materialize
    with monkeypatch.context() as patch, pytest.raises(CredentialsError):
        patch.setattr(writing, "materialize", expired)
        rewrite(lake)
    assert [path.name for path in journals(lake) if path.name.startswith("written-")] == ["written-0.json"]
    written.clear()
    result = lake.rewrite(T, min_input_files=2, delete_file_threshold=1)
    assert (result.resumed, len(written)) == (1, 1)
    assert ids(lake) == LIVING
    assert Storage(lake).orphans() == []


def test_a_cluster_that_is_down_while_rows_are_followed_leaves_them_to_the_next_run(lake, written, monkeypatch):
    table_of(lake)
    killed_before_commit(lake)
    path = next(entry.file.path for entry in lake.state(T).data if entry.file.partition == (0,))
    lake.delete_by_position(T, {path: [0]})
    written.clear()

    def down(*arguments):
        raise ClusterError("no Ray cluster answers")

    with monkeypatch.context() as patch, pytest.raises(ClusterError):
        patch.setattr("deltacompact.iceberg_modes.rewrite.rewrite.executor_for", down)
        lake.rewrite(T)
    assert (lake.rewrite(T).resumed, written) == (2, [])
    assert len(ids(lake)) == len(LIVING) - 1
    assert Storage(lake).orphans() == []


def test_the_records_of_a_dead_session_are_read_side_by_side(lake, monkeypatch):
    """Once to plan, and once by the new holder: who was replaced may have put more of them."""
    table_of(lake)
    killed_before_commit(lake)
    read, both = LocalStore.get, threading.Barrier(2, timeout=20)
    records = []

    def get(store, path):
        if "written-" in path:
            records.append(path)
            both.wait()
        return read(store, path)

    monkeypatch.setattr(LocalStore, "get", get)
    assert lake.rewrite(T, min_input_files=2).resumed == 2
    assert len(records) == 2 * 2


def test_a_journal_that_another_run_clears_while_we_plan_is_its_business(lake, monkeypatch):
    table_of(lake)
    session = killed_before_commit(lake)
    look, others = driver.left_behind, Lake(lake.folder, lake.name)

    def looked(*given):
        left = look(*given)
        assert [dead.session for dead in left.dead] == [session]
        monkeypatch.setattr(driver, "left_behind", look)
        assert others.rewrite(T).resumed == 2
        return left

    monkeypatch.setattr(driver, "left_behind", looked)
    assert lake.rewrite(T, min_input_files=2).nothing_to_do
    assert ids(lake) == LIVING
    assert (journals(lake), Storage(lake).orphans()) == ([], [])


def test_other_tables_and_branches_do_not_take_a_journal(lake, written):
    table_of(lake)
    state = lake.state(T)
    lake.catalog.load_table(T).manage_snapshots().create_branch(state.snapshot_id, "audit").commit()
    killed_before_commit(lake)
    before = journals(lake)
    assert lake.rewrite(T, branch="audit").resumed == 0
    assert journals(lake) == before
    assert lake.rewrite(T).resumed == 2


def test_a_file_survives_its_record(lake):
    table_of(lake)
    for entry in (*lake.state(T).data, *lake.state(T).deletes):
        assert file_of(json.loads(json.dumps(file_document(entry.file)))) == entry.file
        assert file_of(json.loads(json.dumps(file_document(entry.file)))).lower_bounds == entry.file.lower_bounds
