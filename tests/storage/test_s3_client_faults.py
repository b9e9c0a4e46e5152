"""The client of S3 on connections that are reset, stall, are cut or refused: the same bytes, in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import boto3
import pytest
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import NoCredentialsError
from faulty_s3 import faulty_s3, first, timed

import deltacompact
from deltacompact.base.errors import CredentialsError, InputError, StoreError
from deltacompact.storage import retries, s3_access, s3_clients, s3_objects
from deltacompact.storage import s3 as s3_store
from deltacompact.storage.certain_put import Effect, put_certainly
from deltacompact.storage.objects import SWAP_PROBE, honours_if_match
from deltacompact.storage.retries import Hedging, SharedBackoff
from deltacompact.storage.s3 import S3Store
from deltacompact.storage.s3_access import S3Settings
from deltacompact.storage.traffic import StoreRequest, listening

pytestmark = pytest.mark.processes

DATA = hashlib.sha256(b"seed").digest() * (1 << 17)  # 4 MiB


@pytest.fixture
def s3(s3_endpoint, s3_catalog_uri, monkeypatch):
    """A faulty S3 and a store behind it that has been answered, with a fresh memory of latencies and throttling."""
    monkeypatch.setattr(s3_objects, "BACKOFF", SharedBackoff())
    monkeypatch.setattr(s3_clients, "BACKOFF", s3_objects.BACKOFF)
    monkeypatch.setattr(s3_objects, "HEDGING", Hedging())
    with faulty_s3(s3_endpoint) as s3:
        store = S3Store(s3_catalog_uri.split("/")[2], "tables", S3Settings(endpoint_url=s3.url, timeout_s=2))
        store.put("x", DATA)
        s3.seen.clear()
        yield s3, store


def reopen(store, monkeypatch, **settings):
    """The same store with other settings, whose endpoint has been answered before."""
    monkeypatch.setattr(store, "settings", S3Settings(**settings))
    monkeypatch.setattr(store, "_clients", None)
    answered = {store.settings}
    for module in (s3_store, s3_clients):
        monkeypatch.setattr(module, "ANSWERED", answered)


def without_obstore(store, monkeypatch):
    """The same store, which sends its requests by boto3."""
    monkeypatch.setattr(store, "_clients", None)
    monkeypatch.setattr(s3_objects, "usable", lambda: False)


@contextlib.contextmanager
def skipping_where_minio_cannot(words):
    try:
        yield
    except (InputError, StoreError) as error:
        if not os.environ.get("DELTACOMPACT_TEST_S3") or words not in str(error):
            raise
        pytest.skip(f"this server cannot: {words}")


def fetched(store, start=1000, length=2_000_000):
    return store.fetch("x", start, length).result().data.to_pybytes()


@pytest.mark.parametrize("fault", ["reset", "lost", "truncated", "500", "503", "stall", "late"])
def test_a_range_is_fetched_whatever_happens_to_its_first_request(s3, fault):
    faulty, store = s3
    faulty.fault = first(fault, method="GET")
    data, seconds = timed(lambda: fetched(store))
    assert data == DATA[1000:2_001_000] and seconds < 5
    assert len(faulty.seen) == 2


def test_a_request_that_is_late_is_hedged_and_not_waited_for(s3):
    faulty, store = s3
    faulty.fault = first("stall", method="GET")
    data, seconds = timed(lambda: fetched(store))
    assert data == DATA[1000:2_001_000]
    assert Hedging.UNKNOWN_S <= seconds < 2, "the connection would be given up after two seconds"


def test_a_hedge_answers_where_the_first_answer_comes_late_and_cut_short(s3):
    faulty, store = s3
    faulty.fault = first("late truncated", "late", method="GET")
    assert fetched(store) == DATA[1000:2_001_000]
    assert len(faulty.seen) == 2


def test_an_object_that_changes_between_two_ranges_is_refused(s3):
    faulty, store = s3
    with store.open("x") as file:
        file.announce([(0, 1 << 20)])
        assert file.read_at(1 << 20, 0).to_pybytes() == DATA[: 1 << 20]
        store.put("x", DATA[::-1])
        faulty.fault = first("500", method="GET")
        with pytest.raises(InputError, match="changed while it was read"):
            file.read_at(1 << 20, 1 << 20)


def test_hedges_do_not_double_the_requests_of_a_slow_store(s3, monkeypatch):
    faulty, store = s3
    reopen(store, monkeypatch, endpoint_url=faulty.url)
    faulty.fault = lambda request: "late" if request.method == "GET" else None
    answers = [store.fetch("x", number, 2_000_000) for number in range(20)]
    assert [answer.result().data.to_pybytes() for answer in answers] == [DATA[n : n + 2_000_000] for n in range(20)]
    assert 20 < len(faulty.seen) <= 20 + Hedging.SAVED + 20 * Hedging.SHARE


def test_where_every_connection_stalls_an_error_comes_in_bounded_time(s3, monkeypatch):
    faulty, store = s3
    reopen(store, monkeypatch, endpoint_url=faulty.url, timeout_s=1, max_attempts=3)
    faulty.fault = lambda request: "stall"
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"tables/x: .*no answer in time"):
        fetched(store)
    assert time.monotonic() - began < 8


def test_the_attempts_are_bounded(s3, monkeypatch):
    faulty, store = s3
    monkeypatch.setattr(retries, "_PAUSE_S", 0.001)
    faulty.fault = lambda request: "500"
    with pytest.raises(StoreError, match="S3 answered InternalError"):
        fetched(store)
    assert len(faulty.seen) == store.settings.max_attempts


def test_a_slow_down_slows_all_requests_of_the_process_and_passes(s3):
    faulty, store = s3
    for _ in range(30):
        store.stat("x")
    faulty.fault = first("503", method="HEAD")
    store.stat("x")
    _, seconds = timed(lambda: [store.fetch("x", 0, 10).result() for _ in range(10)])
    assert 0.2 < seconds < 5


@pytest.mark.parametrize("fault", ["lost", "reset", "500", "503", "409"])
def test_a_conditional_put_knows_its_own_object_again(s3, fault):
    faulty, store = s3
    assert store.put_if_absent("warm", b"") is True
    faulty.seen.clear()
    faulty.fault = first(fault, method="PUT", key="slot")
    assert store.put_if_absent("slot", b"ours") is True
    assert store.get("slot") == b"ours"
    assert [request.number for request in faulty.seen if request.method == "PUT"] == [0, 1]
    faulty.fault = first(fault, method="PUT", key="slot")
    faulty.seen.clear()
    assert store.put_if_absent("slot", b"theirs") is False
    assert store.get("slot") == b"ours"


def test_the_first_put_of_a_process_knows_its_own_object_again(s3, monkeypatch):
    faulty, store = s3
    without_obstore(store, monkeypatch)
    faulty.fault = first("lost", method="PUT", key="slot")
    assert store.put_if_absent("slot", b"ours") is True
    assert store.put_if_absent("slot", b"theirs") is False
    assert len([request for request in faulty.seen if "slot" in request.path and request.method == "PUT"]) == 3


@pytest.mark.parametrize("has_obstore", [True, False])
@pytest.mark.parametrize("fault", ["lost", "reset", "500", "503"])
def test_a_swap_of_an_object_that_is_gone_is_refused_whatever_happens_to_its_first_request(
    s3, fault, has_obstore, monkeypatch
):
    faulty, store = s3
    if not has_obstore:
        without_obstore(store, monkeypatch)
    faulty.fault = first(fault, method="PUT", key="slot")
    assert store.put_if_same("slot", b"ours", "0" * 32) is None
    faulty.fault = first(fault, method="PUT", key=SWAP_PROBE)
    assert honours_if_match(store)


@pytest.mark.parametrize("has_obstore", [True, False])
def test_a_swap_whose_answer_is_lost_and_that_meets_itself_then_knows_that_it_won(s3, has_obstore, monkeypatch):
    """The second try is refused because the first one is under way, the third one because it took effect."""
    faulty, store = s3
    store.put("slot", b"before")
    etag = store.get_tagged("slot").etag
    if not has_obstore:
        without_obstore(store, monkeypatch)
    faults = iter(("lost", "409"))
    faulty.fault = lambda request: next(faults, None) if request.method == "PUT" and "slot" in request.path else None
    swapped = store.put_if_same("slot", b"ours", etag)
    assert swapped is not None and swapped == store.get_tagged("slot").etag and store.get("slot") == b"ours"


@pytest.mark.parametrize("code", ["InternalError", "SlowDown"])
def test_objects_that_could_not_be_deleted_now_are_asked_for_again(s3, code):
    faulty, store = s3
    for name in ("a", "b"):
        store.put(name, b"1")
    faulty.seen.clear()
    faulty.fault = first(f"undeleted {code}", method="POST")
    store.delete(["a", "b", "never there"])
    assert [stat.path for stat in store.list("")] == ["x"]
    assert [request.number for request in faulty.seen if request.method == "POST"] == [0, 1]


def test_who_may_not_delete_is_told_so_at_once(s3):
    faulty, store = s3
    faulty.fault = lambda request: "undeleted AccessDenied" if request.method == "POST" else None
    with pytest.raises(InputError, match=r"deleting s3://[\w-]+/tables/x: S3 refused access \(AccessDenied\)"):
        store.delete(["x"])
    assert len(faulty.seen) == 1
    store.delete([])


@pytest.mark.parametrize("has_obstore", [True, False])
def test_a_head_that_is_refused_without_a_word_speaks_of_the_credentials(s3, has_obstore, monkeypatch):
    faulty, store = s3
    if not has_obstore:
        without_obstore(store, monkeypatch)
    faulty.fault = lambda request: "400" if request.method == "HEAD" else None
    with pytest.raises(CredentialsError, match=r"tables/x: .*\(400\), as it does if the credentials have expired"):
        store.stat("x")


@pytest.mark.parametrize("has_obstore", [True, False])
def test_a_store_that_does_not_know_conditional_puts_says_so_at_once(s3, has_obstore, monkeypatch):
    faulty, store = s3
    if not has_obstore:
        without_obstore(store, monkeypatch)
    faulty.fault = lambda request: "501" if "if-none-match" in {*map(str.lower, request.headers)} else None
    monkeypatch.setattr(s3_store, "_PROBED", set())
    with pytest.raises(InputError, match=r"put-if-absent: this store cannot do that \(NotImplemented\)"):
        put_certainly(store, "table.json", b"{}", Effect("table 't'", "created", "repeat the command"))
    assert len([request for request in faulty.seen if request.method == "PUT"]) == 1


def test_a_role_that_cannot_be_assumed_is_named(s3, monkeypatch):
    faulty, store = s3
    role = "arn:aws:iam::123456789012:role/lake"
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", faulty.url)
    faulty.fault = lambda request: "400" if request.method == "POST" else None
    with pytest.raises(InputError, match=f"role {role} cannot be assumed: .*AssumeRole"):
        S3Store(store.bucket, "tables", S3Settings(endpoint_url=faulty.url, role_arn=role)).get("x")


def test_a_request_that_the_end_of_the_process_drops_is_an_error_of_the_store(s3, monkeypatch):
    def dropped(request):
        request.close()
        answer = Future()
        answer.cancel()
        return answer

    monkeypatch.setattr(s3_objects, "begin", dropped)
    with pytest.raises(StoreError, match="tables/x: no answer was waited for, because this process ends"):
        s3[1].get_tagged("x")


def test_ranges_of_an_empty_object_and_beyond_the_end(s3):
    _, store = s3
    store.put("empty", b"")
    for start in (0, 5, -8):
        answer = store.fetch("empty", start, 8).result()
        assert (answer.data.size, answer.object_bytes) == (0, 0) and answer.etag
    answer = store.fetch("x", len(DATA) + 5, 8).result()
    assert (answer.data.size, answer.object_bytes) == (0, len(DATA))
    with pytest.raises(InputError, match="changed while it was read"):
        store.fetch("empty", 0, 8, "another").result()


@pytest.mark.parametrize("key", ["a b/é+%20", "tab\there", "a//b", "a/./b", "a/"])
def test_keys_of_all_kinds_are_read_and_written(s3, key):
    _, store = s3
    with skipping_where_minio_cannot("XMinioInvalid"):
        store.put(key, b"0123")
    assert store.get(key) == b"0123"
    assert store.stat(key).bytes == 4
    assert store.fetch(key, 1, 2).result().data == b"12"
    assert store.put_if_absent(key, b"") is False
    assert key in [stat.path for stat in store.list("")]


def test_documents_and_data_are_encrypted_with_the_key(s3, monkeypatch):
    faulty, store = s3
    reopen(store, monkeypatch, endpoint_url=faulty.url, kms_key_id="key-1")
    with skipping_where_minio_cannot("NotImplemented"):
        store.put("small", b"1")
    with store.writer("large") as sink:
        sink.write(bytes(9 << 20))
    for name in ("small", "large"):
        head = boto3.client("s3").head_object(Bucket=store.bucket, Key=f"tables/{name}")
        assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", "key-1")


def test_a_child_that_was_forked_asks_by_boto3(s3):
    _, store = s3
    assert store.get("x") == DATA
    child = os.fork()
    if not child:
        done = s3_objects.usable() is False and store.get("x") == DATA and fetched(store) == DATA[1000:2_001_000]
        os._exit(0 if done else 1)
    deadline_s = time.monotonic() + 30
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline_s:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.05)
    assert ended[1] == 0


def test_listeners_are_told_of_each_request(s3):
    _, store = s3
    told = []
    with listening(told.append):
        store.put("y", b"123")
        store.get("y")
        list(store.list("y"))
    store.get("y")
    assert told == [
        StoreRequest("PutObject", "tables/y", 3),
        StoreRequest("GetObject", "tables/y", 3),
        StoreRequest("ListObjectsV2", "", 0),
    ]


def test_a_process_that_ends_with_requests_under_way_ends_quietly(s3):
    faulty, store = s3
    program = (
        "import sys; from deltacompact import S3Settings; from deltacompact.storage.s3 import S3Store\n"
        "store = S3Store(sys.argv[1], 'tables', S3Settings(endpoint_url=sys.argv[2]))\n"
        "store.stat('x'); [store.fetch('x', n, 1000000) for n in range(20)]"
    )
    faulty.fault = lambda request: "late" if request.method == "GET" else None
    command = [sys.executable, "-c", program, store.bucket, faulty.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_the_whole_job_on_a_faulty_s3(s3):
    """One request in eight meets a fault."""
    import random

    import pyarrow as pa

    from deltacompact import Settings, compact

    faulty, store = s3
    drawn = random.Random(4)
    faults = ["reset", "lost", "truncated", "500", "503"]
    faulty.fault = lambda request: drawn.choice(faults) if drawn.random() < 0.125 else None
    catalog = deltacompact.DeltaStreamCatalog(store)
    catalog.create_table("t", primary_keys=["id"])
    for at in range(3):
        catalog.append("t", pa.table({"id": [n % 7 for n in range(50)], "at": [at] * 50}))
    (session,) = compact("t", delta_catalog_client=catalog, settings=Settings(executor="local")).sessions
    assert session.live == 7
    assert sorted(catalog.read("t").to_pylist(), key=lambda row: row["id"]) == [{"id": n, "at": 2} for n in range(7)]
    assert len(faulty.seen) > 40


def test_ctrl_c_while_a_finished_process_ends_prints_no_traceback(monkeypatch):
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(s3_objects, "time", SimpleNamespace(sleep=interrupted))
    s3_objects._end(loop, thread)
    assert not thread.is_alive()
    loop.close()


def test_other_clients_look_for_credentials_again_before_they_expire(moto_endpoint, tmp_path, monkeypatch):
    """A dispatcher's queue and topics refused it for ever, an hour after its start."""
    at = [datetime.now(UTC)]
    monkeypatch.setattr(
        RefreshableCredentials, "_seconds_remaining", lambda known: (known._expiry_time - at[0]) / timedelta(seconds=1)
    )
    monkeypatch.setattr(s3_access, "datetime", SimpleNamespace(now=lambda zone: at[0]))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def signed() -> bytes:
        (tmp_path / "credentials").write_text(f"[default]\naws_access_key_id = A{at[0]}\naws_secret_access_key = s\n")
        client.list_queues()
        return heard.pop()

    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = A\naws_secret_access_key = s\n")
    client = s3_access.aws_client("sqs")
    heard = heard_by(client)
    first_key = key_of(signed())
    assert key_of(signed()) == first_key
    at[0] += timedelta(minutes=11)
    assert key_of(signed()) != first_key
    (tmp_path / "credentials").unlink()
    at[0] += timedelta(hours=1)
    with pytest.raises(NoCredentialsError):
        client.list_queues()


