"""What is compacted.

narrow   10 M rows of about 60 bytes: int64 key, float64, timestamp, int32, a string of 28 characters
wide      2 M rows of about 1.1 KB: the same and 1,000 random bytes

full      80 % prior rows in random order, 20 % delta rows of which half update; nothing was compacted before
recent    prior rows compacted before, in insertion order; 1 % delta rows over the newest 2 % of them
uniform   the same, the delta rows over all
append    the same, only new keys
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

ROW_GROUP_ROWS = 128 << 10
COMPRESSION: Final = "zstd"


class Case(StrEnum):
    """How the deltas meet the table."""

    FULL = "full"
    RECENT = "recent"
    UNIFORM = "uniform"
    APPEND = "append"

    @property
    def incremental(self) -> bool:
        """Whether the prior rows were compacted before."""
        return self is not Case.FULL


@dataclass(frozen=True, slots=True)
class Configuration:
    """A table: rows in all of the full case, bytes of random payload for each row, files of prior and of new rows."""

    name: str
    rows: int
    payload_bytes: int
    prior_files: int = 8
    delta_files: int = 2

    @property
    def prior_rows(self) -> int:
        return self.rows * 4 // 5

    @property
    def full_delta_rows(self) -> int:
        return self.rows - self.prior_rows

    @property
    def incremental_delta_rows(self) -> int:
        """1 % of the table that was compacted before."""
        return max(1, self.prior_rows // 100)

    @property
    def newest_rows(self) -> int:
        """The 2 % that `recent` updates."""
        return max(1, self.prior_rows // 50)

    def scaled(self, scale: float) -> Configuration:
        """The same table with fewer, or more, rows."""
        return replace(self, rows=max(1_000, int(self.rows * scale)))

    def tiny(self) -> Configuration:
        """For warming up."""
        return replace(self, rows=2_000, prior_files=2, delta_files=1)


NARROW = Configuration("narrow", 10_000_000, 0)
WIDE = Configuration("wide", 2_000_000, 1_000)
CONFIGURATIONS = {each.name: each for each in (NARROW, WIDE)}
MEMORY = Configuration("memory", 30_000_000, 0, prior_files=24, delta_files=6)
