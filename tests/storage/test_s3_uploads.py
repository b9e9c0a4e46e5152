"""Uploads to S3: sent while they are written, visible only when complete, copied inside the store where possible."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_s3 import faulty_s3, first
from spark_fixtures import fresh_bucket

import deltacompact
from deltacompact.base.errors import StoreError
from deltacompact.storage import s3_parts
from deltacompact.storage import upload as uploads
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.objects import Copies, Fetched
from deltacompact.storage.opening import open_store
from deltacompact.storage.s3_access import S3Settings
from deltacompact.storage.throttle import Pace, paced
from deltacompact.storage.traffic import listening
from deltacompact.storage.upload import BLOCK_BYTES, MIB, Upload

DATA = random.Random(1).randbytes(24 * MIB)


@pytest.fixture(scope="module")
def filled(s3_endpoint):
    """The URI of a place that has an object of 24 MiB: to take it costs moto half a second."""
    with fresh_bucket(s3_endpoint) as bucket:
        open_store(f"s3://{bucket}/tables").put("source", DATA)
        yield f"s3://{bucket}/tables"


@pytest.fixture
def store(filled):
    store = open_store(filled)
    yield store
    store.delete([stat.path for stat in store.list("") if stat.path != "source"])


@pytest.fixture
def operations():
    told = []
    with listening(lambda request: told.append(request.operation)):
        yield told


def uploads_of(store):
    return [
        upload["Key"] for upload in boto3.client("s3").list_multipart_uploads(Bucket=store.bucket).get("Uploads", ())
    ]


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 20 * MIB])
def test_what_is_written_is_stored_and_counted(store, operations, size):
    with store.writer("x") as sink:
        for start in range(0, size, 3 * MIB):
            piece = DATA[start : min(size, start + 3 * MIB)]
            assert sink.write(memoryview(piece)) == len(piece)
            assert sink.tell() == start + len(piece)
    assert sink.tell() == size
    if size < BLOCK_BYTES:
        assert operations == ["PutObject"]
    else:
        parts = -(-size // BLOCK_BYTES)
        assert sorted(operations) == ["CompleteMultipartUpload", "CreateMultipartUpload", *["UploadPart"] * parts]
    assert store.get("x") == DATA[:size]


def test_pyarrow_writes_to_the_sink(store):
    table = pa.table({"v": random.Random(2).choices(range(1 << 40), k=300_000)})
    with store.writer("x") as sink, pq.ParquetWriter(sink, table.schema, compression="none") as out:
        for start in range(0, 2_100_000, 300_000):
            out.write_table(table.slice(start % 7))
    assert sink.tell() == store.stat("x").bytes > BLOCK_BYTES
    with store.open("x") as source:
        assert pq.read_metadata(source).num_row_groups == 7


def test_parts_leave_while_the_writer_works_and_nobody_sees_them(store, operations):
    with store.writer("x") as sink:
        sink.write(DATA[: 9 * MIB])
        deadline_s = time.monotonic() + 20
        while "UploadPart" not in operations:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        with pytest.raises(deltacompact.NotFoundError):
            store.stat("x")
    assert store.stat("x").bytes == 9 * MIB


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_an_upload_that_is_given_up_leaves_nothing(store, error):
    with pytest.raises(error), store.writer("x") as sink:
        sink.write(DATA)
        assert sink.copy_from(store, "source", 0, 6 * MIB)
        raise error
    assert uploads_of(store) == []
    assert [stat.path for stat in store.list("")] == ["source"]


@pytest.mark.processes
@pytest.mark.parametrize("fault", ["reset", "lost", "500", "503", "stall"])
@pytest.mark.parametrize("request_of", ["uploads", "partNumber=1", "partNumber=2", "POST"])
def test_each_request_of_an_upload_is_tried_again(s3_endpoint, s3_catalog_uri, fault, request_of):
    with faulty_s3(s3_endpoint) as s3:
        store = open_store(s3_catalog_uri, S3Settings(endpoint_url=s3.url, timeout_s=2))
        completing = request_of == "POST"
        s3.fault = first(fault, method="POST" if completing else None, key="uploadId" if completing else request_of)
        with store.writer("x") as sink:
            sink.write(DATA[: 17 * MIB])
        assert store.get("x") == DATA[: 17 * MIB]


@pytest.mark.processes
def test_an_upload_that_cannot_be_sent_fails_and_leaves_nothing(s3_endpoint, s3_catalog_uri):
    with faulty_s3(s3_endpoint) as s3:
        store = open_store(s3_catalog_uri, S3Settings(endpoint_url=s3.url, max_attempts=2))
        s3.fault = lambda request: "500" if "partNumber=2" in request.path else None
        with pytest.raises(StoreError, match="S3 answered InternalError"), store.writer("x") as sink:
            sink.write(DATA)
        assert uploads_of(store) == []


@pytest.mark.processes
@pytest.mark.parametrize("then", [["500"], ["500", "503", "reset"], ["500"] * 3])
def test_an_upload_whose_completion_was_answered_by_nobody_is_complete(s3_endpoint, s3_catalog_uri, then):
    """The answer is lost, and the attempts after it fail, some or all of them."""
    with faulty_s3(s3_endpoint) as s3:
        store = open_store(s3_catalog_uri, S3Settings(endpoint_url=s3.url, timeout_s=2, max_attempts=4))
        s3.fault = first("lost", *then, method="POST", key="uploadId")
        with store.writer("x") as sink:
            sink.write(DATA[: 17 * MIB])
        assert store.get("x") == DATA[: 17 * MIB]
        s3.fault = first(*["500"] * 4, method="POST", key="uploadId")
        with pytest.raises(StoreError, match="S3 answered InternalError"), store.writer("y") as sink:
            sink.write(DATA[: 17 * MIB])
        assert [stat.path for stat in store.list("")] == ["x"] and uploads_of(store) == []


@pytest.mark.processes
def test_a_copy_that_fails_half_way_is_tried_again_or_leaves_nothing(s3_endpoint, s3_catalog_uri, monkeypatch):
    monkeypatch.setattr(uploads, "LARGEST_COPY_BYTES", 6 * MIB)
    monkeypatch.setattr(s3_parts, "_COPIES", {})
    with faulty_s3(s3_endpoint) as s3:
        store = open_store(s3_catalog_uri, S3Settings(endpoint_url=s3.url, timeout_s=2, max_attempts=3))
        store.put("source", DATA)

        def copied():
            with store.writer("x") as sink:
                assert sink.copy_from(store, "source", 0, 20 * MIB)

        copied()  # whether this store copies into uploads with checksums
        for fault in ("reset", "lost", "500", "503"):
            s3.fault = first(fault, key="partNumber=3")
            copied()
            assert store.get("x") == DATA[: 20 * MIB]
        store.delete(["x"])
        s3.fault = first(*["500"] * 3, key="partNumber=3")
        with pytest.raises(StoreError, match="S3 answered InternalError"):
            copied()
        assert [stat.path for stat in store.list("")] == ["source"] and uploads_of(store) == []


@pytest.mark.parametrize("before", [0, 1, 3 * MIB, 5 * MIB, 6 * MIB, 8 * MIB])
@pytest.mark.parametrize(("start", "length"), [(0, 5 * MIB), (77, 10 * MIB + 1), (100, 20 * MIB), (9, 4 * MIB)])
def test_ranges_are_copied_inside_the_store(store, operations, before, start, length):
    throttled = paced(store, Pace(read_bytes_per_s=1e12))
    with store.writer("x") as sink:
        sink.write(DATA[:before])
        inside = sink.copy_from(throttled, "source", start, length)
        if not inside:
            sink.write(DATA[start : start + length])
        assert sink.tell() == before + length
        sink.write(b"footer")
    topped_up = 5 * MIB - before if 0 < before < 5 * MIB else 0
    assert inside == (length - topped_up >= 5 * MIB)
    assert operations.count("UploadPartCopy") == inside
    assert operations.count("GetObject") == (inside and topped_up > 0)
    assert store.get("x") == DATA[:before] + DATA[start : start + length] + b"footer"


def test_large_copies_are_divided_and_follow_each_other(store, operations, monkeypatch):
    monkeypatch.setattr(uploads, "LARGEST_COPY_BYTES", 6 * MIB)
    with store.writer("x") as sink:
        assert sink.copy_from(store, "source", 10, 20 * MIB)
        assert sink.copy_from(store, "source", 0, 5 * MIB)
    assert operations.count("UploadPartCopy") == 5
    assert store.get("x") == DATA[10 : 10 + 20 * MIB] + DATA[: 5 * MIB]


def test_other_stores_copy_nothing(store, tmp_path, moto_endpoint):
    local, memory = open_store(tmp_path), MemoryStore()
    other = open_store(store.uri, S3Settings(endpoint_url=moto_endpoint.replace("127.0.0.1", "localhost")))
    for source in (local, memory):
        source.put("source", DATA)
    for sources, target in (((local, memory, other), store), ((store, local), local), ((store, memory), memory)):
        for source in sources:
            with target.writer("x") as sink:
                assert not (isinstance(sink, Copies) and sink.copy_from(source, "source", 0, 20 * MIB))


@pytest.mark.processes
def test_a_store_that_does_not_copy_into_uploads_with_checksums_gets_them_without(s3_endpoint, s3_catalog_uri):
    """MinIO is one. The first copy is replaced by its bytes."""
    with faulty_s3(s3_endpoint) as s3:
        store = open_store(s3_catalog_uri, S3Settings(endpoint_url=s3.url))
        store.put("source", DATA)
        checked = []

        def fault(request):
            if "uploads" in request.path:
                checked.append("x-amz-checksum-algorithm" in {name.lower() for name in request.headers})
            return "400" if checked[-1:] == [True] and "x-amz-copy-source" in request.headers else None

        s3.fault = fault
        for _ in range(3):
            with store.writer("x") as sink:
                sink.write(DATA[: 3 * MIB])
                assert sink.copy_from(store, "source", 1, 20 * MIB)
                sink.write(b"footer")
            assert sink.tell() == 23 * MIB + 6
            assert store.get("x") == DATA[: 3 * MIB] + DATA[1 : 20 * MIB + 1] + b"footer"
        assert checked == [True, False, False]
        assert sum("x-amz-copy-source" in request.headers for request in s3.seen) == 3


def test_a_missing_source_is_named(store):
    with pytest.raises(deltacompact.NotFoundError, match="tables/missing does not exist"), store.writer("x") as sink:
        sink.copy_from(store, "missing", 0, 20 * MIB)
    assert uploads_of(store) == []


@pytest.mark.processes
def test_a_killed_process_leaves_an_upload_that_can_be_discarded(store):
    program = (
        "import sys; from deltacompact.storage.opening import open_store\n"
        "with open_store(sys.argv[1]).writer('x') as sink:\n"
        "    sink.write(bytes(20 << 20)); sink._parts[0].result(); print('sent', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, store.uri]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "sent\n"
        os.kill(writer.pid, signal.SIGKILL)
    found = list(store.unfinished(""))
    if not found and os.environ.get("DELTACOMPACT_TEST_S3"):
        pytest.skip("this server does not list uploads, as MinIO")
    assert [stat.path for stat in found] == ["x"]
    store.discard(found)
    assert uploads_of(store) == []


class Held:
    """A target that holds parts back until it is told to take them."""

    def __init__(self):
        self.open = threading.Event()
        self.sent = {}

    def begin(self):
        return "upload"

    def send(self, upload, number, data):
        self.open.wait(20)
        self.sent[number] = bytes(data)
        return number

    def complete(self, upload, parts):
        self.stored = b"".join(self.sent[number] for number in parts)


def test_a_writer_waits_where_four_parts_are_under_way():
    target = Held()
    with ThreadPoolExecutor(8) as threads:
        sink = Upload(target, threads)
        writing = threads.submit(lambda: [sink.write(bytes([n]) * BLOCK_BYTES) for n in range(7)])
        time.sleep(0.5)
        assert sink.tell() == 4 * BLOCK_BYTES and not writing.done()
        target.open.set()
        writing.result()
        sink.complete()
    assert target.stored == b"".join(bytes([n]) * BLOCK_BYTES for n in range(7))


def test_blocks_grow_so_that_ten_thousand_make_five_terabytes():
    target = Held()
    target.open.set()
    with ThreadPoolExecutor(1) as threads:
        sink = Upload(target, threads, block_bytes=2)
        sink.write(bytes(2 * 1000 + 4 * 1000 + 8 * 10))
        sink.complete()
    assert [len(target.sent[number]) for number in (1, 1000, 1001, 2000, 2001, 2010)] == [2, 2, 4, 4, 8, 8]
    assert len(target.sent) == 2010
    assert sum(BLOCK_BYTES << number // 1000 for number in range(10_000)) > 5 << 40


class _Short:
    """A store whose answers have no more than so many bytes of what is there, the first few times."""

    uri = "s3://short/"

    def __init__(self, times):
        self.times, self.asked = times, 0

    def fetch(self, path, start, length, etag=None):
        self.asked += 1
        answer = Future()
        data = DATA[start : start + (length if self.asked > self.times else length - 1)]
        answer.set_result(Fetched(pa.py_buffer(data), len(DATA), "etag"))
        return answer


@pytest.mark.parametrize("times", [0, 2, 3])
def test_a_range_that_comes_short_is_asked_for_again_and_never_taken_for_whole(times):
    store = _Short(times)
    if times < 3:
        assert uploads._whole(store, "x", 10, 1000).to_pybytes() == DATA[10:1010]
        assert store.asked == times + 1
        return
    with pytest.raises(StoreError, match=r"^s3://short/x: the store returned 999 of 1000 bytes from 10$"):
        uploads._whole(store, "x", 10, 1000)