def test_other_clients_do_not_take_the_settings_of_s3(moto_endpoint, monkeypatch):
    """With the lake on another store, each request to SQS, SNS or Step Functions was signed with its key."""
    other_store = {"ENDPOINT_URL": "http://127.0.0.1:9", "REGION": "nowhere", "ROLE_ARN": "arn:aws:iam::1:role/lake"}
    for name, value in {**other_store, "ACCESS_KEY": "minio", "SECRET_KEY": "minio123"}.items():
        monkeypatch.setenv(f"DELTACOMPACT_S3_{name}", value)
    client = s3_access.aws_client("sqs")
    heard = heard_by(client)
    client.list_queues()
    assert key_of(heard.pop()) == os.environ["AWS_ACCESS_KEY_ID"].encode()
    assert client.meta.region_name == os.environ["AWS_DEFAULT_REGION"]


def heard_by(client) -> list[bytes]:
    """The signatures of the client's requests to SQS from now on."""
    heard: list[bytes] = []
    client.meta.events.register("before-send.sqs", lambda request, **_: heard.append(request.headers["Authorization"]))
    return heard


def key_of(authorization: bytes) -> bytes:
    return authorization.partition(b"Credential=")[2].partition(b"/")[0]


def test_a_variable_that_is_empty_names_nothing(monkeypatch):
    """A file of settings for containers may set what it leaves open."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "")
    assert s3_access.resolved(S3Settings()) == S3Settings()
