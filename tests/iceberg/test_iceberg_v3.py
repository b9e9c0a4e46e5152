"""Format version 3: row ids are handed out as the spec says, carried on, and materialised when a row moves."""

from __future__ import annotations

import json
import random
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlparse

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from budgets import examples
from hand_made_tables import data, state
from hypothesis import given, settings
from iceberg_lake import CERTIFYING, SETTINGS, Lake, local_path
from manifest_entries import DATA, SPEC, TERMS, VECTOR, listed
from pyiceberg.catalog.sql import SqlCatalog
from version_3 import T, add_column, delete_by_vector, known_rows, live_rows, update

import deltacompact
from deltacompact.base.errors import ConflictError, CorruptionError, InputError
from deltacompact.base.settings import Settings
from deltacompact.catalog.iceberg import IcebergCatalog
from deltacompact.iceberg.table import manifests
from deltacompact.iceberg.table.content_files import ManifestContent, ManifestEntry, Status
from deltacompact.iceberg.table.metadata import Snapshot
from deltacompact.iceberg.table.parquet_files import StoredFile, WantedFile, described_each
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg.table.row_lineage import LAST_UPDATED, ROW_ID, lineage_of, with_lineage
from deltacompact.iceberg_modes.modes import CONVERT
from deltacompact.iceberg_modes.rewrite import writing
from deltacompact.iceberg_modes.rewrite.options import rewrite_options
from deltacompact.iceberg_modes.rewrite.plan import plan_rewrite
from deltacompact.iceberg_modes.watching import WatchedBranch
from deltacompact.steps.materialize import materialize
from deltacompact.tabular import field_ids

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


def rows(*numbers):
    return [{"id": number, "name": f"x{number % 3}"} for number in numbers]


def first_row_ids(lake):
    return {entry.file.path: entry.file.first_row_id for entry in lake.state(T).data}


def check_ranges(lake, branch="main"):
    """Every file has row ids of its own, below the next one."""
    state = lake.state(T, branch)
    upcoming = 0
    for first, count in sorted((entry.file.first_row_id, entry.file.rows) for entry in state.data):
        assert first >= upcoming
        upcoming = first + count
    assert upcoming <= state.metadata.next_row_id


# Manifests and manifest lists


def test_manifests_take_row_ids_as_in_the_specs_example():
    """Spec, "Row lineage example": the next row id is 1000."""
    lines = [
        listed("existing", added_rows=75, first_row_id=925),
        listed("added1", added_rows=100, existing_rows=25),
        listed("added2", existing_rows=100),
        listed("deletes", added_rows=9, content=ManifestContent.DELETES),
        listed("added3", added_rows=125, existing_rows=25),
    ]
    numbered, upcoming = manifests.with_row_ids(lines, 1000)
    assert [line.first_row_id for line in numbered] == [925, 1000, 1125, None, 1225]
    assert upcoming == 1375


def test_files_take_row_ids_as_in_the_specs_example():
    """Deleted files take none. Files that have one keep it, also when their manifest is written anew (rule 24)."""
    entries = [
        ManifestEntry(Status.EXISTING, 5, 3, 4, replace(DATA, path="data1", rows=25, first_row_id=800)),
        ManifestEntry(Status.DELETED, 5, 3, 4, replace(DATA, path="gone", rows=7)),
        ManifestEntry(Status.ADDED, 77, None, None, replace(DATA, path="data2", rows=50)),
        ManifestEntry(Status.ADDED, 77, None, None, replace(DATA, path="data3", rows=50)),
    ]
    data, line = manifests.write_manifest(entries, SPEC, ManifestContent.DATA, TERMS[3], "m.avro")
    ids = {}
    for first_row_id in (1000, 2000, None):
        read = manifests.read_manifest(data, replace(line, sequence_number=9, first_row_id=first_row_id))
        ids[first_row_id] = [entry.file.first_row_id for entry in read]
    assert ids == {1000: [800, None, 1000, 1050], 2000: [800, None, 2000, 2050], None: [None] * 4}


