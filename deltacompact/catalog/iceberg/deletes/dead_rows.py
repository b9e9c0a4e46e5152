"""Task: the live rows of some data files, after equality deletes, position deletes and deletion vectors.

    a.parquet    sequence 5    rows 0‥3    id 1 2 3 4
    key set      digest(2) -> 6, digest(4) -> 5             row 1 is dead; row 3 lives: 5 < 5 is false (rule 16)
    positions    a.parquet: 0                               row 0 is dead
    live bitmap  0011

Positions count the rows of the stored file (rule 15). For keys, only the equality columns are read, in pieces, and a
piece asks one hash bucket of a key set after the other. The bitmaps are the engine's own, so its `materialize` step
writes the outputs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import ReadLimits
from deltacompact.base.model import DataFile, Fill
from deltacompact.base.numbers import Ordinal
from deltacompact.catalog.iceberg.deletes.delete_keys import as_arrow, buckets_of, digests, read_bucket
from deltacompact.catalog.iceberg.deletes.matching import PATH_COLUMN, POSITION_COLUMN
from deltacompact.catalog.iceberg.table import deletion_vectors
from deltacompact.catalog.iceberg.table.locations import readable
from deltacompact.catalog.iceberg.table.parquet_files import StoredFile, described, tables
from deltacompact.index.live_bitmaps import write_masks
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.opening import open_object
from deltacompact.tabular import field_ids
from deltacompact.tabular.field_ids import FIELD_ID

ROWS_AT_ONCE = 2 << 20
"""Rows whose digests a task holds at a time: 20 bytes each."""

_POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.large_string(), metadata={FIELD_ID: str(PATH_COLUMN)}),
        pa.field("pos", pa.int64(), metadata={FIELD_ID: str(POSITION_COLUMN)}),
    ]
)


@dataclass(frozen=True, slots=True)
class KeySet:
    """Deleted keys, by hash bucket: the files that have keys of each bucket. `columns` are named by field id."""

    columns: pa.Schema
    buckets: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Vector:
    """A deletion vector: where it lies in a Puffin file."""

    path: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Source:
    """A data file, and what may delete rows of it: key sets by number, position-delete files, a vector.

    `fills` are values that its rows have without the file's having them.
    """

    ordinal: Ordinal
    stored: StoredFile
    key_sets: tuple[int, ...] = ()
    positions: tuple[StoredFile, ...] = ()
    vector: Vector | None = None
    unfillable: tuple[tuple[int, str], ...] = ()
    fills: tuple[Fill, ...] = ()


@dataclass(frozen=True, slots=True)
class DeadRowsTask:
    """Finds the dead rows of some files. Their live bitmaps go to `masks_path`."""

    sources: tuple[Source, ...]
    key_sets: tuple[tuple[int, KeySet], ...]
    columns: pa.Schema
    masks_path: str
    rows_at_once: int
    reading: ReadLimits


@dataclass(frozen=True, slots=True)
class Found:
    """A data file, ready to be read, and its rows: live ones, and dead ones by cause (one cause a row)."""

    ordinal: Ordinal
    file: DataFile
    live_rows: int
    dead_by_position: int
    dead_by_key: int


def find_dead_rows(store: ObjectStore, task: DeadRowsTask) -> list[Found]:
    """Write the live bitmaps. Raises InputError naming a bad file, CorruptionError for a position beyond the end."""
    key_sets = {number: _Keys(store, key_set) for number, key_set in task.key_sets}
    by_path = _positions(store, task)
    found, masks = [], {}
    for source in task.sources:
        file = described(store, source.stored, task.columns, dict(source.unfillable), source.fills)
        lives = np.ones(file.rows, bool)
        _kill(lives, _dead_positions(store, source, by_path), source)
        by_position = file.rows - int(lives.sum())
        for number in source.key_sets:
            _kill_by_key(store, lives, source, file, key_sets[number], task)
        live_rows = int(lives.sum())
        masks[source.ordinal] = np.packbits(lives, bitorder="little")
        found.append(Found(source.ordinal, file, live_rows, by_position, file.rows - by_position - live_rows))
    write_masks(store, task.masks_path, masks)
    return found


# Positions


def _dead_positions(
    store: ObjectStore, source: Source, by_path: dict[str, list[npt.NDArray[np.int64]]]
) -> Iterator[npt.NDArray[np.int64]]:
    if (vector := source.vector) is not None:
        file_store, name = open_object(store, readable(vector.path))
        with file_store.open(name) as file:
            blob = file.read_at(vector.size, vector.offset)
        yield deletion_vectors.positions(bytes(blob), vector.path).astype(np.int64)
    if source.positions:
        yield from by_path[source.stored.path]


def _kill(lives: npt.NDArray[np.bool_], dead: Iterator[npt.NDArray[np.int64]], source: Source) -> None:
    for rows in dead:
        if len(rows) and (rows.max() >= len(lives) or rows.min() < 0):
            raise CorruptionError(
                f"{source.stored.path} has {len(lives)} rows, but row {rows.max()} is deleted by position"
            )
        lives[rows] = False


def _positions(store: ObjectStore, task: DeadRowsTask) -> dict[str, list[npt.NDArray[np.int64]]]:
    """The deleted positions of the task's files. Each position-delete file is read once."""
    wanted = {source.stored.path for source in task.sources if source.positions}
    paths = pa.array(sorted(wanted), pa.large_string())
    files = dict.fromkeys(file for source in task.sources for file in source.positions)
    found: dict[str, list[npt.NDArray[np.int64]]] = defaultdict(list)
    for stored in files:
        for _, table in tables(store, described(store, stored, _POSITIONS), _POSITIONS, limits=task.reading):
            numbers = pc.index_in(table["file_path"], value_set=paths)
            ours = table.append_column("number", numbers).filter(pc.is_valid(numbers))
            path_numbers = np.asarray(ours["number"])
            rows = np.asarray(ours["pos"])
            for number in np.unique(path_numbers):
                found[paths[number].as_py()].append(rows[path_numbers == number])
    return found


