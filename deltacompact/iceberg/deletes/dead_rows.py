"""Task: the live rows of some data files, after equality deletes, position deletes and deletion vectors.

    a.parquet    sequence 5    rows 0‥3    id 1 2 3 4
    key set      digest(2) -> 6, digest(4) -> 5             row 1 is dead; row 3 lives: 5 < 5 is false (rule 16)
    positions    a.parquet: 0                               row 0 is dead
    live bitmap  0011

Positions count the rows of the stored file (rule 15). For keys, a task reads only the equality columns, in pieces, and
searches one hash bucket of a key set after the other for the digests of a piece. The bitmaps have the engine's form, so
its `materialize` step writes the outputs.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base import compute as pc
from deltacompact.base.batching import batched
from deltacompact.base.data_file import DataFile, Fill
from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import ReadLimits
from deltacompact.base.numbers import Ordinal
from deltacompact.iceberg.deletes.delete_keys import as_arrow, digests, prefixes, read_buckets
from deltacompact.iceberg.deletes.matching import PATH_COLUMN, POSITION_COLUMN
from deltacompact.iceberg.deletes.ranges import buckets_of, read_batch
from deltacompact.iceberg.table import deletion_vectors
from deltacompact.iceberg.table.locations import readable
from deltacompact.iceberg.table.name_mapping import Mapped, Names
from deltacompact.iceberg.table.parquet_files import (
    FileSlice,
    StoredFile,
    WantedFile,
    described_each,
    opened_each,
    tables_each,
)
from deltacompact.index.live_bitmaps import write_masks
from deltacompact.storage.fetched_file import begun_ahead
from deltacompact.storage.objects import Fetches, ObjectStore
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

_NAMES = {"file_path": Mapped(PATH_COLUMN), "pos": Mapped(POSITION_COLUMN)}
"""Writers that know no field ids use the names of the spec."""
_NEEDED = dict.fromkeys((PATH_COLUMN, POSITION_COLUMN), "so it deletes nothing by position")


@dataclass(frozen=True, slots=True)
class KeySet:
    """Deleted keys: for each hash bucket, the files that hold its keys. `columns` are named by their field ids."""

    columns: pa.Schema
    buckets: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class PuffinVector:
    """A deletion vector: where it lies in a Puffin file."""

    path: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class FileScan:
    """A file scan task as a worker carries it out. Equality deletes have become numbers of key sets.

    own, shared     position deletes that name this file alone, and those that may name several
    unfillable      columns (by id, with the reason) whose values we cannot fill in: the file must have them
    fills           values of columns that the file lacks: defaults and row lineage
    constants       values of columns that its partition tells
    names           find columns in a file without field ids
    first_row       the number of its first row among the rows of all files
    is_opened       False: nobody needs its columns, so the file stays closed
    """

    ordinal: Ordinal
    stored: StoredFile
    key_sets: tuple[int, ...] = ()
    shared: tuple[StoredFile, ...] = ()
    own: tuple[StoredFile, ...] = ()
    vector: PuffinVector | None = None
    unfillable: tuple[tuple[int, str], ...] = ()
    fills: tuple[Fill, ...] = ()
    constants: tuple[Fill, ...] = ()
    names: Names | None = None
    first_row: int = 0
    is_opened: bool = True

    def wanted(self, columns: pa.Schema) -> WantedFile:
        """The file, to be read with those of `columns` that it has or that are filled."""
        return WantedFile(self.stored, columns, dict(self.unfillable), self.fills, self.names, self.constants)


@dataclass(frozen=True, slots=True)
class DeadRowsTask:
    """Finds the dead rows of some files. Their live bitmaps go to `masks_path`.

    `looked_up` are files with the numbers of rows that a key index found dead; their batch `group` is that of `scans`.
    """

    scans: tuple[FileScan, ...]
    key_sets: tuple[tuple[int, KeySet], ...]
    columns: pa.Schema
    masks_path: str
    rows_at_once: int
    reading: ReadLimits
    looked_up: tuple[str, ...] = ()
    group: int = 0


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A data file, ready to be read, with the numbers of its live rows, and of its dead ones by cause.

    `mask_crc32`: the checksum of its live bitmap.
    """

    ordinal: Ordinal
    file: DataFile
    live_rows: int
    dead_by_position: int
    dead_by_key: int
    mask_crc32: int


