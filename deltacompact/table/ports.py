"""The three ports between the engine and a table. A catalog implements them; the engine imports no catalog.

    snapshot = source.fetch()                     what is folded into what, as of one moment
    plan, fold, materialize                       data, index and records go to the workspace, under names used once
    target.check(snapshot, session)               is the session still in the right?
    target.publish(snapshot, session, result)     a new version, or a ConflictError and no visible trace

An attempt that was interrupted asks for the snapshot of an earlier moment: `source.fetch(moment)`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from deltacompact.base.model import CompactedDelta, DataFile, Delta, ObjectRef, Partition, TableKeys
from deltacompact.storage.objects import ObjectStore


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
    """

    source_table_id: str
    destination_table_id: str
    partition: Partition
    base: CompactedDelta | None
    owned: bool
    deltas: tuple[Delta, ...]
    index: ObjectRef | None
    watermark: int
    next_file_number: int
    moment: Moment
    identity: Mapping[str, Any]
    why: str

    @property
    def delta_rows(self) -> int:
        return sum(delta.rows for delta in self.deltas)

    @property
    def bytes(self) -> int:
        return sum(delta.bytes for delta in self.deltas) + (self.base.bytes if self.base else 0)


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a session hands over to be published: files with one live row per key, and the index of every one."""

    keys: TableKeys
    files: tuple[DataFile, ...]
    index: ObjectRef
    next_file_number: int
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
    """Where the objects of sessions go: folders below `root`, which is a path in the store.

    It travels to tasks, so it is a plain value.
    """

    root: str

    def session(self, session_id: str) -> str:
        """The folder of a session's records, with a slash at its end."""
        return f"{self.root}/sessions/{session_id}/"

    def fresh(self, room: str, suffix: str, owner: str = "") -> str:
        """A path that nobody has used and nobody else will; a session's objects lie in a folder of its own."""
        folder = f"{room}/{owner}" if owner else room
        return f"{self.root}/{folder}/{uuid.uuid4().hex}{suffix}"


@dataclass(frozen=True, slots=True)
class Ports:
    """One partition, as the engine is handed it."""

    source: SnapshotSource
    target: CommitTarget
    workspace: Workspace
    store: ObjectStore