def test_rule_24_vectors_have_no_row_ids_and_keep_the_rest():
    entries = [ManifestEntry(Status.EXISTING, 5, 3, 4, VECTOR)]
    data, line = manifests.write_manifest(entries, SPEC, ManifestContent.DELETES, TERMS[3], "m.avro")
    assert manifests.read_manifest(data, replace(line, sequence_number=9)) == entries


def test_snapshots_take_row_ids_one_after_the_other(lake):
    lake.create(T, COLUMNS, version=3)
    lake.append(T, rows(1, 2, 3))
    lake.append(T, rows(4, 5))
    metadata = IcebergTable.load(lake.catalog, T).metadata
    taken = sorted((found.first_row_id, found.added_rows) for found in metadata.snapshots.values())
    assert (taken, metadata.next_row_id) == ([(0, 3), (3, 2)], 5)
    assert sorted(first_row_ids(lake).values()) == [0, 3]


def test_the_first_commit_after_the_upgrade_gives_old_files_row_ids(lake):
    lake.create(T, COLUMNS)
    lake.append(T, rows(1, 2, 3))
    lake.append(T, rows(4, 5))
    lake.upgrade(T)
    assert set(first_row_ids(lake).values()) == {None}
    lake.append(T, rows(6))
    check_ranges(lake)
    assert IcebergTable.load(lake.catalog, T).metadata.next_row_id == 6


# The door to PyIceberg


def test_a_commit_onto_another_branch_takes_our_sequence_number_and_row_ids(lake):
    """PyIceberg itself would let version 3 have the same sequence number twice."""
    lake.create(T, COLUMNS, version=3)
    lake.append(T, rows(1))
    table = IcebergTable.load(lake.catalog, T)
    before = table.metadata.snapshots[table.metadata.refs["main"].snapshot_id]
    loaded = lake.catalog.load_table(T)
    stale = Snapshot(5, before.snapshot_id, 2, before.timestamp_ms, before.manifest_list, 0, before.summary, 1, 0)
    lake.append(T, rows(2))
    for branch in ("main", "audit"):
        with pytest.raises(ConflictError):
            table.commit(stale, branch, staged=[].append)
    assert len(loaded.refresh().metadata.snapshots) == 2


def test_metadata_that_pyiceberg_would_lose_is_refused(lake):
    lake.create(T, COLUMNS)
    lake.upgrade(T, **{"encryption-keys": [{"key-id": "k"}]})
    with pytest.raises(InputError, match=r"'ns\.t' has 'encryption-keys' in its metadata, which PyIceberg 0\.12"):
        IcebergTable.load(lake.catalog, T)


def test_a_table_that_does_not_count_row_ids_is_refused(lake):
    lake.create(T, COLUMNS)
    lake.upgrade(T, **{"next-row-id": None})
    with pytest.raises(InputError, match=r"'ns\.t' has format version 3 but no next-row-id"):
        IcebergTable.load(lake.catalog, T)


def test_an_empty_table_has_nothing_to_do(lake):
    lake.create(T, COLUMNS, version=3)
    lake.edit_metadata(T, {"current-snapshot-id": -1})
    assert lake.rewrite(T).nothing_to_do == "the branch has no data files"
    lake.append(T, rows(1, 2))
    check_ranges(lake)


# Rewriting


def rewrite(lake, **options):
    """Rewrite. Rows, row ids and last updates are as before."""
    before = known_rows(lake, T)
    result = lake.rewrite(T, **{"rewrite_all": True} | options)
    assert known_rows(lake, T) == before
    check_ranges(lake)
    return result


def paths_of(lake):
    return {row.values["id"]: (row.path, row.position) for row in live_rows(lake, T)}


def delete(lake, *numbers):
    """Delete ids by vectors."""
    places = {}
    for path, position in (paths_of(lake)[number] for number in numbers):
        places.setdefault(path, []).append(position)
    delete_by_vector(lake, T, places)


def table_of(lake, *files):
    lake.create(T, COLUMNS, version=3)
    for numbers in files:
        lake.append(T, rows(*numbers))


