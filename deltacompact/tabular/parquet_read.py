"""Reads a Parquet file in batches that fit in memory, however wide the rows are.

    footer       group 0: 100,000 rows, 9 MB decoded     group 1: 2,000 rows, 2 GB decoded
    batches      100,000 rows                            1,024 rows · 32 rows · 32 rows · …

The footer tells how many bytes a decoded row group has, and so how many rows fit a batch. It does not tell how the
bytes are spread over the rows. If a batch comes out too large, the following batches are smaller. The footers of some
writers do not tell how often the values of a dictionary are used, so the estimate is high: what the first row groups
have of it corrects that of the next ones.

The footer also tells where the column chunks are. While one row group is decoded, the chunks of the next ones are
fetched from a remote file. A chunk that takes several requests is decoded page by page as it arrives, together with the
other columns' pages of the same rows, so it is fetched in that order too:

    chunks       k 0‥2 M · a 2‥34 M · b 34‥66 M
    fetched      k 0‥2 M · a 2‥10 M · b 34‥42 M · a 10‥18 M · b 42‥50 M · …
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from deltacompact import _kernels
from deltacompact.base.batching import batched
from deltacompact.base.errors import InputError
from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.base.wording import text_of
from deltacompact.storage.fetched_file import FetchedFile, Range
from deltacompact.tabular.damage import is_stores_fault, lacks_memory

WIDE_GROUP_BYTES = 256 << 20
WIDE_BATCH_ROWS_MAX = 1 << 10
"""In a large row group some rows may be much wider than others, so its first batches are small."""

WIDEST_TOLD_MAX = 3 << 20
"""The copies of such a row that a plan allows for fit the least memory that a user may give."""

STREAM_BYTES = 256 << 10
"""Pages of a large chunk are read through a buffer of this size; larger ones go past it."""

PAGES_BYTES = 2 << 20
"""Bytes fetched beyond the wanted share of a large chunk: rows differ in size, and pages are read whole."""

USES_OF_A_DICTIONARY = 256
"""Assumed uses of each dictionary value, if the kernel cannot read the footer, which would tell."""

_RESERVE = 2
"""A row group is expected to have so many times the share of its estimate that those before it had."""

_SHARE_MIN = 1 / 8
"""It is expected to have at least this share, because it may be unlike those before it."""

TAIL_BYTES = 8
"""After a footer: its length and four letters."""

_BY_ITSELF_BYTES = 256 << 10
"""One thread decodes less than this, because waking other threads takes longer. Fetching is parallel anyway."""

Footer = _kernels.ParquetFooter
ReadAt = Callable[[int, int], pa.Buffer]


def is_near(source: pa.NativeFile) -> bool:
    """Whether the file is local or in memory, so that reading needs no network."""
    return isinstance(source, (pa.OSFile, pa.BufferReader))


def pieces(source: pa.NativeFile) -> ReadAt:
    """A function that reads each piece of a file with one read."""
    return lambda offset, length: source.read_at(length, offset)


def reading(source: pa.NativeFile, limits: ReadLimits) -> ReadAt:
    """A function that reads pieces of a footer. It fetches large ranges of a remote file, and cuts pieces from them."""
    if is_near(source):
        return pieces(source)
    ahead: list[Any] = [0, pa.py_buffer(b"")]

    def read(offset: int, length: int) -> pa.Buffer:
        begin, buffer = ahead
        if not begin <= offset <= offset + length <= begin + buffer.size:
            begin = max(0, min(offset, source.size() - limits.tail_bytes))  # callers ask for a footer's length first
            wanted = max(offset + length - begin, limits.request_bytes)
            ahead[:] = begin, buffer = begin, pa.py_buffer(source.read_at(wanted, begin))
        return buffer.slice(offset - begin, length)

    return read


@dataclass(frozen=True, slots=True)
class Described:
    """A footer as pyarrow reads it, and as the kernel reads it (None: the kernel cannot)."""

    metadata: pq.FileMetaData
    footer: Footer | None


def described(source: pa.NativeFile, to_copy: bool = False, limits: ReadLimits = READ_LIMITS) -> Described:
    """Read the footer. `to_copy` reads the page indexes too.

    Raises InputError if columns are encrypted, ArrowInvalid if pyarrow would end the process that asks for a chunk.
    """
    read, size = reading(source, limits), source.size()
    footer: Footer | None = None
    try:
        footer = Footer(size, read, to_copy)
    except ValueError:
        pq.read_metadata(source)  # says what is wrong with a file that it cannot read either
    if footer is not None and footer.encrypted:  # asking pyarrow for an encrypted column's codec ends the process
        raise InputError("some columns are encrypted: write the file again without encryption")
    length = int.from_bytes(read(size - TAIL_BYTES, 4), "little")
    stored = read(size - TAIL_BYTES - length, length + TAIL_BYTES)
    try:
        readable = _kernels.readable_footer(bytes(memoryview(stored)[:length]))
    except ValueError as doubt:
        raise pa.ArrowInvalid(f"its footer is damaged: {doubt}") from None
    tail = len(readable).to_bytes(4, "little") + b"PAR1"
    return Described(pq.read_metadata(pa.BufferReader(readable + tail)), footer)


@dataclass(frozen=True, slots=True)
class GroupChunks:
    """A row group: the half-open range of its rows, and the decoded bytes and byte ranges of some columns' chunks."""

    first: int
    stop: int
    decoded_bytes: int
    chunks: list[Range]

    def wanted(self, stop: int, limits: ReadLimits) -> list[Range]:
        """The byte ranges to read, in order, for the rows before `stop`, rounded up to whole batches."""
        rows = max(1, self.stop - self.first)
        batch_rows = max(1, limits.batch_bytes * rows // max(1, self.decoded_bytes))
        share = min(1.0, -(-(stop - self.first) // batch_rows) * batch_rows / rows)
        small = [chunk for chunk in self.chunks if not _is_large(chunk, limits)]
        large = [
            (start, min(end, start + int(share * (end - start)) + PAGES_BYTES))
            for start, end in self.chunks
            if _is_large((start, end), limits)
        ]
        rounds = max((-(-(end - start) // limits.request_bytes) for start, end in large), default=0)
        return small + [
            (start + (end - start) * number // rounds, start + (end - start) * (number + 1) // rounds)
            for number in range(rounds)
            for start, end in large
        ]


def _is_large(chunk: Range, limits: ReadLimits) -> bool:
    """Whether a chunk takes several requests."""
    return chunk[1] - chunk[0] > limits.request_bytes


def group_chunks(parquet: Described, columns: Sequence[str]) -> list[GroupChunks]:
    """Where the chunks of these columns are. Empty if the kernel cannot read the footer."""
    found, first = list[GroupChunks](), 0
    if parquet.footer is not None:
        sizes = _groups(parquet, list(columns))
        for (rows, size), chunks in zip(sizes, parquet.footer.chunks(list(columns)), strict=True):
            found.append(GroupChunks(first, first + rows, size, [(begin, begin + length) for begin, length in chunks]))
            first += rows
    return found


INT96_UNIT = "us"
"""The unit of timestamps of 12 bytes, but for files that the log has in nanoseconds (int96.py)."""


def stored_schema(source: pa.NativeFile, parquet: Described, int96_unit: str = INT96_UNIT) -> pa.Schema:
    """The file's columns, with the types in which they are stored: JSON is text, and a UUID has 16 bytes."""
    return pq.ParquetFile(
        source, metadata=parquet.metadata, coerce_int96_timestamp_unit=int96_unit, arrow_extensions_enabled=False
    ).schema_arrow


def _streams(source: pa.NativeFile, parquet: Described, columns: Sequence[str], limits: ReadLimits) -> bool:
    """Whether to read page by page. Otherwise pyarrow reads a chunk whole before it decodes the first page."""
    return not isinstance(source, pa.BufferReader) and any(
        _is_large(chunk, limits) for group in group_chunks(parquet, columns) for chunk in group.chunks
    )


def batches(
    source: pa.NativeFile,
    parquet: Described,
    columns: list[str],
    start: int,
    stop: int,
    limits: ReadLimits,
    int96_unit: str = INT96_UNIT,
    as_dictionaries: Sequence[str] = (),
) -> Iterator[tuple[int, pa.Table]]:
    """Slices (first row, table) of the row groups that have rows in the half-open range.

    The texts of the columns `as_dictionaries` are not decoded, whatever the file says that they are.
    """
    fetches_by_itself = is_near(source) or isinstance(source, FetchedFile)
    buffer_bytes = STREAM_BYTES if _streams(source, parquet, columns, limits) else 0
    reader = pq.ParquetFile(
        source,
        metadata=parquet.metadata,
        read_dictionary=list(as_dictionaries),
        pre_buffer=not fetches_by_itself,
        buffer_size=buffer_bytes,
        coerce_int96_timestamp_unit=int96_unit,
        page_checksum_verification=True,
    )
    sizes, shares = _groups(parquet, columns), list[float]()
    for run in batched(_overlapping(parquet, start, stop), lambda group: sizes[group[0]][1], limits.run_bytes):
        groups, first = [group for group, _ in run], run[0][1]
        rows, size = sum(sizes[group][0] for group in groups), sum(sizes[group][1] for group in groups)
        stored = sum(parquet.metadata.row_group(group).total_byte_size for group in groups)
        expected = min(size, max(stored, int(size * max(_SHARE_MIN, *shares)))) if shares else size
        decoded = 0
        for row, table in _read_groups(reader, groups, columns, first, rows, expected, limits, stop - first):
            decoded += table.nbytes
            yield row, table
            del table
        shares.append(_RESERVE * decoded / max(1, size))


def _overlapping(parquet: Described, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The row groups that have rows in the half-open range, with the first row of each."""
    first = 0
    for group, (rows, _) in enumerate(_groups(parquet, [])):
        if first + rows > start and first < stop:
            yield group, first
        first += rows


def ranges_with(parquet: Described, rows: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """The rows that span each run of neighbouring row groups with wanted rows: its first to its last wanted row."""
    stops = np.cumsum([rows_of_group for rows_of_group, _ in _groups(parquet, [])], dtype=np.int64)
    groups = np.searchsorted(stops, rows, side="right")
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(rows, np.flatnonzero(np.diff(groups) > 1) + 1)]


def unknown_rows(parquet: Described, known: Sequence[bool]) -> list[tuple[int, int]]:
    """The half-open row ranges of the row groups that are not known to decode."""
    ranges, first = list[tuple[int, int]](), 0
    for (rows, _), is_known in zip(_groups(parquet, []), known, strict=True):
        if not is_known:
            ranges.append((first, first + rows))
        first += rows
    return ranges


def decoded_bytes(parquet: Described, columns: list[str]) -> int:
    """About the bytes of all rows of these columns when decoded."""
    return sum(size for _, size in _groups(parquet, columns))


def group_bytes(parquet: Described, columns: list[str]) -> int:
    """About the bytes of these columns in the largest row group when decoded."""
    return max((size for _, size in _groups(parquet, columns)), default=0)


def widest_row_bytes(source: pa.NativeFile, parquet: Described) -> int | None:
    """At least the bytes of the widest row when decoded, from the headers of pages.

    None: a remote file would take a request for each page, and where pages are large, they say little of one row.
    """
    if parquet.footer is None or not is_near(source):
        return None
    widest = parquet.footer.widest_row(source.size(), reading(source, READ_LIMITS))
    return widest if widest <= WIDEST_TOLD_MAX else None


def _groups(parquet: Described, columns: list[str]) -> list[tuple[int, int]]:
    """For each row group: its rows, and about the decoded bytes of these columns."""
    if parquet.footer is not None:
        return parquet.footer.decoded(columns)
    groups = (parquet.metadata.row_group(number) for number in range(parquet.metadata.num_row_groups))
    return [(group.num_rows, USES_OF_A_DICTIONARY * group.total_byte_size) for group in groups]


def _read_groups(
    reader: pq.ParquetFile,
    groups: list[int],
    columns: list[str],
    first: int,
    rows: int,
    size: int,
    limits: ReadLimits,
    wanted: int,
) -> Iterator[tuple[int, pa.Table]]:
    """The batches of row groups. The first `wanted` rows are asked for, and a batch ends there if others go beyond."""
    if not columns:  # pyarrow forgets the row count of a table without columns
        yield first, pa.table({"": pa.nulls(rows)}).select([])
        return
    row_bytes = max(1.0, size / max(1, rows))
    rows_max = limits.batch_rows_max if size <= WIDE_GROUP_BYTES else WIDE_BATCH_ROWS_MAX
    batch_rows = min(rows_max, int(limits.batch_bytes / row_bytes), wanted)
    by_itself = size <= _BY_ITSELF_BYTES
    try:
        for batch in _decoded(reader, groups, columns, max(1, batch_rows), limits.batch_bytes, by_itself):
            yield first, pa.Table.from_batches([batch]).select(columns)
            first += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        if is_stores_fault(error) or lacks_memory(error) or (culprit := _culprit(reader, groups, columns)) is None:
            raise
        raise pa.ArrowInvalid(culprit) from error


def _culprit(reader: pq.ParquetFile, groups: list[int], columns: list[str]) -> str | None:
    """The first column chunk that cannot be decoded, and why. None: all can be decoded."""
    for group in groups:
        for column in columns:
            try:
                for _ in reader.iter_batches(WIDE_BATCH_ROWS_MAX, row_groups=[group], columns=[column]):
                    pass
            except (pa.ArrowException, OSError) as error:
                return f"column {column!r}, row group {group}: {text_of(error)}"
    return None


def _decoded(
    reader: pq.ParquetFile, groups: list[int], columns: list[str], rows: int, batch_bytes: int, by_itself: bool
) -> Iterator[pa.RecordBatch]:
    """Batches of `rows` rows. After a batch above `2 * batch_bytes`, start again with fewer rows; skip the rows done.

    `by_itself`: this thread decodes all columns.
    """
    done, whole = 0, False
    while not whole:
        decoded, before = 0, rows
        try:
            for batch in reader.iter_batches(rows, row_groups=groups, columns=columns, use_threads=not by_itself):
                decoded += batch.num_rows
                if decoded > done:
                    batch = batch.slice(batch.num_rows - (decoded - done))
                    done = decoded
                    size, held = batch.nbytes, batch.num_rows
                    yield batch
                    del batch
                    if size > 2 * batch_bytes and held > 1:
                        rows = max(1, min(rows - 1, held * batch_bytes // size))
                        break
        except pa.ArrowNotImplementedError:  # a nested column of more than 2 GiB
            if rows == 1:
                raise
            rows = max(1, rows // 8)
        whole = rows == before
