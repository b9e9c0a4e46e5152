"""How a session's pointers become those of the table's index: planned here, applied by the step that assigns pointers.

ordinal 0, kept         group KEPT       file number 14, the row stays
ordinal 1, rewritten    group 0          rank 7 of all live rows: output 17, row 3
ordinal 2, all dead     group NOWHERE    nothing points to it
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deltacompact.base.model import DataFile
from deltacompact.base.numbers import ChainFileNumber, Ordinal, Rank

KEPT = 0xFFFFFFFF
"""Stands in `group_of` for files that are kept by reference: their pointers stay."""

NOWHERE = 0xFFFFFFFE
"""Stands there for files of which no row lives: nothing points to them."""


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """Source files whose rows are ranked together. `first_rank` counts the live rows of all groups before.

    Of the files in `whole`, by ordinal, every row of before lives but those that are told to have died; of the others
    those that are told to live.
    """

    ordinals: npt.NDArray[np.uint32]
    file_rows: npt.NDArray[np.int64]
    first_rank: Rank
    whole: tuple[tuple[Ordinal, DataFile], ...] = ()


@dataclass(frozen=True, slots=True)
class PointerMap:
    """How a session's pointers become those of the table's index. Tombstones and what is gone stay as they are.

    `group_of`: by ordinal, the source group that ranks the file, KEPT, or NOWHERE. `number_of`: the file number of a
    file that stays. Files of the groups from `marked_from` on stay as well: they get deletion vectors.
    """

    group_of: npt.NDArray[np.uint32]
    number_of: npt.NDArray[np.uint32]
    first_ranks: tuple[Rank, ...]
    first_output_number: ChainFileNumber
    rows_per_output: int
    marked_from: int
