"""Orphans of one table may be files of another one: then nothing is deleted, and the other table is named."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import deltacompact
from deltacompact.base.errors import InputError, StoreError
from deltacompact.iceberg.table import other_heads as heads
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.maintain import orphans
from deltacompact.iceberg_modes.maintain.maintain import Maintain
from deltacompact.iceberg_modes.maintain.other_tables import signs
from deltacompact.iceberg_modes.maintain.reach import manifests_of

T = "ns.t"
ID = pa.schema([("id", pa.int64())])
DAYS = 86_400


def folder_of(lake, table_id=T):
    return Path(lake.catalog.load_table(table_id).location().removeprefix("file://"))


def table_of(lake, *appends, table_id=T, location=None, **properties):
    lake.create(table_id, ID, location=location, properties=properties)
    for number in appends:
        lake.append(table_id, [{"id": number}])


def aged(folder, days=30):
    """All files below a folder were written so long ago."""
    old = time.time() - days * DAYS
    for path in Path(folder).rglob("*"):
        if path.is_file():
            os.utime(path, (old, old))


@pytest.fixture
def lost(lake):
    """The table, and an orphan of it."""
    table_of(lake, 1, 2)
    file = folder_of(lake) / "data/lost.parquet"
    file.write_bytes(b"orphan")
    aged(folder_of(lake))
    return file


def remove_orphans(lake, catalog=None, **options):
    loaded = IcebergTable.load(catalog or lake.catalog, T)
    said = []
    done = Maintain(loaded, chosen=options, say=said.append).run(remove_orphans=True)
    return done.remove_orphans, said


def expire(lake, catalog=None):
    loaded = IcebergTable.load(catalog or lake.catalog, T)
    return Maintain(loaded, now_ms=int((time.time() + 10 * DAYS) * 1000)).run(expire_snapshots=True).expire_snapshots


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(heads, "LOOK_AGAIN_AFTER_S", 0)


# Signs of tables among the files


@pytest.mark.parametrize(
    "sign",
    [
        "old/metadata/1.metadata.json",
        "old/_meta/00001-x.metadata.json",
        "old/deep/er/v3.gz.metadata.json",
        "data/v1.metadata.json",
        "old/version-hint.text",
        "old/_delta_log/00000000000000000000.json",
        ".hoodie/hoodie.properties",
    ],
)
@pytest.mark.slow
def test_another_table_below_the_location_keeps_its_files(lake, lost, sign):
    file = folder_of(lake) / sign
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{}")
    with pytest.raises(InputError, match=f"{sign} is a sign of another table.*nothing was deleted"):
        remove_orphans(lake)
    assert lost.exists() and file.exists()
    if not sign.startswith("data/"):
        found, _ = remove_orphans(lake, location=f"{folder_of(lake)}/data")
        assert (found.files, lost.exists()) == (1, False)


def test_another_table_with_the_same_location_is_refused(lake, lost):
    (folder_of(lake) / "metadata/9.metadata.json").write_text(json.dumps({"table-uuid": "another"}))
    with pytest.raises(InputError, match=r"metadata/9\.metadata\.json is metadata of another table \(another\)"):
        remove_orphans(lake)
    assert lost.exists()


def test_signs_are_found_at_any_depth():
    ours = ["stream/table.json", "stream/partitions/all", "deep/p/snapshot/LATEST", "deep/p/schema/schema-0"]
    assert list(signs(ours)) == ["stream/table.json", "deep/p/schema/schema-0"]
    assert (
        list(signs(["data/table.json", "data/a.parquet", "schema/schema-x", "schema/schema-0", "metadata/s.avro"]))
        == []
    )


# Other tables of the catalog


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path", "write.object-storage.path"])
def test_a_table_whose_files_alone_lie_below_the_location_keeps_them(lake, lost, name):
    inside = folder_of(lake) / "of another"
    table_of(lake, table_id="ns.u", **{name: str(inside)})
    with pytest.raises(InputError, match=r"files of table ns\.u, which has .*of another, cannot be told from orphans"):
        remove_orphans(lake)
    assert lost.exists()


def test_a_table_whose_location_is_around_ours_keeps_its_files(lake, lost):
    table_of(lake, table_id="ns.u", location=folder_of(lake).parent.as_uri())
    with pytest.raises(InputError, match=r"files of table ns\.u"):
        remove_orphans(lake)
    assert lost.exists()


def test_a_table_in_a_nested_namespace_is_asked(lake, lost):
    lake.catalog.create_namespace("ns.inner")
    table_of(lake, table_id="ns.inner.u", **{"write.data.path": f"file:{folder_of(lake)}//data/"})
    with pytest.raises(InputError, match=r"files of table ns\.inner\.u"):
        remove_orphans(lake)
    assert lost.exists()


def test_a_table_that_cannot_be_loaded_may_have_files_anywhere(lake, lost):
    table_of(lake, table_id="ns.u")
    Path(lake.catalog.load_table("ns.u").metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(
        InputError, match=r"table 'ns\.u' cannot be loaded .*nothing was deleted; .*allow-unlisted-tables"
    ):
        remove_orphans(lake)
    assert lost.exists()
    assert remove_orphans(lake, **{"allow-unlisted-tables": "true"})[0].files == 1


class Unlisted(SqlCatalog):
    def list_namespaces(self, namespace=()):
        raise NotImplementedError("this server has no endpoint for it")


def test_a_catalog_that_does_not_list_its_tables_is_told(lake, lost):
    catalog = Unlisted(lake.name, uri=f"sqlite:///{lake.database}", warehouse=lake.warehouse)
    with pytest.raises(InputError, match=r"does not list its tables \(.*no endpoint for it\).*nothing was deleted"):
        remove_orphans(lake, catalog)
    wide = {"allow-unlisted-tables": "true", "location": lake.warehouse}
    with pytest.raises(InputError, match="search one of the table's own folders"):
        remove_orphans(lake, catalog, **wide)
    assert lost.exists()
    assert remove_orphans(lake, catalog, **{"allow-unlisted-tables": "true"})[0].files == 1


@pytest.mark.parametrize("asked", ["list_namespaces", "load_table"])
def test_a_catalog_that_does_not_answer_now_is_no_wrong_request(lake, lost, monkeypatch, asked):
    """Exit status 2, and the advice to remove orphans unseen, came of a lost connection."""
    table_of(lake, table_id="ns.u")
    catalog, answers = deltacompact.open_catalog(lake.catalog), getattr(type(lake.catalog), asked)

    def silent(self, name=()):
        if asked == "list_namespaces" or name[-1] == "u":
            raise OSError("no route")
        return answers(self, name)

    monkeypatch.setattr(type(lake.catalog), asked, silent)
    with pytest.raises(StoreError, match=r"no route.*nothing was deleted; run it again\. If it stays so: .*unlisted"):
        remove_orphans(lake)
    if asked == "list_namespaces":
        with pytest.raises(StoreError, match=r"does not answer: no route$"):
            catalog.tables()
    assert lost.exists()
    assert remove_orphans(lake, **{"allow-unlisted-tables": "true"})[0].files == 1


def test_a_wider_folder_leaves_other_tables_alone_if_the_catalog_knows_them(lake, lost):
    table_of(lake, 7, table_id="ns.u")
    for name in ("u/data/lost.parquet", "stray/lost.parquet"):
        file = folder_of(lake).parent / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"orphan")
    aged(lake.folder / "warehouse")
    found, _ = remove_orphans(lake, location=lake.warehouse)
    assert found.other_tables == (folder_of(lake, "ns.u").as_uri(), f"{folder_of(lake, 'ns.u').as_uri()}/metadata")
    assert (found.files, lost.exists()) == (2, False)
    assert (folder_of(lake, "ns.u") / "data/lost.parquet").exists()
    assert lake.rows("ns.u") == [{"id": 7}]
    unknown = folder_of(lake).parent / "dropped/metadata/1.metadata.json"
    unknown.parent.mkdir(parents=True)
    unknown.write_text("{}")
    lost.write_bytes(b"orphan")
    aged(lake.folder / "warehouse")
    with pytest.raises(InputError, match=r"dropped/metadata/1\.metadata\.json is a sign of another table"):
        remove_orphans(lake, location=lake.warehouse)
    assert lost.exists()


def test_a_folder_that_is_not_there_is_refused(lake, lost):
    """A mistyped one ended well: none of 0 files were orphans."""
    for name in ("no-such", "../no-such"):
        with pytest.raises(InputError, match=f"^{T}: nothing lies below .*no-such: name another folder"):
            remove_orphans(lake, location=(folder_of(lake) / name).as_uri())
    assert lost.exists()
    lake.create("ns.new", pa.schema([("id", pa.int64())]))
    new = IcebergTable.load(lake.catalog, "ns.new")
    done = Maintain(new, chosen={"location": new.metadata.data_folder}).run(remove_orphans=True)
    assert done.remove_orphans.listed == 0


def test_other_tables_are_asked_only_if_something_could_be_deleted(lake, lost, monkeypatch):
    for number in range(5):
        table_of(lake, table_id=f"ns.u{number}")
    loads = []
    kind = type(lake.catalog)
    load = kind.load_table

    def counted(self, identifier):
        loads.append(identifier)
        return load(self, identifier)

    monkeypatch.setattr(kind, "load_table", counted)
    _, said = remove_orphans(lake)
    assert len([load for load in loads if "u" in load[-1]]) == 5
    assert "asking 5 other tables of the catalog where files lie" in said
    loads.clear()
    found, said = remove_orphans(lake)
    assert found.nothing_to_do and not [load for load in loads if "u" in load[-1]]


# The same table, registered twice


@pytest.fixture
def twice(lake, lost):
    """Another catalog that got the table as it is now."""
    other = SqlCatalog("other", uri=f"sqlite:///{lake.folder}/other.db", warehouse=lake.warehouse)
    other.create_namespace("ns")
    other.register_table(T, lake.catalog.load_table(T).metadata_location)
    return other


def test_an_old_pointer_deletes_no_newer_file(lake, lost, twice):
    lake.append(T, [{"id": 3}])
    lake.append(T, [{"id": 4}])
    newest = lake.catalog.load_table(T).metadata_location.rpartition("/")[2]
    aged(folder_of(lake))
    for act in (remove_orphans, expire):
        with pytest.raises(InputError, match=f"{newest} is newer than .*registered twice"):
            act(lake, twice)
    assert sorted(row["id"] for row in lake.rows(T)) == [1, 2, 3, 4]
    assert remove_orphans(lake)[0].files == 1
    assert not lost.exists()


def test_what_an_older_head_reaches_stays(lake, lost, twice):
    """Both catalogs went on: the one that did so last does not remember the other's commits."""
    twice.load_table(T).append(pa.table({"id": [9]}))
    lake.append(T, [{"id": 3}])
    found, _ = remove_orphans(lake, **{"older-than": "1s", "allow-younger-than-24h": "true"})
    assert (found.files, lost.exists()) == (1, False)
    expire(lake)
    assert sorted(twice.load_table(T).scan().to_arrow()["id"].to_pylist()) == [1, 2, 9]
    assert sorted(row["id"] for row in lake.rows(T)) == [1, 2, 3]


