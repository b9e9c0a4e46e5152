"""One object under several names: whatever a location is spelled like, no file that the table has is deleted."""

from __future__ import annotations

import itertools
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from deltacompact.base.errors import Interrupted
from deltacompact.iceberg.table.locations import folder_identity, identity_of, in_doubt
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.journal.journal import Journal
from deltacompact.iceberg_modes.maintain.maintain import Maintain

T = "ns.t"
DAY_ID = pa.schema([("id", pa.int64()), ("day", pa.int32())])


def folder_of(lake):
    return Path(lake.catalog.load_table(T).location().removeprefix("file://"))


def half_committed(lake):
    """A rewrite with partial progress that is stopped between its two commits."""
    lake.create(T, DAY_ID)
    with lake.catalog.load_table(T).update_spec() as update:
        update.add_identity("day")
    for numbers in (range(4), range(4, 8)):
        lake.append(T, [{"id": number, "day": number % 2} for number in numbers])
    commits = itertools.count()

    def stop_at_the_second():
        if next(commits):
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        lake.rewrite(T, rewrite_all=True, partial_progress_enabled=True, before_commit=stop_at_the_second)


def linked(lake):
    """Another name of the table's folder."""
    link = folder_of(lake).parent / "link"
    link.symlink_to(folder_of(lake))
    return link


RESPELLED = {
    "a path": lambda lake: {"location": str(folder_of(lake))},
    "one slash": lambda lake: {"location": f"file:{folder_of(lake)}"},
    "dots and slashes": lambda lake: {"location": f"file://{folder_of(lake)}//../{folder_of(lake).name}/"},
    "a link": lambda lake: {"location": linked(lake).as_uri()},
    "data path": lambda lake: {"write.data.path": f"{folder_of(lake)}/data"},
    "data path by a link": lambda lake: {"write.data.path": f"file:{linked(lake)}//data/"},
    "other data path": lambda lake: {"write.data.path": f"{folder_of(lake)}/elsewhere"},
    "metadata path": lambda lake: {"write.metadata.path": f"{folder_of(lake)}/more"},
}


def respell(lake, changes):
    if location := changes.pop("location", None):
        lake.edit_metadata(T, {"location": location})
    if changes:
        with lake.catalog.load_table(T).transaction() as change:
            change.set_properties(changes)


@pytest.mark.parametrize("how", RESPELLED)
@pytest.mark.slow
def test_a_resumed_session_deletes_no_committed_file_though_the_location_is_spelled_otherwise(lake, how):
    half_committed(lake)
    respell(lake, RESPELLED[how](lake))
    result = lake.rewrite(T, min_input_files=2)
    assert lake.live_ids(T) == list(range(8))
    assert result.resumed == 1
    assert {Path(entry.file.path).name.rpartition("-")[2] for entry in lake.state(T).data} == {"deltacompact.parquet"}


def test_a_journal_that_a_former_version_finished_deletes_no_committed_file(lake):
    """That version listed committed files as unwanted, and died before it had deleted them."""
    half_committed(lake)
    committed = {entry.file.path for entry in lake.state(T).data if entry.file.path.endswith("-deltacompact.parquet")}
    (plan,) = folder_of(lake).rglob("plan.json")
    lost = folder_of(lake) / f"data/{plan.parent.name}-lost.parquet"
    lost.write_bytes(b"")
    former = Journal.take_over(lake.store(T), plan.parent.name)
    former.finish([*(path.removeprefix("file://") for path in committed), str(lost)])
    former.ended()
    lake.rewrite(T, min_input_files=2)
    assert committed and all(Path(path.removeprefix("file://")).exists() for path in committed)
    assert not lost.exists()
    assert lake.live_ids(T) == list(range(8))


def test_a_folder_beside_the_journals_is_not_ours(lake):
    lake.create(T, DAY_ID)
    lake.append(T, [{"id": 1, "day": 1}])
    foreign = folder_of(lake) / "metadata/deltacompact/notes/a.txt"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    lake.rewrite(T, rewrite_all=True)
    assert foreign.exists()


