"""Objects by path: what the catalog needs of S3, of a local disk, and of a test's memory.

The commit protocol rests on one primitive, *put if absent*:

    put_if_absent("t/stream/0/00000000000000000007.json", A) -> True      the object is A, for ever
    put_if_absent("t/stream/0/00000000000000000007.json", B) -> False     somebody was there first

S3 does it with `If-None-Match: *`, a disk by linking a finished file into place. Data files are written under
attempt-unique names, so `writer` need not be conditional, but a write that fails must leave nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import IO, Any, Protocol, cast, runtime_checkable
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from deltacompact.direct_file import DirectFile
from deltacompact.errors import DeltaCompactError, InputError, NotFoundError, StoreError


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """One listed object: path relative to the store's root, size in bytes, last modified in seconds (store's clock)."""

    path: str
    bytes: int
    modified_s: float


@runtime_checkable
class ObjectStore(Protocol):
    """A flat, strongly consistent space of objects under a root. Stores can be pickled and sent to workers.

    Raises NotFoundError where an object is missing, StoreError where an outcome is unknown.
    """

    uri: str

    def get(self, path: str) -> bytes: ...

    def put(self, path: str, data: bytes) -> None: ...

    def put_if_absent(self, path: str, data: bytes) -> bool: ...

    def open(self, path: str) -> pa.NativeFile:
        """Random access for reading."""

    def writer(self, path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        """A sink whose bytes become the object when the block ends without an exception, and never otherwise."""

    def stat(self, path: str) -> ObjectStat: ...

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        """Objects whose path starts with `prefix`, in byte order of their paths, those after `start_after`."""

    def folders(self) -> Iterator[str]:
        """Names of the folders directly below the root, in byte order."""

    def delete(self, paths: Iterable[str]) -> None: ...


class MemoryStore:
    """A dictionary with a lock: for tests, and for reads that publish nothing."""

    def __init__(self, uri: str = "memory://", clock: Any = time.time) -> None:
        self.uri = uri
        self._objects: dict[str, tuple[bytes, float]] = {}
        self._clock = clock
        self._lock = threading.Lock()

    def get(self, path: str) -> bytes:
        try:
            return self._objects[path][0]
        except KeyError:
            raise NotFoundError(f"{self.uri}{path} does not exist") from None

    def put(self, path: str, data: bytes) -> None:
        self._objects[path] = (bytes(data), self._clock())

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._lock:
            if path in self._objects:
                return False
            self.put(path, data)
            return True

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.get(path))

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[IO[bytes]]:
        sink = pa.BufferOutputStream()
        yield sink
        self.put(path, sink.getvalue().to_pybytes())

    def stat(self, path: str) -> ObjectStat:
        data = self.get(path)
        return ObjectStat(path, len(data), self._objects[path][1])

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        for path in sorted(self._objects):
            if path.startswith(prefix) and path > start_after:
                data, modified_s = self._objects[path]
                yield ObjectStat(path, len(data), modified_s)

    def folders(self) -> Iterator[str]:
        yield from sorted({path.partition("/")[0] for path in self._objects if "/" in path})

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._objects.pop(path, None)


class LocalStore:
    """Objects as files below a directory. Unfinished writes live in `.unfinished` and are never listed."""

    UNFINISHED = ".unfinished"

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).absolute()
        self.uri = self.root.as_uri() + "/"

    def get(self, path: str) -> bytes:
        with self._reading(path):
            return (self.root / path).read_bytes()

    def put(self, path: str, data: bytes) -> None:
        with self.writer(path) as sink:
            sink.write(data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._unfinished() as (sink, name):
            sink.write(data)
            sink.finish()
            target = self._parent_made(path)
            try:
                os.link(name, target)
            except FileExistsError:
                return False
            _sync_directory(target.parent)
            return True

    def open(self, path: str) -> pa.NativeFile:
        with self._reading(path):
            return pa.memory_map(str(self.root / path)) if (self.root / path).stat().st_size else pa.BufferReader(b"")

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[IO[bytes]]:
        with self._unfinished() as (sink, name):
            yield cast(IO[bytes], sink)
            sink.finish()
            target = self._parent_made(path)
            os.replace(name, target)
            _sync_directory(target.parent)

    def stat(self, path: str) -> ObjectStat:
        with self._reading(path):
            stat = (self.root / path).stat()
        return ObjectStat(path, stat.st_size, stat.st_mtime)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        directory = self.root / prefix.rpartition("/")[0]
        found = []
        for folder, folders, names in os.walk(directory):
            if self.UNFINISHED in folders:
                folders.remove(self.UNFINISHED)
            relative = Path(folder).relative_to(self.root).as_posix()
            at = "" if relative == "." else relative + "/"
            found += [at + name for name in names]
        for path in sorted(found, key=str.encode):
            if path.startswith(prefix) and path > start_after:
                with contextlib.suppress(NotFoundError):
                    yield self.stat(path)

    def folders(self) -> Iterator[str]:
        if self.root.is_dir():
            found = {each.name for each in self.root.iterdir() if each.is_dir()}
            yield from sorted(found - {self.UNFINISHED})

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            (self.root / path).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # the folder goes with its last object, as on S3
                (self.root / path).parent.rmdir()

    @contextlib.contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise NotFoundError(f"{self.root / path} does not exist") from None
        except PermissionError:
            raise InputError(f"{self.root / path} may not be read") from None

    @contextlib.contextmanager
    def _unfinished(self) -> Iterator[tuple[DirectFile, Path]]:
        name = self.root / self.UNFINISHED / uuid.uuid4().hex
        try:
            name.parent.mkdir(parents=True, exist_ok=True)
            with DirectFile(name) as sink:
                yield sink, name
        except (PermissionError, NotADirectoryError, FileNotFoundError) as error:
            raise InputError(f"{self.root} cannot be written: {error.strerror}") from None
        except OSError as error:
            raise StoreError(f"writing below {self.root} failed: {error.strerror or error}") from error
        finally:
            with contextlib.suppress(OSError):
                name.unlink(missing_ok=True)

    def _parent_made(self, path: str) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass(frozen=True, slots=True)
class S3Settings:
    """How S3 is reached. What is None comes from boto3's own chain (environment, profile, instance role)."""

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    kms_key_id: str | None = None
    max_attempts: int = 10
    timeout_s: float = 60.0

    @classmethod
    def from_environment(cls) -> S3Settings:
        """Each field from DELTACOMPACT_S3_<FIELD>, where it is set."""
        given: dict[str, Any] = {}
        for each in fields(cls):
            if value := os.environ.get(f"DELTACOMPACT_S3_{each.name.upper()}"):
                kind: Any = type(each.default) if each.default is not None else str
                try:
                    given[each.name] = kind(value)
                except ValueError:
                    raise InputError(f"DELTACOMPACT_S3_{each.name.upper()}={value!r} is not a number") from None
        return cls(**given)


