"""Row groups in which every row lives go from file to file as they are encoded: nothing is decoded, nothing encoded.

    source 14   [group 0: all live] [group 1: 3 rows dead] [group 2: all live]
    output 17   [group 0, copied  ] [group 1, filtered and encoded] [group 2, copied]

A full rewrite costs at least decode and encode of every byte; this does not. A group is copied where the source has
exactly the columns of the output, where the codec is the one asked for, and where the group is large enough to be worth
keeping. Statistics, page indexes and histograms go with it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from deltacompact import _kernels
from deltacompact.errors import CorruptionError
from deltacompact.files import ROW_GROUP_BYTES, RowGroups, WriteOptions, parquet_writer

CREATED_BY = "deltacompact version 0.1.0"
"""In the form that other readers parse: they distrust statistics of files that do not say who wrote them."""

READ_AHEAD_BYTES = 8 << 20

GROUP_SHARE_MIN = 0.25
GROUP_SHARE_MAX = 8
"""Row groups are copied that are between so many times a full one, by rows or by bytes: smaller ones are merged with
their neighbours, and of larger ones a single dead row would have too much decoded some day."""


@dataclass(frozen=True, slots=True)
class Run:
    """Row groups of a file that follow each other, and the half-open range of rows that they are."""

    groups: range
    start: int
    stop: int


def copyable_runs(
    reader: pq.ParquetFile,
    schema: pa.Schema,
    options: WriteOptions,
    lives: npt.NDArray[np.bool_],
    rows: tuple[int, int],
) -> list[Run]:
    """Row groups that lie in the half-open range of rows, of which every row lives, and that fit a file of this schema.

    `lives` has one element for each row of the file.
    """
    if not reader.schema_arrow.equals(schema) or not reader.schema.equals(_columns(schema)):
        return []
    runs, begin, metadata = list[Run](), 0, reader.metadata
    for group in range(metadata.num_row_groups):
        described = metadata.row_group(group)
        end = begin + described.num_rows
        inside = rows[0] <= begin and end <= rows[1] and lives[begin:end].all()
        share = max(described.num_rows / options.row_group_rows, described.total_byte_size / ROW_GROUP_BYTES)
        if inside and GROUP_SHARE_MIN <= share <= GROUP_SHARE_MAX and _codec_fits(described, options.codec):
            if runs and runs[-1].groups.stop == group:
                before = runs.pop()
                runs.append(Run(range(before.groups.start, group + 1), before.start, end))
            else:
                runs.append(Run(range(group, group + 1), begin, end))
        begin = end
    return runs


def _codec_fits(group: Any, wanted: str | None) -> bool:
    if wanted is None:
        return True
    name = "uncompressed" if wanted == "none" else wanted
    return all(group.column(column).compression.lower() == name for column in range(group.num_columns))


def codec_of(reader: pq.ParquetFile) -> str | None:
    """The one codec of the first row group's columns."""
    metadata = reader.metadata
    if not metadata.num_row_groups:
        return None
    group = metadata.row_group(0)
    found = {group.column(column).compression.lower() for column in range(group.num_columns)}
    codec = found.pop() if len(found) == 1 else "mixed"
    return {"uncompressed": "none", "lz4_raw": "lz4", "mixed": None, "lzo": None}.get(codec, codec)


def _template(schema: pa.Schema) -> bytes:
    """A Parquet file without rows, as pyarrow writes this schema."""
    sink = io.BytesIO()
    pq.ParquetWriter(sink, schema).close()
    return sink.getvalue()


def _columns(schema: pa.Schema) -> pq.ParquetSchema:
    return pq.ParquetFile(io.BytesIO(_template(schema))).schema


@dataclass(frozen=True, slots=True)
class Encoded:
    """Row groups that were encoded in memory, as a Parquet file."""

    file: pa.Buffer
    groups: int
    rows: int


def encoded(tables: Iterable[pa.Table], schema: pa.Schema, options: WriteOptions) -> Iterator[Encoded]:
    """These rows as row groups, of which the last may be a small one."""
    encoder = _Encoder(schema, options)
    for table in tables:
        encoder.write(table)
        yield from encoder.taken()
    encoder.flush()
    yield from encoder.taken()


class _Encoder(RowGroups):
    """Keeps them in memory, encoded, until they are taken."""

    def __init__(self, schema: pa.Schema, options: WriteOptions) -> None:
        super().__init__(schema, options)
        self._done: list[Encoded] = []

    def taken(self) -> list[Encoded]:
        """What was encoded since this was asked last."""
        done, self._done = self._done, []
        return done

    def _write(self, table: pa.Table) -> None:
        file = pa.BufferOutputStream()
        with parquet_writer(file, self._schema, self._options, table) as out:
            out.write_table(table, row_group_size=self._group_rows)
        self._done.append(Encoded(file.getvalue(), -(-table.num_rows // self._group_rows), table.num_rows))


class CopyingWriter:
    """Writes a Parquet file of row groups that are encoded already."""

    def __init__(self, sink: IO[bytes], schema: pa.Schema) -> None:
        self.rows = 0
        self._assembler = _kernels.ParquetAssembler(_template(schema), sink.write, CREATED_BY)

    def copy(self, source: pa.NativeFile, run: Run) -> None:
        """Append these row groups of a file. Raises CorruptionError where they are not what its footer says."""
        self._append(source, run.groups)
        self.rows += run.stop - run.start

    def add(self, given: Encoded) -> None:
        with pa.BufferReader(given.file) as source:
            self._append(source, range(given.groups))
        self.rows += given.rows

    def close(self) -> None:
        self._assembler.close()

    def _append(self, source: pa.NativeFile, groups: Sequence[int]) -> None:
        try:
            self._assembler.append(source.size(), _reader(source), list(groups))
        except ValueError as error:
            raise CorruptionError(f"a row group cannot be copied: {error}") from error


def _reader(source: pa.NativeFile) -> Callable[[int, int], pa.Buffer]:
    """Reads pieces of a file; of a remote one it fetches much at a time."""
    if isinstance(source, (pa.MemoryMappedFile, pa.BufferReader)):
        return lambda offset, length: source.read_at(length, offset)
    ahead: list[Any] = [0, pa.py_buffer(b"")]

    def read(offset: int, length: int) -> pa.Buffer:
        begin, buffer = ahead
        if not begin <= offset <= offset + length <= begin + buffer.size:
            ahead[:] = begin, buffer = offset, pa.py_buffer(source.read_at(max(length, READ_AHEAD_BYTES), offset))
        return buffer.slice(offset - begin, length)

    return read
