"""Writes tabular files of any format but JSON. A file becomes visible when its block ends without an exception.

with writer(store, "a.parquet", schema, options) as out:
    out.write(table)                                       row groups of about 128 k rows
write_table(store, "a.orc", table, options)                the same for one table
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import IO, Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import InputError, StoreError
from deltacompact.base.model import ContentType
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.base.wording import text_of
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.opening import open_object
from deltacompact.tabular import schemas
from deltacompact.tabular.conversion import with_own_nulls
from deltacompact.tabular.damage import SHOWN_CHARACTERS
from deltacompact.tabular.files import read
from deltacompact.tabular.formats import delimiter_of, not_written, suffix_of
from deltacompact.tabular.row_groups import DEFAULT_CODEC, RowGroups, WriteOptions, parquet_writer


class TableWriter(RowGroups):
    """Writes row groups to a file of any format. After `close`, `bytes` is the size of the file."""

    def __init__(self, sink: IO[bytes], schema: pa.Schema, options: WriteOptions, delimiter: str = ",") -> None:
        super().__init__(schema, options)
        self._delimiter = delimiter
        self.bytes = 0
        self._sink = sink
        self._file: Any = None
        self._dictionaries: dict[str, pa.Array] = {}

    def close(self) -> None:
        self.flush()
        if self._file is None:
            self._write(self._schema.empty_table())
        self._file.close()
        self.bytes = self._sink.tell()

    def _write(self, table: pa.Table) -> None:
        if self._options.content_type is ContentType.CSV and table.num_columns == 1 and table.column(0).null_count:
            raise InputError(
                f"CSV cannot hold a null in a table of one column, {table.column_names[0]!r}: a blank line"
            )
        if self._file is None:
            self._file = _open_writer(
                self._sink, self._schema, self._options, self._dictionaries_in or [], self._delimiter
            )
        if self._options.content_type is ContentType.PARQUET:
            self._file.write_table(table, row_group_size=max(1, table.num_rows))
        elif self._options.content_type is ContentType.FEATHER:
            self._file.write_table(self._growing(table))
        elif self._options.content_type is ContentType.ORC:
            self._file.write(_for_orc(table))
        else:
            _check_texts(table)
            self._file.write_table(table)

    def _growing(self, table: pa.Table) -> pa.Table:
        """The same values. Each dictionary extends that of earlier row groups, because an Arrow file demands it."""
        changed: dict[int, tuple[pa.Field, pa.ChunkedArray]] = {}
        for number, field in enumerate(table.schema):
            if not pa.types.is_dictionary(field.type):
                continue
            known = self._dictionaries.get(field.name)
            chunks = []
            for chunk in table.column(number).chunks:
                values = chunk.dictionary
                known = values[:0] if known is None else known
                fresh = values.filter(pc.invert(pc.is_in(values, known)))
                known = pa.concat_arrays([known, pc.unique(fresh)])
                chunks.append(pc.index_in(values, known).take(chunk.indices).cast(field.type.index_type))
            self._dictionaries[field.name] = known
            made = [pa.DictionaryArray.from_arrays(indices, known, ordered=field.type.ordered) for indices in chunks]
            changed[number] = field, pa.chunked_array(made, field.type)
        return schemas.with_columns(table, changed)


class _OrcSink(io.RawIOBase):
    """Drops what Arrow's ORC writer still writes once a write has failed or the sink is closed.

    An unfinished writer ends its file when it is destroyed. An exception there would end the process.
    """

    def __init__(self, sink: IO[bytes]) -> None:
        self._sink = sink
        self._failed = False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._sink.tell()

    def write(self, data: Any, /) -> int:
        if not self._failed and not self._sink.closed:
            self._failed = True
            self._sink.write(data)
            self._failed = False
        return len(data)


def _for_orc(table: pa.Table) -> pa.Table:
    """The table in a form that Arrow's ORC writer writes correctly.

    Dictionaries are decoded; ORC makes its own. Nested columns are copied: the writer ignores the offset of a sliced
    struct, and the nulls of a struct in another one, and would write the values of other rows. Timestamps must fit
    nanoseconds, because the reader returns nanoseconds: year 9999 is refused here.
    """
    changed: dict[int, tuple[pa.Field, pa.ChunkedArray]] = {}
    for number, field in enumerate(table.schema):
        column = table.column(number)
        if pa.types.is_dictionary(field.type):
            changed[number] = field.with_type(field.type.value_type), column.cast(field.type.value_type)
        elif pa.types.is_nested(field.type):
            copied = column.take(pa.array(np.arange(table.num_rows)))
            changed[number] = field, pa.chunked_array([with_own_nulls(chunk) for chunk in copied.chunks], field.type)
        elif pa.types.is_timestamp(field.type) or pa.types.is_date64(field.type):
            try:
                column.cast(pa.timestamp("ns"))
            except pa.ArrowInvalid:
                raise InputError(
                    f"column {field.name!r}: ORC holds timestamps of the years 1678 to 2261 only"
                ) from None
    return schemas.with_columns(table, changed)


def _check_texts(table: pa.Table) -> None:
    """Refuse moments whose text is another one when it is read, or none: of five-digit years, times of day after
    23:59, and of zones before their offsets had whole minutes."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not _is_told_by_text(column):
            raise InputError(
                f"column {name!r}: CSV holds moments of the years 0 to 9999 only, times of day before 24:00, and those "
                "of a zone since its offset has whole minutes"
            )