def test_rule_18_a_data_files_vector_goes_with_it(lake):
    table_of(lake, [1, 2, 3], [4, 5, 6])
    delete(lake, 2, 5)
    delete(lake, 3)
    large = max(lake.state(T).data, key=lambda entry: entry.file.first_row_id)
    result = rewrite(lake, rewrite_all=False, delete_ratio_threshold=0.5, target_file_size_bytes=1 << 10)
    assert (result.files_in, result.delete_files_removed, result.dead_by_position) == (1, 1, 2)
    (left,) = lake.state(T).deletes
    assert left.file.referenced_data_file == large.file.path
    assert rewrite(lake).delete_files_removed == 1
    assert lake.state(T).deletes == ()


def test_rule_18_two_vectors_of_one_data_file_are_refused(lake):
    table_of(lake, [1, 2, 3])
    delete(lake, 2)
    (vector,) = lake.state(T).deletes
    lake.commit(IcebergTable.load(lake.catalog, T), [replace(vector.file, content_offset=5)])
    with pytest.raises(CorruptionError, match=r"\.parquet has two deletion vectors"):
        lake.rewrite(T)


def test_rules_19_and_22_rows_keep_their_lineage_when_they_move(lake):
    """Inherited lineage is stored, stored lineage is copied, and a file may have both."""
    table_of(lake, [1, 2, 3], [4, 5, 6])
    moved = {row.values["id"]: row for row in live_rows(lake, T)}[2]
    changed = [{"id": 2, "name": "new", "_row_id": moved.row_id}, {"id": 7, "name": "inserted"}]
    update(lake, T, {moved.path: [moved.position]}, changed)
    assert {row.values["id"]: row.known[2:] for row in live_rows(lake, T)} == {
        1: (0, 1), 3: (2, 1), 4: (3, 2), 5: (4, 2), 6: (5, 2), 2: (1, 3), 7: (7, 3),
    }  # fmt: skip
    rewrite(lake)
    (entry,) = lake.state(T).data
    stored = pq.read_table(Path(unquote(urlparse(entry.file.path).path)))
    assert stored.schema.field("_row_id").metadata[b"PARQUET:field_id"] == b"2147483540"
    assert stored.schema.field("_last_updated_sequence_number").metadata[b"PARQUET:field_id"] == b"2147483539"
    assert dict(zip(*(stored[name].to_pylist() for name in ("id", "_row_id")), strict=True))[7] == 7
    delete(lake, 4)
    rewrite(lake)


def test_rule_22_a_file_with_stored_lineage_is_copied_and_one_with_nulls_is_not(lake):
    table_of(lake, range(10))
    update(lake, T, {}, [{"id": 20, "name": "new", "_row_id": 3}, {"id": 21, "name": "new"}])
    rewrite(lake, max_file_group_input_files=1)
    update(lake, T, {}, [{"id": 30, "name": "new", "_row_id": 4}, {"id": 31, "name": "new"}])
    lake.append(T, rows(40))
    columns = with_lineage(IcebergTable.load(lake.catalog, T).metadata.schema)
    agree, fills = {}, {}
    for entry in lake.state(T).data:
        stored = StoredFile(entry.file.path, entry.file.rows, entry.file.file_bytes, entry.sequence)
        (file,) = described_each(lake.store(T), [WantedFile(stored, columns, fills=lineage_of(entry))])
        agree[entry.file.rows] = field_ids.agree(file, columns)
        fills[entry.file.rows, file.path] = [fill.column.name for fill in file.fills]
    both = [ROW_ID.name, LAST_UPDATED.name]
    assert sorted(fills.values()) == sorted([[], [], both, both])
    assert agree == {10: True, 2: False, 1: False}


def test_rule_22_files_with_and_without_row_ids_share_no_group():
    entries = [data("a", 1), data("b", 1, first_row_id=5), data("c", 1), data("d", 1, first_row_id=50)]
    plan = plan_rewrite(state(*entries, version=3), rewrite_options({"rewrite-all": "true"}, {}))
    groups = [[source.entry.file.path for source in group.inputs] for group in plan.groups]
    assert groups == [["a", "c"], ["b", "d"]]
    assert [group.has_lineage for group in plan.groups] == [False, True]


