"""What layouts did to a branch, kept in snapshots and table properties. Pure. It tells which files were laid out how:

    7 ours      session 5c…, by day*3       a, b       a snapshot says so in its summary, and
    8 ours      session 5c…, by day*3       c          a property of the table: deltacompact.laid-out.8 {"how": …}
    9 append                                d
    7 and 8 expire                          the properties still say: a, b, c were laid out together by day*3
    10 another writer replaces a by e       e counts as never laid out

Snapshots expire; the property stays. A manifest entry keeps the id of the snapshot that added its file for as long as
the file lives. So we never take another writer's file for ours, and remove a record once none of its files is left.

It also counts the bytes that came, and those that were rewritten because they overlapped, to bound rewriting over time:

    first run   all 1 GB counts as come         1 GB rewritten     deltacompact.layout-bytes.main {"came": …}
    9 append    0.1 GB came                     0.2 GB rewritten   4 x 1.1 GB - 1.2 GB: 3.2 GB are left

Files of a snapshot with operation `replace` do not count as come. Each branch has counts of its own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from deltacompact.base.data_file import LayoutAccount
from deltacompact.iceberg.table.content_files import ManifestEntry
from deltacompact.iceberg.table.metadata import SESSION, Snapshot, TableMetadata
from deltacompact.iceberg.table.table_state import TableState

RECORD = "deltacompact.laid-out."
"""The property of the table for a snapshot of ours, whose id follows."""
SPENT = "deltacompact.layout-bytes."
"""The property of the table for a branch, whose name follows."""
RECORDS_MAX = 100
"""If there are more, those with the fewest bytes go. Files without a record are laid out again."""

NOTHING_YET = (-1, -1)

Properties = dict[str, str]


@dataclass(frozen=True, slots=True)
class LayoutRun:
    """A snapshot of ours: how rows lie in its files, as its summary says, and the session that committed it.

    `branch`: the branch that it was committed to, if a property tells.
    """

    how: Mapping[str, str]
    session: str
    sequence_number: int
    timestamp_ms: int
    branch: str = ""

    @property
    def age(self) -> tuple[int, int]:
        """Greater for later ones. Version 1 has no sequence numbers: all are 0."""
        return self.sequence_number, self.timestamp_ms


def layouts_of(metadata: TableMetadata) -> dict[int, LayoutRun]:
    """The snapshots of ours that laid files out, by their ids. Expired ones are known from table properties."""
    ours = (snapshot for snapshot in metadata.snapshots.values() if snapshot.is_ours)
    return _recorded(metadata) | {snapshot.snapshot_id: _stored_run(snapshot, snapshot.summary) for snapshot in ours}


def layout_record(snapshot: Snapshot, how: Mapping[str, str], state: TableState) -> Properties:
    """The table property that records how rows lie in a snapshot's files."""
    said = _stored_run(snapshot, how)
    body = {
        "how": dict(how),
        "session": said.session,
        "sequence_number": said.sequence_number,
        "timestamp_ms": said.timestamp_ms,
        "table": state.metadata.uuid,
        "branch": state.branch,
    }
    return {f"{RECORD}{snapshot.snapshot_id}": json.dumps(body)}


@dataclass(frozen=True, slots=True)
class LayoutBytes(LayoutAccount):
    """The bytes that came to a branch, and those that layouts rewrote. All files up to `through` are counted.

    `through`: sequence number and timestamp (ms) of a snapshot.
    """

    through: tuple[int, int]


def spent_on(state: TableState) -> LayoutBytes:
    """The recorded counts of the branch; zeros if there is no record."""
    try:
        body = json.loads(state.metadata.properties[f"{SPENT}{state.branch}"])
        if body["table"] == state.metadata.uuid:
            sequence_number, timestamp_ms = body["through"]
            return LayoutBytes(int(body["came"]), int(body["rewritten"]), (int(sequence_number), int(timestamp_ms)))
    except (ValueError, KeyError, TypeError):
        pass  # without a record, all files count as new
    return LayoutBytes(0, 0, NOTHING_YET)


def came_since(state: TableState, known: LayoutBytes) -> npt.NDArray[np.bool_]:
    """For each data file: whether its rows came after `known`. Without a record, all of them did."""
    layouts, snapshots = layouts_of(state.metadata), state.metadata.snapshots

    def came(entry: ManifestEntry) -> bool:
        number = entry.snapshot_id or 0
        snapshot = snapshots.get(number)
        is_moved = number in layouts if snapshot is None else snapshot.summary.get("operation") == "replace"
        age = entry.added_at, snapshot.timestamp_ms if snapshot else 0
        return known.through == NOTHING_YET or (age > known.through and not is_moved)

    return np.array([came(entry) for entry in state.data], bool)


def spent_record(state: TableState, rewritten_bytes: int) -> Properties:
    """The property with the counts after a snapshot on this head, for which layouts rewrote `rewritten_bytes`."""
    known = spent_on(state)
    came = sum(
        entry.file.file_bytes for entry, is_new in zip(state.data, came_since(state, known), strict=True) if is_new
    )
    head = state.snapshot
    body = {
        "came": known.came + came,
        "rewritten": known.rewritten + rewritten_bytes,
        "through": [head.sequence_number, head.timestamp_ms] if head else NOTHING_YET,
        "table": state.metadata.uuid,
    }
    return {f"{SPENT}{state.branch}": json.dumps(body)}


def outdated_layouts(state: TableState) -> tuple[str, ...]:
    """The records to remove for a new one: those of snapshots without live files, then those of the fewest bytes; and
    the counts of branches that are gone.

    A snapshot that was committed to another branch may have its live files there, so its record stays.
    """
    metadata = state.metadata
    bytes_of: Counter[int] = Counter()
    for entry in state.data:
        bytes_of[entry.snapshot_id or 0] += entry.file.file_bytes
    runs, others = _recorded(metadata), metadata.refs.keys() - {state.branch}
    known = sorted(runs, key=lambda number: -bytes_of[number])
    needed = (number for number in known if bytes_of[number] or runs[number].branch in others)
    kept = list(islice(needed, RECORDS_MAX - 1))
    branches = {f"{SPENT}{name}" for name in metadata.refs.keys() | {state.branch}}
    spent = {name for name in metadata.properties if name.startswith(SPENT)} - branches
    return tuple(sorted({*(f"{RECORD}{number}" for number in set(known) - set(kept)), *spent}))


def _stored_run(snapshot: Snapshot, how: Mapping[str, str]) -> LayoutRun:
    return LayoutRun(how, snapshot.summary.get(SESSION, ""), snapshot.sequence_number, snapshot.timestamp_ms)


def _recorded(metadata: TableMetadata) -> dict[int, LayoutRun]:
    """What the table's properties record. Without its record, a snapshot's files are laid out again."""

    def run(_: int, body: dict[str, Any]) -> LayoutRun:
        how = {str(key): str(value) for key, value in body["how"].items()}
        times = int(body["sequence_number"]), int(body["timestamp_ms"])
        return LayoutRun(how, str(body["session"]), *times, str(body["branch"]))

    return metadata.recorded(RECORD, run)