def test_a_snapshot_of_many_metadata_files_is_read_once(lake, lost, twice, monkeypatch):
    theirs = twice.load_table(T)
    for tag in ("a", "b", "c"):
        theirs.manage_snapshots().create_tag(theirs.current_snapshot().snapshot_id, tag).commit()
    lake.append(T, [{"id": 3}])
    table = IcebergTable.load(lake.catalog, T)
    assert len(heads.other_heads(table)) == 3
    ids = [snapshot.snapshot_id for snapshot in theirs.snapshots()]
    assert [snapshot.snapshot_id for snapshot in heads.snapshots_elsewhere(table)] == ids
    asked = []
    monkeypatch.setattr(
        orphans, "manifests_of", lambda *given, **how: asked.append(given[1]) or manifests_of(*given, **how)
    )
    remove_orphans(lake)
    assert sorted(map(len, asked)) == sorted([len(table.metadata.snapshots), 0, 0, len(ids)])


def test_a_table_with_two_names_in_one_catalog_is_refused(lake, lost):
    lake.catalog.register_table("ns.alias", lake.catalog.load_table(T).metadata_location)
    with pytest.raises(InputError, match=r"it is also registered as ns\.alias"):
        remove_orphans(lake)
    assert lost.exists()


class Folding(SqlCatalog):
    """Takes names in any case, as some REST servers do. PyIceberg's client keeps what the user wrote."""

    def load_table(self, identifier):
        asked = self.identifier_to_tuple(identifier)
        found = super().load_table(tuple(part.lower() for part in asked))
        found._identifier = asked
        return found


