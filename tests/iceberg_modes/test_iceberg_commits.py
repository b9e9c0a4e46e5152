"""Commits under live writers, real catalogs and real races: no row is lost, none comes back, and no work is done twice
that need not be."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conversions import once
from iceberg_lake import SETTINGS
from live_writers import losing, racing, writing
from plan_json import plan_to_json
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError, UnauthorizedError
from table_t import ids, rows

from deltacompact.base.errors import ConflictError, CredentialsError, InputError, Interrupted, OutcomeUnknownError
from deltacompact.iceberg.table.metadata import MAIN
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.driver import ModeRun
from deltacompact.iceberg_modes.modes import REWRITE
from deltacompact.iceberg_modes.rewrite.options import rewrite_options

T = "ns.t"
ID = pa.schema([("id", pa.int64())])
DAY_ID = pa.schema([("id", pa.int64()), ("day", pa.int32())])


def table_of(lake, *appends):
    lake.create(T, ID)
    for numbers in appends:
        lake.append(T, rows(*numbers))
    return lake.state(T)


def set_properties(lake, properties):
    lake.catalog.load_table(T).transaction().set_properties(properties).commit_transaction()


def rewrite_all(lake, **options):
    return lake.rewrite(T, **{"rewrite_all": True} | options)


def test_an_append_meanwhile_costs_no_work(lake):
    table_of(lake, [1, 2], [3])
    result = rewrite_all(lake, before_commit=lambda: lake.append(T, rows(4)))
    assert (result.groups, result.redone, len(result.snapshots)) == (1, 0, 1)
    assert ids(lake) == [1, 2, 3, 4]


def test_a_summary_counts_what_came_went_and_is_left(lake):
    before = table_of(lake, [1, 2], [3], [4, 5])
    first, *_ = (entry.file.path for entry in before.data)
    lake.delete_by_position(T, {first: [0]})
    lake.append(T, rows(6))
    rewrite_all(lake, max_files_to_rewrite=3, delete_file_threshold=1)
    summary = lake.catalog.load_table(T).current_snapshot().summary
    counts = {name: summary[name] for name in summary.additional_properties if "-size" not in name and "." not in name}
    assert counts == {
        "added-data-files": "1",
        "added-records": "4",
        "deleted-data-files": "3",
        "deleted-records": "5",
        "removed-delete-files": "1",
        "removed-position-delete-files": "1",
        "removed-position-deletes": "1",
        "changed-partition-count": "1",
        "total-data-files": "2",
        "total-delete-files": "0",
        "total-records": "5",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }


def test_a_writer_that_commits_all_the_time_does_not_starve_us(lake):
    table_of(lake, *([number] for number in range(4)))
    with writing(lake, T) as writer:
        result = rewrite_all(lake, before_commit=once(writer.begin))
    assert (result.groups, result.redone) == (1, 0)
    assert ids(lake) == [0, 1, 2, 3, *writer.appended]


def test_rule_06_an_equality_delete_that_would_not_follow_makes_its_group_be_done_again(lake):
    table_of(lake, [1, 2], [3])
    others = once(lambda: lake.delete_by_key(T, {"id": [1]}))
    result = rewrite_all(lake, before_commit=others, use_starting_sequence_number=False)
    assert (result.groups, result.redone) == (1, 1)
    assert ids(lake) == [2, 3]
    assert lake.state(T).deletes == ()


def test_rule_06_only_the_group_that_was_touched_is_done_again(lake):
    lake.create(T, DAY_ID)
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_identity("day")
    lake.append(T, [{"id": number, "day": number % 2} for number in range(10)])
    others = once(lambda: lake.delete_by_key(T, {"id": [1]}, (1,)))
    result = rewrite_all(lake, before_commit=others, use_starting_sequence_number=False)
    assert (result.groups, result.redone, len(result.snapshots)) == (2, 1, 2)
    assert ids(lake) == [0, 2, 3, 4, 5, 6, 7, 8, 9]


def test_a_group_that_is_touched_again_and_again_is_given_up(lake):
    state = table_of(lake, [1, 2, 3, 4, 5, 6])
    keys = iter(range(1, 10))
    before = state.data
    others = lambda: lake.delete_by_key(T, {"id": [next(keys)]})  # noqa: E731
    with pytest.raises(ConflictError, match="another commit deleted rows of the group by key") as caught:
        rewrite_all(lake, before_commit=others, use_starting_sequence_number=False)
    assert "\n" not in str(caught.value)
    assert lake.state(T).data == before
    outputs = [path for path in Path(lake.folder, "warehouse").rglob("*-deltacompact.parquet")]
    assert outputs == []


def test_rule_23_rows_do_not_resurrect_when_a_replace_turns_an_equality_delete_into_positions(lake):
    """R plans a at 1. E (2) deletes id 2. A converter commits, as `replace`: E removed, P on a added. R commits."""
    state = table_of(lake, [1, 2, 3, 4, 5, 6])
    path = state.data[0].file.path

    def convert():
        lake.delete_by_key(T, {"id": [2]})
        lake.convert(T, {path: [1]}, operation="replace")

    result = rewrite_all(lake, before_commit=once(convert))
    assert (result.redone, result.dead_meanwhile) == (0, 1)
    assert ids(lake) == [1, 3, 4, 5, 6]


def test_rule_09_an_equality_delete_is_kept_for_data_that_another_compactor_brought(lake):
    """While we plan to remove E (2) as dangling, data with the sequence number 1 is committed again."""
    table_of(lake, [1, 2])
    lake.delete_by_key(T, {"id": [2, 9]})

    def bring_older_data():
        lake.add_data(T, rows(9, 10), sequence_number=1)

    result = rewrite_all(lake, before_commit=bring_older_data)
    assert result.delete_files_removed == 0
    assert len(lake.state(T).deletes) == 1
    rewrite_all(lake)
    assert ids(lake) == [1, 10]


def test_rule_07_the_planned_snapshot_may_be_expired_meanwhile(lake):
    state = table_of(lake, [1, 2], [3])
    planned = state.snapshot_id

    def expire():
        lake.append(T, rows(4))
        lake.catalog.load_table(T).maintenance.expire_snapshots().by_id(planned).commit()

    rewrite_all(lake, before_commit=expire)
    assert planned not in IcebergTable.load(lake.catalog, T).metadata.snapshots
    assert ids(lake) == [1, 2, 3, 4]
    assert min(entry.sequence for entry in lake.state(T).data) == state.sequence_number


def test_a_rollback_meanwhile_brings_deleted_rows_back_and_we_do_not_delete_them(lake):
    table_of(lake, [1, 2])
    before = lake.state(T).snapshot_id
    lake.delete_by_key(T, {"id": [2]})

    def roll_back():
        lake.catalog.load_table(T).manage_snapshots().rollback_to_snapshot(before).commit()

    result = rewrite_all(lake, before_commit=once(roll_back))
    assert result.redone == 1
    assert ids(lake) == [1, 2]


def test_of_two_rewrites_one_wins(lake):
    table_of(lake, [1, 2], [3])
    same = lake.prepared(T, rewrite_all=True)
    document = plan_to_json(same.plan())
    result = rewrite_all(lake, before_commit=once(lambda: same.run(document)))
    assert ids(lake) == [1, 2, 3]
    assert result.redone == 0, "nothing of it was left to do"
    assert len(lake.state(T).data) == 1


def test_a_commit_on_another_branch_meanwhile_costs_one_attempt(lake):
    state = table_of(lake, [1, 2])
    lake.catalog.load_table(T).manage_snapshots().create_branch(state.snapshot_id, "audit").commit()
    rewrite_all(lake, before_commit=lambda: lake.append(T, rows(9), branch="audit"))
    assert ids(lake) == [1, 2]
    assert sorted(row["id"] for row in lake.rows(T, "audit")) == [1, 2, 9]


def test_manifests_of_refused_attempts_are_deleted(lake):
    table_of(lake, [1, 2])
    named = racing(lake, lambda: lake.append(T, rows(500)))
    ModeRun(
        IcebergTable.load(named, T), MAIN, rewrite_options({"rewrite-all": "true"}, {}), SETTINGS, mode=REWRITE
    ).run()
    assert ids(lake) == [1, 2, 500]
    reachable = _reachable_metadata(lake)
    stored = {path.name for path in Path(lake.folder, "warehouse").rglob("*.avro")}
    assert stored == reachable


def _rewrite_with(catalog):
    return ModeRun(
        IcebergTable.load(catalog, T), MAIN, rewrite_options({"rewrite-all": "true"}, {}), SETTINGS, mode=REWRITE
    ).run()


@pytest.mark.parametrize("carried_out", [True, False])
def test_rule_20_a_lost_reply_is_resolved_by_the_snapshot_id(lake, carried_out):
    table_of(lake, [1, 2], [3])
    catalog = losing(lake, carried_out)
    result = _rewrite_with(catalog)
    assert catalog.asked == (1 if carried_out else 2)
    state = lake.state(T)
    assert result.snapshots == [state.snapshot_id]
    assert (result.files_in, result.files_out, len(state.data)) == (2, 1, 1)
    assert ids(lake) == [1, 2, 3]


def test_rule_20_an_unknown_commit_deletes_nothing(lake):
    table_of(lake, [1, 2], [3])
    with pytest.raises(OutcomeUnknownError, match="did not say whether snapshot") as caught:
        _rewrite_with(losing(lake, carried_out=True, answers_again=False))
    assert "\n" not in str(caught.value)
    assert ids(lake) == [1, 2, 3]
    assert len(lake.state(T).data) == 1


def test_a_catalog_that_never_answers_is_asked_a_few_times(lake):
    class Silent(SqlCatalog):
        asked = 0

        def commit_table(self, table, requirements, updates):
            self.asked += 1
            raise ConnectionError("connection reset")

    table_of(lake, [1, 2], [3])
    set_properties(lake, {"commit.retry.min-wait-ms": "0"})
    before = lake.state(T)
    catalog = Silent(lake.name, uri=f"sqlite:///{lake.database}", warehouse=lake.warehouse)
    with pytest.raises(OutcomeUnknownError, match="did not say whether snapshot"):
        _rewrite_with(catalog)
    assert catalog.asked == 8
    assert lake.state(T).snapshot == before.snapshot
    assert len(list(Path(lake.folder, "warehouse").rglob("*-deltacompact.parquet"))) == 1  # it may be named one day


def test_ctrl_c_during_a_commit_deletes_nothing(lake):
    class Slow(SqlCatalog):
        def commit_table(self, table, requirements, updates):
            super().commit_table(table, requirements, updates)
            raise KeyboardInterrupt

    table_of(lake, [1, 2], [3])
    catalog = Slow(lake.name, uri=f"sqlite:///{lake.database}", warehouse=lake.warehouse)
    with pytest.raises(Interrupted, match="did not say whether snapshot"):
        _rewrite_with(catalog)
    assert ids(lake) == [1, 2, 3]
    assert len(lake.state(T).data) == 1


def test_a_commit_that_is_not_allowed_leaves_nothing(lake):
    class Closed(SqlCatalog):
        def commit_table(self, table, requirements, updates):
            raise ForbiddenError("no write access")

    table_of(lake, [1, 2], [3])
    before = {path for path in Path(lake.folder, "warehouse").rglob("*") if path.is_file()}
    catalog = Closed(lake.name, uri=f"sqlite:///{lake.database}", warehouse=lake.warehouse)
    with pytest.raises(InputError, match=r"ns\.t: the catalog refuses the commit: no write access"):
        _rewrite_with(catalog)
    assert {path for path in Path(lake.folder, "warehouse").rglob("*") if path.is_file()} == before


def test_a_token_that_expired_leaves_what_was_written_to_the_next_run(lake):
    """The catalog says so of the commit, and of the look that follows it."""

    class Expired(SqlCatalog):
        def commit_table(self, table, requirements, updates):
            self.load_table = self._refuse
            return self._refuse()

        def _refuse(self, *asked):
            raise UnauthorizedError("the token has expired")

    table_of(lake, [1, 2], [3])
    catalog = Expired(lake.name, uri=f"sqlite:///{lake.database}", warehouse=lake.warehouse)
    with pytest.raises(CredentialsError, match=r"ns\.t: the catalog refuses the commit: the token has expired"):
        _rewrite_with(catalog)
    written = set(Path(lake.folder, "warehouse").rglob("*-deltacompact.parquet"))
    assert (rewrite_all(lake, min_input_files=2, rewrite_all=False).resumed, len(written)) == (1, 1)
    assert {Path(entry.file.path.removeprefix("file://")) for entry in lake.state(T).data} == written
    assert ids(lake) == [1, 2, 3]


def test_a_table_that_was_upgraded_from_version_1_has_sequence_number_0(lake):
    """Outputs of its first files have the number 0 too, and an equality delete that comes meanwhile applies to them."""
    lake.create(T, ID, properties={"format-version": "1"})
    lake.append(T, rows(1, 2))
    lake.append(T, rows(3))
    with lake.catalog.load_table(T).transaction() as change:
        change.upgrade_table_version(2)
    assert {entry.sequence for entry in lake.state(T).data} == {0}
    rewrite_all(lake, before_commit=lambda: lake.delete_by_key(T, {"id": [2]}))
    state = lake.state(T)
    assert (state.data[0].sequence_number, len(state.deletes)) == (0, 1)
    rewrite_all(lake)
    assert ids(lake) == [1, 3]


def _reachable_metadata(lake):
    table = lake.catalog.load_table(T)
    lists = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
    found = {
        manifest.manifest_path for snapshot in table.metadata.snapshots for manifest in snapshot.manifests(table.io)
    }
    return {path.rpartition("/")[2] for path in lists | found}


def test_a_later_rewrite_of_the_result_reads_it_well(lake):
    """Outputs of one rewrite are inputs of the next, with deletes in between."""
    table_of(lake, range(100), range(100, 200))
    for number in range(3):
        rewrite_all(lake)
        lake.delete_by_key(T, {"id": [number, 100 + number]})
        path = lake.state(T).data[0].file.path
        lake.delete_by_position(T, {path: [50]})
    rewrite_all(lake)
    stored = pq.read_table(lake.state(T).data[0].file.path.removeprefix("file://"), partitioning=None)
    assert stored.num_rows == len(ids(lake)) == 200 - 6 - 3
