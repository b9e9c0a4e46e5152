"""The change feed in Spark: which rows came and went, in batches and as a stream, of both kinds of table.

    spark.read.format("deltacompact").option("catalog", …).option("table", "orders").option("changes", "3").load()
    spark.readStream.format("deltacompact").option(…).option("changes", "all").load()

    driver      batch: from version 3 to (2-50a3…, 7 entries)       the ends are settled before any task runs
    executors   a task for each partition of streams with new entries, one for a branch

`changes` says where the feed begins, as --from does, "all" before the first row. A micro-batch is the net change
between two positions, which Spark keeps in its checkpoint: one that Spark runs again is the same. A position of streams
has the id of the table's creation: in a table that was dropped and created again it would mean other rows. A position
of a branch has the id of the table's schema: a query has the names of columns from when it began, and rows of a column
that was renamed since would be null.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from deltacompact.base.errors import InputError
from deltacompact.catalog.iceberg import IcebergCatalog
from deltacompact.catalog.opening import is_iceberg
from deltacompact.change_feed.bookmark import Bookmark
from deltacompact.change_feed.changes import branch_changes, stream_batch
from deltacompact.change_feed.iceberg import begin_of as begin_of_branch
from deltacompact.change_feed.request import ChangesRequest
from deltacompact.change_feed.stream_bookmarks import Positions, parsed_positions, positions_as_json, positions_at
from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
from deltacompact.spark import arrow_types
from deltacompact.spark.options import (
    BRANCH_CHANGE_OPTIONS,
    STREAM_CHANGE_OPTIONS,
    catalog_of,
    check_options,
    flag,
    parse_partition,
)
from deltacompact.spark.reading import to_type

_log = logging.getLogger(__name__)

ALL = "all"
"""What `changes` says for the feed that begins with all rows."""
Position = Any
"""JSON: how far a partition of streams, or a branch, is. None: before its first row."""


@dataclass(frozen=True)
class FeedSlice(InputPartition):
    """The changes between two positions."""

    begin: Position
    end: Position


class Fed(Protocol):
    """A table of either kind. It is pickled for tasks."""

    def schema(self) -> pa.Schema: ...
    def position(self, as_of: str | None, known: Position = None) -> Position:
        """Where the table is now (None), or was. An earlier position, if `known`, may save requests."""

    def slices(self, begin: Position, end: Position) -> list[FeedSlice]: ...
    def read(self, piece: FeedSlice) -> pa.RecordBatchReader: ...


@dataclass(frozen=True)
class FedStreams:
    """A table of delta streams."""

    options: Mapping[str, str]
    asked: ChangesRequest

    def schema(self) -> pa.Schema:
        catalog, table_id = catalog_of(self.options)
        now = positions_as_json(_streams(self.position(None)))
        return stream_batch(catalog, table_id, self._ends(None, now), self.asked).schema

    def position(self, as_of: str | None, known: Position = None) -> Position:
        catalog, table_id = catalog_of(self.options)
        creation = catalog.current_table(table_id).creation
        partition = parse_partition(self.options.get("partition"))
        found = positions_at(catalog, table_id, as_of, _streams(known), partition)
        return {"creation": creation, "streams": positions_as_json(found)}

    def slices(self, begin: Position, end: Position) -> list[FeedSlice]:
        """One for each partition of the end that has moved. Each has one beginning or none: others would be taken to
        have gone. Raises InputError if the positions are of two tables."""
        if isinstance(begin, dict) and isinstance(end, dict) and begin["creation"] != end["creation"]:
            raise InputError(
                f"table {self.options['table']!r} was dropped, and created again, after the position in the "
                "checkpoint: begin another stream, with a new checkpoint"
            )
        begins, ends = _streams(begin) or {}, _streams(end) or {}
        return [
            FeedSlice(
                positions_as_json({partition: begins[partition]} if partition in begins else {}),
                positions_as_json({partition: place}),
            )
            for partition, place in ends.items()
            if begins.get(partition) != place
        ]

    def read(self, piece: FeedSlice) -> pa.RecordBatchReader:
        return stream_batch(*catalog_of(self.options), self._ends(piece.begin, piece.end), self.asked)

    def _ends(self, begin: Position, end: Position) -> Bookmark[Any]:
        return Bookmark("", parsed_positions(begin), parsed_positions(end))


def _streams(position: Position) -> Positions | None:
    """The positions of a table's streams. Checkpoints of earlier releases have these alone."""
    return parsed_positions(position["streams"] if isinstance(position, dict) else position)


