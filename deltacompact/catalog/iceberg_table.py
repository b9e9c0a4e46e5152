"""One table of an Iceberg catalog: what a user does with it, by the names of the commands.

orders = open_catalog("iceberg://prod").table("db.orders")
orders.advise("day,customer")                           deltacompact advise  iceberg://prod db.orders --columns …
orders.plan("convert")                                  deltacompact plan    iceberg://prod db.orders --mode convert
orders.compact(options={"rewrite-all": True})           deltacompact compact iceberg://prod db.orders --option …
orders.maintain(expire_snapshots=True, dry_run=True)    deltacompact maintain iceberg://prod db.orders …
orders.read(columns=["id"], as_of="2026-11-22")         deltacompact read    iceberg://prod db.orders --column id …
orders.history()                                        deltacompact history iceberg://prod db.orders
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from deltacompact.base import expect
from deltacompact.base.events import EventSink, fan_out
from deltacompact.base.notebooks import UsersWords
from deltacompact.base.settings import Settings
from deltacompact.base.shared_arguments import ChangesOptions, ReportedReads
from deltacompact.base.user_calls import users_calls

if TYPE_CHECKING:  # imported when they are used: `show` must not wait for them
    import duckdb
    import polars
    import pyarrow as pa
    import pyarrow.dataset as ds

    from deltacompact.base.fingerprint import Fingerprint
    from deltacompact.base.thresholds import Thresholds
    from deltacompact.catalog.iceberg_calls import IcebergCalls
    from deltacompact.change_feed.bookmark import Bookmark
    from deltacompact.change_feed.difference import Difference
    from deltacompact.iceberg.history import SnapshotMade
    from deltacompact.iceberg.table.pyiceberg_door import IcebergTable
    from deltacompact.iceberg_modes.maintain.result import MaintainResult
    from deltacompact.iceberg_modes.plan import ModePlan
    from deltacompact.iceberg_modes.result import ModeResult
    from deltacompact.layout.advice import Advice
    from deltacompact.layout.collected_reads import CollectedReads
    from deltacompact.layout.heat import Heat
    from deltacompact.maintenance.iceberg_check import BranchCheck
    from deltacompact.maintenance.readable_by import Obstacle
    from deltacompact.planning.simulated import PolicyOutcome
    from deltacompact.reports.health import TableHealth


class IcebergSelection(TypedDict, total=False):
    """Which part of a table to read: see `IcebergCatalogTable.read`."""

    columns: Sequence[str] | None
    filter: Any
    branch: str
    as_of: str | int | datetime | None


_INSTEAD = {
    "show": "print(table) shows it",
    "validate": "fingerprint() adds up its rows, `deltacompact validate` lets another engine do so",
    "append": "whoever writes the table appends to it, such as PyIceberg",
    "append_files": "whoever writes the table appends to it, such as PyIceberg",
    "restate": "whoever writes the table overwrites it, such as PyIceberg",
    "versions": "its versions are snapshots, history() lists them",
    "vacuum": "maintain(expire_snapshots=True, remove_orphans=True) deletes what nothing needs any more",
    "retract": "rollback() goes back to an older snapshot",
    "publish": "engines read it as it is, check(readable_by=…) says which",
    "drop": "its catalog drops it, by PyIceberg's drop_table",
}
"""What a table of delta streams has, and this one has not."""


@users_calls
@dataclass(frozen=True, slots=True, repr=False)
class IcebergCatalogTable(UsersWords):
    """A table of an Iceberg catalog, by what users do with it. Each call loads the table anew from its catalog.

    `branch` is the branch that a call is about. Every call raises NotFoundError where there is no such branch, or the
    table is gone.
    """

    _catalog: IcebergCalls
    _table_id: str

    @property
    def table_id(self) -> str:
        """Its name in the catalog, "namespace.table"."""
        return self._table_id

    def plan(
        self,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
        branch: str = "main",
        *,
        plot: str | None = None,
    ) -> ModePlan:
        """What `compact` with these arguments would do. Writes nothing. Raises InputError for a bad mode or option.

        mode    as for `compact`, and so are `options`
        plot    an .svg file to draw files and bytes in, before and after

        Examples:
            >>> orders.plan("convert").nothing_to_do is None
            True
        """
        from deltacompact.iceberg_modes.modes import mode_named
        from deltacompact.reports.plots import draw_branch_plan

        found = self._catalog.planned_with_totals(mode_named(mode), self._table_id, options, branch)
        plan: ModePlan = found[0]
        draw_branch_plan(plot, self._table_id, *found[1:])
        return plan

    def advise(
        self,
        columns: str | Sequence[str] | None = None,
        branch: str = "main",
        *,
        reads: int | None = None,
        settings: Settings | None = None,
        plot: str | None = None,
        **reported: Unpack[ReportedReads],
    ) -> Advice:
        """How files lie by some columns, what clustering by them would bring, and what it would cost. Writes nothing.

        columns    "day*3,customer", or a list: up to four, each with how often it is asked for. Without any, those by
                   which the table is clustered, or those of its heat; else the depth of all columns
        reads      how many reads are to pay for the work (default: 100)
        scan_reports  without columns, those that these reads ask for: scan reports as a REST catalog gets them, or
                   {"at": Unix seconds, "report": …}, or reads of our own ($DELTACOMPACT_READS), or lines of JSON
        spark_logs  the same by event logs of Spark: files, or folders of them

        settings   with what means the work would be done
        plot       an .svg file to draw the boxes of the files in

        Raises InputError for a column that is unknown, nested or without an order.

        Examples:
            >>> advice = orders.advise("id")
            >>> (advice.files, advice.outlooks[0].now.mean)
            (1, 1.0)
        """
        from deltacompact.executors.choose import foresee, lane_for
        from deltacompact.iceberg.table.table_state import StateReader
        from deltacompact.iceberg.table_heat import heat_of_table
        from deltacompact.iceberg_modes.advising import Adviser, columns_of, columns_with_bounds
        from deltacompact.layout.advice import READS
        from deltacompact.reports.plots import draw_boxes

        table, collected = self._table_and_reads(reported)
        state = StateReader(table.store).read(table.metadata, branch)
        is_said = columns is not None or collected.sources
        kept = heat_of_table(table.store, table.metadata)
        heat = {} if is_said else kept.read().known(columns_with_bounds(state))
        by = columns_of(table.metadata, columns, collected, heat)
        rows, size = sum(entry.file.rows for entry in state.data), sum(entry.file.file_bytes for entry in state.data)
        settings = settings or Settings()
        there = foresee(settings, lane_for(settings, rows, size))
        asked = READS if reads is None else reads
        found = Adviser(table.store, state, there.capacity, asked, collected.notes).advice(by)
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
        from deltacompact.iceberg.table_heat import heat_of_table

        table, collected = self._table_and_reads(reported)
        return collected.added_to(heat_of_table(table.store, table.metadata))

    def simulate(
        self,
        columns: str | Sequence[str] | None = None,
        branch: str = "main",
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
        from deltacompact.iceberg.table.table_state import StateReader
        from deltacompact.iceberg_modes.advising import simulated_branch
        from deltacompact.layout.cluster_by import cluster_columns

        table, collected = self._table_and_reads(reported)
        collected.refuse_none()
        by = (cluster_columns("columns", columns) if columns else ()) or collected.columns_asked()
        state = StateReader(table.store).read(table.metadata, branch)
        return simulated_branch(state, collected.reads, by, depths), collected.notes

    def compact(
        self,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
        branch: str = "main",
        *,
        settings: Settings | None = None,
        plan: str | bytes | None = None,
        event_sinks: Sequence[EventSink] = (),
        attempt: str | None = None,
    ) -> ModeResult:
        """Compact a branch.

        mode           "rewrite" writes files anew with all deletes applied (the default), "convert" turns equality
                       deletes into position deletes, "upsert" keeps the newest row of each key
        options        of the mode, by their names on the page of options
        settings       with what means to work; those of delta streams are refused
        plan           the JSON of a plan to carry out, with its own options
        event_sinks    callables that get every event
        attempt        a name of this call, "run-1/3/2": a later attempt of the same work fences it

        Before that, what a session that died had written is committed. Raises InputError for a bad name or option,
        before any work, and ConflictError if other writers came first.

        Examples:
            >>> orders.compact("convert").rows_marked
            1
            >>> orders.compact(options={"delete-file-threshold": "1"}).dead_by_position
            1
        """
        from deltacompact.iceberg.commit.attempts import under_attempt
        from deltacompact.iceberg_modes.modes import mode_named

        chosen = mode_named(mode)
        emit = fan_out(expect.callables("event_sinks", event_sinks))
        with under_attempt(attempt):
            result: ModeResult = self._catalog.run(chosen, self._table_id, options, branch, settings, plan, emit)
        return result

    def maintain(
        self,
        *,
        expire_snapshots: bool = False,
        rewrite_manifests: bool = False,
        remove_orphans: bool = False,
        dry_run: bool = False,
        branch: str = "main",
        options: Mapping[str, Any] | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> MaintainResult:
        """Expire snapshots, rewrite the manifests of a branch, remove orphans: what is asked for, in this order.

        expire_snapshots     forget snapshots that are older than the table's properties say, and delete their files
        rewrite_manifests    merge the manifests of the branch
        remove_orphans       delete files below the table's folder that nothing refers to
        dry_run              write nothing, and say what would go
        options              by their names on the page of options
        say                  is told of the progress, in lines

        Raises InputError before any work, ConflictError, or OutcomeUnknownError if the catalog did not say what it did;
        then no file was deleted.

        Examples:
            >>> orders.maintain(expire_snapshots=True, dry_run=True).expire_snapshots.snapshots
            ()
        """
        from deltacompact.iceberg_modes.maintain.maintain import Maintain
        from deltacompact.iceberg_modes.session import EVERYWHERE
        from deltacompact.sinks.environment import sinks_asked_for
        from deltacompact.sinks.upkeep import announced

        table = self._catalog.loaded(self._table_id)
        work = Maintain(table, branch, expect.options("options", options), dry_run, say=say)
        done = partial(work.run, expire_snapshots, rewrite_manifests, remove_orphans)
        sinks = [] if dry_run else sinks_asked_for(f"iceberg://{self._catalog.name}")
        if not sinks:
            return done()

        def snapshot() -> str | None:
            head = self._catalog.metadata(self._table_id).branch(branch)
            return None if head is None else str(head.snapshot_id)

        return announced(fan_out(sinks), self._table_id, EVERYWHERE, "maintain", snapshot, done)

    @overload
    def check(self, branch: str = "main") -> BranchCheck: ...
    @overload
    def check(self, branch: str = "main", *, readable_by: str | Sequence[str]) -> dict[str, tuple[Obstacle, ...]]: ...
    @overload
    def check(
        self, branch: str = "main", *, health: Literal[True] | Thresholds, plot: str | None = None
    ) -> TableHealth: ...
    def check(
        self,
        branch: str = "main",
        *,
        readable_by: str | Sequence[str] = (),
        health: bool | Thresholds = False,
        plot: str | None = None,
    ) -> BranchCheck | dict[str, tuple[Obstacle, ...]] | TableHealth:
        """Verify that all data files can be read, and that their rows lie in the bounds by which readers skip files.

        readable_by    engines: nothing is verified, but what keeps each from reading the branch is told
        health         True, or Thresholds: no file is read, but what readers skip is held against them, by partition
        plot           an .svg file to draw the health in

        Raises InputError for an engine of which nothing is known, and for two questions at once.

        Examples:
            >>> orders.check().problems
            ()
            >>> [obstacle.words for obstacle in orders.check(readable_by="snowflake")["snowflake"]]
            ['1 equality-delete file: compact --mode convert replaces them']
            >>> orders.check(health=True)
            health of 'db.orders': 1 partition, 1 beyond a threshold
        """
        from deltacompact.maintenance.iceberg_check import check_branch
        from deltacompact.maintenance.readable_by import obstacles_of

        expect.at_most_one(readable_by=readable_by, health=health or plot)
        if readable_by:
            return obstacles_of(readable_by, lambda: self._catalog.state(self._table_id, branch))
        if health or plot:
            from deltacompact.maintenance.iceberg_health import health_of_branch
            from deltacompact.reports.health import TableHealth
            from deltacompact.reports.plots import health_asked

            def look(limits: Thresholds) -> TableHealth:
                found = health_of_branch(self._catalog.state(self._table_id, branch))
                return TableHealth(self._table_id, limits, tuple(found))

            return health_asked(health, plot, look)
        return check_branch(self._catalog.loaded(self._table_id).store, self._catalog.state(self._table_id, branch))

    # Reading

    def read(self, **selection: Unpack[IcebergSelection]) -> pa.Table:
        """The live rows of a branch, all deletes applied.

        columns    names, in the order in which they are wanted (default: all)
        filter     a pyarrow expression, or (column, operator, value) in a list
        branch     (default: "main")
        as_of      a snapshot's id, a branch, a tag or a time: the rows that lived then, under today's columns

        Raises NotFoundError for an unknown branch or snapshot, InputError for an unknown column.

        Examples:
            >>> orders.read(filter=[("id", ">", 2)]).to_pylist()
            [{'id': 3}]
        """
        return self.scan(**selection).read_all()

    def scan(self, **selection: Unpack[IcebergSelection]) -> pa.RecordBatchReader:
        """The live rows batch by batch, for tables that do not fit in memory. Arguments as for `read`.

        Examples:
            >>> sum(batch.num_rows for batch in orders.scan())
            2
        """
        import pyarrow as pa

        from deltacompact.iceberg.scan import BranchScan, scanned

        schema, tables = scanned(self._catalog.loaded(self._table_id), BranchScan(**selection))
        return pa.RecordBatchReader.from_batches(schema, (batch for table in tables for batch in table.to_batches()))

    def export(self, target: str, **selection: Unpack[IcebergSelection]) -> int:
        """Write the live rows to one file, and return how many there are.

        `target` is a path or URI that ends in .parquet, .feather, .orc or .csv. Other arguments as for `read`. Raises
        InputError for another ending.

        Examples:
            >>> orders.export("orders.csv")
            2
        """
        from deltacompact.iceberg.scan import BranchScan, scanned
        from deltacompact.tabular.export import exported

        table = self._catalog.loaded(self._table_id)
        return exported(table.store, target, *scanned(table, BranchScan(**selection)))

    def dataset(self, **selection: Unpack[IcebergSelection]) -> ds.Dataset:
        """The live rows as a pyarrow Dataset, read at each scan, with the scan's columns and filters.

        Arguments as for `read`.

        Examples:
            >>> orders.dataset().count_rows()
            2
        """
        from deltacompact.reading.engines import dataset_of, scanning

        return dataset_of(scanning(self.scan, selection))

    def to_polars(self, **selection: Unpack[IcebergSelection]) -> polars.LazyFrame:
        """The live rows as a Polars LazyFrame, read when it is collected. Raises InputError without polars.

        Arguments as for `read`.

        Examples:
            >>> orders.to_polars(columns=["id"]).collect()["id"].sum()
            5
        """
        from deltacompact.reading.engines import lazy_frame_of, scanning

        return lazy_frame_of(scanning(self.scan, selection))

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None, **selection: Unpack[IcebergSelection]
    ) -> duckdb.DuckDBPyRelation:
        """The live rows as a DuckDB relation, read when it is queried. Raises InputError without duckdb.

        `connection` is the one that the relation is made in (default: DuckDB's own). Other arguments as for `read`.

        Examples:
            >>> orders.to_duckdb().aggregate("sum(id)").fetchall()
            [(5,)]
        """
        from deltacompact.reading.engines import relation_of, scanning

        return relation_of(scanning(self.scan, selection), connection)

    def fingerprint(self, branch: str = "main", *, as_of: str | int | datetime | None = None) -> Fingerprint:
        """How many rows live, and the sum of their hashes: a snapshot that only compacted has that of its parent.

        `as_of` as for `read`.

        Examples:
            >>> orders.fingerprint().rows
            2
        """
        from deltacompact.iceberg.fingerprints import live_fingerprint
        from deltacompact.iceberg.scan import BranchScan

        return live_fingerprint(self._catalog.loaded(self._table_id), BranchScan(branch=branch, as_of=as_of))

    # Snapshots

    def history(self, branch: str = "main") -> list[SnapshotMade]:
        """What made each snapshot of a branch that has not been expired, and when, the oldest first.

        Examples:
            >>> [made.operation for made in orders.history()]
            ['append', 'delete']
        """
        from deltacompact.iceberg.history import history

        return history(self._catalog.metadata(self._table_id), branch)

    def changes(
        self,
        from_: str | int | datetime | None = None,
        to: str | int | datetime | None = None,
        branch: str = "main",
        *,
        bookmark: str | None = None,
        **asked: Unpack[ChangesOptions],
    ) -> pa.RecordBatchReader:
        """What changed after one snapshot, up to another: see `deltacompact.changes`.

        from_, to   snapshots' ids, branches, tags or times (default: from the beginning, up to now)
        bookmark    what came since this consumer's last `commit_bookmark`; the same batch until then. `from_` says
                    where a new bookmark begins

        Raises NotFoundError for a snapshot that is not there any more, InputError for an unknown column.

        Examples:
            >>> sorted(orders.changes(per_commit=True, columns=["id"]).read_all()["_change_type"].to_pylist())
            ['delete', 'insert', 'insert', 'insert']
        """
        from deltacompact.change_feed.branch_bookmarks import batch_for
        from deltacompact.change_feed.changes import branch_batch, branch_changes
        from deltacompact.change_feed.request import ChangesRequest

        table, chosen = self._catalog.loaded(self._table_id), ChangesRequest(**asked)
        if bookmark is None:
            return branch_changes(table, branch, from_, to, chosen)
        table, known = batch_for(table, bookmark, from_, to, branch)
        return branch_batch(table, branch, known, chosen)

    def bookmarks(self) -> list[Bookmark[int]]:
        """How far each consumer of changes is: tags of the table.

        Examples:
            >>> _ = orders.changes("2020-01-01", bookmark="mirror")
            >>> [bookmark.name for bookmark in orders.bookmarks()]
            ['mirror']
        """
        from deltacompact.change_feed.branch_bookmarks import bookmarks

        return bookmarks(self._catalog.metadata(self._table_id))

    def commit_bookmark(self, name: str, batch: Bookmark[int] | None = None) -> bool:
        """Say that the batch of a consumer is done.

        name     of the bookmark, as `changes` was given it
        batch    what `bookmarks` told: nothing is done unless the batch is still that one

        Returns whether a batch was open: none is after an empty one, or once it is done. Raises NotFoundError for an
        unknown bookmark, ConflictError where another consumer came first.

        Examples:
            >>> rows = orders.changes("2020-01-01", bookmark="mirror").read_all()
            >>> orders.commit_bookmark("mirror")
            True
            >>> orders.changes(bookmark="mirror").read_all().num_rows
            0
        """
        from deltacompact.change_feed.branch_bookmarks import committed

        return committed(self._catalog.loaded(self._table_id), name, batch)

    def drop_bookmark(self, name: str) -> None:
        """Remove the bookmark `name`, so that expiry no longer keeps snapshots for it.

        Raises NotFoundError for an unknown one.

        Examples:
            >>> _ = orders.changes("2020-01-01", bookmark="mirror")
            >>> orders.drop_bookmark("mirror")
            >>> orders.bookmarks()
            []
        """
        from deltacompact.change_feed.branch_bookmarks import dropped

        dropped(self._catalog.loaded(self._table_id), name)

    def diff(
        self,
        from_: str | int | datetime | None = None,
        to: str | int | datetime | None = None,
        branch: str = "main",
        *,
        key: Sequence[str] | None = None,
    ) -> Difference:
        """What changed after one snapshot, up to another, in numbers: by type of change, and files.

        Arguments and errors as for `changes`; `key` names the columns that identify a row (default: the identifier
        fields).

        Examples:
            >>> orders.diff(orders.history()[0].snapshot_id).deletes
            1
        """
        from deltacompact.change_feed.changes import branch_changes
        from deltacompact.change_feed.difference import difference
        from deltacompact.change_feed.request import ChangesRequest

        table = self._catalog.loaded(self._table_id)
        return branch_changes(table, branch, from_, to, ChangesRequest(key=key), difference)

    def rollback(self, as_of: str | int | datetime, branch: str = "main") -> SnapshotMade:
        """Make an older snapshot the head of a branch. Later commits are dropped.

        `as_of` is the snapshot's id, or a time; or the `former_head` of a rollback, which undoes it. Raises
        NotFoundError, InputError for a snapshot that the branch does not descend from, ConflictError where another
        commit came first.

        Examples:
            >>> orders.rollback(orders.history()[0].snapshot_id).rows_added
            3
        """
        from deltacompact.iceberg.rollback import rollback

        return rollback(self._catalog.compactable(self._table_id), as_of, branch)

    def _compactable(self) -> IcebergTable:
        """The table for who appends to it. Raises InputError where its files belong to somebody else."""
        return self._catalog.compactable(self._table_id)

    def _table_and_reads(self, reported: Mapping[str, Any]) -> tuple[IcebergTable, CollectedReads]:
        from deltacompact.layout.collected_reads import collected_reads

        table = self._catalog.loaded(self._table_id)
        return table, collected_reads(table.metadata.table_id, table.metadata.ordered_columns, time.time(), **reported)

    def __repr__(self) -> str:
        return f"{self._catalog!r}.table({self._table_id!r})"

    def __str__(self) -> str:
        """What `show` prints."""
        from deltacompact.reports.iceberg_table import branch_contents, expected, lines

        table, state = self._catalog.seen(self._table_id)
        return "\n".join([*lines(branch_contents(state)), expected(lambda: self._catalog.foreseen(table, state))[1]])

    def _repr_html_(self) -> str:
        """The contents of the main branch as a table: for notebooks."""
        from deltacompact.reports.iceberg_table import branch_contents, contents_as_html

        return contents_as_html(branch_contents(self._catalog.state(self._table_id)))

    def __getattr__(self, name: str) -> Any:
        from deltacompact.base.notebooks import missing

        raise missing(self, name, _INSTEAD)
