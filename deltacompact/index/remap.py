"""Maps pointers into rewritten files to the new files, by each file's mask: one bit a row instead of 32 bytes.

    file 15, live rows 0 2 3 6     rank 8 in its session, 4 rows an output, first output 20
    (15, 3) has rank 8 + 2 = 10    ->  output 20 + 10 // 4 = 22, row 2

A file number is used once, so every entry that points to file 15 is older than the relocation. A later session may have
rewritten file 22 as well. So relocations are applied in order, the oldest first.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deltacompact import _kernels
from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.base.numbers import ChainFileNumber, Ordinal
from deltacompact.index.entries import Entries
from deltacompact.storage.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class RelocatedFile:
    """A rewritten file. Its mask has the key `ordinal` in the object at `masks_path`."""

    number: ChainFileNumber
    rows: int
    masks_path: str
    ordinal: Ordinal


@dataclass(frozen=True, slots=True)
class Relocation:
    """The files that one session rewrote, in rank order. The ranks begin at 0 and continue from file to file."""

    files: tuple[RelocatedFile, ...]
    first_output_number: ChainFileNumber
    rows_per_output: int

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Relocation:
        files = tuple(RelocatedFile(**file) for file in document["files"])
        return cls(files, document["first_output_number"], document["rows_per_output"])

    @property
    def mask_bytes(self) -> int:
        return sum(file.rows for file in self.files) // 8


class Relocator:
    """Applies relocations to entries. Reads masks when they are first needed."""

    def __init__(self, store: ObjectStore, relocations: Sequence[Relocation], limits: ReadLimits = READ_LIMITS) -> None:
        self._store = store
        self._limits = limits
        self._relocations = relocations
        self._ranks = functools.cache(self._load)

    def relocated(self, entries: Entries) -> Entries:
        """The entries with pointers to current files. Raises CorruptionError if an entry points to a dead row."""
        own = False
        for number, relocation in enumerate(self._relocations):
            if not _kernels.points_into(entries, _numbers(relocation)):
                continue
            if not own:
                entries, own = entries.copy(), True
            try:
                self._ranks(number).relocate(entries, relocation.first_output_number, relocation.rows_per_output)
            except ValueError as error:
                raise CorruptionError(f"the primary key index points to a row that was not live: {error}") from error
        return entries

    def _load(self, number: int) -> _kernels.SurvivorRanks:
        from deltacompact.index.live_bitmaps import read_each_masks  # `show` reads manifests, and no bitmaps

        files = self._relocations[number].files
        paths = list(dict.fromkeys(file.masks_path for file in files))
        masks = dict(zip(paths, read_each_masks(self._store, paths, self._limits), strict=True))
        ranks = _kernels.SurvivorRanks(
            _numbers(self._relocations[number]), np.array([file.rows for file in files], np.int64)
        )
        for file in files:
            ranks.fill(file.number, masks[file.masks_path][file.ordinal])
        return ranks


def _numbers(relocation: Relocation) -> npt.NDArray[np.uint32]:
    return np.array([file.number for file in relocation.files], np.uint32)
