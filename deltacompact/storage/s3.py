"""S3 as an object store.

put if absent   PutObject with If-None-Match: *      412: another writer was first; 409: try again
                tested once in each process: some stores with an S3 interface ignore the header
one object      obstore (s3_objects.py); boto3 where obstore cannot: keys that it cannot name, buckets of another
                region, forked processes, and the first request of a process
a large file    a multipart upload (upload.py), completed at the end of the block, aborted if it fails; if the process
                dies, a vacuum finds the upload
random access   ranges of a file, several at a time: see fetched_file.py
clients         made once, renewed with their credentials: s3_clients.py; settings: s3_access.py; errors: s3_errors.py
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import IO, Any, TypeVar, cast

import pyarrow as pa

from deltacompact.base.errors import InputError, NotFoundError, PassingError, StoreError
from deltacompact.base.partitions import side_by_side
from deltacompact.storage import s3_objects
from deltacompact.storage.fetched_file import open_fetched
from deltacompact.storage.first_answer import ANSWERED
from deltacompact.storage.objects import Fetched, ObjectStat, Tagged, refuse_overwriting
from deltacompact.storage.retries import RequestAttempts
from deltacompact.storage.s3_access import REQUESTS_AT_ONCE, Access, S3Settings, resolved, static_credentials
from deltacompact.storage.s3_clients import Clients, clients_of, forget
from deltacompact.storage.s3_errors import as_ours, code_of
from deltacompact.storage.s3_objects import MISSING_CODES, Objects, RequestFailed
from deltacompact.storage.s3_parts import S3Parts
from deltacompact.storage.upload import Upload

Answer = TypeVar("Answer")

_PROBED: set[tuple[str | None, str]] = set()
"""Endpoints and URIs of stores that refused to overwrite when this process tested them."""
_PROBING = threading.RLock()

_PAGE, _PAGES_AT_ONCE = 1000, 4
"""Objects of one delete request, at most, and such requests at once: S3 counts each object of them."""
_PASSING = {"InternalError": 500, "SlowDown": 503, "ServiceUnavailable": 503, "RequestTimeout": 400}
"""The statuses of codes that S3 gives for single objects of a delete request and that pass."""

_ELSEWHERE = ("PermanentRedirect", "AuthorizationHeaderMalformed", "TemporaryRedirect", "301", "307")
"""S3's answers for a bucket of another region. boto3 sends the request there."""


