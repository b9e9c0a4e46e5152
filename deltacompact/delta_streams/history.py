"""What made each version of a stream, and when.

    0          2026-11-20 08:00    create
    1-50a3…    2026-11-20 09:10    compact     9,000 rows
    2-77b1…    2026-11-21 09:10    compact     9,500 rows
    3-c0de…    2026-11-21 10:00    rollback    9,000 rows, those of version 1

The logs say it, and no file is looked for: `versions.py` says which of them can still be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from deltacompact.base.model import Partition
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.streams import Streams


@dataclass(frozen=True, slots=True)
class VersionMade:
    """A version and what made it: "create", "compact", "restate", "rollback", or "retract" of a file.

    `time` is by the clock of whoever made it; None: an old release did not note it. `rows` and `files` are compacted
    ones, `deltas` those that came before the next version.
    """

    partition: Partition
    version: str
    time: datetime | None
    operation: str
    rows: int
    files: int
    deltas: int


def history(catalog: Streams, table_id: str, partition: Partition) -> list[VersionMade]:
    """Every version of a partition, the oldest first."""
    chain = list(catalog.log(table_id, partition).chain())
    return [_entry(partition, state, _made_by(chain[:number], state)) for number, state in enumerate(chain)]


def _made_by(before: Sequence[StreamState], state: StreamState) -> str:
    if not before:
        return "create"
    if state.opened.taken_out is not None:
        return "retract"
    if state.commits and state.commits[0].commit_id == state.opened.lineage:  # a restatement names itself
        return "restate"
    descends = state.opened.lineage == before[-1].lineage
    return "compact" if descends or _held(state) not in map(_held, before) else "rollback"


def _held(state: StreamState) -> tuple[str, ...]:
    """The compacted files: a rollback has those of an earlier version."""
    return tuple(file.path for file in state.compacted.files) if state.compacted else ()


def _entry(partition: Partition, state: StreamState, operation: str) -> VersionMade:
    time_ms, compacted = state.opened.time_ms, state.compacted
    time = datetime.fromtimestamp(time_ms / 1000, UTC) if time_ms else None
    rows, files = (compacted.rows, len(compacted.files)) if compacted else (0, 0)
    return VersionMade(partition, state.version, time, operation, rows, files, len(state.deltas))