@dataclass(frozen=True, slots=True)
class _StaticCredentials:
    """Credentials that were given in the environment go with the store to its workers; those of roles do not."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str | None = field(repr=False)


class S3Store:
    """Objects in a bucket below a prefix, through boto3; random-access reads through Arrow's own S3 reader.

    Arrow's S3 file system has no conditional put and publishes partial objects, so nothing is written with it.
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
        return {**self.__dict__, "_live": None}  # clients cannot be pickled: one is built where it is needed

    def get(self, path: str) -> bytes:
        with self._asking(path):
            return bytes(self._client.get_object(Bucket=self.bucket, Key=self.prefix + path)["Body"].read())

    def put(self, path: str, data: bytes) -> None:
        with self._asking(path):
            self._client.put_object(Bucket=self.bucket, Key=self.prefix + path, Body=data, **self._encryption)

    def put_if_absent(self, path: str, data: bytes) -> bool:
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
                # 409: another conditional put of this key is under way. Neither has happened yet; ask again.
                if attempt == self._TASK_ERRORS_RETRIED:
                    raise StoreError(f"{self.uri}{path}: conditional put kept conflicting ({code})") from error
                time.sleep(0.05 * 2**attempt)
        raise AssertionError("unreachable")

    def open(self, path: str) -> pa.NativeFile:
        with self._asking(path):
            try:
                return self._arrow.open_input_file(f"{self.bucket}/{self.prefix}{path}")
            except FileNotFoundError:
                self.stat(path)  # says what is missing: object or bucket
                raise
            except OSError as error:
                self.stat(path)
                raise StoreError(f"{self.uri}{path}: {_one_line(error)}") from error

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[IO[bytes]]:
        # Spooled to disk: an upload that is only begun after the last byte cannot publish half a file.
        with tempfile.TemporaryFile() as spool:
            yield spool
            spool.seek(0)
            with self._asking(path):
                self._client.upload_fileobj(spool, self.bucket, self.prefix + path, ExtraArgs=self._encryption)

    def stat(self, path: str) -> ObjectStat:
        with self._asking(path):
            head = self._client.head_object(Bucket=self.bucket, Key=self.prefix + path)
        return ObjectStat(path, head["ContentLength"], head["LastModified"].timestamp())

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
        """Client and Arrow file system, renewed before a role's credentials can run out."""
        if self._live is None or time.monotonic() > self._live[2]:
            with self._asking(""):
                session = _session(self.settings, self._static)
                endpoint = self.settings.endpoint_url
                client = session.client("s3", config=_client_config(self.settings), endpoint_url=endpoint)
                renewed_at = time.monotonic() + self._CREDENTIALS_LAST_S
                self._live = (client, _arrow_file_system(session, client, endpoint), renewed_at)
        return self._live

    @contextlib.contextmanager
    def _asking(self, path: str, conditional: bool = False) -> Iterator[None]:
        """Say in one line what S3 answered. A conditional put sees 412 and 409 itself."""
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
            if code in ("NoSuchKey", "404", "NotFound"):
                raise NotFoundError(f"{self.uri}{path} does not exist") from error
            if code in ("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"):
                raise InputError(f"{self.uri}{path}: S3 refused access ({code})") from error
            raise StoreError(f"{self.uri}{path}: S3 answered {code}: {_one_line(error)}") from error
        except (aws.NoCredentialsError, aws.PartialCredentialsError, aws.CredentialRetrievalError) as error:
            raise InputError(f"no AWS credentials for {self.uri}: {_one_line(error)}") from error
        except (aws.ProfileNotFound, aws.NoRegionError, aws.ParamValidationError, ValueError) as error:
            raise InputError(f"{self.uri}: {_one_line(error)}") from error
        except (aws.BotoCoreError, aws.HTTPClientError) as error:
            raise StoreError(f"{self.uri}{path}: {_one_line(error)}") from error
        except Exception as error:
            if type(error).__module__.startswith(("boto3.", "s3transfer.")):
                missing = "NoSuchBucket" in str(error)
                kind = NotFoundError if missing else StoreError
                raise kind(f"bucket {self.bucket!r} does not exist" if missing else _one_line(error)) from error
            raise


