"""What a feed opens: files that changed, and no others; what it leaves behind: nothing.

The lake's files lie in a folder, and pyarrow opens them there: those that must not be opened are taken away.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from iceberg_lake import SETTINGS, Lake

import deltacompact
from deltacompact import InputError, NotFoundError, Settings
from deltacompact.base.limits import LIMITS, READ_LIMITS
from deltacompact.base.model import Partition
from deltacompact.change_feed.candidates import Candidates
from deltacompact.change_feed.changes import stream_changes
from deltacompact.change_feed.delta_streams import StreamFileRows, StreamRange
from deltacompact.change_feed.request import ChangesRequest
from deltacompact.iceberg.table.locations import readable
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.reading import live_rows
from deltacompact.reading.skipping import NOTHING_SKIPPED
from deltacompact.steps.hash_bucket import hash_bucket
from deltacompact.storage.memory import MemoryStore
from deltacompact.tabular import parquet_read

T = "ns.t"
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
LOCAL = Settings(executor="local", local_threads=1)


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """Folders of this machine are made here, and nothing is left in it."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    yield tmp_path / "scratch"
    assert list((tmp_path / "scratch").iterdir()) == []


def told(reader, *names):
    rows = reader.read_all().to_pylist()
    return sorted(tuple(row[name] for name in (*names, "_change_type")) for row in rows)


def branch(lake, version=2, files=4):
    lake.create(T, COLUMNS, version=version)
    for number in range(files):
        lake.append(T, [{"id": 10 * number + row, "v": "old"} for row in range(3)])
    return deltacompact.open_catalog(lake.catalog).table(T)


def take_away(paths):
    for path in paths:
        os.rename(path, f"{path}.away")


def local(path: str) -> str:
    return readable(path).removeprefix("file://")


@pytest.mark.parametrize("version", [2, 3])
def test_files_with_equal_state_at_both_ends_are_never_opened(lake, version):
    table = branch(lake, version)
    begin = table.history()[-1].snapshot_id
    lake.delete_by_key(T, {"id": [11]})
    table.compact("convert", settings=SETTINGS)  # a vector in version 3, positions in version 2
    lake.append(T, [{"id": 99, "v": "new"}])
    state = lake.state(T)
    untouched = [e.file.path for e in state.data if e.file.path not in str([d.file for d in state.deletes])]
    untouched = [path for path in untouched if not _has(path, 99)]
    assert len(untouched) == 3
    take_away(map(local, untouched))
    assert told(table.changes(begin), "id") == [(11, "delete"), (99, "insert")]


def test_deleted_keys_are_looked_up_in_the_key_index(lake):
    """Of four files that may have the key, only the one that has it is opened, and a newer one that has no entries."""
    lake.create(T, COLUMNS, properties={"deltacompact.key-index.enabled": "true"})
    for number in range(4):
        lake.append(T, [{"id": 10 * row + number, "v": "old"} for row in range(3)])
    table = deltacompact.open_catalog(lake.catalog).table(T)
    lake.delete_by_key(T, {"id": [3]})
    table.compact("convert", settings=SETTINGS)  # it enters the four files
    lake.append(T, [{"id": 1, "v": "new"}, {"id": 11, "v": "newer"}])
    begin = table.history()[-1].snapshot_id
    lake.delete_by_key(T, {"id": [11]})
    indexes = [path for path in lake.folder.rglob("*") if "deltacompact-index" in str(path) and path.is_file()]
    take_away(local(e.file.path) for e in lake.state(T).data if not _has(e.file.path, 11))
    assert told(table.changes(begin), "id", "v") == [(11, "newer", "delete"), (11, "old", "delete")]
    now = [path for path in lake.folder.rglob("*") if "deltacompact-index" in str(path) and path.is_file()]
    assert indexes and sorted(now) == sorted(indexes), "a reader leaves it as it is"
    for path in indexes:
        path.write_bytes(b"damaged")
    for path in lake.folder.rglob("*.away"):
        path.rename(str(path).removesuffix(".away"))
    assert told(table.changes(begin), "id", "v") == [(11, "newer", "delete"), (11, "old", "delete")]


