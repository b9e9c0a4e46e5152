"""Maps pointers into rewritten files to the new files, by each file's live bitmap: one bit a row instead of 32 bytes.

    file 15, live rows 0 2 3 6     its first rank is 8; 4 rows an output, first output 20
    (15, 3) has rank 8 + 2 = 10    ->  output 20 + 10 // 4 = 22, row 2

If the session laid the rows out by columns, the stored destination of each rank tells the place instead:

    (15, 3) has rank 10, destination 4     ->  output 20 + 4 // 4 = 21, row 0

A task looks destinations up in a temporary file that it maps: the system holds what is in use, and no more.

A file number is used once, so every entry that points to file 15 is older than the relocation. A later session may have
rewritten file 22 as well. So relocations are applied in order, the oldest first.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deltacompact import _kernels
from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.base.numbers import ChainFileNumber, Ordinal
from deltacompact.index.entries import Entries, fields
from deltacompact.index.number_blocks import read_numbers
from deltacompact.storage.fetched_file import ReadAhead, begun_ahead
from deltacompact.storage.objects import ObjectStore

Destinations = npt.NDArray[np.uint32]
"""A destination is the output's number (from 0) times the rows of an output, plus the row in the output."""


@dataclass(frozen=True, slots=True)
class RelocatedFile:
    """A rewritten file. Its mask has the key `ordinal` in the object at `masks_path`."""

    number: ChainFileNumber
    rows: int
    masks_path: str
    ordinal: Ordinal


@dataclass(frozen=True, slots=True)
class Moves:
    """The object with the destinations of `rows` ranks. They follow the ranks of the Moves before."""

    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """The files that one session rewrote, in rank order. The ranks begin at 0 and continue from file to file.

    `moves`: the destinations of the ranks, in rank order; empty if the rows kept their order.
    """

    files: tuple[RelocatedFile, ...]
    first_output_number: ChainFileNumber
    rows_per_output: int
    moves: tuple[Moves, ...] = ()

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Relocation:
        files = tuple(RelocatedFile(**file) for file in document["files"])
        moves = tuple(Moves(**entry) for entry in document.get("moves", ()))
        return cls(files, document["first_output_number"], document["rows_per_output"], moves)

    def to_json(self) -> dict[str, Any]:
        document = asdict(self)
        return document if self.moves else {name: value for name, value in document.items() if name != "moves"}

    @property
    def mask_bytes(self) -> int:
        """The memory of a task that applies the relocation."""
        return self.rows // 8 + sum(4 * move.rows for move in self.moves)

    @property
    def rows(self) -> int:
        """The rows of the rewritten files."""
        return sum(file.rows for file in self.files)


Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """File number and row of each of some rows, and whether it has a place."""

    files: npt.NDArray[np.uint32]
    rows: Rows
    lives: npt.NDArray[np.bool_]


def read_moves(store: ObjectStore, moves: Sequence[Moves], limits: ReadLimits) -> Destinations:
    """The destinations of all ranks, in a file that ends with them; a block at a time is held.

    Raises CorruptionError for an object whose rows or CRC-32 differ.
    """
    from deltacompact.index.index_files import session_object  # imported late: `show` reads only manifests

    ahead = ReadAhead(limits)
    with tempfile.TemporaryFile(prefix="deltacompact-") as held:
        for move, opened in begun_ahead(moves, lambda move: (move, session_object(store, move.path, ahead))):
            with opened as source:
                for block in read_numbers(source, f"{store.uri}{move.path}", move.rows):
                    held.write(block.tobytes())
        return np.memmap(held, np.uint32, "r") if held.tell() else np.empty(0, np.uint32)


class Relocator:
    """Applies relocations to entries. Reads masks when they are first needed."""

    def __init__(self, store: ObjectStore, relocations: Sequence[Relocation], limits: ReadLimits = READ_LIMITS) -> None:
        self._store = store
        self._limits = limits
        self._relocations = relocations
        self._numbers = functools.cache(lambda number: _numbers(relocations[number]))
        self._ranks = functools.cache(self._load)
        self._moves = functools.cache(self._load_moves)

    def relocated(self, entries: Entries) -> Entries:
        """The entries with pointers to current files. Raises CorruptionError if an entry points to a dead row."""
        own = False
        for number, relocation in enumerate(self._relocations):
            if not _kernels.points_into(entries, self._numbers(number)):
                continue
            if not own:
                entries, own = entries.copy(), True
            try:
                if relocation.moves:
                    self._move(number, relocation, entries)
                else:
                    self._ranks(number).relocate(entries, relocation.first_output_number, relocation.rows_per_output)
            except ValueError as error:
                raise CorruptionError(f"the primary key index points to a row that was not live: {error}") from error
        return entries

    def knows(self, number: ChainFileNumber) -> bool:
        """Whether a file of this number was rewritten."""
        return any(file.number == number for relocation in self._relocations for file in relocation.files)

    def followed(self, number: ChainFileNumber, rows: Rows) -> RowPlaces:
        """Where these rows of a file are now, by one relocation after the other. Rows that died have no place."""
        files, lives = np.full(len(rows), number, np.uint32), np.ones(len(rows), bool)
        places = rows.astype(np.uint64)
        for step, relocation in enumerate(self._relocations):
            here = np.flatnonzero(lives & np.isin(files, self._numbers(step)))
            for source in set(files[here].tolist()):
                own = here[files[here] == source]
                own_rows = places[own].astype(np.int64)
                bits = self._ranks(step).mask(source)
                lives[own] = (bits[own_rows >> 3] >> (own_rows & 7).astype(np.uint8)) & 1 == 1
            here = here[lives[here]]
            if len(here):
                files[here], places[here] = self._places(step, relocation, files[here], places[here])
        return RowPlaces(files, places.astype(np.int64), lives)

    def _move(self, number: int, relocation: Relocation, entries: Entries) -> None:
        """Replace the entries' pointers into files whose rows were laid out by columns."""
        view = fields(entries)
        here = np.flatnonzero(np.isin(view["file"], self._numbers(number)))
        files, rows = np.ascontiguousarray(view["file"][here]), np.ascontiguousarray(view["row"][here])
        view["file"][here], view["row"][here] = self._places(number, relocation, files, rows)

    def _places(
        self, number: int, relocation: Relocation, files: npt.NDArray[np.uint32], rows: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]:
        """The output and the row in it of each of these live rows."""
        ranks: npt.NDArray[np.integer] = self._ranks(number).ranks(files, rows)
        if relocation.moves:
            ranks = self._moves(number)[ranks]
        output, row = np.divmod(ranks, ranks.dtype.type(relocation.rows_per_output))
        return relocation.first_output_number + output, row

    def _load_moves(self, number: int) -> Destinations:
        return read_moves(self._store, self._relocations[number].moves, self._limits)

    def _load(self, number: int) -> _kernels.SurvivorRanks:
        from deltacompact.index.live_bitmaps import read_each_masks  # imported late: `show` reads only manifests

        files = self._relocations[number].files
        paths = list(dict.fromkeys(file.masks_path for file in files))
        masks = dict(zip(paths, read_each_masks(self._store, paths, self._limits), strict=True))
        ranks = _kernels.SurvivorRanks(self._numbers(number), np.array([file.rows for file in files], np.int64))
        for file in files:
            ranks.fill(file.number, masks[file.masks_path][file.ordinal])
        return ranks


def _numbers(relocation: Relocation) -> npt.NDArray[np.uint32]:
    return np.array([file.number for file in relocation.files], np.uint32)
