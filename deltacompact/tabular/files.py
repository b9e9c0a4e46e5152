"""Tabular files through pyarrow: what a file holds, its rows in slices, and writing new ones.

    inspect("orders.csv", known schema)              -> schema, 1,000 rows
    read(file, ["id"], rows 200,000‥400,000)         -> (first row, table), … only the row groups that are needed
    with writer(...) as out: out.write(table)        -> row groups of about 128 k rows, visible when the block ends

Parquet, ORC and Arrow files know their types; CSV and JSON lines take those of the table's schema, and what was decided
at append is recorded in the log, so that every later reader decides the same. CSV and JSON lines may be compressed
(.csv.gz); a file outside of the catalog is held against its stamp whenever it is opened.
"""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather
import pyarrow.json
import pyarrow.orc
import pyarrow.parquet as pq

from deltacompact.base.errors import InputError, NotFoundError, SchemaError, StoreError
from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.base.model import ContentType, DataFile, Partition
from deltacompact.base.settings import DEFAULTS
from deltacompact.storage.memory import MemoryStore
from deltacompact.storage.objects import ObjectStore
from deltacompact.storage.opening import open_object
from deltacompact.tabular import parquet_read, row_bytes, schemas, stamps
from deltacompact.tabular.conversion import is_list

ROW_GROUP_ROWS = DEFAULTS.row_group_rows
ROW_GROUP_BYTES = 32 << 20
"""A row group of wide rows is smaller: a single dead row has all of it decoded and encoded again."""
DEFAULT_CODEC = "zstd"

EXTENSIONS = {
    ".parquet": ContentType.PARQUET,
    ".pq": ContentType.PARQUET,
    ".feather": ContentType.FEATHER,
    ".arrow": ContentType.FEATHER,
    ".ipc": ContentType.FEATHER,
    ".orc": ContentType.ORC,
    ".csv": ContentType.CSV,
    ".json": ContentType.JSON,
    ".jsonl": ContentType.JSON,
    ".ndjson": ContentType.JSON,
}
UNTYPED = frozenset({ContentType.CSV, ContentType.JSON})
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""Of whole text files; the other formats compress what is in them."""

_SUFFIX = {
    ContentType.PARQUET: ".parquet",
    ContentType.FEATHER: ".feather",
    ContentType.ORC: ".orc",
    ContentType.CSV: ".csv",
}
_WITH_DICTIONARIES = frozenset({ContentType.PARQUET, ContentType.FEATHER})
"""What is written to others is decoded first."""
_TEXT_BLOCK_BYTES = 16 << 20
_CSV_NULLS = ["", "#N/A", "#N/A N/A", "#NA", "N/A", "NA", "NULL", "n/a", "null"]
"""Without quotes. pyarrow's own list has NaN as well, which is a number: its key is not that of null."""
_DICTIONARY_BYTES_MAX = 1 << 30
_DICTIONARY_ROWS_MIN = 1 << 10
_DICTIONARY_SAMPLE_ROWS = 32 << 10
_DICTIONARY_SAMPLE_ROWS_MIN = 64
_DICTIONARY_SAMPLE_BYTES = 4 << 20
"""Counting values copies them."""
_DICTIONARY_VALUE_BYTES_MAX = 1 << 20
"""One such value fills a dictionary page, after which pyarrow makes none."""
_DICTIONARY_DISTINCT_MAX = 0.4


def content_type_of(path: str) -> ContentType:
    """By the file's extension; raises InputError where it says nothing."""
    extension, compression = _extensions(path)
    content_type = EXTENSIONS.get(extension)
    if content_type is None or (compression and content_type not in UNTYPED):
        known = f"{', '.join(EXTENSIONS)}; text also with {', '.join(COMPRESSIONS)}"
        raise InputError(f"{path}: unknown extension {extension + compression!r} (known: {known})")
    return content_type


def stored_suffix(path: str) -> str:
    """The extensions by which a copy of a file is read like the file itself."""
    return "".join(_extensions(path))


