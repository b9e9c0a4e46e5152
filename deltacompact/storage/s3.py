"""S3 as an object store: the only door to boto3.

put if absent   PutObject with If-None-Match: *      412: another writer was first; 409: try again
                tested once in each process: some stores with an S3 interface ignore the header
a large file    a multipart upload, completed at the end of the block, aborted if it fails; if the process dies,
                a vacuum finds the upload
random access   ranges of a file, several at a time: see fetched_file.py
first request   must be answered within 9 seconds, credentials included; later requests have long time-outs and retries
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from typing import IO, Any
from urllib.parse import urlsplit

import pyarrow as pa

from deltacompact.base import expect
from deltacompact.base.errors import DeltaCompactError, InputError, NotFoundError, StoreError
from deltacompact.base.settings import at_least
from deltacompact.base.wording import text_of
from deltacompact.storage.fetched_file import open_fetched
from deltacompact.storage.objects import Fetched, ObjectStat, refuse_overwriting

_PROBED: set[tuple[str | None, str]] = set()
"""Endpoints and URIs of stores that refused to overwrite when this process tested them."""
_PROBING = threading.RLock()

_LOG = logging.getLogger("deltacompact")
_REQUESTS_AT_ONCE = 32
_FIRST_ANSWER_S = 9.0
_SILENT_S = 2.0
"""Waits shorter than this are not reported."""
_SET_THEM = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role"
_CHECK_IT = "is it the right endpoint (AWS_ENDPOINT_URL, region), and can this machine reach it?"


@dataclass(frozen=True, slots=True)
class S3Settings:
    """How to reach S3. A None comes from boto3's own chain (environment, profile, instance role)."""

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    kms_key_id: str | None = None
    max_attempts: int = 10
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("endpoint_url", "region", "profile", "role_arn", "kms_key_id"):
            expect.text_or_none(name, getattr(self, name))
        at_least("max_attempts", self.max_attempts, 1)
        if not expect.number("timeout_s", self.timeout_s) > 0:
            raise InputError(f"timeout_s is {self.timeout_s!r}, it must be greater than 0")

    @classmethod
    def from_environment(cls) -> S3Settings:
        """Each field from DELTACOMPACT_S3_<FIELD>, if that variable is set."""
        chosen: dict[str, Any] = {}
        for setting in fields(cls):
            if value := os.environ.get(f"DELTACOMPACT_S3_{setting.name.upper()}"):
                kind: Any = type(setting.default) if setting.default is not None else str
                try:
                    chosen[setting.name] = kind(value)
                except ValueError:
                    raise InputError(f"DELTACOMPACT_S3_{setting.name.upper()}={value!r} is not a number") from None
        return cls(**chosen)


_ANSWERED: set[S3Settings] = set()
"""Settings whose endpoint has answered a request of this process."""


