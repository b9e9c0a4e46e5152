"""The requests for single objects, by obstore: the only door to obstore.

A request takes less than half of boto3's CPU, and needs the interpreter only at its beginning and end: data arrives
while other threads hold the interpreter. All requests of a process run on one event loop, in its own thread. Retries,
hedges and time-outs are ours (retries.py), because obstore does not say whether S3 may have carried out an attempt
before the last one.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import pyarrow as pa

from deltacompact.base.missing import importing
from deltacompact.storage.objects import Fetched
from deltacompact.storage.retries import Hedging, RequestAttempts, SharedBackoff
from deltacompact.storage.traffic import tell

Answer = TypeVar("Answer")

BACKOFF = SharedBackoff()
"""The rate of all requests of this process to S3, boto3's too."""
HEDGING = Hedging()

SILENT_S = 20.0
"""A connection on which nothing arrives for this time is given up."""

_CONNECT_S = 5.0
_REQUEST_S = 600.0
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_CAUSE = re.compile(r'message: "([^"]+)"')
_CODES = {409: "ConditionalRequestConflict", 412: "PreconditionFailed", 416: "InvalidRange"}
"""S3's error codes for answers without a body, by status."""
MISSING_CODES = ("NoSuchKey", "404")
_CANNOT = 501
"""The status of a store that does not know a request, or a condition in it. It will not know it later."""
_LEAST_ODD = re.compile(r"(?:[^/\x00-\x1f\x7f]+/)*[^/\x00-\x1f\x7f]+")


