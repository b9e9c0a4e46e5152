"""Commits beside hostile others: interrupts at every step, moved and removed heads, clocks that are ahead, stores that
fail, answers that are lost when the snapshot has been expired already."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import dead_sessions as dead
import pyarrow as pa
import pytest
from iceberg_lake import SETTINGS
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table.update import RemoveSnapshotRefUpdate
from table_t import ids

import deltacompact
from deltacompact.base.errors import (
    ConflictError,
    InputError,
    Interrupted,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
)
from deltacompact.iceberg.commit import beside, committer
from deltacompact.iceberg.commit.committer import Committer
from deltacompact.iceberg.commit.proposal import APPEND, Proposal, addition
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader
from deltacompact.storage.local import LocalStore

T = "ns.t"
ID = pa.schema([("id", pa.int64())])
QUICK = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "2"}


def table_of(lake, *appends, **properties):
    lake.create(T, ID, properties=QUICK | properties)
    for numbers in appends:
        lake.append(T, [{"id": number} for number in numbers])
    return lake.state(T)


def rewrite(lake, catalog=None, branch="main", **others):
    return deltacompact.compact(
        T,
        delta_catalog_client=deltacompact.open_catalog(catalog or lake.catalog),
        options={"rewrite-all": "true"},
        branch=branch,
        settings=SETTINGS,
        **others,
    )


def files(lake, pattern="*"):
    return {path for path in Path(lake.folder, "warehouse").rglob(pattern) if path.is_file()}


class Hooked(SqlCatalog):
    """Something happens before and after our commits: both hooks are called with the number of the commit."""

    commits = 0

    @staticmethod
    def before(number):
        pass

    @staticmethod
    def after(number):
        pass

    def commit_table(self, table, requirements, updates):
        self.commits += 1
        number = self.commits
        self.before(number)
        done = super().commit_table(table, requirements, updates)
        self.after(number)
        return done


def hooked(lake, **hooks):
    catalog = Hooked(lake.name, uri=f"sqlite:///{lake.database}", warehouse=lake.warehouse)
    for name, hook in hooks.items():
        setattr(catalog, name, hook)
    return catalog


def lost(number):
    raise CommitStateUnknownException("502 Bad Gateway")


def first_only(act):
    return lambda number: act() if number == 1 else None


def test_rule_20_the_answer_to_the_last_attempt_is_looked_for_too(lake):
    table_of(lake, [1], [2], **{"commit.retry.num-retries": "0"})
    result = rewrite(lake, hooked(lake, after=lost))
    assert result.snapshots == [lake.state(T).snapshot_id]
    assert (ids(lake), len(lake.state(T).data)) == ([1, 2], 1)


def test_rule_20_a_server_that_writes_the_location_of_our_list_otherwise_has_our_snapshot(lake):
    table_of(lake, [1], [2])

    def written_otherwise():
        stored = json.loads(Path(lake.catalog.load_table(T).metadata_location.removeprefix("file://")).read_text())
        for snapshot in stored["snapshots"]:
            snapshot["manifest-list"] = snapshot["manifest-list"].replace("file:///", "file:/")
        lake.edit_metadata(T, {"snapshots": stored["snapshots"]})
        lost(1)

    catalog = hooked(lake, after=first_only(written_otherwise))
    assert rewrite(lake, catalog).snapshots == [lake.state(T).snapshot_id]
    assert (catalog.commits, len(lake.state(T).data)) == (1, 1)


def test_rule_20_a_snapshot_that_landed_and_was_expired_before_we_looked_is_not_committed_again(lake):
    """Its id is gone from the table, but its files live on in the head that others committed on it."""
    (entry,) = table_of(lake, [1]).data

    def expire():
        lake.append(T, [{"id": 3}])
        table = lake.catalog.load_table(T)
        old = [snapshot.snapshot_id for snapshot in table.snapshots()][:-1]
        table.maintenance.expire_snapshots().by_ids(old).commit()
        lost(1)

    store = lake.store(T)
    again = replace(entry.file, path=f"{entry.file.path}.again")
    locations.put(store, again.path, locations.fetched(store, entry.file.path))
    committing = Committer(store, StateReader(store), "main", "tests")
    table = IcebergTable.load(hooked(lake, after=first_only(expire)), T)
    with pytest.raises(OutcomeUnknownError, match="did not say whether snapshot"):
        committing.commit(table, lambda state: Proposal(APPEND, (), (addition(again),), None))
    assert ids(lake) == [1, 1, 3]


def test_a_refused_attempt_whose_manifests_cannot_be_deleted_is_tried_again(lake, monkeypatch):
    def denied(store, location):
        raise StoreError("403 AccessDenied")

    table_of(lake, [1], [2])
    catalog = hooked(lake, before=first_only(lambda: lake.append(T, [{"id": 3}])))
    with monkeypatch.context() as patch:
        patch.setattr(committer.locations, "discard", denied)
        result = rewrite(lake, catalog)
    assert (len(result.snapshots), catalog.commits, ids(lake)) == (1, 2, [1, 2, 3])


def test_a_snapshot_id_that_the_table_has_already_is_not_taken(lake, monkeypatch):
    state = table_of(lake, [1], [2])
    numbers = iter([0, state.snapshot_id, 4711])
    monkeypatch.setattr(committer.secrets, "randbits", lambda bits: next(numbers))
    assert rewrite(lake).snapshots == [4711]
    assert ids(lake) == [1, 2]


def test_a_clock_that_is_ahead_of_ours_does_not_make_the_times_of_the_table_go_back(lake):
    """Java refuses to load such metadata."""
    table_of(lake, [1], [2])
    ahead = lake.catalog.load_table(T).metadata.last_updated_ms + 600_000
    lake.edit_metadata(T, {"last-updated-ms": ahead})
    rewrite(lake)
    stored = json.loads(Path(lake.catalog.load_table(T).metadata_location.removeprefix("file://")).read_text())
    assert stored["last-updated-ms"] >= stored["metadata-log"][-1]["timestamp-ms"] == ahead
    assert stored["snapshots"][-1]["timestamp-ms"] >= ahead


def test_a_clock_of_ours_that_is_ahead_stops_no_java_writer_that_commits_after_us(lake, monkeypatch):
    """Java refuses times that go back by more than a minute: it would wait until it is as late as we had said."""
    table_of(lake, [1], [2])
    monkeypatch.setattr(beside, "time", SimpleNamespace(time=lambda: time.time() + 2400))
    rewrite(lake)
    lake.append(T, [{"id": 3}])
    first, second = lake.catalog.load_table(T).snapshots()[-2:]
    assert first.timestamp_ms <= second.timestamp_ms + 1000


def test_a_clock_of_the_store_that_is_ahead_stops_no_java_writer_that_commits_after_us(lake, monkeypatch):
    """A snapshot dated by it would be in the future of hosts whose clocks are right."""
    table_of(lake, [1], [2])
    monkeypatch.setattr(beside.locations, "modified_s", lambda store, location: time.time() + 600)
    rewrite(lake)
    lake.append(T, [{"id": 3}])
    first, second = lake.catalog.load_table(T).snapshots()[-2:]
    assert first.timestamp_ms <= second.timestamp_ms + 1000


@pytest.mark.parametrize("name", ["num-retries", "min-wait-ms", "max-wait-ms", "total-timeout-ms"])
def test_a_table_whose_properties_make_no_sense_is_refused_before_any_work(lake, name):
    table_of(lake, [1], [2], **{f"commit.retry.{name}": "-1"})
    before = files(lake)
    with pytest.raises(InputError, match=rf"^the table has commit\.retry\.{name} '-1', which is not a whole number$"):
        rewrite(lake)
    assert files(lake) == before


def test_a_property_by_which_no_metadata_can_be_written_is_a_refusal_and_not_silence(lake):
    table_of(lake, [1], [2])
    others = lake.catalog.load_table(T).properties
    lake.edit_metadata(T, {"properties": others | {"write.metadata.previous-versions-max": "many"}})
    before = files(lake)
    with pytest.raises(InputError, match=r"^Iceberg table 'ns\.t': .*previous-versions-max.*: many$"):
        rewrite(lake)  # before any work
    head = lake.state(T).snapshot_id
    with pytest.raises(InputError, match=r"^ns\.t: the catalog refuses the commit: .*previous-versions-max.*: many$"):
        IcebergTable.load(lake.catalog, T).tag({"v": head}, int(time.time() * 1000), {})
    assert files(lake) == before


class Outrun(SqlCatalog):
    """Others append between our metadata file and the swap, so often."""

    times = 3

    def _write_metadata(self, *given, **how):
        super()._write_metadata(*given, **how)
        if self.times:
            self.times -= 1
            SqlCatalog(self.name, **self.properties).load_table(T).append(pa.table({"id": pa.array([7], pa.int64())}))


def test_an_attempt_that_lost_the_race_leaves_no_metadata_file(lake):
    table_of(lake, [1], [2])
    catalog = Outrun(lake.name, uri=f"sqlite:///{lake.database}", warehouse=lake.warehouse)
    assert rewrite(lake, catalog).snapshots == [lake.state(T).snapshot_id]
    assert ids(lake) == [1, 2, 7, 7, 7]
    assert metadata_files(lake) == named_metadata_files(lake)


CHANGES = {
    "tag": lambda table, first: table.tag({"v": first}, int(time.time() * 1000) + 10**6, {}),
    "move": lambda table, first: table.move("main", first),
    "expire": lambda table, first: table.expire([first], []),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_lost_the_race_leaves_no_metadata_file(lake, change):
    first = table_of(lake, [1], [2]).metadata.branch("main").parent_id
    catalog = Outrun(lake.name, uri=f"sqlite:///{lake.database}", warehouse=lake.warehouse)
    with pytest.raises(ConflictError):
        CHANGES[change](IcebergTable.load(catalog, T), first)
    assert ids(lake) == [1, 2, 7]
    assert metadata_files(lake) == named_metadata_files(lake)


class SentTwice(SqlCatalog):
    """Carries a commit out, and answers its second sending."""

    def commit_table(self, *given):
        super().commit_table(*given)
        raise CommitFailedException("the table has been changed")


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_landed_keeps_its_metadata_file_whatever_the_catalog_says(lake, change):
    first = table_of(lake, [1], [2]).metadata.branch("main").parent_id
    catalog = SentTwice(lake.name, uri=f"sqlite:///{lake.database}", warehouse=lake.warehouse)
    table = IcebergTable.load(catalog, T)
    with pytest.raises(ConflictError):
        CHANGES[change](table, first)
    assert table.reloaded().metadata.metadata_location != table.metadata.metadata_location
    assert metadata_files(lake) == named_metadata_files(lake)


def test_a_metadata_file_stays_where_the_table_cannot_be_loaded_after_a_refusal(lake, monkeypatch):
    first = table_of(lake, [1], [2]).metadata.branch("main").parent_id
    catalog = Outrun(lake.name, uri=f"sqlite:///{lake.database}", warehouse=lake.warehouse)
    table = IcebergTable.load(catalog, T)
    monkeypatch.setattr(IcebergTable, "reloaded", lambda self: raised(StoreError("no answer")))
    with pytest.raises(ConflictError):
        table.move("main", first)
    assert len(metadata_files(lake) - named_metadata_files(lake)) == 1


def raised(error):
    raise error


def test_metadata_files_that_the_table_forgets_are_deleted_where_it_says_so(lake):
    versions = {"write.metadata.previous-versions-max": "2"}
    table_of(lake, [1], [2], **versions)
    rewrite(lake)
    assert len(metadata_files(lake)) > 3
    before = metadata_files(lake)
    with lake.catalog.load_table(T).transaction() as change:
        change.set_properties({"write.metadata.delete-after-commit.enabled": "True"})
    for number in (3, 4):
        lake.append(T, [{"id": number}])
    rewrite(lake)
    assert named_metadata_files(lake) <= metadata_files(lake)
    assert len(metadata_files(lake) - before) == 3


def metadata_files(lake):
    return {path.name for path in files(lake, "*.metadata.json")}


def named_metadata_files(lake):
    table = lake.catalog.load_table(T)
    locations = [table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)]
    return {location.rpartition("/")[2] for location in locations}


def test_empty_folders_of_a_table_are_none(lake):
    table_of(lake, [1], [2])
    others = lake.catalog.load_table(T).properties
    lake.edit_metadata(T, {"properties": others | {"write.data.path": "", "write.metadata.path": ""}})
    metadata = IcebergTable.load(lake.catalog, T).metadata
    assert metadata.data_folder == f"{metadata.location}/data"
    assert metadata.metadata_folder == f"{metadata.location}/metadata"


def test_the_table_says_how_often_and_how_long_it_is_tried(lake):
    def refused(number):
        raise CommitFailedException("somebody was faster")

    for name, value, commits in (("num-retries", "2", 3), ("total-timeout-ms", "0", 1)):
        table_of(lake, [1], [2], **{f"commit.retry.{name}": value})
        catalog = hooked(lake, before=refused)
        with pytest.raises(ConflictError, match=r"other commits came first, again and again \(.*somebody was faster"):
            rewrite(lake, catalog)
        assert catalog.commits == commits
        lake.catalog.drop_table(T)


def test_a_table_that_is_replaced_before_our_commit_keeps_the_new_rows(lake):
    """As `create or replace table` does: the table keeps its id, and its head is gone, then another."""
    table_of(lake, [1], [2])

    def replaced():
        table = lake.catalog.load_table(T)
        lake.catalog.commit_table(table, (), (RemoveSnapshotRefUpdate.model_validate({"ref-name": "main"}),))

    result = rewrite(lake, hooked(lake, before=first_only(replaced)))
    assert (result.snapshots, result.redone, files(lake, "*-deltacompact.parquet")) == ([], 0, set())
    assert lake.state(T).snapshot is None
    lake.append(T, [{"id": 7}])
    assert ids(lake) == [7]


def test_a_branch_that_is_dropped_or_moved_before_our_commit(lake):
    state = table_of(lake, [1], [2])

    def manage(act):
        return first_only(lambda: act(lake.catalog.load_table(T).manage_snapshots()).commit())

    manage(lambda table: table.create_branch(state.snapshot_id, "audit"))(1)
    before = files(lake, "*.parquet")
    with pytest.raises(NotFoundError, match="has no branch 'audit'"):
        rewrite(lake, hooked(lake, before=manage(lambda table: table.remove_branch("audit"))), "audit")
    assert files(lake, "*.parquet") == before
    manage(lambda table: table.create_branch(state.snapshot_id, "audit"))(1)

    def fast_forward():
        lake.append(T, [{"id": 3}])
        head = lake.state(T).snapshot_id
        lake.catalog.load_table(T).manage_snapshots().remove_branch("audit").create_branch(head, "audit").commit()

    rewrite(lake, hooked(lake, before=first_only(fast_forward)), "audit")
    assert (ids(lake, "audit"), ids(lake)) == ([1, 2, 3], [1, 2, 3])


def test_manifests_of_a_snapshot_that_landed_and_was_expired_live_on_when_its_session_is_resumed(lake):
    """Group 0 is committed, group 1 is written, and the process dies. Then others append, and expire snapshots."""
    dead.table_of(lake)
    lake.catalog.load_table(T).transaction().set_properties(QUICK).commit_transaction()
    commits = []

    def die():
        commits.append(1)
        if len(commits) == 2:
            raise dead.Died

    with pytest.raises(dead.Died), dead.dying(lake, dead.Death(-1)):
        dead.rewrite(lake, partial_progress_enabled=True, before_commit=die)
    lake.append(T, [{"id": 100, "day": 0}])
    table = lake.catalog.load_table(T)
    old = [snapshot.snapshot_id for snapshot in table.snapshots()][:-1]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    result = lake.rewrite(T, min_input_files=10)
    assert result.resumed == 1
    assert ids(lake) == [*dead.LIVING, 100]


STEPS = ["load", "draft", "before the commit", "after the commit", "wait", "load again", "discard"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.slow
def test_ctrl_c_at_any_step_leaves_a_table_that_reads_well_and_the_next_run_ends_it(lake, monkeypatch, step):
    table_of(lake, [1], [2])
    catalog = hooked(lake)

    def stop(*_, **__):
        raise KeyboardInterrupt

    def refused(number):
        raise CommitFailedException("somebody was faster")

    with monkeypatch.context() as patch:
        if step == "load":
            reloaded = IcebergTable.reloaded

            def load(table):
                return stop() if list(files(lake, "*-deltacompact.parquet")) else reloaded(table)

            patch.setattr(IcebergTable, "reloaded", load)
        elif step == "draft":
            patch.setattr(committer, "draft_snapshot", stop)
        elif step == "before the commit":
            catalog.before = stop
        elif step == "after the commit":
            catalog.after = stop
        else:
            catalog.before = first_only(lambda: refused(1))
            if step == "wait":
                patch.setattr(committer.Patience, "wait_s", stop)
            elif step == "load again":
                load_table = catalog.load_table
                patch.setattr(catalog, "load_table", lambda name: stop() if catalog.commits else load_table(name))
            else:
                patch.setattr(committer.locations, "discard_all", stop)
        with pytest.raises(KeyboardInterrupt):
            rewrite(lake, catalog)
    assert ids(lake) == [1, 2]
    rewrite(lake)
    state = lake.state(T)
    assert (ids(lake), len(state.data)) == ([1, 2], 1)
    live = {entry.file.path for entry in state.data}
    store = lake.store(T)
    assert all(locations.bytes_of(store, path) for path in live)
    assert {path.as_uri() for path in files(lake, "*-deltacompact.parquet")} >= live


@pytest.mark.parametrize("step", ["what lost attempts wrote", "the work files"])
def test_ctrl_c_after_the_commit_does_not_say_that_nothing_was_committed(lake, monkeypatch, step):
    """The metadata of lost attempts and the session's work files are deleted once the commit has landed."""
    table_of(lake, [1], [2])

    def refused():
        raise CommitFailedException("somebody was faster")

    def stop(*_):
        raise KeyboardInterrupt

    catalog, delete = hooked(lake, before=first_only(refused)), LocalStore.delete
    with monkeypatch.context() as patch:
        if step == "what lost attempts wrote":
            patch.setattr(committer.locations, "discard_all", stop)
        else:
            patch.setattr(
                LocalStore,
                "delete",
                lambda store, paths: stop() if any("/work-" in path for path in paths) else delete(store, paths),
            )
        with pytest.raises(Interrupted, match=r"committed.*ompact again: it clears what is left") as caught:
            rewrite(lake, catalog)
    assert "not committed" not in str(caught.value)
    assert (ids(lake), len(lake.state(T).data)) == ([1, 2], 1)
    assert rewrite(lake).redone == 0
    assert ids(lake) == [1, 2]


def test_a_store_that_refuses_deletes_hinders_no_commit(lake, monkeypatch):
    """Work files are deleted after each commit, the journal after the last one."""
    table_of(lake, [1], [2])
    lake.delete_by_key(T, {"id": [1]})

    def refused(store, paths):
        raise InputError("S3 refused access (AccessDenied)")

    options = {"partial-progress.enabled": "true", "max-file-group-size-bytes": "1", "rewrite-all": "true"}
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "delete", refused)
        result = deltacompact.open_catalog(lake.catalog).rewrite(T, options=options, settings=SETTINGS)
    assert len(result.snapshots) == 2
    assert any("is to be cleared by the next run: S3 refused access" in note for note in result.notes)
    assert ids(lake) == [2]
    rewrite(lake)
    assert not files(lake, "work-*/*") and not files(lake, "plan.json")
