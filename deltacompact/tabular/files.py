"""Reads tabular files through pyarrow: their rows in slices.

    read(file, ["id"], rows 200,000‥400,000)         -> (first row, table), …; reads only the row groups that it needs

    read_each([a, b, c])                             -> slices of a, of b, of c; b and c are opened and fetched ahead

A file that is not managed is checked against its stamp whenever it is opened. What a file is was found out at append
(inspecting.py).
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

from deltacompact.base.data_file import DataFile
from deltacompact.base.errors import DeltaCompactError, InputError
from deltacompact.base.limits import READ_LIMITS, ReadLimits
from deltacompact.base.model import ContentType
from deltacompact.storage.fetched_file import FILES_AHEAD, FetchedFile, Range, ReadAhead, announce
from deltacompact.storage.objects import Fetches, ObjectStore
from deltacompact.storage.opening import open_object
from deltacompact.tabular import column_types, field_ids, int96, parquet_read, schemas, stamps
from deltacompact.tabular.damage import naming
from deltacompact.tabular.fills import filled
from deltacompact.tabular.formats import UNTYPED
from deltacompact.tabular.row_groups import ROW_GROUP_ROWS
from deltacompact.tabular.units import Slices, units_of


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a file to read: columns (those that the file lacks are ignored) and a half-open range of rows.

    None means all columns, or all rows.
    """

    file: DataFile
    columns: Sequence[str] | None = None
    rows: tuple[int, int] | None = None


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
        """The file's own names of columns with texts in dictionaries, by the log: a compacted file says that it holds
        the texts."""
        types = [(name, self.file.schema.field(name).type) for name in self._wanted]
        found = [
            name for name, type_ in types if pa.types.is_dictionary(type_) and column_types.is_string(type_.value_type)
        ]
        return field_ids.stored_names(self.file, found)

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
            return self._of_parquet(source, start, stop)
        file = field_ids.as_stored(self.file)
        units = units_of(_at_once(source, file, self._limits), file, self._stored_names, start, stop)
        return units if self._texts is None else self._texts.kept(self.file.path, units)

    def _of_parquet(self, source: pa.NativeFile, start: int, stop: int) -> Slices:
        names, columns = self._stored_names, field_ids.as_stored(self.file).schema
        wanted, unit = pa.schema([columns.field(name) for name in names]), parquet_read.INT96_UNIT
        if old := int96.recorded_in_nanoseconds(source, self.parquet, wanted):
            int96.check(source, self.parquet, old, (start, stop), self._limits)
            unit = "ns"
        dictionaries = self._in_dictionaries
        return parquet_read.batches(source, self.parquet, names, start, stop, self._limits, unit, dictionaries)

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
        stat = None if isinstance(file_store, Fetches) else file_store.stat(name)
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
