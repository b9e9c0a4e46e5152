"""Task: turns the ranks of a source group's survivors into destinations, because the session lays rows out by columns.

    rank           0    1    2    3          cells of the rows    0 3 1 2
    destination    0    11   1    10         output 0 has the rows of cells 0 and 1, output 1 those of 2 and 3; span 10
    sent back      2, 0, 3 -> 1, 0, 10       to bucket A, in the order in which A sent its survivors

If the session adds a run to the index, the destinations are stored. With the live bitmaps of rewritten files, they tell
where the rows of older entries went (index/remap.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import ReadLimits
from deltacompact.index.index_files import session_object
from deltacompact.index.number_blocks import numbers_sink
from deltacompact.planning.arrangement import Counts, destinations
from deltacompact.steps.assign_pointers import RANKS
from deltacompact.steps.shuffle import Arrays, Groups, Parcel, StoredGroups, stored
from deltacompact.storage.fetched_file import ReadAhead
from deltacompact.storage.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class OutputPlaces:
    """The place at which each output ends, counted through all rows, and the span of destinations of one output."""

    stops: Counts
    span: int


@dataclass(frozen=True, slots=True)
class MovedGroup:
    """The rows of a source group: files with the rows' cells by rank, and for each run the first place of each cell.

    `path`: where to store the destinations; None: no later session needs them.
    """

    rows: int
    cells: tuple[StoredGroups, ...]
    first_of_cells: tuple[Counts, ...]
    path: str | None


def move(
    store: ObjectStore, places: OutputPlaces, group: MovedGroup, reading: ReadLimits, *ranked: Parcel
) -> Iterator[Parcel]:
    """The same parcels, with each rank replaced by its destination."""
    moves = _moves(store, places, group, reading)
    for parcel in ranked:
        assert isinstance(parcel, Groups), "ranks that go through files are moved in files"
        (ranks,) = parcel.arrays
        yield Groups(parcel.first, (moves[ranks],), parcel.offsets)


def move_in_files(
    store: ObjectStore,
    places: OutputPlaces,
    group: MovedGroup,
    reading: ReadLimits,
    path_of: Callable[[], str],
    ranked: StoredGroups,
) -> Parcel:
    """As `move`, but a file stores the destinations."""
    moves = _moves(store, places, group, reading)
    return stored(store, path_of(), ((moves[ranks],) for (ranks,) in _batches(store, ranked, reading)), RANKS)


def _moves(store: ObjectStore, places: OutputPlaces, group: MovedGroup, reading: ReadLimits) -> npt.NDArray[np.uint32]:
    """The destination of each rank of the group."""
    of_runs = (cells for stored_cells in group.cells for (cells,) in _batches(store, stored_cells, reading))
    found = [
        destinations(cells, first, places.stops, places.span)
        for cells, first in zip(of_runs, group.first_of_cells, strict=True)
    ]
    moves = np.concatenate(found) if found else np.empty(0, np.uint32)
    if len(moves) != group.rows:
        raise CorruptionError(f"{len(moves)} rows were sent to cells, of {group.rows} that live")
    if group.path is not None:
        with numbers_sink(store, group.path) as sink:
            sink(moves)
    return moves


def _batches(store: ObjectStore, groups: StoredGroups, reading: ReadLimits) -> Iterator[Arrays]:
    with session_object(store, groups.path, ReadAhead(reading)) as source:
        file = pa.ipc.open_file(source)
        for number in range(file.num_record_batches):
            batch = file.get_batch(number)
            yield tuple(np.array(column.to_numpy(zero_copy_only=False)) for column in batch.columns)
