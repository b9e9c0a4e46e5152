"""What a vacuum keeps by whatever name it is reached, and what it finds that no listing shows."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from calls import calls
from lake.lake import SMALL, Lake
from lake.lake import rows as small_rows
from stores import InterceptedStore, copy_of
from tables import problems

from deltacompact import DeltaStreamCatalog, InputError, NotFoundError, Settings, StoreError, compact
from deltacompact.cli import run as command_line
from deltacompact.delta_streams.file_lists import publish
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.paths import StreamPaths
from deltacompact.delta_streams.streams import VACUUM_AGE_MIN_S
from deltacompact.delta_streams.versions import retract
from deltacompact.maintenance.vacuum.chain import read_chain
from deltacompact.maintenance.vacuum.context import VacuumContext
from deltacompact.maintenance.vacuum.listing import StreamListing
from deltacompact.maintenance.vacuum.vacuum import VacuumResult, vacuum, vacuumed
from deltacompact.storage.identity import identity, path_below
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.objects import ObjectStat, discard, unfinished
from deltacompact.storage.opening import open_store

LOCAL = Settings(executor="local", local_threads=1)
NAME = "5c" * 16
DAYS = 24 * 3600


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": list(keys)})


def keys(catalog: DeltaStreamCatalog) -> list[int]:
    return sorted(catalog.read("t")["k"].to_pylist())


def days_later(store: Any, days: float = 4) -> DeltaStreamCatalog:
    return DeltaStreamCatalog(store, clock=lambda: time.time() + days * DAYS)


def cleaned(store: Any, days: float = 4, full: bool = False) -> VacuumResult:
    """A vacuum so many days later."""
    catalog = days_later(store, days)
    context = VacuumContext(catalog, "t", VACUUM_AGE_MIN_S, False, catalog.clock())
    (partition,) = catalog.chosen("t", None)
    return vacuumed(context, partition, full)


# --- files that were appended by reference ----------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake in a folder whose name is encoded, reached through a symlink as well."""
    root = tmp_path / "my läke"
    root.mkdir()
    (tmp_path / "link").symlink_to(root)
    made = DeltaStreamCatalog(LocalStore(root))
    made.create_table("t", (), ["k"])
    (root / "t/data").mkdir()
    pq.write_table(rows(1, 2), root / f"t/data/{NAME}.parquet")
    return root


def spellings(lake: Path) -> dict[str, Callable[[str], str]]:
    link = lake.parent / "link"
    return {
        "uri": lambda name: (lake / "t/data" / name).as_uri(),
        "localhost": lambda name: (lake / "t/data" / name).as_uri().replace("file://", "file://localhost"),
        "not encoded": lambda name: f"file://{lake}/t/data/{name}",
        "dots": lambda name: (lake / "t/data").as_uri() + f"/../../t/./data/{name}",
        "slashes": lambda name: (lake / "t").as_uri() + f"//data//{name}",
        "symlink": lambda name: (link / "t/data" / name).as_uri(),
        "path": lambda name: str(lake / "t/data" / name),
    }


@pytest.mark.parametrize("root", ["my läke", "link"])
@pytest.mark.parametrize("spelling", ["uri", "localhost", "not encoded", "dots", "slashes", "symlink", "path"])
def test_a_file_below_the_root_that_was_appended_by_reference_is_never_deleted(
    lake: Path, spelling: str, root: str
) -> None:
    store = LocalStore(lake.parent / root)
    os.utime(lake / f"t/data/{NAME}.parquet", (1e9, 1e9))
    uri = spellings(lake)[spelling](f"{NAME}.parquet")
    DeltaStreamCatalog(store).append_files("t", [uri], reference=True)
    assert cleaned(store).deleted == ()
    assert keys(DeltaStreamCatalog(store)) == [1, 2]


