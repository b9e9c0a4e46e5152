"""Finds the store and the object that a path or URI names.

s3://lake/tables              S3Store(lake, tables)
orders/data/5c….parquet       the same store, below its root
~/lake                        the folder in the user's home, as a shell has it
s3://other/b/a.parquet        the store of the whole bucket `other`, opened once in a process; b/a.parquet in it
s3://other/b//a.parquet       another object, b//a.parquet: only the prefix of a store loses slashes at its ends
file:///exports/a.parquet     the store of the folder /exports; a.parquet in it
"""

from __future__ import annotations

import functools
import os
import shutil
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from deltacompact.base.errors import InputError
from deltacompact.base.wording import text_of
from deltacompact.storage.fetched_file import announce
from deltacompact.storage.identity import absolute, is_uri
from deltacompact.storage.local import ForeignFolder, LocalStore
from deltacompact.storage.objects import ObjectStore

if TYPE_CHECKING:
    from deltacompact.storage.s3_access import S3Settings

_S3 = "s3://"
_SHOWN_CHARACTERS_MAX = 60
_CUTTING = frozenset("?#\t\r\n")
"""What ends the path of a URI, or is left out of it."""


def open_store(uri: str | os.PathLike[str], s3: S3Settings | None = None) -> ObjectStore:
    """The store at "s3://bucket/prefix", "file:///path" or a plain local path. Opening sends no request."""
    text = os.fspath(uri)
    parts = uri_parts(text)
    if parts.scheme == "s3":
        bucket, _, prefix = text.partition("://")[2].partition("/")  # a key may have ? and #, which end a URL's path
        if not bucket or bucket != parts.netloc:
            raise InputError(f"{text!r} names no bucket")
        from deltacompact.storage.s3 import S3Store
        from deltacompact.storage.s3_access import S3Settings

        return S3Store(bucket, prefix, s3 or S3Settings.from_environment())
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise InputError(f"{text!r}: a file URI has three slashes (file:///path)")
        if not _CUTTING.isdisjoint(text):
            raise InputError(f"{text!r}: write ? as %3F in a file URI, # as %23, and control characters encoded, too")
        return LocalStore(unquote(parts.path, errors="surrogateescape"))
    if is_uri(text):
        raise InputError(f"{text!r}: unknown scheme {parts.scheme!r} (use file:// or s3://)")
    if parts.scheme == "iceberg":
        raise InputError(f"{text!r}: an Iceberg catalog is written iceberg://NAME")
    if not text:
        raise InputError("the catalog's URI is empty")
    return LocalStore(os.path.expanduser(text))


def uri_parts(text: str) -> SplitResult:
    """The parts of a URI. Raises InputError for a text that is no URI, like "s3://[x/t" with its open bracket."""
    try:
        return urlsplit(text)
    except ValueError as error:
        raise InputError(f"{text[:_SHOWN_CHARACTERS_MAX]!r} is no URI: {text_of(error)}") from None


def open_object(root: ObjectStore, path: str) -> tuple[ObjectStore, str]:
    """The store of an object, and the object's path in it. A full URI may lead to another store than the root.

    Another bucket is opened with the settings and credentials of the root, if the root is on S3.
    """
    if not is_uri(path):
        return root, path
    store, name = _bucket(root, path) if as_uri(path).startswith(_S3) else _folder(path)
    alike = getattr(root, "alike", None)  # a throttled root throttles the other stores of its process too
    return (alike(store) if alike else store), name


def _bucket(root: ObjectStore, uri: str) -> tuple[ObjectStore, str]:
    bucket, _, key = uri[len(_S3) :].partition("/")
    if not bucket:
        raise InputError(f"{uri!r} names no bucket")
    from deltacompact.storage.s3 import whole_bucket

    return whole_bucket(bucket, getattr(root, "access", None)), key


def _folder(uri: str) -> tuple[ObjectStore, str]:
    folder, _, name = uri.rpartition("/")
    if uri.startswith("file:"):
        name = unquote(name, errors="surrogateescape")
    return _foreign_folder(f"{folder}/"), name


@functools.lru_cache(maxsize=1024)
def _foreign_folder(uri: str) -> ObjectStore:
    store = open_store(uri)
    return ForeignFolder(store.root) if isinstance(store, LocalStore) else store


def copy_into(store: ObjectStore, source: str | os.PathLike[str], path: str) -> int:
    """Copy a file (local path or URI) into the store. Returns the number of bytes."""
    origin, name = open_object(store, as_uri(source))
    with origin.open(name) as reader, store.writer(path) as sink:
        announce(reader)
        shutil.copyfileobj(reader, sink, 8 << 20)
        return int(reader.tell())


def as_uri(path: str | os.PathLike[str]) -> str:
    """The URI of a local path. A URI is returned unchanged; file:/path, as Spark writes it, is file:///path, and S3://
    is s3://."""
    text = os.fspath(path)
    if text[: len(_S3)].lower() == _S3:
        return _S3 + text[len(_S3) :]
    if text.startswith("file:/") and not is_uri(text):
        return f"file://{text.removeprefix('file:')}"
    return text if is_uri(text) else absolute(text).as_uri()