@dataclass(frozen=True, slots=True)
class _StaticCredentials:
    """Credentials from the environment. They travel to workers with the store; credentials of roles do not."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str | None = field(repr=False)


Access = tuple[S3Settings, _StaticCredentials | None]


class S3Store:
    """Objects in a bucket below a prefix, through boto3; random-access reads through Arrow's own S3 reader.

    Arrow's S3 file system has no conditional put and shows partial objects, so it is never used for writing.
    """

    _CREDENTIALS_LAST_S = 600.0
    _TASK_ERRORS_RETRIED = 5

    def __init__(self, bucket: str, prefix: str, settings: S3Settings) -> None:
        self.bucket = bucket
        self.prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        self.settings = _resolved(settings)
        self.uri = f"s3://{bucket}/{self.prefix}"
        self._static = _static_credentials(settings)
        self._live: tuple[Any, Any, float] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Clients cannot be pickled: every process builds its own. If the endpoint has answered the sender of the store,
        # its workers do not bound their first request.
        return {**self.__dict__, "_live": None, "_answered": self.settings in _ANSWERED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.pop("_answered"):
            _ANSWERED.add(state["settings"])
        self.__dict__.update(state)

    @property
    def access(self) -> Access:
        """Settings and credentials. They also open other buckets of the same owner."""
        return self.settings, self._static

    def get(self, path: str) -> bytes:
        with self._asking(path):
            return bytes(self._client.get_object(Bucket=self.bucket, Key=self.prefix + path)["Body"].read())

    def put(self, path: str, data: bytes) -> None:
        with self._asking(path):
            self._client.put_object(Bucket=self.bucket, Key=self.prefix + path, Body=data, **self._encryption)

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
        return self._put_if_absent(path, data)

    def _put_if_absent(self, path: str, data: bytes) -> bool:
        from botocore.exceptions import ClientError

        for attempt in range(self._TASK_ERRORS_RETRIED + 1):
            try:
                with self._asking(path, conditional=True):
                    self._client.put_object(
                        Bucket=self.bucket, Key=self.prefix + path, Body=data, IfNoneMatch="*", **self._encryption
                    )
                return True
            except ClientError as error:
                code = _code(error)
                if code == "PreconditionFailed":
                    return False
                # 409: another conditional put of this key is under way. Neither has taken effect yet; try again.
                if attempt == self._TASK_ERRORS_RETRIED:
                    raise StoreError(f"{self.uri}{path}: conditional put kept conflicting ({code})") from error
                time.sleep(0.05 * 2**attempt)
        raise AssertionError("unreachable")

    def open(self, path: str) -> pa.NativeFile:
        return open_fetched(self, path)

    def fetch(self, path: str, start: int, length: int, etag: str | None = None) -> Future[Fetched]:
        return _fetching().submit(self._fetch, path, start, length, etag)

    def _fetch(self, path: str, start: int, length: int, etag: str | None) -> Fetched:
        wanted = f"bytes={start}" if start < 0 else f"bytes={start}-{start + length - 1}"
        unchanged = {"IfMatch": etag} if etag else {}
        with self._asking(path):
            answer = self._client.get_object(Bucket=self.bucket, Key=self.prefix + path, Range=wanted, **unchanged)
            data = pa.py_buffer(answer["Body"].read()[:length])
        whole = int(answer["ContentRange"].rpartition("/")[2])
        return Fetched(data, whole, answer["ETag"].strip('"'))

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[IO[bytes]]:
        # Spool to disk: an upload that begins after the last byte cannot make half a file visible.
        with tempfile.TemporaryFile() as spool:
            yield spool
            spool.seek(0)
            with self._asking(path):
                self._client.upload_fileobj(spool, self.bucket, self.prefix + path, ExtraArgs=self._encryption)

    def stat(self, path: str) -> ObjectStat:
        with self._asking(path):
            head = self._client.head_object(Bucket=self.bucket, Key=self.prefix + path)
        etag = head.get("ETag", "").strip('"') or None
        return ObjectStat(path, head["ContentLength"], head["LastModified"].timestamp(), etag)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        after = {"StartAfter": self.prefix + start_after} if start_after else {}
        with self._asking(prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self.prefix + prefix, **after
            )
            for page in pages:
                for item in page.get("Contents", ()):
                    path = item["Key"][len(self.prefix) :]
                    yield ObjectStat(path, item["Size"], item["LastModified"].timestamp())

    def folders(self) -> Iterator[str]:
        with self._asking(""):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self.prefix, Delimiter="/"
            )
            for page in pages:
                for item in page.get("CommonPrefixes", ()):
                    yield item["Prefix"][len(self.prefix) : -1]

    def delete(self, paths: Iterable[str]) -> None:
        keys = [{"Key": self.prefix + path} for path in paths]
        for start in range(0, len(keys), 1000):
            with self._asking("(delete)"):
                answer = self._client.delete_objects(Bucket=self.bucket, Delete={"Objects": keys[start : start + 1000]})
            if failed := answer.get("Errors"):
                raise StoreError(f"{self.uri}: deleting {failed[0]['Key']} failed: {failed[0]['Code']}")

    def unfinished(self, prefix: str) -> Iterator[ObjectStat]:
        """Unfinished multipart uploads below `prefix`, with the time at which they began."""
        try:
            for upload in self._uploads(prefix):
                yield ObjectStat(upload["Key"][len(self.prefix) :], 0, upload["Initiated"].timestamp())
        except (InputError, StoreError) as error:  # some users may not list uploads, some stores cannot
            logging.getLogger(__name__).warning("unfinished uploads cannot be listed: %s", error)

    def discard(self, begun: Iterable[ObjectStat]) -> None:
        for stat in begun:
            for upload in list(self._uploads(stat.path)):
                if upload["Key"] == self.prefix + stat.path and upload["Initiated"].timestamp() <= stat.modified_s:
                    with self._asking(stat.path), contextlib.suppress(self._client.exceptions.NoSuchUpload):
                        self._client.abort_multipart_upload(
                            Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                        )

    def _uploads(self, prefix: str) -> Iterator[dict[str, Any]]:
        with self._asking(prefix):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self.bucket, Prefix=self.prefix + prefix
            )
            for page in pages:
                yield from page.get("Uploads", ())

    @property
    def _encryption(self) -> dict[str, str]:
        key = self.settings.kms_key_id
        return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key} if key else {}

    @property
    def _client(self) -> Any:
        return self._connected()[0]

    @property
    def _arrow(self) -> Any:
        return self._connected()[1]

    def _connected(self) -> tuple[Any, Any, float]:
        """Client and Arrow file system. They are renewed before a role's credentials can expire."""
        if self._live is None or time.monotonic() > self._live[2]:
            with self._asking(""):
                self._live = self._made()
        return self._live

    def _made(self) -> tuple[Any, Any, float]:
        renewed_at = time.monotonic() + self._CREDENTIALS_LAST_S
        deadline_s = time.monotonic() + _FIRST_ANSWER_S
        may_ask_its_user = self.settings.profile or os.environ.get("AWS_PROFILE")
        if self.settings in _ANSWERED or may_ask_its_user:
            client, arrow = self._clients()
        else:
            try:
                client, arrow = _bounded(
                    self._clients, deadline_s, f"connecting to {self.uri}: looking for AWS credentials"
                )
            except TimeoutError:
                raise InputError(
                    f"no AWS credentials for {self.uri} within {_FIRST_ANSWER_S:g} s: {_SET_THEM}"
                ) from None
        client.meta.events.register("before-send.s3", functools.partial(self._send, client, deadline_s))
        return client, arrow, renewed_at

    def _clients(self) -> tuple[Any, Any]:
        session, endpoint = _session(self.settings, self._static), self.settings.endpoint_url
        client = session.client("s3", config=_client_config(self.settings), endpoint_url=endpoint)
        return client, _arrow_file_system(session, client, endpoint)

    def _send(self, client: Any, deadline_s: float, request: Any, **_: Any) -> Any:
        """Send the first request of a process with a deadline. None lets boto3 send later requests itself."""
        if self.settings in _ANSWERED:
            return None
        answer = _first_send(client._endpoint.http_session.send, request, max(deadline_s, time.monotonic() + 3))
        _ANSWERED.add(self.settings)
        return answer

    @contextlib.contextmanager
    def _asking(self, path: str, conditional: bool = False) -> Iterator[None]:
        """Turn errors of boto3 into ours, in one line. A conditional put handles 412 and 409 itself."""
        import botocore.exceptions as aws

        try:
            yield
        except DeltaCompactError:
            raise
        except aws.ClientError as error:
            code = _code(error)
            if conditional and code in ("PreconditionFailed", "ConditionalRequestConflict"):
                raise
            if code == "NoSuchBucket":
                raise NotFoundError(f"bucket {self.bucket!r} does not exist") from error
            if code == "PreconditionFailed":
                raise InputError(f"{self.uri}{path} changed while it was read") from error
            if code in ("NoSuchKey", "404", "NotFound"):
                raise NotFoundError(f"{self.uri}{path} does not exist") from error
            if code in ("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"):
                raise InputError(f"{self.uri}{path}: S3 refused access ({code})") from error
            raise StoreError(f"{self.uri}{path}: S3 answered {code}: {text_of(error)}") from error
        except (aws.NoCredentialsError, aws.PartialCredentialsError, aws.CredentialRetrievalError) as error:
            raise InputError(f"no AWS credentials for {self.uri}: {text_of(error)}") from error
        except (aws.ProfileNotFound, aws.NoRegionError, aws.ParamValidationError, ValueError) as error:
            raise InputError(f"{self.uri}: {text_of(error)}") from error
        except (aws.BotoCoreError, aws.HTTPClientError) as error:
            raise StoreError(f"{self.uri}{path}: {text_of(error)}") from error
        except Exception as error:
            if type(error).__module__.startswith(("boto3.", "s3transfer.")):
                missing = "NoSuchBucket" in str(error)
                kind = NotFoundError if missing else StoreError
                raise kind(f"bucket {self.bucket!r} does not exist" if missing else text_of(error)) from error
            raise


