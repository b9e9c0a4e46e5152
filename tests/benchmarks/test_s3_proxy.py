"""The proxy before an S3 server changes no bytes, counts requests, is late and slow on request, and spoils by rule."""

from __future__ import annotations

import http.client
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, SSLError

import deltacompact
from benchmarks.s3.certificate import certificate
from benchmarks.s3.faults import Fault, Faults
from benchmarks.s3.proxy import Conditions
from benchmarks.s3.proxy_process import Proxy
from benchmarks.s3.requests import Kind, Request, request_of, usd
from sessions.planning.prices import RequestPrices

ONCE = Config(retries={"max_attempts": 0, "mode": "standard"}, read_timeout=2)


@pytest.fixture(scope="module")
def proxy(s3_endpoint: str) -> Iterator[Proxy]:
    with Proxy(s3_endpoint) as proxy:
        yield proxy


@contextmanager
def under(proxy: Proxy, conditions: Conditions) -> Iterator[None]:
    proxy.behave(conditions)
    yield
    proxy.behave(Conditions())


@pytest.fixture
def client(proxy: Proxy) -> Any:
    return boto3.client("s3", endpoint_url=proxy.url, config=ONCE)


@pytest.mark.parametrize(
    ("method", "target", "headers", "expected"),
    [
        ("GET", "/b/a/x%20y?x-id=GetObject", {}, Request(Kind.GET, "a/x y")),
        ("GET", "/b/a", {"range": "bytes=0-9"}, Request(Kind.RANGED_GET, "a", "bytes=0-9")),
        ("GET", "/b?list-type=2&prefix=t%2F", {}, Request(Kind.LIST, "")),
        ("GET", "/b?uploads", {}, Request(Kind.LIST, "")),
        ("GET", "/b?location", {}, Request(Kind.OTHER, "")),
        ("HEAD", "/b/a", {}, Request(Kind.HEAD, "a")),
        ("HEAD", "/b", {}, Request(Kind.OTHER, "")),
        ("PUT", "/b", {}, Request(Kind.OTHER, "")),
        ("PUT", "/b/a", {}, Request(Kind.PUT, "a")),
        ("PUT", "/b/a", {"if-none-match": "*"}, Request(Kind.CONDITIONAL_PUT, "a")),
        ("PUT", "/b/a?partNumber=3&uploadId=u", {}, Request(Kind.PART, "a", "3")),
        ("PUT", "/b/a?partNumber=3&uploadId=u", {"x-amz-copy-source": "b/c"}, Request(Kind.COPY, "a", "3")),
        ("POST", "/b/a?uploads", {}, Request(Kind.BEGIN, "a")),
        ("POST", "/b/a?uploadId=u", {}, Request(Kind.COMPLETE, "a")),
        ("POST", "/b?delete", {}, Request(Kind.DELETE, "")),
        ("DELETE", "/b/a", {}, Request(Kind.DELETE, "a")),
        ("DELETE", "/b/a?uploadId=u", {}, Request(Kind.ABORT, "a")),
    ],
)
def test_a_request_is_known_by_its_head(method: str, target: str, headers: dict[str, str], expected: Request) -> None:
    assert request_of(method, target, headers) == expected


def test_a_million_requests_cost_what_their_kinds_cost() -> None:
    million = dict.fromkeys((Kind.PUT, Kind.LIST, Kind.PART, Kind.GET, Kind.HEAD, Kind.DELETE), 1e6)
    assert usd(million, RequestPrices(5.0, 0.4)) == pytest.approx(3 * 5.0 + 2 * 0.4)


