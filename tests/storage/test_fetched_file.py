"""A remote file: which requests are sent for what is announced and read, and how much of it is in memory."""

from __future__ import annotations

import io
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from remote_store import RemoteStore

from deltacompact.base.errors import InputError, NotFoundError
from deltacompact.base.limits import ReadLimits
from deltacompact.storage import fetched_file
from deltacompact.storage.fetched_file import FetchedFile, ReadAhead, begun_ahead, open_fetched, requests
from deltacompact.storage.throttle import Pace, paced

SMALL = ReadLimits(read_ahead_bytes=4_000, request_bytes=1_000, gap_bytes=50, tail_bytes=100, whole_bytes=200)
DATA = random.Random(7).randbytes(50_000)


@pytest.fixture
def store() -> RemoteStore:
    made = RemoteStore()
    made.inner.put("x", DATA)
    return made


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([(0, 100), (100, 200)], [(0, 200, 200)]),
        ([(0, 100), (150, 200)], [(0, 200, 150)]),
        ([(0, 100), (151, 200)], [(0, 100, 100), (151, 200, 49)]),
        ([(0, 600), (600, 1_001)], [(0, 600, 600), (600, 1_001, 401)]),
        ([(500, 600), (0, 100)], [(500, 600, 100), (0, 100, 100)]),
        ([(0, 2_500)], [(0, 833, 833), (833, 1_666, 833), (1_666, 2_500, 834)]),
        ([(5, 5), (9, 7)], []),
    ],
    ids=["adjacent", "small gap", "large gap", "more than a request", "backwards", "large", "empty"],
)
def test_ranges_become_requests(ranges: list[tuple[int, int]], expected: list[tuple[int, int, int]]) -> None:
    assert list(requests(ranges, 1_000, 50)) == expected


def test_opening_takes_one_request_and_no_head(store: RemoteStore) -> None:
    file = open_fetched(store, "x", SMALL)
    assert (file.size(), file.read_at(100, 49_900), file.etag) == (50_000, DATA[49_900:], store.stat("x").etag)
    assert store.ranges == [("x", -100, 100)]
    store.forget()
    store.inner.put("small", DATA[:150])
    known = ReadAhead(SMALL).file(store, "small", 150)
    assert known is not None and known.read() == DATA[:150]
    assert store.ranges == [("small", -150, 150)]
    with pytest.raises(NotFoundError, match="nothing"):
        open_fetched(store, "nothing")
    store.inner.put("empty", b"")
    assert open_fetched(store, "empty").read() == b""


def test_a_wrong_size_in_the_log_is_only_a_hint(store: RemoteStore) -> None:
    for hint in (1, 49_000, 60_000):
        for whole in (False, True):
            file = ReadAhead(SMALL).file(store, "x", hint, whole)
            assert file is not None and file.size() == 50_000
            assert file.read() == DATA


def test_announced_ranges_are_fetched_once_and_read_in_any_pieces(store: RemoteStore) -> None:
    file = open_fetched(store, "x", SMALL)
    store.forget()
    file.announce([(10, 400), (420, 900), (20_000, 23_000), (49_950, 50_000)])
    assert file.read_at(390, 10) == DATA[10:400]
    assert file.read_at(480, 420) == DATA[420:900]
    assert [file.read_at(1_500, start) for start in (20_000, 21_500)] == [DATA[20_000:21_500], DATA[21_500:23_000]]
    assert file.read_at(500, 49_950) == DATA[49_950:]  # the tail has it
    assert store.ranges == [("x", 10, 890), ("x", 20_000, 1_000), ("x", 21_000, 1_000), ("x", 22_000, 1_000)]
    file.seek(7)
    assert (file.read(3), file.tell(), file.read_buffer(2)) == (DATA[7:10], 10, DATA[10:12])  # not announced


def test_what_is_under_way_or_waits_is_bounded_and_released_as_it_is_read() -> None:
    store, waiting = RemoteStore(delay_s=0.01), []
    store.inner.put("x", DATA)
    ahead = ReadAhead(SMALL)
    file = ahead.file(store, "x")
    assert file is not None
    file.announce([(0, 49_000)])
    for start in range(0, 49_000, 500):
        waiting.append(ahead._held_bytes)
        assert file.read_at(500, start) == DATA[start : start + 500]
    assert 3_000 <= max(waiting) <= SMALL.read_ahead_bytes
    assert ahead._held_bytes == 0
    assert store.under_way_max >= 3
    assert store.fetches() == 50  # and the tail


