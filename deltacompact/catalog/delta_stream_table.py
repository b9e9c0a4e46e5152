"""One table of delta streams: what a user does with it, by the names of the commands.

    orders = catalog.table("orders")
    orders.append(rows, {"day": "1995-04-03"})      deltacompact append  ./lake orders rows.parquet --partition …
    orders.compact()                                deltacompact compact ./lake orders
    orders.read(columns=["id"])                     deltacompact read    ./lake orders --column id

The functions of the package (`deltacompact.compact`, `check`, `vacuum`, …) and the methods of the catalog do the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from deltacompact.base import expect
from deltacompact.base.deltas import Appended, Delta
from deltacompact.base.errors import InputError
from deltacompact.base.model import ContentType, Partition, PartitionLike, Readers, SchemaMode, Table
from deltacompact.base.notebooks import UsersWords
from deltacompact.base.partitions import side_by_side
from deltacompact.base.shared_arguments import (
    AppendTerms,
    ChangeEventTerms,
    ChangesOptions,
    CompactionArguments,
    ReportedReads,
    Selection,
)
from deltacompact.base.table_keys import TableKeys
from deltacompact.base.tokens import TokenLike
from deltacompact.base.user_calls import users_calls
from deltacompact.delta_streams.streams import VACUUM_AGE_MIN_S, Streams

if TYPE_CHECKING:  # imported when they are used: `show` must not wait for them
    import duckdb
    import polars
    import pyarrow as pa
    import pyarrow.dataset as ds

    from deltacompact.base.events import EventSink
    from deltacompact.base.fingerprint import Fingerprint
    from deltacompact.base.settings import Settings
    from deltacompact.base.thresholds import Thresholds
    from deltacompact.catalog.table_plan import TablePlan
    from deltacompact.change_feed.bookmark import Bookmark
    from deltacompact.change_feed.difference import Difference
    from deltacompact.delta_streams.appending.appender import Appender
    from deltacompact.delta_streams.history import VersionMade
    from deltacompact.delta_streams.log.state import StreamState
    from deltacompact.delta_streams.versions import VersionInfo
    from deltacompact.layout.advice import Advice
    from deltacompact.layout.heat import Heat
    from deltacompact.maintenance.check import CheckResult
    from deltacompact.maintenance.drop import DropResult
    from deltacompact.maintenance.readable_by import Obstacle
    from deltacompact.maintenance.vacuum.vacuum import VacuumResult
    from deltacompact.planning.simulated import PolicyOutcome
    from deltacompact.publication.publication import PublicationResult
    from deltacompact.reports.health import TableHealth
    from deltacompact.results import CompactionResult

T = TypeVar("T")

_INSTEAD = {
    "show": "print(table) shows it",
    "validate": "fingerprint() adds up its rows, `deltacompact validate` lets another engine do so",
    "rehash": "`deltacompact rehash` moves its index to other hash buckets",
    "maintain": "vacuum() deletes what nothing reaches any more",
}
"""What a table of an Iceberg catalog has, and this one has not."""


@users_calls
@dataclass(frozen=True, slots=True, repr=False)
class DeltaStreamTable(UsersWords):
    """A table of delta streams, by what users do with it. `catalog.table("orders")` gives one; making it reads nothing.

    It has no state of its own, and may be used from several threads and processes. A `partition` is a dict of the
    values of the partition keys, {"day": "1995-04-03"}. Without one, a call is for all partitions, or for the only one
    of a table without partition keys.
    """

    _catalog: Streams
    _table_id: str

    def __repr__(self) -> str:
        return f"{self._catalog!r}.table({self._table_id!r})"

    def __str__(self) -> str:
        """What `show` prints: totals, and the ten worst of many partitions."""
        from deltacompact.reports.scale import Detail
        from deltacompact.reports.shown import printed
        from deltacompact.reports.table_report import print_table, table_document

        shown = table_document(self._catalog, self._table_id)
        return printed(lambda out: print_table(out, shown, Detail()))

    def _repr_html_(self) -> str:
        """The partitions as a table, the ten worst of many: for notebooks."""
        from deltacompact.reports.table_report import table_as_html, table_document

        return table_as_html(table_document(self._catalog, self._table_id))

    def __getattr__(self, name: str) -> Any:
        from deltacompact.base.notebooks import missing

        raise missing(self, name, _INSTEAD)

    # What is declared

    @property
    def table_id(self) -> str:
        """Its name in the catalog."""
        return self._table_id

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """In the order of their declaration."""
        return tuple(self._declared.partition_keys)

    @property
    def keys(self) -> TableKeys | None:
        """Primary keys and sort keys. None: the first compaction will declare them."""
        return self._declared.keys

    @property
    def tombstone_retention(self) -> int | None:
        """For how many stream positions a keyed delete blocks older upserts. None: for ever."""
        return self._declared.tombstone_retention

    @property
    def schema_mode(self) -> SchemaMode:
        """Whether appends may add columns."""
        return self._declared.schema_mode

    @property
    def readers(self) -> Readers | None:
        """Who reads compacted files. None, nobody has said: plain files."""
        return self._declared.readers

    @property
    def cluster_by(self) -> str | None:
        """By which columns compactions lay rows out, "day*3,customer". None: rows keep their order."""
        return self._declared.cluster_by

    @property
    def source_table_id(self) -> str | None:
        """The table whose destination this one is, if it is one."""
        return self._declared.source_table_id

    @property
    def publication(self) -> str | None:
        """The Iceberg or Delta table that shows the rows, if there is one."""
        return self._catalog.publication(self._table_id)

    def partitions(self) -> list[Partition]:
        """The partitions that hold a stream.

        Examples:
            >>> [str(partition) for partition in orders.partitions()]
            ['(all)']
        """
        return self._catalog.partitions(self._table_id)

    def declare_schema_mode(self, mode: SchemaMode | str) -> None:
        """Declare whether appends may add columns: `mode` is "merge" or "fixed".

        Examples:
            >>> orders.declare_schema_mode("fixed")
            >>> orders.schema_mode.value
            'fixed'
        """
        self._catalog.declare_schema_mode(self._table_id, mode)

    def declare_readers(self, readers: Readers | str) -> None:
        """Declare who reads compacted files: `readers` is "files", every row of them, or "vectors", those that live.

        Examples:
            >>> orders.declare_readers("vectors")
            >>> orders.readers.value
            'vectors'
        """
        self._catalog.declare_readers(self._table_id, readers)

    def declare_cluster_by(self, cluster_by: str | Sequence[str]) -> None:
        """Lay rows out by `cluster_by`, columns like "day*3,customer", from the next compaction on; "": not any more.

        Examples:
            >>> orders.declare_cluster_by("status*3,id")
            >>> orders.cluster_by
            'status*3,id'
        """
        self._catalog.declare_cluster_by(self._table_id, cluster_by)

    # Writing

    @overload
    def append(
        self,
        tables: Any,
        partition: PartitionLike = None,
        operation: str = "upsert",
        stream_position: int | None = None,
        token: TokenLike = None,
        **terms: Unpack[AppendTerms],
    ) -> Delta: ...
    @overload
    def append(
        self,
        tables: Any,
        partition: PartitionLike = None,
        operation: str = "upsert",
        stream_position: int | None = None,
        token: TokenLike = None,
        **terms: Unpack[ChangeEventTerms],
    ) -> Appended: ...
    def append(
        self,
        tables: Any,
        partition: PartitionLike = None,
        operation: str = "upsert",
        stream_position: int | None = None,
        token: TokenLike = None,
        **terms: Unpack[ChangeEventTerms],
    ) -> Delta | Appended:
        """Commit rows as one delta, or change events as one commit a partition.

        tables             a pyarrow Table, a pandas or Polars frame, any object with rows, or a list: one file each
        partition          the values of the partition keys, by name
        operation          "upsert", or "delete" of the keys in the rows
        stream_position    int64, greater than all before it (default: milliseconds since the epoch)
        token              a name, or a producer and the number of its batch: ("etl", 7). A known one commits nothing
        force_position     allow a position of more than a year ahead
        schema_mode        "fixed" refuses new columns, "merge" adds them (default: the table's)

        Returns the delta: look at its `committed`, `new_columns` and `null_keys`. Raises OutcomeUnknownError where the
        outcome cannot be known: repeat the call with the same token. Raises PositionError for a bad position,
        SchemaError where the rows do not fit the stream.

        Change events: `operation_column` names the column in which each row says its operation, by `upsert_values` and
        `delete_values`; `format` is "debezium", "maxwell" or "dms". The order of the rows counts, or the table's sort
        keys: one commit has the deletes and then the upserts that are left. `partition_by` names partition keys whose
        values are in the rows, null too, unless `format` is given (default: those that `partition` does not have, and
        null is refused); each partition has a commit of its own, with the token. Then an Appended is returned. Raises
        InputError naming the row, before anything is committed.

        Examples:
            >>> orders.append(pa.table({"id": [4], "status": ["new"]})).rows
            1
            >>> orders.append(pa.table({"id": [3]}), operation="delete", token=("etl", 7)).committed
            True
            >>> orders.append(pa.table({"id": [3]}), operation="delete", token=("etl", 7)).committed
            False
            >>> changes = pa.table({"id": [2, 4], "status": ["sent", None], "op": ["u", "d"]})
            >>> [delta.operation.value for delta in orders.append(changes, operation_column="op").deltas]
            ['delete', 'upsert']
        """
        return self._writer(partition, operation, stream_position, token, terms).append(tables)

    @overload
    def append_files(
        self,
        sources: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
        partition: PartitionLike = None,
        operation: str = "upsert",
        stream_position: int | None = None,
        token: TokenLike = None,
        *,
        reference: bool = False,
        content_type: ContentType | None = None,
        **terms: Unpack[AppendTerms],
    ) -> Delta: ...
    @overload
    def append_files(
        self,
        sources: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
        partition: PartitionLike = None,
        operation: str = "upsert",
        stream_position: int | None = None,
        token: TokenLike = None,
        *,
        reference: bool = False,
        content_type: ContentType | None = None,
        **terms: Unpack[ChangeEventTerms],
    ) -> Appended: ...
    def append_files(
        self,
        sources: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
        partition: PartitionLike = None,
        operation: str = "upsert",
        stream_position: int | None = None,
        token: TokenLike = None,
        *,
        reference: bool = False,
        content_type: ContentType | None = None,
        **terms: Unpack[ChangeEventTerms],
    ) -> Delta | Appended:
        """Commit files as one delta: copied into the catalog, or where they are.

        sources         local paths or URIs, or one of them
        reference       leave the files where they are; they must not change: readers refuse a changed file
        content_type    of the files (default: by their names)

        The other arguments are those of `append`. CSV and JSON columns take the types of the stream's schema. Files of
        change events, or of rows of several partitions, are read and written anew. Raises what `append` raises, and
        InputError for a file that cannot be read.

        Examples:
            >>> pq.write_table(pa.table({"id": [7, 8], "status": ["new", "new"]}), "orders.parquet")
            >>> orders.append_files("orders.parquet", token="monday").rows
            2
        """
        writer = self._writer(partition, operation, stream_position, token, terms)
        return writer.append_files(sources, reference, content_type)

    def restate(self, tables: Any, partition: Mapping[str, Any] | None = None) -> StreamState:
        """Replace a partition's contents by these rows. Deltas that are committed meanwhile stay on top.

        `tables` has the rows, as for `append`. Returns the new version. Raises what `append` raises, and ConflictError
        where a compaction came first.

        Examples:
            >>> orders.restate(pa.table({"id": [9], "status": ["old"]})).version[:2]
            '2-'
        """
        return self._writer(partition).restate(tables)

    # Reading

    def read(self, partition: PartitionLike = None, **selection: Unpack[Selection]) -> pa.Table:
        """The live rows of one partition, or of all: one snapshot for each partition.

        columns    names, in the order in which they are wanted (default: all)
        filter     a pyarrow expression, or (column, operator, value) in a list
        as_of      an older version of the partition, by name or number, or a time: the rows that lived then, without
                   those of deltas that were retracted since; `version` is the same

        Raises NotFoundError for an unknown partition or version, InputError for an unknown column.

        Examples:
            >>> orders.read(columns=["id"]).to_pylist()
            [{'id': 2}, {'id': 3}]
        """
        from deltacompact.delta_streams.scan import Scan, read_table

        return read_table(self._catalog, Scan(self._table_id, partition, **selection))

    def scan(self, partition: PartitionLike = None, **selection: Unpack[Selection]) -> pa.RecordBatchReader:
        """The live rows batch by batch, for tables that do not fit in memory. Arguments as for `read`.

        Examples:
            >>> sum(batch.num_rows for batch in orders.scan())
            2
        """
        from deltacompact.delta_streams.scan import Scan, scan_table

        return scan_table(self._catalog, Scan(self._table_id, partition, **selection))

    def export(
        self,
        target: str,
        partition: PartitionLike = None,
        version: str | datetime | None = None,
        *,
        as_of: str | datetime | None = None,
    ) -> int:
        """Write the live rows to one file, and return how many there are.

        target     a path or URI that ends in .parquet, .feather, .orc or .csv
        as_of      an older version, as for `read`; `version` is the same

        Raises InputError for another ending, and what `read` raises.

        Examples:
            >>> orders.export("orders.csv")
            2
        """
        from deltacompact.delta_streams.scan import Scan, export_table

        return export_table(self._catalog, Scan(self._table_id, partition, version=version, as_of=as_of), target)

    def advise(
        self,
        columns: str | Sequence[str] | None = None,
        partition: PartitionLike = None,
        *,
        reads: int | None = None,
        settings: Settings | None = None,
        plot: str | None = None,
        **reported: Unpack[ReportedReads],
    ) -> Advice:
        """How files lie by some columns, what clustering by them would bring, and what it would cost. Writes nothing.

        columns         "day*3,customer", or a list. Without any, those that reads ask for; where no reads are told,
                        those by which the table is clustered; else the depth of its primary keys
        reads           how many reads are to pay for the work (default: 100)
        scan_reports    reads, told as in `IcebergCatalogTable.advise`; `spark_logs` are event logs of Spark
        plot            an .svg file to draw the boxes of the files in

        Reads the footers of all files, and rows of some. Raises InputError for a column that no file has, that lies in
        a struct, is a partition key, or has no order.

        Examples:
            >>> advice = orders.advise("id")
            >>> (advice.files, advice.outlooks[0].now.mean)
            (1, 1.0)
        """
        from deltacompact.delta_streams.advising.adviser import advice_of_streams
        from deltacompact.delta_streams.advising.examined_files import ExaminedFiles
        from deltacompact.layout.advice import READS
        from deltacompact.reports.plots import draw_boxes

        chosen = None if partition is None else self._catalog.partition(self._table_id, partition)
        asked = READS if reads is None else reads
        examined = ExaminedFiles.at(self._catalog, self._table_id, chosen)
        found = advice_of_streams(examined, examined.reads(reported), columns, asked, settings)
        draw_boxes(plot, found)
        return found

    def heat(self, **reported: Unpack[ReportedReads]) -> tuple[Heat, tuple[str, ...]]:
        """How many reads ask for each column, one of a week ago counting for half; and what could not be read.

        Reads that are told (arguments as for `advise`) are added to what is kept beside the table; a log that is told
        again adds what came since.

        Examples:
            >>> heat, notes = orders.heat()
            >>> heat.columns
            {}
        """
        from deltacompact.delta_streams.advising.examined_files import ExaminedFiles
        from deltacompact.delta_streams.table_heat import heat_of_streams

        examined = ExaminedFiles.at(self._catalog, self._table_id, None)
        return examined.reads(reported).added_to(heat_of_streams(self._catalog, self._table_id))

    def simulate(
        self,
        columns: str | Sequence[str] | None = None,
        partition: PartitionLike = None,
        *,
        depths: Sequence[float] = (2.0, 8.0),
        **reported: Unpack[ReportedReads],
    ) -> tuple[tuple[PolicyOutcome, ...], tuple[str, ...]]:
        """Replay reads on the files as they came: what policies of clustering would have cost and saved; and notes.

        columns    by which files are clustered; None: those that the reads ask for
        depths     for each, a policy that clusters partitions in which a file meets more files than that

        Other arguments as for `advise`. Writes nothing. Raises InputError where there is no read, or no file.

        Examples:
            >>> orders.simulate("id")
            Traceback (most recent call last):
            deltacompact.base.errors.InputError: simulate replays reads: give --spark-log or --scan-reports
        """
        from deltacompact.delta_streams.advising.adviser import simulated_streams
        from deltacompact.delta_streams.advising.examined_files import ExaminedFiles

        chosen = None if partition is None else self._catalog.partition(self._table_id, partition)
        examined = ExaminedFiles.at(self._catalog, self._table_id, chosen)
        collected = examined.reads(reported)
        collected.refuse_none()
        return simulated_streams(examined, collected, columns, depths), collected.notes

    def dataset(self, partition: PartitionLike = None, **selection: Unpack[Selection]) -> ds.Dataset:
        """The live rows as a pyarrow Dataset, read at each scan, with the scan's columns and filters.

        Arguments as for `read`.

        Examples:
            >>> orders.dataset().to_table(columns=["id"]).num_rows
            2
        """
        from deltacompact.reading.engines import dataset_of, scanning

        return dataset_of(scanning(self.scan, {"partition": partition, **selection}))

    def to_polars(self, partition: PartitionLike = None, **selection: Unpack[Selection]) -> polars.LazyFrame:
        """The live rows as a Polars LazyFrame, read when it is collected. Raises InputError without polars.

        Arguments as for `read`.

        Examples:
            >>> orders.to_polars(columns=["id"]).collect()["id"].sum()
            5
        """
        from deltacompact.reading.engines import lazy_frame_of, scanning

        return lazy_frame_of(scanning(self.scan, {"partition": partition, **selection}))

    def to_duckdb(
        self,
        connection: duckdb.DuckDBPyConnection | None = None,
        partition: PartitionLike = None,
        **selection: Unpack[Selection],
    ) -> duckdb.DuckDBPyRelation:
        """The live rows as a DuckDB relation, read when it is queried. Raises InputError without duckdb.

        `connection` is the one that the relation is made in (default: DuckDB's own). Other arguments as for `read`.

        Examples:
            >>> orders.to_duckdb().aggregate("sum(id)").fetchall()
            [(5,)]
        """
        from deltacompact.reading.engines import relation_of, scanning

        return relation_of(scanning(self.scan, {"partition": partition, **selection}), connection)

    def compacted_files(self, partition: PartitionLike = None) -> list[str]:
        """Paths or URIs of the live compacted files, for engines that read lists. Files may lack new columns:
        duckdb.read_parquet(files, union_by_name=True).

        The folders below the table hold more: deltas, and versions that were replaced. Deltas since the last compaction
        are not in the list. Raises InputError where nothing was compacted yet, or a partition has files with dead rows.

        Examples:
            >>> pq.read_table(orders.compacted_files()).num_rows
            3
        """
        from deltacompact.delta_streams.file_lists import live_files

        return live_files(self._catalog, self._table_id, partition)

    def fingerprint(self, partition: PartitionLike = None, *, as_of: str | datetime | None = None) -> Fingerprint:
        """How many rows live, and the sum of their hashes: two tables with the same rows have the same.

        `as_of` is an older version, as for `read`.

        Examples:
            >>> orders.fingerprint().rows
            2
        """
        from deltacompact.delta_streams.scan import Scan, live_fingerprint

        return live_fingerprint(self._catalog, Scan(self._table_id, partition, as_of=as_of))

    # Upkeep

    def plan(
        self,
        *,
        usd_per_core_hour: float | None = None,
        plot: str | None = None,
        **chosen: Unpack[CompactionArguments],
    ) -> TablePlan:
        """What `compact` with these arguments would do, partition by partition, and why. Writes nothing.

        usd_per_core_hour    what a core costs: the text says what the plan is expected to cost
        plot                 an .svg file to draw files and bytes in, before and after

        Other arguments as for `deltacompact.compact`. Raises InputError for bad arguments. An error of one partition
        is in its part of the plan.

        Examples:
            >>> orders.plan()
            plan of 'orders': 1 partition: 1 to compact, 0 with nothing to do, 0 failed
        """
        from deltacompact.arguments import request_of
        from deltacompact.catalog.table_plan import plan_of
        from deltacompact.reports.plots import draw_plans

        found = plan_of(self._catalog, request_of(self._table_id, **chosen), usd_per_core_hour)
        draw_plans(plot, found._shown)
        return found

    def compact(
        self,
        *,
        desired_sla: int | None = None,
        sns_event_topic_arn: str | None = None,
        event_sinks: Sequence[EventSink] = (),
        **chosen: Unpack[CompactionArguments],
    ) -> CompactionResult:
        """Fold the deltas: one live row for each primary key.

        Arguments and errors: see `deltacompact.compact`.

        Examples:
            >>> orders.compact(rows_per_compacted_file=1_000_000)
            compaction of 'orders': 1 partition: 1 compacted, 0 with nothing to do, 0 failed
        """
        from deltacompact.arguments import request_of, sinks_of
        from deltacompact.running import compact_job

        sinks = sinks_of(event_sinks, sns_event_topic_arn, desired_sla)
        return compact_job(self._catalog, request_of(self._table_id, **chosen), sinks)

    @overload
    def check(self, partition: PartitionLike = None, *, quick: bool = False) -> list[CheckResult]: ...
    @overload
    def check(
        self, partition: PartitionLike = None, *, readable_by: str | Sequence[str]
    ) -> dict[str, tuple[Obstacle, ...]]: ...
    @overload
    def check(
        self, partition: PartitionLike = None, *, health: Literal[True] | Thresholds, plot: str | None = None
    ) -> TableHealth: ...
    def check(
        self,
        partition: PartitionLike = None,
        *,
        quick: bool = False,
        readable_by: str | Sequence[str] = (),
        health: bool | Thresholds = False,
        plot: str | None = None,
    ) -> list[CheckResult] | dict[str, tuple[Obstacle, ...]] | TableHealth:
        """Verify log, files and index, one result for each partition. Nothing is repaired.

        quick          decode no column and compare no digest
        readable_by    engines: nothing is verified, but what keeps each from reading the publication is told, or the
                       compacted files where the table is not published
        health         True, or Thresholds: no file is read, but what readers fold and skip is held against them
        plot           an .svg file to draw the health in

        Raises InputError for an engine of which nothing is known, and for two questions at once.

        Examples:
            >>> [found.problems for found in orders.check()]
            [()]
            >>> orders.check(health=True)
            health of 'orders': 1 partition, all healthy
            >>> [obstacle.words for obstacle in orders.check(readable_by="duckdb")["duckdb"]]
            ['1 delta: compact folds them, until then they are not seen']
        """
        expect.at_most_one(quick=quick, readable_by=readable_by, health=health or plot)
        if readable_by:
            from deltacompact.maintenance.stream_readable_by import stream_obstacles_of

            return stream_obstacles_of(self._catalog, self._table_id, partition, readable_by)
        if health or plot:
            from deltacompact.reports.health import health_of_streams
            from deltacompact.reports.plots import health_asked

            chosen = self._catalog.chosen(self._table_id, partition)
            return health_asked(
                health, plot, lambda limits: health_of_streams(self._catalog, self._table_id, chosen, limits)
            )

        from deltacompact.maintenance.check import check

        return check(self._catalog, self._table_id, partition, quick=quick)

    def vacuum(
        self,
        partition: PartitionLike = None,
        *,
        age_min_s: float = VACUUM_AGE_MIN_S,
        force: bool = False,
        dry_run: bool = False,
        full: bool = False,
    ) -> list[VacuumResult]:
        """Delete files that nothing reaches any more, one result for each partition.

        age_min_s    of what is deleted, in seconds, since the compaction that dropped it (default: 3 days)
        force        allow less than 3 days: only while no reader, writer or compaction runs
        dry_run      delete nothing, and say what would go
        full         read the whole history, not only what came since the last vacuum

        Raises InputError for too small an age, CorruptionError where stored objects contradict each other.

        Examples:
            >>> [found.deleted for found in orders.vacuum(dry_run=True)]
            [()]
        """
        from deltacompact.maintenance.vacuum.vacuum import vacuum

        return vacuum(
            self._catalog, self._table_id, partition, age_min_s=age_min_s, force=force, dry_run=dry_run, full=full
        )

    def drop(self, *, dry_run: bool = False) -> DropResult:
        """Delete the table for good: see `DeltaStreamCatalog.drop_table`.

        Examples:
            >>> orders.drop(dry_run=True).streams
            1
        """
        from deltacompact.maintenance.drop import drop

        return drop(self._catalog, self._table_id, dry_run=dry_run)

    # Versions

    def versions(self, partition: PartitionLike = None) -> list[VersionInfo]:
        """Every version of each partition, the oldest first, and whether it is retained: may be read or gone back to.

        Examples:
            >>> orders.versions()[0]
            version 0 of (all): retained, 0 rows
        """
        from deltacompact.delta_streams.versions import versions

        of_each = self._of_each(partition, lambda chosen: versions(self._catalog, self._table_id, chosen))
        return [version for found in of_each for version in found]

    def history(self, partition: PartitionLike = None) -> list[VersionMade]:
        """What made each version of each partition, and when, the oldest first.

        Examples:
            >>> [made.operation for made in orders.history()]
            ['create', 'compact']
        """
        from deltacompact.delta_streams.history import history

        of_each = self._of_each(partition, lambda chosen: history(self._catalog, self._table_id, chosen))
        return [version for found in of_each for version in found]

    def changes(
        self,
        from_: str | datetime | None = None,
        to: str | datetime | None = None,
        partition: PartitionLike = None,
        *,
        bookmark: str | None = None,
        **asked: Unpack[ChangesOptions],
    ) -> pa.RecordBatchReader:
        """What changed after one version, up to another: see `deltacompact.changes`.

        from_, to   versions by name or number, or times (default: from the beginning, up to now)
        bookmark    what came since this consumer's last `commit_bookmark`; the same batch until then. `from_` says
                    where a new bookmark begins

        Raises NotFoundError for a version that is not there any more, InputError for an unknown column.

        Examples:
            >>> _ = orders.append(pa.table({"id": [2], "status": ["sent"]}))
            >>> sorted(orders.changes("0", columns=["id", "status"]).read_all()["_change_type"].to_pylist())
            ['delete', 'update_after']
        """
        from deltacompact.change_feed.changes import stream_batch, stream_changes
        from deltacompact.change_feed.request import ChangesRequest
        from deltacompact.change_feed.stream_bookmarks import batch_for

        if bookmark is None:
            return stream_changes(self._catalog, self._table_id, from_, to, partition, ChangesRequest(**asked))
        if partition is not None:
            raise InputError("a bookmark is of all partitions")
        batch = batch_for(self._catalog, self._table_id, bookmark, from_, to)
        return stream_batch(self._catalog, self._table_id, batch, ChangesRequest(**asked))

    def bookmarks(self) -> list[Bookmark[Any]]:
        """How far each consumer of changes is.

        Examples:
            >>> _ = orders.changes("0", bookmark="mirror")
            >>> [bookmark.name for bookmark in orders.bookmarks()]
            ['mirror']
        """
        from deltacompact.change_feed.stream_bookmarks import bookmarks

        return bookmarks(self._catalog, self._table_id)

    def commit_bookmark(self, name: str, batch: Bookmark[Any] | None = None) -> bool:
        """Say that the batch of a consumer is done.

        name     of the bookmark, as `changes` was given it
        batch    what `bookmarks` told: nothing is done unless the batch is still that one

        Returns whether a batch was open: none is after an empty one, or once it is done. Raises NotFoundError for an
        unknown bookmark, ConflictError where another consumer came first.

        Examples:
            >>> rows = orders.changes("0", bookmark="mirror").read_all()
            >>> orders.commit_bookmark("mirror")
            True
            >>> orders.changes(bookmark="mirror").read_all().num_rows
            0
        """
        from deltacompact.change_feed.stream_bookmarks import committed

        return committed(self._catalog, self._table_id, name, batch)

    def drop_bookmark(self, name: str) -> None:
        """Remove the bookmark `name`, so that vacuum no longer keeps versions for it.

        Raises NotFoundError for an unknown one.

        Examples:
            >>> _ = orders.changes("0", bookmark="mirror")
            >>> orders.drop_bookmark("mirror")
            >>> orders.bookmarks()
            []
        """
        from deltacompact.change_feed.stream_bookmarks import dropped

        dropped(self._catalog, self._table_id, name)

    def diff(
        self,
        from_: str | datetime | None = None,
        to: str | datetime | None = None,
        partition: PartitionLike = None,
        *,
        key: Sequence[str] | None = None,
    ) -> Difference:
        """What changed after one version, up to another, in numbers: by type of change, and files.

        Arguments and errors as for `changes`; `key` names the columns that identify a row (default: the primary key).

        Examples:
            >>> orders.diff("0").deletes
            1
        """
        from deltacompact.change_feed.changes import stream_changes
        from deltacompact.change_feed.difference import difference
        from deltacompact.change_feed.request import ChangesRequest

        return stream_changes(self._catalog, self._table_id, from_, to, partition, ChangesRequest(key=key), difference)

    def rollback(self, version: str | datetime, partition: PartitionLike = None) -> StreamState:
        """Go back to the contents of a retained `version`, by name or number, or of a time. Later commits are dropped.

        Returns the new version. Raises NotFoundError, InputError where it is active or too old, ConflictError where a
        compaction or a restatement came first.

        Examples:
            >>> orders.rollback("0").version[:2]
            '2-'
        """
        from deltacompact.delta_streams.versions import rollback

        return rollback(self._catalog, self._table_id, version, partition)

    def retract(
        self, position: int | None = None, partition: PartitionLike = None, *, file: str | None = None
    ) -> StreamState:
        """Take out the delta at a stream `position` that is not compacted yet, or one `file`, compacted or not.

        What cannot be read or folded blocks its partition until it is taken out. `file` is the path that the error
        names. Raises InputError where no such delta waits, NotFoundError for an unknown file, ConflictError where
        another version came first.

        Examples:
            >>> delta = orders.append(pa.table({"id": [4], "status": ["bad"]}))
            >>> orders.retract(delta.position).deltas[-1].operation.value
            'delete'
        """
        from deltacompact.delta_streams.taking_out import retract_file
        from deltacompact.delta_streams.versions import retract

        if (position is None) == (file is None):
            raise InputError("name what is to be taken out: either a position or a file")
        if file is not None:
            return retract_file(self._catalog, self._table_id, file, partition)
        assert position is not None
        return retract(self._catalog, self._table_id, position, partition)

    # Other engines

    def publish(self, to: str | None = None, partition: PartitionLike = None) -> PublicationResult:
        """Show the compacted rows in an Iceberg or a Delta table, now and after every compaction.

        `to` is "iceberg://NAME/ns.table", "delta:///PATH" or "delta://s3://BUCKET/PATH". A call without it repairs what
        a crash or a catalog that did not answer has left undone. After `stop_publishing`, a new publication shows
        nothing of a restated partition until it is compacted. Raises InputError, before anything is declared, if the
        rows or that table do not fit, and what reading or committing raises.

        Examples:
            >>> orders.publish("delta://shown").files_added
            1
        """
        from deltacompact.publication.publication import publish

        return publish(self._catalog, self._table_id, to, partition)

    def stop_publishing(self) -> str | None:
        """Publish no more. Returns the Iceberg or Delta table that stays as it is, if any.

        Nothing protects the files that it refers to from a vacuum any more: drop it, but do not purge it. PyIceberg's
        purge_table ignores gc.enabled, and deletes files of the lake.

        Examples:
            >>> orders.stop_publishing() is None
            True
        """
        target = self.publication
        self._catalog.declare_publication(self._table_id, None)
        return target

    @property
    def _declared(self) -> Table:
        return self._catalog.described(self._table_id)

    def _writer(
        self,
        partition: PartitionLike = None,
        operation: str = "upsert",
        stream_position: int | None = None,
        token: TokenLike = None,
        said: ChangeEventTerms | None = None,
        *,
        in_order: bool = True,
    ) -> Appender:
        """Writes rows of which the caller says so much; `in_order`: see there."""
        from deltacompact.delta_streams.appending.appender import Appender
        from deltacompact.delta_streams.appending.stream_writer import CommitTerms

        said = said or {}
        terms = CommitTerms.of(
            stream_position,
            token,
            self._catalog.clock(),
            force_position=said.get("force_position", False),
            schema_mode=said.get("schema_mode"),
        )
        return Appender(self._catalog, self._table_id, partition, operation, terms, said, in_order)

    def _of_each(self, partition: PartitionLike, work: Callable[[Partition], T]) -> list[T]:
        return side_by_side(self._catalog.chosen(self._table_id, partition), work, self._catalog.at_once)
