"""Delta files in which some rows are dead from the start, as a commit of written files may contain them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deltacompact.base.data_file import DeletionVector
from deltacompact.base.numbers import Ordinal
from deltacompact.index.live_bitmaps import write_masks
from deltacompact.storage.objects import ObjectStore


def write_deletions(store: ObjectStore, path: str, rows: int, dead: Sequence[int]) -> DeletionVector:
    """Store the live bitmap of a file at `path`. Return the deletion vector that names it."""
    lives = np.ones(rows, bool)
    lives[list(dead)] = False
    write_masks(store, path, {Ordinal(0): np.packbits(lives, bitorder="little")})
    return DeletionVector(len(set(dead)), path, Ordinal(0))
