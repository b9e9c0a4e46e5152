"""As much of HTTP/1.1 as a proxy needs: heads are parsed, bodies are only measured.

PUT /lake/a HTTP/1.1     Content-Length: 1048576           a body of so many bytes
                         Transfer-Encoding: chunked        chunks until an empty one, then trailers
HTTP/1.0 200 OK          neither                           until the connection ends
answers to HEAD, 204, 304, 1xx                             none
"""

from __future__ import annotations

from asyncio import IncompleteReadError, StreamReader
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

PIECE_BYTES = 256 << 10
LINE_BYTES_MAX = 1 << 20
Sink = Callable[[bytes], Awaitable[None]]


class Cut(ConnectionError):
    """One side ended the connection in the middle of a message."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request or an answer: its first line in three words, its headers by lower-case name, its bytes."""

    words: tuple[str, str, str]
    headers: dict[str, str]
    raw: bytes

    @property
    def status(self) -> int:
        return int(self.words[1])

    @property
    def interim(self) -> bool:
        """100 Continue: the answer is still to come."""
        return 100 <= self.status < 200

    @property
    def chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def length(self) -> int | None:
        text = self.headers.get("content-length")
        return None if text is None else int(text)

    @property
    def closes(self) -> bool:
        """Whether the sender of this answer ends the connection after it."""
        asked = self.headers.get("connection", "").lower()
        return "close" in asked or (self.words[0] == "HTTP/1.0" and "keep-alive" not in asked)


async def read_head(source: StreamReader) -> Head | None:
    """The next head. None if the connection ended before it began."""
    try:
        raw = await source.readuntil(b"\r\n")
    except IncompleteReadError as error:
        if error.partial:
            raise
        return None
    while not raw.endswith(b"\r\n\r\n"):
        raw += await source.readuntil(b"\r\n")
    first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = [*first.split(" ", 2), ""]  # an answer may have no reason
    pairs = (line.partition(":") for line in lines)
    return Head((words[0], words[1], words[2]), {name.strip().lower(): text.strip() for name, _, text in pairs}, raw)


async def copy_request_body(source: StreamReader, head: Head, sink: Sink) -> None:
    if head.chunked:
        await _copy_chunks(source, sink)
    else:
        await copy_bytes(source, head.length or 0, sink)


async def copy_answer_body(source: StreamReader, head: Head, method: str, sink: Sink) -> bool:
    """Returns whether the body ended with the connection."""
    if method == "HEAD" or head.status in (204, 304):
        return False
    if head.chunked:
        await _copy_chunks(source, sink)
    elif head.length is not None:
        await copy_bytes(source, head.length, sink)
    else:
        while piece := await source.read(PIECE_BYTES):
            await sink(piece)
        return True
    return False


async def copy_bytes(source: StreamReader, count: int, sink: Sink) -> None:
    while count:
        piece = await source.read(min(count, PIECE_BYTES))
        if not piece:
            raise Cut
        count -= len(piece)
        await sink(piece)


async def _copy_chunks(source: StreamReader, sink: Sink) -> None:
    while True:
        line = await source.readuntil(b"\r\n")
        await sink(line)
        if not (size := int(line.split(b";")[0], 16)):
            break
        await copy_bytes(source, size + 2, sink)
    while line != b"\r\n":  # trailers
        line = await source.readuntil(b"\r\n")
        await sink(line)
