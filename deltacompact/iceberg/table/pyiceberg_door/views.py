"""Catalogs whose client reads and writes metadata files itself (SQL, Glue, Hive): a view of one sends fewer requests.

                       PyIceberg's own way                              a view
    load               HEAD, GET                                        GET; nothing, if it is the file that we have
    commit: read       HEAD, GET                                        nothing, if it is the file that we have
    commit: write      HEAD, LIST, begin upload, part, complete         PUT
    commit: swap       the catalog's own, if the table still            the same
                       has the file that was read

Metadata files never change, and their names are used once. The time from the load to the swap is the time in which
other writers win, so each request that waits for another one counts. A view shares all state with its catalog. In
version 3 its commit is refused if one to another branch took the sequence number and row ids meanwhile, so that we try
again: REST servers check this themselves, PyIceberg does not.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import PY_IO_IMPL, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.typedef import Properties

from deltacompact.base.errors import NotFoundError
from deltacompact.base.wording import text_of
from deltacompact.iceberg.table import locations
from deltacompact.iceberg.table.metadata_files import is_metadata_file
from deltacompact.iceberg.table.pyiceberg_door.version_3 import WritableVersion3


@dataclass(frozen=True, slots=True)
class _Viewed:
    """What a view knows: the table as it was loaded, the sequence number to commit on, and who is told of its file."""

    table: Table | None
    last_sequence_number: int | None
    staged: Callable[[str], None]


def writes_metadata(catalog: Catalog) -> bool:
    """Whether the catalog's client writes metadata files; for REST, the server does."""
    return isinstance(catalog, MetastoreCatalog)


def view_of(
    catalog: Catalog,
    table: Table | None,
    last_sequence_number: int | None = None,
    staged: Callable[[str], None] = lambda location: None,
) -> Catalog:
    """A view of the catalog, if its client reads metadata files; else the catalog itself.

    `table`: as it was loaded from there. `last_sequence_number`: that of the table on which a commit is built. `staged`
    is told the metadata file of a commit before it is written.
    """
    if not writes_metadata(catalog):
        return catalog
    view: Any = object.__new__(_view_class(type(catalog)))
    view.__dict__ = catalog.__dict__  # the same connections and state, not a copy of them
    view._held = _Viewed(table, last_sequence_number, staged)
    return view  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=16)
def _view_class(catalog_class: Any) -> Any:
    class View(catalog_class):  # type: ignore[misc]
        __slots__ = ("_held",)
        _held: _Viewed

        @property
        def properties(self) -> Properties:
            """Metadata files are read by `MetadataIO`, unless the user has chosen another way."""
            own = self.__dict__["properties"]
            return own if own.get(PY_IO_IMPL) else {**own, PY_IO_IMPL: f"{__name__}.{MetadataIO.__name__}"}

        def _convert_orm_to_iceberg(self, row: Any) -> Table:
            return self._loaded(row.metadata_location) or super()._convert_orm_to_iceberg(row)

        def _convert_glue_to_iceberg(self, glue_table: Any) -> Table:
            location = (glue_table.get("Parameters") or {}).get("metadata_location")
            return self._loaded(location) or super()._convert_glue_to_iceberg(glue_table)

        def _convert_hive_into_iceberg(self, table: Any) -> Table:
            location = (table.parameters or {}).get("metadata_location")
            return self._loaded(location) or super()._convert_hive_into_iceberg(table)

        def _loaded(self, location: str | None) -> Table | None:
            """The table that we have, if this is its metadata file."""
            table = self._held.table
            return table if table is not None and table.metadata_location == location else None

        def _update_and_stage_table(self, current: Table | None, *others: Any) -> StagedTable:
            found = getattr(current and current.metadata, "last_sequence_number", 0)
            if current is not None and found != self._held.last_sequence_number:
                raise CommitFailedException(
                    f"the last sequence number is {found}, not {self._held.last_sequence_number}"
                )
            staged: StagedTable = super()._update_and_stage_table(current, *others)
            if isinstance(staged.metadata, TableMetadataV3):
                staged.metadata = WritableVersion3.of(staged.metadata)
            self._held.staged(staged.metadata_location)
            return staged

    return View


class MetadataIO(PyArrowFileIO):
    """PyIceberg's IO, but metadata files go through our store: one request each."""

    def new_input(self, location: str) -> InputFile:  # type: ignore[override]
        return _StoredInput(location, self.properties) if _is_ours(location) else super().new_input(location)

    def new_output(self, location: str) -> OutputFile:  # type: ignore[override]
        return _StoredOutput(location, self.properties) if _is_ours(location) else super().new_output(location)


_READ: ContextVar[dict[str, bytes] | None] = ContextVar("read metadata files", default=None)


@contextlib.contextmanager
def read_once() -> Iterator[Mapping[str, bytes]]:
    """Inside this block, no metadata file is read twice in this thread. Yields the files by location, as they are
    read."""
    read: dict[str, bytes] = {}
    token = _READ.set(read)
    try:
        yield read
    finally:
        _READ.reset(token)


def _is_ours(location: str) -> bool:
    return is_metadata_file(location) and locations.is_readable(location)


class _StoredInput(InputFile):
    def __init__(self, location: str, properties: Properties) -> None:
        super().__init__(location)
        self._properties = properties

    def open(self, seekable: bool = True) -> InputStream:
        """Raises FileNotFoundError, as PyIceberg expects."""
        known = _READ.get()
        if known is None or (data := known.get(self.location)) is None:
            try:
                data = locations.fetched(_store_of(self.location, self._properties), self.location)
            except NotFoundError as error:
                raise FileNotFoundError(text_of(error)) from error
            if known is not None:
                known[self.location] = data
        return io.BytesIO(data)

    def exists(self) -> bool:
        return locations.bytes_of(_store_of(self.location, self._properties), self.location) is not None

    def __len__(self) -> int:
        return locations.bytes_of(_store_of(self.location, self._properties), self.location) or 0


class _StoredOutput(OutputFile):
    """Does not look whether the file exists: its name has a UUID."""

    def __init__(self, location: str, properties: Properties) -> None:
        super().__init__(location)
        self._properties = properties

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Sink(self.location, self._properties)

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return _StoredInput(self.location, self._properties)

    def __len__(self) -> int:
        return len(self.to_input_file())


class _Sink(io.BytesIO):
    """Puts its bytes when it is closed; nothing, if the block with it ends by an error."""

    def __init__(self, location: str, properties: Properties) -> None:
        super().__init__()
        self._location, self._properties = location, properties

    def __exit__(self, kind: Any, *others: Any) -> None:
        if kind is None:
            locations.put(_store_of(self._location, self._properties), self._location, self.getvalue())
        super().__exit__(kind, *others)


def _store_of(location: str, properties: Properties) -> Any:
    return locations.store_of(location.rpartition("/")[0], properties)
