"""Expires snapshots of a table that others change: plan on the table as it is, commit, plan again if they came first.

attempt 1    snapshots 7 and 8 go        refused: somebody has tagged 8
attempt 2    snapshot 7 goes             no answer
             the table has no 7          attempt 2 took effect: only now may files of 7 be deleted
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from deltacompact.base.errors import ConflictError, OutcomeUnknownError, StoreError
from deltacompact.base.wording import text_of
from deltacompact.iceberg.commit.patience import UNANSWERED_MAX, Patience
from deltacompact.iceberg.table.metadata import Snapshot, StatisticsFile, TableMetadata
from deltacompact.iceberg.table.pyiceberg_door import CommitThrottledError, CommitUnansweredError, IcebergTable


@dataclass(frozen=True, slots=True)
class Expiry:
    """What is to expire: snapshot ids, names of branches and tags."""

    snapshots: frozenset[int]
    refs: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        return not self.snapshots and not self.refs


@dataclass(slots=True)
class ExpiredSnapshots:
    """What one or several attempts removed from a table."""

    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    statistics: dict[str, StatisticsFile] = field(default_factory=dict)
    refs: set[str] = field(default_factory=set)

    @property
    def is_empty(self) -> bool:
        return not self.snapshots and not self.refs

    def add(self, metadata: TableMetadata, expiry: Expiry) -> None:
        self.snapshots |= {number: metadata.snapshots[number] for number in expiry.snapshots}
        self.statistics |= {file.path: file for file in metadata.statistics if file.snapshot_id in expiry.snapshots}
        self.refs |= expiry.refs

    def is_gone_from(self, metadata: TableMetadata) -> bool:
        return not self.snapshots.keys() & metadata.snapshots.keys() and not self.refs & metadata.refs.keys()

    def less(self, metadata: TableMetadata) -> None:
        """Forget what the table has, after all."""
        there = metadata.snapshots
        self.snapshots = {number: snapshot for number, snapshot in self.snapshots.items() if number not in there}
        self.statistics = {path: file for path, file in self.statistics.items() if file.snapshot_id not in there}
        self.refs -= metadata.refs.keys()


def expire(
    table: IcebergTable,
    plan: Callable[[TableMetadata], Expiry],
    wait: Callable[[float], None] = time.sleep,
    before_commit: Callable[[], None] = lambda: None,
) -> tuple[IcebergTable, ExpiredSnapshots]:
    """Plan on the table as it is and commit, attempt after attempt. Returns the table afterwards, and what is gone.

    Nothing is read between a plan and its commit, because others commit meanwhile. `wait` sleeps between attempts.
    Raises ConflictError if others came first again and again, and OutcomeUnknownError if the catalog does not say what
    happened: then no file may be deleted.
    """
    expired = ExpiredSnapshots()
    patience = Patience.of(table.metadata.properties)
    table_id, unanswered, said = table.metadata.table_id, 0, ""
    for attempt in range(1, patience.attempts + 1):
        expiry = plan(table.metadata)
        if expiry.is_empty:
            expired.less(table.metadata)
            return table, expired
        before_commit()
        expired.add(table.metadata, expiry)
        try:
            after = table.expire(expiry.snapshots, expiry.refs)
            expired.less(after.metadata)
            return after, expired
        except ConflictError as error:
            said, is_lost = text_of(error), not isinstance(error, CommitThrottledError)
        except CommitUnansweredError as error:
            unanswered, said, is_lost = unanswered + 1, text_of(error), False
        wait(patience.wait_s(attempt, is_lost))
        try:
            table = table.reloaded()
        except StoreError:
            if not unanswered:
                raise
            break
        if unanswered and expired.is_gone_from(table.metadata):
            return table, expired
        if unanswered == UNANSWERED_MAX:
            break
    if unanswered:
        raise OutcomeUnknownError(
            f"{table_id}: the catalog did not say whether snapshots were expired, so no file was deleted ({said}). "
            "Run it again; remove-orphans finds what is left"
        )
    raise ConflictError(f"{table_id}: other commits came first, again and again ({said})")
