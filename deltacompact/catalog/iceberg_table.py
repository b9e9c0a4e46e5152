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

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

from deltacompact.base import expect
from deltacompact.base.events import EventSink, fan_out
from deltacompact.base.settings import Settings

if TYPE_CHECKING:  # imported when they are used: `show` must not wait for them
    from pathlib import Path

    import duckdb
    import polars
    import pyarrow as pa
    import pyarrow.dataset as ds

    from deltacompact.base.fingerprint import Fingerprint
    from deltacompact.catalog.iceberg_calls import IcebergCalls, IcebergSelection
    from deltacompact.change_feed.bookmark import Bookmark
    from deltacompact.change_feed.difference import Difference
    from deltacompact.change_feed.request import Asked
    from deltacompact.iceberg.history import SnapshotMade
    from deltacompact.iceberg_modes.maintain.result import MaintainResult
    from deltacompact.iceberg_modes.plan import ModePlan
    from deltacompact.iceberg_modes.result import ModeResult
    from deltacompact.iceberg_modes.simulating import PolicyOutcome
    from deltacompact.layout.advice import Advice
    from deltacompact.layout.heat import Heat
    from deltacompact.maintenance.iceberg_check import BranchCheck


@dataclass(frozen=True, slots=True, repr=False)
class IcebergCatalogTable:
    """A table of an Iceberg catalog, by what users do with it. Each call loads the table anew from its catalog."""

    _catalog: IcebergCalls
    _table_id: str

    @property
    def table_id(self) -> str:
        """Its name in the catalog, "namespace.table"."""
        return self._table_id

    def plan(self, mode: str | None = None, options: Mapping[str, Any] | None = None, branch: str = "main") -> ModePlan:
        """What `compact` with these arguments would do. Writes nothing. Raises InputError for a bad mode or option."""
        from deltacompact.iceberg_modes.modes import mode_named

        plan: ModePlan = self._catalog.planned(mode_named(mode), self._table_id, options, branch)
        return plan

    def advise(
        self,
        columns: str | Sequence[str] | None = None,
        branch: str = "main",
        *,
        reads: int | None = None,
        settings: Settings | None = None,
        scan_reports: Iterable[Any] = (),
        spark_logs: Iterable[str | Path] = (),
    ) -> Advice:
        """How files lie by some columns, what clustering by them would bring, and what it would cost. Writes nothing.

        columns    "day*3,customer", or a list: up to four, each with how often it is asked for. Without any, those by
                   which the table is clustered, or those of its heat; else the depth of all columns
        reads      how many reads are to pay for the work (default: 100)
        scan_reports  without columns, those that these reads ask for: scan reports as a REST catalog gets them, or
                   {"at": Unix seconds, "report": …}, or reads of our own ($DELTACOMPACT_READS), or lines of JSON
        spark_logs  the same by event logs of Spark: files, or folders of them

        Raises InputError for a column that is unknown, nested, without an order, or without bounds in any file.
        """
        return self._catalog.advise(self._table_id, columns, branch, reads, settings, scan_reports, spark_logs)

    def heat(
        self, *, scan_reports: Iterable[Any] = (), spark_logs: Iterable[str | Path] = ()
    ) -> tuple[Heat, tuple[str, ...]]:
        """How many reads ask for each column, one of a week ago counting for half; and what could not be read.

        Reads that are told (arguments as for `advise`) are added to what is kept beside the table; a log that is told
        again adds what came since.
        """
        return self._catalog.heat(self._table_id, scan_reports, spark_logs)

    def simulate(
        self,
        columns: str | Sequence[str] | None = None,
        branch: str = "main",
        *,
        depths: Sequence[float] = (2.0, 8.0),
        scan_reports: Iterable[Any] = (),
        spark_logs: Iterable[str | Path] = (),
    ) -> tuple[tuple[PolicyOutcome, ...], tuple[str, ...]]:
        """Replay reads on the files as they came: what policies of clustering would have cost and saved; and notes.

        columns    by which files are clustered; None: those that the reads ask for
        depths     for each, a policy that clusters partitions in which a file meets more files than that

        Other arguments as for `advise`. Writes nothing. Raises InputError where there is no read, or no file.
        """
        return self._catalog.simulate(self._table_id, columns, branch, depths, scan_reports, spark_logs)

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
        settings       with what means to work
        plan           the JSON of a plan to carry out, with its own options
        event_sinks    callables that get every event
        attempt        a name of this call, "run-1/3/2": a later attempt of the same work fences it

        Before that, what a session that died had written is committed. Raises InputError for a bad name or option,
        before any work, and ConflictError if other writers came first.
        """
        from deltacompact.iceberg.commit.attempts import attempt_named
        from deltacompact.iceberg_modes.modes import mode_named

        chosen = mode_named(mode)
        settings = Settings() if settings is None else expect.instance("settings", settings, Settings)
        emit = fan_out([expect.callable_("event_sinks", sink) for sink in expect.several("event_sinks", event_sinks)])
        with attempt_named(attempt):
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

        A dry run writes nothing and says what would go. `say` is told of the progress. See `IcebergCatalog.maintain`.
        """
        return self._catalog.maintain(
            self._table_id,
            expire_snapshots=expire_snapshots,
            rewrite_manifests=rewrite_manifests,
            remove_orphans=remove_orphans,
            dry_run=dry_run,
            branch=branch,
            options=options,
            say=say,
        )

    def check(self, branch: str = "main") -> BranchCheck:
        """Verify that all data files can be read, and that their rows lie in the bounds by which readers skip files."""
        return self._catalog.check(self._table_id, branch)

    # Reading

    def read(self, **selection: Unpack[IcebergSelection]) -> pa.Table:
        """The live rows of a branch, all deletes applied.

        columns    names, in the order in which they are wanted (default: all)
        filter     a pyarrow expression, or (column, operator, value) in a list
        branch     (default: "main")
        as_of      a snapshot's id, a branch, a tag or a time: the rows that lived then, under today's columns

        Raises NotFoundError for an unknown branch or snapshot, InputError for an unknown column.
        """
        return self.scan(**selection).read_all()

    def scan(self, **selection: Unpack[IcebergSelection]) -> pa.RecordBatchReader:
        """The live rows batch by batch, for tables that do not fit in memory. Arguments as for `read`."""
        return self._catalog.scan(self._table_id, **selection)

    def export(self, target: str, **selection: Unpack[IcebergSelection]) -> int:
        """Write the live rows to one file, .parquet, .feather, .orc or .csv, and return how many there are."""
        return self._catalog.export(self._table_id, target, **selection)

    def dataset(self, **selection: Unpack[IcebergSelection]) -> ds.Dataset:
        """The live rows as a pyarrow Dataset, read at each scan: who scans it hands down columns and filters."""
        from deltacompact.reading.engines import dataset_of, scanning

        return dataset_of(scanning(self.scan, selection))

    def to_polars(self, **selection: Unpack[IcebergSelection]) -> polars.LazyFrame:
        """The live rows as a Polars LazyFrame, read when it is collected. Raises InputError without polars."""
        from deltacompact.reading.engines import lazy_frame_of, scanning

        return lazy_frame_of(scanning(self.scan, selection))

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None, **selection: Unpack[IcebergSelection]
    ) -> duckdb.DuckDBPyRelation:
        """The live rows as a DuckDB relation, read when it is queried. Raises InputError without duckdb."""
        from deltacompact.reading.engines import relation_of, scanning

        return relation_of(scanning(self.scan, selection), connection)

    def fingerprint(self, branch: str = "main", *, as_of: str | int | datetime | None = None) -> Fingerprint:
        """How many rows live, and the sum of their hashes: a snapshot that only compacted has that of its parent."""
        return self._catalog.fingerprint(self._table_id, branch, as_of)

    # Snapshots

    def history(self, branch: str = "main") -> list[SnapshotMade]:
        """What made each snapshot of a branch that has not been expired, and when, the oldest first."""
        from deltacompact.iceberg.history import history

        return history(self._catalog.metadata(self._table_id), branch)

    def changes(
        self,
        from_: str | int | datetime | None = None,
        to: str | int | datetime | None = None,
        branch: str = "main",
        *,
        bookmark: str | None = None,
        **asked: Unpack[Asked],
    ) -> pa.RecordBatchReader:
        """What changed after one snapshot, up to another: see `deltacompact.changes`.

        bookmark    what came since this consumer's last `commit_bookmark`; the same batch until then. `from_` says
                    where a new bookmark begins
        """
        from deltacompact.change_feed.request import Asked, ChangesAsked

        expect.arguments("changes", asked, Asked.__annotations__)
        chosen = ChangesAsked(**asked)
        if bookmark is None:
            return self._catalog.change_feed(self._table_id, from_, to, branch, chosen)
        return self._catalog.batch(self._table_id, bookmark, from_, to, branch, chosen)

    def bookmarks(self) -> list[Bookmark[int]]:
        """How far each consumer of changes is: tags of the table."""
        from deltacompact.change_feed.branch_bookmarks import bookmarks

        return bookmarks(self._catalog.metadata(self._table_id))

    def commit_bookmark(self, name: str, batch: Bookmark[int] | None = None) -> None:
        """Say that the batch of a consumer is done, if it is still that of `batch`, which `bookmarks` told.

        Raises InputError where none was given, ConflictError where another consumer came first.
        """
        self._catalog.commit_bookmark(self._table_id, name, batch)

    def drop_bookmark(self, name: str) -> None:
        """Forget a bookmark: what it needs is not kept any more. Raises NotFoundError for an unknown one."""
        self._catalog.drop_bookmark(self._table_id, name)

    def diff(
        self,
        from_: str | int | datetime | None = None,
        to: str | int | datetime | None = None,
        branch: str = "main",
        *,
        key: Sequence[str] | None = None,
    ) -> Difference:
        """What changed after one snapshot, up to another, in numbers: by type of change, and files."""
        from deltacompact.change_feed.request import ChangesAsked

        return self._catalog.difference(self._table_id, from_, to, branch, ChangesAsked(key=key))

    def rollback(self, as_of: str | int | datetime, branch: str = "main") -> SnapshotMade:
        """Make an older snapshot the head of a branch: a snapshot's id, or a time. Later commits are dropped.

        Raises NotFoundError, InputError for a snapshot that the branch does not descend from, ConflictError where
        another commit came first.
        """
        return self._catalog.rollback(self._table_id, as_of, branch)

    def __repr__(self) -> str:
        return f"{self._catalog!r}.table({self._table_id!r})"

    def __str__(self) -> str:
        """What `show` prints."""
        from deltacompact.reports.iceberg_table import branch_contents, lines

        return "\n".join(lines(branch_contents(self._catalog.state(self._table_id))))

    def _repr_html_(self) -> str:
        """The contents of the main branch as a table: for notebooks."""
        from deltacompact.reports.iceberg_table import branch_contents, contents_as_html

        return contents_as_html(branch_contents(self._catalog.state(self._table_id)))

    def __dir__(self) -> list[str]:
        """A user's words: Tab shows no other."""
        return sorted(name for name in object.__dir__(self) if name[:1] != "_" or name[:2] == "__")
