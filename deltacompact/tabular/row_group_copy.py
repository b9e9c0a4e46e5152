"""Row groups in which every row lives go from file to file as they are encoded: nothing is decoded, nothing encoded.

    source 14   [group 0: all live] [group 1: 3 rows dead] [group 2: all live]
    output 17   [group 0, copied  ] [group 1, filtered and encoded] [group 2, copied]

A full rewrite costs at least decode and encode of every byte; this does not. The kernel reads the source's footer and
says of each row group whether it can be copied: whether the columns are stored as the output's are, and whether the
footer is right about the bytes. Of those, a group is copied where the codec is the one asked for, and where the group
is large enough to be worth keeping. Statistics, page indexes and histograms go with it. All others are decoded.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from deltacompact import _kernels
from deltacompact.base.errors import CorruptionError
from deltacompact.base.limits import LIMITS, READ_LIMITS, ReadLimits
from deltacompact.base.model import DataFile
from deltacompact.tabular import field_ids, schemas
from deltacompact.tabular.parquet_read import Described, Footer, reading
from deltacompact.tabular.row_groups import ROW_GROUP_BYTES, RowGroups, WriteOptions, parquet_writer

CREATED_BY = "deltacompact version 0.1.0"
"""In the form that other readers parse: they distrust statistics of files that do not say who wrote them."""

GROUP_SHARE_MAX = 8
"""Row groups of more than so many times a full one, by rows or by bytes, are not copied: a single dead row would have
too much decoded some day."""


@dataclass(frozen=True, slots=True)
class Run:
    """Row groups of a file that follow each other, and the half-open range of rows that they are."""

    groups: range
    start: int
    stop: int
    footer: Footer


def copyable_runs(
    parquet: Described,
    file: DataFile,
    schema: pa.Schema,
    options: WriteOptions,
    lives: npt.NDArray[np.bool_],
    rows: tuple[int, int],
    group_share_min: float = LIMITS.copied_group_share_min,
) -> list[Run]:
    """Row groups that lie in the half-open range of rows, of which every row lives, and that fit a file of `schema`.

    `lives` has one element for each row of the file. A row group names its columns, so a file with columns of other
    names or ids is not copied. Groups below `group_share_min` of a full one are merged with their neighbours.
    """
    metadata, footer = parquet.metadata, parquet.footer
    if footer is None or not field_ids.agree(file, schema) or not _stored_alike(file.schema, schema):
        return []
    runs, begin = list[Run](), 0
    for group, refusal in enumerate(footer.refusals(_template(schema))):
        described = metadata.row_group(group)
        end = begin + described.num_rows
        inside = rows[0] <= begin and end <= rows[1] and lives[begin:end].all()
        share = max(described.num_rows / options.row_group_rows, described.total_byte_size / ROW_GROUP_BYTES)
        fits = refusal is None and group_share_min <= share <= GROUP_SHARE_MAX
        if inside and fits and _codec_fits(described, options.codec):
            if runs and runs[-1].groups.stop == group:
                before = runs.pop()
                runs.append(Run(range(before.groups.start, group + 1), before.start, end, footer))
            else:
                runs.append(Run(range(group, group + 1), begin, end, footer))
        begin = end
    return runs


def _stored_alike(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether these Arrow types make the same of what Parquet stores, which has one type of strings, for instance.

    The kernel compares what the footers say. Some types are known to Arrow alone, such as durations.
    """
    return one.names == other.names and all(
        _in_parquet(field.type) == _in_parquet(other_field.type) for field, other_field in zip(one, other, strict=True)
    )


def _in_parquet(type_: pa.DataType) -> pa.DataType:
    """The one of several Arrow types that are one type to Parquet. The kernel looks at nullability."""
    type_ = schemas.stored_type(type_)
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
    """The one codec of the first row group's columns."""
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


@dataclass(frozen=True, slots=True)
class Encoded:
    """A row group that was encoded in memory, as a Parquet file."""

    file: pa.Buffer
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
        with parquet_writer(file, self._schema, self._options, self._dictionaries_in or [], page_index=True) as out:
            out.write_table(table, row_group_size=table.num_rows)
        self._done.append(Encoded(file.getvalue(), table.num_rows))


class CopyingWriter:
    """Writes a Parquet file of row groups that are encoded already."""

    def __init__(self, sink: IO[bytes], schema: pa.Schema, limits: ReadLimits = READ_LIMITS) -> None:
        self.rows = 0
        self._limits = limits
        self._assembler = _kernels.ParquetAssembler(_template(schema), sink.write, CREATED_BY)

    def copy(self, source: pa.NativeFile, run: Run) -> None:
        """Append these row groups of a file. Raises CorruptionError where the file is not what its footer said."""
        self._append(run.footer, source, run.groups)
        self.rows += run.stop - run.start

    def add(self, group: Encoded) -> None:
        with pa.BufferReader(group.file) as source:
            self._append(Footer(source.size(), reading(source, self._limits)), source, [0])
        self.rows += group.rows

    def close(self) -> None:
        self._assembler.close()

    def _append(self, footer: Footer, source: pa.NativeFile, groups: Sequence[int]) -> None:
        try:
            self._assembler.append(footer, source.size(), reading(source, self._limits), list(groups))
        except ValueError as error:
            raise CorruptionError(f"a row group cannot be copied: {error}") from error