def _has(path: str, id_: int) -> bool:
    import pyarrow.parquet as pq

    return id_ in pq.read_table(local(path))["id"].to_pylist()


def spoil_all_but_ends(path):
    """The row groups between the first and the last cannot be read any more."""
    import pyarrow.parquet as pq

    footer = pq.read_metadata(path)
    chunks = [footer.row_group(group).column(0) for group in (1, footer.num_row_groups - 1)]
    begin, end = (chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks)
    with open(path, "r+b") as file:
        file.seek(begin)
        file.write(bytes(end - begin))


@pytest.mark.parametrize("version", [2, 3])
def test_row_groups_without_a_changed_row_are_not_read(lake, tmp_path, version):
    import pyarrow.parquet as pq
    from version_3 import delete_by_vector

    lake.create(T, COLUMNS)
    data = pa.table({"id": range(100), "v": ["x"] * 100}).cast(lake.catalog.load_table(T).schema().as_arrow())
    pq.write_table(data, tmp_path / "x.parquet", row_group_size=10)
    lake.adopt(T, tmp_path / "x.parquet")
    if version == 3:
        lake.upgrade(T)
    table = deltacompact.open_catalog(lake.catalog).table(T)
    begin = table.history()[-1].snapshot_id
    (path,) = (entry.file.path for entry in lake.state(T).data)
    (delete_by_vector if version == 3 else Lake.delete_by_position)(lake, T, {path: [3, 95]})
    spoil_all_but_ends(local(path))
    assert told(table.changes(begin), "id") == [(3, "delete"), (95, "delete")]
    with pytest.raises(InputError):
        table.scan().read_all()


