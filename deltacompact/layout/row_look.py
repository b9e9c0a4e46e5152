"""Chooses the rows of a cheap look at a file: rows of one row group, as far apart as possible. Pure.

every 100th row is wanted       file 0, two groups of 5,000      every 50th row of its first group
                                file 1, two groups of 5,000      every 50th row of its second group
                                file 2, one group of 8,000       every 100th row
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RowLook:
    """Every `step`th of the rows [start, stop) of a file."""

    start: int
    stop: int
    step: int

    @classmethod
    def at(cls, group_rows: Sequence[int], number: int, step: int) -> RowLook:
        """As many rows as every `step`th row of the file would be, all from one row group.

        `number`: the file's. File 0 shows its first group, file 1 its second, because the first groups of all files
        may have the same few values. `group_rows`: the rows of each group; there is at least one group.
        """
        group = number % len(group_rows)
        start, rows = sum(group_rows[:group]), group_rows[group]
        return cls(start, start + rows, max(1, step * rows // max(1, sum(group_rows))))

    @property
    def rows(self) -> tuple[int, int]:
        return self.start, self.stop

    def of(self, first: int, table: pa.Table) -> pa.Table:
        """The rows to look at in `table`, a slice of the file that begins with row `first`."""
        return table.take(pa.array(np.arange((self.start - first) % self.step, table.num_rows, self.step)))
