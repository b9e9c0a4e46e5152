"""An Iceberg catalog, as compact() and the command line have it.

open_catalog("iceberg://prod")                      configured as PyIceberg does
IcebergCatalog(pyiceberg_catalog)                   or a catalog that is loaded already
catalog.table("ns.t").compact("convert")            a ConvertResult
catalog.convert("ns.t")                             the same
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltacompact.base import expect
from deltacompact.base.events import EventSink, no_sink
from deltacompact.base.model import ICEBERG
from deltacompact.base.notebooks import UsersWords
from deltacompact.base.settings import Settings
from deltacompact.base.user_calls import users_calls
from deltacompact.catalog.iceberg_calls import IcebergCalls
from deltacompact.catalog.iceberg_table import IcebergCatalogTable
from deltacompact.iceberg.table import pyiceberg_door
from deltacompact.iceberg.table.metadata import MAIN
from deltacompact.iceberg_modes.modes import CONVERT, REWRITE, UPSERT

if TYPE_CHECKING:  # a mode is imported when it is run: `show` must not wait for it
    from deltacompact.iceberg_modes.convert.plan import ConvertPlan
    from deltacompact.iceberg_modes.convert.result import ConvertResult
    from deltacompact.iceberg_modes.maintain.result import MaintainResult
    from deltacompact.iceberg_modes.rewrite.plan import RewritePlan
    from deltacompact.iceberg_modes.rewrite.result import RewriteResult
    from deltacompact.iceberg_modes.upsert.plan import UpsertPlan
    from deltacompact.iceberg_modes.upsert.result import UpsertResult
    from deltacompact.layout.advice import Advice


@users_calls
@dataclass(frozen=True, slots=True, repr=False)
class IcebergCatalog(IcebergCalls, UsersWords):
    """Tables of a PyIceberg catalog. `table_id` is "namespace.table".

    Plans and modes take the arguments of `IcebergCatalogTable.compact`; `emit` is a callable that gets every event.
    """

    _words = (
        "advise",
        "at",
        "convert",
        "maintain",
        "name",
        "plan",
        "plan_conversion",
        "plan_upsert",
        "properties",
        "rewrite",
        "table",
        "tables",
        "upsert",
    )

    @classmethod
    def at(cls, uri: str) -> IcebergCatalog:
        """The catalog at `uri`, "iceberg://NAME"."""
        return cls(pyiceberg_door.open_named(uri.removeprefix(ICEBERG)))

    def table(self, table_id: str) -> IcebergCatalogTable:
        """The table of this name, with what can be done with it. Raises NotFoundError."""
        found = IcebergCatalogTable(self, expect.text("table_id", table_id))
        self.metadata(table_id)
        return found

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

    def maintain(self, table_id: str, **asked: Any) -> MaintainResult:
        """Expire snapshots, rewrite manifests, remove orphans: see `IcebergCatalogTable.maintain`."""
        return IcebergCatalogTable(self, table_id).maintain(**asked)

    def advise(
        self, table_id: str, columns: str | Sequence[str] | None = None, branch: str = MAIN, **asked: Any
    ) -> Advice:
        """What clustering a branch would bring and cost: see `IcebergCatalogTable.advise`."""
        return IcebergCatalogTable(self, table_id).advise(columns, branch, **asked)

    def __repr__(self) -> str:
        return f"open_catalog('iceberg://{self.name}')"

    def __str__(self) -> str:
        """What `show` prints: a line for each table."""
        from deltacompact.reports.iceberg_catalog import lines

        return "\n".join(lines(self.name, self._shown()))

    def _repr_html_(self) -> str:
        """The tables, the ten of many with most delete files: for notebooks."""
        from deltacompact.reports.iceberg_catalog import tables_as_html

        return tables_as_html(self.name, self._shown())

    def _shown(self) -> list[dict[str, Any]]:
        from deltacompact.reports.iceberg_catalog import tables_document

        return list(tables_document(self.name, self.tables(), self.metadata, self.at_once).document)