class S3Store:
    """Objects in a bucket below a prefix."""

    _TASK_ERRORS_RETRIED = 5

    def __init__(self, bucket: str, prefix: str, settings: S3Settings) -> None:
        self.bucket = bucket
        self.prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        self.settings = resolved(settings)
        self.uri = f"s3://{bucket}/{self.prefix}"
        self._static = static_credentials(settings)
        self._clients: Clients | None = None
        self._elsewhere = False

    def __getstate__(self) -> dict[str, Any]:
        # Clients cannot be pickled: every process builds its own. If the endpoint has answered the sender of the store,
        # its workers do not bound their first request.
        return {**self.__dict__, "_clients": None, "_answered": self.settings in ANSWERED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.pop("_answered"):
            ANSWERED.add(state["settings"])
        self.__dict__.update(state)

    @property
    def access(self) -> Access:
        """Settings and credentials. They also open other buckets of the same owner."""
        return self.settings, self._static

    def get(self, path: str) -> bytes:
        def by_boto3() -> bytes:
            return bytes(self.client.get_object(Bucket=self.bucket, Key=self.prefix + path)["Body"].read())

        async def get(objects: Objects, key: str) -> bytes:
            return bytes((await objects.get(key)).data)

        return self._answered(path, get, by_boto3)

    def put(self, path: str, data: bytes) -> None:
        def by_boto3() -> None:
            self.client.put_object(Bucket=self.bucket, Key=self.prefix + path, Body=data, **self.encryption)

        self._answered(path, lambda objects, key: objects.put(key, data), by_boto3)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        probed = (self.settings.endpoint_url, self.uri)
        with _PROBING:  # other threads wait for the test
            if probed not in _PROBED:
                _PROBED.add(probed)  # the test itself calls put_if_absent
                try:
                    refuse_overwriting(self)
                except BaseException:
                    _PROBED.remove(probed)
                    raise
        return self._answered(
            path,
            lambda objects, key: objects.put_if_absent(key, data),
            lambda: self._put_if_absent(path, data),
        )

    def _put_if_absent(self, path: str, data: bytes) -> bool:
        etag, may_be_done = self._put_conditionally(path, data, {"IfNoneMatch": "*"})
        return etag is not None or (may_be_done and self.get(path) == data)

    def _put_conditionally(self, path: str, data: bytes, condition: dict[str, str]) -> tuple[str | None, bool]:
        """The new ETag; None: the condition does not hold. And whether an attempt without an answer may have put it."""
        from botocore.exceptions import ClientError

        may_be_done = False
        for attempt in range(self._TASK_ERRORS_RETRIED + 1):
            try:
                answer = self.client.put_object(
                    Bucket=self.bucket, Key=self.prefix + path, Body=data, **condition, **self.encryption
                )
                return str(answer["ETag"]).strip('"'), may_be_done
            except ClientError as error:
                code = code_of(error)
                # boto3 tries again if no answer comes: its first attempt may have put the object.
                may_be_done |= error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0
                if code == "PreconditionFailed" or ("IfMatch" in condition and code in MISSING_CODES):
                    return None, may_be_done
                # 409: another conditional put of this key is under way. Neither has taken effect yet; try again.
                if code != "ConditionalRequestConflict" or attempt == self._TASK_ERRORS_RETRIED:
                    raise
                time.sleep(0.05 * 2**attempt)
        raise AssertionError("unreachable")

    def get_tagged(self, path: str) -> Tagged:
        def by_boto3() -> Tagged:
            answer = self.client.get_object(Bucket=self.bucket, Key=self.prefix + path)
            return Tagged(bytes(answer["Body"].read()), answer["ETag"].strip('"'), answer["LastModified"].timestamp())

        async def get(objects: Objects, key: str) -> Tagged:
            answer = await objects.get(key)
            return Tagged(bytes(answer.data), answer.etag or "", answer.modified_s or 0.0)

        return self._answered(path, get, by_boto3)

    def put_if_same(self, path: str, data: bytes, etag: str) -> str | None:
        return self._answered(
            path,
            lambda objects, key: objects.put_if_same(key, data, etag),
            lambda: self._put_if_same(path, data, etag),
        )

    def _put_if_same(self, path: str, data: bytes, etag: str) -> str | None:
        put, may_be_done = self._put_conditionally(path, data, {"IfMatch": f'"{etag}"'})
        if put is None and may_be_done:
            with contextlib.suppress(NotFoundError):
                now = self.get_tagged(path)
                return now.etag if now.data == data else None
        return put

    def open(self, path: str) -> pa.NativeFile:
        return open_fetched(self, path)

    def fetch(self, path: str, start: int, length: int, etag: str | None = None) -> Future[Fetched]:
        return self._begun(
            path,
            lambda objects, key: objects.fetch(key, start, length, etag),
            lambda: self._fetch(path, start, length, etag),
        )

    def _fetch(self, path: str, start: int, length: int, etag: str | None) -> Fetched:
        from botocore.exceptions import ClientError

        named = {"Bucket": self.bucket, "Key": self.prefix + path, **({"IfMatch": etag} if etag else {})}
        wanted = f"bytes={start}" if start < 0 else f"bytes={start}-{start + length - 1}"
        try:
            answer = self.client.get_object(**named, Range=wanted)
        except ClientError as error:
            if code_of(error) != "InvalidRange":
                raise
            head = self.client.head_object(**named)
            return Fetched(pa.py_buffer(b""), head["ContentLength"], head["ETag"].strip('"'))
        data = pa.py_buffer(answer["Body"].read())
        return Fetched(data, int(answer["ContentRange"].rpartition("/")[2]), answer["ETag"].strip('"'))

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[IO[bytes]]:
        """A sink that is uploaded while it is written. It has `copy_from`, see objects.py."""
        upload = Upload(S3Parts(self, path), _uploading())
        try:
            yield cast(IO[bytes], upload)
            upload.complete()
        except BaseException:
            upload.abort()
            raise

    def stat(self, path: str) -> ObjectStat:
        def by_boto3() -> ObjectStat:
            head = self.client.head_object(Bucket=self.bucket, Key=self.prefix + path)
            etag = head.get("ETag", "").strip('"') or None
            return ObjectStat(path, head["ContentLength"], head["LastModified"].timestamp(), etag)

        async def stat(objects: Objects, key: str) -> ObjectStat:
            head = await objects.head(key)
            return ObjectStat(path, head.bytes, head.modified_s, head.etag)

        return self._answered(path, stat, by_boto3)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        after = {"StartAfter": self.prefix + start_after} if start_after else {}
        with self.asking(prefix):
            pages = self.client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self.prefix + prefix, **after
            )
            for page in pages:
                for item in page.get("Contents", ()):
                    path = item["Key"][len(self.prefix) :]
                    etag = item.get("ETag", "").strip('"') or None
                    modified_s, class_ = item["LastModified"].timestamp(), item.get("StorageClass")
                    yield ObjectStat(path, item["Size"], modified_s, etag, class_)

    def folders(self) -> Iterator[str]:
        with self.asking(""):
            pages = self.client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self.prefix, Delimiter="/"
            )
            for page in pages:
                for item in page.get("CommonPrefixes", ()):
                    yield item["Prefix"][len(self.prefix) : -1]

    def delete(self, paths: Iterable[str]) -> None:
        keys = [self.prefix + path for path in paths]
        pages = [keys[start : start + _PAGE] for start in range(0, len(keys), _PAGE)]
        side_by_side(pages, self._delete, _PAGES_AT_ONCE)

    def _delete(self, keys: Sequence[str]) -> None:
        """Delete a page of objects. Those that S3 could not delete now are asked for again."""
        attempts = RequestAttempts(self.settings.max_attempts)
        while True:
            page = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
            with self.asking("(delete)"):
                answer = self.client.delete_objects(Bucket=self.bucket, Delete=page)
            failures = {failed["Key"]: _undeleted(failed) for failed in answer.get("Errors", ())}
            failures = {key: failure for key, failure in failures.items() if failure.code not in MISSING_CODES}
            if not failures:
                return
            if any(failure.throttled for failure in failures.values()):
                s3_objects.BACKOFF.throttled()
            lasting = [key for key, failure in failures.items() if not failure.passes]
            pause_s = None if lasting else attempts.pause_s()
            if pause_s is None:
                key = [*lasting, *failures][0]
                with self.asking(key, f"deleting s3://{self.bucket}/{key}"):
                    raise failures[key]
            time.sleep(pause_s)
            keys = [*failures]

    def unfinished(self, prefix: str) -> Iterator[ObjectStat]:
        """Unfinished multipart uploads below `prefix`, with the time at which they began."""
        try:
            for upload in self._uploads(prefix):
                yield ObjectStat(upload["Key"][len(self.prefix) :], 0, upload["Initiated"].timestamp())
        except (InputError, PassingError) as error:  # the user may lack the permission, or the store the request
            logging.getLogger(__name__).warning("unfinished uploads cannot be listed: %s", error)

    def discard(self, begun: Iterable[ObjectStat]) -> None:
        for stat in begun:
            for upload in list(self._uploads(stat.path)):
                if upload["Key"] == self.prefix + stat.path and upload["Initiated"].timestamp() <= stat.modified_s:
                    with self.asking(stat.path), contextlib.suppress(self.client.exceptions.NoSuchUpload):
                        self.client.abort_multipart_upload(
                            Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                        )

    def _uploads(self, prefix: str) -> Iterator[dict[str, Any]]:
        with self.asking(prefix):
            pages = self.client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self.bucket, Prefix=self.prefix + prefix
            )
            for page in pages:
                yield from page.get("Uploads", ())

    @property
    def encryption(self) -> dict[str, str]:
        key = self.settings.kms_key_id
        return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key} if key else {}

    @property
    def client(self) -> Any:
        """boto3's client."""
        return self._connected().client

    def _answered(
        self,
        path: str,
        ask: Callable[[Objects, str], Coroutine[Any, Any, Answer]],
        by_boto3: Callable[[], Answer],
    ) -> Answer:
        """The answer to a request for one object, by obstore if it can."""
        objects = self._objects(path)
        if objects is None:
            with self.asking(path):
                return by_boto3()
        answer = s3_objects.begin(self._asked(path, ask(objects, self.prefix + path), by_boto3))
        try:
            return answer.result()
        except CancelledError as error:  # the interpreter ends: s3_objects drops what is under way
            raise StoreError(f"{self.uri}{path}: no answer was waited for, because this process ends") from error
        except KeyboardInterrupt:
            answer.cancel()
            raise

    def _begun(
        self,
        path: str,
        ask: Callable[[Objects, str], Coroutine[Any, Any, Answer]],
        by_boto3: Callable[[], Answer],
    ) -> Future[Answer]:
        """As `_answered`, without waiting for the answer."""
        objects = self._objects(path)
        if objects is None:
            return _asking_threads().submit(self._asked_boto3, path, by_boto3)
        return s3_objects.begin(self._asked(path, ask(objects, self.prefix + path), by_boto3))

    async def _asked(self, path: str, request: Awaitable[Answer], by_boto3: Callable[[], Answer]) -> Answer:
        with self.asking(path):
            try:
                return await request
            except RequestFailed as failure:
                if failure.code not in _ELSEWHERE:
                    raise
        self._elsewhere = True
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_asking_threads(), self._asked_boto3, path, by_boto3)

    def _asked_boto3(self, path: str, by_boto3: Callable[[], Answer]) -> Answer:
        with self.asking(path):
            return by_boto3()

    def _objects(self, path: str) -> Objects | None:
        """The obstore client for a request about this object. None: boto3 must send the request."""
        objects = self._connected().objects
        able = self.settings in ANSWERED and not self._elsewhere and s3_objects.usable()
        return objects if able and s3_objects.can_name(self.prefix + path) else None

    def _connected(self) -> Clients:
        if self._clients is None or not self._clients.is_fresh:
            self._clients = clients_of(self.access, self.bucket, self.uri)
        return self._clients

    def asking(self, path: str, uri: str | None = None) -> contextlib.AbstractContextManager[None]:
        """Turns errors of boto3 and obstore into ours, about the object at a path (or a URI)."""
        return as_ours(uri or f"{self.uri}{path}", self.bucket, self.uri, forget)