def _is_told_by_text(column: pa.ChunkedArray) -> bool:
    t, type_ = pa.types, column.type
    if t.is_time(type_):
        return not pc.any(pc.starts_with(column.cast(pa.string()), "<")).as_py()  # <value out of range: 86400>
    if not t.is_date(type_) and not t.is_timestamp(type_):
        return True
    try:
        return bool(column.cast(pa.string()).cast(type_).equals(column))
    except pa.ArrowInvalid:
        return False


def _open_writer(
    sink: IO[bytes], schema: pa.Schema, options: WriteOptions, dictionaries_in: list[str], delimiter: str
) -> Any:
    codec = options.codec or DEFAULT_CODEC
    match options.content_type:
        case ContentType.PARQUET:
            return parquet_writer(sink, schema, options, dictionaries_in)
        case ContentType.FEATHER:
            ipc_options = pa.ipc.IpcWriteOptions(compression=_ipc_codec(codec), emit_dictionary_deltas=True)
            return pa.ipc.new_file(sink, schema, options=ipc_options)
        case ContentType.ORC:
            from pyarrow.orc import ORCWriter

            return ORCWriter(_OrcSink(sink), compression=_ORC_CODECS.get(codec, codec.upper()))
        case ContentType.CSV:
            return pa.csv.CSVWriter(sink, schema, write_options=pa.csv.WriteOptions(delimiter=delimiter))
        case _:
            raise not_written(options.content_type)


_ORC_CODECS = {"none": "UNCOMPRESSED", "gzip": "ZLIB", "brotli": "ZSTD", "lz4_raw": "LZ4"}
"""ORC's names for codecs, or what it has instead."""


def _ipc_codec(codec: str) -> str | None:
    return codec if codec in ("zstd", "lz4") else None


class _ClosingWriter(Protocol):
    def close(self) -> None: ...


W = TypeVar("W", bound=_ClosingWriter)


@contextlib.contextmanager
def writer_at(store: ObjectStore, path: str, content_type: ContentType, make: Callable[[IO[bytes]], W]) -> Iterator[W]:
    """The writer that `make` opens on a sink. The file appears at `path` when the block ends without an exception."""
    file_store, name = open_object(store, path)
    with file_store.writer(name) as sink:
        out = make(sink)
        try:
            yield out
            out.close()
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InputError(
                f"{content_type.name} files cannot hold this table: {text_of(error)[:SHOWN_CHARACTERS]}"
            ) from error


def writer(
    store: ObjectStore, path: str, schema: pa.Schema, options: WriteOptions
) -> contextlib.AbstractContextManager[TableWriter]:
    """A writer of tables."""
    return writer_at(
        store, path, options.content_type, lambda sink: TableWriter(sink, schema, options, delimiter_of(path))
    )


def write_table(store: ObjectStore, path: str, table: pa.Table, options: WriteOptions) -> DataFile:
    """Write one table as one file (number 0). Raises InputError naming a column that the format cannot hold."""
    if table.num_rows and not table.num_columns:
        raise InputError(f"a table of {table.num_rows} rows without columns cannot be written")
    try:
        return _write_table(store, path, table, options)
    except (InputError, StoreError):
        check_writable(table.schema, options.content_type)
        raise


def _write_table(store: ObjectStore, path: str, table: pa.Table, options: WriteOptions) -> DataFile:
    table = schemas.computable(table, path)
    with writer(store, path, table.schema, options) as out:
        out.write(table)
    schema = schemas.unmarked(table.schema)
    written = DataFile(UNNUMBERED, path, options.content_type, table.num_rows, out.bytes, schema, decodes=True)
    measured = replace(written, decoded_bytes=out.decoded_bytes, widest_row_bytes=out.widest_row_bytes)
    return with_group_bytes(measured, out.group_bytes)


def with_group_bytes(file: DataFile, size: int) -> DataFile:
    """The file with the decoded bytes of its largest row group. Not for ORC, whose stripes have sizes of their own."""
    return file if file.content_type is ContentType.ORC else replace(file, group_bytes=size)


def check_writable(schema: pa.Schema, content_type: ContentType) -> None:
    """Raises InputError naming the first column whose type the format cannot write, or cannot read back."""
    try:
        _check_written(schema.serialize().to_pybytes(), content_type)
    except OSError as error:  # Arrow writes types that it does not read
        for field in schema:
            try:
                pa.ipc.read_schema(pa.schema([field]).serialize())
            except OSError:
                raise InputError(f"column {field.name!r} is nested more deeply than files can hold") from error
        raise


@functools.lru_cache(maxsize=256)  # most partitions have the schema of others; what is refused is tried again
def _check_written(serialized: bytes, content_type: ContentType) -> None:
    schema = pa.ipc.read_schema(pa.py_buffer(serialized))

    def fits(columns: pa.Schema) -> bool:
        store, name = MemoryStore(), f"sample{suffix_of(content_type)}"
        try:
            written = _write_table(store, name, columns.empty_table(), WriteOptions(content_type))
            return not list(read(store, written))
        except (InputError, StoreError, pa.ArrowException, OSError):
            return False

    if not fits(schema):
        for field in schema:
            if not fits(pa.schema([field])):
                raise InputError(
                    f"column {field.name!r} is {field.type}, which {suffix_of(content_type)} files cannot hold"
                )