def _extensions(path: str) -> tuple[str, str]:
    """The extension and that of a compression around it: "b.CSV.gz" has (".csv", ".gz")."""
    pure = PurePosixPath(path)
    last = pure.suffix.lower()
    return (pure.with_suffix("").suffix.lower(), last) if last in COMPRESSIONS else (last, "")


def suffix_of(content_type: ContentType) -> str:
    """The extension of written files; raises InputError for a type that cannot be written."""
    if content_type not in _SUFFIX:
        raise InputError(f"{content_type.value} files can be read, but not written")
    return _SUFFIX[content_type]


def inspect(
    store: ObjectStore,
    path: str,
    content_type: ContentType,
    known: pa.Schema | None = None,
    partition: Partition | None = None,
    *,
    hashed: bool = False,
) -> DataFile:
    """Schema, rows and bytes of a file (number 0). `known` types the columns of CSV and JSON that it names.

    With `partition`, its values are looked for in the partition columns of a file that is near. A file outside of the
    catalog gets a stamp, with `hashed` the one that its later readers need: it must not change meanwhile.
    """
    place, name = open_object(store, path)
    outside = "://" in path
    with _naming(path):
        stat = stamps.settled(place, name) if outside else place.stat(name)
        with place.open(name) as source:
            if hashed and content_type in UNTYPED and not parquet_read.is_near(source):
                source = pa.BufferReader(source.read_buffer())  # parsing and hashing share one download
            schema, rows, decoded_bytes = _described(source, path, content_type, known, partition)
            check_columns(schema, path)
            to_hash = source if hashed and (stat.etag is None or content_type in UNTYPED) else None
            stamp = stamps.stamp_of(stat, to_hash) if outside else None
        if hashed and stat.etag is None and place.stat(name) != stat:
            raise InputError(f"{path} was written to while it was read: append it when it is finished")
    described = schemas.unmarked(schema)
    return DataFile(0, path, content_type, rows, stat.bytes, described, stamp=stamp, decoded_bytes=decoded_bytes)


def _described(
    source: pa.NativeFile,
    path: str,
    content_type: ContentType,
    known: pa.Schema | None,
    partition: Partition | None,
) -> tuple[pa.Schema, int, int | None]:
    """Schema and rows of an opened file, and about what they take in memory, where that is known without reading."""
    decoded_bytes = None
    match content_type:
        case ContentType.PARQUET:
            parquet = parquet_read.described(source)
            schema, rows = parquet.metadata.schema.to_arrow_schema(), parquet.metadata.num_rows
            decoded_bytes = parquet_read.decoded_bytes(parquet, schema.names)
        case ContentType.ORC:
            orc = pa.orc.ORCFile(source)
            schema, rows = orc.schema, orc.nrows
        case ContentType.FEATHER:
            batches = _feather(source, None)
            schema, rows = batches.schema, sum(batches.rows)
        case _:
            table = _read_text(source, path, content_type, known, None)
            if partition:
                schemas.check_partition_values(table, partition, path)
            return table.schema, table.num_rows, int(table.nbytes)
    names = [name for name in (partition.names if partition else ()) if name in schema.names]
    if partition and names and parquet_read.is_near(source):
        file = DataFile(0, path, content_type, rows, 0, schema)
        source.seek(0)
        for _, table in _units(source, file, names, 0, rows, READ_LIMITS):
            schemas.check_partition_values(table, partition, path)
    return schema, rows, decoded_bytes


def check_columns(schema: pa.Schema, path: str) -> None:
    """Refuse duplicate columns."""
    seen = set()
    for name in schema.names:
        if name in seen:
            raise SchemaError(f"{path}: column {name!r} appears twice")
        seen.add(name)