def test_a_file_below_the_root_that_was_appended_by_reference_is_kept_on_s3(s3_catalog_uri: str) -> None:
    store: Any = open_store(s3_catalog_uri)
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", (), ["k"])
    with store.writer(f"t/data/{NAME}.parquet") as sink:
        pq.write_table(rows(1, 2), sink)
    bucket, _, prefix = s3_catalog_uri.removeprefix("s3://").partition("/")
    its_uri, another = (f"s3://{bucket}/{more}{prefix}/t/data/{NAME}.parquet" for more in ("", "/"))
    for uri in (its_uri, another):  # in doubt, a vacuum keeps the file
        assert path_below(store, uri) == f"t/data/{NAME}.parquet"
    with pytest.raises(NotFoundError, match=f"{another} does not exist"):
        catalog.append_files("t", [another], reference=True)
    catalog.append_files("t", [its_uri], reference=True)
    assert cleaned(store).deleted == ()
    assert keys(catalog) == [1, 2]


@pytest.mark.parametrize("spelling", ["uri", "not encoded", "dots", "symlink", "linked file"])
@pytest.mark.slow
def test_a_file_that_was_appended_by_reference_stays_after_its_delta_is_compacted_and_old(
    lake: Path, spelling: str
) -> None:
    """It lies where the table's data lie, and is called as if the table had written it."""
    store = LocalStore(lake)
    file = lake / f"t/data/{NAME}.parquet"
    os.utime(file, (1e9, 1e9))
    (lake.parent / "a.parquet").symlink_to(file)
    others = {"linked file": lambda name: (lake.parent / "a.parquet").as_uri()}
    catalog = DeltaStreamCatalog(store)
    catalog.append_files("t", [(spellings(lake) | others)[spelling](file.name)], reference=True)
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    catalog.append("t", rows(3))
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    first = cleaned(store)
    assert [stat.path for stat in (*first.deleted, *first.waiting) if NAME in stat.path] == []
    assert any("/data/" in stat.path for stat in first.deleted)  # the table's own copies go
    catalog.append("t", rows(4))
    compact("t", delta_catalog_client=days_later(store, 5), settings=LOCAL)
    os.utime(file)  # it is the user's: writing it again is no sign of a damaged log
    for full in (False, True):  # at first the log of the first version stays unread: a mark knows it
        cleaned(store, 9, full)
        assert file.exists()
    assert keys(catalog) == [1, 2, 3, 4]


def test_a_mark_of_a_former_version_does_not_say_what_came_by_reference(lake: Path) -> None:
    store = LocalStore(lake)
    file = lake / f"t/data/{NAME}.parquet"
    os.utime(file, (1e9, 1e9))
    catalog = DeltaStreamCatalog(store)
    catalog.append_files("t", [file.as_uri()], reference=True)
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    cleaned(store)
    mark = json.loads(store.get("t/vacuum.json"))
    for known in mark["chain"].values():
        del known["referenced"]
    fields = {name: value for name, value in mark.items() if name not in ("format", "sha256")}
    mark["sha256"] = hashlib.sha256(json.dumps(["t", fields], sort_keys=True).encode()).hexdigest()
    store.put("t/vacuum.json", json.dumps(mark).encode())
    catalog.append("t", rows(3))
    compact("t", delta_catalog_client=days_later(store, 5), settings=LOCAL)
    cleaned(store, 9)
    assert file.exists()


@pytest.mark.parametrize("within", ["t", "t/data", "t/stream"])
@pytest.mark.parametrize("name", ["data", "a" * 24])
@pytest.mark.slow
def test_a_catalog_inside_a_tables_folder_keeps_its_files(lake: Path, within: str, name: str) -> None:
    outer = DeltaStreamCatalog(LocalStore(lake))
    inner = DeltaStreamCatalog(LocalStore(lake / within))
    inner.create_table(name, (), ["k"])
    for number in range(2):
        outer.append("t", rows(number))
        inner.append(name, rows(number))
        for catalog, table in ((outer, "t"), (inner, name)):
            compact(table, delta_catalog_client=catalog, settings=LOCAL)
    for file in (lake / within / name).rglob("*"):
        if file.is_file():
            os.utime(file, (1e9, 1e9))
    assert cleaned(LocalStore(lake)).deleted
    assert sorted(inner.read(name)["k"].to_pylist()) == [0, 1]


