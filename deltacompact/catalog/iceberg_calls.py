"""What an Iceberg catalog does with tables. Each call names the table, "namespace.table".

catalog.rewrite("ns.t", {"delete-file-threshold": "1"})     a RewriteResult
catalog.convert("ns.t")                                     a ConvertResult
catalog.upsert("ns.t", {"key-columns": "id"})               an UpsertResult
catalog.maintain("ns.t", expire_snapshots=True)             a MaintainResult
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.events import EventSink, fan_out, no_sink
from deltacompact.base.settings import Settings
from deltacompact.iceberg.commit.patience import Patience
from deltacompact.iceberg.table import pyiceberg_door
from deltacompact.iceberg.table.metadata import MAIN, PUBLICATION, Snapshot, TableMetadata
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.iceberg_modes.convert.mode import CONVERT
from deltacompact.iceberg_modes.modes import mode_named
from deltacompact.iceberg_modes.rewrite.mode import REWRITE
from deltacompact.iceberg_modes.upsert.mode import UPSERT
from deltacompact.planning.within_memory import within_memory
from deltacompact.sinks.environment import sinks_asked_for

if TYPE_CHECKING:  # a mode is imported when it is run: `show` must not wait for it
    from pathlib import Path

    import pyarrow as pa

    from deltacompact.base.fingerprint import Fingerprint
    from deltacompact.change_feed.bookmark import Bookmark
    from deltacompact.change_feed.difference import Difference
    from deltacompact.change_feed.request import ChangesAsked
    from deltacompact.iceberg.comparison import Comparison
    from deltacompact.iceberg.history import SnapshotMade
    from deltacompact.iceberg.table.content_files import Entry
    from deltacompact.iceberg_modes.convert.plan import ConvertPlan
    from deltacompact.iceberg_modes.convert.result import ConvertResult
    from deltacompact.iceberg_modes.driver import ModeRun
    from deltacompact.iceberg_modes.expected import Expected
    from deltacompact.iceberg_modes.maintain.result import MaintainResult
    from deltacompact.iceberg_modes.mode import Mode, Plan, Result
    from deltacompact.iceberg_modes.rewrite.plan import RewritePlan
    from deltacompact.iceberg_modes.rewrite.result import RewriteResult
    from deltacompact.iceberg_modes.simulating import PolicyOutcome
    from deltacompact.iceberg_modes.totals import BranchTotals
    from deltacompact.iceberg_modes.upsert.plan import UpsertPlan
    from deltacompact.iceberg_modes.upsert.result import UpsertResult
    from deltacompact.iceberg_modes.watching import WatchedBranch
    from deltacompact.layout.advice import Advice
    from deltacompact.layout.heat import Heat
    from deltacompact.layout.told_reads import ToldReads
    from deltacompact.maintenance.iceberg_check import BranchCheck


class IcebergSelection(TypedDict, total=False):
    """Which part of a table to read: see `IcebergCatalogTable.read`."""

    columns: Sequence[str] | None
    filter: Any
    branch: str
    as_of: str | int | datetime | None


@dataclass(frozen=True, slots=True)
class IcebergCalls:
    """The calls of an Iceberg catalog that name a table."""

    _catalog: Any

    @property
    def name(self) -> str:
        return str(self._catalog.name)

    @property
    def properties(self) -> Mapping[str, str]:
        """As PyIceberg was configured: type, uri, warehouse, …"""
        return {name: str(value) for name, value in self._catalog.properties.items()}

    def tables(self) -> list[str]:
        """All tables, by `namespace.table`. Raises InputError where the catalog does not list them."""
        return sorted(".".join(identifier) for identifier in pyiceberg_door.listed(self._catalog))

    @property
    def at_once(self) -> int:
        """How many threads may ask the catalog."""
        return pyiceberg_door.asked_at_once(self._catalog)

    def metadata(self, table_id: str) -> TableMetadata:
        """What the catalog says of a table, in one answer."""
        return self._table(table_id).metadata

    def planned(
        self, mode: Mode[Plan, Result], table_id: str, options: Mapping[str, Any] | None = None, branch: str = MAIN
    ) -> Plan:
        """What a mode would do with a branch. Writes nothing."""
        return self._call(mode, table_id, options, branch).plan()

    def planned_with_totals(
        self, mode: Mode[Plan, Result], table_id: str, options: Mapping[str, Any] | None = None, branch: str = MAIN
    ) -> tuple[Plan, BranchTotals, BranchTotals]:
        """The plan, and what the branch is made of before it is carried out, and about afterwards."""
        return self._call(mode, table_id, options, branch).plan_with_totals()

    def run(
        self,
        mode: Mode[Plan, Result],
        table_id: str,
        options: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        settings: Settings | None = None,
        plan: str | bytes | None = None,
        emit: EventSink = no_sink,
    ) -> Result:
        """Do to a branch what the mode does. `plan`: the JSON of a plan to carry out, with its own options.

        Before that, what a session that died had written is committed. `emit` gets WaitingForSession, ModeStarted,
        GroupWritten, GroupsCommitted and ModeFinished events.
        Raises InputError for a bad name or option, before any work, and ConflictError if other writers came first.
        """
        asked_for = sinks_asked_for(f"iceberg://{self.name}")
        emit = fan_out([emit, *asked_for]) if asked_for else emit
        return self._call(mode, table_id, options, branch, settings, emit).run(plan)

    def expected(self, plan: RewritePlan | ConvertPlan | UpsertPlan, settings: Settings | None = None) -> Expected:
        """How long carrying out a plan is expected to take. Starts no cluster."""
        from deltacompact.executors.choose import foresee, lane_for

        settings = within_memory(settings or Settings())
        there = foresee(settings, lane_for(settings, plan.rows, plan.bytes))
        return replace(mode_named(plan.mode).steps().expected(plan, there.capacity), start_s=there.start_s)

    def advise(
        self,
        table_id: str,
        columns: str | Sequence[str] | None = None,
        branch: str = MAIN,
        reads: int | None = None,
        settings: Settings | None = None,
        scan_reports: Iterable[Any] = (),
        spark_logs: Iterable[str | Path] = (),
    ) -> Advice:
        """What clustering a branch would bring and cost: see `IcebergCatalogTable.advise`."""
        from deltacompact.executors.choose import foresee, lane_for
        from deltacompact.iceberg.table_heat import heat_of_table
        from deltacompact.iceberg_modes.advising import Adviser, columns_of, columns_with_bounds
        from deltacompact.layout.advice import READS

        table, settings = self._table(table_id), settings or Settings()
        told = _told(table.metadata, scan_reports, spark_logs)
        state = StateReader(table.store).read(table.metadata, branch)
        is_said = columns is not None or told.sources
        heat = {} if is_said else heat_of_table(table.store, table.metadata).known(columns_with_bounds(state))
        by = columns_of(table.metadata, columns, told, heat)
        rows, size = sum(one.file.rows for one in state.data), sum(one.file.file_bytes for one in state.data)
        there = foresee(settings, lane_for(settings, rows, size))
        return Adviser(table.store, state, there.capacity, READS if reads is None else reads, told.notes).advice(by)

    def heat(
        self, table_id: str, scan_reports: Iterable[Any] = (), spark_logs: Iterable[str | Path] = ()
    ) -> tuple[Heat, tuple[str, ...]]:
        """What is asked for, with these reads, which are kept; and notes: see `IcebergCatalogTable.heat`."""
        from deltacompact.iceberg.table_heat import heat_of_table, keep_reads

        table, now_s = self._table(table_id), time.time()
        told = _told(table.metadata, scan_reports, spark_logs)
        if not told.sources:
            return heat_of_table(table.store, table.metadata).now(now_s), ()
        return keep_reads(table.store, table.metadata, told.told, now_s), told.notes

    def simulate(
        self,
        table_id: str,
        columns: str | Sequence[str] | None,
        branch: str,
        depths: Sequence[float],
        scan_reports: Iterable[Any] = (),
        spark_logs: Iterable[str | Path] = (),
    ) -> tuple[tuple[PolicyOutcome, ...], tuple[str, ...]]:
        """What policies would have cost and saved; and notes: see `IcebergCatalogTable.simulate`."""
        from deltacompact.iceberg_modes.simulating import simulated
        from deltacompact.layout.cluster_by import cluster_columns

        table = self._table(table_id)
        told = _told(table.metadata, scan_reports, spark_logs)
        if not told.sources:
            raise InputError("simulate replays reads: give --spark-log or --scan-reports")
        by = (cluster_columns("columns", columns) if columns else ()) or told.columns_asked()
        state = StateReader(table.store).read(table.metadata, branch)
        return simulated(state, told.reads, by, depths), told.notes

    def plan(self, table_id: str, options: Mapping[str, Any] | None = None, branch: str = MAIN) -> RewritePlan:
        """What a rewrite of a branch would do. Writes nothing."""
        return self.planned(REWRITE, table_id, options, branch)

    def rewrite(
        self,
        table_id: str,
        options: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        settings: Settings | None = None,
        plan: str | bytes | None = None,
        emit: EventSink = no_sink,
    ) -> RewriteResult:
        """Rewrite a branch with all deletes applied. See `run`."""
        return self.run(REWRITE, table_id, options, branch, settings, plan, emit)

    def plan_conversion(
        self, table_id: str, options: Mapping[str, Any] | None = None, branch: str = MAIN
    ) -> ConvertPlan:
        """What a conversion of a branch would do. Writes nothing."""
        return self.planned(CONVERT, table_id, options, branch)

    def convert(
        self,
        table_id: str,
        options: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        settings: Settings | None = None,
        plan: str | bytes | None = None,
        emit: EventSink = no_sink,
    ) -> ConvertResult:
        """Turn the equality deletes of a branch into deletes by position. See `run`."""
        return self.run(CONVERT, table_id, options, branch, settings, plan, emit)

    def plan_upsert(self, table_id: str, options: Mapping[str, Any] | None = None, branch: str = MAIN) -> UpsertPlan:
        """What an upsert of a branch would compare. Writes nothing."""
        return self.planned(UPSERT, table_id, options, branch)

    def upsert(
        self,
        table_id: str,
        options: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        settings: Settings | None = None,
        plan: str | bytes | None = None,
        emit: EventSink = no_sink,
    ) -> UpsertResult:
        """Mark all rows of a branch as dead but the newest of each key. See `run`."""
        return self.run(UPSERT, table_id, options, branch, settings, plan, emit)

    def maintain(
        self,
        table_id: str,
        *,
        expire_snapshots: bool = False,
        rewrite_manifests: bool = False,
        remove_orphans: bool = False,
        dry_run: bool = False,
        branch: str = MAIN,
        options: Mapping[str, Any] | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> MaintainResult:
        """Expire snapshots, rewrite the manifests of a branch, remove orphans: what is asked for, in this order.

        A dry run writes nothing and says what would go. `say` is told of the progress. Raises InputError before any
        work, ConflictError, or OutcomeUnknownError if the catalog did not say what it did; then no file was deleted.
        """
        from deltacompact.iceberg_modes.maintain.maintain import Maintain

        work = Maintain(self._table(table_id), branch, _named(options), dry_run, say=say)
        return work.run(expire_snapshots, rewrite_manifests, remove_orphans)

    def state(self, table_id: str, branch: str = MAIN) -> TableState:
        """A branch as it is now: its live data files and delete files."""
        table = self._table(table_id)
        return StateReader(table.store).read(table.metadata, branch)

    def scan(self, table_id: str, **selection: Unpack[IcebergSelection]) -> pa.RecordBatchReader:
        """The live rows batch by batch: see `IcebergCatalogTable.read`."""
        import pyarrow as pa

        from deltacompact.iceberg.scan import BranchScan, scanned

        expect.arguments("scan", selection, IcebergSelection.__annotations__)
        schema, tables = scanned(self._table(table_id), BranchScan(**selection))
        return pa.RecordBatchReader.from_batches(schema, (batch for table in tables for batch in table.to_batches()))

    def export(self, table_id: str, target: str, **selection: Unpack[IcebergSelection]) -> int:
        """Write the live rows to one file (local path or URI). Returns how many there are."""
        from deltacompact.iceberg.scan import BranchScan, scanned
        from deltacompact.tabular.export import exported

        expect.arguments("export", selection, IcebergSelection.__annotations__)
        table = self._table(table_id)
        return exported(table.store, target, *scanned(table, BranchScan(**selection)))

    def fingerprint(self, table_id: str, branch: str = MAIN, as_of: str | int | datetime | None = None) -> Fingerprint:
        """The fingerprint of the live rows: see `IcebergCatalogTable.fingerprint`."""
        from deltacompact.iceberg.fingerprints import live_fingerprint
        from deltacompact.iceberg.scan import BranchScan

        return live_fingerprint(self._table(table_id), BranchScan(branch, as_of))

    def position(self, table_id: str, as_of: str | int | datetime | None = None, branch: str = MAIN) -> int | None:
        """The snapshot that is the head of a branch, or was; None: it has none yet."""
        from deltacompact.change_feed.iceberg import begin_of

        metadata = self.metadata(table_id)
        found = metadata.branch(branch) if as_of is None else begin_of(metadata, as_of, branch)
        return found.snapshot_id if found else None

    def change_feed(
        self,
        table_id: str,
        from_: str | int | datetime | None,
        to: str | int | datetime | None,
        branch: str,
        asked: ChangesAsked,
    ) -> pa.RecordBatchReader:
        """What changed in a branch: see `deltacompact.changes`."""
        from deltacompact.change_feed.changes import branch_changes

        return branch_changes(self._table(table_id), branch, from_, to, asked)

    def batch(
        self,
        table_id: str,
        bookmark: str,
        from_: str | int | datetime | None,
        to: str | int | datetime | None,
        branch: str,
        asked: ChangesAsked,
    ) -> pa.RecordBatchReader:
        """The changes that a consumer is to do: see `IcebergCatalogTable.changes`."""
        from deltacompact.change_feed.branch_bookmarks import given
        from deltacompact.change_feed.changes import branch_batch

        table, known = given(self._table(table_id), bookmark, from_, to, branch)
        return branch_batch(table, branch, known, asked)

    def commit_bookmark(self, table_id: str, name: str, batch: Bookmark[int] | None) -> None:
        """Say that a batch is done."""
        from deltacompact.change_feed.branch_bookmarks import committed

        committed(self._table(table_id), name, batch)

    def drop_bookmark(self, table_id: str, name: str) -> None:
        """Forget a bookmark."""
        from deltacompact.change_feed.branch_bookmarks import dropped

        dropped(self._table(table_id), name)

    def difference(
        self,
        table_id: str,
        from_: str | int | datetime | None,
        to: str | int | datetime | None,
        branch: str,
        asked: ChangesAsked,
    ) -> Difference:
        """The same in numbers."""
        from deltacompact.change_feed.changes import branch_changes
        from deltacompact.change_feed.difference import difference

        return branch_changes(self._table(table_id), branch, from_, to, asked, difference)

    def rollback(self, table_id: str, as_of: str | int | datetime, branch: str = MAIN) -> SnapshotMade:
        """Make an older snapshot the head of a branch: see `IcebergCatalogTable.rollback`."""
        from deltacompact.iceberg.rollback import rollback

        return rollback(self._compactable(table_id), as_of, branch)

    def changes(self, table_id: str, snapshot_ids: Iterable[int]) -> list[Entry]:
        """The files that snapshots added and deleted, in their order, as far as they have not been expired."""
        table = self._table(table_id)
        reader, known = StateReader(table.store), table.metadata.snapshots
        return [entry for name in snapshot_ids if name in known for entry in reader.changes(known[name])]

    def comparison(
        self, table_id: str, branch: str = MAIN, before: int | None = None, after: int | None = None
    ) -> Comparison:
        """Which two snapshots of a branch must have the same rows: see comparison.py."""
        from deltacompact.iceberg.comparison import comparison

        return comparison(self._table(table_id).metadata, branch, before, after)

    def counted(self, table_id: str, snapshot_id: int) -> int | None:
        """The rows of a snapshot as PyIceberg counts them. None: it cannot read equality deletes."""
        return self._table(table_id).counted(snapshot_id)

    def check(self, table_id: str, branch: str = MAIN) -> BranchCheck:
        """Hold the rows of a branch against the bounds in its manifests: see `IcebergCatalogTable.check`."""
        from deltacompact.maintenance.iceberg_check import check_branch

        return check_branch(self._table(table_id).store, self.state(table_id, branch))

    def watched(self, table_id: str, branch: str = MAIN, layout: bool = False) -> WatchedBranch:
        """A branch that is looked at again and again: only what is new is read. `layout`: and how its files lie."""
        from deltacompact.iceberg_modes.watching import WatchedBranch

        return WatchedBranch(self._catalog, table_id, branch, layout)

    def committed_by(self, table_id: str, work: str) -> tuple[Snapshot, ...]:
        """The snapshots that attempts at some work ("run-1/1/1", "run-1/2/1", …) have committed, the oldest first."""
        from deltacompact.iceberg.commit.attempts import committed_by

        return committed_by(self._table(table_id).metadata.snapshots.values(), work)

    def _call(
        self,
        mode: Mode[Plan, Result],
        table_id: str,
        options: Mapping[str, Any] | None,
        branch: str,
        settings: Settings | None = None,
        emit: EventSink = no_sink,
    ) -> ModeRun[Plan, Result]:
        from deltacompact.iceberg.marks.finding import Sizes
        from deltacompact.iceberg_modes.driver import ModeRun

        table = self._compactable(table_id)
        chosen = mode.read_options(_named(options), table.metadata.properties)
        settings = within_memory(settings or Settings())
        return ModeRun(table, branch, chosen, settings, Sizes.of(settings), emit=emit, mode=mode)

    def _compactable(self, table_id: str) -> pyiceberg_door.IcebergTable:
        """The table, unless its files belong to somebody else or nothing could be committed. Raises InputError."""
        table = self._table(table_id)
        Patience.of(table.metadata.properties)  # a bad one is refused before any work
        if (owner := table.metadata.properties.get(PUBLICATION)) is not None:
            raise InputError(
                f"Iceberg table {table_id!r} is a publication: its files belong to the delta table in {owner}; "
                "compact that one"
            )
        return table

    def _table(self, table_id: str) -> pyiceberg_door.IcebergTable:
        expect.text_or_none("the table", table_id)
        return pyiceberg_door.IcebergTable.load(self._catalog, table_id)


def _told(metadata: TableMetadata, scan_reports: Iterable[Any], spark_logs: Iterable[str | Path]) -> ToldReads:
    from deltacompact.layout.told_reads import told_reads

    return told_reads(metadata.table_id, metadata.ordered_columns, time.time(), scan_reports, spark_logs)


def _named(options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Options by their names. Raises InputError for anything else."""
    if not isinstance(options or {}, Mapping):
        raise InputError(f"options is {options!r}, it must be a dict of option names")
    return options or {}
