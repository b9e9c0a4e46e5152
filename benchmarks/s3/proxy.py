"""A proxy before an S3 server: it makes answers late and slow as S3's are, counts them, and spoils some.

    client                    proxy                                          server
    GET a.parquet  ---->      counted: 1 ranged GET           ---->
                              waits 30 ms                     <----          the answer begins
                   <----      at most 90 MB/s on each connection

Each client connection has one of its own to the server, and bytes go through as they are: the signature of a request
holds, since its Host header stays that of the proxy. (AWS finds the bucket by this header, so AWS cannot be behind it.)
Process and handle are in proxy_process.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from benchmarks.s3.certificate import Certificate
from benchmarks.s3.faults import CUT, REFUSED, Fault, Faults, unnamed
from benchmarks.s3.http import (
    LINE_BYTES_MAX,
    Cut,
    Head,
    copy_answer_body,
    copy_request_body,
    read_head,
)
from benchmarks.s3.requests import Request, request_of

_BURST_S = 0.02
_ERROR = "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{0}</Code><Message>injected: {0}</Message></Error>"


@dataclass(frozen=True, slots=True)
class Conditions:
    """Seconds before the first byte of each answer; bytes a second each way on a connection, None for no limit."""

    latency_s: float = 0.0
    bytes_per_s: float | None = None
    faults: Faults = field(default_factory=Faults)


@dataclass(slots=True)
class Counts:
    """Requests by kind, faults by name, bytes of bodies each way, and the seconds of all requests added up."""

    requests: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    up_bytes: int = 0
    down_bytes: int = 0
    request_s: float = 0.0

    def since(self, before: Counts) -> Counts:
        """What came after `before`."""
        return Counts(
            self.requests - before.requests,
            self.faults - before.faults,
            self.up_bytes - before.up_bytes,
            self.down_bytes - before.down_bytes,
            self.request_s - before.request_s,
        )


class Pace:
    """Holds the bytes of one direction of a connection to a rate."""

    def __init__(self) -> None:
        self._due_s = 0.0

    async def passed(self, count: int, bytes_per_s: float | None) -> None:
        if bytes_per_s is None:
            return
        now = time.monotonic()
        self._due_s = max(self._due_s, now - _BURST_S) + count / bytes_per_s
        if self._due_s > now:
            await asyncio.sleep(self._due_s - now)


class S3Proxy:
    """Answers on `port` of 127.0.0.1, over TLS with a certificate. `conditions` hold for requests that begin from now
    on."""

    def __init__(self, upstream: str, conditions: Conditions, signed: Certificate | None = None) -> None:
        url = urlsplit(upstream)
        self._tls = ssl.create_default_context() if url.scheme == "https" else None
        self._server = url.hostname or "", url.port or (443 if self._tls else 80)
        self._listens: ssl.SSLContext | None = None
        if signed is not None:
            self._listens = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._listens.load_cert_chain(signed.file, signed.key_file)
        self._attempts: Counter[Request] = Counter()
        self._conversations: set[asyncio.Task[None]] = set()
        self.conditions = conditions
        self.counts = Counts()

    async def listen(self) -> int:
        """Returns the port."""
        server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, limit=LINE_BYTES_MAX, backlog=1024, ssl=self._listens
        )
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self._server, ssl=self._tls, limit=LINE_BYTES_MAX)

    def behave(self, conditions: Conditions) -> None:
        """From the next request on. Faults are drawn anew, whatever was asked before."""
        self.conditions = conditions
        self._attempts.clear()

    def fault_of(self, request: Request) -> Fault | None:
        like = unnamed(request)
        attempt = self._attempts[like]
        self._attempts[like] += 1
        return self.conditions.faults.of(request, attempt)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = asyncio.ensure_future(self._converse(reader, writer))
        self._conversations.add(conversation)
        conversation.add_done_callback(self._conversations.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = _Conversation(self, reader, writer)
        # The sender of a half message, or a peer that is gone: the other side gets no more than came until then.
        with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError):
            while await conversation.one_request():
                pass
        conversation.end()


class _Conversation:
    """One client connection, and its own to the server."""

    def __init__(self, proxy: S3Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = reader, writer
        self._server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._up, self._down = Pace(), Pace()

    async def one_request(self) -> bool:
        """Returns whether the connection may carry another one."""
        head = await read_head(self._from_client)
        if head is None:
            return False
        proxy, (method, target, _) = self._proxy, head.words
        conditions, request = proxy.conditions, request_of(method, target, head.headers)
        fault = proxy.fault_of(request)
        proxy.counts.requests[request.kind] += 1
        if fault:
            proxy.counts.faults[fault] += 1
        began = time.monotonic()
        try:
            return await self._exchange(head, conditions, fault)
        finally:
            proxy.counts.request_s += time.monotonic() - began

    async def _exchange(self, head: Head, conditions: Conditions, fault: Fault | None) -> bool:
        if fault in (Fault.RESET, Fault.STALL):
            await asyncio.sleep(conditions.faults.stall_s if fault is Fault.STALL else 0)
            return self._reset()
        waits_for_leave = head.headers.get("expect", "").lower() == "100-continue"
        if fault in REFUSED:
            if not waits_for_leave:
                await copy_request_body(self._from_client, head, _nowhere)
            await asyncio.sleep(conditions.latency_s)
            return await self._refuse(head, *REFUSED[fault])
        from_server, to_server = await self._connected()
        to_server.write(head.raw)
        await to_server.drain()
        sent = 0

        async def send(piece: bytes) -> None:
            nonlocal sent
            sent += len(piece)
            self._proxy.counts.up_bytes += len(piece)
            to_server.write(piece)
            await to_server.drain()
            await self._up.passed(len(piece), conditions.bytes_per_s)

        sending = asyncio.ensure_future(copy_request_body(self._from_client, head, send))
        sending.add_done_callback(lambda done: _hang_up_after(done, to_server))
        try:
            answer = await self._answer_head(from_server)
            if fault is Fault.LOST:
                return self._reset()
            await asyncio.sleep(conditions.latency_s + (conditions.faults.slow_s if fault is Fault.SLOW else 0))
            ended = await self._answer(answer, head.words[0], conditions, fault)
            return not ended and (sending.done() or (waits_for_leave and not sent))
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError, EOFError):
                await sending

    async def _answer_head(self, from_server: asyncio.StreamReader) -> Head:
        """The head of the final answer. Leave to send the body is passed on at once: S3 gives it at once."""
        while True:
            answer = await read_head(from_server)
            if answer is None:
                raise Cut
            if not answer.interim:
                return answer
            self._to_client.write(answer.raw)

    async def _answer(self, answer: Head, method: str, conditions: Conditions, fault: Fault | None) -> bool:
        """Pass it on, or a part of it. Returns whether the connection ends with it."""
        assert self._server is not None
        left = (answer.length or 0) // 2 if fault in CUT else None

        async def send(piece: bytes) -> None:
            nonlocal left
            self._proxy.counts.down_bytes += len(piece)
            if left is not None:
                piece, left = piece[:left], left - len(piece)
            self._to_client.write(piece)
            await self._to_client.drain()
            if left is not None and left <= 0:
                await self._cut(conditions, fault)
            await self._down.passed(len(piece), conditions.bytes_per_s)

        self._to_client.write(answer.raw)
        ended = await copy_answer_body(self._server[0], answer, method, send)
        await self._to_client.drain()
        return ended or answer.closes

    async def _cut(self, conditions: Conditions, fault: Fault | None) -> None:
        if fault is not Fault.TRUNCATED:
            await asyncio.sleep(conditions.faults.stall_s if fault is Fault.STALL_IN else 0)
            self._reset()
        raise Cut

    async def _refuse(self, head: Head, status: int, code: str) -> bool:
        body = _ERROR.format(code).encode() if head.words[0] != "HEAD" else b""
        lines = [f"HTTP/1.1 {status} {code}", "Content-Type: application/xml", f"Content-Length: {len(body)}", "", ""]
        self._to_client.write("\r\n".join(lines).encode() + body)
        await self._to_client.drain()
        return True

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._server is not None and self._server[0].at_eof():
            self._server[1].close()
            self._server = None
        if self._server is None:
            self._server = await self._proxy.connect()
        return self._server

    def _reset(self) -> bool:
        """End the client's connection by a reset; whatever waits to be sent is lost."""
        link: socket.socket = self._to_client.get_extra_info("socket")
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._to_client.transport.abort()
        return False

    def end(self) -> None:
        self._to_client.close()
        if self._server is not None:
            self._server[1].close()


async def _nowhere(piece: bytes) -> None:
    """Swallow it."""


def _hang_up_after(sending: asyncio.Future[None], to_server: asyncio.StreamWriter) -> None:
    """The server waits no longer for a body that its client does not finish."""
    if not sending.cancelled() and sending.exception() is not None:
        to_server.transport.abort()
