"""A row map (`iceberg/row_map.py`) as a session stores it, so that a later session can follow a group's rows, too.

live      a: live-0.arrow, ordinal 0      b: live-0.arrow, ordinal 1
runs      split-3-0-0.numbers             only of rows that go to several partitions
shares    outputs 2, their numbers        pieces of runs: [0, 0, 2] is run 0, rows 0 to 2

The journal has the paths and checksums; the files lie in the session's work folder. They are deleted with it, once the
group is committed or given up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

from deltacompact.base.numbers import Ordinal
from deltacompact.iceberg.marks.tasks import LiveBitmap
from deltacompact.iceberg.row_map import Piece, ReadNumbers, RowMap, RowShare
from deltacompact.index.index_files import session_object
from deltacompact.index.live_bitmaps import read_masks
from deltacompact.index.number_blocks import NumberBlock, StoredNumbers, read_numbers
from deltacompact.storage.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class StoredRowShare:
    """A RowShare: how many outputs it has, the row numbers of each (empty: the rows kept their order), its pieces of
    runs."""

    outputs: int
    numbers: tuple[StoredNumbers, ...] = ()
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredRowMap:
    """The live bitmap of each data file of a group, the shares, and the row numbers of each run."""

    live: tuple[LiveBitmap, ...]
    shares: tuple[StoredRowShare, ...]
    runs: tuple[StoredNumbers, ...] = ()

    @property
    def crc32s(self) -> list[int | None]:
        """The checksums of the live bitmaps, of the runs' numbers, and of the outputs' numbers."""
        outputs = (numbers for share in self.shares for numbers in share.numbers)
        return [*(bitmap.crc32 for bitmap in self.live), *(numbers.crc32 for numbers in chain(self.runs, outputs))]

    def opened(self, store: ObjectStore, outputs: Sequence[int], kept: KeptNumbers) -> RowMap:
        """The row map. `outputs`: the rows of each output. Raises CorruptionError if a bitmap is not as written."""
        masks = {path: read_masks(store, path) for path in dict.fromkeys(bitmap.masks_path for bitmap in self.live)}
        live = [bitmap.of(masks[bitmap.masks_path]) for bitmap in self.live]
        shares, first = [], 0
        for share in self.shares:
            rows = outputs[first : first + share.outputs]
            numbers = [
                kept.reader(store, stored, of_output) for stored, of_output in zip(share.numbers, rows, strict=False)
            ]
            shares.append(RowShare(rows, numbers, share.pieces))
            first += share.outputs
        rows_of = Counter[int]()
        for share in self.shares:
            for piece in share.pieces:
                rows_of[piece.run] += piece.stop - piece.start
        return RowMap(live, shares, [kept.reader(store, stored, rows_of[run]) for run, stored in enumerate(self.runs)])


@dataclass(slots=True)
class KeptNumbers:
    """Numbers that were read, so that the next attempt of a commit need not read them. 4 bytes a row."""

    bytes_left: int
    of_path: dict[str, list[NumberBlock]] = field(default_factory=dict)

    def reader(self, store: ObjectStore, stored: StoredNumbers, rows: int) -> ReadNumbers:
        """Reads the numbers of a file with so many rows, and keeps them while there is room."""

        path = stored.path

        def read() -> Iterator[NumberBlock]:
            with session_object(store, path) as source:
                yield from read_numbers(source, path, rows, stored.crc32)

        def read_once() -> Iterable[NumberBlock]:
            if path not in self.of_path:
                if 4 * rows > self.bytes_left:
                    return read()
                self.of_path[path] = list(read())
                self.bytes_left -= 4 * rows
            return self.of_path[path]

        return read_once


def row_map_document(row_map: StoredRowMap) -> dict[str, Any]:
    """As JSON values, for the journal. The version before reads it, too: it knows no checksums."""
    return {
        "live": [[bitmap.masks_path, bitmap.ordinal] for bitmap in row_map.live],
        "runs": [stored.path for stored in row_map.runs],
        "shares": [
            {
                "outputs": share.outputs,
                "numbers": [stored.path for stored in share.numbers],
                "pieces": [[piece.run, piece.start, piece.stop] for piece in share.pieces],
            }
            for share in row_map.shares
        ],
        "crc32s": row_map.crc32s,
    }


def stored_row_map(document: Mapping[str, Any]) -> StoredRowMap:
    """The row map that `row_map_document` wrote, or the version before, without checksums."""
    crc32s = iter(document.get("crc32s") or repeat(None))

    def numbers(paths: Sequence[str]) -> tuple[StoredNumbers, ...]:
        return tuple(StoredNumbers(path, next(crc32s)) for path in paths)

    live = tuple(LiveBitmap(path, Ordinal(ordinal), next(crc32s)) for path, ordinal in document["live"])
    runs = numbers(document["runs"])
    shares = tuple(
        StoredRowShare(share["outputs"], numbers(share["numbers"]), tuple(Piece(*piece) for piece in share["pieces"]))
        for share in document["shares"]
    )
    return StoredRowMap(live, shares, runs)
