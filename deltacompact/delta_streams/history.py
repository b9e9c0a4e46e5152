"""What made each version of a stream, and when.

    0          2026-11-20 08:00    create
    1-50a3…    2026-11-20 09:10    compact     9,000 rows
    2-77b1…    2026-11-21 09:10    compact     9,500 rows
    3-c0de…    2026-11-21 10:00    rollback    9,000 rows, those of version 1

All of this comes from the logs. `versions.py` checks which versions can still be read.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Container
from dataclasses import dataclass
from datetime import datetime

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import InputError
from deltacompact.base.model import Partition
from deltacompact.base.moments import moment_at, spelled
from deltacompact.base.wording import counted
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.streams import Streams


@dataclass(frozen=True, slots=True, repr=False)
class VersionMade:
    """A version and what made it: "create", "compact", "restate", "rollback", or "retract" of a file.

    time             by the writer's clock. None: an old release did not record it, or no calendar has it
    rows, files      compacted rows and files. `…_added`, `…_removed`: compared with the version before
    deltas           deltas that came before the next version
    tokens           the tokens of their commits
    session          of the compaction. None: something else made the version
    """

    partition: Partition
    version: str
    time: datetime | None
    operation: str
    rows: int
    files: int
    deltas: int
    rows_added: int = 0
    rows_removed: int = 0
    files_added: int = 0
    files_removed: int = 0
    bytes_added: int = 0
    bytes_removed: int = 0
    session: str | None = None
    tokens: tuple[str, ...] = ()

    def __repr__(self) -> str:
        time = "" if self.time is None else f" at {spelled(self.time)}"
        return f"version {self.version} of {self.partition}: {self.operation}{time}, {counted(self.rows, 'row')}"


def history(catalog: Streams, table_id: str, partition: Partition) -> list[VersionMade]:
    """Every version of a partition, the oldest first."""
    made: list[VersionMade] = []
    before, held = None, set[bytes]()
    for state in catalog.log(table_id, partition).chain():
        made.append(_entry(partition, before, held, state))
        before = state
        held.add(_held(state))
    return made


def _made_by(before: StreamState | None, held: Container[bytes], state: StreamState) -> str:
    """`before`: the version before. `held`: what all earlier ones held."""
    if before is None:
        return "create"
    if state.opened.taken_out is not None:
        return "retract"
    if state.commits and state.commits[0].commit_id == state.opened.lineage:  # a restatement names itself
        return "restate"
    descends = before.retracted_by(state.opened.lineage) is not None
    return "compact" if descends or _held(state) not in held else "rollback"


def _held(state: StreamState) -> bytes:
    """A digest of the compacted files' paths, which are many. A rollback has those of an earlier version."""
    paths = [file.path for file in state.compacted.files] if state.compacted else []
    return hashlib.sha256("\n".join(paths).encode()).digest()


def _entry(partition: Partition, before: StreamState | None, held: Container[bytes], state: StreamState) -> VersionMade:
    time_ms, compacted, time = state.opened.time_ms, state.compacted, None
    with contextlib.suppress(InputError):
        time = moment_at(time_ms) if time_ms else None
    operation = _made_by(before, held, state)
    rows, files = (compacted.rows, len(compacted.files)) if compacted else (0, 0)
    former, now = _files(before) if before else {}, _files(state)
    added, removed = now.keys() - former.keys(), former.keys() - now.keys()
    marked = [former[path].live_rows - now[path].live_rows for path in former.keys() & now.keys()]
    known = {commit.commit_id for commit in before.commits} if before else set()
    return VersionMade(
        partition,
        state.version,
        time,
        operation,
        rows,
        files,
        len(state.deltas),
        sum(now[path].live_rows for path in added) - sum(count for count in marked if count < 0),
        sum(former[path].live_rows for path in removed) + sum(count for count in marked if count > 0),
        len(added),
        len(removed),
        sum(now[path].bytes for path in added),
        sum(former[path].bytes for path in removed),
        compacted.session_id if compacted and operation == "compact" else None,
        tuple(str(commit.token) for commit in state.commits if commit.token and commit.commit_id not in known),
    )


def _files(state: StreamState) -> dict[str, DataFile]:
    return {file.path: file for file in state.compacted.files} if state.compacted else {}
