"""Keeps the heat of an Iceberg table beside its metadata: see layout/kept_heat.py.

    metadata/_deltacompact-heat/00000000000000000007.json

The folder's name is hidden (it begins with "_"), so no tool that removes orphans touches it.
"""

from __future__ import annotations

from deltacompact.iceberg.table.metadata import TableMetadata
from deltacompact.layout.kept_heat import KeptHeat
from deltacompact.storage.objects import ObjectStore

FOLDER = "metadata/_deltacompact-heat/"


def heat_of_table(store: ObjectStore, metadata: TableMetadata) -> KeptHeat:
    """The kept heat of a table."""
    return KeptHeat(store, FOLDER, metadata.table_id, str(metadata.uuid))
