"""An Iceberg catalog, as compact() and the command line have it.

open_catalog("iceberg://prod")                              configured as PyIceberg does
IcebergCatalog(pyiceberg_catalog)                           or a catalog that is loaded already
catalog.rewrite("ns.t", {"delete-file-threshold": "1"})     a RewriteResult
catalog.maintain("ns.t", expire_snapshots=True)             a MaintainResult
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.base.events import EventSink
from deltacompact.base.settings import Settings
from deltacompact.catalog.iceberg.maintain.maintain import Maintain, MaintainResult
from deltacompact.catalog.iceberg.rewrite.expected import Expected, expected
from deltacompact.catalog.iceberg.rewrite.options import rewrite_options
from deltacompact.catalog.iceberg.rewrite.plan import RewritePlan
from deltacompact.catalog.iceberg.rewrite.result import RewriteResult
from deltacompact.catalog.iceberg.rewrite.rewrite import Rewrite, no_sink
from deltacompact.catalog.iceberg.table import pyiceberg_door
from deltacompact.catalog.iceberg.table.metadata import MAIN
from deltacompact.executors.choose import foresee, lane_for


@dataclass(frozen=True, slots=True)
class IcebergCatalog:
    """Tables of a PyIceberg catalog, by `namespace.table`."""

    _catalog: Any

    @classmethod
    def at(cls, uri: str) -> IcebergCatalog:
        """The catalog "iceberg://NAME"."""
        return cls(pyiceberg_door.open_named(uri.removeprefix("iceberg://")))

    @property
    def name(self) -> str:
        return str(self._catalog.name)

    def plan(self, table_id: str, options: Mapping[str, Any] | None = None, branch: str = MAIN) -> RewritePlan:
        """What a rewrite of a branch would do. Writes nothing."""
        return self._prepared(table_id, options, branch, Settings()).plan()

    def expected(self, plan: RewritePlan, settings: Settings | None = None) -> Expected:
        """How long carrying out a plan is expected to take. Starts no cluster."""
        settings = settings or Settings()
        return expected(plan, foresee(settings, lane_for(settings, plan.rows, plan.bytes)).capacity)

    def rewrite(
        self,
        table_id: str,
        options: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        settings: Settings | None = None,
        plan: str | bytes | None = None,
        emit: EventSink = no_sink,
    ) -> RewriteResult:
        """Rewrite a branch with all deletes applied. `plan`: the JSON of a plan to carry out, with its own options.

        Before that, what a rewrite that died had written is committed. `emit` gets RewriteStarted, GroupWritten,
        GroupsCommitted and RewriteFinished events.
        Raises InputError for a bad name or option, before any work, and ConflictError if other writers came first.
        """
        return replace(self._prepared(table_id, options, branch, settings or Settings()), emit=emit).run(plan)

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
        expect.text_or_none("the table", table_id)
        if not isinstance(options or {}, Mapping):
            raise InputError(f"options is {options!r}, it must be a dict of Iceberg's option names")
        table = pyiceberg_door.IcebergTable.load(self._catalog, table_id)
        work = Maintain(table, branch, options or {}, dry_run, say=say)
        return work.run(expire_snapshots, rewrite_manifests, remove_orphans)

    def _prepared(self, table_id: str, options: Mapping[str, Any] | None, branch: str, settings: Settings) -> Rewrite:
        expect.text_or_none("the table", table_id)
        if not isinstance(options or {}, Mapping):
            raise InputError(f"options is {options!r}, it must be a dict of Iceberg's option names")
        table = pyiceberg_door.IcebergTable.load(self._catalog, table_id)
        return Rewrite(table, branch, rewrite_options(options or {}, table.metadata.properties), settings)