def _undeleted(failed: dict[str, str]) -> RequestFailed:
    """The answer about one object of a page."""
    return RequestFailed(failed["Code"], failed.get("Message", ""), _PASSING.get(failed["Code"], 400))


@functools.cache
def _asking_threads() -> ThreadPoolExecutor:
    """The threads of this process in which boto3 waits for answers."""
    return ThreadPoolExecutor(REQUESTS_AT_ONCE, "deltacompact-s3-requests")


@functools.cache
def _uploading() -> ThreadPoolExecutor:
    """The threads of this process that send parts."""
    return ThreadPoolExecutor(REQUESTS_AT_ONCE, "deltacompact-s3-uploads")


for _threads in (_asking_threads, _uploading):  # a forked child has none of these threads
    os.register_at_fork(after_in_child=_threads.cache_clear)


def whole_bucket(bucket: str, access: Access | None) -> S3Store:
    """The store of a whole bucket. A process opens it once, because the first request makes connections.

    `access` comes from another store. None: take settings and credentials from the environment.
    """
    if access is None:
        settings = S3Settings.from_environment()
        access = settings, static_credentials(settings)
    return _opened_bucket(bucket, access)


@functools.lru_cache(maxsize=256)
def _opened_bucket(bucket: str, access: Access) -> S3Store:
    settings, static = access
    store = S3Store(bucket, "", settings)
    store._static = static
    return store