@pytest.mark.slow
def test_rule_22_row_groups_are_copied_once_their_lineage_is_stored(lake, monkeypatch):
    copied = []

    def counted(*arguments):
        done = materialize(*arguments)
        copied.append(done.rows_copied)
        return done

    monkeypatch.setattr(writing, "materialize", counted)
    few_rows = Settings(executor="local", local_threads=1, row_group_rows=1000)
    table_of(lake, range(3000), range(3000, 6000))
    rewrite(lake, settings=few_rows)
    lake.append(T, rows(*range(6000, 9000)))
    rewrite(lake, settings=few_rows)
    delete(lake, 1500)
    rewrite(lake, settings=few_rows)
    assert copied == [0, 6000, 8000]


# Tables that were upgraded


def upgraded(lake):
    lake.create(T, COLUMNS)
    lake.append(T, rows(1, 2, 3))
    lake.append(T, rows(4, 5))
    lake.delete_by_position(T, {paths_of(lake)[2][0]: [paths_of(lake)[2][1]]})
    lake.upgrade(T)


def test_rows_of_an_upgraded_table_get_row_ids_by_our_commit(lake):
    upgraded(lake)
    assert {row.known[2:] for row in live_rows(lake, T)} == {(None, None)}
    lake.rewrite(T, rewrite_all=True)
    (entry,) = lake.state(T).data
    assert pq.read_schema(Path(unquote(urlparse(entry.file.path).path))).names == ["id", "name"]
    found = live_rows(lake, T)
    assert sorted(row.values["id"] for row in found) == [1, 3, 4, 5]
    assert len({row.row_id for row in found}) == 4
    check_ranges(lake)
    rewrite(lake)


def test_rule_22_rows_that_got_ids_since_the_plan_keep_them(lake):
    """Another commit after the upgrade gives our inputs row ids: the group is done again, with them."""
    upgraded(lake)
    then = []

    def others():
        if not then:
            lake.append(T, rows(6))
            then.append(known_rows(lake, T))

    result = lake.rewrite(T, rewrite_all=True, before_commit=others)
    assert (result.redone, result.refused) == (1, [])
    assert known_rows(lake, T) == then[0]
    check_ranges(lake)


def test_rule_22_our_own_first_commit_gives_the_other_groups_row_ids(lake):
    """With partial progress the first commit after the upgrade is ours, and the groups of the second are done again."""
    upgraded(lake)
    one_by_one = {"partial_progress_enabled": True, "max_file_group_input_files": 1}
    result = lake.rewrite(T, rewrite_all=True, **one_by_one)
    assert (result.groups, result.redone, len(result.snapshots)) == (2, 1, 2)
    assert sorted(row.values["id"] for row in live_rows(lake, T)) == [1, 3, 4, 5]
    rewrite(lake)


def test_a_manifest_of_before_the_upgrade_is_read_again_once_it_has_row_ids(lake):
    """Another commit between our read and our commit numbers a manifest that we do not touch, and one that we do."""
    lake.create(T, COLUMNS)
    for number in range(3):
        lake.append(T, rows(number))
    lake.upgrade(T)
    paths = paths_of(lake)
    then = []

    def others():
        if not then:
            delete_by_vector(lake, T, {paths[0][0]: [0]})
            then.append(known_rows(lake, T))

    lake.rewrite(T, rewrite_all=True, max_files_to_rewrite=3, max_file_group_input_files=1, before_commit=others)
    assert known_rows(lake, T) == then[0]


# Commits


