"""Appends to a table: whether its rows are of one partition and one operation decides who writes them.

orders, {"day": "1"}, "upsert"                rows of one stream             StreamWriter    a Delta
orders, None, operation_column="op"           rows say what they do          ChangesWriter   an Appended
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deltacompact.base import expect
from deltacompact.base.deltas import Appended, Delta
from deltacompact.base.errors import DeltaCompactError, InputError
from deltacompact.base.model import ContentType, OperationType, Partition, PartitionLike, Table
from deltacompact.base.shared_arguments import ChangeEventOptions
from deltacompact.base.table_keys import TableKeys
from deltacompact.delta_streams.appending.change_options import change_options
from deltacompact.delta_streams.appending.changes import ChangesWriter
from deltacompact.delta_streams.appending.stream_writer import CommitTerms, StreamWriter, writer_of
from deltacompact.delta_streams.log.state import StreamState
from deltacompact.delta_streams.table_documents import is_destination

if TYPE_CHECKING:
    from deltacompact.delta_streams.streams import Streams


@dataclass(frozen=True, slots=True)
class Appender:
    """Appends rows to a table. What the caller does not say of them, `said` tells where to find in the rows.

    `in_order`: whether a later event of a key counts more. A net change has no order.
    """

    streams: Streams
    table_id: str
    partition: PartitionLike
    operation: str
    terms: CommitTerms
    said: ChangeEventOptions
    in_order: bool = True

    def append(self, tables: Any) -> Delta | Appended:
        """Commit the rows of any object with rows (see incoming.py), or of a list of them: one file each."""
        table = self.streams.current_table(self.table_id)
        if (changes := self._changes(table)) is not None:
            return changes.append(tables)
        stream, kind, keys = self._stream(table)
        return stream.append(tables, kind, keys, self.terms)

    def append_files(
        self,
        sources: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
        reference: bool = False,
        content_type: ContentType | None = None,
    ) -> Delta | Appended:
        """Commit files, copied into the catalog, or with `reference` left in place. Raises InputError for no file."""
        one = isinstance(sources, (str, os.PathLike))
        paths = [
            expect.path("sources", source) for source in ([sources] if one else expect.several("sources", sources))
        ]
        if not paths:
            raise InputError("there is nothing to append: name at least one file")
        table = self.streams.current_table(self.table_id)
        if (changes := self._changes(table)) is not None:
            if reference:
                rows_say_it = self.said.get("format") or self.said.get("operation_column")
                helps = "" if rows_say_it else "name the partition, or "
                raise InputError(
                    "files that stay where they are (reference, --reference) belong to one partition and have one "
                    f"operation: {helps}leave reference out"
                )
            return changes.append_files(paths, content_type)
        stream, kind, keys = self._stream(table)
        return stream.append_files(paths, kind, keys, self.terms, reference, content_type)

    def restate(self, tables: Any) -> StreamState:
        """Replace the contents of the partition. Raises ConflictError where a compaction came first."""
        stream, _, keys = self._stream(self.streams.current_table(self.table_id))
        return stream.restate(tables, keys)

    def _changes(self, table: Table) -> ChangesWriter | None:
        """The writer of rows that say their operation or partition; None: they have one operation and partition."""
        if (options := change_options(table, self.partition, self.operation, self.said)) is None:
            return None
        table = self.streams.described(self.table_id)
        if table.source_table_id is not None:
            raise is_destination(self.table_id, table.source_table_id)
        return ChangesWriter(self.streams, table, replace(options, in_order=self.in_order), self.terms)

    def _stream(self, table: Table) -> tuple[StreamWriter, OperationType, TableKeys | None]:
        partition = Partition.of(table.partition_keys, self.partition)
        if not self._holds_rows_of_its_own(partition):
            table = self.streams.described(self.table_id)
        if table.source_table_id is not None:
            raise is_destination(self.table_id, table.source_table_id)
        stream = writer_of(self.streams, self.table_id, partition)
        return stream, OperationType.of(self.operation), table.keys

    def _holds_rows_of_its_own(self, partition: Partition) -> bool:
        """Whether the stream has rows that no other table brought: then the table is no destination, and never will be.

        The log says so, which an append reads anyway.
        """
        log = self.streams.log(self.table_id, partition)
        try:
            state = log.recent() if log.exists() else None
        except DeltaCompactError:  # the append says what is wrong with the log
            return False
        if state is None or state.compacted is None:
            return state is not None and bool(state.commits)
        return state.compacted.source_table_id == self.table_id
