"""What only saves requests: heads, listings and marks may be missing, stale, damaged or of another stream.

t/p=1/stream/hint.json of an hour ago       entries have come since: they are read
t/listing.json of another table             every stream is opened
t/p=1/vacuum.json, and a seal was removed   nothing is deleted
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from counting_store import CountingStore
from hypothesis import given
from hypothesis import strategies as st
from tables import problems

from deltacompact import CompactionResult, CorruptionError, DeltaStreamCatalog, Settings, compact
from deltacompact.base.model import Partition
from deltacompact.delta_streams.log import heads
from deltacompact.delta_streams.log.objects import LogLimits
from deltacompact.maintenance.vacuum.mark import FULL_VACUUM_S
from deltacompact.maintenance.vacuum.vacuum import VacuumResult, vacuum
from deltacompact.reading.parts import AHEAD_BYTES, TablePart, ahead_of_use, read_in_order
from deltacompact.storage.memory import MemoryStore

LOCAL = Settings(executor="local", local_threads=1)
DAYS = 24 * 3600
DAMAGED: list[Callable[[bytes], bytes]] = [
    lambda data: b"",
    lambda data: b"[]",
    lambda data: data[:-20],
    lambda data: data.replace(b"1", b"2"),
    lambda data: data.replace(b'"sha256"', b'"sha255"'),
]


class Lake:
    """A table of partitions p=0, p=1, … in a store behind a network."""

    def __init__(self, partitions: int = 2, limits: LogLimits | None = None) -> None:
        self.now_s = 1_000_000_000.0
        self.inner = MemoryStore(clock=lambda: self.now_s)
        self.store = CountingStore(self.inner)
        self.limits = limits or LogLimits(streams_listed_min=1, keys_in_a_page=5)
        self.keys: dict[int, list[int]] = {number: [] for number in range(partitions)}
        self.fresh().create_table("t", ["p"], ["k"])
        for number in self.keys:
            self.append(number)
            self.append(number)

    def fresh(self) -> DeltaStreamCatalog:
        return DeltaStreamCatalog(self.store, clock=lambda: self.now_s, log_limits=self.limits)

    def append(self, number: int) -> None:
        self.now_s += 1
        self.keys[number].append(int(self.now_s))
        self.fresh().append("t", pa.table({"k": [int(self.now_s)]}), {"p": str(number)})

    def compact(self, **how: Any) -> CompactionResult:
        self.now_s += 1
        return compact("t", delta_catalog_client=self.fresh(), settings=LOCAL, **how)

    def compacted(self) -> set[int]:
        """The partitions that a compaction finds something to do in."""
        sessions = self.compact().sessions
        assert [session.error for session in sessions] == [None] * len(self.keys)
        return {int(session.partition["p"] or "") for session in sessions if session.nothing_to_do is None}

    def vacuum(self, days: float = 0, **how: Any) -> VacuumResult:
        self.now_s += days * DAYS
        (result,) = vacuum(self.fresh(), "t", {"p": "0"}, **how)
        return result

    def path(self, name: str, number: int = 0) -> str:
        return f"t/p={number}/{name}"

    def partition(self, number: int = 0) -> Partition:
        return Partition((("p", str(number)),))

    def assert_sound(self) -> None:
        for number, keys in self.keys.items():
            assert sorted(self.fresh().read("t", self.partition(number))["k"].to_pylist()) == keys
        assert problems(self.fresh()) == []


# --- heads -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("compactions", [0, 1])
def test_a_head_that_is_stale_or_gone_or_damaged_or_of_another_stream_misleads_nobody(compactions: int) -> None:
    lake = Lake()
    for _ in range(compactions):
        lake.compact()
        lake.append(0)
    head = lake.path("stream/hint.json")
    stale, other = lake.inner.get(head), lake.inner.get(lake.path("stream/hint.json", 1))
    lake.append(0)
    spoilt = [stale, other, *(damage(lake.inner.get(head)) for damage in DAMAGED)]
    for data in [*spoilt, None]:
        if data is None:
            lake.inner.delete([head])
        else:
            lake.inner.put(head, data)
        lake.assert_sound()
        lake.append(0)
        lake.assert_sound()
    assert lake.compacted() == ({0, 1} if not compactions else {0})
    lake.assert_sound()


def test_a_head_to_a_version_that_no_seal_leads_to_does_not_count() -> None:
    lake = Lake()
    lake.compact()
    head = json.loads(lake.inner.get(lake.path("stream/hint.json")))
    seal = f"stream/0/{head['seal']:020}.json"
    lake.inner.delete([lake.path(seal)])
    assert lake.fresh().state("t", lake.partition()).version == "0"


def test_a_log_that_lost_the_end_that_its_head_repeats_is_not_compacted() -> None:
    lake = Lake()
    lake.inner.delete([lake.path("stream/0/00000000000000000002.json")])
    failed = lake.compact().sessions[0]
    assert isinstance(failed.error, CorruptionError)
    assert "00000000000000000002.json is missing" in str(failed.error)


def test_the_hint_of_an_older_release_is_followed() -> None:
    lake = Lake()
    lake.compact()
    head = json.loads(lake.inner.get(lake.path("stream/hint.json")))
    for fields in (("version",), ("version", "parent", "seal")):
        hint = {name: head[name] for name in fields}
        lake.inner.put(lake.path("stream/hint.json"), json.dumps(hint).encode())
        assert lake.fresh().state("t", lake.partition()).version == head["version"]
        lake.append(0)
        lake.assert_sound()


def test_the_bodies_of_the_entries_that_a_head_repeats_are_fetched_side_by_side(monkeypatch) -> None:
    """After 99 long entries, a process read 99 bodies one after another before it could append or read."""
    lake, get = Lake(1, LogLimits(entry_bytes_max=100)), MemoryStore.get
    all_asked = threading.Barrier(3, timeout=5)  # for the bodies of `opened` and of two commits

    def awaited(store: MemoryStore, path: str) -> bytes:
        if "/manifest/" in path:
            all_asked.wait()
        return get(store, path)

    monkeypatch.setattr(MemoryStore, "get", awaited)
    assert len(lake.fresh().state("t", lake.partition()).commits) == 2


def test_a_head_repeats_each_schema_once() -> None:
    """Each append to a table of 300 columns uploaded a head of up to 2 MB."""
    lake = Lake(1)
    for _ in range(20):
        wide = pa.table({"k": [len(lake.keys[0])], **{f"column_{number}": [0.5] for number in range(300)}})
        lake.fresh().append("t", wide, {"p": "0"})
    entry = lake.inner.get(lake.path(f"stream/0/{22:020}.json"))
    head = lake.inner.get(lake.path("stream/hint.json"))
    assert len(head) < 2 * len(entry)
    lake.store.reset()
    assert len(lake.fresh().state("t", lake.partition()).commits) == 22
    read = [path for kind, path in lake.store.requests if kind == "get" and "/stream/0/" in path]
    assert read == [lake.path(f"stream/0/{23:020}.json")], "only what may have come since"


@given(
    st.lists(
        st.one_of(
            st.fixed_dictionaries({"kind": st.just("fence"), "session_id": st.text()}),
            st.fixed_dictionaries({"schemas": st.lists(st.sampled_from("abc")), "commit": st.integers()}),
        )
    ),
    st.integers(0, 200),
)
def test_a_head_has_the_entries_that_it_was_made_of(entries: list[dict[str, Any]], first: int) -> None:
    data = heads.encoded("t", "0", None, None, first, [json.dumps(entry).encode() for entry in entries])
    head = heads.parsed("t", data)
    assert head is not None
    assert (head.version, list(head.entries)) == ("0", entries)
    assert head.first == (first if entries else 0)
    other = heads.parsed("u", data)
    assert other is not None
    assert not other.entries, "it is another stream's"


# --- listings --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("page", [2, 5, 40, 1000])
def test_only_the_streams_that_changed_since_the_listing_are_opened(page: int) -> None:
    lake = Lake(6, LogLimits(streams_listed_min=1, keys_in_a_page=page))
    assert lake.compacted() == set(range(6))
    for changed in ([], [3], [0, 5], [1, 2, 4], []):
        for number in changed:
            lake.append(number)
        lake.store.reset()
        assert lake.compacted() == set(changed)
        opened = {path for kind, path in lake.store.requests if kind == "get" and path.endswith("hint.json")}
        assert {lake.path("stream/hint.json", number) for number in changed} <= opened
        assert page < 40 or len(opened) == len(changed)
        lake.assert_sound()


@pytest.mark.slow
def test_a_listing_that_is_stale_or_gone_or_damaged_misleads_nobody() -> None:
    lake = Lake(3)
    lake.compact()
    stale = lake.inner.get("t/listing.json")
    lake.append(1)
    assert lake.compacted() == {1}
    lake.append(1)
    current = lake.inner.get("t/listing.json")
    other = json.loads(current)
    other["streams"] = [[["9"], *fields] for _, *fields in other["streams"]]
    for data in [stale, json.dumps(other).encode(), *(damage(current) for damage in DAMAGED), None]:
        if data is None:
            lake.inner.delete(["t/listing.json"])
        else:
            lake.inner.put("t/listing.json", data)
        assert lake.fresh().partitions("t") == [lake.partition(number) for number in range(3)]
        assert lake.compacted() == {1}
        lake.append(1)
        lake.assert_sound()


def test_foreign_objects_and_holes_in_a_listed_log_are_met_as_without_a_listing() -> None:
    lake = Lake(3)
    lake.compact()
    versions = [lake.fresh().state("t", lake.partition(number)).version for number in range(3)]
    lake.inner.put(lake.path(f"stream/{versions[0]}/00000000000000000001.json.bak", 0), b"theirs")
    lake.append(1)
    lake.append(1)
    lake.inner.delete([lake.path(f"stream/{versions[1]}/00000000000000000002.json", 1)])
    sessions = lake.compact().sessions
    assert [type(session.error) for session in sessions] == [type(None), CorruptionError, type(None)]
    assert [session.nothing_to_do is not None for session in sessions] == [True, False, True]


def test_a_purge_opens_the_streams_whose_files_have_dead_rows() -> None:
    lake = Lake(2)
    lake.compact()
    catalog = lake.fresh()
    lake.now_s += 1
    catalog.append("t", pa.table({"k": [lake.keys[0].pop()]}), {"p": "0"}, operation="delete")
    lazily = Settings(executor="local", local_threads=1, rewrite_dead_fraction=1.0)
    compact("t", delta_catalog_client=catalog, settings=lazily)
    assert lake.compacted() == set()
    purged = lake.compact(purge=True).sessions
    assert [session.nothing_to_do is None for session in purged] == [True, False]
    lake.assert_sound()


# --- marks -----------------------------------------------------------------------------------------------------------


def cleaned_lake() -> Lake:
    """Compacted twice and vacuumed: there is a mark."""
    lake = Lake(1)
    for _ in range(2):
        lake.compact()
        lake.append(0)
    assert lake.vacuum(4).deleted
    return lake


def is_idle(lake: Lake, **how: Any) -> bool:
    """Whether a vacuum sees by the mark that there is nothing to do."""
    lake.store.reset()
    result = lake.vacuum(**how)
    return not any(
        "/stream/" in path and kind == "get" and "hint" not in path for kind, path in lake.store.requests
    ) and (not result.deleted)


def test_a_vacuum_with_a_mark_notices_what_comes_later_and_what_grows_old() -> None:
    lake = cleaned_lake()
    assert is_idle(lake) and is_idle(lake, days=1)
    left_behind, theirs = lake.path(f"data/{uuid.uuid4().hex}.parquet"), lake.path("data/notes.txt")
    for path in (left_behind, theirs):
        lake.inner.put(path, b"of a writer that died")
    assert not is_idle(lake)
    assert is_idle(lake, days=2)
    lake.append(0)
    lake.now_s += 120  # the entry is surely newer than what was left behind
    assert lake.vacuum().deleted == ()
    assert [stat.path for stat in lake.vacuum(2).deleted] == [left_behind]
    assert lake.inner.get(theirs)
    lake.assert_sound()


def test_a_retained_version_grows_old_without_any_new_object() -> None:
    lake = cleaned_lake()
    lake.compact()
    first = lake.vacuum()
    assert first.waiting and not first.deleted
    assert is_idle(lake, days=1) and lake.vacuum().waiting == first.waiting
    later = lake.vacuum(3)
    assert set(first.waiting) <= set(later.deleted) and later.waiting == ()
    assert is_idle(lake)
    lake.assert_sound()


def test_a_vacuum_reads_the_whole_history_again_in_time_and_on_demand() -> None:
    lake = cleaned_lake()
    assert is_idle(lake, days=FULL_VACUUM_S / DAYS - 1)
    assert not is_idle(lake, full=True)
    assert is_idle(lake, days=FULL_VACUUM_S / DAYS - 1)
    assert not is_idle(lake, days=2)


def test_a_mark_that_is_stale_or_gone_or_damaged_means_more_work() -> None:
    lake = cleaned_lake()
    path = lake.path("vacuum.json")
    stale = lake.inner.get(path)
    lake.append(0)
    lake.compact()
    assert lake.vacuum(4).deleted
    current = lake.inner.get(path)
    for data in [stale, *(damage(current) for damage in DAMAGED), None]:
        if data is None:
            lake.inner.delete([path])
        else:
            lake.inner.put(path, data)
        assert not is_idle(lake)
        assert is_idle(lake)
        lake.assert_sound()


@pytest.mark.parametrize("removed", ["seal", "entry of a sealed version", "entry"])
def test_a_vacuum_with_a_mark_refuses_a_log_that_lost_entries(removed: str) -> None:
    lake = cleaned_lake()
    state = lake.fresh().state("t", lake.partition())
    parent = state.opened.parent
    assert parent is not None
    log = sorted(stat.path for stat in lake.inner.list(lake.path(f"stream/{parent}/")))
    gone = {
        "seal": log[-1],
        "entry of a sealed version": log[1],
        "entry": lake.path(f"stream/{state.version}/{0:020}.json"),
    }
    lake.inner.delete([gone[removed]])
    before = [stat.path for stat in lake.inner.list("")]
    with pytest.raises(CorruptionError):
        lake.vacuum(40)
    assert [stat.path for stat in lake.inner.list("")] == before


# --- parts that are read ahead ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 3, 64])
def test_parts_are_read_in_order_and_an_error_comes_where_its_rows_would(at_once: int) -> None:
    def rows(number: int) -> Any:
        if number == 7:
            raise CorruptionError("seven")
        yield from (pa.table({"n": [number * 10 + batch]}) for batch in range(2))

    sizes = [1, AHEAD_BYTES, 1, AHEAD_BYTES // 8, 5, 1, 1, 1, 1]
    parts = (TablePart(size, lambda number=number: rows(number)) for number, size in enumerate(sizes))
    found = []
    with pytest.raises(CorruptionError, match="seven"):
        for table in read_in_order(parts, at_once):
            found += table["n"].to_pylist()
    assert found == [number * 10 + batch for number in range(7) for batch in range(2)]
    assert list(ahead_of_use(range(100), lambda number: number * 2, at_once)) == [number * 2 for number in range(100)]


def test_a_reader_that_stops_halfway_begins_no_more_reads() -> None:
    begun: list[int] = []

    def rows(number: int) -> Any:
        begun.append(number)
        yield pa.table({"n": [number]})

    tables = read_in_order((TablePart(1, lambda number=number: rows(number)) for number in range(1000)), 4)
    assert next(tables)["n"].to_pylist() == [0]
    tables.close()  # type: ignore[attr-defined]
    assert len(begun) <= 10


def test_a_destination_that_never_came_to_be_hides_no_error():
    lake = Lake()
    lake.inner.delete([stat.path for stat in lake.inner.list("t/") if "/data/" in stat.path])
    with pytest.raises(Exception, match=r"\.parquet") as failed:
        compact("t", delta_catalog_client=lake.fresh(), destination_compacted_table_id="d", settings=LOCAL)
    assert len(failed.value.result.sessions) == 2


def test_who_follows_a_stream_for_months_remembers_two_of_its_versions() -> None:
    """A watcher, or a writer beside one that compacts, remembered the files of every version since it began."""
    lake = Lake(1)
    following, partition = lake.fresh(), Partition((("p", "0"),))
    for number in range(6):
        lake.append(0)
        lake.compact()
        assert following.state("t", partition).compacted is not None
        following.append("t", pa.table({"k": [number]}), {"p": "0"})
        log = following.log("t", partition)
        recent = log.objects.recent
        for known in (log._seen, log._unlisted, log._head._led_by, recent._entries, recent._first, recent.written):
            assert len(known) <= 2
    assert len(following.table("t").history()) == 7
