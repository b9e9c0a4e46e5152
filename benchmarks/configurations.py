"""What is compacted.

narrow   10 M rows of about 60 bytes: int64 key, float64, timestamp, int32, a string of 28 characters
wide      2 M rows of about 1.1 KB: the same and 1,000 random bytes

full      80 % prior rows in random order, 20 % delta rows of which half update; nothing was compacted before
recent    prior rows compacted before, in insertion order; 1 % delta rows over the newest 2 % of them
uniform   the same, the delta rows over all
append    the same, only new keys
merge     the same, half over all, half new: of the table `lhbench` alone, for a sweep of shares

Another share than 1 % has a name of its own: narrow-0.1 has delta rows of 10 % of the table, over the newest 20 %.

refresh   a table of TPC-H compacted before, then its refresh streams: see tpch.py
status    the same table, then orders that change their status

upsert    and insert, update, again, cdc, sync: the changes of duckrun's merge suite, see duckrun.py
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from deltacompact.index.keys import DIGEST_BYTES, POINTER_BYTES

ROW_GROUP_ROWS = 128 << 10
COMPRESSION: Final = "zstd"
ENTRY_BYTES = DIGEST_BYTES + POINTER_BYTES
"""Of a row in the index: no table here has a sort key."""


class Case(StrEnum):
    """How the deltas meet the table."""

    FULL = "full"
    RECENT = "recent"
    UNIFORM = "uniform"
    APPEND = "append"
    MERGE = "merge"
    REFRESH = "refresh"
    STATUS = "status"
    UPSERT = "upsert"
    INSERT = "insert"
    UPDATE = "update"
    AGAIN = "again"
    CDC = "cdc"
    SYNC = "sync"

    @property
    def incremental(self) -> bool:
        """Whether the prior rows were compacted before."""
        return self is not Case.FULL


DUCKRUN = frozenset({Case.UPSERT, Case.INSERT, Case.UPDATE, Case.AGAIN, Case.CDC, Case.SYNC})
OURS = (Case.FULL, Case.RECENT, Case.UNIFORM, Case.APPEND)


@dataclass(frozen=True, slots=True)
class Configuration:
    """A table: rows in all of the full case, bytes of random payload for each row, files of prior and of new rows.

    `cases` are those that files are made for.
    """

    name: str
    rows: int
    payload_bytes: int
    prior_files: int = 8
    delta_files: int = 2
    delta_share: float = 0.01
    cases: tuple[Case, ...] = OURS

    @property
    def prior_rows(self) -> int:
        return self.rows * 4 // 5

    @property
    def full_delta_rows(self) -> int:
        return self.rows - self.prior_rows

    @property
    def incremental_delta_rows(self) -> int:
        """A share of the table that was compacted before."""
        return max(1, int(self.prior_rows * self.delta_share))

    @property
    def newest_rows(self) -> int:
        """Twice as many as `recent` updates."""
        return max(1, 2 * self.incremental_delta_rows)

    def sharing(self, share: float) -> Configuration:
        """The same table with other deltas."""
        return self if share == self.delta_share else replace(self, name=f"{self.name}-{share:g}", delta_share=share)

    def scaled(self, scale: float) -> Configuration:
        """The same table with fewer, or more, rows."""
        return replace(self, rows=max(1_000, int(self.rows * scale)))

    def tiny(self) -> Configuration:
        """A tiny table of the same kind, for warming up."""
        return replace(self, rows=2_000, prior_files=2, delta_files=1)


NARROW = Configuration("narrow", 10_000_000, 0)
WIDE = Configuration("wide", 2_000_000, 1_000)
CONFIGURATIONS = {configuration.name: configuration for configuration in (NARROW, WIDE)}
MEMORY = Configuration("memory", 30_000_000, 0, prior_files=24, delta_files=6, cases=(Case.FULL,))
LHBENCH = Configuration("lhbench", 10_000_000, 0, delta_share=0.0, cases=(Case.MERGE,))
"""Every share that it is swept over is part of its name."""
