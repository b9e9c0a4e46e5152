"""Whether files may be committed to one stream: what it holds, as this process remembers, and who else must read it.

    the stream       id int64, v string       incoming  id int64, v double     refused: v is a string (shape.py)
    the table        schema_mode "fixed"      incoming  id int64, w int64      refused: w is new (new_columns.py)
    its partitions   day=a: total int64       incoming  day=b: total string    refused: no type for both
    its publication  delta:///shown           incoming  t time64[ns]           refused: Delta has no such type

A writer asks before it writes anything, and again for the state below its new entry: another process may have committed
in between. `state` None means: the shape that this process remembers, without a request unless it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import Commit
from deltacompact.base.errors import SchemaError
from deltacompact.base.model import OperationType, Partition, SchemaMode
from deltacompact.delta_streams.appending.new_columns import added, adding_to, check_fixed, check_names
from deltacompact.delta_streams.appending.other_partitions import OtherPartitions
from deltacompact.delta_streams.appending.shape import StreamShape, lengths_of, shape_of
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.index.keys import Encoding
from deltacompact.index.primary_key_index import read_manifest
from deltacompact.index.sort_widths import measured_file
from deltacompact.tabular import partition_texts, schemas
from deltacompact.tabular.coarse_times import beyond_micros, needs_micros
from deltacompact.tabular.far_files import with_far_values
from deltacompact.tabular.published_types import types_of

if TYPE_CHECKING:
    from deltacompact.delta_streams.streams import Streams

Checked = TypeVar("Checked")
Deltas = Sequence[tuple[OperationType, Sequence[DataFile]]]
"""The deltas of one commit: (operation, files) of each."""


class StreamFit:
    """Holds files against one partition stream. It remembers the stream's shape."""

    def __init__(self, catalog: Streams, table_id: str, partition: Partition) -> None:
        self._catalog = catalog
        self._table_id = table_id
        self._partition = partition
        self._known_shape: StreamShape | None = None
        self.others = OtherPartitions(catalog, table_id, partition, self._shape_of)

    # What the stream holds

    @property
    def declared_columns(self) -> pa.Schema:
        """The columns whose types the table declares; empty: none."""
        return StreamShape.of(self._catalog.remembered_table(self._table_id)).declared

    def known_types(self) -> pa.Schema:
        """The types for the columns of a text file. A new stream takes those of the table's last other partition."""
        log = self._catalog.log(self._table_id, self._partition)
        shape = self._shape(log.active() if log.exists() else None)
        if shape.columns != shape.declared:
            return shape.columns
        return schemas.with_types(shape.columns, self.others.last_columns, ())

    def types_with_others(self, types: pa.Schema, file: DataFile) -> pa.Schema:
        """`types`, with those that the table's last other partition has for columns which the file adds to a stream."""
        new = set(file.schema.names).difference(types.names)
        if not new or not self._partition.names or not len(self._shape(None).rows):
            return types
        found = schemas.known_types(self.others.last_columns)
        more = [(name, type_) for name, type_ in found.items() if name in new]
        return schemas.with_types(types, pa.schema(more), ()) if more else types

    def as_logged(self, file: DataFile) -> DataFile:
        """The file as the log tells of it. If it has no rows, its partition columns are left out: the partition's value
        need not fit their types."""
        names = self._partition.names
        if file.rows or not any(name in names for name in file.schema.names):
            return file
        return replace(file, schema=pa.schema([field for field in file.schema if field.name not in names]))

    def measured(self, file: DataFile) -> DataFile:
        """The file with the longest values of its sort columns, and its far values: read, if they are unknown."""
        keys = self._catalog.remembered_table(self._table_id).keys
        return with_far_values(self._catalog.store, measured_file(self._catalog.store, file, keys))

    # Checks. Each raises SchemaError, naming file and column

    def check_file(self, operation: OperationType, file: DataFile) -> None:
        """Refuse a file that is not written yet, by its columns, if it does not fit the remembered shape."""
        self._fitting(lambda shape: shape.with_file(operation, file, self.measured), None)

    def checked(self, deltas: Deltas, state: StreamState | None = None) -> Deltas:
        """The deltas, with the lengths of sort values that the caller lacks if the keys are younger than the files.

        Refuses files with which the stream could not be folded or read, before the log names them.
        """

        def fitting(shape: StreamShape) -> Deltas:
            found = [
                (kind, [lengths_of(self.as_logged(file), shape.keys, self.measured) for file in files])
                for kind, files in deltas
            ]
            shape.with_files(found, self.measured)
            self._check_times(_upserts(found))
            return found

        return self._fitting(fitting, state)

    def _check_times(self, files: Sequence[DataFile]) -> None:
        """Refuse times that an Iceberg table, to which this one is published, does not hold."""
        target = self._catalog.remembered_table(self._table_id).publication
        for file in files if needs_micros(target) else ():
            if beyond := beyond_micros(file.schema, file.far or ()):
                raise SchemaError(f"{file.path}: {beyond}, which Iceberg does not hold, and {target} shows this table")

    def check_first(self, deltas: Deltas, mode: SchemaMode | None) -> None:
        """Refuse first files of a partition, before anything is begun: those that it would refuse, or that do not fit
        other partitions, and a partition that has the value of another one. Refuse any upserts where the partition's
        value does not fit its declared column."""
        log = self._catalog.log(self._table_id, self._partition)
        begins = log.was_absent or not log.exists()
        if upserts := _upserts(deltas):
            partition_texts.check_fit(self._partition, self.declared_columns, begins)
        if not begins:
            return
        self.new_columns(deltas, None, mode)
        if self._partition.names:
            self.others.check_fit(upserts, begins=True)

    def adding(self, deltas: Deltas, state: StreamState | None) -> list[DataFile]:
        """The upserts that add to the columns of the stream, with what is new alone."""
        return adding_to(self._shape(state).rows, _upserts(deltas))

    def new_columns(
        self, deltas: Deltas, state: StreamState | None, mode: SchemaMode | None
    ) -> dict[OperationType, tuple[str, ...]]:
        """The columns that upserts add to a stream with columns. Refuses those that may not be added.

        Columns of deletes do not become columns of the table.
        """
        table, columns, new = self._catalog.remembered_table(self._table_id), self._shape(state).rows, list[str]()
        checked: pa.Schema | None = None
        is_fixed = (mode or table.schema_mode) is SchemaMode.FIXED
        declared = {*table.partition_keys, *(table.keys.columns if table.keys else ())}
        known = self.others.last_columns if is_fixed and not len(columns) else columns
        for file in _upserts(deltas):
            if file.schema == checked:
                continue
            after, checked = schemas.union([file], known), file.schema
            names = [name for name in added(known, after) if name not in declared]
            self._check_names(file, known)
            if is_fixed and len(known):
                check_fixed(known, after, declared, file.path, self._table_id)
            new += names if len(columns) else []
            known = after
        of_files = self._shape(state).of_files
        if state is not None and self._partition.names and (adding := adding_to(of_files, _upserts(deltas))):
            self.others.check_fit(adding, begins=not len(of_files))
        if more := adding_to(columns, _upserts(deltas)):
            self.check_published(more, columns)
        return {OperationType.UPSERT: tuple(dict.fromkeys(new))}

    def check_published(self, adding: Sequence[DataFile], columns: pa.Schema) -> None:
        """Refuse what files add to these columns, if the table to which this one is published could not show it.

        A partition may begin with columns that other partitions have.
        """
        if (target := self._catalog.remembered_table(self._table_id).publication) is None:
            return
        types, known = types_of(target), pa.schema(schemas.decided_types(columns))
        for file in [file for file in adding if file.rows]:
            if not len(columns):
                try:
                    types.check_partition(self._partition)
                except SchemaError as error:
                    raise SchemaError(
                        f"{file.path}: {error}: {target} shows this table, so give the partition another value, or "
                        "stop the publication (publish --stop)"
                    ) from None
            known = schemas.union([file], known)
            added = pa.schema([known.field(name) for name in file.schema.names])
            try:
                types.check(added, file.path)
                types.check_struct(known, file.path)
            except SchemaError as error:
                if self._partition.names and not adding_to(self.others.last_columns, [replace(file, schema=added)]):
                    continue
                raise SchemaError(
                    f"{error}: {target} shows this table, so write another type, leave the column out, or stop the "
                    "publication (publish --stop)"
                ) from None

    def check_carried(self, files: Sequence[DataFile], state: StreamState, late: Sequence[Commit]) -> None:
        """Refuse a restatement's files if deltas that came meanwhile do not fit them."""
        if late:
            shape = StreamShape.of(self._catalog.described(self._table_id))
            shape = shape.with_files([(OperationType.UPSERT, files)], self.measured)
            shape.check_carried(state, late, self.measured, "restated: restate again")

    def _check_names(self, file: DataFile, known: pa.Schema) -> None:
        """Refuse a column without a name, unless the stream has it. A new stream may take it from the table's other
        partitions."""
        try:
            check_names(file.schema.names, file.path, known.names)
        except SchemaError:
            if len(known) or not self._partition.names:
                raise
            check_names(file.schema.names, file.path, self.others.last_columns.names)

    # The shape

    def _fitting(self, check: Callable[[StreamShape], Checked], state: StreamState | None) -> Checked:
        """What `check` finds in the shape. The stream may have been restated since this process saw it."""
        try:
            return check(self._shape(state))
        except SchemaError:
            log = self._catalog.log(self._table_id, self._partition)
            if state is not None or self._known_shape is None or not log.exists():
                raise
            return check(self._shape(log.active()))

    def _shape_of(self, partition: Partition) -> StreamShape:
        log = self._catalog.log(self._table_id, partition)
        return StreamFit(self._catalog, self._table_id, partition)._shape(log.active())

    def _shape(self, state: StreamState | None) -> StreamShape:
        table, known = self._catalog.remembered_table(self._table_id), self._known_shape
        if state is None:
            return known if known is not None and known.keys == table.keys else StreamShape.of(table)
        if table.keys is None and state.compacted:
            table = self._catalog.described(self._table_id)  # the first compaction came after we last read the table
        self._known_shape = shape_of(table, state, known, self._indexed(state), self.measured)
        return self._known_shape

    def _indexed(self, state: StreamState) -> Callable[[], Encoding]:
        def indexed() -> Encoding:
            assert state.compacted is not None
            return read_manifest(self._catalog.store, state.index or state.compacted.index).encoding

        return indexed


def _upserts(deltas: Deltas) -> list[DataFile]:
    """The files with upserts."""
    return [file for kind, files in deltas if kind is OperationType.UPSERT for file in files]
