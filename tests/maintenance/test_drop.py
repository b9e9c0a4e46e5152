"""A table that is dropped is gone for everybody at once, and nothing of it comes back; what others put there stays."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stores import Crash, InterceptedStore, copy_of

import deltacompact
from deltacompact import ConflictError, DeltaStreamCatalog, InputError, NotFoundError, Settings
from deltacompact.base.errors import StoreError
from deltacompact.base.model import Partition
from deltacompact.cli import run as command_line
from deltacompact.delta_streams.file_lists import publish
from deltacompact.storage.local import LocalStore
from deltacompact.storage.memory import MemoryStore

LOCAL = Settings(executor="local", local_threads=1, rewrite_dead_fraction=0.5)


def lived(catalog: DeltaStreamCatalog, table_id: str = "t") -> None:
    """A table with all kinds of objects: versions, runs, vectors, a checkpoint, sessions, a bookmark, a listing."""
    last = Partition((("day", "b"),))
    table = catalog.create_table(table_id, ["day"], ["id"])
    for day in ("a", "b"):
        table.append(pa.table({"id": list(range(50)), "v": [0] * 50}), {"day": day})
    for value in (1, 2):
        table.compact(settings=LOCAL, rows_per_compacted_file=30)
        table.append(pa.table({"id": [value], "v": [value]}), {"day": "a"})
        table.append(pa.table({"id": [value + 9]}), {"day": "b"}, operation="delete")
    table.compact(settings=LOCAL)
    table.changes("1970-01-01", bookmark="mirror").read_all()
    deltacompact.retract_file(catalog, table_id, catalog.state(table_id, last).compacted.files[0].path, last)
    table.vacuum(age_min_s=0, force=True)


def paths(store: Any) -> set[str]:
    return {stat.path for stat in store.list("")}


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return LocalStore(tmp_path / "lake") if request.param == "local" else MemoryStore()


@pytest.mark.slow
def test_nothing_of_it_is_left_and_a_table_of_its_name_is_new(store: Any) -> None:
    catalog = DeltaStreamCatalog(store)
    lived(catalog, "other")
    others = paths(store)
    lived(catalog)
    own = paths(store) - others
    assert {path.split("/")[1] for path in own} >= {"table.json", "day=a", "day=b", "partitions", "bookmarks"}

    foreseen = catalog.table("t").drop(dry_run=True)
    assert paths(store) == own | others
    result = catalog.table("t").drop()
    assert (result.objects, result.bytes, result.left) == (len(own), foreseen.bytes, ())
    assert result == foreseen
    assert paths(store) == others
    for process in (catalog, DeltaStreamCatalog(store)):
        with pytest.raises(NotFoundError, match="table 't' does not exist"):
            process.append("t", pa.table({"id": [7]}), {"day": "a"})
        with pytest.raises(NotFoundError, match="table 't' does not exist"):
            process.drop_table("t")

    again = catalog.create_table("t", ["day"], ["id"])
    again.append(pa.table({"id": [7], "v": [7]}), {"day": "a"})
    again.compact(settings=LOCAL)
    assert again.read().to_pylist() == [{"id": 7, "v": 7}]
    assert [found.problems for found in again.check()] == [()]
    assert [found.problems for found in catalog.table("other").check()] == [(), ()]


@pytest.mark.parametrize("partition_keys", [[], ["day", "k/é"]])
def test_lists_of_compacted_files_go_with_their_table(store: Any, partition_keys: list[str]) -> None:
    """They stayed, as if others had put them there, and named files that were gone to the engines that read them."""
    catalog, values = DeltaStreamCatalog(store), dict(zip(partition_keys, ("a=b/c", None), strict=False))
    table = catalog.create_table("t", partition_keys, ["id"])
    foreign = {"t/published/notes.txt", "t/published/files/latest.txt.bak", "t/published/symlink/k=1/manifest"}
    for path in foreign:
        store.put(path, b"mine")
    for number in (1, 2):
        table.append(pa.table({"id": [number]}), values)
        table.compact(settings=LOCAL)
        publish(catalog, "t")
    foreseen = table.drop(dry_run=True)
    assert table.drop() == foreseen
    assert {stat.path for stat in foreseen.left} == foreign == paths(store)


@pytest.mark.parametrize("keys", [["id"], ["other"]])
@pytest.mark.parametrize("by_rows", [False, True])
def test_a_process_that_knew_the_table_appends_to_none_of_its_name(keys: list[str], by_rows: bool) -> None:
    """Its entry would go behind the last one that it knows: rows that nobody reads, and a hole in the new log."""
    store = MemoryStore()
    catalog, knowing = DeltaStreamCatalog(store), DeltaStreamCatalog(store)
    catalog.create_table("t", primary_keys=["id"])
    more: dict[str, Any] = {"operation_column": "op"} if by_rows else {}
    rows = pa.table({"id": [1], "op": ["I"]})
    for _ in range(3):
        knowing.append("t", rows, **more)
    catalog.drop_table("t")
    with pytest.raises(NotFoundError, match="table 't' does not exist"):
        knowing.append("t", rows, **more)
    assert paths(store) == set()

    knowing.append(catalog.create_table("t", primary_keys=["id"]).table_id, rows, **more)
    catalog.drop_table("t")
    again = catalog.create_table("t", primary_keys=keys)
    refused = pytest.raises(deltacompact.SchemaError, match="key column 'other' is missing")
    with refused if keys == ["other"] else contextlib.nullcontext():
        knowing.append("t", rows, **more)
    with refused if keys == ["other"] else contextlib.nullcontext():
        knowing.restate("t", rows)
    again.append(pa.table({keys[0]: [2]}))
    assert again.read(columns=keys).to_pylist() == [{keys[0]: value} for value in ([1, 2] if keys == ["id"] else [2])]
    assert [found.problems for found in again.check()] == [()]


@pytest.mark.parametrize("destination", [None, "u"])
def test_a_process_that_knew_the_table_compacts_the_one_of_its_name(tmp_path: Path, destination: str | None) -> None:
    """What it remembers of the log would stand for the first entries of the new one, whose rows would be lost."""
    store = LocalStore(tmp_path / "lake")
    catalog, knowing = DeltaStreamCatalog(store), DeltaStreamCatalog(store)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "1.parquet")
    knowing.create_table("t", primary_keys=["id"]).append_files(str(tmp_path / "1.parquet"), reference=True)
    catalog.drop_table("t")
    catalog.create_table("t", primary_keys=["id"])
    for value in (2, 3):
        catalog.append("t", pa.table({"id": [value]}))
    knowing.table("t").compact(destination_compacted_table_id=destination, settings=LOCAL)
    assert catalog.read(destination or "t").to_pylist() == [{"id": 2}, {"id": 3}]


def test_a_process_that_knew_the_table_is_told_when_it_reads() -> None:
    """It said that a file does not exist, for ever."""
    store = MemoryStore()
    catalog, knowing = DeltaStreamCatalog(store), DeltaStreamCatalog(store)
    catalog.create_table("t", primary_keys=["id"]).append(pa.table({"id": [1]}))
    assert knowing.read("t").num_rows == 1
    catalog.drop_table("t")
    catalog.create_table("t", primary_keys=["id"]).append(pa.table({"id": [2, 3]}))
    with pytest.raises(ConflictError, match="table 't' was dropped, and created again: start again"):
        knowing.read("t")
    assert knowing.read("t").num_rows == 2


@pytest.mark.parametrize("call", ["append", "restate", "by rows"])
def test_what_is_written_for_long_is_appended_to_no_other_table(call: str) -> None:
    """A hole in its log, so that nobody could read it, or entries that name files which the drop had deleted."""
    store, now_s = MemoryStore(), [1000.0]
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", primary_keys=["id"])

    def meanwhile(kind: str, path: str, act: Callable[[], Any]) -> Any:
        if kind == "writer" and now_s[0] == 2000.0:
            catalog.drop_table("t")
            catalog.create_table("t", primary_keys=["id"]).append(pa.table({"id": [9]}))
            now_s[0] += 60
        return act()

    slow = DeltaStreamCatalog(InterceptedStore(store, meanwhile), clock=lambda: now_s[0])
    rows = pa.table({"id": [1], "op": ["I"]})
    for _ in range(3):
        slow.append("t", rows)
    now_s[0] = 2000.0
    with pytest.raises(ConflictError, match="table 't' was dropped, and created again: start again"):
        slow.restate("t", rows) if call == "restate" else slow.append(
            "t", rows, **({"operation_column": "op"} if call == "by rows" else {})
        )
    assert catalog.read("t").to_pylist() == [{"id": 9}]
    assert [found.problems for found in catalog.table("t").check()] == [()]


@pytest.mark.parametrize("later", [False, True])
def test_a_compaction_of_a_table_that_was_dropped_meanwhile_seals_none_of_its_name(later: bool) -> None:
    """Its seal would be the next entry of the new table, whose rows would be gone; it said that all went well."""
    store = MemoryStore()
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", primary_keys=["id"]).append(pa.table({"id": [1]}))
    if later:
        catalog.table("t").compact(settings=LOCAL)
        catalog.append("t", pa.table({"id": [2]}))

    def meanwhile(kind: str, path: str, act: Callable[[], Any]) -> Any:
        done = act()
        if "/outputs-" in path and kind == "put_if_absent":
            catalog.drop_table("t")
            catalog.create_table("t", primary_keys=["id"]).append(pa.table({"id": [9]}))
        return done

    with pytest.raises(ConflictError, match="table 't' was dropped, and created again: start again"):
        DeltaStreamCatalog(InterceptedStore(store, meanwhile)).table("t").compact(settings=LOCAL)
    for process in (catalog, DeltaStreamCatalog(store)):
        assert process.read("t").to_pylist() == [{"id": 9}]
        assert [found.problems for found in process.table("t").check()] == [()]


def test_a_drop_that_is_interrupted_says_that_it_is_under_way() -> None:
    """By default an interrupted command says that the table is as it was, which this one is not."""
    inner = MemoryStore()
    lived(DeltaStreamCatalog(inner))

    def intercept(kind: str, path: str, act: Callable[[], Any]) -> Any:
        if kind == "delete" and "t/table.json" not in paths(inner):
            raise KeyboardInterrupt
        return act()

    catalog = DeltaStreamCatalog(InterceptedStore(inner, intercept))
    with pytest.raises(deltacompact.Interrupted, match="the drop of table 't' is under way: repeat it to finish"):
        catalog.drop_table("t")
    DeltaStreamCatalog(inner).drop_table("t")
    assert paths(inner) == set()


def test_a_drop_of_which_nobody_knows_says_once_to_repeat_it() -> None:
    inner = MemoryStore()
    lived(DeltaStreamCatalog(inner))

    def intercept(kind: str, path: str, act: Callable[[], Any]) -> Any:
        if path == "t/dropped.json" and kind != "list":
            raise StoreError("no reply")
        return act()

    said = "the drop of table 't' may or may not be under way (no reply): repeat it to finish"
    with pytest.raises(StoreError, match=f"^{re.escape(said)}$"):
        DeltaStreamCatalog(InterceptedStore(inner, intercept)).drop_table("t")


@pytest.mark.parametrize("keys", [[], ["day"], ["day", "hour"]])
def test_what_a_writer_put_behind_a_drop_goes_with_the_next_one(keys: list[str]) -> None:
    """It leaves a hole in the log of a new table of that name, which nobody can read until it is dropped."""
    store = MemoryStore()
    catalog = DeltaStreamCatalog(store)
    table = catalog.create_table("t", keys, ["id"])
    partition = dict.fromkeys(keys, "a/%") or None
    for number in range(3):
        table.append(pa.table({"id": [number]}), partition)
    late = {path: store.get(path) for path in paths(store) if "/data/" in path or path.endswith("2.json")}
    table.drop()
    for path, data in late.items():
        store.put(path, data)
    foreign = {"t/day=1/hour=2/min=3/stream/0/00000000000000000001.json", "t/sub/stream/0/00000000000000000001.json"}
    for path in foreign:
        store.put(path, b"theirs")
    assert len(late) == 4
    catalog.create_table("t", keys, ["id"]).drop()
    assert paths(store) == foreign


def test_what_a_writer_puts_during_a_drop_goes_with_it() -> None:
    inner, put = MemoryStore(), list[str]()
    table = DeltaStreamCatalog(inner).create_table("t", primary_keys=["id"])
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    last = "t/stream/0/00000000000000000003.json"
    entry = inner.get(last)

    def intercept(kind: str, path: str, act: Callable[[], Any]) -> Any:
        done = act()
        if kind == "delete" and last not in paths(inner) and not put:
            put.append(last)
            inner.put(last, entry)
        return done

    result = DeltaStreamCatalog(InterceptedStore(inner, intercept)).drop_table("t")
    assert put == [last] and result.left == () and paths(inner) == set()


def test_what_others_put_there_stays_and_is_named(store: Any) -> None:
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", primary_keys=["id"]).append(pa.table({"id": [1]}))
    foreign = {"t/notes.txt", "t/data/backup.parquet", "t/stream/0/00000000000000000001.json.bak", "t/sub/table.json"}
    foreign |= {"t/sub/data/" + "5c" * 16, "t/data/old/" + "5c" * 16, "t/partitions/elsewhere", "t2/table.json"}
    for path in foreign:
        store.put(path, b"theirs")
    result = catalog.drop_table("t")
    assert paths(store) == foreign
    assert {stat.path for stat in result.left} == foreign - {"t2/table.json"}


def test_files_by_reference_stay(tmp_path: Path) -> None:
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    pq.write_table(pa.table({"id": [1]}), tmp_path / "mine.parquet")
    table = catalog.create_table("t", primary_keys=["id"])
    table.append_files([tmp_path / "mine.parquet"], reference=True)
    table.drop()
    assert pq.read_table(tmp_path / "mine.parquet").num_rows == 1


def dying_at(inner: MemoryStore, number: int) -> tuple[InterceptedStore, list[str]]:
    done: list[str] = []

    def intercept(kind: str, path: str, act: Callable[[], Any]) -> Any:
        if kind in ("put", "put_if_absent", "delete"):
            done.append(path)
            if len(done) > number:
                raise Crash
        return act()

    return InterceptedStore(inner, intercept), done


def test_a_drop_that_is_killed_anywhere_is_repeated_and_the_name_is_taken_until_then() -> None:
    whole = MemoryStore()
    lived(DeltaStreamCatalog(whole))
    for number in range(100):
        inner = copy_of(whole)
        store, done = dying_at(inner, number)
        try:
            DeltaStreamCatalog(store).drop_table("t")
        except Crash:
            process = DeltaStreamCatalog(inner)
            begun = "t/dropped.json" in paths(inner)
            if begun and "t/table.json" not in paths(inner):
                with pytest.raises(NotFoundError, match=r"does not exist.*a drop of it has begun: repeat that"):
                    process.table("t")
                with pytest.raises(ConflictError, match=r"'t' is being dropped.*repeat the drop"):
                    process.create_table("t", ["day"], ["id"])
                assert process.tables() == []
            elif not begun:
                assert len(process.read("t")) > 0
            process.drop_table("t")
            assert paths(inner) == set()
            continue
        assert number == len(done) > 4
        return
    pytest.fail("it never ended")


def test_a_drop_is_repeated_where_the_catalog_has_bucket_in_its_name(tmp_path: Path) -> None:
    """The name was taken for the word of an error: nothing could finish the drop, and nothing could take the name."""
    for inner in (LocalStore(tmp_path / "my-bucket"), MemoryStore("s3://my-bucket/lake/")):
        catalog = DeltaStreamCatalog(inner)
        catalog.create_table("bucketed")
        with pytest.raises(NotFoundError, match=r"table 'bucket' does not exist in .* you mean 'bucketed'"):
            catalog.table("bucket")
        with pytest.raises(Crash):
            DeltaStreamCatalog(dying_at(inner, 2)[0]).drop_table("bucketed")
        assert paths(inner) == {"bucketed/dropped.json"}
        with pytest.raises(NotFoundError, match="a drop of it has begun: repeat that"):
            catalog.table("bucketed")
        catalog.drop_table("bucketed")
        assert paths(inner) == set()


OWN = ("table.json", "keys.json", "source.json", "bookmarks", "partitions", "/stream/", "/data/")


@pytest.mark.parametrize("kept", OWN)
def test_a_drop_of_which_the_store_deletes_a_part_is_repeated(kept: str) -> None:
    """S3 does that. The name was free then, and a new table got the keys, source and bookmarks that were left."""

    class Partial(MemoryStore):
        fails = True

        def delete(self, paths: Any) -> None:
            paths = list(paths)
            if self.fails and any(kept in path for path in paths):
                self.fails = False
                super().delete(path for path in paths if kept not in path)
                raise StoreError("deleting one of them failed: InternalError")
            super().delete(paths)

    store = Partial()
    table = DeltaStreamCatalog(store).create_table("t", ["day"])
    table.append(pa.table({"id": [1]}), {"day": "a"})
    table.compact(primary_keys=["id"], settings=LOCAL)
    table.changes("1970-01-01", bookmark="mirror").read_all()
    with pytest.raises(StoreError):
        DeltaStreamCatalog(store).drop_table("t")
    with pytest.raises(ConflictError):
        DeltaStreamCatalog(store).create_table("t", ["day"], ["id"])
    DeltaStreamCatalog(store).drop_table("t")
    assert paths(store) == set()


def test_a_table_that_is_created_while_its_namesake_is_dropped_is_refused() -> None:
    inner = MemoryStore()
    DeltaStreamCatalog(inner).create_table("t", primary_keys=["id"])

    def intercept(kind: str, path: str, act: Callable[[], Any]) -> Any:
        if kind == "put_if_absent" and path == "t/table.json":  # after create has looked, before it puts
            inner.put("t/dropped.json", inner.get("t/table.json"))
            inner.delete(["t/table.json"])
        return act()

    with pytest.raises(ConflictError, match="'t' is being dropped"):
        DeltaStreamCatalog(InterceptedStore(inner, intercept)).create_table("t", primary_keys=["id"])
    assert paths(inner) == {"t/dropped.json"}


def test_a_source_of_a_destination_and_a_published_table_are_refused(tmp_path: Path) -> None:
    catalog = deltacompact.open_catalog(tmp_path / "lake")
    catalog.create_table("t", primary_keys=["id"]).append(pa.table({"id": [1]}))
    catalog.table("t").compact(settings=LOCAL, destination_compacted_table_id="flat")
    with pytest.raises(InputError, match="table 'flat' takes the compacted rows of 't': drop 'flat' first"):
        catalog.drop_table("t")
    catalog.drop_table("flat")
    catalog.table("t").publish(f"delta://{tmp_path}/out")
    before = paths(catalog.store)
    with pytest.raises(InputError, match=r"table 't' is published to delta://.*stop that first"):
        catalog.drop_table("t")
    assert paths(catalog.store) == before
    catalog.table("t").stop_publishing()
    catalog.drop_table("t")
    assert catalog.tables() == []


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    lake = str(tmp_path / "lake")
    table = deltacompact.open_catalog(lake).create_table("t", primary_keys=["id"])
    table.append(pa.table({"id": [1]}))
    (tmp_path / "lake/t/notes.txt").write_text("mine")
    assert command_line(["drop", lake, "t"]) == 2
    assert "add --yes (or --dry-run" in capsys.readouterr().err
    assert command_line(["drop", lake, "t", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("t: would delete 1 stream, ")
    assert table.read().num_rows == 1
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answered, status in (("u", 2), ("t", 0)):
        monkeypatch.setattr("click.prompt", lambda *_, given=answered, **__: given)
        assert command_line(["drop", lake, "t"]) == status
    assert capsys.readouterr().out.splitlines()[1:] == ["  1 object of others left: t/notes.txt"]
    deltacompact.open_catalog(lake).create_table("t", primary_keys=["id"])
    assert command_line(["drop", lake, "t", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left"] == ["t/notes.txt"]
    assert command_line(["drop", lake, "t", "--yes"]) == 2
    assert "table 't' does not exist" in capsys.readouterr().err


def test_streams_of_an_unpartitioned_table_lie_beside_its_own_objects(store: Any) -> None:
    catalog = DeltaStreamCatalog(store)
    catalog.create_table("t", primary_keys=["id"]).append(pa.table({"id": [1]}))
    catalog.table("t").compact(settings=LOCAL)
    assert catalog.state("t", Partition()).compacted is not None
    catalog.drop_table("t")
    assert paths(store) == set()