@pytest.fixture
def two_names(lake, tmp_path):
    """A data file, and the name under which the table has it today: of a host, or of a folder mounted elsewhere."""
    lake.create(T, DAY_ID)
    lake.append(T, [{"id": 1, "day": 1}])
    (entry,) = lake.state(T).data
    file = Path(entry.file.path.removeprefix("file://"))
    mounted = tmp_path / "mounted" / file.name
    mounted.parent.mkdir()
    shutil.copy(file, mounted)
    lake.commit(
        IcebergTable.load(lake.catalog, T),
        [replace(entry.file, path=mounted.as_uri())],
        operation="replace",
        gone={entry.file.path},
    )
    return file


def test_expired_snapshots_take_no_file_that_the_table_may_have_by_another_name(lake, two_names):
    result = expired(lake)
    assert result.in_doubt == (two_names.as_uri(),)
    assert two_names.exists()
    assert result.files.keys() == {"manifests", "manifest lists"}


def test_expired_snapshots_take_no_file_whose_name_leads_nobody_knows_where(lake):
    lake.create(T, DAY_ID)
    lake.append(T, [{"id": 1, "day": 1}])
    (entry,) = lake.state(T).data
    file = Path(entry.file.path.removeprefix("file://")).with_name("other.parquet")
    shutil.copy(entry.file.path.removeprefix("file://"), file)
    names = [f"file://server{file}", f"gs://bucket{file}"]
    for name in names:
        (former,) = lake.state(T).data
        renamed = replace(former.file, path=name)
        lake.commit(IcebergTable.load(lake.catalog, T), [renamed], operation="replace", gone={former.file.path})
    (last,) = lake.state(T).data
    lake.commit(IcebergTable.load(lake.catalog, T), [], operation="delete", gone={last.file.path})
    result = expired(lake)
    assert (result.in_doubt, result.kept_outside) == ((names[0],), 1)
    assert file.exists()


def expired(lake):
    later = int(time.time() * 1000) + 10 * 86_400_000
    return Maintain(IcebergTable.load(lake.catalog, T), now_ms=later).run(expire_snapshots=True).expire_snapshots


def test_all_spellings_of_a_location_are_one_identity(tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "u").symlink_to("t")
    file = f"{tmp_path}/t/day=3%2F4/a b.parquet"
    spellings = [
        file,
        f"file:{file}",
        f"file://{file}",
        f"FILE://localhost{file}",
        f"{tmp_path}//t/./x/../day=3%2F4/a b.parquet",
        f"file://{tmp_path}/u/day=3%2F4/a b.parquet",
    ]
    assert len({identity_of(spelling) for spelling in spellings}) == 1
    assert identity_of(f"{tmp_path}/t/day=3/4/a b.parquet") != identity_of(file)
    assert identity_of("/a") == "file:///a"
    assert folder_identity("/") == "file:///"
    s3 = ["s3://b/t/a b", "s3a://b/t/a b", "S3N://B//t/./a%20b", "s3://b/x/../t/a b"]
    assert {identity_of(spelling) for spelling in s3} == {"s3://b/t/a b"}
    assert {folder_identity(folder) for folder in ("s3://b/t", "s3a://b/t//")} == {"s3://b/t/"}
    assert len({identity_of(other) for other in ("s3://b/t/a", "gs://b/t/a", "hdfs://b/t/a", "/b/t/a")}) == 4


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("gs://b/t/a", "the scheme 'gs'"),
        ("file://server/t/a", "the host 'server'"),
        ("s3://b/t/../a", "a dot as a folder"),
        ("t/a", "a path that does not begin at the root"),
        ("file:///t/a", None),
        ("file:/t/a", None),
        ("file://localhost/t/a", None),
        ("s3a://b/t//a", None),
        ("/t/a", None),
    ],
)
def test_some_names_are_in_doubt(location, why):
    assert in_doubt(location) == why
