"""Where a mirror's rows come from: the bookmark of each kind of table, and the changes of its batch.

seen      bookmark mirror: done 7, next 9      and the schema by which an Iceberg table names its columns now
taken     the same, into orders_copy           before the mirror has a row
commit    done 9                               once it has them
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltacompact.base import compute as pc
from deltacompact.base.shared_arguments import ChangesOptions
from deltacompact.catalog.delta_stream_table import DeltaStreamTable
from deltacompact.change_feed import stream_bookmarks
from deltacompact.change_feed.bookmark import Bookmark
from deltacompact.change_feed.changes import branch_batch, stream_batch
from deltacompact.change_feed.request import ChangesRequest, narrowed

if TYPE_CHECKING:
    from deltacompact.catalog.iceberg_table import IcebergCatalogTable
    from deltacompact.iceberg.table.pyiceberg_door import IcebergTable


@dataclass(frozen=True, slots=True)
class Seen:
    """A bookmark, and the source as it was then, if it is an Iceberg table."""

    bookmark: Bookmark[Any] | None
    table: IcebergTable | None = None

    @property
    def schema_id(self) -> int | None:
        return None if self.table is None else self.table.metadata.schema_id


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A table of delta streams."""

    table: DeltaStreamTable

    @property
    def creation(self) -> str | None:
        """The id of the table's creation. A process may remember a table that was dropped meanwhile."""
        return self.table._catalog.current_table(self.table.table_id).creation

    @property
    def partition_keys(self) -> Sequence[str]:
        return self.table.partition_keys

    def is_unique(self, key: Sequence[str]) -> bool:
        """Whether no two rows of the source have one key, whatever is appended there."""
        keys = self.table.keys
        return keys is not None and {*keys.primary, *self.table.partition_keys} <= {*key}

    def seen(self, name: str) -> Seen:
        return Seen(_named(self.table.bookmarks(), name))

    def rows_at_end(self, seen: Seen, asked: Mapping[str, Any], request: ChangesRequest) -> pa.RecordBatchReader:
        assert seen.bookmark is not None
        return stream_batch(self.table._catalog, self.table.table_id, seen.bookmark, request, at_end=True)

    def taken(self, batch: Bookmark[Any], target: str | None, terms: str | None) -> Bookmark[Any]:
        """The batch with the mirror that takes it. Raises ConflictError if another consumer has moved the bookmark."""
        return stream_bookmarks.taken(self.table._catalog, self.table.table_id, batch, target, terms)

    def commit(self, batch: Bookmark[Any], target: str | None, terms: str | None, _schema_id: int | None) -> None:
        stream_bookmarks.committed(self.table._catalog, self.table.table_id, batch.name, batch, target, terms)


@dataclass(frozen=True, slots=True)
class BranchSource:
    """A branch of an Iceberg table."""

    table: IcebergCatalogTable

    @property
    def creation(self) -> str | None:
        return self._loaded.metadata.uuid

    @property
    def partition_keys(self) -> Sequence[str]:
        """None that a row lacks: partitions are computed from columns."""
        return ()

    def is_unique(self, key: Sequence[str]) -> bool:
        """Nothing keeps writers of Iceberg tables from a second row of a key."""
        return False

    def seen(self, name: str) -> Seen:
        from deltacompact.change_feed.branch_bookmarks import bookmarks

        table = self._loaded
        return Seen(_named(bookmarks(table.metadata), name), table)

    def rows_at_end(self, seen: Seen, asked: Mapping[str, Any], request: ChangesRequest) -> pa.RecordBatchReader:
        assert seen.bookmark is not None and seen.table is not None
        return branch_batch(seen.table, asked.get("branch", "main"), seen.bookmark, request, at_end=True)

    def taken(self, batch: Bookmark[Any], target: str | None, terms: str | None) -> Bookmark[Any]:
        from deltacompact.change_feed import branch_bookmarks

        return branch_bookmarks.taken(self._loaded, batch, target, terms)

    def commit(self, batch: Bookmark[Any], target: str | None, terms: str | None, schema_id: int | None) -> None:
        from deltacompact.change_feed import branch_bookmarks

        branch_bookmarks.committed(self._loaded, batch.name, batch, target, schema_id, terms)

    @property
    def _loaded(self) -> IcebergTable:
        return self.table._catalog.loaded(self.table.table_id)


Source = StreamSource | BranchSource


def source_of(table: DeltaStreamTable | IcebergCatalogTable) -> Source:
    return StreamSource(table) if isinstance(table, DeltaStreamTable) else BranchSource(table)


def at_end_of(
    source: Source, seen: Seen, asked: Mapping[str, Any], columns: Sequence[str] | None, wanted: pc.Expression | None
) -> pa.RecordBatchReader:
    """The rows at the end of a batch, for which `wanted` is true: a batch that is repeated finds the same."""
    request = ChangesRequest(**{name: asked[name] for name in ChangesOptions.__annotations__ if name in asked})
    where = request.where if wanted is None else narrowed(request.where, wanted)
    request = replace(request, per_commit=False, columns=columns or request.columns, where=where)
    return source.rows_at_end(seen, asked, request)


def _named(known: Sequence[Bookmark[Any]], name: str) -> Bookmark[Any] | None:
    return next((bookmark for bookmark in known if bookmark.name == name), None)
