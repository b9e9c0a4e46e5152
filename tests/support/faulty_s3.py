"""A proxy between a store and the S3 of the tests. A test says what the proxy does to each request.

None          passes it on             "reset"       resets the connection, passes nothing on
"lost"        passes it on, resets     "503", "500"  refuses it
"truncated"   sends half of the answer "stall"       says nothing until the test ends
"late"        answers 1.5 s later      "overwrite"   drops If-None-Match (moto does not look at signatures)
"late truncated"   both
"undeleted CODE"   answers a request to delete objects: none could be, with this code
"400", "501"       refuses it, in answer to a HEAD without a code
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

CODES = {
    "400": "InvalidArgument",
    "409": "ConditionalRequestConflict",
    "500": "InternalError",
    "501": "NotImplemented",
    "503": "SlowDown",
}


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    number: int
    """How many requests with the same method and path came before this one."""
    headers: dict[str, str]


Fault = Callable[[Seen], str | None]


class FaultyS3:
    def __init__(self, upstream: str) -> None:
        self.fault: Fault = lambda request: None
        self.seen: list[Seen] = []
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._upstream = urlsplit(upstream).netloc
        faulty = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                with contextlib.suppress(OSError):
                    return super().handle_one_request()
                self.close_connection = True

            def log_message(self, *_: object) -> None: ...

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fault = faulty._fault_of(self.command, self.path, dict(self.headers.items()))
                if fault == "reset":
                    return self.reset()
                if fault == "stall":
                    faulty.over.wait(60)
                    return self.reset()
                if fault in CODES:
                    return self.refuse(int(fault), CODES[fault])
                if fault and fault.startswith("undeleted "):
                    return self.delete_nothing(body, fault.split()[1])
                if fault == "overwrite":
                    del self.headers["If-None-Match"]
                server = http.client.HTTPConnection(faulty._upstream, timeout=60)
                server.request(self.command, self.path, body, dict(self.headers.items()))
                reply = server.getresponse()
                data = reply.read()
                server.close()
                if fault == "lost":
                    return self.reset()
                if fault in ("late", "late truncated"):
                    faulty.over.wait(1.5)
                self.send_response_only(reply.status, reply.reason)
                for name, value in reply.headers.items():
                    if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                        self.send_header(name, value)
                length = reply.headers.get("Content-Length", "0") if self.command == "HEAD" else len(data)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(data[: len(data) // 2] if fault in ("truncated", "late truncated") else data)
                if fault in ("truncated", "late truncated"):
                    self.close_connection = True

            def refuse(self, status: int, code: str) -> None:
                self.say(status, f"<Error><Code>{code}</Code><Message>by a test</Message></Error>")

            def delete_nothing(self, body: bytes, code: str) -> None:
                keys = re.findall("<Key>(.*?)</Key>", body.decode())
                errors = "".join(f"<Error><Key>{key}</Key><Code>{code}</Code></Error>" for key in keys)
                self.say(200, f"<DeleteResult>{errors}</DeleteResult>")

            def say(self, status: int, text: str) -> None:
                data = b"" if self.command == "HEAD" else text.encode()
                self.send_response_only(status, "by a test")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def reset(self) -> None:
                self.close_connection = True
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _fault_of(self, method: str, path: str, headers: dict[str, str]) -> str | None:
        with self._lock:
            before = sum((request.method, request.path) == (method, path) for request in self.seen)
            self.seen.append(Seen(method, path, before, headers))
            return self.fault(self.seen[-1])

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def faulty_s3(upstream: str) -> Iterator[FaultyS3]:
    s3 = FaultyS3(upstream)
    try:
        yield s3
    finally:
        s3.close()


def first(*faults: str | None, method: str | None = None, key: str = "") -> Fault:
    """The first requests with this method and with `key` in their path get these faults. Later requests get none."""
    left = list(faults)

    def fault(request: Seen) -> str | None:
        met = request.method == (method or request.method) and key in request.path
        return left.pop(0) if met and left else None

    return fault


def timed(act: Callable[[], object]) -> tuple[object, float]:
    began = time.monotonic()
    return act(), time.monotonic() - began
