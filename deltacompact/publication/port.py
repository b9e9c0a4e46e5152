"""The protocol of a target of publications, which is an Iceberg or a Delta table.

    target = target_of("delta:///exports/orders")
    table = target.open(source)           refuses a table that is not ours
    table.columns                         the table's columns; None: the table does not exist yet
    table.prepare(columns, stored)        gives it these columns
    table.show(wanted)                    one commit: adds missing files, removes superfluous ones

`wanted` reads the streams. A table calls it after it has read its own head, and commits on that head only. So no commit
shows an older version than an earlier one did.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import InputError
from deltacompact.delta_streams.paths import stream_root_of
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.published_types import PublishedTypes

Value = str | int | bool | datetime.date | None
"""A partition's value in the type of its column."""
WantedFiles: TypeAlias = "Mapping[str, ShownFile]"
"""By location."""


@dataclass(frozen=True, slots=True)
class Source:
    """The delta table whose rows are shown. `where`: the location of its catalog; `root`: the table's folder there.

    `now_s`: the time of the run, in seconds.
    """

    store: ObjectStore
    where: str
    root: str
    keys: tuple[str, ...]
    now_s: float

    @property
    def shows(self) -> str:
        """Identifies the delta table, in a property of the table that shows it."""
        return f"{self.where}{self.root}"

    def stream_of(self, location: str) -> str | None:
        """The folder of the stream that a data file belongs to. None: it is not a file of this catalog."""
        below = location.removeprefix(self.where)
        return stream_root_of(below) if location.startswith(self.where) else None


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file of a version, its location for readers of the table, and the values of its partition."""

    location: str
    file: DataFile
    partition: tuple[Value, ...]

    @property
    def dead_rows(self) -> str | None:
        """Identifies the deletion vector of the file. None: all its rows live."""
        if (deletions := self.file.deletions) is None:
            return None
        text = f"{self.location}\n{deletions.masks_path}\n{deletions.ordinal}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class FilesToShow:
    """The files that the table must show.

    streams            by stream folder, the files by location
    versions           by stream folder, the number of the version with these files
    deltas_left_out    the number of deltas that are not compacted yet
    known              lists the folders of all streams that the delta table has, for streams that are not wanted
    """

    streams: Mapping[str, WantedFiles]
    versions: Mapping[str, int]
    deltas_left_out: int
    known: Callable[[], frozenset[str]]

    def of(self, stream: str) -> WantedFiles | None:
        """The wanted files of a stream. None: what is shown of it stays.

        Nothing is wanted of a stream that the table does not have: a dropped table of its name was published there.
        """
        if stream in self.streams:
            return self.streams[stream]
        return None if stream in self.known() else {}

    @property
    def files(self) -> tuple[ShownFile, ...]:
        return tuple(file for files in self.streams.values() for file in files.values())


@dataclass(frozen=True, slots=True)
class ShownCommit:
    """The changes of a commit. `snapshot`: the snapshot's id, or the version of the table. None: no commit."""

    snapshot: int | None
    files_added: int
    files_removed: int
    dead_row_files_added: int
    deltas_left_out: int


class PublishedTable(Protocol):
    """The table of a target, as one run has found it."""

    @property
    def columns(self) -> pa.Schema | None:
        """The table's columns. None: it does not exist. Raises InputError for a table that cannot be ours."""

    @property
    def shows_nothing(self) -> bool:
        """Whether it has no commit yet: it is new, or somebody dropped it."""

    def prepare(self, columns: pa.Schema, stored: Iterable[pa.Schema]) -> None:
        """Give the table all these columns, at the latest with the next commit. `stored`: as files have them."""

    def check(self, files: Sequence[ShownFile]) -> None:
        """Raise SchemaError for files that readers of the table would misread."""

    def show(self, wanted: Callable[[], FilesToShow]) -> ShownCommit:
        """Make one commit with the difference. Raises InputError if other writers have put files into the table."""


class PublicationTarget(Protocol):
    """Where a table is published. As text it is the URI that was declared."""

    @property
    def kind(self) -> str:
        """The name of its format, for people."""

    @property
    def types(self) -> PublishedTypes:
        """The types that it has for compacted rows."""

    def open(self, source: Source) -> PublishedTable: ...

    def held_files(self, store: ObjectStore, old_s: float, dry_run: bool) -> frozenset[str]:
        """The names of the data files that readers of the table may still need.

        `store` is the catalog's. Files that the table stopped showing before `old_s` (seconds) are not needed; without
        `dry_run`, their traces in the table are deleted. Raises InputError if the table does not exist: then nobody
        knows what may be deleted.
        """


def foreign(table: str, path: str) -> InputError:
    """The error for a table into which another writer has put a file."""
    return InputError(
        f"{table} has files of others ({path}): a publication needs a table of its own, to which nobody else writes"
    )


def shows_another(table: str, shows: str, source: Source) -> InputError:
    """The error for a table that shows another delta table, or this one where it was before it was copied or moved."""
    return InputError(
        f"{table} shows {shows}, not {source.shows}: a publication needs a table of its own: name another one (of a "
        "catalog that was copied or moved: after publish --stop)"
    )
