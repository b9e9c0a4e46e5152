"""How well a table can be read: what readers fold and skip, partition by partition, against thresholds. Pure.

day=1995-04-03    3 files, 1 small    140 delta files over them    0.4 % dead rows    the oldest waits 30 h
thresholds        20 small            100                          30 %               24 h
beyond            overlap, age

Of a stream everything is in its log, of an Iceberg branch in its manifests: no data is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.wording import counted
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.sizes import sizes_of

SMALL_FILE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What is still healthy.

    small_files    so many files of a partition below `small_file_bytes`
    overlap        so many delta files over the compacted ones; delete files that may apply to one data file
    dead_share     this share of rows that readers skip
    age_s          so many seconds since the oldest delta that waits was committed
    """

    small_files: int = 20
    small_file_bytes: int = SMALL_FILE_BYTES
    overlap: int = 100
    dead_share: float = 0.3
    age_s: float = 24 * 3600.0


def thresholds_of(health: bool | Thresholds) -> Thresholds:
    """What a caller means: the defaults, or thresholds of its own. Raises InputError."""
    if health is False:
        raise InputError("plot draws the health of a table: say health=True as well")
    return Thresholds() if health is True else expect.instance("health", health, Thresholds)


@dataclass(frozen=True, slots=True)
class Health:
    """One partition. `overlap` as in Thresholds; `waiting_rows` and `age_s` (None: no delta waits) are of streams.

    file_bytes    of each data file, deltas not included
    dead_rows     in data files. Each row of a delete file of Iceberg counts for one, whatever it deletes
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
        """By name of each threshold that it exceeds, what is the matter; empty: it is healthy."""
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
    """The health of a stream. A commit from the future, by its writer's clock, has just been made."""
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
    """Those beyond a threshold: first what exceeds most of them, then what has most to skip and to fold."""
    ill = [one for one in found if one.beyond(limits)]
    return sorted(ill, key=lambda one: (len(one.beyond(limits)), one.overlap, one.dead_rows), reverse=True)
