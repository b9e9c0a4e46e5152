"""The numbers that the rows of an output, or of a run, have: a file that is written beside it (iceberg/row_map.py).

rows    0 … 131,071      numbers as little-endian u32, CRC-32      a record batch of one row, compressed
        131,072 …        numbers as little-endian u32, CRC-32      the next one

A writer holds about so many numbers: those of 10 million rows take 40 MB before compression.
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
from deltacompact.iceberg_modes.rewrite.live_slices import NUMBERS
from deltacompact.storage.objects import ObjectStore

NUMBERED_ROWS_MAX = 1 << 32
"""A group of more rows has no map."""

_VERSION = {b"deltacompact.numbers": b"1"}
_SCHEMA = pa.schema([("numbers", pa.large_binary()), ("crc32", pa.uint32())], _VERSION)
_BATCH_ROWS = 131_072
"""Cells come in pieces of a few rows: compressing each by itself would take longer than all else."""
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


@contextlib.contextmanager
def numbers_writer(store: ObjectStore, path: str | None) -> Iterator[Callable[[pa.Table], pa.Table]]:
    """Takes the column `NUMBERS` from the tables that it is given, and writes it, if there is a path."""
    if path is None:
        yield _without_numbers
        return
    waiting: list[npt.NDArray[np.uint32]] = []
    with store.writer(path) as sink, pa.ipc.new_stream(sink, _SCHEMA, options=_OPTIONS) as out:

        def flush() -> None:
            numbers = np.concatenate(waiting).view(np.uint8)
            waiting.clear()
            out.write_batch(pa.record_batch([[numbers.tobytes()], [_kernels.crc32(numbers)]], schema=_SCHEMA))

        def write(rows: pa.Table) -> pa.Table:
            waiting.append(rows[NUMBERS].to_numpy().astype("<u4"))
            if sum(map(len, waiting)) >= _BATCH_ROWS:
                flush()
            return _without_numbers(rows)

        yield write
        if waiting:
            flush()


def _without_numbers(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([NUMBERS]) if NUMBERS in rows.column_names else rows


def read_numbers(store: ObjectStore, path: str, rows: int | None = None) -> npt.NDArray[np.integer]:
    """The numbers in a file. Raises CorruptionError if it is damaged, or has not so many."""
    try:
        stream = pa.ipc.open_stream(store.get(path))
        if stream.schema.metadata != _VERSION:
            raise CorruptionError(f"{path} has the numbers of rows in a form that we do not know")
        blocks = stream.read_all()
    except (pa.ArrowException, OSError) as error:
        raise CorruptionError(f"{path} is damaged: {text_of(error)}") from error
    found = [np.frombuffer(block.as_buffer(), np.uint8) for block in blocks["numbers"]]
    if [_kernels.crc32(block) for block in found] != blocks["crc32"].to_pylist():
        raise CorruptionError(f"{path} is damaged: a CRC-32 differs")
    numbers = np.concatenate([np.empty(0, np.uint32), *(block.view("<u4") for block in found)])
    if rows is not None and len(numbers) != rows:
        raise CorruptionError(f"{path} has the numbers of {len(numbers)} rows, not of {rows}")
    return numbers
