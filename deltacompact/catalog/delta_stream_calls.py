"""What a catalog of delta streams does with rows: append, restate, read, publish. Each call names the table.

    catalog.append("orders", rows, partition={"day": "1995-04-03"})         one commit, one delta, one file
    catalog.read("orders")                                                  the live rows

Data is written first, under names used once. The log entry that names it makes it visible.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack, overload

import pyarrow as pa

from deltacompact.base import expect
from deltacompact.base.data_file import DataFile
from deltacompact.base.deltas import Appended, Delta
from deltacompact.base.errors import DeltaCompactError, InputError
from deltacompact.base.model import ContentType, OperationType, Partition, PartitionLike, SchemaMode
from deltacompact.base.table_keys import TableKeys
from deltacompact.base.tokens import Token
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.streams import Streams
from deltacompact.delta_streams.table_documents import is_destination
from deltacompact.storage.objects import ObjectStore

if TYPE_CHECKING:  # imported by those who append or read: `show` must not wait for them
    from deltacompact.delta_streams.appending.change_options import ChangeEventOptions
    from deltacompact.delta_streams.appending.changes import ChangesWriter
    from deltacompact.delta_streams.appending.stream_writer import CommitTerms, StreamWriter
    from deltacompact.delta_streams.scan import Selection
    from deltacompact.publication.publication import PublicationResult

TokenLike = Token | str | tuple[str, int] | None
"""A token in the API: a name, or a producer and the number of its batch."""


class DeltaStreamCalls(Streams):
    """The calls of a catalog of delta streams that name a table."""

    def __init__(self, store: ObjectStore, **given: Any) -> None:
        super().__init__(store, **given)
        self._writers: dict[tuple[str, Partition], StreamWriter] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_writers": {}}

    def forget(self, table_id: str) -> None:
        """Forget all that is cached of a dropped table and of its writers."""
        super().forget(table_id)
        for key in list(self._writers):  # other threads may add some meanwhile
            if key[0] == table_id:
                self._writers.pop(key, None)

    # Writing

    @overload
    def append(
        self,
        table_id: str,
        tables: Any,
        partition: PartitionLike = None,
        operation: str = "upsert",
        stream_position: int | None = None,
        token: TokenLike = None,
        *,
        force_position: bool = False,
        schema_mode: SchemaMode | str | None = None,
    ) -> Delta: ...
    @overload
    def append(
        self,
        table_id: str,
        tables: Any,
        partition: PartitionLike = None,
        operation: str = "upsert",
        stream_position: int | None = None,
        token: TokenLike = None,
        *,
        force_position: bool = False,
        schema_mode: SchemaMode | str | None = None,
        **changes: Unpack[ChangeEventOptions],
    ) -> Appended: ...
    def append(
        self,
        table_id: str,
        tables: Any,
        partition: PartitionLike = None,
        operation: str = "upsert",
        stream_position: int | None = None,
        token: TokenLike = None,
        *,
        force_position: bool = False,
        schema_mode: SchemaMode | str | None = None,
        **changes: Unpack[ChangeEventOptions],
    ) -> Delta | Appended:
        """Commit one delta. `tables` is any object with rows (see incoming.py), or a list of them: one file each.

        Returns the delta; its `committed` says whether this call committed it. `token` is a name, or a producer and
        the number of its batch: ("etl", 7). A batch with a known token is skipped. Raises OutcomeUnknownError where the
        outcome cannot be known: repeat the call with the same token. Raises PositionError where `stream_position`
        (int64) is not greater than all before it, or more than a year ahead of the clock (milliseconds since the epoch)
        without `force_position`. Raises SchemaError where the rows do not fit the stream, or bring new columns under
        `schema_mode` "fixed" (default: the table's). Look at the delta's `new_columns` and `null_keys`.

        Change events: `operation_column` names the column in which each row says its operation, by `upsert_values` and
        `delete_values`; `format` is "debezium", "maxwell" or "dms". The order of the rows counts, or the table's sort
        keys: one commit has the deletes and then the upserts that are left. `partition_by` names partition keys whose
        values are in the rows, null too, unless `format` is given (default: those that `partition` does not have, and
        null is refused); each partition has a commit of its own, with the token. Then an Appended is returned. Raises
        InputError naming the row, before anything is committed.

        Examples:
            >>> catalog.append("orders", pa.table({"id": [4], "status": ["new"]}), token=("etl", 7)).committed
            True
            >>> catalog.append("orders", pa.table({"id": [4], "status": ["new"]}), token=("etl", 7)).committed
            False
            >>> changes = pa.table({"id": [2, 4], "status": ["sent", None], "op": ["u", "d"]})
            >>> [delta.operation.value for delta in catalog.append("orders", changes, operation_column="op").deltas]
            ['delete', 'upsert']
        """
        terms = self._terms(stream_position, 1, token, force_position, schema_mode)
        if (writer := self._changes(table_id, terms, partition, operation, changes)) is not None:
            return writer.append(tables)
        stream, kind, keys = self._appending(table_id, partition, operation)
        return stream.append(tables, kind, keys, terms)

    @overload
    def append_files(
        self,
        table_id: str,
        sources: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
        partition: PartitionLike = None,
        operation: str = "upsert",
        stream_position: int | None = None,
        token: TokenLike = None,
        *,
        reference: bool = False,
        content_type: ContentType | None = None,
        force_position: bool = False,
        schema_mode: SchemaMode | str | None = None,
    ) -> Delta: ...
    @overload
    def append_files(
        self,
        table_id: str,
        sources: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
        partition: PartitionLike = None,
        operation: str = "upsert",
        stream_position: int | None = None,
        token: TokenLike = None,
        *,
        reference: bool = False,
        content_type: ContentType | None = None,
        force_position: bool = False,
        schema_mode: SchemaMode | str | None = None,
        **changes: Unpack[ChangeEventOptions],
    ) -> Appended: ...
    def append_files(
        self,
        table_id: str,
        sources: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
        partition: PartitionLike = None,
        operation: str = "upsert",
        stream_position: int | None = None,
        token: TokenLike = None,
        *,
        reference: bool = False,
        content_type: ContentType | None = None,
        force_position: bool = False,
        schema_mode: SchemaMode | str | None = None,
        **changes: Unpack[ChangeEventOptions],
    ) -> Delta | Appended:
        """Commit files as one delta: copied into the catalog, or with `reference` left in place.

        `sources` are local paths or URIs, or one of them. Raises what `append` raises, and InputError for a file that
        cannot be read.

        CSV and JSON columns take the types of the stream's schema. A file that is left in place must not change:
        readers refuse a changed file. Change events and rows of several partitions are as in `append`: the files are
        read and written anew.

        Examples:
            >>> path = "tuesday.csv"
            >>> open(path, "w").write("id,status\\n2,sent\\n")
            17
            >>> catalog.append_files("orders", path).rows
            1
        """
        one = isinstance(sources, (str, os.PathLike))
        paths = [
            expect.path("sources", source) for source in ([sources] if one else expect.several("sources", sources))
        ]
        if not paths:
            raise InputError("there is nothing to append: name at least one file")
        terms = self._terms(stream_position, 1, token, force_position, schema_mode)
        if (writer := self._changes(table_id, terms, partition, operation, changes)) is not None:
            if reference:
                raise InputError(
                    "files that stay where they are (reference, --reference) belong to one partition and have one "
                    "operation: name the partition, or leave reference out"
                )
            return writer.append_files(paths, content_type)
        stream, kind, keys = self._appending(table_id, partition, operation)
        return stream.append_files(paths, kind, keys, terms, reference, content_type)

    def commit(
        self,
        table_id: str,
        partition: Partition,
        deltas: Sequence[tuple[OperationType, Sequence[DataFile]]],
        stream_position: int | None = None,
        token: TokenLike = None,
        begun_s: float | None = None,
        *,
        force_position: bool = False,
        schema_mode: SchemaMode | str | None = None,
        one_operation: bool = False,
    ) -> tuple[Delta, ...]:
        """Commit written files as one log entry; its deltas (a CDC batch: deletes, upserts) become visible together.

        `stream_position` is the position of the first delta; the others follow it. `begun_s` says when the write of the
        files began (store's clock, seconds): too old files are refused, because a vacuum may have deleted them. Raises
        InputError for a commit without deltas, and for a token that is known for another operation. `one_operation`
        says that the caller named the operation: then a token of upserts and deletes is another batch's, too. A delta
        without files is legal: its position and token count.
        """
        if not deltas:
            raise InputError("a commit needs at least one delta")
        terms = self._terms(stream_position, len(deltas), token, force_position, schema_mode)
        terms = replace(terms, one_operation=one_operation)
        self.current_table(table_id)
        return self._writer(table_id, partition).commit(deltas, terms, begun_s)

    def restate(self, table_id: str, tables: Any, partition: Mapping[str, Any] | None = None) -> StreamState:
        """Replace a partition's contents by these rows. Deltas that are committed meanwhile stay on top.

        Returns the new version. Raises what `append` raises, and ConflictError where a compaction came first.

        Examples:
            >>> _ = catalog.restate("orders", pa.table({"id": [9], "status": ["old"]}))
            >>> catalog.read("orders").to_pylist()
            [{'id': 9, 'status': 'old'}]
        """
        self.current_table(table_id)
        writer, _, keys = self._appending(table_id, partition, "upsert")
        return writer.restate(tables, keys)

    # Reading

    def read(
        self,
        table_id: str,
        partition: PartitionLike = None,
        **selection: Unpack[Selection],
    ) -> pa.Table:
        """The live rows of one partition, or of all: one snapshot for each partition.

        `columns`, `filter` and `version` select rows and columns: see Selection. Raises NotFoundError for an unknown
        table, partition or version, InputError for an unknown column.

        Examples:
            >>> catalog.read("orders", filter=[("id", ">", 2)]).to_pylist()
            [{'id': 3, 'status': 'new'}]
        """
        from deltacompact.delta_streams.scan import Scan, read_table

        return read_table(self, Scan(table_id, partition, **selection))

    def scan(
        self,
        table_id: str,
        partition: PartitionLike = None,
        **selection: Unpack[Selection],
    ) -> pa.RecordBatchReader:
        """The live rows batch by batch, for tables that do not fit in memory. Arguments and errors as for `read`.

        Examples:
            >>> catalog.scan("orders", columns=["id"]).schema.names
            ['id']
        """
        from deltacompact.delta_streams.scan import Scan, scan_table

        return scan_table(self, Scan(table_id, partition, **selection))

    # Other engines

    def publish(self, table_id: str, to: str | None = None, partition: PartitionLike = None) -> PublicationResult:
        """Show the compacted rows in an Iceberg or a Delta table: `to`, or the one declared before.

        `to` is "iceberg://NAME/ns.table", "delta:///PATH" or "delta://s3://BUCKET/PATH".

        From then on every compaction does so. A call without `to` repairs what a crash or a catalog that did not
        answer has left undone. Raises InputError, before anything is declared, if the rows or that table do not fit,
        and what reading or committing raises.
        """
        from deltacompact.publication.publication import publish

        return publish(self, table_id, to, partition)

    def compacted_files(self, table_id: str, partition: PartitionLike = None) -> list[str]:
        """Paths or URIs of the live compacted files, for engines that read lists. Files may lack new columns:
        duckdb.read_parquet(files, union_by_name=True).

        The folders below the table hold more: deltas, and versions that were replaced. Deltas since the last compaction
        are not in the list. Raises InputError where a partition was not compacted yet, or has files with dead rows.
        """
        from deltacompact.delta_streams.file_lists import live_files

        return live_files(self, table_id, partition)

    def stop_publishing(self, table_id: str) -> str | None:
        """Declare that the table is published no more. Returns the Iceberg or Delta table that stays as it is, if any.

        Nothing protects the files that it refers to from a vacuum any more: drop it, but do not purge it. PyIceberg's
        purge_table ignores gc.enabled, and deletes files of the lake.
        """
        target = self.publication(table_id)
        self.declare_publication(table_id, None)
        return target

    # Inside

    def _changes(
        self,
        table_id: str,
        terms: CommitTerms,
        partition: PartitionLike,
        operation: str,
        said: ChangeEventOptions,
        *,
        in_order: bool = True,
    ) -> ChangesWriter | None:
        """The writer of rows that say their operation or partition; None: they have one operation and partition."""
        from deltacompact.delta_streams.appending.change_options import change_options
        from deltacompact.delta_streams.appending.changes import ChangesWriter

        if (options := change_options(self.current_table(table_id), partition, operation, said)) is None:
            return None
        table = self.described(table_id)
        if table.source_table_id is not None:
            raise is_destination(table_id, table.source_table_id)
        options = replace(options, in_order=in_order)
        return ChangesWriter(self, table, lambda chosen: self._writer(table_id, chosen), options, terms)

    def _append_net(self, table_id: str, tables: Any, token: str, **said: Unpack[ChangeEventOptions]) -> None:
        """Commit a net change, whose rows have no order."""
        terms = self._terms(None, 1, token, False, None)
        writer = self._changes(table_id, terms, None, "upsert", said, in_order=False)
        assert writer is not None
        writer.append(tables)

    def _appending(
        self, table_id: str, partition: PartitionLike, operation: str
    ) -> tuple[StreamWriter, OperationType, TableKeys | None]:
        table = self.known_table(table_id)
        chosen = Partition.of(table.partition_keys, partition)
        if not self._holds_rows_of_its_own(table_id, chosen):
            table = self.described(table_id)
        if table.source_table_id is not None:
            raise is_destination(table_id, table.source_table_id)
        return self._writer(table_id, chosen), OperationType.of(operation), table.keys

    def _holds_rows_of_its_own(self, table_id: str, partition: Partition) -> bool:
        """Whether the stream has rows that no other table brought: then the table is no destination, and never will be.

        The log says so, which an append reads anyway.
        """
        log = self.log(table_id, partition)
        try:
            state = log.recent() if log.exists() else None
        except DeltaCompactError:  # the append says what is wrong with the log
            return False
        if state is None or state.compacted is None:
            return state is not None and bool(state.commits)
        return state.compacted.source_table_id == table_id

    def _writer(self, table_id: str, partition: Partition) -> StreamWriter:
        from deltacompact.delta_streams.appending.stream_writer import StreamWriter

        key = (table_id, partition)
        if key not in self._writers:
            self._writers[key] = StreamWriter(self, table_id, partition)
        return self._writers[key]

    def _terms(
        self,
        stream_position: int | None,
        deltas: int,
        token: TokenLike,
        force_position: bool,
        schema_mode: SchemaMode | str | None,
    ) -> CommitTerms:
        from deltacompact.delta_streams.appending.positions import checked_position
        from deltacompact.delta_streams.appending.stream_writer import CommitTerms

        position = checked_position(stream_position, deltas, force_position, self.clock())
        return CommitTerms(position, Token.of(token), None if schema_mode is None else SchemaMode.of(schema_mode))