def test_row_groups_of_a_stream_without_a_changed_row_are_not_read(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    table = catalog.create_table("t", primary_keys=["id"])
    table.append(pa.table({"id": range(100), "v": ["x"] * 100}))
    table.compact(settings=Settings(executor="local", local_threads=1, row_group_rows=10))
    (file,) = catalog.state("t", Partition()).compacted.files
    spoil_all_but_ends(tmp_path / "lake" / file.path)
    found = Candidates(StreamFileRows(catalog.store, file, Partition(), READ_LIMITS), False).only([3, 95])
    ((numbers, rows), (more, others)) = found.file.tables(pa.schema([("id", pa.int64())]), found.bits, NOTHING_SKIPPED)
    assert ([*numbers, *more], [*rows["id"].to_pylist(), *others["id"].to_pylist()]) == ([3, 95], [3, 95])


def test_files_on_both_sides_are_decoded_once(lake, monkeypatch):
    """Rows that fit the memory are held: they are compared with the other side's, and then told."""
    table = branch(lake, files=1)
    begin = table.history()[-1].snapshot_id
    lake.catalog.load_table(T).overwrite(
        pa.table({"id": [0, 1, 2], "v": ["new", "old", "old"]}).cast(lake.catalog.load_table(T).schema().as_arrow())
    )
    decoded = []
    batches = parquet_read.batches

    def counted(source, parquet, columns, *others):
        decoded.append(columns)
        return batches(source, parquet, columns, *others)

    monkeypatch.setattr(parquet_read, "batches", counted)
    assert told(table.changes(begin, key=["id"]), "id", "v") == [(0, "new", "update_after")]
    assert decoded == [["id", "v"]] * 2


def test_a_replace_is_no_change_and_reads_nothing(lake):
    table = branch(lake)
    begin = table.history()[-1].snapshot_id
    table.compact("rewrite", {"rewrite-all": True}, settings=SETTINGS)
    take_away(local(entry.file.path) for entry in lake.state(T).data)
    assert told(table.changes(begin)) == told(table.changes(begin, per_commit=True)) == []


def test_a_vector_that_was_only_written_again_is_no_change(lake):
    table = branch(lake, version=3, files=1)
    lake.delete_by_key(T, {"id": [1]})
    begin = table.history()[-1].snapshot_id
    table.compact("convert", settings=SETTINGS)
    assert told(table.changes(begin)) == told(table.changes(begin, per_commit=True)) == []


@pytest.mark.slow
@pytest.mark.parametrize("memory_bytes", [64, 1 << 30])
def test_files_copied_on_write_give_their_changed_rows_and_no_more(lake, memory_bytes):
    from deltacompact.change_feed.changes import branch_changes

    branch(lake, files=10)
    table = IcebergTable.load(lake.catalog, T)
    begin = table.metadata.branch("main").snapshot_id
    for entry in lake.state(T).data:
        ids = sorted(i for i in range(0, 100) if _has(entry.file.path, i))
        data = pa.table({"id": ids, "v": ["new", *["old"] * (len(ids) - 1)]}).cast(table.metadata.schema)
        file = lake._file(IcebergTable.load(lake.catalog, T), data, entry.file.content, (), None, ())
        lake.commit(IcebergTable.load(lake.catalog, T), [file], operation="overwrite", gone={entry.file.path})
    asked = ChangesRequest(key=["id"], before=True, held_bytes=memory_bytes)
    found = told(branch_changes(IcebergTable.load(lake.catalog, T), "main", begin, None, asked), "v")
    assert found == sorted([("new", "update_after"), ("old", "update_before")] * 10)


@pytest.mark.parametrize("key", [[], ["id"]])
def test_rows_that_a_file_compresses_well_take_no_more_memory_than_others(lake, key):
    """Twelve megabytes of rows in a file of some kilobytes, all of which changed: a megabyte may be held of them."""
    from deltacompact.change_feed.changes import branch_changes

    lake.create(T, COLUMNS)
    rows, held_bytes = 6_000, 1 << 20
    for text in ("old", "new"):
        data = {"id": range(rows), "v": [text.ljust(1_000, str(number % 7)) for number in range(rows)]}
        (lake.append if text == "old" else lake.catalog.load_table(T).overwrite)(
            *([T] if text == "old" else []), pa.table(data).cast(lake.catalog.load_table(T).schema().as_arrow())
        )
    table = IcebergTable.load(lake.catalog, T)
    assert max(entry.file.file_bytes for entry in lake.state(T).data) < 100_000
    begin = deltacompact.open_catalog(lake.catalog).table(T).history()[0].snapshot_id
    reader = branch_changes(table, "main", begin, None, ChangesRequest(key=key, before=True, held_bytes=held_bytes))
    before, held, found = pa.total_allocated_bytes(), [], 0
    for batch in reader:
        found += batch.num_rows
        held.append(pa.total_allocated_bytes() - before)
    decoded = 7 << 20  # a file is one row group, and is decoded as such
    assert found == 2 * rows and max(held) < (decoded if not key else 3 * held_bytes)


def stops_in_the_middle(table, readers):
    """Each reader of changes or rows gives some rows, and is dropped."""
    for reader in (*readers, table.scan()):
        assert reader.read_next_batch().num_rows
    assert table.dataset().head(1).num_rows == 1
    assert len(table.to_duckdb().limit(1).fetchall()) == 1
    assert table.to_polars().head(1).collect().height == 1


def test_a_reader_of_a_branch_that_stops_in_the_middle_leaves_nothing(lake):
    from deltacompact.change_feed.changes import branch_changes

    table = branch(lake)
    begin = table.history()[0].snapshot_id
    lake.delete_by_key(T, {"id": [1]})
    loaded, small = IcebergTable.load(lake.catalog, T), ChangesRequest(key=["id"], held_bytes=64)
    several = branch_changes(loaded, "main", begin, None, small)
    stops_in_the_middle(table, [several, table.changes(begin, per_commit=True), table.changes(begin, bookmark="b")])


def test_columns_and_where_are_those_of_a_view(lake):
    table = branch(lake, files=1)
    begin = table.history()[-1].snapshot_id
    lake.delete_by_key(T, {"id": [0, 1]})
    lake.append(T, [{"id": 0, "v": "new"}, {"id": 1, "v": "old"}, {"id": 5, "v": None}])
    key = {"key": ["id"], "before": True}
    assert told(table.changes(begin, **key), "id") == [(0, "update_after"), (0, "update_before"), (5, "insert")]
    assert told(table.changes(begin, columns=["id"], **key), "id") == [(5, "insert")]
    assert told(table.changes(begin, where="v = 'new'", **key), "id") == [(0, "insert")]
    assert told(table.changes(begin, where="v = 'old'", **key), "id") == [(0, "delete")]
    assert told(table.changes(begin, where=[("id", ">", 3)]), "id") == [(5, "insert")]
    assert told(table.changes(begin, where="v is null and not id in (7, 8)"), "id") == [(5, "insert")]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"columns": ["no"]}, "has no column 'no'"),
        ({"key": ["no"]}, "has no column 'no' for a key"),
        ({"where": "no = 1"}, "there is no column 'no'"),
        ({"where": "id ="}, "where 'id =' cannot be parsed: write it like"),
        ({"where": "id = 'x'"}, "is not an expression about this table"),
        ({"key": ["later"]}, "of the feed has no column 'later', so it cannot be a key"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(lake, asked, message):
    from pyiceberg.types import StringType

    table = branch(lake, files=1)
    begin = table.history()[-1].snapshot_id
    with lake.catalog.load_table(T).update_schema() as change:
        change.add_column("later", StringType())
    with pytest.raises(InputError, match=message):
        table.changes(begin, **asked).read_all()


def test_snapshots_that_are_gone_and_ends_that_do_not_follow_each_other(lake):
    table = branch(lake)
    first, *_, last = [made.snapshot_id for made in table.history()]
    assert told(table.changes(last, first), "id")[0] == (10, "delete")
    with pytest.raises(InputError, match=f"snapshot {first} does not descend from {last}"):
        table.changes(last, first, per_commit=True).read_all()
    with pytest.raises(NotFoundError, match=f"has no snapshot '7' .the oldest that is left: {first}"):
        table.changes("7")
    assert len(told(table.changes("1999-01-01"))) == 12, "a time before the first snapshot: from the beginning"


# Delta streams


@pytest.fixture
def streams(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    table = catalog.create_table("t", primary_keys=["id"])
    for number in range(3):
        table.append(pa.table({"id": [10 * number, 10 * number + 1], "v": ["old"] * 2}))
    table.compact(settings=LOCAL, rows_per_compacted_file=2)
    return catalog


def test_compacted_files_of_a_stream_are_opened_only_where_rows_changed(streams, tmp_path):
    table = streams.table("t")
    table.append(pa.table({"id": [99], "v": ["new"]}))
    table.append(pa.table({"id": [98], "v": ["new"]}))
    files = [file.path for file in streams.state("t", Partition()).compacted.files]
    take_away(str(tmp_path / "lake" / path) for path in files)
    assert told(table.changes("0"), "id") == [(98, "insert"), (99, "insert")]


def test_a_compaction_is_no_change_even_where_the_version_before_is_vacuumed(streams):
    table = streams.table("t")
    table.append(pa.table({"id": [0], "v": ["new"]}))
    table.compact(settings=LOCAL)
    deltacompact.vacuum(streams, "t", age_min_s=0, force=True)
    assert told(table.changes("1"), "id") == []
    (left,) = [info.version for info in table.versions() if info.retained]
    with pytest.raises(NotFoundError, match=f"the oldest version that is left: {left}"):
        table.changes("0")


@pytest.mark.parametrize("cluster_by", [None, "v"])
def test_rows_that_compactions_only_moved_are_not_read(tmp_path, cluster_by, caplog):
    """Rows 3 and 95 of a hundred are updated, each before a compaction. Of both ends, only they are asked for."""
    few = replace(LIMITS, masks_share_of_index=1.0, runs_share_max=10.0)
    how = {"settings": replace(LOCAL, limits=few), "rows_per_compacted_file": 40, "cluster_by": cluster_by}
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    table = catalog.create_table("t", primary_keys=["id"])
    table.append(pa.table({"id": range(100), "v": [f"{7 * row % 100:03}" for row in range(100)]}))
    table.compact(**how)
    for changed in (3, 95):
        table.append(pa.table({"id": [changed], "v": ["new"]}))
        table.compact(**how)
    ends = StreamRange.of(catalog, "t", Partition(), "0", None, READ_LIMITS)
    for interval in (ends, replace(ends, begin=ends.end, end=ends.begin)):
        candidates = interval.net()[0].candidates()
        assert sorted((of_file.is_added, of_file.count) for of_file in candidates) in (
            [(False, 1), (False, 1), (True, 1), (True, 1)],
            [(False, 1), (False, 1), (True, 2)],
            [(False, 2), (True, 1), (True, 1)],
        )
    for path in (tmp_path / "lake" / "t" / "index").rglob("*.masks.arrow"):
        path.write_bytes(b"damaged")
    assert told(table.changes("0"), "id") == [(3, "update_after"), (95, "update_after")]
    assert "where rows moved cannot be read, so they are compared" in caplog.text


def test_a_reader_of_a_stream_that_stops_in_the_middle_leaves_nothing(streams):
    table = streams.table("t")
    table.append(pa.table({"id": list(range(40)), "v": ["x"] * 40}))
    several = stream_changes(streams, "t", "0", None, None, ChangesRequest(before=True, held_bytes=64))
    stops_in_the_middle(table, [several, table.changes("0", per_commit=True), table.changes("0", bookmark="b")])


def test_memory_that_bites_divides_the_work(streams):
    table = streams.table("t")
    table.append(pa.table({"id": list(range(40)), "v": ["x"] * 40}))
    wide = told(stream_changes(streams, "t", "0", None, None, ChangesRequest(before=True)), "id", "v")
    small = told(stream_changes(streams, "t", "0", None, None, ChangesRequest(before=True, held_bytes=64)), "id", "v")
    assert small == wide and len(wide) > 40


def test_nested_values_are_compared_too(tmp_path):
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    table = catalog.create_table("t", primary_keys=["id"])
    type_ = pa.struct([("tags", pa.list_(pa.string())), ("by", pa.map_(pa.string(), pa.float64()))])
    values = [{"tags": ["a", "b"], "by": [("x", 1.0)]}, {"tags": [], "by": None}, None]
    rows = pa.table({"id": [1, 2, 3], "s": pa.array(values, type_)})
    table.append(rows)
    table.compact(settings=LOCAL)
    changed = [{"tags": ["ab"], "by": [("x", 1.0)]}, {"tags": [], "by": None}, {"tags": None, "by": None}]
    table.append(rows.set_column(1, "s", pa.array(changed, type_)))
    assert told(table.changes("0"), "id") == [(1, "update_after"), (3, "update_after")]


def test_partitions_one_after_the_other(tmp_path):
    catalog = deltacompact.open_catalog(Path(tmp_path) / "lake")
    table = catalog.create_table("t", ["day"], ["id"])
    for day in "ab":
        table.append(pa.table({"id": [1], "v": [day]}), {"day": day})
    assert told(table.changes(), "v") == [("a", "insert"), ("b", "insert")]
    assert told(table.changes(partition={"day": "a"}), "v") == [("a", "insert")]
    with pytest.raises(InputError, match="each partition has its own versions, name a partition or a time"):
        table.changes("0")


@pytest.mark.parametrize("per_commit", [False, True])
def test_the_keys_of_each_delta_are_read_once(monkeypatch, per_commit):
    """Each commit's state was folded from the first delta on: 12 commits read 78 deltas, 10,000 fifty million."""
    catalog = deltacompact.DeltaStreamCatalog(MemoryStore())
    table = catalog.create_table("t", primary_keys=["id"])
    for number in range(12):
        table.append(pa.table({"id": [number % 5], "v": [number]}), operation="delete" if number == 7 else "upsert")
    hashed = []
    monkeypatch.setattr(live_rows, "hash_bucket", lambda *given: hashed.extend(given[3]) or hash_bucket(*given))
    rows = table.changes("1970-01-01", per_commit=per_commit, before=True).read_all()
    assert [piece.ordinal for piece in hashed] == list(range(12))
    live = {}
    for row in rows.to_pylist():
        if row["_change_type"] in ("delete", "update_before"):
            assert live.pop(row["id"]) == row["v"]
        else:
            assert row["id"] not in live
            live[row["id"]] = row["v"]
    assert live == {0: 10, 1: 11, 3: 8, 4: 9}