def test_a_table_that_is_named_in_another_case_is_not_told_to_be_dropped(lake, lost):
    """The listing has the one name that there is. To drop it is to drop the table."""
    catalog = Folding(lake.name, uri=f"sqlite:///{lake.database}", warehouse=lake.warehouse)
    loaded = IcebergTable.load(catalog, "NS.T")
    with pytest.raises(
        InputError, match=r"^NS\.T: the catalog lists it as ns\.t: use that name\. Nothing was deleted$"
    ):
        Maintain(loaded).run(remove_orphans=True)
    assert lost.exists()
    lake.catalog.register_table("ns.T", lake.catalog.load_table(T).metadata_location)
    with pytest.raises(InputError, match=r"it is also registered as ns\.T"):
        remove_orphans(lake)
    assert lost.exists()


def test_a_commit_that_lands_while_we_look_is_no_other_pointer(lake, lost, monkeypatch):
    """Its metadata file is there a moment before the catalog has it."""
    loaded = IcebergTable.load(lake.catalog, T)
    lake.append(T, [{"id": 3}])
    assert heads.other_heads(loaded) == ()


def test_metadata_of_a_commit_that_was_never_finished_is_told_until_the_table_has_moved_on(lake, lost):
    location = lake.catalog.load_table(T).metadata_location.removeprefix("file://")
    document = json.loads(Path(location).read_text())
    left = folder_of(lake) / f"metadata/00009-{uuid.uuid4()}.metadata.json"
    left.write_text(json.dumps(document | {"last-updated-ms": document["last-updated-ms"] + 1}))
    with pytest.raises(InputError, match="a commit was never finished"):
        remove_orphans(lake)
    assert lost.exists()
    lake.append(T, [{"id": 3}])
    assert remove_orphans(lake)[0].files == 1
    assert left.exists()


