"""Reads the entries of some digests, or of a bucket, block by block. A damaged block is found before it is used.

    fences    08…    31…    77…         a block begins at each
    digest    40…                       lies in the second block, and in no other

A few deleted keys need a few blocks, however large the table is. Each block has a CRC-32 in the document.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base.errors import DeltaCompactError
from deltacompact.iceberg.deletes.ranges import Prefixes, bounds_of, prefixes_of
from deltacompact.iceberg.key_index.document import IndexUnusableError, RunFile
from deltacompact.index.entries import Entries, none
from deltacompact.index.index_files import session_object
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.opening import open_object

WHOLE_SHARE = 0.5
"""If at least this share of a file's blocks is wanted, the file is read whole: fewer and longer requests."""


def of_bucket(store: ObjectStore, files: Sequence[RunFile], width: int, bucket: int, count: int) -> Entries:
    """The entries of a bucket, in the order of digests. Raises IndexUnusableError."""
    low, high = bounds_of(bucket, count)
    parts = []
    for file in files:
        fences = np.array(file.fences, np.uint64)
        first = max(0, int(np.searchsorted(fences, np.uint64(low), "left")) - 1)
        stop = int(np.searchsorted(fences, np.uint64(high), "right"))
        for block in _blocks(store, file, width, range(first, stop)):
            prefixes = prefixes_of(block)
            inside = (prefixes >= np.uint64(low)) & (prefixes <= np.uint64(high))
            parts.append(block if inside.all() else block[inside])
    return np.concatenate(parts) if parts else none(width)


def of_prefixes(store: ObjectStore, files: Sequence[RunFile], width: int, wanted: Prefixes) -> Iterator[Entries]:
    """The blocks that may have digests with these prefixes. Raises IndexUnusableError."""
    for file in files:
        fences = np.array(file.fences, np.uint64)
        first = np.maximum(np.searchsorted(fences, wanted, "left") - 1, 0)
        stop = np.searchsorted(fences, wanted, "right")
        steps = np.zeros(len(fences) + 1, np.int64)
        np.add.at(steps, first, 1)
        np.add.at(steps, np.maximum(first, stop), -1)
        yield from _blocks(store, file, width, np.flatnonzero(np.cumsum(steps[:-1])))


def _blocks(
    store: ObjectStore, file: RunFile, width: int, numbers: Sequence[int] | npt.NDArray[np.int64]
) -> Iterator[Entries]:
    if not len(numbers):
        return
    path, crc32s = file.file.path, file.file.crc32s
    is_whole = len(numbers) >= WHOLE_SHARE * len(crc32s)
    file_store, name = open_object(store, path)
    try:
        with session_object(store, path, None, file.file.bytes) if is_whole else file_store.open(name) as source:
            reader = pa.ipc.open_file(source)
            if reader.num_record_batches != len(crc32s):
                raise IndexUnusableError(f"{path} is damaged: blocks are missing")
            for number in numbers:
                column = reader.get_batch(int(number)).column(0)
                if column.type != pa.binary(width):
                    raise IndexUnusableError(f"{path} is damaged: its entries are {column.type}")
                raw = np.frombuffer(column.buffers()[1] or b"", np.uint8, len(column) * width, column.offset * width)
                if _kernels.crc32(raw) != crc32s[number]:
                    raise IndexUnusableError(f"{path} is damaged: the CRC-32 of block {number} differs")
                yield raw.reshape(-1, width)
    except (DeltaCompactError, pa.ArrowException, OSError, ValueError, TypeError, IndexError) as error:
        if isinstance(error, IndexUnusableError):
            raise
        raise IndexUnusableError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