def test_faults_are_drawn_by_the_seed_and_not_by_the_order_of_requests() -> None:
    faults = Faults(7, {Fault.RESET: 0.2, Fault.SLOW_DOWN: 0.3}, frozenset({Kind.GET}), keys=r"^data/")
    tried = [(Request(Kind.GET, f"data/{number}"), attempt) for number in range(500) for attempt in range(2)]
    drawn = {request: faults.of(*request) for request in tried}
    assert {request: faults.of(*request) for request in reversed(tried)} == drawn
    found = list(drawn.values())
    assert 150 < found.count(Fault.RESET) < 250 and 240 < found.count(Fault.SLOW_DOWN) < 360
    assert any(drawn[request, 0] != drawn[request, 1] for request, _ in tried), "a second attempt may go well"
    renamed = [Request(Kind.GET, f"data/{name * 16}/0.json") for name in ("0a", "f7")]
    assert [faults.of(renamed[0], attempt) for attempt in range(50)] == [
        faults.of(renamed[1], attempt) for attempt in range(50)
    ]
    assert faults.of(Request(Kind.HEAD, "data/1"), 0) is faults.of(Request(Kind.GET, "log/1"), 0) is None


def test_objects_go_through_unchanged_and_are_counted(proxy: Proxy, client: Any, s3_bucket: str) -> None:
    before, large = proxy.counts(), bytes(range(256)) * (48 << 10)
    client.put_object(Bucket=s3_bucket, Key="small", Body=b"abc")
    client.put_object(Bucket=s3_bucket, Key="empty", Body=b"")
    client.upload_fileobj(BytesIO(large), s3_bucket, "large")
    client.put_object(Bucket=s3_bucket, Key="once", Body=b"1", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket=s3_bucket, Key="once", Body=b"2", IfNoneMatch="*")
    assert client.get_object(Bucket=s3_bucket, Key="large")["Body"].read() == large
    assert client.get_object(Bucket=s3_bucket, Key="large", Range="bytes=-300")["Body"].read() == large[-300:]
    assert client.get_object(Bucket=s3_bucket, Key="empty")["Body"].read() == b""
    assert client.head_object(Bucket=s3_bucket, Key="large")["ContentLength"] == len(large)
    client.copy_object(Bucket=s3_bucket, Key="copy", CopySource=f"{s3_bucket}/once")
    assert len(client.list_objects_v2(Bucket=s3_bucket)["Contents"]) == 5
    client.delete_objects(Bucket=s3_bucket, Delete={"Objects": [{"Key": "copy"}]})
    counts = proxy.counts().since(before)
    assert counts.requests == {
        "PUT": 2, "conditional PUT": 2, "begin upload": 1, "part": 2, "complete": 1, "GET": 2, "ranged GET": 1,
        "HEAD": 1, "copy": 1, "LIST": 1, "DELETE": 1,
    }  # fmt: skip
    assert len(large) < counts.up_bytes < len(large) + 10_000
    assert len(large) < counts.down_bytes < len(large) + 10_000
    assert counts.request_s > 0 and not counts.faults


def test_answers_are_late_and_slow(proxy: Proxy, client: Any, s3_bucket: str) -> None:
    body = bytes(2 << 20)
    client.put_object(Bucket=s3_bucket, Key="x", Body=body)
    with under(proxy, Conditions(latency_s=0.2)):
        began = time.monotonic()
        client.head_object(Bucket=s3_bucket, Key="x")
        assert 0.2 <= time.monotonic() - began < 2
    with under(proxy, Conditions(bytes_per_s=4e6)):
        for transfer in (
            lambda: client.get_object(Bucket=s3_bucket, Key="x")["Body"].read(),
            lambda: client.put_object(Bucket=s3_bucket, Key="y", Body=body),
        ):
            began = time.monotonic()
            transfer()
            assert 0.4 <= time.monotonic() - began < 3


def read(client: Any, bucket: str) -> bytes:
    data: bytes = client.get_object(Bucket=bucket, Key="x")["Body"].read()
    return data


