"""One generation of a key index: a small JSON document that names runs, their files, and the data files in them.

    metadata/deltacompact-index/5c…/00000000000000000007.json
    {"format": 1, "kind": "deltacompact key index", "sha256": "…", "index": {"table": "…", "terms": "…",
     "runs": [{"data": [["s3://lake/a.parquet", 2, 811, "9f…"]],
               "files": [["run-77….arrow", 2, 530, [3735928559], [1088…]]], "encoding": {…}}]}}

The names of files have no folders, so a document can only name files of its own index.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from deltacompact.base.errors import DeltaCompactError
from deltacompact.iceberg.key_index.order import Order
from deltacompact.iceberg.key_index.terms import Terms
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.index.index_files import IndexFile
from deltacompact.index.keys import ENCODING_VERSION
from deltacompact.index.primary_key_index import encoding_document, encoding_of_document
from deltacompact.storage.checksummed import is_whole, with_checksum
from deltacompact.storage.numbered import numbered_path

FORMAT = 1
KIND = "deltacompact key index"
_RUN_FILE = re.compile(r"run-[0-9a-f]{32}-\d+\.arrow")


class IndexUnusableError(DeltaCompactError):
    """An index cannot be used: its objects are missing, damaged or of another version. Read the data files instead."""


class UnknownFormatError(IndexUnusableError):
    """A newer version of deltacompact wrote the index: it is left alone."""


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What identifies a data file to an index: if any of these differ, it is another file."""

    path: str
    rows: int
    bytes: int
    partition: str

    @classmethod
    def of(cls, entry: ManifestEntry) -> FileIdentity:
        file = entry.file
        partition = hashlib.sha256(repr((file.spec_id, file.partition)).encode()).hexdigest()[:16]
        return cls(file.path, file.rows, file.file_bytes, partition)


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file of entries in the order of digests, in blocks. `fences` has the prefix of each block's first digest."""

    file: IndexFile
    fences: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IndexRun:
    """Entries of some data files, in `files` that follow each other in the order of digests. An entry names its data
    file by its place in `data`."""

    data: tuple[FileIdentity, ...]
    files: tuple[RunFile, ...]
    order: Order

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.data)


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """An index as one session sees it. Generation 0: the index does not exist yet. `runs`: the oldest first."""

    terms: Terms
    generation: int
    runs: tuple[IndexRun, ...] = ()
    written_s: float = 0.0
    """When it was written, by the clock of the store."""

    @property
    def data(self) -> Iterator[FileIdentity]:
        for run in self.runs:
            yield from run.data

    @property
    def names(self) -> frozenset[str]:
        """The paths of its files."""
        return frozenset(member.file.path for run in self.runs for member in run.files)

    def emptied(self) -> KeyIndex:
        """The index without its runs, because they are damaged: the next generation reads all files again."""
        return replace(self, runs=())

    @property
    def path(self) -> str:
        return numbered_path(self.terms.folder, self.generation)

    def to_bytes(self) -> bytes:
        folder = self.terms.folder
        runs = [
            {
                "data": [(file.path, file.rows, file.bytes, file.partition) for file in run.data],
                "files": [
                    (
                        member.file.path.removeprefix(folder),
                        member.file.rows,
                        member.file.bytes,
                        member.file.crc32s,
                        member.fences,
                    )
                    for member in run.files
                ],
                "encoding": encoding_document(run.order.encoding),
                "has_sequence": run.order.has_sequence,
            }
            for run in self.runs
        ]
        body = {"table": self.terms.table_uuid, "terms": self.terms.words, "runs": runs}
        return json.dumps(with_checksum("index", body, format=FORMAT, kind=KIND)).encode()


def index_of(data: bytes, terms: Terms, generation: int, written_s: float) -> KeyIndex:
    """The index of a document. Raises IndexUnusableError for one that is damaged or of another table."""
    path = numbered_path(terms.folder, generation)
    body = _body(data, path)
    if (body.get("table"), body.get("terms")) != (terms.table_uuid, terms.words):
        raise IndexUnusableError(f"{path} belongs to another table, or to other columns")
    try:
        runs = tuple(_run(run, terms.folder, path) for run in body["runs"])
        files = [file for run in runs for file in run.data]
        if len(files) != len(set(files)):
            raise ValueError("it has a data file twice")
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, pa.ArrowException) as error:
        raise IndexUnusableError(f"{path} is damaged: {error!r}") from error
    return KeyIndex(terms, generation, runs, written_s)


def names_in(data: bytes, folder: str, path: str) -> frozenset[str]:
    """The paths of the files that a document names. Raises IndexUnusableError."""
    try:
        return frozenset(_path(name, folder) for run in _body(data, path)["runs"] for name, *_ in run["files"])
    except (KeyError, TypeError, ValueError) as error:
        raise IndexUnusableError(f"{path} is damaged: {error!r}") from error


def _body(data: bytes, path: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
        format_, kind = document["format"], document["kind"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise IndexUnusableError(f"{path} is damaged: it is no document of ours") from error
    if kind == KIND and isinstance(format_, int) and format_ > FORMAT:
        raise UnknownFormatError(f"{path} has format {format_}, this deltacompact knows up to {FORMAT}")
    body = document.get("index")
    if kind != KIND or format_ != FORMAT or not isinstance(body, dict) or not is_whole(document, "index"):
        raise IndexUnusableError(f"{path} is damaged: its SHA-256 differs")
    return body


def _run(run: dict[str, Any], folder: str, path: str) -> IndexRun:
    if run["encoding"]["encoding_version"] > ENCODING_VERSION:
        raise UnknownFormatError(f"{path} has a newer key encoding")
    data = tuple(FileIdentity(*file) for file in run["data"])
    files = tuple(
        RunFile(IndexFile(_path(name, folder), rows, size, tuple(crc32s)), tuple(fences))
        for name, rows, size, crc32s, fences in run["files"]
    )
    numbers = [
        number
        for member in files
        for number in (member.file.rows, member.file.bytes, *member.file.crc32s, *member.fences)
    ]
    if not all(isinstance(number, int) and 0 <= number < 1 << 64 for number in numbers):
        raise ValueError("a count is no whole number")
    found = IndexRun(data, files, Order(encoding_of_document(run["encoding"]), bool(run["has_sequence"])))
    if found.rows != sum(member.file.rows for member in files):
        raise ValueError("its files do not have all rows")
    if any(len(member.fences) != len(member.file.crc32s) for member in files):
        raise ValueError("blocks are missing")
    return found


def _path(name: str, folder: str) -> str:
    if not _RUN_FILE.fullmatch(name):
        raise ValueError(f"{name!r} is no file of an index")
    return folder + name
