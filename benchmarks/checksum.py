"""Does the result hold the right rows? A count, and a sum over rows of a hash of every value: order does not matter.

    key 7, amount 0.5, …  ->  0x9e37…  |  sum over all rows, modulo 2^64

Of strings and payloads the length and the first and last 8 bytes go in, with zeros where there are fewer; of decimals
the unscaled value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Rows, and the sum of their hashes."""

    rows: int
    checksum: int

    def __str__(self) -> str:
        return f"{self.rows:,} rows, checksum {self.checksum:016x}"


def fingerprint(files: Iterable[Path | pa.NativeFile], columns: Iterable[str]) -> Fingerprint:
    """The fingerprint of all rows of Parquet files. A column that a file lacks is left out, so the sum differs."""
    return fingerprint_of(_batches(files, sorted(columns)))


def fingerprint_of(batches: Iterable[pa.RecordBatch]) -> Fingerprint:
    """The fingerprint of rows, by all their columns."""
    rows, total = 0, 0
    for batch in batches:
        rows += batch.num_rows
        total += int(row_hashes(pa.Table.from_batches([batch]), batch.schema.names).sum(dtype=np.uint64))
    return Fingerprint(rows, total % 2**64)


def _batches(files: Iterable[Path | pa.NativeFile], columns: list[str]) -> Iterator[pa.RecordBatch]:
    for file in files:
        reader = pq.ParquetFile(file)
        there = [name for name in columns if name in reader.schema_arrow.names]
        yield from reader.iter_batches(128 << 10, columns=there)


def row_hashes(table: pa.Table, columns: Iterable[str]) -> Words:
    """A hash of 64 bits for each row. Widths and units, which engines choose differently, do not count."""
    hashes = np.zeros(table.num_rows, np.uint64)
    for name in sorted(columns):
        for word in _words(table[name].combine_chunks()):
            hashes = _mixed(hashes ^ word)
    return hashes


def _words(column: pa.Array) -> list[Words]:
    kind = column.type
    if column.null_count:
        raise ValueError("the benchmark's tables hold no nulls")
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], kind)
    if pa.types.is_floating(kind):
        return [column.cast(pa.float64()).to_numpy(zero_copy_only=False).view(np.uint64)]
    if pa.types.is_decimal(kind):
        wide = column.cast(pa.decimal128(38, kind.scale))
        halves = np.frombuffer(wide.buffers()[1] or b"", np.uint64)[2 * wide.offset : 2 * (wide.offset + len(wide))]
        return [halves[0::2], halves[1::2]]
    if pa.types.is_date(kind):
        return _words(column.cast(pa.date32()).cast(pa.int32()))
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz))
        return [column.cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64)]
    if pa.types.is_integer(kind):
        return [column.cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64)]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        column = column.cast(pa.large_string())
    column = column.cast(pa.large_binary())
    if not len(column):
        return [np.zeros(0, np.uint64)]
    ends = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(column.buffers()[2] or bytes(8), np.uint8)
    return [np.diff(ends).view(np.uint64), _eight(data, ends, ends[:-1]), _eight(data, ends, ends[1:] - 8)]


def _eight(data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> Words:
    """Eight bytes from each start; zeros for those before or after the string, which lies between two of `ends`."""
    places = starts[:, None] + np.arange(8)
    if int(np.diff(ends).min()) >= 8:
        return np.ascontiguousarray(data[places]).view(np.uint64).reshape(-1)
    own = (places >= ends[:-1, None]) & (places < ends[1:, None])
    found = np.where(own, data[np.where(own, places, 0)], np.uint8(0))
    return np.ascontiguousarray(found).view(np.uint64).reshape(-1)


def _mixed(words: Words) -> Words:
    """splitmix64."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