def aws_client(service: str, region: str | None = None) -> Any:
    """A boto3 client of another AWS service, by the same settings as S3 (few retries, short time-outs)."""
    from botocore.config import Config

    settings = _resolved(S3Settings.from_environment())
    session = _session(settings, _static_credentials(settings))
    config = Config(retries={"mode": "standard", "max_attempts": 3}, connect_timeout=5, read_timeout=10)
    return session.client(service, region_name=region or settings.region, config=config)


def _resolved(settings: S3Settings) -> S3Settings:
    """The environment is read where the store is opened, so that its workers reach the same S3."""
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
        max_pool_connections=32,
    )


def _static_credentials(settings: S3Settings) -> _StaticCredentials | None:
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if settings.profile or not (key and secret):
        return None
    return _StaticCredentials(key, secret, os.environ.get("AWS_SESSION_TOKEN"))


def _session(settings: S3Settings, static: _StaticCredentials | None) -> Any:
    import boto3

    given = {}
    if static:
        given = {
            "aws_access_key_id": static.access_key,
            "aws_secret_access_key": static.secret_key,
            "aws_session_token": static.token,
        }
    session = boto3.Session(profile_name=settings.profile, region_name=settings.region, **given)
    if not settings.role_arn:
        return session
    assumed = session.client("sts").assume_role(RoleArn=settings.role_arn, RoleSessionName="deltacompact")
    credentials = assumed["Credentials"]
    return boto3.Session(
        aws_access_key_id=credentials["AccessKeyId"],
        aws_secret_access_key=credentials["SecretAccessKey"],
        aws_session_token=credentials["SessionToken"],
        region_name=session.region_name,
    )


def _arrow_file_system(session: Any, client: Any, endpoint: str | None) -> Any:
    from pyarrow import fs

    found = session.get_credentials()
    if found is None:
        raise InputError("no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role")
    frozen = found.get_frozen_credentials()
    where = urlsplit(endpoint) if endpoint else None
    return fs.S3FileSystem(
        access_key=frozen.access_key,
        secret_key=frozen.secret_key,
        session_token=frozen.token,
        region=client.meta.region_name or "us-east-1",
        endpoint_override=where.netloc if where else None,
        scheme=where.scheme if where else "https",
    )


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", "unknown"))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def open_store(uri: str | os.PathLike[str], s3: S3Settings | None = None) -> ObjectStore:
    """The store at "s3://bucket/prefix", "file:///path" or a plain local path. Nothing is asked of it yet."""
    text = os.fspath(uri)
    parts = urlsplit(text)
    if parts.scheme == "s3":
        if not parts.netloc:
            raise InputError(f"{text!r} names no bucket")
        return S3Store(parts.netloc, parts.path, s3 or S3Settings.from_environment())
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise InputError(f"{text!r}: a file URI has three slashes (file:///path)")
        return LocalStore(unquote(parts.path))
    if "://" in text:
        raise InputError(f"{text!r}: unknown scheme {parts.scheme!r} (use file:// or s3://)")
    if not text:
        raise InputError("the catalog's URI is empty")
    return LocalStore(text)


def open_object(root: ObjectStore, path: str) -> tuple[ObjectStore, str]:
    """The store and the path in it of an object that the log names: below the root, or a URI of its own."""
    if "://" not in path:
        return root, path
    folder, _, name = path.rpartition("/")
    other = open_store(folder, getattr(root, "settings", None))
    alike = getattr(root, "alike", None)  # a store that is paced paces others as well
    return (alike(other) if alike else other), (unquote(name) if path.startswith("file:") else name)


def copy_into(store: ObjectStore, source: str | os.PathLike[str], path: str) -> int:
    """Copy a file (local path or URI) into the store; the number of bytes copied."""
    origin, name = open_object(store, _as_uri(source))
    with origin.open(name) as reader, store.writer(path) as sink:
        shutil.copyfileobj(reader, sink, 8 << 20)
        return int(reader.tell())


def _as_uri(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    return text if "://" in text else Path(text).absolute().as_uri()
