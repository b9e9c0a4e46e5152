"""Where the rows of a group went: kept in files and in the journal, so that a later session can follow them, too.

live      a: live-0.arrow, ordinal 0      b: live-0.arrow, ordinal 1
runs      split-3-0-0.numbers             only of rows that go to several partitions
shares    outputs 2, their numbers        pieces of runs: [0, 0, 2] is run 0, rows 0 to 2

The files lie in the session's work folder. They are deleted with it, once the group is committed or given up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltacompact.base.numbers import Ordinal
from deltacompact.iceberg.marks.tasks import LiveBitmap
from deltacompact.iceberg.row_map import Bits, Piece, ReadNumbers, RowMap, RowShare
from deltacompact.index.index_files import session_object
from deltacompact.index.live_bitmaps import read_masks
from deltacompact.index.number_blocks import NumberBlock, read_numbers
from deltacompact.storage.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class WentShare:
    """A share's number of outputs, the paths of their rows' numbers (none if rows kept their order), its pieces."""

    outputs: int
    numbers: tuple[str, ...] = ()
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Went:
    """The paths of a group's live bitmaps (one for each data file) and of its runs' numbers, and its shares."""

    live: tuple[LiveBitmap, ...]
    shares: tuple[WentShare, ...]
    runs: tuple[str, ...] = ()

    def live_bits(self, store: ObjectStore) -> list[Bits]:
        """The live bitmap of each source, as the outputs were written."""
        masks = {path: read_masks(store, path) for path in dict.fromkeys(one.masks_path for one in self.live)}
        return [masks[one.masks_path][one.ordinal] for one in self.live]

    def row_map(self, store: ObjectStore, live: Sequence[Bits], outputs: Sequence[int]) -> RowMap:
        """The map. `outputs`: the rows of each output."""
        shares, first = [], 0
        for share in self.shares:
            rows = outputs[first : first + share.outputs]
            numbers = [_reading(store, path, of_output) for path, of_output in zip(share.numbers, rows, strict=False)]
            shares.append(RowShare(rows, numbers, share.pieces))
            first += share.outputs
        rows_of = Counter[int]()
        for piece in (piece for share in self.shares for piece in share.pieces):
            rows_of[piece.run] += piece.stop - piece.start
        return RowMap(live, shares, [_reading(store, path, rows_of[run]) for run, path in enumerate(self.runs)])


def _reading(store: ObjectStore, path: str, rows: int) -> ReadNumbers:
    def read() -> Iterator[NumberBlock]:
        with session_object(store, path) as source:
            yield from read_numbers(source, path, rows)

    return read


def went_document(went: Went) -> dict[str, Any]:
    """As JSON values."""
    return {
        "live": [[one.masks_path, one.ordinal] for one in went.live],
        "runs": went.runs,
        "shares": [
            {
                "outputs": share.outputs,
                "numbers": share.numbers,
                "pieces": [[piece.run, piece.start, piece.stop] for piece in share.pieces],
            }
            for share in went.shares
        ],
    }


def went_of(document: Mapping[str, Any]) -> Went:
    """What `went_document` says."""
    return Went(
        tuple(LiveBitmap(path, Ordinal(ordinal)) for path, ordinal in document["live"]),
        tuple(
            WentShare(one["outputs"], tuple(one["numbers"]), tuple(Piece(*piece) for piece in one["pieces"]))
            for one in document["shares"]
        ),
        tuple(document["runs"]),
    )
