"""Up to which commit upserts have compared all rows: kept in snapshots and table properties. Pure.

    5 append      through -       6 append, landed while we worked
    7 ours        upsert: all rows up to 5 have been compared, by "key 1; scope table"
    head is 7     6 added rows after 5: its files have to be compared
    head is 8     a replace: no row was added
    head is 9     an append: files with a file sequence number above 5 have to be compared

Rows that lost stay dead, so the next upsert by the same columns compares only later rows, with all rows of their keys.
And compared rows may be merged: only one of each key is left, so it does not matter which row is newer.

Every snapshot of ours says so in its summary, and in a property of the table, under its own id:

    deltacompact.settled.7    {"columns": "key 1; scope table", "through": 5, "table": "8e…", "branch": "main"}

Snapshots expire; the property stays. But it also stays after a rollback, which revives rows that had lost. So the
property counts only for a branch whose history has snapshot 7:

- among the ancestors of the head, or as the parent of the last one that is left;
- or as the snapshot that added a file which is live: a delete file that marks rows, or a file that a rewrite wrote. An
  entry keeps that id for as long as the file lives, whoever expires snapshots or writes manifests anew.

Why that is true. A history is a line of snapshots, each made from the one before. A file whose entry says that 7 added
it is in a head only if 7 is in its history: other ways to a branch (append, cherry-pick, add_files) give it the id of
their own snapshot. Along a line rows die and do not revive. So "of the rows with a data sequence number up to 5, at
most one of each key is visible" was true after 7, and is true for every head whose history has 7. Rollbacks and new or
replaced branches choose among histories: a head before 7 has no file that 7 added. The memory is lost if other writers
replaced every such file and expired the snapshots. Then all rows are compared again. Until they are, a rewrite leaves
rows alone that may not have been compared.

A rewrite gives compared rows a sequence number of at most `through`. So they stay older than all rows that came since,
and no property need say what is in which file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile

from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.metadata import Snapshot, TableMetadata
from deltacompact.iceberg.table.table_state import TableState

THROUGH = "deltacompact.upserted-through"
"""In the summary of a snapshot with marks: the sequence number up to which all rows have been compared."""
COLUMNS = "deltacompact.upserted"
"""In the same summary: the columns that rows were compared by, and the scope in which keys are unique."""
SETTLED_THROUGH = "deltacompact.settled-through"
SETTLED = "deltacompact.settled"
"""The same columns, in the summary of every later snapshot of ours."""
COMPARED = "deltacompact.compared-data-files"
"""In the summary of an upsert that found no row to mark: how many data files it compared."""
MERGED = "deltacompact.merged-sequence-numbers"
"""In the summary of a rewrite: the least and the greatest sequence number of the rows that it merged."""
RECORD = "deltacompact.settled."
"""The property of the table for a snapshot of ours, whose id follows: what was settled when it was committed."""
RECORDS_MAX = 50
"""If there are more properties, those with the least sequence numbers go. Then more rows are compared again."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Snapshot `said_by` says: all rows with a data sequence number up to `through` have been compared by `columns`."""

    columns: str
    through: int
    said_by: int = 0

    @property
    def summary(self) -> dict[str, str]:
        return {SETTLED: self.columns, SETTLED_THROUGH: str(self.through)}

    def record(self, snapshot_id: int, state: TableState) -> dict[str, str]:
        """The table property that keeps this memory for a snapshot on this head."""
        table, branch = state.metadata.uuid, state.branch
        body = {"columns": self.columns, "through": self.through, "table": table, "branch": branch}
        return {f"{RECORD}{snapshot_id}": json.dumps(body)}


@dataclass(frozen=True, slots=True)
class Settled:
    """What is settled on a head.

    through        all rows of files up to this file sequence number have been compared
    snapshot_id    the snapshot that says so
    until          no rows came after `through` up to this sequence number
    has_grown      rows may have come after `until`
    is_kept        a table property says so, too, and covers every file up to `until`
    """

    through: int
    snapshot_id: int
    until: int
    has_grown: bool
    is_kept: bool


def settled(state: TableState, recorded: str) -> Settled | None:
    """What upserts by the columns `recorded` have settled on the branch. None: nothing is known."""
    history = _History.of(state)
    known = max((memory for memory in history.memories if memory.columns == recorded), key=_through, default=None)
    return None if known is None else history.settled(known)


def newest(state: TableState) -> Memory | None:
    """What the newest upsert has settled on the branch, whatever its columns. None: nothing is known.

    `through` reaches up to the head if no rows came since. A snapshot of ours on this head may repeat it.
    """
    return _newest(_History.of(state))


