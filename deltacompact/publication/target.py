"""Where a table is published.

iceberg://prod/db.orders          catalog "prod", as PyIceberg is configured; namespace db, table orders
iceberg://prod/lake.eu.orders     namespace lake.eu
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deltacompact.base import expect
from deltacompact.base.errors import InputError
from deltacompact.iceberg.table import pyiceberg_door

_SCHEME = "iceberg://"


@dataclass(frozen=True, slots=True)
class PublicationTarget:
    """An Iceberg table, by the name of its catalog."""

    catalog: str
    table_id: str

    @classmethod
    def of(cls, uri: str) -> PublicationTarget:
        """Raises InputError for anything but iceberg://NAME/namespace.table."""
        expect.text("the Iceberg table", uri)
        name, slash, table_id = uri.removeprefix(_SCHEME).partition("/")
        if not uri.startswith(_SCHEME) or not slash or not name or not all(table_id.split(".")) or "." not in table_id:
            raise InputError(f"{uri!r} does not name an Iceberg table: iceberg://NAME/namespace.table")
        return cls(name, table_id)

    def __str__(self) -> str:
        return f"{_SCHEME}{self.catalog}/{self.table_id}"

    def open(self) -> Any:
        """The catalog. Raises InputError where it is not configured."""
        return pyiceberg_door.open_named(self.catalog)
