"""What `append` takes: rows in memory or in a stream, of any library that speaks Arrow.

    pa.Table, pa.RecordBatch                          as they are
    pa.RecordBatchReader, a dataset, a scanner        batch by batch, never collected
    pandas, Polars, DuckDB, … (__arrow_c_stream__)    batch by batch
    a list of these                                   one file each

No other library is imported: what an object can do decides. The index of a pandas frame becomes columns where it has
names. Row numbers (whole numbers without a name) are dropped, and any other index without a name is refused, because it
could be the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from deltacompact.base.errors import InputError, StoreError
from deltacompact.base.model import ContentType, DataFile, Partition, TableKeys
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.base.wording import text_of
from deltacompact.index.sort_widths import longest_values
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import files, schemas, writing
from deltacompact.tabular.row_groups import WriteOptions

_ACCEPTED = (
    "append takes a pyarrow Table, RecordBatch, RecordBatchReader or dataset, a pandas or Polars DataFrame, "
    "any object with __arrow_c_stream__, or a list of these (one file each)"
)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one file to be written. `tables` can be read once; `name` is for messages."""

    name: str
    schema: pa.Schema
    tables: Iterator[pa.Table]
    is_empty: bool

    def described(self, content_type: ContentType) -> DataFile:
        """The file that they will be, as far as it is known before it is written: its columns, and if it has a row."""
        return DataFile(UNNUMBERED, self.name, content_type, int(not self.is_empty), 0, self.schema)


def incoming(given: Any) -> Iterator[Rows]:
    """One Rows for each file, made when it is asked for. Raises InputError for what holds no rows, or two
    columns of one name."""
    if (only := _rows(given, "the appended table")) is not None:
        yield only
        return
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise InputError(f"{_ACCEPTED}, not {_kind(given)}{_hint(given)}")
    for number, item in enumerate(given, 1):
        rows = _rows(item, f"appended table {number}")
        if rows is None:
            raise InputError(f"{_ACCEPTED}; item {number} of the list is {_kind(item)}{_hint(item)}")
        yield rows


def write_rows(
    store: ObjectStore,
    path: str,
    rows: Rows,
    partition: Partition,
    options: WriteOptions,
    keys: TableKeys | None = None,
) -> DataFile:
    """Write the rows as one file (number 0), batch by batch, and measure the sort columns of the keys.

    Raises InputError naming a column that the format does not hold, that disagrees with the partition's value, or that
    has too long a value for a sort key.
    """
    longest: dict[str, int] = {}
    schema = schemas.computable(rows.schema.empty_table()).schema
    try:
        with writing.writer(store, path, schema, options) as out:
            for table in rows.tables:
                schemas.check_partition_values(table, partition, rows.name)
                for name, size in longest_values(table, keys, rows.name):
                    longest[name] = max(size, longest.get(name, 0))
                out.write(schemas.computable(table))
    except (InputError, StoreError):
        writing.check_writable(rows.schema, options.content_type)
        raise
    size, described = store.stat(path).bytes, schemas.unmarked(schema)
    told = tuple(longest.items())
    return DataFile(
        UNNUMBERED, path, options.content_type, out.rows, size, described, longest=told, decoded_bytes=out.decoded_bytes
    )


def _rows(given: Any, name: str) -> Rows | None:
    """The rows of an object, None where it is none that holds rows."""
    if isinstance(given, pa.Table):
        schema, tables = given.schema, _tables([given], name)
    elif (reader := _reader(given, name)) is not None:
        schema = reader.schema.remove_metadata()
        tables = _tables((pa.Table.from_batches([batch]).replace_schema_metadata() for batch in reader), name)
    else:
        return None
    files.check_columns(schema, name)
    first = next(tables, None)  # whether there is any row counts when the columns are held against the stream's
    return Rows(name, schema, chain(() if first is None else (first,), tables), first is None)


def _tables(tables: Iterable[pa.Table], name: str) -> Iterator[pa.Table]:
    """Those with rows. An error of whoever makes them names them."""
    try:
        for table in tables:
            if table.num_rows and not table.num_columns:
                raise InputError(f"{name}: a table of {table.num_rows} rows without columns cannot be written")
            if table.num_rows:
                yield table
    except pa.ArrowException as error:
        raise InputError(f"{name} cannot be read: {text_of(error)}") from error


def _reader(given: Any, name: str) -> pa.RecordBatchReader | None:
    if isinstance(given, pa.RecordBatchReader):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(given.schema, [given])
    if isinstance(given, type):  # the class of a DataFrame has the attributes of its instances
        return None
    if type(given).__module__.startswith("pyarrow.") and hasattr(given, "scanner"):
        given = given.scanner()
    if type(given).__module__.startswith("pyarrow.") and hasattr(given, "to_reader"):
        return given.to_reader()
    if hasattr(given, "reset_index"):
        given = _without_index(given, name)
    try:
        if hasattr(given, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(given)
        if hasattr(given, "__arrow_c_array__"):
            batch = pa.record_batch(given)
            return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError) as error:
        raise InputError(f"{name} is {_kind(given)} that gives no rows: {text_of(error)}") from error
    return None


def _without_index(frame: Any, name: str) -> Any:
    """A pandas frame whose index, as far as it carries data, is among its columns."""
    index = getattr(frame, "index", None)
    if index is None or not hasattr(frame, "columns"):
        return frame
    names = list(index.names)
    if all(level is not None for level in names):
        for level in names:
            if level in frame.columns:
                raise InputError(f"{name}: the pandas index and a column are both called {level!r}: rename one")
        return frame.reset_index()
    if len(names) == 1 and index.dtype.kind in "iu":
        return frame.reset_index(drop=True)
    raise InputError(
        f"{name}: the pandas index holds {index.dtype} values without a name: name it (frame.rename_axis('id')) "
        "or drop it (frame.reset_index(drop=True))"
    )


def _kind(given: Any) -> str:
    if isinstance(given, type):
        return f"the class {given.__qualname__}"
    kind = type(given)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _hint(given: Any) -> str:
    """What to do with objects that are often tried."""
    if isinstance(given, (str, bytes)):
        return " (files are appended by append_files)"
    if isinstance(given, Mapping):
        return " (pyarrow.table(…) makes a table of it)"
    if hasattr(given, "collect") and not isinstance(given, type):
        return " (collect it first)"
    return ""
