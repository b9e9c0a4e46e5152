"""The workbench that the parts of one session share: the plan, the executor, the stores and the records."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from deltacompact.base.deltas import ObjectRef
from deltacompact.base.errors import ConflictError, CorruptionError, NotFoundError
from deltacompact.executors.executor import Executor, Handle
from deltacompact.index.primary_key_index import IndexManifest, read_manifest, write_manifest
from deltacompact.planning.plan import CompactionPlan
from deltacompact.session.records import SessionRecords, UnresumableError
from deltacompact.session.stages import Stages
from deltacompact.storage.objects import ObjectStore
from deltacompact.table.ports import CommitTarget, PartitionSnapshot, Workspace


@dataclass(frozen=True, slots=True)
class Workbench:
    """The workbench of one session. `paced` is the store for tasks: it keeps to the rate limits of the settings.

    `on_their_way`: paths of this attempt's exchange files, which nobody needs once the session is in force.
    """

    session_id: str
    plan: CompactionPlan
    executor: Executor
    stages: Stages
    records: SessionRecords
    target: CommitTarget
    workspace: Workspace
    store: ObjectStore
    paced: ObjectStore
    on_their_way: list[str] = field(default_factory=list)
    _shared: list[Handle] = field(default_factory=list)

    def share(self, value: Any) -> Handle:
        """A value for many tasks. It is kept until the session ends."""
        self._shared.append(self.executor.share(value))
        return self._shared[-1]

    def paths(self, room: str, suffix: str) -> Callable[[], str]:
        """A function that makes paths of this session that are used once. It can be sent to tasks."""
        return functools.partial(self.workspace.fresh, room, suffix, self.session_id)

    def put_manifest(self, manifest: IndexManifest) -> ObjectRef:
        return write_manifest(self.store, self.paths("index", ".manifest.json")(), manifest)

    def own_manifest(self, ref: ObjectRef) -> IndexManifest:
        """The manifest of an index that this session wrote. Raises UnresumableError if it is gone or damaged.

        Raises ConflictError instead if the session can no longer publish.
        """
        try:
            return read_manifest(self.store, ref)
        except (NotFoundError, CorruptionError) as error:
            raise self.conflict() or UnresumableError(str(error)) from error

    def check_may_publish(self) -> None:
        """Raises ConflictError if this session can no longer publish."""
        self.target.check(self.plan.input, self.session_id)

    def conflict(self) -> ConflictError | None:
        """Why this session can no longer publish; None: it can."""
        return conflict_of(self.target, self.plan.input, self.session_id)


def conflict_of(target: CommitTarget, snapshot: PartitionSnapshot, session_id: str) -> ConflictError | None:
    """Why a session can no longer publish; None: it can."""
    try:
        target.check(snapshot, session_id)
    except ConflictError as conflict:
        return conflict
    return None