def read(
    store: ObjectStore,
    file: DataFile,
    columns: Sequence[str] | None = None,
    rows: tuple[int, int] | None = None,
    limits: ReadLimits = READ_LIMITS,
) -> Iterator[tuple[int, pa.Table]]:
    """Slices (first row, table) of a file in row order, of the columns that it has among `columns`.

    `rows` is a half-open range; units outside of it (row groups, batches, stripes) are not read. Raises InputError
    naming the file where it is corrupt, and NotFoundError where it vanished.
    """
    wanted = [name for name in file.schema.names if columns is None or name in columns]
    start, stop = rows or (0, file.rows)
    with opened(store, file) as source:
        yield from _clipped(file, _units(source, file, wanted, start, stop, limits), start, stop)


def _clipped(
    file: DataFile, units: Iterator[tuple[int, pa.Table]], start: int, stop: int
) -> Iterator[tuple[int, pa.Table]]:
    """Cut the units to the range, and hold the file against the log's row count."""
    seen = start
    for first, table in _divided(units):
        low, high = max(start, first), min(stop, first + table.num_rows)
        if low < high:
            yield low, schemas.computable(table.slice(low - first, high - low))
            seen = high
    if seen != stop:
        raise InputError(f"{file.path} holds {seen} rows where the log says {file.rows}")