def test_an_attempt_that_is_late_takes_other_row_ids(lake):
    """Another commit comes between our metadata and its commit: the row ids that we took are gone."""

    class Racing(SqlCatalog):
        races: ClassVar = ["main", "audit"]

        def commit_table(self, table, requirements, updates):
            if self.races:
                lake.append(T, rows(len(self.races) + 10), branch=self.races.pop())
            return super().commit_table(table, requirements, updates)

    table_of(lake, [1, 2], [3])
    branch(lake, "audit")
    catalog = Racing(lake.name, uri=f"sqlite:///{lake.database}", warehouse=lake.warehouse)
    IcebergCatalog(catalog).rewrite(T, {"rewrite-all": "true"}, settings=SETTINGS)
    assert not catalog.races
    assert {row.values["id"]: row.known[2:] for row in live_rows(lake, T)} == {
        1: (0, 1), 2: (1, 1), 3: (2, 2), 11: (4, 4),
    }  # fmt: skip
    check_ranges(lake)
    snapshots = IcebergTable.load(lake.catalog, T).metadata.snapshots.values()
    assert sorted(snapshot.sequence_number for snapshot in snapshots) == [1, 2, 3, 4, 5]


def test_branches_take_row_ids_of_one_table(lake):
    table_of(lake, [1, 2], [3])
    branch(lake, "audit")
    lake.append(T, rows(4), branch="audit")
    lake.append(T, rows(5))
    before = {name: known_rows(lake, T, name) for name in ("main", "audit")}
    assert not set(before["main"] - before["audit"]) & set(before["audit"])
    lake.rewrite(T, branch="audit", rewrite_all=True)
    assert {name: known_rows(lake, T, name) for name in before} == before
    rewrite(lake)
    assert known_rows(lake, T, "audit") == before["audit"]
    lake.append(T, rows(6), branch="audit")
    check_ranges(lake, "audit")
    row_ids = {row.row_id: row.values["id"] for name in before for row in live_rows(lake, T, name)}
    assert sorted(row_ids.values()) == [1, 2, 3, 4, 5, 6]


def branch(lake, name):
    """Create a branch at the head of main."""
    head = {"snapshot-id": lake.state(T).snapshot_id, "type": "branch"}
    lake.edit_metadata(T, {"refs": {"main": head, name: head}})


# Default values


DEFAULTS = {
    "int": 5,
    "string": "ä",
    "double": 1.5,
    "boolean": True,
    "date": "2024-02-29",
    "timestamp": "2024-02-29T10:00:00.000001",
    "decimal(9, 2)": "12.30",
}


@pytest.mark.parametrize("type_", DEFAULTS)
@pytest.mark.slow
def test_default_values_are_filled_in(lake, type_):
    table_of(lake, [1, 2, 3])
    add_column(lake, type_, DEFAULTS[type_])
    column = IcebergTable.load(lake.catalog, T).metadata.columns[3]
    later = [{"id": 4, "name": "x", "added": None}, {"id": 5, "name": "x", "added": column.default.as_py()}]
    lake.append(T, later)
    delete(lake, 2)
    rewrite(lake)
    assert {row.values["id"]: row.values["added"] for row in live_rows(lake, T)} == dict.fromkeys(
        (1, 3, 5), column.default.as_py()
    ) | {4: None}


def test_rule_14_equality_deletes_hit_default_values(lake):
    table_of(lake, [1, 2, 3])
    add_column(lake, "int", 5)
    lake.append(T, [{"id": 4, "name": "x", "added": None}, {"id": 5, "name": "x", "added": 6}])
    lake.delete_by_key(T, {"added": [5], "id": [2]})
    assert rewrite(lake, delete_file_threshold=1).dead_by_key == 1
    lake.delete_by_key(T, {"added": [5]})
    assert rewrite(lake).dead_by_key == 2
    assert sorted(row.values["id"] for row in live_rows(lake, T)) == [4, 5]


def test_nanoseconds_stay(lake):
    table_of(lake, [1])
    add_column(lake, "timestamp_ns", None)
    columns = IcebergTable.load(lake.catalog, T).metadata.schema
    instant = pa.array([1_700_000_000_000_000_001], pa.timestamp("ns"))
    lake.append(T, pa.Table.from_pydict({"id": [2], "name": ["x"], "added": instant}, schema=columns))
    lake.rewrite(T, rewrite_all=True)
    (entry,) = lake.state(T).data
    stored = pq.read_table(Path(unquote(urlparse(entry.file.path).path)))["added"]
    assert stored.cast(pa.int64()).to_pylist() == [None, 1_700_000_000_000_000_001]