@functools.cache
def _fetching() -> ThreadPoolExecutor:
    """The threads of this process that wait for answers."""
    return ThreadPoolExecutor(_REQUESTS_AT_ONCE, "deltacompact-fetches")


def whole_bucket(bucket: str, access: Access | None = None) -> S3Store:
    """The store of a whole bucket. A process opens it once, because the first request makes connections.

    `access` comes from another store. None: take settings and credentials from the environment.
    """
    if access is None:
        settings = S3Settings.from_environment()
        access = settings, _static_credentials(settings)
    return _opened_bucket(bucket, access)


@functools.lru_cache(maxsize=256)
def _opened_bucket(bucket: str, access: Access) -> S3Store:
    settings, static = access
    store = S3Store(bucket, "", settings)
    store._static = static
    return store


def _first_send(send: Callable[[Any], Any], request: Any, deadline_s: float) -> Any:
    """Send the first request to an endpoint, up to three times. Any answer counts, even an error."""
    from botocore.exceptions import BotoCoreError

    url = urlsplit(request.url)
    endpoint = f"{url.scheme}://{url.netloc}"
    for left in (2, 1, 0):
        try:
            return _bounded(lambda: send(request), deadline_s, f"connecting to {endpoint}")
        except TimeoutError:
            raise StoreError(f"{endpoint} did not answer within {_FIRST_ANSWER_S:g} s: {_CHECK_IT}") from None
        except BotoCoreError as error:
            if not left:
                raise StoreError(f"{endpoint} does not answer: {text_of(error)}: {_CHECK_IT}") from error
            request.reset_stream()
            time.sleep(0.3)
    raise AssertionError("unreachable")