def _divided(units: Iterator[tuple[int, pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
    """Units of at most as many rows as a row group has: other formats have batches of any size, or one for a file."""
    for first, table in units:
        for start in range(0, max(1, table.num_rows), ROW_GROUP_ROWS) if table.num_columns else [0]:
            yield first + start, table.slice(start, ROW_GROUP_ROWS) if table.num_columns else table


def _units(
    source: pa.NativeFile, file: DataFile, columns: list[str], start: int, stop: int, limits: ReadLimits
) -> Iterator[tuple[int, pa.Table]]:
    match file.content_type:
        case ContentType.PARQUET:
            parquet = described_parquet(source, file, limits=limits)
            yield from parquet_read.batches(source, parquet, columns, start, stop, limits)
        case ContentType.ORC:
            orc, first = pa.orc.ORCFile(source), 0
            for stripe in range(orc.nstripes):
                table = pa.Table.from_batches([orc.read_stripe(stripe, columns=columns)]).select(columns)
                yield first, table
                first += table.num_rows
        case ContentType.FEATHER:
            batches, first = _feather(source, columns), 0
            for place, rows in enumerate(batches.rows):
                if first + rows > start and first < stop:
                    yield first, batches.table(place).select(columns)
                first += rows
        case _:
            yield 0, _read_text(source, file.path, file.content_type, file.schema, columns)


@contextlib.contextmanager
def opened(store: ObjectStore, file: DataFile) -> Iterator[pa.NativeFile]:
    """A file's bytes; errors inside the block name it. Raises InputError where it is not what was appended."""
    place, name = open_object(store, file.path)
    with _naming(file.path), place.open(name) as source:
        if "://" not in file.path:
            yield source
            return
        stat = place.stat(name) if parquet_read.is_near(source) else None
        stamps.check_unchanged(place, name, source, file)
        yield source
        if stat is not None and place.stat(name) != stat:  # a file on a disk can be written to while it is read
            stamps.check_unchanged(place, name, source, file)


def described_parquet(
    source: pa.NativeFile, file: DataFile, to_copy: bool = False, limits: ReadLimits = READ_LIMITS
) -> parquet_read.Described:
    """A Parquet footer, held against the log; `to_copy`: with the page indexes."""
    found = parquet_read.described(source, to_copy, limits)
    if found.metadata.num_rows != file.rows:
        raise InputError(f"{file.path} holds {found.metadata.num_rows} rows where the log says {file.rows}")
    return found


@dataclass(frozen=True)
class _Batches:
    """Record batches by number; a Feather V1 file or an IPC stream is one that was read whole."""

    schema: pa.Schema
    rows: list[int]
    table: Any


def _feather(source: pa.NativeFile, columns: list[str] | None) -> _Batches:
    magic = source.read(6)
    source.seek(0)
    if magic[:6] == b"ARROW1":
        plain = pa.ipc.open_file(source)
        fields = None if columns is None else sorted(plain.schema.get_field_index(name) for name in columns)
        # An empty selection would mean "all": one field is read and dropped.
        reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields or None))
        rows = [_batch_rows(reader, place) for place in range(reader.num_record_batches)]
        return _Batches(plain.schema, rows, lambda place: pa.Table.from_batches([reader.get_batch(place)]))
    whole = pa.feather.read_table(source) if magic[:4] == b"FEA1" else pa.ipc.open_stream(source).read_all()
    return _Batches(whole.schema, [whole.num_rows], lambda _: whole)


def _batch_rows(reader: Any, place: int) -> int:
    return int(reader.get_batch(place).num_rows)


def _read_text(
    source: pa.NativeFile, path: str, content_type: ContentType, known: pa.Schema | None, columns: list[str] | None
) -> pa.Table:
    """CSV with a header line, or one JSON object a line."""
    text, is_empty = _decompressed(source, path)
    types = {field.name: schemas.stored_type(field.type) for field in known or ()}
    if columns is None:  # other files know it: a column that has had no value yet has no type yet
        types = {name: type_ for name, type_ in types.items() if not pa.types.is_null(type_)}
    plain = {name: _parsed_type(type_, content_type) for name, type_ in types.items()}
    if content_type is ContentType.CSV:
        if is_empty:
            raise InputError("an empty CSV file has no header line")
        convert = pa.csv.ConvertOptions(
            column_types=plain,
            include_columns=columns,
            null_values=_CSV_NULLS,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        table = pa.csv.read_csv(
            text,
            read_options=pa.csv.ReadOptions(block_size=_TEXT_BLOCK_BYTES),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=convert,
        )
    elif is_empty:
        table = (known or pa.schema([])).empty_table()
    else:
        names = list(plain) if columns is None else columns
        explicit = pa.schema([(name, plain[name]) for name in names if name in plain])
        table = pa.json.read_json(
            text,
            read_options=pa.json.ReadOptions(block_size=_TEXT_BLOCK_BYTES),
            parse_options=pa.json.ParseOptions(
                explicit_schema=explicit, unexpected_field_behavior="infer" if columns is None else "ignore"
            ),
        )
    for place, name in enumerate(table.column_names):
        if name in types and table.column(place).type != types[name]:
            table = table.set_column(place, name, schemas.cast(table.column(place), types[name], "text", name))
    return table if columns is None else table.select(columns)


def _decompressed(source: pa.NativeFile, path: str) -> tuple[pa.NativeFile, bool]:
    """The text of a file, and whether there is none."""
    codec, size = COMPRESSIONS.get(_extensions(path)[1]), source.size()
    if codec is None or size == 0:
        return source, size == 0
    # Of streams of its own: a compressed stream that goes closes what it reads.
    is_empty = not pa.CompressedInputStream(source.get_stream(0, size), codec).read(1)
    return pa.CompressedInputStream(source.get_stream(0, size), codec), is_empty


def _parsed_type(type_: pa.DataType, content_type: ContentType) -> pa.DataType:
    """What a text parser is asked for; the schema's own type is cast to afterwards."""
    type_ = schemas.plain_type(type_)
    if pa.types.is_float16(type_):
        return pa.float32()
    if content_type is ContentType.JSON and is_list(type_):
        return pa.list_(_parsed_type(type_.value_type, content_type))
    if content_type is ContentType.JSON and pa.types.is_struct(type_):
        return pa.struct([(field.name, _parsed_type(field.type, content_type)) for field in type_])
    as_text = pa.types.is_date(type_) or pa.types.is_time(type_)
    if pa.types.is_large_string(type_) or (as_text and content_type is ContentType.JSON):
        return pa.string()
    return type_


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How files are written. `codec` is one that pyarrow knows; ORC and Feather take the same names.

    Without a codec it is zstd, or what the files have whose rows are written anew.
    """

    content_type: ContentType = DEFAULTS.content_type
    codec: str | None = None
    row_group_rows: int = DEFAULTS.row_group_rows


class RowGroups(ABC):
    """Collects tables of one schema until they are a full row group: by rows, or by bytes as they are counted.

    A row that would make a group too large begins the next one. Only a row that is larger than a group is one itself.
    """

    def __init__(self, schema: pa.Schema, options: WriteOptions) -> None:
        self.rows = 0
        self.decoded_bytes = 0
        self._schema = schema
        self._options = options
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._dictionaries_in: list[str] | None = None

    def write(self, table: pa.Table) -> None:
        self.rows += table.num_rows
        whole = table
        while table.num_rows:
            fitting = self._fitting(table)
            if fitting:
                piece = row_bytes.compact(table.slice(0, fitting))
                self._waiting.append(piece)
                self._waiting_rows += fitting
                piece_bytes = self._bytes_of(piece)
                self._waiting_bytes += piece_bytes
                self.decoded_bytes += piece_bytes
                table = table.slice(fitting)
            if not fitting or self._waiting_rows == self._options.row_group_rows:
                if whole.num_rows > self._waiting_rows:  # a better sample
                    self._decide_dictionaries(whole)
                self.flush()

    def _decide_dictionaries(self, sample: pa.Table) -> None:
        if self._dictionaries_in is None:
            self._dictionaries_in = _worth_a_dictionary(sample)

    def flush(self) -> None:
        """Write what is waiting, as a row group of its own."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            whole = pa.concat_tables(waiting)
            self._decide_dictionaries(whole)
            self._write(whole.unify_dictionaries() if self._dictionaries_differ(waiting) else whole)
        self._waiting_rows = self._waiting_bytes = 0

    def _fitting(self, table: pa.Table) -> int:
        """How many of the first rows fit the group: one at least where nothing is waiting."""
        room = ROW_GROUP_BYTES - self._waiting_bytes
        rows = min(table.num_rows, self._options.row_group_rows - self._waiting_rows)
        if self._bytes_of(table.slice(0, rows)) <= room:
            return int(rows)
        fitting, above = 0, rows
        while above - fitting > 1:
            middle = (fitting + above) // 2
            if self._bytes_of(table.slice(0, middle)) <= room:
                fitting = middle
            else:
                above = middle
        return fitting if self._waiting else max(1, fitting)

    def _bytes_of(self, table: pa.Table) -> int:
        return row_bytes.of_table(table, self._options.content_type in _WITH_DICTIONARIES)

    def _dictionaries_differ(self, tables: list[pa.Table]) -> bool:
        return len(tables) > 1 and any(row_bytes.has_dictionary(field.type) for field in self._schema)

    @abstractmethod
    def _write(self, table: pa.Table) -> None:
        """One row group."""


class TableWriter(RowGroups):
    """Writes them to a file of any type."""

    def __init__(self, sink: IO[bytes], schema: pa.Schema, options: WriteOptions) -> None:
        super().__init__(schema, options)
        self._sink = sink
        self._file: Any = None
        self._dictionaries: dict[str, pa.Array] = {}

    def close(self) -> None:
        self.flush()
        if self._file is None:
            self._write(self._schema.empty_table())
        self._file.close()

    def _write(self, table: pa.Table) -> None:
        if self._options.content_type is ContentType.CSV and table.num_columns == 1 and table.column(0).null_count:
            raise InputError(
                f"CSV cannot hold a null in a table of one column, {table.column_names[0]!r}: a blank line"
            )
        if self._file is None:
            self._file = _open_writer(self._sink, self._schema, self._options, self._dictionaries_in or [])
        if self._options.content_type is ContentType.PARQUET:
            self._file.write_table(table, row_group_size=max(1, table.num_rows))
        elif self._options.content_type is ContentType.FEATHER:
            self._file.write_table(self._growing(table))
        elif self._options.content_type is ContentType.ORC:
            self._file.write(_for_orc(table))
        else:
            self._file.write_table(table)

    def _growing(self, table: pa.Table) -> pa.Table:
        """The same with dictionaries that go on where those before ended: an Arrow file takes no others."""
        for place, field in enumerate(table.schema):
            if not pa.types.is_dictionary(field.type):
                continue
            known = self._dictionaries.get(field.name)
            chunks = []
            for chunk in table.column(place).chunks:
                values = chunk.dictionary
                known = values[:0] if known is None else known
                fresh = values.filter(pc.invert(pc.is_in(values, known)))
                known = pa.concat_arrays([known, pc.unique(fresh)])
                chunks.append(pc.index_in(values, known).take(chunk.indices).cast(field.type.index_type))
            self._dictionaries[field.name] = known
            made = [pa.DictionaryArray.from_arrays(each, known, ordered=field.type.ordered) for each in chunks]
            column = pa.chunked_array(made, field.type)
            table = table.set_column(place, field, column)
        return table


def _for_orc(table: pa.Table) -> pa.Table:
    """Values instead of dictionaries, which ORC makes itself; nested columns from their beginning.

    Arrow's ORC writer takes rows of a sliced struct from where its children begin: other rows' values. And what it
    writes of timestamps, its reader gives back as nanoseconds or not at all: year 9999 is refused here.
    """
    for place, field in enumerate(table.schema):
        column = table.column(place)
        if pa.types.is_dictionary(field.type):
            table = table.set_column(place, field.name, column.cast(field.type.value_type))
        elif pa.types.is_nested(field.type):
            table = table.set_column(place, field, column.take(pa.array(np.arange(table.num_rows))))
        elif pa.types.is_timestamp(field.type) or pa.types.is_date64(field.type):
            try:
                column.cast(pa.timestamp("ns"))
            except pa.ArrowInvalid:
                raise InputError(
                    f"column {field.name!r}: ORC holds timestamps of the years 1678 to 2261 only"
                ) from None
    return table


def _open_writer(sink: IO[bytes], schema: pa.Schema, options: WriteOptions, dictionaries_in: list[str]) -> Any:
    codec = options.codec or DEFAULT_CODEC
    match options.content_type:
        case ContentType.PARQUET:
            return parquet_writer(sink, schema, options, dictionaries_in)
        case ContentType.FEATHER:
            how = pa.ipc.IpcWriteOptions(compression=_ipc_codec(codec), emit_dictionary_deltas=True)
            return pa.ipc.new_file(sink, schema, options=how)
        case ContentType.ORC:
            return pa.orc.ORCWriter(sink, compression=codec.upper() if codec != "none" else "UNCOMPRESSED")
        case ContentType.CSV:
            return pa.csv.CSVWriter(sink, schema)
        case _:
            raise InputError(f"{options.content_type.value} files can be read, but not written")


def parquet_writer(
    sink: IO[bytes] | pa.NativeFile,
    schema: pa.Schema,
    options: WriteOptions,
    dictionaries_in: list[str],
    page_index: bool = False,
) -> pq.ParquetWriter:
    """A writer that makes dictionaries of the values in these columns.

    Arrow's own dictionaries are written as they are, however large: above its limit, pyarrow would decode all rows.
    """
    codec = options.codec or DEFAULT_CODEC
    how: dict[str, Any] = {"compression": codec, "use_dictionary": dictionaries_in or False}
    if any(row_bytes.has_dictionary(field.type) for field in schema):
        how["dictionary_pagesize_limit"] = _DICTIONARY_BYTES_MAX
    return pq.ParquetWriter(sink, schema, write_page_index=page_index, **how)


def _ipc_codec(codec: str) -> str | None:
    return codec if codec in ("zstd", "lz4") else None


def _worth_a_dictionary(table: pa.Table) -> list[str]:
    """Top-level columns whose values repeat: a dictionary of nearly distinct values costs time and saves nothing."""
    return [field.name for field in table.schema if _repeats(field.type, table[field.name])]


def _repeats(type_: pa.DataType, column: pa.ChunkedArray) -> bool:
    if pa.types.is_dictionary(type_) or pa.types.is_nested(type_):
        return True
    if pa.types.is_boolean(type_) or column.nbytes > len(column) * _DICTIONARY_VALUE_BYTES_MAX:
        return False
    if len(column) < _DICTIONARY_ROWS_MIN:
        return True
    sample = column.slice(0, _DICTIONARY_SAMPLE_ROWS)
    while sample.nbytes > _DICTIONARY_SAMPLE_BYTES and len(sample) > _DICTIONARY_SAMPLE_ROWS_MIN:
        sample = sample.slice(0, max(_DICTIONARY_SAMPLE_ROWS_MIN, len(sample) // 2))
    if sample.nbytes > len(sample) * _DICTIONARY_VALUE_BYTES_MAX:
        return False
    try:
        return bool(pc.count_distinct(sample, mode="all").as_py() <= len(sample) * _DICTIONARY_DISTINCT_MAX)
    except pa.ArrowNotImplementedError:
        return True


class _Closing(Protocol):
    def close(self) -> None: ...


W = TypeVar("W", bound=_Closing)


@contextlib.contextmanager
def written(store: ObjectStore, path: str, content_type: ContentType, make: Callable[[IO[bytes]], W]) -> Iterator[W]:
    """What `make` makes of a sink; its file appears at `path` when the block ends without an exception."""
    with store.writer(path) as sink:
        made = make(sink)
        try:
            yield made
            made.close()
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InputError(f"{content_type.value} cannot hold this table: {_one_line(error)}") from error


def writer(
    store: ObjectStore, path: str, schema: pa.Schema, options: WriteOptions
) -> contextlib.AbstractContextManager[TableWriter]:
    """A writer of tables."""
    return written(store, path, options.content_type, lambda sink: TableWriter(sink, schema, options))


def write_table(store: ObjectStore, path: str, table: pa.Table, options: WriteOptions) -> DataFile:
    """Write one table as one file (number 0). Raises InputError naming a column that the format does not hold."""
    if table.num_rows and not table.num_columns:
        raise InputError(f"a table of {table.num_rows} rows without columns cannot be written")
    try:
        return _write_table(store, path, table, options)
    except (InputError, StoreError):
        check_writable(table.schema, options.content_type)
        raise


def _write_table(store: ObjectStore, path: str, table: pa.Table, options: WriteOptions) -> DataFile:
    table = schemas.computable(table)
    with writer(store, path, table.schema, options) as out:
        out.write(table)
    size, schema = store.stat(path).bytes, schemas.unmarked(table.schema)
    return DataFile(0, path, options.content_type, table.num_rows, size, schema, decoded_bytes=out.decoded_bytes)


def check_writable(schema: pa.Schema, content_type: ContentType) -> None:
    """Raises InputError naming the first column of a type that a format does not hold, or does not give back."""

    def fits(some: pa.Schema) -> bool:
        store, name = MemoryStore(), f"sample{suffix_of(content_type)}"
        try:
            written = _write_table(store, name, some.empty_table(), WriteOptions(content_type))
            return not list(read(store, written))
        except (InputError, StoreError, pa.ArrowException, OSError):
            return False

    if not fits(schema):
        for field in schema:
            if not fits(pa.schema([field])):
                raise InputError(f"column {field.name!r} is {field.type}, which {content_type.value} files cannot hold")


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Every error of a reader names its file in one line."""
    try:
        yield
    except NotFoundError:
        raise
    except InputError as error:
        if path in str(error):
            raise
        raise InputError(f"{path}: {error}") from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, pa.ArrowKeyError, OSError) as error:
        kind = StoreError if is_stores_fault(error) else InputError
        raise kind(f"{path} cannot be read: {_one_line(error)}") from error


_DAMAGE = re.compile(
    r"(?i)deserializ|decompress|inflate|corrupt|unexpected end|truncat|malformed|invalid|checksum|magic|not a "
    r"|encrypted|decrypt|too small|is a directory"
)
"""Arrow raises OSError for a broken connection and for broken bytes: these words tell the latter."""


def is_stores_fault(error: BaseException) -> bool:
    """Whether reading failed on the way to the bytes, so that it may be tried again, and not over the bytes."""
    if isinstance(error, (ConnectionError, TimeoutError)) or "AWS Error" in str(error):
        return True
    return isinstance(error, OSError) and not _DAMAGE.search(str(error))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