class RequestFailed(Exception):
    """S3 refused a request (with a status), or did not answer it."""

    def __init__(self, code: str, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.status = status

    @property
    def throttled(self) -> bool:
        return self.status in (429, 503)

    @property
    def may_be_done(self) -> bool:
        """Whether S3 may have carried out the request although it failed."""
        return self.status is None or (self.status >= 500 and self.status != _CANNOT)

    @property
    def passes(self) -> bool:
        """Whether another attempt may succeed."""
        return self.may_be_done or self.throttled or self.code in ("ConditionalRequestConflict", "RequestTimeout")


@dataclass(frozen=True, slots=True)
class BucketAccess:
    """How to reach a bucket: its URL, the region for signatures, credentials, encryption, attempts and time-out."""

    url: str
    region: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str | None = field(repr=False)
    kms_key_id: str | None
    ca_file: str | None
    max_attempts: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class ObjectHead:
    bytes: int
    modified_s: float
    etag: str | None


class Objects:
    """The objects of one bucket, by key. Raises RequestFailed."""

    def __init__(self, reach: BucketAccess) -> None:
        self._store = _opened(reach)
        self._most_attempts = reach.max_attempts

    async def get(self, key: str) -> Fetched:
        return await self._read(key, None, None, 0)

    async def fetch(self, key: str, start: int, length: int, etag: str | None) -> Fetched:
        """As `Fetches.fetch`. A range beyond the end of the object has no bytes."""
        wanted: Any = (start, start + length) if start >= 0 else {"suffix": -start}
        try:
            return await self._read(key, wanted, etag, length)
        except RequestFailed as failure:
            if failure.code != "InvalidRange":
                raise
            head = await self.head(key)
            if head.bytes and start < head.bytes:
                raise
            if etag not in (None, head.etag):
                raise RequestFailed("PreconditionFailed", "the object has another ETag", 412) from failure
        return Fetched(pa.py_buffer(b""), head.bytes, head.etag)

    async def head(self, key: str) -> ObjectHead:
        import obstore

        async def once() -> Any:
            tell("HeadObject", key, 0)
            return await obstore.head_async(self._store, key)

        meta = await self._tried(once)
        return ObjectHead(meta["size"], meta["last_modified"].timestamp(), _etag(meta))

    async def put(self, key: str, data: bytes) -> None:
        await self._tried(lambda: self._put(key, data, "overwrite"))

    async def put_if_absent(self, key: str, data: bytes) -> bool:
        """False: another writer was first. After an attempt without answer, the stored bytes may be ours: compare."""
        may_be_done = False

        async def once() -> bool:
            nonlocal may_be_done
            try:
                await self._put(key, data, "create")
                return True
            except Exception as error:
                failure = failure_of(error)
                if failure.code != "PreconditionFailed":
                    may_be_done |= failure.may_be_done
                    raise failure from error
            return may_be_done and (await self.get(key)).data.equals(pa.py_buffer(data))

        return await self._tried(once)

    async def put_if_same(self, key: str, data: bytes, etag: str) -> str | None:
        """The new ETag; None: another writer was first, or the object is gone. Lost replies: as in `put_if_absent`."""
        may_be_done = False

        async def once() -> str | None:
            nonlocal may_be_done
            try:
                return _etag(await self._put(key, data, {"e_tag": f'"{etag}"'}))
            except Exception as error:
                failure = failure_of(error)
                if failure.code not in ("PreconditionFailed", *MISSING_CODES):
                    may_be_done |= failure.may_be_done
                    raise failure from error
            if not may_be_done:
                return None
            try:
                now = await self.get(key)
            except RequestFailed as gone:
                if gone.code in MISSING_CODES:
                    return None
                raise
            return now.etag if now.data.equals(pa.py_buffer(data)) else None

        return await self._tried(once)

    async def _put(self, key: str, data: bytes, mode: Any) -> Any:
        import obstore

        tell("PutObject", key, len(data))
        return await obstore.put_async(self._store, key, data, mode=mode, use_multipart=False)

    async def _read(self, key: str, wanted: Any, etag: str | None, length: int) -> Fetched:
        import obstore

        options = {"range": wanted, "if_match": f'"{etag}"' if etag else None}
        options = {name: value for name, value in options.items() if value}

        async def once() -> Fetched:
            received = 0
            try:
                answer = await obstore.get_async(self._store, key, options=options)  # type: ignore[arg-type]
                data = pa.py_buffer(await answer.bytes_async())
                received = data.size
            finally:
                tell("GetObject", key, received)
            begin, end = answer.range
            if received != end - begin:
                raise RequestFailed("Truncated", f"{received} of {end - begin} bytes came")
            meta = answer.meta
            return Fetched(data, meta["size"], _etag(meta), meta["last_modified"].timestamp())

        return await self._tried(lambda: _hedged(once, length))

    async def _tried(self, act: Callable[[], Awaitable[Answer]]) -> Answer:
        """The result of the first attempt of `act` that succeeds."""
        attempts = RequestAttempts(self._most_attempts)
        while True:
            if wait_s := BACKOFF.turn_s():
                await asyncio.sleep(wait_s)
            try:
                return await act()
            except Exception as error:
                failure = failure_of(error)
                if failure.throttled:
                    BACKOFF.throttled()
                pause_s = attempts.pause_s() if failure.passes else None
                if pause_s is None:
                    raise failure from error
            await asyncio.sleep(pause_s)


async def _hedged(once: Callable[[], Coroutine[Any, Any, Answer]], length: int) -> Answer:
    """The answer of a request, or of a second one if the first is late: whichever comes first."""
    began_s = time.monotonic()
    racing = {asyncio.ensure_future(once())}
    try:
        done, _ = await asyncio.wait(racing, timeout=HEDGING.late_after_s(length))
        if not done and HEDGING.may_hedge():
            racing.add(asyncio.ensure_future(once()))
        while True:
            done, racing = await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
            answered = [request for request in done if request.exception() is None]
            if answered:
                HEDGING.answered(length, time.monotonic() - began_s)
                return answered[0].result()
            if not racing:
                return done.pop().result()
    finally:
        for request in racing:
            request.cancel()


def can_name(key: str) -> bool:
    """Whether obstore can name a key. obstore refuses `//`, `.`, `..` and control characters, and drops a last "/"."""
    return bool(_LEAST_ODD.fullmatch(key)) and not {".", ".."} & set(key.split("/"))


def failure_of(error: Exception) -> RequestFailed:
    """An exception of obstore as RequestFailed, with one line of text. Raises any other exception again."""
    from obstore.exceptions import BaseError

    if isinstance(error, RequestFailed):
        return error
    if not isinstance(error, (BaseError, FileNotFoundError)):
        raise error
    text, _, debug = str(error).partition("\n\nDebug source:")
    found = _STATUS.search(text)
    status = int(found[1]) if found else None
    if status is None and ("CONTENT_RANGE" in text or "non-partial" in text):  # some stores' answer for empty objects
        return RequestFailed("InvalidRange", text, 416)
    code = _CODE.search(text)
    if status is not None:
        return RequestFailed(
            code[1] if code else _CODES.get(status, str(status)), text.partition("<")[0].strip(), status
        )
    cause = "no answer in time" if "TimedOut" in debug else (_CAUSE.findall(debug) or [""])[-1]
    return RequestFailed("NoAnswer", f"{text}: {cause}" if cause else text)


def _etag(meta: Any) -> str | None:
    return (meta.get("e_tag") or "").strip('"') or None


def _opened(reach: BucketAccess) -> Any:
    with importing("obstore"):
        from obstore.store import S3Store

    def credentials() -> Any:
        return {
            "access_key_id": reach.access_key,
            "secret_access_key": reach.secret_key,
            "token": reach.token,
            "expires_at": None,  # S3Store makes new clients before the credentials expire
        }

    silent = timedelta(seconds=min(reach.timeout_s, SILENT_S))
    client: dict[str, Any] = {
        "allow_http": True,
        "connect_timeout": min(silent, timedelta(seconds=_CONNECT_S)),
        "read_timeout": silent,
        "timeout": timedelta(seconds=_REQUEST_S),
    }
    if reach.ca_file:
        with open(reach.ca_file, "rb") as file:
            client["root_certificate"] = file.read()
    encryption: dict[str, Any] = {}
    if reach.kms_key_id:
        encryption = {"server_side_encryption": "aws:kms", "sse_kms_key_id": reach.kms_key_id}
    # The URL names the bucket, in its host or its path. Every field is given, so that obstore reads no environment.
    return S3Store(
        "bucket",
        endpoint=reach.url,
        aws_endpoint_url_s3=reach.url,
        virtual_hosted_style_request=True,
        region=reach.region,
        skip_signature=False,
        credential_provider=credentials,
        client_options=client,  # type: ignore[arg-type]
        retry_config={"max_retries": 0},
        **encryption,
    )


_STARTING = threading.Lock()
_STARTED_IN: int | None = None


def usable() -> bool:
    """False in a child forked from a process that had sent requests: the child lacks the event loop's thread."""
    return _STARTED_IN in (None, os.getpid())


def begin(request: Coroutine[Any, Any, Answer]) -> Future[Answer]:
    """Send a request. The caller may wait for its answer, or do something else."""
    with _STARTING:
        loop = _loop()
    return asyncio.run_coroutine_threadsafe(request, loop)


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    global _STARTED_IN
    _STARTED_IN = os.getpid()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="deltacompact-s3", daemon=True)
    thread.start()
    atexit.register(_end, loop, thread)
    return loop


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Drop requests under way, so that no answer comes after the interpreter has ended."""

    async def drop() -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        loop.stop()

    if usable():
        with contextlib.suppress(KeyboardInterrupt):  # all is done and said: Ctrl-C only ends the wait
            asyncio.run_coroutine_threadsafe(drop(), loop)
            thread.join(2)
            time.sleep(0.05)  # obstore's threads need the interpreter once more, to drop their last answers