def find_dead_rows(store: ObjectStore, task: DeadRowsTask) -> list[ScannedFile]:
    """Write the live bitmaps. Raises InputError naming a bad file, CorruptionError for a position beyond the end."""
    deleted = deleted_positions(store, task.scans, task.reading)
    under_way = []
    dead_of_each = dead_positions(store, task.scans, deleted)
    for scan, file, dead in zip(task.scans, _described(store, task), dead_of_each, strict=True):
        lives = np.ones(file.rows, bool)
        kill(lives, dead, scan)
        under_way.append(_FileScanning(scan, file, lives, file.rows - int(lives.sum())))
    for numbers in read_batch(store, task.looked_up, task.group, 8):
        _kill_looked_up(under_way, numbers.view(np.int64).reshape(-1))
    of_key_set: dict[int, list[_FileScanning]] = defaultdict(list)
    for opened_scan in under_way:
        for number in opened_scan.scan.key_sets:
            of_key_set[number].append(opened_scan)
    _kill_by_keys(store, of_key_set, task)
    write_masks(store, task.masks_path, {opened_scan.scan.ordinal: opened_scan.mask for opened_scan in under_way})
    return [opened_scan.scanned for opened_scan in under_way]


def _described(store: ObjectStore, task: DeadRowsTask) -> Iterator[DataFile]:
    """The data files, described by their footers. Those that stay closed have no columns."""
    wanted = [scan.wanted(task.columns) for scan in task.scans]
    to_open = (opened_scan for opened_scan, scan in zip(wanted, task.scans, strict=True) if scan.is_opened)
    opened = described_each(store, to_open, task.reading)
    for opened_scan, scan in zip(wanted, task.scans, strict=True):
        yield next(opened) if scan.is_opened else opened_scan.part.file


def _kill_looked_up(scans: Sequence[_FileScanning], numbers: npt.NDArray[np.int64]) -> None:
    for opened_scan in scans:
        first = opened_scan.scan.first_row
        start, stop = np.searchsorted(numbers, [first, first + len(opened_scan.lives)])
        opened_scan.lives[numbers[start:stop] - first] = False


@dataclass(frozen=True, slots=True)
class _FileScanning:
    """A scan under way: the data file, which of its rows live, and how many are dead by position."""

    scan: FileScan
    file: DataFile
    lives: npt.NDArray[np.bool_]
    dead_by_position: int

    @property
    def mask(self) -> npt.NDArray[np.uint8]:
        return np.packbits(self.lives, bitorder="little")

    @property
    def scanned(self) -> ScannedFile:
        live_rows = int(self.lives.sum())
        dead_by_key = self.file.rows - self.dead_by_position - live_rows
        crc32 = _kernels.crc32(self.mask)
        return ScannedFile(self.scan.ordinal, self.file, live_rows, self.dead_by_position, dead_by_key, crc32)


# Positions


@dataclass(frozen=True, slots=True)
class DeletedPositions:
    """The rows that the position deletes of some scans name, by path, with the delete file that names them.

    Some are not those of a scan: a delete file that another scan brings may also name a former file of the same path.
    `shared` has each tuple of `FileScan.shared` as a set, by its id: thousands of scans have the same tuple.
    """

    by_path: Mapping[str, Sequence[tuple[StoredFile, npt.NDArray[np.int64]]]]
    shared: Mapping[int, frozenset[StoredFile]]

    def of(self, scan: FileScan) -> list[npt.NDArray[np.int64]]:
        """The rows that the scan's own delete files name, maybe several times."""
        shared, own = self.shared[id(scan.shared)], frozenset(scan.own)
        named = self.by_path.get(scan.stored.path, ()) if shared or own else ()
        return [rows for delete, rows in named if delete in shared or delete in own]


