"""`certify` of a rewrite: only what was read is committed; snapshots with the same rows tell their fingerprint."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from budgets import examples
from conversions import once
from dead_sessions import Death, Died, dying
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from iceberg_lake import CERTIFYING, SETTINGS, Lake
from pyiceberg.table.puffin import PuffinFile
from row_faults import FAULTS

import deltacompact
from deltacompact import CorruptionError, NotFoundError
from deltacompact.base.fingerprint import Fingerprint
from deltacompact.catalog.fingerprints import branch_fingerprints
from deltacompact.iceberg import fingerprints
from deltacompact.iceberg.fingerprints import fingerprint_since, state_fingerprint
from deltacompact.iceberg.live_rows import LiveReader
from deltacompact.iceberg.marks import tasks
from deltacompact.iceberg.marks.standing import MarkedHead
from deltacompact.iceberg.row_map import RowMap
from deltacompact.iceberg.table.metadata import RECORDED_FINGERPRINT
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.table_state import StateReader
from deltacompact.iceberg_modes.driver import ModeRun
from deltacompact.iceberg_modes.modes import known_mode, mode_named
from deltacompact.iceberg_modes.rewrite import certifying, writing
from deltacompact.iceberg_modes.rewrite.validation import RewriteHead
from deltacompact.steps import materialize

T = "ns.t"
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
ALL = {"rewrite-all": True}
UPSERT = {"key-columns": "id", "sort-columns": "v", "trust-row-order": True}


@pytest.fixture
def orders(lake):
    lake.create(T, COLUMNS)
    for first in (0, 3):
        lake.append(T, [{"id": first + number, "v": f"v{number}"} for number in range(3)])
    lake.delete_by_key(T, {"id": [1]})
    return deltacompact.open_catalog(lake.catalog).table(T)


def recorded(lake):
    return lake.state(T).snapshot.summary.get(RECORDED_FINGERPRINT)


@pytest.mark.parametrize("options", [ALL, ALL | {"cluster-by": "v"}], ids=str)
@pytest.mark.slow
def test_a_snapshot_tells_its_fingerprint_and_the_next_keeps_it(lake, orders, options):
    orders.compact(options=options, settings=SETTINGS)
    assert recorded(lake) is None
    orders.compact(options=options, settings=CERTIFYING)
    assert recorded(lake) == str(orders.fingerprint()) and orders.fingerprint().rows == 5
    orders.compact(options=options, settings=SETTINGS)
    assert recorded(lake) == str(orders.fingerprint())
    lake.append(T, [{"id": 9, "v": None}])
    lake.delete_by_key(T, {"id": [9]})
    orders.compact("convert", settings=SETTINGS)
    assert recorded(lake) is None
    lake.append(T, [{"id": 7, "v": None}])
    lake.delete_by_key(T, {"id": [7]})
    orders.compact("convert", settings=CERTIFYING)
    assert recorded(lake) == str(orders.fingerprint())


@pytest.mark.parametrize("version", [2, 3])
def test_an_upsert_tells_what_is_left_and_one_that_finds_nothing_says_the_same(lake, orders, version):
    if version == 3:
        lake.upgrade(T)
    for given_settings in (SETTINGS, CERTIFYING):
        lake.append(T, [{"id": 2, "v": "z"}, {"id": 4, "v": "a"}, {"id": 9, "v": None}])
        orders.compact("upsert", UPSERT, settings=given_settings)
    assert recorded(lake) == str(orders.fingerprint()) and orders.fingerprint().rows == 6
    lake.append(T, [{"id": 5, "v": "z"}])
    orders.compact("upsert", UPSERT, settings=CERTIFYING)
    assert recorded(lake) == str(orders.fingerprint()) and orders.fingerprint().rows == 6
    orders.compact(options=ALL, settings=SETTINGS)
    orders.compact("upsert", UPSERT, settings=SETTINGS)
    assert recorded(lake) == str(orders.fingerprint()) and orders.fingerprint().rows == 6


@pytest.mark.parametrize("mode", ["rewrite", "convert"])
@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_came_and_went_are_added_up_and_no_others_read(lake, orders, version, mode, monkeypatch):
    orders.compact(options=ALL, settings=CERTIFYING)
    first = {entry.file.path for entry in lake.state(T).data}
    lake.append(T, [{"id": 20, "v": "came"}, {"id": 21, "v": "went"}])
    lake.delete_by_key(T, {"id": [0, 21]})
    if version == 3:
        lake.upgrade(T)
    opened = []
    parts = LiveReader.parts
    monkeypatch.setattr(
        LiveReader, "parts", lambda self, files, columns: opened.extend(files) or parts(self, files, columns)
    )
    orders.compact(mode, ALL if mode == "rewrite" else None, settings=CERTIFYING)
    assert sum(file.lives().sum() for file in opened) == 2  # 20 came, 0 went; 21 was in neither state
    assert recorded(lake) == str(orders.fingerprint())
    assert orders.fingerprint().rows == 5
    assert {entry.file.path for entry in lake.state(T).data} & first == (first if mode == "convert" else set())


def opened_by(monkeypatch):
    """The data files that are read to be added up: by tasks of a rewrite, and beside them."""
    inputs, others = [], []
    live, parts = certifying.live_tables, LiveReader.parts
    monkeypatch.setattr(certifying, "live_tables", lambda store, one: inputs.extend(one.slices) or live(store, one))
    monkeypatch.setattr(
        LiveReader, "parts", lambda self, files, columns: others.extend(files) or parts(self, files, columns)
    )
    return inputs, others


@pytest.mark.parametrize("version", [2, 3])
def test_a_file_that_was_added_up_once_is_not_read_for_it_again(lake, orders, version, monkeypatch):
    if version == 3:
        lake.upgrade(T)
    orders.compact("convert", settings=CERTIFYING)
    lake.append(T, [{"id": 20, "v": "came"}])
    inputs, others = opened_by(monkeypatch)
    orders.compact(options=ALL, settings=CERTIFYING)
    assert len(others) == 1, "the file that came is read once, beside the rewrite, which then knows it"
    assert len(inputs) == 1, "the file with a dead row: what it stores is known, what lives of it is not"
    lake.append(T, [{"id": 21, "v": "came"}])
    inputs.clear(), others.clear()
    orders.compact(options=ALL, settings=CERTIFYING)
    assert (len(others), inputs) == (1, [])
    monkeypatch.undo()
    assert recorded(lake) == str(orders.fingerprint()) and orders.fingerprint().rows == 7


def statistics(lake):
    return [Path(statistics.path.removeprefix("file://")) for statistics in lake.state(T).metadata.statistics]


def bit_flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [None, Path.unlink, bit_flipped, lambda path: path.write_bytes(b"x")])
def test_rows_that_went_are_not_read_and_cost_a_full_read_where_nobody_knows_them(lake, orders, damage):
    orders.compact(options=ALL, settings=CERTIFYING)
    (gone,) = (entry.file.path for entry in lake.state(T).data)
    lake.catalog.load_table(T).overwrite(
        pa.table({"id": [1], "v": ["x"]}).cast(lake.catalog.load_table(T).schema().as_arrow())
    )
    Path(gone.removeprefix("file://")).unlink()
    with pytest.MonkeyPatch.context() as patch:
        if damage is None:
            patch.setattr(fingerprints, "state_fingerprint", lambda *given: pytest.fail("all rows are read"))
        else:
            damage(*statistics(lake))
        orders.compact(options=ALL, settings=CERTIFYING)
    assert recorded(lake) == str(orders.fingerprint()) and orders.fingerprint().rows == 1


def test_statistics_of_others_are_not_hidden(lake, orders):
    """Trino looks into the nearest statistics file alone, and knew no distinct count any more."""
    orders.compact(options=ALL, settings=CERTIFYING)
    theirs = lake.state(T).snapshot_id
    file = {"statistics-path": "theirs.stats", "file-size-in-bytes": 9, "file-footer-size-in-bytes": 4}
    lake.edit_metadata(T, {"statistics": [file | {"snapshot-id": theirs, "blob-metadata": []}]})
    lake.append(T, [{"id": 9, "v": "x"}])
    orders.compact(options=ALL, settings=CERTIFYING)
    assert recorded(lake) == str(orders.fingerprint())
    assert [found.path for found in lake.state(T).metadata.statistics] == ["theirs.stats"]


def test_fingerprints_of_files_are_a_puffin_file_that_others_read(lake, orders):
    orders.compact(options=ALL, settings=CERTIFYING)
    (path,) = statistics(lake)
    puffin = PuffinFile(path.read_bytes())
    (blob,) = puffin.footer.blobs
    assert (blob.type, blob.snapshot_id) == ("deltacompact-file-fingerprints-v1", lake.state(T).snapshot_id)
    (row,) = pa.ipc.open_stream(puffin.get_blob_payload(blob)).read_all().to_pylist()
    (entry,) = lake.state(T).data
    assert (row["file"], f"{row['rows']}:{row['sum'].hex()}") == (entry.file.path, recorded(lake))
    (listed,) = lake.catalog.load_table(T).metadata.statistics
    assert listed.file_size_in_bytes == path.stat().st_size and listed.blob_metadata == []
    assert lake.catalog.load_table(T).scan().to_arrow().num_rows == 5


def test_a_file_with_other_rows_than_it_had_when_it_was_added_up_is_found(lake, orders, tmp_path):
    """A disk has changed a letter since. The file is not read again to be added up, so it cannot agree with itself."""
    data = pa.table({"id": [7], "v": ["aaaa"]}).cast(lake.catalog.load_table(T).schema().as_arrow())
    pq.write_table(data, tmp_path / "x.parquet", compression="none", use_dictionary=False, write_statistics=False)
    path = Path(lake.adopt(T, tmp_path / "x.parquet").path.removeprefix("file://"))
    orders.compact("convert", settings=CERTIFYING)
    path.write_bytes(path.read_bytes().replace(b"aaaa", b"aaab"))
    with pytest.raises(CorruptionError, match=r"have the fingerprint .*: nothing is committed"):
        orders.compact(options=ALL, settings=CERTIFYING)


kinds = st.sampled_from(["append", "key", "position", "convert", "upsert", "rewrite", "plain"])
commits = st.lists(st.tuples(kinds, st.integers(0, 9)), max_size=7)


@pytest.mark.slow
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(commits, st.sampled_from([2, 3]))
def test_after_any_history_the_sum_of_what_differs_is_that_of_all_rows(tmp_path_factory, steps, version):
    lake = Lake(tmp_path_factory.mktemp("lake"))
    lake.create(T, COLUMNS)
    lake.append(T, [{"id": number, "v": "a"} for number in range(6)])
    table = deltacompact.open_catalog(lake.catalog).table(T)
    table.compact(options=ALL, settings=CERTIFYING)
    if version == 3:
        lake.upgrade(T)
    for number, (step, which) in enumerate(steps):
        match step:
            case "append":
                lake.append(T, [{"id": which, "v": f"{number}"}, {"id": which, "v": None}])
            case "key":
                lake.delete_by_key(T, {"id": [which]})
            case "position":
                lake.delete_by_position(T, {lake.state(T).data[which % len(lake.state(T).data)].file.path: [0]})
            case "convert":
                table.compact("convert", settings=CERTIFYING)
            case "upsert":
                table.compact("upsert", UPSERT, settings=CERTIFYING)
            case _:
                if not lake.state(T).data:
                    return
                table.compact(options=ALL, settings=CERTIFYING if step == "rewrite" else SETTINGS)
        if not lake.state(T).data:
            return
        loaded, state = IcebergTable.load(lake.catalog, T), lake.state(T)
        expected = state_fingerprint(loaded, state)
        assert fingerprint_since(loaded, state, StateReader(loaded.store)) == expected, steps
        assert recorded(lake) in (None, str(expected)), steps


@pytest.mark.parametrize("options", [ALL, ALL | {"cluster-by": "v"}], ids=str)
def test_nothing_is_committed_of_rows_that_changed_on_the_way(lake, orders, options, monkeypatch):
    before = lake.state(T).snapshot_id
    monkeypatch.setattr(writing, "of_output", lambda *given: Fingerprint(5, 7))
    with pytest.raises(CorruptionError, match=r"what was written of them 5:0+7: nothing is committed"):
        orders.compact(options=options, settings=CERTIFYING)
    assert lake.state(T).snapshot_id == before


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_committed_of_rows_to_which_a_fault_came_on_the_way(lake, orders, fault, monkeypatch):
    before, live_rows = lake.state(T).snapshot_id, materialize._live_rows
    monkeypatch.setattr(materialize, "_live_rows", lambda *given: (fault(rows) for rows in live_rows(*given)))
    with pytest.raises((CorruptionError, AssertionError)):
        orders.compact(options=ALL, settings=CERTIFYING)
    assert lake.state(T).snapshot_id == before


def added_again(lake):
    """Another writer removes a data file, and adds it once more."""
    file = next(entry.file for entry in lake.state(T).data if entry.file.rows == 3)
    lake.commit(IcebergTable.load(lake.catalog, T), [], operation="delete", gone={file.path})
    lake.commit(IcebergTable.load(lake.catalog, T), [file], operation="append")


def run(lake, mode, options, meanwhile, of_settings=CERTIFYING):
    loaded = IcebergTable.load(lake.catalog, T)
    chosen = known_mode(mode).read_options(options, loaded.metadata.properties)
    return ModeRun(loaded, "main", chosen, of_settings, before_commit=once(meanwhile), mode=known_mode(mode)).run()


def fails(lake, why, mode, options, meanwhile=lambda: None):
    heads = []
    with pytest.raises(CorruptionError, match=why + ".*: nothing is committed"):
        run(lake, mode, options, lambda: (meanwhile(), heads.append(lake.state(T).snapshot_id)))
    assert heads == [lake.state(T).snapshot_id]


def first_row_only(self, dead):
    """A fault: of each output, one row less is said to be dead."""
    for output, rows in TRANSLATE(self, dead):
        yield output, rows[:-1]


TRANSLATE = RowMap.translate


def test_marks_of_a_rewrite_that_miss_a_row_are_not_committed(lake, orders, monkeypatch):
    """The row that another writer deleted would live again, and nothing but the marks would know."""
    monkeypatch.setattr(RowMap, "translate", first_row_only)
    where = lake.state(T).data[0].file.path
    fails(lake, "have the fingerprint -1:", "rewrite", ALL, lambda: lake.delete_by_position(T, {where: [1]}))


def test_a_rewrite_that_takes_a_file_away_which_was_added_again_is_not_committed(lake, orders, monkeypatch):
    taken = lambda self, group: [self._data[task.entry.file.path] for task in group.inputs]  # noqa: E731
    monkeypatch.setattr(RewriteHead, "live", taken)
    fails(lake, "have the fingerprint 0:", "rewrite", ALL, lambda: added_again(lake))


def test_a_conversion_whose_marks_hit_other_rows_is_not_committed(lake, orders, monkeypatch):
    with lake.catalog.load_table(T).transaction() as change:
        change.set_properties({"write.delete.granularity": "partition"})
    lake.delete_by_key(T, {"v": ["v2"]})
    monkeypatch.setattr(MarkedHead, "takes", lambda self, mark: True)
    fails(lake, "other rows than the mode says: -[12]:", "convert", {}, lambda: added_again(lake))


@pytest.mark.parametrize("mode", ["convert", "upsert"])
@pytest.mark.parametrize("version", [2, 3])
def test_marks_of_a_row_too_few_are_not_committed(lake, orders, monkeypatch, mode, version):
    if version == 3:
        lake.upgrade(T)
    lake.append(T, [{"id": 2, "v": "z"}, {"id": 4, "v": "z"}])
    positions = tasks._positions_of
    monkeypatch.setattr(tasks, "_positions_of", lambda one, masks: positions(one, masks)[1:])
    fails(lake, "other rows than the mode says: ", mode, UPSERT if mode == "upsert" else {})


def test_after_a_column_went_nothing_is_known(lake, orders):
    orders.compact(options=ALL, settings=CERTIFYING)
    head = lake.state(T).snapshot_id
    with lake.catalog.load_table(T).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("v")
    (found,) = branch_fingerprints(orders._catalog, T, before=head, after=head).states[:1]
    assert found.recorded is None and found.found == orders.fingerprint()
    orders.compact(options=ALL, settings=SETTINGS)
    assert recorded(lake) is None


@pytest.mark.parametrize("mode", ["rewrite", "convert", "upsert"])
def test_a_column_that_goes_between_plan_and_commit_leaves_no_fingerprint_of_rows_with_it(lake, orders, mode):
    """It would look like damage: the snapshot has the schema without the column."""
    lake.append(T, [{"id": 2, "v": "z"}])

    def drop():
        with lake.catalog.load_table(T).update_schema() as update:
            update.delete_column("v")

    options = {"rewrite": ALL, "convert": {}, "upsert": {"key-columns": "id"}}[mode]
    lake.prepared(T, "main", CERTIFYING, mode_named(mode), before_commit=drop, **options).run()
    assert recorded(lake) in (None, str(orders.fingerprint()))
    lake.append(T, [{"id": 20}])
    orders.compact(options=ALL, settings=CERTIFYING)
    assert recorded(lake) == str(orders.fingerprint())
    assert orders.fingerprint().rows == (6 if mode == "upsert" else 7)


def test_a_damaged_fingerprint_is_named(lake, orders):
    orders.compact(options=ALL, settings=CERTIFYING)
    head = lake.state(T).snapshot_id
    table = lake.catalog.load_table(T)
    snapshots = [snapshot.model_dump(mode="json", by_alias=True) for snapshot in table.metadata.snapshots]
    snapshots[-1]["summary"] |= {RECORDED_FINGERPRINT: "5:00f3"}
    lake.edit_metadata(T, {"snapshots": snapshots})
    with pytest.raises(CorruptionError, match=f"snapshot {head} of table 'ns.t' says .* '5:00f3', which is none"):
        branch_fingerprints(orders._catalog, T)


def test_manifests_that_are_written_anew_hold_the_same_rows(lake, orders):
    progress = {"partial-progress.enabled": True, "max-file-group-size-bytes": 1}
    orders.compact(options=ALL | progress, settings=CERTIFYING)
    before = lake.state(T).snapshot_id
    assert recorded(lake) == str(orders.fingerprint())
    orders.maintain(rewrite_manifests=True)
    assert lake.state(T).snapshot_id != before
    assert recorded(lake) == str(orders.fingerprint())


def dies_before_its_commit(lake, mode, options, of_settings):
    """All is written then, and recorded."""
    with dying(lake, death := Death(-1)), pytest.raises(Died):

        def die():
            death.at = death.seen
            death.change("here")

        run(lake, mode, options, die, of_settings)


MODES = [("rewrite", ALL), ("rewrite", ALL | {"cluster-by": "v"}), ("convert", {}), ("upsert", UPSERT)]


@pytest.mark.parametrize("of_dead", [SETTINGS, CERTIFYING], ids=["plain", "certifying"])
@pytest.mark.parametrize(("mode", "options"), MODES)
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.slow
def test_what_a_killed_session_had_written_is_certified_when_it_is_resumed(
    lake, orders, version, mode, options, of_dead
):
    if version == 3:
        lake.upgrade(T)
    lake.append(T, [{"id": 2, "v": "z"}])
    dies_before_its_commit(lake, mode, options, of_dead)
    lake.append(T, [{"id": 20, "v": "came since"}])
    before = orders.fingerprint()
    result = run(lake, mode, options, lambda: None)
    assert result.resumed > 0 and recorded(lake) == str(orders.fingerprint())
    assert orders.fingerprint() == before or (mode, orders.fingerprint().rows) == ("upsert", before.rows - 1)
    ours = [
        snapshot
        for snapshot in lake.catalog.load_table(T).metadata.snapshots
        if snapshot.summary.operation.value != "append"
    ]
    told = [snapshot.summary.additional_properties.get(RECORDED_FINGERPRINT) for snapshot in ours]
    assert None not in told[1:], "the first deleted by key: it is no commit of ours"


def reversed_ids(rows):
    return rows.set_column(0, rows.schema.field(0), rows["id"].take(pa.array(range(rows.num_rows)[::-1])))


@pytest.mark.parametrize(("mode", "options"), MODES[:1] + MODES[2:3])
def test_what_a_killed_session_had_written_of_other_rows_is_not_committed(lake, orders, mode, options):
    """It did not certify, and exchanged values between keys, or marked a row too few."""
    before, positions, live_rows = orders.fingerprint(), tasks._positions_of, materialize._live_rows
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(materialize, "_live_rows", lambda *given: (reversed_ids(rows) for rows in live_rows(*given)))
        broken.setattr(tasks, "_positions_of", lambda one, masks: positions(one, masks)[1:])
        dies_before_its_commit(lake, mode, options, SETTINGS)
    result = run(lake, mode, options, lambda: None)
    assert result.resumed == 0
    assert any("had written would change the rows by " in note for note in result.notes), result.notes
    assert recorded(lake) == str(orders.fingerprint()) == str(before)


def test_nothing_can_be_compared_once_the_rows_before_a_compaction_have_expired(lake, orders):
    """PyIceberg takes the parent away from a snapshot when it expires: `snapshot None` was told."""
    orders.compact(options=ALL, settings=SETTINGS)
    head = lake.state(T).snapshot_id
    orders.maintain(expire_snapshots=True, options={"older-than": "0s", "retain-last": 1})
    with pytest.raises(NotFoundError, match=f"the snapshot that {head} of 'ns.t' compacted has expired"):
        branch_fingerprints(orders._catalog, T)
    orders.compact(options=ALL, settings=SETTINGS)
    report = branch_fingerprints(orders._catalog, T)
    assert report.ok and report.states[0].state == f"snapshot {head}", "with which the next compaction began"
