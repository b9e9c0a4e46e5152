"""Reads tabular files through pyarrow: their schema and row count, and their rows in slices.

    inspect("orders.csv", known schema)              -> schema, 1,000 rows
    read(file, ["id"], rows 200,000‥400,000)         -> (first row, table), …; reads only the row groups that it needs

    read_each([a, b, c])                             -> slices of a, of b, of c; b and c are opened and fetched ahead

Parquet, ORC and Arrow files store their types. CSV and JSON lines get types from the table's schema. The log records
the types at append, so every later reader uses the same types. A file that is not managed is checked against its stamp
whenever it is opened.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.feather

from deltacompact.base.errors import DeltaCompactError, InputError, SchemaError
from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.base.model import ContentType, DataFile, Partition
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.base.wording import columns_shown, text_of
from deltacompact.storage.fetched_file import FILES_AHEAD, FetchedFile, Range, ReadAhead, announce
from deltacompact.storage.objects import Fetches, ObjectStore
from deltacompact.storage.opening import open_object
from deltacompact.tabular import (
    far_values,
    field_ids,
    inferred_numbers,
    key_values,
    null_counts,
    parquet_read,
    schemas,
    stamps,
)
from deltacompact.tabular.beginnings import BEGINNING_BYTES, contradiction
from deltacompact.tabular.damage import naming
from deltacompact.tabular.fills import filled
from deltacompact.tabular.formats import EXTENSIONS, UNTYPED, extensions
from deltacompact.tabular.known_pages import known_groups
from deltacompact.tabular.row_groups import ROW_GROUP_ROWS
from deltacompact.tabular.text_files import read_text


def inspect(
    store: ObjectStore,
    path: str,
    content_type: ContentType,
    known: pa.Schema | None = None,
    partition: Partition | None = None,
    *,
    managed: bool = True,
    hashed: bool = False,
    keys: Sequence[str] = (),
    exact: Iterable[str] = (),
    decoded: bool = False,
) -> DataFile:
    """Schema, rows and bytes of a file (number 0). `known` gives types to columns of CSV and JSON.

    Nulls are counted in the columns `keys`. Raises InputError for text with inexact numbers in the columns `exact`.
    With `partition`, the file's partition columns are checked against its values. A file that is not managed gets a
    stamp; with `hashed`, the stamp has all that later readers need, and the file must not change meanwhile. With
    `decoded`, all rows of a local file are decoded, except Parquet pages that are known to decode.
    """
    file_store, name = open_object(store, path)
    with naming(path):
        before = None if isinstance(file_store, Fetches) else stamps.settled(file_store, name, managed)
        with file_store.open(name) as source:
            stat = stamps.stat_of(file_store, name, source) if before is None else before
            if hashed and content_type in UNTYPED and not parquet_read.is_near(source):
                source = pa.BufferReader(source.read_buffer())  # download once, to parse and to hash
            with _contradicted(file_store, name, content_type):
                file = _described(source, path, content_type, known, partition, keys, exact)
            decodes = content_type in UNTYPED or _decodes(source, file, decoded)
            to_hash = source if hashed and (stat.etag is None or content_type in UNTYPED) else None
            stamp = None if managed else stamps.stamp_of(stat, to_hash)
        if hashed and stat.etag is None and file_store.stat(name) != stat:
            raise InputError(f"{path} was written to while it was read: append it when it is finished")
    schema = schemas.unmarked(file.schema)
    return replace(file, bytes=stat.bytes, schema=schema, stamp=stamp, managed=managed, decodes=decodes)


@contextlib.contextmanager
def _contradicted(store: ObjectStore, name: str, content_type: ContentType) -> Iterator[None]:
    """Where a file cannot be read as what its name says: say what its first bytes say instead."""
    try:
        yield
    except (pa.ArrowException, InputError, OSError) as error:
        if EXTENSIONS.get(extensions(name)[0]) is content_type and (what := _what_it_is(store, name)) is not None:
            raise InputError(what) from error
        raise


def _what_it_is(store: ObjectStore, name: str) -> str | None:
    with contextlib.suppress(pa.ArrowException, OSError, DeltaCompactError), store.open(name) as source:
        return contradiction(name, bytes(source.read(BEGINNING_BYTES)))
    return None


def _decodes(source: pa.NativeFile, file: DataFile, decoded: bool) -> bool:
    """Whether all pages of an opened file are known to decode. `decoded`: decode the pages of a local file to find out.

    Raises the errors of a reader: a file that cannot be read must not get into a table.
    """
    names, parquet, groups = list(file.schema.names), None, list[tuple[int, int]]()
    if file.content_type is ContentType.PARQUET:
        parquet = parquet_read.described(source)
        groups = parquet_read.unknown_rows(parquet, known_groups(parquet.footer, parquet.metadata.num_row_groups))
        if not groups:
            return True
    if not decoded or not parquet_read.is_near(source):
        return False
    if parquet is None:
        source.seek(0)
        stored = [_units(source, file, names, 0, file.rows)]
    else:
        stored = [parquet_read.batches(source, parquet, names, *rows, READ_LIMITS) for rows in groups]
    for units in stored:
        for _, table in units:
            schemas.computable(table, file.path)
    return True


def _described(
    source: pa.NativeFile,
    path: str,
    content_type: ContentType,
    known: pa.Schema | None,
    partition: Partition | None,
    keys: Sequence[str],
    exact: Iterable[str],
) -> DataFile:
    """What an opened file tells of itself."""
    decoded_bytes, group_bytes, widest, parquet, far, nulls = None, None, None, None, None, None
    match content_type:
        case ContentType.PARQUET:
            parquet = parquet_read.described(source)
            schema, rows = parquet.metadata.schema.to_arrow_schema(), parquet.metadata.num_rows
            decoded_bytes = parquet_read.decoded_bytes(parquet, schema.names)
            group_bytes = parquet_read.group_bytes(parquet, schema.names)
            widest = parquet_read.widest_row_bytes(source, parquet)
            far = far_values.of_footer(parquet.metadata, schema)
            nulls = null_counts.of_footer(parquet.metadata, schema, keys)
        case ContentType.ORC:
            from deltacompact.tabular.orc_files import open_orc

            orc = open_orc(source)
            schema, rows = orc.schema, orc.nrows
        case ContentType.FEATHER:
            batches = _feather(source, None)
            schema, rows, group_bytes = batches.schema, sum(batches.rows), max(batches.bytes, default=0)
        case _:
            table = read_text(source, path, content_type, known, None)
            check_columns(table.schema, path)
            if content_type is ContentType.CSV and not table.num_rows:
                _check_header(table.schema.names, path, keys)
            _check_text(table)
            inferred_numbers.check_keys(table, exact, path)
            if partition:
                schemas.check_partition_values(table, partition, path)
            return DataFile(
                *(UNNUMBERED, path, content_type, table.num_rows, 0, table.schema),
                decoded_bytes=int(table.nbytes),
                far=far_values.of_table(table),
                nulls=null_counts.of_table(table, keys),
                ranges=key_values.of_table(table, keys),
            )
    check_columns(schema, path)
    file = DataFile(
        *(UNNUMBERED, path, content_type, rows, 0, schema),
        decoded_bytes=decoded_bytes,
        group_bytes=group_bytes,
        widest_row_bytes=widest,
    )
    near = parquet_read.is_near(source)
    named = [name for name in (partition.names if partition else ()) if name in schema.names]
    ranged = far_values.ranged_columns(schema) if far is None else []
    counted = [name for name in keys if name in schema.names] if nulls is None else []
    wanted = list(dict.fromkeys([*named, *ranged, *counted]))
    if wanted and (near or named):  # a remote file too: a row of another partition would block this partition
        of_parts = []
        source.seek(0)
        if parquet is None:
            source = source if near else pa.BufferReader(source.read_buffer())
            units = _units(source, file, wanted, 0, rows)
        else:
            units = parquet_read.batches(source, parquet, wanted, 0, rows, READ_LIMITS)
        for _, table in units:
            if partition:
                schemas.check_partition_values(table, partition, path)
            of_parts.append((far_values.of_table(table), null_counts.of_table(table, counted)))
        far = far_values.merged(part for part, _ in of_parts) if far is None else far
        nulls = null_counts.merged(part for _, part in of_parts) if nulls is None else nulls
    far = () if far is None and not ranged else far
    nulls = () if nulls is None and not counted else nulls
    return replace(file, far=far, nulls=nulls)


def _check_header(names: list[str], path: str, keys: Sequence[str]) -> None:
    """Refuse CSV whose only line names no key: it may be a row, which would be taken for the names of columns."""
    for key in keys:
        if key not in names:
            raise SchemaError(
                f"{path}: key column {key!r} is missing ({columns_shown(names)}): the first line must name the columns"
            )


def _check_text(table: pa.Table) -> None:
    """Refuse text that is not UTF-8: Arrow's JSON parser takes any bytes, and later readers would fail."""
    for name in table.column_names:
        try:
            table[name].validate(full=True)
        except pa.ArrowInvalid as error:
            raise InputError(f"column {name!r}: {text_of(error)}") from error