def test_a_large_read_has_few_requests_under_way_at_a_time() -> None:
    store = RemoteStore(delay_s=0.005)
    store.inner.put("x", DATA)
    file = open_fetched(store, "x", SMALL)
    assert file.read_at(50_000, 0) == DATA
    assert 2 <= store.under_way_max <= 8


def test_readers_of_one_room_do_not_wait_for_each_other(store: RemoteStore) -> None:
    """The first file takes all the room, and nobody reads it yet."""
    ahead = ReadAhead(SMALL)
    first, second = ahead.file(store, "x"), ahead.file(store, "x")
    assert first is not None and second is not None
    first.announce([(0, 20_000)])
    second.announce([(0, 20_000)])
    assert second.read_at(20_000, 0) == DATA[:20_000]
    assert first.read_at(20_000, 0) == DATA[:20_000]
    first.announce([(30_000, 40_000)])
    first.close()
    second.close()
    assert (ahead._held_bytes, ahead._held) == (0, 0)


def test_files_are_opened_before_ranges_of_earlier_files_are_fetched(store: RemoteStore) -> None:
    for number in range(40):
        store.inner.put(f"f{number}", DATA[:10_000])
    ahead = ReadAhead(SMALL)
    opened = [ahead.file(store, f"f{number}", 10_000) for number in range(40)]
    assert len(store.ranges) == fetched_file.REQUESTS_AHEAD
    assert opened[0] is not None
    opened[0].announce([(0, 5_000)])
    assert {start for _, start, _ in store.ranges} == {-100}


def test_begun_ahead_begins_so_many_and_keeps_the_order() -> None:
    begun: list[int] = []
    values = begun_ahead(range(10), lambda value: begun.append(value) or value, 3)
    assert next(values) == 0 and begun == [0, 1, 2, 3]
    assert list(values) == list(range(1, 10)) and begun == list(range(10))


def test_an_object_that_is_overwritten_between_open_and_read_is_refused(store: RemoteStore) -> None:
    file, whole = open_fetched(store, "x", SMALL), ReadAhead(SMALL).file(store, "x", 50_000, True)
    assert whole is not None and whole.size() == 50_000
    store.inner.put("x", bytes(50_000))
    with pytest.raises(InputError, match="changed while it was read"):
        file.read_at(10, 0)
    with pytest.raises(InputError, match="changed while it was read"):
        pq.read_table(file)
    with pytest.raises(InputError, match="changed while it was read"):  # requests that began before it was opened, too
        whole.read()


def test_pyarrow_reads_every_row_group_with_one_request_for_its_columns() -> None:
    store, sink = RemoteStore(), io.BytesIO()
    table = pa.table({"a": range(10_000), "b": np.random.default_rng(1).random(10_000), "c": ["x" * 50] * 10_000})
    pq.write_table(table, sink, row_group_size=1_000, use_dictionary=False, compression="none")
    store.inner.put("p", sink.getvalue())
    limits = ReadLimits(tail_bytes=8_000, request_bytes=1 << 20, gap_bytes=10)
    file = open_fetched(store, "p", limits)
    metadata = pq.read_metadata(file)
    chunks = [metadata.row_group(group).column(1) for group in range(10)]
    begins = [chunk.data_page_offset for chunk in chunks]
    store.forget()
    file.announce([(begin, begin + c.total_compressed_size) for begin, c in zip(begins, chunks, strict=True)])
    assert pq.ParquetFile(file, metadata=metadata, pre_buffer=False).read(["b"]).equals(table.select(["b"]))
    assert [start for _, start, _ in store.ranges] == begins


def test_a_file_that_is_announced_whole_has_several_requests_under_way(store: RemoteStore) -> None:
    store.delay_s, data = 0.01, DATA * 600
    store.inner.put("big", data)
    with store.open("big") as source:
        fetched_file.announce(source)
        assert source.read() == data
    assert store.under_way_max >= 3


def test_a_throttled_remote_store_fetches_at_its_pace(store: RemoteStore) -> None:
    slow = paced(store, Pace(requests_per_s=1e6, read_bytes_per_s=1e9))
    with slow.open("x") as file:
        assert isinstance(file, FetchedFile)
        assert file.read() == DATA
    assert store.fetches() == 1
