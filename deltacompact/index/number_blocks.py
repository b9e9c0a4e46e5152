"""Where rows went that have no order any more: a number for each row, in blocks. The one stored form of such a map.

rows    0 … 131,071      numbers as little-endian u32, CRC-32      a record batch of one row, compressed
        131,072 …        numbers as little-endian u32, CRC-32      the next one

x.numbers        beside an output of Iceberg, or a run: which live row each of its rows is      (iceberg/row_map.py)
x.moves.arrow    beside an index: the place of each live row of files that were laid out anew   (index/remap.py)

Whoever writes or reads holds about a block at a time. The numbers of 10 million rows take 40 MB before compression.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

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


@contextlib.contextmanager
def numbers_sink(store: ObjectStore, path: str) -> Iterator[Callable[[npt.NDArray[np.integer]], None]]:
    """A file of numbers, which are below `NUMBERED_ROWS_MAX`, some at a time."""
    waiting: list[NumberBlock] = []  # rows come a few at a time: to compress each few would take longer than all else
    with store.writer(path) as sink, pa.ipc.new_stream(sink, _SCHEMA, options=_OPTIONS) as out:

        def flush() -> None:
            numbers = np.concatenate(waiting)
            waiting.clear()
            for start in range(0, len(numbers), BLOCK_ROWS):
                block = numbers[start : start + BLOCK_ROWS].view(np.uint8)
                out.write_batch(pa.record_batch([[block.tobytes()], [_kernels.crc32(block)]], schema=_SCHEMA))

        def write(numbers: npt.NDArray[np.integer]) -> None:
            waiting.append(numbers.astype("<u4"))
            if sum(map(len, waiting)) >= BLOCK_ROWS:
                flush()

        yield write
        if waiting:
            flush()


def read_numbers(source: pa.NativeFile, path: str, rows: int) -> Iterator[NumberBlock]:
    """The numbers in an open file, a block at a time. Raises CorruptionError if it is damaged, or has not so many."""
    found = 0
    try:
        is_former = source.read(len(_FORMER)) == _FORMER
        source.seek(0)
        for block in _former(source, path) if is_former else _blocks(source, path):
            found += len(block)
            yield block
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise CorruptionError(f"{path} is damaged: {text_of(error)}") from error
    if found != rows:
        raise CorruptionError(f"{path} has the numbers of {found} rows, not of {rows}")


def _blocks(source: pa.NativeFile, path: str) -> Iterator[NumberBlock]:
    stream = pa.ipc.open_stream(source)
    if stream.schema.metadata != _VERSION:
        raise CorruptionError(f"{path} has the numbers of rows in a form that we do not know")
    for batch in stream:
        for numbers, crc32 in zip(*batch.columns, strict=True):
            block = np.frombuffer(numbers.as_buffer() or b"", "<u4")
            _check(block, str(crc32).encode(), path)
            yield block


def _former(source: pa.NativeFile, path: str) -> Iterator[NumberBlock]:
    table = pa.ipc.open_file(source).read_all()
    moves: NumberBlock = np.array(table["destination"].to_numpy())
    _check(moves, table.schema.metadata[b"crc32"], path)
    yield moves


def _check(block: NumberBlock, crc32: bytes, path: str) -> None:
    if str(_kernels.crc32(block)).encode() != crc32:
        raise CorruptionError(f"{path} is damaged: a CRC-32 differs")
