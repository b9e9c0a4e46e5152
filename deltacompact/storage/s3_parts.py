"""A multipart upload to S3: the target of an `Upload`.

Each part carries a CRC-32, which the kernels compute and S3 checks. So parts are not signed: a signature would cost the
CPU of a SHA-256 for a second check of the same bytes. Some stores refuse checksums: for them, users set
AWS_REQUEST_CHECKSUM_CALCULATION=when_required, and parts are signed. MinIO refuses to copy into an upload that began
with checksums: the first copy of a process finds that out, and later uploads begin without them.
"""

from __future__ import annotations

import base64
import contextlib
import io
import logging
from typing import Any, Protocol

from deltacompact import _kernels
from deltacompact.base.errors import DeltaCompactError
from deltacompact.storage.objects import ObjectStat, ObjectStore
from deltacompact.storage.s3_access import Access
from deltacompact.storage.upload import CopyRefused

_LOG = logging.getLogger("deltacompact")

_REFUSALS = ("InvalidArgument", "InvalidRequest", "MethodNotAllowed", "NotImplemented")
_COPIES: dict[tuple[str, bool], bool] = {}
"""By endpoint and "with checksums": whether the store copies into such uploads. Absent: not tried yet."""

Part = dict[str, Any]
"""A part, in the form that CompleteMultipartUpload takes."""


class Bucket(Protocol):
    """The parts of an `S3Store` that an upload needs."""

    bucket: str
    prefix: str

    @property
    def access(self) -> Access: ...
    @property
    def client(self) -> Any: ...
    @property
    def encryption(self) -> dict[str, str]: ...
    def put(self, path: str, data: bytes) -> None: ...
    def stat(self, path: str) -> ObjectStat: ...
    def asking(self, path: str, uri: str | None = None) -> contextlib.AbstractContextManager[None]: ...


class S3Parts:
    """The multipart upload of one object."""

    def __init__(self, store: Bucket, path: str) -> None:
        self._store = store
        self._path = path
        self._named = {"Bucket": store.bucket, "Key": store.prefix + path}
        self._endpoint = str(self._client.meta.endpoint_url)
        self._checked = has_checksums(self._client) and _COPIES.get((self._endpoint, True), True)

    def put(self, data: memoryview) -> None:
        self._store.put(self._path, bytes(data))

    def begin(self) -> str:
        checked = {"ChecksumAlgorithm": "CRC32"} if self._checked else {}
        with self._store.asking(self._path):
            begun = self._client.create_multipart_upload(**self._named, **checked, **self._store.encryption)
        return str(begun["UploadId"])

    def send(self, upload: str, number: int, data: memoryview) -> Part:
        crc = {"ChecksumCRC32": base64.b64encode(_kernels.crc32(data).to_bytes(4, "big")).decode()}
        named = {**self._named, "UploadId": upload, "PartNumber": number}
        with self._store.asking(self._path):
            sent = self._client.upload_part(**named, Body=_Body(data), **(crc if has_checksums(self._client) else {}))
        return {"PartNumber": number, "ETag": sent["ETag"], **(crc if self._checked else {})}

    def source(self, store: ObjectStore, path: str) -> dict[str, str] | None:
        """The object as a copy names its source. None: its store has other settings or credentials, or cannot copy."""
        if getattr(store, "access", None) != self._store.access:
            return None
        if not _COPIES.get((self._endpoint, self._checked), True):
            return None
        return {"Bucket": store.bucket, "Key": store.prefix + path}  # type: ignore[attr-defined]

    def copy(self, upload: str, number: int, source: dict[str, str], start: int, length: int) -> Part:
        wanted = f"bytes={start}-{start + length - 1}"
        from botocore.exceptions import ClientError

        with self._store.asking(self._path, f"s3://{source['Bucket']}/{source['Key']}"):
            try:
                copied = self._client.upload_part_copy(
                    **self._named, UploadId=upload, PartNumber=number, CopySource=source, CopySourceRange=wanted
                )["CopyPartResult"]
            except ClientError as error:
                if self.surely_copies() or error.response["Error"]["Code"] not in _REFUSALS:
                    raise
                _COPIES[self._endpoint, self._checked] = False
                raise CopyRefused from error
        _COPIES[self._endpoint, self._checked] = True
        checksum = {name: copied[name] for name in ("ChecksumCRC32",) if name in copied}
        return {"PartNumber": number, "ETag": copied["ETag"], **checksum}

    def surely_copies(self) -> bool:
        return _COPIES.get((self._endpoint, self._checked), False)

    def complete(self, upload: str, parts: list[Part]) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        with self._store.asking(self._path):
            try:
                self._client.complete_multipart_upload(**self._named, UploadId=upload, MultipartUpload={"Parts": parts})
            except (ClientError, BotoCoreError):
                if not self._is_there(parts):
                    raise

    def abort(self, upload: str) -> None:
        try:
            with self._store.asking(self._path), contextlib.suppress(self._client.exceptions.NoSuchUpload):
                self._client.abort_multipart_upload(**self._named, UploadId=upload)
        except DeltaCompactError as error:
            _LOG.warning("an upload could not be aborted, a vacuum will discard it: %s", error)

    def _is_there(self, parts: list[Part]) -> bool:
        """Whether the upload was completed although the answer was lost. No other writer uses this path."""
        try:
            etag = self._store.stat(self._path).etag
        except DeltaCompactError:
            return False
        return etag is not None and etag.endswith(f"-{len(parts)}")

    @property
    def _client(self) -> Any:
        return self._store.client


def has_checksums(client: Any) -> bool:
    """Whether parts carry checksums, by AWS's configuration."""
    return bool(client.meta.config.request_checksum_calculation != "when_required")


class _Body(io.RawIOBase):
    """A part that boto3 reads in one piece. It would copy `bytes`, and send them in pieces of 16 KiB."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def __len__(self) -> int:
        return len(self._data)

    def read(self, size: int = -1) -> memoryview:
        rest = self._data[self._at :]
        self._at = len(self._data)
        return rest

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, len(self._data))[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