def test_all_names_of_an_object_have_one_identity(lake: Path) -> None:
    store = LocalStore(lake)
    name = f"{NAME}.parquet"
    assert {identity(store, uri(name)) for kind, uri in spellings(lake).items() if kind != "path"} == {
        identity(store, f"t/data/{name}")
    }
    assert identity(store, "t/data/a.csv") != identity(store, f"t/data/{name}")
    assert path_below(store, (lake.parent / "other.csv").as_uri()) is None
    assert path_below(store, (lake / "t/day=a%2Fb/x y.csv").as_uri()) == "t/day=a%2Fb/x y.csv"
    assert path_below(store, "s3://bucket/t/data/a.csv") is None
    assert path_below(MemoryStore(), (lake / "a").as_uri()) is None


def test_a_file_of_another_stream_is_not_appended_by_reference(lake: Path) -> None:
    catalog = DeltaStreamCatalog(LocalStore(lake))
    catalog.create_table("days", ["day"], ["k"])
    path = catalog.append("days", rows(7), {"day": "mon"}).files[0].path
    uri = (lake.parent / "link" / path).as_uri()
    for table, partition in (("t", None), ("days", {"day": "tue"})):
        with pytest.raises(InputError, match="is a file of 'days/day=mon' in this catalog"):
            catalog.append_files(table, [uri], partition, reference=True)
        catalog.append_files(table, [uri], partition)  # a copy is its own
    catalog.append_files("days", [uri], {"day": "mon"}, reference=True)
    landing = lake / "landing/data"
    landing.mkdir(parents=True)
    pq.write_table(rows(8), landing / "a.parquet")
    catalog.append_files("t", [str(landing / "a.parquet")], reference=True)
    assert keys(catalog) == [7, 8]
    other = DeltaStreamCatalog(LocalStore(lake.parent / "other"))
    other.create_table("t", [], ["k"])
    (lake.parent / "a link.parquet").symlink_to(lake / path)
    for name in (uri, str(lake.parent / "a link.parquet")):
        with pytest.raises(InputError, match=r"is a file of '.*/days/day=mon' in another catalog"):
            other.append_files("t", [name], reference=True)
    own = lake.parent / "orders/data" / Path(path).name  # named like ours, but no stream is there
    own.parent.mkdir(parents=True)
    own.write_bytes((lake / path).read_bytes())
    other.append_files("t", [str(own)], reference=True)


# --- what else lies about ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".CSV", ".csv", ".Parquet", ".csv.gz", ".jsonl.zst", ".csv.bz2", ""])
def test_a_file_whose_suffix_is_in_capitals_is_ours(tmp_path: Path, suffix: str) -> None:
    """Release 0.1 stored a copy under the suffix that the file had."""
    catalog = DeltaStreamCatalog(LocalStore(tmp_path / "lake"))
    catalog.create_table("t", (), ["k"])
    left_behind = f"t/data/{uuid.uuid4().hex}{suffix}"
    catalog.store.put(left_behind, b"of a writer that died")
    catalog.append("t", rows(1))
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    assert left_behind in {stat.path for stat in cleaned(catalog.store).deleted}
    assert keys(catalog) == [1]


