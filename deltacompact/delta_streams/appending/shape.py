"""The shape of a stream: the columns and key classes of its files, and whether further files fit. Pure.

    position 80  upsert  id int32, v string                 rows: id int32, v string       key id: an integer
    position 90  delete  id int64                           rows stay                      key id: an integer
    incoming     upsert  id string                          refused: the key is an integer
    incoming     upsert  id int64, v double                 refused: v is a string
    incoming     delete  v string                           refused: the key column 'id' is missing

Values decide where types alone do not: the longest values of sort columns (sort_widths.py), and values that a wider
type does not hold (far.py).

A commit that does not fit would block its partition: no compaction could fold it and no reader could read it. So the
writer checks each incoming file against the shape before the log names it. A file in the log that does not fit (it came
before the keys were known) does not change the shape: the user must take it out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import Commit
from deltacompact.base.errors import InputError, SchemaError
from deltacompact.base.model import ContentType, OperationType, Table
from deltacompact.base.numbers import UNNUMBERED
from deltacompact.base.table_keys import TableKeys
from deltacompact.delta_streams.appending.far import (
    NOTHING_FAR,
    FarOfStream,
    Measure,
    has_changed,
    may_have,
    of_delta,
    with_sort_types,
)
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.index.keys import Encoding, resolve_encoding
from deltacompact.index.sort_widths import is_unmeasured
from deltacompact.tabular import column_types, far_values, schemas

_NOTHING = pa.schema([])


@dataclass(frozen=True, slots=True)
class StreamShape:
    """The shape after `commits` commits of a version. `rows` has the columns of upserts, `deletes` those of deletes."""

    keys: TableKeys | None
    partition_keys: tuple[str, ...]
    rows: pa.Schema = _NOTHING
    deletes: pa.Schema = _NOTHING
    encoding: Encoding | None = None
    far: FarOfStream = NOTHING_FAR
    version: str = ""
    commits: int = 0
    retracted: frozenset[int] = frozenset()
    last: tuple[OperationType, bool, pa.Schema] | None = None
    """Operation, whether it has rows, and schema of the previous file: a file of the same kind changes nothing."""
    declared: pa.Schema = _NOTHING
    """The columns whose types the table declares."""
    of_files: pa.Schema = _NOTHING
    """The columns of upserts without those that are declared alone, in the types of the files. Empty: no upserts."""

    @classmethod
    def of(cls, table: Table) -> StreamShape:
        """The shape of a stream without files: the declared columns."""
        return cls(table.keys, table.partition_keys, table.columns or _NOTHING, declared=table.columns or _NOTHING)

    @property
    def columns(self) -> pa.Schema:
        """The types for the columns of a text file."""
        only_deleted = [field for field in self.deletes if field.name not in self.rows.names]
        return pa.schema([*self.rows, *only_deleted])

    def with_file(self, operation: OperationType, file: DataFile, measure: Measure) -> StreamShape:
        """The shape with one more file. Raises SchemaError, naming file and column, if the file does not fit.

        `measure` is called if the fit depends on values that nobody has measured.
        """
        kind = (operation, file.rows > 0, file.schema)
        if self.last is not None and kind == self.last and file.far == () and self._holds_lengths(file):
            return self
        encoding = self.encoding
        if self.keys is not None:
            encoding = resolve_encoding(self.keys, self.partition_keys, [(operation, file)], encoding)
        rows, deletes, of_files = self.rows, self.deletes, self.of_files
        if operation is OperationType.UPSERT:
            _check_declared(file, self.declared)
            rows = schemas.union([file], self.rows)
            of_files = schemas.union([file], self.of_files) if self.declared else rows
        else:
            with contextlib.suppress(SchemaError):  # a delete's other columns mean nothing
                deletes = schemas.union([file], self.deletes)
        after = replace(self, rows=rows, deletes=deletes, encoding=encoding, last=kind, of_files=of_files)
        return replace(after, far=self._far_with(operation, file, after._types, measure)) if file.rows else after

    def with_files(self, deltas: Iterable[tuple[OperationType, Sequence[DataFile]]], measure: Measure) -> StreamShape:
        """The shape with the files of incoming deltas. Raises SchemaError as above."""
        shape = self
        for operation, files in deltas:
            for file in files:
                shape = shape.with_file(operation, file, measure)
        return shape

    def check_carried(self, state: StreamState, late: Sequence[Commit], measure: Measure, meanwhile: str) -> None:
        """Raise SchemaError if a delta of `late`, which is carried over on top of such rows, does not fit them.

            restate      rows with id string          meanwhile  append  id int64       refused: restate again
            roll back    to rows with at[us] 9999     meanwhile  append  at[ns]         refused: roll back again

        `state`: of the version with the deltas. A compaction checks nothing: an append fits all that is folded.
        """
        deltas = [delta for commit in late for delta in commit.deltas if delta.position not in state.retracted]
        try:
            self.with_files([(delta.operation, delta.files) for delta in deltas], measure)
        except SchemaError as error:
            raise SchemaError(f"{error}; it was appended while the partition was {meanwhile}") from error

    def _holds_lengths(self, file: DataFile) -> bool:
        """Whether no sort value of the file is longer than those of earlier files."""
        known = {column.name: column.longest for column in self.encoding.sort_columns} if self.encoding else {}
        return all(size <= known.get(name, size) for name, size in file.longest)

    @property
    def _types(self) -> pa.Schema:
        """The types to which values are cast: those of the rows; for sort columns, those in which they are compared."""
        sort = self.encoding.sort_columns if self.encoding else ()
        return with_sort_types(self.rows, [(column.name, column.type) for column in sort])

    def _far_with(self, operation: OperationType, file: DataFile, types: pa.Schema, measure: Measure) -> FarOfStream:
        """The far values with those of one more file. Raises SchemaError if the types do not hold all of them."""
        far = self.far
        if far.unmeasured and has_changed(self._types, types):
            far = far.measured(measure)
        if may_have(file) and has_changed(file.schema, types):
            file = measure(file)
        counted = of_delta(operation, file, self.keys)
        far.check(counted, types)
        return far.with_files([counted] if counted.far or may_have(counted) else ())


def _check_declared(file: DataFile, declared: pa.Schema) -> None:
    """Raise SchemaError for a file with rows, one of whose columns does not fit its declared type."""
    types = schemas.known_types(file.schema) if file.rows else {}
    for field in declared:
        if (type_ := types.get(field.name)) is not None and column_types.widened(field.type, type_) is None:
            raise SchemaError(f"{file.path}: column {field.name!r} is {type_}, and declared as {field.type}")


def shape_of(
    table: Table, state: StreamState, known: StreamShape | None, indexed: Callable[[], Encoding], measure: Measure
) -> StreamShape:
    """The shape of a stream's state.

    known      the shape of an earlier state: its commits need not be checked again
    indexed    reads the encoding from the index; called if the compacted rows lack a key or sort column, or if only
               the index knows the longest value of a sort column, or the type in which it is compared
    measure    reads the sort columns of files that are older than the keys
    """
    continues = (
        known is not None
        and (known.keys, known.version, known.retracted) == (table.keys, state.version, state.retracted)
        and known.commits <= len(state.commits)
    )
    shape = known if continues and known is not None else compacted_shape(table, state, indexed)
    for commit in state.commits[shape.commits :]:
        for delta in commit.deltas:
            if delta.position not in state.retracted:
                for file in delta.files:
                    with contextlib.suppress(InputError):
                        shape = shape.with_file(delta.operation, lengths_of(file, table.keys, measure), measure)
    return replace(shape, commits=len(state.commits))


def lengths_of(file: DataFile, keys: TableKeys | None, measure: Measure) -> DataFile:
    """The file with the lengths of its sort values. The log lacks them if the file came before the keys."""
    return measure(file) if is_unmeasured(file, keys) else file


def compacted_shape(table: Table, state: StreamState, indexed: Callable[[], Encoding]) -> StreamShape:
    """The shape of the compacted rows."""
    shape = replace(StreamShape.of(table), version=state.version, retracted=state.retracted)
    if state.compacted is None:
        return shape
    schema = state.compacted.schema
    more = [field for field in shape.declared if field.name not in schema.names]
    far = FarOfStream.of_compacted(state.compacted)
    shape = replace(shape, rows=pa.schema([*schema, *more]), far=far, of_files=schema)
    if table.keys is None:
        return shape
    typed = [field for field in schema if not pa.types.is_null(field.type) and not schemas.is_promised(field)]
    known = {field.name: column_types.plain_type(field.type) for field in typed}
    if not {*known, *table.partition_keys}.issuperset(table.keys.columns):
        return replace(shape, encoding=indexed())
    if any(key.name in known and _index_may_tell_more(known[key.name]) for key in table.keys.sort):
        return replace(shape, encoding=indexed())
    rows = DataFile(UNNUMBERED, "the compacted rows", ContentType.PARQUET, 1, 0, pa.schema(typed))
    return replace(shape, encoding=resolve_encoding(table.keys, table.partition_keys, [(OperationType.UPSERT, rows)]))


def _index_may_tell_more(type_: pa.DataType) -> bool:
    """Whether the rows do not tell how a sort column is compared: deletes may have longer or finer values, or signs."""
    return column_types.has_lengths(type_) or pa.types.is_unsigned_integer(type_) or far_values.may_be_far(type_)