@dataclass(frozen=True)
class FedBranch:
    """A branch of an Iceberg table, in a catalog that PyIceberg's configuration describes wherever a task runs."""

    options: Mapping[str, str]
    asked: ChangesRequest

    def schema(self) -> pa.Schema:
        return self._feed(self._table, self.position(None), None).schema

    def position(self, as_of: str | None, known: Position = None) -> Position:
        metadata = self._table.metadata
        found = metadata.branch(self._branch) if as_of is None else begin_of_branch(metadata, as_of, self._branch)
        return {"snapshot": found.snapshot_id if found else None, "schema": metadata.schema_id}

    def slices(self, begin: Position, end: Position) -> list[FeedSlice]:
        """Raises InputError where columns have other names than they had at either position."""
        _refuse_renamed(self._table, begin, end)
        return [] if _snapshot(begin) == _snapshot(end) else [FeedSlice(begin, end)]

    def read(self, piece: FeedSlice) -> pa.RecordBatchReader:
        table = self._table
        _refuse_renamed(table, piece.begin, piece.end)
        return self._feed(table, piece.begin, piece.end)

    def _feed(self, table: IcebergTable, begin: Position, end: Position) -> pa.RecordBatchReader:
        return branch_changes(table, self._branch, _snapshot(begin), _snapshot(end), self.asked)

    @property
    def _table(self) -> IcebergTable:
        return IcebergCatalog.at(self.options["catalog"]).loaded(self.options["table"])

    @property
    def _branch(self) -> str:
        return self.options.get("branch", "main")


def _snapshot(position: Position) -> int | None:
    """The snapshot of a branch's position. Checkpoints of earlier releases have it alone."""
    found: int | None = position["snapshot"] if isinstance(position, dict) else position
    return found


def _refuse_renamed(table: IcebergTable, *positions: Position) -> None:
    for position in positions:
        for was, name in table.renamed(position["schema"]) if isinstance(position, dict) else ():
            how = "was made anew, or got a default, after" if was == name else f"was {was!r} at"
            raise InputError(
                f"column {name!r} of {table.metadata.table_id!r} {how} the position in the checkpoint: begin another "
                "stream, with a new checkpoint"
            )


def fed(options: Mapping[str, str]) -> Fed:
    """The table of these options. Raises InputError for an option that the feed of this kind of table does not have."""
    of_branch = is_iceberg(options.get("catalog"))
    heard = BRANCH_CHANGE_OPTIONS if of_branch else STREAM_CHANGE_OPTIONS
    check_options(options, heard)
    if "changes" not in options:
        raise InputError("a stream gives changes: say where they begin with option 'changes', such as 'all'")
    asked = ChangesRequest(per_commit=flag(options, "per_commit"), before=flag(options, "before"))
    known = {name: options[name] for name in heard if name in options}
    return FedBranch(known, asked) if of_branch else FedStreams(known, asked)


def begin_of(table: Fed, options: Mapping[str, str]) -> Position:
    return None if options["changes"] == ALL else table.position(options["changes"])


def feed_schema(options: Mapping[str, str]) -> StructType:
    """The columns of the table and those of the feed, in Spark's types."""
    schema = arrow_types.spark_schema(fed(options).schema())
    found: StructType = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return found


def _rows(table: Fed, piece: InputPartition | None, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if not isinstance(piece, FeedSlice):  # Spark's word for: there is no partition
        return
    reader = table.read(piece)
    if new := [name for name in reader.schema.names if name not in schema.names]:
        _log.warning("the feed has columns that this query lacks, begin it again to have them: %s", ", ".join(new))
    for batch in reader:
        rows = pa.Table.from_batches([batch])
        names = frozenset(rows.column_names)
        columns = [
            to_type(rows[field.name], field.type, "the feed", field.name)
            if field.name in names
            else pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
            for field in schema
        ]
        yield from pa.Table.from_arrays(columns, names=schema.names).to_batches()


class Changes(DataSourceReader):
    """One batch: the ends are settled when the query is planned."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._table = fed(options)
        self._begin = begin_of(self._table, options)
        self._end = self._table.position(options.get("to"))
        self._schema = to_arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        return self._table.slices(self._begin, self._end)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        yield from _rows(self._table, partition, self._schema)


class ChangeStream(DataSourceStreamReader):
    """Batch after batch. Spark's checkpoint has the positions."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        if "to" in options:
            raise InputError("option 'to' is for spark.read: a stream has no end")
        self._table = fed(options)
        self._options = dict(options)
        self._schema = to_arrow_schema(schema)
        self._last: Position = None

    def initialOffset(self) -> dict[str, Any]:
        return {"position": begin_of(self._table, self._options)}

    def latestOffset(self) -> dict[str, Any]:
        self._last = self._table.position(None, self._last)
        return {"position": self._last}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._table.slices(start["position"], end["position"])

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        yield from _rows(self._table, partition, self._schema)