def _bounded(call: Callable[[], Any], deadline_s: float, doing: str) -> Any:
    """The result of the call, which runs in a thread. Raises TimeoutError at the deadline and abandons the thread."""
    outcome: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put((call(), None))
        except BaseException as error:
            outcome.put((None, error))

    threading.Thread(target=run, name="deltacompact-connects", daemon=True).start()
    try:
        value, error = outcome.get(timeout=min(_SILENT_S, max(0.0, deadline_s - time.monotonic())))
    except queue.Empty:
        _LOG.warning("%s ...", doing)
        try:
            value, error = outcome.get(timeout=max(0.0, deadline_s - time.monotonic()))
        except queue.Empty:
            raise TimeoutError(doing) from None
    if error is not None:
        raise error
    return value


def aws_client(service: str, region: str | None = None, answer_within_s: float = 5) -> Any:
    """A boto3 client of another AWS service, with the settings of S3 but few retries and short time-outs."""
    from botocore.config import Config

    settings = _resolved(S3Settings.from_environment())
    session = _session(settings, _static_credentials(settings))
    config = Config(retries={"mode": "standard", "max_attempts": 2}, connect_timeout=3, read_timeout=answer_within_s)
    return session.client(service, region_name=region or settings.region, config=config)


def _resolved(settings: S3Settings) -> S3Settings:
    """The settings, completed from the environment of the process that opens the store, for its workers too."""
    environment = os.environ.get
    return replace(
        settings,
        endpoint_url=settings.endpoint_url or environment("AWS_ENDPOINT_URL_S3") or environment("AWS_ENDPOINT_URL"),
        region=settings.region or environment("AWS_REGION") or environment("AWS_DEFAULT_REGION"),
    )


def _client_config(settings: S3Settings) -> Any:
    from botocore.config import Config

    return Config(
        retries={"mode": "adaptive", "max_attempts": settings.max_attempts},  # backs off on SlowDown
        connect_timeout=settings.timeout_s,
        read_timeout=settings.timeout_s,
        max_pool_connections=_REQUESTS_AT_ONCE,
    )


def _static_credentials(settings: S3Settings) -> _StaticCredentials | None:
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if settings.profile or not (key and secret):
        return None
    return _StaticCredentials(key, secret, os.environ.get("AWS_SESSION_TOKEN"))


def _session(settings: S3Settings, static: _StaticCredentials | None) -> Any:
    import boto3

    credentials = {}
    if static:
        credentials = {
            "aws_access_key_id": static.access_key,
            "aws_secret_access_key": static.secret_key,
            "aws_session_token": static.token,
        }
    session = boto3.Session(profile_name=settings.profile, region_name=settings.region, **credentials)
    if not settings.role_arn:
        return session
    answer = session.client("sts").assume_role(RoleArn=settings.role_arn, RoleSessionName="deltacompact")
    assumed = answer["Credentials"]
    return boto3.Session(
        aws_access_key_id=assumed["AccessKeyId"],
        aws_secret_access_key=assumed["SecretAccessKey"],
        aws_session_token=assumed["SessionToken"],
        region_name=session.region_name,
    )


def _arrow_file_system(session: Any, client: Any, endpoint: str | None) -> Any:
    from pyarrow import fs

    found = session.get_credentials()
    if found is None:
        raise InputError(f"no AWS credentials: {_SET_THEM}")
    frozen = found.get_frozen_credentials()
    url = urlsplit(endpoint) if endpoint else None
    return fs.S3FileSystem(
        access_key=frozen.access_key,
        secret_key=frozen.secret_key,
        session_token=frozen.token,
        region=client.meta.region_name or "us-east-1",
        endpoint_override=url.netloc if url else None,
        scheme=url.scheme if url else "https",
    )


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", "unknown"))