# Keys


class _Keys:
    """A key set's buckets as they are needed. The last one stays loaded: small key sets have only one."""

    def __init__(self, store: ObjectStore, key_set: KeySet) -> None:
        self._store = store
        self._key_set = key_set
        self._loaded: tuple[int, pa.Table] | None = None

    @property
    def columns(self) -> pa.Schema:
        return self._key_set.columns

    @property
    def bucket_count(self) -> int:
        return len(self._key_set.buckets)

    def bucket(self, number: int) -> pa.Table:
        if self._loaded is None or self._loaded[0] != number:
            self._loaded = None  # let the former go before the next comes
            keys = read_bucket(self._store, self._key_set.buckets[number])
            self._loaded = number, keys.combine_chunks()
        return self._loaded[1]


def _kill_by_key(
    store: ObjectStore, lives: npt.NDArray[np.bool_], source: Source, file: DataFile, keys: _Keys, task: DeadRowsTask
) -> None:
    file = field_ids.matched(file, keys.columns)
    for start in range(0, file.rows, task.rows_at_once):
        stop = min(file.rows, start + task.rows_at_once)
        pieces = [
            digests(table, keys.columns, source.stored.path)
            for _, table in tables(store, file, keys.columns, (start, stop), task.reading)
        ]
        asked = as_arrow(np.concatenate(pieces))
        buckets = buckets_of(asked, keys.bucket_count) if keys.bucket_count > 1 else None
        for bucket in range(keys.bucket_count):
            rows = None if buckets is None else np.flatnonzero(buckets == bucket)
            ours = asked if rows is None else asked.take(pa.array(rows))
            dead = _deleted(ours, keys.bucket(bucket), source.stored.sequence_number)
            lives[start + (dead if rows is None else rows[dead])] = False


def _deleted(asked: pa.Array, keys: pa.Table, sequence_number: int) -> npt.NDArray[np.int64]:
    """The places of those digests that a newer delete has: data sequence number < the delete's (rule 1)."""
    newer = keys.filter(pc.greater(keys["sequence"], sequence_number))
    if not newer.num_rows:
        return np.empty(0, np.int64)
    hit = pc.is_in(asked, value_set=newer["digest"].combine_chunks())
    return np.flatnonzero(np.asarray(hit))


def in_pieces(sources: Sequence[Source], rows_max: int) -> list[tuple[Source, ...]]:
    """Files in tasks of about so many rows."""
    pieces: list[tuple[Source, ...]] = []
    piece: list[Source] = []
    rows = 0
    for source in sources:
        if piece and rows + source.stored.rows > rows_max:
            pieces.append(tuple(piece))
            piece, rows = [], 0
        piece.append(source)
        rows += source.stored.rows
    return [*pieces, tuple(piece)] if piece else pieces
