"""Task: gathers the dead rows of one group of files from all buckets, and writes a live bitmap for each file.

bucket 0    1         bucket 1    5         files 0‥1 begin at the rows 0, 3
file 0      row 1 is dead: 101              file 1    row 2 is dead: 110
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.numbers import Ordinal
from deltacompact.index.live_bitmaps import write_masks
from deltacompact.storage.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class GatherTask:
    """Gathers the dead rows of one group of files.

    group         the group's number: its batch in each file of `dead`
    ordinals      the data files of the group
    with_dead     the data files with dead rows: the others get no bitmap
    first_rows    the number of each data file's first row; at the end, the number after the group's last row
    dead          the files that the folds wrote, one for each bucket
    """

    group: int
    ordinals: range
    with_dead: tuple[int, ...]
    first_rows: npt.NDArray[np.int64]
    dead: tuple[str, ...]
    masks_path: str


def gather(store: ObjectStore, task: GatherTask) -> None:
    """Write the live bitmaps. Rows that were dead before this upsert have the bit of a live row."""
    first = task.first_rows[0]
    lives = np.ones(int(task.first_rows[-1] - first), bool)
    for path in task.dead:
        with store.open(path) as source:
            dead = pa.ipc.open_file(source).get_batch(task.group).column(0)
        lives[np.asarray(dead) - first] = False
    bounds = task.first_rows - first
    masks = {
        Ordinal(ordinal): np.packbits(
            lives[bounds[ordinal - task.ordinals.start] : bounds[ordinal - task.ordinals.start + 1]], bitorder="little"
        )
        for ordinal in task.with_dead
    }
    write_masks(store, task.masks_path, masks)
