"""Tasks: dead rows of data files are written as position deletes, or as deletion vectors.

    a.parquet    dead 0, 2, 5    deleted before: 2      version 2    a 0 · a 5
                                                        version 3    vector of a: 0 2 5, in place of the former one

In version 2 deletes add up, so only newly dead rows are written. In version 3 a data file has one vector, so it holds
all of its dead rows (rule 18).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base.batching import batched
from deltacompact.base.distinct import distinct_numbers
from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import ReadLimits
from deltacompact.base.model import ContentType
from deltacompact.base.numbers import Ordinal
from deltacompact.base.partitions import side_by_side
from deltacompact.iceberg.deletes.dead_rows import FileScan, dead_positions, deleted_positions, kill
from deltacompact.iceberg.deletes.matching import PATH_COLUMN, POSITION_COLUMN
from deltacompact.iceberg.table import deletion_vectors, locations
from deltacompact.iceberg.table.locations import readable
from deltacompact.iceberg.table.puffin import VectorBlob, puffin_file
from deltacompact.index.live_bitmaps import Masks, live_mask, read_masks
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import writing
from deltacompact.tabular.field_ids import FIELD_ID
from deltacompact.tabular.row_groups import WriteOptions

POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={FIELD_ID: str(PATH_COLUMN)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={FIELD_ID: str(POSITION_COLUMN)}),
    ]
)
"""The columns of a position-delete file (spec, "Position Delete Files")."""
_ROWS_AT_ONCE = 64 << 10
_WRITES_AT_ONCE = 16
_ROWS_OF_WRITES_AT_ONCE = 2 << 20


@dataclass(frozen=True, slots=True)
class LiveBitmap:
    """Where the live bitmap of a data file lies: in a file of masks, under an ordinal. `crc32` None: not known."""

    masks_path: str
    ordinal: Ordinal
    crc32: int | None = None

    def of(self, masks: Masks) -> npt.NDArray[np.uint8]:
        """The bitmap, of the masks in its file. Raises CorruptionError if it is not the one that was written."""
        bits = masks.get(self.ordinal)
        if bits is None or self.crc32 not in (None, _kernels.crc32(bits)):
            raise CorruptionError(f"{self.masks_path} has another live bitmap than was written")
        return bits


DeadRowsIn = LiveBitmap | npt.NDArray[np.int64]
"""The dead rows of a data file: the zeros of its live bitmap, or their positions."""


@dataclass(frozen=True, slots=True)
class ScanToMark:
    """A `FileToMark` as a worker has it: the scan knows its former position deletes or its vector."""

    scan: FileScan
    dead: DeadRowsIn


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """The data files whose dead rows go to one delete file at `path`. Without newly dead rows, no file is written."""

    scans: tuple[ScanToMark, ...]
    path: str


@dataclass(frozen=True, slots=True)
class MarkTask:
    """Writes some delete files."""

    files: tuple[DeleteFile, ...]
    codec: str
    reading: ReadLimits


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """What was written for one data file: how many rows its delete file names, and how many of these are newly dead.

    first_row, last_row    the least and the greatest position
    offset, size           where its vector lies; 0 in version 2
    """

    rows: int
    new_rows: int
    first_row: int = 0
    last_row: int = 0
    offset: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class WrittenDeletes:
    """A written delete file: its size, and what it has for each data file, in order. Size 0: no file was needed."""

    file_bytes: int
    rows_of_each: tuple[WrittenRows, ...]


def write_positions(store: ObjectStore, task: MarkTask) -> list[WrittenDeletes]:
    """Write position-delete files, in the order of path and position. The scans of a file are in the order of paths.

    Small files take as long as the store takes to confirm them, so several are written at a time.
    """
    former = _Former(store, task)

    def write(file: DeleteFile) -> WrittenDeletes:
        return _write_positions(store, file, former, task.codec)

    # the rows of the data files are held in memory
    batches = batched(task.files, _rows_of_scans, _ROWS_OF_WRITES_AT_ONCE, _WRITES_AT_ONCE)
    return [written for batch in batches for written in side_by_side(batch, write, len(batch))]


def _rows_of_scans(file: DeleteFile) -> int:
    return sum(part.scan.stored.rows for part in file.scans)


def _write_positions(store: ObjectStore, file: DeleteFile, former: _Former, codec: str) -> WrittenDeletes:
    found = [(now[~before[now]], part.scan) for part, before, now in former.dead_rows(file)]
    written = tuple(_rows(rows, len(rows)) for rows, _ in found)
    if not any(rows.rows for rows in written):
        return WrittenDeletes(0, written)
    options = WriteOptions(ContentType.PARQUET, codec)
    with writing.writer(store, readable(file.path), POSITIONS, options) as out:
        for rows, scan in found:
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                piece = rows[start : start + _ROWS_AT_ONCE]
                paths = pa.repeat(pa.scalar(scan.stored.path, pa.string()), len(piece))
                out.write(pa.Table.from_arrays([paths, pa.array(piece)], schema=POSITIONS))
    return WrittenDeletes(out.bytes, written)


def write_vectors(store: ObjectStore, task: MarkTask) -> list[WrittenDeletes]:
    """Write Puffin files with a vector for each data file that has newly dead rows."""
    former = _Former(store, task)
    return [_write_vectors(store, file, former) for file in task.files]


def _write_vectors(store: ObjectStore, file: DeleteFile, former: _Former) -> WrittenDeletes:
    vectors: list[VectorBlob] = []
    counts: list[WrittenRows] = []
    for part, dead, now in former.dead_rows(file):
        new_rows = int(np.count_nonzero(~dead[now]))
        if not new_rows:
            counts.append(WrittenRows(0, 0))
            continue
        dead[now] = True
        rows = np.flatnonzero(dead)
        blob = deletion_vectors.blob_of(rows.astype(np.uint64))
        vectors.append(VectorBlob(part.scan.stored.path, blob, len(rows)))
        counts.append(_rows(rows, new_rows))
    if not vectors:
        return WrittenDeletes(0, tuple(counts))
    data, offsets = puffin_file(vectors)
    locations.put(store, file.path, data)
    places = iter(zip(offsets, vectors, strict=True))
    return WrittenDeletes(len(data), tuple(_placed(rows, *next(places)) if rows.rows else rows for rows in counts))


def _placed(rows: WrittenRows, offset: int, vector: VectorBlob) -> WrittenRows:
    return replace(rows, offset=offset, size=len(vector.blob))


def _rows(rows: npt.NDArray[np.int64], new_rows: int) -> WrittenRows:
    return WrittenRows(len(rows), new_rows, int(rows[0]), int(rows[-1])) if len(rows) else WrittenRows(0, 0)


class _Former:
    """Finds the rows that deletes by position named before. A task reads each position-delete file once."""

    def __init__(self, store: ObjectStore, task: MarkTask) -> None:
        scans = [part.scan for file in task.files for part in file.scans]
        self._store = store
        self._deleted = deleted_positions(store, scans, task.reading)
        self._masks = _Masks(store)

    def dead_rows(self, file: DeleteFile) -> Iterator[tuple[ScanToMark, npt.NDArray[np.bool_], npt.NDArray[np.int64]]]:
        """For each data file: which rows were dead before, and the sorted positions that are dead now."""
        dead_of_each = dead_positions(self._store, (part.scan for part in file.scans), self._deleted)
        for part, dead in zip(file.scans, dead_of_each, strict=True):
            lives = np.ones(part.scan.stored.rows, bool)
            kill(lives, dead, part.scan)
            yield part, ~lives, _positions_of(part, self._masks)


def _positions_of(part: ScanToMark, masks: _Masks) -> npt.NDArray[np.int64]:
    stored = part.scan.stored
    if isinstance(part.dead, LiveBitmap):
        return np.flatnonzero(~live_mask(masks.of(part.dead), stored.rows))
    positions = distinct_numbers(part.dead)
    if len(positions) and not (positions[0] >= 0 and positions[-1] < stored.rows):
        raise CorruptionError(f"{stored.path} has {stored.rows} rows, but row {positions[-1]} is to be deleted")
    return positions


class _Masks:
    """Loads live bitmaps. The last file of masks stays loaded, because neighbouring data files share it."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._loaded: tuple[str, Masks] = "", {}

    def of(self, bitmap: LiveBitmap) -> npt.NDArray[np.uint8]:
        path, masks = (
            self._loaded
        )  # one value, so that threads never see the path of one file with the masks of another
        if path != bitmap.masks_path:
            masks = read_masks(self._store, bitmap.masks_path)
            self._loaded = bitmap.masks_path, masks
        return bitmap.of(masks)