def test_what_a_commit_that_the_catalog_never_heard_of_reaches_stays_and_all_else_goes(lake, lost, twice):
    """Its writer was killed right before it told the catalog. Or somebody else's catalog has it."""
    twice.load_table(T).append(pa.table({"id": [9]}))
    aged(folder_of(lake))
    assert remove_orphans(lake)[0].files == 1 and not lost.exists()
    assert expire(lake).snapshots
    assert sorted(twice.load_table(T).scan().to_arrow()["id"].to_pylist()) == [1, 2, 9]
    assert sorted(row["id"] for row in lake.rows(T)) == [1, 2]


def test_a_commit_that_the_catalog_never_heard_of_stops_all_where_its_successors_may_lie_elsewhere(lake, lost):
    other = json.loads(Path(lake.catalog.load_table(T).metadata_location.removeprefix("file://")).read_text())
    other["properties"]["write.metadata.path"] = f"{lake.folder}/elsewhere"
    other["last-updated-ms"] += 1
    other["metadata-log"].append({"metadata-file": lake.catalog.load_table(T).metadata_location, "timestamp-ms": 1})
    (folder_of(lake) / f"metadata/00009-{uuid.uuid4()}.metadata.json").write_text(json.dumps(other))
    with pytest.raises(InputError, match="registered twice"):
        remove_orphans(lake)
    assert lost.exists()


def test_a_commit_that_lost_a_race_and_is_not_repeated_stops_no_expiry(lake, lost):
    """The client of a SQL or Glue catalog leaves its metadata file, and deletes what it had written for it."""
    before = lake.catalog.load_table(T).metadata_location
    document = json.loads(Path(before.removeprefix("file://")).read_text())
    gone = document["snapshots"][0] | {"snapshot-id": 7, "manifest-list": f"{folder_of(lake)}/metadata/gone.avro"}
    lake.append(T, [{"id": 3}])
    document["metadata-log"].append({"metadata-file": before, "timestamp-ms": 1})
    document["last-updated-ms"] = int((time.time() + 60) * 1000)
    document["snapshots"].append(gone)
    (folder_of(lake) / f"metadata/00009-{uuid.uuid4()}.metadata.json").write_text(json.dumps(document))
    assert expire(lake).snapshots
    assert sorted(row["id"] for row in lake.rows(T)) == [1, 2, 3]
    with pytest.raises(InputError, match="a commit was never finished"):
        remove_orphans(lake)


def test_metadata_in_a_folder_of_its_own_is_looked_at(lake, tmp_path):
    table_of(lake, 1, **{"write.metadata.path": f"{tmp_path}/elsewhere"})
    lost = folder_of(lake) / "data/lost.parquet"
    lost.write_bytes(b"orphan")
    aged(folder_of(lake))
    other = SqlCatalog("other", uri=f"sqlite:///{lake.folder}/other.db", warehouse=lake.warehouse)
    other.create_namespace("ns")
    other.register_table(T, lake.catalog.load_table(T).metadata_location)
    lake.append(T, [{"id": 3}])
    lake.append(T, [{"id": 4}])
    with pytest.raises(InputError, match="registered twice"):
        remove_orphans(lake, other)
    assert lost.exists()


def test_a_session_that_another_catalog_resumes_keeps_the_snapshots_of_the_first_one(lake):
    """The first one committed group 0 through its own catalog; the other one has an old pointer, and commits it too."""
    table_of(lake, 1, 2)
    other = SqlCatalog("other", uri=f"sqlite:///{lake.folder}/other.db", warehouse=lake.warehouse)
    other.create_namespace("ns")
    other.register_table(T, lake.catalog.load_table(T).metadata_location)
    commit = SqlCatalog.commit_table

    def unheard(self, *arguments):
        commit(self, *arguments)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(BaseException, match="did not say whether"):
        patch.setattr(SqlCatalog, "commit_table", unheard)
        lake.rewrite(T, rewrite_all=True)
    mine, lake.catalog = lake.catalog, other
    assert lake.rewrite(T, rewrite_all=True).resumed == 1
    for catalog in (mine, other):
        lake.catalog = catalog
        assert sorted(row["id"] for row in lake.rows(T)) == [1, 2]
