"""Copies row groups without dead rows from file to file, without decoding them.

    source 14   [group 0: all live] [group 1: 3 rows dead] [group 2: all live]
    output 17   [group 0, copied  ] [group 1, filtered and encoded] [group 2, copied]

A full rewrite decodes and encodes every byte; copying does not. The kernel reads the source's footer and says which row
groups can be copied: the output must store the columns in the same way, and the footer must be right about the bytes.
A row group that can be copied is copied if its pages are known to decode (known_pages.py), and if it has the wanted
codec and is large enough. The copy verifies page checksums and keeps statistics, page indexes and histograms. The rows
of other row groups are decoded. On S3, long runs of row groups are copied inside S3.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import deltacompact
from deltacompact import _kernels
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.base.model import ContentType
from deltacompact.storage.fetched_file import Range, announce
from deltacompact.storage.objects import Copies, ObjectStore
from deltacompact.tabular import column_types, field_ids
from deltacompact.tabular.known_pages import known_groups
from deltacompact.tabular.parquet_read import Described, Footer, pieces, reading
from deltacompact.tabular.row_groups import ROW_GROUP_BYTES, RowGroups, WriteOptions, parquet_writer, schema_in_file

COPIED_BYTES_MIN = 5 << 20
"""The kernel asks a sink to copy at least this many bytes: S3's smallest part."""

GROUP_SHARE_MAX = 8
"""A row group larger than this many full row groups, by rows or by bytes, is not copied: a single dead row would later
make a session decode all of it."""


Origin = tuple[ObjectStore, str]
"""A store, and the path of an object in it."""
Copied = Callable[[int, int], bool]
"""(start, length) -> whether the sink has appended these bytes of the source by itself."""


@dataclass(frozen=True, slots=True)
class GroupRange:
    """Consecutive row groups of a file, and the half-open range of their rows."""

    groups: range
    start: int
    stop: int
    footer: Footer

    def decoded_bytes(self, columns: list[str]) -> int:
        """About the bytes that the rows take when decoded, rather too many than too few."""
        return sum(self._decoded(columns))

    def group_bytes(self, columns: list[str]) -> int:
        """About the bytes that the rows of the largest row group take when decoded."""
        return max(self._decoded(columns))

    def _decoded(self, columns: list[str]) -> list[int]:
        of_groups = self.footer.decoded(columns)
        return [of_groups[group][1] for group in self.groups]


def copyable_ranges(
    parquet: Described,
    file: DataFile,
    schema: pa.Schema,
    options: WriteOptions,
    lives: npt.NDArray[np.bool_],
    rows: tuple[int, int],
    group_share_min: float,
) -> list[GroupRange]:
    """The row groups inside the half-open range `rows` that have no dead row and fit a file of `schema`.

    `lives` has one element for each row of the file. A row group contains its columns' names and ids, so nothing is
    copied from a file in which they differ. Row groups below `group_share_min` of a full one are left out and merged.
    """
    metadata, footer = parquet.metadata, parquet.footer
    if footer is None or not field_ids.agree(file, schema) or not _stored_alike(file.schema, schema):
        return []
    known = [file.decodes or of_group for of_group in known_groups(footer, metadata.num_row_groups)]
    ranges, begin = list[GroupRange](), 0
    for group, refusal in enumerate(footer.refusals(_template(schema))):
        described = metadata.row_group(group)
        end = begin + described.num_rows
        inside = rows[0] <= begin and end <= rows[1] and lives[begin:end].all()
        share = max(described.num_rows / options.row_group_rows, described.total_byte_size / ROW_GROUP_BYTES)
        fits = refusal is None and known[group] and group_share_min <= share <= GROUP_SHARE_MAX
        if inside and fits and _codec_fits(described, options.codec):
            if ranges and ranges[-1].groups.stop == group:
                before = ranges.pop()
                ranges.append(GroupRange(range(before.groups.start, group + 1), before.start, end, footer))
            else:
                ranges.append(GroupRange(range(group, group + 1), begin, end, footer))
        begin = end
    return ranges


def may_be_copied(file: DataFile, options: WriteOptions, group_share_min: float) -> bool:
    """Whether a file may have row groups to copy: it is large enough for one."""
    if file.content_type is not ContentType.PARQUET or options.content_type is not ContentType.PARQUET:
        return False
    # Levels and page headers are not in the decoded bytes, but together they are smaller than the values.
    decoded_bytes = ROW_GROUP_BYTES if file.decoded_bytes is None else 2 * file.decoded_bytes
    return max(file.rows / options.row_group_rows, decoded_bytes / ROW_GROUP_BYTES) >= group_share_min


def bytes_of(groups: GroupRange, inside: bool) -> list[Range]:
    """The byte ranges that copying will read. `inside`: the sink copies long ranges by itself, so they are left out."""
    runs = groups.footer.runs(list(groups.groups))
    return [(begin, begin + length) for begin, length in runs if not (inside and length >= COPIED_BYTES_MIN)]


