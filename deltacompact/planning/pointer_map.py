"""Maps a session's pointers to the pointers of the table's index. The step `assign pointers` applies the map.

ordinal 0, kept         group KEPT       file number 14, the same row
ordinal 1, rewritten    group 0          rank 7 of all live rows: output 17, row 3
ordinal 2, all dead     group NOWHERE    no entry points to it
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deltacompact.base.data_file import DataFile
from deltacompact.base.numbers import ChainFileNumber, Ordinal, Rank

KEPT = 0xFFFFFFFF
"""In `group_of`: a file that is kept by reference. Its pointers stay."""

NOWHERE = 0xFFFFFFFE
"""In `group_of`: a file without live rows. No entry points to it."""


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """Source files whose rows are ranked together. `first_rank` counts the live rows of all earlier groups.

    The live bitmaps of the files in `whole` start with the live rows from before the session, and lose the rows that
    died. The bitmaps of the others start empty, and get the rows that live.
    """

    ordinals: npt.NDArray[np.uint32]
    file_rows: npt.NDArray[np.int64]
    first_rank: Rank
    whole: tuple[tuple[Ordinal, DataFile], ...] = ()


@dataclass(frozen=True, slots=True)
class PointerMap:
    """How to map pointers. Tombstones and "gone" entries stay as they are.

    group_of       by ordinal: the source group that ranks the file, KEPT, or NOWHERE
    number_of      by ordinal: the file number of a file that stays
    first_ranks    by source group
    marked_from    the files of groups from this number on stay, with deletion vectors
    """

    group_of: npt.NDArray[np.uint32]
    number_of: npt.NDArray[np.uint32]
    first_ranks: tuple[Rank, ...]
    first_output_number: ChainFileNumber
    rows_per_output: int
    marked_from: int