@pytest.mark.parametrize("type_", ["unknown", "geometry"])
def test_columns_of_types_that_we_cannot_write_are_refused(lake, type_):
    table_of(lake, [1], [2])
    add_column(lake, type_, None)
    with pytest.raises(InputError, match=rf"^column 'added' of table 'ns\.t' has type {type_}"):
        lake.rewrite(T, rewrite_all=True)


def test_a_default_value_inside_of_a_struct_is_refused(lake):
    table_of(lake, [1], [2])
    child = {"id": 4, "name": "child", "required": False, "type": "int", "initial-default": 5}
    add_column(lake, {"type": "struct", "fields": [child]}, None)
    with pytest.raises(InputError, match=r"^column 'child' of table 'ns\.t' has a default value inside of a struct$"):
        lake.rewrite(T, rewrite_all=True)


@pytest.mark.parametrize("kind", ["struct", "list"])
def test_rows_with_a_default_value_inside_of_a_struct_are_not_read(lake, kind):
    """Files that were written before it would be read with null in it."""
    of_struct = pa.struct([("a", pa.int64())])
    boxed, value = (of_struct, {"a": 7}) if kind == "struct" else (pa.list_(of_struct), [{"a": 7}])
    lake.create(T, pa.schema([("id", pa.int64()), ("s", boxed)]), version=3)
    lake.append(T, [{"id": 1, "s": value}])
    schema = json.loads(lake.catalog.load_table(T).schema().model_dump_json())
    box = schema["fields"][1]["type"]
    fields = box["fields"] if kind == "struct" else box["element"]["fields"]
    fields.append({"id": 9, "name": "b", "required": False, "type": "long", "initial-default": 5})
    lake.edit_metadata(T, {"schemas": [schema | {"schema-id": 1}], "current-schema-id": 1, "last-column-id": 9})
    table = deltacompact.open_catalog(lake.catalog).table(T)
    for read in (table.read, table.fingerprint, lambda: table.read(columns=["s"])):
        with pytest.raises(InputError, match=r"^column 'b' of table 'ns\.t' has a default value inside of a struct$"):
            read()
    assert table.read(columns=["id"]).to_pylist() == [{"id": 1}]
    lake.delete_by_key(T, {"id": [1]})
    with pytest.raises(InputError, match=r"^column 'b'"):  # it reads all columns
        lake.prepared(T, settings=CERTIFYING, mode=CONVERT)
    assert lake.prepared(T, mode=CONVERT).run().snapshots
    assert table.read(columns=["id"]).to_pylist() == []


def test_deletion_vectors_of_one_file_count_their_own_bytes(lake):
    """The file was counted once for each of them."""
    table_of(lake, [1, 2], [3, 4])
    lake.delete_by_key(T, {"id": [1, 3]})
    lake.prepared(T, mode=CONVERT).run()
    state = lake.state(T)
    first, second = (entry.file for entry in state.deletes)
    assert first.path == second.path
    own, data_bytes = first.content_size + second.content_size, sum(entry.file.file_bytes for entry in state.data)
    assert own < first.file_bytes
    assert state.snapshot.summary["added-files-size"] == str(own)
    assert state.snapshot.summary["total-files-size"] == str(data_bytes + own)
    lake.edit_metadata(T, {"snapshots": [stripped(snapshot) for snapshot in stored_snapshots(lake)]})
    assert WatchedBranch(lake.catalog, T, "main").look().new_bytes == data_bytes + own


def stored_snapshots(lake):
    return json.loads(Path(local_path(lake.catalog.load_table(T).metadata_location)).read_text())["snapshots"]


def stripped(snapshot):
    """As if another program had committed it."""
    summary = {name: value for name, value in snapshot["summary"].items() if not name.startswith("deltacompact.")}
    return snapshot | {"summary": summary}


