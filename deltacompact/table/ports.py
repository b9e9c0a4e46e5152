"""The three ports between the engine and a table. A catalog implements them; the engine imports no catalog.

    snapshot = source.fetch()                     what is folded into what, as of one moment
    plan, fold, materialize                       data, index and records go to the workspace, under names used once
    target.check(snapshot, session)               is the session still in the right?
    target.publish(snapshot, session, result)     a new version, or a ConflictError and no visible trace

An attempt that was interrupted asks for the snapshot of an earlier moment: `source.fetch(moment)`.

    path                          managed   matched by     dead rows of its own
    orders/data/5c….parquet       yes       name           no           delta streams
    landing/b.csv by file://…     no        name           no           the same, appended by reference
    s3://lake/t/data/a.parquet    yes       field id       yes          another table format
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from deltacompact.base.model import CompactedDelta, DataFile, Delta, ObjectRef, Partition, TableKeys
from deltacompact.base.numbers import ChainFileNumber
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import field_ids


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """Why a partition needs no compaction."""

    reason: str


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a snapshot is in time: versions of source and destination, and how long their histories were."""

    source_version: str
    source_tail: int
    destination_version: str
    destination_tail: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is folded into what: one partition of a table at one moment.

    base                the compacted files, with one live row per key; None before the first compaction
    owned               the base files belong to the destination, so that they may be kept by reference
    deltas              what is folded into them, in fold order
    index               where the index of the base is
    watermark           the greatest stream position that is processed
    next_file_number    above every file number that the destination has used
    identity            what else makes a session on this snapshot this one and no other (JSON values)
    why                 the reason to compact, in words
    columns             the table's columns, each with its field id (`PARQUET:field_id`), at any depth: those of files
                        are then matched by field id. None: by name, and the table has the union of all

    Files may lie anywhere (a full URI), and may have dead rows already (a deletion vector), deltas as well as the base.
    """

    source_table_id: str
    destination_table_id: str
    partition: Partition
    base: CompactedDelta | None
    owned: bool
    deltas: tuple[Delta, ...]
    index: ObjectRef | None
    watermark: int
    next_file_number: ChainFileNumber
    moment: Moment
    identity: Mapping[str, Any]
    why: str
    columns: pa.Schema | None = None

    def __post_init__(self) -> None:
        """Whoever looks at a file sees the table's names."""
        if (columns := self.columns) is None:
            return
        deltas = [replace(delta, files=_matched(delta.files, columns)) for delta in self.deltas]
        object.__setattr__(self, "deltas", tuple(deltas))
        if self.base is not None:
            object.__setattr__(self, "base", replace(self.base, files=_matched(self.base.files, columns)))

    @property
    def delta_rows(self) -> int:
        return sum(delta.rows for delta in self.deltas)

    @property
    def bytes(self) -> int:
        return sum(delta.bytes for delta in self.deltas) + (self.base.bytes if self.base else 0)


def _matched(files: Sequence[DataFile], columns: pa.Schema) -> tuple[DataFile, ...]:
    return tuple(field_ids.matched(file, columns) for file in files)


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a session hands over to be published: files with one live row per key, and the index of every one."""

    keys: TableKeys
    files: tuple[DataFile, ...]
    index: ObjectRef
    next_file_number: ChainFileNumber
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """The version that a compaction is in force as."""

    version: str
    compacted: CompactedDelta


class SnapshotSource(Protocol):
    def fetch(self, moment: Moment | None = None) -> Snapshot | NothingToDo:
        """What is to be folded now, or what was to be folded at an earlier moment."""


class CommitTarget(Protocol):
    def check(self, snapshot: Snapshot, session: str) -> None:
        """Raises ConflictError where the session may not publish any more."""

    def publish(self, snapshot: Snapshot, session: str, result: Compaction) -> PublishedVersion:
        """Put the result into force, whole.

        Raises ConflictError where somebody else was faster, OutcomeUnknownError where nobody can say.
        """


@dataclass(frozen=True)
class Workspace:
    """Where the objects of sessions go: folders below `root`, which is a path in the ports' store.

    Data files go to `data` where that is given, a path in the store or a full URI; else below the root as well. It
    travels to tasks, so it is a plain value.
    """

    root: str
    data: str = ""

    def session(self, session_id: str) -> str:
        """The folder of a session's records, with a slash at its end."""
        return f"{self.root}/sessions/{session_id}/"

    def fresh(self, room: str, suffix: str, owner: str = "") -> str:
        """A path that nobody has used and nobody else will; a session's objects lie in a folder of its own."""
        return f"{self.folder(room, owner)}{uuid.uuid4().hex}{suffix}"

    def folder(self, room: str, owner: str = "") -> str:
        """The folder of such objects, with a slash at its end."""
        folder = self.data if room == "data" and self.data else f"{self.root}/{room}"
        return f"{folder}/{owner}/" if owner else f"{folder}/"


@dataclass(frozen=True, slots=True)
class Ports:
    """One partition, as the engine is handed it. `store` is the workspace's: records and index lie there.

    So do data files and live bitmaps that have a path in it; those that have a full URI are read where they are.
    """

    source: SnapshotSource
    target: CommitTarget
    workspace: Workspace
    store: ObjectStore