def test_an_export_leaves_nothing_but_its_file(tmp_path: Path) -> None:
    catalog = DeltaStreamCatalog(LocalStore(tmp_path / "lake"))
    catalog.create_table("t", (), ["k"])
    catalog.append("t", rows(1))
    (tmp_path / "out").mkdir()
    assert command_line(["export", str(tmp_path / "lake"), "t", str(tmp_path / "out/t.parquet")]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["t.parquet"]
    (tmp_path / "out/.unfinished").mkdir()
    (tmp_path / "out/.unfinished/theirs").write_bytes(b"")
    assert command_line(["export", str(tmp_path / "lake"), "t", str(tmp_path / "out/t.csv")]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".unfinished", "t.csv", "t.parquet"]


def test_stale_unfinished_files_are_vacuumed_and_young_and_foreign_ones_stay(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", (), ["k"])
    catalog.append("t", rows(1))
    folder = tmp_path / ".unfinished"
    for name, age_s in (("5c" * 16, 4 * DAYS), ("77" * 16, 60), ("notes.txt", 4 * DAYS)):
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, (time.time() - age_s,) * 2)
    for how in ({"dry_run": True}, {"age_min_s": 0, "force": True}):
        (result,) = vacuum(catalog, "t", **how)
        assert [stat.path for stat in result.unfinished] == [f".unfinished/{'5c' * 16}"]
    assert sorted(path.name for path in folder.iterdir()) == ["77" * 16, "notes.txt"]
    assert list(unfinished(MemoryStore(), "")) == []
    discard(MemoryStore(), [])


def test_uploads_to_s3_that_were_never_ended_are_aborted(s3_catalog_uri: str) -> None:
    store: Any = open_store(s3_catalog_uri)
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", (), ["k"])
    catalog.append("t", rows(1))

    def begin(path: str) -> None:
        store.client.create_multipart_upload(Bucket=store.bucket, Key=store.prefix + path)

    for path in (f"t/data/{NAME}.parquet", f"t/data/{'77' * 16}.parquet", "t/data/foreign.bin", f"u/data/{NAME}.csv"):
        begin(path)
    if not list(store.unfinished("t/")):
        pytest.skip("this server lists the uploads of a whole key alone, and ends them by itself (MinIO)")
    assert {stat.path for stat in cleaned(store).unfinished} == {
        f"t/data/{NAME}.parquet",
        f"t/data/{'77' * 16}.parquet",
    }
    assert sorted(stat.path for stat in store.unfinished("")) == ["t/data/foreign.bin", f"u/data/{NAME}.csv"]
    assert keys(catalog) == [1]


def test_a_live_writers_file_stays_where_the_clock_is_ahead_and_nothing_else_came(tmp_path: Path) -> None:
    """The second vacuum finds the objects that the first one left, and goes by its mark."""
    store = LocalStore(tmp_path)
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", (), ["k"])
    catalog.append("t", rows(1))
    vacuum(catalog, "t")
    young = tmp_path / ".unfinished" / ("5c" * 16)
    young.parent.mkdir(exist_ok=True)
    young.write_bytes(b"half a file")
    assert vacuum(days_later(store), "t")[0].unfinished == ()
    assert young.exists()


def test_young_uploads_stay_and_uploads_that_may_not_be_listed_do_not_stop_a_vacuum(
    s3_catalog_uri: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store: Any = open_store(s3_catalog_uri)
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", (), ["k"])
    catalog.append("t", rows(1))

    begun = {"Key": f"{store.prefix}t/data/{NAME}.csv", "UploadId": "u", "Initiated": datetime.now(UTC)}
    monkeypatch.setattr(store, "_uploads", lambda prefix: iter([begun]))
    assert vacuum(catalog, "t")[0].unfinished == ()
    assert len(list(store.unfinished("t/"))) == 1

    def refuse(prefix: str) -> Iterator[dict[str, Any]]:
        raise InputError("S3 refused access (AccessDenied)")

    monkeypatch.setattr(store, "_uploads", refuse)
    assert vacuum(catalog, "t")[0].unfinished == ()
    assert "AccessDenied" in caplog.text


# --- a folder that goes while it is written to ------------------------------------------------------------------------


def test_a_folder_that_is_deleted_under_a_writer_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, made = LocalStore(tmp_path), Path.mkdir
    left = [3]

    def mkdir(self: Path, *given: Any, **how: Any) -> None:
        made(self, *given, **how)
        if left[0] and self.is_dir() and not any(self.iterdir()) and self != tmp_path:
            left[0] -= 1
            self.rmdir()  # a delete of the last object that lay there

    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert store.put_if_absent("a/b/one", b"1")
    left[0] = 3
    store.put("a/c/two", b"2")
    left[0] = 3
    with store.writer("a/d/three") as sink:
        sink.write(b"3")
    assert [stat.path for stat in store.list("")] == ["a/b/one", "a/c/two", "a/d/three"]


def test_writers_and_deletes_of_one_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    store, errors = LocalStore(tmp_path), []

    def write_and_delete(name: str) -> None:
        try:
            for number in range(60):
                assert store.put_if_absent(f"t/data/s/{name}{number}", b"x")
                store.put(f"t/data/s/{name}{number}", b"y")
                store.delete([f"t/data/s/{name}{number}"])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write_and_delete, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert list(store.list("")) == [] and not (tmp_path / "t/data/s").exists()


def test_a_file_that_cannot_be_deleted_is_named(tmp_path: Path) -> None:
    (tmp_path / "t/data/folder").mkdir(parents=True)
    with pytest.raises(StoreError, match="t/data/folder could not be deleted"):
        LocalStore(tmp_path).delete(["t/data/folder"])
    LocalStore(tmp_path).delete(["t/never", "t/data/never/x"])


def test_the_receipt_says_what_is_doubtful(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    from deltacompact.base.model import Partition
    from deltacompact.cli.result_report import print_vacuumed

    stat = ObjectStat(f"t/data/{NAME}.csv", 2048, 0.0)
    result = VacuumResult(Partition(), (), (), 1, doubtful=(stat,), unfinished=(stat,), held=(stat,))
    print_vacuumed(Console(width=200), result)
    said = capsys.readouterr().out
    assert "1 data file of older versions kept (2.0 KiB): a bookmark or the published table needs them" in said
    assert "too young" not in said
    assert "1 object that nothing names kept (2.0 KiB): newer than the last log entry" in said
    assert "deleted 1 write that was never finished" in said


def test_the_file_of_a_retracted_delta_stays_until_the_next_version_and_the_receipt_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = DeltaStreamCatalog(LocalStore(tmp_path))
    catalog.create_table("t", [], ["id"])
    delta = catalog.append("t", pa.table({"id": [1]}))
    catalog.append("t", pa.table({"id": [2]}))
    retract(catalog, "t", delta.position)
    path = delta.files[0].path
    for _ in range(2):  # the second one reads the mark of the first
        (found,) = vacuum(catalog, "t", age_min_s=0, force=True)
        assert [stat.path for stat in found.retracted] == [path] and not found.waiting
    assert command_line(["vacuum", str(tmp_path), "t", "--older-than-hours", "0", "--force"]) == 0
    assert "  1 data file of retracted deltas kept (" in (said := capsys.readouterr().out)
    assert "too young" not in said
    compact("t", delta_catalog_client=catalog, settings=LOCAL)
    (found,) = vacuum(catalog, "t")
    assert path in [stat.path for stat in found.waiting] and not found.retracted
    (found,) = vacuum(catalog, "t", age_min_s=0, force=True)
    assert path in [stat.path for stat in found.deleted]


def test_a_table_that_was_vacuumed_is_sound(lake: Path) -> None:
    catalog = DeltaStreamCatalog(LocalStore(lake))
    for key in (1, 2, 3):
        catalog.append("t", rows(key))
        compact("t", delta_catalog_client=catalog, settings=LOCAL)
    assert cleaned(catalog.store).deleted
    assert problems(catalog) == []
    assert keys(catalog) == [1, 2, 3]


@pytest.mark.slow
def test_a_session_whose_files_a_vacuum_took_says_that_it_was_fenced_off() -> None:
    with Lake(SMALL) as lake:
        lake.writer.append(None, "upsert", small_rows(*range(5)))
        seen, fenced = lake.world.seen, 0
        for at in range(0, 60, 3):
            lake.writer.append(None, "upsert", small_rows(at))
            seen.clear()
            lake.compactor.compact(meanwhile=(at, lake.vacuum.run_days_later))  # a ConflictError, or it is done
            fenced += seen["fenced"]
            lake.reader.verify()
        assert fenced


class DeletesAllBut(InterceptedStore):
    """A store that cannot delete one object. The others of that request go, as on S3."""

    def __init__(self, inner: MemoryStore, spared: str) -> None:
        super().__init__(inner, lambda kind, path, act: act())
        self.spared = spared

    def delete(self, paths: Iterable[str]) -> None:
        gone = list(paths)
        super().delete(path for path in gone if path != self.spared)
        if self.spared in gone:
            raise StoreError(f"deleting {self.spared} failed")


def test_a_vacuum_that_dies_halfway_leaves_whole_logs_which_the_next_one_deletes() -> None:
    store = MemoryStore()
    DeltaStreamCatalog(store).create_table("t", (), ["k"])
    for key in range(2):
        DeltaStreamCatalog(store).append("t", rows(key))
        (chosen,) = compact("t", delta_catalog_client=DeltaStreamCatalog(store), settings=LOCAL).sessions
    lost = {path: store.get(path) for path in store._objects if f"/{chosen.version}/" in path}
    other = str(chosen.version)[:-32] + "7e" * 16
    for path, data in lost.items():
        store.put(path.replace(str(chosen.version), other), data)
    entries = sorted(path for path in store._objects if f"/stream/{other}/" in path)
    assert len(entries) > 1
    for spared in entries:
        copy = copy_of(store)
        with pytest.raises(StoreError, match=spared):
            cleaned(DeletesAllBut(copy, spared))
        cleaned(copy, 5)
        assert not [path for path in copy._objects if other in path]
        assert keys(DeltaStreamCatalog(copy)) == [0, 1]


def test_what_was_put_in_the_tick_of_the_vacuum_is_as_old_as_no_age() -> None:
    """Stores date objects by seconds: `vacuum --force` right after a compaction left what that one had replaced."""
    catalog = DeltaStreamCatalog(MemoryStore(clock=lambda: 1_000.0), clock=lambda: 1_000.0)
    catalog.create_table("t", primary_keys=["id"])
    for number in (1, 2):
        catalog.append("t", pa.table({"id": [number]}))
        compact("t", delta_catalog_client=catalog, settings=LOCAL)
    (found,) = vacuum(catalog, "t", age_min_s=0, force=True)
    assert found.deleted and not found.waiting
    assert [info.retained for info in catalog.table("t").versions()] == [False, False, True]


def test_a_session_among_a_thousand_is_found_without_a_look_at_the_others() -> None:
    def listed(sessions: int) -> tuple[StreamListing, StreamPaths]:
        store, paths = MemoryStore(), StreamPaths("orders")
        for number in range(sessions):
            store.put(f"{paths.session(f'{number:024x}')}plan.json", b"{}")
        return StreamListing.of(store, paths, 0.0), paths

    def found(listing: StreamListing, paths: StreamPaths) -> list[str]:
        return list(listing.below(paths.session(f"{7:024x}")))

    few, many = listed(10), listed(1000)
    assert found(*many) == found(*few) == [f"{few[1].session(f'{7:024x}')}plan.json"]
    assert calls(lambda: found(*many)) < 3 * calls(lambda: found(*few))


def test_lists_of_versions_that_are_forgotten_go_with_them() -> None:
    """Of each partition its own. Lists of retained versions stay, and so does whatever others put beside them."""
    store = MemoryStore()
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", ["day"], ["k"])
    foreign = {"t/published/files/day=mon/0.txt", "t/published/files/day=mon/notes.txt", "t/published/files/0-1.txt"}
    for path in foreign:
        store.put(path, b"mine")
    published = []
    for number in range(2):
        for day in ("mon", "tue"):
            catalog.append("t", rows(number), {"day": day})
        compact("t", delta_catalog_client=catalog, settings=LOCAL)
        published.append(
            [f"t/published/files/{found.partition}/{found.version}.txt" for found in publish(catalog, "t")]
        )
    before = {stat.path for stat in store.list("t/published/")}
    assert not any("published" in stat.path for found in vacuum(catalog, "t") for stat in found.deleted)
    cleaned_days_later = days_later(store)
    context = VacuumContext(cleaned_days_later, "t", VACUUM_AGE_MIN_S, False, cleaned_days_later.clock())
    for partition in cleaned_days_later.chosen("t", None):
        vacuumed(context, partition)
    assert {stat.path for stat in store.list("t/published/")} == before - set(published[0])
    assert set(published[1]) | foreign < before


def test_a_long_history_is_never_held_in_memory_at_once() -> None:
    """A year has 8,760 hourly versions, each with a list of all files."""
    made = DeltaStreamCatalog(MemoryStore())
    made.create_table("t", (), ["k"])
    for key in range(12):
        made.append("t", rows(key))
        compact("t", delta_catalog_client=made, settings=LOCAL)
    log = days_later(made.store).log("t", made.partition("t", None))
    del made
    gc.collect()
    before = _states_in_memory()
    assert max(_states_in_memory() for _ in log.chain()) <= before + 4
    listing = StreamListing.of(log.store, log.paths, time.time() + 4 * DAYS)
    chain = read_chain(log, listing, {})
    assert (len(chain.sealed), len(chain.retained), chain.is_whole) == (12, 1, True)
    assert _states_in_memory() <= before + 4


def _states_in_memory() -> int:
    return sum(isinstance(each, StreamState) for each in gc.get_objects())