def test_a_column_with_the_name_of_a_lineage_column_is_refused(lake):
    lake.create(T, pa.schema([("_row_id", pa.int64())]), version=3)
    with pytest.raises(InputError, match=r"^column '_row_id' of table 'ns\.t' has a name of row lineage: rename it$"):
        lake.rewrite(T)


# Random histories

NUMBERS = st.integers(0, 2**32)
STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "vector", "update", "key", "rewrite", "race", "small", "upgrade"]), NUMBERS),
    min_size=3,
    max_size=9,
)


class History:
    """A table, and what is known of its rows: id -> name, row id, last update. A row id belongs to one id for ever."""

    def __init__(self, lake):
        self.lake = lake
        self.upcoming = 0
        self.rows = {}
        self.row_ids = {}
        lake.create(T, COLUMNS)
        self.is_3 = False

    def step(self, kind, number):
        chosen = random.Random(number)
        if kind == "upgrade" and not self.is_3:
            self.lake.upgrade(T)
            self.is_3 = True
        elif kind in ("rewrite", "race", "small"):
            self.rewrite(kind, chosen)
        else:
            self.write(kind, chosen)
        self.check()

    def write(self, kind, chosen):
        live = sorted(live_rows(self.lake, T), key=lambda row: row.values["id"])
        some = chosen.sample(live, min(len(live), chosen.randint(1, 4)))
        if kind == "append" or not some:
            new = self.new(chosen.randint(1, 6))
            self.lake.append(T, [{"id": id_, "name": "x"} for id_ in new])
            self.rows |= dict.fromkeys(new, ("x", None, None))
        elif kind == "key":
            ids = [row.values["id"] for row in some]
            self.lake.delete_by_key(T, {"id": ids})
            self.rows = {id_: row for id_, row in self.rows.items() if id_ not in ids}
        elif self.is_3:
            self.mark(kind, some)

    def mark(self, kind, some):
        positions = {}
        for row in some:
            positions.setdefault(row.path, []).append(row.position)
        before = {row.values["id"]: self.rows.pop(row.values["id"]) for row in some}
        if kind == "vector":
            delete_by_vector(self.lake, T, positions)
            return
        name = uuid.uuid4().hex[:4]
        (inserted,) = self.new(1)
        new = [{"id": row.values["id"], "name": name, "_row_id": row.row_id} for row in some]
        update(self.lake, T, positions, [*new, {"id": inserted, "name": name}])
        self.rows |= {id_: (name, row_id, None) for id_, (_, row_id, _) in before.items()}
        self.rows[inserted] = (name, None, None)

    def new(self, count):
        self.upcoming += count
        return range(self.upcoming - count, self.upcoming)

    def rewrite(self, kind, chosen):
        options = {"small": {"target_file_size_bytes": 2000, "min_input_files": 2}, "race": {"rewrite_all": True}}
        races = [chosen.choice(["append", "vector", "update", "key"])] if kind == "race" else []

        def others():
            if races:
                self.write(races.pop(), chosen)

        chosen_options = options.get(kind, {"rewrite_all": True, "max_file_group_input_files": chosen.randint(1, 4)})
        self.lake.rewrite(T, before_commit=others, **chosen_options)

    def check(self):
        """All rows are as known. Lineage that was not known yet is learned, and then must stay."""
        found = {row.values["id"]: row for row in live_rows(self.lake, T)}
        assert found.keys() == self.rows.keys()
        for id_, row in found.items():
            name, row_id, last_updated = self.rows[id_]
            assert row.values["name"] == name
            assert row_id in (None, row.row_id)
            assert last_updated in (None, row.last_updated)
            self.rows[id_] = (name, row.row_id, row.last_updated)
            if row.row_id is not None:
                assert self.row_ids.setdefault(row.row_id, id_) == id_
        if self.is_3 and any(entry.file.first_row_id is not None for entry in self.lake.state(T).data):
            check_ranges(self.lake)