def check_columns(schema: pa.Schema, path: str) -> None:
    """Refuse duplicate columns and unions: no format that we write can hold them."""
    seen = set()
    for name in schema.names:
        if name in seen:
            raise SchemaError(f"{path}: column {name!r} appears twice")
        seen.add(name)
    for field in schema:
        if _has_union(field.type):
            raise SchemaError(
                f"{path}: column {field.name!r} is {field.type}: values of several types cannot be folded"
            )


def _has_union(type_: pa.DataType) -> bool:
    below = range(type_.num_fields) if pa.types.is_nested(type_) else ()
    return pa.types.is_union(type_) or any(_has_union(type_.field(number).type) for number in below)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a file to read: columns (those that the file lacks are ignored) and a half-open range of rows.

    None means all columns, or all rows.
    """

    file: DataFile
    columns: Sequence[str] | None = None
    rows: tuple[int, int] | None = None


Slices = Iterator[tuple[int, pa.Table]]
"""Rows of one file, in row order: the number of the first row, and the rows."""


def read(
    store: ObjectStore,
    file: DataFile,
    columns: Sequence[str] | None = None,
    rows: tuple[int, int] | None = None,
    limits: ReadLimits = READ_LIMITS,
) -> Slices:
    """Slices of a part of a file. Row groups, batches and stripes outside of the part are not read.

    Raises InputError naming the file if it is corrupt, and NotFoundError if it is missing.
    """
    for slices in read_each(store, [Part(file, columns, rows)], limits):
        yield from slices


def read_each(store: ObjectStore, parts: Iterable[Part], limits: ReadLimits = READ_LIMITS) -> Iterator[Slices]:
    """The slices of each part, in order; take all slices of a part before the next part. Raises as `read` does.

    Remote files are opened ahead, and their wanted bytes are fetched while earlier files are decoded.
    """
    ahead, remaining = ReadAhead(limits), iter(parts)
    upcoming: deque[FileReader] = deque()
    try:
        while True:
            for part in islice(remaining, FILES_AHEAD + 1 - len(upcoming)):
                upcoming.append(FileReader(store, part, ahead))
            if not upcoming:
                return
            yield _used_up(upcoming.popleft(), upcoming)
    finally:
        for reader in upcoming:
            reader.close()


def _used_up(reader: FileReader, upcoming: Iterable[FileReader]) -> Slices:
    with reader:
        for slice_ in reader.slices():
            for following in upcoming:
                following.announce_if_open()
            yield slice_


@dataclass(slots=True)
class LastText:
    """Keeps the rows of the last text file that was read: a text is decoded whole, and the next reader may need it.

    `wanted`: the paths of files with more than one reader.
    """

    wanted: Collection[str]
    path: str = ""
    rows: pa.Table | None = None

    def of(self, path: str) -> pa.Table | None:
        return self.rows if path == self.path else None

    def kept(self, path: str, units: Slices) -> Slices:
        """The same units, kept for the next reader. A text file has one unit."""
        self.rows = None  # its memory is free before the next text is decoded
        for first, rows in units:
            self.path, self.rows = path, rows
            yield first, rows


class FileReader:
    """Reads a part of a file. The file is opened once, when it is needed; a remote file's first request begins now.

    A text file whose rows `texts` has is not opened.
    """

    def __init__(
        self,
        store: ObjectStore,
        part: Part,
        ahead: ReadAhead,
        to_copy: bool = False,
        texts: LastText | None = None,
    ) -> None:
        self.file = part.file
        self._part = part
        self._ahead = ahead
        self._limits = ahead.limits
        self._to_copy = to_copy
        self.origin = self._store, self._name = open_object(store, part.file.path)
        is_text = part.file.content_type in UNTYPED
        self._texts = texts if is_text and texts is not None and part.file.path in texts.wanted else None
        self._decoded = None if self._texts is None else self._texts.of(part.file.path)
        is_opened = self._decoded is None
        self._fetched = ahead.file(self._store, self._name, part.file.bytes or None) if is_opened else None
        self._open = contextlib.ExitStack()
        self._source: pa.NativeFile | None = None
        self._announced = False
        self._parquet: parquet_read.Described | None = None
        self._chunks: list[parquet_read.GroupChunks] | None = None

    def __enter__(self) -> FileReader:
        return self

    def __exit__(self, *error: Any) -> None:
        self._source = None
        with naming(self.file.path):
            self._open.__exit__(*error)
        if self._fetched is not None:
            self._fetched.close()
            self._fetched = None

    def reads(self, part: Part) -> None:
        """Read this part of the file from now on. `part.file` may record more than before. The file stays open."""
        self.file, self._part = part.file, part
        self._announced, self._chunks = False, None

    def close(self) -> None:
        """Close the file. Reading it again opens it again."""
        self.__exit__(None, None, None)

    def again(self) -> FileReader:
        """A reader of the same part that opens the file by itself."""
        return FileReader(self._store, self._part, self._ahead, self._to_copy)

    @property
    def source(self) -> pa.NativeFile:
        """The open file. Raises InputError if it changed since it was appended."""
        if self._source is None:
            with naming(self.file.path):
                self._source = self._open.enter_context(_opened(self._store, self._name, self.file, self._fetched))
        return self._source

    @property
    def parquet(self) -> parquet_read.Described:
        """The footer of a Parquet file."""
        # Not functools.cached_property: before Python 3.12 its one lock would make all files wait for each footer.
        if self._parquet is None:
            with naming(self.file.path):
                self._parquet = described_parquet(self.source, self.file, self._to_copy, self._limits)
        return self._parquet

    @property
    def is_remote(self) -> bool:
        """Whether opening the file takes a request."""
        return isinstance(self._store, Fetches)

    def announce_if_open(self) -> None:
        """Announce what will be read, if the file is open already. A broken file is reported when it is read."""
        if not self._announced and self._fetched is not None and self._fetched.is_open:
            with contextlib.suppress(DeltaCompactError):
                self._announce()

    def _announce(self) -> None:
        match self.file.content_type:
            case ContentType.PARQUET:
                self.announce(self.ranges(self._rows))
            case ContentType.CSV | ContentType.JSON:
                self.announce(None)

    def ranges(self, rows: tuple[int, int]) -> list[Range]:
        """The byte ranges of the wanted columns of these rows in a Parquet file."""
        if self._chunks is None:
            self._chunks = parquet_read.group_chunks(self.parquet, self._stored_names)
        start, stop = rows
        return [
            range_
            for group in self._chunks
            if group.stop > start and group.first < stop
            for range_ in group.wanted(stop, self._limits)
        ]

    def announce(self, ranges: Sequence[Range] | None) -> None:
        """Announce all that will be read; None: the whole file."""
        self._announced = True
        announce(self.source, ranges)

    @property
    def _wanted(self) -> list[str]:
        columns = None if self._part.columns is None else frozenset(self._part.columns)
        return [name for name in self.file.schema.names if columns is None or name in columns]

    @property
    def _stored_names(self) -> list[str]:
        return field_ids.stored_names(self.file, self._wanted)

    @property
    def _in_dictionaries(self) -> list[str]:
        """Columns with texts in dictionaries, by the log: a compacted file says that it holds the texts."""
        wanted = ((name, self.file.schema.field(name).type) for name in self._wanted)
        return [name for name, type_ in wanted if pa.types.is_dictionary(type_) and schemas.is_string(type_.value_type)]

    @property
    def _rows(self) -> tuple[int, int]:
        return self._part.rows or (0, self.file.rows)

    def slices(self, rows: tuple[int, int] | None = None) -> Slices:
        """Slices of the part, or of a range of its rows."""
        start, stop = rows or self._rows
        with naming(self.file.path):
            yield from _clipped(self.file, self._units_of(self._stored(start, stop)), start, stop)

    def _stored(self, start: int, stop: int) -> Slices:
        """The units with these rows, under the file's own names."""
        if self._decoded is not None:
            return iter([(0, self._decoded)])
        source = self.source
        if not self._announced:
            self._announce()
        if self.file.content_type is ContentType.PARQUET:
            unit = None if self.file.stored is None else parquet_read.INT96_UNIT
            rows = start, stop
            names = self._stored_names
            return parquet_read.batches(source, self.parquet, names, *rows, self._limits, unit, self._in_dictionaries)
        file = field_ids.as_stored(self.file)
        units = _units(_at_once(source, file, self._limits), file, self._stored_names, start, stop)
        return units if self._texts is None else self._texts.kept(self.file.path, units)

    def wanted(self, wanted: npt.NDArray[np.bool_]) -> Iterator[tuple[npt.NDArray[np.int64], pa.Table]]:
        """The numbers of the wanted rows, and the rows. Row groups without a wanted row are not read."""
        for rows in self._ranges_with(wanted):
            self.reads(replace(self._part, rows=rows))
            for first, table in self.slices():
                own = wanted[first : first + table.num_rows]
                if own.all():
                    yield np.arange(first, first + table.num_rows), table
                elif own.any():
                    yield first + np.flatnonzero(own), table.filter(pa.array(own))

    def _ranges_with(self, wanted: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
        places = np.flatnonzero(wanted)
        if not len(places):
            return []
        if self.file.content_type is not ContentType.PARQUET:
            return [(int(places[0]), int(places[-1]) + 1)]
        return parquet_read.ranges_with(self.parquet, places)

    def _units_of(self, stored: Slices) -> Slices:
        """Units under the table's names, with the file's fills."""
        names = self._wanted
        for first, table in stored:
            yield first, filled(field_ids.projected(table, self.file, names), self.file, names, first)


def _at_once(source: pa.NativeFile, file: DataFile, limits: ReadLimits) -> pa.NativeFile:
    """ORC and Arrow files are read in many small pieces, so a remote file that fits the read-ahead is fetched whole."""
    if file.content_type in UNTYPED or not isinstance(source, FetchedFile) or source.size() > limits.read_ahead_bytes:
        return source
    return pa.BufferReader(source.read_at(source.size(), 0))


def _clipped(
    file: DataFile, units: Iterator[tuple[int, pa.Table]], start: int, stop: int
) -> Iterator[tuple[int, pa.Table]]:
    """Cut the units to the range, and check the file's row count against the log's."""
    seen = start
    for first, table in _divided(units):
        low, high = max(start, first), min(stop, first + table.num_rows)
        if low < high:
            yield low, schemas.computable(table.slice(low - first, high - low), file.path)
            seen = high
        if first + table.num_rows >= stop:
            break  # the rest of the unit would be decoded for nothing
    if seen != stop:
        raise InputError(f"{file.path} holds {seen} rows where the log says {file.rows}")


def _divided(units: Iterator[tuple[int, pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
    """Split units into pieces of at most a row group: other formats have batches of any size, even a whole file."""
    for first, table in units:
        for start in range(0, max(1, table.num_rows), ROW_GROUP_ROWS) if table.num_columns else [0]:
            yield first + start, table.slice(start, ROW_GROUP_ROWS) if table.num_columns else table


def _units(source: pa.NativeFile, file: DataFile, columns: list[str], start: int, stop: int) -> Slices:
    """The stripes or batches of a file that is not Parquet; a text file has one unit."""
    match file.content_type:
        case ContentType.ORC:
            from deltacompact.tabular.orc_files import open_orc, stripe

            orc, first = open_orc(source), 0
            read = columns or orc.schema.names[:1]  # a stripe without columns would have no rows
            for number in range(orc.nstripes):
                table = stripe(orc, number, read).select(columns)
                yield first, table
                first += table.num_rows
        case ContentType.FEATHER:
            batches, first = _feather(source, columns), 0
            for number, rows in enumerate(batches.rows):
                if first + rows > start and first < stop:
                    yield first, batches.table(number).select(columns)
                first += rows
        case _:
            yield 0, read_text(source, file.path, file.content_type, file.schema, columns)


@contextlib.contextmanager
def opened(store: ObjectStore, file: DataFile) -> Iterator[pa.NativeFile]:
    """Open a file. Errors inside the block name it. Raises InputError if the file changed since it was appended."""
    file_store, name = open_object(store, file.path)
    with naming(file.path), _opened(file_store, name, file, None) as source:
        yield source


@contextlib.contextmanager
def _opened(file_store: ObjectStore, name: str, file: DataFile, fetched: FetchedFile | None) -> Iterator[pa.NativeFile]:
    with file_store.open(name) if fetched is None else fetched as source:
        if file.managed:
            yield source
            return
        stat = file_store.stat(name) if parquet_read.is_near(source) else None
        stamps.check_unchanged(file_store, name, source, file)
        yield source
        if stat is not None and file_store.stat(name) != stat:  # a writer can change a file on a disk during the read
            stamps.check_unchanged(file_store, name, source, file)


def described_parquet(
    source: pa.NativeFile, file: DataFile, to_copy: bool = False, limits: ReadLimits = READ_LIMITS
) -> parquet_read.Described:
    """A Parquet footer, checked against the log's row count. `to_copy` reads the page indexes too."""
    found = parquet_read.described(source, to_copy, limits)
    if found.metadata.num_rows != file.rows:
        raise InputError(f"{file.path} holds {found.metadata.num_rows} rows where the log says {file.rows}")
    return found


@dataclass(frozen=True)
class _Batches:
    """Record batches by number, with the rows and bytes of each. Feather V1 and an IPC stream are a single batch."""

    schema: pa.Schema
    rows: list[int]
    bytes: list[int]
    table: Any


def _feather(source: pa.NativeFile, columns: list[str] | None) -> _Batches:
    magic = source.read(6)
    source.seek(0)
    if magic[:6] == b"ARROW1":
        plain = pa.ipc.open_file(source)
        fields = None if columns is None else sorted(plain.schema.get_field_index(name) for name in columns)
        # An empty selection would mean all columns, so read one column and drop it.
        reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields or None))
        sizes = [_batch_sizes(reader, number) for number in range(reader.num_record_batches)]
        rows, held = [rows for rows, _ in sizes], [held for _, held in sizes]
        return _Batches(plain.schema, rows, held, lambda number: _sound(reader.get_batch(number)))
    whole = pa.feather.read_table(source) if magic[:4] == b"FEA1" else pa.ipc.open_stream(source).read_all()
    whole = pa.concat_tables(map(_sound, whole.to_batches())) if whole.num_rows else whole
    return _Batches(whole.schema, [whole.num_rows], [int(whole.nbytes)], lambda _: whole)


def _sound(batch: pa.RecordBatch) -> pa.Table:
    """The rows of a batch. Raises ArrowInvalid where bytes are damaged: to follow their offsets ends the process.

    date64 has no offsets, and Arrow refuses those that are no whole days in worse words than ours. It refuses times of
    day after 23:59, too, which all formats hold.
    """
    for column in batch.columns:
        if not pa.types.is_date64(column.type):
            numbers = _times_as_numbers(column.type)
            (column if numbers == column.type else column.view(numbers)).validate(full=True)
    return pa.Table.from_batches([batch])


def _times_as_numbers(type_: pa.DataType) -> pa.DataType:
    """The type, with the integers that times of day are stored as. Views of lists stay as they are."""
    t = pa.types
    if t.is_time(type_):
        return pa.int32() if t.is_time32(type_) else pa.int64()
    if t.is_dictionary(type_):
        return pa.dictionary(type_.index_type, _times_as_numbers(type_.value_type), type_.ordered)

    def below(field: pa.Field) -> pa.Field:
        return field.with_type(_times_as_numbers(field.type))

    if t.is_struct(type_):
        return pa.struct(map(below, type_))
    if t.is_map(type_):
        return pa.map_(below(type_.key_field), below(type_.item_field), type_.keys_sorted)
    if t.is_fixed_size_list(type_):
        return pa.list_(below(type_.value_field), type_.list_size)
    if t.is_list(type_) or t.is_large_list(type_):
        return (pa.list_ if t.is_list(type_) else pa.large_list)(below(type_.value_field))
    return type_


def _batch_sizes(reader: Any, number: int) -> tuple[int, int]:
    batch = reader.get_batch(number)
    batch.validate()
    return int(batch.num_rows), int(batch.nbytes)
