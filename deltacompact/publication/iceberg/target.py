"""An Iceberg table as the target of a publication.

iceberg://prod/db.orders          catalog "prod", as PyIceberg is configured; namespace db, table orders
iceberg://prod/lake.eu.orders     namespace lake.eu
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deltacompact.base.errors import InputError
from deltacompact.base.model import ICEBERG
from deltacompact.iceberg.table import pyiceberg_door
from deltacompact.publication.iceberg.held import held_files
from deltacompact.publication.iceberg.table import ShownIcebergTable
from deltacompact.publication.port import Source
from deltacompact.storage.objects import ObjectStore
from deltacompact.tabular.published_types import ICEBERG_TYPES, PublishedTypes


@dataclass(frozen=True, slots=True)
class IcebergTarget:
    """An Iceberg table, by the name of its catalog."""

    catalog: str
    table_id: str
    kind: ClassVar[str] = "Iceberg"
    types: ClassVar[PublishedTypes] = ICEBERG_TYPES

    @classmethod
    def of(cls, uri: str) -> IcebergTarget:
        """Raises InputError for anything but iceberg://NAME/namespace.table."""
        name, _, table_id = uri.removeprefix(ICEBERG).partition("/")
        named = name and table_id[-1:] != "/" and "." in table_id and all(table_id.split("."))
        if not uri.startswith(ICEBERG) or not named:
            raise InputError(f"{uri!r} does not name an Iceberg table: iceberg://NAME/namespace.table")
        return cls(name, table_id)

    def __str__(self) -> str:
        return f"{ICEBERG}{self.catalog}/{self.table_id}"

    def open(self, source: Source) -> ShownIcebergTable:
        """Raises InputError if the catalog is not configured."""
        return ShownIcebergTable(pyiceberg_door.open_named(self.catalog), self.table_id, source)

    def held_files(self, store: ObjectStore, old_s: float, dry_run: bool) -> frozenset[str]:
        return held_files(pyiceberg_door.open_named(self.catalog), self.table_id, old_s, dry_run)