@pytest.mark.slow
@settings(max_examples=examples(10))
@given(STEPS)
def test_random_histories_keep_rows_and_their_lineage(steps):
    with tempfile.TemporaryDirectory() as folder:
        history = History(Lake(Path(folder), f"lake{uuid.uuid4().hex[:8]}"))
        for kind, number in [("append", 1), *steps, ("upgrade", 0), ("update", 3), ("rewrite", 4), ("rewrite", 5)]:
            history.step(kind, number)


# Spark


def spark_rows(spark_lake):
    found = spark_lake.sql(f"select *, _row_id, _last_updated_sequence_number from {{{T}}}").collect()
    return sorted((tuple(row) for row in found), key=repr)


def test_rules_18_19_and_22_spark_sees_the_same_rows_with_the_same_lineage(lake, spark_lake):
    """Spark writes with vectors and stored row ids, reads what we commit, and goes on from there."""
    properties = "'format-version'='3', 'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read'"
    spark_lake.sql(
        f"create table {{{T}}} (id bigint, name string, day date) using iceberg partitioned by (day) "
        f"tblproperties ({properties})"
    )
    for first in (0, 20, 40):
        spark_lake.sql(
            f"insert into {{{T}}} select id, concat('x', id % 3), date_add(date '2024-01-01', cast(id % 2 as int)) "
            f"from range({first}, {first + 20})"
        )
    spark_lake.sql(f"delete from {{{T}}} where id in (3, 25)")
    spark_lake.sql(f"update {{{T}}} set name = 'new' where id % 7 = 1")
    spark_lake.delete_by_key(T, {"id": [4, 5]}, "day=2024-01-01")

    def compact(**options):
        before = spark_rows(spark_lake)
        result = lake.rewrite(T, **{"rewrite_all": True} | options)
        assert spark_rows(spark_lake) == before
        assert known_rows(lake, T) == {row: 1 for row in before}
        check_ranges(lake)
        return result

    assert compact().dead_by_key == 1
    assert lake.state(T).deletes == ()
    for _ in range(2):  # Spark goes on from our commit, and we from Spark's
        ids = {row[-2] for row in spark_rows(spark_lake)}
        taken = lake.state(T).metadata.next_row_id
        spark_lake.sql(f"insert into {{{T}}} select id, 'later', date '2024-01-01' from range(100, 110)")
        new = {row[-2] for row in spark_rows(spark_lake)} - ids
        assert len(new) == 10
        assert min(new) >= taken
        spark_lake.sql(f"delete from {{{T}}} where id in (7, 8, 101)")
        spark_lake.sql(f"update {{{T}}} set name = 'again', day = date '2024-01-02' where id % 5 = 0")
        compact(target_file_size_bytes=3000)
        check_ranges(lake)
    before = spark_rows(spark_lake)
    options = "map('rewrite-all', 'true')"
    spark_lake.sql(f"call {spark_lake.name}.system.rewrite_data_files(table => '{T}', options => {options})")
    assert spark_rows(spark_lake) == before
    spark_lake.sql(f"call {spark_lake.name}.system.rewrite_manifests('{T}')")
    compact()
    assert len({row[-2] for row in spark_rows(spark_lake)}) == len(before)


def test_spark_reads_an_upgraded_table_that_we_rewrote(lake, spark_lake):
    spark_lake.sql(f"create table {{{T}}} (id bigint, name string) using iceberg tblproperties ('format-version'='2')")
    for first in (0, 10):
        spark_lake.sql(f"insert into {{{T}}} select id, 'x' from range({first}, {first + 10})")
    spark_lake.sql(f"alter table {{{T}}} set tblproperties ('format-version'='3')")
    assert {row[-2:] for row in spark_rows(spark_lake)} == {(None, None)}
    lake.rewrite(T, rewrite_all=True)
    after = spark_rows(spark_lake)
    assert sorted(row[0] for row in after) == list(range(20))
    assert sorted(row[-2] for row in after) == list(range(20))
    spark_lake.sql(f"insert into {{{T}}} select id, 'y' from range(20, 30)")
    assert len({row[-2] for row in spark_rows(spark_lake)}) == 30
    check_ranges(lake)
