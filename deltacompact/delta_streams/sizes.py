"""The sizes of a stream, from its log alone: compacted rows, dead rows, and the waiting deltas with their times.

day=1995-04-03    3 files, 9,000 rows and 40 dead ones, 2.1 MiB    compacted 2026-11-22 00:56
                  2 deltas, 300 rows, 0.1 MiB                      committed 01:10 and 02:30
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deltacompact.base.deltas import Commit, CompactedDelta, Delta
from deltacompact.delta_streams.log.state import StreamState


@dataclass(frozen=True, slots=True)
class StreamSizes:
    """Counts of compacted files and of deltas that are not compacted yet. Times are Unix seconds, by writers' clocks.

    rows, dead_rows    live rows of the compacted files, and their rows under deletion vectors
    delta_times_s      when the commit of each delta was made
    compacted_s        when the version with these compacted files was written. None: nothing is compacted yet
    """

    files: int = 0
    rows: int = 0
    dead_rows: int = 0
    bytes: int = 0
    deltas: int = 0
    delta_files: int = 0
    delta_rows: int = 0
    delta_bytes: int = 0
    delta_times_s: tuple[float, ...] = ()
    compacted_s: float | None = None

    @property
    def oldest_delta_s(self) -> float | None:
        return min(self.delta_times_s, default=None)


def sizes_of(state: StreamState) -> StreamSizes:
    """The sizes of a version, with the deltas since."""
    compacted_s = state.opened.time_ms / 1000 if state.compacted and state.opened.time_ms else None
    return sizes_of_parts(state.compacted, state.deltas, state.commits, compacted_s)


def sizes_of_parts(
    compacted: CompactedDelta | None,
    deltas: Sequence[Delta],
    commits: Iterable[Commit],
    compacted_s: float | None = None,
) -> StreamSizes:
    """The sizes of compacted files and of deltas. `commits` have the times of deltas, as far as they are known."""
    files = compacted.files if compacted else ()
    waiting = {delta.position for delta in deltas}
    times_s = [commit.time_ms / 1000 for commit in commits for delta in commit.deltas if delta.position in waiting]
    return StreamSizes(
        files=len(files),
        rows=sum(file.live_rows for file in files),
        dead_rows=sum(file.rows - file.live_rows for file in files),
        bytes=sum(file.bytes for file in files),
        deltas=len(deltas),
        delta_files=sum(len(delta.files) for delta in deltas),
        delta_rows=sum(delta.rows for delta in deltas),
        delta_bytes=sum(delta.bytes for delta in deltas),
        delta_times_s=tuple(times_s),
        compacted_s=compacted_s,
    )
