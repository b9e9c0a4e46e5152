"""Live rows of Iceberg tables, read without writing: every kind of delete, older snapshots, and going back.

The naive reader judges: it reads by the letter of the spec, one row at a time.
"""

from __future__ import annotations

import functools
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from iceberg_lake import Lake
from naive_reader import NaiveReader
from pyiceberg.types import StringType

import deltacompact
from deltacompact import ConflictError, InputError, NotFoundError
from deltacompact.iceberg.live_rows import LiveReader
from deltacompact.iceberg.marks.finding import Sizes

T = "ns.t"
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
TINY = Sizes(keys_per_bucket=1, delete_files_per_task=1, delete_rows_per_task=1, rows_at_once=2)


def table_of(lake: Lake):
    return deltacompact.open_catalog(lake.catalog).table(T)


def named(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "name": [f"n{number}" for number in ids]}, COLUMNS)


def paths(lake: Lake) -> list[str]:
    return [entry.file.path for entry in sorted(lake.state(T).data, key=lambda entry: entry.sequence)]


def ids(table, **selection) -> list[int]:
    return sorted(table.read(**selection)["id"].to_pylist())


@pytest.fixture
def deleted(lake, tmp_path, monkeypatch):
    """Rows 1‥9, of which deletes by key and by position leave 4, 5, 6 and 8, and 2 again."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    lake.create(T, COLUMNS)
    lake.append(T, named(1, 2, 3))
    lake.append(T, named(4, 5, 6))
    lake.delete_by_key(T, {"id": [1, 2, 3, 7]})
    lake.append(T, named(2, 7, 8, 9))
    third = paths(lake)[2]
    lake.delete_by_position(T, {third: [1, 3]})
    yield lake
    assert list((tmp_path / "scratch").iterdir()) == []


def test_all_deletes_are_applied(deleted):
    expected = sorted(row[1] for row in NaiveReader(deleted, T).rows())
    assert ids(table_of(deleted)) == expected == [2, 4, 5, 6, 8]


def test_however_the_work_is_divided(deleted, monkeypatch):
    monkeypatch.setattr("deltacompact.iceberg.scan.LiveReader", functools.partial(LiveReader, sizes=TINY))
    assert ids(table_of(deleted)) == [2, 4, 5, 6, 8]


def test_columns_and_filters(deleted):
    table = table_of(deleted)
    found = table.read(columns=["name"], filter=[("id", ">", 5)]).sort_by("name")
    assert found.to_pylist() == [{"name": "n6"}, {"name": "n8"}]
    assert ids(table, filter=pc.field("name") == "n4") == [4]
    assert sum(batch.num_rows for batch in table.scan(columns=["id"])) == 5
    with pytest.raises(InputError, match="has no column 'no' \\(columns: id, name\\)"):
        table.scan(columns=["no"])
    with pytest.raises(InputError, match="filter"):
        table.read(filter=[("id", ">", "x")])


def test_a_reader_that_stops_in_the_middle_leaves_nothing(deleted):
    reader = table_of(deleted).scan()
    reader.read_next_batch()
    del reader


def test_renamed_and_added_columns_are_found_by_their_ids(deleted):
    with deleted.catalog.load_table(T).update_schema() as change:
        change.rename_column("name", "called")
        change.add_column("more", StringType())
    assert table_of(deleted).read(filter=[("id", "=", 4)]).to_pylist() == [{"id": 4, "called": "n4", "more": None}]


def test_vectors_and_lineage_of_version_3(lake):
    lake.create(T, COLUMNS, version=3)
    lake.append(T, named(1, 2, 3).to_pylist())
    lake.delete_by_key(T, {"id": [2]})
    table = table_of(lake)
    assert ids(table) == [1, 3]
    table.compact("convert", settings=deltacompact.Settings(executor="local"))
    assert [entry.file.is_deletion_vector for entry in lake.state(T).deletes] == [True]
    assert ids(table) == [1, 3] and table.read().schema.names == ["id", "name"]


def test_export(deleted, tmp_path):
    assert table_of(deleted).export(str(tmp_path / "out.parquet")) == 5


def test_an_older_snapshot_by_id_by_tag_and_by_time(deleted):
    table = table_of(deleted)
    history = table.history()
    lives = [[1, 2, 3], [1, 2, 3, 4, 5, 6], [4, 5, 6], [2, 4, 5, 6, 7, 8, 9], [2, 4, 5, 6, 8]]
    assert len(history) == len(lives)
    for made, expected in zip(history, lives, strict=True):
        assert ids(table, as_of=made.snapshot_id) == ids(table, as_of=str(made.snapshot_id)) == expected
        assert ids(table, as_of=made.time) == ids(table, as_of=made.time.isoformat()) == expected
    deleted.catalog.load_table(T).manage_snapshots().create_tag(history[1].snapshot_id, "v1").commit()
    assert ids(table_of(deleted), as_of="v1") == lives[1]
    for as_of, message in (
        ("7", "has no snapshot '7'"),
        ("v2", "has no branch, tag or snapshot 'v2'"),
        ("1999-01-01", "has no snapshot of 1999-01-01"),
        (datetime(1999, 1, 1, tzinfo=UTC), "has no snapshot of 1999-01-01"),
    ):
        with pytest.raises(NotFoundError, match=message) as refused:
            table.read(as_of=as_of)
        assert f"the oldest that is left: {history[0].snapshot_id}" in str(refused.value)


def test_history_says_what_each_snapshot_brought(deleted):
    made = table_of(deleted).history()[1]
    assert (made.operation, made.rows_added, made.files_added, made.files_removed) == ("append", 3, 1, 0)
    assert made.bytes_added and made.session is None
    assert table_of(deleted).history()[2].rows_added is None, "its writer counts nothing"


def test_a_rollback_makes_an_older_snapshot_the_head(deleted):
    table = table_of(deleted)
    history, before = table.history(), ids(table)
    back = table.rollback(history[2].time)
    assert (back.snapshot_id, back.former_head) == (history[2].snapshot_id, history[-1].snapshot_id)
    assert ids(table) == [4, 5, 6]
    assert table.rollback(str(back.former_head)).former_head == back.snapshot_id, "undone"
    assert ids(table) == before
    table.rollback(back.snapshot_id)
    deleted.append(T, named(9))
    assert ids(table) == [4, 5, 6, 9]
    with pytest.raises(InputError, match="does not descend from"):
        table.rollback(str(history[4].snapshot_id))
    with pytest.raises(InputError, match="is the head of branch 'main': nothing came since"):
        table.rollback(table.history()[-1].snapshot_id)
    with pytest.raises(NotFoundError, match="has no branch 'audit'"):
        table.rollback(history[0].snapshot_id, branch="audit")


def test_a_rollback_does_not_drop_a_commit_that_it_did_not_see(deleted, monkeypatch):
    from deltacompact.iceberg.table.pyiceberg_door import IcebergTable

    table = table_of(deleted)
    first = table.history()[0].snapshot_id
    before = IcebergTable.load(deleted.catalog, T)
    deleted.append(T, named(9))
    with pytest.raises(ConflictError):
        before.move("main", first)
    assert 9 in ids(table)


@pytest.mark.parametrize("said", ["sent twice, and 409", "sent twice, and 400", "lost"])
def test_a_rollback_whose_answer_is_lost_is_seen_in_the_table(deleted, monkeypatch, said):
    from deltacompact.iceberg.table.pyiceberg_door import CommitRefusedError, CommitUnansweredError, IcebergTable

    answer = {"sent twice, and 409": ConflictError, "sent twice, and 400": CommitRefusedError}
    table, move = table_of(deleted), IcebergTable.move
    first = table.history()[0].snapshot_id

    def loses(*arguments):
        move(*arguments)
        raise answer.get(said, CommitUnansweredError)(said)

    monkeypatch.setattr(IcebergTable, "move", loses)
    assert table.rollback(first).snapshot_id == first
    assert ids(table) == [1, 2, 3]


def test_a_table_without_a_snapshot_is_empty(lake):
    lake.create(T, COLUMNS)
    assert table_of(lake).read().num_rows == 0 and table_of(lake).history() == []
