"""What this program asks of an Iceberg catalog. Each call names the table, "namespace.table".

catalog.metadata("ns.t")                    what the catalog says of it, in one answer
catalog.state("ns.t", "main")               the live data files and delete files of a branch
catalog.run(CONVERT, "ns.t", {...})         a mode at work: a ConvertResult
catalog.watched("ns.t")                     a branch that is looked at again and again

What users ask stands in `iceberg_table.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.events import EventSink, fan_out, no_sink
from deltacompact.base.settings import DEFAULTS, SETTINGS_OF_STREAMS, Settings
from deltacompact.iceberg.commit.patience import Patience
from deltacompact.iceberg.table import pyiceberg_door
from deltacompact.iceberg.table.metadata import MAIN, PUBLICATION, Snapshot, TableMetadata
from deltacompact.iceberg.table.table_state import StateReader, TableState
from deltacompact.iceberg_modes.modes import mode_named
from deltacompact.planning.within_memory import TASK_BYTES, within_memory
from deltacompact.sinks.environment import sinks_asked_for

if TYPE_CHECKING:  # a mode is imported when it is run: `show` must not wait for it
    from deltacompact.base.expected import Expected
    from deltacompact.iceberg.comparison import Comparison
    from deltacompact.iceberg.table.content_files import ManifestEntry
    from deltacompact.iceberg_modes.convert.plan import ConvertPlan
    from deltacompact.iceberg_modes.driver import ModeRun
    from deltacompact.iceberg_modes.mode import Mode, Plan, Result
    from deltacompact.iceberg_modes.rewrite.plan import RewritePlan
    from deltacompact.iceberg_modes.totals import BranchTotals
    from deltacompact.iceberg_modes.upsert.plan import UpsertPlan
    from deltacompact.iceberg_modes.watching import WatchedBranch


@dataclass(frozen=True, slots=True)
class IcebergCalls:
    """The calls of an Iceberg catalog that no user needs."""

    _catalog: Any

    @property
    def name(self) -> str:
        return str(self._catalog.name)

    @property
    def properties(self) -> Mapping[str, str]:
        """As PyIceberg was configured: type, uri, warehouse, …"""
        return {name: str(value) for name, value in self._catalog.properties.items()}

    def tables(self) -> list[str]:
        """All tables, by `namespace.table`. Raises InputError where the catalog does not list them, StoreError where it
        does not answer."""
        return sorted(".".join(identifier) for identifier in pyiceberg_door.listed(self._catalog))

    @property
    def at_once(self) -> int:
        """How many threads may ask the catalog."""
        return pyiceberg_door.asked_at_once(self._catalog)

    def loaded(self, table_id: str) -> pyiceberg_door.IcebergTable:
        """The table, as the catalog has it now. Raises NotFoundError."""
        expect.text_or_none("the table", table_id)
        return pyiceberg_door.IcebergTable.load(self._catalog, table_id)

    def compactable(self, table_id: str) -> pyiceberg_door.IcebergTable:
        """The table, unless its files belong to somebody else or nothing could be committed. Raises InputError."""
        return _compactable(self.loaded(table_id))

    def metadata(self, table_id: str) -> TableMetadata:
        """What the catalog says of a table, in one answer."""
        return self.loaded(table_id).metadata

    def planned(
        self,
        mode: Mode[Plan, Result],
        table_id: str,
        options: Mapping[str, Any] | None = None,
        branch: str = MAIN,
    ) -> Plan:
        """What a mode would do with a branch. Writes nothing."""
        return self._call(mode, self.loaded(table_id), options, branch).plan()

    def planned_with_totals(
        self, mode: Mode[Plan, Result], table_id: str, options: Mapping[str, Any] | None, branch: str
    ) -> tuple[Plan, BranchTotals, BranchTotals]:
        """The plan, and what the branch is made of before it is carried out, and about afterwards."""
        return self._call(mode, self.loaded(table_id), options, branch).plan_with_totals()

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
        return self._call(mode, self.loaded(table_id), options, branch, settings, emit).run(plan)

    def expected(self, plan: RewritePlan | ConvertPlan | UpsertPlan, settings: Settings | None = None) -> Expected:
        """How long carrying out a plan is expected to take. Starts no cluster."""
        from deltacompact.executors.choose import foresee, lane_for

        settings = _within_memory(settings)
        there = foresee(settings, lane_for(settings, plan.rows, plan.bytes))
        return replace(mode_named(plan.mode).steps().expected(plan, there.capacity), start_s=there.start_s)

    def foreseen(
        self, table: pyiceberg_door.IcebergTable, state: TableState, settings: Settings | None = None
    ) -> tuple[Expected, str | None]:
        """What a rewrite of this branch is expected to take, and why there is nothing to do. Raises as `planned`."""
        plan = self._call(mode_named(None), table, None, state.branch).plan(state)
        return self.expected(plan, settings), plan.nothing_to_do

    def seen(self, table_id: str, branch: str = MAIN) -> tuple[pyiceberg_door.IcebergTable, TableState]:
        """A table, and a branch of it as it is now: its live data files and delete files."""
        table = self.loaded(table_id)
        return table, StateReader(table.store).read(table.metadata, branch)

    def state(self, table_id: str, branch: str = MAIN) -> TableState:
        """A branch as it is now: its live data files and delete files."""
        return self.seen(table_id, branch)[1]

    def changes(self, table_id: str, snapshot_ids: Iterable[int]) -> list[ManifestEntry]:
        """The files that snapshots added and deleted, in their order, as far as they have not been expired."""
        table = self.loaded(table_id)
        reader, known = StateReader(table.store), table.metadata.snapshots
        return [entry for name in snapshot_ids if name in known for entry in reader.changes(known[name])]

    def comparison(
        self, table_id: str, branch: str = MAIN, before: int | None = None, after: int | None = None
    ) -> Comparison:
        """Which two snapshots of a branch must have the same rows: see comparison.py."""
        from deltacompact.iceberg.comparison import comparison

        return comparison(self.loaded(table_id).metadata, branch, before, after)

    def watched(self, table_id: str, branch: str = MAIN, layout: bool = False) -> WatchedBranch:
        """A branch that is looked at again and again: only what is new is read. `layout`: and how its files lie."""
        from deltacompact.iceberg_modes.watching import WatchedBranch

        return WatchedBranch(self._catalog, table_id, branch, layout)

    def committed_by(self, table_id: str, work: str) -> tuple[Snapshot, ...]:
        """The snapshots that attempts at some work ("run-1/1/1", "run-1/2/1", …) have committed, the oldest first."""
        from deltacompact.iceberg.commit.attempts import committed_by

        return committed_by(self.loaded(table_id).metadata.snapshots.values(), work)

    def _call(
        self,
        mode: Mode[Plan, Result],
        table: pyiceberg_door.IcebergTable,
        options: Mapping[str, Any] | None,
        branch: str,
        settings: Settings | None = None,
        emit: EventSink = no_sink,
    ) -> ModeRun[Plan, Result]:
        from deltacompact.iceberg.marks.finding import Sizes
        from deltacompact.iceberg_modes.driver import ModeRun

        settings = _within_memory(settings)
        table = _compactable(table)
        chosen = mode.read_options(expect.options("options", options), table.metadata.properties)
        return ModeRun(table, branch, chosen, settings, Sizes.of(settings), emit=emit, mode=mode)


def _within_memory(settings: Settings | None) -> Settings:
    """The settings, within the memory that there is. Raises InputError for one that only delta streams have."""
    settings = Settings() if settings is None else expect.instance("settings", settings, Settings)
    for name, instead in SETTINGS_OF_STREAMS.items():
        if getattr(settings, name) != getattr(DEFAULTS, name):
            advice = f": give the option {instead}" if instead else ""
            raise InputError(f"the setting {name} is for delta streams{advice}")
    return within_memory(settings, TASK_BYTES)


def _compactable(table: pyiceberg_door.IcebergTable) -> pyiceberg_door.IcebergTable:
    """The table, unless its files belong to somebody else or nothing could be committed. Raises InputError."""
    table_id, properties = table.metadata.table_id, table.metadata.properties
    Patience.of(properties)  # a bad one is refused before any work
    table.check_versions_kept()
    if (owner := properties.get(PUBLICATION)) is not None:
        raise InputError(
            f"Iceberg table {table_id!r} is a publication: its files belong to the delta table in {owner}; "
            "compact that one"
        )
    return table
