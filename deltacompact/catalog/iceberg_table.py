"""One table of an Iceberg catalog: what a user does with it, by the names of the commands.

orders = open_catalog("iceberg://prod").table("db.orders")
orders.plan("convert")                                  deltacompact plan    iceberg://prod db.orders --mode convert
orders.compact(options={"rewrite-all": True})           deltacompact compact iceberg://prod db.orders --option …
orders.maintain(expire_snapshots=True, dry_run=True)    deltacompact maintain iceberg://prod db.orders …
orders.history()                                        deltacompact show    iceberg://prod db.orders --snapshots
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from deltacompact.base import expect
from deltacompact.base.events import EventSink, fan_out
from deltacompact.base.settings import Settings

if TYPE_CHECKING:  # imported when they are used: `show` must not wait for them
    from deltacompact.catalog.iceberg_calls import IcebergCalls
    from deltacompact.iceberg.table.metadata import Snapshot
    from deltacompact.iceberg_modes.maintain.maintain import MaintainResult
    from deltacompact.iceberg_modes.plan import ModePlan
    from deltacompact.iceberg_modes.result import ModeResult


@dataclass(frozen=True, slots=True)
class SnapshotMade:
    """A snapshot, and what made it: "append", "overwrite", "delete", or "replace".

    `time` is by the clock of whoever committed it. `summary` is what the snapshot says of itself, by Iceberg's names.
    """

    snapshot_id: int
    time: datetime
    operation: str
    summary: Mapping[str, str]

    @classmethod
    def of(cls, snapshot: Snapshot) -> SnapshotMade:
        time = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
        return cls(snapshot.snapshot_id, time, snapshot.summary.get("operation", ""), snapshot.summary)


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

    def history(self, branch: str = "main") -> list[SnapshotMade]:
        """The snapshots of a branch that have not been expired, the oldest first."""
        metadata = self._catalog.metadata(self._table_id)
        return [*map(SnapshotMade.of, metadata.ancestors(metadata.branch(branch)))][::-1]

    def __repr__(self) -> str:
        return f"{self._catalog!r}.table({self._table_id!r})"

    def __str__(self) -> str:
        """What `show` prints."""
        from deltacompact.reports.iceberg_table import branch_contents, lines

        return "\n".join(lines(branch_contents(self._catalog.state(self._table_id))))

    def _repr_html_(self) -> str:
        """The contents of the main branch as a table: for notebooks."""
        import dataclasses

        from deltacompact.reports.iceberg_table import branch_contents
        from deltacompact.reports.shown import html_table

        found = dataclasses.asdict(branch_contents(self._catalog.state(self._table_id)))
        return html_table(
            self._table_id, ("", ""), [(name.replace("_", " "), str(value)) for name, value in found.items()]
        )

    def __dir__(self) -> list[str]:
        """A user's words: Tab shows no other."""
        return sorted(name for name in object.__dir__(self) if name[:1] != "_" or name[:2] == "__")
