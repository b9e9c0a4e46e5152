"""How well a table can be read: how much readers fold and skip in each partition, against thresholds. Pure.

day=1995-04-03    3 files, 1 small    140 delta files over them    0.4 % dead rows    the oldest waits 30 h
thresholds        20 small            100                          30 %               24 h
beyond            overlap, age

A stream's log, or an Iceberg branch's manifests, tell all of it: no data is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.thresholds import Thresholds
from deltacompact.base.wording import counted
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.sizes import sizes_of


def thresholds_of(health: bool | Thresholds) -> Thresholds:
    """What a caller means: the defaults, or thresholds of its own. Raises InputError."""
    if health is False:
        raise InputError("plot draws the health of a table: say health=True as well")
    return Thresholds() if health is True else expect.instance("health", health, Thresholds)


@dataclass(frozen=True, slots=True)
class Health:
    """The health of one partition. `overlap` as in Thresholds.

    file_bytes      the bytes of each data file, without deltas
    dead_rows       dead rows in data files; in Iceberg, the rows of delete files, divided by where they reach
    waiting_rows    rows of unfolded deltas; only for streams
    age_s           as in Thresholds, only for streams; None: no delta waits
    """

    partition: dict[str, str | None]
    file_bytes: tuple[int, ...]
    rows: int
    dead_rows: int
    overlap: int
    waiting_rows: int = 0
    age_s: float | None = None

    @property
    def dead_share(self) -> float:
        return self.dead_rows / self.rows if self.rows else 0.0

    def small_files(self, below_bytes: int) -> int:
        return sum(size < below_bytes for size in self.file_bytes)

    def beyond(self, limits: Thresholds) -> dict[str, str]:
        """The exceeded thresholds by name, each with a text for people; empty: the partition is healthy."""
        small = self.small_files(limits.small_file_bytes)
        found = {}
        if small > limits.small_files:
            found["small_files"] = f"{counted(small, 'small file')} ({limits.small_files:,})"
        if self.overlap > limits.overlap:
            found["overlap"] = f"{counted(self.overlap, 'file')} over the others ({limits.overlap:,})"
        if self.dead_share > limits.dead_share:
            found["dead_share"] = f"{100 * self.dead_share:.1f} % dead rows ({100 * limits.dead_share:g} %)"
        if self.age_s is not None and self.age_s > limits.age_s:
            hours = f"{self.age_s / 3600:,.1f} h ({limits.age_s / 3600:g} h)"
            found["age"] = f"the oldest delta waits for {hours}"
        return found


def health_of(partition: dict[str, str | None], state: StreamState, now_s: float) -> Health:
    """The health of a stream. A commit dated in the future, by its writer's clock, counts as made just now."""
    sizes = sizes_of(state)
    files = state.compacted.files if state.compacted else ()
    return Health(
        partition=partition,
        file_bytes=tuple(file.bytes for file in files),
        rows=sizes.rows + sizes.dead_rows,
        dead_rows=sizes.dead_rows,
        overlap=sizes.delta_files,
        waiting_rows=sizes.delta_rows,
        age_s=None if sizes.oldest_delta_s is None else max(0.0, now_s - sizes.oldest_delta_s),
    )


def worst_first(found: Sequence[Health], limits: Thresholds) -> list[Health]:
    """The partitions beyond a threshold: those beyond most thresholds first, then by overlap, then by dead rows."""
    ill = [partition for partition in found if partition.beyond(limits)]
    return sorted(
        ill, key=lambda partition: (len(partition.beyond(limits)), partition.overlap, partition.dead_rows), reverse=True
    )