@pytest.mark.parametrize("fault", [Fault.RESET, Fault.RESET_IN, Fault.TRUNCATED, Fault.STALL, Fault.STALL_IN])
def test_a_read_that_is_cut_fails_at_its_client(proxy: Proxy, client: Any, s3_bucket: str, fault: Fault) -> None:
    client.put_object(Bucket=s3_bucket, Key="x", Body=bytes(100_000))
    before = proxy.counts()
    with under(proxy, Conditions(faults=Faults(shares={fault: 1.0}, stall_s=10))), pytest.raises(BotoCoreError):
        read(client, s3_bucket)
    assert proxy.counts().since(before).faults == {fault: 1}
    assert len(read(client, s3_bucket)) == 100_000


@pytest.mark.parametrize(("fault", "code"), [(Fault.INTERNAL, "InternalError"), (Fault.SLOW_DOWN, "SlowDown")])
def test_a_refused_request_never_reaches_the_server(
    proxy: Proxy, client: Any, s3_bucket: str, fault: Fault, code: str
) -> None:
    with under(proxy, Conditions(faults=Faults(shares={fault: 1.0}))), pytest.raises(ClientError, match=code):
        client.put_object(Bucket=s3_bucket, Key="x", Body=bytes(100_000))
    with pytest.raises(ClientError, match="NoSuchKey"):
        read(client, s3_bucket)


def test_a_lost_answer_is_lost_after_the_server_acted(proxy: Proxy, client: Any, s3_bucket: str) -> None:
    with under(proxy, Conditions(faults=Faults(shares={Fault.LOST: 1.0}))), pytest.raises(BotoCoreError):
        client.put_object(Bucket=s3_bucket, Key="x", Body=b"there")
    assert read(client, s3_bucket) == b"there"


def test_only_some_answers_are_slow(proxy: Proxy, client: Any, s3_bucket: str) -> None:
    for key in ("slow/x", "x"):
        client.put_object(Bucket=s3_bucket, Key=key, Body=b"1")
    slow = Faults(shares={Fault.SLOW: 1.0}, kinds=frozenset({Kind.HEAD}), keys="^slow/", slow_s=0.5)
    with under(proxy, Conditions(faults=slow)):
        took = []
        for key in ("slow/x", "x"):
            began = time.monotonic()
            client.head_object(Bucket=s3_bucket, Key=key)
            took.append(time.monotonic() - began)
    assert took[1] < 0.5 <= took[0]


class Echo(BaseHTTPRequestHandler):
    """Keeps its connections, and sends back in chunks what it got in chunks."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Client", f"{self.client_address[1]}")
        self.end_headers()
        for start in range(0, len(body), 1000):
            piece = body[start : start + 1000]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.mark.processes
def test_chunked_bodies_go_through_on_one_connection() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with Proxy(f"http://127.0.0.1:{server.server_address[1]}") as proxy:
            connection = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=10)
            clients = set()
            for number in range(3):
                pieces = [bytes([number]) * 70_000, b"end"]
                connection.request("PUT", "/bucket/x", iter(pieces), encode_chunked=True)
                answer = connection.getresponse()
                assert answer.read() == b"".join(pieces)
                clients.add(answer.headers["Client"])
            connection.close()
            assert len(clients) == 1
            assert proxy.counts().requests == {"PUT": 3}
    finally:
        server.shutdown()
        server.server_close()


def test_a_catalog_is_reached_over_tls_by_those_alone_who_trust_the_certificate(
    s3_endpoint: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with certificate() as signed, Proxy(s3_endpoint, signed=signed) as proxy:
        assert proxy.url.startswith("https://")
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(signed.file))
        catalog = deltacompact.open_catalog(f"s3://{s3_bucket}/{uuid.uuid4().hex}")
        catalog.create_table("t", primary_keys=["id"])
        catalog.append("t", pa.table({"id": [1, 2]}))
        deltacompact.compact("t", delta_catalog_client=catalog)
        assert catalog.read("t").num_rows == 2
        assert proxy.counts().requests[Kind.CONDITIONAL_PUT] > 2
        with pytest.raises(SSLError):
            boto3.client("s3", endpoint_url=proxy.url, config=ONCE, verify=True).list_buckets()
