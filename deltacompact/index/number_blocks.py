"""Where rows went that have no order any more: a number for each row, in blocks. The one stored form of such a map.

rows    0 … 131,071      numbers as little-endian u32, CRC-32      a record batch of one row, compressed
        131,072 …        numbers as little-endian u32, CRC-32      the next one

x.numbers        beside an output of Iceberg, or a run: which live row each of its rows is      (iceberg/row_map.py)
x.moves.arrow    beside an index: the place of each live row of files that were laid out anew   (index/remap.py)

Whoever writes or reads holds about a block at a time. The numbers of 10 million rows take 40 MB before compression.
The checksum of a file is the CRC-32 of those of its blocks: whoever keeps it knows the file from another one.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltacompact import _kernels
from deltacompact.base.errors import CorruptionError
from deltacompact.base.wording import text_of
from deltacompact.storage.objects import ObjectStore

NumberBlock = npt.NDArray[np.uint32]
NUMBERED_ROWS_MAX = 1 << 32
"""More rows have no map."""
BLOCK_ROWS = 128 << 10

_VERSION = {b"deltacompact.numbers": b"1"}
_SCHEMA = pa.schema([("numbers", pa.large_binary()), ("crc32", pa.uint32())], _VERSION)
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")
_FORMER = b"ARROW1"
"""How a file begins that has the numbers in one column, and one CRC-32 in its schema: moves of former indexes."""


@dataclass(frozen=True, slots=True)
class StoredNumbers:
    """A file of numbers, and its checksum; None: it is not known."""

    path: str
    crc32: int | None = None


@dataclass(slots=True)
class NumbersSink:
    """Takes numbers below `NUMBERED_ROWS_MAX`, some at a time. `crc32`: the file's checksum, once it is complete."""

    out: pa.ipc.RecordBatchStreamWriter
    crc32: int = 0
    waiting: list[NumberBlock] = field(default_factory=list)
    """Rows come a few at a time: to compress each few would take longer than all else."""

    def __call__(self, numbers: npt.NDArray[np.integer]) -> None:
        self.waiting.append(numbers.astype("<u4"))
        if sum(map(len, self.waiting)) >= BLOCK_ROWS:
            self.flush()

    def flush(self) -> None:
        numbers = np.concatenate([np.empty(0, "<u4"), *self.waiting])
        self.waiting.clear()
        for start in range(0, len(numbers), BLOCK_ROWS):
            block = numbers[start : start + BLOCK_ROWS].view(np.uint8)
            crc32 = _kernels.crc32(block)
            self.out.write_batch(pa.record_batch([[block.tobytes()], [crc32]], schema=_SCHEMA))
            self.crc32 = _with_block(self.crc32, crc32)


def _with_block(crc32: int, of_block: int) -> int:
    return zlib.crc32(of_block.to_bytes(4, "little"), crc32)


@contextlib.contextmanager
def numbers_sink(store: ObjectStore, path: str) -> Iterator[NumbersSink]:
    """A file of numbers."""
    with store.writer(path) as sink, pa.ipc.new_stream(sink, _SCHEMA, options=_OPTIONS) as out:
        numbers = NumbersSink(out)
        yield numbers
        numbers.flush()


def read_numbers(source: pa.NativeFile, path: str, rows: int, crc32: int | None = None) -> Iterator[NumberBlock]:
    """The numbers in an open file, a block at a time.

    Raises CorruptionError if it is damaged, or has not so many, or has another checksum than `crc32`.
    """
    found, of_blocks = 0, 0
    try:
        is_former = source.read(len(_FORMER)) == _FORMER
        source.seek(0)
        for block, of_block in _former(source, path) if is_former else _blocks(source, path):
            found += len(block)
            of_blocks = _with_block(of_blocks, of_block)
            yield block
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise CorruptionError(f"{path} is damaged: {text_of(error)}") from error
    if found != rows:
        raise CorruptionError(f"{path} has the numbers of {found} rows, not of {rows}")
    if crc32 not in (None, of_blocks):
        raise CorruptionError(f"{path} has other numbers than were written")


def _blocks(source: pa.NativeFile, path: str) -> Iterator[tuple[NumberBlock, int]]:
    stream = pa.ipc.open_stream(source)
    if stream.schema.metadata != _VERSION:
        raise CorruptionError(f"{path} has the numbers of rows in a form that we do not know")
    for batch in stream:
        for numbers, crc32 in zip(*batch.columns, strict=True):
            block = np.frombuffer(numbers.as_buffer() or b"", "<u4")
            yield block, _checked(block, str(crc32).encode(), path)


def _former(source: pa.NativeFile, path: str) -> Iterator[tuple[NumberBlock, int]]:
    table = pa.ipc.open_file(source).read_all()
    moves: NumberBlock = np.array(table["destination"].to_numpy())
    yield moves, _checked(moves, table.schema.metadata[b"crc32"], path)


def _checked(block: NumberBlock, stored: bytes, path: str) -> int:
    crc32 = _kernels.crc32(block)
    if str(crc32).encode() != stored:
        raise CorruptionError(f"{path} is damaged: a CRC-32 differs")
    return crc32
