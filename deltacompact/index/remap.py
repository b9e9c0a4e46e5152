"""Where the rows of rewritten files went: told by the file's mask instead of by 32 bytes a row.

    file 15, live rows 0 2 3 6     rank 8 in its session, 4 rows an output, first output 20
    (15, 3) has rank 8 + 2 = 10    ->  output 20 + 10 // 4 = 22, row 2

A file number is used once, so an entry that points to file 15 is older than the relocation, and what it becomes may
have been relocated again by a later session: relocations are applied in their order.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deltacompact import _kernels
from deltacompact.base.errors import CorruptionError
from deltacompact.base.numbers import ChainFileNumber, Ordinal
from deltacompact.index.entries import GONE, Entries, fields
from deltacompact.index.live_bitmaps import read_masks
from deltacompact.storage.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class RelocatedFile:
    """A file that was rewritten; its mask lies under the session's ordinal in the object at `masks_path`."""

    number: ChainFileNumber
    rows: int
    masks_path: str
    ordinal: Ordinal


@dataclass(frozen=True, slots=True)
class Relocation:
    """What one session rewrote: files in the order of their ranks, which begin at 0 and run through all of them."""

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
    """Applies relocations to entries; masks are read when they are first needed."""

    def __init__(self, store: ObjectStore, relocations: Sequence[Relocation]) -> None:
        self._store = store
        self._relocations = relocations
        self._ranks = functools.cache(self._load)

    def relocated(self, entries: Entries) -> Entries:
        """The entries with pointers to files that are there now. Raises CorruptionError for a row that did not live."""
        for number, relocation in enumerate(self._relocations):
            entries = self._relocate(entries, number, relocation)
        return entries

    def _relocate(self, entries: Entries, number: int, relocation: Relocation) -> Entries:
        file = np.ascontiguousarray(fields(entries)["file"])
        numbers = np.array([moved.number for moved in relocation.files], np.uint32)
        here = np.flatnonzero((file < GONE) & np.isin(file, numbers))
        if not len(here):
            return entries
        rows = np.ascontiguousarray(fields(entries)["row"][here])
        try:
            ranks = self._ranks(number).ranks(file[here], rows)
        except ValueError as error:
            raise CorruptionError(f"the primary key index points to a row that was not live: {error}") from error
        output, row = np.divmod(ranks, np.uint64(relocation.rows_per_output))
        entries = entries.copy()
        view = fields(entries)
        view["file"][here] = output + np.uint64(relocation.first_output_number)
        view["row"][here] = row
        return entries

    def _load(self, number: int) -> _kernels.SurvivorRanks:
        files = self._relocations[number].files
        masks: dict[str, Any] = {}
        numbers = np.array([file.number for file in files], np.uint32)
        ranks = _kernels.SurvivorRanks(numbers, np.array([file.rows for file in files], np.int64))
        for file in files:
            if file.masks_path not in masks:
                masks[file.masks_path] = read_masks(self._store, file.masks_path)
            ranks.fill(file.number, masks[file.masks_path][file.ordinal])
        return ranks
