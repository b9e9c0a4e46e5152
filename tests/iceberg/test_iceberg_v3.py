"""Format version 3: row ids are handed out as the spec says, carried on, and materialised when a row moves."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from test_iceberg_manifests import DATA, SPEC, TERMS, VECTOR, listed

from deltacompact.base.errors import ConflictError, InputError
from deltacompact.catalog.iceberg.table import manifests
from deltacompact.catalog.iceberg.table.content_files import Entry, ManifestContent, Status
from deltacompact.catalog.iceberg.table.metadata import Snapshot
from deltacompact.catalog.iceberg.table.pyiceberg_door import IcebergTable

T = "ns.t"
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


def rows(*numbers):
    return [{"id": number, "name": f"x{number % 3}"} for number in numbers]


def first_row_ids(lake, branch="main"):
    return {entry.file.path: entry.file.first_row_id for entry in lake.state(T, branch).data}


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
        Entry(Status.EXISTING, 5, 3, 4, replace(DATA, path="data1", rows=25, first_row_id=800)),
        Entry(Status.DELETED, 5, 3, 4, replace(DATA, path="gone", rows=7)),
        Entry(Status.ADDED, 77, None, None, replace(DATA, path="data2", rows=50)),
        Entry(Status.ADDED, 77, None, None, replace(DATA, path="data3", rows=50)),
    ]
    data, line = manifests.write_manifest(entries, SPEC, ManifestContent.DATA, TERMS[3], "m.avro")
    ids = {}
    for first_row_id in (1000, 2000, None):
        read = manifests.read_manifest(data, replace(line, sequence_number=9, first_row_id=first_row_id))
        ids[first_row_id] = [entry.file.first_row_id for entry in read]
    assert ids == {1000: [800, None, 1000, 1050], 2000: [800, None, 2000, 2050], None: [None] * 4}


def test_rule_24_vectors_have_no_row_ids_and_keep_the_rest():
    entries = [Entry(Status.EXISTING, 5, 3, 4, VECTOR)]
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
            table.commit(stale, branch)
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