def dead_positions(
    store: ObjectStore, scans: Iterable[FileScan], deleted: DeletedPositions
) -> Iterator[list[npt.NDArray[np.int64]]]:
    """Of each file, the rows that its vector or its position deletes name, maybe several times."""
    for scan, blob in begun_ahead(scans, lambda scan: (scan, _blob(store, scan.vector))):
        dead = deleted.of(scan)
        if scan.vector is not None:
            dead.append(deletion_vectors.positions(blob(), scan.vector.path).astype(np.int64))
        yield dead


def _blob(store: ObjectStore, vector: PuffinVector | None) -> Callable[[], bytes]:
    """A function that gives the bytes of a vector. A remote vector is requested now, so that thousands overlap."""
    if vector is None:
        return bytes
    file_store, name = open_object(store, readable(vector.path))
    if isinstance(file_store, Fetches):
        answer = file_store.fetch(name, vector.offset, vector.size)
        return lambda: bytes(answer.result().data)

    def read() -> bytes:
        with file_store.open(name) as file:
            return bytes(file.read_at(vector.size, vector.offset))

    return read


def kill(lives: npt.NDArray[np.bool_], dead: Iterable[npt.NDArray[np.int64]], scan: FileScan) -> None:
    """Mark rows as dead in `lives`. Raises CorruptionError for a position beyond the end."""
    for rows in dead:
        if len(rows) and (rows.max() >= len(lives) or rows.min() < 0):
            raise CorruptionError(
                f"{scan.stored.path} has {len(lives)} rows, but row {rows.max()} is deleted by position"
            )
        lives[rows] = False


def deleted_positions(store: ObjectStore, scans: Sequence[FileScan], reading: ReadLimits) -> DeletedPositions:
    """The deleted positions of these files. Each position-delete file is read once."""
    wanted = {scan.stored.path for scan in scans if scan.own or scan.shared}
    paths = pa.array(sorted(wanted), pa.large_string())
    shared = {id(scan.shared): scan.shared for scan in scans}
    deletes = list(dict.fromkeys(itertools.chain(*shared.values(), *(scan.own for scan in scans))))
    found: dict[str, list[tuple[StoredFile, npt.NDArray[np.int64]]]] = defaultdict(list)
    to_read = (WantedFile(delete, _POSITIONS, _NEEDED, names=_NAMES) for delete in deletes)
    for delete, opened in zip(deletes, opened_each(store, to_read, reading), strict=True):
        for _, table in opened.tables(_POSITIONS):
            numbers = pc.index_in(table["file_path"], value_set=paths)
            ours = table.append_column("number", numbers).filter(pc.is_valid(numbers))
            path_numbers = np.asarray(ours["number"])
            rows = np.asarray(ours["pos"])
            for number in np.unique(path_numbers):
                found[paths[number].as_py()].append((delete, rows[path_numbers == number]))
    return DeletedPositions(found, {number: frozenset(of_scans) for number, of_scans in shared.items()})


# Keys


class _Keys:
    """Loads the buckets of a key set when they are needed, and keeps the last one.

    A small key set has one bucket, which is the next table of `small`.
    """

    def __init__(self, store: ObjectStore, key_set: KeySet, small: Iterator[pa.Table]) -> None:
        self._store = store
        self._key_set = key_set
        self._loaded = (0, next(small).combine_chunks()) if len(key_set.buckets) == 1 else None

    @property
    def bucket_count(self) -> int:
        return len(self._key_set.buckets)

    def bucket(self, number: int) -> pa.Table:
        if self._loaded is None or self._loaded[0] != number:
            self._loaded = None  # frees the former bucket before the next is loaded
            (keys,) = read_buckets(self._store, [self._key_set.buckets[number]])
            self._loaded = number, keys.combine_chunks()
        return self._loaded[1]


@dataclass(frozen=True, slots=True)
class _DigestedRows:
    """Digests of consecutive rows of a file, by the columns of a key set. The first is that of row `start`."""

    key_set: int
    of: _FileScanning
    start: int
    digests: npt.NDArray[np.uint8]


