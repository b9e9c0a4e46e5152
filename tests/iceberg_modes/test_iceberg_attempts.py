"""What an attempt at a commit asks for between its look at the head and its swap: the time in which others win.

the next attempt    GET metadata, GET list, GET manifest      what the other writer wrote, each named by the one before
                    HEAD journal, twice                       meanwhile
                    PUT list, then PUT metadata, then swap    each names the one before

Nothing waits here: requests that must go out side by side meet at a barrier, which breaks where one of them waits for
another.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from iceberg_lake import SETTINGS
from live_writers import late
from pyiceberg.io.pyarrow import PyArrowFile
from version_3 import delete_by_vector

from deltacompact.base.errors import OutcomeUnknownError, StoreError
from deltacompact.iceberg.commit.beside import Beside
from deltacompact.iceberg.table.metadata import MAIN
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.iceberg_modes.driver import ModeRun
from deltacompact.iceberg_modes.journal.journal import Journal, TakenOverError
from deltacompact.iceberg_modes.modes import REWRITE
from deltacompact.iceberg_modes.rewrite.options import rewrite_options
from deltacompact.storage.local import LocalStore

T = "ns.t"
ID = pa.schema([("id", pa.int64())])
READS, WRITES = ("get", "fetch", "open"), ("put", "put_if_absent", "writer")
_KINDS = {
    r".*\.metadata\.json": "metadata",
    r"snap-.*\.avro": "list",
    r".*-m[0-9]*\.avro": "manifest",
    r"commit-.*\.json": "commit",
    r"holder-.*\.json": "holder",
    r"plan\.json": "plan",
}


def kind_of(path: str) -> str:
    name = path.rpartition("/")[2]
    return next((kind for pattern, kind in _KINDS.items() if re.fullmatch(pattern, name)), name)


@dataclass
class Asked:
    """What is asked of all local stores, as it begins. `meeting`: what must be asked before any of it is answered."""

    requests: list[tuple[str, str]] = field(default_factory=list)
    meeting: Counter[tuple[str, str]] = field(default_factory=Counter)
    barrier: threading.Barrier | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def meets(self, *requests: tuple[str, str]) -> None:
        self.meeting, self.barrier = Counter(requests), threading.Barrier(len(requests), timeout=20)

    def begins(self, act: str, path: object) -> None:
        request = act, kind_of(path) if isinstance(path, str) else "several"
        with self.lock:
            self.requests.append(request)
            waits = self.barrier if self.meeting[request] > 0 else None
            self.meeting[request] -= 1
        if waits is not None:
            waits.wait()


@pytest.fixture
def asked(monkeypatch) -> Asked:
    found = Asked()

    def watched(act: str, do: Callable[..., object]) -> Callable[..., object]:
        def watching(store, path, *others, **more):
            found.begins(act, path)
            return do(store, path, *others, **more)

        return watching

    def by_location(act: str, do: Callable[..., object]) -> Callable[..., object]:
        def watching(file, *others, **more):
            found.begins(act, file.location)
            return do(file, *others, **more)

        return watching

    for act in ("get", "put", "stat", "delete", "list"):
        monkeypatch.setattr(LocalStore, act, watched(act, getattr(LocalStore, act)))
    for act in ("open", "create"):  # PyIceberg's own way
        monkeypatch.setattr(PyArrowFile, act, by_location(act, getattr(PyArrowFile, act)))
    return found


def table_of(lake, version):
    lake.create(T, ID, version)
    for number in (1, 2, 3):
        lake.append(T, [{"id": number}])


def rewritten(lake, catalog, before_commit):
    options = rewrite_options({"rewrite-all": "true", "delete-ratio-threshold": "1"}, {})
    table = IcebergTable.load(catalog, T)
    return ModeRun(table, MAIN, options, SETTINGS, before_commit=before_commit, mode=REWRITE).run()


def metadata_files(lake):
    return Path(lake.folder, "warehouse").rglob("*.avro")


def until_swap(requests):
    return requests[: requests.index(("swap", ""))]


@pytest.mark.parametrize("version", [2, 3])
def test_the_first_attempt_is_recorded_and_then_writes_all_side_by_side(lake, asked, version):
    table_of(lake, version)

    def begin():
        lake.append(T, [{"id": 4}])
        asked.requests.clear()
        asked.meets(("stat", "holder"), ("put", "manifest"), ("put", "manifest"), ("put", "list"))

    catalog = late(lake, lambda: None, lambda: asked.begins("swap", ""))
    rewritten(lake, catalog, begin)
    found = until_swap(asked.requests)
    assert found[:4] == [("get", "metadata"), ("get", "list"), ("get", "manifest"), ("put", "commit")]
    assert Counter(request for request in found if request[0] not in READS) == Counter(
        {
            ("put", "manifest"): 2,
            ("put", "list"): 1,
            ("put", "metadata"): 1,
            ("put", "commit"): 1,
            ("stat", "holder"): 1,
            ("stat", "plan"): 1,
            ("stat", "manifest"): 1,  # how late it is, by the store's clock
        }
    )


@pytest.mark.parametrize("version", [2, 3])
def test_the_attempt_after_one_that_was_lost_to_an_append_reads_three_files_and_writes_two(lake, asked, version):
    table_of(lake, version)

    def swap():
        asked.begins("swap", "")
        if asked.requests.count(("swap", "")) == 1:
            asked.meets(("stat", "holder"), ("get", "list"))

    rewritten(lake, late(lake, lambda: lake.append(T, [{"id": 4}]), swap), lambda: None)
    found = until_swap(asked.requests[asked.requests.index(("swap", "")) + 1 :])
    assert [request for request in found if request[0] in READS] == [
        ("get", "metadata"),
        ("get", "list"),
        ("get", "manifest"),
    ]
    assert Counter(request for request in found if request[0] not in READS) == Counter(
        [("put", "list"), ("put", "metadata"), ("stat", "holder"), ("stat", "plan")]
    )
    assert sorted(lake.live_ids(T)) == [1, 2, 3, 4]


@pytest.mark.parametrize("version", [2, 3])
def test_the_attempt_after_one_that_was_lost_to_a_delete_records_nothing_and_asks_the_journal_while_it_reads(
    lake, asked, version
):
    """The marks that it writes are named by the record of the attempt before."""
    table_of(lake, version)
    delete = deletes(lake, version)

    def swap():
        asked.begins("swap", "")
        if asked.requests.count(("swap", "")) == 1:
            asked.meets(("stat", "holder"), ("get", "list"))

    catalog = late(lake, delete, swap)
    rewritten(lake, catalog, delete)
    found = until_swap(asked.requests[asked.requests.index(("swap", "")) + 1 :])
    counts = Counter(found)
    assert [request for request in found if request[0] == "get"] == [
        ("get", "metadata"),
        ("get", "list"),
        ("get", "manifest"),
    ]
    assert (counts["put", "commit"], counts["stat", "holder"], counts["stat", "plan"]) == (0, 1, 1)
    assert (counts["put", "list"], counts["put", "metadata"], counts["list", "several"]) == (1, 1, 0)
    assert (lake.live_ids(T) if version == 3 else [row["id"] for row in lake.rows(T)]) == [3]


def deletes(lake, version):
    """Others delete the rows 1 and 2, one each time."""
    by_id = {int.from_bytes(file.lower_bounds[1], "little"): file.path for file in (e.file for e in lake.state(T).data)}
    numbers = iter((1, 2))

    def delete():
        path = by_id[next(numbers)]
        delete_by_vector(lake, T, {path: [0]}) if version == 3 else lake.delete_by_position(T, {path: [0]})

    return delete


def test_a_table_that_nobody_changed_is_not_read_again(lake, asked):
    table_of(lake, 3)
    table = IcebergTable.load(lake.catalog, T)
    asked.requests.clear()
    assert table.reloaded() is table
    assert asked.requests == []
    lake.append(T, [{"id": 4}])
    newer = table.reloaded()
    assert newer.metadata.last_sequence_number == table.metadata.last_sequence_number + 1


@pytest.mark.parametrize("kind", ["manifest", "list", "metadata"])
def test_a_file_that_cannot_be_written_beside_the_others_ends_the_commit_and_nothing_lands(lake, monkeypatch, kind):
    """Of the metadata file the catalog would say: it may have been committed. Such an attempt is repeated."""
    table_of(lake, 2)
    put, denied = LocalStore.put, iter([True])

    def putting(store, path, data):
        if kind_of(path) == kind and next(denied, False):
            raise StoreError(f"{path}: 403 AccessDenied")
        put(store, path, data)

    monkeypatch.setattr(LocalStore, "put", putting)
    before = lake.state(T).snapshot_id
    if kind == "metadata":
        rewritten(lake, late(lake, lambda: None), lambda: None)
        assert lake.state(T).snapshot_id != before
    else:
        with pytest.raises(StoreError, match="403 AccessDenied") as caught:
            rewritten(lake, late(lake, lambda: None), lambda: None)
        assert not isinstance(caught.value, OutcomeUnknownError)
        assert lake.state(T).snapshot_id == before
    assert lake.live_ids(T) == [1, 2, 3]


def test_who_was_replaced_does_not_commit_although_all_files_are_written(lake, monkeypatch):
    """Another process takes over after the head is known: who asks the journal beside the writing must hear of it."""
    table_of(lake, 2)
    before = lake.state(T).snapshot_id
    known, attempted = set(metadata_files(lake)), Journal.attempted

    def taken(journal, *given):
        attempted(journal, *given)
        assert Journal.take_over(journal.store, journal.session)

    monkeypatch.setattr(Journal, "attempted", taken)
    with pytest.raises(TakenOverError):
        rewritten(lake, late(lake, lambda: None), lambda: None)
    assert lake.state(T).snapshot_id == before
    assert set(metadata_files(lake)) == known


def test_records_of_attempts_are_put_in_their_order(tmp_path):
    """They have one name. If the first was put after the second, the second one's files would be forgotten."""
    store, held = LocalStore(tmp_path), threading.Event()

    def first():
        held.wait(20)
        store.put("commit-1.json", b"y")

    with Beside() as beside:
        beside.record(first)
        beside.record(lambda: store.put("commit-1.json", b"y, m"))
        beside.put(store, str(tmp_path / "list.avro"), b"")
        assert list(store.list("")) == [], "no file comes before its record"
        held.set()
        beside.finish()
    assert store.get("commit-1.json") == b"y, m"
    assert [stat.path for stat in store.list("")] == ["commit-1.json", "list.avro"]
