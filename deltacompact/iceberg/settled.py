"""What upserts have compared, remembered beside the snapshots: pure.

    5 append      through -       6 append, landed while we worked
    7 ours        upsert: all rows up to 5 have been compared, by "key 1; scope table"
    head is 7     6 added rows after 5: its files have to be compared
    head is 8     replaced files: nothing was added
    head is 9     an append, too: files with a file sequence number above 5 are new

Rows that lost stay dead, so another run by the same columns compares only what came later, with everything of the same
keys. And rows that have been compared may be merged: of each key one is left, so nobody need know which is newer.

Every snapshot of ours says so in its summary, and in a property of the table, under its own id:

    deltacompact.settled.7    {"columns": "key 1; scope table", "through": 5, "table": "8e…", "branch": "main"}

Snapshots expire, whoever expires them; the property stays. A rollback revives rows that had lost, and the property
stays then, too. So it is believed only of a branch whose history has snapshot 7:

- among the ancestors of the head, or as the parent of the last one that is left;
- or as the snapshot that added a file which is live: a delete file that marks rows, or a file that a rewrite wrote. An
  entry keeps that id for as long as the file lives, whoever expires snapshots or writes manifests anew.

Why that is true. A history is a line of snapshots, each made from the one before. A file whose entry says that 7 added
it is in a head only if 7 is in its history: other ways to a branch (append, cherry-pick, add_files) give it the id of
their own snapshot. Along a line rows die and do not revive. So what was true after 7 of all rows with a data sequence
number of at most 5, "of each key one is visible at most", is true of every head whose history has 7. Rollbacks, new
branches and replaced ones choose among histories: a head behind 7 has no file that 7 added. If the memory is lost
nevertheless, because other writers replaced every such file and expired the snapshots, all is compared again, and
until then a rewrite leaves rows alone that it does not know to have been compared.

A rewrite of rows that have been compared gives them a number that is not above `through`. So they stay older than all
rows that came since, and no property need say what is in which file.
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
"""In the same summary: by which columns, and within what a key is unique."""
SETTLED_THROUGH = "deltacompact.settled-through"
SETTLED = "deltacompact.settled"
"""The same two, in the summary of every snapshot of ours after an upsert."""
COMPARED = "deltacompact.compared-data-files"
"""In the summary of a snapshot of an upsert that found nothing to mark: how many files it compared."""
MERGED = "deltacompact.merged-sequence-numbers"
"""In the summary of a rewrite: from which commits the rows come that it merged, as far as their files say."""
RECORD = "deltacompact.settled."
"""A property of the table, and the id of a snapshot of ours: what was settled when it was committed."""
RECORDS_MAX = 50
"""The properties of the least sequence numbers go first. Without them, more is compared again."""


@dataclass(frozen=True, slots=True)
class Memory:
    """All rows with a data sequence number up to `through` have been compared by `columns`, so snapshot `said_by`."""

    columns: str
    through: int
    said_by: int = 0

    @property
    def summary(self) -> dict[str, str]:
        return {SETTLED: self.columns, SETTLED_THROUGH: str(self.through)}

    def record(self, snapshot_id: int, state: TableState) -> dict[str, str]:
        """The property that says it of a snapshot on this head."""
        table, branch = state.metadata.uuid, state.branch
        body = {"columns": self.columns, "through": self.through, "table": table, "branch": branch}
        return {f"{RECORD}{snapshot_id}": json.dumps(body)}


@dataclass(frozen=True, slots=True)
class Settled:
    """All rows of files up to this file sequence number have been compared. `snapshot_id` is the one that says so.

    No rows have come up to the sequence number `until`. `has_grown`: later ones may have come since. `is_kept`: a
    property of the table says so, of all files into which no rows came.
    """

    through: int
    snapshot_id: int
    until: int
    has_grown: bool
    is_kept: bool


def settled(state: TableState, recorded: str) -> Settled | None:
    """What upserts by these columns have settled on the branch. None: nothing is known."""
    history = _History.of(state)
    known = max((found for found in history.memories if found.columns == recorded), key=_through, default=None)
    return None if known is None else history.settled(known)


def newest(state: TableState) -> Memory | None:
    """What the newest upsert, by whatever columns, has settled on the branch; as of its head. None: nothing is known.

    A snapshot on this head, with all rows that it adds, may say the same.
    """
    return _newest(_History.of(state))


def compared_through(state: TableState) -> int | None:
    """Up to which sequence number rows may be merged. None: nobody upserts the branch, so all may be.

    0: it was upserted, and nothing of that is known any more.
    """
    history = _History.of(state)
    known = _newest(history)
    if known is not None:
        return known.through
    return 0 if any(branch == state.branch for _, branch in history.records.values()) else None


def outdated_records(metadata: TableMetadata) -> tuple[str, ...]:
    """The properties that make room for a new one."""
    records = _records(metadata)
    by_age = sorted(records, key=lambda snapshot_id: records[snapshot_id][0].through)
    return tuple(f"{RECORD}{snapshot_id}" for snapshot_id in by_age[: max(0, len(by_age) + 1 - RECORDS_MAX)])


def has_merged_commits(metadata: TableMetadata, entry: ManifestEntry) -> bool:
    """Whether the file may have rows of several commits without saying of which: it replaced others.

    Its file sequence number is greater than that of its rows, or the snapshot that added it removed data files. In
    version 3 each row has the number of its own commit, unless files were merged before the table was upgraded.
    """
    adding = metadata.snapshots.get(entry.snapshot_id or 0)
    if entry.file.first_row_id is not None and (adding is None or adding.first_row_id is not None):
        return False
    if entry.file_sequence_number is not None and entry.file_sequence_number > entry.sequence:
        return True
    return adding is not None and int(adding.summary.get("deleted-data-files", "0")) > 0


def merged_numbers(entries: Iterable[ManifestEntry]) -> Mapping[str, str]:
    """What a rewrite says of its inputs in its summary: the least and the greatest number of their rows."""
    numbers = [entry.sequence for entry in entries]
    return {MERGED: f"{min(numbers)}-{max(numbers)}"} if numbers else {}


@dataclass(frozen=True, slots=True)
class _History:
    """The history of a head: its snapshots that are left, the newest first, and what the table's properties say."""

    state: TableState
    line: tuple[Snapshot, ...]
    records: Mapping[int, tuple[Memory, str]]
    memories: tuple[Memory, ...]
    """What snapshots in the history say: see above."""

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
    """What a snapshot says in its summary."""
    summary = snapshot.summary
    for columns, through in ((SETTLED, SETTLED_THROUGH), (COLUMNS, THROUGH)):
        if columns in summary and summary.get(through, "").isdecimal():
            return Memory(summary[columns], int(summary[through]), snapshot.snapshot_id)
    return None


def _records(metadata: TableMetadata) -> dict[int, tuple[Memory, str]]:
    """What the table's properties say of snapshots, and of which branch. Those of a copied table do not count."""
    found = {}
    for name, value in metadata.properties.items():
        number = name.removeprefix(RECORD)
        if name.startswith(RECORD) and number.isdecimal():
            parsed = _parsed(value, int(number), metadata.uuid)
            if parsed is not None:
                found[int(number)] = parsed
    return found


def _parsed(value: str, snapshot_id: int, uuid: str) -> tuple[Memory, str] | None:
    try:
        body = json.loads(value)
        columns, through, table = str(body["columns"]), int(body["through"]), body["table"]
        branch = str(body["branch"])
    except (ValueError, KeyError, TypeError):
        return None  # then more is compared again
    return (Memory(columns, through, snapshot_id), branch) if table == uuid else None


def _through(memory: Memory) -> int:
    return memory.through


def _may_add_rows(snapshot: Snapshot) -> bool:
    """Whether rows may have come with the snapshot. Our own modes say what they add."""
    if snapshot.summary.get("operation") in ("replace", "delete"):
        return False
    return not snapshot.is_ours or int(snapshot.summary.get("added-data-files", "0")) > 0
