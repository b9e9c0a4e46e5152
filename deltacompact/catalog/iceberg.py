"""An Iceberg catalog, as compact() and the command line have it.

open_catalog("iceberg://prod")                      configured as PyIceberg does
IcebergCatalog(pyiceberg_catalog)                   or a catalog that is loaded already
catalog.table("ns.t").compact("convert")            a ConvertResult
catalog.convert("ns.t")                             the same
"""

from __future__ import annotations

from dataclasses import dataclass

from deltacompact.base import expect
from deltacompact.catalog.iceberg_calls import IcebergCalls
from deltacompact.catalog.iceberg_table import IcebergCatalogTable
from deltacompact.iceberg.table import pyiceberg_door

_WORDS = (
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


@dataclass(frozen=True, slots=True, repr=False)
class IcebergCatalog(IcebergCalls):
    """Tables of a PyIceberg catalog, by `namespace.table`."""

    @classmethod
    def at(cls, uri: str) -> IcebergCatalog:
        """The catalog "iceberg://NAME"."""
        return cls(pyiceberg_door.open_named(uri.removeprefix("iceberg://")))

    def table(self, table_id: str) -> IcebergCatalogTable:
        """The table of this name, with what can be done with it. Raises NotFoundError."""
        found = IcebergCatalogTable(self, expect.text("table_id", table_id))
        self.metadata(table_id)
        return found

    def __repr__(self) -> str:
        return f"open_catalog('iceberg://{self.name}')"

    def __dir__(self) -> list[str]:
        """A user's words: Tab shows no other."""
        return [*_WORDS, *(name for name in object.__dir__(self) if name.startswith("__"))]