def compared_through(state: TableState) -> int | None:
    """Rows up to this sequence number may be merged. None: nobody upserts the branch, so all rows may be.

    0: the branch was upserted, but what was compared is no longer known.
    """
    history = _History.of(state)
    known = _newest(history)
    if known is not None:
        return known.through
    return 0 if any(branch == state.branch for _, branch in history.records.values()) else None


def outdated_records(metadata: TableMetadata) -> tuple[str, ...]:
    """The properties to remove so that a new one has room."""
    records = _records(metadata)
    by_age = sorted(records, key=lambda snapshot_id: records[snapshot_id][0].through)
    return tuple(f"{RECORD}{snapshot_id}" for snapshot_id in by_age[: max(0, len(by_age) + 1 - RECORDS_MAX)])


def has_merged_commits(metadata: TableMetadata, entry: ManifestEntry) -> bool:
    """Whether the file may have rows of several commits and does not say which row is of which, because it replaced
    other files.

    That shows if its file sequence number is greater than that of its rows, or if its snapshot removed data files. If
    both are unknown, it may have replaced some. In version 3 each row has the number of its own commit, unless files
    were merged before the table was upgraded.
    """
    adding = metadata.snapshots.get(entry.snapshot_id or 0)
    if entry.file.first_row_id is not None and (adding is None or adding.first_row_id is not None):
        return False
    if adding is None and entry.file_sequence_number is None:
        return True
    return entry.added_at > entry.sequence or (
        adding is not None and int(adding.summary.get("deleted-data-files", "0")) > 0
    )


def merged_numbers(entries: Iterable[ManifestEntry]) -> Mapping[str, str]:
    """The line of a rewrite's summary with the least and the greatest sequence number of its input rows."""
    numbers = [entry.sequence for entry in entries]
    return {MERGED: f"{min(numbers)}-{max(numbers)}"} if numbers else {}


@dataclass(frozen=True, slots=True)
class _History:
    """The history of a head: its unexpired snapshots, the newest first, and what the table's properties say."""

    state: TableState
    line: tuple[Snapshot, ...]
    records: Mapping[int, tuple[Memory, str]]
    memories: tuple[Memory, ...]
    """The memories of snapshots that are in the history (see the module's text)."""

    @classmethod
    def of(cls, state: TableState) -> _History:
        line, records = tuple(state.metadata.ancestors(state.snapshot)), _records(state.metadata)
        found = [memory for snapshot in line if (memory := _said(snapshot)) is not None]
        if line and records:
            history = {snapshot.snapshot_id for snapshot in line} | {line[-1].parent_id or 0}
            history.update(entry.snapshot_id or 0 for entry in (*state.data, *state.deletes))
            found += [records[snapshot_id][0] for snapshot_id in history if snapshot_id in records]
        return cls(state, line, records, tuple(found))

    def settled(self, known: Memory) -> Settled:
        through, line = known.through, self.line
        later = list(takewhile(lambda snapshot: snapshot.sequence_number > through, line))
        is_recorded = known.said_by in self.records
        if line[-1].sequence_number > through + 1:  # snapshots in between have been expired
            return Settled(through, known.said_by, through, True, is_recorded)
        growing = [snapshot.sequence_number for snapshot in later if _may_add_rows(snapshot)]
        until = min(growing) - 1 if growing else line[0].sequence_number
        covers_all = not any(through < entry.sequence <= until for entry in self.state.data)
        return Settled(through, known.said_by, until, bool(growing), is_recorded and covers_all)


def _newest(history: _History) -> Memory | None:
    known = max(history.memories, key=_through, default=None)
    return None if known is None else Memory(known.columns, history.settled(known).until, known.said_by)


def _said(snapshot: Snapshot) -> Memory | None:
    """The memory in a snapshot's summary, if there is one."""
    summary = snapshot.summary
    for columns, through in ((SETTLED, SETTLED_THROUGH), (COLUMNS, THROUGH)):
        if columns in summary and summary.get(through, "").isdecimal():
            return Memory(summary[columns], int(summary[through]), snapshot.snapshot_id)
    return None


def _records(metadata: TableMetadata) -> dict[int, tuple[Memory, str]]:
    """By snapshot id, the memories in table properties, with their branches. Without them, more rows are compared."""
    return metadata.recorded(
        RECORD, lambda number, body: (Memory(str(body["columns"]), int(body["through"]), number), str(body["branch"]))
    )


def _through(memory: Memory) -> int:
    return memory.through


def _may_add_rows(snapshot: Snapshot) -> bool:
    """Whether the snapshot may have added rows. A snapshot of ours has added none if it added no data file."""
    if snapshot.summary.get("operation") in ("replace", "delete"):
        return False
    return not snapshot.is_ours or int(snapshot.summary.get("added-data-files", "0")) > 0