def _kill_by_keys(store: ObjectStore, of_key_set: Mapping[int, Sequence[_FileScanning]], task: DeadRowsTask) -> None:
    """Mark the rows as dead whose keys a key set deletes.

    Each partition has its own key set, so there may be thousands of small ones: keys and files are fetched ahead.
    """
    small = read_buckets(store, (key_set.buckets[0] for _, key_set in task.key_sets if len(key_set.buckets) == 1))
    pieces = itertools.groupby(_pieces(store, of_key_set, task), lambda piece: piece.key_set)
    found = next(pieces, None)
    for number, key_set in task.key_sets:
        keys = _Keys(store, key_set, small)
        if found is not None and found[0] == number:
            _kill_by_key(found[1], keys, task.rows_at_once)
            found = next(pieces, None)


def _kill_by_key(pieces: Iterable[_DigestedRows], keys: _Keys, rows_at_once: int) -> None:
    """Search one key set for the rows of many files together, because each search hashes a bucket's keys anew."""
    for batch in batched(pieces, lambda piece: len(piece.digests), rows_at_once):
        _kill_pieces(batch, keys)
        del batch  # before the next one is read


def _pieces(
    store: ObjectStore, of_key_set: Mapping[int, Sequence[_FileScanning]], task: DeadRowsTask
) -> Iterator[_DigestedRows]:
    """The digests of all rows that a key set may delete, in the order of the task's key sets."""
    places: list[tuple[int, _FileScanning, int]] = []
    wanted: list[FileSlice] = []
    for number, key_set in task.key_sets:
        for opened_scan in of_key_set.get(number, ()):
            file = field_ids.matched(opened_scan.file, key_set.columns)
            for start in range(0, file.rows, task.rows_at_once):
                places.append((number, opened_scan, start))
                wanted.append((file, key_set.columns, (start, min(file.rows, start + task.rows_at_once))))
    for (number, opened_scan, start), slices in zip(places, tables_each(store, wanted, task.reading), strict=True):
        path = opened_scan.scan.stored.path
        yield _DigestedRows(
            number, opened_scan, start, np.concatenate([digests(table, table.schema, path) for _, table in slices])
        )


def _kill_pieces(pieces: Sequence[_DigestedRows], keys: _Keys) -> None:
    asked = as_arrow(np.concatenate([piece.digests for piece in pieces]))
    sizes = [len(piece.digests) for piece in pieces]
    written = np.repeat(np.array([piece.of.scan.stored.sequence_number for piece in pieces], np.int64), sizes)
    are_dead = np.zeros(len(asked), bool)
    buckets = buckets_of(prefixes(asked), keys.bucket_count) if keys.bucket_count > 1 else None
    for bucket in range(keys.bucket_count):
        rows = None if buckets is None else np.flatnonzero(buckets == bucket)
        ours = asked if rows is None else asked.take(pa.array(rows))
        dead = _deleted(ours, keys.bucket(bucket), written if rows is None else written[rows])
        are_dead[dead if rows is None else rows[dead]] = True
    for piece, of_piece in zip(pieces, np.split(are_dead, np.cumsum(sizes)[:-1]), strict=True):
        piece.of.lives[piece.start : piece.start + len(of_piece)] &= ~of_piece


def _deleted(asked: pa.Array, keys: pa.Table, written: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The places of the digests that a newer delete has: data sequence number < the delete's (rule 1).

    `written` has the data sequence number of each row.
    """
    if not keys.num_rows:
        return np.empty(0, np.int64)
    found = pc.index_in(asked, value_set=keys["digest"].combine_chunks())
    places = np.flatnonzero(np.asarray(pc.is_valid(found)))
    deleted = np.asarray(keys["sequence"])[np.asarray(found.drop_null())]
    newer: npt.NDArray[np.int64] = places[written[places] < deleted]
    return newer


def in_pieces(scans: Sequence[FileScan], rows_max: int) -> list[tuple[FileScan, ...]]:
    """Files in tasks of about so many rows."""
    return [tuple(piece) for piece in batched(scans, lambda scan: scan.stored.rows, rows_max)]
