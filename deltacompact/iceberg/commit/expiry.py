"""Expires snapshots of a table that others change: plan on the table as it is, commit, plan again if they came first.

attempt 1    snapshots 7 and 8 go        refused: somebody has tagged 8
attempt 2    snapshot 7 goes             no answer
             the table has no 7          attempt 2 took effect: only now may files of 7 be deleted

Two things would take files from readers whom we do not see, so nobody expires without them: another pointer to the
table may have snapshots that ours has not (table/other_heads.py), and a REST catalog removes a new tag with its
snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from deltacompact.base.errors import ConflictError, OutcomeUnknownError, StoreError
from deltacompact.base.wording import text_of
from deltacompact.iceberg.commit.patience import UNANSWERED_MAX, Patience
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.metadata import Snapshot, StatisticsFile, TableMetadata
from deltacompact.iceberg.table.metadata_files import metadata_document
from deltacompact.iceberg.table.other_heads import snapshots_elsewhere
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
    """What one or several attempts removed from a table.

    `elsewhere`: snapshots that another pointer to the table may have. What they reach stays.
    """

    elsewhere: tuple[Snapshot, ...] = ()
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

    Raises InputError if another pointer to the table is ahead of ours, ConflictError if others came first again and
    again, or lost a new branch or tag, and OutcomeUnknownError if the catalog does not say what happened: then no file
    may be deleted.
    """
    expired = ExpiredSnapshots(snapshots_elsewhere(table, wait))
    after = _attempts(table, plan, expired, wait, before_commit)
    _refuse_lost_refs(table, after.metadata, expired)
    return after, expired


def _attempts(
    table: IcebergTable,
    plan: Callable[[TableMetadata], Expiry],
    expired: ExpiredSnapshots,
    wait: Callable[[float], None],
    before_commit: Callable[[], None],
) -> IcebergTable:
    """The table after the attempts, which say in `expired` what is gone.

    Nothing is read between a plan and its commit, because others commit meanwhile. `wait` sleeps between attempts.
    """
    patience = Patience.of(table.metadata.properties)
    table_id, unanswered, said = table.metadata.table_id, 0, ""
    for attempt in range(1, patience.attempts + 1):
        expiry = plan(table.metadata)
        if expiry.is_empty:
            expired.less(table.metadata)
            return table
        before_commit()
        expired.add(table.metadata, expiry)
        try:
            after = table.expire(expiry.snapshots, expiry.refs)
            expired.less(after.metadata)
            return after
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
            return table
        if unanswered == UNANSWERED_MAX:
            break
    if unanswered:
        raise OutcomeUnknownError(
            f"{table_id}: the catalog did not say whether snapshots were expired, so no file was deleted ({said}). "
            "Run it again; remove-orphans finds what is left"
        )
    raise ConflictError(f"{table_id}: other commits came first, again and again ({said})")


def _refuse_lost_refs(before: IcebergTable, after: TableMetadata, expired: ExpiredSnapshots) -> None:
    """Raise ConflictError if a REST catalog removed a branch or tag that came between our reading and our commit.

    The metadata files between say so. In the usual case there is none.
    """
    if expired.is_empty:
        return
    store = before.store
    for location in _since(before.metadata.metadata_location, after.metadata_log):
        refs = metadata_document(locations.fetched(store, location), location).get("refs", {})
        lost = [
            name
            for name, ref in refs.items()
            if ref["snapshot-id"] in expired.snapshots and name not in expired.refs and name not in after.refs
        ]
        if lost:
            raise ConflictError(
                f"{after.table_id}: {lost[0]!r} of snapshot {refs[lost[0]]['snapshot-id']} was made while the "
                "snapshot expired, and the catalog removed it. No file was deleted"
            )


def _since(location: str, log: tuple[str, ...]) -> tuple[str, ...]:
    """The metadata files after this one. The log may have forgotten it: then all that it has."""
    return log[log.index(location) + 1 :] if location in log else log