def _stored_alike(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether Parquet stores both schemas in the same types. It has one type for all strings, for instance.

    The kernel compares the footers; this function compares types that only Arrow knows, such as durations.
    """
    return one.names == other.names and all(
        _in_parquet(field.type) == _in_parquet(other_field.type) for field, other_field in zip(one, other, strict=True)
    )


def _in_parquet(type_: pa.DataType) -> pa.DataType:
    """One Arrow type for all those that are the same type in Parquet. The kernel compares nullability."""
    type_ = column_types.stored_type(type_)
    if pa.types.is_dictionary(type_):
        return _in_parquet(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_large_binary(type_):
        return pa.string() if pa.types.is_large_string(type_) else pa.binary()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_in_parquet(type_.value_type))
    if pa.types.is_map(type_):
        return pa.map_(_in_parquet(type_.key_type), _in_parquet(type_.item_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _in_parquet(field.type)) for field in type_])
    return type_


def _codec_fits(group: Any, wanted: str | None) -> bool:
    if wanted is None:
        return True
    name = "uncompressed" if wanted == "none" else wanted
    return all(group.column(column).compression.lower() == name for column in range(group.num_columns))


def codec_of(metadata: pq.FileMetaData) -> str | None:
    """The codec of the first row group's columns; None: there is no row group, or several codecs, or LZO."""
    if not metadata.num_row_groups:
        return None
    group = metadata.row_group(0)
    found = {group.column(column).compression.lower() for column in range(group.num_columns)}
    codec = found.pop() if len(found) == 1 else "mixed"
    return {"uncompressed": "none", "lz4_raw": "lz4", "mixed": None, "lzo": None}.get(codec, codec)


def _template(schema: pa.Schema) -> bytes:
    """A Parquet file without rows, which pyarrow writes with this schema."""
    sink = io.BytesIO()
    pq.ParquetWriter(sink, schema_in_file(schema)).close()
    return sink.getvalue()


@dataclass(frozen=True, slots=True)
class Encoded:
    """A row group that was encoded in memory, as a Parquet file."""

    file: pa.Buffer
    rows: int
    decoded_bytes: int
    widest_row_bytes: int = 0


def encoded(tables: Iterable[pa.Table], schema: pa.Schema, options: WriteOptions) -> Iterator[Encoded]:
    """The tables' rows as encoded row groups. The last group may be small."""
    encoder = _Encoder(schema, options)
    for table in tables:
        encoder.write(table)
        yield from encoder.taken()
    encoder.flush()
    yield from encoder.taken()


class _Encoder(RowGroups):
    """Keeps encoded row groups in memory until they are taken."""

    def __init__(self, schema: pa.Schema, options: WriteOptions) -> None:
        super().__init__(schema, options)
        self._done: list[Encoded] = []

    def taken(self) -> list[Encoded]:
        """The row groups that were encoded since the last call."""
        done, self._done = self._done, []
        return done

    def _write(self, table: pa.Table) -> None:
        file = pa.BufferOutputStream()
        with parquet_writer(file, self._schema, self._options, self._dictionaries_in or [], page_index=True) as out:
            out.write_table(table, row_group_size=table.num_rows)
        self._done.append(Encoded(file.getvalue(), table.num_rows, self._waiting_bytes, self.widest_row_bytes))


class CopyingWriter:
    """Writes a Parquet file from row groups that are encoded already. After `close`, `bytes` is the file's size.

    `decoded_bytes`, `group_bytes` (of the largest row group) and `widest_row_bytes` count only row groups from `add`.
    """

    def __init__(self, sink: IO[bytes], schema: pa.Schema, limits: ReadLimits = READ_LIMITS) -> None:
        self.rows = 0
        self.bytes = 0
        self.decoded_bytes = self.group_bytes = self.widest_row_bytes = 0
        self._sink = sink
        self._limits = limits
        self._assembler = _kernels.ParquetAssembler(_template(schema), sink.write, _created_by())

    def copy(self, source: pa.NativeFile, groups: GroupRange, origin: Origin | None = None) -> None:
        """Append these row groups of a file. Raises CorruptionError if the file contradicts its footer.

        `origin` is the file's place in its store: a sink on the same store may copy the bytes there.
        """
        self._append(groups.footer, source, groups.groups, self._copied_inside(source, origin))
        self.rows += groups.stop - groups.start

    def add(self, group: Encoded) -> None:
        with pa.BufferReader(group.file) as source:
            self._append(Footer(source.size(), reading(source, self._limits)), source, [0])
        self.rows += group.rows
        self.decoded_bytes += group.decoded_bytes
        self.group_bytes = max(self.group_bytes, group.decoded_bytes)
        self.widest_row_bytes = max(self.widest_row_bytes, group.widest_row_bytes)

    @property
    def copies_inside(self) -> bool:
        """Whether the sink can append a range of another object without the bytes passing through this process."""
        return isinstance(self._sink, Copies)

    def close(self) -> None:
        self._assembler.close()
        self.bytes = self._sink.tell()

    def _copied_inside(self, source: pa.NativeFile, origin: Origin | None) -> Copied | None:
        sink = self._sink
        if origin is None or not isinstance(sink, Copies):
            return None

        def copied(start: int, length: int) -> bool:
            if sink.copy_from(*origin, start, length):
                return True
            announce(source, [(start, start + length)])
            return False

        return copied

    def _append(
        self, footer: Footer, source: pa.NativeFile, groups: Sequence[int], copied: Copied | None = None
    ) -> None:
        try:
            self._assembler.append(footer, source.size(), pieces(source), list(groups), copied)
        except ValueError as error:
            raise CorruptionError(f"a row group cannot be copied: {error}") from error


@functools.cache
def _created_by() -> str:
    """The writer's name in the footer. Readers parse this form, and ignore the statistics of unnamed writers."""
    return f"deltacompact version {deltacompact.__version__}"
