"""Chooses some of many rows, files or places, as far from each other as possible. Pure.

10 rows, 3 wanted     1, 5, 8          each in the middle of its third: in sorted rows, they cover all values
2 files, 32 wanted    0, 1             all of them

rows 0, 700, 2,050    of a file with row groups of 2,000 and 100 rows: 2 looks into the first, 1 into the second
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SAMPLE_ROWS = 20_000
SAMPLE_PER_FILE = 200
"""With so many sampled rows a file, files differ in size by a seventh. With 50 they differed by two fifths."""
LOOKS_PER_TASK = 16
"""The fewest looks that are worth a task."""
_PLASTIC = 1.32471795724474602596
"""The plastic number: its powers step evenly through several dimensions at a time (Roberts' R sequence)."""
_LOOKS_MIN, _LOOKS_MAX, _LOOK_ROWS = 64, 512, 20_000


def sampled_rows(files: int) -> int:
    """The number of rows in a sample that divides rows into `files` files."""
    return max(SAMPLE_ROWS, SAMPLE_PER_FILE * files)


def looks_at(rows: int) -> int:
    """The number of places to look at for a sample of `rows` rows."""
    return max(1, min(_LOOKS_MAX, rows, max(_LOOKS_MIN, rows // _LOOK_ROWS)))


@dataclass(frozen=True, slots=True)
class SampleSize:
    """How many rows to take, from how many places, and the most bytes that they may have."""

    wanted: int
    looks: int
    bytes: float

    def tasks(self, most: int) -> int:
        """How many tasks, at most so many, take the sample together."""
        return max(1, min(most, self.looks // LOOKS_PER_TASK))

    def part(self, share: float) -> SampleSize:
        """What a task takes that has this share of the rows."""
        return SampleSize(math.ceil(self.wanted * share), math.ceil(self.looks * share), self.bytes * share)


def spread(there: int, wanted: int) -> npt.NDArray[np.int64]:
    """`wanted` places among `there`, in order. All of them, if there are no more."""
    if there <= wanted:
        return np.arange(there, dtype=np.int64)
    return ((np.arange(wanted) + 0.5) * (there / wanted)).astype(np.int64)


def even_steps(count: int, column: int) -> npt.NDArray[np.float64]:
    """`count` shares, 0 to 1, of a column's range. With those of other columns they spread evenly through the box."""
    return np.asarray((np.arange(1, count + 1) * _PLASTIC ** -(column + 1)) % 1.0, np.float64)


@dataclass(frozen=True, slots=True)
class LookedGroup:
    """A row group, how many looks hit it, and its wanted rows: [start, stop) of the file."""

    group: int
    looks: int
    rows: tuple[int, int]


def looked_groups(
    group_rows: Sequence[int], places: Sequence[int] | npt.NDArray[np.int64], rows: tuple[int, int]
) -> list[LookedGroup]:
    """The row groups of a file that have these places, in order. `rows`: the wanted rows of the file, [start, stop)."""
    starts = np.cumsum([0, *group_rows])
    groups, times = np.unique(np.searchsorted(starts, places, side="right") - 1, return_counts=True)
    return [
        LookedGroup(group, looks, (max(int(starts[group]), rows[0]), min(int(starts[group + 1]), rows[1])))
        for group, looks in zip(groups.tolist(), times.tolist(), strict=True)
    ]
