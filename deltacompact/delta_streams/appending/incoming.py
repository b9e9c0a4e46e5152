"""The rows that `append` takes: in memory or in a stream, from any library that speaks Arrow.

    pa.Table, pa.RecordBatch                          as they are
    pa.RecordBatchReader, a dataset, a scanner        batch by batch, never collected
    pandas, Polars, DuckDB, … (__arrow_c_stream__)    batch by batch
    a list of these                                   one file each

No other library is imported: only the methods of an object count. A named index of a pandas frame becomes columns. An
unnamed index of whole numbers is dropped: it numbers the rows. Any other unnamed index is refused, because it could be
the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from deltacompact.base.data_file import DataFile, FarValues
from deltacompact.base.errors import InputError, SchemaError, StoreError
from deltacompact.base.model import ContentType, Partition
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.base.table_keys import TableKeys
from deltacompact.base.wording import text_of
from deltacompact.index.sort_widths import longest_values
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular import far_values, null_counts, partition_texts, schemas, whole_days, writing
from deltacompact.tabular.formats import surely_holds
from deltacompact.tabular.null_counts import NullCounts
from deltacompact.tabular.row_groups import WriteOptions

_ACCEPTED = (
    "append takes a pyarrow Table, RecordBatch, RecordBatchReader or dataset, a pandas or Polars DataFrame, "
    "any object with __arrow_c_stream__, or a list of these (one file each)"
)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one file to write. `tables` can be read once; `name` is for messages."""

    name: str
    schema: pa.Schema
    tables: Iterator[pa.Table]
    is_empty: bool

    def described(self, content_type: ContentType) -> DataFile:
        """The future file as it is known before the write: its columns, and whether it has a row; no values."""
        return DataFile(UNNUMBERED, self.name, content_type, int(not self.is_empty), 0, self.schema, far=())


def incoming(tables: Any) -> Iterator[Rows]:
    """One Rows for each file, lazily.

    Raises InputError for an object without rows, and for two columns of one name.
    """
    if (only := rows_of(tables, "the appended table")) is not None:
        yield only
        return
    if isinstance(tables, (str, bytes, Mapping)) or not isinstance(tables, Iterable):
        raise InputError(f"{_ACCEPTED}, not {_kind(tables)}{_hint(tables)}")
    for number, item in enumerate(tables, 1):
        rows = rows_of(item, f"appended table {number}")
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
    """Write the rows as one file (number 0), batch by batch, and measure its sort columns and far values.

    Raises InputError naming a column that the format cannot hold, whose values differ from the partition's value, are
    too long for a sort key, or are no dates or times of day.
    """
    longest: dict[str, int] = {}
    far: FarValues = ()
    nulls: NullCounts = ()
    digested = keys.of_rows(partition.names).primary if keys else ()
    try:
        schema = schemas.computable(rows.schema.empty_table(), rows.name).schema
        if not surely_holds(options.content_type, schema):  # some types are written, and cannot be read back
            writing.check_writable(schema, options.content_type)
        with writing.writer(store, path, schema, options) as out:
            for table in rows.tables:
                partition_texts.check_partition_values(table, partition, rows.name)
                whole_days.check_times(table, rows.name)
                for name, size in longest_values(table, keys, rows.name):
                    longest[name] = max(size, longest.get(name, 0))
                far = far_values.merged([far, far_values.of_table(table)])
                nulls = null_counts.merged([nulls, null_counts.of_table(table, digested)])
                out.write(schemas.computable(table, rows.name))
    except (InputError, StoreError, OSError, pa.ArrowNotImplementedError):
        writing.check_writable(rows.schema, options.content_type)
        raise
    described = schemas.unmarked(schema)
    written = DataFile(
        UNNUMBERED,
        path,
        options.content_type,
        out.rows,
        out.bytes,
        described,
        longest=tuple(longest.items()),
        decoded_bytes=out.decoded_bytes,
        widest_row_bytes=out.widest_row_bytes,
        far=far,
        nulls=nulls if keys else None,
        decodes=True,
    )
    return writing.with_group_bytes(written, out.group_bytes)


