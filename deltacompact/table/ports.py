"""The three ports between the engine and a table. A catalog implements them; the engine imports no catalog.

    snapshot = source.fetch()                     base files and deltas, as of one moment
    plan, fold, materialize                       write data, index and records to the workspace, under new names
    target.check(snapshot, session)               may the session still publish?
    target.publish(snapshot, session, result)     a new version, or a ConflictError and no visible change

To resume an interrupted session, an attempt fetches the snapshot of an earlier moment: `source.fetch(moment)`.

    path                          managed
    orders/data/5c….parquet       yes       below the root
    landing/b.csv by file://…     no        appended by reference
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from deltacompact.base.data_file import DataFile, LayoutAccount
from deltacompact.base.deltas import CompactedDelta, Delta, ObjectRef
from deltacompact.base.model import Partition
from deltacompact.base.numbers import ChainFileNumber
from deltacompact.base.table_keys import TableKeys
from deltacompact.storage.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """Why a partition needs no compaction."""

    reason: str


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a snapshot: the versions of source and destination, and the lengths of their histories."""

    source_version: str
    source_tail: int
    destination_version: str
    destination_tail: int


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """One partition of a table at one moment: base files, and the deltas to fold into them.

    base                the compacted files, with one live row per key; None before the first compaction
    owned               the destination owns the base files, so a session may keep them by reference
    deltas              the deltas to fold into the base, in fold order
    index               the index of the base
    watermark           the greatest stream position that is processed
    next_file_number    above every file number that the destination has used
    identity            more values (JSON) that the session id depends on
    why                 the reason to compact, in words
    cold                paths of base files that a layout does not rewrite: reading them costs a fee, or is impossible
                        now

    Delta files may lie anywhere (a full URI). Files may have dead rows already (a deletion vector).
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
    cold: frozenset[str] = frozenset()

    @property
    def delta_rows(self) -> int:
        return sum(delta.rows for delta in self.deltas)

    @property
    def bytes(self) -> int:
        return sum(delta.bytes for delta in self.deltas) + (self.base.bytes if self.base else 0)


@dataclass(frozen=True, slots=True)
class CompactionOutput:
    """A session's result, to be published: files with one live row per key, and the index that points to the rows.

    `account`: of the rows that have come, those that layouts have rewritten; None: they were never laid out.
    """

    keys: TableKeys
    files: tuple[DataFile, ...]
    index: ObjectRef
    next_file_number: ChainFileNumber
    schema: pa.Schema
    account: LayoutAccount | None = None


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """The version that a published compaction made."""

    version: str
    compacted: CompactedDelta


class SnapshotSource(Protocol):
    def fetch(self, moment: Moment | None = None) -> PartitionSnapshot | NothingToDo:
        """The current snapshot, or that of an earlier moment."""


class CommitTarget(Protocol):
    def check(self, snapshot: PartitionSnapshot, session: str) -> None:
        """Raises ConflictError if the session may not publish any more."""

    def publish(self, snapshot: PartitionSnapshot, session: str, result: CompactionOutput) -> PublishedVersion:
        """Put the whole result into force.

        Raises ConflictError if another session was faster, OutcomeUnknownError if the outcome cannot be known.
        """


@dataclass(frozen=True)
class Workspace:
    """Names the folders for the objects of sessions. They lie below `root`, a path in the ports' store.

    The workspace travels to tasks, so it is a plain value.
    """

    root: str

    def session(self, session_id: str) -> str:
        """The folder of a session's records, with a slash at its end."""
        return f"{self.root}/sessions/{session_id}/"

    def fresh(self, room: str, suffix: str, owner: str = "") -> str:
        """A new, unique path. The objects of a session, `owner`, lie in a folder of their own."""
        return f"{self.folder(room, owner)}{uuid.uuid4().hex}{suffix}"

    def folder(self, room: str, owner: str = "") -> str:
        """The folder of a room's objects, with a slash at its end."""
        return f"{self.root}/{room}/{owner}/" if owner else f"{self.root}/{room}/"


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one partition. `store` has the objects of the workspace."""

    source: SnapshotSource
    target: CommitTarget
    workspace: Workspace
    store: ObjectStore
