"""Live bitmaps: one bit for each row of a file, least significant first, set if the row lives.

    rows    0 1 2 3 4 5 6 7 | 8 9
    live    x   x x     x   |   x        bytes 4d 02

One Arrow IPC file stores the bitmaps (masks) of a group of files. Materialize filters rows with them. The index finds
with them where the rows of a rewritten file went: the number of set bits before a row is the row's rank. A file that
stays although it has dead rows has a deletion vector, which names its bitmap.
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.base.numbers import Ordinal
from deltacompact.base.partitions import side_by_side
from deltacompact.index.index_files import session_object
from deltacompact.storage.fetched_file import ReadAhead, announce, begun_ahead
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.opening import open_object
from deltacompact.tabular import files
from deltacompact.tabular.files import Part
from deltacompact.tabular.units import Slices

Masks = dict[Ordinal, npt.NDArray[np.uint8]]
"""By ordinal: one bit for each row of the file, least significant first, set if the row lives."""

_SCHEMA = pa.schema([("ordinal", pa.uint32()), ("bits", pa.large_binary()), ("crc32", pa.uint32())])


@contextlib.contextmanager
def naming_file(path_of: Callable[[int], str]) -> Iterator[None]:
    """Turn a kernel's ValueError about a row of a source into a CorruptionError that names the file."""
    try:
        yield
    except ValueError as error:
        if (named := re.match(r"file ordinal (\d+) ", str(error))) is None:
            raise
        path, what = path_of(int(named[1])), str(error)[named.end() :]
        raise CorruptionError(
            f"{path}: the primary key index contradicts the live rows of this file: {what}"
        ) from error


def write_masks(store: ObjectStore, path: str, masks: Masks) -> None:
    """Store the masks as one Arrow IPC file."""
    columns = [
        pa.array(list(masks), pa.uint32()),
        pa.array([bits.tobytes() for bits in masks.values()], pa.large_binary()),
        pa.array([_kernels.crc32(bits) for bits in masks.values()], pa.uint32()),
    ]
    file_store, name = open_object(store, path)
    with file_store.writer(name) as sink, pa.ipc.new_file(sink, _SCHEMA) as out:
        out.write_batch(pa.record_batch(columns, schema=_SCHEMA))


def read_masks(store: ObjectStore, path: str, limits: ReadLimits = READ_LIMITS) -> Masks:
    """The masks of one file. Raises CorruptionError if a checksum differs."""
    (masks,) = read_each_masks(store, [path], limits)
    return masks


def read_each_masks(
    store: ObjectStore,
    paths: Iterable[str],
    limits: ReadLimits = READ_LIMITS,
    wanted: Collection[Ordinal] | None = None,
) -> Iterator[Masks]:
    """The masks of each file, in order; only those of `wanted`, if given. Remote files are fetched ahead."""
    ahead = ReadAhead(limits)
    for path, opened in begun_ahead(paths, lambda path: (path, session_object(store, path, ahead))):
        masks: Masks = {}
        with opened as source:
            announce(source)
            table = pa.ipc.open_file(source).read_all()
            if wanted is not None:  # the object may have thousands of masks, of which a task needs a few
                table = table.filter(pa.array(np.isin(np.asarray(table["ordinal"]), list(wanted))))
            for ordinal, bits, crc32 in zip(*table.columns, strict=True):
                mask = np.frombuffer(bits.as_buffer() or b"", np.uint8).copy()
                if _kernels.crc32(mask) != crc32.as_py():
                    raise CorruptionError(f"{store.uri}{path}: CRC-32 of a mask differs")
                masks[ordinal.as_py()] = mask
        yield masks


class LiveBits:
    """The live bitmaps of files with deletion vectors. Reads each object of masks once, whichever threads ask.

    One object has the masks of many files, so the readers of a snapshot share one LiveBits.
    """

    def __init__(self, store: ObjectStore, limits: ReadLimits = READ_LIMITS) -> None:
        self._store = store
        self._cached = functools.cache(functools.partial(read_masks, store, limits=limits))
        self._reading = defaultdict[str, threading.Lock](threading.Lock)

    def read(self, files: Iterable[DataFile], at_once: int) -> None:
        """Read the objects with the masks of these files, so many at a time. Then `of` reads nothing."""
        side_by_side({file.deletions.masks_path for file in files if file.deletions}, self._masks, at_once)

    def of(self, file: DataFile) -> npt.NDArray[np.uint8] | None:
        """The live bitmap of a file; None: all rows live."""
        if file.deletions is None:
            return None
        masks = self._masks(file.deletions.masks_path)
        if file.deletions.ordinal not in masks:
            raise CorruptionError(f"{self._store.uri}{file.deletions.masks_path} has no mask for {file.path}")
        return masks[file.deletions.ordinal]

    def _masks(self, path: str) -> Masks:
        with self._reading[path]:
            return self._cached(path)


LiveSlices = Iterator[tuple[npt.NDArray[np.uint64], pa.Table]]
"""Live rows of one file: their row numbers in the file, and the rows."""


def live_tables(
    store: ObjectStore,
    file: DataFile,
    columns: Sequence[str] | None = None,
    rows: tuple[int, int] | None = None,
    limits: ReadLimits = READ_LIMITS,
) -> LiveSlices:
    """Slices like those of `files.read`, without dead rows."""
    for slices in live_tables_of_each(store, [Part(file, columns, rows)], limits):
        yield from slices


def live_tables_of_each(store: ObjectStore, parts: Sequence[Part], limits: ReadLimits) -> Iterator[LiveSlices]:
    """Slices like those of `files.read_each`, without dead rows."""
    bits = LiveBits(store, limits)
    for part, slices in zip(parts, files.read_each(store, parts, limits), strict=True):
        yield _without_dead(slices, part.file, bits.of(part.file))


def _without_dead(slices: Slices, file: DataFile, bits: npt.NDArray[np.uint8] | None) -> LiveSlices:
    lives = None if bits is None else live_mask(bits, file.rows)
    for first, table in slices:
        row_numbers = np.arange(first, first + table.num_rows, dtype=np.uint64)
        if lives is not None and not (wanted := lives[first : first + table.num_rows]).all():
            row_numbers, table = row_numbers[wanted], table.filter(pa.array(wanted))
        yield row_numbers, table


def live_mask(bits: npt.NDArray[np.uint8], rows: int) -> npt.NDArray[np.bool_]:
    return np.unpackbits(bits, count=rows, bitorder="little").view(bool)