def check_compactable(file: DataFile) -> None:
    """Raise SchemaError naming a column that files of others can hold, and the Parquet files of a compaction not."""
    stored = schemas.unmarked(schemas.union([file]))
    if not surely_holds(ContentType.PARQUET, stored):
        try:
            writing.check_writable(stored, ContentType.PARQUET)
        except InputError as error:
            name = file.name or file.path
            raise SchemaError(f"{name}: {error}, so no compaction could write it: convert the column") from None


def rows_of(source: Any, name: str) -> Rows | None:
    """The rows of an object. None: it is not an object with rows."""
    if isinstance(source, pa.Table):
        schema, tables = source.schema, _tables([source], name)
    elif (reader := _reader(source, name)) is not None:
        schema = reader.schema.remove_metadata()
        tables = _tables((pa.Table.from_batches([batch]).replace_schema_metadata() for batch in reader), name)
    else:
        return None
    schemas.check_columns(schema, name)
    first = next(tables, None)  # the check of the columns must know whether there is a row
    return Rows(name, schema, chain(() if first is None else (first,), tables), first is None)


def _tables(tables: Iterable[pa.Table], name: str) -> Iterator[pa.Table]:
    """The tables that have rows. An error of the library that makes them becomes an InputError with their name."""
    try:
        for table in tables:
            if table.num_rows and not table.num_columns:
                raise InputError(f"{name}: a table of {table.num_rows} rows without columns cannot be written")
            if table.num_rows:
                yield table
    except pa.ArrowException as error:
        raise InputError(f"{name} cannot be read: {text_of(error)}") from error


def _reader(source: Any, name: str) -> pa.RecordBatchReader | None:
    if isinstance(source, pa.RecordBatchReader):
        return source
    if isinstance(source, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(source.schema, [source])
    if isinstance(source, type):  # the class of a DataFrame has the attributes of its instances
        return None
    if type(source).__module__.startswith("pyarrow.") and hasattr(source, "scanner"):
        source = source.scanner()
    if type(source).__module__.startswith("pyarrow.") and hasattr(source, "to_reader"):
        return source.to_reader()
    if hasattr(source, "reset_index"):
        source = _without_index(source, name)
    try:
        if hasattr(source, "__arrow_c_stream__"):
            _refuse_objects(source, name)
            return pa.RecordBatchReader.from_stream(source)
        if hasattr(source, "__arrow_c_array__"):
            batch = pa.record_batch(source)
            return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except (ValueError, TypeError, pa.ArrowNotImplementedError) as error:
        said = "; ".join(map(text_of, error.args))  # pyarrow names the column of a pandas frame apart
        raise InputError(f"{name} is {_kind(source)} that gives no rows: {said}") from error
    return None


def _refuse_objects(source: Any, name: str) -> None:
    """Raise InputError for Python objects in a Polars frame, which gives their addresses as if they were values."""
    if type(source).__module__.startswith("polars.") and hasattr(source, "schema"):
        for column, type_ in source.schema.items():
            if str(type_) == "Object":
                raise InputError(f"{name}: column {column!r} has Python objects, not values: cast it to another type")


def _without_index(frame: Any, name: str) -> Any:
    """A pandas frame without an index: a named index becomes columns, row numbers are dropped."""
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


def _kind(item: Any) -> str:
    if isinstance(item, type):
        return f"the class {item.__qualname__}"
    kind = type(item)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _hint(item: Any) -> str:
    """Advice for objects that users often try."""
    if isinstance(item, (str, bytes)):
        return " (append_files appends files)"
    if isinstance(item, Mapping):
        return " (pyarrow.table(…) makes a table of it)"
    if hasattr(item, "collect") and not isinstance(item, type):
        return " (collect it first)"
    return ""
